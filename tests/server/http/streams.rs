//! The streams of legacy clients over HTTP: which message goes to which stream, how streams begin and end, and how a broken stream
//! is resumed.

use crate::server_http::{self, Ask, NOTHING, Session, Site, config, over, seconds};
use everlink::server::{Http, MemoryEvents, Progress, Replay};
use everlink::{Change, List};
use serde_json::{Value, json};

const STREAMABLE: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];
const PROGRESS: &str = "notifications/progress";
const CHANGED: &str = "notifications/tools/list_changed";

/// A call that asks for progress.
fn curious(session: &Session, id: u64) -> Ask {
    let params = json!({"name": "slow", "_meta": {"progressToken": id}});
    session.post(id, "tools/call", params)
}

fn tools_changed(site: &mut Site) {
    site.publish(Change::List(List::Tools));
}

#[test]
fn s_lhttp_04_a_request_is_answered_with_a_stream_or_with_json() {
    for version in STREAMABLE {
        let mut site = Site::new(config());
        let session = site.session(version);
        for accept in ["application/json", "text/event-stream"] {
            let ask = curious(&session, 1).with("accept", accept);
            let answered = site.served(ask, json!({"content": []}));
            assert_eq!(site.status(answered), 200);
            assert_eq!(site.field(answered, "content-type"), Some(accept));
            assert_eq!(site.result(answered)["content"], json!([]));
        }
        let both = site.served(curious(&session, 1), json!({"content": []}));
        let kind = site.field(both, "content-type").expect("a kind");
        assert!(["application/json", "text/event-stream"].contains(&kind));
        assert_eq!(site.result(both)["content"], json!([]));
        site.finish();
    }
}

/// S-LHTTP-05, S-LHTTP-06, S-LHTTP-15: messages about a request come before its reply, only on its own stream, and the reply ends the
/// stream.
#[test]
fn s_lhttp_05_what_belongs_to_a_request_is_said_on_its_stream() {
    for version in STREAMABLE {
        let mut site = Site::new(config());
        let session = site.session(version);
        let standalone = site.send(session.get());
        let (stream, request) = site.taken(curious(&session, 1));
        let (other, _) = site.taken(curious(&session, 2));
        site.progress(request, 1.0);
        let ask = site.ask(request, "roots/list", Value::Null);
        let question = site.said(stream, "roots/list")[0]["id"].clone();
        site.send(session.answer(&question, json!({"roots": []})));
        assert_eq!(site.outcome(ask), Some(Ok(json!({"roots": []}))));
        assert!(!site.is_over(stream));
        site.respond(request, json!({"content": []}));
        assert!(site.is_over(stream) && !site.exchange(stream).is_aborted());
        let heard = site.messages(stream);
        let methods: Vec<&str> = heard.iter().filter_map(|m| m["method"].as_str()).collect();
        assert_eq!(methods, [PROGRESS, "roots/list"], "{version}");
        assert_eq!(heard[2]["result"]["content"], json!([]), "S-LHTTP-06");
        assert_eq!(site.messages(standalone), NOTHING, "S-LHTTP-15");
        assert_eq!(site.messages(other), NOTHING);
        site.finish();
    }
}

#[test]
fn s_lhttp_07_a_stream_lasts_until_its_answer() {
    for version in STREAMABLE {
        let mut site = Site::new(config());
        let session = site.session(version);
        let (stream, request) = site.taken(curious(&session, 1));
        site.progress(request, 1.0);
        site.pass(seconds(6 * 60 * 60));
        assert!(!site.is_over(stream), "{version}");
        site.respond(request, json!({"content": []}));
        assert_eq!(site.result(stream)["content"], json!([]));
        // The stream also ends with its session.
        let (stream, _) = site.taken(curious(&session, 2));
        site.send(session.delete());
        assert!(site.is_over(stream));
        site.finish();
    }
}

/// S-LHTTP-08, S-LHTTP-10: each stream of 2025-11-25 begins with an event that has an id, a retry delay and no data.
#[test]
fn s_lhttp_08_a_stream_begins_with_an_event_to_resume_from() {
    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    let standalone = site.send(session.get());
    let (stream, _) = site.taken(curious(&session, 1));
    for stream in [standalone, stream] {
        let first = site.sse(stream).remove(0);
        assert!(first.id.is_some_and(|id| !id.is_empty()));
        assert_eq!(first.data.as_deref(), Some(""));
        assert_eq!(first.retry, Some(1_000), "S-LHTTP-10");
    }
    // Earlier versions do not know this event, and some of their clients fail on it.
    for version in ["2025-03-26", "2025-06-18"] {
        let session = site.session(version);
        let standalone = site.send(session.get());
        let (stream, _) = site.taken(curious(&session, 1));
        for stream in [standalone, stream] {
            let events = site.sse_or_nothing(stream);
            assert!(events.iter().all(|event| event.data.is_none()), "{version}");
        }
    }
    site.finish();
}

