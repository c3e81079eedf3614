//! `cargo xtask bench`: counts the costs of a link's work and compares them with the committed counts.
//!
//! `measure` runs the programs that count, `counts` is the committed table, `change` the comparison, and `bars` the fixed limits. `peers`
//! measures everlink and its peers by the clock.

mod bars;
mod change;
mod counts;
mod measure;
mod peers;

use anyhow::{Context as _, Result};

use crate::install::need_programs;
use crate::step::{self, check_none};

use change::Changes;
use counts::Counts;
pub(crate) use peers::{Rounds, lines, plot, run as run_peers};

/// The committed counts.
const FILE: &str = "benches/counts.tsv";

/// Counts, and shows the changes.
pub(crate) fn run() -> Result<()> {
    show(&committed()?, &measure::all()?);
    Ok(())
}

/// Counts, shows the changes, and writes the counts.
pub(crate) fn write() -> Result<()> {
    let old = committed().unwrap_or_default();
    let new = measure::all()?;
    show(&old, &new);
    step::write_page(FILE, &new.to_file(&measure::tools()?))
}

/// Fails if a cost grew, or if it exceeds a fixed limit.
pub(crate) fn check() -> Result<()> {
    need_programs(&["valgrind"])?;
    let (old, new) = (committed()?, measure::all()?);
    let mut problems = show(&old, &new).problems();
    if !problems.is_empty() {
        problems.push(format!(
            "if that is the price of something, commit it with `cargo xtask bench --write`; {FILE} was made with {}, this is {}",
            old.tools(),
            measure::tools()?
        ));
    }
    let bar_problems = bars::problems(&new);
    if !bar_problems.is_empty() {
        problems.extend(bar_problems);
        problems.push("what is committed does not move these bars; make it cheaper".into());
    }
    check_none(&problems)
}

fn committed() -> Result<Counts> {
    Counts::from_file(&step::read(FILE)?).context(FILE)
}

fn show(old: &Counts, new: &Counts) -> Changes {
    let changes = Changes::between(old, new);
    eprintln!("\n{}\n{}", changes.as_table(), bars::as_table(new));
    changes
}
