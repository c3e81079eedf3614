//! Checks transports: how they are opened, closed and counted, and the state of the link. Must not depend on calls.

mod events;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use everlink::client::{Cause, Event, State};
use everlink::{BindingKind, Config, Epoch, Fault, Input, Instant, LAST_WORDS, Output, StreamId};

use super::{Rule, TICK, check};
use crate::subject::Snapshot;

/// Whether a transport exists in this state.
pub(crate) fn is_alive(state: State) -> bool {
    use State::{Closing, Draining, Handshaking, Opening, Ready};
    matches!(state, Opening | Handshaking | Ready | Draining | Closing)
}

/// The last step of closing a transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum CloseStep {
    #[default]
    None,
    CloseWrite,
    Terminate,
    Kill,
}

#[derive(Debug, Default)]
struct EpochRecord {
    // Inputs about the transport.
    has_ended: bool,
    has_exited: bool,
    /// When the first of the two was reported.
    first_sign: Option<Instant>,
    open_failed: bool,
    is_unwritable: bool,
    is_faulty: bool,
    /// A server over HTTP could not be reached.
    is_unreachable: bool,
    reconnect_asked: bool,
    last_heard: Instant,
    /// When it last received something in the current step.
    heard_in_step: Option<Instant>,
    refused_streams: BTreeSet<StreamId>,
    /// How long it had been silent when the machine gave it up.
    silent_when_given_up: Option<Duration>,
    /// At its end: whether nothing was left of it, and whether it had a fault.
    end: Option<(bool, bool)>,
    unsent_bytes: usize,
    largest: usize,
    // Outputs of the machine about the transport.
    was_opened: bool,
    close_step: CloseStep,
    is_planned: bool,
    is_reported: bool,
    is_released: bool,
    /// It answered a call.
    is_useful: bool,
    /// A call was open when the machine gave it up.
    was_wanted: bool,
    /// Its silence was reported, and the end of that silence was not.
    is_silent: bool,
}

/// The end of an epoch, as it was when the machine counted it.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    at: Instant,
    is_counted: bool,
    /// The link was shut down, so no attempt follows.
    is_last: bool,
    /// The failures in a row, without this one and with it.
    before: u32,
    failures: u32,
    /// The epoch was ready for long enough to reset the failures before it.
    is_forgiven: bool,
    /// The epoch answered a call, which resets them, too.
    is_useful: bool,
    was_ever_ready: bool,
    last_open: Instant,
    /// Whether calls were open before it, and after it.
    had_calls: bool,
    has_calls: bool,
}

/// How the end of an epoch affects the next attempt, if the link was never ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outlook {
    /// The next attempt may succeed.
    Normal,
    /// A process exited on its own. It is restarted only for a limited time.
    Brief,
    /// Waiting cannot help.
    Hopeless,
}

impl EpochRecord {
    /// Whether nothing is left of it.
    fn is_gone(&self, binding: BindingKind) -> bool {
        let is_reaped = self.has_exited || binding == BindingKind::Socket;
        self.open_failed || self.has_ended && is_reaped
    }

    fn is_over(&self) -> bool {
        self.has_ended || self.has_exited || self.open_failed || self.is_released
    }

    /// Whether its requests must have ended. The end of a child's output and its exit wait for each other only for a short time, which a
    /// machine that was `told` the time knows.
    fn is_lost(&self, told: Option<Instant>, binding: BindingKind) -> bool {
        let waits_until = self.first_sign.map(|sign| sign + LAST_WORDS);
        let is_late = waits_until.is_some_and(|until| told >= Some(until));
        self.is_released || self.is_gone(binding) || is_late
    }
}

#[derive(Debug)]
pub(super) struct Epochs {
    config: Config,
    state: State,
    all: BTreeMap<Epoch, EpochRecord>,
    current: Epoch,
    is_shut_down: bool,
    cause: Option<Cause>,
    first_open: Option<Instant>,
    last_open: Option<Instant>,
    ready_at: Option<Instant>,
    /// Ends that no event has reported yet.
    ends: VecDeque<End>,
    /// The last reported end has a fault that waiting cannot fix.
    is_permanent: bool,
    /// The epoch of the latest events.
    event_epoch: Epoch,
    next_attempt: Option<Instant>,
    /// The application asked for an earlier attempt.
    early_allowed: bool,
    /// When the current close started, if the driver was on time since then.
    closing_since: Option<Instant>,
}

