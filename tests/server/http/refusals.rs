//! Requests that a server over HTTP refuses before it serves them: by origin, verb, content type and size. Also messages that are no requests.

use crate::server_http::{
    Ask, Site, config, delete, get, initialize, modern, notice, over, post, seconds, with_meta,
};
use everlink::protocol::Versions;
use everlink::server::{Allowed, Config, Http, SsePaths};
use serde_json::{Value, json};

fn modern_only() -> Config {
    let mut config = config();
    config.versions = Versions::MODERN;
    config
}

fn discover() -> Ask {
    modern(1, "server/discover", json!({}))
}

#[test]
fn s_http_02_the_origin_of_every_request_is_looked_at() {
    let mut site = Site::new(over(Http::new().with_sse(SsePaths::default())));
    let session = site.session("2025-11-25");
    let oldest = site.send(get().to("/sse"));
    let place = site.sse(oldest)[0].data.clone().expect("a place");
    let asks = [
        modern(1, "tools/call", json!({"name": "add"})),
        session.post(1, "tools/call", json!({"name": "add"})),
        session.notice("notifications/custom", Value::Null),
        session.get(),
        session.delete(),
        initialize("2025-11-25"),
        get().to("/sse"),
        notice("notifications/custom", Value::Null).to(&place),
    ];
    let before = site.server.sessions();
    for origin in [
        "https://evil.example",
        "http://localhost.evil.example",
        "null",
        "",
    ] {
        for ask in &asks {
            let sent = site.send(ask.clone().with("origin", origin));
            assert_eq!(site.status(sent), 403, "{origin}: {ask}");
        }
    }
    let garbled = site.send(discover().with("origin", b"http://localhost\xff"));
    assert_eq!(site.status(garbled), 403);
    assert!(site.requests().is_empty() && site.notified().is_empty());
    assert_eq!(site.server.sessions(), before, "none begins, and none ends");
    for origin in [
        "http://localhost:3000",
        "https://127.0.0.1",
        "http://[::1]:9",
    ] {
        let sent = site.send(discover().with("origin", origin));
        assert_eq!(site.status(sent), 200, "{origin}");
    }
    site.finish();
}

/// A duplicate header field is refused, because a proxy in front of the server may have judged the other value.
#[test]
fn a_request_that_says_two_things_where_it_may_say_one_is_refused() {
    let mut site = Site::new(over(Http::new()));
    let session = site.session("2025-11-25");
    let asks = [
        discover(),
        session.post(1, "tools/call", json!({"name": "add"})),
        session.notice("notifications/custom", Value::Null),
        session.get(),
        session.delete(),
    ];
    for ask in &asks {
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
            let twice = ask.clone().with(name, one).and(name, other);
            let sent = site.send(twice);
            assert_eq!(site.status(sent), 400, "{name}: {one} and {other}: {ask}");
        }
    }
    assert!(site.requests().is_empty() && site.notified().is_empty());
    let equal = discover()
        .and("content-length", "1")
        .and("content-length", "1");
    let sent = site.send(equal);
    assert_eq!(site.status(sent), 200, "two that are equal say one thing");
    site.finish();
}

/// S-HTTP-02: the application chooses the allowed origins.
#[test]
fn s_http_02_the_origins_that_may_ask_are_chosen() {
    let origins = Allowed::list(["https://app.example"]);
    let mut site = Site::new(over(Http::new().with_origins(origins)));
    for (origin, status) in [
        ("https://app.example", 200),
        ("http://app.example", 403),
        ("https://app.example:8443", 403),
        ("https://app.example.evil", 403),
        ("http://localhost", 403),
    ] {
        let sent = site.send(discover().with("origin", origin));
        assert_eq!(site.status(sent), status, "{origin}");
    }
    site.finish();
}

#[test]
fn s_http_03_a_bad_origin_is_forbidden_without_an_id() {
    let mut site = Site::new(config());
    let sent = site.begin(&discover().with("origin", "https://evil.example"));
    assert_eq!(
        site.status(sent),
        403,
        "the body of a stranger is not waited for"
    );
    let body = site.json(sent);
    assert!(body.get("id").is_none(), "{body}");
    assert!(body["error"]["code"].is_i64(), "{body}");
    site.finish();
}

/// DNS rebinding: a page that resolves its own name to this machine sends an origin that fits that name.
#[test]
fn a_request_for_another_host_is_turned_away() {
    let mut site = Site::new(config());
    for host in [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "",
    ] {
        let ask = discover()
            .with("host", host)
            .with("origin", "http://localhost");
        assert_eq!(site.refused(ask).0, 403, "{host}");
    }
    assert_eq!(site.refused(discover().without("host")).0, 403);
    site.finish();
}

