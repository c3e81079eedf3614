//! The severities of log messages.

use core::fmt;

/// A severity of RFC 5424, ordered from the least to the most severe, so that "at or above" is `>=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LogLevel {
    /// Detail for debugging the server.
    Debug,
    /// Ordinary information.
    Info,
    /// Normal, but significant.
    Notice,
    /// Something may go wrong.
    Warning,
    /// An operation failed.
    Error,
    /// A component failed.
    Critical,
    /// Someone must act at once.
    Alert,
    /// The system is unusable.
    Emergency,
}

impl LogLevel {
    /// Every level, the least severe first.
    pub const ALL: &'static [Self] = &[
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// The level as it is spelled on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    /// The level spelled `text`, exactly.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|level| level.as_str() == text)
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_round_trips_and_severity_grows() {
        assert_eq!(LogLevel::ALL.len(), 8);
        assert!(LogLevel::ALL.windows(2).all(|pair| pair[0] < pair[1]));
        for &level in LogLevel::ALL {
            assert_eq!(LogLevel::parse(level.as_str()), Some(level));
        }
        for wrong in ["", "Debug", "warn", "fatal"] {
            assert_eq!(LogLevel::parse(wrong), None, "{wrong:?}");
        }
    }
}
