//! The handshake of legacy clients over HTTP: the agreed terms, and their effects.

use crate::server_http::{
    self, Harness, LEGACY, NO_MESSAGES, Session, config, full_offer, initialize, initialize_with,
    modern, offering, payload, post,
};
use everlink::protocol::{LogLevel, ServerCapabilities, Version, Versions};
use everlink::server::Offer;
use everlink::{Change, ErrorObject, List};
use serde_json::{Value, json};

/// A client that has the reply to `initialize` and has not sent `initialized`.
fn initialize_only(harness: &mut Harness, version: &str) -> Session {
    let begun = harness.send(initialize(version));
    let id = harness
        .field(begun, "mcp-session-id")
        .expect("an id")
        .to_owned();
    Session::new(id, version)
}

#[test]
fn s_life_01_requests_before_the_handshake_are_refused() {
    for version in LEGACY {
        let mut harness = Harness::new(config());
        for method in ["tools/list", "tools/call", "ping", "logging/setLevel"] {
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": method});
            assert_eq!(harness.send_refused(post(&message)).0, 400, "{method}");
        }
        for lacking in [
            json!({}),
            json!({"protocolVersion": 7, "capabilities": {}}),
            json!({"protocolVersion": version, "capabilities": []}),
            json!({"capabilities": {}}),
        ] {
            let message =
                json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": lacking});
            assert_eq!(harness.send_refused(post(&message)).1, -32602, "S-LIFE-09");
        }
        assert_eq!(harness.server.sessions(), 0);
        let session = harness.open_session(version);
        harness.send_accepted(session.post(1, "tools/list", Value::Null));
        harness.finish();
    }
}

#[test]
fn s_life_02_initialize_result_has_server_info_and_capabilities() {
    for version in LEGACY {
        let mut config = config();
        config.offer = Some(full_offer().with_instructions("be gentle"));
        let mut harness = Harness::new(config);
        let begun = harness.send(initialize(version));
        let agreed = harness.result(begun);
        assert_eq!(agreed["protocolVersion"], version);
        assert_eq!(
            agreed["serverInfo"],
            json!({"name": "site", "version": "1"})
        );
        assert_eq!(agreed["instructions"], "be gentle");
        assert_eq!(
            agreed["capabilities"]["tools"],
            json!({"listChanged": true})
        );
        harness.finish();
    }
}

#[test]
fn s_life_05_no_ask_or_change_is_sent_before_initialized() {
    for version in LEGACY {
        let mut harness = Harness::new(config());
        let session = initialize_only(&mut harness, version);
        let standalone = harness.send(session.get());
        let (stream, request) =
            harness.send_accepted(session.post(1, "tools/call", json!({"name": "asks"})));
        let ask = harness.ask(request, "roots/list", Value::Null);
        harness.publish(Change::List(List::Tools));
        assert_eq!(
            harness.messages_with(stream, "roots/list"),
            NO_MESSAGES,
            "{version}"
        );
        assert_eq!(harness.messages(standalone), NO_MESSAGES, "{version}");
        let data = payload(&json!("x"));
        harness
            .with_server(|server, now| server.log(now, None, LogLevel::Error, None, data))
            .expect("logging is offered");
        assert_eq!(
            harness
                .messages_with(standalone, "notifications/message")
                .len(),
            1,
            "log messages are allowed before `initialized`"
        );
        harness.send(session.notification("notifications/initialized", Value::Null));
        let ask_id = harness.messages_with(stream, "roots/list")[0]["id"].clone();
        harness.send(session.answer(&ask_id, json!({"roots": []})));
        assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
        harness.finish();
    }
}

#[test]
fn s_life_07_agreed_version_is_the_clients_or_the_newest_legacy_one() {
    for (supported, offered, agreed) in [
        (Versions::ALL, "2025-03-26", "2025-03-26"),
        (Versions::ALL, "2024-11-05", "2024-11-05"),
        (Versions::ALL, "1999-01-01", "2025-11-25"),
        (Versions::ALL, "2026-07-28", "2025-11-25"),
        (Versions::ALL, "2099-01-01", "2025-11-25"),
        (
            Versions::ALL.without(Version::V2025_11_25),
            "2025-11-25",
            "2025-06-18",
        ),
        (
            Versions::only(Version::V2025_03_26),
            "2025-11-25",
            "2025-03-26",
        ),
    ] {
        let mut config = config();
        config.versions = supported;
        let mut harness = Harness::new(config);
        let begun = harness.send(initialize(offered));
        assert_eq!(
            harness.result(begun)["protocolVersion"],
            agreed,
            "{offered}"
        );
        harness.finish();
    }
}

