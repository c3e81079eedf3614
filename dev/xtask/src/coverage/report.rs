//! The coverage as text: a document for the repository, a summary for the terminal. Decides nothing.

use core::fmt::Write as _;

use super::ledger::{Entry, Ledger, Page, Standing};
use super::scope::Scope;

const HEAD: &str = "\
# Coverage

Which test shows which requirement, and which failure. Written by `cargo xtask coverage`; do not edit.

A test shows a row if it is named after it (`s_rpc_07_…` shows S-RPC-07, `f_012_…` shows F-012) or if the comment directly above it
cites the id; it shows a requirement also if a comment or a string inside it does. The file says whom a test speaks for:
`tests/server*`, `tests/pair*` and `src/server*` for the server; `tests/relay*`, `src/relay*`, `src/wire/` and `src/protocol/` for both
ends; all others for the client. Tests speak for a byte stream unless `http` is in the path; `src/wire/` and `src/protocol/` speak for
every binding. What cannot be shown in a scope is excused, with the reason, in `dev/xtask/data/excused.tsv`.

Versions: A is 2024-11-05, B 2025-03-26, C 2025-06-18, D 2025-11-25, L all of these; M is 2026-07-28, `M ext` an extension of it,
M+L an end that speaks both.
";

/// The whole document.
pub(crate) fn document(ledger: &Ledger) -> String {
    let mut text = HEAD.to_owned();
    section(&mut text, "Summary");
    table(
        &mut text,
        &["scope", "level", "rows", "covered", "excused", "uncovered"],
        ledger.pages.iter().filter_map(counts),
    );
    let (shown, all) = failures_counted(ledger);
    paragraph(&mut text, &format!("Failures: {shown} of {all} covered."));
    for scope in Scope::ALL {
        section(&mut text, scope.title());
        covered(&mut text, ledger, scope);
    }
    section(&mut text, "Uncovered");
    for scope in Scope::ALL {
        uncovered(&mut text, ledger, scope);
    }
    section(&mut text, "Failures");
    failures(&mut text, ledger);
    text
}

/// The counts, in columns.
pub(crate) fn summary(ledger: &Ledger) -> String {
    let mut text = String::new();
    for page in &ledger.pages {
        if let Some([scope, level, rows, covered, excused, uncovered]) = counts(page) {
            put(
                &mut text,
                format_args!(
                    "{scope:<26} {level:<12} {rows:>3} rows, {covered:>3} covered, {excused:>2} excused, {uncovered:>3} uncovered\n"
                ),
            );
        }
    }
    let (shown, all) = failures_counted(ledger);
    put(
        &mut text,
        format_args!("{:<39} {all:>3} rows, {shown:>3} covered", "Failures"),
    );
    text
}

/// A line of the summary; none for a page without rows.
fn counts(page: &Page) -> Option<[String; 6]> {
    let count = |is: fn(&Standing) -> bool| {
        let entries = page.entries.iter();
        entries.filter(|entry| is(&entry.standing)).count()
    };
    (!page.entries.is_empty()).then(|| {
        [
            page.scope.title().to_owned(),
            page.class.title().to_owned(),
            page.entries.len().to_string(),
            count(|standing| matches!(standing, Standing::Covered(_))).to_string(),
            count(|standing| matches!(standing, Standing::Excused(_))).to_string(),
            count(|standing| matches!(standing, Standing::Uncovered)).to_string(),
        ]
    })
}

/// How many failures are covered, and of how many.
fn failures_counted(ledger: &Ledger) -> (usize, usize) {
    let rows = ledger.failures.iter();
    let shown = rows.filter(|(_, tests)| !tests.is_empty()).count();
    (shown, ledger.failures.len())
}

/// What is shown or excused in a scope, a table for each class.
fn covered(text: &mut String, ledger: &Ledger, scope: Scope) {
    let line = |entry: &Entry| {
        let tests = match &entry.standing {
            Standing::Covered(tests) => tests.join(", "),
            Standing::Excused(reason) => format!("excused: {reason}"),
            Standing::Uncovered => return None,
        };
        let [id, level, versions] = [entry.id, entry.level, entry.versions].map(str::to_owned);
        Some([id, level, versions, tests])
    };
    let mut is_empty = true;
    for page in ledger.pages_of(scope) {
        let lines: Vec<_> = page.entries.iter().filter_map(line).collect();
        if lines.is_empty() {
            continue;
        }
        is_empty = false;
        paragraph(
            text,
            &format!("### {}: {}", scope.title(), page.class.title()),
        );
        table(text, &["id", "level", "versions", "tests"], lines);
    }
    if is_empty {
        paragraph(text, "Nothing is shown yet.");
    }
}

