//! The time of a relay, and its own two deadlines. Does not know what happens when one passes.

use core::time::Duration;

use crate::driver::{Deadline, Instant, Wake};

#[derive(Debug)]
pub(super) struct Clock {
    now: Instant,
    /// Until when the host waits for the offer.
    patience: Option<Instant>,
    /// When requests in flight are cut off, once the relay is ending.
    cutoff: Option<Instant>,
    /// Whether the relay ends because the single host has closed its input.
    has_input_ended: bool,
}

impl Clock {
    pub(super) const fn new() -> Clock {
        Clock {
            now: Instant::ZERO,
            patience: None,
            cutoff: None,
            has_input_ended: false,
        }
    }

    /// Sets the time, which never goes back, and returns it.
    pub(super) fn advance(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }

    pub(super) const fn now(&self) -> Instant {
        self.now
    }

    /// Lets the host wait at most this long for the offer. An earlier deadline stays.
    pub(super) fn wait_for_offer(&mut self, patience: Duration) {
        let until = self.now + patience;
        self.patience = Some(self.patience.map_or(until, |earlier| earlier.min(until)));
    }

    pub(super) const fn stop_waiting(&mut self) {
        self.patience = None;
    }

    pub(super) fn has_waited_enough(&self) -> bool {
        self.patience.is_some_and(|until| until <= self.now)
    }

    pub(super) fn cut_off_after(&mut self, drain: Duration) {
        self.cutoff = Some(self.now + drain);
    }

    pub(super) const fn forget_cutoff(&mut self) {
        self.cutoff = None;
    }

    pub(super) const fn set_input_ended(&mut self, has_ended: bool) {
        self.has_input_ended = has_ended;
    }

    /// Whether the single host has closed its input, and requests in flight have time left.
    pub(super) const fn has_input_ended(&self) -> bool {
        self.has_input_ended && self.cutoff.is_some()
    }

    pub(super) fn is_cut_off(&self) -> bool {
        self.cutoff.is_some_and(|at| at <= self.now)
    }

    /// The deadlines of the relay itself.
    pub(super) fn deadlines(&self) -> [Option<Deadline>; 2] {
        let own = |at: Option<Instant>, wake| at.map(|at| Deadline { at, wake });
        [
            own(self.patience, Wake::Handshake),
            own(self.cutoff, Wake::Close),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_input_counts_only_while_requests_have_time_left() {
        let mut clock = Clock::new();
        clock.set_input_ended(true);
        assert!(!clock.has_input_ended(), "no time was given");
        clock.cut_off_after(Duration::from_secs(1));
        assert!(clock.has_input_ended());
        clock.set_input_ended(false);
        assert!(
            !clock.has_input_ended(),
            "the relay ends for another reason"
        );
        clock.set_input_ended(true);
        clock.forget_cutoff();
        assert!(!clock.has_input_ended());
    }
}
