//! Which of the many things that one task looks after are to be looked at again. Knows not what they are.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// All bells of one task.
#[derive(Default)]
pub(super) struct Bells(Mutex<Rung>);

#[derive(Default)]
struct Rung {
    keys: Vec<u64>,
    listener: Option<Waker>,
}

impl Bells {
    /// A bell for what has this key.
    pub(super) fn hang(self: &Arc<Self>, key: u64) -> Arc<Bell> {
        Arc::new(Bell {
            bells: Arc::clone(self),
            key,
            state: AtomicU8::new(0),
            taken: AtomicUsize::new(0),
        })
    }

    /// Adds the keys of those that have rung. From now on, this listener is woken when one rings.
    pub(super) fn listen(&self, listener: &Waker, rung: &mut VecDeque<u64>) {
        let mut inside = self.lock();
        rung.extend(inside.keys.drain(..));
        let replaced = match &inside.listener {
            Some(known) if known.will_wake(listener) => None,
            _ => inside.listener.replace(listener.clone()),
        };
        drop(inside);
        // A waker may own a task, and that a bell.
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

/// What rings for one of them.
pub(super) struct Bell {
    bells: Arc<Bells>,
    key: u64,
    state: AtomicU8,
    /// How many bytes of a request were taken since that was asked.
    taken: AtomicUsize,
}

/// It has rung.
const RUNG: u8 = 1;
/// What it rings for is being looked at, or will be anyhow: nobody need be woken.
const WATCHED: u8 = 2;

impl Bell {
    /// What it rings for is looked at now: all that it rang for before is seen.
    pub(super) fn hush(&self) {
        self.state.swap(WATCHED, Ordering::SeqCst);
    }

    /// What it rings for is not looked at any more, until it rings. It may have done so meanwhile.
    pub(super) fn look_away(&self) {
        let quiet = self
            .state
            .compare_exchange(WATCHED, 0, Ordering::SeqCst, Ordering::SeqCst);
        if quiet == Err(WATCHED | RUNG) {
            self.state.store(RUNG, Ordering::SeqCst);
            self.bells.ring(self.key);
        }
    }

    /// Bytes of the request are on their way. Whoever watches finds out.
    pub(super) fn take(&self, len: usize) {
        self.taken.fetch_add(len, Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) & WATCHED == 0 {
            self.ring();
        }
    }

    /// How many bytes are on their way since this was asked last.
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
