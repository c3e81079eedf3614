//! `cargo xtask sim`: many worlds, each made from a seed, in which a link must keep to the rules and get well. Knows none of them.

use crate::step::cargo;

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let arguments = arguments.join(" ");
    cargo(&format!(
        "run --release --quiet --package everlink-sim -- {arguments}"
    ))
    .map(drop)
}