/// S-LIFE-09: a client that rejects the version disappears. Its session expires and leaves nothing behind.
#[test]
fn s_life_09_session_of_a_client_that_rejects_the_version_expires() {
    let mut harness = Harness::new(config());
    let begun = harness.send(initialize("2099-01-01"));
    assert_eq!(harness.result(begun)["protocolVersion"], "2025-11-25");
    assert_eq!(harness.server.sessions(), 1);
    harness.advance(server_http::seconds(31 * 60));
    assert_eq!(harness.server.sessions(), 0);
    assert_eq!(harness.server.poll_timeout(), None);
    harness.finish();
}

#[test]
fn s_cap_01_server_declares_exactly_the_offered_capabilities() {
    let none = ServerCapabilities::default;
    for (capabilities, declared) in [
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
        (none().with_logging(), json!({"logging": {}})),
        (none().with_completions(), json!({"completions": {}})),
    ] {
        let mut harness = Harness::new(offering(capabilities));
        let discovered = harness.send(modern(1, "server/discover", json!({})));
        assert_eq!(harness.result(discovered)["capabilities"], declared);
        for version in LEGACY {
            let begun = harness.send(initialize(version));
            // 2024-11-05 has no capability for completions.
            let lacks_capability = version == "2024-11-05" && declared.get("completions").is_some();
            let expected = if lacks_capability {
                json!({})
            } else {
                declared.clone()
            };
            assert_eq!(harness.result(begun)["capabilities"], expected, "{version}");
        }
        harness.finish();
    }
}

/// S-CAP-03: both sides keep to the agreed capabilities. The server refuses other methods, sends no other
/// notifications, and sends no undeclared ask.
#[test]
fn s_cap_03_only_agreed_capabilities_are_used() {
    for version in LEGACY {
        let mut harness = Harness::new(offering(ServerCapabilities::default().with_tools(false)));
        let handshake = initialize_with(version, &json!({"sampling": {}}));
        let session = harness.open_session_with(handshake, version, None);
        for (method, params) in [
            ("prompts/list", json!({})),
            ("resources/subscribe", json!({"uri": "x:"})),
            ("logging/setLevel", json!({"level": "info"})),
            ("server/discover", json!({})),
            ("subscriptions/listen", json!({"notifications": {}})),
        ] {
            let refused = harness.send_refused(session.post(1, method, params));
            assert_eq!(refused.1, -32601, "{version}: {method}");
        }
        let standalone = harness.send(session.get());
        // A later offer does not change the agreed capabilities.
        let more = ServerCapabilities::default().with_tools(true);
        let more = Offer::new("site", "2").with_capabilities(more);
        harness.with_server(|server, now| server.offer(now, more));
        harness.publish(Change::List(List::Tools));
        assert_eq!(harness.messages(standalone), NO_MESSAGES, "{version}");
        let (_, request) =
            harness.send_accepted(session.post(2, "tools/call", json!({"name": "asks"})));
        for method in ["roots/list", "elicitation/create"] {
            let params = payload(&json!({"message": "?", "requestedSchema": {}}));
            let asked =
                harness.with_server(|server, now| server.ask(now, request, method, Some(params)));
            assert!(asked.is_err(), "{version}: {method}");
        }
        harness.ask(request, "sampling/createMessage", json!({"messages": []}));
        harness.finish();
    }
}

