//! Requests that run as tasks: those of 2025-11-25 and those of the modern extension, as far as the server end handles
//! them. S-LTASK and S-TASKX of the requirements.

use everlink::RequestId;
use everlink::protocol::{ServerCapabilities, ServerFeature, Version, code};
use everlink::server::{Config, Misuse, missing_capability};
use serde_json::{Value, json};

use crate::server_pipe::{
    self, Harness, config, every_chunking, full_offer, offering, payload, value, with_meta,
};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A server that offers everything and these features.
fn config_with(features: &[ServerFeature]) -> Config {
    let mut offer = full_offer();
    for feature in features {
        offer.capabilities = offer.capabilities.with(*feature);
    }
    Config::new(offer, [7; 16])
}

/// A server with all tasks of 2025-11-25.
fn with_legacy_tasks() -> Config {
    use ServerFeature::{TasksCancel, TasksList, TasksToolsCall};
    config_with(&[TasksCancel, TasksList, TasksToolsCall])
}

/// A server with the tasks of the modern extension.
fn with_extension() -> Config {
    config_with(&[ServerFeature::TasksExtension])
}

/// The capabilities of a modern client with the extension.
fn extension_capabilities() -> Value {
    json!({"extensions": {EXTENSION: {}}})
}

/// A task, in the form of the modern extension.
fn task() -> Value {
    json!({"resultType": "task", "taskId": "t", "status": "working", "ttlMs": null, "pollIntervalMs": 100})
}

impl Harness {
    fn try_respond(&mut self, request: RequestId, result: &Value) -> Result<(), Misuse> {
        let result = payload(result);
        self.with_server(|server, now| server.respond(now, request, result))
    }
}

// 2025-11-25.

/// S-LTASK-01: the handshake declares each supported part of tasks, and only in the version that has them.
#[test]
fn handshake_declares_tasks_only_in_2025_11_25() {
    use ServerFeature::{Tasks, TasksCancel, TasksList, TasksToolsCall};
    for (features, declared) in [
        (vec![], Value::Null),
        (vec![Tasks], json!({})),
        (vec![TasksCancel], json!({"cancel": {}})),
        (
            vec![TasksToolsCall],
            json!({"requests": {"tools": {"call": {}}}}),
        ),
        (
            vec![TasksCancel, TasksList, TasksToolsCall],
            json!({"cancel": {}, "list": {}, "requests": {"tools": {"call": {}}}}),
        ),
    ] {
        for version in Version::LEGACY {
            let mut harness = Harness::new(config_with(&features));
            let id = harness.initialize(version.as_str());
            let tasks = harness.result(&id)["capabilities"]["tasks"].clone();
            let has_tasks = *version == Version::V2025_11_25;
            let expected = if has_tasks { &declared } else { &Value::Null };
            assert_eq!(tasks, *expected, "{version}");
            harness.finish();
        }
    }
}

/// S-LTASK-01, S-CAP-03: a task method works only if it was declared, and only in the version that has it.
#[test]
fn task_methods_need_their_declared_feature_and_version() {
    use ServerFeature::{Tasks, TasksCancel, TasksList};
    let methods = ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel"];
    for (features, served) in [
        (vec![], vec![]),
        (vec![Tasks], vec!["tasks/get", "tasks/result"]),
        (
            vec![TasksList],
            vec!["tasks/get", "tasks/result", "tasks/list"],
        ),
        (
            vec![TasksCancel],
            vec!["tasks/get", "tasks/result", "tasks/cancel"],
        ),
        (vec![TasksCancel, TasksList], methods.to_vec()),
    ] {
        for version in Version::LEGACY {
            let mut harness = Harness::new(config_with(&features)).with_version(*version);
            for method in methods {
                let delivered = harness.requests().len();
                let id = harness.call(method, json!({"taskId": "t"}));
                if served.contains(&method) && *version == Version::V2025_11_25 {
                    assert_eq!(
                        harness.requests().len(),
                        delivered + 1,
                        "{method} in {version}"
                    );
                } else {
                    assert_eq!(
                        harness.code(&id),
                        code::METHOD_NOT_FOUND,
                        "{method} in {version}"
                    );
                }
            }
            harness.finish();
        }
    }
}

