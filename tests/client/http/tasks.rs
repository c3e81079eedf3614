//! The tasks of 2025-11-25 over HTTP: the link keeps no tasks, and passes on what both ends declared.

use crate::client_http::{
    Begun, Web, config, error, every_chunking, introduction, notification, question, result,
    seconds,
};
use everlink::client::{CallOptions, Event, FailureKind};
use everlink::http::Verb;
use everlink::protocol::{ClientCapabilities, ClientFeature};
use everlink::{CallId, Dialect, ErrorObject, Limit};
use serde_json::{Value, json};

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A link with these capabilities to a server of 2025-11-25 with these kinds of tasks.
fn legacy(declared: ClientCapabilities, tasks: &Value) -> Web {
    let mut web = legacy_with_news(declared, tasks);
    web.no_news();
    web
}

/// Like `legacy`, but the request for the listen stream is still unanswered.
fn legacy_with_news(declared: ClientCapabilities, tasks: &Value) -> Web {
    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    settings.capabilities = declared;
    let mut web = Web::new(settings);
    web.connect();
    let post = web.posted("initialize");
    let mut terms = introduction("2025-11-25");
    if !tasks.is_null() {
        terms["capabilities"]["tasks"] = tasks.clone();
    }
    web.json(post.stream, 200, &result(&post, terms));
    let post = web.posted("notifications/initialized");
    web.status(post.stream, 202);
    web
}

fn all_tasks() -> Value {
    json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}})
}

fn called(web: &mut Web, method: &'static str, params: Value) -> (CallId, Begun) {
    let call = web.call(method, params);
    (call, web.posted(method))
}

/// S-LTASK-01: the handshake declares exactly the supported parts.
#[test]
fn s_ltask_01_tasks_are_declared_in_the_handshake() {
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
        let web = legacy(capabilities, &all_tasks());
        let said = &web.carrying("initialize")[0].body["params"]["capabilities"]["tasks"];
        assert_eq!(*said, declared);
    }
    // S-LTASK-01: the link sends no task method that the server did not declare.
    for (tasks, served) in [
        (Value::Null, [false; 4]),
        (json!({}), [true, true, false, false]),
        (json!({"list": {}}), [true, true, true, false]),
        (all_tasks(), [true; 4]),
    ] {
        let mut web = legacy(ClientCapabilities::default(), &tasks);
        for (method, is_served) in ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel"]
            .into_iter()
            .zip(served)
        {
            let call = web.call(method, json!({"taskId": "t"}));
            assert_eq!(web.is_settled(call), !is_served, "{method} {tasks}");
            assert_eq!(web.carrying(method).len(), usize::from(is_served));
        }
    }
}

/// S-LTASK-02: the link adds no `task` parameter, and passes on the caller's.
#[test]
fn s_ltask_02_a_wish_for_a_task_is_the_callers() {
    let mut web = legacy(ClientCapabilities::default(), &all_tasks());
    let (_, post) = called(&mut web, "tools/call", json!({"name": "add"}));
    assert_eq!(post.body["params"].get("task"), None);
    let (call, post) = called(
        &mut web,
        "tools/call",
        json!({"name": "add", "task": {"ttl": 60_000}}),
    );
    assert_eq!(post.body["params"]["task"], json!({"ttl": 60_000}));
    let task = json!({"task": {"taskId": "t", "status": "working", "ttl": 60_000}});
    web.json(post.stream, 200, &result(&post, task.clone()));
    assert_eq!(web.reply(call), Ok(task));
}

/// S-LTASK-03: a client without tasks ignores the `task` parameter; a client with tasks may answer with a task.
#[test]
fn s_ltask_03_a_wish_of_the_server_is_no_reason_to_refuse() {
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
        let mut web = legacy(declared, &all_tasks());
        let (_, post) = called(&mut web, "tools/call", json!({"name": "add"}));
        web.stream(post.stream);
        let params = json!({"messages": [], "task": {"ttl": 5}});
        web.event(
            post.stream,
            None,
            &question("q", "sampling/createMessage", &params),
        );
        let ask = web.ask();
        web.answer(&ask, Ok(answer.clone()));
        let said = web
            .find(|begun| begun.body["id"] == "q")
            .expect("an answer");
        assert_eq!(said.body["result"], answer);
    }
}

