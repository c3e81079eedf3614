//! A scripted host around one server end: a virtual clock, a driver, and a scripted client.
//!
//! ```ignore
//! every_era(|chunking, version| {
//!     let mut host = Host::new(config()).chunked(chunking).speaking(version);
//!     let id = host.call("tools/call", json!({"name": "add"}));
//!     let request = host.newest();
//!     host.respond(request, json!({"content": []}));
//!     assert_eq!(host.result(&id)["content"], json!([]));
//!     host
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
use rules::{Rules, Unambiguous};

/// An event that does not happen within this time never happens.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// A server that takes this many steps without any time passing is spinning.
const MOST_STEPS_AT_ONE_TIME: u32 = 200_000;

/// An empty list of messages.
pub(crate) const NOTHING: [Value; 0] = [];

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The configuration of a server that offers every capability of the protocol.
pub(crate) fn config() -> Config {
    Config::new(everything(), [7; 16])
}

/// An offer with every capability of the protocol.
pub(crate) fn everything() -> Offer {
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
pub(crate) fn able() -> Value {
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
pub(crate) fn every_chunking(mut script: impl FnMut(Chunking) -> Host) {
    let mut first: Option<Record> = None;
    for chunking in Chunking::ALL {
        let record = script(chunking).finish();
        let expected = first.get_or_insert_with(|| record.clone());
        same(&record.told, &expected.told, chunking);
        same(&record.written, &expected.written, chunking);
    }
}

fn same(here: &[String], there: &[String], chunking: Chunking) {
    for (line, (here, there)) in here.iter().zip(there).enumerate() {
        assert_eq!(here, there, "{chunking:?} differs at line {line}");
    }
    assert_eq!(here.len(), there.len(), "{chunking:?} differs in length");
}

/// Runs the script with the newest client of each era and every way of cutting its bytes.
pub(crate) fn every_era(mut script: impl FnMut(Chunking, Version) -> Host) {
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        every_chunking(|chunking| script(chunking, version));
    }
}

/// Runs the script with a client of each version.
pub(crate) fn every_version(mut script: impl FnMut(Version) -> Host) {
    for version in Version::ALL {
        script(*version).finish();
    }
}

/// The actions of a server, with their times. The cuts may change how events and messages interleave, but not the
/// order within either.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The events, and the release of the transport.
    pub(crate) told: Vec<String>,
    /// The messages that the server wrote.
    pub(crate) written: Vec<String>,
}

pub(crate) struct Host {
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
    reads: bool,
    unread: usize,
    has_ended: bool,
    rules: Rules,
    steps: u32,
    events: Vec<(Instant, Event)>,
    heard: Vec<Value>,
    record: Record,
    /// Everything that was read, written and reported, printed when a test fails.
    transcript: Vec<String>,
}

/// # Setup
impl Host {
    /// Fills the pipe, so that later messages wait in the queue.
    pub(crate) fn fill_pipe(&mut self) {
        self.stops_reading();
        self.modern_call("server/discover", json!({}));
    }

    pub(crate) fn roots(&mut self, request: RequestId) -> AskId {
        self.ask(request, "roots/list", Value::Null)
    }

    /// The reason why a request was cancelled, if it was.
    #[track_caller]
    pub(crate) fn why_cancelled(&self, of: RequestId) -> Option<Cancelled> {
        let mut whys = self.picked(|event| match event {
            Event::Cancelled { request, why } if *request == of => Some(why.clone()),
            _ => None,
        });
        assert!(whys.len() <= 1, "{of} was cancelled {} times", whys.len());
        whys.pop()
    }

    pub(crate) fn new(config: Config) -> Host {
        let server = Server::new(config);
        assert_eq!(server.poll_timeout(), None, "a new server wants nothing");
        Host {
            server,
            now: Instant::ZERO,
            chunking: Chunking::usual(),
            drawn: 0,
            version: Version::LATEST_MODERN,
            capabilities: able(),
            last_id: 0,
            reads: true,
            unread: 0,
            has_ended: false,
            rules: Rules::default(),
            steps: 0,
            events: Vec::new(),
            heard: Vec::new(),
            record: Record::default(),
            transcript: Vec::new(),
        }
    }

    pub(crate) fn chunked(mut self, chunking: Chunking) -> Host {
        self.chunking = chunking;
        self
    }

