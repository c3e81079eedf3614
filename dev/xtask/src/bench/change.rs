//! What became of the counts since they were committed: told, and judged. Knows not what they are counts of.

use core::fmt::Write;
use std::collections::BTreeSet;

use super::apart;
use super::counts::{Counts, Figure};

/// By how many parts of a hundred a count may grow, and beyond how many its fall is worth a word.
const TOLERANCE: u64 = 5;

/// Each count that there is, before and now.
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
    Kept,
    Unknown,
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

    /// What is not as it may be, a line for each.
    pub(super) fn objections(&self) -> Vec<String> {
        let objections = self.0.iter().filter_map(Change::objection);
        objections.collect()
    }

    /// For a terminal: a line for each case, with old, new and change of each figure; then what fell.
    pub(super) fn as_table(&self) -> String {
        let mut table = format!("{:34}", "");
        for figure in Figure::ALL {
            let _ = write!(table, "{:>12}{:>12}{:9}", figure.name(), "now", "");
        }
        for of_case in self.0.chunks(Figure::ALL.len()) {
            table.truncate(table.trim_end().len());
            let _ = write!(table, "\n{:34}", of_case[0].case);
            for change in of_case {
                let (old, new) = (shown(change.old), shown(change.new));
                let _ = write!(table, "{old:>12}{new:>12}{:>9}", change.percent());
            }
        }
        table.truncate(table.trim_end().len());
        table.push('\n');
        for change in &self.0 {
            if change.verdict() == Verdict::Fell {
                let _ = writeln!(table, "{}: worth a `--write`", change.told());
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
            (None, Some(_)) => return Verdict::Unknown,
            (None, None) => return Verdict::Kept,
        };
        // One more of a few is more than a small part; and of many, allocations are as exact.
        let most = match self.figure {
            Figure::Allocations => 100 * old,
            Figure::Bytes | Figure::Instructions => (100 + TOLERANCE) * old,
        };
        if 100 * new > most {
            Verdict::Grew
        } else if 100 * new < (100 - TOLERANCE) * old {
            Verdict::Fell
        } else {
            Verdict::Kept
        }
    }

    fn objection(&self) -> Option<String> {
        let (case, figure) = (&self.case, self.figure.name());
        match self.verdict() {
            Verdict::Fell | Verdict::Kept => None,
            Verdict::Gone => Some(format!("{case}: {figure} are committed, but not counted")),
            Verdict::Grew => Some(self.told()),
            Verdict::Unknown => Some(format!("{case}: {figure} are counted, but not committed")),
        }
    }

    fn told(&self) -> String {
        format!(
            "{}: {} {} -> {} ({})",
            self.case,
            self.figure.name(),
            shown(self.old),
            shown(self.new),
            self.percent()
        )
    }

    /// By how much it changed, where it did.
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

/// A count, or a dash where there is none.
pub(super) fn shown(count: Option<u64>) -> String {
    count.map_or_else(|| "-".into(), |count| apart(&count.to_string()))
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
    fn a_twentieth_more_is_kept_and_not_a_bit_beyond() {
        for figure in [Figure::Bytes, Figure::Instructions] {
            let of = |new| verdict(figure, Some(1_000), Some(new));
            assert_eq!(of(1_051), Verdict::Grew);
            assert_eq!(of(1_050), Verdict::Kept);
            assert_eq!(of(950), Verdict::Kept);
            assert_eq!(of(949), Verdict::Fell);
        }
        assert_eq!(verdict(Figure::Bytes, Some(0), Some(1)), Verdict::Grew);
        assert_eq!(verdict(Figure::Bytes, Some(0), Some(0)), Verdict::Kept);
    }

    #[test]
    fn one_more_allocation_is_one_too_many() {
        let of = |old, new| verdict(Figure::Allocations, Some(old), Some(new));
        assert_eq!(of(12, 13), Verdict::Grew);
        assert_eq!(of(20_000, 20_001), Verdict::Grew);
        assert_eq!(of(12, 12), Verdict::Kept);
        assert_eq!(of(12, 11), Verdict::Fell);
    }

    #[test]
    fn objections_name_what_grew_is_gone_or_is_unknown() {
        let page = |rows: &str| format!("case\tinstructions\tallocations\tbytes\n{rows}");
        let old = page("fell\t100\t3\t-\ngone\t1\t-\t-\ngrew\t10000\t3\t64\nkept\t100\t3\t64\n");
        let new = page("fell\t90\t2\t-\ngrew\t12000\t3\t64\nkept\t104\t3\t64\nstrange\t-\t1\t-\n");
        let [old, new] = [old, new].map(|page| Counts::from_file(&page).expect("a table"));
        let changes = Changes::between(&old, &new);
        assert_eq!(
            changes.objections(),
            [
                "gone: instructions are committed, but not counted",
                "grew: instructions 10,000 -> 12,000 (+20.0 %)",
                "strange: allocations are counted, but not committed",
            ]
        );
        let table = changes.as_table();
        assert!(table.contains("fell: instructions 100 -> 90 (-10.0 %)"));
        assert!(!table.contains("kept: "), "{table}");
    }
}
