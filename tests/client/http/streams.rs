//! Event streams at the client: how they are read, and how broken streams are resumed.

use core::time::Duration;

use crate::client_http::{
    self, Begun, LEGACY, VERSIONS, Web, complete, every_chunking, notification, result, seconds,
};
use everlink::FaultKind;
use everlink::client::{CallOptions, Cause, Delivery, Event, FailureKind, State};
use everlink::http::Verb;
use serde_json::json;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A call whose response is an event stream.
fn streaming(web: &mut Web) -> (everlink::CallId, Begun) {
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.stream(post.stream);
    (call, post)
}

/// S-HTTP-20: comments are valid and carry no message.
#[test]
fn s_http_20_comments_are_passed_over() {
    for version in VERSIONS {
        every_chunking(|chunking| {
            let mut web = Web::speaking(version).chunked(chunking);
            let (call, post) = streaming(&mut web);
            web.bytes(post.stream, b":\n\n: keep-alive\r\n\r\n:data: {}\n\n");
            let reply = complete(&post, json!({"content": []}));
            web.bytes(
                post.stream,
                format!(": a\ndata: {reply}\n: b\n\n").as_bytes(),
            );
            assert!(web.reply(call).is_ok());
            assert_eq!(web.client.stats().noise, 0);
        });
    }
}

/// S-INH-01: lines end with LF, CRLF or CR, and a byte order mark at the start is ignored.
#[test]
fn s_inh_01_02_the_lines_and_fields_of_a_stream_are_read_as_the_standard_has_it() {
    for end in ["\n", "\r\n", "\r"] {
        every_chunking(|chunking| {
            let mut web = Web::modern().chunked(chunking);
            let (call, post) = streaming(&mut web);
            web.bytes(post.stream, "\u{feff}".as_bytes());
            let reply = serde_json::to_string_pretty(&complete(
                &post,
                json!({"content": [{"type": "text", "text": "ä"}]}),
            ));
            let mut event = format!("event: message{end}unknown: x{end}");
            for line in reply.expect("JSON").lines() {
                event += &format!("data: {line}{end}");
            }
            event += end;
            web.bytes(post.stream, event.as_bytes());
            assert_eq!(web.reply(call).expect("a reply")["content"][0]["text"], "ä");
        });
    }
}

/// S-INH-02: events with another name are ignored.
#[test]
fn s_inh_02_only_messages_are_messages() {
    every_chunking(|chunking| {
        let mut web = Web::legacy().chunked(chunking);
        let (call, post) = streaming(&mut web);
        let other = result(&post, json!({"content": ["no"]}));
        web.bytes(
            post.stream,
            format!("event: ping\ndata: {other}\n\n").as_bytes(),
        );
        web.bytes(
            post.stream,
            format!("event: endpoint\ndata: {other}\n\n").as_bytes(),
        );
        assert!(!web.is_settled(call));
        web.event(post.stream, None, &result(&post, json!({"content": []})));
        assert_eq!(web.reply(call).expect("a reply")["content"], json!([]));
    });
}

/// S-INH-03: an unfinished event at the end of a stream is dropped.
#[test]
fn s_inh_03_an_event_that_is_not_whole_when_the_stream_ends_is_none() {
    let mut web = Web::modern();
    let (call, post) = streaming(&mut web);
    let reply = complete(&post, json!({"content": []}));
    web.bytes(post.stream, format!("data: {reply}\n").as_bytes());
    web.end(post.stream);
    assert_eq!(web.failure(call).kind, FailureKind::Cut);
}

/// S-RPC-02: invalid UTF-8 is no message, and other messages are not affected.
#[test]
fn s_rpc_02_what_is_not_utf8_is_no_message() {
    every_chunking(|chunking| {
        for version in VERSIONS {
            let mut web = Web::speaking(version).chunked(chunking);
            let (call, post) = streaming(&mut web);
            let reply = complete(&post, json!({"content": [], "a": "?"})).to_string();
            let mut bytes = format!("data: {reply}\n\n").into_bytes();
            let at = bytes
                .iter()
                .position(|byte| *byte == b'?')
                .expect("a place");
            bytes[at] = 0xff;
            web.bytes(post.stream, &bytes);
            assert!(!web.is_settled(call));
            web.event(post.stream, None, &complete(&post, json!({"content": []})));
            assert!(web.reply(call).is_ok());

            let call = web.call("tools/call", json!({"name": "add"}));
            let post = web.posted("tools/call");
            web.head(post.stream, 200, &[("content-type", "application/json")]);
            web.bytes(post.stream, b"{\"a\":\"\xff\"}");
            web.end(post.stream);
            assert!(matches!(
                web.failure(call).kind,
                FailureKind::Invalid { .. }
            ));
        }
    });
}

