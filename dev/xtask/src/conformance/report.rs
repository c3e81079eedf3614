//! What came of it: for each scenario, how often it was passed, and what the suite said where it was not. Knows no suite.

use core::fmt::Write;
use std::collections::BTreeMap;

use super::expected::Expected;
use super::subject::Subject;
use super::suite::Judged;

pub(super) struct Report {
    expected: Expected,
    repeats: u32,
    rows: BTreeMap<Key, Row>,
}

/// Subjects are told in the order in which they were judged.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    order: usize,
    revision: &'static str,
    is_optional: bool,
    scenario: String,
}

#[derive(Default)]
struct Row {
    subject: &'static str,
    runs: u32,
    passes: u32,
    /// The fewest checks that succeeded in a run.
    checks: Option<usize>,
    /// What was said the first time it was not passed.
    said: Option<String>,
}

/// What is to be said of one row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Expected,
    Failed,
    /// Not required, and not passed.
    Optional,
    Passed,
    /// Expected to fail, and passed.
    Surprise,
}

impl Report {
    pub(super) fn new(expected: Expected, repeats: u32) -> Report {
        Report {
            expected,
            repeats,
            rows: BTreeMap::new(),
        }
    }

    /// One more run. A scenario that is required and was not judged has failed.
    pub(super) fn add(
        &mut self,
        order: usize,
        subject: &'static Subject,
        revision: &'static str,
        required: &[String],
        judged: Vec<Judged>,
    ) {
        let key = |scenario: &str| Key {
            order,
            revision,
            is_optional: !required.iter().any(|name| name == scenario),
            scenario: scenario.to_owned(),
        };
        for name in required {
            self.rows.entry(key(name)).or_default().subject = subject.name;
            self.rows.entry(key(name)).or_default().runs += 1;
        }
        for judged in judged {
            let key = key(&judged.scenario);
            let row = self.rows.entry(key.clone()).or_default();
            row.subject = subject.name;
            row.runs += u32::from(key.is_optional);
            row.passes += u32::from(judged.is_passed());
            let checks = row.checks.unwrap_or(usize::MAX);
            row.checks = Some(checks.min(judged.succeeded));
            if !judged.is_passed() && row.said.is_none() {
                let said = judged.failed.into_iter().next();
                row.said = Some(said.unwrap_or_else(|| "nothing was checked".to_owned()));
            }
        }
    }

    /// A run of all that there is: what was not judged before is not required.
    pub(super) fn add_the_rest(
        &mut self,
        order: usize,
        subject: &'static Subject,
        revision: &'static str,
        mut judged: Vec<Judged>,
    ) {
        judged.retain(|judged| {
            let mut keys = self.rows.keys();
            !keys.any(|key| {
                (key.order, key.revision, key.scenario.as_str())
                    == (order, revision, judged.scenario.as_str())
            })
        });
        self.add(order, subject, revision, &[], judged);
    }

    fn verdict_of(&self, key: &Key, row: &Row) -> Verdict {
        let is_passed = row.passes == row.runs && row.runs > 0;
        let is_expected = self.expected.reason(row.subject, &key.scenario).is_some();
        match (is_passed, is_expected) {
            (true, false) => Verdict::Passed,
            (true, true) => Verdict::Surprise,
            (false, true) => Verdict::Expected,
            (false, false) if key.is_optional => Verdict::Optional,
            (false, false) => Verdict::Failed,
        }
    }

    /// Fails where something failed that is required, or was passed that was expected to fail.
    pub(super) fn verdict(&self) -> Result<(), String> {
        let wrong = self.rows.iter().filter_map(|(key, row)| {
            let what = match self.verdict_of(key, row) {
                Verdict::Failed => row.said.as_deref().unwrap_or("it was not judged"),
                Verdict::Surprise => "it is expected to fail, and was passed",
                Verdict::Expected | Verdict::Optional | Verdict::Passed => return None,
            };
            let (subject, revision, name) = (row.subject, key.revision, &key.scenario);
            let (passes, runs) = (row.passes, row.runs);
            Some(format!(
                "{subject}, {revision}, {name} ({passes} of {runs}): {what}"
            ))
        });
        let wrong: Vec<String> = wrong.collect();
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "the conformance suite objects:\n{}",
                wrong.join("\n")
            ))
        }
    }

    /// For a terminal.
    pub(super) fn as_table(&self) -> String {
        let mut table = String::new();
        for (key, row) in &self.rows {
            let (passes, runs) = (row.passes, row.runs);
            let result = self.words(key, row);
            let _ = writeln!(
                table,
                "{:<22} {} {:<48} {:>3} checks  {passes:>3} of {runs:<3} {result}",
                row.subject,
                key.revision,
                key.scenario,
                row.checks.unwrap_or_default(),
            );
        }
        table + &self.sums()
    }

    pub(super) fn as_markdown(&self) -> String {
        let mut page = String::from(
            "# Judged by the public conformance suite\n\n\
             Made by `cargo xtask conformance`. A scenario is passed when at least one of its checks succeeded and none failed or warned, in every repeat.\n\n",
        );
        page.push_str(&self.sums());
        let mut heading = None;
        for (key, row) in &self.rows {
            let here = (key.order, key.revision);
            if heading != Some(here) {
                heading = Some(here);
                let _ = write!(
                    page,
                    "\n## {} at {}\n\n| scenario | checks | passed | result |\n|---|---|---|---|\n",
                    row.subject, key.revision
                );
            }
            let (passes, runs) = (row.passes, row.runs);
            let checks = row.checks.unwrap_or_default();
            let result = self.words(key, row).replace('|', "\\|");
            let _ = writeln!(
                page,
                "| `{}` | {checks} | {passes} of {runs} | {result} |",
                key.scenario
            );
        }
        page
    }

    fn words(&self, key: &Key, row: &Row) -> String {
        let said = row.said.as_deref().unwrap_or("it was not judged");
        let optional = if key.is_optional {
            ", not required"
        } else {
            ""
        };
        match self.verdict_of(key, row) {
            Verdict::Expected => {
                let reason = self.expected.reason(row.subject, &key.scenario);
                format!("expected to fail{optional}: {}", reason.unwrap_or_default())
            }
            Verdict::Failed => format!("FAILED: {said}"),
            Verdict::Optional => format!("not passed, not required: {said}"),
            Verdict::Passed => format!("passed{optional}"),
            Verdict::Surprise => "PASSED, but expected to fail".to_owned(),
        }
    }

    fn sums(&self) -> String {
        let required = || self.rows.iter().filter(|(key, _)| !key.is_optional);
        let with = |verdict: Verdict| {
            let rows = required().filter(|(key, row)| self.verdict_of(key, row) == verdict);
            rows.count()
        };
        format!(
            "Of {} required scenarios, {} are passed, {} are expected to fail, {} failed; {} repeats.\n",
            required().count(),
            with(Verdict::Passed),
            with(Verdict::Expected),
            with(Verdict::Failed) + with(Verdict::Surprise),
            self.repeats
        )
    }
}
