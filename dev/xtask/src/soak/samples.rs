//! The samples of a run, parsed from its table. Must not judge them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use crate::step::parse_rows;

/// All samples, in the order of time.
pub(super) struct Samples(Vec<Sample>);

/// The cells of a row by the names of their columns: the resources of one process at one moment.
struct Sample(BTreeMap<String, String>);

impl Sample {
    fn text(&self, column: &str) -> &str {
        self.0.get(column).map_or("", String::as_str)
    }

    fn number(&self, column: &str) -> Option<f64> {
        self.text(column).parse().ok()
    }

    fn is_at_rest(&self) -> bool {
        self.text("phase") == "rest"
    }
}

impl Samples {
    /// Parses lines of values that are separated by tabs. The first line names the columns.
    pub(super) fn from_table(table: &str) -> Result<Samples> {
        let samples: Vec<Sample> = parse_rows(table)?.into_iter().map(Sample).collect();
        for sample in &samples {
            let is_whole = sample.number("seconds").and(sample.number("pid"));
            is_whole.context("soak.tsv has a row without a time or a process")?;
        }
        Ok(Samples(samples))
    }

    /// The values of a column with their times in seconds, under load or at rest.
    pub(super) fn series(&self, process: &str, column: &str, is_at_rest: bool) -> Vec<(f64, f64)> {
        let chosen = self
            .of(process)
            .filter(|sample| sample.is_at_rest() == is_at_rest);
        chosen
            .filter_map(|sample| Some((sample.number("seconds")?, sample.number(column)?)))
            .collect()
    }

    /// How many process ids a process had, one after the other.
    pub(super) fn lives(&self, process: &str) -> usize {
        let mut pids: Vec<&str> = self.of(process).map(|sample| sample.text("pid")).collect();
        pids.dedup();
        pids.len()
    }

    /// How many samples were taken at rest.
    pub(super) fn rests(&self) -> usize {
        let first = self.0.first().map_or("", |sample| sample.text("process"));
        self.of(first).filter(|sample| sample.is_at_rest()).count()
    }

    fn of(&self, process: &str) -> impl Iterator<Item = &Sample> {
        self.0
            .iter()
            .filter(move |sample| sample.text("process") == process)
    }
}
