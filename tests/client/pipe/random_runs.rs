//! Random runs against a small model of the rules, which predicts the state, the budget, the next deadline and the
//! outcome of each call. Also random scripts against the rules that the fuzzers check. Each past finding has its own
//! test.

use std::collections::BTreeMap;
use std::time::Duration;

use everlink::client::{CallOptions, Delivery, Event, FailureKind, Outcome, State};
use everlink::{
    Binding, BindingKind, CallId, Client, Config, Dialect, Epoch, ExitStatus, Fault, FaultKind,
    Input, Instant, Keepalive, LAST_WORDS, Limit, Output, Payload, Watch, WhenSpent,
};
use model::{Elapse, Op, Reply, ServerMessage, Setup, Which};
use proptest::collection::vec;
use proptest::prelude::*;

const FLOOR: Duration = Duration::from_millis(250);
const OPEN: Duration = Duration::from_secs(30);
const HANDSHAKE: Duration = Duration::from_secs(120);
const TOTAL: Duration = Duration::from_secs(600);
const STABLE: Duration = Duration::from_secs(60);
const DRAIN: Duration = Duration::from_secs(5);
const GRACES: [Duration; 3] = [
    Duration::from_millis(2_001),
    Duration::from_millis(3_003),
    Duration::from_millis(2_007),
];
const BUDGET: u32 = 2;
const RESENDS: u32 = 1;
const CAP: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(4);
const PACE: Duration = Duration::from_secs(1);

fn config(binding: Binding, when_spent: WhenSpent) -> Config {
    let mut config = Config::child("model", "1");
    config.binding = binding;
    config.dialect = Dialect::Legacy;
    config.watch = Watch::none();
    let policy = &mut config.policy;
    policy.open_timeout = OPEN;
    policy.handshake_timeout = HANDSHAKE;
    policy.handshake_notice = Duration::MAX;
    policy.keepalive = None;
    policy.call_idle = Limit::Never;
    policy.call_total = Limit::After(TOTAL);
    policy.resends = RESENDS;
    policy.drain = DRAIN;
    [
        policy.close_grace,
        policy.terminate_grace,
        policy.kill_grace,
    ] = GRACES;
    policy.retry.budget = BUDGET;
    policy.retry.first = CAP / 2;
    policy.retry.cap = CAP;
    policy.retry.floor = FLOOR;
    // The retry time of a process that ends at the start is random, and the model has no random numbers.
    policy.retry.start_for = Duration::MAX;
    policy.retry.stable_after = STABLE;
    policy.retry.call_patience = PATIENCE;
    policy.retry.call_pace = PACE;
    policy.retry.when_spent = when_spent;
    config
}

const PARK: WhenSpent = WhenSpent::Park {
    probe: Duration::from_secs(60),
};

/// An event that can happen to a link of the model.
#[derive(Clone, Copy, Debug)]
enum Act {
    Agree,
    Call { may_repeat: bool },
    Connect,
    End { real: bool },
    Exit,
    OpenFails,
    Opens,
    Reconnect,
    ReplyToOldest,
    Shutdown,
    Stale,
    Sleep,
    Wake,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Opens),
        4 => Just(Act::Agree),
        4 => any::<bool>().prop_map(|may_repeat| Act::Call { may_repeat }),
        4 => Just(Act::Sleep),
        3 => Just(Act::ReplyToOldest),
        2 => any::<bool>().prop_map(|real| Act::End { real }),
        2 => Just(Act::Exit),
        2 => Just(Act::Reconnect),
        2 => Just(Act::Stale),
        1 => Just(Act::Connect),
        1 => Just(Act::OpenFails),
        1 => Just(Act::Wake),
        1 => (0..6_u8).prop_map(|n| if n == 0 { Act::Shutdown } else { Act::Sleep }),
    ]
}

/// The predicted outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Closed(Delivery),
    Down(Delivery),
    Lost,
    Replied,
    TimedOut(Delivery),
}