impl Epochs {
    pub(super) fn new(config: &Config) -> Epochs {
        Epochs {
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
            is_permanent: false,
            event_epoch: Epoch::NONE,
            next_attempt: None,
            early_allowed: false,
            closing_since: None,
        }
    }

    /// The state according to the events.
    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(super) fn is_shut_down(&self) -> bool {
        self.is_shut_down
    }

    /// Whether nothing may be open any more that was asked in this epoch.
    pub(super) fn is_lost(&self, told: Option<Instant>, epoch: Epoch) -> bool {
        let binding = self.config.binding.kind();
        let record = self.all.get(&epoch);
        record.is_none_or(|record| record.is_lost(told, binding))
    }

    fn is_http(&self) -> bool {
        self.config.binding.kind() == BindingKind::Http
    }
}

/// Inputs of the oracle.
impl Epochs {
    pub(super) fn allow_early_attempt(&mut self) {
        self.early_allowed = true;
    }

    /// Marks the current epoch: its server answered a call.
    pub(super) fn record_answer(&mut self) {
        if let Some(record) = self.all.get_mut(&self.event_epoch) {
            record.is_useful = true;
        }
    }

    pub(super) fn reconnect_asked(&mut self, seen: Epoch) {
        if let Some(record) = self.all.get_mut(&seen) {
            record.reconnect_asked = true;
        }
    }

    pub(super) fn shut_down(&mut self) {
        self.is_shut_down = true;
    }

    pub(super) fn skip_timing(&mut self) {
        self.closing_since = None;
        self.early_allowed = true;
    }

    pub(super) fn input(&mut self, now: Instant, epoch: Epoch, input: &Input<'_>) {
        let is_http = self.is_http();
        let Some(record) = self.all.get_mut(&epoch) else {
            return;
        };
        let has_real_fault =
            |faults: &[Fault]| faults.iter().any(|fault| !fault.kind().only_says_closed());
        match input {
            // A proxy may have sent such a status, so it is no sign of the server.
            Input::Response { stream, head } if head.status >= 300 => {
                record.refused_streams.insert(*stream);
            }
            Input::Bytes { stream, .. } if record.refused_streams.contains(stream) => {}
            Input::Bytes { .. } | Input::Stderr { .. } | Input::Response { .. } => {
                record.heard_in_step = Some(now);
            }
            Input::End { faults, .. } => {
                record.has_ended |= !is_http;
                record.first_sign = record.first_sign.or(Some(now).filter(|_| !is_http));
                record.is_faulty |= has_real_fault(faults);
                record.is_unreachable |= is_http && !faults.is_empty();
            }
            Input::Exited { .. } => {
                record.has_exited = true;
                record.first_sign.get_or_insert(now);
            }
            Input::OpenFailed { faults } => {
                record.open_failed = true;
                record.is_faulty |= has_real_fault(faults);
            }
            Input::Opened => record.last_heard = now,
            Input::Sent { len, .. } => {
                record.unsent_bytes = record.unsent_bytes.saturating_sub(*len)
            }
            Input::WriteFailed { faults, .. } if !is_http => {
                record.is_unwritable = true;
                record.is_faulty |= has_real_fault(faults);
            }
            _ => {}
        }
    }
}

/// Checks of the oracle.
impl Epochs {
    pub(super) fn check_step(&mut self, now: Instant, before: &Snapshot, snapshot: &Snapshot) {
        self.check_failure_count(now, before, snapshot);
        self.check_open(now, before, snapshot);
        self.record_call(now, before, snapshot);
        if snapshot.stats.readies > before.stats.readies {
            self.ready_at = Some(now);
        }
        // The machine ignores input of an exchange that it just gave up.
        let is_heard = snapshot.stats.stale_inputs == before.stats.stale_inputs;
        if let Some(record) = self.all.get_mut(&before.epoch) {
            if let Some(heard) = record.heard_in_step.take().filter(|_| is_heard) {
                record.last_heard = heard;
            }
        }
        let is_given_up = !is_alive(snapshot.state) || snapshot.state == State::Closing;
        let record = self.all.get_mut(&before.epoch);
        if let Some(record) = record.filter(|_| is_given_up || snapshot.epoch != before.epoch) {
            record.silent_when_given_up.get_or_insert_with(|| {
                record.was_wanted = before.stats.calls > before.stats.settled;
                now.since(record.last_heard)
            });
        }
        let finished = self
            .all
            .get(&snapshot.epoch)
            .filter(|record| record.is_over());
        let claims_alive = is_alive(snapshot.state) && snapshot.state != State::Closing;
        check(
            Rule::StateIsTruth,
            finished.is_none() || !claims_alive,
            || format!("{} after the end of {:?}", snapshot.state, finished),
        );
        if let Some(since) = self
            .closing_since
            .filter(|_| snapshot.state == State::Closing)
        {
            let policy = &self.config.policy;
            let all_graces = policy.close_grace + policy.terminate_grace + policy.kill_grace;
            let limit = since + all_graces + LAST_WORDS + TICK * 4;
            check(Rule::CloseSteps, now <= limit, || {
                format!("it is closing since {since:?}, and it is {now:?}")
            });
        }
    }

