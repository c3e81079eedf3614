//! Tasks over HTTP: those of 2025-11-25 and those of the modern extension, as far as the server end handles them.

use crate::server_http::{
    Ask, LEGACY, Site, config, declaring, everything, initialize, introduce, modern, payload,
    seconds,
};
use everlink::protocol::ServerFeature::{self, *};
use everlink::protocol::meta;
use everlink::server::{Config, Misuse, missing_capability};
use serde_json::{Value, json};

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A server that offers everything and these features.
fn with(features: &[ServerFeature]) -> Config {
    let mut offer = everything();
    for feature in features {
        offer.capabilities = offer.capabilities.with(*feature);
    }
    let mut config = config();
    config.offer = Some(offer);
    config
}

/// A modern request of a client with or without the extension.
fn ask(has_it: bool, method: &str, params: Value) -> Ask {
    let declared = if has_it {
        json!({"extensions": {meta::TASKS_EXTENSION: {}}})
    } else {
        json!({})
    };
    let name = params.get("taskId").and_then(Value::as_str);
    let name = name.map(str::to_owned);
    let ask = modern(1, method, declaring(&declared, params));
    match name {
        Some(name) => ask.with("mcp-name", name),
        None => ask,
    }
}

fn task() -> Value {
    json!({"resultType": "task", "taskId": "t", "status": "working", "ttlMs": null, "pollIntervalMs": 100})
}

#[test]
fn s_ltask_01_tasks_are_declared_in_the_handshake_and_are_no_more_than_that() {
    let methods = ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel"];
    for (features, declared, served) in [
        (vec![], Value::Null, vec![]),
        (
            vec![TasksList],
            json!({"list": {}}),
            vec!["tasks/get", "tasks/result", "tasks/list"],
        ),
        (
            vec![TasksCancel, TasksList, TasksToolsCall],
            json!({"cancel": {}, "list": {}, "requests": {"tools": {"call": {}}}}),
            methods.to_vec(),
        ),
    ] {
        for version in LEGACY {
            let mut site = Site::new(with(&features));
            let begun = site.send(initialize(version));
            let has_tasks = version == "2025-11-25";
            let expected = if has_tasks { &declared } else { &Value::Null };
            assert_eq!(site.result(begun)["capabilities"]["tasks"], *expected);
            let session = site.session(version);
            for method in methods {
                let ask = session.post(1, method, json!({"taskId": "t"}));
                if has_tasks && served.contains(&method) {
                    site.served(ask, json!({}));
                } else {
                    assert_eq!(site.refused(ask).1, -32601, "{version}: {method}");
                }
            }
            site.finish();
        }
    }
}

#[test]
fn s_ltask_02_a_question_is_put_as_a_task_where_the_client_takes_it_so() {
    let able = json!({"sampling": {}, "tasks": {"requests": {"sampling": {"createMessage": {}}}}});
    for (declared, takes) in [(able, true), (json!({"sampling": {}}), false)] {
        let mut site = Site::new(config());
        let begin = introduce("2025-11-25", &declared);
        let session = site.session_with(begin, "2025-11-25", None);
        let (stream, request) = site.taken(session.post(1, "tools/call", json!({"name": "x"})));
        let params = payload(&json!({"messages": [], "task": {"ttl": 1}}));
        let method = "sampling/createMessage";
        let asked = site.verb(|server, now| server.ask(now, request, method, Some(params)));
        assert_eq!(asked.is_ok(), takes, "{declared}");
        let put = site.said(stream, method);
        assert_eq!(put.len(), usize::from(takes));
        assert!(put.iter().all(|asked| asked["params"]["task"]["ttl"] == 1));
        site.finish();
    }
}

#[test]
fn s_ltask_03_a_wish_for_a_task_is_passed_over_or_passed_on() {
    let wish = json!({"name": "add", "task": {"ttl": 60_000}});
    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    let ask = session.post(1, "tools/call", wish.clone());
    let served = site.served(ask, json!({"content": []}));
    assert_eq!(site.result(served), json!({"content": []}));
    site.finish();

    let mut site = Site::new(with(&[TasksToolsCall]));
    let session = site.session("2025-11-25");
    let (stream, request) = site.taken(session.post(1, "tools/call", wish.clone()));
    let given = site.requests()[0].params.clone().expect("params");
    assert_eq!(given.parse::<Value>().expect("JSON"), wish);
    let created = json!({"task": {"taskId": "t", "status": "working", "ttl": 60_000}});
    site.respond(request, created.clone());
    assert_eq!(site.result(stream), created);
    site.finish();
}

/// S-LTASK-05, S-LTASK-06: the result of a task may take any time, and is sent as the application gives it.
#[test]
fn s_ltask_05_the_outcome_of_a_task_is_waited_for() {
    let mut site = Site::new(with(&[TasksCancel, TasksList, TasksToolsCall]));
    let session = site.session("2025-11-25");
    let related = json!({RELATED: {"taskId": "t"}});
    let params = json!({"taskId": "t", "_meta": related});
    let (stream, request) = site.taken(session.post(1, "tasks/result", params));
    let given = site.requests()[0].params.clone().expect("params");
    let given: Value = given.parse().expect("JSON");
    assert_eq!(given["_meta"], related, "S-LTASK-06");
    site.pass(seconds(24 * 60 * 60));
    assert!(!site.is_over(stream));
    let question = json!({"messages": [], "_meta": related});
    site.ask(request, "sampling/createMessage", question);
    let asked = site.said(stream, "sampling/createMessage");
    assert_eq!(asked[0]["params"]["_meta"], related, "S-LTASK-06");
    let outcome = json!({"content": [], "isError": true, "_meta": related});
    site.respond(request, outcome.clone());
    assert_eq!(site.result(stream), outcome);
    let (stream, request) = site.taken(session.post(2, "tasks/result", json!({"taskId": "u"})));
    site.fail(request, -32602, "there is no such task");
    assert_eq!(site.answer(stream)["error"]["code"], -32602);
    site.finish();
}

