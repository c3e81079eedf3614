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

use std::path::PathBuf;

use anyhow::Result;
use fs_err as fs;
use pico_args::Arguments;

use crate::step::{self, cargo_in, root, shell, target, write_page};

use figures::Figures;
pub(crate) use figures::Rounds;

const PROGRAM: &str = "run --release --manifest-path dev/bench-peers/Cargo.toml";
const PAGE: &str = "docs/BENCHMARKS.md";
const PLOTS: &str = "docs/benchmarks";
/// The text beside the figures: bars that are not reached, and why.
const FINDINGS: &str = "dev/bench-peers/FINDINGS.md";

/// Measures, or reads earlier output, and writes the page.
pub(crate) fn run(mut arguments: Arguments) -> Result<()> {
    let lines = match arguments.opt_value_from_str::<_, PathBuf>("--from")? {
        None => measure()?,
        Some(file) => step::read(file)?,
    };
    let figures = Figures::from_lines(&lines)?;
    eprintln!("\n{}", bars::as_markdown(&figures));
    for (work, plot) in panels::plots(&figures)? {
        step::write(format!("{PLOTS}/{work}.svg"), plot)?;
    }
    let findings = fs::read_to_string(root().join(FINDINGS)).unwrap_or_default();
    write_page(PAGE, &page::page(&figures, &findings)?)
}

/// Runs the measurement, and keeps its output, so that it can be drawn again.
fn measure() -> Result<String> {
    let lines = cargo_in(&shell()?, PROGRAM).read()?;
    let file = target().join("bench-peers.jsonl");
    step::write(&file, &lines)?;
    eprintln!("kept in {}", file.display());
    Ok(lines)
}
