//! A message queue from many threads to the driver, which sleeps on it. Does not know the messages.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Wake, Waker};
use std::time::Duration;

/// The receiving side.
pub(super) struct MessageQueue<T> {
    /// `None` is a wake-up without a message.
    receiver: Receiver<Option<T>>,
    sender: MessageSender<T>,
}

/// The sending side.
pub(super) struct MessageSender<T>(Sender<Option<T>>);

/// Creates a queue, and a waker that wakes its receiver without a message.
pub(super) fn message_queue<T: Send + 'static>() -> (MessageQueue<T>, Waker) {
    let (sender, receiver) = channel();
    let waker = Waker::from(Arc::new(MessageSender(sender.clone())));
    let sender = MessageSender(sender);
    (MessageQueue { receiver, sender }, waker)
}

impl<T> MessageQueue<T> {
    pub(super) fn sender(&self) -> MessageSender<T> {
        MessageSender(self.sender.0.clone())
    }

    /// Sleeps until a message or a wake-up arrives, for at most this long.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> Option<T> {
        let first = match timeout {
            Some(span) => self.receiver.recv_timeout(span).ok(),
            None => self.receiver.recv().ok(),
        };
        // A message may follow the wake-up.
        first?.or_else(|| self.receiver.try_recv().ok().flatten())
    }
}

impl<T> MessageSender<T> {
    /// Sends a message. It is lost if the receiver is gone.
    pub(super) fn send(&self, message: T) {
        let _ = self.0.send(Some(message));
    }
}

impl<T: Send + 'static> Wake for MessageSender<T> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let _ = self.0.send(None);
    }
}
