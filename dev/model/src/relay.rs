//! A relay under test: a host in front that sends anything, servers behind that die at any time, and the promises to the host.
//!
//! ```text
//! host (a scripted client) <-> Relay <-> Server, Server, ... each until it is killed
//! ```
//!
//! The host's side is judged as any conversation with a server; and each call is followed through: which of the servers ran it, and
//! whether the host was told what that server answered.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use everlink::Id;
use everlink::client::CallOptions;
use everlink::protocol::{Era, Version, Versions};
use everlink::relay::{Config, Event, LostCalls, Side};
use everlink::server::{self, UnknownMethods};
use everlink::{
    Epoch, ExitStatus, Fault, FaultKind, Input, Instant, Keepalive, Limit, Output, Relay, Server,
    StreamId, WhenSpent,
};
use serde_json::Value;

use crate::Cut;
use crate::backend::Backend;
use crate::client::dialect;
use crate::conversation::{Conversation, Said, id};
use crate::explore::StateView;
use crate::machine::Timed;
use crate::pair::Pair;
use crate::script::{Elapse, Lines, Read, Script, choices};
use crate::server::{ClientMessage, ScriptedClient, offer};
use crate::world::{Case, SECRET, Setup, World};

/// The configuration of a relay and of the servers behind it.
#[derive(Clone, Debug)]
pub(crate) struct RelayConfig {
    pub(crate) config: Config,
    /// Of the servers of the first epoch, of the second, and so on in turn.
    pub(crate) servers: Vec<server::Config>,
    pub(crate) cut: Cut,
}

impl Read for Setup<RelayConfig> {
    fn read(script: &mut Script<'_>) -> Setup<RelayConfig> {
        let traits = script.byte();
        let has = |bit: u8| traits & (1 << bit) != 0;
        let choices = script.byte();
        let mut upstream = everlink::Config::child("model", "1");
        upstream.dialect = dialect(choices);
        upstream.policy.retry.budget = u32::from(choices >> 2 & 3);
        upstream.seed = u64::from(choices);
        if has(0) && choices >= 128 {
            upstream.policy.retry.when_spent = WhenSpent::Close;
        }
        if has(1) {
            upstream.policy.drain = Duration::from_millis(20);
            upstream.policy.ask_timeout = Duration::from_millis(300);
            upstream.policy.keepalive = Some(Keepalive::every(Duration::from_millis(300)));
        }
        if has(2) {
            let limits = &mut upstream.limits;
            limits.calls_in_flight = 1;
            limits.write_window = 1;
            limits.undelivered_bytes = 300;
            limits.asks = 1;
        }
        let mut config = Config::new(upstream, SECRET);
        config.calls = bounded_calls();
        config.downstream.versions = match choices >> 4 & 7 {
            0..=5 => Versions::ALL,
            6 => Versions::LEGACY,
            _ => Versions::MODERN,
        };
        if has(3) {
            config.patience = Duration::from_millis(20);
            config.drain = Some(Duration::from_millis(300));
            config.downstream.ask_timeout = Duration::from_millis(300);
        }
        config.answers_discover = has(5);
        if has(4) {
            config.lost_calls = LostCalls::AsError;
        }
        if has(5) && choices < 128 {
            let limits = &mut config.downstream.limits;
            limits.requests = 2;
            limits.write_window = 1;
            limits.queued_bytes = 800;
            limits.undelivered_bytes = 300;
            limits.asks = 1;
            limits.listens = 1;
        }
        if has(6) {
            config.downstream.unknown_methods = UnknownMethods::Refused;
        }
        let servers = 1 + choices % 3;
        let config = RelayConfig {
            config,
            servers: (0..servers).map(|_| server(script)).collect(),
            cut: if has(7) { Cut::Random(7) } else { Cut::Joined },
        };
        Setup {
            lazy: true,
            ..Setup::prompt(config)
        }
    }
}

/// So that each request is answered in the end, whatever the server does.
fn bounded_calls() -> CallOptions {
    CallOptions::new()
        .with_idle(Limit::After(Duration::from_secs(300)))
        .with_total(Limit::After(Duration::from_secs(3_600)))
}