/// S-LHTTP-09, S-LHTTP-10: a stream outlives its connection. A client that resumes takes it over, and the old connection is
/// closed without a reply. The old connection announced the retry delay.
#[test]
fn s_lhttp_09_a_connection_may_close_before_its_stream_ends() {
    let mut http = Http::new();
    http.retry = seconds(3);
    let mut site = Site::new(over(http));
    let session = site.session("2025-11-25");
    let (first, request) = site.taken(curious(&session, 1));
    let primer = site.last_event_id(first);
    let second = site.send(session.resume(&primer));
    assert!(site.is_over(first) && !site.exchange(first).is_aborted());
    assert_eq!(site.messages(first), NOTHING);
    assert_eq!(site.sse(first)[0].retry, Some(3_000));
    site.respond(request, json!({"content": []}));
    assert_eq!(site.result(second)["content"], json!([]));
    assert!(site.cancellations().is_empty());
    site.finish();
}

/// S-LHTTP-09: the server may close the connection after it has written everything, but only if the client can resume.
#[test]
fn s_lhttp_09_a_server_may_hang_up_and_answer_who_comes_back() {
    for version in STREAMABLE {
        for when in ["at once", "later", "after a word", "in one breath with it"] {
            let mut site = Site::new(config());
            let session = site.session(version);
            site.hangs_up_at_once = when == "at once";
            let (stream, request) = site.taken(curious(&session, 1));
            match when {
                "at once" => {}
                "later" => site.hang_up(request),
                "after a word" => {
                    site.progress(request, 1.0);
                    site.hang_up(request);
                }
                _ => site.verb(|server, now| {
                    for step in [0.5, 1.0] {
                        let step = Progress::new(step);
                        server.progress(now, request, step).expect("it is open");
                    }
                    server.hang_up(now, request).expect("it is open");
                }),
            }
            let can_come_back = version == "2025-11-25";
            assert_eq!(site.is_over(stream), can_come_back, "{version}, {when}");
            assert!(!site.exchange(stream).is_aborted());
            let words = match when {
                "after a word" => 1,
                "in one breath with it" => 2,
                _ => 0,
            };
            let said = site.said(stream, PROGRESS).len();
            assert_eq!(said, words, "what waits is said first: {version}, {when}");
            site.progress(request, 2.0);
            if can_come_back {
                let back = site.last_event_id(stream);
                let back = site.send(session.resume(&back));
                assert_eq!(site.said(back, PROGRESS).len(), 1);
                site.hang_up(request);
                assert!(site.is_over(back), "once more");
                site.respond(request, json!({"content": []}));
                let again = site.last_event_id(back);
                let again = site.send(session.resume(&again));
                assert_eq!(site.result(again)["content"], json!([]));
                assert!(site.is_over(again));
            } else {
                site.respond(request, json!({"content": []}));
                assert_eq!(site.result(stream)["content"], json!([]));
            }
            site.finish();
        }
    }
}

#[test]
fn a_server_hangs_up_on_nobody_who_could_not_come_back() {
    let mut http = Http::new();
    http.replay = Replay::new(0, 0);
    let mut site = Site::new(over(http));
    let session = site.session("2025-11-25");
    let (nothing_held, request) = site.taken(curious(&session, 1));
    site.hang_up(request);
    assert!(!site.is_over(nothing_held));
    site.respond(request, json!({"content": []}));
    site.finish();

    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    let json_alone = curious(&session, 1).with("accept", "application/json");
    let sessionless = server_http::modern(2, "tools/call", json!({"name": "slow"}));
    for ask in [json_alone, sessionless] {
        let (stream, request) = site.taken(ask);
        site.hang_up(request);
        assert!(!site.is_over(stream));
        site.respond(request, json!({"content": []}));
        assert_eq!(site.result(stream)["content"], json!([]));
    }
    site.finish();
}

#[test]
fn s_lhttp_12_streams_end_with_their_session() {
    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    let standalone = site.send(session.get());
    let (stream, _) = site.taken(curious(&session, 1));
    let other = site.session("2025-11-25");
    let kept = site.send(other.get());
    site.send(session.delete());
    assert!(site.is_over(standalone) && site.is_over(stream));
    assert!(!site.is_over(kept));
    site.finish();
}

