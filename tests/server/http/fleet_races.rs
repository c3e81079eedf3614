//! Servers that share a store: an answer of the store is still on its way, or the other server, the client or a note is gone.

use everlink::server::{
    Allowed, Cancelled, EventStorage, Http, Limits, Progress, SsePaths, State, Storage,
};
use everlink::{Change, List, RequestId, StoreAnswer, StoreRequest, StreamId};
use serde_json::{Value, json};

use super::fleet::{Fleet, call, lease, ping};
use crate::server_http::{
    Harness, HttpRequest, Session, declaring, get, http_config, initialize_with, modern, post,
    seconds, shared_http,
};

/// Settings with which the store has as much time as it wants.
fn patient(mut http: Http) -> Http {
    if let Storage::Driver(storage) = &mut http.storage {
        storage.timeout = seconds(600);
    }
    http
}

/// A call at the first server whose modern client is asked something, and the request with which the client comes back.
fn asked_call(fleet: &mut Fleet) -> (RequestId, HttpRequest) {
    let params = || declaring(&json!({"roots": {}}), json!({"name": "x"}));
    let (asked, request) = fleet.nodes[0].send_accepted(modern(1, "tools/call", params()));
    fleet.nodes[0].ask(request, "roots/list", Value::Null);
    let mut again = params();
    again["requestState"] = fleet.nodes[0].result(asked)["requestState"].clone();
    again["inputResponses"] = json!({"1": {"roots": []}});
    (request, modern(3, "tools/call", again))
}

/// Lets time pass second by second, with the notes that the servers send each other.
fn advance(fleet: &mut Fleet, span: u64) {
    for _ in 0..span {
        for node in &mut fleet.nodes {
            node.advance(seconds(1));
        }
        fleet.settle();
    }
}

/// A server that looks whether another is alive has a deadline each second. This one stays as it is.
#[track_caller]
fn assert_no_server_looks(fleet: &mut Fleet) {
    for node in &mut fleet.nodes {
        node.advance(seconds(2));
        let (next, requests) = (node.server.poll_timeout(), node.store.requests);
        node.advance(seconds(5));
        assert_eq!(node.server.poll_timeout(), next);
        assert_eq!(node.store.requests, requests);
    }
}

fn methods(harness: &Harness, stream: StreamId) -> Vec<String> {
    let messages = harness.messages(stream).into_iter();
    let methods = messages.map(|message| message["method"].as_str().map(str::to_owned));
    methods.map(Option::unwrap_or_default).collect()
}

#[test]
fn request_passed_on_to_a_home_that_left_is_served_here() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    fleet.nodes[1].store.holds = true;
    let called = fleet.nodes[1].send(call(&session, 1));
    fleet.nodes[1].answer_nth(0);
    let held = &fleet.nodes[1].store.held;
    assert!(matches!(held[0], StoreRequest::Tell { .. }), "{held:?}");
    fleet.nodes[0].store.leave();
    fleet.nodes[1].answer_store();
    let request = fleet.nodes[1].newest_request();
    fleet.nodes[1].advance(seconds(3));
    assert!(!fleet.nodes[1].is_over(called), "it waits for nobody else");
    fleet.nodes[1].respond(request, json!({"content": []}));
    assert_eq!(fleet.nodes[1].result(called)["content"], json!([]));
    fleet.finish();
}

#[test]
fn response_that_overtakes_the_answer_of_the_store_is_written_once() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    fleet.nodes[1].store.holds = true;
    let called = fleet.nodes[1].send(call(&session, 1));
    fleet.nodes[1].answer_nth(0);
    let answer = fleet.nodes[1].carry_out_nth(0);
    fleet.settle();
    let request = fleet.nodes[0].newest_request();
    fleet.nodes[0].respond(request, json!({"content": []}));
    fleet.settle();
    assert_eq!(fleet.nodes[1].result(called)["content"], json!([]));
    let stale = fleet.nodes[1].server.stats().stale_inputs;
    fleet.nodes[1].feed(answer);
    assert_eq!(fleet.nodes[1].server.stats().stale_inputs, stale + 1);
    fleet.nodes[1].answer_store();
    fleet.finish();
}

