//! The checks, by subject.
//!
//! `closing` ends children that ignore a shutdown, `deaths` has children that die, `unresponsive` children that stop reading or running,
//! `noise` unwanted and large output, `descendants` processes that children spawn, `lifecycle` state and events, and `servers` servers of
//! the driver as children.

mod closing;
mod deaths;
mod descendants;
mod lifecycle;
mod noise;
mod servers;
mod unresponsive;

use crate::check::Check;

const ALL: &[&[Check]] = &[
    closing::CHECKS,
    deaths::CHECKS,
    descendants::CHECKS,
    lifecycle::CHECKS,
    noise::CHECKS,
    servers::CHECKS,
    unresponsive::CHECKS,
];

/// Returns all checks.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    ALL.iter().copied().flatten()
}

/// Returns the check with this name.
#[must_use]
pub fn find_check(name: &str) -> Option<&'static Check> {
    checks().find(|check| check.name() == name)
}
