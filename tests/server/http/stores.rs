//! Sessions and messages that the driver keeps: its store answers late, in another order, with a failure, or never.

use std::time::Duration;

use everlink::protocol::Version;
use everlink::server::{
    Config, DriverStorage, EventStorage, Http, RefusalCause, Server, SessionRecord, State, Storage,
};
use everlink::{Change, List, StoreAnswer, StoreRequest};
use serde_json::{Value, json};

use crate::server_http::{
    Harness, HttpRequest, Session, Store, config, full_offer, http_config, initialize, modern,
    seconds, shared_http, stored_http,
};

const TOOLS: &str = "notifications/tools/list_changed";
const PROMPTS: &str = "notifications/prompts/list_changed";

fn call(session: &Session, id: u64) -> HttpRequest {
    session.post(id, "tools/call", json!({"name": "slow"}))
}

fn ping(session: &Session, id: u64) -> HttpRequest {
    session.post(id, "ping", json!({}))
}

/// A server that shares its store with others, and a session whose home is gone. From now on, requests to the store are held.
fn shared_and_held() -> (Harness, Session) {
    let store = Store::default();
    let mut home = Harness::with_store(http_config(shared_http(2)), &store);
    let session = home.open_session("2025-11-25");
    home.store.leave();
    home.finish();
    let mut harness = Harness::with_store(http_config(shared_http(1)), &store);
    harness.store.holds = true;
    (harness, session)
}

fn methods(messages: &[Value]) -> Vec<&str> {
    let methods = messages.iter().map(|message| message["method"].as_str());
    methods.map(Option::unwrap_or_default).collect()
}

#[test]
fn storage_in_memory_asks_the_driver_nothing() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let stream = harness.send(session.get());
    harness.publish(Change::List(List::Tools));
    let last = harness.last_event_id(stream);
    harness.disconnect(stream);
    harness.publish(Change::List(List::Tools));
    let resumed = harness.send(session.resume(&last));
    assert_eq!(harness.messages(resumed).len(), 1);
    harness.send(session.delete());
    assert_eq!(harness.store.requests, 0);
    harness.finish();
}

#[test]
fn request_that_waits_for_the_store_delays_no_other_client() {
    let (mut harness, session) = shared_and_held();
    let waiting = harness.send(call(&session, 1));
    assert!(!harness.is_answered(waiting));
    let (other, request) = harness.send_accepted(modern(1, "tools/call", json!({"name": "a"})));
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.status(other), 200);
    assert!(!harness.is_answered(waiting));
    harness.answer_store();
    let request = harness.newest_request();
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.result(waiting)["content"], json!([]));
    harness.finish();
}

#[test]
fn requests_in_one_session_are_served_in_order_when_the_store_answers_in_another() {
    let (mut harness, session) = shared_and_held();
    for id in 1..4 {
        harness.send(session.post(id, "tools/call", json!({"name": id.to_string()})));
    }
    harness.answer_nth(2);
    harness.answer_nth(1);
    assert!(harness.requests().is_empty(), "the first comes first");
    harness.answer_nth(0);
    let params = harness.requests().into_iter().map(|request| {
        let params = request.params.as_ref().expect("it has params");
        params.as_str().to_owned()
    });
    let served: Vec<String> = params.collect();
    let wanted = ["1", "2", "3"].map(|name| json!({"name": name}).to_string());
    assert_eq!(served, wanted);
    harness.store.holds = false;
    harness.finish();
}

#[test]
fn requests_in_different_sessions_do_not_wait_for_each_other() {
    let (mut harness, session) = shared_and_held();
    let other = Session::new("unknown", "2025-11-25");
    let (first, second) = (
        harness.send(ping(&session, 1)),
        harness.send(ping(&other, 1)),
    );
    harness.answer_nth(1);
    assert_eq!(harness.status(second), 404);
    assert!(!harness.is_answered(first));
    harness.answer_store();
    assert_eq!(harness.status(first), 200);
    harness.finish();
}

#[test]
fn client_that_leaves_while_the_store_is_asked_lets_the_next_request_go_on() {
    let (mut harness, session) = shared_and_held();
    let gone = harness.send(call(&session, 1));
    let next = harness.send(ping(&session, 2));
    harness.answer_nth(1);
    assert!(!harness.is_answered(next));
    harness.disconnect(gone);
    assert_eq!(harness.status(next), 200);
    let stale = harness.server.stats().stale_inputs;
    harness.answer_nth(0);
    assert_eq!(harness.server.stats().stale_inputs, stale + 1);
    assert!(harness.requests().is_empty());
    harness.store.holds = false;
    harness.finish();
}

