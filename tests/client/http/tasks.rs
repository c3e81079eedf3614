//! The tasks of 2025-11-25 over HTTP: the link keeps no tasks, and passes on what both ends declared.

use crate::client_http::{
    Exchange, Harness, ask_message, config, error, every_chunking, initialize_result, notification,
    result, seconds,
};
use everlink::client::{CallOptions, Event, FailureKind};
use everlink::http::Verb;
use everlink::protocol::{ClientCapabilities, ClientFeature};
use everlink::{CallId, Dialect, ErrorObject, Limit};
use serde_json::{Value, json};

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A link with these capabilities to a server of 2025-11-25 with these kinds of tasks.
fn legacy(declared: ClientCapabilities, tasks: &Value) -> Harness {
    let mut harness = legacy_awaiting_listen(declared, tasks);
    harness.refuse_listen();
    harness
}

/// Like `legacy`, but the request for the listen stream is still unanswered.
fn legacy_awaiting_listen(declared: ClientCapabilities, tasks: &Value) -> Harness {
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    settings.capabilities = declared;
    let mut harness = Harness::new(settings);
    harness.connect();
    let post = harness.next_post("initialize");
    let mut init = initialize_result("2025-11-25");
    if !tasks.is_null() {
        init["capabilities"]["tasks"] = tasks.clone();
    }
    harness.json(post.stream, 200, &result(&post, init));
    let post = harness.next_post("notifications/initialized");
    harness.status(post.stream, 202);
    harness
}

fn all_tasks() -> Value {
    json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}})
}

fn start_call(harness: &mut Harness, method: &'static str, params: Value) -> (CallId, Exchange) {
    let call = harness.call(method, params);
    (call, harness.next_post(method))
}

/// S-LTASK-01: the handshake declares exactly the supported parts.
#[test]
fn s_ltask_01_task_features_are_declared_and_undeclared_task_methods_are_not_sent() {
    use ClientFeature::{
        Tasks, TasksCancel, TasksElicitationCreate, TasksList, TasksSamplingCreateMessage,
    };
    let requests = |kinds: Value| json!({"requests": kinds});
    for (features, declared) in [
        (vec![], Value::Null),
        (vec![Tasks], json!({})),
        (
            vec![TasksList, TasksCancel],
            json!({"list": {}, "cancel": {}}),
        ),
        (
            vec![TasksSamplingCreateMessage],
            requests(json!({"sampling": {"createMessage": {}}})),
        ),
        (
            vec![TasksElicitationCreate],
            requests(json!({"elicitation": {"create": {}}})),
        ),
    ] {
        let with = |all: ClientCapabilities, one: &ClientFeature| all.with(*one);
        let capabilities = features.iter().fold(ClientCapabilities::default(), with);
        let harness = legacy(capabilities, &all_tasks());
        let declared_tasks =
            &harness.exchanges_of("initialize")[0].body["params"]["capabilities"]["tasks"];
        assert_eq!(*declared_tasks, declared);
    }
    // S-LTASK-01: the link sends no task method that the server did not declare.
    for (tasks, served) in [
        (Value::Null, [false; 4]),
        (json!({}), [true, true, false, false]),
        (json!({"list": {}}), [true, true, true, false]),
        (all_tasks(), [true; 4]),
    ] {
        let mut harness = legacy(ClientCapabilities::default(), &tasks);
        for (method, is_served) in ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel"]
            .into_iter()
            .zip(served)
        {
            let call = harness.call(method, json!({"taskId": "t"}));
            assert_eq!(harness.is_settled(call), !is_served, "{method} {tasks}");
            assert_eq!(harness.exchanges_of(method).len(), usize::from(is_served));
        }
    }
}

