//! A few of the runs that `cargo xtask auth-sim` makes by the hundred thousand.

use everlink_auth_sim::{AuthSimulation, Script};
use everlink_simulation::testing;

#[test]
fn seeds_1_to_300_break_no_rule_and_cover_all_steps() {
    testing::assert_keeps_rules::<AuthSimulation>(1..=300);
}

#[test]
fn same_seed_gives_the_same_digest() {
    testing::assert_repeats::<AuthSimulation>(1..=20);
}

#[test]
fn script_text_round_trips() {
    testing::assert_round_trips::<AuthSimulation>(1..=200);
}

#[test]
fn invalid_script_text_is_rejected_with_a_reason() {
    let error_text = |text: &str| text.parse::<Script>().expect_err(text).to_string();
    assert!(error_text("").contains("seed NUMBER"));
    assert!(error_text("seed 1 2 3600 sometimes").contains("rotating, fixed"));
    let setup = "seed 1 2 3600 rotating\n";
    assert!(error_text(&format!("{setup}+1 dance 0 0")).contains("`dance` is none of"));
    assert!(error_text(&format!("{setup}+x call 0 0")).contains("`x` is no number"));
    assert!(error_text(&format!("{setup}call")).contains("+MILLISECONDS"));
}
