//! Responses to modern requests over HTTP: JSON or an event stream, the messages on the stream, and the meaning of its
//! end.

use crate::server_http::{Ask, NOTHING, Site, config, get, modern, payload, seconds};
use everlink::protocol::LogLevel;
use everlink::server::{Cancelled, Misuse};
use everlink::{Change, List, RequestId, StreamId};
use serde_json::{Value, json};

const PROGRESS: &str = "notifications/progress";
const LOG: &str = "notifications/message";
const CHANGED: &str = "notifications/tools/list_changed";

/// A call that asks for progress and for log messages.
fn curious(id: u64) -> Ask {
    let meta = json!({"progressToken": id, "io.modelcontextprotocol/logLevel": "debug"});
    modern(id, "tools/call", json!({"name": "slow", "_meta": meta}))
}

fn watch(id: u64) -> Ask {
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    modern(id, "subscriptions/listen", wanted)
}

fn log(site: &mut Site, request: Option<RequestId>, what: &str) {
    let data = payload(&json!(what));
    site.verb(|server, now| server.log(now, request, LogLevel::Info, None, data))
        .expect("logs are offered");
}

#[test]
fn s_http_11_an_answer_is_one_object_or_a_stream() {
    let mut site = Site::new(config());
    let plain = site.served(curious(1), json!({"content": []}));
    assert_eq!(site.status(plain), 200);
    assert_eq!(site.json(plain)["id"], 1, "one object, and nothing else");
    let (streamed, request) = site.taken(curious(2));
    site.progress(request, 1.0);
    site.respond(request, json!({"content": []}));
    assert_eq!(site.status(streamed), 200);
    assert_eq!(site.sse(streamed).len(), 2);
    for stream in [plain, streamed] {
        assert_eq!(site.result(stream)["content"], json!([]));
    }
    site.finish();
}

/// S-HTTP-13, S-RPC-26: messages about a request go to its own stream, before its reply.
#[test]
fn s_http_13_a_stream_is_about_its_request_alone() {
    let mut site = Site::new(config());
    let asked: Vec<(StreamId, RequestId)> = (1..4).map(|id| site.taken(curious(id))).collect();
    for round in 1..4 {
        for (at, (_, request)) in asked.iter().enumerate() {
            site.progress(*request, f64::from(round));
            log(&mut site, Some(*request), &format!("log {at}"));
        }
    }
    site.publish(Change::List(List::Tools));
    for (at, (stream, request)) in asked.iter().enumerate() {
        site.respond(*request, json!({"content": [at]}));
        let heard = site.messages(*stream);
        assert_eq!(heard.len(), 7);
        assert_eq!(heard[6]["result"]["content"], json!([at]));
        let progress = site.said(*stream, PROGRESS);
        assert!(
            progress
                .iter()
                .all(|m| m["params"]["progressToken"] == at + 1)
        );
        let logs = site.said(*stream, LOG);
        let own = json!(format!("log {at}"));
        assert!(logs.iter().all(|m| m["params"]["data"] == own));
        assert_eq!((progress.len(), logs.len()), (3, 3));
    }
    site.finish();
}

/// S-HTTP-14, S-RPC-23, S-RPC-25: the server sends no request to a modern client, not even for an ask.
#[test]
fn s_http_14_there_is_no_request_on_a_stream() {
    let mut site = Site::new(config());
    let listening = site.send(watch(1));
    let mut streams = vec![listening];
    for (method, params) in [
        ("roots/list", Value::Null),
        ("sampling/createMessage", json!({"messages": []})),
        ("elicitation/create", json!({"message": "?"})),
    ] {
        let (stream, request) = site.taken(curious(2));
        site.progress(request, 1.0);
        site.ask(request, method, params);
        streams.push(stream);
    }
    site.publish(Change::List(List::Tools));
    for stream in streams {
        let messages = site.messages(stream);
        assert!(messages.len() >= 2);
        for message in messages {
            let is_request = message.get("method").is_some() && message.get("id").is_some();
            assert!(!is_request, "{message}");
        }
    }
    let unbidden = site.verb(|server, now| server.ask_unbidden(now, "roots/list", None));
    assert_eq!(unbidden, Err(Misuse::NoLegacyPeer));
    site.finish();
}

