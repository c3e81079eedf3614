//! Several servers that share a store: each session has one home, and the other servers pass its requests on.

use std::time::Duration;

use everlink::server::{Cancelled, Http, Limits, Progress, SsePaths, State};
use everlink::{Change, Input, List, StoreAnswer, StoreRequest};
use serde_json::{Value, json};

use crate::server_http::{
    Harness, HttpRequest, Session, Store, declaring, get, http_config, initialize_with, modern,
    post, seconds, shared_http,
};

const TOOLS: &str = "notifications/tools/list_changed";

/// Servers with one store.
pub(super) struct Fleet {
    pub(super) nodes: [Harness; 2],
}

impl Fleet {
    pub(super) fn new() -> Fleet {
        Fleet::with(|http| http)
    }

    pub(super) fn with(settings: impl Fn(Http) -> Http) -> Fleet {
        Fleet::with_limits(settings, Limits::default())
    }

    pub(super) fn with_limits(settings: impl Fn(Http) -> Http, limits: Limits) -> Fleet {
        let store = Store::default();
        let node = |n| {
            let mut config = http_config(settings(shared_http(n)));
            config.limits = limits;
            Harness::with_store(config, &store)
        };
        let mut fleet = Fleet {
            nodes: [node(1), node(2)],
        };
        // A server is alive from its first request to the store.
        for node in &mut fleet.nodes {
            node.send(Session::new("none", "2025-11-25").get());
        }
        fleet
    }

    /// Lets the servers read their notes until there are none.
    pub(super) fn settle(&mut self) {
        while self.nodes.iter_mut().any(Harness::take_notes) {}
    }

    /// Sends a request to a server, and lets the others answer.
    pub(super) fn send(&mut self, node: usize, request: HttpRequest) -> everlink::StreamId {
        let stream = self.nodes[node].send(request);
        self.settle();
        stream
    }

    pub(super) fn finish(self) {
        self.nodes.into_iter().for_each(Harness::finish);
    }
}

pub(super) fn lease() -> Input<'static> {
    Input::Lease {
        valid_for: seconds(5),
    }
}

pub(super) fn call(session: &Session, id: u64) -> HttpRequest {
    session.post(id, "tools/call", json!({"name": "slow"}))
}

pub(super) fn ping(session: &Session, id: u64) -> HttpRequest {
    session.post(id, "ping", json!({}))
}

#[test]
fn any_server_serves_any_request_of_a_session() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    let called = fleet.send(1, call(&session, 1));
    assert!(fleet.nodes[1].requests().is_empty(), "the home runs it");
    let request = fleet.nodes[0].newest_request();
    fleet.nodes[0].progress(request, 1.0);
    fleet.nodes[0].respond(request, json!({"content": []}));
    fleet.settle();
    assert_eq!(fleet.nodes[1].result(called)["content"], json!([]));
    let kind = fleet.nodes[1].field(called, "content-type");
    assert_eq!(kind, Some("text/event-stream"));
    let deleted = fleet.send(1, session.delete());
    assert_eq!(fleet.nodes[1].status(deleted), 204);
    for node in 0..2 {
        let late = fleet.send(node, ping(&session, 2));
        assert_eq!(fleet.nodes[node].status(late), 404, "S-SESS-05");
    }
    fleet.finish();
}

#[test]
fn request_at_the_home_asks_the_store_nothing() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    fleet.nodes[0].store.holds = true;
    let before = fleet.nodes[0].store.requests;
    let pinged = fleet.nodes[0].send(ping(&session, 1));
    assert_eq!(fleet.nodes[0].status(pinged), 200);
    assert_eq!(fleet.nodes[0].store.requests, before);
    fleet.nodes[0].answer_store();
    fleet.finish();
}

#[test]
fn user_is_checked_by_the_home() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session_by("2025-11-25", Some("ann"));
    let refused = fleet.send(1, ping(&session, 1).by(Some("eve")));
    assert_eq!(fleet.nodes[1].status(refused), 404, "F-115");
    let served = fleet.send(1, ping(&session, 2));
    assert_eq!(fleet.nodes[1].status(served), 200);
    fleet.finish();
}

