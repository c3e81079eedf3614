//! Measures how soon callers learn of a child's death: `death-latency [TIMES] [CALLS] [ADAPTER]`; defaults: 200 deaths, 100 calls in
//! flight, every adapter.
//!
//! The program kills a child with `SIGKILL` while calls are in flight. The clock starts before the signal, so the figures include the time
//! in which the system ends the process. It stops when the last call is settled, and again when a new child answers a call. This is no
//! test: build it with `cargo build --release --package driver-tests --bins`.

use std::env::args;
use std::error::Error;
use std::time::{Duration, Instant};

use driver_tests::{ADAPTERS, find_adapter};
use everlink::Config;
use everlink_driver_tests::{Connect, Kit, ProcessSet};
use everlink_handle::{CallError, Link};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// The pause before a new child is spawned. The policy sets it, not the adapter.
const PAUSE: Duration = Duration::from_millis(10);

fn main() -> Result<(), Box<dyn Error>> {
    // Here the children of this program become bad children.
    let _ = Kit::new(ADAPTERS);
    let mut arguments = args().skip(1);
    let times = arguments
        .next()
        .map_or(Ok(200), |argument| argument.parse())?;
    let calls = arguments
        .next()
        .map_or(Ok(100), |argument| argument.parse())?;
    let adapters = match arguments.next() {
        Some(name) => vec![find_adapter(&name).ok_or("there is no such adapter")?],
        None => ADAPTERS.to_vec(),
    };
    println!(
        "{times} deaths by SIGKILL, each with {calls} calls in flight; the clock starts before the signal"
    );
    println!("the next child is started after a pause of {PAUSE:?} at most, which is the policy's");
    println!("{:46}{:>10}{:>10}{:>10}", "", "median", "p99", "max");
    for adapter in adapters {
        let mut deaths = Vec::new();
        adapter.run(&mut |connect| deaths = measure_deaths(connect, times, calls));
        let row = |what: &str, of: fn(&Death) -> Duration| {
            let mut spans: Vec<Duration> = deaths.iter().map(of).collect();
            spans.sort_unstable();
            let at = |percent: usize| spans[(spans.len() - 1) * percent / 100].as_secs_f64() * 1e3;
            let (median, p99, max) = (at(50), at(99), at(100));
            println!(
                "{:8}{what:38}{median:>7.2} ms{p99:>7.2} ms{max:>7.2} ms",
                adapter.name()
            );
        };
        row("from the kill to the last call settled", |death| {
            death.settled
        });
        row("from there to the reply of a new child", |death| {
            death.revived
        });
        let uninformative: usize = deaths.iter().map(|death| death.uninformative).sum();
        println!(
            "{:8}texts without the signal or the last words: {uninformative} of {}",
            adapter.name(),
            times * calls
        );
    }
    Ok(())
}

struct Death {
    settled: Duration,
    revived: Duration,
    /// The number of failures whose text lacks the signal or the last lines of stderr.
    uninformative: usize,
}

fn measure_deaths(connect: &Connect<'_>, times: usize, calls: usize) -> Vec<Death> {
    let processes = ProcessSet::new();
    let mut config = Config::child("death-latency", "1.0");
    config.policy.retry.first = PAUSE;
    config.policy.retry.floor = Duration::ZERO;
    // Every epoch restores the budget, so the link is never parked.
    config.policy.retry.stable_after = Duration::ZERO;
    let bad_child = processes.bad_child(&["stderr=these are my last words\n"]);
    let link = connect(bad_child, config).expect("a link can be opened");
    let deaths = (0..times).map(|_| measure_death(&link, calls)).collect();
    link.shutdown().wait().expect("the link is driven");
    deaths
}

fn measure_death(link: &Link, calls: usize) -> Death {
    let calls_in_flight: Vec<_> = (0..calls)
        .map(|_| link.call_tool("hang", json!({})).start())
        .collect();
    // The child reads in order: it has read the calls before when it answers this one.
    let child = pid(link);

    let start = Instant::now();
    kill_process(child, Signal::KILL).expect("the child is ours to kill");
    let failures: Vec<_> = calls_in_flight
        .into_iter()
        .map(|call| call.wait())
        .collect();
    let settled = start.elapsed();
    let next = pid(link);
    let revived = start.elapsed() - settled;

    assert_ne!(child, next, "a new child answers");
    let is_uninformative = |failure: &Result<_, CallError>| {
        let text = failure
            .as_ref()
            .map_or_else(ToString::to_string, |_| String::new());
        !(text.contains("signal 9") && text.contains("these are my last words"))
    };
    Death {
        settled,
        revived,
        uninformative: failures
            .into_iter()
            .filter(|failure| is_uninformative(failure))
            .count(),
    }
}

fn pid(link: &Link) -> Pid {
    let reply = link
        .call_tool("pid", json!({}))
        .wait()
        .expect("the child answers");
    let pid = reply.text().parse().ok().and_then(Pid::from_raw);
    pid.expect("the reply is a process id")
}
