//! `cargo xtask miri` and `cargo xtask sanitize`: run tests in an interpreter that sees undefined behaviour, and with compilers' checks of memory and of
//! threads. All need a nightly compiler, which is installed.

use std::process::Command;

use crate::evidence::Run;
use crate::install::{nightly_compiler, run_command};
use crate::step::{has_cargo, nightly, nightly_host, target};

/// The adapters whose tests need no other program.
const ADAPTERS: &str = "--package everlink-handle --package everlink-stdio --package everlink-http --package everlink-auth --package everlink-tokio --package everlink-tools";

/// Runs the unit tests of the core in Miri, without those that are marked as too long for it.
pub(crate) fn miri() -> Result<(), String> {
    install("miri")?;
    let run = Run::begin("miri", "miri")?;
    let mut command = nightly();
    // In one process: to start a program takes Miri longer than most tests.
    command.args("miri test --package everlink --all-features --lib".split(' '));
    // Some tests read files of the repository.
    command.env("MIRIFLAGS", "-Zmiri-disable-isolation");
    command.env("CARGO_TARGET_DIR", target().join("miri"));
    run_command(&mut command)?;
    run.end("the unit tests of the core, but 10 long ones: no undefined behaviour")
}

/// Runs the tests of the adapters with the sanitizer of this name, or with both.
pub(crate) fn sanitize(arguments: &[String]) -> Result<(), String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let names = match &*words {
        [] => &["address", "thread"][..],
        ["address"] => &["address"],
        ["thread"] => &["thread"],
        _ => return Err("what may be said is address or thread".into()),
    };
    install("rust-src")?;
    for name in names {
        sanitize_with(name)?;
    }
    Ok(())
}

fn sanitize_with(name: &str) -> Result<(), String> {
    let run = Run::begin(&format!("{name} sanitizer"), &format!("sanitize {name}"))?;
    // The standard library is compiled with the sanitizer, too: without, threads seem not to wait for each other.
    let mut command = nightly();
    command.args(["nextest", "run", "--target", &nightly_host()?]);
    command.args(ADAPTERS.split(' '));
    command.args(["--all-features", "--lib", "--tests"]);
    // nextest does not pass on `-Zbuild-std`.
    command.env(
        "CARGO_UNSTABLE_BUILD_STD",
        "std,panic_unwind,test,proc_macro",
    );
    command.env("RUSTFLAGS", format!("-Zsanitizer={name}"));
    command.env("CARGO_TARGET_DIR", target().join("sanitize").join(name));
    run_command(&mut command)?;
    run.end("the tests of the adapters: no finding")
}

/// Installs a component of the nightly compiler.
fn install(component: &str) -> Result<(), String> {
    if !has_cargo("nextest") {
        return Err("this needs cargo-nextest: `cargo install cargo-nextest --locked`".into());
    }
    nightly_compiler()?;
    let add = ["component", "add", "--toolchain", "nightly", component];
    run_command(Command::new("rustup").args(add)).map(drop)
}
