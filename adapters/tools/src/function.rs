//! Runs functions of all kinds: those that answer at once, those that wait as tasks, and those that block a thread.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::{fmt, io, thread};

use everlink::ErrorObject;
use everlink::protocol::code;
use everlink_handle::{Gone, Response, promise, wait};

/// The answer to a request.
pub(crate) type Answer = Result<Response, ErrorObject>;

/// A future with the answer to a request.
pub(crate) type BoxedAnswer = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A request that has begun.
pub(crate) enum Started {
    /// It is answered.
    Done(Answer),
    /// It is a future.
    Future(BoxedAnswer),
    /// It blocks a thread.
    Blocking(Box<dyn FnOnce() -> Answer + Send>),
}

impl Started {
    /// Runs it on this thread. A future is dropped at a wait when its request is cancelled.
    pub(crate) fn run(self, cancelled: impl Future<Output = ()>) -> Answer {
        match self {
            Started::Done(answer) => answer,
            Started::Future(future) => wait(unless_cancelled(future, cancelled)),
            Started::Blocking(function) => function(),
        }
    }

    /// Runs it as a task. A function that blocks gets a thread of its own.
    pub(crate) fn into_answering(self) -> Answering {
        Answering(match self {
            Started::Done(answer) => State::Done(Some(answer)),
            Started::Future(future) => State::Future(future),
            Started::Blocking(function) => State::Future(on_thread(&THREADS, function)),
        })
    }
}

/// Completes with a future, or when its request is cancelled.
async fn unless_cancelled(mut future: BoxedAnswer, cancelled: impl Future<Output = ()>) -> Answer {
    let mut cancelled = pin!(cancelled);
    let either = poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Pending => cancelled.as_mut().poll(cx).map(|()| None),
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
    });
    // Nobody reads the answer to a cancelled request.
    let answer = either.await;
    answer.unwrap_or_else(|| Err(internal("the request was cancelled")))
}

/// The threads of blocking functions on async runtimes. A client that calls and cancels could otherwise start any number: a cancelled call gives its place at
/// the server to the next one, but its function runs on.
static THREADS: Threads = Threads {
    running: AtomicUsize::new(0),
    most: 512,
};

struct Threads {
    running: AtomicUsize,
    most: usize,
}

impl Threads {
    /// Takes a place for a thread, until the guard is dropped.
    fn take(&'static self) -> Option<ThreadPlace> {
        let place = ThreadPlace(self);
        // Relaxed: the counter protects no other memory.
        (self.running.fetch_add(1, Ordering::Relaxed) < self.most).then_some(place)
    }
}

struct ThreadPlace(&'static Threads);

impl Drop for ThreadPlace {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs a function on a thread of its own.
fn on_thread(
    threads: &'static Threads,
    function: Box<dyn FnOnce() -> Answer + Send>,
) -> BoxedAnswer {
    let (promise, pending) = promise::<_, NoAnswer>();
    let thread = thread::Builder::new().name("everlink-tool".to_owned());
    let started = match threads.take() {
        Some(place) => thread.spawn(move || {
            let answer = function();
            // Free when the client reads the answer, and may call again.
            drop(place);
            promise.resolve(answer.map_err(NoAnswer));
        }),
        None => Err(io::Error::other("too many blocking tools are running")),
    };
    Box::pin(async move {
        if let Err(error) = started {
            return Err(internal(format!("no thread for the tool: {error}")));
        }
        pending.await.map_err(|NoAnswer(error)| error)
    })
}

/// The error of a function on a thread.
struct NoAnswer(ErrorObject);

impl From<Gone> for NoAnswer {
    fn from(_: Gone) -> NoAnswer {
        NoAnswer(internal(
            "the server's handler ended without an answer; it may have panicked",
        ))
    }
}

fn internal(text: impl Into<String>) -> ErrorObject {
    ErrorObject::new(code::INTERNAL_ERROR, text)
}

/// The answer to a request, to be awaited: what the [`handler`](crate::Tools::handler) of a set returns.
#[must_use = "a request needs an answer"]
pub struct Answering(State);

enum State {
    /// `None` after it was taken.
    Done(Option<Answer>),
    Future(BoxedAnswer),
}

impl Future for Answering {
    type Output = Result<Response, ErrorObject>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Done(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
            State::Future(future) => future.as_mut().poll(cx),
        }
    }
}

impl fmt::Debug for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answering")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn cancelled_future_is_dropped_on_a_thread() {
        let (alive, watched) = channel::<()>();
        let future: BoxedAnswer = Box::pin(async move {
            std::future::pending::<()>().await;
            drop(alive);
            Err(internal("it never ends"))
        });
        let answer = Started::Future(future).run(std::future::ready(()));
        assert!(answer.is_err());
        assert!(watched.recv().is_err(), "its sender is dropped");
        let done: BoxedAnswer = Box::pin(async { Err(ErrorObject::new(7, "it ran")) });
        let answer = Started::Future(done).run(std::future::pending());
        assert_eq!(answer.expect_err("an error").code, 7);
    }

    #[test]
    fn blocking_functions_beyond_the_limit_fail_until_another_ends() {
        static ONE: Threads = Threads {
            running: AtomicUsize::new(0),
            most: 1,
        };
        let done = || -> Answer { Err(ErrorObject::new(7, "it ran")) };
        let code = |answer: BoxedAnswer| wait(answer).expect_err("all answers are errors").code;
        let (release, released) = channel::<()>();
        let first = on_thread(
            &ONE,
            Box::new(move || {
                let _ = released.recv();
                done()
            }),
        );
        for _ in 0..3 {
            assert_eq!(code(on_thread(&ONE, Box::new(done))), code::INTERNAL_ERROR);
        }
        release.send(()).expect("it waits");
        assert_eq!(code(first), 7);
        assert_eq!(code(on_thread(&ONE, Box::new(done))), 7);
    }
}
