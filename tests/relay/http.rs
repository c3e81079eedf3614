//! A relay with HTTP in front: many clients of different users, and one server that knows none of them.

use core::time::Duration;
use std::collections::BTreeMap;

use everlink::http::{ResponseHead, Url, Verb};
use everlink::relay::{Config, Relay, Side};
use everlink::server::{Http, Replay, SsePaths};
use everlink::{Epoch, ExitStatus, Fault, FaultKind, Input, Instant, Output, StreamId};
use serde_json::{Value, json};

use crate::server_http::{HttpRequest, Session, initialize_with, modern, seconds};

/// A relay, the clients in front of it, and one server behind it. The server is legacy by default. It answers the handshake by itself, and
/// tool calls when the test says so.
struct Harness {
    relay: Relay,
    now: Instant,
    exchanges: BTreeMap<StreamId, Exchange>,
    last_stream: u64,
    /// The present epoch of the server, and the messages that it received.
    epoch: Epoch,
    received: Vec<Value>,
    is_modern: bool,
    /// The code with which a legacy server refuses `server/discover`.
    discover_refusal: i64,
    /// Whether the server reads. While it does not, `unread_bytes` counts the bytes that the relay wrote.
    server_reads: bool,
    unread_bytes: usize,
    /// The name of the server.
    server_info: Value,
    /// The server's unanswered HTTP exchanges, the listen stream first.
    unanswered: Vec<StreamId>,
    /// The ids of the requests that came over HTTP.
    ids: BTreeMap<StreamId, Value>,
    /// The events of the relay, as text.
    events: Vec<String>,
}

struct Exchange {
    status: Option<u16>,
    session: Option<String>,
    body: Vec<u8>,
    is_over: bool,
    reads: bool,
    unread: usize,
}

