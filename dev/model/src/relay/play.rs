//! A host, servers that live and die, and the driver between them, that do what the script says. Judges nothing but the deadlines.

use everlink::protocol::{LogLevel, Version};
use everlink::relay::{Event, Side};
use everlink::server::{self, InputRequired, Progress};
use everlink::{
    Change, Epoch, ErrorObject, ExitStatus, Fault, FaultKind, Input, Instant, List, Output,
    Payload, Relay, RequestId, Server, StreamId, Wake,
};
use serde_json::{Value, json};

use super::ledger::Ledger;
use super::script::{Op, Setup};
use crate::app::{HORIZON, Transcript};
use crate::explore::Sight;
use crate::script::Nap;
use crate::server::{Words, assert_nothing_secret, offer, question};

/// No single step of the script may take more than this of the driver.
const STEPS: usize = 1_000_000;

/// Plays a script to its end, checks every rule on the way, and lets the relay close.
///
/// # Panics
///
/// When a rule is broken.
pub fn run(setup: &Setup, ops: &[Op]) {
    let mut world = World::new(setup);
    for op in ops {
        world.act(op);
    }
    world.end();
}

pub(crate) struct World<'s> {
    setup: &'s Setup,
    relay: Relay,
    ledger: Ledger,
    pub(crate) words: Words,
    pub(crate) now: Instant,
    life: Option<Life>,
    /// What the server behind wrote and the relay has not read yet, and the other way round.
    to_relay: Vec<u8>,
    to_server: Vec<u8>,
    /// So many servers cannot be started.
    refusals: u8,
    /// The host does not read; this much waits for it.
    is_stalled: bool,
    unread: usize,
    host: Host,
    /// What the host was to be told may have been lost.
    is_lossy: bool,
    marks: u64,
    pub(crate) transcript: Transcript,
    /// Something was done to the relay or to the server behind it, or the host said something.
    is_touched: bool,
    /// The terms of the host that was told of last.
    met: Option<Version>,
}

/// A server behind, between its Open and its Release.
struct Life {
    epoch: Epoch,
    /// Or how it ended.
    server: Result<Server, ExitStatus>,
    is_input_closed: bool,
    is_end_told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    Here,
    /// It was let go.
    Released,
    /// The end of it was told.
    Closed,
}

