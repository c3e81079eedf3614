//! `cargo xtask browser`: runs the status page and the timeline in a real browser, and takes the screenshots of the documentation. Must not depend on what
//! the scripts check.

use anyhow::Result;
use fs_err as fs;
use pico_args::Arguments;
use xshell::cmd;

use crate::install::{need_program, need_programs, node_modules};
use crate::step::{cargo, root, run_one, shell, target, words};

const SCRIPTS: [&str; 2] = ["status.mjs", "timeline.mjs"];

/// The library that controls the browser. It downloads no browser of its own.
const PLAYWRIGHT: &str = "playwright-core@1.65.1";

/// Runs every script. With `--screenshots`, also writes the pictures in `docs/pictures`.
pub(crate) fn run(mut arguments: Arguments) -> Result<()> {
    let takes_screenshots = arguments.contains("--screenshots");
    words(arguments)?;
    run_one(|| check(takes_screenshots))
}

fn check(takes_screenshots: bool) -> Result<()> {
    need_programs(&["node", "npm"])?;
    need_program("chromium", "chromium fonts-dejavu-core")?;
    cargo("build --release --package everlink-cli")?;
    let modules = node_modules("browser", &[PLAYWRIGHT])?;
    let pictures = root().join("docs/pictures");
    let shell = shell()?;
    for script in SCRIPTS {
        let script = root().join("cli/tests/browser").join(script);
        let mut node = cmd!(shell, "node {script}")
            .env("MODULES", &modules)
            .env("CHROMIUM", "chromium")
            .env("EVERLINK", target().join("release/everlink"));
        if takes_screenshots {
            fs::create_dir_all(&pictures)?;
            // Two minutes of traffic fill the plots.
            node = node.env("SCREENSHOTS", &pictures).env("FILL_MS", "100000");
        }
        node.run()?;
    }
    Ok(())
}
