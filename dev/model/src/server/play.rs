//! A driver, an application, a client and a clock that do what the script says. Judges nothing but what needs two looks.

use std::fmt::Debug;
use std::sync::OnceLock;
use std::time::Duration;

use everlink::protocol::{LogLevel, meta};
use everlink::server::{Config, Event, InputRequired, Misuse, Progress, State};
use everlink::{
    AskId, Change, ErrorObject, ExitStatus, Fault, FaultKind, Input, Instant, List, Output,
    Payload, RequestId, Server, StreamId, Wake,
};
use serde_json::{Value, json};

use super::rules::{Given, Rules, assert_nothing_secret};
use super::script::{self, Op, Setup};
use super::words::{PAYLOAD, URIS, Words};
use crate::app::{HORIZON, POLLS, Transcript};
use crate::explore::Sight;
use crate::script::Nap;

/// Plays a script to its end, checks every rule on the way, and lets the server close.
///
/// It is played twice, the second time without what a server end has no use for: what comes out must be the same.
///
/// # Panics
///
/// When a rule is broken.
pub fn run(setup: &Setup, ops: &[Op]) {
    let played = World::new(setup, true).play(ops);
    let again = World::new(setup, false).play(ops);
    played.assert_same(&again);
}

pub(crate) struct World<'s> {
    setup: &'s Setup,
    server: Server,
    rules: Rules,
    pub(crate) words: Words,
    pub(crate) now: Instant,
    /// The latest time that the server was told.
    told: Instant,
    requests: Vec<RequestId>,
    asks: Vec<AskId>,
    marks: u64,
    /// Nothing happened since nothing was left to poll.
    is_drained: bool,
    delivers_useless: bool,
    pub(crate) transcript: Transcript,
    /// Something was done to the server, or its client said something.
    is_touched: bool,
}

