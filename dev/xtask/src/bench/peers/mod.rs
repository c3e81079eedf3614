//! `cargo xtask bench --peers`: measures everlink and its peers in one run, and writes a page with plots.
//!
//! `dev/bench-peers` measures. `figures` parses its output, `bars` has the limits, `page` writes the page, `panels` chooses what to plot,
//! and `plot` draws it. `lines` draws figures over time, for other commands.

mod bars;
mod figures;
pub(crate) mod lines;
mod page;
mod panels;
pub(crate) mod plot;

use std::fs;

use crate::step::{self, cargo_output, root, target};

use figures::Figures;
pub(crate) use figures::Rounds;

const PROGRAM: &str = "run --release --manifest-path dev/bench-peers/Cargo.toml";
const PAGE: &str = "docs/BENCHMARKS.md";
const PLOTS: &str = "docs/benchmarks";
/// The text beside the figures: bars that are not reached, and why.
const FINDINGS: &str = "dev/bench-peers/FINDINGS.md";

/// Measures, or reads earlier output, and writes the page.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let lines = match arguments {
        [] => measure()?,
        [option, file] if option == "--from" => step::read(file)?,
        _ => return Err("what may be said is --from FILE".into()),
    };
    let figures = Figures::from_lines(&lines)?;
    eprintln!("\n{}\n{}", figures.as_table(), bars::as_table(&figures));
    for (work, plot) in panels::plots(&figures)? {
        write(&format!("{PLOTS}/{work}.svg"), &plot)?;
    }
    let findings = fs::read_to_string(root().join(FINDINGS)).unwrap_or_default();
    write(PAGE, &page::write(&figures, &findings))?;
    eprintln!("written to {PAGE} and {PLOTS}");
    Ok(())
}

/// Runs the measurement, and keeps its output, so that it can be drawn again.
fn measure() -> Result<String, String> {
    let lines = cargo_output(PROGRAM)?;
    let file = target().join("bench-peers.jsonl");
    step::write(&file, &lines)?;
    eprintln!("kept in {}", file.display());
    Ok(lines)
}

/// Writes a file of the project.
fn write(name: &str, text: &str) -> Result<(), String> {
    let file = root().join(name);
    let failed = |error| format!("{name} cannot be written: {error}");
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    fs::write(file, text).map_err(failed)
}
