//! Runs the example `typed_server` as a child process, on standard streams with threads and over HTTP with a token.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use everlink::Config;
use everlink::client::Event;
use everlink::protocol::ClientCapabilities;
use everlink_tools::types::{CallToolResult, ListToolsResult};
use serde_json::json;

/// The program of the example, which is built with the tests.
fn example() -> Command {
    let mut path: PathBuf = std::env::current_exe().expect("a path");
    path.pop();
    path.pop();
    Command::new(path.join("examples/typed_server"))
}

#[test]
fn blocking_and_async_tools_run_on_threads() {
    let link = everlink_stdio::connect(example(), Config::child("tests", "1.0")).expect("a thread");
    let sum = link
        .call_tool("add", json!({"a": 1, "b": 2}))
        .wait()
        .expect("it ran");
    let sum: CallToolResult = sum.payload().parse().expect("a result");
    assert_eq!(sum.structured_content, Some(json!({"sum": 3.0})));
    let found = link
        .call_tool("search", json!({"query": "Buy", "limit": 1}))
        .wait();
    assert_eq!(found.expect("it ran").text(), r#"{"titles":["Buy milk"]}"#);
    let refused = link
        .call_tool("search", json!({"query": "Buy", "limit": 0}))
        .wait();
    assert!(
        refused
            .expect("it answers")
            .text()
            .contains("`limit` must be at least 1, not 0")
    );
    let prompt = link
        .get_prompt("review", json!({"code": "x"}))
        .wait()
        .expect("it exists");
    assert!(prompt.as_str().contains("some language"));
    let notes = link.read_resource("notes://all").wait().expect("it exists");
    assert!(notes.as_str().contains("Call Ada"));
    let tools = link.call("tools/list", None).wait().expect("a list");
    let tools: ListToolsResult = tools.parse().expect("tools");
    let names: Vec<_> = tools.tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["add", "search", "clear"]);
    link.shutdown().wait().expect("it ends");
}

#[test]
fn tool_on_a_thread_asks_the_user_with_a_form() {
    let mut config = Config::child("tests", "1.0");
    config.capabilities = ClientCapabilities::default().with_elicitation_form();
    let link = everlink_stdio::connect(example(), config).expect("a thread");
    let mut events = link.events();
    let call = link.call_tool("clear", json!({})).start();
    let ask = loop {
        let event = everlink_stdio::wait(events.recv()).expect("the link lives");
        if let Event::Ask(ask) = &*event {
            break ask.ask;
        }
    };
    let answer = r#"{"action":"accept","content":{"sure":true}}"#;
    let answered = link.answer(ask, Ok(answer.parse().expect("JSON"))).wait();
    answered.expect("it was asked");
    assert_eq!(
        call.wait().expect("it ran").text(),
        "All notes are deleted."
    );
}

/// The example over HTTP. Dropping it kills the process.
struct HttpExample(Child);

impl Drop for HttpExample {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn http_server_lets_in_only_clients_with_the_token() {
    let mut command = example();
    command
        .arg("127.0.0.1:0")
        .env("TOKEN", "open-sesame")
        .stdout(Stdio::piped());
    let mut server = HttpExample(command.spawn().expect("the example is built"));
    let mut url = String::new();
    let output = server.0.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut url).expect("a URL");
    let config = || Config::http("tests", "1.0", url.trim()).expect("a URL");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let with_token = everlink_tokio::http::Connector::new()
            .with_bearer("open-sesame")
            .expect("a token");
        let link = with_token.connect(config()).expect("a runtime");
        let sum = link
            .call_tool("add", json!({"a": 1, "b": 2}))
            .await
            .expect("it ran");
        assert_eq!(sum.text(), r#"{"sum":3.0}"#);
        let link = everlink_tokio::http::connect(config()).expect("a runtime");
        let mut events = link.events();
        let _call = link.call_tool("add", json!({"a": 1, "b": 2})).start();
        while !matches!(
            &*events.recv().await.expect("the link lives"),
            Event::AuthRequired(_)
        ) {}
    });
}
