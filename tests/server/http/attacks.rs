//! Hostile or careless clients. The server end over HTTP must protect the replies, the memory and the secrets of all other clients.

use std::sync::{Arc, Mutex};

use everlink::protocol::{LogLevel, Version, Versions};
use everlink::server::{
    Cancelled, EventStore, Http, MemoryEvents, MemorySessions, Replay, Server, SessionRecord,
    SessionStore, SsePaths,
};
use everlink::{Change, Fault, FaultKind, Input, List, RequestId, StreamId};
use serde_json::{Value, json};

use crate::server_http::{
    self, Ask, Session, Site, config, everything, get, initialize, modern, notice, over, payload,
    post, seconds,
};

fn call(session: &Session, id: u64) -> Ask {
    session.post(id, "tools/call", json!({"name": "slow"}))
}

fn log(site: &mut Site, request: Option<RequestId>, data: Value) {
    let data = payload(&data);
    site.verb(|server, now| server.log(now, request, LogLevel::Error, None, data))
        .expect("logging is offered");
}

/// Sends a request, and reads nothing of the response.
fn send_deaf(site: &mut Site, ask: &Ask) -> StreamId {
    let stream = site.begin(ask);
    site.stops_reading(stream);
    site.body(stream, &ask.body);
    site.end(stream);
    stream
}

/// HTTP settings that also serve the transport of 2024-11-05.
fn with_sse() -> Http {
    Http::new().with_sse(SsePaths::default())
}

/// Connects a client of 2024-11-05. Returns its event stream and the path that it posts to.
fn open_sse(site: &mut Site, reads: bool) -> (StreamId, String) {
    let ask = get().to("/sse");
    let stream = if reads {
        site.send(ask)
    } else {
        send_deaf(site, &ask)
    };
    let place = site.sse(stream)[0].data.clone().expect("a place to post");
    site.send(initialize("2024-11-05").to(&place));
    (stream, place)
}

// Clients that do not read.

/// Messages queue for sessions without a stream or with an unread stream. Other clients are still read from and written
/// to.
#[test]
fn who_does_not_read_stops_nobody_else() {
    for replay in [Replay::new(0, 0), Replay::default()] {
        let mut http = Http::new();
        http.replay = replay;
        let mut tight = over(http);
        tight.limits.queued_bytes = 10_000;
        tight.limits.all_queued_bytes = 30_000;
        tight.limits.write_window = 1_000;
        let mut site = Site::new(tight);
        for _ in 0..8 {
            let session = site.session("2025-11-25");
            send_deaf(&mut site, &session.get());
            site.session("2025-11-25"); // without a stream
        }
        let quick = site.session("2025-11-25");
        let stream = site.send(quick.get());
        for _ in 0..100 {
            log(&mut site, None, "x".repeat(500).into());
        }
        assert!(site.server.wants_input(stream));
        assert_eq!(site.messages(stream).len(), 100);
        site.finish();
    }
}

/// The queue of the server's own replies is bounded for a client that does not read them.
#[test]
fn pings_of_a_client_that_does_not_read_are_not_answered_without_end() {
    let mut tight = over(with_sse());
    tight.limits.queued_bytes = 10_000;
    tight.limits.all_queued_bytes = 20_000;
    tight.limits.write_window = 100;
    let mut site = Site::new(tight);
    let (stream, place) = open_sse(&mut site, false);
    for id in 1..2_000 {
        let ping = json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
        site.send(post(&ping).to(&place));
    }
    site.reads_again(stream);
    assert!(site.text(stream).len() < 20_000);
    site.finish();
}

/// Unread responses count as exchanges. The oldest is aborted when a new exchange needs its place.
#[test]
fn oldest_unread_answer_gives_way_to_a_new_exchange() {
    let mut tight = config();
    tight.limits.exchanges = 4;
    let mut site = Site::new(tight);
    let ask = |id: u64| modern(id, "server/discover", json!({}));
    let deaf: Vec<StreamId> = (0..8).map(|id| send_deaf(&mut site, &ask(id))).collect();
    for (at, stream) in deaf.iter().enumerate() {
        assert_eq!(site.status(*stream), 200);
        assert_eq!(site.exchange(*stream).is_aborted(), at < 4, "{at}");
    }
    // A client that reads at least one byte counts as present.
    site.pass(seconds(40));
    let (stream, len) = (deaf[4], 1);
    site.feed(Input::Sent { stream, len });
    site.pass(seconds(20));
    assert!(!site.exchange(deaf[4]).is_aborted());
    assert!(site.exchange(deaf[5]).is_aborted());
    site.finish();
}

