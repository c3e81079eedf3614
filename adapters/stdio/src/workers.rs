//! Threads that run the program's function, one for each request that runs at the same time. Knows not what a request is about.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use everlink::server::Request;
use everlink::{ErrorObject, Payload};
use everlink_handle::{Context, Task};

/// Who runs tasks. Dropped, it lets the threads end when they are done with what they run.
pub(crate) struct Workers(Arc<Shop>);

struct Shop {
    function: Box<dyn Fn(Request, Context) -> Result<Payload, ErrorObject> + Send + Sync>,
    floor: Mutex<Floor>,
    news: Condvar,
}

#[derive(Default)]
struct Floor {
    tasks: VecDeque<Task>,
    /// How many threads wait for a task.
    idle: usize,
    is_closed: bool,
}

impl Workers {
    pub(crate) fn new(
        function: impl Fn(Request, Context) -> Result<Payload, ErrorObject> + Send + Sync + 'static,
    ) -> Workers {
        Workers(Arc::new(Shop {
            function: Box::new(function),
            floor: Mutex::default(),
            news: Condvar::new(),
        }))
    }

    /// Runs a task beside the others. How many there are at once is the machine's to limit.
    pub(crate) fn run(&self, task: Task) {
        let mut floor = self.0.enter();
        floor.tasks.push_back(task);
        if floor.tasks.len() <= floor.idle {
            self.0.news.notify_one();
            return;
        }
        let shop = Arc::clone(&self.0);
        let thread = thread::Builder::new().name("everlink-task".into());
        if thread.spawn(move || shop.work()).is_err() {
            // The system has no thread left: to drop the task tells its client that it failed.
            floor.tasks.pop_back();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut floor = self.0.enter();
        floor.is_closed = true;
        floor.tasks.clear();
        self.0.news.notify_all();
    }
}

impl Shop {
    fn work(&self) {
        let mut floor = self.enter();
        loop {
            if let Some(Task {
                request,
                context,
                answer,
            }) = floor.tasks.pop_front()
            {
                drop(floor);
                // A panic ends this thread, and to drop the answer tells the client that it failed.
                answer.give((self.function)(request, context));
                floor = self.enter();
            } else if floor.is_closed {
                return;
            } else {
                floor.idle += 1;
                floor = self
                    .news
                    .wait(floor)
                    .unwrap_or_else(PoisonError::into_inner);
                floor.idle -= 1;
            }
        }
    }

    /// No panic leaves the floor in disorder: the function runs outside of it.
    fn enter(&self) -> MutexGuard<'_, Floor> {
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
