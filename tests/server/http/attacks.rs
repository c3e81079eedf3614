//! Hostile or careless clients. The server end over HTTP must protect the replies, the memory and the secrets of all other clients.

use everlink::protocol::{LogLevel, Version, Versions};
use everlink::server::{Cancelled, Http, MemoryStore, Replay, SessionRecord, SsePaths};
use everlink::{Change, Fault, FaultKind, Input, List, RequestId, StoreRequest, StreamId};
use serde_json::{Value, json};

use crate::server_http::{
    self, Harness, HttpRequest, Session, Store, config, declaring, full_offer, get, http_config,
    initialize, modern, notification, payload, post, seconds, shared_http, stored_http,
};

fn call(session: &Session, id: u64) -> HttpRequest {
    session.post(id, "tools/call", json!({"name": "slow"}))
}

fn log(harness: &mut Harness, request: Option<RequestId>, data: Value) {
    let data = payload(&data);
    harness
        .with_server(|server, now| server.log(now, request, LogLevel::Error, None, data))
        .expect("logging is offered");
}

/// Sends a request, and reads nothing of the response.
fn send_unread(harness: &mut Harness, http_request: &HttpRequest) -> StreamId {
    let stream = harness.begin(http_request);
    harness.stop_reading(stream);
    harness.body(stream, &http_request.body);
    harness.end(stream);
    stream
}

/// HTTP settings that also serve the transport of 2024-11-05.
fn with_sse() -> Http {
    Http::new().with_sse(SsePaths::default())
}

/// Connects a client of 2024-11-05. Returns its event stream and the path that it posts to.
fn open_sse(harness: &mut Harness, reads: bool) -> (StreamId, String) {
    let http_request = get().to("/sse");
    let stream = if reads {
        harness.send(http_request)
    } else {
        send_unread(harness, &http_request)
    };
    let post_path = harness.sse(stream)[0]
        .data
        .clone()
        .expect("a path to post to");
    harness.send(initialize("2024-11-05").to(&post_path));
    (stream, post_path)
}

// Clients that do not read.

/// Messages queue for sessions without a stream or with an unread stream. Other clients are still read from and written
/// to.
#[test]
fn clients_that_do_not_read_do_not_block_others() {
    for replay in [Replay::new(0, 0), Replay::default()] {
        let mut http = Http::new();
        http.replay = replay;
        let mut tight = http_config(http);
        tight.limits.queued_bytes = 10_000;
        tight.limits.all_queued_bytes = 30_000;
        tight.limits.write_window = 1_000;
        let mut harness = Harness::new(tight);
        for _ in 0..8 {
            let session = harness.open_session("2025-11-25");
            send_unread(&mut harness, &session.get());
            harness.open_session("2025-11-25"); // without a stream
        }
        let reader = harness.open_session("2025-11-25");
        let stream = harness.send(reader.get());
        for _ in 0..100 {
            log(&mut harness, None, "x".repeat(500).into());
        }
        assert!(harness.server.wants_input(stream));
        assert_eq!(harness.messages(stream).len(), 100);
        harness.finish();
    }
}

/// The queue of the server's own replies is bounded for a client that does not read them.
#[test]
fn ping_replies_queued_for_an_unread_stream_are_bounded() {
    let mut tight = http_config(with_sse());
    tight.limits.queued_bytes = 10_000;
    tight.limits.all_queued_bytes = 20_000;
    tight.limits.write_window = 100;
    let mut harness = Harness::new(tight);
    let (stream, post_path) = open_sse(&mut harness, false);
    for id in 1..2_000 {
        let ping = json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
        harness.send(post(&ping).to(&post_path));
    }
    harness.resume_reading(stream);
    assert!(harness.text(stream).len() < 20_000);
    harness.finish();
}

/// Unread responses count as exchanges. The oldest is aborted when a new exchange needs its place.
#[test]
fn oldest_unread_response_is_aborted_for_a_new_exchange() {
    let mut tight = config();
    tight.limits.exchanges = 4;
    let mut harness = Harness::new(tight);
    let http_request = |id: u64| modern(id, "server/discover", json!({}));
    let unread: Vec<StreamId> = (0..8)
        .map(|id| send_unread(&mut harness, &http_request(id)))
        .collect();
    for (at, stream) in unread.iter().enumerate() {
        assert_eq!(harness.status(*stream), 200);
        assert_eq!(harness.exchange(*stream).is_aborted(), at < 4, "{at}");
    }
    // A client that reads at least one byte counts as present.
    harness.advance(seconds(40));
    let (stream, len) = (unread[4], 1);
    harness.feed(Input::Sent { stream, len });
    harness.advance(seconds(20));
    assert!(!harness.exchange(unread[4]).is_aborted());
    assert!(harness.exchange(unread[5]).is_aborted());
    harness.finish();
}

/// Unfinished requests reach the exchange limit. The oldest is refused with 503, and a new request is served.
#[test]
fn oldest_unfinished_request_gets_503_for_a_new_exchange() {
    let mut tight = config();
    tight.limits.exchanges = 3;
    let mut harness = Harness::new(tight);
    let http_request = modern(1, "tools/call", json!({"name": "x"}));
    let slow = [(); 3].map(|()| harness.begin(&http_request));
    let (call, request) = harness.send_accepted(http_request);
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.status(call), 200);
    assert_eq!(harness.status(slow[0]), 503);
    assert!(!harness.is_over(slow[1]) && !harness.is_over(slow[2]));
    assert_eq!(harness.server.stats().displaced, 1);
    harness.finish();
}

