//! One call, as its caller holds it: waited for, followed, cancelled. Knows not how it is carried out.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use everlink::client::{Delivery, Failure, Listing, Misuse, Outcome};
use everlink::{CallId, ErrorObject, Payload};
use serde::Deserialize;

use super::link::{Errand, LinkMail};
use super::texts;
use crate::asked::Asked;
use crate::promise::{Cell, wait};

/// How many reports of progress wait for the caller to look; the oldest ones give way.
const REPORTS: usize = 64;

/// A call under way.
///
/// A task awaits it, a thread calls [`wait`](Call::wait); it has begun already, so that many can be under way at once. To drop it before it
/// is done is to cancel it.
#[must_use = "a call that is dropped is cancelled"]
pub struct Call<T> {
    shared: Arc<Shared>,
    mail: Arc<LinkMail>,
    read: fn(Reply) -> T,
    on_progress: Option<Box<dyn FnMut(Progress) + Send>>,
}

/// What the caller and the owner of the link both see of a call.
pub(crate) type Shared = Cell<Result<Reply, CallError>, Underway>;

#[derive(Default)]
pub(crate) struct Underway {
    /// Its name in the machine, once it was accepted.
    pub(crate) id: Option<CallId>,
    reports: VecDeque<Progress>,
}

impl Underway {
    fn report(&mut self, report: Progress) {
        if self.reports.len() == REPORTS {
            self.reports.pop_front();
        }
        self.reports.push_back(report);
    }
}

/// A call as the owner of the link holds it: settled in any case, at the latest when nobody holds it any more.
pub(crate) struct Caller(Arc<Shared>);

impl Caller {
    pub(crate) fn accepted(&self, id: CallId) {
        self.0.look(|underway| underway.id = Some(id));
    }

    pub(crate) fn settle(self, outcome: Result<Reply, CallError>) {
        self.0.settle(Some(outcome));
    }

    /// The same, but that whoever waits for it is left to be woken.
    pub(crate) fn settle_quietly(self, outcome: Result<Reply, CallError>) -> Option<Waker> {
        self.0.settle_quietly(Some(outcome))
    }

    pub(crate) fn report(&self, report: Progress) {
        self.0.change(|underway| underway.report(report));
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let was_accepted = self.0.look(|underway| underway.id.is_some());
        let error = if was_accepted {
            CallError::Gone
        } else {
            CallError::Misuse(Misuse::Closed)
        };
        self.0.settle(Some(Err(error)));
    }
}

/// How far a call is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// How far, in the server's own measure.
    pub progress: f64,
    /// How far it will go, if the server knows.
    pub total: Option<f64>,
    /// What the server says about it.
    pub message: Option<Box<str>>,
}

impl<T> Call<T> {
    pub(crate) fn begin(
        mail: &Arc<LinkMail>,
        read: fn(Reply) -> T,
        asked: Result<Asked, CallError>,
    ) -> Call<T> {
        let shared = Arc::new(Cell::new(Underway::default()));
        let caller = Caller(Arc::clone(&shared));
        match asked {
            // Where nobody runs it any more, to drop it settles the call.
            Ok(asked) => mail.send(Errand::Call(asked, caller)),
            Err(error) => caller.settle(Err(error)),
        }
        Call {
            shared,
            mail: Arc::clone(mail),
            read,
            on_progress: None,
        }
    }

    /// What to do whenever the server says how far it is. It is done by whoever waits for the call, while it waits.
    pub fn on_progress(mut self, report: impl FnMut(Progress) + Send + 'static) -> Call<T> {
        self.on_progress = Some(Box::new(report));
        self
    }

    /// Blocks this thread until the call is done.
    ///
    /// # Errors
    ///
    /// When it has no reply; the error says why, and whether it may have run.
    pub fn wait(self) -> Result<T, CallError> {
        wait(self)
    }

    /// Something with which others can cancel it while it is waited for.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller {
            shared: Arc::clone(&self.shared),
            mail: Arc::clone(&self.mail),
        }
    }
}

impl<T> Future for Call<T> {
    type Output = Result<T, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (polled, reports) = self
            .shared
            .poll_and_look(cx, |underway| mem::take(&mut underway.reports));
        if let Some(on_progress) = &mut self.on_progress {
            reports.into_iter().for_each(on_progress);
        }
        polled.map(|outcome| outcome.unwrap_or(Err(CallError::Gone)).map(self.read))
    }
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        if !self.shared.is_settled() {
            self.mail.send(Errand::Cancel {
                call: Arc::clone(&self.shared),
                reason: None,
            });
        }
    }
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.shared.look(|underway| underway.id);
        f.debug_tuple("Call").field(&id).finish()
    }
}

