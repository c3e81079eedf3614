//! The handshake of legacy clients over HTTP: the agreed terms, and their effects.

use crate::server_http::{
    self, LEGACY, NOTHING, Session, Site, config, everything, initialize, introduce, modern,
    offering, payload, post,
};
use everlink::protocol::{LogLevel, ServerCapabilities, Version, Versions};
use everlink::server::Offer;
use everlink::{Change, List};
use serde_json::{Value, json};

/// A client that has the reply to `initialize` and has not sent `initialized`.
fn half(site: &mut Site, version: &str) -> Session {
    let begun = site.send(initialize(version));
    let id = site
        .field(begun, "mcp-session-id")
        .expect("an id")
        .to_owned();
    Session::new(id, version)
}

#[test]
fn s_life_01_a_handshake_comes_first() {
    for version in LEGACY {
        let mut site = Site::new(config());
        for method in ["tools/list", "tools/call", "ping", "logging/setLevel"] {
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": method});
            assert_eq!(site.refused(post(&message)).0, 400, "{method}");
        }
        for lacking in [
            json!({}),
            json!({"protocolVersion": 7, "capabilities": {}}),
            json!({"protocolVersion": version, "capabilities": []}),
            json!({"capabilities": {}}),
        ] {
            let message =
                json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": lacking});
            assert_eq!(site.refused(post(&message)).1, -32602, "S-LIFE-09");
        }
        assert_eq!(site.server.sessions(), 0);
        let session = site.session(version);
        site.taken(session.post(1, "tools/list", Value::Null));
        site.finish();
    }
}

#[test]
fn s_life_02_a_handshake_says_who_the_server_is_and_what_it_can_do() {
    for version in LEGACY {
        let mut config = config();
        config.offer = Some(everything().with_instructions("be gentle"));
        let mut site = Site::new(config);
        let begun = site.send(initialize(version));
        let agreed = site.result(begun);
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
        site.finish();
    }
}

#[test]
fn s_life_05_nothing_is_asked_before_the_handshake_is_over() {
    for version in LEGACY {
        let mut site = Site::new(config());
        let session = half(&mut site, version);
        let standalone = site.send(session.get());
        let (stream, request) = site.taken(session.post(1, "tools/call", json!({"name": "asks"})));
        let ask = site.ask(request, "roots/list", Value::Null);
        site.publish(Change::List(List::Tools));
        assert_eq!(site.said(stream, "roots/list"), NOTHING, "{version}");
        assert_eq!(site.messages(standalone), NOTHING, "{version}");
        let data = payload(&json!("x"));
        site.verb(|server, now| server.log(now, None, LogLevel::Error, None, data))
            .expect("logs are offered");
        assert_eq!(
            site.said(standalone, "notifications/message").len(),
            1,
            "that may be"
        );
        site.send(session.notice("notifications/initialized", Value::Null));
        let question = site.said(stream, "roots/list")[0]["id"].clone();
        site.send(session.answer(&question, json!({"roots": []})));
        assert_eq!(site.outcome(ask), Some(Ok(json!({"roots": []}))));
        site.finish();
    }
}

#[test]
fn s_life_07_the_version_is_the_clients_or_the_newest_with_a_handshake() {
    for (spoken, offered, agreed) in [
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
        config.versions = spoken;
        let mut site = Site::new(config);
        let begun = site.send(initialize(offered));
        assert_eq!(site.result(begun)["protocolVersion"], agreed, "{offered}");
        site.finish();
    }
}

/// S-LIFE-09: a client that rejects the version disappears. Its session expires and leaves nothing behind.
#[test]
fn s_life_09_a_client_that_leaves_over_the_version_costs_nothing() {
    let mut site = Site::new(config());
    let begun = site.send(initialize("2099-01-01"));
    assert_eq!(site.result(begun)["protocolVersion"], "2025-11-25");
    assert_eq!(site.server.sessions(), 1);
    site.pass(server_http::seconds(31 * 60));
    assert_eq!(site.server.sessions(), 0);
    assert_eq!(site.server.poll_timeout(), None);
    site.finish();
}

#[test]
fn s_cap_01_what_is_offered_is_declared() {
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
        let mut site = Site::new(offering(capabilities));
        let found = site.send(modern(1, "server/discover", json!({})));
        assert_eq!(site.result(found)["capabilities"], declared);
        for version in LEGACY {
            let begun = site.send(initialize(version));
            // 2024-11-05 has no capability for completions.
            let is_nameless = version == "2024-11-05" && declared.get("completions").is_some();
            let expected = if is_nameless {
                json!({})
            } else {
                declared.clone()
            };
            assert_eq!(site.result(begun)["capabilities"], expected, "{version}");
        }
        site.finish();
    }
}

