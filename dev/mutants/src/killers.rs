//! Learns which tests catch the mutants of a function and of a file, so that they run first for the next one. Chooses the order of the tests.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use crate::affinity::Affinity;
use crate::state::Key;

/// How many tests run early because of their names.
const NAMED: usize = 40;

/// How many mutants each test caught, by the file, and by the file and function.
#[derive(Debug, Default)]
pub(crate) struct Killers {
    counts: Mutex<HashMap<String, HashMap<usize, u32>>>,
    affinity: Affinity,
}

impl Killers {
    pub(crate) fn new(affinity: Affinity) -> Killers {
        Killers {
            affinity,
            ..Killers::default()
        }
    }

    /// Notes that a test caught a mutant.
    pub(crate) fn note(&self, key: &Key, test: usize) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for place in [function(key), key.file.clone()] {
            *counts.entry(place).or_default().entry(test).or_default() += 1;
        }
    }

    /// Orders tests: those that caught most in the same function, then those whose names are most like the mutant, then those that caught
    /// most in the same file, then the others as they are.
    pub(crate) fn order(&self, key: &Key, tests: &[usize]) -> Vec<usize> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let (near, far) = (counts.get(&function(key)), counts.get(&key.file));
        let count = |counts: Option<&HashMap<usize, u32>>, test: usize| {
            counts.and_then(|counts| counts.get(&test)).copied()
        };
        let shares = self.affinity.of(key);
        let mut named: Vec<usize> = tests.to_vec();
        named.retain(|test| shares.contains_key(test));
        // The sorts are stable.
        named.sort_by(|a, b| shares[b].total_cmp(&shares[a]));
        named.truncate(NAMED);
        let named: HashSet<usize> = named.into_iter().collect();
        let mut ordered = tests.to_vec();
        ordered.sort_by_key(|test| {
            let place = (count(near, *test), named.contains(test), count(far, *test));
            core::cmp::Reverse(place)
        });
        ordered
    }
}

fn function(key: &Key) -> String {
    format!("{}\t{}", key.file, key.function)
}

#[cfg(test)]
mod tests {
    use super::Killers;
    use crate::state::Key;

    fn key(function: &str) -> Key {
        Key {
            file: "a.rs".to_owned(),
            function: function.to_owned(),
            ..Key::default()
        }
    }

    #[test]
    fn tests_of_the_function_come_before_those_of_the_file_and_those_before_all_others() {
        let killers = Killers::default();
        killers.note(&key("f"), 3);
        killers.note(&key("g"), 2);
        killers.note(&key("g"), 2);
        assert_eq!(killers.order(&key("f"), &[0, 1, 2, 3]), [3, 2, 0, 1]);
        assert_eq!(killers.order(&key("h"), &[0, 1, 2, 3]), [2, 3, 0, 1]);
    }
}
