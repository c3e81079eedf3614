//! Calls of tools: results, errors, and bad arguments.

use std::time::Duration;

use everlink::client::Event;
use everlink::protocol::{LogLevel, Version, code};
use everlink::server::Progress;
use everlink::{Config, ErrorObject, Watch};
use everlink_tokio::http::{Access, Connector, Protection, serve_protected};
use everlink_tools::types::{CallToolResult, Content, Tool};
use everlink_tools::{Error, JsonSchema, Reply, Tools, WithText};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::{Served, call_tool, run, serve, text, try_call};

#[derive(Deserialize, JsonSchema)]
struct Add {
    a: f64,
    b: f64,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: f64,
}

fn adder() -> Tools {
    Tools::new("tests", "1.0").tool("add", "Adds", async |args: Add, _| {
        Ok(Sum {
            sum: args.a + args.b,
        })
    })
}

#[test]
fn struct_becomes_structured_content_with_its_json_as_text() {
    run(async {
        let link = serve(&adder()).await;
        let result = link.call_tool("add", json!({"a": 1, "b": 2})).await;
        let result: CallToolResult = result.expect("it ran").payload().parse().expect("a result");
        assert_eq!(result.structured_content, Some(json!({"sum": 3.0})));
        assert_eq!(result.text(), r#"{"sum":3.0}"#);
        assert!(!result.is_error());
    });
}

#[test]
fn bad_arguments_are_named_for_the_model_since_2025_11_25() {
    run(async {
        let served = Served::new(&adder()).await;
        for version in [Version::V2025_11_25, Version::V2026_07_28] {
            let link = served.link(version);
            let result = call_tool(&link, "add", json!({"a": "one"})).await;
            assert_eq!(result["isError"], true, "{version}");
            let expected = "Invalid arguments for tool add: `b` is missing; `a` must be a number, not the text \"one\"";
            assert_eq!(text(&result), expected, "{version}");
        }
    });
}

#[test]
fn bad_arguments_are_a_protocol_error_before_2025_11_25() {
    run(async {
        let link = Served::new(&adder()).await.link(Version::V2025_06_18);
        let params = json!({"name": "add", "arguments": {"a": 1}});
        let error = try_call(&link, "tools/call", params)
            .await
            .expect_err("`b` is missing");
        assert_eq!(error.code, code::INVALID_PARAMS);
        assert_eq!(
            error.text(),
            "Invalid arguments for tool add: `b` is missing"
        );
    });
}

#[test]
fn unknown_tool_is_a_protocol_error() {
    run(async {
        let link = serve(&adder()).await;
        let error = try_call(&link, "tools/call", json!({"name": "subtract"})).await;
        let error = error.expect_err("there is no such tool");
        assert_eq!(
            (error.code, error.text()),
            (code::INVALID_PARAMS, "Unknown tool: subtract")
        );
    });
}

#[test]
fn limits_of_the_schema_are_checked_and_bad_arguments_never_reach_the_function() {
    #[derive(Deserialize, JsonSchema)]
    struct Order {
        #[schemars(range(min = 1, max = 9))]
        count: u32,
        #[schemars(length(min = 2))]
        name: String,
        items: Vec<Item>,
    }
    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Item {
        Bread,
        Milk,
    }
    run(async {
        let tools = Tools::new("tests", "1.0").tool("order", "Orders", async |order: Order, _| {
            let _ = (order.items, order.name);
            Ok(format!("ordered {}", order.count))
        });
        let link = serve(&tools).await;
        let good = json!({"count": 9, "name": "ab", "items": ["bread", "milk"]});
        assert_eq!(text(&call_tool(&link, "order", good).await), "ordered 9");
        let bad = json!({"count": 10, "name": "a", "items": ["bread", "wine"]});
        let result = call_tool(&link, "order", bad).await;
        assert_eq!(result["isError"], true);
        for problem in [
            "`count` must be at most 9, not 10",
            "`name` must have at least 2 characters, not 1",
            "`items[1]` must be one of \"bread\", \"milk\", not the text \"wine\"",
        ] {
            assert!(
                text(&result).contains(problem),
                "{problem}: {}",
                text(&result)
            );
        }
    });
}

#[test]
fn tool_without_arguments_takes_none_and_refuses_others() {
    run(async {
        let tools =
            Tools::new("tests", "1.0").tool("ping", "Answers", async |(): (), _| Ok("pong"));
        let link = serve(&tools).await;
        let result = try_call(&link, "tools/call", json!({"name": "ping"})).await;
        assert_eq!(text(&result.expect("it ran")), "pong");
        assert_eq!(text(&call_tool(&link, "ping", json!({})).await), "pong");
        let refused = call_tool(&link, "ping", json!({"x": 1})).await;
        assert!(text(&refused).contains("`x` is unknown"), "{refused}");
    });
}

#[test]
fn errors_become_results_that_the_model_reads() {
    #[derive(Debug, thiserror::Error)]
    #[error("the disk is full")]
    struct DiskFull(#[source] std::io::Error);
    run(async {
        let tools = Tools::new("tests", "1.0")
            .tool("typed", "Fails", async |(): (), _| {
                Err::<(), _>(DiskFull(std::io::Error::other("no space left")))?;
                Ok(())
            })
            .tool("plain", "Fails", async |(): (), _| {
                Err::<(), _>(Error::new("not today"))
            });
        let link = serve(&tools).await;
        let result = call_tool(&link, "typed", json!({})).await;
        assert_eq!(result["isError"], true);
        assert_eq!(text(&result), "the disk is full: no space left");
        let result = call_tool(&link, "plain", json!({})).await;
        assert_eq!(
            (&result["isError"], text(&result)),
            (&json!(true), "not today")
        );
    });
}

#[test]
fn protocol_error_of_a_function_stays_one() {
    run(async {
        let tools = Tools::new("tests", "1.0").tool("fail", "Fails", async |(): (), _| {
            Err::<(), _>(Error::protocol(ErrorObject::new(-7, "seven")))
        });
        let link = serve(&tools).await;
        let error = try_call(&link, "tools/call", json!({"name": "fail"})).await;
        assert_eq!(error.expect_err("it fails").code, -7);
    });
}

#[test]
fn other_kinds_of_results_have_their_own_content() {
    run(async {
        let tools = Tools::new("tests", "1.0")
            .tool("nothing", "", async |(): (), _| Ok(()))
            .tool("two", "", async |(): (), _| {
                Ok(Reply::from(vec![
                    Content::text("a"),
                    Content::image("AA==", "image/png"),
                ]))
            })
            .tool("with_text", "", async |(): (), _| {
                Ok(WithText::new(Sum { sum: 1.0 }, "It is one"))
            })
            .tool("value", "", async |args: Value, _| Ok(args));
        let link = serve(&tools).await;
        assert_eq!(
            call_tool(&link, "nothing", json!({})).await["content"],
            json!([])
        );
        let two = call_tool(&link, "two", json!({})).await;
        assert_eq!(two["content"][1]["mimeType"], "image/png");
        let with_text = call_tool(&link, "with_text", json!({})).await;
        assert_eq!(text(&with_text), "It is one");
        assert_eq!(with_text["structuredContent"], json!({"sum": 1.0}));
        let value = call_tool(&link, "value", json!({"any": [1]})).await;
        assert_eq!(value["structuredContent"], json!({"any": [1]}));
    });
}

#[test]
fn list_is_structured_content_only_for_modern_clients() {
    run(async {
        let tools = Tools::new("tests", "1.0").tool("count", "", async |(): (), _| Ok(vec![1, 2]));
        let served = Served::new(&tools).await;
        let modern = call_tool(&served.link(Version::V2026_07_28), "count", json!({})).await;
        assert_eq!(modern["structuredContent"], json!([1, 2]));
        let legacy = served.link(Version::V2025_11_25);
        let result = call_tool(&legacy, "count", json!({})).await;
        assert_eq!(
            (result.get("structuredContent"), text(&result)),
            (None, "[1,2]")
        );
        let listed = crate::support::call(&legacy, "tools/list", json!({})).await;
        assert_eq!(listed["tools"][0].get("outputSchema"), None);
    });
}

#[test]
fn blocking_tool_does_not_block_the_runtime() {
    run(async {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let receiver = std::sync::Mutex::new(receiver);
        let tools = adder().blocking_tool("wait", "Waits", move |(): (), _| {
            receiver.lock().expect("one caller").recv()?;
            Ok("released")
        });
        let link = serve(&tools).await;
        let waiting = link.call_tool("wait", json!({})).start();
        for _ in 0..4 {
            let sum = link.call_tool("add", json!({"a": 1, "b": 1})).await;
            assert!(!sum.expect("it ran").is_error());
        }
        sender.send(()).expect("it waits");
        assert_eq!(waiting.await.expect("it ran").text(), "released");
    });
}

#[test]
fn panic_in_a_blocking_tool_is_an_internal_error() {
    run(async {
        let tools = Tools::new("tests", "1.0").blocking_tool("fall", "Panics", |(): (), _| {
            if true {
                panic!("on purpose");
            }
            Ok(())
        });
        let link = serve(&tools).await;
        let error = try_call(&link, "tools/call", json!({"name": "fall"})).await;
        assert_eq!(error.expect_err("it panicked").code, code::INTERNAL_ERROR);
    });
}

#[test]
fn progress_reaches_the_caller_and_cancellation_the_function() {
    run(async {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let tools = Tools::new("tests", "1.0").blocking_tool(
            "long",
            "Takes long",
            move |(): (), context| {
                context.progress(Progress::new(1.0).of(2.0));
                context.wait_cancelled();
                let _ = sender.send("cancelled");
                Ok(())
            },
        );
        let link = serve(&tools).await;
        let (reports, mut reported) = tokio::sync::mpsc::unbounded_channel();
        let call = link.call_tool("long", json!({}));
        let call = call.on_progress(move |report| drop(reports.send(report)));
        let call = tokio::spawn(call.start());
        let report = reported.recv().await.expect("a report");
        assert_eq!((report.progress, report.total), (1.0, Some(2.0)));
        call.abort();
        assert_eq!(receiver.recv().await, Some("cancelled"));
    });
}

#[test]
fn schema_that_is_written_by_hand_is_listed_and_checked() {
    run(async {
        let schema =
            json!({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]});
        let tool = Tool::new("raw").with_input_schema(schema.clone());
        let tools = Tools::new("tests", "1.0")
            .tool_as(tool, async |args: Value, _| Ok(args["id"].to_string()));
        let link = serve(&tools).await;
        let listed = crate::support::call(&link, "tools/list", json!({})).await;
        assert_eq!(listed["tools"][0]["inputSchema"], schema);
        let result = call_tool(&link, "raw", json!({})).await;
        assert!(text(&result).contains("`id` is missing"), "{result}");
        assert_eq!(
            text(&call_tool(&link, "raw", json!({"id": "a"})).await),
            "\"a\""
        );
    });
}

#[test]
#[should_panic(expected = "the arguments of the tool `list` are not an object")]
fn arguments_that_are_no_object_are_refused_at_registration() {
    let _ = Tools::new("tests", "1.0").tool("list", "", async |_: Vec<u8>, _| Ok(()));
}

#[test]
fn function_can_take_a_while() {
    run(async {
        let tools = Tools::new("tests", "1.0").tool("sleep", "Sleeps", async |(): (), _| {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok("awake")
        });
        assert_eq!(
            text(&call_tool(&serve(&tools).await, "sleep", json!({})).await),
            "awake"
        );
    });
}

#[test]
fn structured_content_of_a_reply_reaches_legacy_clients_only_as_an_object() {
    let tool = |name: &'static str, content: Value| {
        let mut result = CallToolResult::new(vec![Content::text("a")]);
        result.structured_content = Some(content);
        move |tools: Tools| {
            tools.tool(name, "", move |(): (), _| {
                std::future::ready(Ok(Reply::from(result.clone())))
            })
        }
    };
    let tools = tool("list", json!([1]))(Tools::new("tests", "1.0"));
    let tools = tool("object", json!({"a": 1}))(tools);
    run(async {
        let served = Served::new(&tools).await;
        let (legacy, modern) = (
            served.link(Version::V2025_11_25),
            served.link(Version::V2026_07_28),
        );
        let list = call_tool(&modern, "list", json!({})).await;
        assert_eq!(list["structuredContent"], json!([1]));
        let list = call_tool(&legacy, "list", json!({})).await;
        assert_eq!((list.get("structuredContent"), text(&list)), (None, "a"));
        for link in [legacy, modern] {
            let object = call_tool(&link, "object", json!({})).await;
            assert_eq!(object["structuredContent"], json!({"a": 1}));
        }
    });
}