/// S-LTASK-02: the link adds no `task` parameter, and passes on the caller's.
#[test]
fn s_ltask_02_task_parameter_of_the_caller_is_passed_on_and_never_added() {
    let mut harness = legacy(ClientCapabilities::default(), &all_tasks());
    let (_, post) = start_call(&mut harness, "tools/call", json!({"name": "add"}));
    assert_eq!(post.body["params"].get("task"), None);
    let (call, post) = start_call(
        &mut harness,
        "tools/call",
        json!({"name": "add", "task": {"ttl": 60_000}}),
    );
    assert_eq!(post.body["params"]["task"], json!({"ttl": 60_000}));
    let task = json!({"task": {"taskId": "t", "status": "working", "ttl": 60_000}});
    harness.json(post.stream, 200, &result(&post, task.clone()));
    assert_eq!(harness.reply(call), Ok(task));
}

/// S-LTASK-03: a client without tasks ignores the `task` parameter; a client with tasks may answer with a task.
#[test]
fn s_ltask_03_ask_with_a_task_parameter_is_not_refused() {
    let plain = ClientCapabilities::default().with_sampling();
    let able = plain
        .clone()
        .with(ClientFeature::TasksSamplingCreateMessage);
    for (declared, answer) in [
        (
            plain,
            json!({"role": "assistant", "content": {"type": "text", "text": "a"}}),
        ),
        (able, json!({"task": {"taskId": "c", "status": "working"}})),
    ] {
        let mut harness = legacy(declared, &all_tasks());
        let (_, post) = start_call(&mut harness, "tools/call", json!({"name": "add"}));
        harness.begin_stream(post.stream);
        let params = json!({"messages": [], "task": {"ttl": 5}});
        harness.event(
            post.stream,
            None,
            &ask_message("q", "sampling/createMessage", &params),
        );
        let ask = harness.ask();
        harness.answer(&ask, Ok(answer.clone()));
        let sent = harness
            .find(|exchange| exchange.body["id"] == "q")
            .expect("an answer");
        assert_eq!(sent.body["result"], answer);
    }
}

/// S-LTASK-05, S-LTASK-06: results of tasks pass unchanged in both directions, however late.
#[test]
fn s_ltask_05_06_task_results_pass_unchanged_in_both_directions() {
    every_chunking(|chunking| {
        let harness = legacy(
            ClientCapabilities::default().with(ClientFeature::Tasks),
            &all_tasks(),
        );
        let mut harness = harness.chunked(chunking);
        let patient = CallOptions::new()
            .with_idle(Limit::Never)
            .with_total(Limit::Never);
        let params = json!({"taskId": "t", "_meta": {RELATED: {"taskId": "t"}}});
        for is_error in [false, true] {
            let call = harness.call_with("tasks/result", params.clone(), patient);
            let post = harness.next_post("tasks/result");
            assert_eq!(
                post.body["params"]["_meta"][RELATED],
                json!({"taskId": "t"})
            );
            harness.begin_stream(post.stream);
            harness.advance(seconds(20));
            assert!(!harness.is_settled(call), "the call waits");
            let outcome =
                json!({"content": [], "isError": true, "_meta": {RELATED: {"taskId": "t"}}});
            let reply = if is_error {
                error(&post, -32_602)
            } else {
                result(&post, outcome.clone())
            };
            harness.event(post.stream, None, &reply);
            let expected = if is_error { Err(-32_602) } else { Ok(outcome) };
            assert_eq!(harness.reply(call), expected);
        }
        let (_, post) = start_call(&mut harness, "tools/call", json!({"name": "add"}));
        harness.begin_stream(post.stream);
        for (id, answer) in [
            (
                "a",
                Ok(json!({"roots": [], "_meta": {RELATED: {"taskId": "c"}}})),
            ),
            ("b", Err(ErrorObject::new(-7, "no"))),
        ] {
            harness.event(post.stream, None, &ask_message(id, "tasks/result", &params));
            let ask = harness.ask();
            assert_eq!(
                ask.params
                    .as_ref()
                    .expect("params")
                    .parse::<Value>()
                    .expect("JSON"),
                params
            );
            harness.advance(seconds(300));
            harness.answer(&ask, answer.clone());
            let sent = harness
                .find(|exchange| exchange.body["id"] == id)
                .expect("an answer");
            match answer {
                Ok(answer) => assert_eq!(sent.body["result"], answer),
                Err(error) => assert_eq!(sent.body["error"]["code"], error.code),
            }
        }
    });
}

