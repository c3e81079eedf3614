//! The transition table of an HTTP exchange at the server: the phase that follows each phase on each cue. It knows no bytes and no time.

use core::fmt;

/// The phase of an exchange.
///
/// ```text
#[doc = include_str!("table.txt")]
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The request arrives.
    Reading,
    /// The request is complete, and waits for an answer of the driver's store.
    Waiting,
    /// The request is complete, and the head of the response is not written.
    Answering,
    /// The response is an event stream whose head is written.
    Streaming,
    /// The response is complete, and its client has not read all of it.
    Unread,
    /// The exchange is over.
    Gone,
}

impl Phase {
    #[cfg(test)]
    const ALL: [Phase; 6] = [
        Phase::Reading,
        Phase::Waiting,
        Phase::Answering,
        Phase::Streaming,
        Phase::Unread,
        Phase::Gone,
    ];
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Phase::Reading => "reading",
            Phase::Waiting => "waiting",
            Phase::Answering => "answering",
            Phase::Streaming => "streaming",
            Phase::Unread => "unread",
            Phase::Gone => "gone",
        })
    }
}

/// A reason to move from one phase to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cue {
    /// The request is complete, or is refused before it is.
    Arrived,
    /// The request is complete, and the driver's store is asked before it is served.
    Asked,
    /// The store has answered, or failed to.
    Found,
    /// The first event of the response is written.
    Begun,
    /// The response is complete. Says whether its client has read all of it.
    Finished { is_read: bool },
    /// The client has read the rest of the response.
    ReadAll,
    /// The client is gone, or is disconnected because it does not read.
    Lost,
}

impl Cue {
    #[cfg(test)]
    const ALL: [Cue; 8] = [
        Cue::Arrived,
        Cue::Asked,
        Cue::Found,
        Cue::Begun,
        Cue::Finished { is_read: false },
        Cue::Finished { is_read: true },
        Cue::ReadAll,
        Cue::Lost,
    ];
}

/// Returns the next phase, or `None` if the cue does not apply.
pub(crate) const fn next(phase: Phase, cue: Cue) -> Option<Phase> {
    use Phase::{Answering, Gone, Reading, Streaming, Unread, Waiting};
    Some(match (phase, cue) {
        (Reading, Cue::Arrived) => Answering,
        (Reading | Waiting, Cue::Asked) => Waiting,
        (Waiting, Cue::Found) => Answering,
        (Answering, Cue::Begun) => Streaming,
        (Answering | Streaming, Cue::Finished { is_read: false }) => Unread,
        (Answering | Streaming, Cue::Finished { is_read: true }) => Gone,
        (Unread, Cue::ReadAll) => Gone,
        (Reading | Waiting | Answering | Streaming | Unread, Cue::Lost) => Gone,

        // A request arrives once, and its response begins once.
        (Waiting | Answering | Streaming | Unread | Gone, Cue::Arrived) => return None,
        (Answering | Streaming | Unread | Gone, Cue::Asked) => return None,
        (Reading | Answering | Streaming | Unread | Gone, Cue::Found) => return None,
        (Reading | Waiting | Streaming | Unread | Gone, Cue::Begun) => return None,
        // A refusal also answers the exchange before it is finished.
        (Reading | Waiting | Unread | Gone, Cue::Finished { .. }) => return None,
        // An open response may have more to read.
        (Reading | Waiting | Answering | Streaming | Gone, Cue::ReadAll) => return None,
        (Gone, Cue::Lost) => return None,
    })
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;

    fn edges() -> impl Iterator<Item = (Phase, Cue, Phase)> {
        Phase::ALL.into_iter().flat_map(|from| {
            Cue::ALL
                .into_iter()
                .filter_map(move |cue| next(from, cue).map(|to| (from, cue, to)))
        })
    }

    #[test]
    fn every_phase_ends_when_the_client_is_lost_and_nothing_follows() {
        for phase in Phase::ALL {
            let is_over = phase == Phase::Gone;
            assert_eq!(next(phase, Cue::Lost).is_none(), is_over, "{phase}");
        }
        assert!(edges().all(|(from, _, _)| from != Phase::Gone));
    }

    #[test]
    fn the_diagram_in_the_docs_is_this_table() {
        let name = |cue: Cue| match cue {
            Cue::Finished { is_read: true } => "Finished, read",
            Cue::Finished { is_read: false } => "Finished, unread",
            Cue::Arrived => "Arrived",
            Cue::Asked => "Asked",
            Cue::Found => "Found",
            Cue::Begun => "Begun",
            Cue::ReadAll => "ReadAll",
            Cue::Lost => "Lost",
        };
        let mut lines: Vec<String> = edges()
            .map(|(from, cue, to)| format!("{from:<12} {:<18} {to}", name(cue)))
            .collect();
        lines.insert(0, format!("{:<12} {:<18} to", "from", "on"));
        let drawn: Vec<&str> = include_str!("table.txt").lines().collect();
        assert_eq!(drawn, lines);
    }
}
