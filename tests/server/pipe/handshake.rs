//! The legacy era at a server end: the handshake, its agreed terms, and how long they hold.

use crate::server_pipe::{
    self, Harness, NO_MESSAGES, config, default_capabilities, every_chunking, every_version,
    full_offer, is_modern, notification, offering, payload, request, seconds,
};
use everlink::protocol::{LogLevel, ServerCapabilities, Version, Versions};
use everlink::server::{Config, Misuse, Offer};
use everlink::{Change, List};
use serde_json::{Value, json};

/// Runs the script with a client of each version that has a handshake.
fn every_legacy_version(mut script: impl FnMut(Version) -> Harness) {
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
fn initialize_result_has_version_capabilities_server_info_and_instructions() {
    every_chunking(|chunking| {
        let tools = ServerCapabilities::default()
            .with_tools(true)
            .with_logging();
        let offer = Offer::new("docs", "1.2").with_capabilities(tools);
        let offer = offer.with_instructions("Be kind.");
        let mut harness = Harness::new(Config::new(offer, [7; 16])).chunked(chunking);
        let id = harness.initialize("2025-11-25");
        let expected = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": true}, "logging": {}},
            "serverInfo": {"name": "docs", "version": "1.2"},
            "instructions": "Be kind.",
        });
        assert_eq!(harness.result(&id), expected);
        let met = harness.met();
        assert_eq!(met.len(), 1);
        assert_eq!(met[0].version, Version::V2025_11_25);
        assert_eq!(met[0].client.as_ref().unwrap().name(), "scripted");
        assert!(met[0].capabilities.member("roots").is_some());
        assert_eq!(harness.server.legacy_peer(), Some(met[0]));
        harness
    });
    let mut harness = Harness::new(config());
    let id = harness.initialize("2025-11-25");
    assert_eq!(
        harness.result(&id).get("instructions"),
        None,
        "no instructions are offered"
    );
    harness.finish();
}

/// S-LIFE-01: before the handshake only a ping is served.
#[test]
fn requests_before_the_handshake_are_refused() {
    for method in [
        "tools/list",
        "tools/call",
        "resources/subscribe",
        "logging/setLevel",
        "no/such",
    ] {
        let mut harness = Harness::new(config());
        let id = harness.plain_call(
            method,
            json!({"uri": "file:///a", "level": "debug", "name": "add"}),
        );
        harness.error(&id);
        assert_eq!(harness.requests().len(), 0, "{method}");
        harness.publish(updated("file:///a"));
        harness.publish(changed(List::Tools));
        assert_eq!(harness.received().len(), 1, "{method}");
        harness.finish();
    }
}

/// S-LIFE-01: a client may send requests before it sends `initialized`.
#[test]
fn requests_are_served_before_the_initialized_notification() {
    let mut harness = Harness::new(config());
    harness.initialize("2025-11-25");
    let id = harness.plain_call("tools/list", Value::Null);
    harness.respond(harness.newest_request(), json!({"tools": []}));
    assert_eq!(harness.result(&id), json!({"tools": []}));
    harness.finish();
}

