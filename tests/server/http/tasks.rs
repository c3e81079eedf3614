//! Tasks over HTTP: those of 2025-11-25 and those of the modern extension, as far as the server end handles them.

use crate::server_http::{
    Harness, HttpRequest, LEGACY, config, declaring, full_offer, initialize, initialize_with,
    modern, payload, seconds,
};
use everlink::protocol::ServerFeature::{self, *};
use everlink::protocol::meta;
use everlink::server::{Config, Misuse, missing_capability};
use serde_json::{Value, json};

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A server that offers everything and these features.
fn config_with(features: &[ServerFeature]) -> Config {
    let mut offer = full_offer();
    for feature in features {
        offer.capabilities = offer.capabilities.with(*feature);
    }
    let mut config = config();
    config.offer = Some(offer);
    config
}

/// A modern request of a client with or without the extension.
fn modern_request(has_extension: bool, method: &str, params: Value) -> HttpRequest {
    let declared = if has_extension {
        json!({"extensions": {meta::TASKS_EXTENSION: {}}})
    } else {
        json!({})
    };
    let name = params.get("taskId").and_then(Value::as_str);
    let name = name.map(str::to_owned);
    let http_request = modern(1, method, declaring(&declared, params));
    match name {
        Some(name) => http_request.with("mcp-name", name),
        None => http_request,
    }
}

fn task() -> Value {
    json!({"resultType": "task", "taskId": "t", "status": "working", "ttlMs": null, "pollIntervalMs": 100})
}

#[test]
fn s_ltask_01_task_methods_work_only_as_declared_in_the_handshake() {
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
            let mut harness = Harness::new(config_with(&features));
            let begun = harness.send(initialize(version));
            let has_tasks = version == "2025-11-25";
            let expected = if has_tasks { &declared } else { &Value::Null };
            assert_eq!(harness.result(begun)["capabilities"]["tasks"], *expected);
            let session = harness.open_session(version);
            for method in methods {
                let http_request = session.post(1, method, json!({"taskId": "t"}));
                if has_tasks && served.contains(&method) {
                    harness.send_and_respond(http_request, json!({}));
                } else {
                    assert_eq!(
                        harness.send_refused(http_request).1,
                        -32601,
                        "{version}: {method}"
                    );
                }
            }
            harness.finish();
        }
    }
}

#[test]
fn s_ltask_02_ask_runs_as_a_task_only_if_the_client_declared_it() {
    let capabilities =
        json!({"sampling": {}, "tasks": {"requests": {"sampling": {"createMessage": {}}}}});
    for (declared, is_sent) in [(capabilities, true), (json!({"sampling": {}}), false)] {
        let mut harness = Harness::new(config());
        let handshake = initialize_with("2025-11-25", &declared);
        let session = harness.open_session_with(handshake, "2025-11-25", None);
        let (stream, request) =
            harness.send_accepted(session.post(1, "tools/call", json!({"name": "x"})));
        let params = payload(&json!({"messages": [], "task": {"ttl": 1}}));
        let method = "sampling/createMessage";
        let ask = harness.with_server(|server, now| server.ask(now, request, method, Some(params)));
        assert_eq!(ask.is_ok(), is_sent, "{declared}");
        let sent = harness.messages_with(stream, method);
        assert_eq!(sent.len(), usize::from(is_sent));
        assert!(sent.iter().all(|ask| ask["params"]["task"]["ttl"] == 1));
        harness.finish();
    }
}

#[test]
fn s_ltask_03_task_parameter_has_an_effect_only_with_the_capability() {
    let params = json!({"name": "add", "task": {"ttl": 60_000}});
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let http_request = session.post(1, "tools/call", params.clone());
    let served = harness.send_and_respond(http_request, json!({"content": []}));
    assert_eq!(harness.result(served), json!({"content": []}));
    harness.finish();

    let mut harness = Harness::new(config_with(&[TasksToolsCall]));
    let session = harness.open_session("2025-11-25");
    let (stream, request) = harness.send_accepted(session.post(1, "tools/call", params.clone()));
    let delivered = harness.requests()[0].params.clone().expect("params");
    assert_eq!(delivered.parse::<Value>().expect("JSON"), params);
    let created = json!({"task": {"taskId": "t", "status": "working", "ttl": 60_000}});
    harness.respond(request, created.clone());
    assert_eq!(harness.result(stream), created);
    harness.finish();
}

/// S-LTASK-05, S-LTASK-06: the result of a task may take any time, and is sent as the application gives it.
#[test]
fn s_ltask_05_tasks_result_may_stay_open_for_a_day() {
    let mut harness = Harness::new(config_with(&[TasksCancel, TasksList, TasksToolsCall]));
    let session = harness.open_session("2025-11-25");
    let related = json!({RELATED: {"taskId": "t"}});
    let params = json!({"taskId": "t", "_meta": related});
    let (stream, request) = harness.send_accepted(session.post(1, "tasks/result", params));
    let delivered = harness.requests()[0].params.clone().expect("params");
    let delivered: Value = delivered.parse().expect("JSON");
    assert_eq!(delivered["_meta"], related, "S-LTASK-06");
    harness.advance(seconds(24 * 60 * 60));
    assert!(!harness.is_over(stream));
    let params = json!({"messages": [], "_meta": related});
    harness.ask(request, "sampling/createMessage", params);
    let asks = harness.messages_with(stream, "sampling/createMessage");
    assert_eq!(asks[0]["params"]["_meta"], related, "S-LTASK-06");
    let outcome = json!({"content": [], "isError": true, "_meta": related});
    harness.respond(request, outcome.clone());
    assert_eq!(harness.result(stream), outcome);
    let (stream, request) =
        harness.send_accepted(session.post(2, "tasks/result", json!({"taskId": "u"})));
    harness.fail(request, -32602, "there is no such task");
    assert_eq!(harness.reply(stream)["error"]["code"], -32602);
    harness.finish();
}

