//! A client link over HTTP with a server that the test plays: the test sees each request of the link and decides its response.
//!
//! ```text
//! let mut harness = Harness::legacy();               // ready, in the session "s-1", the listen stream refused
//! let call = harness.call("tools/call", json!({"name": "add"}));
//! let post = harness.next_post("tools/call");        // the exchange that carries the call
//! harness.json(post.stream, 200, &result(&post, json!({})));
//! assert!(harness.reply(call).is_ok());
//! ```
//!
//! After every step the harness checks:
//!
//! - The link returns outputs exactly when `poll_timeout` says so.
//! - Exchanges are counted, and each begins once, under a new id and within its epoch.
//! - No exchange is aborted twice.
//! - Each call has at most one outcome.
//! - The deadline of the link has a reason (`client_deadlines`).
//!
//! A `Chunking` defines how a body is cut into reads. A script plays every cut itself (`every_chunking`), or the environment selects
//! one.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) use crate::chunking::Chunking;
use crate::client_deadlines::Deadlines;
use everlink::client::{Ask, CallOptions, Client, Event, Failure, Outcome, State};
use everlink::http::{Fields, ResponseHead, Verb};
use everlink::protocol::ClientCapabilities;
use everlink::{
    CallId, Change, Config, Epoch, ErrorObject, Fault, FaultKind, Input, Instant, List, Output,
    Payload, StreamId, Watch,
};
use serde_json::{Value, json};

pub(crate) const URL: &str = "https://mcp.example/mcp";

/// An exchange that the link began.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) epoch: Epoch,
    pub(crate) stream: StreamId,
    pub(crate) verb: Verb,
    pub(crate) target: String,
    fields: Fields<'static>,
    /// The message, or `Null` if there is none.
    pub(crate) body: Value,
    /// The message as it was written.
    pub(crate) text: String,
    /// The time at which the link began it.
    pub(crate) at: Instant,
}

impl Exchange {
    /// The value of a header field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name)
    }

    /// All header fields, in order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter()
    }

    pub(crate) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or("")
    }

    /// The value of a protocol member of the message's `_meta`.
    pub(crate) fn meta(&self, name: &str) -> &Value {
        &self.body["params"]["_meta"][format!("io.modelcontextprotocol/{name}")]
    }

    pub(crate) fn progress_token(&self) -> &Value {
        &self.body["params"]["_meta"]["progressToken"]
    }
}

pub(crate) struct Harness {
    pub(crate) client: Client,
    pub(crate) now: Instant,
    /// All exchanges so far, in order.
    pub(crate) exchanges: Vec<Exchange>,
    /// The exchanges that the test has not looked at.
    unseen: Vec<Exchange>,
    /// The exchanges that are not over.
    open: BTreeMap<StreamId, Epoch>,
    pub(crate) aborted: Vec<StreamId>,
    /// All events except outcomes.
    pub(crate) events: Vec<Event>,
    outcomes: BTreeMap<CallId, Outcome>,
    /// The number of epochs that the link has opened.
    pub(crate) epochs_opened: u32,
    /// The epoch whose transport is open.
    epoch: Option<Epoch>,
    /// All stream ids so far.
    used_ids: BTreeSet<StreamId>,
    deadlines: Deadlines,
    chunking: Chunking,
    drawn: u64,
}

/// Plays a script with all response bodies cut in every way.
pub(crate) fn every_chunking(script: impl Fn(Chunking)) {
    for chunking in Chunking::ALL {
        script(chunking);
    }
}

/// All versions with this transport, the modern one last.
pub(crate) const VERSIONS: [&str; 4] = ["2025-03-26", "2025-06-18", "2025-11-25", MODERN];

/// The versions that have sessions.
pub(crate) const LEGACY: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];

pub(crate) const MODERN: &str = "2026-07-28";

/// The configuration of a link to `URL`.
pub(crate) fn config() -> Config {
    Config::http("test", "1.0", URL).expect("a URL")
}

impl Harness {
    pub(crate) fn new(config: Config) -> Harness {
        Harness {
            client: Client::new(config),
            now: Instant::ZERO,
            exchanges: Vec::new(),
            unseen: Vec::new(),
            open: BTreeMap::new(),
            aborted: Vec::new(),
            events: Vec::new(),
            outcomes: BTreeMap::new(),
            epochs_opened: 0,
            epoch: None,
            used_ids: BTreeSet::new(),
            deadlines: Deadlines::default(),
            chunking: Chunking::usual(),
            drawn: 0,
        }
    }