#[test]
fn object_with_a_schema_by_hand_is_structured_content_for_legacy_clients() {
    run(async {
        let mut tool = Tool::new("t");
        tool.output_schema = Some(json!({"type": "object"}));
        let tools = Tools::new("tests", "1.0").tool_as(tool, async |(): (), _| Ok(json!({"n": 1})));
        let link = Served::new(&tools).await.link(Version::V2025_11_25);
        let result = call_tool(&link, "t", json!({})).await;
        assert_eq!(result["structuredContent"], json!({"n": 1}));
        let listed = crate::support::call(&link, "tools/list", json!({})).await;
        assert_eq!(
            listed["tools"][0]["outputSchema"],
            json!({"type": "object"})
        );
    });
}

/// The type is trusted, because comparing every result with its schema takes time.
#[test]
fn result_of_a_type_is_compared_with_its_schema_only_for_numbers_that_are_not_finite() {
    #[derive(Serialize, JsonSchema)]
    struct Wrong {
        #[schemars(with = "String")]
        text: u8,
        maybe: Option<f64>,
    }
    run(async {
        let tools = Tools::new("tests", "1.0").tool("t", "", async |maybe: Maybe, _| {
            Ok(Wrong {
                text: 1,
                maybe: maybe.maybe,
            })
        });
        let link = serve(&tools).await;
        for maybe in [json!(1.5), json!(null)] {
            let result = call_tool(&link, "t", json!({"maybe": maybe})).await;
            let expected = json!({"text": 1, "maybe": maybe});
            assert_eq!(result["structuredContent"], expected);
        }
    });
}

