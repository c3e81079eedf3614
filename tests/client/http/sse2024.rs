//! Servers with the transport of 2024-11-05: one stream for all their messages, and a path for the client's messages.

use crate::client_http::{
    self, Chunking, Web, complete, config, error, every_chunking, introduction, question, result,
    seconds,
};
use everlink::client::{Cause, Event, FailureKind, State};
use everlink::http::Verb;
use everlink::{Dialect, FaultKind, StreamId};
use serde_json::json;

/// A link that has fallen back to the old transport, and the stream that it opened.
fn looking(chunking: Chunking) -> (Web, StreamId) {
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    let mut web = Web::new(settings).chunked(chunking);
    web.connect();
    let post = web.posted("initialize");
    web.status(post.stream, 405);
    let get = web.begun(Verb::Get);
    web.stream(get.stream);
    (web, get.stream)
}

/// A ready link over the old transport.
fn ready(chunking: Chunking, version: &str) -> (Web, StreamId) {
    let (mut web, stream) = looking(chunking);
    web.bytes(stream, b"event: endpoint\ndata: /messages?id=1\n\n");
    let post = web.posted("initialize");
    web.status(post.stream, 202);
    web.event(stream, None, &result(&post, introduction(version)));
    let post = web.posted("notifications/initialized");
    web.status(post.stream, 202);
    assert_eq!(web.client.state(), State::Ready);
    (web, stream)
}

/// S-HTTP-41, S-HTTP-42: a status that says "no such endpoint" may mean the old transport.
#[test]
fn s_http_41_42_a_server_that_takes_no_posts_is_looked_for_behind_the_old_transport() {
    for status in [400, 404, 405, 406, 410, 415] {
        let mut web = Web::new(config());
        web.connect();
        let probe = web.posted("server/discover");
        web.status(probe.stream, status);
        let post = web.posted("initialize");
        web.status(post.stream, status);
        let get = web.begun(Verb::Get);
        assert_eq!(get.target, client_http::URL);
        assert_eq!(get.field("accept"), Some("text/event-stream"));
        assert_eq!(get.field("mcp-session-id"), None);
        assert_eq!(web.unseen(), 0, "{status}");
    }
}

/// S-HTTP-41: the link does not try the old transport after a modern error, or if the configuration forbids it.
#[test]
fn s_http_41_it_is_not_looked_for_where_it_cannot_be() {
    for code in [-32_020, -32_022] {
        let mut settings = config();
        settings.dialect = Dialect::Legacy;
        let mut web = Web::new(settings);
        web.connect();
        let post = web.posted("initialize");
        web.json(post.stream, 400, &error(&post, code));
        assert!(
            web.all.iter().all(|begun| begun.verb == Verb::Post),
            "{code}"
        );
    }
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    if let Some(http) = &mut settings.http {
        http.falls_back = false;
    }
    let mut web = Web::new(settings);
    web.connect();
    let post = web.posted("initialize");
    web.status(post.stream, 405);
    assert!(web.all.iter().all(|begun| begun.verb == Verb::Post));
}

/// S-SSE-03: requests, notifications, replies and cancellations all go to the announced path.
#[test]
fn s_sse_03_every_message_goes_where_the_server_said() {
    every_chunking(|chunking| {
        let (mut web, stream) = ready(chunking, "2024-11-05");
        let call = web.call("tools/call", json!({"name": "add"}));
        let other = web.call("tools/call", json!({"name": "add"}));
        web.cancel(other);
        web.event(stream, None, &question(1, "ping", &json!({})));
        web.notify("notifications/example", &json!({}));
        let place = "https://mcp.example/messages?id=1";
        let posts: Vec<_> = web
            .all
            .iter()
            .filter(|begun| begun.verb == Verb::Post)
            .collect();
        let (home, later) = posts.split_first().expect("posts");
        assert_eq!(home.target, client_http::URL);
        assert_eq!(
            later.len(),
            7,
            "two of the handshake, two calls, a cancellation, an answer, a notification"
        );
        assert!(
            later
                .iter()
                .all(|post| post.target == place && post.body.is_object())
        );
        let post = web.posted("tools/call");
        web.status(post.stream, 202);
        web.event(stream, None, &result(&post, json!({"content": []})));
        assert!(web.reply(call).is_ok());
    });
}

/// S-SSE-05: the link sends nothing before it knows the path, and only to the same server.
#[test]
fn s_sse_05_nothing_is_sent_before_the_place_is_known() {
    every_chunking(|chunking| {
        let (mut web, stream) = looking(chunking);
        let waiting = web.call("tools/call", json!({"name": "add"}));
        web.bytes(stream, b": hello\n\nevent: message\ndata: {}\n\n");
        web.pass(seconds(1));
        assert_eq!(web.unseen(), 0);
        web.bytes(stream, b"event: endpoint\ndata: messages\n\n");
        assert_eq!(
            web.posted("initialize").target,
            "https://mcp.example/messages"
        );
        assert!(!web.is_settled(waiting));
        // A second path is ignored.
        web.bytes(stream, b"event: endpoint\ndata: /elsewhere\n\n");
        assert!(
            web.all
                .iter()
                .all(|begun| !begun.target.contains("elsewhere"))
        );
    });
}

