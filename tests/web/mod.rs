//! A client link over HTTP with a server made of words: the test sees every request that the link begins, and says what comes of it.
//!
//! ```text
//! let mut web = Web::legacy();                       // ready, in the session "s-1", its stream of news refused
//! let call = web.call("tools/call", json!({"name": "add"}));
//! let post = web.posted("tools/call");               // the exchange that carries it
//! web.json(post.stream, 200, &result(&post, json!({})));
//! assert!(web.reply(call).is_ok());
//! ```
//!
//! After every step it is checked that exchanges are begun once, under new names and only while their life lasts, that nothing is
//! aborted twice, and that each call has at most one outcome.
#![allow(dead_code, reason = "every test uses its own part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use everlink::client::{CallOptions, Client, Event, Failure, Outcome, State};
use everlink::http::{Fields, ResponseHead, Verb};
use everlink::{CallId, Config, Epoch, Fault, FaultKind, Input, Instant, Output, StreamId};
use serde_json::{Value, json};

pub const URL: &str = "https://mcp.example/mcp";

/// An exchange that the link began.
#[derive(Clone, Debug)]
pub struct Begun {
    pub epoch: Epoch,
    pub stream: StreamId,
    pub verb: Verb,
    pub target: String,
    fields: Fields<'static>,
    /// The message, `Null` where there is none.
    pub body: Value,
    /// When it was begun.
    pub at: Instant,
}

impl Begun {
    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name)
    }

    pub fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or("")
    }
}

pub struct Web {
    pub client: Client,
    pub now: Instant,
    /// Every exchange that was ever begun, in order.
    pub all: Vec<Begun>,
    /// Those that nobody has looked at.
    fresh: Vec<Begun>,
    /// Those that are not over.
    open: BTreeMap<StreamId, Epoch>,
    pub aborted: Vec<StreamId>,
    /// What was told, but outcomes.
    pub events: Vec<Event>,
    outcomes: BTreeMap<CallId, Outcome>,
    pub opens: u32,
    life: Option<Epoch>,
    names: BTreeSet<StreamId>,
}

/// How a link is set up that nobody has connected.
pub fn config() -> Config {
    Config::http("test", "1.0", URL).expect("a URL")
}

impl Web {
    pub fn new(config: Config) -> Web {
        Web {
            client: Client::new(config),
            now: Instant::ZERO,
            all: Vec::new(),
            fresh: Vec::new(),
            open: BTreeMap::new(),
            aborted: Vec::new(),
            events: Vec::new(),
            outcomes: BTreeMap::new(),
            opens: 0,
            life: None,
            names: BTreeSet::new(),
        }
    }

    /// A link that is ready with a modern server that offers everything.
    pub fn modern() -> Web {
        Web::modern_with(config())
    }

    pub fn modern_with(config: Config) -> Web {
        let mut web = Web::new(config);
        web.connect();
        web.agree_modern();
        web
    }

    /// A link that is ready in a session "s-1" of 2025-11-25, whose server has no stream of news.
    pub fn legacy() -> Web {
        Web::legacy_with(config(), "2025-11-25")
    }

    /// The same, and what becomes of the request for the stream of news is not decided.
    pub fn legacy_with_news() -> Web {
        let mut config = config();
        config.dialect = everlink::Dialect::Legacy;
        let mut web = Web::new(config);
        web.connect();
        web.agree_legacy("2025-11-25", Some("s-1"));
        web
    }

    pub fn legacy_with(mut config: Config, version: &str) -> Web {
        config.dialect = everlink::Dialect::Legacy;
        let mut web = Web::new(config);
        web.connect();
        web.agree_legacy(version, Some("s-1"));
        if let Some(listen) = web.find(|begun| begun.verb == Verb::Get) {
            web.status(listen.stream, 405);
        }
        web
    }

    pub fn connect(&mut self) {
        self.client.connect(self.now);
        self.pump();
    }