    /// Sets how bodies are cut into reads.
    pub(crate) fn chunked(mut self, chunking: Chunking) -> Harness {
        self.chunking = chunking;
        self
    }

    /// A ready link to a server of this version.
    pub(crate) fn ready(version: &str) -> Harness {
        Harness::ready_with(config(), version)
    }

    pub(crate) fn ready_with(config: Config, version: &str) -> Harness {
        match version {
            MODERN => Harness::modern_with(config),
            version => Harness::legacy_with(config, version),
        }
    }

    /// A ready link with these capabilities, to a server of this version.
    pub(crate) fn with_capabilities(version: &str, capabilities: ClientCapabilities) -> Harness {
        let mut config = config();
        config.capabilities = capabilities;
        Harness::ready_with(config, version)
    }

    /// A ready link to a modern server that offers everything.
    pub(crate) fn modern() -> Harness {
        Harness::modern_with(config())
    }

    pub(crate) fn modern_with(config: Config) -> Harness {
        let mut harness = Harness::new(config);
        harness.connect();
        harness.agree_modern();
        harness
    }

    /// A ready link in the session "s-1" of 2025-11-25. The server refused the listen stream.
    pub(crate) fn legacy() -> Harness {
        Harness::legacy_with(config(), "2025-11-25")
    }

    /// Like `legacy`, but the request for the listen stream is still unanswered.
    pub(crate) fn legacy_awaiting_listen() -> Harness {
        let mut config = config();
        config.dialect = everlink::Dialect::Legacy;
        let mut harness = Harness::new(config);
        harness.connect();
        harness.agree_legacy_awaiting_listen("2025-11-25", Some("s-1"));
        harness
    }

    pub(crate) fn legacy_with(mut config: Config, version: &str) -> Harness {
        config.dialect = everlink::Dialect::Legacy;
        let mut harness = Harness::new(config);
        harness.connect();
        harness.agree_legacy(version, Some("s-1"));
        harness
    }

    pub(crate) fn connect(&mut self) {
        self.client.connect(self.now);
        self.pump();
    }

