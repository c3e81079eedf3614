//! The application of a client, its clock and its decoys, whatever carries the bytes: what a script can do that is no input.
//! Judges nothing but what needs two looks.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::sync::OnceLock;
use std::time::Duration;

use everlink::client::{CallOptions, Event, Failure, Outcome, State};
use everlink::wire::ErrorObject;
use everlink::{
    AskId, CallId, Client, Config, Epoch, Fault, FaultKind, Input, Instant, Limit, List, Output,
    Payload, StreamId, Wake, WhenSpent,
};

use crate::explore::Sight;
use crate::rules::{Before, Rules, is_alive};
use crate::script::{self, Nap, Whose};
use crate::server::{PAYLOAD, assert_nothing_secret};

/// No single step may give more than this to do.
pub(crate) const POLLS: usize = 20_000;

/// Time ends here, 292 years after it began: late enough for every deadline that is told apart from never.
pub(crate) const HORIZON: Instant = Instant::from_nanos(1 << 63);

/// A client, and everybody above it.
pub(crate) struct App {
    pub(crate) client: Client,
    pub(crate) rules: Rules,
    pub(crate) now: Instant,
    /// The latest time that the link was told.
    pub(crate) told: Instant,
    pub(crate) transcript: Transcript,
    calls: Vec<CallId>,
    asks: Vec<AskId>,
    marks: u64,
    /// What outputs are polled into.
    buf: Vec<u8>,
    /// Something was done to the link.
    is_touched: bool,
}

impl App {
    pub(crate) fn new(config: &Config) -> App {
        App {
            client: Client::new(config.clone()),
            rules: Rules::new(config),
            now: Instant::ZERO,
            told: Instant::ZERO,
            transcript: Transcript::default(),
            calls: Vec::new(),
            asks: Vec::new(),
            marks: 0,
            buf: Vec::new(),
            is_touched: false,
        }
    }

    /// Does something to the link and looks what it did.
    pub(crate) fn step<T>(&mut self, act: impl FnOnce(&mut Client, Instant) -> T) -> T {
        self.is_touched = true;
        let before = Before::of(&self.client);
        self.told = self.told.max(self.now);
        let answer = act(&mut self.client, self.now);
        self.rules.stepped(&before, &self.client, self.told);
        answer
    }

    /// The next output, with the bytes that belong to it.
    pub(crate) fn poll(&mut self) -> Option<(Output<Event>, Vec<u8>)> {
        let before = b"before";
        let mut buf = std::mem::take(&mut self.buf);
        buf.clear();
        buf.extend_from_slice(before);
        let output = self.client.poll_output(&mut buf);
        let bytes = buf.strip_prefix(before);
        let bytes = bytes.expect("a buffer is appended to").to_vec();
        self.buf = buf;
        let output = output?;
        self.transcript.output(&output);
        self.transcript.bytes(&bytes);
        self.rules.output(&output, &bytes, &self.client, self.told);
        if let Output::Event(Event::Ask(ask)) = &output {
            self.asks.push(ask.ask);
        }
        Some((output, bytes))
    }

    /// Whether anything was done to the link since this was asked last. What is stale does nothing to it.
    pub(crate) fn was_touched(&mut self) -> bool {
        std::mem::take(&mut self.is_touched)
    }

    /// All was polled that there was.
    pub(crate) fn drained(&mut self) {
        let mut buf = Vec::new();
        assert!(
            self.client.poll_output(&mut buf).is_none(),
            "(10) output without end"
        );
        self.rules.drained(&self.client);
    }

    /// Tells the link something that it must not hear, of something that is none or over.
    pub(crate) fn stale(&mut self, epoch: Epoch, input: Input<'_>) {
        let mut before = self.client.stats();
        before.stale_inputs += 1;
        let looked = (format!("{:?}", self.client), self.client.poll_timeout());
        assert_nothing_secret(&looked.0);
        self.client.handle(self.told, epoch, input);
        let looks = (format!("{:?}", self.client), self.client.poll_timeout());
        assert_eq!(looks, looked, "(3) a stale input was heard");
        assert_eq!(
            self.client.stats(),
            before,
            "(3) a stale input was counted as more"
        );
    }

    /// A link that was closed stays so.
    pub(crate) fn assert_over(&mut self) {
        assert_eq!(self.client.poll_timeout(), None);
        let late = self
            .client
            .call(self.now, "tools/call", None, CallOptions::new());
        assert!(late.is_err(), "a closed link took a call");
        self.step(Client::connect);
        self.step(Client::wake);
        self.watch(0);
        self.drained();
        assert_eq!(self.client.state(), State::Closed);
        let mut stats = self.client.stats();
        stats.stale_inputs = 0;
        self.transcript.counted(&stats);
    }

