//! A value that arrives later, for which a thread or a task can wait. Does not depend on the type of the value or its producer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::park::wait;
use crate::sync::{Mutex, lock, store_waker, wake};

/// A reply from the driver.
///
/// A task awaits it, a thread calls [`wait`](Pending::wait). Dropping it does not cancel the command.
///
/// `E` is the reason why there is no value. It includes that the driver ended before it replied.
pub struct Pending<T, E = Gone>(Arc<Slot<Result<T, E>>>);

/// The error when the driver ended before it replied: the link was closed, its runtime was stopped, or it panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gone;

impl<T, E: From<Gone>> Pending<T, E> {
    /// Blocks this thread until the value arrives.
    ///
    /// # Errors
    ///
    /// When there is no value, because the command failed or the driver ended before it replied.
    pub fn wait(self) -> Result<T, E> {
        wait(self)
    }
}

impl<T, E: From<Gone>> Future for Pending<T, E> {
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0
            .poll(cx)
            .map(|value| value.unwrap_or_else(|| Err(Gone.into())))
    }
}

impl<T, E> fmt::Debug for Pending<T, E> {
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
pub struct Promise<T, E = Gone>(Arc<Slot<Result<T, E>>>);

/// Creates a promise, and the side that waits for its value.
#[must_use]
pub fn promise<T, E>() -> (Promise<T, E>, Pending<T, E>) {
    let slot = Arc::new(Slot::new(()));
    (Promise(Arc::clone(&slot)), Pending(slot))
}

impl<T, E> Promise<T, E> {
    /// Gives the value, or the reason why there is none, to the side that waits.
    pub fn resolve(self, value: Result<T, E>) {
        self.0.settle(Some(value));
    }
}

/// Adds a promise to those that wait for one event. Before the list grows, drops those whose future was dropped. Otherwise the list of a loop that
/// asks again in each round would grow until the event comes.
pub(crate) fn add_waiter<T, E>(waiters: &mut Vec<Promise<T, E>>, promise: Promise<T, E>) {
    if waiters.len() == waiters.capacity() {
        waiters.retain(|waiter| Arc::strong_count(&waiter.0) > 1);
    }
    waiters.push(promise);
}

impl<T, E> fmt::Debug for Promise<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Promise")
    }
}

impl<T, E> Drop for Promise<T, E> {
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
    pub(crate) fn new(shared: S) -> Slot<T, S> {
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
