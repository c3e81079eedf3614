//! Known failures of connections, at the server end over HTTP. Each test is named after its row in the catalogue of
//! failures.

use crate::server_http::{
    self, Harness, HttpRequest, LEGACY, NO_MESSAGES, Session, config, get, http_config, initialize,
    modern, notification, payload, post, seconds,
};
use everlink::server::{Cancelled, Http, Misuse, SsePaths, State};
use everlink::{Change, Input, List, StreamId};
use serde_json::{Value, json};

fn call(session: &Session, id: u64) -> HttpRequest {
    session.post(id, "tools/call", json!({"name": "slow"}))
}

fn modern_call(id: u64) -> HttpRequest {
    modern(id, "tools/call", json!({"name": "slow"}))
}

#[test]
fn f_036_idle_sessions_expire() {
    let mut http = Http::new();
    http.session_idle = seconds(600);
    let mut config = http_config(http);
    config.limits.sessions = 300;
    let mut harness = Harness::new(config);
    let sessions: Vec<Session> = (0..287)
        .map(|_| harness.open_session("2025-06-18"))
        .collect();
    assert_eq!(harness.server.sessions(), 287);
    harness.advance(seconds(601));
    assert_eq!(harness.server.sessions(), 0);
    assert_eq!(harness.server.poll_timeout(), None, "no deadline is left");
    let late = harness.send(sessions[0].post(1, "ping", Value::Null));
    assert_eq!(harness.status(late), 404);
    harness.finish();
}

#[test]
fn f_042_repeated_answer_counts_once_and_replayed_event_keeps_its_id() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let (_, request) = harness.send_accepted(call(&session, 1));
    let ask = harness.ask(request, "roots/list", Value::Null);
    let id = harness.newest_ask_id("roots/list");
    for number in 0..3 {
        let sent = harness.send(session.answer(&id, json!({"roots": [number]})));
        assert_eq!((harness.status(sent), harness.text(sent)), (202, ""));
    }
    assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": [0]}))));
    assert_eq!(harness.answered_asks(), [ask]);
    assert_eq!(harness.server.stats().late_replies, 2);
    // A replayed event has the id that it had before.
    let (stream, request) = harness.send_accepted(call(&session, 2));
    let primer = harness.last_event_id(stream);
    harness.respond(request, json!({"content": []}));
    let last = harness.last_event_id(stream);
    for _ in 0..2 {
        let again = harness.send(session.resume(&primer));
        assert_eq!(harness.result(again)["content"], json!([]));
        assert_eq!(harness.last_event_id(again), last);
    }
    harness.finish();
}

#[test]
fn f_043_every_silent_stream_gets_keepalives() {
    let mut harness = Harness::new(http_config(Http::new().with_sse(SsePaths::default())));
    let session = harness.open_session("2025-06-18");
    let wanted = json!({"notifications": {}});
    let streams = [
        harness.send(session.get()),
        harness.send(modern(1, "subscriptions/listen", wanted)),
        harness.send(get().to("/sse")),
        harness.send(modern_call(1)),
        harness.send(call(&session, 1)),
    ];
    let written = |harness: &Harness, stream: StreamId| harness.text(stream).len();
    for _ in 0..20 {
        let before = streams.map(|stream| written(&harness, stream));
        harness.advance(seconds(15));
        for (stream, before) in streams.into_iter().zip(before) {
            assert!(written(&harness, stream) > before, "{stream} is silent");
        }
    }
    harness.finish();
}

#[test]
fn f_060_every_handshake_opens_a_new_session() {
    let mut harness = Harness::new(config());
    let mut ids = Vec::new();
    for _ in 0..3 {
        for version in LEGACY {
            let session = harness.open_session(version);
            assert!(!ids.contains(&session.id));
            let pong = harness.send(session.post(1, "ping", Value::Null));
            assert_eq!(harness.result(pong), json!({}));
            ids.push(session.id);
        }
    }
    let last = ids.last().expect("a session").clone();
    let begun = harness.send(initialize("2025-11-25").with("mcp-session-id", &last));
    assert_eq!(harness.status(begun), 200);
    assert_eq!(harness.server.sessions(), 13);
    // A repeated `initialized` does no harm.
    let session = Session::new(last, "2025-11-25");
    for _ in 0..2 {
        let response = harness.send(session.notification("notifications/initialized", Value::Null));
        assert_eq!(harness.status(response), 202);
    }
    harness.finish();
}

#[test]
fn f_061_requests_before_the_handshake_are_refused() {
    let mut harness = Harness::new(config());
    for method in ["tools/list", "tools/call", "no/such"] {
        let early = post(&json!({"jsonrpc": "2.0", "id": 1, "method": method}));
        assert_eq!(harness.send_refused(early), (400, -32600), "{method}");
    }
    let response = harness.send(notification("notifications/initialized", Value::Null));
    assert_eq!(harness.status(response), 400);
    // A client that has the reply to `initialize` and has not sent `initialized` is served.
    let begun = harness.send(initialize("2025-11-25"));
    let id = harness.field(begun, "mcp-session-id").expect("an id");
    let session = Session::new(id, "2025-11-25");
    let (stream, request) = harness.send_accepted(call(&session, 1));
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.result(stream)["content"], json!([]));
    harness.finish();
}

