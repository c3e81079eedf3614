//! Notifications to clients over HTTP: watches, progress and log messages.

use crate::server_http::{
    Harness, HttpRequest, NO_MESSAGES, config, declaring, full_offer, initialize_with, modern,
    notification, offering, payload, seconds, with_meta,
};
use everlink::protocol::{LogLevel, ServerCapabilities, ServerFeature};
use everlink::server::{Event, ListenEnd, Misuse, Progress};
use everlink::{Change, List, RequestId};
use serde_json::{Value, json};

const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const CANCELLED: &str = "notifications/cancelled";
const LOG: &str = "notifications/message";
const PROGRESS: &str = "notifications/progress";
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

fn watch(id: impl Into<Value>, wanted: &Value) -> HttpRequest {
    modern(id, "subscriptions/listen", json!({"notifications": wanted}))
}

fn publish_all_changes(harness: &mut Harness) {
    for list in [List::Tools, List::Prompts, List::Resources] {
        harness.publish(Change::List(list));
    }
    harness.publish(Change::Resource {
        uri: "file:///a".into(),
    });
}

fn call(id: u64, meta: &Value) -> HttpRequest {
    modern(id, "tools/call", json!({"name": "slow", "_meta": meta}))
}

fn log(harness: &mut Harness, request: Option<RequestId>, level: LogLevel) {
    let data = payload(&json!("x"));
    harness
        .with_server(|server, now| server.log(now, request, level, None, data))
        .expect("logging is offered");
}

#[test]
fn s_sub_02_watch_gets_only_the_changes_in_its_filter() {
    for (wanted, expected) in [
        (json!({}), vec![]),
        (
            json!({"toolsListChanged": true, "promptsListChanged": false}),
            vec!["notifications/tools/list_changed"],
        ),
        (
            json!({"resourcesListChanged": true}),
            vec!["notifications/resources/list_changed"],
        ),
        (
            json!({"resourceSubscriptions": ["file:///a"]}),
            vec!["notifications/resources/updated"],
        ),
        (json!({"resourceSubscriptions": ["file:///b"]}), vec![]),
    ] {
        let mut harness = Harness::new(config());
        let stream = harness.send(watch(1, &wanted));
        publish_all_changes(&mut harness);
        let messages = harness.messages(stream);
        let methods: Vec<&str> = messages[1..]
            .iter()
            .filter_map(|message| message["method"].as_str())
            .collect();
        assert_eq!(methods, expected, "{wanted}");
        harness.finish();
    }
}

/// S-SUB-03, S-SUB-05: the first message of a watch is its grant: the wanted notifications that the server offers.
#[test]
fn s_sub_05_first_message_of_a_watch_is_its_acknowledged_filter() {
    let tools = ServerCapabilities::default()
        .with_tools(true)
        .with_prompts(false);
    let mut harness = Harness::new(offering(tools));
    let wanted = json!({
        "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["file:///a"],
    });
    let stream = harness.send(watch(1, &wanted));
    let first = harness.messages(stream).remove(0);
    assert_eq!(first["method"], ACKNOWLEDGED);
    assert_eq!(
        first["params"]["notifications"],
        json!({"toolsListChanged": true})
    );
    harness.finish();
}

#[test]
fn s_sub_07_every_message_of_a_watch_carries_its_id() {
    for end in [ListenEnd::Result, ListenEnd::CancelledThenResult] {
        let mut config = config();
        config.listen_end = end;
        let mut harness = Harness::new(config);
        let wanted = json!({
            "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
            "resourceSubscriptions": ["file:///a"],
        });
        let streams =
            [json!(7), json!("7")].map(|id| (id.clone(), harness.send(watch(id, &wanted))));
        publish_all_changes(&mut harness);
        harness.shutdown();
        for (id, stream) in streams {
            let messages = harness.messages(stream);
            assert!(messages.len() >= 6);
            for message in &messages {
                if message["method"] == CANCELLED {
                    assert_eq!(message["params"]["requestId"], id);
                    continue;
                }
                let part = if message.get("method").is_some() {
                    "params"
                } else {
                    "result"
                };
                assert_eq!(message[part]["_meta"][SUBSCRIPTION_ID], id, "{message}");
            }
        }
        harness.finish();
    }
}

