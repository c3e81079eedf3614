//! Writes the coverage as text: a document for the repository, and a summary for the terminal. Must not decide anything.

use core::fmt::Write as _;

use super::matrix::{Entry, Matrix, Section, Status};
use super::scope::Scope;

const HEAD: &str = "\
# Coverage

Which test shows which requirement, and which failure. Written by `cargo xtask coverage`; do not edit.

A test shows a row if it is named after it (`s_rpc_07_…` shows S-RPC-07, `f_012_…` shows F-012) or if the comment directly above it
cites the id; it shows a requirement also if a comment or a string inside it does. The file says whom a test speaks for:
`tests/server*`, `tests/pair*` and `src/server*` for the server; `tests/relay*`, `src/relay*`, `src/json/`, `src/wire/` and `src/protocol/` for
both ends; all others for the client. Tests speak for a byte stream unless `http` is in the path; the last three speak for
every binding, and `tests/auth/` and `src/auth/` for HTTP. Ids of the protocol begin with S, those of authorization with A. What cannot be shown in a scope is excused, with the reason, in `dev/xtask/data/excused.tsv`.

Versions: A is 2024-11-05, B 2025-03-26, C 2025-06-18, D 2025-11-25, L all of these; M is 2026-07-28, `M ext` an extension of it,
M+L an end that speaks both.
";

/// The whole document.
pub(crate) fn document(matrix: &Matrix) -> String {
    let mut text = HEAD.to_owned();
    heading(&mut text, "Summary");
    table(
        &mut text,
        &["scope", "level", "rows", "covered", "excused", "uncovered"],
        matrix.sections.iter().filter_map(counts),
    );
    let (covered_count, all) = failure_counts(matrix);
    paragraph(
        &mut text,
        &format!("Failures: {covered_count} of {all} covered."),
    );
    for scope in Scope::ALL {
        heading(&mut text, scope.title());
        covered(&mut text, matrix, scope);
    }
    heading(&mut text, "Uncovered");
    for scope in Scope::ALL {
        uncovered(&mut text, matrix, scope);
    }
    heading(&mut text, "Failures");
    failures(&mut text, matrix);
    text
}

/// The counts in columns.
pub(crate) fn summary(matrix: &Matrix) -> String {
    let mut text = String::new();
    for section in &matrix.sections {
        if let Some([scope, level, rows, covered, excused, uncovered]) = counts(section) {
            append(
                &mut text,
                format_args!(
                    "{scope:<26} {level:<12} {rows:>3} rows, {covered:>3} covered, {excused:>2} excused, {uncovered:>3} uncovered\n"
                ),
            );
        }
    }
    let (covered_count, all) = failure_counts(matrix);
    append(
        &mut text,
        format_args!(
            "{:<39} {all:>3} rows, {covered_count:>3} covered",
            "Failures"
        ),
    );
    text
}

/// A line of the summary; `None` for a section without rows.
fn counts(section: &Section) -> Option<[String; 6]> {
    let count = |is: fn(&Status) -> bool| {
        let entries = section.entries.iter();
        entries.filter(|entry| is(&entry.status)).count()
    };
    (!section.entries.is_empty()).then(|| {
        [
            section.scope.title().to_owned(),
            section.class.title().to_owned(),
            section.entries.len().to_string(),
            count(|status| matches!(status, Status::Covered(_))).to_string(),
            count(|status| matches!(status, Status::Excused(_))).to_string(),
            count(|status| matches!(status, Status::Uncovered)).to_string(),
        ]
    })
}

/// The number of covered failures, and of all.
fn failure_counts(matrix: &Matrix) -> (usize, usize) {
    let rows = matrix.failures.iter();
    let covered_count = rows.filter(|(_, tests)| !tests.is_empty()).count();
    (covered_count, matrix.failures.len())
}

/// The covered and excused rows of a scope, a table for each class.
fn covered(text: &mut String, matrix: &Matrix, scope: Scope) {
    let line = |entry: &Entry| {
        let tests = match &entry.status {
            Status::Covered(tests) => tests.join(", "),
            Status::Excused(reason) => format!("excused: {reason}"),
            Status::Uncovered => return None,
        };
        let [id, level, versions] = [entry.id, entry.level, entry.versions].map(str::to_owned);
        Some([id, level, versions, tests])
    };
    let mut is_empty = true;
    for section in matrix.sections_of(scope) {
        let lines: Vec<_> = section.entries.iter().filter_map(line).collect();
        if lines.is_empty() {
            continue;
        }
        is_empty = false;
        paragraph(
            text,
            &format!("### {}: {}", scope.title(), section.class.title()),
        );
        table(text, &["id", "level", "versions", "tests"], lines);
    }
    if is_empty {
        paragraph(text, "Nothing is shown yet.");
    }
}

