//! Chooses which figures are plotted, and their titles. Must not draw.

use anyhow::Result;

use super::figures::{Figures, distinct};
use super::plot::{self, Mark, Panel, Row};

/// The most informative cases and metrics of each work.
#[rustfmt::skip]
const PANELS: &[(&str, &[(&str, &str)])] = &[
    ("in_process", &[("100 B", "instructions"), ("1 MB", "instructions"), ("100 B", "allocations")]),
    ("decode", &[("200 B", "instructions"), ("59 KB", "instructions"), ("1 MB", "instructions")]),
    ("stdio", &[("one core", "p50"), ("two cores", "p50"), ("two cores", "throughput at 64")]),
    ("http", &[("one core", "p50"), ("two cores", "p50"), ("two cores", "throughput at 64")]),
    ("proxy", &[("two cores", "p50 direct"), ("two cores", "p50 through"), ("two cores", "throughput at 64")]),
    ("idle", &[("10,000 pairs", "heap per pair"), ("500 children", "heap per client")]),
    ("death", &[("stdio kill -9, 1 call", "error_after_kill"), ("stdio kill -9, 100 calls", "error_after_kill"), ("http reset, 1 call", "error_after"), ("frozen, 500 ms deadline", "error_after")]),
];

/// The titles of metrics in the plots.
const TITLES: &[(&str, &str)] = &[
    ("allocations", "allocations of a call"),
    ("error_after", "until every caller has an error"),
    (
        "error_after_kill",
        "from the signal until every caller has an error",
    ),
    ("heap per client", "heap of an idle client"),
    ("heap per pair", "heap of an idle client and server"),
    ("instructions", "instructions"),
    ("p50", "time of a call, median"),
    ("p50 direct", "time of a call without a guard, median"),
    ("p50 through", "time of a call through a guard, median"),
    ("throughput at 64", "calls a second, 64 in flight"),
];

/// A plot for each measured work.
pub(super) fn plots(figures: &Figures) -> Result<Vec<(&'static str, String)>> {
    let mut plots = Vec::new();
    for (work, panels) in PANELS {
        let panels = panels.iter();
        let panels = panels.filter_map(|(case, metric)| panel(figures, work, case, metric));
        let panels: Vec<Panel<'_>> = panels.collect();
        if !panels.is_empty() {
            plots.push((*work, plot::draw(work, &panels)?));
        }
    }
    Ok(plots)
}

fn panel<'a>(
    figures: &'a Figures,
    work: &'a str,
    case: &'a str,
    metric: &'a str,
) -> Option<Panel<'a>> {
    let plotted = figures.of_case(work, case);
    let plotted = plotted.filter(move |figure| figure.metric == metric);
    let row = |who| {
        let of_library = plotted.clone().filter(|figure| figure.who == who);
        let marks = of_library.map(|figure| Mark {
            era: &figure.era,
            rounds: figure.rounds(),
            note: figure.note.as_deref(),
        });
        Row {
            who,
            marks: marks.collect(),
        }
    };
    let title = TITLES.iter().find(|(name, _)| *name == metric);
    let title = title.map_or(metric, |(_, title)| *title);
    Some(Panel {
        title: format!("{case}: {title}"),
        unit: &plotted.clone().next()?.unit,
        is_more_better: metric.starts_with("throughput"),
        rows: distinct(plotted.clone().map(|figure| &*figure.who))
            .into_iter()
            .map(row)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::line;
    use super::*;

    #[test]
    fn unmeasured_metrics_are_not_plotted() {
        let work_case_metric = ["stdio", "one core", "p50"];
        let lines = [
            line(work_case_metric, "raw", "both", "4"),
            line(work_case_metric, "everlink-tokio", "legacy", "12"),
            line(["stdio", "one core", "p99"], "somebody", "legacy", "12"),
        ];
        let figures = Figures::from_lines(&lines.join("\n")).expect("figures");
        let plotted = plots(&figures).expect("plots");
        let [(work, plot_text)] = &plotted[..] else {
            panic!("one work was measured");
        };
        assert_eq!(*work, "stdio");
        assert!(plot_text.contains("one core: time of a call, median"));
        assert!(plot_text.contains("\neverlink-tokio\n"));
        assert!(!plot_text.contains("two cores"));
        assert!(!plot_text.contains("somebody"));
    }
}
