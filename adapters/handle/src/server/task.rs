//! One request, as its handler holds it. Does not know how the reply is sent.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use everlink::protocol::{LogLevel, code};
use everlink::server::{InputRequired, Misuse, Progress, Request, Unanswered, missing_capability};
use everlink::{ErrorObject, Payload, RequestId};

use super::service::{Conclusion, OwnerCommand, Service, ServiceQueue};
use crate::park::wait;
use crate::promise::{Gone, Pending, promise};
use crate::sync::{Mutex, lock, wake};
use crate::trace::RequestSpan;

/// A request for the application to answer.
pub struct Task {
    /// The request.
    pub request: Request,
    /// Lets the handler report progress, log and ask while the request runs.
    pub context: Context,
    /// The reply to give.
    pub answer: Answer,
}

impl Task {
    /// Creates the task for this request. Also returns the owner's side of it.
    pub(super) fn new(request: Request, service: Service) -> (Task, OpenRequest) {
        let (cancelled, span) = (Arc::<CancelFlag>::default(), RequestSpan::new(&request));
        let open = OpenRequest {
            cancelled: Arc::clone(&cancelled),
            span: span.clone(),
        };
        let task = Task {
            answer: Answer {
                request: request.request,
                queue: Arc::clone(service.queue()),
                is_given: false,
            },
            context: Context {
                request: request.request,
                service,
                cancelled,
                span,
            },
            request,
        };
        (task, open)
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Task").field(&self.request).finish()
    }
}

/// The one answer to a request. Dropping it without an answer sends an internal error to the client.
#[must_use = "a request needs an answer"]
pub struct Answer {
    request: RequestId,
    queue: Arc<ServiceQueue>,
    is_given: bool,
}

impl Answer {
    /// Answers with a result or an error.
    pub fn give(self, answer: Result<Payload, ErrorObject>) {
        self.respond(answer.map(Response::Result));
    }

    /// Answers that the client must send this input first (modern era), and forgets the request; see
    /// [`Server::require_input`](everlink::Server::require_input).
    pub fn require_input(self, input: InputRequired) {
        self.respond(Ok(Response::Input(input)));
    }

    /// Answers with a result, with required input or with an error.
    pub fn respond(self, answer: Result<Response, ErrorObject>) {
        let queue = Arc::clone(&self.queue);
        let (request, conclusion) = self.into_conclusion(answer);
        queue.send(OwnerCommand::Conclude(request, conclusion));
    }

    /// Converts the answer to a command for the owner.
    pub(super) fn into_conclusion(
        mut self,
        answer: Result<Response, ErrorObject>,
    ) -> (RequestId, Conclusion) {
        self.is_given = true;
        let conclusion = match answer {
            Ok(Response::Input(input)) => Conclusion::Require(input),
            Ok(Response::Result(result)) => Conclusion::Respond(result),
            Err(error) => Conclusion::Fail(error),
        };
        (self.request, conclusion)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.is_given {
            let error = internal_error(
                "the server's handler ended without an answer; it may have panicked",
            );
            let conclusion = Conclusion::Fail(error);
            self.queue
                .send(OwnerCommand::Conclude(self.request, conclusion));
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Answer").field(&self.request).finish()
    }
}

/// An answer to a request that is not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Response {
    /// The input that the client must send first (modern era). The request is forgotten; see [`Server::require_input`](everlink::Server::require_input).
    Input(InputRequired),
    /// The result.
    Result(Payload),
}

impl From<InputRequired> for Response {
    fn from(input: InputRequired) -> Response {
        Response::Input(input)
    }
}

impl From<Payload> for Response {
    fn from(result: Payload) -> Response {
        Response::Result(result)
    }
}

/// The operations of a handler on its request while it runs: progress, logs, asks and cancellation.
#[derive(Clone)]
pub struct Context {
    request: RequestId,
    service: Service,
    cancelled: Arc<CancelFlag>,
    span: RequestSpan,
}

/// The owner's side of a request that is not answered.
pub(super) struct OpenRequest {
    /// Is raised when the answer is no longer wanted.
    pub(super) cancelled: Arc<CancelFlag>,
    pub(super) span: RequestSpan,
}

impl Context {
    /// Returns the server that received the request, for example to publish the changes that the request made.
    #[must_use]
    pub const fn service(&self) -> &Service {
        &self.service
    }

    /// Reports progress to the client, if it asked for that.
    pub fn progress(&self, progress: Progress) {
        let request = self.request;
        // The error of a request that is over is ignored.
        self.service
            .queue()
            .run_on_machine(move |server, now| drop(server.progress(now, request, progress)));
    }

