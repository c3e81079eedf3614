//! How the two ends agree on a version: detected or configured, at once or later; and what happens if they cannot.

use everlink::client::State;
use everlink::protocol::{Era, Implementation, ServerFeature, Version, Versions};
use everlink::server::{self, Offer};
use everlink::{Binding, Dialect, Keepalive, RequestId};
use serde_json::{Value, json};

use crate::pipe::stage::{
    Setup, Stage, everything_offered, in_every_cut, in_every_version, seconds, the_same_everywhere,
};

/// An automatic client with its versions, and a server with its own.
fn meeting(client: Versions, server: Versions, agreed: Version) -> Setup {
    let mut setup = Setup::new(agreed);
    setup.client.dialect = Dialect::Automatic;
    setup.client.versions = client;
    setup.server.versions = server;
    setup
}

/// Checks that a call works.
#[track_caller]
fn works(stage: &mut Stage) {
    let call = stage.tool("add");
    let request = stage.request().request;
    stage.respond(request, json!({"content": []}));
    assert_eq!(stage.outcome(call), r#"reply {"content":[]}"#);
}

#[test]
fn both_ends_know_each_other_in_every_version() {
    in_every_version(|mut stage| {
        let version = stage.version;
        works(&mut stage);
        let (client, _) = stage.pair.client();
        let session = client.session().expect("the link is ready");
        let server = session.server.as_ref().map(Implementation::name);
        assert_eq!((session.version, server), (version, Some("far")));
        assert_eq!(session.instructions.as_deref(), Some("Ask twice."));
        for feature in [ServerFeature::Tools, ServerFeature::ResourcesSubscribe] {
            assert!(session.capabilities.offers(feature));
        }
        assert_eq!(client.era(), Some(version.era()));

        stage.tool("who");
        let peer = stage.request().peer;
        let client = peer.client.as_ref().map(Implementation::name);
        assert_eq!((peer.version, client), (version, Some("near")));
        assert!(
            peer.capabilities
                .declares(everlink::protocol::ClientFeature::Roots)
        );
        let legacy = stage.pair.server().0.legacy_peer().map(|peer| peer.version);
        assert_eq!(legacy, (version.era() == Era::Legacy).then_some(version));
    });
}

#[test]
fn the_server_says_once_whom_it_met() {
    for &version in Version::ALL {
        let setup = Setup::new(version);
        let said = in_every_cut(|cut| {
            let mut stage = setup.idle(cut);
            let (client, now) = stage.pair.client();
            client.connect(now);
            stage.until(State::Ready);
            works(&mut stage);
            works(&mut stage);
            stage.server_said()
        });
        let expected: &[&str] = match version.era() {
            Era::Legacy => &[r#"met Some("near")"#, "Initialized"],
            _ => &[r#"met Some("near")"#],
        };
        assert_eq!(said, expected, "{version}");
    }
}

#[test]
fn the_newest_version_that_both_speak_is_found() {
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
        let setup = meeting(client, server, agreed);
        in_every_cut(|cut| {
            let mut stage = setup.ready(cut);
            // Only the handshake itself: no pause, no second attempt.
            assert_eq!(stage.pair.now(), everlink::Instant::ZERO);
            assert_eq!(stage.pair.client().0.epoch().number(), 1);
            works(&mut stage);
        });
    }
}

/// A legacy server may choose a version other than the offered one.
#[test]
fn a_legacy_server_that_is_offered_what_it_does_not_speak_names_what_it_does() {
    for &spoken in Version::LEGACY {
        let mut setup = Setup::new(spoken);
        setup.client.versions = Versions::LEGACY;
        setup.server.versions = Versions::only(spoken);
        in_every_cut(|cut| works(&mut setup.ready(cut)));
    }
}

#[test]
fn ends_without_a_common_version_say_so() {
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
        let mut setup = meeting(client, server, Version::LATEST_MODERN);
        setup.client.dialect = dialect;
        in_every_cut(|cut| {
            let mut stage = setup.idle(cut);
            let (client, now) = stage.pair.client();
            client.connect(now);
            stage.until(State::Parked);
            let said = stage.client_said();
            let why = said.iter().find(|line| line.starts_with("ended:"));
            let why = why.expect("the attempt ended");
            assert!(why.starts_with("ended: the handshake failed: "), "{why}");
            why.clone()
        });
    }
}

#[test]
fn what_was_learned_of_a_server_saves_the_probe() {
    for (&version, probes) in [(&Version::LATEST_LEGACY, 0), (&Version::LATEST_MODERN, 1)] {
        let mut setup = meeting(Versions::ALL, Versions::only(version), version);
        setup.client.remembered_era = Some(version.era());
        in_every_cut(|cut| {
            let mut stage = setup.ready(cut);
            let said = stage.written('>');
            let probed = said
                .iter()
                .filter(|line| line["method"] == "server/discover");
            assert_eq!(probed.count(), probes, "{version}");
            works(&mut stage);
        });
    }
}

#[test]
fn what_was_learned_wrongly_is_unlearned() {
    for (&version, believed) in [
        (&Version::LATEST_LEGACY, Era::Modern),
        (&Version::LATEST_MODERN, Era::Legacy),
    ] {
        let mut setup = meeting(Versions::ALL, Versions::only(version), version);
        setup.client.remembered_era = Some(believed);
        in_every_cut(|cut| {
            let mut stage = setup.ready(cut);
            assert_eq!(stage.pair.client().0.era(), Some(version.era()));
            works(&mut stage);
        });
    }
}

/// A server without an offer replies to nobody until it has one, and then to all.
#[test]
fn a_server_may_say_later_what_it_offers() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.policy.probe_timeout = seconds(60);
        let offer = setup.server.offer.take().expect("there is one");
        let deferred = server::Config::deferred([1; 16]);
        setup.server = deferred;
        in_every_cut(|cut| {
            let mut stage = setup.idle(cut);
            let call = stage.tool("add");
            stage.pass(seconds(5));
            assert_eq!(stage.pair.client().0.state(), State::Handshaking);
            assert_eq!(stage.pair.server().0.requests(), 1);
            let (server, now) = stage.pair.server();
            server.offer(now, offer.clone());
            let request = stage.request().request;
            stage.respond(request, json!({}));
            assert_eq!(stage.outcome(call), "reply {}");
            works(&mut stage);
        });
    }
}