/// S-LIFE-02, S-LIFE-09: an incomplete `initialize` is refused with the code for invalid parameters, and can be repeated.
#[test]
fn incomplete_initialize_is_refused_and_can_be_repeated() {
    for params in [
        Value::Null,
        json!({}),
        json!({"capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}),
        json!({"protocolVersion": 7, "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}),
        json!({"protocolVersion": "2025-11-25", "capabilities": [], "clientInfo": {"name": "a", "version": "1"}}),
    ] {
        let mut harness = Harness::new(config());
        let id = harness.plain_call("initialize", params.clone());
        assert_eq!(harness.code(&id), -32602, "{params}");
        assert!(harness.server.legacy_peer().is_none(), "{params}");
        let id = harness.initialize("2025-11-25");
        assert_eq!(harness.result(&id)["protocolVersion"], "2025-11-25");
        harness.finish();
    }
}

/// S-LIFE-02: a handshake waits until the server has its offer.
#[test]
fn a_handshake_waits_for_the_offer() {
    let mut harness = Harness::new(Config::deferred([7; 16]));
    let id = harness.initialize("2025-11-25");
    harness.advance(seconds(60));
    assert_eq!(harness.received(), NO_MESSAGES);
    let offer =
        Offer::new("late", "3").with_capabilities(ServerCapabilities::default().with_tools(false));
    harness.with_server(|server, now| server.offer(now, offer));
    assert_eq!(harness.result(&id)["capabilities"], json!({"tools": {}}));
    assert_eq!(harness.result(&id)["serverInfo"]["name"], "late");
    harness.finish();
}

/// S-LIFE-02: a client need not wait for the result of `initialize`. Its later requests are served after the handshake, in
/// order.
#[test]
fn requests_behind_a_waiting_handshake_are_served_after_it() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(Config::deferred([7; 16])).chunked(chunking);
        let handshake = harness.initialize("2025-06-18");
        harness.send(notification("notifications/initialized", Value::Null));
        let list = harness.plain_call("tools/list", Value::Null);
        let unknown = harness.plain_call("no/such", Value::Null);
        let cancelled = harness.plain_call("tools/list", Value::Null);
        harness.cancel(&cancelled);
        let ping = harness.plain_call("ping", Value::Null);
        assert_eq!(harness.result(&ping), json!({}), "a ping needs no offer");
        assert_eq!(harness.received().len(), 1);
        harness.with_server(|server, now| server.offer(now, server_pipe::full_offer()));
        assert_eq!(
            harness.received()[1]["id"],
            handshake,
            "the handshake comes first"
        );
        assert_eq!(harness.code(&unknown), -32601);
        assert_eq!(harness.requests().len(), 1);
        assert_eq!(harness.requests()[0].peer.version, Version::V2025_06_18);
        harness.respond(harness.newest_request(), json!({"tools": []}));
        harness.result(&list);
        assert_eq!(harness.replies(&cancelled).len(), 0);
        // `initialized` came early and still counts.
        harness
            .try_ask_unbidden("roots/list", Value::Null)
            .expect("the client can be asked");
        assert_eq!(harness.messages_with("roots/list").len(), 1);
        harness
    });
}

/// S-LIFE-05: before `initialized` the client gets no asks and no change notifications. Asks wait until then.
#[test]
fn no_ask_or_change_is_sent_before_initialized() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config()).chunked(chunking);
        harness.initialize("2025-11-25");
        harness.plain_call("tools/call", json!({"name": "add"}));
        let before = harness.received().len();
        let request = harness.newest_request();
        harness.ask(request, "roots/list", Value::Null);
        let unbidden = harness.try_ask_unbidden("roots/list", Value::Null);
        unbidden.expect("the ask waits");
        harness.publish(changed(List::Tools));
        harness.advance(seconds(60));
        assert_eq!(harness.received()[before..], NO_MESSAGES);

        harness.send(notification("notifications/initialized", Value::Null));
        assert_eq!(harness.messages_with("roots/list").len(), 2);
        harness.publish(changed(List::Tools));
        assert!(
            !harness
                .messages_with("notifications/tools/list_changed")
                .is_empty()
        );
        harness
    });
}

/// S-LIFE-07: the server accepts the offered version if it supports it; otherwise it answers with its newest legacy
/// version.
#[test]
fn agreed_version_is_the_clients_or_the_newest_legacy_one() {
    let agreed_version = |versions: Versions, offered: &str| {
        let mut config = config();
        config.versions = versions;
        let mut harness = Harness::new(config);
        let id = harness.initialize(offered);
        let version = harness.result(&id)["protocolVersion"].clone();
        let agreed = harness.server.legacy_peer().expect("a client").version;
        assert_eq!(version, agreed.as_str());
        harness.finish();
        version
    };
    for version in Version::LEGACY {
        assert_eq!(
            agreed_version(Versions::ALL, version.as_str()),
            version.as_str()
        );
        assert_eq!(
            agreed_version(Versions::LEGACY, version.as_str()),
            version.as_str()
        );
    }
    for unknown in ["1999-01-01", "2025-04-01", "2099-01-01", "", "2026-07-28"] {
        assert_eq!(
            agreed_version(Versions::ALL, unknown),
            "2025-11-25",
            "{unknown}"
        );
    }
    let two = Versions::between(Version::V2024_11_05, Version::V2025_03_26);
    assert_eq!(agreed_version(two, "2024-11-05"), "2024-11-05");
    assert_eq!(agreed_version(two, "2025-06-18"), "2025-03-26");
    assert_eq!(agreed_version(two, "2025-11-25"), "2025-03-26");
}