/// S-LTASK-03: without the capability, the `task` parameter has no effect.
#[test]
fn task_parameter_without_the_capability_has_no_effect() {
    for version in [Version::V2025_06_18, Version::V2025_11_25] {
        let mut harness = Harness::new(config()).with_version(version);
        let params = json!({"name": "add", "task": {"ttl": 60_000}});
        let result = harness.call_and_respond("tools/call", params, json!({"content": []}));
        assert_eq!(result, json!({"content": []}), "{version}");
        harness.finish();
    }
}

/// S-LTASK-03: with the capability, the `task` parameter reaches the application. Its task goes to the client unchanged.
#[test]
fn task_parameter_reaches_the_application_and_the_task_the_client() {
    every_chunking(|chunking| {
        let version = Version::V2025_11_25;
        let mut harness = Harness::new(with_legacy_tasks())
            .chunked(chunking)
            .with_version(version);
        let params = json!({"name": "add", "task": {"ttl": 60_000}});
        let id = harness.call("tools/call", params.clone());
        let request = harness.requests().pop().expect("the request arrived");
        assert_eq!(request.params.as_ref().map(value), Some(params));
        let long = request.request;
        let created = json!({
            "task": {"taskId": "t", "status": "working", "ttl": 60_000, "createdAt": "a", "lastUpdatedAt": "b"},
            "_meta": {"io.modelcontextprotocol/model-immediate-response": "soon"},
        });
        harness.respond(long, created.clone());
        assert_eq!(harness.result(&id), created);
        harness
    });
}

/// S-LTASK-05, S-LTASK-06: the request for the result of a task may stay open for any time. The application's result or error,
/// and its `_meta`, are sent unchanged.
#[test]
fn tasks_result_may_stay_open_for_a_day() {
    let mut harness = Harness::legacy(with_legacy_tasks(), "2025-11-25");
    let id = harness.call("tasks/result", json!({"taskId": "t"}));
    let waiting = harness.newest_request();
    harness.advance(server_pipe::seconds(24 * 60 * 60));
    assert!(harness.replies(&id).is_empty(), "the request waits");
    let outcome = json!({"content": [], "isError": true, "_meta": {RELATED: {"taskId": "t"}}});
    harness.respond(waiting, outcome.clone());
    assert_eq!(harness.result(&id), outcome);

    let id = harness.call("tasks/result", json!({"taskId": "u"}));
    let waiting = harness.newest_request();
    harness.fail(waiting, code::INVALID_PARAMS, "there is no such task");
    assert_eq!(harness.code(&id), code::INVALID_PARAMS);
    harness.finish();
}

/// S-LTASK-06, S-META-13: the related task in the `_meta` of asks and requests passes unchanged.
#[test]
fn related_task_in_meta_passes_unchanged() {
    let mut harness = Harness::legacy(with_legacy_tasks(), "2025-11-25");
    let related = json!({RELATED: {"taskId": "t"}});
    harness.call("tasks/result", json!({"taskId": "t", "_meta": related}));
    let request = harness.requests().pop().expect("the request arrived");
    let params = request
        .params
        .as_ref()
        .map(value)
        .expect("the request has parameters");
    assert_eq!(params["_meta"], related);
    let waiting = request.request;
    harness.ask(
        waiting,
        "sampling/createMessage",
        json!({"messages": [], "_meta": related}),
    );
    assert_eq!(
        harness.messages_with("sampling/createMessage")[0]["params"]["_meta"],
        related
    );
    harness.finish();
}

/// S-LTASK-02: an ask runs as a task only at a client that declared this kind of task.
#[test]
fn ask_runs_as_a_task_only_if_the_client_declared_it() {
    let capabilities = json!({
        "sampling": {}, "elicitation": {},
        "tasks": {"requests": {"sampling": {"createMessage": {}}}},
    });
    let sampling = json!({"messages": [], "task": {"ttl": 1}});
    let elicitation = json!({"message": "?", "requestedSchema": {}, "task": {"ttl": 1}});
    for (declared, method, params, is_sent) in [
        (
            capabilities.clone(),
            "sampling/createMessage",
            &sampling,
            true,
        ),
        (capabilities, "elicitation/create", &elicitation, false),
        (
            json!({"sampling": {}, "tasks": {}}),
            "sampling/createMessage",
            &sampling,
            false,
        ),
        (
            json!({"sampling": {}}),
            "sampling/createMessage",
            &sampling,
            false,
        ),
    ] {
        let version = Version::V2025_11_25;
        let mut harness = Harness::new(config())
            .declaring(declared.clone())
            .with_version(version);
        let (_, asking) = harness.call_tool("asks");
        let asked = harness.try_ask(asking, method, params.clone());
        assert_eq!(asked.is_ok(), is_sent, "{declared}: {method}: {asked:?}");
        let was_sent_as_task = harness
            .messages_with(method)
            .iter()
            .any(|line| line["params"].get("task").is_some());
        assert_eq!(was_sent_as_task, is_sent, "{declared}: {method}");
        harness.finish();
    }
}

