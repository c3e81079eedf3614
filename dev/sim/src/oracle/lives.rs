//! What must hold of transports: how they are asked for, taken down and paid for, and what state that is. Sees no call.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use everlink::client::{Cause, Ended, Event, Sign, State};
use everlink::{
    Binding, Config, Epoch, Fault, Input, Instant, LAST_WORDS, Output, StreamId, WhenSpent,
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
    /// It answered a call, as far as was told.
    is_useful: bool,
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
    last_open: Option<Instant>,
    ready_at: Option<Instant>,
    /// When lives have ended of which nobody was told yet, and whether that cost an attempt.
    ends: VecDeque<(Instant, bool)>,
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
            last_open: None,
            ready_at: None,
            ends: VecDeque::new(),
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
        if let Some(life) = self.all.get_mut(&self.current) {
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

    pub(super) fn input(&mut self, told: Instant, input: &Input<'_>) {
        let is_http = self.is_http();
        let Some(life) = self.all.get_mut(&self.current) else {
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
        self.opens(told, before, look)?;
        self.costs(told, before, look)?;
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
            life.given_up.get_or_insert(told.since(life.last_heard));
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
        let is_due = self.next_attempt.is_none_or(|at| told >= at);
        hold(Rule::OneBudget, is_due || self.is_urged, || {
            format!(
                "opened at {told:?}, before {:?}, and nobody wanted it",
                self.next_attempt
            )
        })?;
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

    fn costs(&mut self, told: Instant, before: &Look, look: &Look) -> Verdict {
        let counted = look.stats.failures - before.stats.failures;
        let free = look.stats.free_ends - before.stats.free_ends;
        if counted + free > 0 {
            self.ends.push_back((told, counted > 0));
            // What is told of it from here on is not heard.
            if let Some(life) = self.all.get_mut(&before.epoch) {
                life.end = Some((life.is_gone(self.config.binding), life.is_faulty));
            }
            self.is_urged = false;
        }
        let (was, is) = (before.failures, look.failures);
        let stable_after = self.config.policy.retry.stable_after;
        let good_since = self.ready_at.filter(|_| before.state == State::Ready);
        let is_forgiven = good_since.is_some_and(|since| told >= since + stable_after);
        let cost = u32::from(counted > 0 && !self.is_shut_down);
        let is_useful = self.all.get(&before.epoch).is_some_and(|it| it.is_useful);
        let is_fair = is == was + cost || (is_forgiven || counted > 0 && is_useful) && is == cost;
        let rule = if counted == 0 && is > was {
            Rule::PlannedIsFree
        } else {
            Rule::OneBudget
        };
        hold(rule, is_fair && counted + free <= 1, || {
            format!("{was} failures became {is}, with {counted} that count and {free} that do not")
        })
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
            Event::Opening { .. } => {
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
        let life = self.life(ended.epoch)?;
        let was_told = std::mem::replace(&mut life.is_told, true);
        hold(Rule::StateIsTruth, !was_told, || {
            format!("{} ends twice", ended.epoch)
        })?;
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

    fn waiting(&mut self, until: Instant, failures: u32) -> Verdict {
        let retry = self.config.policy.retry;
        let (since, is_counted) = self.ends.pop_front().unwrap_or_default();
        let has_left = !is_counted || failures <= retry.budget;
        hold(Rule::OneBudget, has_left, || {
            format!("it waits after {failures} failures, of {}", retry.budget)
        })?;
        let doubled = retry
            .first
            .saturating_mul(1 << failures.saturating_sub(1).min(20));
        let least = doubled.min(retry.cap) / 2;
        let least = if is_counted { least } else { Duration::ZERO };
        let most = self.longest_pause(retry.cap);
        let fits = until >= since + least && until <= since + most;
        self.next_attempt = Some(until);
        hold(Rule::OneBudget, fits, || {
            format!("after {failures} failures it waits from {since:?} to {until:?}")
        })
    }

    fn parked(&mut self, until: Instant) -> Verdict {
        self.next_attempt = Some(until);
        let (since, _) = self.ends.pop_front().unwrap_or_default();
        let may = match self.config.policy.retry.when_spent {
            WhenSpent::Park { probe, .. } => until <= since + self.longest_pause(probe),
            _ => false,
        };
        hold(Rule::OneBudget, may, || {
            format!("it is parked from {since:?} to {until:?}")
        })
    }

    /// A server over HTTP can ask to be left alone for longer.
    fn longest_pause(&self, pause: Duration) -> Duration {
        let http = self.config.http.as_ref();
        let asked = http.map_or(Duration::ZERO, |http| http.retry_after_most);
        let floor = self.config.policy.retry.floor.max(TICK);
        pause.max(asked).max(floor)
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
