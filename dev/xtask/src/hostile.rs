//! `cargo xtask hostile`: a hostile host beside a good one, before one real guard. Knows none of the attacks.

use crate::step::cargo;

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    cargo("build --release --package everlink-cli")?;
    let arguments = arguments.join(" ");
    cargo(&format!(
        "run --release --quiet --package hostile -- target/release/everlink {arguments}"
    ))
    .map(drop)
}
