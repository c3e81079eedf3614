//! The application, its machine and its driver: what is asked, when it is polled, by which clock, and who judges it. Knows no transport.

use std::collections::VecDeque;
use std::time::Duration;

use everlink::client::{CallOptions, Event, Outcome};
use everlink::wire::ErrorObject;
use everlink::{
    AskId, CallId, Change, Client, Config, Epoch, Input, Instant, List, Output, StreamId, Watch,
};
use serde_json::json;

use super::terms::WATCHED;
use crate::oracle::{Asked, Oracle, Rule, Verdict, hold, keeps_secret};
use crate::report::Tally;
use crate::subject::{SECRET, Subject};

/// No single step gives more than this to do.
const OUTPUTS: u32 = 50_000;

pub(super) struct Host {
    pub(super) subject: Subject,
    pub(super) oracle: Oracle,
    /// How far the clock is ahead of the world, in nanoseconds.
    ahead: i64,
    /// The latest time that the machine was told.
    told: Instant,
    /// The driver does nothing before then, or polls nothing.
    pub(super) stalls_until: Instant,
    pub(super) polls_from: Instant,
    /// It did not poll when it should have.
    is_late: bool,
    pub(super) calls: Vec<CallId>,
    pub(super) asks: VecDeque<AskId>,
    marks: u64,
    steps: u64,
    /// How many inputs were not heard.
    stale: u64,
    /// What came of calls, the newest of each kind.
    pub(super) last_reply: Option<CallId>,
    pub(super) last_listed: Option<CallId>,
    pub(super) heard_of_watched: u32,
    /// Transports that are gone.
    pub(super) past: Vec<Epoch>,
    /// The one that was told that there are no credentials. What was watched there ended with that.
    denied: Option<Epoch>,
}

impl Host {
    pub(super) fn new(config: Config, flaw: Option<Rule>) -> Host {
        let subject = Subject::new(config.clone(), flaw);
        let oracle = Oracle::new(&config, subject.look());
        Host {
            subject,
            oracle,
            ahead: 0,
            told: Instant::ZERO,
            stalls_until: Instant::ZERO,
            polls_from: Instant::ZERO,
            is_late: false,
            calls: Vec::new(),
            asks: VecDeque::new(),
            marks: 0,
            steps: 0,
            stale: 0,
            last_reply: None,
            last_listed: None,
            heard_of_watched: 0,
            past: Vec::new(),
            denied: None,
        }
    }

    /// What the clock shows.
    fn clock(&self, now: Instant) -> Instant {
        Instant::from_nanos(now.as_nanos().saturating_add_signed(self.ahead))
    }

    /// The clock jumps by so much.
    pub(super) fn jump(&mut self, by: Duration, is_back: bool) {
        let by = i64::try_from(by.as_nanos()).expect("a short while");
        self.ahead += if is_back { -by } else { by };
        self.oracle.disturbed();
    }

    /// The clock is not behind what it has shown before any more, and the driver is punctual.
    pub(super) fn heal(&mut self, now: Instant) {
        let behind = self.told.since(self.clock(now));
        self.jump(behind, false);
        (self.stalls_until, self.polls_from) = (now, now);
    }

    /// When the machine wants to be told the time, by the time of the world.
    pub(super) fn due(&self) -> Option<Instant> {
        let at = self.subject.poll_timeout()?.at.as_nanos();
        let due = Instant::from_nanos(at.saturating_add_signed(-self.ahead));
        Some(due.max(self.stalls_until))
    }

    pub(super) fn is_stalled(&self, now: Instant) -> bool {
        now < self.stalls_until
    }

