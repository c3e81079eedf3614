//! Responses to modern requests over HTTP: JSON or an event stream, the messages on the stream, and the meaning of its
//! end.

use crate::server_http::{
    Harness, HttpRequest, NO_MESSAGES, config, get, modern, payload, seconds,
};
use everlink::protocol::LogLevel;
use everlink::server::{Cancelled, Misuse};
use everlink::{Change, List, RequestId, StreamId};
use serde_json::{Value, json};

const PROGRESS: &str = "notifications/progress";
const LOG: &str = "notifications/message";
const CHANGED: &str = "notifications/tools/list_changed";

/// A call that asks for progress and for log messages.
fn call_with_progress_and_logs(id: u64) -> HttpRequest {
    let meta = json!({"progressToken": id, "io.modelcontextprotocol/logLevel": "debug"});
    modern(id, "tools/call", json!({"name": "slow", "_meta": meta}))
}

fn watch(id: u64) -> HttpRequest {
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    modern(id, "subscriptions/listen", wanted)
}

fn log(harness: &mut Harness, request: Option<RequestId>, what: &str) {
    let data = payload(&json!(what));
    harness
        .with_server(|server, now| server.log(now, request, LogLevel::Info, None, data))
        .expect("logging is offered");
}

#[test]
fn s_http_11_response_is_one_json_object_or_an_event_stream() {
    let mut harness = Harness::new(config());
    let plain = harness.send_and_respond(call_with_progress_and_logs(1), json!({"content": []}));
    assert_eq!(harness.status(plain), 200);
    assert_eq!(harness.json(plain)["id"], 1, "one object");
    let (streamed, request) = harness.send_accepted(call_with_progress_and_logs(2));
    harness.progress(request, 1.0);
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.status(streamed), 200);
    assert_eq!(harness.sse(streamed).len(), 2);
    for stream in [plain, streamed] {
        assert_eq!(harness.result(stream)["content"], json!([]));
    }
    harness.finish();
}

/// S-HTTP-13, S-RPC-26: messages about a request go to its own stream, before its reply.
#[test]
fn s_http_13_stream_carries_only_messages_of_its_request() {
    let mut harness = Harness::new(config());
    let calls: Vec<(StreamId, RequestId)> = (1..4)
        .map(|id| harness.send_accepted(call_with_progress_and_logs(id)))
        .collect();
    for round in 1..4 {
        for (at, (_, request)) in calls.iter().enumerate() {
            harness.progress(*request, f64::from(round));
            log(&mut harness, Some(*request), &format!("log {at}"));
        }
    }
    harness.publish(Change::List(List::Tools));
    for (at, (stream, request)) in calls.iter().enumerate() {
        harness.respond(*request, json!({"content": [at]}));
        let messages = harness.messages(*stream);
        assert_eq!(messages.len(), 7);
        assert_eq!(messages[6]["result"]["content"], json!([at]));
        let progress = harness.messages_with(*stream, PROGRESS);
        assert!(
            progress
                .iter()
                .all(|m| m["params"]["progressToken"] == at + 1)
        );
        let logs = harness.messages_with(*stream, LOG);
        let own = json!(format!("log {at}"));
        assert!(logs.iter().all(|m| m["params"]["data"] == own));
        assert_eq!((progress.len(), logs.len()), (3, 3));
    }
    harness.finish();
}

/// S-HTTP-14, S-RPC-23, S-RPC-25: the server sends no request to a modern client, not even for an ask.
#[test]
fn s_http_14_server_sends_no_request_on_a_modern_stream() {
    let mut harness = Harness::new(config());
    let listening = harness.send(watch(1));
    let mut streams = vec![listening];
    for (method, params) in [
        ("roots/list", Value::Null),
        ("sampling/createMessage", json!({"messages": []})),
        ("elicitation/create", json!({"message": "?"})),
    ] {
        let (stream, request) = harness.send_accepted(call_with_progress_and_logs(2));
        harness.progress(request, 1.0);
        harness.ask(request, method, params);
        streams.push(stream);
    }
    harness.publish(Change::List(List::Tools));
    for stream in streams {
        let messages = harness.messages(stream);
        assert!(messages.len() >= 2);
        for message in messages {
            let is_request = message.get("method").is_some() && message.get("id").is_some();
            assert!(!is_request, "{message}");
        }
    }
    let unbidden = harness.with_server(|server, now| server.ask_unbidden(now, "roots/list", None));
    assert_eq!(unbidden, Err(Misuse::NoLegacyPeer));
    harness.finish();
}

