//! The life of a link: its state, its epochs, the retry budget and the keepalive. It knows neither messages nor calls.

pub(in crate::client) mod close_steps;
mod epoch;
mod keepalive;
mod liveness;
mod retry;
mod stderr;
pub(in crate::client) mod table;

use alloc::boxed::Box;
use core::time::Duration;

use crate::client::config::Config;
use crate::client::context::{Context, Timer};
use crate::client::event::{Event, Outcome};
use crate::client::failure::{Cause, Ended, FailureKind};
use crate::driver::{Epoch, ExitStatus, Fault, Instant, Output};
use crate::util::Arc;
use crate::util::noise::{self, Noise};
use close_steps::CloseStep;
pub(in crate::client) use epoch::ServerKind;
use epoch::{EpochRecord, outlook};
use keepalive::{Habits, Liveness};
pub(in crate::client) use liveness::{Probing, Surroundings, names_a_loss};
pub(in crate::client) use retry::AfterEnd;
use retry::{Outlook, RetryBudget};
use table::{After, Cue, State, next};

/// The least time between two reports of a slow handshake.
const NOTICE_FLOOR: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Lifecycle {
    state: State,
    /// The number of the newest transport, which may be gone already.
    newest: Epoch,
    /// The present transport, from the moment it is asked for until it is released. Boxed, because few steps of the link use it, and it is large.
    record: Option<Box<EpochRecord>>,
    last_end: Option<Arc<Ended>>,
    is_shutting_down: bool,
    /// The deadline by which the transport must be gone when the link shuts down.
    ends_by: Option<Instant>,
    /// When the next attempt starts, if a timer is armed for one.
    attempt_at: Option<Instant>,
    /// When draining ends at the latest, while the link drains.
    drained_at: Option<Instant>,
    /// Boxed, because it is used only when a transport begins or ends, and is a tenth of the size of `Client`.
    retry: Box<RetryBudget>,
    liveness: Option<Box<Liveness>>,
    /// How the servers of this link behaved so far.
    habits: Habits,
}

/// What follows when the driver reports that the transport is open.
pub(super) enum Opened {
    /// The handshake begins.
    Handshake,
    /// The link already closes the transport. The present close step must be repeated.
    Closing(CloseStep),
    /// It was open before.
    Ignored,
}

/// What follows from a call that was accepted.
pub(super) enum Wanted {
    /// A server is there.
    Ready,
    /// Start an attempt.
    Attempt,
    /// There is no server, and no attempt under way.
    NoServer,
    /// An attempt or its end is under way.
    Wait,
}

/// State and facts.
impl Lifecycle {
    pub(super) fn new(config: &Config) -> Lifecycle {
        Lifecycle {
            state: State::Idle,
            newest: Epoch::NONE,
            record: None,
            last_end: None,
            is_shutting_down: false,
            ends_by: None,
            attempt_at: None,
            drained_at: None,
            retry: Box::new(RetryBudget::new(config.policy.retry, config.seed)),
            liveness: None,
            habits: Habits::default(),
        }
    }

    pub(super) const fn state(&self) -> State {
        self.state
    }

    /// The newest transport that was asked for.
    pub(super) const fn epoch(&self) -> Epoch {
        self.newest
    }

    /// Whether this is the present transport.
    pub(super) fn is_current(&self, epoch: Epoch) -> bool {
        self.record.is_some() && self.newest == epoch
    }

    pub(super) const fn last_end(&self) -> Option<&Arc<Ended>> {
        self.last_end.as_ref()
    }

    pub(super) const fn failures(&self) -> u32 {
        self.retry.failures()
    }

    pub(super) const fn is_shutting_down(&self) -> bool {
        self.is_shutting_down
    }

    pub(super) fn shut_down(&mut self) {
        self.is_shutting_down = true;
    }

    /// Sets the deadline by which the transport must be gone. Only the first deadline counts.
    pub(super) fn end_by(&mut self, by: Instant) {
        self.ends_by.get_or_insert(by);
    }

    /// Why the transport is being closed, if it is.
    pub(super) fn cause(&self) -> Option<&Cause> {
        self.record.as_ref()?.cause.as_ref()
    }

