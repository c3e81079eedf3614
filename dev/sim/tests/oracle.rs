//! Tests that the oracle detects a machine that breaks a rule on purpose, for each rule.

use everlink_sim::{Rule, Script, run, shrink};

/// This many runs are enough to detect each of these machines.
const RUNS: u64 = 2_000;

/// The first violation by a machine with this flaw: the seed, the rule and the text.
fn first_violation(flaw: Rule) -> (u64, Rule, String) {
    for seed in 1..RUNS {
        if let (_, Some(violation)) = run(&Script::from_seed(seed), Some(flaw)) {
            return (seed, violation.rule, violation.to_string());
        }
    }
    panic!("a machine that breaks {flaw} was not found out");
}

fn assert_detects(flaw: Rule) {
    let (seed, rule, text) = first_violation(flaw);
    assert_eq!(rule, flaw, "seed {seed}: {text}");
}

#[test]
fn second_outcome_of_a_call_is_detected() {
    assert_detects(Rule::OneOutcome);
}

#[test]
fn wrong_state_is_detected() {
    assert_detects(Rule::StateIsTruth);
}

#[test]
fn stale_input_that_is_not_dropped_is_detected() {
    assert_detects(Rule::EpochsDoNotMix);
}

#[test]
fn planned_close_that_counts_as_a_failure_is_detected() {
    assert_detects(Rule::PlannedIsFree);
}

#[test]
fn retry_without_a_pause_is_detected() {
    assert_detects(Rule::OneBudget);
}

#[test]
fn stale_reconnect_that_takes_effect_is_detected() {
    assert_detects(Rule::OneOwner);
}

#[test]
fn silent_replay_is_detected() {
    assert_detects(Rule::NoSilentReplay);
}

#[test]
fn stale_cached_list_is_detected() {
    assert_detects(Rule::NoStaleState);
}

#[test]
fn exceeded_limits_are_detected() {
    assert_detects(Rule::PeerIsHarmless);
}

#[test]
fn deadline_that_stays_due_is_detected() {
    assert_detects(Rule::TimeOnlyByInput);
}

#[test]
fn reconnect_after_an_application_error_is_detected() {
    assert_detects(Rule::ErrorsAreHealth);
}

#[test]
fn early_replacement_of_a_server_is_detected() {
    assert_detects(Rule::AnyByteIsLife);
}

#[test]
fn missing_release_is_detected() {
    assert_detects(Rule::CloseSteps);
}

#[test]
fn failure_without_a_text_is_detected() {
    assert_detects(Rule::ErrorTexts);
}

#[test]
fn secret_in_debug_is_detected() {
    assert_detects(Rule::SecretsStayOut);
}

#[test]
fn link_that_does_not_recover_is_detected() {
    assert_detects(Rule::Recovers);
}

/// The shrunk script is smaller, breaks the same rule, and can be parsed again.
#[test]
fn shrunk_script_is_smaller_and_breaks_the_same_rule() {
    let flaw = Rule::NoSilentReplay;
    let (seed, rule, _) = first_violation(flaw);
    let script = Script::from_seed(seed);
    let small = shrink(&script, rule, Some(flaw));
    assert!(small.steps.len() < script.steps.len(), "{small}");
    let again: Script = small.to_string().parse().expect("a script");
    assert_eq!(again, small);
    let (_, violation) = run(&again, Some(flaw));
    assert_eq!(violation.map(|violation| violation.rule), Some(rule));
    let (_, violation) = run(&again, None);
    assert!(
        violation.is_none(),
        "the library keeps to it: {violation:?}"
    );
}
