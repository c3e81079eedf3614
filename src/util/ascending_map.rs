//! A map for keys that only grow, such as counters.
//!
//! It replaces a `BTreeMap` where entries are removed in any order, and it has no nodes. A single entry costs only its own size. Adding and
//! removing allocates nothing while there is capacity. Entries are moved only when the gaps are closed.

use alloc::collections::VecDeque;

/// An empty map frees a buffer with room for more entries than this, to save memory. It keeps a smaller buffer, so that single calls do not allocate.
const KEPT: usize = 2;

/// The number of gaps that the map tolerates, in addition to one per entry. With more, it closes all gaps.
const GAPS: usize = 16;

/// A map in which each added key must be greater than all keys before. Lookup is a binary search.
#[derive(Clone, Debug)]
pub(crate) struct AscendingMap<K, V> {
    /// In the order of their keys. A removed entry leaves a gap, except at the front.
    entries: VecDeque<(K, Option<V>)>,
    len: usize,
}

impl<K: Copy + Ord, V> AscendingMap<K, V> {
    pub(crate) const fn new() -> AscendingMap<K, V> {
        AscendingMap {
            entries: VecDeque::new(),
            len: 0,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Adds an entry. The key must be greater than all keys before, otherwise the lookup would not find it.
    pub(crate) fn add(&mut self, key: K, value: V) {
        debug_assert!(self.entries.back().is_none_or(|(last, _)| *last < key));
        self.reserve(1);
        self.entries.push_back((key, Some(value)));
        self.len += 1;
    }

    /// Reserves capacity for `more` entries, so that adding them does not allocate.
    pub(crate) fn reserve(&mut self, more: usize) {
        let room = self.entries.capacity();
        if room - self.entries.len() < more {
            // Grows like `VecDeque` itself, but from a capacity of 1.
            let growth = (2 * room - self.entries.len()).max(more);
            self.entries.reserve_exact(growth);
        }
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        let at = self.position(key)?;
        self.entries.get(at)?.1.as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let at = self.position(key)?;
        self.entries.get_mut(at)?.1.as_mut()
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let at = self.position(key)?;
        let removed = self.entries.get_mut(at)?.1.take()?;
        self.len -= 1;
        self.close_gaps();
        Some(removed)
    }

    pub(crate) fn pop_first(&mut self) -> Option<V> {
        // `close_gaps` removes gaps at the front, so the first slot holds a value.
        let (_, first) = self.entries.pop_front()?;
        self.len -= 1;
        self.close_gaps();
        first
    }

    /// Drops an entry in place, if the key is in the map. Unlike [`remove`](AscendingMap::remove), this does not move a large value out of the map.
    pub(crate) fn discard(&mut self, key: K) {
        if let Some(at) = self.position(key) {
            if let Some((_, slot @ Some(_))) = self.entries.get_mut(at) {
                *slot = None;
                self.len -= 1;
                self.close_gaps();
            }
        }
    }

    pub(crate) fn retain(&mut self, mut is_wanted: impl FnMut(K, &V) -> bool) {
        self.entries.retain(|(key, value)| {
            let value = value.as_ref();
            value.is_some_and(|value| is_wanted(*key, value))
        });
        self.len = self.entries.len();
        self.close_gaps();
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = K> + '_ {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        let entries = self.entries.iter_mut();
        entries.filter_map(|(_, value)| value.as_mut())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        let entries = self.entries.iter();
        entries.filter_map(|(key, value)| Some((*key, value.as_ref()?)))
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = V> {
        self.entries.into_iter().filter_map(|(_, value)| value)
    }

    fn position(&self, key: K) -> Option<usize> {
        // Callers most often look up the oldest entry.
        match self.entries.front() {
            Some((first, _)) if *first == key => Some(0),
            Some(_) => self.search(key),
            None => None,
        }
    }

    #[inline(never)]
    fn search(&self, key: K) -> Option<usize> {
        let found = self.entries.binary_search_by_key(&key, |(key, _)| *key);
        found.ok()
    }

    fn close_gaps(&mut self) {
        while let Some((_, None)) = self.entries.front() {
            self.entries.pop_front();
        }
        if self.len == 0 && self.entries.capacity() > KEPT {
            self.entries = VecDeque::new();
        } else if self.entries.len() > 2 * self.len + GAPS {
            self.entries.retain(|(_, value)| value.is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn random_operations_give_the_same_result_as_a_btree_map() {
        let mut map = AscendingMap::new();
        let mut btree = BTreeMap::new();
        let mut rng = 7_u64;
        for key in 0..4_000_u64 {
            map.add(key, key * 3);
            btree.insert(key, key * 3);
            for _ in 0..2 {
                rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let target = (rng >> 33) % (key + 1);
                // Some entries stay long, so that gaps arise after them.
                if target % 97 != 0 {
                    assert_eq!(map.get(target), btree.get(&target));
                    if target % 2 == 0 {
                        assert_eq!(map.remove(target), btree.remove(&target));
                    } else {
                        map.discard(target);
                        btree.remove(&target);
                    }
                    assert_eq!(map.get_mut(target), None);
                }
            }
            assert_eq!(map.len(), btree.len());
            assert!(map.entries.len() <= 2 * btree.len() + GAPS);
        }
        let all: Vec<_> = map.iter().map(|(key, value)| (key, *value)).collect();
        assert_eq!(all, btree.clone().into_iter().collect::<Vec<_>>());
        assert!(map.iter().all(|(key, value)| *value == key * 3));
        for _ in 0..10 {
            assert_eq!(map.pop_first(), btree.pop_first().map(|(_, value)| value));
        }
        map.retain(|key, _| key % 2 == 0);
        btree.retain(|key, _| key % 2 == 0);
        assert_eq!(map.len(), btree.len());
        assert!(map.keys().eq(btree.keys().copied()));
        assert!(map.values().eq(btree.values()));
        assert!(map.into_values().eq(btree.into_values()));
    }

    #[test]
    fn empty_map_frees_its_capacity() {
        let mut map = AscendingMap::new();
        map.add(1, [0_u8; 300]);
        assert_eq!(map.entries.capacity(), 1);
        for key in 2..100 {
            map.add(key, [0; 300]);
        }
        for key in (1..100).rev() {
            assert!(map.remove(key).is_some());
        }
        assert_eq!((map.len(), map.entries.capacity()), (0, 0));
        assert_eq!(map.remove(1), None);
    }

    #[test]
    fn map_that_retains_nothing_frees_its_capacity() {
        let mut map = AscendingMap::new();
        for key in 0..100 {
            map.add(key, ());
        }
        map.retain(|_, ()| false);
        assert_eq!((map.len(), map.entries.capacity()), (0, 0));
        // The map keeps a buffer for two entries, so that a link with one call at a time does not allocate.
        map.reserve(KEPT);
        map.retain(|_, ()| false);
        assert_eq!(map.entries.capacity(), KEPT);
    }

    #[test]
    fn gaps_are_closed_when_they_exceed_the_entries_by_more_than_16() {
        let mut map = AscendingMap::new();
        for key in 0..20 {
            map.add(key, ());
        }
        // The first entry stays, so that no gap is at the front. After this loop, the map has 2 entries and 18 gaps.
        for key in 1..19 {
            map.discard(key);
            assert_eq!(map.entries.len(), 20);
        }
        map.discard(19);
        assert_eq!((map.entries.len(), map.len()), (1, 1));
    }

    #[test]
    fn capacity_doubles_and_is_reserved_at_once() {
        let mut map = AscendingMap::new();
        let capacity_after = |key: u32| {
            map.add(key, [0_u8; 300]);
            map.entries.capacity()
        };
        let capacities: Vec<usize> = (1..=5).map(capacity_after).collect();
        assert_eq!(capacities, [1, 2, 4, 4, 8]);
        map.reserve(3);
        assert_eq!(map.entries.capacity(), 8);
        map.reserve(20);
        assert_eq!(map.entries.capacity(), 25);
    }
}
