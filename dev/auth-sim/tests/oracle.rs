//! Tests that the oracle detects a driver that breaks a rule on purpose, for each rule.

use everlink_auth_sim::{AuthSimulation, Rule};
use everlink_simulation::testing;

/// This many runs are enough to detect each of these drivers.
const RUNS: u64 = 200;

fn assert_detects(flaw: Rule) {
    testing::assert_detects::<AuthSimulation>(flaw, RUNS);
}

#[test]
fn renewal_without_the_lock_is_detected() {
    assert_detects(Rule::FamilyIsKept);
}

#[test]
fn driver_that_hides_what_the_store_has_is_detected() {
    assert_detects(Rule::NoNeedlessSignIn);
}

#[test]
fn token_that_is_sent_to_another_host_is_detected() {
    assert_detects(Rule::SecretsStayHome);
}

#[test]
fn challenge_without_an_outcome_is_detected() {
    assert_detects(Rule::OneFlow);
}

#[test]
fn lock_that_is_not_released_is_detected() {
    assert_detects(Rule::NoEndlessWait);
}

#[test]
fn refresh_token_that_is_sent_again_is_detected() {
    assert_detects(Rule::TokenIsSpentOnce);
}

#[test]
fn record_that_is_deleted_after_a_server_error_is_detected() {
    assert_detects(Rule::NothingIsForgotten);
}

#[test]
fn endless_sign_ins_are_detected() {
    assert_detects(Rule::FewSignIns);
}

#[test]
fn process_that_does_not_recover_is_detected() {
    assert_detects(Rule::Recovers);
}

#[test]
fn repeated_exchanges_are_detected() {
    assert_detects(Rule::NoHotLoop);
}

#[test]
fn shrunk_script_is_smaller_and_breaks_the_same_rule() {
    testing::assert_shrinks::<AuthSimulation>(Rule::NothingIsForgotten, RUNS);
}
