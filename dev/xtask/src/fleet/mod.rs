//! `cargo xtask fleet`: runs several nodes with a real Redis and nginx, which are installed if they are missing. `scale` shows what they cost.

mod scale;

use std::process::Command;

use crate::conformance;
use crate::install::number_option;
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
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    install()?;
    let words = match arguments.first().map(String::as_str) {
        None => "tests".to_owned(),
        Some("--conformance") => {
            let repeats = number_option(arguments, "--conformance", 1)?;
            return conformance::run_on_nodes(repeats);
        }
        Some("--minutes") => format!("chaos {}", arguments.join(" ")),
        Some("--scale") => return scale::run(&arguments[1..]),
        Some(other) => return Err(format!("there is no argument `{other}`")),
    };
    // Some of the nodes are guards.
    cargo("build --release --package everlink-fleet --package everlink-cli")?;
    cargo(&format!("{PROGRAM} -- {words}")).map(drop)
}

/// Installs what is missing. Nothing is skipped: without Redis, there is nothing to test.
pub(crate) fn install() -> Result<(), String> {
    let is_there = |program: &str| {
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .output();
        found.is_ok_and(|output| output.status.success())
    };
    let missing: Vec<&str> = PROGRAMS
        .into_iter()
        .filter(|(program, _)| !is_there(program))
        .map(|(_, package)| package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("apt-get install {}", missing.join(" "));
    let status = Command::new("apt-get")
        .args(["install", "--yes", "--no-install-recommends"])
        .args(&missing)
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!("install these packages: {}", missing.join(", "))),
    }
}
