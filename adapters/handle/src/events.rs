//! What happens to a machine, told to whoever listens. Bounded, so that a listener that does not listen costs nothing but what it misses.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Poll, Waker};

use everlink::Instant;

use crate::promise::{lock, remember, wait};

/// How many events wait for one listener; the oldest ones give way.
const KEPT: usize = 1024;

/// The events of a machine from the moment on at which this was asked for, until its end.
///
/// A thread iterates over it; a task awaits [`recv`](Events::recv). It keeps no link alive.
pub struct Events<E> {
    queue: Arc<Queue<E>>,
    at: Instant,
}

impl<E> Events<E> {
    /// The next one; `None` after the last. What a listener that is too slow did not hear is told by [`missed`](Events::missed).
    pub async fn recv(&mut self) -> Option<Arc<E>> {
        poll_fn(|cx| {
            let mut inside = lock(&self.queue.0);
            match inside.events.pop_front() {
                Some((at, event)) => {
                    self.at = at;
                    Poll::Ready(Some(event))
                }
                None if inside.is_over => Poll::Ready(None),
                None => {
                    let replaced = remember(&mut inside.waker, cx.waker());
                    drop(inside);
                    drop(replaced);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The next one if it is there.
    pub fn try_recv(&mut self) -> Option<Arc<E>> {
        let (at, event) = lock(&self.queue.0).events.pop_front()?;
        self.at = at;
        Some(event)
    }

    /// When the last one that was given out happened, on the clock of the driver, which began with the link.
    #[must_use]
    pub const fn at(&self) -> Instant {
        self.at
    }

    /// How many gave way to newer ones before they were heard.
    #[must_use]
    pub fn missed(&self) -> u64 {
        lock(&self.queue.0).missed
    }
}

/// Blocks until there is one, or the end.
impl<E> Iterator for Events<E> {
    type Item = Arc<E>;

    fn next(&mut self) -> Option<Arc<E>> {
        wait(self.recv())
    }
}

impl<E> fmt::Debug for Events<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

/// What one listener has not heard yet.
struct Queue<E>(Mutex<Inside<E>>);

struct Inside<E> {
    events: VecDeque<(Instant, Arc<E>)>,
    missed: u64,
    is_over: bool,
    waker: Option<Waker>,
}

/// Everybody who listens to one machine; nobody any more after its end.
pub(crate) struct Listeners<E>(Mutex<Option<Vec<Weak<Queue<E>>>>>);

impl<E> Listeners<E> {
    pub(crate) const fn new() -> Listeners<E> {
        Listeners(Mutex::new(Some(Vec::new())))
    }

    pub(crate) fn add(&self) -> Events<E> {
        let mut listeners = lock(&self.0);
        let queue = Arc::new(Queue(Mutex::new(Inside {
            events: VecDeque::new(),
            missed: 0,
            is_over: listeners.is_none(),
            waker: None,
        })));
        if let Some(listeners) = &mut *listeners {
            // Where nothing happens, nobody else forgets those who left.
            if listeners.len() == listeners.capacity() {
                listeners.retain(|listener| listener.strong_count() > 0);
            }
            listeners.push(Arc::downgrade(&queue));
        }
        Events {
            queue,
            at: Instant::ZERO,
        }
    }

    pub(crate) fn tell(&self, now: Instant, event: E) {
        let queues = self.queues();
        if queues.is_empty() {
            return;
        }
        let event = Arc::new(event);
        for queue in queues {
            queue.change(|inside| {
                if inside.events.len() == KEPT {
                    inside.events.pop_front();
                    inside.missed += 1;
                }
                inside.events.push_back((now, Arc::clone(&event)));
            });
        }
    }

    /// There will be no more of them.
    pub(crate) fn end(&self) {
        let listeners = lock(&self.0).take().into_iter().flatten();
        for queue in listeners.filter_map(|listener| listener.upgrade()) {
            queue.change(|inside| inside.is_over = true);
        }
    }

    /// Those who are there. Who is woken may come back here, so nobody is while this is locked.
    fn queues(&self) -> Vec<Arc<Queue<E>>> {
        let mut listeners = lock(&self.0);
        let Some(listeners) = &mut *listeners else {
            return Vec::new();
        };
        let mut queues = Vec::new();
        listeners.retain(|listener| {
            let queue = listener.upgrade();
            let is_there = queue.is_some();
            queues.extend(queue);
            is_there
        });
        queues
    }
}

impl<E> Queue<E> {
    fn change(&self, change: impl FnOnce(&mut Inside<E>)) {
        let waker = {
            let mut inside = lock(&self.0);
            change(&mut inside);
            inside.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}
