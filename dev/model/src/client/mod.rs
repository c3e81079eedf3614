//! A client under test, over a pipe or over HTTP: its setup, its application, and what both transports share.

pub(crate) mod app;
mod exchanges;
pub(crate) mod http;
mod http_server;
pub(crate) mod pipe;
mod rules;
mod scripted_server;

use std::time::Duration;

use everlink::client::{CallOptions, Event, State};
use everlink::protocol::{ClientCapabilities, ClientFeature, Era, LogLevel};
use everlink::{
    AskId, Binding, CallId, Client, Config, Dialect, Epoch, ExitStatus, Hang, Input, Instant,
    Keepalive, Limit, Limits, List, Output, Policy, StreamId, Watch, WhenSpent,
};

pub(crate) use exchanges::ORIGIN;
use rules::{Before, Rules, is_alive};
pub use scripted_server::{Reply, ServerMessage};

use crate::explore::StateView;
use crate::script::{Elapse, Read, Script, read_fields};
use crate::world::{Case, Setup, World};

/// As many rounds with a good server make every link ready.
const ROUNDS_TO_RECOVER: usize = 40;

/// A client with its application, its rules and its peer.
pub(crate) struct Link<P> {
    pub(crate) rules: Rules,
    calls: Vec<CallId>,
    asks: Vec<AskId>,
    marks: u64,
    pub(crate) peer: P,
}

/// The other end of the transport.
pub(crate) trait Peer: Default {
    type Op: Read + std::fmt::Debug;
    fn act(world: &mut World<Link<Self>>, op: &Self::Op);
    /// The driver carries out an output.
    fn perform(world: &mut World<Link<Self>>, output: &Output<Event>, bytes: &[u8]);
    /// Good answers to all that waits for one. Whether there was anything.
    fn answer(world: &mut World<Link<Self>>, variant: u8) -> bool;
    /// Without a limit to its grace, a link waits for its transport to end: it does so now.
    fn end_all(world: &mut World<Link<Self>>);
    fn look(&self, view: &mut StateView);
}

impl<P: Peer> Case for Link<P> {
    type Machine = Client;
    type Config = Config;
    type Op = P::Op;
    type Before = Before;

    fn begin(config: &Config) -> (Client, Link<P>) {
        let link = Link {
            rules: Rules::new(config),
            calls: Vec::new(),
            asks: Vec::new(),
            marks: 0,
            peer: P::default(),
        };
        (Client::new(config.clone()), link)
    }

    fn act(world: &mut World<Self>, op: &P::Op) {
        P::act(world, op);
    }

    fn poll(world: &mut World<Self>, most: usize) -> bool {
        for _ in 0..most {
            let Some((output, bytes)) = world.next_output() else {
                return true;
            };
            world.transcript.output(&output);
            world.transcript.bytes(Epoch::NONE, &bytes);
            let rules = &mut world.case.rules;
            rules.output(&output, &bytes, &world.machine, world.told);
            if let Output::Event(Event::Ask(ask)) = &output {
                world.case.asks.push(ask.ask);
            }
            P::perform(world, &output, &bytes);
        }
        false
    }

    fn before(client: &Client) -> Before {
        Before::of(client)
    }

    fn stepped(&mut self, before: Before, client: &Client, told: Instant) {
        self.rules.stepped(&before, client, told);
    }

    fn drained(world: &mut World<Self>) {
        world.case.rules.drained(&world.machine);
    }

    fn timed(&mut self, now: Instant) {
        self.rules.timed(now);
    }