impl<'s> World<'s> {
    pub(crate) fn new(setup: &'s Setup) -> World<'s> {
        World {
            setup,
            relay: Relay::new(setup.config.clone()),
            ledger: Ledger::new(&setup.config.downstream),
            words: Words::default(),
            now: Instant::ZERO,
            life: None,
            to_relay: Vec::new(),
            to_server: Vec::new(),
            refusals: 0,
            is_stalled: false,
            unread: 0,
            host: Host::Here,
            is_lossy: false,
            marks: 0,
            transcript: Transcript::default(),
            is_touched: false,
            met: None,
        }
    }

    /// Does what is to happen, until nothing moves any more.
    pub(crate) fn step(&mut self, op: &Op) {
        self.act(op);
        self.settle();
    }

    /// Whether anything was done to the relay or to the server behind it, or said by the host, since this was asked last.
    pub(crate) fn was_touched(&mut self) -> bool {
        std::mem::take(&mut self.is_touched)
    }

    /// Looks at all that can be seen without doing anything.
    pub(crate) fn look(&self, sight: &mut Sight) {
        assert_nothing_secret(sight.shown(&self.relay));
        let upstream = self.relay.upstream();
        let budget = upstream.config().policy.retry.budget;
        sight.plain(upstream.failures().min(budget + 1));
        sight.plain((upstream.era(), upstream.last_end().is_some()));
        sight.plain(
            self.relay
                .downstream()
                .legacy_peer()
                .map(|peer| peer.version),
        );
        for next in [
            self.relay.poll_timeout(),
            upstream.poll_timeout(),
            self.relay.downstream().poll_timeout(),
        ] {
            sight.due(self.now, next.map(|next| next.at));
        }
        if let Some(life) = &self.life {
            sight.epoch(life.epoch);
            sight.plain((life.is_input_closed, life.is_end_told));
            sight.shown(&life.server);
            if life.server.is_ok() {
                sight.within(life.epoch, |sight| self.ledger.look_behind(sight));
            }
        }
        sight.plain((self.refusals, self.is_stalled, self.is_lossy));
        sight.plain((self.unread, self.host as u8, self.met));
        self.ledger.look(sight);
        self.words.look(sight);
    }

    /// A relay that is left alone does not spin.
    pub(crate) fn leave_alone(&mut self) {
        for _ in 0..8 {
            self.nap(Nap::ToDeadline);
            self.settle();
        }
    }

    fn act(&mut self, op: &Op) {
        // What the application behind does is nothing without a server; what the host does may be nothing to say.
        self.is_touched |= match op {
            Op::Ask { .. } | Op::News { .. } | Op::Kill(_) => self.server().is_some(),
            Op::Fail(which) | Op::RequireInput { which, .. } | Op::Respond(which) => {
                self.request(*which).is_some()
            }
            Op::Nap(_) => self.relay.poll_timeout().is_some(),
            Op::OpenFails(times) => self.refusals != times % 4,
            Op::Say { .. } => false,
            _ => true,
        };
        match op {
            Op::Ask { which, what } => self.ask(*which, *what),
            Op::Bytes(bytes) => self.host_says(bytes, 0),
            Op::End => {
                if self.is_serving() {
                    self.ledger.host_ended();
                }
                self.relay
                    .handle_downstream(self.now, Input::end(Vec::new()));
            }
            Op::Fail(which) => self.give(*which, |server, now, request, data| {
                let error = ErrorObject {
                    data: Some(data),
                    ..ErrorObject::new(-7, "no\nway")
                };
                server.fail(now, request, error)
            }),
            Op::HostGone => {
                self.is_lossy = true;
                let faults = vec![Fault::new(FaultKind::BrokenPipe)];
                self.relay
                    .handle_downstream(self.now, Input::write_failed(faults));
            }
            Op::Kill(how) => {
                if how % 4 == 0 {
                    self.to_relay.clear();
                }
                self.exit(ExitStatus::Code(70));
            }
            Op::Nap(nap) => self.nap(*nap),
            Op::News { which, what } => self.news(*which, *what),
            Op::OpenFails(times) => self.refusals = times % 4,
            Op::Operate(what) => match what % 16 {
                0 => self.relay.shutdown(self.now),
                1..=4 => {
                    let epoch = self.relay.upstream().epoch();
                    self.relay.reconnect(self.now, epoch, "a whim");
                }
                5..=8 => self.relay.wake(self.now),
                _ => self.relay.connect(self.now),
            },
            Op::RequireInput { which, how } => self.require_input(*which, *how),
            Op::Respond(which) => self.give(*which, Server::respond),
            Op::Say { speech, cut } => {
                let limit = self.setup.config.downstream.limits.message_bytes;
                let bytes = self.words.say(speech, limit.min(1 << 12));
                self.is_touched |= !bytes.is_empty();
                self.host_says(&bytes, usize::from(*cut));
                if cut % 4 != 0 {
                    self.settle();
                }
            }
            Op::Serve => self.serve(),
            Op::Settle => self.settle(),
            Op::Stall(is_stalled) => {
                self.is_stalled = *is_stalled;
                self.host_reads();
            }
            Op::Step(steps) => {
                for _ in 0..*steps {
                    self.moves();
                }
            }
        }
        if self.transcript.is_watched() {
            assert_nothing_secret(&format!("{:?}", self.relay));
        }
    }

    fn is_serving(&self) -> bool {
        self.relay.downstream().state() != server::State::Closed
    }

    fn host_says(&mut self, bytes: &[u8], cut: usize) {
        let (head, tail) = bytes.split_at(cut % bytes.len().max(1));
        for bytes in [head, tail] {
            let is_wanted = self.relay.wants_input(Side::Downstream, StreamId::DUPLEX);
            if is_wanted && self.is_serving() && !bytes.is_empty() {
                self.ledger.fed(bytes);
                self.relay.handle_downstream(self.now, Input::bytes(bytes));
            }
        }
    }

    fn host_reads(&mut self) {
        if !self.is_stalled && self.unread > 0 {
            let read = std::mem::take(&mut self.unread);
            self.relay.handle_downstream(self.now, Input::sent(read));
        }
    }

    fn nap(&mut self, nap: Nap) {
        self.settle();
        let due = self.relay.poll_timeout().map(|deadline| deadline.at);
        let to = match (nap, due) {
            (Nap::Back(_), _) => self.now,
            (Nap::Before, Some(due)) => Instant::from_nanos(due.as_nanos().saturating_sub(1)),
            (Nap::ToDeadline, Some(due)) => due,
            (Nap::Before | Nap::ToDeadline, None) => return,
            (Nap::For(span) | Nap::Untold(span), _) => (self.now + span).min(HORIZON),
        };
        self.now = self.now.max(to);
        let was_serving = self.is_serving();
        self.relay.handle_timeout(self.now);
        if let Some(next) = self.relay.poll_timeout() {
            let is_later = next.at > self.now || next.wake == Wake::Output;
            assert!(is_later, "(10) {next:?} after {:?}", self.now);
        }
        self.is_lossy |= was_serving && !self.is_serving();
        if let Some(Life {
            server: Ok(server), ..
        }) = &mut self.life
        {
            server.handle_timeout(self.now);
        }
    }
}

/// The application behind.
impl World<'_> {
    fn server(&mut self) -> Option<&mut Server> {
        self.life
            .as_mut()
            .and_then(|life| life.server.as_mut().ok())
    }