#[test]
fn store_that_does_not_answer_within_5_s_gives_503_and_its_late_answer_is_stale() {
    let (mut harness, session) = shared_and_held();
    let first = harness.send(call(&session, 1));
    harness.advance(seconds(4));
    let second = harness.send(call(&session, 2));
    assert!(!harness.is_answered(first));
    harness.advance(seconds(1));
    assert_eq!(harness.status(first), 503);
    assert!(harness.field(first, "retry-after").is_some());
    let text = harness.json(first)["error"]["message"].to_string();
    assert!(text.contains("did not answer in time"), "{text}");
    let causes = harness
        .refusals()
        .into_iter()
        .map(|refused| (refused.status, refused.cause));
    assert_eq!(causes.collect::<Vec<_>>(), [(503, RefusalCause::Store)]);
    assert!(!harness.is_answered(second), "it has 5 s of its own");
    let stale = harness.server.stats().stale_inputs;
    harness.answer_nth(0);
    assert_eq!(harness.server.stats().stale_inputs, stale + 1);
    harness.advance(seconds(4));
    assert_eq!(harness.status(second), 503);
    assert!(harness.requests().is_empty());
    harness.answer_store();
    let again = harness.send(ping(&session, 3));
    assert_eq!(harness.status(again), 200, "the session goes on");
    harness.finish();
}

#[test]
fn failure_of_the_store_gives_503_and_the_session_goes_on() {
    for answer in [
        StoreAnswer::Failed,
        // No answer to this request.
        StoreAnswer::Events {
            events: Vec::new(),
            is_complete: true,
        },
        StoreAnswer::Session(Some(Box::new(SessionRecord::new(
            "of another",
            Version::V2025_11_25,
        )))),
    ] {
        let (mut harness, session) = shared_and_held();
        let failed = harness.send(call(&session, 1));
        harness.answer_with(answer);
        assert_eq!(harness.status(failed), 503);
        assert!(harness.field(failed, "retry-after").is_some());
        assert_eq!(harness.refusals()[0].cause, RefusalCause::Store);
        harness.store.holds = false;
        let again = harness.send(ping(&session, 2));
        assert_eq!(harness.status(again), 200);
        harness.finish();
    }
}

#[test]
fn requests_that_wait_for_the_store_count_as_open_exchanges() {
    let mut config = http_config(shared_http(1));
    config.limits.exchanges = 2;
    let mut harness = Harness::new(config);
    let session = Session::new("unknown", "2025-11-25");
    harness.store.holds = true;
    let waiting = [1, 2].map(|id| harness.send(ping(&session, id)));
    let refused = harness.send(ping(&session, 3));
    assert_eq!(harness.status(refused), 503);
    harness.answer_store();
    for waiting in waiting {
        assert_eq!(harness.status(waiting), 404);
    }
    harness.finish();
}

#[test]
fn bodies_that_wait_for_the_store_count_against_the_limit_of_arriving_bytes() {
    let mut config = http_config(shared_http(1));
    config.limits.body_bytes = 4_000;
    config.limits.message_bytes = 4_000;
    let store = Store::default();
    store.put(SessionRecord::new("abc", Version::V2025_11_25));
    let mut harness = Harness::with_store(config, &store);
    let session = Session::new("abc", "2025-11-25");
    harness.store.holds = true;
    let large = |id: u64| {
        let text = "x".repeat(2_500);
        session.post(id, "tools/call", json!({"name": text}))
    };
    let waiting = harness.send(large(1));
    let refused = harness.send(large(2));
    assert_eq!(harness.status(refused), 503);
    assert!(!harness.is_answered(waiting));
    harness.answer_store();
    assert_eq!(harness.requests().len(), 1);
    let again = harness.send(large(3));
    assert!(!harness.is_over(again));
    assert_eq!(harness.requests().len(), 2);
    harness.finish();
}

#[test]
fn requests_behind_a_delete_get_404_although_the_store_found_the_session_before() {
    let (mut harness, session) = shared_and_held();
    let deleted = harness.send(session.delete());
    let late = harness.send(ping(&session, 1));
    // The store looked for both before it heard that the session is over.
    harness.answer_nth(1);
    harness.answer_nth(0);
    assert_eq!(harness.status(late), 404);
    assert!(!harness.is_answered(deleted), "it is not in the store yet");
    harness.answer_store();
    assert_eq!(harness.status(deleted), 204);
    let gone = harness.send(ping(&session, 2));
    assert_eq!(harness.status(gone), 404);
    harness.finish();
}