#[derive(Clone, Copy, Debug)]
struct ModelCall {
    may_repeat: bool,
    due: Instant,
    /// The time until which the call waits for a server.
    patience: Option<Instant>,
    /// Whether the call fails with the next failed attempt.
    is_out_of_patience: bool,
    /// Whether the present server has the call.
    is_in_flight: bool,
    sent: u32,
}

impl ModelCall {
    fn delivery(self) -> Delivery {
        if self.sent == 0 {
            Delivery::NotSent
        } else {
            Delivery::Unknown
        }
    }
}

/// The kinds of deadlines, in the order in which deadlines at the same time are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Attempt,
    Call(CallId),
    Drain,
    Handshake,
    CloseStep,
    Open,
    Stable,
}

/// The link as the rules describe it, without bytes, queues and events.
#[derive(Debug)]
struct Model {
    binding: BindingKind,
    when_spent: WhenSpent,
    now: Instant,
    state: State,
    failures: u32,
    opened_at: Option<Instant>,
    ready_at: Option<Instant>,
    due: BTreeMap<Due, Instant>,
    /// State of the present transport: a planned end, a real fault, ended output, an exit, an open transport.
    planned: bool,
    has_real_fault: bool,
    ended: bool,
    exited: bool,
    is_open: bool,
    /// Whether the transport answered a call.
    has_replied: bool,
    /// The close step: 0 waits for the rest of the end of a child, 1 to 3 have grace periods, 4 releases the transport.
    close_step: usize,
    /// When step 0 began.
    dying_since: Instant,
    calls: BTreeMap<CallId, ModelCall>,
    fates: BTreeMap<CallId, Fate>,
    shut_down: bool,
    /// The latest time of the next attempt, if known.
    latest: Option<Instant>,
}

