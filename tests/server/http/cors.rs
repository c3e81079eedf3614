//! Requests of web pages in a browser (CORS), and the refused requests that the application is told of.

use crate::server_http::{
    Harness, HttpRequest, config, get, http_config, initialize, modern, notification, post,
    with_meta,
};
use everlink::http::Verb;
use everlink::server::{Allowed, Config, Http, RefusalCause, SsePaths};
use serde_json::{Value, json};

const ORIGIN: &str = "https://app.example";
const ALLOW_ORIGIN: &str = "access-control-allow-origin";

fn cors_config(origins: Allowed) -> Config {
    let http = Http::new().with_sse(SsePaths::default());
    http_config(http.with_path("/mcp").with_cors(origins))
}

fn preflight(origin: &str) -> HttpRequest {
    HttpRequest::new(Verb::Options, "").with("origin", origin)
}

#[test]
fn preflight_of_a_listed_origin_gets_204_and_others_are_refused() {
    let mut harness = Harness::new(cors_config(Allowed::list([ORIGIN])));
    for path in ["/mcp", "/mcp?a=b", "/sse", "/messages"] {
        let sent = harness.send(preflight(ORIGIN).to(path));
        assert_eq!(harness.status(sent), 204, "{path}");
        assert_eq!(harness.field(sent, ALLOW_ORIGIN), Some(ORIGIN));
        assert_eq!(
            harness.field(sent, "access-control-allow-credentials"),
            None
        );
    }
    for (http_request, status) in [
        (preflight("https://evil.example"), 403),
        (preflight(ORIGIN).with("host", "evil.example"), 403),
        (
            preflight(ORIGIN).append("origin", "https://evil.example"),
            400,
        ),
        (preflight(ORIGIN).to("/none"), 404),
        (HttpRequest::new(Verb::Options, ""), 405),
    ] {
        let sent = harness.send(http_request.clone());
        assert_eq!(harness.status(sent), status, "{http_request}");
        assert_eq!(harness.field(sent, "access-control-allow-methods"), None);
    }
    harness.finish();
}

/// A request with two origins is refused, because two proxies may read different ones.
#[test]
fn request_with_two_origins_gets_400_without_cors_headers() {
    let mut harness = Harness::new(cors_config(Allowed::Any));
    let twice = initialize("2025-11-25").with("origin", ORIGIN);
    let sent = harness.send(twice.append("origin", "https://evil.example"));
    assert_eq!(harness.status(sent), 400);
    assert_eq!(harness.field(sent, ALLOW_ORIGIN), None);
    harness.finish();
}

#[test]
fn responses_have_no_cors_headers_when_cors_is_off() {
    let mut harness = Harness::new(config());
    let sent = harness.send(preflight("http://localhost:3000"));
    assert_eq!(harness.status(sent), 405);
    let handshake = harness.send(initialize("2025-11-25").with("origin", "http://localhost:3000"));
    for sent in [sent, handshake] {
        assert_eq!(harness.field(sent, ALLOW_ORIGIN), None);
        assert_eq!(harness.field(sent, "vary"), None);
    }
    harness.finish();
}

#[test]
fn sse_stream_opened_by_a_listed_origin_has_allow_origin() {
    let mut harness = Harness::new(cors_config(Allowed::list([ORIGIN])));
    let stream = harness.send(get().to("/sse").with("origin", ORIGIN));
    assert_eq!(harness.status(stream), 200);
    assert_eq!(harness.field(stream, ALLOW_ORIGIN), Some(ORIGIN));
    let gone = harness.begin(&initialize("2025-11-25").with("origin", ORIGIN));
    harness.disconnect(gone);
    harness.finish();
}

