//! Finds spawned processes by a mark in their environment, even after they lost their parent.

use std::ffi::OsStr;
use std::fs;
use std::process::{Command, id};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::kit::helper;

/// The environment variable that holds the mark.
const MARK_VARIABLE: &str = "EVERLINK_DRIVER_TESTS";

/// All processes with one mark. Kills them when dropped, so that a failed test leaves none behind.
#[derive(Debug)]
pub struct ProcessSet {
    mark: String,
}

impl ProcessSet {
    /// A set with a new mark and no process yet.
    #[must_use]
    pub fn new() -> ProcessSet {
        static SETS: AtomicU32 = AtomicU32::new(0);
        let number = SETS.fetch_add(1, Ordering::Relaxed);
        ProcessSet {
            mark: format!("{}-{number}", id()),
        }
    }

    /// A command that spawns a process of this set.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env(MARK_VARIABLE, &self.mark);
        command
    }

    /// A command that spawns a bad child with these options. The bad child is this program: its `main` must create a [`Kit`](crate::Kit) first.
    #[must_use]
    pub fn bad_child(&self, options: &[&str]) -> Command {
        let mut command = self.helper("bad-child");
        command.args(options);
        command
    }

    /// A command that spawns a helper of the kit.
    pub(crate) fn helper(&self, name: &str) -> Command {
        let mut command = helper(name);
        command.env(MARK_VARIABLE, &self.mark);
        command
    }

    /// The processes of the set that run or are stopped; zombies have no environment.
    #[must_use]
    pub fn alive(&self) -> Vec<Process> {
        let has_mark = |process: &Process| process.mark().is_some_and(|mark| mark == self.mark);
        let mut alive = all_processes();
        alive.retain(has_mark);
        alive
    }
}

impl Default for ProcessSet {
    fn default() -> ProcessSet {
        ProcessSet::new()
    }
}

impl Drop for ProcessSet {
    fn drop(&mut self) {
        for process in self.alive() {
            process.kill();
        }
    }
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Process {
    /// Its process id.
    pub pid: i32,
    /// The id of its parent.
    pub parent: i32,
    /// The id of its process group.
    pub group: i32,
    /// Its state as in `/proc`: `Z` is a zombie, `T` is stopped.
    pub state: char,
    /// Its arguments, without the program.
    pub args: Vec<String>,
}

impl Process {
    /// Whether this is one of its arguments.
    #[must_use]
    pub fn has_arg(&self, word: &str) -> bool {
        self.args.iter().any(|own| own == word)
    }

    /// Whether all its threads sleep. A thread that waits for the CPU does not sleep.
    pub(crate) fn is_asleep(&self) -> bool {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.pid)) else {
            return false;
        };
        let mut stats =
            threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("stat")).ok());
        stats.all(|stat| {
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('S'))
        })
    }

    /// Kills the process, not its group.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Signals the process, not its group.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            // The process may have exited already.
            let _ = kill_process(pid, signal);
        }
    }

    /// The mark in its environment. A zombie has none.
    fn mark(&self) -> Option<String> {
        let environment = fs::read(format!("/proc/{}/environ", self.pid)).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        variables.find_map(|variable| {
            let variable = std::str::from_utf8(variable).ok()?;
            let mark = variable.strip_prefix(MARK_VARIABLE)?.strip_prefix('=')?;
            Some(mark.to_owned())
        })
    }

    fn read(pid: i32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The program name is in parentheses and may contain any character.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?.chars().next()?;
        let mut number = || fields.next()?.parse().ok();
        let (parent, group) = (number()?, number()?);
        let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let args = args.split(|byte| *byte == 0).skip(1);
        Some(Process {
            pid,
            parent,
            group,
            state,
            args: args
                .map(|word| String::from_utf8_lossy(word).into())
                .collect(),
        })
    }
}

/// All processes of the machine, zombies included.
pub(crate) fn all_processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter_map(|name| Process::read(name.parse().ok()?))
        .collect()
}

/// Kills all processes of the sets that the process with this id has created.
pub(crate) fn kill_processes_of(creator: u32) {
    let prefix = format!("{creator}-");
    for process in all_processes() {
        if process.mark().is_some_and(|mark| mark.starts_with(&prefix)) {
            process.kill();
        }
    }
}