    fn check_open(&mut self, now: Instant, before: &Snapshot, snapshot: &Snapshot) {
        let opens = snapshot.stats.opens - before.stats.opens;
        if opens == 0 {
            return check(Rule::EpochsDoNotMix, snapshot.epoch == before.epoch, || {
                format!("{} without an open", snapshot.epoch)
            });
        }
        let is_next = snapshot.epoch.number() == before.epoch.number() + 1;
        check(Rule::OneBudget, opens == 1 && is_next, || {
            format!("{opens} opens in one step, up to {}", snapshot.epoch)
        });
        let floor = self.config.policy.retry.floor.max(TICK);
        let earliest = self.last_open.map_or(now, |last| last + floor);
        check(Rule::OneBudget, now >= earliest, || {
            format!("opened at {now:?}, the floor is at {earliest:?}")
        });
        let is_called = snapshot.stats.calls > before.stats.calls;
        let for_calls = Some(self.for_calls(now)).filter(|_| is_called);
        let is_due =
            self.next_attempt.is_none_or(|at| now >= at) || for_calls.is_some_and(|at| now >= at);
        check(Rule::OneBudget, is_due || self.early_allowed, || {
            format!(
                "opened at {now:?}, before {:?}, without a request",
                self.next_attempt
            )
        });
        self.first_open.get_or_insert(now);
        self.last_open = Some(now);
        self.early_allowed = false;
        self.next_attempt = None;
        self.current = snapshot.epoch;
        let record = EpochRecord {
            last_heard: now,
            ..EpochRecord::default()
        };
        self.all.insert(snapshot.epoch, record);
        // A released epoch may not be referred to any more.
        let current = self.current;
        self.all
            .retain(|epoch, record| !record.is_released || epoch.number() + 1 >= current.number());
    }

    /// A call without a server or an attempt moves the next attempt forward, to the pace of calls.
    fn record_call(&mut self, now: Instant, before: &Snapshot, snapshot: &Snapshot) {
        let is_down = matches!(snapshot.state, State::Waiting | State::Parked);
        if is_down && snapshot.stats.calls > before.stats.calls {
            let at = self.for_calls(now);
            self.next_attempt = self.next_attempt.map(|next| next.min(at));
        }
    }

    /// The time at which waiting calls cause the next attempt.
    fn for_calls(&self, now: Instant) -> Instant {
        let retry = self.config.policy.retry;
        let pace = retry.call_pace.max(retry.floor);
        self.last_open.map_or(now, |last| now.max(last + pace))
    }

