//! `cargo xtask fleet`: runs several nodes with a real Redis and nginx, which are installed if they are missing. `scale` shows what they cost.

mod scale;

use anyhow::Result;
use pico_args::Arguments;

use crate::conformance;
use crate::install::need_program;
use crate::step::cargo;

const PROGRAM: &str = "run --release --quiet --package everlink-fleet";

/// The programs that the tests need, and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 5] = [
    ("curl", "curl"),
    ("haproxy", "haproxy"),
    ("nginx", "nginx-light"),
    ("redis-cli", "redis-tools"),
    ("redis-server", "redis-server"),
];

/// Without arguments, runs each scenario. With `--conformance N`, runs the public conformance suite N times; with `--minutes N`, the long
/// test; with `--scale`, measures.
pub(crate) fn run(mut arguments: Arguments) -> Result<()> {
    install()?;
    if let Some(repeats) = arguments.opt_value_from_str("--conformance")? {
        return conformance::run_on_nodes(repeats);
    }
    if arguments.contains("--scale") {
        return scale::run(arguments);
    }
    let words = match arguments.opt_value_from_str::<_, u32>("--minutes")? {
        Some(minutes) => format!("chaos --minutes {minutes}"),
        None => "tests".to_owned(),
    };
    // Some of the nodes are guards.
    cargo("build --release --package everlink-fleet --package everlink-cli")?;
    cargo(&format!("{PROGRAM} -- {words}"))
}

/// Installs what is missing.
pub(crate) fn install() -> Result<()> {
    let mut programs = PROGRAMS.iter();
    programs.try_for_each(|(program, package)| need_program(program, package))
}
