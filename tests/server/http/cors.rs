//! Requests of web pages in a browser (CORS), and the refused requests that the application is told of.

use crate::server_http::{Ask, Site, config, get, initialize, modern, over, post};
use everlink::http::Verb;
use everlink::server::{Allowed, Config, Http, RefusalCause, SsePaths};
use serde_json::{Value, json};

const PAGE: &str = "https://app.example";
const ALLOW_ORIGIN: &str = "access-control-allow-origin";

fn for_pages(origins: Allowed) -> Config {
    let http = Http::new().with_sse(SsePaths::default());
    over(http.with_path("/mcp").with_cors(origins))
}

fn preflight(origin: &str) -> Ask {
    Ask::new(Verb::Options, "").with("origin", origin)
}

#[test]
fn preflight_of_a_listed_origin_is_answered_and_leaves_nothing_behind() {
    let mut site = Site::new(for_pages(Allowed::list([PAGE])));
    for path in ["/mcp", "/mcp?a=b", "/sse", "/messages"] {
        let asked = site.send(preflight(PAGE).to(path));
        assert_eq!(site.status(asked), 204, "{path}");
        assert_eq!(site.field(asked, ALLOW_ORIGIN), Some(PAGE));
        assert_eq!(site.field(asked, "access-control-allow-credentials"), None);
    }
    for (ask, status) in [
        (preflight("https://evil.example"), 403),
        (preflight(PAGE).with("host", "evil.example"), 403),
        (preflight(PAGE).and("origin", "https://evil.example"), 400),
        (preflight(PAGE).to("/none"), 404),
        (Ask::new(Verb::Options, ""), 405),
    ] {
        let asked = site.send(ask.clone());
        assert_eq!(site.status(asked), status, "{ask}");
        assert_eq!(site.field(asked, "access-control-allow-methods"), None);
    }
    site.finish();
}

/// A request with two origins is refused, because two proxies may read different ones.
#[test]
fn request_with_two_origins_is_told_nothing_of_pages() {
    let mut site = Site::new(for_pages(Allowed::Any));
    let twice = initialize("2025-11-25").with("origin", PAGE);
    let asked = site.send(twice.and("origin", "https://evil.example"));
    assert_eq!(site.status(asked), 400);
    assert_eq!(site.field(asked, ALLOW_ORIGIN), None);
    site.finish();
}

#[test]
fn without_cors_no_response_says_anything_of_pages() {
    let mut site = Site::new(config());
    let asked = site.send(preflight("http://localhost:3000"));
    assert_eq!(site.status(asked), 405);
    let met = site.send(initialize("2025-11-25").with("origin", "http://localhost:3000"));
    for asked in [asked, met] {
        assert_eq!(site.field(asked, ALLOW_ORIGIN), None);
        assert_eq!(site.field(asked, "vary"), None);
    }
    site.finish();
}

#[test]
fn stream_that_a_page_opens_may_be_read_by_it() {
    let mut site = Site::new(for_pages(Allowed::list([PAGE])));
    let stream = site.send(get().to("/sse").with("origin", PAGE));
    assert_eq!(site.status(stream), 200);
    assert_eq!(site.field(stream, ALLOW_ORIGIN), Some(PAGE));
    let gone = site.begin(&initialize("2025-11-25").with("origin", PAGE));
    site.hangs_up(gone);
    site.finish();
}

#[test]
fn refused_request_is_told_with_its_cause() {
    let mut site = Site::new(for_pages(Allowed::list([PAGE])));
    let hello = initialize("2025-11-25");
    let unnamed = modern(1, "tools/list", json!({})).without("mcp-method");
    let cases = [
        (
            hello.clone().with("host", "evil.example"),
            403,
            RefusalCause::Host,
        ),
        (
            hello.clone().with("origin", "https://evil.example"),
            403,
            RefusalCause::Origin,
        ),
        (
            hello.clone().to("/none?token=sesame"),
            404,
            RefusalCause::Path,
        ),
        (
            hello.with("content-type", "text/plain"),
            415,
            RefusalCause::Other,
        ),
        (post(&Value::Null), 400, RefusalCause::Other),
        (unnamed, 400, RefusalCause::Other),
    ];
    for (ask, status, cause) in cases {
        let asked = site.send(ask.clone());
        assert_eq!(site.status(asked), status, "{ask}");
        let refused = site.refusals();
        let refused = refused.last().expect("it is told");
        assert_eq!((refused.status, refused.cause), (status, cause), "{ask}");
        assert_eq!((refused.verb, refused.count), (ask.verb, 1));
        let path = ask.target.split('?').next();
        assert_eq!(refused.path.as_deref(), path);
        assert!(!refused.to_string().contains("sesame"));
    }
    assert_eq!(site.refusals().len(), 6);
    site.finish();
}

#[test]
fn message_over_the_limit_is_told_as_too_long() {
    let mut config = config();
    config.limits.message_bytes = 200;
    let mut site = Site::new(config);
    let long = initialize("2025-11-25").body.repeat(3);
    let asked = site.send(Ask::new(Verb::Post, long).with("accept", "*/*"));
    assert_eq!(site.status(asked), 413);
    let refused = site.refusals();
    assert_eq!(refused.last().map(|it| it.cause), Some(RefusalCause::Size));
    site.finish();
}
