//! A gate that lets the load and the faults of a run pass, and that can be closed for a quiet moment.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts those that work. Starts open.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    is_over: bool,
    inside: usize,
}

/// The right to work until it is dropped.
pub(crate) struct Pass<'a>(&'a Gate);

impl Gate {
    /// Waits while the gate is closed. Returns `None` when the run is over.
    pub(crate) fn enter(&self) -> Option<Pass<'_>> {
        let state = self.lock();
        let waited = self
            .changed
            .wait_while(state, |state| state.is_closed && !state.is_over);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_over {
            return None;
        }
        state.inside += 1;
        Some(Pass(self))
    }

    /// Closes the gate, and waits for everybody inside. Returns how many are still inside after this time.
    pub(crate) fn close(&self, limit: Duration) -> usize {
        let mut state = self.lock();
        state.is_closed = true;
        let waited = self
            .changed
            .wait_timeout_while(state, limit, |state| state.inside > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.inside
    }

    pub(crate) fn open(&self) {
        self.lock().is_closed = false;
        self.changed.notify_all();
    }

    /// Ends the run: nobody enters any more.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Sleeps for this time, or until the run is over.
    pub(crate) fn sleep(&self, time: Duration) {
        let state = self.lock();
        let _ = self
            .changed
            .wait_timeout_while(state, time, |state| !state.is_over);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.lock().inside -= 1;
        self.0.changed.notify_all();
    }
}
