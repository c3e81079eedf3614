//! The transition table of a client link: the state that follows each state on each cue. It knows no bytes, calls or time. The caller decides when a
//! cue is due.

use core::fmt;

/// The state of a client link.
///
/// ```text
#[doc = include_str!("table.txt")]
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum State {
    /// The link was not needed yet.
    Idle,
    /// The link asked the driver for a transport.
    Opening,
    /// The transport is open, and the handshake is under way.
    Handshaking,
    /// Calls are sent at once.
    Ready,
    /// Nothing new is sent, and calls in flight get time to end before the transport is closed.
    Draining,
    /// The transport is being closed, on purpose or because it failed.
    Closing,
    /// There is no transport; a timer is set for the next attempt.
    Waiting,
    /// There is no transport, and retries are exhausted. The link probes rarely, and on a call.
    Parked,
    /// The link is closed for good.
    Closed,
}

impl State {
    /// Whether the two ends exchange messages.
    pub(in crate::client) const fn is_in_touch(self) -> bool {
        match self {
            State::Handshaking | State::Ready | State::Draining => true,
            State::Idle
            | State::Opening
            | State::Closing
            | State::Waiting
            | State::Parked
            | State::Closed => false,
        }
    }

    /// Whether there is no transport, and the next attempt is planned.
    pub(in crate::client) const fn is_between_attempts(self) -> bool {
        matches!(self, State::Waiting | State::Parked)
    }

    #[cfg(test)]
    const ALL: [State; 9] = [
        State::Idle,
        State::Opening,
        State::Handshaking,
        State::Ready,
        State::Draining,
        State::Closing,
        State::Waiting,
        State::Parked,
        State::Closed,
    ];
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            State::Idle => "idle",
            State::Opening => "opening",
            State::Handshaking => "handshaking",
            State::Ready => "ready",
            State::Draining => "draining",
            State::Closing => "closing",
            State::Waiting => "waiting",
            State::Parked => "parked",
            State::Closed => "closed",
        })
    }
}

/// A reason to move from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Cue {
    /// Both ends agreed on a version.
    Agreed,
    /// The link is needed, or the time of the next attempt has come.
    Attempt,
    /// The transport must be closed.
    Down,
    /// The transport must be closed once the calls in flight have ended.
    Drain,
    /// Nothing is left of the transport; the value says what comes next.
    Gone(After),
    /// The transport is open.
    Opened,
    /// The link is not needed any more.
    Shutdown,
}

/// The step after a transport is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum After {
    Close,
    Park,
    Wait,
}

impl Cue {
    #[cfg(test)]
    const ALL: [Cue; 9] = [
        Cue::Agreed,
        Cue::Attempt,
        Cue::Down,
        Cue::Drain,
        Cue::Gone(After::Close),
        Cue::Gone(After::Park),
        Cue::Gone(After::Wait),
        Cue::Opened,
        Cue::Shutdown,
    ];
}

/// Returns the next state, or `None` if the cue does not apply.
pub(in crate::client) const fn next(state: State, cue: Cue) -> Option<State> {
    use State::{Closed, Closing, Draining, Handshaking, Idle, Opening, Parked, Ready, Waiting};
    Some(match (state, cue) {
        (Idle | Waiting | Parked, Cue::Attempt) => Opening,
        (Opening, Cue::Opened) => Handshaking,
        (Handshaking, Cue::Agreed) => Ready,
        (Ready, Cue::Drain) => Draining,
        (Opening | Handshaking | Ready | Draining, Cue::Down) => Closing,
        (Closing, Cue::Gone(After::Wait)) => Waiting,
        (Closing, Cue::Gone(After::Park)) => Parked,
        (Closing, Cue::Gone(After::Close)) => Closed,
        (Idle | Waiting | Parked, Cue::Shutdown) => Closed,

        // A transport exists already, or the link is closed.
        (Opening | Handshaking | Ready | Draining | Closing | Closed, Cue::Attempt) => {
            return None;
        }
        // Only the transport that was asked for can open, and only once.
        (
            Idle | Handshaking | Ready | Draining | Closing | Waiting | Parked | Closed,
            Cue::Opened,
        ) => return None,
        (Idle | Opening | Ready | Draining | Closing | Waiting | Parked | Closed, Cue::Agreed) => {
            return None;
        }
        // Only a ready link can have calls in flight.
        (
            Idle | Opening | Handshaking | Draining | Closing | Waiting | Parked | Closed,
            Cue::Drain,
        ) => return None,
        // The transport is closing already, or there is none.
        (Idle | Closing | Waiting | Parked | Closed, Cue::Down) => return None,
        // Every transport goes through `Closing` before it is gone.
        (
            Idle | Opening | Handshaking | Ready | Draining | Waiting | Parked | Closed,
            Cue::Gone(_),
        ) => return None,
        // The transport must be closed first. A closed link stays closed.
        (Opening | Handshaking | Ready | Draining | Closing | Closed, Cue::Shutdown) => {
            return None;
        }
    })
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
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
    fn closed_is_terminal_and_every_state_can_reach_it() {
        assert!(edges().all(|(from, _, _)| from != State::Closed));
        for start in State::ALL {
            let mut reached = BTreeSet::from([start]);
            for _ in State::ALL {
                reached.extend(
                    edges()
                        .filter(|(from, _, _)| reached.contains(from))
                        .map(|(_, _, to)| to)
                        .collect::<Vec<_>>(),
                );
            }
            assert!(reached.contains(&State::Closed), "{start} cannot close");
        }
    }

    #[test]
    fn ready_is_entered_by_agreement_alone_and_never_again_in_the_same_life() {
        for (from, cue, to) in edges() {
            if to == State::Ready {
                assert_eq!((from, cue), (State::Handshaking, Cue::Agreed));
            }
            if from == State::Ready {
                assert!(matches!(to, State::Closing | State::Draining), "{cue:?}");
            }
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