#[test]
fn s_http_15_reply_ends_the_stream() {
    let mut harness = Harness::new(config());
    for is_error in [false, true] {
        let (stream, request) = harness.send_accepted(call_with_progress_and_logs(1));
        harness.progress(request, 1.0);
        assert!(!harness.is_over(stream));
        if is_error {
            harness.fail(request, -32603, "no");
        } else {
            harness.respond(request, json!({"content": []}));
        }
        assert!(harness.is_over(stream) && !harness.exchange(stream).is_aborted());
        let last = harness.messages(stream).pop().expect("a message was sent");
        assert_eq!(last["id"], 1);
    }
    harness.finish();
}

#[test]
fn s_http_16_nothing_follows_an_ask_on_its_stream() {
    let mut harness = Harness::new(config());
    let (stream, request) = harness.send_accepted(call_with_progress_and_logs(1));
    harness.progress(request, 1.0);
    harness.ask(request, "roots/list", Value::Null);
    assert!(
        harness.is_over(stream),
        "an ask ends the stream like a reply"
    );
    let written = harness.text(stream).to_owned();
    harness.progress(request, 2.0);
    log(&mut harness, Some(request), "later");
    harness.ask(request, "roots/list", Value::Null);
    assert_eq!(harness.text(stream), written);
    assert_eq!(harness.result(stream)["resultType"], "input_required");
    harness.finish();
}

#[test]
fn s_http_17_watch_gets_no_progress_or_logs() {
    let mut harness = Harness::new(config());
    let meta = json!({"progressToken": "p", "io.modelcontextprotocol/logLevel": "debug"});
    let wanted = json!({"notifications": {"toolsListChanged": true}, "_meta": meta});
    let listening = harness.send(modern(1, "subscriptions/listen", wanted));
    let (stream, request) = harness.send_accepted(call_with_progress_and_logs(2));
    harness.progress(request, 1.0);
    log(&mut harness, Some(request), "of the request");
    log(&mut harness, None, "of nobody");
    harness.publish(Change::List(List::Tools));
    assert_eq!(harness.messages_with(listening, PROGRESS), NO_MESSAGES);
    assert_eq!(harness.messages_with(listening, LOG), NO_MESSAGES);
    assert_eq!(harness.messages_with(listening, CHANGED).len(), 1);
    assert_eq!(harness.messages_with(stream, PROGRESS).len(), 1);
    assert_eq!(harness.messages_with(stream, LOG).len(), 1, "S-CAP-07");
    assert_eq!(harness.messages_with(stream, CHANGED), NO_MESSAGES);
    harness.finish();
}

#[test]
fn s_http_18_streams_disable_proxy_buffering() {
    let mut harness = Harness::new(config());
    let listening = harness.send(watch(1));
    let (stream, request) = harness.send_accepted(call_with_progress_and_logs(2));
    harness.progress(request, 1.0);
    let session = harness.open_session("2025-11-25");
    let legacy = harness.send(session.get());
    for stream in [listening, stream, legacy] {
        assert_eq!(harness.field(stream, "x-accel-buffering"), Some("no"));
        assert_eq!(
            harness.field(stream, "content-type"),
            Some("text/event-stream")
        );
    }
    harness.finish();
}

/// S-HTTP-19, S-TIME-11: a silent stream carries keepalive comments; the modern era has no `ping`.
#[test]
fn s_http_19_silent_stream_gets_keepalive_comments() {
    let mut harness = Harness::new(config());
    let listening = harness.send(watch(1));
    let before = harness.sse(listening).len();
    harness.advance(seconds(60));
    let events = harness.sse(listening).split_off(before);
    assert_eq!(events.len(), 4);
    assert!(
        events
            .iter()
            .all(|event| event.is_comment && event.data.is_none())
    );
    // A stream with regular messages gets no comments.
    for _ in 0..12 {
        harness.advance(seconds(10));
        harness.publish(Change::List(List::Tools));
    }
    let events = harness.sse(listening).split_off(before + 4);
    assert_eq!(events.len(), 12);
    assert!(events.iter().all(|event| !event.is_comment));
    let ping = harness.send_refused(modern(2, "ping", json!({})));
    assert_eq!(ping, (404, -32601));
    harness.finish();
}