/// S-SUB-11: a watch that the server ends gets its result, and then its stream ends.
#[test]
fn s_sub_11_watch_ended_by_the_server_gets_a_result() {
    let mut harness = Harness::new(config());
    let stream = harness.send(watch(1, &json!({"toolsListChanged": true})));
    harness.shutdown();
    let result = harness.result(stream);
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["_meta"][SUBSCRIPTION_ID], 1);
    assert_eq!(
        harness.messages(stream).pop().map(|m| m["id"].clone()),
        Some(json!(1))
    );
    assert!(harness.is_over(stream) && !harness.exchange(stream).is_aborted());
    harness.finish();
}

#[test]
fn s_sub_13_only_watches_are_cancelled_with_a_notification() {
    let mut config = config();
    config.listen_end = ListenEnd::CancelledThenResult;
    let mut harness = Harness::new(config);
    let meta = json!({"progressToken": 1, "io.modelcontextprotocol/logLevel": "debug"});
    let (slow, request) = harness.send_accepted(call(1, &meta));
    harness.progress(request, 1.0);
    let (asking, asked) = harness.send_accepted(call(2, &meta));
    let ask = harness.ask(asked, "roots/list", Value::Null);
    harness
        .with_server(|server, now| server.withdraw(now, ask, None))
        .expect("the ask or request is open");
    let (failed, failing) = harness.send_accepted(call(3, &meta));
    harness.fail(failing, 7, "no");
    let watching = harness.send(watch(4, &json!({})));
    harness.shutdown();
    harness.advance(seconds(60));
    for stream in [slow, asking, failed] {
        assert_eq!(harness.messages_with(stream, CANCELLED), NO_MESSAGES);
    }
    for cancellation in harness.messages_with(watching, CANCELLED) {
        assert_eq!(cancellation["params"]["requestId"], 4);
    }
    harness.finish();
}

/// S-SUB-19: a watch is answered with a stream; only a refusal is JSON.
#[test]
fn s_sub_19_watch_is_answered_with_an_event_stream() {
    let mut harness = Harness::new(config());
    for accept in ["application/json, text/event-stream", "text/event-stream"] {
        let stream = harness.send(watch(1, &json!({})).with("accept", accept));
        assert_eq!(harness.status(stream), 200);
        assert_eq!(harness.sse(stream).len(), 1);
        assert!(!harness.is_over(stream));
    }
    let refused = harness.send(watch(1, &json!(7)));
    assert_eq!(
        (harness.status(refused), harness.code(refused)),
        (400, -32602)
    );
    harness.finish();
}

#[test]
fn s_sub_20_watching_tasks_needs_the_extension() {
    let mut offer = full_offer();
    offer.capabilities = offer.capabilities.with(ServerFeature::TasksExtension);
    let mut config = config();
    config.offer = Some(offer);
    let mut harness = Harness::new(config);
    let wanted = json!({"taskIds": ["t"]});
    let refused = harness.send(watch(1, &wanted));
    assert_eq!(
        (harness.status(refused), harness.code(refused)),
        (400, -32021)
    );
    let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let params = declaring(&tasks, json!({"notifications": wanted}));
    let stream = harness.send(modern(1, "subscriptions/listen", params));
    assert_eq!(harness.status(stream), 200);
    harness.finish();
}

