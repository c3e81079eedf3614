//! Event streams at the client: how they are read, and how broken streams are resumed.

use core::time::Duration;

use crate::client_http::{
    self, Exchange, Harness, LEGACY, VERSIONS, complete, every_chunking, notification, result,
    seconds,
};
use everlink::client::{CallOptions, Cause, Delivery, Event, FailureKind, State};
use everlink::http::Verb;
use everlink::{FaultKind, List};
use serde_json::json;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A call whose response is an event stream.
fn call_with_stream(harness: &mut Harness) -> (everlink::CallId, Exchange) {
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    (call, post)
}

/// S-HTTP-20: comments are valid and carry no message.
#[test]
fn s_http_20_comments_are_ignored() {
    for version in VERSIONS {
        every_chunking(|chunking| {
            let mut harness = Harness::ready(version).chunked(chunking);
            let (call, post) = call_with_stream(&mut harness);
            harness.bytes(post.stream, b":\n\n: keep-alive\r\n\r\n:data: {}\n\n");
            let reply = complete(&post, json!({"content": []}));
            harness.bytes(
                post.stream,
                format!(": a\ndata: {reply}\n: b\n\n").as_bytes(),
            );
            assert!(harness.reply(call).is_ok());
            assert_eq!(harness.client.stats().noise, 0);
        });
    }
}

/// S-INH-01: lines end with LF, CRLF or CR, and a byte order mark at the start is ignored.
#[test]
fn s_inh_01_02_all_line_endings_and_a_byte_order_mark_are_accepted() {
    for end in ["\n", "\r\n", "\r"] {
        every_chunking(|chunking| {
            let mut harness = Harness::modern().chunked(chunking);
            let (call, post) = call_with_stream(&mut harness);
            harness.bytes(post.stream, "\u{feff}".as_bytes());
            let reply = serde_json::to_string_pretty(&complete(
                &post,
                json!({"content": [{"type": "text", "text": "ä"}]}),
            ));
            let mut event = format!("event: message{end}unknown: x{end}");
            for line in reply.expect("JSON").lines() {
                event += &format!("data: {line}{end}");
            }
            event += end;
            harness.bytes(post.stream, event.as_bytes());
            assert_eq!(
                harness.reply(call).expect("a reply")["content"][0]["text"],
                "ä"
            );
        });
    }
}

/// S-INH-02: events with another name are ignored.
#[test]
fn s_inh_02_events_with_another_name_are_ignored() {
    every_chunking(|chunking| {
        let mut harness = Harness::legacy().chunked(chunking);
        let (call, post) = call_with_stream(&mut harness);
        let other = result(&post, json!({"content": ["no"]}));
        harness.bytes(
            post.stream,
            format!("event: ping\ndata: {other}\n\n").as_bytes(),
        );
        harness.bytes(
            post.stream,
            format!("event: endpoint\ndata: {other}\n\n").as_bytes(),
        );
        assert!(!harness.is_settled(call));
        harness.event(post.stream, None, &result(&post, json!({"content": []})));
        assert_eq!(harness.reply(call).expect("a reply")["content"], json!([]));
    });
}

/// S-INH-03: an unfinished event at the end of a stream is dropped.
#[test]
fn s_inh_03_unfinished_event_at_the_end_of_a_stream_is_dropped() {
    let mut harness = Harness::modern();
    let (call, post) = call_with_stream(&mut harness);
    let reply = complete(&post, json!({"content": []}));
    harness.bytes(post.stream, format!("data: {reply}\n").as_bytes());
    harness.end(post.stream);
    assert_eq!(harness.failure(call).kind, FailureKind::Cut);
}

