//! All messages of a client link over HTTP: one message in each exchange, in the form of the agreed version.

use std::collections::BTreeSet;

use crate::client_http::{self, Begun, LEGACY, VERSIONS, Web, complete, question, seconds};
use everlink::Watch;
use everlink::client::{CallOptions, State};
use everlink::http::Verb;
use everlink::protocol::{ClientCapabilities, LogLevel};
use serde_json::{Value, json};

fn everything() -> ClientCapabilities {
    ClientCapabilities::default()
        .with_roots(true)
        .with_sampling()
        .with_elicitation_form()
}

/// Makes a link send every kind of message to a server of this version.
fn busy_day(version: &str) -> Web {
    let mut web = Web::declaring(version, everything());
    web.watch(
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
        web.call(method, params);
    }
    web.list(everlink::List::Prompts);
    let late = web.call("tools/call", json!({"name": "slow"}));
    web.cancel(late);
    let asking = web.call("tools/call", json!({"name": "ask"}));
    let at = web.all.iter().rposition(|b| b.method() == "tools/call");
    let post = web.all[at.expect("a call")].clone();
    if version == client_http::MODERN {
        let round = json!({"resultType": "input_required",
            "inputRequests": {"r": {"method": "roots/list"}}});
        web.json(post.stream, 200, &client_http::result(&post, round));
        let ask = web.ask();
        web.answer(&ask, Ok(json!({"roots": []})));
    } else {
        web.stream(post.stream);
        for ask in [
            question(1, "roots/list", &json!({})),
            question(2, "ping", &json!({})),
            question(3, "example/none", &json!({})),
        ] {
            web.event(post.stream, Some("7"), &ask);
        }
        let ask = web.ask();
        web.answer(&ask, Ok(json!({"roots": []})));
        web.notify("notifications/roots/list_changed", &json!({}));
        // The link resumes its stream.
        web.end(post.stream);
        web.pass(seconds(2));
    }
    web.notify("notifications/example", &json!({"a": 1}));
    assert!(!web.is_settled(asking));
    // The link probes the server, and later shuts down.
    web.client.wake(web.now);
    web.pump();
    web.shutdown();
    web.pass(seconds(60));
    assert_eq!(web.client.state(), State::Closed);
    web
}

fn posts(web: &Web) -> impl Iterator<Item = &Begun> {
    web.all.iter().filter(|begun| begun.verb == Verb::Post)
}

fn is_request(post: &Begun) -> bool {
    post.body.get("method").is_some() && post.body.get("id").is_some()
}

/// S-HTTP-06, S-LHTTP-02, S-BATCH-03, S-LIFE-10: the link never sends a batch, not even with `initialize`.
#[test]
fn s_http_06_08_each_message_is_a_post_of_its_own_to_the_endpoint() {
    for version in VERSIONS {
        let web = busy_day(version);
        for post in posts(&web) {
            assert_eq!(post.target, client_http::URL);
            assert!(post.body.is_object(), "{version}: {}", post.body);
            assert_eq!(post.field("content-type"), Some("application/json"));
        }
        let sent = |method: &str| web.carrying(method).len();
        assert_eq!(
            sent("tools/call"),
            if version == client_http::MODERN { 4 } else { 3 }
        );
        assert_eq!(sent("resources/read"), 1);
        assert_eq!(sent("notifications/example"), 1);
        assert!(
            web.all
                .iter()
                .all(|begun| begun.verb == Verb::Post || begun.body.is_null())
        );
    }
}

#[test]
fn s_rpc_01_every_message_is_json_rpc_of_the_one_version() {
    for version in VERSIONS {
        let web = busy_day(version);
        assert!(posts(&web).count() > 10);
        assert!(posts(&web).all(|post| post.body["jsonrpc"] == "2.0"));
    }
}

