//! The set of items of one task that are ready to be polled again. Does not know the items.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The ready set of one task: the keys of the items that were woken, and the waker of the task.
#[derive(Default)]
pub(super) struct Bells(Mutex<Rung>);

#[derive(Default)]
struct Rung {
    keys: Vec<u64>,
    listener: Option<Waker>,
}

impl Bells {
    /// Creates the ready flag of the item with this key.
    pub(super) fn hang(self: &Arc<Self>, key: u64) -> Arc<Bell> {
        Arc::new(Bell {
            bells: Arc::clone(self),
            key,
            state: AtomicU8::new(0),
            taken: AtomicUsize::new(0),
        })
    }

    /// Appends the keys of the items that were woken. From now on, this waker is woken when another one is.
    pub(super) fn listen(&self, listener: &Waker, rung: &mut VecDeque<u64>) {
        let mut inside = self.lock();
        rung.extend(inside.keys.drain(..));
        let replaced = match &inside.listener {
            Some(known) if known.will_wake(listener) => None,
            _ => inside.listener.replace(listener.clone()),
        };
        drop(inside);
        // A replaced waker may own a task that owns a flag of this set, so it is dropped outside of the lock.
        drop(replaced);
    }

    fn ring(&self, key: u64) {
        let mut inside = self.lock();
        inside.keys.push(key);
        let is_first = inside.keys.len() == 1;
        let listener = inside.listener.as_ref().filter(|_| is_first).cloned();
        drop(inside);
        listener.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Rung> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ready flag and waker of one item.
pub(super) struct Bell {
    bells: Arc<Bells>,
    key: u64,
    state: AtomicU8,
    /// The number of request bytes that hyper took since the last call of `taken`.
    taken: AtomicUsize,
}

/// The item was woken.
const RUNG: u8 = 1;
/// The item is being polled, or will be polled anyway: a wake-up only sets the flag.
const WATCHED: u8 = 2;

impl Bell {
    /// Marks the item as being polled, and clears earlier wake-ups, which this poll covers.
    pub(super) fn hush(&self) {
        self.state.swap(WATCHED, Ordering::SeqCst);
    }

    /// Ends the poll of the item. If a wake-up came meanwhile, the item is added to the ready set.
    pub(super) fn look_away(&self) {
        let quiet = self
            .state
            .compare_exchange(WATCHED, 0, Ordering::SeqCst, Ordering::SeqCst);
        if quiet == Err(WATCHED | RUNG) {
            self.state.store(RUNG, Ordering::SeqCst);
            self.bells.ring(self.key);
        }
    }

    /// Counts request bytes that hyper took. Wakes the item unless it is being polled, because that poll reads the count afterwards.
    pub(super) fn take(&self, len: usize) {
        self.taken.fetch_add(len, Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) & WATCHED == 0 {
            self.ring();
        }
    }

    /// Returns the number of bytes taken since the last call.
    pub(super) fn taken(&self) -> usize {
        if self.taken.load(Ordering::SeqCst) == 0 {
            return 0;
        }
        self.taken.swap(0, Ordering::SeqCst)
    }

    fn ring(&self) {
        if self.state.fetch_or(RUNG, Ordering::SeqCst) == 0 {
            self.bells.ring(self.key);
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}
