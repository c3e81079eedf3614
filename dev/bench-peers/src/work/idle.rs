//! Many connections in one process that are ready and do nothing: what each holds, and how often they wake the process.
//!
//! `10,000 pairs`: both ends in the same process, without any system call; `everlink` is its two machines, `rmcp` two services with a pipe of
//! tokio between them. `500 children`: clients alone, each of a process that follows the same script. Heap is what was asked for and
//! not given back; wake-ups are the context switches of all threads in five seconds, or, where nothing runs, how often a machine
//! wants to be told the time in them.

use std::fs;
use std::time::Duration;

use alloc_count::live;
use everlink::Instant;

use super::{Effort, in_eras};
use crate::machine::Place;
use crate::peers::everlink::{InMemory, Scripted, child};
use crate::peers::{rmcp, runtime};
use crate::report::{Sample, Task, rounds};

const PAIRS: &str = "10,000 pairs";
const CHILDREN: &str = "500 children";
/// How long nothing is done.
const SPAN: Duration = Duration::from_secs(5);

pub(crate) fn run(_: Effort) {
    // Nothing here depends on speed, so one round says it.
    rounds(1, &in_eras("idle", PAIRS, &["everlink", "rmcp"], 10_000));
    rounds(
        1,
        &in_eras("idle", CHILDREN, &["everlink-tokio", "rmcp"], 500),
    );
}

pub(crate) fn sample(task: &Task) -> Sample {
    match (&*task.case, &*task.who) {
        (PAIRS, "everlink") => machines(task),
        (PAIRS, "rmcp") => runtime().block_on(async {
            let connect = async || rmcp::in_memory(task.era).await;
            tasks(task.size, "pair", connect).await
        }),
        (CHILDREN, "everlink-tokio") => runtime().block_on(async {
            let connect = async || {
                let command = Place::of("").server("script");
                let link = everlink_tokio::child::connect(command, child(task.era));
                let link = link.expect("there is room for a link");
                let ready = link.ready().await.expect("the link is driven");
                ready.expect("the script agrees");
                link
            };
            tasks(task.size, "client", connect).await
        }),
        (CHILDREN, "rmcp") => runtime().block_on(async {
            let server = || Place::of("").server("script");
            let connect = async || rmcp::over_child(server(), task.era).await;
            tasks(task.size, "client", connect).await
        }),
        (case, who) => unreachable!("{who} takes no part in {case}"),
    }
}

fn machines(task: &Task) -> Sample {
    let holding = Holding::now();
    let pairs: Vec<_> = (0..task.size)
        .map(|_| InMemory::new(task.era).into_ends())
        .collect();
    let (heap_per_pair, rss_per_pair) = holding.since(task.size);
    let soon = Instant::ZERO + SPAN;
    let ends = pairs
        .iter()
        .flat_map(|(client, server)| [client.poll_timeout(), server.poll_timeout()]);
    let wakeups = ends.flatten().filter(|due| due.at <= soon).count();
    drop(pairs);

    let mut buf = Vec::with_capacity(4 << 10);
    let holding = Holding::now();
    let scripted = |_| Scripted::new(child(task.era), &mut buf).client;
    let clients: Vec<_> = (0..task.size).map(scripted).collect();
    let (heap_per_client, _) = holding.since(task.size);
    drop(clients);
    Sample::default()
        .with("heap per client", heap_per_client)
        .with("heap per pair", heap_per_pair)
        .with("rss per pair", rss_per_pair)
        .with("threads", threads() as f64)
        .with("wakeups", wakeups as f64)
}

async fn tasks<T>(many: usize, what: &str, connect: impl AsyncFn() -> T) -> Sample {
    // The first one brings with it what all share.
    let _first = connect().await;
    let holding = Holding::now();
    let mut all = Vec::with_capacity(many);
    for _ in 0..many {
        all.push(connect().await);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (heap, rss) = holding.since(many);
    let before = switches();
    tokio::time::sleep(SPAN).await;
    let wakeups = switches() - before;
    Sample::default()
        .with(&format!("heap per {what}"), heap)
        .with(&format!("rss per {what}"), rss)
        .with("threads", threads() as f64)
        .with("wakeups", wakeups as f64)
}

/// What the process holds.
struct Holding {
    heap: isize,
    rss: u64,
}

impl Holding {
    fn now() -> Holding {
        let statm = fs::read_to_string("/proc/self/statm").expect("there is procfs");
        let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
        Holding {
            heap: live(),
            rss: pages.map_or(0, |pages: u64| pages * 4096),
        }
    }

    /// Heap and resident memory for each of so many that came since.
    fn since(&self, many: usize) -> (f64, f64) {
        let now = Holding::now();
        let heap = (now.heap - self.heap) as f64 / many as f64;
        let rss = (now.rss as f64 - self.rss as f64) / many as f64;
        (heap, rss)
    }
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Context switches of all threads that are there.
fn switches() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").expect("there is procfs");
    let texts = tasks
        .flatten()
        .map(|task| fs::read_to_string(task.path().join("status")));
    texts
        .flatten()
        .flat_map(|text| {
            let counts = text
                .lines()
                .filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
            counts
                .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
                .collect::<Vec<_>>()
        })
        .sum()
}
