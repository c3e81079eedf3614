//! Known failures of connections, at the server end over HTTP. Each test is named after its row in the catalogue of
//! failures.

use crate::server_http::{
    self, Ask, LEGACY, NOTHING, Session, Site, config, get, initialize, modern, notice, over,
    payload, post, seconds,
};
use everlink::server::{Cancelled, Http, Misuse, SsePaths, State};
use everlink::{Change, Input, List, StreamId};
use serde_json::{Value, json};

fn call(session: &Session, id: u64) -> Ask {
    session.post(id, "tools/call", json!({"name": "slow"}))
}

fn modern_call(id: u64) -> Ask {
    modern(id, "tools/call", json!({"name": "slow"}))
}

#[test]
fn f_036_sessions_that_nobody_ends_end_by_themselves() {
    let mut http = Http::new();
    http.session_idle = seconds(600);
    let mut config = over(http);
    config.limits.sessions = 300;
    let mut site = Site::new(config);
    let ghosts: Vec<Session> = (0..287).map(|_| site.session("2025-06-18")).collect();
    assert_eq!(site.server.sessions(), 287);
    site.pass(seconds(601));
    assert_eq!(site.server.sessions(), 0);
    assert_eq!(site.server.poll_timeout(), None, "nothing is left of them");
    let late = site.send(ghosts[0].post(1, "ping", Value::Null));
    assert_eq!(site.status(late), 404);
    site.finish();
}

#[test]
fn f_042_what_is_said_again_is_not_taken_twice() {
    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    let (_, request) = site.taken(call(&session, 1));
    let ask = site.ask(request, "roots/list", Value::Null);
    let id = site.question("roots/list");
    for number in 0..3 {
        let sent = site.send(session.answer(&id, json!({"roots": [number]})));
        assert_eq!((site.status(sent), site.text(sent)), (202, ""));
    }
    assert_eq!(site.outcome(ask), Some(Ok(json!({"roots": [0]}))));
    assert_eq!(site.settled(), [ask]);
    assert_eq!(site.server.stats().late_replies, 2);
    // A replayed event has the id that it had before.
    let (stream, request) = site.taken(call(&session, 2));
    let primer = site.last_event_id(stream);
    site.respond(request, json!({"content": []}));
    let last = site.last_event_id(stream);
    for _ in 0..2 {
        let again = site.send(session.resume(&primer));
        assert_eq!(site.result(again)["content"], json!([]));
        assert_eq!(site.last_event_id(again), last);
    }
    site.finish();
}

#[test]
fn f_043_nobody_in_between_takes_silence_for_death() {
    let mut site = Site::new(over(Http::new().with_sse(SsePaths::default())));
    let session = site.session("2025-06-18");
    let wanted = json!({"notifications": {}});
    let streams = [
        site.send(session.get()),
        site.send(modern(1, "subscriptions/listen", wanted)),
        site.send(get().to("/sse")),
        site.send(modern_call(1)),
        site.send(call(&session, 1)),
    ];
    let said = |site: &Site, stream: StreamId| site.text(stream).len();
    for _ in 0..20 {
        let before = streams.map(|stream| said(&site, stream));
        site.pass(seconds(15));
        for (stream, before) in streams.into_iter().zip(before) {
            assert!(said(&site, stream) > before, "{stream} is silent");
        }
    }
    site.finish();
}

#[test]
fn f_060_every_handshake_is_a_new_beginning() {
    let mut site = Site::new(config());
    let mut ids = Vec::new();
    for _ in 0..3 {
        for version in LEGACY {
            let session = site.session(version);
            assert!(!ids.contains(&session.id));
            let pong = site.send(session.post(1, "ping", Value::Null));
            assert_eq!(site.result(pong), json!({}));
            ids.push(session.id);
        }
    }
    let last = ids.last().expect("a session").clone();
    let begun = site.send(initialize("2025-11-25").with("mcp-session-id", &last));
    assert_eq!(site.status(begun), 200);
    assert_eq!(site.server.sessions(), 13);
    // A repeated `initialized` does no harm.
    let session = Session::new(last, "2025-11-25");
    for _ in 0..2 {
        let told = site.send(session.notice("notifications/initialized", Value::Null));
        assert_eq!(site.status(told), 202);
    }
    site.finish();
}

#[test]
fn f_061_what_comes_before_the_handshake_is_refused_and_does_no_harm() {
    let mut site = Site::new(config());
    for method in ["tools/list", "tools/call", "no/such"] {
        let early = post(&json!({"jsonrpc": "2.0", "id": 1, "method": method}));
        assert_eq!(site.refused(early), (400, -32600), "{method}");
    }
    let told = site.send(notice("notifications/initialized", Value::Null));
    assert_eq!(site.status(told), 400);
    // A client that has the reply to `initialize` and has not sent `initialized` is served.
    let begun = site.send(initialize("2025-11-25"));
    let id = site.field(begun, "mcp-session-id").expect("an id");
    let session = Session::new(id, "2025-11-25");
    let (stream, request) = site.taken(call(&session, 1));
    site.respond(request, json!({"content": []}));
    assert_eq!(site.result(stream)["content"], json!([]));
    site.finish();
}