    /// Logs a message for this request, if its client asked for logs.
    pub fn log(&self, level: LogLevel, logger: Option<&str>, data: Payload) {
        let (request, logger) = (self.request, logger.map(Box::<str>::from));
        self.service.queue().run_on_machine(move |server, now| {
            drop(server.log(now, Some(request), level, logger.as_deref(), data));
        });
    }

    /// Ends the response stream of a client that can fetch the answer later; see [`Server::hang_up`](everlink::Server::hang_up).
    pub fn hang_up(&self) {
        let request = self.request;
        let queue = self.service.queue();
        queue.run_on_machine(move |server, now| drop(server.hang_up(now, request)));
    }

    /// Sends a request to the client, such as an elicitation, and waits for its answer.
    ///
    /// A handler that needs the answer passes a failure on: `context.ask(method, params).await?`. If the client lacks a capability, the error reply
    /// names it.
    pub fn ask(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: Option<Payload>,
    ) -> Pending<Payload, ServiceError> {
        let (promise, pending) = promise();
        self.service.queue().send(OwnerCommand::Ask {
            request: self.request,
            method: method.into(),
            params,
            promise,
        });
        pending
    }

    /// Returns the request's span of `tracing`, for drivers.
    #[must_use]
    pub fn span(&self) -> RequestSpan {
        self.span.clone()
    }

    /// Whether the answer is no longer wanted.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        lock(&self.cancelled.0).is_set
    }

    /// Completes when the answer is no longer wanted.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + use<> {
        let flag = Arc::clone(&self.cancelled);
        async move { flag.wait_until_raised().await }
    }

    /// Blocks this thread until the answer is no longer wanted.
    pub fn wait_cancelled(&self) {
        wait(self.cancelled());
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.request).finish()
    }
}

/// A one-shot event that any number of tasks can wait for.
#[derive(Default)]
pub(crate) struct CancelFlag(Mutex<FlagState>);

#[derive(Default)]
struct FlagState {
    is_set: bool,
    /// The wakers of the waiting tasks, by number.
    wakers: BTreeMap<u64, Waker>,
    last_number: u64,
}

impl CancelFlag {
    pub(crate) fn raise(&self) {
        let wakers = {
            let mut flag = lock(&self.0);
            flag.is_set = true;
            std::mem::take(&mut flag.wakers)
        };
        wakers.into_values().for_each(wake);
    }

    pub(crate) fn wait_until_raised(&self) -> impl Future<Output = ()> {
        let number = {
            let mut flag = lock(&self.0);
            flag.last_number += 1;
            flag.last_number
        };
        FlagWaiter { flag: self, number }
    }
}

/// A future that waits for a flag. Dropping it removes its waker.
struct FlagWaiter<'a> {
    flag: &'a CancelFlag,
    number: u64,
}

impl Future for FlagWaiter<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<()> {
        let mut flag = lock(&self.flag.0);
        if flag.is_set {
            return Poll::Ready(());
        }
        let replaced = flag.wakers.insert(self.number, cx.waker().clone());
        drop(flag);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for FlagWaiter<'_> {
    fn drop(&mut self) {
        let waker = lock(&self.flag.0).wakers.remove(&self.number);
        drop(waker);
    }
}

/// The reason why a server did not do what its application wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServiceError {
    /// The server has ended.
    Gone,
    /// The application made a mistake, and nothing was sent.
    Misuse(Misuse),
    /// An ask was sent, and there is no answer.
    Unanswered(Unanswered),
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServiceError::Gone => f.write_str("the server has ended"),
            ServiceError::Misuse(misuse) => misuse.fmt(f),
            ServiceError::Unanswered(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for ServiceError {}

impl From<Gone> for ServiceError {
    fn from(_: Gone) -> ServiceError {
        ServiceError::Gone
    }
}

impl From<Misuse> for ServiceError {
    fn from(misuse: Misuse) -> ServiceError {
        ServiceError::Misuse(misuse)
    }
}

/// Builds the error reply for the client whose request needs the answer.
impl From<ServiceError> for ErrorObject {
    fn from(error: ServiceError) -> ErrorObject {
        let missing = match &error {
            ServiceError::Misuse(Misuse::Unaskable { why, .. })
            | ServiceError::Unanswered(Unanswered::Unaskable(why)) => why.missing(),
            ServiceError::Gone | ServiceError::Misuse(_) | ServiceError::Unanswered(_) => None,
        };
        missing.map_or_else(|| internal_error(error.to_string()), missing_capability)
    }
}

impl From<Gone> for ErrorObject {
    fn from(gone: Gone) -> ErrorObject {
        internal_error(gone.to_string())
    }
}

/// An error reply that blames the server.
pub(super) fn internal_error(text: impl Into<String>) -> ErrorObject {
    ErrorObject::new(code::INTERNAL_ERROR, text)
}