/// The unread bytes of all clients have a common limit. Only the client with the most unread bytes is cut off.
#[test]
fn largest_unread_response_is_aborted_over_the_common_byte_limit() {
    let mut tight = config();
    tight.limits.queued_bytes = 20_000;
    tight.limits.all_queued_bytes = 100_000;
    let mut harness = Harness::new(tight);
    let http_request = modern(1, "tools/call", json!({"name": "x"}));
    let answer = |bytes: usize| json!({"content": [{"type": "text", "text": "x".repeat(bytes)}]});
    let mut unread = Vec::new();
    for size in [30_000, 40_000, 20_000, 5_000] {
        unread.push(send_unread(&mut harness, &http_request));
        let request = harness.newest_request();
        harness.respond(request, answer(size));
    }
    assert!(
        unread
            .iter()
            .all(|stream| !harness.exchange(*stream).is_aborted())
    );
    // A client that was answered just now had no time to read and is not cut off.
    let reader = harness.send_and_respond(http_request.clone(), answer(30_000));
    assert_eq!(harness.status(reader), 200);
    assert!(!harness.exchange(reader).is_aborted());
    let last = send_unread(&mut harness, &http_request);
    let request = harness.newest_request();
    harness.respond(request, answer(10_000));
    let cut = unread.iter().chain([&last]);
    let cut: Vec<bool> = cut
        .map(|stream| harness.exchange(*stream).is_aborted())
        .collect();
    assert_eq!(cut, [false, true, false, false, false]);
    assert_eq!(harness.server.stats().displaced, 1);
    harness.finish();
}

/// A client that reads no byte of a running stream for four keepalive intervals is given up. A client that reads slowly is
/// kept.
#[test]
fn client_that_reads_nothing_for_four_keepalives_is_dropped() {
    let mut harness = Harness::new(config());
    let http_request = |id: u64| {
        let meta = json!({"progressToken": "p"});
        modern(id, "tools/call", json!({"name": "slow", "_meta": meta}))
    };
    let (unread, dropped) = harness.send_accepted(http_request(1));
    let (slow, _) = harness.send_accepted(http_request(2));
    let (json_only, waiting) =
        harness.send_accepted(http_request(3).with("accept", "application/json"));
    for stream in [unread, slow] {
        harness.stop_reading(stream);
    }
    harness.advance(seconds(15));
    let written = harness.text(unread).len();
    assert!(written > 0, "F-043");
    for _ in 0..3 {
        harness.advance(seconds(15));
        let (stream, len) = (slow, 1);
        harness.feed(Input::Sent { stream, len });
    }
    harness.advance(seconds(14));
    assert!(!harness.is_over(unread));
    harness.advance(seconds(1));
    assert!(harness.exchange(unread).is_aborted());
    assert_eq!(harness.cancellations(), [(dropped, Cancelled::PeerGone)]);
    assert_eq!(
        harness.text(unread).len(),
        written,
        "nothing is written to a client that does not read"
    );
    assert!(!harness.is_over(slow));
    // A client that takes only JSON has nothing to read before the reply, and is kept.
    harness.advance(seconds(600));
    harness.respond(waiting, json!({"content": []}));
    assert_eq!(harness.json(json_only)["result"]["content"], json!([]));
    harness.finish();
}

/// After every response was read, the server has no deadline.
#[test]
fn no_deadline_is_left_after_all_responses_are_read() {
    let mut harness = Harness::new(config());
    for id in 0..3 {
        harness.send(modern(id, "server/discover", json!({})));
    }
    let session = harness.open_session("2025-11-25");
    harness.send(session.get());
    harness.send(session.delete());
    assert_eq!(harness.server.poll_timeout(), None);
    harness.finish();
}

/// A stream is replaced. Late reads on the old stream do not enlarge the write window of the new one.
#[test]
fn reads_on_a_replaced_stream_do_not_enlarge_the_new_window() {
    let mut small_window = config();
    small_window.limits.write_window = 1_000;
    let mut harness = Harness::new(small_window);
    let session = harness.open_session("2025-11-25");
    let old = send_unread(&mut harness, &call(&session, 1));
    let request = harness.newest_request();
    log(&mut harness, Some(request), "x".repeat(1_200).into());
    let primer = harness.sse(old)[0].id.clone().expect("a primer has an id");
    let new = send_unread(&mut harness, &session.resume(&primer));
    for _ in 0..4 {
        log(&mut harness, Some(request), "x".repeat(1_200).into());
    }
    let written = harness.text(new).len();
    harness.resume_reading(old);
    assert_eq!(harness.text(new).len(), written);
    harness.finish();
}

// Clients that use up shared resources.

