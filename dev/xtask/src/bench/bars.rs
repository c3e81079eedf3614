//! What must hold whatever it was before: the table of bars. Knows not how anything is counted.

use core::fmt::Write;

use super::change::shown;
use super::counts::{Counts, Figure};

/// The most that a count may be.
enum Most {
    /// So many.
    Is(u64),
    /// So many parts of a hundred of what another case of the same run takes.
    Of(u64, &'static str),
}

use Figure::{Allocations, Bytes, Instructions};
use Most::{Is, Of};

/// Half as much again as the yardstick; and "as much" between cases that must not differ.
const HALF_MORE: u64 = 150;
const AS_MUCH: u64 = 110;

// A table reads best as one.
#[rustfmt::skip]
const BARS: &[(&str, Figure, Most)] = &[
    ("round_trip/legacy_100b", Instructions, Is(14_000)),
    ("round_trip/modern_100b", Instructions, Is(14_000)),
    ("round_trip/legacy_100b", Allocations, Is(12)),
    ("round_trip/modern_100b", Allocations, Is(12)),
    ("decode_to_event/legacy_result_200b", Instructions, Of(HALF_MORE, "serde_json/result_200b")),
    ("decode_to_event/legacy_tools_60kb", Instructions, Of(HALF_MORE, "serde_json/tools_60kb")),
    ("decode_to_event/legacy_text_1mb", Instructions, Of(HALF_MORE, "serde_json/text_1mb")),
    ("decode_to_event/modern_result_200b", Instructions, Of(HALF_MORE, "serde_json/result_200b")),
    ("decode_to_event/modern_tools_60kb", Instructions, Of(HALF_MORE, "serde_json/tools_60kb")),
    ("decode_to_event/modern_text_1mb", Instructions, Of(HALF_MORE, "serde_json/text_1mb")),
    ("decode_to_event/legacy_result_200b", Allocations, Is(1)),
    ("decode_to_event/legacy_tools_60kb", Allocations, Is(1)),
    ("decode_to_event/legacy_text_1mb", Allocations, Is(1)),
    ("decode_to_event/modern_result_200b", Allocations, Is(1)),
    ("decode_to_event/modern_tools_60kb", Allocations, Is(1)),
    ("decode_to_event/modern_text_1mb", Allocations, Is(1)),
    ("idle_poll/in_flight_100000", Instructions, Of(AS_MUCH, "idle_poll/in_flight_0")),
    ("idle_heap/legacy_client", Bytes, Is(4_096)),
    ("idle_heap/modern_client", Bytes, Is(4_096)),
];

/// Bars that are not reached. What stands in the way is told, with the profile that shows it, in `docs/BENCHMARKS.md`. Like every other count, these
/// may not grow.
const FINDINGS: &[(&str, Figure)] = &[("round_trip/modern_100b", Instructions)];

/// What is wrong with the bars, a line for each: those that do not hold, and findings that are none any more.
pub(super) fn objections(counts: &Counts) -> Vec<String> {
    let objections = BARS.iter().filter_map(|(case, figure, most)| {
        let (count, most) = (
            counts.count(case, *figure),
            most.in_numbers(counts, *figure),
        );
        let holds = matches!((count, most), (Some(count), Some(most)) if count <= most);
        let is_finding = FINDINGS.contains(&(*case, *figure)) && count.is_some();
        let (count, most, figure) = (shown(count), shown(most), figure.name());
        match (holds, is_finding) {
            (true, false) | (false, true) => None,
            (false, false) => Some(format!(
                "{case}: {count} {figure}, where {most} are the most"
            )),
            (true, true) => Some(format!(
                "{case}: {count} {figure} hold the bar; it is no finding any more"
            )),
        }
    });
    objections.collect()
}

/// For a terminal.
pub(super) fn as_table(counts: &Counts) -> String {
    let mut table = String::new();
    let _ = writeln!(table, "{:48}{:>12}{:>12}", "bars", "at most", "now");
    for (case, figure, most) in BARS {
        let (count, most) = (
            counts.count(case, *figure),
            most.in_numbers(counts, *figure),
        );
        let name = format!("{case} {}", figure.name());
        let held = match (count, most) {
            (Some(count), Some(most)) if count <= most => "held",
            _ if FINDINGS.contains(&(*case, *figure)) => "not held: a finding",
            _ => "NOT HELD",
        };
        let _ = writeln!(
            table,
            "{name:48}{:>12}{:>12}  {held}",
            shown(most),
            shown(count)
        );
    }
    table
}

impl Most {
    fn in_numbers(&self, counts: &Counts, figure: Figure) -> Option<u64> {
        match self {
            Is(most) => Some(*most),
            Of(percent, case) => Some(counts.count(case, figure)? * percent / 100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts with which every bar is just held.
    fn just_held() -> Counts {
        let mut counts = Counts::default();
        for (case, figure, most) in BARS {
            if let Of(_, other) = most {
                counts.set(other, *figure, 1_000);
            }
            let most = most.in_numbers(&counts, *figure);
            counts.set(case, *figure, most.expect("what it is held against"));
        }
        counts
    }

    fn is_finding(case: &str, figure: Figure) -> bool {
        FINDINGS.contains(&(case, figure))
    }

    #[test]
    fn bars_hold_up_to_what_they_say_and_findings_are_then_none() {
        let objections = objections(&just_held());
        assert_eq!(objections.len(), FINDINGS.len(), "{objections:?}");
        let all = FINDINGS.iter().zip(objections);
        for ((case, _), objection) in all {
            assert!(
                objection.starts_with(case) && objection.ends_with("any more"),
                "{objection}"
            );
        }
    }

    #[test]
    fn one_more_is_too_many_but_for_a_finding() {
        for (case, figure, most) in BARS {
            let mut counts = just_held();
            let most = most.in_numbers(&counts, *figure).expect("a bar");
            counts.set(case, *figure, most + 1);
            let all = objections(&counts);
            let of_this = all
                .iter()
                .filter(|line| line.starts_with(&format!("{case}: {}", shown(Some(most + 1)))));
            let expected = usize::from(!is_finding(case, *figure));
            assert_eq!(of_this.count(), expected, "{case} {}", figure.name());
        }
    }

    #[test]
    fn what_was_not_counted_is_not_held() {
        assert_eq!(objections(&Counts::default()).len(), BARS.len());
    }
}