/// S-RPC-02: invalid UTF-8 is no message, and other messages are not affected.
#[test]
fn s_rpc_02_message_with_invalid_utf8_is_dropped() {
    every_chunking(|chunking| {
        for version in VERSIONS {
            let mut harness = Harness::ready(version).chunked(chunking);
            let (call, post) = call_with_stream(&mut harness);
            let reply = complete(&post, json!({"content": [], "a": "?"})).to_string();
            let mut bytes = format!("data: {reply}\n\n").into_bytes();
            let at = bytes
                .iter()
                .position(|byte| *byte == b'?')
                .expect("a place");
            bytes[at] = 0xff;
            harness.bytes(post.stream, &bytes);
            assert!(!harness.is_settled(call));
            harness.event(post.stream, None, &complete(&post, json!({"content": []})));
            assert!(harness.reply(call).is_ok());

            let call = harness.call("tools/call", json!({"name": "add"}));
            let post = harness.next_post("tools/call");
            harness.head(post.stream, 200, &[("content-type", "application/json")]);
            harness.bytes(post.stream, b"{\"a\":\"\xff\"}");
            harness.end(post.stream);
            assert!(matches!(
                harness.failure(call).kind,
                FailureKind::Invalid { .. }
            ));
        }
    });
}

/// S-HTTP-22: the request is sent again only if it is idempotent, under a new id.
#[test]
fn s_http_22_broken_modern_stream_fails_its_call_unless_idempotent() {
    for is_orderly in [true, false] {
        let mut harness = Harness::modern();
        let (call, post) = call_with_stream(&mut harness);
        // S-HTTP-21: an unexpected event id resumes nothing.
        harness.event(
            post.stream,
            Some("7"),
            &notification(
                "notifications/progress",
                &json!({"progressToken": post.progress_token(), "progress": 1}),
            ),
        );
        if is_orderly {
            harness.end(post.stream);
        } else {
            harness.fail(post.stream, FaultKind::Reset);
        }
        let failure = harness.failure(call);
        assert_eq!(
            (failure.kind, failure.delivery),
            (FailureKind::Cut, Delivery::Unknown)
        );
        harness.advance(seconds(20));
        assert_eq!(
            harness.exchanges_of("tools/call").len(),
            1,
            "it may have run"
        );
        assert!(
            harness
                .exchanges
                .iter()
                .all(|exchange| exchange.verb == Verb::Post)
        );
    }
    let mut harness = Harness::modern();
    let params = json!({"name": "add"});
    let call = harness.call_with("tools/call", params, CallOptions::new().idempotent());
    let first = harness.next_post("tools/call");
    harness.begin_stream(first.stream);
    harness.end(first.stream);
    let second = harness.next_post("tools/call");
    assert_ne!(second.body["id"], first.body["id"]);
    harness.reply_with(&second, json!({"content": []}));
    assert!(harness.reply(call).is_ok());
}

/// S-RES-06: the link resumes with the last event id of that stream, in its session.
#[test]
fn s_res_03_07_broken_stream_is_resumed_with_a_get_after_the_retry_delay() {
    for version in LEGACY {
        for is_orderly in [true, false] {
            every_chunking(|chunking| {
                let mut harness = Harness::ready(version).chunked(chunking);
                let (call, post) = call_with_stream(&mut harness);
                harness.bytes(post.stream, b"id: e-1\nretry: 500\ndata:\n\n");
                if is_orderly {
                    harness.end(post.stream);
                } else {
                    harness.fail(post.stream, FaultKind::Reset);
                }
                let cut = harness.now;
                harness.advance(seconds(2));
                let get = harness.next_exchange(Verb::Get);
                // S-RES-07: exactly after the retry delay.
                assert_eq!(get.at.since(cut), millis(500), "{version}");
                assert_eq!(get.target, client_http::URL);
                assert_eq!(get.field("accept"), Some("text/event-stream"));
                assert_eq!(get.field("last-event-id"), Some("e-1"));
                assert_eq!(get.field("mcp-session-id"), Some("s-1"));
                assert_eq!(get.body, json!(null));
                assert_eq!(harness.unseen_count(), 0, "the stream is requested once");
                // S-RES-06: the reply comes on the new stream and counts once.
                harness.begin_stream(get.stream);
                let reply = result(&post, json!({"content": []}));
                harness.event(get.stream, Some("e-2"), &reply);
                harness.event(get.stream, Some("e-2"), &reply);
                assert!(harness.reply(call).is_ok());
            });
        }
    }
}

