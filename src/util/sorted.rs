//! A map in the order of its keys, with fast access to the first entry.
//!
//! It replaces a `BTreeMap` that mostly holds at most one entry, as the queues of a link do. The first entry is stored in place, so a
//! single entry needs no tree node.

use alloc::collections::BTreeMap;
use core::borrow::Borrow;
use core::ops::Bound;

#[derive(Debug)]
pub(crate) struct Sorted<K, V> {
    first: Option<(K, V)>,
    /// All entries after the first.
    rest: BTreeMap<K, V>,
}

impl<K: Ord, V> Sorted<K, V> {
    pub(crate) const fn new() -> Sorted<K, V> {
        Sorted {
            first: None,
            rest: BTreeMap::new(),
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    pub(crate) const fn first(&self) -> Option<&(K, V)> {
        self.first.as_ref()
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        match &self.first {
            Some((first, value)) if first.borrow() == key => Some(value),
            Some(_) => self.rest.get(key),
            None => None,
        }
    }

    /// Adds an entry. Returns the value that was stored under this key before.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match &mut self.first {
            None => {
                self.first = Some((key, value));
                None
            }
            Some((first, held)) if *first == key => Some(core::mem::replace(held, value)),
            Some((first, _)) if key < *first => {
                let (second, held) = self.first.replace((key, value))?;
                self.rest.insert(second, held)
            }
            Some(_) => self.rest.insert(key, value),
        }
    }

    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        match &self.first {
            Some((first, _)) if first.borrow() == key => {
                let second = self.rest.pop_first();
                core::mem::replace(&mut self.first, second).map(|(_, value)| value)
            }
            Some(_) => self.rest.remove(key),
            None => None,
        }
    }

    pub(crate) fn retain(&mut self, mut is_wanted: impl FnMut(&K, &mut V) -> bool) {
        self.rest.retain(&mut is_wanted);
        if let Some((key, value)) = &mut self.first {
            if !is_wanted(key, value) {
                self.first = self.rest.pop_first();
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let first = self.first.iter().map(|(key, value)| (key, value));
        first.chain(&self.rest)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// The entries from this key on, the key included.
    pub(crate) fn from(&self, key: &K) -> impl Iterator<Item = (&K, &V)> {
        let first = self.first.iter().filter(move |(first, _)| first >= key);
        let rest = self.rest.range((Bound::Included(key), Bound::Unbounded));
        first.map(|(key, value)| (key, value)).chain(rest)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn random_operations_give_the_same_result_as_a_btree_map() {
        let mut sorted = Sorted::new();
        let mut map = BTreeMap::new();
        let mut rng = 7_u64;
        for turn in 0..20_000_u64 {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = (rng >> 33) % 6;
            match (rng >> 40) % 8 {
                0..=2 => assert_eq!(sorted.insert(key, turn), map.insert(key, turn)),
                3..=5 => assert_eq!(sorted.remove(&key), map.remove(&key)),
                6 if turn % 50 == 0 => {
                    sorted.retain(|held, _| *held != key);
                    map.retain(|held, _| *held != key);
                }
                _ => assert_eq!(sorted.get(&key), map.get(&key)),
            }
            assert_eq!(
                (sorted.len(), sorted.is_empty()),
                (map.len(), map.is_empty())
            );
            assert_eq!(
                sorted.first().copied(),
                map.first_key_value().map(|(key, value)| (*key, *value))
            );
            assert!(sorted.iter().eq(&map) && sorted.keys().eq(map.keys()));
            let from: Vec<_> = sorted.from(&key).collect();
            assert_eq!(from, map.range(key..).collect::<Vec<_>>());
        }
    }
}
