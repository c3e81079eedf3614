//! The store that all processes share: records, and locks that a death releases.

use std::collections::{BTreeMap, VecDeque};

use everlink::auth::{Key, Lock};

use crate::fact::Pid;

#[derive(Default)]
pub(crate) struct Store {
    pub(crate) records: BTreeMap<Key, Vec<u8>>,
    /// The owner of each lock comes first, then those that wait for it.
    locks: Vec<(Key, Lock, VecDeque<Pid>)>,
}

impl Store {
    fn queue(&mut self, key: &Key, lock: Lock) -> &mut VecDeque<Pid> {
        let mut locks = self.locks.iter();
        let found = locks.position(|(of, which, _)| (of, *which) == (key, lock));
        let at = found.unwrap_or_else(|| {
            self.locks.push((key.clone(), lock, VecDeque::new()));
            self.locks.len() - 1
        });
        &mut self.locks[at].2
    }

    /// Takes the lock or waits for it. Returns whether the process has it.
    pub(crate) fn lock(&mut self, pid: Pid, key: &Key, lock: Lock) -> bool {
        let queue = self.queue(key, lock);
        queue.push_back(pid);
        queue.len() == 1
    }

    pub(crate) fn has(&mut self, pid: Pid, key: &Key, lock: Lock) -> bool {
        self.queue(key, lock).front() == Some(&pid)
    }

    /// Releases the lock, or stops to wait for it. Returns the process that has it now, if it is another one.
    pub(crate) fn unlock(&mut self, pid: Pid, key: &Key, lock: Lock) -> Option<Pid> {
        let queue = self.queue(key, lock);
        let was_owner = queue.front() == Some(&pid);
        queue.retain(|of| *of != pid);
        queue.front().copied().filter(|_| was_owner)
    }

    /// The locks that a process holds or waits for.
    pub(crate) fn locks_of(&self, pid: Pid) -> Vec<(Key, Lock)> {
        let locks = self.locks.iter();
        let of = locks.filter(|(_, _, queue)| queue.contains(&pid));
        of.map(|(key, lock, _)| (key.clone(), *lock)).collect()
    }

    pub(crate) fn lock_count(&self, pid: Pid) -> usize {
        let locks = self.locks.iter();
        locks.filter(|(_, _, queue)| queue.contains(&pid)).count()
    }
}
