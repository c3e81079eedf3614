//! Lets a caller run the driver's step on its own thread while the driver sleeps. Does not know the machine.
//!
//! Waking a thread costs more than a step. So a caller wakes the driver only if the driver must end its sleep earlier or wait for something else, or
//! if the step leaves an output that only the driver can carry out. Only the driver waits for the lock. A caller that finds the lock taken sets a flag, and the holder reads the flag again after it unlocks.

use std::cell::Cell;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use everlink_handle::PostponedWakes;

/// The maximum number of steps that one caller runs while others queue commands. After that it wakes the driver and returns to its own work.
const MAX_TURNS: usize = 4;

/// A machine with the step that any thread may run.
pub(crate) trait InlineMachine: Send + 'static {
    /// Runs the queued commands, as far as any thread may. Returns whether the driver must be woken.
    fn inline_turn(&mut self) -> bool;
}

/// The lock around a machine. As a waker, it runs a step on the thread that wakes it.
pub(crate) struct InlineDriver<M> {
    /// The machine; `None` after the end.
    machine: Mutex<Option<M>>,
    /// Whether a command was queued since the last step began.
    is_requested: AtomicBool,
    /// The driver's waker.
    driver_waker: Waker,
    /// Runs after each step, when the lock is released.
    after_turn: Box<dyn Fn() + Send + Sync>,
}

thread_local! {
    static DEFERS_TURNS: Cell<bool> = const { Cell::new(false) };
}

/// Runs `run`, and leaves the commands that it queues for a later step. The caller makes sure that such a step follows.
pub(crate) fn defer_turns(run: impl FnOnce()) {
    let _reset = ResetOnDrop;
    DEFERS_TURNS.set(true);
    run();
}

/// Clears the flag on drop, also during a panic, because the thread may queue other commands later.
struct ResetOnDrop;

impl Drop for ResetOnDrop {
    fn drop(&mut self) {
        DEFERS_TURNS.set(false);
    }
}

impl<M: InlineMachine> Wake for InlineDriver<M> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !DEFERS_TURNS.get() {
            self.run_inline();
        }
    }
}

impl<M: InlineMachine> InlineDriver<M> {
    pub(crate) fn new(
        machine: M,
        driver_waker: Waker,
        after_turn: impl Fn() + Send + Sync + 'static,
    ) -> InlineDriver<M> {
        InlineDriver {
            machine: Mutex::new(Some(machine)),
            is_requested: AtomicBool::new(false),
            driver_waker,
            after_turn: Box::new(after_turn),
        }
    }

    /// Runs the driver's turn, and repeats it while callers queue commands meanwhile. Returns how to sleep, as the last turn said, or `None` after
    /// the end.
    pub(crate) fn run_turns<S>(&self, mut turn: impl FnMut(&mut M) -> Option<S>) -> Option<S> {
        loop {
            let wakes = PostponedWakes::begin();
            let mut machine = self.machine.lock().expect("no turn panics");
            self.is_requested.store(false, Ordering::Relaxed);
            let sleep = machine.as_mut().and_then(&mut turn);
            drop(machine);
            drop(wakes);
            (self.after_turn)();
            if sleep.is_none() || !self.is_requested() {
                return sleep;
            }
        }
    }

    /// Runs a step for a caller that queued a command, if the lock is free.
    pub(crate) fn run_inline(&self) {
        self.is_requested.store(true, Ordering::Relaxed);
        for _ in 0..MAX_TURNS {
            if !self.is_requested() {
                return;
            }
            let wakes = PostponedWakes::begin();
            // If the lock is taken, its holder reads `is_requested` after it unlocks. If it is poisoned, the step that panicked has woken the driver.
            let Ok(mut machine) = self.machine.try_lock() else {
                return;
            };
            self.is_requested.store(false, Ordering::Relaxed);
            // If the step panics, this wakes the driver, which then finds the lock poisoned and ends.
            let wake_on_drop = WakeOnDrop(&self.driver_waker);
            let wakes_driver = machine.as_mut().is_some_and(InlineMachine::inline_turn);
            drop(machine);
            // Wake the driver before the postponed wakers run, because their tasks may wait for it.
            if wakes_driver {
                drop(wake_on_drop);
            } else {
                mem::forget(wake_on_drop);
            }
            drop(wakes);
            (self.after_turn)();
        }
        if self.is_requested() {
            self.driver_waker.wake_by_ref();
        }
    }

    /// Whether a command was queued. A caller stores `true`, passes this fence and then tries the lock. The holder unlocks, passes this fence and
    /// then loads the flag. The two `SeqCst` fences guarantee that either the caller's `try_lock` succeeds or the holder's load returns `true`.
    fn is_requested(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_requested.load(Ordering::Relaxed)
    }

    /// Runs the driver. Drops the machine afterwards, also after a panic.
    pub(crate) fn run_driver(&self, drive: impl FnOnce()) {
        let _drop_machine = DropMachine(self);
        drive();
    }
}

struct DropMachine<'a, M>(&'a InlineDriver<M>);

impl<M> Drop for DropMachine<'_, M> {
    fn drop(&mut self) {
        let machine = self.0.machine.lock();
        let machine = machine.unwrap_or_else(PoisonError::into_inner).take();
        drop(machine);
    }
}

/// Wakes the driver on drop, also during a panic.
struct WakeOnDrop<'a>(&'a Waker);

impl Drop for WakeOnDrop<'_> {
    fn drop(&mut self) {
        self.0.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn panic_in_defer_turns_ends_the_deferral() {
        let panicked = catch_unwind(|| defer_turns(|| panic!("intentional panic")));
        assert!(panicked.is_err());
        assert!(!DEFERS_TURNS.get());
    }
}
