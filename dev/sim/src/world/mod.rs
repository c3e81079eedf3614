//! The world of one run: a clock, an event queue and all participants.
//!
//! `host` is the application with its machine, `server` the last server, and `leg` the connection of two ends. `pipe` and `network` move data,
//! `faults` injects faults, and `configs` has the configs. `phases` runs the steps and the checks at the end, and `polling` carries out what the
//! machines output.
//!
//! ```text
//! host --leg 0--> server                         or: host --leg 0--> relay --leg 1--> server
//! ```

mod configs;
mod faults;
mod host;
mod leg;
mod network;
mod phases;
mod pipe;
mod polling;
mod scripted;
mod server;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use everlink::relay::Side;
use everlink::{Client, Epoch, ExitStatus, Input, Instant, Relay, StreamId};
use everlink_simulation::Rng;

use crate::oracle::{GroundTruth, Rule, check};
use crate::report::record_trace;
use crate::script::Setup;
use crate::{Report, Script};
use host::Host;
use leg::Leg;
use server::{Answer, LastServer, ServerContext, ServerFaults};

/// The limit for events of one run.
const MAX_EVENTS: u32 = 400_000;

/// The delay after which the driver delivers what it missed.
const CATCH_UP_DELAY: Duration = Duration::from_millis(50);

/// Runs a script to its end. Returns the simulated time.
pub(crate) fn play(script: &Script, flaw: Option<Rule>, report: &mut Report) -> Duration {
    let mut world = World::new(script, flaw, report);
    world.play(&script.steps);
    world.now.since(Instant::ZERO)
}

struct World<'r> {
    setup: Setup,
    now: Instant,
    rng: Rng,
    queue: BinaryHeap<Reverse<Entry>>,
    serial: u64,
    host: Host,
    /// Inputs that the stalled driver of the host has not delivered yet.
    backlog: Vec<WorldEvent>,
    relay: Option<RelayProcess>,
    /// Whether a relay made an offer before its server was ready. That offer has lists and no subscriptions.
    was_offered_early: bool,
    last_server: Option<LastServer>,
    legs: Vec<Leg>,
    server_faults: ServerFaults,
    ground_truth: GroundTruth,
    processes: u64,
    streams: u64,
    faults_cleared: bool,
    event_count: u32,
    report: &'r mut Report,
}

/// A relay, as long as its process lives.
struct RelayProcess {
    process: u64,
    relay: Box<Relay>,
    /// The epoch for which credentials were denied. Its watch ended with that.
    denied: Option<Epoch>,
    /// Whether its server was ever ready.
    was_ready: bool,
}

