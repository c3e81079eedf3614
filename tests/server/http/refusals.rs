//! Requests that a server over HTTP refuses before it serves them: by origin, verb, content type and size. Also messages that are no requests.

use crate::server_http::{
    Harness, HttpRequest, config, delete, get, http_config, initialize, modern, notification, post,
    seconds, with_meta,
};
use everlink::protocol::Versions;
use everlink::server::{Allowed, Config, Http, SsePaths};
use serde_json::{Value, json};

fn modern_only() -> Config {
    let mut config = config();
    config.versions = Versions::MODERN;
    config
}

fn discover() -> HttpRequest {
    modern(1, "server/discover", json!({}))
}

#[test]
fn s_http_02_every_request_with_a_foreign_origin_gets_403() {
    let mut harness = Harness::new(http_config(Http::new().with_sse(SsePaths::default())));
    let session = harness.open_session("2025-11-25");
    let sse_stream = harness.send(get().to("/sse"));
    let post_path = harness.sse(sse_stream)[0]
        .data
        .clone()
        .expect("a path to post to");
    let http_requests = [
        modern(1, "tools/call", json!({"name": "add"})),
        session.post(1, "tools/call", json!({"name": "add"})),
        session.notification("notifications/custom", Value::Null),
        session.get(),
        session.delete(),
        initialize("2025-11-25"),
        get().to("/sse"),
        notification("notifications/custom", Value::Null).to(&post_path),
    ];
    let before = harness.server.sessions();
    for origin in [
        "https://evil.example",
        "http://localhost.evil.example",
        "null",
        "",
    ] {
        for http_request in &http_requests {
            let sent = harness.send(http_request.clone().with("origin", origin));
            assert_eq!(harness.status(sent), 403, "{origin}: {http_request}");
        }
    }
    let invalid = harness.send(discover().with("origin", b"http://localhost\xff"));
    assert_eq!(harness.status(invalid), 403);
    assert!(harness.requests().is_empty() && harness.notified().is_empty());
    assert_eq!(
        harness.server.sessions(),
        before,
        "no session begins or ends"
    );
    for origin in [
        "http://localhost:3000",
        "https://127.0.0.1",
        "http://[::1]:9",
    ] {
        let sent = harness.send(discover().with("origin", origin));
        assert_eq!(harness.status(sent), 200, "{origin}");
    }
    harness.finish();
}

/// A duplicate header field is refused, because a proxy in front of the server may have judged the other value.
#[test]
fn request_with_duplicate_singleton_header_fields_gets_400() {
    let mut harness = Harness::new(http_config(Http::new()));
    let session = harness.open_session("2025-11-25");
    let http_requests = [
        discover(),
        session.post(1, "tools/call", json!({"name": "add"})),
        session.notification("notifications/custom", Value::Null),
        session.get(),
        session.delete(),
    ];
    for http_request in &http_requests {
        for (name, one, other) in [
            ("Host", "localhost:8080", "localhost:8080"),
            ("host", "localhost:8080", "evil.example"),
            ("host", "evil.example", "localhost:8080"),
            ("origin", "http://localhost", "https://evil.example"),
            ("origin", "https://evil.example", "http://localhost"),
            ("authorization", "Bearer a", "Bearer b"),
            ("content-length", "1", "2"),
            ("content-type", "application/json", "text/plain"),
            ("last-event-id", "1", "2"),
            ("mcp-session-id", "a", "b"),
            ("mcp-protocol-version", "2025-11-25", "2026-07-28"),
        ] {
            let twice = http_request.clone().with(name, one).append(name, other);
            let sent = harness.send(twice);
            assert_eq!(
                harness.status(sent),
                400,
                "{name}: {one} and {other}: {http_request}"
            );
        }
    }
    assert!(harness.requests().is_empty() && harness.notified().is_empty());
    let equal = discover()
        .append("content-length", "1")
        .append("content-length", "1");
    let sent = harness.send(equal);
    assert_eq!(harness.status(sent), 200, "equal duplicates are accepted");
    harness.finish();
}

