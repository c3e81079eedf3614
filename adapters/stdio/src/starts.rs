//! The starts of one command, one after another. Does not know how a process is spawned.
//!
//! A start hangs on a file system that does not respond. It holds one thread; later starts of its command wait without one.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use everlink::{Fault, FaultKind};

/// The starts of one command `C`. Each yields a `T`.
pub(crate) struct Starts<C, T> {
    /// Locked by the thread that runs the starts, so nobody waits for the lock.
    command: Mutex<C>,
    queue: Mutex<Queue<T>>,
}

struct Queue<T> {
    waiting: VecDeque<Start<T>>,
    /// Whether a thread runs the starts, or will.
    is_running: bool,
}

struct Start<T> {
    is_wanted: Box<dyn Fn() -> bool + Send>,
    then: Box<dyn FnOnce(Result<T, Fault>) + Send>,
}

impl<C, T> Starts<C, T> {
    pub(crate) const fn new(command: C) -> Starts<C, T> {
        Starts {
            command: Mutex::new(command),
            queue: Mutex::new(Queue {
                waiting: VecDeque::new(),
                is_running: false,
            }),
        }
    }

    /// Queues a start. Returns true if no thread runs the starts: then the caller calls [`run`](Starts::run) on a thread.
    #[must_use = "without a thread, nothing is started"]
    pub(crate) fn push(
        &self,
        is_wanted: impl Fn() -> bool + Send + 'static,
        then: impl FnOnce(Result<T, Fault>) + Send + 'static,
    ) -> bool {
        let mut queue = lock(&self.queue);
        queue.waiting.push_back(Start {
            is_wanted: Box::new(is_wanted),
            then: Box::new(then),
        });
        // Abandoned starts must not pile up behind one that hangs.
        let starts = mem::take(&mut queue.waiting).into_iter();
        let (waiting, abandoned) = starts.partition(|start| (start.is_wanted)());
        queue.waiting = waiting;
        let needs_thread = !mem::replace(&mut queue.is_running, true);
        drop(queue);
        for start in abandoned {
            (start.then)(Err(abandoned_fault()));
        }
        needs_thread
    }

    /// Runs the queued starts with this function. A start that is no longer wanted is not run.
    pub(crate) fn run(&self, spawn: impl Fn(&mut C) -> Result<T, Fault>) {
        while let Some(start) = self.next() {
            let started = match (start.is_wanted)() {
                true => spawn(&mut lock(&self.command)),
                false => Err(abandoned_fault()),
            };
            (start.then)(started);
        }
    }

    /// Fails the queued starts, because no thread can run them.
    #[cfg(any(windows, test))]
    pub(crate) fn fail(&self, fault: &Fault) {
        while let Some(start) = self.next() {
            (start.then)(Err(fault.clone()));
        }
    }

    fn next(&self) -> Option<Start<T>> {
        let mut queue = lock(&self.queue);
        let next = queue.waiting.pop_front();
        queue.is_running = next.is_some();
        next
    }
}

impl<C: fmt::Debug, T> fmt::Debug for Starts<C, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.command.fmt(f)
    }
}

/// The fault of a start that nobody waits for.
fn abandoned_fault() -> Fault {
    Fault::with_detail(
        FaultKind::Aborted,
        "the start was given up before the program ran",
    )
}

/// Locks and ignores poisoning: no panic leaves a value half changed.
fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, channel};

    type Numbers = Starts<u32, u32>;

    fn count(number: &mut u32) -> Result<u32, Fault> {
        *number += 1;
        Ok(*number)
    }

    /// Queues a start. Returns what `push` returns, and the receiver of the result.
    fn push(
        starts: &Numbers,
        is_wanted: impl Fn() -> bool + Send + 'static,
    ) -> (bool, Receiver<Result<u32, Fault>>) {
        let (sender, started) = channel();
        let needs_thread = starts.push(is_wanted, move |it| drop(sender.send(it)));
        (needs_thread, started)
    }

    #[test]
    fn starts_run_in_order_on_one_thread() {
        let starts = Numbers::new(0);
        let (first_needs_thread, first) = push(&starts, || true);
        let (second_needs_thread, second) = push(&starts, || true);
        assert!(first_needs_thread && !second_needs_thread);
        starts.run(count);
        assert_eq!(
            (first.try_recv(), second.try_recv()),
            (Ok(Ok(1)), Ok(Ok(2)))
        );
        let (needs_thread, _third) = push(&starts, || true);
        assert!(needs_thread, "the thread has ended");
    }

    #[test]
    fn start_that_is_pushed_while_another_runs_runs_after_it() {
        let starts = Arc::new(Numbers::new(0));
        let (_, first) = push(&starts, || true);
        let (sender, seconds) = channel();
        starts.run(|number| {
            if *number == 0 {
                let (needs_thread, second) = push(&starts, || true);
                assert!(!needs_thread);
                let _ = sender.send(second);
            }
            count(number)
        });
        assert_eq!(first.try_recv(), Ok(Ok(1)));
        let second = seconds.try_recv().expect("it was pushed");
        assert_eq!(second.try_recv(), Ok(Ok(2)));
    }

    #[test]
    fn start_that_was_abandoned_in_the_queue_is_not_run() {
        let starts = Numbers::new(0);
        let is_wanted = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&is_wanted);
        let (_, abandoned) = push(&starts, move || asked.load(Ordering::Relaxed));
        is_wanted.store(false, Ordering::Relaxed);
        starts.run(count);
        assert!(abandoned.try_recv().expect("it is told").is_err());
        assert_eq!(*lock(&starts.command), 0);
    }

    #[test]
    fn abandoned_starts_do_not_pile_up_while_nothing_runs() {
        let starts = Numbers::new(0);
        for _ in 0..100 {
            let (_, abandoned) = push(&starts, || false);
            assert!(abandoned.try_recv().expect("it is told").is_err());
        }
        assert!(lock(&starts.queue).waiting.is_empty());
    }

    #[test]
    fn starts_fail_without_a_thread_and_later_ones_ask_for_one() {
        let starts = Numbers::new(0);
        let (_, first) = push(&starts, || true);
        starts.fail(&Fault::new(FaultKind::ResourcesExhausted));
        assert!(first.try_recv().expect("it is told").is_err());
        assert!(push(&starts, || true).0);
    }
}
