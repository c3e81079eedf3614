//! The requirements for single features of a client over a byte stream: progress, cached results and tasks. The link
//! keeps no tasks; it passes on what the two applications say of them.

use everlink::ErrorObject;
use everlink::client::{CallOptions, Event, FailureKind, Misuse, Outcome};
use everlink::protocol::{ClientCapabilities, ClientFeature};
use everlink::{AskId, CallId, Config, Limit, List};
use serde_json::{Value, json};

use crate::client_pipe::{
    Harness, Peer, all_capabilities, ask, config, discover_result, error, every_chunking,
    initialize_result, notify, payload, progress, reply, seconds,
};
use crate::eras::{config_with_asks, form_params, input_required, ready};

const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const MODERN: &str = "2026-07-28";

const TASKS: &str = "io.modelcontextprotocol/tasks";
const RELATED: &str = "io.modelcontextprotocol/related-task";
const PROGRESS: &str = "notifications/progress";
const CANCELLED: &str = "notifications/cancelled";
const SAMPLING: &str = "sampling/createMessage";

fn server(version: &'static str) -> Peer {
    match version {
        MODERN => Peer::modern(),
        legacy => Peer::legacy(legacy),
    }
}

fn all_versions() -> impl Iterator<Item = &'static str> {
    LEGACY.into_iter().chain([MODERN])
}

fn config_with(capabilities: ClientCapabilities) -> Config {
    let mut config = config();
    config.capabilities = capabilities;
    config
}

/// Everything that a server of 2025-11-25 can declare of tasks.
fn all_tasks() -> Value {
    json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}})
}

/// A server of this version that declares these tasks and answers no tool call.
fn with_tasks(version: &'static str, tasks: &Value) -> Peer {
    let mut capabilities = all_capabilities();
    if !tasks.is_null() {
        capabilities["tasks"] = tasks.clone();
    }
    Peer::legacy(version)
        .ignores("tools/call")
        .replies("initialize", move |_| {
            initialize_result(version, capabilities.clone())
        })
}

/// A ready link with these capabilities to a server of 2025-11-25 with these tasks.
fn ready_with_tasks(capabilities: ClientCapabilities, tasks: &Value) -> Harness {
    let tasks = tasks.clone();
    ready(config_with(capabilities), move || {
        with_tasks("2025-11-25", &tasks)
    })
}

/// A modern server that offers the tasks extension and answers no tool call.
fn modern_with_tasks() -> Peer {
    let mut capabilities = all_capabilities();
    capabilities["extensions"] = json!({TASKS: {}});
    Peer::modern()
        .ignores("tools/call")
        .replies("server/discover", move |_| {
            discover_result(capabilities.clone())
        })
}

fn with_extension() -> ClientCapabilities {
    ClientCapabilities::default().with(ClientFeature::TasksExtension)
}

fn progress_of(harness: &Harness, call: CallId) -> Vec<f64> {
    harness.pick_events(|event| match event {
        Event::Progress {
            call: of, progress, ..
        } if *of == call => Some(*progress),
        _ => None,
    })
}

/// Sends progress of an answer, under the token of the ask.
fn tell_progress(harness: &mut Harness, token: &Value, progress: u32) -> Result<(), Misuse> {
    let params = payload(&json!({"progressToken": token, "progress": progress}));
    harness.with_link(|link, now| link.notify(now, PROGRESS, Some(params)))
}

/// The progress that was written to the server under this token.
fn written_progress(harness: &Harness, token: &Value) -> Vec<u64> {
    harness
        .messages_with(PROGRESS)
        .into_iter()
        .filter(|line| line["params"]["progressToken"] == *token)
        .filter_map(|line| line["params"]["progress"].as_u64())
        .collect()
}

/// Makes a legacy server ask for sampling, with this progress token.
fn ask_with_token(harness: &mut Harness, id: &str, token: &Value) -> AskId {
    let params = json!({"messages": [], "_meta": {"progressToken": token}});
    harness.perform(ask(id, SAMPLING, params));
    *harness.asks().last().expect("an ask")
}

