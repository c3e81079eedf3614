//! A message queue from many threads to the driver, which sleeps on it. Does not know the messages.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Wake, Waker};
use std::time::Duration;

/// The receiving side.
pub(super) struct Inbox<T> {
    /// `None` is a wake-up without a message.
    letters: Receiver<Option<T>>,
    slot: Slot<T>,
}

/// The sending side.
pub(super) struct Slot<T>(Sender<Option<T>>);

/// Creates a queue, and a waker that wakes its receiver without a message.
pub(super) fn inbox<T: Send + 'static>() -> (Inbox<T>, Waker) {
    let (slot, letters) = channel();
    let bell = Waker::from(Arc::new(Slot(slot.clone())));
    let slot = Slot(slot);
    (Inbox { letters, slot }, bell)
}

impl<T> Inbox<T> {
    pub(super) fn slot(&self) -> Slot<T> {
        Slot(self.slot.0.clone())
    }

    /// Sleeps until a message or a wake-up arrives, for at most this long.
    pub(super) fn wait(&self, at_most: Option<Duration>) -> Option<T> {
        let first = match at_most {
            Some(span) => self.letters.recv_timeout(span).ok(),
            None => self.letters.recv().ok(),
        };
        // A message may follow the wake-up.
        first?.or_else(|| self.letters.try_recv().ok().flatten())
    }
}

impl<T> Slot<T> {
    /// Sends a message. It is lost if the receiver is gone.
    pub(super) fn post(&self, letter: T) {
        let _ = self.0.send(Some(letter));
    }
}

impl<T: Send + 'static> Wake for Slot<T> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let _ = self.0.send(None);
    }
}
