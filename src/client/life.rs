//! Opens and closes the transport of one epoch, and decides what follows. Of calls, this module knows only that they must be settled.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::closing::Rung;
use super::errand::Errand;
use super::event::Event;
use super::failure::{Cause, Ended, FailureKind, Sign};
use super::lifecycle::{Cue, Next, State, next};
use super::results::Preamble;
use super::retry::{Outlook, Verdict};
use super::stderr::Tail;
use super::{Client, Timer};
use crate::client::config::{Binding, Dialect, Limits};
use crate::driver::{CallId, Epoch, ExitStatus, Fault, FaultKind, Instant, LAST_WORDS, Output};
use crate::util::pipe::Pipe;

/// The number of faults that are kept for each epoch; more are only counted.
const FAULTS_KEPT: usize = 16;

/// The state of the present transport.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) epoch: Epoch,
    pub(super) pipe: Pipe,
    stderr: Tail,
    /// Whether the server's input is closed, by the link or by a failed write. Its output is still read.
    pub(super) is_unwritable: bool,
    /// When the link closed the server's input, if it did so before it began to close the transport.
    input_closed_at: Option<Instant>,
    pub(super) rung: Rung,
    began: Instant,
    pub(super) opened_at: Option<Instant>,
    pub(super) ready_at: Option<Instant>,
    left_ready_at: Option<Instant>,
    cause: Option<Cause>,
    /// The server's reply to the first handshake request, if both were tried.
    first_try: Option<Box<str>>,
    faults: Vec<Fault>,
    more_faults: u32,
    has_ended: bool,
    exit: Option<ExitStatus>,
    /// Whether the transport could not be opened.
    is_stillborn: bool,
    /// Whether a fault was reported that is more than an orderly end.
    is_faulty: bool,
    /// Whether it was ready for long enough to reset the failure count.
    was_good: bool,
    /// Whether the server replied to a call.
    pub(super) was_useful: bool,
}

impl Life {
    fn new(epoch: Epoch, now: Instant, limits: &Limits) -> Life {
        Life {
            epoch,
            pipe: Pipe::new(limits.message_bytes, limits.write_window),
            stderr: Tail::new(limits.stderr_tail),
            is_unwritable: false,
            input_closed_at: None,
            rung: Rung::CloseWrite,
            began: now,
            opened_at: None,
            ready_at: None,
            left_ready_at: None,
            cause: None,
            first_try: None,
            faults: Vec::new(),
            more_faults: 0,
            has_ended: false,
            exit: None,
            is_stillborn: false,
            is_faulty: false,
            was_good: false,
            was_useful: false,
        }
    }

    /// Why the transport is being closed, if it is.
    pub(super) const fn cause(&self) -> Option<&Cause> {
        self.cause.as_ref()
    }

    fn note(&mut self, faults: &[Fault]) {
        let room = FAULTS_KEPT - self.faults.len();
        self.faults.extend(faults.iter().take(room).cloned());
        let surplus = faults.len().saturating_sub(room);
        let surplus = u32::try_from(surplus).unwrap_or(u32::MAX);
        self.more_faults = self.more_faults.saturating_add(surplus);
        self.is_faulty |= faults.iter().any(|fault| !fault.kind().only_says_closed());
    }

    /// Whether the transport is completely gone: a child process is also reaped.
    fn is_gone(&self, binding: Binding) -> bool {
        let is_reaped = match binding {
            Binding::Child => self.exit.is_some(),
            Binding::Http | Binding::Socket => true,
        };
        self.is_stillborn || self.has_ended && is_reaped
    }

    /// Whether the process has exited while one of its descendants still holds its output open.
    fn is_survived_by_its_tree(&self) -> bool {
        self.exit.is_some() && !self.has_ended
    }

    /// Whether this end counts against the retry budget: it was not intended, or a fault occurred on the way.
    fn counts(&self, abandoned: bool) -> bool {
        // Servers drop old sessions, and that is normal. A server that drops a session soon is broken.
        let is_forgotten = self.cause == Some(Cause::SessionLost) && self.was_good;
        let planned = is_forgotten || self.cause.as_ref().is_some_and(Cause::is_planned);
        !planned || self.is_faulty || abandoned
    }

    /// The report about this epoch, as far as it is known.
    pub(super) fn story(&self, now: Instant, abandoned: bool) -> Ended {
        Ended {
            epoch: self.epoch,
            cause: self.cause.clone().unwrap_or(Cause::Died),
            first_try: self.first_try.clone(),
            faults: self.faults.clone(),
            more_faults: self.more_faults,
            exit: self.exit,
            stderr: self.stderr.text(),
            lived: now.since(self.began),
            ready_for: self.ready_at.map(|since| {
                let until = self.left_ready_at.unwrap_or(now);
                until.since(since)
            }),
            abandoned,
            counted: self.counts(abandoned),
        }
    }
}

