//! The application with its machine, its driver, its clock and its oracle. Must not depend on transports.

use std::collections::VecDeque;
use std::time::Duration;

use everlink::ErrorObject;
use everlink::client::{CallOptions, Event, Outcome};
use everlink::{
    AskId, CallId, Change, Client, Config, Epoch, Input, Instant, List, Output, StreamId, Watch,
};
use serde_json::json;

use super::configs::WATCHED;
use crate::Report;
use crate::oracle::{CallSpec, Oracle, Rule, check, check_no_secret};
use crate::report::{record_event, record_output};
use crate::subject::{SECRET, Subject};

/// The limit for outputs of one step.
const MAX_OUTPUTS: u32 = 50_000;

pub(super) struct Host {
    pub(super) subject: Subject,
    pub(super) oracle: Oracle,
    /// The offset of the clock from the time of the world, in nanoseconds.
    clock_offset: i64,
    /// The latest time that the machine received.
    latest: Instant,
    /// Until then, the driver does nothing, or polls nothing.
    pub(super) stalled_until: Instant,
    pub(super) polls_from: Instant,
    /// The driver did not poll when it should have.
    is_late: bool,
    pub(super) calls: Vec<CallId>,
    pub(super) asks: VecDeque<AskId>,
    last_mark: u64,
    step_count: u64,
    /// The number of stale inputs.
    stale_inputs: u64,
    /// The latest calls with a reply and with a list.
    pub(super) last_reply: Option<CallId>,
    pub(super) last_listed: Option<CallId>,
    pub(super) watched_changes: u32,
    /// Transports that are gone.
    pub(super) past_epochs: Vec<Epoch>,
    /// The epoch for which credentials were denied. Its watch ended with that.
    denied: Option<Epoch>,
}

impl Host {
    pub(super) fn new(config: Config, flaw: Option<Rule>) -> Host {
        let subject = Subject::new(config.clone(), flaw);
        let oracle = Oracle::new(&config, subject.snapshot());
        Host {
            subject,
            oracle,
            clock_offset: 0,
            latest: Instant::ZERO,
            stalled_until: Instant::ZERO,
            polls_from: Instant::ZERO,
            is_late: false,
            calls: Vec::new(),
            asks: VecDeque::new(),
            last_mark: 0,
            step_count: 0,
            stale_inputs: 0,
            last_reply: None,
            last_listed: None,
            watched_changes: 0,
            past_epochs: Vec::new(),
            denied: None,
        }
    }

    /// The time that the clock shows.
    fn clock(&self, now: Instant) -> Instant {
        Instant::from_nanos(now.as_nanos().saturating_add_signed(self.clock_offset))
    }

    /// Moves the clock.
    pub(super) fn jump_clock(&mut self, by: Duration, is_back: bool) {
        let by = i64::try_from(by.as_nanos()).expect("a short while");
        self.clock_offset += if is_back { -by } else { by };
        self.oracle.skip_timing();
    }

    /// Moves the clock to at least the latest time it has shown, and ends all delays of the driver.
    pub(super) fn clear_faults(&mut self, now: Instant) {
        let behind = self.latest.since(self.clock(now));
        self.jump_clock(behind, false);
        (self.stalled_until, self.polls_from) = (now, now);
    }

    /// The next deadline of the machine, in the time of the world.
    pub(super) fn due(&self) -> Option<Instant> {
        let at = self.subject.poll_timeout()?.at.as_nanos();
        let due = Instant::from_nanos(at.saturating_add_signed(-self.clock_offset));
        Some(due.max(self.stalled_until))
    }

    pub(super) fn is_stalled(&self, now: Instant) -> bool {
        now < self.stalled_until
    }

    /// Runs one method of the machine, then the checks.
    fn step<T>(&mut self, now: Instant, run: impl FnOnce(&mut Subject, Instant) -> T) -> T {
        let clock = self.clock(now);
        let answer = run(&mut self.subject, clock);
        let snapshot = self.subject.snapshot();
        // A stale input does not move the machine's time.
        if std::mem::replace(&mut self.stale_inputs, snapshot.stats.stale_inputs)
            == snapshot.stats.stale_inputs
        {
            self.latest = self.latest.max(clock);
        }
        self.oracle.check_step(self.latest, &snapshot);
        self.step_count += 1;
        if self.step_count % 16 == 0 {
            check_no_secret(&self.subject.debug());
        }
        answer
    }

