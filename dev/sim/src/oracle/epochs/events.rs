//! Checks the events about the state of the link and the ends of epochs.

use std::time::Duration;

use everlink::client::{Cause, Ended, Event, Sign, State};
use everlink::{BindingKind, Epoch, Fault, FaultKind, Instant, WhenSpent};

use super::super::{Rule, TICK, check};
use super::{CloseStep, End, Epochs, Outlook};

impl Epochs {
    pub(in super::super) fn check_event(&mut self, now: Instant, event: &Event, saw_error: bool) {
        let Some(state) = event.state() else {
            return match event {
                Event::Ended(ended) => self.check_ended(ended),
                Event::Silent { epoch, silent } => self.check_silent(*epoch, *silent),
                Event::Responsive { epoch, .. } => {
                    let was_silent = std::mem::take(&mut self.open_record(*epoch).is_silent);
                    check(Rule::AnyByteIsLife, was_silent, || {
                        format!("{epoch} is responsive again, and its silence was not reported")
                    })
                }
                _ => (),
            };
        };
        self.check_transition(state);
        match event {
            Event::Draining { epoch, cause } | Event::Closing { epoch, cause } => {
                let was_draining = state == State::Closing && self.cause.is_some();
                if !was_draining {
                    self.check_closing(*epoch, cause, saw_error);
                }
                if state == State::Closing {
                    self.closing_since = Some(now);
                }
            }
            Event::Opening { epoch, .. } => {
                self.event_epoch = *epoch;
                self.cause = None;
                self.closing_since = None;
            }
            Event::Waiting {
                until, failures, ..
            } => self.check_waiting(*until, *failures),
            Event::Parked { until } => self.check_parked(*until),
            Event::Closed => self.check_closed(),
            _ => (),
        }
    }

    fn check_transition(&mut self, state: State) {
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
        check(Rule::StateIsTruth, may_follow, || {
            format!("{state} after {from}")
        })
    }

    fn check_closing(&mut self, epoch: Epoch, cause: &Cause, saw_error: bool) {
        let (is_shut_down, is_http) = (self.is_shut_down, self.is_http());
        let hang = self.config.policy.hang;
        self.cause = Some(cause.clone());
        let record = self.open_record(epoch);
        let died = record.is_over() || record.is_unwritable || is_http;
        let (is_true, is_planned) = match cause {
            Cause::AskedTo { .. } => (record.reconnect_asked, true),
            Cause::EraProbe => (died, true),
            Cause::Shutdown => (is_shut_down, true),
            Cause::Died => (died, false),
            Cause::OpenFailed => (record.open_failed, false),
            Cause::Unauthorized => (is_http, true),
            Cause::SessionLost | Cause::Unavailable { .. } => (is_http, false),
            Cause::Unreachable => (record.is_unreachable, false),
            _ => (true, false),
        };
        record.is_planned = is_planned;
        let rule = match cause {
            _ if saw_error => Rule::ErrorsAreHealth,
            Cause::AskedTo { .. } => Rule::OneOwner,
            _ => Rule::StateIsTruth,
        };
        check(rule, is_true, || {
            format!("{epoch} is closed because {cause}, and that is not true: {record:?}")
        });
        if let Cause::Unresponsive { sign, .. } = cause {
            check(Rule::AnyByteIsLife, record.was_wanted, || {
                format!("{epoch} is given up for its silence, and no call waited for it")
            });
            // A server that only reports a lost session counts as silent.
            if *sign == Sign::Wedged {
                return;
            }
            let silent = record.silent_when_given_up.unwrap_or_default();
            let hang_timeout = hang.map_or(Duration::MAX, |hang| hang.timeout);
            check(Rule::AnyByteIsLife, silent >= hang_timeout, || {
                format!("{epoch} is given up after a silence of {silent:?}, not {hang_timeout:?}")
            });
        }
    }

    fn check_ended(&mut self, ended: &Ended) {
        let binding = self.config.binding.kind();
        check(Rule::ErrorTexts, !ended.to_string().is_empty(), || {
            format!("{ended:?} has no text")
        });
        // A socket file appears when its server starts.
        let may_appear = |kind| binding == BindingKind::Socket && kind == FaultKind::NotFound;
        let mut kinds = ended.faults.iter().map(Fault::kind);
        self.is_permanent = kinds.any(|kind| kind.is_lasting() && !may_appear(kind));
        let record = self.open_record(ended.epoch);
        let was_reported = std::mem::replace(&mut record.is_reported, true);
        check(Rule::StateIsTruth, !was_reported, || {
            format!("{} ends twice", ended.epoch)
        });
        let is_useful = record.is_useful;
        self.check_end_cost(is_useful);
        let record = self.open_record(ended.epoch);
        let (is_gone, is_faulty) = record.end.unwrap_or_default();
        if binding == BindingKind::Http {
            // Faults outside of a message cost nothing, so not every fault counts. A lost session may be free if it was good before.
            let may_be_free = record.is_planned || ended.cause == Cause::SessionLost;
            let may_cost = !record.is_planned || is_faulty;
            let is_fair = if ended.counted { may_cost } else { may_be_free };
            return check(Rule::PlannedIsFree, is_fair, || {
                format!("{ended:?} of {record:?}")
            });
        }
        let costs = !record.is_planned || is_faulty || ended.abandoned;
        check(Rule::PlannedIsFree, ended.counted == costs, || {
            format!("{ended:?} of {record:?}")
        });
        let is_in_order = if ended.abandoned {
            record.close_step == CloseStep::Kill && !is_gone
        } else {
            is_gone
        };
        check(Rule::CloseSteps, is_in_order, || {
            format!("{ended:?} of {record:?}")
        })
    }