impl Client {
    /// Asks the driver for a transport, or arms a timer for the time at which the `floor` allows it.
    pub(super) fn attempt(&mut self) {
        if next(self.state, Cue::Attempt).is_none() {
            return;
        }
        let at = self.budget.no_earlier(self.now);
        if at > self.now {
            self.timers.arm(Timer::Attempt, at);
            return;
        }
        self.timers.disarm(Timer::Attempt);
        self.step(Cue::Attempt);
        self.epoch = self.epoch.next();
        self.budget.opened(self.now);
        self.stats.opens += 1;
        self.life = Some(Life::new(self.epoch, self.now, &self.config.limits));
        self.tell(Event::Opening {
            epoch: self.epoch,
            failures: self.budget.failures(),
        });
        self.outbox.push(Output::Open { epoch: self.epoch });
        self.arm_in(Timer::Open, self.config.policy.open_timeout);
    }

    /// Handles that the transport is open.
    pub(super) fn opened(&mut self) {
        let Some(life) = &mut self.life else {
            return;
        };
        let opened_twice = life.opened_at.is_some();
        life.opened_at.get_or_insert(self.now);
        if self.state == State::Closing && !opened_twice {
            // The link began to close the transport before it was open. Repeat the present close step.
            let rung = life.rung;
            self.stand_on(rung);
        } else if self.step(Cue::Opened) {
            self.timers.disarm(Timer::Open);
            let is_same = self.to_declare.is_none();
            if let Some(capabilities) = self.to_declare.take() {
                self.config.capabilities = *capabilities;
            }
            self.tell(Event::Handshaking { epoch: self.epoch });
            self.arm_in(Timer::Handshake, self.config.policy.handshake_timeout);
            self.arm_in(Timer::Notice, self.config.policy.handshake_notice);
            self.begin_handshake(is_same);
        }
    }

    /// Starts the handshake. `is_same`: the client declares the same capabilities as in the epoch before.
    fn begin_handshake(&mut self, is_same: bool) {
        let is_known_old = self.web.as_ref().is_some_and(|web| web.is_known_old);
        if is_known_old && self.config.dialect != Dialect::Modern {
            self.try_old("it was found there before".into(), false);
        } else if !self.revive(is_same) {
            let first = self.handshake.begin();
            self.proceed(first);
        }
    }

    /// Records faults of this epoch.
    pub(super) fn note(&mut self, faults: &[Fault]) {
        if let Some(life) = &mut self.life {
            life.note(faults);
        }
    }

    pub(super) fn open_failed(&mut self, faults: &[Fault]) {
        if let Some(life) = &mut self.life {
            life.note(faults);
            life.is_stillborn = true;
        }
        self.down(Cause::OpenFailed);
        self.bury_if_gone();
    }

    /// Handles the end of the server's output.
    pub(super) fn ended(&mut self, faults: &[Fault]) {
        self.last_line();
        if let Some(life) = &mut self.life {
            life.note(faults);
            life.has_ended = true;
        }
        self.retell();
        self.died();
    }

    /// Handles a failed write. The server takes no more input, but its earlier output may still arrive.
    pub(super) fn write_failed(&mut self, faults: &[Fault]) {
        if let Some(life) = &mut self.life {
            life.note(faults);
            life.is_unwritable = true;
        }
        let grace = self.config.policy.close_grace;
        let soon = self.now + grace;
        if self.timers.at(Timer::Drain).is_some_and(|at| at > soon) {
            self.arm_at(Timer::Drain, soon);
        }
        self.wind_down(Cause::Died, grace);
    }

    /// Handles that the driver handed bytes to the operating system.
    pub(super) fn sent(&mut self, len: usize) {
        if let Some(life) = &mut self.life {
            life.pipe.sent(len);
        }
    }

    /// Handles output of the child process on standard error.
    pub(super) fn stderr(&mut self, bytes: &[u8]) {
        if let Some(life) = &mut self.life {
            life.stderr.push(bytes);
        }
        self.heard();
    }

    /// Handles the exit of the child process.
    pub(super) fn exited(&mut self, status: ExitStatus) {
        if let Some(life) = &mut self.life {
            life.exit = Some(status);
        }
        self.retell();
        self.died();
    }

