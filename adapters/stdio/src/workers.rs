//! Threads that run the program's function, one for each request that runs at the same time. Knows not what a request is about.
//!
//! To wake a thread costs more than many a task. So one at a time is called, and calls the next when it is there and tasks are left: where tasks
//! are quick, few threads do them all; where they block, each soon has its own. While one is on its way, answers may wait to be
//! written together: it sees to that as soon as it is there, whatever becomes of the thread that held them back.

use std::collections::VecDeque;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use everlink::ErrorObject;
use everlink::server::Request;
use everlink_handle::{Context, Response, Task};

use crate::helm::hold_back;

/// So long a thread is kept that has nothing to do.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who runs tasks.
#[derive(Clone)]
pub(crate) struct Workers(Arc<Shop>);

struct Shop {
    most: usize,
    function: Box<dyn Fn(Request, Context) -> Result<Response, ErrorObject> + Send + Sync>,
    /// Has all answers written that wait for it.
    write: Box<dyn Fn() + Send + Sync>,
    floor: Mutex<Floor>,
}

#[derive(Default)]
struct Floor {
    tasks: VecDeque<Task>,
    threads: usize,
    /// Those of them that wait for a task. The last one comes first, so that the others are not needed for long.
    idle: Vec<Thread>,
    /// One of them is on its way.
    is_called: bool,
    /// There are answers that wait for it to be written.
    is_holding: bool,
    is_closed: bool,
}

impl Workers {
    /// As many threads as this run the function at once; more tasks wait. Answers are given under [`hold_back`], and `write` has
    /// them written.
    pub(crate) fn new<R: Into<Response>>(
        most: usize,
        function: impl Fn(Request, Context) -> Result<R, ErrorObject> + Send + Sync + 'static,
        write: impl Fn() + Send + Sync + 'static,
    ) -> Workers {
        Workers(Arc::new(Shop {
            most,
            function: Box::new(move |request, context| function(request, context).map(Into::into)),
            write: Box::new(write),
            floor: Mutex::default(),
        }))
    }

    /// Takes a task in, to be run beside the others once somebody is called.
    pub(crate) fn take(&self, task: Task) {
        let mut floor = self.0.enter();
        floor.tasks.push_back(task);
        if floor.tasks.len() <= self.0.most {
            return;
        }
        // The machine limits those that are wanted; the others must not pile up. A task that is dropped asks something of the server, which must
        // not happen under this lock.
        let tasks = mem::take(&mut floor.tasks).into_iter();
        let (cancelled, wanted): (VecDeque<Task>, _) =
            tasks.partition(|task| task.context.is_cancelled());
        floor.tasks = wanted;
        drop(floor);
        drop(cancelled);
    }

    /// Calls somebody for the tasks that were taken in.
    pub(crate) fn call(&self) {
        self.0.call(self.0.enter());
    }

    /// Lets the threads end when they are done with what they run.
    pub(crate) fn close(&self) {
        let mut floor = self.0.enter();
        floor.is_closed = true;
        let tasks = mem::take(&mut floor.tasks);
        floor.idle.drain(..).for_each(|thread| thread.unpark());
        drop(floor);
        drop(tasks);
    }
}

impl Shop {
    /// Calls somebody, if there is a task and nobody is on the way.
    fn call(self: &Arc<Shop>, mut floor: MutexGuard<'_, Floor>) {
        if floor.is_called || floor.tasks.is_empty() {
            return;
        }
        if let Some(thread) = floor.idle.pop() {
            floor.is_called = true;
            drop(floor);
            thread.unpark();
        } else if floor.threads < self.most {
            floor.is_called = true;
            floor.threads += 1;
            drop(floor);
            let shop = Arc::clone(self);
            let thread = thread::Builder::new().name("everlink-task".into());
            if thread.spawn(move || shop.work()).is_err() {
                self.do_without();
            }
        }
    }

    /// The system has no thread left: tasks are left to those that there are.
    fn do_without(&self) {
        let mut floor = self.enter();
        floor.is_called = false;
        floor.threads -= 1;
        let is_holding = mem::take(&mut floor.is_holding);
        let is_alone = floor.threads == 0;
        // To drop a task tells its client that it failed.
        let tasks = is_alone.then(|| mem::take(&mut floor.tasks));
        drop(floor);
        drop(tasks);
        if is_holding {
            (self.write)();
        }
    }

    /// A thread, from when it is called first until it was not called for long.
    fn work(self: &Arc<Shop>) {
        let mut floor = self.enter();
        loop {
            floor.is_called = false;
            if mem::take(&mut floor.is_holding) {
                drop(floor);
                (self.write)();
                floor = self.enter();
            }
            floor = self.run_all(floor);
            match self.sleep(floor) {
                Some(awake) => floor = awake,
                None => return,
            }
        }
    }

    /// Runs tasks until there are none.
    fn run_all<'a>(self: &'a Arc<Shop>, mut floor: MutexGuard<'a, Floor>) -> MutexGuard<'a, Floor> {
        while let Some(task) = floor.tasks.pop_front() {
            self.call(floor);
            self.run(task);
            floor = self.enter();
            // The answer was given before this look: whoever is still on the way finds it.
            floor.is_holding = floor.is_called && !floor.tasks.is_empty();
            if !floor.is_holding {
                drop(floor);
                (self.write)();
                floor = self.enter();
            }
        }
        floor
    }

    fn run(&self, task: Task) {
        let Task {
            request,
            context,
            answer,
        } = task;
        // What nobody wants any more by the time it is its turn is not begun.
        if context.is_cancelled() {
            return hold_back(|| drop(answer));
        }
        let run = AssertUnwindSafe(|| (self.function)(request, context));
        match catch_unwind(run) {
            Ok(response) => hold_back(|| answer.respond(response)),
            // It tells the client that the server failed.
            Err(_) => hold_back(|| drop(answer)),
        }
    }

    /// Waits to be called. Nothing when that took too long, or there will be no more tasks.
    fn sleep<'a>(&'a self, mut floor: MutexGuard<'a, Floor>) -> Option<MutexGuard<'a, Floor>> {
        let (this, since) = (thread::current(), Instant::now());
        if !floor.is_closed {
            floor.idle.push(this.clone());
        }
        loop {
            let place = floor.idle.iter().position(|idle| idle.id() == this.id());
            match place {
                None if floor.is_closed => break,
                None => return Some(floor),
                Some(place) if since.elapsed() >= PATIENCE => {
                    floor.idle.remove(place);
                    break;
                }
                Some(_) => {
                    drop(floor);
                    thread::park_timeout(PATIENCE);
                    floor = self.enter();
                }
            }
        }
        floor.threads -= 1;
        None
    }

    /// No panic leaves the floor in disorder: the function runs outside of it.
    fn enter(&self) -> MutexGuard<'_, Floor> {
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