fn server(script: &mut Script<'_>) -> server::Config {
    let traits = script.byte();
    let mut config = server::Config::new(offer(script.byte()), SECRET);
    config.versions = match traits & 7 {
        0..=3 => Versions::ALL,
        4 | 5 => Versions::LEGACY,
        _ => Versions::MODERN,
    };
    if traits & 16 != 0 {
        config.unknown_methods = UnknownMethods::Delivered;
    }
    if traits & 8 != 0 {
        config.listen_end = server::ListenEnd::CancelledThenResult;
    }
    config
}

choices! {
    /// One operation on a relay.
    pub(crate) enum Op {
        /// The host sends something, in two pieces if `cut` is not zero; mostly everything settles then.
        16 Send { message: ClientMessage, cut: u8 },
        5 Settle,
        2 Step(u8),
        4 Respond(u8),
        1 Fail(u8),
        3 Ask { which: u8, what: u8 },
        1 RequireInput { which: u8, how: u8 },
        2 Notify { which: u8, what: u8 },
        2 Serve,
        /// The server dies, and what it wrote is read or not.
        3 Kill(u8),
        4 Elapse(Elapse),
        /// The next servers cannot be started.
        1 OpenFails(u8),
        /// The host reads, or does not.
        1 Stall(bool),
        /// A shutdown, a reconnect, a wake or a connect.
        1 Operate(u8),
        1 Bytes(Lines),
        /// The host ends its input or cannot be written to, or everything settles.
        1 Rare(u8),
        0 End,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    Here,
    Released,
    /// Its end was told.
    Closed,
}

/// A host that was silent for this long before it ends has given up what is open.
const SILENT: Duration = Duration::from_millis(100);

/// The host, the application behind, and the rules.
pub(crate) struct Guarded {
    backend: Backend,
    conversation: Conversation,
    client: ScriptedClient,
    /// So many servers cannot be started.
    refusals: Rc<Cell<u8>>,
    /// The host does not read; so many bytes wait for it.
    is_stalled: bool,
    unread: usize,
    host: Host,
    /// What the host was to be told may have been lost.
    is_lossy: bool,
    /// When it sent its last bytes, as the relay was told.
    sent: Instant,
    /// The era of the server that was ready last: the relay passes on what that server offered also after its end.
    behind: Option<Era>,
    /// The version of the host that was announced last.
    met: Option<Version>,
    /// The calls that may be answered under each id, by their marks.
    under: BTreeMap<Id, BTreeSet<u64>>,
    /// The calls that each state may be for.
    states: BTreeMap<String, BTreeSet<u64>>,
    /// The ids under which the host was asked something that was not cancelled.
    questions: BTreeSet<Id>,
    /// How many handshakes the host began, and how many were answered.
    handshakes: (u32, u32),
}

impl Case for Guarded {
    type Machine = Pair<Relay>;
    type Config = RelayConfig;
    type Op = Op;
    /// Whether the host is served.
    type Before = bool;
    const HAS_USELESS: bool = false;
    const MOST_POLLS: usize = 1_000_000;

    fn begin(config: &RelayConfig) -> (Pair<Relay>, Guarded) {
        let refusals = Rc::new(Cell::new(0_u8));
        let (servers, refused) = (config.servers.clone(), refusals.clone());
        let start = move |epoch: Epoch| {
            if refused.get() > 0 {
                refused.set(refused.get() - 1);
                return None;
            }
            let nth = usize::try_from(epoch.number()).expect("few epochs") - 1;
            Some(Server::new(servers[nth % servers.len()].clone()))
        };
        let relay = Relay::new(config.config.clone());
        let pair = Pair::with_end(relay, true, start).cut(config.cut);
        let guarded = Guarded {
            backend: Backend::new(false),
            conversation: Conversation::new(&config.config.downstream),
            client: ScriptedClient::default(),
            refusals,
            is_stalled: false,
            unread: 0,
            host: Host::Here,
            is_lossy: false,
            sent: Instant::ZERO,
            behind: None,
            met: None,
            under: BTreeMap::new(),
            states: BTreeMap::new(),
            questions: BTreeSet::new(),
            handshakes: (0, 0),
        };
        (pair.recorded(), guarded)
    }

    fn act(world: &mut World<Guarded>, op: &Op) {
        let World {
            machine: pair,
            case,
            ..
        } = world;
        let Guarded { backend, .. } = case;
        // What the application does without a server, or for no request, is nothing.
        world.is_touched |= match op {
            Op::Ask { .. } | Op::Notify { .. } | Op::Kill(_) => pair.has_server(),
            Op::Fail(which) | Op::RequireInput { which, .. } | Op::Respond(which) => {
                backend.request(pair, *which).is_some()
            }
            Op::Elapse(_) => pair.poll_timeout().is_some(),
            Op::OpenFails(times) => case.refusals.get() != times % 4,
            Op::Send { .. } => false,
            _ => true,
        };
        match op {
            Op::Ask { which, what } => backend.ask(pair, *which, *what),
            Op::Bytes(Lines(bytes)) => world.host_sends(bytes, 0),
            Op::Elapse(elapse) => {
                world.drain();
                world.elapse(*elapse);
            }
            Op::End => {
                if is_serving(pair) {
                    case.leaves(pair.client().1);
                }
                world.tell_downstream(Input::end(Vec::new()));
            }
            Op::Fail(which) => backend.fail(pair, *which),
            Op::Kill(how) if pair.has_server() => {
                if how % 4 == 0 {
                    pair.lose_output();
                }
                pair.kill_server(ExitStatus::Code(70));
            }
            Op::Kill(_) => {}
            Op::Notify { which, what } => backend.notify(pair, *which, *what),
            Op::OpenFails(times) => case.refusals.set(times % 4),
            Op::Operate(what) => {
                let (relay, now) = pair.client();
                match what % 16 {
                    0 => relay.shutdown(now),
                    1..=4 => relay.reconnect(now, relay.upstream().epoch(), "a whim"),
                    5..=8 => relay.wake(now),
                    _ => relay.connect(now),
                }
            }
            Op::Rare(0..16) => Guarded::act(world, &Op::End),
            Op::Rare(16..24) => {
                case.is_lossy = true;
                let faults = vec![Fault::new(FaultKind::BrokenPipe)];
                world.tell_downstream(Input::write_failed(faults));
            }
            Op::RequireInput { which, how } => {
                backend.require_input(pair, *which, *how, Some("mine"));
            }
            Op::Respond(which) => backend.give(pair, *which, Server::respond),
            Op::Send { message, cut } => {
                let limit = world.setup.config.config.downstream.limits.message_bytes;
                let bytes = case.client.send(message, limit.min(1 << 12));
                world.is_touched |= !bytes.is_empty();
                world.host_sends(&bytes, usize::from(*cut));
                if cut % 4 != 0 {
                    world.drain();
                }
            }
            Op::Serve => backend.serve(pair),
            Op::Settle | Op::Rare(_) => world.drain(),
            Op::Stall(is_stalled) => {
                case.is_stalled = *is_stalled;
                world.host_reads();
            }
            Op::Step(steps) => drop(Guarded::poll(world, usize::from(*steps))),
        }
        world.assert_nothing_secret();
    }

    fn poll(world: &mut World<Guarded>, most: usize) -> bool {
        for _ in 0..most {
            world.host_reads();
            let moved = world.machine.step();
            world.collect();
            if !moved {
                return true;
            }
        }
        false
    }

    fn before(pair: &Pair<Relay>) -> bool {
        is_serving(pair)
    }

    fn stepped(&mut self, _before: bool, _pair: &Pair<Relay>, _told: Instant) {}

    fn told_time(world: &mut World<Guarded>, was_serving: bool) {
        world.case.is_lossy |= was_serving && !is_serving(&world.machine);
    }

    /// The host reads everything, the application answers everything: nothing is owed.
    fn rest(world: &mut World<Guarded>) {
        world.case.is_stalled = false;
        world.case.refusals.set(0);
        world.drain();
        if world.case.conversation.is_mid_line() {
            world.host_sends(b"\n", 0);
        }
        // The server may be sent one call at a time, and also what no longer needs an answer.
        let (mut possible, mut rounds_alike) = (world.case.conversation.possible(), 0);
        while rounds_alike < 40 {
            world.drain();
            world.case.backend.serve(&mut world.machine);
            world.drain();
            if world.case.conversation.owes().is_none() {
                break;
            }
            world.elapse(Elapse::ToDeadline);
            let left = world.case.conversation.possible();
            rounds_alike = if left < possible { 0 } else { rounds_alike + 1 };
            possible = left;
        }
        world.drain();
        world.case.assert_quiet();
    }

    fn close(world: &mut World<Guarded>) {
        world.machine.client().0.shutdown(world.now);
        for _ in 0..100 {
            world.drain();
            if world.machine.end().is_closed() {
                break;
            }
            world.elapse(Elapse::ToDeadline);
        }
        let relay = world.machine.end();
        assert!(relay.is_closed(), "(13) it does not end: {relay:?}");
        assert_eq!(world.case.host, Host::Closed);
        assert_eq!(world.machine.look(), None, "closed with a transport");
        world.case.assert_quiet();
        assert_eq!(world.machine.poll_timeout(), None);
    }

    fn look(world: &World<Guarded>, view: &mut StateView) {
        let (pair, case) = (&world.machine, &world.case);
        let relay = pair.end();
        let upstream = relay.upstream();
        let budget = upstream.config().policy.retry.budget;
        view.plain(upstream.failures().min(budget + 1));
        view.plain((case.behind, upstream.era(), upstream.last_end().is_some()));
        let peer = relay.downstream().legacy_peer();
        view.plain(peer.map(|peer| peer.version));
        let (upstream, downstream) = (upstream.poll_timeout(), relay.downstream().poll_timeout());
        for next in [relay.poll_timeout(), upstream, downstream] {
            view.due(world.now, next.map(|next| next.at));
        }
        if let Some((epoch, is_open)) = pair.look() {
            view.epoch(epoch);
            view.plain(is_open);
            if let Some(server) = pair.server_there() {
                view.shown(server);
                view.within(epoch, |view| case.backend.look(view));
            }
        }
        view.plain((case.refusals.get(), case.is_stalled, case.is_lossy));
        view.plain((case.unread, case.host as u8, case.met));
        view.since(world.now, Some(case.sent), SILENT);
        view.plain(case.handshakes.0 - case.handshakes.1);
        case.conversation.look(view);
        case.client.look(view);
        // An answer is a sign of life, also to a question that is over.
        view.plain(case.client.was_asked() && !case.conversation.has_ended());
    }
}

fn is_serving(pair: &Pair<Relay>) -> bool {
    pair.end().downstream().state() != server::State::Closed
}

/// What the host does.
impl World<Guarded> {
    fn tell_downstream(&mut self, input: Input<'_>) {
        let (relay, now) = self.machine.client();
        relay.handle_downstream(now, input);
    }

    fn host_sends(&mut self, bytes: &[u8], cut: usize) {
        let (head, tail) = bytes.split_at(cut % bytes.len().max(1));
        for bytes in [head, tail] {
            let relay = self.machine.end();
            let is_wanted = relay.wants_input(Side::Downstream, StreamId::DUPLEX);
            if is_wanted && is_serving(&self.machine) && !bytes.is_empty() {
                let (said, _) = self.case.conversation.fed(bytes);
                self.case.said(said);
                if !self.case.conversation.has_ended() {
                    self.case.sent = self.machine.client().1;
                }
                self.tell_downstream(Input::bytes(bytes));
            }
        }
    }

    fn host_reads(&mut self) {
        if !self.case.is_stalled && self.case.unread > 0 {
            let read = std::mem::take(&mut self.case.unread);
            self.tell_downstream(Input::sent(read));
        }
    }

    fn collect(&mut self) {
        for (epoch, line) in self.machine.take_recorded() {
            self.transcript.bytes(epoch, line.as_bytes());
        }
        let upstream = self.machine.end().upstream();
        self.case.behind = upstream.era().or(self.case.behind);
        let epoch = self.machine.look().map(|(epoch, _)| epoch);
        for event in self.machine.take_server_events() {
            let epoch = epoch.expect("a transport");
            self.case.backend.event(epoch, &event);
        }
        for event in self.machine.take_client_events() {
            self.note(&Output::Event(event), &[]);
        }
        for (output, bytes) in self.machine.take_downstream() {
            self.note(&output, &bytes);
            self.case.downstream(&output, &bytes);
        }
    }

    fn note(&mut self, output: &Output<Event>, bytes: &[u8]) {
        match output {
            Output::Event(Event::Lost(failure)) => self.transcript.failed(output, failure),
            output => self.transcript.note(output),
        }
        self.transcript.bytes_to_client(bytes);
    }
}

/// The rules for the host's side.
impl Guarded {
    fn assert_quiet(&self) {
        if !self.is_lossy {
            self.conversation.assert_quiet();
        }
    }

    /// The host ends. If it was silent before, it gets no failures any more.
    fn leaves(&mut self, now: Instant) {
        let is_silent = !self.conversation.has_ended() && self.sent + SILENT <= now;
        let (said, _) = self.conversation.ended();
        self.said(said);
        if is_silent {
            self.conversation.release();
        }
    }

    fn said(&mut self, said: Vec<Said>) {
        for said in said {
            let Said::Request { id, method, params } = said else {
                continue;
            };
            self.handshakes.0 += u32::from(method == "initialize");
            let under = self.under.entry(id).or_default();
            let state = params["requestState"].as_str();
            let marks = state.and_then(|state| self.states.get(state));
            under.extend(marks.into_iter().flatten());
            if let Some(mark) = params["mark"].as_u64() {
                under.insert(mark);
                self.backend.called(mark, method != "tools/call");
            }
        }
    }

    fn downstream(&mut self, output: &Output<Event>, bytes: &[u8]) {
        match output {
            Output::Event(Event::Downstream(event)) => {
                assert_ne!(self.host, Host::Closed, "{event:?} after the end");
                match event {
                    server::Event::Met(peer) => self.met = Some(peer.version),
                    server::Event::Closed { .. } => {
                        assert_eq!(self.host, Host::Released, "closed without a release");
                        self.host = Host::Closed;
                    }
                    _ => {}
                }
            }
            Output::Event(_) => {}
            Output::Release { .. } => {
                assert_eq!(self.host, Host::Here, "the host is released twice");
                self.host = Host::Released;
            }
            Output::Write { len, .. } => {
                assert_eq!(*len, bytes.len());
                assert_eq!(self.host, Host::Here, "written to nobody");
                let message = self.conversation.written(bytes);
                self.written(&message);
                self.client.hear(&message);
                self.unread += len;
            }
            other => panic!("{other:?} means nothing for a host"),
        }
    }

    fn written(&mut self, message: &Value) {
        let of = message.get("id").and_then(id);
        if message["method"] == "notifications/cancelled" {
            let of = id(&message["params"]["requestId"]).expect("an id");
            let may_be_question = self.questions.remove(&of);
            self.conversation.announces_end(&of, may_be_question);
        } else if message.get("method").is_some() {
            self.questions.extend(of);
        } else if message.get("id").is_some() {
            self.responded(&of.expect("an id"), message);
        }
    }

    fn responded(&mut self, of: &Id, message: &Value) {
        let (result, error) = (&message["result"], &message["error"]);
        if result.get("protocolVersion").is_some() {
            self.handshakes.1 += 1;
            let (asked, answered) = self.handshakes;
            assert!(answered <= asked, "a handshake that the host did not begin");
        }
        if result["resultType"] == "input_required" {
            let marks = self.under.get(of).cloned().unwrap_or_default();
            let state = result["requestState"].as_str().expect("a state");
            let is_sealed = state.starts_with("everlink.");
            assert!(is_sealed, "the state of another: {state}");
            self.states.insert(state.to_owned(), marks);
            return;
        }
        let said = if result.is_object() {
            result
        } else {
            &error["data"]
        };
        if let (Some(serial), Some(mark)) = (said["serial"].as_u64(), said["echo"].as_u64()) {
            let under = self.under.get(of);
            let may = under.is_some_and(|under| under.contains(&mark));
            assert!(may, "(3) {of} is told what call {mark} was answered");
            self.backend.told(mark, serial);
        }
    }
}