#[test]
fn question_is_answered_through_another_server() {
    let mut fleet = Fleet::new();
    let handshake = initialize_with("2025-11-25", &json!({"roots": {}}));
    let session = fleet.nodes[0].open_session_with(handshake, "2025-11-25", None);
    let (_, request) = fleet.nodes[0].send_accepted(call(&session, 1));
    let ask = fleet.nodes[0].ask(request, "roots/list", Value::Null);
    let id = fleet.nodes[0].newest_ask_id("roots/list");
    let answered = fleet.send(1, session.answer(&id, json!({"roots": []})));
    assert_eq!(fleet.nodes[1].status(answered), 202);
    let outcome = fleet.nodes[0].outcome(ask);
    assert_eq!(outcome, Some(Ok(json!({"roots": []}))));
    fleet.finish();
}

#[test]
fn cancellation_reaches_the_request_through_another_server() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    let (_, request) = fleet.nodes[0].send_accepted(call(&session, 1));
    let cancel = session.notification("notifications/cancelled", json!({"requestId": 1}));
    let cancelled = fleet.send(1, cancel);
    assert_eq!(fleet.nodes[1].status(cancelled), 202);
    assert_eq!(fleet.nodes[0].cancellations()[0].0, request);
    fleet.finish();
}

#[test]
fn modern_request_is_continued_through_another_server() {
    let mut fleet = Fleet::new();
    let params = || declaring(&json!({"roots": {}}), json!({"name": "x"}));
    let (asked, request) = fleet.nodes[0].send_accepted(modern(1, "tools/call", params()));
    let ask = fleet.nodes[0].ask(request, "roots/list", Value::Null);
    let result = fleet.nodes[0].result(asked);
    let key = result["inputRequests"].as_object().expect("questions");
    let key = key.keys().next().expect("a question").clone();
    let mut again = params();
    again["requestState"] = result["requestState"].clone();
    again["inputResponses"] = json!({key: {"roots": []}});
    // A state that no server made is refused where it arrives.
    let mut forged = again.clone();
    let state = result["requestState"].as_str().expect("a state");
    forged["requestState"] = json!(format!("{}0", &state[..state.len() - 1]));
    if forged["requestState"] == result["requestState"] {
        forged["requestState"] = json!(format!("{}1", &state[..state.len() - 1]));
    }
    let (_, code) = fleet.nodes[1].send_refused(modern(2, "tools/call", forged));
    assert_eq!(code, -32602);

    let continued = fleet.send(1, modern(3, "tools/call", again.clone()));
    assert_eq!(fleet.nodes[0].outcome(ask), Some(Ok(json!({"roots": []}))));
    fleet.nodes[0].respond(request, json!({"content": []}));
    fleet.settle();
    assert_eq!(fleet.nodes[1].result(continued)["content"], json!([]));
    // The server that made the state is gone.
    fleet.nodes[0].store.leave();
    let (status, code) = fleet.nodes[1].send_refused(modern(4, "tools/call", again));
    assert_eq!((status, code), (400, -32602));
    fleet.finish();
}

#[test]
fn change_is_told_to_the_watchers_of_all_servers_once() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    let through = fleet.send(1, session.get());
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let listening: Vec<_> = (0..2)
        .map(|node| {
            let listen = modern(9, "subscriptions/listen", filter.clone());
            fleet.nodes[node].send(listen)
        })
        .collect();
    fleet.nodes[1].publish(Change::List(List::Tools));
    fleet.settle();
    for (node, stream) in listening.into_iter().enumerate() {
        assert_eq!(fleet.nodes[node].messages_with(stream, TOOLS).len(), 1);
    }
    assert_eq!(fleet.nodes[1].messages_with(through, TOOLS).len(), 1);
    fleet.finish();
}