impl<'s> World<'s> {
    pub(crate) fn new(setup: &'s Setup, delivers_useless: bool) -> World<'s> {
        World {
            setup,
            server: Server::new(setup.config.clone()),
            rules: Rules::new(&setup.config),
            words: Words::default(),
            now: Instant::ZERO,
            told: Instant::ZERO,
            requests: Vec::new(),
            asks: Vec::new(),
            marks: 0,
            is_drained: false,
            delivers_useless,
            transcript: Transcript::default(),
            is_touched: false,
        }
    }

    fn play(mut self, ops: &[Op]) -> Transcript {
        for op in ops {
            self.step(op);
        }
        self.drain();
        self.come_to_rest();
        self.leave_alone();
        self.close();
        self.transcript
    }

    pub(crate) fn step(&mut self, op: &Op) {
        self.act(op);
        if !self.setup.lazy {
            self.drain();
        }
    }

    /// Whether anything was done to the server, or said by its client, since this was asked last.
    pub(crate) fn was_touched(&mut self) -> bool {
        std::mem::take(&mut self.is_touched)
    }

    /// Looks at all that can be seen without doing anything.
    pub(crate) fn look(&self, sight: &mut Sight) {
        sight.shown(&self.server);
        let next = self.server.poll_timeout();
        sight.due(self.now, next.map(|next| next.at));
        sight.since(self.now, Some(self.told), Duration::MAX);
        sight.plain((
            self.server.wants_input(StreamId::DUPLEX),
            self.server.has_room(),
        ));
        sight.plain(self.server.legacy_peer().map(|peer| peer.version));
        self.rules.look(self.now, sight);
        self.words.look(sight);
        self.words.look_back(sight);
    }

    /// The oldest request that is open, as a script names it.
    pub(crate) fn oldest(&self) -> u8 {
        let open = self.rules.open().len();
        u8::try_from(open.saturating_sub(1)).expect("few requests")
    }

    /// The client ends its line and reads everything, the application answers everything.
    pub(crate) fn come_to_rest(&mut self) {
        if self.rules.is_mid_line() {
            self.flush();
            self.bytes(b"\n", 0);
        }
        if self.setup.config.offer.is_none() {
            let offer = self.setup.later.clone();
            self.rules.offered();
            self.tell(|server, now| server.offer(now, offer));
        }
        self.flush();
        self.act(&Op::Serve);
        self.flush();
        self.rules.quiet(&self.server);
    }

    /// The client reads all that there is.
    fn flush(&mut self) {
        self.drain();
        while self.rules.under_way() > 0 {
            self.sent(usize::MAX);
            self.drain();
        }
    }

    /// A server that is left alone does not spin.
    pub(crate) fn leave_alone(&mut self) {
        for _ in 0..8 {
            self.nap(Nap::ToDeadline);
            self.drain();
        }
    }

    /// A server that is shut down ends, whatever its client does, and then it is over.
    pub(crate) fn close(&mut self) {
        self.act(&Op::Shutdown);
        for _ in 0..8 {
            self.flush();
            self.nap(Nap::ToDeadline);
            self.drain();
        }
        if !self.rules.is_closed() {
            // Without a limit to its patience it waits for clients as long as that takes.
            let for_ever = self.now + self.setup.config.drain == Instant::MAX;
            assert!(for_ever, "(13) it does not end: {:?}", self.server);
            self.act(&Op::End);
            self.act(&Op::Serve);
            self.flush();
        }
        assert!(
            self.rules.is_closed(),
            "(13) it does not end: {:?}",
            self.server
        );
        self.rules.quiet(&self.server);
        assert_eq!(self.server.poll_timeout(), None);
        for op in [
            Op::Publish(0),
            Op::AskUnbidden(0),
            Op::Offer(0),
            Op::Shutdown,
            Op::End,
        ] {
            self.act(&op);
            self.drain();
        }
        let mut stats = self.server.stats();
        stats.stale_inputs = 0;
        self.transcript.counted(&stats);
    }

    fn act(&mut self, op: &Op) {
        match op {
            Op::Ask { which, what } => {
                if let Some(request) = self.request(*which) {
                    self.ask(Some(request), *what);
                }
            }
            Op::AskUnbidden(what) => self.ask(None, *what),
            Op::Bytes(bytes) => self.bytes(bytes, 0),
            Op::End => {
                let faults = vec![Fault::new(FaultKind::Reset)];
                if self.server.state() != State::Closed {
                    self.rules.input_ends(&faults);
                }
                self.input(Input::end(faults));
            }
            Op::Fail { which, how } => self.fail(*which, *how),
            Op::Log { which, how } => self.log(*which, *how),
            Op::Nap(nap) => self.nap(*nap),
            Op::Notify(which) => self.notify(*which),
            Op::Offer(which) => {
                let offer = script::offer(*which);
                self.rules.offered();
                self.tell(|server, now| server.offer(now, offer));
            }
            Op::Poll(most) => self.poll(usize::from(*most)),
            Op::Progress { which, how } => self.progress(*which, *how),
            Op::Publish(which) => self.publish(*which),
            Op::RequireInput { which, how } => self.require_input(*which, *how),
            Op::Respond { which, how } => self.respond(*which, *how),
            Op::Say { speech, cut } => {
                let limit = self.setup.config.limits.message_bytes;
                let bytes = self.words.say(speech, limit);
                self.is_touched |= !bytes.is_empty();
                self.bytes(&bytes, usize::from(*cut));
            }
            Op::Sent(len) => self.sent(match len {
                0 => usize::MAX,
                1 => self.rules.under_way(),
                len => usize::from(*len),
            }),
            Op::Serve => {
                for request in self.rules.open() {
                    self.give(request, 0);
                }
            }
            Op::Shutdown => self.tell(Server::shutdown),
            Op::Useless(which) => self.useless(*which),
            Op::Withdraw(which) => self.withdraw(*which),
            Op::WriteFailed => {
                let faults = vec![Fault::new(FaultKind::BrokenPipe)];
                if self.server.state() != State::Closed {
                    self.rules.write_fails(&faults);
                }
                self.input(Input::write_failed(faults));
            }
        }
    }

    /// One that is open, one that there was, or one that there never was.
    fn request(&self, which: u8) -> Option<RequestId> {
        let place = usize::from(which);
        let open = self.rules.open();
        let from = match which {
            0..200 if !open.is_empty() => &open,
            0..250 => &self.requests,
            _ => &decoys().0,
        };
        from.iter().rev().nth(place % from.len().max(1)).copied()
    }
}

/// What the application does.
impl World<'_> {
    fn respond(&mut self, which: u8, how: u8) {
        if let Some(request) = self.request(which) {
            self.give(request, how);
        }
    }

    fn give(&mut self, request: RequestId, how: u8) {
        let mut result = json!({"echo": request.number(), "pad": PAYLOAD});
        match how % 12 {
            4 => result["_meta"] = json!({"x": 1}),
            5 => result["resultType"] = json!("complete"),
            6 => result["resultType"] = json!("tea"),
            7 => result = json!([PAYLOAD]),
            8 => result["_meta"] = json!({meta::SERVER_INFO: {"name": "me", "version": "1"}}),
            9 => result["pad"] = json!(PAYLOAD.repeat(100)),
            10 => {
                result["ttlMs"] = json!(7);
                result["cacheScope"] = json!("public");
            }
            11 => result["resultType"] = json!("task"),
            _ => {}
        }
        let text = if how >= 128 {
            serde_json::to_string_pretty(&result).expect("JSON")
        } else {
            result.to_string()
        };
        let payload = text.parse::<Payload>().expect("JSON");
        let outcome = self.verb(|server, now| server.respond(now, request, payload));
        self.answered(request, Given::Result(result), &outcome);
    }

