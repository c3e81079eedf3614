//! The streams of legacy clients over HTTP: which message goes to which stream, how streams begin and end, and how a broken stream
//! is resumed.

use crate::server_http::{
    self, Harness, HttpRequest, NO_MESSAGES, Session, Store, config, http_config, seconds,
    stored_http,
};
use everlink::server::{Http, Progress, Replay};
use everlink::{Change, List};
use serde_json::{Value, json};

const STREAMABLE: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];
const PROGRESS: &str = "notifications/progress";
const CHANGED: &str = "notifications/tools/list_changed";

/// A call that asks for progress.
fn call_with_progress(session: &Session, id: u64) -> HttpRequest {
    let params = json!({"name": "slow", "_meta": {"progressToken": id}});
    session.post(id, "tools/call", params)
}

fn tools_changed(harness: &mut Harness) {
    harness.publish(Change::List(List::Tools));
}

#[test]
fn s_lhttp_04_request_is_answered_with_an_accepted_content_type() {
    for version in STREAMABLE {
        let mut harness = Harness::new(config());
        let session = harness.open_session(version);
        for accept in ["application/json", "text/event-stream"] {
            let http_request = call_with_progress(&session, 1).with("accept", accept);
            let answered = harness.send_and_respond(http_request, json!({"content": []}));
            assert_eq!(harness.status(answered), 200);
            assert_eq!(harness.field(answered, "content-type"), Some(accept));
            assert_eq!(harness.result(answered)["content"], json!([]));
        }
        let both =
            harness.send_and_respond(call_with_progress(&session, 1), json!({"content": []}));
        let content_type = harness.field(both, "content-type").expect("a content type");
        assert!(["application/json", "text/event-stream"].contains(&content_type));
        assert_eq!(harness.result(both)["content"], json!([]));
        harness.finish();
    }
}

/// S-LHTTP-05, S-LHTTP-06, S-LHTTP-15: messages about a request come before its reply, only on its own stream, and the reply ends the
/// stream.
#[test]
fn s_lhttp_05_messages_of_a_request_go_only_to_its_stream() {
    for version in STREAMABLE {
        let mut harness = Harness::new(config());
        let session = harness.open_session(version);
        let session_stream = harness.send(session.get());
        let (stream, request) = harness.send_accepted(call_with_progress(&session, 1));
        let (other, _) = harness.send_accepted(call_with_progress(&session, 2));
        harness.progress(request, 1.0);
        let ask = harness.ask(request, "roots/list", Value::Null);
        let ask_id = harness.messages_with(stream, "roots/list")[0]["id"].clone();
        harness.send(session.answer(&ask_id, json!({"roots": []})));
        assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
        assert!(!harness.is_over(stream));
        harness.respond(request, json!({"content": []}));
        assert!(harness.is_over(stream) && !harness.exchange(stream).is_aborted());
        let messages = harness.messages(stream);
        let methods: Vec<&str> = messages
            .iter()
            .filter_map(|m| m["method"].as_str())
            .collect();
        assert_eq!(methods, [PROGRESS, "roots/list"], "{version}");
        assert_eq!(messages[2]["result"]["content"], json!([]), "S-LHTTP-06");
        assert_eq!(harness.messages(session_stream), NO_MESSAGES, "S-LHTTP-15");
        assert_eq!(harness.messages(other), NO_MESSAGES);
        harness.finish();
    }
}

#[test]
fn s_lhttp_07_stream_stays_open_until_its_reply_or_the_end_of_its_session() {
    for version in STREAMABLE {
        let mut harness = Harness::new(config());
        let session = harness.open_session(version);
        let (stream, request) = harness.send_accepted(call_with_progress(&session, 1));
        harness.progress(request, 1.0);
        harness.advance(seconds(6 * 60 * 60));
        assert!(!harness.is_over(stream), "{version}");
        harness.respond(request, json!({"content": []}));
        assert_eq!(harness.result(stream)["content"], json!([]));
        // The stream also ends with its session.
        let (stream, _) = harness.send_accepted(call_with_progress(&session, 2));
        harness.send(session.delete());
        assert!(harness.is_over(stream));
        harness.finish();
    }
}

