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
