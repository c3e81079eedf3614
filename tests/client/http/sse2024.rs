//! Servers with the transport of 2024-11-05: one stream for all their messages, and a path for the client's messages.

use crate::client_http::{
    self, Chunking, Exchange, Harness, ask_message, complete, config, error, every_chunking,
    initialize_result, result, seconds,
};
use everlink::client::{Cause, Event, FailureKind, State};
use everlink::http::Verb;
use everlink::{Dialect, FaultKind, StreamId};
use serde_json::json;

/// A link that has fallen back to the old transport, and the stream that it opened.
fn after_fallback(chunking: Chunking) -> (Harness, StreamId) {
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    let mut harness = Harness::new(settings).chunked(chunking);
    harness.connect();
    let post = harness.next_post("initialize");
    harness.status(post.stream, 405);
    let get = harness.next_exchange(Verb::Get);
    harness.begin_stream(get.stream);
    (harness, get.stream)
}

/// A ready link over the old transport.
fn ready(chunking: Chunking, version: &str) -> (Harness, StreamId) {
    let (mut harness, stream) = after_fallback(chunking);
    harness.bytes(stream, b"event: endpoint\ndata: /messages?id=1\n\n");
    let post = harness.next_post("initialize");
    harness.status(post.stream, 202);
    harness.event(stream, None, &result(&post, initialize_result(version)));
    let post = harness.next_post("notifications/initialized");
    harness.status(post.stream, 202);
    assert_eq!(harness.client.state(), State::Ready);
    (harness, stream)
}

/// S-HTTP-41, S-HTTP-42: a status that says "no such endpoint" may mean the old transport.
#[test]
fn s_http_41_42_refused_posts_fall_back_to_sse2024() {
    for status in [400, 404, 405, 406, 410, 415] {
        let mut harness = Harness::new(config());
        harness.connect();
        let probe = harness.next_post("server/discover");
        harness.status(probe.stream, status);
        let post = harness.next_post("initialize");
        harness.status(post.stream, status);
        let get = harness.next_exchange(Verb::Get);
        assert_eq!(get.target, client_http::URL);
        assert_eq!(get.field("accept"), Some("text/event-stream"));
        assert_eq!(get.field("mcp-session-id"), None);
        assert_eq!(harness.unseen_count(), 0, "{status}");
    }
}

/// S-HTTP-41: the link does not try the old transport after a modern error, or if the configuration forbids it.
#[test]
fn s_http_41_no_fallback_after_a_modern_error_or_if_disabled() {
    for code in [-32_020, -32_022] {
        let mut settings = config();
        settings.dialect = Dialect::Legacy;
        let mut harness = Harness::new(settings);
        harness.connect();
        let post = harness.next_post("initialize");
        harness.json(post.stream, 400, &error(&post, code));
        assert!(
            harness
                .exchanges
                .iter()
                .all(|exchange| exchange.verb == Verb::Post),
            "{code}"
        );
    }
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    if let Some(http) = settings.binding.http_mut() {
        http.falls_back = false;
    }
    let mut harness = Harness::new(settings);
    harness.connect();
    let post = harness.next_post("initialize");
    harness.status(post.stream, 405);
    assert!(
        harness
            .exchanges
            .iter()
            .all(|exchange| exchange.verb == Verb::Post)
    );
}

/// S-SSE-03: requests, notifications, replies and cancellations all go to the announced path.
#[test]
fn s_sse_03_every_message_goes_to_the_announced_endpoint() {
    every_chunking(|chunking| {
        let (mut harness, stream) = ready(chunking, "2024-11-05");
        let call = harness.call("tools/call", json!({"name": "add"}));
        let other = harness.call("tools/call", json!({"name": "add"}));
        harness.cancel(other);
        harness.event(stream, None, &ask_message(1, "ping", &json!({})));
        harness.notify("notifications/example", &json!({}));
        let endpoint = "https://mcp.example/messages?id=1";
        let posts: Vec<_> = harness
            .exchanges
            .iter()
            .filter(|exchange| exchange.verb == Verb::Post)
            .collect();
        let (first, later) = posts.split_first().expect("posts");
        assert_eq!(first.target, client_http::URL);
        assert_eq!(
            later.len(),
            7,
            "two of the handshake, two calls, a cancellation, an answer, a notification"
        );
        assert!(
            later
                .iter()
                .all(|post| post.target == endpoint && post.body.is_object())
        );
        let post = harness.next_post("tools/call");
        harness.status(post.stream, 202);
        harness.event(stream, None, &result(&post, json!({"content": []})));
        assert!(harness.reply(call).is_ok());
    });
}