/// S-LHTTP-08, S-LHTTP-10: each stream of 2025-11-25 begins with an event that has an id, a retry delay and no data.
#[test]
fn s_lhttp_08_stream_of_2025_11_25_begins_with_an_event_to_resume_from() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let session_stream = harness.send(session.get());
    let (stream, _) = harness.send_accepted(call_with_progress(&session, 1));
    for stream in [session_stream, stream] {
        let first = harness.sse(stream).remove(0);
        assert!(first.id.is_some_and(|id| !id.is_empty()));
        assert_eq!(first.data.as_deref(), Some(""));
        assert_eq!(first.retry, Some(1_000), "S-LHTTP-10");
    }
    // Earlier versions do not know this event, and some of their clients fail on it.
    for version in ["2025-03-26", "2025-06-18"] {
        let session = harness.open_session(version);
        let session_stream = harness.send(session.get());
        let (stream, _) = harness.send_accepted(call_with_progress(&session, 1));
        for stream in [session_stream, stream] {
            let events = harness.sse_or_empty(stream);
            assert!(events.iter().all(|event| event.data.is_none()), "{version}");
        }
    }
    harness.finish();
}

/// S-LHTTP-09, S-LHTTP-10: a stream outlives its connection. A client that resumes takes it over, and the old connection is
/// closed without a reply. The old connection announced the retry delay.
#[test]
fn s_lhttp_09_resuming_a_stream_closes_the_old_connection_without_a_reply() {
    let mut http = Http::new();
    http.retry = seconds(3);
    let mut harness = Harness::new(http_config(http));
    let session = harness.open_session("2025-11-25");
    let (first, request) = harness.send_accepted(call_with_progress(&session, 1));
    let primer = harness.last_event_id(first);
    let second = harness.send(session.resume(&primer));
    assert!(harness.is_over(first) && !harness.exchange(first).is_aborted());
    assert_eq!(harness.messages(first), NO_MESSAGES);
    assert_eq!(harness.sse(first)[0].retry, Some(3_000));
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.result(second)["content"], json!([]));
    assert!(harness.cancellations().is_empty());
    harness.finish();
}

/// S-LHTTP-09: the server may close the connection after it has written everything, but only if the client can resume.
#[test]
fn s_lhttp_09_server_may_hang_up_if_the_client_can_resume() {
    for version in STREAMABLE {
        for when in [
            "at once",
            "later",
            "after progress",
            "in the same step as progress",
        ] {
            let mut harness = Harness::new(config());
            let session = harness.open_session(version);
            harness.hangs_up_on_arrival = when == "at once";
            let (stream, request) = harness.send_accepted(call_with_progress(&session, 1));
            match when {
                "at once" => {}
                "later" => harness.hang_up(request),
                "after progress" => {
                    harness.progress(request, 1.0);
                    harness.hang_up(request);
                }
                _ => harness.with_server(|server, now| {
                    for step in [0.5, 1.0] {
                        let step = Progress::new(step);
                        server
                            .progress(now, request, step)
                            .expect("the request is open");
                    }
                    server.hang_up(now, request).expect("the request is open");
                }),
            }
            let can_resume = version == "2025-11-25";
            assert_eq!(harness.is_over(stream), can_resume, "{version}, {when}");
            assert!(!harness.exchange(stream).is_aborted());
            let expected_count = match when {
                "after progress" => 1,
                "in the same step as progress" => 2,
                _ => 0,
            };
            let sent_count = harness.messages_with(stream, PROGRESS).len();
            assert_eq!(
                sent_count, expected_count,
                "queued progress is sent first: {version}, {when}"
            );
            harness.progress(request, 2.0);
            if can_resume {
                let resumed = harness.last_event_id(stream);
                let resumed = harness.send(session.resume(&resumed));
                assert_eq!(harness.messages_with(resumed, PROGRESS).len(), 1);
                harness.hang_up(request);
                assert!(harness.is_over(resumed), "a second hang-up works as well");
                harness.respond(request, json!({"content": []}));
                let again = harness.last_event_id(resumed);
                let again = harness.send(session.resume(&again));
                assert_eq!(harness.result(again)["content"], json!([]));
                assert!(harness.is_over(again));
            } else {
                harness.respond(request, json!({"content": []}));
                assert_eq!(harness.result(stream)["content"], json!([]));
            }
            harness.finish();
        }
    }
}

