//! How the two ends agree on a version: detected or configured, at once or later; and what happens if they cannot.

use everlink::client::State;
use everlink::protocol::{Era, Implementation, ServerFeature, Version, Versions};
use everlink::server::{self, Offer};
use everlink::{Binding, Dialect, Keepalive, RequestId};
use serde_json::{Value, json};

use crate::pipe::harness::{
    Harness, Setup, all_server_capabilities, in_every_cut, in_every_version,
    same_result_in_every_version, seconds,
};

/// An automatic client with its versions, and a server with its own.
fn automatic_setup(client: Versions, server: Versions, agreed: Version) -> Setup {
    let mut setup = Setup::new(agreed);
    setup.client.dialect = Dialect::Automatic;
    setup.client.versions = client;
    setup.server.versions = server;
    setup
}

/// Checks that a call works.
#[track_caller]
fn check_call(harness: &mut Harness) {
    let call = harness.tool("add");
    let request = harness.request().request;
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.outcome(call), r#"reply {"content":[]}"#);
}

#[test]
fn both_ends_learn_version_name_and_capabilities_of_the_other() {
    in_every_version(|mut harness| {
        let version = harness.version;
        check_call(&mut harness);
        let (client, _) = harness.pair.client();
        let session = client.session().expect("the link is ready");
        let server = session.server.as_ref().map(Implementation::name);
        assert_eq!((session.version, server), (version, Some("far")));
        assert_eq!(session.instructions.as_deref(), Some("Ask twice."));
        for feature in [ServerFeature::Tools, ServerFeature::ResourcesSubscribe] {
            assert!(session.capabilities.offers(feature));
        }
        assert_eq!(client.era(), Some(version.era()));

        harness.tool("who");
        let peer = harness.request().peer;
        let client = peer.client.as_ref().map(Implementation::name);
        assert_eq!((peer.version, client), (version, Some("near")));
        assert!(
            peer.capabilities
                .declares(everlink::protocol::ClientFeature::Roots)
        );
        let legacy = harness
            .pair
            .server()
            .0
            .legacy_peer()
            .map(|peer| peer.version);
        assert_eq!(legacy, (version.era() == Era::Legacy).then_some(version));
    });
}

#[test]
fn server_reports_once_which_client_it_met() {
    for &version in Version::ALL {
        let setup = Setup::new(version);
        let events = in_every_cut(|cut| {
            let mut harness = setup.idle(cut);
            let (client, now) = harness.pair.client();
            client.connect(now);
            harness.until(State::Ready);
            check_call(&mut harness);
            check_call(&mut harness);
            harness.server_event_texts()
        });
        let expected: &[&str] = match version.era() {
            Era::Legacy => &[r#"met Some("near")"#, "Initialized"],
            _ => &[r#"met Some("near")"#],
        };
        assert_eq!(events, expected, "{version}");
    }
}

#[test]
fn newest_common_version_is_negotiated_without_delay() {
    let all = Versions::ALL;
    let latest = Version::LATEST_MODERN;
    let mut table = vec![
        (all, all, latest),
        (all, Versions::MODERN, latest),
        (all, Versions::LEGACY, Version::LATEST_LEGACY),
        (Versions::LEGACY, all, Version::LATEST_LEGACY),
        (Versions::MODERN, all, latest),
    ];
    for &version in Version::ALL {
        table.push((all, Versions::only(version), version));
        table.push((Versions::only(version), all, version));
        table.push((Versions::only(version), Versions::only(version), version));
    }
    for (client, server, agreed) in table {
        let setup = automatic_setup(client, server, agreed);
        in_every_cut(|cut| {
            let mut harness = setup.ready(cut);
            // Only the handshake itself: no pause, no second attempt.
            assert_eq!(harness.pair.now(), everlink::Instant::ZERO);
            assert_eq!(harness.pair.client().0.epoch().number(), 1);
            check_call(&mut harness);
        });
    }
}

/// A legacy server may choose a version other than the offered one.
#[test]
fn legacy_server_may_choose_another_version_than_the_offered_one() {
    for &supported in Version::LEGACY {
        let mut setup = Setup::new(supported);
        setup.client.versions = Versions::LEGACY;
        setup.server.versions = Versions::only(supported);
        in_every_cut(|cut| check_call(&mut setup.ready(cut)));
    }
}

#[test]
fn handshake_without_a_common_version_fails_and_parks_the_link() {
    let (legacy, modern) = (Versions::LEGACY, Versions::MODERN);
    let old = Versions::only(Version::V2024_11_05);
    let new = Versions::only(Version::V2025_11_25);
    for (dialect, client, server) in [
        (Dialect::Automatic, modern, legacy),
        (Dialect::Automatic, legacy, modern),
        (Dialect::Automatic, old, new),
        (Dialect::Legacy, Versions::ALL, modern),
        (Dialect::Modern, Versions::ALL, legacy),
    ] {
        let mut setup = automatic_setup(client, server, Version::LATEST_MODERN);
        setup.client.dialect = dialect;
        in_every_cut(|cut| {
            let mut harness = setup.idle(cut);
            let (client, now) = harness.pair.client();
            client.connect(now);
            harness.until(State::Parked);
            let events = harness.client_event_texts();
            let why = events.iter().find(|line| line.starts_with("ended:"));
            let why = why.expect("the attempt ended");
            assert!(why.starts_with("ended: the handshake failed: "), "{why}");
            why.clone()
        });
    }
}

#[test]
fn remembered_legacy_era_skips_the_probe() {
    for (&version, probes) in [(&Version::LATEST_LEGACY, 0), (&Version::LATEST_MODERN, 1)] {
        let mut setup = automatic_setup(Versions::ALL, Versions::only(version), version);
        setup.client.remembered_era = Some(version.era());
        in_every_cut(|cut| {
            let mut harness = setup.ready(cut);
            let messages = harness.written('>');
            let probe_messages = messages
                .iter()
                .filter(|line| line["method"] == "server/discover");
            assert_eq!(probe_messages.count(), probes, "{version}");
            check_call(&mut harness);
        });
    }
}

#[test]
fn wrong_remembered_era_is_corrected() {
    for (&version, remembered) in [
        (&Version::LATEST_LEGACY, Era::Modern),
        (&Version::LATEST_MODERN, Era::Legacy),
    ] {
        let mut setup = automatic_setup(Versions::ALL, Versions::only(version), version);
        setup.client.remembered_era = Some(remembered);
        in_every_cut(|cut| {
            let mut harness = setup.ready(cut);
            assert_eq!(harness.pair.client().0.era(), Some(version.era()));
            check_call(&mut harness);
        });
    }
}

/// A server without an offer replies to nobody until it has one, and then to all.
#[test]
fn server_without_an_offer_defers_requests_until_it_has_one() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.policy.probe_timeout = seconds(60);
        let offer = setup.server.offer.take().expect("the setup has an offer");
        let deferred = server::Config::deferred([1; 16]);
        setup.server = deferred;
        in_every_cut(|cut| {
            let mut harness = setup.idle(cut);
            let call = harness.tool("add");
            harness.advance(seconds(5));
            assert_eq!(harness.pair.client().0.state(), State::Handshaking);
            assert_eq!(harness.pair.server().0.requests(), 1);
            let (server, now) = harness.pair.server();
            server.offer(now, offer.clone());
            let request = harness.request().request;
            harness.respond(request, json!({}));
            assert_eq!(harness.outcome(call), "reply {}");
            check_call(&mut harness);
        });
    }
}

