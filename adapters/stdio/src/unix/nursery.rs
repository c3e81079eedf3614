//! The threads that start processes: to start one may take long, and nobody is to wait for somebody else's. Knows not what they start.
//!
//! They live as long as this process does. Linux means the *thread* that started a child when it says that the child dies with its parent.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, getpid};

/// As many starts are under way at once; more wait for one of them.
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
    /// Whose threads these are.
    process: Option<Pid>,
    orders: VecDeque<Order>,
    idle: usize,
    threads: usize,
}

type Order = Box<dyn FnOnce() + Send>;

/// Does this on one of the threads.
pub(super) fn order(order: impl FnOnce() + Send + 'static) {
    let mut yard = NURSERY.enter();
    if yard.process != Some(getpid()) {
        // The threads of a process do not come along when it forks.
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
            // The system has no thread left: then here.
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

    /// No panic leaves the yard in disorder: orders are carried out outside of it.
    fn enter(&self) -> MutexGuard<'_, Yard> {
        self.yard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