#[test]
fn stream_cut_at_one_server_is_resumed_at_another_with_nothing_lost_or_doubled() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    let token = json!({"name": "slow", "_meta": {"progressToken": "t"}});
    let lost = fleet.send(0, session.post(1, "tools/call", token));
    let request = fleet.nodes[0].newest_request();
    fleet.nodes[0].progress(request, 1.0);
    let last = fleet.nodes[0].last_event_id(lost);
    fleet.nodes[0].disconnect(lost);
    fleet.nodes[0].progress(request, 2.0);
    let resumed = fleet.send(1, session.resume(&last));
    fleet.nodes[0].progress(request, 3.0);
    fleet.nodes[0].respond(request, json!({"content": []}));
    fleet.settle();
    let messages = fleet.nodes[1].messages(resumed);
    let steps = messages
        .iter()
        .map(|message| &message["params"]["progress"]);
    let steps: Vec<Option<f64>> = steps.map(Value::as_f64).collect();
    assert_eq!(steps, [Some(2.0), Some(3.0), None], "{messages:?}");
    assert!(fleet.nodes[1].is_over(resumed));
    fleet.finish();
}

#[test]
fn request_of_a_server_that_is_gone_is_replayed_as_far_as_it_is_stored_and_then_unknown() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    let token = json!({"name": "slow", "_meta": {"progressToken": "t"}});
    let lost = fleet.send(0, session.post(1, "tools/call", token));
    let request = fleet.nodes[0].newest_request();
    let last = fleet.nodes[0].last_event_id(lost);
    fleet.nodes[0].disconnect(lost);
    fleet.nodes[0].progress(request, 1.0);
    fleet.nodes[0].store.leave();
    let resumed = fleet.nodes[1].send(session.resume(&last));
    assert_eq!(fleet.nodes[1].messages(resumed).len(), 1);
    assert!(fleet.nodes[1].is_over(resumed));
    let last = fleet.nodes[1].last_event_id(resumed);
    let again = fleet.nodes[1].send(session.resume(&last));
    assert_eq!(fleet.nodes[1].status(again), 400, "the reply never comes");
    // A request of which nothing is stored is not known at all.
    let unknown = fleet.nodes[1].send(session.resume("100000ff1-0"));
    assert_eq!(fleet.nodes[1].status(unknown), 400);
    fleet.finish();
}

#[test]
fn client_that_leaves_cancels_its_modern_request_at_the_other_server() {
    let mut fleet = Fleet::new();
    let params = || declaring(&json!({"roots": {}}), json!({"name": "x"}));
    let (asked, request) = fleet.nodes[0].send_accepted(modern(1, "tools/call", params()));
    fleet.nodes[0].ask(request, "roots/list", Value::Null);
    let mut again = params();
    again["requestState"] = fleet.nodes[0].result(asked)["requestState"].clone();
    again["inputResponses"] = json!({"1": {"roots": []}});
    let continued = fleet.send(1, modern(3, "tools/call", again));
    fleet.nodes[1].disconnect(continued);
    fleet.settle();
    let cancelled = fleet.nodes[0].cancellations();
    assert_eq!(cancelled, [(request, Cancelled::PeerGone)]);
    fleet.finish();
}

#[test]
fn exchanges_are_cut_when_the_server_that_answers_them_is_gone() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    let called = fleet.send(1, call(&session, 1));
    assert!(!fleet.nodes[1].is_over(called));
    fleet.nodes[1].advance(seconds(5));
    assert!(!fleet.nodes[1].is_over(called), "it is alive");
    fleet.nodes[0].store.leave();
    fleet.nodes[1].advance(seconds(2));
    assert!(fleet.nodes[1].exchange(called).is_aborted());
    // The session goes on at the server that is asked next.
    let again = fleet.nodes[1].send(ping(&session, 2));
    assert_eq!(fleet.nodes[1].status(again), 200);
    fleet.finish();
}

#[test]
fn request_of_a_client_at_a_server_that_is_gone_is_cancelled() {
    let mut fleet = Fleet::new();
    let params = || declaring(&json!({"roots": {}}), json!({"name": "x"}));
    let (asked, request) = fleet.nodes[0].send_accepted(modern(1, "tools/call", params()));
    fleet.nodes[0].ask(request, "roots/list", Value::Null);
    let mut again = params();
    again["requestState"] = fleet.nodes[0].result(asked)["requestState"].clone();
    again["inputResponses"] = json!({"1": {"roots": []}});
    fleet.send(1, modern(3, "tools/call", again));
    fleet.nodes[1].store.leave();
    fleet.nodes[0].advance(seconds(2));
    let cancelled = fleet.nodes[0].cancellations();
    assert_eq!(cancelled, [(request, Cancelled::PeerGone)]);
    fleet.finish();
}