#[test]
fn client_that_leaves_before_the_store_answers_cancels_its_request_at_the_other_server() {
    let mut fleet = Fleet::new();
    let (request, again) = asked_call(&mut fleet);
    fleet.nodes[1].store.holds = true;
    let leaving = fleet.nodes[1].send(again);
    let answer = fleet.nodes[1].carry_out_nth(0);
    fleet.settle();
    fleet.nodes[1].disconnect(leaving);
    fleet.nodes[1].answer_store();
    fleet.settle();
    let cancelled = fleet.nodes[0].cancellations();
    assert_eq!(cancelled, [(request, Cancelled::PeerGone)]);
    let stale = fleet.nodes[1].server.stats().stale_inputs;
    fleet.nodes[1].feed(answer);
    assert_eq!(fleet.nodes[1].server.stats().stale_inputs, stale + 1);
    fleet.finish();
}

#[test]
fn request_passed_on_without_an_answer_in_time_is_cut_here_and_cancelled_there() {
    let mut fleet = Fleet::new();
    let (request, again) = asked_call(&mut fleet);
    fleet.nodes[1].store.holds = true;
    let waiting = fleet.nodes[1].send(again);
    fleet.nodes[1].carry_out_nth(0);
    fleet.settle();
    fleet.nodes[1].advance(seconds(5));
    assert!(fleet.nodes[1].exchange(waiting).is_aborted());
    fleet.nodes[1].answer_store();
    fleet.settle();
    let cancelled = fleet.nodes[0].cancellations();
    assert_eq!(cancelled, [(request, Cancelled::PeerGone)]);
    fleet.finish();
}

#[test]
fn request_passed_on_is_cut_at_the_drain_deadline_and_cancelled_there() {
    let mut fleet = Fleet::with(patient);
    let (request, again) = asked_call(&mut fleet);
    fleet.nodes[1].store.holds = true;
    // A client that does not read keeps the server from closing.
    let own = modern(9, "tools/call", json!({"name": "x"}));
    let (unread, _) = fleet.nodes[1].send_accepted(own);
    fleet.nodes[1].stop_reading(unread);
    let waiting = fleet.nodes[1].send(again);
    let answer = fleet.nodes[1].carry_out_nth(0);
    fleet.settle();
    fleet.nodes[1].shutdown();
    fleet.nodes[1].advance(seconds(5));
    assert!(fleet.nodes[1].exchange(waiting).is_aborted());
    assert_eq!(fleet.nodes[1].server.state(), State::Draining);
    let stale = fleet.nodes[1].server.stats().stale_inputs;
    fleet.nodes[1].feed(answer);
    assert_eq!(fleet.nodes[1].server.stats().stale_inputs, stale + 1);
    fleet.nodes[1].answer_store();
    fleet.settle();
    let cancelled = fleet.nodes[0].cancellations();
    assert_eq!(cancelled, [(request, Cancelled::PeerGone)]);
    fleet.finish();
}

#[test]
fn notification_whose_change_the_store_does_not_take_gets_503() {
    for answer in [StoreAnswer::Failed, StoreAnswer::Done(false)] {
        let mut fleet = Fleet::new();
        let home = &mut fleet.nodes[0];
        let begun = home.send(initialize_with("2025-11-25", &json!({})));
        let id = home.field(begun, "mcp-session-id").expect("an id");
        let session = Session::new(id, "2025-11-25");
        home.store.holds = true;
        let initialized = session.notification("notifications/initialized", Value::Null);
        let refused = home.send(initialized);
        home.answer_with(answer);
        assert_eq!(home.status(refused), 503);
        assert!(home.field(refused, "retry-after").is_some());
        home.answer_store();
        fleet.finish();
    }
}

/// How the store does not take a change.
type Refusal = fn(&mut Harness);

