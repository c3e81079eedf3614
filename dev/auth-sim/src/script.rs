//! The script of a run: its setup and its timed steps. Generated from a seed, written as text and parsed. Must not run anything.

use everlink_simulation::{Rng, script_enum, script_line};

use crate::Script;

/// The simulated time of a run, in milliseconds: 30 days.
pub(crate) const MONTH: u64 = 30 * 86_400_000;

script_enum! {
    /// How the authorization server treats refresh tokens.
    pub enum Refreshes {
        /// Each renewal brings a new one. The use of an old one revokes the family.
        8 Rotating = "rotating",
        /// There is one for the whole grant.
        2 Fixed = "fixed",
        /// There are none.
        1 Missing = "missing",
    }
}

script_enum! {
    /// The kind of a step. Faults take effect at the next occasion.
    pub enum Kind {
        /// The application of a process calls the server. A process that does not run is started first.
        40 Call = "call",
        /// The application sends several calls at once.
        8 Burst = "burst",
        /// The applications of all processes call at once.
        6 All = "all",
        /// The application asks for a token, whatever failed before.
        3 SignIn = "sign-in",
        /// The application gives up the sign-in.
        1 Cancel = "cancel",
        /// The application signs out.
        1 SignOut = "sign-out",
        /// A process dies: now, or before or after an output is carried out.
        14 Crash = "crash",
        /// The wall clock jumps.
        4 Jump = "jump",
        /// The computer sleeps: the monotonic clock stands still.
        6 Sleep = "sleep",
        /// An exchange with the authorization server ends with a status of 500 or above.
        5 Error = "error",
        /// An exchange ends with 429 and `Retry-After`.
        4 Busy = "busy",
        /// A request is lost: the authorization server never sees it.
        4 LostRequest = "lost-request",
        /// An answer is lost: the authorization server did what was asked.
        4 LostAnswer = "lost-answer",
        /// An answer takes longer than a process waits, or nearly as long.
        4 SlowAnswer = "slow-answer",
        /// An exchange is redirected to another host.
        2 Redirect = "redirect",
        /// The authorization server is down for some time.
        3 Outage = "outage",
        /// The store fails.
        5 StoreFails = "store-fails",
        /// The next people who are asked behave like this: they sign in, refuse, or never come.
        8 Person = "person",
        /// The authorization server revokes the grant.
        3 Revoke = "revoke",
        /// The server refuses valid tokens.
        6 Refuse = "refuse",
        /// The server wants another scope.
        3 StepUp = "step-up",
        /// The authorization server forgets its clients.
        2 Forget = "forget",
        /// The server uses the other authorization server from now on.
        1 Move = "move",
    }
}

script_line! {
    /// The world of a run.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Setup: "seed ", "seed NUMBER PROCESSES SECONDS REFRESHES" {
        /// The seed of everything that the steps leave open, such as latencies.
        pub seed: u64,
        /// The number of processes.
        pub processes: u64,
        /// How long an access token lives, in seconds.
        pub life: u64,
        /// How the authorization server treats refresh tokens.
        pub refreshes: Refreshes,
    }
}

script_line! {
    /// A step of a run.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Step: "+", "+MILLISECONDS KIND PROCESS PARAMETER" {
        /// The time after the step before, in milliseconds by the monotonic clock.
        pub after: u64,
        /// What happens.
        pub kind: Kind,
        /// The number of a process.
        pub process: u64,
        /// Details, whose meaning depends on the kind.
        pub parameter: u64,
    }
}

impl Kind {
    /// Whether an application does it. The others are faults.
    const fn is_action(self) -> bool {
        (self as u8) <= Kind::SignOut as u8
    }
}

/// The script of a seed: a month of steps. It has all actions of applications, and some of the faults.
pub(crate) fn from_seed(seed: u64) -> Script {
    let rng = &mut Rng::new(seed, 1);
    let mut weights = rng.some_of(Kind::WEIGHTS);
    for (kind, weight) in Kind::ALL.iter().zip(Kind::WEIGHTS) {
        if kind.is_action() {
            weights[*kind as usize] = *weight;
        }
    }
    let setup = Setup {
        seed,
        processes: 2 + rng.below(4) + rng.below(2) * rng.below(4),
        life: rng.millis(300, 86_400),
        refreshes: rng.choose(Refreshes::ALL, Refreshes::WEIGHTS),
    };
    let life = setup.life * 1000;
    let (mut steps, mut passed) = (Vec::new(), 0);
    let count = 40 + rng.below(100);
    while passed < MONTH {
        let after = match rng.below(16) {
            0..8 => rng.below(2_000),
            8..12 => rng.millis(1_000, 600_000),
            // Around the end of a token.
            12..14 => rng.below(life + life / 4),
            14 => life + rng.below(life),
            _ => rng.below(4 * life),
        };
        let mut step = Step {
            after,
            kind: rng.choose(Kind::ALL, &weights),
            process: rng.below(setup.processes),
            parameter: rng.next_u64() % 1_000_000,
        };
        passed += after;
        if step.kind == Kind::Sleep {
            passed += sleep_of(step.parameter);
        }
        if steps.len() >= count as usize && passed < MONTH {
            // The rest of the month is spent asleep, in a few pieces.
            step.kind = Kind::Sleep;
            step.parameter = 999_999;
            passed += sleep_of(step.parameter);
        }
        steps.push(step);
    }
    Script { setup, steps }
}

/// The length of a sleep, in milliseconds: minutes, hours or days.
pub(crate) const fn sleep_of(parameter: u64) -> u64 {
    let minutes = match parameter % 4 {
        0 => 1 + parameter / 4 % 60,
        1 | 2 => 60 + parameter / 4 % 1_440,
        _ => 1_440 + parameter / 4 % 5_760,
    };
    minutes * 60_000
}