#[test]
fn exchange_is_cut_when_a_note_about_it_was_lost() {
    // The note with the request, or one with a part of the response.
    for is_request in [true, false] {
        let mut fleet = Fleet::new();
        let session = fleet.nodes[0].open_session("2025-11-25");
        let called = fleet.nodes[1].send(call(&session, 1));
        if is_request {
            assert!(fleet.nodes[0].store.next_note().is_some());
        } else {
            fleet.settle();
            let request = fleet.nodes[0].newest_request();
            fleet.nodes[0].respond(request, json!({"content": []}));
            assert!(fleet.nodes[1].store.next_note().is_some());
        }
        fleet.settle();
        for _ in 0..6 {
            fleet.nodes[1].advance(seconds(1));
            fleet.settle();
        }
        assert!(fleet.nodes[1].exchange(called).is_aborted(), "{is_request}");
        fleet.finish();
    }
}

#[test]
fn passed_request_whose_fate_is_unknown_is_cut_and_not_refused() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    fleet.nodes[1].store.holds = true;
    let waiting = fleet.nodes[1].send(call(&session, 1));
    fleet.nodes[1].answer_nth(0);
    let held = &fleet.nodes[1].store.held;
    assert!(matches!(held[0], StoreRequest::Tell { .. }), "{held:?}");
    fleet.nodes[1].advance(seconds(5));
    assert!(fleet.nodes[1].exchange(waiting).is_aborted());
    // Where it is certain that nothing was done, the client is told so.
    fleet.nodes[1].store.held.clear();
    let refused = fleet.nodes[1].send(call(&session, 2));
    fleet.nodes[1].answer_nth(0);
    fleet.nodes[1].answer_with(StoreAnswer::Failed);
    assert_eq!(fleet.nodes[1].status(refused), 503);
    assert!(fleet.nodes[1].field(refused, "retry-after").is_some());
    fleet.nodes[1].store.holds = false;
    fleet.nodes[1].store.held.clear();
    fleet.finish();
}

#[test]
fn handshake_and_subscription_are_answered_when_the_store_has_them() {
    let mut fleet = Fleet::new();
    fleet.nodes[0].store.holds = true;
    let begun = fleet.nodes[0].send(initialize_with("2025-11-25", &json!({})));
    assert!(!fleet.nodes[0].is_answered(begun));
    fleet.nodes[0].answer_store();
    assert_eq!(fleet.nodes[0].status(begun), 200);
    let id = fleet.nodes[0].field(begun, "mcp-session-id");
    let session = Session::new(id.expect("an id"), "2025-11-25");

    fleet.nodes[0].store.holds = true;
    let initialized = session.notification("notifications/initialized", Value::Null);
    let initialized = fleet.nodes[0].send(initialized);
    assert!(!fleet.nodes[0].is_answered(initialized));
    fleet.nodes[0].answer_store();
    assert_eq!(fleet.nodes[0].status(initialized), 202);

    fleet.nodes[0].store.holds = true;
    let subscribe = session.post(2, "resources/subscribe", json!({"uri": "file:///a"}));
    let refused = fleet.nodes[0].send(subscribe.clone());
    assert!(!fleet.nodes[0].is_answered(refused));
    fleet.nodes[0].answer_with(StoreAnswer::Failed);
    assert_eq!(fleet.nodes[0].status(refused), 503);
    let late = fleet.nodes[0].send(subscribe);
    fleet.nodes[0].advance(seconds(5));
    assert_eq!(fleet.nodes[0].status(late), 503);
    fleet.nodes[0].answer_store();
    fleet.finish();
}