#[test]
fn repeated_notification_is_stored_although_the_store_did_not_take_the_first() {
    let answers: [Refusal; 3] = [
        |home| home.answer_with(StoreAnswer::Failed),
        |home| home.answer_with(StoreAnswer::Done(false)),
        |home| home.advance(seconds(5)),
    ];
    for answer in answers {
        let mut fleet = Fleet::new();
        let home = &mut fleet.nodes[0];
        let begun = home.send(initialize_with("2025-11-25", &json!({})));
        let id = home.field(begun, "mcp-session-id").expect("an id");
        let session = Session::new(id, "2025-11-25");
        home.store.holds = true;
        let initialized = session.notification("notifications/initialized", Value::Null);
        let refused = home.send(initialized.clone());
        answer(home);
        assert_eq!(home.status(refused), 503);
        let text = home.text(refused);
        assert!(!text.contains("not processed"), "it was: {text}");
        home.store.holds = false;
        home.store.held.clear();
        let again = home.send(initialized);
        assert_eq!(home.status(again), 202);
        home.store.leave();
        let stream = fleet.nodes[1].send(session.get());
        let told = methods(&fleet.nodes[1], stream);
        assert!(told.contains(&"notifications/tools/list_changed".to_owned()));
        fleet.finish();
    }
}

#[test]
fn batch_of_notifications_whose_change_the_store_does_not_take_gets_503() {
    let mut fleet = Fleet::new();
    let home = &mut fleet.nodes[0];
    let begun = home.send(initialize_with("2025-03-26", &json!({})));
    let id = home.field(begun, "mcp-session-id").expect("an id");
    let session = Session::new(id, "2025-03-26");
    home.store.holds = true;
    let initialized = json!([{"jsonrpc": "2.0", "method": "notifications/initialized"}]);
    let refused = home.send(session.post_message(&initialized));
    assert!(!home.is_answered(refused));
    home.answer_with(StoreAnswer::Failed);
    assert_eq!(home.status(refused), 503);
    home.answer_store();
    fleet.finish();
}

#[test]
fn setting_that_the_store_does_not_take_is_not_said_to_be_unprocessed() {
    for answer in [StoreAnswer::Failed, StoreAnswer::Done(false)] {
        let mut fleet = Fleet::new();
        let session = fleet.nodes[0].open_session("2025-11-25");
        let home = &mut fleet.nodes[0];
        home.store.holds = true;
        let subscribe = |id| session.post(id, "resources/subscribe", json!({"uri": "a:b"}));
        let refused = home.send(subscribe(1));
        home.answer_with(answer);
        assert_eq!(home.status(refused), 503);
        let text = home.text(refused);
        assert!(!text.contains("not processed"), "it was: {text}");
        home.answer_store();
        home.send(subscribe(2));
        home.store.leave();
        fleet.nodes[1].send(session.get());
        assert!(fleet.nodes[1].server.is_watched("a:b"));
        fleet.finish();
    }
}

/// A batch whose stream waits for the store, because it subscribes to something.
fn batch(session: &Session, subscriptions: &[u64]) -> HttpRequest {
    let mut batch = vec![
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow"}}),
    ];
    batch.extend(subscriptions.iter().map(|id| {
        let params = json!({"uri": format!("a:{id}")});
        json!({"jsonrpc": "2.0", "id": id, "method": "resources/subscribe", "params": params})
    }));
    session.post_message(&Value::Array(batch))
}

fn ids(harness: &Harness, stream: StreamId) -> Vec<(u64, bool)> {
    let replies = harness.messages(stream).into_iter();
    let replies = replies.map(|reply| (reply["id"].as_u64(), reply.get("error").is_some()));
    replies
        .map(|(id, is_error)| (id.expect("an id"), is_error))
        .collect()
}

#[test]
fn other_requests_of_a_batch_are_answered_although_the_store_does_not_take_a_change() {
    for answer in [StoreAnswer::Failed, StoreAnswer::Done(false)] {
        for is_answered_before in [false, true] {
            let mut fleet = Fleet::new();
            let home = &mut fleet.nodes[0];
            let session = home.open_session("2025-03-26");
            home.store.holds = true;
            let (stream, request) = home.send_accepted(batch(&session, &[2]));
            if is_answered_before {
                home.respond(request, json!({"content": []}));
            }
            home.answer_with(answer.clone());
            if !is_answered_before {
                home.respond(request, json!({"content": []}));
            }
            let mut replies = ids(home, stream);
            replies.sort_unstable();
            assert_eq!(replies, [(1, false), (2, true)]);
            assert_eq!((home.status(stream), home.server.requests()), (200, 0));
            assert!(home.is_over(stream));
            home.answer_store();
            fleet.finish();
        }
    }
}