    fn fail(&mut self, which: u8, how: u8) {
        let Some(request) = self.request(which) else {
            return;
        };
        let codes = [-32603, -32601, -32602, -32042, -32002, 0, 7];
        let data = json!({"echo": request.number(), "pad": PAYLOAD});
        let error = ErrorObject {
            data: data.to_string().parse().ok(),
            ..ErrorObject::new(codes[usize::from(how) % codes.len()], "no\nway")
        };
        let outcome = self.verb(|server, now| server.fail(now, request, error));
        self.answered(request, Given::Error, &outcome);
    }

    fn require_input(&mut self, which: u8, how: u8) {
        let Some(request) = self.request(which) else {
            return;
        };
        let number = request.number();
        let mut input = InputRequired::new();
        for at in 0..(how & 3) {
            let (method, params) = question(how >> 3, u64::MAX);
            let key = if how & 128 == 0 {
                format!("key-{number}-{at}")
            } else {
                format!("key-{number}")
            };
            input = input.and_ask(key, method, Some(payload(&params)));
        }
        match how >> 2 & 1 {
            0 => input = input.with_state(format!("app-{number}-{PAYLOAD}")),
            _ if how & 96 == 96 => input = input.with_state("everlink.1.1.0"),
            _ => {}
        }
        let outcome = self.verb(|server, now| server.require_input(now, request, input));
        self.answered(request, Given::Input, &outcome);
    }

    fn answered(&mut self, request: RequestId, given: Given, outcome: &Result<(), Misuse>) {
        let is_told = self.is_drained;
        self.rules.answered(request, given, outcome, is_told);
        self.done(outcome);
    }

    fn progress(&mut self, which: u8, how: u8) {
        let Some(request) = self.request(which) else {
            return;
        };
        let steps = [
            0.0,
            1.0,
            2.5,
            -1.0,
            f64::NAN,
            f64::INFINITY,
            1e300,
            1e15 + 0.5,
        ];
        let step = steps[usize::from(how % 8)] + f64::from(how / 8);
        let mut progress = Progress::new(step).of(request.number() as f64);
        if how & 64 != 0 {
            progress = progress.with_message(format!("{PAYLOAD}\nto go"));
        }
        let outcome = self.verb(|server, now| server.progress(now, request, progress));
        self.rules
            .did(request, outcome.as_ref().err(), self.is_drained);
        self.done(&outcome);
    }

    fn ask(&mut self, request: Option<RequestId>, what: u8) {
        let mark = self.mark();
        let (method, params) = question(what, mark);
        let params = Some(if what >= 250 {
            payload(&json!([]))
        } else {
            payload(&params)
        });
        let asked = self.verb(|server, now| match request {
            Some(request) => server.ask(now, request, method, params),
            None => server.ask_unbidden(now, method, params),
        });
        if let Some(request) = request {
            self.rules
                .did(request, asked.as_ref().err(), self.is_drained);
        }
        if let Ok(ask) = asked {
            self.rules
                .asked(ask, request, (mark, method), self.told, self.is_drained);
            self.asks.push(ask);
        }
        self.done(&asked);
    }

    fn withdraw(&mut self, which: u8) {
        let from = match which {
            0..250 => &self.asks,
            _ => &decoys().1,
        };
        let nth = usize::from(which) % from.len().max(1);
        let Some(ask) = from.iter().rev().nth(nth).copied() else {
            return;
        };
        let reason = (which % 2 == 0).then_some("not\nneeded");
        let outcome = self.verb(|server, now| server.withdraw(now, ask, reason));
        self.rules.withdrew(ask, &outcome, self.is_drained);
        self.done(&outcome);
    }

    fn log(&mut self, which: u8, how: u8) {
        let request = (which % 2 == 0).then(|| self.request(which)).flatten();
        let levels = [
            LogLevel::Debug,
            LogLevel::Info,
            LogLevel::Error,
            LogLevel::Emergency,
        ];
        let level = levels[usize::from(how % 4)];
        let logger = (how & 4 != 0).then_some("log\nger");
        let mark = self.mark();
        let data = payload(&json!({"mark": mark, "pad": PAYLOAD}));
        let outcome = self.verb(|server, now| server.log(now, request, level, logger, data));
        if let Some(request) = request {
            self.rules
                .did(request, outcome.as_ref().err(), self.is_drained);
        }
        if outcome.is_ok() {
            self.rules.logged(request, level, mark);
        }
        self.done(&outcome);
    }

