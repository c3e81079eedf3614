//! Draws bars with whiskers as SVG, for light and dark pages. Must not depend on what is drawn.

use core::fmt::Write;

use super::figures::{Rounds, format_number};

/// One axis with its rows.
pub(super) struct Panel<'a> {
    pub(super) title: String,
    pub(super) unit: &'a str,
    pub(super) is_more_better: bool,
    pub(super) rows: Vec<Row<'a>>,
}

pub(super) struct Row<'a> {
    pub(super) who: &'a str,
    pub(super) marks: Vec<Mark<'a>>,
}

/// A bar. Without a value it has no end, and the note says why.
pub(super) struct Mark<'a> {
    pub(super) era: &'a str,
    pub(super) rounds: Option<Rounds>,
    pub(super) note: Option<&'a str>,
}

const WIDTH: f64 = 800.0;
/// The left end of bars; names are to the left of it.
const LEFT: f64 = 152.0;
/// The right end of the longest bar; its value is to the right of it.
const RIGHT: f64 = 660.0;
const BAR: f64 = 11.0;
/// The distance of bars in a row, and of rows.
const PITCH: f64 = 14.0;
const GAP: f64 = 9.0;
const HEAD: f64 = 34.0;
const FOOT: f64 = 26.0;
const MARGIN: f64 = 14.0;

/// If values spread wider than this factor, a log scale is used, because short bars would be invisible.
const MAX_LINEAR_SPREAD: f64 = 40.0;

/// One colour for each library in all plots: strong colours for ours, grey for the baselines.
const COLOURS: &[(&str, &str)] = &[
    ("everlink", "#2f81f7"),
    ("everlink-json", "#79b0ff"),
    ("everlink-stdio", "#12a594"),
    ("everlink-tokio", "#2f81f7"),
    ("rmcp", "#c98a4b"),
    ("rmcp-default", "#dfb88f"),
    ("rmcp-pooled", "#c98a4b"),
    ("rmcp-stdio", "#dfb88f"),
    ("rmcp-stdio_pipes", "#c98a4b"),
];
const GREY: &str = "#8b949e";

/// The plot has its own background, because a page may be light while the system is dark.
const STYLE: &str = "\
text{font:12px -apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2328}\
.h{font-size:13px;font-weight:600}.b{font-weight:600}.m{fill:#656d76;font-size:11px}\
.e{text-anchor:end}.c{text-anchor:middle}\
.p{fill:#fff;stroke:#d0d7de}.g{stroke:#d8dee4}.w{stroke:#1f2328;stroke-opacity:.65}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.m{fill:#8b949e}.p{fill:#0d1117;stroke:#30363d}\
.g{stroke:#21262d}.w{stroke:#e6edf3}}";

/// Draws the panels below each other.
pub(super) fn draw(name: &str, panels: &[Panel<'_>]) -> String {
    let height: f64 = panels.iter().map(Panel::height).sum::<f64>() + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"p\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"6\"/>\n",
        escaped(name),
        WIDTH - 1.0,
        height - 1.0,
    );
    let mut top = MARGIN;
    for panel in panels {
        panel.draw(&mut svg, top);
        top += panel.height();
    }
    svg.push_str("</svg>\n");
    svg
}

impl Panel<'_> {
    fn height(&self) -> f64 {
        HEAD + self.rows.iter().map(Row::height).sum::<f64>() + FOOT
    }

    fn draw(&self, svg: &mut String, top: f64) {
        let scale = Scale::covering(self.rows.iter().flat_map(|row| &row.marks));
        let direction = if self.is_more_better { "more" } else { "less" };
        let scale_note = if scale.is_log() { ", log scale" } else { "" };
        let unit = if self.unit.is_empty() {
            String::new()
        } else {
            format!("{}, ", escaped(self.unit))
        };
        let _ = writeln!(
            svg,
            "<text class=\"h\" x=\"{MARGIN}\" y=\"{:.1}\">{}<tspan class=\"m\" dx=\"8\" font-weight=\"400\">{unit}{direction} is better{scale_note}</tspan></text>",
            top + 16.0,
            escaped(&self.title),
        );
        let (begin, end) = (top + HEAD - 6.0, top + self.height() - FOOT);
        for tick in scale.ticks() {
            let x = scale.x(tick);
            let _ = writeln!(
                svg,
                "<line class=\"g\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{begin:.1}\" y2=\"{end:.1}\"/><text class=\"m c\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                end + 13.0,
                short_number(tick),
            );
        }
        let mut top = top + HEAD;
        for row in &self.rows {
            row.draw(svg, top, &scale);
            top += row.height();
        }
    }
}

