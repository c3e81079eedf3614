//! `cargo xtask hostile`: runs the attacks on a real guard.

use crate::step::cargo;

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    cargo("build --release --package everlink-cli")?;
    let arguments = arguments.join(" ");
    cargo(&format!(
        "run --release --quiet --package hostile -- target/release/everlink {arguments}"
    ))
    .map(drop)
}
