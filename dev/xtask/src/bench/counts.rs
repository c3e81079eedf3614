//! The table of counts, and the file with the committed ones. Must not depend on how they are made or which are good.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

/// The counts of each case by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    cases: BTreeMap<String, [Option<u64>; 3]>,
    /// The tools that made the counts, if the file names them.
    tools: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    Instructions,
    Allocations,
    Bytes,
}

impl Figure {
    /// In the order of the columns.
    pub(super) const ALL: [Figure; 3] = [Figure::Instructions, Figure::Allocations, Figure::Bytes];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Figure::Instructions => "instructions",
            Figure::Allocations => "allocations",
            Figure::Bytes => "bytes",
        }
    }
}

/// The start of the line that names the tools.
const TOOLS_PREFIX: &str = "# Counted with ";

const ABOUT: &str = "\
# What the work of a link costs: see benches/cases for what each case does, and dev/bench-tools for `tool_call`. Made by
# `cargo xtask bench --write`, and checked by `cargo xtask test`. Allocations are calls of the allocator. Bytes are the bytes requested from it; for `size` and `idle_heap`, the bytes in use.
";

impl Counts {
    pub(super) fn set(&mut self, case: &str, figure: Figure, count: u64) {
        self.cases.entry(case.to_owned()).or_default()[figure as usize] = Some(count);
    }

    pub(super) fn count(&self, case: &str, figure: Figure) -> Option<u64> {
        self.cases.get(case)?[figure as usize]
    }

    /// The cases in the order of their names.
    pub(super) fn cases(&self) -> impl Iterator<Item = &str> {
        self.cases.keys().map(String::as_str)
    }

    /// The tools that made the counts.
    pub(super) fn tools(&self) -> &str {
        &self.tools
    }

    pub(super) fn to_file(&self, tools: &str) -> String {
        let head = Figure::ALL.map(Figure::name).join("\t");
        let mut page = format!("{ABOUT}{TOOLS_PREFIX}{tools}.\ncase\t{head}\n");
        for (case, counts) in &self.cases {
            let shown =
                counts.map(|count| count.map_or_else(|| "-".into(), |count| count.to_string()));
            page += &format!("{case}\t{}\n", shown.join("\t"));
        }
        page
    }

    pub(super) fn from_file(page: &str) -> Result<Counts> {
        let mut counts = Counts::default();
        let (about, table): (Vec<&str>, Vec<&str>) =
            page.lines().partition(|line| line.starts_with('#'));
        let tools = about
            .iter()
            .find_map(|line| line.strip_prefix(TOOLS_PREFIX));
        counts.tools = tools.unwrap_or_default().trim_end_matches('.').to_owned();
        let head = format!("case\t{}", Figure::ALL.map(Figure::name).join("\t"));
        let (first, rows) = table.split_first().context("there are no counts")?;
        ensure!(*first == head, "the columns are not {head}");
        for row in rows {
            counts.set_all(row, &Figure::ALL)?;
        }
        Ok(counts)
    }

    /// Adds the counts in a line: the case, and a column for each of these figures. A dash means no count.
    pub(super) fn set_all(&mut self, line: &str, figures: &[Figure]) -> Result<()> {
        let unreadable = || format!("this is no line of counts: {line}");
        let (case, columns) = line.split_once('\t').with_context(unreadable)?;
        let columns: Vec<&str> = columns.split('\t').collect();
        ensure!(columns.len() == figures.len(), unreadable());
        for (figure, count) in figures
            .iter()
            .zip(columns)
            .filter(|(_, count)| *count != "-")
        {
            self.set(case, *figure, count.parse().with_context(unreadable)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_file_round_trips() {
        let mut counts = Counts::default();
        counts.set("b/two", Figure::Bytes, 7);
        counts.set("a/one", Figure::Instructions, 1_234);
        counts.set("a/one", Figure::Allocations, 0);
        let page = counts.to_file("rustc 1.0, valgrind 3");
        assert!(
            page.ends_with(
                "case\tinstructions\tallocations\tbytes\na/one\t1234\t0\t-\nb/two\t-\t-\t7\n"
            ),
            "{page}"
        );
        let read = Counts::from_file(&page).expect("it is read");
        assert_eq!(read.cases, counts.cases);
        assert_eq!(read.tools(), "rustc 1.0, valgrind 3");
    }

    #[test]
    fn malformed_counts_file_is_an_error() {
        let head = "case\tinstructions\tallocations\tbytes\n";
        assert!(Counts::from_file(head).is_ok());
        for rest in [
            "a\t1\t2",
            "a\t1\t2\t3\t4",
            "a\t1\t2\tfew",
            "<<<<<<< ours",
            "",
        ] {
            let page = format!("{head}{rest}\n");
            assert!(Counts::from_file(&page).is_err(), "{rest}");
        }
        assert!(Counts::from_file("a\t1\t2\t3\n").is_err());
    }
}
