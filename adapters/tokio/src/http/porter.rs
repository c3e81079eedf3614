//! One server on a runtime of one thread: who lets a request in takes the driver's turn at once. Knows not which server.
//!
//! There, to wake the driver is to wait until it had its turn, and to be woken in turn by it. Nobody else could do anything meanwhile.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};

use tokio::runtime::{Handle, RuntimeFlavor};

use crate::drive::{Driven, Driver};

/// A driver whose turns others may take. Dropped, it leaves nothing behind.
pub(super) struct Host<D: Driven>(Arc<House<D>>);

/// Takes the turns of a driver.
pub(super) trait Porter: Send + Sync {
    /// A turn, if there is one to be had here and now.
    fn turn(&self);
}

struct House<D>(Mutex<Wheel<D>>);

struct Wheel<D> {
    driver: Driver<D>,
    /// The runtime, if it has but one thread, and the driver's task there. Known from its first turn on.
    home: Option<(Handle, Waker)>,
    /// With what a turn of somebody else panicked.
    failure: Option<Box<dyn Any + Send>>,
}

impl<D: Driven + Send + 'static> Host<D> {
    pub(super) fn new(driver: Driver<D>) -> (Host<D>, Arc<dyn Porter>) {
        let house = Arc::new(House(Mutex::new(Wheel {
            driver,
            home: None,
            failure: None,
        })));
        (Host(Arc::clone(&house)), house)
    }
}

impl<D> House<D> {
    fn lock(&self) -> MutexGuard<'_, Wheel<D>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Driven> Future for Host<D> {
    type Output = D::Left;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<D::Left> {
        let mut wheel = self.0.lock();
        if let Some(failure) = wheel.failure.take() {
            drop(wheel);
            resume_unwind(failure);
        }
        let is_home = |(_, task): &(_, Waker)| task.will_wake(cx.waker());
        if !wheel.home.as_ref().is_some_and(is_home) {
            let runtime = Handle::try_current().ok();
            let runtime = runtime.filter(|it| it.runtime_flavor() == RuntimeFlavor::CurrentThread);
            wheel.home = runtime.map(|runtime| (runtime, cx.waker().clone()));
        }
        Pin::new(&mut wheel.driver).poll(cx)
    }
}

impl<D: Driven> Drop for Host<D> {
    fn drop(&mut self) {
        let mut wheel = self.0.lock();
        let left = (wheel.driver.take(), wheel.home.take());
        drop(wheel);
        drop(left);
    }
}

impl<D: Driven + Send> Porter for House<D> {
    fn turn(&self) {
        // Where somebody has it, the driver was woken and comes after that.
        let mut wheel = match self.0.try_lock() {
            Ok(wheel) => wheel,
            Err(TryLockError::Poisoned(_) | TryLockError::WouldBlock) => return,
        };
        let Wheel {
            driver,
            home: Some((runtime, task)),
            failure,
        } = &mut *wheel
        else {
            return;
        };
        if failure.is_some() {
            return;
        }
        let _within = runtime.enter();
        let turn = AssertUnwindSafe(|| driver.go(&mut Context::from_waker(task), 1));
        // A turn that panics is the end of what is driven, and of nobody who only lets a request in.
        *failure = catch_unwind(turn).err();
        // What is left is done when the answer is on its way.
        task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use everlink::{Deadline, Instant};
    use tokio::runtime::{Builder, Runtime};
    use tokio::task::yield_now;

    use super::*;
    use crate::drive::Now;

    /// Something that nothing is to be done for; where it `fails`, its second turn does.
    struct Idle {
        turns: Arc<AtomicUsize>,
        fails: bool,
    }

    impl Driven for Idle {
        type Left = ();

        fn belongs_to(&self, _: &Waker) -> bool {
            false
        }

        fn turn(&mut self, _: Instant, _: &mut Vec<u8>) -> bool {
            let turns = self.turns.fetch_add(1, Ordering::Relaxed) + 1;
            assert!(!self.fails || turns < 2, "as it was told to");
            false
        }

        fn is_closed(&self) -> bool {
            false
        }

        fn poll_heard(&mut self, _: &mut Context<'_>, _: &Now<'_>, _: &mut [u8]) -> Poll<usize> {
            Poll::Pending
        }

        fn poll_timeout(&self) -> Option<Deadline> {
            None
        }

        fn end(self) {}
    }

    fn idle(fails: bool) -> (Arc<AtomicUsize>, Host<Idle>, Arc<dyn Porter>) {
        let turns = Arc::new(AtomicUsize::new(0));
        let (host, porter) = Host::new(Driver::new(Idle {
            turns: Arc::clone(&turns),
            fails,
        }));
        (turns, host, porter)
    }

    fn alone() -> Runtime {
        let runtime = Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime")
    }

    #[test]
    fn who_lets_somebody_in_takes_a_turn_at_once_and_the_driver_the_next() {
        alone().block_on(async {
            let (turns, host, porter) = idle(false);
            porter.turn();
            assert_eq!(turns.load(Ordering::Relaxed), 0, "nobody drives yet");
            let driver = tokio::spawn(host);
            yield_now().await;
            assert_eq!(turns.load(Ordering::Relaxed), 1);
            porter.turn();
            assert_eq!(turns.load(Ordering::Relaxed), 2);
            yield_now().await;
            assert_eq!(turns.load(Ordering::Relaxed), 3);
            driver.abort();
            assert!(driver.await.is_err_and(|error| error.is_cancelled()));
            porter.turn();
            assert_eq!(turns.load(Ordering::Relaxed), 3);
            assert_eq!(Arc::strong_count(&turns), 1, "nothing is left of it");
        });
    }

    #[test]
    fn with_more_than_one_thread_it_is_left_to_the_driver() {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let (turns, host, porter) = idle(false);
            let mut host = Box::pin(host);
            let once = std::future::poll_fn(|cx| Poll::Ready(host.as_mut().poll(cx)));
            assert!(once.await.is_pending());
            porter.turn();
            assert_eq!(turns.load(Ordering::Relaxed), 1);
        });
    }

    #[test]
    fn a_turn_that_panics_is_the_end_of_the_driver_alone() {
        alone().block_on(async {
            let (turns, host, porter) = idle(true);
            let driver = tokio::spawn(host);
            yield_now().await;
            for _ in 0..2 {
                porter.turn();
                assert_eq!(turns.load(Ordering::Relaxed), 2);
            }
            assert!(driver.await.is_err_and(|error| error.is_panic()));
        });
    }
}