/// The last answer to the server.
fn last_answer(harness: &Harness) -> Value {
    let answers = harness.ask_replies();
    (*answers.last().expect("an answer")).clone()
}

/// The client receives progress: only values that increase are reported, and only while the call runs (S-PROG-04).
#[test]
fn s_prog_03_04_received_progress_increases_and_stops_with_the_call() {
    for version in all_versions() {
        every_chunking(|chunking| {
            let mut harness = Harness::new(config())
                .chunked(chunking)
                .served_by(move |_| server(version).ignores("tools/call"));
            harness.until_ready();
            let (call, other) = (harness.call_tool("a"), harness.call_tool("b"));
            let request = harness.messages_with("tools/call")[0].clone();
            for value in [0.5, 0.5, 0.25, 2.0, -1.0, 1.0, 2.5, 2.5] {
                harness.perform(progress(&request, value));
            }
            assert_eq!(progress_of(&harness, call), [0.5, 2.0, 2.5], "{version}");
            harness.perform(reply(&request, json!({"content": []})));
            harness.perform(progress(&request, 9.0));
            assert_eq!(progress_of(&harness, call).len(), 3, "{version}");
            assert!(progress_of(&harness, other).is_empty(), "{version}");
            let request = harness.last_message("tools/call");
            harness.cancel(other, "enough");
            harness.perform(progress(&request, 9.0));
            assert!(progress_of(&harness, other).is_empty(), "{version}");
            harness
        });
    }
}

/// S-PROG-04: the client sends progress of its answer to an ask, under the token that the server chose.
#[test]
fn s_prog_03_progress_of_an_answer_is_written_in_order_under_its_token() {
    for version in LEGACY {
        every_chunking(|chunking| {
            let mut harness = Harness::new(config_with_asks())
                .chunked(chunking)
                .served_by(move |_| server(version));
            harness.until_ready();
            for (id, token) in [("a", json!("t")), ("b", json!(7))] {
                let asked = ask_with_token(&mut harness, id, &token);
                for value in [1, 2, 30] {
                    assert_eq!(tell_progress(&mut harness, &token, value), Ok(()));
                }
                harness.answer(asked, Ok(json!({"role": "assistant"})));
                assert_eq!(written_progress(&harness, &token), [1, 2, 30], "{version}");
                let lines = harness.lines_of(1);
                let is_answer = |line: &&Value| line["id"] == id;
                assert!(is_answer(lines.last().expect("lines")), "{version}");
            }
            harness
        });
    }
}

#[test]
fn s_prog_03_progress_of_an_answer_that_does_not_increase_is_not_written() {
    for version in LEGACY {
        let mut harness = ready(config_with_asks(), move || server(version));
        let token = json!("t");
        ask_with_token(&mut harness, "q", &token);
        for value in [5, 5, 4, 6, 1] {
            let _ = tell_progress(&mut harness, &token, value);
        }
        assert_eq!(written_progress(&harness, &token), [5, 6], "{version}");
        harness.finish();
    }
}

#[test]
fn s_prog_04_progress_is_written_only_for_an_open_ask() {
    for version in LEGACY {
        let mut harness = ready(config_with_asks(), move || server(version));
        let tokens = [json!("never"), json!("answered"), json!("withdrawn")];
        let answered = ask_with_token(&mut harness, "a", &tokens[1]);
        ask_with_token(&mut harness, "b", &tokens[2]);
        harness.answer(answered, Ok(json!({"role": "assistant"})));
        harness.perform(notify(CANCELLED, json!({"requestId": "b"})));
        for token in &tokens {
            let _ = tell_progress(&mut harness, token, 1);
            assert!(written_progress(&harness, token).is_empty(), "{token}");
        }
        harness.finish();
    }
}

