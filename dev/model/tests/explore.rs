//! Explores every machine to a small depth; `cargo xtask explore` goes further.

use model::explore::{Bounds, MACHINES, explore};

#[test]
fn no_short_sequence_breaks_a_rule_of_any_machine() {
    for (machine, _) in MACHINES {
        let bounds = Bounds::depth(3).with_threads(2).with_pairs(50);
        let report = explore(machine, bounds).unwrap_or_else(|violation| panic!("{violation}"));
        println!("{report:?}");
        assert!(report.actions >= 15 && report.states >= 10, "{report:?}");
        assert!(
            report.pairs > 0 && report.differing.is_empty(),
            "{report:?}"
        );
    }
}

#[test]
fn result_does_not_depend_on_the_number_of_threads() {
    let [one, three] =
        [1, 3].map(|threads| explore("client", Bounds::depth(2).with_threads(threads)));
    assert_eq!(one, three);
}