#[test]
fn batch_with_two_changes_waits_until_the_store_has_both() {
    let mut fleet = Fleet::new();
    let home = &mut fleet.nodes[0];
    let session = home.open_session("2025-03-26");
    home.store.holds = true;
    let (stream, request) = home.send_accepted(batch(&session, &[2, 3]));
    home.answer_with(StoreAnswer::Done(true));
    assert!(!home.is_answered(stream), "the second is not stored yet");
    home.answer_with(StoreAnswer::Failed);
    assert_eq!(ids(home, stream), [(2, false), (3, true)]);
    home.respond(request, json!({"content": []}));
    assert!(home.is_over(stream));
    home.answer_store();
    fleet.finish();
}

#[test]
fn request_of_another_server_needs_a_place_at_the_home() {
    let mut limits = Limits::default();
    limits.exchanges = 2;
    let mut fleet = Fleet::with_limits(|http| http, limits);
    let session = fleet.nodes[0].open_session("2025-11-25");
    for id in 1..=2 {
        let own = modern(id, "tools/call", json!({"name": "x"}));
        fleet.nodes[0].send_accepted(own);
    }
    let refused = fleet.send(1, ping(&session, 1));
    assert_eq!(fleet.nodes[1].status(refused), 503);
    assert!(fleet.nodes[1].field(refused, "retry-after").is_some());
    fleet.finish();
}

#[test]
fn request_of_another_server_may_be_as_long_as_the_home_allows() {
    let mut limits = Limits::default();
    limits.message_bytes = 1_000;
    let mut fleet = Fleet::with_limits(|http| http, limits);
    let larger = http_config(shared_http(2));
    fleet.nodes[1] = Harness::with_store(larger, &fleet.nodes[0].store);
    let session = fleet.nodes[0].open_session("2025-11-25");
    let long = session.post(1, "ping", json!({"_meta": {"x": "y".repeat(1_000)}}));
    let refused = fleet.send(1, long);
    assert_eq!(fleet.nodes[1].status(refused), 413);
    fleet.finish();
}

#[test]
fn delete_that_the_store_does_not_carry_out_gets_503_and_forgets_the_messages() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    fleet.nodes[0].store.holds = true;
    let deleted = fleet.nodes[0].send(session.delete());
    let held = &fleet.nodes[0].store.held;
    assert!(
        matches!(
            held[..],
            [StoreRequest::Forget { .. }, StoreRequest::Remove { .. }]
        ),
        "{held:?}"
    );
    fleet.nodes[0].answer_nth(0);
    fleet.nodes[0].answer_with(StoreAnswer::Failed);
    assert_eq!(fleet.nodes[0].status(deleted), 503);
    fleet.nodes[0].answer_store();
    fleet.finish();
}

#[test]
fn session_deleted_at_another_server_ends_here_with_its_requests() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    let (_, request) = fleet.nodes[0].send_accepted(call(&session, 1));
    // The first server is cut off from the store, so that the second takes over. Then it is back.
    fleet.nodes[0].feed(lease());
    fleet.nodes[0].store.leave();
    let deleted = fleet.nodes[1].send(session.delete());
    assert_eq!(fleet.nodes[1].status(deleted), 204);
    fleet.nodes[0].advance(seconds(6));
    fleet.nodes[0].feed(lease());
    let late = fleet.send(0, ping(&session, 2));
    assert_eq!(fleet.nodes[0].status(late), 404);
    assert_eq!(fleet.nodes[0].server.sessions(), 0);
    let cancelled = fleet.nodes[0].cancellations();
    assert_eq!(cancelled, [(request, Cancelled::PeerGone)]);
    fleet.finish();
}

/// The server that has the messages in memory becomes the home of the session again. Its client has seen them.
#[test]
fn session_that_comes_back_to_its_first_home_repeats_no_message() {
    let mut fleet = Fleet::with(|mut http| {
        if let Storage::Driver(storage) = &mut http.storage {
            storage.events = EventStorage::Memory;
        }
        http
    });
    let session = fleet.nodes[0].open_session("2025-11-25");
    let stream = fleet.nodes[0].send(session.get());
    fleet.nodes[0].publish(Change::List(List::Tools));
    assert_eq!(fleet.nodes[0].messages(stream).len(), 1);
    fleet.nodes[0].disconnect(stream);
    fleet.nodes[0].feed(lease());
    fleet.nodes[0].store.leave();
    let taken = fleet.nodes[1].send(ping(&session, 1));
    assert_eq!(fleet.nodes[1].status(taken), 200);
    fleet.nodes[0].advance(seconds(6));
    fleet.nodes[0].feed(lease());
    fleet.send(0, ping(&session, 2));
    assert_eq!(fleet.nodes[0].server.sessions(), 0);
    fleet.nodes[1].store.leave();
    let stream = fleet.nodes[0].send(session.get());
    // All that it watches may have changed meanwhile, and it is told so once.
    let told = ["prompts", "resources", "tools"];
    let told = told.map(|list| format!("notifications/{list}/list_changed"));
    assert_eq!(methods(&fleet.nodes[0], stream), told);
    fleet.finish();
}