/// Open asks of one client do not prevent asks to another client.
#[test]
fn open_asks_of_one_client_do_not_block_asks_to_another() {
    let mut harness = Harness::new(config());
    let eve = harness.open_session_by("2025-11-25", Some("eve"));
    harness.send(call(&eve, 1));
    let request = harness.newest_request();
    for _ in 0..64 {
        harness.ask(request, "roots/list", Value::Null);
    }
    let more = harness.with_server(|server, now| server.ask(now, request, "roots/list", None));
    assert!(more.is_err(), "eve has reached the limit");
    for id in 0..64 {
        harness.send(modern(id, "tools/call", json!({"name": "x"})).by(Some("eve")));
        let request = harness.newest_request();
        harness.ask(request, "roots/list", Value::Null);
    }
    let ann = harness.open_session_by("2025-11-25", Some("ann"));
    harness.send(call(&ann, 1));
    let request = harness.newest_request();
    harness.ask(request, "roots/list", Value::Null);
    harness.send(modern(1, "tools/call", json!({"name": "x"})).by(Some("ann")));
    let request = harness.newest_request();
    harness.ask(request, "roots/list", Value::Null);
    harness.finish();
}

/// An unfinished handshake holds its session for less than 120 s. A finished one keeps it for the promised 30 min.
#[test]
fn unfinished_handshake_expires_within_120_s() {
    let mut tight = config();
    tight.limits.sessions = 4;
    let mut harness = Harness::new(tight);
    for _ in 0..4 {
        let begun = harness.send(initialize("2025-11-25").by(Some("eve")));
        assert_eq!(harness.status(begun), 200);
    }
    let late = harness.send(initialize("2025-11-25"));
    assert_eq!(
        harness.status(late),
        200,
        "the oldest unfinished handshake is dropped"
    );
    assert_eq!(harness.server.sessions(), 4);
    harness.advance(seconds(120));
    assert_eq!(harness.server.sessions(), 0);
    let ann = harness.open_session("2025-11-25");
    harness.advance(seconds(25 * 60));
    let ping = harness.send(ann.post(1, "ping", json!({})));
    assert_eq!(harness.status(ping), 200, "a session lasts 30 min");
    harness.finish();
}

/// A client cannot use up what others need: the least used session gives way to a new one, but never a session with an
/// open exchange.
#[test]
fn least_used_session_is_dropped_for_a_new_one() {
    let mut tight = config();
    tight.limits.sessions = 4;
    let mut harness = Harness::new(tight);
    let busy = harness.open_session("2025-11-25");
    harness.send(busy.get());
    let used = harness.open_session("2025-11-25");
    harness.send(used.post(1, "ping", json!({})));
    harness.advance(seconds(1));
    let unused = harness.open_session("2025-11-25");
    harness.advance(seconds(1));
    harness.send(initialize("2025-11-25"));
    let status = |harness: &mut Harness, session: &Session| {
        let ping = harness.send(session.post(9, "ping", json!({})));
        harness.status(ping)
    };
    // First the unfinished handshake gives way, then the session without any request.
    let second = harness.open_session("2025-11-25");
    assert_eq!(harness.server.sessions(), 4);
    let third = harness.open_session("2025-11-25");
    assert_eq!(status(&mut harness, &unused), 404);
    for session in [&busy, &used, &second, &third] {
        assert_eq!(status(&mut harness, session), 200);
        harness.advance(seconds(1));
    }
    // Now all sessions were used. The one with the oldest use gives way, but not one with an open stream.
    let fourth = harness.open_session("2025-11-25");
    assert_eq!(status(&mut harness, &used), 404);
    for session in [&busy, &second, &third, &fourth] {
        assert_eq!(status(&mut harness, session), 200);
    }
    harness.finish();
}

/// A client cannot use up what others need: the number of open requests per session is limited, and other sessions are
/// not affected.
#[test]
fn open_requests_per_session_are_limited() {
    let mut tight = config();
    tight.limits.requests = 8;
    tight.limits.requests_each = 3;
    let mut harness = Harness::new(tight);
    let (eve, ann) = (
        harness.open_session("2025-11-25"),
        harness.open_session("2025-11-25"),
    );
    for id in 1..=3 {
        harness.send_accepted(call(&eve, id));
    }
    let excess = harness.send(call(&eve, 4));
    let refused = harness.reply(excess)["error"]["message"].to_string();
    assert!(refused.contains("3 requests of this session"), "{refused}");
    harness.send_accepted(call(&ann, 1));
    harness.finish();
}

/// A client cannot use up what others need: at the request limit, calls whose client is gone are cancelled first. A
/// client that resumes one gets an error.
#[test]
fn call_of_a_disconnected_client_is_cancelled_for_a_new_one() {
    let mut tight = config();
    tight.limits.requests = 3;
    let mut harness = Harness::new(tight);
    let (eve, ann) = (
        harness.open_session("2025-11-25"),
        harness.open_session("2025-11-25"),
    );
    let mut calls = Vec::new();
    for id in 1..=3 {
        calls.push(harness.send_accepted(call(&eve, id)));
    }
    let primer = harness.last_event_id(calls[1].0);
    for (stream, _) in &calls {
        harness.disconnect(*stream);
    }
    assert_eq!(harness.cancellations(), [], "the client may resume");
    for id in 1..=2 {
        harness.send_accepted(call(&ann, id));
    }
    let gone = [calls[0].1, calls[1].1].map(|request| (request, Cancelled::PeerGone));
    assert_eq!(harness.cancellations(), gone, "the oldest first");
    let again = harness.send(eve.resume(&primer));
    let text = harness.text(again);
    assert!(text.contains("others needed its place"), "{text}");
    assert!(harness.is_over(again));
    harness.finish();
}