impl Harness {
    fn new() -> Harness {
        Harness::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Config)) -> Harness {
        let mut config = Config::new(everlink::Config::child("relay", "1"), [7; 16]);
        config.downstream.http = Some(Http::new().with_sse(SsePaths::default()));
        change(&mut config);
        Harness {
            relay: Relay::new(config),
            now: Instant::ZERO,
            exchanges: BTreeMap::new(),
            last_stream: 0,
            epoch: Epoch::FIRST,
            received: Vec::new(),
            is_modern: false,
            discover_refusal: -32601,
            server_reads: true,
            unread_bytes: 0,
            server_info: json!({"name": "behind", "version": "1"}),
            unanswered: Vec::new(),
            ids: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    /// A relay with a modern server.
    fn with_modern_server() -> Harness {
        Harness {
            is_modern: true,
            ..Harness::with(|config| config.upstream.dialect = everlink::Dialect::Modern)
        }
    }

    /// Sends an HTTP request of a client.
    fn send(&mut self, http_request: &HttpRequest) -> StreamId {
        self.send_with(http_request, true)
    }

    /// Sends an HTTP request of a client; `reads` says whether the client reads the response.
    fn send_with(&mut self, http_request: &HttpRequest, reads: bool) -> StreamId {
        self.last_stream += 1;
        let stream = StreamId::new(self.last_stream);
        let exchange = Exchange {
            status: None,
            session: None,
            body: Vec::new(),
            is_over: false,
            reads,
            unread: 0,
        };
        self.exchanges.insert(stream, exchange);
        let (head, bytes) = (
            Box::new(http_request.head()),
            http_request.body.as_slice().into(),
        );
        let faults = (&[] as &[Fault]).into();
        for input in [
            Input::Request { stream, head },
            Input::Bytes { stream, bytes },
            Input::End { stream, faults },
        ] {
            self.relay.handle_downstream(self.now, input);
        }
        self.advance(Duration::from_millis(1));
        stream
    }

    /// Makes the client of an exchange disappear.
    fn disconnect(&mut self, stream: StreamId) {
        let exchange = self.exchanges.get_mut(&stream).unwrap();
        if !core::mem::replace(&mut exchange.is_over, true) {
            let faults = vec![Fault::new(FaultKind::Reset)].into();
            let input = Input::WriteFailed { stream, faults };
            self.relay.handle_downstream(self.now, input);
            self.drain_outputs();
        }
    }

    /// Makes the client of an exchange read everything that it has not read.
    fn read_all(&mut self, stream: StreamId) {
        let exchange = self.exchanges.get_mut(&stream).unwrap();
        exchange.reads = true;
        let len = core::mem::take(&mut exchange.unread);
        self.relay
            .handle_downstream(self.now, Input::Sent { stream, len });
        self.drain_outputs();
    }

    /// Opens a session of a legacy client with this user.
    fn open_session(&mut self, user: &str) -> Session {
        let capabilities = json!({"elicitation": {}, "roots": {}, "sampling": {}});
        self.open_session_with(user, &capabilities)
    }

    /// The same with these capabilities.
    fn open_session_with(&mut self, user: &str, capabilities: &Value) -> Session {
        let initialize = initialize_with("2025-11-25", capabilities);
        let stream = self.send(&initialize.by(Some(user)));
        let id = self.exchanges[&stream].session.clone();
        let session = Session::new(id.expect("a session"), "2025-11-25").by(Some(user));
        self.send(&session.notification("notifications/initialized", Value::Null));
        session
    }

    fn text(&self, stream: StreamId) -> &str {
        core::str::from_utf8(&self.exchanges[&stream].body).expect("a body is text")
    }

    /// The messages with this method that the server received.
    fn received(&self, method: &str) -> Vec<&Value> {
        let received = self.received.iter();
        received
            .filter(|message| message["method"] == method)
            .collect()
    }

    /// The parameters of the newest tool call, and its id at the server.
    fn newest_call(&self) -> (Value, Value) {
        let calls = self.received("tools/call");
        let newest = calls.last().expect("a call");
        (newest["params"].clone(), newest["id"].clone())
    }

    /// The result in the response to a modern client.
    fn result(&self, stream: StreamId) -> Value {
        let answer: Value = serde_json::from_str(self.text(stream)).expect("an answer");
        answer["result"].clone()
    }

    /// Makes the server answer the newest tool call.
    fn reply(&mut self, result: Value) {
        let id = self.newest_call().1;
        self.server_sends(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    /// Makes the server answer the newest request with this method.
    fn reply_to_newest(&mut self, method: &str, result: Value) {
        let newest = self.received(method).last().copied();
        let id = newest.expect("a request")["id"].clone();
        self.server_sends(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    /// The number of notifications of the server that the relay reported as not passed on.
    fn not_passed(&self, method: &str) -> usize {
        let text = format!("could not be passed on to the host: {method}");
        let events = self.events.iter();
        events.filter(|event| event.contains(&text)).count()
    }

    /// The number of replies to the server's ask with this id.
    fn replies_to_ask(&self, id: u64) -> usize {
        let received = self.received.iter();
        received
            .filter(|m| m["id"] == id && m.get("method").is_none())
            .count()
    }

    /// Makes the server send this message.
    fn server_sends(&mut self, message: Value) {
        self.relay_receives(self.epoch, &message);
        self.drain_outputs();
    }

    /// Makes the server send an ask that is meant for ann but does not name her.
    fn ask_for_ann(&mut self) {
        self.server_sends(
            json!({"jsonrpc": "2.0", "id": 77, "method": "elicitation/create", "params": {
                "message": "ann, what is your number?",
                "requestedSchema": {"type": "object", "properties": {}},
            }}),
        );
    }

    /// Replaces the server, and returns the capabilities that the next one is told.
    fn declared_to_the_next_server(&mut self) -> Value {
        self.kill_server();
        self.advance(seconds(60));
        let request = self.received("initialize").last().copied();
        request.expect("a handshake")["params"]["capabilities"].clone()
    }

    fn kill_server(&mut self) {
        let epoch = self.epoch;
        let status = ExitStatus::Code(1);
        self.relay
            .handle_upstream(self.now, epoch, Input::exited(status));
        self.relay.handle_upstream(self.now, epoch, Input::end(&[]));
        self.received.clear();
        self.drain_outputs();
    }

    fn advance(&mut self, span: Duration) {
        let goal = self.now + span;
        let mut steps = 0;
        self.drain_outputs();
        while let Some(deadline) = self.relay.poll_timeout().filter(|d| d.at <= goal) {
            steps += 1;
            assert!(steps < 10_000, "the relay spins: {deadline:?}");
            self.now = self.now.max(deadline.at);
            self.relay.handle_timeout(self.now);
            self.drain_outputs();
        }
        self.now = goal;
    }

    fn drain_outputs(&mut self) {
        let mut buf = Vec::new();
        while let Some((side, output)) = self.relay.poll_output(&mut buf) {
            if let Output::Event(event) = &output {
                self.events.push(event.to_string());
            }
            match side {
                Side::Downstream => self.handle_downstream_output(output, &mut buf),
                _ => self.handle_upstream_output(output, &mut buf),
            }
        }
    }

    fn handle_downstream_output<E>(&mut self, output: Output<E>, buf: &mut Vec<u8>) {
        match output {
            Output::Response {
                stream,
                head,
                len,
                is_whole,
                ..
            } => {
                let exchange = self.exchanges.get_mut(&stream).unwrap();
                assert_eq!(
                    exchange.status.replace(head.status),
                    None,
                    "a second response"
                );
                exchange.session = head.fields.get("mcp-session-id").map(str::to_owned);
                self.write(stream, &buf.split_off(buf.len() - len));
                self.exchanges.get_mut(&stream).unwrap().is_over = is_whole;
            }
            Output::Write { stream, len, .. } => {
                self.write(stream, &buf.split_off(buf.len() - len));
            }
            Output::Finish { stream, .. } | Output::Abort { stream, .. } => {
                let exchange = self.exchanges.get_mut(&stream).unwrap();
                let was_over = core::mem::replace(&mut exchange.is_over, true);
                assert!(!was_over || exchange.unread > 0, "{stream} ends twice");
            }
            _ => {}
        }
    }

    fn write(&mut self, stream: StreamId, bytes: &[u8]) {
        let exchange = self.exchanges.get_mut(&stream).unwrap();
        assert!(!exchange.is_over, "{stream} goes on after its end");
        exchange.body.extend_from_slice(bytes);
        let len = bytes.len();
        if exchange.reads {
            self.relay
                .handle_downstream(self.now, Input::Sent { stream, len });
        } else {
            exchange.unread += len;
        }
    }

    fn handle_upstream_output<E>(&mut self, output: Output<E>, buf: &mut Vec<u8>) {
        match output {
            Output::Open { epoch } => {
                self.epoch = epoch;
                self.relay.handle_upstream(self.now, epoch, Input::Opened);
            }
            Output::Write { epoch, len, .. } => {
                let line = buf.split_off(buf.len() - len);
                self.unread_bytes += len;
                self.acknowledge_writes(epoch);
                let message: Value = serde_json::from_slice(&line).expect("a line is JSON");
                self.reply_automatically(epoch, &message);
                self.received.push(message);
            }
            Output::Request {
                epoch,
                stream,
                head,
                len,
            } => {
                let body = buf.split_off(buf.len() - len);
                self.reply_over_http(epoch, stream, head.verb, &body);
            }
            Output::CloseWrite { epoch } => {
                let exited = Input::exited(ExitStatus::Code(0));
                self.relay.handle_upstream(self.now, epoch, exited);
                self.relay.handle_upstream(self.now, epoch, Input::end(&[]));
            }
            _ => {}
        }
    }

    fn acknowledge_writes(&mut self, epoch: Epoch) {
        if self.server_reads {
            let len = core::mem::take(&mut self.unread_bytes);
            self.relay
                .handle_upstream(self.now, epoch, Input::sent(len));
        }
    }

    /// Sends the server's automatic reply to a message, if there is one.
    fn reply_automatically(&mut self, epoch: Epoch, message: &Value) {
        if let Some(answer) = self.automatic_reply(message) {
            self.relay_receives(epoch, &answer);
        }
    }

    /// The same over HTTP.
    fn reply_over_http(&mut self, epoch: Epoch, stream: StreamId, verb: Verb, body: &[u8]) {
        let message: Value = serde_json::from_slice(body).unwrap_or_default();
        let answer = self.automatic_reply(&message);
        let is_request = message.get("id").is_some() && message.get("method").is_some();
        let (status, kind) = match verb {
            Verb::Get => (200, "text/event-stream"),
            Verb::Post if is_request => (200, "application/json"),
            _ => (202, "text/plain"),
        };
        let fields = [("content-type", kind), ("mcp-session-id", "s")];
        let fields = fields.map(|(name, value)| (name, value.as_bytes()));
        let head = ResponseHead::new(status).with_fields(fields.into_iter().collect());
        self.ids.insert(stream, message["id"].clone());
        self.received.push(message);
        if status == 200 && answer.is_none() {
            self.unanswered.push(stream);
        }
        if verb == Verb::Get || answer.is_some() || status == 202 {
            let head = Box::new(head);
            self.relay
                .handle_upstream(self.now, epoch, Input::Response { stream, head });
        }
        if let Some(answer) = &answer {
            let bytes = answer.to_string().into_bytes().into();
            self.relay
                .handle_upstream(self.now, epoch, Input::Bytes { stream, bytes });
        }
        if answer.is_some() || status == 202 {
            let faults = (&[] as &[Fault]).into();
            self.relay
                .handle_upstream(self.now, epoch, Input::End { stream, faults });
        }
    }

    /// Makes the server answer the newest HTTP request that it has not answered, with an empty result.
    fn answer_newest_over_http(&mut self) {
        let stream = self.unanswered.pop().expect("an unanswered request");
        let id = self.ids[&stream].clone();
        let fields = [("content-type", b"application/json" as &[u8])];
        let head = ResponseHead::new(200).with_fields(fields.into_iter().collect());
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": {}});
        let bytes = answer.to_string().into_bytes().into();
        let faults = (&[] as &[Fault]).into();
        for input in [
            Input::Response {
                stream,
                head: Box::new(head),
            },
            Input::Bytes { stream, bytes },
            Input::End { stream, faults },
        ] {
            self.relay.handle_upstream(self.now, self.epoch, input);
        }
        self.drain_outputs();
    }

    /// Makes the server send a message on the stream of the newest HTTP request that it has not answered.
    fn server_sends_on_newest(&mut self, message: &Value) {
        let stream = self.unanswered.pop().expect("an unanswered request");
        let fields = [("content-type", b"text/event-stream" as &[u8])];
        let head = Box::new(ResponseHead::new(200).with_fields(fields.into_iter().collect()));
        let bytes = format!("data: {message}\n\n").into_bytes().into();
        for input in [
            Input::Response { stream, head },
            Input::Bytes { stream, bytes },
        ] {
            self.relay.handle_upstream(self.now, self.epoch, input);
        }
        self.drain_outputs();
    }

    /// Makes the server refuse the newest HTTP request that it has not answered, because it wants credentials.
    fn refuse_newest_over_http(&mut self) {
        let stream = self.unanswered.pop().expect("an unanswered request");
        let head = Box::new(ResponseHead::new(401));
        let faults = (&[] as &[Fault]).into();
        for input in [
            Input::Response { stream, head },
            Input::End { stream, faults },
        ] {
            self.relay.handle_upstream(self.now, self.epoch, input);
        }
        self.drain_outputs();
    }

    fn automatic_reply(&self, message: &Value) -> Option<Value> {
        let outcome = match message["method"].as_str() {
            Some("server/discover") if self.is_modern => json!({"result": {
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": {
                    "tools": {"listChanged": true},
                    "resources": {"subscribe": true},
                    "logging": {},
                },
                "ttlMs": 0,
                "cacheScope": "private",
            }}),
            Some("initialize") => json!({"result": {
                "protocolVersion": "2025-11-25",
                "capabilities": {
                    "tools": {"listChanged": true},
                    "prompts": {"listChanged": true},
                    "resources": {"listChanged": true},
                    "logging": {},
                },
                "serverInfo": self.server_info,
            }}),
            Some("server/discover") => {
                json!({"error": {"code": self.discover_refusal, "message": "no"}})
            }
            Some("tools/list") => json!({"result": {"tools": []}}),
            Some("ping" | "logging/setLevel") => json!({"result": {}}),
            _ => return None,
        };
        let mut answer = outcome;
        answer["jsonrpc"] = "2.0".into();
        answer["id"] = message["id"].clone();
        Some(answer)
    }

    fn relay_receives(&mut self, epoch: Epoch, message: &Value) {
        let line = format!("{message}\n").into_bytes();
        self.relay
            .handle_upstream(self.now, epoch, Input::bytes(line));
    }

    fn finish(mut self) {
        self.relay.shutdown(self.now);
        self.advance(seconds(300));
        assert!(self.relay.is_closed(), "{:?}", self.relay);
        for (stream, exchange) in &self.exchanges {
            assert!(exchange.is_over, "{stream} never ends");
        }
    }
}

fn call(user: &str) -> HttpRequest {
    modern(1, "tools/call", json!({"name": user})).by(Some(user))
}

/// An ask that does not name its client goes to nobody if it could be for more than one client.
#[test]
fn refusal_of_server_discover_has_the_status_of_an_error_of_the_server() {
    for (code, status) in [(-32601, 404), (-32603, 200)] {
        let mut harness = Harness::new();
        harness.discover_refusal = code;
        // The first request waits for the server, the second one comes when the refusal is known.
        for id in [1, 2] {
            let stream = harness.send(&modern(id, "server/discover", json!({})));
            assert_eq!(harness.exchanges[&stream].status, Some(status), "{code}");
            let reply: Value = serde_json::from_str(harness.text(stream)).expect("a reply");
            assert_eq!(reply["error"], json!({"code": code, "message": "no"}));
        }
        harness.open_session("Ann");
        harness.finish();
    }
}

#[test]
fn ask_that_could_be_for_several_clients_is_sent_to_none() {
    let mut harness = Harness::new();
    let (ann, eve) = (harness.open_session("ann"), harness.open_session("eve"));
    let asked = |session: &Session| session.post(1, "tools/call", json!({"name": "x"}));
    let streams = [
        harness.send(&asked(&ann)),
        harness.send(&asked(&eve)),
        harness.send(&call("ann")),
        harness.send(&call("eve")),
    ];
    harness.ask_for_ann();
    assert_eq!(harness.replies_to_ask(77), 1, "the server gets an error");
    for stream in streams {
        assert!(!harness.text(stream).contains("your number"));
    }
    harness.finish();
}

/// With only one client, the ask can only be for that client.
#[test]
fn ask_is_sent_to_the_only_client() {
    for is_modern in [true, false] {
        let mut harness = Harness::new();
        let ann = harness.open_session("ann");
        let legacy = ann.post(1, "tools/call", json!({"name": "x"}));
        let ask = if is_modern { call("ann") } else { legacy };
        let stream = harness.send(&ask);
        harness.ask_for_ann();
        assert!(harness.text(stream).contains("your number"));
        harness.send(&ann.delete());
        assert_eq!(harness.replies_to_ask(77), usize::from(!is_modern));
        harness.finish();
    }
}

/// An unassigned ask does not go to the next client that connects.
#[test]
fn unassigned_ask_is_not_sent_to_the_next_client() {
    let mut harness = Harness::new();
    harness.open_session("bob"); // Bob supports asks, so the server may ask.
    let no_capabilities = json!({"io.modelcontextprotocol/clientCapabilities": {}});
    let params = json!({"name": "x", "_meta": no_capabilities});
    harness.send(&modern(1, "tools/call", params).by(Some("ann")));
    harness.ask_for_ann();
    let eve = harness.send(&call("eve"));
    assert!(!harness.text(eve).contains("your number"));
    harness.finish();
}

/// An ask for a client that has left goes to nobody, even if the server does not know yet that it left.
#[test]
fn ask_for_a_client_that_left_is_sent_to_no_other_client() {
    let mut harness = Harness::new();
    harness.open_session("bob");
    let ann = harness.send(&call("ann"));
    let eve = harness.send(&call("eve"));
    harness.disconnect(ann);
    harness.ask_for_ann();
    assert!(!harness.text(eve).contains("your number"));
    harness.finish();
}

/// The same holds if the only present client has left an earlier call of its own.
#[test]
fn ask_for_a_client_that_left_is_not_sent_to_another_that_left_and_returned() {
    let mut harness = Harness::new();
    harness.open_session("bob");
    for name in ["dan", "ann", "eve"] {
        let call_stream = harness.send(&call(name));
        harness.disconnect(call_stream);
    }
    let eve = harness.send(&call("eve"));
    harness.ask_for_ann();
    assert!(!harness.text(eve).contains("your number"));
    assert_eq!(harness.replies_to_ask(77), 1);
    harness.finish();
}

/// A restarted server sends no asks for the calls of the previous one.
#[test]
fn clients_that_left_are_forgotten_after_a_server_restart() {
    let mut harness = Harness::new();
    harness.open_session("bob");
    let ann = harness.send(&call("ann"));
    harness.disconnect(ann);
    harness.kill_server();
    harness.advance(seconds(5));
    let eve = harness.send(&call("eve"));
    harness.ask_for_ann();
    assert!(harness.text(eve).contains("your number"));
    harness.finish();
}

/// The server may ask as soon as it has read the call.
#[test]
fn ask_for_a_call_that_waited_for_the_next_server_reaches_its_client() {
    let mut harness = Harness::new();
    harness.open_session("bob");
    harness.send(&call("eve"));
    harness.kill_server();
    let ann = harness.send(&call("ann"));
    harness.advance(seconds(5));
    assert_eq!(harness.newest_call().0["name"], "ann");
    harness.ask_for_ann();
    assert!(harness.text(ann).contains("your number"));
    harness.finish();
}

/// A session over HTTP can survive lost contact. The server may still send an ask for a client whose call was lost.
#[test]
fn ask_in_a_resumed_http_session_is_not_sent_to_another_client_after_a_lost_call() {
    let mut harness = Harness::with(|config| {
        let upstream = everlink::Config::http("relay", "1", "http://behind.example/mcp");
        config.upstream = upstream.expect("a URL");
    });
    let ann = harness.open_session("ann");
    let ann = harness.send(&ann.post(1, "tools/call", json!({"name": "x"})));
    let lost = *harness.unanswered.last().expect("her call");
    let faults = vec![Fault::new(FaultKind::Reset)].into();
    let input = Input::End {
        stream: lost,
        faults,
    };
    let before = harness.epoch;
    harness.relay.handle_upstream(harness.now, before, input);
    harness.advance(seconds(10));
    assert!(harness.epoch > before, "the relay reconnected");
    assert_eq!(
        harness.received("initialize").len(),
        1,
        "in the same session"
    );
    assert!(harness.exchanges[&ann].is_over, "her call may have run");

    let eve = harness.send(&call("eve"));
    let server_ask = json!({"jsonrpc": "2.0", "id": 77, "method": "elicitation/create", "params": {
        "message": "ann, what is your number?",
        "requestedSchema": {"type": "object", "properties": {}},
    }});
    let bytes = format!("data: {server_ask}\n\n").into_bytes().into();
    let listen_stream = harness.unanswered[harness.unanswered.len() - 2];
    let input = Input::Bytes {
        stream: listen_stream,
        bytes,
    };
    harness
        .relay
        .handle_upstream(harness.now, harness.epoch, input);
    harness.drain_outputs();
    assert_eq!(harness.replies_to_ask(77), 1, "the server gets an error");
    assert!(!harness.text(eve).contains("your number"));
    harness.finish();
}

/// The ask and the cancellation of its request arrive in the same step.
#[test]
fn ask_for_a_request_that_its_client_cancels_is_refused() {
    let mut harness = Harness::with(|config| {
        let upstream = everlink::Config::http("relay", "1", "http://behind.example/mcp");
        config.upstream = upstream.expect("a URL");
    });
    let ann = harness.open_session("ann");
    let call = harness.send(&ann.post(1, "tools/call", json!({"name": "x"})));
    let stream = harness.unanswered.pop().expect("her call");
    let fields = [("content-type", b"text/event-stream" as &[u8])];
    let head = Box::new(ResponseHead::new(200).with_fields(fields.into_iter().collect()));
    let server_ask = json!({"jsonrpc": "2.0", "id": 77, "method": "elicitation/create", "params": {
        "message": "what is your number?",
        "requestedSchema": {"type": "object", "properties": {}},
    }});
    let bytes = format!("data: {server_ask}\n\n").into_bytes().into();
    for input in [
        Input::Response { stream, head },
        Input::Bytes { stream, bytes },
    ] {
        harness
            .relay
            .handle_upstream(harness.now, harness.epoch, input);
    }
    let cancelled = json!({"requestId": 1});
    harness.send(&ann.notification("notifications/cancelled", cancelled));
    assert_eq!(harness.replies_to_ask(77), 1, "the server gets an error");
    assert!(!harness.text(call).contains("your number"));
    harness.finish();
}

/// A server on a byte stream does not name the request of an ask. If the request that the relay chose is cancelled, the ask may belong to another one.
#[test]
fn ask_moves_to_another_request_when_the_chosen_one_is_cancelled() {
    let mut harness = Harness::new();
    let ann = harness.open_session("ann");
    let calls = [1, 2].map(|id| harness.send(&ann.post(id, "tools/call", json!({"name": "x"}))));
    harness.ask_for_ann();
    let asks =
        |harness: &Harness| calls.map(|call| harness.text(call).matches("your number").count());
    assert_eq!(asks(&harness), [0, 1]);
    let cancelled = json!({"requestId": 2});
    harness.send(&ann.notification("notifications/cancelled", cancelled));
    assert_eq!(asks(&harness), [1, 1]);
    assert_eq!(harness.replies_to_ask(77), 0, "the ask is open");
    harness.finish();
}

/// A host that can show pages gets the page of the sign-in as an elicitation, and is told when somebody has signed in. Other hosts get a text.
#[test]
fn sign_in_page_is_shown_by_hosts_that_can_show_pages() {
    let mut harness = Harness::with(|config| {
        let upstream = everlink::Config::http("relay", "1", "http://behind.example/mcp");
        config.upstream = upstream.expect("a URL");
    });
    let ann = harness.open_session_with("ann", &json!({"elicitation": {"url": {}}}));
    let eve = harness.open_session("eve");
    let listens = [harness.send(&ann.get()), harness.send(&eve.get())];
    let page = Url::parse("https://as.example/authorize?state=1").expect("a URL");
    for round in 1..=2 {
        // The second call waits, because the server wants credentials now.
        let call = json!({"name": "x"});
        let of_ann = harness.send(&ann.post(round, "tools/call", call.clone()));
        harness.refuse_newest_over_http();
        let of_eve = harness.send(&eve.post(round, "tools/call", call));
        let why = "sign in at https://as.example/authorize?state=1 and then call again";
        let now = harness.now;
        harness.relay.denied_until_sign_in(now, &page, why);
        harness.drain_outputs();
        let [of_ann, of_eve] = [of_ann, of_eve].map(|call| harness.text(call).to_owned());
        let error = of_ann.lines().find_map(|line| line.strip_prefix("data: {"));
        let error = error.map_or(of_ann.clone(), |rest| format!("{{{rest}"));
        let error: Value = serde_json::from_str(&error).expect("a reply");
        assert_eq!(error["error"]["code"], -32042, "{error}");
        assert_eq!(error["error"]["message"], why);
        let visit = format!("everlink-sign-in-{round}");
        assert_eq!(
            error["error"]["data"]["elicitations"],
            json!([{"mode": "url", "elicitationId": visit, "url": page.as_str(), "message": why}])
        );
        assert!(
            of_eve.contains(why) && !of_eve.contains("-32042"),
            "{of_eve}"
        );

        harness.relay.authorized(harness.now);
        harness.drain_outputs();
        let [told, untold] = listens.map(|listen| harness.text(listen));
        assert!(told.contains(&visit), "{told}");
        assert!(!untold.contains("elicitation"), "{untold}");
    }
    let call = harness.send(&ann.post(9, "tools/call", json!({"name": "x"})));
    harness.answer_newest_over_http();
    assert!(harness.text(call).contains("result"));
    harness.finish();
}

/// The owner of a relay may say several times that somebody has to sign in, at the same page or at another one.
#[test]
fn hosts_are_told_the_end_of_each_sign_in_page_that_they_were_shown() {
    let mut harness = Harness::with(|config| {
        let upstream = everlink::Config::http("relay", "1", "http://behind.example/mcp");
        config.upstream = upstream.expect("a URL");
    });
    let ann = harness.open_session_with("ann", &json!({"elicitation": {"url": {}}}));
    let listen = harness.send(&ann.get());
    for (id, page, visit) in [(1, "a", 1), (2, "a", 1), (3, "b", 2)] {
        let call = harness.send(&ann.post(id, "tools/call", json!({"name": "x"})));
        harness.refuse_newest_over_http();
        let page = format!("https://as.example/{page}");
        let page = Url::parse(&page).expect("a URL");
        let now = harness.now;
        harness.relay.denied_until_sign_in(now, &page, "sign in");
        harness.drain_outputs();
        let visit = format!(r#""elicitationId":"everlink-sign-in-{visit}""#);
        let text = harness.text(call);
        assert!(text.contains(&visit), "{text}");
    }
    harness.relay.authorized(harness.now);
    harness.drain_outputs();
    harness.relay.authorized(harness.now);
    harness.drain_outputs();
    let told = harness.text(listen);
    let ends = told.matches("notifications/elicitation/complete").count();
    assert_eq!(ends, 2, "{told}");
    for visit in ["everlink-sign-in-1", "everlink-sign-in-2"] {
        assert!(told.contains(visit), "{told}");
    }
    harness.finish();
}

/// The owner of a relay may learn that signing in is of no use any more.
#[test]
fn sign_in_page_is_not_shown_after_credentials_are_denied_without_a_page() {
    let mut harness = Harness::with(|config| {
        let upstream = everlink::Config::http("relay", "1", "http://behind.example/mcp");
        config.upstream = upstream.expect("a URL");
    });
    let ann = harness.open_session_with("ann", &json!({"elicitation": {"url": {}}}));
    let page = Url::parse("https://as.example/authorize").expect("a URL");
    for (id, has_page) in [(1, true), (2, false)] {
        let call = harness.send(&ann.post(id, "tools/call", json!({"name": "x"})));
        harness.refuse_newest_over_http();
        let now = harness.now;
        if has_page {
            harness.relay.denied_until_sign_in(now, &page, "sign in");
        } else {
            harness.relay.denied(now, "this account is locked");
        }
        harness.drain_outputs();
        let text = harness.text(call);
        assert_eq!(text.contains("-32042"), has_page, "{text}");
        assert_eq!(text.contains("this account is locked"), !has_page, "{text}");
    }
    harness.finish();
}

/// The relay itself has no credentials. Its owner says whether there are any.
#[test]
fn call_that_waits_for_credentials_fails_when_they_are_denied_and_goes_on_when_they_come() {
    for is_denied in [true, false] {
        let mut harness = Harness::with(|config| {
            let upstream = everlink::Config::http("relay", "1", "http://behind.example/mcp");
            config.upstream = upstream.expect("a URL");
        });
        let ann = harness.open_session_with("ann", &json!({"elicitation": {"url": {}}}));
        let call = harness.send(&ann.post(1, "tools/call", json!({"name": "x"})));
        harness.refuse_newest_over_http();
        assert!(!harness.exchanges[&call].is_over, "it waits");
        if is_denied {
            let why = "the administrator locked this account";
            harness.relay.denied(harness.now, why);
            harness.drain_outputs();
            assert!(harness.exchanges[&call].is_over);
            let text = harness.text(call);
            assert!(text.contains(why), "{text}");
            assert!(!text.contains("-32042"), "there is no page: {text}");
        } else {
            harness.relay.authorized(harness.now);
            harness.drain_outputs();
            harness.answer_newest_over_http();
            assert!(harness.text(call).contains("result"));
        }
        harness.finish();
    }
}

/// The relay remembers clients that left until the server ends, because the server may send an ask at any time.
#[test]
fn client_that_left_is_remembered_until_the_server_ends() {
    let mut harness = Harness::new();
    harness.open_session("bob");
    for name in ["ann", "eve"] {
        let call_stream = harness.send(&call(name));
        harness.disconnect(call_stream);
    }
    harness.advance(seconds(3_600));
    let dan = harness.send(&call("dan"));
    harness.ask_for_ann();
    assert!(!harness.text(dan).contains("your number"));
    assert_eq!(harness.replies_to_ask(77), 1);
    harness.finish();
}

/// A server may send an ask for a call that it has already answered. The only open call then belongs to another client,
/// which must not get the ask.
#[test]
fn ask_after_the_reply_reaches_no_other_client() {
    let late = json!({
        "message": "ann, confirm the payment",
        "requestedSchema": {"type": "object", "properties": {}},
    });
    let of_task = json!({
        "message": "ann, confirm the payment",
        "requestedSchema": {"type": "object", "properties": {}},
        "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "of-ann"}},
    });
    for params in [late, of_task] {
        let mut harness = Harness::new();
        let (ann, eve) = (harness.open_session("ann"), harness.open_session("eve"));
        harness.send(&ann.post(1, "tools/call", json!({"name": "x"})));
        harness.reply(json!({"content": []}));
        let others = [
            harness.send(&eve.get()),
            harness.send(&eve.post(1, "tools/call", json!({"name": "y"}))),
        ];
        let server_ask =
            json!({"jsonrpc": "2.0", "id": 78, "method": "elicitation/create", "params": params});
        harness.server_sends(server_ask);
        for other in others {
            assert!(!harness.text(other).contains("confirm the payment"));
        }
        let answer = harness.received.iter().find(|message| message["id"] == 78);
        let error = answer.expect("an answer")["error"]["message"].to_string();
        assert!(error.contains("nobody was asked"), "{error}");
        let reports = harness.events.iter();
        let reports = reports.filter(|event| event.contains("nobody was asked"));
        assert_eq!(reports.count(), 1, "{:?}", harness.events);
        harness.finish();
    }
}

/// If the server has had only one client, a late ask is for that client.
#[test]
fn ask_after_the_reply_reaches_the_only_client() {
    let mut harness = Harness::new();
    let ann = harness.open_session("ann");
    let listen_stream = harness.send(&ann.get());
    harness.send(&ann.post(1, "tools/call", json!({"name": "x"})));
    harness.reply(json!({"content": []}));
    harness.ask_for_ann();
    assert!(harness.text(listen_stream).contains("your number"));
    harness.send(&ann.delete());
    assert_eq!(harness.replies_to_ask(77), 1);
    harness.finish();
}

/// A server asks for the roots of the client that reported a change, without naming it. A notification from another client
/// therefore counts, too.
#[test]
fn ask_reaches_no_client_after_a_notification_of_another_client() {
    let mut harness = Harness::new();
    let (ann, eve) = (harness.open_session("ann"), harness.open_session("eve"));
    let call_stream = harness.send(&ann.post(1, "tools/call", json!({"name": "x"})));
    harness.send(&eve.notification("notifications/roots/list_changed", Value::Null));
    harness.ask_for_ann();
    assert!(!harness.text(call_stream).contains("your number"));
    assert_eq!(harness.replies_to_ask(77), 1);
    harness.finish();
}

/// The next server hears of a client by a notification that waited for it, too.
#[test]
fn ask_reaches_no_client_after_another_one_notified_the_server_that_was_to_come() {
    for has_call in [true, false] {
        let mut harness = Harness::new();
        let (ann, eve) = (harness.open_session("ann"), harness.open_session("eve"));
        harness.kill_server();
        harness.send(&eve.notification("notifications/roots/list_changed", Value::Null));
        let ann = has_call.then(|| harness.send(&ann.post(1, "tools/call", json!({"name": "x"}))));
        let eve = harness.send(&eve.get());
        harness.advance(seconds(60));
        let notified = harness.received("notifications/roots/list_changed");
        assert_eq!(notified.len(), 1);
        harness.ask_for_ann();
        if let Some(ann) = ann {
            assert!(!harness.text(ann).contains("your number"));
        }
        assert_eq!(harness.text(eve).contains("your number"), !has_call);
        assert_eq!(harness.replies_to_ask(77), usize::from(has_call));
        harness.finish();
    }
}

/// A peer cannot exceed the limits: the capabilities that all clients declare to the server have a common size limit,
/// whatever the clients make up.
#[test]
fn capabilities_of_all_clients_together_are_bounded() {
    let mut harness = Harness::new();
    for number in 0..20 {
        let made_up = json!({format!("{number}-{}", "x".repeat(30 << 10)): {}});
        harness.send(&initialize_with(
            "2025-11-25",
            &json!({"experimental": made_up}),
        ));
    }
    let declared = harness.declared_to_the_next_server().to_string();
    assert!(declared.len() <= 64 << 10, "{} bytes", declared.len());
    assert!(declared.len() > 30 << 10, "as many as fit are declared");
    harness.finish();
}

/// A server may send any ask that one of the clients can answer, so it is told of all of them.
#[test]
fn server_is_told_the_capabilities_of_all_clients() {
    let mut harness = Harness::new();
    harness.open_session_with("ann", &json!({"roots": {}}));
    harness.open_session_with("eve", &json!({"sampling": {}}));
    let declared = harness.declared_to_the_next_server();
    assert_eq!(declared, json!({"roots": {}, "sampling": {}}));
    harness.finish();
}

/// The limit is inclusive.
#[test]
fn capabilities_of_exactly_the_limit_are_declared() {
    let made_up =
        |name: &str, bytes: usize| json!({"experimental": {name: {"x": "x".repeat(bytes)}}});
    let both = json!({"experimental": {"a": {"x": "x".repeat(900)}, "b": {"x": "x".repeat(900)}}});
    for (spare, is_declared) in [(0, true), (1, false)] {
        let limit = both.to_string().len() - spare;
        let mut harness = Harness::with(|config| config.downstream.limits.peer_bytes = limit);
        harness.open_session_with("ann", &made_up("a", 900));
        harness.open_session_with("eve", &made_up("b", 900));
        let declared = harness.declared_to_the_next_server();
        assert_eq!(declared == both, is_declared, "{declared}");
        harness.finish();
    }
}

/// Lists may differ between users. The list that one client read says nothing about another's.
#[test]
fn list_that_two_clients_read_is_announced_to_both_after_a_restart() {
    let mut harness = Harness::new();
    let (ann, eve) = (harness.open_session("ann"), harness.open_session("eve"));
    let (ann_stream, eve_stream) = (harness.send(&ann.get()), harness.send(&eve.get()));
    for (session, tools) in [(&ann, json!([{"name": "pay"}])), (&eve, json!([]))] {
        harness.send(&session.post(1, "tools/list", json!({})));
        let id = harness.received("tools/list").last().expect("a list")["id"].clone();
        harness.server_sends(json!({"jsonrpc": "2.0", "id": id, "result": {"tools": tools}}));
    }
    harness.kill_server();
    harness.advance(seconds(5));
    harness.send(&ann.post(2, "ping", json!({})));
    // The new server has the list that eve read last.
    if let Some(list) = harness.received("tools/list").last() {
        let id = list["id"].clone();
        harness.server_sends(json!({"jsonrpc": "2.0", "id": id, "result": {"tools": []}}));
    }
    for stream in [ann_stream, eve_stream] {
        assert!(harness.text(stream).contains("tools/list_changed"));
    }
    harness.finish();
}

/// A log message for one client is not sent to the others.
#[test]
fn log_message_for_one_client_is_not_sent_to_others() {
    let mut harness = Harness::new();
    let (ann, eve) = (harness.open_session("ann"), harness.open_session("eve"));
    let stream = harness.send(&eve.get());
    harness.send(&ann.post(1, "tools/call", json!({"name": "x"})));
    harness.server_sends(
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {
            "level": "error", "data": "ann's own",
        }}),
    );
    assert!(!harness.text(stream).contains("ann's own"));
    harness.server_sends(json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
    assert!(
        harness.text(stream).contains("list_changed"),
        "this notification is for all clients"
    );
    harness.finish();
}

/// The server sees all clients as one, so a changed list is for all of them.
#[test]
fn changed_lists_are_announced_to_all_clients() {
    let mut harness = Harness::new();
    let sessions = [harness.open_session("ann"), harness.open_session("eve")];
    let streams = [0, 1].map(|at: usize| harness.send(&sessions[at].get()));
    for session in &sessions {
        harness.send(&session.post(1, "tools/call", json!({"name": "x"})));
    }
    for list in ["tools", "prompts", "resources"] {
        let method = format!("notifications/{list}/list_changed");
        harness.server_sends(json!({"jsonrpc": "2.0", "method": method}));
        for stream in streams {
            assert!(harness.text(stream).contains(&method));
        }
        assert_eq!(harness.not_passed(&method), 0);
    }
    harness.finish();
}

/// A server may report a resource without a subscription. The report goes to the only client, or to nobody if there are
/// several.
#[test]
fn resource_update_without_subscription_is_sent_only_if_there_is_one_client() {
    for is_alone in [true, false] {
        let mut harness = Harness::new();
        let ann = harness.open_session("ann");
        let listen_stream = harness.send(&ann.get());
        harness.send(&ann.post(1, "tools/call", json!({"name": "x"})));
        if !is_alone {
            let eve = harness.open_session("eve");
            harness.send(&eve.post(1, "tools/call", json!({"name": "x"})));
        }
        harness.server_sends(
            json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {
                "uri": "a:b", "_meta": {"x": 1},
            }}),
        );
        assert_eq!(harness.text(listen_stream).contains("a:b"), is_alone);
        let not_passed = harness.not_passed("notifications/resources/updated");
        assert_eq!(not_passed, usize::from(!is_alone));
        harness.finish();
    }
}

/// The Python SDK 1 serves subscriptions and declares that it does not.
#[test]
fn updates_reach_subscribers_of_a_server_that_does_not_declare_subscriptions() {
    let mut harness = Harness::new();
    let (ann, eve) = (harness.open_session("ann"), harness.open_session("eve"));
    let (ann_stream, eve_stream) = (harness.send(&ann.get()), harness.send(&eve.get()));
    harness.send(&ann.post(1, "resources/subscribe", json!({"uri": "a:b"})));
    let id = harness.received("resources/subscribe")[0]["id"].clone();
    harness.server_sends(json!({"jsonrpc": "2.0", "id": id, "result": {}}));
    // The server knows both clients.
    harness.send(&eve.post(1, "tools/call", json!({"name": "x"})));
    harness.server_sends(
        json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "a:b"}}),
    );
    assert!(harness.text(ann_stream).contains("a:b"));
    assert!(!harness.text(eve_stream).contains("a:b"));
    harness.finish();
}

