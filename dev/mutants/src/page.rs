//! Writes the page with the figures from the committed results.

use core::fmt::Write;

use crate::table::{Accepted, Row, Survivor, Table};

/// The path of the page.
pub(crate) const PAGE: &str = "docs/MUTANTS.md";

const ABOUT: &str = include_str!("about.md");

/// The page for these results. `ran` says when and how they were made.
pub(crate) fn page(table: &Table, accepted: &[Accepted], ran: &str) -> String {
    let mut page = ABOUT.to_owned();
    let _ = writeln!(page, "\n## Figures\n\n{ran}\n");
    page +=
        "| file | mutants | caught | equivalent | survived | caught of those with an effect |\n";
    page += "|---|--:|--:|--:|--:|--:|\n";
    let mut sum = Count::default();
    for (file, row) in table {
        let count = Count::of(file, row, accepted);
        sum.add(&count);
        let _ = writeln!(page, "| `{file}` | {} |", count.cells());
    }
    let _ = writeln!(page, "| all | {} |", sum.cells());
    let _ = writeln!(
        page,
        "\n{} more changes do not compile, and {} are in functions that must stay `const` and cannot read the switch.",
        sum.uncompiled, sum.unswitched
    );
    page += "\n## Survivors\n\nNo test notices these changes, and nobody has said yet that they have no effect.\n\n";
    page += &list(table, |file, survivor| {
        let is_accepted = accepted.iter().any(|it| it.covers(file, survivor));
        let reached = if survivor.reached {
            ""
        } else {
            "no test runs it"
        };
        (!is_accepted).then(|| reached.to_owned())
    });
    page += "\n## Equivalent\n\nThese changes have no effect that a test could see, or one that does not matter. Each has its reason.\n\n";
    page += &list(table, |file, survivor| {
        let accepted = accepted.iter().find(|it| it.covers(file, survivor));
        accepted.map(|accepted| accepted.reason.clone())
    });
    page
}

/// A line for each survivor for which `note` is something.
fn list(table: &Table, note: impl Fn(&str, &Survivor) -> Option<String>) -> String {
    let mut lines = String::new();
    for (file, row) in table {
        for survivor in &row.survivors {
            let Some(note) = note(file, survivor) else {
                continue;
            };
            let Survivor {
                line,
                function,
                change,
                ..
            } = survivor;
            let note = if note.is_empty() {
                note
            } else {
                format!(": {note}")
            };
            let _ = writeln!(lines, "- `{file}:{line}`, `{function}`, {change}{note}");
        }
    }
    if lines.is_empty() {
        "None.\n".to_owned()
    } else {
        lines
    }
}

/// The figures of a file, or of all.
#[derive(Default)]
pub(crate) struct Count {
    mutants: usize,
    pub(crate) caught: usize,
    equivalent: usize,
    pub(crate) survived: usize,
    uncompiled: usize,
    unswitched: usize,
}

impl Count {
    pub(crate) fn of(file: &str, row: &Row, accepted: &[Accepted]) -> Count {
        let is_accepted =
            |survivor: &&Survivor| accepted.iter().any(|it| it.covers(file, survivor));
        let equivalent = row.survivors.iter().filter(is_accepted).count();
        Count {
            mutants: row.mutants,
            caught: row.caught,
            equivalent,
            survived: row.survivors.len() - equivalent,
            uncompiled: row.uncompiled,
            unswitched: row.unswitched,
        }
    }

    /// Whether at least this share of the changes with an effect was caught, in percent.
    pub(crate) const fn has_share(&self, percent: usize) -> bool {
        self.caught * 100 >= (self.caught + self.survived) * percent
    }

    fn add(&mut self, other: &Count) {
        self.mutants += other.mutants;
        self.caught += other.caught;
        self.equivalent += other.equivalent;
        self.survived += other.survived;
        self.uncompiled += other.uncompiled;
        self.unswitched += other.unswitched;
    }

    fn cells(&self) -> String {
        let Count {
            mutants,
            caught,
            equivalent,
            survived,
            ..
        } = self;
        let share = match caught + survived {
            0 => "—".to_owned(),
            all => format!("{:.1} %", *caught as f64 * 100.0 / all as f64),
        };
        format!("{mutants} | {caught} | {equivalent} | {survived} | {share}")
    }
}

/// The line of the page that says when the results were made.
pub(crate) fn ran_line(page: &str) -> Option<&str> {
    let (_, after) = page.split_once("\n## Figures\n\n")?;
    after.lines().next()
}
