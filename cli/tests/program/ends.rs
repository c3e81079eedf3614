//! Tests how a guard ends, and that no process of its server is left.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::guard::Host;
use crate::props::{EVERLINK, Note, is_alive, is_there, until};

/// The limit for the end of a guard and its server. Usually it takes less than two seconds; the rest is for a busy machine.
const BOUND: Duration = Duration::from_millis(4_500);

/// The processes that a server started.
struct Descendants {
    /// In the process group of the server. The server waits for it, as `npx` and `sh -c` do.
    serves: Pid,
    /// In the process group of the server. It ignores its standard input.
    loiters: Pid,
    /// In a process group of its own.
    strays: Pid,
}

impl Descendants {
    fn are_gone(&self) -> bool {
        ![self.serves, self.loiters, self.strays]
            .into_iter()
            .any(is_alive)
    }
}

/// Starts a guard with these options and a server with descendants, and puts a call in flight.
fn start(name: &str, options: &[&str]) -> (Host, Descendants) {
    let notes = ["serves", "loiters", "strays"].map(|what| Note::new(&format!("{name}-{what}")));
    let [serves, loiters, strays] = notes.each_ref().map(Note::path);
    // `set -m` gives each background process a process group of its own.
    let script = format!(
        r#"trap '' TERM
        sleep 1000 & echo $! > '{loiters}'
        bash -c 'set -m; sleep 1000 & echo $! > "$0"' '{strays}'
        sh -c 'echo $$ > "{serves}"; exec "{EVERLINK}" demo-server'
        wait"#
    );
    let mut host = Host::start(Stdio::null(), options, &["bash", "-c", &script]);
    host.meets_and_calls();
    host.calls(7, "sleep", &json!({"ms": 600_000}));
    let [serves, loiters, strays] = notes.each_ref().map(Note::pid);
    let descendants = Descendants {
        serves,
        loiters,
        strays,
    };
    (host, descendants)
}

fn all_end(since: Instant, descendants: &Descendants) {
    until("the descendants of the server are gone", || {
        descendants.are_gone()
    });
    assert!(since.elapsed() < BOUND, "after {:?}", since.elapsed());
}

#[test]
fn descendants_of_the_server_end_when_the_host_closes_its_output_with_a_call_in_flight() {
    let (mut host, descendants) = start("ends-eof", &[]);
    let since = Instant::now();
    assert_eq!(host.leaves().code(), Some(0));
    all_end(since, &descendants);
}

#[test]
fn descendants_of_the_server_end_when_the_host_closes_its_input_with_a_call_in_flight() {
    let (mut host, descendants) = start("ends-epipe", &[]);
    let since = Instant::now();
    drop(host.hears.take());
    host.says(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#);
    assert_eq!(host.ended().code(), Some(0));
    all_end(since, &descendants);
}

#[test]
fn descendants_of_the_server_end_with_each_signal_that_asks_the_guard_to_end() {
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        let (mut host, descendants) = start("ends-signal", &[]);
        let since = Instant::now();
        kill_process(Pid::from_child(&host.process), signal).expect("it is there");
        assert_eq!(host.ended().code(), Some(0), "{signal:?}");
        all_end(since, &descendants);
    }
}

#[test]
fn descendants_of_the_server_end_when_the_guard_is_killed() {
    let (mut host, descendants) = start("ends-kill", &[]);
    let since = Instant::now();
    host.process.kill().expect("it is ours");
    host.process.wait().expect("it is ours");
    all_end(since, &descendants);
}

/// A killed host closes its pipes, and no other process holds them.
#[test]
fn descendants_of_the_server_end_when_the_host_is_killed() {
    let (process, loiters) = (Note::new("ends-host"), Note::new("ends-host-loiters"));
    let server = format!("sleep 1000 & echo $! > '{}'; wait", loiters.path());
    // This shell is the host: it holds the guard's standard input open and sends nothing after `initialize`.
    let script = format!(
        r#"{{ echo '{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{{}},"clientInfo":{{"name":"host","version":"1"}}}}}}'
        echo $BASHPID > '{}'; exec sleep 1000; }} | "$0" guard --log off -- sh -c "$1""#,
        process.path()
    );
    let mut host = Command::new("bash");
    host.args(["-c", &script, EVERLINK, &server]);
    host.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    let mut host = host.stdout(Stdio::null()).spawn().expect("there is a bash");
    let (sleeper, loiters) = (process.pid(), loiters.pid());
    let since = Instant::now();
    kill_process(sleeper, Signal::KILL).expect("it is there");
    host.wait().expect("it is ours");
    until("the server is gone", || !is_alive(loiters));
    assert!(since.elapsed() < BOUND, "after {:?}", since.elapsed());
}

/// The cleaner ends together with the guard.
#[test]
fn nothing_is_left_of_a_guard_that_ends_in_order() {
    let mut host = Host::start(Stdio::null(), &[], &[EVERLINK, "demo-server"]);
    host.meets_and_calls();
    // Processes are started by other threads than the first, so the children of all threads are read.
    let children = || -> Vec<Pid> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", host.process.id()));
        let tasks = tasks.expect("it lives").flatten();
        let listed = tasks.map(|task| std::fs::read_to_string(task.path().join("children")));
        let listed: Vec<String> = listed.map(Result::unwrap_or_default).collect();
        let pids = listed.iter().flat_map(|line| line.split_whitespace());
        pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
            .collect()
    };
    until("the server and the cleaner run", || children().len() == 2);
    let children = children();
    assert_eq!(host.leaves().code(), Some(0));
    assert!(!children.into_iter().any(is_there));
}