#[test]
fn silent_stream_through_another_server_gets_one_keepalive_in_each_interval() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    let stream = fleet.send(1, session.get());
    for _ in 0..3 {
        let before = fleet.nodes[1].sse(stream).len();
        advance(&mut fleet, 15);
        assert_eq!(fleet.nodes[1].sse(stream).len(), before + 1);
    }
    fleet.finish();
}

#[test]
fn servers_that_share_no_exchange_any_longer_do_not_look_after_each_other() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    // The response is complete.
    fleet.send(1, ping(&session, 1));
    assert_no_server_looks(&mut fleet);
    fleet.send(1, call(&session, 2));
    let request = fleet.nodes[0].newest_request();
    fleet.nodes[0].respond(request, json!({"content": []}));
    fleet.settle();
    assert_no_server_looks(&mut fleet);
    // The client is gone.
    let stream = fleet.send(1, session.get());
    fleet.nodes[1].disconnect(stream);
    fleet.settle();
    assert_no_server_looks(&mut fleet);
    // The store did not pass the request on.
    fleet.nodes[1].store.holds = true;
    let refused = fleet.nodes[1].send(ping(&session, 3));
    fleet.nodes[1].answer_nth(0);
    fleet.nodes[1].answer_with(StoreAnswer::Failed);
    assert_eq!(fleet.nodes[1].status(refused), 503);
    fleet.nodes[1].answer_store();
    assert_no_server_looks(&mut fleet);
    // The home has no lease any longer.
    fleet.nodes[0].feed(lease());
    let stream = fleet.send(1, session.get());
    advance(&mut fleet, 12);
    assert!(fleet.nodes[1].exchange(stream).is_aborted());
    assert_no_server_looks(&mut fleet);
    fleet.finish();
}

#[test]
fn other_server_is_asked_every_5_s_whether_it_still_answers() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    fleet.send(1, session.get());
    let mut notes = [0, 0];
    for _ in 0..10 {
        for node in &mut fleet.nodes {
            node.advance(seconds(1));
        }
        for (node, notes) in fleet.nodes.iter_mut().zip(&mut notes) {
            while let Some(note) = node.store.next_note() {
                node.feed(note);
                *notes += 1;
            }
        }
    }
    assert_eq!(notes, [2, 0], "the home asks nothing");
    fleet.finish();
}

#[test]
fn requests_passed_on_at_short_intervals_do_not_delay_the_look_at_the_home() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    fleet.send(1, session.get());
    let before = fleet.nodes[1].store.requests;
    for id in 0..5 {
        fleet.nodes[1].advance(std::time::Duration::from_millis(600));
        fleet.send(1, ping(&session, id));
    }
    // Each ping looks the session up and is passed on.
    let looks = fleet.nodes[1].store.requests - before - 2 * 5;
    assert_eq!(looks, 3, "one each second");
    fleet.finish();
}

#[test]
fn late_answer_that_a_server_is_gone_is_stale() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    let stream = fleet.send(1, session.get());
    fleet.nodes[1].store.holds = true;
    fleet.nodes[1].advance(seconds(1));
    let held = &fleet.nodes[1].store.held;
    assert!(matches!(held[0], StoreRequest::IsAlive { .. }), "{held:?}");
    fleet.nodes[1].advance(seconds(5));
    let stale = fleet.nodes[1].server.stats().stale_inputs;
    fleet.nodes[1].answer_with(StoreAnswer::Done(false));
    assert_eq!(fleet.nodes[1].server.stats().stale_inputs, stale + 1);
    assert!(!fleet.nodes[1].is_over(stream));
    fleet.nodes[1].answer_store();
    fleet.finish();
}