/// Cancels a call that somebody else waits for.
#[derive(Clone)]
pub struct Canceller {
    shared: Arc<Shared>,
    mail: Arc<LinkMail>,
}

impl Canceller {
    /// The call is not wanted any more, for this reason, which the server is told. It ends at once, unless it is done already.
    pub fn cancel(&self, reason: &str) {
        self.mail.send(Errand::Cancel {
            call: Arc::clone(&self.shared),
            reason: Some(reason.into()),
        });
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Canceller")
    }
}

/// Why a call has no reply.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CallError {
    /// What was to be sent cannot be written as JSON, for this reason.
    Arguments(Box<str>),
    /// The server replied with an error of its own. It is alive.
    Error(Arc<ErrorObject>),
    /// There is no reply; the failure says why, and whether the call may have run.
    Failed(Box<Failure>),
    /// Whoever drove the link ended before the call: its runtime was stopped, or it panicked.
    Gone,
    /// The call was never accepted: the caller made a mistake, or the link is closed.
    Misuse(Misuse),
}

impl CallError {
    /// Whether the server may have acted on the call. An error of its own is an answer: what it did before, it says.
    #[must_use]
    pub const fn may_have_run(&self) -> bool {
        match self {
            CallError::Arguments(_) | CallError::Misuse(_) => false,
            CallError::Error(_) | CallError::Gone => true,
            CallError::Failed(failure) => matches!(failure.delivery, Delivery::Unknown),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Arguments(why) => {
                write!(f, "the call was not made: its arguments are no JSON: {why}")
            }
            CallError::Error(error) => write!(f, "the server replied with an error: {error}"),
            CallError::Failed(failure) => failure.fmt(f),
            CallError::Gone => write!(f, "{}; the call may have run", crate::Gone),
            CallError::Misuse(misuse) => write!(f, "the call was not made: {misuse}"),
        }
    }
}

impl std::error::Error for CallError {}

/// What a tool returned.
#[derive(Clone, Debug)]
pub struct ToolResult(Payload);

impl ToolResult {
    /// Whether the tool itself says that it failed. The link is well.
    #[must_use]
    pub fn is_error(&self) -> bool {
        #[derive(Deserialize)]
        struct Says {
            #[serde(default, rename = "isError")]
            is_error: bool,
        }
        self.0.parse::<Says>().is_ok_and(|says| says.is_error)
    }

    /// All text in its content, a line between two pieces.
    #[must_use]
    pub fn text(&self) -> String {
        texts::joined(self.0.json()).unwrap_or_default()
    }

    /// Its structured content, read as a `T`.
    ///
    /// # Errors
    ///
    /// When there is none, or it is no `T`.
    pub fn structured<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        #[derive(Deserialize)]
        struct Says<T> {
            #[serde(rename = "structuredContent")]
            content: T,
        }
        self.0.parse::<Says<T>>().map(|says| says.content)
    }

    /// The whole result, as it came.
    #[must_use]
    pub const fn payload(&self) -> &Payload {
        &self.0
    }

    /// Gives up the whole result, as it came.
    #[must_use]
    pub fn into_payload(self) -> Payload {
        self.0
    }
}

/// What the machine says of a call, for those who wait.
pub(crate) fn settled(outcome: Outcome) -> Result<Reply, CallError> {
    match outcome {
        Outcome::Error(error) => Err(CallError::Error(error)),
        Outcome::Failed(failure) => Err(CallError::Failed(failure)),
        Outcome::Listed(listing) => Ok(Reply::List(listing)),
        Outcome::Reply(result) => Ok(Reply::Result(result)),
        other => unreachable!("a call ends in one of four ways, not in {other:?}"),
    }
}

/// What the server replied.
pub(crate) enum Reply {
    List(Arc<Listing>),
    Result(Payload),
}

impl Reply {
    pub(crate) fn result(self) -> Payload {
        match self {
            Reply::Result(result) => result,
            Reply::List(_) => unreachable!("a list is the outcome of `list` alone"),
        }
    }

    pub(crate) fn tool_result(self) -> ToolResult {
        ToolResult(self.result())
    }

    pub(crate) fn list(self) -> Arc<Listing> {
        match self {
            Reply::List(listing) => listing,
            Reply::Result(_) => unreachable!("the outcome of `list` is a list"),
        }
    }
}