/// No version announces a new offer to clients. Later requests are checked against the new offer.
#[test]
fn another_offer_counts_for_what_is_asked_from_then_on() {
    the_same_everywhere(|mut stage| {
        works(&mut stage);
        let fewer = Offer::new("far", "3").with_capabilities(Default::default());
        let (server, now) = stage.pair.server();
        server.offer(now, fewer);
        let refused = stage.tool("add");
        let refused = stage.outcome(refused);
        assert!(refused.starts_with("error -32601"), "{refused}");
        let all = Offer::new("far", "4").with_capabilities(everything_offered());
        let (server, now) = stage.pair.server();
        server.offer(now, all);
        works(&mut stage);
    });
}

#[test]
fn a_socket_is_as_good_as_a_child() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.binding = Binding::Socket;
        in_every_cut(|cut| {
            let mut stage = setup.ready(cut);
            works(&mut stage);
            let (client, now) = stage.pair.client();
            client.shutdown(now);
            stage.until(State::Closed);
            assert_eq!(stage.pair.now(), everlink::Instant::ZERO);
        });
    }
}

/// The client probes a quiet link, and the server end replies by itself, without its application.
#[test]
fn a_quiet_link_stays_ready() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.policy.keepalive = Some(Keepalive::every(seconds(10)));
        in_every_cut(|cut| {
            let mut stage = setup.ready(cut);
            stage.pass(seconds(1_000));
            let stats = stage.pair.client().0.stats();
            assert!(stats.probes >= 90, "{}", stats.probes);
            assert_eq!(stats.probes_missed, 0);
            assert_eq!(stage.pair.client().0.epoch().number(), 1);
            assert_eq!(stage.server_said(), Vec::<String>::new());
            works(&mut stage);
        });
    }
}

/// Both eras on one stream: a request with modern `_meta` is served as modern beside a legacy handshake.
#[test]
fn a_modern_request_is_served_beside_a_handshake() {
    in_every_version(|mut stage| {
        let terms = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let line = json!({
            "jsonrpc": "2.0", "id": "m", "method": "tools/call",
            "params": {"name": "n", "_meta": terms},
        });
        stage.pair.inject_to_server(format!("{line}\n").as_bytes());
        let request = stage.request();
        assert_eq!(request.peer.version, Version::LATEST_MODERN);
        let own = stage.tool("own");
        let of_link = stage.request();
        assert_eq!(of_link.peer.version, stage.version);
        let answer = |stage: &mut Stage, request: RequestId| {
            stage.respond(request, json!({"x": 1}));
            stage.settle();
        };
        answer(&mut stage, of_link.request);
        assert_eq!(stage.outcome(own), r#"reply {"x":1}"#);
        answer(&mut stage, request.request);
        let said: Vec<Value> = stage.written('<');
        let modern = said.iter().find(|line| line["id"] == "m");
        let modern = modern.expect("it was answered");
        assert_eq!(modern["result"]["resultType"], "complete");
    });
}
