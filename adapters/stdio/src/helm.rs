//! One machine and many threads: whoever asks something of it takes the helm for a turn, while the driver sleeps. Knows not which machine.
//!
//! To wake a thread costs more than a turn. So the driver is woken only for what is its own: to sleep otherwise than it does, or what a turn
//! leaves to it. Nobody waits for the helm but the driver: who finds it taken leaves word, and whoever has it looks before it goes.

use std::cell::Cell;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use everlink_handle::PostponedWakes;

/// So many turns are taken by one who asked for something, if others ask meanwhile. It has its own work to do: the driver goes on.
const TURNS: usize = 4;

/// A machine, with all that can be done to it by any thread at any time.
pub(crate) trait Craft: Send + 'static {
    /// Does what was asked for, as far as anybody may. Returns whether the driver is to be woken.
    fn turn(&mut self) -> bool;
}

/// Where it is steered from. As a waker, it has whoever wakes it take a turn.
pub(crate) struct Helm<C> {
    /// Nothing when all is over.
    craft: Mutex<Option<C>>,
    /// Something was asked for since the last turn began.
    is_asked: AtomicBool,
    /// What wakes the driver.
    bell: Waker,
    /// What is done after each turn, when it keeps nobody from the next.
    then: Box<dyn Fn() + Send + Sync>,
}

thread_local! {
    static HOLDS_BACK: Cell<bool> = const { Cell::new(false) };
}

/// What is asked for meanwhile by this thread is left to whoever takes the next turn: the caller sees to it that there is one.
pub(crate) fn hold_back(ask: impl FnOnce()) {
    let _hold = Hold;
    HOLDS_BACK.set(true);
    ask();
}

/// Lets go when it is dropped, also by a panic: the thread may ask for other things later.
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

    /// The driver's turn, and another as long as somebody asks for something meanwhile. Returns how to sleep until the next, as the last of
    /// them said, or nothing when all is over.
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

    /// A turn of whoever asks for something, if the helm is free.
    pub(crate) fn help(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
        for _ in 0..TURNS {
            if !self.is_asked() {
                return;
            }
            let wakes = PostponedWakes::begin();
            // Where it is taken, whoever has it looks again. Where a turn panicked, the driver was woken to see it.
            let Ok(mut craft) = self.craft.try_lock() else {
                return;
            };
            self.is_asked.store(false, Ordering::Relaxed);
            let alarm = Alarm(&self.bell);
            let wakes_driver = craft.as_mut().is_some_and(Craft::turn);
            drop(craft);
            // The driver is on its way before anybody else is woken: they may wait for it.
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

    /// Who asks for something says so and then looks for the helm, who has it leaves it and then looks here: one of them sees the other.
    fn is_asked(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_asked.load(Ordering::Relaxed)
    }

    /// Has the driver do all that it does. Nothing is left of the craft when this is over, also by a panic.
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

/// Wakes the driver when it is dropped, also by a panic.
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