/// Unfinished requests fill all places. The oldest is refused with 503, and a new request is served.
#[test]
fn oldest_unfinished_request_gives_way_to_a_new_exchange() {
    let mut tight = config();
    tight.limits.exchanges = 3;
    let mut site = Site::new(tight);
    let ask = modern(1, "tools/call", json!({"name": "x"}));
    let slow = [(); 3].map(|()| site.begin(&ask));
    let (call, request) = site.taken(ask);
    site.respond(request, json!({"content": []}));
    assert_eq!(site.status(call), 200);
    assert_eq!(site.status(slow[0]), 503);
    assert!(!site.is_over(slow[1]) && !site.is_over(slow[2]));
    assert_eq!(site.server.stats().displaced, 1);
    site.finish();
}

/// The unread bytes of all clients have a common limit. Only the client with the most unread bytes is cut off.
#[test]
fn heaviest_unread_answer_is_cut_where_too_much_waits_in_all() {
    let mut tight = config();
    tight.limits.queued_bytes = 20_000;
    tight.limits.all_queued_bytes = 100_000;
    let mut site = Site::new(tight);
    let ask = modern(1, "tools/call", json!({"name": "x"}));
    let answer = |bytes: usize| json!({"content": [{"type": "text", "text": "x".repeat(bytes)}]});
    let mut deaf = Vec::new();
    for size in [30_000, 40_000, 20_000, 5_000] {
        deaf.push(send_deaf(&mut site, &ask));
        let request = site.newest();
        site.respond(request, answer(size));
    }
    assert!(
        deaf.iter()
            .all(|stream| !site.exchange(*stream).is_aborted())
    );
    // A client that was answered just now had no time to read and is not cut off.
    let reader = site.served(ask.clone(), answer(30_000));
    assert_eq!(site.status(reader), 200);
    assert!(!site.exchange(reader).is_aborted());
    let last = send_deaf(&mut site, &ask);
    let request = site.newest();
    site.respond(request, answer(10_000));
    let cut = deaf.iter().chain([&last]);
    let cut: Vec<bool> = cut
        .map(|stream| site.exchange(*stream).is_aborted())
        .collect();
    assert_eq!(cut, [false, true, false, false, false]);
    assert_eq!(site.server.stats().displaced, 1);
    site.finish();
}

/// A client that reads no byte of a running stream for four keepalive intervals is given up. A client that reads slowly is
/// kept.
#[test]
fn a_client_that_reads_nothing_is_given_up() {
    let mut site = Site::new(config());
    let ask = |id: u64| {
        let meta = json!({"progressToken": "p"});
        modern(id, "tools/call", json!({"name": "slow", "_meta": meta}))
    };
    let (deaf, given_up) = site.taken(ask(1));
    let (slow, _) = site.taken(ask(2));
    let (patient, waiting) = site.taken(ask(3).with("accept", "application/json"));
    for stream in [deaf, slow] {
        site.stops_reading(stream);
    }
    site.pass(seconds(15));
    let begun = site.text(deaf).len();
    assert!(begun > 0, "F-043");
    for _ in 0..3 {
        site.pass(seconds(15));
        let (stream, len) = (slow, 1);
        site.feed(Input::Sent { stream, len });
    }
    site.pass(seconds(14));
    assert!(!site.is_over(deaf));
    site.pass(seconds(1));
    assert!(site.exchange(deaf).is_aborted());
    assert_eq!(site.cancellations(), [(given_up, Cancelled::PeerGone)]);
    assert_eq!(
        site.text(deaf).len(),
        begun,
        "nothing is added to what is not read"
    );
    assert!(!site.is_over(slow));
    // A client that takes only JSON has nothing to read before the reply, and is kept.
    site.pass(seconds(600));
    site.respond(waiting, json!({"content": []}));
    assert_eq!(site.json(patient)["result"]["content"], json!([]));
    site.finish();
}

/// After every response was read, the server has no deadline.
#[test]
fn when_all_was_read_nothing_is_due() {
    let mut site = Site::new(config());
    for id in 0..3 {
        site.send(modern(id, "server/discover", json!({})));
    }
    let session = site.session("2025-11-25");
    site.send(session.get());
    site.send(session.delete());
    assert_eq!(site.server.poll_timeout(), None);
    site.finish();
}

