//! The fixed limits of counts, independent of earlier counts. Must not depend on how counts are made.

use core::fmt::Write;

use super::change::format_count;
use super::counts::{Counts, Figure};

/// The upper limit of a count.
enum Limit {
    /// An absolute number.
    Absolute(u64),
    /// A percentage of another case in the same run.
    PercentOf(u64, &'static str),
}

use Figure::{Allocations, Bytes, Instructions};
use Limit::{Absolute, PercentOf};

/// 150 % of a reference case; 110 % of a case that must not differ; and what a typed tool may cost beside one that is written by hand.
const ONE_AND_A_HALF: u64 = 150;
const ABOUT_EQUAL: u64 = 110;
const TYPED: u64 = 115;

// One line for each bar.
#[rustfmt::skip]
const BARS: &[(&str, Figure, Limit)] = &[
    ("round_trip/legacy_100b", Instructions, Absolute(14_000)),
    ("round_trip/modern_100b", Instructions, Absolute(14_000)),
    ("round_trip/legacy_100b", Allocations, Absolute(12)),
    ("round_trip/modern_100b", Allocations, Absolute(12)),
    ("decode_to_event/legacy_result_200b", Instructions, PercentOf(ONE_AND_A_HALF, "serde_json/result_200b")),
    ("decode_to_event/legacy_tools_60kb", Instructions, PercentOf(ONE_AND_A_HALF, "serde_json/tools_60kb")),
    ("decode_to_event/legacy_text_1mb", Instructions, PercentOf(ONE_AND_A_HALF, "serde_json/text_1mb")),
    ("decode_to_event/modern_result_200b", Instructions, PercentOf(ONE_AND_A_HALF, "serde_json/result_200b")),
    ("decode_to_event/modern_tools_60kb", Instructions, PercentOf(ONE_AND_A_HALF, "serde_json/tools_60kb")),
    ("decode_to_event/modern_text_1mb", Instructions, PercentOf(ONE_AND_A_HALF, "serde_json/text_1mb")),
    ("decode_to_event/legacy_result_200b", Allocations, Absolute(1)),
    ("decode_to_event/legacy_tools_60kb", Allocations, Absolute(1)),
    ("decode_to_event/legacy_text_1mb", Allocations, Absolute(1)),
    ("decode_to_event/modern_result_200b", Allocations, Absolute(1)),
    ("decode_to_event/modern_tools_60kb", Allocations, Absolute(1)),
    ("decode_to_event/modern_text_1mb", Allocations, Absolute(1)),
    ("idle_poll/in_flight_100000", Instructions, PercentOf(ABOUT_EQUAL, "idle_poll/in_flight_0")),
    ("idle_heap/legacy_client", Bytes, Absolute(4_096)),
    ("idle_heap/modern_client", Bytes, Absolute(4_096)),
    ("tool_call/legacy_typed", Instructions, PercentOf(TYPED, "tool_call/legacy_untyped")),
    ("tool_call/modern_typed", Instructions, PercentOf(TYPED, "tool_call/modern_untyped")),
    ("tool_call/modern_typed_10kb", Instructions, PercentOf(TYPED, "tool_call/modern_untyped_10kb")),
    ("tool_call/legacy_typed", Instructions, PercentOf(TYPED, "tool_call/legacy_by_hand")),
    ("tool_call/modern_typed", Instructions, PercentOf(TYPED, "tool_call/modern_by_hand")),
    ("tool_call/modern_typed_10kb", Instructions, PercentOf(TYPED, "tool_call/modern_by_hand_10kb")),
];

/// Bars that are not reached. `docs/BENCHMARKS.md` has the reasons and the profiles. Like all counts, these may not grow.
const FINDINGS: &[(&str, Figure)] = &[("round_trip/modern_100b", Instructions)];

/// The problems, a line for each: bars that do not hold, and findings that hold now.
pub(super) fn problems(counts: &Counts) -> Vec<String> {
    let problems = BARS.iter().filter_map(|(case, figure, limit)| {
        let (count, limit) = (counts.count(case, *figure), limit.value(counts, *figure));
        let holds = matches!((count, limit), (Some(count), Some(limit)) if count <= limit);
        let is_finding = FINDINGS.contains(&(*case, *figure)) && count.is_some();
        let (count, limit, figure) = (format_count(count), format_count(limit), figure.name());
        match (holds, is_finding) {
            (true, false) | (false, true) => None,
            (false, false) => Some(format!(
                "{case}: {count} {figure}, where {limit} are the most"
            )),
            (true, true) => Some(format!(
                "{case}: {count} {figure} hold the bar; it is no finding any more"
            )),
        }
    });
    problems.collect()
}

/// The bars for a terminal.
pub(super) fn as_table(counts: &Counts) -> String {
    let mut table = String::new();
    let _ = writeln!(table, "{:48}{:>12}{:>12}", "bars", "at most", "now");
    for (case, figure, limit) in BARS {
        let (count, limit) = (counts.count(case, *figure), limit.value(counts, *figure));
        let name = format!("{case} {}", figure.name());
        let state = match (count, limit) {
            (Some(count), Some(limit)) if count <= limit => "held",
            _ if FINDINGS.contains(&(*case, *figure)) => "not held: a finding",
            _ => "NOT HELD",
        };
        let _ = writeln!(
            table,
            "{name:48}{:>12}{:>12}  {state}",
            format_count(limit),
            format_count(count)
        );
    }
    table
}

impl Limit {
    fn value(&self, counts: &Counts, figure: Figure) -> Option<u64> {
        match self {
            Absolute(limit) => Some(*limit),
            PercentOf(percent, case) => Some(counts.count(case, figure)? * percent / 100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts at which every bar just holds.
    fn counts_at_the_limits() -> Counts {
        let mut counts = Counts::default();
        for (case, figure, limit) in BARS {
            if let PercentOf(_, other) = limit {
                counts.set(other, *figure, 1_000);
            }
            let limit = limit.value(&counts, *figure);
            counts.set(
                case,
                *figure,
                limit.expect("the reference case has a count"),
            );
        }
        counts
    }

    fn is_finding(case: &str, figure: Figure) -> bool {
        FINDINGS.contains(&(case, figure))
    }

    #[test]
    fn counts_at_the_limits_hold_and_make_findings_obsolete() {
        let problems = problems(&counts_at_the_limits());
        assert_eq!(problems.len(), FINDINGS.len(), "{problems:?}");
        let all = FINDINGS.iter().zip(problems);
        for ((case, _), problem) in all {
            assert!(
                problem.starts_with(case) && problem.ends_with("any more"),
                "{problem}"
            );
        }
    }

    #[test]
    fn count_above_its_limit_is_a_problem_except_for_findings() {
        for (case, figure, limit) in BARS {
            let mut counts = counts_at_the_limits();
            let limit = limit.value(&counts, *figure).expect("a bar");
            counts.set(case, *figure, limit + 1);
            let all = problems(&counts);
            let own_problems = all.iter().filter(|line| {
                line.starts_with(&format!("{case}: {}", format_count(Some(limit + 1))))
            });
            // A case may have several bars.
            let is_same = |bar: &&(&str, Figure, Limit)| bar.0 == *case && bar.1 == *figure;
            let expected = match is_finding(case, *figure) {
                true => 0,
                false => BARS.iter().filter(is_same).count(),
            };
            assert_eq!(own_problems.count(), expected, "{case} {}", figure.name());
        }
    }

    #[test]
    fn missing_counts_fail_every_bar() {
        assert_eq!(problems(&Counts::default()).len(), BARS.len());
    }
}
