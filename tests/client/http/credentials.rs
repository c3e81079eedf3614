//! Credentials over HTTP: the driver adds them. The link knows when new ones are needed, and which requests wait for
//! them.

use crate::client_http::{self, LEGACY, VERSIONS, Web, config, every_chunking, result, seconds};
use everlink::client::{Cause, Event, FailureKind, State};
use everlink::http::Verb;
use everlink::{Dialect, List};
use serde_json::json;

/// The challenges in the events: the status and the demands of each.
fn challenges(web: &Web) -> Vec<(u16, Vec<String>)> {
    let told = web.events.iter().filter_map(|event| match event {
        Event::AuthRequired(challenge) => {
            let demands = challenge.demands.iter().map(ToString::to_string);
            Some((challenge.status, demands.collect()))
        }
        _ => None,
    });
    told.collect()
}

fn authorize(web: &mut Web) {
    web.client.authorized(web.now);
    web.pump();
}

/// S-AUTH-08: a request that is refused with 401 or 403 did not run, so it is sent again in any case.
#[test]
fn s_auth_08_what_was_turned_away_is_sent_again_with_other_credentials() {
    for version in VERSIONS {
        for status in [401, 403] {
            every_chunking(|chunking| {
                let mut web = Web::speaking(version).chunked(chunking);
                let call = web.call("tools/call", json!({"name": "act"}));
                let post = web.posted("tools/call");
                let fields = [
                    (
                        "WWW-Authenticate",
                        "Bearer error=\"insufficient_scope\", scope=\"a b\"",
                    ),
                    ("content-type", "application/json"),
                ];
                web.respond(
                    post.stream,
                    status,
                    &fields,
                    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"no"}}"#,
                );
                assert!(!web.is_settled(call));
                assert!(web.client.awaits_authorization());
                assert_eq!(challenges(&web), [(status, vec![fields[0].1.to_owned()])]);
                web.pass(seconds(90));
                assert_eq!(web.unseen(), 0, "nothing is sent meanwhile");
                authorize(&mut web);
                let again = web.posted("tools/call");
                web.reply_with(&again, json!({"content": []}));
                assert!(web.reply(call).is_ok());
                // The refusal counts neither as a failure nor as the end of the session.
                assert_eq!(web.client.stats().failures, 0);
                assert_eq!(web.opens, 1);
                assert_eq!(again.field("mcp-session-id"), post.field("mcp-session-id"));
            });
        }
    }
}

/// S-AUTH-08, S-HTTP-43: a refused handshake continues at the same step.
#[test]
fn s_auth_08_a_refusal_says_nothing_of_the_era() {
    let mut web = Web::new(config());
    web.connect();
    let probe = web.posted("server/discover");
    web.respond(probe.stream, 401, &[("www-authenticate", "Bearer")], "");
    web.pass(seconds(300));
    assert_eq!(web.unseen(), 0, "people take their time");
    assert_eq!(web.client.state(), State::Handshaking);
    authorize(&mut web);
    web.agree_modern();
    assert!(web.carrying("initialize").is_empty());

    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    let mut web = Web::new(settings);
    web.connect();
    let post = web.posted("initialize");
    web.status(post.stream, 403);
    authorize(&mut web);
    assert!(
        web.all.iter().all(|begun| begun.verb == Verb::Post),
        "nor of the transport"
    );
    web.agree_legacy("2025-11-25", Some("s-1"));
}

/// S-AUTH-05: the application gets every challenge unchanged.
#[test]
fn s_auth_05_what_the_server_demands_is_told_as_it_came() {
    let mut web = Web::modern();
    web.call("tools/call", json!({"name": "act"}));
    let post = web.posted("tools/call");
    let demands = [
        "Bearer resource_metadata=\"https://a/.well-known/x\"",
        "Basic realm=\"b\"",
    ];
    let fields = demands.map(|demand| ("www-authenticate", demand));
    web.respond(post.stream, 401, &fields, "");
    assert_eq!(
        challenges(&web),
        [(401, demands.map(str::to_owned).to_vec())]
    );
}

/// S-AUTH-05: the challenges are passed on unchanged, up to a size limit.
#[test]
fn s_auth_05_what_the_server_demands_is_told_up_to_a_bound() {
    let mut web = Web::modern();
    web.call("tools/call", json!({"name": "act"}));
    let post = web.posted("tools/call");
    let demands = [4_000, 90, 20].map(|len| "x".repeat(len));
    let fields = demands
        .each_ref()
        .map(|demand| ("www-authenticate", &**demand));
    web.respond(post.stream, 401, &fields, "");
    assert_eq!(challenges(&web), [(401, demands[..2].to_vec())]);
}

