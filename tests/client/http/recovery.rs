//! Minimal versions of simulator findings in which a link did not recover.

use crate::client_http::{self, Harness, config, initialize_result, result, seconds};
use everlink::client::{Cause, Event, State};
use everlink::http::Verb;
use everlink::protocol::Era;
use serde_json::json;

/// A legacy server replaces a modern one and refuses the modern probe like any unknown method. This reply does not show that the former server
/// is alive.
#[test]
fn legacy_server_that_replaces_a_modern_one_is_initialized() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 404);
    harness.failure(call);
    let probe = harness.next_post("server/discover");
    let unknown = json!({"code": -32_601, "message": "what is that?"});
    let reply = json!({"jsonrpc": "2.0", "id": probe.body["id"], "error": unknown});
    harness.json(probe.stream, 200, &reply);
    assert_ne!(harness.client.state(), State::Ready);
    harness.advance(seconds(3));
    let again = harness.next_post("server/discover");
    let reply = json!({"jsonrpc": "2.0", "id": again.body["id"], "error": reply["error"]});
    harness.json(again.stream, 200, &reply);
    harness.agree_legacy("2025-11-25", Some("s-1"));
    assert_eq!(harness.client.era(), Some(Era::Legacy));
}

/// A 405 counts as "no listen stream" only at first. Later it may come from a proxy that does not know.
#[test]
fn listen_stream_that_was_open_before_is_requested_again_after_any_refusal() {
    for status in [200, 307, 400, 401, 403, 405] {
        let mut harness = Harness::legacy_awaiting_listen();
        let listen = harness.next_exchange(Verb::Get);
        harness.begin_stream(listen.stream);
        harness.end(listen.stream);
        harness.advance(seconds(2));
        let again = harness.next_exchange(Verb::Get);
        harness.respond(
            again.stream,
            status,
            &[("content-type", "text/html")],
            "<p>",
        );
        // The application is not asked for credentials, because it did not ask for this stream.
        assert!(!harness.client.awaits_authorization());
        harness.advance(seconds(20));
        let third = harness.find(|exchange| exchange.verb == Verb::Get);
        assert!(
            third.is_some(),
            "the stream was not requested again after status {status}"
        );
    }
}

/// A server refuses `initialized` for lack of credentials. If there are none, the epoch ends.
#[test]
fn initialized_refused_for_lack_of_credentials_ends_the_epoch() {
    let (mut harness, initialized) = after_initialize();
    harness.status(initialized.stream, 401);
    assert!(harness.client.awaits_authorization());
    harness.client.denied(harness.now, "nobody is there");
    harness.advance(seconds(0));
    assert_eq!(last_cause(&harness), Some(Cause::Unauthorized));

    let (mut harness, mut initialized) = after_initialize();
    for _ in 0..2 {
        harness.status(initialized.stream, 401);
        harness.client.authorized(harness.now);
        harness.advance(seconds(0));
        initialized = harness.next_post("notifications/initialized");
    }
    harness.status(initialized.stream, 401);
    assert_eq!(last_cause(&harness), Some(Cause::Unauthorized));
}

/// A link that has the result of `initialize`, and its `initialized` message.
fn after_initialize() -> (Harness, client_http::Exchange) {
    let mut config = config();
    config.dialect = everlink::Dialect::Legacy;
    let mut harness = Harness::new(config);
    harness.connect();
    let post = harness.next_post("initialize");
    let fields = [
        ("content-type", "application/json"),
        ("mcp-session-id", "s-1"),
    ];
    let body = result(&post, initialize_result("2025-11-25")).to_string();
    harness.respond(post.stream, 200, &fields, &body);
    let initialized = harness.next_post("notifications/initialized");
    (harness, initialized)
}

/// The cause of the end of the last epoch.
fn last_cause(harness: &Harness) -> Option<Cause> {
    let causes = harness.events.iter().rev();
    let mut causes = causes.filter_map(|event| match event {
        Event::Closing { cause, .. } => Some(cause.clone()),
        _ => None,
    });
    causes.next()
}
