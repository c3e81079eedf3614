//! `cargo xtask test`: the table of all that must hold. Knows no test itself.

use crate::bench;
use crate::conformance;
use crate::coverage;
use crate::dependencies;
use crate::footprint;
use crate::growth;
use crate::interop;
use crate::picture;
use crate::promises;
use crate::step::{self, Done, Outcome, Step, cargo, cargo_with, has_cargo};
use crate::transparent;

const STEPS: &[Step] = &[
    ("formatting", || cargo("fmt --all --check")),
    ("lints", || {
        cargo("clippy --workspace --all-targets --all-features -- --deny warnings")
    }),
    ("purity of the core", || pure_clippy("--all-features")),
    ("purity of the core without std", || {
        pure_clippy("--no-default-features")
    }),
    ("dependencies of the core", dependencies::check),
    ("licences and sources of dependencies", licences),
    ("documentation", documentation),
    ("the examples that the tests run", || {
        cargo(
            "build --workspace --all-features --example drive_child --example echo_server --example guard_child",
        )
    }),
    ("tests", tests),
    ("scripts, cut at random", || scripts_cut("random")),
    ("coverage of requirements and failures", coverage::check),
    ("promises of the README", promises::check),
    ("the picture in the README", picture::check),
    ("tests in the documentation", || {
        cargo("test --workspace --all-features --doc")
    }),
    ("the core without an operating system", bare),
    ("the footprint of a small program", footprint::check),
    ("what the work of a link costs", bench::check),
    ("that no step grows", growth::check),
    ("packages by themselves", by_themselves),
    ("judged by the public conformance suite", conformance::check),
    ("that the guard is invisible", transparent::check),
];

/// What takes too long for every change, and finds least that the others do not.
const LONG_STEPS: &[Step] = &[
    ("examples", || {
        cargo("build --workspace --all-features --examples")
    }),
    ("scripts, byte by byte", || scripts_cut("bytes")),
    ("among real peers", interop::check),
];

pub(crate) fn run() -> Result<(), String> {
    step::run_all(STEPS)
}

pub(crate) fn run_long() -> Result<(), String> {
    step::run_all(LONG_STEPS)
}

/// Clippy's disallowed items are denied to the library alone: tests and tools may use a clock.
fn pure_clippy(features: &str) -> Outcome {
    cargo(&format!(
        "clippy --package everlink --lib {features} -- --deny warnings \
         --deny clippy::disallowed_macros \
         --deny clippy::disallowed_methods \
         --deny clippy::disallowed_types"
    ))
}

/// The advisory database is left out: it would have to be downloaded.
fn licences() -> Outcome {
    if !has_cargo("deny") {
        return Ok(Done::Skipped("cargo-deny is not installed".into()));
    }
    cargo("deny check bans licenses sources")
}

fn documentation() -> Outcome {
    cargo_with("doc --workspace --all-features --no-deps", |command| {
        command.env("RUSTDOCFLAGS", "--deny warnings");
    })
}

fn tests() -> Outcome {
    let runner = runner();
    cargo(&format!(
        "{runner} --workspace --all-features --lib --bins --tests"
    ))
}

/// The scripts of the scripted world once more, with the server's bytes cut into other reads. Of the workspace, so that nothing is built anew.
fn scripts_cut(chunking: &str) -> Outcome {
    let runner = runner();
    cargo_with(
        &format!(
            "{runner} --workspace --all-features --test asks --test failures_* --test founding --test http_* --test server_*"
        ),
        |command| {
            command.env("EVERLINK_CHUNKING", chunking);
        },
    )
}

fn runner() -> &'static str {
    if has_cargo("nextest") {
        "nextest run"
    } else {
        "test"
    }
}

/// Each as a user builds it: with the rest of the workspace around it, features of others can hide what is missing.
fn by_themselves() -> Outcome {
    let packages = ["handle", "stdio", "http", "tokio", "cli"];
    packages.iter().try_fold(Done::Passed, |_, package| {
        cargo(&format!("check --package everlink-{package}"))
    })
}

/// A program without std, in a workspace of its own because it needs its own way to panic.
fn bare() -> Outcome {
    // From its own directory, so that cargo finds its own configuration.
    cargo_with("run", |command| {
        command.current_dir(step::root().join("dev/bare"));
    })
}