/// The token of a call that became a task belongs to the task. It is given to no other call, and progress under it is
/// neither an error nor progress of another call.
#[test]
fn s_prog_07_token_of_a_task_is_never_given_to_another_call() {
    let mut harness = ready_with_tasks(ClientCapabilities::default(), &all_tasks());
    let params = json!({"name": "long", "task": {"ttl": 60_000}});
    let task = harness.call("tools/call", params);
    let first = harness.last_message("tools/call");
    harness.perform(progress(&first, 0.5));
    let created = json!({"task": {"taskId": "t", "status": "working"}});
    harness.perform(reply(&first, created));
    assert_eq!(progress_of(&harness, task), [0.5]);
    let token = |request: &Value| request["params"]["_meta"]["progressToken"].clone();
    for value in 1..50 {
        let other = harness.call_tool("add");
        let request = harness.last_message("tools/call");
        assert_ne!(token(&request), token(&first));
        harness.perform(progress(&first, f64::from(value)));
        assert!(progress_of(&harness, other).is_empty());
        harness.perform(reply(&request, json!({"content": []})));
        assert!(matches!(harness.outcome(other), Outcome::Reply(_)));
    }
    assert_eq!(harness.link().stats().noise, 0);
    harness.finish();
}

/// The application that runs an ask as a task tells its progress under the token of the ask, also after the ask was
/// answered with the task.
#[test]
fn s_prog_07_progress_of_a_task_is_written_after_the_ask_was_answered() {
    let capabilities = ClientCapabilities::default()
        .with_sampling()
        .with(ClientFeature::TasksSamplingCreateMessage);
    let mut harness = ready_with_tasks(capabilities, &all_tasks());
    let token = json!("of the ask");
    let params = json!({"messages": [], "task": {"ttl": 5}, "_meta": {"progressToken": token}});
    harness.perform(ask("q", SAMPLING, params));
    assert_eq!(tell_progress(&mut harness, &token, 1), Ok(()));
    let created = json!({"task": {"taskId": "c", "status": "working"}});
    harness.answer(harness.asks()[0], Ok(created));
    assert_eq!(tell_progress(&mut harness, &token, 2), Ok(()));
    assert_eq!(written_progress(&harness, &token), [1, 2]);
    harness.finish();
}

/// The result of a call that needed input is not kept, however long it says that it is valid: the same call asks the
/// server and the user again.
#[test]
fn s_cache_04_result_of_a_call_with_input_is_not_cached() {
    for (method, params) in [
        ("tools/call", json!({"name": "add"})),
        ("prompts/get", json!({"name": "greet"})),
        ("resources/read", json!({"uri": "file:///a"})),
    ] {
        for with_asks in [true, false] {
            let mut number = 0;
            let mut harness = ready(config_with_asks(), move || {
                Peer::modern().on(method, move |request| {
                    let params = &request["params"];
                    let is_first = params.get("requestState").is_none();
                    let asks = json!({"r": {"method": "roots/list"}});
                    let asks = if with_asks { asks } else { Value::Null };
                    number += 1;
                    vec![reply(
                        request,
                        match is_first {
                            true => input_required(asks, Some("s")),
                            false => {
                                json!({"number": number, "ttlMs": 600_000, "cacheScope": "public"})
                            }
                        },
                    )]
                })
            });
            for round in 1..=3 {
                let call = harness.call(method, params.clone());
                if with_asks {
                    let asked = *harness.asks().last().expect("an ask");
                    harness.answer(asked, Ok(json!({"roots": []})));
                    assert_eq!(harness.asks().len(), round, "{method}");
                }
                assert_eq!(harness.result(call)["number"], round * 2, "{method}");
            }
            assert_eq!(harness.messages_with(method).len(), 6, "{method}");
            for list in List::ALL {
                assert!(harness.link().held(list).is_none(), "{method}");
            }
            harness.finish();
        }
    }
}

