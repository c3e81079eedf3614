//! The test harness for one server end on a byte stream: a virtual clock, a driver, and a scripted client.
//!
//! ```ignore
//! every_era(|chunking, version| {
//!     let mut harness = Harness::new(config()).chunked(chunking).with_version(version);
//!     let id = harness.call("tools/call", json!({"name": "add"}));
//!     let request = harness.newest_request();
//!     harness.respond(request, json!({"content": []}));
//!     assert_eq!(harness.result(&id)["content"], json!([]));
//!     harness
//! });
//! ```
//!
//! The driver carries out every output in order and sleeps exactly until `poll_timeout`. A late deadline or a spinning
//! server is therefore a failed test. After every step the driver checks the rules that hold for all servers (`rules`).
//! A `Chunking` defines how the client's bytes are cut into reads.

mod rules;

use core::time::Duration;
use std::sync::Arc;

use everlink::protocol::{Era, ServerCapabilities, Version};
use everlink::server::{
    Cancelled, Config, Event, Misuse, Offer, Peer, Progress, Request, Server, State, Unanswered,
};
use everlink::{
    AskId, Change, ErrorObject, Fault, Input, Instant, Output, Payload, RequestId, Wake,
};
use serde_json::{Value, json};

pub(crate) use crate::chunking::Chunking;
use rules::{Rules, UniqueMembers};

/// An event that does not happen within this time never happens.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// A server that takes this many steps without any time passing is spinning.
const MAX_STEPS_AT_ONE_INSTANT: u32 = 200_000;

/// An empty list of messages.
pub(crate) const NO_MESSAGES: [Value; 0] = [];

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The configuration of a server that offers every capability of the protocol.
pub(crate) fn config() -> Config {
    Config::new(full_offer(), [7; 16])
}

/// An offer with every capability of the protocol.
pub(crate) fn full_offer() -> Offer {
    let all = ServerCapabilities::default()
        .with_completions()
        .with_logging()
        .with_prompts(true)
        .with_resources(true, true)
        .with_tools(true);
    Offer::new("host", "1").with_capabilities(all)
}

/// The configuration of a server that offers exactly these capabilities.
pub(crate) fn offering(capabilities: ServerCapabilities) -> Config {
    Config::new(
        Offer::new("host", "1").with_capabilities(capabilities),
        [7; 16],
    )
}

pub(crate) fn is_modern(version: Version) -> bool {
    version.era() == Era::Modern
}

/// The default capabilities of the scripted client: every kind of ask, without sub-capabilities.
pub(crate) fn default_capabilities() -> Value {
    json!({"elicitation": {}, "roots": {}, "sampling": {}})
}

/// The `_meta` of a modern request: version, client and capabilities.
pub(crate) fn meta(capabilities: Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": {"name": "scripted", "version": "1"},
    })
}

/// Adds the `_meta` of a modern request to the parameters. Members that the parameters already have win.
pub(crate) fn with_meta(mut params: Value, capabilities: Value) -> Value {
    if params.is_null() {
        params = json!({});
    }
    let Value::Object(mut members) = meta(capabilities) else {
        panic!("a meta is an object")
    };
    if let Some(Value::Object(own)) = params.get("_meta") {
        members.extend(own.clone());
    }
    params["_meta"] = Value::Object(members);
    params
}

pub(crate) fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    let mut message = json!({"jsonrpc": "2.0", "id": id.into(), "method": method});
    if !params.is_null() {
        message["params"] = params;
    }
    message
}

pub(crate) fn notification(method: &str, params: Value) -> Value {
    let mut message = json!({"jsonrpc": "2.0", "method": method});
    if !params.is_null() {
        message["params"] = params;
    }
    message
}

pub(crate) fn payload(value: &Value) -> Payload {
    Payload::of(value).expect("a value is JSON")
}

pub(crate) fn value(payload: &Payload) -> Value {
    payload.parse().expect("a payload is JSON")
}

/// Runs the script with every way of cutting the client's bytes. The server must behave the same each time.
pub(crate) fn every_chunking(mut script: impl FnMut(Chunking) -> Harness) {
    let mut first: Option<Record> = None;
    for chunking in Chunking::ALL {
        let record = script(chunking).finish();
        let expected = first.get_or_insert_with(|| record.clone());
        assert_same(&record.events, &expected.events, chunking);
        assert_same(&record.written, &expected.written, chunking);
    }
}

