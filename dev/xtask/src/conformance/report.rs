//! The results: for each scenario, how often it passed, and the first message of a failure. Must not depend on the suite.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use super::expected::Expected;
use super::subject::Subject;
use super::suite::ScenarioResult;
use crate::step::check_none;

pub(super) struct Report {
    expected: Expected,
    repeats: u32,
    rows: BTreeMap<Key, Row>,
}

/// Orders rows by the order of the subjects.
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
    /// The lowest number of successful checks in a run.
    checks: Option<usize>,
    /// The message of the first failure.
    message: Option<String>,
}

impl Row {
    fn message(&self) -> &str {
        self.message.as_deref().unwrap_or("it was not judged")
    }
}

/// The result of one row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Expected,
    Failed,
    /// Not required, and not passed.
    Optional,
    Passed,
    /// Expected to fail, but passed.
    UnexpectedPass,
}

impl Report {
    pub(super) fn new(expected: Expected, repeats: u32) -> Report {
        Report {
            expected,
            repeats,
            rows: BTreeMap::new(),
        }
    }

    /// Adds a run. A required scenario without a result has failed.
    pub(super) fn add(
        &mut self,
        order: usize,
        subject: &'static Subject,
        revision: &'static str,
        required: &[String],
        results: Vec<ScenarioResult>,
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
        for result in results {
            let key = key(&result.scenario);
            let row = self.rows.entry(key.clone()).or_default();
            row.subject = subject.name;
            row.runs += u32::from(key.is_optional);
            row.passes += u32::from(result.is_passed());
            let checks = row.checks.unwrap_or(usize::MAX);
            row.checks = Some(checks.min(result.succeeded));
            if !result.is_passed() && row.message.is_none() {
                let message = result.failed.into_iter().next();
                row.message = Some(message.unwrap_or_else(|| "nothing was checked".to_owned()));
            }
        }
    }

    /// Adds a run of the whole suite: scenarios without a row are not required.
    pub(super) fn add_optional(
        &mut self,
        order: usize,
        subject: &'static Subject,
        revision: &'static str,
        mut results: Vec<ScenarioResult>,
    ) {
        let of_subject = self
            .rows
            .keys()
            .filter(|key| (key.order, key.revision) == (order, revision));
        let known: Vec<&str> = of_subject.map(|key| key.scenario.as_str()).collect();
        results.retain(|result| !known.contains(&result.scenario.as_str()));
        self.add(order, subject, revision, &[], results);
    }

    fn row_verdict(&self, key: &Key, row: &Row) -> Verdict {
        let is_passed = row.passes == row.runs && row.runs > 0;
        let is_expected = self.expected.reason(row.subject, &key.scenario).is_some();
        match (is_passed, is_expected) {
            (true, false) => Verdict::Passed,
            (true, true) => Verdict::UnexpectedPass,
            (false, true) => Verdict::Expected,
            (false, false) if key.is_optional => Verdict::Optional,
            (false, false) => Verdict::Failed,
        }
    }

    /// Fails if a required scenario failed, or if an expected failure passed.
    pub(super) fn result(&self) -> Result<()> {
        let problems = self.rows.iter().filter_map(|(key, row)| {
            let problem = match self.row_verdict(key, row) {
                Verdict::Failed => row.message(),
                Verdict::UnexpectedPass => "it is expected to fail, and was passed",
                Verdict::Expected | Verdict::Optional | Verdict::Passed => return None,
            };
            let (subject, revision, name) = (row.subject, key.revision, &key.scenario);
            let (passes, runs) = (row.passes, row.runs);
            Some(format!(
                "{subject}, {revision}, {name} ({passes} of {runs}): {problem}"
            ))
        });
        let problems: Vec<String> = problems.collect();
        check_none(&problems).context("the conformance suite objects")
    }

    /// The results. They are also shown in the terminal.
    pub(super) fn page(&self) -> String {
        let mut page = String::from(
            "# Judged by the public conformance suite\n\n\
             Made by `cargo xtask conformance`. A scenario is passed when at least one of its checks succeeded and none failed or warned, in every repeat.\n\n",
        );
        page += &self.totals();
        let mut heading = None;
        for (key, row) in &self.rows {
            let subject_and_revision = (key.order, key.revision);
            if heading.replace(subject_and_revision) != Some(subject_and_revision) {
                page += &format!(
                    "\n## {} at {}\n\n| scenario | checks | passed | result |\n|---|---|---|---|\n",
                    row.subject, key.revision
                );
            }
            let (scenario, passes, runs) = (&key.scenario, row.passes, row.runs);
            let checks = row.checks.unwrap_or_default();
            let result = self.result_text(key, row).replace('|', "\\|");
            page += &format!("| `{scenario}` | {checks} | {passes} of {runs} | {result} |\n");
        }
        page
    }

    fn result_text(&self, key: &Key, row: &Row) -> String {
        let message = row.message();
        let optional = match key.is_optional {
            true => ", not required",
            false => "",
        };
        match self.row_verdict(key, row) {
            Verdict::Expected => {
                let reason = self.expected.reason(row.subject, &key.scenario);
                format!("expected to fail{optional}: {}", reason.unwrap_or_default())
            }
            Verdict::Failed => format!("FAILED: {message}"),
            Verdict::Optional => format!("not passed, not required: {message}"),
            Verdict::Passed => format!("passed{optional}"),
            Verdict::UnexpectedPass => "PASSED, but expected to fail".to_owned(),
        }
    }

    fn totals(&self) -> String {
        let required = || self.rows.iter().filter(|(key, _)| !key.is_optional);
        let with = |verdict: Verdict| {
            let rows = required().filter(|(key, row)| self.row_verdict(key, row) == verdict);
            rows.count()
        };
        format!(
            "Of {} required scenarios, {} are passed, {} are expected to fail, {} failed; {} repeats.\n",
            required().count(),
            with(Verdict::Passed),
            with(Verdict::Expected),
            with(Verdict::Failed) + with(Verdict::UnexpectedPass),
            self.repeats
        )
    }
}