/// The credentials of a byte stream are those of its process, so each process is a context of its own. A private list
/// of one process is not used for the next.
#[test]
fn s_cache_08_private_list_of_one_process_is_not_used_for_the_next() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config()).chunked(chunking).served_by(|epoch| {
            Peer::modern().replies("tools/list", move |_| {
                let tools =
                    json!([{"name": format!("of-{epoch}"), "inputSchema": {"type": "object"}}]);
                json!({"tools": tools, "ttlMs": 3_600_000, "cacheScope": "private"})
            })
        });
        harness.until_ready();
        for epoch in 1..=3 {
            for _ in 0..2 {
                let call = harness.list(List::Tools);
                let Outcome::Listed(listing) = harness.outcome(call) else {
                    panic!("the list of process {epoch}");
                };
                let tool: Value = listing.items[0].parse().expect("a tool");
                assert_eq!(tool["name"], format!("of-{epoch}"));
            }
            assert_eq!(harness.messages_with("tools/list").len(), epoch, "cached");
            harness.reconnect("other credentials");
            harness.until_ready();
            assert!(!harness.link().is_fresh(harness.now(), List::Tools));
        }
        harness
    });
}

/// `initialize` declares exactly the parts that the application supports, in the one version that has them. An ask
/// about an undeclared part is refused, and a method that the server did not declare is not sent.
#[test]
fn s_ltask_01_tasks_are_declared_in_the_handshake_and_the_set_is_exhaustive() {
    use ClientFeature::{
        Tasks, TasksCancel, TasksElicitationCreate, TasksList, TasksSamplingCreateMessage,
    };
    for (features, declared, answered) in [
        (vec![], Value::Null, [false; 3]),
        (vec![Tasks], json!({}), [true, false, false]),
        (vec![TasksList], json!({"list": {}}), [true, true, false]),
        (
            vec![TasksCancel, TasksSamplingCreateMessage],
            json!({"cancel": {}, "requests": {"sampling": {"createMessage": {}}}}),
            [true, false, true],
        ),
        (
            vec![TasksElicitationCreate],
            json!({"requests": {"elicitation": {"create": {}}}}),
            [true, false, false],
        ),
    ] {
        let with = |all: ClientCapabilities, one: &ClientFeature| all.with(*one);
        let capabilities = features.iter().fold(ClientCapabilities::default(), with);
        for version in LEGACY {
            let mut harness = ready(config_with(capabilities.clone()), move || server(version));
            let written = &harness.last_message("initialize")["params"]["capabilities"]["tasks"];
            // The link offers its newest version, so it declares tasks to every legacy server.
            assert_eq!(*written, declared, "{version}");
            let methods = ["tasks/get", "tasks/list", "tasks/cancel"];
            for (method, is_declared) in methods.into_iter().zip(answered) {
                let before = harness.asks().len();
                harness.perform(ask(method, method, json!({"taskId": "c"})));
                let is_passed_on = is_declared && version == "2025-11-25";
                let asks = harness.asks().len() - before;
                assert_eq!(asks, usize::from(is_passed_on), "{method} {version}");
                if !is_passed_on {
                    assert_eq!(last_answer(&harness)["error"]["code"], -32_601);
                }
            }
            harness.finish();
        }
    }
    for (tasks, sent) in [
        (Value::Null, [false; 4]),
        (json!({}), [true, true, false, false]),
        (json!({"list": {}}), [true, true, true, false]),
        (json!({"cancel": {}}), [true, true, false, true]),
        (all_tasks(), [true; 4]),
    ] {
        let mut harness = ready_with_tasks(ClientCapabilities::default(), &tasks);
        let methods = ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel"];
        for (method, is_sent) in methods.into_iter().zip(sent) {
            let call = harness.call(method, json!({"taskId": "t"}));
            assert_eq!(harness.is_done(call), !is_sent, "{method} {tasks}");
            let messages = harness.messages_with(method).len();
            assert_eq!(messages, usize::from(is_sent), "{method} {tasks}");
        }
        harness.finish();
    }
}