/// A fleet with small limits, and a call that its client made through the second server and that has much to tell.
fn talkative_call() -> (Fleet, StreamId, RequestId) {
    let mut limits = Limits::default();
    limits.write_window = 1_000;
    limits.queued_bytes = 10_000;
    limits.all_queued_bytes = 20_000;
    let mut fleet = Fleet::with_limits(|http| http, limits);
    let session = fleet.nodes[0].open_session("2025-11-25");
    let params = json!({"name": "slow", "_meta": {"progressToken": "p"}});
    let called = fleet.send(1, session.post(1, "tools/call", params));
    let request = fleet.nodes[0].newest_request();
    (fleet, called, request)
}

fn report_progress(fleet: &mut Fleet, request: RequestId) {
    for step in 1..=10 {
        let progress = Progress::new(f64::from(step)).with_message("x".repeat(3_000));
        let done =
            fleet.nodes[0].with_server(|server, now| server.progress(now, request, progress));
        done.expect("the request is open");
        fleet.settle();
    }
}

#[test]
fn home_writes_on_as_long_as_the_other_server_takes_its_notes() {
    let (mut fleet, called, request) = talkative_call();
    report_progress(&mut fleet, request);
    assert_eq!(fleet.nodes[1].messages(called).len(), 10);
    fleet.nodes[0].respond(request, json!({"content": []}));
    fleet.settle();
    assert!(fleet.nodes[1].is_over(called));
    fleet.finish();
}

#[test]
fn unread_parts_of_a_response_of_another_server_count_towards_the_common_limit() {
    let (mut fleet, called, request) = talkative_call();
    fleet.nodes[1].stop_reading(called);
    report_progress(&mut fleet, request);
    assert!(!fleet.nodes[1].is_over(called));
    let other = modern(1, "tools/call", json!({"name": "x"}));
    fleet.nodes[1].send_and_respond(other, json!({"content": []}));
    assert!(fleet.nodes[1].exchange(called).is_aborted());
    fleet.finish();
}

#[test]
fn response_of_another_server_has_the_cors_fields_of_this_one() {
    let origin = "https://app.example";
    let mut fleet = Fleet::with(|http| http.with_cors(Allowed::list([origin])));
    let session = fleet.nodes[0].open_session("2025-11-25");
    let passed = fleet.send(1, ping(&session, 1).with("origin", origin));
    assert_eq!(fleet.nodes[1].status(passed), 200);
    let allowed = fleet.nodes[1].all_values(passed, "access-control-allow-origin");
    assert_eq!(allowed, [origin]);
    fleet.finish();
}

#[test]
fn unknown_session_of_the_old_transport_that_names_this_server_is_not_passed_on() {
    let mut fleet = Fleet::with(|http| http.with_sse(SsePaths::default()));
    let before = fleet.nodes[0].store.requests;
    let message = post(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}));
    let refused = fleet.nodes[0].send(message.to("/messages?session=1.0123"));
    assert_eq!(fleet.nodes[0].status(refused), 404);
    assert_eq!(fleet.nodes[0].store.requests, before);
    fleet.finish();
}

/// Only this server has no room for the session, or saw no activity in it.
#[test]
fn session_that_ends_at_one_server_only_is_continued_from_the_store() {
    let mut limits = Limits::default();
    limits.sessions = 1;
    let mut fleet = Fleet::with_limits(|http| http, limits);
    let displaced = fleet.nodes[0].open_session("2025-11-25");
    let idle = fleet.nodes[0].open_session("2025-11-25");
    let served = fleet.send(0, ping(&displaced, 1));
    assert_eq!(fleet.nodes[0].status(served), 200);
    let served = fleet.send(0, ping(&idle, 1));
    assert_eq!(fleet.nodes[0].status(served), 200);
    fleet.nodes[0].advance(seconds(31 * 60));
    assert_eq!(fleet.nodes[0].server.sessions(), 0);
    let served = fleet.send(1, ping(&idle, 2));
    assert_eq!(fleet.nodes[1].status(served), 200);
    fleet.finish();
}

/// How long the store is told to keep sessions, in order.
fn kept(harness: &mut Harness) -> Vec<u64> {
    let held = core::mem::take(&mut harness.store.held);
    let keep = |request: &StoreRequest| match request {
        StoreRequest::Touch { keep, .. } => Some(keep.as_secs()),
        _ => None,
    };
    held.iter().filter_map(keep).collect()
}

