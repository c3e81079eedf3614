//! Shows that the kit finds planted faults: a correct driver passes every check, and each mutant of it fails the check that is named for it.
//!
//! `cargo test --package everlink-driver-tests --test mutants -- --ignored` runs all checks with each mutant and prints those that catch it. It
//! takes a quarter of an hour.
//!
//! `driver` is a small driver on threads with switches for faults, `pipes` has its threads, `process` its processes, and `mutants` lists the
//! faults.
#![cfg(target_os = "linux")]

mod driver;
mod mutants;
mod pipes;
mod process;

use std::process::ExitCode;
use std::time::Duration;

use everlink_driver_tests::{Driver, Kit, Outcome, Test, find_check, run_tests};

use driver::ThreadDriver;
use mutants::{MUTANTS, Mutant};

/// How long a check waits with a mutant. Each mutant that hangs costs this time, so it is short. If it were too short, a mutant that is only slow
/// would fail for the wrong reason.
const PATIENCE: Duration = Duration::from_secs(5);

const CORRECT: ThreadDriver = ThreadDriver::new("correct", None);

fn main() -> ExitCode {
    let mutants: Vec<ThreadDriver> = MUTANTS.iter().map(Mutant::driver).collect();
    let drivers = mutants.iter().chain([&CORRECT]);
    let drivers: Vec<&dyn Driver> = drivers.map(|driver| driver as &dyn Driver).collect();
    let kit = Kit::new(&drivers).with_patience(PATIENCE);
    let mut tests = Kit::new(&[&CORRECT]).tests();
    for (mutant, driver) in MUTANTS.iter().zip(&mutants) {
        let name = format!("mutants::{}", mutant.name);
        tests.push(Test::new(name, move || expect_caught(kit, mutant, driver)));
        let name = format!("all_checks::{}", mutant.name);
        let run_all = Test::new(name, move || expect_caught_by_all(kit, mutant, driver));
        tests.push(run_all.ignored("takes minutes"));
    }
    run_tests(&tests)
}

/// Runs the check that must catch the mutant.
fn expect_caught(kit: Kit<'_>, mutant: &Mutant, driver: &ThreadDriver) -> Result<(), String> {
    let check = find_check(mutant.caught_by).ok_or("the kit has no such check")?;
    match kit.run_check(driver, check) {
        Outcome::Failed(text) if text.contains(mutant.problem) => {
            println!("{text}");
            Ok(())
        }
        other => Err(format!(
            "the check {} must fail with a text that contains `{}`; its outcome: {other:?}",
            mutant.caught_by, mutant.problem
        )),
    }
}

/// Runs all checks with the mutant, and prints those that catch it.
fn expect_caught_by_all(
    kit: Kit<'_>,
    mutant: &Mutant,
    driver: &ThreadDriver,
) -> Result<(), String> {
    let report = kit.run(driver);
    let caught_by: Vec<&str> = report.failures().map(|(check, _)| check.name()).collect();
    println!("{}: {} checks: {caught_by:?}", mutant.name, caught_by.len());
    match caught_by.contains(&mutant.caught_by) {
        true => Ok(()),
        false => Err(format!("{report}\nnot among them: {}", mutant.caught_by)),
    }
}
