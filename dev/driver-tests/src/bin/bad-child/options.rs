//! How the server misbehaves as a process, by the words it is started with. Knows nothing of what it serves.
//!
//! | word | what it does |
//! |---|---|
//! | `banner` | prints lines on standard output that are no messages, before anything else |
//! | `daemon` | starts a process that leaves for a session of its own |
//! | `daemon-heir` | the same, and that process holds the standard output |
//! | `deaf` | never reads |
//! | `diary=FILE` | writes each start, and the `tag` of each call that it has read, into this file |
//! | `exit=CODE` | exits at once |
//! | `fork` | starts another one that serves on the same pipes, and exits |
//! | `frail=K` | exits at once the first K times, as counted in the diary |
//! | `heir` | starts a process that holds the standard output |
//! | `ignore-eof` | lives on after the end of its input |
//! | `ignore-term` | is not ended by `SIGTERM` |
//! | `kin` | starts a process in its group that holds nothing |
//! | `loud` | writes to standard error for ever, and reads nothing before the first eight megabytes |
//! | `kin-apart` | starts a process that moves to a process group of its own and holds nothing |
//! | `kin-orphan` | the same, and the parent of that process exits |
//! | `mutter` | writes to standard error what could be taken for replies |
//! | `words=TEXT` | writes this to standard error |

use std::env::{args, current_exe};
use std::fs::{self, OpenOptions};
use std::io::{Write, stderr, stdout};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio, exit};
use std::thread;

use rustix::process::{setpgid, setsid};
use serde_json::Value;

use crate::linger;

/// As much is written to standard error by the loud before they read a word: far more than any pipe holds.
const FIRST_SHOUT: usize = 8 << 20;

/// What those do that are started to be in the way.
const LOITER: &str = "loiter";

/// The words.
pub(crate) struct Manners(Vec<String>);

impl Manners {
    pub(crate) fn of_arguments() -> Manners {
        Manners(args().skip(1).collect())
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.0.iter().any(|manner| manner == word)
    }

    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let mut manners = self.0.iter();
        manners.find_map(|manner| manner.strip_prefix(name)?.strip_prefix('='))
    }

    /// All that is done before the first word is read.
    pub(crate) fn show_at_start(&self) {
        if self.has(LOITER) {
            self.loiter();
        }
        self.ignore_term();
        self.shout();
        self.write_into_diary(&"start".into());
        self.leave();
        self.have_company();
        if self.has("banner") {
            let _ = stdout().write_all(BANNER).and_then(|()| stdout().flush());
        }
        if self.has("deaf") {
            linger();
        }
    }

    pub(crate) fn write_into_diary(&self, entry: &Value) {
        let (Some(path), Some(entry)) = (self.value("diary"), entry.as_str()) else {
            return;
        };
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(format!("{entry}\n").as_bytes()))
            .expect("the diary can be written");
    }

    /// Safe Rust cannot say it, a shell can: becomes the same program again, started by one.
    fn ignore_term(&self) {
        if self.has("ignore-term") {
            let mut shell = Command::new("sh");
            shell
                .args(["-c", r#"trap '' TERM; exec "$0" "$@""#])
                .arg(myself());
            let error = shell.args(self.without("ignore-term")).exec();
            panic!("there is no shell: {error}");
        }
    }

    fn shout(&self) {
        let words = self.value("words").unwrap_or_default();
        let _ = stderr().write_all(words.as_bytes());
        if !self.has("loud") {
            return;
        }
        let shout = [[b'!'; 1023].as_slice(), b"\n"].concat().repeat(256);
        for _ in 0..FIRST_SHOUT / shout.len() {
            let _ = stderr().write_all(&shout);
        }
        thread::spawn(move || while stderr().write_all(&shout).is_ok() {});
    }

    fn leave(&self) {
        if let Some(code) = self.number("exit") {
            exit(code);
        }
        if let Some(deaths) = self.number("frail") {
            let diary = fs::read_to_string(self.value("diary").unwrap_or_default());
            let diary = diary.expect("the frail keep a diary");
            let starts = diary.lines().filter(|entry| *entry == "start").count();
            if i32::try_from(starts).is_ok_and(|starts| starts <= deaths) {
                exit(7);
            }
        }
        if self.has("fork") {
            start(Command::new(myself()).args(self.without("fork")));
            exit(0);
        }
    }

    fn have_company(&self) {
        for word in [
            "daemon",
            "daemon-heir",
            "heir",
            "kin",
            "kin-apart",
            "kin-orphan",
        ] {
            if self.has(word) {
                let mut other = Command::new(myself());
                other.args([LOITER, word]);
                other.stdin(Stdio::null()).stderr(Stdio::null());
                if !word.ends_with("heir") {
                    other.stdout(Stdio::null());
                }
                start(&mut other);
            }
        }
    }

    /// Is there, and does nothing. The end of the pipe that it may hold does not concern it.
    fn loiter(&self) -> ! {
        if self.has("daemon") || self.has("daemon-heir") {
            setsid().expect("it leads no group yet");
        }
        if self.has("kin-orphan") {
            start(Command::new(myself()).args([LOITER, "kin-apart"]));
            exit(0);
        }
        if self.has("kin-apart") {
            setpgid(None, None).expect("it leads no session");
        }
        linger();
    }

    fn without(&self, word: &str) -> impl Iterator<Item = &String> {
        self.0.iter().filter(move |manner| *manner != word)
    }

    fn number(&self, name: &str) -> Option<i32> {
        self.value(name)
            .map(|value| value.parse().expect("a number"))
    }
}

/// What is taken for a message by who looks only at the beginning, or only for JSON, or only for text.
const BANNER: &[u8] = b"\n\
    rascal 1.0, at your service\n\
    {\"level\":\"info\",\"msg\":\"starting\"}\n\
    {\"jsonrpc\":\"2.0\",\"id\n\
    [1,2,3]\n\
    \xff\xfe\xfd\n\
    null\n";

#[allow(clippy::zombie_processes, reason = "a rascal cares for nobody")]
fn start(command: &mut Command) {
    command.spawn().expect("a rascal can be started");
}

fn myself() -> PathBuf {
    current_exe().expect("a program knows where it lies")
}
