//! Counts calls and their outcomes, and keeps what should not have happened.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most violations whose text is kept. A broken run would otherwise fill the memory with them.
const MOST_TEXTS: usize = 100;

/// The outcomes and violations that the clients of a run saw. Threads share it.
#[derive(Default)]
pub(crate) struct Tally(Mutex<Counts>);

/// The numbers at one moment.
#[derive(Clone, Default)]
pub(crate) struct Counts {
    /// The calls that were begun.
    pub(crate) calls: u64,
    /// The calls that ended, by how they did.
    pub(crate) outcomes: BTreeMap<&'static str, u64>,
    /// Faults that were caused, and other events.
    pub(crate) events: BTreeMap<&'static str, u64>,
    pub(crate) violations: u64,
    pub(crate) texts: Vec<String>,
}

impl Tally {
    pub(crate) fn begin(&self) {
        self.lock().calls += 1;
    }

    pub(crate) fn end(&self, outcome: &'static str) {
        *self.lock().outcomes.entry(outcome).or_default() += 1;
    }

    pub(crate) fn note(&self, event: &'static str) {
        *self.lock().events.entry(event).or_default() += 1;
    }

    pub(crate) fn violation(&self, text: String) {
        let mut counts = self.lock();
        counts.violations += 1;
        if counts.texts.len() < MOST_TEXTS {
            eprintln!("violation: {text}");
            counts.texts.push(text);
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// How many calls ended.
    pub(crate) fn ended(&self) -> u64 {
        self.outcomes.values().sum()
    }

    /// How many calls ended in this way.
    pub(crate) fn ended_as(&self, outcome: &str) -> u64 {
        self.outcomes.get(outcome).copied().unwrap_or(0)
    }
}
