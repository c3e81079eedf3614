//! Drives machines on tokio: its clock, and the tasks for the handlers of a server. The loop is that of `everlink-handle`.

use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use everlink::relay::Config;
use everlink::server::Request;
use everlink::{ErrorObject, Instant};
use everlink_handle::{
    Answered, Clock, Guard, GuardOwner, LinkOwner, Response, ServiceOwner, Task, Transport,
    drive_server,
};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::{Instant as TokioInstant, Sleep, sleep_until};

/// How long a server's turn may keep running handlers itself, on a runtime with one thread. Further handlers run as tasks.
const HANDLER_TIME: Duration = Duration::from_micros(200);

/// Drives a link to its end, for applications that create its owner themselves. The future runs on a runtime with time enabled.
pub fn drive(owner: LinkOwner, transport: impl Transport) -> impl Future<Output = ()> + Send {
    everlink_handle::drive(owner, transport, TokioClock::default())
}

/// Drives a relay to its end, for applications that create its owner themselves. The future runs on a runtime with time enabled.
pub fn drive_relay(
    owner: GuardOwner,
    front: impl Transport,
    back: impl Transport,
) -> impl Future<Output = ()> + Send {
    everlink_handle::drive_relay(owner, front, back, TokioClock::default())
}

/// Starts a relay between a downstream client and an upstream server, driven by a task on the present runtime.
///
/// The `front` transport is [`stdio::StdioTransport`](crate::stdio::StdioTransport) or an [`http::ServerTransport`](crate::http::ServerTransport).
/// The `back` transport is [`child::ChildTransport`](crate::child::ChildTransport) or [`http::ClientTransport`](crate::http::ClientTransport). The
/// config must match both.
///
/// # Errors
///
/// Outside a runtime.
pub fn relay(
    config: Config,
    front: impl Transport + 'static,
    back: impl Transport + 'static,
) -> io::Result<Guard> {
    let (guard, owner) = Guard::new(config);
    start(drive_relay(owner, front, back))?;
    Ok(guard)
}

/// Drives a server until it is closed, with a task per request. Returns the owner, which the caller drops when the transport is closed.
pub(crate) fn serve(
    owner: ServiceOwner,
    transport: impl Transport,
    handler: impl Handler,
) -> impl Future<Output = ServiceOwner> + Send {
    let mut handlers = HandlerRunner {
        handler: Arc::new(handler),
        is_single_threaded: None,
        turn: Instant::ZERO,
        started_in_turn: (0, None),
    };
    let begin = move |now, task| handlers.begin(now, task);
    drive_server(owner, transport, TokioClock::default(), begin)
}

/// Spawns a driver on the present runtime.
pub(crate) fn start(driver: impl Future<Output: Send> + Send + 'static) -> io::Result<()> {
    let runtime = Handle::try_current().map_err(io::Error::other)?;
    drop(runtime.spawn(driver));
    Ok(())
}

/// The clock of a driver, which starts at its first use, because no runtime is needed before.
#[derive(Default)]
struct TokioClock {
    started: Option<(TokioInstant, Pin<Box<Sleep>>)>,
}

impl TokioClock {
    fn started(&mut self) -> &mut (TokioInstant, Pin<Box<Sleep>>) {
        self.started.get_or_insert_with(|| {
            let origin = TokioInstant::now();
            (origin, Box::pin(sleep_until(origin)))
        })
    }
}

impl Clock for TokioClock {
    fn now(&mut self) -> Instant {
        Instant::from_origin(self.started().0.elapsed())
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>, deadline: Option<Instant>) -> Poll<()> {
        let Some(deadline) = deadline else {
            return Poll::Pending;
        };
        let (origin, sleep) = self.started();
        let deadline = *origin + Duration::from_nanos(deadline.as_nanos());
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(cx)
    }
}

/// Runs the handlers of requests.
struct HandlerRunner<A> {
    handler: Arc<A>,
    /// Whether the runtime has one thread. Set at the first task.
    is_single_threaded: Option<bool>,
    /// The time of the driver's present turn.
    turn: Instant,
    /// The number of handlers started in this turn, and the time at which the second one started.
    started_in_turn: (usize, Option<TokioInstant>),
}

impl<A: Handler> HandlerRunner<A> {
    /// Starts the handler of a request. On a runtime with one thread, nothing else can run until the handler waits. So it starts here, and most
    /// handlers also end here.
    fn begin(&mut self, now: Instant, task: Task) -> Option<Answered> {
        let is_single_threaded = *self.is_single_threaded.get_or_insert_with(|| {
            Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread
        });
        // Boxed, because the future is moved about six times before it runs.
        let span = task.context.span();
        let mut running = Box::pin(span.instrument(run_task(task, Arc::clone(&self.handler))));
        if is_single_threaded && self.has_time_left(now) {
            // If it is pending, it is polled again as a task, whose waker can wake it.
            let mut noop = Context::from_waker(Waker::noop());
            let begin = AssertUnwindSafe(|| running.as_mut().poll(&mut noop));
            match catch_unwind(begin) {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(answered)) => return answered,
                // Dropping the future sends an error reply to the client.
                Err(_) => return None,
            }
        }
        tokio::spawn(async move {
            if let Some((answer, outcome)) = running.await {
                answer.respond(outcome);
            }
        });
        None
    }

    /// Whether the handlers started in this turn have taken less than [`HANDLER_TIME`], so that other tasks need not wait.
    fn has_time_left(&mut self, now: Instant) -> bool {
        if self.turn != now {
            (self.turn, self.started_in_turn) = (now, (0, None));
        }
        let (count, since) = &mut self.started_in_turn;
        *count += 1;
        *count == 1 || since.get_or_insert_with(TokioInstant::now).elapsed() < HANDLER_TIME
    }
}

/// Answers the requests of a server: an `async` function of the request and its context. It returns a result ([`Payload`](everlink::Payload)), the
/// input that it needs first ([`InputRequired`](everlink::server::InputRequired)), or a [`Response`] if it may return either.
///
/// Each request runs as a task; on a runtime with one thread, only from its first wait on. The task is dropped at a wait when the answer is no longer
/// wanted. If it panics, the client gets an error reply.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request.
    fn answer(
        &self,
        request: Request,
        context: everlink_handle::Context,
    ) -> impl Future<Output = Result<Response, ErrorObject>> + Send;
}

impl<F, A, R> Handler for F
where
    F: Fn(Request, everlink_handle::Context) -> A + Send + Sync + 'static,
    A: Future<Output = Result<R, ErrorObject>> + Send,
    R: Into<Response>,
{
    async fn answer(
        &self,
        request: Request,
        context: everlink_handle::Context,
    ) -> Result<Response, ErrorObject> {
        self(request, context).await.map(Into::into)
    }
}

/// Runs a task until it is answered, or until the answer is no longer wanted.
async fn run_task(task: Task, handler: Arc<impl Handler>) -> Option<Answered> {
    let Task {
        request,
        context,
        answer,
    } = task;
    let mut cancelled = pin!(context.cancelled());
    let mut answered = pin!(handler.answer(request, context));
    let outcome = poll_fn(|cx| match answered.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending => cancelled.as_mut().poll(cx).map(|()| None),
    });
    let outcome = outcome.await?;
    Some((answer, outcome))
}