#[test]
fn s_http_15_the_answer_ends_the_stream() {
    let mut site = Site::new(config());
    for is_error in [false, true] {
        let (stream, request) = site.taken(curious(1));
        site.progress(request, 1.0);
        assert!(!site.is_over(stream));
        if is_error {
            site.fail(request, -32603, "no");
        } else {
            site.respond(request, json!({"content": []}));
        }
        assert!(site.is_over(stream) && !site.exchange(stream).is_aborted());
        let last = site.messages(stream).pop().expect("something was said");
        assert_eq!(last["id"], 1);
    }
    site.finish();
}

#[test]
fn s_http_16_nothing_follows_a_question() {
    let mut site = Site::new(config());
    let (stream, request) = site.taken(curious(1));
    site.progress(request, 1.0);
    site.ask(request, "roots/list", Value::Null);
    assert!(site.is_over(stream), "it is an answer like others");
    let said = site.text(stream).to_owned();
    site.progress(request, 2.0);
    log(&mut site, Some(request), "later");
    site.ask(request, "roots/list", Value::Null);
    assert_eq!(site.text(stream), said);
    assert_eq!(site.result(stream)["resultType"], "input_required");
    site.finish();
}

#[test]
fn s_http_17_progress_and_logs_are_not_for_watches() {
    let mut site = Site::new(config());
    let meta = json!({"progressToken": "p", "io.modelcontextprotocol/logLevel": "debug"});
    let wanted = json!({"notifications": {"toolsListChanged": true}, "_meta": meta});
    let listening = site.send(modern(1, "subscriptions/listen", wanted));
    let (stream, request) = site.taken(curious(2));
    site.progress(request, 1.0);
    log(&mut site, Some(request), "of the request");
    log(&mut site, None, "of nobody");
    site.publish(Change::List(List::Tools));
    assert_eq!(site.said(listening, PROGRESS), NOTHING);
    assert_eq!(site.said(listening, LOG), NOTHING);
    assert_eq!(site.said(listening, CHANGED).len(), 1);
    assert_eq!(site.said(stream, PROGRESS).len(), 1);
    assert_eq!(site.said(stream, LOG).len(), 1, "S-CAP-07");
    assert_eq!(site.said(stream, CHANGED), NOTHING);
    site.finish();
}

#[test]
fn s_http_18_nobody_in_between_holds_back_a_stream() {
    let mut site = Site::new(config());
    let listening = site.send(watch(1));
    let (stream, request) = site.taken(curious(2));
    site.progress(request, 1.0);
    let session = site.session("2025-11-25");
    let legacy = site.send(session.get());
    for stream in [listening, stream, legacy] {
        assert_eq!(site.field(stream, "x-accel-buffering"), Some("no"));
        assert_eq!(
            site.field(stream, "content-type"),
            Some("text/event-stream")
        );
    }
    site.finish();
}

/// S-HTTP-19, S-TIME-11: a silent stream carries keepalive comments; the modern era has no `ping`.
#[test]
fn s_http_19_a_silent_stream_shows_that_it_is_alive() {
    let mut site = Site::new(config());
    let listening = site.send(watch(1));
    let before = site.sse(listening).len();
    site.pass(seconds(60));
    let events = site.sse(listening).split_off(before);
    assert_eq!(events.len(), 4);
    assert!(
        events
            .iter()
            .all(|event| event.is_comment && event.data.is_none())
    );
    // A stream with regular messages gets no comments.
    for _ in 0..12 {
        site.pass(seconds(10));
        site.publish(Change::List(List::Tools));
    }
    let events = site.sse(listening).split_off(before + 4);
    assert_eq!(events.len(), 12);
    assert!(events.iter().all(|event| !event.is_comment));
    let ping = site.refused(modern(2, "ping", json!({})));
    assert_eq!(ping, (404, -32601));
    site.finish();
}

