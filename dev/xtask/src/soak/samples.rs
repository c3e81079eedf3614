//! The samples of a run, parsed from its table. Must not judge them.

use std::collections::BTreeMap;

/// All samples, in the order of time.
pub(super) struct Samples(Vec<Sample>);

/// The resources of one process at one moment.
struct Sample {
    seconds: f64,
    is_at_rest: bool,
    process: String,
    pid: u32,
    values: BTreeMap<String, f64>,
}

impl Samples {
    /// Parses lines of values that are separated by tabs. The first line names the columns.
    pub(super) fn from_table(table: &str) -> Result<Samples, String> {
        let mut lines = table.lines();
        let names: Vec<&str> = lines.next().unwrap_or_default().split('\t').collect();
        let parsed = lines.map(|line| {
            let cells: BTreeMap<&str, &str> = names.iter().copied().zip(line.split('\t')).collect();
            Sample::from_cells(&cells).ok_or_else(|| format!("this is no sample: {line}"))
        });
        parsed.collect::<Result<_, _>>().map(Samples)
    }

    /// The values of a column with their times in seconds, under load or at rest.
    pub(super) fn series(&self, process: &str, column: &str, is_at_rest: bool) -> Vec<(f64, f64)> {
        let chosen = self
            .0
            .iter()
            .filter(|sample| sample.process == process && sample.is_at_rest == is_at_rest);
        chosen
            .filter_map(|sample| Some((sample.seconds, *sample.values.get(column)?)))
            .collect()
    }

    /// How many process ids a process had, one after the other.
    pub(super) fn lives(&self, process: &str) -> usize {
        let chosen = self.0.iter().filter(|sample| sample.process == process);
        let mut pids: Vec<u32> = chosen.map(|sample| sample.pid).collect();
        pids.dedup();
        pids.len()
    }

    /// How many samples were taken at rest.
    pub(super) fn rests(&self) -> usize {
        let first = self.0.first().map(|sample| sample.process.clone());
        let at_rest = self.0.iter().filter(|sample| sample.is_at_rest);
        at_rest
            .filter(|sample| Some(&sample.process) == first.as_ref())
            .count()
    }
}

impl Sample {
    fn from_cells(cells: &BTreeMap<&str, &str>) -> Option<Sample> {
        let numbers = cells
            .iter()
            .filter_map(|(name, cell)| Some(((*name).to_owned(), cell.parse().ok()?)));
        Some(Sample {
            seconds: cells.get("seconds")?.parse().ok()?,
            is_at_rest: *cells.get("phase")? == "rest",
            process: (*cells.get("process")?).to_owned(),
            pid: cells.get("pid")?.parse().ok()?,
            values: numbers.collect(),
        })
    }
}