/// A stream is replaced. Late reads on the old stream do not enlarge the write window of the new one.
#[test]
fn a_replaced_stream_has_a_window_of_its_own() {
    let mut narrow = config();
    narrow.limits.write_window = 1_000;
    let mut site = Site::new(narrow);
    let session = site.session("2025-11-25");
    let old = send_deaf(&mut site, &call(&session, 1));
    let request = site.newest();
    log(&mut site, Some(request), "x".repeat(1_200).into());
    let primer = site.sse(old)[0].id.clone().expect("a primer has an id");
    let new = send_deaf(&mut site, &session.resume(&primer));
    for _ in 0..4 {
        log(&mut site, Some(request), "x".repeat(1_200).into());
    }
    let written = site.text(new).len();
    site.reads_again(old);
    assert_eq!(site.text(new).len(), written);
    site.finish();
}

// Clients that use up shared resources.

/// Open asks of one client do not prevent asks to another client.
#[test]
fn one_client_does_not_use_up_the_questions_of_all() {
    let mut site = Site::new(config());
    let eve = site.session_by("2025-11-25", Some("eve"));
    site.send(call(&eve, 1));
    let request = site.newest();
    for _ in 0..64 {
        site.ask(request, "roots/list", Value::Null);
    }
    let more = site.verb(|server, now| server.ask(now, request, "roots/list", None));
    assert!(more.is_err(), "it is enough for eve");
    for id in 0..64 {
        site.send(modern(id, "tools/call", json!({"name": "x"})).by(Some("eve")));
        let request = site.newest();
        site.ask(request, "roots/list", Value::Null);
    }
    let ann = site.session_by("2025-11-25", Some("ann"));
    site.send(call(&ann, 1));
    let request = site.newest();
    site.ask(request, "roots/list", Value::Null);
    site.send(modern(1, "tools/call", json!({"name": "x"})).by(Some("ann")));
    let request = site.newest();
    site.ask(request, "roots/list", Value::Null);
    site.finish();
}

/// An unfinished handshake holds its session for less than 120 s. A finished one keeps it for the promised 30 min.
#[test]
fn a_handshake_that_is_not_finished_takes_no_place_for_long() {
    let mut tight = config();
    tight.limits.sessions = 4;
    let mut site = Site::new(tight);
    for _ in 0..4 {
        let begun = site.send(initialize("2025-11-25").by(Some("eve")));
        assert_eq!(site.status(begun), 200);
    }
    let late = site.send(initialize("2025-11-25"));
    assert_eq!(site.status(late), 200, "the oldest of them gives way");
    assert_eq!(site.server.sessions(), 4);
    site.pass(seconds(120));
    assert_eq!(site.server.sessions(), 0);
    let ann = site.session("2025-11-25");
    site.pass(seconds(25 * 60));
    let ping = site.send(ann.post(1, "ping", json!({})));
    assert_eq!(site.status(ping), 200, "half an hour is promised");
    site.finish();
}

/// Rule 19: the least used session gives way to a new one, but never a session with an open exchange.
#[test]
fn session_that_was_used_least_gives_way_to_a_new_one() {
    let mut tight = config();
    tight.limits.sessions = 4;
    let mut site = Site::new(tight);
    let busy = site.session("2025-11-25");
    site.send(busy.get());
    let used = site.session("2025-11-25");
    site.send(used.post(1, "ping", json!({})));
    site.pass(seconds(1));
    let unused = site.session("2025-11-25");
    site.pass(seconds(1));
    site.send(initialize("2025-11-25"));
    let status = |site: &mut Site, session: &Session| {
        let ping = site.send(session.post(9, "ping", json!({})));
        site.status(ping)
    };
    // First the unfinished handshake gives way, then the session without any request.
    let second = site.session("2025-11-25");
    assert_eq!(site.server.sessions(), 4);
    let third = site.session("2025-11-25");
    assert_eq!(status(&mut site, &unused), 404);
    for session in [&busy, &used, &second, &third] {
        assert_eq!(status(&mut site, session), 200);
        site.pass(seconds(1));
    }
    // Now all sessions were used. The one with the oldest use gives way, but not one with an open stream.
    let fourth = site.session("2025-11-25");
    assert_eq!(status(&mut site, &used), 404);
    for session in [&busy, &second, &third, &fourth] {
        assert_eq!(status(&mut site, session), 200);
    }
    site.finish();
}

/// Rule 19: the number of open requests per session is limited, and other sessions are not affected.
#[test]
fn session_has_a_share_of_the_requests() {
    let mut tight = config();
    tight.limits.requests = 8;
    tight.limits.requests_each = 3;
    let mut site = Site::new(tight);
    let (eve, ann) = (site.session("2025-11-25"), site.session("2025-11-25"));
    for id in 1..=3 {
        site.taken(call(&eve, id));
    }
    let over = site.send(call(&eve, 4));
    let refused = site.answer(over)["error"]["message"].to_string();
    assert!(refused.contains("3 requests of this session"), "{refused}");
    site.taken(call(&ann, 1));
    site.finish();
}