/// S-HTTP-21, S-RES-09: modern events have no id, and a GET does not resume a modern stream.
#[test]
fn s_http_21_a_modern_stream_cannot_be_resumed() {
    let mut site = Site::new(config());
    let listening = site.send(watch(1));
    let (stream, request) = site.taken(curious(2).with("last-event-id", "1-1"));
    site.progress(request, 1.0);
    site.publish(Change::List(List::Tools));
    for stream in [listening, stream] {
        for event in site.sse(stream) {
            assert_eq!((event.id, event.retry), (None, None));
        }
    }
    site.hangs_up(stream);
    let resumed = site.send(
        get()
            .with("last-event-id", "1-1")
            .with("mcp-protocol-version", "2026-07-28"),
    );
    assert!(site.status(resumed) >= 400);
    site.finish();
}

#[test]
fn s_http_23_whoever_leaves_takes_back_what_it_asked() {
    for is_streamed in [false, true] {
        let mut site = Site::new(config());
        let (leaving, left) = site.taken(curious(1));
        let (staying, stayed) = site.taken(curious(1));
        if is_streamed {
            site.progress(left, 1.0);
        }
        site.hangs_up(leaving);
        assert_eq!(site.cancellations(), [(left, Cancelled::PeerGone)]);
        site.respond(stayed, json!({"content": []}));
        assert_eq!(
            site.result(staying)["content"],
            json!([]),
            "that request alone"
        );
        site.finish();
    }
}

/// S-HTTP-23: a client ends its watch by closing the stream.
#[test]
fn s_http_23_whoever_leaves_a_watch_ends_it() {
    let mut site = Site::new(config());
    let (one, other) = (site.send(watch(1)), site.send(watch(1)));
    site.hangs_up(one);
    site.publish(Change::List(List::Tools));
    assert_eq!(site.said(one, CHANGED), NOTHING);
    assert_eq!(site.said(other, CHANGED).len(), 1);
    site.breaks(other);
    site.publish(Change::List(List::Tools));
    assert_eq!(site.server.requests(), 0);
    site.finish();
}

/// S-HTTP-24, S-CANC-04: a cancelled request is over at once, and no further message about it is written.
#[test]
fn s_http_24_nothing_is_said_of_what_was_taken_back() {
    let mut site = Site::new(config());
    let (stream, request) = site.taken(curious(1));
    site.progress(request, 1.0);
    let said = site.text(stream).to_owned();
    site.hangs_up(stream);
    assert_eq!(site.server.requests(), 0);
    let late = [
        site.verb(|server, now| server.respond(now, request, payload(&json!({})))),
        site.verb(|server, now| {
            server.progress(now, request, everlink::server::Progress::new(2.0))
        }),
        site.verb(|server, now| {
            let data = payload(&json!("x"));
            server.log(now, Some(request), LogLevel::Error, None, data)
        }),
    ];
    assert!(late.iter().all(|done| *done == Err(Misuse::UnknownRequest)));
    site.pass(seconds(60));
    assert_eq!(site.text(stream), said);
    site.finish();
}

#[test]
fn s_inh_04_each_message_is_one_line_of_data() {
    let mut site = Site::new(config());
    let (stream, request) = site.taken(curious(1));
    log(
        &mut site,
        Some(request),
        "two\nlines\r\nand a separator \u{2028}",
    );
    site.respond(
        request,
        json!({"content": [{"type": "text", "text": "a\n\nb\rc"}]}),
    );
    let text = site.text(stream);
    let data = text.lines().filter(|line| line.starts_with("data:"));
    assert_eq!(data.count(), 2);
    assert!(!text.contains('\r'));
    for event in site.sse(stream) {
        assert!(event.name.is_none_or(|name| name == "message"));
    }
    assert_eq!(site.result(stream)["content"][0]["text"], "a\n\nb\rc");
    site.finish();
}

/// The application's payload may have line breaks; the server sends it on one line.
#[test]
fn s_inh_04_what_the_application_writes_in_lines_is_one_line() {
    let mut site = Site::new(config());
    let (stream, request) = site.taken(curious(1));
    site.progress(request, 1.0);
    let lines = "{\n  \"content\": [\r\n  ]\n}".parse().expect("JSON");
    site.verb(|server, now| server.respond(now, request, lines))
        .expect("an answer");
    assert_eq!(site.sse(stream).len(), 2);
    assert_eq!(site.result(stream)["content"], json!([]));
    site.finish();
}
