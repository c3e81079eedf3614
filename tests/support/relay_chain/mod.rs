//! Three parties in one process: a host, a relay, and a series of servers behind the relay, with a driver and a virtual
//! clock.
//!
//! ```ignore
//! let mut chain = Chain::new(Eras { host: Era::Legacy, server: Era::Modern });
//! let call = chain.tool("echo");
//! chain.until_done(call);
//! assert!(chain.text(call).ends_with("by life 1"));
//! chain.kill(UnreadOutput::Lost);
//! chain.finish();
//! ```
//!
//! The host is a real client end and each server is a real server end (`host`, `service`). A script may write the host's
//! lines instead. The driver works in steps and sleeps exactly until `poll_timeout`. Tests inject an event before each
//! possible step (`Chain::at_step`). The relay must always follow the rules of `host_traffic` and `driver`.

mod driver;
pub(crate) mod exchanges;
mod host;
mod host_traffic;
mod pipe;
pub(crate) mod script;
mod service;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use everlink::client::{CallOptions, Event, Outcome};
use everlink::protocol::Era;
use everlink::relay::{self, Config, Relay, Side};
use everlink::{
    CallId, Client, ErrorObject, ExitStatus, Fault, FaultKind, Input, Instant, Payload, Watch,
};
use serde_json::{Value, json};

pub(crate) use crate::chunking::Chunking;
use driver::ServerProcess;
use host::Host;
pub(crate) use host::{answer_every_ask, answer_no_ask, host_config};
use host_traffic::HostTraffic;
pub(crate) use host_traffic::Sender;
use pipe::Pipe;
pub(crate) use service::{Backend, PROGRESS_REPORTS};

/// An event that does not happen within this time never happens.
const MAX_WAIT: Duration = seconds(24 * 60 * 60);

/// The text that a dying server writes to standard error.
pub(crate) const CRASH_STDERR: &str = "panicked at src/main.rs:7: no more numbers";

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn payload(value: &Value) -> Payload {
    Payload::of(value).expect("a value is JSON")
}

/// The era on each side of the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Eras {
    pub(crate) host: Era,
    pub(crate) server: Era,
}

impl Eras {
    pub(crate) const ALL: [Eras; 4] = [
        Eras::new(Era::Legacy, Era::Legacy),
        Eras::new(Era::Legacy, Era::Modern),
        Eras::new(Era::Modern, Era::Legacy),
        Eras::new(Era::Modern, Era::Modern),
    ];

    pub(crate) const fn new(host: Era, server: Era) -> Eras {
        Eras { host, server }
    }
}

/// Whether the relay still receives the unread output of a server that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnreadOutput {
    /// The relay still reads everything that the server wrote.
    Delivered,
    /// Output that nobody has read is lost.
    Lost,
}

/// An event that happens to a party between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The host ends its output.
    EndHost,
    /// The server dies.
    Kill(UnreadOutput),
    /// The owner of the relay asks for a new transport to the server.
    Reconnect,
    /// The host does not read for 300 s.
    PauseHostReading,
    /// The server of this epoch stops reading.
    StopServerReading,
    /// The owner of the relay shuts it down.
    Shutdown,
}

/// The order in which the parties take their turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnOrder {
    /// Round robin.
    RoundRobin,
    /// Random; the same seed gives the same order.
    Random(u64),
}

impl TurnOrder {
    /// Draws the index of the next party.
    fn draw(&mut self, of: usize) -> usize {
        match self {
            TurnOrder::RoundRobin => 0,
            TurnOrder::Random(seed) => {
                *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                usize::try_from(*seed >> 33).unwrap_or(0) % of
            }
        }
    }
}

pub(crate) struct Chain {
    eras: Eras,
    relay: Relay,
    host: Host,
    from_host: Pipe,
    to_host: Pipe,
    backends: Box<dyn FnMut(u64) -> Backend>,
    process: Option<ServerProcess>,
    now: Instant,
    chunking: Chunking,
    order: TurnOrder,
    last_turn: usize,
    steps: u64,
    steps_at_one_time: u32,
    /// The step at which an event happens.
    planned_action: Option<(u64, Action)>,
    /// The sides of the relay that have reported their last event.
    closed_sides: Vec<Side>,
    marks: u64,
    crashes: u64,
    host_traffic: HostTraffic,
    server_traffic: ServerTraffic,
    /// The notifications and other one-way events that the servers received, with the number of the epoch.
    received: Vec<(u64, String)>,
    relay_events: Vec<(Instant, relay::Event)>,
    transcript: Transcript,
}

