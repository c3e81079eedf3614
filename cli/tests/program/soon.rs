//! Measures times for which the README gives no number: how soon a call fails after its server is killed, and how soon another server answers.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::guard::{Diary, Host};
use crate::props::{EVERLINK, until};

/// The limit for a call in flight to fail after its server was killed. Usually it takes a few milliseconds.
const FAILS_WITHIN: Duration = Duration::from_secs(1);

/// The limit for another server to answer the next call after the first server was killed. Usually it takes at most a quarter of a second, plus the
/// time that the server takes to start.
const SERVED_WITHIN: Duration = Duration::from_secs(2);

/// Returns the median. A busy machine is slow at times; a guard that waits for something is slow each time.
fn middle(mut spans: [Duration; 5]) -> Duration {
    spans.sort();
    spans[2]
}

/// Kills the server of a guard five times, each time with a call in flight.
fn kill_five_times(name: &str, script: &str) {
    let diary = Diary::new(name);
    let path = diary.0.display().to_string();
    let server = ["sh", "-c", script, EVERLINK, &path];
    let mut host = Host::start(Stdio::null(), &[], &server);
    host.meets();
    let (mut failed, mut served) = ([Duration::ZERO; 5], [Duration::ZERO; 5]);
    for turn in 0..5 {
        let id = 10 * (turn as u64 + 1);
        host.calls(id, "pid", &json!({}));
        let pid = host.hears(id)["result"]["content"][0]["text"].clone();
        let pid = pid.as_str().and_then(|pid| pid.parse().ok());
        let pid = pid.and_then(Pid::from_raw).expect("a process");
        host.calls(id + 1, "sleep", &json!({"ms": 600_000, "number": id}));
        until("the call runs", || diary.has(id));
        let since = Instant::now();
        kill_process(pid, Signal::KILL).expect("it is there");
        let lost = host.hears(id + 1);
        failed[turn] = since.elapsed();
        let why = lost["result"]["content"][0]["text"].as_str();
        assert!(why.is_some_and(|why| why.contains("signal 9")), "{lost}");
        host.calls(id + 2, "echo", &json!({"message": "hello"}));
        let reply = host.hears(id + 2);
        served[turn] = since.elapsed();
        assert_eq!(reply["result"]["content"][0]["text"], "hello", "{reply}");
    }
    assert!(middle(failed) < FAILS_WITHIN, "{failed:?}");
    assert!(middle(served) < SERVED_WITHIN, "{served:?}");
}

#[test]
fn call_in_flight_fails_and_the_next_is_served_within_seconds_of_the_death_of_the_server() {
    kill_five_times("soon", r#"exec "$0" demo-server --diary "$1""#);
}

/// The output of the server does not end with the server, because another process holds its pipes.
#[test]
fn death_of_a_server_is_seen_as_soon_while_another_process_holds_its_pipes() {
    let script = r#"sleep 600 & exec "$0" demo-server --diary "$1""#;
    kill_five_times("soon-held", script);
}
