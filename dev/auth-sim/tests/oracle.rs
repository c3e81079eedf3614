//! Tests that the oracle detects a driver that breaks a rule on purpose, for each rule.

use everlink_auth_sim::{Rule, Script, run, shrink};

/// This many runs are enough to detect each of these drivers.
const RUNS: u64 = 200;

/// The first violation by a driver with this flaw: the seed, the rule and the text.
fn first_violation(flaw: Rule) -> (u64, Rule, String) {
    for seed in 1..RUNS {
        if let (_, Some(violation)) = run(&Script::from_seed(seed), Some(flaw)) {
            return (seed, violation.rule, violation.to_string());
        }
    }
    panic!("a driver that breaks {flaw} was not found out");
}

fn assert_detects(flaw: Rule) {
    let (seed, rule, text) = first_violation(flaw);
    assert_eq!(rule, flaw, "seed {seed}: {text}");
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

/// The shrunk script is smaller, breaks the same rule, and can be parsed again.
#[test]
fn shrunk_script_is_smaller_and_breaks_the_same_rule() {
    let flaw = Rule::NothingIsForgotten;
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
