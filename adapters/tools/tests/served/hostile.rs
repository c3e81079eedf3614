//! Functions, clients and schemas that do what they should not.

use std::future::pending;
use std::sync::{Arc, Mutex};

use everlink::ErrorObject;
use everlink::protocol::{ClientFeature, Version, code};
use everlink_tools::types::{CallToolResult, ElicitResult, Tool};
use everlink_tools::{Context, Elicited, JsonSchema, Questions, Reply, Result, Tools};
use schemars::Schema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{Served, answer_with, call, call_tool, run, serve, text, try_call};

const ERAS: [Version; 2] = [Version::V2025_11_25, Version::V2026_07_28];

#[test]
fn completion_may_change_the_set() {
    run(async {
        let set = Arc::new(Mutex::new(None::<Tools>));
        let shared = Arc::clone(&set);
        let tools = Tools::new("tests", "1.0")
            .prompt("p", "", async |(): (), _| Ok("Hello!"))
            .complete_prompt("p", "a", move |typed, _| {
                let tools = shared.lock().expect("whole").clone().expect("it is set");
                // Not inside the future: the function itself changes the set.
                tools.tool("new", "", async |(): (), _| Ok("it is there"));
                async move { Ok(typed.matching(["b"])) }
            });
        *set.lock().expect("whole") = Some(tools.clone());
        let link = serve(&tools).await;
        let params = json!({"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}});
        let found = call(&link, "completion/complete", params).await;
        assert_eq!(found["completion"]["values"], json!(["b"]));
        assert!(tools.remove_tool("new"), "it was added");
        *set.lock().expect("whole") = None;
    });
}

#[test]
fn destructor_of_a_replaced_or_removed_function_may_use_the_set() {
    struct Last(Tools);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.remove_tool("other");
        }
    }
    // A deadlock would hang, so it has a time limit.
    run(async {
        let removed = tokio::task::spawn_blocking(|| {
            let tools = Tools::new("tests", "1.0").tool("other", "", async |(): (), _| Ok(()));
            let adds = |tools: &Tools| {
                let last = Arc::new(Last(tools.clone()));
                tools.clone().tool("one", "", move |(): (), _| {
                    let last = Arc::clone(&last);
                    async move {
                        drop(last);
                        Ok(())
                    }
                })
            };
            let tools = adds(&tools);
            let tools = tools.tool("one", "", async |(): (), _| Ok(()));
            let is_gone = !tools.remove_tool("other");
            let tools = adds(&tools);
            (is_gone, tools.remove_tool("one"))
        });
        assert_eq!(removed.await.expect("it ends"), (true, true));
    });
}

#[test]
fn error_object_with_a_question_mark_stays_a_protocol_error() {
    async fn fail((): (), _: Context) -> Result<()> {
        Err(ErrorObject::new(-7, "seven"))?;
        Ok(())
    }
    run(async {
        let link = serve(&Tools::new("tests", "1.0").tool("fail", "", fail)).await;
        let error = try_call(&link, "tools/call", json!({"name": "fail"})).await;
        assert_eq!(error.expect_err("it fails").code, -7);
    });
}

#[test]
fn other_method_without_parameters_takes_unit() {
    run(async {
        let tools = Tools::new("tests", "1.0")
            .method("x/ping", async |(): (), _| Ok(json!({"pong": true})));
        let link = serve(&tools).await;
        assert_eq!(call(&link, "x/ping", json!({})).await["pong"], true);
        let error = try_call(&link, "x/ping", json!({"a": 1})).await;
        assert_eq!(
            error.expect_err("`a` is unknown").code,
            code::INVALID_PARAMS
        );
    });
}

/// A tool with an output schema that is written by hand.
fn described(schema: Value) -> Tool {
    let mut tool = Tool::new("t");
    tool.output_schema = Some(schema);
    tool
}

#[test]
fn result_that_does_not_fit_its_schema_is_an_error_that_says_why() {
    let schema =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let value = |value: Value| {
        Tools::new("tests", "1.0").tool_as(described(schema.clone()), move |(): (), _| {
            std::future::ready(Ok(value.clone()))
        })
    };
    let reply = |result: CallToolResult| {
        Tools::new("tests", "1.0").tool_as(described(schema.clone()), move |(): (), _| {
            std::future::ready(Ok(Reply::from(result.clone())))
        })
    };
    let mut wrong = CallToolResult::new(Vec::new());
    wrong.structured_content = Some(json!({"n": "one"}));
    let cases = [
        (value(json!({"n": "one"})), "`n` must be an integer"),
        (value(json!([1])), "must be an object"),
        (reply(wrong), "`n` must be an integer"),
        (
            reply(CallToolResult::new(Vec::new())),
            "no structured content",
        ),
    ];
    run(async {
        for (tools, expected) in &cases {
            let result = call_tool(&serve(tools).await, "t", json!({})).await;
            assert_eq!(result["isError"], true, "{result}");
            assert!(text(&result).contains(expected), "{result}");
            assert_eq!(result.get("structuredContent"), None);
        }
        let good = call_tool(&serve(&value(json!({"n": 1}))).await, "t", json!({})).await;
        assert_eq!(good["structuredContent"], json!({"n": 1}));
        let failed = reply(CallToolResult::error("not today"));
        let failed = call_tool(&serve(&failed).await, "t", json!({})).await;
        assert_eq!(text(&failed), "not today");
    });
}