impl Row<'_> {
    fn height(&self) -> f64 {
        self.marks.len() as f64 * PITCH + GAP
    }

    fn draw(&self, svg: &mut String, top: f64, scale: &Scale) {
        let is_ours = self.who.starts_with("everlink");
        let known = COLOURS.iter().find(|(who, _)| *who == self.who);
        let colour = known.map_or(GREY, |(_, colour)| *colour);
        let middle = top + (self.height() - GAP) / 2.0;
        let _ = writeln!(
            svg,
            "<text class=\"{}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            if is_ours { "e b" } else { "e" },
            LEFT - 10.0,
            middle + 3.0,
            escaped(self.who),
        );
        for (index, mark) in self.marks.iter().enumerate() {
            mark.draw(svg, top + index as f64 * PITCH, scale, colour, is_ours);
        }
    }
}

impl Mark<'_> {
    fn draw(&self, svg: &mut String, top: f64, scale: &Scale, colour: &str, is_ours: bool) {
        let middle = top + BAR / 2.0;
        let era = match self.era {
            "both" => "",
            era => era,
        };
        let Some(Rounds { median, low, high }) = self.rounds else {
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\" stroke=\"{colour}\" stroke-width=\"3\" stroke-dasharray=\"2 5\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{}<tspan class=\"m\" dx=\"5\">{era}</tspan></text>",
                RIGHT + 6.0,
                middle + 4.0,
                escaped(self.note.unwrap_or("no end")),
            );
            return;
        };
        let x = scale.x(median);
        if scale.is_log() {
            // On a log scale, the length of a bar has no meaning.
            let _ = writeln!(
                svg,
                "<line class=\"g\" x1=\"{LEFT}\" x2=\"{x:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\" stroke-dasharray=\"1 3\"/>\
                 <circle cx=\"{x:.1}\" cy=\"{middle:.1}\" r=\"5\" fill=\"{colour}\"/>"
            );
        } else {
            let _ = writeln!(
                svg,
                "<rect x=\"{LEFT}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"1.5\" fill=\"{colour}\"/>",
                (x - LEFT).max(1.0)
            );
        }
        let (from, to) = (scale.x(low), scale.x(high));
        if to - from >= 1.0 {
            let (up, down) = (middle - 3.0, middle + 3.0);
            let _ = writeln!(
                svg,
                "<path class=\"w\" fill=\"none\" d=\"M{from:.1} {up:.1}V{down:.1}M{from:.1} {middle:.1}H{to:.1}M{to:.1} {up:.1}V{down:.1}\"/>"
            );
        }
        let _ = writeln!(
            svg,
            "<text{} x=\"{:.1}\" y=\"{:.1}\">{}<tspan class=\"m\" dx=\"5\" font-weight=\"400\">{era}</tspan></text>",
            if is_ours { " class=\"b\"" } else { "" },
            to.max(x) + if scale.is_log() { 9.0 } else { 6.0 },
            middle + 4.0,
            if median >= 1e6 {
                short_number(median)
            } else {
                format_number(median)
            },
        );
    }
}

/// Maps values to positions.
#[derive(Debug, PartialEq)]
enum Scale {
    Linear { end: f64 },
    Log { begin: f64, end: f64 },
}