/// S-LIFE-09: a client that leaves because of the version leaves nothing behind.
#[test]
fn client_that_rejects_the_version_leaves_nothing_open() {
    let mut harness = Harness::new(config());
    harness.initialize("1999-01-01");
    harness.eof();
    assert_eq!(
        harness.server.state(),
        everlink::server::State::Closed,
        "no request is open"
    );
    harness.finish();
}

/// S-LIFE-12: the agreed terms hold until the next handshake.
#[test]
fn new_handshake_resets_version_capabilities_subscriptions_and_log_level() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let id = harness.call("resources/subscribe", json!({"uri": "file:///a"}));
    assert_eq!(harness.result(&id), json!({}));
    let id = harness.call("logging/setLevel", json!({"level": "debug"}));
    assert_eq!(harness.result(&id), json!({}));
    harness.publish(updated("file:///a"));
    assert_eq!(
        harness
            .messages_with("notifications/resources/updated")
            .len(),
        1
    );
    let log = |harness: &mut Harness| {
        let data = payload(&json!("text"));
        harness
            .with_server(|server, now| server.log(now, None, LogLevel::Debug, None, data))
            .unwrap();
        harness.messages_with("notifications/message").len()
    };
    assert_eq!(log(&mut harness), 1);

    let mut harness = harness
        .declaring(json!({}))
        .with_version(Version::V2024_11_05);
    let peer = harness.server.legacy_peer().expect("a client").clone();
    assert_eq!(peer.version, Version::V2024_11_05);
    assert!(peer.capabilities.member("roots").is_none());
    let asked = harness.try_ask_unbidden("roots/list", Value::Null);
    assert!(matches!(asked, Err(Misuse::Unaskable { .. })), "{asked:?}");
    harness.publish(updated("file:///a"));
    assert_eq!(
        harness
            .messages_with("notifications/resources/updated")
            .len(),
        1,
        "the new handshake has no subscription"
    );
    assert_eq!(log(&mut harness), 1, "the new level excludes the message");
    harness.finish();
}

/// S-LIFE-12: a new handshake begins a new client, even if it describes itself like the one before.
#[test]
fn client_that_repeats_its_handshake_is_reported_again() {
    let mut harness = Harness::new(config());
    for count in 1..=3 {
        harness.initialize("2025-11-25");
        assert_eq!(harness.met().len(), count);
    }
    harness.finish();
}

/// S-CAP-03: the handshake decides what is offered to its client, also if the server offers more later.
#[test]
fn client_gets_no_log_messages_that_its_handshake_did_not_offer() {
    let mut harness = Harness::legacy(
        offering(ServerCapabilities::default().with_tools(false)),
        "2025-11-25",
    );
    let (_, request) = harness.call_tool("slow");
    harness.with_server(|server, now| server.offer(now, full_offer()));
    let log = |harness: &mut Harness, request| {
        let data = payload(&json!("text"));
        let logged = harness
            .with_server(|server, now| server.log(now, request, LogLevel::Error, None, data));
        logged.expect("logging is offered now");
        harness.messages_with("notifications/message").len()
    };
    assert_eq!(log(&mut harness, Some(request)), 0);
    assert_eq!(log(&mut harness, None), 0);
    let mut harness = harness.with_version(Version::V2025_06_18);
    let (_, request) = harness.call_tool("slow");
    assert_eq!(log(&mut harness, Some(request)), 1);
    assert_eq!(log(&mut harness, None), 2);
    harness.finish();
}

/// S-LIFE-12: the log level of the handshake does not apply to modern requests.
#[test]
fn log_level_of_the_handshake_does_not_apply_to_modern_requests() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    harness.call("logging/setLevel", json!({"level": "debug"}));
    let id = harness.modern_call("tools/call", json!({"name": "add"}));
    let modern = harness.newest_request();
    let data = payload(&json!("text"));
    let logged = harness
        .with_server(|server, now| server.log(now, Some(modern), LogLevel::Error, None, data));
    logged.expect("logging is offered");
    assert_eq!(
        harness.messages_with("notifications/message").len(),
        0,
        "the request has no log level"
    );
    harness.respond(modern, json!({"content": []}));
    harness.result(&id);
    harness.finish();
}