fn assert_same(actual: &[String], expected: &[String], chunking: Chunking) {
    for (line, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        assert_eq!(actual, expected, "{chunking:?} differs at line {line}");
    }
    assert_eq!(
        actual.len(),
        expected.len(),
        "{chunking:?} differs in length"
    );
}

/// Runs the script with the newest client of each era and every way of cutting its bytes.
pub(crate) fn every_era(mut script: impl FnMut(Chunking, Version) -> Harness) {
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        every_chunking(|chunking| script(chunking, version));
    }
}

/// Runs the script with a client of each version.
pub(crate) fn every_version(mut script: impl FnMut(Version) -> Harness) {
    for version in Version::ALL {
        script(*version).finish();
    }
}

/// The actions of a server, with their times. The cuts may change how events and messages interleave, but not the
/// order within either.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The events, and the release of the transport.
    pub(crate) events: Vec<String>,
    /// The messages that the server wrote.
    pub(crate) written: Vec<String>,
}

pub(crate) struct Harness {
    pub(crate) server: Server,
    now: Instant,
    chunking: Chunking,
    /// The number of random numbers used for cuts so far.
    drawn: u64,
    /// The version that `call` uses.
    version: Version,
    /// The capabilities that the client declares, in its handshake or in every request.
    capabilities: Value,
    last_id: u64,
    /// Whether the client reads. While it does not, `unread` counts the bytes that the server wrote.
    is_reading: bool,
    unread: usize,
    input_ended: bool,
    rules: Rules,
    steps: u32,
    events: Vec<(Instant, Event)>,
    received: Vec<Value>,
    record: Record,
    /// Everything that was read, written and reported, printed when a test fails.
    transcript: Vec<String>,
}

/// # Setup
impl Harness {
    /// Fills the pipe, so that later messages wait in the queue.
    pub(crate) fn fill_pipe(&mut self) {
        self.stop_reading();
        self.modern_call("server/discover", json!({}));
    }

    pub(crate) fn ask_for_roots(&mut self, request: RequestId) -> AskId {
        self.ask(request, "roots/list", Value::Null)
    }

    /// The reason why a request was cancelled, if it was.
    #[track_caller]
    pub(crate) fn cancel_reason(&self, of: RequestId) -> Option<Cancelled> {
        let mut reasons = self.pick_events(|event| match event {
            Event::Cancelled { request, why } if *request == of => Some(why.clone()),
            _ => None,
        });
        assert!(
            reasons.len() <= 1,
            "{of} was cancelled {} times",
            reasons.len()
        );
        reasons.pop()
    }

    pub(crate) fn new(config: Config) -> Harness {
        let server = Server::new(config);
        assert_eq!(server.poll_timeout(), None, "a new server has no deadline");
        Harness {
            server,
            now: Instant::ZERO,
            chunking: Chunking::usual(),
            drawn: 0,
            version: Version::LATEST_MODERN,
            capabilities: default_capabilities(),
            last_id: 0,
            is_reading: true,
            unread: 0,
            input_ended: false,
            rules: Rules::default(),
            steps: 0,
            events: Vec::new(),
            received: Vec::new(),
            record: Record::default(),
            transcript: Vec::new(),
        }
    }

    pub(crate) fn chunked(mut self, chunking: Chunking) -> Harness {
        self.chunking = chunking;
        self
    }

    /// Sets the capabilities of the client. Must be called before `with_version`.
    pub(crate) fn declaring(mut self, capabilities: Value) -> Harness {
        self.capabilities = capabilities;
        self
    }

    /// Makes `call` use this version from now on. For a legacy version, this does the handshake first.
    pub(crate) fn with_version(mut self, version: Version) -> Harness {
        self.version = version;
        if !is_modern(version) {
            let id = self.initialize(version.as_str());
            assert_eq!(self.result(&id)["protocolVersion"], version.as_str());
            self.send(notification("notifications/initialized", Value::Null));
        }
        self
    }

