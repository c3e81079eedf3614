//! `cargo xtask fleet`: runs several nodes with a real Redis and nginx, which are installed if they are missing.

use std::process::Command;

use crate::step::cargo;

/// The programs that the tests need, and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 4] = [
    ("curl", "curl"),
    ("nginx", "nginx-light"),
    ("redis-cli", "redis-tools"),
    ("redis-server", "redis-server"),
];

/// Without arguments, runs each scenario. With `--minutes N`, runs the long test; with `--scale`, measures.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    install()?;
    let words = match arguments.first().map(String::as_str) {
        None => "tests".to_owned(),
        Some("--minutes") => format!("chaos {}", arguments.join(" ")),
        Some("--scale") => format!("scale {}", arguments[1..].join(" ")),
        Some(other) => return Err(format!("there is no argument `{other}`")),
    };
    let package = "run --release --quiet --package everlink-fleet";
    cargo(&format!("{package} -- {words}")).map(drop)
}

/// Installs what is missing. Nothing is skipped: without Redis, there is nothing to test.
fn install() -> Result<(), String> {
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