/// F-061: the same holds for a stream of the transport of 2024-11-05.
#[test]
fn f_061_what_comes_before_the_handshake_is_refused_on_a_stream_of_the_first_transport() {
    let mut site = Site::new(over(Http::new().with_sse(SsePaths::default())));
    let stream = site.send(get().to("/sse"));
    let place = site.sse(stream)[0].data.clone().expect("a place");
    let early = post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    site.send(early.to(&place));
    assert_eq!(site.answer(stream)["error"]["code"], -32600);
    site.finish();
}

#[test]
fn f_099_ids_of_many_clients_are_not_confused() {
    let mut site = Site::new(config());
    let mut open = Vec::new();
    for at in 0..20 {
        let ask = if at % 2 == 0 {
            modern_call(1)
        } else {
            let session = site.session("2025-11-25");
            call(&session, 1)
        };
        open.push((at, site.taken(ask)));
    }
    open.rotate_left(7);
    for (at, (_, request)) in &open {
        site.respond(*request, json!({"content": [at]}));
    }
    for (at, (stream, _)) in &open {
        assert_eq!(site.result(*stream)["content"], json!([at]));
        assert_eq!(site.answer(*stream)["id"], 1);
    }
    // If one client reuses an open id, the second request is refused and the first one gets its reply.
    let session = site.session("2025-11-25");
    let (first, request) = site.taken(call(&session, 1));
    assert_eq!(site.refused(call(&session, 1)).1, -32600);
    site.respond(request, json!({"content": ["first"]}));
    assert_eq!(site.result(first)["content"], json!(["first"]));
    site.finish();
}

#[test]
fn f_101_the_end_does_not_wait_for_streams() {
    let mut site = Site::new(over(Http::new().with_sse(SsePaths::default())));
    let session = site.session("2025-11-25");
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let streams = [
        site.send(session.get()),
        site.send(modern(1, "subscriptions/listen", wanted)),
        site.send(get().to("/sse")),
    ];
    site.shutdown();
    assert_eq!(
        site.server.state(),
        State::Closed,
        "nobody waits for anything"
    );
    for stream in streams {
        assert!(site.is_over(stream) && !site.exchange(stream).is_aborted());
    }
    site.finish();
}

#[test]
fn f_102_what_is_in_flight_at_the_end_has_a_while_and_is_told() {
    let mut config = config();
    config.drain = seconds(20);
    let mut site = Site::new(config);
    let session = site.session("2025-11-25");
    let quick = site.taken(modern_call(1));
    let slow = [site.taken(modern_call(2)), site.taken(call(&session, 3))];
    site.shutdown();
    for ask in [modern_call(4), call(&session, 5), initialize("2025-11-25")] {
        assert_eq!(site.refused(ask).0, 503);
    }
    site.pass(seconds(19));
    assert_eq!(site.server.state(), State::Draining);
    site.respond(quick.1, json!({"content": []}));
    assert_eq!(site.result(quick.0)["content"], json!([]));
    site.pass(seconds(1));
    for (stream, request) in slow {
        assert_eq!(site.answer(stream)["error"]["code"], -32603);
        let told = site.cancellations();
        assert!(told.contains(&(request, Cancelled::OutOfTime)));
        assert!(!site.exchange(stream).is_aborted());
    }
    assert_eq!(site.server.state(), State::Closed);
    site.finish();
}

#[test]
fn f_105_an_answer_to_nobody_is_dropped() {
    let mut http = Http::new();
    http.replay = everlink::server::Replay::new(0, 0);
    let mut site = Site::new(over(http));
    let (stream, request) = site.taken(modern_call(1));
    site.hangs_up(stream);
    let answer = payload(&json!({"content": []}));
    let late = site.verb(|server, now| server.respond(now, request, answer));
    assert_eq!(late, Err(Misuse::UnknownRequest));
    // A legacy client may resume. Without stored events, the reply is dropped.
    let session = site.session("2025-06-18");
    let (stream, request) = site.taken(call(&session, 1));
    site.hangs_up(stream);
    let before = site.server.stats().answers_dropped;
    site.respond(request, json!({"content": []}));
    assert_eq!(site.server.stats().answers_dropped, before + 1);
    assert_eq!(site.messages(stream), NOTHING);
    assert_eq!(site.server.requests(), 0);
    let pong = site.send(session.post(2, "ping", Value::Null));
    assert_eq!(site.result(pong), json!({}), "nobody else is harmed");
    site.finish();
}

