//! Shows the demo as a live table with a progress bar at a terminal.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use everlink::Epoch;
use everlink::client::State;

use super::history::{History, Outcome};
use crate::output::{Severity, single_line};
use crate::screen::{Colour, Screen, ScreenLine, progress_bar, sparkline};

/// The number of events in the table.
const MAX_EVENTS: usize = 10;

/// The number of bars in the plot of calls.
const PLOT: usize = 40;

/// The width of the progress bar.
const BAR: usize = 40;

pub(super) struct LiveView {
    screen: Screen<std::io::Stderr>,
    duration: Duration,
    events: VecDeque<(f64, Severity, String)>,
    /// The number of calls in each of the last intervals.
    rates: VecDeque<f64>,
    settled: usize,
}

/// What the link reports of itself.
pub(super) struct LinkState {
    pub(super) state: State,
    pub(super) epoch: Epoch,
}

impl LiveView {
    /// Returns a view for a demo of this length, if standard error is a terminal that understands control sequences.
    pub(super) fn at_terminal(duration: Duration) -> Option<LiveView> {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        (stderr().is_terminal() && !is_dumb).then(|| LiveView {
            screen: Screen::on_stderr(),
            duration,
            events: VecDeque::new(),
            rates: VecDeque::new(),
            settled: 0,
        })
    }

    pub(super) fn add_event(&mut self, seconds: f64, severity: Severity, line: &dyn Display) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        let line = single_line(&line.to_string());
        self.events.push_back((seconds, severity, line));
    }

    pub(super) fn draw(&mut self, elapsed: Duration, history: &History, link: &LinkState) {
        let lines = self.lines(elapsed, history, link);
        // Errors are ignored, as for other events: the reader has closed the stream.
        let _ = self.screen.draw(&lines);
    }

    /// Removes the table, because the report follows.
    pub(super) fn end(&mut self) {
        let _ = self.screen.clear();
    }

    fn lines(&mut self, elapsed: Duration, history: &History, link: &LinkState) -> Vec<ScreenLine> {
        let (mut answered, mut unknown, mut settled) = (0, 0, 0);
        for outcome in history
            .calls
            .iter()
            .filter_map(|call| call.outcome.as_ref())
        {
            settled += 1;
            match outcome {
                Outcome::Reply => answered += 1,
                _ => unknown += 1,
            }
        }
        if self.rates.len() == PLOT {
            self.rates.pop_front();
        }
        let new = settled - self.settled.min(settled);
        self.rates.push_back(new as f64);
        self.settled = settled;
        let share = elapsed.as_secs_f64() / self.duration.as_secs_f64().max(0.001);
        let (done, all) = (
            elapsed.min(self.duration).as_secs(),
            self.duration.as_secs(),
        );
        let colour = match link.state {
            State::Ready => Colour::Green,
            State::Parked | State::Closed => Colour::Red,
            _ => Colour::Yellow,
        };
        let rates: Vec<f64> = self.rates.iter().copied().collect();
        let row = |label: &str, colour, value: String| {
            ScreenLine::default()
                .add(Colour::Plain, format!("  {label:<22}"))
                .add(colour, format!("{value:>10}"))
        };
        let mut lines = vec![
            ScreenLine::default()
                .add(Colour::Bold, "everlink demo  ")
                .add(Colour::Blue, progress_bar(share, BAR))
                .add(Colour::Faint, format!("  {done} of {all} s")),
            ScreenLine::default(),
            ScreenLine::default()
                .add(Colour::Plain, format!("  {:<22}", "link"))
                .add(colour, format!("{:>10}", link.state.to_string()))
                .add(Colour::Faint, format!("   epoch {}", link.epoch.number())),
            row("calls", Colour::Plain, history.calls.len().to_string())
                .add(Colour::Blue, format!("   {}", sparkline(&rates))),
            row("  answered", Colour::Green, answered.to_string()),
            row("  without a reply", Colour::Yellow, unknown.to_string()),
            row(
                "  under way",
                Colour::Plain,
                (history.calls.len() - settled).to_string(),
            ),
            row("servers that died", Colour::Red, history.deaths.to_string()),
            row("reconnects", Colour::Green, history.reconnects.to_string()),
            row(
                "broken rules",
                Colour::Plain,
                history.violations.len().to_string(),
            ),
            ScreenLine::default(),
        ];
        for (seconds, severity, text) in &self.events {
            let colour = match severity {
                Severity::Neutral => Colour::Plain,
                Severity::Problem => Colour::Red,
                Severity::Success => Colour::Green,
            };
            let line = ScreenLine::default().add(Colour::Faint, format!("{seconds:9.3} "));
            lines.push(line.add(colour, text.clone()));
        }
        lines
    }
}
