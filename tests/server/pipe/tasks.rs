//! Requests that run as tasks: those of 2025-11-25 and those of the modern extension, as far as the server end handles
//! them. S-LTASK and S-TASKX of the requirements.

use everlink::RequestId;
use everlink::protocol::{ServerCapabilities, ServerFeature, Version, code};
use everlink::server::{Config, Misuse, missing_capability};
use serde_json::{Value, json};

use crate::server_pipe::{
    self, Host, config, every_chunking, everything, offering, payload, value, with_meta,
};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A server that offers everything and these features.
fn with(features: &[ServerFeature]) -> Config {
    let mut offer = everything();
    for feature in features {
        offer.capabilities = offer.capabilities.with(*feature);
    }
    Config::new(offer, [7; 16])
}

/// A server with all tasks of 2025-11-25.
fn with_legacy_tasks() -> Config {
    use ServerFeature::{TasksCancel, TasksList, TasksToolsCall};
    with(&[TasksCancel, TasksList, TasksToolsCall])
}

/// A server with the tasks of the modern extension.
fn with_extension() -> Config {
    with(&[ServerFeature::TasksExtension])
}

/// The capabilities of a modern client with the extension.
fn declaring_it() -> Value {
    json!({"extensions": {EXTENSION: {}}})
}

/// A task, in the form of the modern extension.
fn task() -> Value {
    json!({"resultType": "task", "taskId": "t", "status": "working", "ttlMs": null, "pollIntervalMs": 100})
}

impl Host {
    fn try_respond(&mut self, request: RequestId, result: &Value) -> Result<(), Misuse> {
        let result = payload(result);
        self.verb(|server, now| server.respond(now, request, result))
    }
}

// 2025-11-25.

/// S-LTASK-01: the handshake declares each supported part of tasks, and only in the version that has them.
#[test]
fn tasks_are_declared_in_the_handshake() {
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
            let mut host = Host::new(with(&features));
            let id = host.initialize(version.as_str());
            let tasks = host.result(&id)["capabilities"]["tasks"].clone();
            let has_tasks = *version == Version::V2025_11_25;
            let expected = if has_tasks { &declared } else { &Value::Null };
            assert_eq!(tasks, *expected, "{version}");
            host.finish();
        }
    }
}

/// S-LTASK-01, S-CAP-03: a task method works only if it was declared, and only in the version that has it.
#[test]
fn a_task_method_needs_what_it_belongs_to() {
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
            let mut host = Host::new(with(&features)).speaking(*version);
            for method in methods {
                let given = host.requests().len();
                let id = host.call(method, json!({"taskId": "t"}));
                if served.contains(&method) && *version == Version::V2025_11_25 {
                    assert_eq!(host.requests().len(), given + 1, "{method} in {version}");
                } else {
                    assert_eq!(
                        host.code(&id),
                        code::METHOD_NOT_FOUND,
                        "{method} in {version}"
                    );
                }
            }
            host.finish();
        }
    }
}

/// S-LTASK-03: without the capability, the `task` parameter has no effect.
#[test]
fn a_wish_for_a_task_that_is_not_offered_changes_nothing() {
    for version in [Version::V2025_06_18, Version::V2025_11_25] {
        let mut host = Host::new(config()).speaking(version);
        let wish = json!({"name": "add", "task": {"ttl": 60_000}});
        let result = host.served("tools/call", wish, json!({"content": []}));
        assert_eq!(result, json!({"content": []}), "{version}");
        host.finish();
    }
}

/// S-LTASK-03: with the capability, the `task` parameter reaches the application. Its task goes to the client unchanged.
#[test]
fn a_wish_for_a_task_reaches_the_application_and_its_answer_the_client() {
    every_chunking(|chunking| {
        let version = Version::V2025_11_25;
        let mut host = Host::new(with_legacy_tasks())
            .chunked(chunking)
            .speaking(version);
        let wish = json!({"name": "add", "task": {"ttl": 60_000}});
        let id = host.call("tools/call", wish.clone());
        let request = host.requests().pop().expect("it arrived");
        assert_eq!(request.params.as_ref().map(value), Some(wish));
        let long = request.request;
        let created = json!({
            "task": {"taskId": "t", "status": "working", "ttl": 60_000, "createdAt": "a", "lastUpdatedAt": "b"},
            "_meta": {"io.modelcontextprotocol/model-immediate-response": "soon"},
        });
        host.respond(long, created.clone());
        assert_eq!(host.result(&id), created);
        host
    });
}