impl Model {
    fn new(binding: BindingKind, when_spent: WhenSpent) -> Model {
        Model {
            binding,
            when_spent,
            now: Instant::ZERO,
            state: State::Idle,
            failures: 0,
            opened_at: None,
            ready_at: None,
            due: BTreeMap::new(),
            planned: false,
            has_real_fault: false,
            ended: false,
            exited: false,
            is_open: false,
            has_replied: false,
            close_step: 0,
            dying_since: Instant::ZERO,
            calls: BTreeMap::new(),
            fates: BTreeMap::new(),
            shut_down: false,
            latest: None,
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.due.values().min().copied()
    }

    fn settle(&mut self, id: CallId, fate: Fate) {
        self.calls.remove(&id);
        self.due.remove(&Due::Call(id));
        let before = self.fates.insert(id, fate);
        assert_eq!(before, None);
    }

    fn attempt(&mut self) {
        if !matches!(self.state, State::Idle | State::Waiting | State::Parked) {
            return;
        }
        let at = self
            .opened_at
            .map_or(self.now, |at| (at + FLOOR).max(self.now));
        if at > self.now {
            self.due.insert(Due::Attempt, at);
            return;
        }
        self.due.remove(&Due::Attempt);
        self.due.insert(Due::Open, self.now + OPEN);
        self.opened_at = Some(self.now);
        self.state = State::Opening;
        (self.planned, self.has_real_fault, self.ended, self.exited) = (false, false, false, false);
        (self.is_open, self.has_replied, self.ready_at) = (false, false, None);
    }

    /// Another transport is wanted; calls in flight may finish first.
    fn drain_or_close(&mut self) {
        match self.state {
            State::Draining | State::Closing => {}
            State::Ready if self.is_busy() => {
                self.leave_ready();
                self.planned = true;
                self.due.insert(Due::Drain, self.now + DRAIN);
                self.state = State::Draining;
            }
            _ => self.begin_close(true, true),
        }
    }

    /// The transport goes down, on purpose or because it failed. The first reason counts.
    fn begin_close(&mut self, planned: bool, gently: bool) {
        match self.state {
            State::Opening | State::Handshaking | State::Ready => self.planned = planned,
            State::Draining => {}
            State::Closing if self.close_step == 0 => return self.end_last_words(),
            _ => return,
        }
        self.leave_ready();
        self.state = State::Closing;
        let first_step = if self.binding == BindingKind::Child {
            2
        } else {
            3
        };
        self.enter_close_step(if gently && self.is_open {
            1
        } else {
            first_step
        });
    }

    fn leave_ready(&mut self) {
        if self
            .ready_at
            .take()
            .is_some_and(|at| at + STABLE <= self.now)
        {
            self.failures = 0;
        }
        for due in [Due::Drain, Due::Handshake, Due::Open, Due::Stable] {
            self.due.remove(&due);
        }
    }

    fn is_busy(&self) -> bool {
        self.calls.values().any(|call| call.is_in_flight)
    }

    fn enter_close_step(&mut self, close_step: usize) {
        self.close_step = close_step;
        self.fail_in_flight();
        if close_step == 4 {
            return self.finish_epoch(true);
        }
        self.due
            .insert(Due::CloseStep, self.now + GRACES[close_step - 1]);
    }

    fn next_close_step(&mut self) {
        if self.close_step == 0 {
            return self.end_last_words();
        }
        let skips = self.close_step == 1 && self.binding == BindingKind::Socket;
        self.enter_close_step(self.close_step + if skips { 2 } else { 1 });
    }

    /// Fails or requeues the calls that this server has. A call that may have run is not sent again.
    fn fail_in_flight(&mut self) {
        let out: Vec<CallId> = self
            .calls
            .iter()
            .filter(|(_, c)| c.is_in_flight)
            .map(|(id, _)| *id)
            .collect();
        for id in out {
            let call = self.calls.get_mut(&id).unwrap();
            call.is_in_flight = false;
            if !call.may_repeat || call.sent > RESENDS {
                self.settle(id, Fate::Lost);
            } else {
                self.arm(id);
            }
        }
    }

    /// A child that has ended its output may exit within 100 ms, and the other way round. Its calls in flight wait for that.
    fn begin_last_words(&mut self) {
        self.planned &= self.state == State::Draining;
        self.leave_ready();
        (self.state, self.close_step) = (State::Closing, 0);
        self.dying_since = self.now;
        self.due.insert(Due::CloseStep, self.now + LAST_WORDS);
    }

    fn end_last_words(&mut self) {
        self.enter_close_step(if self.exited && !self.ended { 2 } else { 1 });
        if self.close_step == 1 {
            let until = (self.dying_since + GRACES[0]).max(self.now + LAST_WORDS);
            self.due.insert(Due::CloseStep, until);
        }
    }

    fn died(&mut self) {
        if self.binding == BindingKind::Child && self.ended != self.exited {
            match self.state {
                State::Handshaking | State::Ready | State::Draining => {
                    return self.begin_last_words();
                }
                State::Closing if self.close_step == 0 => return,
                _ => {}
            }
        }
        self.begin_close(false, true);
        let reaped = self.exited || self.binding == BindingKind::Socket;
        if self.ended && reaped {
            self.finish_epoch(false);
        } else if self.exited && !self.ended && self.close_step == 1 {
            // A process that still holds the output open gets 100 ms.
            self.due.insert(Due::CloseStep, self.now + LAST_WORDS);
        }
    }

    /// The transport has ended; the budget decides what follows (rules 4 and 5).
    fn finish_epoch(&mut self, abandoned: bool) {
        self.fail_in_flight();
        self.due.remove(&Due::CloseStep);
        let costs = !self.planned || self.has_real_fault || abandoned;
        if self.shut_down {
            return self.close();
        }
        let floor = self.opened_at.unwrap() + FLOOR;
        if !costs {
            self.state = State::Waiting;
            return self.wait(Some(floor.max(self.now)));
        }
        if self.has_replied {
            self.failures = 0;
        }
        self.failures += 1;
        if self.failures <= BUDGET {
            self.state = State::Waiting;
            self.wait(self.has_replied.then(|| floor.max(self.now)));
        } else if self.when_spent == WhenSpent::Close {
            self.close();
        } else {
            self.state = State::Parked;
            self.wait(None);
        }
    }

    /// The time at which waiting calls trigger an attempt.
    fn next_attempt_for_calls(&self) -> Instant {
        let opened = self.opened_at.map_or(self.now, |at| at + PACE.max(FLOOR));
        opened.max(self.now)
    }

    /// There is no server. The next attempt comes at `until` at the latest, if that is known, or for the calls that wait.
    fn wait(&mut self, until: Option<Instant>) {
        for id in self.calls.keys().copied().collect::<Vec<_>>() {
            let call = self.calls.get_mut(&id).unwrap();
            if call.is_out_of_patience || call.patience.is_some_and(|at| at <= self.now) {
                let delivery = call.delivery();
                self.settle(id, Fate::Down(delivery));
            } else {
                call.patience.get_or_insert(self.now + PATIENCE);
                self.arm(id);
            }
        }
        let next_attempt_for_calls =
            (!self.calls.is_empty()).then(|| self.next_attempt_for_calls());
        self.latest = until.into_iter().chain(next_attempt_for_calls).min();
        if self.latest.is_some_and(|at| at <= self.now) {
            self.attempt();
        }
    }

    fn arm(&mut self, id: CallId) {
        let call = self.calls[&id];
        let at = call.patience.map_or(call.due, |at| at.min(call.due));
        self.due.insert(Due::Call(id), at);
    }

    /// There is a server.
    fn reset_patience(&mut self) {
        for id in self.calls.keys().copied().collect::<Vec<_>>() {
            let call = self.calls.get_mut(&id).unwrap();
            (call.patience, call.is_out_of_patience) = (None, false);
        }
    }

    fn settle_all(&mut self, fate: fn(Delivery) -> Fate) {
        for (id, call) in std::mem::take(&mut self.calls) {
            self.settle(id, fate(call.delivery()));
        }
    }

    fn close(&mut self) {
        let fate = if self.shut_down {
            Fate::Closed
        } else {
            Fate::Down
        };
        self.settle_all(fate);
        self.due.clear();
        self.state = State::Closed;
    }

    /// Sends waiting calls while the link is ready, and takes a drained link down.
    fn send_or_finish_draining(&mut self) {
        if self.state == State::Ready {
            for call in self.calls.values_mut().filter(|call| !call.is_in_flight) {
                call.is_in_flight = true;
                call.sent += 1;
            }
        }
        if self.state == State::Draining && !self.is_busy() {
            self.begin_close(true, true);
        }
    }

    fn timeout(&mut self) {
        while let Some((at, due)) = self.due.iter().map(|(due, at)| (*at, *due)).min() {
            if at > self.now {
                break;
            }
            self.due.remove(&due);
            match due {
                Due::Attempt => self.attempt(),
                Due::Call(id) => self.call_due(id),
                Due::Drain => self.begin_close(true, true),
                Due::Handshake | Due::Open => self.begin_close(false, false),
                Due::CloseStep => self.next_close_step(),
                Due::Stable => self.failures = 0,
            }
        }
    }
}

impl Model {
    fn call_due(&mut self, id: CallId) {
        let call = self.calls.get_mut(&id).unwrap();
        if call.patience.is_some_and(|at| at <= self.now) {
            (call.patience, call.is_out_of_patience) = (None, true);
        }
        let (call, delivery) = (*call, call.delivery());
        if call.is_out_of_patience && matches!(self.state, State::Waiting | State::Parked) {
            self.settle(id, Fate::Down(delivery));
        } else if call.due <= self.now {
            self.settle(id, Fate::TimedOut(delivery));
        } else {
            self.arm(id);
        }
    }
}

/// The link and the model side by side.
struct Pair {
    client: Client,
    model: Model,
    outcomes: BTreeMap<CallId, Fate>,
    /// The requests that the server has, the oldest first.
    requests: Vec<i64>,
    finished_epochs: Vec<Epoch>,
}

impl Pair {
    fn act(&mut self, act: Act) {
        let now = self.model.now;
        let epoch = self.client.epoch();
        use State::{Closing, Draining, Handshaking, Opening, Ready};
        let has_transport = matches!(
            self.model.state,
            Opening | Handshaking | Ready | Draining | Closing
        );
        match act {
            Act::Opens if self.model.state == State::Opening => {
                self.client.handle(now, epoch, Input::Opened);
                self.model.due.remove(&Due::Open);
                self.model.due.insert(Due::Handshake, now + HANDSHAKE);
                self.model.is_open = true;
                self.model.state = State::Handshaking;
            }
            Act::OpenFails if self.model.state == State::Opening => {
                let refused = [Fault::new(FaultKind::Refused)];
                self.client
                    .handle(now, epoch, Input::open_failed(&refused[..]));
                self.model.begin_close(false, true);
                self.model.finish_epoch(false);
            }
            Act::Agree if self.model.state == State::Handshaking => {
                self.reply(r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}"#);
                self.model.due.remove(&Due::Handshake);
                self.model.due.insert(Due::Stable, now + STABLE);
                self.model.ready_at = Some(now);
                self.model.state = State::Ready;
                self.model.reset_patience();
            }
            Act::Call { may_repeat } if !self.model.shut_down => self.call(may_repeat),
            Act::ReplyToOldest if self.can_reply() => {
                self.reply("{}");
                let oldest = self.model.calls.iter().find(|(_, call)| call.is_in_flight);
                let id = *oldest.expect("a call").0;
                self.model.settle(id, Fate::Replied);
                self.model.has_replied = true;
            }
            Act::End { real } if has_transport && self.model.is_open => {
                let kinds = [
                    FaultKind::Reset,
                    if real {
                        FaultKind::Read
                    } else {
                        FaultKind::Closed
                    },
                ];
                let faults = kinds.map(Fault::new);
                self.client.handle(now, epoch, Input::end(&faults[..]));
                (self.model.ended, self.model.has_real_fault) =
                    (true, self.model.has_real_fault | real);
                self.model.died();
            }
            Act::Exit
                if has_transport
                    && self.model.is_open
                    && self.model.binding == BindingKind::Child =>
            {
                self.client
                    .handle(now, epoch, Input::exited(ExitStatus::Code(1)));
                self.model.exited = true;
                self.model.died();
            }
            Act::Reconnect => {
                self.client.reconnect(now, epoch, "the model wants it");
                self.model.drain_or_close();
            }
            Act::Shutdown => {
                self.client.shutdown(now);
                self.model.shut_down = true;
                self.model.settle_all(Fate::Closed);
                self.model.begin_close(true, true);
                if matches!(
                    self.model.state,
                    State::Idle | State::Waiting | State::Parked
                ) {
                    self.model.close();
                }
            }
            Act::Connect => {
                self.client.connect(now);
                self.model.attempt();
            }
            Act::Wake => {
                self.client.wake(now);
                if self.model.state != State::Idle {
                    self.model.attempt();
                }
            }
            Act::Stale => {
                for epoch in self.finished_epochs.clone() {
                    let real = [Fault::new(FaultKind::Read)];
                    self.client.handle(now, epoch, Input::end(&real[..]));
                    self.client
                        .handle(now, epoch, Input::exited(ExitStatus::Code(1)));
                }
            }
            Act::Sleep => {
                if let Some(at) = self.model.next_due() {
                    self.model.now = at;
                    self.client.handle_timeout(at);
                    self.model.timeout();
                }
            }
            // Not possible in this state.
            _ => {}
        }
        self.model.send_or_finish_draining();
        self.drain();
        self.compare(act);
    }

