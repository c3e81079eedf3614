//! How things look on a terminal, or in a line of JSON. Knows no command.

use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr};
use std::time::Instant;

use everlink::client::{Event, State};
use serde_json::{Value, json};

/// Tells what happens on standard error, each line with the time since the start.
pub(crate) struct Timeline {
    start: Instant,
    has_colours: bool,
}

impl Timeline {
    pub(crate) fn start() -> Timeline {
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Timeline {
            start: Instant::now(),
            has_colours: !is_plain && stderr().is_terminal(),
        }
    }

    /// What the line is about decides its colour: good news, bad news, or neither.
    pub(crate) fn tell(&self, mood: Mood, line: &dyn Display) {
        let at = self.start.elapsed().as_secs_f64();
        let (on, off) = match (self.has_colours, mood) {
            (false, _) | (true, Mood::Plain) => ("", ""),
            (true, Mood::Good) => ("\x1b[32m", "\x1b[0m"),
            (true, Mood::Bad) => ("\x1b[31m", "\x1b[0m"),
        };
        // Where nobody reads any more, nothing is told.
        let _ = writeln!(stderr(), "{at:9.3} {on}{line}{off}");
    }

    /// The same for a program that reads it.
    pub(crate) fn tell_json(&self, mut fact: Value) {
        fact["seconds"] = json!(self.start.elapsed().as_secs_f64());
        let _ = writeln!(stderr(), "{fact}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Bad,
    Good,
    Plain,
}

/// How a person takes it.
pub(crate) fn mood(event: &Event) -> Mood {
    match event {
        Event::Ready(_) => Mood::Good,
        Event::Ended(ended) if ended.counted => Mood::Bad,
        Event::AuthRequired(_) | Event::Parked { .. } | Event::Slow { .. } => Mood::Bad,
        _ => Mood::Plain,
    }
}

/// An event for a program that reads it: its line, and the state if that has changed.
pub(crate) fn as_json(event: &Event) -> Value {
    json!({
        "event": event.to_string(),
        "state": event.state().map(|state: State| state.to_string()),
    })
}
