//! The command queue between many handles and the one owner of a machine. Does not know the machine.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::task::Waker;

use everlink::Instant;

use crate::promise::{Pending, Promise, add_waiter, promise};
use crate::sync::{Mutex, lock, store_waker, wake};

/// The handles' side of the command queue for a machine `M`. `C` is the type of commands that the owner runs itself.
///
/// The queue is unbounded: the owner drains it completely at each step, and the machine bounds what it accepts.
pub(crate) struct CommandQueue<M, C>(Mutex<Inner<M, C>>);

struct Inner<M, C> {
    entries: Entries<M, C>,
    owner_waker: Option<Waker>,
    is_closed: bool,
}

/// A FIFO queue of commands. Most of the time it holds at most one, which needs no allocation.
struct Entries<M, C> {
    first: Option<Entry<M, C>>,
    others: VecDeque<Entry<M, C>>,
}

enum Entry<M, C> {
    /// A request to be notified of the end.
    Closed(Promise<()>),
    Command(Command<M, C>),
}

/// A command to run.
pub(crate) enum Command<M, C> {
    /// A command that the owner runs.
    ForOwner(C),
    /// A closure that is called with the machine.
    ForMachine(MachineFn<M>),
}

pub(crate) type MachineFn<M> = Box<dyn FnOnce(&mut M, Instant) + Send>;

impl<M, C> Entries<M, C> {
    const fn empty() -> Entries<M, C> {
        Entries {
            first: None,
            others: VecDeque::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }

    /// Appends a command. Returns whether the queue was empty.
    fn push(&mut self, entry: Entry<M, C>) -> bool {
        let is_first = self.is_empty();
        if is_first {
            self.first = Some(entry);
        } else {
            self.others.push_back(entry);
        }
        is_first
    }

    fn pop(&mut self) -> Option<Entry<M, C>> {
        self.first.take().or_else(|| self.others.pop_front())
    }
}

impl<M: 'static, C> CommandQueue<M, C> {
    /// Creates a queue and the owner's side of it.
    pub(crate) fn new() -> (Arc<CommandQueue<M, C>>, CommandReceiver<M, C>) {
        let queue = Arc::new(CommandQueue(Mutex::new(Inner {
            entries: Entries::empty(),
            owner_waker: None,
            is_closed: false,
        })));
        let receiver = CommandReceiver {
            queue: Arc::clone(&queue),
            entries: Entries::empty(),
            close_waiters: Vec::new(),
        };
        (queue, receiver)
    }

    /// Queues a command for the owner. Drops the command if the owner is gone.
    pub(crate) fn send(&self, command: C) {
        let _ = self.push_entry(Entry::Command(Command::ForOwner(command)));
    }

    /// Queues a closure that runs on the machine.
    pub(crate) fn run_on_machine(&self, function: impl FnOnce(&mut M, Instant) + Send + 'static) {
        let _ = self.push_entry(Entry::Command(Command::ForMachine(Box::new(function))));
    }

    /// Queues a closure that runs on the machine. Returns a future of its return value.
    pub(crate) fn query_machine<T: Send + 'static>(
        &self,
        function: impl FnOnce(&mut M, Instant) -> T + Send + 'static,
    ) -> Pending<T> {
        self.try_on_machine(|machine, now| Ok(function(machine, now)))
    }

    /// Queues a closure that runs on the machine and may fail. Returns a future of its result.
    pub(crate) fn try_on_machine<T: Send + 'static, E: Send + 'static>(
        &self,
        function: impl FnOnce(&mut M, Instant) -> Result<T, E> + Send + 'static,
    ) -> Pending<T, E> {
        let (promise, pending) = promise();
        self.run_on_machine(move |machine, now| promise.resolve(function(machine, now)));
        pending
    }

    /// Returns a future that completes when the owner is gone.
    pub(crate) fn closed(&self) -> Pending<()> {
        let (promise, pending) = promise();
        if let Err(Entry::Closed(promise)) = self.push_entry(Entry::Closed(promise)) {
            promise.resolve(Ok(()));
        }
        pending
    }

    /// Appends a command and wakes the owner if the queue was empty. Returns the command if the owner is gone.
    fn push_entry(&self, entry: Entry<M, C>) -> Result<(), Entry<M, C>> {
        let waker = {
            let mut inner = lock(&self.0);
            if inner.is_closed {
                return Err(entry);
            }
            let is_first = inner.entries.push(entry);
            inner.owner_waker.as_ref().filter(|_| is_first).cloned()
        };
        waker.into_iter().for_each(wake);
        Ok(())
    }
}

/// The owner's side of the queue. The owner drops it last; the drop notifies everybody who waits for the end.
pub(crate) struct CommandReceiver<M, C> {
    queue: Arc<CommandQueue<M, C>>,
    /// Commands that were taken from the shared queue and not run yet.
    entries: Entries<M, C>,
    close_waiters: Vec<Promise<()>>,
}

