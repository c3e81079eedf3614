//! Steps of a server over HTTP with many clients.
#![allow(dead_code, reason = "each program that measures uses its own part")]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a driver that measures ignores outputs that it does not need"
)]

use core::ops::RangeInclusive;

use everlink::http::{Fields, RequestHead, Verb};
use everlink::protocol::{LogLevel, ServerCapabilities};
use everlink::server::{Config, Event, Http, Limits, Offer, Server};
use everlink::{Change, Input, Instant, Output, Payload, RequestId, StreamId};

use crate::meter::{Meter, REPEAT, UNLIMITED};

pub(crate) const NOW: Instant = Instant::ZERO;

pub(crate) const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

/// A machine with a server over HTTP on its host side.
pub(crate) trait HttpEndpoint {
    fn feed(&mut self, input: Input<'_>);

    /// Polls the next output of the HTTP side. Returns the request, too, if the output is the event of a request.
    fn poll(&mut self, buf: &mut Vec<u8>) -> Option<(Output<()>, Option<RequestId>)>;
}

impl HttpEndpoint for Server {
    fn feed(&mut self, input: Input<'_>) {
        self.handle(NOW, input);
    }

    fn poll(&mut self, buf: &mut Vec<u8>) -> Option<(Output<()>, Option<RequestId>)> {
        let mut request = None;
        let output = self.poll_output(buf)?;
        let output = output.and_then_event(|event| {
            if let Event::Request(asked) = event {
                request = Some(asked.request);
            }
            Some(())
        });
        Some((output?, request))
    }
}

/// An offer with every capability.
pub(crate) fn offer() -> Offer {
    let all = ServerCapabilities::default()
        .with_tools(true)
        .with_prompts(true)
        .with_resources(true, true)
        .with_logging();
    Offer::new("measured", "1.0").with_capabilities(all)
}

/// Limits that only bound the length of a single message.
pub(crate) fn unlimited() -> Limits {
    let mut limits = Limits::default();
    limits.requests = UNLIMITED;
    limits.queued_bytes = UNLIMITED;
    limits.all_queued_bytes = UNLIMITED;
    limits.undelivered_bytes = UNLIMITED;
    limits.asks = UNLIMITED;
    limits.listens = UNLIMITED;
    limits.watched_uris = UNLIMITED;
    limits.watched_bytes = UNLIMITED;
    limits.sessions = UNLIMITED;
    limits.exchanges = UNLIMITED;
    limits.body_bytes = UNLIMITED;
    limits
}

/// The clients of such a machine.
pub(crate) struct HttpClients<F> {
    pub(crate) endpoint: F,
    last: u64,
    buf: Vec<u8>,
    /// The id of the session that was opened last.
    session: Option<String>,
    /// The last request that the application received.
    pub(crate) request: Option<RequestId>,
}

/// A session with a GET stream.
pub(crate) struct Session {
    pub(crate) id: String,
}

impl<F: HttpEndpoint> HttpClients<F> {
    pub(crate) fn new(endpoint: F) -> HttpClients<F> {
        HttpClients {
            endpoint,
            last: 0,
            buf: Vec::new(),
            session: None,
            request: None,
        }
    }

    fn exchange(&mut self, verb: Verb, fields: &[(&str, &str)], body: &str) -> StreamId {
        self.last += 1;
        let stream = StreamId::new(self.last);
        let mut request_fields = Fields::new().and("host", "localhost");
        for (name, value) in fields {
            request_fields.push(*name, *value);
        }
        let head = Box::new(RequestHead::new(verb, "/mcp").with_fields(request_fields));
        self.endpoint.feed(Input::Request { stream, head });
        if !body.is_empty() {
            let bytes = body.as_bytes().into();
            self.endpoint.feed(Input::Bytes { stream, bytes });
        }
        let faults = Vec::new().into();
        self.endpoint.feed(Input::End { stream, faults });
        self.drain_outputs();
        stream
    }

    pub(crate) fn drain_outputs(&mut self) {
        while let Some((output, request)) = self.endpoint.poll(&mut self.buf) {
            self.request = request.or(self.request);
            match output {
                Output::Response {
                    stream, head, len, ..
                } => {
                    if let Some(id) = head.fields.get("mcp-session-id") {
                        self.session = Some(id.to_owned());
                    }
                    self.endpoint.feed(Input::Sent { stream, len });
                }
                Output::Write { stream, len, .. } => {
                    self.endpoint.feed(Input::Sent { stream, len });
                }
                _ => {}
            }
            self.buf.clear();
        }
    }

