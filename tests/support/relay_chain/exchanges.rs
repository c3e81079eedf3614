//! Every kind of exchange that a relay carries, from the first message of the host to the last.
//!
//! Each script ends whatever happens behind the relay. Its check applies to runs without a disturbance.

use everlink::client::{CallOptions, Event, Outcome};
use everlink::protocol::{Era, LogLevel};
use everlink::{CallId, Change, List, Watch};
use serde_json::{Value, json};

use super::{Chain, Eras, PROGRESS_REPORTS, seconds};

pub(crate) struct Exchange {
    pub(crate) name: &'static str,
    /// Whether the exchange exists between these eras.
    pub(crate) exists: fn(Eras) -> bool,
    /// Plays the exchange and returns its calls.
    pub(crate) play: fn(&mut Chain) -> Vec<CallId>,
    pub(crate) check: fn(&Chain, &[CallId]),
}

const ALWAYS: fn(Eras) -> bool = |_| true;
const TO_LEGACY: fn(Eras) -> bool = |eras| eras.server == Era::Legacy;
const ALL_LEGACY: fn(Eras) -> bool = |eras| eras == Eras::new(Era::Legacy, Era::Legacy);
const ALL_MODERN: fn(Eras) -> bool = |eras| eras == Eras::new(Era::Modern, Era::Modern);

