//! Lets a caller run the driver's step on its own thread while the driver sleeps. Does not know the machine.
//!
//! Waking a thread costs more than a step. So the driver is woken only if it must sleep differently, or if a step leaves it an output. Only the
//! driver waits for the lock. A caller that finds the lock taken sets a flag, and the holder reads the flag again after it unlocks.

use std::cell::Cell;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use everlink_handle::PostponedWakes;

/// The maximum number of steps that one caller runs while others queue commands. After that it wakes the driver and returns to its own work.
const TURNS: usize = 4;

/// A machine with the step that any thread may run.
pub(crate) trait Craft: Send + 'static {
    /// Runs the queued commands, as far as any thread may. Returns whether the driver must be woken.
    fn turn(&mut self) -> bool;
}

/// The lock around a machine. As a waker, it runs a step on the thread that wakes it.
pub(crate) struct Helm<C> {
    /// The machine; `None` after the end.
    craft: Mutex<Option<C>>,
    /// Whether a command was queued since the last step began.
    is_asked: AtomicBool,
    /// The driver's waker.
    bell: Waker,
    /// Runs after each step, when the lock is released.
    then: Box<dyn Fn() + Send + Sync>,
}

thread_local! {
    static HOLDS_BACK: Cell<bool> = const { Cell::new(false) };
}

/// Runs `ask` without steps: commands that this thread queues meanwhile are left for the next step. The caller makes sure that there is one.
pub(crate) fn hold_back(ask: impl FnOnce()) {
    let _hold = Hold;
    HOLDS_BACK.set(true);
    ask();
}

/// Clears the flag on drop, also during a panic, because the thread may queue other commands later.
struct Hold;

impl Drop for Hold {
    fn drop(&mut self) {
        HOLDS_BACK.set(false);
    }
}

impl<C: Craft> Wake for Helm<C> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !HOLDS_BACK.get() {
            self.help();
        }
    }
}

impl<C: Craft> Helm<C> {
    pub(crate) fn new(craft: C, bell: Waker, then: impl Fn() + Send + Sync + 'static) -> Helm<C> {
        Helm {
            craft: Mutex::new(Some(craft)),
            is_asked: AtomicBool::new(false),
            bell,
            then: Box::new(then),
        }
    }

    /// Runs the driver's turn, and repeats it while callers queue commands meanwhile. Returns how to sleep, as the last turn said, or `None` after
    /// the end.
    pub(crate) fn steer<S>(&self, mut turn: impl FnMut(&mut C) -> Option<S>) -> Option<S> {
        loop {
            let wakes = PostponedWakes::begin();
            let mut craft = self.craft.lock().expect("no turn panics");
            self.is_asked.store(false, Ordering::Relaxed);
            let sleep = craft.as_mut().and_then(&mut turn);
            drop(craft);
            drop(wakes);
            (self.then)();
            if sleep.is_none() || !self.is_asked() {
                return sleep;
            }
        }
    }

    /// Runs a step for a caller that queued a command, if the lock is free.
    pub(crate) fn help(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
        for _ in 0..TURNS {
            if !self.is_asked() {
                return;
            }
            let wakes = PostponedWakes::begin();
            // If the lock is taken, its holder reads `is_asked` after it unlocks. If it is poisoned, the step that panicked has woken the driver.
            let Ok(mut craft) = self.craft.try_lock() else {
                return;
            };
            self.is_asked.store(false, Ordering::Relaxed);
            let alarm = Alarm(&self.bell);
            let wakes_driver = craft.as_mut().is_some_and(Craft::turn);
            drop(craft);
            // Wake the driver before the postponed wakers run, because their tasks may wait for it.
            if wakes_driver {
                drop(alarm);
            } else {
                mem::forget(alarm);
            }
            drop(wakes);
            (self.then)();
        }
        if self.is_asked() {
            self.bell.wake_by_ref();
        }
    }

    /// Whether a command was queued. A caller stores `true`, passes this fence and then tries the lock. The holder unlocks, passes this fence and
    /// then loads the flag. The two `SeqCst` fences guarantee that either the caller's `try_lock` succeeds or the holder's load returns `true`.
    fn is_asked(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_asked.load(Ordering::Relaxed)
    }

    /// Runs the driver. Drops the machine afterwards, also after a panic.
    pub(crate) fn attend(&self, drive: impl FnOnce()) {
        let _end = End(self);
        drive();
    }
}

struct End<'a, C>(&'a Helm<C>);

impl<C> Drop for End<'_, C> {
    fn drop(&mut self) {
        let craft = self.0.craft.lock();
        let craft = craft.unwrap_or_else(PoisonError::into_inner).take();
        drop(craft);
    }
}

/// Wakes the driver on drop, also during a panic.
struct Alarm<'a>(&'a Waker);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.0.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_thread_holds_nothing_back_after_a_panic() {
        let panicked = catch_unwind(|| hold_back(|| panic!("as it was told to")));
        assert!(panicked.is_err());
        assert!(!HOLDS_BACK.get());
    }
}