    /// Disconnects a client.
    pub(crate) fn disconnect(&mut self, stream: StreamId) {
        let faults = Vec::new().into();
        self.endpoint.feed(Input::WriteFailed { stream, faults });
        self.drain_outputs();
    }

    fn post_modern(&mut self, method: &str, name: &str, params: &str) -> StreamId {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params},{META}}}}}"#
        );
        let fields = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", method),
            ("mcp-name", name),
        ];
        let fields = &fields[..fields.len() - usize::from(name.is_empty())];
        self.exchange(Verb::Post, fields, &body)
    }

    /// Starts a modern listen of one resource.
    pub(crate) fn listen(&mut self, number: usize) -> StreamId {
        self.listen_to(number..=number)
    }

    /// Starts a modern listen of several resources.
    pub(crate) fn listen_to(&mut self, numbers: RangeInclusive<usize>) -> StreamId {
        let uris: Vec<String> = numbers.map(|number| format!("{:?}", uri(number))).collect();
        let uris = uris.join(",");
        let params = format!(r#""notifications":{{"resourceSubscriptions":[{uris}]}}"#);
        self.post_modern("subscriptions/listen", "", &params)
    }

    /// Starts a modern call.
    pub(crate) fn call(&mut self) -> StreamId {
        self.post_modern("tools/call", "echo", r#""name":"echo","arguments":{}"#)
    }

    fn post_in(&mut self, session: &str, body: &str) -> StreamId {
        let fields = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-session-id", session),
        ];
        self.exchange(Verb::Post, &fields, body)
    }

    /// Starts the handshake of a legacy client. Returns the id of its session.
    pub(crate) fn initialize(&mut self) -> String {
        let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}"#;
        let fields = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        self.exchange(Verb::Post, &fields, body);
        self.session.take().expect("a session begins")
    }

    /// Completes the handshake of a legacy client. Returns the id of its session.
    pub(crate) fn handshake(&mut self) -> String {
        let id = self.initialize();
        self.post_in(
            &id,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        );
        id
    }

    /// Opens the GET stream of a session.
    pub(crate) fn open_stream(&mut self, id: String) -> Session {
        let fields = [
            ("accept", "text/event-stream"),
            ("mcp-session-id", id.as_str()),
        ];
        self.exchange(Verb::Get, &fields, "");
        Session { id }
    }

    /// Subscribes a legacy client to a resource, or unsubscribes it.
    pub(crate) fn subscribe(&mut self, session: &str, verb: &str, number: usize) {
        let uri = uri(number);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"resources/{verb}","params":{{"uri":"{uri}"}}}}"#
        );
        self.post_in(session, &body);
    }

    pub(crate) fn call_in(&mut self, session: &Session) -> StreamId {
        self.post_in(
            &session.id,
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo"}}"#,
        )
    }

    fn set_level(&mut self, session: &Session, level: &str) {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{{"level":"{level}"}}}}"#
        );
        self.post_in(&session.id, &body);
    }

    /// Ends the session of a legacy client.
    pub(crate) fn end_session(&mut self, session: &Session) {
        let fields = [("mcp-session-id", session.id.as_str())];
        self.exchange(Verb::Delete, &fields, "");
    }
}

pub(crate) fn uri(number: usize) -> String {
    format!("file:///project/src/module/file{number:07}.rs")
}

pub(crate) fn change(number: usize) -> Change {
    Change::Resource {
        uri: uri(number).into(),
    }
}

pub(crate) fn result() -> Payload {
    r#"{"content":[]}"#.parse().expect("this is JSON")
}

/// Creates a server with these limits, and its clients.
pub(crate) fn clients_of_server(limits: Limits) -> HttpClients<Server> {
    let mut config = Config::new(offer(), [7; 16]).with_http(Http::new());
    config.limits = limits;
    HttpClients::new(Server::new(config))
}

/// A number above those of all existing objects.
pub(crate) const UNUSED: usize = 1_000_000;

