//! Counts of one run or of many, with a digest and a trace. Must not judge them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::Simulation;

/// The counts of one run, or of many.
#[derive(Clone, Debug)]
pub struct Report<S: Simulation> {
    /// The number of runs.
    pub runs: u64,
    /// The simulated time.
    pub simulated: Duration,
    /// How often something happened, by its group and its name.
    pub events: BTreeMap<(&'static str, &'static str), u64>,
    /// How often each fault took effect.
    pub faults: BTreeMap<S::Fault, u64>,
    /// How often each transition was taken: from a state to another one.
    pub transitions: BTreeMap<(String, String), u64>,
    /// A hash of the runs. Two runs that differ have different ones.
    pub digest: u64,
    /// The trace of the run, if it was requested.
    pub trace: Option<String>,
}

impl<S: Simulation> Default for Report<S> {
    fn default() -> Report<S> {
        Report {
            runs: 0,
            simulated: Duration::ZERO,
            events: BTreeMap::new(),
            faults: BTreeMap::new(),
            transitions: BTreeMap::new(),
            digest: S::FIRST_DIGEST,
            trace: None,
        }
    }
}

/// What a world reports.
impl<S: Simulation> Report<S> {
    /// Counts a run that took this much simulated time.
    pub fn finish_run(&mut self, simulated: Duration) {
        self.runs += 1;
        self.simulated += simulated;
    }

    /// Counts something that happened.
    pub fn record_event(&mut self, group: &'static str, name: &'static str) {
        *self.events.entry((group, name)).or_default() += 1;
    }

    /// Counts a fault that took effect.
    pub fn record_fault(&mut self, fault: S::Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// Counts a transition between two states.
    pub fn record_transition(&mut self, from: String, to: String) {
        *self.transitions.entry((from, to)).or_default() += 1;
    }

    /// Adds a value to the digest, as FNV-1a does.
    pub const fn hash(&mut self, value: u64) {
        self.digest = (self.digest ^ value).wrapping_mul(0x0100_0000_01b3);
    }

    /// Adds a line to the trace, if there is one.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push_str(&line());
            trace.push('\n');
        }
    }
}

/// What the counts say.
impl<S: Simulation> Report<S> {
    /// Adds the counts of another report.
    pub fn add(&mut self, other: &Report<S>) {
        fn add_all<K: Ord + Clone>(ours: &mut BTreeMap<K, u64>, theirs: &BTreeMap<K, u64>) {
            for (key, count) in theirs {
                *ours.entry(key.clone()).or_default() += count;
            }
        }
        self.runs += other.runs;
        self.simulated += other.simulated;
        add_all(&mut self.events, &other.events);
        add_all(&mut self.faults, &other.faults);
        add_all(&mut self.transitions, &other.transitions);
        // Runs are added in no particular order.
        self.digest = self.digest.wrapping_add(other.digest);
    }

    /// The names of a group with their counts.
    pub fn events_of(&self, group: &str) -> impl Iterator<Item = (&'static str, u64)> {
        let events = self.events.iter();
        let events = events.filter(move |((of, _), _)| *of == group);
        events.map(|((_, name), count)| (*name, *count))
    }

    /// The number of times that this fault took effect.
    #[must_use]
    pub fn fault_count(&self, fault: S::Fault) -> u64 {
        self.faults.get(&fault).copied().unwrap_or_default()
    }

    /// The number of times that this row of the transition table was taken.
    #[must_use]
    pub fn transition_count(&self, row: &str) -> u64 {
        let columns: Vec<&str> = row.split_whitespace().collect();
        let key = (columns[0].to_owned(), columns[2].to_owned());
        self.transitions.get(&key).copied().unwrap_or_default()
    }

    /// The rows of the transition table that runs can take, and that none took.
    #[must_use]
    pub fn untaken_transitions(&self) -> Vec<&'static str> {
        let mut rows = S::transitions();
        rows.retain(|row| self.transition_count(row) == 0);
        rows
    }
}

impl<S: Simulation> fmt::Display for Report<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        S::write_report(self, f)
    }
}