/// S-LTASK-05, S-LTASK-06: results of tasks pass unchanged in both directions, however late.
#[test]
fn s_ltask_05_06_the_outcome_of_a_task_passes_untouched() {
    every_chunking(|chunking| {
        let web = legacy(
            ClientCapabilities::default().with(ClientFeature::Tasks),
            &all_tasks(),
        );
        let mut web = web.chunked(chunking);
        let patient = CallOptions::new()
            .with_idle(Limit::Never)
            .with_total(Limit::Never);
        let params = json!({"taskId": "t", "_meta": {RELATED: {"taskId": "t"}}});
        for is_error in [false, true] {
            let call = web.call_with("tasks/result", params.clone(), patient);
            let post = web.posted("tasks/result");
            assert_eq!(
                post.body["params"]["_meta"][RELATED],
                json!({"taskId": "t"})
            );
            web.stream(post.stream);
            web.pass(seconds(20));
            assert!(!web.is_settled(call), "it waits");
            let outcome =
                json!({"content": [], "isError": true, "_meta": {RELATED: {"taskId": "t"}}});
            let said = if is_error {
                error(&post, -32_602)
            } else {
                result(&post, outcome.clone())
            };
            web.event(post.stream, None, &said);
            let expected = if is_error { Err(-32_602) } else { Ok(outcome) };
            assert_eq!(web.reply(call), expected);
        }
        let (_, post) = called(&mut web, "tools/call", json!({"name": "add"}));
        web.stream(post.stream);
        for (id, answer) in [
            (
                "a",
                Ok(json!({"roots": [], "_meta": {RELATED: {"taskId": "c"}}})),
            ),
            ("b", Err(ErrorObject::new(-7, "no"))),
        ] {
            web.event(post.stream, None, &question(id, "tasks/result", &params));
            let ask = web.ask();
            assert_eq!(
                ask.params
                    .as_ref()
                    .expect("params")
                    .parse::<Value>()
                    .expect("JSON"),
                params
            );
            web.pass(seconds(300));
            web.answer(&ask, answer.clone());
            let said = web.find(|begun| begun.body["id"] == id).expect("an answer");
            match answer {
                Ok(answer) => assert_eq!(said.body["result"], answer),
                Err(error) => assert_eq!(said.body["error"]["code"], error.code),
            }
        }
    });
}

/// S-LTASK-11: messages about a task may come on the listen stream or on the stream of any call.
#[test]
fn s_ltask_11_what_is_about_a_task_may_come_on_any_stream() {
    let mut web = legacy_with_news(
        ClientCapabilities::default().with_roots(false),
        &all_tasks(),
    );
    let listen = web.begun(Verb::Get);
    web.stream(listen.stream);
    let (_, post) = called(&mut web, "tools/call", json!({"name": "other"}));
    web.stream(post.stream);
    let status = notification(
        "notifications/tasks/status",
        &json!({"taskId": "t", "status": "input_required"}),
    );
    for (id, stream) in [("a", listen.stream), ("b", post.stream)] {
        let told = |web: &Web| {
            web.events.iter().filter(|e| matches!(e, Event::Notified { method, .. } if **method == *"notifications/tasks/status")).count()
        };
        let before = told(&web);
        web.event(stream, None, &status);
        assert_eq!(told(&web), before + 1);
        let params = json!({"_meta": {RELATED: {"taskId": "t"}}});
        web.event(stream, None, &question(id, "roots/list", &params));
        let ask = web.ask();
        web.answer(
            &ask,
            Ok(json!({"roots": [], "_meta": {RELATED: {"taskId": "t"}}})),
        );
        let said = web.find(|begun| begun.body["id"] == id).expect("an answer");
        assert_eq!(said.body["result"]["_meta"][RELATED]["taskId"], "t");
    }
}

/// S-CANC-11: a task is not cancelled with a notification. Without tasks, it is an ordinary call.
#[test]
fn s_canc_11_a_call_that_is_a_task_is_not_cancelled_by_notification() {
    for (tasks, notices) in [(all_tasks(), 0), (Value::Null, 1)] {
        let mut web = legacy(ClientCapabilities::default(), &tasks);
        let (call, _) = called(
            &mut web,
            "tools/call",
            json!({"name": "add", "task": {"ttl": 1}}),
        );
        web.cancel(call);
        assert!(matches!(
            web.failure(call).kind,
            FailureKind::Cancelled { .. }
        ));
        assert_eq!(web.carrying("notifications/cancelled").len(), notices);
    }
}

/// S-PROG-07: the progress token of a task is never reused, and late progress does no harm.
#[test]
fn s_prog_07_the_token_of_a_task_is_never_given_to_another() {
    let mut web = legacy(ClientCapabilities::default(), &all_tasks());
    let (call, post) = called(
        &mut web,
        "tools/call",
        json!({"name": "add", "task": {"ttl": 1}}),
    );
    web.json(
        post.stream,
        200,
        &result(&post, json!({"task": {"taskId": "t", "status": "working"}})),
    );
    assert!(web.reply(call).is_ok());
    for _ in 0..50 {
        let (other, next) = called(&mut web, "tools/call", json!({"name": "add"}));
        assert_ne!(next.token(), post.token());
        web.stream(next.stream);
        let params = json!({"progressToken": post.token(), "progress": 1});
        web.event(
            next.stream,
            None,
            &notification("notifications/progress", &params),
        );
        assert!(web.progress(other).is_empty());
        web.event(next.stream, None, &result(&next, json!({"content": []})));
        assert!(web.reply(other).is_ok());
    }
    assert_eq!(web.client.stats().noise, 0);
}