    fn call(&mut self, may_repeat: bool) {
        let options = CallOptions::new();
        let options = if may_repeat {
            options.idempotent()
        } else {
            options
        };
        let now = self.model.now;
        let called = self
            .client
            .call(now, "tools/call", Some(object("{}")), options);
        if self.model.state == State::Closed {
            assert!(called.is_err());
            return;
        }
        let id = called.unwrap();
        let due = now + TOTAL;
        let call = ModelCall {
            may_repeat,
            due,
            patience: None,
            is_out_of_patience: false,
            is_in_flight: false,
            sent: 0,
        };
        self.model.calls.insert(id, call);
        self.model.due.insert(Due::Call(id), call.due);
        match self.model.state {
            State::Idle => self.model.attempt(),
            State::Waiting | State::Parked => {
                let model = &mut self.model;
                model.calls.get_mut(&id).unwrap().patience = Some(now + PATIENCE);
                model.arm(id);
                let at = model.next_attempt_for_calls();
                if at <= now {
                    model.attempt();
                } else {
                    let due = model.due.entry(Due::Attempt).or_insert(at);
                    *due = at.min(*due);
                }
            }
            _ => {}
        }
    }

    fn can_reply(&self) -> bool {
        let is_read = matches!(self.model.state, State::Ready | State::Draining);
        is_read && !self.requests.is_empty()
    }

