//! Notifications to clients over HTTP: watches, progress and log messages.

use crate::server_http::{
    Ask, NOTHING, Site, config, declaring, everything, modern, notice, offering, payload, seconds,
    with_meta,
};
use everlink::protocol::{LogLevel, ServerCapabilities, ServerFeature};
use everlink::server::{ListenEnd, Misuse, Progress};
use everlink::{Change, List, RequestId};
use serde_json::{Value, json};

const ACK: &str = "notifications/subscriptions/acknowledged";
const CANCELLED: &str = "notifications/cancelled";
const LOG: &str = "notifications/message";
const PROGRESS: &str = "notifications/progress";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

fn watch(id: impl Into<Value>, wanted: &Value) -> Ask {
    modern(id, "subscriptions/listen", json!({"notifications": wanted}))
}

fn everything_changes(site: &mut Site) {
    for list in [List::Tools, List::Prompts, List::Resources] {
        site.publish(Change::List(list));
    }
    site.publish(Change::Resource {
        uri: "file:///a".into(),
    });
}

fn call(id: u64, meta: &Value) -> Ask {
    modern(id, "tools/call", json!({"name": "slow", "_meta": meta}))
}

fn log(site: &mut Site, request: Option<RequestId>, level: LogLevel) {
    let data = payload(&json!("x"));
    site.verb(|server, now| server.log(now, request, level, None, data))
        .expect("logs are offered");
}

#[test]
fn s_sub_02_a_watch_hears_what_it_wants_and_nothing_else() {
    for (wanted, heard) in [
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
        let mut site = Site::new(config());
        let stream = site.send(watch(1, &wanted));
        everything_changes(&mut site);
        let messages = site.messages(stream);
        let methods: Vec<&str> = messages[1..]
            .iter()
            .filter_map(|message| message["method"].as_str())
            .collect();
        assert_eq!(methods, heard, "{wanted}");
        site.finish();
    }
}

/// S-SUB-03, S-SUB-05: the first message of a watch is its grant: the wanted notifications that the server offers.
#[test]
fn s_sub_05_a_watch_is_told_first_what_it_will_hear_of() {
    let tools = ServerCapabilities::default()
        .with_tools(true)
        .with_prompts(false);
    let mut site = Site::new(offering(tools));
    let wanted = json!({
        "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["file:///a"],
    });
    let stream = site.send(watch(1, &wanted));
    let first = site.messages(stream).remove(0);
    assert_eq!(first["method"], ACK);
    assert_eq!(
        first["params"]["notifications"],
        json!({"toolsListChanged": true})
    );
    site.finish();
}

#[test]
fn s_sub_07_all_that_a_watch_hears_has_its_id() {
    for end in [ListenEnd::Result, ListenEnd::CancelledThenResult] {
        let mut config = config();
        config.listen_end = end;
        let mut site = Site::new(config);
        let wanted = json!({
            "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
            "resourceSubscriptions": ["file:///a"],
        });
        let streams = [json!(7), json!("7")].map(|id| (id.clone(), site.send(watch(id, &wanted))));
        everything_changes(&mut site);
        site.shutdown();
        for (id, stream) in streams {
            let messages = site.messages(stream);
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
                assert_eq!(message[part]["_meta"][SUBSCRIPTION], id, "{message}");
            }
        }
        site.finish();
    }
}

/// S-SUB-11: a watch that the server ends gets its result, and then its stream ends.
#[test]
fn s_sub_11_a_watch_that_the_server_ends_has_a_result() {
    let mut site = Site::new(config());
    let stream = site.send(watch(1, &json!({"toolsListChanged": true})));
    site.shutdown();
    let result = site.result(stream);
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["_meta"][SUBSCRIPTION], 1);
    assert_eq!(
        site.messages(stream).pop().map(|m| m["id"].clone()),
        Some(json!(1))
    );
    assert!(site.is_over(stream) && !site.exchange(stream).is_aborted());
    site.finish();
}

#[test]
fn s_sub_13_nothing_but_a_watch_is_ended_with_a_notification() {
    let mut config = config();
    config.listen_end = ListenEnd::CancelledThenResult;
    let mut site = Site::new(config);
    let meta = json!({"progressToken": 1, "io.modelcontextprotocol/logLevel": "debug"});
    let (slow, request) = site.taken(call(1, &meta));
    site.progress(request, 1.0);
    let (asking, asked) = site.taken(call(2, &meta));
    let ask = site.ask(asked, "roots/list", Value::Null);
    site.verb(|server, now| server.withdraw(now, ask, None))
        .expect("it is open");
    let (failed, failing) = site.taken(call(3, &meta));
    site.fail(failing, 7, "no");
    let watching = site.send(watch(4, &json!({})));
    site.shutdown();
    site.pass(seconds(60));
    for stream in [slow, asking, failed] {
        assert_eq!(site.said(stream, CANCELLED), NOTHING);
    }
    for told in site.said(watching, CANCELLED) {
        assert_eq!(told["params"]["requestId"], 4);
    }
    site.finish();
}

