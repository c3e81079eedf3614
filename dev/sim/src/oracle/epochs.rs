//! What must hold of transports: how they are asked for, taken down and paid for, and what state that is. Sees no call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use everlink::client::{Cause, Ended, Event, Sign, State};
use everlink::{
    Binding, Config, Epoch, Fault, FaultKind, Input, Instant, LAST_WORDS, Output, StreamId,
    WhenSpent,
};

use super::{Rule, TICK, Verdict, hold};
use crate::subject::Look;

/// Whether there is a transport in this state.
pub(crate) fn is_alive(state: State) -> bool {
    use State::{Closing, Draining, Handshaking, Opening, Ready};
    matches!(state, Opening | Handshaking | Ready | Draining | Closing)
}

/// How far a transport was taken down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Rung {
    #[default]
    None,
    CloseWrite,
    Terminate,
    Kill,
}

#[derive(Debug, Default)]
struct Life {
    // what happened to it
    has_ended: bool,
    has_exited: bool,
    is_stillborn: bool,
    is_unwritable: bool,
    is_faulty: bool,
    /// A server over HTTP could not be reached.
    is_unreachable: bool,
    reconnect_asked: bool,
    last_heard: Instant,
    /// When it was last told something, in the step that is being done.
    hears: Option<Instant>,
    turned_away: BTreeSet<StreamId>,
    /// How long it had been silent when it was given up.
    given_up: Option<Duration>,
    /// When it was ended: whether nothing was left of it, and whether something was wrong with it.
    end: Option<(bool, bool)>,
    under_way: usize,
    largest: usize,
    // what the machine made of it
    was_opened: bool,
    rung: Rung,
    is_planned: bool,
    is_told: bool,
    is_released: bool,
    /// It answered a call.
    is_useful: bool,
    /// A call was open when it was given up.
    was_wanted: bool,
    /// Its silence was reported, and the end of that was not.
    is_silent: bool,
}

/// The end of an epoch, as it was when the machine judged it.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    at: Instant,
    is_counted: bool,
    /// The link was shut down, so no attempt follows.
    is_last: bool,
    /// Failures in a row, without this one and with it.
    before: u32,
    failures: u32,
    /// The epoch was ready for long enough to wipe out the failures before it.
    is_forgiven: bool,
    /// It answered a call, which wipes them out, too.
    is_useful: bool,
    was_ever_ready: bool,
    last_open: Instant,
    /// Calls were open before it, or after it.
    had_calls: bool,
    has_calls: bool,
}

/// What the end of an epoch says of the next attempt, where the link was never ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// It may well succeed.
    Open,
    /// A process ended by itself, and is started again for a while only.
    Brief,
    /// Waiting mends nothing.
    Hopeless,
}

impl Life {
    /// Whether nothing is left of it.
    fn is_gone(&self, binding: Binding) -> bool {
        let is_reaped = self.has_exited || binding == Binding::Socket;
        self.is_stillborn || self.has_ended && is_reaped
    }

    fn is_over(&self) -> bool {
        self.has_ended || self.has_exited || self.is_stillborn || self.is_released
    }
}

#[derive(Debug)]
pub(super) struct Lives {
    config: Config,
    state: State,
    all: BTreeMap<Epoch, Life>,
    current: Epoch,
    is_shut_down: bool,
    cause: Option<Cause>,
    first_open: Option<Instant>,
    last_open: Option<Instant>,
    ready_at: Option<Instant>,
    /// The ends of which nobody was told yet.
    ends: VecDeque<End>,
    /// The last end that was told was by a fault that waiting cannot mend.
    is_lasting: bool,
    /// The epoch that the events speak of.
    told: Epoch,
    next_attempt: Option<Instant>,
    /// Somebody wants the next attempt earlier.
    is_urged: bool,
    /// Since when the present transport is taken down, if the driver was punctual since.
    closing_since: Option<Instant>,
}

