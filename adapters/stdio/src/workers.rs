//! Threads that run the program's function, one for each request that runs at the same time. Knows not what a request is about.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use everlink::ErrorObject;
use everlink::server::Request;
use everlink_handle::{Context, Response, Task};

/// As many threads are kept that have nothing to do.
const SPARE: usize = 4;

/// Who runs tasks. Dropped, it lets the threads end when they are done with what they run.
pub(crate) struct Workers(Arc<Shop>);

struct Shop {
    most: usize,
    function: Box<dyn Fn(Request, Context) -> Result<Response, ErrorObject> + Send + Sync>,
    floor: Mutex<Floor>,
    news: Condvar,
}

#[derive(Default)]
struct Floor {
    tasks: VecDeque<Task>,
    threads: usize,
    /// How many of them wait for a task.
    idle: usize,
    is_closed: bool,
}

impl Workers {
    /// As many threads as this run the function at once; more tasks wait.
    pub(crate) fn new<R: Into<Response>>(
        most: usize,
        function: impl Fn(Request, Context) -> Result<R, ErrorObject> + Send + Sync + 'static,
    ) -> Workers {
        Workers(Arc::new(Shop {
            most,
            function: Box::new(move |request, context| function(request, context).map(Into::into)),
            floor: Mutex::default(),
            news: Condvar::new(),
        }))
    }

    /// Runs a task beside the others.
    pub(crate) fn run(&self, task: Task) {
        let mut floor = self.0.enter();
        floor.tasks.push_back(task);
        if floor.tasks.len() > self.0.most {
            // The machine limits those that are wanted; the others must not pile up.
            floor.tasks.retain(|task| !task.context.is_cancelled());
        }
        if floor.tasks.len() <= floor.idle {
            self.0.news.notify_one();
        } else if floor.threads < self.0.most {
            let shop = Arc::clone(&self.0);
            let thread = thread::Builder::new().name("everlink-task".into());
            if thread.spawn(move || shop.work()).is_ok() {
                floor.threads += 1;
            } else if floor.threads == 0 {
                // The system has no thread left: to drop the task tells its client that it failed.
                let task = floor.tasks.pop_back();
                drop(floor);
                drop(task);
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut floor = self.0.enter();
        floor.is_closed = true;
        let tasks = std::mem::take(&mut floor.tasks);
        self.0.news.notify_all();
        drop(floor);
        drop(tasks);
    }
}

impl Shop {
    fn work(&self) {
        let mut floor = self.enter();
        loop {
            if let Some(task) = floor.tasks.pop_front() {
                drop(floor);
                self.run(task);
                floor = self.enter();
            } else if floor.is_closed || floor.idle == SPARE {
                floor.threads -= 1;
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

    fn run(&self, task: Task) {
        let Task {
            request,
            context,
            answer,
        } = task;
        // What nobody wants any more by the time it is its turn is not begun.
        if !context.is_cancelled() {
            // A panic drops the answer, which tells the client that the server failed.
            let run = AssertUnwindSafe(|| answer.respond((self.function)(request, context)));
            let _ = catch_unwind(run);
        }
    }

    /// No panic leaves the floor in disorder: the function runs outside of it.
    fn enter(&self) -> MutexGuard<'_, Floor> {
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
