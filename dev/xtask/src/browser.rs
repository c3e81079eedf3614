//! `cargo xtask browser`: runs the status page and the timeline in a real browser, and takes the screenshots of the documentation. Must not depend on what
//! the scripts check.

use std::fs;
use std::process::Command;

use crate::install::{node_modules, run_command, skip_without, skipped, system_program};
use crate::step::{Done, Outcome, cargo, root, target};

const SCRIPTS: [&str; 2] = ["status.mjs", "timeline.mjs"];

/// The library that controls the browser. It downloads no browser of its own.
const PLAYWRIGHT: &str = "playwright-core@1.65.1";

/// Runs every script. With `--screenshots`, also writes the pictures in `docs/pictures`.
pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let takes_screenshots = match words {
        [] => false,
        [word] if word == "--screenshots" => true,
        _ => return Err("the only option is --screenshots".into()),
    };
    if let Done::Skipped(reason) = check(takes_screenshots)? {
        eprintln!("skipped: {reason}");
    }
    Ok(())
}

fn check(takes_screenshots: bool) -> Outcome {
    if let Some(outcome) = skip_without(&["node", "npm"]) {
        return outcome;
    }
    if !system_program("chromium", "chromium fonts-dejavu-core") {
        return skipped("chromium");
    }
    cargo("build --release --package everlink-cli")?;
    let modules = node_modules("browser", &[PLAYWRIGHT])?;
    let pictures = root().join("docs/pictures");
    for script in SCRIPTS {
        eprintln!("\n{script}");
        let mut node = Command::new("node");
        node.arg(root().join("cli/tests/browser").join(script))
            .env("MODULES", &modules)
            .env("CHROMIUM", "chromium")
            .env("EVERLINK", target().join("release/everlink"));
        if takes_screenshots {
            let failed = |error| format!("{} cannot be created: {error}", pictures.display());
            fs::create_dir_all(&pictures).map_err(failed)?;
            // Two minutes of traffic fill the plots.
            node.env("SCREENSHOTS", &pictures).env("FILL_MS", "100000");
        }
        run_command(&mut node)?;
    }
    Ok(Done::Passed)
}