/// S-LTASK-05, S-LTASK-06: the request for the result of a task may stay open for any time. The application's result or error,
/// and its `_meta`, are sent unchanged.
#[test]
fn the_outcome_of_a_task_is_waited_for() {
    let mut host = Host::legacy(with_legacy_tasks(), "2025-11-25");
    let id = host.call("tasks/result", json!({"taskId": "t"}));
    let waiting = host.newest();
    host.pass(server_pipe::seconds(24 * 60 * 60));
    assert!(host.replies(&id).is_empty(), "it waits");
    let outcome = json!({"content": [], "isError": true, "_meta": {RELATED: {"taskId": "t"}}});
    host.respond(waiting, outcome.clone());
    assert_eq!(host.result(&id), outcome);

    let id = host.call("tasks/result", json!({"taskId": "u"}));
    let waiting = host.newest();
    host.fail(waiting, code::INVALID_PARAMS, "there is no such task");
    assert_eq!(host.code(&id), code::INVALID_PARAMS);
    host.finish();
}

/// S-LTASK-06, S-META-13: the related task in the `_meta` of asks and requests passes unchanged.
#[test]
fn the_task_that_a_message_belongs_to_is_not_touched() {
    let mut host = Host::legacy(with_legacy_tasks(), "2025-11-25");
    let related = json!({RELATED: {"taskId": "t"}});
    host.call("tasks/result", json!({"taskId": "t", "_meta": related}));
    let request = host.requests().pop().expect("it arrived");
    let params = request.params.as_ref().map(value).expect("it has some");
    assert_eq!(params["_meta"], related);
    let waiting = request.request;
    host.ask(
        waiting,
        "sampling/createMessage",
        json!({"messages": [], "_meta": related}),
    );
    assert_eq!(
        host.said("sampling/createMessage")[0]["params"]["_meta"],
        related
    );
    host.finish();
}

/// S-LTASK-02: an ask runs as a task only at a client that declared this kind of task.
#[test]
fn a_question_is_put_as_a_task_where_the_client_takes_it_so() {
    let able = json!({
        "sampling": {}, "elicitation": {},
        "tasks": {"requests": {"sampling": {"createMessage": {}}}},
    });
    let sampling = json!({"messages": [], "task": {"ttl": 1}});
    let elicitation = json!({"message": "?", "requestedSchema": {}, "task": {"ttl": 1}});
    for (declared, method, params, takes) in [
        (able.clone(), "sampling/createMessage", &sampling, true),
        (able, "elicitation/create", &elicitation, false),
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
        let mut host = Host::new(config())
            .declaring(declared.clone())
            .speaking(version);
        let (_, asking) = host.tool("asks");
        let asked = host.try_ask(asking, method, params.clone());
        assert_eq!(asked.is_ok(), takes, "{declared}: {method}: {asked:?}");
        let was_put_so = host
            .said(method)
            .iter()
            .any(|line| line["params"].get("task").is_some());
        assert_eq!(was_put_so, takes, "{declared}: {method}");
        host.finish();
    }
}

/// S-S2C-01, S-LTASK-01: a server may query the tasks of a client that declared tasks.
#[test]
fn a_client_with_tasks_is_asked_after_them() {
    let declared = json!({"tasks": {"list": {}, "requests": {"sampling": {"createMessage": {}}}}});
    let version = Version::V2025_11_25;
    let mut host = Host::new(config()).declaring(declared).speaking(version);
    let ask = host
        .try_ask_unbidden("tasks/get", json!({"taskId": "c"}))
        .expect("tasks are declared");
    let id = host.said("tasks/get")[0]["id"].clone();
    host.answer(&id, json!({"taskId": "c", "status": "working"}));
    assert!(matches!(host.outcome(ask), Some(Ok(_))));
    host.try_ask_unbidden("tasks/list", json!({}))
        .expect("lists are declared");
    let cancel = host.try_ask_unbidden("tasks/cancel", json!({"taskId": "c"}));
    assert!(
        matches!(cancel, Err(Misuse::Unaskable { .. })),
        "{cancel:?}"
    );
    host.finish();
}

/// S-LTASK-07: task status notifications go only to clients of the version that has tasks.
#[test]
fn how_a_task_fares_is_told_where_there_are_tasks() {
    const STATUS: &str = "notifications/tasks/status";
    for version in Version::ALL {
        let mut host = Host::new(with_legacy_tasks()).speaking(*version);
        let heard = host.heard().len();
        let params = payload(&json!({"taskId": "t", "status": "working"}));
        let done = host.verb(|server, now| server.notify(now, STATUS, Some(params)));
        done.expect("it is the application's to tell");
        if *version == Version::V2025_11_25 {
            assert_eq!(host.said(STATUS).len(), 1);
        } else {
            assert_eq!(host.heard().len(), heard, "{version}");
        }
        host.finish();
    }
}

