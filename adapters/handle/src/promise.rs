//! A value that comes later, waited for by a thread or a task alike. Knows neither what it is nor who makes it.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::wakers::wake;

/// What the owner of a machine will say.
///
/// A task awaits it, a thread calls [`wait`](Pending::wait). To drop it is to forget about it: what was asked for is done all the same.
pub struct Pending<T>(Arc<Cell<T>>);

/// The owner ended before it could say anything: the link was closed, its runtime was stopped under it, or it panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gone;

impl<T> Pending<T> {
    /// Blocks this thread until it is there.
    ///
    /// # Errors
    ///
    /// When the owner ended before.
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

/// The other side of a [`Pending`]: kept, or broken when it is dropped.
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

/// Where the value is put, with what else its two sides share until then.
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

    /// The first word counts. `None`: there will be no value.
    pub(crate) fn settle(&self, value: Option<T>) {
        self.settle_quietly(value).into_iter().for_each(wake);
    }

    /// The same, but that whoever waits is left to be woken.
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

    /// Looks at what is shared, too: whoever waits is woken for whatever comes after what is seen.
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

    /// Looks at what is shared.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut S) -> R) -> R {
        look(&mut lock(&self.0).shared)
    }

    /// Changes what is shared, and wakes who waits, to look at it.
    pub(crate) fn change(&self, change: impl FnOnce(&mut S)) {
        let waker = {
            let mut inside = lock(&self.0);
            change(&mut inside.shared);
            inside.waker.take()
        };
        waker.into_iter().for_each(wake);
    }
}

/// Notes who is to be woken, and returns who was: to be dropped outside of every lock, for a waker may own a task that owns a handle.
#[must_use = "what is dropped here is dropped under the lock"]
pub(crate) fn remember(slot: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match slot {
        Some(known) if known.will_wake(waker) => None,
        _ => slot.replace(waker.clone()),
    }
}

/// What is behind these locks is whole whenever a lock is let go, also by a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Blocks this thread until the future is there: several calls joined into one, or steps that are written once for threads and tasks.
///
/// It runs no runtime: whatever needs one must have its own.
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

/// A thread that waits. That it was woken is remembered here: others may wait on the same thread, inside, and use up what the system
/// remembers.
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