#[test]
fn s_rpc_03_04_05_06_every_request_has_an_integer_of_its_own_as_its_id() {
    for version in VERSIONS {
        let web = busy_day(version);
        let mut ids = BTreeSet::new();
        for post in posts(&web).filter(|post| is_request(post)) {
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
        let web = busy_day(version);
        let notices = posts(&web).filter(|post| post.method().starts_with("notifications/"));
        let mut count = 0;
        for post in notices {
            assert_eq!(post.body.get("id"), None, "{}", post.body);
            count += 1;
        }
        assert!(count >= 1);
    }
}

/// S-RPC-24, S-RPC-25, S-HTTP-08: a modern server gets only requests and notifications.
#[test]
fn s_rpc_24_25_a_modern_server_gets_no_responses() {
    let web = busy_day(client_http::MODERN);
    for post in posts(&web) {
        assert!(post.body["method"].is_string(), "{}", post.body);
        assert_eq!(post.body.get("result"), None);
        assert_eq!(post.body.get("error"), None);
    }
    assert!(web.all.iter().all(|begun| begun.verb == Verb::Post));
}

#[test]
fn s_http_07_every_post_takes_both_kinds_of_response() {
    for version in VERSIONS {
        let web = busy_day(version);
        for post in posts(&web) {
            let accept = post.field("accept").expect("accept");
            let kinds: Vec<_> = accept.split(',').map(str::trim).collect();
            assert!(kinds.contains(&"application/json"), "{accept}");
            assert!(kinds.contains(&"text/event-stream"), "{accept}");
        }
    }
}

/// S-HTTP-12: a notification names its version like a request.
#[test]
fn s_http_26_every_modern_post_says_its_version_twice() {
    let web = busy_day(client_http::MODERN);
    for post in posts(&web) {
        assert_eq!(
            post.field("mcp-protocol-version"),
            Some(client_http::MODERN)
        );
        let said = post.meta("protocolVersion");
        assert!(
            *said == client_http::MODERN || !is_request(post),
            "{}",
            post.body
        );
    }
}

#[test]
fn s_http_12_a_modern_notification_names_its_method_and_version() {
    let web = busy_day(client_http::MODERN);
    let [notice] = web.carrying("notifications/example")[..] else {
        panic!("one notification");
    };
    assert_eq!(notice.field("mcp-method"), Some("notifications/example"));
    assert_eq!(
        notice.field("mcp-protocol-version"),
        Some(client_http::MODERN)
    );
}

#[test]
fn s_hdr_01_every_modern_request_names_its_method_in_the_fields() {
    let web = busy_day(client_http::MODERN);
    for post in posts(&web) {
        assert_eq!(post.field("mcp-method"), Some(post.method()));
    }
}

#[test]
fn s_meta_01_02_every_modern_request_says_who_asks_and_what_it_can() {
    let web = busy_day(client_http::MODERN);
    for post in posts(&web).filter(|post| is_request(post)) {
        assert_eq!(post.meta("protocolVersion"), client_http::MODERN);
        assert!(post.meta("clientCapabilities").is_object());
        assert_eq!(
            *post.meta("clientInfo"),
            json!({"name": "test", "version": "1.0"})
        );
    }
    let mut web = Web::modern();
    web.call("tools/list", json!({}));
    let post = web.posted("tools/list");
    assert_eq!(
        *post.meta("clientCapabilities"),
        json!({}),
        "nothing is something to say"
    );
}

#[test]
fn s_cap_04_every_modern_request_says_what_can_be_asked() {
    let web = busy_day(client_http::MODERN);
    for post in posts(&web).filter(|post| is_request(post)) {
        for feature in ["roots", "sampling", "elicitation"] {
            let declared = post.meta("clientCapabilities");
            assert!(declared[feature].is_object(), "{feature}: {}", post.body);
        }
    }
}

/// S-HTTP-21, S-RES-09: a modern link resumes no stream and has no session.
#[test]
fn s_http_21_no_modern_request_names_a_session_or_an_event() {
    let web = busy_day(client_http::MODERN);
    for post in &web.all {
        assert_eq!(post.field("last-event-id"), None);
        assert_eq!(post.field("mcp-session-id"), None);
    }
}

#[test]
fn s_sess_03_every_request_after_the_handshake_names_the_session() {
    for version in LEGACY {
        let web = busy_day(version);
        let (first, later) = web.all.split_first().expect("requests");
        assert_eq!(first.method(), "initialize");
        assert_eq!(first.field("mcp-session-id"), None);
        for begun in later {
            assert_eq!(begun.field("mcp-session-id"), Some("s-1"), "{begun:?}");
        }
        for verb in [Verb::Post, Verb::Get, Verb::Delete] {
            assert!(later.iter().any(|begun| begun.verb == verb), "{verb}");
        }
        assert!(
            later
                .iter()
                .any(|begun| begun.field("last-event-id").is_some())
        );
    }
}

#[test]
fn s_sess_03_who_is_given_no_session_names_none() {
    let mut config = client_http::config();
    config.dialect = everlink::Dialect::Legacy;
    let mut web = Web::new(config);
    web.connect();
    web.agree_legacy("2025-11-25", None);
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.reply_with(&post, json!({"content": []}));
    assert!(web.reply(call).is_ok());
    web.shutdown();
    assert_eq!(
        web.client.state(),
        State::Closed,
        "there is nothing to take leave of"
    );
    assert!(
        web.all
            .iter()
            .all(|begun| begun.field("mcp-session-id").is_none())
    );
    assert!(web.all.iter().all(|begun| begun.verb != Verb::Delete));
}

#[test]
fn s_lhttp_20_every_request_after_the_handshake_names_the_version() {
    for version in ["2025-06-18", "2025-11-25"] {
        let web = busy_day(version);
        let (first, later) = web.all.split_first().expect("requests");
        assert_eq!(
            first.field("mcp-protocol-version"),
            None,
            "nothing is agreed on"
        );
        for begun in later {
            assert_eq!(
                begun.field("mcp-protocol-version"),
                Some(version),
                "{begun:?}"
            );
        }
        for verb in [Verb::Post, Verb::Get, Verb::Delete] {
            assert!(later.iter().any(|begun| begun.verb == verb), "{verb}");
        }
    }
}

#[test]
fn s_lhttp_23_the_first_version_with_sessions_has_no_field_for_its_name() {
    let web = busy_day("2025-03-26");
    assert!(
        web.all
            .iter()
            .all(|begun| begun.field("mcp-protocol-version").is_none())
    );
}

/// A legacy request has none of the modern era's extra header fields.
#[test]
fn s_hdr_01_a_legacy_request_repeats_nothing_in_its_fields() {
    for version in LEGACY {
        let web = busy_day(version);
        for begun in &web.all {
            assert_eq!(begun.field("mcp-method"), None);
            assert_eq!(begun.field("mcp-name"), None);
            assert_eq!(begun.meta("clientCapabilities"), &Value::Null);
        }
    }
}

#[test]
fn no_field_is_there_twice_and_every_value_can_be_sent() {
    for version in VERSIONS {
        let web = busy_day(version);
        for begun in &web.all {
            let mut names = BTreeSet::new();
            for (name, value) in begun.fields() {
                assert!(names.insert(name.to_ascii_lowercase()), "{name} twice");
                assert!(value.iter().all(|byte| (b' '..=b'~').contains(byte)));
                assert_eq!(value.trim_ascii(), value);
            }
        }
    }
}

/// S-PROG-01: each request has its own progress token.
#[test]
fn s_prog_01_every_call_has_a_token_of_its_own() {
    for version in VERSIONS {
        let mut web = Web::speaking(version);
        for _ in 0..3 {
            web.call("tools/call", json!({"name": "add"}));
        }
        let tokens: BTreeSet<_> = (0..3)
            .map(|_| {
                web.posted("tools/call")
                    .token()
                    .as_i64()
                    .expect("an integer")
            })
            .collect();
        assert_eq!(tokens.len(), 3);
        web.call_with(
            "tools/call",
            json!({"name": "add"}),
            CallOptions::new().without_progress(),
        );
        assert!(web.posted("tools/call").token().is_null());
    }
}

/// S-META-13: other `_meta` keys of the caller pass unchanged.
#[test]
fn s_meta_13_what_a_caller_says_of_a_call_goes_along_untouched() {
    for version in VERSIONS {
        let mut web = Web::speaking(version);
        let meta = json!({"example.org/a": {"b": [1, null]}, "com.mcp.x/unknown": 7, "traceparent": "00-1-2-01"});
        let call = web.call("tools/call", json!({"name": "add", "_meta": meta}));
        let post = web.posted("tools/call");
        for (key, value) in meta.as_object().expect("an object") {
            assert_eq!(post.body["params"]["_meta"][key], *value);
        }
        web.json(
            post.stream,
            200,
            &complete(&post, json!({"content": [], "_meta": meta})),
        );
        assert_eq!(web.reply(call).expect("a reply")["_meta"], meta);
    }
}