/// The link adds no `task` to any request, whatever the server declares and whatever the tool supports. The one of the
/// caller is passed on to a server that declares tasks.
#[test]
fn s_ltask_02_task_parameter_is_never_added_by_the_link() {
    for tasks in [Value::Null, json!({}), all_tasks()] {
        for support in ["required", "optional", "forbidden"] {
            let offered = tasks.clone();
            let mut harness = ready(config_with_asks(), move || {
                with_tasks("2025-11-25", &offered).replies("tools/list", move |_| {
                    let tool = json!({"name": "add", "execution": {"taskSupport": support}});
                    json!({"tools": [tool]})
                })
            });
            harness.list(List::Tools);
            harness.call_tool("add");
            harness.call("resources/read", json!({"uri": "file:///a"}));
            for line in harness.lines_of(1) {
                assert_eq!(line["params"].get("task"), None, "{tasks} {support}");
            }
            harness.finish();
        }
    }
    let mut harness = ready_with_tasks(ClientCapabilities::default(), &all_tasks());
    let params = json!({"name": "add", "task": {"ttl": 60_000}});
    let call = harness.call("tools/call", params);
    let request = harness.last_message("tools/call");
    assert_eq!(request["params"]["task"], json!({"ttl": 60_000}));
    let created = json!({"task": {"taskId": "t", "status": "working", "ttl": 60_000}});
    harness.perform(reply(&request, created.clone()));
    assert_eq!(harness.result(call), created);
    harness.finish();
}

/// S-LTASK-06: the ids and states of a task of the client are those of its application, from its creation to its end. The link
/// passes every one on unchanged, and so the `_meta` that names the task.
#[test]
fn s_ltask_04_ids_and_states_of_a_task_pass_unchanged() {
    every_chunking(|chunking| {
        let capabilities = ClientCapabilities::default()
            .with_elicitation_form()
            .with(ClientFeature::TasksElicitationCreate)
            .with(ClientFeature::TasksCancel);
        let mut harness = Harness::new(config_with(capabilities))
            .chunked(chunking)
            .served_by(|_| with_tasks("2025-11-25", &all_tasks()));
        harness.until_ready();
        for (id, task_id) in [("a", "first"), ("b", "second")] {
            let mut params = form_params("which seat?");
            params["task"] = json!({"ttl": 60_000});
            harness.perform(ask(id, "elicitation/create", params));
            let task = json!({"taskId": task_id, "status": "working", "ttl": 60_000});
            harness.answer(
                *harness.asks().last().expect("an ask"),
                Ok(json!({"task": task})),
            );
            assert_eq!(last_answer(&harness)["id"], id);
            assert_eq!(last_answer(&harness)["result"], json!({"task": task}));
        }
        let states = ["input_required", "working", "completed", "completed"];
        for (number, status) in states.into_iter().enumerate() {
            let state = json!({"taskId": "first", "status": status});
            let told = harness.with_link(|link, now| {
                link.notify(now, "notifications/tasks/status", Some(payload(&state)))
            });
            assert_eq!(told, Ok(()));
            let told = harness.last_message("notifications/tasks/status");
            assert_eq!(told["params"], state);
            harness.perform(ask(
                format!("get {number}"),
                "tasks/get",
                json!({"taskId": "first"}),
            ));
            harness.answer(*harness.asks().last().expect("an ask"), Ok(state.clone()));
            assert_eq!(last_answer(&harness)["result"], state);
        }
        harness.perform(ask("end", "tasks/cancel", json!({"taskId": "second"})));
        let state = json!({"taskId": "second", "status": "cancelled"});
        harness.answer(*harness.asks().last().expect("an ask"), Ok(state.clone()));
        assert_eq!(last_answer(&harness)["result"], state);
        harness
    });
}

