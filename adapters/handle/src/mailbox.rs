//! The command queue between many handles and the one owner of a machine. Does not know the machine.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use everlink::Instant;

use crate::promise::{Pending, Promise, lock, promise, remember};

/// The handles' side of the command queue for a machine `M`. `E` is the type of commands that the owner runs itself.
///
/// The queue is unbounded: the owner drains it completely at each step, and the machine bounds what it accepts.
pub(crate) struct Mail<M, E>(Mutex<Inside<M, E>>);

struct Inside<M, E> {
    letters: Letters<M, E>,
    owner: Option<Waker>,
    is_closed: bool,
}

/// A FIFO queue of commands. Most of the time it holds at most one, which needs no allocation.
struct Letters<M, E> {
    first: Option<Letter<M, E>>,
    others: VecDeque<Letter<M, E>>,
}

enum Letter<M, E> {
    /// A request to be notified of the end.
    Closed(Promise<()>),
    Duty(Duty<M, E>),
}

/// A command to run.
pub(crate) enum Duty<M, E> {
    /// A command that the owner runs.
    Errand(E),
    /// A closure that is called with the machine.
    Verb(Verb<M>),
}

pub(crate) type Verb<M> = Box<dyn FnOnce(&mut M, Instant) + Send>;

impl<M, E> Letters<M, E> {
    const fn none() -> Letters<M, E> {
        Letters {
            first: None,
            others: VecDeque::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }

    /// Appends a command. Returns whether the queue was empty.
    fn push(&mut self, letter: Letter<M, E>) -> bool {
        let is_first = self.is_empty();
        if is_first {
            self.first = Some(letter);
        } else {
            self.others.push_back(letter);
        }
        is_first
    }

    fn pop(&mut self) -> Option<Letter<M, E>> {
        self.first.take().or_else(|| self.others.pop_front())
    }
}

impl<M: 'static, E> Mail<M, E> {
    /// Creates a queue and the owner's side of it.
    pub(crate) fn new() -> (Arc<Mail<M, E>>, Inbox<M, E>) {
        let mail = Arc::new(Mail(Mutex::new(Inside {
            letters: Letters::none(),
            owner: None,
            is_closed: false,
        })));
        let inbox = Inbox {
            mail: Arc::clone(&mail),
            letters: Letters::none(),
            closers: Vec::new(),
        };
        (mail, inbox)
    }

    /// Queues a command for the owner. Drops the command if the owner is gone.
    pub(crate) fn send(&self, errand: E) {
        let _ = self.post(Letter::Duty(Duty::Errand(errand)));
    }

    /// Queues a closure that runs on the machine.
    pub(crate) fn verb(&self, verb: impl FnOnce(&mut M, Instant) + Send + 'static) {
        let _ = self.post(Letter::Duty(Duty::Verb(Box::new(verb))));
    }

    /// Queues a closure that runs on the machine. Returns a future of its return value.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&mut M, Instant) -> T + Send + 'static,
    ) -> Pending<T> {
        let (promise, pending) = promise();
        self.verb(move |machine, now| promise.keep(verb(machine, now)));
        pending
    }

    /// Returns a future that completes when the owner is gone.
    pub(crate) fn closed(&self) -> Pending<()> {
        let (promise, pending) = promise();
        if let Err(Letter::Closed(promise)) = self.post(Letter::Closed(promise)) {
            promise.keep(());
        }
        pending
    }

    /// Appends a command and wakes the owner if the queue was empty. Returns the command if the owner is gone.
    fn post(&self, letter: Letter<M, E>) -> Result<(), Letter<M, E>> {
        let waker = {
            let mut inside = lock(&self.0);
            if inside.is_closed {
                return Err(letter);
            }
            let is_first = inside.letters.push(letter);
            inside.owner.as_ref().filter(|_| is_first).cloned()
        };
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    }
}

/// The owner's side of the queue. The owner drops it last; the drop notifies everybody who waits for the end.
pub(crate) struct Inbox<M, E> {
    mail: Arc<Mail<M, E>>,
    /// Commands that were taken from the shared queue and not run yet.
    letters: Letters<M, E>,
    closers: Vec<Promise<()>>,
}