/// S-SSE-05: the link sends nothing before it knows the path, and only to the same server.
#[test]
fn s_sse_05_messages_wait_for_the_endpoint_event() {
    every_chunking(|chunking| {
        let (mut harness, stream) = after_fallback(chunking);
        let waiting = harness.call("tools/call", json!({"name": "add"}));
        harness.bytes(stream, b": hello\n\nevent: message\ndata: {}\n\n");
        harness.advance(seconds(1));
        assert_eq!(harness.unseen_count(), 0);
        harness.bytes(stream, b"event: endpoint\ndata: messages\n\n");
        assert_eq!(
            harness.next_post("initialize").target,
            "https://mcp.example/messages"
        );
        assert!(!harness.is_settled(waiting));
        // A second path is ignored.
        harness.bytes(stream, b"event: endpoint\ndata: /elsewhere\n\n");
        assert!(
            harness
                .exchanges
                .iter()
                .all(|exchange| !exchange.target.contains("elsewhere"))
        );
    });
}

#[test]
fn s_sse_05_endpoint_is_resolved_and_must_have_the_same_origin() {
    for (endpoint, target) in [
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
        let (mut harness, stream) = after_fallback(Chunking::Whole);
        harness.bytes(
            stream,
            format!("event: endpoint\ndata: {endpoint}\n\n").as_bytes(),
        );
        let post = harness.find(|exchange| exchange.method() == "initialize");
        let actual = post.map(|post| post.target);
        let is_same = match (&actual, target) {
            (Some(actual), Some(target)) => {
                actual == target || actual.replace(":443", "") == target
            }
            (None, None) => true,
            _ => false,
        };
        assert!(is_same, "{endpoint}: {actual:?}");
        assert!(
            harness
                .exchanges
                .iter()
                .all(|exchange| !exchange.target.contains("evil"))
        );
    }
}

/// S-SSE-06: whatever the response to the POST, the reply comes on the stream.
#[test]
fn s_sse_06_reply_comes_on_the_stream_whatever_the_post_response_is() {
    every_chunking(|chunking| {
        for (status, body) in [
            (202, ""),
            (200, ""),
            (204, ""),
            (200, "Accepted"),
            (202, "{\"no\": 1}"),
        ] {
            let (mut harness, stream) = ready(chunking, "2024-11-05");
            let call = harness.call("tools/call", json!({"name": "add"}));
            let post = harness.next_post("tools/call");
            harness.respond(post.stream, status, &[("content-type", "text/plain")], body);
            assert!(!harness.is_settled(call), "{status} {body}");
            harness.event(stream, None, &result(&post, json!({"content": []})));
            assert!(harness.reply(call).is_ok());
        }
        // The reply may arrive before the response to the POST.
        let (mut harness, stream) = ready(chunking, "2024-11-05");
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.event(stream, None, &result(&post, json!({"content": []})));
        assert!(harness.reply(call).is_ok());
        harness.status(post.stream, 202);
    });
}

/// S-SSE-06: the epoch ends with the stream. S-RES-09: the stream is not resumed. S-LIFE-12: the next epoch begins with a
/// handshake.
#[test]
fn s_sse_06_loss_of_the_stream_ends_the_epoch() {
    for is_orderly in [true, false] {
        let (mut harness, stream) = ready(Chunking::Whole, "2024-11-05");
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.status(post.stream, 202);
        harness.bytes(stream, b"id: 5\ndata:\n\n");
        if is_orderly {
            harness.end(stream);
        } else {
            harness.fail(stream, FaultKind::Reset);
        }
        assert_eq!(harness.failure(call).kind, FailureKind::Lost);
        assert!(harness.has_event(|e| matches!(
            e,
            Event::Closing {
                cause: Cause::Died,
                ..
            }
        )));
        harness.advance(seconds(1));
        let get = harness.next_exchange(Verb::Get);
        assert_eq!(get.target, client_http::URL);
        assert_eq!(get.field("last-event-id"), None);
        harness.begin_stream(get.stream);
        harness.bytes(get.stream, b"event: endpoint\ndata: /messages?id=2\n\n");
        let post = harness.next_post("initialize");
        assert_eq!(post.target, "https://mcp.example/messages?id=2");
        assert_eq!(harness.unseen_count(), 0);
    }
}

