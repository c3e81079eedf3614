//! All messages of a client link over HTTP: one message in each exchange, in the form of the agreed version.

use std::collections::BTreeSet;

use crate::client_http::{
    self, Exchange, Harness, LEGACY, VERSIONS, ask_message, complete, seconds,
};
use everlink::Watch;
use everlink::client::{CallOptions, State};
use everlink::http::Verb;
use everlink::protocol::{ClientCapabilities, LogLevel};
use serde_json::{Value, json};

fn all_capabilities() -> ClientCapabilities {
    ClientCapabilities::default()
        .with_roots(true)
        .with_sampling()
        .with_elicitation_form()
}

/// Makes a link send every kind of message to a server of this version.
fn send_every_message(version: &str) -> Harness {
    let mut harness = Harness::with_capabilities(version, all_capabilities());
    harness.watch(
        Watch::lists()
            .and_uri("file:///a")
            .and_logs(LogLevel::Warning),
    );
    for (method, params) in [
        ("tools/call", json!({"name": "add", "arguments": {}})),
        ("prompts/get", json!({"name": "greet"})),
        ("resources/read", json!({"uri": "file:///a"})),
        ("tools/list", json!({})),
        ("completion/complete", json!({})),
        ("example/other", json!({})),
    ] {
        harness.call(method, params);
    }
    harness.list(everlink::List::Prompts);
    let late = harness.call("tools/call", json!({"name": "slow"}));
    harness.cancel(late);
    let asking = harness.call("tools/call", json!({"name": "ask"}));
    let at = harness
        .exchanges
        .iter()
        .rposition(|b| b.method() == "tools/call");
    let post = harness.exchanges[at.expect("a call")].clone();
    if version == client_http::MODERN {
        let round = json!({"resultType": "input_required",
            "inputRequests": {"r": {"method": "roots/list"}}});
        harness.json(post.stream, 200, &client_http::result(&post, round));
        let ask = harness.ask();
        harness.answer(&ask, Ok(json!({"roots": []})));
    } else {
        harness.begin_stream(post.stream);
        for ask in [
            ask_message(1, "roots/list", &json!({})),
            ask_message(2, "ping", &json!({})),
            ask_message(3, "example/none", &json!({})),
        ] {
            harness.event(post.stream, Some("7"), &ask);
        }
        let ask = harness.ask();
        harness.answer(&ask, Ok(json!({"roots": []})));
        harness.notify("notifications/roots/list_changed", &json!({}));
        // The link resumes its stream.
        harness.end(post.stream);
        harness.advance(seconds(2));
    }
    harness.notify("notifications/example", &json!({"a": 1}));
    assert!(!harness.is_settled(asking));
    // The link probes the server, and later shuts down.
    harness.client.wake(harness.now);
    harness.pump();
    harness.shutdown();
    harness.advance(seconds(60));
    assert_eq!(harness.client.state(), State::Closed);
    harness
}

fn posts(harness: &Harness) -> impl Iterator<Item = &Exchange> {
    harness
        .exchanges
        .iter()
        .filter(|exchange| exchange.verb == Verb::Post)
}

fn is_request(post: &Exchange) -> bool {
    post.body.get("method").is_some() && post.body.get("id").is_some()
}

/// S-HTTP-06, S-LHTTP-02, S-BATCH-03, S-LIFE-10: the link never sends a batch, not even with `initialize`.
#[test]
fn s_http_06_08_each_message_is_a_separate_post_to_the_endpoint() {
    for version in VERSIONS {
        let harness = send_every_message(version);
        for post in posts(&harness) {
            assert_eq!(post.target, client_http::URL);
            assert!(post.body.is_object(), "{version}: {}", post.body);
            assert_eq!(post.field("content-type"), Some("application/json"));
        }
        let sent = |method: &str| harness.exchanges_of(method).len();
        assert_eq!(
            sent("tools/call"),
            if version == client_http::MODERN { 4 } else { 3 }
        );
        assert_eq!(sent("resources/read"), 1);
        assert_eq!(sent("notifications/example"), 1);
        assert!(
            harness
                .exchanges
                .iter()
                .all(|exchange| exchange.verb == Verb::Post || exchange.body.is_null())
        );
    }
}

#[test]
fn s_rpc_01_every_message_is_json_rpc_2_0() {
    for version in VERSIONS {
        let harness = send_every_message(version);
        assert!(posts(&harness).count() > 10);
        assert!(posts(&harness).all(|post| post.body["jsonrpc"] == "2.0"));
    }
}

#[test]
fn s_rpc_03_04_05_06_every_request_has_a_unique_integer_id() {
    for version in VERSIONS {
        let harness = send_every_message(version);
        let mut ids = BTreeSet::new();
        for post in posts(&harness).filter(|post| is_request(post)) {
            let id = post.body["id"].as_i64();
            assert!(
                id.is_some_and(|id| ids.insert(id)),
                "{version}: {}",
                post.body
            );
        }
        assert!(ids.len() > 8);
    }
}

