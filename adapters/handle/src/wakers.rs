//! Wakes the program's tasks and threads, never while a driver holds the lock of its machine.

use std::cell::RefCell;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// How many wakers a thread keeps room for between two turns.
const KEPT: usize = 64;

thread_local! {
    static POSTPONED: RefCell<Postponed> = const { RefCell::new(Postponed { is_on: false, wakers: Vec::new() }) };
}

struct Postponed {
    is_on: bool,
    wakers: Vec<Waker>,
}

/// Postpones the wake-ups of this thread until it is dropped.
///
/// A waker runs code of the program: it may come back to the same link, wait for it, or panic. A driver that runs its machine under a lock
/// makes one of these before it locks and drops it after it has unlocked.
#[must_use = "wake-ups are postponed until it is dropped"]
#[derive(Debug)]
pub struct PostponedWakes {
    /// Where this thread postpones them already, whoever began wakes.
    is_outermost: bool,
}

impl PostponedWakes {
    /// From now on.
    pub fn begin() -> PostponedWakes {
        let was_on = POSTPONED.try_with(|postponed| {
            let postponed = &mut *postponed.borrow_mut();
            mem::replace(&mut postponed.is_on, true)
        });
        // A thread that is ending has no place for them: it wakes at once.
        let is_outermost = was_on.is_ok_and(|was_on| !was_on);
        PostponedWakes { is_outermost }
    }
}

impl Drop for PostponedWakes {
    fn drop(&mut self) {
        if !self.is_outermost {
            return;
        }
        let wakers = POSTPONED.try_with(|postponed| {
            let postponed = &mut *postponed.borrow_mut();
            postponed.is_on = false;
            mem::take(&mut postponed.wakers)
        });
        let mut wakers = wakers.unwrap_or_default();
        wakers.drain(..).for_each(wake_now);
        if wakers.capacity() <= KEPT {
            let _ = POSTPONED.try_with(|postponed| {
                let room = &mut postponed.borrow_mut().wakers;
                if room.capacity() == 0 {
                    *room = wakers;
                }
            });
        }
    }
}

/// Wakes it, now or when the present turn of a driver is over.
pub(crate) fn wake(waker: Waker) {
    let mut waker = Some(waker);
    let _ = POSTPONED.try_with(|postponed| {
        let postponed = &mut *postponed.borrow_mut();
        if postponed.is_on {
            postponed.wakers.extend(waker.take());
        }
    });
    waker.into_iter().for_each(wake_now);
}

/// A waker that panics harms neither the driver nor whoever is woken next. The panic hook has reported it.
fn wake_now(waker: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("as it was told to");
        }
    }

    #[test]
    fn wakers_are_woken_at_once_or_when_the_outermost_turn_is_over() {
        let count = Arc::<Count>::default();
        let waker = Waker::from(Arc::clone(&count));
        let woken = || count.0.load(Ordering::Relaxed);
        wake(waker.clone());
        assert_eq!(woken(), 1);
        let outer = PostponedWakes::begin();
        let inner = PostponedWakes::begin();
        wake(waker.clone());
        drop(inner);
        assert_eq!(woken(), 1);
        drop(outer);
        assert_eq!(woken(), 2);
        wake(waker);
        assert_eq!(woken(), 3);
    }

    #[test]
    fn a_waker_that_panics_keeps_nobody_else_from_being_woken() {
        let count = Arc::<Count>::default();
        let turn = PostponedWakes::begin();
        wake(Waker::from(Arc::new(Panics)));
        wake(Waker::from(Arc::clone(&count)));
        drop(turn);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_turn_that_panics_wakes_whom_it_would_have_woken() {
        let count = Arc::<Count>::default();
        let turn = catch_unwind(|| {
            let _turn = PostponedWakes::begin();
            wake(Waker::from(Arc::clone(&count)));
            panic!("as it was told to");
        });
        assert!(turn.is_err());
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(PostponedWakes::begin().is_outermost, "it is over");
    }
}