/// A scheduled event.
enum WorldEvent {
    /// An answer of a server is ready.
    Answer(u64, Answer),
    /// Credentials for this leg are supplied or denied.
    Credentials(usize, bool),
    /// A process exits.
    Exit(u64, ExitStatus),
    /// A proxy checks whether an exchange is idle.
    CheckIdle(usize, StreamId),
    /// A stalled driver continues.
    CatchUp,
    /// A server that was down starts again.
    Restart(usize),
    /// An input arrives at a lower end.
    ToLower(u64, Input<'static>),
    /// An input arrives at an upper end.
    ToUpper(usize, Epoch, Input<'static>),
}

struct Entry {
    at: Instant,
    serial: u64,
    /// The relay process when the event was scheduled. An event for an earlier process is dropped.
    relay: Option<u64>,
    event: WorldEvent,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.serial == other.serial
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

impl<'r> World<'r> {
    fn new(script: &Script, flaw: Option<Rule>, report: &'r mut Report) -> World<'r> {
        let setup = script.setup.clone();
        let is_socket = setup.shape == crate::script::Shape::Socket;
        let legs = setup.shape.legs().iter();
        let mut world = World {
            now: Instant::from_nanos(1_000_000_000_000),
            rng: Rng::new(setup.seed, 2),
            queue: BinaryHeap::new(),
            serial: 0,
            host: Host::new(configs::client(&setup), flaw),
            backlog: Vec::new(),
            relay: None,
            was_offered_early: false,
            last_server: None,
            legs: legs.map(|is_http| Leg::new(*is_http, is_socket)).collect(),
            server_faults: ServerFaults::default(),
            ground_truth: GroundTruth::default(),
            processes: 0,
            streams: 0,
            faults_cleared: false,
            event_count: 0,
            report,
            setup,
        };
        for leg in 0..world.legs.len() {
            if world.legs[leg].is_http {
                world.start(leg);
            }
        }
        world
    }

    fn after(&mut self, span: Duration, event: WorldEvent) {
        self.at(self.now + span, event);
    }

    fn at(&mut self, at: Instant, event: WorldEvent) {
        self.serial += 1;
        let serial = self.serial;
        let at = at.max(self.now);
        let relay = self.relay_id();
        self.queue.push(Reverse(Entry {
            at,
            serial,
            relay,
            event,
        }));
    }

    /// The latency of one transfer on this leg.
    fn latency(&mut self, leg: usize) -> Duration {
        let extra = self.legs[leg].leg_faults.latency;
        let own = self.rng.below(2_000);
        Duration::from_micros(own + self.rng.below(extra * 1_000 + 1))
    }

    /// The process of the relay, if it runs.
    fn relay_id(&self) -> Option<u64> {
        self.relay.as_ref().map(|relay| relay.process)
    }

    /// The last server, if it runs in this process or in any, and what it needs to answer.
    fn server_in_context(
        &mut self,
        process: Option<u64>,
    ) -> Option<(&mut LastServer, ServerContext<'_>)> {
        let context = ServerContext {
            ground_truth: &mut self.ground_truth,
            server_faults: &mut self.server_faults,
            rng: &mut self.rng,
        };
        let server = self.last_server.as_mut()?;
        let is_it = process.is_none_or(|process| process == server.process);
        is_it.then_some((server, context))
    }
}

/// The clock.
impl World<'_> {
    /// Runs all events of this span.
    fn advance(&mut self, span: Duration) {
        self.advance_until(span, |_| false)
    }

    /// The same, but stops when the condition is true.
    fn advance_until(&mut self, span: Duration, condition: impl Fn(&World<'_>) -> bool) {
        let goal = self.now + span;
        self.poll_all();
        while !condition(self) {
            let Some(at) = self.next_event_at().filter(|at| *at <= goal) else {
                self.now = goal;
                return;
            };
            self.now = self.now.max(at);
            self.event_count += 1;
            check(Rule::TimeOnlyByInput, self.event_count < MAX_EVENTS, || {
                format!("it spins: {}", self.host.subject.debug())
            });
            self.fire_timeouts();
            let is_due = |entry: &Reverse<Entry>| entry.0.at <= self.now;
            if self.queue.peek().is_some_and(is_due) {
                let Reverse(entry) = self.queue.pop().expect("it is there");
                if self.has_receiver(&entry) {
                    self.apply(entry.event);
                }
            }
            self.poll_all();
        }
    }

    /// Whether the receiver of an event still exists.
    fn has_receiver(&self, entry: &Entry) -> bool {
        let relay = self.relay_id();
        let is_for_relay = matches!(entry.event, WorldEvent::ToUpper(1.., ..));
        !is_for_relay || entry.relay == relay
    }

    /// The time of the next event or deadline.
    fn next_event_at(&self) -> Option<Instant> {
        let queued = self.queue.peek().map(|entry| entry.0.at);
        let relay = self.relay.as_ref().and_then(|m| m.relay.poll_timeout());
        let last_server = self.last_server.as_ref().and_then(LastServer::due);
        let machines = [relay, last_server].into_iter().flatten().map(|due| due.at);
        let host = self.host.due().filter(|_| self.host_polls());
        machines.chain(queued).chain(host).min()
    }

    /// Whether the driver of the host polls.
    fn host_polls(&self) -> bool {
        self.now >= self.host.polls_from
    }

    fn fire_timeouts(&mut self) {
        let now = self.now;
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.host.due()) && self.host_polls() {
            self.host.time(now);
        }
        if let Some(relay_process) = &mut self.relay {
            if is_due(relay_process.relay.poll_timeout().map(|due| due.at)) {
                relay_process.relay.handle_timeout(now);
            }
        }
        if let Some(last_server) = &mut self.last_server {
            if is_due(last_server.due().map(|due| due.at)) {
                last_server.time(now);
            }
        }
    }

    fn apply(&mut self, event: WorldEvent) {
        match event {
            WorldEvent::Answer(process, answer) => {
                let now = self.now;
                if let Some((server, mut context)) = self.server_in_context(Some(process)) {
                    server.answer(now, answer, &mut context);
                }
            }
            WorldEvent::Credentials(leg, supplied) => self.credentials(leg, supplied),
            WorldEvent::Exit(process, status) => self.exit(process, status),
            WorldEvent::CheckIdle(leg, stream) => self.cut_if_idle(leg, stream),
            WorldEvent::CatchUp => self.deliver_backlog(),
            WorldEvent::Restart(leg) => {
                if self.process_below(leg).is_none() {
                    self.start(leg);
                }
            }
            WorldEvent::ToLower(process, input) => self.deliver_to_lower(process, input),
            WorldEvent::ToUpper(leg, epoch, input) => self.deliver_to_upper(leg, epoch, input),
        }
    }

    /// Delivers the inputs that a stalled driver has missed.
    fn deliver_backlog(&mut self) {
        if self.host.is_stalled(self.now) {
            return;
        }
        for event in std::mem::take(&mut self.backlog) {
            self.apply(event);
            self.poll_all();
        }
    }

    fn deliver_to_upper(&mut self, leg: usize, epoch: Epoch, input: Input<'static>) {
        // The inputs of the backlog come first.
        if leg == 0 && (self.host.is_stalled(self.now) || !self.backlog.is_empty()) {
            self.backlog.push(WorldEvent::ToUpper(leg, epoch, input));
            return;
        }
        if self.legs[leg].epoch != Some(epoch) || !self.is_awaited(leg, &input) {
            return;
        }
        if let Input::Bytes { stream, .. } = &input {
            let wants = match &self.relay {
                _ if leg == 0 => self.host.wants_input(*stream),
                Some(relay_process) => relay_process.relay.wants_input(Side::Upstream, *stream),
                None => true,
            };
            if !wants {
                return self.defer_input(leg, epoch, input);
            }
        }
        self.report_sent(leg, &input);
        self.remove_ended_exchange(leg, &input);
        if leg == 0 {
            record_trace(self.report, self.now, || match &input {
                Input::Bytes { bytes, .. } => {
                    let text = String::from_utf8_lossy(bytes);
                    format!("  <- {input:?} {}", text.trim_end())
                }
                input => format!("  <- {input:?}"),
            });
            return self.host.feed(self.now, epoch, input);
        }
        if let Some(relay_process) = &mut self.relay {
            relay_process.relay.handle_upstream(self.now, epoch, input);
        }
    }

    /// Defers an input that the receiver does not want yet, and all later inputs of the same stream.
    fn defer_input(&mut self, leg: usize, epoch: Epoch, input: Input<'static>) {
        let later = self.now + Duration::from_millis(5);
        let mut rest: Vec<Entry> = Vec::new();
        let stream = input.stream();
        let queue = std::mem::take(&mut self.queue);
        for Reverse(mut entry) in queue.into_sorted_vec().into_iter().rev() {
            if let WorldEvent::ToUpper(event_leg, event_epoch, input) = &entry.event {
                let is_behind = input.stream() == stream || input.stream().is_none();
                if *event_leg == leg && *event_epoch == epoch && is_behind && entry.at < later {
                    entry.at = later;
                }
            }
            rest.push(entry);
        }
        let first = Entry {
            at: later,
            serial: 0,
            relay: self.relay_id(),
            event: WorldEvent::ToUpper(leg, epoch, input),
        };
        // Serial 0 sorts it before the later inputs.
        self.queue = rest.into_iter().map(Reverse).collect();
        self.queue.push(Reverse(first));
    }

    fn deliver_to_lower(&mut self, process: u64, input: Input<'static>) {
        if let Some(relay_process) = self.relay.as_mut().filter(|m| m.process == process) {
            relay_process.relay.handle_downstream(self.now, input);
            return;
        }
        let now = self.now;
        let Some((server, mut context)) = self.server_in_context(Some(process)) else {
            return;
        };
        if matches!(input, Input::Bytes { .. }) && !server.wants_input(StreamId::DUPLEX) {
            // A server with unread output gets no further input yet.
            let later = now + Duration::from_millis(5);
            self.at(later, WorldEvent::ToLower(process, input));
        } else {
            server.handle(now, input, &mut context);
        }
    }

    /// Credentials are required for a notification stream. The machine does not ask for them, so this epoch gets no notifications.
    fn stream_denied(&mut self, leg: usize) {
        match (&mut self.relay, leg) {
            (_, 0) => self.host.stream_denied(),
            (Some(relay_process), _) => {
                relay_process.denied = Some(relay_process.relay.upstream().epoch())
            }
            (None, _) => {}
        }
    }

    fn credentials(&mut self, leg: usize, supplied: bool) {
        self.legs[leg].leg_faults.wants_credentials &= !supplied;
        let now = self.now;
        match (&mut self.relay, leg, supplied) {
            (_, 0, true) => self.host.call_early(now, Client::authorized),
            (_, 0, false) => self.host.deny_credentials(now),
            (Some(relay_process), _, true) => {
                relay_process.relay.authorized(now);
            }
            (Some(relay_process), _, false) => {
                relay_process.denied = Some(relay_process.relay.upstream().epoch());
                relay_process
                    .relay
                    .denied(now, "nobody is there to give any");
            }
            (None, ..) => (),
        }
    }
}
