//! The test harness for one server end over HTTP: a virtual clock, a driver, and scripted clients.
//!
//! ```ignore
//! let mut harness = Harness::new(config());
//!
//! // A modern request is one exchange. Change the fields of an `HttpRequest` and send it.
//! let call = harness.send(modern(1, "tools/call", json!({"name": "add"})));
//! let request = harness.newest_request();
//! harness.respond(request, json!({"content": []}));
//! assert_eq!(harness.status(call), 200);
//! assert_eq!(harness.json(call)["result"]["content"], json!([]));
//!
//! // A legacy client has a session, and streams.
//! let session = harness.open_session("2025-11-25");
//! let stream = harness.send(session.get());
//! let call = harness.send(session.post(2, "tools/call", json!({"name": "slow"})));
//! harness.disconnect(call);
//! assert_eq!(harness.messages(stream), NO_MESSAGES); // The data of each event.
//! harness.finish();
//! ```
//!
//! The driver carries out every output in order and sleeps exactly until `poll_timeout`. A late deadline or a spinning server is therefore a failed
//! test. With every output the driver checks the rules of exchanges:
//!
//! - An exchange has at most one `Response`. A whole response ends the exchange. After a head, `Write`s follow, and one `Finish` or `Abort`.
//! - After its end, only an `Abort` of unread output may follow. A client that is gone receives nothing.
//! - Each request is answered at most once, on its own exchange or on a stream that resumes it.
//! - A modern stream carries no request of the server.
//!
//! `finish` ends the service and checks that nothing is left.

mod exchange;
mod http_request;
mod store;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use everlink::protocol::{ServerCapabilities, Version};
use everlink::server::{
    Cancelled, Config, Event, Http, Offer, Progress, Refused, Request, Server, State, Storage,
    Unanswered,
};
use everlink::{
    AskId, Change, Epoch, ErrorObject, Fault, FaultKind, Input, Instant, Output, Payload,
    RequestId, StoreAnswer, StreamId, Wake,
};
use serde_json::Value;

pub(crate) use exchange::{Exchange, Sse};
pub(crate) use store::{Store, shared_http, stored_http};

pub(crate) use http_request::{
    HttpRequest, Session, declaring, delete, get, initialize, initialize_with, modern,
    notification, post, with_meta,
};

/// An event that does not happen within this time never happens.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// A server that takes this many steps without any time passing is spinning.
const MAX_STEPS_AT_ONE_INSTANT: u32 = 200_000;

/// All versions with a handshake.
pub(crate) const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// An empty list of messages.
pub(crate) const NO_MESSAGES: [Value; 0] = [];

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The configuration of a server over HTTP that offers every capability of the protocol.
pub(crate) fn config() -> Config {
    http_config(Http::new())
}

/// Like `config`, with these HTTP settings.
pub(crate) fn http_config(http: Http) -> Config {
    Config::new(full_offer(), [7; 16]).with_http(http)
}

/// Like `config`, with exactly these capabilities.
pub(crate) fn offering(capabilities: ServerCapabilities) -> Config {
    let offer = Offer::new("site", "1").with_capabilities(capabilities);
    Config::new(offer, [7; 16]).with_http(Http::new())
}

/// An offer with every capability of the protocol.
pub(crate) fn full_offer() -> Offer {
    let all = ServerCapabilities::default()
        .with_completions()
        .with_logging()
        .with_prompts(true)
        .with_resources(true, true)
        .with_tools(true);
    Offer::new("site", "1").with_capabilities(all)
}

pub(crate) fn payload(value: &Value) -> Payload {
    Payload::of(value).expect("a value is JSON")
}

pub(crate) struct Harness {
    pub(crate) server: Server,
    now: Instant,
    last_stream: u64,
    exchanges: BTreeMap<StreamId, Exchange>,
    events: Vec<(Instant, Event)>,
    /// The requests that the application received, and whether each was cancelled.
    requests: BTreeMap<RequestId, bool>,
    /// Whether the application calls `Server::hang_up` for each request as soon as it arrives.
    pub(crate) hangs_up_on_arrival: bool,
    /// The store of the driver.
    pub(crate) store: Store,
    is_closed: bool,
    steps: u32,
    /// Everything that was read, written and reported, printed when a test fails.
    transcript: Vec<String>,
}

