//! A harness for one client link: a virtual clock, a driver, and scripted servers.
//!
//! ```ignore
//! every_chunking(|chunking| {
//!     let mut harness = Harness::new(config()).chunked(chunking).served_by(|epoch| match epoch {
//!         1 => Peer::legacy("2025-11-25").dies_on("tools/call", ExitStatus::Code(1)),
//!         _ => Peer::legacy("2025-11-25"),
//!     });
//!     harness.until_ready();
//!     let call = harness.call_tool("add");
//!     assert_eq!(harness.failure(call).delivery, Delivery::Unknown);
//!     harness.until_ready();
//!     harness
//! });
//! ```
//!
//! The driver carries out every output in order, sleeps exactly until `poll_timeout`, and never polls without need. A
//! late deadline or a spinning link is therefore a failed test. After every step the driver checks the rules that hold
//! for all links (`rules`). A `Peer` defines how a server behaves; a `Chunking` defines how its bytes are cut into
//! reads.

mod driver;
mod peer;
mod rules;

use core::time::Duration;
use std::collections::BTreeMap;

use everlink::ErrorObject;
use everlink::client::{CallOptions, Client, Event, Failure, Misuse, Outcome, State};
use everlink::{AskId, CallId, Config, Epoch, Input, Instant, List, Payload, Watch};
use serde_json::{Value, json};

pub(crate) use crate::chunking::Chunking;
pub(crate) use peer::{
    Act, Peer, all_capabilities, ask, dies, dies_exit_first, discover_result, error, error_with,
    initialize_result, notify, progress, reply, stderr,
};
use rules::Rules;

/// The harness waits this long for an event before it fails the test.
const WAIT_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The configuration of a child process with the interactive policy. Jitter has a fixed seed.
pub(crate) fn config() -> Config {
    Config::child("test", "1")
}

/// Runs the script with every way of cutting the server's bytes. The link must behave the same each time.
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

/// The actions of a link, with their times. The cuts may change how events and messages interleave, but not the order
/// within either.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The events and the transport commands.
    pub(crate) events: Vec<String>,
    /// The messages that the link wrote.
    pub(crate) written: Vec<String>,
}

/// Runs the script with a server of each era and every way of cutting its bytes.
pub(crate) fn every_era(mut script: impl FnMut(Chunking, fn() -> Peer) -> Harness) {
    for peer in [latest_legacy as fn() -> Peer, Peer::modern] {
        every_chunking(|chunking| script(chunking, peer));
    }
}

fn latest_legacy() -> Peer {
    Peer::legacy("2025-11-25")
}

/// A command to the driver about a whole transport, with the number of its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    CloseWrite(u64),
    Kill(u64),
    Open(u64),
    Release(u64),
    Terminate(u64),
}

pub(crate) struct Harness {
    link: Client,
    now: Instant,
    chunking: Chunking,
    /// The number of random numbers used for cuts so far.
    drawn: u64,
    /// Creates the server of an epoch from its number.
    new_server: Box<dyn FnMut(u64) -> Peer>,
    processes: BTreeMap<Epoch, ServerProcess>,
    /// The planned acts of the servers, by time and then by the order in which they were planned.
    schedule: BTreeMap<(Instant, u64), (Epoch, Act)>,
    schedule_count: u64,
    rules: Rules,
    steps: u32,
    events: Vec<(Instant, Event)>,
    outcomes: BTreeMap<CallId, usize>,
    commands: Vec<(Instant, Command)>,
    lines: Vec<(u64, Value)>,
    record: Record,
    /// Events, commands and messages in one list, printed when a test fails.
    transcript: Vec<String>,
}

/// The server of one epoch, as the operating system sees it.
struct ServerProcess {
    peer: Peer,
    has_ended: bool,
    has_exited: bool,
}

/// # Setup
impl Harness {
    pub(crate) fn new(config: Config) -> Harness {
        Harness {
            rules: Rules::new(config.policy.retry.floor),
            link: Client::new(config),
            now: Instant::ZERO,
            chunking: Chunking::usual(),
            drawn: 0,
            new_server: Box::new(|_| Peer::legacy("2025-11-25")),
            processes: BTreeMap::new(),
            schedule: BTreeMap::new(),
            schedule_count: 0,
            steps: 0,
            events: Vec::new(),
            outcomes: BTreeMap::new(),
            commands: Vec::new(),
            lines: Vec::new(),
            record: Record::default(),
            transcript: Vec::new(),
        }
    }

    pub(crate) fn chunked(mut self, chunking: Chunking) -> Harness {
        self.chunking = chunking;
        self
    }

    /// Sets the server of the first epoch, the second, and so on. The default is a legacy server.
    pub(crate) fn served_by(mut self, new_server: impl FnMut(u64) -> Peer + 'static) -> Harness {
        self.new_server = Box::new(new_server);
        self
    }
}

/// # Application
impl Harness {
    pub(crate) fn connect(&mut self) {
        self.link.connect(self.now);
        self.pump();
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
        self.try_call(method, params, options)
            .expect("the link accepts the call")
    }