#[test]
fn s_http_09_a_modern_notification_is_accepted_without_a_word() {
    for config in [config(), modern_only()] {
        let mut site = Site::new(config);
        let told = notice("notifications/custom", with_meta(json!({"a": 1})));
        let told = told
            .with("mcp-protocol-version", "2026-07-28")
            .with("mcp-method", "notifications/custom");
        let told = site.send(told);
        assert_eq!((site.status(told), site.text(told)), (202, ""));
        assert!(site.is_over(told));
        assert_eq!(site.notified(), ["notifications/custom"]);
        site.finish();
    }
}

#[test]
fn s_http_10_a_notification_that_cannot_be_accepted_has_an_error_without_an_id() {
    for config in [config(), modern_only()] {
        let mut site = Site::new(config);
        for message in [
            json!({"jsonrpc": "1.0", "method": "notifications/custom"}),
            json!({"method": "notifications/custom"}),
            json!({"jsonrpc": "2.0", "method": 7}),
            json!({"jsonrpc": "2.0", "method": "notifications/custom", "params": 7}),
        ] {
            let sent = post(&message).with("mcp-protocol-version", "2026-07-28");
            let sent = site.send(sent);
            assert_eq!(site.status(sent), 400, "{message}");
            assert!(site.json(sent).get("id").is_none(), "{message}");
        }
        assert!(site.notified().is_empty());
        site.finish();
    }
}

#[test]
fn s_http_12_the_fields_of_a_notification_are_not_compared() {
    let mut site = Site::new(modern_only());
    let bare = || notice("notifications/custom", json!({}));
    for ask in [
        bare(),
        bare().with("mcp-protocol-version", "2026-07-28"),
        bare().with("mcp-method", "tools/call"),
        bare().with("mcp-name", "=?base64?!?="),
    ] {
        let shown = ask.to_string();
        let told = site.send(ask);
        assert_eq!(site.status(told), 202, "{shown}");
    }
    assert_eq!(site.notified().len(), 4);
    site.finish();
}

#[test]
fn s_http_36_a_modern_server_has_nothing_to_get_or_delete() {
    let mut site = Site::new(modern_only());
    for ask in [get(), delete()] {
        let sent = site.send(ask);
        assert_eq!(site.status(sent), 405);
        assert_eq!(site.field(sent, "allow"), Some("POST"));
    }
    site.finish();
}

#[test]
fn s_http_37_a_modern_server_knows_no_sessions() {
    let mut site = Site::new(modern_only());
    let ask = modern(1, "tools/call", json!({"name": "add"}))
        .with("mcp-session-id", "abc")
        .with("last-event-id", "1-1");
    let served = site.served(ask, json!({"content": []}));
    assert_eq!(site.status(served), 200);
    assert_eq!(site.field(served, "mcp-session-id"), None);
    let begun = site.send(initialize("2025-11-25").with("mcp-session-id", "abc"));
    assert!(site.status(begun) >= 400);
    assert_eq!(site.field(begun, "mcp-session-id"), None);
    // A reply or a batch belongs to a session. Without sessions it is refused with 400, and the client is not told to
    // start a session.
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    for message in [&answer, &json!([answer])] {
        let ask = post(message).with("mcp-session-id", "abc");
        assert_eq!(site.refused(ask), (400, -32600), "{message}");
    }
    assert_eq!(site.server.sessions(), 0);
    site.finish();
}

/// S-SESS-10: a modern request belongs to no session, even if it names one.
#[test]
fn s_sess_10_a_modern_request_is_in_no_session() {
    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    let running = site.send(session.post(1, "tools/call", json!({"name": "slow"})));
    for id in [session.id.as_str(), "no-such-session", "\u{e9}"] {
        let ask = modern(1, "tools/call", json!({"name": "add"})).with("mcp-session-id", id);
        let served = site.served(ask, json!({"content": []}));
        assert_eq!(site.status(served), 200, "{id}");
        assert_eq!(site.result(served)["resultType"], "complete");
        assert_eq!(site.field(served, "mcp-session-id"), None);
    }
    assert!(!site.is_over(running));
    site.finish();
}

#[test]
fn s_lhttp_14_a_get_is_a_stream_or_is_not_done_here() {
    let mut site = Site::new(config());
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = site.session(version);
        let stream = site.send(session.get());
        assert_eq!(site.status(stream), 200);
        assert_eq!(
            site.field(stream, "content-type"),
            Some("text/event-stream")
        );
        assert!(!site.is_over(stream));
    }
    site.finish();
    let mut site = Site::new(modern_only());
    assert_eq!(site.refused(get()).0, 405);
    site.finish();
}

