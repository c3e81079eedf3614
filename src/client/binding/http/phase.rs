//! The transition table of an HTTP exchange. It knows neither requests nor responses; the caller decides when a cue is due.

/// The phase of an exchange. An exchange can end in any phase.
///
/// ```text
#[doc = include_str!("phase.txt")]
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has not begun.
    Planned,
    /// The driver was told to begin it, and there is no response yet.
    Sent,
    /// The response is a stream of events.
    Events,
    /// The response is a single text.
    Single,
    /// The response refuses the request, and its body may say why.
    Refusal,
    /// Nothing more is expected of it.
    Spent,
}

/// A reason to move from one phase to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PhaseCue {
    /// The response is a stream of events.
    Events,
    /// The response has an error status.
    Refused,
    /// The driver was told to begin it.
    Sent,
    /// The response is a single text.
    Single,
    /// It has brought what was expected of it, or its request must be sent again.
    Spent,
}

impl Phase {
    /// Whether the driver was told to begin it.
    pub(super) const fn has_begun(self) -> bool {
        !matches!(self, Phase::Planned)
    }

    /// Returns the next phase, or `None` if the cue does not apply.
    pub(super) const fn next(self, cue: PhaseCue) -> Option<Phase> {
        use Phase::{Events, Planned, Refusal, Sent, Single, Spent};
        Some(match (self, cue) {
            (Planned, PhaseCue::Sent) => Sent,
            (Sent, PhaseCue::Events) => Events,
            (Sent, PhaseCue::Refused) => Refusal,
            (Sent, PhaseCue::Single) => Single,
            (Sent | Events | Single | Refusal | Spent, PhaseCue::Spent) => Spent,

            // It has begun already.
            (Sent | Events | Single | Refusal | Spent, PhaseCue::Sent) => return None,
            // Only a request that was sent has a response, and only one.
            (
                Planned | Events | Single | Refusal | Spent,
                PhaseCue::Events | PhaseCue::Refused | PhaseCue::Single,
            ) => return None,
            // What has not begun is dropped instead.
            (Planned, PhaseCue::Spent) => return None,
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
        let phases = [
            Phase::Planned,
            Phase::Sent,
            Phase::Events,
            Phase::Single,
            Phase::Refusal,
            Phase::Spent,
        ];
        let cues = [
            PhaseCue::Events,
            PhaseCue::Refused,
            PhaseCue::Sent,
            PhaseCue::Single,
            PhaseCue::Spent,
        ];
        let mut lines: Vec<String> = [format!("{:<8} {:<9} to", "from", "on")].into();
        for from in phases {
            for cue in cues {
                if let Some(to) = from.next(cue) {
                    let (from, cue) = (format!("{from:?}"), format!("{cue:?}"));
                    lines.push(format!("{from:<8} {cue:<9} {to:?}"));
                }
            }
        }
        let drawn: Vec<&str> = include_str!("phase.txt").lines().collect();
        assert_eq!(drawn, lines);
    }
}
