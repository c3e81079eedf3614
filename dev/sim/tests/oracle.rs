//! Tests that the oracle detects a machine that breaks a rule on purpose, for each rule.

use everlink_sim::{LinkSimulation, Rule};
use everlink_simulation::testing;

/// This many runs are enough to detect each of these machines.
const RUNS: u64 = 2_000;

fn assert_detects(flaw: Rule) {
    testing::assert_detects::<LinkSimulation>(flaw, RUNS);
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

#[test]
fn shrunk_script_is_smaller_and_breaks_the_same_rule() {
    testing::assert_shrinks::<LinkSimulation>(Rule::NoSilentReplay, RUNS);
}
