//! A queue of messages from many threads to one future. Does not know the messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::sync::{Mutex, lock, store_waker, wake};

/// The receiving side of a queue, for a [`Transport`](crate::Transport) whose threads report to it.
#[derive(Debug)]
pub struct Inbox<T>(Arc<Mutex<Inner<T>>>);

/// The sending side of an [`Inbox`].
#[derive(Debug)]
pub struct InboxSender<T>(Arc<Mutex<Inner<T>>>);

#[derive(Debug)]
struct Inner<T> {
    messages: VecDeque<T>,
    waker: Option<Waker>,
    is_closed: bool,
}

impl<T> Inbox<T> {
    /// Creates an empty queue. It is unbounded: its user limits how many messages a sender may send ahead.
    #[must_use]
    pub fn new() -> Inbox<T> {
        Inbox(Arc::new(Mutex::new(Inner {
            messages: VecDeque::new(),
            waker: None,
            is_closed: false,
        })))
    }

    /// Returns a sender.
    #[must_use]
    pub fn sender(&self) -> InboxSender<T> {
        InboxSender(Arc::clone(&self.0))
    }

    /// Returns the next message. While there is none, the sender of the next one wakes the task.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        let mut inner = lock(&self.0);
        if let Some(message) = inner.messages.pop_front() {
            return Poll::Ready(message);
        }
        let replaced = store_waker(&mut inner.waker, cx.waker());
        drop(inner);
        drop(replaced);
        Poll::Pending
    }
}

impl<T> Default for Inbox<T> {
    fn default() -> Inbox<T> {
        Inbox::new()
    }
}

/// Drops all messages, and every later one.
impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        let mut inner = lock(&self.0);
        inner.is_closed = true;
        let dropped = (std::mem::take(&mut inner.messages), inner.waker.take());
        drop(inner);
        drop(dropped);
    }
}

impl<T> Clone for InboxSender<T> {
    fn clone(&self) -> InboxSender<T> {
        InboxSender(Arc::clone(&self.0))
    }
}

impl<T> InboxSender<T> {
    /// Sends a message. It is dropped if the receiver is gone.
    pub fn send(&self, message: T) {
        let mut inner = lock(&self.0);
        if inner.is_closed {
            drop(inner);
            return drop(message);
        }
        inner.messages.push_back(message);
        let waker = inner.waker.take();
        drop(inner);
        waker.into_iter().for_each(wake);
    }
}