/// S-S2C-01, S-LTASK-01: a server may query the tasks of a client that declared tasks.
#[test]
fn server_may_query_declared_tasks_of_the_client() {
    let declared = json!({"tasks": {"list": {}, "requests": {"sampling": {"createMessage": {}}}}});
    let version = Version::V2025_11_25;
    let mut harness = Harness::new(config())
        .declaring(declared)
        .with_version(version);
    let ask = harness
        .try_ask_unbidden("tasks/get", json!({"taskId": "c"}))
        .expect("tasks are declared");
    let id = harness.messages_with("tasks/get")[0]["id"].clone();
    harness.answer(&id, json!({"taskId": "c", "status": "working"}));
    assert!(matches!(harness.outcome(ask), Some(Ok(_))));
    harness
        .try_ask_unbidden("tasks/list", json!({}))
        .expect("lists are declared");
    let cancel = harness.try_ask_unbidden("tasks/cancel", json!({"taskId": "c"}));
    assert!(
        matches!(cancel, Err(Misuse::Unaskable { .. })),
        "{cancel:?}"
    );
    harness.finish();
}

/// S-LTASK-07: task status notifications go only to clients of the version that has tasks.
#[test]
fn task_status_is_sent_only_in_2025_11_25() {
    const STATUS: &str = "notifications/tasks/status";
    for version in Version::ALL {
        let mut harness = Harness::new(with_legacy_tasks()).with_version(*version);
        let received_before = harness.received().len();
        let params = payload(&json!({"taskId": "t", "status": "working"}));
        let done = harness.with_server(|server, now| server.notify(now, STATUS, Some(params)));
        done.expect("the application may send this notification");
        if *version == Version::V2025_11_25 {
            assert_eq!(harness.messages_with(STATUS).len(), 1);
        } else {
            assert_eq!(harness.received().len(), received_before, "{version}");
        }
        harness.finish();
    }
}

/// S-CAP-03: neither end declared tasks, so there is no status to tell of.
#[test]
fn task_status_is_refused_if_neither_end_declares_tasks() {
    const STATUS: &str = "notifications/tasks/status";
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let received_before = harness.received().len();
    let params = payload(&json!({"taskId": "t", "status": "working"}));
    let done = harness.with_server(|server, now| server.notify(now, STATUS, Some(params)));
    assert!(matches!(done, Err(Misuse::NotOffered { .. })), "{done:?}");
    assert_eq!(harness.received().len(), received_before);
    harness.finish();
}

// The extension.

/// S-TASKX-01, S-TASKX-11: the discovery declares the extension and not the tasks of 2025-11-25. A handshake declares the
/// opposite.
#[test]
fn each_era_declares_its_own_tasks() {
    use ServerFeature::{TasksCancel, TasksExtension, TasksToolsCall};
    let mut harness = Harness::new(config_with(&[TasksCancel, TasksExtension, TasksToolsCall]));
    let discovered = harness.modern_call("server/discover", json!({}));
    let modern = harness.result(&discovered)["capabilities"].clone();
    assert_eq!(modern["extensions"][EXTENSION], json!({}));
    assert!(modern.get("tasks").is_none(), "{modern}");
    let agreed = harness.initialize("2025-11-25");
    let legacy = harness.result(&agreed)["capabilities"].clone();
    assert!(legacy["tasks"].is_object(), "{legacy}");
    assert!(legacy.get("extensions").is_none(), "{legacy}");
    harness.finish();
}