/// S-TIME-08: a ping is answered at once with an empty result, at any time.
#[test]
fn ping_is_answered_at_once_in_any_state() {
    every_legacy_version(|version| {
        let mut harness = Harness::new(config());
        let early = harness.plain_call("ping", Value::Null);
        assert_eq!(
            harness.result(&early),
            json!({}),
            "before the handshake, too"
        );
        let mut harness = harness.with_version(version);
        let _busy = harness.call_tool("slow");
        let ping = harness.call("ping", Value::Null);
        assert_eq!(harness.result(&ping), json!({}));
        harness.send(request(
            "with",
            "ping",
            json!({"_meta": {"progressToken": 1}, "x": 1}),
        ));
        assert_eq!(harness.result(&json!("with")), json!({}));
        assert_eq!(
            harness.requests().len(),
            1,
            "the application is not involved"
        );
        harness.shutdown();
        let last = harness.call("ping", Value::Null);
        assert_eq!(
            harness.result(&last),
            json!({}),
            "a draining server answers pings"
        );
        harness
    });
}

/// S-CAP-01: the server declares exactly what it offers. The first version has no capability for completions.
#[test]
fn server_declares_exactly_the_offered_capabilities() {
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
            let mut harness = Harness::new(offering(offered.clone()));
            let id = if is_modern(version) {
                harness.call("server/discover", Value::Null)
            } else {
                harness.initialize(version.as_str())
            };
            let mut declared = declared.clone();
            if version == Version::V2024_11_05 {
                declared.as_object_mut().unwrap().remove("completions");
            }
            assert_eq!(harness.result(&id)["capabilities"], declared, "{version}");
            harness
        });
    }
}

/// S-CAP-01, S-CAP-03: methods that are not declared are not found.
#[test]
fn methods_and_notifications_of_unoffered_capabilities_are_refused() {
    every_version(|version| {
        let mut harness =
            Harness::new(offering(ServerCapabilities::default())).with_version(version);
        for method in [
            "tools/list",
            "tools/call",
            "prompts/list",
            "prompts/get",
            "resources/list",
            "resources/templates/list",
            "resources/read",
        ] {
            let id = harness.call(method, json!({"name": "a", "uri": "file:///a"}));
            assert_eq!(harness.code(&id), -32601, "{version}: {method}");
        }
        if !is_modern(version) {
            for method in [
                "resources/subscribe",
                "resources/unsubscribe",
                "logging/setLevel",
            ] {
                let id = harness.call(method, json!({"uri": "file:///a", "level": "info"}));
                assert_eq!(harness.code(&id), -32601, "{version}: {method}");
            }
        }
        if version != Version::V2024_11_05 {
            let id = harness.call("completion/complete", json!({"ref": {}, "argument": {}}));
            assert_eq!(harness.code(&id), -32601, "{version}");
        }
        assert_eq!(harness.requests().len(), 0);
        for change in [
            changed(List::Tools),
            changed(List::Prompts),
            changed(List::Resources),
            updated("a:b"),
        ] {
            let refused = harness.with_server(|server, now| server.publish(now, change.clone()));
            assert!(
                matches!(refused, Err(Misuse::NotOffered { .. })),
                "{change:?}: {refused:?}"
            );
        }
        let refused = harness.with_server(|server, now| {
            server.log(now, None, LogLevel::Error, None, payload(&json!(1)))
        });
        assert!(
            matches!(refused, Err(Misuse::NotOffered { .. })),
            "{refused:?}"
        );
        harness
    });
}

/// S-CAP-03: a feature without change notifications sends none, and cannot be subscribed to.
#[test]
fn change_notifications_need_their_own_capability() {
    every_legacy_version(|version| {
        let quiet = ServerCapabilities::default()
            .with_tools(false)
            .with_resources(false, false);
        let mut harness = Harness::new(offering(quiet)).with_version(version);
        for change in [
            changed(List::Tools),
            changed(List::Resources),
            updated("file:///a"),
        ] {
            let refused = harness.with_server(|server, now| server.publish(now, change.clone()));
            assert!(
                matches!(refused, Err(Misuse::NotOffered { .. })),
                "{change:?}: {refused:?}"
            );
        }
        let id = harness.call("resources/subscribe", json!({"uri": "file:///a"}));
        assert_eq!(harness.code(&id), -32601);
        harness
    });
}