/// S-RES-06: each stream has its own last event id and retry delay.
#[test]
fn s_res_06_every_stream_is_resumed_after_its_own_last_event() {
    let mut harness = Harness::legacy_awaiting_listen();
    let listen = harness.next_exchange(Verb::Get);
    harness.begin_stream(listen.stream);
    let (first, one) = call_with_stream(&mut harness);
    let (second, two) = call_with_stream(&mut harness);
    harness.bytes(listen.stream, b"id: n-4\nretry: 900\ndata:\n\n");
    harness.bytes(one.stream, b"id: a-1\nretry: 300\ndata:\n\n");
    harness.bytes(two.stream, b"id: b-1\nretry: 600\ndata:\n\n");
    let note = notification(
        "notifications/message",
        &json!({"level": "error", "data": 1}),
    );
    harness.event(one.stream, Some("a-2"), &note);
    // An event without an id keeps the last id.
    harness.event(one.stream, None, &note);
    for stream in [listen.stream, one.stream, two.stream] {
        harness.end(stream);
    }
    let cut = harness.now;
    harness.advance(seconds(1));
    for (cursor, pause) in [("a-2", 300), ("b-1", 600), ("n-4", 900)] {
        let get = harness.next_exchange(Verb::Get);
        assert_eq!(get.field("last-event-id"), Some(cursor));
        assert_eq!(get.at.since(cut), millis(pause));
        harness.begin_stream(get.stream);
        let reply = match cursor {
            "a-2" => result(&one, json!({"content": [1]})),
            "b-1" => result(&two, json!({"content": [2]})),
            _ => continue,
        };
        harness.event(get.stream, None, &reply);
    }
    assert_eq!(
        harness.reply(first).expect("a reply")["content"],
        json!([1])
    );
    assert_eq!(
        harness.reply(second).expect("a reply")["content"],
        json!([2])
    );
}

/// S-LHTTP-11: the delay also counts if it comes late, and again for the next exchange.
#[test]
fn s_lhttp_11_retry_delay_applies_even_if_it_comes_late_and_to_later_resumes() {
    let mut harness = Harness::legacy();
    let (call, post) = call_with_stream(&mut harness);
    harness.bytes(post.stream, b"id: 1\ndata:\n\nretry: 2500\n\n");
    harness.end(post.stream);
    let cut = harness.now;
    harness.advance(millis(2_499));
    assert_eq!(harness.unseen_count(), 0);
    harness.advance(seconds(1));
    let get = harness.next_exchange(Verb::Get);
    assert_eq!(get.at.since(cut), millis(2_500));
    harness.begin_stream(get.stream);
    // The delay stays valid for the same stream.
    harness.bytes(get.stream, b"id: 2\ndata:\n\n");
    harness.end(get.stream);
    let cut = harness.now;
    harness.advance(seconds(5));
    let get = harness.next_exchange(Verb::Get);
    assert_eq!(get.field("last-event-id"), Some("2"));
    assert_eq!(get.at.since(cut), millis(2_500));
    harness.begin_stream(get.stream);
    harness.event(get.stream, None, &result(&post, json!({"content": []})));
    assert!(harness.reply(call).is_ok());
}

/// S-RES-06: a stream without event ids cannot be resumed.
#[test]
fn s_res_06_a_stream_without_ids_is_not_resumed() {
    for version in LEGACY {
        let mut harness = Harness::ready(version);
        let (call, post) = call_with_stream(&mut harness);
        harness.event(
            post.stream,
            None,
            &notification("notifications/example", &json!({})),
        );
        harness.end(post.stream);
        assert_eq!(harness.failure(call).kind, FailureKind::Cut);
        harness.advance(seconds(10));
        assert!(
            harness
                .find(|exchange| exchange.verb == Verb::Get)
                .is_none()
        );
    }
}