/// S-AUTH-06: a request that is refused again with new credentials fails after a limited number of attempts.
#[test]
fn s_auth_06_a_request_that_is_turned_away_again_and_again_has_failed() {
    let mut web = Web::modern();
    let call = web.call("tools/call", json!({"name": "act"}));
    let mut turned_away = 0;
    while !web.is_settled(call) {
        let post = web.posted("tools/call");
        web.status(post.stream, 403);
        turned_away += 1;
        assert!(turned_away < 10, "it is bounded");
        authorize(&mut web);
    }
    assert!(turned_away > 1);
    assert_eq!(
        web.failure(call).kind,
        FailureKind::Unauthorized { why: None }
    );
    assert_eq!(web.client.state(), State::Ready);
}

/// S-AUTH-08: when the application denies credentials or does not answer, the waiting requests fail and the reason is
/// reported.
#[test]
fn s_auth_08_what_nobody_has_credentials_for_fails() {
    let mut web = Web::modern();
    let call = web.call("tools/call", json!({"name": "act"}));
    let post = web.posted("tools/call");
    web.status(post.stream, 401);
    web.client.denied(web.now, "the user closed the window");
    web.pump();
    let why = Some("the user closed the window".into());
    assert_eq!(web.failure(call).kind, FailureKind::Unauthorized { why });
    assert_eq!(web.client.state(), State::Ready);
    let mut web = Web::new(config());
    web.connect();
    let probe = web.posted("server/discover");
    web.status(probe.stream, 401);
    web.pass(seconds(601));
    assert!(web.was_told(|event| matches!(
        event,
        Event::Closing {
            cause: Cause::Unauthorized,
            ..
        }
    )));
}

/// S-AUTH-08: a refusal for lack of credentials ends neither a session nor a stream.
#[test]
fn s_auth_08_every_kind_of_exchange_may_be_turned_away() {
    for version in LEGACY {
        let mut settings = config();
        settings.dialect = Dialect::Legacy;
        let mut web = Web::new(settings);
        web.connect();
        web.agree_with_news(version, Some("s-1"));
        let listen = web.begun(Verb::Get);
        web.status(listen.stream, 401);
        assert_eq!(web.client.state(), State::Ready);
        let call = web.call("tools/call", json!({"name": "act"}));
        let post = web.posted("tools/call");
        web.stream(post.stream);
        web.bytes(post.stream, b"id: 4\ndata:\n\n");
        web.end(post.stream);
        web.pass(seconds(2));
        let resume = web.begun(Verb::Get);
        assert_eq!(resume.field("last-event-id"), Some("4"));
        web.status(resume.stream, 401);
        assert!(!web.is_settled(call));
        authorize(&mut web);
        web.pass(seconds(5));
        let resume = web
            .find(|begun| begun.field("last-event-id") == Some("4"))
            .expect("it is asked for again");
        web.stream(resume.stream);
        web.event(resume.stream, None, &result(&post, json!({"content": []})));
        assert!(web.reply(call).is_ok());
        assert!(
            web.find(|begun| begun.verb == Verb::Get).is_some(),
            "and so are the news"
        );
        web.shutdown();
        let farewell = web.begun(Verb::Delete);
        web.status(farewell.stream, 401);
        assert_eq!(web.client.state(), State::Closed);
    }
}

/// S-AUTH-02: the link holds no credentials and adds none to any request.
#[test]
fn s_auth_02_credentials_are_never_the_links() {
    let mut web = Web::modern();
    web.call("tools/call", json!({"name": "act"}));
    let post = web.posted("tools/call");
    web.respond(
        post.stream,
        401,
        &[("www-authenticate", "Bearer token=\"secret\"")],
        "",
    );
    authorize(&mut web);
    for begun in &web.all {
        assert_eq!(begun.field("authorization"), None);
        assert_eq!(begun.target, client_http::URL);
    }
    assert!(!format!("{:?} {:?}", web.client, web.events).contains("secret"));
}

/// S-CACHE-08: a cached private list is not used after the credentials change.
#[test]
fn s_cache_08_what_is_private_is_not_shared_between_credentials() {
    for (scope, is_kept) in [("private", false), ("public", true)] {
        let mut web = Web::modern();
        let call = web.list(List::Tools);
        let post = web.posted("tools/list");
        web.reply_with(
            &post,
            json!({"tools": [], "ttlMs": 600_000, "cacheScope": scope}),
        );
        assert_eq!(web.listed(call).len(), 0);
        web.call("tools/call", json!({"name": "act"}));
        let post = web.posted("tools/call");
        web.status(post.stream, 401);
        authorize(&mut web);
        let call = web.list(List::Tools);
        // A public list may be kept, but need not be.
        assert!(is_kept || !web.is_settled(call), "{scope}");
    }
}