/// S-TASKX-01: in 2025-11-25 the extension has no effect.
#[test]
fn tasks_extension_has_no_effect_in_2025_11_25() {
    let version = Version::V2025_11_25;
    let mut harness = Harness::new(with_extension())
        .declaring(extension_capabilities())
        .with_version(version);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let id = harness.call(method, json!({"taskId": "t"}));
        assert_eq!(harness.code(&id), code::METHOD_NOT_FOUND, "{method}");
    }
    harness.finish();
}

/// S-TASKX-02, S-RPC-21, S-RPC-22: a tool call that declared the extension may be answered with a task, unchanged.
#[test]
fn a_tool_call_that_declared_the_extension_may_become_a_task() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(with_extension())
            .chunked(chunking)
            .declaring(extension_capabilities());
        let result = harness.call_and_respond("tools/call", json!({"name": "long"}), task());
        for (member, expected) in task().as_object().expect("an object") {
            assert_eq!(result[member], *expected, "{member}");
        }
        harness
    });
}

/// S-TASKX-02, S-RPC-21, S-META-08: a request that did not declare the extension is never answered with a task, and stays
/// open.
#[test]
fn request_without_the_extension_cannot_be_answered_with_a_task() {
    let mut harness = Harness::modern(with_extension());
    let declared = with_meta(json!({"name": "long"}), extension_capabilities());
    harness.plain_call("tools/call", declared);
    let (id, plain) = harness.call_tool("long");
    let done = harness.try_respond(plain, &task());
    assert_eq!(
        done,
        Err(Misuse::InvalidResultType {
            kind: "task".into()
        })
    );
    assert!(harness.replies(&id).is_empty());
    let error = missing_capability(everlink::protocol::ClientFeature::TasksExtension);
    harness
        .with_server(|server, now| server.fail(now, plain, error))
        .expect("the request is open");
    assert_eq!(harness.code(&id), code::MISSING_REQUIRED_CLIENT_CAPABILITY);
    harness.finish();
}

/// S-TASKX-03: only a tool call may become a task.
#[test]
fn only_a_tool_call_can_be_answered_with_a_task() {
    let mut harness = Harness::modern(with_extension()).declaring(extension_capabilities());
    for (method, params) in [
        ("tools/list", json!({})),
        ("prompts/get", json!({"name": "p"})),
        ("resources/read", json!({"uri": "file:///a"})),
        ("tasks/get", json!({"taskId": "t"})),
    ] {
        let id = harness.call(method, params);
        let request = harness.newest_request();
        let done = harness.try_respond(request, &task());
        assert_eq!(
            done,
            Err(Misuse::InvalidResultType {
                kind: "task".into()
            }),
            "{method}"
        );
        assert!(harness.replies(&id).is_empty(), "{method}");
    }
    harness.finish();
}

/// S-RPC-21: an unknown result type is not sent.
#[test]
fn unknown_result_type_is_refused() {
    let mut harness = Harness::modern(with_extension()).declaring(extension_capabilities());
    let (id, request) = harness.call_tool("odd");
    for kind in [
        json!("banana"),
        json!("TASK"),
        json!(""),
        json!(5),
        json!(null),
    ] {
        let done = harness.try_respond(request, &json!({"resultType": kind, "content": []}));
        assert!(
            matches!(done, Err(Misuse::InvalidResultType { .. })),
            "{kind}: {done:?}"
        );
    }
    assert!(harness.replies(&id).is_empty());
    harness.respond(request, json!({"resultType": "complete", "content": []}));
    assert_eq!(harness.result(&id)["resultType"], "complete");
    harness.finish();
}

/// S-RPC-22, S-VER-15: an unknown extension may have its own result types, if both sides have the extension.
#[test]
fn shared_extension_may_use_its_own_result_types() {
    const OTHER_EXTENSION: &str = "com.example/fruit";
    let declared = json!({"extensions": {OTHER_EXTENSION: {}}});
    let mut offer = full_offer();
    let settings = payload(&json!({})).into_raw();
    let capabilities = offer.capabilities.with_extension(OTHER_EXTENSION, settings);
    offer.capabilities = capabilities.expect("an extension");
    let result = json!({"resultType": "banana", "content": []});
    for (offers, declares) in [(true, true), (true, false), (false, true)] {
        let config = if offers {
            Config::new(offer.clone(), [7; 16])
        } else {
            config()
        };
        let declared = if declares {
            declared.clone()
        } else {
            json!({})
        };
        let mut harness = Harness::modern(config).declaring(declared);
        let (id, request) = harness.call_tool("odd");
        let done = harness.try_respond(request, &result);
        assert_eq!(done.is_ok(), offers && declares, "{offers} {declares}");
        if done.is_ok() {
            assert_eq!(harness.result(&id)["resultType"], "banana");
        }
        harness.finish();
    }
}