    fn died(&mut self) {
        self.down(Cause::Died);
        let life = self.life.as_ref();
        let survived = life.is_some_and(Life::is_survived_by_its_tree);
        if survived && self.rung() == Some(Rung::CloseWrite) {
            self.arm_in(Timer::Ladder, LAST_WORDS);
        }
        self.bury_if_gone();
    }

    /// Closes the transport, but gives calls in flight up to `grace` to end first.
    pub(super) fn wind_down(&mut self, cause: Cause, grace: Duration) {
        if self.state == State::Draining {
            return;
        }
        let has_reason = self.calls.in_flight() > 0 && !grace.is_zero();
        if !has_reason || !self.step(Cue::Drain) {
            return self.down(cause);
        }
        self.leave(State::Ready);
        self.errands
            .keep(|errand| matches!(errand, Errand::Call(_)));
        self.frames.drop_requests();
        if let Some(life) = &mut self.life {
            life.cause = Some(cause.clone());
        }
        self.tell(Event::Draining {
            epoch: self.epoch,
            cause,
        });
        self.arm_in(Timer::Drain, grace);
    }

    /// Whether the server's input may be closed: the link is ready, every request is written, and no ask is open.
    pub(super) fn is_all_written(&self) -> bool {
        let is_idle = self.frames.len() == 0 && self.calls.first_waiting().is_none();
        self.state == State::Ready && self.web.is_none() && is_idle && self.asks.len() == 0
    }

    /// Closes the server's input. Calls in flight get up to `grace` to be answered; then the link closes.
    pub(super) fn close_input(&mut self, grace: Duration) {
        self.is_shutting_down = true;
        self.wind_down(Cause::Shutdown, grace);
        let is_draining = self.state == State::Draining;
        if let Some(life) = self.life.as_mut().filter(|_| is_draining) {
            life.is_unwritable = true;
            life.input_closed_at = Some(self.now);
            let epoch = life.epoch;
            self.outbox.push(Output::CloseWrite { epoch });
        }
    }

    /// Closes the transport in any state. Does nothing if it is closing already. The first cause is the one that is reported.
    pub(super) fn down(&mut self, cause: Cause) {
        let state = self.state;
        if !self.step(Cue::Down) {
            return;
        }
        self.leave(state);
        let cause = if state == State::Handshaking {
            self.judge(cause)
        } else {
            cause
        };
        let Some(life) = &mut self.life else {
            return;
        };
        if state == State::Handshaking && cause != Cause::EraProbe {
            life.first_try = self.handshake.take_first_try();
        }
        let cause = life.cause.get_or_insert(cause).clone();
        let rung = first_rung(&cause, life.opened_at.is_some(), self.config.binding);
        self.tell(Event::Closing {
            epoch: self.epoch,
            cause,
        });
        self.stand_on(rung);
        if self.web.is_some() {
            self.bury_if_gone();
        }
    }

    /// Cancels the timers and the keepalive of an epoch that drains or closes. If it leaves `Ready`, records whether it was stable.
    fn leave(&mut self, state: State) {
        // `Timer::Stable` does the same, but a driver may be late with it.
        let ready_at = self.life.as_ref().and_then(|life| life.ready_at);
        let stable_after = self.config.policy.retry.stable_after;
        let was_good = ready_at.is_some_and(|since| since + stable_after <= self.now);
        if state == State::Ready {
            if let Some(life) = &mut self.life {
                life.left_ready_at = Some(self.now);
                life.was_good = was_good;
            }
            if was_good {
                self.budget.forgive();
            }
        }
        self.timers.keep(|timer| !timer.is_of_life());
        self.pulse = None;
    }

    fn rung(&self) -> Option<Rung> {
        let life = self.life.as_ref()?;
        (self.state == State::Closing).then_some(life.rung)
    }

    /// Moves on to the next close step, because the grace of this one is over.
    pub(super) fn climb(&mut self) {
        if let Some(rung) = self.rung() {
            self.stand_on(rung.next(self.config.binding));
        }
    }

    fn stand_on(&mut self, rung: Rung) {
        let Some(life) = &mut self.life else {
            return;
        };
        life.rung = rung;
        let (epoch, closed_at) = (life.epoch, life.input_closed_at);
        self.part();
        match rung {
            // Over HTTP, only the `DELETE` of the session can be unanswered. That is no abandoned transport.
            Rung::Release => return self.bury(self.web.is_none()),
            // A transport that is gone needs no command.
            _ if self.is_gone() => return,
            _ if self.web.is_some() => {}
            Rung::CloseWrite => {
                if let Some(closed_at) = closed_at {
                    // The input was closed earlier, so the grace counts from then. The server gets at least `LAST_WORDS` more, because it may have
                    // been busy with a reply until now.
                    let at = closed_at + self.grace_of(rung);
                    return self.arm_at(Timer::Ladder, at.max(self.now + LAST_WORDS));
                }
                self.outbox.push(Output::CloseWrite { epoch });
            }
            Rung::Terminate => self.outbox.push(Output::Terminate { epoch }),
            Rung::Kill => self.outbox.push(Output::Kill { epoch }),
        }
        self.arm_in(Timer::Ladder, self.grace_of(rung));
    }

