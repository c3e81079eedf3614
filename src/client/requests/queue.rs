//! The queued calls in the order of sending, and the number of those in flight. Does not send anything.

use alloc::collections::BTreeSet;

use crate::client::failure::Delivery;
use crate::client::requests::calls::{Call, Phase};
use crate::driver::CallId;
use crate::util::sorted::Sorted;
use crate::wire::SHORT;

#[derive(Debug)]
pub(super) struct Queue {
    /// The queued calls in the order of sending: by rank, then by age.
    calls: Sorted<(u8, CallId), ()>,
    /// Whether short calls are sent before long ones.
    short_first: bool,
    /// Those that were sent before, and now carry the answers that their server wanted.
    continuing: BTreeSet<CallId>,
    bytes: usize,
    /// The bytes of all calls that are longer than [`SHORT`], whatever their phase.
    long_bytes: usize,
    in_flight: usize,
}

impl Queue {
    pub(super) const fn new(short_first: bool) -> Queue {
        Queue {
            calls: Sorted::new(),
            short_first,
            continuing: BTreeSet::new(),
            bytes: 0,
            long_bytes: 0,
            in_flight: 0,
        }
    }

    /// Records the phase that a call has entered.
    pub(super) fn enter(&mut self, id: CallId, call: &mut Call) {
        match call.phase {
            Phase::Waiting => {
                let bytes = call.weight;
                // A call that was sent before goes first.
                let is_ranked = self.short_first && call.delivery() == Delivery::NotSent;
                call.rank = if is_ranked { rank_of(bytes) } else { 0 };
                self.calls.insert((call.rank, id), ());
                self.bytes += bytes;
                if call.is_continuing() {
                    self.continuing.insert(id);
                }
            }
            Phase::Asking | Phase::Sent(_) => self.in_flight += 1,
            Phase::Listing(_) | Phase::Schema => {}
        }
    }

    /// Takes a call out of its phase.
    pub(super) fn leave(&mut self, id: CallId, call: &Call) {
        match call.phase {
            Phase::Waiting => {
                self.calls.remove(&(call.rank, id));
                self.bytes -= call.weight;
                if self.continuing.remove(&id) && self.continuing.is_empty() {
                    self.continuing = BTreeSet::new();
                }
            }
            Phase::Asking | Phase::Sent(_) => self.in_flight -= 1,
            Phase::Listing(_) | Phase::Schema => {}
        }
    }

    /// Forgets a call that has ended.
    pub(super) fn forget(&mut self, id: CallId, call: &Call) {
        self.leave(id, call);
        if call.weight > SHORT {
            self.long_bytes -= call.weight;
        }
    }

    /// Counts a new call.
    pub(super) fn accept(&mut self, call: &Call) {
        debug_assert_eq!(call.weight, call.bytes());
        if call.weight > SHORT {
            self.long_bytes += call.weight;
        }
    }

    /// Counts a call again that may have changed, and is not queued.
    pub(super) fn weigh(&mut self, call: &mut Call) {
        self.long_bytes -= if_long(call.weight);
        call.weight = call.bytes();
        self.long_bytes += if_long(call.weight);
    }

    pub(super) fn first(&self) -> Option<CallId> {
        self.calls.first().map(|((_, id), ())| *id)
    }

    /// The queued calls, in the order of sending.
    pub(super) fn ids(&self) -> impl Iterator<Item = CallId> {
        self.calls.keys().map(|(_, id)| *id)
    }

    /// The oldest queued call that carries the answers that its server wanted.
    pub(super) fn first_continuing(&self) -> Option<CallId> {
        self.continuing.first().copied()
    }

    /// The bytes of all queued calls.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes of all long calls, whatever their phase.
    pub(super) const fn long_bytes(&self) -> usize {
        self.long_bytes
    }

    /// The number of calls that are sent, or wait for answers to asks.
    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }
}

/// Returns 0 for a short call, and otherwise its size.
pub(super) const fn if_long(bytes: usize) -> usize {
    if bytes > SHORT { bytes } else { 0 }
}

/// Returns 0 for a short call, and otherwise the binary logarithm of the size.
const fn rank_of(bytes: usize) -> u8 {
    if bytes <= SHORT {
        0
    } else {
        bytes.ilog2() as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_calls_have_the_same_rank_and_longer_ones_rank_by_powers_of_two() {
        assert_eq!((rank_of(0), rank_of(SHORT)), (0, 0));
        assert!(rank_of(SHORT + 1) > 0);
        let large = 1 << 20;
        assert_eq!(rank_of(large), rank_of(2 * large - 1));
        assert_eq!(rank_of(2 * large), rank_of(large) + 1);
    }
}
