//! The caller's side of a call: make it, wait for it, follow its progress, cancel it. Does not know how the call is carried out.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use everlink::client::{CallOptions, Delivery, Failure, Listing, Misuse, Outcome};
use everlink::{CallId, ErrorObject, Limit, List, Payload};
use serde::Deserialize;

use super::link::{LinkQueue, NotReady, OwnerCommand};
use crate::commands::ClientCommand;
use crate::park::wait;
use crate::promise::{Gone, Slot};
use crate::sync::wake;
use crate::trace::CallSpan;

/// The maximum number of progress reports queued per call. The oldest report is dropped for a new one.
const MAX_REPORTS: usize = 64;

/// A call to be made.
///
/// It is made when a task awaits it or a thread calls [`wait`](CallBuilder::wait). [`start`](CallBuilder::start) makes it at once, so that several calls
/// run at the same time. A builder that is dropped makes no call.
///
/// ```
/// use std::time::Duration;
///
/// use everlink_handle::{CallError, Link};
/// use serde_json::json;
///
/// async fn build(link: &Link) -> Result<String, CallError> {
///     let tests = link.call_tool("test", json!({})).idempotent().start(); // under way from here on
///     let build = link.call_tool("build", json!({"release": true}));
///     let build = build.timeout(Duration::from_secs(300)).on_progress(|report| println!("{report:?}"));
///     Ok(format!("{}\n{}", build.await?.text(), tests.await?.text()))
/// }
/// ```
#[must_use = "a call is made when it is awaited, waited for or started"]
pub struct CallBuilder<T> {
    queue: Arc<LinkQueue>,
    subject: Result<CallSubject, CallError>,
    options: CallOptions,
    convert: fn(Reply) -> T,
    on_progress: Option<OnProgress>,
}

/// What a call wants of the server.
pub(super) enum CallSubject {
    List(List),
    Method(Cow<'static, str>, Option<Payload>),
}

impl CallSubject {
    fn span(&self) -> CallSpan {
        match self {
            CallSubject::List(list) => CallSpan::new(list.method(), None),
            CallSubject::Method(method, params) => CallSpan::new(method, params.as_ref()),
        }
    }

    fn into_command(self, options: CallOptions) -> ClientCommand {
        match self {
            CallSubject::List(list) => ClientCommand::List { list, options },
            CallSubject::Method(method, params) => ClientCommand::Call {
                method,
                params,
                options,
            },
        }
    }
}

type OnProgress = Box<dyn FnMut(Progress) + Send>;

impl<T> CallBuilder<T> {
    pub(super) fn new(
        queue: &Arc<LinkQueue>,
        subject: Result<CallSubject, CallError>,
        convert: fn(Reply) -> T,
    ) -> CallBuilder<T> {
        CallBuilder {
            queue: Arc::clone(queue),
            subject,
            options: CallOptions::new(),
            convert,
            on_progress: None,
        }
    }

    /// Sets the longest time until the result, with or without progress; [`CallOptions::with_total`] says which waits are not counted. Default: the
    /// limits of the [`Policy`](everlink::Policy), 60 s without a reply or progress and 10 min in all.
    pub fn timeout(mut self, limit: Duration) -> CallBuilder<T> {
        self.options.total = Some(Limit::After(limit));
        self.options.idle.get_or_insert(Limit::Never);
        self
    }

    /// Sets the longest time without a reply or progress. Default: [`Policy::call_idle`](everlink::Policy::call_idle), which is 60 s; no limit if there is
    /// a [`timeout`](CallBuilder::timeout).
    pub fn idle_timeout(mut self, limit: Duration) -> CallBuilder<T> {
        self.options.idle = Some(Limit::After(limit));
        self
    }

    /// Says that running the call twice is harmless, so that it may be sent again after its server ended, up to
    /// [`Policy::resends`](everlink::Policy::resends) times (2 by default). Default: no, except for methods that only read.
    pub const fn idempotent(mut self) -> CallBuilder<T> {
        self.options.idempotent = true;
        self
    }

