//! The world of one run: a clock, an event queue and all participants.
//!
//! `host` is the application with its machine, `server` the last server, and `leg` the connection of two ends. `pipe` and `network` move data,
//! `faults` injects faults, and `configs` has the configs.
//!
//! ```text
//! host --leg 0--> server                         or: host --leg 0--> relay --leg 1--> server
//! ```

mod configs;
mod faults;
mod host;
mod leg;
mod network;
mod pipe;
mod scripted;
mod server;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use everlink::client::{self, State};
use everlink::relay::{self, Side};
use everlink::{Client, Epoch, ExitStatus, Input, Instant, List, Output, Relay, StreamId};

use crate::oracle::{Check, GroundTruth, Rule, Violation, check, check_no_secret};
use crate::report::Report;
use crate::rng::Rng;
use crate::script::{Action, Pace, Peer, Script, Setup, Step, StepKind};
use host::Host;
use leg::Leg;
use server::{Answer, LastServer, LowerOutput, ServerContext, ServerFaults, relay_outputs};

/// The limit for events of one run.
const MAX_EVENTS: u32 = 400_000;

/// The delay after which the driver delivers what it missed.
const CATCH_UP_DELAY: Duration = Duration::from_millis(50);

/// Runs a script to its end. Returns the counts, and the violation, if there is one.
pub(crate) fn play(
    script: &Script,
    flaw: Option<Rule>,
    report: Report,
) -> (Report, Option<Violation>) {
    let mut world = World::new(script, flaw);
    world.report = report;
    let result = world.play(&script.steps);
    world.report.finish_run(world.now);
    (world.report, result.err())
}

struct World {
    setup: Setup,
    now: Instant,
    rng: Rng,
    queue: BinaryHeap<Reverse<Entry>>,
    serial: u64,
    host: Host,
    /// Inputs that the stalled driver of the host has not delivered yet.
    backlog: Vec<WorldEvent>,
    relay: Option<RelayProcess>,
    /// The epoch in which a relay made an offer before its server was ready. That offer has lists and no subscriptions.
    offered_early: Option<Epoch>,
    last_server: Option<LastServer>,
    legs: Vec<Leg>,
    server_faults: ServerFaults,
    ground_truth: GroundTruth,
    processes: u64,
    streams: u64,
    faults_cleared: bool,
    event_count: u32,
    report: Report,
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

impl World {
    fn new(script: &Script, flaw: Option<Rule>) -> World {
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
            offered_early: None,
            last_server: None,
            legs: legs.map(|is_http| Leg::new(*is_http, is_socket)).collect(),
            server_faults: ServerFaults::default(),
            ground_truth: GroundTruth::default(),
            processes: 0,
            streams: 0,
            faults_cleared: false,
            event_count: 0,
            report: Report::default(),
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
        let relay = self
            .relay
            .as_ref()
            .map(|relay_process| relay_process.process);
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
}

/// The two phases.
impl World {
    fn play(&mut self, steps: &[Step]) -> Check {
        for step in steps {
            self.advance(Duration::from_millis(step.after.into()))?;
            self.report
                .record_trace(self.now, || format!("{:?} {}", step.kind, step.parameter));
            match step.kind {
                StepKind::Do(action) => self.do_action(action, step.parameter)?,
                StepKind::Fail(fault) => {
                    if self.inject_fault(fault, step.parameter)? {
                        self.report.record_fault(fault);
                    }
                }
            }
            self.poll_all()?;
        }
        self.report
            .record_trace(self.now, || "all faults are removed".into());
        self.clear_faults();
        self.check_recovery()?;
        self.check_shutdown()?;
        let (own, relayed) = (2, if self.legs.len() == 2 { 3 } else { 1 });
        let most_resends = (1 + own) * relayed - 1;
        self.host.oracle.check_end(&self.ground_truth, most_resends)
    }

    fn do_action(&mut self, action: Action, parameter: u32) -> Check {
        let now = self.now;
        match action {
            Action::Answer => self.host.answer(now, parameter % 4 == 0),
            Action::Call => self.host.call(now, false),
            Action::CallIdempotent => self.host.call(now, true),
            Action::Cancel => self.host.cancel(now, parameter as usize),
            Action::Connect => self.host.call_early(now, Client::connect),
            Action::List => {
                let lists = List::ALL;
                self.host.list(now, lists[parameter as usize % lists.len()])
            }
            Action::Notify => self.host.notify(now),
            Action::Read => self.host.read(now),
            Action::Reconnect => self.host.reconnect(now),
            Action::ReconnectOld => self.host.reconnect_old(now).map(drop),
            Action::Shutdown => self.host.shut_down(now),
            Action::Wake => self.host.call_early(now, Client::wake),
            Action::Watch => self.host.watch(now, parameter % 2 == 0),
        }
    }