impl Lives {
    pub(super) fn new(config: &Config) -> Lives {
        Lives {
            config: config.clone(),
            state: State::Idle,
            all: BTreeMap::new(),
            current: Epoch::NONE,
            is_shut_down: false,
            cause: None,
            first_open: None,
            last_open: None,
            ready_at: None,
            ends: VecDeque::new(),
            is_lasting: false,
            told: Epoch::NONE,
            next_attempt: None,
            is_urged: false,
            closing_since: None,
        }
    }

    /// The state that the events tell.
    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(super) fn is_shut_down(&self) -> bool {
        self.is_shut_down
    }

    /// The end of this life was told to the machine.
    pub(super) fn is_known_to_be_over(&self, epoch: Epoch) -> bool {
        self.all.get(&epoch).is_none_or(Life::is_over)
    }

    fn is_http(&self) -> bool {
        self.config.binding == Binding::Http
    }
}

/// What it is told.
impl Lives {
    pub(super) fn urged(&mut self) {
        self.is_urged = true;
    }

    /// The present server answered a call.
    pub(super) fn answered(&mut self) {
        if let Some(life) = self.all.get_mut(&self.told) {
            life.is_useful = true;
        }
    }

    pub(super) fn reconnect_asked(&mut self, seen: Epoch) {
        if let Some(life) = self.all.get_mut(&seen) {
            life.reconnect_asked = true;
        }
    }

    pub(super) fn shut_down(&mut self) {
        self.is_shut_down = true;
    }

    pub(super) fn disturbed(&mut self) {
        self.closing_since = None;
        self.is_urged = true;
    }

    pub(super) fn input(&mut self, told: Instant, epoch: Epoch, input: &Input<'_>) {
        let is_http = self.is_http();
        let Some(life) = self.all.get_mut(&epoch) else {
            return;
        };
        let real = |faults: &[Fault]| faults.iter().any(|fault| !fault.kind().only_says_closed());
        match input {
            // Who answers with such a status may be somebody in between.
            Input::Response { stream, head } if head.status >= 300 => {
                life.turned_away.insert(*stream);
            }
            Input::Bytes { stream, .. } if life.turned_away.contains(stream) => {}
            Input::Bytes { .. } | Input::Stderr { .. } | Input::Response { .. } => {
                life.hears = Some(told);
            }
            Input::End { faults, .. } => {
                life.has_ended |= !is_http;
                life.is_faulty |= real(faults);
                life.is_unreachable |= is_http && !faults.is_empty();
            }
            Input::Exited { .. } => life.has_exited = true,
            Input::OpenFailed { faults } => {
                life.is_stillborn = true;
                life.is_faulty |= real(faults);
            }
            Input::Opened => life.last_heard = told,
            Input::Sent { len, .. } => life.under_way = life.under_way.saturating_sub(*len),
            Input::WriteFailed { faults, .. } if !is_http => {
                life.is_unwritable = true;
                life.is_faulty |= real(faults);
            }
            _ => {}
        }
    }
}

/// What it sees.
impl Lives {
    pub(super) fn stepped(&mut self, told: Instant, before: &Look, look: &Look) -> Verdict {
        self.costs(told, before, look)?;
        self.opens(told, before, look)?;
        self.called(told, before, look);
        if look.stats.readies > before.stats.readies {
            self.ready_at = Some(told);
        }
        // What comes on an exchange that was given up a moment ago is not heard.
        let is_heard = look.stats.stale_inputs == before.stats.stale_inputs;
        if let Some(life) = self.all.get_mut(&before.epoch) {
            if let Some(heard) = life.hears.take().filter(|_| is_heard) {
                life.last_heard = heard;
            }
        }
        let is_given_up = !is_alive(look.state) || look.state == State::Closing;
        let life = self.all.get_mut(&before.epoch);
        if let Some(life) = life.filter(|_| is_given_up || look.epoch != before.epoch) {
            life.given_up.get_or_insert_with(|| {
                life.was_wanted = before.stats.calls > before.stats.settled;
                told.since(life.last_heard)
            });
        }
        let over = self.all.get(&look.epoch).filter(|life| life.is_over());
        let believes = is_alive(look.state) && look.state != State::Closing;
        hold(Rule::StateIsTruth, over.is_none() || !believes, || {
            format!("{} after the end of {:?}", look.state, over)
        })?;
        if let Some(since) = self.closing_since.filter(|_| look.state == State::Closing) {
            let policy = &self.config.policy;
            let graces = policy.close_grace + policy.terminate_grace + policy.kill_grace;
            let limit = since + graces + LAST_WORDS + TICK * 4;
            hold(Rule::Ladder, told <= limit, || {
                format!("it is being taken down since {since:?}, and it is {told:?}")
            })?;
        }
        Ok(())
    }