    /// Replaces all options.
    pub const fn options(mut self, options: CallOptions) -> CallBuilder<T> {
        self.options = options;
        self
    }

    /// Sets a function to run for each progress report of the server. It runs on the task or thread that waits for the call, while it waits. Of the
    /// reports that come before, the newest 64 are kept. Default: reports are dropped.
    pub fn on_progress(mut self, report: impl FnMut(Progress) + Send + 'static) -> CallBuilder<T> {
        self.on_progress = Some(Box::new(report));
        self
    }

    /// Makes the call.
    pub fn start(self) -> Call<T> {
        Call {
            open: OpenCall::new(self.queue, self.subject, self.options, self.on_progress),
            convert: self.convert,
        }
    }

    /// Makes the call and blocks this thread until it is done.
    ///
    /// # Errors
    ///
    /// When the call has no result. The error says why, and whether the call may have run.
    pub fn wait(self) -> Result<T, CallError> {
        self.start().wait()
    }
}

impl<T> IntoFuture for CallBuilder<T> {
    type Output = Result<T, CallError>;
    type IntoFuture = Call<T>;

    fn into_future(self) -> Call<T> {
        self.start()
    }
}

impl<T> fmt::Debug for CallBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallBuilder")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A call in flight, made by [`CallBuilder::start`].
///
/// A task awaits it, a thread calls [`wait`](Call::wait). Dropping it before it is done cancels it.
#[must_use = "a call that is dropped is cancelled"]
pub struct Call<T> {
    open: OpenCall,
    convert: fn(Reply) -> T,
}

/// A call in flight whose reply is not converted, so that a program has this code once for all types of results.
struct OpenCall {
    slot: Arc<CallSlot>,
    queue: Arc<LinkQueue>,
    on_progress: Option<OnProgress>,
}

/// The state of a call that its caller and the owner of the link share.
pub(crate) type CallSlot = Slot<Result<Reply, CallError>, CallState>;

#[derive(Default)]
pub(crate) struct CallState {
    /// The machine's id of the call, once the machine has accepted it.
    pub(crate) id: Option<CallId>,
    reports: VecDeque<Progress>,
}

impl CallState {
    fn report(&mut self, report: Progress) {
        if self.reports.len() == MAX_REPORTS {
            self.reports.pop_front();
        }
        self.reports.push_back(report);
    }
}

/// The owner's side of a call. Dropping it settles the call with an error, so that no caller waits for ever.
pub(crate) struct Caller {
    slot: Arc<CallSlot>,
    span: CallSpan,
}

impl Caller {
    pub(crate) fn accepted(&self, id: CallId) {
        self.slot.with_shared(|state| state.id = Some(id));
    }

    pub(crate) fn settle(self, outcome: Result<Reply, CallError>) {
        self.settle_without_waking(outcome)
            .into_iter()
            .for_each(wake);
    }

    /// Settles the call like [`settle`](Caller::settle), but returns the caller's waker instead of waking it.
    pub(crate) fn settle_without_waking(self, outcome: Result<Reply, CallError>) -> Option<Waker> {
        self.span.record(outcome.as_ref().map(Reply::payload));
        self.slot.settle_without_waking(Some(outcome))
    }

    pub(crate) fn report(&self, report: Progress) {
        self.slot.update_shared(|state| state.report(report));
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if self.slot.is_settled() {
            return;
        }
        let was_accepted = self.slot.with_shared(|state| state.id.is_some());
        let error = if was_accepted {
            CallError::Gone
        } else {
            CallError::Misuse(Misuse::Closed)
        };
        self.span.record(Err(&error));
        self.slot.settle(Some(Err(error)));
    }
}

/// A progress report of a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// The progress so far, in units that the server chooses.
    pub progress: f64,
    /// The value of `progress` at the end, if the server knows it.
    pub total: Option<f64>,
    /// The server's message about the progress.
    pub message: Option<Box<str>>,
}