#[derive(Deserialize, JsonSchema)]
struct Maybe {
    maybe: Option<f64>,
}

#[test]
fn text_that_a_function_logs_reaches_its_client() {
    run(async {
        let tools =
            Tools::new("tests", "1.0")
                .with_logging()
                .tool("t", "", async |(): (), context| {
                    context.log_text(LogLevel::Warning, "it is late");
                    Ok(())
                });
        let link = Served::new(&tools)
            .await
            .link_with(Version::V2026_07_28, |config| {
                config.watch = Watch::none().and_logs(LogLevel::Info);
            });
        let mut events = link.events();
        call_tool(&link, "t", json!({})).await;
        loop {
            let event = events.recv().await.expect("the link lives");
            if let Event::Log { level, data, .. } = &*event {
                let logged = (*level, data.as_str());
                assert_eq!(logged, (LogLevel::Warning, r#""it is late""#));
                return;
            }
        }
    });
}

#[test]
fn function_sees_the_user_of_its_request() {
    run(async {
        let tools = Tools::new("tests", "1.0").tool("who", "", async |(): (), context| {
            Ok(format!("{:?}", context.user()))
        });
        let link = serve(&tools).await;
        assert_eq!(text(&call_tool(&link, "who", json!({})).await), "None");

        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
        let protection =
            Protection::fixed(async |token| (token == "t").then(|| Access::new("Ada", [""; 0])));
        let _service = serve_protected(listener, tools.config(), protection, tools.handler());
        let connector = Connector::new().with_bearer("t").expect("a token");
        let config = Config::http("tests", "1.0", &url).expect("a URL");
        let link = connector.connect(config).expect("a runtime");
        let who = call_tool(&link, "who", json!({})).await;
        assert_eq!(text(&who), "Some(\"Ada\")");
    });
}