    fn opens(&mut self, told: Instant, before: &Look, look: &Look) -> Verdict {
        let opens = look.stats.opens - before.stats.opens;
        if opens == 0 {
            return hold(Rule::EpochsApart, look.epoch == before.epoch, || {
                format!("{} without an open", look.epoch)
            });
        }
        let is_next = look.epoch.number() == before.epoch.number() + 1;
        hold(Rule::OneBudget, opens == 1 && is_next, || {
            format!("{opens} opens in one step, up to {}", look.epoch)
        })?;
        let floor = self.config.policy.retry.floor.max(TICK);
        let earliest = self.last_open.map_or(told, |last| last + floor);
        hold(Rule::OneBudget, told >= earliest, || {
            format!("opened at {told:?}, the floor is at {earliest:?}")
        })?;
        let is_called = look.stats.calls > before.stats.calls;
        let for_calls = Some(self.for_calls(told)).filter(|_| is_called);
        let is_due =
            self.next_attempt.is_none_or(|at| told >= at) || for_calls.is_some_and(|at| told >= at);
        hold(Rule::OneBudget, is_due || self.is_urged, || {
            format!(
                "opened at {told:?}, before {:?}, and nobody wanted it",
                self.next_attempt
            )
        })?;
        self.first_open.get_or_insert(told);
        self.last_open = Some(told);
        self.is_urged = false;
        self.next_attempt = None;
        self.current = look.epoch;
        let life = Life {
            last_heard: told,
            ..Life::default()
        };
        self.all.insert(look.epoch, life);
        // What was let go is not spoken of.
        let current = self.current;
        self.all
            .retain(|epoch, life| !life.is_released || epoch.number() + 1 >= current.number());
        Ok(())
    }

    /// A call that finds no server, and no attempt under way, makes the link look for one, at the pace of calls.
    fn called(&mut self, told: Instant, before: &Look, look: &Look) {
        let is_down = matches!(look.state, State::Waiting | State::Parked);
        if is_down && look.stats.calls > before.stats.calls {
            let at = self.for_calls(told);
            self.next_attempt = self.next_attempt.map(|next| next.min(at));
        }
    }

    /// When calls that wait cause the next attempt.
    fn for_calls(&self, told: Instant) -> Instant {
        let retry = self.config.policy.retry;
        let pace = retry.call_pace.max(retry.floor);
        self.last_open.map_or(told, |last| told.max(last + pace))
    }