/// Rule 19: when all places are taken, calls whose client is gone are cancelled first. A client that resumes one is told
/// so.
#[test]
fn call_that_nobody_waits_for_gives_way_to_a_new_one() {
    let mut tight = config();
    tight.limits.requests = 3;
    let mut site = Site::new(tight);
    let (eve, ann) = (site.session("2025-11-25"), site.session("2025-11-25"));
    let mut calls = Vec::new();
    for id in 1..=3 {
        calls.push(site.taken(call(&eve, id)));
    }
    let primer = site.last_event_id(calls[1].0);
    for (stream, _) in &calls {
        site.hangs_up(*stream);
    }
    assert_eq!(site.cancellations(), [], "she may come back");
    for id in 1..=2 {
        site.taken(call(&ann, id));
    }
    let gone = [calls[0].1, calls[1].1].map(|request| (request, Cancelled::PeerGone));
    assert_eq!(site.cancellations(), gone, "the oldest first");
    let again = site.send(eve.resume(&primer));
    let told = site.text(again);
    assert!(told.contains("others needed its place"), "{told}");
    assert!(site.is_over(again));
    site.finish();
}

/// Rule 19: when waiting clients hold all places, the session with the most requests loses one.
#[test]
fn session_with_most_requests_gives_way_where_all_are_taken() {
    let mut tight = config();
    tight.limits.requests = 3;
    let mut site = Site::new(tight);
    let (eve, ann) = (site.session("2025-11-25"), site.session("2025-11-25"));
    let calls = [1, 2, 3].map(|id| site.taken(call(&eve, id)));
    let over = site.send(call(&eve, 4));
    assert!(site.text(over).contains("3 requests are not answered yet"));
    site.taken(call(&ann, 1));
    let told = site.answer(calls[0].0)["error"]["message"].to_string();
    assert!(told.contains("others needed its place"), "{told}");
    site.taken(modern(1, "tools/call", json!({"name": "x"})));
    let gone = [calls[0].1, calls[1].1].map(|request| (request, Cancelled::PeerGone));
    assert_eq!(site.cancellations(), gone);
    // Now every client has one request. No client has more than another, so the new request is refused.
    assert_eq!(
        site.refused(modern(2, "tools/call", json!({"name": "x"})))
            .0,
        503
    );
    site.finish();
}

/// Rule 17: a user's tool list defines which arguments must be repeated in header fields, for that user only.
#[test]
fn argument_headers_of_one_user_are_not_demanded_of_another() {
    let mut site = Site::new(config());
    let schema =
        json!({"type": "object", "properties": {"x": {"type": "string", "x-mcp-header": "X"}}});
    let list = json!({"tools": [{"name": "pay", "inputSchema": schema}]});
    site.served(modern(1, "tools/list", json!({})).by(Some("ann")), list);
    let pay = |user| {
        let params = json!({"name": "pay", "arguments": {"x": "1"}});
        modern(2, "tools/call", params).by(Some(user))
    };
    let (status, _) = site.refused(pay("ann"));
    assert_eq!(status, 400, "ann's tool has a header");
    site.taken(pay("eve"));
    site.finish();
}

/// Each watch keeps its own copy of its URIs. All watches together have a limit.
#[test]
fn addresses_that_others_watch_are_not_for_nothing() {
    let mut tight = config();
    tight.limits.watched_uris = 16;
    tight.limits.watched_bytes = 16_000;
    let mut site = Site::new(tight);
    let uris: Vec<String> = (0..16).map(|i| format!("file:///{i:0980}")).collect();
    let wanted = json!({"notifications": {"resourceSubscriptions": uris}});
    let mut granted = 0;
    for id in 0..100 {
        let watch = site.send(modern(id, "subscriptions/listen", wanted.clone()));
        let answer = &site.messages(watch)[0];
        let of_it = answer["params"]["notifications"]["resourceSubscriptions"].as_array();
        granted += of_it.map_or(0, Vec::len);
    }
    assert!(granted < 16 * 20, "{granted} addresses");
    site.finish();
}

/// Messages that wait for the offer are bounded, however many clients repeat them.
#[test]
fn what_waits_for_the_offer_is_bounded() {
    let mut deferred = over(with_sse());
    deferred.offer = None;
    deferred.limits.requests = 8;
    let mut site = Site::new(deferred);
    let places = [(); 2].map(|()| open_sse(&mut site, true).1);
    for place in places.iter().cycle().take(200) {
        let done = notice("notifications/initialized", Value::Null);
        site.send(done.to(place));
    }
    assert!(site.server.requests() <= 8, "{}", site.server.requests());
    let other = site.send(modern(1, "server/discover", json!({})));
    assert!(!site.is_answered(other), "it may wait, too");
    site.verb(|server, now| server.offer(now, everything()));
    assert_eq!(site.status(other), 200);
    site.finish();
}

