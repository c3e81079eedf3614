//! Each end over HTTP with a scripted peer: a link whose server wants credentials, and a server whose client can fetch a reply later.

use everlink::client::FailureKind;
use everlink::http::{Fields, RequestHead, ResponseHead, Verb};
use everlink::protocol::ServerCapabilities;
use everlink::server::{self, Http, Offer, Server};
use everlink::{Config, Dialect, Epoch, Fault, Input, Instant, Output, StreamId};
use everlink_handle::{Call, CallError, Link, LinkOwner, Service, ServiceOwner, Task, ToolResult};
use serde_json::{Value, json};

use super::{poll_once, value_of};

const NO_FAULTS: &[Fault] = &[];

/// A link and the server that answers it.
struct WebLink {
    link: Link,
    owner: LinkOwner,
    /// Whether the server wants credentials for a call of a tool.
    wants_credentials: bool,
}

impl WebLink {
    /// A link with a call that the server refused for its credentials.
    fn unauthorized() -> (WebLink, Call<ToolResult>) {
        let config = Config::http("handles", "1.0", "https://mcp.example/mcp");
        let mut config = config.expect("a URL");
        config.dialect = Dialect::Legacy;
        let (link, owner) = Link::new(config);
        let mut web = WebLink {
            link,
            owner,
            wants_credentials: true,
        };
        let mut call = web.link.call_tool("say", json!({})).start();
        web.run();
        assert!(poll_once(&mut call).is_pending());
        (web, call)
    }

    fn run(&mut self) {
        let mut buf = Vec::new();
        self.owner.advance(Instant::ZERO);
        while let Some(output) = self.owner.poll_output(&mut buf) {
            match output {
                Output::Open { epoch } => {
                    self.owner.handle(Instant::ZERO, epoch, Input::Opened);
                }
                Output::Request {
                    epoch,
                    stream,
                    head,
                    ..
                } => {
                    let message = serde_json::from_slice(&buf).unwrap_or_default();
                    buf.clear();
                    let (status, body) = match head.verb {
                        Verb::Post => self.answer(&message),
                        _ => (405, Vec::new()),
                    };
                    self.respond(epoch, stream, status, body);
                }
                _ => {}
            }
        }
    }

    fn answer(&self, message: &Value) -> (u16, Vec<u8>) {
        let result = match message["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "server", "version": "1"},
            }),
            Some("tools/call") if self.wants_credentials => return (401, Vec::new()),
            _ => json!({"content": []}),
        };
        if message.get("id").is_none() {
            return (202, Vec::new());
        }
        let reply = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        (200, reply.to_string().into_bytes())
    }

    fn respond(&mut self, epoch: Epoch, stream: StreamId, status: u16, body: Vec<u8>) {
        let mut head = ResponseHead::new(status);
        head.fields.push("content-type", "application/json");
        let (head, bytes) = (Box::new(head), body.into());
        let faults = NO_FAULTS.into();
        for input in [
            Input::Response { stream, head },
            Input::Bytes { stream, bytes },
            Input::End { stream, faults },
        ] {
            self.owner.handle(Instant::ZERO, epoch, input);
        }
    }
}

#[test]
fn call_that_waits_for_credentials_goes_on_when_they_come() {
    let (mut web, call) = WebLink::unauthorized();
    web.wants_credentials = false;
    web.link.authorized();
    web.run();
    value_of(call).expect("a reply");
}

#[test]
fn call_that_waits_for_credentials_fails_with_the_reason_when_they_are_denied() {
    let (mut web, call) = WebLink::unauthorized();
    web.link.denied("the account is locked");
    web.run();
    let error = value_of(call).expect_err("there are no credentials");
    let CallError::Failed(failure) = &error else {
        panic!("{error}");
    };
    assert!(matches!(failure.kind, FailureKind::Unauthorized { .. }));
    assert!(
        error.to_string().contains("the account is locked"),
        "{error}"
    );
}

/// A server over HTTP.
struct WebServer {
    owner: ServiceOwner,
    last_stream: u64,
    session: Option<String>,
    tasks: Vec<Task>,
    /// The exchanges that the server ended.
    finished: Vec<StreamId>,
}

impl WebServer {
    fn post(&mut self, message: &Value) -> StreamId {
        let mut fields: Fields<'_> = [
            ("host", &b"localhost:8080"[..]),
            ("content-type", b"application/json"),
            ("accept", b"application/json, text/event-stream"),
        ]
        .into_iter()
        .collect();
        if let Some(session) = self.session.clone() {
            fields.push("mcp-session-id", session);
            fields.push("mcp-protocol-version", "2025-11-25");
        }
        self.last_stream += 1;
        let stream = StreamId::new(self.last_stream);
        let head = RequestHead::new(Verb::Post, "/mcp").with_fields(fields);
        let (head, bytes) = (Box::new(head), message.to_string().into_bytes().into());
        let faults = NO_FAULTS.into();
        for input in [
            Input::Request { stream, head },
            Input::Bytes { stream, bytes },
            Input::End { stream, faults },
        ] {
            self.owner.handle(Instant::ZERO, input);
        }
        self.run();
        stream
    }

    fn run(&mut self) {
        let mut buf = Vec::new();
        self.owner.advance(Instant::ZERO);
        while let Some(output) = self.owner.poll_output(&mut buf) {
            match output {
                Output::Event(task) => self.tasks.push(task),
                Output::Response {
                    stream, head, len, ..
                } => {
                    if let Some(session) = head.fields.get("mcp-session-id") {
                        self.session = Some(session.to_owned());
                    }
                    self.owner
                        .handle(Instant::ZERO, Input::Sent { stream, len });
                }
                Output::Write { stream, len, .. } => {
                    self.owner
                        .handle(Instant::ZERO, Input::Sent { stream, len });
                }
                Output::Finish { stream, .. } => self.finished.push(stream),
                _ => {}
            }
            buf.clear();
        }
    }
}

#[test]
fn hang_up_of_a_handler_ends_the_response_of_a_client_that_can_come_back() {
    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("handles", "1.0").with_capabilities(tools);
    let config = server::Config::new(offer, [7; 16]).with_http(Http::new());
    let (_service, owner) = Service::new(Server::new(config));
    let mut web = WebServer {
        owner,
        last_stream: 0,
        session: None,
        tasks: Vec::new(),
        finished: Vec::new(),
    };
    web.post(
        &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "client", "version": "1"},
        }}),
    );
    assert!(web.session.is_some(), "the handshake opens a session");
    web.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let params = json!({"name": "slow"});
    let stream =
        web.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}));
    assert!(!web.finished.contains(&stream));
    web.tasks[0].context.hang_up();
    web.run();
    assert!(web.finished.contains(&stream));
    assert!(!web.tasks[0].context.is_cancelled());
}
