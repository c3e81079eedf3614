//! The set of items of one task that are ready to be polled again. Does not know the items.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The ready set of one task: the keys of the items that were woken, and the waker of the task.
#[derive(Default)]
pub(super) struct ReadySet(Mutex<Ready>);

#[derive(Default)]
struct Ready {
    keys: Vec<u64>,
    task_waker: Option<Waker>,
}

impl ReadySet {
    /// Creates the ready flag of the item with this key.
    pub(super) fn new_flag(self: &Arc<Self>, key: u64) -> Arc<ReadyFlag> {
        Arc::new(ReadyFlag {
            ready_set: Arc::clone(self),
            key,
            state: AtomicU8::new(0),
            taken: AtomicUsize::new(0),
        })
    }

    /// Appends the keys of the items that were woken. From now on, this waker is woken when another one is.
    pub(super) fn take_ready(&self, task_waker: &Waker, ready_keys: &mut VecDeque<u64>) {
        let mut inner = self.lock();
        ready_keys.extend(inner.keys.drain(..));
        let replaced = match &inner.task_waker {
            Some(known) if known.will_wake(task_waker) => None,
            _ => inner.task_waker.replace(task_waker.clone()),
        };
        drop(inner);
        // A replaced waker may own a task that owns a flag of this set, so it is dropped outside of the lock.
        drop(replaced);
    }

    fn mark_ready(&self, key: u64) {
        let mut inner = self.lock();
        inner.keys.push(key);
        let is_first = inner.keys.len() == 1;
        let task_waker = inner.task_waker.as_ref().filter(|_| is_first).cloned();
        drop(inner);
        task_waker.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Ready> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ready flag and waker of one item.
pub(super) struct ReadyFlag {
    ready_set: Arc<ReadySet>,
    key: u64,
    state: AtomicU8,
    /// The number of request bytes that hyper took since the last call of `take_count`.
    taken: AtomicUsize,
}

/// The item was woken.
const WOKEN: u8 = 1;
/// The item is being polled, or will be polled anyway: a wake-up only sets the flag.
const POLLED: u8 = 2;

impl ReadyFlag {
    /// Marks the item as being polled, and clears earlier wake-ups, which this poll covers.
    pub(super) fn begin_poll(&self) {
        self.state.swap(POLLED, Ordering::SeqCst);
    }

    /// Ends the poll of the item. If a wake-up came meanwhile, the item is added to the ready set.
    pub(super) fn end_poll(&self) {
        let ended = self
            .state
            .compare_exchange(POLLED, 0, Ordering::SeqCst, Ordering::SeqCst);
        if ended == Err(POLLED | WOKEN) {
            self.state.store(WOKEN, Ordering::SeqCst);
            self.ready_set.mark_ready(self.key);
        }
    }

    /// Counts request bytes that hyper took. Wakes the item unless it is being polled, because that poll reads the count afterwards.
    pub(super) fn count_taken(&self, len: usize) {
        self.taken.fetch_add(len, Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) & POLLED == 0 {
            self.mark_ready();
        }
    }

    /// Returns the number of bytes taken since the last call.
    pub(super) fn take_count(&self) -> usize {
        if self.taken.load(Ordering::SeqCst) == 0 {
            return 0;
        }
        self.taken.swap(0, Ordering::SeqCst)
    }

    fn mark_ready(&self) {
        if self.state.fetch_or(WOKEN, Ordering::SeqCst) == 0 {
            self.ready_set.mark_ready(self.key);
        }
    }
}

impl Wake for ReadyFlag {
    fn wake(self: Arc<Self>) {
        self.mark_ready();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.mark_ready();
    }
}