    pub(super) fn feed(&mut self, now: Instant, epoch: Epoch, input: Input<'_>) {
        self.oracle
            .input(self.latest.max(self.clock(now)), epoch, &input);
        self.step(now, |subject, clock| subject.handle(clock, epoch, input))
    }

    pub(super) fn time(&mut self, now: Instant) {
        self.oracle.timeout();
        self.step(now, Subject::handle_timeout)
    }

    /// Delivers an input of a transport or an exchange that is gone.
    pub(super) fn feed_stale(&mut self, epoch: Epoch, input: Input<'_>) {
        let before = (self.subject.snapshot(), self.subject.debug());
        self.subject.handle(self.latest, epoch, input);
        let after = (self.subject.snapshot(), self.subject.debug());
        self.stale_inputs = after.0.stats.stale_inputs;
        Oracle::check_stale_input((&before.0, before.1), (&after.0, after.1));
        self.oracle.check_step(self.latest, &after.0)
    }

    /// Polls all output, and passes the commands on.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        report: &mut Report,
        mut execute: impl FnMut(Output<Event>, Vec<u8>),
    ) {
        if now < self.polls_from || self.is_stalled(now) {
            self.is_late = true;
            return;
        }
        let mut buf = Vec::new();
        let mut budget = MAX_OUTPUTS;
        while let Some(output) = self.subject.poll_output(&mut buf) {
            budget -= 1;
            check(Rule::TimeOnlyByInput, budget > 0, || {
                "output without end".into()
            });
            let bytes = std::mem::take(&mut buf);
            let output_text = format!("{output:?}");
            check_no_secret(&output_text);
            record_output(report, now, &output_text, &bytes);
            let mut failure_text = String::new();
            if let Output::Event(event) = &output {
                record_event(report, self.oracle.state(), event);
                if let Event::Done {
                    outcome: Outcome::Failed(failure),
                    ..
                } = event
                {
                    failure_text = self.subject.failure_text(failure);
                }
                self.on_event(event);
            }
            self.oracle
                .check_output(self.latest, &output, &bytes, &failure_text);
            if let Output::Release { epoch } = &output {
                self.past_epochs.push(*epoch);
            }
            execute(output, bytes);
        }
        if std::mem::take(&mut self.is_late) {
            self.oracle.skip_timing();
        }
        self.oracle
            .check_drained(self.latest, &self.subject.snapshot())
    }

    fn on_event(&mut self, event: &Event) {
        match event {
            Event::Ask(ask) => self.asks.push_back(ask.ask),
            Event::AskWithdrawn { ask, .. } => self.asks.retain(|open| open != ask),
            Event::Changed(Change::Resource { uri }) if **uri == *WATCHED => {
                self.watched_changes += 1;
            }
            Event::Done { call, outcome } => match outcome {
                Outcome::Listed(_) => self.last_listed = Some(*call),
                Outcome::Reply(_) => self.last_reply = Some(*call),
                _ => {}
            },
            _ => {}
        }
    }

    pub(super) fn wants_input(&self, stream: StreamId) -> bool {
        self.subject.wants_input(stream)
    }
}

/// What the application does.
impl Host {
    pub(super) fn call(&mut self, now: Instant, is_idempotent: bool) {
        self.last_mark += 1;
        let arguments = json!({"mark": self.last_mark, "word": SECRET});
        let params = json!({"name": "work", "arguments": arguments});
        let mut options = CallOptions::new();
        options.idempotent = is_idempotent;
        self.request(now, "tools/call", params, options)
    }

    pub(super) fn read(&mut self, now: Instant) {
        self.last_mark += 1;
        let params = json!({"uri": format!("mark:{}", self.last_mark), "word": SECRET});
        self.request(now, "resources/read", params, CallOptions::new())
    }