/// # Clients
impl Harness {
    pub(crate) fn new(config: Config) -> Harness {
        Harness::from_server(Server::new(config))
    }

    /// A server whose driver keeps its sessions and their messages in `store`.
    pub(crate) fn with_store(config: Config, store: &Store) -> Harness {
        let node = match config.http.as_ref().map(|http| http.storage) {
            Some(Storage::Driver(storage)) => storage.instance,
            _ => 0,
        };
        let mut harness = Harness::new(config);
        harness.store = store.share(node);
        harness
    }

    /// A harness around an existing server.
    pub(crate) fn from_server(server: Server) -> Harness {
        assert_eq!(server.poll_timeout(), None, "a new server has no deadline");
        Harness {
            server,
            now: Instant::ZERO,
            last_stream: 0,
            exchanges: BTreeMap::new(),
            events: Vec::new(),
            requests: BTreeMap::new(),
            hangs_up_on_arrival: false,
            store: Store::default(),
            is_closed: false,
            steps: 0,
            transcript: Vec::new(),
        }
    }

    /// Sends a whole HTTP request, then polls the server.
    pub(crate) fn send(&mut self, http_request: HttpRequest) -> StreamId {
        let stream = self.begin(&http_request);
        self.body(stream, &http_request.body);
        self.end(stream);
        stream
    }

    /// Sends an HTTP request that must reach the application.
    #[track_caller]
    pub(crate) fn send_accepted(&mut self, http_request: HttpRequest) -> (StreamId, RequestId) {
        let (shown, before) = (http_request.to_string(), self.requests().len());
        let stream = self.send(http_request);
        assert_eq!(
            self.requests().len(),
            before + 1,
            "{shown} does not reach the application"
        );
        (stream, self.newest_request())
    }

    /// Sends an HTTP request that must reach the application, and answers it with `result`.
    #[track_caller]
    pub(crate) fn send_and_respond(
        &mut self,
        http_request: HttpRequest,
        result: Value,
    ) -> StreamId {
        let (stream, request) = self.send_accepted(http_request);
        self.respond(request, result);
        stream
    }

    /// Sends an HTTP request that must not reach the application. Returns the HTTP status and the error code.
    #[track_caller]
    pub(crate) fn send_refused(&mut self, http_request: HttpRequest) -> (u16, i64) {
        let (shown, before) = (http_request.to_string(), self.requests().len());
        let stream = self.send(http_request);
        assert_eq!(
            self.requests().len(),
            before,
            "{shown} reaches the application"
        );
        assert!(self.is_over(stream), "{shown} is not answered");
        let code = self.reply(stream)["error"]["code"].as_i64();
        let code = code.unwrap_or_else(|| panic!("{shown} is answered: {}", self.text(stream)));
        (self.status(stream), code)
    }

    /// Sends only the head of an HTTP request.
    pub(crate) fn begin(&mut self, http_request: &HttpRequest) -> StreamId {
        self.last_stream += 1;
        let stream = StreamId::new(self.last_stream);
        self.note(format!("{stream} <- {http_request}"));
        self.exchanges.insert(stream, Exchange::new(http_request));
        let head = Box::new(http_request.head());
        self.feed(Input::Request { stream, head });
        stream
    }