/// The server sees all clients as one, so it must not hear that one of several subscribers leaves.
#[test]
fn server_is_told_only_of_the_last_subscriber_that_unsubscribes() {
    let mut harness = Harness::with(|config| config.traces = true);
    let sessions = [harness.open_session("ann"), harness.open_session("eve")];
    let streams = [0, 1].map(|at: usize| harness.send(&sessions[at].get()));
    let resource = || json!({"uri": "a:b"});
    for session in &sessions {
        let stream = harness.send(&session.post(1, "resources/subscribe", resource()));
        harness.reply_to_newest("resources/subscribe", json!({}));
        assert!(harness.text(stream).contains(r#""result":{}"#));
    }
    let update = json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": resource()});
    let updates = |harness: &Harness| {
        streams.map(|stream| harness.text(stream).matches("resources/updated").count())
    };
    harness.server_sends(update.clone());
    assert_eq!(updates(&harness), [1, 1]);

    let stream = harness.send(&sessions[0].post(2, "resources/unsubscribe", resource()));
    assert!(harness.text(stream).contains(r#""result":{}"#));
    assert!(harness.received("resources/unsubscribe").is_empty());
    harness.server_sends(update);
    assert_eq!(updates(&harness), [1, 2]);

    let stream = harness.send(&sessions[1].post(2, "resources/unsubscribe", resource()));
    harness.reply_to_newest("resources/unsubscribe", json!({}));
    assert!(harness.text(stream).contains(r#""result":{}"#));
    let answered = harness.events.iter();
    let answered = answered.filter(|event| *event == "answered: resources/unsubscribe");
    assert_eq!(
        answered.count(),
        2,
        "also the one that the server did not get"
    );
    harness.finish();
}

/// S-SUB-17: a change below a watched URI is for those who watch that, and for nobody else.
#[test]
fn update_below_a_subscribed_uri_reaches_its_subscribers_alone() {
    let mut harness = Harness::new();
    let sessions = [harness.open_session("ann"), harness.open_session("eve")];
    let streams = [0, 1].map(|at: usize| harness.send(&sessions[at].get()));
    harness.send(&sessions[0].post(1, "resources/subscribe", json!({"uri": "file:///d"})));
    harness.reply_to_newest("resources/subscribe", json!({}));
    let update = json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "file:///d/x"}});
    let updates = |harness: &Harness| {
        streams.map(|stream| harness.text(stream).matches("file:///d/x").count())
    };
    // Only ann has called the server, and then eve, too.
    harness.server_sends(update.clone());
    assert_eq!(updates(&harness), [1, 0]);
    harness.send(&sessions[1].post(1, "tools/call", json!({"name": "x"})));
    harness.server_sends(update);
    assert_eq!(updates(&harness), [2, 0]);
    harness.finish();
}

/// The server sees all clients as one, so one that does not watch a resource must not end the subscription of another.
#[test]
fn client_without_a_subscription_does_not_end_that_of_another() {
    let mut harness = Harness::new();
    let (ann, eve) = (harness.open_session("ann"), harness.open_session("eve"));
    let resource = || json!({"uri": "a:b"});
    harness.send(&ann.post(1, "resources/subscribe", resource()));
    harness.reply_to_newest("resources/subscribe", json!({}));
    let stream = harness.send(&eve.post(1, "resources/unsubscribe", resource()));
    assert!(harness.text(stream).contains(r#""result":{}"#));
    assert!(harness.received("resources/unsubscribe").is_empty());
    harness.finish();
}

#[test]
fn subscription_is_renewed_that_another_client_ended_while_it_was_unanswered() {
    let mut harness = Harness::new();
    let (ann, eve) = (harness.open_session("ann"), harness.open_session("eve"));
    let resource = || json!({"uri": "a:b"});
    harness.send(&ann.post(1, "resources/subscribe", resource()));
    harness.reply_to_newest("resources/subscribe", json!({}));
    harness.send(&eve.post(1, "resources/subscribe", resource()));
    harness.send(&ann.post(2, "resources/unsubscribe", resource()));
    assert_eq!(harness.received("resources/unsubscribe").len(), 1);
    harness.reply_to_newest("resources/subscribe", json!({}));
    assert_eq!(harness.received("resources/subscribe").len(), 2);
    harness.reply_to_newest("resources/unsubscribe", json!({}));
    assert_eq!(
        harness.received("resources/subscribe").len(),
        3,
        "for eve, who still watches it"
    );
    harness.finish();
}

/// Exchanges over HTTP run side by side, so a change of a subscription must not be sent while another one is unanswered.
#[test]
fn subscription_is_not_overtaken_by_the_end_of_the_one_before() {
    let mut harness = Harness::with(|config| {
        let upstream = everlink::Config::http("relay", "1", "http://behind.example/mcp");
        config.upstream = upstream.expect("a URL");
    });
    let (ann, eve) = (harness.open_session("ann"), harness.open_session("eve"));
    let resource = || json!({"uri": "a:b"});
    let counts = |harness: &Harness| {
        let count = |method| harness.received(method).len();
        (count("resources/subscribe"), count("resources/unsubscribe"))
    };
    harness.send(&ann.post(1, "resources/subscribe", resource()));
    harness.answer_newest_over_http();
    harness.send(&ann.delete());
    assert_eq!(counts(&harness), (1, 1), "ann left");
    harness.send(&eve.post(1, "resources/subscribe", resource()));
    harness.send(&eve.post(2, "resources/subscribe", json!({"uri": "c:d"})));
    assert_eq!(
        counts(&harness),
        (2, 1),
        "only the other resource is asked for"
    );
    harness.answer_newest_over_http();
    assert_eq!(counts(&harness), (2, 1));
    harness.answer_newest_over_http();
    assert_eq!(counts(&harness), (3, 1), "eve's turn");
    harness.send(&eve.post(3, "resources/unsubscribe", resource()));
    assert_eq!(counts(&harness), (3, 1));
    harness.answer_newest_over_http();
    assert_eq!(counts(&harness), (3, 2));
    harness.answer_newest_over_http();
    harness.finish();
}

/// A modern server logs only for requests. If only one client has a request, the log message is for that client.
#[test]
fn log_message_of_a_modern_server_reaches_the_only_client_with_a_request() {
    let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {
        "level": "error", "data": "ann's own",
    }});
    for is_alone in [true, false] {
        let mut harness = Harness::with_modern_server();
        let (ann, eve) = (harness.open_session("ann"), harness.open_session("eve"));
        let call = |session: &Session| session.post(1, "tools/call", json!({"name": "x"}));
        let ann_stream = harness.send(&call(&ann));
        let mut others = vec![harness.send(&eve.get())];
        if !is_alone {
            others.push(harness.send(&call(&eve)));
        }
        harness.server_sends(log.clone());
        assert_eq!(harness.text(ann_stream).contains("ann's own"), is_alone);
        for other in others {
            assert!(!harness.text(other).contains("ann's own"));
        }
        let not_passed = harness.not_passed("notifications/message");
        assert_eq!(not_passed, usize::from(!is_alone));
        harness.finish();
    }
}

/// The operator can share log messages with all clients, although only one of them has called the server.
#[test]
fn shared_log_message_of_a_modern_server_reaches_all_clients() {
    let mut harness = Harness {
        is_modern: true,
        ..Harness::with(|config| {
            config.upstream.dialect = everlink::Dialect::Modern;
            config.shares_news = true;
        })
    };
    let (ann, eve) = (harness.open_session("ann"), harness.open_session("eve"));
    let listens = [harness.send(&ann.get()), harness.send(&eve.get())];
    harness.send(&ann.post(1, "tools/call", json!({"name": "x"})));
    harness.server_sends(
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {
            "level": "error", "data": "for all",
        }}),
    );
    for listen in listens {
        assert!(harness.text(listen).contains("for all"));
    }
    harness.finish();
}

/// A server may log for a cancelled call at any later time.
#[test]
fn log_message_for_a_client_that_left_is_not_sent_to_others() {
    let mut harness = Harness::with_modern_server();
    let ann = harness.send(&call("ann"));
    harness.disconnect(ann);
    harness.advance(seconds(3_600));
    let eve = harness.open_session("eve");
    let eve = harness.send(&eve.post(1, "tools/call", json!({"name": "x"})));
    harness.server_sends(
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {
            "level": "error", "data": "ann's own",
        }}),
    );
    assert!(!harness.text(eve).contains("ann's own"));
    harness.finish();
}

