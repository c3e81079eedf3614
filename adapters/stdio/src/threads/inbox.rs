//! Where threads leave what they have to tell, for the one that sleeps until they do. Knows not what it is.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Wake, Waker};
use std::time::Duration;

/// For the one that sleeps.
pub(super) struct Inbox<T> {
    /// Nothing is a ring of the bell.
    letters: Receiver<Option<T>>,
    slot: Slot<T>,
}

/// For the others.
pub(super) struct Slot<T>(Sender<Option<T>>);

/// An inbox, and what wakes its owner without a word.
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

    /// Sleeps until there is something to tell or the bell rings, or for so long at most.
    pub(super) fn wait(&self, at_most: Option<Duration>) -> Option<T> {
        let first = match at_most {
            Some(span) => self.letters.recv_timeout(span).ok(),
            None => self.letters.recv().ok(),
        };
        // Behind a ring there may be more.
        first?.or_else(|| self.letters.try_recv().ok().flatten())
    }
}

impl<T> Slot<T> {
    /// Where nobody looks any more, it is lost.
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