    /// The server answers its oldest request.
    fn reply(&mut self, result: &str) {
        let request_id = self.requests.remove(0);
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{request_id},\"result\":{result}}}\n");
        let epoch = self.client.epoch();
        self.client
            .handle(self.model.now, epoch, Input::bytes(line.as_bytes()));
    }

    fn drain(&mut self) {
        let mut buf = Vec::new();
        while let Some(output) = self.client.poll_output(&mut buf) {
            match output {
                Output::Open { .. } => self.requests.clear(),
                Output::Release { epoch } => self.finished_epochs.push(epoch),
                Output::Write { epoch, len, .. } => {
                    self.client.handle(self.model.now, epoch, Input::sent(len));
                    let line: serde_json::Value =
                        serde_json::from_slice(&buf.split_off(buf.len() - len)).unwrap();
                    match line["id"].as_i64() {
                        Some(request_id) => self.requests.push(request_id),
                        None => {
                            let cancelled_id = line["params"]["requestId"].as_i64();
                            self.requests
                                .retain(|request_id| Some(*request_id) != cancelled_id);
                        }
                    }
                }
                Output::Event(Event::Waiting { until, .. }) => {
                    // The length of the pause is random, its bounds are not.
                    let pause = until.since(self.model.now);
                    assert!(pause <= CAP.max(FLOOR), "{pause:?}");
                    let latest = self.model.latest.take();
                    assert!(latest.is_none_or(|at| until <= at), "{until:?}, {latest:?}");
                    if self.model.state == State::Waiting {
                        self.model.due.insert(Due::Attempt, until);
                    }
                }
                Output::Event(Event::Parked { until }) if self.model.state == State::Parked => {
                    self.model.due.insert(Due::Attempt, until);
                }
                Output::Event(Event::Done { call, outcome }) => {
                    let before = self.outcomes.insert(call, fate(&outcome));
                    assert_eq!(before, None, "a second outcome");
                }
                _ => {}
            }
        }
    }