#[test]
fn s_rpc_16_no_notification_has_an_id() {
    for version in VERSIONS {
        let harness = send_every_message(version);
        let notifications =
            posts(&harness).filter(|post| post.method().starts_with("notifications/"));
        let mut count = 0;
        for post in notifications {
            assert_eq!(post.body.get("id"), None, "{}", post.body);
            count += 1;
        }
        assert!(count >= 1);
    }
}

/// S-RPC-24, S-RPC-25, S-HTTP-08: a modern server gets only requests and notifications.
#[test]
fn s_rpc_24_25_a_modern_server_gets_no_responses() {
    let harness = send_every_message(client_http::MODERN);
    for post in posts(&harness) {
        assert!(post.body["method"].is_string(), "{}", post.body);
        assert_eq!(post.body.get("result"), None);
        assert_eq!(post.body.get("error"), None);
    }
    assert!(
        harness
            .exchanges
            .iter()
            .all(|exchange| exchange.verb == Verb::Post)
    );
}

#[test]
fn s_http_07_every_post_accepts_json_and_event_streams() {
    for version in VERSIONS {
        let harness = send_every_message(version);
        for post in posts(&harness) {
            let accept = post.field("accept").expect("accept");
            let kinds: Vec<_> = accept.split(',').map(str::trim).collect();
            assert!(kinds.contains(&"application/json"), "{accept}");
            assert!(kinds.contains(&"text/event-stream"), "{accept}");
        }
    }
}

/// S-HTTP-12: a notification names its version like a request.
#[test]
fn s_http_26_every_modern_post_names_its_version_in_header_and_meta() {
    let harness = send_every_message(client_http::MODERN);
    for post in posts(&harness) {
        assert_eq!(
            post.field("mcp-protocol-version"),
            Some(client_http::MODERN)
        );
        let version = post.meta("protocolVersion");
        assert!(
            *version == client_http::MODERN || !is_request(post),
            "{}",
            post.body
        );
    }
}

#[test]
fn s_http_12_modern_notification_names_its_method_and_version_in_headers() {
    let harness = send_every_message(client_http::MODERN);
    let [notice] = harness.exchanges_of("notifications/example")[..] else {
        panic!("one notification");
    };
    assert_eq!(notice.field("mcp-method"), Some("notifications/example"));
    assert_eq!(
        notice.field("mcp-protocol-version"),
        Some(client_http::MODERN)
    );
}

#[test]
fn s_hdr_01_every_modern_post_names_its_method_in_a_header() {
    let harness = send_every_message(client_http::MODERN);
    for post in posts(&harness) {
        assert_eq!(post.field("mcp-method"), Some(post.method()));
    }
}

#[test]
fn s_meta_01_02_every_modern_request_has_version_capabilities_and_client_info() {
    let harness = send_every_message(client_http::MODERN);
    for post in posts(&harness).filter(|post| is_request(post)) {
        assert_eq!(post.meta("protocolVersion"), client_http::MODERN);
        assert!(post.meta("clientCapabilities").is_object());
        assert_eq!(
            *post.meta("clientInfo"),
            json!({"name": "test", "version": "1.0"})
        );
    }
    let mut harness = Harness::modern();
    harness.call("tools/list", json!({}));
    let post = harness.next_post("tools/list");
    assert_eq!(
        *post.meta("clientCapabilities"),
        json!({}),
        "empty capabilities are declared, too"
    );
}

#[test]
fn s_cap_04_every_modern_request_declares_the_client_capabilities() {
    let harness = send_every_message(client_http::MODERN);
    for post in posts(&harness).filter(|post| is_request(post)) {
        for feature in ["roots", "sampling", "elicitation"] {
            let declared = post.meta("clientCapabilities");
            assert!(declared[feature].is_object(), "{feature}: {}", post.body);
        }
    }
}

/// S-HTTP-21, S-RES-09: a modern link resumes no stream and has no session.
#[test]
fn s_http_21_no_modern_request_has_a_session_id_or_last_event_id() {
    let harness = send_every_message(client_http::MODERN);
    for post in &harness.exchanges {
        assert_eq!(post.field("last-event-id"), None);
        assert_eq!(post.field("mcp-session-id"), None);
    }
}

#[test]
fn s_sess_03_every_request_after_initialize_has_the_session_id() {
    for version in LEGACY {
        let harness = send_every_message(version);
        let (first, later) = harness.exchanges.split_first().expect("requests");
        assert_eq!(first.method(), "initialize");
        assert_eq!(first.field("mcp-session-id"), None);
        for exchange in later {
            assert_eq!(
                exchange.field("mcp-session-id"),
                Some("s-1"),
                "{exchange:?}"
            );
        }
        for verb in [Verb::Post, Verb::Get, Verb::Delete] {
            assert!(later.iter().any(|exchange| exchange.verb == verb), "{verb}");
        }
        assert!(
            later
                .iter()
                .any(|exchange| exchange.field("last-event-id").is_some())
        );
    }
}

