//! Threads that run the application's function, one per concurrent request. Does not know what a request is about.
//!
//! Waking a thread often costs more than running a task. So one thread is woken at a time, and it wakes the next one if tasks are left. If tasks are
//! quick, few threads run all of them. If they block, each task soon has its own thread.
//!
//! Between the wake-up of a thread and its first instruction, other threads may hold back their answers. The woken thread then writes all of them
//! together as soon as it runs, whatever the other threads do meanwhile.

use std::collections::VecDeque;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use everlink::ErrorObject;
use everlink::server::Request;
use everlink_handle::{Context, Response, Task};

use crate::inline_driver::defer_turns;

/// How long an idle thread is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A pool of threads that run tasks.
#[derive(Clone)]
pub(crate) struct Workers(Arc<Pool>);

struct Pool {
    max_threads: usize,
    function: Box<dyn Fn(Request, Context) -> Result<Response, ErrorObject> + Send + Sync>,
    /// Writes all answers that are held back.
    write_answers: Box<dyn Fn() + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    threads: usize,
    /// The threads that wait for a task. The last one is woken first, so that the others can time out.
    idle: Vec<Thread>,
    /// Whether a thread was woken or spawned and does not run yet.
    is_thread_waking: bool,
    /// Whether that thread has answers to write.
    has_held_answers: bool,
    is_closed: bool,
}

impl Workers {
    /// Creates a pool of at most `max_threads` threads; further tasks wait. Workers answer under [`defer_turns`], and `write_answers` writes the
    /// answers.
    pub(crate) fn new<R: Into<Response>>(
        max_threads: usize,
        function: impl Fn(Request, Context) -> Result<R, ErrorObject> + Send + Sync + 'static,
        write_answers: impl Fn() + Send + Sync + 'static,
    ) -> Workers {
        Workers(Arc::new(Pool {
            max_threads,
            function: Box::new(move |request, context| function(request, context).map(Into::into)),
            write_answers: Box::new(write_answers),
            state: Mutex::default(),
        }))
    }

    /// Queues a task. It runs once [`wake_thread`](Workers::wake_thread) has woken a thread.
    pub(crate) fn queue(&self, task: Task) {
        let mut state = self.0.lock();
        state.tasks.push_back(task);
        if state.tasks.len() <= self.0.max_threads {
            return;
        }
        // The machine limits the wanted tasks; cancelled ones must not pile up. Dropping a task queues a command for the server, which must not
        // happen under this lock.
        let tasks = mem::take(&mut state.tasks).into_iter();
        let (cancelled, wanted): (VecDeque<Task>, _) =
            tasks.partition(|task| task.context.is_cancelled());
        state.tasks = wanted;
        drop(state);
        drop(cancelled);
    }

    /// Wakes a thread for the queued tasks.
    pub(crate) fn wake_thread(&self) {
        self.0.wake_thread(self.0.lock());
    }

    /// Drops the queued tasks, and ends each thread after its present task.
    pub(crate) fn close(&self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        let tasks = mem::take(&mut state.tasks);
        state.idle.drain(..).for_each(|thread| thread.unpark());
        drop(state);
        drop(tasks);
    }
}

impl Pool {
    /// Wakes or spawns a thread, if a task is queued and no thread is on its way.
    fn wake_thread(self: &Arc<Pool>, mut state: MutexGuard<'_, State>) {
        if state.is_thread_waking || state.tasks.is_empty() {
            return;
        }
        if let Some(thread) = state.idle.pop() {
            state.is_thread_waking = true;
            drop(state);
            thread.unpark();
        } else if state.threads < self.max_threads {
            state.is_thread_waking = true;
            state.threads += 1;
            drop(state);
            let pool = Arc::clone(self);
            let thread = thread::Builder::new().name("everlink-task".into());
            if thread.spawn(move || pool.run_thread()).is_err() {
                self.handle_failed_spawn();
            }
        }
    }

    /// Handles a failed spawn: the existing threads run the tasks. Without any thread, the tasks are dropped.
    fn handle_failed_spawn(&self) {
        let mut state = self.lock();
        state.is_thread_waking = false;
        state.threads -= 1;
        let has_held_answers = mem::take(&mut state.has_held_answers);
        let has_no_thread = state.threads == 0;
        // Dropping a task sends an error reply to its client.
        let tasks = has_no_thread.then(|| mem::take(&mut state.tasks));
        drop(state);
        drop(tasks);
        if has_held_answers {
            (self.write_answers)();
        }
    }

    /// Runs a thread until it has been idle for [`IDLE_TIMEOUT`] or the pool is closed.
    fn run_thread(self: &Arc<Pool>) {
        let mut state = self.lock();
        loop {
            state.is_thread_waking = false;
            if mem::take(&mut state.has_held_answers) {
                drop(state);
                (self.write_answers)();
                state = self.lock();
            }
            state = self.run_queued_tasks(state);
            match self.wait_until_woken(state) {
                Some(locked) => state = locked,
                None => return,
            }
        }
    }

    /// Runs tasks until none is queued.
    fn run_queued_tasks<'a>(
        self: &'a Arc<Pool>,
        mut state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        while let Some(task) = state.tasks.pop_front() {
            self.wake_thread(state);
            self.run_task(task);
            state = self.lock();
            // The answer was queued before this lock was taken, so a thread that is still on its way writes it.
            state.has_held_answers = state.is_thread_waking && !state.tasks.is_empty();
            if !state.has_held_answers {
                drop(state);
                (self.write_answers)();
                state = self.lock();
            }
        }
        state
    }

    fn run_task(&self, task: Task) {
        let Task {
            request,
            context,
            answer,
        } = task;
        // A task that was cancelled before its turn is not run.
        if context.is_cancelled() {
            return defer_turns(|| drop(answer));
        }
        let guarded = AssertUnwindSafe(|| (self.function)(request, context));
        match catch_unwind(guarded) {
            Ok(response) => defer_turns(|| answer.respond(response)),
            // Dropping the answer sends an error reply to the client.
            Err(_) => defer_turns(|| drop(answer)),
        }
    }

    /// Waits to be woken. Returns `None` after [`IDLE_TIMEOUT`], or when the pool is closed.
    fn wait_until_woken<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> Option<MutexGuard<'a, State>> {
        let (this, since) = (thread::current(), Instant::now());
        if !state.is_closed {
            state.idle.push(this.clone());
        }
        loop {
            let index = state.idle.iter().position(|idle| idle.id() == this.id());
            match index {
                None if state.is_closed => break,
                None => return Some(state),
                Some(index) if since.elapsed() >= IDLE_TIMEOUT => {
                    state.idle.remove(index);
                    break;
                }
                Some(_) => {
                    drop(state);
                    thread::park_timeout(IDLE_TIMEOUT);
                    state = self.lock();
                }
            }
        }
        state.threads -= 1;
        None
    }

    /// Locks the state and ignores poisoning: the function runs outside of the lock, so no panic leaves the state inconsistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