/// A client cannot use up what others need: when waiting clients have reached the limit, the session with the most
/// requests loses one.
#[test]
fn session_with_most_requests_loses_one_when_the_limit_is_reached() {
    let mut tight = config();
    tight.limits.requests = 3;
    let mut harness = Harness::new(tight);
    let (eve, ann) = (
        harness.open_session("2025-11-25"),
        harness.open_session("2025-11-25"),
    );
    let calls = [1, 2, 3].map(|id| harness.send_accepted(call(&eve, id)));
    let excess = harness.send(call(&eve, 4));
    assert!(
        harness
            .text(excess)
            .contains("3 requests are not answered yet")
    );
    harness.send_accepted(call(&ann, 1));
    let message = harness.reply(calls[0].0)["error"]["message"].to_string();
    assert!(message.contains("others needed its place"), "{message}");
    harness.send_accepted(modern(1, "tools/call", json!({"name": "x"})));
    let gone = [calls[0].1, calls[1].1].map(|request| (request, Cancelled::PeerGone));
    assert_eq!(harness.cancellations(), gone);
    // Now every client has one request. No client has more than another, so the new request is refused.
    assert_eq!(
        harness
            .send_refused(modern(2, "tools/call", json!({"name": "x"})))
            .0,
        503
    );
    harness.finish();
}

/// A client cannot use up what others need: requests outside of sessions count for their user or address. So a flood of them displaces no
/// request of a session, and gives way when a session needs a place.
#[test]
fn requests_outside_of_sessions_displace_none_of_sessions_that_have_fewer() {
    let mut tight = config();
    tight.limits.requests = 6;
    let mut harness = Harness::new(tight);
    let ann = harness.open_session("2025-11-25");
    for id in 1..=2 {
        harness.send_accepted(call(&ann, id));
    }
    let flood = || modern(1, "tools/call", json!({"name": "x"}));
    let calls = [1, 2, 3, 4].map(|_| harness.send_accepted(flood()));
    assert_eq!(harness.send_refused(flood()).0, 503);
    assert_eq!(harness.cancellations(), []);
    harness.send_accepted(call(&ann, 3));
    let (stream, oldest) = calls[0];
    assert_eq!(harness.cancellations(), [(oldest, Cancelled::PeerGone)]);
    // It may have run, so no status says that it can be repeated.
    assert_eq!(harness.status(stream), 200);
    let message = harness.reply(stream)["error"]["message"].to_string();
    assert!(message.contains("it may have run"), "{message}");
    harness.finish();
}

#[test]
fn user_or_address_with_most_requests_outside_of_sessions_loses_one_to_another() {
    let by = |user, address| {
        modern(1, "tools/call", json!({"name": "x"}))
            .by(user)
            .coming_from(address)
    };
    for (eve, ann) in [
        (by(Some("eve"), "192.0.2.1"), by(Some("ann"), "192.0.2.1")),
        (by(None, "192.0.2.1"), by(None, "192.0.2.2")),
        (by(None, "2001:db8::1"), by(None, "2001:db8:0:1::1")),
    ] {
        let mut tight = config();
        tight.limits.requests = 4;
        let mut harness = Harness::new(tight);
        let [oldest, ..] = [1, 2, 3].map(|_| harness.send_accepted(eve.clone()).1);
        harness.send_accepted(ann.clone());
        harness.send_refused(eve.clone());
        harness.send_accepted(ann.clone());
        assert_eq!(harness.cancellations(), [(oldest, Cancelled::PeerGone)]);
        harness.send_refused(ann);
        harness.send_refused(eve);
        harness.finish();
    }
}

/// A client that is asked for input holds no place until it comes back.
#[test]
fn request_whose_client_is_asked_for_input_counts_for_its_user_when_it_comes_back() {
    let mut tight = config();
    tight.limits.requests = 4;
    let mut harness = Harness::new(tight);
    let params = || declaring(&json!({"roots": {}}), json!({"name": "x"}));
    let eve = |params| modern(1, "tools/call", params).by(Some("eve"));
    let ann = || modern(1, "tools/call", json!({"name": "x"})).by(Some("ann"));
    let (asked, oldest) = harness.send_accepted(eve(params()));
    harness.ask(oldest, "roots/list", Value::Null);
    let mut again = params();
    again["requestState"] = harness.result(asked)["requestState"].clone();
    again["inputResponses"] = json!({"1": {"roots": []}});
    harness.send_accepted(eve(params()));
    harness.send_accepted(eve(params()));
    harness.send_accepted(ann());
    harness.send(eve(again));
    harness.send_accepted(ann());
    assert_eq!(harness.cancellations(), [(oldest, Cancelled::PeerGone)]);
    harness.send_refused(ann());
    harness.finish();
}