    fn check_failure_count(&mut self, now: Instant, before: &Snapshot, snapshot: &Snapshot) {
        let counted = snapshot.stats.failures - before.stats.failures;
        let free = snapshot.stats.free_ends - before.stats.free_ends;
        let (was, is) = (before.failures, snapshot.failures);
        let stable_after = self.config.policy.retry.stable_after;
        let good_since = self.ready_at.filter(|_| before.state == State::Ready);
        let is_forgiven = good_since.is_some_and(|since| now >= since + stable_after);
        if counted + free > 0 {
            self.ends.push_back(End {
                at: now,
                is_counted: counted > 0,
                is_last: self.is_shut_down,
                before: was,
                failures: is,
                is_forgiven,
                is_useful: false,
                was_ever_ready: snapshot.stats.readies > 0,
                last_open: self.last_open.unwrap_or_default(),
                had_calls: before.stats.calls > before.stats.settled,
                has_calls: snapshot.stats.calls > snapshot.stats.settled,
            });
            // The machine ignores later input of this epoch.
            if let Some(record) = self.all.get_mut(&before.epoch) {
                record.end = Some((record.is_gone(self.config.binding.kind()), record.is_faulty));
            }
            self.early_allowed = false;
        }
        let rule = if counted == 0 && is > was {
            Rule::PlannedIsFree
        } else {
            Rule::OneBudget
        };
        // The cost is checked when the end is reported. Only then is it known whether the epoch answered a call.
        let is_fair = counted > 0 || is == was || is_forgiven && is == 0;
        check(rule, is_fair && counted + free <= 1, || {
            format!("{was} failures became {is}, with {counted} that count and {free} that do not")
        })
    }

    /// Checks the cost of an end: one attempt. Earlier failures are reset if the epoch was useful.
    fn check_end_cost(&mut self, is_useful: bool) {
        let Some(end) = self.ends.front_mut() else {
            return;
        };
        let cost = u32::from(!end.is_last);
        end.is_useful = is_useful;
        let is_fair = match () {
            () if !end.is_counted => true,
            () if is_useful && cost > 0 => end.failures == cost,
            () if end.is_forgiven && end.failures == cost => true,
            () => end.failures == end.before + cost,
        };
        check(Rule::OneBudget, is_fair, || format!("{end:?} costs {cost}"))
    }

    pub(super) fn check_output(&mut self, now: Instant, output: &Output<Event>, len: usize) {
        match output {
            Output::Open { epoch } => {
                let others = self.all.iter();
                let mut others =
                    others.filter(|(other, record)| *other < epoch && !record.is_released);
                let left = others.next();
                check(Rule::CloseSteps, left.is_none(), || {
                    format!("{epoch} is opened, and {left:?} was not released")
                });
                self.open_record(*epoch).was_opened = true;
            }
            Output::CloseWrite { epoch } => self.enter_close_step(*epoch, CloseStep::CloseWrite),
            Output::Terminate { epoch } => {
                let is_child = self.config.binding.kind() == BindingKind::Child;
                check(Rule::CloseSteps, is_child, || {
                    format!("{epoch} is no child that can be terminated")
                });
                self.enter_close_step(*epoch, CloseStep::Terminate)
            }
            Output::Kill { epoch } => self.enter_close_step(*epoch, CloseStep::Kill),
            Output::Release { epoch } => {
                let record = self.open_record(*epoch);
                let is_in_order = record.was_opened && record.is_reported;
                record.is_released = true;
                check(Rule::CloseSteps, is_in_order, || {
                    format!("{epoch} is released before its end was reported")
                })
            }
            Output::Write { epoch, .. } => {
                let window = self.config.limits.write_window;
                let record = self.open_record(*epoch);
                record.unsent_bytes += len;
                record.largest = record.largest.max(len);
                let (unsent_bytes, most) = (record.unsent_bytes, window + record.largest);
                let fits = record.was_opened && unsent_bytes <= most;
                check(Rule::PeerIsHarmless, fits, || {
                    format!("{unsent_bytes} bytes are under way at {now:?}, {most} may be")
                })
            }
            Output::Abort { epoch, .. } | Output::Request { epoch, .. } => {
                let was_opened = self.open_record(*epoch).was_opened;
                check(Rule::EpochsDoNotMix, was_opened, || {
                    format!("{output:?} before {epoch} was opened")
                })
            }
            _ => (),
        }
    }

    /// The record of an epoch that was not released.
    fn open_record(&mut self, epoch: Epoch) -> &mut EpochRecord {
        let record = self
            .all
            .get_mut(&epoch)
            .filter(|record| !record.is_released);
        record.unwrap_or_else(|| panic!("(3) {epoch} is used after its release"))
    }

    fn enter_close_step(&mut self, epoch: Epoch, close_step: CloseStep) {
        let state = self.state;
        let record = self.open_record(epoch);
        let is_in_order =
            record.was_opened && close_step >= record.close_step && state == State::Closing;
        let before = record.close_step;
        record.close_step = close_step;
        check(Rule::CloseSteps, is_in_order, || {
            format!("{close_step:?} after {before:?} while {state}")
        })
    }
}