/// # Setup
impl Chain {
    /// A chain with a host and servers of these eras. Nothing has happened yet.
    pub(crate) fn new(eras: Eras) -> Chain {
        Chain::with_config(relay_config(), eras)
    }

    /// Like `new`, with this configuration of the relay.
    pub(crate) fn with_config(relay: Config, eras: Eras) -> Chain {
        let mut chain = Chain::from_configs(relay, Some(host_config(eras.host)));
        chain.eras = eras;
        chain.served_by(move |_| Backend::of(eras.server))
    }

    /// A relay and a host with these configurations. Without a host, a script writes the host's lines.
    pub(crate) fn from_configs(relay: Config, host: Option<everlink::Config>) -> Chain {
        let chunking = Chunking::usual();
        Chain {
            eras: Eras::ALL[0],
            relay: Relay::new(relay),
            host: Host::new(host),
            from_host: Pipe::new(chunking),
            to_host: Pipe::new(chunking),
            backends: Box::new(|_| Backend::Unreachable),
            process: None,
            now: Instant::ZERO,
            chunking,
            order: TurnOrder::RoundRobin,
            last_turn: 0,
            steps: 0,
            steps_at_one_time: 0,
            planned_action: None,
            closed_sides: Vec::new(),
            marks: 0,
            crashes: 0,
            host_traffic: HostTraffic::default(),
            server_traffic: ServerTraffic::default(),
            received: Vec::new(),
            relay_events: Vec::new(),
            transcript: Transcript::default(),
        }
    }

    /// Sets the server of the first epoch, the second, and so on.
    pub(crate) fn served_by(mut self, backends: impl FnMut(u64) -> Backend + 'static) -> Chain {
        self.backends = Box::new(backends);
        self
    }

    /// Sets how all bytes are cut into reads.
    pub(crate) fn chunked(mut self, chunking: Chunking) -> Chain {
        self.chunking = chunking;
        self.from_host = Pipe::new(chunking);
        self.to_host = Pipe::new(chunking);
        self
    }

    pub(crate) fn with_turn_order(mut self, order: TurnOrder) -> Chain {
        self.order = order;
        self
    }

    /// Sets how the host answers asks.
    pub(crate) fn with_ask_handler(
        mut self,
        ask_handler: impl FnMut(&everlink::client::Ask) -> Option<Result<Value, ErrorObject>> + 'static,
    ) -> Chain {
        self.host.ask_handler = Box::new(ask_handler);
        self
    }

    /// Makes `action` happen before this step, counted from the beginning.
    pub(crate) fn at_step(&mut self, step: u64, action: Action) {
        self.planned_action = Some((step, action));
    }

    /// Drops the planned event. Returns whether it has already happened.
    pub(crate) fn drop_planned_action(&mut self) -> bool {
        self.planned_action.take().is_none()
    }
}

/// The configuration of a relay to a child process. It answers `server/discover`, because each host here uses only
/// one era.
pub(crate) fn relay_config() -> Config {
    let mut config = Config::new(everlink::Config::child("guard", "1"), [7; 16]);
    config.answers_discover = true;
    config
}

/// # Host
impl Chain {
    pub(crate) fn call(&mut self, method: &'static str, params: Value) -> CallId {
        self.call_with(method, params, CallOptions::new())
    }

    pub(crate) fn call_with(
        &mut self,
        method: &'static str,
        params: Value,
        options: CallOptions,
    ) -> CallId {
        let params = (!params.is_null()).then(|| payload(&params));
        let now = self.now;
        let call = self.host.client().call(now, method, params, options);
        let call = call.expect("the host accepts the call");
        self.host.calls.insert(call, method);
        call
    }

    /// Calls a tool, with a mark that no other call has.
    pub(crate) fn tool(&mut self, name: &str) -> CallId {
        self.tool_with(name, json!({}))
    }

    pub(crate) fn tool_with(&mut self, name: &str, mut arguments: Value) -> CallId {
        self.marks += 1;
        arguments["mark"] = format!("m{}", self.marks).into();
        self.call("tools/call", json!({"name": name, "arguments": arguments}))
    }

