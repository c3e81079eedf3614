//! The transition table of the listen stream, on which a legacy server sends messages by itself. It knows no exchanges.

/// The state of the listen stream.
///
/// ```text
#[doc = include_str!("listen_stream.txt")]
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListenStream {
    /// There is none in this epoch, or not yet.
    Off,
    /// It is open, or will be.
    On,
    /// There is none, for lack of credentials.
    Unauthorized,
}

/// A reason to move from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListenCue {
    /// The server has no such stream, or it brought nothing too often in a row.
    Abandoned,
    /// The epoch has ended.
    EpochEnded,
    /// The server can be listened to: it was told that the handshake is over, or there are new credentials.
    Open,
    /// The server refused the stream for lack of credentials.
    Unauthorized,
}

impl ListenStream {
    /// Moves to the state that follows on this cue. Returns false if there is none.
    pub(super) fn step(&mut self, cue: ListenCue) -> bool {
        match self.next(cue) {
            Some(next) => {
                *self = next;
                true
            }
            None => false,
        }
    }

    const fn next(self, cue: ListenCue) -> Option<ListenStream> {
        use ListenStream::{Off, On, Unauthorized};
        Some(match (self, cue) {
            (Off | Unauthorized, ListenCue::Open) => On,
            (On, ListenCue::Abandoned | ListenCue::EpochEnded)
            | (Unauthorized, ListenCue::EpochEnded) => Off,
            // A stream that is off was given up at this refusal.
            (Off | On, ListenCue::Unauthorized) => Unauthorized,

            // It is open already.
            (On, ListenCue::Open) => return None,
            // There is no stream that could be refused or end.
            (Off | Unauthorized, ListenCue::Abandoned)
            | (Unauthorized, ListenCue::Unauthorized)
            | (Off, ListenCue::EpochEnded) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn diagram_in_the_docs_is_this_table() {
        let states = [
            ListenStream::Off,
            ListenStream::On,
            ListenStream::Unauthorized,
        ];
        let cues = [
            ListenCue::Abandoned,
            ListenCue::EpochEnded,
            ListenCue::Open,
            ListenCue::Unauthorized,
        ];
        let mut lines: Vec<String> = [format!("{:<13} {:<13} to", "from", "on")].into();
        for from in states {
            for cue in cues {
                if let Some(to) = from.next(cue) {
                    let (from, cue) = (format!("{from:?}"), format!("{cue:?}"));
                    lines.push(format!("{from:<13} {cue:<13} {to:?}"));
                }
            }
        }
        let drawn: Vec<&str> = include_str!("listen_stream.txt").lines().collect();
        assert_eq!(drawn, lines);
    }
}