/// A user's tool list defines which arguments must be repeated in header fields, for that user only.
#[test]
fn param_headers_of_one_user_are_not_required_of_another() {
    let mut harness = Harness::new(config());
    let schema =
        json!({"type": "object", "properties": {"x": {"type": "string", "x-mcp-header": "X"}}});
    let list = json!({"tools": [{"name": "pay", "inputSchema": schema}]});
    harness.send_and_respond(modern(1, "tools/list", json!({})).by(Some("ann")), list);
    let pay = |user| {
        let params = json!({"name": "pay", "arguments": {"x": "1"}});
        modern(2, "tools/call", params).by(Some(user))
    };
    let (status, _) = harness.send_refused(pay("ann"));
    assert_eq!(status, 400, "ann's tool has a header");
    harness.send_accepted(pay("eve"));
    harness.finish();
}

/// The lists of many users fill the room for what must be repeated. The oldest of them gives way, so that the newest is checked.
#[test]
fn calls_of_a_user_are_checked_although_others_listed_many_tools_before() {
    let mut harness = Harness::new(config());
    let schema =
        json!({"type": "object", "properties": {"x": {"type": "string", "x-mcp-header": "X"}}});
    let name = |n: u64| format!("{n:03}{}", "x".repeat(3_000));
    let tools = (0..100).map(|n| json!({"name": name(n), "inputSchema": schema}));
    let list = json!({"tools": Value::from_iter(tools)});
    let users = ["ann", "bob", "cat", "eve"].map(Some);
    for user in users {
        let listing = modern(1, "tools/list", json!({})).by(user);
        harness.send_and_respond(listing, list.clone());
    }
    for user in &users[1..] {
        let params = json!({"name": name(99), "arguments": {"x": "1"}});
        let pay = modern(2, "tools/call", params).by(*user);
        assert_eq!(harness.send_refused(pay).0, 400, "{user:?}");
    }
    harness.finish();
}

/// Each watch keeps its own copy of its URIs. All watches together have a limit.
#[test]
fn watched_uris_of_all_clients_count_towards_one_limit() {
    let mut tight = config();
    tight.limits.watched_uris = 16;
    tight.limits.watched_bytes = 16_000;
    let mut harness = Harness::new(tight);
    let uris: Vec<String> = (0..16).map(|i| format!("file:///{i:0980}")).collect();
    let wanted = json!({"notifications": {"resourceSubscriptions": uris}});
    let mut granted = 0;
    for id in 0..100 {
        let watch = harness.send(modern(id, "subscriptions/listen", wanted.clone()));
        let answer = &harness.messages(watch)[0];
        let accepted = answer["params"]["notifications"]["resourceSubscriptions"].as_array();
        granted += accepted.map_or(0, Vec::len);
    }
    assert!(granted < 16 * 20, "{granted} URIs");
    harness.finish();
}

/// Messages that wait for the offer are bounded, however many clients repeat them.
#[test]
fn messages_waiting_for_the_offer_are_limited() {
    let mut deferred = http_config(with_sse());
    deferred.offer = None;
    deferred.limits.requests = 8;
    let mut harness = Harness::new(deferred);
    let post_paths = [(); 2].map(|()| open_sse(&mut harness, true).1);
    for post_path in post_paths.iter().cycle().take(200) {
        let done = notification("notifications/initialized", Value::Null);
        harness.send(done.to(post_path));
    }
    assert!(
        harness.server.requests() <= 8,
        "{}",
        harness.server.requests()
    );
    let other = harness.send(modern(1, "server/discover", json!({})));
    assert!(
        !harness.is_answered(other),
        "the request waits for the offer"
    );
    harness.with_server(|server, now| server.offer(now, full_offer()));
    assert_eq!(harness.status(other), 200);
    harness.finish();
}

/// Header fields count towards the limit for bytes that are still arriving.
#[test]
fn header_bytes_count_towards_the_body_limit() {
    let mut tight = config();
    tight.limits.body_bytes = 100_000;
    tight.limits.message_bytes = 100_000;
    let mut harness = Harness::new(tight);
    let long = "y".repeat(60_000);
    let http_request = modern(1, "server/discover", json!({})).with("mcp-param-x", long);
    let begun: Vec<StreamId> = (0..20).map(|_| harness.begin(&http_request)).collect();
    let unanswered = begun.iter().filter(|stream| !harness.is_answered(**stream));
    assert!(unanswered.count() <= 2);
    harness.finish();
}

// Events that are kept for clients that lose their stream.

/// Notifications without a reader do not displace stored replies. The data of other sessions does not, either.
#[test]
fn notifications_do_not_displace_stored_replies() {
    let mut http = Http::new();
    http.replay = Replay::new(256, 10_000);
    http.replay.all_bytes = 30_000;
    let mut harness = Harness::new(http_config(http));
    for _ in 0..4 {
        let eve = harness.open_session_by("2025-11-25", Some("eve"));
        harness.send(call(&eve, 1));
        let request = harness.newest_request();
        harness.respond(request, json!({"content": [], "x": "y".repeat(9_000)}));
    }
    for _ in 0..300 {
        log(&mut harness, None, "x".repeat(50).into());
    }
    let ann = harness.open_session_by("2025-11-25", Some("ann"));
    let lost = harness.send(call(&ann, 1));
    let request = harness.newest_request();
    let last = harness.last_event_id(lost);
    harness.disconnect(lost);
    harness.respond(request, json!({"content": [], "x": "y".repeat(500)}));
    for _ in 0..300 {
        log(&mut harness, None, "x".into());
    }
    let resumed = harness.send(ann.resume(&last));
    assert_eq!(harness.status(resumed), 200, "{}", harness.text(resumed));
    assert_eq!(harness.messages(resumed).len(), 1);
    harness.finish();
}