    /// Answers the modern probe, and the watch that follows.
    pub(crate) fn agree_modern(&mut self) {
        let probe = self.next_post("server/discover");
        self.json(probe.stream, 200, &result(&probe, discover_result()));
        assert_eq!(self.client.state(), State::Ready);
        if let Some(listen) = self.find(|exchange| exchange.method() == "subscriptions/listen") {
            self.begin_stream(listen.stream);
            let id = &listen.body["id"];
            let granted = &listen.body["params"]["notifications"];
            self.event(
                listen.stream,
                None,
                &json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {
                    "_meta": {"io.modelcontextprotocol/subscriptionId": id}, "notifications": granted}}),
            );
        }
    }

    /// Answers the whole legacy handshake, and refuses the listen stream.
    pub(crate) fn agree_legacy(&mut self, version: &str, session: Option<&str>) {
        self.agree_legacy_awaiting_listen(version, session);
        self.refuse_listen();
    }

    /// Refuses the listen stream with 405 if the link asked for it. Calls work without the stream.
    pub(crate) fn refuse_listen(&mut self) {
        if let Some(listen) = self.find(|exchange| exchange.verb == Verb::Get) {
            self.status(listen.stream, 405);
        }
    }

    /// Answers the whole legacy handshake, and leaves the request for the listen stream unanswered.
    pub(crate) fn agree_legacy_awaiting_listen(&mut self, version: &str, session: Option<&str>) {
        let post = self.next_post("initialize");
        let mut fields = vec![("content-type", "application/json")];
        fields.extend(session.map(|id| ("Mcp-Session-Id", id)));
        let body = result(&post, initialize_result(version)).to_string();
        self.respond(post.stream, 200, &fields, &body);
        let post = self.next_post("notifications/initialized");
        self.status(post.stream, 202);
        assert_eq!(self.client.state(), State::Ready);
    }

    pub(crate) fn call(&mut self, method: &'static str, params: Value) -> CallId {
        self.call_with(method, params, CallOptions::new())
    }

    pub(crate) fn call_with(
        &mut self,
        method: &'static str,
        params: Value,
        options: CallOptions,
    ) -> CallId {
        let params = params.to_string().parse().expect("JSON");
        let call = self.client.call(self.now, method, Some(params), options);
        self.pump();
        call.expect("accepted")
    }

    pub(crate) fn list(&mut self, list: List) -> CallId {
        let call = self.client.list(self.now, list, CallOptions::new());
        self.pump();
        call.expect("accepted")
    }

    pub(crate) fn cancel(&mut self, call: CallId) {
        let cancelled = self.client.cancel(self.now, call, Some("not needed"));
        cancelled.expect("under way");
        self.pump();
    }

    pub(crate) fn watch(&mut self, watch: Watch) {
        self.client.watch(self.now, watch);
        self.pump();
    }

    pub(crate) fn notify(&mut self, method: &'static str, params: &Value) {
        let params = Payload::of(params).expect("JSON");
        let sent = self.client.notify(self.now, method, Some(params));
        sent.expect("accepted");
        self.pump();
    }

    pub(crate) fn shutdown(&mut self) {
        self.client.shutdown(self.now);
        self.pump();
    }

    /// The oldest ask that the test has not looked at.
    pub(crate) fn find_ask(&mut self) -> Option<Ask> {
        let at = self
            .events
            .iter()
            .position(|e| matches!(e, Event::Ask(_)))?;
        match self.events.remove(at) {
            Event::Ask(ask) => Some(ask),
            event => panic!("not an ask: {event:?}"),
        }
    }

    pub(crate) fn ask(&mut self) -> Ask {
        self.find_ask().expect("an ask")
    }

    pub(crate) fn answer(&mut self, ask: &Ask, answer: Result<Value, ErrorObject>) {
        let answer = answer.map(|answer| Payload::of(&answer).expect("JSON"));
        let answered = self.client.answer(self.now, ask.ask, answer);
        answered.expect("open");
        self.deadlines.ask_is_over();
        self.pump();
    }

    /// The items in the outcome of a `list` call.
    pub(crate) fn listed(&mut self, call: CallId) -> Vec<Value> {
        match self.outcome(call) {
            Outcome::Listed(listing) => {
                let items = listing.items.iter();
                items.map(|item| item.parse().expect("JSON")).collect()
            }
            outcome => panic!("{call} is no list: {outcome:?}"),
        }
    }

    /// The changes in the events, in order.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let changes = self.events.iter().filter_map(|event| match event {
            Event::Changed(change) => Some(change.clone()),
            _ => None,
        });
        changes.collect()
    }

    /// The grant of the server, accumulated over the newest epoch.
    pub(crate) fn granted(&self) -> Option<Watch> {
        let (mut newest, mut all) = (None, None);
        for event in &self.events {
            if let Event::Watching { epoch, granted } = event {
                if newest.replace(*epoch) != Some(*epoch) {
                    all = None;
                }
                granted.apply_to(all.get_or_insert_default());
            }
        }
        all
    }

    /// The progress values of a call, in order.
    pub(crate) fn progress(&self, of: CallId) -> Vec<f64> {
        let values = self.events.iter().filter_map(|event| match event {
            Event::Progress { call, progress, .. } if *call == of => Some(*progress),
            _ => None,
        });
        values.collect()
    }

    /// All exchanges with this method.
    pub(crate) fn exchanges_of(&self, method: &str) -> Vec<&Exchange> {
        let all = self.exchanges.iter();
        all.filter(|exchange| exchange.method() == method).collect()
    }

    /// Takes the outcome of a call, which must exist.
    pub(crate) fn outcome(&mut self, call: CallId) -> Outcome {
        self.outcomes
            .remove(&call)
            .unwrap_or_else(|| panic!("{call} has no outcome"))
    }

    pub(crate) fn is_settled(&self, call: CallId) -> bool {
        self.outcomes.contains_key(&call)
    }

    /// Takes the failure of a call.
    pub(crate) fn failure(&mut self, call: CallId) -> Failure {
        match self.outcome(call) {
            Outcome::Failed(failure) => *failure,
            outcome => panic!("{call} did not fail: {outcome:?}"),
        }
    }

    /// Takes the reply to a call: the result, or the error code.
    pub(crate) fn reply(&mut self, call: CallId) -> Result<Value, i64> {
        match self.outcome(call) {
            Outcome::Reply(result) => Ok(result.parse().expect("JSON")),
            Outcome::Error(error) => Err(error.code),
            outcome => panic!("{call} has no reply: {outcome:?}"),
        }
    }

    /// The oldest matching exchange that the test has not looked at.
    pub(crate) fn find(&mut self, predicate: impl Fn(&Exchange) -> bool) -> Option<Exchange> {
        let at = self.unseen.iter().position(predicate)?;
        Some(self.unseen.remove(at))
    }

    /// The oldest POST with this method that the test has not looked at.
    pub(crate) fn next_post(&mut self, method: &str) -> Exchange {
        let seen: Vec<String> = self
            .unseen
            .iter()
            .map(|b| format!("{} {}", b.verb, b.method()))
            .collect();
        self.find(|exchange| exchange.verb == Verb::Post && exchange.method() == method)
            .unwrap_or_else(|| panic!("no {method} was posted, but {seen:?}"))
    }

    /// The oldest exchange with this verb that the test has not looked at.
    pub(crate) fn next_exchange(&mut self, verb: Verb) -> Exchange {
        self.find(|exchange| exchange.verb == verb)
            .unwrap_or_else(|| panic!("the link began no {verb}"))
    }

    /// Whether an exchange is not over.
    pub(crate) fn is_open(&self, stream: StreamId) -> bool {
        self.open.contains_key(&stream)
    }

    /// The number of exchanges that the test has not looked at.
    pub(crate) fn unseen_count(&self) -> usize {
        self.unseen.len()
    }

    /// Gives a whole response.
    pub(crate) fn respond(
        &mut self,
        stream: StreamId,
        status: u16,
        fields: &[(&str, &str)],
        body: &str,
    ) {
        self.head(stream, status, fields);
        if !body.is_empty() {
            self.bytes(stream, body.as_bytes());
        }
        self.end(stream);
    }

    /// Gives a whole JSON response.
    pub(crate) fn json(&mut self, stream: StreamId, status: u16, body: &Value) {
        let fields = [("content-type", "application/json")];
        self.respond(stream, status, &fields, &body.to_string());
    }

    /// Replies to a POST with a complete result.
    pub(crate) fn reply_with(&mut self, exchange: &Exchange, members: Value) {
        self.json(exchange.stream, 200, &complete(exchange, members));
    }

    /// Gives a whole response with only a status.
    pub(crate) fn status(&mut self, stream: StreamId, status: u16) {
        self.respond(stream, status, &[], "");
    }

    /// Begins an event stream.
    pub(crate) fn begin_stream(&mut self, stream: StreamId) {
        self.head(
            stream,
            200,
            &[("Content-Type", "text/event-stream; charset=utf-8")],
        );
    }

    /// Begins a response.
    pub(crate) fn head(&mut self, stream: StreamId, status: u16, fields: &[(&str, &str)]) {
        let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        let head = ResponseHead::new(status).with_fields(fields.collect());
        let head = Box::new(head);
        self.feed(stream, Input::Response { stream, head });
    }

    /// Sends an event with a message.
    pub(crate) fn event(&mut self, stream: StreamId, id: Option<&str>, message: &Value) {
        let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
        self.bytes(stream, format!("{id}data: {message}\n\n").as_bytes());
    }

    pub(crate) fn bytes(&mut self, stream: StreamId, bytes: &[u8]) {
        for piece in self.chunking.cut(bytes, &mut self.drawn) {
            let bytes = piece.into();
            self.feed(stream, Input::Bytes { stream, bytes });
        }
    }

    /// Ends the response without a fault.
    pub(crate) fn end(&mut self, stream: StreamId) {
        self.close(stream, &[]);
    }

    /// Ends the response with a fault of the connection.
    pub(crate) fn fail(&mut self, stream: StreamId, kind: FaultKind) {
        self.close(stream, &[Fault::new(kind)]);
    }

    fn close(&mut self, stream: StreamId, faults: &[Fault]) {
        let faults = faults.into();
        self.feed(stream, Input::End { stream, faults });
        self.open.remove(&stream);
    }

    fn feed(&mut self, stream: StreamId, input: Input<'_>) {
        // A driver reports nothing about an aborted exchange.
        if let Some(epoch) = self.open.get(&stream) {
            self.client.handle(self.now, *epoch, input);
        }
        self.pump();
    }

    /// Advances the clock by `span` and handles each deadline at its time.
    pub(crate) fn advance(&mut self, span: Duration) {
        let until = self.now + span;
        self.pump();
        while let Some(deadline) = self.client.poll_timeout().filter(|due| due.at <= until) {
            self.now = self.now.max(deadline.at);
            self.client.handle_timeout(self.now);
            self.pump();
        }
        self.now = until;
        self.client.handle_timeout(self.now);
        self.pump();
    }

    /// Carries out every output.
    pub(crate) fn pump(&mut self) {
        let mut buf = Vec::new();
        loop {
            let due = self.client.poll_timeout();
            let is_due = due.is_some_and(|due| due.wake == everlink::Wake::Output);
            let output = self.client.poll_output(&mut buf);
            assert_eq!(
                output.is_some(),
                is_due,
                "poll_timeout and poll_output disagree: {output:?}"
            );
            let Some(output) = output else {
                break;
            };
            match output {
                Output::Open { epoch } => {
                    assert!(self.epoch.is_none(), "two epochs at once");
                    self.epoch = Some(epoch);
                    self.epochs_opened += 1;
                    self.client.handle(self.now, epoch, Input::Opened);
                }
                Output::Release { epoch } => {
                    assert_eq!(self.epoch.take(), Some(epoch));
                    self.open.clear();
                }
                Output::Request {
                    epoch,
                    stream,
                    head,
                    len,
                } => {
                    assert_eq!(
                        self.epoch,
                        Some(epoch),
                        "begun in an epoch that is not open"
                    );
                    assert!(self.used_ids.insert(stream), "{stream} is not new");
                    assert_ne!(stream, StreamId::DUPLEX);
                    let body = buf.split_off(buf.len() - len);
                    let exchange = Exchange {
                        epoch,
                        stream,
                        verb: head.verb,
                        target: head.target.clone().into_owned(),
                        fields: head.fields.clone(),
                        body: if len == 0 {
                            Value::Null
                        } else {
                            serde_json::from_slice(&body).expect("JSON")
                        },
                        text: String::from_utf8(body).expect("UTF-8"),
                        at: self.now,
                    };
                    self.open.insert(stream, epoch);
                    self.exchanges.push(exchange.clone());
                    self.unseen.push(exchange);
                }
                Output::Abort { epoch, stream } => {
                    assert_eq!(self.epoch, Some(epoch));
                    assert!(self.open.remove(&stream).is_some(), "{stream} was not open");
                    self.aborted.push(stream);
                }
                Output::Event(Event::Done { call, outcome }) => {
                    let before = self.outcomes.insert(call, outcome);
                    assert!(before.is_none(), "{call} is settled twice");
                }
                Output::Event(event) => {
                    self.deadlines.event(&event);
                    self.events.push(event);
                }
                output => panic!("{output:?} is not an output over HTTP"),
            }
        }
        self.deadlines.check(&self.client);
        assert_eq!(self.client.stats().exchanges, self.exchanges.len() as u64);
    }

    /// Whether there is such an event.
    pub(crate) fn has_event(&self, predicate: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(predicate)
    }
}