#[test]
fn store_is_told_to_keep_a_session_once_in_an_eighth_of_its_idle_time() {
    let mut fleet = Fleet::new();
    let home = &mut fleet.nodes[0];
    let session = home.open_session("2025-11-25");
    home.store.holds = true;
    let eighth = 30 * 60 / 8;
    for (wait, expected) in [
        (0, vec![]),
        (eighth - 1, vec![]),
        (1, vec![3_600]),
        (eighth - 1, vec![]),
        (2, vec![3_600]),
    ] {
        home.advance(seconds(wait));
        home.send(ping(&session, wait));
        assert_eq!(kept(home), expected, "{wait}");
    }
    home.store.holds = false;
    fleet.finish();
}

#[test]
fn store_is_told_to_keep_a_session_whose_client_only_listens() {
    let mut fleet = Fleet::new();
    let home = &mut fleet.nodes[0];
    let session = home.open_session("2025-11-25");
    let stream = home.send(session.get());
    home.store.holds = true;
    for _ in 0..4 {
        // The store keeps it for an hour.
        home.advance(seconds(59 * 60));
        assert!(!kept(home).is_empty());
    }
    assert!(!home.is_over(stream));
    home.store.holds = false;
    fleet.finish();
}

#[test]
fn client_that_does_not_read_is_dropped_although_a_request_of_another_server_was_answered_since() {
    let mut limits = Limits::default();
    limits.exchanges = 2;
    let mut fleet = Fleet::with_limits(|http| http, limits);
    let session = fleet.nodes[0].open_session("2025-11-25");
    let discover = modern(1, "server/discover", json!({}));
    let unread = fleet.nodes[0].begin(&discover);
    fleet.nodes[0].stop_reading(unread);
    fleet.nodes[0].body(unread, &discover.body);
    fleet.nodes[0].end(unread);
    let served = fleet.send(1, ping(&session, 1));
    assert_eq!(fleet.nodes[1].status(served), 200);
    fleet.nodes[0].advance(seconds(60));
    assert!(fleet.nodes[0].exchange(unread).is_aborted());
    fleet.finish();
}

#[test]
fn lease_that_is_renewed_in_time_cuts_nothing() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    let called = fleet.send(1, call(&session, 1));
    for _ in 0..3 {
        for node in &mut fleet.nodes {
            node.feed(lease());
            node.advance(seconds(4));
        }
        fleet.settle();
    }
    let before = fleet.nodes[0].store.requests;
    let served = fleet.nodes[0].send(ping(&session, 2));
    assert_eq!(fleet.nodes[0].status(served), 200);
    assert_eq!(fleet.nodes[0].store.requests, before, "it asks nothing");
    let request = fleet.nodes[0].newest_request();
    fleet.nodes[0].respond(request, json!({"content": []}));
    fleet.settle();
    assert_eq!(fleet.nodes[1].result(called)["content"], json!([]));
    fleet.finish();
}

/// The store names a home to which it cannot pass anything on, again and again.
#[test]
fn request_whose_home_is_always_gone_gets_503_in_the_end() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    let node = &mut fleet.nodes[1];
    node.store.holds = true;
    let looking = node.send(ping(&session, 1));
    let mut looks = 0;
    while !node.is_answered(looking) {
        looks += 1;
        assert!(looks < 10, "it looks without an end");
        node.answer_nth(0);
        node.answer_with(StoreAnswer::Done(false));
    }
    assert_eq!(node.status(looking), 503);
    assert!(node.field(looking, "retry-after").is_some());
    node.store.holds = false;
    fleet.finish();
}

/// A request with a long body, whose bytes count as arriving until they are passed on.
fn padded(session: &Session, id: u64, len: usize) -> HttpRequest {
    let params = json!({"name": "slow", "pad": "x".repeat(len)});
    session.post(id, "tools/call", params)
}

fn short_of_room() -> Limits {
    let mut limits = Limits::default();
    limits.message_bytes = 20_000;
    limits.body_bytes = 20_000;
    limits
}