/// Measures steps beside n modern listens of one resource each.
pub(crate) fn listens(meter: &mut Meter) {
    let mut clients = clients_of_server(unlimited());
    for number in 0..meter.n {
        clients.listen(number);
    }
    let mut streams = Vec::with_capacity(REPEAT);
    meter.round(|meter| {
        meter.step("server.http.listen-begins", |time| {
            streams.push(clients.listen(UNUSED + time));
        });
        meter.step("server.http.publish-to-one-listen", |time| {
            let sent = clients.endpoint.publish(NOW, change(UNUSED + time));
            sent.expect("the server offers it");
            clients.drain_outputs();
        });
        meter.step("server.http.listen-ends", |_| {
            let stream = streams.pop().expect("one is left");
            clients.disconnect(stream);
        });
    });
}

/// Measures steps beside n legacy sessions with one subscription each.
pub(crate) fn sessions(meter: &mut Meter) {
    let mut clients = clients_of_server(unlimited());
    for number in 0..meter.n {
        let id = clients.initialize();
        clients.subscribe(&id, "subscribe", number);
    }
    let mut ids = Vec::with_capacity(REPEAT);
    let mut sessions = Vec::with_capacity(REPEAT);
    meter.round(|meter| {
        meter.step("server.http.session-begins", |_| {
            ids.push(clients.handshake())
        });
        meter.step("server.http.session-stream-begins", |_| {
            let id = ids.pop().expect("one is left");
            sessions.push(clients.open_stream(id));
        });
        meter.step("server.http.subscribe", |time| {
            clients.subscribe(&sessions[time].id, "subscribe", UNUSED + time);
        });
        meter.step("server.http.publish-to-one-session", |time| {
            let sent = clients.endpoint.publish(NOW, change(UNUSED + time));
            sent.expect("the server offers it");
            clients.drain_outputs();
        });
        clients.set_level(&sessions[0], "debug");
        meter.step("server.http.log-to-one-session", |_| {
            let data = r#""words""#.parse().expect("this is JSON");
            let sent = clients.endpoint.log(NOW, None, LogLevel::Debug, None, data);
            sent.expect("the server offers it");
            clients.drain_outputs();
        });
        clients.call_in(&sessions[0]);
        let request = clients
            .request
            .take()
            .expect("the server received a request");
        meter.step("server.http.log-for-a-request-in-a-session", |_| {
            let data = r#""words""#.parse().expect("this is JSON");
            let sent = clients
                .endpoint
                .log(NOW, Some(request), LogLevel::Debug, None, data);
            sent.expect("the server offers it");
            clients.drain_outputs();
        });
        let done = clients.endpoint.respond(NOW, request, result());
        done.expect("the request is open");
        clients.drain_outputs();
        let mut requests = Vec::with_capacity(REPEAT);
        meter.step("server.http.call-in-a-session", |time| {
            clients.call_in(&sessions[time]);
            requests.extend(clients.request.take());
        });
        meter.step("server.http.reply-in-a-session", |time| {
            let done = clients.endpoint.respond(NOW, requests[time], result());
            done.expect("the request is open");
            clients.drain_outputs();
        });
        meter.step("server.http.set-level", |time| {
            clients.set_level(&sessions[time], "error");
        });
        meter.step("server.http.unsubscribe", |time| {
            clients.subscribe(&sessions[time].id, "unsubscribe", UNUSED + time);
        });
        meter.step("server.http.session-ends", |_| {
            let session = sessions.pop().expect("one is left");
            clients.end_session(&session);
        });
    });
}

/// Measures steps beside n modern calls that the application has not answered.
pub(crate) fn calls(meter: &mut Meter) {
    let mut clients = clients_of_server(unlimited());
    for _ in 0..meter.n {
        clients.call();
    }
    let mut calls = Vec::with_capacity(2 * REPEAT);
    meter.round(|meter| {
        meter.step("server.http.call", |_| {
            let stream = clients.call();
            calls.push((
                stream,
                clients
                    .request
                    .take()
                    .expect("the server received a request"),
            ));
        });
        meter.step("server.http.reply", |_| {
            let (_, request) = calls.pop().expect("one is left");
            let done = clients.endpoint.respond(NOW, request, result());
            done.expect("the request is open");
            clients.drain_outputs();
        });
        for _ in 0..REPEAT {
            calls.push((
                clients.call(),
                clients
                    .request
                    .take()
                    .expect("the server received a request"),
            ));
        }
        meter.step("server.http.client-of-a-call-leaves", |_| {
            let (stream, _) = calls.pop().expect("one is left");
            clients.disconnect(stream);
        });
    });
}
