//! A driver, an application and a clock that do what the script says. Judges nothing but what needs two looks.

use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hasher};
use std::sync::OnceLock;
use std::time::Duration;

use everlink::client::{CallOptions, Event, State};
use everlink::wire::ErrorObject;
use everlink::{
    AskId, CallId, Client, Config, Epoch, ExitStatus, Fault, FaultKind, Input, Instant, Limit,
    Output, Payload, StreamId, Wake, WhenSpent,
};
use serde_json::Value;

use crate::peer::Peer;
use crate::rules::{Before, Rules, is_alive};
use crate::script::{self, Nap, Op, Setup, Whose};

/// No single step may give more than this to do.
pub(crate) const POLLS: usize = 20_000;

/// Time ends here, 292 years after it began: late enough for every deadline that is told apart from never.
pub(crate) const HORIZON: Instant = Instant::from_nanos(1 << 63);

/// Plays a script to its end, checks every rule on the way, and lets the link close.
///
/// It is played twice, the second time without the inputs of transports that are none: what comes out must be the same.
///
/// # Panics
///
/// When a rule is broken.
pub fn run(setup: &Setup, ops: &[Op]) {
    let played = World::new(setup, true).play(ops);
    let again = World::new(setup, false).play(ops);
    played.assert_same(&again);
}

struct World<'s> {
    setup: &'s Setup,
    client: Client,
    rules: Rules,
    peer: Peer,
    now: Instant,
    /// The latest time that the link was told.
    told: Instant,
    calls: Vec<CallId>,
    asks: Vec<AskId>,
    marks: u64,
    delivers_stale: bool,
    transcript: Transcript,
}

