//! `cargo xtask bench --peers`: everlink beside its peers, measured in one run, as a page with plots.
//!
//! `dev/bench-peers` measures. `figures` is what it says; `bars` what everlink must reach; `page` the page; `plot` the pictures on it, which
//! `panels` chooses.

mod bars;
mod figures;
mod page;
mod panels;
mod plot;

use std::fs;
use std::path::Path;

use crate::step::{cargo_output, root, target};

use figures::Figures;

const PROGRAM: &str = "run --release --manifest-path dev/bench-peers/Cargo.toml";
const PAGE: &str = "docs/BENCHMARKS.md";
const PLOTS: &str = "docs/benchmarks";
/// What is to be said beside the figures: bars that are not reached, and why.
const FINDINGS: &str = "dev/bench-peers/FINDINGS.md";

/// Measures, or takes what was measured before, and writes the page.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let lines = match arguments {
        [] => measured()?,
        [word, file] if word == "--from" => read(Path::new(file))?,
        _ => return Err("what may be said is --from FILE".into()),
    };
    let figures = Figures::from_lines(&lines)?;
    eprintln!("\n{}\n{}", figures.as_table(), bars::as_table(&figures));
    for (work, picture) in panels::pictures(&figures) {
        write(&format!("{PLOTS}/{work}.svg"), &picture)?;
    }
    let findings = fs::read_to_string(root().join(FINDINGS)).unwrap_or_default();
    write(PAGE, &page::write(&figures, &findings))?;
    eprintln!("written to {PAGE} and {PLOTS}");
    Ok(())
}

/// Everything anew; the lines are kept, so that they can be drawn again.
fn measured() -> Result<String, String> {
    let lines = cargo_output(PROGRAM)?;
    let file = target().join("bench-peers.jsonl");
    fs::write(&file, &lines)
        .map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
    eprintln!("kept in {}", file.display());
    Ok(lines)
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))
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
