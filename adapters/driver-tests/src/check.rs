//! A check: its name, what it requires of a driver, and its function. Must not run it.

use std::fmt;

use crate::driver::Driver;
use crate::harness::Harness;

/// One check of the kit.
pub struct Check {
    name: &'static str,
    requirement: &'static str,
    needs: Needs,
    pub(crate) run: fn(&Harness<'_>),
}

/// What a check needs of a driver besides links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// [`Driver::drive_guard`].
    Guard,
    Nothing,
    /// [`Driver::ends_with_run`].
    RuntimeEnd,
    /// [`Driver::serve`].
    Server,
}

impl Check {
    pub(crate) const fn new(
        name: &'static str,
        requirement: &'static str,
        run: fn(&Harness<'_>),
    ) -> Check {
        Check {
            name,
            requirement,
            needs: Needs::Nothing,
            run,
        }
    }

    pub(crate) const fn needs(mut self, needs: Needs) -> Check {
        self.needs = needs;
        self
    }

    /// Returns the name, which says what is done and what must follow.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the sentence that says what the check requires of a driver.
    #[must_use]
    pub const fn requirement(&self) -> &'static str {
        self.requirement
    }

    /// Returns the reason for which this driver cannot be checked, if there is one.
    #[must_use]
    pub fn reason_to_skip(&self, driver: &dyn Driver) -> Option<&'static str> {
        match self.needs {
            Needs::Guard if driver.drive_guard().is_none() => Some("the driver has no relay"),
            Needs::RuntimeEnd if !driver.ends_with_run() => {
                Some("the end of `run` does not end the driver")
            }
            Needs::Server if driver.serve().is_none() => Some("the driver has no server"),
            _ => None,
        }
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Check({})", self.name)
    }
}

/// Creates a [`Check`] from a function and the sentence that says what it requires.
macro_rules! check {
    ($run:ident, $requirement:expr $(,)?) => {
        $crate::check::Check::new(stringify!($run), $requirement, $run)
    };
}

pub(crate) use check;