/// S-CAP-03: both sides keep to the agreed capabilities. The server refuses other methods, sends no other
/// notifications, and sends no undeclared ask.
#[test]
fn s_cap_03_what_was_agreed_on_is_kept_to() {
    for version in LEGACY {
        let mut site = Site::new(offering(ServerCapabilities::default().with_tools(false)));
        let begin = introduce(version, &json!({"sampling": {}}));
        let session = site.session_with(begin, version, None);
        for (method, params) in [
            ("prompts/list", json!({})),
            ("resources/subscribe", json!({"uri": "x:"})),
            ("logging/setLevel", json!({"level": "info"})),
            ("server/discover", json!({})),
            ("subscriptions/listen", json!({"notifications": {}})),
        ] {
            let refused = site.refused(session.post(1, method, params));
            assert_eq!(refused.1, -32601, "{version}: {method}");
        }
        let standalone = site.send(session.get());
        // A later offer does not change the agreed capabilities.
        let more = ServerCapabilities::default().with_tools(true);
        let more = Offer::new("site", "2").with_capabilities(more);
        site.verb(|server, now| server.offer(now, more));
        site.publish(Change::List(List::Tools));
        assert_eq!(site.messages(standalone), NOTHING, "{version}");
        let (_, request) = site.taken(session.post(2, "tools/call", json!({"name": "asks"})));
        for method in ["roots/list", "elicitation/create"] {
            let params = payload(&json!({"message": "?", "requestedSchema": {}}));
            let asked = site.verb(|server, now| server.ask(now, request, method, Some(params)));
            assert!(asked.is_err(), "{version}: {method}");
        }
        site.ask(request, "sampling/createMessage", json!({"messages": []}));
        site.finish();
    }
}

/// S-CAP-13: a legacy client is told of changed lists, and of resources while it is subscribed to them.
#[test]
fn s_cap_13_changes_are_told_to_who_wants_to_hear_of_them() {
    const UPDATED: &str = "notifications/resources/updated";
    for version in LEGACY {
        let mut site = Site::new(config());
        let session = site.session(version);
        let standalone = site.send(session.get());
        let change = |uri: &str| Change::Resource { uri: uri.into() };
        site.publish(change("file:///a"));
        assert_eq!(site.said(standalone, UPDATED), NOTHING);
        let done = site.send(session.post(1, "resources/subscribe", json!({"uri": "file:///a"})));
        assert_eq!(site.result(done), json!({}));
        site.publish(change("file:///a"));
        site.publish(change("file:///b"));
        let told = site.said(standalone, UPDATED);
        assert_eq!(told.len(), 1, "{version}");
        assert_eq!(told[0]["params"]["uri"], "file:///a");
        let done = site.send(session.post(2, "resources/unsubscribe", json!({"uri": "file:///a"})));
        assert_eq!(site.result(done), json!({}));
        site.publish(change("file:///a"));
        assert_eq!(site.said(standalone, UPDATED).len(), 1);
        for (list, method) in [
            (List::Tools, "notifications/tools/list_changed"),
            (List::Prompts, "notifications/prompts/list_changed"),
            (List::Resources, "notifications/resources/list_changed"),
        ] {
            site.publish(Change::List(list));
            assert_eq!(site.said(standalone, method).len(), 1, "{version}");
        }
        site.finish();
    }
}

/// A session sets its log level, and the server keeps to it.
#[test]
fn s_cap_09_a_legacy_client_chooses_what_is_logged_to_it() {
    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    let standalone = site.send(session.get());
    let log = |site: &mut Site, level| {
        let data = payload(&json!("x"));
        site.verb(|server, now| server.log(now, None, level, None, data))
            .expect("logs are offered");
        site.said(standalone, "notifications/message").len()
    };
    assert_eq!(log(&mut site, LogLevel::Debug), 0);
    assert_eq!(log(&mut site, LogLevel::Info), 1);
    let set = |level: Value| session.post(1, "logging/setLevel", json!({"level": level}));
    let done = site.send(set(json!("error")));
    assert_eq!(site.result(done), json!({}));
    assert_eq!(log(&mut site, LogLevel::Warning), 1);
    assert_eq!(log(&mut site, LogLevel::Error), 2);
    for level in [json!("loud"), json!(7), Value::Null] {
        assert_eq!(site.refused(set(level)).1, -32602);
    }
    site.finish();
}
