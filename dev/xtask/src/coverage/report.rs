//! Writes the coverage as text: a document for the repository, and a summary for the terminal. Must not decide anything.

use super::matrix::{Entry, Matrix, Section, Status};
use super::scope::{SCOPES, Scope};

const ABOUT: &str = include_str!("about.md");

/// The whole document.
pub(crate) fn document(matrix: &Matrix) -> String {
    let scopes = SCOPES.iter();
    let covered = scopes.clone().map(|scope| covered(matrix, *scope));
    let uncovered = scopes.map(|scope| uncovered(matrix, *scope));
    [
        ABOUT.to_owned(),
        "\n## Summary\n".to_owned(),
        summary(matrix),
        covered.collect(),
        "\n## Uncovered\n".to_owned(),
        uncovered.collect(),
        "\n## Failures\n".to_owned(),
        failures(matrix),
    ]
    .concat()
}

/// The counts.
pub(crate) fn summary(matrix: &Matrix) -> String {
    let rows = matrix.failures.iter();
    let covered = rows.filter(|(_, tests)| !tests.is_empty()).count();
    format!(
        "{}\nFailures: {covered} of {} covered.\n",
        table(
            ["scope", "level", "rows", "covered", "excused", "uncovered"],
            matrix.sections.iter().filter_map(counts),
        ),
        matrix.failures.len()
    )
}

/// A line of the summary; `None` for a section without rows.
fn counts(section: &Section) -> Option<[String; 6]> {
    let count = |is: fn(&Status) -> bool| {
        let entries = section.entries.iter();
        entries
            .filter(|entry| is(&entry.status))
            .count()
            .to_string()
    };
    (!section.entries.is_empty()).then(|| {
        [
            section.scope.title.to_owned(),
            section.class.title().to_owned(),
            section.entries.len().to_string(),
            count(|status| matches!(status, Status::Covered(_))),
            count(|status| matches!(status, Status::Excused(_))),
            count(|status| matches!(status, Status::Uncovered)),
        ]
    })
}

/// The covered and excused rows of a scope, a table for each class.
fn covered(matrix: &Matrix, scope: Scope) -> String {
    let line = |entry: &Entry| {
        let tests = match &entry.status {
            Status::Covered(tests) => tests.join(", "),
            Status::Excused(reason) => format!("excused: {reason}"),
            Status::Uncovered => return None,
        };
        let [id, level, versions] = [entry.id, entry.level, entry.versions].map(str::to_owned);
        Some([id, level, versions, tests])
    };
    let mut tables = String::new();
    for section in matrix.sections_of(scope) {
        let lines: Vec<_> = section.entries.iter().filter_map(line).collect();
        if !lines.is_empty() {
            let (scope, class) = (scope.title, section.class.title());
            let table = table(["id", "level", "versions", "tests"], lines);
            tables += &format!("\n### {scope}: {class}\n{table}");
        }
    }
    if tables.is_empty() {
        tables = "\nNothing is shown yet.\n".to_owned();
    }
    format!("\n## {}\n{tables}", scope.title)
}

/// The uncovered rows of a scope, a list for each class.
fn uncovered(matrix: &Matrix, scope: Scope) -> String {
    let mut lists = String::new();
    for section in matrix.sections_of(scope) {
        let open = section.entries.iter().filter(|entry| entry.is_uncovered());
        let open = open.map(|entry| {
            let Entry {
                id,
                level,
                versions,
                text,
                ..
            } = entry;
            format!("- {id} ({level}, {versions}): {text}\n")
        });
        let open: String = open.collect();
        if !open.is_empty() {
            let (scope, class) = (scope.title, section.class.title());
            lists += &format!("\n### Uncovered, {scope}: {class}\n\n{open}");
        }
    }
    lists
}

fn failures(matrix: &Matrix) -> String {
    let failures = matrix.failures.iter();
    let (covered, open): (Vec<_>, Vec<_>) = failures.partition(|(_, tests)| !tests.is_empty());
    let covered = covered.into_iter();
    let rows =
        covered.map(|(row, tests)| [row.id.to_owned(), row.trigger.to_owned(), tests.join(", ")]);
    let table = table(["id", "trigger", "tests"], rows);
    let open = open.into_iter();
    let open = open.map(|(row, _)| {
        format!(
            "- {}: {} → {}\n",
            row.id, row.trigger, row.correct_behaviour
        )
    });
    let open: String = open.collect();
    match open.is_empty() {
        true => table,
        false => format!("{table}\n### Uncovered failures\n\n{open}"),
    }
}

fn table<const N: usize>(head: [&str; N], lines: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = format!("\n| {} |\n|{}\n", head.join(" | "), "---|".repeat(N));
    for line in lines {
        let cells = line.map(|cell| cell.replace('|', "\\|"));
        table += &format!("| {} |\n", cells.join(" | "));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::{document, summary};
    use crate::coverage::matrix::{Entry, Matrix, Section, Status};
    use crate::coverage::rows::Failure;
    use crate::coverage::scope::{CLIENT_STREAM, Class};

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
                scope: CLIENT_STREAM,
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
        assert!(
            summary.ends_with("| Client over a byte stream | MUST | 3 | 1 | 1 | 1 |\n\nFailures: 1 of 2 covered.\n"),
            "{summary}"
        );
    }
}