/// S-HTTP-02: the application chooses the allowed origins.
#[test]
fn s_http_02_allowed_origins_are_configurable() {
    let origins = Allowed::list(["https://app.example"]);
    let mut harness = Harness::new(http_config(Http::new().with_origins(origins)));
    for (origin, status) in [
        ("https://app.example", 200),
        ("http://app.example", 403),
        ("https://app.example:8443", 403),
        ("https://app.example.evil", 403),
        ("http://localhost", 403),
    ] {
        let sent = harness.send(discover().with("origin", origin));
        assert_eq!(harness.status(sent), status, "{origin}");
    }
    harness.finish();
}

#[test]
fn s_http_03_foreign_origin_gets_403_without_an_id_before_the_body() {
    let mut harness = Harness::new(config());
    let sent = harness.begin(&discover().with("origin", "https://evil.example"));
    assert_eq!(
        harness.status(sent),
        403,
        "the refusal does not wait for the body"
    );
    let body = harness.json(sent);
    assert!(body.get("id").is_none(), "{body}");
    assert!(body["error"]["code"].is_i64(), "{body}");
    harness.finish();
}

/// DNS rebinding: a page that resolves its own name to this machine sends an origin that fits that name.
#[test]
fn request_for_another_host_gets_403() {
    let mut harness = Harness::new(config());
    for host in [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "",
    ] {
        let http_request = discover()
            .with("host", host)
            .with("origin", "http://localhost");
        assert_eq!(harness.send_refused(http_request).0, 403, "{host}");
    }
    assert_eq!(harness.send_refused(discover().without("host")).0, 403);
    harness.finish();
}

#[test]
fn s_http_09_modern_notification_gets_202_without_a_body() {
    for config in [config(), modern_only()] {
        let mut harness = Harness::new(config);
        let http_request = notification("notifications/custom", with_meta(json!({"a": 1})));
        let http_request = http_request
            .with("mcp-protocol-version", "2026-07-28")
            .with("mcp-method", "notifications/custom");
        let response = harness.send(http_request);
        assert_eq!(
            (harness.status(response), harness.text(response)),
            (202, "")
        );
        assert!(harness.is_over(response));
        assert_eq!(harness.notified(), ["notifications/custom"]);
        harness.finish();
    }
}

#[test]
fn s_http_10_invalid_notification_gets_400_without_an_id() {
    for config in [config(), modern_only()] {
        let mut harness = Harness::new(config);
        for message in [
            json!({"jsonrpc": "1.0", "method": "notifications/custom"}),
            json!({"method": "notifications/custom"}),
            json!({"jsonrpc": "2.0", "method": 7}),
            json!({"jsonrpc": "2.0", "method": "notifications/custom", "params": 7}),
        ] {
            let sent = post(&message).with("mcp-protocol-version", "2026-07-28");
            let sent = harness.send(sent);
            assert_eq!(harness.status(sent), 400, "{message}");
            assert!(harness.json(sent).get("id").is_none(), "{message}");
        }
        assert!(harness.notified().is_empty());
        harness.finish();
    }
}

#[test]
fn s_http_12_header_fields_of_a_notification_are_not_compared() {
    let mut harness = Harness::new(modern_only());
    let bare = || notification("notifications/custom", json!({}));
    for http_request in [
        bare(),
        bare().with("mcp-protocol-version", "2026-07-28"),
        bare().with("mcp-method", "tools/call"),
        bare().with("mcp-name", "=?base64?!?="),
    ] {
        let shown = http_request.to_string();
        let response = harness.send(http_request);
        assert_eq!(harness.status(response), 202, "{shown}");
    }
    assert_eq!(harness.notified().len(), 4);
    harness.finish();
}

#[test]
fn s_http_36_modern_server_refuses_get_and_delete_with_405() {
    let mut harness = Harness::new(modern_only());
    for http_request in [get(), delete()] {
        let sent = harness.send(http_request);
        assert_eq!(harness.status(sent), 405);
        assert_eq!(harness.field(sent, "allow"), Some("POST"));
    }
    harness.finish();
}

