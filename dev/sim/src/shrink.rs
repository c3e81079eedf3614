//! How a run that breaks a rule is made small: ever fewer acts that still break the same rule. Knows nothing of what they do.

use crate::oracle::Rule;
use crate::run;
use crate::script::Script;

/// Not more runs are tried.
const TRIES: u32 = 3_000;

/// The smallest script that was found to break this rule as this one does.
#[must_use]
pub fn shrink(script: &Script, rule: Rule, flaw: Option<Rule>) -> Script {
    let mut tries = 0;
    let mut breaks = |candidate: &Script| {
        tries += 1;
        let (_, broken) = run(candidate, flaw);
        tries < TRIES && broken.is_some_and(|broken| broken.rule == rule)
    };
    let mut best = script.clone();
    let mut piece = best.acts.len().max(1);
    while piece > 0 {
        let mut at = 0;
        let mut has_shrunk = false;
        while at < best.acts.len() {
            let mut candidate = best.clone();
            let end = (at + piece).min(candidate.acts.len());
            candidate.acts.drain(at..end);
            if breaks(&candidate) {
                best = candidate;
                has_shrunk = true;
            } else {
                at += piece;
            }
        }
        if !has_shrunk || piece > 1 {
            piece /= 2;
        }
    }
    for at in 0..best.acts.len() {
        for simpler in [0, 1, 10, 100] {
            let mut candidate = best.clone();
            candidate.acts[at].after = candidate.acts[at].after.min(simpler);
            if candidate != best && breaks(&candidate) {
                best = candidate;
                break;
            }
        }
        for simpler in [0, 1, 2, 3] {
            let mut candidate = best.clone();
            candidate.acts[at].how = candidate.acts[at].how.min(simpler);
            if candidate != best && breaks(&candidate) {
                best = candidate;
                break;
            }
        }
    }
    best
}
