//! Compares new counts with the committed ones. Must not depend on what is counted.

use core::fmt::Write;
use std::collections::BTreeSet;

use super::counts::{Counts, Figure};
use crate::step::with_commas;

/// The growth that is tolerated, in percent. A decrease beyond it is worth reporting.
const TOLERANCE: u64 = 5;

/// Each count, before and now.
pub(super) struct Changes(Vec<Change>);

struct Change {
    case: String,
    figure: Figure,
    old: Option<u64>,
    new: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Fell,
    Gone,
    Grew,
    New,
    Same,
}

impl Changes {
    pub(super) fn between(old: &Counts, new: &Counts) -> Changes {
        let cases: BTreeSet<&str> = old.cases().chain(new.cases()).collect();
        let changes = cases.iter().flat_map(|case| {
            Figure::ALL.map(|figure| Change {
                case: (*case).to_owned(),
                figure,
                old: old.count(case, figure),
                new: new.count(case, figure),
            })
        });
        Changes(changes.collect())
    }

    /// The problems, a line for each.
    pub(super) fn problems(&self) -> Vec<String> {
        let problems = self.0.iter().filter_map(Change::problem);
        problems.collect()
    }

    /// The changes for a terminal: a line for each case with the old value, the new value and the change; then the decreases.
    pub(super) fn as_table(&self) -> String {
        let mut table = format!("{:34}", "");
        for figure in Figure::ALL {
            let _ = write!(table, "{:>12}{:>12}{:9}", figure.name(), "now", "");
        }
        for case_changes in self.0.chunks(Figure::ALL.len()) {
            table.truncate(table.trim_end().len());
            let _ = write!(table, "\n{:34}", case_changes[0].case);
            for change in case_changes {
                let (old, new) = (format_count(change.old), format_count(change.new));
                let _ = write!(table, "{old:>12}{new:>12}{:>9}", change.percent());
            }
        }
        table.truncate(table.trim_end().len());
        table.push('\n');
        for change in &self.0 {
            if change.verdict() == Verdict::Fell {
                let _ = writeln!(table, "{}: worth a `--write`", change.describe());
            }
        }
        table
    }
}

impl Change {
    fn verdict(&self) -> Verdict {
        let (old, new) = match (self.old, self.new) {
            (Some(old), Some(new)) => (old, new),
            (Some(_), None) => return Verdict::Gone,
            (None, Some(_)) => return Verdict::New,
            (None, None) => return Verdict::Same,
        };
        // Allocations are exact: one more is always growth.
        let limit = match self.figure {
            Figure::Allocations => 100 * old,
            Figure::Bytes | Figure::Instructions => (100 + TOLERANCE) * old,
        };
        if 100 * new > limit {
            Verdict::Grew
        } else if 100 * new < (100 - TOLERANCE) * old {
            Verdict::Fell
        } else {
            Verdict::Same
        }
    }

    fn problem(&self) -> Option<String> {
        let (case, figure) = (&self.case, self.figure.name());
        match self.verdict() {
            Verdict::Fell | Verdict::Same => None,
            Verdict::Gone => Some(format!(
                "{case}: {figure} are committed, but not counted; remove them with `--write`"
            )),
            Verdict::Grew => Some(self.describe()),
            Verdict::New => Some(format!(
                "{case}: {figure} are counted, but not committed; add them with `--write`"
            )),
        }
    }

    fn describe(&self) -> String {
        format!(
            "{}: {} {} -> {} ({})",
            self.case,
            self.figure.name(),
            format_count(self.old),
            format_count(self.new),
            self.percent()
        )
    }

    /// The change in percent, or an empty text.
    fn percent(&self) -> String {
        match (self.old, self.new) {
            (Some(old), Some(new)) if old != new => {
                let percent = 100.0 * (new as f64 - old as f64) / old as f64;
                format!("{percent:+.1} %")
            }
            _ => String::new(),
        }
    }
}

/// A formatted count, or a dash.
pub(super) fn format_count(count: Option<u64>) -> String {
    count.map_or_else(|| "-".into(), with_commas)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(figure: Figure, old: Option<u64>, new: Option<u64>) -> Verdict {
        let case = "case".to_owned();
        let change = Change {
            case,
            figure,
            old,
            new,
        };
        change.verdict()
    }

    #[test]
    fn changes_of_up_to_5_percent_are_tolerated() {
        for figure in [Figure::Bytes, Figure::Instructions] {
            let verdict_of = |new| verdict(figure, Some(1_000), Some(new));
            assert_eq!(verdict_of(1_051), Verdict::Grew);
            assert_eq!(verdict_of(1_050), Verdict::Same);
            assert_eq!(verdict_of(950), Verdict::Same);
            assert_eq!(verdict_of(949), Verdict::Fell);
        }
        assert_eq!(verdict(Figure::Bytes, Some(0), Some(1)), Verdict::Grew);
        assert_eq!(verdict(Figure::Bytes, Some(0), Some(0)), Verdict::Same);
    }

    #[test]
    fn one_more_allocation_counts_as_growth() {
        let verdict_of = |old, new| verdict(Figure::Allocations, Some(old), Some(new));
        assert_eq!(verdict_of(12, 13), Verdict::Grew);
        assert_eq!(verdict_of(20_000, 20_001), Verdict::Grew);
        assert_eq!(verdict_of(12, 12), Verdict::Same);
        assert_eq!(verdict_of(12, 11), Verdict::Fell);
    }

    #[test]
    fn problems_name_counts_that_grew_are_gone_or_are_new() {
        let page = |rows: &str| format!("case\tinstructions\tallocations\tbytes\n{rows}");
        let old = page("fell\t100\t3\t-\ngone\t1\t-\t-\ngrew\t10000\t3\t64\nkept\t100\t3\t64\n");
        let new = page("fell\t90\t2\t-\ngrew\t12000\t3\t64\nkept\t104\t3\t64\nnew\t-\t1\t-\n");
        let [old, new] = [old, new].map(|page| Counts::from_file(&page).expect("a table"));
        let changes = Changes::between(&old, &new);
        assert_eq!(
            changes.problems(),
            [
                "gone: instructions are committed, but not counted; remove them with `--write`",
                "grew: instructions 10,000 -> 12,000 (+20.0 %)",
                "new: allocations are counted, but not committed; add them with `--write`",
            ]
        );
        let table = changes.as_table();
        assert!(table.contains("fell: instructions 100 -> 90 (-10.0 %)"));
        assert!(!table.contains("kept: "), "{table}");
    }
}