#[test]
fn s_http_37_modern_server_has_no_sessions() {
    let mut harness = Harness::new(modern_only());
    let http_request = modern(1, "tools/call", json!({"name": "add"}))
        .with("mcp-session-id", "abc")
        .with("last-event-id", "1-1");
    let served = harness.send_and_respond(http_request, json!({"content": []}));
    assert_eq!(harness.status(served), 200);
    assert_eq!(harness.field(served, "mcp-session-id"), None);
    let begun = harness.send(initialize("2025-11-25").with("mcp-session-id", "abc"));
    assert!(harness.status(begun) >= 400);
    assert_eq!(harness.field(begun, "mcp-session-id"), None);
    // A reply or a batch belongs to a session. Without sessions it is refused with 400, and the client is not told to
    // start a session.
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    for message in [&answer, &json!([answer])] {
        let http_request = post(message).with("mcp-session-id", "abc");
        assert_eq!(
            harness.send_refused(http_request),
            (400, -32600),
            "{message}"
        );
    }
    assert_eq!(harness.server.sessions(), 0);
    harness.finish();
}

/// S-SESS-10: a modern request belongs to no session, even if it names one.
#[test]
fn s_sess_10_modern_request_ignores_the_session_field() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let running = harness.send(session.post(1, "tools/call", json!({"name": "slow"})));
    for id in [session.id.as_str(), "no-such-session", "\u{e9}"] {
        let http_request =
            modern(1, "tools/call", json!({"name": "add"})).with("mcp-session-id", id);
        let served = harness.send_and_respond(http_request, json!({"content": []}));
        assert_eq!(harness.status(served), 200, "{id}");
        assert_eq!(harness.result(served)["resultType"], "complete");
        assert_eq!(harness.field(served, "mcp-session-id"), None);
    }
    assert!(!harness.is_over(running));
    harness.finish();
}

#[test]
fn s_lhttp_14_get_opens_a_stream_or_gets_405() {
    let mut harness = Harness::new(config());
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = harness.open_session(version);
        let stream = harness.send(session.get());
        assert_eq!(harness.status(stream), 200);
        assert_eq!(
            harness.field(stream, "content-type"),
            Some("text/event-stream")
        );
        assert!(!harness.is_over(stream));
    }
    harness.finish();
    let mut harness = Harness::new(modern_only());
    assert_eq!(harness.send_refused(get()).0, 405);
    harness.finish();
}

#[test]
fn s_lhttp_03_notification_or_answer_gets_202_and_an_invalid_one_400() {
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut harness = Harness::new(config());
        let session = harness.open_session(version);
        let response = harness.send(session.notification("notifications/custom", Value::Null));
        assert_eq!(
            (harness.status(response), harness.text(response)),
            (202, "")
        );
        let (_, request) =
            harness.send_accepted(session.post(1, "tools/call", json!({"name": "asks"})));
        let ask = harness.ask(request, "roots/list", Value::Null);
        let ask_id = harness.newest_ask_id("roots/list");
        let response = harness.send(session.answer(&ask_id, json!({"roots": []})));
        assert_eq!(
            (harness.status(response), harness.text(response)),
            (202, "")
        );
        assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
        for bad in [
            json!({"jsonrpc": "1.0", "method": "notifications/custom"}),
            json!({"jsonrpc": "2.0", "result": {}}),
            json!({"jsonrpc": "2.0", "id": 99, "result": {}, "error": {"code": 1, "message": ""}}),
            json!(7),
        ] {
            let sent = harness.send(session.post_message(&bad));
            assert_eq!(harness.status(sent), 400, "{version}: {bad}");
            assert!(harness.json(sent).get("id").is_none(), "{version}: {bad}");
        }
        let without_session = session.notification("notifications/custom", Value::Null);
        let without_session = harness.send(without_session.without("mcp-session-id"));
        assert_eq!(harness.status(without_session), 400);
        assert_eq!(harness.notified(), ["notifications/custom"]);
        harness.finish();
    }
}

