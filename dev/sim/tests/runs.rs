//! A few of the runs that `cargo xtask sim` makes by the hundred thousand.

use everlink_sim::{LinkSimulation, Script};
use everlink_simulation::testing;

#[test]
fn seeds_1_to_600_break_no_rule_and_cover_all_faults() {
    testing::assert_keeps_rules::<LinkSimulation>(1..=600);
}

#[test]
fn same_seed_gives_the_same_digest() {
    testing::assert_repeats::<LinkSimulation>(1..=40);
}

#[test]
fn script_text_round_trips() {
    testing::assert_round_trips::<LinkSimulation>(1..=200);
}

#[test]
fn invalid_script_text_is_rejected_with_a_reason() {
    let error_text = |text: &str| text.parse::<Script>().expect_err(text).to_string();
    assert!(error_text("").contains("seed NUMBER"));
    assert!(error_text("seed 1 child everlink automatic brisk huge").contains("wide, tight"));
    let setup = "seed 1 child everlink automatic brisk wide\n";
    assert!(error_text(&format!("{setup}+1 do dance 0")).contains("`dance` is none of"));
    assert!(error_text(&format!("{setup}+x do call 0")).contains("`x` is no number"));
    assert!(error_text(&format!("{setup}call")).contains("+MILLISECONDS"));
}
