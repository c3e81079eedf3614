//! How soon everybody knows of a death: `obituary [TIMES] [CALLS] [ADAPTER]`, by default 200 deaths with 100 calls in flight, for each adapter.
//!
//! A child is killed with `SIGKILL` while calls are in flight. The clock starts before the signal is sent, so the time in which the system
//! takes the process apart is in the figures; it is read when the last call is settled, and again when a call that is made then has the
//! reply of a new child. A measurement, not a test: build it with `cargo build --release --package ordeal --bins`.

use std::env::args;
use std::error::Error;
use std::time::{Duration, Instant};

use everlink::Config;
use everlink_handle::{CallError, Link};
use ordeal::{ADAPTERS, Adapter, Connect, Family};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// The pause before a new child is started, which is the policy's and not the adapter's.
const PAUSE: Duration = Duration::from_millis(10);

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = args().skip(1);
    let times = words.next().map_or(Ok(200), |word| word.parse())?;
    let calls = words.next().map_or(Ok(100), |word| word.parse())?;
    let adapters = match words.next() {
        Some(name) => vec![Adapter::named(&name).ok_or("there is no such adapter")?],
        None => ADAPTERS.to_vec(),
    };
    println!(
        "{times} deaths by SIGKILL, each with {calls} calls in flight; the clock starts before the signal"
    );
    println!("the next child is started after a pause of {PAUSE:?} at most, which is the policy's");
    println!("{:46}{:>10}{:>10}{:>10}", "", "median", "p99", "max");
    for adapter in adapters {
        let mut deaths = Vec::new();
        adapter.run(|connect| deaths = mourn(connect, times, calls));
        let row = |what: &str, of: fn(&Death) -> Duration| {
            let mut spans: Vec<Duration> = deaths.iter().map(of).collect();
            spans.sort_unstable();
            let at = |percent: usize| spans[(spans.len() - 1) * percent / 100].as_secs_f64() * 1e3;
            let (median, p99, max) = (at(50), at(99), at(100));
            println!(
                "{:8}{what:38}{median:>7.2} ms{p99:>7.2} ms{max:>7.2} ms",
                adapter.name
            );
        };
        row("from the kill to the last call settled", |death| {
            death.settled
        });
        row("from there to the reply of a new child", |death| {
            death.revived
        });
        let silent: usize = deaths.iter().map(|death| death.silent).sum();
        println!(
            "{:8}texts without the signal or the last words: {silent} of {}",
            adapter.name,
            times * calls
        );
    }
    Ok(())
}

struct Death {
    settled: Duration,
    revived: Duration,
    /// How many failures did not tell how the server ended.
    silent: usize,
}

fn mourn(connect: &Connect<'_>, times: usize, calls: usize) -> Vec<Death> {
    let family = Family::new();
    let mut config = Config::child("obituary", "1.0");
    config.policy.retry.first = PAUSE;
    config.policy.retry.floor = Duration::ZERO;
    // Each life is good enough to be mourned alone.
    config.policy.retry.stable_after = Duration::ZERO;
    let rascal = family.rascal(&["words=these are my last words\n"]);
    let link = connect(rascal, config).expect("there is room for a link");
    let deaths = (0..times).map(|_| one_death(&link, calls)).collect();
    link.shutdown().wait().expect("the link is driven");
    deaths
}

fn one_death(link: &Link, calls: usize) -> Death {
    let hanging: Vec<_> = (0..calls)
        .map(|_| link.call_tool("hang", json!({})))
        .collect();
    // It reads in order: those before are with it when it answers this.
    let child = pid(link);

    let start = Instant::now();
    kill_process(child, Signal::KILL).expect("it is ours");
    let failures: Vec<_> = hanging.into_iter().map(|call| call.wait()).collect();
    let settled = start.elapsed();
    let next = pid(link);
    let revived = start.elapsed() - settled;

    assert_ne!(child, next, "the dead do not answer");
    let is_silent = |failure: &Result<_, CallError>| {
        let text = failure
            .as_ref()
            .map_or_else(ToString::to_string, |_| String::new());
        !(text.contains("signal 9") && text.contains("these are my last words"))
    };
    Death {
        settled,
        revived,
        silent: failures
            .into_iter()
            .filter(|failure| is_silent(failure))
            .count(),
    }
}

fn pid(link: &Link) -> Pid {
    let said = link
        .call_tool("pid", json!({}))
        .wait()
        .expect("it is alive");
    let pid = said.text().parse().ok().and_then(Pid::from_raw);
    pid.expect("it knows its number")
}
