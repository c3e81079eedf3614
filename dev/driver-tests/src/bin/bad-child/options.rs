//! Behaviour of the server as a process, chosen by its arguments. Must not depend on the tools.
//!
//! | option | effect |
//! |---|---|
//! | `banner` | prints lines that are no messages on standard output, before anything else |
//! | `daemon` | spawns a process that calls `setsid` |
//! | `daemon-stdout-holder` | the same, and that process holds the standard output |
//! | `exit=CODE` | exits at once |
//! | `fail-first=K` | exits at once on its first K starts, which it counts in the log |
//! | `flood-stderr` | writes to standard error for ever, and reads nothing before the first 8 MiB |
//! | `fork` | spawns another server on the same pipes, and exits |
//! | `group-member` | spawns a process in its process group that holds no pipe |
//! | `ignore-eof` | does not exit at the end of its input |
//! | `ignore-term` | ignores `SIGTERM` |
//! | `log=FILE` | appends each start, and the `tag` of each call that it has read, to this file |
//! | `never-read` | never reads |
//! | `own-group` | spawns a process that moves to its own process group and holds no pipe |
//! | `own-group-orphan` | the same, and the parent of that process exits |
//! | `stderr=TEXT` | writes the text to standard error |
//! | `stderr-replies` | writes lines that look like replies to standard error |
//! | `stdout-holder` | spawns a process that holds the standard output |

use std::env::{args, current_exe};
use std::fs::{self, OpenOptions};
use std::io::{Write, stderr, stdout};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio, exit};
use std::thread;

use rustix::process::{setpgid, setsid};
use serde_json::Value;

use crate::sleep_then_exit;

/// With `flood-stderr`: the bytes written before the first read. No pipe holds as many.
const FIRST_STDERR_BYTES: usize = 8 << 20;

/// The option of the processes that the server spawns: they only sleep.
const SLEEP_ONLY: &str = "sleep-only";

/// The arguments.
pub(crate) struct Options(Vec<String>);

impl Options {
    pub(crate) fn from_args() -> Options {
        Options(args().skip(1).collect())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|option| option == name)
    }

    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let mut options = self.0.iter();
        options.find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }

    /// Applies all options that take effect before the first read.
    pub(crate) fn apply_at_start(&self) {
        if self.has(SLEEP_ONLY) {
            self.run_sleep_only();
        }
        self.ignore_sigterm();
        self.write_stderr();
        self.write_log(&"start".into());
        self.exit_early();
        self.spawn_helpers();
        if self.has("banner") {
            let _ = stdout().write_all(BANNER).and_then(|()| stdout().flush());
        }
        if self.has("never-read") {
            sleep_then_exit();
        }
    }

    pub(crate) fn write_log(&self, entry: &Value) {
        let (Some(path), Some(entry)) = (self.value("log"), entry.as_str()) else {
            return;
        };
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(format!("{entry}\n").as_bytes()))
            .expect("the log can be written");
    }

    /// Safe Rust cannot ignore a signal, so this restarts the program through a shell that can.
    fn ignore_sigterm(&self) {
        if self.has("ignore-term") {
            let mut shell = Command::new("sh");
            shell
                .args(["-c", r#"trap '' TERM; exec "$0" "$@""#])
                .arg(own_exe());
            let error = shell.args(self.without("ignore-term")).exec();
            panic!("there is no shell: {error}");
        }
    }

    fn write_stderr(&self) {
        let text = self.value("stderr").unwrap_or_default();
        let _ = stderr().write_all(text.as_bytes());
        if !self.has("flood-stderr") {
            return;
        }
        let block = [[b'!'; 1023].as_slice(), b"\n"].concat().repeat(256);
        for _ in 0..FIRST_STDERR_BYTES / block.len() {
            let _ = stderr().write_all(&block);
        }
        thread::spawn(move || while stderr().write_all(&block).is_ok() {});
    }

    fn exit_early(&self) {
        if let Some(code) = self.number("exit") {
            exit(code);
        }
        if let Some(deaths) = self.number("fail-first") {
            let log = fs::read_to_string(self.value("log").unwrap_or_default());
            let log = log.expect("`fail-first` needs `log`");
            let starts = log.lines().filter(|entry| *entry == "start").count();
            if i32::try_from(starts).is_ok_and(|starts| starts <= deaths) {
                exit(7);
            }
        }
        if self.has("fork") {
            spawn(Command::new(own_exe()).args(self.without("fork")));
            exit(0);
        }
    }

    fn spawn_helpers(&self) {
        for name in [
            "daemon",
            "daemon-stdout-holder",
            "stdout-holder",
            "group-member",
            "own-group",
            "own-group-orphan",
        ] {
            if self.has(name) {
                let mut helper = Command::new(own_exe());
                helper.args([SLEEP_ONLY, name]);
                helper.stdin(Stdio::null()).stderr(Stdio::null());
                if !name.ends_with("stdout-holder") {
                    helper.stdout(Stdio::null());
                }
                spawn(&mut helper);
            }
        }
    }

    /// Only sleeps. It does not notice when a pipe that it holds closes.
    fn run_sleep_only(&self) -> ! {
        if self.has("daemon") || self.has("daemon-stdout-holder") {
            setsid().expect("the process leads no group");
        }
        if self.has("own-group-orphan") {
            spawn(Command::new(own_exe()).args([SLEEP_ONLY, "own-group"]));
            exit(0);
        }
        if self.has("own-group") {
            setpgid(None, None).expect("the process leads no session");
        }
        sleep_then_exit();
    }

    fn without(&self, name: &str) -> impl Iterator<Item = &String> {
        self.0.iter().filter(move |option| *option != name)
    }

    fn number(&self, name: &str) -> Option<i32> {
        self.value(name)
            .map(|value| value.parse().expect("a number"))
    }
}

/// Lines that a reader takes for messages if it checks only the first byte, only for JSON, or only for text.
const BANNER: &[u8] = b"\n\
    bad-child 1.0, at your service\n\
    {\"level\":\"info\",\"msg\":\"starting\"}\n\
    {\"jsonrpc\":\"2.0\",\"id\n\
    [1,2,3]\n\
    \xff\xfe\xfd\n\
    null\n";

#[allow(
    clippy::zombie_processes,
    reason = "the tests check that the adapter kills these processes"
)]
fn spawn(command: &mut Command) {
    command.spawn().expect("the program can be spawned");
}

fn own_exe() -> PathBuf {
    current_exe().expect("the program has a path")
}
