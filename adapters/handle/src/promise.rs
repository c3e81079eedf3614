//! A value that arrives later, for which a thread or a task can wait. Knows neither the value nor its producer.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::wakers::wake;

/// A reply from the driver.
///
/// A task awaits it, a thread calls [`wait`](Pending::wait). Dropping it does not cancel the command.
pub struct Pending<T>(Arc<Slot<T>>);

/// The error when the driver ended before it replied: the link was closed, its runtime was stopped, or it panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gone;

impl<T> Pending<T> {
    /// Blocks this thread until the value arrives.
    ///
    /// # Errors
    ///
    /// When the driver ended before it replied.
    pub fn wait(self) -> Result<T, Gone> {
        wait(self)
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, Gone>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx).map(|value| value.ok_or(Gone))
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the link is closed, or its driver ended before it replied")
    }
}

impl std::error::Error for Gone {}

/// The sending side of a [`Pending`]. Dropping it without a value makes the receiver return [`Gone`].
pub(crate) struct Promise<T>(Arc<Slot<T>>);

pub(crate) fn promise<T>() -> (Promise<T>, Pending<T>) {
    let slot = Arc::new(Slot::new(()));
    (Promise(Arc::clone(&slot)), Pending(slot))
}

impl<T> Promise<T> {
    pub(crate) fn resolve(self, value: T) {
        self.0.settle(Some(value));
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.0.settle(None);
    }
}

/// The slot for the value, with the state `S` that both sides share until the value arrives.
pub(crate) struct Slot<T, S = ()>(Mutex<Inner<T, S>>);

struct Inner<T, S> {
    value: Option<T>,
    is_settled: bool,
    waker: Option<Waker>,
    shared: S,
}

impl<T, S> Slot<T, S> {
    pub(crate) const fn new(shared: S) -> Slot<T, S> {
        Slot(Mutex::new(Inner {
            value: None,
            is_settled: false,
            waker: None,
            shared,
        }))
    }

    /// Sets the value and wakes the waiter. Only the first call has an effect. `None` means that there will be no value.
    pub(crate) fn settle(&self, value: Option<T>) {
        self.settle_without_waking(value).into_iter().for_each(wake);
    }

    /// Sets the value like [`settle`](Slot::settle), but returns the waiter's waker instead of waking it.
    pub(crate) fn settle_without_waking(&self, value: Option<T>) -> Option<Waker> {
        let mut inner = lock(&self.0);
        if inner.is_settled {
            return None;
        }
        inner.is_settled = true;
        inner.value = value;
        inner.waker.take()
    }

    pub(crate) fn is_settled(&self) -> bool {
        lock(&self.0).is_settled
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.poll_with_shared(cx, |_| ()).0
    }

    /// Polls for the value and reads the shared state under the same lock, so that every later change wakes the waiter.
    pub(crate) fn poll_with_shared<R>(
        &self,
        cx: &mut Context<'_>,
        access: impl FnOnce(&mut S) -> R,
    ) -> (Poll<Option<T>>, R) {
        let mut inner = lock(&self.0);
        let seen = access(&mut inner.shared);
        if inner.is_settled {
            return (Poll::Ready(inner.value.take()), seen);
        }
        let replaced = store_waker(&mut inner.waker, cx.waker());
        drop(inner);
        drop(replaced);
        (Poll::Pending, seen)
    }

    /// Reads or changes the shared state without waking the waiter.
    pub(crate) fn with_shared<R>(&self, access: impl FnOnce(&mut S) -> R) -> R {
        access(&mut lock(&self.0).shared)
    }

    /// Changes the shared state and wakes the waiter, so that it looks at the change.
    pub(crate) fn update_shared(&self, change: impl FnOnce(&mut S)) {
        let waker = {
            let mut inner = lock(&self.0);
            change(&mut inner.shared);
            inner.waker.take()
        };
        waker.into_iter().for_each(wake);
    }
}

/// Stores a waker and returns the replaced one. The caller drops that outside of every lock, because a waker may own a task that owns a handle.
#[must_use = "drop the replaced waker after the lock is released"]
pub(crate) fn store_waker(slot: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match slot {
        Some(current) if current.will_wake(waker) => None,
        _ => slot.replace(waker.clone()),
    }
}

/// Locks a mutex and ignores poisoning: the data behind these locks is consistent whenever a lock is released, even by a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Blocks this thread until the future completes. The future may join several calls, or be code that is written once for threads and tasks.
///
/// This function starts no runtime: a future that needs one must bring its own.
pub fn wait<F: Future>(future: F) -> F::Output {
    let thread_waker = Arc::new(ThreadWaker {
        thread: thread::current(),
        is_woken: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&thread_waker));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread_waker.park_until_woken(),
        }
    }
}

/// A thread that waits. `is_woken` remembers the wake-up, because a nested `wait` on the same thread may consume the token of `unpark`. The Release
/// store in `wake` pairs with the Acquire swap in `park_until_woken`, so the woken thread sees all writes before the wake-up.
struct ThreadWaker {
    thread: Thread,
    is_woken: AtomicBool,
}

impl ThreadWaker {
    fn park_until_woken(&self) {
        while !self.is_woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
