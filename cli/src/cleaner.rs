//! Runs the cleaner: a second process of this program that kills the servers of a guard that was itself killed. Does not depend on
//! servers. Windows needs no cleaner: there, the job object of a server kills it when the guard has ended in any way.

use std::env;
use std::io::stdin;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::{self, JoinHandle};

use everlink_tokio::child::cleaner;

/// The argument that makes this program a cleaner. It is checked before any other argument, so that a cleaner starts quickly and stays small.
const CLEANER_ARGUMENT: &str = "clean-up";

/// The cleaner of this process. The cleaner exits when it is stopped, or when this process ends for any reason.
pub(crate) struct Cleaner(JoinHandle<Option<Child>>);

impl Cleaner {
    /// Starts a cleaner without waiting for it. Servers that start meanwhile are reported through the pipe. If no cleaner can be started, servers are
    /// still ended in all cases except when this process is killed with `SIGKILL`.
    pub(crate) fn start() -> Option<Cleaner> {
        let reports = cleaner::report().ok()?;
        let start = move || {
            // A process group of its own keeps signals of a terminal away. `/proc/self/exe` finds the program even if its file was replaced.
            let program = match cfg!(target_os = "linux") {
                true => "/proc/self/exe".into(),
                false => env::current_exe().ok()?,
            };
            let cleaner = Command::new(program)
                .arg0("everlink")
                .arg(CLEANER_ARGUMENT)
                .current_dir("/")
                .process_group(0)
                .stdin(reports)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            cleaner.ok()
        };
        let thread = thread::Builder::new().name("start-cleaner".into());
        thread.spawn(start).ok().map(Cleaner)
    }

    /// Stops the cleaner and reaps its process.
    pub(crate) fn stop(self) {
        cleaner::stop_reporting();
        if let Ok(Some(mut cleaner)) = self.0.join() {
            let _ = cleaner.wait();
        }
    }
}

/// Whether this process was started as a cleaner.
pub(crate) fn is_cleaner() -> bool {
    let mut arguments = env::args_os();
    arguments
        .nth(1)
        .is_some_and(|argument| argument == CLEANER_ARGUMENT)
        && arguments.next().is_none()
}

/// Reads from standard input which servers run. When the input ends, kills those that are left.
pub(crate) fn run() -> ExitCode {
    match cleaner::clean_up(stdin().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
