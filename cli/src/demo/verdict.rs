//! Evaluates a demo that has ended: the numbers, and which rules of the design were broken. A pure function of the book and the diary.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use everlink::client::{Delivery, FailureKind};
use serde_json::{Value, json};

use super::book::{Book, Outcome, Wish};

#[derive(Debug, Default)]
pub(super) struct Verdict {
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
    comebacks: Vec<Duration>,
    broken: Vec<String>,
}

impl Verdict {
    /// Evaluates these calls. `runs` says how many times each of them ran.
    pub(super) fn of(book: Book, runs: &[u32]) -> Verdict {
        let mut verdict = Verdict {
            deaths: book.deaths,
            reconnects: book.reconnects,
            comebacks: book.comebacks,
            broken: book.broken,
            ..Verdict::default()
        };
        verdict.comebacks.sort_unstable();
        for (number, (call, runs)) in book.calls.iter().zip(runs).enumerate() {
            verdict.count(number, call.outcome.as_ref());
            verdict.judge(number, call.wish, call.outcome.as_ref(), *runs);
        }
        verdict
    }

    fn count(&mut self, number: usize, outcome: Option<&Outcome>) {
        self.accepted += 1;
        match outcome {
            None => {
                self.hung += 1;
                self.broken.push(format!("call {number} hung"));
            }
            Some(Outcome::Failed { kind, delivery }) => {
                let counts = match delivery {
                    Delivery::Unknown => &mut self.unknown,
                    _ => &mut self.failed,
                };
                *counts.entry(words(kind)).or_default() += 1;
            }
            Some(Outcome::Lost) => {
                self.lost += 1;
                self.broken.push(format!("call {number} was lost silently"));
            }
            Some(Outcome::Refused) => self.accepted -= 1,
            Some(Outcome::Reply) => self.replies += 1,
        }
    }

    /// Compares the outcome of a call with the diary of the servers.
    fn judge(&mut self, number: usize, wish: Wish, outcome: Option<&Outcome>, runs: u32) {
        let broken = match (wish, outcome) {
            (Wish::List, _) => return,
            (Wish::Once, _) if runs > 1 => {
                format!("call {number} was not safe to repeat, and ran {runs} times")
            }
            (_, Some(Outcome::Reply)) if runs == 0 => {
                format!("call {number} has a reply, and never ran")
            }
            (_, Some(Outcome::Refused)) if runs > 0 => {
                format!("call {number} was refused, and ran")
            }
            (_, Some(Outcome::Failed { delivery, .. }))
                if runs > 0 && *delivery != Delivery::Unknown =>
            {
                format!("call {number} was said not to have been sent, and ran")
            }
            _ => return,
        };
        self.broken.push(broken);
    }

    pub(super) fn is_good(&self) -> bool {
        self.broken.is_empty()
    }

    /// Returns the given percentile of the comebacks, in milliseconds.
    fn ready_ms(&self, percent: usize) -> Option<f64> {
        let rank = (self.comebacks.len() * percent).div_ceil(100);
        let comeback = self.comebacks.get(rank.checked_sub(1)?)?;
        Some((comeback.as_secs_f64() * 10_000.0).round() / 10.0)
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
            "broken": self.broken,
            "seed": seed,
        })
    }
}

/// Formats the verdict as a table.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, "calls accepted", self.accepted)?;
        row(f, "  answered", self.replies)?;
        row(f, "  failed, nothing done", sum(&self.failed))?;
        rows(f, &self.failed)?;
        row(f, "  outcome unknown", sum(&self.unknown))?;
        rows(f, &self.unknown)?;
        row(f, "  hung", self.hung)?;
        row(f, "  silently lost", self.lost)?;
        row(f, "deaths of servers", self.deaths)?;
        row(f, "reconnects", self.reconnects)?;
        for (words, percent) in [("death seen to ready, p50", 50), ("  p99", 99)] {
            if let Some(ms) = self.ready_ms(percent) {
                row(f, words, format_args!("{ms:.1} ms"))?;
            }
        }
        if self.is_good() {
            return f.write_str(
                "\nEvery call has exactly one outcome, and none ran twice that was not safe to repeat.",
            );
        }
        f.write_str("\nRules that were broken:")?;
        let mut broken = self.broken.iter();
        broken.try_for_each(|broken| write!(f, "\n  {broken}"))
    }
}

fn row(f: &mut fmt::Formatter<'_>, words: &str, count: impl fmt::Display) -> fmt::Result {
    // `format_args!` ignores the width, so the value is converted to a string first.
    writeln!(f, "{words:26}{:>10}", count.to_string())
}

fn rows(f: &mut fmt::Formatter<'_>, counts: &BTreeMap<&str, u64>) -> fmt::Result {
    let mut counts = counts.iter();
    counts.try_for_each(|(words, count)| row(f, &format!("    {words}"), count))
}

fn sum(counts: &BTreeMap<&str, u64>) -> u64 {
    counts.values().sum()
}

fn words(kind: &FailureKind) -> &'static str {
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

    fn verdict(wish: Wish, outcome: Option<Outcome>, runs: u32) -> Verdict {
        let mut book = Book::default();
        let number = book.begin(wish);
        if let Some(outcome) = outcome {
            book.settle(number, outcome);
        }
        Verdict::of(book, &[runs])
    }

    const fn failed(delivery: Delivery) -> Option<Outcome> {
        let kind = FailureKind::Lost;
        Some(Outcome::Failed { kind, delivery })
    }

    #[test]
    fn broken_rules_are_seen() {
        let broken = [
            verdict(Wish::List, None, 0),
            verdict(Wish::Once, Some(Outcome::Lost), 0),
            verdict(Wish::Once, Some(Outcome::Reply), 0),
            verdict(Wish::Once, Some(Outcome::Reply), 2),
            verdict(Wish::Once, Some(Outcome::Refused), 1),
            verdict(Wish::Once, failed(Delivery::Unknown), 2),
            verdict(Wish::Repeatable, failed(Delivery::NotSent), 1),
        ];
        for verdict in broken {
            assert_eq!(verdict.broken.len(), 1, "{verdict}");
        }
    }

    #[test]
    fn what_may_be_is_no_broken_rule() {
        let good = [
            verdict(Wish::List, Some(Outcome::Reply), 0),
            verdict(Wish::Once, Some(Outcome::Reply), 1),
            verdict(Wish::Once, failed(Delivery::NotSent), 0),
            verdict(Wish::Once, failed(Delivery::Unknown), 0),
            verdict(Wish::Once, failed(Delivery::Unknown), 1),
            verdict(Wish::Repeatable, Some(Outcome::Reply), 3),
        ];
        for verdict in good {
            assert!(verdict.is_good(), "{verdict}");
        }
    }

    #[test]
    fn percentiles_are_of_what_was_seen() {
        let book = Book {
            comebacks: (1..=200).rev().map(Duration::from_millis).collect(),
            ..Book::default()
        };
        let verdict = Verdict::of(book, &[]);
        assert_eq!(verdict.ready_ms(50), Some(100.0));
        assert_eq!(verdict.ready_ms(99), Some(198.0));
        assert_eq!(Verdict::default().ready_ms(50), None);
    }
}