/// S-CAP-03: methods and notifications that the agreed version does not have are not used.
#[test]
fn methods_and_notifications_outside_the_agreed_version_are_not_used() {
    every_legacy_version(|version| {
        let urls = json!({"elicitation": {"url": {}}});
        let mut harness = Harness::new(config()).declaring(urls).with_version(version);
        for method in [
            "server/discover",
            "subscriptions/listen",
            "no/such",
            "tools/lists",
        ] {
            let id = harness.call(method, Value::Null);
            assert_eq!(harness.code(&id), -32601, "{version}: {method}");
        }
        assert_eq!(harness.requests().len(), 0);
        let method = "notifications/elicitation/complete";
        let done = Some(payload(&json!({"elicitationId": "1"})));
        let sent = harness.with_server(|server, now| server.notify(now, method, done));
        sent.expect("the call succeeds, although nothing is sent");
        let has_urls = version >= Version::V2025_11_25;
        assert_eq!(
            harness.messages_with(method).len(),
            usize::from(has_urls),
            "{version}"
        );
        harness
    });
}

/// S-CAP-03: asks that the agreed version does not have are not sent, whatever the client declares.
#[test]
fn asks_outside_the_agreed_version_are_refused() {
    let form = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
    let url =
        json!({"mode": "url", "message": "?", "url": "https://example.com/", "elicitationId": "1"});
    let sample = json!({"messages": [], "maxTokens": 1});
    let tools = json!({"messages": [], "maxTokens": 1, "tools": []});
    every_legacy_version(|version| {
        let all =
            json!({"elicitation": {"form": {}, "url": {}}, "roots": {}, "sampling": {"tools": {}}});
        let mut harness = Harness::new(config()).declaring(all).with_version(version);
        let (_, request) = harness.call_tool("add");
        for (method, params, since) in [
            ("roots/list", &Value::Null, Version::V2024_11_05),
            ("sampling/createMessage", &sample, Version::V2024_11_05),
            ("elicitation/create", &form, Version::V2025_06_18),
            ("elicitation/create", &url, Version::V2025_11_25),
            ("sampling/createMessage", &tools, Version::V2025_11_25),
        ] {
            let asked = harness.try_ask(request, method, params.clone());
            assert_eq!(
                asked.is_ok(),
                version >= since,
                "{version}: {method} {params}"
            );
        }
        harness
    });
}

/// S-CAP-03: a client gets only asks that it declared in its handshake.
#[test]
fn asks_not_declared_in_the_handshake_are_refused() {
    every_legacy_version(|version| {
        let mut harness = Harness::new(config())
            .declaring(json!({"sampling": {}}))
            .with_version(version);
        let (_, request) = harness.call_tool("add");
        for ask in [
            harness.try_ask(request, "roots/list", Value::Null),
            harness.try_ask_unbidden("roots/list", Value::Null),
            harness.try_ask(
                request,
                "elicitation/create",
                json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}}),
            ),
            harness.try_ask(request, "tools/list", Value::Null),
        ] {
            assert!(
                matches!(ask, Err(Misuse::Unaskable { .. })),
                "{version}: {ask:?}"
            );
        }
        let sample = json!({"messages": [], "maxTokens": 1});
        harness.ask(request, "sampling/createMessage", sample);
        assert_eq!(harness.messages_with("sampling/createMessage").len(), 1);
        harness
    });
}

/// S-CAP-13: list changes are sent unasked. Resource changes are sent only while the client is subscribed.
#[test]
fn list_changes_are_sent_unasked_and_resource_changes_to_subscribers() {
    every_legacy_version(|version| {
        let mut harness = Harness::new(config()).with_version(version);
        for (list, method) in [
            (List::Tools, "notifications/tools/list_changed"),
            (List::Prompts, "notifications/prompts/list_changed"),
            (List::Resources, "notifications/resources/list_changed"),
        ] {
            harness.publish(changed(list));
            assert_eq!(
                harness.messages_with(method).len(),
                1,
                "{version}: {method}"
            );
        }
        harness.publish(updated("file:///a"));
        let updates = |harness: &Harness| {
            harness
                .messages_with("notifications/resources/updated")
                .len()
        };
        assert_eq!(updates(&harness), 0, "there is no subscription");
        harness.call("resources/subscribe", json!({"uri": "file:///a"}));
        harness.publish(updated("file:///b"));
        assert_eq!(updates(&harness), 0, "the subscription is for another URI");
        harness.publish(updated("file:///a"));
        assert_eq!(updates(&harness), 1);
        assert_eq!(
            harness.messages_with("notifications/resources/updated")[0]["params"],
            json!({"uri": "file:///a"})
        );
        harness.call("resources/unsubscribe", json!({"uri": "file:///a"}));
        harness.publish(updated("file:///a"));
        assert_eq!(updates(&harness), 1, "the subscription has ended");
        harness
    });
}

