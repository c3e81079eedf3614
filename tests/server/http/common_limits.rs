//! Limits that all clients share: what counts towards them and for how long, and which exchange ends first.

use everlink::protocol::LogLevel;
use everlink::server::{Cancelled, Config, Progress, RefusalCause, State};
use everlink::{Input, RequestId, StreamId};
use serde_json::{Value, json};

use crate::server_http::{
    Harness, HttpRequest, Session, Store, config, http_config, initialize, modern, seconds,
    stored_http,
};

/// A configuration in which the clients together may leave 20,000 bytes unread.
fn tight() -> Config {
    let mut config = config();
    config.limits.queued_bytes = 20_000;
    config.limits.all_queued_bytes = 20_000;
    config
}

fn modern_call(id: u64) -> HttpRequest {
    let meta = json!({"progressToken": "p"});
    modern(id, "tools/call", json!({"name": "slow", "_meta": meta}))
}

fn call(session: &Session, id: u64) -> HttpRequest {
    let meta = json!({"progressToken": "p"});
    session.post(id, "tools/call", json!({"name": "slow", "_meta": meta}))
}

/// Sends a request whose client reads nothing of the response.
fn send_unread(harness: &mut Harness, http_request: &HttpRequest) -> (StreamId, RequestId) {
    let stream = harness.begin(http_request);
    harness.stop_reading(stream);
    harness.body(stream, &http_request.body);
    harness.end(stream);
    (stream, harness.newest_request())
}

fn result(bytes: usize) -> Value {
    json!({"content": [{"type": "text", "text": "x".repeat(bytes)}]})
}

/// Reports progress with texts of 3,000 bytes.
fn report_progress(harness: &mut Harness, request: RequestId, times: u32) {
    for step in 1..=times {
        let progress = Progress::new(f64::from(step)).with_message("x".repeat(3_000));
        let done = harness.with_server(|server, now| server.progress(now, request, progress));
        done.expect("the request is open");
    }
}

/// Answers one more request: the server checks the common limits after each answer.
fn answer_another(harness: &mut Harness) {
    let stream = harness.send_and_respond(modern_call(99), result(0));
    assert_eq!(harness.status(stream), 200);
}

#[test]
fn bodies_may_arrive_up_to_exactly_the_common_limit() {
    let mut limited = config();
    limited.limits.message_bytes = 1_000;
    limited.limits.body_bytes = 1_000;
    let mut harness = Harness::new(limited);
    let handshake = initialize("2025-11-25");
    let (one, other) = (harness.begin(&handshake), harness.begin(&handshake));
    harness.body(one, &[b' '; 400]);
    harness.body(other, &[b' '; 600]);
    assert!(!harness.is_answered(one) && !harness.is_answered(other));
    harness.body(one, b" ");
    assert_eq!(
        harness.status(other),
        503,
        "the request with more bytes is refused"
    );
    assert!(!harness.is_answered(one));
    harness.finish();
}

#[test]
fn unread_bytes_may_reach_exactly_the_common_limit() {
    let mut harness = Harness::new(config());
    let read = harness.send_and_respond(modern_call(1), result(6_000));
    let len = harness.text(read).len();
    harness.finish();
    for (limit, is_aborted) in [(2 * len, false), (2 * len - 1, true)] {
        let mut tight = tight();
        tight.limits.queued_bytes = len;
        tight.limits.all_queued_bytes = limit;
        let mut harness = Harness::new(tight);
        // The same id, so that both answers have the same length.
        let unread = [1, 1].map(|id| {
            let (stream, request) = send_unread(&mut harness, &modern_call(id));
            harness.respond(request, result(6_000));
            stream
        });
        answer_another(&mut harness);
        assert_eq!(harness.exchange(unread[0]).is_aborted(), is_aborted);
        assert!(!harness.exchange(unread[1]).is_aborted());
        harness.finish();
    }
}

