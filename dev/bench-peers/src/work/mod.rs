//! What is measured. Each work lists its samples, which are taken in rounds, and takes one.

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

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// Of a hundred calls, so many are made.
    pub(crate) percent: usize,
}

impl Effort {
    pub(crate) fn of(self, calls: usize) -> usize {
        calls * self.percent / 100
    }

    /// The same in shorter samples and more rounds, for what is measured by the clock alone: where a machine is now faster and now slower, the
    /// median of a few says little.
    pub(crate) const fn in_turns(self) -> Effort {
        Effort {
            rounds: 3 * self.rounds,
            percent: self.percent / 3,
        }
    }
}

/// Where the two ends of a call may run.
pub(crate) const CORES: [&str; 2] = ["one core", "two cores"];
/// How many calls are in flight where there are many.
pub(crate) const IN_FLIGHT: usize = 64;
/// How long the text is where it is short.
pub(crate) const SHORT: usize = 100;

/// A task for each of these: who speaks the protocol does so in both eras.
pub(crate) fn in_eras(work: &str, case: &str, whos: &[&str], size: usize) -> Vec<Task> {
    let eras = |who: &str| match who {
        "floor" | "raw" | "serde_json" => vec![Era::Both],
        _ => vec![Era::Legacy, Era::Modern],
    };
    let tasks = whos.iter().flat_map(|who| {
        let task = move |era| Task::new(work, case, era, who, size);
        eras(who).into_iter().map(task)
    });
    tasks.collect()
}

/// What a call costs through this client: first one by one, then many at a time.
pub(crate) fn calls(client: &mut dyn Client, calls: usize, together: usize) -> Sample {
    let text = echo::text(SHORT);
    client.one_by_one(calls / 5, &text);
    let cpu = Cpu::of_family();
    let before = cpu.spent();
    let times = client.one_by_one(calls, &text);
    let alone = per_call(cpu.spent() - before, calls);

    client.together(together / 10, IN_FLIGHT, &text);
    let (before, start) = (cpu.spent(), Instant::now());
    client.together(together, IN_FLIGHT, &text);
    let span = start.elapsed();
    let at_64 = per_call(cpu.spent() - before, together);

    percentiles(times)
        .with("cpu", alone)
        .with("throughput at 64", together as f64 / span.as_secs_f64())
        .with("cpu at 64", at_64)
}

fn percentiles(times: Vec<u64>) -> Sample {
    let [p50, p99] = [50, 99].map(|percent| percentile(&times, percent));
    Sample::default().with("p50", p50).with("p99", p99)
}

/// So many of a hundred took no longer, in microseconds.
pub(crate) fn percentile(times: &[u64], percent: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[(times.len() - 1) * percent / 100] as f64 / 1e3
}

fn per_call(spent: std::time::Duration, calls: usize) -> f64 {
    spent.as_secs_f64() * 1e6 / calls as f64
}