#[test]
fn server_without_a_lease_asks_the_store_and_cuts_what_it_shares() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    for node in &mut fleet.nodes {
        node.feed(lease());
    }
    let called = fleet.send(1, call(&session, 1));
    let request = fleet.nodes[0].newest_request();
    for node in &mut fleet.nodes {
        node.store.holds = true;
        node.advance(seconds(5));
    }
    assert!(fleet.nodes[1].exchange(called).is_aborted());
    fleet.nodes[0].store.held.clear();
    // A modern call needs no store.
    let (other, modern) =
        fleet.nodes[0].send_accepted(modern(1, "tools/call", json!({"name": "a"})));
    fleet.nodes[0].respond(modern, json!({"content": []}));
    assert_eq!(fleet.nodes[0].status(other), 200);
    let refused = fleet.nodes[0].send(ping(&session, 2));
    assert!(!fleet.nodes[0].is_answered(refused), "it asks the store");
    fleet.nodes[0].answer_with(StoreAnswer::Failed);
    assert_eq!(fleet.nodes[0].status(refused), 503);
    // When the store is back, the session goes on, and so does the request.
    fleet.nodes[0].store.holds = false;
    fleet.nodes[0].feed(lease());
    let served = fleet.nodes[0].send(ping(&session, 3));
    assert_eq!(fleet.nodes[0].status(served), 200);
    fleet.nodes[0].respond(request, json!({"content": []}));
    fleet.nodes[1].store.held.clear();
    fleet.nodes[1].store.holds = false;
    fleet.finish();
}

#[test]
fn session_that_another_server_took_over_is_passed_on_to_it() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    // The first server is cut off from the store, so that the second takes over. Then it is back.
    fleet.nodes[0].feed(lease());
    fleet.nodes[0].store.leave();
    let taken = fleet.nodes[1].send(ping(&session, 1));
    assert_eq!(fleet.nodes[1].status(taken), 200);
    fleet.nodes[0].advance(seconds(6));
    fleet.nodes[0].feed(lease());
    let passed = fleet.send(0, call(&session, 2));
    assert_eq!(fleet.nodes[0].server.sessions(), 0);
    let request = fleet.nodes[1].newest_request();
    fleet.nodes[1].respond(request, json!({"content": []}));
    fleet.settle();
    assert_eq!(fleet.nodes[0].result(passed)["content"], json!([]));
    fleet.finish();
}

/// Its driver reports the new lease before the timer of the old one, as after a sleep.
#[test]
fn session_taken_over_while_a_server_slept_is_passed_on_to_its_new_home() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    fleet.nodes[0].feed(lease());
    fleet.nodes[0].store.leave();
    let taken = fleet.nodes[1].send(ping(&session, 1));
    assert_eq!(fleet.nodes[1].status(taken), 200);
    fleet.nodes[0].sleep(seconds(6));
    fleet.nodes[0].feed(lease());
    let passed = fleet.send(0, call(&session, 2));
    let request = fleet.nodes[1].newest_request();
    fleet.nodes[1].respond(request, json!({"content": []}));
    fleet.settle();
    assert_eq!(fleet.nodes[0].result(passed)["content"], json!([]));
    fleet.finish();
}

/// Its driver reports a lease of no time when the store does not know the last one any more.
#[test]
fn session_taken_over_because_the_store_lost_a_lease_is_passed_on_to_its_new_home() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    fleet.nodes[0].feed(lease());
    fleet.nodes[0].store.leave();
    let taken = fleet.nodes[1].send(ping(&session, 1));
    assert_eq!(fleet.nodes[1].status(taken), 200);
    fleet.nodes[0].feed(Input::Lease {
        valid_for: Duration::ZERO,
    });
    fleet.nodes[0].feed(lease());
    fleet.send(0, call(&session, 2));
    let request = fleet.nodes[1].newest_request();
    fleet.nodes[1].respond(request, json!({"content": []}));
    fleet.settle();
    fleet.finish();
}

/// Nothing would end the exchange: whether the other server is alive is a question to the store.
#[test]
fn server_without_a_lease_passes_no_request_on() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    fleet.nodes[1].feed(lease());
    fleet.nodes[1].advance(seconds(5));
    let refused = fleet.send(1, call(&session, 1));
    assert_eq!(fleet.nodes[1].status(refused), 503);
    fleet.nodes[1].feed(lease());
    let passed = fleet.send(1, call(&session, 2));
    let request = fleet.nodes[0].newest_request();
    fleet.nodes[0].respond(request, json!({"content": []}));
    fleet.settle();
    assert_eq!(fleet.nodes[1].result(passed)["content"], json!([]));
    fleet.finish();
}

