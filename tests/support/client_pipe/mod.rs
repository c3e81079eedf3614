//! A scripted world around one client link: a virtual clock, a driver, and scripted servers.
//!
//! ```ignore
//! every_chunking(|chunking| {
//!     let mut world = World::new(config()).chunked(chunking).served_by(|life| match life {
//!         1 => Peer::legacy("2025-11-25").dies_of("tools/call", ExitStatus::Code(1)),
//!         _ => Peer::legacy("2025-11-25"),
//!     });
//!     world.until_ready();
//!     let call = world.tool("add");
//!     assert_eq!(world.failure(call).delivery, Delivery::Unknown);
//!     world.until_ready();
//!     world
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

use everlink::client::{CallOptions, Client, Event, Failure, Misuse, Outcome, State};
use everlink::wire::ErrorObject;
use everlink::{AskId, CallId, Config, Epoch, Input, Instant, List, Payload, Watch};
use serde_json::{Value, json};

pub(crate) use crate::chunking::Chunking;
pub(crate) use peer::{
    Act, Peer, agreed, ask, dies, dies_exit_first, discovered, error, error_with, everything,
    notify, progress, reply, stderr,
};
use rules::Rules;

/// An event that does not happen within this time never happens.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

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
pub(crate) fn every_chunking(mut script: impl FnMut(Chunking) -> World) {
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

/// The actions of a link, with their times. The cuts may change how events and messages interleave, but not the order
/// within either.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The events and the transport commands.
    pub(crate) told: Vec<String>,
    /// The messages that the link wrote.
    pub(crate) written: Vec<String>,
}