/// S-PROG-01, S-PROG-02, S-PROG-09: progress has the token of its request, with the same value and type. The other members come
/// from the application.
#[test]
fn s_prog_01_progress_has_the_token_of_its_request() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    for token in [json!(1), json!("1"), json!(""), json!(-5)] {
        let params = json!({"name": "slow", "_meta": {"progressToken": token}});
        for http_request in [
            modern(1, "tools/call", params.clone()),
            session.post(1, "tools/call", params),
        ] {
            let (stream, request) = harness.send_accepted(http_request);
            let progress = Progress::new(0.5).of(2.0).with_message("half way");
            harness
                .with_server(|server, now| server.progress(now, request, progress))
                .expect("the ask or request is open");
            harness.respond(request, json!({"content": []}));
            let progress_sent = harness.messages_with(stream, PROGRESS).remove(0);
            let expected = json!({
                "progressToken": token, "progress": 0.5, "total": 2, "message": "half way",
            });
            assert_eq!(progress_sent["params"], expected);
        }
    }
    for token in [json!(1.5), json!(null), json!({}), json!(true)] {
        let (stream, request) = harness.send_accepted(call(1, &json!({"progressToken": token})));
        harness.progress(request, 1.0);
        assert!(!harness.is_answered(stream), "{token} is no token");
    }
    harness.finish();
}

#[test]
fn s_prog_03_only_growing_progress_is_sent() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-03-26");
    let params = json!({"name": "slow", "_meta": {"progressToken": 1}});
    for http_request in [
        call(1, &json!({"progressToken": 1})),
        session.post(1, "tools/call", params),
    ] {
        let (stream, request) = harness.send_accepted(http_request);
        for progress in [1.0, 1.0, 0.5, 2.0, -1.0, 2.5, 2.0] {
            harness.progress(request, progress);
        }
        let values: Vec<f64> = harness
            .messages_with(stream, PROGRESS)
            .iter()
            .filter_map(|message| message["params"]["progress"].as_f64())
            .collect();
        assert_eq!(values, [1.0, 2.0, 2.5]);
    }
    harness.finish();
}

#[test]
fn s_prog_04_progress_stops_with_the_reply() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let params = json!({"name": "slow", "_meta": {"progressToken": 1}});
    for http_request in [
        call(1, &json!({"progressToken": 1})),
        session.post(1, "tools/call", params.clone()),
    ] {
        let (stream, request) = harness.send_accepted(http_request);
        harness.respond(request, json!({"content": []}));
        let late =
            harness.with_server(|server, now| server.progress(now, request, Progress::new(1.0)));
        assert_eq!(late, Err(Misuse::UnknownRequest));
        assert_eq!(harness.messages_with(stream, PROGRESS), NO_MESSAGES);
    }
    // No progress is sent if the client did not ask for it or has cancelled the request.
    let (quiet, request) = harness.send_accepted(call(1, &json!({})));
    harness.progress(request, 1.0);
    assert!(!harness.is_answered(quiet));
    let (stream, request) = harness.send_accepted(session.post(2, "tools/call", params));
    harness.send(session.notification(CANCELLED, json!({"requestId": 2})));
    let late = harness.with_server(|server, now| server.progress(now, request, Progress::new(1.0)));
    assert_eq!(late, Err(Misuse::UnknownRequest));
    assert_eq!(harness.messages_with(stream, PROGRESS), NO_MESSAGES);
    harness.finish();
}

/// S-PROG-05: a client that does not read gets only the newest progress.
#[test]
fn s_prog_05_unwritten_progress_is_replaced_by_the_newest() {
    let mut small_window = config();
    small_window.limits.write_window = 1;
    let mut harness = Harness::new(small_window);
    let (stream, request) = harness.send_accepted(call(1, &json!({"progressToken": 1})));
    harness.stop_reading(stream);
    for step in 1..100 {
        harness.progress(request, f64::from(step));
    }
    harness.resume_reading(stream);
    harness.respond(request, json!({"content": []}));
    let notifications = harness.messages_with(stream, PROGRESS);
    assert_eq!(notifications.len(), 2);
    assert_eq!(notifications[1]["params"]["progress"], 99);
    harness.finish();
}

/// S-PROG-06, S-PROG-09: progress from a client gets no reply and does no harm. A modern client has no request of the
/// server to report on.
#[test]
fn s_prog_06_progress_from_a_client_gets_202_and_answers_no_ask() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let (_, request) = harness.send_accepted(session.post(1, "tools/call", json!({"name": "x"})));
    let ask = harness.ask(request, "roots/list", Value::Null);
    for params in [
        json!({"progressToken": "none", "progress": 1}),
        json!({"progressToken": 1, "progress": -1}),
        json!({"progress": "x"}),
        json!({}),
    ] {
        for http_request in [
            session.notification(PROGRESS, params.clone()),
            notification(PROGRESS, with_meta(params)),
        ] {
            let response = harness.send(http_request);
            assert_eq!(
                (harness.status(response), harness.text(response)),
                (202, "")
            );
        }
    }
    assert_eq!(harness.outcome(ask), None);
    harness.finish();
}