    pub(crate) fn try_call(
        &mut self,
        method: &'static str,
        params: Value,
        options: CallOptions,
    ) -> Result<CallId, Misuse> {
        let params = (!params.is_null()).then(|| payload(&params));
        self.try_call_as_written(method, params, options)
    }

    /// Like `try_call`, with the parameters exactly as they are written.
    pub(crate) fn try_call_as_written(
        &mut self,
        method: &'static str,
        params: Option<Payload>,
        options: CallOptions,
    ) -> Result<CallId, Misuse> {
        let call = self.link.call(self.now, method, params, options)?;
        self.rules.accepted(call);
        self.pump();
        Ok(call)
    }

    /// Calls a tool of this name.
    pub(crate) fn call_tool(&mut self, name: &str) -> CallId {
        self.call("tools/call", json!({"name": name, "arguments": {}}))
    }

    pub(crate) fn list(&mut self, list: List) -> CallId {
        let call = self.list_unpolled(list);
        self.pump();
        call
    }

    /// Calls `list` without polling the link. `pump` or the next call of the harness polls it.
    pub(crate) fn list_unpolled(&mut self, list: List) -> CallId {
        let call = self.link.list(self.now, list, CallOptions::new());
        let call = call.expect("the link accepts the call");
        self.rules.accepted(call);
        call
    }

    pub(crate) fn cancel(&mut self, call: CallId, reason: &str) {
        let cancelled = self.link.cancel(self.now, call, Some(reason));
        cancelled.expect("the call is under way");
        self.pump();
    }

    pub(crate) fn answer(&mut self, ask: AskId, answer: Result<Value, ErrorObject>) {
        let answer = answer.map(|answer| payload(&answer));
        let answered = self.link.answer(self.now, ask, answer);
        answered.expect("the ask is open");
        self.rules.answered();
        self.pump();
    }

    /// Asks for a replacement of the present transport.
    pub(crate) fn reconnect(&mut self, why: &str) {
        self.reconnect_seen(self.link.epoch(), why);
    }

    /// Asks for a replacement of the transport `seen`.
    pub(crate) fn reconnect_seen(&mut self, seen: Epoch, why: &str) {
        self.link.reconnect(self.now, seen, why);
        self.pump();
    }

    pub(crate) fn shutdown(&mut self) {
        self.link.shutdown(self.now);
        self.pump();
    }

    pub(crate) fn wake(&mut self) {
        self.link.wake(self.now);
        self.pump();
    }

    pub(crate) fn watch(&mut self, watch: Watch) {
        self.link.watch(self.now, watch);
        self.pump();
    }

    /// Calls any other method of the link, including one that it refuses, and polls the link.
    pub(crate) fn with_link<T>(&mut self, call: impl FnOnce(&mut Client, Instant) -> T) -> T {
        let result = call(&mut self.link, self.now);
        self.pump();
        result
    }
}

/// # Acts of the present server
impl Harness {
    /// Performs one act now, then polls the link.
    pub(crate) fn perform(&mut self, act: Act) {
        self.perform_in(self.link.epoch(), act);
    }

    /// Performs several acts, one after the other, and polls the link after each.
    pub(crate) fn perform_all(&mut self, acts: Vec<Act>) {
        for act in acts {
            self.perform(act);
        }
    }

    /// Makes the server stop reading: its pipe fills up, and no written byte is reported as sent.
    pub(crate) fn peer_stops_reading(&mut self) {
        if let Some(process) = self.processes.get_mut(&self.link.epoch()) {
            process.peer.reads = false;
        }
    }

    /// Performs one act of the server of `epoch`, which may be over.
    pub(crate) fn perform_in(&mut self, epoch: Epoch, act: Act) {
        self.schedule_act(epoch, self.now, act);
        self.pump();
    }

    /// Feeds one act to the link without polling it. `pump` polls it.
    pub(crate) fn feed_unpolled(&mut self, act: &Act) {
        self.feed(self.link.epoch(), act);
    }

    /// Feeds an input to the link, unchecked by the harness, without polling the link.
    pub(crate) fn feed_input(&mut self, epoch: Epoch, input: Input<'_>) {
        self.link.handle(self.now, epoch, input);
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
        if !self.run(goal, |_| false) {
            self.now = goal;
            self.steps = 0;
        }
    }

    /// Advances the clock until `condition` holds.
    pub(crate) fn until(&mut self, what: &str, mut condition: impl FnMut(&Harness) -> bool) {
        let goal = self.now + WAIT_LIMIT;
        assert!(
            self.run(goal, |harness| condition(harness)),
            "never: {what}"
        );
    }

    /// Connects if the link is idle, and advances the clock until the link is ready.
    pub(crate) fn until_ready(&mut self) {
        if self.state() == State::Idle {
            self.connect();
        }
        self.until_state(State::Ready);
    }

    pub(crate) fn until_state(&mut self, state: State) {
        self.until(&format!("the link is {state}"), |harness| {
            harness.state() == state
        });
    }

