//! The loops that drive a machine: carry out its outputs, sleep until its deadline, feed its inputs. Knows no transport: that is behind [`Hands`].

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
use tokio::time::{Instant as Moment, Sleep, sleep_until};

/// The number of bytes after which the driver yields. The peer can process them while the rest is read, so that both ends of a link work at the same
/// time.
const ROOM: usize = 4 << 10;
/// The capacity of the write buffer that is kept from one turn to the next.
const BUFFER: usize = 64 << 10;
/// The maximum number of inputs between two turns of the machine.
const BATCH: usize = 32;

/// How long a server's turn may keep running handlers itself, on a runtime with one thread. Further handlers run as tasks.
const PATIENCE: Duration = Duration::from_micros(200);

/// The transport of one machine, at either end.
///
/// A transport carries out outputs and reports inputs. It knows no machine, so that the driver of another kind of machine, such as a
/// [`Relay`](everlink::Relay) with its two sides, can use it too. Dropping it closes everything that it holds.
pub trait Hands: Send {
    /// Carries out one output without waiting; its results are reported later. `bytes` are the bytes that belong to it.
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]);

    /// Whether [`write`](Hands::write) writes the queued bytes.
    const WRITES: bool = false;

    /// Writes the queued bytes as far as possible without blocking. Returns the result to report. The rest is written later.
    fn write(&mut self) -> Option<(Epoch, Input<'static>)> {
        None
    }

    /// Returns the next input and the epoch of its transport; at a server's end that is always [`Epoch::FIRST`]. While `reads` is false, nothing is
    /// read from the peer, and only results of earlier outputs are reported. Bytes that are read from a stream go into `room`, so that an idle
    /// transport holds no memory for them.
    fn poll_heard<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        room: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)>;

    /// Whether a thread that wakes the driver may run the driver's turn at once. False if that thread may hold a lock that the transport needs, too.
    fn lets_others_drive(&self) -> bool {
        true
    }
}

/// The clock of a machine, and the timer for its deadline.
pub struct Clock {
    origin: Moment,
    sleep: Pin<Box<Sleep>>,
}

