//! The measured figures, parsed from JSON lines. Must not judge them.

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::step::with_commas;

/// All figures, in the order of the lines.
pub(super) struct Figures(Vec<Figure>);

/// One figure: a library, its work, case and era, a metric and its value.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Figure {
    pub(super) work: String,
    pub(super) case: String,
    pub(super) era: String,
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) who: String,
    /// The median, lowest and highest of all rounds; `None` if there was nothing to wait for.
    value: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    /// Why there is no value, or another remark.
    pub(super) note: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rounds {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The libraries without a protocol, which mark the lower bound.
const BASELINES: [&str; 3] = ["floor", "raw", "serde_json"];

/// The era of figures that do not depend on it.
const BOTH: &str = "both";

impl Figures {
    /// Parses lines of JSON objects.
    pub(super) fn from_lines(lines: &str) -> Result<Figures> {
        let figures = lines.lines().map(|line| {
            let line = line.replace(r#""unit":"us""#, r#""unit":"µs""#);
            let figure = serde_json::from_str(&line);
            figure.with_context(|| format!("this was said, and is no figure: {line}"))
        });
        figures.collect::<Result<_>>().map(Figures)
    }

    pub(super) fn has_work(&self, work: &str) -> bool {
        self.0.iter().any(|figure| figure.work == work)
    }

    /// The cases of a work.
    pub(super) fn cases(&self, work: &str) -> Vec<&str> {
        let work_figures = self.0.iter().filter(|figure| figure.work == work);
        distinct(work_figures.map(|figure| &*figure.case))
    }

    /// The figures of a case.
    pub(super) fn of_case<'a>(
        &'a self,
        work: &str,
        case: &str,
    ) -> impl Iterator<Item = &'a Figure> + Clone {
        let is_of_case = move |figure: &&Figure| figure.work == work && figure.case == case;
        self.0.iter().filter(is_of_case)
    }

    /// The figure of a library in an era, or in both.
    pub(super) fn find(
        &self,
        work: &str,
        case: &str,
        metric: &str,
        who: &str,
        era: &str,
    ) -> Option<&Figure> {
        self.of_case(work, case).find(|figure| {
            let is_of_era = figure.era == era || figure.era == BOTH || era == BOTH;
            figure.metric == metric && figure.who == who && is_of_era
        })
    }

    /// The ratio of a figure to its baseline. `None` for the baseline itself.
    pub(super) fn ratio(&self, figure: &Figure) -> Option<f64> {
        let baseline = BASELINES.iter().find_map(|baseline| {
            let (work, case, metric) = (&figure.work, &figure.case, &figure.metric);
            self.find(work, case, metric, baseline, &figure.era)
        })?;
        let (baseline_median, figure_median) = (baseline.value?, figure.value?);
        (baseline.who != figure.who && baseline_median > 0.0)
            .then(|| figure_median / baseline_median)
    }

    /// The metrics of a case.
    pub(super) fn metrics(&self, work: &str, case: &str) -> Vec<&str> {
        distinct(self.of_case(work, case).map(|figure| &*figure.metric))
    }
}

impl Figure {
    pub(super) fn rounds(&self) -> Option<Rounds> {
        let median = self.value?;
        let (low, high) = (self.low.unwrap_or(median), self.high.unwrap_or(median));
        Some(Rounds { median, low, high })
    }

    /// The value with its unit.
    pub(super) fn value(&self) -> String {
        let shown = |value| format!("{} {}", format_number(value), self.unit);
        self.value
            .map_or_else(|| "-".into(), |value| shown(value).trim_end().to_owned())
    }
}

/// Formats a number with its significant digits and commas between thousands.
pub(super) fn format_number(value: f64) -> String {
    let size = value.abs();
    let digits = match size {
        _ if size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let rest = match rest.trim_end_matches('0') {
        "" => String::new(),
        rest => format!(".{rest}"),
    };
    let (sign, whole) = match whole.strip_prefix('-') {
        Some(whole) => ("-", whole),
        None => ("", whole),
    };
    let whole = with_commas(whole);
    format!("{sign}{whole}{rest}")
}

/// Formats a ratio.
pub(super) fn format_ratio(ratio: f64) -> String {
    format!("×{}", format_number(ratio))
}

/// Each word once, in the order of first occurrence.
pub(super) fn distinct<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all = Vec::new();
    for word in words {
        if !all.contains(&word) {
            all.push(word);
        }
    }
    all
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A line in the format of `bench-peers`.
    pub(crate) fn line(work_case_metric: [&str; 3], who: &str, era: &str, value: &str) -> String {
        let [work, case, metric] = work_case_metric;
        format!(
            r#"{{"work":"{work}","case":"{case}","era":"{era}","metric":"{metric}","unit":"us","who":"{who}","value":{value}}}"#
        )
    }

    #[test]
    fn json_lines_are_parsed_into_figures() {
        let range_or_note = r#"{"work":"stdio","case":"one core","era":"legacy","metric":"p50","unit":"us","who":"us","value":12.3,"low":11.9,"high":13.4}
{"work":"death","case":"frozen","era":"both","metric":"error_after","unit":"ms","who":"them","value":null,"note":"hangs"}"#;
        let figures = Figures::from_lines(range_or_note).expect("figures");
        let p50 = figures.find("stdio", "one core", "p50", "us", "legacy");
        let rounds = p50.and_then(Figure::rounds).expect("a value");
        assert_eq!((rounds.low, rounds.median, rounds.high), (11.9, 12.3, 13.4));
        assert!(
            figures
                .find("stdio", "one core", "p50", "us", "modern")
                .is_none()
        );
        let frozen = figures.find("death", "frozen", "error_after", "them", "modern");
        let frozen = frozen.expect("it is of both eras");
        assert_eq!(
            (frozen.rounds(), frozen.note.as_deref()),
            (None, Some("hangs"))
        );
        assert_eq!(frozen.value(), "-");
        assert!(Figures::from_lines("{}").is_err());
        assert!(Figures::from_lines("round 3 of 5").is_err());
    }

    #[test]
    fn ratio_is_relative_to_the_baseline() {
        let work_case_metric = ["stdio", "one core", "p50"];
        let range_or_note = [
            line(work_case_metric, "raw", "both", "4"),
            line(work_case_metric, "us", "legacy", "10"),
            line(["stdio", "two cores", "p50"], "us", "legacy", "10"),
        ];
        let figures = Figures::from_lines(&range_or_note.join("\n")).expect("figures");
        let ratios: Vec<_> = figures
            .0
            .iter()
            .map(|figure| figures.ratio(figure))
            .collect();
        assert_eq!(ratios, [None, Some(2.5), None]);
    }

    #[test]
    fn numbers_are_rounded_to_significant_digits() {
        for (value, expected) in [
            (0.0, "0"),
            (0.287, "0.29"),
            (-0.58, "-0.58"),
            (2.001, "2"),
            (2.5, "2.5"),
            (10.0, "10"),
            (15.58, "15.6"),
            (501.8, "502"),
            (1_294_636.0, "1,294,636"),
            (-1_500.4, "-1,500"),
        ] {
            assert_eq!(format_number(value), expected);
        }
    }
}