    fn costs(&mut self, told: Instant, before: &Look, look: &Look) -> Verdict {
        let counted = look.stats.failures - before.stats.failures;
        let free = look.stats.free_ends - before.stats.free_ends;
        let (was, is) = (before.failures, look.failures);
        let stable_after = self.config.policy.retry.stable_after;
        let good_since = self.ready_at.filter(|_| before.state == State::Ready);
        let is_forgiven = good_since.is_some_and(|since| told >= since + stable_after);
        if counted + free > 0 {
            self.ends.push_back(End {
                at: told,
                is_counted: counted > 0,
                is_last: self.is_shut_down,
                before: was,
                failures: is,
                is_forgiven,
                is_useful: false,
                was_ever_ready: look.stats.readies > 0,
                last_open: self.last_open.unwrap_or_default(),
                had_calls: before.stats.calls > before.stats.settled,
                has_calls: look.stats.calls > look.stats.settled,
            });
            // What is told of it from here on is not heard.
            if let Some(life) = self.all.get_mut(&before.epoch) {
                life.end = Some((life.is_gone(self.config.binding), life.is_faulty));
            }
            self.is_urged = false;
        }
        let rule = if counted == 0 && is > was {
            Rule::PlannedIsFree
        } else {
            Rule::OneBudget
        };
        // What an end costs is judged when it is told: by then it is known whether the epoch answered a call.
        let is_fair = counted > 0 || is == was || is_forgiven && is == 0;
        hold(rule, is_fair && counted + free <= 1, || {
            format!("{was} failures became {is}, with {counted} that count and {free} that do not")
        })
    }

    /// An end costs one attempt, and what was before it is forgiven if the epoch was of use.
    fn cost(&mut self, is_useful: bool) -> Verdict {
        let Some(end) = self.ends.front_mut() else {
            return Ok(());
        };
        let cost = u32::from(!end.is_last);
        end.is_useful = is_useful;
        let is_fair = match () {
            () if !end.is_counted => true,
            () if is_useful && cost > 0 => end.failures == cost,
            () if end.is_forgiven && end.failures == cost => true,
            () => end.failures == end.before + cost,
        };
        hold(Rule::OneBudget, is_fair, || format!("{end:?} costs {cost}"))
    }

    pub(super) fn output(&mut self, told: Instant, output: &Output<Event>, len: usize) -> Verdict {
        match output {
            Output::Open { epoch } => {
                let others = self.all.iter();
                let mut others = others.filter(|(other, life)| *other < epoch && !life.is_released);
                let left = others.next();
                hold(Rule::Ladder, left.is_none(), || {
                    format!("{epoch} is opened, and {left:?} was not let go")
                })?;
                self.life(*epoch)?.was_opened = true;
                Ok(())
            }
            Output::CloseWrite { epoch } => self.climb(*epoch, Rung::CloseWrite),
            Output::Terminate { epoch } => {
                let is_child = self.config.binding == Binding::Child;
                hold(Rule::Ladder, is_child, || {
                    format!("{epoch} is no child that can be asked to end")
                })?;
                self.climb(*epoch, Rung::Terminate)
            }
            Output::Kill { epoch } => self.climb(*epoch, Rung::Kill),
            Output::Release { epoch } => {
                let life = self.life(*epoch)?;
                let is_turn = life.was_opened && life.is_told;
                life.is_released = true;
                hold(Rule::Ladder, is_turn, || {
                    format!("{epoch} is let go before its story was told")
                })
            }
            Output::Write { epoch, .. } => {
                let window = self.config.limits.write_window;
                let life = self.life(*epoch)?;
                life.under_way += len;
                life.largest = life.largest.max(len);
                let (under_way, most) = (life.under_way, window + life.largest);
                let fits = life.was_opened && under_way <= most;
                hold(Rule::PeerCannotHurt, fits, || {
                    format!("{under_way} bytes are under way at {told:?}, {most} may be")
                })
            }
            Output::Abort { epoch, .. } | Output::Request { epoch, .. } => {
                let was_opened = self.life(*epoch)?.was_opened;
                hold(Rule::EpochsApart, was_opened, || {
                    format!("{output:?} before {epoch} was opened")
                })
            }
            _ => Ok(()),
        }
    }

    /// A life that may still be spoken of.
    fn life(&mut self, epoch: Epoch) -> Result<&mut Life, super::Broken> {
        let life = self.all.get_mut(&epoch).filter(|life| !life.is_released);
        life.ok_or_else(|| super::Broken {
            rule: Rule::EpochsApart,
            what: format!("{epoch} is spoken of, and it was let go"),
        })
    }