#[test]
fn bytes_that_were_read_make_room_for_those_of_others() {
    for is_finished in [false, true] {
        let mut harness = Harness::new(tight());
        let streams = [1, 2].map(|id| {
            let (stream, request) = send_unread(&mut harness, &modern_call(id));
            if is_finished {
                harness.respond(request, result(12_000));
            } else {
                report_progress(&mut harness, request, 4);
            }
            if id == 1 {
                harness.resume_reading(stream);
            }
            stream
        });
        answer_another(&mut harness);
        assert_eq!(harness.server.stats().displaced, 0, "{is_finished}");
        assert!(!harness.exchange(streams[0]).is_aborted());
        assert!(!harness.exchange(streams[1]).is_aborted());
        harness.finish();
    }
}

#[test]
fn messages_before_a_reply_also_close_the_connection_with_most_unread_bytes() {
    let mut harness = Harness::new(tight());
    let (most, request) = send_unread(&mut harness, &modern_call(1));
    report_progress(&mut harness, request, 5);
    let (less, request) = send_unread(&mut harness, &modern_call(2));
    report_progress(&mut harness, request, 3);
    assert!(harness.exchange(most).is_aborted());
    assert!(!harness.exchange(less).is_aborted());
    harness.finish();
}

/// The last message that is written makes all of them too many. The connection that is closed for it has the last open request.
#[test]
fn drain_goes_on_when_the_last_request_ends_with_its_unread_connection() {
    let mut limit = 1 << 20;
    for is_cut in [false, true] {
        let mut tight = tight();
        tight.limits.queued_bytes = limit;
        tight.limits.all_queued_bytes = limit;
        let mut harness = Harness::new(tight);
        let (most, unanswered) = send_unread(&mut harness, &modern_call(1));
        report_progress(&mut harness, unanswered, 5);
        let (last, request) = send_unread(&mut harness, &modern_call(2));
        harness.shutdown();
        harness.respond(request, result(12_000));
        assert_eq!(harness.exchange(most).is_aborted(), is_cut);
        limit = harness.text(most).len() + harness.text(last).len() - 1;
        let flush = harness.server.config().flush;
        harness.advance(flush);
        assert_eq!(harness.server.state() == State::Closed, is_cut);
        harness.finish();
    }
}

/// Sends a batch of calls whose client reads none of the replies. Returns its stream, and the requests.
fn send_unread_batch(harness: &mut Harness, calls: u64) -> (StreamId, Vec<RequestId>) {
    let session = harness.open_session("2025-03-26");
    let call = |id| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "slow"}});
    let batch = Value::Array((1..=calls).map(call).collect());
    let before = harness.requests().len();
    let (stream, _) = send_unread(harness, &session.post_message(&batch));
    let requests = harness.requests();
    let requests = requests[before..].iter().map(|request| request.request);
    (stream, requests.collect())
}

/// Each reply is the newest message. Only this one message does not count for its client.
#[test]
fn client_that_reads_no_reply_of_its_batch_is_cut_and_no_other() {
    let mut harness = Harness::new(tight());
    let (other, request) = send_unread(&mut harness, &modern_call(1));
    harness.respond(request, result(6_000));
    let (batch, requests) = send_unread_batch(&mut harness, 3);
    for (nth, request) in requests.into_iter().enumerate() {
        assert!(!harness.exchange(batch).is_aborted(), "{nth}");
        harness.respond(request, result(6_000));
    }
    assert!(harness.exchange(batch).is_aborted());
    assert!(!harness.exchange(other).is_aborted());
    harness.finish();
}

#[test]
fn only_client_may_exceed_the_limit_by_one_message() {
    for (bytes, is_cut) in [(4_000, false), (8_000, true)] {
        let mut tight = tight();
        tight.limits.message_bytes = 10_000;
        let mut harness = Harness::new(tight);
        let (batch, requests) = send_unread_batch(&mut harness, 7);
        for request in requests {
            if !harness.exchange(batch).is_aborted() {
                harness.respond(request, result(bytes));
            }
        }
        assert_eq!(harness.exchange(batch).is_aborted(), is_cut, "{bytes}");
        harness.finish();
    }
}