/// Of several requests of one client, the log message goes to one that asked for log messages.
#[test]
fn log_message_goes_to_a_request_with_a_log_level() {
    let mut harness = Harness::with_modern_server();
    let meta = json!({"io.modelcontextprotocol/logLevel": "debug"});
    let with_level = json!({"name": "ann", "_meta": meta});
    let with_level = harness.send(&modern(1, "tools/call", with_level).by(Some("ann")));
    harness.send(&call("ann"));
    harness.server_sends(
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {
            "level": "error", "data": "ann's own",
        }}),
    );
    assert!(harness.text(with_level).contains("ann's own"));
    // Any other notification may be for no request of hers.
    let method = "notifications/com.example/own";
    harness.server_sends(json!({"jsonrpc": "2.0", "method": method}));
    assert!(!harness.text(with_level).contains(method));
    assert_eq!(harness.not_passed(method), 1);
    harness.finish();
}

/// A server that sends an ask that its request does not declare breaks the protocol (S-META-08). The client judges that, as it would without the
/// relay.
#[test]
fn undeclared_ask_is_passed_on() {
    let mut harness = Harness::with_modern_server();
    harness.open_session("bob"); // Bob supports many asks.
    let no_capabilities = json!({"io.modelcontextprotocol/clientCapabilities": {}});
    let params = json!({"name": "x", "_meta": no_capabilities});
    let sent = harness.send(&modern(1, "tools/call", params).by(Some("ann")));
    let form = json!({"method": "elicitation/create", "params": {
        "message": "?",
        "requestedSchema": {"type": "object", "properties": {}},
    }});
    harness.reply(json!({"resultType": "input_required", "inputRequests": {"name": form}}));
    assert_eq!(harness.result(sent)["inputRequests"]["name"], form);
    assert_eq!(harness.received("tools/call").len(), 1);
    harness.finish();
}

