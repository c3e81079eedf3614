//! `cargo xtask hostile`: runs the attacks on a real guard.

use anyhow::Result;
use pico_args::Arguments;

use crate::step::{all_words, cargo};

pub(crate) fn run(arguments: Arguments) -> Result<()> {
    cargo("build --release --package everlink-cli")?;
    let words = all_words(arguments).join(" ");
    cargo(&format!(
        "run --release --quiet --package hostile -- target/release/everlink {words}"
    ))
}