/// S-INH-02: an id with a NUL is ignored.
#[test]
fn s_inh_02_event_id_with_a_nul_is_ignored() {
    let mut harness = Harness::legacy();
    let (call, post) = call_with_stream(&mut harness);
    harness.bytes(post.stream, b"id: 1\ndata:\n\nid: x\0\ndata:\n\n");
    harness.end(post.stream);
    harness.advance(seconds(2));
    assert_eq!(
        harness.next_exchange(Verb::Get).field("last-event-id"),
        Some("1")
    );
    assert!(!harness.is_settled(call));
}

/// S-INH-02: an empty id resets the last event id.
#[test]
fn s_inh_02_empty_event_id_prevents_resumption() {
    let mut harness = Harness::legacy();
    let (call, post) = call_with_stream(&mut harness);
    harness.bytes(post.stream, b"id: 1\ndata:\n\nid\ndata:\n\n");
    harness.end(post.stream);
    assert_eq!(harness.failure(call).kind, FailureKind::Cut);
}

#[test]
fn s_res_08_resume_refused_with_404_or_405_fails_the_call_as_cut() {
    for status in [404, 405] {
        let mut harness = Harness::legacy();
        let (call, post) = call_with_stream(&mut harness);
        harness.bytes(post.stream, b"id: 1\ndata:\n\n");
        harness.end(post.stream);
        harness.advance(seconds(2));
        let get = harness.next_exchange(Verb::Get);
        harness.status(get.stream, status);
        let failure = harness.failure(call);
        assert_eq!(
            (failure.kind, failure.delivery),
            (FailureKind::Cut, Delivery::Unknown)
        );
        assert_eq!(harness.exchanges_of("tools/call").len(), 1);
    }
}

/// S-RES-08: a 404 in a session may mean that the session is lost.
#[test]
fn s_res_08_resume_refused_with_404_may_reveal_a_lost_session() {
    let mut harness = Harness::legacy();
    let (call, post) = call_with_stream(&mut harness);
    harness.bytes(post.stream, b"id: 1\ndata:\n\n");
    harness.end(post.stream);
    harness.advance(seconds(2));
    let get = harness.next_exchange(Verb::Get);
    harness.status(get.stream, 404);
    if let Some(ping) = harness.find(|exchange| exchange.method() == "ping") {
        harness.status(ping.stream, 404);
    }
    assert!(harness.has_event(|e| matches!(
        e,
        Event::Closing {
            cause: Cause::SessionLost,
            ..
        }
    )));
    assert_eq!(harness.failure(call).delivery, Delivery::Unknown);
    harness.advance(seconds(1));
    assert_eq!(
        harness.next_post("initialize").field("mcp-session-id"),
        None
    );
}

/// S-RES-06: an event that a resumed stream repeats is delivered once.
#[test]
fn s_res_06_repeated_reply_settles_no_other_call() {
    let mut harness = Harness::legacy();
    let (call, post) = call_with_stream(&mut harness);
    harness.bytes(post.stream, b"id: 1\ndata:\n\n");
    harness.end(post.stream);
    harness.advance(seconds(2));
    let get = harness.next_exchange(Verb::Get);
    harness.begin_stream(get.stream);
    harness.event(
        get.stream,
        Some("2"),
        &result(&post, json!({"content": []})),
    );
    assert!(harness.reply(call).is_ok());
    let (other, next) = call_with_stream(&mut harness);
    harness.event(
        next.stream,
        Some("2"),
        &result(&post, json!({"content": ["old"]})),
    );
    assert!(!harness.is_settled(other));
    assert_eq!(harness.client.state(), State::Ready);
}

/// A legacy configuration without keepalive, in which a stream that brings nothing is requested again only once.
fn impatient_config() -> everlink::Config {
    let mut config = client_http::config();
    config.dialect = everlink::Dialect::Legacy;
    config.policy.keepalive = None;
    if let Some(http) = config.binding.http_mut() {
        http.resumes = 1;
    }
    config
}

