//! Draws figures over time as lines, in the style of `plot`. Must not depend on what is drawn.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::plot::{
    Area, Draw, Drawn, FOOT, GREY, GRID, HEAD, MUTED, TEXT, draw_head, short_number, text,
};

/// One axis of time with its lines.
pub(crate) struct Chart {
    pub(crate) title: String,
    /// The meaning of the axes.
    pub(crate) about: String,
    pub(crate) lines: Vec<Line>,
}

/// Values over time.
pub(crate) struct Line {
    pub(crate) name: String,
    /// Whether the line is judged. Others are grey, and below.
    pub(crate) is_strong: bool,
    pub(crate) points: Vec<(f64, f64)>,
}

const HEIGHT: u32 = 150;
/// The room for values to the left of the lines, and for names to the right.
const VALUES: u32 = 60;
const NAMES: u32 = 130;
/// The least distance between two names.
const PITCH: f64 = 14.0;

const STRONG: [RGBColor; 3] = [
    RGBColor(0x2f, 0x81, 0xf7),
    RGBColor(0x12, 0xa5, 0x94),
    RGBColor(0xc9, 0x8a, 0x4b),
];

impl Draw for Chart {
    fn height(&self) -> u32 {
        HEIGHT
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        draw_head(area, &self.title, self.about.clone())?;
        let all = || self.lines.iter().flat_map(|line| &line.points);
        let end = all().map(|point| point.0).fold(1.0, f64::max);
        // Room above the highest line for the name of a line that is close to it.
        let top = all().map(|point| point.1).fold(1e-9, f64::max) * 1.3;
        let mut builder = ChartBuilder::on(area);
        builder.margin_top(HEAD).margin_right(NAMES);
        builder.x_label_area_size(FOOT).y_label_area_size(VALUES);
        let mut chart = builder.build_cartesian_2d(0.0..end, 0.0..top)?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh().x_labels(8).y_labels(4);
        mesh.bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(TRANSPARENT);
        mesh.x_label_style(text(MUTED, false, HPos::Center));
        mesh.y_label_style(text(MUTED, false, HPos::Right));
        mesh.x_label_formatter(&|tick| short_number(*tick))
            .y_label_formatter(&|tick| short_number(*tick))
            .draw()?;
        let area = chart.plotting_area();
        for line in self.lines.iter().filter(|line| !line.is_strong) {
            let points = line.points.clone();
            area.draw(&PathElement::new(points, GREY.stroke_width(1)))?;
        }
        let strong = self.lines.iter().filter(|line| line.is_strong);
        for (line, colour) in strong.zip(STRONG.iter().cycle()) {
            let points = line.points.clone();
            area.draw(&PathElement::new(points, colour.stroke_width(2)))?;
        }
        for (line, middle) in self.lines.iter().zip(self.name_places(top)) {
            let name = Text::new(
                line.name.clone(),
                (8, 0),
                text(TEXT, line.is_strong, HPos::Left),
            );
            area.draw(&(EmptyElement::at((end, middle)) + name))?;
        }
        Ok(())
    }
}

impl Chart {
    /// The heights of the names: at the end of each line, but apart.
    fn name_places(&self, top: f64) -> Vec<f64> {
        let last = |line: &Line| line.points.last().map_or(0.0, |point| point.1);
        let mut order: Vec<(usize, f64)> = self.lines.iter().map(last).enumerate().collect();
        order.sort_by(|left, right| left.1.total_cmp(&right.1));
        let distance = top * PITCH / f64::from(HEIGHT - HEAD - FOOT);
        let mut places = vec![0.0; order.len()];
        let mut free = 0.0_f64;
        for (index, value) in order {
            places[index] = value.max(free);
            free = places[index] + distance;
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::super::plot;
    use super::*;

    fn line(name: &str, is_strong: bool, value: f64) -> Line {
        Line {
            name: name.to_owned(),
            is_strong,
            points: vec![(0.0, value), (10.0, value)],
        }
    }

    #[test]
    fn names_of_close_lines_stand_apart() {
        let chart = Chart {
            title: "memory".into(),
            about: "MiB".into(),
            lines: vec![line("rest", true, 5.0), line("load", false, 5.1)],
        };
        let places = chart.name_places(5.5);
        assert!(places[0] == 5.0 && places[1] > 5.1, "{places:?}");
        let svg = plot::draw("soak", &[chart]).expect("a plot");
        assert_eq!(svg.matches("<polyline").count(), 2, "{svg}");
        assert!(
            svg.contains("\nrest\n") && svg.contains("\nload\n"),
            "{svg}"
        );
    }
}
