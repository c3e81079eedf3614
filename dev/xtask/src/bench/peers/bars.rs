//! The bars for everlink in the comparison with its peers. Must not depend on how figures are measured.

use core::fmt::Write;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Held,
    NotHeld,
    NotMeasured,
}

/// A bar, and its result in each era.
pub(super) struct BarResult<'a> {
    bar: &'static Bar,
    eras: [EraResult<'a>; 2],
}

/// The result of a bar in one era.
struct EraResult<'a> {
    limit: Option<f64>,
    ours: Vec<&'a Figure>,
    verdict: Verdict,
}

/// The results of all bars.
pub(super) fn results(figures: &Figures) -> Vec<BarResult<'_>> {
    let evaluate = |bar: &'static Bar| {
        let eras = ERAS.map(|era| EraResult::evaluate(bar, figures, era));
        BarResult { bar, eras }
    };
    BARS.iter().map(evaluate).collect()
}

/// The bars for a terminal.
pub(super) fn as_table(figures: &Figures) -> String {
    let mut table = String::from("bars\n");
    for result in results(figures) {
        let _ = writeln!(table, "  {:11} {}", result.verdict().text(), result.text());
        for (name, era) in ERAS.iter().zip(&result.eras) {
            let (limit, ours) = (era.limit(), era.ours("", ""));
            let _ = writeln!(table, "{:16}{name}: {limit:>10}  {ours}", "");
        }
    }
    table
}

/// The bars for the page.
pub(super) fn as_markdown(figures: &Figures) -> String {
    let mut page = String::from(
        "| work | bar | legacy: bar | everlink | modern: bar | everlink | |\n|---|---|---|---|---|---|---|\n",
    );
    for result in results(figures) {
        let (work, case, metric, limit) = result.bar;
        let _ = write!(page, "| {work}, {case} | {metric} {} |", limit.text());
        for era in &result.eras {
            let _ = write!(page, " {} | {} |", era.limit(), era.ours("**", "<br>"));
        }
        let verdict = result.verdict();
        let mark = if verdict == Verdict::NotHeld {
            "**"
        } else {
            ""
        };
        let _ = writeln!(page, " {mark}{}{mark} |", verdict.text());
    }
    page
}

impl BarResult<'_> {
    /// A bar holds if it holds in both eras.
    pub(super) fn verdict(&self) -> Verdict {
        let [legacy, modern] = &self.eras;
        match (legacy.verdict, modern.verdict) {
            (Verdict::NotHeld, _) | (_, Verdict::NotHeld) => Verdict::NotHeld,
            (Verdict::NotMeasured, _) | (_, Verdict::NotMeasured) => Verdict::NotMeasured,
            (Verdict::Held, Verdict::Held) => Verdict::Held,
        }
    }

    fn text(&self) -> String {
        let (work, case, metric, limit) = self.bar;
        format!("{work}, {case}: {metric} {}", limit.text())
    }
}

impl<'a> EraResult<'a> {
    fn evaluate(bar: &Bar, figures: &'a Figures, era: &str) -> EraResult<'a> {
        let (work, case, metric, limit) = *bar;
        let of = |who: &str| figures.find(work, case, metric, who, era);
        let mut ours: Vec<&Figure> = OURS.iter().filter_map(|who| of(who)).collect();
        ours.sort_by(|left, right| {
            let of = |figure: &Figure| figure.rounds.map_or(f64::INFINITY, |is| is.median);
            let order = of(left).total_cmp(&of(right));
            if limit.is_least() {
                order.reverse()
            } else {
                order
            }
        });
        let bound = limit.value(|who| Some(of(who)?.rounds?.median));
        let best = ours.first().map(|best| best.rounds);
        let verdict = match (best, bound) {
            (Some(Some(best)), Some(bound)) if limit.holds(best.median, bound) => Verdict::Held,
            (Some(_), Some(_)) => Verdict::NotHeld,
            (None, _) | (_, None) => Verdict::NotMeasured,
        };
        EraResult {
            limit: bound,
            ours,
            verdict,
        }
    }

    fn limit(&self) -> String {
        self.limit.map_or_else(|| "-".into(), format_number)
    }

    /// The figures of our libraries, the best first and marked.
    fn ours(&self, mark: &str, between: &str) -> String {
        let all = self.ours.iter().enumerate().map(|(position, figure)| {
            let mark = if position == 0 { mark } else { "" };
            let value = figure.value();
            if self.ours.len() == 1 {
                format!("{mark}{value}{mark}")
            } else {
                format!("{mark}{value}{mark} {}", figure.who)
            }
        });
        let all: Vec<String> = all.collect();
        let between = if between.is_empty() { ", " } else { between };
        all.join(between)
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
        if self.is_least() {
            figure >= bound
        } else {
            figure <= bound
        }
    }

    fn text(self) -> String {
        let least = if self.is_least() {
            "at least"
        } else {
            "at most"
        };
        match self {
            Least(bound) | Most(bound) => format!("{least} {}", format_number(bound)),
            LeastOf(times, who) | MostOf(times, who) => {
                format!("{least} {} × {who}", format_number(times))
            }
        }
    }
}

impl Verdict {
    const fn text(self) -> &'static str {
        match self {
            Verdict::Held => "held",
            Verdict::NotHeld => "not held",
            Verdict::NotMeasured => "not measured",
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
        results(&figures)[index].verdict()
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