/// S-META-08: each request declares only its own capabilities, not those of other clients or of earlier requests.
#[test]
fn each_request_declares_only_the_capabilities_of_its_own_client() {
    const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    let mut harness = Harness::with_modern_server();
    harness.open_session("bob"); // Bob supports many asks.
    for declared in [
        json!({"sampling": {}}),
        json!({}),
        json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}),
    ] {
        let params = json!({"name": "x", "_meta": {CAPABILITIES: declared}});
        harness.send(&modern(1, "tools/call", params).by(Some("ann")));
        assert_eq!(harness.newest_call().0["_meta"][CAPABILITIES], declared);
    }
    harness.finish();
}

/// The same holds for a task in reply to a call that does not declare tasks.
#[test]
fn undeclared_task_is_passed_on() {
    const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    let mut harness = Harness::with_modern_server();
    let asking = |user: &str, declared: Value| {
        let params = json!({"name": "x", "_meta": {CAPABILITIES: declared}});
        modern(1, "tools/call", params).by(Some(user))
    };
    let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    harness.send(&asking("bob", tasks));
    let ann = harness.send(&asking("ann", json!({})));
    harness.reply(json!({"resultType": "task", "taskId": "t", "status": "working"}));
    assert_eq!(harness.result(ann)["taskId"], "t");
    harness.finish();
}