impl<T> Call<T> {
    /// Blocks this thread until the call is done.
    ///
    /// # Errors
    ///
    /// When the call has no result. The error says why, and whether the call may have run.
    pub fn wait(self) -> Result<T, CallError> {
        self.open.wait().map(self.convert)
    }

    /// Returns a handle with which others can cancel the call while its caller waits.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller {
            slot: Arc::clone(&self.open.slot),
            queue: Arc::clone(&self.open.queue),
        }
    }
}

impl<T> Future for Call<T> {
    type Output = Result<T, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.open).poll(cx);
        polled.map(|outcome| outcome.map(self.convert))
    }
}

impl OpenCall {
    fn new(
        queue: Arc<LinkQueue>,
        subject: Result<CallSubject, CallError>,
        options: CallOptions,
        on_progress: Option<OnProgress>,
    ) -> OpenCall {
        let slot = Arc::new(Slot::new(CallState::default()));
        match subject {
            Ok(subject) => {
                let caller = Caller {
                    slot: Arc::clone(&slot),
                    span: subject.span(),
                };
                let command = subject.into_command(options);
                // If the driver has ended, the queue drops the caller, which settles the call.
                queue.send(OwnerCommand::Call(command, caller));
            }
            Err(error) => slot.settle(Some(Err(error))),
        }
        OpenCall {
            slot,
            queue,
            on_progress,
        }
    }

    fn wait(self) -> Result<Reply, CallError> {
        wait(self)
    }
}

impl Future for OpenCall {
    type Output = Result<Reply, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (polled, reports) = self
            .slot
            .poll_with_shared(cx, |state| mem::take(&mut state.reports));
        if let Some(on_progress) = &mut self.on_progress {
            reports.into_iter().for_each(on_progress);
        }
        polled.map(|outcome| outcome.unwrap_or(Err(CallError::Gone)))
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if !self.slot.is_settled() {
            self.queue.send(OwnerCommand::Cancel {
                call: Arc::clone(&self.slot),
                reason: None,
            });
        }
    }
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.open.slot.with_shared(|state| state.id);
        f.debug_tuple("Call").field(&id).finish()
    }
}

/// Cancels a call that another task or thread waits for.
#[derive(Clone)]
pub struct Canceller {
    slot: Arc<CallSlot>,
    queue: Arc<LinkQueue>,
}

impl Canceller {
    /// Cancels the call and sends the reason to the server. The call ends at once. Does nothing if it is already done.
    pub fn cancel(&self, reason: &str) {
        self.queue.send(OwnerCommand::Cancel {
            call: Arc::clone(&self.slot),
            reason: Some(reason.into()),
        });
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Canceller")
    }
}

/// The reason why a call has no result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CallError {
    /// The arguments cannot be serialized as JSON, for this reason.
    Arguments(Box<str>),
    /// The server replied with an error. The server is alive.
    Error(Arc<ErrorObject>),
    /// There is no reply. The failure says why, and whether the call may have run.
    Failed(Box<Failure>),
    /// The driver of the link ended before the call: its runtime was stopped, or it panicked.
    Gone,
    /// The machine never accepted the call: the caller made a mistake, or the link is closed.
    Misuse(Misuse),
    /// The link is parked or closed instead of ready. No call returns this: it is the error of [`Link::ready`](crate::Link::ready), for functions that
    /// pass on both.
    NotReady(NotReady),
}