/// S-TASKX-01, S-TASKX-11: each era declares its own tasks, and the extension has no effect in a session.
#[test]
fn s_taskx_01_each_era_has_its_own_tasks() {
    let mut site = Site::new(with(&[TasksCancel, TasksExtension, TasksToolsCall]));
    let found = site.send(modern(1, "server/discover", json!({})));
    let capabilities = site.result(found)["capabilities"].clone();
    assert_eq!(capabilities["extensions"][meta::TASKS_EXTENSION], json!({}));
    assert!(capabilities.get("tasks").is_none(), "S-TASKX-11");
    site.finish();

    let mut site = Site::new(with(&[TasksExtension]));
    let declared = json!({"extensions": {meta::TASKS_EXTENSION: {}}});
    let begin = introduce("2025-11-25", &declared);
    let begun = site.send(begin.clone());
    assert!(
        site.result(begun)["capabilities"]
            .get("extensions")
            .is_none()
    );
    let session = site.session_with(begin, "2025-11-25", None);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let ask = session.post(1, method, json!({"taskId": "t"}));
        assert_eq!(site.refused(ask).1, -32601, "{method}");
    }
    site.finish();
}

#[test]
fn s_taskx_02_a_call_that_declared_the_extension_may_become_a_task_and_no_other() {
    let mut site = Site::new(with(&[TasksExtension]));
    let call = json!({"name": "long"});
    let served = site.served(ask(true, "tools/call", call.clone()), task());
    for (member, expected) in task().as_object().expect("an object") {
        assert_eq!(site.result(served)[member], *expected, "{member}");
    }
    for (has_it, method, params) in [
        (false, "tools/call", call),
        (true, "prompts/get", json!({"name": "p"})),
        (true, "tools/list", json!({})),
        (true, "tasks/get", json!({"taskId": "t"})),
    ] {
        let (stream, request) = site.taken(ask(has_it, method, params));
        let done = site.verb(|server, now| server.respond(now, request, payload(&task())));
        let kind = "task".into();
        assert_eq!(done, Err(Misuse::InvalidResultType { kind }), "{method}");
        assert!(!site.is_answered(stream), "{method}");
    }
    site.finish();
}

#[test]
fn s_taskx_04_who_lacks_the_extension_is_told_that_it_is_needed() {
    let needed = json!({"extensions": {meta::TASKS_EXTENSION: {}}});
    let mut site = Site::new(with(&[TasksExtension]));
    let (stream, request) = site.taken(ask(false, "tools/call", json!({"name": "long"})));
    let lack = missing_capability(everlink::protocol::ClientFeature::TasksExtension);
    site.verb(|server, now| server.fail(now, request, lack))
        .expect("an answer");
    let mut streams = vec![stream];
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        streams.push(site.send(ask(false, method, json!({"taskId": "t"}))));
    }
    for stream in streams {
        assert_eq!((site.status(stream), site.code(stream)), (400, -32021));
        let told = site.json(stream)["error"]["data"]["requiredCapabilities"].clone();
        assert_eq!(told, needed);
    }
    site.finish();
}

#[test]
fn s_taskx_06_what_is_asked_of_a_task_has_a_complete_result() {
    let mut site = Site::new(with(&[TasksExtension]));
    let completed = json!({"taskId": "t", "status": "completed", "result": {"content": []}});
    for (method, answer) in [
        ("tasks/get", completed),
        ("tasks/update", json!({})),
        ("tasks/cancel", json!({})),
    ] {
        let stream = site.served(ask(true, method, json!({"taskId": "t"})), answer.clone());
        let result = site.result(stream);
        assert_eq!(result["resultType"], "complete", "{method}");
        for (member, expected) in answer.as_object().expect("an object") {
            assert_eq!(result[member], *expected, "{method}");
        }
        let (stream, request) = site.taken(ask(true, method, json!({"taskId": "u"})));
        site.fail(request, -32602, "there is no such task");
        assert_eq!((site.status(stream), site.code(stream)), (200, -32602));
        // S-HDR-03: the field must name the task.
        let other = ask(true, method, json!({"taskId": "t"}));
        assert_eq!(
            site.refused(other.clone().with("mcp-name", "u")),
            (400, -32020)
        );
        assert_eq!(site.refused(other.without("mcp-name")), (400, -32020));
    }
    site.finish();
}

#[test]
fn s_taskx_11_the_tasks_of_the_legacy_era_are_gone() {
    let mut site = Site::new(with(&[
        TasksCancel,
        TasksExtension,
        TasksList,
        TasksToolsCall,
    ]));
    for method in ["tasks/result", "tasks/list"] {
        let refused = site.refused(ask(true, method, json!({"taskId": "t"})));
        assert_eq!(refused, (404, -32601), "{method}");
    }
    let wish = json!({"name": "add", "task": {"ttl": 60_000}});
    let stream = site.served(ask(true, "tools/call", wish), json!({"content": []}));
    assert_eq!(site.result(stream)["resultType"], "complete");
    site.finish();
}