#[test]
fn server_hangs_up_after_a_last_report_that_replaced_another() {
    let mut config = config();
    config.limits.write_window = 10;
    let mut harness = Harness::new(config);
    let session = harness.open_session("2025-11-25");
    let params = json!({"name": "slow", "_meta": {"progressToken": "p"}});
    let (stream, request) = harness.send_accepted(session.post(1, "tools/call", params));
    harness.stop_reading(stream);
    harness.with_server(|server, now| {
        for step in 1..=3 {
            let progress = Progress::new(f64::from(step));
            server
                .progress(now, request, progress)
                .expect("the request is open");
        }
    });
    harness.progress(request, 4.0);
    harness.hang_up(request);
    assert!(!harness.is_over(stream));
    harness.resume_reading(stream);
    assert!(harness.is_over(stream));
    let reports = harness.messages_with(stream, "notifications/progress");
    let steps: Vec<&Value> = reports.iter().map(|it| &it["params"]["progress"]).collect();
    assert_eq!(steps, [1, 2, 4]);
    harness.finish();
}

#[test]
fn hang_up_has_no_effect_if_the_client_cannot_resume() {
    let mut http = Http::new();
    http.replay = Replay::new(0, 0);
    let mut harness = Harness::new(http_config(http));
    let session = harness.open_session("2025-11-25");
    let (without_store, request) = harness.send_accepted(call_with_progress(&session, 1));
    harness.hang_up(request);
    assert!(!harness.is_over(without_store));
    harness.respond(request, json!({"content": []}));
    harness.finish();

    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let json_only = call_with_progress(&session, 1).with("accept", "application/json");
    let modern_call = server_http::modern(2, "tools/call", json!({"name": "slow"}));
    for http_request in [json_only, modern_call] {
        let (stream, request) = harness.send_accepted(http_request);
        harness.hang_up(request);
        assert!(!harness.is_over(stream));
        harness.respond(request, json!({"content": []}));
        assert_eq!(harness.result(stream)["content"], json!([]));
    }
    harness.finish();
}

#[test]
fn s_lhttp_12_streams_end_with_their_session() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let session_stream = harness.send(session.get());
    let (stream, _) = harness.send_accepted(call_with_progress(&session, 1));
    let other = harness.open_session("2025-11-25");
    let kept = harness.send(other.get());
    harness.send(session.delete());
    assert!(harness.is_over(session_stream) && harness.is_over(stream));
    assert!(!harness.is_over(kept));
    harness.finish();
}

/// S-LHTTP-15, S-LHTTP-16: the stream of the session carries only messages that belong to no request, and no replies.
#[test]
fn s_lhttp_16_session_stream_carries_no_replies() {
    for version in STREAMABLE {
        let mut harness = Harness::new(config());
        let session = harness.open_session(version);
        let session_stream = harness.send(session.get());
        tools_changed(&mut harness);
        let pong = harness.send(session.post(1, "ping", Value::Null));
        assert_eq!(harness.result(pong), json!({}));
        for (id, accept) in [(2, "application/json"), (3, "text/event-stream")] {
            let http_request = call_with_progress(&session, id).with("accept", accept);
            harness.send_and_respond(http_request, json!({"content": []}));
        }
        // The same holds if the client of the request is gone.
        let (gone, request) = harness.send_accepted(call_with_progress(&session, 4));
        harness.disconnect(gone);
        harness.respond(request, json!({"content": []}));
        let messages = harness.messages(session_stream);
        assert_eq!(messages.len(), 1, "{version}");
        assert_eq!(messages[0]["method"], CHANGED);
        harness.finish();
    }
}