/// S-LHTTP-15, S-LHTTP-16: the session's stream carries messages that belong to no request, and no replies.
#[test]
fn s_lhttp_16_there_is_no_answer_on_the_stream_of_a_session() {
    for version in STREAMABLE {
        let mut site = Site::new(config());
        let session = site.session(version);
        let standalone = site.send(session.get());
        tools_changed(&mut site);
        let pong = site.send(session.post(1, "ping", Value::Null));
        assert_eq!(site.result(pong), json!({}));
        for accept in ["application/json", "text/event-stream"] {
            let ask = curious(&session, 2).with("accept", accept);
            site.served(ask, json!({"content": []}));
        }
        // The same holds if the client of the request is gone.
        let (gone, request) = site.taken(curious(&session, 3));
        site.hangs_up(gone);
        site.respond(request, json!({"content": []}));
        let heard = site.messages(standalone);
        assert_eq!(heard.len(), 1, "{version}");
        assert_eq!(heard[0]["method"], CHANGED);
        site.finish();
    }
}

#[test]
fn s_lhttp_17_the_stream_of_a_session_may_end_at_any_time() {
    for version in STREAMABLE {
        let mut site = Site::new(config());
        let session = site.session(version);
        let first = site.send(session.get());
        site.hangs_up(first);
        let pong = site.send(session.post(1, "ping", Value::Null));
        assert_eq!(site.status(pong), 200);
        tools_changed(&mut site);
        let second = site.send(session.get());
        assert_eq!(site.said(second, CHANGED).len(), 1, "nothing is lost");
        let third = site.send(session.get());
        assert!(site.is_over(second) && !site.exchange(second).is_aborted());
        if version == "2025-11-25" {
            assert!(site.sse(second)[0].retry.is_some());
        }
        tools_changed(&mut site);
        assert_eq!(site.said(third, CHANGED).len(), 1);
        site.finish();
    }
}

#[test]
fn s_lhttp_19_each_message_goes_to_one_stream() {
    for version in STREAMABLE {
        let mut site = Site::new(config());
        let (session, other) = (site.session(version), site.session(version));
        let first = site.send(session.get());
        let foreign = site.send(other.get());
        let (call, request) = site.taken(curious(&session, 1));
        let (twin, _) = site.taken(curious(&session, 2));
        let second = site.send(session.get());
        tools_changed(&mut site);
        site.progress(request, 1.0);
        let streams = [first, second, call, twin];
        let heard = |method: &str| -> usize {
            let said = streams.iter().map(|stream| site.said(*stream, method));
            said.map(|said| said.len()).sum()
        };
        assert_eq!((heard(CHANGED), heard(PROGRESS)), (1, 1), "{version}");
        assert_eq!(
            site.said(foreign, CHANGED).len(),
            1,
            "another client is told, too"
        );
        assert_eq!(site.said(foreign, PROGRESS), NOTHING);
        site.finish();
    }
}

#[test]
fn s_res_01_no_two_events_of_a_session_have_one_id() {
    for version in STREAMABLE {
        let mut site = Site::new(config());
        let session = site.session(version);
        let standalone = site.send(session.get());
        let calls = [1, 2, 3].map(|id| site.taken(curious(&session, id)));
        for round in 1..4 {
            tools_changed(&mut site);
            for (_, request) in calls {
                site.progress(request, f64::from(round));
            }
        }
        let streams = calls.iter().map(|(stream, _)| *stream);
        let mut seen = Vec::new();
        for stream in streams.chain([standalone]) {
            for event in site.sse(stream) {
                let is_message = event.data.as_ref().is_some_and(|data| !data.is_empty());
                assert!(!is_message || event.id.is_some(), "{version}: {event:?}");
                if let Some(id) = event.id {
                    assert!(!seen.contains(&id), "{version}: {id} twice");
                    seen.push(id);
                }
            }
        }
        assert!(seen.len() >= 12);
        site.finish();
    }
}

/// S-RES-02, S-RES-05: an event id identifies its stream, so a client resumes exactly that stream.
#[test]
fn s_res_02_an_id_says_of_which_stream_it_is() {
    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    let standalone = site.send(session.get());
    let calls = [1, 2].map(|id| site.taken(curious(&session, id)));
    let streams = [standalone, calls[0].0, calls[1].0];
    let primers = streams.map(|stream| site.last_event_id(stream));
    tools_changed(&mut site);
    for (at, (_, request)) in calls.iter().enumerate() {
        site.progress(*request, 1.0);
        site.respond(*request, json!({"content": [at]}));
    }
    site.hangs_up(standalone);
    let heard = primers.map(|id| {
        let resumed = site.send(session.resume(&id));
        site.messages(resumed)
    });
    assert_eq!(heard[0].len(), 1);
    assert_eq!(heard[0][0]["method"], CHANGED);
    for at in [0, 1] {
        let heard = &heard[at + 1];
        assert_eq!(heard.len(), 2);
        assert_eq!(heard[0]["params"]["progressToken"], at + 1);
        assert_eq!(heard[1]["result"]["content"], json!([at]));
    }
    site.finish();
}

