//! What is known to fail, with the reason. Knows not what did.

use std::fs;

use crate::step::root;

/// `dev/conformance/expected-failures.txt`.
pub(super) struct Expected(Vec<Row>);

struct Row {
    /// The name of a subject, or of all with `*`.
    subject: String,
    /// A scenario, or all that begin like this with `*` at the end.
    scenario: String,
    reason: String,
}

impl Expected {
    pub(super) fn read() -> Result<Expected, String> {
        let file = root().join("dev/conformance/expected-failures.txt");
        let text = fs::read_to_string(&file)
            .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
        Expected::parse(&text)
    }

    /// Lines of `subject | scenario | reason`.
    fn parse(text: &str) -> Result<Expected, String> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let rows = lines.map(|line| {
            let mut parts = line.splitn(3, '|').map(|part| part.trim().to_owned());
            match (parts.next(), parts.next(), parts.next()) {
                (Some(subject), Some(scenario), Some(reason)) if !reason.is_empty() => Ok(Row {
                    subject,
                    scenario,
                    reason,
                }),
                _ => Err(format!(
                    "an expected failure needs a subject, a scenario and a reason: {line}"
                )),
            }
        });
        rows.collect::<Result<_, _>>().map(Expected)
    }

    /// Why this scenario may fail for this subject, if it may.
    pub(super) fn reason(&self, subject: &str, scenario: &str) -> Option<&str> {
        let row = self.0.iter().find(|row| {
            let is_scenario = match row.scenario.strip_suffix('*') {
                Some(beginning) => scenario.starts_with(beginning),
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
    fn a_failure_is_expected_of_whom_it_is_said() {
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
