//! Many links to as many children in one process: `many [LINKS] [SECONDS] [ADAPTER]`, by default 1,000 links for a minute through `stdio`.
//!
//! Each link calls a tool now and then, and each second one child in a hundred is killed. What the process holds is counted before, when all
//! links are ready, in the middle, at the end, and when all are shut down. It is a failure if anything is left then, or if memory grows
//! between the middle and the end. Build it with `cargo build --release --package ordeal --bins`.

use std::collections::BTreeMap;
use std::env::args;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::task::{Context, Poll, Waker};
use std::thread::sleep;
use std::time::{Duration, Instant};

use everlink::Config;
use everlink::client::FailureKind;
use everlink_handle::{Call, CallError, Link, ToolResult};
use ordeal::{Adapter, Census, Connect, Family, resident_bytes, settles};
use rustix::process::{Resource, Signal, getrlimit, setrlimit};
use serde_json::json;

/// How long it is slept between two looks at all links.
const TICK: Duration = Duration::from_millis(20);
/// In how many ticks each link makes one call, on average.
const TICKS_PER_CALL: u64 = 100;
/// How many children there are for each that is killed in a second.
const CHILDREN_PER_KILL: usize = 100;
/// How much memory may grow from the middle to the end, in parts of a hundred.
const GROWTH: u64 = 5;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut words = args().skip(1);
    let links = words.next().map_or(Ok(1_000), |word| word.parse())?;
    let seconds = words.next().map_or(Ok(60), |word| word.parse())?;
    let name = words.next().unwrap_or("stdio".into());
    let adapter = Adapter::named(&name).ok_or("there is no such adapter")?;
    allow_many_descriptors()?;
    println!("{links} links through {name} for {seconds} s");

    adapter.run(|_| ());
    let mut records = vec![Record::take("before")];
    let mut tally = Tally::default();
    adapter.run(|connect| {
        tally = live(connect, links, Duration::from_secs(seconds), &mut records);
    });
    let is_as_before = |now: &Record| now.counts_as(&records[0]);
    let is_clean = settles(|| is_as_before(&Record::take("after")));
    records.push(Record::take("after"));

    Record::print(&records, links);
    tally.print();
    let grows = records[4].anonymous > records[3].anonymous * (100 + GROWTH) / 100;
    if grows {
        println!("memory grew by more than {GROWTH} % from the middle to the end");
    }
    if !is_clean {
        println!("something is left: {}", Census::take());
    }
    Ok(if is_clean && !grows {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs all links for so long, and shuts them down.
fn live(connect: &Connect<'_>, links: usize, span: Duration, records: &mut Vec<Record>) -> Tally {
    let family = Family::new();
    let open = || {
        let config = Config::child("many", "1.0");
        connect(family.rascal(&[]), config).expect("there is room for a link")
    };
    let links: Vec<Link> = (0..links).map(|_| open()).collect();
    let all_ready: Vec<_> = links.iter().map(Link::ready).collect();
    for ready in all_ready {
        let ready = ready.wait().expect("the link is driven");
        ready.expect("the server is there");
    }
    records.push(Record::take("ready"));

    // Everybody has room for the largest reply from here on, so that what grows later is a leak.
    let floods: Vec<_> = links.iter().map(flood).collect();
    for flood in floods {
        flood.wait().expect("it serves");
    }
    records.push(Record::take("used"));

    let mut tally = Tally::default();
    let mut chance = Chance(0x5eed);
    let mut under_way: Vec<Option<Call<ToolResult>>> = links.iter().map(|_| None).collect();
    let (start, mut last_kill) = (Instant::now(), Instant::now());
    while start.elapsed() < span {
        for (link, call) in links.iter().zip(&mut under_way) {
            tally.look(call);
            if call.is_none() && chance.one_in(TICKS_PER_CALL) {
                *call = Some(some_call(link, &mut chance));
                tally.calls += 1;
            }
        }
        if last_kill.elapsed() >= Duration::from_secs(1) {
            last_kill = Instant::now();
            tally.deaths += kill_some(&family, links.len() / CHILDREN_PER_KILL, &mut chance);
        }
        if records.len() == 3 && start.elapsed() >= span / 2 {
            records.push(Record::take("middle"));
        }
        sleep(TICK);
    }
    records.push(Record::take("end"));

    for call in under_way.into_iter().flatten() {
        tally.note(call.wait());
    }
    let closing: Vec<_> = links.iter().map(Link::shutdown).collect();
    for closed in closing {
        closed.wait().expect("the link is driven");
    }
    tally
}

/// Mostly something small; now and then something that takes a while, or much.
fn some_call(link: &Link, chance: &mut Chance) -> Call<ToolResult> {
    match chance.below(10) {
        0 => link.call_tool("sleep", json!({"ms": 500})),
        1 => flood(link),
        _ => link.call_tool("echo", json!({"text": "are you there?"})),
    }
}

fn flood(link: &Link) -> Call<ToolResult> {
    link.call_tool("flood", json!({"bytes": 32 << 10}))
}

fn kill_some(family: &Family, kills: usize, chance: &mut Chance) -> usize {
    let children = family.members();
    for _ in 0..kills.min(children.len()) {
        children[chance.below(children.len())].signal(Signal::KILL);
    }
    kills
}

/// What came of the calls.
#[derive(Default)]
struct Tally {
    calls: usize,
    replies: usize,
    deaths: usize,
    failures: BTreeMap<String, usize>,
}

impl Tally {
    /// Notes the outcome of a call, if it has one by now.
    fn look(&mut self, slot: &mut Option<Call<ToolResult>>) {
        let Some(call) = slot else { return };
        let mut cx = Context::from_waker(Waker::noop());
        if let Poll::Ready(outcome) = Pin::new(call).poll(&mut cx) {
            *slot = None;
            self.note(outcome);
        }
    }

    fn note(&mut self, outcome: Result<ToolResult, CallError>) {
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

/// What the process holds at one moment.
struct Record {
    when: &'static str,
    children: usize,
    threads: usize,
    descriptors: usize,
    resident: u64,
    /// Heap and stacks.
    anonymous: u64,
}

impl Record {
    fn take(when: &'static str) -> Record {
        let census = Census::take();
        let (resident, anonymous) = resident_bytes();
        // The one thread that starts children lives as long as the process.
        let threads = census
            .threads
            .iter()
            .filter(|name| *name != "everlink-spawn");
        Record {
            when,
            children: census.children.len(),
            threads: threads.count(),
            descriptors: census.descriptors.len(),
            resident,
            anonymous,
        }
    }

    fn counts_as(&self, other: &Record) -> bool {
        let counts = |record: &Record| (record.children, record.threads, record.descriptors);
        counts(self) == counts(other)
    }

    fn print(records: &[Record], links: usize) {
        println!(
            "{:8}{:>10}{:>10}{:>12}{:>14}{:>18}",
            "", "children", "threads", "descriptors", "resident kB", "heap, stacks kB"
        );
        for it in records {
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
        let [before, ready, ..] = records else { return };
        let per_link = |of: fn(&Record) -> u64| (of(ready) - of(before)) as f64 / links as f64;
        println!(
            "per link: {:.2} threads, {:.2} descriptors, {:.1} kB resident, {:.1} kB of heap and stacks",
            per_link(|it| it.threads as u64),
            per_link(|it| it.descriptors as u64),
            per_link(|it| it.resident) / 1024.0,
            per_link(|it| it.anonymous) / 1024.0,
        );
    }
}

/// Numbers that look random, the same ones each time.
struct Chance(u64);

impl Chance {
    fn one_in(&mut self, times: u64) -> bool {
        self.draw() % times == 0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.draw() % limit.max(1) as u64) as usize
    }

    fn draw(&mut self) -> u64 {
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
