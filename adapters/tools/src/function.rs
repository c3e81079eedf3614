//! Runs functions of all kinds: those that answer at once, those that wait as tasks, and those that block a thread.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::thread;

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
    /// Runs it on this thread.
    pub(crate) fn run(self) -> Answer {
        match self {
            Started::Done(answer) => answer,
            Started::Future(future) => wait(future),
            Started::Blocking(function) => function(),
        }
    }

    /// Runs it as a task. A function that blocks gets a thread of its own.
    pub(crate) fn into_answering(self) -> Answering {
        Answering(match self {
            Started::Done(answer) => State::Done(Some(answer)),
            Started::Future(future) => State::Future(future),
            Started::Blocking(function) => State::Future(on_thread(function)),
        })
    }
}

/// Runs a function on a thread of its own.
fn on_thread(function: Box<dyn FnOnce() -> Answer + Send>) -> BoxedAnswer {
    let (promise, pending) = promise::<_, NoAnswer>();
    let thread = thread::Builder::new().name("everlink-tool".to_owned());
    let started = thread.spawn(move || promise.resolve(function().map_err(NoAnswer)));
    Box::pin(async move {
        if let Err(error) = started {
            let text = format!("the system has no thread for the tool: {error}");
            return Err(ErrorObject::new(code::INTERNAL_ERROR, text));
        }
        pending.await.map_err(|NoAnswer(error)| error)
    })
}

/// The error of a function on a thread.
struct NoAnswer(ErrorObject);

impl From<Gone> for NoAnswer {
    fn from(_: Gone) -> NoAnswer {
        let text = "the server's handler ended without an answer; it may have panicked";
        NoAnswer(ErrorObject::new(code::INTERNAL_ERROR, text))
    }
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
