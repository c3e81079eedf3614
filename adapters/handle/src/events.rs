//! Delivers a machine's events to its listeners. Each listener has a bounded queue, from which events that need a reaction are never dropped.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::iter::from_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use everlink::{AskId, Instant, client, relay, server};

use crate::park::wait;
use crate::sync::{Mutex, lock, store_waker, wake};

/// The number of queued events per listener above which the oldest droppable one is dropped.
const MAX_QUEUED: usize = 1024;

/// The events of a machine, from the subscription until the machine's end.
///
/// A task awaits [`recv`](Events::recv), or uses it as a `Stream` (feature `stream`, which the adapters for async runtimes enable). A thread calls [`wait`](Events::wait) or [`iter`](Events::iter). It does not keep the
/// link alive.
///
/// A listener that falls more than 1024 events behind misses the oldest ones; [`missed`](Events::missed) counts them. These events are never dropped,
/// however far the listener falls behind:
///
/// - an ask of the server ([`Ask`](client::Event::Ask)) while it is open, and the end of an ask that was already delivered;
/// - a demand for credentials ([`AuthRequired`](client::Event::AuthRequired)) until it is answered;
/// - the newest change of the machine's state, which includes the end;
/// - the newest [`Watching`](client::Event::Watching). It says what changed since the one before, which may have been dropped.
///
/// Every other event may be dropped. An application that tracks changes of lists and resources reads all of them again when `missed` grows.
///
/// ```
/// use everlink::client::Event;
/// use everlink_handle::Link;
///
/// async fn log_ends(link: Link) {
///     let mut events = link.events();
///     drop(link); // not needed any more
///     while let Some(event) = events.recv().await {
///         if let Event::Ended(ended) = &*event {
///             eprintln!("{ended}");
///         }
///     }
/// }
/// ```
pub struct Events<E> {
    queue: Arc<Queue<E>>,
    at: Instant,
}

impl<E> Events<E> {
    /// Waits for the next event. Returns `None` after the last one.
    pub async fn recv(&mut self) -> Option<Arc<E>> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Blocks this thread until the next event. Returns `None` after the last one.
    pub fn wait(&mut self) -> Option<Arc<E>> {
        wait(self.recv())
    }

    /// Iterates over the events until the last one. Blocks this thread until the next one.
    pub fn iter(&mut self) -> impl Iterator<Item = Arc<E>> + use<'_, E> {
        from_fn(|| self.wait())
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arc<E>>> {
        let mut inner = lock(&self.queue.0);
        match inner.pop() {
            Some((at, event)) => {
                self.at = at;
                Poll::Ready(Some(event))
            }
            None if inner.is_closed => Poll::Ready(None),
            None => {
                let replaced = store_waker(&mut inner.waker, cx.waker());
                drop(inner);
                drop(replaced);
                Poll::Pending
            }
        }
    }

    /// Returns the next event if one is queued.
    pub fn try_recv(&mut self) -> Option<Arc<E>> {
        let (at, event) = lock(&self.queue.0).pop()?;
        self.at = at;
        Some(event)
    }

    /// Returns the time of the last event that was returned, on the driver's clock, which starts with the link.
    #[must_use]
    pub const fn at(&self) -> Instant {
        self.at
    }

    /// Returns the number of events that were dropped before they were delivered.
    #[must_use]
    pub fn missed(&self) -> u64 {
        lock(&self.queue.0).missed
    }
}

#[cfg(feature = "stream")]
impl<E> futures_core::Stream for Events<E> {
    type Item = Arc<E>;

    fn poll_next(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Arc<E>>> {
        self.get_mut().poll_recv(cx)
    }
}

impl<E> fmt::Debug for Events<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

/// The undelivered events of one listener.
struct Queue<E>(Mutex<Inner<E>>);

struct Inner<E> {
    /// Undelivered events, in the order in which they happened.
    events: VecDeque<Undelivered<E>>,
    missed: u64,
    is_closed: bool,
    waker: Option<Waker>,
}

struct Undelivered<E> {
    at: Instant,
    event: Arc<E>,
    /// The subject of the event if it must be delivered. `None` if it may be dropped.
    kept_for: Option<Subject>,
}

impl<E: HasRetention> Inner<E> {
    fn push(&mut self, at: Instant, event: Arc<E>) {
        let kept_for = match event.retention() {
            Retention::Begins(subject) => {
                // Only the newest event of a subject must be delivered.
                self.settle(subject);
                Some(subject)
            }
            // The end must be delivered only if the beginning was. So at most as many ends must be delivered as asks were open when the listener
            // stopped reading.
            Retention::Ends(subject) => (!self.settle(subject)).then_some(subject),
            Retention::Droppable => None,
        };
        self.events.push_back(Undelivered {
            at,
            event,
            kept_for,
        });
        while self.events.len() > MAX_QUEUED {
            let oldest = self
                .events
                .iter()
                .position(|event| event.kept_for.is_none());
            let Some(oldest) = oldest else {
                break;
            };
            self.events.remove(oldest);
            self.missed += 1;
        }
    }
}

impl<E> Inner<E> {
    fn pop(&mut self) -> Option<(Instant, Arc<E>)> {
        let Undelivered { at, event, .. } = self.events.pop_front()?;
        Some((at, event))
    }

