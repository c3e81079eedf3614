//! Runs many links to as many children in one process: `many-links [LINKS] [SECONDS] [ADAPTER]`; defaults: 1,000 links, 60 s, `stdio`.
//!
//! Each link calls a tool every 2 s on average, and each second 1 % of the children are killed. The program counts its resources before,
//! when all links are ready, in the middle, at the end, and after the shutdown. It fails if a resource is left, or if memory grows between
//! the middle and the end. Build it with `cargo build --release --package driver-tests --bins`.

use std::collections::BTreeMap;
use std::env::args;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::task::{Context, Poll, Waker};
use std::thread::sleep;
use std::time::{Duration, Instant};

use driver_tests::{ADAPTERS, find_adapter};
use everlink::Config;
use everlink::client::FailureKind;
use everlink_driver_tests::{Connect, Kit, ProcessSet, Resources, resident_bytes, wait_until};
use everlink_handle::{Call, CallError, Link, ToolResult};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;

/// The sleep between two passes over all links.
const TICK: Duration = Duration::from_millis(20);
/// The average number of ticks between two calls of a link.
const TICKS_PER_CALL: u64 = 100;
/// The number of children for each one that is killed per second.
const CHILDREN_PER_KILL: usize = 100;
/// The limit for the growth of memory from the middle to the end, in percent.
const GROWTH: u64 = 5;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    // Here the children of this program become bad children.
    let _ = Kit::new(ADAPTERS);
    let mut arguments = args().skip(1);
    let links = arguments
        .next()
        .map_or(Ok(1_000), |argument| argument.parse())?;
    let seconds = arguments
        .next()
        .map_or(Ok(60), |argument| argument.parse())?;
    let name = arguments.next().unwrap_or("stdio".into());
    let adapter = find_adapter(&name).ok_or("there is no such adapter")?;
    allow_many_descriptors()?;
    println!("{links} links through {name} for {seconds} s");

    adapter.run(&mut |_| ());
    let mut samples = vec![Sample::take("before")];
    let mut outcomes = Outcomes::default();
    adapter.run(&mut |connect| {
        outcomes = run_links(connect, links, Duration::from_secs(seconds), &mut samples);
    });
    let is_like_before = |now: &Sample| now.has_same_counts(&samples[0]);
    let is_clean = wait_until(|| is_like_before(&Sample::take("after")));
    samples.push(Sample::take("after"));

    Sample::print(&samples, links);
    outcomes.print();
    let grows = samples[4].anonymous > samples[3].anonymous * (100 + GROWTH) / 100;
    if grows {
        println!("memory grew by more than {GROWTH} % from the middle to the end");
    }
    if !is_clean {
        println!("something is left: {}", Resources::snapshot());
    }
    Ok(if is_clean && !grows {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs all links for the given time, then shuts them down.
fn run_links(
    connect: &Connect<'_>,
    links: usize,
    span: Duration,
    samples: &mut Vec<Sample>,
) -> Outcomes {
    let processes = ProcessSet::new();
    let open = || {
        let config = Config::child("many-links", "1.0");
        connect(processes.bad_child(&[]), config).expect("a link can be opened")
    };
    let links: Vec<Link> = (0..links).map(|_| open()).collect();
    let all_ready: Vec<_> = links.iter().map(Link::ready).collect();
    for ready in all_ready {
        ready.wait().expect("the server is there");
    }
    samples.push(Sample::take("ready"));

    // After this, every link has buffers for the largest reply, so later growth is a leak.
    let floods: Vec<_> = links.iter().map(flood).collect();
    for flood in floods {
        flood.wait().expect("it serves");
    }
    samples.push(Sample::take("used"));

    let mut outcomes = Outcomes::default();
    let mut rng = Rng(0x5eed);
    let mut in_flight: Vec<Option<Call<ToolResult>>> = links.iter().map(|_| None).collect();
    let (start, mut last_kill) = (Instant::now(), Instant::now());
    while start.elapsed() < span {
        for (link, call) in links.iter().zip(&mut in_flight) {
            outcomes.record_if_done(call);
            if call.is_none() && rng.one_in(TICKS_PER_CALL) {
                *call = Some(random_call(link, &mut rng));
                outcomes.calls += 1;
            }
        }
        if last_kill.elapsed() >= Duration::from_secs(1) {
            last_kill = Instant::now();
            outcomes.deaths += kill_some(&processes, links.len() / CHILDREN_PER_KILL, &mut rng);
        }
        if samples.len() == 3 && start.elapsed() >= span / 2 {
            samples.push(Sample::take("middle"));
        }
        sleep(TICK);
    }
    samples.push(Sample::take("end"));

    for call in in_flight.into_iter().flatten() {
        outcomes.record(call.wait());
    }
    let closing: Vec<_> = links.iter().map(Link::shutdown).collect();
    for closed in closing {
        closed.wait().expect("the link is driven");
    }
    outcomes
}

/// Mostly a small call; one in five takes 500 ms or returns 32 KiB.
fn random_call(link: &Link, rng: &mut Rng) -> Call<ToolResult> {
    match rng.below(10) {
        0 => link.call_tool("sleep", json!({"ms": 500})).start(),
        1 => flood(link),
        _ => link
            .call_tool("echo", json!({"text": "are you there?"}))
            .start(),
    }
}

fn flood(link: &Link) -> Call<ToolResult> {
    link.call_tool("flood", json!({"bytes": 32 << 10})).start()
}

fn kill_some(processes: &ProcessSet, kills: usize, rng: &mut Rng) -> usize {
    let children = processes.alive();
    for _ in 0..kills.min(children.len()) {
        children[rng.below(children.len())].kill();
    }
    kills
}

/// Counts of calls, replies, kills and failures.
#[derive(Default)]
struct Outcomes {
    calls: usize,
    replies: usize,
    deaths: usize,
    failures: BTreeMap<String, usize>,
}

impl Outcomes {
    /// Records the outcome of a call that has ended.
    fn record_if_done(&mut self, slot: &mut Option<Call<ToolResult>>) {
        let Some(call) = slot else { return };
        let mut cx = Context::from_waker(Waker::noop());
        if let Poll::Ready(outcome) = Pin::new(call).poll(&mut cx) {
            *slot = None;
            self.record(outcome);
        }
    }

    fn record(&mut self, outcome: Result<ToolResult, CallError>) {
        let kind = match outcome {
            Ok(_) => {
                self.replies += 1;
                return;
            }
            Err(CallError::Failed(failure)) => match failure.kind {
                FailureKind::Lost => "the server ended".into(),
                other => other.to_string(),
            },
            Err(other) => other.to_string(),
        };
        *self.failures.entry(kind).or_default() += 1;
    }

    fn print(&self) {
        println!(
            "{} calls, {} replies, {} children killed",
            self.calls, self.replies, self.deaths
        );
        for (kind, count) in &self.failures {
            println!("{count} failures: {kind}");
        }
    }
}

/// The resources of the process at one moment.
struct Sample {
    when: &'static str,
    children: usize,
    threads: usize,
    descriptors: usize,
    resident: u64,
    /// Bytes of heap and stacks.
    anonymous: u64,
}

impl Sample {
    fn take(when: &'static str) -> Sample {
        let resources = Resources::snapshot();
        let (resident, anonymous) = resident_bytes();
        // The thread that spawns children lives as long as the process.
        let threads = resources
            .threads
            .iter()
            .filter(|name| *name != "everlink-spawn");
        Sample {
            when,
            children: resources.children.len(),
            threads: threads.count(),
            descriptors: resources.descriptors.len(),
            resident,
            anonymous,
        }
    }

    fn has_same_counts(&self, other: &Sample) -> bool {
        let counts = |sample: &Sample| (sample.children, sample.threads, sample.descriptors);
        counts(self) == counts(other)
    }

    fn print(samples: &[Sample], links: usize) {
        println!(
            "{:8}{:>10}{:>10}{:>12}{:>14}{:>18}",
            "", "children", "threads", "descriptors", "resident kB", "heap, stacks kB"
        );
        for it in samples {
            println!(
                "{:8}{:>10}{:>10}{:>12}{:>14}{:>18}",
                it.when,
                it.children,
                it.threads,
                it.descriptors,
                it.resident >> 10,
                it.anonymous >> 10
            );
        }
        let [before, ready, ..] = samples else { return };
        let per_link = |of: fn(&Sample) -> u64| (of(ready) - of(before)) as f64 / links as f64;
        println!(
            "per link: {:.2} threads, {:.2} descriptors, {:.1} kB resident, {:.1} kB of heap and stacks",
            per_link(|it| it.threads as u64),
            per_link(|it| it.descriptors as u64),
            per_link(|it| it.resident) / 1024.0,
            per_link(|it| it.anonymous) / 1024.0,
        );
    }
}

/// A generator of pseudo-random numbers with a fixed seed.
struct Rng(u64);

impl Rng {
    fn one_in(&mut self, times: u64) -> bool {
        self.next_u64() % times == 0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next_u64() % limit.max(1) as u64) as usize
    }

    fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn allow_many_descriptors() -> Result<(), rustix::io::Errno> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)
}
