//! The legacy era at a server end: the handshake, its agreed terms, and how long they hold.

use crate::server_pipe::{
    self, Host, NOTHING, able, config, every_chunking, every_version, is_modern, notification,
    offering, payload, request, seconds,
};
use everlink::protocol::{LogLevel, ServerCapabilities, Version, Versions};
use everlink::server::{Config, Misuse, Offer};
use everlink::{Change, List};
use serde_json::{Value, json};

/// Runs the script with a client of each version that has a handshake.
fn every_legacy_version(mut script: impl FnMut(Version) -> Host) {
    for version in Version::LEGACY {
        script(*version).finish();
    }
}

fn changed(list: List) -> Change {
    Change::List(list)
}

fn updated(uri: &str) -> Change {
    Change::Resource { uri: uri.into() }
}

/// S-LIFE-01, S-LIFE-02: the handshake comes first, and its result has everything that the client needs.
#[test]
fn the_handshake_says_all_that_it_must() {
    every_chunking(|chunking| {
        let tools = ServerCapabilities::default()
            .with_tools(true)
            .with_logging();
        let offer = Offer::new("docs", "1.2").with_capabilities(tools);
        let offer = offer.with_instructions("Be kind.");
        let mut host = Host::new(Config::new(offer, [7; 16])).chunked(chunking);
        let id = host.initialize("2025-11-25");
        let expected = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": true}, "logging": {}},
            "serverInfo": {"name": "docs", "version": "1.2"},
            "instructions": "Be kind.",
        });
        assert_eq!(host.result(&id), expected);
        let met = host.met();
        assert_eq!(met.len(), 1);
        assert_eq!(met[0].version, Version::V2025_11_25);
        assert_eq!(met[0].client.as_ref().unwrap().name(), "scripted");
        assert!(met[0].capabilities.member("roots").is_some());
        assert_eq!(host.server.legacy_peer(), Some(met[0]));
        host
    });
    let mut host = Host::new(config());
    let id = host.initialize("2025-11-25");
    assert_eq!(host.result(&id).get("instructions"), None, "there are none");
    host.finish();
}

/// S-LIFE-01: before the handshake only a ping is served.
#[test]
fn nothing_is_served_before_the_handshake() {
    for method in [
        "tools/list",
        "tools/call",
        "resources/subscribe",
        "logging/setLevel",
        "no/such",
    ] {
        let mut host = Host::new(config());
        let id = host.plain_call(
            method,
            json!({"uri": "file:///a", "level": "debug", "name": "add"}),
        );
        host.error(&id);
        assert_eq!(host.requests().len(), 0, "{method}");
        host.publish(updated("file:///a"));
        host.publish(changed(List::Tools));
        assert_eq!(host.heard().len(), 1, "{method}");
        host.finish();
    }
}

/// S-LIFE-01: a client may send requests before it sends `initialized`.
#[test]
fn a_client_that_has_its_answer_is_served() {
    let mut host = Host::new(config());
    host.initialize("2025-11-25");
    let id = host.plain_call("tools/list", Value::Null);
    host.respond(host.newest(), json!({"tools": []}));
    assert_eq!(host.result(&id), json!({"tools": []}));
    host.finish();
}