impl Scale {
    /// A scale that separates all values.
    fn covering<'a>(marks: impl Iterator<Item = &'a Mark<'a>>) -> Scale {
        let (mut least, mut most, mut low, mut high) = (f64::MAX, 0.0_f64, f64::MAX, 0.0_f64);
        for rounds in marks.filter_map(|mark| mark.rounds) {
            least = least.min(rounds.median);
            most = most.max(rounds.median);
            low = low.min(rounds.low);
            high = high.max(rounds.high).max(rounds.median);
        }
        if low > 0.0 && most > MAX_LINEAR_SPREAD * least {
            // Starts below the lowest value, which would otherwise have no visible length.
            let begin = low / 1.5;
            Scale::Log { begin, end: high }
        } else {
            let end = if high > 0.0 { high } else { 1.0 };
            Scale::Linear { end }
        }
    }

    const fn is_log(&self) -> bool {
        matches!(self, Scale::Log { .. })
    }

    fn x(&self, value: f64) -> f64 {
        let part = match self {
            Scale::Linear { end } => value / end,
            Scale::Log { begin, end } => (value / begin).ln() / (end / begin).ln(),
        };
        LEFT + part.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    /// Round values along the axis.
    fn ticks(&self) -> Vec<f64> {
        match *self {
            Scale::Linear { end } => {
                let raw_step = end / 5.0;
                let decade = 10_f64.powf(raw_step.log10().floor());
                let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
                let step = steps.into_iter().find(|step| *step >= raw_step);
                let step = step.unwrap_or(raw_step);
                let ticks = (0..=5).map(|tick| f64::from(tick) * step);
                ticks.filter(|tick| *tick <= end).collect()
            }
            Scale::Log { begin, end } => {
                let decades = (begin.log10().ceil() as i32)..=(end.log10().floor() as i32);
                decades.map(|decade| 10_f64.powi(decade)).collect()
            }
        }
    }
}

/// A short form of a value.
fn short_number(value: f64) -> String {
    match value {
        _ if value >= 1e6 => format!("{} M", format_number(value / 1e6)),
        _ if value >= 1e4 => format!("{} k", format_number(value / 1e3)),
        _ if value.fract() == 0.0 => format_number(value),
        _ => format!("{value:.3}").trim_end_matches('0').to_owned(),
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(values: Option<[f64; 3]>) -> Mark<'static> {
        Mark {
            era: "legacy",
            rounds: values.map(|[low, median, high]| Rounds { median, low, high }),
            note: values.is_none().then_some("hangs & <stays>"),
        }
    }

    fn scale(values: &[[f64; 3]]) -> Scale {
        let marks: Vec<_> = values.iter().map(|values| mark(Some(*values))).collect();
        Scale::covering(marks.iter())
    }

    #[test]
    fn linear_scale_starts_at_zero() {
        let linear = scale(&[[1.0, 2.0, 3.0], [60.0, 70.0, 80.0]]);
        assert_eq!(linear, Scale::Linear { end: 80.0 });
        assert_eq!(linear.x(0.0), LEFT);
        assert_eq!(linear.x(40.0), (LEFT + RIGHT) / 2.0);
        assert_eq!(linear.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0]);
    }

    #[test]
    fn widely_spread_values_use_a_log_scale() {
        let log = scale(&[[1.5, 2.0, 3.0], [60.0, 90.0, 1_000.0]]);
        assert!(log.is_log(), "{log:?}");
        assert_eq!(log.x(1_000.0), RIGHT);
        assert!(log.x(1.5) > LEFT);
        assert_eq!(log.ticks(), [1.0, 10.0, 100.0, 1_000.0]);
    }

    #[test]
    fn negative_values_use_a_linear_scale() {
        let below = scale(&[[-3.0, -0.5, 0.1], [60.0, 70.0, 80.0]]);
        assert!(!below.is_log());
        assert_eq!(below.x(-0.5), LEFT);
    }

    #[test]
    fn mark_without_a_value_shows_its_note() {
        let panel = Panel {
            title: "frozen".into(),
            unit: "ms",
            is_more_better: false,
            rows: vec![Row {
                who: "somebody",
                marks: vec![mark(None), mark(Some([1.0, 2.0, 3.0]))],
            }],
        };
        let svg = draw("death", &[panel]);
        assert!(svg.contains("hangs &amp; &lt;stays&gt;"), "{svg}");
        assert!(svg.contains("stroke-dasharray=\"2 5\""), "{svg}");
        assert_eq!(svg.matches("<rect x=").count(), 1, "{svg}");
    }
}
