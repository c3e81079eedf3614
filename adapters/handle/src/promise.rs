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
pub struct Pending<T>(Arc<Cell<T>>);

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
        f.write_str("the link is closed, or whoever drove it ended before it could answer")
    }
}

impl std::error::Error for Gone {}

/// The sending side of a [`Pending`]. Dropping it without a value makes the receiver return [`Gone`].
pub(crate) struct Promise<T>(Arc<Cell<T>>);

pub(crate) fn promise<T>() -> (Promise<T>, Pending<T>) {
    let cell = Arc::new(Cell::new(()));
    (Promise(Arc::clone(&cell)), Pending(cell))
}

impl<T> Promise<T> {
    pub(crate) fn keep(self, value: T) {
        self.0.settle(Some(value));
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.0.settle(None);
    }
}

/// The slot for the value, with the state `S` that both sides share until the value arrives.
pub(crate) struct Cell<T, S = ()>(Mutex<Inside<T, S>>);

struct Inside<T, S> {
    value: Option<T>,
    is_settled: bool,
    waker: Option<Waker>,
    shared: S,
}

impl<T, S> Cell<T, S> {
    pub(crate) const fn new(shared: S) -> Cell<T, S> {
        Cell(Mutex::new(Inside {
            value: None,
            is_settled: false,
            waker: None,
            shared,
        }))
    }

    /// Sets the value and wakes the waiter. Only the first call has an effect. `None` means that there will be no value.
    pub(crate) fn settle(&self, value: Option<T>) {
        self.settle_quietly(value).into_iter().for_each(wake);
    }

    /// Sets the value like [`settle`](Cell::settle), but returns the waiter's waker instead of waking it.
    pub(crate) fn settle_quietly(&self, value: Option<T>) -> Option<Waker> {
        let mut inside = lock(&self.0);
        if inside.is_settled {
            return None;
        }
        inside.is_settled = true;
        inside.value = value;
        inside.waker.take()
    }

    pub(crate) fn is_settled(&self) -> bool {
        lock(&self.0).is_settled
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.poll_and_look(cx, |_| ()).0
    }

    /// Polls for the value and reads the shared state under the same lock, so that every later change wakes the waiter.
    pub(crate) fn poll_and_look<R>(
        &self,
        cx: &mut Context<'_>,
        look: impl FnOnce(&mut S) -> R,
    ) -> (Poll<Option<T>>, R) {
        let mut inside = lock(&self.0);
        let seen = look(&mut inside.shared);
        if inside.is_settled {
            return (Poll::Ready(inside.value.take()), seen);
        }
        let replaced = remember(&mut inside.waker, cx.waker());
        drop(inside);
        drop(replaced);
        (Poll::Pending, seen)
    }

    /// Reads or changes the shared state without waking the waiter.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut S) -> R) -> R {
        look(&mut lock(&self.0).shared)
    }

    /// Changes the shared state and wakes the waiter, so that it looks at the change.
    pub(crate) fn change(&self, change: impl FnOnce(&mut S)) {
        let waker = {
            let mut inside = lock(&self.0);
            change(&mut inside.shared);
            inside.waker.take()
        };
        waker.into_iter().for_each(wake);
    }
}

/// Stores a waker and returns the replaced one. The caller drops that outside of every lock, because a waker may own a task that owns a handle.
#[must_use = "what is dropped here is dropped under the lock"]
pub(crate) fn remember(slot: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match slot {
        Some(known) if known.will_wake(waker) => None,
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
    let sleeper = Arc::new(Sleeper {
        thread: thread::current(),
        is_woken: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(value) => return value,
            Poll::Pending => sleeper.sleep(),
        }
    }
}

/// A thread that waits. `is_woken` remembers the wake-up, because a nested `wait` on the same thread may consume the token of `unpark`. The Release
/// store in `wake` pairs with the Acquire swap in `sleep`, so the woken thread sees all writes before the wake-up.
struct Sleeper {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Sleeper {
    fn sleep(&self) {
        while !self.is_woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
