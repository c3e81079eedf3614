//! Tests `everlink demo`: it keeps its promises, and leaves no files or processes behind.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[test]
fn every_call_has_exactly_one_outcome_while_servers_are_killed() {
    let directory = DemoDirectory::new("outcomes");
    let output = directory
        .demo(&["--seconds", "3", "--seed", "7", "--json"])
        .output()
        .expect("the program runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report = report(&output.stdout);
    assert!(output.status.success(), "{report}\n{stderr}");
    assert_eq!(report["accepted"], report["settled"], "{stderr}");
    let count = |name: &str| report[name].as_u64().expect(name);
    let outcomes = count("replies") + count("failed") + count("unknown");
    assert_eq!(outcomes, count("settled"), "{report}");
    assert_eq!((count("hung"), count("lost")), (0, 0), "{stderr}");
    assert!(count("replies") > 0 && count("deaths") > 0, "{stderr}");
    // The demo waits after each disruption until the link is ready again, and reports a broken rule otherwise.
    assert!(count("reconnects") > 0, "{stderr}");
    assert!(report["ready_ms_p50"].is_number() && report["ready_ms_p99"].is_number());
    directory.assert_clean();
}

#[test]
fn interrupted_demo_reports_an_outcome_for_every_accepted_call() {
    let directory = DemoDirectory::new("interrupted");
    let mut demo = directory
        .demo(&["--seconds", "86400", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let stderr = BufReader::new(demo.stderr.take().expect("a pipe"));
    let mut lines = stderr.lines().map(|line| line.expect("valid UTF-8"));
    assert!(lines.any(|line| line.contains("is ready")));
    kill_process(Pid::from_child(&demo), Signal::INT).expect("the program runs");
    let rest: Vec<_> = lines.collect();
    let output = demo.wait_with_output().expect("the program ends");
    let report = report(&output.stdout);
    assert!(output.status.success(), "{report}\n{rest:#?}");
    assert_eq!(report["accepted"], report["settled"]);
    directory.assert_clean();
}

#[test]
fn help_of_the_demo_server_lists_its_tools() {
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_everlink"))
            .args(arguments)
            .output();
        output.expect("the program runs").stdout
    };
    let help = String::from_utf8(run(&["demo-server", "--help"])).expect("valid UTF-8");
    let server = env!("CARGO_BIN_EXE_everlink");
    let report = report(&run(&["inspect", "--json", "--", server, "demo-server"]));
    for tool in report["tools"].as_array().expect("a list") {
        let name = tool["name"].as_str().expect("a name");
        assert!(help.contains(&format!("\n  {name} ")), "{name}: {help}");
    }
}

/// Parses the last line of the output.
fn report(stdout: &[u8]) -> Value {
    let text = String::from_utf8_lossy(stdout);
    let last = text.lines().last().expect("a line");
    serde_json::from_str(last).expect("valid JSON")
}

/// A directory for the files of one demo. Its name is in the command line of the demo's servers.
struct DemoDirectory(PathBuf);

impl DemoDirectory {
    fn new(name: &str) -> DemoDirectory {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("demo-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the file can be written");
        DemoDirectory(path)
    }

    fn demo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_everlink"));
        command.arg("demo").args(arguments).env("TMPDIR", &self.0);
        command
    }

    /// Checks that no file and no process is left.
    fn assert_clean(&self) {
        let files = fs::read_dir(&self.0).expect("the file exists");
        assert_eq!(files.count(), 0, "the diary is left");
        let deadline = Instant::now() + Duration::from_secs(30);
        while let Some(server) = self.leftover_server() {
            assert!(Instant::now() < deadline, "{server} is left");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the command line of a process that was started with a file in this directory. Finds none on systems without `/proc`.
    fn leftover_server(&self) -> Option<String> {
        let marker = self.0.to_str().expect("valid UTF-8");
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let command_lines = processes.filter_map(|process| {
            let bytes = fs::read(process.path().join("cmdline")).ok()?;
            Some(String::from_utf8_lossy(&bytes).replace('\0', " "))
        });
        let mut servers = command_lines.filter(|line| line.contains(marker));
        servers.next()
    }
}
