//! The works. Each lists its samples, which run in rounds, and takes one of them.

pub(crate) mod death;
pub(crate) mod decode;
pub(crate) mod http;
pub(crate) mod idle;
pub(crate) mod in_process;
pub(crate) mod proxy;
pub(crate) mod stdio;

use std::time::Instant;

use crate::echo;
use crate::machine::Cpu;
use crate::peers::Client;
use crate::report::{Era, Sample, Task};

/// The size of a run.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// The percentage of the calls of a full run.
    pub(crate) percent: usize,
}

impl Effort {
    pub(crate) fn of(self, calls: usize) -> usize {
        calls * self.percent / 100
    }

    /// The same work in shorter samples and more rounds, for wall-clock times. If the speed of a machine varies, the median of a few rounds
    /// says little.
    pub(crate) const fn with_more_rounds(self) -> Effort {
        Effort {
            rounds: 3 * self.rounds,
            percent: self.percent / 3,
        }
    }
}

/// The cores of the two ends of a call.
pub(crate) const CORES: [&str; 2] = ["one core", "two cores"];
/// The number of calls in flight for concurrent calls.
pub(crate) const IN_FLIGHT: usize = 64;
/// The length of a short text.
pub(crate) const SHORT: usize = 100;

/// The tasks for each of these: a library that speaks the protocol has one for each era.
pub(crate) fn in_eras(work: &str, case: &str, libraries: &[&str], size: usize) -> Vec<Task> {
    let eras = |who: &str| match who {
        "floor" | "raw" | "serde_json" => vec![Era::Both],
        _ => vec![Era::Legacy, Era::Modern],
    };
    let tasks = libraries.iter().flat_map(|who| {
        let task = move |era| Task::new(work, case, era, who, size);
        eras(who).into_iter().map(task)
    });
    tasks.collect()
}

/// The cost of a call through this client: first sequential, then concurrent.
pub(crate) fn calls(client: &mut dyn Client, calls: usize, concurrent: usize) -> Sample {
    let text = echo::text(SHORT);
    client.sequential(calls / 5, &text);
    let cpu = Cpu::of_process_tree();
    let before = cpu.spent();
    let times = client.sequential(calls, &text);
    let alone = per_call(cpu.spent() - before, calls);

    client.concurrent(concurrent / 10, IN_FLIGHT, &text);
    let (before, start) = (cpu.spent(), Instant::now());
    client.concurrent(concurrent, IN_FLIGHT, &text);
    let span = start.elapsed();
    let at_64 = per_call(cpu.spent() - before, concurrent);

    percentiles(times)
        .with("cpu", alone)
        .with("throughput at 64", concurrent as f64 / span.as_secs_f64())
        .with("cpu at 64", at_64)
}

fn percentiles(times: Vec<u64>) -> Sample {
    let [p50, p99] = [50, 99].map(|percent| percentile(&times, percent));
    Sample::default().with("p50", p50).with("p99", p99)
}

/// A percentile of the times, in microseconds.
pub(crate) fn percentile(times: &[u64], percent: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[(times.len() - 1) * percent / 100] as f64 / 1e3
}

fn per_call(spent: std::time::Duration, calls: usize) -> f64 {
    spent.as_secs_f64() * 1e6 / calls as f64
}
