//! The oracle can fail: for each rule, a machine that breaks it on purpose, and the rule that the oracle names.

use everlink_sim::{Rule, Script, run, shrink};

/// So many runs are enough to see any of these machines.
const RUNS: u64 = 2_000;

/// The first rule that such a machine is seen to break, and in which run.
fn first_broken(flaw: Rule) -> (u64, Rule, String) {
    for seed in 1..RUNS {
        if let (_, Some(broken)) = run(&Script::of_seed(seed), Some(flaw)) {
            return (seed, broken.rule, broken.to_string());
        }
    }
    panic!("a machine that breaks {flaw} was not found out");
}

fn names(flaw: Rule) {
    let (seed, rule, told) = first_broken(flaw);
    assert_eq!(rule, flaw, "seed {seed}: {told}");
}

#[test]
fn one_outcome() {
    names(Rule::OneOutcome);
}

#[test]
fn the_state_is_the_truth() {
    names(Rule::StateIsTruth);
}

#[test]
fn epochs_do_not_mix() {
    names(Rule::EpochsApart);
}

#[test]
fn a_planned_close_is_free() {
    names(Rule::PlannedIsFree);
}

#[test]
fn one_budget() {
    names(Rule::OneBudget);
}

#[test]
fn one_owner() {
    names(Rule::OneOwner);
}

#[test]
fn no_silent_replay() {
    names(Rule::NoSilentReplay);
}

#[test]
fn nothing_stale_survives() {
    names(Rule::NothingStale);
}

#[test]
fn a_peer_cannot_hurt_the_process() {
    names(Rule::PeerCannotHurt);
}

#[test]
fn time_moves_only_by_input() {
    names(Rule::TimeByInput);
}

#[test]
fn application_errors_are_health() {
    names(Rule::ErrorsAreHealth);
}

#[test]
fn liveness_is_any_byte() {
    names(Rule::AnyByteIsLife);
}

#[test]
fn shutdown_is_a_ladder() {
    names(Rule::Ladder);
}

#[test]
fn errors_speak() {
    names(Rule::ErrorsSpeak);
}

#[test]
fn secrets_stay_out() {
    names(Rule::SecretsStayOut);
}

#[test]
fn it_gets_well() {
    names(Rule::GetsWell);
}

/// What is printed for a run that breaks a rule is smaller, breaks the same rule, and can be read again.
#[test]
fn a_run_that_breaks_a_rule_is_shrunk_to_a_script_that_does_too() {
    let flaw = Rule::NoSilentReplay;
    let (seed, rule, _) = first_broken(flaw);
    let script = Script::of_seed(seed);
    let small = shrink(&script, rule, Some(flaw));
    assert!(small.acts.len() < script.acts.len(), "{small}");
    let again: Script = small.to_string().parse().expect("a script");
    assert_eq!(again, small);
    let (_, broken) = run(&again, Some(flaw));
    assert_eq!(broken.map(|broken| broken.rule), Some(rule));
    let (_, broken) = run(&again, None);
    assert!(broken.is_none(), "the library keeps to it: {broken:?}");
}
