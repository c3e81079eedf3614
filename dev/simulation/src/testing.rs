//! The tests that every simulator has, as functions to call. Each function panics if the simulator does not do what it asserts.

use std::ops::RangeInclusive;

use crate::{Report, Script, Simulation, Violation, run, shrink};

/// The first of the seeds at which a run with this flaw breaks a rule, and the violation.
fn first_violation<S: Simulation>(flaw: S::Rule, runs: u64) -> (u64, Violation<S::Rule>) {
    for seed in 1..runs {
        if let (_, Some(violation)) = run(&Script::<S>::from_seed(seed), Some(flaw)) {
            return (seed, violation);
        }
    }
    panic!("the flaw that breaks {flaw} was not found out");
}

/// Asserts that the oracle detects this flaw, and blames the right rule in one of this many runs. In others, a consequence may break another rule first.
pub fn assert_detects<S: Simulation>(flaw: S::Rule, runs: u64) {
    let is_blamed = |seed| {
        let (_, violation) = run(&Script::<S>::from_seed(seed), Some(flaw));
        violation.is_some_and(|violation| violation.rule == flaw)
    };
    assert!(
        (1..runs).any(is_blamed),
        "no run with the flaw blames {flaw}"
    );
}

/// Asserts that a shrunk script with this flaw is smaller, breaks the same rule, can be parsed again, and breaks no rule without the flaw.
pub fn assert_shrinks<S: Simulation>(flaw: S::Rule, runs: u64) {
    let (seed, Violation { rule, .. }) = first_violation::<S>(flaw, runs);
    let script = Script::<S>::from_seed(seed);
    let small = shrink(&script, rule, Some(flaw));
    assert!(small.steps.len() < script.steps.len(), "{small}");
    let again: Script<S> = small.to_string().parse().expect("a script");
    assert_eq!(again, small);
    let (_, violation) = run(&again, Some(flaw));
    assert_eq!(violation.map(|violation| violation.rule), Some(rule));
    let (_, violation) = run(&again, None);
    assert!(violation.is_none(), "without the flaw: {violation:?}");
}

/// Asserts that these seeds break no rule, that all faults take effect, and that at most one transition is not taken.
pub fn assert_keeps_rules<S: Simulation>(seeds: RangeInclusive<u64>) {
    let mut all = Report::<S>::default();
    for seed in seeds {
        let (report, violation) = run(&Script::<S>::from_seed(seed), None);
        if let Some(violation) = violation {
            panic!("seed {seed}: {violation}");
        }
        all.add(&report);
    }
    let mut unseen = S::FAULTS.to_vec();
    unseen.retain(|fault| all.fault_count(*fault) == 0);
    assert!(unseen.is_empty(), "these never took effect: {unseen:?}");
    let untaken = all.untaken_transitions();
    assert!(untaken.len() <= 1, "not taken: {untaken:?}");
}

/// Asserts that two runs of a seed have the same digest, for each of these seeds, and that seeds 1 and 2 differ.
pub fn assert_repeats<S: Simulation>(seeds: RangeInclusive<u64>) {
    let digest = |seed| run(&Script::<S>::from_seed(seed), None).0.digest;
    for seed in seeds {
        assert_eq!(digest(seed), digest(seed), "seed {seed}");
    }
    assert_ne!(digest(1), digest(2));
}

/// Asserts that the scripts of these seeds are the same after they were written as text and parsed.
pub fn assert_round_trips<S: Simulation>(seeds: RangeInclusive<u64>) {
    for seed in seeds {
        let script = Script::<S>::from_seed(seed);
        assert_eq!(script.to_string().parse(), Ok(script));
    }
}