    pub(crate) fn until_done(&mut self, call: CallId) {
        self.until(&format!("{call} is done"), |harness| harness.is_done(call));
    }

    /// Shuts the link down, checks that every `Open` has its `Release`, and returns the record.
    pub(crate) fn finish(mut self) -> Record {
        self.shutdown();
        self.until_state(State::Closed);
        self.advance(WAIT_LIMIT);
        let count = |wanted: fn(u64) -> Command| {
            let of = |(_, command): &&(Instant, Command)| *command == wanted(epoch_of(command));
            self.commands.iter().filter(of).count()
        };
        assert_eq!(
            count(Command::Open),
            count(Command::Release),
            "every Open has its Release"
        );
        core::mem::take(&mut self.record)
    }
}

/// # Results
impl Harness {
    pub(crate) const fn link(&self) -> &Client {
        &self.link
    }

    pub(crate) const fn state(&self) -> State {
        self.link.state()
    }

    /// The number of the newest epoch.
    pub(crate) const fn epoch_number(&self) -> u64 {
        self.link.epoch().number()
    }

    /// All calls that the link accepted, in order.
    pub(crate) fn calls(&self) -> Vec<CallId> {
        self.rules.calls()
    }

    pub(crate) fn is_done(&self, call: CallId) -> bool {
        self.outcomes.contains_key(&call)
    }

    #[track_caller]
    pub(crate) fn outcome(&self, call: CallId) -> &Outcome {
        let at = self.outcomes.get(&call).expect("the call is done");
        match &self.events[*at].1 {
            Event::Done { outcome, .. } => outcome,
            other => panic!("{other:?} is no outcome"),
        }
    }

    /// The result of a call that has a reply.
    #[track_caller]
    pub(crate) fn result(&self, call: CallId) -> Value {
        match self.outcome(call) {
            Outcome::Reply(result) => result.parse().expect("a result is JSON"),
            other => panic!("{call} has no reply: {}", describe(other)),
        }
    }

    /// The failure of a call that has no reply.
    #[track_caller]
    pub(crate) fn failure(&self, call: CallId) -> &Failure {
        match self.outcome(call) {
            Outcome::Failed(failure) => failure,
            other => panic!("{call} did not fail: {}", describe(other)),
        }
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

    /// The complete grant after each `Watching` event, with the number of its epoch.
    pub(crate) fn granted(&self) -> Vec<(u64, Watch)> {
        let mut all: Vec<(u64, Watch)> = Vec::new();
        for (_, event) in &self.events {
            if let Event::Watching { epoch, granted } = event {
                let last = all.last().filter(|(of, _)| *of == epoch.number());
                let mut watch = last.map_or_else(Watch::none, |(_, watch)| watch.clone());
                granted.apply_to(&mut watch);
                all.push((epoch.number(), watch));
            }
        }
        all
    }

    /// The transport commands, with their times.
    pub(crate) fn timed_commands(&self) -> &[(Instant, Command)] {
        &self.commands
    }

    pub(crate) fn commands(&self) -> Vec<Command> {
        self.commands.iter().map(|(_, command)| *command).collect()
    }

    /// The transport commands of one epoch.
    pub(crate) fn commands_of(&self, epoch: u64) -> Vec<Command> {
        let all = self.commands().into_iter();
        all.filter(|command| epoch_of(command) == epoch).collect()
    }

    /// The messages that were written to the server of this epoch.
    pub(crate) fn lines_of(&self, epoch: u64) -> Vec<&Value> {
        let lines = self.lines.iter().filter(|(of, _)| *of == epoch);
        lines.map(|(_, line)| line).collect()
    }

    /// The methods that were written to the server of this epoch, in order. A reply counts as an empty method.
    pub(crate) fn methods_of(&self, epoch: u64) -> Vec<&str> {
        let lines = self.lines_of(epoch).into_iter();
        lines
            .map(|line| line["method"].as_str().unwrap_or(""))
            .collect()
    }

    /// The asks of the server, in order.
    pub(crate) fn asks(&self) -> Vec<AskId> {
        self.pick_events(|event| match event {
            Event::Ask(ask) => Some(ask.ask),
            _ => None,
        })
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

pub(crate) fn payload(value: &Value) -> Payload {
    Payload::of(value).expect("a value is JSON")
}

fn epoch_of(command: &Command) -> u64 {
    match command {
        Command::CloseWrite(epoch)
        | Command::Kill(epoch)
        | Command::Open(epoch)
        | Command::Release(epoch)
        | Command::Terminate(epoch) => *epoch,
    }
}

/// Formats an outcome with its content, which its `Debug` leaves out.
fn describe(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Error(error) => format!("error {error}"),
        Outcome::Failed(failure) => format!("failure: {failure}"),
        Outcome::Listed(listing) => {
            let items = listing.items.iter().map(Payload::as_str);
            format!("listed {:?}", items.collect::<Vec<_>>())
        }
        Outcome::Reply(result) => format!("reply {}", result.as_str()),
        other => format!("{other:?}"),
    }
}