#[test]
fn reply_that_cannot_be_written_yet_counts_at_once() {
    let mut tight = tight();
    tight.limits.write_window = 1_000;
    let mut harness = Harness::new(tight);
    let (most, request) = send_unread(&mut harness, &modern_call(1));
    harness.respond(request, result(12_000));
    let (stuck, request) = send_unread(&mut harness, &modern_call(2));
    report_progress(&mut harness, request, 1);
    let written = harness.text(stuck).len();
    harness.respond(request, result(12_000));
    assert_eq!(harness.text(stuck).len(), written);
    assert!(harness.exchange(most).is_aborted());
    harness.finish();
}

/// The messages that the client had not read go to the new stream, and count there.
#[test]
fn messages_queued_for_a_stream_that_is_replaced_count_once() {
    let mut tight = tight();
    tight.limits.write_window = 1_000;
    let mut harness = Harness::new(tight);
    let session = harness.open_session("2025-11-25");
    let (old, request) = send_unread(&mut harness, &call(&session, 1));
    report_progress(&mut harness, request, 1);
    let primer = harness.sse(old)[0].id.clone().expect("a primer has an id");
    harness.respond(request, result(12_000));
    let new = harness.send(session.resume(&primer));
    assert!(harness.is_over(new));
    let (_, request) = send_unread(&mut harness, &modern_call(2));
    harness.respond(request, result(12_000));
    answer_another(&mut harness);
    assert_eq!(harness.server.stats().displaced, 0);
    assert!(!harness.exchange(old).is_aborted());
    harness.finish();
}

#[test]
fn client_that_reads_a_part_of_a_response_and_stops_is_dropped() {
    let mut harness = Harness::new(config());
    let (unread, request) = send_unread(&mut harness, &modern_call(1));
    harness.respond(request, result(100));
    harness.advance(seconds(40));
    let (stream, len) = (unread, 1);
    harness.feed(Input::Sent { stream, len });
    // The fourth keepalive after that is due at 90 s.
    harness.advance(seconds(49));
    assert!(!harness.exchange(unread).is_aborted());
    harness.advance(seconds(1));
    assert!(harness.exchange(unread).is_aborted());
    harness.finish();
}

#[test]
fn client_has_four_keepalives_from_the_end_of_the_response_to_read_it() {
    let mut harness = Harness::new(config());
    let http_request = modern_call(1).with("accept", "application/json");
    let (unread, request) = send_unread(&mut harness, &http_request);
    harness.advance(seconds(14));
    harness.respond(request, result(100));
    harness.advance(seconds(59));
    assert!(!harness.exchange(unread).is_aborted());
    harness.advance(seconds(1));
    assert!(harness.exchange(unread).is_aborted());
    harness.finish();
}

#[test]
fn request_without_a_place_is_refused_counted_and_reported() {
    let mut tight = config();
    tight.limits.exchanges = 1;
    let mut harness = Harness::new(tight);
    harness.send_accepted(modern_call(1));
    let refused = harness.begin(&modern_call(2));
    assert_eq!(harness.status(refused), 503);
    assert!(harness.field(refused, "retry-after").is_some());
    assert_eq!(harness.server.stats().refused, 1);
    let reported = harness.refusals();
    let reported: Vec<_> = reported.iter().map(|it| (it.status, it.cause)).collect();
    assert_eq!(reported, [(503, RefusalCause::Other)]);
    harness.finish();
}

#[test]
fn unfinished_request_that_gives_way_is_reported() {
    let mut tight = config();
    tight.limits.exchanges = 1;
    let mut harness = Harness::new(tight);
    let slow = harness.begin(&modern_call(1));
    harness.send_accepted(modern_call(2));
    assert_eq!(harness.status(slow), 503);
    let reported = harness.refusals();
    assert_eq!(reported.len(), 1);
    assert!(reported[0].why.contains("had not arrived whole"));
    harness.finish();
}

#[test]
fn session_with_an_open_request_does_not_give_way_to_another() {
    let mut tight = config();
    tight.limits.sessions = 1;
    let mut harness = Harness::new(tight);
    let session = harness.open_session("2025-11-25");
    let (_, request) = harness.send_accepted(call(&session, 1));
    let refused = harness.send(initialize("2025-11-25"));
    assert_eq!(harness.status(refused), 503);
    harness.respond(request, result(0));
    let begun = harness.send(initialize("2025-11-25"));
    assert_eq!(harness.status(begun), 200);
    harness.finish();
}

