//! Runs a future on the calling thread, which sleeps while the future waits. Does not know the future.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use everlink::Instant;

use crate::sync::{AtomicBool, Thread, current_thread, park_thread};
use crate::transport::Clock;

/// The way in which a thread sleeps until it is woken.
pub trait Park {
    /// Returns the waker that ends the sleep, or prevents the next one.
    fn waker(&self) -> Waker;

    /// Sleeps until the waker is woken, for at most this long. It may return early.
    fn park(&mut self, timeout: Option<Duration>);
}

/// Blocks this thread until the future completes. The future may join several calls, or be code that is written once for threads and tasks.
///
/// This function starts no runtime: a future that needs one must bring its own.
pub fn wait<F: Future>(future: F) -> F::Output {
    run_with_timeouts(ThreadPark::new(), future, || None)
}

/// Runs the future on this thread, which sleeps as `park` says. The future may use the clock.
pub fn run<F: Future>(park: impl Park, future: impl FnOnce(ThreadClock) -> F) -> F::Output {
    let clock = ThreadClock::start();
    let mut timeouts = clock.clone();
    run_with_timeouts(park, future(clock), || timeouts.take_timeout())
}

/// Runs the future on this thread. After each poll, the thread sleeps for at most the next timeout.
fn run_with_timeouts<F: Future>(
    mut park: impl Park,
    future: F,
    mut take_timeout: impl FnMut() -> Option<Duration>,
) -> F::Output {
    let mut future = pin!(future);
    let waker = park.waker();
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
        park.park(take_timeout());
    }
}

/// The value of a deadline that never comes.
const NO_DEADLINE: u64 = u64::MAX;

/// The clock of a thread that [`run`] keeps asleep until the deadline.
#[derive(Clone, Debug)]
pub struct ThreadClock {
    origin: std::time::Instant,
    /// The deadline for which the future waits, in nanoseconds. Only one thread uses it.
    deadline: Arc<AtomicU64>,
}

impl ThreadClock {
    fn start() -> ThreadClock {
        ThreadClock {
            origin: std::time::Instant::now(),
            deadline: Arc::new(AtomicU64::new(NO_DEADLINE)),
        }
    }

    /// Returns the time until the deadline for which the future waits, and forgets the deadline.
    fn take_timeout(&mut self) -> Option<Duration> {
        match self.deadline.swap(NO_DEADLINE, Ordering::Relaxed) {
            NO_DEADLINE => None,
            at => Some(Duration::from_nanos(
                at.saturating_sub(self.now().as_nanos()),
            )),
        }
    }
}

impl Clock for ThreadClock {
    fn now(&mut self) -> Instant {
        Instant::from_origin(self.origin.elapsed())
    }

    fn poll_deadline(&mut self, _: &mut Context<'_>, deadline: Option<Instant>) -> Poll<()> {
        let Some(deadline) = deadline else {
            return Poll::Pending;
        };
        if deadline <= self.now() {
            return Poll::Ready(());
        }
        self.deadline.store(deadline.as_nanos(), Ordering::Relaxed);
        Poll::Pending
    }
}

/// A thread that parks.
#[derive(Debug)]
pub struct ThreadPark(Arc<ThreadWaker>);

impl ThreadPark {
    /// Parks the thread that calls this.
    #[must_use]
    pub fn new() -> ThreadPark {
        ThreadPark(Arc::new(ThreadWaker {
            thread: current_thread(),
            is_woken: AtomicBool::new(false),
        }))
    }
}

impl Default for ThreadPark {
    fn default() -> ThreadPark {
        ThreadPark::new()
    }
}

impl Park for ThreadPark {
    fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.0))
    }

    fn park(&mut self, timeout: Option<Duration>) {
        if !self.0.is_woken.swap(false, Ordering::Acquire) {
            park_thread(timeout);
            self.0.is_woken.swap(false, Ordering::Acquire);
        }
    }
}

/// Wakes the thread. `is_woken` remembers the wake-up, because a nested `wait` on the same thread may consume the token of `unpark`. The Release
/// store in `wake` pairs with the Acquire swap in `park`, so the woken thread sees all writes before the wake-up.
#[derive(Debug)]
struct ThreadWaker {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