#[test]
fn s_lhttp_17_session_stream_may_end_and_reopen_without_loss() {
    for version in STREAMABLE {
        let mut harness = Harness::new(config());
        let session = harness.open_session(version);
        let first = harness.send(session.get());
        harness.disconnect(first);
        let pong = harness.send(session.post(1, "ping", Value::Null));
        assert_eq!(harness.status(pong), 200);
        tools_changed(&mut harness);
        let second = harness.send(session.get());
        assert_eq!(
            harness.messages_with(second, CHANGED).len(),
            1,
            "the change waited for the stream"
        );
        let third = harness.send(session.get());
        assert!(harness.is_over(second) && !harness.exchange(second).is_aborted());
        if version == "2025-11-25" {
            assert!(harness.sse(second)[0].retry.is_some());
        }
        tools_changed(&mut harness);
        assert_eq!(harness.messages_with(third, CHANGED).len(), 1);
        harness.finish();
    }
}

#[test]
fn s_lhttp_19_each_message_goes_to_one_stream_of_a_session() {
    for version in STREAMABLE {
        let mut harness = Harness::new(config());
        let (session, other) = (harness.open_session(version), harness.open_session(version));
        let first = harness.send(session.get());
        let foreign = harness.send(other.get());
        let (call, request) = harness.send_accepted(call_with_progress(&session, 1));
        let (other_call, _) = harness.send_accepted(call_with_progress(&session, 2));
        let second = harness.send(session.get());
        tools_changed(&mut harness);
        harness.progress(request, 1.0);
        let streams = [first, second, call, other_call];
        let count = |method: &str| -> usize {
            let messages = streams
                .iter()
                .map(|stream| harness.messages_with(*stream, method));
            messages.map(|messages| messages.len()).sum()
        };
        assert_eq!((count(CHANGED), count(PROGRESS)), (1, 1), "{version}");
        assert_eq!(
            harness.messages_with(foreign, CHANGED).len(),
            1,
            "another client gets the change, too"
        );
        assert_eq!(harness.messages_with(foreign, PROGRESS), NO_MESSAGES);
        harness.finish();
    }
}

#[test]
fn s_res_01_event_ids_are_unique_in_a_session() {
    for version in STREAMABLE {
        let mut harness = Harness::new(config());
        let session = harness.open_session(version);
        let session_stream = harness.send(session.get());
        let calls = [1, 2, 3].map(|id| harness.send_accepted(call_with_progress(&session, id)));
        for round in 1..4 {
            tools_changed(&mut harness);
            for (_, request) in calls {
                harness.progress(request, f64::from(round));
            }
        }
        let streams = calls.iter().map(|(stream, _)| *stream);
        let mut seen = Vec::new();
        for stream in streams.chain([session_stream]) {
            for event in harness.sse(stream) {
                let is_message = event.data.as_ref().is_some_and(|data| !data.is_empty());
                assert!(!is_message || event.id.is_some(), "{version}: {event:?}");
                if let Some(id) = event.id {
                    assert!(!seen.contains(&id), "{version}: {id} twice");
                    seen.push(id);
                }
            }
        }
        assert!(seen.len() >= 12);
        harness.finish();
    }
}

/// S-RES-02, S-RES-05: an event id identifies its stream, so a client resumes exactly that stream.
#[test]
fn s_res_02_event_id_identifies_its_stream() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let session_stream = harness.send(session.get());
    let calls = [1, 2].map(|id| harness.send_accepted(call_with_progress(&session, id)));
    let streams = [session_stream, calls[0].0, calls[1].0];
    let primers = streams.map(|stream| harness.last_event_id(stream));
    tools_changed(&mut harness);
    for (at, (_, request)) in calls.iter().enumerate() {
        harness.progress(*request, 1.0);
        harness.respond(*request, json!({"content": [at]}));
    }
    harness.disconnect(session_stream);
    let messages = primers.map(|id| {
        let resumed = harness.send(session.resume(&id));
        harness.messages(resumed)
    });
    assert_eq!(messages[0].len(), 1);
    assert_eq!(messages[0][0]["method"], CHANGED);
    for at in [0, 1] {
        let messages = &messages[at + 1];
        assert_eq!(messages.len(), 2);
        assert_eq!(messages[0]["params"]["progressToken"], at + 1);
        assert_eq!(messages[1]["result"]["content"], json!([at]));
    }
    harness.finish();
}