    fn close(world: &mut World<Self>) {
        world.shutdown();
        world.drain();
        for _ in 0..8 {
            if let Some(deadline) = world.machine.poll_timeout() {
                world.now = world.now.max(deadline.at);
                world.tell(|client, now| client.handle_timeout(now));
            } else if !world.case.rules.is_closed() {
                let policy = &world.setup.config.policy;
                let graces = [
                    policy.close_grace,
                    policy.terminate_grace,
                    policy.kill_grace,
                ];
                let graces = &graces[..if world.case.rules.is_http() { 1 } else { 3 }];
                let mut ends = graces.iter().map(|grace| world.now + *grace);
                let for_ever = ends.any(|end| end == Instant::MAX);
                assert!(for_ever, "(13) nothing is due: {:?}", world.machine);
                P::end_all(world);
            }
            world.drain();
        }
        let is_closed = world.case.rules.is_closed();
        assert!(is_closed, "(13) it does not end: {:?}", world.machine);
        world.hear(world.machine.epoch(), Input::Opened);
        assert_eq!(world.machine.poll_timeout(), None);
        let (client, now) = (&mut world.machine, world.now);
        let late = client.call(now, "tools/call", None, CallOptions::new());
        assert!(late.is_err(), "a closed link accepts a call");
        world.tell(Client::connect);
        world.tell(Client::wake);
        world.tell(|client, now| client.watch(now, watch(0)));
        world.drain();
        assert_eq!(world.machine.state(), State::Closed);
        world.note_counts();
    }

    fn look(world: &World<Self>, view: &mut StateView) {
        let (client, now) = (&world.machine, world.now);
        let budget = client.config().policy.retry.budget;
        view.plain(client.failures().min(budget + 1));
        let version = client.session().map(|session| session.version);
        view.plain((client.era(), version, client.last_end().is_some()));
        view.plain(client.wants_input(StreamId::DUPLEX));
        view.plain(client.awaits_authorization());
        for list in List::ALL {
            view.plain((client.held(list).is_some(), client.is_fresh(now, list)));
        }
        world.case.rules.look(now, view);
        world.case.peer.look(view);
    }
}

impl<P: Peer> World<Link<P>> {
    /// Reports something of a transport, which may not be the present one.
    pub(crate) fn hear(&mut self, epoch: Epoch, input: Input<'_>) {
        let is_there = epoch == self.machine.epoch() && is_alive(self.machine.state());
        if is_there && self.case.rules.may_come(&input) {
            self.case.rules.input(self.now, epoch, &input);
            self.input(epoch, input);
        } else {
            self.stale(epoch, input);
        }
    }

    /// The link connects if it is idle, its transport opens, and a good server answers.
    fn serve(&mut self, variant: u8) {
        match self.machine.state() {
            State::Idle | State::Parked => self.tell(Client::connect),
            State::Waiting => self.elapse(Elapse::ToDeadline),
            _ => {}
        }
        self.drain();
        if self.machine.state() == State::Opening {
            self.hear(self.machine.epoch(), Input::Opened);
        }
        for _ in 0..8 {
            self.drain();
            if !P::answer(self, variant) {
                break;
            }
        }
    }

    /// With a good server and an application that answers, a link gets ready and settles all its calls, unless it is shut down.
    pub(crate) fn recover(&mut self) {
        for _ in 0..ROUNDS_TO_RECOVER {
            let state = self.machine.state();
            if self.machine.awaits_authorization() {
                self.tell(Client::authorized);
            }
            match state {
                State::Idle | State::Parked => self.tell(Client::connect),
                State::Closing if !self.case.rules.is_http() => P::end_all(self),
                _ => self.serve(0),
            }
            self.drain();
            for which in 0..self.case.asks.len() {
                self.answer(u8::try_from(which).expect("few questions"), 0);
            }
            self.drain();
            let is_ready = self.machine.state() == State::Ready;
            let rules = &self.case.rules;
            if is_ready && rules.is_settled() || rules.is_closed() {
                return;
            }
            if self.machine.state() == state {
                self.elapse(Elapse::ToDeadline);
            }
        }
        panic!("it does not recover: {:?}", self.machine);
    }
}

fn exit_status(byte: u8) -> ExitStatus {
    match byte % 3 {
        0 => ExitStatus::Code(i32::from(byte / 3)),
        1 => ExitStatus::Signal(i32::from(byte / 3)),
        _ => ExitStatus::Unknown,
    }
}