#[test]
fn store_for_one_server_after_another_is_asked_only_about_unknown_sessions() {
    let store = Store::default();
    let mut first = Harness::with_store(http_config(stored_http(1)), &store);
    let session = first.open_session("2025-11-25");
    first.store.holds = true;
    let known = first.send(ping(&session, 1));
    assert_eq!(first.status(known), 200);
    drop(first);

    let mut second = Harness::with_store(http_config(stored_http(2)), &store);
    second.store.holds = true;
    let unknown = second.send(ping(&session, 2));
    let behind = second.send(ping(&session, 3));
    assert_eq!(second.store.held.len(), 2);
    second.answer_nth(0);
    assert_eq!(second.status(unknown), 200);
    // The session is known now, but an earlier request in it still waits.
    let last = second.send(ping(&session, 4));
    assert!(!second.is_answered(behind) && !second.is_answered(last));
    let held = second.store.held.iter();
    let asked = held.filter(|request| request.lookup().is_some());
    assert_eq!(asked.count(), 1);
    second.answer_store();
    assert_eq!((second.status(behind), second.status(last)), (200, 200));
    second.finish();
}

#[test]
fn handshake_waits_for_no_answer_of_the_store() {
    let mut harness = Harness::new(http_config(stored_http(1)));
    harness.store.holds = true;
    let session = harness.open_session("2025-11-25");
    let call = harness.send(call(&session, 1));
    assert!(harness.is_answered(call), "its stream has begun");
    let held = &harness.store.held;
    assert!(
        held.iter().all(|request| request.lookup().is_none()),
        "{held:?}"
    );
    harness.finish();
}

#[test]
fn messages_sent_while_a_stream_is_replayed_follow_the_replay_once() {
    for http in [shared_http(1), stored_http(1)] {
        let mut harness = Harness::new(http_config(http));
        let session = harness.open_session("2025-11-25");
        let stream = harness.send(session.get());
        let primer = harness.last_event_id(stream);
        harness.disconnect(stream);
        harness.publish(Change::List(List::Tools));
        harness.store.holds = true;
        let resumed = harness.send(session.resume(&primer));
        assert!(matches!(harness.store.held[0], StoreRequest::Replay { .. }));
        assert!(!harness.is_answered(resumed));
        harness.publish(Change::List(List::Prompts));
        harness.answer_store();
        let messages = harness.messages(resumed);
        assert_eq!(methods(&messages), [TOOLS, PROMPTS]);
        let ids: Vec<Option<String>> = harness.sse(resumed).into_iter().map(|e| e.id).collect();
        assert_eq!(ids.len(), 3);
        // All of it is in the store, for the next resume.
        harness.disconnect(resumed);
        let again = harness.send(session.resume(&primer));
        assert_eq!(methods(&harness.messages(again)), [TOOLS, PROMPTS]);
        harness.finish();
    }
}

#[test]
fn failed_replay_gives_503_and_loses_no_message() {
    let mut harness = Harness::new(http_config(stored_http(1)));
    let session = harness.open_session("2025-11-25");
    let (lost, request) = harness.send_accepted(call(&session, 1));
    let last = harness.last_event_id(lost);
    harness.disconnect(lost);
    harness.store.holds = true;
    let failed = harness.send(session.resume(&last));
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.store.held.len(), 1, "the reply waits");
    harness.answer_with(StoreAnswer::Failed);
    assert_eq!(harness.status(failed), 503);
    harness.answer_store();
    let resumed = harness.send(session.resume(&last));
    assert_eq!(harness.result(resumed)["content"], json!([]));
    harness.finish();
}

#[test]
fn client_that_leaves_during_a_replay_gets_the_reply_when_it_comes_back() {
    let mut harness = Harness::new(http_config(stored_http(1)));
    let session = harness.open_session("2025-11-25");
    let (lost, request) = harness.send_accepted(call(&session, 1));
    let last = harness.last_event_id(lost);
    harness.disconnect(lost);
    harness.store.holds = true;
    let gone = harness.send(session.resume(&last));
    harness.respond(request, json!({"content": []}));
    harness.disconnect(gone);
    harness.answer_store();
    let resumed = harness.send(session.resume(&last));
    assert_eq!(harness.result(resumed)["content"], json!([]));
    harness.finish();
}

