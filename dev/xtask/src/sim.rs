//! `cargo xtask sim`: runs the simulator.

use crate::step::cargo;

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let arguments = arguments.join(" ");
    cargo(&format!(
        "run --release --quiet --package everlink-sim -- {arguments}"
    ))
    .map(drop)
}
