//! Tests how a guard ends, and that no process of its server is left.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::guard::Host;
use crate::support::{EVERLINK, TempFile, is_alive, process_exists, wait_until};

/// The limit for the end of a guard and its server. Usually it takes less than two seconds; the rest is for a busy machine.
const END_LIMIT: Duration = Duration::from_millis(4_500);

/// The processes that a server started.
struct Descendants {
    /// In the process group of the server. The server waits for it, as `npx` and `sh -c` do.
    worker: Pid,
    /// In the process group of the server. It ignores its standard input.
    background: Pid,
    /// In a process group of its own.
    detached: Pid,
}

impl Descendants {
    fn are_gone(&self) -> bool {
        ![self.worker, self.background, self.detached]
            .into_iter()
            .any(is_alive)
    }
}

/// Starts a guard with these options and a server with descendants, and puts a call in flight.
fn start(name: &str, options: &[&str]) -> (Host, Descendants) {
    let pid_files =
        ["worker", "background", "detached"].map(|kind| TempFile::new(&format!("{name}-{kind}")));
    let [worker, background, detached] = pid_files.each_ref().map(TempFile::path);
    // `set -m` gives each background process a process group of its own.
    let script = format!(
        r#"trap '' TERM
        sleep 1000 & echo $! > '{background}'
        bash -c 'set -m; sleep 1000 & echo $! > "$0"' '{detached}'
        sh -c 'echo $$ > "{worker}"; exec "{EVERLINK}" demo-server'
        wait"#
    );
    let mut host = Host::start(Stdio::null(), options, &["bash", "-c", &script]);
    host.handshake_and_echo();
    host.send_call(7, "sleep", &json!({"ms": 600_000}));
    let [worker, background, detached] = pid_files.each_ref().map(TempFile::pid);
    let descendants = Descendants {
        worker,
        background,
        detached,
    };
    (host, descendants)
}

fn assert_all_end(since: Instant, descendants: &Descendants) {
    wait_until("the descendants of the server are gone", || {
        descendants.are_gone()
    });
    assert!(since.elapsed() < END_LIMIT, "after {:?}", since.elapsed());
}

#[test]
fn descendants_of_the_server_end_when_the_host_closes_its_output_with_a_call_in_flight() {
    let (mut host, descendants) = start("ends-eof", &[]);
    let since = Instant::now();
    assert_eq!(host.disconnect().code(), Some(0));
    assert_all_end(since, &descendants);
}

#[test]
fn descendants_of_the_server_end_when_the_host_closes_its_input_with_a_call_in_flight() {
    let (mut host, descendants) = start("ends-epipe", &[]);
    let since = Instant::now();
    drop(host.stdout.take());
    host.send(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#);
    assert_eq!(host.wait_for_exit().code(), Some(0));
    assert_all_end(since, &descendants);
}

#[test]
fn descendants_of_the_server_end_with_each_signal_that_asks_the_guard_to_end() {
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        let (mut host, descendants) = start("ends-signal", &[]);
        let since = Instant::now();
        kill_process(Pid::from_child(&host.process), signal).expect("the process exists");
        assert_eq!(host.wait_for_exit().code(), Some(0), "{signal:?}");
        assert_all_end(since, &descendants);
    }
}

#[test]
fn descendants_of_the_server_end_when_the_guard_is_killed() {
    let (mut host, descendants) = start("ends-kill", &[]);
    let since = Instant::now();
    host.process.kill().expect("a child process");
    host.process.wait().expect("a child process");
    assert_all_end(since, &descendants);
}

/// A killed host closes its pipes, and no other process holds them.
#[test]
fn descendants_of_the_server_end_when_the_host_is_killed() {
    let (host_pid, background) = (
        TempFile::new("ends-host"),
        TempFile::new("ends-host-background"),
    );
    let server = format!("sleep 1000 & echo $! > '{}'; wait", background.path());
    // This shell is the host: it holds the guard's standard input open and sends nothing after `initialize`.
    let script = format!(
        r#"{{ echo '{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{{}},"clientInfo":{{"name":"host","version":"1"}}}}}}'
        echo $BASHPID > '{}'; exec sleep 1000; }} | "$0" guard --log off -- sh -c "$1""#,
        host_pid.path()
    );
    let mut host = Command::new("bash");
    host.args(["-c", &script, EVERLINK, &server]);
    host.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    let mut host = host
        .stdout(Stdio::null())
        .spawn()
        .expect("bash is installed");
    let (host_pid, background) = (host_pid.pid(), background.pid());
    let since = Instant::now();
    kill_process(host_pid, Signal::KILL).expect("the process exists");
    host.wait().expect("a child process");
    wait_until("the server is gone", || !is_alive(background));
    assert!(since.elapsed() < END_LIMIT, "after {:?}", since.elapsed());
}

/// The cleaner ends together with the guard.
#[test]
fn server_and_cleaner_processes_are_gone_when_the_guard_exits() {
    let mut host = Host::start(Stdio::null(), &[], &[EVERLINK, "demo-server"]);
    host.handshake_and_echo();
    // Processes are started by other threads than the first, so the children of all threads are read.
    let children = || -> Vec<Pid> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", host.process.id()));
        let tasks = tasks.expect("the guard runs").flatten();
        let listed = tasks.map(|task| std::fs::read_to_string(task.path().join("children")));
        let listed: Vec<String> = listed.map(Result::unwrap_or_default).collect();
        let pids = listed.iter().flat_map(|line| line.split_whitespace());
        pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
            .collect()
    };
    wait_until("the server and the cleaner run", || children().len() == 2);
    let children = children();
    assert_eq!(host.disconnect().code(), Some(0));
    assert!(!children.into_iter().any(process_exists));
}
