//! Behaviour of the server as a process, chosen by its arguments. Must not depend on the tools.
//!
//! | option | effect |
//! |---|---|
//! | `banner` | prints lines that are no messages on standard output, before anything else |
//! | `daemon` | spawns a process that calls `setsid` |
//! | `daemon-stdout-holder` | the same, and that process holds the standard output |
//! | `daemon-stdout-writer=FILE` | on its first start only: the same, and when this file exists, that process writes lines until it cannot |
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

use std::fs::{self, OpenOptions};
use std::io::{Write, stderr, stdout};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio, exit};
use std::thread;
use std::time::Duration;

use rustix::process::{setpgid, setsid};
use serde_json::Value;

use super::sleep_then_exit;
use crate::kit::helper;

/// With `flood-stderr`: the bytes written before the first read. No pipe holds as many.
const FIRST_STDERR_BYTES: usize = 8 << 20;

/// The option of the processes that the server spawns: they only sleep.
const SLEEP_ONLY: &str = "sleep-only";

/// The option for a process that writes to an old standard output.
const STDOUT_WRITER: &str = "daemon-stdout-writer";

/// The number of milliseconds for which that process lives at most.
const MAX_LATE_LINES: u32 = 600_000;

/// The options.
pub(super) struct Options(Vec<String>);

impl Options {
    pub(super) fn new(options: &[String]) -> Options {
        Options(options.to_vec())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|option| option == name)
    }

    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let mut options = self.0.iter();
        options.find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }

    /// Applies all options that take effect before the first read.
    pub(super) fn apply_at_start(&self) {
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

    pub(super) fn write_log(&self, entry: &Value) {
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
            let bad_child = helper("bad-child");
            let mut shell = Command::new("sh");
            shell
                .args(["-c", r#"trap '' TERM; exec "$0" "$@""#])
                .arg(bad_child.get_program())
                .args(bad_child.get_args());
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
            if i32::try_from(self.starts()).is_ok_and(|starts| starts <= deaths) {
                exit(7);
            }
        }
        if self.has("fork") {
            spawn(helper("bad-child").args(self.without("fork")));
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
                let mut helper = helper("bad-child");
                helper.args([SLEEP_ONLY, name]);
                helper.stdin(Stdio::null()).stderr(Stdio::null());
                if !name.ends_with("stdout-holder") {
                    helper.stdout(Stdio::null());
                }
                spawn(&mut helper);
            }
        }
        if let (Some(file), Some(log)) = (self.value(STDOUT_WRITER), self.value("log")) {
            if self.starts() == 1 {
                let mut helper = helper("bad-child");
                helper.args([
                    SLEEP_ONLY,
                    &format!("{STDOUT_WRITER}={file}"),
                    &format!("log={log}"),
                ]);
                spawn(helper.stdin(Stdio::null()).stderr(Stdio::null()));
            }
        }
    }

    /// The number of starts in the log, this one included.
    fn starts(&self) -> usize {
        let log = fs::read_to_string(self.value("log").unwrap_or_default());
        let log = log.expect("this option needs `log`");
        log.lines().filter(|entry| *entry == "start").count()
    }

    /// Only sleeps. It does not notice when a pipe that it holds closes.
    fn run_sleep_only(&self) -> ! {
        if self.has("daemon") || self.has("daemon-stdout-holder") {
            setsid().expect("the process leads no group");
        }
        if let Some(file) = self.value(STDOUT_WRITER) {
            setsid().expect("the process leads no group");
            self.write_lines_after(Path::new(file));
        }
        if self.has("own-group-orphan") {
            spawn(helper("bad-child").args([SLEEP_ONLY, "own-group"]));
            exit(0);
        }
        if self.has("own-group") {
            setpgid(None, None).expect("the process leads no session");
        }
        sleep_then_exit();
    }

    /// Waits for the file, then writes lines to standard output until that fails. The log counts them.
    fn write_lines_after(&self, file: &Path) -> ! {
        for _ in 0..MAX_LATE_LINES {
            let line = b"a line of an old child\n";
            if file.exists() {
                if stdout()
                    .write_all(line)
                    .and_then(|()| stdout().flush())
                    .is_err()
                {
                    exit(0);
                }
                self.write_log(&"wrote".into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        exit(0);
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