    fn climb(&mut self, epoch: Epoch, rung: Rung) -> Verdict {
        let state = self.state;
        let life = self.life(epoch)?;
        let is_upwards = life.was_opened && rung >= life.rung && state == State::Closing;
        let before = life.rung;
        life.rung = rung;
        hold(Rule::Ladder, is_upwards, || {
            format!("{rung:?} after {before:?} while {state}")
        })
    }

    pub(super) fn event(&mut self, told: Instant, event: &Event, saw_error: bool) -> Verdict {
        let Some(state) = event.state() else {
            return match event {
                Event::Ended(ended) => self.ended(ended),
                Event::Silent { epoch, silent } => self.silent(*epoch, *silent),
                Event::Responsive { epoch, .. } => {
                    let was_silent = std::mem::take(&mut self.life(*epoch)?.is_silent);
                    hold(Rule::AnyByteIsLife, was_silent, || {
                        format!("{epoch} speaks again, and its silence was not told")
                    })
                }
                _ => Ok(()),
            };
        };
        self.enter(state)?;
        match event {
            Event::Draining { epoch, cause } | Event::Closing { epoch, cause } => {
                let is_drained = state == State::Closing && self.cause.is_some();
                if !is_drained {
                    self.closing(*epoch, cause, saw_error)?;
                }
                if state == State::Closing {
                    self.closing_since = Some(told);
                }
                Ok(())
            }
            Event::Opening { epoch, .. } => {
                self.told = *epoch;
                self.cause = None;
                self.closing_since = None;
                Ok(())
            }
            Event::Waiting {
                until, failures, ..
            } => self.waiting(*until, *failures),
            Event::Parked { until } => self.parked(*until),
            Event::Closed => self.closed(),
            _ => Ok(()),
        }
    }

    fn enter(&mut self, state: State) -> Verdict {
        use State::{
            Closed, Closing, Draining, Handshaking, Idle, Opening, Parked, Ready, Waiting,
        };
        let from = std::mem::replace(&mut self.state, state);
        let may_follow = match state {
            Opening => matches!(from, Idle | Waiting | Parked),
            Handshaking => from == Opening,
            Ready => from == Handshaking,
            Draining => from == Ready,
            Closing => matches!(from, Opening | Handshaking | Ready | Draining),
            Waiting | Parked => from == Closing,
            Closed => matches!(from, Closing | Idle | Waiting | Parked),
            _ => false,
        };
        hold(Rule::StateIsTruth, may_follow, || {
            format!("{state} after {from}")
        })
    }

    fn closing(&mut self, epoch: Epoch, cause: &Cause, saw_error: bool) -> Verdict {
        let (is_shut_down, is_http) = (self.is_shut_down, self.is_http());
        let hang = self.config.policy.hang;
        self.cause = Some(cause.clone());
        let life = self.life(epoch)?;
        let died = life.is_over() || life.is_unwritable || is_http;
        let (is_true, is_planned) = match cause {
            Cause::AskedTo { .. } => (life.reconnect_asked, true),
            Cause::EraProbe => (died, true),
            Cause::Shutdown => (is_shut_down, true),
            Cause::Died => (died, false),
            Cause::OpenFailed => (life.is_stillborn, false),
            Cause::Unauthorized => (is_http, true),
            Cause::SessionLost | Cause::Unavailable { .. } => (is_http, false),
            Cause::Unreachable => (life.is_unreachable, false),
            _ => (true, false),
        };
        life.is_planned = is_planned;
        let rule = match cause {
            _ if saw_error => Rule::ErrorsAreHealth,
            Cause::AskedTo { .. } => Rule::OneOwner,
            _ => Rule::StateIsTruth,
        };
        hold(rule, is_true, || {
            format!("{epoch} is taken down because {cause}, and that is not so: {life:?}")
        })?;
        if let Cause::Unresponsive { sign, .. } = cause {
            hold(Rule::AnyByteIsLife, life.was_wanted, || {
                format!("{epoch} is given up for its silence, and nothing was wanted of it")
            })?;
            // One that only says that it has lost its session is as good as silent.
            if *sign == Sign::Wedged {
                return Ok(());
            }
            let silent = life.given_up.unwrap_or_default();
            let patience = hang.map_or(Duration::MAX, |hang| hang.timeout);
            return hold(Rule::AnyByteIsLife, silent >= patience, || {
                format!("{epoch} is given up after a silence of {silent:?}, not {patience:?}")
            });
        }
        Ok(())
    }

