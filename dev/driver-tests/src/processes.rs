//! Processes that can be found again, whatever became of their parents: a mark in their environment tells whose they are.

use std::env::current_exe;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, id};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

/// What holds the mark.
const MARK: &str = "ORDEAL";

/// All processes with one mark. What is left of it when it is dropped is killed, so that a failed ordeal leaves nothing behind.
#[derive(Debug)]
pub struct Family {
    mark: String,
}

impl Family {
    /// One that has no member yet.
    #[must_use]
    pub fn new() -> Family {
        static FAMILIES: AtomicU32 = AtomicU32::new(0);
        let number = FAMILIES.fetch_add(1, Ordering::Relaxed);
        Family {
            mark: format!("{}-{number}", id()),
        }
    }

    /// How to start a member of it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env(MARK, &self.mark);
        command
    }

    /// How to start a `rascal` of these manners.
    #[must_use]
    pub fn rascal(&self, manners: &[&str]) -> Command {
        let mut command = self.command(program("rascal"));
        command.args(manners);
        command
    }

    /// Who is alive of it.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        let mark = format!("{MARK}={}", self.mark);
        let is_marked = |member: &Member| {
            let environment = fs::read(format!("/proc/{}/environ", member.pid)).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == mark.as_bytes())
        };
        let mut members = processes();
        members.retain(is_marked);
        members
    }
}

impl Default for Family {
    fn default() -> Family {
        Family::new()
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        for member in self.members() {
            member.signal(Signal::KILL);
        }
    }
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub pid: i32,
    /// That of its parent.
    pub parent: i32,
    /// That of its group.
    pub group: i32,
    /// What it does, in the system's letters: `Z` is dead and not reaped, `T` is stopped.
    pub state: char,
    /// The words that it was started with.
    pub words: Vec<String>,
}

impl Member {
    /// Whether it was started with this word.
    #[must_use]
    pub fn has(&self, word: &str) -> bool {
        self.words.iter().any(|said| said == word)
    }

    /// Signals it; not its group.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            // One that is gone needs no signal.
            let _ = kill_process(pid, signal);
        }
    }

    fn read(pid: i32) -> Option<Member> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program stands in parentheses and may hold anything.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?.chars().next()?;
        let mut number = || fields.next()?.parse().ok();
        let (parent, group) = (number()?, number()?);
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = words.split(|byte| *byte == 0).skip(1);
        Some(Member {
            pid,
            parent,
            group,
            state,
            words: words
                .map(|word| String::from_utf8_lossy(word).into())
                .collect(),
        })
    }
}

/// All processes of the machine, those that are dead and not reaped included.
pub(crate) fn processes() -> Vec<Member> {
    let entries = fs::read_dir("/proc").expect("there is a /proc");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter_map(|name| Member::read(name.parse().ok()?))
        .collect()
}

/// A program of this crate, which lies beside this one or, for a test, one floor up.
pub(crate) fn program(name: &str) -> PathBuf {
    let here = current_exe().expect("a program knows where it lies");
    let mut floors = here
        .ancestors()
        .skip(1)
        .take(2)
        .map(|floor| floor.join(name));
    floors
        .find(|path| path.is_file())
        .unwrap_or_else(|| panic!("{name} is not built: run `cargo build --package ordeal --bins`"))
}
