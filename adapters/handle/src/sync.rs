//! The synchronisation of this crate: that of `std`, or that of the model checker loom, which tries all interleavings.

#[cfg(not(loom))]
pub(crate) use std::{
    sync::{Mutex, MutexGuard, atomic::AtomicBool},
    thread::{Thread, current as current_thread},
};

#[cfg(loom)]
pub(crate) use loom::{
    sync::{Mutex, MutexGuard, atomic::AtomicBool},
    thread::{Thread, current as current_thread},
};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::task::Waker;
use std::time::Duration;

/// Parks this thread for at most this long.
#[cfg(not(loom))]
pub(crate) fn park_thread(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => std::thread::park_timeout(timeout),
        None => std::thread::park(),
    }
}

/// Parks this thread. The model checker knows no time.
#[cfg(loom)]
pub(crate) fn park_thread(_: Option<Duration>) {
    loom::thread::park();
}

/// Locks a mutex and ignores poisoning: the data behind these locks is consistent whenever a lock is released, even by a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stores a waker and returns the replaced one. The caller drops that outside of every lock, because a waker may own a task that owns a handle.
#[must_use = "drop the replaced waker after the lock is released"]
pub(crate) fn store_waker(slot: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match slot {
        Some(current) if current.will_wake(waker) => None,
        _ => slot.replace(waker.clone()),
    }
}

/// Wakes a task of the application. A waker that panics must not end the driver that calls it.
pub(crate) fn wake(waker: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}