/// S-SUB-19: a watch is answered with a stream; only a refusal is JSON.
#[test]
fn s_sub_19_a_watch_is_a_stream() {
    let mut site = Site::new(config());
    for accept in ["application/json, text/event-stream", "text/event-stream"] {
        let stream = site.send(watch(1, &json!({})).with("accept", accept));
        assert_eq!(site.status(stream), 200);
        assert_eq!(site.sse(stream).len(), 1);
        assert!(!site.is_over(stream));
    }
    let refused = site.send(watch(1, &json!(7)));
    assert_eq!((site.status(refused), site.code(refused)), (400, -32602));
    site.finish();
}

#[test]
fn s_sub_20_tasks_are_watched_by_who_has_the_extension() {
    let mut offer = everything();
    offer.capabilities = offer.capabilities.with(ServerFeature::TasksExtension);
    let mut config = config();
    config.offer = Some(offer);
    let mut site = Site::new(config);
    let wanted = json!({"taskIds": ["t"]});
    let refused = site.send(watch(1, &wanted));
    assert_eq!((site.status(refused), site.code(refused)), (400, -32021));
    let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let params = declaring(&tasks, json!({"notifications": wanted}));
    let stream = site.send(modern(1, "subscriptions/listen", params));
    assert_eq!(site.status(stream), 200);
    site.finish();
}

/// S-PROG-01, S-PROG-02, S-PROG-09: progress has the token of its request, with the same value and type. The other members come
/// from the application.
#[test]
fn s_prog_01_progress_has_the_token_of_its_request() {
    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    for token in [json!(1), json!("1"), json!(""), json!(-5)] {
        let params = json!({"name": "slow", "_meta": {"progressToken": token}});
        for ask in [
            modern(1, "tools/call", params.clone()),
            session.post(1, "tools/call", params),
        ] {
            let (stream, request) = site.taken(ask);
            let progress = Progress::new(0.5).of(2.0).with_message("half way");
            site.verb(|server, now| server.progress(now, request, progress))
                .expect("it is open");
            site.respond(request, json!({"content": []}));
            let told = site.said(stream, PROGRESS).remove(0);
            let expected = json!({
                "progressToken": token, "progress": 0.5, "total": 2, "message": "half way",
            });
            assert_eq!(told["params"], expected);
        }
    }
    for token in [json!(1.5), json!(null), json!({}), json!(true)] {
        let (stream, request) = site.taken(call(1, &json!({"progressToken": token})));
        site.progress(request, 1.0);
        assert!(!site.is_answered(stream), "{token} is no token");
    }
    site.finish();
}

#[test]
fn s_prog_03_progress_grows() {
    let mut site = Site::new(config());
    let session = site.session("2025-03-26");
    let params = json!({"name": "slow", "_meta": {"progressToken": 1}});
    for ask in [
        call(1, &json!({"progressToken": 1})),
        session.post(1, "tools/call", params),
    ] {
        let (stream, request) = site.taken(ask);
        for progress in [1.0, 1.0, 0.5, 2.0, -1.0, 2.5, 2.0] {
            site.progress(request, progress);
        }
        let told: Vec<f64> = site
            .said(stream, PROGRESS)
            .iter()
            .filter_map(|message| message["params"]["progress"].as_f64())
            .collect();
        assert_eq!(told, [1.0, 2.0, 2.5]);
    }
    site.finish();
}

#[test]
fn s_prog_04_progress_stops_with_the_answer() {
    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    let params = json!({"name": "slow", "_meta": {"progressToken": 1}});
    for ask in [
        call(1, &json!({"progressToken": 1})),
        session.post(1, "tools/call", params.clone()),
    ] {
        let (stream, request) = site.taken(ask);
        site.respond(request, json!({"content": []}));
        let late = site.verb(|server, now| server.progress(now, request, Progress::new(1.0)));
        assert_eq!(late, Err(Misuse::UnknownRequest));
        assert_eq!(site.said(stream, PROGRESS), NOTHING);
    }
    // No progress is sent if the client did not ask for it or has cancelled the request.
    let (quiet, request) = site.taken(call(1, &json!({})));
    site.progress(request, 1.0);
    assert!(!site.is_answered(quiet));
    let (stream, request) = site.taken(session.post(2, "tools/call", params));
    site.send(session.notice(CANCELLED, json!({"requestId": 2})));
    let late = site.verb(|server, now| server.progress(now, request, Progress::new(1.0)));
    assert_eq!(late, Err(Misuse::UnknownRequest));
    assert_eq!(site.said(stream, PROGRESS), NOTHING);
    site.finish();
}