/// A reply to a POST with this result.
pub(crate) fn result(exchange: &Exchange, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": exchange.body["id"], "result": result})
}

/// A reply to a POST with a complete result, valid in both eras.
pub(crate) fn complete(exchange: &Exchange, mut members: Value) -> Value {
    members["resultType"] = json!("complete");
    result(exchange, members)
}

pub(crate) fn notification(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// A request of the server (an ask).
pub(crate) fn ask_message(id: impl Into<Value>, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

/// An error reply to a POST.
pub(crate) fn error(exchange: &Exchange, code: i64) -> Value {
    json!({"jsonrpc": "2.0", "id": exchange.body["id"], "error": {"code": code, "message": "no"}})
}

fn capabilities() -> Value {
    json!({"tools": {"listChanged": true}, "prompts": {"listChanged": true}, "completions": {},
        "resources": {"listChanged": true, "subscribe": true}, "logging": {}})
}

/// The result of a modern server for `server/discover`.
pub(crate) fn discover_result() -> Value {
    json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities(),
        "ttlMs": 0, "cacheScope": "private"})
}

/// The result of a legacy server for `initialize`.
pub(crate) fn initialize_result(version: &str) -> Value {
    json!({"protocolVersion": version, "capabilities": capabilities(), "serverInfo": {"name": "s", "version": "1"}})
}

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Helpers for the failure tests: ready-made responses, and counts.
impl Harness {
    /// A ready link over the transport of 2024-11-05, and its event stream.
    pub(crate) fn sse2024() -> (Harness, StreamId) {
        Harness::sse2024_with(config())
    }

