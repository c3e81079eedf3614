//! The threads that spawn processes, because a spawn may take long and must not delay other links. Does not know what they spawn.
//!
//! The threads run as long as this process. On Linux, a child that is set to die with its parent dies with the *thread* that spawned it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, getpid};

/// The maximum number of concurrent spawns; more wait in the queue.
const MOST: usize = 8;

static NURSERY: Nursery = Nursery {
    yard: Mutex::new(Yard {
        process: None,
        orders: VecDeque::new(),
        idle: 0,
        threads: 0,
    }),
    news: Condvar::new(),
};

struct Nursery {
    yard: Mutex<Yard>,
    news: Condvar,
}

struct Yard {
    /// The process that the threads belong to.
    process: Option<Pid>,
    orders: VecDeque<Order>,
    idle: usize,
    threads: usize,
}

type Order = Box<dyn FnOnce() + Send>;

/// Runs this function on one of the threads.
pub(super) fn order(order: impl FnOnce() + Send + 'static) {
    let mut yard = NURSERY.enter();
    if yard.process != Some(getpid()) {
        // A fork does not copy threads, so the parent's state is discarded.
        *yard = Yard {
            process: Some(getpid()),
            orders: VecDeque::new(),
            idle: 0,
            threads: 0,
        };
    }
    yard.orders.push_back(Box::new(order));
    if yard.orders.len() > yard.idle && yard.threads < MOST {
        let thread = thread::Builder::new().name("everlink-spawn".into());
        if thread.spawn(|| NURSERY.work()).is_ok() {
            yard.threads += 1;
        } else if yard.threads == 0 {
            // The system has no thread left: run it on this one.
            let order = yard.orders.pop_back();
            drop(yard);
            return order.into_iter().for_each(|order| order());
        }
    }
    NURSERY.news.notify_one();
}

impl Nursery {
    fn work(&self) {
        let mut yard = self.enter();
        loop {
            if let Some(order) = yard.orders.pop_front() {
                drop(yard);
                order();
                yard = self.enter();
            } else {
                yard.idle += 1;
                yard = self.news.wait(yard).unwrap_or_else(PoisonError::into_inner);
                yard.idle -= 1;
            }
        }
    }

    /// Locks the state and ignores poisoning: orders run outside of the lock, so no panic leaves the state inconsistent.
    fn enter(&self) -> MutexGuard<'_, Yard> {
        self.yard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