/// A store that lost its data knows no lease, so that another server can become the home of a session whose home believes to have one.
#[test]
fn session_whose_record_the_store_refuses_is_looked_up_again_and_not_lost() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    fleet.nodes[0].store.leave();
    let taken = fleet.nodes[1].send(ping(&session, 1));
    assert_eq!(fleet.nodes[1].status(taken), 200);
    let subscribe = session.post(2, "resources/subscribe", json!({"uri": "file:///a"}));
    let refused = fleet.nodes[0].send(subscribe.clone());
    assert_eq!(fleet.nodes[0].status(refused), 503);
    let passed = fleet.send(0, subscribe);
    assert_eq!(fleet.nodes[0].status(passed), 200);
    assert_eq!(fleet.nodes[0].server.sessions(), 0);
    fleet.finish();
}

/// Without this, the store drops a session in use whose servers are replaced again and again.
#[test]
fn new_home_tells_the_store_to_keep_the_session_for_twice_its_idle_time() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    fleet.nodes[0].store.leave();
    fleet.nodes[1].store.holds = true;
    let pinged = fleet.nodes[1].send(ping(&session, 1));
    fleet.nodes[1].answer_nth(0);
    assert_eq!(fleet.nodes[1].status(pinged), 200);
    let held = fleet.nodes[1].store.held.iter();
    let kept: Vec<_> = held
        .filter_map(|request| {
            if let StoreRequest::Touch { keep, .. } = request {
                return Some(*keep);
            }
            None
        })
        .collect();
    assert_eq!(kept, [seconds(2 * 30 * 60)]);
    fleet.nodes[1].answer_store();
    fleet.finish();
}

#[test]
fn server_that_drains_completes_its_requests_and_hands_its_sessions_over() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    let called = fleet.send(1, call(&session, 1));
    let request = fleet.nodes[0].newest_request();
    let standalone = fleet.send(1, session.get());
    fleet.nodes[0].shutdown();
    fleet.settle();
    assert!(fleet.nodes[1].is_over(standalone));
    let next = fleet.nodes[1].send(ping(&session, 2));
    assert_eq!(fleet.nodes[1].status(next), 200, "it has a new home");
    fleet.nodes[1].advance(seconds(2));
    fleet.nodes[0].respond(request, json!({"content": []}));
    fleet.settle();
    assert_eq!(fleet.nodes[1].result(called)["content"], json!([]));
    fleet.finish();
}

#[test]
fn messages_of_the_old_transport_are_passed_on_to_the_server_that_has_its_stream() {
    let mut fleet = Fleet::with(|http| http.with_sse(SsePaths::default()));
    let stream = fleet.nodes[0].send(get().to("/sse"));
    let path = fleet.nodes[0].sse(stream)[0].data.clone().expect("a path");
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let posted = fleet.send(1, post(&message).to(&path));
    assert_eq!(fleet.nodes[1].status(posted), 202);
    assert_eq!(fleet.nodes[0].messages(stream).len(), 1);
    fleet.nodes[0].store.leave();
    let lost = fleet.nodes[1].send(post(&message).to(&path));
    assert_eq!(fleet.nodes[1].status(lost), 404);
    fleet.finish();
}

#[test]
fn slow_reader_of_a_passed_stream_is_disconnected_and_the_home_hears_of_it() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    let stream = fleet.send(1, session.get());
    fleet.nodes[1].stop_reading(stream);
    fleet.nodes[0].publish(Change::List(List::Tools));
    fleet.settle();
    fleet.nodes[1].advance(seconds(120));
    fleet.settle();
    assert!(fleet.nodes[1].exchange(stream).is_aborted());
    // The next stream gets what is stored, and all that follows.
    let last = fleet.nodes[1].last_event_id(stream);
    let again = fleet.send(1, session.resume(&last));
    fleet.nodes[0].publish(Change::List(List::Prompts));
    fleet.settle();
    assert_eq!(fleet.nodes[1].messages(again).len(), 1);
    fleet.finish();
}

