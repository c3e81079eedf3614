//! The results: the page, which is also shown in the terminal, and the errors. Must not run anything.

use anyhow::{Context as _, Result};

use super::row::{Row, STEPS};
use super::runner::RowResult;
use crate::step::check_none;

const ABOUT: &str = include_str!("about.md");

/// Fails if a step failed or is missing.
pub(super) fn check(results: &[(Row, RowResult)]) -> Result<()> {
    let mut problems = Vec::new();
    for (row, result) in results {
        let before = problems.len();
        for (step, outcome) in &result.steps {
            if let Err(error) = outcome {
                problems.push(format!("{}, {step}: {error}", row.name()));
            }
        }
        if problems.len() > before {
            let lines: Vec<&str> = result.log.lines().collect();
            let last = &lines[lines.len().saturating_sub(20)..];
            problems.extend(last.iter().map(|line| format!("    {line}")));
        }
    }
    check_none(&problems).context("something went wrong")
}

/// The page. It does not differ from run to run unless something fails.
pub(super) fn page(results: &[(Row, RowResult)]) -> String {
    let mut reasons = Vec::new();
    let mut page = ABOUT.to_owned();
    let (head, rule) = (STEPS[1..].join(" | "), "|---".repeat(STEPS.len() + 2));
    for (ours, heading) in [
        ("client", "Our client, servers of others"),
        ("server", "Our server, clients of others"),
    ] {
        page += &format!("\n## {heading}\n\n| peer | over | agreed on | {head} |\n{rule}|\n");
        for (row, result) in results.iter().filter(|(row, _)| row.ours == ours) {
            let version = match result.steps.get("handshake") {
                Some(Ok(())) => &row.version,
                Some(Err(_)) | None => "NO",
            };
            let cells = STEPS[1..].iter();
            let cells = cells.map(|step| cell(row, result, step, &mut reasons));
            let cells: Vec<String> = cells.collect();
            let (title, over) = (&row.title, row.transport_and_mode());
            page += &format!("| {title} | {over} | {version} | {} |\n", cells.join(" | "));
        }
    }
    page.push('\n');
    for (index, reason) in reasons.iter().enumerate() {
        page += &format!("{}. {reason}\n", index + 1);
    }
    page
}

/// The cell of a step: "yes", "NO", or the number of the reason why the peer does not support it.
fn cell(row: &Row, result: &RowResult, step: &str, reasons: &mut Vec<String>) -> String {
    match (result.steps.get(step), row.reason_unsupported(step)) {
        (Some(Ok(())), _) => "yes".to_owned(),
        (None, Some(reason)) => {
            let known = reasons.iter().position(|known| known == reason);
            let at = known.unwrap_or_else(|| {
                reasons.push(reason.to_owned());
                reasons.len() - 1
            });
            format!("- ({})", at + 1)
        }
        (Some(Err(_)), _) | (None, None) => "NO".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_page_is_that_of_a_run_without_failures() {
        let results = Row::all().expect("rows").into_iter().map(|row| {
            let steps = row.steps().map(|step| (step, Ok(()))).collect();
            let result = RowResult {
                steps,
                ..RowResult::default()
            };
            (row, result)
        });
        let results: Vec<(Row, RowResult)> = results.collect();
        check(&results).expect("no failures");
        let committed = crate::step::read("docs/INTEROP.md").expect("a page");
        assert_eq!(page(&results), committed);
    }
}