impl CallError {
    /// Whether the server may have acted on the call. True for an error reply, because the server received the call.
    #[must_use]
    pub const fn may_have_run(&self) -> bool {
        match self {
            CallError::Arguments(_) | CallError::Misuse(_) | CallError::NotReady(_) => false,
            CallError::Error(_) | CallError::Gone => true,
            CallError::Failed(failure) => matches!(failure.delivery, Delivery::Unknown),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Arguments(why) => {
                write!(
                    f,
                    "the call was not made: its arguments cannot be serialized as JSON: {why}"
                )
            }
            CallError::Error(error) => write!(f, "the server replied with an error: {error}"),
            CallError::Failed(failure) => failure.fmt(f),
            CallError::Gone => write!(f, "{Gone}; the call may have run"),
            CallError::Misuse(misuse) => write!(f, "the call was not made: {misuse}"),
            CallError::NotReady(not_ready) => not_ready.fmt(f),
        }
    }
}

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CallError::Error(error) => Some(&**error),
            // Their texts are the text of this error.
            CallError::Failed(failure) => failure.source(),
            CallError::NotReady(not_ready) => not_ready.source(),
            CallError::Misuse(misuse) => Some(misuse),
            CallError::Arguments(_) | CallError::Gone => None,
        }
    }
}

impl From<Gone> for CallError {
    fn from(_: Gone) -> CallError {
        CallError::Gone
    }
}

impl From<Misuse> for CallError {
    fn from(misuse: Misuse) -> CallError {
        CallError::Misuse(misuse)
    }
}

impl From<NotReady> for CallError {
    fn from(not_ready: NotReady) -> CallError {
        CallError::NotReady(not_ready)
    }
}

/// The result of a tool. A tool that failed has a result, too: see [`is_error`](ToolResult::is_error).
#[derive(Clone, Debug)]
pub struct ToolResult(Payload);

impl ToolResult {
    /// Whether the tool reports that it failed (`isError`). The link itself is fine.
    #[must_use]
    pub fn is_error(&self) -> bool {
        #[derive(Deserialize)]
        struct Flags {
            #[serde(default, rename = "isError")]
            is_error: bool,
        }
        self.0.parse::<Flags>().is_ok_and(|flags| flags.is_error)
    }

    /// Returns the text of all content blocks, joined by newlines.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.content_text().unwrap_or_default()
    }

    /// Deserializes its structured content as a `T`.
    ///
    /// # Errors
    ///
    /// When there is none, or it does not deserialize as a `T`.
    pub fn structured<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        #[derive(Deserialize)]
        struct Structured<T> {
            #[serde(rename = "structuredContent")]
            content: T,
        }
        self.0.parse::<Structured<T>>().map(|result| result.content)
    }

    /// Returns the whole result, unchanged.
    #[must_use]
    pub const fn payload(&self) -> &Payload {
        &self.0
    }

    /// Returns the whole result by value, unchanged.
    #[must_use]
    pub fn into_payload(self) -> Payload {
        self.0
    }
}

/// Converts the machine's outcome of a call to what its caller receives.
pub(crate) fn caller_result(outcome: Outcome) -> Result<Reply, CallError> {
    match outcome {
        Outcome::Error(error) => Err(CallError::Error(error)),
        Outcome::Failed(failure) => Err(CallError::Failed(failure)),
        Outcome::Listed(listing) => Ok(Reply::List(listing)),
        Outcome::Reply(result) => Ok(Reply::Result(result)),
        other => unreachable!("the machine reports no other outcome for a call: {other:?}"),
    }
}

/// The server's reply.
pub(crate) enum Reply {
    List(Arc<Listing>),
    Result(Payload),
}

impl Reply {
    /// The result, unless it is a list.
    const fn payload(&self) -> Option<&Payload> {
        match self {
            Reply::List(_) => None,
            Reply::Result(result) => Some(result),
        }
    }

    pub(crate) fn result(self) -> Payload {
        match self {
            Reply::Result(result) => result,
            Reply::List(_) => unreachable!("only `list` returns a list"),
        }
    }

    pub(crate) fn tool_result(self) -> ToolResult {
        ToolResult(self.result())
    }

    pub(crate) fn list(self) -> Arc<Listing> {
        match self {
            Reply::List(listing) => listing,
            Reply::Result(_) => unreachable!("`list` returns only a list"),
        }
    }
}