impl Clock {
    /// Starts a clock. Only inside a runtime.
    #[must_use]
    pub fn start() -> Clock {
        let origin = Moment::now();
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

    /// Waits for something until `due` at the latest. Returns `None` when that time has come.
    pub async fn wait<T>(
        &mut self,
        due: Option<Deadline>,
        mut something: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Option<T> {
        poll_fn(|cx| match something(cx) {
            Poll::Ready(something) => Poll::Ready(Some(something)),
            Poll::Pending => self.poll_due(cx, due).map(|()| None),
        })
        .await
    }

    fn poll_due(&mut self, cx: &mut Context<'_>, due: Option<Deadline>) -> Poll<()> {
        let Some(due) = due else {
            return Poll::Pending;
        };
        let due = self.origin + Duration::from_nanos(due.at.as_nanos());
        if self.sleep.deadline() != due {
            self.sleep.as_mut().reset(due);
        }
        self.sleep.as_mut().poll(cx)
    }
}

/// The time of a turn, read from the clock at its first use.
pub(crate) type Now<'a> = LazyCell<Instant, &'a dyn Fn() -> Instant>;

fn since(origin: Moment) -> Instant {
    Instant::from_origin(origin.elapsed())
}

/// Spawns a driver on the present runtime.
pub(crate) fn start(driver: impl Future<Output: Send> + Send + 'static) -> io::Result<()> {
    let runtime = Handle::try_current().map_err(io::Error::other)?;
    drop(runtime.spawn(driver));
    Ok(())
}

/// Drives a link to its end, for applications that create its owner themselves.
pub fn drive(owner: LinkOwner, hands: impl Hands) -> impl Future<Output = ()> + Send {
    Driver::new(Linked::new(owner, hands))
}

/// Drives a server until it is closed, with a task per request. Returns the owner, which the caller drops when the transport is closed.
pub(crate) fn serve(
    owner: ServiceOwner,
    hands: impl Hands,
    handler: impl Handler,
) -> impl Future<Output = ServiceOwner> + Send {
    Driver::new(Served {
        owner,
        hands,
        desk: Desk {
            handler: Arc::new(handler),
            is_alone: None,
            here: (0, None),
        },
        reads: false,
    })
}

/// A machine with its transport.
pub(crate) trait Driven {
    /// The value that is left after the end, when the transport is dropped.
    type Left;

    /// Registers the driver's waker. Returns true if commands are already queued.
    fn belongs_to(&self, driver: &Waker) -> bool;

    /// Whether there is so little to do that any thread may run a turn.
    #[cfg(any(unix, feature = "http-client"))]
    fn is_light(&self) -> bool {
        false
    }

    /// Runs the queued commands, sets the time, and carries out all outputs. Returns whether the transport must be polled, because it may have
    /// results to report.
    fn turn(&mut self, now: Instant, buf: &mut Vec<u8>) -> bool;

    fn is_closed(&self) -> bool;

    /// Feeds the machine the next input of its transport. Returns the number of bytes in it.
    fn poll_heard(&mut self, cx: &mut Context<'_>, now: &Now<'_>, room: &mut [u8]) -> Poll<usize>;

    fn poll_timeout(&self) -> Option<Deadline>;

    /// Drops the transport.
    fn end(self) -> Self::Left;
}

/// The driver's loop: feed all inputs, run a turn, and repeat, because outputs may have immediate results. Otherwise sleep.
///
/// This future is written by hand, because an `async` block would hold its arguments twice.
pub(crate) struct Driver<D> {
    /// `None` after the end.
    driven: Option<D>,
    /// Set at the first turn, because no runtime is needed before.
    clock: Option<Clock>,
}

impl<D> Driver<D> {
    pub(crate) const fn new(driven: D) -> Driver<D> {
        Driver {
            driven: Some(driven),
            clock: None,
        }
    }
}

/// No field is pinned in place.
impl<D> Unpin for Driver<D> {}

impl<D: Driven> Future for Driver<D> {
    type Output = D::Left;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<D::Left> {
        let driver = self.get_mut();
        match driver.go_on(cx, cx.waker(), true) {
            Poll::Ready(()) => driver
                .take()
                .map_or(Poll::Pending, |it| Poll::Ready(it.end())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<D: Driven> Driver<D> {
    #[cfg(any(unix, feature = "http-client"))]
    pub(crate) const fn driven(&self) -> Option<&D> {
        self.driven.as_ref()
    }

    /// Takes the machine, to be ended, and drops the timer, so that it wakes nobody any more.
    pub(crate) fn take(&mut self) -> Option<D> {
        self.clock = None;
        self.driven.take()
    }

    /// Drives the machine until there is nothing to do. Returns `Ready` when the machine is closed or taken. The transport wakes `cx`, and is polled
    /// first if `is_news` is true. A handle that queues a command wakes `owner`.
    pub(crate) fn go_on(
        &mut self,
        cx: &mut Context<'_>,
        owner: &Waker,
        mut is_news: bool,
    ) -> Poll<()> {
        let Some(driven) = &mut self.driven else {
            return Poll::Ready(());
        };
        let clock = self.clock.get_or_insert_with(Clock::start);
        Scratch::with(|scratch| {
            let (mut bytes, mut is_due) = (0, true);
            let origin = clock.origin;
            let look = || since(origin);
            loop {
                let now = Now::new(&look);
                for _ in 0..BATCH {
                    if !is_news {
                        break;
                    }
                    match driven.poll_heard(cx, &now, &mut scratch.room) {
                        Poll::Pending => is_news = false,
                        Poll::Ready(heard) => {
                            is_due = true;
                            bytes += heard;
                        }
                    }
                    if bytes >= ROOM {
                        break;
                    }
                }
                if !is_due && clock.poll_due(cx, driven.poll_timeout()).is_pending() {
                    return Poll::Pending;
                }
                is_news |= driven.turn(*now, &mut scratch.buf);
                if driven.is_closed() {
                    return Poll::Ready(());
                }
                if bytes >= ROOM {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                is_due = driven.belongs_to(owner);
            }
        })
    }
}

/// Feeds the next input of a transport. Returns its number of stream bytes: the caller caps them, so that one busy peer cannot starve the others.
pub(crate) fn hear<'r>(
    hands: &mut impl Hands,
    cx: &mut Context<'_>,
    reads: bool,
    room: &'r mut [u8],
    tell: impl FnOnce(Epoch, Input<'r>),
) -> Poll<usize> {
    hands.poll_heard(cx, reads, room).map(|(epoch, input)| {
        let bytes = match &input {
            Input::Bytes { bytes, .. } | Input::Stderr { bytes } => bytes.len(),
            _ => 0,
        };
        tell(epoch, input);
        bytes
    })
}

/// Tracks what the transport does in a turn, and whether it must be polled for results.
#[derive(Default)]
pub(crate) struct Deeds {
    is_news: bool,
    /// The number of bytes that are queued and not written.
    unsent: usize,
}

impl Deeds {
    pub(crate) fn perform<H: Hands>(
        &mut self,
        hands: &mut H,
        output: Output<Infallible>,
        bytes: &[u8],
    ) {
        if H::WRITES && matches!(output, Output::Write { .. }) {
            self.unsent += bytes.len();
        } else {
            self.is_news = true;
        }
        hands.perform(output, bytes);
    }

    pub(crate) fn write(&mut self, hands: &mut impl Hands) -> Option<(Epoch, Input<'static>)> {
        let told = hands.write()?;
        if let Input::Sent { len, .. } = told.1 {
            self.unsent = self.unsent.saturating_sub(len);
        }
        Some(told)
    }

    pub(crate) const fn are_news(&self) -> bool {
        self.is_news || self.unsent > 0
    }
}

/// Buffers that are needed only during a turn. Each thread has one, however many links it drives.
struct Scratch {
    /// For bytes that are read.
    room: Box<[u8]>,
    /// For bytes to write.
    buf: Vec<u8>,
}

thread_local! {
    static SCRATCH: Cell<Option<Scratch>> = const { Cell::new(None) };
}

impl Scratch {
    fn with<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
        let mut scratch = SCRATCH.take().unwrap_or_else(|| Scratch {
            room: vec![0; ROOM].into(),
            buf: Vec::new(),
        });
        let done = work(&mut scratch);
        scratch.buf.shrink_to(BUFFER);
        SCRATCH.set(Some(scratch));
        done
    }
}

pub(crate) struct Linked<H> {
    owner: LinkOwner,
    hands: H,
    /// Whether input was wanted at the last poll of the transport.
    reads: bool,
}

impl<H> Linked<H> {
    pub(crate) const fn new(owner: LinkOwner, hands: H) -> Linked<H> {
        Linked {
            owner,
            hands,
            reads: false,
        }
    }
}

impl<H: Hands> Driven for Linked<H> {
    type Left = ();

    fn belongs_to(&self, driver: &Waker) -> bool {
        self.owner.belongs_to(driver)
    }

    #[cfg(any(unix, feature = "http-client"))]
    fn is_light(&self) -> bool {
        self.owner.is_light() && self.hands.lets_others_drive()
    }

    fn turn(&mut self, now: Instant, buf: &mut Vec<u8>) -> bool {
        self.owner.serve(now);
        let mut deeds = Deeds::default();
        loop {
            while let Some(output) = self.owner.poll_output(buf) {
                deeds.perform(&mut self.hands, output, buf);
                buf.clear();
            }
            match deeds.write(&mut self.hands) {
                Some((epoch, input)) => self.owner.handle(now, epoch, input),
                None => return deeds.are_news() || !self.reads,
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.owner.is_closed()
    }

    fn poll_heard(&mut self, cx: &mut Context<'_>, now: &Now<'_>, room: &mut [u8]) -> Poll<usize> {
        self.reads = self.owner.wants_input(StreamId::DUPLEX);
        hear(&mut self.hands, cx, self.reads, room, |epoch, input| {
            self.owner.handle(**now, epoch, input);
        })
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.owner.poll_timeout()
    }

    fn end(self) {
        // Drop the transport before the owner, so that a caller that waits for the end finds it closed.
        drop(self.hands);
        drop(self.owner);
    }
}

struct Served<H, A> {
    owner: ServiceOwner,
    hands: H,
    desk: Desk<A>,
    /// Whether input was wanted at the last poll of the transport.
    reads: bool,
}

/// Runs the handlers of requests.
struct Desk<A> {
    handler: Arc<A>,
    /// Whether the runtime has one thread. Set at the first task.
    is_alone: Option<bool>,
    /// The number of handlers started in this turn, and the time at which the second one started.
    here: (usize, Option<Moment>),
}

impl<A: Handler> Desk<A> {
    /// Starts the handler of a request. On a runtime with one thread, nothing else can run until the handler waits. So it starts here, and most
    /// handlers also end here.
    fn begin(&mut self, now: Instant, task: Task, owner: &mut ServiceOwner) {
        let is_alone = *self.is_alone.get_or_insert_with(|| {
            Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread
        });
        // Boxed, because the future is moved about six times before it runs.
        let mut running = Box::pin(run(task, Arc::clone(&self.handler)));
        if is_alone && self.is_quick() {
            // If it is pending, it is polled again as a task, whose waker can wake it.
            let mut nobody = Context::from_waker(Waker::noop());
            let begin = AssertUnwindSafe(|| running.as_mut().poll(&mut nobody));
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

    /// Whether the handlers started in this turn have taken less than [`PATIENCE`], so that other tasks need not wait.
    fn is_quick(&mut self) -> bool {
        let (begun, since) = &mut self.here;
        *begun += 1;
        *begun == 1 || since.get_or_insert_with(Moment::now).elapsed() < PATIENCE
    }
}

impl<H: Hands, A: Handler> Driven for Served<H, A> {
    type Left = ServiceOwner;

    fn belongs_to(&self, driver: &Waker) -> bool {
        self.owner.belongs_to(driver)
    }

    fn turn(&mut self, now: Instant, buf: &mut Vec<u8>) -> bool {
        self.desk.here = (0, None);
        self.owner.serve(now);
        let mut deeds = Deeds::default();
        loop {
            while let Some(output) = self.owner.poll_output(buf) {
                let for_hands = output.and_then_event(|task| {
                    self.desk.begin(now, task, &mut self.owner);
                    None
                });
                if let Some(output) = for_hands {
                    deeds.perform(&mut self.hands, output, buf);
                }
                buf.clear();
            }
            match deeds.write(&mut self.hands) {
                Some((_, input)) => self.owner.handle(now, input),
                None => return deeds.are_news() || !self.reads,
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.owner.is_closed()
    }

    fn poll_heard(&mut self, cx: &mut Context<'_>, now: &Now<'_>, room: &mut [u8]) -> Poll<usize> {
        self.reads = self.owner.wants_input(StreamId::DUPLEX);
        hear(&mut self.hands, cx, self.reads, room, |_, input| {
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
async fn run(
    task: Task,
    handler: Arc<impl Handler>,
) -> Option<(Answer, Result<Response, ErrorObject>)> {
    let Task {
        request,
        context,
        answer,
    } = task;
    let mut unwanted = std::pin::pin!(context.cancelled());
    let mut answered = std::pin::pin!(handler.answer(request, context));
    let outcome = poll_fn(|cx| match answered.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending => unwanted.as_mut().poll(cx).map(|()| None),
    });
    let outcome = outcome.await?;
    Some((answer, outcome))
}