    fn ended(&mut self, ended: &Ended) -> Verdict {
        let binding = self.config.binding;
        hold(Rule::ErrorsSpeak, !ended.to_string().is_empty(), || {
            format!("{ended:?} is told without a word")
        })?;
        // A socket comes to be when its server starts.
        let is_to_come = |kind| binding == Binding::Socket && kind == FaultKind::NotFound;
        let mut kinds = ended.faults.iter().map(Fault::kind);
        self.is_lasting = kinds.any(|kind| kind.is_lasting() && !is_to_come(kind));
        let life = self.life(ended.epoch)?;
        let was_told = std::mem::replace(&mut life.is_told, true);
        hold(Rule::StateIsTruth, !was_told, || {
            format!("{} ends twice", ended.epoch)
        })?;
        let is_useful = life.is_useful;
        self.cost(is_useful)?;
        let life = self.life(ended.epoch)?;
        let (is_gone, is_faulty) = life.end.unwrap_or_default();
        if binding == Binding::Http {
            // What was no part of a message costs nothing, so not every fault counts; and a session that was good may be forgotten.
            let may_be_free = life.is_planned || ended.cause == Cause::SessionLost;
            let may_cost = !life.is_planned || is_faulty;
            let is_fair = if ended.counted { may_cost } else { may_be_free };
            return hold(Rule::PlannedIsFree, is_fair, || {
                format!("{ended:?} of {life:?}")
            });
        }
        let costs = !life.is_planned || is_faulty || ended.abandoned;
        hold(Rule::PlannedIsFree, ended.counted == costs, || {
            format!("{ended:?} of {life:?}")
        })?;
        let is_in_turn = if ended.abandoned {
            life.rung == Rung::Kill && !is_gone
        } else {
            is_gone
        };
        hold(Rule::Ladder, is_in_turn, || {
            format!("{ended:?} of {life:?}")
        })
    }

    /// A silence is told once, and not before a probe was missed.
    fn silent(&mut self, epoch: Epoch, silent: Duration) -> Verdict {
        let policy = &self.config.policy;
        let timeout = policy.keepalive.map_or(Duration::MAX, |it| it.timeout);
        let least = policy
            .hang
            .map_or(timeout, |it| timeout.min(it.timeout / 3));
        let was_silent = std::mem::replace(&mut self.life(epoch)?.is_silent, true);
        hold(Rule::AnyByteIsLife, !was_silent && silent >= least, || {
            format!("{epoch} is said to be silent for {silent:?}, and was before: {was_silent}")
        })
    }

    /// What the last end says of the first attempts.
    fn start(&self, end: &End) -> Start {
        if end.was_ever_ready || !end.is_counted {
            return Start::Open;
        }
        match self.cause {
            Some(Cause::OpenFailed | Cause::Unreachable) if self.is_lasting => Start::Hopeless,
            Some(Cause::HandshakeRefused { .. }) => Start::Hopeless,
            Some(Cause::Died) if self.config.binding == Binding::Child => Start::Brief,
            _ => Start::Open,
        }
    }

    /// Until when a process that ends by itself is started again, while the link was never ready.
    fn starts_until(&self) -> Instant {
        let first = self.first_open.unwrap_or_default();
        first + self.config.policy.retry.start_for
    }