pub(crate) const EXCHANGES: &[Exchange] = &[
    Exchange {
        name: "a tool",
        exists: ALWAYS,
        play: |chain| call_tool(chain, "echo"),
        check: |chain, calls| assert_eq!(chain.text(calls[0]), "echo \"m1\" by life 1"),
    },
    Exchange {
        name: "a tool with progress",
        exists: ALWAYS,
        play: |chain| call_tool(chain, "count"),
        check: |chain, calls| {
            assert_eq!(chain.text(calls[0]), "count \"m1\" by life 1");
            let reports = chain.pick_host_events(|event| match event {
                Event::Progress {
                    call,
                    progress,
                    total,
                    message,
                } if *call == calls[0] => {
                    assert_eq!(*total, Some(f64::from(PROGRESS_REPORTS)));
                    assert_eq!(
                        message.as_deref(),
                        Some(&*format!("{progress} of {PROGRESS_REPORTS}"))
                    );
                    Some(*progress)
                }
                _ => None,
            });
            assert_eq!(reports, [1.0, 2.0, 3.0]);
        },
    },
    Exchange {
        name: "a tool whose progress nobody wants",
        exists: ALWAYS,
        play: |chain| {
            let params = json!({"name": "count", "arguments": {"mark": "quiet"}});
            let options = CallOptions::new().without_progress();
            let call = chain.call_with("tools/call", params, options);
            chain.until_done(call);
            vec![call]
        },
        check: |chain, calls| {
            assert_eq!(chain.text(calls[0]), "count \"quiet\" by life 1");
            // The relay asks the server for progress all the same, because progress shows that the server is alive.
            assert_eq!(
                chain.sent_to_host("notifications/progress"),
                [Value::Null; 0]
            );
        },
    },
    Exchange {
        name: "a tool that fails",
        exists: ALWAYS,
        play: |chain| call_tool(chain, "broken"),
        check: |chain, calls| {
            let result = chain.result(calls[0]);
            assert_eq!(result["isError"], true);
            assert_eq!(result["content"][0]["text"], "it broke");
        },
    },
    Exchange {
        name: "a tool that is refused",
        exists: ALWAYS,
        play: |chain| {
            let call = chain.tool_with("refuse", json!({"code": -32_602}));
            chain.until_done(call);
            vec![call]
        },
        check: |chain, calls| {
            let error = chain.error(calls[0]);
            assert_eq!((error.code, &*error.message), (-32_602, "no"));
            let data = error.data.as_ref().expect("the data is passed on");
            assert_eq!(data.as_str(), r#"{"why":"asked to"}"#);
        },
    },
    Exchange {
        name: "a prompt",
        exists: ALWAYS,
        play: |chain| call_and_wait(chain, "prompts/get", json!({"name": "greet"})),
        check: |chain, calls| {
            let text = &chain.result(calls[0])["messages"][0]["content"]["text"];
            assert_eq!(*text, "\"greet\" by life 1");
        },
    },
    Exchange {
        name: "a prompt that asks",
        exists: ALWAYS,
        play: |chain| call_and_wait(chain, "prompts/get", json!({"name": "form"})),
        check: |chain, calls| {
            let answers = &chain.result(calls[0])["structuredContent"]["answers"];
            assert_eq!(answers[0]["content"]["name"], "Ada");
        },
    },
    Exchange {
        name: "a resource",
        exists: ALWAYS,
        play: |chain| call_and_wait(chain, "resources/read", json!({"uri": "file:///a"})),
        check: |chain, calls| {
            let read = &chain.result(calls[0])["contents"][0];
            assert_eq!(read["text"], "so it says");
        },
    },
    Exchange {
        name: "a resource that is missing",
        exists: ALWAYS,
        play: |chain| call_and_wait(chain, "resources/read", json!({"uri": "file:///missing"})),
        check: |chain, calls| {
            // S-ERR-06, S-ERR-11: each era has its own code for this error. The relay does not invent a legacy code for
            // the error of a modern server.
            let is_legacy = chain.eras() == Eras::new(Era::Legacy, Era::Legacy);
            let code = if is_legacy { -32_002 } else { -32_602 };
            assert_eq!(chain.error(calls[0]).code, code);
        },
    },
    Exchange {
        name: "a completion",
        exists: ALWAYS,
        play: |chain| {
            let params = json!({
                "ref": {"type": "ref/prompt", "name": "greet"},
                "argument": {"name": "who", "value": "Ad"},
            });
            call_and_wait(chain, "completion/complete", params)
        },
        check: |chain, calls| {
            assert_eq!(
                chain.result(calls[0])["completion"]["values"],
                json!(["Ad"])
            );
        },
    },
    Exchange {
        name: "the lists",
        exists: ALWAYS,
        play: |chain| {
            let lists = [
                "tools/list",
                "prompts/list",
                "resources/list",
                "resources/templates/list",
            ];
            let calls = lists.map(|list| chain.call(list, Value::Null));
            chain.until_all_done();
            calls.into()
        },
        check: |chain, calls| {
            assert_eq!(chain.result(calls[0])["tools"][0]["name"], "echo");
            assert_eq!(chain.result(calls[1])["prompts"][0]["name"], "greet");
            assert_eq!(chain.result(calls[2])["resources"][0]["uri"], "file:///a");
            assert_eq!(
                chain.result(calls[3])["resourceTemplates"][0]["name"],
                "any"
            );
        },
    },
    Exchange {
        name: "a method of their own",
        exists: ALWAYS,
        play: |chain| call_and_wait(chain, "acme/weigh", json!({"what": [1, 2]})),
        check: |chain, calls| {
            let result = chain.result(calls[0]);
            assert_eq!(result["method"], "acme/weigh");
            assert_eq!(result["params"]["what"], json!([1, 2]));
        },
    },
    Exchange {
        name: "a resource that is watched",
        exists: ALWAYS,
        play: |chain| {
            chain.watch(Watch::lists().and_uri("file:///a").and_uri("file:///b"));
            let call = chain.tool_with("touch", json!({"uri": "file:///a"}));
            chain.until_done(call);
            // Either the resource was touched, or its server ended and the watcher must read it again. A provisional offer has no
            // watches.
            chain.until("the change is reported", |chain| {
                chain.has_provisional_offer() || !resource_changes(chain, "file:///a").is_empty()
            });
            vec![call]
        },
        check: |chain, calls| {
            assert_eq!(chain.text(calls[0]), "touch \"m1\" by life 1");
            assert!(
                chain
                    .received_by(1, "watching")
                    .last()
                    .is_some_and(|watch| {
                        watch.contains("file:///a") && watch.contains("file:///b")
                    })
            );
        },
    },
    Exchange {
        name: "a list that changes",
        exists: ALWAYS,
        play: |chain| {
            let before = chain.call("tools/list", Value::Null);
            chain.until_done(before);
            let learn = chain.tool("learn");
            chain.until_done(learn);
            chain.settle();
            let after = chain.call("tools/list", Value::Null);
            chain.until_done(after);
            vec![before, learn, after]
        },
        check: |chain, calls| {
            let tools = |call| chain.result(call)["tools"].as_array().map(Vec::len);
            assert_eq!((tools(calls[0]), tools(calls[2])), (Some(2), Some(3)));
            assert_eq!(list_changes(chain), [List::Tools]);
        },
    },
    Exchange {
        name: "log messages",
        exists: ALWAYS,
        play: |chain| {
            chain.watch(Watch::lists().and_logs(LogLevel::Info));
            call_tool(chain, "log")
        },
        check: |chain, _| {
            let logs = chain.pick_host_events(|event| match event {
                Event::Log {
                    level,
                    logger,
                    data,
                    ..
                } => Some((*level, logger.as_deref(), data.as_str())),
                _ => None,
            });
            assert_eq!(
                logs,
                [
                    (LogLevel::Info, Some("shop"), r#""at info""#),
                    (LogLevel::Error, Some("shop"), r#""at error""#),
                ]
            );
        },
    },
    Exchange {
        name: "a form",
        exists: ALWAYS,
        play: |chain| call_tool(chain, "form"),
        check: |chain, calls| {
            assert_eq!(answers(chain, calls[0])[0]["content"]["name"], "Ada");
            assert_eq!(ask_methods(chain), ["elicitation/create"]);
        },
    },
    Exchange {
        name: "a sample",
        exists: ALWAYS,
        play: |chain| call_tool(chain, "sample"),
        check: |chain, calls| {
            assert_eq!(answers(chain, calls[0])[0]["content"]["text"], "Word.");
            assert_eq!(ask_methods(chain), ["sampling/createMessage"]);
        },
    },
    Exchange {
        name: "the roots",
        exists: ALWAYS,
        play: |chain| call_tool(chain, "roots"),
        check: |chain, calls| {
            assert_eq!(
                answers(chain, calls[0])[0]["roots"][0]["uri"],
                "file:///home"
            );
            assert_eq!(ask_methods(chain), ["roots/list"]);
        },
    },
    Exchange {
        name: "two questions at once",
        exists: ALWAYS,
        play: |chain| call_tool(chain, "both"),
        check: |chain, calls| {
            assert_eq!(answers(chain, calls[0]).as_array().map(Vec::len), Some(2));
            assert_eq!(
                ask_methods(chain),
                ["elicitation/create", "sampling/createMessage"]
            );
        },
    },
    Exchange {
        name: "a question out of the blue",
        exists: TO_LEGACY,
        play: |chain| call_tool(chain, "blurt"),
        check: |chain, calls| {
            assert_eq!(answers(chain, calls[0])[0]["content"]["name"], "Ada");
        },
    },
    Exchange {
        name: "many calls, and questions among them",
        exists: ALWAYS,
        play: |chain| {
            let tools = ["nap", "form", "count", "echo", "sample", "nap", "broken"];
            let calls: Vec<CallId> = tools.iter().map(|name| chain.tool(name)).collect();
            chain.until_all_done();
            calls
        },
        check: |chain, calls| {
            assert_eq!(answers(chain, calls[1])[0]["content"]["name"], "Ada");
            assert_eq!(answers(chain, calls[4])[0]["content"]["text"], "Word.");
            for (at, name) in [(0, "nap"), (2, "count"), (3, "echo"), (5, "nap")] {
                let expected = format!("{name} \"m{}\" by life 1", at + 1);
                assert_eq!(chain.text(calls[at]), expected);
            }
        },
    },
    Exchange {
        name: "a question out of the blue among many calls",
        exists: TO_LEGACY,
        play: |chain| {
            let tools = ["nap", "blurt", "nap", "blurt", "echo"];
            let calls: Vec<CallId> = tools.iter().map(|name| chain.tool(name)).collect();
            chain.until_all_done();
            calls
        },
        check: |chain, calls| {
            for (at, call) in calls.iter().enumerate() {
                let expected = format!("\"m{}\" by life 1", at + 1);
                assert!(
                    chain.text(*call).ends_with(&expected),
                    "{}",
                    chain.text(*call)
                );
            }
            for blurt in [calls[1], calls[3]] {
                assert_eq!(answers(chain, blurt)[0]["content"]["name"], "Ada");
            }
        },
    },
    Exchange {
        name: "a call that is cancelled",
        exists: ALWAYS,
        play: |chain| {
            let call = chain.tool("wait");
            chain.until("the call is sent or done", |chain| {
                chain.is_done(call)
                    || !chain
                        .sent_to_server(chain.newest_epoch(), "tools/call")
                        .is_empty()
            });
            if !chain.is_done(call) {
                chain.cancel(call, "no more");
            }
            chain.until_done(call);
            chain.settle();
            vec![call]
        },
        check: |chain, calls| {
            assert!(matches!(chain.outcome(calls[0]), Outcome::Failed(_)));
            assert_eq!(
                chain.received_by(1, "cancelled"),
                ["cancelled \"wait\": no more"]
            );
        },
    },
    Exchange {
        name: "notifications to the server",
        exists: ALWAYS,
        play: |chain| {
            let first = chain.tool("echo");
            chain.until_done(first);
            for (method, params) in [
                ("acme/hint", Some(json!({"at": 1}))),
                ("notifications/roots/list_changed", None),
            ] {
                let params = params.as_ref().map(super::payload);
                // A modern host has no notification for changed roots.
                let _ = chain.with_host(|host, now| host.notify(now, method, params));
            }
            let last = chain.tool("echo");
            chain.until_done(last);
            vec![first, last]
        },
        check: |chain, _| {
            assert_eq!(chain.received_by(1, "acme/"), ["acme/hint {\"at\":1}"]);
            let roots = chain
                .received_by(1, "notifications/roots/list_changed")
                .len();
            let both_have_notification = ALL_LEGACY(chain.eras());
            assert_eq!(roots, usize::from(both_have_notification));
        },
    },
    Exchange {
        name: "notifications to the host",
        exists: ALWAYS,
        play: |chain| call_tool(chain, "tell"),
        check: |chain, _| {
            let notifications = chain.pick_host_events(|event| match event {
                Event::Notified { method, params, .. } => Some((
                    method.to_string(),
                    params.as_ref().map(|params| params.as_str().to_owned()),
                )),
                _ => None,
            });
            let expected = ("acme/news".to_owned(), Some(r#"{"of":"life"}"#.to_owned()));
            assert_eq!(notifications, [expected]);
        },
    },
    Exchange {
        name: "a tool call as a task",
        exists: ALL_LEGACY,
        play: |chain| {
            let params =
                json!({"name": "echo", "arguments": {"mark": "t"}, "task": {"ttl": 60_000}});
            let create = chain.call("tools/call", params);
            chain.until_done(create);
            let params = json!({"taskId": "t1"});
            let mut calls = vec![create];
            for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
                calls.push(chain.call(method, params.clone()));
            }
            calls.push(chain.call("tasks/list", Value::Null));
            chain.until_all_done();
            calls
        },
        check: |chain, calls| {
            assert_eq!(chain.result(calls[0])["task"]["taskId"], "t1");
            assert_eq!(chain.result(calls[1])["status"], "completed");
            assert_eq!(chain.text(calls[2]), "a task of life 1");
            assert_eq!(chain.result(calls[3])["status"], "cancelled");
            assert_eq!(chain.result(calls[4])["tasks"][0]["taskId"], "t1");
        },
    },
    Exchange {
        name: "a task of the extension",
        exists: ALL_MODERN,
        play: |chain| {
            let create = chain.tool("task");
            chain.until_done(create);
            let params = json!({"taskId": "t1"});
            let mut calls = vec![create];
            for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
                calls.push(chain.call(method, params.clone()));
            }
            chain.until_all_done();
            calls
        },
        check: |chain, calls| {
            let created = chain.result(calls[0]);
            assert_eq!(
                (&created["resultType"], &created["taskId"]),
                (&json!("task"), &json!("t1"))
            );
            assert_eq!(chain.result(calls[1])["status"], "completed");
            assert_eq!(chain.result(calls[3])["status"], "cancelled");
        },
    },
    Exchange {
        name: "a long silence",
        exists: ALWAYS,
        play: |chain| {
            let first = chain.tool("echo");
            chain.until_done(first);
            chain.advance(seconds(100));
            let last = chain.tool("echo");
            chain.until_done(last);
            vec![first, last]
        },
        check: |chain, calls| assert_eq!(chain.text(calls[1]), "echo \"m2\" by life 1"),
    },
];

fn call_tool(chain: &mut Chain, name: &str) -> Vec<CallId> {
    let call = chain.tool(name);
    chain.until_done(call);
    vec![call]
}

fn call_and_wait(chain: &mut Chain, method: &'static str, params: Value) -> Vec<CallId> {
    let call = chain.call(method, params);
    chain.until_done(call);
    vec![call]
}

/// The answers of the host to the asks of a tool.
#[track_caller]
fn answers(chain: &Chain, call: CallId) -> Value {
    chain.result(call)["structuredContent"]["answers"].clone()
}

/// The methods of the asks that the host received.
pub(crate) fn ask_methods(chain: &Chain) -> Vec<&str> {
    chain.pick_host_events(|event| match event {
        Event::Ask(ask) => Some(&*ask.method),
        _ => None,
    })
}

/// The lists that changed, according to the events of the host.
pub(crate) fn list_changes(chain: &Chain) -> Vec<List> {
    chain.pick_host_events(|event| match event {
        Event::Changed(Change::List(list)) => Some(*list),
        _ => None,
    })
}

/// One entry for each change of the resource at `uri` that the host was told of.
pub(crate) fn resource_changes(chain: &Chain, uri: &str) -> Vec<()> {
    chain.pick_host_events(|event| match event {
        Event::Changed(Change::Resource { uri: of }) if **of == *uri => Some(()),
        _ => None,
    })
}
