//! Runs checks, each in a process of its own, and runs the helper processes that checks need. Must not depend on any check.

use std::env::{args, current_exe, temp_dir};
use std::fs::{self, File};
use std::io;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio, exit, id};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::bad_child;
use crate::check::Check;
use crate::checks::{checks, find_check};
use crate::driver::Driver;
use crate::expect::{DEFAULT_PATIENCE, set_patience, wait_until};
use crate::harness::Harness;
use crate::helpers::{noisy_server, parent};
use crate::processes::{ProcessSet, kill_processes_of};
use crate::report::{Outcome, Report};
use crate::resources::Resources;
use crate::runner::Test;

/// The start of the argument that makes this program a helper. The name of the helper follows.
const HELPER: &str = "everlink-driver-tests=";
/// A check that takes this many times the patience counts as hung.
const HUNG_AFTER: u32 = 6;

/// The kit: drivers and the way in which they are checked.
///
/// A check needs processes: one for itself, because resources are counted per process, and bad children. All of them are the program that contains
/// the kit, with a special argument. So a kit is created at the start of `main`, before anything else reads the arguments.
#[derive(Clone, Copy)]
pub struct Kit<'d> {
    drivers: &'d [&'d dyn Driver],
    patience: Duration,
}

impl<'d> Kit<'d> {
    /// Creates a kit for these drivers. If this process was started as a helper of a check, runs the helper and does not return.
    #[must_use]
    pub fn new(drivers: &'d [&'d dyn Driver]) -> Kit<'d> {
        let patience = DEFAULT_PATIENCE;
        let kit = Kit { drivers, patience };
        let mut arguments = args().skip(1);
        let helper = arguments.next();
        if let Some(helper) = helper.as_deref().and_then(|it| it.strip_prefix(HELPER)) {
            let arguments: Vec<String> = arguments.collect();
            kit.run_helper(helper, &arguments);
        }
        kit
    }

    /// Sets how long a check waits for something that must happen; by default 30 s. It is no measure of speed: a driver that is slow on a busy machine
    /// must pass.
    #[must_use]
    pub const fn with_patience(mut self, patience: Duration) -> Kit<'d> {
        self.patience = patience;
        self
    }

    /// Returns a test for each driver and check, for [`run_tests`](crate::run_tests). The name of a test is `DRIVER::CHECK`.
    #[must_use]
    pub fn tests(&self) -> Vec<Test<'d>> {
        let kit = *self;
        let of_driver = |driver: &'d dyn Driver| {
            checks().map(move |check| {
                let name = format!("{}::{}", driver.name(), check.name());
                let test = Test::new(name, move || match kit.run_check(driver, check) {
                    Outcome::Failed(text) => Err(text),
                    Outcome::Passed | Outcome::Skipped(_) => Ok(()),
                });
                match check.reason_to_skip(driver) {
                    Some(reason) => test.ignored(reason),
                    None => test,
                }
            })
        };
        self.drivers.iter().copied().flat_map(of_driver).collect()
    }

    /// Runs all checks with a driver of this kit, one after the other.
    ///
    /// # Panics
    ///
    /// Like [`run_check`](Kit::run_check).
    #[must_use]
    pub fn run(&self, driver: &dyn Driver) -> Report {
        Report::new(checks().map(|check| (check, self.run_check(driver, check))))
    }

    /// Runs one check with a driver of this kit.
    ///
    /// # Panics
    ///
    /// If the driver does not belong to this kit, or the system cannot start a process.
    #[must_use]
    pub fn run_check(&self, driver: &dyn Driver, check: &Check) -> Outcome {
        let name = driver.name();
        assert!(
            self.drivers.iter().any(|it| it.name() == name),
            "the kit has no driver `{name}`: pass it to `Kit::new`"
        );
        if let Some(reason) = check.reason_to_skip(driver) {
            return Outcome::Skipped(reason);
        }
        let scratch = ScratchDir::new().expect("a directory for temporary files");
        match self.run_in_process(name, check, &scratch.0) {
            Ok(None) => Outcome::Passed,
            Ok(Some(problem)) => Outcome::Failed(format!(
                "the driver `{name}` fails the check `{}`\n  required: {}\n  problem:  {}",
                check.name(),
                check.requirement(),
                problem.trim_end().replace('\n', "\n            ")
            )),
            Err(error) => panic!("a check cannot be started: {error}"),
        }
    }

    /// Runs a check in a new process. Returns the problem that it found.
    fn run_in_process(
        &self,
        driver: &str,
        check: &Check,
        scratch_dir: &Path,
    ) -> io::Result<Option<String>> {
        let output = scratch_dir.join("output");
        let file = File::create(&output)?;
        let mut command = helper("check");
        command.args([driver, check.name(), &self.patience.as_millis().to_string()]);
        command.arg(scratch_dir).stdin(Stdio::null());
        // A file and no pipe: a process that survives the check may hold it for ever.
        let mut process = command.stdout(file.try_clone()?).stderr(file).spawn()?;
        let status = wait_for(&mut process, self.patience * HUNG_AFTER);
        kill_processes_of(process.id());
        let printed = fs::read(&output)?;
        let printed = String::from_utf8_lossy(&printed).into_owned();
        Ok(match status? {
            Some(status) if status.success() => None,
            Some(status) if status.code() == Some(1) => Some(printed),
            Some(status) => Some(format!("the check ended with {status}\n{printed}")),
            None => Some(format!(
                "the check did not end within {:?}\n{printed}",
                self.patience * HUNG_AFTER
            )),
        })
    }

    /// Runs this process as a helper.
    fn run_helper(&self, helper: &str, arguments: &[String]) -> ! {
        match (helper, arguments) {
            ("bad-child", options) => bad_child::run(options),
            ("check", [driver, check, patience, scratch_dir]) => {
                let check = find_check(check).expect("the kit has this check");
                let patience = patience.parse().expect("a number of milliseconds");
                set_patience(Duration::from_millis(patience));
                run_check_here(self.driver(driver), check, Path::new(scratch_dir));
            }
            ("noisy-server", [driver]) => noisy_server::run(self.driver(driver)),
            ("parent", [driver, ending, program, arguments @ ..]) => {
                parent::run(self.driver(driver), ending, program, arguments);
            }
            _ => panic!("no helper of the kit: {helper} {arguments:?}"),
        }
        exit(0);
    }

    fn driver(&self, name: &str) -> &'d dyn Driver {
        let driver = self.drivers.iter().find(|driver| driver.name() == name);
        *driver.expect("the kit has this driver")
    }
}

