//! Wakes the application's tasks and threads, but never while a driver holds the lock of its machine.

use std::cell::RefCell;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// The number of wakers for which a thread keeps capacity between two turns.
const MAX_KEPT_CAPACITY: usize = 64;

thread_local! {
    static POSTPONED: RefCell<Postponed> = const { RefCell::new(Postponed { is_active: false, wakers: Vec::new() }) };
}

struct Postponed {
    is_active: bool,
    wakers: Vec<Waker>,
}

/// Postpones the wake-ups of this thread until it is dropped.
///
/// A waker runs code of the application, which may call the same link, wait for it, or panic. A driver that runs its machine under a lock creates one
/// of these before it locks, and drops it after it unlocks.
#[must_use = "wake-ups are postponed until it is dropped"]
#[derive(Debug)]
pub struct PostponedWakes {
    /// Whether this guard started the postponement. Only the outermost guard of a thread wakes.
    is_outermost: bool,
}

impl PostponedWakes {
    /// Starts postponing.
    pub fn begin() -> PostponedWakes {
        let was_active = POSTPONED.try_with(|postponed| {
            let postponed = &mut *postponed.borrow_mut();
            mem::replace(&mut postponed.is_active, true)
        });
        // The thread-local list is gone while a thread ends; wake-ups are immediate then.
        let is_outermost = was_active.is_ok_and(|was_active| !was_active);
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
            postponed.is_active = false;
            mem::take(&mut postponed.wakers)
        });
        let mut wakers = wakers.unwrap_or_default();
        wakers.drain(..).for_each(wake_now);
        if wakers.capacity() <= MAX_KEPT_CAPACITY {
            let _ = POSTPONED.try_with(|postponed| {
                let kept = &mut postponed.borrow_mut().wakers;
                if kept.capacity() == 0 {
                    *kept = wakers;
                }
            });
        }
    }
}

/// Wakes a waker at once, or at the end of the driver's present turn.
pub(crate) fn wake(waker: Waker) {
    let mut waker = Some(waker);
    let _ = POSTPONED.try_with(|postponed| {
        let postponed = &mut *postponed.borrow_mut();
        if postponed.is_active {
            postponed.wakers.extend(waker.take());
        }
    });
    waker.into_iter().for_each(wake_now);
}

/// Wakes a waker and catches its panic, so that the driver and later wakers are not affected. The panic hook has already reported it.
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
    struct CountingWaker(AtomicUsize);

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct PanickingWaker;

    impl Wake for PanickingWaker {
        fn wake(self: Arc<Self>) {
            panic!("intentional panic");
        }
    }

    #[test]
    fn wakers_wake_at_once_or_when_the_outermost_postponement_ends() {
        let count = Arc::<CountingWaker>::default();
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
    fn panicking_waker_does_not_stop_later_wakers() {
        let count = Arc::<CountingWaker>::default();
        let turn = PostponedWakes::begin();
        wake(Waker::from(Arc::new(PanickingWaker)));
        wake(Waker::from(Arc::clone(&count)));
        drop(turn);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn postponed_wakers_wake_when_the_turn_panics() {
        let count = Arc::<CountingWaker>::default();
        let turn = catch_unwind(|| {
            let _turn = PostponedWakes::begin();
            wake(Waker::from(Arc::clone(&count)));
            panic!("intentional panic");
        });
        assert!(turn.is_err());
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(
            PostponedWakes::begin().is_outermost,
            "the postponement has ended"
        );
    }
}