#[test]
fn s_lhttp_03_what_is_no_request_is_accepted_without_a_word_or_refused() {
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut site = Site::new(config());
        let session = site.session(version);
        let told = site.send(session.notice("notifications/custom", Value::Null));
        assert_eq!((site.status(told), site.text(told)), (202, ""));
        let (_, request) = site.taken(session.post(1, "tools/call", json!({"name": "asks"})));
        let ask = site.ask(request, "roots/list", Value::Null);
        let question = site.question("roots/list");
        let told = site.send(session.answer(&question, json!({"roots": []})));
        assert_eq!((site.status(told), site.text(told)), (202, ""));
        assert_eq!(site.outcome(ask), Some(Ok(json!({"roots": []}))));
        for bad in [
            json!({"jsonrpc": "1.0", "method": "notifications/custom"}),
            json!({"jsonrpc": "2.0", "result": {}}),
            json!({"jsonrpc": "2.0", "id": 99, "result": {}, "error": {"code": 1, "message": ""}}),
            json!(7),
        ] {
            let sent = site.send(session.say(&bad));
            assert_eq!(site.status(sent), 400, "{version}: {bad}");
            assert!(site.json(sent).get("id").is_none(), "{version}: {bad}");
        }
        let homeless = session.notice("notifications/custom", Value::Null);
        let homeless = site.send(homeless.without("mcp-session-id"));
        assert_eq!(site.status(homeless), 400);
        assert_eq!(site.notified(), ["notifications/custom"]);
        site.finish();
    }
}

#[test]
fn s_inh_05_kinds_are_compared_without_case_and_parameters() {
    let mut site = Site::new(config());
    for kind in [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "APPLICATION/JSON;charset=\"UTF-8\"",
    ] {
        let sent = site.send(discover().with("content-type", kind));
        assert_eq!(site.status(sent), 200, "{kind}");
    }
    let nothing = site.send(discover().without("content-type"));
    assert_eq!(site.status(nothing), 200, "nobody requires it");
    for kind in ["text/plain", "application/jsonp", "application/xml"] {
        assert_eq!(
            site.refused(discover().with("content-type", kind)).0,
            415,
            "{kind}"
        );
    }
    for accept in [
        "*/*",
        "application/*",
        "TEXT/Event-Stream, Application/JSON",
        "application/json;q=0.5, text/event-stream; q=1",
    ] {
        let sent = site.send(discover().with("accept", accept));
        assert_eq!(site.status(sent), 200, "{accept}");
    }
    for accept in ["text/html", "image/*", "application/json;q=0"] {
        assert_eq!(
            site.refused(discover().with("accept", accept)).0,
            406,
            "{accept}"
        );
    }
    let nothing = site.send(discover().without("accept"));
    assert_eq!(
        site.status(nothing),
        200,
        "who names nothing takes everything"
    );
    site.finish();
}

#[test]
fn s_inh_06_what_can_be_asked_at_once_is_bounded() {
    let mut tight = config();
    tight.limits.requests = 2;
    tight.limits.watched_uris = 2;
    let mut site = Site::new(tight);
    let call = || modern(1, "tools/call", json!({"name": "slow"}));
    let (_, first) = site.taken(call());
    site.taken(call());
    let third = site.send(call());
    assert_eq!((site.status(third), site.code(third)), (503, -32603));
    assert!(site.field(third, "retry-after").is_some());
    let session = site.session("2025-11-25");
    let fourth = session.post(1, "tools/call", json!({"name": "slow"}));
    assert_eq!(site.refused(fourth), (200, -32603));
    site.respond(first, json!({"content": []}));
    let (_, again) = site.taken(call());
    site.respond(again, json!({"content": []}));
    let watch = |uri: &str| {
        let wanted = json!({"notifications": {"resourceSubscriptions": [uri]}});
        modern(1, "subscriptions/listen", wanted)
    };
    let watches = [site.send(watch("a:1")), site.send(watch("a:2"))];
    assert_eq!(site.refused(watch("a:3")).1, -32603);
    site.hangs_up(watches[0]);
    let another = site.send(watch("a:3"));
    assert!(!site.is_over(another));
    site.finish();
}

/// S-INH-06: deeply nested JSON is refused without harm.
#[test]
fn s_inh_06_what_is_nested_deeply_is_refused() {
    let mut site = Site::new(config());
    let deep = "[".repeat(200_000);
    for body in [
        deep.clone(),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"a":{deep}"#),
    ] {
        let mut ask = modern(1, "tools/call", json!({"name": "add"}));
        ask.body = body.into_bytes();
        let sent = site.send(ask);
        assert_eq!(site.status(sent), 400);
    }
    site.finish();
}

/// S-INH-06: a body that stops arriving times out, and other requests are served meanwhile.
#[test]
fn s_inh_06_a_body_has_its_time() {
    let mut http = Http::new();
    http.body_timeout = seconds(7);
    let mut site = Site::new(over(http));
    let slow = site.begin(&discover());
    site.body(slow, b"{\"jsonrpc\":");
    site.pass(seconds(6));
    assert!(!site.is_answered(slow));
    let quick = site.send(discover());
    assert_eq!(site.status(quick), 200);
    site.pass(seconds(1));
    assert_eq!(site.status(slow), 408);
    site.finish();
}
