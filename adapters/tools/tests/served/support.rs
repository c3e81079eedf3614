//! What all tests share: a runtime, a served set, and links to it.

use std::future::Future;
use std::time::Duration;

use everlink::client::Event;
use everlink::protocol::{ClientCapabilities, Version, Versions};
use everlink::{Config, ErrorObject, Payload, Watch};
use everlink_tokio::{CallError, Link, Service, http};
use everlink_tools::Tools;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Long enough for the slowest computer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a test on a runtime with two threads.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    let test = async { tokio::time::timeout(TIMEOUT, test).await };
    runtime
        .expect("a runtime")
        .block_on(test)
        .expect("the test ends");
}

/// A served set.
pub(crate) struct Served {
    pub(crate) service: Service,
    url: String,
}

impl Served {
    pub(crate) async fn new(tools: &Tools) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
        let service = http::serve(listener, tools.config(), tools.handler());
        Served { service, url }
    }

    /// A served set that tells its clients of changes.
    pub(crate) async fn attached(tools: &Tools) -> Served {
        let served = Served::new(tools).await;
        tools.attach(&served.service);
        served
    }

    /// The host and port of the server.
    pub(crate) fn address(&self) -> &str {
        let (_, rest) = self.url.split_once("://").expect("a URL");
        rest.split_once('/').expect("a path").0
    }

    /// A link that speaks only this version.
    pub(crate) fn link(&self, version: Version) -> Link {
        self.link_with(version, |_| {})
    }

    pub(crate) fn link_with(&self, version: Version, change: impl FnOnce(&mut Config)) -> Link {
        let mut config = Config::http("tests", "1.0", &self.url).expect("a URL");
        config.versions = Versions::only(version);
        config.watch = Watch::none();
        config.capabilities = ClientCapabilities::default()
            .with_elicitation_form()
            .with_sampling()
            .with_roots(false);
        change(&mut config);
        http::connect(config).expect("a runtime")
    }
}

/// Serves a set, and returns a link to it that speaks the newest version.
pub(crate) async fn serve(tools: &Tools) -> Link {
    Served::new(tools).await.link(Version::V2026_07_28)
}

/// Calls a method, and returns the result as JSON.
pub(crate) async fn call(link: &Link, method: &'static str, params: Value) -> Value {
    let result = try_call(link, method, params).await;
    result.unwrap_or_else(|error| panic!("{method}: {} {}", error.code, error.text()))
}

/// Calls a method, and returns the result as JSON or the error of the server.
pub(crate) async fn try_call(
    link: &Link,
    method: &'static str,
    params: Value,
) -> Result<Value, ErrorObject> {
    let params = Payload::of(&params).expect("JSON");
    match link.call(method, Some(params)).await {
        Ok(result) => Ok(result.parse().expect("JSON")),
        Err(CallError::Error(error)) => Err((*error).clone()),
        Err(error) => panic!("{method}: {error}"),
    }
}

/// Calls a tool, and returns the result as JSON.
pub(crate) async fn call_tool(link: &Link, name: &str, arguments: Value) -> Value {
    let params = json!({"name": name, "arguments": arguments});
    call(link, "tools/call", params).await
}

/// The text of the first content block.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().expect("a text")
}

/// Answers all questions of the server with this value, and returns the parameters of the first one.
pub(crate) fn answer_with(link: &Link, answer: Value) -> tokio::task::JoinHandle<Value> {
    let (link, mut events) = (link.clone(), link.events());
    tokio::spawn(async move {
        loop {
            let event = events.recv().await.expect("the link lives");
            if let Event::Ask(ask) = &*event {
                let answer = Payload::of(&answer).expect("JSON");
                let _ = link.answer(ask.ask, Ok(answer)).await;
                let params = ask
                    .params
                    .as_ref()
                    .map(|params| params.parse().expect("JSON"));
                return params.unwrap_or_default();
            }
        }
    })
}