/// Header fields count towards the limit for bytes that are still arriving.
#[test]
fn heads_are_part_of_what_arrives() {
    let mut tight = config();
    tight.limits.body_bytes = 100_000;
    tight.limits.message_bytes = 100_000;
    let mut site = Site::new(tight);
    let long = "y".repeat(60_000);
    let ask = modern(1, "server/discover", json!({})).with("mcp-param-x", long);
    let begun: Vec<StreamId> = (0..20).map(|_| site.begin(&ask)).collect();
    let held = begun.iter().filter(|stream| !site.is_answered(**stream));
    assert!(held.count() <= 2);
    site.finish();
}

// Events that are kept for clients that lose their stream.

/// Notifications without a reader do not displace stored replies. The data of other sessions does not, either.
#[test]
fn answers_are_held_rather_than_news() {
    let mut http = Http::new();
    http.replay = Replay::new(256, 10_000);
    http.replay.all_bytes = 30_000;
    let mut site = Site::new(over(http));
    for _ in 0..4 {
        let eve = site.session_by("2025-11-25", Some("eve"));
        site.send(call(&eve, 1));
        let request = site.newest();
        site.respond(request, json!({"content": [], "x": "y".repeat(9_000)}));
    }
    for _ in 0..300 {
        log(&mut site, None, "x".repeat(50).into());
    }
    let ann = site.session_by("2025-11-25", Some("ann"));
    let lost = site.send(call(&ann, 1));
    let request = site.newest();
    let last = site.last_event_id(lost);
    site.hangs_up(lost);
    site.respond(request, json!({"content": [], "x": "y".repeat(500)}));
    for _ in 0..300 {
        log(&mut site, None, "x".into());
    }
    let resumed = site.send(ann.resume(&last));
    assert_eq!(site.status(resumed), 200, "{}", site.text(resumed));
    assert_eq!(site.messages(resumed).len(), 1);
    site.finish();
}

/// A reply is too long to be stored. The client gets an error; an empty stream would make it resume again and again.
#[test]
fn a_stream_whose_end_is_not_held_is_not_resumed() {
    let mut http = Http::new();
    http.replay = Replay::new(10, 1_000);
    let mut site = Site::new(over(http));
    let session = site.session("2025-11-25");
    let lost = site.send(call(&session, 1));
    let request = site.newest();
    log(&mut site, Some(request), "a".into());
    let last = site.last_event_id(lost);
    site.hangs_up(lost);
    site.respond(request, json!({"content": [], "x": "y".repeat(2_000)}));
    let resumed = site.send(session.resume(&last));
    assert_eq!(site.status(resumed), 400);
    site.finish();
}

/// The client of a request has lost its stream. An ask for this request goes to a stream that the client reads.
#[test]
fn a_question_goes_where_somebody_hears_it() {
    for (replay, version, accept) in [
        (Replay::new(0, 0), "2025-11-25", "*/*"),
        (Replay::default(), "2025-11-25", "application/json"),
        (Replay::default(), "2025-06-18", "*/*"), // no primer, so no event id
    ] {
        let mut http = Http::new();
        http.replay = replay;
        let mut site = Site::new(over(http));
        let session = site.session(version);
        let stream = site.send(session.get());
        let lost = site.send(call(&session, 1).with("accept", accept));
        let request = site.newest();
        site.hangs_up(lost);
        let ask = site.ask(request, "roots/list", Value::Null);
        let heard = site.messages(stream);
        assert_eq!(heard[0]["method"], "roots/list");
        site.send(session.answer(&heard[0]["id"], json!({"roots": []})));
        assert_eq!(site.outcome(ask), Some(Ok(json!({"roots": []}))));
        site.finish();
    }
}