/// S-RES-03, S-RES-04: a resumed stream repeats the events after the named one, and then continues.
#[test]
fn s_res_04_resumed_stream_replays_missed_events_and_continues() {
    for version in STREAMABLE {
        let mut harness = Harness::new(config());
        let session = harness.open_session(version);
        let (broken, request) = harness.send_accepted(call_with_progress(&session, 1));
        harness.progress(request, 1.0);
        let seen = harness.last_event_id(broken);
        harness.progress(request, 2.0);
        harness.reset(broken);
        harness.progress(request, 3.0);
        let resumed = harness.send(session.resume(&seen));
        harness.progress(request, 4.0);
        harness.respond(request, json!({"content": []}));
        let messages = harness.messages(resumed);
        let progress: Vec<u64> = messages
            .iter()
            .filter_map(|m| m["params"]["progress"].as_u64())
            .collect();
        assert_eq!(progress, [2, 3, 4], "{version}");
        assert_eq!(harness.result(resumed)["content"], json!([]));
        assert!(harness.is_over(resumed));
        harness.finish();
    }
}

#[test]
fn s_res_05_stream_of_another_session_cannot_be_resumed() {
    let mut harness = Harness::new(config());
    let (ann, eve) = (
        harness.open_session_by("2025-11-25", Some("ann")),
        harness.open_session_by("2025-11-25", Some("eve")),
    );
    let (stream, request) = harness.send_accepted(call_with_progress(&ann, 1));
    let primer = harness.last_event_id(stream);
    harness.respond(request, json!({"content": ["secret"]}));
    let foreign = harness.send(eve.resume(&primer));
    assert!(
        !harness.text(foreign).contains("secret"),
        "{}",
        harness.text(foreign)
    );
    assert!(harness.status(foreign) >= 400);
    let own = harness.send(ann.resume(&primer));
    assert_eq!(harness.result(own)["content"], json!(["secret"]));
    harness.finish();
}

/// The number of stored events is limited, and dropped events are not replayed.
#[test]
fn s_res_04_dropped_events_are_not_replayed() {
    let replay = Replay::new(2, 10_000);
    let mut in_memory = Http::new();
    in_memory.replay = replay;
    for http in [in_memory, stored_http(1)] {
        let store = Store::with_replay(replay);
        let mut harness = Harness::with_store(http_config(http), &store);
        let session = harness.open_session("2025-11-25");
        let stream = harness.send(session.get());
        let primer = harness.last_event_id(stream);
        harness.disconnect(stream);
        for list in [List::Tools, List::Prompts, List::Resources] {
            harness.publish(Change::List(list));
        }
        let resumed = harness.send(session.resume(&primer));
        let messages = harness.messages(resumed);
        assert_eq!(messages.len(), 2);
        assert_eq!(
            messages[1]["method"],
            "notifications/resources/list_changed"
        );
        harness.finish();
    }
}

/// S-RES-03: without an event store, no stream can be resumed.
#[test]
fn s_res_03_without_an_event_store_resuming_is_refused() {
    let mut http = Http::new();
    http.replay = Replay::new(0, 0);
    let mut harness = Harness::new(http_config(http));
    let session = harness.open_session("2025-11-25");
    let session_stream = harness.send(session.get());
    assert_eq!(harness.send_refused(session.resume("0-0")), (400, -32600));
    assert!(!harness.is_over(session_stream));
    harness.finish();
}