    /// A server whose client has done the handshake of this version.
    pub(crate) fn legacy(config: Config, version: &str) -> Harness {
        let version = Version::parse(version).expect("a version");
        Harness::new(config).with_version(version)
    }

    /// A server whose client uses the newest modern version and has sent nothing yet.
    pub(crate) fn modern(config: Config) -> Harness {
        Harness::new(config)
    }
}

/// # Messages of the client
impl Harness {
    /// Sends one message, then polls the server.
    pub(crate) fn send(&mut self, message: Value) {
        self.send_all(&[message]);
    }

    /// Sends several messages; with `Chunking::Joined`, in one read.
    pub(crate) fn send_all(&mut self, messages: &[Value]) {
        let lines: Vec<String> = messages.iter().map(Value::to_string).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        self.send_lines(&lines);
    }

    /// Sends one line, which need not be a message.
    pub(crate) fn send_line(&mut self, line: &str) {
        self.send_lines(&[line]);
    }

    /// Sends several lines; with `Chunking::Joined`, in one read.
    pub(crate) fn send_lines(&mut self, lines: &[&str]) {
        if self.chunking == Chunking::Joined {
            self.send_bytes(format!("{}\n", lines.join("\n")).as_bytes());
        } else {
            for line in lines {
                self.send_bytes(format!("{line}\n").as_bytes());
            }
        }
    }