/// An ask keeps the key of the server in front of the relay, unless the key is ambiguous. Its answer reaches the server
/// under that key.
#[test]
fn ask_keeps_its_key_unless_it_is_ambiguous() {
    let mut harness = Harness::with_modern_server();
    let sent = harness.send(&call("ann"));
    let form = json!({"method": "elicitation/create", "params": {
        "message": "?",
        "requestedSchema": {"type": "object", "properties": {}},
    }});
    let asks = json!({"name": form, "1": form, "2": form});
    harness.reply(json!({"resultType": "input_required", "inputRequests": asks}));
    let result = harness.result(sent);
    let sent_asks = result["inputRequests"].as_object().expect("asks");
    assert_eq!(sent_asks.len(), 3, "{sent_asks:?}");
    assert_eq!(sent_asks["name"], form);
    let answers: Value = sent_asks
        .keys()
        .map(|key| {
            (
                key.clone(),
                json!({"action": "accept", "content": {"key": key}}),
            )
        })
        .collect();
    let params = json!({
        "name": "ann",
        "inputResponses": answers,
        "requestState": result["requestState"],
    });
    harness.send(&modern(2, "tools/call", params).by(Some("ann")));
    let received = &harness.newest_call().0["inputResponses"];
    assert_eq!(received["name"]["content"]["key"], "name");
    let keys: Vec<_> = received.as_object().expect("answers").keys().collect();
    assert_eq!(keys, ["1", "2", "name"]);
    harness.finish();
}

/// S-MRTR-17: unrequested answers of a client are passed to the server, which judges them. A later ask of the server is
/// another round.
#[test]
fn unrequested_answers_are_passed_on_to_a_modern_server() {
    let params = json!({
        "name": "ann",
        "inputResponses": {"made": {"action": "accept"}},
        "requestState": "up",
    });
    let unrequested = modern(1, "tools/call", params).by(Some("ann"));
    let mut harness = Harness::with_modern_server();
    let sent = harness.send(&unrequested);
    let (received, _) = harness.newest_call();
    assert_eq!(
        received["inputResponses"],
        json!({"made": {"action": "accept"}})
    );
    assert_eq!(received["requestState"], "up");
    harness.reply(json!({"resultType": "input_required", "requestState": "mine"}));
    let (received, _) = harness.newest_call();
    assert_eq!(received["requestState"], "mine");
    assert_eq!(received.get("inputResponses"), None);
    harness.reply(json!({"resultType": "complete", "content": []}));
    assert_eq!(harness.result(sent)["resultType"], "complete");
    harness.finish();

    // A legacy server does not know such answers.
    let mut harness = Harness::new();
    harness.send(&unrequested);
    let (received, _) = harness.newest_call();
    assert_eq!(received.get("inputResponses"), None);
    assert_eq!(received.get("requestState"), None);
    harness.finish();
}

/// A client that leaves cancels its own call, although all clients use the same id.
#[test]
fn client_that_leaves_cancels_only_its_own_call() {
    let mut harness = Harness::new();
    let (ann, eve) = (harness.send(&call("ann")), harness.send(&call("eve")));
    harness.disconnect(ann);
    let calls: Vec<Value> = harness
        .received("tools/call")
        .iter()
        .map(|call| call["id"].clone())
        .collect();
    let cancelled = harness.received("notifications/cancelled");
    assert_eq!(cancelled.len(), 1);
    assert_eq!(cancelled[0]["params"]["requestId"], calls[0]);
    harness.server_sends(json!({"jsonrpc": "2.0", "id": calls[1], "result": {"content": []}}));
    assert_eq!(harness.exchanges[&eve].status, Some(200));
    assert!(harness.exchanges[&eve].is_over);
    harness.finish();
}

/// The relay reads from the server even if one client does not read.
#[test]
fn client_that_does_not_read_does_not_delay_others() {
    let mut harness = Harness::with(|config| {
        config.shares_news = true;
        config.downstream.limits.queued_bytes = 20_000;
        config.downstream.limits.all_queued_bytes = 20_000;
        config.downstream.limits.write_window = 1_000;
    });
    let (eve, ann) = (harness.open_session("eve"), harness.open_session("ann"));
    harness.send_with(&eve.get(), false);
    let stream = harness.send(&ann.get());
    for _ in 0..60 {
        harness.server_sends(
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {
                "level": "error", "data": "x".repeat(500),
            }}),
        );
    }
    let side = Side::Upstream;
    assert!(harness.relay.wants_input(side, StreamId::DUPLEX));
    assert_eq!(harness.text(stream).matches("xxx\"").count(), 60);
    harness.finish();
}

/// The operator can share them, although only one client has called the server.
#[test]
fn shared_notifications_of_a_legacy_server_reach_all_clients() {
    let mut harness = Harness::with(|config| config.shares_news = true);
    let (ann, eve) = (harness.open_session("ann"), harness.open_session("eve"));
    let listens = [harness.send(&ann.get()), harness.send(&eve.get())];
    harness.send(&ann.post(1, "tools/call", json!({"name": "x"})));
    for method in ["notifications/message", "notifications/own"] {
        harness.server_sends(json!({"jsonrpc": "2.0", "method": method, "params": {
            "level": "error", "data": "for all",
        }}));
    }
    let heard = listens.map(|listen| harness.text(listen).matches("for all").count());
    assert_eq!(heard, [2, 2]);
    harness.finish();
}

/// The relay must not stop reading because of one client, as it does if there is only one on a byte stream.
#[test]
fn clients_over_http_are_read_while_much_waits_for_the_server() {
    let mut harness = Harness::with(|config| config.upstream.limits.queued_bytes = 1 << 20);
    let eve = harness.open_session("eve");
    harness.server_reads = false;
    // One call is being written. The other one waits, and takes more than an eighth of the queue.
    let long = json!({"name": "long", "arguments": {"text": "x".repeat(300 << 10)}});
    for id in 1..=2 {
        harness.send(&eve.post(id, "tools/call", long.clone()));
    }
    assert_eq!(harness.received("tools/call").len(), 1);
    let next = StreamId::new(harness.last_stream + 1);
    assert!(harness.relay.wants_input(Side::Downstream, next));
    harness.finish();
}

/// The server reads slowly. A short call of another client is written before the long calls that wait.
#[test]
fn short_call_passes_the_long_ones_of_another_client() {
    let mut harness = Harness::with(|config| config.upstream.limits.queued_bytes = 1_900 << 10);
    let (eve, ann) = (harness.open_session("eve"), harness.open_session("ann"));
    harness.server_reads = false;
    let long = json!({"name": "long", "arguments": {"text": "x".repeat(300 << 10)}});
    let all_long: Vec<StreamId> = (0..12)
        .map(|id| harness.send(&eve.post(id, "tools/call", long.clone())))
        .collect();
    let short = harness.send(&ann.post(1, "tools/call", json!({"name": "short"})));
    let is_refused = |stream: &&StreamId| harness.text(**stream).contains("could not be passed on");
    assert!(!is_refused(&&short));
    let refused = all_long.iter().filter(is_refused).count();
    // One call is being written, and three leave as much of the queue to others.
    assert_eq!(refused, 12 - 1 - 3, "{:?}", harness.relay);
    harness.server_reads = true;
    harness.acknowledge_writes(harness.epoch);
    harness.drain_outputs();
    let calls = harness.received("tools/call").into_iter();
    let names: Vec<_> = calls.map(|call| &call["params"]["name"]).collect();
    assert_eq!(names.len(), 1 + 3 + 1);
    assert_eq!(names[..3], ["long", "short", "long"]);
    harness.finish();
}