#[test]
fn session_that_gives_way_counts_as_displaced() {
    let mut tight = config();
    tight.limits.sessions = 1;
    let mut harness = Harness::new(tight);
    for displaced in 0..3 {
        harness.open_session("2025-11-25");
        assert_eq!(harness.server.stats().displaced, displaced);
    }
    harness.finish();
}

// Requests whose client no longer waits.

/// A configuration in which one request may be open.
fn one_request() -> Config {
    let mut config = config();
    config.limits.requests = 1;
    config
}

/// While the offer is not known, requests wait, and count for their clients like those in flight.
#[test]
fn requests_that_wait_for_the_offer_are_divided_among_the_clients() {
    let mut config = config();
    let offer = config.offer.take().expect("an offer");
    config.limits.requests = 3;
    let mut harness = Harness::new(config);
    let from = |id, address: &str| modern_call(id).coming_from(address);
    let waiting = [1, 2, 3].map(|id| harness.send(from(id, "192.0.2.1")));
    let other = harness.send(from(4, "192.0.2.2"));
    assert_eq!(harness.status(waiting[0]), 503);
    assert_eq!(harness.json(waiting[0])["id"], 1);
    assert_eq!(harness.server.stats().displaced, 1);
    // The other client would now have as many as the first.
    assert_eq!(harness.send_refused(from(5, "192.0.2.2")), (503, -32603));
    harness.with_server(|server, now| server.offer(now, offer));
    assert_eq!(harness.requests().len(), 3);
    for stream in [waiting[1], waiting[2], other] {
        assert!(!harness.is_answered(stream));
    }
    harness.finish();
}

#[test]
fn request_whose_client_came_back_does_not_give_way() {
    let mut harness = Harness::new(one_request());
    let session = harness.open_session("2025-11-25");
    let (lost, request) = harness.send_accepted(call(&session, 1));
    let primer = harness.last_event_id(lost);
    harness.disconnect(lost);
    let resumed = harness.send(session.resume(&primer));
    assert_eq!(harness.send_refused(modern_call(2)), (503, -32603));
    assert!(harness.cancellations().is_empty());
    harness.respond(request, result(0));
    assert_eq!(harness.messages(resumed).len(), 1);
    harness.finish();
}

#[test]
fn abandoned_request_gives_way_also_after_another_one_was_answered() {
    let mut harness = Harness::new(one_request());
    let session = harness.open_session("2025-11-25");
    let (lost, answered) = harness.send_accepted(call(&session, 1));
    harness.disconnect(lost);
    harness.respond(answered, result(0));
    let (lost, abandoned) = harness.send_accepted(call(&session, 2));
    harness.disconnect(lost);
    harness.send_accepted(modern_call(3));
    assert_eq!(harness.cancellations(), [(abandoned, Cancelled::PeerGone)]);
    harness.finish();
}

#[test]
fn request_on_whose_client_the_server_hung_up_gives_way() {
    let mut harness = Harness::new(one_request());
    let session = harness.open_session("2025-11-25");
    let (stream, request) = harness.send_accepted(call(&session, 1));
    harness.hang_up(request);
    assert!(harness.is_over(stream));
    harness.send_accepted(modern_call(2));
    assert_eq!(harness.cancellations(), [(request, Cancelled::PeerGone)]);
    assert_eq!(harness.server.stats().displaced, 1);
    harness.finish();
}

/// The client replaces its stream by one that waits for the store, and then leaves.
#[test]
fn request_whose_client_left_while_the_store_was_asked_gives_way() {
    let mut config = http_config(stored_http(1));
    config.limits.requests = 1;
    let mut harness = Harness::with_store(config, &Store::default());
    let session = harness.open_session("2025-11-25");
    let (stream, request) = harness.send_accepted(call(&session, 1));
    let primer = harness.last_event_id(stream);
    harness.store.holds = true;
    let waiting = harness.send(session.resume(&primer));
    assert!(harness.is_over(stream));
    harness.disconnect(waiting);
    harness.answer_store();
    harness.send_accepted(modern_call(2));
    assert_eq!(harness.cancellations(), [(request, Cancelled::PeerGone)]);
    harness.finish();
}