    /// Sets the capabilities of the client. Must be called before `speaking`.
    pub(crate) fn declaring(mut self, capabilities: Value) -> Host {
        self.capabilities = capabilities;
        self
    }

    /// Makes `call` use this version from now on. For a legacy version, this does the handshake first.
    pub(crate) fn speaking(mut self, version: Version) -> Host {
        self.version = version;
        if !is_modern(version) {
            let id = self.initialize(version.as_str());
            assert_eq!(self.result(&id)["protocolVersion"], version.as_str());
            self.say(notification("notifications/initialized", Value::Null));
        }
        self
    }

    /// A server whose client has done the handshake of this version.
    pub(crate) fn legacy(config: Config, version: &str) -> Host {
        let version = Version::parse(version).expect("a version");
        Host::new(config).speaking(version)
    }

    /// A server whose client uses the newest modern version and has sent nothing yet.
    pub(crate) fn modern(config: Config) -> Host {
        Host::new(config)
    }
}

/// # Messages of the client
impl Host {
    /// Sends one message, then polls the server.
    pub(crate) fn say(&mut self, message: Value) {
        self.say_all(&[message]);
    }

    /// Sends several messages; with joined reads, in one read.
    pub(crate) fn say_all(&mut self, messages: &[Value]) {
        let lines: Vec<String> = messages.iter().map(Value::to_string).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        self.lines(&lines);
    }

    /// Sends one line, which need not be a message.
    pub(crate) fn line(&mut self, line: &str) {
        self.lines(&[line]);
    }

    /// Sends several lines; with joined reads, in one read.
    pub(crate) fn lines(&mut self, lines: &[&str]) {
        if self.chunking == Chunking::Joined {
            self.raw(format!("{}\n", lines.join("\n")).as_bytes());
        } else {
            for line in lines {
                self.raw(format!("{line}\n").as_bytes());
            }
        }
    }

