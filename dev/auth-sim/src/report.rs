//! Counts of one run or of many. Must not judge them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use everlink::auth::State;

use crate::script::Kind;

/// The transition table of the library.
const TABLE: &str = include_str!("../../../src/auth/table.txt");

/// The counts of one run, or of many.
#[derive(Clone, Debug, Default)]
pub struct Report {
    runs: u64,
    simulated: Duration,
    facts: BTreeMap<String, u64>,
    faults: BTreeMap<Kind, u64>,
    transitions: BTreeMap<(String, String), u64>,
    /// A hash of the log.
    digest: u64,
    trace: Option<String>,
}

impl Report {
    pub(crate) fn with_trace() -> Report {
        Report {
            trace: Some(String::new()),
            ..Report::default()
        }
    }

    pub(crate) fn ran(&mut self, simulated: Duration) {
        self.runs += 1;
        self.simulated += simulated;
    }

    pub(crate) fn fact(&mut self, name: &str) {
        match self.facts.get_mut(name) {
            Some(count) => *count += 1,
            None => drop(self.facts.insert(name.into(), 1)),
        }
    }

    pub(crate) fn fault(&mut self, kind: Kind) {
        *self.faults.entry(kind).or_default() += 1;
    }

    pub(crate) fn transition(&mut self, from: State, to: State) {
        let key = (format!("{from:?}"), format!("{to:?}"));
        *self.transitions.entry(key).or_default() += 1;
    }

    pub(crate) fn hash(&mut self, value: u64) {
        self.digest = (self.digest ^ value).wrapping_mul(0x0100_0000_01b3);
    }

    pub(crate) const fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    pub(crate) fn note(&mut self, line: &str) {
        if let Some(trace) = &mut self.trace {
            trace.push_str(line);
            trace.push('\n');
        }
    }

    /// The trace of the run, if it was requested.
    #[must_use]
    pub fn trace(&self) -> Option<&str> {
        self.trace.as_deref()
    }

    /// A hash of the log: two runs that differ have different ones.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// The number of times that this step took effect.
    #[must_use]
    pub fn fault_count(&self, kind: Kind) -> u64 {
        self.faults.get(&kind).copied().unwrap_or_default()
    }

    /// Adds the counts of another report.
    pub fn add(&mut self, other: &Report) {
        self.runs += other.runs;
        self.simulated += other.simulated;
        for (name, count) in &other.facts {
            *self.facts.entry(name.clone()).or_default() += count;
        }
        for (kind, count) in &other.faults {
            *self.faults.entry(*kind).or_default() += count;
        }
        for (row, count) in &other.transitions {
            *self.transitions.entry(row.clone()).or_default() += count;
        }
        self.digest = self.digest.wrapping_add(other.digest);
    }

    /// The rows of the transition table that a sign-in with a browser can take, and that no run took.
    #[must_use]
    pub fn untaken_transitions(&self) -> Vec<String> {
        let of_other_grants = ["Starting", "Polling", "Proving", "Exchanging"];
        let mut untaken = Vec::new();
        for line in TABLE.lines().skip(1) {
            let [from, on, to] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                continue;
            };
            let is_other = [from, to].iter().any(|of| of_other_grants.contains(of));
            // Programs without a person ask for tokens at once.
            let is_of_program =
                matches!(from, "Preparing" | "Registering") && to == "Redeeming" && on == "Redeem";
            // Endpoints that the configuration names are not looked up.
            let is_of_program = is_of_program || (from, to) == ("Resource", "Queueing");
            let is_taken = self.transitions.contains_key(&(from.into(), to.into()));
            if from != "any" && !is_other && !is_of_program && !is_taken {
                untaken.push(line.into());
            }
        }
        untaken
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let years = self.simulated.as_secs() / (365 * 86_400);
        writeln!(f, "{} runs, {years} simulated years", self.runs)?;
        writeln!(f, "\nwhat happened:")?;
        for (name, count) in &self.facts {
            writeln!(f, "  {name:<16} {count:>12}")?;
        }
        writeln!(f, "\nsteps that took effect:")?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {kind:<16} {count:>12}")?;
        }
        writeln!(
            f,
            "\ntransitions: {} pairs of states",
            self.transitions.len()
        )?;
        for ((from, to), count) in &self.transitions {
            writeln!(f, "  {from:<12} {to:<12} {count:>12}")?;
        }
        let untaken = self.untaken_transitions();
        if !untaken.is_empty() {
            writeln!(f, "\nnot taken:\n  {}", untaken.join("\n  "))?;
        }
        Ok(())
    }
}