    /// Looks at all that can be seen without doing anything.
    pub(crate) fn look(&self, sight: &mut Sight) {
        assert_nothing_secret(sight.shown(&self.client));
        let budget = self.client.config().policy.retry.budget;
        sight.plain(self.client.failures().min(budget + 1));
        let next = self.client.poll_timeout();
        sight.due(self.now, next.map(|next| next.at));
        sight.since(self.now, Some(self.told), Duration::MAX);
        let version = self.client.session().map(|session| session.version);
        sight.plain((self.client.era(), version, self.client.last_end().is_some()));
        sight.plain(self.client.wants_input(StreamId::DUPLEX));
        for list in List::ALL {
            sight.plain(self.client.held(list).is_some());
            sight.plain(self.client.is_fresh(self.now, list));
        }
        self.rules.look(self.now, sight);
    }

    pub(crate) fn epoch(&self, whose: Whose) -> Option<Epoch> {
        let current = self.client.epoch().number();
        let number = match whose {
            Whose::Current => current,
            Whose::Future(by) => current + 1 + u64::from(by),
            Whose::Past(by) => current.checked_sub(1 + u64::from(by))?,
        };
        decoys().epochs.get(usize::try_from(number).ok()?).copied()
    }
}

/// The verbs.
impl App {
    pub(crate) fn call(&mut self, method: u8, params: u8, options: u8) {
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
            0 => (
                format!(r#"{{"mark":{mark},"name":"tool","pad":"{PAYLOAD}"}}"#),
                true,
            ),
            1 => (
                format!(
                    r#"{{"mark":{mark},"name":"tool","arguments":{{"a":"\u00e9 ","deep":{{"b":true}},"n":7}}}}"#
                ),
                true,
            ),
            2 => (
                format!(r#"{{"_meta":{{"mark":{mark}}},"pad":"{PAYLOAD}"}}"#),
                true,
            ),
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

    pub(crate) fn cancel(&mut self, which: u8) {
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

    pub(crate) fn answer(&mut self, which: u8, how: u8) {
        if self.asks.is_empty() {
            return;
        }
        let ask = self.asks[usize::from(which) % self.asks.len()];
        let answer = match how % 5 {
            0 | 1 => {
                let answer = format!("{{\"roots\":\n[],\"pad\":\"{PAYLOAD}\"}}");
                Ok(answer.parse::<Payload>().expect("JSON"))
            }
            2 => Ok("{}".parse().expect("JSON")),
            3 => Ok("[]".parse().expect("JSON")),
            _ => Err(ErrorObject::new(-1, "no\nway")),
        };
        let given = self.step(|client, now| client.answer(now, ask, answer));
        self.transcript.note(&given);
    }

    /// Answers every question that was ever asked, as it should be.
    pub(crate) fn answer_all(&mut self) {
        for which in 0..self.asks.len() {
            self.answer(u8::try_from(which).expect("few questions"), 0);
        }
    }

    /// The newest question, as a script names it.
    pub(crate) fn newest_ask(&self) -> u8 {
        u8::try_from(self.asks.len().saturating_sub(1)).expect("few questions")
    }

    /// Takes back the oldest call that has no outcome yet.
    pub(crate) fn cancel_oldest(&mut self) {
        let mut calls = self.calls.iter();
        if let Some(call) = calls.find(|call| self.rules.is_awaited(**call)).copied() {
            let cancelled = self.step(|client, now| client.cancel(now, call, None));
            self.transcript.note(&cancelled);
        }
    }

    pub(crate) fn list(&mut self, list: List, options: u8) {
        let options = call_options(options);
        let called = self.step(|client, now| client.list(now, list, options));
        self.rules
            .called(&called, ("", None, options.idempotent()), self.told);
        self.transcript.note(&called);
        self.calls.extend(called.ok());
    }

    pub(crate) fn notify(&mut self, which: u8) {
        let method = ["notifications/roots/list_changed", "x/told", "ping"][usize::from(which % 3)];
        let params = [None, Some("{\"a\":\n1}"), Some("[]")][usize::from(which / 3 % 3)];
        let params = params.map(|text| text.parse::<Payload>().expect("JSON"));
        let told = self.step(|client, now| client.notify(now, method, params));
        self.transcript.note(&told);
    }

    pub(crate) fn reconnect(&mut self, whose: Whose) {
        let Some(seen) = self.epoch(whose) else {
            return;
        };
        let is_here = seen == self.client.epoch() && is_alive(self.client.state());
        let is_first = is_here && self.rules.reconnect_asked(seen);
        let stands = |client: &Client| (client.state(), client.epoch(), client.failures());
        let before = stands(&self.client);
        self.step(|client, now| client.reconnect(now, seen, "a whim"));
        let is_same = stands(&self.client) == before;
        assert!(is_first || is_same, "(6) {seen} is replaced again");
    }

    pub(crate) fn shutdown(&mut self) {
        self.rules.shut_down();
        self.step(Client::shutdown);
    }

    pub(crate) fn watch(&mut self, wish: u8) {
        let wish = script::wish(wish);
        self.step(|client, now| client.watch(now, wish));
    }

    /// Lets time pass. Whether the link was told what time it is.
    pub(crate) fn nap(&mut self, nap: Nap) -> bool {
        let due = self.client.poll_timeout().map(|deadline| deadline.at);
        let to = match (nap, due) {
            (Nap::Back(span), _) => {
                let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
                let back = Instant::from_nanos(self.now.as_nanos().saturating_sub(nanos));
                self.step(|client, _| client.handle_timeout(back));
                return false;
            }
            (Nap::Before, Some(due)) => Instant::from_nanos(due.as_nanos().saturating_sub(1)),
            (Nap::ToDeadline, Some(due)) => due,
            (Nap::Before | Nap::ToDeadline, None) => return false,
            (Nap::For(span) | Nap::Untold(span), _) => (self.now + span).min(HORIZON),
        };
        self.now = self.now.max(to);
        if let Nap::Untold(_) = nap {
            return false;
        }
        self.step(|client, now| client.handle_timeout(now));
        if let Some(next) = self.client.poll_timeout() {
            let later = next.at > self.now || next.wake == Wake::Output;
            assert!(later, "(10) {next:?} after {:?}", self.now);
        }
        true
    }
}

/// All that came out.
#[derive(Debug)]
pub(crate) enum Transcript {
    /// As hashes, one by one.
    Kept(Vec<u64>),
    /// As somebody sees it who does not mind what ids are called and what time it is.
    Seen(Box<Sight>),
    /// Nobody looks.
    Unseen,
}

impl Default for Transcript {
    fn default() -> Transcript {
        Transcript::Kept(Vec::new())
    }
}

impl Transcript {
    /// Whether somebody looks at what comes out.
    pub(crate) const fn is_watched(&self) -> bool {
        !matches!(self, Transcript::Unseen)
    }

    pub(crate) fn note(&mut self, seen: &impl fmt::Debug) {
        match self {
            Transcript::Kept(kept) => {
                let text = format!("{seen:?}");
                assert_nothing_secret(&text);
                let mut hasher = DefaultHasher::new();
                hasher.write(text.as_bytes());
                kept.push(hasher.finish());
            }
            Transcript::Seen(sight) => assert_nothing_secret(sight.shown(seen)),
            Transcript::Unseen => {}
        }
    }

    /// What a client puts out. How the life before ended, which every failure tells, is not seen.
    pub(crate) fn output(&mut self, output: &Output<Event>) {
        match output {
            Output::Event(Event::Done {
                outcome: Outcome::Failed(failure),
                ..
            }) => self.failed(output, failure),
            output => self.note(output),
        }
    }

    /// A failure that is put out like this, without how the life before ended.
    pub(crate) fn failed(&mut self, output: &impl fmt::Debug, failure: &Failure) {
        let Transcript::Seen(sight) = self else {
            return self.note(output);
        };
        assert_nothing_secret(&format!("{output:?}"));
        let Failure { call, method, .. } = failure;
        sight.shown(&(call, method, &failure.kind, failure.delivery));
        sight.plain(failure.ended.is_some());
    }

    /// What was counted, which depends on all that ever was.
    pub(crate) fn counted(&mut self, stats: &impl fmt::Debug) {
        if let Transcript::Kept(_) = self {
            self.note(stats);
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        match self {
            Transcript::Kept(kept) => kept.push(bytes.iter().fold(0, |sum, byte| {
                u64::from(*byte).wrapping_add(sum.rotate_left(9))
            })),
            Transcript::Seen(sight) => sight.output(bytes),
            Transcript::Unseen => {}
        }
    }

    /// The bytes of an output to a life of a server.
    pub(crate) fn bytes_to(&mut self, life: Epoch, bytes: &[u8]) {
        match self {
            Transcript::Seen(sight) => sight.within(life, |sight| sight.output(bytes)),
            transcript => transcript.bytes(bytes),
        }
    }

    /// The same inputs gave the same outputs.
    pub(crate) fn assert_same(&self, other: &Transcript) {
        let (Transcript::Kept(one), Transcript::Kept(other)) = (self, other) else {
            panic!("nothing was kept");
        };
        let both = one.iter().zip(other);
        let same = both.take_while(|(one, other)| one == other).count();
        let lens = (one.len(), other.len());
        assert_eq!(lens.0, lens.1, "(3, 10) they differ from output {same} on");
        assert_eq!(same, lens.0, "(3, 10) they differ at output {same}");
    }
}

pub(crate) fn with_details(kinds: &[FaultKind]) -> Vec<Fault> {
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