/// S-HTTP-22: the request is sent again only if it is idempotent, under a new id.
#[test]
fn s_http_22_a_modern_stream_that_breaks_off_loses_its_request() {
    for is_orderly in [true, false] {
        let mut web = Web::modern();
        let (call, post) = streaming(&mut web);
        // S-HTTP-21: an unexpected event id resumes nothing.
        web.event(
            post.stream,
            Some("7"),
            &notification(
                "notifications/progress",
                &json!({"progressToken": post.token(), "progress": 1}),
            ),
        );
        if is_orderly {
            web.end(post.stream);
        } else {
            web.fail(post.stream, FaultKind::Reset);
        }
        let failure = web.failure(call);
        assert_eq!(
            (failure.kind, failure.delivery),
            (FailureKind::Cut, Delivery::Unknown)
        );
        web.pass(seconds(20));
        assert_eq!(web.carrying("tools/call").len(), 1, "it may have run");
        assert!(web.all.iter().all(|begun| begun.verb == Verb::Post));
    }
    let mut web = Web::modern();
    let params = json!({"name": "add"});
    let call = web.call_with("tools/call", params, CallOptions::new().idempotent());
    let first = web.posted("tools/call");
    web.stream(first.stream);
    web.end(first.stream);
    let second = web.posted("tools/call");
    assert_ne!(second.body["id"], first.body["id"]);
    web.reply_with(&second, json!({"content": []}));
    assert!(web.reply(call).is_ok());
}

/// S-RES-06: the link resumes with the last event id of that stream, in its session.
#[test]
fn s_res_03_07_a_stream_that_breaks_off_is_resumed_with_a_get() {
    for version in LEGACY {
        for is_orderly in [true, false] {
            every_chunking(|chunking| {
                let mut web = Web::speaking(version).chunked(chunking);
                let (call, post) = streaming(&mut web);
                web.bytes(post.stream, b"id: e-1\nretry: 500\ndata:\n\n");
                if is_orderly {
                    web.end(post.stream);
                } else {
                    web.fail(post.stream, FaultKind::Reset);
                }
                let cut = web.now;
                web.pass(seconds(2));
                let get = web.begun(Verb::Get);
                // S-RES-07: exactly after the retry delay.
                assert_eq!(get.at.since(cut), millis(500), "{version}");
                assert_eq!(get.target, client_http::URL);
                assert_eq!(get.field("accept"), Some("text/event-stream"));
                assert_eq!(get.field("last-event-id"), Some("e-1"));
                assert_eq!(get.field("mcp-session-id"), Some("s-1"));
                assert_eq!(get.body, json!(null));
                assert_eq!(web.unseen(), 0, "it is asked for once");
                // S-RES-06: the reply comes on the new stream and counts once.
                web.stream(get.stream);
                let reply = result(&post, json!({"content": []}));
                web.event(get.stream, Some("e-2"), &reply);
                web.event(get.stream, Some("e-2"), &reply);
                assert!(web.reply(call).is_ok());
            });
        }
    }
}

/// S-RES-06: each stream has its own last event id and retry delay.
#[test]
fn s_res_06_every_stream_is_resumed_after_its_own_last_event() {
    let mut web = Web::legacy_with_news();
    let listen = web.begun(Verb::Get);
    web.stream(listen.stream);
    let (first, one) = streaming(&mut web);
    let (second, two) = streaming(&mut web);
    web.bytes(listen.stream, b"id: n-4\nretry: 900\ndata:\n\n");
    web.bytes(one.stream, b"id: a-1\nretry: 300\ndata:\n\n");
    web.bytes(two.stream, b"id: b-1\nretry: 600\ndata:\n\n");
    let note = notification(
        "notifications/message",
        &json!({"level": "error", "data": 1}),
    );
    web.event(one.stream, Some("a-2"), &note);
    // An event without an id keeps the last id.
    web.event(one.stream, None, &note);
    for stream in [listen.stream, one.stream, two.stream] {
        web.end(stream);
    }
    let cut = web.now;
    web.pass(seconds(1));
    for (cursor, pause) in [("a-2", 300), ("b-1", 600), ("n-4", 900)] {
        let get = web.begun(Verb::Get);
        assert_eq!(get.field("last-event-id"), Some(cursor));
        assert_eq!(get.at.since(cut), millis(pause));
        web.stream(get.stream);
        let reply = match cursor {
            "a-2" => result(&one, json!({"content": [1]})),
            "b-1" => result(&two, json!({"content": [2]})),
            _ => continue,
        };
        web.event(get.stream, None, &reply);
    }
    assert_eq!(web.reply(first).expect("a reply")["content"], json!([1]));
    assert_eq!(web.reply(second).expect("a reply")["content"], json!([2]));
}