    /// Sends any bytes, which need not end with a line break.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        assert!(!self.has_ended, "the client has said its last word");
        self.note(format!("<- {}", String::from_utf8_lossy(bytes).trim_end()));
        let later = self.rules.said(bytes);
        for piece in self.chunking.cut(bytes, &mut self.drawn) {
            self.server.handle(self.now, Input::bytes(piece));
            self.turn();
        }
        self.rules.cancelled(later);
    }

    /// Sends a request in the current version and returns its id.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        let params = self.terms(params);
        self.plain_call(method, params)
    }

    /// Adds the `_meta` of a modern request to the parameters if the current version is modern.
    pub(crate) fn terms(&self, params: Value) -> Value {
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
        self.say(request(id.clone(), method, params));
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
        self.say(notification(method, params));
    }

    /// Cancels a request.
    pub(crate) fn cancel(&mut self, id: &Value) {
        self.notify("notifications/cancelled", json!({"requestId": id}));
    }

    /// Replies to a request of the server.
    pub(crate) fn answer(&mut self, id: &Value, result: Value) {
        self.say(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    /// Calls a tool. Returns the id on the wire and the id that the application sees.
    pub(crate) fn tool(&mut self, name: &str) -> (Value, RequestId) {
        let id = self.call("tools/call", json!({"name": name}));
        (id, self.newest())
    }

    /// Ends the input of the server.
    pub(crate) fn eof(&mut self) {
        self.eof_of(&[]);
    }

    /// Ends the input of the server with these faults.
    pub(crate) fn eof_of(&mut self, faults: &[Fault]) {
        if !core::mem::replace(&mut self.has_ended, true) {
            self.note("<- (end)".to_owned());
            self.rules.said_all();
            self.server.handle(self.now, Input::end(faults));
            self.turn();
        }
    }

    /// Reports that writing to the client fails from now on.
    pub(crate) fn write_fails(&mut self, faults: &[Fault]) {
        self.reads = false;
        self.server.handle(self.now, Input::write_failed(faults));
        self.turn();
    }

    /// Makes the client stop reading: no written byte is reported as sent.
    pub(crate) fn stops_reading(&mut self) {
        self.reads = false;
    }

    /// Makes the client read everything that it has not read.
    pub(crate) fn reads_again(&mut self) {
        self.reads = true;
        let unread = core::mem::take(&mut self.unread);
        self.server.handle(self.now, Input::sent(unread));
        self.turn();
    }
}

/// # Application
impl Host {
    /// Answers a request with a result.
    #[track_caller]
    pub(crate) fn respond(&mut self, request: RequestId, result: Value) {
        let done = self.verb(|server, now| server.respond(now, request, payload(&result)));
        done.expect("the server takes the answer");
    }

    /// Answers a request with an error.
    #[track_caller]
    pub(crate) fn fail(&mut self, request: RequestId, code: i64, message: &str) {
        let error = ErrorObject::new(code, message);
        let done = self.verb(|server, now| server.fail(now, request, error));
        done.expect("the server takes the answer");
    }

    /// Sends a request, answers it as the application, and returns the result that the client receives.
    #[track_caller]
    pub(crate) fn served(&mut self, method: &str, params: Value, result: Value) -> Value {
        let id = self.call(method, params);
        let request = self.newest();
        self.respond(request, result);
        self.result(&id)
    }

    /// Reports progress of a request.
    #[track_caller]
    pub(crate) fn progress(&mut self, request: RequestId, progress: f64) {
        let done = self.verb(|server, now| server.progress(now, request, Progress::new(progress)));
        done.expect("the server takes the progress");
    }

    /// Sends an ask to the client on behalf of a request.
    #[track_caller]
    pub(crate) fn ask(&mut self, request: RequestId, method: &'static str, params: Value) -> AskId {
        let asked = self.try_ask(request, method, params);
        asked.expect("the server takes the question")
    }

    pub(crate) fn try_ask(
        &mut self,
        request: RequestId,
        method: &'static str,
        params: Value,
    ) -> Result<AskId, Misuse> {
        let params = (!params.is_null()).then(|| payload(&params));
        let ask = self.server.ask(self.now, request, method, params)?;
        self.rules.asked(ask);
        self.turn();
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
        self.rules.asked(ask);
        self.turn();
        Ok(ask)
    }

    /// Publishes a change.
    #[track_caller]
    pub(crate) fn publish(&mut self, change: Change) {
        let done = self.verb(|server, now| server.publish(now, change));
        done.expect("the server offers word of it");
    }

    pub(crate) fn shutdown(&mut self) {
        self.verb(Server::shutdown);
    }

    /// Calls any other verb, including one that is refused. Not for asks: the rules must be told of each ask.
    pub(crate) fn verb<T>(&mut self, verb: impl FnOnce(&mut Server, Instant) -> T) -> T {
        let done = verb(&mut self.server, self.now);
        self.turn();
        done
    }
}

/// # Time
impl Host {
    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    /// Advances the clock by `span`.
    pub(crate) fn pass(&mut self, span: Duration) {
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
                    "{deadline:?} is due again right after it was told"
                );
            }
            self.turn();
        }
        self.now = goal;
        self.steps = 0;
    }

    /// Ends the client's input, checks that the server closes, and returns the record.
    pub(crate) fn finish(mut self) -> Record {
        self.eof();
        self.pass(PATIENCE);
        assert_eq!(self.server.state(), State::Closed, "it never closes");
        core::mem::take(&mut self.record)
    }
}

/// # Driver
impl Host {
    /// Carries out every output until none is left.
    pub(crate) fn turn(&mut self) {
        let mut buf = Vec::new();
        loop {
            let due = self.server.poll_timeout();
            let output = self.server.poll_output(&mut buf);
            let says_output = due.is_some_and(|due| due.wake == Wake::Output);
            assert_eq!(
                output.is_some(),
                says_output,
                "poll_timeout said {due:?} before {output:?}"
            );
            let Some(output) = output else { break };
            let at = due.map(|due| due.at);
            assert!(at <= Some(self.now), "output waits, but is due {at:?} only");
            self.count_step();
            self.rules.output(&output);
            match output {
                Output::Event(event) => self.event(event),
                Output::Release { .. } => {
                    let line = self.note("Release".to_owned());
                    self.record.told.push(line);
                }
                Output::Write { len, .. } => {
                    let line = buf.split_off(buf.len() - len);
                    self.write(&line);
                }
                other => panic!("{other:?} means nothing for a server on a byte stream"),
            }
        }
        assert!(buf.is_empty(), "bytes that belong to no Write");
        self.rules.at_rest(&self.server);
    }