impl<'s> World<'s> {
    fn new(setup: &'s Setup, delivers_stale: bool) -> World<'s> {
        World {
            setup,
            client: Client::new(setup.config.clone()),
            rules: Rules::new(&setup.config),
            peer: Peer::default(),
            now: Instant::ZERO,
            told: Instant::ZERO,
            calls: Vec::new(),
            asks: Vec::new(),
            marks: 0,
            delivers_stale,
            transcript: Transcript::default(),
        }
    }

    fn play(mut self, ops: &[Op]) -> Transcript {
        for op in ops {
            self.act(op);
            if !self.setup.lazy {
                self.drain();
            }
        }
        self.drain();
        self.leave_alone();
        self.close();
        self.transcript
    }

    /// A link that is left alone does not spin.
    fn leave_alone(&mut self) {
        for _ in 0..8 {
            self.nap(Nap::ToDeadline);
            self.drain();
        }
    }

    /// A link that is shut down ends, whatever its transport does, and then it is over.
    fn close(&mut self) {
        self.act(&Op::Shutdown);
        self.drain();
        for _ in 0..8 {
            if let Some(deadline) = self.client.poll_timeout() {
                self.now = self.now.max(deadline.at);
                self.step(|client, now| client.handle_timeout(now));
            } else if !self.rules.is_closed() {
                self.end_what_may_take_for_ever();
            }
            self.drain();
        }
        assert!(
            self.rules.is_closed(),
            "(13) it does not end: {:?}",
            self.client
        );
        assert_eq!(self.client.poll_timeout(), None);
        let late = self
            .client
            .call(self.now, "tools/call", None, CallOptions::new());
        assert!(late.is_err(), "a closed link took a call");
        for op in [
            Op::Connect,
            Op::Wake,
            Op::Opened(Whose::Current),
            Op::Watch(0),
        ] {
            self.act(&op);
            self.drain();
        }
        assert_eq!(self.client.state(), State::Closed);
        let mut stats = self.client.stats();
        stats.stale_inputs = 0;
        self.transcript.note(&stats);
    }

    /// Without a limit to its grace, a link waits for the end of its transport as long as that takes.
    fn end_what_may_take_for_ever(&mut self) {
        let policy = &self.setup.config.policy;
        let graces = [
            policy.close_grace,
            policy.terminate_grace,
            policy.kill_grace,
        ];
        let mut ends = graces.into_iter().map(|grace| self.now + grace);
        let for_ever = ends.any(|end| end == Instant::MAX);
        assert!(for_ever, "(13) nothing is due: {:?}", self.client);
        self.input(Whose::Current, Input::end(Vec::new()));
        self.input(Whose::Current, Input::exited(ExitStatus::Unknown));
    }

    fn act(&mut self, op: &Op) {
        match op {
            Op::Answer { which, how } => self.answer(*which, *how),
            Op::Bytes { whose, bytes } => self.bytes(*whose, bytes, 0),
            Op::Call {
                method,
                params,
                options,
            } => self.call(*method, *params, *options),
            Op::Cancel { which } => self.cancel(*which),
            Op::Connect => self.step(Client::connect),
            Op::End { whose, faults } => {
                self.input(*whose, Input::end(with_details(faults)));
            }
            Op::Exited { whose, status } => {
                let status = match status % 3 {
                    0 => ExitStatus::Code(i32::from(*status / 3)),
                    1 => ExitStatus::Signal(i32::from(*status / 3)),
                    _ => ExitStatus::Unknown,
                };
                self.input(*whose, Input::exited(status));
            }
            Op::List { list, options } => {
                let (list, options) = (*list, call_options(*options));
                let called = self.step(|client, now| client.list(now, list, options));
                self.rules
                    .called(&called, ("", None, options.idempotent()), self.told);
                self.transcript.note(&called);
                self.calls.extend(called.ok());
            }
            Op::Nap(nap) => self.nap(*nap),
            Op::Notify(which) => {
                let method =
                    ["notifications/roots/list_changed", "x/told", "ping"][usize::from(which % 3)];
                let params = [None, Some("{\"a\":\n1}"), Some("[]")][usize::from(which / 3 % 3)];
                let params = params.map(|text| text.parse::<Payload>().expect("JSON"));
                let told = self.step(|client, now| client.notify(now, method, params));
                self.transcript.note(&told);
            }
            Op::OpenFailed { whose, faults } => {
                self.input(*whose, Input::open_failed(with_details(faults)));
            }
            Op::Opened(whose) => self.input(*whose, Input::Opened),
            Op::Poll(most) => self.poll(usize::from(*most)),
            Op::Reconnect(whose) => {
                if let Some(seen) = self.epoch(*whose) {
                    if seen == self.client.epoch() {
                        self.rules.reconnect_asked(seen);
                    }
                    self.step(|client, now| client.reconnect(now, seen, "a whim"));
                }
            }
            Op::Say { whose, speech, cut } => {
                let bytes = self
                    .peer
                    .say(speech, self.setup.config.limits.message_bytes);
                self.bytes(*whose, &bytes, usize::from(*cut));
            }
            Op::Sent { whose, len } => {
                let len = match len {
                    0 => usize::MAX,
                    1 => self.rules.under_way(self.client.epoch()),
                    len => usize::from(*len),
                };
                self.input(*whose, Input::sent(len));
            }
            Op::Serve(taste) => self.serve(*taste),
            Op::Shutdown => {
                self.rules.shut_down();
                self.step(Client::shutdown);
            }
            Op::Stderr { whose, len } => {
                let bytes = b"a line of trouble\n".repeat(usize::from(*len));
                self.input(*whose, Input::stderr(bytes));
            }
            Op::Wake => self.step(Client::wake),
            Op::WriteFailed { whose, faults } => {
                self.input(*whose, Input::write_failed(with_details(faults)));
            }
            Op::Watch(wish) => {
                let wish = script::wish(*wish);
                self.step(|client, now| client.watch(now, wish));
            }
        }
    }

    fn call(&mut self, method: u8, params: u8, options: u8) {
        let methods = [
            "tools/call",
            "tools/call",
            "resources/read",
            "prompts/get",
            "tools/list",
            "completion/complete",
            "x/unheard_of",
            "tasks/get",
            "ping",
        ];
        let method = methods[usize::from(method) % methods.len()];
        let mark = self.marks;
        self.marks += 1;
        let (text, marked) = match params % 9 {
            0 | 1 => (format!(r#"{{"mark":{mark},"name":"tool"}}"#), true),
            2 => (format!(r#"{{"_meta":{{"mark":{mark}}}}}"#), true),
            3 => (
                format!("{{\r\n\"mark\":{mark},\n\"name\":\"a\\nb\"}}"),
                true,
            ),
            4 => (format!(r#"{{"mark":{mark},"task":{{}}}}"#), true),
            5 => (
                format!(r#"{{"mark":{mark},"pad":"{}"}}"#, "x".repeat(500)),
                true,
            ),
            6 => ("{}".into(), false),
            7 => ("[1]".into(), false),
            _ => (r#"{"requestState":"mine"}"#.into(), false),
        };
        let params = text.parse::<Payload>().expect("JSON");
        let options = call_options(options);
        let called = self.step(|client, now| client.call(now, method, Some(params), options));
        let facts = (method, marked.then_some(mark), options);
        self.rules.called(&called, facts, self.told);
        self.transcript.note(&called);
        self.calls.extend(called.ok());
    }

    fn cancel(&mut self, which: u8) {
        let strange = &decoys().calls;
        let call = match which {
            0..4 => strange[strange.len() - 1 - usize::from(which)],
            _ if self.calls.is_empty() => return,
            _ => self.calls[usize::from(which) % self.calls.len()],
        };
        let reason = (which % 2 == 0).then_some("not\nneeded");
        let cancelled = self.step(|client, now| client.cancel(now, call, reason));
        self.transcript.note(&cancelled);
    }

    fn answer(&mut self, which: u8, how: u8) {
        if self.asks.is_empty() {
            return;
        }
        let ask = self.asks[usize::from(which) % self.asks.len()];
        let answer = match how % 5 {
            0 | 1 => Ok("{\"roots\":\n[]}".parse::<Payload>().expect("JSON")),
            2 => Ok("{}".parse().expect("JSON")),
            3 => Ok("[]".parse().expect("JSON")),
            _ => Err(ErrorObject::new(-1, "no\nway")),
        };
        let given = self.step(|client, now| client.answer(now, ask, answer));
        self.transcript.note(&given);
    }

    fn nap(&mut self, nap: Nap) {
        let due = self.client.poll_timeout().map(|deadline| deadline.at);
        let to = match (nap, due) {
            (Nap::Back(span), _) => {
                let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
                let back = Instant::from_nanos(self.now.as_nanos().saturating_sub(nanos));
                return self.step(|client, _| client.handle_timeout(back));
            }
            (Nap::Before, Some(due)) => Instant::from_nanos(due.as_nanos().saturating_sub(1)),
            (Nap::ToDeadline, Some(due)) => due,
            (Nap::Before | Nap::ToDeadline, None) => return,
            (Nap::For(span) | Nap::Untold(span), _) => (self.now + span).min(HORIZON),
        };
        self.now = self.now.max(to);
        if let Nap::Untold(_) = nap {
            return;
        }
        let was_drained = !self.setup.lazy;
        self.step(|client, now| client.handle_timeout(now));
        if let Some(next) = self.client.poll_timeout() {
            let later = next.at > self.now || next.wake == Wake::Output;
            assert!(later, "(10) {next:?} after {:?}", self.now);
        }
        if was_drained {
            self.drain();
            self.rules.timed(self.now);
        }
    }

    fn serve(&mut self, taste: u8) {
        if self.client.state() == State::Opening {
            self.input(Whose::Current, Input::Opened);
        }
        for _ in 0..8 {
            self.drain();
            if !self.peer.is_asked() {
                break;
            }
            let bytes = self.peer.serve(taste);
            self.bytes(Whose::Current, &bytes, 0);
        }
    }

    fn bytes(&mut self, whose: Whose, bytes: &[u8], cut: usize) {
        let (head, tail) = bytes.split_at(cut % bytes.len().max(1));
        for bytes in [head, tail] {
            // A driver stops reading when it is told to.
            if self.client.wants_input(StreamId::DUPLEX) && !bytes.is_empty() {
                self.input(whose, Input::bytes(bytes));
            }
        }
    }

    fn input(&mut self, whose: Whose, input: Input<'_>) {
        let Some(epoch) = self.epoch(whose) else {
            return;
        };
        if epoch == self.client.epoch() && is_alive(self.client.state()) {
            self.rules.input(epoch, &input);
            self.step(|client, now| client.handle(now, epoch, input));
        } else if self.delivers_stale {
            let mut before = self.client.stats();
            before.stale_inputs += 1;
            let looked = (format!("{:?}", self.client), self.client.poll_timeout());
            self.client.handle(self.told, epoch, input);
            let looks = (format!("{:?}", self.client), self.client.poll_timeout());
            assert_eq!(looks, looked, "(3) a stale input was heard");
            assert_eq!(
                self.client.stats(),
                before,
                "(3) a stale input was counted as more"
            );
        }
    }

    fn epoch(&self, whose: Whose) -> Option<Epoch> {
        let current = self.client.epoch().number();
        let number = match whose {
            Whose::Current => current,
            Whose::Future(by) => current + 1 + u64::from(by),
            Whose::Past(by) => current.checked_sub(1 + u64::from(by))?,
        };
        decoys().epochs.get(usize::try_from(number).ok()?).copied()
    }

    /// Does something to the link and looks what it did.
    fn step<T>(&mut self, act: impl FnOnce(&mut Client, Instant) -> T) -> T {
        let before = Before::of(&self.client);
        self.told = self.told.max(self.now);
        let answer = act(&mut self.client, self.now);
        self.rules.stepped(&before, &self.client, self.told);
        answer
    }

    fn drain(&mut self) {
        self.poll(POLLS);
        let mut buf = Vec::new();
        assert!(
            self.client.poll_output(&mut buf).is_none(),
            "(10) output without end"
        );
        self.rules.drained(&self.client);
    }

    fn poll(&mut self, most: usize) {
        for _ in 0..most {
            let mut buf = b"before".to_vec();
            let Some(output) = self.client.poll_output(&mut buf) else {
                return;
            };
            let bytes = buf
                .strip_prefix(b"before")
                .expect("a buffer is appended to");
            self.transcript.note(&output);
            self.transcript.bytes(bytes);
            self.rules.output(&output, bytes, &self.client, self.told);
            match output {
                Output::Event(Event::Ask(ask)) => self.asks.push(ask.ask),
                Output::Open { .. } => self.peer = Peer::default(),
                Output::Write { len, .. } => {
                    self.receive(bytes);
                    if self.setup.reports_sent {
                        self.input(Whose::Current, Input::sent(len));
                    }
                }
                _ => {}
            }
        }
    }

    /// The server reads what was written.
    fn receive(&mut self, bytes: &[u8]) {
        let message: Value = serde_json::from_slice(bytes).expect("JSON");
        let wire = message["id"].as_i64();
        match (wire, message["method"].as_str()) {
            (Some(wire), Some(method)) => self.peer.receive(wire, method),
            (None, Some("notifications/cancelled")) => {
                let taken_back = message["params"]["requestId"].as_i64();
                self.peer.forget(taken_back.expect("the id of a request"));
            }
            _ => {}
        }
    }
}

/// All that came out, as hashes.
#[derive(Debug, Default)]
pub(crate) struct Transcript(Vec<u64>);

impl Transcript {
    pub(crate) fn note(&mut self, seen: &impl fmt::Debug) {
        let mut text = HashedText(DefaultHasher::new());
        let written = write!(text, "{seen:?}");
        written.expect("a hasher takes everything");
        self.0.push(text.0.finish());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.push(bytes.iter().fold(0, |sum, byte| {
            u64::from(*byte).wrapping_add(sum.rotate_left(9))
        }));
    }

    /// The same inputs gave the same outputs.
    pub(crate) fn assert_same(&self, other: &Transcript) {
        let both = self.0.iter().zip(&other.0);
        let same = both.take_while(|(one, other)| one == other).count();
        let lens = (self.0.len(), other.0.len());
        assert_eq!(lens.0, lens.1, "(3, 10) they differ from output {same} on");
        assert_eq!(same, lens.0, "(3, 10) they differ at output {same}");
    }
}

/// A text of which only the hash is kept.
struct HashedText(DefaultHasher);

impl fmt::Write for HashedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

fn with_details(kinds: &[FaultKind]) -> Vec<Fault> {
    kinds
        .iter()
        .map(|kind| Fault::with_detail(*kind, "as the system puts it"))
        .collect()
}

fn call_options(bits: u8) -> CallOptions {
    let limits = [
        None,
        Some(Limit::After(Duration::ZERO)),
        Some(Limit::After(Duration::from_millis(50))),
        Some(Limit::Never),
    ];
    let mut options = CallOptions::new();
    options.idle = limits[usize::from(bits & 3)];
    options.total = limits[usize::from(bits >> 2 & 3)];
    options.idempotent = bits & 16 != 0;
    options.no_progress = bits & 32 != 0;
    options
}

/// Ids of another link, for what this one has not given out yet.
struct Decoys {
    /// By their number.
    epochs: Vec<Epoch>,
    calls: Vec<CallId>,
}

fn decoys() -> &'static Decoys {
    static DECOYS: OnceLock<Decoys> = OnceLock::new();
    DECOYS.get_or_init(|| {
        let mut config = Config::child("decoy", "1");
        let retry = &mut config.policy.retry;
        (retry.first, retry.cap, retry.floor) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        retry.when_spent = WhenSpent::Park {
            probe: Duration::ZERO,
            call_floor: Duration::ZERO,
        };
        let mut client = Client::new(config);
        let (mut epochs, mut calls) = (vec![Epoch::NONE], Vec::new());
        let mut buf = Vec::new();
        for second in 0..600 {
            let now = Instant::from_origin(Duration::from_secs(second));
            client.connect(now);
            calls.extend(client.call(now, "x", None, CallOptions::new()));
            epochs.push(client.epoch());
            client.handle(now, client.epoch(), Input::open_failed(Vec::new()));
            while client.poll_output(&mut buf).is_some() {}
        }
        Decoys { epochs, calls }
    })
}
