//! The expected failures with their reasons. Must not depend on results.

use anyhow::{Context as _, Result};

use crate::step;

const FILE: &str = "dev/conformance/expected-failures.txt";

/// The lines of that file.
pub(super) struct Expected(Vec<Row>);

struct Row {
    /// The name of a subject, or `*` for all.
    subject: String,
    /// A scenario, or a prefix that ends with `*`.
    scenario: String,
    reason: String,
}

impl Expected {
    pub(super) fn read() -> Result<Expected> {
        Expected::parse(&step::read(FILE)?)
    }

    /// Parses lines of the form `subject | scenario | reason`.
    fn parse(text: &str) -> Result<Expected> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let row = |line: &str| {
            let mut parts = line.splitn(3, '|').map(|part| part.trim().to_owned());
            let (subject, scenario) = (parts.next()?, parts.next()?);
            let reason = parts.next().filter(|reason| !reason.is_empty())?;
            Some(Row {
                subject,
                scenario,
                reason,
            })
        };
        let rows = lines.map(|line| {
            row(line).with_context(|| {
                format!("an expected failure needs a subject, a scenario and a reason: {line}")
            })
        });
        rows.collect::<Result<_>>().map(Expected)
    }

    /// The reason why this scenario may fail for this subject, if there is one.
    pub(super) fn reason(&self, subject: &str, scenario: &str) -> Option<&str> {
        let row = self.0.iter().find(|row| {
            let is_scenario = match row.scenario.strip_suffix('*') {
                Some(prefix) => scenario.starts_with(prefix),
                None => row.scenario == scenario,
            };
            is_scenario && (row.subject == "*" || row.subject == subject)
        });
        row.map(|row| row.reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Expected;

    #[test]
    fn reason_matches_subject_and_scenario_with_wildcards() {
        let text = "# why\n\n* | auth/* | no OAuth\nserver behind a guard | ping | because";
        let expected = Expected::parse(text).expect("it is well-formed");
        assert_eq!(expected.reason("client", "auth/basic"), Some("no OAuth"));
        assert_eq!(
            expected.reason("server behind a guard", "ping"),
            Some("because")
        );
        assert_eq!(expected.reason("server", "ping"), None);
        assert_eq!(expected.reason("server behind a guard", "pingpong"), None);
        assert!(Expected::parse("* | auth/*").is_err());
        assert!(Expected::parse("* | auth/* | ").is_err());
    }
}