    fn write(&mut self, line: &[u8]) {
        let text = core::str::from_utf8(line).expect("what is written is text");
        let text = text.strip_suffix('\n').expect("a line ends");
        assert!(!text.contains(['\n', '\r']), "{text:?} is not one line");
        let message: Value = serde_json::from_str(text).expect("a line is JSON");
        serde_json::from_str::<Unambiguous>(text).expect("a line says nothing twice");
        let noted = self.note(format!("-> {text}"));
        self.record.written.push(noted);
        self.rules.wrote(&message);
        self.heard.push(message);
        if self.reads {
            self.server.handle(self.now, Input::sent(line.len()));
        } else {
            self.unread += line.len();
        }
    }

    fn event(&mut self, event: Event) {
        let line = self.note(told(&event));
        self.record.told.push(line);
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
            self.steps < MOST_STEPS_AT_ONE_TIME,
            "the server spins at {:?}",
            self.now
        );
    }
}

/// # Results
impl Host {
    /// All messages that the server wrote, in order.
    pub(crate) fn heard(&self) -> &[Value] {
        &self.heard
    }

    /// All replies to the request with this id, in order.
    pub(crate) fn replies(&self, id: &Value) -> Vec<&Value> {
        let is_reply = |line: &&Value| line.get("method").is_none() && line.get("id") == Some(id);
        self.heard.iter().filter(is_reply).collect()
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
    pub(crate) fn said(&self, method: &str) -> Vec<&Value> {
        let lines = self.heard.iter();
        lines.filter(|line| line["method"] == method).collect()
    }

    /// The error replies without an id, in order. They answer requests that could not be read.
    pub(crate) fn complaints(&self) -> Vec<&Value> {
        let lines = self.heard.iter();
        lines
            .filter(|line| line.get("error").is_some() && line["id"].is_null())
            .collect()
    }

    /// Every event, with its time.
    pub(crate) fn events(&self) -> &[(Instant, Event)] {
        &self.events
    }

    /// The values that `pick` finds in the events, in order.
    pub(crate) fn picked<'a, T>(&'a self, pick: impl FnMut(&'a Event) -> Option<T>) -> Vec<T> {
        self.events
            .iter()
            .map(|(_, event)| event)
            .filter_map(pick)
            .collect()
    }

    /// The clients in the `Met` events, in order.
    pub(crate) fn met(&self) -> Vec<&Arc<Peer>> {
        self.picked(|event| match event {
            Event::Met(peer) => Some(peer),
            _ => None,
        })
    }

    /// The methods of the client's notifications in the events, in order.
    pub(crate) fn notified(&self) -> Vec<&str> {
        self.picked(|event| match event {
            Event::Notified { method, .. } => Some(&**method),
            _ => None,
        })
    }

    /// The counts of useless messages in the `Noise` events, in order.
    pub(crate) fn noise(&self) -> Vec<u64> {
        self.picked(|event| match event {
            Event::Noise(noise) => Some(noise.count),
            _ => None,
        })
    }

    /// The requests that the application received, in order.
    pub(crate) fn requests(&self) -> Vec<&Request> {
        self.picked(|event| match event {
            Event::Request(request) => Some(request),
            _ => None,
        })
    }

    /// The newest request that the application received.
    #[track_caller]
    pub(crate) fn newest(&self) -> RequestId {
        let newest = self.requests().pop();
        newest.expect("a request arrived").request
    }

    /// The requests in the `Cancelled` events, in order.
    pub(crate) fn cancellations(&self) -> Vec<RequestId> {
        self.picked(|event| match event {
            Event::Cancelled { request, .. } => Some(*request),
            _ => None,
        })
    }

    /// The outcome of an ask, if it has one.
    pub(crate) fn outcome(&self, of: AskId) -> Option<Result<Value, Unanswered>> {
        let found = self.picked(|event| match event {
            Event::Answered { ask, outcome, .. } if *ask == of => Some(outcome),
            _ => None,
        });
        let outcome = found.into_iter().next()?.as_ref();
        Some(outcome.map(value).map_err(Clone::clone))
    }
}

/// Prints the last 60 lines of the transcript if the test fails.
impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let from = self.transcript.len().saturating_sub(60);
            eprintln!("the last of what happened ({:?}):", self.chunking);
            for line in &self.transcript[from..] {
                eprintln!("  {line}");
            }
        }
    }
}

/// Formats an event with its content, which its `Debug` leaves out.
fn told(event: &Event) -> String {
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
