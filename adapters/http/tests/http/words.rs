//! A modern server made of words, and links to it.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use everlink::{Config, Dialect, Watch};
use everlink_http::{CallError, Canceller, Connector, Link, ToolResult};
use serde_json::{Value, json};

use crate::quiet::PATIENCE;
use crate::site::{Request, Site, Then, speak};

/// A server that says this to a call of a tool, and what is to be said to anything else.
pub(crate) fn server(
    call: impl Fn(&Request, &mut dyn Write) -> io::Result<Then> + Send + Sync + 'static,
) -> Site {
    Site::new(whatever_comes(on_calls(call)))
}

/// What a site does with a connection over which HTTP is spoken by this script.
pub(crate) fn whatever_comes(
    script: impl Fn(&Request, &mut dyn Write) -> io::Result<Then> + Send + Sync + 'static,
) -> impl Fn(TcpStream) + Send + Sync + 'static {
    move |socket| {
        socket.set_nodelay(true).expect("a socket");
        // A client may be gone at any time, which is for the tests to see.
        let _ = speak(socket, &script);
    }
}

/// This script for calls of tools, and a good server's for the rest.
pub(crate) fn on_calls(
    call: impl Fn(&Request, &mut dyn Write) -> io::Result<Then> + Send + Sync + 'static,
) -> impl Fn(&Request, &mut dyn Write) -> io::Result<Then> + Send + Sync + 'static {
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

    /// The response to it with this result.
    pub(crate) fn with(&self, result: &Value) -> Value {
        json!({"jsonrpc": "2.0", "id": self.message()["id"], "result": result})
    }

    /// A report of how far it is.
    pub(crate) fn progress(&self, progress: u32) -> Value {
        let token = &self.message()["params"]["_meta"]["progressToken"];
        let params = json!({"progressToken": token, "progress": progress});
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    }

    /// What it is to be told: the text that it came with.
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

/// What a good server replies, as JSON.
pub(crate) fn reply(request: &Request, out: &mut dyn Write) -> io::Result<Then> {
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

/// A response of JSON with these fields.
pub(crate) fn json(
    out: &mut dyn Write,
    status: u16,
    fields: &str,
    body: &Value,
) -> io::Result<Then> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\n{fields}Content-Length: {}\r\n\r\n",
        body.len()
    );
    out.write_all((head + &body).as_bytes())?;
    Ok(Then::Another)
}

/// How a stream of events begins.
pub(crate) const EVENTS: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A chunk with an event that is this message.
pub(crate) fn event(message: &Value) -> String {
    let event = format!("data: {message}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len())
}

/// The last chunk.
pub(crate) const END: &str = "0\r\n\r\n";

/// A link to a modern server that says what it was asked for and no more, and that comes back soon.
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
    connector(url).connect().expect("a thread")
}

/// The environment of whoever runs the tests is none of their business.
pub(crate) fn connector(url: &str) -> Connector {
    Connector::new(config(url)).without_proxy()
}

/// What the server says to this, which it is to repeat.
pub(crate) fn say(link: &Link, text: &str) -> String {
    let result = link.call_tool("echo", json!({"say": text})).wait();
    result.expect("a reply").text()
}

/// A call that another thread waits for, and of which the server has said that it is under way.
pub(crate) fn under_way(link: &Link) -> (Canceller, JoinHandle<Result<ToolResult, CallError>>) {
    let (hear, heard) = mpsc::channel();
    let call = link.call_tool("echo", json!({"say": "hello"}));
    let call = call.on_progress(move |_| hear.send(()).expect("a test"));
    let canceller = call.canceller();
    let waiting = thread::spawn(|| call.wait());
    heard.recv_timeout(PATIENCE).expect("a report");
    (canceller, waiting)
}

/// What a server says that is at work: how far it is, and then nothing until the client is gone.
pub(crate) fn stay_at_work(
    leave: Sender<bool>,
) -> impl Fn(&Request, &mut dyn Write) -> io::Result<Then> + Send + Sync + 'static {
    move |request, out| {
        let begin = EVENTS.to_owned() + &event(&request.progress(1));
        out.write_all(begin.as_bytes())?;
        out.flush()?;
        Ok(Then::Wait(leave.clone()))
    }
}
