//! The transition table of a handshake. It knows neither replies nor time; the caller decides when a cue is due.

/// The phase of a handshake.
///
/// ```text
#[doc = include_str!("phase.txt")]
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Phase {
    /// There is no transport, or it is not open yet.
    Idle,
    /// A ping tests whether the session of an earlier epoch continues.
    Reviving,
    /// `server/discover` is under way.
    Probing,
    /// `initialize` waits for that of a relay's client.
    Held,
    /// `initialize` is under way.
    Initializing,
    /// The transport of 2024-11-05 is asked for its URL for messages. `initialize` may be under way too.
    SeekingEndpoint,
    /// The two ends agreed on a version.
    Agreed,
    /// There is no agreement with this server.
    Refused,
}

/// A reason to move from one phase to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Cue {
    /// The two ends agreed on a version.
    Agree,
    /// `server/discover` is sent.
    Discover,
    /// The epoch has ended.
    End,
    /// `initialize` is needed, but waits for a relay's client.
    Hold,
    /// `initialize` is sent.
    Initialize,
    /// The server is not behind the transport of 2024-11-05, which was only a guess.
    MissEndpoint,
    /// The server refused, or nothing is left to try.
    Refuse,
    /// A session of an earlier epoch is tried.
    Revive,
    /// The transport of 2024-11-05 is tried.
    SeekEndpoint,
}

/// Returns the next phase, or `None` if the cue does not apply.
pub(super) const fn next(phase: Phase, cue: Cue) -> Option<Phase> {
    use Phase::{Agreed, Held, Idle, Initializing, Probing, Refused, Reviving, SeekingEndpoint};
    Some(match (phase, cue) {
        (Idle, Cue::Revive) => Reviving,
        (Idle | Probing | Held | Initializing, Cue::SeekEndpoint) => SeekingEndpoint,
        // At most once in each direction, which `Handshake` counts (S-VER-02).
        (Idle | Reviving | Probing | Initializing | SeekingEndpoint, Cue::Discover) => Probing,
        (Idle | Reviving | Probing | Held | Initializing | SeekingEndpoint, Cue::Initialize)
        | (SeekingEndpoint, Cue::MissEndpoint) => Initializing,
        (Idle | Reviving | Probing | SeekingEndpoint, Cue::Hold) => Held,
        (Reviving | Probing | Initializing | SeekingEndpoint, Cue::Agree) => Agreed,
        (Idle | Reviving | Probing | Initializing | SeekingEndpoint, Cue::Refuse) => Refused,
        (_, Cue::End) => Idle,

        // The handshake has begun already.
        (
            Reviving | Probing | Held | Initializing | SeekingEndpoint | Agreed | Refused,
            Cue::Revive,
        )
        | (Reviving | SeekingEndpoint | Agreed | Refused, Cue::SeekEndpoint) => {
            return None;
        }
        // Nothing follows an agreement or a refusal in the same epoch.
        (
            Agreed | Refused,
            Cue::Agree | Cue::Discover | Cue::Hold | Cue::Initialize | Cue::Refuse,
        ) => return None,
        // `initialize` is held only before it is sent.
        (Held | Initializing, Cue::Hold) => return None,
        // While `initialize` is held, nothing is under way that the server could answer.
        (Held, Cue::Agree | Cue::Discover | Cue::Refuse) | (Idle, Cue::Agree) => return None,
        (Idle | Reviving | Probing | Held | Initializing | Agreed | Refused, Cue::MissEndpoint) => {
            return None;
        }
    })
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;

    const PHASES: [Phase; 8] = [
        Phase::Idle,
        Phase::Reviving,
        Phase::Probing,
        Phase::Held,
        Phase::Initializing,
        Phase::SeekingEndpoint,
        Phase::Agreed,
        Phase::Refused,
    ];

    const CUES: [Cue; 9] = [
        Cue::Agree,
        Cue::Discover,
        Cue::End,
        Cue::Hold,
        Cue::Initialize,
        Cue::MissEndpoint,
        Cue::Refuse,
        Cue::Revive,
        Cue::SeekEndpoint,
    ];

    #[test]
    fn diagram_in_the_docs_is_this_table() {
        let mut lines: Vec<String> = [format!("{:<16} {:<13} to", "from", "on")].into();
        for from in PHASES {
            for cue in CUES {
                if let Some(to) = next(from, cue) {
                    let (from, cue) = (format!("{from:?}"), format!("{cue:?}"));
                    lines.push(format!("{from:<16} {cue:<13} {to:?}"));
                }
            }
        }
        let drawn: Vec<&str> = include_str!("phase.txt").lines().collect();
        assert_eq!(drawn, lines);
    }
}