/// The client reads no stream yet. The ask waits on the request's stream if that can be resumed, else on the session's stream.
/// S-LHTTP-15: a client that takes only JSON does not get the ask on the response, either.
#[test]
fn a_question_waits_where_its_client_comes_back() {
    for (replay, accept, resumes) in [
        (Replay::default(), "*/*", true),
        (Replay::default(), "application/json", false),
        (Replay::new(0, 0), "*/*", false),
        (Replay::new(0, 0), "application/json", false),
    ] {
        let mut http = Http::new();
        http.replay = replay;
        let mut site = Site::new(over(http));
        let session = site.session("2025-11-25");
        let ask = call(&session, 1).with("accept", accept);
        let (lost, request) = site.taken(ask);
        if accept == "*/*" {
            site.hangs_up(lost);
        }
        site.ask(request, "roots/list", Value::Null);
        assert_eq!(site.asked("roots/list"), server_http::NOTHING);
        let back = if resumes {
            let last = site.last_event_id(lost);
            site.send(session.resume(&last))
        } else {
            site.send(session.get())
        };
        assert_eq!(
            site.said(back, "roots/list").len(),
            1,
            "{replay:?} {accept}"
        );
        site.respond(request, json!({"content": []}));
        if accept == "application/json" {
            assert_eq!(site.json(lost)["result"]["content"], json!([]));
        }
        site.finish();
    }
}

// Duplicate members and late messages.

