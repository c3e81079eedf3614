//! The loops that drive a machine: carry out its outputs, sleep until its deadline, feed its inputs. Knows no transport: that is behind
//! [`Transport`].

use std::cell::{Cell, LazyCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use everlink::server::Request;
use everlink::{Deadline, Epoch, ErrorObject, Input, Instant, Output, StreamId};
use everlink_handle::{Answer, LinkOwner, Response, ServiceOwner, Task};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::{Instant as TokioInstant, Sleep, sleep_until};

/// The number of bytes after which the driver yields. The peer can process them while the rest is read, so that both ends of a link work at the same
/// time.
const READ_LIMIT: usize = 4 << 10;
/// The capacity of the write buffer that is kept from one turn to the next.
const MAX_KEPT_BUFFER: usize = 64 << 10;
/// The maximum number of inputs between two turns of the machine.
const MAX_INPUTS: usize = 32;

/// How long a server's turn may keep running handlers itself, on a runtime with one thread. Further handlers run as tasks.
const HANDLER_TIME: Duration = Duration::from_micros(200);

/// The transport of one machine, at either end.
///
/// A transport carries out outputs and reports inputs. It knows no machine, so that the driver of another kind of machine, such as a
/// [`Relay`](everlink::Relay) with its two sides, can use it too. Dropping it closes everything that it holds.
pub trait Transport: Send {
    /// Carries out one output without waiting; its results are reported later. `bytes` are the bytes that belong to it.
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]);

    /// Whether [`write`](Transport::write) writes the queued bytes.
    const WRITES: bool = false;

    /// Writes the queued bytes as far as possible without blocking. Returns the result to report. The rest is written later.
    fn write(&mut self) -> Option<(Epoch, Input<'static>)> {
        None
    }

    /// Returns the next input and the epoch of its transport; at a server's end that is always [`Epoch::FIRST`]. While `reads` is false, nothing is
    /// read from the peer, and only results of earlier outputs are reported. Bytes that are read from a stream go into `buffer`, so that an idle
    /// transport holds no memory for them.
    fn poll_input<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        buffer: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)>;

    /// Whether a thread that wakes the driver may run the driver's turn at once. False if that thread may hold a lock that the transport needs, too.
    fn allows_inline_turn(&self) -> bool {
        true
    }
}

/// The clock of a machine, and the timer for its deadline.
pub struct Clock {
    origin: TokioInstant,
    sleep: Pin<Box<Sleep>>,
}

impl Clock {
    /// Starts a clock. Only inside a runtime.
    #[must_use]
    pub fn start() -> Clock {
        let origin = TokioInstant::now();
        Clock {
            origin,
            sleep: Box::pin(sleep_until(origin)),
        }
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn now(&self) -> Instant {
        since(self.origin)
    }

    /// Waits for something until `deadline` at the latest. Returns `None` when that time has come.
    pub async fn wait<T>(
        &mut self,
        deadline: Option<Deadline>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Option<T> {
        poll_fn(|cx| match poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => self.poll_deadline(cx, deadline).map(|()| None),
        })
        .await
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>, deadline: Option<Deadline>) -> Poll<()> {
        let Some(deadline) = deadline else {
            return Poll::Pending;
        };
        let deadline = self.origin + Duration::from_nanos(deadline.at.as_nanos());
        if self.sleep.deadline() != deadline {
            self.sleep.as_mut().reset(deadline);
        }
        self.sleep.as_mut().poll(cx)
    }
}

/// The time of a turn, read from the clock at its first use.
pub(crate) type Now<'a> = LazyCell<Instant, &'a dyn Fn() -> Instant>;

fn since(origin: TokioInstant) -> Instant {
    Instant::from_origin(origin.elapsed())
}

/// Spawns a driver on the present runtime.
pub(crate) fn start(driver: impl Future<Output: Send> + Send + 'static) -> io::Result<()> {
    let runtime = Handle::try_current().map_err(io::Error::other)?;
    drop(runtime.spawn(driver));
    Ok(())
}

/// Drives a link to its end, for applications that create its owner themselves.
pub fn drive(owner: LinkOwner, transport: impl Transport) -> impl Future<Output = ()> + Send {
    Driver::new(ClientLoop::new(owner, transport))
}

/// Drives a server until it is closed, with a task per request. Returns the owner, which the caller drops when the transport is closed.
pub(crate) fn serve(
    owner: ServiceOwner,
    transport: impl Transport,
    handler: impl Handler,
) -> impl Future<Output = ServiceOwner> + Send {
    Driver::new(ServerLoop {
        owner,
        transport,
        handlers: HandlerRunner {
            handler: Arc::new(handler),
            is_single_threaded: None,
            started_in_turn: (0, None),
        },
        reads: false,
    })
}

/// A machine with its transport.
pub(crate) trait DrivenMachine {
    /// The value that is left after the end, when the transport is dropped.
    type EndValue;

