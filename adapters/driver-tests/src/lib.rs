//! Tests for drivers of everlink links: real children that misbehave, and a count of leaked resources.
//!
//! A driver moves bytes, starts and ends processes, and sleeps. Its mistakes show only with real processes: a grandchild that holds a pipe, a
//! child that stops reading, a kill in the middle of a call. The kit runs a driver against such children. It reports each requirement that the
//! driver does not meet, with what was expected and what happened.
//!
//! # Use it
//!
//! Add the kit to the development dependencies of the driver, and a test without the standard test runner:
//!
//! ```toml
//! [dev-dependencies]
//! everlink-driver-tests = "0.1"
//!
//! [[test]]
//! name = "driver"
//! harness = false
//! ```
//!
//! This is the whole test, `tests/driver.rs`. In place of `everlink_stdio::connect` stands the driver under test: a function that takes a
//! [`Command`](std::process::Command) and a [`Config`](everlink::Config), and returns a [`Link`](everlink_handle::Link) whose driver runs.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use everlink_driver_tests::SimpleDriver;
//!
//! fn main() -> ExitCode {
//!     everlink_driver_tests::main(&[&SimpleDriver::new("my-runtime", everlink_stdio::connect)])
//! }
//! ```
//!
//! `cargo test --test driver` then runs a test for each check, in parallel. The options of the standard runner work: `cargo test --test driver --
//! f_012` runs some of the checks, and `--list` lists all. `cargo nextest` works, too. A failure looks like this:
//!
//! ```text
//! the driver `my-runtime` fails the check `f_011_child_that_ignores_eof_and_sigterm_is_killed`
//!   required: A child that ignores the end of its input and SIGTERM is killed, and its exit names the signal.
//!   problem:  the exit status of the child: expected Some(Signal(9)), found None
//!               at src/checks/closing.rs:89
//! ```
//!
//! A driver whose runtime must be entered or ended implements [`Driver`]. With [`Driver::serve`] and
//! [`Driver::drive_guard`] the kit also checks its servers and relays. [`checks`] is
//! the list of all checks, each with its requirement. [`Kit`] runs checks from a program and returns a [`Report`].
//!
//! # Why `harness = false`
//!
//! A check needs a child that misbehaves, and a process of its own in which it counts resources. Cargo does not build the programs of a dependency,
//! so the kit cannot bring a program. It starts the test program itself again, with a special argument. `main` is the only place that sees this
//! argument before the standard test runner writes to standard output, which is the link's pipe here. So the test has a `main` of its own.
//!
//! # Limits
//!
//! The kit reads `/proc`, so it works on Linux only. On other systems this crate is empty. A check waits up to 30 s for what must happen, or as
//! long as [`Kit::with_patience`] says. No check measures speed.
#![cfg(target_os = "linux")]

mod bad_child;
mod check;
mod checks;
mod driver;
mod expect;
mod harness;
mod helpers;
mod kit;
mod processes;
mod report;
mod resources;
mod runner;
mod silent_host;

use std::process::ExitCode;

pub use check::Check;
pub use checks::{checks, find_check};
pub use driver::{Answer, Connect, DriveGuard, Driver, Serve, SimpleDriver};
pub use expect::wait_until;
pub use kit::Kit;
pub use processes::{Process, ProcessSet};
pub use report::{Outcome, Report};
pub use resources::{Resources, resident_bytes};
pub use runner::{Test, run_tests};
pub use silent_host::SilentHost;

/// Runs the selected checks with all of these drivers: the `main` of a test with `harness = false`.
///
/// It must be the first thing that `main` does. See the documentation of the crate.
#[must_use]
pub fn main(drivers: &[&dyn Driver]) -> ExitCode {
    run_tests(&Kit::new(drivers).tests())
}

/// Compiles the example of the README.
#[cfg(doctest)]
mod readme {
    #[doc = include_str!("../README.md")]
    struct Readme;
}