    /// Checks that a silence is reported once, and only after a missed probe.
    fn check_silent(&mut self, epoch: Epoch, silent: Duration) {
        let policy = &self.config.policy;
        let timeout = policy.keepalive.map_or(Duration::MAX, |it| it.timeout);
        let least = policy
            .hang
            .map_or(timeout, |it| timeout.min(it.timeout / 3));
        let was_silent = std::mem::replace(&mut self.open_record(epoch).is_silent, true);
        check(Rule::AnyByteIsLife, !was_silent && silent >= least, || {
            format!("{epoch} is reported as silent for {silent:?}; reported before: {was_silent}")
        })
    }

    /// How the last end affects the first attempts.
    fn outlook(&self, end: &End) -> Outlook {
        if end.was_ever_ready || !end.is_counted {
            return Outlook::Normal;
        }
        match self.cause {
            Some(Cause::OpenFailed | Cause::Unreachable) if self.is_permanent => Outlook::Hopeless,
            Some(Cause::HandshakeRefused { .. }) => Outlook::Hopeless,
            Some(Cause::Died) if self.config.binding.kind() == BindingKind::Child => Outlook::Brief,
            _ => Outlook::Normal,
        }
    }

    /// The time until which a process that exits on its own is restarted, while the link was never ready.
    fn restart_until(&self) -> Instant {
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

    /// Checks that the next attempt is within this pause, or at the pace of calls if some wait.
    fn check_pause(&self, end: &End, until: Instant, (least, most): (Duration, Duration)) {
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
        // A server over HTTP can ask for a longer pause.
        if let Some(http) = self.config.binding.http() {
            latest = latest.max(end.at + http.retry_after_most);
        }
        check(
            Rule::OneBudget,
            (earliest..=latest).contains(&until),
            || {
                format!(
                    "the next attempt is at {until:?}, not from {earliest:?} to {latest:?}: {end:?}"
                )
            },
        )
    }

    fn check_waiting(&mut self, until: Instant, failures: u32) {
        let budget = self.config.policy.retry.budget;
        let end = self.ends.pop_front().unwrap_or_default();
        self.announce_attempt(until);
        let has_left = !end.is_counted || failures <= budget;
        check(Rule::OneBudget, has_left, || {
            format!("it waits after {failures} failures, of {budget}")
        });
        let may_start = match self.outlook(&end) {
            Outlook::Normal => true,
            Outlook::Brief => until <= self.restart_until(),
            Outlook::Hopeless => false,
        };
        check(Rule::OneBudget, may_start, || {
            format!("it was never ready and tries again at {until:?}: {end:?}")
        });
        let pause = if end.is_counted && !end.is_useful {
            self.backoff(failures)
        } else {
            (Duration::ZERO, Duration::ZERO)
        };
        self.check_pause(&end, until, pause)
    }

    /// Records when the next attempt is announced to start. An event that is polled late may be older than that attempt.
    fn announce_attempt(&mut self, at: Instant) {
        if self.event_epoch == self.current {
            self.next_attempt = Some(at);
        }
    }

    fn check_parked(&mut self, until: Instant) {
        let retry = self.config.policy.retry;
        self.announce_attempt(until);
        let end = self.ends.pop_front().unwrap_or_default();
        let outlook = self.outlook(&end);
        let is_unauthorized = self.cause == Some(Cause::Unauthorized);
        let next = end.at + self.backoff(end.failures).1;
        let next = next.max(end.last_open + retry.floor.max(TICK));
        let may_park = match outlook {
            Outlook::Normal => is_unauthorized || end.failures > retry.budget,
            Outlook::Brief => end.failures > retry.budget || next > self.restart_until(),
            Outlook::Hopeless => true,
        };
        check(Rule::OneBudget, may_park, || {
            format!("it is parked, and has attempts left: {end:?}")
        });
        let is_hopeless = outlook != Outlook::Normal || is_unauthorized;
        check(Rule::OneOutcome, !is_hopeless || !end.has_calls, || {
            format!("calls wait, although waiting cannot help: {end:?}")
        });
        match retry.when_spent {
            WhenSpent::Park { probe } => self.check_pause(&end, until, (probe / 2, probe)),
            _ => check(Rule::OneBudget, false, || {
                "it is parked, against the policy".to_owned()
            }),
        }
    }

    fn check_closed(&self) {
        let is_final = self.config.policy.retry.when_spent == WhenSpent::Close;
        check(Rule::OneBudget, self.is_shut_down || is_final, || {
            "it closed by itself, against the policy".to_owned()
        });
        let left = self.all.iter().find(|(_, record)| !record.is_released);
        check(Rule::CloseSteps, left.is_none(), || {
            format!("it is closed, and {left:?} was not released")
        })
    }
}