#[test]
fn s_canc_12_dropped_connection_cancels_nothing() {
    for version in STREAMABLE {
        for is_reset in [false, true] {
            let mut harness = Harness::new(config());
            let session = harness.open_session(version);
            let (stream, request) = harness.send_accepted(call_with_progress(&session, 1));
            harness.progress(request, 1.0);
            let seen = harness.last_event_id(stream);
            if is_reset {
                harness.reset(stream);
            } else {
                harness.disconnect(stream);
            }
            harness.advance(seconds(20 * 60));
            assert!(harness.cancellations().is_empty(), "{version}");
            assert_eq!(harness.server.requests(), 1);
            harness.respond(request, json!({"content": []}));
            let resumed = harness.send(session.resume(&seen));
            assert_eq!(harness.result(resumed)["content"], json!([]), "{version}");
            harness.finish();
        }
    }
}

#[test]
fn stream_that_is_silent_again_after_a_message_gets_keepalives() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let stream = harness.send(session.get());
    harness.advance(seconds(10));
    tools_changed(&mut harness);
    let before = harness.sse(stream).len();
    harness.advance(seconds(14));
    assert_eq!(harness.sse(stream).len(), before);
    harness.advance(seconds(1));
    assert_eq!(harness.sse(stream).len(), before + 1);
    harness.advance(seconds(15));
    assert_eq!(harness.sse(stream).len(), before + 2);
    harness.finish();
}

/// The server that continues the session gives it to the client.
#[test]
fn message_of_a_session_during_the_drain_is_stored() {
    let mut harness = Harness::with_store(http_config(stored_http(1)), &Store::default());
    let session = harness.open_session("2025-11-25");
    let stream = harness.send(session.get());
    let (_, request) = harness.send_accepted(call_with_progress(&session, 1));
    harness.shutdown();
    assert!(harness.is_over(stream), "no client should wait on it");
    harness.store.holds = true;
    tools_changed(&mut harness);
    let held = &harness.store.held;
    assert!(
        matches!(held[..], [everlink::StoreRequest::Append { .. }]),
        "{held:?}"
    );
    harness.respond(request, json!({"content": []}));
    harness.finish();
}

#[test]
fn request_that_still_arrives_when_the_server_closes_is_aborted() {
    let mut harness = Harness::new(config());
    let http_request = server_http::modern(1, "tools/call", json!({"name": "slow"}));
    let (unread, request) = harness.send_accepted(http_request.clone());
    harness.stop_reading(unread);
    harness.shutdown();
    let late = harness.begin(&http_request);
    harness.respond(request, json!({"content": []}));
    assert!(!harness.is_over(late));
    harness.resume_reading(unread);
    assert!(harness.exchange(late).is_aborted());
    harness.finish();
}

/// The client would wait for a reply that never comes.
#[test]
fn no_stream_of_a_request_is_resumed_if_its_reply_was_too_long_to_keep() {
    let mut http = Http::new();
    http.replay = Replay::new(8, 1_000);
    let mut harness = Harness::new(http_config(http));
    for id in 1..=16 {
        let session = harness.open_session("2025-11-25");
        let (lost, request) = harness.send_accepted(call_with_progress(&session, id));
        harness.progress(request, 1.0);
        let last = harness.last_event_id(lost);
        harness.disconnect(lost);
        harness.respond(request, json!({"content": ["x".repeat(2_000)]}));
        let refused = harness.send(session.resume(&last));
        assert_eq!(harness.status(refused), 400, "{id}");
    }
    harness.finish();
}

/// The client comes back for the reply, but only shorter replies are kept.
#[test]
fn reply_that_is_too_long_to_be_kept_for_a_client_that_was_hung_up_on_is_counted() {
    for (len, dropped) in [(100, 0), (2_000, 1)] {
        let mut http = Http::new();
        http.replay = Replay::new(8, 1_000);
        let mut harness = Harness::new(http_config(http));
        let session = harness.open_session("2025-11-25");
        let called = session.post(1, "tools/call", json!({"name": "slow"}));
        let (stream, request) = harness.send_accepted(called);
        harness.hang_up(request);
        assert!(harness.is_over(stream));
        harness.respond(request, json!({"content": [], "pad": "x".repeat(len)}));
        assert_eq!(harness.server.stats().answers_dropped, dropped, "{len}");
        harness.finish();
    }
}
