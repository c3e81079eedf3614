//! A few of the runs that `cargo xtask fleet-sim` makes by the hundred thousand, and a flaw for each rule.

use everlink_fleet_sim::{FleetSimulation, Rule, Script};
use everlink_simulation::{Simulation, testing};

#[test]
fn seeds_1_to_100_break_no_rule_and_cover_all_faults() {
    testing::assert_keeps_rules::<FleetSimulation>(1..=100);
}

#[test]
fn same_seed_gives_the_same_digest() {
    testing::assert_repeats::<FleetSimulation>(1..=5);
}

#[test]
fn script_text_round_trips() {
    testing::assert_round_trips::<FleetSimulation>(1..=200);
}

#[test]
fn invalid_script_text_is_rejected_with_a_reason() {
    let error_text = |text: &str| text.parse::<Script>().expect_err(text).to_string();
    assert!(error_text("").contains("seed NUMBER"));
    assert!(error_text("seed 1\n+1 dance 0 0").contains("`dance` is none of"));
    assert!(error_text("seed 1\n+x kill 0 0").contains("`x` is no number"));
    assert!(error_text("seed 1\nkill").contains("+MILLISECONDS"));
}

#[test]
fn each_flaw_is_detected() {
    for rule in FleetSimulation::RULES {
        testing::assert_detects::<FleetSimulation>(*rule, 200);
    }
}

#[test]
fn shrunk_script_is_smaller_and_breaks_the_same_rule() {
    testing::assert_shrinks::<FleetSimulation>(Rule::RefusedDidNotRun, 200);
}