/// S-LTASK-06: `tasks/result` may wait longer than any other call, in both directions. Its result or error arrives
/// exactly as it was given, with the `_meta` that names the task.
#[test]
fn s_ltask_05_result_of_a_task_may_take_long_and_passes_unchanged() {
    every_chunking(|chunking| {
        let mut config = config_with(ClientCapabilities::default().with(ClientFeature::Tasks));
        config.policy.ask_timeout = seconds(7_200);
        let mut harness = Harness::new(config)
            .chunked(chunking)
            .served_by(|_| with_tasks("2025-11-25", &all_tasks()));
        harness.until_ready();
        let related = json!({RELATED: {"taskId": "t"}});
        let params = json!({"taskId": "t", "_meta": related});
        let result = json!({"content": [], "isError": true, "_meta": related});
        let patient = CallOptions::new()
            .with_idle(Limit::Never)
            .with_total(Limit::Never);
        for is_error in [false, true] {
            let call = harness.call_with("tasks/result", params.clone(), patient);
            let request = harness.last_message("tasks/result");
            assert_eq!(request["params"]["taskId"], "t");
            assert_eq!(request["params"]["_meta"][RELATED], related[RELATED]);
            harness.advance(seconds(3_600));
            assert!(!harness.is_done(call), "the call waits");
            harness.perform(match is_error {
                true => error(&request, -7, "the task failed"),
                false => reply(&request, result.clone()),
            });
            match harness.outcome(call) {
                Outcome::Error(error) => {
                    assert!(is_error);
                    assert_eq!((error.code, &*error.message), (-7, "the task failed"));
                }
                _ => assert_eq!(harness.result(call), result),
            }
        }
        for (id, answer) in [
            ("a", Ok(result.clone())),
            ("b", Err(ErrorObject::new(-7, "the user left"))),
        ] {
            harness.perform(ask(id, "tasks/result", params.clone()));
            let asked = harness.pick_events(|event| match event {
                Event::Ask(ask) => ask.params.as_ref().map(|p| p.parse::<Value>()),
                _ => None,
            });
            let asked = asked.last().expect("an ask").as_ref().expect("JSON");
            assert_eq!(*asked, params);
            harness.advance(seconds(3_600));
            let asked = *harness.asks().last().expect("an ask");
            harness.answer(asked, answer.clone());
            let written = last_answer(&harness);
            assert_eq!(written["id"], id);
            match answer {
                Ok(result) => assert_eq!(written["result"], result),
                Err(_) => assert_eq!(
                    written["error"],
                    json!({"code": -7, "message": "the user left"})
                ),
            }
        }
        harness
    });
}

/// The `_meta` that names a task passes in every message that may have it, in both directions. The link adds it to no
/// message, and so not to those that should not have it.
#[test]
fn s_ltask_06_related_task_passes_unchanged_and_is_never_added() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config_with_asks())
            .chunked(chunking)
            .served_by(|_| with_tasks("2025-11-25", &all_tasks()));
        harness.until_ready();
        let meta = json!({RELATED: {"taskId": "t"}});
        harness.perform(ask("q", "roots/list", json!({"_meta": meta})));
        let asked = harness.pick_events(|event| match event {
            Event::Ask(ask) => ask.params.as_ref().map(|p| p.parse::<Value>()),
            _ => None,
        });
        assert_eq!(asked[0].as_ref().expect("JSON")["_meta"], meta);
        let answer = json!({"roots": [], "_meta": meta});
        harness.answer(harness.asks()[0], Ok(answer.clone()));
        assert_eq!(last_answer(&harness)["result"], answer);
        let call = harness.call("tools/call", json!({"name": "add", "_meta": meta}));
        let request = harness.last_message("tools/call");
        assert_eq!(request["params"]["_meta"][RELATED], meta[RELATED]);
        harness.perform(reply(&request, json!({"content": [], "_meta": meta})));
        assert_eq!(harness.result(call)["_meta"], meta);
        harness.perform(notify("notifications/example", json!({"_meta": meta})));
        let notified = harness.pick_events(|event| match event {
            Event::Notified { params, .. } => params.as_ref().map(|p| p.parse::<Value>()),
            _ => None,
        });
        assert_eq!(notified[0].as_ref().expect("JSON")["_meta"], meta);
        for method in ["tasks/get", "tasks/list", "tasks/cancel"] {
            harness.call(method, json!({"taskId": "t"}));
            let meta = harness.last_message(method)["params"]["_meta"].clone();
            assert_eq!(meta.get(RELATED), None, "{method}");
        }
        harness
    });
}

