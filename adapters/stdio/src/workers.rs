//! Threads that run the application's function, one per concurrent request. Does not know what a request is about.
//!
//! Waking a thread costs more than many a task. So one thread is woken at a time, and it wakes the next one if tasks are left. If tasks are quick,
//! few threads run all of them; if they block, each task soon has its own thread. While a woken thread is on its way, answers may be held back, to be
//! written together. That thread writes them as soon as it runs, whatever the thread that held them back does meanwhile.

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

/// How long an idle thread is kept.
const PATIENCE: Duration = Duration::from_secs(10);

/// A pool of threads that run tasks.
#[derive(Clone)]
pub(crate) struct Workers(Arc<Shop>);

struct Shop {
    most: usize,
    function: Box<dyn Fn(Request, Context) -> Result<Response, ErrorObject> + Send + Sync>,
    /// Writes all answers that are held back.
    write: Box<dyn Fn() + Send + Sync>,
    floor: Mutex<Floor>,
}

#[derive(Default)]
struct Floor {
    tasks: VecDeque<Task>,
    threads: usize,
    /// The threads that wait for a task. The last one is woken first, so that the others can time out.
    idle: Vec<Thread>,
    /// Whether a thread was woken or spawned and does not run yet.
    is_called: bool,
    /// Whether that thread has answers to write.
    is_holding: bool,
    is_closed: bool,
}

impl Workers {
    /// Creates a pool of at most `most` threads; further tasks wait. Workers answer under [`hold_back`], and `write` writes the answers.
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

    /// Queues a task. It runs once [`call`](Workers::call) has woken a thread.
    pub(crate) fn take(&self, task: Task) {
        let mut floor = self.0.enter();
        floor.tasks.push_back(task);
        if floor.tasks.len() <= self.0.most {
            return;
        }
        // The machine limits the wanted tasks; cancelled ones must not pile up. Dropping a task queues a command for the server, which must not
        // happen under this lock.
        let tasks = mem::take(&mut floor.tasks).into_iter();
        let (cancelled, wanted): (VecDeque<Task>, _) =
            tasks.partition(|task| task.context.is_cancelled());
        floor.tasks = wanted;
        drop(floor);
        drop(cancelled);
    }

    /// Wakes a thread for the queued tasks.
    pub(crate) fn call(&self) {
        self.0.call(self.0.enter());
    }

    /// Drops the queued tasks, and ends each thread after its present task.
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
    /// Wakes or spawns a thread, if a task is queued and no thread is on its way.
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

    /// Handles a failed spawn: the existing threads run the tasks. Without any thread, the tasks are dropped.
    fn do_without(&self) {
        let mut floor = self.enter();
        floor.is_called = false;
        floor.threads -= 1;
        let is_holding = mem::take(&mut floor.is_holding);
        let is_alone = floor.threads == 0;
        // Dropping a task sends an error reply to its client.
        let tasks = is_alone.then(|| mem::take(&mut floor.tasks));
        drop(floor);
        drop(tasks);
        if is_holding {
            (self.write)();
        }
    }

    /// Runs a thread until it has been idle for [`PATIENCE`] or the pool is closed.
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

    /// Runs tasks until none is queued.
    fn run_all<'a>(self: &'a Arc<Shop>, mut floor: MutexGuard<'a, Floor>) -> MutexGuard<'a, Floor> {
        while let Some(task) = floor.tasks.pop_front() {
            self.call(floor);
            self.run(task);
            floor = self.enter();
            // The answer was queued before this lock was taken, so a thread that is still on its way writes it.
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
        // A task that was cancelled before its turn is not run.
        if context.is_cancelled() {
            return hold_back(|| drop(answer));
        }
        let run = AssertUnwindSafe(|| (self.function)(request, context));
        match catch_unwind(run) {
            Ok(response) => hold_back(|| answer.respond(response)),
            // Dropping the answer sends an error reply to the client.
            Err(_) => hold_back(|| drop(answer)),
        }
    }

    /// Waits to be woken. Returns `None` after [`PATIENCE`], or when the pool is closed.
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

    /// Locks the floor and ignores poisoning: the function runs outside of the lock, so no panic leaves the state inconsistent.
    fn enter(&self) -> MutexGuard<'_, Floor> {
        self.floor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
