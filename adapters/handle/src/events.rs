//! Delivers a machine's events to its listeners. Each listener has a bounded queue; what a program must react to is never dropped from it.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Poll, Waker};

use everlink::{AskId, Instant, client, relay, server};

use crate::promise::{lock, remember, wait};
use crate::wakers::wake;

/// How many events wait for one listener before the oldest droppable one is dropped.
const KEPT: usize = 1024;

/// The events of a machine from the moment on at which this was asked for, until its end.
///
/// A thread iterates over it; a task awaits [`recv`](Events::recv). It keeps no link alive.
///
/// A listener that falls more than 1024 events behind misses the oldest ones; [`missed`](Events::missed) counts them. These are never
/// missed, however far it falls behind:
///
/// - a question of the server ([`Ask`](client::Event::Ask)) while it is open, and that a question which was delivered was withdrawn;
/// - a demand for credentials ([`AuthRequired`](client::Event::AuthRequired)) while it is not answered;
/// - the newest change of the machine's state, and with it the end;
/// - the newest [`Watching`](client::Event::Watching), which says how it differs from the one before: that one may be among those missed.
///
/// Nothing else is kept for certain. A program that reads changes of lists and resources looks at all of them again when `missed` has grown.
pub struct Events<E> {
    queue: Arc<Queue<E>>,
    at: Instant,
}

impl<E> Events<E> {
    /// The next event; `None` after the last.
    pub async fn recv(&mut self) -> Option<Arc<E>> {
        poll_fn(|cx| {
            let mut inside = lock(&self.queue.0);
            match inside.pop() {
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
        let (at, event) = lock(&self.queue.0).pop()?;
        self.at = at;
        Some(event)
    }

    /// When the last one that was given out happened, on the clock of the driver, which began with the link.
    #[must_use]
    pub const fn at(&self) -> Instant {
        self.at
    }

    /// How many events were dropped before they were delivered.
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
    /// Undelivered events, in the order in which they happened.
    events: VecDeque<Undelivered<E>>,
    missed: u64,
    is_over: bool,
    waker: Option<Waker>,
}

struct Undelivered<E> {
    at: Instant,
    event: Arc<E>,
    /// What it is about, if it must be delivered. It may be dropped otherwise.
    due: Option<Subject>,
}

impl<E: Obliges> Inside<E> {
    fn push(&mut self, at: Instant, event: Arc<E>) {
        let due = match event.obliges() {
            Obligation::Begins(subject) => {
                // The newest one counts.
                self.settle(subject);
                Some(subject)
            }
            // A listener that knows what has ended must hear of the end. One to which it was never delivered need not. So the ends
            // that must be delivered are at most as many as there were open questions when the listener stopped reading.
            Obligation::Ends(subject) => (!self.settle(subject)).then_some(subject),
            Obligation::None => None,
        };
        self.events.push_back(Undelivered { at, event, due });
        while self.events.len() > KEPT {
            let oldest = self.events.iter().position(|event| event.due.is_none());
            let Some(oldest) = oldest else {
                break;
            };
            self.events.remove(oldest);
            self.missed += 1;
        }
    }
}

impl<E> Inside<E> {
    fn pop(&mut self) -> Option<(Instant, Arc<E>)> {
        let Undelivered { at, event, .. } = self.events.pop_front()?;
        Some((at, event))
    }

    /// What is said about it, if anything, need not be delivered any more. Returns whether something was due.
    fn settle(&mut self, subject: Subject) -> bool {
        let mut events = self.events.iter_mut();
        let due = events.find(|event| event.due == Some(subject));
        due.and_then(|event| event.due.take()).is_some()
    }
}

/// What an event obliges a listener to.
pub(crate) trait Obliges {
    fn obliges(&self) -> Obligation;
}

/// Whether a listener must hear of an event, however far behind it is.
pub(crate) enum Obligation {
    /// It must, until what the event is about is settled.
    Begins(Subject),
    /// It must if it heard of the beginning: this is the end.
    Ends(Subject),
    /// It need not.
    None,
}

/// What an event that must be delivered is about. There is at most one such event about each in a queue, and the machine bounds how many asks are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Ask(AskId),
    ClientState,
    ClientWatch,
    Credentials,
    ServerState,
    ServerWatch,
}

impl Obliges for client::Event {
    fn obliges(&self) -> Obligation {
        match self {
            client::Event::Ask(ask) => Obligation::Begins(Subject::Ask(ask.ask)),
            client::Event::AskWithdrawn { ask, .. } => Obligation::Ends(Subject::Ask(*ask)),
            client::Event::AuthRequired(_) => Obligation::Begins(Subject::Credentials),
            client::Event::Watching { .. } => Obligation::Begins(Subject::ClientWatch),
            event if event.state().is_some() => Obligation::Begins(Subject::ClientState),
            _ => Obligation::None,
        }
    }
}

impl Obliges for server::Event {
    fn obliges(&self) -> Obligation {
        match self {
            server::Event::Draining { .. } | server::Event::Closed { .. } => {
                Obligation::Begins(Subject::ServerState)
            }
            server::Event::Watching(_) => Obligation::Begins(Subject::ServerWatch),
            _ => Obligation::None,
        }
    }
}

impl Obliges for relay::Event {
    fn obliges(&self) -> Obligation {
        match self {
            relay::Event::Downstream(event) => event.obliges(),
            relay::Event::Upstream(event) => event.obliges(),
            _ => Obligation::None,
        }
    }
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

    pub(crate) fn tell(&self, now: Instant, event: E)
    where
        E: Obliges,
    {
        let queues = self.queues();
        if queues.is_empty() {
            return;
        }
        let event = Arc::new(event);
        for queue in queues {
            queue.change(|inside| inside.push(now, Arc::clone(&event)));
        }
    }

    /// Somebody did what was asked for: a listener that has not heard of it yet may miss it.
    pub(crate) fn settle(&self, subject: Subject) {
        for queue in self.queues() {
            lock(&queue.0).settle(subject);
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
        waker.into_iter().for_each(wake);
    }
}