    /// Makes the queued event of this subject droppable, if there is one. Returns whether there was one.
    fn settle(&mut self, subject: Subject) -> bool {
        let mut events = self.events.iter_mut();
        let kept = events.find(|event| event.kept_for == Some(subject));
        kept.and_then(|event| event.kept_for.take()).is_some()
    }
}

/// Classifies an event by whether it must be delivered.
pub(crate) trait HasRetention {
    fn retention(&self) -> Retention;
}

/// Whether an event must be delivered, however far behind the listener is.
pub(crate) enum Retention {
    /// The event must be delivered until its subject is settled.
    Begins(Subject),
    /// The event ends its subject. It must be delivered if the beginning was delivered.
    Ends(Subject),
    /// The event may be dropped.
    Droppable,
}

/// The subject of an event that must be delivered. A queue holds at most one such event per subject, and the machine bounds the number of open asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Ask(AskId),
    ClientState,
    ClientWatch,
    Credentials,
    ServerState,
    ServerWatch,
}

impl HasRetention for client::Event {
    fn retention(&self) -> Retention {
        match self {
            client::Event::Ask(ask) => Retention::Begins(Subject::Ask(ask.ask)),
            client::Event::AskWithdrawn { ask, .. } => Retention::Ends(Subject::Ask(*ask)),
            client::Event::AuthRequired(_) => Retention::Begins(Subject::Credentials),
            client::Event::Watching { .. } => Retention::Begins(Subject::ClientWatch),
            event if event.state().is_some() => Retention::Begins(Subject::ClientState),
            _ => Retention::Droppable,
        }
    }
}

impl HasRetention for server::Event {
    fn retention(&self) -> Retention {
        match self {
            server::Event::Draining { .. } | server::Event::Closed { .. } => {
                Retention::Begins(Subject::ServerState)
            }
            server::Event::Watching(_) => Retention::Begins(Subject::ServerWatch),
            _ => Retention::Droppable,
        }
    }
}

impl HasRetention for relay::Event {
    fn retention(&self) -> Retention {
        match self {
            relay::Event::Downstream(event) => event.retention(),
            relay::Event::Upstream(event) => event.retention(),
            _ => Retention::Droppable,
        }
    }
}

/// The listeners of one machine. `None` after the machine's end.
pub(crate) struct Listeners<E>(Mutex<Option<Vec<Weak<Queue<E>>>>>);

impl<E> Listeners<E> {
    pub(crate) fn new() -> Listeners<E> {
        Listeners(Mutex::new(Some(Vec::new())))
    }

    pub(crate) fn subscribe(&self) -> Events<E> {
        let mut listeners = lock(&self.0);
        let queue = Arc::new(Queue(Mutex::new(Inner {
            events: VecDeque::new(),
            missed: 0,
            is_closed: listeners.is_none(),
            waker: None,
        })));
        if let Some(listeners) = &mut *listeners {
            // Remove dropped listeners before the vector grows. Without this, they would add up while no event is sent.
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

    pub(crate) fn publish(&self, now: Instant, event: E)
    where
        E: HasRetention,
    {
        let queues = self.queues();
        if queues.is_empty() {
            return;
        }
        let event = Arc::new(event);
        for queue in queues {
            queue.update(|inner| inner.push(now, Arc::clone(&event)));
        }
    }

    /// Makes the queued events of this subject droppable for all listeners, because the application has reacted to it.
    pub(crate) fn settle(&self, subject: Subject) {
        for queue in self.queues() {
            lock(&queue.0).settle(subject);
        }
    }

    /// Ends all event streams.
    pub(crate) fn close(&self) {
        let listeners = lock(&self.0).take().into_iter().flatten();
        for queue in listeners.filter_map(|listener| listener.upgrade()) {
            queue.update(|inner| inner.is_closed = true);
        }
    }

    /// Returns the queues of the live listeners. Wakers run after this lock is released, because a woken listener may call back into `Listeners`.
    fn queues(&self) -> Vec<Arc<Queue<E>>> {
        let mut listeners = lock(&self.0);
        let Some(listeners) = &mut *listeners else {
            return Vec::new();
        };
        let mut queues = Vec::new();
        listeners.retain(|listener| {
            let queue = listener.upgrade();
            let is_alive = queue.is_some();
            queues.extend(queue);
            is_alive
        });
        queues
    }
}

impl<E> Queue<E> {
    fn update(&self, change: impl FnOnce(&mut Inner<E>)) {
        let waker = {
            let mut inner = lock(&self.0);
            change(&mut inner);
            inner.waker.take()
        };
        waker.into_iter().for_each(wake);
    }
}
