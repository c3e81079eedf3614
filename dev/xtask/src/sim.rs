//! `cargo xtask sim` and `cargo xtask auth-sim`: run the simulators.

use crate::step::cargo;

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    run_package("everlink-sim", arguments)
}

pub(crate) fn run_auth(arguments: &[String]) -> Result<(), String> {
    run_package("everlink-auth-sim", arguments)
}

fn run_package(package: &str, arguments: &[String]) -> Result<(), String> {
    let arguments = arguments.join(" ");
    cargo(&format!(
        "run --release --quiet --package {package} -- {arguments}"
    ))
    .map(drop)
}
