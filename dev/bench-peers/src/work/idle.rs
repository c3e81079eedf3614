//! Measures many idle connections in one process: the memory of each, and how often they wake the process.
//!
//! `10,000 pairs`: both ends in the same process, without system calls. `everlink` is its two machines, and `rmcp` two services with a pipe
//! of tokio between them. `500 children`: only clients, each with a child process that runs the same script. Heap is the number of
//! allocated bytes that were not freed. Wake-ups are the context switches of all threads in five seconds. For the machines, which have no
//! thread, they are the timeouts due in that time.

use std::fs;
use std::time::Duration;

use alloc_count::live;
use everlink::Instant;

use super::{Effort, in_eras};
use crate::machine::Placement;
use crate::peers::everlink::{InMemory, Scripted, child};
use crate::peers::{rmcp, runtime};
use crate::report::{Sample, Task, rounds};

const PAIRS: &str = "10,000 pairs";
const CHILDREN: &str = "500 children";
/// The idle time.
const SPAN: Duration = Duration::from_secs(5);

pub(crate) fn run(_: Effort) {
    // The result does not depend on speed, so one round is enough.
    rounds(1, &in_eras("idle", PAIRS, &["everlink", "rmcp"], 10_000));
    rounds(
        1,
        &in_eras("idle", CHILDREN, &["everlink-tokio", "rmcp"], 500),
    );
}

pub(crate) fn sample(task: &Task) -> Sample {
    match (&*task.case, &*task.who) {
        (PAIRS, "everlink") => sample_machines(task),
        (PAIRS, "rmcp") => runtime().block_on(async {
            let connect = async || rmcp::in_memory(task.era).await;
            sample_runtime(task.size, "pair", connect).await
        }),
        (CHILDREN, "everlink-tokio") => runtime().block_on(async {
            let connect = async || {
                let command = Placement::of("").server("script");
                let link = everlink_tokio::child::connect(command, child(task.era));
                let link = link.expect("a link can be opened");
                let ready = link.ready().await.expect("the link is driven");
                ready.expect("the script answers");
                link
            };
            sample_runtime(task.size, "client", connect).await
        }),
        (CHILDREN, "rmcp") => runtime().block_on(async {
            let server = || Placement::of("").server("script");
            let connect = async || rmcp::over_child(server(), task.era).await;
            sample_runtime(task.size, "client", connect).await
        }),
        (case, who) => unreachable!("{who} takes no part in {case}"),
    }
}

fn sample_machines(task: &Task) -> Sample {
    let before = Memory::now();
    let pairs: Vec<_> = (0..task.size)
        .map(|_| InMemory::new(task.era).into_ends())
        .collect();
    let (heap_per_pair, rss_per_pair) = before.since(task.size);
    let idle_end = Instant::ZERO + SPAN;
    let ends = pairs
        .iter()
        .flat_map(|(client, server)| [client.poll_timeout(), server.poll_timeout()]);
    let wakeups = ends.flatten().filter(|due| due.at <= idle_end).count();
    drop(pairs);

    let mut buf = Vec::with_capacity(4 << 10);
    let before = Memory::now();
    let scripted = |_| Scripted::new(child(task.era), &mut buf).client;
    let clients: Vec<_> = (0..task.size).map(scripted).collect();
    let (heap_per_client, _) = before.since(task.size);
    drop(clients);
    Sample::default()
        .with("heap per client", heap_per_client)
        .with("heap per pair", heap_per_pair)
        .with("rss per pair", rss_per_pair)
        .with("threads", threads() as f64)
        .with("wakeups", wakeups as f64)
}

async fn sample_runtime<T>(count: usize, item: &str, connect: impl AsyncFn() -> T) -> Sample {
    // The first connection allocates what all share.
    let _first = connect().await;
    let before = Memory::now();
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        all.push(connect().await);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (heap, rss) = before.since(count);
    let before = context_switches();
    tokio::time::sleep(SPAN).await;
    let wakeups = context_switches() - before;
    Sample::default()
        .with(&format!("heap per {item}"), heap)
        .with(&format!("rss per {item}"), rss)
        .with("threads", threads() as f64)
        .with("wakeups", wakeups as f64)
}

/// The memory of the process.
struct Memory {
    heap: isize,
    rss: u64,
}

impl Memory {
    fn now() -> Memory {
        let statm = fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
        let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
        Memory {
            heap: live(),
            rss: pages.map_or(0, |pages: u64| pages * 4096),
        }
    }

    /// The heap and resident memory of each of `count` items created since.
    fn since(&self, count: usize) -> (f64, f64) {
        let now = Memory::now();
        let heap = (now.heap - self.heap) as f64 / count as f64;
        let rss = (now.rss as f64 - self.rss as f64) / count as f64;
        (heap, rss)
    }
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// The context switches of all current threads.
fn context_switches() -> u64 {
    let threads = fs::read_dir("/proc/self/task").expect("/proc is mounted");
    let texts = threads
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
