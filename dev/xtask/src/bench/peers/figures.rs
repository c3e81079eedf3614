//! What was measured, as it was said line by line. Knows not what is good.

use core::fmt::Write;

use serde_json::Value;

/// All that was measured, in the order in which it was said.
pub(super) struct Figures(Vec<Figure>);

/// One measurement: who did which work, in which case and era, and how much of something it took.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) work: String,
    pub(super) case: String,
    pub(super) era: String,
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) who: String,
    /// The median, lowest and highest of all rounds; nothing where there was nothing to wait for.
    pub(super) rounds: Option<Rounds>,
    /// Why there is no value, or what else is to be said.
    pub(super) note: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rounds {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Who speaks no protocol, and so marks what nobody can do without.
const FLOORS: [&str; 3] = ["floor", "raw", "serde_json"];

/// The era of what does not depend on it.
const BOTH: &str = "both";

impl Figures {
    /// Each line is a JSON object.
    pub(super) fn from_lines(lines: &str) -> Result<Figures, String> {
        let figures = lines.lines().map(|line| {
            let read = serde_json::from_str(line).ok();
            read.as_ref()
                .and_then(Figure::from_json)
                .ok_or_else(|| format!("this was said, and is no figure: {line}"))
        });
        figures.collect::<Result<_, _>>().map(Figures)
    }

    pub(super) fn is_about(&self, work: &str) -> bool {
        self.0.iter().any(|figure| figure.work == work)
    }

    /// The cases of a work.
    pub(super) fn cases(&self, work: &str) -> Vec<&str> {
        let of_work = self.0.iter().filter(|figure| figure.work == work);
        once(of_work.map(|figure| &*figure.case))
    }

    /// What was measured of a case.
    pub(super) fn of<'a>(
        &'a self,
        work: &str,
        case: &str,
    ) -> impl Iterator<Item = &'a Figure> + Clone {
        let is_of = move |figure: &&Figure| figure.work == work && figure.case == case;
        self.0.iter().filter(is_of)
    }

    /// What somebody took in an era, or in all alike.
    pub(super) fn find(
        &self,
        work: &str,
        case: &str,
        metric: &str,
        who: &str,
        era: &str,
    ) -> Option<&Figure> {
        self.of(work, case).find(|figure| {
            let is_of_era = figure.era == era || figure.era == BOTH || era == BOTH;
            figure.metric == metric && figure.who == who && is_of_era
        })
    }

    /// How many times of what nobody can do without this is. Nothing for the floor itself.
    pub(super) fn ratio(&self, figure: &Figure) -> Option<f64> {
        let floor = FLOORS.iter().find_map(|floor| {
            let (work, case, metric) = (&figure.work, &figure.case, &figure.metric);
            self.find(work, case, metric, floor, &figure.era)
        })?;
        let (floor_is, figure_is) = (floor.rounds?.median, figure.rounds?.median);
        (floor.who != figure.who && floor_is > 0.0).then(|| figure_is / floor_is)
    }

    /// What was measured of a case, without the figures themselves.
    pub(super) fn metrics(&self, work: &str, case: &str) -> Vec<&str> {
        once(self.of(work, case).map(|figure| &*figure.metric))
    }

    /// For a terminal: a line for each figure.
    pub(super) fn as_table(&self) -> String {
        let mut table = String::new();
        for work in once(self.0.iter().map(|figure| &*figure.work)) {
            for case in self.cases(work) {
                for metric in self.metrics(work, case) {
                    let _ = writeln!(table, "{work}, {case}: {metric}");
                    let of_metric = self.of(work, case).filter(|figure| figure.metric == metric);
                    for figure in of_metric {
                        let _ = writeln!(table, "{}", self.as_line(figure).trim_end());
                    }
                }
            }
        }
        table
    }

    fn as_line(&self, figure: &Figure) -> String {
        let said = match figure.rounds {
            Some(Rounds { low, high, .. }) if low < high => {
                format!("{} .. {}", number(low), number(high))
            }
            _ => figure.note.clone().unwrap_or_default(),
        };
        let ratio = self.ratio(figure).map(times).unwrap_or_default();
        let (who, era, value) = (&figure.who, &figure.era, figure.value());
        format!("  {who:18} {era:8} {value:>18} {ratio:>8}  {said}")
    }
}

