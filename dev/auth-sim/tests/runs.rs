//! A few of the runs that `cargo xtask auth-sim` makes by the hundred thousand.

use everlink_auth_sim::{Kind, Report, Script, run};

#[test]
fn seeds_1_to_300_break_no_rule_and_cover_all_steps() {
    let mut all = Report::default();
    for seed in 1..=300 {
        let (report, violation) = run(&Script::from_seed(seed), None);
        assert!(
            violation.is_none(),
            "seed {seed}: {}",
            violation.expect("one")
        );
        all.add(&report);
    }
    let kinds = Kind::ALL.iter();
    let unseen: Vec<&Kind> = kinds.filter(|kind| all.fault_count(**kind) == 0).collect();
    assert!(unseen.is_empty(), "these never took effect: {unseen:?}");
    let untaken = all.untaken_transitions();
    assert!(untaken.len() <= 1, "not taken: {untaken:?}");
}

#[test]
fn same_seed_gives_the_same_digest() {
    let digest = |seed| run(&Script::from_seed(seed), None).0.digest();
    for seed in 1..=20 {
        assert_eq!(digest(seed), digest(seed), "seed {seed}");
    }
    assert_ne!(digest(1), digest(2));
}

#[test]
fn script_text_round_trips() {
    for seed in 1..=200 {
        let script = Script::from_seed(seed);
        assert_eq!(script.to_string().parse(), Ok(script));
    }
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
