//! A scripted modern server, and links to it.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use everlink::{Config, Dialect, Watch};
use everlink_http::{CallError, Canceller, Connector, Link, ToolResult};
use serde_json::{Value, json};

use crate::listener::{Listener, Next, Request, serve_http};
use crate::serial::TIMEOUT;

/// Creates a server with this script for tool calls, and the default replies for everything else.
pub(crate) fn server(
    call: impl Fn(&Request, &mut dyn Write) -> io::Result<Next> + Send + Sync + 'static,
) -> Listener {
    Listener::new(serve_script(script_for_calls(call)))
}

/// Returns a function that serves HTTP on a connection with this script.
pub(crate) fn serve_script(
    script: impl Fn(&Request, &mut dyn Write) -> io::Result<Next> + Send + Sync + 'static,
) -> impl Fn(TcpStream) + Send + Sync + 'static {
    move |socket| {
        socket.set_nodelay(true).expect("a socket");
        // A client may disconnect at any time; the tests notice that themselves.
        let _ = serve_http(socket, &script);
    }
}

/// Returns a script that uses this one for tool calls, and the default replies for everything else.
pub(crate) fn script_for_calls(
    call: impl Fn(&Request, &mut dyn Write) -> io::Result<Next> + Send + Sync + 'static,
) -> impl Fn(&Request, &mut dyn Write) -> io::Result<Next> + Send + Sync + 'static {
    move |request: &Request, out: &mut dyn Write| match &*request.method() {
        "tools/call" => call(request, out),
        _ => reply(request, out),
    }
}

impl Request {
    pub(crate) fn message(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    pub(crate) fn method(&self) -> String {
        self.message()["method"].as_str().expect("a method").into()
    }

    /// Returns the reply to it with this result.
    pub(crate) fn with(&self, result: &Value) -> Value {
        json!({"jsonrpc": "2.0", "id": self.message()["id"], "result": result})
    }

    /// Returns a progress notification for it.
    pub(crate) fn progress(&self, progress: u32) -> Value {
        let token = &self.message()["params"]["_meta"]["progressToken"];
        let params = json!({"progressToken": token, "progress": progress});
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    }

    /// Returns the result that repeats its text.
    pub(crate) fn echo(&self) -> Value {
        text(
            self.message()["params"]["arguments"]["say"]
                .as_str()
                .expect("a text"),
        )
    }
}

pub(crate) fn text(text: &str) -> Value {
    json!({"resultType": "complete", "content": [{"type": "text", "text": text}]})
}

/// Sends the default reply, as JSON.
pub(crate) fn reply(request: &Request, out: &mut dyn Write) -> io::Result<Next> {
    let result = match &*request.method() {
        "server/discover" => json!({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "ttlMs": 0,
            "cacheScope": "private",
        }),
        "tools/call" => request.echo(),
        other => panic!("nobody asked for {other}"),
    };
    json(out, 200, "", &request.with(&result))
}

/// Sends a JSON response with these header fields.
pub(crate) fn json(
    out: &mut dyn Write,
    status: u16,
    fields: &str,
    body: &Value,
) -> io::Result<Next> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\n{fields}Content-Length: {}\r\n\r\n",
        body.len()
    );
    out.write_all((head + &body).as_bytes())?;
    Ok(Next::Another)
}

/// The head of an event stream.
pub(crate) const EVENTS: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Returns a chunk with one event that contains this message.
pub(crate) fn event(message: &Value) -> String {
    let event = format!("data: {message}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len())
}

/// The last chunk.
pub(crate) const END: &str = "0\r\n\r\n";

/// Returns the config of a link to a modern server that sends only what is requested, and that reconnects quickly.
pub(crate) fn config(url: &str) -> Config {
    let mut config = Config::http("test", "1", url).expect("an address");
    config.dialect = Dialect::Modern;
    config.watch = Watch::none();
    config.policy.keepalive = None;
    config.policy.retry.budget = u32::MAX;
    config.policy.retry.first = Duration::from_millis(20);
    config.policy.retry.floor = Duration::from_millis(10);
    config.policy.retry.cap = Duration::from_millis(100);
    config
}

pub(crate) fn link(url: &str) -> Link {
    connector().connect(config(url)).expect("a thread")
}

/// Ignores the proxies of the environment in which the tests run.
pub(crate) fn connector() -> Connector {
    Connector::new().without_proxy()
}

/// Calls the tool `echo` with this text and returns its result.
pub(crate) fn echo(link: &Link, text: &str) -> String {
    let result = link.call_tool("echo", json!({"say": text})).wait();
    result.expect("a reply").text()
}

/// Starts a call for which another thread waits. Returns after the server has reported progress.
pub(crate) fn call_in_flight(
    link: &Link,
) -> (Canceller, JoinHandle<Result<ToolResult, CallError>>) {
    let (progress_sender, progress_received) = mpsc::channel();
    let call = link.call_tool("echo", json!({"say": "hello"}));
    let call = call
        .on_progress(move |_| progress_sender.send(()).expect("a test"))
        .start();
    let canceller = call.canceller();
    let waiting = thread::spawn(|| call.wait());
    progress_received.recv_timeout(TIMEOUT).expect("a report");
    (canceller, waiting)
}

/// Returns a script that reports progress and then sends nothing until the client disconnects.
pub(crate) fn report_progress_and_wait(
    closed_sender: Sender<bool>,
) -> impl Fn(&Request, &mut dyn Write) -> io::Result<Next> + Send + Sync + 'static {
    move |request, out| {
        let begin = EVENTS.to_owned() + &event(&request.progress(1));
        out.write_all(begin.as_bytes())?;
        out.flush()?;
        Ok(Next::Wait(closed_sender.clone()))
    }
}