    fn notify(&mut self, which: u8) {
        let methods = [
            "x/told",
            "notifications/elicitation/complete",
            "notifications/progress",
            "ping",
            "notifications/tasks/status",
        ];
        let method = methods[usize::from(which) % methods.len()];
        let mark = self.mark();
        let params = match which / 8 % 4 {
            0 => json!([]),
            1 => json!({"mark": mark, "pad": PAYLOAD.repeat(60)}),
            _ => json!({"mark": mark, "pad": PAYLOAD}),
        };
        let params = Some(payload(&params));
        let outcome = self.verb(|server, now| server.notify(now, method, params));
        self.rules.notified(mark, &outcome);
        self.done(&outcome);
    }

    fn publish(&mut self, which: u8) {
        let change = match which % 8 {
            0 => Change::List(List::Tools),
            1 => Change::List(List::Prompts),
            2 => Change::List(List::Resources),
            3 => Change::List(List::ResourceTemplates),
            which => Change::Resource {
                uri: URIS[usize::from(which - 4)].into(),
            },
        };
        let outcome = self.verb(|server, now| server.publish(now, change.clone()));
        self.rules.published(&change, &outcome);
        self.done(&outcome);
    }

    fn mark(&mut self) -> u64 {
        self.marks += 1;
        self.marks
    }

    /// Something that the application does, while it is still known whether it has heard of everything.
    fn verb<T>(&mut self, act: impl FnOnce(&mut Server, Instant) -> T) -> T {
        let is_drained = self.is_drained;
        let outcome = self.tell(act);
        self.is_drained = is_drained;
        outcome
    }

    fn done<T: Debug>(&mut self, outcome: &Result<T, Misuse>) {
        self.is_drained = false;
        self.transcript.note(outcome);
    }
}

