//! The script of a run: its seed and its timed faults. Generated from a seed, written as text and parsed. Must not run anything.

use everlink_simulation::{Rng, script_enum, script_line};

use crate::Script;

/// When faults end, in milliseconds.
pub(crate) const CALM: u64 = 20_000;

script_enum! {
    /// The injected faults.
    pub enum Fault {
        /// A server is killed. The store notices later.
        8 Kill = "kill",
        /// A server is started where there is none.
        12 Start = "start",
        /// A server is shut down.
        4 Drain = "drain",
        /// The store is away for a while.
        4 StoreAway = "store-away",
        /// A server cannot reach the store for a while.
        4 CutOff = "cut-off",
        /// The store loses its data.
        1 Forget = "forget",
        /// The connection of an exchange breaks.
        12 Break = "break",
    }
}

script_line! {
    /// The setup of a run.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Setup: "seed ", "seed NUMBER" {
        /// The seed of everything that the steps leave open.
        pub seed: u64,
    }
}

script_line! {
    /// A fault at a time.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Step: "+", "+MILLISECONDS FAULT WHICH MILLISECONDS" {
        /// The time after the step before, in milliseconds.
        pub after: u64,
        /// The fault.
        pub fault: Fault,
        /// The number of a server, or of an exchange.
        pub which: u64,
        /// How long it lasts, in milliseconds.
        pub span: u64,
    }
}

/// The script of a seed. It has some of the faults.
pub(crate) fn from_seed(seed: u64) -> Script {
    let rng = &mut Rng::new(seed, 1);
    let weights = rng.some_of(Fault::WEIGHTS);
    let (mut steps, mut passed) = (Vec::new(), 0);
    while passed < CALM && weights.iter().sum::<u64>() > 0 {
        let step = Step {
            after: rng.below(1_200),
            fault: rng.choose(Fault::ALL, &weights),
            which: rng.below(60),
            span: 200 + rng.below(8_000),
        };
        passed += step.after;
        steps.push(step);
    }
    let setup = Setup { seed };
    Script { setup, steps }
}
