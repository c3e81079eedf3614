//! Shrinks a script that breaks a rule: removes steps while the same rule is still broken. Must not depend on their meaning.

use crate::{Script, Simulation, run};

/// The maximum number of runs. After it, no further candidate is accepted.
const MAX_RUNS: u32 = 3_000;

/// Returns the smallest script found that breaks this rule. `flaw` is a rule that the runs break on purpose; see [`run`].
#[must_use]
pub fn shrink<S: Simulation>(
    script: &Script<S>,
    rule: S::Rule,
    flaw: Option<S::Rule>,
) -> Script<S> {
    let mut runs = 0;
    let mut breaks = |candidate: &Script<S>| {
        runs += 1;
        let (_, violation) = run(candidate, flaw);
        runs < MAX_RUNS && violation.is_some_and(|violation| violation.rule == rule)
    };
    let mut best = script.clone();
    let mut chunk = best.steps.len().max(1);
    while chunk > 0 {
        let mut at = 0;
        let mut shrank = false;
        while at < best.steps.len() {
            let mut candidate = best.clone();
            let end = (at + chunk).min(candidate.steps.len());
            candidate.steps.drain(at..end);
            if breaks(&candidate) {
                best = candidate;
                shrank = true;
            } else {
                at += chunk;
            }
        }
        if !shrank || chunk > 1 {
            chunk /= 2;
        }
    }
    for at in 0..best.steps.len() {
        for (limits, cap) in S::CAPS {
            for limit in *limits {
                let mut candidate = best.clone();
                cap(&mut candidate.steps[at], *limit);
                if candidate != best && breaks(&candidate) {
                    best = candidate;
                    break;
                }
            }
        }
    }
    best
}