    /// Registers the driver's waker. Returns true if commands are already queued.
    fn register_waker(&self, driver: &Waker) -> bool;

    /// Whether there is so little to do that any thread may run a turn.
    #[cfg(any(unix, feature = "http-client"))]
    fn allows_inline_turn(&self) -> bool {
        false
    }

    /// Runs the queued commands, sets the time, and carries out all outputs. Returns whether the transport must be polled, because it may have
    /// results to report.
    fn turn(&mut self, now: Instant, buf: &mut Vec<u8>) -> bool;

    fn is_closed(&self) -> bool;

    /// Feeds the machine the next input of its transport. Returns the number of bytes in it.
    fn poll_input(&mut self, cx: &mut Context<'_>, now: &Now<'_>, buffer: &mut [u8])
    -> Poll<usize>;

    fn poll_timeout(&self) -> Option<Deadline>;

    /// Drops the transport.
    fn end(self) -> Self::EndValue;
}

/// The driver's loop: feed all inputs, run a turn, and repeat, because outputs may have immediate results. Otherwise sleep.
///
/// This future is written by hand, because an `async` block would hold its arguments twice.
pub(crate) struct Driver<D> {
    /// `None` after the end.
    machine: Option<D>,
    /// Set at the first turn, because no runtime is needed before.
    clock: Option<Clock>,
}

impl<D> Driver<D> {
    pub(crate) const fn new(machine: D) -> Driver<D> {
        Driver {
            machine: Some(machine),
            clock: None,
        }
    }
}

/// No field is pinned in place.
impl<D> Unpin for Driver<D> {}

impl<D: DrivenMachine> Future for Driver<D> {
    type Output = D::EndValue;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<D::EndValue> {
        let driver = self.get_mut();
        match driver.run_until_idle(cx, cx.waker(), true) {
            Poll::Ready(()) => driver
                .take()
                .map_or(Poll::Pending, |it| Poll::Ready(it.end())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<D: DrivenMachine> Driver<D> {
    #[cfg(any(unix, feature = "http-client"))]
    pub(crate) const fn machine(&self) -> Option<&D> {
        self.machine.as_ref()
    }

    /// Takes the machine, to be ended, and drops the timer, so that it no longer wakes the task.
    pub(crate) fn take(&mut self) -> Option<D> {
        self.clock = None;
        self.machine.take()
    }

    /// Drives the machine until there is nothing to do. Returns `Ready` when the machine is closed or taken. The transport wakes `cx`, and is polled
    /// first if `must_poll` is true. A handle that queues a command wakes `command_waker`.
    pub(crate) fn run_until_idle(
        &mut self,
        cx: &mut Context<'_>,
        command_waker: &Waker,
        mut must_poll: bool,
    ) -> Poll<()> {
        let Some(machine) = &mut self.machine else {
            return Poll::Ready(());
        };
        let clock = self.clock.get_or_insert_with(Clock::start);
        Scratch::with(|scratch| {
            let (mut bytes, mut is_due) = (0, true);
            let origin = clock.origin;
            let read_clock = || since(origin);
            loop {
                let now = Now::new(&read_clock);
                for _ in 0..MAX_INPUTS {
                    if !must_poll {
                        break;
                    }
                    match machine.poll_input(cx, &now, &mut scratch.read_buf) {
                        Poll::Pending => must_poll = false,
                        Poll::Ready(len) => {
                            is_due = true;
                            bytes += len;
                        }
                    }
                    if bytes >= READ_LIMIT {
                        break;
                    }
                }
                if !is_due && clock.poll_deadline(cx, machine.poll_timeout()).is_pending() {
                    return Poll::Pending;
                }
                must_poll |= machine.turn(*now, &mut scratch.write_buf);
                if machine.is_closed() {
                    return Poll::Ready(());
                }
                if bytes >= READ_LIMIT {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                is_due = machine.register_waker(command_waker);
            }
        })
    }
}

/// Feeds the next input of a transport. Returns its number of stream bytes: the caller caps them, so that one busy peer cannot starve the others.
pub(crate) fn feed_input<'r>(
    transport: &mut impl Transport,
    cx: &mut Context<'_>,
    reads: bool,
    buffer: &'r mut [u8],
    feed: impl FnOnce(Epoch, Input<'r>),
) -> Poll<usize> {
    transport
        .poll_input(cx, reads, buffer)
        .map(|(epoch, input)| {
            let bytes = match &input {
                Input::Bytes { bytes, .. } | Input::Stderr { bytes } => bytes.len(),
                _ => 0,
            };
            feed(epoch, input);
            bytes
        })
}

/// Tracks what the transport does in a turn, and whether it must be polled for results.
#[derive(Default)]
pub(crate) struct TurnEffects {
    must_poll: bool,
    /// The number of bytes that are queued and not written.
    unsent: usize,
}

impl TurnEffects {
    pub(crate) fn perform<H: Transport>(
        &mut self,
        transport: &mut H,
        output: Output<Infallible>,
        bytes: &[u8],
    ) {
        if H::WRITES && matches!(output, Output::Write { .. }) {
            self.unsent += bytes.len();
        } else {
            self.must_poll = true;
        }
        transport.perform(output, bytes);
    }

    pub(crate) fn write(
        &mut self,
        transport: &mut impl Transport,
    ) -> Option<(Epoch, Input<'static>)> {
        let result = transport.write()?;
        if let Input::Sent { len, .. } = result.1 {
            self.unsent = self.unsent.saturating_sub(len);
        }
        Some(result)
    }

    pub(crate) const fn must_poll_transport(&self) -> bool {
        self.must_poll || self.unsent > 0
    }
}

/// Buffers that are needed only during a turn. Each thread has one, however many links it drives.
struct Scratch {
    /// For bytes that are read.
    read_buf: Box<[u8]>,
    /// For bytes to write.
    write_buf: Vec<u8>,
}

thread_local! {
    static SCRATCH: Cell<Option<Scratch>> = const { Cell::new(None) };
}

impl Scratch {
    fn with<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
        let mut scratch = SCRATCH.take().unwrap_or_else(|| Scratch {
            read_buf: vec![0; READ_LIMIT].into(),
            write_buf: Vec::new(),
        });
        let done = work(&mut scratch);
        scratch.write_buf.shrink_to(MAX_KEPT_BUFFER);
        SCRATCH.set(Some(scratch));
        done
    }
}

pub(crate) struct ClientLoop<H> {
    owner: LinkOwner,
    transport: H,
    /// Whether input was wanted at the last poll of the transport.
    reads: bool,
}

impl<H> ClientLoop<H> {
    pub(crate) const fn new(owner: LinkOwner, transport: H) -> ClientLoop<H> {
        ClientLoop {
            owner,
            transport,
            reads: false,
        }
    }
}

impl<H: Transport> DrivenMachine for ClientLoop<H> {
    type EndValue = ();

    fn register_waker(&self, driver: &Waker) -> bool {
        self.owner.register_waker(driver)
    }

    #[cfg(any(unix, feature = "http-client"))]
    fn allows_inline_turn(&self) -> bool {
        self.owner.allows_inline_turn() && self.transport.allows_inline_turn()
    }

    fn turn(&mut self, now: Instant, buf: &mut Vec<u8>) -> bool {
        self.owner.advance(now);
        let mut effects = TurnEffects::default();
        loop {
            while let Some(output) = self.owner.poll_output(buf) {
                effects.perform(&mut self.transport, output, buf);
                buf.clear();
            }
            match effects.write(&mut self.transport) {
                Some((epoch, input)) => self.owner.handle(now, epoch, input),
                None => return effects.must_poll_transport() || !self.reads,
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.owner.is_closed()
    }

    fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        now: &Now<'_>,
        buffer: &mut [u8],
    ) -> Poll<usize> {
        self.reads = self.owner.wants_input(StreamId::DUPLEX);
        feed_input(
            &mut self.transport,
            cx,
            self.reads,
            buffer,
            |epoch, input| {
                self.owner.handle(**now, epoch, input);
            },
        )
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.owner.poll_timeout()
    }

    fn end(self) {
        // Drop the transport before the owner, so that a caller that waits for the end finds it closed.
        drop(self.transport);
        drop(self.owner);
    }
}

struct ServerLoop<H, A> {
    owner: ServiceOwner,
    transport: H,
    handlers: HandlerRunner<A>,
    /// Whether input was wanted at the last poll of the transport.
    reads: bool,
}

/// Runs the handlers of requests.
struct HandlerRunner<A> {
    handler: Arc<A>,
    /// Whether the runtime has one thread. Set at the first task.
    is_single_threaded: Option<bool>,
    /// The number of handlers started in this turn, and the time at which the second one started.
    started_in_turn: (usize, Option<TokioInstant>),
}

impl<A: Handler> HandlerRunner<A> {
    /// Starts the handler of a request. On a runtime with one thread, nothing else can run until the handler waits. So it starts here, and most
    /// handlers also end here.
    fn begin(&mut self, now: Instant, task: Task, owner: &mut ServiceOwner) {
        let is_single_threaded = *self.is_single_threaded.get_or_insert_with(|| {
            Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread
        });
        // Boxed, because the future is moved about six times before it runs.
        let mut running = Box::pin(run_task(task, Arc::clone(&self.handler)));
        if is_single_threaded && self.has_time_left() {
            // If it is pending, it is polled again as a task, whose waker can wake it.
            let mut noop = Context::from_waker(Waker::noop());
            let begin = AssertUnwindSafe(|| running.as_mut().poll(&mut noop));
            match catch_unwind(begin) {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(None)) => return,
                Ok(Poll::Ready(Some((answer, outcome)))) => {
                    return owner.respond(now, answer, outcome);
                }
                // Dropping the future sends an error reply to the client.
                Err(_) => return,
            }
        }
        tokio::spawn(async move {
            if let Some((answer, outcome)) = running.await {
                answer.respond(outcome);
            }
        });
    }

    /// Whether the handlers started in this turn have taken less than [`HANDLER_TIME`], so that other tasks need not wait.
    fn has_time_left(&mut self) -> bool {
        let (count, since) = &mut self.started_in_turn;
        *count += 1;
        *count == 1 || since.get_or_insert_with(TokioInstant::now).elapsed() < HANDLER_TIME
    }
}

impl<H: Transport, A: Handler> DrivenMachine for ServerLoop<H, A> {
    type EndValue = ServiceOwner;

    fn register_waker(&self, driver: &Waker) -> bool {
        self.owner.register_waker(driver)
    }

    fn turn(&mut self, now: Instant, buf: &mut Vec<u8>) -> bool {
        self.handlers.started_in_turn = (0, None);
        self.owner.advance(now);
        let mut effects = TurnEffects::default();
        loop {
            while let Some(output) = self.owner.poll_output(buf) {
                let for_transport = output.and_then_event(|task| {
                    self.handlers.begin(now, task, &mut self.owner);
                    None
                });
                if let Some(output) = for_transport {
                    effects.perform(&mut self.transport, output, buf);
                }
                buf.clear();
            }
            match effects.write(&mut self.transport) {
                Some((_, input)) => self.owner.handle(now, input),
                None => return effects.must_poll_transport() || !self.reads,
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.owner.is_closed()
    }

    fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        now: &Now<'_>,
        buffer: &mut [u8],
    ) -> Poll<usize> {
        self.reads = self.owner.wants_input(StreamId::DUPLEX);
        feed_input(&mut self.transport, cx, self.reads, buffer, |_, input| {
            self.owner.handle(**now, input);
        })
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.owner.poll_timeout()
    }

    fn end(self) -> ServiceOwner {
        self.owner
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
async fn run_task(
    task: Task,
    handler: Arc<impl Handler>,
) -> Option<(Answer, Result<Response, ErrorObject>)> {
    let Task {
        request,
        context,
        answer,
    } = task;
    let mut cancelled = std::pin::pin!(context.cancelled());
    let mut answered = std::pin::pin!(handler.answer(request, context));
    let outcome = poll_fn(|cx| match answered.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending => cancelled.as_mut().poll(cx).map(|()| None),
    });
    let outcome = outcome.await?;
    Some((answer, outcome))
}