    fn compare(&self, act: Act) {
        assert_eq!(self.client.state(), self.model.state, "after {act:?}");
        assert_eq!(self.client.failures(), self.model.failures, "after {act:?}");
        assert_eq!(self.outcomes, self.model.fates, "after {act:?}");
        let next = self.client.poll_timeout().map(|deadline| deadline.at);
        assert_eq!(
            next,
            self.model.next_due(),
            "after {act:?}: {:?}",
            self.client.poll_timeout()
        );
    }
}

fn fate(outcome: &Outcome) -> Fate {
    match outcome {
        Outcome::Reply(_) => Fate::Replied,
        Outcome::Failed(failure) => match &failure.kind {
            FailureKind::Closed => Fate::Closed(failure.delivery),
            FailureKind::Down => Fate::Down(failure.delivery),
            FailureKind::Lost => Fate::Lost,
            FailureKind::TimedOut { .. } => Fate::TimedOut(failure.delivery),
            kind => panic!("the model knows no {kind:?}"),
        },
        outcome => panic!("the model knows no {outcome:?}"),
    }
}

fn object(text: &str) -> Payload {
    text.parse().unwrap()
}

fn run_with_model(binding: Binding, when_spent: WhenSpent, acts: &[Act]) {
    let mut pair = Pair {
        model: Model::new(binding.kind(), when_spent),
        client: Client::new(config(binding, when_spent)),
        outcomes: BTreeMap::new(),
        requests: Vec::new(),
        finished_epochs: Vec::new(),
    };
    for act in acts {
        pair.act(*act);
    }
    pair.act(Act::Shutdown);
    for _ in 0..4 {
        pair.act(Act::Sleep);
    }
    assert_eq!(pair.client.state(), State::Closed);
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![
        8 => Just(Which::Current),
        1 => (0..3_u8).prop_map(Which::Past),
        1 => (0..3_u8).prop_map(Which::Future),
    ]
}