/// The client waits for nothing that the server never gets, and the trace of its request ends.
#[test]
fn call_that_finds_no_room_is_answered_at_once() {
    let mut harness = Harness::with(|config| {
        config.upstream.limits.queued_bytes = 640 << 10;
        config.traces = true;
    });
    let eve = harness.open_session("eve");
    harness.server_reads = false;
    let long = json!({"name": "t", "arguments": {"text": "x".repeat(300 << 10)}});
    let calls: Vec<StreamId> = (0..3)
        .map(|id| harness.send(&eve.post(id, "tools/call", long.clone())))
        .collect();
    let is_refused = |stream: &StreamId| harness.text(*stream).contains("take its share");
    let refused: Vec<bool> = calls.iter().map(is_refused).collect();
    assert_eq!(refused, [false, false, true]);
    let is_answer = |event: &&String| *event == "answered: tools/call";
    assert_eq!(harness.events.iter().filter(is_answer).count(), 1);
    harness.finish();
}

/// A modern server may ask for another round, so a call that is sent keeps its parameters. They must not add up without a limit.
#[test]
fn long_call_is_refused_while_those_in_flight_hold_as_much_as_may_be() {
    let mut harness = Harness::with(|config| {
        config.upstream.dialect = everlink::Dialect::Modern;
        config.upstream.limits.queued_bytes = 1 << 20;
    });
    harness.is_modern = true;
    let of = |kib: usize| json!({"name": "t", "arguments": {"text": "x".repeat(kib << 10)}});
    let mut refused = |user: &str, calls: i64, kib: usize| -> Vec<bool> {
        let requests = (0..calls).map(|id| modern(id, "tools/call", of(kib)).by(Some(user)));
        let streams: Vec<StreamId> = requests.map(|request| harness.send(&request)).collect();
        let is_refused = |stream| harness.text(stream).contains("could not be passed on");
        streams.into_iter().map(is_refused).collect()
    };
    assert_eq!(refused("eve", 2, 300), [false, true]);
    assert_eq!(refused("ann", 1, 300), [false]);
    assert_eq!(refused("bob", 1, 300), [false]);
    assert_eq!(refused("dan", 1, 300), [true]);
    assert_eq!(
        refused("dan", 1, 1),
        [false],
        "short calls have a limit of their own"
    );
    assert_eq!(harness.received("tools/call").len(), 3 + 1);
    let id = harness.received("tools/call")[0]["id"].clone();
    let result = json!({"resultType": "complete", "content": []});
    harness.server_sends(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    let next = harness.send(&modern(10, "tools/call", of(300)).by(Some("dan")));
    assert!(!harness.text(next).contains("could not be passed on"));
    harness.finish();
}

/// Neither the call nor the answer is long, but the call keeps both until the server has replied.
#[test]
fn answer_that_makes_a_call_long_counts_for_the_limit_of_long_calls() {
    let mut harness = Harness::with(|config| {
        config.upstream.dialect = everlink::Dialect::Modern;
        config.upstream.limits.queued_bytes = 200 << 10;
    });
    harness.is_modern = true;
    let text = "x".repeat(60 << 10);
    let form = json!({"method": "elicitation/create", "params": {
        "message": "?",
        "requestedSchema": {"type": "object", "properties": {}},
    }});
    let accepted = ["ann", "eve"].map(|user| {
        let arguments = json!({"text": text});
        let params = json!({"name": "t", "arguments": arguments});
        let asked = harness.send(&modern(1, "tools/call", params).by(Some(user)));
        harness.reply(json!({"resultType": "input_required", "inputRequests": {"a": form}}));
        let params = json!({
            "name": "t",
            "arguments": arguments,
            "inputResponses": {"a": {"action": "accept", "content": {"text": text}}},
            "requestState": harness.result(asked)["requestState"],
        });
        let before = harness.received("tools/call").len();
        let again = harness.send(&modern(2, "tools/call", params).by(Some(user)));
        let is_refused = harness.text(again).contains("the queue is full");
        let is_sent = harness.received("tools/call").len() > before;
        assert_ne!(is_refused, is_sent, "{}", harness.text(again));
        is_sent
    });
    assert_eq!(accepted, [true, false]);
    harness.finish();
}

/// A call that is never sent again does not keep its parameters, so any number may be in flight.
#[test]
fn long_calls_of_a_legacy_server_do_not_count_once_they_are_sent() {
    let mut harness = Harness::with(|config| config.upstream.limits.queued_bytes = 1 << 20);
    let eve = harness.open_session("eve");
    let long = json!({"name": "t", "arguments": {"text": "x".repeat(600 << 10)}});
    let all: Vec<StreamId> = (0..4)
        .map(|id| harness.send(&eve.post(id, "tools/call", long.clone())))
        .collect();
    assert_eq!(harness.received("tools/call").len(), all.len());
    harness.kill_server();
    for stream in all {
        let text = harness.text(stream);
        assert!(text.contains("may have run"), "{text}");
    }
    harness.finish();
}

/// A client chooses the reason of a cancellation and its `_meta`, and many cancellations may wait for the server.
#[test]
fn long_reason_of_a_cancellation_is_cut_and_long_meta_is_dropped() {
    let mut harness = Harness::new();
    let ann = harness.open_session("ann");
    for (id, letters) in [(1, 10), (2, 100_000)] {
        let text = "\u{e9}".repeat(letters);
        harness.send(&ann.post(id, "tools/call", json!({"name": "t"})));
        let params = json!({"requestId": id, "reason": &text, "_meta": {"a": &text}});
        harness.send(&ann.notification("notifications/cancelled", params));
        let told = harness.received("notifications/cancelled");
        let params = &told.last().expect("a cancellation")["params"];
        let reason = params["reason"].as_str().expect("a reason");
        assert_eq!(reason, &text[..text.len().min(4_096)]);
        assert_eq!(params["_meta"]["a"].is_string(), letters == 10, "{params}");
    }
    harness.finish();
}

/// The server reads slowly, and a client sends many notifications.
#[test]
fn call_is_accepted_and_written_among_the_notifications_of_another_client() {
    let mut harness = Harness::with(|config| {
        config.upstream.limits.queued_bytes = 500_000;
        config.upstream.limits.queued_calls = 20;
    });
    let (eve, ann) = (harness.open_session("eve"), harness.open_session("ann"));
    harness.server_reads = false;
    let long = json!({"name": "long", "arguments": {"text": "x".repeat(300 << 10)}});
    harness.send(&ann.post(1, "tools/call", long));
    for _ in 0..40 {
        let params = json!({"text": "x".repeat(40_000)});
        harness.send(&eve.notification("notifications/own", params));
    }
    let call = harness.send(&ann.post(2, "tools/call", json!({"name": "t"})));
    assert!(!harness.text(call).contains("could not be passed on"));
    harness.received.clear();
    harness.server_reads = true;
    harness.acknowledge_writes(harness.epoch);
    harness.drain_outputs();
    let methods = harness.received.iter().map(|message| &message["method"]);
    let methods: Vec<_> = methods.collect();
    assert_eq!(
        methods[..3],
        ["notifications/own", "tools/call", "notifications/own"]
    );
    harness.finish();
}

/// The server does not read. Whoever sends much, in a session or from one address, leaves room for others, and loses nothing that was accepted.
#[test]
fn long_calls_of_one_client_leave_room_for_those_of_others() {
    for is_modern in [false, true] {
        let mut harness = Harness::with(|config| {
            config.upstream.limits.queued_bytes = 640 << 10;
            config.upstream.limits.write_window = 1 << 10;
        });
        let sessions = ["eve", "ann", "bob"].map(|user| harness.open_session(user));
        harness.server_reads = false;
        // The pipe takes this one.
        let first = json!({"name": "t", "arguments": {"text": "x".repeat(1 << 10)}});
        harness.send(&sessions[0].post(0, "tools/call", first));
        let mut refused = |client: usize, calls: i64, kib: usize| -> Vec<bool> {
            let params = json!({"name": "t", "arguments": {"text": "x".repeat(kib << 10)}});
            let ids = kib as i64..kib as i64 + calls;
            let requests = ids.map(|id| match is_modern {
                true => modern(id, "tools/call", params.clone())
                    .coming_from(&format!("192.0.2.{client}")),
                false => sessions[client].post(id, "tools/call", params.clone()),
            });
            let streams: Vec<StreamId> = requests.map(|request| harness.send(&request)).collect();
            let is_refused = |stream| harness.text(stream).contains("could not be passed on");
            streams.into_iter().map(is_refused).collect()
        };
        assert_eq!(refused(0, 5, 100), [false, false, false, true, true]);
        assert_eq!(refused(1, 2, 150), [false, true]);
        assert_eq!(refused(2, 2, 150), [false, true]);
        assert_eq!(
            refused(1, 1, 1),
            [false],
            "short calls have a limit of their own"
        );
        assert_eq!(harness.not_passed("tools/call"), 0);
        harness.server_reads = true;
        harness.acknowledge_writes(harness.epoch);
        harness.advance(Duration::from_millis(1));
        assert_eq!(harness.received("tools/call").len(), 1 + 3 + 1 + 1 + 1);
        harness.finish();
    }
}

/// A legacy server asked one of several clients to visit a page, in an error. Only this client is told that the visit is over.
#[test]
fn end_of_a_visit_reaches_only_the_client_that_the_server_asked_for_it() {
    let mut harness = Harness::new();
    let [ann, eve] = ["ann", "eve"]
        .map(|user| harness.open_session_with(user, &json!({"elicitation": {"url": {}}})));
    let listens = [harness.send(&ann.get()), harness.send(&eve.get())];
    for session in [&eve, &ann] {
        harness.send(&session.post(1, "tools/call", json!({"name": "x"})));
    }
    let visit = json!({
        "mode": "url", "elicitationId": "v1", "url": "https://a.example/", "message": "sign in",
    });
    let error = json!({"code": -32042, "message": "visit", "data": {"elicitations": [visit]}});
    let id = harness.newest_call().1;
    harness.server_sends(json!({"jsonrpc": "2.0", "id": id, "error": error}));
    let method = "notifications/elicitation/complete";
    for id in ["v1", "v2"] {
        let params = json!({"elicitationId": id});
        harness.server_sends(json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }
    let told = listens.map(|listen| harness.text(listen).matches(method).count());
    assert_eq!(told, [1, 0]);
    harness.finish();
}

/// The messages of the server are passed on unchanged to a client of its era, also if a client of the other era is there.
#[test]
fn client_of_the_other_era_changes_nothing_for_a_client_of_the_era_of_the_server() {
    let mut harness = Harness::new();
    let ann = harness.open_session("ann");
    let listen = harness.send(&ann.get());
    let params = json!({"name": "x", "_meta": {"progressToken": "t"}});
    let call = harness.send(&ann.post(1, "tools/call", params));
    let token = harness.newest_call().0["_meta"]["progressToken"].clone();
    for number in 1..=2 {
        let log = json!({"level": "error", "data": "for ann", "own": number});
        let message = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": log});
        harness.server_sends(message);
        let progress = json!({"progressToken": token, "progress": number, "own": number});
        let method = "notifications/progress";
        harness.server_sends(json!({"jsonrpc": "2.0", "method": method, "params": progress}));
        let own = format!("\"own\":{number}");
        for stream in [listen, call] {
            assert!(
                harness.text(stream).contains(&own),
                "{}",
                harness.text(stream)
            );
        }
        harness.send(&modern(9, "server/discover", json!({})).by(Some("eve")));
    }
    harness.finish();
}

/// Each era has its own way to say which log messages are wanted. The server knows only that of its own.
#[test]
fn log_message_of_a_call_reaches_a_client_of_the_other_era_only_if_it_is_wanted() {
    let http = |config: &mut Config| {
        let upstream = everlink::Config::http("relay", "1", "http://behind.example/mcp");
        config.upstream = upstream.expect("a URL");
    };
    let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {
        "level": "debug", "data": "a detail",
    }});

    let mut harness = Harness::with(http);
    harness.open_session("ann");
    let wants_none = harness.send(&call("eve"));
    harness.server_sends_on_newest(&log);
    let meta = json!({"io.modelcontextprotocol/logLevel": "debug"});
    let params = json!({"name": "x", "_meta": meta});
    let wants_all = harness.send(&modern(2, "tools/call", params).by(Some("eve")));
    harness.server_sends_on_newest(&log);
    let got = [wants_none, wants_all].map(|stream| harness.text(stream).contains("a detail"));
    assert_eq!(got, [false, true]);
    harness.finish();

    let mut harness = Harness::with(|config| {
        http(config);
        config.upstream.dialect = everlink::Dialect::Modern;
    });
    harness.is_modern = true;
    let params = json!({"name": "x", "_meta": meta});
    harness.send(&modern(1, "tools/call", params).by(Some("eve")));
    let ann = harness.open_session("ann");
    let got = ["error", "debug"].map(|level| {
        harness.send(&ann.post(1, "logging/setLevel", json!({"level": level})));
        let call = harness.send(&ann.post(2, "tools/call", json!({"name": "x"})));
        harness.server_sends_on_newest(&log);
        let has_got = harness.text(call).contains("a detail");
        harness.send(&ann.notification("notifications/cancelled", json!({"requestId": 2})));
        has_got
    });
    assert_eq!(got, [false, true]);
    harness.finish();
}