    pub(crate) fn cancel(&mut self, call: CallId, reason: &str) {
        let now = self.now;
        let cancelled = self.host.client().cancel(now, call, Some(reason));
        cancelled.expect("the call is under way");
    }

    pub(crate) fn watch(&mut self, watch: Watch) {
        let now = self.now;
        self.host.client().watch(now, watch);
    }

    /// Calls any other method of the host.
    pub(crate) fn with_host<T>(&mut self, method: impl FnOnce(&mut Client, Instant) -> T) -> T {
        let now = self.now;
        method(self.host.client(), now)
    }

    /// Writes a message in place of the host.
    pub(crate) fn send_as_host(&mut self, message: &Value) {
        self.send_raw_as_host(&format!("{message}\n"));
    }

    pub(crate) fn send_raw_as_host(&mut self, text: &str) {
        self.transcript.push(&format!("host > {}", text.trim_end()));
        self.from_host.write(text.as_bytes());
    }
}

/// # Events
impl Chain {
    pub(crate) fn perform(&mut self, action: Action) {
        self.note(&format!("{action:?}"));
        match action {
            Action::EndHost => self.end_host(),
            Action::Kill(unread) => self.kill(unread),
            Action::Reconnect => {
                let seen = self.relay.upstream().epoch();
                self.relay.reconnect(self.now, seen, "a new version is out");
                self.drain_relay();
            }
            Action::PauseHostReading => self.pause_host_reading(seconds(300)),
            Action::StopServerReading => {
                if let Some(process) = &mut self.process {
                    process.reads = false;
                }
            }
            Action::Shutdown => {
                self.relay.shutdown(self.now);
                self.drain_relay();
            }
        }
    }

    /// Kills the server, if one is running. Bytes on their way to it are lost.
    pub(crate) fn kill(&mut self, unread: UnreadOutput) {
        let Some(process) = self.process.as_mut().filter(|process| process.is_running) else {
            return;
        };
        self.crashes += 1;
        let epoch = process.epoch;
        let stderr = Input::stderr(CRASH_STDERR.as_bytes());
        self.relay.handle_upstream(self.now, epoch, stderr);
        self.drain_relay();
        let process = self.process(epoch);
        process.input.clear();
        if unread == UnreadOutput::Lost {
            process.output.clear();
        }
        process.end(ExitStatus::Code(70));
    }

    /// Ends the output of the host.
    pub(crate) fn end_host(&mut self) {
        self.drain_host();
        self.from_host.close();
    }

    /// Ends the output of the host and makes writing to it fail.
    pub(crate) fn disconnect_host(&mut self) {
        self.end_host();
        let fault = vec![Fault::new(FaultKind::BrokenPipe)];
        self.relay
            .handle_downstream(self.now, Input::write_failed(fault));
        self.drain_relay();
    }

    /// Makes the host stop reading for `span`.
    pub(crate) fn pause_host_reading(&mut self, span: Duration) {
        self.host.reads_from = self.now + span;
    }

    /// Calls any method of the relay.
    pub(crate) fn with_relay<T>(&mut self, method: impl FnOnce(&mut Relay, Instant) -> T) -> T {
        let result = method(&mut self.relay, self.now);
        self.drain_relay();
        result
    }
}

/// # Time
impl Chain {
    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    /// Takes steps until no party can move, without time passing.
    pub(crate) fn settle(&mut self) {
        while self.step() {}
    }

    /// Advances the clock by `span`.
    pub(crate) fn advance(&mut self, span: Duration) {
        let goal = self.now + span;
        self.settle();
        while self.sleep(goal) {
            self.settle();
        }
        self.now = goal;
        self.steps_at_one_time = 0;
    }

    /// Takes one step, or sleeps until the next deadline. Returns false if there is neither.
    pub(crate) fn step_or_sleep(&mut self) -> bool {
        self.step() || self.sleep(self.now + MAX_WAIT)
    }

    /// Runs until `condition` holds or nothing more happens. Returns whether it holds.
    fn run(&mut self, condition: &mut dyn FnMut(&Chain) -> bool) -> bool {
        let goal = self.now + MAX_WAIT;
        loop {
            if condition(self) {
                return true;
            }
            if !self.step() && !self.sleep(goal) {
                return condition(self);
            }
        }
    }