    fn request(&mut self, which: u8) -> Option<RequestId> {
        self.server()?;
        let open = self.ledger.open();
        open.get(usize::from(which) % open.len().max(1)).copied()
    }

    fn give<E>(
        &mut self,
        which: u8,
        answer: impl FnOnce(&mut Server, Instant, RequestId, Payload) -> Result<(), E>,
    ) {
        let Some(request) = self.request(which) else {
            return;
        };
        let (now, serial) = (self.now, self.mark());
        let echo = self.ledger.mark_of(request);
        let result = payload(&json!({"echo": echo, "serial": serial, "tools": []}));
        let server = self.server().expect("it has requests");
        if answer(server, now, request, result).is_ok() {
            self.ledger.answered(request, serial);
        }
    }

    fn serve(&mut self) {
        for _ in self.ledger.open() {
            self.give(0, Server::respond);
        }
    }

    fn require_input(&mut self, which: u8, how: u8) {
        let Some(request) = self.request(which) else {
            return;
        };
        let (now, mark) = (self.now, self.mark());
        let (method, params) = question(how, mark);
        let input = InputRequired::new()
            .and_ask("key", method, Some(payload(&params)))
            .with_state("mine");
        let server = self.server().expect("it has requests");
        if server.require_input(now, request, input).is_ok() {
            self.ledger.answered(request, mark);
        }
    }

    fn ask(&mut self, which: u8, what: u8) {
        let request = self.request(which).filter(|_| which < 200);
        let (now, mark) = (self.now, self.mark());
        let (method, params) = question(what, mark);
        let params = Some(payload(&params));
        let Some(server) = self.server() else {
            return;
        };
        let asked = match request {
            Some(request) => server.ask(now, request, method, params),
            None => server.ask_unbidden(now, method, params),
        };
        if let Ok(ask) = asked {
            self.ledger.asked(ask, mark);
        }
    }

    fn news(&mut self, which: u8, what: u8) {
        let (request, now) = (self.request(which), self.now);
        let Some(server) = self.server() else {
            return;
        };
        let data = payload(&json!({"what": what}));
        let told = match (what % 8, request) {
            (0 | 1, Some(request)) => server.progress(now, request, Progress::new(f64::from(what))),
            (2, request) => server.log(now, request, LogLevel::Error, None, data),
            (3, _) => server.notify(now, "x/told", Some(data)),
            (4, _) => server.publish(now, Change::List(List::Prompts)),
            (5, _) => {
                let uri = "file:///a".into();
                server.publish(now, Change::Resource { uri })
            }
            (6, _) => {
                server.offer(now, offer(what));
                Ok(())
            }
            _ => server.publish(now, Change::List(List::Tools)),
        };
        drop(told);
    }

