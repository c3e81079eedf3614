//! Checks calls: one outcome each, in time and with a text, and none sent twice that may not be. Of the transport it knows the epoch, and whether it is HTTP.

use std::collections::BTreeMap;
use std::time::Duration;

use everlink::client::{Delivery, FailureKind, Outcome, State};
use everlink::{BindingKind, CallId, Config, Epoch, Instant, Stats};
use serde_json::Value;

use super::{Rule, TICK, check};

/// Facts about calls that only the world knows.
#[derive(Debug, Default)]
pub(crate) struct GroundTruth {
    /// How often each call was started, by its mark.
    pub(crate) runs: BTreeMap<u64, u32>,
}

/// A call as the application made it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallSpec {
    pub(crate) method: &'static str,
    /// The number that identifies the call in messages.
    pub(crate) mark: Option<u64>,
    pub(crate) may_repeat: bool,
}

#[derive(Debug)]
struct Call {
    spec: CallSpec,
    accepted: Instant,
    /// The epochs to which it was written.
    epochs: Vec<Epoch>,
    is_done: bool,
    was_not_sent: bool,
    /// When it began to wait because there was no server.
    waits_since: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Calls {
    /// Over HTTP, an epoch has many connections, so a call may be sent again in the epoch of its first request.
    is_http: bool,
    /// The longest time that a call may take, pauses included.
    max_duration: Option<Duration>,
    /// How long a call waits while there is no server and no attempt to connect.
    wait_limit: Duration,
    all: BTreeMap<CallId, Call>,
    /// The calls without an outcome.
    open: Vec<CallId>,
    last_deadline_check: Option<Instant>,
    /// The value of `Stats::requeued` at the last check.
    requeued: u64,
    by_mark: BTreeMap<u64, CallId>,
}

impl Calls {
    pub(super) fn new(config: &Config) -> Calls {
        let policy = &config.policy;
        let max_duration = match policy.call_total {
            everlink::Limit::After(total) => Some(total + policy.pause_total),
            _ => None,
        };
        Calls {
            is_http: config.binding.kind() == BindingKind::Http,
            max_duration,
            wait_limit: policy.retry.call_patience,
            all: BTreeMap::new(),
            open: Vec::new(),
            last_deadline_check: None,
            requeued: 0,
            by_mark: BTreeMap::new(),
        }
    }

    pub(super) fn record_accepted(&mut self, now: Instant, call: CallId, spec: CallSpec) {
        let record = Call {
            spec,
            accepted: now,
            epochs: Vec::new(),
            is_done: false,
            was_not_sent: false,
            waits_since: None,
        };
        let before = self.all.insert(call, record);
        check(Rule::OneOutcome, before.is_none(), || {
            format!("the id {call} was used twice")
        });
        self.open.push(call);
        self.by_mark.extend(spec.mark.map(|mark| (mark, call)));
    }

    /// Checks bytes that were written to an epoch.
    pub(super) fn check_written(&mut self, epoch: Epoch, bytes: &[u8]) {
        let call = mark_in(bytes).and_then(|mark| self.by_mark.get(&mark));
        let Some(call) = call else {
            return;
        };
        let record = self.all.get_mut(call).expect("a call with a mark");
        check(Rule::OneOutcome, !record.is_done, || {
            format!("{call} is sent after its end")
        });
        record.epochs.push(epoch);
        record.waits_since = None;
        let before = record.epochs.first();
        let is_first = self.is_http || before == Some(&epoch);
        check(
            Rule::NoSilentReplay,
            is_first || record.spec.may_repeat,
            || format!("{call} is sent again: {:?}", record.epochs),
        )
    }

    pub(super) fn check_done(
        &mut self,
        call: CallId,
        outcome: &Outcome,
        failure_text: &str,
        state: State,
    ) {
        let record = self.all.get_mut(&call);
        let is_open = record.as_ref().is_some_and(|record| !record.is_done);
        let Some(record) = record.filter(|_| is_open) else {
            return check(Rule::OneOutcome, false, || {
                format!("{call} has an outcome, and it is not open")
            });
        };
        record.is_done = true;
        self.open.retain(|open| *open != call);
        match outcome {
            Outcome::Failed(failure) => {
                let is_named = failure_text.contains(record.spec.method);
                let has_text = is_named
                    && failure_text.contains(&*failure.method)
                    && failure_text.contains(&call.to_string())
                    && (failure.kind != FailureKind::Lost || failure.ended.is_some());
                check(Rule::ErrorTexts, has_text, || {
                    format!("{failure:?} has the text `{failure_text}`")
                });
                let has_next_attempt = failure.next_attempt.is_some();
                let is_down = matches!(state, State::Waiting | State::Parked)
                    && failure.kind == FailureKind::Down;
                check(Rule::ErrorTexts, has_next_attempt || !is_down, || {
                    format!("{failure:?} does not say when the next attempt is")
                });
                let exit = failure.ended.as_ref().and_then(|ended| ended.exit);
                let has_exit = exit.is_none_or(|exit| failure_text.contains(&exit.to_string()));
                check(Rule::ErrorTexts, has_exit, || {
                    format!("{exit:?} is not in the text `{failure_text}`")
                });
                record.was_not_sent = failure.delivery == Delivery::NotSent;
                let is_fair = self.is_http || !record.was_not_sent || record.epochs.is_empty();
                check(Rule::NoSilentReplay, is_fair, || {
                    format!("{failure:?} was sent to {:?}", record.epochs)
                })
            }
            Outcome::Reply(reply) => {
                let reply_mark = mark_in(reply.as_str().as_bytes());
                let fits = reply_mark.is_none() || reply_mark == record.spec.mark;
                check(Rule::EpochsDoNotMix, fits, || {
                    format!("{call}, {:?}, has the reply to {reply_mark:?}", record.spec)
                })
            }
            _ => (),
        }
    }