    pub(crate) fn sse2024_with(mut config: Config) -> (Harness, StreamId) {
        config.dialect = everlink::Dialect::Legacy;
        let mut harness = Harness::new(config);
        harness.connect();
        let post = harness.next_post("initialize");
        harness.status(post.stream, 405);
        let stream = harness.agree_sse2024();
        (harness, stream)
    }

    /// Answers the handshake over the transport of 2024-11-05, from its GET on.
    pub(crate) fn agree_sse2024(&mut self) -> StreamId {
        let get = self.next_exchange(Verb::Get);
        self.begin_stream(get.stream);
        self.bytes(get.stream, b"event: endpoint\ndata: /messages\n\n");
        let post = self.next_post("initialize");
        self.status(post.stream, 202);
        let reply = result(&post, initialize_result("2024-11-05"));
        self.event(get.stream, None, &reply);
        let post = self.next_post("notifications/initialized");
        self.status(post.stream, 202);
        get.stream
    }

    /// Answers only `initialize`, and opens this session.
    pub(crate) fn answer_initialize(&mut self, session: &str) {
        let post = self.next_post("initialize");
        let fields = [
            ("content-type", "application/json"),
            ("mcp-session-id", session),
        ];
        let body = result(&post, initialize_result("2025-11-25")).to_string();
        self.respond(post.stream, 200, &fields, &body);
    }