    /// Checks that the link becomes ready by itself and works after all faults are removed.
    fn check_recovery(&mut self) -> Check {
        self.poll_all()?;
        let is_wanted = self.host.oracle.state() != State::Idle;
        if is_wanted {
            self.wait_ready()?;
        } else {
            self.host.call_early(self.now, Client::connect)?;
            self.advance_until(Duration::from_secs(60), |world| {
                world.host.oracle.state() == State::Ready
            })?;
        }
        if self.host.oracle.state() == State::Closed {
            return Ok(());
        }
        let state = self.host.oracle.state();
        check(Rule::Recovers, state == State::Ready, || {
            format!(
                "all faults are removed, and it is {state}: {}",
                self.host.subject.debug()
            )
        })?;
        self.check_service()
    }

    /// Waits until the link is ready, up to a limit that depends on the pace.
    fn wait_ready(&mut self) -> Check {
        let limit = match self.setup.pace {
            Pace::Brisk | Pace::Final => Duration::from_secs(60),
            Pace::Interactive => Duration::from_secs(1_200),
            Pace::Background => Duration::from_secs(7_200),
        };
        self.advance_until(limit, |world| {
            matches!(world.host.oracle.state(), State::Ready | State::Closed)
        })
    }

    /// Checks that the link carries a call, a list and a notification.
    fn check_service(&mut self) -> Check {
        // Earlier calls may use up the limits; they end in time.
        let limit = match self.setup.pace {
            Pace::Brisk | Pace::Final => Duration::from_secs(30),
            Pace::Interactive => Duration::from_secs(3_000),
            Pace::Background => Duration::from_secs(12_000),
        };
        self.advance_until(limit, |world| {
            let stats = world.host.subject.snapshot().stats;
            stats.calls == stats.settled
        })?;
        for attempt in 0..6 {
            self.host.call(self.now, false)?;
            self.host.list(self.now, List::Tools)?;
            let [.., call, list] = self.host.calls[..] else {
                return Ok(());
            };
            self.advance_until(Duration::from_secs(60), |world| {
                world.host.last_reply == Some(call) && world.host.last_listed == Some(list)
            })?;
            let served = (self.host.last_reply, self.host.last_listed);
            if served == (Some(call), Some(list)) {
                return self.check_notifications();
            }
            if self.is_budget_spent() {
                return Ok(());
            }
            self.wait_ready()?;
            check(Rule::Recovers, attempt < 5, || {
                format!("all faults are removed, and {call} has no reply, or {list} no list")
            })?;
        }
        Ok(())
    }

    /// Whether changes of watched resources must be reported.
    fn expects_changes(&self) -> bool {
        let is_denied = |m: &RelayProcess| m.denied == Some(m.relay.upstream().epoch());
        let is_early = self.offered_early == Some(self.host.subject.epoch());
        let is_unable = is_early && !self.host.subject.can_subscribe();
        self.host.expects_changes() && !is_unable && !self.relay.as_ref().is_some_and(is_denied)
    }

    /// A late effect of an earlier fault spent the last attempt, and the policy says to close then.
    fn is_budget_spent(&self) -> bool {
        self.setup.pace == Pace::Final && self.host.oracle.state() == State::Closed
    }

    /// Checks that a change of a watched resource is reported.
    fn check_notifications(&mut self) -> Check {
        let reports_changes =
            self.setup.peer == Peer::Everlink || self.setup.shape.legs() == [false];
        if !reports_changes {
            return Ok(());
        }
        for attempt in 0..6 {
            // An epoch that failed earlier may end only now.
            self.wait_ready()?;
            self.advance(Duration::from_secs(20))?;
            let before = self.host.watched_changes;
            if let Some(last_server) = &mut self.last_server {
                last_server.publish_changes(self.now, 1, true);
                self.poll_last_server()?;
            }
            self.advance_until(Duration::from_secs(20), |world| {
                world.host.watched_changes > before
            })?;
            let is_awaited = self.expects_changes() && !self.is_budget_spent();
            if self.host.watched_changes > before || !is_awaited {
                return Ok(());
            }
            check(Rule::NoStaleState, attempt < 5, || {
                "a watched resource has changed, and that is not reported".into()
            })?;
        }
        Ok(())
    }