/// S-HTTP-21, S-RES-09: modern events have no id, and a GET does not resume a modern stream.
#[test]
fn s_http_21_a_modern_stream_cannot_be_resumed() {
    let mut harness = Harness::new(config());
    let listening = harness.send(watch(1));
    let (stream, request) =
        harness.send_accepted(call_with_progress_and_logs(2).with("last-event-id", "1-1"));
    harness.progress(request, 1.0);
    harness.publish(Change::List(List::Tools));
    for stream in [listening, stream] {
        for event in harness.sse(stream) {
            assert_eq!((event.id, event.retry), (None, None));
        }
    }
    harness.disconnect(stream);
    let resumed = harness.send(
        get()
            .with("last-event-id", "1-1")
            .with("mcp-protocol-version", "2026-07-28"),
    );
    assert!(harness.status(resumed) >= 400);
    harness.finish();
}

#[test]
fn s_http_23_disconnect_cancels_only_that_request() {
    for is_streamed in [false, true] {
        let mut harness = Harness::new(config());
        let (left_stream, left_request) = harness.send_accepted(call_with_progress_and_logs(1));
        let (kept_stream, kept_request) = harness.send_accepted(call_with_progress_and_logs(1));
        if is_streamed {
            harness.progress(left_request, 1.0);
        }
        harness.disconnect(left_stream);
        assert_eq!(
            harness.cancellations(),
            [(left_request, Cancelled::PeerGone)]
        );
        harness.respond(kept_request, json!({"content": []}));
        assert_eq!(
            harness.result(kept_stream)["content"],
            json!([]),
            "only the request of the lost connection is cancelled"
        );
        harness.finish();
    }
}

/// S-HTTP-23: a client ends its watch by closing the stream.
#[test]
fn s_http_23_disconnect_ends_a_watch() {
    let mut harness = Harness::new(config());
    let (one, other) = (harness.send(watch(1)), harness.send(watch(1)));
    harness.disconnect(one);
    harness.publish(Change::List(List::Tools));
    assert_eq!(harness.messages_with(one, CHANGED), NO_MESSAGES);
    assert_eq!(harness.messages_with(other, CHANGED).len(), 1);
    harness.reset(other);
    harness.publish(Change::List(List::Tools));
    assert_eq!(harness.server.requests(), 0);
    harness.finish();
}

/// S-HTTP-24, S-CANC-04: a cancelled request is over at once, and no further message about it is written.
#[test]
fn s_http_24_nothing_is_written_after_a_cancellation() {
    let mut harness = Harness::new(config());
    let (stream, request) = harness.send_accepted(call_with_progress_and_logs(1));
    harness.progress(request, 1.0);
    let written = harness.text(stream).to_owned();
    harness.disconnect(stream);
    assert_eq!(harness.server.requests(), 0);
    let late = [
        harness.with_server(|server, now| server.respond(now, request, payload(&json!({})))),
        harness.with_server(|server, now| {
            server.progress(now, request, everlink::server::Progress::new(2.0))
        }),
        harness.with_server(|server, now| {
            let data = payload(&json!("x"));
            server.log(now, Some(request), LogLevel::Error, None, data)
        }),
    ];
    assert!(late.iter().all(|done| *done == Err(Misuse::UnknownRequest)));
    harness.advance(seconds(60));
    assert_eq!(harness.text(stream), written);
    harness.finish();
}

#[test]
fn s_inh_04_each_message_is_one_line_of_data() {
    let mut harness = Harness::new(config());
    let (stream, request) = harness.send_accepted(call_with_progress_and_logs(1));
    log(
        &mut harness,
        Some(request),
        "two\nlines\r\nand a separator \u{2028}",
    );
    harness.respond(
        request,
        json!({"content": [{"type": "text", "text": "a\n\nb\rc"}]}),
    );
    let text = harness.text(stream);
    let data = text.lines().filter(|line| line.starts_with("data:"));
    assert_eq!(data.count(), 2);
    assert!(!text.contains('\r'));
    for event in harness.sse(stream) {
        assert!(event.name.is_none_or(|name| name == "message"));
    }
    assert_eq!(harness.result(stream)["content"][0]["text"], "a\n\nb\rc");
    harness.finish();
}

/// The application's payload may have line breaks; the server sends it on one line.
#[test]
fn s_inh_04_payload_with_line_breaks_is_sent_on_one_line() {
    let mut harness = Harness::new(config());
    let (stream, request) = harness.send_accepted(call_with_progress_and_logs(1));
    harness.progress(request, 1.0);
    let lines = "{\n  \"content\": [\r\n  ]\n}".parse().expect("JSON");
    harness
        .with_server(|server, now| server.respond(now, request, lines))
        .expect("the server accepts the reply");
    assert_eq!(harness.sse(stream).len(), 2);
    assert_eq!(harness.result(stream)["content"], json!([]));
    harness.finish();
}
