//! The transition table of a server: the state that follows each state on each cue. It knows no requests and no time. The caller decides
//! when a cue is due.

use core::fmt;

/// The state of a server.
///
/// ```text
#[doc = include_str!("table.txt")]
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// The server takes requests.
    Serving,
    /// The server takes no new requests, and finishes those that it has.
    Draining,
    /// The server is closed.
    Closed,
}

impl State {
    #[cfg(test)]
    const ALL: [State; 3] = [State::Serving, State::Draining, State::Closed];
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            State::Serving => "serving",
            State::Draining => "draining",
            State::Closed => "closed",
        })
    }
}

/// A reason to move from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cue {
    /// The client closed its end of the byte stream.
    EndOfInput,
    /// The application ends the server.
    Shutdown,
    /// The drain deadline passed. The requests in flight are cut short, and their last messages are flushed.
    DrainOver,
    /// Every request has its reply, and every message was read.
    Drained,
    /// The flush deadline passed: the client does not read the last messages.
    FlushOver,
    /// The byte stream to the client is broken.
    WriteFailed,
}

impl Cue {
    #[cfg(test)]
    const ALL: [Cue; 6] = [
        Cue::EndOfInput,
        Cue::Shutdown,
        Cue::DrainOver,
        Cue::Drained,
        Cue::FlushOver,
        Cue::WriteFailed,
    ];
}

/// Returns the next state, or `None` if the cue does not apply.
pub(crate) const fn next(state: State, cue: Cue) -> Option<State> {
    use State::{Closed, Draining, Serving};
    Some(match (state, cue) {
        (Serving, Cue::EndOfInput | Cue::Shutdown) => Draining,
        (Draining, Cue::DrainOver) => Draining,
        (Draining, Cue::Drained | Cue::FlushOver) => Closed,
        (Serving | Draining, Cue::WriteFailed) => Closed,

        // The drain has begun already. The first reason counts.
        (Draining, Cue::EndOfInput | Cue::Shutdown) => return None,
        // Nothing drains.
        (Serving, Cue::DrainOver | Cue::Drained | Cue::FlushOver) => return None,
        (
            Closed,
            Cue::EndOfInput
            | Cue::Shutdown
            | Cue::DrainOver
            | Cue::Drained
            | Cue::FlushOver
            | Cue::WriteFailed,
        ) => return None,
    })
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;

    fn edges() -> impl Iterator<Item = (State, Cue, State)> {
        State::ALL.into_iter().flat_map(|from| {
            Cue::ALL
                .into_iter()
                .filter_map(move |cue| next(from, cue).map(|to| (from, cue, to)))
        })
    }

    #[test]
    fn closed_is_terminal_and_a_server_never_serves_again() {
        for (from, cue, to) in edges() {
            assert_ne!(from, State::Closed, "{cue:?}");
            assert_ne!(to, State::Serving, "{cue:?}");
        }
    }

    #[test]
    fn the_diagram_in_the_docs_is_this_table() {
        let mut lines: Vec<String> = edges()
            .map(|(from, cue, to)| format!("{from:<12} {:<12} {to}", format!("{cue:?}")))
            .collect();
        lines.insert(0, format!("{:<12} {:<12} to", "from", "on"));
        let drawn: Vec<&str> = include_str!("table.txt").lines().collect();
        assert_eq!(drawn, lines);
    }
}
