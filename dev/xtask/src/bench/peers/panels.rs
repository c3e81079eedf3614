//! Which figures are drawn, and how they are called there. Knows not how anything is drawn.

use super::figures::{Figures, once};
use super::plot::{self, Mark, Panel, Row};

/// For each work, the cases and metrics that tell most.
const PANELS: &[(&str, &[(&str, &str)])] = &[
    (
        "in_process",
        &[
            ("100 B", "instructions"),
            ("1 MB", "instructions"),
            ("100 B", "allocations"),
        ],
    ),
    (
        "decode",
        &[
            ("200 B", "instructions"),
            ("59 KB", "instructions"),
            ("1 MB", "instructions"),
        ],
    ),
    (
        "stdio",
        &[
            ("one core", "p50"),
            ("two cores", "p50"),
            ("two cores", "throughput at 64"),
        ],
    ),
    (
        "http",
        &[
            ("one core", "p50"),
            ("two cores", "p50"),
            ("two cores", "throughput at 64"),
        ],
    ),
    (
        "proxy",
        &[
            ("two cores", "p50 direct"),
            ("two cores", "p50 through"),
            ("two cores", "throughput at 64"),
        ],
    ),
    (
        "idle",
        &[
            ("10,000 pairs", "heap per pair"),
            ("500 children", "heap per client"),
        ],
    ),
    (
        "death",
        &[
            ("stdio kill -9, 1 call", "error_after_kill"),
            ("stdio kill -9, 100 calls", "error_after_kill"),
            ("http reset, 1 call", "error_after"),
            ("frozen, 500 ms deadline", "error_after"),
        ],
    ),
];

/// How metrics are called where there is room for it.
const WORDS: &[(&str, &str)] = &[
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

/// A picture for each work that was measured.
pub(super) fn pictures(figures: &Figures) -> Vec<(&'static str, String)> {
    let drawn = PANELS.iter().filter_map(|(work, panels)| {
        let panels = panels
            .iter()
            .filter_map(|(case, metric)| panel(figures, work, case, metric));
        let panels: Vec<Panel<'_>> = panels.collect();
        (!panels.is_empty()).then(|| (*work, plot::draw(work, &panels)))
    });
    drawn.collect()
}

fn panel<'a>(
    figures: &'a Figures,
    work: &'a str,
    case: &'a str,
    metric: &'a str,
) -> Option<Panel<'a>> {
    let drawn = figures
        .of(work, case)
        .filter(move |figure| figure.metric == metric);
    let rows = once(drawn.clone().map(|figure| &*figure.who)).into_iter();
    let rows = rows.map(|who| {
        let of_who = drawn.clone().filter(|figure| figure.who == who);
        Row {
            who,
            marks: of_who
                .map(|figure| Mark {
                    era: &figure.era,
                    rounds: figure.rounds,
                    note: figure.note.as_deref(),
                })
                .collect(),
        }
    });
    let words = WORDS.iter().find(|(name, _)| *name == metric);
    let words = words.map_or(metric, |(_, words)| *words);
    Some(Panel {
        title: format!("{case}: {words}"),
        unit: &drawn.clone().next()?.unit,
        is_more_better: metric.starts_with("throughput"),
        rows: rows.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::line;
    use super::*;

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        let place = ["stdio", "one core", "p50"];
        let lines = [
            line(place, "raw", "both", "4"),
            line(place, "everlink-tokio", "legacy", "12"),
            line(["stdio", "one core", "p99"], "somebody", "legacy", "12"),
        ];
        let figures = Figures::from_lines(&lines.join("\n")).expect("figures");
        let drawn = pictures(&figures);
        let [(work, picture)] = &drawn[..] else {
            panic!("one work was measured");
        };
        assert_eq!(*work, "stdio");
        assert!(picture.contains("one core: time of a call, median"));
        assert!(picture.contains(">everlink-tokio<"));
        assert!(!picture.contains("two cores"));
        assert!(!picture.contains("somebody"));
    }
}