    fn request(
        &mut self,
        now: Instant,
        method: &'static str,
        params: serde_json::Value,
        options: CallOptions,
    ) {
        self.oracle.application_call();
        let params = params.to_string().parse().expect("JSON");
        let called = self.step(now, |subject, clock| {
            subject.call(clock, method, params, options)
        });
        let spec = CallSpec {
            method,
            mark: Some(self.last_mark),
            may_repeat: options.idempotent || method == "resources/read",
        };
        self.oracle.record_call(self.latest, &called, spec);
        self.calls.extend(called.ok());
    }

    pub(super) fn list(&mut self, now: Instant, list: List) {
        self.oracle.application_call();
        let called = self.step(now, |subject, clock| subject.list(clock, list));
        let spec = CallSpec {
            method: "",
            mark: None,
            may_repeat: true,
        };
        self.oracle.record_call(self.latest, &called, spec);
        self.calls.extend(called.ok());
    }

    pub(super) fn cancel(&mut self, now: Instant, which: usize) {
        let Some(call) = self.calls.get(which % self.calls.len().max(1)).copied() else {
            return;
        };
        self.oracle.application_call();
        let cancelled = self.step(now, |subject, clock| subject.cancel(clock, call));
        // The call may be done already.
        drop(cancelled);
    }

    pub(super) fn answer(&mut self, now: Instant, is_refused: bool) {
        let Some(ask) = self.asks.pop_front() else {
            return;
        };
        self.oracle.application_call();
        let answer = if is_refused {
            Err(ErrorObject::new(-1, "the person says no"))
        } else {
            let text = json!({"roots": [], "action": "accept", "word": SECRET});
            Ok(text.to_string().parse().expect("JSON"))
        };
        let answered = self.step(now, |subject, clock| subject.answer(clock, ask, answer));
        self.oracle.answered(ask);
        // Without a poll, the application does not know that the question was withdrawn.
        check(Rule::NoStaleState, answered.is_ok() || self.is_late, || {
            format!("{ask} was open, and its answer is refused: {answered:?}")
        })
    }

    pub(super) fn notify(&mut self, now: Instant) {
        self.oracle.application_call();
        let sent = self.step(now, Subject::notify);
        // Not every server accepts the notification.
        drop(sent);
    }

    pub(super) fn reconnect(&mut self, now: Instant) {
        let seen = self.subject.epoch();
        self.oracle.reconnect_asked(seen);
        // Several parts of the application may report the same failure.
        for _ in 0..3 {
            self.step(now, |subject, clock| subject.reconnect(clock, seen));
        }
    }

    /// Asks to replace a transport that is gone, if there was one.
    pub(super) fn reconnect_old(&mut self, now: Instant) {
        let seen = self.past_epochs.last().copied();
        let Some(seen) = seen.filter(|seen| *seen != self.subject.epoch()) else {
            return;
        };
        // A deadline that is due now would change the state for another reason.
        self.oracle.application_call();
        let before = self.subject.snapshot();
        let clock = self.latest.max(self.clock(now));
        if before.due.is_none_or(|due| due.at > clock) {
            self.step(now, |subject, _| subject.reconnect(clock, seen));
            Oracle::check_unchanged(&before, &self.subject.snapshot());
        }
    }

    pub(super) fn shut_down(&mut self, now: Instant) {
        self.oracle.shut_down();
        self.step(now, |subject, clock| subject.apply(clock, Client::shutdown))
    }

    /// Calls a method that may start an early attempt.
    pub(super) fn call_early(&mut self, now: Instant, method: fn(&mut Client, Instant)) {
        self.oracle.allow_early_attempt();
        self.step(now, |subject, clock| subject.apply(clock, method))
    }

    pub(super) fn deny_credentials(&mut self, now: Instant) {
        self.oracle.application_call();
        self.denied = Some(self.subject.epoch());
        self.step(now, Subject::denied)
    }

    /// Marks the watch of the current epoch as ended.
    pub(super) fn stream_denied(&mut self) {
        self.denied = Some(self.subject.epoch());
    }

    pub(super) fn expects_changes(&self) -> bool {
        self.denied != Some(self.subject.epoch())
    }

    pub(super) fn watch(&mut self, now: Instant, two_resources: bool) {
        let mut watch = Watch::lists().and_uri(WATCHED);
        if two_resources {
            watch = watch.and_uri("file:///another");
        }
        self.oracle.application_call();
        self.step(now, |subject, clock| subject.watch(clock, watch))
    }
}