/// S-META-06: the relay makes this result itself, so it writes the name of the server as well.
#[test]
fn result_for_a_lost_call_names_the_server_to_a_modern_client() {
    let mut harness = Harness::with_modern_server();
    let sent = harness.send(&call("ann"));
    harness.kill_server();
    let result = harness.result(sent);
    assert_eq!(result["isError"], true);
    let meta = &result["_meta"];
    assert!(
        meta["io.modelcontextprotocol/serverInfo"]["name"].is_string(),
        "{meta}"
    );
    harness.finish();
}

/// The server chooses its name, and it may be almost as long as a message.
#[test]
fn lost_call_is_answered_although_its_result_with_the_name_of_the_server_is_too_long() {
    let mut harness = Harness::with(|config| {
        config.downstream.limits.message_bytes = 4_096;
        config.upstream.limits.message_bytes = 4_096;
    });
    let title = "x".repeat(3_700);
    harness.server_info = json!({"name": "behind", "version": "1", "title": title});
    let sent = harness.send(&call("ann"));
    assert_eq!(harness.received("tools/call").len(), 1);
    harness.kill_server();
    let text = harness.text(sent);
    assert!(text.contains("may have run"), "{text}");
    harness.finish();
}

/// The modern era has no such request. The relay must not answer it in place of the server, although another client watches the resource.
#[test]
fn unsubscribe_request_of_a_modern_client_is_left_to_the_modern_server() {
    let mut harness = Harness::with_modern_server();
    let wanted = json!({"notifications": {"resourceSubscriptions": ["a:b"]}});
    harness.send(&modern(1, "subscriptions/listen", wanted).by(Some("eve")));
    harness.send(&modern(2, "resources/unsubscribe", json!({"uri": "a:b"})).by(Some("ann")));
    assert_eq!(harness.received("resources/unsubscribe").len(), 1);
    harness.finish();
}

/// The host did not declare what it was asked, and answers one question after the other. The relay does not judge the question that is left.
#[test]
fn undeclared_ask_is_put_again_to_a_client_that_answered_another_one() {
    let mut harness = Harness::with_modern_server();
    let capabilities = json!({"io.modelcontextprotocol/clientCapabilities": {"roots": {}}});
    let params = json!({"name": "x", "_meta": capabilities});
    let sent = harness.send(&modern(1, "tools/call", params).by(Some("ann")));
    let form = json!({"method": "elicitation/create", "params": {
        "message": "?",
        "requestedSchema": {"type": "object", "properties": {}},
    }});
    let asks = json!({"name": form, "number": form});
    harness.reply(json!({"resultType": "input_required", "inputRequests": asks}));
    let state = harness.result(sent)["requestState"].clone();
    let params = json!({
        "name": "x",
        "_meta": capabilities,
        "inputResponses": {"name": {"action": "accept", "content": {}}},
        "requestState": state,
    });
    let again = harness.send(&modern(2, "tools/call", params).by(Some("ann")));
    let result = harness.result(again);
    assert_eq!(result["inputRequests"], json!({"number": form}), "{result}");
    harness.finish();
}

/// A client does one handshake, however often the server dies meanwhile.
#[test]
fn client_session_survives_server_restarts() {
    let mut harness = Harness::with(|config| config.patience = seconds(40));
    let ann = harness.open_session("ann");
    for id in 1..4 {
        let lost = harness.send(&ann.post(id, "tools/call", json!({"name": "x"})));
        harness.kill_server();
        harness.advance(seconds(60));
        assert!(
            harness.text(lost).contains("isError"),
            "{}",
            harness.text(lost)
        );
        let listed = harness.send(&ann.post(id + 10, "tools/list", json!({})));
        harness.advance(seconds(5));
        assert_eq!(harness.exchanges[&listed].status, Some(200));
        assert!(harness.text(listed).contains(r#""tools":[]"#));
    }
    harness.finish();
}

/// Random runs: every exchange gets at most one reply, which is its own, and all exchanges end.
#[test]
fn random_runs_reply_once_per_exchange_and_end_all_exchanges() {
    for seed in 0..300 {
        random_run(seed);
    }
}

/// A pseudo-random generator; the same seed gives the same choices.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

fn random_run(seed: u64) {
    let mut rng = Rng(seed);
    let mut harness = Harness::with(|config| {
        if seed % 3 == 0 {
            config.downstream.limits.write_window = 1;
        }
        if let Some(http) = config.downstream.http.as_mut().filter(|_| seed % 5 == 0) {
            http.replay = Replay::new(0, 0);
        }
    });
    let mut sessions: Vec<Session> = Vec::new();
    let mut marks: Vec<(StreamId, String)> = Vec::new();
    for step in 0..80_u64 {
        let mark = format!("mark-{step}-");
        let reads = rng.below(5) > 0;
        let named = json!({"name": mark, "_meta": {"progressToken": step}});
        let index = rng.below(sessions.len());
        let any = StreamId::new(1 + rng.below(harness.last_stream as usize) as u64);
        let is_open = harness.exchanges.get(&any).is_some_and(|e| !e.is_over);
        match rng.below(14) {
            0 | 1 => {
                let stream = harness.send_with(&modern(1, "tools/call", named), reads);
                marks.push((stream, mark));
            }
            2 => {
                let wanted = json!({"notifications": {"toolsListChanged": true}});
                harness.send_with(&modern(1, "subscriptions/listen", wanted), reads);
            }
            3 if sessions.len() < 4 => sessions.push(harness.open_session("ann")),
            4 | 5 if !sessions.is_empty() => {
                let accept = ["application/json", "text/event-stream", "*/*"];
                let ask = sessions[index].post(step, "tools/call", named);
                let ask = ask.with("accept", accept[rng.below(3)]);
                marks.push((harness.send_with(&ask, reads), mark));
            }
            6 if !sessions.is_empty() => {
                harness.send(&sessions[index].get());
            }
            7 if is_open => harness.disconnect(any),
            8 if is_open => harness.read_all(any),
            9 if !sessions.is_empty() && rng.below(4) == 0 => {
                let session = sessions.remove(index);
                harness.send(&session.delete());
            }
            10 | 11 => progress_or_reply(&mut harness, &mut rng),
            12 => match rng.below(3) {
                0 => harness
                    .server_sends(json!({"jsonrpc": "2.0", "id": step, "method": "roots/list"})),
                1 => harness.server_sends(
                    json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}),
                ),
                _ => harness.kill_server(),
            },
            _ => harness.advance(seconds(rng.below(20) as u64)),
        }
    }
    for (stream, own) in &marks {
        let text = harness.text(*stream);
        let mut others = marks.iter().filter(|(_, mark)| mark != own);
        assert!(others.all(|(_, mark)| !text.contains(&**mark)), "{text}");
    }
    harness.finish();
}

/// Makes the server report progress of a call, or answer it.
fn progress_or_reply(harness: &mut Harness, rng: &mut Rng) {
    let calls = harness.received("tools/call");
    let Some(call) = calls.get(rng.below(calls.len())).copied().cloned() else {
        return;
    };
    if rng.below(3) == 0 {
        let token = &call["params"]["_meta"]["progressToken"];
        let progress = json!({"progressToken": token, "progress": 1});
        let method = "notifications/progress";
        return harness
            .server_sends(json!({"jsonrpc": "2.0", "method": method, "params": progress}));
    }
    harness.received.retain(|message| *message != call);
    let content = json!([{"type": "text", "text": call["params"]["name"]}]);
    let result = json!({"content": content});
    harness.server_sends(json!({"jsonrpc": "2.0", "id": call["id"], "result": result}));
}

#[test]
fn refused_discovery_ends_the_stream_of_a_client_that_accepts_only_events() {
    let mut harness = Harness::new();
    let http_request = modern(1, "server/discover", json!({}));
    let stream = harness.send(&http_request.with("accept", "text/event-stream"));
    assert!(harness.exchanges[&stream].is_over);
    assert!(harness.text(stream).contains("-32601"));
    harness.finish();
}
