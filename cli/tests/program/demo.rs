//! Tests `everlink demo`: it keeps its promises, and leaves no files or processes behind.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[test]
fn every_call_has_one_outcome_whatever_the_servers_die_of() {
    let room = Room::new("outcomes");
    let output = room
        .demo(&["--seconds", "3", "--seed", "7", "--json"])
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    let facts = facts(&output.stdout);
    assert!(output.status.success(), "{facts}\n{said}");
    assert_eq!(facts["accepted"], facts["settled"], "{said}");
    let count = |name: &str| facts[name].as_u64().expect(name);
    let outcomes = count("replies") + count("failed") + count("unknown");
    assert_eq!(outcomes, count("settled"), "{facts}");
    assert_eq!((count("hung"), count("lost")), (0, 0), "{said}");
    assert!(count("replies") > 0 && count("deaths") > 0, "{said}");
    // The demo waits after each death until the link is ready again, and reports a broken rule otherwise.
    assert!(count("reconnects") > 0, "{said}");
    assert!(facts["ready_ms_p50"].is_number() && facts["ready_ms_p99"].is_number());
    room.is_left_empty();
}

#[test]
fn an_interrupted_demo_still_says_what_came_of_each_call() {
    let room = Room::new("interrupted");
    let mut demo = room
        .demo(&["--seconds", "86400", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let stderr = BufReader::new(demo.stderr.take().expect("it is piped"));
    let mut lines = stderr.lines().map(|line| line.expect("it is text"));
    assert!(lines.any(|line| line.contains("is ready")));
    kill_process(Pid::from_child(&demo), Signal::INT).expect("it runs");
    let rest: Vec<_> = lines.collect();
    let output = demo.wait_with_output().expect("it ends");
    let facts = facts(&output.stdout);
    assert!(output.status.success(), "{facts}\n{rest:#?}");
    assert_eq!(facts["accepted"], facts["settled"]);
    room.is_left_empty();
}

#[test]
fn a_server_that_nobody_is_to_find_is_not_in_the_help() {
    let output = Command::new(env!("CARGO_BIN_EXE_everlink"))
        .arg("--help")
        .output()
        .expect("the program runs");
    let help = String::from_utf8(output.stdout).expect("it is text");
    assert!(output.status.success() && help.contains("demo"));
    assert!(!help.contains("demo-server"), "{help}");
}

/// Parses the last line of the output.
fn facts(stdout: &[u8]) -> Value {
    let text = String::from_utf8_lossy(stdout);
    let last = text.lines().last().expect("there is a line");
    serde_json::from_str(last).expect("it is JSON")
}

/// A directory for the files of one demo. Its name is in the command line of the demo's servers.
struct Room(PathBuf);

impl Room {
    fn new(name: &str) -> Room {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("demo-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("there is room");
        Room(path)
    }

    fn demo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_everlink"));
        command.arg("demo").args(arguments).env("TMPDIR", &self.0);
        command
    }

    /// Checks that no file and no process is left.
    fn is_left_empty(&self) {
        let files = fs::read_dir(&self.0).expect("it is there");
        assert_eq!(files.count(), 0, "the diary is left");
        let patience = Instant::now() + Duration::from_secs(30);
        while let Some(server) = self.server() {
            assert!(Instant::now() < patience, "{server} is left");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the command line of a process that was started with a file in this directory. Finds none on systems without `/proc`.
    fn server(&self) -> Option<String> {
        let marker = self.0.to_str().expect("it is text");
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let command_lines = processes.filter_map(|process| {
            let bytes = fs::read(process.path().join("cmdline")).ok()?;
            Some(String::from_utf8_lossy(&bytes).replace('\0', " "))
        });
        let mut servers = command_lines.filter(|line| line.contains(marker));
        servers.next()
    }
}