    /// Starts the wait of all open calls: there is no server and no attempt under way.
    pub(super) fn start_wait(&mut self, now: Instant) {
        for call in &self.open {
            let record = self.all.get_mut(call).expect("a call that is open");
            record.waits_since.get_or_insert(now);
        }
    }

    pub(super) fn check_none_open(&self) {
        check(Rule::OneOutcome, self.open.is_empty(), || {
            format!("it is closed, and these have no outcome: {:?}", self.open)
        })
    }

    /// Checks the calls after all output was polled.
    pub(super) fn check_drained(&mut self, stats: &Stats, is_lost: impl Fn(Epoch) -> bool) {
        let (calls, settled) = (stats.calls, stats.settled);
        let has_requeued = std::mem::replace(&mut self.requeued, stats.requeued) < stats.requeued;
        let (all, open) = (self.all.len() as u64, self.open.len() as u64);
        let fits = calls == all && settled == all - open;
        check(Rule::OneOutcome, fits, || {
            format!(
                "{settled} of {calls} have an outcome, and {} of {all} were reported",
                all - open
            )
        });
        if self.is_http {
            return;
        }
        for call in &self.open {
            let record = &self.all[call];
            let is_lost = record.epochs.last().is_some_and(|epoch| is_lost(*epoch));
            let rule = if has_requeued {
                Rule::NoSilentReplay
            } else {
                Rule::StateIsTruth
            };
            check(rule, !is_lost || record.spec.may_repeat, || {
                format!("{call} outlives its server")
            });
        }
    }

    /// Checks deadlines: a call that was overdue at the previous timeout has an outcome by now.
    pub(super) fn check_deadlines(&mut self, now: Instant, state: State) {
        let before = self.last_deadline_check.replace(now);
        let Some(before) = before.filter(|before| now >= *before + TICK) else {
            return;
        };
        if matches!(state, State::Waiting | State::Parked) {
            for call in &self.open {
                // A list has no mark, so the oracle cannot see whether it was sent.
                let record = &self.all[call];
                let since = record.waits_since.filter(|_| record.spec.mark.is_some());
                let limit = since.map(|since| since + self.wait_limit + TICK);
                check(
                    Rule::OneOutcome,
                    limit.is_none_or(|limit| now <= limit),
                    || format!("{call} waits since {since:?} for a server that is not tried"),
                );
            }
        }
        let Some(max_duration) = self.max_duration else {
            return;
        };
        for call in &self.open {
            let limit = self.all[call].accepted + max_duration + TICK;
            check(Rule::OneOutcome, before <= limit, || {
                format!("{call} is overdue since {limit:?}, it is {now:?}")
            });
        }
    }

    pub(super) fn check_end(&self, ground_truth: &GroundTruth, most_resends: u32) {
        for (call, record) in &self.all {
            let runs = record
                .spec
                .mark
                .and_then(|mark| ground_truth.runs.get(&mark));
            let runs = runs.copied().unwrap_or_default();
            let most = if record.spec.may_repeat {
                1 + most_resends
            } else {
                1
            };
            check(Rule::NoSilentReplay, runs <= most, || {
                format!("{call}, {:?}, ran {runs} times", record.spec)
            });
            check(
                Rule::NoSilentReplay,
                runs == 0 || !record.was_not_sent,
                || format!("{call} was reported as not sent, and ran"),
            );
        }
    }
}

/// The mark of a call in a message or a reply.
fn mark_in(bytes: &[u8]) -> Option<u64> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    mark_of(&value)
}

/// Finds a mark: in the arguments of a tool, in the URI of a resource, or in a reply.
pub(crate) fn mark_of(value: &Value) -> Option<u64> {
    let params = value.get("params").unwrap_or(value);
    let in_uri = |uri: &Value| uri.as_str()?.strip_prefix("mark:")?.parse().ok();
    let argument = params["arguments"]["mark"].as_u64();
    let in_reply = params["mark"].as_u64();
    argument.or(in_reply).or_else(|| in_uri(&params["uri"]))
}