    /// Sends a piece of the request body.
    pub(crate) fn body(&mut self, stream: StreamId, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.feed(Input::Bytes {
                stream,
                bytes: bytes.into(),
            });
        }
    }

    /// Ends the request body.
    pub(crate) fn end(&mut self, stream: StreamId) {
        let faults = (&[] as &[Fault]).into();
        self.feed(Input::End { stream, faults });
    }

    /// Ends several request bodies before any output is taken.
    pub(crate) fn end_together(&mut self, streams: &[StreamId]) {
        for stream in streams {
            let (stream, faults) = (*stream, (&[] as &[Fault]).into());
            self.server.handle(self.now, Input::End { stream, faults });
        }
        self.drain_outputs();
    }

    /// Makes the client of an exchange disappear: writing to it fails.
    pub(crate) fn disconnect(&mut self, stream: StreamId) {
        self.note(format!("{stream} <- (gone)"));
        self.exchange_mut(stream).client_gone();
        let faults = vec![Fault::new(FaultKind::BrokenPipe)].into();
        self.feed(Input::WriteFailed { stream, faults });
    }

    /// Makes the client of an exchange disappear: reading from it fails.
    pub(crate) fn reset(&mut self, stream: StreamId) {
        self.note(format!("{stream} <- (broken)"));
        self.exchange_mut(stream).client_gone();
        let faults = vec![Fault::new(FaultKind::Reset)].into();
        self.feed(Input::End { stream, faults });
    }

    /// Makes the client of an exchange stop reading: no written byte is reported as sent.
    pub(crate) fn stop_reading(&mut self, stream: StreamId) {
        self.exchange_mut(stream).is_reading = false;
    }

    /// Makes the client of an exchange read everything that it has not read.
    pub(crate) fn resume_reading(&mut self, stream: StreamId) {
        let exchange = self.exchange_mut(stream);
        exchange.is_reading = true;
        let len = core::mem::take(&mut exchange.unread);
        self.feed(Input::Sent { stream, len });
    }

    /// Does a whole handshake of this version.
    #[track_caller]
    pub(crate) fn open_session(&mut self, version: &str) -> Session {
        self.open_session_by(version, None)
    }

    /// Does a whole handshake of this version on behalf of a user.
    #[track_caller]
    pub(crate) fn open_session_by(&mut self, version: &str, user: Option<&str>) -> Session {
        self.open_session_with(initialize(version), version, user)
    }

    /// Does a whole handshake that starts with this request.
    #[track_caller]
    pub(crate) fn open_session_with(
        &mut self,
        initialize: HttpRequest,
        version: &str,
        user: Option<&str>,
    ) -> Session {
        let begun = self.send(initialize.by(user));
        assert_eq!(self.status(begun), 200, "{:?}", self.text(begun));
        let reply = self.messages(begun).remove(0);
        assert_eq!(reply["result"]["protocolVersion"], version);
        let id = self.field(begun, "mcp-session-id");
        let id = id.expect("a session has an id").to_owned();
        let session = Session::new(id, version).by(user);
        let done = self.send(session.notification("notifications/initialized", Value::Null));
        assert_eq!(self.status(done), 202);
        session
    }

    /// Feeds any other input.
    pub(crate) fn feed(&mut self, input: Input<'_>) {
        self.server.handle(self.now, input);
        self.drain_outputs();
    }
}

/// # Store
impl Harness {
    /// Carries out the requests to the store that were held, in order.
    pub(crate) fn answer_store(&mut self) {
        self.store.holds = false;
        while !self.store.held.is_empty() {
            self.answer_nth(0);
        }
    }

    /// Carries out one of the requests to the store that were held.
    #[track_caller]
    pub(crate) fn answer_nth(&mut self, nth: usize) {
        let request = self.store.held.remove(nth);
        if let Some(input) = self.store.carry_out(request) {
            self.feed(input);
        }
    }