// The extension.

/// S-TASKX-01, S-TASKX-11: the discovery declares the extension and not the tasks of 2025-11-25. A handshake declares the
/// opposite.
#[test]
fn each_era_declares_its_own_tasks() {
    use ServerFeature::{TasksCancel, TasksExtension, TasksToolsCall};
    let mut host = Host::new(with(&[TasksCancel, TasksExtension, TasksToolsCall]));
    let discovered = host.modern_call("server/discover", json!({}));
    let modern = host.result(&discovered)["capabilities"].clone();
    assert_eq!(modern["extensions"][EXTENSION], json!({}));
    assert!(modern.get("tasks").is_none(), "{modern}");
    let agreed = host.initialize("2025-11-25");
    let legacy = host.result(&agreed)["capabilities"].clone();
    assert!(legacy["tasks"].is_object(), "{legacy}");
    assert!(legacy.get("extensions").is_none(), "{legacy}");
    host.finish();
}

/// S-TASKX-01: in 2025-11-25 the extension has no effect.
#[test]
fn the_extension_enables_nothing_in_the_legacy_era() {
    let version = Version::V2025_11_25;
    let mut host = Host::new(with_extension())
        .declaring(declaring_it())
        .speaking(version);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let id = host.call(method, json!({"taskId": "t"}));
        assert_eq!(host.code(&id), code::METHOD_NOT_FOUND, "{method}");
    }
    host.finish();
}

/// S-TASKX-02, S-RPC-21, S-RPC-22: a tool call that declared the extension may be answered with a task, unchanged.
#[test]
fn a_tool_call_that_declared_the_extension_may_become_a_task() {
    every_chunking(|chunking| {
        let mut host = Host::modern(with_extension())
            .chunked(chunking)
            .declaring(declaring_it());
        let result = host.served("tools/call", json!({"name": "long"}), task());
        for (member, expected) in task().as_object().expect("an object") {
            assert_eq!(result[member], *expected, "{member}");
        }
        host
    });
}

/// S-TASKX-02, S-RPC-21, S-META-08: a request that did not declare the extension is never answered with a task, and stays
/// open.
#[test]
fn a_request_that_did_not_declare_the_extension_never_becomes_a_task() {
    let mut host = Host::modern(with_extension());
    let declared = with_meta(json!({"name": "long"}), declaring_it());
    host.plain_call("tools/call", declared);
    let (id, plain) = host.tool("long");
    let done = host.try_respond(plain, &task());
    assert_eq!(
        done,
        Err(Misuse::InvalidResultType {
            kind: "task".into()
        })
    );
    assert!(host.replies(&id).is_empty());
    let error = missing_capability(everlink::protocol::ClientFeature::TasksExtension);
    host.verb(|server, now| server.fail(now, plain, error))
        .expect("it is open");
    assert_eq!(host.code(&id), code::MISSING_REQUIRED_CLIENT_CAPABILITY);
    host.finish();
}

/// S-TASKX-03: only a tool call may become a task.
#[test]
fn nothing_but_a_tool_call_becomes_a_task() {
    let mut host = Host::modern(with_extension()).declaring(declaring_it());
    for (method, params) in [
        ("tools/list", json!({})),
        ("prompts/get", json!({"name": "p"})),
        ("resources/read", json!({"uri": "file:///a"})),
        ("tasks/get", json!({"taskId": "t"})),
    ] {
        let id = host.call(method, params);
        let request = host.newest();
        let done = host.try_respond(request, &task());
        assert_eq!(
            done,
            Err(Misuse::InvalidResultType {
                kind: "task".into()
            }),
            "{method}"
        );
        assert!(host.replies(&id).is_empty(), "{method}");
    }
    host.finish();
}

/// S-RPC-21: an unknown result type is not sent.
#[test]
fn a_kind_of_result_that_nobody_knows_is_not_sent() {
    let mut host = Host::modern(with_extension()).declaring(declaring_it());
    let (id, request) = host.tool("odd");
    for kind in [
        json!("banana"),
        json!("TASK"),
        json!(""),
        json!(5),
        json!(null),
    ] {
        let done = host.try_respond(request, &json!({"resultType": kind, "content": []}));
        assert!(
            matches!(done, Err(Misuse::InvalidResultType { .. })),
            "{kind}: {done:?}"
        );
    }
    assert!(host.replies(&id).is_empty());
    host.respond(request, json!({"resultType": "complete", "content": []}));
    assert_eq!(host.result(&id)["resultType"], "complete");
    host.finish();
}