#[test]
fn newer_stream_replaces_one_that_waits_for_its_replay() {
    let mut harness = Harness::new(http_config(stored_http(1)));
    let session = harness.open_session("2025-11-25");
    let stream = harness.send(session.get());
    let primer = harness.last_event_id(stream);
    harness.disconnect(stream);
    harness.publish(Change::List(List::Tools));
    harness.store.holds = true;
    let older = harness.send(session.resume(&primer));
    let newer = harness.send(session.resume(&primer));
    assert_eq!(harness.status(older), 503);
    harness.answer_store();
    assert_eq!(methods(&harness.messages(newer)), [TOOLS]);
    harness.finish();
}

/// The older one would take the queue with it when its look-up ends, and the newer stream would be silent.
#[test]
fn new_stream_replaces_one_that_waits_for_its_replay_and_goes_on() {
    for answer in [Some(StoreAnswer::Failed), None] {
        let mut harness = Harness::new(http_config(stored_http(1)));
        let session = harness.open_session("2025-11-25");
        let stream = harness.send(session.get());
        let primer = harness.last_event_id(stream);
        harness.publish(Change::List(List::Tools));
        harness.disconnect(stream);
        harness.store.holds = true;
        let older = harness.send(session.resume(&primer));
        assert!(!harness.is_answered(older));
        let newer = harness.send(session.get());
        assert!(harness.is_answered(newer));
        assert_eq!(harness.status(older), 503);
        match answer {
            Some(answer) => harness.answer_with(answer),
            None => harness.answer_store(),
        }
        harness.store.holds = false;
        assert!(!harness.is_over(newer));
        harness.publish(Change::List(List::Prompts));
        assert_eq!(methods(&harness.messages(newer)), [PROMPTS]);
        harness.answer_store();
        harness.finish();
    }
}

/// The client resumes the standalone stream of a server that is gone. It gets what that one had stored, then that all that it watches may
/// have changed, and each later message once.
#[test]
fn standalone_stream_of_one_server_is_resumed_at_another() {
    let store = Store::default();
    let mut one = Harness::with_store(http_config(shared_http(1)), &store);
    let mut other = Harness::with_store(http_config(shared_http(2)), &store);
    let session = one.open_session("2025-11-25");
    let stream = one.send(session.get());
    let last = one.last_event_id(stream);
    one.disconnect(stream);
    one.publish(Change::List(List::Tools));
    one.store.leave();
    one.finish();
    let resumed = other.send(session.resume(&last));
    let resources = "notifications/resources/list_changed";
    let told = [TOOLS, PROMPTS, resources, TOOLS];
    assert_eq!(methods(&other.messages(resumed)), told);
    other.publish(Change::List(List::Prompts));
    assert_eq!(other.messages(resumed).len(), 5);
    let last = other.last_event_id(resumed);
    other.disconnect(resumed);
    let again = other.send(session.resume(&last));
    assert!(other.messages(again).is_empty());
    other.finish();
}

#[test]
fn servers_with_one_secret_never_use_the_same_event_id() {
    let store = Store::default();
    let mut servers = [1, 2].map(|n| Harness::with_store(http_config(shared_http(n)), &store));
    let session = servers[0].open_session("2025-11-25");
    let mut ids = Vec::new();
    for server in &mut servers {
        // The second becomes the home of the session. Both number their streams alike.
        let stream = server.send(session.get());
        server.publish(Change::List(List::Tools));
        let (call, request) = server.send_accepted(call(&session, 1));
        server.respond(request, json!({"content": []}));
        for stream in [stream, call] {
            ids.extend(server.sse(stream).into_iter().filter_map(|event| event.id));
        }
        server.store.leave();
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count);
    servers.into_iter().for_each(Harness::finish);
}

#[test]
fn sessions_can_be_kept_by_the_driver_and_messages_in_memory() {
    let mut storage = DriverStorage::new(1);
    storage.events = EventStorage::Memory;
    let mut harness = Harness::new(http_config(Http::new().with_storage(storage)));
    let session = harness.open_session("2025-11-25");
    let before = harness.store.requests;
    let stream = harness.send(session.get());
    let primer = harness.last_event_id(stream);
    harness.disconnect(stream);
    harness.publish(Change::List(List::Tools));
    assert_eq!(harness.store.requests, before + 1, "one note to the others");
    let resumed = harness.send(session.resume(&primer));
    assert_eq!(methods(&harness.messages(resumed)), [TOOLS]);
    harness.finish();
}

#[test]
fn shutdown_waits_for_the_store_no_longer_than_its_timeout() {
    let (mut harness, session) = shared_and_held();
    let served = harness.send(ping(&session, 1));
    let waiting = harness.send(ping(&session, 2));
    harness.shutdown();
    harness.answer_nth(0);
    assert_eq!(harness.status(served), 200);
    assert_eq!(harness.server.state(), State::Draining);
    harness.advance(seconds(5));
    assert_eq!(harness.status(waiting), 503);
    assert_eq!(harness.server.state(), State::Closed);
    harness.finish();
}