/// S-CAP-13: a legacy client is told of changed lists, and of resources while it is subscribed to them.
#[test]
fn s_cap_13_list_changes_are_sent_unasked_and_resource_changes_to_subscribers() {
    const UPDATED: &str = "notifications/resources/updated";
    for version in LEGACY {
        let mut harness = Harness::new(config());
        let session = harness.open_session(version);
        let standalone = harness.send(session.get());
        let change = |uri: &str| Change::Resource { uri: uri.into() };
        harness.publish(change("file:///a"));
        assert_eq!(harness.messages_with(standalone, UPDATED), NO_MESSAGES);
        let done =
            harness.send(session.post(1, "resources/subscribe", json!({"uri": "file:///a"})));
        assert_eq!(harness.result(done), json!({}));
        harness.publish(change("file:///a"));
        harness.publish(change("file:///b"));
        let notifications = harness.messages_with(standalone, UPDATED);
        assert_eq!(notifications.len(), 1, "{version}");
        assert_eq!(notifications[0]["params"]["uri"], "file:///a");
        let done =
            harness.send(session.post(2, "resources/unsubscribe", json!({"uri": "file:///a"})));
        assert_eq!(harness.result(done), json!({}));
        harness.publish(change("file:///a"));
        assert_eq!(harness.messages_with(standalone, UPDATED).len(), 1);
        for (list, method) in [
            (List::Tools, "notifications/tools/list_changed"),
            (List::Prompts, "notifications/prompts/list_changed"),
            (List::Resources, "notifications/resources/list_changed"),
        ] {
            harness.publish(Change::List(list));
            assert_eq!(
                harness.messages_with(standalone, method).len(),
                1,
                "{version}"
            );
        }
        harness.finish();
    }
}

/// A session sets its log level, and the server keeps to it.
#[test]
fn s_cap_09_set_level_controls_which_log_messages_are_sent() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let standalone = harness.send(session.get());
    let log = |harness: &mut Harness, level| {
        let data = payload(&json!("x"));
        harness
            .with_server(|server, now| server.log(now, None, level, None, data))
            .expect("logging is offered");
        harness
            .messages_with(standalone, "notifications/message")
            .len()
    };
    assert_eq!(log(&mut harness, LogLevel::Debug), 0);
    assert_eq!(log(&mut harness, LogLevel::Info), 1);
    let set = |level: Value| session.post(1, "logging/setLevel", json!({"level": level}));
    let done = harness.send(set(json!("error")));
    assert_eq!(harness.result(done), json!({}));
    assert_eq!(log(&mut harness, LogLevel::Warning), 1);
    assert_eq!(log(&mut harness, LogLevel::Error), 2);
    for level in [json!("loud"), json!(7), Value::Null] {
        assert_eq!(harness.send_refused(set(level)).1, -32602);
    }
    harness.finish();
}

/// Clients in use do not read the body of a response with an error status, so the error has status 200.
#[test]
fn declined_offer_is_an_error_with_status_200_and_the_client_may_ask_again() {
    let firsts = [initialize("2025-11-25"), modern(1, "tools/list", json!({}))];
    for first in firsts {
        let mut deferred = config();
        let offer = deferred.offer.take().expect("an offer");
        let mut harness = Harness::new(deferred);
        let sent = harness.send(first.clone());
        assert!(!harness.is_answered(sent));
        let met = harness.met().len();
        let error = ErrorObject::new(-32_000, "the service is down");
        harness.with_server(|server, now| server.decline(now, &error));
        assert_eq!((harness.status(sent), harness.code(sent)), (200, -32_000));
        let again = harness.send(first.clone());
        assert!(!harness.is_answered(again), "it waits again");
        assert_eq!(harness.met().len(), met + 1, "it is reported again");
        harness.with_server(|server, now| server.offer(now, offer));
        harness.finish();
    }
}

#[test]
fn declined_offer_ends_the_stream_of_a_client_that_accepts_only_events() {
    let mut config = config();
    config.offer = None;
    let mut harness = Harness::new(config);
    let waiting = modern(1, "tools/list", json!({})).with("accept", "text/event-stream");
    let waiting = harness.send(waiting);
    let error = ErrorObject::new(-32603, "not now");
    harness.with_server(|server, now| server.decline(now, &error));
    assert!(harness.is_over(waiting));
    assert_eq!(harness.reply(waiting)["error"]["message"], "not now");
    harness.finish();
}
