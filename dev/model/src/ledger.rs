//! What began and must end exactly once: calls, questions, requests. The same ledger for every machine.

use std::collections::BTreeMap;
use std::fmt::Display;

/// Entries by id, each open or ended.
#[derive(Debug)]
pub(crate) struct Ledger<K, V> {
    entries: BTreeMap<K, (V, bool)>,
}

impl<K: Copy + Ord + Display, V> Ledger<K, V> {
    pub(crate) const fn new() -> Ledger<K, V> {
        Ledger {
            entries: BTreeMap::new(),
        }
    }

    pub(crate) fn begin(&mut self, id: K, entry: V) {
        let before = self.entries.insert(id, (entry, true));
        assert!(before.is_none(), "{id} was there before");
    }

    /// It ends: the first time, and after its beginning.
    pub(crate) fn end(&mut self, id: K) -> &mut V {
        let (entry, is_open) = self.entries.get_mut(&id).expect("an id that began");
        let was_open = std::mem::replace(is_open, false);
        assert!(was_open, "(1) {id} ends a second time");
        entry
    }

    pub(crate) fn is_open(&self, id: K) -> bool {
        self.entries.get(&id).is_some_and(|(_, is_open)| *is_open)
    }

    pub(crate) fn get(&self, id: K) -> Option<&V> {
        self.entries.get(&id).map(|(entry, _)| entry)
    }

    pub(crate) fn get_mut(&mut self, id: K) -> Option<&mut V> {
        self.entries.get_mut(&id).map(|(entry, _)| entry)
    }

    /// Those that have not ended, the oldest first.
    pub(crate) fn open(&self) -> impl Iterator<Item = (K, &V)> {
        let open = self.entries.iter().filter(|(_, (_, is_open))| *is_open);
        open.map(|(id, (entry, _))| (*id, entry))
    }

    pub(crate) fn open_ids(&self) -> Vec<K> {
        self.open().map(|(id, _)| id).collect()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = K> {
        self.entries.keys().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    pub(crate) fn assert_all_ended(&self) {
        let open = self.open().next().map(|(id, _)| id.to_string());
        assert_eq!(open, None, "(1) closed with something open");
    }
}