/// The uncovered rows of a scope, a list for each class.
fn uncovered(text: &mut String, matrix: &Matrix, scope: Scope) {
    for section in matrix.sections_of(scope) {
        let open: Vec<&Entry> = section
            .entries
            .iter()
            .filter(|entry| entry.is_uncovered())
            .collect();
        if open.is_empty() {
            continue;
        }
        paragraph(
            text,
            &format!(
                "### Uncovered, {}: {}",
                scope.title(),
                section.class.title()
            ),
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

fn failures(text: &mut String, matrix: &Matrix) {
    let (covered_rows, open_rows): (Vec<_>, Vec<_>) = matrix
        .failures
        .iter()
        .partition(|(_, tests)| !tests.is_empty());
    table(
        text,
        &["id", "trigger", "tests"],
        covered_rows
            .into_iter()
            .map(|(row, tests)| [row.id.to_owned(), row.trigger.to_owned(), tests.join(", ")]),
    );
    if !open_rows.is_empty() {
        paragraph(text, "### Uncovered failures");
        list(
            text,
            open_rows
                .into_iter()
                .map(|(row, _)| format!("{}: {} → {}", row.id, row.trigger, row.correct_behaviour)),
        );
    }
}

fn heading(text: &mut String, title: &str) {
    paragraph(text, &format!("## {title}"));
}

fn paragraph(text: &mut String, content: &str) {
    append(text, format_args!("\n{content}\n"));
}

fn list(text: &mut String, points: impl IntoIterator<Item = String>) {
    text.push('\n');
    for point in points {
        append(text, format_args!("- {point}\n"));
    }
}

fn table<const N: usize>(
    text: &mut String,
    head: &[&str; N],
    lines: impl IntoIterator<Item = [String; N]>,
) {
    append(
        text,
        format_args!("\n| {} |\n|{}\n", head.join(" | "), "---|".repeat(N)),
    );
    for line in lines {
        let cells = line.map(|cell| cell.replace('|', "\\|"));
        append(text, format_args!("| {} |\n", cells.join(" | ")));
    }
}

fn append(text: &mut String, content: core::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(content);
}

#[cfg(test)]
mod tests {
    use super::{document, summary};
    use crate::coverage::matrix::{Entry, Matrix, Section, Status};
    use crate::coverage::rows::Failure;
    use crate::coverage::scope::{Class, Scope};

    fn matrix() -> Matrix {
        let entry = |id, status| Entry {
            id,
            versions: "all",
            level: "MUST NOT",
            text: "Lie.",
            is_http_only: false,
            status,
        };
        let failure = |id| Failure {
            id,
            trigger: "a|b",
            correct_behaviour: "c",
        };
        let tests = || vec!["x::a".to_owned(), "x::b".to_owned()];
        Matrix {
            sections: vec![Section {
                scope: Scope::ClientStream,
                class: Class::Must,
                entries: vec![
                    entry("S-A-01", Status::Uncovered),
                    entry("S-A-02", Status::Covered(tests())),
                    entry("S-A-03", Status::Excused("it is so")),
                ],
            }],
            failures: vec![(failure("F-001"), tests()), (failure("F-002"), Vec::new())],
        }
    }

    #[test]
    fn each_row_is_on_its_own_line_under_its_status() {
        let document = document(&matrix());
        let (covered_part, open_part) = document.split_once("## Uncovered\n").expect("two parts");
        for line in [
            "| Client over a byte stream | MUST | 3 | 1 | 1 | 1 |",
            "| S-A-02 | MUST NOT | all | x::a, x::b |",
            "| S-A-03 | MUST NOT | all | excused: it is so |",
        ] {
            assert!(
                covered_part.lines().any(|other| other == line),
                "{covered_part}"
            );
        }
        for line in [
            "- S-A-01 (MUST NOT, all): Lie.",
            "| F-001 | a\\|b | x::a, x::b |",
            "- F-002: a|b → c",
        ] {
            assert!(open_part.lines().any(|other| other == line), "{open_part}");
        }
    }

    #[test]
    fn summary_has_counts_for_each_section() {
        let summary = summary(&matrix());
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