/// Sends 8,000 bytes of a body. Returns whether the request is refused.
fn is_refused_while_it_arrives(harness: &mut Harness) -> bool {
    let arriving = harness.begin(&modern(9, "tools/call", json!({"name": "x"})));
    harness.body(arriving, &[b' '; 8_000]);
    harness.is_answered(arriving)
}

#[test]
fn long_request_that_is_passed_on_gives_way_to_a_short_one() {
    let mut fleet = Fleet::with_limits(|http| http, short_of_room());
    let session = fleet.nodes[0].open_session("2025-11-25");
    let other = &mut fleet.nodes[1];
    other.store.holds = true;
    let waiting = other.send(padded(&session, 1, 15_000));
    other.answer_nth(0);
    let held = &other.store.held;
    assert!(matches!(held[0], StoreRequest::Tell { .. }), "{held:?}");
    assert!(!is_refused_while_it_arrives(other));
    // The home may have the request, so the client is not told that it was not processed.
    assert!(other.exchange(waiting).is_aborted());
    other.answer_store();
    fleet.finish();
}

#[test]
fn body_of_a_request_that_was_processed_counts_no_longer_while_its_change_is_stored() {
    let mut fleet = Fleet::with_limits(|http| http, short_of_room());
    let home = &mut fleet.nodes[0];
    let session = home.open_session("2025-11-25");
    home.store.holds = true;
    let params = json!({"_meta": {"pad": "x".repeat(15_000)}});
    let waiting = home.send(session.notification("notifications/initialized", params));
    assert!(!home.is_answered(waiting), "the store is asked");
    assert!(!is_refused_while_it_arrives(home));
    home.answer_store();
    assert_eq!(home.status(waiting), 202);
    fleet.finish();
}

/// Encoded as a JSON string, such a body is six times as long.
#[test]
fn body_that_is_no_message_is_not_passed_on() {
    let mut fleet = Fleet::with(|http| http.with_sse(SsePaths::default()));
    let session = fleet.nodes[0].open_session("2025-11-25");
    let stream = fleet.nodes[0].send(get().to("/sse"));
    let path = fleet.nodes[0].sse(stream)[0].data.clone().expect("a path");
    let mut no_json = post(&Value::Null).to(&path);
    no_json.body = vec![1; 1_000];
    let mut no_message = session.post_message(&Value::Null);
    no_message.body = br#"{"jsonrpc":"2.0","id":7,"result":1,"error":2}"#.to_vec();
    for request in [no_json, no_message] {
        let refused = fleet.nodes[1].send(request);
        assert_eq!(fleet.nodes[1].status(refused), 400);
        assert!(!fleet.nodes[0].take_notes(), "nothing is passed on");
    }
    let mut deleted = session.delete();
    deleted.body = vec![1; 1_000];
    fleet.nodes[1].store.holds = true;
    fleet.nodes[1].send(deleted);
    fleet.nodes[1].answer_nth(0);
    let [StoreRequest::Tell { note, .. }] = &fleet.nodes[1].store.held[..] else {
        panic!("{:?}", fleet.nodes[1].store.held);
    };
    assert!(
        note.len() < 1_000,
        "the body of another request is not read"
    );
    fleet.nodes[1].answer_store();
    fleet.settle();
    fleet.finish();
}

#[test]
fn stream_of_a_batch_that_waits_for_the_store_keeps_its_beginning() {
    let mut fleet = Fleet::new();
    let home = &mut fleet.nodes[0];
    let session = home.open_session("2025-03-26");
    home.store.holds = true;
    let (stream, request) = home.send_accepted(batch(&session, &[2]));
    home.answer_with(StoreAnswer::Done(true));
    assert!(home.text(stream).starts_with(':'), "{}", home.text(stream));
    home.respond(request, json!({"content": []}));
    home.answer_store();
    fleet.finish();
}

#[test]
fn other_requests_of_a_batch_are_answered_although_a_change_fails_while_the_server_drains() {
    let mut fleet = Fleet::new();
    let home = &mut fleet.nodes[0];
    let session = home.open_session("2025-03-26");
    home.store.holds = true;
    let (stream, request) = home.send_accepted(batch(&session, &[2]));
    home.shutdown();
    home.answer_with(StoreAnswer::Failed);
    home.respond(request, json!({"content": []}));
    assert_eq!(ids(home, stream), [(2, true), (1, false)]);
    home.answer_store();
    fleet.finish();
}
