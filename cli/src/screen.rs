//! Draws a block of lines on a terminal again and again. Does not depend on commands.

use std::fmt::Write as _;
use std::io::{self, Write};

#[cfg(unix)]
use std::os::fd::AsFd as AsHandle;
#[cfg(windows)]
use std::os::windows::io::AsHandle;

use terminal_size::{Height, Width, terminal_size_of};

use crate::output::is_no_color_set;

/// The size of a terminal that does not tell its size.
const DEFAULT_SIZE: (usize, usize) = (100, 30);

/// The characters of a plot, by height.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Plain,
    Bold,
    Faint,
    Red,
    Green,
    Yellow,
    Blue,
}

/// A line: pieces of text, each with a colour.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScreenLine(Vec<(Colour, String)>);

impl ScreenLine {
    pub(crate) fn add(mut self, colour: Colour, text: impl Into<String>) -> ScreenLine {
        self.0.push((colour, text.into()));
        self
    }

    /// Formats the line for a terminal of this width, or without colours.
    pub(crate) fn render(&self, width: usize, has_colours: bool) -> String {
        let mut text = String::new();
        let mut left = width;
        for (colour, piece) in &self.0 {
            let piece: String = piece.chars().take(left).collect();
            left -= piece.chars().count();
            let code = match colour {
                Colour::Plain => "",
                Colour::Bold => "1",
                Colour::Faint => "2",
                Colour::Red => "31",
                Colour::Green => "32",
                Colour::Yellow => "33",
                Colour::Blue => "34",
            };
            let _ = match has_colours && !code.is_empty() {
                true => write!(text, "\x1b[{code}m{piece}\x1b[0m"),
                false => text.write_str(&piece),
            };
        }
        text.truncate(text.trim_end_matches(' ').len());
        text
    }
}

/// A block of lines at a terminal.
pub(crate) struct Screen<W: Write> {
    out: W,
    size: (usize, usize),
    has_colours: bool,
    /// The number of lines that are on the screen.
    drawn: usize,
}

impl Screen<io::Stderr> {
    pub(crate) fn on_stderr() -> Screen<io::Stderr> {
        Screen::new(io::stderr(), terminal_size_of(io::stderr()))
    }
}

impl Screen<io::Stdout> {
    pub(crate) fn on_stdout() -> Screen<io::Stdout> {
        Screen::new(io::stdout(), terminal_size_of(io::stdout()))
    }
}

impl<W: Write> Screen<W> {
    fn new(out: W, size: Option<(Width, Height)>) -> Screen<W> {
        let size = size.map(|(Width(width), Height(height))| (width.into(), height.into()));
        Screen {
            out,
            size: size.unwrap_or(DEFAULT_SIZE),
            has_colours: !is_no_color_set(),
            drawn: 0,
        }
    }

    /// Reads the size of the terminal again.
    pub(crate) fn resize(&mut self)
    where
        W: AsHandle,
    {
        if let Some((Width(width), Height(height))) = terminal_size_of(&self.out) {
            self.size = (width.into(), height.into());
        }
    }

    /// The height of the terminal in lines. `draw` uses one line less.
    pub(crate) const fn height(&self) -> usize {
        self.size.1
    }

    /// The width of the terminal in columns. `draw` uses one column less.
    pub(crate) const fn width(&self) -> usize {
        self.size.0
    }

    /// Replaces the block by these lines. Leaves out those that do not fit.
    pub(crate) fn draw(&mut self, lines: &[ScreenLine]) -> io::Result<()> {
        let mut text = String::new();
        self.move_up(&mut text);
        let lines = &lines[..lines.len().min(self.size.1.saturating_sub(1))];
        for line in lines {
            text += &line.render(self.size.0.saturating_sub(1), self.has_colours);
            text += "\x1b[K\n";
        }
        text += "\x1b[J";
        self.drawn = lines.len();
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Removes the block.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        self.draw(&[])
    }

    fn move_up(&self, text: &mut String) {
        if self.drawn > 0 {
            let _ = write!(text, "\r\x1b[{}A", self.drawn);
        }
    }
}

/// Draws numbers as bars of one character each. The largest has full height.
pub(crate) fn sparkline(values: &[f64]) -> String {
    let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let bar = |value: &f64| {
        let share = (value.max(0.0) / most).min(1.0);
        BARS[(share * (BARS.len() - 1) as f64).round() as usize]
    };
    values.iter().map(bar).collect()
}

/// A bar of this width that is filled to this share.
pub(crate) fn progress_bar(share: f64, width: usize) -> String {
    let filled = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    "█".repeat(filled) + &"░".repeat(width - filled)
}

/// Formats seconds with at most two units, such as `4.2 s` or `3 h 5 min`.
pub(crate) fn short_time(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..100 => format!("{whole} s"),
        100..3600 => format!("{} min {} s", whole / 60, whole % 60),
        3600..86_400 => format!("{} h {} min", whole / 3600, whole / 60 % 60),
        _ => format!("{} d {} h", whole / 86_400, whole / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_cut_at_the_width_and_has_codes_only_with_colours() {
        let line = ScreenLine::default()
            .add(Colour::Red, "four")
            .add(Colour::Plain, " more  ");
        assert_eq!(line.render(6, false), "four m");
        assert_eq!(line.render(99, false), "four more");
        assert_eq!(line.render(4, true), "\x1b[31mfour\x1b[0m");
    }

    #[test]
    fn block_is_drawn_over_itself() {
        let mut screen = Screen::new(Vec::new(), None);
        screen.has_colours = false;
        let line = |text: &str| ScreenLine::default().add(Colour::Plain, text);
        screen.draw(&[line("a"), line("b")]).expect("memory");
        screen.draw(&[line("c")]).expect("memory");
        let text = String::from_utf8(screen.out).expect("valid UTF-8");
        assert_eq!(text, "a\x1b[K\nb\x1b[K\n\x1b[J\r\x1b[2Ac\x1b[K\n\x1b[J");
    }

    #[test]
    fn bars_and_times_are_short() {
        assert_eq!(sparkline(&[0.0, 1.0, 2.0]), "▁▅█");
        assert_eq!(sparkline(&[0.0, 0.0]), "▁▁");
        assert_eq!(progress_bar(0.5, 4), "██░░");
        assert_eq!(progress_bar(7.0, 2), "██");
        assert_eq!(short_time(9.96), "10.0 s");
        assert_eq!(short_time(61.0), "61 s");
        assert_eq!(short_time(3700.0), "1 h 1 min");
    }
}
