//! A few of the runs that `cargo xtask sim` plays by the hundred thousand.

use everlink_sim::{Fault, Script, Tally, run};

#[test]
fn no_rule_is_broken_and_nothing_is_overlooked() {
    let mut all = Tally::default();
    for seed in 1..=600 {
        let (tally, broken) = run(&Script::of_seed(seed), None);
        assert!(broken.is_none(), "seed {seed}: {}", broken.expect("one"));
        all.add(&tally);
    }
    let unseen: Vec<&Fault> = Fault::ALL.iter().filter(|f| all.faults(**f) == 0).collect();
    assert!(unseen.is_empty(), "nobody saw {unseen:?}");
    assert!(all.missing().len() <= 1, "not taken: {:?}", all.missing());
}

#[test]
fn the_same_seed_is_the_same_run_to_the_byte() {
    let digest = |seed| run(&Script::of_seed(seed), None).0.digest();
    for seed in 1..=40 {
        assert_eq!(digest(seed), digest(seed), "seed {seed}");
    }
    assert_ne!(digest(1), digest(2));
}

#[test]
fn a_script_is_read_as_it_was_written() {
    for seed in 1..=200 {
        let script = Script::of_seed(seed);
        assert_eq!(script.to_string().parse(), Ok(script));
    }
}

#[test]
fn what_is_no_script_is_told_so() {
    let told = |text: &str| text.parse::<Script>().expect_err(text).to_string();
    assert!(told("").contains("seed NUMBER"));
    assert!(told("seed 1 child everlink automatic brisk huge").contains("wide, tight"));
    let setup = "seed 1 child everlink automatic brisk wide\n";
    assert!(told(&format!("{setup}+1 do dance 0")).contains("`dance` is none of"));
    assert!(told(&format!("{setup}+x do call 0")).contains("`x` is no number"));
    assert!(told(&format!("{setup}call")).contains("+MILLISECONDS"));
}