/// A reply is too long to be stored. The client gets an error; an empty stream would make it resume again and again.
#[test]
fn resuming_a_stream_whose_reply_is_too_long_to_store_gets_400() {
    let mut http = Http::new();
    http.replay = Replay::new(10, 1_000);
    let mut harness = Harness::new(http_config(http));
    let session = harness.open_session("2025-11-25");
    let lost = harness.send(call(&session, 1));
    let request = harness.newest_request();
    log(&mut harness, Some(request), "a".into());
    let last = harness.last_event_id(lost);
    harness.disconnect(lost);
    harness.respond(request, json!({"content": [], "x": "y".repeat(2_000)}));
    let resumed = harness.send(session.resume(&last));
    assert_eq!(harness.status(resumed), 400);
    harness.finish();
}

/// Many other replies were too long since then, and the client is still told.
#[test]
fn resuming_a_stream_whose_long_reply_was_dropped_long_ago_gets_400() {
    let mut http = Http::new();
    http.replay = Replay::new(256, 1_000);
    let mut harness = Harness::new(http_config(http));
    let session = harness.open_session("2025-11-25");
    let long = || json!({"content": [], "x": "y".repeat(2_000)});
    let (lost, request) = harness.send_accepted(call(&session, 1));
    log(&mut harness, Some(request), "a".into());
    let last = harness.last_event_id(lost);
    harness.disconnect(lost);
    harness.respond(request, long());
    for id in 2..=100 {
        harness.send_and_respond(call(&session, id), long());
    }
    let resumed = harness.send(session.resume(&last));
    assert_eq!(harness.status(resumed), 400, "{}", harness.text(resumed));
    harness.finish();
}

/// The client of a request has lost its stream. An ask for this request goes to a stream that the client reads.
#[test]
fn ask_goes_to_the_session_stream_if_the_request_stream_is_lost() {
    for (replay, version, accept) in [
        (Replay::new(0, 0), "2025-11-25", "*/*"),
        (Replay::default(), "2025-11-25", "application/json"),
        (Replay::default(), "2025-06-18", "*/*"), // no primer, so no event id
    ] {
        let mut http = Http::new();
        http.replay = replay;
        let mut harness = Harness::new(http_config(http));
        let session = harness.open_session(version);
        let stream = harness.send(session.get());
        let lost = harness.send(call(&session, 1).with("accept", accept));
        let request = harness.newest_request();
        harness.disconnect(lost);
        let ask = harness.ask(request, "roots/list", Value::Null);
        let messages = harness.messages(stream);
        assert_eq!(messages[0]["method"], "roots/list");
        harness.send(session.answer(&messages[0]["id"], json!({"roots": []})));
        assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
        harness.finish();
    }
}

/// The client reads no stream yet. The ask waits on the request's stream if that can be resumed, else on the session's stream.
/// S-LHTTP-15: a client that takes only JSON does not get the ask on the response, either.
#[test]
fn ask_waits_for_the_stream_that_its_client_can_open() {
    for (replay, accept, resumes) in [
        (Replay::default(), "*/*", true),
        (Replay::default(), "application/json", false),
        (Replay::new(0, 0), "*/*", false),
        (Replay::new(0, 0), "application/json", false),
    ] {
        let mut http = Http::new();
        http.replay = replay;
        let mut harness = Harness::new(http_config(http));
        let session = harness.open_session("2025-11-25");
        let http_request = call(&session, 1).with("accept", accept);
        let (lost, request) = harness.send_accepted(http_request);
        if accept == "*/*" {
            harness.disconnect(lost);
        }
        harness.ask(request, "roots/list", Value::Null);
        assert_eq!(harness.ask_ids("roots/list"), server_http::NO_MESSAGES);
        let resumed = if resumes {
            let last = harness.last_event_id(lost);
            harness.send(session.resume(&last))
        } else {
            harness.send(session.get())
        };
        assert_eq!(
            harness.messages_with(resumed, "roots/list").len(),
            1,
            "{replay:?} {accept}"
        );
        harness.respond(request, json!({"content": []}));
        if accept == "application/json" {
            assert_eq!(harness.json(lost)["result"]["content"], json!([]));
        }
        harness.finish();
    }
}

// Duplicate members and late messages.

/// S-HDR-09: a message with a duplicate member is refused, because two readers may read different values.
#[test]
fn duplicate_or_escaped_members_cannot_bypass_the_header_check() {
    let schema = json!({"type": "object", "properties": {
        "tenant": {"type": "string", "x-mcp-header": "Tenant"},
    }});
    let list = payload(&json!({"tools": [{"name": "t", "inputSchema": schema}]}));
    let mut harness = Harness::new(config());
    harness.with_server(|server, now| server.tools(now, &list));
    let http_request = modern(
        1,
        "tools/call",
        json!({"name": "t", "arguments": {"tenant": "mine"}}),
    );
    let http_request = http_request.with("mcp-param-tenant", "mine");
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
        let mut http_request = http_request.clone().without(without);
        let text = String::from_utf8(http_request.body).unwrap();
        assert!(text.contains(once));
        http_request.body = text.replace(once, twice).into_bytes();
        let stream = harness.send(http_request);
        assert_eq!(harness.status(stream), 400, "{twice}");
    }
    let stream = harness.send(http_request);
    assert!(
        !harness.is_answered(stream),
        "the unchanged request is accepted"
    );
    harness.finish();
}