/// S-SSE-07: the transport does not determine the version. S-LHTTP-20: it has no version field.
#[test]
fn s_sse_07_any_legacy_version_can_be_agreed_on() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let (mut harness, stream) = ready(Chunking::Whole, version);
        assert_eq!(
            harness.client.session().expect("ready").version.as_str(),
            version
        );
        let first = harness.exchanges_of("initialize")[1];
        assert_eq!(first.body["params"]["protocolVersion"], "2025-11-25");
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.status(post.stream, 202);
        harness.event(stream, None, &complete(&post, json!({"content": []})));
        assert!(harness.reply(call).is_ok());
    }
}

/// S-TIME-01: the link waits only a limited time for the path.
#[test]
fn missing_endpoint_event_ends_the_handshake() {
    let (mut harness, _) = after_fallback(Chunking::Whole);
    harness.advance(seconds(11));
    assert!(harness.has_event(|event| matches!(
        event,
        Event::Closing {
            cause: Cause::HandshakeRefused { .. },
            ..
        }
    )));
}

/// S-SESS-07, S-LIFE-11: there is no session to end; closing the stream is enough.
#[test]
fn s_life_11_shutdown_closes_the_stream_without_a_request() {
    let (mut harness, stream) = ready(Chunking::Whole, "2024-11-05");
    let before = harness.exchanges.len();
    harness.shutdown();
    assert_eq!(harness.client.state(), State::Closed);
    assert!(!harness.is_open(stream));
    assert_eq!(harness.exchanges.len(), before);
}

/// The link does not wait for another endpoint.
#[test]
fn s_sse_05_endpoint_of_another_origin_refuses_the_handshake() {
    let (mut harness, stream) = after_fallback(Chunking::Whole);
    harness.bytes(stream, b"event: endpoint\ndata: https://evil.example/m\n\n");
    let Some(Cause::HandshakeRefused { why }) = harness.client.last_end().map(|end| &end.cause)
    else {
        panic!("the handshake goes on: {:?}", harness.client.last_end());
    };
    assert!(
        why.ends_with("the place for messages is not one of the same server"),
        "{why}"
    );
}

/// A link whose `initialize` is not answered, and that therefore asks for the old transport, too.
fn after_silence() -> (Harness, Exchange, Exchange) {
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    let mut harness = Harness::new(settings);
    harness.connect();
    let post = harness.next_post("initialize");
    harness.advance(seconds(60));
    let get = harness.next_exchange(Verb::Get);
    (harness, post, get)
}

/// The harness fails if an exchange is aborted twice, also at the end of the epoch.
#[test]
fn old_stream_that_failed_is_closed_once_and_not_requested_again() {
    for is_stream in [true, false] {
        let (mut harness, post, get) = after_silence();
        if is_stream {
            harness.begin_stream(get.stream);
            let endpoint = b"event: endpoint\ndata: https://evil.example/m\n\n";
            harness.bytes(get.stream, endpoint);
            assert_eq!(harness.aborted, [get.stream]);
        } else {
            harness.status(get.stream, 404);
        }
        assert_eq!(harness.client.state(), State::Handshaking);
        harness.advance(seconds(30));
        assert_eq!(harness.unseen_count(), 0, "the link asks for it once");
        let reply = result(&post, initialize_result("2025-11-25")).to_string();
        let fields = [
            ("content-type", "application/json"),
            ("mcp-session-id", "s-1"),
        ];
        harness.respond(post.stream, 200, &fields, &reply);
        assert_eq!(harness.client.state(), State::Ready);
        harness.shutdown();
        assert_eq!(harness.open_exchanges(), 1, "the DELETE of the session");
    }
}

/// Nobody waits for the reply at the old place any more.
#[test]
fn unanswered_initialize_is_dropped_when_the_old_transport_names_its_endpoint() {
    let (mut harness, post, get) = after_silence();
    harness.begin_stream(get.stream);
    harness.bytes(get.stream, b"event: endpoint\ndata: /messages\n\n");
    harness.next_post("initialize");
    assert!(harness.is_open(post.stream));
    harness.advance(seconds(2));
    assert_eq!(harness.aborted, [post.stream]);
}