/// What the world does.
impl World<'_> {
    fn nap(&mut self, nap: Nap) {
        let due = self.server.poll_timeout().map(|deadline| deadline.at);
        let to = match (nap, due) {
            (Nap::Back(span), _) => {
                let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
                return self.tell_time(Instant::from_nanos(
                    self.now.as_nanos().saturating_sub(nanos),
                ));
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
        self.tell_time(self.now);
        if !self.setup.lazy {
            self.drain();
            self.rules.timed(self.now);
        }
    }

    /// The server is told a time, which need not be that of the others.
    fn tell_time(&mut self, now: Instant) {
        let was_alive = self.server.state() != State::Closed;
        self.told = self.told.max(now);
        (self.is_drained, self.is_touched) = (false, true);
        self.server.handle_timeout(now);
        self.stepped();
        self.rules.told_time(self.told);
        if let Some(next) = self.server.poll_timeout() {
            let later = next.at > self.told || next.wake == Wake::Output;
            assert!(later, "(10) {next:?} after {:?}", self.told);
        }
        if was_alive && self.server.state() == State::Closed {
            self.rules.ended_by_time();
        }
    }

    fn bytes(&mut self, bytes: &[u8], cut: usize) {
        let (head, tail) = bytes.split_at(cut % bytes.len().max(1));
        for bytes in [head, tail] {
            // A driver stops reading when it is told to.
            if self.server.wants_input(StreamId::DUPLEX) && !bytes.is_empty() {
                if self.server.state() != State::Closed {
                    self.rules.bytes(bytes);
                }
                self.input(Input::bytes(bytes));
            }
        }
    }

    fn sent(&mut self, len: usize) {
        self.rules.sent(len);
        self.input(Input::sent(len));
    }

    fn input(&mut self, input: Input<'_>) {
        self.tell(|server, now| server.handle(now, input));
    }

    fn useless(&mut self, which: u8) {
        if !self.delivers_useless {
            return;
        }
        let other = StreamId::new(7);
        let input = match which % 8 {
            0 => Input::Opened,
            1 => Input::exited(ExitStatus::Code(1)),
            2 => Input::stderr(vec![7; 3]),
            3 => Input::open_failed(Vec::new()),
            4 => Input::Sent {
                stream: other,
                len: 7,
            },
            5 => Input::End {
                stream: other,
                faults: Vec::new().into(),
            },
            6 => Input::WriteFailed {
                stream: other,
                faults: Vec::new().into(),
            },
            _ => Input::Bytes {
                stream: other,
                bytes: b"{}\n".to_vec().into(),
            },
        };
        let mut before = self.server.stats();
        before.stale_inputs += 1;
        let looked = (format!("{:?}", self.server), self.server.poll_timeout());
        self.server.handle(self.told, input);
        let looks = (format!("{:?}", self.server), self.server.poll_timeout());
        assert_eq!(looks, looked, "a useless input was heard");
        assert_eq!(
            self.server.stats(),
            before,
            "a useless input was counted as more"
        );
    }

    /// Does something to the server and looks what it did.
    fn tell<T>(&mut self, act: impl FnOnce(&mut Server, Instant) -> T) -> T {
        self.told = self.told.max(self.now);
        (self.is_drained, self.is_touched) = (false, true);
        let answer = act(&mut self.server, self.now);
        self.stepped();
        answer
    }

    fn stepped(&self) {
        if self.transcript.is_watched() {
            assert_nothing_secret(&format!("{:?}", self.server));
        }
        self.rules.stepped(&self.server);
    }

    fn drain(&mut self) {
        self.poll(POLLS);
        let mut buf = Vec::new();
        assert!(
            self.server.poll_output(&mut buf).is_none(),
            "(10) output without end"
        );
        self.rules.drained(&self.server, !self.setup.lazy);
        self.is_drained = true;
    }

    fn poll(&mut self, most: usize) {
        for _ in 0..most {
            let waits = self
                .server
                .poll_timeout()
                .is_some_and(|next| next.wake == Wake::Output);
            let mut buf = b"before".to_vec();
            let Some(output) = self.server.poll_output(&mut buf) else {
                assert!(!waits, "(10) output was promised");
                return;
            };
            assert!(waits, "(10) {output:?} was not announced");
            let bytes = buf
                .strip_prefix(b"before")
                .expect("a buffer is appended to");
            self.transcript.note(&output);
            self.transcript.bytes(bytes);
            self.rules.output(&output, bytes, self.told);
            match output {
                Output::Event(Event::Request(request)) => self.requests.push(request.request),
                Output::Write { len, .. } => {
                    let line: Value = serde_json::from_slice(bytes).expect("JSON");
                    self.words.hear(&line);
                    if self.setup.reports_sent {
                        self.sent(len);
                    }
                }
                _ => {}
            }
        }
    }
}

fn payload(value: &Value) -> Payload {
    value.to_string().parse().expect("JSON")
}

/// One of some questions, with a mark in it.
pub(crate) fn question(what: u8, mark: u64) -> (&'static str, Value) {
    let (method, mut params) = match what % 8 {
        0 | 1 => ("roots/list", json!({})),
        2 => (
            "sampling/createMessage",
            json!({"messages": [], "maxTokens": 1}),
        ),
        3 => (
            "elicitation/create",
            json!({"message": "?", "requestedSchema": {}}),
        ),
        4 => (
            "elicitation/create",
            json!({"mode": "url", "url": "https://example.org"}),
        ),
        5 => ("sampling/createMessage", json!({"tools": []})),
        6 => ("ping", json!({})),
        _ => ("unheard/of", json!({})),
    };
    params["ask"] = json!(mark);
    params["pad"] = json!(PAYLOAD);
    (method, params)
}

/// Requests and questions of another server, for those that this one has not given out yet.
fn decoys() -> &'static (Vec<RequestId>, Vec<AskId>) {
    static DECOYS: OnceLock<(Vec<RequestId>, Vec<AskId>)> = OnceLock::new();
    DECOYS.get_or_init(|| {
        let mut server = Server::new(Config::new(script::offer(0), script::SECRET));
        let (mut requests, mut asks, mut buf) = (Vec::new(), Vec::new(), Vec::new());
        let mut words = Words::default();
        let hello = words.say(&script::Speech::Introduce(0), 1 << 20);
        server.handle(Instant::ZERO, Input::bytes(hello));
        for _ in 0..600 {
            let call = script::Speech::Request {
                id: 1,
                method: 0,
                terms: 3,
                params: 0,
            };
            server.handle(Instant::ZERO, Input::bytes(words.say(&call, 1 << 20)));
            while let Some(output) = server.poll_output(&mut buf) {
                match output {
                    Output::Event(Event::Request(request)) => {
                        requests.push(request.request);
                        let ask = server.ask(Instant::ZERO, request.request, "roots/list", None);
                        asks.extend(ask);
                        let result = payload(&json!({}));
                        let _ = server.respond(Instant::ZERO, request.request, result);
                    }
                    Output::Write { len, .. } => server.handle(Instant::ZERO, Input::sent(len)),
                    _ => {}
                }
            }
        }
        assert!(requests.len() >= 500 && asks.len() >= 500);
        (requests, asks)
    })
}
