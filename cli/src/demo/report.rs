//! Evaluates a demo that has ended: the numbers, and which rules of the design were broken. A pure function of the history and the diary.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use everlink::client::{Delivery, FailureKind};
use serde_json::{Value, json};

use super::history::{CallKind, History, Outcome};

#[derive(Debug, Default)]
pub(super) struct Report {
    accepted: u64,
    replies: u64,
    /// Calls without a reply that certainly did not run, counted by the kind of failure.
    failed: BTreeMap<&'static str, u64>,
    /// Calls without a reply that may have run, counted by the kind of failure.
    unknown: BTreeMap<&'static str, u64>,
    hung: u64,
    lost: u64,
    deaths: u32,
    reconnects: u32,
    /// Sorted, shortest first.
    recovery_times: Vec<Duration>,
    violations: Vec<String>,
}

impl Report {
    /// Evaluates these calls. `runs` says how many times each of them ran.
    pub(super) fn of(history: History, runs: &[u32]) -> Report {
        let mut report = Report {
            deaths: history.deaths,
            reconnects: history.reconnects,
            recovery_times: history.recovery_times,
            violations: history.violations,
            ..Report::default()
        };
        report.recovery_times.sort_unstable();
        for (number, (call, runs)) in history.calls.iter().zip(runs).enumerate() {
            report.count(number, call.outcome.as_ref());
            report.check_runs(number, call.kind, call.outcome.as_ref(), *runs);
        }
        report
    }

    fn count(&mut self, number: usize, outcome: Option<&Outcome>) {
        self.accepted += 1;
        match outcome {
            None => {
                self.hung += 1;
                self.violations.push(format!("call {number} hung"));
            }
            Some(Outcome::Failed { kind, delivery }) => {
                let counts = match delivery {
                    Delivery::Unknown => &mut self.unknown,
                    _ => &mut self.failed,
                };
                *counts.entry(label(kind)).or_default() += 1;
            }
            Some(Outcome::Lost) => {
                self.lost += 1;
                self.violations
                    .push(format!("call {number} was lost silently"));
            }
            Some(Outcome::Refused) => self.accepted -= 1,
            Some(Outcome::Reply) => self.replies += 1,
        }
    }

    /// Compares the outcome of a call with the diary of the servers.
    fn check_runs(&mut self, number: usize, kind: CallKind, outcome: Option<&Outcome>, runs: u32) {
        let violation = match (kind, outcome) {
            (CallKind::List, _) => return,
            (CallKind::Once, _) if runs > 1 => {
                format!("call {number} was not safe to repeat, but ran {runs} times")
            }
            (_, Some(Outcome::Reply)) if runs == 0 => {
                format!("call {number} has a reply, but never ran")
            }
            (_, Some(Outcome::Refused)) if runs > 0 => {
                format!("call {number} was refused, but ran")
            }
            (_, Some(Outcome::Failed { delivery, .. }))
                if runs > 0 && *delivery != Delivery::Unknown =>
            {
                format!("call {number} was reported as not sent, but ran")
            }
            _ => return,
        };
        self.violations.push(violation);
    }

    pub(super) fn is_good(&self) -> bool {
        self.violations.is_empty()
    }

    /// Returns the given percentile of the recovery times, in milliseconds.
    fn ready_ms(&self, percent: usize) -> Option<f64> {
        let rank = (self.recovery_times.len() * percent).div_ceil(100);
        let recovery_time = self.recovery_times.get(rank.checked_sub(1)?)?;
        Some((recovery_time.as_secs_f64() * 10_000.0).round() / 10.0)
    }

    pub(super) fn as_json(&self, seed: u64) -> Value {
        json!({
            "accepted": self.accepted,
            "settled": self.accepted - self.hung - self.lost,
            "replies": self.replies,
            "failed": sum(&self.failed),
            "unknown": sum(&self.unknown),
            "hung": self.hung,
            "lost": self.lost,
            "deaths": self.deaths,
            "reconnects": self.reconnects,
            "ready_ms_p50": self.ready_ms(50),
            "ready_ms_p99": self.ready_ms(99),
            "broken": self.violations,
            "seed": seed,
        })
    }
}