    /// How long to wait for the end in this close step. If the end has a deadline, half of the remaining time is kept for the steps after it.
    fn grace_of(&self, rung: Rung) -> Duration {
        let grace = rung.grace(&self.config.policy);
        match self.ends_by {
            Some(by) => grace.min(by.since(self.now) / 2),
            None => grace,
        }
    }

    /// Ends all work of this epoch. Requests in flight are settled or go back to the queue, and the session is forgotten.
    fn part(&mut self) {
        self.part_web();
        self.session = None;
        self.preamble = Preamble::default();
        self.watcher.end();
        self.withdraw_all_asks();
        let mut sent = self.errands.close_all();
        for unsent in self.frames.requests() {
            sent.forget(unsent);
        }
        self.frames.clear();
        self.settle_lost(sent);
        self.catalog.new_life();
    }

    fn is_gone(&self) -> bool {
        let (life, binding) = (self.life.as_ref(), self.config.binding);
        match &self.web {
            Some(web) => life.is_some() && !web.has_farewell(),
            None => life.is_some_and(|life| life.is_gone(binding)),
        }
    }

    pub(super) fn bury_if_gone(&mut self) {
        if self.state == State::Closing && self.is_gone() {
            self.part();
            self.bury(false);
        }
    }

    /// Releases the transport, which is gone or, if `abandoned`, could not be ended. Then starts what follows.
    fn bury(&mut self, abandoned: bool) {
        self.retell();
        let Some(life) = self.life.take() else {
            return;
        };
        self.timers.disarm(Timer::Ladder);
        if !abandoned {
            self.outbox.drop_commands_to(life.epoch);
        }
        let ended = Arc::new(life.story(self.now, abandoned));
        let counted = ended.counted;
        let is_shut_out = ended.cause == Cause::Unauthorized;
        let outlook = if life.was_useful {
            Outlook::Good
        } else {
            outlook(&ended, self.config.binding)
        };
        self.stats.abandoned += u64::from(abandoned);
        self.stats.failures += u64::from(counted);
        self.stats.free_ends += u64::from(!counted);
        self.last_end = Some(ended.clone());
        self.tell(Event::Ended(ended));
        self.outbox.push(Output::Release { epoch: life.epoch });
        let verdict = match counted {
            _ if self.is_shutting_down => Verdict::Close,
            // Only other credentials help, and the application says when it has some.
            _ if is_shut_out => self.budget.give_up(self.now),
            true => self.budget.failed(self.now, outlook),
            false => Verdict::Wait(self.budget.free(self.now)),
        };
        self.follow(verdict);
    }

    fn follow(&mut self, verdict: Verdict) {
        let (until, next, is_given_up) = match verdict {
            Verdict::Close => return self.close(Cue::Gone(Next::Close)),
            Verdict::GiveUp(until) => (until, Next::Park, true),
            Verdict::Park(until) => (until, Next::Park, false),
            Verdict::Wait(until) => (until, Next::Wait, false),
        };
        let is_parked = next == Next::Park;
        let given_up: Vec<CallId> = if is_given_up || is_parked && !self.are_calls_patient() {
            self.calls.ids().collect()
        } else {
            self.await_server()
        };
        let is_awaited = self.are_calls_patient() && self.calls.len() > given_up.len();
        let until = if is_awaited {
            until.min(self.budget.for_calls(self.now))
        } else {
            until
        };
        self.step(Cue::Gone(next));
        self.timers.arm(Timer::Attempt, until);
        self.tell(if is_parked {
            Event::Parked { until }
        } else {
            Event::Waiting {
                until,
                failures: self.budget.failures(),
                budget: self.budget.size(),
            }
        });
        for id in given_up {
            self.fail(id, FailureKind::Down);
        }
        if until <= self.now {
            self.attempt();
        }
    }

    /// Whether calls wait while there is no server and no attempt under way.
    fn are_calls_patient(&self) -> bool {
        !self.config.policy.retry.call_patience.is_zero()
    }