    /// Runs until `condition` holds or the relay is closed.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, mut condition: impl FnMut(&Chain) -> bool) {
        let holds = self.run(&mut condition);
        assert!(
            holds || self.relay.is_closed(),
            "it never happened that {what}"
        );
    }

    #[track_caller]
    pub(crate) fn until_done(&mut self, call: CallId) {
        self.until(&format!("{call} is done"), |chain| chain.is_done(call));
    }

    #[track_caller]
    pub(crate) fn until_all_done(&mut self) {
        self.until("all calls are done", |chain| {
            chain.host.outcomes.len() == chain.host.calls.len()
        });
    }

    /// Ends the host, waits for the relay to close, and checks that nothing is left.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        self.host.reads_from = self.now;
        self.end_host();
        self.until("both sides are closed", |chain| chain.relay.is_closed());
        self.settle();
        assert_eq!(
            self.relay.poll_timeout(),
            None,
            "nothing is due after the end"
        );
        assert!(self.process.is_none(), "the server was not released");
        self.check_replies();
        if let Some(host) = &self.host.client {
            assert!(
                host.stats().readies <= 1,
                "the host did more than one handshake"
            );
        }
        assert!(
            self.host_traffic.handshakes <= 1,
            "the host did more than one handshake"
        );
    }

    /// Checks that every request that the relay read has its reply or was cancelled.
    #[track_caller]
    pub(crate) fn check_replies(&self) {
        let open = self.host_traffic.open();
        assert!(open.is_empty(), "requests without a reply: {open:?}");
    }
}

/// # Results
impl Chain {
    pub(crate) const fn relay(&self) -> &Relay {
        &self.relay
    }

    /// The eras of the chain.
    pub(crate) const fn eras(&self) -> Eras {
        self.eras
    }

    pub(crate) const fn steps(&self) -> u64 {
        self.steps
    }

    /// The number of unfinished calls of the host.
    pub(crate) fn in_flight(&self) -> usize {
        self.host.calls.len() - self.host.outcomes.len()
    }

    /// Whether a server is running.
    pub(crate) fn has_server(&self) -> bool {
        self.process
            .as_ref()
            .is_some_and(|process| process.is_running)
    }

    pub(crate) const fn crashes(&self) -> u64 {
        self.crashes
    }

    /// The number of the newest epoch of the server.
    pub(crate) const fn newest_epoch(&self) -> u64 {
        self.relay.upstream().epoch().number()
    }

    pub(crate) fn is_done(&self, call: CallId) -> bool {
        self.host.outcomes.contains_key(&call)
    }

    /// The state of the host.
    pub(crate) fn host_state(&self) -> Option<everlink::client::State> {
        self.host.client.as_ref().map(Client::state)
    }

    /// Whether the input of the server has ended, or no server exists.
    pub(crate) fn has_server_input_ended(&self) -> bool {
        self.process
            .as_ref()
            .is_none_or(|process| process.input.is_closed())
    }

    /// Whether the relay made its offer to the host before the server had answered.
    pub(crate) fn has_provisional_offer(&self) -> bool {
        let host = self.host.client.as_ref();
        let session = host.and_then(|host| host.session()?.server.as_ref());
        session.is_some_and(|server| server.name() == "guard")
    }