/// What is shown by no test in a scope, a list for each class.
fn uncovered(text: &mut String, ledger: &Ledger, scope: Scope) {
    for page in ledger.pages_of(scope) {
        let open: Vec<&Entry> = page
            .entries
            .iter()
            .filter(|entry| entry.is_uncovered())
            .collect();
        if open.is_empty() {
            continue;
        }
        paragraph(
            text,
            &format!("### Uncovered, {}: {}", scope.title(), page.class.title()),
        );
        list(
            text,
            open.into_iter().map(|entry| {
                format!(
                    "{} ({}, {}): {}",
                    entry.id, entry.level, entry.versions, entry.text
                )
            }),
        );
    }
}

fn failures(text: &mut String, ledger: &Ledger) {
    let (shown, open): (Vec<_>, Vec<_>) = ledger
        .failures
        .iter()
        .partition(|(_, tests)| !tests.is_empty());
    table(
        text,
        &["id", "trigger", "tests"],
        shown
            .into_iter()
            .map(|(row, tests)| [row.id.to_owned(), row.trigger.to_owned(), tests.join(", ")]),
    );
    if !open.is_empty() {
        paragraph(text, "### Uncovered failures");
        list(
            text,
            open.into_iter()
                .map(|(row, _)| format!("{}: {} → {}", row.id, row.trigger, row.right)),
        );
    }
}

fn section(text: &mut String, title: &str) {
    paragraph(text, &format!("## {title}"));
}

fn paragraph(text: &mut String, words: &str) {
    put(text, format_args!("\n{words}\n"));
}

fn list(text: &mut String, points: impl IntoIterator<Item = String>) {
    text.push('\n');
    for point in points {
        put(text, format_args!("- {point}\n"));
    }
}

fn table<const N: usize>(
    text: &mut String,
    head: &[&str; N],
    lines: impl IntoIterator<Item = [String; N]>,
) {
    put(
        text,
        format_args!("\n| {} |\n|{}\n", head.join(" | "), "---|".repeat(N)),
    );
    for line in lines {
        let cells = line.map(|cell| cell.replace('|', "\\|"));
        put(text, format_args!("| {} |\n", cells.join(" | ")));
    }
}

fn put(text: &mut String, words: core::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(words);
}

#[cfg(test)]
mod tests {
    use super::{document, summary};
    use crate::coverage::ledger::{Entry, Ledger, Page, Standing};
    use crate::coverage::rows::Failure;
    use crate::coverage::scope::{Class, Scope};

    fn ledger() -> Ledger {
        let entry = |id, standing| Entry {
            id,
            versions: "all",
            level: "MUST NOT",
            text: "Lie.",
            is_of_http: false,
            standing,
        };
        let failure = |id| Failure {
            id,
            trigger: "a|b",
            right: "c",
        };
        let tests = || vec!["x::a".to_owned(), "x::b".to_owned()];
        Ledger {
            pages: vec![Page {
                scope: Scope::ClientStream,
                class: Class::Must,
                entries: vec![
                    entry("S-A-01", Standing::Uncovered),
                    entry("S-A-02", Standing::Covered(tests())),
                    entry("S-A-03", Standing::Excused("it is so")),
                ],
            }],
            failures: vec![(failure("F-001"), tests()), (failure("F-002"), Vec::new())],
        }
    }

    #[test]
    fn each_row_is_on_a_line_of_its_own_in_the_place_of_its_standing() {
        let document = document(&ledger());
        let (shown, open) = document.split_once("## Uncovered\n").expect("two parts");
        for line in [
            "| Client over a byte stream | MUST | 3 | 1 | 1 | 1 |",
            "| S-A-02 | MUST NOT | all | x::a, x::b |",
            "| S-A-03 | MUST NOT | all | excused: it is so |",
        ] {
            assert!(shown.lines().any(|other| other == line), "{shown}");
        }
        for line in [
            "- S-A-01 (MUST NOT, all): Lie.",
            "| F-001 | a\\|b | x::a, x::b |",
            "- F-002: a|b → c",
        ] {
            assert!(open.lines().any(|other| other == line), "{open}");
        }
    }

    #[test]
    fn the_summary_counts() {
        let summary = summary(&ledger());
        let lines: Vec<String> = summary
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "Client over a byte stream MUST 3 rows, 1 covered, 1 excused, 1 uncovered",
                "Failures 2 rows, 1 covered"
            ]
        );
    }
}