    /// Makes calls wait for the next attempt after one has failed. Returns the calls that have waited for long enough.
    fn await_server(&mut self) -> Vec<CallId> {
        if !self.are_calls_patient() {
            return Vec::new();
        }
        let until = self.now + self.config.policy.retry.call_patience;
        let (mut tired, all): (Vec<CallId>, Vec<CallId>) = (Vec::new(), self.calls.ids().collect());
        for id in all {
            if self.calls.is_tired(id, self.now) {
                tired.push(id);
            } else {
                self.calls.await_server(id, until);
                self.arm_call(id);
            }
        }
        tired
    }

    /// Handles a call that was accepted while there is no server and no attempt under way. The call starts an attempt.
    pub(super) fn called_in_vain(&mut self, id: CallId) {
        if !self.are_calls_patient() {
            if self.state == State::Parked && !self.is_about_to_look() {
                self.fail(id, FailureKind::Down);
            }
            return;
        }
        let until = self.now + self.config.policy.retry.call_patience;
        self.calls.await_server(id, until);
        self.arm_call(id);
        let at = self.budget.for_calls(self.now);
        if at <= self.now {
            self.attempt();
        } else if self.timers.at(Timer::Attempt).is_none_or(|due| due > at) {
            self.timers.arm(Timer::Attempt, at);
        }
    }

    /// Whether a parked link starts its next attempt within the `floor`.
    pub(super) fn is_about_to_look(&self) -> bool {
        let soon = self.now + self.config.policy.retry.floor;
        self.timers.at(Timer::Attempt).is_some_and(|at| at <= soon)
    }

    /// The time until the next attempt, if a timer is armed for one.
    pub(super) fn next_attempt(&self) -> Option<Duration> {
        let at = self.timers.at(Timer::Attempt)?;
        Some(at.since(self.now))
    }

    /// Closes the link for good.
    pub(super) fn close(&mut self, cue: Cue) {
        if !self.step(cue) {
            return;
        }
        let kind = if self.is_shutting_down {
            FailureKind::Closed
        } else {
            FailureKind::Down
        };
        self.settle_all(&kind);
        self.timers.clear();
        self.tell(Event::Closed);
    }

    /// Moves to the state that follows on this cue. Returns false if there is none.
    pub(super) fn step(&mut self, cue: Cue) -> bool {
        match next(self.state, cue) {
            Some(state) => {
                self.state = state;
                true
            }
            None => false,
        }
    }
}

/// Judges from the end of an epoch whether another attempt can succeed.
fn outlook(ended: &Ended, binding: Binding) -> Outlook {
    // The file of a Unix socket appears when its server starts.
    let is_to_come = |kind| binding == Binding::Socket && kind == FaultKind::NotFound;
    let is_lasting = |fault: &Fault| fault.kind().is_lasting() && !is_to_come(fault.kind());
    match ended.cause {
        Cause::OpenFailed | Cause::Unreachable if ended.faults.iter().any(is_lasting) => {
            Outlook::Hopeless
        }
        // The server replied, and it refuses.
        Cause::HandshakeRefused { .. } => Outlook::Hopeless,
        Cause::Died if binding == Binding::Child => Outlook::Poor,
        Cause::AskedTo { .. }
        | Cause::Died
        | Cause::EraProbe
        | Cause::HandshakeTimedOut
        | Cause::Noise
        | Cause::OpenFailed
        | Cause::OpenTimedOut
        | Cause::SessionLost
        | Cause::Shutdown
        | Cause::Unauthorized
        | Cause::Unavailable { .. }
        | Cause::Unreachable
        | Cause::Unresponsive { .. } => Outlook::Fair,
    }
}

/// Chooses the first close step: gentle if the server can be expected to end by itself.
const fn first_rung(cause: &Cause, is_open: bool, binding: Binding) -> Rung {
    let is_gentle = match cause {
        Cause::AskedTo { .. }
        | Cause::Died
        | Cause::EraProbe
        | Cause::HandshakeRefused { .. }
        | Cause::OpenFailed
        | Cause::SessionLost
        | Cause::Shutdown
        | Cause::Unauthorized
        | Cause::Unavailable { .. }
        | Cause::Unreachable => is_open,
        Cause::HandshakeTimedOut
        | Cause::Noise
        | Cause::OpenTimedOut
        | Cause::Unresponsive { .. } => false,
    };
    let is_stopped = matches!(
        cause,
        Cause::Unresponsive {
            sign: Sign::Stopped,
            ..
        }
    );
    match binding {
        Binding::Http => Rung::CloseWrite,
        // A stopped process does not handle `SIGTERM`.
        Binding::Child if is_stopped => Rung::Kill,
        Binding::Child | Binding::Socket if is_gentle => Rung::CloseWrite,
        Binding::Child => Rung::Terminate,
        Binding::Socket => Rung::Kill,
    }
}