/// An event id shows that the stream can be resumed, however many of them there are.
#[test]
fn listen_stream_with_several_event_ids_is_resumable_each_time() {
    for ids in [1, 2, 3] {
        let mut harness = Harness::new(impatient_config());
        harness.connect();
        harness.agree_legacy_awaiting_listen("2025-11-25", Some("s-1"));
        for _ in 0..4 {
            let listen = harness.next_exchange(Verb::Get);
            harness.begin_stream(listen.stream);
            for id in 0..ids {
                let event = format!("id: {id}\ndata:\n\n");
                harness.bytes(listen.stream, event.as_bytes());
            }
            harness.end(listen.stream);
            harness.advance(seconds(10));
        }
        let listen = harness.next_exchange(Verb::Get);
        let last = (ids - 1).to_string();
        assert_eq!(listen.field("last-event-id"), Some(&*last));
    }
}

/// A stream that stayed open for 60 s counts as useful, even without an event.
#[test]
fn listen_stream_that_ended_after_60_s_is_requested_again_each_time() {
    for (open_for, requests) in [(seconds(60), 6), (seconds(59), 2)] {
        let mut harness = Harness::new(impatient_config());
        harness.connect();
        harness.agree_legacy_awaiting_listen("2025-11-25", Some("s-1"));
        for _ in 0..5 {
            if let Some(listen) = harness.find(|exchange| exchange.verb == Verb::Get) {
                harness.begin_stream(listen.stream);
                harness.advance(open_for.saturating_sub(harness.now.since(listen.at)));
                harness.end(listen.stream);
                harness.advance(seconds(2));
            }
        }
        assert_eq!(harness.count(|it| it.verb == Verb::Get), requests);
    }
}

/// The link gives up a stream that ends at the same event again and again, unless it was open for 60 s each time.
#[test]
fn request_stream_that_ended_early_after_60_s_is_not_stuck() {
    for (open_for, is_stuck) in [(seconds(60), false), (seconds(59), true)] {
        let mut config = impatient_config();
        if let Some(http) = config.binding.http_mut() {
            http.resumes = 100;
        }
        let mut harness = Harness::legacy_with(config, "2025-11-25");
        let no_limits = CallOptions::new()
            .with_idle(everlink::Limit::Never)
            .with_total(everlink::Limit::Never);
        let call = harness.call_with("tools/call", json!({"name": "add"}), no_limits);
        let mut exchange = harness.next_post("tools/call");
        for _ in 0..8 {
            harness.begin_stream(exchange.stream);
            harness.bytes(exchange.stream, b"id: 1\ndata:\n\n");
            harness.advance(open_for.saturating_sub(harness.now.since(exchange.at)));
            harness.end(exchange.stream);
            if harness.is_settled(call) {
                break;
            }
            harness.advance(seconds(40).min(open_for));
            exchange = harness.next_exchange(Verb::Get);
        }
        assert_eq!(harness.is_settled(call), is_stuck, "{open_for:?}");
    }
}

/// Changes are missed while there is no listen stream, so a list that was read meanwhile is not kept.
#[test]
fn list_read_while_the_listen_stream_is_gone_is_read_again() {
    for was_open in [false, true] {
        let mut harness = Harness::legacy_awaiting_listen();
        let listen = harness.next_exchange(Verb::Get);
        if was_open {
            harness.begin_stream(listen.stream);
            harness.end(listen.stream);
        } else {
            harness.status(listen.stream, 503);
        }
        // Without the stream, each list is read anew.
        for _ in 0..2 {
            read_tools(&mut harness);
        }
        harness.advance(seconds(5));
        let listen = harness.next_exchange(Verb::Get);
        harness.begin_stream(listen.stream);
        read_tools(&mut harness);
        let kept = harness.list(List::Tools);
        assert!(harness.is_settled(kept), "changes are heard again");
    }
}

/// Reads the list of tools, which must come from the server.
#[track_caller]
fn read_tools(harness: &mut Harness) {
    let list = harness.list(List::Tools);
    assert!(!harness.is_settled(list));
    let post = harness.next_post("tools/list");
    harness.reply_with(&post, json!({"tools": []}));
    assert!(harness.is_settled(list));
}