/// Nothing more can be written to clients that do not read, so the parts of responses only wait.
#[test]
fn parts_of_passed_responses_cut_the_client_with_most_of_them_unread() {
    let mut limits = Limits::default();
    limits.write_window = 1_000;
    limits.queued_bytes = 20_000;
    limits.all_queued_bytes = 20_000;
    let mut fleet = Fleet::with_limits(|http| http, limits);
    let session = fleet.nodes[0].open_session("2025-11-25");
    let mut unread = Vec::new();
    for (id, times) in [(1, 5), (2, 3)] {
        let token = json!({"name": "slow", "_meta": {"progressToken": id}});
        let called = fleet.send(1, session.post(id, "tools/call", token));
        fleet.nodes[1].stop_reading(called);
        let request = fleet.nodes[0].newest_request();
        for step in 1..=times {
            let progress = Progress::new(f64::from(step)).with_message("x".repeat(3_000));
            let done =
                fleet.nodes[0].with_server(|server, now| server.progress(now, request, progress));
            done.expect("the request is open");
            fleet.settle();
        }
        unread.push(called);
    }
    assert!(fleet.nodes[1].exchange(unread[0]).is_aborted());
    assert!(!fleet.nodes[1].exchange(unread[1]).is_aborted());
    fleet.finish();
}

/// Status 404 would say that the session is over, although it lives at the other server.
#[test]
fn call_in_flight_breaks_when_its_session_has_moved_and_gets_404_when_it_is_over() {
    for has_moved in [true, false] {
        let mut fleet = Fleet::new();
        let session = fleet.nodes[0].open_session("2025-11-25");
        let waiting = call(&session, 1).with("accept", "application/json");
        let (called, request) = fleet.nodes[0].send_accepted(waiting);
        fleet.nodes[0].feed(lease());
        fleet.nodes[0].store.leave();
        let other = fleet.nodes[1].send(ping(&session, 2));
        assert_eq!(fleet.nodes[1].status(other), 200);
        if !has_moved {
            let ended = fleet.nodes[1].send(session.delete());
            assert_eq!(fleet.nodes[1].status(ended), 204);
        }
        fleet.nodes[0].advance(seconds(6));
        fleet.nodes[0].feed(lease());
        let next = fleet.send(0, ping(&session, 3));
        let status = if has_moved { 200 } else { 404 };
        assert_eq!(fleet.nodes[0].status(next), status);
        assert_eq!(fleet.nodes[0].exchange(called).is_aborted(), has_moved);
        if !has_moved {
            assert_eq!(fleet.nodes[0].status(called), 404);
        }
        let cancelled = fleet.nodes[0].cancellations();
        assert_eq!(cancelled, [(request, Cancelled::PeerGone)]);
        fleet.finish();
    }
}

#[test]
fn record_that_the_store_refuses_is_noted_also_if_the_client_left() {
    for is_request in [true, false] {
        let mut fleet = Fleet::new();
        let session = fleet.nodes[0].open_session("2025-11-25");
        fleet.nodes[0].store.leave();
        let taken = fleet.nodes[1].send(ping(&session, 1));
        assert_eq!(fleet.nodes[1].status(taken), 200);
        fleet.nodes[0].store.holds = true;
        let change = if is_request {
            session.post(2, "resources/subscribe", json!({"uri": "file:///a"}))
        } else {
            session.notification("notifications/initialized", Value::Null)
        };
        let left = fleet.nodes[0].send(change);
        fleet.nodes[0].disconnect(left);
        fleet.nodes[0].answer_store();
        let passed = fleet.send(0, ping(&session, 3));
        assert_eq!(fleet.nodes[0].status(passed), 200);
        assert_eq!(fleet.nodes[0].server.sessions(), 0, "{is_request}");
        fleet.finish();
    }
}

#[test]
fn calls_that_other_servers_answer_have_the_time_of_the_drain() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    let called = fleet.send(1, call(&session, 1));
    let request = fleet.nodes[0].newest_request();
    fleet.nodes[1].shutdown();
    fleet.nodes[1].advance(seconds(4));
    fleet.nodes[0].respond(request, json!({"content": []}));
    fleet.settle();
    assert_eq!(fleet.nodes[1].result(called)["content"], json!([]));
    assert_eq!(fleet.nodes[1].server.state(), State::Closed);
    fleet.finish();
}