#[test]
fn requests_that_wait_for_the_store_are_refused_at_the_drain_deadline() {
    let mut storage = DriverStorage::new(1);
    storage.timeout = seconds(600);
    let mut config = http_config(Http::new().with_storage(storage));
    config.drain = seconds(3);
    let mut harness = Harness::new(config);
    harness.store.holds = true;
    let session = Session::new("unknown", "2025-11-25");
    let waiting = harness.send(ping(&session, 1));
    harness.shutdown();
    harness.advance(seconds(3));
    assert_eq!(harness.status(waiting), 503);
    assert_eq!(harness.server.state(), State::Closed);
    harness.finish();
}

#[test]
fn nonsense_that_waits_for_the_store_is_counted_once() {
    let (mut harness, session) = shared_and_held();
    let body = r#"{"jsonrpc":"2.0","id":7,"result":1,"error":2}"#;
    let mut nonsense = session.post_message(&Value::Null);
    nonsense.body = body.into();
    let refused = harness.send(nonsense);
    harness.answer_store();
    assert_eq!(harness.status(refused), 400);
    assert_eq!(
        harness.server.stats().noise,
        2,
        "the body, and the reply to nothing that was asked"
    );
    harness.finish();
}

fn is_append(request: &StoreRequest) -> bool {
    matches!(request, StoreRequest::Append { .. })
}

/// The next server can then replay it, even if this one is gone by then.
#[test]
fn reply_that_waited_for_a_replay_is_stored_when_the_replay_fails_or_its_client_leaves() {
    for fails in [true, false] {
        let mut harness = Harness::new(http_config(stored_http(1)));
        let session = harness.open_session("2025-11-25");
        let (lost, request) = harness.send_accepted(call(&session, 1));
        let last = harness.last_event_id(lost);
        harness.disconnect(lost);
        harness.store.holds = true;
        let waiting = harness.send(session.resume(&last));
        harness.respond(request, json!({"content": []}));
        assert!(!harness.store.held.iter().any(is_append), "it waits");
        if fails {
            harness.answer_with(StoreAnswer::Failed);
        } else {
            harness.disconnect(waiting);
        }
        assert!(harness.store.held.iter().any(is_append), "{fails}");
        harness.answer_store();
        harness.finish();
    }
}

/// A client resumes its stream while the store does not answer, and then the drain ends.
fn assert_error_is_stored(config: Config, end_drain: impl FnOnce(&mut Harness)) {
    let mut harness = Harness::new(config);
    let session = harness.open_session("2025-11-25");
    let (lost, _) = harness.send_accepted(call(&session, 1));
    let last = harness.last_event_id(lost);
    harness.disconnect(lost);
    harness.store.holds = true;
    let waiting = harness.send(session.resume(&last));
    harness.shutdown();
    end_drain(&mut harness);
    assert_eq!(harness.status(waiting), 503);
    assert!(harness.store.held.iter().any(is_append));
    harness.finish();
}

#[test]
fn error_that_waits_for_a_replay_at_the_drain_deadline_is_stored() {
    let mut http = stored_http(1);
    if let Storage::Driver(storage) = &mut http.storage {
        storage.timeout = seconds(600);
    }
    assert_error_is_stored(http_config(http), |harness| harness.advance(seconds(5)));
}

/// A driver that was late reports several deadlines at once.
#[test]
fn error_that_waits_for_a_replay_whose_deadline_passes_with_that_of_the_drain_is_stored() {
    let mut config = http_config(stored_http(1));
    config.drain = seconds(6);
    assert_error_is_stored(config, |harness| {
        harness.sleep(seconds(10));
        harness.advance(seconds(0));
    });
}

#[test]
fn replayed_message_that_the_client_has_is_not_repeated() {
    let mut harness = Harness::new(http_config(stored_http(1)));
    let session = harness.open_session("2025-11-25");
    let stream = harness.send(session.get());
    harness.publish(Change::List(List::Tools));
    let last = harness.last_event_id(stream);
    harness.disconnect(stream);
    harness.publish(Change::List(List::Prompts));
    harness.store.holds = true;
    let resumed = harness.send(session.resume(&last));
    let message = |list: &str| {
        let method = format!("notifications/{list}/list_changed");
        json!({"jsonrpc": "2.0", "method": method}).to_string()
    };
    let events = vec![(1, message("tools").into()), (2, message("prompts").into())];
    harness.answer_with(StoreAnswer::Events {
        events,
        is_complete: true,
    });
    assert_eq!(methods(&harness.messages(resumed)), [PROMPTS]);
    harness.finish();
}