    fn mark(&mut self) -> u64 {
        self.marks += 1;
        self.marks
    }
}

/// The driver.
impl World<'_> {
    pub(crate) fn settle(&mut self) {
        let mut steps = STEPS;
        while self.moves() {
            steps -= 1;
            assert!(steps > 0, "the relay spins");
        }
        let waits = self
            .relay
            .poll_timeout()
            .is_some_and(|next| next.wake == Wake::Output);
        assert!(!waits, "(10) output waits and cannot be polled");
    }

    /// Whether anything moved.
    fn moves(&mut self) -> bool {
        self.host_reads();
        let relayed = self.poll_relay();
        let served = self.poll_server();
        let read = self.relay_reads() | self.server_reads();
        relayed || served || read
    }

    fn poll_relay(&mut self) -> bool {
        let mut buf = Vec::new();
        let Some((side, output)) = self.relay.poll_output(&mut buf) else {
            return false;
        };
        match &output {
            Output::Event(Event::Lost(failure)) => self.transcript.failed(&output, failure),
            output => self.transcript.note(output),
        }
        let life = match &output {
            Output::Write { epoch, .. } if side == Side::Upstream => *epoch,
            _ => Epoch::NONE,
        };
        self.transcript.bytes_to(life, &buf);
        match (side, output) {
            (_, Output::Event(event)) => self.event(&event),
            (Side::Downstream, Output::Write { len, .. }) => {
                assert_eq!(len, buf.len());
                assert!(self.host == Host::Here, "written to nobody");
                let message = self.ledger.written(&buf);
                self.words.hear(&message);
                self.unread += len;
            }
            (Side::Downstream, Output::Release { .. }) => {
                assert!(self.host == Host::Here, "the host is let go twice");
                self.host = Host::Released;
            }
            (Side::Upstream, output) => self.upstream(output, &buf),
            (side, output) => panic!("{output:?} means nothing for {side:?}"),
        }
        true
    }

    fn event(&mut self, event: &Event) {
        assert!(
            self.host != Host::Closed || !matches!(event, Event::Downstream(_)),
            "{event:?} after the end"
        );
        if let Event::Downstream(server::Event::Met(peer)) = event {
            self.met = Some(peer.version);
        }
        if let Event::Downstream(server::Event::Closed { .. }) = event {
            assert!(self.host == Host::Released, "closed without a release");
            self.host = Host::Closed;
        }
    }

    fn upstream(&mut self, output: Output<Event>, bytes: &[u8]) {
        match output {
            Output::CloseWrite { .. } => self.life().is_input_closed = true,
            Output::Inspect { .. } => {}
            Output::Kill { .. } => self.exit(ExitStatus::Signal(9)),
            Output::Open { epoch } => self.open(epoch),
            Output::Release { .. } => {
                self.life();
                self.life = None;
            }
            Output::Terminate { .. } => self.exit(ExitStatus::Signal(15)),
            Output::Write { epoch, .. } => {
                self.to_server.extend_from_slice(bytes);
                let sent = Input::sent(bytes.len());
                self.relay.handle_upstream(self.now, epoch, sent);
            }
            other => panic!("{other:?} means nothing for a server"),
        }
    }

    fn open(&mut self, epoch: Epoch) {
        assert!(self.life.is_none(), "{epoch} before the last was released");
        self.to_server.clear();
        self.to_relay.clear();
        let nth = usize::try_from(epoch.number()).expect("few lives") - 1;
        let config = self.setup.servers[nth % self.setup.servers.len()].clone();
        let mut life = Life {
            epoch,
            server: Ok(Server::new(config)),
            is_input_closed: false,
            is_end_told: false,
        };
        if self.refusals > 0 {
            self.refusals -= 1;
            (life.server, life.is_end_told) = (Err(ExitStatus::Unknown), true);
            let faults = vec![Fault::new(FaultKind::NotFound)];
            let failed = Input::open_failed(faults);
            self.relay.handle_upstream(self.now, epoch, failed);
        } else {
            self.ledger.server_begins();
            self.relay.handle_upstream(self.now, epoch, Input::Opened);
        }
        self.life = Some(life);
    }

    fn life(&mut self) -> &mut Life {
        self.life.as_mut().expect("a life")
    }

    fn exit(&mut self, status: ExitStatus) {
        if let Some(life) = self.life.as_mut().filter(|life| life.server.is_ok()) {
            life.server = Err(status);
        }
    }

    fn poll_server(&mut self) -> bool {
        let Some(server) = self
            .life
            .as_mut()
            .and_then(|life| life.server.as_mut().ok())
        else {
            return false;
        };
        let Some(output) = server.poll_output(&mut self.to_relay) else {
            return false;
        };
        match output {
            Output::Event(event) => self.ledger.at_server(&event),
            Output::Release { .. } => {}
            Output::Write { len, .. } => server.handle(self.now, Input::sent(len)),
            other => panic!("{other:?} means nothing for a server end"),
        }
        let is_over = server.state() == server::State::Closed;
        if is_over && server.poll_timeout().is_none() {
            self.exit(ExitStatus::Code(0));
        }
        true
    }

    fn relay_reads(&mut self) -> bool {
        let Some(life) = &mut self.life else {
            return false;
        };
        if !self.relay.wants_input(Side::Upstream, StreamId::DUPLEX) {
            return false;
        }
        let epoch = life.epoch;
        if !self.to_relay.is_empty() {
            let piece = self.setup.piece.min(self.to_relay.len());
            let bytes: Vec<u8> = self.to_relay.drain(..piece).collect();
            self.relay
                .handle_upstream(self.now, epoch, Input::bytes(bytes));
            return true;
        }
        let Err(status) = life.server else {
            return false;
        };
        if std::mem::replace(&mut life.is_end_told, true) {
            return false;
        }
        self.relay
            .handle_upstream(self.now, epoch, Input::exited(status));
        self.relay
            .handle_upstream(self.now, epoch, Input::end(Vec::new()));
        true
    }

    fn server_reads(&mut self) -> bool {
        let Some(life) = &mut self.life else {
            return false;
        };
        let Ok(server) = &mut life.server else {
            return false;
        };
        if !server.wants_input(StreamId::DUPLEX) {
            return false;
        }
        if !self.to_server.is_empty() {
            let piece = self.setup.piece.min(self.to_server.len());
            let bytes: Vec<u8> = self.to_server.drain(..piece).collect();
            server.handle(self.now, Input::bytes(bytes));
            return true;
        }
        let ends = std::mem::take(&mut life.is_input_closed);
        if ends {
            server.handle(self.now, Input::end(Vec::new()));
        }
        ends
    }

    /// The host reads all that there is and has all its answers; then the relay is shut down, and ends.
    pub(crate) fn end(&mut self) {
        self.is_stalled = false;
        self.refusals = 0;
        self.settle();
        if self.ledger.dialogue().is_mid_line() {
            self.host_says(b"\n", 0);
        }
        for _ in 0..40 {
            self.settle();
            self.serve();
            self.settle();
            if self.ledger.dialogue().owes().is_none() {
                break;
            }
            self.nap(Nap::ToDeadline);
        }
        self.settle();
        if !self.is_lossy {
            self.ledger.dialogue().assert_quiet();
        }
        self.relay.shutdown(self.now);
        for _ in 0..100 {
            self.settle();
            if self.relay.is_closed() {
                break;
            }
            self.nap(Nap::ToDeadline);
        }
        assert!(
            self.relay.is_closed(),
            "(13) it does not end: {:?}",
            self.relay
        );
        assert!(self.host == Host::Closed && self.life.is_none());
        if !self.is_lossy {
            self.ledger.dialogue().assert_quiet();
        }
        assert_eq!(self.relay.poll_timeout(), None);
    }
}

fn payload(value: &Value) -> Payload {
    value.to_string().parse().expect("JSON")
}