    /// Answers a request with a result that is valid in both eras.
    pub(crate) fn serve(&mut self, post: &Exchange) {
        let members = match post.method() {
            "server/discover" => discover_result(),
            "tools/list" => json!({"resultType": "complete", "ttlMs": 0, "tools": []}),
            _ => json!({"resultType": "complete", "content": [], "contents": []}),
        };
        self.json(post.stream, 200, &result(post, members));
    }

    /// Advances the clock second by second, and answers every POST meanwhile.
    pub(crate) fn advance_serving(&mut self, span: Duration) {
        let until = self.now + span;
        loop {
            while let Some(post) = self.find(|exchange| exchange.verb == Verb::Post) {
                if post.body["id"].is_null() {
                    self.status(post.stream, 202);
                } else if post.method() == "initialize" {
                    self.json(
                        post.stream,
                        200,
                        &result(&post, initialize_result("2025-11-25")),
                    );
                } else {
                    self.serve(&post);
                }
            }
            if self.now >= until {
                return;
            }
            self.advance(until.since(self.now).min(seconds(1)));
        }
    }

    /// Ends the response with all of these faults.
    pub(crate) fn fail_with(&mut self, stream: StreamId, kinds: &[FaultKind]) {
        let faults: Vec<Fault> = kinds.iter().map(|kind| Fault::new(*kind)).collect();
        self.close(stream, &faults);
    }

    /// The number of matching exchanges so far.
    pub(crate) fn count(&self, predicate: impl Fn(&Exchange) -> bool) -> usize {
        self.exchanges
            .iter()
            .filter(|exchange| predicate(exchange))
            .count()
    }

    /// The number of exchanges that are not over.
    pub(crate) fn open_exchanges(&self) -> usize {
        self.open.len()
    }

    /// The number of times that the application was asked for credentials.
    pub(crate) fn challenges(&self) -> usize {
        let asked = |event: &&Event| matches!(event, Event::AuthRequired(_));
        self.events.iter().filter(asked).count()
    }

    /// The end of the last epoch, as text.
    pub(crate) fn last_end(&self) -> String {
        let ended = self.client.last_end();
        ended.map_or_else(String::new, ToString::to_string)
    }
}
