//! Stops and restarts the clocks of calls, and measures the stops. Each clock catches up when it is read.

use core::mem;

use crate::client::requests::calls::Phase;
use crate::driver::Instant;

/// The stops of the clocks of calls, by the phase of the call.
#[derive(Debug, Default)]
pub(in crate::client) struct PhaseStops {
    /// Whether the clocks of sent calls are stopped, because a legacy server waits for an answer or the application holds back.
    held: bool,
    /// Whether all clocks are stopped, because nothing can be sent without credentials.
    frozen: bool,
    sent: Stops,
    queued: Stops,
}

impl PhaseStops {
    pub(super) const fn is_stopped(&self, phase: Phase) -> bool {
        match phase {
            Phase::Listing(_) | Phase::Sent(_) => self.held || self.frozen,
            Phase::Schema | Phase::Waiting => self.frozen,
            Phase::Asking => true,
        }
    }

    /// How many nanoseconds the clocks of calls in this phase were stopped in all. Only the difference between two times counts.
    pub(super) const fn in_all(&self, phase: Phase, now: Instant) -> u64 {
        match phase {
            Phase::Listing(_) | Phase::Sent(_) => self.sent.in_all(now),
            Phase::Schema | Phase::Waiting => self.queued.in_all(now),
            Phase::Asking => now.as_nanos(),
        }
    }

    /// Stops or restarts the clocks of sent calls. Returns whether that was new.
    pub(super) const fn hold(&mut self, held: bool, now: Instant) -> bool {
        let was = mem::replace(&mut self.held, held);
        self.sent.set(held || self.frozen, now);
        was != held
    }

    /// Stops or restarts all clocks. Returns whether that was new.
    pub(super) const fn freeze(&mut self, frozen: bool, now: Instant) -> bool {
        let was = mem::replace(&mut self.frozen, frozen);
        self.sent.set(self.held || frozen, now);
        self.queued.set(frozen, now);
        was != frozen
    }

    /// Whether all clocks are stopped.
    pub(super) const fn are_frozen(&self) -> bool {
        self.frozen
    }

    /// Whether sent calls or all calls have stopped clocks. Calls that wait for answers do not count.
    pub(super) const fn are_some_stopped(&self) -> bool {
        self.held || self.frozen
    }
}

/// The stops of all clocks of one kind. To stop or restart them costs the same for any number of clocks.
#[derive(Debug)]
pub(in crate::client) enum Stops {
    /// The clocks run, and were stopped for this many nanoseconds in all.
    Before(u64),
    /// The clocks are stopped. The time since this instant is as long as they were stopped in all.
    Since(Instant),
}

impl Default for Stops {
    fn default() -> Self {
        Stops::Before(0)
    }
}

impl Stops {
    /// Stops or restarts the clocks.
    pub(in crate::client) const fn set(&mut self, is_stopped: bool, now: Instant) {
        let in_all = self.in_all(now);
        *self = if is_stopped {
            Stops::Since(Instant::from_nanos(now.as_nanos() - in_all))
        } else {
            Stops::Before(in_all)
        };
    }

    /// How many nanoseconds the clocks were stopped in all.
    pub(in crate::client) const fn in_all(&self, now: Instant) -> u64 {
        match self {
            Stops::Before(in_all) => *in_all,
            Stops::Since(start) => now.as_nanos() - start.as_nanos(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::watch::List;

    const fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn seconds(stops: &PhaseStops, phase: Phase, now: u64) -> u64 {
        stops.in_all(phase, at(now)) / 1_000_000_000
    }

    #[test]
    fn holding_stops_the_clocks_of_sent_calls_only() {
        let mut stops = PhaseStops::default();
        assert!(stops.hold(true, at(10)));
        assert!(!stops.hold(true, at(20)), "it was held before");
        assert!(stops.are_some_stopped() && !stops.are_frozen());
        for phase in [Phase::Sent(1), Phase::Listing(List::Tools)] {
            assert!(stops.is_stopped(phase));
            assert_eq!(seconds(&stops, phase, 30), 20);
        }
        for phase in [Phase::Waiting, Phase::Schema] {
            assert!(!stops.is_stopped(phase));
            assert_eq!(seconds(&stops, phase, 30), 0);
        }
        assert!(stops.hold(false, at(40)));
        assert!(!stops.are_some_stopped());
        assert!(stops.hold(true, at(100)));
        assert_eq!(seconds(&stops, Phase::Sent(1), 101), 31);
    }

    #[test]
    fn clocks_that_are_held_and_frozen_run_when_both_are_over() {
        let mut stops = PhaseStops::default();
        assert!(stops.freeze(true, at(10)));
        assert!(stops.hold(true, at(20)));
        assert!(stops.hold(false, at(30)));
        assert!(stops.is_stopped(Phase::Sent(1)) && stops.is_stopped(Phase::Schema));
        assert!(stops.hold(true, at(40)));
        assert!(stops.freeze(false, at(50)));
        assert!(stops.is_stopped(Phase::Sent(1)) && !stops.is_stopped(Phase::Waiting));
        assert!(stops.hold(false, at(60)));
        assert_eq!(seconds(&stops, Phase::Sent(1), 70), 50);
        assert_eq!(seconds(&stops, Phase::Waiting, 70), 40);
    }

    #[test]
    fn clock_of_a_call_that_waits_for_answers_never_runs() {
        let stops = PhaseStops::default();
        assert!(stops.is_stopped(Phase::Asking));
        let before = seconds(&stops, Phase::Asking, 10);
        assert_eq!(seconds(&stops, Phase::Asking, 25) - before, 15);
    }
}
