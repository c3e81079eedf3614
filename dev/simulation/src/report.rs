//! Counts of one run or of many, with a digest and a trace, and how they are printed. Must not know what is simulated.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::{Simulation, table};

/// The digest of an empty report, as FNV-1a has it.
const FIRST_DIGEST: u64 = 0xcbf2_9ce4_8422_2325;

/// Each fault must take effect at least once in this many runs.
const MAX_RUNS_FOR_A_FAULT: u64 = 100;

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
    /// How often a machine took two transitions one after the other, as three states.
    pub pairs: BTreeMap<(String, String, String), u64>,
    /// The last transition of each machine of the present run.
    pub(crate) latest: BTreeMap<u64, (String, String)>,
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
            pairs: BTreeMap::new(),
            latest: BTreeMap::new(),
            digest: FIRST_DIGEST,
            trace: None,
        }
    }
}

/// What a world reports.
impl<S: Simulation> Report<S> {
    /// Counts a run that took this much simulated time.
    pub(crate) fn finish_run(&mut self, simulated: Duration) {
        self.runs += 1;
        self.simulated += simulated;
        self.latest.clear();
    }

    /// Counts something that happened.
    pub fn record_event(&mut self, group: &'static str, name: &'static str) {
        *self.events.entry((group, name)).or_default() += 1;
    }

    /// Counts a fault that took effect.
    pub fn record_fault(&mut self, fault: S::Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// Counts a transition between two states. `machine` tells the machines of a run apart.
    pub fn record_transition(&mut self, machine: u64, from: String, to: String) {
        let taken = (from.clone(), to.clone());
        let before = self.latest.insert(machine, taken.clone());
        if let Some((first, _)) = before.filter(|(_, last)| *last == from) {
            *self.pairs.entry((first, from, to)).or_default() += 1;
        }
        *self.transitions.entry(taken).or_default() += 1;
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
        add_all(&mut self.pairs, &other.pairs);
        // Runs are added in no particular order.
        self.digest = self.digest.wrapping_add(other.digest);
    }

    /// The number of times that this fault took effect.
    #[must_use]
    pub fn fault_count(&self, fault: S::Fault) -> u64 {
        self.faults.get(&fault).copied().unwrap_or_default()
    }

    /// The rows of the transition table that runs can take, and that none took.
    #[must_use]
    pub fn untaken_transitions(&self) -> Vec<String> {
        let is_taken = |from: &str, to: &str| {
            let key = (from.to_owned(), to.to_owned());
            self.transitions.contains_key(&key)
        };
        let mut rows = table::possible_rows::<S>();
        rows.retain(|[from, _, to]| !is_taken(from, to));
        rows.iter().map(|row| row.join(" ")).collect()
    }

    /// If these runs did not show all that many runs should, what they did not.
    #[must_use]
    pub fn gaps(&self) -> Option<String> {
        let mut gaps = self.untaken_transitions();
        for fault in S::FAULTS {
            let (count, wanted) = (self.fault_count(*fault), self.runs / MAX_RUNS_FOR_A_FAULT);
            if count < wanted {
                gaps.push(format!("{fault}: {count} times, not {wanted}"));
            }
        }
        let text = format!("not seen, or too seldom:\n  {}\n", gaps.join("\n  "));
        (!gaps.is_empty()).then_some(text)
    }

    /// The pairs that the table allows and that no run took. Those with the same reason, or without one, are in one line.
    fn write_missing_pairs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allowed = table::pairs::<S>();
        let is_seen = |pair: &[&str; 3]| {
            let [one, two, three] = pair.map(str::to_owned);
            self.pairs.contains_key(&(one, two, three))
        };
        let seen = allowed.iter().filter(|pair| is_seen(pair)).count();
        writeln!(
            f,
            "\npairs of transitions: {seen} of {} that the table allows",
            allowed.len()
        )?;
        let mut missing: BTreeMap<Option<&str>, Vec<String>> = BTreeMap::new();
        for pair in allowed.iter().filter(|pair| !is_seen(pair)) {
            let reason = S::why_no_pair(*pair);
            missing.entry(reason).or_default().push(pair.join(" > "));
        }
        for (reason, pairs) in missing {
            let reason = reason.unwrap_or("not seen");
            writeln!(f, "  {reason}: {}", pairs.join(", "))?;
        }
        Ok(())
    }
}

impl<S: Simulation> fmt::Display for Report<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.simulated.as_secs_f64() / 86_400.0;
        writeln!(f, "runs            {:>12}", self.runs)?;
        writeln!(f, "simulated days  {days:>12.1}")?;
        writeln!(f, "digest          {:016x}", self.digest)?;
        let mut last_group = "";
        for ((group, name), count) in &self.events {
            if last_group != *group {
                writeln!(f, "\n{group}")?;
                last_group = group;
            }
            writeln!(f, "  {name:<22} {count:>12}")?;
        }
        writeln!(f, "\nfaults and steps that took effect")?;
        for fault in S::FAULTS {
            writeln!(f, "  {fault:<22} {:>12}", self.fault_count(*fault))?;
        }
        writeln!(f, "\ntransitions")?;
        for ((from, to), count) in &self.transitions {
            writeln!(f, "  {from:<11} > {to:<11} {count:>10}")?;
        }
        for ([from, on, to], reason) in table::impossible_rows::<S>() {
            writeln!(f, "  {from:<11} > {to:<11}       none: {on}: {reason}")?;
        }
        for row in self.untaken_transitions() {
            writeln!(f, "  not taken: {row}")?;
        }
        self.write_missing_pairs(f)
    }
}