    /// Checks that a shutdown ends in time and releases everything.
    fn check_shutdown(&mut self) -> Check {
        if self.host.oracle.state() != State::Closed {
            self.host.shut_down(self.now)?;
        }
        self.advance_until(Duration::from_secs(60), |world| {
            world.host.oracle.state() == State::Closed
        })?;
        let state = self.host.oracle.state();
        check(Rule::CloseSteps, state == State::Closed, || {
            format!("it was shut down, and it is {state}")
        })?;
        let due = self.host.subject.poll_timeout();
        check(Rule::TimeOnlyByInput, due.is_none(), || {
            format!("it is closed, and {due:?} is due")
        })?;
        let left = self.legs[0].epoch;
        check(Rule::CloseSteps, left.is_none(), || {
            format!("it is closed, and {left:?} was not released")
        })
    }
}

/// The clock.
impl World {
    /// Runs all events of this span.
    fn advance(&mut self, span: Duration) -> Check {
        self.advance_until(span, |_| false)
    }

    /// The same, but stops when the condition is true.
    fn advance_until(&mut self, span: Duration, condition: impl Fn(&World) -> bool) -> Check {
        let goal = self.now + span;
        self.poll_all()?;
        while !condition(self) {
            let Some(at) = self.next_event_at().filter(|at| *at <= goal) else {
                self.now = goal;
                return Ok(());
            };
            self.now = self.now.max(at);
            self.event_count += 1;
            check(Rule::TimeOnlyByInput, self.event_count < MAX_EVENTS, || {
                format!("it spins: {}", self.host.subject.debug())
            })?;
            self.fire_timeouts()?;
            let is_due = |entry: &Reverse<Entry>| entry.0.at <= self.now;
            if self.queue.peek().is_some_and(is_due) {
                let Reverse(entry) = self.queue.pop().expect("it is there");
                if self.has_receiver(&entry) {
                    self.apply(entry.event)?;
                }
            }
            self.poll_all()?;
        }
        Ok(())
    }

