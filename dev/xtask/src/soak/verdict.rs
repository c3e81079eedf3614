//! Judges the samples of a run: nothing that a process keeps at rest may grow.
//!
//! A run is cut into six equal parts. The first is the warm-up and is not judged. The median of the second is compared with the median of the last.
//! Only samples at rest count: no call is in flight then, so what is left is what the process keeps. A median, because one sample may fall between two
//! trims of the allocator.

use anyhow::{Context as _, Result, ensure};

use super::samples::Samples;

/// The growth that is allowed, in percent.
pub(super) const PERCENT: f64 = 2.0;

/// The parts of a run.
const PARTS: f64 = 6.0;

/// A figure that is judged.
pub(super) struct Rule {
    pub(super) process: &'static str,
    /// The words for the reader.
    pub(super) what: &'static str,
    column: &'static str,
    /// A column whose values are subtracted.
    without: Option<&'static str>,
    bound: Bound,
}

/// How much more the last part may have.
#[derive(Clone, Copy)]
enum Bound {
    /// Bytes: two percent more.
    Percent,
    /// A count: this many more.
    More(f64),
}

use Bound::{More, Percent};

const fn rule(
    process: &'static str,
    what: &'static str,
    column: &'static str,
    bound: Bound,
) -> Rule {
    Rule {
        process,
        what,
        column,
        without: None,
        bound,
    }
}

/// Dead nodes leave a queue of notes behind, which Redis drops after 60 s. A node is killed every 12 s, so the number of keys at rest varies by a few.
const MORE_KEYS: f64 = 5.0;

/// Everything that is judged. Nodes 2 and 3 are killed, so they have no long life to judge.
pub(super) const RULES: &[Rule] = &[
    rule("stdio guard", "resident memory", "rss", Percent),
    rule("stdio guard", "descriptors", "descriptors", More(0.0)),
    rule("stdio guard", "threads", "threads", More(0.0)),
    rule("stdio guard", "child processes", "children", More(0.0)),
    rule("http guard", "resident memory", "rss", Percent),
    rule("http guard", "descriptors", "descriptors", More(0.0)),
    rule("http guard", "threads", "threads", More(0.0)),
    rule("http guard", "child processes", "children", More(0.0)),
    rule("node 1", "resident memory", "rss", Percent),
    Rule {
        // nginx keeps up to 64 idle connections to the nodes, a number that depends on the last calls.
        without: Some("accepted"),
        ..rule(
            "node 1",
            "descriptors, without nginx's",
            "descriptors",
            More(0.0),
        )
    },
    rule("node 1", "threads", "threads", More(0.0)),
    rule("redis", "memory in use", "used", Percent),
    rule("redis", "keys", "keys", More(MORE_KEYS)),
];

/// The processes that must live as long as the run.
const LONG_LIVED: [&str; 3] = ["stdio guard", "http guard", "node 1"];

/// The two medians of a rule.
pub(super) struct Verdict {
    pub(super) rule: &'static Rule,
    pub(super) second: f64,
    pub(super) last: f64,
}

impl Verdict {
    pub(super) const fn is_memory(&self) -> bool {
        matches!(self.rule.bound, Percent)
    }

    /// The growth, in percent.
    pub(super) fn growth(&self) -> f64 {
        100.0 * (self.last / self.second - 1.0)
    }

    pub(super) fn holds(&self) -> bool {
        match self.rule.bound {
            Percent => self.growth() <= PERCENT,
            More(more) => self.last <= self.second + more,
        }
    }
}

/// Judges a run of this length, in seconds.
pub(super) fn judge(samples: &Samples, seconds: f64) -> Result<Vec<Verdict>> {
    for process in LONG_LIVED {
        let lives = samples.lives(process);
        ensure!(lives == 1, "the {process} has {lives} lives instead of one");
    }
    let judged = RULES.iter().map(|rule| {
        let part = seconds / PARTS;
        Ok(Verdict {
            rule,
            second: median_at_rest(samples, rule, part, 2.0 * part)?,
            last: median_at_rest(samples, rule, seconds - part, f64::INFINITY)?,
        })
    });
    judged.collect()
}

fn median_at_rest(samples: &Samples, rule: &Rule, from: f64, to: f64) -> Result<f64> {
    let others = rule
        .without
        .map(|column| samples.series(rule.process, column, true));
    let values = samples.series(rule.process, rule.column, true);
    let values = values.iter().enumerate().map(|(index, (seconds, value))| {
        let other = others.as_ref().map_or(0.0, |others| others[index].1);
        (*seconds, value - other)
    });
    let mut part: Vec<f64> = values
        .filter(|(seconds, _)| (from..to).contains(seconds))
        .map(|(_, value)| value)
        .collect();
    part.sort_by(f64::total_cmp);
    // Of an even number, the lower of the two in the middle: a count stays a count.
    let middle = part.len().saturating_sub(1) / 2;
    part.get(middle).copied().with_context(|| {
        format!(
            "no sample of the {} at rest between {from:.0} s and {to:.0} s: the run is too short, or the load does not pause",
            rule.process
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of a run of 60 s with samples at rest each second, in which a column has these values.
    fn table(column: &str, value: impl Fn(usize) -> u64) -> String {
        let columns = [
            "rss",
            "descriptors",
            "accepted",
            "threads",
            "children",
            "used",
            "keys",
        ];
        let mut text = format!("seconds\tphase\tprocess\tpid\t{}\n", columns.join("\t"));
        for second in 0..60 {
            for process in ["stdio guard", "http guard", "node 1", "redis"] {
                let cells = columns.map(|name| {
                    let value = if name == column { value(second) } else { 100 };
                    value.to_string()
                });
                text += &format!("{second}\trest\t{process}\t7\t{}\n", cells.join("\t"));
            }
        }
        text
    }

    fn failed(table: &str) -> Vec<&'static str> {
        let samples = Samples::from_table(table).expect("samples");
        let verdicts = judge(&samples, 60.0).expect("a verdict");
        let failed = verdicts.iter().filter(|verdict| !verdict.holds());
        failed.map(|verdict| verdict.rule.column).collect()
    }

    #[test]
    fn growth_in_the_warm_up_is_allowed() {
        assert!(failed(&table("rss", |second| if second < 10 { 1 } else { 100 })).is_empty());
    }

    #[test]
    fn memory_may_grow_by_two_percent() {
        assert!(failed(&table("rss", |second| 1_000 + second as u64 / 3)).is_empty());
        let grows = table("rss", |second| 1_000 + second as u64);
        assert_eq!(failed(&grows), ["rss", "rss", "rss"]);
    }

    #[test]
    fn one_descriptor_more_at_rest_is_a_leak() {
        let grows = table("descriptors", |second| 17 + u64::from(second > 40));
        assert_eq!(failed(&grows), ["descriptors"; 3]);
        let spike = table("descriptors", |second| 17 + u64::from(second == 55));
        assert!(failed(&spike).is_empty());
    }

    #[test]
    fn process_that_was_replaced_is_an_error() {
        let text = table("rss", |_| 1).replace("59\trest\tnode 1\t7", "59\trest\tnode 1\t8");
        let samples = Samples::from_table(&text).expect("samples");
        assert!(judge(&samples, 60.0).is_err());
    }
}