/// S-LHTTP-11: the delay also counts if it comes late, and again for the next exchange.
#[test]
fn s_lhttp_11_the_pause_that_the_server_wants_is_kept() {
    let mut web = Web::legacy();
    let (call, post) = streaming(&mut web);
    web.bytes(post.stream, b"id: 1\ndata:\n\nretry: 2500\n\n");
    web.end(post.stream);
    let cut = web.now;
    web.pass(millis(2_499));
    assert_eq!(web.unseen(), 0);
    web.pass(seconds(1));
    let get = web.begun(Verb::Get);
    assert_eq!(get.at.since(cut), millis(2_500));
    web.stream(get.stream);
    // The delay stays valid for the same stream.
    web.bytes(get.stream, b"id: 2\ndata:\n\n");
    web.end(get.stream);
    let cut = web.now;
    web.pass(seconds(5));
    let get = web.begun(Verb::Get);
    assert_eq!(get.field("last-event-id"), Some("2"));
    assert_eq!(get.at.since(cut), millis(2_500));
    web.stream(get.stream);
    web.event(get.stream, None, &result(&post, json!({"content": []})));
    assert!(web.reply(call).is_ok());
}

/// S-RES-06: a stream without event ids cannot be resumed.
#[test]
fn s_res_06_a_stream_without_ids_is_not_resumed() {
    for version in LEGACY {
        let mut web = Web::speaking(version);
        let (call, post) = streaming(&mut web);
        web.event(
            post.stream,
            None,
            &notification("notifications/example", &json!({})),
        );
        web.end(post.stream);
        assert_eq!(web.failure(call).kind, FailureKind::Cut);
        web.pass(seconds(10));
        assert!(web.find(|begun| begun.verb == Verb::Get).is_none());
    }
}

/// S-INH-02: an id with a NUL is ignored.
#[test]
fn s_inh_02_what_is_no_id_takes_the_cursor_nowhere() {
    let mut web = Web::legacy();
    let (call, post) = streaming(&mut web);
    web.bytes(post.stream, b"id: 1\ndata:\n\nid: x\0\ndata:\n\n");
    web.end(post.stream);
    web.pass(seconds(2));
    assert_eq!(web.begun(Verb::Get).field("last-event-id"), Some("1"));
    assert!(!web.is_settled(call));
}

/// S-INH-02: an empty id resets the last event id.
#[test]
fn s_inh_02_an_empty_id_is_the_end_of_resumption() {
    let mut web = Web::legacy();
    let (call, post) = streaming(&mut web);
    web.bytes(post.stream, b"id: 1\ndata:\n\nid\ndata:\n\n");
    web.end(post.stream);
    assert_eq!(web.failure(call).kind, FailureKind::Cut);
}

#[test]
fn s_res_08_what_cannot_be_resumed_is_lost() {
    for status in [404, 405] {
        let mut web = Web::legacy();
        let (call, post) = streaming(&mut web);
        web.bytes(post.stream, b"id: 1\ndata:\n\n");
        web.end(post.stream);
        web.pass(seconds(2));
        let get = web.begun(Verb::Get);
        web.status(get.stream, status);
        let failure = web.failure(call);
        assert_eq!(
            (failure.kind, failure.delivery),
            (FailureKind::Cut, Delivery::Unknown)
        );
        assert_eq!(web.carrying("tools/call").len(), 1);
    }
}

/// S-RES-08: a 404 in a session may mean that the session is lost.
#[test]
fn s_res_08_a_stream_that_is_not_found_may_be_a_session_that_is_not() {
    let mut web = Web::legacy();
    let (call, post) = streaming(&mut web);
    web.bytes(post.stream, b"id: 1\ndata:\n\n");
    web.end(post.stream);
    web.pass(seconds(2));
    let get = web.begun(Verb::Get);
    web.status(get.stream, 404);
    if let Some(ping) = web.find(|begun| begun.method() == "ping") {
        web.status(ping.stream, 404);
    }
    assert!(web.was_told(|e| matches!(
        e,
        Event::Closing {
            cause: Cause::SessionLost,
            ..
        }
    )));
    assert_eq!(web.failure(call).delivery, Delivery::Unknown);
    web.pass(seconds(1));
    assert_eq!(web.posted("initialize").field("mcp-session-id"), None);
}

/// S-RES-06: an event that a resumed stream repeats is delivered once.
#[test]
fn s_res_06_a_reply_that_comes_again_settles_nothing_else() {
    let mut web = Web::legacy();
    let (call, post) = streaming(&mut web);
    web.bytes(post.stream, b"id: 1\ndata:\n\n");
    web.end(post.stream);
    web.pass(seconds(2));
    let get = web.begun(Verb::Get);
    web.stream(get.stream);
    web.event(
        get.stream,
        Some("2"),
        &result(&post, json!({"content": []})),
    );
    assert!(web.reply(call).is_ok());
    let (other, next) = streaming(&mut web);
    web.event(
        next.stream,
        Some("2"),
        &result(&post, json!({"content": ["old"]})),
    );
    assert!(!web.is_settled(other));
    assert_eq!(web.client.state(), State::Ready);
}