    /// Whether the receiver of an event still exists.
    fn has_receiver(&self, entry: &Entry) -> bool {
        let relay = self
            .relay
            .as_ref()
            .map(|relay_process| relay_process.process);
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

    fn fire_timeouts(&mut self) -> Check {
        let now = self.now;
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.host.due()) && self.host_polls() {
            self.host.time(now)?;
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
        Ok(())
    }

    fn apply(&mut self, event: WorldEvent) -> Check {
        match event {
            WorldEvent::Answer(process, answer) => {
                let (last_server, mut server_context) = server_context(
                    &mut self.last_server,
                    &mut self.ground_truth,
                    &mut self.server_faults,
                    &mut self.rng,
                );
                if let Some(last_server) =
                    last_server.filter(|last_server| last_server.process == process)
                {
                    last_server.answer(self.now, answer, &mut server_context)?;
                }
                Ok(())
            }
            WorldEvent::Credentials(leg, supplied) => self.credentials(leg, supplied),
            WorldEvent::Exit(process, status) => {
                self.exit(process, status);
                Ok(())
            }
            WorldEvent::CheckIdle(leg, stream) => {
                self.cut_if_idle(leg, stream);
                Ok(())
            }
            WorldEvent::CatchUp => self.deliver_backlog(),
            WorldEvent::Restart(leg) => {
                if self.process_below(leg).is_none() {
                    self.start(leg);
                }
                Ok(())
            }
            WorldEvent::ToLower(process, input) => self.deliver_to_lower(process, input),
            WorldEvent::ToUpper(leg, epoch, input) => self.deliver_to_upper(leg, epoch, input),
        }
    }

    /// Delivers the inputs that a stalled driver has missed.
    fn deliver_backlog(&mut self) -> Check {
        if self.host.is_stalled(self.now) {
            return Ok(());
        }
        for event in std::mem::take(&mut self.backlog) {
            self.apply(event)?;
            self.poll_all()?;
        }
        Ok(())
    }

    fn deliver_to_upper(&mut self, leg: usize, epoch: Epoch, input: Input<'static>) -> Check {
        // The inputs of the backlog come first.
        if leg == 0 && (self.host.is_stalled(self.now) || !self.backlog.is_empty()) {
            self.backlog.push(WorldEvent::ToUpper(leg, epoch, input));
            return Ok(());
        }
        if self.legs[leg].epoch != Some(epoch) || !self.is_awaited(leg, &input) {
            return Ok(());
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
            self.report.record_trace(self.now, || match &input {
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
        Ok(())
    }

    /// Defers an input that the receiver does not want yet, and all later inputs of the same stream.
    fn defer_input(&mut self, leg: usize, epoch: Epoch, input: Input<'static>) -> Check {
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
            relay: self
                .relay
                .as_ref()
                .map(|relay_process| relay_process.process),
            event: WorldEvent::ToUpper(leg, epoch, input),
        };
        // Serial 0 sorts it before the later inputs.
        self.queue = rest.into_iter().map(Reverse).collect();
        self.queue.push(Reverse(first));
        Ok(())
    }

    fn deliver_to_lower(&mut self, process: u64, input: Input<'static>) -> Check {
        if let Some(relay_process) = self.relay.as_mut().filter(|m| m.process == process) {
            relay_process.relay.handle_downstream(self.now, input);
            return Ok(());
        }
        let (last_server, mut server_context) = server_context(
            &mut self.last_server,
            &mut self.ground_truth,
            &mut self.server_faults,
            &mut self.rng,
        );
        if let Some(last_server) = last_server.filter(|last_server| last_server.process == process)
        {
            if matches!(input, Input::Bytes { .. }) && !last_server.wants_input(StreamId::DUPLEX) {
                // A server with unread output gets no further input yet.
                let later = self.now + Duration::from_millis(5);
                self.at(later, WorldEvent::ToLower(process, input));
                return Ok(());
            }
            last_server.handle(self.now, input, &mut server_context)?;
        }
        Ok(())
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

    fn credentials(&mut self, leg: usize, supplied: bool) -> Check {
        self.legs[leg].leg_faults.wants_credentials &= !supplied;
        let now = self.now;
        match (&mut self.relay, leg, supplied) {
            (_, 0, true) => self.host.call_early(now, Client::authorized),
            (_, 0, false) => self.host.deny_credentials(now),
            (Some(relay_process), _, true) => {
                relay_process.relay.authorized(now);
                Ok(())
            }
            (Some(relay_process), _, false) => {
                relay_process.denied = Some(relay_process.relay.upstream().epoch());
                relay_process
                    .relay
                    .denied(now, "nobody is there to give any");
                Ok(())
            }
            (None, ..) => Ok(()),
        }
    }
}

fn server_context<'w>(
    last_server: &'w mut Option<LastServer>,
    ground_truth: &'w mut GroundTruth,
    server_faults: &'w mut ServerFaults,
    rng: &'w mut Rng,
) -> (Option<&'w mut LastServer>, ServerContext<'w>) {
    let server_context = ServerContext {
        ground_truth,
        server_faults,
        rng,
    };
    (last_server.as_mut(), server_context)
}

/// Polls all machines until none has output.
impl World {
    fn poll_all(&mut self) -> Check {
        loop {
            let mut is_idle = self.poll_host()?;
            is_idle &= self.poll_relay()?;
            is_idle &= self.poll_last_server()?;
            if is_idle {
                return Ok(());
            }
        }
    }

    fn poll_host(&mut self) -> Result<bool, Violation> {
        let mut outputs = Vec::new();
        let execute = |output, bytes| outputs.push((output, bytes));
        self.host.poll(self.now, &mut self.report, execute)?;
        let is_idle = outputs.is_empty();
        for (output, bytes) in outputs {
            match output {
                Output::Event(event) => self.react_to_event(&event),
                output => self.execute(0, output.and_then_event(|_| None), bytes),
            }
        }
        Ok(is_idle)
    }

    /// Schedules the reaction of the application to an event.
    fn react_to_event(&mut self, event: &client::Event) {
        if let client::Event::AuthRequired(_) = event {
            self.schedule_credentials(0);
        }
    }

    fn schedule_credentials(&mut self, leg: usize) {
        let supplied = self.faults_cleared || self.rng.below(3) > 0;
        let after = self.rng.span(10, 3_000);
        self.after(after, WorldEvent::Credentials(leg, supplied));
    }

    fn poll_relay(&mut self) -> Result<bool, Violation> {
        let mut is_idle = true;
        let mut buf = Vec::new();
        loop {
            let polled = self
                .relay
                .as_mut()
                .and_then(|m| m.relay.poll_output(&mut buf));
            let Some((side, output)) = polled else {
                return Ok(is_idle);
            };
            is_idle = false;
            let output_text = format!("{output:?}");
            check_no_secret(&output_text)?;
            let bytes = std::mem::take(&mut buf);
            self.record_offer(side, &output, &bytes);
            self.report.record_trace(self.now, || {
                let text = String::from_utf8_lossy(&bytes);
                format!("      relay, {side:?}: {output_text} {}", text.trim_end())
            });
            match (side, output) {
                (_, Output::Event(relay::Event::Upstream(client::Event::AuthRequired(_)))) => {
                    self.schedule_credentials(1)
                }
                (Side::Upstream, output) => {
                    self.execute(1, output.and_then_event(|_| None), bytes);
                }
                (_, output) => {
                    for output in relay_outputs(output, bytes) {
                        self.handle_output(0, output);
                    }
                }
            }
        }
    }

    /// Records whether a relay makes an offer before its server is ready.
    fn record_offer(&mut self, side: Side, output: &Output<relay::Event>, bytes: &[u8]) {
        let Some(relay_process) = &mut self.relay else {
            return;
        };
        if let Output::Event(relay::Event::Upstream(event)) = output {
            relay_process.was_ready |= event.state() == Some(State::Ready);
        }
        let is_offer = String::from_utf8_lossy(bytes).contains("\"capabilities\":");
        if side == Side::Downstream && is_offer && !relay_process.was_ready {
            self.offered_early = self.legs[0].epoch;
        }
    }

    fn poll_last_server(&mut self) -> Result<bool, Violation> {
        let (last_server, mut server_context) = server_context(
            &mut self.last_server,
            &mut self.ground_truth,
            &mut self.server_faults,
            &mut self.rng,
        );
        let Some(last_server) = last_server else {
            return Ok(true);
        };
        last_server.poll(&mut server_context)?;
        let process = last_server.process;
        let (outputs, answers) = last_server.take();
        let is_idle = outputs.is_empty() && answers.is_empty();
        for (after, answer) in answers {
            let event = WorldEvent::Answer(process, answer);
            self.after(Duration::from_millis(after), event);
        }
        let leg = self.legs.len() - 1;
        for output in outputs {
            self.handle_output(leg, output);
        }
        Ok(is_idle)
    }

    /// Executes an output of an upper end.
    fn execute(
        &mut self,
        leg: usize,
        output: Option<Output<std::convert::Infallible>>,
        bytes: Vec<u8>,
    ) {
        let Some(output) = output else {
            return;
        };
        if self.legs[leg].is_http {
            self.execute_network(leg, output, bytes);
        } else {
            self.execute_pipe(leg, output, bytes);
        }
    }

    /// Executes an output of a lower end.
    fn handle_output(&mut self, leg: usize, output: LowerOutput) {
        if self.legs[leg].is_http {
            self.output_to_network(leg, output);
        } else {
            self.output_to_pipe(leg, output);
        }
    }

    /// Starts the lower end of a leg.
    fn start(&mut self, leg: usize) {
        self.processes += 1;
        let process = self.processes;
        if leg + 1 < self.legs.len() {
            let relay = Box::new(Relay::new(configs::relay(&self.setup)));
            self.relay = Some(RelayProcess {
                process,
                relay,
                denied: None,
                was_ready: false,
            });
        } else {
            self.last_server = Some(LastServer::new(
                &self.setup,
                process,
                &mut self.server_faults,
            ));
        }
    }

    /// Stops the lower end of a leg and releases everything behind it.
    fn stop(&mut self, leg: usize) {
        if leg + 1 < self.legs.len() {
            self.relay = None;
            self.release(leg + 1);
        } else {
            self.last_server = None;
        }
    }

    /// The process at the lower end, if it runs.
    fn process_below(&self, leg: usize) -> Option<u64> {
        if leg + 1 < self.legs.len() {
            return self
                .relay
                .as_ref()
                .map(|relay_process| relay_process.process);
        }
        self.last_server
            .as_ref()
            .map(|last_server| last_server.process)
    }

    /// Releases the transport of an upper end.
    fn release(&mut self, leg: usize) {
        if self.legs[leg].is_http {
            self.abort_all_exchanges(leg);
        } else if self.legs[leg].child.take().is_some() {
            self.stop(leg);
        }
        self.legs[leg].epoch = None;
    }
}