#[test]
fn s_prog_08_task_watch_gets_no_progress_or_logs() {
    let mut offer = full_offer();
    offer.capabilities = offer.capabilities.with(ServerFeature::TasksExtension);
    let mut config = config();
    config.offer = Some(offer);
    let mut harness = Harness::new(config);
    let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let wanted = json!({"notifications": {"taskIds": ["t"]}});
    let watching = harness.send(modern(1, "subscriptions/listen", declaring(&tasks, wanted)));
    let meta = json!({"progressToken": 1, "io.modelcontextprotocol/logLevel": "debug"});
    let params = declaring(&tasks, json!({"name": "long", "_meta": meta}));
    let (stream, request) = harness.send_accepted(modern(2, "tools/call", params));
    harness.progress(request, 1.0);
    log(&mut harness, Some(request), LogLevel::Error);
    harness.respond(
        request,
        json!({"resultType": "task", "taskId": "t", "status": "working"}),
    );
    let late = harness.with_server(|server, now| server.progress(now, request, Progress::new(2.0)));
    assert_eq!(late, Err(Misuse::UnknownRequest));
    assert_eq!(harness.messages_with(watching, PROGRESS), NO_MESSAGES);
    assert_eq!(harness.messages_with(watching, LOG), NO_MESSAGES);
    assert_eq!(harness.messages_with(stream, PROGRESS).len(), 1);
    harness.finish();
}

/// S-CAP-05, S-CAP-06, S-CAP-07: the log messages of a modern request go to its own stream, from the requested level
/// up.
#[test]
fn s_cap_05_modern_request_gets_logs_from_its_level_on_its_own_stream() {
    let mut harness = Harness::new(config());
    let watching = harness.send(watch(9, &json!({"toolsListChanged": true})));
    let without_level = harness.send_accepted(call(1, &json!({"progressToken": 1})));
    let with_level = harness.send_accepted(call(
        2,
        &json!({"io.modelcontextprotocol/logLevel": "warning"}),
    ));
    for (_, request) in [without_level, with_level] {
        for level in [LogLevel::Info, LogLevel::Warning, LogLevel::Error] {
            log(&mut harness, Some(request), level);
        }
    }
    log(&mut harness, None, LogLevel::Emergency);
    harness.respond(without_level.1, json!({"content": []}));
    harness.respond(with_level.1, json!({"content": []}));
    assert_eq!(harness.messages_with(without_level.0, LOG), NO_MESSAGES);
    let levels: Vec<Value> = harness
        .messages_with(with_level.0, LOG)
        .iter()
        .map(|message| message["params"]["level"].clone())
        .collect();
    assert_eq!(levels, ["warning", "error"], "S-CAP-06");
    assert_eq!(
        harness.messages_with(watching, LOG),
        NO_MESSAGES,
        "S-CAP-07"
    );
    assert!(harness.messages(with_level.0)[2].get("result").is_some());
    harness.finish();
}

#[test]
fn s_cap_08_unknown_log_level_is_refused() {
    let mut harness = Harness::new(config());
    for level in [json!("loud"), json!("Info"), json!(7), json!(null)] {
        let meta = json!({"io.modelcontextprotocol/logLevel": level});
        assert_eq!(
            harness.send_refused(call(1, &meta)),
            (400, -32602),
            "{level}"
        );
    }
    harness.finish();
}

#[test]
fn log_message_without_a_request_reaches_every_session() {
    let mut harness = Harness::new(config());
    let streams = [(); 3].map(|()| {
        let session = harness.open_session("2025-11-25");
        harness.send(session.get())
    });
    let data = payload(&json!("what happened"));
    let level = LogLevel::Error;
    let done = harness.with_server(|server, now| server.log(now, None, level, None, data));
    done.expect("logging is offered");
    for stream in streams {
        let logged = harness.messages_with(stream, "notifications/message");
        assert_eq!(logged.len(), 1);
    }
    harness.finish();
}

