//! What everlink must reach beside its peers: the table of bars. Knows not how anything is measured.

use core::fmt::Write;

use super::figures::{Figure, Figures, number};

/// What a figure must be: so much, or so many times what somebody else took, at least or at most.
#[derive(Clone, Copy)]
enum Limit {
    Least(f64),
    LeastOf(f64, &'static str),
    Most(f64),
    MostOf(f64, &'static str),
}

use Limit::{Least, LeastOf, Most, MostOf};

/// Work, case and metric, and what it must be.
type Bar = (&'static str, &'static str, &'static str, Limit);

// A table reads best as one.
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
    // That of the program itself.
    ("idle", "10,000 pairs", "threads", Most(1.0)),
    ("idle", "10,000 pairs", "wakeups", Most(0.0)),
    ("death", "stdio kill -9, 1 call", "error_after", Most(1.0)),
    ("death", "stdio kill -9, 100 calls", "error_after", Most(1.0)),
    ("death", "http reset, 1 call", "error_after", Most(1.0)),
    // The deadline, and the time that it takes to say so.
    ("death", "frozen, 500 ms deadline", "error_after", Most(510.0)),
];

/// Whose figures count: the best of them holds a bar.
const OURS: [&str; 3] = ["everlink", "everlink-stdio", "everlink-tokio"];

const ERAS: [&str; 2] = ["legacy", "modern"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Held,
    NotHeld,
    NotMeasured,
}

/// A bar, and what came of it.
pub(super) struct Judged<'a> {
    bar: &'static Bar,
    eras: [Era<'a>; 2],
}

/// A bar in one era.
struct Era<'a> {
    limit: Option<f64>,
    ours: Vec<&'a Figure>,
    verdict: Verdict,
}

/// Every bar.
pub(super) fn judged(figures: &Figures) -> Vec<Judged<'_>> {
    let judge = |bar: &'static Bar| {
        let eras = ERAS.map(|era| Era::judge(bar, figures, era));
        Judged { bar, eras }
    };
    BARS.iter().map(judge).collect()
}

/// For a terminal.
pub(super) fn as_table(figures: &Figures) -> String {
    let mut table = String::from("bars\n");
    for judged in judged(figures) {
        let _ = writeln!(
            table,
            "  {:11} {}",
            judged.verdict().words(),
            judged.words()
        );
        for (name, era) in ERAS.iter().zip(&judged.eras) {
            let (limit, ours) = (era.limit(), era.ours("", ""));
            let _ = writeln!(table, "{:16}{name}: {limit:>10}  {ours}", "");
        }
    }
    table
}

/// The same for the page.
pub(super) fn as_markdown(figures: &Figures) -> String {
    let mut page = String::from(
        "| work | bar | legacy: bar | everlink | modern: bar | everlink | |\n|---|---|---|---|---|---|---|\n",
    );
    for judged in judged(figures) {
        let (work, case, metric, limit) = judged.bar;
        let _ = write!(page, "| {work}, {case} | {metric} {} |", limit.words());
        for era in &judged.eras {
            let _ = write!(page, " {} | {} |", era.limit(), era.ours("**", "<br>"));
        }
        let verdict = judged.verdict();
        let mark = if verdict == Verdict::NotHeld {
            "**"
        } else {
            ""
        };
        let _ = writeln!(page, " {mark}{}{mark} |", verdict.words());
    }
    page
}

impl Judged<'_> {
    /// A bar is held where it is in both eras.
    pub(super) fn verdict(&self) -> Verdict {
        let [legacy, modern] = &self.eras;
        match (legacy.verdict, modern.verdict) {
            (Verdict::NotHeld, _) | (_, Verdict::NotHeld) => Verdict::NotHeld,
            (Verdict::NotMeasured, _) | (_, Verdict::NotMeasured) => Verdict::NotMeasured,
            (Verdict::Held, Verdict::Held) => Verdict::Held,
        }
    }

    fn words(&self) -> String {
        let (work, case, metric, limit) = self.bar;
        format!("{work}, {case}: {metric} {}", limit.words())
    }
}

impl<'a> Era<'a> {
    fn judge(bar: &Bar, figures: &'a Figures, era: &str) -> Era<'a> {
        let (work, case, metric, limit) = *bar;
        let of = |who: &str| figures.find(work, case, metric, who, era);
        let mut ours: Vec<&Figure> = OURS.iter().filter_map(|who| of(who)).collect();
        ours.sort_by(|one, other| {
            let of = |figure: &Figure| figure.rounds.map_or(f64::INFINITY, |is| is.median);
            let order = of(one).total_cmp(&of(other));
            if limit.is_least() {
                order.reverse()
            } else {
                order
            }
        });
        let bound = limit.in_numbers(|who| Some(of(who)?.rounds?.median));
        let best = ours.first().map(|best| best.rounds);
        let verdict = match (best, bound) {
            (Some(Some(best)), Some(bound)) if limit.holds(best.median, bound) => Verdict::Held,
            (Some(_), Some(_)) => Verdict::NotHeld,
            (None, _) | (_, None) => Verdict::NotMeasured,
        };
        Era {
            limit: bound,
            ours,
            verdict,
        }
    }

    fn limit(&self) -> String {
        self.limit.map_or_else(|| "-".into(), number)
    }

    /// Who reached what, the best first and marked.
    fn ours(&self, mark: &str, between: &str) -> String {
        let all = self.ours.iter().enumerate().map(|(place, figure)| {
            let mark = if place == 0 { mark } else { "" };
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
    fn in_numbers(self, of: impl Fn(&str) -> Option<f64>) -> Option<f64> {
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

    fn words(self) -> String {
        let least = if self.is_least() {
            "at least"
        } else {
            "at most"
        };
        match self {
            Least(bound) | Most(bound) => format!("{least} {}", number(bound)),
            LeastOf(times, who) | MostOf(times, who) => {
                format!("{least} {} × {who}", number(times))
            }
        }
    }
}

impl Verdict {
    const fn words(self) -> &'static str {
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

    fn verdict(lines: &[String], which: usize) -> Verdict {
        let figures = Figures::from_lines(&lines.join("\n")).expect("figures");
        judged(&figures)[which].verdict()
    }

    #[test]
    fn the_best_of_ours_holds_a_bar_in_both_eras() {
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
    fn what_the_other_did_is_of_the_same_era() {
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
    fn more_is_better_where_it_is() {
        let place = ["proxy", "two cores", "throughput at 64"];
        let which = BARS.iter().position(|bar| [bar.0, bar.1, bar.2] == place);
        let which = which.expect("there is such a bar");
        let with = |value| verdict(&[line(place, "everlink", "both", value)], which);
        assert_eq!(with("50000"), Verdict::Held);
        assert_eq!(with("49999"), Verdict::NotHeld);
        assert_eq!(with("null"), Verdict::NotHeld);
    }
}