/// S-PROG-05: a client that does not read gets only the newest progress.
#[test]
fn s_prog_05_progress_that_was_not_written_is_replaced() {
    let mut narrow = config();
    narrow.limits.write_window = 1;
    let mut site = Site::new(narrow);
    let (stream, request) = site.taken(call(1, &json!({"progressToken": 1})));
    site.stops_reading(stream);
    for step in 1..100 {
        site.progress(request, f64::from(step));
    }
    site.reads_again(stream);
    site.respond(request, json!({"content": []}));
    let told = site.said(stream, PROGRESS);
    assert_eq!(told.len(), 2);
    assert_eq!(told[1]["params"]["progress"], 99);
    site.finish();
}

/// S-PROG-06, S-PROG-09: progress from a client gets no reply and does no harm. A modern client has no request of the
/// server to report on.
#[test]
fn s_prog_06_progress_of_a_client_harms_nobody() {
    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    let (_, request) = site.taken(session.post(1, "tools/call", json!({"name": "x"})));
    let ask = site.ask(request, "roots/list", Value::Null);
    for params in [
        json!({"progressToken": "none", "progress": 1}),
        json!({"progressToken": 1, "progress": -1}),
        json!({"progress": "x"}),
        json!({}),
    ] {
        for told in [
            session.notice(PROGRESS, params.clone()),
            notice(PROGRESS, with_meta(params)),
        ] {
            let told = site.send(told);
            assert_eq!((site.status(told), site.text(told)), (202, ""));
        }
    }
    assert_eq!(site.outcome(ask), None);
    site.finish();
}

#[test]
fn s_prog_08_a_watch_hears_nothing_of_the_progress_of_tasks() {
    let mut offer = everything();
    offer.capabilities = offer.capabilities.with(ServerFeature::TasksExtension);
    let mut config = config();
    config.offer = Some(offer);
    let mut site = Site::new(config);
    let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let wanted = json!({"notifications": {"taskIds": ["t"]}});
    let watching = site.send(modern(1, "subscriptions/listen", declaring(&tasks, wanted)));
    let meta = json!({"progressToken": 1, "io.modelcontextprotocol/logLevel": "debug"});
    let params = declaring(&tasks, json!({"name": "long", "_meta": meta}));
    let (stream, request) = site.taken(modern(2, "tools/call", params));
    site.progress(request, 1.0);
    log(&mut site, Some(request), LogLevel::Error);
    site.respond(
        request,
        json!({"resultType": "task", "taskId": "t", "status": "working"}),
    );
    let late = site.verb(|server, now| server.progress(now, request, Progress::new(2.0)));
    assert_eq!(late, Err(Misuse::UnknownRequest));
    assert_eq!(site.said(watching, PROGRESS), NOTHING);
    assert_eq!(site.said(watching, LOG), NOTHING);
    assert_eq!(site.said(stream, PROGRESS).len(), 1);
    site.finish();
}

/// S-CAP-05, S-CAP-06, S-CAP-07: the log messages of a modern request go to its own stream, from the requested level
/// up.
#[test]
fn s_cap_05_a_modern_request_is_logged_to_as_it_asks() {
    let mut site = Site::new(config());
    let watching = site.send(watch(9, &json!({"toolsListChanged": true})));
    let silent = site.taken(call(1, &json!({"progressToken": 1})));
    let eager = site.taken(call(
        2,
        &json!({"io.modelcontextprotocol/logLevel": "warning"}),
    ));
    for (_, request) in [silent, eager] {
        for level in [LogLevel::Info, LogLevel::Warning, LogLevel::Error] {
            log(&mut site, Some(request), level);
        }
    }
    log(&mut site, None, LogLevel::Emergency);
    site.respond(silent.1, json!({"content": []}));
    site.respond(eager.1, json!({"content": []}));
    assert_eq!(site.said(silent.0, LOG), NOTHING);
    let levels: Vec<Value> = site
        .said(eager.0, LOG)
        .iter()
        .map(|message| message["params"]["level"].clone())
        .collect();
    assert_eq!(levels, ["warning", "error"], "S-CAP-06");
    assert_eq!(site.said(watching, LOG), NOTHING, "S-CAP-07");
    assert!(site.messages(eager.0)[2].get("result").is_some());
    site.finish();
}

#[test]
fn s_cap_08_a_level_that_there_is_not_is_refused() {
    let mut site = Site::new(config());
    for level in [json!("loud"), json!("Info"), json!(7), json!(null)] {
        let meta = json!({"io.modelcontextprotocol/logLevel": level});
        assert_eq!(site.refused(call(1, &meta)), (400, -32602), "{level}");
    }
    site.finish();
}