impl<M, E> Inbox<M, E> {
    /// Returns the shared queue, so that the owner can give it to others.
    pub(crate) const fn mail(&self) -> &Arc<Mail<M, E>> {
        &self.mail
    }

    /// Registers the owner's waker. Returns true if commands are already queued, because those do not wake it.
    pub(crate) fn belongs_to(&self, owner: &Waker) -> bool {
        let mut inside = lock(&self.mail.0);
        let replaced = remember(&mut inside.owner, owner);
        let has_letters = !inside.letters.is_empty();
        drop(inside);
        drop(replaced);
        has_letters
    }

    /// Takes all queued commands, to be returned by `read`. The shared queue keeps no capacity, because most queues are empty most of the time.
    pub(crate) fn fetch(&mut self) {
        let mut inside = lock(&self.mail.0);
        if !inside.letters.is_empty() {
            self.letters = mem::replace(&mut inside.letters, Letters::none());
        }
    }

    /// Returns the next command that was taken. The caller must read until `None` before it fetches again.
    pub(crate) fn read(&mut self) -> Option<Duty<M, E>> {
        loop {
            match self.letters.pop() {
                Some(Letter::Closed(promise)) => self.closers.push(promise),
                Some(Letter::Duty(duty)) => return Some(duty),
                None => {
                    self.letters.others = VecDeque::new();
                    return None;
                }
            }
        }
    }

    /// Closes the queue: drops all commands and refuses new ones.
    pub(crate) fn close(&mut self) {
        let mut inside = lock(&self.mail.0);
        inside.is_closed = true;
        let owner = inside.owner.take();
        let letters = mem::replace(&mut inside.letters, Letters::none());
        drop(inside);
        drop(owner);
        // Dropping a command tells its sender that it was not run.
        while self.read().is_some() {}
        self.letters = letters;
        while self.read().is_some() {}
    }
}

impl<M, E> Drop for Inbox<M, E> {
    fn drop(&mut self) {
        self.close();
        for closer in self.closers.drain(..) {
            closer.keep(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn read(inbox: &mut Inbox<Vec<u8>, u8>, machine: &mut Vec<u8>) {
        inbox.fetch();
        while let Some(duty) = inbox.read() {
            match duty {
                Duty::Errand(errand) => machine.push(errand),
                Duty::Verb(verb) => verb(machine, Instant::ZERO),
            }
        }
    }

    #[test]
    fn letters_are_read_in_their_order_and_those_written_meanwhile_the_next_time() {
        let (mail, mut inbox) = Mail::<Vec<u8>, u8>::new();
        let mut machine = Vec::new();
        mail.send(0);
        let writer = Arc::clone(&mail);
        mail.verb(move |machine, _| {
            machine.push(1);
            writer.send(3);
            writer.send(4);
        });
        mail.send(2);
        read(&mut inbox, &mut machine);
        assert_eq!(machine, [0, 1, 2]);
        mail.send(5);
        read(&mut inbox, &mut machine);
        assert_eq!(machine, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn no_room_is_kept_for_letters_that_were_read() {
        let (mail, mut inbox) = Mail::<Vec<u8>, u8>::new();
        let mut machine = Vec::new();
        (0..100).for_each(|letter| mail.send(letter));
        read(&mut inbox, &mut machine);
        read(&mut inbox, &mut machine);
        assert_eq!(machine.len(), 100);
        assert_eq!(inbox.letters.others.capacity(), 0);
    }

    #[test]
    fn what_nobody_read_is_dropped_at_the_end() {
        struct Counts(Arc<AtomicUsize>);
        impl Drop for Counts {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (mail, mut inbox) = Mail::<Vec<u8>, Counts>::new();
        let dropped = Arc::new(AtomicUsize::new(0));
        let send = |count| (0..count).for_each(|_| mail.send(Counts(Arc::clone(&dropped))));
        send(3);
        inbox.fetch();
        send(2);
        drop(inbox);
        assert_eq!(dropped.load(Ordering::Relaxed), 5);
        send(1);
        assert_eq!(dropped.load(Ordering::Relaxed), 6);
    }
}
