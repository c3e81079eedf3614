//! What must hold of calls: one outcome each, in time, in words; none that runs again unasked. Sees no transport but its number.

use std::collections::BTreeMap;
use std::time::Duration;

use everlink::client::{Delivery, FailureKind, Outcome, State};
use everlink::{Binding, CallId, Config, Epoch, Instant, Stats};
use serde_json::Value;

use super::{Rule, TICK, Verdict, hold};

/// What is true of the calls of a run, as the world knows and nobody else.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// How often each call was begun, by its mark.
    pub(crate) runs: BTreeMap<u64, u32>,
}

/// What the application asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) method: &'static str,
    /// By which it is known again.
    pub(crate) mark: Option<u64>,
    pub(crate) may_repeat: bool,
}

#[derive(Debug)]
struct Call {
    asked: Asked,
    accepted: Instant,
    /// The lives that it was written to.
    lives: Vec<Epoch>,
    is_done: bool,
    was_not_sent: bool,
    /// Since when it waits for a server, where there was none.
    waits_since: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Calls {
    is_http: bool,
    longest: Option<Duration>,
    /// How long a call waits while there is no server and none is being tried.
    patience: Duration,
    all: BTreeMap<CallId, Call>,
    /// Those that are not done.
    open: Vec<CallId>,
    timed_at: Option<Instant>,
    /// How often calls were put back into the queue.
    requeued: u64,
    by_mark: BTreeMap<u64, CallId>,
}

impl Calls {
    pub(super) fn new(config: &Config) -> Calls {
        let policy = &config.policy;
        let longest = match policy.call_total {
            everlink::Limit::After(total) => Some(total + policy.pause_total),
            _ => None,
        };
        Calls {
            is_http: config.binding == Binding::Http,
            longest,
            patience: policy.retry.call_patience,
            all: BTreeMap::new(),
            open: Vec::new(),
            timed_at: None,
            requeued: 0,
            by_mark: BTreeMap::new(),
        }
    }

    pub(super) fn accepted(&mut self, told: Instant, call: CallId, asked: Asked) -> Verdict {
        let record = Call {
            asked,
            accepted: told,
            lives: Vec::new(),
            is_done: false,
            was_not_sent: false,
            waits_since: None,
        };
        let before = self.all.insert(call, record);
        hold(Rule::OneOutcome, before.is_none(), || {
            format!("{call} was given out twice")
        })?;
        self.open.push(call);
        self.by_mark.extend(asked.mark.map(|mark| (mark, call)));
        Ok(())
    }

    /// Something was written to a life.
    pub(super) fn written(&mut self, epoch: Epoch, bytes: &[u8]) -> Verdict {
        let call = mark_in(bytes).and_then(|mark| self.by_mark.get(&mark));
        let Some(call) = call else {
            return Ok(());
        };
        let record = self.all.get_mut(call).expect("a call with a mark");
        hold(Rule::OneOutcome, !record.is_done, || {
            format!("{call} is sent after its end")
        })?;
        record.lives.push(epoch);
        record.waits_since = None;
        let before = record.lives.first();
        let is_first = self.is_http || before == Some(&epoch);
        hold(
            Rule::NoSilentReplay,
            is_first || record.asked.may_repeat,
            || format!("{call} is sent again: {:?}", record.lives),
        )
    }

    pub(super) fn done(
        &mut self,
        call: CallId,
        outcome: &Outcome,
        words: &str,
        state: State,
    ) -> Verdict {
        let record = self.all.get_mut(&call);
        let is_open = record.as_ref().is_some_and(|record| !record.is_done);
        let Some(record) = record.filter(|_| is_open) else {
            return hold(Rule::OneOutcome, false, || {
                format!("{call} has an outcome, and it is none that is open")
            });
        };
        record.is_done = true;
        self.open.retain(|open| *open != call);
        match outcome {
            Outcome::Failed(failure) => {
                let is_named = words.contains(record.asked.method);
                let is_spoken = is_named
                    && words.contains(&*failure.method)
                    && words.contains(&call.to_string())
                    && (failure.kind != FailureKind::Lost || failure.ended.is_some());
                hold(Rule::ErrorsSpeak, is_spoken, || {
                    format!("{failure:?} is told as `{words}`")
                })?;
                let is_hinted = failure.next_attempt.is_some();
                let is_down = matches!(state, State::Waiting | State::Parked)
                    && failure.kind == FailureKind::Down;
                hold(Rule::ErrorsSpeak, is_hinted || !is_down, || {
                    format!("{failure:?} does not say when the next attempt is")
                })?;
                let exit = failure.ended.as_ref().and_then(|ended| ended.exit);
                let is_told = exit.is_none_or(|exit| words.contains(&exit.to_string()));
                hold(Rule::ErrorsSpeak, is_told, || {
                    format!("{exit:?} is not told in `{words}`")
                })?;
                record.was_not_sent = failure.delivery == Delivery::NotSent;
                let is_fair = self.is_http || !record.was_not_sent || record.lives.is_empty();
                hold(Rule::NoSilentReplay, is_fair, || {
                    format!("{failure:?} was sent to {:?}", record.lives)
                })
            }
            Outcome::Reply(reply) => {
                let told = mark_in(reply.as_str().as_bytes());
                let fits = told.is_none() || told == record.asked.mark;
                hold(Rule::EpochsApart, fits, || {
                    format!("{call}, {:?}, has the reply to {told:?}", record.asked)
                })
            }
            _ => Ok(()),
        }
    }

