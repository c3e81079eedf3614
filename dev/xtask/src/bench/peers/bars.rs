//! The bars for everlink in the comparison with its peers. Must not depend on how figures are measured.

use super::figures::{Figure, Figures, format_number};

/// The limit of a figure: a minimum or a maximum, absolute or as a multiple of another library's figure.
#[derive(Clone, Copy)]
enum Limit {
    Least(f64),
    LeastOf(f64, &'static str),
    Most(f64),
    MostOf(f64, &'static str),
}

use Limit::{Least, LeastOf, Most, MostOf};

/// The work, case and metric, and the limit.
type Bar = (&'static str, &'static str, &'static str, Limit);

// One line for each bar.
#[rustfmt::skip]
const BARS: &[Bar] = &[
    ("stdio", "one core", "p50", MostOf(3.0, "raw")),
    ("stdio", "one core", "p50", MostOf(0.5, "rmcp-stdio_pipes")),
    ("stdio", "two cores", "p50", MostOf(0.5, "rmcp-stdio_pipes")),
    ("stdio", "two cores", "cpu", MostOf(3.0, "raw")),
    ("stdio", "two cores", "throughput at 64", LeastOf(250.0 / 556.0, "raw")),
    ("http", "one core", "p50", MostOf(0.5, "rmcp-pooled")),
    ("http", "two cores", "p50", MostOf(0.5, "rmcp-pooled")),
    ("http", "one core", "throughput at 64", LeastOf(2.0, "rmcp-pooled")),
    ("http", "two cores", "throughput at 64", LeastOf(2.0, "rmcp-pooled")),
    ("proxy", "two cores", "added", Most(60.0)),
    ("proxy", "two cores", "throughput at 64", Least(50_000.0)),
    ("idle", "10,000 pairs", "heap per client", Most(4_096.0)),
    // The thread of the program itself.
    ("idle", "10,000 pairs", "threads", Most(1.0)),
    ("idle", "10,000 pairs", "wakeups", Most(0.0)),
    ("death", "stdio kill -9, 1 call", "error_after", Most(1.0)),
    ("death", "stdio kill -9, 100 calls", "error_after", Most(1.0)),
    ("death", "http reset, 1 call", "error_after", Most(1.0)),
    // The deadline, and 10 ms to report it.
    ("death", "frozen, 500 ms deadline", "error_after", Most(510.0)),
];

/// Our libraries; the best of them counts.
const OURS: [&str; 3] = ["everlink", "everlink-stdio", "everlink-tokio"];

const ERAS: [&str; 2] = ["legacy", "modern"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Held,
    NotMeasured,
    NotHeld,
}

/// The bars for the page.
pub(super) fn as_markdown(figures: &Figures) -> String {
    let mut page = String::from(
        "| work | bar | legacy: bar | everlink | modern: bar | everlink | |\n|---|---|---|---|---|---|---|\n",
    );
    for bar in BARS {
        let (work, case, metric, limit) = bar;
        page += &format!("| {work}, {case} | {metric} {} |", limit.text());
        let eras = ERAS.map(|era| EraResult::evaluate(bar, figures, era));
        for era in &eras {
            let limit = era.limit.map_or_else(|| "-".into(), format_number);
            page += &format!(" {limit} | {} |", era.ours());
        }
        page += match verdict(&eras) {
            Verdict::Held => " held |\n",
            Verdict::NotMeasured => " not measured |\n",
            Verdict::NotHeld => " **not held** |\n",
        };
    }
    page
}

/// A bar holds if it holds in both eras.
fn verdict([legacy, modern]: &[EraResult<'_>; 2]) -> Verdict {
    legacy.verdict.max(modern.verdict)
}

/// The result of a bar in one era.
struct EraResult<'a> {
    limit: Option<f64>,
    /// The figures of our libraries, the best first.
    ours: Vec<&'a Figure>,
    verdict: Verdict,
}

impl<'a> EraResult<'a> {
    fn evaluate(bar: &Bar, figures: &'a Figures, era: &str) -> EraResult<'a> {
        let (work, case, metric, limit) = *bar;
        let of = |who: &str| figures.find(work, case, metric, who, era);
        let median = |figure: &Figure| figure.rounds().map(|rounds| rounds.median);
        let mut ours: Vec<&Figure> = OURS.iter().filter_map(|who| of(who)).collect();
        ours.sort_by(|left, right| {
            let [left, right] = [left, right].map(|it| median(it).unwrap_or(f64::INFINITY));
            match limit.is_least() {
                true => right.total_cmp(&left),
                false => left.total_cmp(&right),
            }
        });
        let bound = limit.value(|who| median(of(who)?));
        let verdict = match (ours.first(), bound) {
            (Some(best), Some(bound)) => match median(best) {
                Some(best) if limit.holds(best, bound) => Verdict::Held,
                _ => Verdict::NotHeld,
            },
            (None, _) | (_, None) => Verdict::NotMeasured,
        };
        EraResult {
            limit: bound,
            ours,
            verdict,
        }
    }

    /// The figures of our libraries, with a mark at the best.
    fn ours(&self) -> String {
        let ours = self.ours.iter().enumerate().map(|(position, figure)| {
            let mark = if position == 0 { "**" } else { "" };
            let who = match self.ours.len() {
                1 => String::new(),
                _ => format!(" {}", figure.who),
            };
            format!("{mark}{}{mark}{who}", figure.value())
        });
        ours.collect::<Vec<_>>().join("<br>")
    }
}

impl Limit {
    fn value(self, of: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        match self {
            Least(bound) | Most(bound) => Some(bound),
            LeastOf(times, who) | MostOf(times, who) => Some(times * of(who)?),
        }
    }

    const fn is_least(self) -> bool {
        matches!(self, Least(_) | LeastOf(..))
    }

    fn holds(self, figure: f64, bound: f64) -> bool {
        match self.is_least() {
            true => figure >= bound,
            false => figure <= bound,
        }
    }

    fn text(self) -> String {
        let least = match self.is_least() {
            true => "at least",
            false => "at most",
        };
        match self {
            Least(bound) | Most(bound) => format!("{least} {}", format_number(bound)),
            LeastOf(times, who) | MostOf(times, who) => {
                format!("{least} {} × {who}", format_number(times))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::line;
    use super::*;

    const P50: [&str; 3] = ["stdio", "one core", "p50"];

    fn verdict(lines: &[String], index: usize) -> Verdict {
        let figures = Figures::from_lines(&lines.join("\n")).expect("figures");
        super::verdict(&ERAS.map(|era| EraResult::evaluate(&BARS[index], &figures, era)))
    }

    #[test]
    fn bar_holds_if_our_best_library_meets_it_in_both_eras() {
        let mut lines = vec![
            line(P50, "raw", "both", "4"),
            line(P50, "everlink-stdio", "legacy", "30"),
            line(P50, "everlink-tokio", "legacy", "12"),
        ];
        assert_eq!(verdict(&lines, 0), Verdict::NotMeasured);
        lines.push(line(P50, "everlink-tokio", "modern", "11"));
        assert_eq!(verdict(&lines, 0), Verdict::Held);
        lines[2] = line(P50, "everlink-tokio", "legacy", "12.1");
        assert_eq!(verdict(&lines, 0), Verdict::NotHeld);
    }

    #[test]
    fn relative_limit_uses_the_peer_of_the_same_era() {
        let mut lines = vec![
            line(P50, "rmcp-stdio_pipes", "legacy", "20"),
            line(P50, "rmcp-stdio_pipes", "modern", "30"),
            line(P50, "everlink-tokio", "legacy", "10"),
            line(P50, "everlink-tokio", "modern", "15"),
        ];
        assert_eq!(verdict(&lines, 1), Verdict::Held);
        lines[2] = line(P50, "everlink-tokio", "legacy", "15");
        assert_eq!(verdict(&lines, 1), Verdict::NotHeld);
    }

    #[test]
    fn minimum_bar_holds_at_or_above_its_limit() {
        let work_case_metric = ["proxy", "two cores", "throughput at 64"];
        let index = BARS
            .iter()
            .position(|bar| [bar.0, bar.1, bar.2] == work_case_metric);
        let index = index.expect("there is such a bar");
        let with = |value| verdict(&[line(work_case_metric, "everlink", "both", value)], index);
        assert_eq!(with("50000"), Verdict::Held);
        assert_eq!(with("49999"), Verdict::NotHeld);
        assert_eq!(with("null"), Verdict::NotHeld);
    }
}