/// S-HDR-09: a message with a duplicate member is refused, because two readers may read different values.
#[test]
fn nothing_gets_past_the_fields_by_being_there_twice() {
    let schema = json!({"type": "object", "properties": {
        "tenant": {"type": "string", "x-mcp-header": "Tenant"},
    }});
    let list = payload(&json!({"tools": [{"name": "t", "inputSchema": schema}]}));
    let mut site = Site::new(config());
    site.verb(|server, now| server.tools(now, &list));
    let ask = modern(
        1,
        "tools/call",
        json!({"name": "t", "arguments": {"tenant": "mine"}}),
    );
    let ask = ask.with("mcp-param-tenant", "mine");
    for (once, twice, without) in [
        (r#""name":"t""#, r#""name":"t","name":"u""#, "-"),
        (r#""name":"t""#, r#""name":"t","name":"t""#, "mcp-name"),
        (r#""name":"t""#, r#""n\u0061me":"u""#, "mcp-name"),
        (
            r#""tenant":"mine""#,
            r#""tenant":"mine","tenant":"theirs""#,
            "-",
        ),
        (
            r#""arguments":{"#,
            r#""arguments":{},"arguments":{"#,
            "mcp-param-tenant",
        ),
    ] {
        let mut ask = ask.clone().without(without);
        let text = String::from_utf8(ask.body).unwrap();
        assert!(text.contains(once));
        ask.body = text.replace(once, twice).into_bytes();
        let stream = site.send(ask);
        assert_eq!(site.status(stream), 400, "{twice}");
    }
    let stream = site.send(ask);
    assert!(!site.is_answered(stream), "as it is, it is served");
    site.finish();
}

/// A handshake that waits 40 s for the offer still names its session.
#[test]
fn a_late_handshake_names_its_session() {
    for others in [0, 1] {
        let mut deferred = config();
        let offer = deferred.offer.take().expect("an offer");
        let mut site = Site::new(deferred);
        let begun = site.send(initialize("2025-11-25"));
        let strange = |_| site.send(modern(1, "no/such", json!({})));
        let strange: Vec<StreamId> = (0..others).map(strange).collect();
        site.pass(seconds(40));
        site.verb(|server, now| server.offer(now, offer));
        assert_eq!(site.status(begun), 200);
        assert!(site.field(begun, "mcp-session-id").is_some());
        for strange in strange {
            assert_eq!(site.status(strange), 404, "S-HTTP-29");
        }
        site.finish();
    }
}

/// A body that ends with the fault `Closed` counts as complete.
#[test]
fn a_body_ends_in_order_with_the_fault_that_says_so() {
    let mut site = Site::new(config());
    let ask = modern(1, "server/discover", json!({}));
    let stream = site.begin(&ask);
    site.body(stream, &ask.body);
    let faults = vec![Fault::new(FaultKind::Closed)].into();
    site.feed(Input::End { stream, faults });
    assert_eq!(site.status(stream), 200);
    site.finish();
}

/// A request is still arriving when the service shuts down. Its client gets 503 and `Retry-After`.
#[test]
fn what_arrives_at_the_end_is_told_to_come_back() {
    let mut site = Site::new(config());
    let ask = modern(1, "tools/call", json!({"name": "x"}));
    let stream = site.begin(&ask);
    site.body(stream, &ask.body[..10]);
    site.shutdown();
    assert_eq!(site.status(stream), 503);
    assert!(site.field(stream, "retry-after").is_some());
    site.finish();
}

/// S-VER-12: a server without the legacy era names its versions in the refusal of a handshake.
#[test]
fn a_modern_server_names_its_versions_to_a_handshake() {
    let mut modern_alone = config();
    modern_alone.versions = Versions::MODERN;
    let mut site = Site::new(modern_alone);
    let begun = site.send(initialize("2025-11-25"));
    assert_eq!(site.status(begun), 400);
    let supported = &site.json(begun)["error"]["data"]["supported"];
    assert_eq!(*supported, json!(["2026-07-28"]));
    site.finish();
}

/// The id of a session gives access to it, so the `Debug` output hides it.
#[test]
fn the_store_of_sessions_shows_no_id() {
    let mut sessions = MemorySessions::new(3);
    sessions.put(&SessionRecord::new("s3cret", Version::V2025_11_25));
    assert!(!format!("{sessions:?}").contains("s3cret"));
}

// Several servers that share their stores.

struct Shared<T>(Arc<Mutex<T>>);

impl<T> Shared<T> {
    fn new(store: T) -> Shared<T> {
        Shared(Arc::new(Mutex::new(store)))
    }

    /// The same store, for another server.
    fn again(&self) -> Shared<T> {
        Shared(self.0.clone())
    }
}

impl SessionStore for Shared<MemorySessions> {
    fn put(&mut self, record: &SessionRecord) {
        self.0.lock().unwrap().put(record);
    }

    fn get(&mut self, id: &str) -> Option<SessionRecord> {
        self.0.lock().unwrap().get(id)
    }

    fn remove(&mut self, id: &str) {
        self.0.lock().unwrap().remove(id);
    }

    fn is_shared(&self) -> bool {
        true
    }
}

impl EventStore for Shared<MemoryEvents> {
    fn append(&mut self, session: &str, stream: u64, message: &str) -> u64 {
        self.0.lock().unwrap().append(session, stream, message)
    }

    fn replay(
        &mut self,
        session: &str,
        stream: u64,
        after: u64,
        show: &mut dyn FnMut(u64, &str),
    ) -> bool {
        let mut events = self.0.lock().unwrap();
        events.replay(session, stream, after, show)
    }

    fn forget(&mut self, session: &str) {
        self.0.lock().unwrap().forget(session);
    }
}

/// Two servers at one address with shared stores and the same secret. The second may still lack its offer.
fn siblings(is_offered: bool) -> (Site, Site) {
    let sessions = Shared::new(MemorySessions::new(8));
    let events = Shared::new(MemoryEvents::new(Replay::default()));
    let server = |is_offered: bool| {
        let mut config = config();
        config.offer = config.offer.filter(|_| is_offered);
        let (sessions, events) = (Box::new(sessions.again()), Box::new(events.again()));
        Site::around(Server::with_stores(config, sessions, events))
    };
    (server(true), server(is_offered))
}

#[test]
fn a_session_that_is_idle_here_and_used_there_lives() {
    let (mut one, mut other) = siblings(true);
    let session = one.session("2025-11-25");
    for id in 1..6 {
        let ping = other.send(session.post(id, "ping", json!({})));
        assert_eq!(other.status(ping), 200);
        one.pass(seconds(600));
        other.pass(seconds(600));
    }
    let ping = one.send(session.post(9, "ping", json!({})));
    assert_eq!(one.status(ping), 200);
    let deleted = other.send(session.delete());
    assert_eq!(other.status(deleted), 204);
    let late = one.send(session.post(10, "ping", json!({})));
    assert_eq!(one.status(late), 404, "S-SESS-05");
    one.finish();
    other.finish();
}

#[test]
fn no_two_sessions_have_the_same_id() {
    let (mut one, mut other) = siblings(true);
    let ann = one.session_by("2025-11-25", Some("ann"));
    let eve = other.session_by("2025-11-25", Some("eve"));
    assert_ne!(ann.id, eve.id);
    one.finish();
    other.finish();
}

/// The user, the capabilities, the log level and the subscriptions of a session hold at the second server, too.
#[test]
fn a_session_is_the_same_at_the_other_server() {
    let (mut one, mut other) = siblings(true);
    let begin = server_http::introduce("2025-11-25", &json!({"roots": {}}));
    let session = one.session_with(begin, "2025-11-25", Some("ann"));
    let uri = "file:///a";
    let level = json!({"level": "critical"});
    one.send(session.post(1, "logging/setLevel", level));
    one.send(session.post(2, "resources/subscribe", json!({"uri": uri})));
    one.finish();

    let stranger = other.send(session.get().by(Some("eve")));
    assert_eq!(other.status(stranger), 404);
    let stream = other.send(session.get());
    log(&mut other, None, "an error".into());
    assert_eq!(
        other.messages(stream),
        server_http::NOTHING,
        "that is too little"
    );
    other.publish(Change::Resource { uri: uri.into() });
    assert_eq!(other.messages(stream).len(), 1);
    let (_, request) = other.taken(call(&session, 3));
    let peer = &other.requests()[0].peer;
    let name = peer.client.as_ref().map(|client| client.name());
    assert_eq!(name, Some("scripted"));
    other.ask(request, "roots/list", Value::Null);
    let ask = other.verb(|server, now| server.ask(now, request, "sampling/createMessage", None));
    assert!(ask.is_err(), "it did not say that it can be asked this");
    other.finish();
}

/// The server does not revive a stored session of a version that it does not support. The client gets 404 and starts
/// a new session.
#[test]
fn a_session_of_another_version_is_not_revived() {
    let mut records = MemorySessions::new(8);
    records.put(&SessionRecord::new("abc", Version::V2025_06_18));
    let mut newest = config();
    newest.versions = Versions::only(Version::V2025_11_25);
    let events = MemoryEvents::new(Replay::default());
    let server = Server::with_stores(newest, Box::new(records), Box::new(events));
    let mut site = Site::around(server);
    let lost = Session::new("abc", "2025-11-25");
    let lost = site.send(lost.post(1, "ping", Value::Null));
    assert_eq!(site.status(lost), 404);
    site.finish();
}

/// A request runs at one server, and its client resumes at the other. The client can retry until the reply is there.
#[test]
fn a_stream_of_the_other_server_can_be_waited_for() {
    let (mut one, mut other) = siblings(true);
    let session = one.session("2025-11-25");
    let lost = one.send(call(&session, 1));
    let request = one.newest();
    let last = one.last_event_id(lost);
    one.hangs_up(lost);
    let early = other.send(session.resume(&last));
    assert_eq!(other.status(early), 200);
    assert!(other.is_over(early) && other.messages(early).is_empty());
    one.respond(request, json!({"content": []}));
    let resumed = other.send(session.resume(&last));
    assert_eq!(other.messages(resumed).len(), 1);
    one.finish();
    other.finish();
}

#[test]
fn a_session_that_is_revived_before_the_offer_hears_all() {
    let (mut one, mut other) = siblings(false);
    let session = one.session("2025-11-25");
    let stream = other.send(session.get());
    let waiting = other.send(call(&session, 1));
    other.verb(|server, now| server.offer(now, everything()));
    other.publish(Change::List(List::Tools));
    assert_eq!(other.messages(stream).len(), 1);
    let request = other.newest();
    other.respond(request, json!({"content": []}));
    assert!(other.is_over(waiting));
    one.finish();
    other.finish();
}

#[test]
fn a_session_that_ends_takes_along_what_waits_for_the_offer() {
    let (mut one, mut other) = siblings(false);
    let session = one.session("2025-11-25");
    let waiting = other.send(call(&session, 1));
    other.send(session.delete());
    assert!(other.is_over(waiting));
    one.finish();
    other.finish();
}

#[test]
fn whoever_sends_little_does_not_pay_for_those_who_send_much() {
    let mut config = config();
    config.limits.message_bytes = 1_000;
    config.limits.body_bytes = 2_500;
    let mut site = Site::new(config);
    let ask = modern(1, "tools/call", json!({"name": "x"}));
    let slow = [(); 3].map(|()| site.begin(&ask));
    for stream in slow {
        site.body(stream, &[b' '; 700]);
    }
    let (call, request) = site.taken(ask);
    site.respond(request, json!({"content": []}));
    assert_eq!(site.status(call), 200);
    let refused = slow.iter().filter(|stream| site.is_answered(**stream));
    let statuses: Vec<u16> = refused.map(|stream| site.status(*stream)).collect();
    assert_eq!(statuses, [503], "one of those who send much");
}

#[test]
fn what_is_told_to_one_client_is_told_to_no_other() {
    let mut site = Site::new(config());
    let sessions = [(); 2].map(|()| site.session("2025-11-25"));
    let streams = sessions.clone().map(|session| site.send(session.get()));
    site.taken(sessions[1].post(1, "tools/call", json!({"name": "x"})));
    let caller = site.requests()[0].caller.clone();
    let told = |server: &mut everlink::Server, now| {
        server.notify_to(now, &caller, "notifications/acme/done", None)
    };
    site.verb(told).expect("it is in a session");
    assert!(site.said(streams[0], "notifications/acme/done").is_empty());
    assert_eq!(site.said(streams[1], "notifications/acme/done").len(), 1);
    // A modern client without a session has no stream for this notification.
    let (_, request) = site.taken(modern(1, "tools/call", json!({"name": "x"})));
    let asked = site.requests().into_iter().find(|r| r.request == request);
    let caller = asked.expect("it was asked").caller.clone();
    let told = |server: &mut everlink::Server, now| server.notify_to(now, &caller, "x/y", None);
    assert!(site.verb(told).is_err());
}