    /// Sends any bytes, which need not end with a line break.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        assert!(!self.input_ended, "the client's input has ended");
        self.note(format!("<- {}", String::from_utf8_lossy(bytes).trim_end()));
        let cancelled = self.rules.client_sent(bytes);
        for piece in self.chunking.cut(bytes, &mut self.drawn) {
            self.server.handle(self.now, Input::bytes(piece));
            self.drain_outputs();
        }
        self.rules.mark_cancelled(cancelled);
    }

    /// Sends a request in the current version and returns its id.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        let params = self.versioned_params(params);
        self.plain_call(method, params)
    }

    /// Adds the `_meta` of a modern request to the parameters if the current version is modern.
    pub(crate) fn versioned_params(&self, params: Value) -> Value {
        if is_modern(self.version) {
            with_meta(params, self.capabilities.clone())
        } else {
            params
        }
    }

    /// Sends a request with the `_meta` of a modern request and returns its id.
    pub(crate) fn modern_call(&mut self, method: &str, params: Value) -> Value {
        let params = with_meta(params, self.capabilities.clone());
        self.plain_call(method, params)
    }

    /// Sends a request with exactly these parameters and returns its id.
    pub(crate) fn plain_call(&mut self, method: &str, params: Value) -> Value {
        let id = self.fresh_id();
        self.send(request(id.clone(), method, params));
        id
    }

    /// Returns an id that no request has used.
    pub(crate) fn fresh_id(&mut self) -> Value {
        self.last_id += 1;
        json!(self.last_id)
    }

    /// Sends `initialize` and returns the id of the request.
    pub(crate) fn initialize(&mut self, version: &str) -> Value {
        let params = json!({
            "protocolVersion": version,
            "capabilities": self.capabilities,
            "clientInfo": {"name": "scripted", "version": "1"},
        });
        self.plain_call("initialize", params)
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.send(notification(method, params));
    }

    /// Cancels a request.
    pub(crate) fn cancel(&mut self, id: &Value) {
        self.notify("notifications/cancelled", json!({"requestId": id}));
    }

    /// Replies to a request of the server.
    pub(crate) fn answer(&mut self, id: &Value, result: Value) {
        self.send(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    /// Calls a tool. Returns the id on the wire and the id that the application sees.
    pub(crate) fn call_tool(&mut self, name: &str) -> (Value, RequestId) {
        let id = self.call("tools/call", json!({"name": name}));
        (id, self.newest_request())
    }

    /// Ends the input of the server.
    pub(crate) fn eof(&mut self) {
        self.eof_with(&[]);
    }

    /// Ends the input of the server with these faults.
    pub(crate) fn eof_with(&mut self, faults: &[Fault]) {
        if !core::mem::replace(&mut self.input_ended, true) {
            self.note("<- (end)".to_owned());
            self.rules.client_input_ended();
            self.server.handle(self.now, Input::end(faults));
            self.drain_outputs();
        }
    }

    /// Reports that writing to the client fails from now on.
    pub(crate) fn fail_writes(&mut self, faults: &[Fault]) {
        self.is_reading = false;
        self.server.handle(self.now, Input::write_failed(faults));
        self.drain_outputs();
    }

    /// Makes the client stop reading: no written byte is reported as sent.
    pub(crate) fn stop_reading(&mut self) {
        self.is_reading = false;
    }

    /// Makes the client read everything that it has not read.
    pub(crate) fn resume_reading(&mut self) {
        self.is_reading = true;
        let unread = core::mem::take(&mut self.unread);
        self.server.handle(self.now, Input::sent(unread));
        self.drain_outputs();
    }
}

/// # Application
impl Harness {
    /// Answers a request with a result.
    #[track_caller]
    pub(crate) fn respond(&mut self, request: RequestId, result: Value) {
        let done = self.with_server(|server, now| server.respond(now, request, payload(&result)));
        done.expect("the server accepts the reply");
    }

    /// Answers a request with an error.
    #[track_caller]
    pub(crate) fn fail(&mut self, request: RequestId, code: i64, message: &str) {
        let error = ErrorObject::new(code, message);
        let done = self.with_server(|server, now| server.fail(now, request, error));
        done.expect("the server accepts the reply");
    }

    /// Sends a request, answers it as the application, and returns the result that the client receives.
    #[track_caller]
    pub(crate) fn call_and_respond(&mut self, method: &str, params: Value, result: Value) -> Value {
        let id = self.call(method, params);
        let request = self.newest_request();
        self.respond(request, result);
        self.result(&id)
    }

    /// Reports progress of a request.
    #[track_caller]
    pub(crate) fn progress(&mut self, request: RequestId, progress: f64) {
        let done =
            self.with_server(|server, now| server.progress(now, request, Progress::new(progress)));
        done.expect("the server accepts the progress");
    }

    /// Sends an ask to the client on behalf of a request.
    #[track_caller]
    pub(crate) fn ask(&mut self, request: RequestId, method: &'static str, params: Value) -> AskId {
        let asked = self.try_ask(request, method, params);
        asked.expect("the server accepts the ask")
    }

    pub(crate) fn try_ask(
        &mut self,
        request: RequestId,
        method: &'static str,
        params: Value,
    ) -> Result<AskId, Misuse> {
        let params = (!params.is_null()).then(|| payload(&params));
        let ask = self.server.ask(self.now, request, method, params)?;
        self.rules.record_ask(ask);
        self.drain_outputs();
        Ok(ask)
    }

    /// Sends an ask to the client that belongs to no request.
    pub(crate) fn try_ask_unbidden(
        &mut self,
        method: &'static str,
        params: Value,
    ) -> Result<AskId, Misuse> {
        let params = (!params.is_null()).then(|| payload(&params));
        let ask = self.server.ask_unbidden(self.now, method, params)?;
        self.rules.record_ask(ask);
        self.drain_outputs();
        Ok(ask)
    }

    /// Publishes a change.
    #[track_caller]
    pub(crate) fn publish(&mut self, change: Change) {
        let done = self.with_server(|server, now| server.publish(now, change));
        done.expect("the server offers this change");
    }

    pub(crate) fn shutdown(&mut self) {
        self.with_server(Server::shutdown);
    }

    /// Calls any other method of the server, also one that returns an error. Not for asks: the rules must record each ask.
    pub(crate) fn with_server<T>(&mut self, act: impl FnOnce(&mut Server, Instant) -> T) -> T {
        let done = act(&mut self.server, self.now);
        self.drain_outputs();
        done
    }
}

/// # Time
impl Harness {
    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    /// Advances the clock by `span`.
    pub(crate) fn advance(&mut self, span: Duration) {
        let goal = self.now + span;
        while let Some(deadline) = self.server.poll_timeout() {
            if deadline.at > goal {
                break;
            }
            if deadline.at > self.now {
                self.now = deadline.at;
                self.steps = 0;
            }
            self.count_step();
            self.server.handle_timeout(self.now);
            if let Some(deadline) = self.server.poll_timeout() {
                assert!(
                    deadline.at > self.now || deadline.wake == Wake::Output,
                    "{deadline:?} is due again right after it was handled"
                );
            }
            self.drain_outputs();
        }
        self.now = goal;
        self.steps = 0;
    }

    /// Ends the client's input, checks that the server closes, and returns the record.
    pub(crate) fn finish(mut self) -> Record {
        self.eof();
        self.advance(MAX_WAIT);
        assert_eq!(
            self.server.state(),
            State::Closed,
            "the server never closes"
        );
        core::mem::take(&mut self.record)
    }
}

/// # Driver
impl Harness {
    /// Carries out every output until none is left.
    pub(crate) fn drain_outputs(&mut self) {
        let mut buf = Vec::new();
        loop {
            let due = self.server.poll_timeout();
            let output = self.server.poll_output(&mut buf);
            let is_output_due = due.is_some_and(|due| due.wake == Wake::Output);
            assert_eq!(
                output.is_some(),
                is_output_due,
                "poll_timeout returned {due:?} before {output:?}"
            );
            let Some(output) = output else { break };
            let at = due.map(|due| due.at);
            assert!(
                at <= Some(self.now),
                "output is waiting, but due only at {at:?}"
            );
            self.count_step();
            self.rules.output(&output);
            match output {
                Output::Event(event) => self.event(event),
                Output::Release { .. } => {
                    let line = self.note("Release".to_owned());
                    self.record.events.push(line);
                }
                Output::Write { len, .. } => {
                    let line = buf.split_off(buf.len() - len);
                    self.write(&line);
                }
                other => panic!("{other:?} is no output of a server on a byte stream"),
            }
        }
        assert!(buf.is_empty(), "bytes that belong to no Write");
        self.rules.check_idle(&self.server);
    }

    fn write(&mut self, line: &[u8]) {
        let text = core::str::from_utf8(line).expect("the server writes UTF-8");
        let text = text
            .strip_suffix('\n')
            .expect("a line ends with a line break");
        assert!(!text.contains(['\n', '\r']), "{text:?} is not one line");
        let message: Value = serde_json::from_str(text).expect("a line is JSON");
        serde_json::from_str::<UniqueMembers>(text).expect("a line has no duplicate member");
        let entry = self.note(format!("-> {text}"));
        self.record.written.push(entry);
        self.rules.server_wrote(&message);
        self.received.push(message);
        if self.is_reading {
            self.server.handle(self.now, Input::sent(line.len()));
        } else {
            self.unread += line.len();
        }
    }

    fn event(&mut self, event: Event) {
        let line = self.note(describe_event(&event));
        self.record.events.push(line);
        self.events.push((self.now, event));
    }

    /// Adds a line with the time to the transcript.
    fn note(&mut self, what: String) -> String {
        let line = format!("[{:?}] {what}", self.now);
        self.transcript.push(line.clone());
        line
    }

    fn count_step(&mut self) {
        self.steps += 1;
        assert!(
            self.steps < MAX_STEPS_AT_ONE_INSTANT,
            "the server spins at {:?}",
            self.now
        );
    }
}

/// # Results
impl Harness {
    /// All messages that the server wrote, in order.
    pub(crate) fn received(&self) -> &[Value] {
        &self.received
    }

    /// All replies to the request with this id, in order.
    pub(crate) fn replies(&self, id: &Value) -> Vec<&Value> {
        let is_reply = |line: &&Value| line.get("method").is_none() && line.get("id") == Some(id);
        self.received.iter().filter(is_reply).collect()
    }

    /// The only reply to a request.
    #[track_caller]
    pub(crate) fn reply(&self, id: &Value) -> Value {
        let replies = self.replies(id);
        assert_eq!(replies.len(), 1, "{id} has {} replies", replies.len());
        replies[0].clone()
    }

    /// The result of a request that has one.
    #[track_caller]
    pub(crate) fn result(&self, id: &Value) -> Value {
        let reply = self.reply(id);
        let result = reply.get("result").cloned();
        result.unwrap_or_else(|| panic!("{id} has no result: {reply}"))
    }

    /// The error of a request that failed.
    #[track_caller]
    pub(crate) fn error(&self, id: &Value) -> Value {
        let reply = self.reply(id);
        let error = reply.get("error").cloned();
        error.unwrap_or_else(|| panic!("{id} did not fail: {reply}"))
    }

    /// The error code of a request that failed.
    #[track_caller]
    pub(crate) fn code(&self, id: &Value) -> i64 {
        let code = self.error(id)["code"].as_i64();
        code.expect("a code is an integer")
    }

    /// All messages with this method that the server wrote.
    pub(crate) fn messages_with(&self, method: &str) -> Vec<&Value> {
        let lines = self.received.iter();
        lines.filter(|line| line["method"] == method).collect()
    }

    /// The error replies without an id, in order. They answer requests that could not be read.
    pub(crate) fn errors_without_id(&self) -> Vec<&Value> {
        let lines = self.received.iter();
        lines
            .filter(|line| line.get("error").is_some() && line["id"].is_null())
            .collect()
    }

    /// Every event, with its time.
    pub(crate) fn events(&self) -> &[(Instant, Event)] {
        &self.events
    }

    /// The values that `pick` finds in the events, in order.
    pub(crate) fn pick_events<'a, T>(&'a self, pick: impl FnMut(&'a Event) -> Option<T>) -> Vec<T> {
        self.events
            .iter()
            .map(|(_, event)| event)
            .filter_map(pick)
            .collect()
    }

    /// The clients in the `Met` events, in order.
    pub(crate) fn met(&self) -> Vec<&Arc<Peer>> {
        self.pick_events(|event| match event {
            Event::Met(peer) => Some(peer),
            _ => None,
        })
    }

    /// The methods of the client's notifications in the events, in order.
    pub(crate) fn notified(&self) -> Vec<&str> {
        self.pick_events(|event| match event {
            Event::Notified { method, .. } => Some(&**method),
            _ => None,
        })
    }

    /// The counts of useless messages in the `Noise` events, in order.
    pub(crate) fn noise(&self) -> Vec<u64> {
        self.pick_events(|event| match event {
            Event::Noise(noise) => Some(noise.count),
            _ => None,
        })
    }

    /// The requests that the application received, in order.
    pub(crate) fn requests(&self) -> Vec<&Request> {
        self.pick_events(|event| match event {
            Event::Request(request) => Some(request),
            _ => None,
        })
    }

    /// The newest request that the application received.
    #[track_caller]
    pub(crate) fn newest_request(&self) -> RequestId {
        let newest = self.requests().pop();
        newest.expect("a request arrived").request
    }

    /// The requests in the `Cancelled` events, in order.
    pub(crate) fn cancellations(&self) -> Vec<RequestId> {
        self.pick_events(|event| match event {
            Event::Cancelled { request, .. } => Some(*request),
            _ => None,
        })
    }

    /// The outcome of an ask, if it has one.
    pub(crate) fn outcome(&self, of: AskId) -> Option<Result<Value, Unanswered>> {
        let found = self.pick_events(|event| match event {
            Event::Answered { ask, outcome, .. } if *ask == of => Some(outcome),
            _ => None,
        });
        let outcome = found.into_iter().next()?.as_ref();
        Some(outcome.map(value).map_err(Clone::clone))
    }
}

/// Prints the last 60 lines of the transcript if the test fails.
impl Drop for Harness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let from = self.transcript.len().saturating_sub(60);
            eprintln!("the last lines of the transcript ({:?}):", self.chunking);
            for line in &self.transcript[from..] {
                eprintln!("  {line}");
            }
        }
    }
}

/// Formats an event with its content, which its `Debug` leaves out.
fn describe_event(event: &Event) -> String {
    let shown = |payload: &Option<Payload>| {
        let text = payload.as_ref().map(|payload| payload.as_str().to_owned());
        text.unwrap_or_default()
    };
    match event {
        Event::Answered {
            outcome: Ok(answer),
            ..
        } => format!("{event:?} {}", answer.as_str()),
        Event::Notified { params, .. } => format!("{event:?} {}", shown(params)),
        Event::Request(request) => format!("{event:?} {}", shown(&request.params)),
        _ => format!("{event:?}"),
    }
}