    /// The shortest and the longest pause after this many failures.
    fn backoff(&self, failures: u32) -> (Duration, Duration) {
        let retry = self.config.policy.retry;
        let doublings = failures.saturating_sub(1).min(20);
        let pause = retry.first.saturating_mul(1 << doublings).min(retry.cap);
        (pause / 2, pause)
    }

    /// An attempt comes between the ends of this pause, or at the pace of calls where some wait.
    fn pauses(&self, end: &End, until: Instant, (least, most): (Duration, Duration)) -> Verdict {
        let retry = self.config.policy.retry;
        let (mut earliest, mut latest) = (end.at + least, end.at + most);
        let for_calls = end.at.max(end.last_open + retry.call_pace);
        if end.had_calls || end.has_calls {
            earliest = earliest.min(for_calls);
        }
        if end.has_calls {
            latest = latest.min(for_calls);
        }
        latest = latest.max(end.last_open + retry.floor.max(TICK));
        // A server over HTTP can ask to be left alone for longer.
        if let Some(http) = &self.config.http {
            latest = latest.max(end.at + http.retry_after_most);
        }
        hold(
            Rule::OneBudget,
            (earliest..=latest).contains(&until),
            || {
                format!(
                    "the next attempt is at {until:?}, not from {earliest:?} to {latest:?}: {end:?}"
                )
            },
        )
    }

    fn waiting(&mut self, until: Instant, failures: u32) -> Verdict {
        let budget = self.config.policy.retry.budget;
        let end = self.ends.pop_front().unwrap_or_default();
        self.next_attempt = Some(until);
        let has_left = !end.is_counted || failures <= budget;
        hold(Rule::OneBudget, has_left, || {
            format!("it waits after {failures} failures, of {budget}")
        })?;
        let may_start = match self.start(&end) {
            Start::Open => true,
            Start::Brief => until <= self.starts_until(),
            Start::Hopeless => false,
        };
        hold(Rule::OneBudget, may_start, || {
            format!("it was never ready and tries again at {until:?}: {end:?}")
        })?;
        let pause = if end.is_counted && !end.is_useful {
            self.backoff(failures)
        } else {
            (Duration::ZERO, Duration::ZERO)
        };
        self.pauses(&end, until, pause)
    }

    fn parked(&mut self, until: Instant) -> Verdict {
        let retry = self.config.policy.retry;
        self.next_attempt = Some(until);
        let end = self.ends.pop_front().unwrap_or_default();
        let start = self.start(&end);
        let is_shut_out = self.cause == Some(Cause::Unauthorized);
        let next = end.at + self.backoff(end.failures).1;
        let next = next.max(end.last_open + retry.floor.max(TICK));
        let may = match start {
            Start::Open => is_shut_out || end.failures > retry.budget,
            Start::Brief => end.failures > retry.budget || next > self.starts_until(),
            Start::Hopeless => true,
        };
        hold(Rule::OneBudget, may, || {
            format!("it is parked, and has attempts left: {end:?}")
        })?;
        let is_vain = start != Start::Open || is_shut_out;
        hold(Rule::OneOutcome, !is_vain || !end.has_calls, || {
            format!("calls wait for what cannot be mended by waiting: {end:?}")
        })?;
        match retry.when_spent {
            WhenSpent::Park { probe } => self.pauses(&end, until, (probe / 2, probe)),
            _ => hold(Rule::OneBudget, false, || {
                "it is parked, against the policy".to_owned()
            }),
        }
    }

    fn closed(&self) -> Verdict {
        let is_final = self.config.policy.retry.when_spent == WhenSpent::Close;
        hold(Rule::OneBudget, self.is_shut_down || is_final, || {
            "it closed by itself, against the policy".to_owned()
        })?;
        let left = self.all.iter().find(|(_, life)| !life.is_released);
        hold(Rule::Ladder, left.is_none(), || {
            format!("it is closed, and {left:?} was not let go")
        })
    }
}