/// S-LTASK-11: messages about a task may come on the listen stream or on the stream of any call.
#[test]
fn s_ltask_11_task_messages_are_accepted_on_any_stream() {
    let mut harness = legacy_awaiting_listen(
        ClientCapabilities::default().with_roots(false),
        &all_tasks(),
    );
    let listen = harness.next_exchange(Verb::Get);
    harness.begin_stream(listen.stream);
    let (_, post) = start_call(&mut harness, "tools/call", json!({"name": "other"}));
    harness.begin_stream(post.stream);
    let status = notification(
        "notifications/tasks/status",
        &json!({"taskId": "t", "status": "input_required"}),
    );
    for (id, stream) in [("a", listen.stream), ("b", post.stream)] {
        let status_events = |harness: &Harness| {
            harness.events.iter().filter(|e| matches!(e, Event::Notified { method, .. } if **method == *"notifications/tasks/status")).count()
        };
        let before = status_events(&harness);
        harness.event(stream, None, &status);
        assert_eq!(status_events(&harness), before + 1);
        let params = json!({"_meta": {RELATED: {"taskId": "t"}}});
        harness.event(stream, None, &ask_message(id, "roots/list", &params));
        let ask = harness.ask();
        harness.answer(
            &ask,
            Ok(json!({"roots": [], "_meta": {RELATED: {"taskId": "t"}}})),
        );
        let sent = harness
            .find(|exchange| exchange.body["id"] == id)
            .expect("an answer");
        assert_eq!(sent.body["result"]["_meta"][RELATED]["taskId"], "t");
    }
}

/// S-CANC-11: a task is not cancelled with a notification. Without tasks, it is an ordinary call.
#[test]
fn s_canc_11_call_with_a_task_parameter_is_not_cancelled_by_notification() {
    for (tasks, notices) in [(all_tasks(), 0), (Value::Null, 1)] {
        let mut harness = legacy(ClientCapabilities::default(), &tasks);
        let (call, _) = start_call(
            &mut harness,
            "tools/call",
            json!({"name": "add", "task": {"ttl": 1}}),
        );
        harness.cancel(call);
        assert!(matches!(
            harness.failure(call).kind,
            FailureKind::Cancelled { .. }
        ));
        assert_eq!(
            harness.exchanges_of("notifications/cancelled").len(),
            notices
        );
        harness.advance(seconds(20));
        assert_eq!(harness.open_exchanges(), 0, "the reply is not awaited");
    }
}

/// S-PROG-07: the progress token of a task is never reused, and late progress does no harm.
#[test]
fn s_prog_07_progress_token_of_a_task_is_never_reused() {
    let mut harness = legacy(ClientCapabilities::default(), &all_tasks());
    let (call, post) = start_call(
        &mut harness,
        "tools/call",
        json!({"name": "add", "task": {"ttl": 1}}),
    );
    harness.json(
        post.stream,
        200,
        &result(&post, json!({"task": {"taskId": "t", "status": "working"}})),
    );
    assert!(harness.reply(call).is_ok());
    for _ in 0..50 {
        let (other, next) = start_call(&mut harness, "tools/call", json!({"name": "add"}));
        assert_ne!(next.progress_token(), post.progress_token());
        harness.begin_stream(next.stream);
        let params = json!({"progressToken": post.progress_token(), "progress": 1});
        harness.event(
            next.stream,
            None,
            &notification("notifications/progress", &params),
        );
        assert!(harness.progress(other).is_empty());
        harness.event(next.stream, None, &result(&next, json!({"content": []})));
        assert!(harness.reply(other).is_ok());
    }
    assert_eq!(harness.client.stats().noise, 0);
}