    pub(crate) fn method_of(&self, call: CallId) -> &'static str {
        self.host.calls[&call]
    }

    #[track_caller]
    pub(crate) fn outcome(&self, call: CallId) -> &Outcome {
        self.host.outcome(call)
    }

    /// The result of a call that has one.
    #[track_caller]
    pub(crate) fn result(&self, call: CallId) -> Value {
        match self.outcome(call) {
            Outcome::Reply(result) => result.parse().expect("a result is JSON"),
            other => panic!("{call} has no result: {other:?}"),
        }
    }

    /// The error reply to a call.
    #[track_caller]
    pub(crate) fn error(&self, call: CallId) -> &ErrorObject {
        match self.outcome(call) {
            Outcome::Error(error) => error,
            other => panic!("{call} has no error: {other:?}"),
        }
    }

    /// The text in the result of a tool.
    #[track_caller]
    pub(crate) fn text(&self, call: CallId) -> String {
        let result = self.result(call);
        let text = result["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("the result of {call} has no text: {result}"))
            .to_owned()
    }

    /// The values that `pick` finds in the events of the host, in order.
    pub(crate) fn pick_host_events<'a, T>(
        &'a self,
        pick: impl FnMut(&'a Event) -> Option<T>,
    ) -> Vec<T> {
        let events = self.host.events.iter().map(|(_, event)| event);
        events.filter_map(pick).collect()
    }

    /// The values that `pick` finds in the events of the relay, in order.
    pub(crate) fn pick_relay_events<'a, T>(
        &'a self,
        pick: impl FnMut(&'a relay::Event) -> Option<T>,
    ) -> Vec<T> {
        let events = self.relay_events.iter().map(|(_, event)| event);
        events.filter_map(pick).collect()
    }

    /// The messages of one side, in the order in which the relay read or wrote them.
    pub(crate) fn messages_from(&self, sender: Sender) -> Vec<Value> {
        self.host_traffic.messages_from(sender).collect()
    }

    /// The messages with this method that the relay wrote to the host.
    pub(crate) fn sent_to_host(&self, method: &str) -> Vec<Value> {
        let messages = self.host_traffic.messages_from(Sender::Relay);
        messages
            .filter(|message| message["method"] == method)
            .collect()
    }

    /// The reply of the relay to the request with this id.
    pub(crate) fn reply_to(&self, id: &Value) -> Option<Value> {
        let mut messages = self.host_traffic.messages_from(Sender::Relay);
        messages.find(|message| message["method"].is_null() && message["id"] == *id)
    }

    /// The numbers of requests that the relay read, of replies that it wrote, and of cancelled requests.
    pub(crate) const fn counts(&self) -> (u64, u64, u64) {
        let traffic = &self.host_traffic;
        (
            traffic.request_count,
            traffic.reply_count,
            traffic.cancel_count,
        )
    }

    pub(crate) const fn handshakes(&self) -> u32 {
        self.host_traffic.handshakes
    }

    /// The messages that the relay wrote to the server of this epoch.
    pub(crate) fn all_sent_to_server(&self, epoch: u64) -> Vec<Value> {
        let lines = self
            .server_traffic
            .lines
            .iter()
            .filter(|(of, _)| *of == epoch);
        lines
            .filter_map(|(_, line)| serde_json::from_str(line).ok())
            .collect()
    }

    /// The messages with this method that the relay wrote to the server of this epoch.
    pub(crate) fn sent_to_server(&self, epoch: u64, method: &str) -> Vec<Value> {
        let written = self.all_sent_to_server(epoch).into_iter();
        written
            .filter(|message| message["method"] == method)
            .collect()
    }

    /// The one-way events of the server of this epoch that begin with this text.
    pub(crate) fn received_by(&self, epoch: u64, beginning: &str) -> Vec<&str> {
        let events = self.received.iter().filter(|(of, _)| *of == epoch);
        events
            .map(|(_, what)| what.as_str())
            .filter(|what| what.starts_with(beginning))
            .collect()
    }

    /// The number of bytes that the relay wrote and the host has not read.
    pub(crate) const fn unread_by_host(&self) -> usize {
        self.to_host.waiting()
    }

    /// Adds a line to the transcript.
    fn note(&mut self, what: &str) {
        self.transcript.push(what);
    }
}

/// The messages to the servers, with the number of the epoch. Checks that a tool call goes to only one epoch.
#[derive(Debug, Default)]
struct ServerTraffic {
    lines: Vec<(u64, String)>,
    /// The epoch that each marked call was written to.
    marks: BTreeMap<String, u64>,
}

impl ServerTraffic {
    fn record(&mut self, epoch: u64, line: &str) {
        let mark = line.split_once(r#""mark":""#);
        let mark = mark.and_then(|(_, rest)| rest.split_once('"'));
        if let Some((mark, _)) = mark {
            let first = *self.marks.entry(mark.into()).or_insert(epoch);
            assert_eq!(
                first, epoch,
                "a tool call was sent to a second server: {line}"
            );
        }
        self.lines.push((epoch, line.into()));
    }
}

/// The last 200 lines of the transcript, printed when a test fails.
#[derive(Debug, Default)]
struct Transcript(VecDeque<String>);

impl Transcript {
    fn push(&mut self, what: &str) {
        if self.0.len() == 200 {
            self.0.pop_front();
        }
        self.0.push_back(what.into());
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let lines: Vec<&str> = self.transcript.0.iter().map(String::as_str).collect();
            eprintln!(
                "at step {}, {:?}:\n{}",
                self.steps,
                self.now,
                lines.join("\n")
            );
        }
    }
}