#[test]
fn limits_of_a_result_are_checked() {
    #[derive(Serialize, JsonSchema)]
    struct Share {
        #[schemars(range(max = 100))]
        percent: u32,
    }
    run(async {
        let tools = Tools::new("tests", "1.0")
            .tool("share", "", async |(): (), _| Ok(Share { percent: 101 }));
        let result = call_tool(&serve(&tools).await, "share", json!({})).await;
        assert!(
            text(&result).contains("`percent` must be at most 100"),
            "{result}"
        );
    });
}

#[test]
fn type_that_says_object_and_is_a_list_is_an_error() {
    #[derive(Serialize)]
    struct Wrong(Vec<u8>);
    impl JsonSchema for Wrong {
        fn schema_name() -> std::borrow::Cow<'static, str> {
            "Wrong".into()
        }
        fn json_schema(_: &mut schemars::SchemaGenerator) -> Schema {
            schemars::json_schema!({"type": "object"})
        }
    }
    run(async {
        let tools = Tools::new("tests", "1.0").tool("t", "", async |(): (), _| Ok(Wrong(vec![1])));
        let served = Served::new(&tools).await;
        for version in ERAS {
            let result = call_tool(&served.link(version), "t", json!({})).await;
            assert!(
                text(&result).contains("it is no object"),
                "{version} {result}"
            );
        }
    });
}

#[test]
fn number_that_is_not_finite_is_an_error_that_names_its_member() {
    #[derive(Clone, Serialize, JsonSchema)]
    struct Statistics {
        label: Option<String>,
        means: Vec<f64>,
    }
    let label = None::<String>;
    let tools = |means: Vec<f64>| {
        let label = label.clone();
        let value = Statistics { label, means };
        Tools::new("tests", "1.0").tool("t", "", move |(): (), _| {
            std::future::ready(Ok(value.clone()))
        })
    };
    let ratio = Tools::new("tests", "1.0").tool("t", "", async |(): (), _| Ok(f64::NAN));
    let refused = "The result of the tool does not fit its output schema: ";
    let cases = [
        (
            tools(vec![1.0, f64::NAN]),
            "`means[1]` must be a number, not null (which NaN and infinity become)",
        ),
        (
            tools(vec![f64::NEG_INFINITY]),
            "`means[0]` must be a number, not null (which NaN and infinity become)",
        ),
        (
            ratio,
            "it must be a number, not null (which NaN and infinity become)",
        ),
    ];
    run(async {
        for (tools, expected) in &cases {
            let result = call_tool(&serve(tools).await, "t", json!({})).await;
            assert_eq!(result["isError"], true, "{result}");
            assert_eq!(text(&result), format!("{refused}{expected}"));
        }
        let good = call_tool(&serve(&tools(vec![1.0])).await, "t", json!({})).await;
        let expected = json!({"label": null, "means": [1.0]});
        assert_eq!(good["structuredContent"], expected);
    });
}

#[test]
fn text_with_a_schema_by_hand_is_structured_content_for_modern_clients_only() {
    run(async {
        let tools = Tools::new("tests", "1.0")
            .tool_as(described(json!({"type": "string"})), async |(): (), _| {
                Ok("a")
            });
        let served = Served::new(&tools).await;
        let modern = call_tool(&served.link(Version::V2026_07_28), "t", json!({})).await;
        assert_eq!(modern["structuredContent"], "a");
        let legacy = served.link(Version::V2025_11_25);
        let result = call_tool(&legacy, "t", json!({})).await;
        assert_eq!(result.get("structuredContent"), None);
        let listed = call(&legacy, "tools/list", json!({})).await;
        assert_eq!(listed["tools"][0].get("outputSchema"), None);
    });
}

#[test]
fn long_names_are_not_repeated_in_errors() {
    run(async {
        let tools = Tools::new("tests", "1.0")
            .tool("t", "", async |(): (), _| Ok(()))
            .prompt("p", "", async |(): (), _| Ok(""));
        let link = serve(&tools).await;
        // Header fields repeat the names, so they cannot be longer.
        let long = "x".repeat(4_000);
        let cases = [
            ("tools/call", json!({"name": long})),
            ("prompts/get", json!({"name": long})),
            ("tools/list", json!({"cursor": long})),
        ];
        for (method, params) in cases {
            let error = try_call(&link, method, params).await.expect_err(method);
            assert_eq!(error.code, code::INVALID_PARAMS);
            assert!(error.text().len() < 200, "{method}: {}", error.text().len());
        }
        let refused = call_tool(&link, "t", json!({long: 1})).await;
        assert!(text(&refused).len() < 300, "{}", text(&refused).len());
    });
}

