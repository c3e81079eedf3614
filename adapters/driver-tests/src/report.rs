//! The outcomes of checks, and their text. Must not run a check.

use std::fmt;

use crate::check::Check;

/// The outcome of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The driver does not do what the check requires. The text says what was expected and what happened.
    Failed(String),
    /// The driver passes.
    Passed,
    /// The driver lacks what the check is about, for this reason.
    Skipped(&'static str),
}

/// The outcomes of all checks with one driver. Its text lists the failures.
#[derive(Debug)]
pub struct Report {
    outcomes: Vec<(&'static Check, Outcome)>,
}

impl Report {
    pub(crate) fn new(outcomes: impl Iterator<Item = (&'static Check, Outcome)>) -> Report {
        Report {
            outcomes: outcomes.collect(),
        }
    }

    /// Returns all checks with their outcomes.
    #[must_use]
    pub fn outcomes(&self) -> &[(&'static Check, Outcome)] {
        &self.outcomes
    }

    /// Returns the failed checks, each with a text that says what was expected and what happened.
    pub fn failures(&self) -> impl Iterator<Item = (&'static Check, &str)> {
        self.outcomes
            .iter()
            .filter_map(|(check, outcome)| match outcome {
                Outcome::Failed(text) => Some((*check, text.as_str())),
                Outcome::Passed | Outcome::Skipped(_) => None,
            })
    }

    /// Returns whether no check failed.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        self.failures().next().is_none()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (_, text) in self.failures() {
            writeln!(f, "{text}")?;
        }
        let failed = self.failures().count();
        write!(f, "{failed} of {} checks failed", self.outcomes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Report};
    use crate::checks::checks;

    #[test]
    fn report_lists_failures_and_counts_them() {
        let outcomes = [
            Outcome::Passed,
            Outcome::Failed("it leaks".into()),
            Outcome::Skipped("no server"),
        ];
        let report = Report::new(checks().zip(outcomes));
        assert_eq!(report.to_string(), "it leaks\n1 of 3 checks failed");
        assert!(!report.is_passed());
        let passed = Report::new(checks().zip([Outcome::Passed]));
        assert!(passed.is_passed());
    }
}