    /// Whether the transport was ever reported as open.
    pub(super) fn was_opened(&self) -> bool {
        let record = self.record.as_ref();
        record.is_some_and(|record| record.opened_at.is_some())
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

/// Attempts.
impl Lifecycle {
    /// Asks the driver for a transport, or arms a timer for the time at which the `floor` allows it. Returns the epoch that begins.
    pub(super) fn attempt(&mut self, cx: &mut Context) -> Option<Epoch> {
        next(self.state, Cue::Attempt)?;
        let at = self.retry.no_earlier(cx.now);
        if at > cx.now {
            self.attempt_at(cx, at);
            return None;
        }
        cx.timers.disarm(Timer::Attempt);
        self.attempt_at = None;
        self.step(Cue::Attempt);
        self.newest = self.newest.next();
        self.retry.opened(cx.now);
        cx.stats.opens += 1;
        let record = EpochRecord::new(self.newest, cx.now, &cx.config.limits);
        self.record = Some(Box::new(record));
        cx.tell(Event::Opening {
            epoch: self.newest,
            failures: self.retry.failures(),
        });
        cx.outbox.push(Output::Open { epoch: self.newest });
        cx.arm_in(Timer::Open, cx.config.policy.open_timeout);
        Some(self.newest)
    }

    fn attempt_at(&mut self, cx: &mut Context, at: Instant) {
        self.attempt_at = Some(at);
        cx.timers.arm(Timer::Attempt, at);
    }

    /// What an accepted call needs.
    pub(super) const fn wanted(&self) -> Wanted {
        match self.state {
            State::Ready => Wanted::Ready,
            State::Idle => Wanted::Attempt,
            State::Waiting | State::Parked => Wanted::NoServer,
            State::Opening
            | State::Handshaking
            | State::Draining
            | State::Closing
            | State::Closed => Wanted::Wait,
        }
    }

    /// Plans the next attempt at the pace of calls, because one waits for a server. Returns whether the attempt starts now.
    pub(super) fn attempt_for_call(&mut self, cx: &mut Context) -> bool {
        let at = self.retry.for_calls(cx.now);
        if at <= cx.now {
            return true;
        }
        if self.attempt_at.is_none_or(|due| due > at) {
            self.attempt_at(cx, at);
        }
        false
    }

    /// Whether a parked link may start an attempt for a call now.
    pub(super) fn may_attempt_for_call(&self, now: Instant) -> bool {
        self.retry.for_calls(now) <= now
    }

    /// Whether the next attempt starts within the `floor`.
    pub(super) fn attempts_soon(&self, cx: &Context) -> bool {
        let soon = cx.now + cx.config.policy.retry.floor;
        self.attempt_at.is_some_and(|at| at <= soon)
    }

    /// The time until the next attempt, if a timer is armed for one.
    pub(super) fn next_attempt(&self, now: Instant) -> Option<Duration> {
        Some(self.attempt_at?.since(now))
    }

    /// Allows no attempt before this time, because the server asked for that.
    pub(super) fn rest_until(&mut self, until: Instant) {
        self.retry.rest_until(until);
    }

    /// Resets the failure count, because the epoch was stable.
    pub(super) fn reset_failures(&mut self) {
        self.retry.reset_failures();
    }

    /// Waits or parks until the next attempt. `is_awaited`: calls wait for it, so it may come earlier. Returns when it comes.
    pub(super) fn rest(
        &mut self,
        cx: &mut Context,
        after: After,
        until: Instant,
        is_awaited: bool,
    ) -> Instant {
        let until = if is_awaited {
            until.min(self.retry.for_calls(cx.now))
        } else {
            until
        };
        self.step(Cue::Gone(after));
        self.attempt_at(cx, until);
        cx.tell(if after == After::Park {
            Event::Parked { until }
        } else {
            Event::Waiting {
                until,
                failures: self.retry.failures(),
                budget: self.retry.size(),
            }
        });
        until
    }
}

/// One epoch.
impl Lifecycle {
    /// Handles that the transport is open.
    pub(super) fn opened(&mut self, cx: &mut Context) -> Opened {
        let Some(record) = &mut self.record else {
            return Opened::Ignored;
        };
        let opened_twice = record.opened_at.is_some();
        record.opened_at.get_or_insert(cx.now);
        if self.state == State::Closing && !opened_twice {
            return Opened::Closing(record.close_step);
        }
        if !self.step(Cue::Opened) {
            return Opened::Ignored;
        }
        cx.timers.disarm(Timer::Open);
        cx.tell(Event::Handshaking { epoch: self.newest });
        self.start_handshake(cx);
        Opened::Handshake
    }

    /// Starts the timers of a handshake.
    pub(super) fn start_handshake(&self, cx: &mut Context) {
        cx.arm_in(Timer::Handshake, cx.config.policy.handshake_timeout);
        cx.arm_in(Timer::Notice, cx.config.policy.handshake_notice);
    }

    /// Reports that the handshake is slow.
    pub(super) fn tell_slow_handshake(&self, cx: &mut Context) {
        let policy = &cx.config.policy;
        let (notice, limit) = (policy.handshake_notice, policy.handshake_timeout);
        let notice = notice.max(NOTICE_FLOOR);
        let opened_at = self.record.as_ref().and_then(|record| record.opened_at);
        let waited = opened_at.map(|since| cx.now.since(since));
        cx.tell(Event::Slow {
            epoch: self.newest,
            waited: waited.unwrap_or(Duration::ZERO),
            limit,
        });
        cx.arm_in(Timer::Notice, notice);
    }

    /// Makes the link ready. Returns false if there is no handshake.
    pub(super) fn agreed(&mut self) -> bool {
        self.step(Cue::Agreed)
    }

    /// Starts what runs while the link is ready.
    pub(super) fn ready(&mut self, cx: &mut Context) {
        if let Some(record) = &mut self.record {
            record.ready_at = Some(cx.now);
        }
        cx.stats.readies += 1;
        self.retry.ready();
    }

    /// Starts the keepalive of a ready link.
    pub(super) fn start_keepalive(&mut self, cx: &mut Context) {
        cx.arm_in(Timer::Stable, cx.config.policy.retry.stable_after);
        let policy = &cx.config.policy;
        let (keepalive, hang) = (policy.keepalive, policy.hang);
        self.liveness = keepalive.map(|keepalive| Box::new(Liveness::new(keepalive, hang, cx.now)));
        if let Some(liveness) = &self.liveness {
            cx.timers.arm(Timer::Keepalive, liveness.look_at());
        }
    }

    /// Records faults of this epoch.
    pub(super) fn note(&mut self, faults: &[Fault]) {
        if let Some(record) = &mut self.record {
            record.note(faults);
        }
    }

    /// Records output of the child process on standard error.
    pub(super) fn stderr(&mut self, bytes: &[u8]) {
        if let Some(record) = &mut self.record {
            record.stderr.push(bytes);
        }
    }

    /// Records the exit of the child process.
    pub(super) fn exited(&mut self, status: ExitStatus) {
        if let Some(record) = &mut self.record {
            record.exit = Some(status);
        }
    }

    /// Records how a call ended. A reply shows that the server works.
    pub(super) fn settled(&mut self, outcome: &Outcome) {
        if let (Outcome::Reply(_) | Outcome::Error(_), Some(record)) = (outcome, &mut self.record) {
            record.was_useful = true;
        }
    }

    /// Records a usable message, which ends a run of noise.
    pub(super) fn made_sense(&mut self) {
        if let Some(record) = &mut self.record {
            record.noise.made_sense();
        }
    }

    /// Counts unusable input, and reports a sample of it. Returns whether there is too much of it in a row.
    #[must_use]
    pub(super) fn noise(
        &mut self,
        cx: &mut Context,
        what: &str,
        bytes: &[u8],
        is_too_large: bool,
    ) -> bool {
        cx.stats.noise += 1;
        let Some(record) = &mut self.record else {
            return false;
        };
        let shown = record.noise.heard();
        let run = record.noise.run();
        if let Some(count) = shown {
            let sample = noise::sample(bytes, cx.config.limits.noise_sample);
            cx.tell(Event::Noise(Noise {
                epoch: self.newest,
                what: what.into(),
                count,
                sample,
                is_too_large,
            }));
        }
        cx.config.limits.noise_run.is_some_and(|most| run > most)
    }
}

/// The end of an epoch.
impl Lifecycle {
    /// Makes a ready link drain for up to `grace`. Returns false if it is not ready.
    pub(super) fn begin_drain(&mut self, cx: &mut Context, cause: &Cause, grace: Duration) -> bool {
        if !self.step(Cue::Drain) {
            return false;
        }
        self.leave(cx, State::Ready);
        if let Some(record) = &mut self.record {
            record.cause = Some(cause.clone());
        }
        cx.tell(Event::Draining {
            epoch: self.newest,
            cause: cause.clone(),
        });
        self.drain_until(cx, cx.now + grace);
        true
    }

    fn drain_until(&mut self, cx: &mut Context, at: Instant) {
        self.drained_at = Some(at);
        cx.arm_at(Timer::Drain, at);
    }

    /// Moves the end of draining forward, if it is later than in `grace`.
    pub(super) fn drain_sooner(&mut self, cx: &mut Context, grace: Duration) {
        let soon = cx.now + grace;
        if self.drained_at.is_some_and(|at| at > soon) {
            self.drain_until(cx, soon);
        }
    }

    /// Waits for the rest of the end of a child process.
    pub(super) fn await_last_words(&mut self, cx: &mut Context) {
        let step = CloseStep::LastWords;
        self.enter_close_step(step);
        cx.arm_in(Timer::CloseStep, self.grace_of(cx, step));
    }

    /// Whether the rest of the end of a child process is awaited.
    pub(super) fn awaits_last_words(&self) -> bool {
        self.close_step() == Some(CloseStep::LastWords)
    }

    /// Whether messages of the server count: the two ends exchange messages, or the last words of the server are awaited.
    pub(super) fn is_heard(&self) -> bool {
        self.state.is_in_touch() || self.awaits_last_words()
    }

    /// Begins to close the transport, in any state. Returns the state before, or `None` if it is closing already or there is none.
    pub(super) fn begin_close(&mut self, cx: &mut Context) -> Option<State> {
        let state = self.state;
        if !self.step(Cue::Down) {
            return None;
        }
        self.leave(cx, state);
        Some(state)
    }

    /// Records why the transport is closed, and reports it. The first cause is the one that is reported.
    pub(super) fn closing(&mut self, cx: &mut Context, cause: Cause, first_try: Option<Box<str>>) {
        if let Some(record) = &mut self.record {
            record.first_try = first_try.or(record.first_try.take());
            let cause = record.cause.get_or_insert(cause).clone();
            let epoch = self.newest;
            cx.tell(Event::Closing { epoch, cause });
        }
    }

    /// Cancels the timers and the keepalive of an epoch that drains or closes. If it leaves `Ready`, records whether it was stable.
    fn leave(&mut self, cx: &mut Context, state: State) {
        // `Timer::Stable` does the same, but a driver may be late with it.
        let ready_at = self.record.as_ref().and_then(|record| record.ready_at);
        let stable_after = cx.config.policy.retry.stable_after;
        let was_good = ready_at.is_some_and(|since| since + stable_after <= cx.now);
        if state == State::Ready {
            if let Some(record) = &mut self.record {
                record.left_ready_at = Some(cx.now);
                record.was_good = was_good;
            }
            if was_good {
                self.retry.reset_failures();
            }
        }
        cx.timers.keep(|timer| !timer.is_of_epoch());
        self.drained_at = None;
        self.liveness = None;
    }

    /// The present close step, while the transport is being closed.
    pub(super) fn close_step(&self) -> Option<CloseStep> {
        let record = self.record.as_ref()?;
        (self.state == State::Closing).then_some(record.close_step)
    }

    pub(super) fn enter_close_step(&mut self, step: CloseStep) {
        if let Some(record) = &mut self.record {
            record.close_step = step;
        }
    }

    /// How long to wait for the end in a close step. If the end has a deadline, half of the remaining time is kept for the steps after it.
    pub(super) fn grace_of(&self, cx: &Context, step: CloseStep) -> Duration {
        let grace = step.grace(&cx.config.policy);
        match self.ends_by {
            Some(by) => grace.min(by.since(cx.now) / 2),
            None => grace,
        }
    }

    /// Releases the transport, which is gone or, if `abandoned`, could not be ended. Returns what follows.
    pub(super) fn finish(
        &mut self,
        cx: &mut Context,
        abandoned: bool,
        server: ServerKind,
    ) -> Option<AfterEnd> {
        let record = self.record.take()?;
        cx.timers.disarm(Timer::CloseStep);
        if !abandoned {
            cx.outbox.drop_commands_to(record.epoch);
        }
        let ended = Arc::new(record.story(cx.now, abandoned));
        let counted = ended.counted;
        let is_shut_out = ended.cause == Cause::Unauthorized;
        let outlook = if record.was_useful {
            Outlook::Good
        } else {
            outlook(&ended, server)
        };
        cx.stats.abandoned += u64::from(abandoned);
        cx.stats.failures += u64::from(counted);
        cx.stats.free_ends += u64::from(!counted);
        self.last_end = Some(ended.clone());
        cx.tell(Event::Ended(ended));
        let epoch = record.epoch;
        cx.outbox.push(Output::Release { epoch });
        Some(match counted {
            _ if self.is_shutting_down => AfterEnd::Close,
            // Only other credentials help, and the application says when it has some.
            _ if is_shut_out => self.retry.give_up(cx.now),
            true => self.retry.failed(cx.now, outlook),
            false => AfterEnd::Wait(self.retry.free(cx.now)),
        })
    }

    /// The report about the present epoch, as far as it is known.
    pub(super) fn story(&self, now: Instant) -> Option<Ended> {
        let record = self.record.as_ref()?;
        Some(record.story(now, false))
    }

    /// Chooses the end of an epoch that explains a failure. While there is no server, that is the end of the last one.
    pub(super) fn story_for(&self, now: Instant, kind: &FailureKind) -> Option<Arc<Ended>> {
        match (kind, self.state) {
            (FailureKind::NoContact, _) => {
                return Some(Arc::new(Ended {
                    cause: Cause::Unreachable,
                    ..self.story(now)?
                }));
            }
            (FailureKind::Closed | FailureKind::Down | FailureKind::TimedOut { .. }, _)
            | (FailureKind::Lost, State::Closing) => {}
            (_, _) => return None,
        }
        match self.state {
            State::Ready | State::Draining => None,
            State::Closing => self.story(now).map(Arc::new),
            State::Idle
            | State::Opening
            | State::Handshaking
            | State::Waiting
            | State::Parked
            | State::Closed => self.last_end.clone(),
        }
    }
}