    /// Does something to the machine and looks at what it did.
    fn step<T>(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut Subject, Instant) -> T,
    ) -> Result<T, crate::oracle::Broken> {
        let clock = self.clock(now);
        let answer = act(&mut self.subject, clock);
        let look = self.subject.look();
        // What is not heard does not tell the time, either.
        if std::mem::replace(&mut self.stale, look.stats.stale_inputs) == look.stats.stale_inputs {
            self.told = self.told.max(clock);
        }
        self.oracle.stepped(self.told, &look)?;
        self.steps += 1;
        if self.steps % 16 == 0 {
            keeps_secret(&self.subject.debug())?;
        }
        Ok(answer)
    }

    pub(super) fn feed(&mut self, now: Instant, epoch: Epoch, input: Input<'_>) -> Verdict {
        self.oracle
            .input(self.told.max(self.clock(now)), epoch, &input);
        self.step(now, |subject, clock| subject.handle(clock, epoch, input))
    }

    pub(super) fn time(&mut self, now: Instant) -> Verdict {
        self.oracle.time();
        self.step(now, Subject::handle_timeout)
    }

    /// Something is told of a transport or an exchange that is gone.
    pub(super) fn feed_stale(&mut self, epoch: Epoch, input: Input<'_>) -> Verdict {
        let before = (self.subject.look(), self.subject.debug());
        self.subject.handle(self.told, epoch, input);
        let after = (self.subject.look(), self.subject.debug());
        self.stale = after.0.stats.stale_inputs;
        Oracle::stale((&before.0, before.1), (&after.0, after.1))?;
        self.oracle.stepped(self.told, &after.0)
    }

    /// Polls everything, and hands the commands out.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        tally: &mut Tally,
        mut carry: impl FnMut(Output<Event>, Vec<u8>),
    ) -> Verdict {
        if now < self.polls_from || self.is_stalled(now) {
            self.is_late = true;
            return Ok(());
        }
        let mut buf = Vec::new();
        let mut budget = OUTPUTS;
        while let Some(output) = self.subject.poll_output(&mut buf) {
            budget -= 1;
            hold(Rule::TimeByInput, budget > 0, || {
                "output without end".into()
            })?;
            let bytes = std::mem::take(&mut buf);
            let shown = format!("{output:?}");
            keeps_secret(&shown)?;
            tally.note(now, &shown, &bytes);
            let mut words = String::new();
            if let Output::Event(event) = &output {
                tally.event(event);
                if let Event::Done {
                    outcome: Outcome::Failed(failure),
                    ..
                } = event
                {
                    words = self.subject.words(failure);
                }
                self.heard(event);
            }
            self.oracle.output(self.told, &output, &bytes, &words)?;
            if let Output::Release { epoch } = &output {
                self.past.push(*epoch);
            }
            carry(output, bytes);
        }
        if std::mem::take(&mut self.is_late) {
            self.oracle.disturbed();
        }
        self.oracle.drained(self.told, &self.subject.look())
    }

    fn heard(&mut self, event: &Event) {
        match event {
            Event::Ask(ask) => self.asks.push_back(ask.ask),
            Event::AskWithdrawn { ask, .. } => self.asks.retain(|open| open != ask),
            Event::Changed(Change::Resource { uri }) if **uri == *WATCHED => {
                self.heard_of_watched += 1;
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
    pub(super) fn call(&mut self, now: Instant, is_idempotent: bool) -> Verdict {
        self.marks += 1;
        let arguments = json!({"mark": self.marks, "word": SECRET});
        let params = json!({"name": "work", "arguments": arguments});
        let mut options = CallOptions::new();
        options.idempotent = is_idempotent;
        self.request(now, "tools/call", params, options)
    }

    pub(super) fn read(&mut self, now: Instant) -> Verdict {
        self.marks += 1;
        let params = json!({"uri": format!("mark:{}", self.marks), "word": SECRET});
        self.request(now, "resources/read", params, CallOptions::new())
    }

    fn request(
        &mut self,
        now: Instant,
        method: &'static str,
        params: serde_json::Value,
        options: CallOptions,
    ) -> Verdict {
        self.oracle.verb();
        let params = params.to_string().parse().expect("JSON");
        let called = self.step(now, |subject, clock| {
            subject.call(clock, method, params, options)
        })?;
        let asked = Asked {
            method,
            mark: Some(self.marks),
            may_repeat: options.idempotent || method == "resources/read",
        };
        self.oracle.called(self.told, &called, asked)?;
        self.calls.extend(called.ok());
        Ok(())
    }

    pub(super) fn list(&mut self, now: Instant, list: List) -> Verdict {
        self.oracle.verb();
        let called = self.step(now, |subject, clock| subject.list(clock, list))?;
        let asked = Asked {
            method: "",
            mark: None,
            may_repeat: true,
        };
        self.oracle.called(self.told, &called, asked)?;
        self.calls.extend(called.ok());
        Ok(())
    }

    pub(super) fn cancel(&mut self, now: Instant, which: usize) -> Verdict {
        let Some(call) = self.calls.get(which % self.calls.len().max(1)).copied() else {
            return Ok(());
        };
        self.oracle.verb();
        let cancelled = self.step(now, |subject, clock| subject.cancel(clock, call))?;
        // It may be done.
        drop(cancelled);
        Ok(())
    }

    pub(super) fn answer(&mut self, now: Instant, is_refused: bool) -> Verdict {
        let Some(ask) = self.asks.pop_front() else {
            return Ok(());
        };
        self.oracle.verb();
        let answer = if is_refused {
            Err(ErrorObject::new(-1, "the person says no"))
        } else {
            let text = json!({"roots": [], "action": "accept", "word": SECRET});
            Ok(text.to_string().parse().expect("JSON"))
        };
        let given = self.step(now, |subject, clock| subject.answer(clock, ask, answer))?;
        self.oracle.answered(ask);
        // Who does not poll does not know that it was withdrawn.
        hold(Rule::NothingStale, given.is_ok() || self.is_late, || {
            format!("{ask} was open, and its answer is refused: {given:?}")
        })
    }

    pub(super) fn notify(&mut self, now: Instant) -> Verdict {
        self.oracle.verb();
        let told = self.step(now, Subject::notify)?;
        // Not every server wants to know.
        drop(told);
        Ok(())
    }

    pub(super) fn reconnect(&mut self, now: Instant) -> Verdict {
        let seen = self.subject.epoch();
        self.oracle.reconnect_asked(seen);
        // Many see the same trouble.
        for _ in 0..3 {
            self.step(now, |subject, clock| subject.reconnect(clock, seen))?;
        }
        Ok(())
    }

    /// A transport that is gone is to be replaced, once more. Whether there was one.
    pub(super) fn reconnect_old(&mut self, now: Instant) -> Result<bool, crate::oracle::Broken> {
        let Some(seen) = self.past.last().copied() else {
            return Ok(false);
        };
        if seen == self.subject.epoch() {
            return Ok(false);
        }
        // What is due by now is not because of it.
        self.oracle.verb();
        let before = self.subject.look();
        let clock = self.told.max(self.clock(now));
        if before.due.is_none_or(|due| due.at > clock) {
            self.step(now, |subject, _| subject.reconnect(clock, seen))?;
            Oracle::nothing_came_of_it(&before, &self.subject.look())?;
        }
        Ok(true)
    }

    pub(super) fn shut_down(&mut self, now: Instant) -> Verdict {
        self.oracle.shut_down();
        self.step(now, |subject, clock| subject.verb(clock, Client::shutdown))
    }

    /// A verb that may begin an attempt before its time.
    pub(super) fn urge(&mut self, now: Instant, verb: fn(&mut Client, Instant)) -> Verdict {
        self.oracle.urged();
        self.step(now, |subject, clock| subject.verb(clock, verb))
    }

    pub(super) fn deny(&mut self, now: Instant) -> Verdict {
        self.oracle.verb();
        self.denied = Some(self.subject.epoch());
        self.step(now, Subject::denied)
    }

    /// Whether what is watched is to be heard of.
    pub(super) fn stream_denied(&mut self) {
        self.denied = Some(self.subject.epoch());
    }

    pub(super) fn watches(&self) -> bool {
        self.denied != Some(self.subject.epoch())
    }

    pub(super) fn watch(&mut self, now: Instant, is_wide: bool) -> Verdict {
        let mut wish = Watch::lists().and_uri(WATCHED);
        if is_wide {
            wish = wish.and_uri("file:///another");
        }
        self.oracle.verb();
        self.step(now, |subject, clock| subject.watch(clock, wish))
    }
}