/// Every modern request declares the extension, and its methods are sent to a server that offers it. In the legacy era
/// it is not declared, and the offer of a server enables nothing.
#[test]
fn s_taskx_01_extension_is_declared_in_every_modern_request_and_enables_nothing_else() {
    let mut harness = ready(config_with(with_extension()), modern_with_tasks);
    harness.call_tool("add");
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        harness.call(method, json!({"taskId": "t"}));
        assert_eq!(harness.messages_with(method).len(), 1, "{method}");
    }
    harness.advance(seconds(31));
    let mut requests = 0;
    for line in harness.lines_of(1) {
        if line.get("id").is_some() {
            let meta = &line["params"]["_meta"];
            let declared = &meta["io.modelcontextprotocol/clientCapabilities"];
            assert_eq!(declared["extensions"], json!({TASKS: {}}), "{line}");
            requests += 1;
        }
    }
    assert!(requests >= 6, "{requests}");
    harness.finish();

    for version in LEGACY {
        let mut harness = ready(config_with(with_extension()), move || {
            let mut capabilities = all_capabilities();
            capabilities["extensions"] = json!({TASKS: {}});
            server(version)
                .ignores("tools/call")
                .replies("initialize", move |_| {
                    initialize_result(version, capabilities.clone())
                })
        });
        let declared = harness.last_message("initialize")["params"]["capabilities"].clone();
        assert_eq!(declared, json!({}), "{version}");
        for method in ["tasks/get", "tasks/update", "tasks/cancel", "tasks/list"] {
            let call = harness.call(method, json!({"taskId": "t"}));
            let kind = &harness.failure(call).kind;
            let is_refused = matches!(kind, FailureKind::NotOffered { .. });
            assert!(is_refused, "{method} in {version}: {kind}");
            assert!(harness.messages_with(method).is_empty());
        }
        harness.finish();
    }
}

/// A call that became a task is over for the link and cannot be cancelled by notification. `tasks/cancel` is a request
/// like any other: its reply ends only itself, and the task may complete.
#[test]
fn s_taskx_09_task_is_cancelled_only_by_tasks_cancel() {
    every_chunking(|chunking| {
        let mut harness =
            Harness::new(config_with(with_extension()))
                .chunked(chunking)
                .served_by(|_| {
                    modern_with_tasks()
                    .replies("tools/call", |_| {
                        json!({"resultType": "task", "taskId": "t", "status": "working"})
                    })
                    .replies("tasks/cancel", |_| json!({"resultType": "complete"}))
                    .replies("tasks/get", |_| {
                        json!({"resultType": "complete", "taskId": "t", "status": "completed"})
                    })
                });
        harness.until_ready();
        let call = harness.call_tool("long");
        assert_eq!(harness.result(call)["taskId"], "t");
        let refused = harness.with_link(|link, now| link.cancel(now, call, None));
        assert_eq!(refused, Err(Misuse::UnknownCall));
        let owned = harness.with_link(|link, now| {
            let params = payload(&json!({"requestId": 1, "taskId": "t"}));
            link.notify(now, CANCELLED, Some(params))
        });
        assert!(matches!(owned, Err(Misuse::OwnedByLink { .. })));
        let cancel = harness.call("tasks/cancel", json!({"taskId": "t"}));
        assert_eq!(harness.result(cancel), json!({"resultType": "complete"}));
        let request = harness.last_message("tasks/cancel");
        assert_eq!(request["params"]["taskId"], "t");
        let get = harness.call("tasks/get", json!({"taskId": "t"}));
        assert_eq!(harness.result(get)["status"], "completed");
        harness.advance(seconds(700));
        assert!(harness.messages_with(CANCELLED).is_empty());
        harness
    });
}
