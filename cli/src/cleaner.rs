//! Runs the cleaner: a second process of this program that kills the servers of a guard that was itself killed. Knows no server.

use std::io::stdin;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::{self, JoinHandle};

use everlink_tokio::child::cleaner;

/// The word that makes this program a cleaner. It is read before all others, so that a cleaner starts quickly and stays small.
const WORD: &str = "clean-up";

/// The cleaner of this process. When it is stopped, or this process ends in whatever way, it ends, too.
pub(crate) struct Cleaner(JoinHandle<Option<Child>>);

impl Cleaner {
    /// Starts one, without waiting for it: servers that are started meanwhile are reported in the pipe. Where none can be started, servers are ended
    /// in all cases but the one that this process is killed with `SIGKILL`.
    pub(crate) fn start() -> Option<Cleaner> {
        let reports = cleaner::report().ok()?;
        let start = move || {
            // Its own process group, so that signals of a terminal do not reach it. By this name the program is found even if it was replaced.
            let cleaner = Command::new("/proc/self/exe")
                .arg0("everlink")
                .arg(WORD)
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

    /// Ends it, and reaps it: nothing is left of it.
    pub(crate) fn stop(self) {
        cleaner::stop_reporting();
        if let Ok(Some(mut cleaner)) = self.0.join() {
            let _ = cleaner.wait();
        }
    }
}

/// Whether this process was started to be a cleaner.
pub(crate) fn is_wanted() -> bool {
    let mut words = std::env::args_os();
    words.nth(1).is_some_and(|word| word == WORD) && words.next().is_none()
}

/// Reads on standard input which servers there are, and kills those that are left at its end.
pub(crate) fn run() -> ExitCode {
    match cleaner::clean_up(stdin().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
