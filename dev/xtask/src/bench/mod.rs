//! `cargo xtask bench`: counts the costs of a link's work and compares them with the committed counts.
//!
//! `measure` runs the programs that count, `counts` is the committed table, `change` the comparison, and `bars` the fixed limits. `peers`
//! measures everlink and its peers by the clock.

mod bars;
mod change;
mod counts;
mod measure;
mod peers;

use crate::install::skip_without;
use crate::step::{self, Done, Outcome};

use change::Changes;
use counts::Counts;
pub(crate) use peers::{Rounds, lines, plot, run as run_peers};

/// The committed counts.
const FILE: &str = "benches/counts.tsv";

const NEEDED: &[&str] = &["valgrind"];

/// Counts, and shows the changes.
pub(crate) fn run() -> Result<(), String> {
    let (old, new) = (committed()?, count_all()?);
    show(&old, &new);
    Ok(())
}

/// Counts, shows the changes, and writes the counts.
pub(crate) fn write() -> Result<(), String> {
    let old = committed().unwrap_or_default();
    let new = count_all()?;
    show(&old, &new);
    let page = new.to_file(&measure::tools()?);
    step::write(FILE, page)?;
    eprintln!("\nwritten to {FILE}");
    Ok(())
}

/// Fails if a cost grew, or if it exceeds a fixed limit.
pub(crate) fn check() -> Outcome {
    if let Some(skipped) = skip_without(NEEDED) {
        return skipped;
    }
    let (old, new) = (committed()?, count_all()?);
    let changes = show(&old, &new);
    let mut all_problems = changes.problems();
    if !all_problems.is_empty() {
        all_problems.push(format!(
            "if that is the price of something, commit it with `cargo xtask bench --write`; {FILE} was made with {}, this is {}",
            old.tools(),
            measure::tools()?
        ));
    }
    let bar_problems = bars::problems(&new);
    if !bar_problems.is_empty() {
        all_problems.extend(bar_problems);
        all_problems.push("what is committed does not move these bars; make it cheaper".into());
    }
    if all_problems.is_empty() {
        Ok(Done::Passed)
    } else {
        Err(all_problems.join("\n"))
    }
}

fn committed() -> Result<Counts, String> {
    let page = step::read(FILE)?;
    Counts::from_file(&page).map_err(|error| format!("{FILE}: {error}"))
}

fn count_all() -> Result<Counts, String> {
    match skip_without(NEEDED) {
        Some(_) => Err("this needs valgrind".into()),
        None => measure::all(),
    }
}

fn show(old: &Counts, new: &Counts) -> Changes {
    let changes = Changes::between(old, new);
    eprintln!("\n{}\n{}", changes.as_table(), bars::as_table(new));
    changes
}

/// A number with commas between thousands.
fn with_commas(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::with_commas;

    #[test]
    fn thousands_are_separated_by_commas() {
        for (digits, expected) in [
            ("0", "0"),
            ("999", "999"),
            ("1000", "1,000"),
            ("1234567", "1,234,567"),
        ] {
            assert_eq!(with_commas(digits), expected);
        }
    }
}
