//! The transition table of the listen stream, on which a legacy server sends messages by itself. It knows no exchanges.

/// The state of the listen stream.
///
/// ```text
#[doc = include_str!("listen_stream.txt")]
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListenStream {
    /// It was cut or refused, and will be requested again. Messages of the server are missed until then.
    Cut,
    /// There is none in this epoch, or not yet.
    Off,
    /// It is open, or is requested for the first time.
    On,
    /// There is none, for lack of credentials.
    Unauthorized,
}

/// A reason to move from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListenCue {
    /// The server has no such stream, or it brought nothing too often in a row.
    Abandoned,
    /// It ended, or could not be opened.
    Cut,
    /// The epoch has ended.
    EpochEnded,
    /// The server can be listened to: it was told that the handshake is over, or there are new credentials.
    Open,
    /// The server opened it.
    Opened,
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
        use ListenStream::{Cut, Off, On, Unauthorized};
        Some(match (self, cue) {
            (Off | Unauthorized, ListenCue::Open) | (Cut, ListenCue::Opened) => On,
            (On, ListenCue::Cut) => Cut,
            (Cut | On, ListenCue::Abandoned | ListenCue::EpochEnded)
            | (Unauthorized, ListenCue::EpochEnded) => Off,
            // A stream that is off was given up at this refusal.
            (Cut | Off | On, ListenCue::Unauthorized) => Unauthorized,

            // It is open or requested already.
            (Cut | On, ListenCue::Open) | (On, ListenCue::Opened) | (Cut, ListenCue::Cut) => {
                return None;
            }
            // There is no stream that could be opened, refused or end.
            (Off | Unauthorized, ListenCue::Abandoned | ListenCue::Cut | ListenCue::Opened)
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
            ListenStream::Cut,
            ListenStream::Off,
            ListenStream::On,
            ListenStream::Unauthorized,
        ];
        let cues = [
            ListenCue::Abandoned,
            ListenCue::Cut,
            ListenCue::EpochEnded,
            ListenCue::Open,
            ListenCue::Opened,
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