#[test]
fn s_sess_03_link_without_a_session_sends_no_session_id_and_no_delete() {
    let mut config = client_http::config();
    config.dialect = everlink::Dialect::Legacy;
    let mut harness = Harness::new(config);
    harness.connect();
    harness.agree_legacy("2025-11-25", None);
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.reply_with(&post, json!({"content": []}));
    assert!(harness.reply(call).is_ok());
    harness.shutdown();
    assert_eq!(
        harness.client.state(),
        State::Closed,
        "there is no session to end"
    );
    assert!(
        harness
            .exchanges
            .iter()
            .all(|exchange| exchange.field("mcp-session-id").is_none())
    );
    assert!(
        harness
            .exchanges
            .iter()
            .all(|exchange| exchange.verb != Verb::Delete)
    );
}

#[test]
fn s_lhttp_20_every_request_after_initialize_names_the_version() {
    for version in ["2025-06-18", "2025-11-25"] {
        let harness = send_every_message(version);
        let (first, later) = harness.exchanges.split_first().expect("requests");
        assert_eq!(
            first.field("mcp-protocol-version"),
            None,
            "no version is agreed on yet"
        );
        for exchange in later {
            assert_eq!(
                exchange.field("mcp-protocol-version"),
                Some(version),
                "{exchange:?}"
            );
        }
        for verb in [Verb::Post, Verb::Get, Verb::Delete] {
            assert!(later.iter().any(|exchange| exchange.verb == verb), "{verb}");
        }
    }
}

#[test]
fn s_lhttp_23_link_of_2025_03_26_sends_no_version_header() {
    let harness = send_every_message("2025-03-26");
    assert!(
        harness
            .exchanges
            .iter()
            .all(|exchange| exchange.field("mcp-protocol-version").is_none())
    );
}

/// A legacy request has none of the modern era's extra header fields.
#[test]
fn s_hdr_01_legacy_request_has_no_modern_headers() {
    for version in LEGACY {
        let harness = send_every_message(version);
        for exchange in &harness.exchanges {
            assert_eq!(exchange.field("mcp-method"), None);
            assert_eq!(exchange.field("mcp-name"), None);
            assert_eq!(exchange.meta("clientCapabilities"), &Value::Null);
        }
    }
}

#[test]
fn header_names_are_unique_and_values_are_printable_ascii() {
    for version in VERSIONS {
        let harness = send_every_message(version);
        for exchange in &harness.exchanges {
            let mut names = BTreeSet::new();
            for (name, value) in exchange.fields() {
                assert!(names.insert(name.to_ascii_lowercase()), "{name} twice");
                assert!(value.iter().all(|byte| (b' '..=b'~').contains(byte)));
                assert_eq!(value.trim_ascii(), value);
            }
        }
    }
}

/// S-PROG-01: each request has its own progress token.
#[test]
fn s_prog_01_every_call_has_its_own_progress_token() {
    for version in VERSIONS {
        let mut harness = Harness::ready(version);
        for _ in 0..3 {
            harness.call("tools/call", json!({"name": "add"}));
        }
        let tokens: BTreeSet<_> = (0..3)
            .map(|_| {
                harness
                    .next_post("tools/call")
                    .progress_token()
                    .as_i64()
                    .expect("an integer")
            })
            .collect();
        assert_eq!(tokens.len(), 3);
        harness.call_with(
            "tools/call",
            json!({"name": "add"}),
            CallOptions::new().without_progress(),
        );
        assert!(harness.next_post("tools/call").progress_token().is_null());
    }
}

/// S-META-13: other `_meta` keys of the caller pass unchanged.
#[test]
fn s_meta_13_other_meta_keys_pass_unchanged_in_both_directions() {
    for version in VERSIONS {
        let mut harness = Harness::ready(version);
        let meta = json!({"example.org/a": {"b": [1, null]}, "com.mcp.x/unknown": 7, "traceparent": "00-1-2-01"});
        let call = harness.call("tools/call", json!({"name": "add", "_meta": meta}));
        let post = harness.next_post("tools/call");
        for (key, value) in meta.as_object().expect("an object") {
            assert_eq!(post.body["params"]["_meta"][key], *value);
        }
        harness.json(
            post.stream,
            200,
            &complete(&post, json!({"content": [], "_meta": meta})),
        );
        assert_eq!(harness.reply(call).expect("a reply")["_meta"], meta);
    }
}

/// The malformed elements of a batch are reported, and the others count. 2025-03-26 is the only version with batches.
#[test]
fn malformed_elements_of_a_batch_are_reported_and_the_others_count() {
    let mut harness = Harness::ready("2025-03-26");
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    let batch = json!([1, {"jsonrpc": "2.0"}, complete(&post, json!({"content": []}))]);
    harness.event(post.stream, None, &batch);
    assert!(harness.reply(call).is_ok());
    assert_eq!(harness.client.stats().noise, 2);
}

/// As outside a batch. The call would wait until its timeout otherwise.
#[test]
fn broken_reply_in_a_batch_ends_its_call() {
    let mut harness = Harness::ready("2025-03-26");
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    let mut broken = complete(&post, json!({"content": []}));
    broken["result"] = json!("text");
    harness.event(post.stream, None, &json!([broken]));
    let outcome = harness.outcome(call);
    assert!(
        matches!(outcome, everlink::client::Outcome::Failed(_)),
        "{outcome:?}"
    );
}