/// S-RPC-22, S-VER-15: an unknown extension may have its own result types, if both sides have the extension.
#[test]
fn an_extension_of_both_may_have_kinds_of_results_of_its_own() {
    const FRUIT: &str = "com.example/fruit";
    let declared = json!({"extensions": {FRUIT: {}}});
    let mut offer = everything();
    let settings = payload(&json!({})).into_raw();
    let capabilities = offer.capabilities.with_extension(FRUIT, settings);
    offer.capabilities = capabilities.expect("an extension");
    let fruit = json!({"resultType": "banana", "content": []});
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
        let mut host = Host::modern(config).declaring(declared);
        let (id, odd) = host.tool("odd");
        let done = host.try_respond(odd, &fruit);
        assert_eq!(done.is_ok(), offers && declares, "{offers} {declares}");
        if done.is_ok() {
            assert_eq!(host.result(&id)["resultType"], "banana");
        }
        host.finish();
    }
}

/// S-TASKX-04, S-META-09, S-ERR-10: a client without the extension is told that it is needed. If the server does not offer it, the method is not
/// found.
#[test]
fn the_methods_of_the_extension_need_it_on_both_sides() {
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let mut host = Host::modern(with_extension());
        let id = host.call(method, json!({"taskId": "t"}));
        assert_eq!(
            host.code(&id),
            code::MISSING_REQUIRED_CLIENT_CAPABILITY,
            "{method}"
        );
        let needed = host.error(&id)["data"]["requiredCapabilities"].clone();
        assert_eq!(needed["extensions"][EXTENSION], json!({}), "{method}");
        assert!(host.requests().is_empty());
        host.finish();

        let mut host = Host::modern(config()).declaring(declaring_it());
        let id = host.call(method, json!({"taskId": "t"}));
        assert_eq!(host.code(&id), code::METHOD_NOT_FOUND, "{method}");
        host.finish();
    }
}

/// S-TASKX-06, S-RPC-18: if both sides have the extension, the application serves its methods. Their results are
/// complete.
#[test]
fn the_methods_of_the_extension_have_complete_results() {
    let mut host = Host::modern(with_extension()).declaring(declaring_it());
    let completed = json!({"taskId": "t", "status": "completed", "result": {"content": []}});
    for (method, answer) in [
        ("tasks/get", completed),
        ("tasks/update", json!({})),
        ("tasks/cancel", json!({})),
    ] {
        let result = host.served(method, json!({"taskId": "t"}), answer.clone());
        assert_eq!(result["resultType"], "complete", "{method}");
        for (member, expected) in answer.as_object().expect("an object") {
            assert_eq!(result[member], *expected, "{method}");
        }
    }
    host.finish();
}

/// S-TASKX-06, S-TASKX-08: the client's answers to a task reach the application.
#[test]
fn the_answers_to_a_task_reach_the_application() {
    let mut host = Host::modern(with_extension()).declaring(declaring_it());
    let params = json!({"taskId": "t", "inputResponses": {"k": {"action": "accept"}}});
    host.call("tasks/update", params.clone());
    let request = host.requests().pop().expect("it arrived");
    assert_eq!(request.params.as_ref().map(value), Some(params));
    host.finish();
}

/// S-TASKX-11: the modern era has no `tasks/result`, no `tasks/list`, and no `task` parameter.
#[test]
fn the_tasks_of_the_legacy_era_are_gone() {
    use ServerFeature::{TasksCancel, TasksExtension, TasksList, TasksToolsCall};
    let features = [TasksCancel, TasksExtension, TasksList, TasksToolsCall];
    let mut host = Host::modern(with(&features)).declaring(declaring_it());
    for method in ["tasks/result", "tasks/list"] {
        let id = host.call(method, json!({"taskId": "t"}));
        assert_eq!(host.code(&id), code::METHOD_NOT_FOUND, "{method}");
    }
    let wish = json!({"name": "add", "task": {"ttl": 60_000}});
    let result = host.served("tools/call", wish, json!({"content": []}));
    assert_eq!(result["resultType"], "complete");
    host.finish();
}

/// S-VER-16: a server has no tasks by default.
#[test]
fn a_server_has_no_tasks_by_default() {
    let mut host = Host::modern(offering(ServerCapabilities::default())).declaring(declaring_it());
    let discovered = host.modern_call("server/discover", json!({}));
    let capabilities = host.result(&discovered)["capabilities"].clone();
    assert!(capabilities.get("extensions").is_none(), "{capabilities}");
    let agreed = host.initialize("2025-11-25");
    let capabilities = host.result(&agreed)["capabilities"].clone();
    assert!(capabilities.get("tasks").is_none(), "{capabilities}");
    host.finish();
}