/// A command that starts a helper: this program, with a special argument.
pub(crate) fn helper(name: &str) -> Command {
    let mut command = Command::new(current_exe().expect("the program has a path"));
    command.arg(format!("{HELPER}{name}"));
    command
}

/// Runs a check in this process, and counts its resources before and after. Exits with 1 when an expectation fails.
fn run_check_here(driver: &dyn Driver, check: &Check, scratch_dir: &Path) {
    let main_thread = thread::current().id();
    panic::set_hook(Box::new(move |info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or(payload.downcast_ref::<&str>().copied());
        eprintln!("{}", text.unwrap_or("a panic without a text"));
        if let Some(location) = info.location() {
            eprintln!("  at {}:{}", location.file(), location.line());
        }
        // Without unwinding: a broken driver could block a destructor.
        if thread::current().id() == main_thread {
            exit(1);
        }
    }));
    // A runtime allocates some resources for the life of the process. The first run allocates them, so that they do not count for a link.
    driver.run(&mut |_| ());
    let before = count_resources(driver);
    let mut runs = 0;
    driver.run(&mut |connect| {
        runs += 1;
        let harness = Harness {
            driver,
            processes: ProcessSet::new(),
            connect,
            scratch_dir,
        };
        (check.run)(&harness);
        harness.wait_for_no_processes();
    });
    assert_eq!(runs, 1, "`Driver::run` must call the program exactly once");
    if !wait_until(|| count_resources(driver).are_like(&before)) {
        let difference = count_resources(driver).difference(&before);
        panic!("expected the same resources after the check as before. Found: {difference}");
    }
}

fn count_resources(driver: &dyn Driver) -> Resources {
    let mut resources = Resources::snapshot();
    let kept = driver.kept_threads();
    resources
        .threads
        .retain(|name| !kept.contains(&name.as_str()));
    resources
}

/// Waits for the exit of the process, up to this limit; then kills it.
fn wait_for(process: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = process.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            process.kill()?;
            process.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// A directory that is removed when dropped.
struct ScratchDir(PathBuf);

impl ScratchDir {
    fn new() -> io::Result<ScratchDir> {
        static DIRECTORIES: AtomicU32 = AtomicU32::new(0);
        let number = DIRECTORIES.fetch_add(1, Ordering::Relaxed);
        let path = temp_dir().join(format!("everlink-driver-tests-{}-{number}", id()));
        fs::create_dir(&path)?;
        Ok(ScratchDir(path))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