/// The probe has nothing to do with the end of this stream, so the end counts.
#[test]
fn end_of_the_old_stream_in_the_handshake_is_a_failure() {
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.status(probe.stream, 404);
    let post = harness.next_post("initialize");
    harness.status(post.stream, 405);
    let get = harness.next_exchange(Verb::Get);
    harness.begin_stream(get.stream);
    harness.bytes(get.stream, b"event: endpoint\ndata: /messages\n\n");
    harness.next_post("initialize");
    harness.end(get.stream);
    let cause = harness.client.last_end().map(|end| end.cause.clone());
    assert_eq!(cause, Some(Cause::Died));
    assert_eq!(harness.client.failures(), 1);
}

/// A link that has reached this transport from the modern probe on, which ended like this. Also returns the probe, the stream, and the `initialize` that
/// went to the endpoint.
fn after_probe(
    end_probe: impl FnOnce(&mut Harness, StreamId),
) -> (Harness, Exchange, StreamId, Exchange) {
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    end_probe(&mut harness, probe.stream);
    let post = harness.next_post("initialize");
    harness.status(post.stream, 405);
    let get = harness.next_exchange(Verb::Get);
    harness.begin_stream(get.stream);
    harness.bytes(get.stream, b"event: endpoint\ndata: /messages\n\n");
    let post = harness.next_post("initialize");
    harness.status(post.stream, 202);
    (harness, probe, get.stream, post)
}

/// A request that was refused or cut is over, whatever comes on the stream later.
#[test]
fn reply_on_the_stream_to_a_probe_that_failed_is_late() {
    let ends: [fn(&mut Harness, StreamId); 2] = [
        |harness, stream| harness.status(stream, 404),
        |harness, stream| harness.fail(stream, FaultKind::Reset),
    ];
    for end in ends {
        let (mut harness, probe, stream, post) = after_probe(end);
        harness.event(
            stream,
            None,
            &result(&probe, client_http::discover_result()),
        );
        assert_eq!(harness.client.state(), State::Handshaking);
        assert_eq!(harness.client.stats().late_replies, 1);
        harness.event(
            stream,
            None,
            &result(&post, initialize_result("2024-11-05")),
        );
        assert_eq!(harness.client.state(), State::Ready);
    }
}

/// The `initialize` that had no reply is given up when the endpoint is known.
#[test]
fn reply_on_the_stream_to_an_earlier_initialize_is_late() {
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    let mut harness = Harness::new(settings);
    harness.connect();
    let first = harness.next_post("initialize");
    harness.advance(seconds(60));
    let get = harness.next_exchange(Verb::Get);
    harness.begin_stream(get.stream);
    harness.bytes(get.stream, b"event: endpoint\ndata: /messages\n\n");
    let post = harness.next_post("initialize");
    harness.status(post.stream, 202);
    let reply = result(&first, initialize_result("2024-11-05"));
    harness.event(get.stream, None, &reply);
    assert_eq!(harness.client.state(), State::Handshaking);
    assert_eq!(harness.client.stats().late_replies, 1);
    let reply = result(&post, initialize_result("2024-11-05"));
    harness.event(get.stream, None, &reply);
    assert_eq!(harness.client.state(), State::Ready);
}

/// A server over HTTP does not die of a message. Anything in between may end the stream.
#[test]
fn end_of_the_stream_during_the_handshake_counts_as_a_failure() {
    let (mut harness, _, stream, _) = after_probe(|harness, stream| harness.status(stream, 404));
    harness.end(stream);
    let ended = harness.client.last_end().expect("the epoch ended");
    assert_eq!(ended.cause, Cause::Died);
    assert_eq!(harness.client.stats().failures, 1);
}

#[test]
fn end_of_the_epoch_names_the_fault_of_the_stream() {
    let (mut harness, stream) = ready(Chunking::usual(), "2024-11-05");
    harness.fail(stream, FaultKind::Reset);
    let ended = harness.client.last_end().expect("the epoch ended");
    let faults: Vec<FaultKind> = ended.faults.iter().map(|fault| fault.kind()).collect();
    assert_eq!(faults, [FaultKind::Reset]);
}