/// Runs the script with a server of each era and every way of cutting its bytes.
pub(crate) fn every_era(mut script: impl FnMut(Chunking, fn() -> Peer) -> World) {
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

pub(crate) struct World {
    link: Client,
    now: Instant,
    chunking: Chunking,
    /// The number of random numbers used for cuts so far.
    drawn: u64,
    cast: Box<dyn FnMut(u64) -> Peer>,
    lives: BTreeMap<Epoch, Life>,
    /// The planned acts of the servers, by time and then by the order in which they were planned.
    calendar: BTreeMap<(Instant, u64), (Epoch, Act)>,
    planned: u64,
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
struct Life {
    peer: Peer,
    has_ended: bool,
    has_exited: bool,
}

/// # Setup
impl World {
    pub(crate) fn new(config: Config) -> World {
        World {
            rules: Rules::new(config.policy.retry.floor),
            link: Client::new(config),
            now: Instant::ZERO,
            chunking: Chunking::usual(),
            drawn: 0,
            cast: Box::new(|_| Peer::legacy("2025-11-25")),
            lives: BTreeMap::new(),
            calendar: BTreeMap::new(),
            planned: 0,
            steps: 0,
            events: Vec::new(),
            outcomes: BTreeMap::new(),
            commands: Vec::new(),
            lines: Vec::new(),
            record: Record::default(),
            transcript: Vec::new(),
        }
    }

    pub(crate) fn chunked(mut self, chunking: Chunking) -> World {
        self.chunking = chunking;
        self
    }

    /// Sets the server of the first epoch, the second, and so on. The default is a legacy server.
    pub(crate) fn served_by(mut self, cast: impl FnMut(u64) -> Peer + 'static) -> World {
        self.cast = Box::new(cast);
        self
    }
}

/// # Application
impl World {
    pub(crate) fn connect(&mut self) {
        self.link.connect(self.now);
        self.turn();
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
            .expect("the link takes the call")
    }

    pub(crate) fn try_call(
        &mut self,
        method: &'static str,
        params: Value,
        options: CallOptions,
    ) -> Result<CallId, Misuse> {
        let params = (!params.is_null()).then(|| payload(&params));
        let call = self.link.call(self.now, method, params, options)?;
        self.rules.accepted(call);
        self.turn();
        Ok(call)
    }

    /// Calls a tool of this name.
    pub(crate) fn tool(&mut self, name: &str) -> CallId {
        self.call("tools/call", json!({"name": name, "arguments": {}}))
    }

    pub(crate) fn list(&mut self, list: List) -> CallId {
        let call = self.list_unpolled(list);
        self.turn();
        call
    }

    /// Calls `list` without polling the link. `turn` or the next verb polls it.
    pub(crate) fn list_unpolled(&mut self, list: List) -> CallId {
        let call = self.link.list(self.now, list, CallOptions::new());
        let call = call.expect("the link takes the call");
        self.rules.accepted(call);
        call
    }

    pub(crate) fn cancel(&mut self, call: CallId, reason: &str) {
        let cancelled = self.link.cancel(self.now, call, Some(reason));
        cancelled.expect("the call is under way");
        self.turn();
    }

    pub(crate) fn answer(&mut self, ask: AskId, answer: Result<Value, ErrorObject>) {
        let answer = answer.map(|answer| payload(&answer));
        let answered = self.link.answer(self.now, ask, answer);
        answered.expect("the question is open");
        self.turn();
    }

    /// Asks for a replacement of the present transport.
    pub(crate) fn reconnect(&mut self, why: &str) {
        self.reconnect_seen(self.link.epoch(), why);
    }

    /// Asks for a replacement of the transport `seen`.
    pub(crate) fn reconnect_seen(&mut self, seen: Epoch, why: &str) {
        self.link.reconnect(self.now, seen, why);
        self.turn();
    }

    pub(crate) fn shutdown(&mut self) {
        self.link.shutdown(self.now);
        self.turn();
    }

    pub(crate) fn wake(&mut self) {
        self.link.wake(self.now);
        self.turn();
    }

    pub(crate) fn watch(&mut self, wish: Watch) {
        self.link.watch(self.now, wish);
        self.turn();
    }

    /// Calls any other verb, including one that is refused.
    pub(crate) fn verb<T>(&mut self, verb: impl FnOnce(&mut Client, Instant) -> T) -> T {
        let done = verb(&mut self.link, self.now);
        self.turn();
        done
    }
}

/// # Acts of the present server
impl World {
    /// Performs one act now, then polls the link.
    pub(crate) fn peer(&mut self, act: Act) {
        self.peer_of(self.link.epoch(), act);
    }

    /// Performs several acts, one after the other, and polls the link after each.
    pub(crate) fn peer_all(&mut self, acts: Vec<Act>) {
        for act in acts {
            self.peer(act);
        }
    }

    /// Makes the server stop reading: its pipe fills up, and no written byte is reported as sent.
    pub(crate) fn peer_stops_reading(&mut self) {
        if let Some(life) = self.lives.get_mut(&self.link.epoch()) {
            life.peer.reads = false;
        }
    }

    /// Performs one act of the server of `epoch`, which may be over.
    pub(crate) fn peer_of(&mut self, epoch: Epoch, act: Act) {
        self.plan(epoch, self.now, act);
        self.turn();
    }

    /// Feeds one act to the link without polling it. `turn` polls it.
    pub(crate) fn peer_unpolled(&mut self, act: &Act) {
        self.feed(self.link.epoch(), act);
    }

    /// Feeds an input to the link, unchecked by the world, without polling the link.
    pub(crate) fn force(&mut self, epoch: Epoch, input: Input<'_>) {
        self.link.handle(self.now, epoch, input);
    }
}

/// # Time
impl World {
    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    /// Advances the clock by `span`.
    pub(crate) fn pass(&mut self, span: Duration) {
        let goal = self.now + span;
        if !self.run(goal, |_| false) {
            self.now = goal;
            self.steps = 0;
        }
    }

    /// Advances the clock until `is_so` holds.
    pub(crate) fn until(&mut self, what: &str, mut is_so: impl FnMut(&World) -> bool) {
        let goal = self.now + PATIENCE;
        assert!(self.run(goal, |world| is_so(world)), "never: {what}");
    }

    /// Connects if the link is idle, and advances the clock until the link is ready.
    pub(crate) fn until_ready(&mut self) {
        if self.state() == State::Idle {
            self.connect();
        }
        self.until_state(State::Ready);
    }

    pub(crate) fn until_state(&mut self, state: State) {
        self.until(&format!("the link is {state}"), |world| {
            world.state() == state
        });
    }

    pub(crate) fn until_done(&mut self, call: CallId) {
        self.until(&format!("{call} is done"), |world| world.is_done(call));
    }

    /// Shuts the link down, checks that every `Open` has its `Release`, and returns the record.
    pub(crate) fn finish(mut self) -> Record {
        self.shutdown();
        self.until_state(State::Closed);
        self.pass(PATIENCE);
        let count = |wanted: fn(u64) -> Command| {
            let of = |(_, command): &&(Instant, Command)| *command == wanted(number(command));
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
impl World {
    pub(crate) const fn link(&self) -> &Client {
        &self.link
    }

    pub(crate) const fn state(&self) -> State {
        self.link.state()
    }

    /// The number of the newest epoch.
    pub(crate) const fn life(&self) -> u64 {
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
            other => panic!("{call} has no reply: {}", told(other)),
        }
    }

    /// The failure of a call that has no reply.
    #[track_caller]
    pub(crate) fn failure(&self, call: CallId) -> &Failure {
        match self.outcome(call) {
            Outcome::Failed(failure) => failure,
            other => panic!("{call} did not fail: {}", told(other)),
        }
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

    /// The complete grant after each `Watching` event, with the number of its epoch.
    pub(crate) fn granted(&self) -> Vec<(u64, Watch)> {
        let mut all: Vec<(u64, Watch)> = Vec::new();
        for (_, event) in &self.events {
            if let Event::Watching { epoch, granted } = event {
                let last = all.last().filter(|(life, _)| *life == epoch.number());
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
    pub(crate) fn commands_of(&self, life: u64) -> Vec<Command> {
        let all = self.commands().into_iter();
        all.filter(|command| number(command) == life).collect()
    }

    /// The messages that were written to the server of this epoch.
    pub(crate) fn lines_of(&self, life: u64) -> Vec<&Value> {
        let of = self.lines.iter().filter(|(of, _)| *of == life);
        of.map(|(_, line)| line).collect()
    }

    /// The methods that were written to the server of this epoch, in order. A reply counts as an empty method.
    pub(crate) fn methods_of(&self, life: u64) -> Vec<&str> {
        let lines = self.lines_of(life).into_iter();
        lines
            .map(|line| line["method"].as_str().unwrap_or(""))
            .collect()
    }

    /// The asks of the server, in order.
    pub(crate) fn asks(&self) -> Vec<AskId> {
        self.picked(|event| match event {
            Event::Ask(ask) => Some(ask.ask),
            _ => None,
        })
    }
}

/// Prints the last 60 lines of the transcript if the test fails.
impl Drop for World {
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

pub(crate) fn payload(value: &Value) -> Payload {
    Payload::of(value).expect("a value is JSON")
}

fn number(command: &Command) -> u64 {
    match command {
        Command::CloseWrite(life)
        | Command::Kill(life)
        | Command::Open(life)
        | Command::Release(life)
        | Command::Terminate(life) => *life,
    }
}

/// Formats an outcome with its content, which its `Debug` leaves out.
fn told(outcome: &Outcome) -> String {
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
