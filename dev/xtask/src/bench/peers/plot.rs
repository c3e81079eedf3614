//! Draws bars with whiskers as SVG, for light and dark pages. Must not depend on what is drawn. `lines` draws other panels in the same style.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::figures::{Rounds, format_number};

/// One axis with its rows.
pub(crate) struct Panel<'a> {
    pub(crate) title: String,
    pub(crate) unit: &'a str,
    pub(crate) is_more_better: bool,
    pub(crate) rows: Vec<Row<'a>>,
}

pub(crate) struct Row<'a> {
    pub(crate) who: &'a str,
    pub(crate) marks: Vec<Mark<'a>>,
}

/// A bar. Without a value it has no end, and the note says why.
pub(crate) struct Mark<'a> {
    pub(crate) era: &'a str,
    pub(crate) rounds: Option<Rounds>,
    pub(crate) note: Option<&'a str>,
}

/// A part of a picture, as wide as the picture.
pub(crate) trait Draw {
    fn height(&self) -> u32;
    fn draw(&self, area: &Area<'_>) -> Drawn;
}

pub(super) const WIDTH: u32 = 800;
/// The room for names to the left of the bars, and for values to the right of the longest.
const NAMES: u32 = 140;
const VALUES: u32 = 140;
/// The height of a bar with the distance to the next. Between rows is half of it.
const PITCH: f64 = 14.0;
pub(super) const HEAD: u32 = 28;
pub(super) const FOOT: u32 = 26;
const MARGIN: i32 = 14;

/// If values spread wider than this factor, a log scale is used, because short bars would be invisible.
const MAX_LINEAR_SPREAD: f64 = 40.0;

/// One colour for each library in all plots: strong colours for ours, grey for the baselines.
const COLOURS: &[(&str, RGBColor)] = &[
    ("everlink", RGBColor(0x2f, 0x81, 0xf7)),
    ("everlink-json", RGBColor(0x79, 0xb0, 0xff)),
    ("everlink-stdio", RGBColor(0x12, 0xa5, 0x94)),
    ("everlink-tokio", RGBColor(0x2f, 0x81, 0xf7)),
    ("rmcp", RGBColor(0xc9, 0x8a, 0x4b)),
    ("rmcp-default", RGBColor(0xdf, 0xb8, 0x8f)),
    ("rmcp-pooled", RGBColor(0xc9, 0x8a, 0x4b)),
    ("rmcp-stdio", RGBColor(0xdf, 0xb8, 0x8f)),
    ("rmcp-stdio_pipes", RGBColor(0xc9, 0x8a, 0x4b)),
];
pub(super) const GREY: RGBColor = RGBColor(0x8b, 0x94, 0x9e);
pub(super) const TEXT: RGBColor = RGBColor(0x1f, 0x23, 0x28);
pub(super) const MUTED: RGBColor = RGBColor(0x65, 0x6d, 0x76);
pub(super) const GRID: RGBColor = RGBColor(0xd8, 0xde, 0xe4);

/// Replaces the colours of the page on a dark system. The first rectangle is the background.
const DARK: &str = "<style>@media(prefers-color-scheme:dark){svg>rect:first-of-type{fill:#0d1117}\
[fill=\"#1F2328\"]{fill:#e6edf3}[stroke=\"#1F2328\"]{stroke:#e6edf3}[fill=\"#656D76\"]{fill:#8b949e}[stroke=\"#D8DEE4\"]{stroke:#21262d}}</style>";

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Bars<'a, X> = DrawingArea<SVGBackend<'a>, Cartesian2d<X, RangedCoordf64>>;
pub(crate) type Drawn = Result<(), Box<dyn core::error::Error>>;

/// Draws the panels below each other.
pub(crate) fn draw(name: &str, panels: &[impl Draw]) -> Result<String> {
    let mut svg = String::new();
    draw_panels(&mut svg, panels).map_err(|error| anyhow!("a plot cannot be drawn: {error}"))?;
    let head = svg.find('>').map_or(0, |end| end + 1);
    svg.insert_str(head, &format!("<title>{name}</title>{DARK}"));
    Ok(svg)
}

fn draw_panels(svg: &mut String, panels: &[impl Draw]) -> Drawn {
    let height = panels.iter().map(Draw::height).sum();
    let mut rest = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    rest.fill(&WHITE)?;
    for panel in panels {
        let (area, below) = rest.split_vertically(panel.height());
        panel.draw(&area)?;
        rest = below;
    }
    Ok(rest.present()?)
}

/// Writes the title of a panel and the meaning of its axes, above the panel.
pub(super) fn draw_head(area: &Area<'_>, title: &str, about: String) -> Drawn {
    let style = text(TEXT, true, HPos::Left);
    area.draw(&Text::new(title, (MARGIN, MARGIN), style))?;
    let right = (WIDTH as i32 - MARGIN, MARGIN);
    area.draw(&Text::new(about, right, text(MUTED, false, HPos::Right)))?;
    Ok(())
}

impl Draw for Panel<'_> {
    fn height(&self) -> u32 {
        HEAD + FOOT + (self.bars() * PITCH) as u32
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        let scale = Scale::covering(self.rows.iter().flat_map(|row| &row.marks));
        let direction = if self.is_more_better { "more" } else { "less" };
        let comma = if self.unit.is_empty() { "" } else { ", " };
        let log = if scale.is_log { ", log scale" } else { "" };
        let about = format!("{}{comma}{direction} is better{log}", self.unit);
        draw_head(area, &self.title, about)?;
        let range = scale.begin..scale.end;
        if scale.is_log {
            self.draw_rows(area, &scale, range.log_scale())
        } else {
            self.draw_rows(area, &scale, range)
        }
    }
}