/// F-061: the same holds for a stream of the transport of 2024-11-05.
#[test]
fn f_061_request_before_the_handshake_is_refused_on_an_sse_stream() {
    let mut harness = Harness::new(http_config(Http::new().with_sse(SsePaths::default())));
    let stream = harness.send(get().to("/sse"));
    let post_path = harness.sse(stream)[0]
        .data
        .clone()
        .expect("a path to post to");
    let early = post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    harness.send(early.to(&post_path));
    assert_eq!(harness.reply(stream)["error"]["code"], -32600);
    harness.finish();
}

#[test]
fn f_099_ids_of_many_clients_are_not_confused() {
    let mut harness = Harness::new(config());
    let mut open = Vec::new();
    for at in 0..20 {
        let http_request = if at % 2 == 0 {
            modern_call(1)
        } else {
            let session = harness.open_session("2025-11-25");
            call(&session, 1)
        };
        open.push((at, harness.send_accepted(http_request)));
    }
    open.rotate_left(7);
    for (at, (_, request)) in &open {
        harness.respond(*request, json!({"content": [at]}));
    }
    for (at, (stream, _)) in &open {
        assert_eq!(harness.result(*stream)["content"], json!([at]));
        assert_eq!(harness.reply(*stream)["id"], 1);
    }
    // If one client reuses an open id, the second request is refused and the first one gets its reply.
    let session = harness.open_session("2025-11-25");
    let (first, request) = harness.send_accepted(call(&session, 1));
    assert_eq!(harness.send_refused(call(&session, 1)).1, -32600);
    harness.respond(request, json!({"content": ["first"]}));
    assert_eq!(harness.result(first)["content"], json!(["first"]));
    harness.finish();
}

#[test]
fn f_101_shutdown_does_not_wait_for_open_streams() {
    let mut harness = Harness::new(http_config(Http::new().with_sse(SsePaths::default())));
    let session = harness.open_session("2025-11-25");
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let streams = [
        harness.send(session.get()),
        harness.send(modern(1, "subscriptions/listen", wanted)),
        harness.send(get().to("/sse")),
    ];
    harness.shutdown();
    assert_eq!(harness.server.state(), State::Closed, "no request is open");
    for stream in streams {
        assert!(harness.is_over(stream) && !harness.exchange(stream).is_aborted());
    }
    harness.finish();
}

#[test]
fn f_102_open_requests_get_the_drain_time_and_then_an_error() {
    let mut config = config();
    config.drain = seconds(20);
    let mut harness = Harness::new(config);
    let session = harness.open_session("2025-11-25");
    let quick = harness.send_accepted(modern_call(1));
    let slow = [
        harness.send_accepted(modern_call(2)),
        harness.send_accepted(call(&session, 3)),
    ];
    harness.shutdown();
    for http_request in [modern_call(4), call(&session, 5), initialize("2025-11-25")] {
        assert_eq!(harness.send_refused(http_request).0, 503);
    }
    harness.advance(seconds(19));
    assert_eq!(harness.server.state(), State::Draining);
    harness.respond(quick.1, json!({"content": []}));
    assert_eq!(harness.result(quick.0)["content"], json!([]));
    harness.advance(seconds(1));
    for (stream, request) in slow {
        assert_eq!(harness.reply(stream)["error"]["code"], -32603);
        let cancellations = harness.cancellations();
        assert!(cancellations.contains(&(request, Cancelled::OutOfTime)));
        assert!(!harness.exchange(stream).is_aborted());
    }
    assert_eq!(harness.server.state(), State::Closed);
    harness.finish();
}

#[test]
fn f_105_reply_to_a_disconnected_client_is_dropped() {
    let mut http = Http::new();
    http.replay = everlink::server::Replay::new(0, 0);
    let mut harness = Harness::new(http_config(http));
    let (stream, request) = harness.send_accepted(modern_call(1));
    harness.disconnect(stream);
    let answer = payload(&json!({"content": []}));
    let late = harness.with_server(|server, now| server.respond(now, request, answer));
    assert_eq!(late, Err(Misuse::UnknownRequest));
    // A legacy client may resume. Without stored events, the reply is dropped.
    let session = harness.open_session("2025-06-18");
    let (stream, request) = harness.send_accepted(call(&session, 1));
    harness.disconnect(stream);
    let before = harness.server.stats().answers_dropped;
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.server.stats().answers_dropped, before + 1);
    assert_eq!(harness.messages(stream), NO_MESSAGES);
    assert_eq!(harness.server.requests(), 0);
    let pong = harness.send(session.post(2, "ping", Value::Null));
    assert_eq!(harness.result(pong), json!({}), "other requests are served");
    harness.finish();
}

