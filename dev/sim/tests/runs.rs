//! A few of the runs that `cargo xtask sim` makes by the hundred thousand.

use everlink_sim::{Fault, Report, Script, run};

#[test]
fn seeds_1_to_600_break_no_rule_and_cover_all_faults() {
    let mut all = Report::default();
    for seed in 1..=600 {
        let (report, violation) = run(&Script::from_seed(seed), None);
        assert!(
            violation.is_none(),
            "seed {seed}: {}",
            violation.expect("one")
        );
        all.add(&report);
    }
    let unseen: Vec<&Fault> = Fault::ALL
        .iter()
        .filter(|f| all.fault_count(**f) == 0)
        .collect();
    assert!(
        unseen.is_empty(),
        "these faults never took effect: {unseen:?}"
    );
    assert!(
        all.untaken_transitions().len() <= 1,
        "not taken: {:?}",
        all.untaken_transitions()
    );
}

#[test]
fn same_seed_gives_the_same_digest() {
    let digest = |seed| run(&Script::from_seed(seed), None).0.digest();
    for seed in 1..=40 {
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
    assert!(error_text("seed 1 child everlink automatic brisk huge").contains("wide, tight"));
    let setup = "seed 1 child everlink automatic brisk wide\n";
    assert!(error_text(&format!("{setup}+1 do dance 0")).contains("`dance` is none of"));
    assert!(error_text(&format!("{setup}+x do call 0")).contains("`x` is no number"));
    assert!(error_text(&format!("{setup}call")).contains("+MILLISECONDS"));
}