/// No version announces a new offer to clients. Later requests are checked against the new offer.
#[test]
fn later_requests_are_checked_against_the_new_offer() {
    same_result_in_every_version(|mut harness| {
        check_call(&mut harness);
        let fewer = Offer::new("far", "3").with_capabilities(Default::default());
        let (server, now) = harness.pair.server();
        server.offer(now, fewer);
        let refused = harness.tool("add");
        let refused = harness.outcome(refused);
        assert!(refused.starts_with("error -32601"), "{refused}");
        let all = Offer::new("far", "4").with_capabilities(all_server_capabilities());
        let (server, now) = harness.pair.server();
        server.offer(now, all);
        check_call(&mut harness);
    });
}

#[test]
fn link_over_a_socket_works_and_closes() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.binding = Binding::Socket;
        in_every_cut(|cut| {
            let mut harness = setup.ready(cut);
            check_call(&mut harness);
            let (client, now) = harness.pair.client();
            client.shutdown(now);
            harness.until(State::Closed);
            assert_eq!(harness.pair.now(), everlink::Instant::ZERO);
        });
    }
}

/// The client probes a quiet link, and the server end replies by itself, without its application.
#[test]
fn idle_link_with_keepalive_stays_ready() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.policy.keepalive = Some(Keepalive::every(seconds(10)));
        in_every_cut(|cut| {
            let mut harness = setup.ready(cut);
            harness.advance(seconds(1_000));
            let stats = harness.pair.client().0.stats();
            assert!(stats.probes >= 90, "{}", stats.probes);
            assert_eq!(stats.probes_missed, 0);
            assert_eq!(harness.pair.client().0.epoch().number(), 1);
            assert_eq!(harness.server_event_texts(), Vec::<String>::new());
            check_call(&mut harness);
        });
    }
}

/// Both eras on one stream: a request with modern `_meta` is served as modern beside a legacy handshake.
#[test]
fn modern_request_is_served_beside_a_legacy_session() {
    in_every_version(|mut harness| {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let line = json!({
            "jsonrpc": "2.0", "id": "m", "method": "tools/call",
            "params": {"name": "n", "_meta": meta},
        });
        harness
            .pair
            .inject_to_server(format!("{line}\n").as_bytes());
        let request = harness.request();
        assert_eq!(request.peer.version, Version::LATEST_MODERN);
        let own = harness.tool("own");
        let own_request = harness.request();
        assert_eq!(own_request.peer.version, harness.version);
        let answer = |harness: &mut Harness, request: RequestId| {
            harness.respond(request, json!({"x": 1}));
            harness.settle();
        };
        answer(&mut harness, own_request.request);
        assert_eq!(harness.outcome(own), r#"reply {"x":1}"#);
        answer(&mut harness, request.request);
        let messages: Vec<Value> = harness.written('<');
        let modern = messages.iter().find(|line| line["id"] == "m");
        let modern = modern.expect("the request was answered");
        assert_eq!(modern["result"]["resultType"], "complete");
    });
}