/// Formats the report as a table.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, "calls accepted", self.accepted)?;
        row(f, "  answered", self.replies)?;
        row(f, "  failed, did not run", sum(&self.failed))?;
        rows(f, &self.failed)?;
        row(f, "  outcome unknown", sum(&self.unknown))?;
        rows(f, &self.unknown)?;
        row(f, "  hung", self.hung)?;
        row(f, "  silently lost", self.lost)?;
        row(f, "servers that died", self.deaths)?;
        row(f, "reconnects", self.reconnects)?;
        for (label, percent) in [("recovery time, p50", 50), ("recovery time, p99", 99)] {
            if let Some(ms) = self.ready_ms(percent) {
                row(f, label, format_args!("{ms:.1} ms"))?;
            }
        }
        if self.is_good() {
            return f.write_str(
                "\nEvery call had exactly one outcome. No call that is not safe to repeat ran twice.",
            );
        }
        f.write_str("\nRules that were broken:")?;
        let mut violations = self.violations.iter();
        violations.try_for_each(|violation| write!(f, "\n  {violation}"))
    }
}

fn row(f: &mut fmt::Formatter<'_>, label: &str, count: impl fmt::Display) -> fmt::Result {
    // `format_args!` ignores the width, so the value is converted to a string first.
    writeln!(f, "{label:26}{:>10}", count.to_string())
}

fn rows(f: &mut fmt::Formatter<'_>, counts: &BTreeMap<&str, u64>) -> fmt::Result {
    let mut counts = counts.iter();
    counts.try_for_each(|(label, count)| row(f, &format!("    {label}"), count))
}

fn sum(counts: &BTreeMap<&str, u64>) -> u64 {
    counts.values().sum()
}

fn label(kind: &FailureKind) -> &'static str {
    match kind {
        FailureKind::Cancelled { .. } => "cancelled",
        FailureKind::Closed => "link shut down",
        FailureKind::Down => "server down",
        FailureKind::Invalid { .. } => "invalid reply",
        FailureKind::Lost => "server ended",
        FailureKind::NotOffered { .. } => "not offered",
        FailureKind::TimedOut { .. } => "timed out",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(kind: CallKind, outcome: Option<Outcome>, runs: u32) -> Report {
        let mut history = History::default();
        let number = history.add_call(kind);
        if let Some(outcome) = outcome {
            history.settle(number, outcome);
        }
        Report::of(history, &[runs])
    }

    const fn failed(delivery: Delivery) -> Option<Outcome> {
        let kind = FailureKind::Lost;
        Some(Outcome::Failed { kind, delivery })
    }

    #[test]
    fn each_broken_rule_is_one_violation() {
        let broken = [
            report(CallKind::List, None, 0),
            report(CallKind::Once, Some(Outcome::Lost), 0),
            report(CallKind::Once, Some(Outcome::Reply), 0),
            report(CallKind::Once, Some(Outcome::Reply), 2),
            report(CallKind::Once, Some(Outcome::Refused), 1),
            report(CallKind::Once, failed(Delivery::Unknown), 2),
            report(CallKind::Repeatable, failed(Delivery::NotSent), 1),
        ];
        for report in broken {
            assert_eq!(report.violations.len(), 1, "{report}");
        }
    }

    #[test]
    fn allowed_outcomes_are_no_violations() {
        let good = [
            report(CallKind::List, Some(Outcome::Reply), 0),
            report(CallKind::Once, Some(Outcome::Reply), 1),
            report(CallKind::Once, failed(Delivery::NotSent), 0),
            report(CallKind::Once, failed(Delivery::Unknown), 0),
            report(CallKind::Once, failed(Delivery::Unknown), 1),
            report(CallKind::Repeatable, Some(Outcome::Reply), 3),
        ];
        for report in good {
            assert!(report.is_good(), "{report}");
        }
    }

    #[test]
    fn percentiles_are_computed_from_the_recovery_times() {
        let history = History {
            recovery_times: (1..=200).rev().map(Duration::from_millis).collect(),
            ..History::default()
        };
        let report = Report::of(history, &[]);
        assert_eq!(report.ready_ms(50), Some(100.0));
        assert_eq!(report.ready_ms(99), Some(198.0));
        assert_eq!(Report::default().ready_ms(50), None);
    }
}