#[test]
fn s_sse_05_the_place_is_resolved_and_must_be_of_the_same_origin() {
    for (place, target) in [
        ("/messages", Some("https://mcp.example/messages")),
        ("messages?a=b", Some("https://mcp.example/messages?a=b")),
        ("?s=1", Some("https://mcp.example/mcp?s=1")),
        ("https://mcp.example/m", Some("https://mcp.example/m")),
        ("https://mcp.example:443/m", Some("https://mcp.example/m")),
        ("https://evil.example/m", None),
        ("//evil.example/m", None),
        ("http://mcp.example/m", None),
        ("https://mcp.example:8443/m", None),
        ("javascript:alert(1)", None),
    ] {
        let (mut web, stream) = looking(Chunking::Whole);
        web.bytes(
            stream,
            format!("event: endpoint\ndata: {place}\n\n").as_bytes(),
        );
        let post = web.find(|begun| begun.method() == "initialize");
        let went = post.map(|post| post.target);
        let is_same = match (&went, target) {
            (Some(went), Some(target)) => went == target || went.replace(":443", "") == target,
            (None, None) => true,
            _ => false,
        };
        assert!(is_same, "{place}: {went:?}");
        assert!(web.all.iter().all(|begun| !begun.target.contains("evil")));
    }
}

/// S-SSE-06: whatever the response to the POST, the reply comes on the stream.
#[test]
fn s_sse_06_the_status_of_a_post_says_nothing_and_its_body_neither() {
    every_chunking(|chunking| {
        for (status, body) in [
            (202, ""),
            (200, ""),
            (204, ""),
            (200, "Accepted"),
            (202, "{\"no\": 1}"),
        ] {
            let (mut web, stream) = ready(chunking, "2024-11-05");
            let call = web.call("tools/call", json!({"name": "add"}));
            let post = web.posted("tools/call");
            web.respond(post.stream, status, &[("content-type", "text/plain")], body);
            assert!(!web.is_settled(call), "{status} {body}");
            web.event(stream, None, &result(&post, json!({"content": []})));
            assert!(web.reply(call).is_ok());
        }
        // The reply may arrive before the response to the POST.
        let (mut web, stream) = ready(chunking, "2024-11-05");
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.event(stream, None, &result(&post, json!({"content": []})));
        assert!(web.reply(call).is_ok());
        web.status(post.stream, 202);
    });
}

/// S-SSE-06: the epoch ends with the stream. S-RES-09: the stream is not resumed. S-LIFE-12: the next epoch begins with a
/// handshake.
#[test]
fn s_sse_06_the_loss_of_the_stream_is_the_loss_of_the_connection() {
    for is_orderly in [true, false] {
        let (mut web, stream) = ready(Chunking::Whole, "2024-11-05");
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.status(post.stream, 202);
        web.bytes(stream, b"id: 5\ndata:\n\n");
        if is_orderly {
            web.end(stream);
        } else {
            web.fail(stream, FaultKind::Reset);
        }
        assert_eq!(web.failure(call).kind, FailureKind::Lost);
        assert!(web.was_told(|e| matches!(
            e,
            Event::Closing {
                cause: Cause::Died,
                ..
            }
        )));
        web.pass(seconds(1));
        let get = web.begun(Verb::Get);
        assert_eq!(get.target, client_http::URL);
        assert_eq!(get.field("last-event-id"), None);
        web.stream(get.stream);
        web.bytes(get.stream, b"event: endpoint\ndata: /messages?id=2\n\n");
        let post = web.posted("initialize");
        assert_eq!(post.target, "https://mcp.example/messages?id=2");
        assert_eq!(web.unseen(), 0);
    }
}

/// S-SSE-07: the transport does not determine the version. S-LHTTP-20: it has no version field.
#[test]
fn s_sse_07_any_legacy_version_may_be_spoken_there() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let (mut web, stream) = ready(Chunking::Whole, version);
        assert_eq!(
            web.client.session().expect("ready").version.as_str(),
            version
        );
        let first = web.carrying("initialize")[1];
        assert_eq!(first.body["params"]["protocolVersion"], "2025-11-25");
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.status(post.stream, 202);
        web.event(stream, None, &complete(&post, json!({"content": []})));
        assert!(web.reply(call).is_ok());
    }
}

/// S-TIME-01: the link waits only a limited time for the path.
#[test]
fn a_place_that_is_never_said_is_not_waited_for() {
    let (mut web, _) = looking(Chunking::Whole);
    web.pass(seconds(11));
    assert!(web.was_told(|event| matches!(
        event,
        Event::Closing {
            cause: Cause::HandshakeRefused { .. },
            ..
        }
    )));
}

/// S-SESS-07, S-LIFE-11: there is no session to end; closing the stream is enough.
#[test]
fn s_life_11_shutting_down_closes_the_stream_and_says_nothing() {
    let (mut web, stream) = ready(Chunking::Whole, "2024-11-05");
    let before = web.all.len();
    web.shutdown();
    assert_eq!(web.client.state(), State::Closed);
    assert!(!web.is_open(stream));
    assert_eq!(web.all.len(), before);
}