/// S-TASKX-01, S-TASKX-11: each era declares its own tasks, and the extension has no effect in a session.
#[test]
fn s_taskx_01_each_era_declares_its_own_tasks() {
    let mut harness = Harness::new(config_with(&[TasksCancel, TasksExtension, TasksToolsCall]));
    let discovered = harness.send(modern(1, "server/discover", json!({})));
    let capabilities = harness.result(discovered)["capabilities"].clone();
    assert_eq!(capabilities["extensions"][meta::TASKS_EXTENSION], json!({}));
    assert!(capabilities.get("tasks").is_none(), "S-TASKX-11");
    harness.finish();

    let mut harness = Harness::new(config_with(&[TasksExtension]));
    let declared = json!({"extensions": {meta::TASKS_EXTENSION: {}}});
    let handshake = initialize_with("2025-11-25", &declared);
    let begun = harness.send(handshake.clone());
    assert!(
        harness.result(begun)["capabilities"]
            .get("extensions")
            .is_none()
    );
    let session = harness.open_session_with(handshake, "2025-11-25", None);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let http_request = session.post(1, method, json!({"taskId": "t"}));
        assert_eq!(harness.send_refused(http_request).1, -32601, "{method}");
    }
    harness.finish();
}

#[test]
fn s_taskx_02_only_a_tool_call_with_the_extension_may_become_a_task() {
    let mut harness = Harness::new(config_with(&[TasksExtension]));
    let call = json!({"name": "long"});
    let served = harness.send_and_respond(modern_request(true, "tools/call", call.clone()), task());
    for (member, expected) in task().as_object().expect("an object") {
        assert_eq!(harness.result(served)[member], *expected, "{member}");
    }
    for (has_extension, method, params) in [
        (false, "tools/call", call),
        (true, "prompts/get", json!({"name": "p"})),
        (true, "tools/list", json!({})),
        (true, "tasks/get", json!({"taskId": "t"})),
    ] {
        let (stream, request) =
            harness.send_accepted(modern_request(has_extension, method, params));
        let done =
            harness.with_server(|server, now| server.respond(now, request, payload(&task())));
        let kind = "task".into();
        assert_eq!(done, Err(Misuse::InvalidResultType { kind }), "{method}");
        assert!(!harness.is_answered(stream), "{method}");
    }
    harness.finish();
}

#[test]
fn s_taskx_04_client_without_the_extension_is_told_that_it_is_needed() {
    let needed = json!({"extensions": {meta::TASKS_EXTENSION: {}}});
    let mut harness = Harness::new(config_with(&[TasksExtension]));
    let (stream, request) =
        harness.send_accepted(modern_request(false, "tools/call", json!({"name": "long"})));
    let error = missing_capability(everlink::protocol::ClientFeature::TasksExtension);
    harness
        .with_server(|server, now| server.fail(now, request, error))
        .expect("the server accepts the reply");
    let mut streams = vec![stream];
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        streams.push(harness.send(modern_request(false, method, json!({"taskId": "t"}))));
    }
    for stream in streams {
        assert_eq!(
            (harness.status(stream), harness.code(stream)),
            (400, -32021)
        );
        let missing = harness.json(stream)["error"]["data"]["requiredCapabilities"].clone();
        assert_eq!(missing, needed);
    }
    harness.finish();
}

#[test]
fn s_taskx_06_task_methods_have_complete_results() {
    let mut harness = Harness::new(config_with(&[TasksExtension]));
    let completed = json!({"taskId": "t", "status": "completed", "result": {"content": []}});
    for (method, answer) in [
        ("tasks/get", completed),
        ("tasks/update", json!({})),
        ("tasks/cancel", json!({})),
    ] {
        let stream = harness.send_and_respond(
            modern_request(true, method, json!({"taskId": "t"})),
            answer.clone(),
        );
        let result = harness.result(stream);
        assert_eq!(result["resultType"], "complete", "{method}");
        for (member, expected) in answer.as_object().expect("an object") {
            assert_eq!(result[member], *expected, "{method}");
        }
        let (stream, request) =
            harness.send_accepted(modern_request(true, method, json!({"taskId": "u"})));
        harness.fail(request, -32602, "there is no such task");
        assert_eq!(
            (harness.status(stream), harness.code(stream)),
            (200, -32602)
        );
        // S-HDR-03: the field must name the task.
        let other = modern_request(true, method, json!({"taskId": "t"}));
        assert_eq!(
            harness.send_refused(other.clone().with("mcp-name", "u")),
            (400, -32020)
        );
        assert_eq!(
            harness.send_refused(other.without("mcp-name")),
            (400, -32020)
        );
    }
    harness.finish();
}

#[test]
fn s_taskx_11_legacy_task_methods_and_parameter_do_not_work() {
    let mut harness = Harness::new(config_with(&[
        TasksCancel,
        TasksExtension,
        TasksList,
        TasksToolsCall,
    ]));
    for method in ["tasks/result", "tasks/list"] {
        let refused = harness.send_refused(modern_request(true, method, json!({"taskId": "t"})));
        assert_eq!(refused, (404, -32601), "{method}");
    }
    let params = json!({"name": "add", "task": {"ttl": 60_000}});
    let stream = harness.send_and_respond(
        modern_request(true, "tools/call", params),
        json!({"content": []}),
    );
    assert_eq!(harness.result(stream)["resultType"], "complete");
    harness.finish();
}
