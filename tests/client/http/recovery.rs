//! Minimal versions of simulator findings in which a link did not recover.

use crate::client_http::{self, Web, config, introduction, result, seconds};
use everlink::client::{Cause, Event, State};
use everlink::http::Verb;
use everlink::protocol::Era;
use serde_json::json;

/// A legacy server replaces a modern one and refuses the modern probe like any unknown method. This reply does not show that the former server
/// is alive.
#[test]
fn a_legacy_server_in_the_place_of_a_modern_one_is_spoken_to_as_such() {
    let mut web = Web::modern();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.status(post.stream, 404);
    web.failure(call);
    let probe = web.posted("server/discover");
    let unknown = json!({"code": -32_601, "message": "what is that?"});
    let reply = json!({"jsonrpc": "2.0", "id": probe.body["id"], "error": unknown});
    web.json(probe.stream, 200, &reply);
    assert_ne!(web.client.state(), State::Ready);
    web.pass(seconds(3));
    let again = web.posted("server/discover");
    let reply = json!({"jsonrpc": "2.0", "id": again.body["id"], "error": reply["error"]});
    web.json(again.stream, 200, &reply);
    web.agree_legacy("2025-11-25", Some("s-1"));
    assert_eq!(web.client.era(), Some(Era::Legacy));
}

/// A 405 counts as "no listen stream" only at first. Later it may come from a proxy that does not know.
#[test]
fn a_stream_of_news_that_was_there_is_asked_for_again_whoever_refuses_it() {
    for status in [200, 307, 400, 401, 403, 405] {
        let mut web = Web::legacy_with_news();
        let listen = web.begun(Verb::Get);
        web.stream(listen.stream);
        web.end(listen.stream);
        web.pass(seconds(2));
        let again = web.begun(Verb::Get);
        web.respond(
            again.stream,
            status,
            &[("content-type", "text/html")],
            "<p>",
        );
        // The application is not asked for credentials, because it did not ask for this stream.
        assert!(!web.client.awaits_authorization());
        web.pass(seconds(20));
        let third = web.find(|begun| begun.verb == Verb::Get);
        assert!(
            third.is_some(),
            "status {status} was taken for the last word"
        );
    }
}

/// A server refuses `initialized` for lack of credentials. If there are none, the epoch ends.
#[test]
fn a_life_whose_handshake_is_not_let_end_is_none() {
    let (mut web, told) = introduced();
    web.status(told.stream, 401);
    assert!(web.client.awaits_authorization());
    web.client.denied(web.now, "nobody is there");
    web.pass(seconds(0));
    assert_eq!(closing(&web), Some(Cause::Unauthorized));

    let (mut web, mut told) = introduced();
    for _ in 0..2 {
        web.status(told.stream, 401);
        web.client.authorized(web.now);
        web.pass(seconds(0));
        told = web.posted("notifications/initialized");
    }
    web.status(told.stream, 401);
    assert_eq!(closing(&web), Some(Cause::Unauthorized));
}

/// A link that has the result of `initialize`, and its `initialized` message.
fn introduced() -> (Web, client_http::Begun) {
    let mut config = config();
    config.dialect = everlink::Dialect::Legacy;
    let mut web = Web::new(config);
    web.connect();
    let post = web.posted("initialize");
    let fields = [
        ("content-type", "application/json"),
        ("mcp-session-id", "s-1"),
    ];
    let body = result(&post, introduction("2025-11-25")).to_string();
    web.respond(post.stream, 200, &fields, &body);
    let told = web.posted("notifications/initialized");
    (web, told)
}

/// The cause of the end of the last epoch.
fn closing(web: &Web) -> Option<Cause> {
    let causes = web.events.iter().rev();
    let mut causes = causes.filter_map(|event| match event {
        Event::Closing { cause, .. } => Some(cause.clone()),
        _ => None,
    });
    causes.next()
}