/// S-TASKX-04, S-META-09, S-ERR-10: a client without the extension is told that it is needed. If the server does not offer it, the method is not
/// found.
#[test]
fn extension_methods_need_the_extension_on_both_sides() {
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let mut harness = Harness::modern(with_extension());
        let id = harness.call(method, json!({"taskId": "t"}));
        assert_eq!(
            harness.code(&id),
            code::MISSING_REQUIRED_CLIENT_CAPABILITY,
            "{method}"
        );
        let needed = harness.error(&id)["data"]["requiredCapabilities"].clone();
        assert_eq!(needed["extensions"][EXTENSION], json!({}), "{method}");
        assert!(harness.requests().is_empty());
        harness.finish();

        let mut harness = Harness::modern(config()).declaring(extension_capabilities());
        let id = harness.call(method, json!({"taskId": "t"}));
        assert_eq!(harness.code(&id), code::METHOD_NOT_FOUND, "{method}");
        harness.finish();
    }
}

/// S-TASKX-06, S-RPC-18: if both sides have the extension, the application serves its methods. Their results are
/// complete.
#[test]
fn extension_methods_have_complete_results() {
    let mut harness = Harness::modern(with_extension()).declaring(extension_capabilities());
    let completed = json!({"taskId": "t", "status": "completed", "result": {"content": []}});
    for (method, answer) in [
        ("tasks/get", completed),
        ("tasks/update", json!({})),
        ("tasks/cancel", json!({})),
    ] {
        let result = harness.call_and_respond(method, json!({"taskId": "t"}), answer.clone());
        assert_eq!(result["resultType"], "complete", "{method}");
        for (member, expected) in answer.as_object().expect("an object") {
            assert_eq!(result[member], *expected, "{method}");
        }
    }
    harness.finish();
}

/// S-TASKX-06, S-TASKX-08: the client's answers to a task reach the application.
#[test]
fn tasks_update_answers_reach_the_application() {
    let mut harness = Harness::modern(with_extension()).declaring(extension_capabilities());
    let params = json!({"taskId": "t", "inputResponses": {"k": {"action": "accept"}}});
    harness.call("tasks/update", params.clone());
    let request = harness.requests().pop().expect("the request arrived");
    assert_eq!(request.params.as_ref().map(value), Some(params));
    harness.finish();
}

/// S-TASKX-11: the modern era has no `tasks/result`, no `tasks/list`, and no `task` parameter.
#[test]
fn legacy_task_methods_and_parameter_do_not_work_in_the_modern_era() {
    use ServerFeature::{TasksCancel, TasksExtension, TasksList, TasksToolsCall};
    let features = [TasksCancel, TasksExtension, TasksList, TasksToolsCall];
    let mut harness = Harness::modern(config_with(&features)).declaring(extension_capabilities());
    for method in ["tasks/result", "tasks/list"] {
        let id = harness.call(method, json!({"taskId": "t"}));
        assert_eq!(harness.code(&id), code::METHOD_NOT_FOUND, "{method}");
    }
    let params = json!({"name": "add", "task": {"ttl": 60_000}});
    let result = harness.call_and_respond("tools/call", params, json!({"content": []}));
    assert_eq!(result["resultType"], "complete");
    harness.finish();
}

/// S-VER-16: a server has no tasks by default.
#[test]
fn a_server_has_no_tasks_by_default() {
    let mut harness = Harness::modern(offering(ServerCapabilities::default()))
        .declaring(extension_capabilities());
    let discovered = harness.modern_call("server/discover", json!({}));
    let capabilities = harness.result(&discovered)["capabilities"].clone();
    assert!(capabilities.get("extensions").is_none(), "{capabilities}");
    let agreed = harness.initialize("2025-11-25");
    let capabilities = harness.result(&agreed)["capabilities"].clone();
    assert!(capabilities.get("tasks").is_none(), "{capabilities}");
    harness.finish();
}