fn faults() -> impl Strategy<Value = Vec<FaultKind>> {
    let kinds = [
        FaultKind::Closed,
        FaultKind::BrokenPipe,
        FaultKind::Read,
        FaultKind::Refused,
    ];
    vec(prop::sample::select(kinds.to_vec()), 0..3)
}

fn server_message() -> impl Strategy<Value = ServerMessage> {
    let reply = prop_oneof![
        6 => any::<u8>().prop_map(Reply::Good),
        4 => any::<u8>().prop_map(Reply::InputRequired),
        2 => any::<u8>().prop_map(Reply::Error),
        2 => prop::sample::select(vec![
            Reply::Empty, Reply::NoObject, Reply::Oversized, Reply::TextId, Reply::Twice, Reply::UnknownType,
        ]),
    ];
    prop_oneof![
        8 => (any::<u8>(), reply).prop_map(|(which, how)| ServerMessage::Reply { which, how }),
        2 => any::<(u8, u8)>().prop_map(|(id, what)| ServerMessage::Ask { id, what }),
        1 => any::<(u8, u8)>().prop_map(|(which, progress)| ServerMessage::Progress { which, progress }),
        1 => any::<u8>().prop_map(ServerMessage::Acknowledge),
        1 => any::<u8>().prop_map(ServerMessage::Cancelled),
        1 => any::<u8>().prop_map(ServerMessage::Changed),
        1 => any::<u8>().prop_map(ServerMessage::Late),
        1 => Just(ServerMessage::Nameless),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let spans = [0, 1, 40, 5_000, 1_000_000].map(Duration::from_millis);
    let elapse = prop_oneof![
        6 => Just(Elapse::ToDeadline),
        2 => prop::sample::select(spans.to_vec()).prop_map(Elapse::For),
        1 => Just(Elapse::Before),
        1 => Just(Elapse::Back(Duration::from_secs(3))),
    ];
    prop_oneof![
        6 => any::<u8>().prop_map(Op::Serve),
        8 => (which(), server_message(), any::<u8>()).prop_map(|(which, message, cut)| Op::Send { which, message, cut }),
        6 => any::<(u8, u8, u8)>()
            .prop_map(|(method, params, options)| Op::Call { method, params, options }),
        6 => elapse.prop_map(Op::Elapse),
        2 => which().prop_map(Op::Opened),
        1 => (which(), faults()).prop_map(|(which, faults)| Op::OpenFailed { which, faults }),
        2 => (which(), faults()).prop_map(|(which, faults)| Op::End { which, faults }),
        1 => (which(), faults()).prop_map(|(which, faults)| Op::WriteFailed { which, faults }),
        2 => (which(), any::<u8>()).prop_map(|(which, status)| Op::Exited { which, status }),
        2 => any::<(u8, u8)>().prop_map(|(which, how)| Op::Answer { which, how }),
        1 => any::<u8>().prop_map(|which| Op::Cancel { which }),
        1 => which().prop_map(Op::Reconnect),
        1 => any::<u8>().prop_map(Op::Watch),
        1 => any::<u8>().prop_map(Op::Poll),
        1 => (prop::sample::select(everlink::List::ALL.to_vec()), any::<u8>())
            .prop_map(|(list, options)| Op::List { list, options }),
        1 => Just(Op::Wake),
        1 => (0..8_u8).prop_map(|n| if n == 0 { Op::Shutdown } else { Op::Connect }),
    ]
}

fn setup() -> impl Strategy<Value = Setup<Config>> {
    let dialects = vec![Dialect::Automatic, Dialect::Legacy, Dialect::Modern];
    let dialect = prop::sample::select(dialects);
    (dialect, any::<(bool, bool, bool)>()).prop_map(|(dialect, (socket, lazy, impatient))| {
        let mut config = Config::child("model", "1");
        config.dialect = dialect;
        config.capabilities = config.capabilities.with_roots(true).with_sampling();
        if socket {
            config.binding = Binding::Socket;
        }
        if impatient {
            config.policy.keepalive = Some(Keepalive::every(Duration::from_millis(30)));
            config.policy.call_total = Limit::After(Duration::from_millis(200));
            config.policy.retry.budget = 1;
            config.limits.message_bytes = 400;
            config.limits.calls_in_flight = 2;
        }
        let mut setup = Setup::prompt(config);
        setup.lazy = lazy;
        setup
    })
}

proptest! {
    // Each finding becomes a named test below. `PROPTEST_CASES` sets the number of cases.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn child_link_behaves_like_the_model(acts in vec(act(), 1..60)) {
        run_with_model(Binding::Child, PARK, &acts);
    }

    #[test]
    fn socket_link_behaves_like_the_model(acts in vec(act(), 1..60)) {
        run_with_model(Binding::Socket, PARK, &acts);
    }

    #[test]
    fn link_that_closes_on_a_spent_budget_behaves_like_the_model(acts in vec(act(), 1..60)) {
        run_with_model(Binding::Child, WhenSpent::Close, &acts);
    }

    #[test]
    fn random_script_keeps_the_rules(setup in setup(), ops in vec(op(), 1..60)) {
        model::run(&setup, &ops);
    }
}

