//! The rules of the oracle.

use std::fmt;

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rule {
    /// 1. A call runs at most once.
    RunsOnce = 1,
    /// 2. A call of which its client was told that it was not processed did not run.
    RefusedDidNotRun,
    /// 3. The messages of a call come in order, each once, and the reply comes last. Only a store that lost its data may lose some.
    NumbersInOrder,
    /// 4. A session is kept until the store loses its data.
    SessionIsKept,
    /// 5. No exchange takes longer than the faults and the patience of the servers.
    NoEndlessWait,
    /// 6. When all faults are over, each client gets a reply.
    Recovers,
    /// 7. Each exchange has at most one response, with a status that fits.
    ValidResponses,
    /// 8. A call runs at the home of its session. Only a store that lost its data may name another home, until the lease is renewed.
    RunsAtHome,
    /// Nothing panics.
    NoPanic,
    /// The same script gives the same run.
    SameRun,
}

/// A violation of a rule.
pub type Violation = everlink_simulation::Violation<Rule>;

impl Rule {
    /// All rules that the oracle checks.
    pub const ALL: [Rule; 8] = [
        Rule::RunsOnce,
        Rule::RefusedDidNotRun,
        Rule::NumbersInOrder,
        Rule::SessionIsKept,
        Rule::NoEndlessWait,
        Rule::Recovers,
        Rule::ValidResponses,
        Rule::RunsAtHome,
    ];

    pub(crate) fn broken<T>(self, details: impl Into<String>) -> Result<T, Violation> {
        let (rule, details) = (self, details.into());
        Err(Violation { rule, details })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {} ({self:?})", *self as u8)
    }
}