#[test]
fn f_106_a_notification_that_nobody_knows_is_passed_over() {
    let mut site = Site::new(config());
    for version in LEGACY {
        let session = site.session(version);
        let stream = site.send(session.get());
        for method in [
            "notifications/no/such",
            "x",
            "notifications/roots/list_changed",
        ] {
            let told = site.send(session.notice(method, json!({"a": [1]})));
            assert_eq!((site.status(told), site.text(told)), (202, ""), "{method}");
        }
        assert!(!site.is_over(stream));
        assert_eq!(site.messages(stream), NOTHING);
        let pong = site.send(session.post(1, "ping", Value::Null));
        assert_eq!(site.result(pong), json!({}));
    }
    site.finish();
}

#[test]
fn f_109_what_is_held_is_bounded_by_bytes() {
    let mut tight = config();
    tight.limits.write_window = 1_000;
    tight.limits.queued_bytes = 10_000;
    let mut site = Site::new(tight);
    let meta = json!({"io.modelcontextprotocol/logLevel": "debug"});
    let ask = modern(1, "tools/call", json!({"name": "slow", "_meta": meta}));
    let (stream, request) = site.taken(ask);
    let (other, quick) = site.taken(modern_call(2));
    site.stops_reading(stream);
    for _ in 0..100 {
        let data = payload(&json!("x".repeat(1_000)));
        let level = everlink::protocol::LogLevel::Info;
        site.verb(|server, now| server.log(now, Some(request), level, None, data))
            .expect("logs are offered");
    }
    assert!(site.server.stats().news_dropped >= 80);
    site.respond(quick, json!({"content": []}));
    assert_eq!(site.result(other)["content"], json!([]));
    site.reads_again(stream);
    let heard = site.text(stream).len();
    assert!((1_000..20_000).contains(&heard), "{heard}");
    site.respond(request, json!({"content": []}));
    assert_eq!(site.result(stream)["content"], json!([]));
    site.finish();
}

/// F-109: a server that cannot deliver events as fast as they arrive stops reading.
#[test]
fn f_109_what_is_not_taken_is_held_back() {
    let mut tight = config();
    tight.limits.undelivered_bytes = 10_000;
    let mut server = everlink::Server::new(tight);
    let now = everlink::Instant::ZERO;
    let told = notice(
        "notifications/custom",
        server_http::with_meta(json!({"x": "x".repeat(1_000)})),
    );
    let mut taken = 0;
    for number in 1..100 {
        let stream = StreamId::new(number);
        if !server.wants_input(stream) {
            break;
        }
        let head = Box::new(told.head());
        server.handle(now, Input::Request { stream, head });
        let bytes = (&told.body[..]).into();
        server.handle(now, Input::Bytes { stream, bytes });
        let faults = (&[] as &[everlink::Fault]).into();
        server.handle(now, Input::End { stream, faults });
        taken += 1;
    }
    assert!((5..15).contains(&taken), "{taken}");
    let mut buf = Vec::new();
    while server.poll_output(&mut buf).is_some() {}
    assert!(server.wants_input(StreamId::new(999)));
}

#[test]
fn f_110_a_flood_of_handshakes_is_bounded() {
    let mut few = over(Http::new().with_sse(SsePaths::default()));
    few.limits.sessions = 10;
    let mut site = Site::new(few);
    let mut refused = 0;
    for number in 0..50 {
        let ask = if number % 5 == 4 {
            get().to("/sse")
        } else {
            initialize("2025-11-25")
        };
        let sent = site.send(ask);
        refused += u32::from(site.status(sent) == 503);
    }
    assert_eq!((site.server.sessions(), refused), (10, 0), "each gave way");
    // All sessions that are left have a stream and do not give way.
    let late = site.send(initialize("2025-11-25"));
    assert_eq!(site.status(late), 503);
    assert!(site.field(late, "retry-after").is_some());
    assert_eq!(site.field(late, "mcp-session-id"), None);
    let served = site.served(modern_call(1), json!({"content": []}));
    assert_eq!(site.status(served), 200, "who needs no session is served");
    site.finish();
}

#[test]
fn f_115_whose_a_session_is_is_asked_each_time() {
    let mut site = Site::new(config());
    let session = site.session_by("2025-11-25", Some("ann"));
    let (stream, request) = site.taken(call(&session, 1));
    let primer = site.last_event_id(stream);
    site.hangs_up(stream);
    site.respond(request, json!({"content": ["secret"]}));
    site.publish(Change::List(List::Tools));
    // The credentials have expired, or belong to another user.
    for user in [None, Some("eve")] {
        for ask in [
            session.get(),
            session.resume(&primer),
            session.post(2, "ping", Value::Null),
        ] {
            let sent = site.send(ask.by(user));
            assert_eq!(site.status(sent), 404);
            assert!(!site.text(sent).contains("secret"));
        }
    }
    let resumed = site.send(session.resume(&primer));
    assert_eq!(site.result(resumed)["content"], json!(["secret"]));
    site.finish();
}
