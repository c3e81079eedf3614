//! The records that processes read and save, as the oracle judges them.

use everlink::auth::{Key, Lock};

use super::{Fate, Oracle, When, broken};
use crate::fact::Pid;
use crate::mark::{Kind, Mark};
use crate::rule::Rule;

impl Oracle {
    pub(super) fn read(&mut self, when: When, pid: Pid, lock: Option<Lock>, record: Option<&[u8]>) {
        self.forgive_if_lived(when, pid);
        let process = &mut self.processes[pid];
        if lock.is_some() {
            process.failed_locks = 0;
        }
        if lock == Some(Lock::SignIn) {
            process.turn = record.map(Into::into);
        }
        if let Some(refresh) = Mark::find_in(record, Kind::Refresh) {
            let newest = process.newest.entry(refresh.family).or_default();
            *newest = (*newest).max(refresh.serial);
        }
        let access = Mark::find_in(record, Kind::Access);
        if let Some(access) = access {
            let order = |mark: Mark| (mark.family, mark.serial);
            let current = process.current;
            let is_new = current.is_none_or(|current| order(current) < order(access));
            // Under a lock, a process may find a token that it cannot use, and take it over later.
            let is_loaded = lock.is_none() && process.loaded.insert(access);
            if lock == Some(Lock::SignIn) {
                process.current = Some(access);
            }
            if is_new || is_loaded {
                process.obtained = Some((access, when.mono));
                process.current = Some(access);
            }
            // A process whose own token is refused altogether takes over the stored one, even if that is older.
            if lock == Some(Lock::Record) && Some(access) != process.current {
                if let Some(open) = &mut process.open {
                    open.narrow = None;
                }
            }
        }
    }

    pub(super) fn saved(&mut self, pid: Pid, key: &Key, record: &[u8]) {
        let before = self.store.insert(key.clone(), record.into());
        self.processes[pid].failed_saves = 0;
        if !matches!(key, Key::Tokens { .. }) {
            return;
        }
        let newest = Mark::find_in(Some(record), Kind::Refresh);
        if let Some(refresh) = newest {
            for rotation in &mut self.families[refresh.family].rotations {
                if rotation.from < refresh.serial {
                    rotation.fate = Fate::Stored;
                }
            }
        }
        let before = before.as_deref();
        let after = Mark::find_in(Some(record), Kind::Access);
        match (Mark::find_in(before, Kind::Access), after) {
            (Some(before_access), None) => {
                let refused = Mark::find_in(before, Kind::Refresh);
                let was_told = |token| self.processes[pid].ended.contains(&token);
                if !refused.is_some_and(was_told) {
                    broken(
                        Rule::NothingIsForgotten,
                        format!("{pid} deleted {before_access:?}, which was not refused"),
                    );
                }
            }
            (Some(before), Some(after)) => {
                // Without the lock of the sign-in, two processes may sign in at once. Either result is good.
                let is_either = self.has_lock_failed && after.family != before.family;
                if (after.family, after.serial) < (before.family, before.serial) && !is_either {
                    broken(
                        Rule::NothingIsForgotten,
                        format!("{pid} replaced {before:?} by the older {after:?}"),
                    );
                }
            }
            (None, _) => {}
        }
    }
}