#[test]
fn answered_request_makes_room_for_another_in_its_session() {
    let mut config = config();
    config.limits.requests_each = 1;
    let mut harness = Harness::new(config);
    let session = harness.open_session("2025-11-25");
    for id in 1..4 {
        let (_, request) = harness.send_accepted(call(&session, id));
        assert_eq!(harness.send_refused(call(&session, 9)).1, -32603);
        harness.respond(request, result(0));
    }
    harness.finish();
}

/// Each refused handshake leaves nothing behind that counts towards the limit.
#[test]
fn handshakes_that_the_store_refuses_take_no_room_from_notifications() {
    let mut config = http_config(crate::server_http::shared_http(1));
    config.limits.write_window = 1_000;
    config.limits.queued_bytes = 4_000;
    config.limits.all_queued_bytes = 8_000;
    let mut harness = Harness::with_store(config, &Store::default());
    for _ in 0..50 {
        harness.store.holds = true;
        let refused = harness.send(initialize("2025-11-25"));
        harness.answer_with(everlink::StoreAnswer::Failed);
        assert_eq!(harness.status(refused), 503);
        assert_eq!(harness.json(refused)["id"], 0);
        harness.store.held.clear();
    }
    harness.store.holds = false;
    // No handshake was completed, so the sessions end.
    harness.advance(seconds(61));
    let session = harness.open_session("2025-11-25");
    let stream = harness.send(session.get());
    harness.stop_reading(stream);
    for _ in 0..3 {
        let data = crate::server_http::payload(&json!("x".repeat(1_000)));
        let level = LogLevel::Error;
        let done = harness.with_server(|server, now| server.log(now, None, level, None, data));
        done.expect("logging is offered");
    }
    assert_eq!(harness.server.stats().news_dropped, 0);
    harness.finish();
}

#[test]
fn requests_that_the_server_answers_itself_need_no_place() {
    let mut config = one_request();
    config.limits.requests_each = 1;
    let mut harness = Harness::new(config);
    let session = harness.open_session("2025-11-25");
    let (_, request) = harness.send_accepted(call(&session, 1));
    let discovery = harness.send(modern(2, "server/discover", json!({})));
    assert_eq!(harness.status(discovery), 200);
    let listening = harness.send(modern(
        3,
        "subscriptions/listen",
        json!({"notifications": {}}),
    ));
    assert!(!harness.is_over(listening));
    for (id, method, params) in [
        (4, "logging/setLevel", json!({"level": "error"})),
        (5, "resources/subscribe", json!({"uri": "file:///a"})),
        (6, "resources/unsubscribe", json!({"uri": "file:///a"})),
    ] {
        let answered = harness.send(session.post(id, method, params));
        assert_eq!(harness.result(answered), json!({}), "{method}");
    }
    assert!(harness.cancellations().is_empty());
    harness.respond(request, result(0));
    harness.finish();
}

#[test]
fn request_whose_client_waits_for_the_store_to_resume_it_does_not_give_way() {
    for is_lost_before in [false, true] {
        let mut config = http_config(stored_http(1));
        config.limits.requests = 1;
        let mut harness = Harness::with_store(config, &Store::default());
        let session = harness.open_session("2025-11-25");
        let (stream, request) = harness.send_accepted(call(&session, 1));
        let primer = harness.last_event_id(stream);
        if is_lost_before {
            harness.disconnect(stream);
        }
        harness.store.holds = true;
        let waiting = harness.send(session.resume(&primer));
        assert_eq!(harness.send_refused(modern_call(2)), (503, -32603));
        harness.respond(request, result(0));
        harness.answer_store();
        assert_eq!(harness.result(waiting), result(0));
        harness.finish();
    }
}