#[test]
fn all_messages_of_one_session_and_of_no_other_are_of_one_caller() {
    let mut harness = Harness::new(config());
    let sessions = [(); 2].map(|()| harness.open_session("2025-11-25"));
    for session in &sessions {
        for _ in 0..2 {
            harness.send(session.notification("notifications/custom", Value::Null));
        }
        harness.send_accepted(session.post(1, "tools/call", json!({"name": "slow"})));
    }
    let callers = harness.pick_events(|event| match event {
        Event::Notified { caller, .. } => Some(caller),
        Event::Request(request) => Some(&request.caller),
        _ => None,
    });
    let [one, other] = [callers[0], callers[3]];
    assert_eq!(callers, [one, one, one, other, other, other]);
    assert!(one != other);
    harness.finish();
}

/// The server remembers the last 64 visits that it asked each client for.
#[test]
fn end_of_a_visit_is_told_to_the_client_that_was_asked_for_it_lately() {
    let mut harness = Harness::new(config());
    let handshake = initialize_with("2025-11-25", &json!({"elicitation": {"url": {}}}));
    let session = harness.open_session_with(handshake, "2025-11-25", None);
    let stream = harness.send(session.get());
    let call = session.post(1, "tools/call", json!({"name": "slow"}));
    let (_, request) = harness.send_accepted(call);
    let visit = |harness: &mut Harness, number: u64| {
        let params = json!({
            "mode": "url", "message": "sign in", "url": "https://a.example",
            "elicitationId": number.to_string(),
        });
        harness.ask(request, "elicitation/create", params);
        let id = harness.newest_ask_id("elicitation/create");
        harness.send(session.answer(&id, json!({"action": "accept"})));
    };
    let is_told = |harness: &mut Harness, number: u64| {
        let method = "notifications/elicitation/complete";
        let before = harness.messages_with(stream, method).len();
        let params = payload(&json!({"elicitationId": number.to_string()}));
        let done = harness.with_server(|server, now| server.notify(now, method, Some(params)));
        done.expect("the application may send this");
        harness.messages_with(stream, method).len() > before
    };
    for number in 0..64 {
        visit(&mut harness, number);
    }
    assert!(is_told(&mut harness, 0) && is_told(&mut harness, 63));
    assert!(!is_told(&mut harness, 64), "nobody was asked for it");
    // The first becomes the newest, so the second is the oldest.
    visit(&mut harness, 0);
    visit(&mut harness, 64);
    assert!(is_told(&mut harness, 0) && is_told(&mut harness, 64));
    assert!(!is_told(&mut harness, 1));
    assert!(is_told(&mut harness, 2));
    harness.finish();
}

#[test]
fn end_of_a_visit_that_is_sent_to_one_client_reaches_no_other_that_made_it() {
    const COMPLETE: &str = "notifications/elicitation/complete";
    let mut harness = Harness::new(config());
    let about = json!({"elicitationId": "1"});
    let asked = json!({
        "mode": "url", "message": "sign in", "url": "https://a.example", "elicitationId": "1",
    });
    let streams = [(); 2].map(|()| {
        let handshake = initialize_with("2025-11-25", &json!({"elicitation": {"url": {}}}));
        let session = harness.open_session_with(handshake, "2025-11-25", None);
        let stream = harness.send(session.get());
        let call = session.post(1, "tools/call", json!({"name": "slow"}));
        let (_, request) = harness.send_accepted(call);
        harness.ask(request, "elicitation/create", asked.clone());
        stream
    });
    let caller = harness.requests()[1].caller.clone();
    let done = harness
        .with_server(|server, now| server.notify_to(now, &caller, COMPLETE, Some(payload(&about))));
    done.expect("the client is there");
    let told = streams.map(|stream| harness.messages_with(stream, COMPLETE).len());
    assert_eq!(told, [0, 1]);
    harness.finish();
}