    /// There is no server, and none is being tried: what is open waits from now on, at the latest.
    pub(super) fn wait(&mut self, told: Instant) {
        for call in &self.open {
            let record = self.all.get_mut(call).expect("a call that is open");
            record.waits_since.get_or_insert(told);
        }
    }

    pub(super) fn none_is_open(&self) -> Verdict {
        hold(Rule::OneOutcome, self.open.is_empty(), || {
            format!("it is closed, and these have no outcome: {:?}", self.open)
        })
    }

    /// Nothing is left to poll.
    pub(super) fn drained(&mut self, stats: &Stats, is_over: impl Fn(Epoch) -> bool) -> Verdict {
        let (calls, settled) = (stats.calls, stats.settled);
        let has_requeued = std::mem::replace(&mut self.requeued, stats.requeued) < stats.requeued;
        let (all, open) = (self.all.len() as u64, self.open.len() as u64);
        let fits = calls == all && settled == all - open;
        hold(Rule::OneOutcome, fits, || {
            format!(
                "{settled} of {calls} have an outcome, and {} of {all} were told",
                all - open
            )
        })?;
        if self.is_http {
            return Ok(());
        }
        for call in &self.open {
            let record = &self.all[call];
            let is_lost = record.lives.last().is_some_and(|life| is_over(*life));
            let rule = if has_requeued {
                Rule::NoSilentReplay
            } else {
                Rule::StateIsTruth
            };
            hold(rule, !is_lost || record.asked.may_repeat, || {
                format!("{call} outlives its server")
            })?;
        }
        Ok(())
    }

    /// What was overdue when the time was told before has ended by now, at the latest.
    pub(super) fn timed(&mut self, told: Instant, state: State) -> Verdict {
        let before = self.timed_at.replace(told);
        let Some(before) = before.filter(|before| told >= *before + TICK) else {
            return Ok(());
        };
        if matches!(state, State::Waiting | State::Parked) {
            for call in &self.open {
                // Of a list nobody can see whether it was asked for.
                let record = &self.all[call];
                let since = record.waits_since.filter(|_| record.asked.mark.is_some());
                let limit = since.map(|since| since + self.patience + TICK);
                hold(
                    Rule::OneOutcome,
                    limit.is_none_or(|limit| told <= limit),
                    || format!("{call} waits since {since:?} for a server that is not tried"),
                )?;
            }
        }
        let Some(longest) = self.longest else {
            return Ok(());
        };
        for call in &self.open {
            let limit = self.all[call].accepted + longest + TICK;
            hold(Rule::OneOutcome, before <= limit, || {
                format!("{call} is overdue since {limit:?}, it is {told:?}")
            })?;
        }
        Ok(())
    }

    pub(super) fn end(&self, truth: &Truth, most_resends: u32) -> Verdict {
        for (call, record) in &self.all {
            let runs = record.asked.mark.and_then(|mark| truth.runs.get(&mark));
            let runs = runs.copied().unwrap_or_default();
            let most = if record.asked.may_repeat {
                1 + most_resends
            } else {
                1
            };
            hold(Rule::NoSilentReplay, runs <= most, || {
                format!("{call}, {:?}, ran {runs} times", record.asked)
            })?;
            hold(
                Rule::NoSilentReplay,
                runs == 0 || !record.was_not_sent,
                || format!("{call} was told to be unsent, and ran"),
            )?;
        }
        Ok(())
    }
}

/// The mark of a call, wherever it is in a message or a reply.
fn mark_in(bytes: &[u8]) -> Option<u64> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    mark_of(&value)
}

/// Where marks are: in the arguments of a tool, the address of a resource, and in what is replied.
pub(crate) fn mark_of(value: &Value) -> Option<u64> {
    let params = value.get("params").unwrap_or(value);
    let in_uri = |uri: &Value| uri.as_str()?.strip_prefix("mark:")?.parse().ok();
    let argument = params["arguments"]["mark"].as_u64();
    let said = params["mark"].as_u64();
    argument.or(said).or_else(|| in_uri(&params["uri"]))
}