#[test]
fn kill_is_output_before_release_even_if_polled_late() {
    let mut config = Config::child("late", "1");
    config.policy.open_timeout = Duration::from_secs(1);
    let mut client = Client::new(config);
    client.connect(Instant::ZERO);
    let mut now = Instant::ZERO;
    while client.last_end().is_none() {
        now = now + Duration::from_secs(10);
        client.handle_timeout(now);
    }
    let mut outputs = Vec::new();
    while let Some(output) = client.poll_output(&mut Vec::new()) {
        outputs.push(output);
    }
    let killed = outputs
        .iter()
        .position(|output| matches!(output, Output::Kill { .. }));
    let released = outputs
        .iter()
        .position(|output| matches!(output, Output::Release { .. }));
    assert!(killed.is_some() && killed < released, "{outputs:?}");
}

#[test]
fn timeout_at_the_last_instant_closes_without_a_spin() {
    let mut client = Client::new(Config::child("late", "1"));
    client.connect(Instant::ZERO);
    client.handle(Instant::ZERO, client.epoch(), Input::Opened);
    client.handle_timeout(Instant::MAX);
    assert_eq!(client.state(), State::Closing);
}

#[test]
fn draining_time_does_not_count_towards_a_stable_epoch() {
    let mut config = config(Binding::Child, PARK);
    config.policy.retry.stable_after = DRAIN - Duration::from_secs(1);
    let refused = Op::OpenFailed {
        which: Which::Current,
        faults: vec![FaultKind::Refused],
    };
    let call = Op::Call {
        method: 0,
        params: 0,
        options: 0,
    };
    let to_deadline = Op::Elapse(Elapse::ToDeadline);
    let ops = [
        Op::Connect,
        refused,
        to_deadline.clone(),
        Op::Serve(0),
        call,
        Op::Reconnect(Which::Current),
        to_deadline,
    ];
    model::run(&Setup::prompt(config), &ops);
}