/// S-RES-03, S-RES-04: a resumed stream repeats the events after the named one, and then continues.
#[test]
fn s_res_04_the_rest_of_a_stream_is_said_once_more_and_goes_on() {
    for version in STREAMABLE {
        let mut site = Site::new(config());
        let session = site.session(version);
        let (broken, request) = site.taken(curious(&session, 1));
        site.progress(request, 1.0);
        let seen = site.last_event_id(broken);
        site.progress(request, 2.0);
        site.breaks(broken);
        site.progress(request, 3.0);
        let resumed = site.send(session.resume(&seen));
        site.progress(request, 4.0);
        site.respond(request, json!({"content": []}));
        let heard = site.messages(resumed);
        let progress: Vec<u64> = heard
            .iter()
            .filter_map(|m| m["params"]["progress"].as_u64())
            .collect();
        assert_eq!(progress, [2, 3, 4], "{version}");
        assert_eq!(site.result(resumed)["content"], json!([]));
        assert!(site.is_over(resumed));
        site.finish();
    }
}

#[test]
fn s_res_05_nobody_hears_what_was_said_in_another_session() {
    let mut site = Site::new(config());
    let (ann, eve) = (
        site.session_by("2025-11-25", Some("ann")),
        site.session_by("2025-11-25", Some("eve")),
    );
    let (stream, request) = site.taken(curious(&ann, 1));
    let primer = site.last_event_id(stream);
    site.respond(request, json!({"content": ["secret"]}));
    let stolen = site.send(eve.resume(&primer));
    assert!(
        !site.text(stolen).contains("secret"),
        "{}",
        site.text(stolen)
    );
    assert!(site.status(stolen) >= 400);
    let own = site.send(ann.resume(&primer));
    assert_eq!(site.result(own)["content"], json!(["secret"]));
    site.finish();
}

/// The number of stored events is limited, and dropped events are not replayed.
#[test]
fn s_res_04_what_is_not_held_any_more_is_not_there() {
    let mut http = Http::new();
    http.replay = Replay::new(2, 10_000);
    let server = everlink::Server::with_stores(
        over(http),
        Box::new(everlink::server::MemorySessions::new(8)),
        Box::new(MemoryEvents::new(Replay::new(2, 10_000))),
    );
    let mut site = Site::around(server);
    let session = site.session("2025-11-25");
    let stream = site.send(session.get());
    let primer = site.last_event_id(stream);
    site.hangs_up(stream);
    for list in [List::Tools, List::Prompts, List::Resources] {
        site.publish(Change::List(list));
    }
    let resumed = site.send(session.resume(&primer));
    let heard = site.messages(resumed);
    assert_eq!(heard.len(), 2);
    assert_eq!(heard[1]["method"], "notifications/resources/list_changed");
    site.finish();
}

/// S-RES-03: without an event store, no stream can be resumed.
#[test]
fn s_res_03_where_nothing_is_held_nothing_is_resumed() {
    let mut http = Http::new();
    http.replay = Replay::new(0, 0);
    let mut site = Site::new(over(http));
    let session = site.session("2025-11-25");
    let standalone = site.send(session.get());
    assert_eq!(site.refused(session.resume("0-0")), (400, -32600));
    assert!(!site.is_over(standalone));
    site.finish();
}

#[test]
fn s_canc_12_a_connection_that_drops_takes_back_nothing() {
    for version in STREAMABLE {
        for breaks in [false, true] {
            let mut site = Site::new(config());
            let session = site.session(version);
            let (stream, request) = site.taken(curious(&session, 1));
            site.progress(request, 1.0);
            let seen = site.last_event_id(stream);
            if breaks {
                site.breaks(stream);
            } else {
                site.hangs_up(stream);
            }
            site.pass(seconds(20 * 60));
            assert!(site.cancellations().is_empty(), "{version}");
            assert_eq!(site.server.requests(), 1);
            site.respond(request, json!({"content": []}));
            let resumed = site.send(session.resume(&seen));
            assert_eq!(site.result(resumed)["content"], json!([]), "{version}");
            site.finish();
        }
    }
}