    /// Answers the modern probe, and the watch that follows.
    pub fn agree_modern(&mut self) {
        let probe = self.posted("server/discover");
        self.json(probe.stream, 200, &result(&probe, discovery()));
        assert_eq!(self.client.state(), State::Ready);
        if let Some(listen) = self.find(|begun| begun.method() == "subscriptions/listen") {
            self.stream(listen.stream);
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

    /// Answers the legacy handshake to its end.
    pub fn agree_legacy(&mut self, version: &str, session: Option<&str>) {
        let post = self.posted("initialize");
        let mut fields = vec![("content-type", "application/json")];
        fields.extend(session.map(|id| ("Mcp-Session-Id", id)));
        let body = result(&post, introduction(version)).to_string();
        self.respond(post.stream, 200, &fields, &body);
        let post = self.posted("notifications/initialized");
        self.status(post.stream, 202);
        assert_eq!(self.client.state(), State::Ready);
    }

    pub fn call(&mut self, method: &'static str, params: Value) -> CallId {
        self.call_with(method, params, CallOptions::new())
    }

    pub fn call_with(
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

    /// The outcome of a call, which must be there.
    pub fn outcome(&mut self, call: CallId) -> Outcome {
        self.outcomes
            .remove(&call)
            .unwrap_or_else(|| panic!("{call} has no outcome"))
    }

    pub fn is_settled(&self, call: CallId) -> bool {
        self.outcomes.contains_key(&call)
    }

    /// How a call failed.
    pub fn failure(&mut self, call: CallId) -> Failure {
        match self.outcome(call) {
            Outcome::Failed(failure) => *failure,
            outcome => panic!("{call} did not fail: {outcome:?}"),
        }
    }

    /// The reply to a call, or the error in its place.
    pub fn reply(&mut self, call: CallId) -> Result<Value, i64> {
        match self.outcome(call) {
            Outcome::Reply(result) => Ok(result.parse().expect("JSON")),
            Outcome::Error(error) => Err(error.code),
            outcome => panic!("{call} has no reply: {outcome:?}"),
        }
    }

    /// The oldest exchange of this kind that nobody has looked at.
    pub fn find(&mut self, is_it: impl Fn(&Begun) -> bool) -> Option<Begun> {
        let at = self.fresh.iter().position(is_it)?;
        Some(self.fresh.remove(at))
    }

    /// The oldest exchange that carries this method and that nobody has looked at.
    pub fn posted(&mut self, method: &str) -> Begun {
        let seen: Vec<String> = self
            .fresh
            .iter()
            .map(|b| format!("{} {}", b.verb, b.method()))
            .collect();
        self.find(|begun| begun.verb == Verb::Post && begun.method() == method)
            .unwrap_or_else(|| panic!("no {method} was posted, but {seen:?}"))
    }

    /// The oldest exchange with this verb that nobody has looked at.
    pub fn begun(&mut self, verb: Verb) -> Begun {
        self.find(|begun| begun.verb == verb)
            .unwrap_or_else(|| panic!("no {verb} was begun"))
    }

    /// How many exchanges nobody has looked at.
    pub fn unseen(&self) -> usize {
        self.fresh.len()
    }

    /// A whole response.
    pub fn respond(&mut self, stream: StreamId, status: u16, fields: &[(&str, &str)], body: &str) {
        self.head(stream, status, fields);
        if !body.is_empty() {
            self.bytes(stream, body.as_bytes());
        }
        self.end(stream);
    }

    /// A whole response that is JSON.
    pub fn json(&mut self, stream: StreamId, status: u16, body: &Value) {
        let fields = [("content-type", "application/json")];
        self.respond(stream, status, &fields, &body.to_string());
    }

    /// A whole response that says no more than its status.
    pub fn status(&mut self, stream: StreamId, status: u16) {
        self.respond(stream, status, &[], "");
    }

    /// A response that is a stream of events, none of which has come yet.
    pub fn stream(&mut self, stream: StreamId) {
        self.head(
            stream,
            200,
            &[("Content-Type", "text/event-stream; charset=utf-8")],
        );
    }

    /// How a response begins.
    pub fn head(&mut self, stream: StreamId, status: u16, fields: &[(&str, &str)]) {
        let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        let head = ResponseHead::new(status).with_fields(fields.collect());
        let head = Box::new(head);
        self.feed(stream, Input::Response { stream, head });
    }

    /// An event with a message.
    pub fn event(&mut self, stream: StreamId, id: Option<&str>, message: &Value) {
        let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
        self.bytes(stream, format!("{id}data: {message}\n\n").as_bytes());
    }

    pub fn bytes(&mut self, stream: StreamId, bytes: &[u8]) {
        let bytes = bytes.into();
        self.feed(stream, Input::Bytes { stream, bytes });
    }

    /// The response ends in order.
    pub fn end(&mut self, stream: StreamId) {
        self.close(stream, &[]);
    }

    /// The connection fails.
    pub fn fail(&mut self, stream: StreamId, kind: FaultKind) {
        self.close(stream, &[Fault::new(kind)]);
    }

    fn close(&mut self, stream: StreamId, faults: &[Fault]) {
        let faults = faults.into();
        self.feed(stream, Input::End { stream, faults });
        self.open.remove(&stream);
    }

    fn feed(&mut self, stream: StreamId, input: Input<'_>) {
        // What was aborted is not heard of any more, as with any driver.
        if let Some(epoch) = self.open.get(&stream) {
            self.client.handle(self.now, *epoch, input);
        }
        self.pump();
    }

    /// Time passes, and everything that is due on the way is done in its time.
    pub fn pass(&mut self, span: Duration) {
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

    /// Does every output.
    pub fn pump(&mut self) {
        let mut buf = Vec::new();
        while let Some(output) = self.client.poll_output(&mut buf) {
            match output {
                Output::Open { epoch } => {
                    assert!(self.life.is_none(), "two lives at once");
                    self.life = Some(epoch);
                    self.opens += 1;
                    self.client.handle(self.now, epoch, Input::Opened);
                }
                Output::Release { epoch } => {
                    assert_eq!(self.life.take(), Some(epoch));
                    self.open.clear();
                }
                Output::Request {
                    epoch,
                    stream,
                    head,
                    len,
                } => {
                    assert_eq!(self.life, Some(epoch), "begun in a life that is not");
                    assert!(self.names.insert(stream), "{stream} is not new");
                    assert_ne!(stream, StreamId::DUPLEX);
                    let body = buf.split_off(buf.len() - len);
                    let begun = Begun {
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
                        at: self.now,
                    };
                    self.open.insert(stream, epoch);
                    self.all.push(begun.clone());
                    self.fresh.push(begun);
                }
                Output::Abort { epoch, stream } => {
                    assert_eq!(self.life, Some(epoch));
                    assert!(self.open.remove(&stream).is_some(), "{stream} was not open");
                    self.aborted.push(stream);
                }
                Output::Event(Event::Done { call, outcome }) => {
                    let before = self.outcomes.insert(call, outcome);
                    assert!(before.is_none(), "{call} is settled twice");
                }
                Output::Event(event) => self.events.push(event),
                output => panic!("not over HTTP: {output:?}"),
            }
        }
        let due = self.client.poll_timeout();
        assert!(
            due.is_none_or(|due| due.wake != everlink::Wake::Output),
            "output waits"
        );
    }

    /// Whether something was told.
    pub fn was_told(&self, is_it: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(is_it)
    }
}

/// A reply to what was posted.
pub fn result(begun: &Begun, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": begun.body["id"], "result": result})
}

/// An error in the place of a reply.
pub fn error(begun: &Begun, code: i64) -> Value {
    json!({"jsonrpc": "2.0", "id": begun.body["id"], "error": {"code": code, "message": "no"}})
}

fn capabilities() -> Value {
    json!({"tools": {"listChanged": true}, "prompts": {"listChanged": true}, "completions": {},
        "resources": {"listChanged": true, "subscribe": true}, "logging": {}})
}

/// What a modern server says of itself.
pub fn discovery() -> Value {
    json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities(),
        "ttlMs": 0, "cacheScope": "private"})
}

/// What a legacy server says of itself.
pub fn introduction(version: &str) -> Value {
    json!({"protocolVersion": version, "capabilities": capabilities(), "serverInfo": {"name": "s", "version": "1"}})
}

pub const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