impl Figure {
    fn from_json(line: &Value) -> Option<Figure> {
        let text = |name: &str| line[name].as_str().map(str::to_owned);
        let rounds = if line["value"].is_null() {
            None
        } else {
            let median = line["value"].as_f64()?;
            Some(Rounds {
                median,
                low: line["low"].as_f64().unwrap_or(median),
                high: line["high"].as_f64().unwrap_or(median),
            })
        };
        Some(Figure {
            work: text("work")?,
            case: text("case")?,
            era: text("era")?,
            metric: text("metric")?,
            unit: text("unit")?.replace("us", "µs"),
            who: text("who")?,
            rounds,
            note: text("note"),
        })
    }

    /// The value with its unit.
    pub(super) fn value(&self) -> String {
        match self.rounds {
            Some(rounds) if self.unit.is_empty() => number(rounds.median),
            Some(rounds) => format!("{} {}", number(rounds.median), self.unit),
            None => "-".into(),
        }
    }
}

/// As many digits as mean something, with thousands apart.
pub(super) fn number(value: f64) -> String {
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
    let whole = crate::bench::apart(whole);
    format!("{sign}{whole}{rest}")
}

/// A ratio.
pub(super) fn times(ratio: f64) -> String {
    format!("×{}", number(ratio))
}

/// Each word once, in the order in which they come first.
pub(super) fn once<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
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

    /// A line as it is said.
    pub(crate) fn line(place: [&str; 3], who: &str, era: &str, value: &str) -> String {
        let [work, case, metric] = place;
        format!(
            r#"{{"work":"{work}","case":"{case}","era":"{era}","metric":"{metric}","unit":"us","who":"{who}","value":{value}}}"#
        )
    }

    #[test]
    fn lines_are_figures() {
        let said = r#"{"work":"stdio","case":"one core","era":"legacy","metric":"p50","unit":"us","who":"us","value":12.3,"low":11.9,"high":13.4}
{"work":"death","case":"frozen","era":"both","metric":"error_after","unit":"ms","who":"them","value":null,"note":"hangs"}"#;
        let figures = Figures::from_lines(said).expect("figures");
        let p50 = figures.find("stdio", "one core", "p50", "us", "legacy");
        let rounds = p50.and_then(|figure| figure.rounds).expect("a value");
        assert_eq!((rounds.low, rounds.median, rounds.high), (11.9, 12.3, 13.4));
        assert!(
            figures
                .find("stdio", "one core", "p50", "us", "modern")
                .is_none()
        );
        let frozen = figures.find("death", "frozen", "error_after", "them", "modern");
        let frozen = frozen.expect("it is of both eras");
        assert_eq!(
            (frozen.rounds, frozen.note.as_deref()),
            (None, Some("hangs"))
        );
        assert_eq!(frozen.value(), "-");
        assert!(Figures::from_lines("{}").is_err());
        assert!(Figures::from_lines("round 3 of 5").is_err());
    }

    #[test]
    fn ratios_are_to_the_floor() {
        let place = ["stdio", "one core", "p50"];
        let said = [
            line(place, "raw", "both", "4"),
            line(place, "us", "legacy", "10"),
            line(["stdio", "two cores", "p50"], "us", "legacy", "10"),
        ];
        let figures = Figures::from_lines(&said.join("\n")).expect("figures");
        let ratios: Vec<_> = figures
            .0
            .iter()
            .map(|figure| figures.ratio(figure))
            .collect();
        assert_eq!(ratios, [None, Some(2.5), None]);
        assert!(figures.as_table().contains("×2.5"));
    }

    #[test]
    fn numbers_have_the_digits_that_mean_something() {
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
            assert_eq!(number(value), expected);
        }
    }
}