impl Panel<'_> {
    /// The height of all bars, in bars.
    fn bars(&self) -> f64 {
        let bars = self.rows.iter().map(|row| row.marks.len() as f64 + 0.5);
        bars.sum()
    }

    fn draw_rows<X>(&self, area: &Area<'_>, scale: &Scale, x: X) -> Drawn
    where
        X: AsRangedCoord<Value = f64, CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>>,
    {
        let mut builder = ChartBuilder::on(area);
        builder.margin_top(HEAD).margin_right(VALUES);
        builder.x_label_area_size(FOOT).y_label_area_size(NAMES);
        let mut chart = builder.build_cartesian_2d(x, -self.bars()..0.0)?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_y_mesh().y_labels(0).x_labels(6);
        mesh.bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(TRANSPARENT);
        mesh.x_label_style(text(MUTED, false, HPos::Center));
        mesh.x_label_formatter(&|tick| short_number(*tick)).draw()?;
        // Rows are drawn from above: downwards is negative.
        let area = chart.plotting_area();
        let mut top = 0.0;
        for row in &self.rows {
            let height = row.marks.len() as f64;
            let middle = (scale.begin, top - height / 2.0);
            let name = Text::new(
                row.who.to_owned(),
                (-10, 0),
                text(TEXT, row.is_ours(), HPos::Right),
            );
            area.draw(&(EmptyElement::at(middle) + name))?;
            for (index, mark) in row.marks.iter().enumerate() {
                row.draw(area, mark, scale, top - index as f64 - 0.5)?;
            }
            top -= height + 0.5;
        }
        Ok(())
    }
}

impl Row<'_> {
    fn is_ours(&self) -> bool {
        self.who.starts_with("everlink")
    }

    /// Draws one bar, its whiskers and its value.
    fn draw<X>(&self, area: &Bars<'_, X>, mark: &Mark<'_>, scale: &Scale, y: f64) -> Drawn
    where
        X: Ranged<ValueType = f64>,
    {
        let known = COLOURS.iter().find(|(who, _)| *who == self.who);
        let colour = known.map_or(GREY, |(_, colour)| *colour);
        let (mut end, label) = mark.end_and_label(scale);
        let line = |from: f64, to: f64| [(from, y), (to, y)];
        if mark.rounds.is_none() {
            let (whole, style) = (line(scale.begin, end), colour.stroke_width(3));
            area.draw(&DashedPathElement::new(whole, 2, 5, style))?;
        } else if scale.is_log {
            // On a log scale, the length of a bar has no meaning.
            area.draw(&Circle::new((end, y), 5, colour.filled()))?;
        } else {
            let corners = [(scale.begin, y - 0.4), (end, y + 0.4)];
            area.draw(&Rectangle::new(corners, colour.filled()))?;
        }
        if let Some(Rounds { low, high, .. }) = mark.rounds.filter(|of| of.low < of.high) {
            area.draw(&PathElement::new(line(low.max(scale.begin), high), TEXT))?;
            end = end.max(high);
        }
        let label = Text::new(label, (8, 0), text(TEXT, self.is_ours(), HPos::Left));
        Ok(area.draw(&(EmptyElement::at((end, y)) + label))?)
    }
}

