//! `cargo xtask bench`: what the work of a link costs, counted and not timed, held against what is committed.
//!
//! `measure` runs what counts; `counts` is the table of it, as it is committed; `change` what became of it since; `bars` what must hold
//! whatever it was before. `beside` is another thing: everlink and its peers side by side, by the clock.

mod bars;
mod beside;
mod change;
mod counts;
mod measure;

use std::fs;

use crate::peers::lacks;
use crate::step::{Done, Outcome, root};

pub(crate) use beside::run as beside;
use change::Changes;
use counts::Counts;

/// What is committed.
const FILE: &str = "benches/counts.tsv";

const NEEDED: &[&str] = &["valgrind"];

/// Counts, and shows what has changed.
pub(crate) fn run() -> Result<(), String> {
    let (old, new) = (committed()?, counted()?);
    show(&old, &new);
    Ok(())
}

/// Counts, shows what has changed, and writes it down.
pub(crate) fn write() -> Result<(), String> {
    let old = committed().unwrap_or_default();
    let new = counted()?;
    show(&old, &new);
    let page = new.to_file(&measure::tools()?);
    fs::write(root().join(FILE), page)
        .map_err(|error| format!("{FILE} cannot be written: {error}"))?;
    eprintln!("\nwritten to {FILE}");
    Ok(())
}

/// Fails where something became dearer than is committed, or is dearer than it may ever be.
pub(crate) fn check() -> Outcome {
    if let Some(skipped) = lacks(NEEDED) {
        return skipped;
    }
    let (old, new) = (committed()?, counted()?);
    let changes = show(&old, &new);
    let mut wrong = changes.objections();
    if !wrong.is_empty() {
        wrong.push(format!(
            "if that is the price of something, commit it with `cargo xtask bench --write`; {FILE} was made with {}, this is {}",
            old.tools(),
            measure::tools()?
        ));
    }
    let missed = bars::objections(&new);
    if !missed.is_empty() {
        wrong.extend(missed);
        wrong.push("what is committed does not move these bars; make it cheaper".into());
    }
    if wrong.is_empty() {
        Ok(Done::Passed)
    } else {
        Err(wrong.join("\n"))
    }
}

fn committed() -> Result<Counts, String> {
    let page = fs::read_to_string(root().join(FILE))
        .map_err(|error| format!("{FILE} cannot be read: {error}"))?;
    Counts::from_file(&page).map_err(|error| format!("{FILE}: {error}"))
}

fn counted() -> Result<Counts, String> {
    match lacks(NEEDED) {
        Some(_) => Err("this needs valgrind".into()),
        None => measure::all(),
    }
}

fn show(old: &Counts, new: &Counts) -> Changes {
    let changes = Changes::between(old, new);
    eprintln!("\n{}\n{}", changes.as_table(), bars::as_table(new));
    changes
}

/// A number with its thousands apart.
fn apart(digits: &str) -> String {
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::apart;

    #[test]
    fn thousands_are_apart() {
        for (digits, expected) in [
            ("0", "0"),
            ("999", "999"),
            ("1000", "1,000"),
            ("1234567", "1,234,567"),
        ] {
            assert_eq!(apart(digits), expected);
        }
    }
}