#[test]
fn f_106_unknown_notification_gets_202_and_no_reply() {
    let mut harness = Harness::new(config());
    for version in LEGACY {
        let session = harness.open_session(version);
        let stream = harness.send(session.get());
        for method in [
            "notifications/no/such",
            "x",
            "notifications/roots/list_changed",
        ] {
            let response = harness.send(session.notification(method, json!({"a": [1]})));
            assert_eq!(
                (harness.status(response), harness.text(response)),
                (202, ""),
                "{method}"
            );
        }
        assert!(!harness.is_over(stream));
        assert_eq!(harness.messages(stream), NO_MESSAGES);
        let pong = harness.send(session.post(1, "ping", Value::Null));
        assert_eq!(harness.result(pong), json!({}));
    }
    harness.finish();
}

#[test]
fn f_109_bytes_queued_for_an_unread_client_are_limited() {
    let mut tight = config();
    tight.limits.write_window = 1_000;
    tight.limits.queued_bytes = 10_000;
    let mut harness = Harness::new(tight);
    let meta = json!({"io.modelcontextprotocol/logLevel": "debug"});
    let http_request = modern(1, "tools/call", json!({"name": "slow", "_meta": meta}));
    let (stream, request) = harness.send_accepted(http_request);
    let (other, quick) = harness.send_accepted(modern_call(2));
    harness.stop_reading(stream);
    for _ in 0..100 {
        let data = payload(&json!("x".repeat(1_000)));
        let level = everlink::protocol::LogLevel::Info;
        harness
            .with_server(|server, now| server.log(now, Some(request), level, None, data))
            .expect("logging is offered");
    }
    assert!(harness.server.stats().news_dropped >= 80);
    harness.respond(quick, json!({"content": []}));
    assert_eq!(harness.result(other)["content"], json!([]));
    harness.resume_reading(stream);
    let received_bytes = harness.text(stream).len();
    assert!(
        (1_000..20_000).contains(&received_bytes),
        "{received_bytes}"
    );
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.result(stream)["content"], json!([]));
    harness.finish();
}

/// F-109: a server that cannot deliver events as fast as they arrive stops reading.
#[test]
fn f_109_undelivered_events_stop_reading() {
    let mut tight = config();
    tight.limits.undelivered_bytes = 10_000;
    let mut server = everlink::Server::new(tight);
    let now = everlink::Instant::ZERO;
    let http_request = notification(
        "notifications/custom",
        server_http::with_meta(json!({"x": "x".repeat(1_000)})),
    );
    let mut accepted = 0;
    for number in 1..100 {
        let stream = StreamId::new(number);
        if !server.wants_input(stream) {
            break;
        }
        let head = Box::new(http_request.head());
        server.handle(now, Input::Request { stream, head });
        let bytes = (&http_request.body[..]).into();
        server.handle(now, Input::Bytes { stream, bytes });
        let faults = (&[] as &[everlink::Fault]).into();
        server.handle(now, Input::End { stream, faults });
        accepted += 1;
    }
    assert!((5..15).contains(&accepted), "{accepted}");
    let mut buf = Vec::new();
    while server.poll_output(&mut buf).is_some() {}
    assert!(server.wants_input(StreamId::new(999)));
}

#[test]
fn f_110_flood_of_handshakes_stays_within_the_session_limit() {
    let mut few = http_config(Http::new().with_sse(SsePaths::default()));
    few.limits.sessions = 10;
    let mut harness = Harness::new(few);
    let mut refused = 0;
    for number in 0..50 {
        let http_request = if number % 5 == 4 {
            get().to("/sse")
        } else {
            initialize("2025-11-25")
        };
        let sent = harness.send(http_request);
        refused += u32::from(harness.status(sent) == 503);
    }
    assert_eq!(
        (harness.server.sessions(), refused),
        (10, 0),
        "each new session replaced an older one"
    );
    // All sessions that are left have a stream and do not give way.
    let late = harness.send(initialize("2025-11-25"));
    assert_eq!(harness.status(late), 503);
    assert!(harness.field(late, "retry-after").is_some());
    assert_eq!(harness.field(late, "mcp-session-id"), None);
    let served = harness.send_and_respond(modern_call(1), json!({"content": []}));
    assert_eq!(
        harness.status(served),
        200,
        "a modern request needs no session"
    );
    harness.finish();
}

#[test]
fn f_115_user_of_a_session_is_checked_on_every_request() {
    let mut harness = Harness::new(config());
    let session = harness.open_session_by("2025-11-25", Some("ann"));
    let (stream, request) = harness.send_accepted(call(&session, 1));
    let primer = harness.last_event_id(stream);
    harness.disconnect(stream);
    harness.respond(request, json!({"content": ["secret"]}));
    harness.publish(Change::List(List::Tools));
    // The credentials have expired, or belong to another user.
    for user in [None, Some("eve")] {
        for http_request in [
            session.get(),
            session.resume(&primer),
            session.post(2, "ping", Value::Null),
        ] {
            let sent = harness.send(http_request.by(user));
            assert_eq!(harness.status(sent), 404);
            assert!(!harness.text(sent).contains("secret"));
        }
    }
    let resumed = harness.send(session.resume(&primer));
    assert_eq!(harness.result(resumed)["content"], json!(["secret"]));
    harness.finish();
}
