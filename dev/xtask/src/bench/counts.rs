//! The table of counts, and the file with the committed ones. Must not depend on how they are made or which are good.

use core::fmt::Write;
use std::collections::BTreeMap;

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
# `cargo xtask bench --write`, and held by `cargo xtask test`. Allocations are requests to the heap, bytes are those asked for; of `size` and `idle_heap`, those held.
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
        let mut page = format!("{ABOUT}{TOOLS_PREFIX}{tools}.\ncase");
        for figure in Figure::ALL {
            let _ = write!(page, "\t{}", figure.name());
        }
        page.push('\n');
        for (case, counts) in &self.cases {
            page.push_str(case);
            for count in counts {
                page.push('\t');
                match count {
                    Some(count) => page.push_str(&count.to_string()),
                    None => page.push('-'),
                }
            }
            page.push('\n');
        }
        page
    }

    pub(super) fn from_file(page: &str) -> Result<Counts, String> {
        let mut counts = Counts::default();
        let mut has_header = false;
        for line in page.lines() {
            if line.starts_with('#') {
                if let Some(tools) = line.strip_prefix(TOOLS_PREFIX) {
                    counts.tools = tools.trim_end_matches('.').to_owned();
                }
                continue;
            }
            let unreadable = || format!("this is no line of counts: {line}");
            let [case, columns @ ..] = &line.split('\t').collect::<Vec<_>>()[..] else {
                return Err(unreadable());
            };
            if !has_header {
                has_header = columns == Figure::ALL.map(Figure::name);
                if !has_header {
                    return Err(unreadable());
                }
                continue;
            }
            let columns: &[&str; 3] = columns.try_into().map_err(|_| unreadable())?;
            for (figure, count) in Figure::ALL.into_iter().zip(columns) {
                if *count != "-" {
                    counts.set(case, figure, count.parse().map_err(|_| unreadable())?);
                }
            }
        }
        Ok(counts)
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