#[test]
fn s_inh_05_content_types_are_compared_without_case_and_parameters() {
    let mut harness = Harness::new(config());
    for content_type in [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "APPLICATION/JSON;charset=\"UTF-8\"",
    ] {
        let sent = harness.send(discover().with("content-type", content_type));
        assert_eq!(harness.status(sent), 200, "{content_type}");
    }
    let without_field = harness.send(discover().without("content-type"));
    assert_eq!(harness.status(without_field), 200, "the field is optional");
    for content_type in ["text/plain", "application/jsonp", "application/xml"] {
        assert_eq!(
            harness
                .send_refused(discover().with("content-type", content_type))
                .0,
            415,
            "{content_type}"
        );
    }
    for accept in [
        "*/*",
        "application/*",
        "TEXT/Event-Stream, Application/JSON",
        "application/json;q=0.5, text/event-stream; q=1",
    ] {
        let sent = harness.send(discover().with("accept", accept));
        assert_eq!(harness.status(sent), 200, "{accept}");
    }
    for accept in ["text/html", "image/*", "application/json;q=0"] {
        assert_eq!(
            harness.send_refused(discover().with("accept", accept)).0,
            406,
            "{accept}"
        );
    }
    let without_field = harness.send(discover().without("accept"));
    assert_eq!(
        harness.status(without_field),
        200,
        "without the field, every type is accepted"
    );
    harness.finish();
}

#[test]
fn s_inh_06_open_requests_and_watched_uris_are_limited() {
    let mut tight = config();
    tight.limits.requests = 2;
    tight.limits.watched_uris = 2;
    let mut harness = Harness::new(tight);
    let call = || modern(1, "tools/call", json!({"name": "slow"}));
    let session = harness.open_session("2025-11-25");
    let legacy = |id: u64| session.post(id, "tools/call", json!({"name": "slow"}));
    let (_, first) = harness.send_accepted(call());
    harness.send_accepted(legacy(1));
    let third = harness.send(call());
    assert_eq!((harness.status(third), harness.code(third)), (503, -32603));
    assert!(harness.field(third, "retry-after").is_some());
    assert_eq!(harness.send_refused(legacy(2)), (200, -32603));
    harness.respond(first, json!({"content": []}));
    let (_, again) = harness.send_accepted(call());
    harness.respond(again, json!({"content": []}));
    let watch = |uri: &str| {
        let wanted = json!({"notifications": {"resourceSubscriptions": [uri]}});
        modern(1, "subscriptions/listen", wanted)
    };
    let watches = [harness.send(watch("a:1")), harness.send(watch("a:2"))];
    assert_eq!(harness.send_refused(watch("a:3")).1, -32603);
    harness.disconnect(watches[0]);
    let another = harness.send(watch("a:3"));
    assert!(!harness.is_over(another));
    harness.finish();
}

/// S-INH-06: deeply nested JSON is refused without harm.
#[test]
fn s_inh_06_deeply_nested_json_is_refused() {
    let mut harness = Harness::new(config());
    let deep = "[".repeat(200_000);
    for body in [
        deep.clone(),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"a":{deep}"#),
    ] {
        let mut http_request = modern(1, "tools/call", json!({"name": "add"}));
        http_request.body = body.into_bytes();
        let sent = harness.send(http_request);
        assert_eq!(harness.status(sent), 400);
    }
    harness.finish();
}

/// S-INH-06: a body that stops arriving times out, and other requests are served meanwhile.
#[test]
fn s_inh_06_body_that_stops_arriving_times_out() {
    let mut http = Http::new();
    http.body_timeout = seconds(7);
    let mut harness = Harness::new(http_config(http));
    let slow = harness.begin(&discover());
    harness.body(slow, b"{\"jsonrpc\":");
    harness.advance(seconds(6));
    assert!(!harness.is_answered(slow));
    let quick = harness.send(discover());
    assert_eq!(harness.status(quick), 200);
    harness.advance(seconds(1));
    assert_eq!(harness.status(slow), 408);
    harness.finish();
}
