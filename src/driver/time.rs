//! Time as plain data: instants and deadlines. Does not read a clock.

use core::fmt;
use core::ops::Add;
use core::time::Duration;

/// A point in time: nanoseconds since an origin that the driver picks.
///
/// The machine only compares and adds instants. A driver with a clock uses its start as the origin; a test or a simulator counts by itself.
/// If the clock stops while the computer sleeps, call the link's `wake` after the sleep.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Instant = Instant(0);

    /// The last instant. A deadline there never comes.
    pub const MAX: Instant = Instant(u64::MAX);

    /// The instant that lies `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// The instant that lies `since_origin` after the origin, at most about 584 years.
    #[must_use]
    pub fn from_origin(since_origin: Duration) -> Instant {
        Instant::ZERO + since_origin
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this instant; zero if this is not later.
    #[must_use]
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Saturates: a deadline too far away to be expressed never comes.
    fn add(self, span: Duration) -> Instant {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanos))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

/// The minimum distance of a deadline, so that a zero in a policy cannot cause a busy loop.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// When the driver must call the machine again, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The time at which, or after which, to call `handle_timeout`. A time in the past means now.
    pub at: Instant,
    /// The reason, for debugging.
    pub wake: Wake,
}

/// Why a deadline exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Wake {
    /// An ask of the server waits for its answer.
    Ask,
    /// The link waits for credentials, or for the end of a pause that the server asked for.
    Auth,
    /// The pause between two attempts is over.
    Backoff,
    /// A call runs out of time.
    Call,
    /// The next step of closing a transport is due.
    Close,
    /// An HTTP exchange must begin, continue or end.
    Exchange,
    /// The handshake is slow, or times out.
    Handshake,
    /// The server has been silent, or a probe was not answered.
    Keepalive,
    /// The transport is slow to open.
    Open,
    /// Output is waiting: poll it first.
    Output,
    /// A parked link tries to reach the server.
    Parked,
    /// The epoch has been ready long enough to reset the failure count.
    Stable,
    /// A watch is set up again, or its set-up times out.
    Watch,
}

/// Shows a duration in a readable form: `340 ms`, `2.5 s`, `3 min 20 s`.
pub(crate) struct Span(pub(crate) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis < 1_000 {
            return write!(f, "{millis} ms");
        }
        let (seconds, tenths) = (self.0.as_secs(), self.0.subsec_millis() / 100);
        match (seconds / 60, seconds % 60) {
            (0, _) if tenths > 0 => write!(f, "{seconds}.{tenths} s"),
            (0, _) => write!(f, "{seconds} s"),
            (minutes, 0) => write!(f, "{minutes} min"),
            (minutes, rest) => write!(f, "{minutes} min {rest} s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let late = Instant::from_nanos(u64::MAX) + Duration::from_secs(1);
        assert_eq!(late, Instant::from_nanos(u64::MAX));
        assert_eq!(Instant::ZERO + Duration::MAX, late);
        assert_eq!(Instant::ZERO.since(late), Duration::ZERO);
    }

    #[test]
    fn durations_are_shown_in_ms_s_and_min() {
        let shown = |millis| Span(Duration::from_millis(millis)).to_string();
        assert_eq!(shown(0), "0 ms");
        assert_eq!(shown(999), "999 ms");
        assert_eq!(shown(1_000), "1 s");
        assert_eq!(shown(2_560), "2.5 s");
        assert_eq!(shown(60_000), "1 min");
        assert_eq!(shown(200_900), "3 min 20 s");
    }
}