#[test]
fn call_that_another_server_has_not_answered_is_cut_and_given_up_at_the_drain_deadline() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    let called = fleet.send(1, call(&session, 1));
    fleet.nodes[1].shutdown();
    fleet.nodes[1].advance(fleet.nodes[1].server.config().drain);
    assert!(fleet.nodes[1].exchange(called).is_aborted());
    assert_eq!(fleet.nodes[1].server.state(), State::Closed);
    fleet.settle();
    // The home looks for no other server any longer.
    fleet.nodes[0].advance(seconds(2));
    let requests = fleet.nodes[0].store.requests;
    fleet.nodes[0].advance(seconds(5));
    assert_eq!(fleet.nodes[0].store.requests, requests);
    fleet.finish();
}

/// The reply waits for the store, which has longer than the last messages of a drain.
#[test]
fn handshake_that_waits_for_the_store_has_the_time_of_the_drain() {
    let mut fleet = Fleet::new();
    fleet.nodes[0].store.holds = true;
    let begun = fleet.nodes[0].send(initialize_with("2025-11-25", &json!({})));
    fleet.nodes[0].shutdown();
    fleet.nodes[0].advance(seconds(4));
    fleet.nodes[0].answer_store();
    assert_eq!(fleet.nodes[0].status(begun), 200);
    fleet.finish();
}

#[test]
fn server_that_drains_passes_nothing_new_on_and_ends_passed_streams() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    let called = fleet.send(1, call(&session, 1));
    let request = fleet.nodes[0].newest_request();
    let standalone = fleet.send(1, session.get());
    fleet.nodes[1].shutdown();
    fleet.settle();
    assert!(fleet.nodes[1].is_over(standalone));
    assert!(!fleet.nodes[1].exchange(standalone).is_aborted());
    for new in [call(&session, 2), session.get()] {
        let refused = fleet.send(1, new);
        assert_eq!(fleet.nodes[1].status(refused), 503);
    }
    // Messages about a call that runs are passed on.
    let cancel = session.notification("notifications/cancelled", json!({"requestId": 1}));
    let cancelled = fleet.send(1, cancel);
    assert_eq!(fleet.nodes[1].status(cancelled), 202);
    assert_eq!(fleet.nodes[0].cancellations()[0].0, request);
    assert_eq!(fleet.nodes[0].requests().len(), 1);
    assert!(fleet.nodes[1].is_over(called));
    assert_eq!(fleet.nodes[1].server.state(), State::Closed);
    fleet.finish();
}

#[test]
fn drain_ends_with_the_last_reply_to_a_client_of_another_server() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    let called = fleet.send(1, call(&session, 1));
    let request = fleet.nodes[0].newest_request();
    fleet.nodes[0].shutdown();
    assert_eq!(fleet.nodes[0].server.state(), State::Draining);
    fleet.nodes[0].respond(request, json!({"content": []}));
    assert_eq!(fleet.nodes[0].server.state(), State::Closed);
    fleet.settle();
    assert_eq!(fleet.nodes[1].result(called)["content"], json!([]));
    fleet.finish();
}

/// The third request needed no look-up when it arrived, and waits for its turn. Before that, the second one finds that the session moved.
#[test]
fn request_behind_one_that_finds_a_session_moved_is_passed_on_too() {
    let mut fleet = Fleet::new();
    let session = fleet.nodes[0].open_session("2025-11-25");
    fleet.nodes[0].feed(lease());
    fleet.nodes[0].advance(seconds(6));
    fleet.nodes[0].store.holds = true;
    let asked = [1, 2].map(|id| fleet.nodes[0].send(ping(&session, id)));
    fleet.nodes[0].feed(lease());
    fleet.nodes[0].answer_nth(0);
    assert_eq!(fleet.nodes[0].status(asked[0]), 200);
    let behind = fleet.nodes[0].send(ping(&session, 3));
    assert_eq!(fleet.nodes[0].store.held.len(), 1, "it asks nothing");
    fleet.nodes[0].store.leave();
    let taken = fleet.nodes[1].send(ping(&session, 4));
    assert_eq!(fleet.nodes[1].status(taken), 200);
    fleet.nodes[0].answer_store();
    fleet.settle();
    for stream in [asked[1], behind] {
        assert_eq!(fleet.nodes[0].status(stream), 200);
    }
    fleet.finish();
}
