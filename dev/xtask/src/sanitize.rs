//! `cargo xtask miri` and `cargo xtask sanitize`: run tests in an interpreter that sees undefined behaviour, and with compilers' checks of memory and of
//! threads. All need a nightly compiler, which is installed.

use anyhow::{Result, ensure};
use pico_args::Arguments;
use xshell::cmd;

use crate::evidence::Run;
use crate::install::nightly_compiler;
use crate::step::{check_names, has_cargo, nightly, nightly_host, shell, target, words};

/// The adapters whose tests need no other program.
const ADAPTERS: &str = "--package everlink-handle --package everlink-stdio --package everlink-http --package everlink-auth --package everlink-tokio --package everlink-tools";

/// Runs the unit tests of the core in Miri, without those that are marked as too long for it.
pub(crate) fn miri() -> Result<()> {
    install("miri")?;
    let run = Run::begin("miri", "miri")?;
    // In one process: to start a program takes Miri longer than most tests.
    let test = "miri test --package everlink --all-features --lib";
    nightly(&shell()?, test)
        // Some tests read files of the repository.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .env("CARGO_TARGET_DIR", target().join("miri"))
        .run()?;
    run.end("the unit tests of the core, but 10 long ones: no undefined behaviour")
}

/// Runs the tests of the adapters with the sanitizers of these names, or with both.
pub(crate) fn sanitize(arguments: Arguments) -> Result<()> {
    let names = words(arguments)?;
    let known = ["address", "thread"];
    check_names(&names, known.into_iter())?;
    install("rust-src")?;
    let is_wanted = |name: &&str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    known
        .into_iter()
        .filter(is_wanted)
        .try_for_each(sanitize_with)
}

fn sanitize_with(name: &str) -> Result<()> {
    let run = Run::begin(&format!("{name} sanitizer"), &format!("sanitize {name}"))?;
    let host = nightly_host()?;
    let test = format!("nextest run --target {host} {ADAPTERS} --all-features --lib --tests");
    nightly(&shell()?, &test)
        // The standard library is compiled with the sanitizer, too: without, threads seem not to wait for each other. nextest does not pass on
        // `-Zbuild-std`.
        .env(
            "CARGO_UNSTABLE_BUILD_STD",
            "std,panic_unwind,test,proc_macro",
        )
        .env("RUSTFLAGS", format!("-Zsanitizer={name}"))
        .env("CARGO_TARGET_DIR", target().join("sanitize").join(name))
        .run()?;
    run.end("the tests of the adapters: no finding")
}

/// Installs a component of the nightly compiler.
fn install(component: &str) -> Result<()> {
    ensure!(
        has_cargo("nextest"),
        "this needs cargo-nextest: `cargo install cargo-nextest --locked`"
    );
    nightly_compiler()?;
    let shell = shell()?;
    Ok(cmd!(
        shell,
        "rustup component add --toolchain nightly {component}"
    )
    .run()?)
}