/// The client had the stream of a server that is gone. Meanwhile this server stored messages of its own for it.
#[test]
fn stream_of_another_server_is_followed_by_the_stored_messages_of_this_one() {
    let store = Store::default();
    let mut one = Harness::with_store(http_config(shared_http(1)), &store);
    let mut other = Harness::with_store(http_config(shared_http(2)), &store);
    let session = one.open_session("2025-11-25");
    let stream = one.send(session.get());
    let last = one.last_event_id(stream);
    one.disconnect(stream);
    one.publish(Change::List(List::Tools));
    one.store.leave();
    one.finish();
    // It becomes the home, and stores that all that the client watches may have changed.
    other.send(ping(&session, 1));
    other.publish(Change::List(List::Prompts));
    other.store.holds = true;
    let resumed = other.send(session.resume(&last));
    other.answer_nth(0);
    assert!(!other.is_answered(resumed), "its own messages are missing");
    other.answer_store();
    let resources = "notifications/resources/list_changed";
    let told = [TOOLS, PROMPTS, resources, TOOLS, PROMPTS];
    assert_eq!(methods(&other.messages(resumed)), told);
    // With the last event of this server, one question is enough.
    let own = other.last_event_id(resumed);
    other.disconnect(resumed);
    other.store.holds = true;
    let resumed = other.send(session.resume(&last));
    other.answer_nth(0);
    assert_eq!(methods(&other.messages(resumed)), [TOOLS]);
    assert!(other.store.held.is_empty());
    assert_ne!(own, last);
    other.store.holds = false;
    other.finish();
}

/// A stream that waits for its messages is in use. It no longer is when its client leaves, or gets an error.
#[test]
fn session_whose_stream_waits_for_the_store_does_not_give_way_to_another() {
    for is_answered in [false, true] {
        for fails in [false, true] {
            let mut config = http_config(stored_http(1));
            config.limits.sessions = 1;
            let mut harness = Harness::new(config);
            let session = harness.open_session("2025-11-25");
            let (lost, request) = harness.send_accepted(call(&session, 1));
            let last = harness.last_event_id(lost);
            harness.disconnect(lost);
            if is_answered {
                harness.respond(request, json!({"content": []}));
            }
            harness.store.holds = true;
            let waiting = harness.send(session.resume(&last));
            let refused = harness.send(initialize("2025-11-25"));
            assert_eq!(harness.status(refused), 503);
            if fails {
                harness.answer_with(StoreAnswer::Failed);
                assert_eq!(harness.status(waiting), 503);
            } else {
                harness.disconnect(waiting);
            }
            if is_answered {
                let begun = harness.send(initialize("2025-11-25"));
                assert_eq!(harness.status(begun), 200, "{fails}");
            }
            harness.answer_store();
            harness.finish();
        }
    }
}

#[test]
fn requests_that_wait_in_a_session_that_gives_way_get_404_at_once() {
    let store = Store::default();
    let mut record = SessionRecord::new("abc", Version::V2025_11_25);
    record.is_initialized = true;
    store.put(record);
    let mut config = http_config(stored_http(1));
    config.limits.sessions = 1;
    let mut harness = Harness::with_store(config, &store);
    let session = Session::new("abc", "2025-11-25");
    harness.store.holds = true;
    let [first, second] = [1, 2].map(|id| harness.send(ping(&session, id)));
    harness.answer_nth(0);
    assert_eq!(harness.status(first), 200);
    assert!(!harness.is_answered(second));
    let begun = harness.send(initialize("2025-11-25"));
    assert_eq!(harness.status(begun), 200);
    assert_eq!(harness.status(second), 404);
    harness.answer_store();
    harness.finish();
}

#[test]
fn body_that_waited_for_the_store_counts_no_longer() {
    let mut config = http_config(shared_http(1));
    config.limits.body_bytes = 4_000;
    config.limits.message_bytes = 4_000;
    let mut harness = Harness::new(config);
    harness.store.holds = true;
    let text = "x".repeat(2_500);
    let session = Session::new("unknown", "2025-11-25");
    let waited = harness.send(session.post(1, "tools/call", json!({"name": text})));
    harness.answer_store();
    assert_eq!(harness.status(waited), 404);
    let streams = [(); 2].map(|()| harness.begin(&initialize("2025-11-25")));
    for stream in streams {
        harness.body(stream, &[b' '; 2_000]);
    }
    assert!(streams.iter().all(|stream| !harness.is_answered(*stream)));
    harness.finish();
}