impl Mark<'_> {
    /// Where the bar ends, and what is written behind it.
    fn end_and_label(&self, scale: &Scale) -> (f64, String) {
        let era = if self.era == "both" { "" } else { self.era };
        let Some(Rounds { median, .. }) = self.rounds else {
            let note = self.note.unwrap_or("no end");
            return (scale.end, format!("{note} {era}"));
        };
        let value = if median >= 1e6 {
            short_number(median)
        } else {
            format_number(median)
        };
        (median.max(scale.begin), format!("{value} {era}"))
    }
}

pub(super) fn text(colour: RGBColor, is_bold: bool, at: HPos) -> TextStyle<'static> {
    let style = if is_bold {
        FontStyle::Bold
    } else {
        FontStyle::Normal
    };
    let font = ("sans-serif", 15).into_font().style(style);
    font.color(&colour).pos(Pos::new(at, VPos::Center))
}

/// The values from the left to the right end of the axis.
#[derive(Debug, PartialEq)]
struct Scale {
    begin: f64,
    end: f64,
    is_log: bool,
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
        let is_log = low > 0.0 && most > MAX_LINEAR_SPREAD * least;
        // A log scale starts below the lowest value, which would otherwise have no visible length.
        let begin = if is_log { low / 1.5 } else { 0.0 };
        let end = if high > 0.0 { high } else { 1.0 };
        Scale { begin, end, is_log }
    }
}

/// A short form of a value.
pub(super) fn short_number(value: f64) -> String {
    match value {
        _ if value >= 1e6 => format!("{} M", format_number(value / 1e6)),
        _ if value >= 1e4 => format!("{} k", format_number(value / 1e3)),
        _ if value.fract() == 0.0 => format_number(value),
        _ => format!("{value:.3}").trim_end_matches('0').to_owned(),
    }
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

    fn drawn(marks: Vec<Mark<'static>>) -> String {
        let rows = vec![Row {
            who: "somebody",
            marks,
        }];
        let panel = Panel {
            title: "frozen".into(),
            unit: "ms",
            is_more_better: false,
            rows,
        };
        draw("death", &[panel]).expect("a plot")
    }

    #[test]
    fn linear_scale_starts_at_zero() {
        let linear = scale(&[[1.0, 2.0, 3.0], [60.0, 70.0, 80.0]]);
        assert_eq!(
            linear,
            Scale {
                begin: 0.0,
                end: 80.0,
                is_log: false
            }
        );
        let svg = drawn(vec![
            mark(Some([1.0, 2.0, 3.0])),
            mark(Some([60.0, 70.0, 80.0])),
        ]);
        for tick in ["0", "20", "40", "60", "80"] {
            assert!(svg.contains(&format!("\n{tick}\n")), "{tick}: {svg}");
        }
    }

    #[test]
    fn widely_spread_values_use_a_log_scale() {
        let log = scale(&[[1.5, 2.0, 3.0], [60.0, 90.0, 1_000.0]]);
        assert_eq!(
            log,
            Scale {
                begin: 1.0,
                end: 1_000.0,
                is_log: true
            }
        );
        let svg = drawn(vec![
            mark(Some([1.5, 2.0, 3.0])),
            mark(Some([60.0, 90.0, 1_000.0])),
        ]);
        assert!(
            svg.contains("log scale") && svg.contains("\n100\n"),
            "{svg}"
        );
        assert_eq!(svg.matches("<circle").count(), 2, "{svg}");
    }

    #[test]
    fn negative_values_use_a_linear_scale() {
        let below = scale(&[[-3.0, -0.5, 0.1], [60.0, 70.0, 80.0]]);
        assert!(!below.is_log);
        let (end, label) = mark(Some([-3.0, -0.5, 0.1])).end_and_label(&below);
        assert_eq!((end, &*label), (0.0, "-0.5 legacy"));
    }

    #[test]
    fn mark_without_a_value_shows_its_note() {
        let svg = drawn(vec![mark(None), mark(Some([1.0, 2.0, 3.0]))]);
        assert!(svg.contains("hangs &amp; &lt;stays&gt;"), "{svg}");
        // The background and one bar.
        assert_eq!(svg.matches("<rect").count(), 2, "{svg}");
    }
}
