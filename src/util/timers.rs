//! Deadlines by key, the earliest first. Does not know the meaning of a key.

use alloc::collections::BTreeMap;

use crate::driver::Instant;
use crate::util::sorted::Sorted;

/// One deadline per key. Arming a key again moves it.
#[derive(Debug)]
pub(crate) struct Timers<K> {
    /// The deadlines in order. Every step of the machine reads the first one.
    due: Sorted<(Instant, K), ()>,
    armed: BTreeMap<K, Instant>,
}

impl<K: Copy + Ord> Timers<K> {
    pub(crate) const fn new() -> Timers<K> {
        Timers {
            due: Sorted::new(),
            armed: BTreeMap::new(),
        }
    }

    /// Sets the deadline of this key. A deadline at [`Instant::MAX`] never comes, so it is not stored.
    pub(crate) fn arm(&mut self, key: K, at: Instant) {
        if at == Instant::MAX {
            return self.disarm(key);
        }
        if let Some(before) = self.armed.insert(key, at) {
            self.due.remove(&(before, key));
        }
        self.due.insert((at, key), ());
    }

    pub(crate) fn disarm(&mut self, key: K) {
        if let Some(before) = self.armed.remove(&key) {
            self.due.remove(&(before, key));
        }
    }

    /// Returns the deadline that is set for this key. `None` if there is none.
    pub(crate) fn at(&self, key: K) -> Option<Instant> {
        self.armed.get(&key).copied()
    }

    /// Removes all deadlines but these.
    pub(crate) fn keep(&mut self, mut is_wanted: impl FnMut(K) -> bool) {
        self.armed.retain(|key, _| is_wanted(*key));
        self.due.retain(|(_, key), ()| self.armed.contains_key(key));
    }

    pub(crate) fn clear(&mut self) {
        *self = Timers::new();
    }

    /// The earliest deadline, without touching it.
    pub(crate) fn next(&self) -> Option<(Instant, K)> {
        self.due.first().map(|(due, ())| *due)
    }

    /// Removes and returns the earliest deadline that is not after `now`.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<K> {
        let (at, key) = self.next()?;
        if at > now {
            return None;
        }
        self.disarm(key);
        Some(key)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.due.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn earliest_deadline_expires_first_and_once() {
        let mut timers = Timers::new();
        timers.arm('b', at(2));
        timers.arm('a', at(1));
        assert_eq!(timers.expire(at(0)), None);
        assert_eq!(timers.expire(at(5)), Some('a'));
        assert_eq!(timers.expire(at(5)), Some('b'));
        assert_eq!(timers.expire(at(5)), None);
    }

    #[test]
    fn deadline_at_instant_max_never_expires() {
        let mut timers = Timers::new();
        timers.arm('a', at(1));
        timers.arm('a', Instant::MAX);
        assert_eq!(timers.expire(Instant::MAX), None);
    }

    #[test]
    fn arming_again_moves_a_deadline_and_disarming_removes_it() {
        let mut timers = Timers::new();
        timers.arm('a', at(1));
        timers.arm('a', at(9));
        assert_eq!(timers.next(), Some((at(9), 'a')));
        assert_eq!(timers.len(), 1);
        timers.disarm('a');
        timers.disarm('a');
        assert_eq!(timers.next(), None);
        assert_eq!(timers.at('a'), None);
    }
}