/// An early deadline would wake the driver for nothing.
#[test]
fn no_deadline_is_left_of_a_question_that_the_store_answered_or_whose_client_left() {
    for leaves in [false, true] {
        let (mut harness, _) = shared_and_held();
        let unknown = Session::new("unknown", "2025-11-25");
        let waiting = harness.send(ping(&unknown, 1));
        assert!(harness.server.poll_timeout().is_some());
        if leaves {
            harness.disconnect(waiting);
            harness.store.held.clear();
        } else {
            harness.answer_nth(0);
            assert_eq!(harness.status(waiting), 404);
        }
        assert_eq!(harness.server.poll_timeout(), None, "{leaves}");
        harness.store.holds = false;
        harness.finish();
    }
}

#[test]
fn session_that_ends_for_good_is_removed_from_the_store_of_one_server_after_another() {
    let mut config = http_config(stored_http(1));
    config.limits.sessions = 1;
    let mut harness = Harness::new(config);
    let displaced = harness.open_session("2025-11-25");
    let idle = harness.open_session("2025-11-25");
    let gone = harness.send(ping(&displaced, 1));
    assert_eq!(harness.status(gone), 404);
    harness.advance(seconds(31 * 60));
    let gone = harness.send(ping(&idle, 1));
    assert_eq!(harness.status(gone), 404);
    harness.finish();
}

#[test]
fn message_is_stored_at_once_although_its_client_does_not_read() {
    let mut harness = Harness::new(http_config(stored_http(1)));
    let session = harness.open_session("2025-11-25");
    let stream = harness.send(session.get());
    harness.stop_reading(stream);
    let before = harness.store.requests;
    harness.publish(Change::List(List::Tools));
    assert_eq!(harness.store.requests, before + 1);
    harness.finish();
}

#[test]
fn client_of_each_session_from_the_store_is_reported() {
    let store = Store::default();
    for id in ["a", "b"] {
        let mut record = SessionRecord::new(id, Version::V2025_11_25);
        record.is_initialized = true;
        store.put(record);
    }
    let mut harness = Harness::with_store(http_config(stored_http(1)), &store);
    for (id, count) in [("a", 1), ("b", 2)] {
        harness.send(ping(&Session::new(id, "2025-11-25"), 1));
        assert_eq!(harness.met(), vec![Version::V2025_11_25; count]);
    }
    harness.finish();
}

#[test]
fn session_from_the_store_watches_no_more_than_there_is_room_for() {
    let store = Store::default();
    let mut record = SessionRecord::new("a", Version::V2025_11_25);
    record.is_initialized = true;
    record.uris = ["file:///a", "file:///b"].map(Box::from).into();
    store.put(record);
    let mut config = http_config(stored_http(1));
    config.limits.watched_uris = 1;
    let mut harness = Harness::with_store(config, &store);
    harness.send(ping(&Session::new("a", "2025-11-25"), 1));
    assert_eq!(harness.server.watched().uris.len(), 1);
    harness.finish();
}

#[test]
fn session_that_ended_before_the_offer_keeps_it_from_no_other() {
    let store = Store::default();
    for id in ["a", "b"] {
        let mut record = SessionRecord::new(id, Version::V2025_11_25);
        record.is_initialized = true;
        store.put(record);
    }
    let config = Config::deferred([7; 16]).with_http(stored_http(1));
    let mut harness = Harness::with_store(config, &store);
    let [ended, kept] = ["a", "b"].map(|id| Session::new(id, "2025-11-25"));
    for session in [&ended, &kept] {
        harness.send(ping(session, 1));
    }
    harness.send(ended.delete());
    harness.with_server(|server, now| server.offer(now, full_offer()));
    let stream = harness.send(kept.get());
    harness.publish(Change::List(List::Tools));
    assert_eq!(methods(&harness.messages(stream)), [TOOLS]);
    harness.finish();
}