impl<M, C> CommandReceiver<M, C> {
    /// Returns the shared queue, so that the owner can give it to others.
    pub(crate) const fn queue(&self) -> &Arc<CommandQueue<M, C>> {
        &self.queue
    }

    /// Registers the owner's waker. Returns true if commands are already queued, because those do not wake it.
    pub(crate) fn register_waker(&self, owner_waker: &Waker) -> bool {
        let mut inner = lock(&self.queue.0);
        let replaced = store_waker(&mut inner.owner_waker, owner_waker);
        let has_entries = !inner.entries.is_empty();
        drop(inner);
        drop(replaced);
        has_entries
    }

    /// Takes all queued commands, to be returned by `next_command`. The shared queue keeps no capacity, because most queues are empty most of the
    /// time.
    pub(crate) fn fetch(&mut self) {
        let mut inner = lock(&self.queue.0);
        if !inner.entries.is_empty() {
            self.entries = mem::replace(&mut inner.entries, Entries::empty());
        }
    }

    /// Returns the next command that was taken. The caller must read until `None` before it fetches again.
    pub(crate) fn next_command(&mut self) -> Option<Command<M, C>> {
        loop {
            match self.entries.pop() {
                Some(Entry::Closed(promise)) => add_waiter(&mut self.close_waiters, promise),
                Some(Entry::Command(command)) => return Some(command),
                None => {
                    self.entries.others = VecDeque::new();
                    return None;
                }
            }
        }
    }

    /// Closes the queue: drops all commands and refuses new ones.
    pub(crate) fn close(&mut self) {
        let mut inner = lock(&self.queue.0);
        inner.is_closed = true;
        let owner_waker = inner.owner_waker.take();
        let entries = mem::replace(&mut inner.entries, Entries::empty());
        drop(inner);
        drop(owner_waker);
        // Dropping a command tells its sender that it was not run.
        while self.next_command().is_some() {}
        self.entries = entries;
        while self.next_command().is_some() {}
    }
}

impl<M, C> Drop for CommandReceiver<M, C> {
    fn drop(&mut self) {
        self.close();
        for waiter in self.close_waiters.drain(..) {
            waiter.resolve(Ok(()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn run_queued(receiver: &mut CommandReceiver<Vec<u8>, u8>, machine: &mut Vec<u8>) {
        receiver.fetch();
        while let Some(command) = receiver.next_command() {
            match command {
                Command::ForOwner(command) => machine.push(command),
                Command::ForMachine(function) => function(machine, Instant::ZERO),
            }
        }
    }

    #[test]
    fn commands_run_in_order_and_those_sent_meanwhile_run_after_the_next_fetch() {
        let (queue, mut receiver) = CommandQueue::<Vec<u8>, u8>::new();
        let mut machine = Vec::new();
        queue.send(0);
        let writer = Arc::clone(&queue);
        queue.run_on_machine(move |machine, _| {
            machine.push(1);
            writer.send(3);
            writer.send(4);
        });
        queue.send(2);
        run_queued(&mut receiver, &mut machine);
        assert_eq!(machine, [0, 1, 2]);
        queue.send(5);
        run_queued(&mut receiver, &mut machine);
        assert_eq!(machine, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn drained_queue_keeps_no_capacity() {
        let (queue, mut receiver) = CommandQueue::<Vec<u8>, u8>::new();
        let mut machine = Vec::new();
        (0..100).for_each(|entry| queue.send(entry));
        run_queued(&mut receiver, &mut machine);
        run_queued(&mut receiver, &mut machine);
        assert_eq!(machine.len(), 100);
        assert_eq!(receiver.entries.others.capacity(), 0);
    }

    #[test]
    fn those_who_no_longer_wait_for_the_end_are_dropped() {
        let (queue, mut receiver) = CommandQueue::<Vec<u8>, u8>::new();
        let waits = queue.closed();
        for _ in 0..10_000 {
            drop(queue.closed());
            run_queued(&mut receiver, &mut Vec::new());
        }
        let waiters = receiver.close_waiters.len();
        assert!(waiters < 10, "{waiters}");
        drop(receiver);
        assert_eq!(waits.wait(), Ok(()));
    }

    #[test]
    fn unread_commands_are_dropped_with_the_receiver() {
        struct CountsDrops(Arc<AtomicUsize>);
        impl Drop for CountsDrops {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (queue, mut receiver) = CommandQueue::<Vec<u8>, CountsDrops>::new();
        let dropped = Arc::new(AtomicUsize::new(0));
        let send = |count| (0..count).for_each(|_| queue.send(CountsDrops(Arc::clone(&dropped))));
        send(3);
        receiver.fetch();
        send(2);
        drop(receiver);
        assert_eq!(dropped.load(Ordering::Relaxed), 5);
        send(1);
        assert_eq!(dropped.load(Ordering::Relaxed), 6);
    }
}