    /// Carries out one of the requests to the store that were held. Returns its answer, which is still on its way.
    #[track_caller]
    pub(crate) fn carry_out_nth(&mut self, nth: usize) -> Input<'static> {
        let request = self.store.held.remove(nth);
        let answer = self.store.carry_out(request);
        answer.expect("the request wants an answer")
    }

    /// Takes all notes of other servers. Returns whether there were any.
    pub(crate) fn take_notes(&mut self) -> bool {
        let mut has_any = false;
        while let Some(note) = self.store.next_note() {
            has_any = true;
            self.feed(note);
        }
        has_any
    }

    /// Answers the oldest look-up that was held.
    #[track_caller]
    pub(crate) fn answer_with(&mut self, answer: StoreAnswer) {
        let lookup = self.store.held.remove(0).lookup();
        let lookup = lookup.expect("it is a look-up");
        self.feed(Input::Stored { lookup, answer });
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

    /// Reports progress of a request.
    #[track_caller]
    pub(crate) fn progress(&mut self, request: RequestId, progress: f64) {
        let done =
            self.with_server(|server, now| server.progress(now, request, Progress::new(progress)));
        done.expect("the server accepts the progress");
    }

    /// Hangs up on the client of a request.
    #[track_caller]
    pub(crate) fn hang_up(&mut self, request: RequestId) {
        let done = self.with_server(|server, now| server.hang_up(now, request));
        done.expect("the request is open");
    }

    /// Sends an ask to the client on behalf of a request.
    #[track_caller]
    pub(crate) fn ask(&mut self, request: RequestId, method: &'static str, params: Value) -> AskId {
        let params = (!params.is_null()).then(|| payload(&params));
        let ask = self.with_server(|server, now| server.ask(now, request, method, params));
        ask.expect("the server accepts the ask")
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

    /// Calls any method of the server.
    pub(crate) fn with_server<T>(&mut self, act: impl FnOnce(&mut Server, Instant) -> T) -> T {
        let done = act(&mut self.server, self.now);
        self.drain_outputs();
        done
    }
}

/// # Time
impl Harness {
    /// Advances the clock by `span` without running a timer, as the sleep of a machine does.
    pub(crate) fn sleep(&mut self, span: Duration) {
        self.now = self.now + span;
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

    /// Ends the service and checks that nothing is left.
    pub(crate) fn finish(mut self) {
        self.shutdown();
        self.advance(MAX_WAIT);
        assert_eq!(
            self.server.state(),
            State::Closed,
            "the server never closes"
        );
        assert_eq!(self.server.requests(), 0, "closed with open requests");
        assert_eq!(
            self.server.poll_timeout(),
            None,
            "a deadline is left after `Closed`"
        );
        for (stream, exchange) in &self.exchanges {
            assert!(exchange.is_over(), "{stream} never ends");
        }
    }
}

/// # Driver
impl Harness {
    fn drain_outputs(&mut self) {
        // The buffer may hold bytes that the driver has not handled yet; outputs refer to the appended bytes only.
        let mut buf = b"before".to_vec();
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
            assert!(!self.is_closed, "{output:?} after `Closed`");
            self.count_step();
            self.carry_out(output, &mut buf);
        }
        assert_eq!(buf, b"before", "bytes that belong to no output");
    }

    fn carry_out(&mut self, output: Output<Event>, buf: &mut Vec<u8>) {
        match output {
            Output::Abort { epoch, stream } => {
                assert_eq!(epoch, Epoch::FIRST);
                self.note(format!("{stream} -> (abort)"));
                self.exchange_mut(stream).abort();
            }
            Output::Event(event) => self.event(event),
            Output::Finish { epoch, stream } => {
                assert_eq!(epoch, Epoch::FIRST);
                self.note(format!("{stream} -> (finish)"));
                self.exchange_mut(stream).finish();
                self.check_replies(stream);
            }
            Output::Release { .. } => self.note("release".to_owned()),
            Output::Response {
                epoch,
                stream,
                head,
                len,
                is_whole,
            } => {
                assert_eq!(epoch, Epoch::FIRST);
                let body = buf.split_off(buf.len() - len);
                let shown = String::from_utf8_lossy(&body).into_owned();
                let (status, end) = (head.status, if is_whole { "." } else { "" });
                self.note(format!("{stream} -> {status}{end} {shown}"));
                self.exchange_mut(stream).respond(*head, &body, is_whole);
                self.wrote(stream, len);
                if is_whole {
                    self.check_replies(stream);
                }
            }
            Output::Write { epoch, stream, len } => {
                assert_eq!(epoch, Epoch::FIRST);
                let body = buf.split_off(buf.len() - len);
                let shown = String::from_utf8_lossy(&body).into_owned();
                self.note(format!("{stream} -> {shown}"));
                self.exchange_mut(stream).write(&body);
                self.wrote(stream, len);
            }
            Output::Store(request) => {
                self.note(format!("{request:?}"));
                if let Some(input) = self.store.take(*request) {
                    self.note(format!("{input:?}"));
                    self.server.handle(self.now, input);
                }
            }
            other => panic!("{other:?} is no output of a server over HTTP"),
        }
    }

    fn wrote(&mut self, stream: StreamId, len: usize) {
        let exchange = self.exchange_mut(stream);
        if exchange.is_reading {
            self.server.handle(self.now, Input::Sent { stream, len });
        } else {
            exchange.unread += len;
        }
    }

    /// Checks that each request is answered at most once, and on its own exchange.
    fn check_replies(&mut self, stream: StreamId) {
        let exchange = &self.exchanges[&stream];
        let mut answered = BTreeSet::new();
        for message in exchange.messages() {
            if message.get("method").is_some() {
                let is_request = message.get("id").is_some();
                let is_modern = exchange.is_modern;
                assert!(!is_request || !is_modern, "{message} on a modern stream");
            } else if let Some(id) = message.get("id") {
                assert!(answered.insert(id.to_string()), "{id} is answered twice");
                let is_own = exchange.request_ids.contains(&id.to_string());
                assert!(
                    is_own || exchange.may_resume,
                    "{message} answers no request of this exchange"
                );
            }
        }
    }

    fn event(&mut self, event: Event) {
        self.note(format!("{event:?}"));
        match &event {
            Event::Request(request) => {
                let known = self.requests.insert(request.request, false);
                assert!(known.is_none(), "{} arrived twice", request.request);
                if self.hangs_up_on_arrival {
                    let done = self.server.hang_up(self.now, request.request);
                    done.expect("the request is open");
                }
            }
            Event::Cancelled { request, .. } => match self.requests.insert(*request, true) {
                Some(false) => {}
                known => panic!("{event:?} for a request in state {known:?}"),
            },
            Event::Closed { .. } => self.is_closed = true,
            _ => {}
        }
        self.events.push((self.now, event));
    }

    fn note(&mut self, what: String) {
        let shown: String = what.chars().take(1_000).collect();
        self.transcript.push(format!("[{:?}] {shown}", self.now));
    }

    fn count_step(&mut self) {
        self.steps += 1;
        assert!(
            self.steps < MAX_STEPS_AT_ONE_INSTANT,
            "the server spins at {:?}",
            self.now
        );
    }

    #[track_caller]
    fn exchange_mut(&mut self, stream: StreamId) -> &mut Exchange {
        let exchange = self.exchanges.get_mut(&stream);
        exchange.unwrap_or_else(|| panic!("{stream} is unknown"))
    }
}

/// # Results
impl Harness {
    #[track_caller]
    pub(crate) fn exchange(&self, stream: StreamId) -> &Exchange {
        &self.exchanges[&stream]
    }

    /// The status of the HTTP response.
    #[track_caller]
    pub(crate) fn status(&self, stream: StreamId) -> u16 {
        let head = self.exchange(stream).head.as_ref();
        head.unwrap_or_else(|| panic!("{stream} has no response"))
            .status
    }

    /// Whether a response has begun.
    pub(crate) fn is_answered(&self, stream: StreamId) -> bool {
        self.exchange(stream).head.is_some()
    }

    /// Whether the exchange is over.
    pub(crate) fn is_over(&self, stream: StreamId) -> bool {
        self.exchange(stream).is_over()
    }

    /// A header field of the response.
    #[track_caller]
    pub(crate) fn field(&self, stream: StreamId, name: &str) -> Option<&str> {
        self.exchange(stream).field(name)
    }

    /// All values of a repeated header field of the response.
    #[track_caller]
    pub(crate) fn all_values(&self, stream: StreamId, name: &str) -> Vec<String> {
        let head = self.exchange(stream).head.as_ref().expect("a response");
        let values = head.fields.all(name);
        values
            .map(|value| String::from_utf8_lossy(value).into_owned())
            .collect()
    }

    /// The body so far, as text.
    pub(crate) fn text(&self, stream: StreamId) -> &str {
        core::str::from_utf8(&self.exchange(stream).body).expect("a body is text")
    }

    /// The only message of a JSON response.
    #[track_caller]
    pub(crate) fn json(&self, stream: StreamId) -> Value {
        let kind = self.field(stream, "content-type");
        assert_eq!(kind, Some("application/json"), "{}", self.text(stream));
        serde_json::from_str(self.text(stream)).expect("the body is JSON")
    }

    /// The error code in a JSON response.
    #[track_caller]
    pub(crate) fn code(&self, stream: StreamId) -> i64 {
        let body = self.json(stream);
        body["error"]["code"]
            .as_i64()
            .expect("the reply is an error")
    }

    /// The events of an event stream, comments and primers included.
    #[track_caller]
    pub(crate) fn sse(&self, stream: StreamId) -> Vec<Sse> {
        let kind = self.field(stream, "content-type");
        assert_eq!(kind, Some("text/event-stream"), "{}", self.text(stream));
        self.exchange(stream).sse()
    }

    /// The events of an event stream, or none if the response is something else or has not begun.
    pub(crate) fn sse_or_empty(&self, stream: StreamId) -> Vec<Sse> {
        self.exchange(stream).sse_or_empty()
    }

    /// All messages of a response of any content type.
    pub(crate) fn messages(&self, stream: StreamId) -> Vec<Value> {
        self.exchange(stream).messages()
    }

    /// The only reply among the messages of an exchange.
    #[track_caller]
    pub(crate) fn reply(&self, stream: StreamId) -> Value {
        let mut replies = self.messages(stream);
        replies.retain(|message| message.get("method").is_none());
        assert_eq!(replies.len(), 1, "{}", self.text(stream));
        replies.remove(0)
    }

    /// The result in the only reply of an exchange.
    #[track_caller]
    pub(crate) fn result(&self, stream: StreamId) -> Value {
        let reply = self.reply(stream);
        assert!(reply.get("result").is_some(), "{reply} is an error");
        reply["result"].clone()
    }

    /// The messages with this method, in order.
    pub(crate) fn messages_with(&self, stream: StreamId, method: &str) -> Vec<Value> {
        let mut messages = self.messages(stream);
        messages.retain(|message| message["method"] == method);
        messages
    }

    /// The ids of the asks with this method on all exchanges, in order.
    pub(crate) fn ask_ids(&self, method: &str) -> Vec<Value> {
        let asks = self
            .exchanges
            .keys()
            .flat_map(|s| self.messages_with(*s, method));
        let mut ids: Vec<Value> = asks.filter_map(|ask| ask.get("id").cloned()).collect();
        ids.sort_by_key(Value::as_u64);
        ids.dedup();
        ids
    }

    /// The id of the newest ask with this method.
    #[track_caller]
    pub(crate) fn newest_ask_id(&self, method: &str) -> Value {
        let newest = self.ask_ids(method).pop();
        newest.unwrap_or_else(|| panic!("no ask with {method} was sent"))
    }

    /// The id of the last event that has one.
    #[track_caller]
    pub(crate) fn last_event_id(&self, stream: StreamId) -> String {
        let mut ids = self.sse(stream).into_iter().filter_map(|event| event.id);
        ids.next_back().expect("an event has an id")
    }

    /// The values that `pick` finds in the events, in order.
    pub(crate) fn pick_events<'a, T>(&'a self, pick: impl FnMut(&'a Event) -> Option<T>) -> Vec<T> {
        self.events
            .iter()
            .map(|(_, event)| event)
            .filter_map(pick)
            .collect()
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

    /// The methods of the clients' notifications in the events, in order.
    pub(crate) fn notified(&self) -> Vec<&str> {
        self.pick_events(|event| match event {
            Event::Notified { method, .. } => Some(&**method),
            _ => None,
        })
    }

    /// The refused requests in the events.
    pub(crate) fn refusals(&self) -> Vec<&Refused> {
        self.pick_events(|event| match event {
            Event::Refused(refused) => Some(&**refused),
            _ => None,
        })
    }

    /// The cancelled requests in the events, and the reasons.
    pub(crate) fn cancellations(&self) -> Vec<(RequestId, Cancelled)> {
        self.pick_events(|event| match event {
            Event::Cancelled { request, why } => Some((*request, why.clone())),
            _ => None,
        })
    }

    /// The versions of the clients in the `Met` events, in order.
    pub(crate) fn met(&self) -> Vec<Version> {
        self.pick_events(|event| match event {
            Event::Met(peer) => Some(peer.version),
            _ => None,
        })
    }

    /// The asks that have an outcome, in order.
    pub(crate) fn answered_asks(&self) -> Vec<AskId> {
        self.pick_events(|event| match event {
            Event::Answered { ask, .. } => Some(*ask),
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
        Some(
            outcome
                .map(|answer| answer.parse().expect("an answer is JSON"))
                .map_err(Clone::clone),
        )
    }
}

/// Prints the last 60 lines of the transcript if the test fails.
impl Drop for Harness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let from = self.transcript.len().saturating_sub(60);
            eprintln!("the last lines of the transcript:");
            for line in &self.transcript[from..] {
                eprintln!("  {line}");
            }
        }
    }
}