/// A handshake that waits 40 s for the offer still names its session.
#[test]
fn handshake_answered_after_40_s_still_names_its_session() {
    for others in [0, 1] {
        let mut deferred = config();
        let offer = deferred.offer.take().expect("an offer");
        let mut harness = Harness::new(deferred);
        let begun = harness.send(initialize("2025-11-25"));
        let unknown = |_| harness.send(modern(1, "no/such", json!({})));
        let unknown: Vec<StreamId> = (0..others).map(unknown).collect();
        harness.advance(seconds(40));
        harness.with_server(|server, now| server.offer(now, offer));
        assert_eq!(harness.status(begun), 200);
        assert!(harness.field(begun, "mcp-session-id").is_some());
        for unknown in unknown {
            assert_eq!(harness.status(unknown), 404, "S-HTTP-29");
        }
        harness.finish();
    }
}

/// A body that ends with the fault `Closed` counts as complete.
#[test]
fn body_that_ends_with_the_closed_fault_is_complete() {
    let mut harness = Harness::new(config());
    let http_request = modern(1, "server/discover", json!({}));
    let stream = harness.begin(&http_request);
    harness.body(stream, &http_request.body);
    let faults = vec![Fault::new(FaultKind::Closed)].into();
    harness.feed(Input::End { stream, faults });
    assert_eq!(harness.status(stream), 200);
    harness.finish();
}

/// A request is still arriving when the service shuts down. Its client gets 503 and `Retry-After`.
#[test]
fn request_still_arriving_at_shutdown_gets_503_and_retry_after() {
    let mut harness = Harness::new(config());
    let http_request = modern(1, "tools/call", json!({"name": "x"}));
    let stream = harness.begin(&http_request);
    harness.body(stream, &http_request.body[..10]);
    harness.shutdown();
    assert_eq!(harness.status(stream), 503);
    assert!(harness.field(stream, "retry-after").is_some());
    harness.finish();
}

/// S-VER-12: a server without the legacy era names its versions in the refusal of a handshake.
#[test]
fn modern_server_lists_its_versions_when_it_refuses_a_handshake() {
    let mut modern_only = config();
    modern_only.versions = Versions::MODERN;
    let mut harness = Harness::new(modern_only);
    let begun = harness.send(initialize("2025-11-25"));
    assert_eq!(harness.status(begun), 400);
    let supported = &harness.json(begun)["error"]["data"]["supported"];
    assert_eq!(*supported, json!(["2026-07-28"]));
    harness.finish();
}

/// The id of a session gives access to it, so the `Debug` output hides it.
#[test]
fn debug_output_of_the_session_store_hides_ids() {
    let mut store = MemoryStore::new(3, Replay::default());
    let record = SessionRecord::new("s3cret", Version::V2025_11_25);
    let lookup = None;
    store.carry_out(
        1,
        StoreRequest::Put {
            lookup,
            record: Box::new(record),
            is_new: true,
            keep: seconds(1),
        },
    );
    assert!(!format!("{store:?}").contains("s3cret"));
}

// Several servers that share their store.

/// Two servers at one address with a shared store and the same secret. The second may still lack its offer.
fn servers_with_shared_stores(is_offered: bool) -> (Harness, Harness) {
    let store = Store::default();
    let server = |instance, is_offered: bool| {
        let mut config = http_config(shared_http(instance));
        config.offer = config.offer.filter(|_| is_offered);
        Harness::with_store(config, &store)
    };
    (server(1, true), server(2, is_offered))
}

#[test]
fn servers_with_shared_stores_give_different_session_ids() {
    let (mut one, mut other) = servers_with_shared_stores(true);
    let ann = one.open_session_by("2025-11-25", Some("ann"));
    let eve = other.open_session_by("2025-11-25", Some("eve"));
    assert_ne!(ann.id, eve.id);
    one.finish();
    other.finish();
}

/// The user, the capabilities, the log level and the subscriptions of a session hold at the second server, too.
#[test]
fn session_state_holds_at_another_server() {
    let (mut one, mut other) = servers_with_shared_stores(true);
    let handshake = server_http::initialize_with("2025-11-25", &json!({"roots": {}}));
    let session = one.open_session_with(handshake, "2025-11-25", Some("ann"));
    let uri = "file:///a";
    let level = json!({"level": "critical"});
    one.send(session.post(1, "logging/setLevel", level));
    one.send(session.post(2, "resources/subscribe", json!({"uri": uri})));
    one.store.leave();
    one.finish();

    let other_user = other.send(session.get().by(Some("eve")));
    assert_eq!(other.status(other_user), 404);
    let stream = other.send(session.get());
    // It may have missed changes, so it is told that all that it watches may have changed.
    let count = other.messages(stream).len();
    assert_eq!(count, 4, "three lists, and the resource");
    log(&mut other, None, "an error".into());
    assert_eq!(
        other.messages(stream).len(),
        count,
        "an error is below the level of the session"
    );
    other.publish(Change::Resource { uri: uri.into() });
    assert_eq!(other.messages(stream).len(), count + 1);
    let (_, request) = other.send_accepted(call(&session, 3));
    let peer = &other.requests()[0].peer;
    let name = peer.client.as_ref().map(|client| client.name());
    assert_eq!(name, Some("scripted"));
    other.ask(request, "roots/list", Value::Null);
    let ask =
        other.with_server(|server, now| server.ask(now, request, "sampling/createMessage", None));
    assert!(ask.is_err(), "the client did not declare sampling");
    other.finish();
}