#[test]
fn panic_in_an_async_function_is_an_internal_error_and_the_server_goes_on() {
    run(async {
        let tools = Tools::new("tests", "1.0")
            .tool("fall", "", async |(): (), _| {
                match std::hint::black_box(true) {
                    true => panic!("on purpose"),
                    false => Ok(()),
                }
            })
            .tool("stand", "", async |(): (), _| Ok("upright"));
        let served = Served::new(&tools).await;
        for version in ERAS {
            let link = served.link(version);
            let error = try_call(&link, "tools/call", json!({"name": "fall"})).await;
            assert_eq!(error.expect_err("it panicked").code, code::INTERNAL_ERROR);
            assert_eq!(text(&call_tool(&link, "stand", json!({})).await), "upright");
        }
    });
}

#[test]
fn cancelled_call_drops_its_function() {
    struct Dropped(tokio::sync::mpsc::UnboundedSender<&'static str>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            let _ = self.0.send("dropped");
        }
    }
    run(async {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let tools = Tools::new("tests", "1.0").tool("wait", "", move |(): (), _| {
            let dropped = Dropped(sender.clone());
            async move {
                let _ = dropped.0.send("started");
                pending::<()>().await;
                Ok(())
            }
        });
        let served = Served::new(&tools).await;
        for version in ERAS {
            let link = served.link(version);
            let call = tokio::spawn(link.call_tool("wait", json!({})).start());
            assert_eq!(receiver.recv().await, Some("started"), "{version}");
            call.abort();
            assert_eq!(receiver.recv().await, Some("dropped"), "{version}");
        }
    });
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Age {
    #[schemars(range(max = 150))]
    age: u32,
}

#[test]
fn cancelled_and_bad_answers_to_a_form_never_reach_the_function_as_a_form() {
    let tools = Tools::new("tests", "1.0").tool("ask", "", async |(): (), context| {
        Ok(match context.elicit::<Age>("How old?").await? {
            Elicited::Accepted(form) => format!("{} years", form.age),
            other => format!("{other:?}"),
        })
    });
    let accept = |content: Value| json!({"action": "accept", "content": content});
    let cases = [
        (json!({"action": "cancel"}), "Cancelled"),
        (
            json!({"action": "decline", "content": {"age": 3}}),
            "Declined",
        ),
        (accept(json!({"age": 150})), "150 years"),
        (
            accept(json!({"age": 151})),
            "`age` must be at most 150, not 151",
        ),
        (accept(json!({"age": -1})), "`age`"),
        (json!({"action": "accept"}), "`age` is missing"),
    ];
    run(async {
        let served = Served::new(&tools).await;
        for version in ERAS {
            for (answer, expected) in &cases {
                let link = served.link(version);
                let asked = answer_with(&link, answer.clone());
                let result = call_tool(&link, "ask", json!({})).await;
                assert!(
                    text(&result).contains(expected),
                    "{version} {answer} {result}"
                );
                asked.await.expect("it asked");
            }
        }
    });
}

#[test]
fn questions_are_asked_until_they_are_answered() {
    async fn ask((): (), context: Context) -> Result<Reply> {
        match context.accepted::<Age>("age") {
            Some(Age { age }) => Ok(format!("{age} {:?}", context.state()).into()),
            None if context.answer::<ElicitResult>("age").is_some() => Ok("no age".into()),
            None => Ok(Questions::new()
                .form::<Age>("age", "How old?")?
                .with_state("kept")
                .into()),
        }
    }
    run(async {
        let link = serve(&Tools::new("tests", "1.0").tool("ask", "", ask)).await;
        let cases = [
            (
                json!({"action": "accept", "content": {"age": 7}}),
                r#"7 Some("kept")"#,
            ),
            (
                json!({"action": "accept", "content": {"age": 700}}),
                "no age",
            ),
            (
                json!({"action": "decline", "content": {"age": 7}}),
                "no age",
            ),
        ];
        for (answer, expected) in cases {
            let asked = answer_with(&link, answer);
            assert_eq!(text(&call_tool(&link, "ask", json!({})).await), expected);
            let asked = asked.await.expect("it asked");
            assert_eq!(
                asked["requestedSchema"]["properties"]["age"]["maximum"],
                150
            );
        }
    });
}

#[test]
fn capability_that_a_function_requires_is_named_to_a_client_without_it() {
    run(async {
        let tools = Tools::new("tests", "1.0").tool("t", "", async |(): (), context| {
            context.require(ClientFeature::Sampling)?;
            Ok("it has a model")
        });
        let served = Served::new(&tools).await;
        let link = served.link(Version::V2026_07_28);
        assert_eq!(
            text(&call_tool(&link, "t", json!({})).await),
            "it has a model"
        );
        let without = served.link_with(Version::V2026_07_28, |config| {
            config.capabilities = everlink::protocol::ClientCapabilities::default();
        });
        let error = try_call(&without, "tools/call", json!({"name": "t"})).await;
        let error = error.expect_err("it has none");
        assert_eq!(error.code, code::MISSING_REQUIRED_CLIENT_CAPABILITY);
    });
}