#[test]
fn refused_request_event_has_status_cause_and_path() {
    let mut harness = Harness::new(cors_config(Allowed::list([ORIGIN])));
    let handshake = initialize("2025-11-25");
    let without_method = modern(1, "tools/list", json!({})).without("mcp-method");
    let cases = [
        (
            handshake.clone().with("host", "evil.example"),
            403,
            RefusalCause::Host,
        ),
        (
            handshake.clone().with("origin", "https://evil.example"),
            403,
            RefusalCause::Origin,
        ),
        (
            handshake.clone().to("/none?token=sesame"),
            404,
            RefusalCause::Path,
        ),
        (
            handshake.with("content-type", "text/plain"),
            415,
            RefusalCause::Other,
        ),
        (post(&Value::Null), 400, RefusalCause::Other),
        (without_method, 400, RefusalCause::Other),
    ];
    for (http_request, status, cause) in cases {
        let sent = harness.send(http_request.clone());
        assert_eq!(harness.status(sent), status, "{http_request}");
        let refused = harness.refusals();
        let refused = refused.last().expect("a refusal is reported");
        assert_eq!(
            (refused.status, refused.cause),
            (status, cause),
            "{http_request}"
        );
        assert_eq!((refused.verb, refused.count), (http_request.verb, 1));
        let path = http_request.target.split('?').next();
        assert_eq!(refused.path.as_deref(), path);
        assert!(!refused.to_string().contains("sesame"));
    }
    assert_eq!(harness.refusals().len(), 6);
    harness.finish();
}

#[test]
fn oversized_message_gets_413_and_a_size_refusal_event() {
    let mut config = config();
    config.limits.message_bytes = 200;
    let mut harness = Harness::new(config);
    let long = initialize("2025-11-25").body.repeat(3);
    let sent = harness.send(HttpRequest::new(Verb::Post, long).with("accept", "*/*"));
    assert_eq!(harness.status(sent), 413);
    let refused = harness.refusals();
    assert_eq!(
        refused.last().map(|refused| refused.cause),
        Some(RefusalCause::Size)
    );
    harness.finish();
}

#[test]
fn any_origin_is_granted_with_a_star() {
    let mut harness = Harness::new(cors_config(Allowed::Any));
    let sent = harness.send(initialize("2025-11-25").with("origin", ORIGIN));
    assert_eq!(harness.status(sent), 200);
    assert_eq!(harness.field(sent, ALLOW_ORIGIN), Some("*"));
    harness.finish();
}

/// An origin may send requests without being allowed to read the responses.
#[test]
fn origin_that_is_allowed_but_not_listed_for_cors_cannot_read_the_response() {
    let mut harness = Harness::new(cors_config(Allowed::list([ORIGIN])));
    let sent = harness.send(initialize("2025-11-25").with("origin", "http://localhost:3000"));
    assert_eq!(harness.status(sent), 200);
    assert_eq!(harness.field(sent, ALLOW_ORIGIN), None);
    harness.finish();
}

#[test]
fn responses_without_a_message_have_allow_origin() {
    let mut config = cors_config(Allowed::list([ORIGIN]));
    config.limits.exchanges = 1;
    let mut harness = Harness::new(config);
    let notified = notification("notifications/custom", with_meta(json!({})));
    let sent = harness.send(notified.with("origin", ORIGIN));
    assert_eq!(harness.status(sent), 202);
    assert_eq!(harness.field(sent, ALLOW_ORIGIN), Some(ORIGIN));
    harness.send_accepted(modern(1, "tools/call", json!({"name": "slow"})));
    let refused = harness.begin(&initialize("2025-11-25").with("origin", ORIGIN));
    assert_eq!(harness.status(refused), 503);
    assert_eq!(harness.field(refused, ALLOW_ORIGIN), Some(ORIGIN));
    harness.finish();
}

#[test]
fn preflight_with_two_hosts_gets_400() {
    let mut harness = Harness::new(cors_config(Allowed::list([ORIGIN])));
    let sent = harness.send(preflight(ORIGIN).append("host", "localhost:8080"));
    assert_eq!(harness.status(sent), 400);
    assert_eq!(harness.field(sent, "access-control-allow-methods"), None);
    harness.finish();
}