/// The server does not revive a stored session of a version that it does not support. The client gets 404 and starts
/// a new session.
#[test]
fn stored_session_of_an_unsupported_version_gets_404() {
    let store = Store::default();
    store.put(SessionRecord::new("abc", Version::V2025_06_18));
    let mut newest = http_config(stored_http(1));
    newest.versions = Versions::only(Version::V2025_11_25);
    let mut harness = Harness::with_store(newest, &store);
    let lost = Session::new("abc", "2025-11-25");
    let lost = harness.send(lost.post(1, "ping", Value::Null));
    assert_eq!(harness.status(lost), 404);
    harness.finish();
}

#[test]
fn session_restored_before_the_offer_gets_changes_and_replies() {
    let (mut one, mut other) = servers_with_shared_stores(false);
    let session = one.open_session("2025-11-25");
    one.store.leave();
    let stream = other.send(session.get());
    let waiting = other.send(call(&session, 1));
    other.with_server(|server, now| server.offer(now, full_offer()));
    other.publish(Change::List(List::Tools));
    assert_eq!(other.messages(stream).len(), 1);
    let request = other.newest_request();
    other.respond(request, json!({"content": []}));
    assert!(other.is_over(waiting));
    one.finish();
    other.finish();
}

#[test]
fn session_restored_before_the_offer_gets_changes_although_an_older_one_has_ended() {
    let (mut one, mut other) = servers_with_shared_stores(false);
    let sessions = [(); 2].map(|()| one.open_session("2025-11-25"));
    one.store.leave();
    let streams = sessions.clone().map(|session| other.send(session.get()));
    other.send(sessions[0].delete());
    other.with_server(|server, now| server.offer(now, full_offer()));
    other.publish(Change::List(List::Tools));
    assert_eq!(other.messages(streams[1]).len(), 1);
    one.finish();
    other.finish();
}

#[test]
fn cancelled_request_that_waits_for_the_offer_ends_its_exchange() {
    let (mut one, mut other) = servers_with_shared_stores(false);
    let session = one.open_session("2025-11-25");
    one.store.leave();
    let waiting = other.send(call(&session, 1));
    assert!(!other.is_over(waiting));
    other.send(session.notification("notifications/cancelled", json!({"requestId": 1})));
    assert!(other.is_over(waiting));
    one.finish();
    other.finish();
}

#[test]
fn deleting_a_session_ends_its_requests_waiting_for_the_offer() {
    let (mut one, mut other) = servers_with_shared_stores(false);
    let session = one.open_session("2025-11-25");
    one.store.leave();
    let waiting = other.send(call(&session, 1));
    other.send(session.delete());
    assert!(other.is_over(waiting));
    one.finish();
    other.finish();
}

#[test]
fn small_request_is_served_and_a_large_unfinished_one_refused() {
    let mut config = config();
    config.limits.message_bytes = 1_000;
    config.limits.body_bytes = 2_500;
    let mut harness = Harness::new(config);
    let http_request = modern(1, "tools/call", json!({"name": "x"}));
    let slow = [(); 3].map(|()| harness.begin(&http_request));
    for stream in slow {
        harness.body(stream, &[b' '; 700]);
    }
    let (call, request) = harness.send_accepted(http_request);
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.status(call), 200);
    let refused = slow.iter().filter(|stream| harness.is_answered(**stream));
    let statuses: Vec<u16> = refused.map(|stream| harness.status(*stream)).collect();
    assert_eq!(statuses, [503], "one of the large requests");
}

#[test]
fn notify_to_reaches_only_its_client() {
    let mut harness = Harness::new(config());
    let sessions = [(); 2].map(|()| harness.open_session("2025-11-25"));
    let streams = sessions.clone().map(|session| harness.send(session.get()));
    harness.send_accepted(sessions[1].post(1, "tools/call", json!({"name": "x"})));
    let caller = harness.requests()[0].caller.clone();
    let notify = |server: &mut everlink::Server, now| {
        server.notify_to(now, &caller, "notifications/acme/done", None)
    };
    harness
        .with_server(notify)
        .expect("the caller has a session");
    assert!(
        harness
            .messages_with(streams[0], "notifications/acme/done")
            .is_empty()
    );
    assert_eq!(
        harness
            .messages_with(streams[1], "notifications/acme/done")
            .len(),
        1
    );
    // A modern client without a session has no stream for this notification.
    let (_, request) = harness.send_accepted(modern(1, "tools/call", json!({"name": "x"})));
    let request_event = harness
        .requests()
        .into_iter()
        .find(|r| r.request == request);
    let caller = request_event.expect("the request arrived").caller.clone();
    let notify = |server: &mut everlink::Server, now| server.notify_to(now, &caller, "x/y", None);
    assert!(harness.with_server(notify).is_err());
}