/// S-CAP-09: an invalid log level is refused, a valid one applies from then on, and without one the server decides.
#[test]
fn set_level_controls_which_log_messages_are_sent() {
    every_legacy_version(|version| {
        let mut harness = Harness::new(config()).with_version(version);
        let is_sent = |harness: &mut Harness, level: LogLevel| {
            let before = harness.messages_with("notifications/message").len();
            let data = payload(&json!("text"));
            let logged =
                harness.with_server(|server, now| server.log(now, None, level, Some("me"), data));
            logged.expect("logging is offered");
            harness.messages_with("notifications/message").len() > before
        };
        assert!(is_sent(&mut harness, LogLevel::Info), "the default");
        assert!(!is_sent(&mut harness, LogLevel::Debug));
        for params in [
            json!({"level": "loud"}),
            json!({"level": 3}),
            json!({"level": "DEBUG"}),
            json!({}),
            Value::Null,
        ] {
            let id = harness.call("logging/setLevel", params.clone());
            assert_eq!(harness.code(&id), -32602, "{version}: {params}");
        }
        assert!(is_sent(&mut harness, LogLevel::Info), "still the default");
        for (at, chosen) in LogLevel::ALL.iter().enumerate() {
            let id = harness.call("logging/setLevel", json!({"level": chosen.as_str()}));
            assert_eq!(harness.result(&id), json!({}));
            for (level, named) in LogLevel::ALL.iter().enumerate() {
                assert_eq!(
                    is_sent(&mut harness, *named),
                    level >= at,
                    "{named} when {chosen} was chosen"
                );
            }
        }
        let last = harness
            .messages_with("notifications/message")
            .pop()
            .cloned()
            .unwrap();
        assert_eq!(
            last["params"],
            json!({"level": "emergency", "logger": "me", "data": "text"})
        );
        harness
    });
}

/// S-RPC-05: the server never reuses an id of its own requests, even after a new handshake.
#[test]
fn server_never_reuses_its_request_ids() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let mut ask_count = 0;
    for round in 0..3 {
        let (_, request) = harness.call_tool("add");
        for _ in 0..4 {
            harness.ask(request, "roots/list", Value::Null);
            harness
                .try_ask_unbidden("roots/list", Value::Null)
                .expect("the client can be asked");
            ask_count += 2;
        }
        for number in 0..ask_count {
            let id = harness.messages_with("roots/list")[number]["id"].clone();
            harness.answer(&id, json!({"roots": []}));
        }
        harness.respond(request, json!({"content": []}));
        if round == 1 {
            harness = harness
                .declaring(default_capabilities())
                .with_version(Version::V2025_06_18);
        }
    }
    let mut ids: Vec<String> = harness
        .messages_with("roots/list")
        .iter()
        .map(|m| m["id"].to_string())
        .collect();
    assert_eq!(ids.len(), ask_count);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), ask_count);
    harness.finish();
}

/// S-RPC-28: a complete session of a legacy client: handshake, request, ask, notification, end.
#[test]
fn complete_legacy_session_from_handshake_to_end_of_input() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(Version::V2025_11_25);
        let (id, request) = harness.call_tool("add");
        let ask = harness.ask(request, "roots/list", Value::Null);
        let ask_id = harness.messages_with("roots/list")[0]["id"].clone();
        harness.answer(&ask_id, json!({"roots": [1]}));
        assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": [1]}))));
        harness.publish(changed(List::Prompts));
        harness.respond(request, json!({"content": [2]}));
        assert_eq!(harness.result(&id), json!({"content": [2]}));
        harness.eof();
        assert_eq!(harness.server.state(), everlink::server::State::Closed);
        harness
    });
}
