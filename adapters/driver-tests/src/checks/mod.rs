//! The checks, by subject.
//!
//! `closing` checks the end of a link, and `deaths` children that die. `unresponsive` checks children that stop reading or running, and `noise`
//! unwanted or large output. `descendants` checks processes that children spawn, and `lifecycle` states and events. `servers` checks the
//! driver's own servers, run as children.

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

#[cfg(test)]
mod tests {
    use super::checks;

    #[test]
    fn checks_have_unique_names_and_a_sentence_each() {
        let mut names: Vec<&str> = checks().map(|check| check.name()).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        for check in checks() {
            let sentence = check.requirement();
            assert!(sentence.ends_with('.'), "{}: {sentence}", check.name());
        }
    }
}