impl Read for Setup<Config> {
    fn read(script: &mut Script<'_>) -> Setup<Config> {
        let traits = script.byte();
        let has = |bit: u8| traits & (1 << bit) != 0;
        let mut config = Config::child("model", "1");
        if has(0) {
            config.binding = Binding::Socket;
        }
        if has(1) {
            let declared = ClientCapabilities::default().with_roots(true);
            config.capabilities = declared.with_sampling().with_elicitation_form();
        }
        if has(6) {
            let tasks = [ClientFeature::Tasks, ClientFeature::TasksExtension];
            let declared = config.capabilities;
            config.capabilities = tasks.into_iter().fold(declared, ClientCapabilities::with);
        }
        if has(7) {
            config.unasked_logs = Some(LogLevel::Info);
        }
        let choices = script.byte();
        config.dialect = dialect(choices);
        let eras = [None, None, Some(Era::Legacy), Some(Era::Modern)];
        config.remembered_era = eras[usize::from(choices / 4 % 4)];
        config.watch = watch(choices / 16);
        if has(2) {
            config.policy = policy(script);
        }
        if has(3) {
            config.limits = limits(script);
        }
        config.seed = u64::from(choices);
        Setup {
            lazy: has(4),
            reports_sent: !has(5),
            ..Setup::prompt(config)
        }
    }
}

pub(crate) fn dialect(choice: u8) -> Dialect {
    let dialects = [Dialect::Automatic, Dialect::Legacy, Dialect::Modern];
    dialects[usize::from(choice % 4) % 3]
}

/// One of sixteen watches.
pub(crate) fn watch(bits: u8) -> Watch {
    let lists = bits & 1 == 0;
    let mut watch = if lists { Watch::lists() } else { Watch::none() };
    for (bit, uri) in [(2, "file:///a"), (4, "file:///b")] {
        if bits & bit != 0 {
            watch = watch.and_uri(uri);
        }
    }
    if bits & 8 != 0 {
        watch = watch.and_logs(LogLevel::Info);
    }
    watch
}

impl Read for Limit {
    fn read(script: &mut Script<'_>) -> Limit {
        match script.read() {
            Duration::MAX => Limit::Never,
            span => Limit::After(span),
        }
    }
}

fn policy(script: &mut Script<'_>) -> Policy {
    let mut policy = Policy::interactive();
    read_fields!(script, policy, spans: open_timeout probe_timeout handshake_notice handshake_timeout
        call_idle call_total ask_timeout pause_total);
    policy.resends = u32::from(script.byte() % 4);
    read_fields!(script, policy, spans: drain close_grace terminate_grace kill_grace);
    let mut keepalive = Keepalive::every(script.read());
    keepalive.timeout = script.read();
    keepalive.misses = u32::from(script.byte() % 4);
    policy.keepalive = Some(keepalive).filter(|keepalive| keepalive.idle != Duration::MAX);
    let hang = |keepalive: Keepalive| Hang::after(keepalive.timeout);
    policy.hang = policy.keepalive.map(hang);
    policy.retry.budget = u32::from(script.byte() % 4);
    read_fields!(script, policy.retry, spans: first cap floor stable_after);
    policy.retry.when_spent = match script.read() {
        Duration::MAX => WhenSpent::Close,
        probe => {
            policy.retry.call_pace = script.read();
            WhenSpent::Park { probe }
        }
    };
    policy.retry.call_patience = policy.retry.call_pace.saturating_mul(4);
    read_fields!(script, policy, spans: watch_timeout watch_retry);
    policy
}

fn limits(script: &mut Script<'_>) -> Limits {
    let sizes = &[0, 1, 3, 40, 200, 800, 4_000, 100_000];
    let mut limits = Limits::default();
    read_fields!(script, limits, sizes, sizes: message_bytes queued_bytes queued_calls calls_in_flight
        write_window undelivered_bytes asks);
    limits.input_rounds = u32::from(script.byte() % 4);
    limits.request_state_bytes = script.pick(sizes);
    limits.noise_run = script.pick(&[None, Some(0), Some(1), Some(5)]);
    read_fields!(script, limits, sizes, sizes: noise_sample stderr_tail pages list_bytes);
    limits
}