/// S-LIFE-02, S-LIFE-09: an incomplete `initialize` is refused with the code for invalid parameters, and can be repeated.
#[test]
fn a_handshake_that_lacks_something_is_refused() {
    for params in [
        Value::Null,
        json!({}),
        json!({"capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}),
        json!({"protocolVersion": 7, "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}),
        json!({"protocolVersion": "2025-11-25", "capabilities": [], "clientInfo": {"name": "a", "version": "1"}}),
    ] {
        let mut host = Host::new(config());
        let id = host.plain_call("initialize", params.clone());
        assert_eq!(host.code(&id), -32602, "{params}");
        assert!(host.server.legacy_peer().is_none(), "{params}");
        let id = host.initialize("2025-11-25");
        assert_eq!(host.result(&id)["protocolVersion"], "2025-11-25");
        host.finish();
    }
}

/// S-LIFE-02: a handshake waits until the server has its offer.
#[test]
fn a_handshake_waits_for_the_offer() {
    let mut host = Host::new(Config::deferred([7; 16]));
    let id = host.initialize("2025-11-25");
    host.pass(seconds(60));
    assert_eq!(host.heard(), NOTHING);
    let offer =
        Offer::new("late", "3").with_capabilities(ServerCapabilities::default().with_tools(false));
    host.verb(|server, now| server.offer(now, offer));
    assert_eq!(host.result(&id)["capabilities"], json!({"tools": {}}));
    assert_eq!(host.result(&id)["serverInfo"]["name"], "late");
    host.finish();
}

/// S-LIFE-02: a client need not wait for the result of `initialize`. Its later requests are served after the handshake, in
/// order.
#[test]
fn what_follows_a_handshake_that_waits_is_served_after_it() {
    every_chunking(|chunking| {
        let mut host = Host::new(Config::deferred([7; 16])).chunked(chunking);
        let hello = host.initialize("2025-06-18");
        host.say(notification("notifications/initialized", Value::Null));
        let list = host.plain_call("tools/list", Value::Null);
        let unknown = host.plain_call("no/such", Value::Null);
        let cancelled = host.plain_call("tools/list", Value::Null);
        host.cancel(&cancelled);
        let ping = host.plain_call("ping", Value::Null);
        assert_eq!(host.result(&ping), json!({}), "that needs no offer");
        assert_eq!(host.heard().len(), 1);
        host.verb(|server, now| server.offer(now, server_pipe::everything()));
        assert_eq!(host.heard()[1]["id"], hello, "the handshake comes first");
        assert_eq!(host.code(&unknown), -32601);
        assert_eq!(host.requests().len(), 1);
        assert_eq!(host.requests()[0].peer.version, Version::V2025_06_18);
        host.respond(host.newest(), json!({"tools": []}));
        host.result(&list);
        assert_eq!(host.replies(&cancelled).len(), 0);
        // `initialized` came early and still counts.
        host.try_ask_unbidden("roots/list", Value::Null)
            .expect("it may be asked");
        assert_eq!(host.said("roots/list").len(), 1);
        host
    });
}

/// S-LIFE-05: before `initialized` the client gets no asks and no change notifications. Asks wait until then.
#[test]
fn nothing_is_asked_before_the_handshake_is_over() {
    every_chunking(|chunking| {
        let mut host = Host::new(config()).chunked(chunking);
        host.initialize("2025-11-25");
        host.plain_call("tools/call", json!({"name": "add"}));
        let before = host.heard().len();
        let request = host.newest();
        host.ask(request, "roots/list", Value::Null);
        let unbidden = host.try_ask_unbidden("roots/list", Value::Null);
        unbidden.expect("it waits");
        host.publish(changed(List::Tools));
        host.pass(seconds(60));
        assert_eq!(host.heard()[before..], NOTHING);

        host.say(notification("notifications/initialized", Value::Null));
        assert_eq!(host.said("roots/list").len(), 2);
        host.publish(changed(List::Tools));
        assert!(!host.said("notifications/tools/list_changed").is_empty());
        host
    });
}

/// S-LIFE-07: the server accepts the offered version if it supports it; otherwise it answers with its newest legacy
/// version.
#[test]
fn the_version_is_the_clients_or_the_newest_there_is() {
    let counter = |versions: Versions, offered: &str| {
        let mut config = config();
        config.versions = versions;
        let mut host = Host::new(config);
        let id = host.initialize(offered);
        let version = host.result(&id)["protocolVersion"].clone();
        let agreed = host.server.legacy_peer().expect("a client").version;
        assert_eq!(version, agreed.as_str());
        host.finish();
        version
    };
    for version in Version::LEGACY {
        assert_eq!(counter(Versions::ALL, version.as_str()), version.as_str());
        assert_eq!(
            counter(Versions::LEGACY, version.as_str()),
            version.as_str()
        );
    }
    for unknown in ["1999-01-01", "2025-04-01", "2099-01-01", "", "2026-07-28"] {
        assert_eq!(counter(Versions::ALL, unknown), "2025-11-25", "{unknown}");
    }
    let two = Versions::between(Version::V2024_11_05, Version::V2025_03_26);
    assert_eq!(counter(two, "2024-11-05"), "2024-11-05");
    assert_eq!(counter(two, "2025-06-18"), "2025-03-26");
    assert_eq!(counter(two, "2025-11-25"), "2025-03-26");
}

/// S-LIFE-09: a client that leaves because of the version leaves nothing behind.
#[test]
fn a_client_that_leaves_over_the_version_costs_nothing() {
    let mut host = Host::new(config());
    host.initialize("1999-01-01");
    host.eof();
    assert_eq!(
        host.server.state(),
        everlink::server::State::Closed,
        "there is nothing to wait for"
    );
    host.finish();
}

/// S-LIFE-12: the agreed terms hold until the next handshake.
#[test]
fn a_new_handshake_begins_anew() {
    let mut host = Host::legacy(config(), "2025-11-25");
    let id = host.call("resources/subscribe", json!({"uri": "file:///a"}));
    assert_eq!(host.result(&id), json!({}));
    let id = host.call("logging/setLevel", json!({"level": "debug"}));
    assert_eq!(host.result(&id), json!({}));
    host.publish(updated("file:///a"));
    assert_eq!(host.said("notifications/resources/updated").len(), 1);
    let log = |host: &mut Host| {
        let data = payload(&json!("text"));
        host.verb(|server, now| server.log(now, None, LogLevel::Debug, None, data))
            .unwrap();
        host.said("notifications/message").len()
    };
    assert_eq!(log(&mut host), 1);

    let mut host = host.declaring(json!({})).speaking(Version::V2024_11_05);
    let peer = host.server.legacy_peer().expect("a client").clone();
    assert_eq!(peer.version, Version::V2024_11_05);
    assert!(peer.capabilities.member("roots").is_none());
    let asked = host.try_ask_unbidden("roots/list", Value::Null);
    assert!(matches!(asked, Err(Misuse::Unaskable { .. })), "{asked:?}");
    host.publish(updated("file:///a"));
    assert_eq!(
        host.said("notifications/resources/updated").len(),
        1,
        "nobody subscribed to it"
    );
    assert_eq!(log(&mut host), 1, "nobody asked for so much");
    host.finish();
}

/// S-LIFE-12: subscriptions and log level of the handshake do not apply to modern requests.
#[test]
fn what_the_handshake_scopes_is_not_for_modern_requests() {
    let mut host = Host::legacy(config(), "2025-11-25");
    host.call("logging/setLevel", json!({"level": "debug"}));
    let id = host.modern_call("tools/call", json!({"name": "add"}));
    let modern = host.newest();
    let data = payload(&json!("text"));
    let logged =
        host.verb(|server, now| server.log(now, Some(modern), LogLevel::Error, None, data));
    logged.expect("it is offered");
    assert_eq!(
        host.said("notifications/message").len(),
        0,
        "that request did not ask"
    );
    host.respond(modern, json!({"content": []}));
    host.result(&id);
    host.finish();
}

/// S-TIME-08: a ping is answered at once with an empty result, at any time.
#[test]
fn a_ping_is_answered_at_once() {
    every_legacy_version(|version| {
        let mut host = Host::new(config());
        let early = host.plain_call("ping", Value::Null);
        assert_eq!(host.result(&early), json!({}), "before the handshake too");
        let mut host = host.speaking(version);
        let _busy = host.tool("slow");
        let ping = host.call("ping", Value::Null);
        assert_eq!(host.result(&ping), json!({}));
        host.say(request(
            "with",
            "ping",
            json!({"_meta": {"progressToken": 1}, "x": 1}),
        ));
        assert_eq!(host.result(&json!("with")), json!({}));
        assert_eq!(
            host.requests().len(),
            1,
            "the application has no part in it"
        );
        host.shutdown();
        let last = host.call("ping", Value::Null);
        assert_eq!(host.result(&last), json!({}), "it is still there");
        host
    });
}

/// S-CAP-01: the server declares exactly what it offers. The first version has no capability for completions.
#[test]
fn what_is_offered_is_declared() {
    let none = ServerCapabilities::default;
    for (offered, declared) in [
        (none(), json!({})),
        (none().with_tools(false), json!({"tools": {}})),
        (
            none().with_prompts(true),
            json!({"prompts": {"listChanged": true}}),
        ),
        (
            none().with_resources(false, true),
            json!({"resources": {"subscribe": true}}),
        ),
        (
            none().with_resources(true, false),
            json!({"resources": {"listChanged": true}}),
        ),
        (none().with_logging(), json!({"logging": {}})),
        (none().with_completions(), json!({"completions": {}})),
    ] {
        every_version(|version| {
            let mut host = Host::new(offering(offered.clone()));
            let id = if is_modern(version) {
                host.call("server/discover", Value::Null)
            } else {
                host.initialize(version.as_str())
            };
            let mut declared = declared.clone();
            if version == Version::V2024_11_05 {
                declared.as_object_mut().unwrap().remove("completions");
            }
            assert_eq!(host.result(&id)["capabilities"], declared, "{version}");
            host
        });
    }
}

/// S-CAP-01, S-CAP-03: methods that are not declared are not found.
#[test]
fn what_is_not_offered_is_not_there() {
    every_version(|version| {
        let mut host = Host::new(offering(ServerCapabilities::default())).speaking(version);
        for method in [
            "tools/list",
            "tools/call",
            "prompts/list",
            "prompts/get",
            "resources/list",
            "resources/templates/list",
            "resources/read",
        ] {
            let id = host.call(method, json!({"name": "a", "uri": "file:///a"}));
            assert_eq!(host.code(&id), -32601, "{version}: {method}");
        }
        if !is_modern(version) {
            for method in [
                "resources/subscribe",
                "resources/unsubscribe",
                "logging/setLevel",
            ] {
                let id = host.call(method, json!({"uri": "file:///a", "level": "info"}));
                assert_eq!(host.code(&id), -32601, "{version}: {method}");
            }
        }
        if version != Version::V2024_11_05 {
            let id = host.call("completion/complete", json!({"ref": {}, "argument": {}}));
            assert_eq!(host.code(&id), -32601, "{version}");
        }
        assert_eq!(host.requests().len(), 0);
        for change in [
            changed(List::Tools),
            changed(List::Prompts),
            changed(List::Resources),
            updated("a:b"),
        ] {
            let refused = host.verb(|server, now| server.publish(now, change.clone()));
            assert!(
                matches!(refused, Err(Misuse::NotOffered { .. })),
                "{change:?}: {refused:?}"
            );
        }
        let refused = host
            .verb(|server, now| server.log(now, None, LogLevel::Error, None, payload(&json!(1))));
        assert!(
            matches!(refused, Err(Misuse::NotOffered { .. })),
            "{refused:?}"
        );
        host
    });
}

/// S-CAP-03: a feature without change notifications sends none, and cannot be subscribed to.
#[test]
fn word_of_changes_is_offered_apart() {
    every_legacy_version(|version| {
        let quiet = ServerCapabilities::default()
            .with_tools(false)
            .with_resources(false, false);
        let mut host = Host::new(offering(quiet)).speaking(version);
        for change in [
            changed(List::Tools),
            changed(List::Resources),
            updated("file:///a"),
        ] {
            let refused = host.verb(|server, now| server.publish(now, change.clone()));
            assert!(
                matches!(refused, Err(Misuse::NotOffered { .. })),
                "{change:?}: {refused:?}"
            );
        }
        let id = host.call("resources/subscribe", json!({"uri": "file:///a"}));
        assert_eq!(host.code(&id), -32601);
        host
    });
}

/// S-CAP-03: methods and notifications that the agreed version does not have are not used.
#[test]
fn the_version_that_was_agreed_on_is_kept_to() {
    every_legacy_version(|version| {
        let urls = json!({"elicitation": {"url": {}}});
        let mut host = Host::new(config()).declaring(urls).speaking(version);
        for method in [
            "server/discover",
            "subscriptions/listen",
            "no/such",
            "tools/lists",
        ] {
            let id = host.call(method, Value::Null);
            assert_eq!(host.code(&id), -32601, "{version}: {method}");
        }
        assert_eq!(host.requests().len(), 0);
        let method = "notifications/elicitation/complete";
        let done = Some(payload(&json!({"elicitationId": "1"})));
        let told = host.verb(|server, now| server.notify(now, method, done));
        told.expect("it is only not sent");
        let has_urls = version >= Version::V2025_11_25;
        assert_eq!(host.said(method).len(), usize::from(has_urls), "{version}");
        host
    });
}

/// S-CAP-03: asks that the agreed version does not have are not sent, whatever the client declares.
#[test]
fn questions_that_the_version_does_not_have_are_not_asked() {
    let form = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
    let url =
        json!({"mode": "url", "message": "?", "url": "https://example.com/", "elicitationId": "1"});
    let sample = json!({"messages": [], "maxTokens": 1});
    let tools = json!({"messages": [], "maxTokens": 1, "tools": []});
    every_legacy_version(|version| {
        let all =
            json!({"elicitation": {"form": {}, "url": {}}, "roots": {}, "sampling": {"tools": {}}});
        let mut host = Host::new(config()).declaring(all).speaking(version);
        let (_, request) = host.tool("add");
        for (method, params, since) in [
            ("roots/list", &Value::Null, Version::V2024_11_05),
            ("sampling/createMessage", &sample, Version::V2024_11_05),
            ("elicitation/create", &form, Version::V2025_06_18),
            ("elicitation/create", &url, Version::V2025_11_25),
            ("sampling/createMessage", &tools, Version::V2025_11_25),
        ] {
            let asked = host.try_ask(request, method, params.clone());
            assert_eq!(
                asked.is_ok(),
                version >= since,
                "{version}: {method} {params}"
            );
        }
        host
    });
}

/// S-CAP-03: a client gets only asks that it declared in its handshake.
#[test]
fn a_client_is_asked_only_what_it_declared() {
    every_legacy_version(|version| {
        let mut host = Host::new(config())
            .declaring(json!({"sampling": {}}))
            .speaking(version);
        let (_, request) = host.tool("add");
        for ask in [
            host.try_ask(request, "roots/list", Value::Null),
            host.try_ask_unbidden("roots/list", Value::Null),
            host.try_ask(
                request,
                "elicitation/create",
                json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}}),
            ),
            host.try_ask(request, "tools/list", Value::Null),
        ] {
            assert!(
                matches!(ask, Err(Misuse::Unaskable { .. })),
                "{version}: {ask:?}"
            );
        }
        let sample = json!({"messages": [], "maxTokens": 1});
        host.ask(request, "sampling/createMessage", sample);
        assert_eq!(host.said("sampling/createMessage").len(), 1);
        host
    });
}

/// S-CAP-13: list changes are sent unasked. Resource changes are sent only while the client is subscribed.
#[test]
fn changes_are_told_to_who_wants_to_hear_of_them() {
    every_legacy_version(|version| {
        let mut host = Host::new(config()).speaking(version);
        for (list, method) in [
            (List::Tools, "notifications/tools/list_changed"),
            (List::Prompts, "notifications/prompts/list_changed"),
            (List::Resources, "notifications/resources/list_changed"),
        ] {
            host.publish(changed(list));
            assert_eq!(host.said(method).len(), 1, "{version}: {method}");
        }
        host.publish(updated("file:///a"));
        let told = |host: &Host| host.said("notifications/resources/updated").len();
        assert_eq!(told(&host), 0, "nobody subscribed");
        host.call("resources/subscribe", json!({"uri": "file:///a"}));
        host.publish(updated("file:///b"));
        assert_eq!(told(&host), 0, "not to this");
        host.publish(updated("file:///a"));
        assert_eq!(told(&host), 1);
        assert_eq!(
            host.said("notifications/resources/updated")[0]["params"],
            json!({"uri": "file:///a"})
        );
        host.call("resources/unsubscribe", json!({"uri": "file:///a"}));
        host.publish(updated("file:///a"));
        assert_eq!(told(&host), 1, "not any more");
        host
    });
}

/// S-CAP-09: an invalid log level is refused, a valid one applies from then on, and without one the server decides.
#[test]
fn a_legacy_client_chooses_its_level() {
    every_legacy_version(|version| {
        let mut host = Host::new(config()).speaking(version);
        let heard = |host: &mut Host, level: LogLevel| {
            let before = host.said("notifications/message").len();
            let data = payload(&json!("text"));
            let logged = host.verb(|server, now| server.log(now, None, level, Some("me"), data));
            logged.expect("it is offered");
            host.said("notifications/message").len() > before
        };
        assert!(heard(&mut host, LogLevel::Info), "the default");
        assert!(!heard(&mut host, LogLevel::Debug));
        for params in [
            json!({"level": "loud"}),
            json!({"level": 3}),
            json!({"level": "DEBUG"}),
            json!({}),
            Value::Null,
        ] {
            let id = host.call("logging/setLevel", params.clone());
            assert_eq!(host.code(&id), -32602, "{version}: {params}");
        }
        assert!(heard(&mut host, LogLevel::Info), "still the default");
        for (at, chosen) in LogLevel::ALL.iter().enumerate() {
            let id = host.call("logging/setLevel", json!({"level": chosen.as_str()}));
            assert_eq!(host.result(&id), json!({}));
            for (level, named) in LogLevel::ALL.iter().enumerate() {
                assert_eq!(
                    heard(&mut host, *named),
                    level >= at,
                    "{named} when {chosen} was chosen"
                );
            }
        }
        let last = host.said("notifications/message").pop().cloned().unwrap();
        assert_eq!(
            last["params"],
            json!({"level": "emergency", "logger": "me", "data": "text"})
        );
        host
    });
}

/// S-RPC-05: the server never reuses an id of its own requests, even after a new handshake.
#[test]
fn the_server_never_uses_an_id_twice() {
    let mut host = Host::legacy(config(), "2025-11-25");
    let mut asked = 0;
    for round in 0..3 {
        let (_, request) = host.tool("add");
        for _ in 0..4 {
            host.ask(request, "roots/list", Value::Null);
            host.try_ask_unbidden("roots/list", Value::Null)
                .expect("it may be asked");
            asked += 2;
        }
        for number in 0..asked {
            let id = host.said("roots/list")[number]["id"].clone();
            host.answer(&id, json!({"roots": []}));
        }
        host.respond(request, json!({"content": []}));
        if round == 1 {
            host = host.declaring(able()).speaking(Version::V2025_06_18);
        }
    }
    let mut ids: Vec<String> = host
        .said("roots/list")
        .iter()
        .map(|m| m["id"].to_string())
        .collect();
    assert_eq!(ids.len(), asked);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), asked);
    host.finish();
}

/// S-RPC-28: a complete session of a legacy client: handshake, request, ask, notification, end.
#[test]
fn a_legacy_client_lives_its_whole_life() {
    every_chunking(|chunking| {
        let mut host = Host::new(config())
            .chunked(chunking)
            .speaking(Version::V2025_11_25);
        let (id, request) = host.tool("add");
        let ask = host.ask(request, "roots/list", Value::Null);
        let asked = host.said("roots/list")[0]["id"].clone();
        host.answer(&asked, json!({"roots": [1]}));
        assert_eq!(host.outcome(ask), Some(Ok(json!({"roots": [1]}))));
        host.publish(changed(List::Prompts));
        host.respond(request, json!({"content": [2]}));
        assert_eq!(host.result(&id), json!({"content": [2]}));
        host.eof();
        assert_eq!(host.server.state(), everlink::server::State::Closed);
        host
    });
}
