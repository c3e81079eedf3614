//! `cargo xtask test`: the list of all checks. Must not contain a check itself.

use anyhow::Result;

use crate::bench;
use crate::conformance;
use crate::coverage;
use crate::dependencies;
use crate::diagram;
use crate::evidence;
use crate::firmware;
use crate::footprint;
use crate::growth;
use crate::interop;
use crate::no_std;
use crate::package;
use crate::pages;
use crate::promises;
use crate::sim;
use crate::size;
use crate::step::{self, LIBRARIES, PROGRAM, Step, cargo, cargo_in, has_cargo, shell};
use crate::transparent;
use crate::wasm;
use crate::windows;

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
    ("notes on dependencies", dependencies::check_notes),
    ("documentation", pages::check),
    ("the examples that the tests run", || {
        cargo(
            "build --workspace --all-features --example drive_child --example echo_server --example guard_child --example typed_server",
        )
    }),
    ("tests", tests),
    ("simulations with a new seed", sim::check),
    ("scripts, cut at random", || scripts_cut("random")),
    ("coverage of requirements and failures", coverage::check),
    ("promises of the README", promises::check),
    ("age of the evidence", evidence::check_page),
    ("lengths of files and functions", size::check),
    ("the picture in the README", diagram::check),
    ("tests in the documentation", || {
        cargo("test --workspace --all-features --doc")
    }),
    ("the core without an operating system", no_std::check),
    ("what the work of a link costs", bench::check),
    ("judged by the public conformance suite", conformance::check),
    ("that the guard is invisible", transparent::check),
];

/// Checks that take too long for every change, because they compile much that nothing else needs, or that find least beyond the others.
const LONG_STEPS: &[Step] = &[
    (
        "licences and sources of dependencies",
        dependencies::check_licences,
    ),
    (
        "known defects of dependencies",
        dependencies::check_advisories,
    ),
    ("the core for more small machines", no_std::check_more),
    ("the footprint of a small program", footprint::check),
    ("interleavings of threads, with loom", interleavings),
    ("that no step grows", growth::check),
    ("packages by themselves", check_packages_alone),
    ("documentation of the tools", pages::check_all),
    ("packages install", package::check),
    ("examples", || {
        cargo("build --workspace --all-features --examples")
    }),
    ("scripts, byte by byte", || scripts_cut("bytes")),
    ("among real peers", interop::check),
    ("the Python package with each SDK", package::check_python),
    ("a board in QEMU, reset during calls", firmware::check),
    (
        "a client in WebAssembly, whose server is killed",
        wasm::check,
    ),
    ("Windows, in Wine", windows::check),
    ("lints for Windows", windows::lint),
    ("macOS, compiled only", windows::check_macos),
];

/// Checks for macOS and Windows, where the tools of the other checks do not run.
const SYSTEM_STEPS: &[Step] = &[
    ("lints", windows::lint_here),
    ("tests", windows::test_here),
    ("packages install", package::check),
];

pub(crate) fn run() -> Result<()> {
    step::run_all(STEPS)
}

pub(crate) fn run_long() -> Result<()> {
    step::run_all(LONG_STEPS)
}

pub(crate) fn run_system() -> Result<()> {
    step::run_all(SYSTEM_STEPS)
}

/// Denies Clippy's disallowed items for the library only: tests and tools may use a clock.
fn pure_clippy(features: &str) -> Result<()> {
    cargo(&format!(
        "clippy --package everlink --lib {features} -- --deny warnings \
         --deny clippy::disallowed_macros \
         --deny clippy::disallowed_methods \
         --deny clippy::disallowed_types"
    ))
}

fn tests() -> Result<()> {
    cargo(&format!("{} {}", runner(), step::ALL_TESTS))
}

/// Runs the scripted tests again, with the server's bytes split into other reads. With another choice of targets, cargo would compile these once more, so
/// a filter chooses them.
fn scripts_cut(chunking: &str) -> Result<()> {
    let test = match has_cargo("nextest") {
        true => {
            let all = step::ALL_TESTS;
            format!("{} {all} -E binary(client) -E binary(server)", runner())
        }
        false => "test --workspace --all-features --test client --test server".into(),
    };
    let shell = shell()?;
    Ok(cargo_in(&shell, &test)
        .env("EVERLINK_CHUNKING", chunking)
        .run()?)
}

/// Tries all interleavings of the hand-made synchronisation in the adapters, with a bounded number of preemptions. The flag changes every package, so
/// the build has a directory of its own.
fn interleavings() -> Result<()> {
    let test = "test --package everlink-handle --package everlink-stdio --lib model";
    Ok(cargo_in(&shell()?, test)
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", step::target().join("loom"))
        .run()?)
}

fn runner() -> String {
    match has_cargo("nextest") {
        // Two for each core: many tests wait for a process or a deadline.
        true => format!("nextest run --test-threads {}", step::cores() * 2),
        false => "test".into(),
    }
}

/// Builds each package as a user does: in the workspace, features of other packages can hide a missing one.
fn check_packages_alone() -> Result<()> {
    let mut packages = LIBRARIES.into_iter().chain([PROGRAM]);
    packages.try_for_each(|package| cargo(&format!("check --package {package}")))
}