/// Both deadlines pass while the process sleeps.
#[test]
fn session_that_ends_in_the_step_in_which_the_server_closes_leaves_the_store() {
    let store = Store::default();
    let mut http = stored_http(1);
    http.session_idle = seconds(60);
    let mut harness = Harness::with_store(http_config(http), &store);
    let session = harness.open_session("2025-11-25");
    harness.advance(Duration::from_millis(59_500));
    let (unread, request) = harness.send_accepted(modern(1, "tools/call", json!({"name": "a"})));
    harness.stop_reading(unread);
    harness.respond(request, json!({"content": []}));
    harness.shutdown();
    harness.sleep(seconds(2));
    harness.with_server(Server::handle_timeout);
    assert_eq!(harness.server.state(), State::Closed);
    let mut other = Harness::with_store(http_config(stored_http(2)), &store);
    let gone = other.send(ping(&session, 1));
    assert_eq!(other.status(gone), 404);
    other.finish();
}

#[test]
fn store_is_not_asked_for_a_session_with_an_id_that_no_server_makes() {
    let mut harness = Harness::new(http_config(shared_http(1)));
    for (len, is_asked) in [(256, true), (257, false)] {
        let before = harness.store.requests;
        let refused = harness.send(ping(&Session::new("x".repeat(len), "2025-11-25"), 1));
        assert_eq!(harness.status(refused), 404);
        assert_eq!(harness.store.requests > before, is_asked, "{len}");
    }
    harness.finish();
}

/// A slow store must not make the short requests of others fail.
#[test]
fn long_request_that_waits_for_the_store_gives_way_to_a_short_one() {
    let mut config = http_config(shared_http(1));
    config.limits.message_bytes = 20_000;
    config.limits.body_bytes = 20_000;
    let mut harness = Harness::new(config);
    harness.store.holds = true;
    let padded = |len| json!({"name": "slow", "pad": "x".repeat(len)});
    let unknown = Session::new("a", "2025-11-25");
    let shorter = harness.send(unknown.post(1, "tools/call", padded(5_000)));
    let longer = harness.send(unknown.post(2, "tools/call", padded(9_000)));
    let arriving = harness.begin(&modern(3, "tools/call", padded(8_000)));
    harness.body(arriving, &[b' '; 8_000]);
    assert_eq!(harness.status(longer), 503);
    assert!(!harness.is_answered(shorter) && !harness.is_answered(arriving));
    harness.answer_with(StoreAnswer::Session(None));
    assert_eq!(harness.status(shorter), 404);
    // The answer for the request that was refused is stale.
    let stale = harness.server.stats().stale_inputs;
    harness.answer_store();
    assert_eq!(harness.server.stats().stale_inputs, stale + 1);
    harness.finish();
}

/// A store may drop a session after the time for which it was told to keep it, and the server may be restarted at any time.
#[test]
fn store_is_told_to_keep_a_session_that_is_used() {
    let mut harness = Harness::new(http_config(stored_http(1)));
    let session = harness.open_session("2025-11-25");
    for (minutes, is_told) in [(1, false), (3, true), (1, false)] {
        harness.advance(seconds(60 * minutes));
        harness.store.holds = true;
        harness.send(ping(&session, 1));
        let held = core::mem::take(&mut harness.store.held);
        let is_touched = held
            .iter()
            .any(|request| matches!(request, StoreRequest::Touch { .. }));
        assert_eq!(is_touched, is_told);
        harness.store.holds = false;
    }
    harness.finish();
}

/// Each server then has messages of its own, and numbers them alone.
#[test]
fn standalone_stream_skips_no_message_in_memory_of_the_server_that_continues_the_session() {
    let store = Store::default();
    let [mut one, mut other] = [1, 2].map(|instance| {
        let mut storage = DriverStorage::new(instance);
        storage.events = EventStorage::Memory;
        let config = http_config(Http::new().with_storage(storage));
        Harness::with_store(config, &store)
    });
    let session = one.open_session("2025-11-25");
    let stream = one.send(session.get());
    for _ in 0..9 {
        one.publish(Change::List(List::Tools));
    }
    let last = one.last_event_id(stream);
    let ids = |harness: &Harness, stream| {
        let events = harness.sse(stream).into_iter();
        let with_data = events.filter(|event| event.data.as_ref().is_some_and(|d| !d.is_empty()));
        with_data.filter_map(|event| event.id).collect::<Vec<_>>()
    };
    let mut seen = ids(&one, stream);
    one.disconnect(stream);
    one.store.leave();
    one.finish();
    // The session comes to the other server, which stores messages while no stream is open.
    other.send(ping(&session, 1));
    other.publish(Change::List(List::Prompts));
    let resumed = other.send(session.resume(&last));
    let told = methods(&other.messages(resumed)).len();
    assert_eq!(told, 4, "all lists may have changed, and one did");
    seen.extend(ids(&other, resumed));
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(
        seen.len(),
        count,
        "no event has the id of another: {seen:?}"
    );
    other.finish();
}
