//! Measures times for which the README gives no number: how soon a call fails after its server is killed, and how soon another server answers.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::guard::{Diary, Host};
use crate::support::{EVERLINK, wait_until};

/// The limit for a call in flight to fail after its server was killed. Usually it takes a few milliseconds.
const FAILS_WITHIN: Duration = Duration::from_secs(1);

/// The limit for another server to answer the next call after the first server was killed. Usually it takes at most a quarter of a second, plus the
/// time that the server takes to start.
const SERVED_WITHIN: Duration = Duration::from_secs(2);

/// Returns the median. A busy machine is slow at times; a guard that waits for something is slow each time.
fn median(mut spans: [Duration; 5]) -> Duration {
    spans.sort();
    spans[2]
}

/// Kills the server of a guard five times, each time with a call in flight.
fn kill_five_times(name: &str, script: &str) {
    let diary = Diary::new(name);
    let path = diary.0.display().to_string();
    let server = ["sh", "-c", script, EVERLINK, &path];
    let mut host = Host::start(Stdio::null(), &[], &server);
    host.handshake();
    let (mut failed, mut served) = ([Duration::ZERO; 5], [Duration::ZERO; 5]);
    for turn in 0..5 {
        let id = 10 * (turn as u64 + 1);
        host.send_call(id, "pid", &json!({}));
        let pid = host.receive(id)["result"]["content"][0]["text"].clone();
        let pid = pid.as_str().and_then(|pid| pid.parse().ok());
        let pid = pid.and_then(Pid::from_raw).expect("a process");
        host.send_call(id + 1, "sleep", &json!({"ms": 600_000, "number": id}));
        wait_until("the call runs", || diary.has(id));
        let since = Instant::now();
        kill_process(pid, Signal::KILL).expect("the process exists");
        let lost = host.receive(id + 1);
        failed[turn] = since.elapsed();
        let why = lost["result"]["content"][0]["text"].as_str();
        assert!(why.is_some_and(|why| why.contains("signal 9")), "{lost}");
        host.send_call(id + 2, "echo", &json!({"message": "hello"}));
        let reply = host.receive(id + 2);
        served[turn] = since.elapsed();
        assert_eq!(reply["result"]["content"][0]["text"], "hello", "{reply}");
    }
    assert!(median(failed) < FAILS_WITHIN, "{failed:?}");
    assert!(median(served) < SERVED_WITHIN, "{served:?}");
}

#[test]
fn call_in_flight_fails_within_1_s_and_the_next_is_served_within_2_s_of_a_kill() {
    kill_five_times("soon", r#"exec "$0" demo-server --diary "$1""#);
}

/// The output of the server does not end with the server, because another process holds its pipes.
#[test]
fn kill_is_seen_within_the_same_limits_while_another_process_holds_the_pipes() {
    let script = r#"sleep 600 & exec "$0" demo-server --diary "$1""#;
    kill_five_times("soon-held", script);
}
