//! The loops that drive a machine: do what it says, sleep until it is due, tell it what happened. Knows no transport: that is for hands.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use everlink::server::Request;
use everlink::{Deadline, Epoch, ErrorObject, Input, Instant, Output, StreamId};
use everlink_handle::{LinkOwner, Response, ServiceOwner, Task};
use tokio::runtime::Handle;
use tokio::time::{Instant as Moment, Sleep, sleep_until};

/// As much is read at once. Others have their turn before more is: what they make of it is on its way while the rest is read, and so both
/// ends of a link are at work at the same time.
const ROOM: usize = 4 << 10;
/// As much of the buffer for bytes that are written is kept from one turn to the next.
const BUFFER: usize = 64 << 10;
/// So much is heard before the machine has its turn again, however much there is.
const BATCH: usize = 32;

/// What carries the transports of one machine, at either end.
///
/// Hands do what they are told and report what they see. They know no machine, so that whoever drives one of another kind, such as a
/// [`Relay`](everlink::Relay) with its two sides, can use them too. To drop them is to cut all that they hold.
pub trait Hands: Send {
    /// Carries out one output, without waiting: what comes of it is heard later. `bytes` are those that belong to it.
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]);

    /// What happened next, and to which transport; at a server's end there is only [`Epoch::FIRST`]. While `reads` is false, nothing is
    /// read from the other side, and only what comes of earlier outputs is reported. What is read from a stream is put into `room`, so
    /// that hands which hear nothing hold no memory for it.
    fn poll_heard<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        room: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)>;
}

/// The time as a machine is told it, and the sleep until the machine is due.
pub struct Clock {
    origin: Moment,
    sleep: Pin<Box<Sleep>>,
}

impl Clock {
    /// One that starts now. Only inside a runtime.
    #[must_use]
    pub fn start() -> Clock {
        let origin = Moment::now();
        Clock {
            origin,
            sleep: Box::pin(sleep_until(origin)),
        }
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_origin(self.origin.elapsed())
    }

    /// Waits for something, but no longer than until `due`; `None` says that this time has come.
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

/// Lets the present runtime drive something.
pub(crate) fn start(driver: impl Future<Output: Send> + Send + 'static) -> io::Result<()> {
    let runtime = Handle::try_current().map_err(io::Error::other)?;
    drop(runtime.spawn(driver));
    Ok(())
}

/// Drives a link to its end, for who has set up its owner.
pub fn drive(owner: LinkOwner, hands: impl Hands) -> impl Future<Output = ()> + Send {
    Driver::new(Linked { owner, hands })
}

/// Drives a server until it is closed, with a task of its own for each request. The owner is given back, to be dropped when nothing is left of
/// the transport.
pub(crate) fn serve(
    owner: ServiceOwner,
    hands: impl Hands,
    handler: impl Handler,
) -> impl Future<Output = ServiceOwner> + Send {
    let handler = Arc::new(handler);
    Driver::new(Served {
        owner,
        hands,
        handler,
    })
}

/// A machine with its hands.
pub(crate) trait Driven {
    /// What there is when all is over and the hands are gone.
    type Left;

    /// Who is to be woken when a handle asks for something. Returns whether one did already.
    fn belongs_to(&self, driver: &Waker) -> bool;

    /// Does what handles ask for, says the time, and carries out all that the machine says to that.
    fn turn(&mut self, now: Instant, buf: &mut Vec<u8>);

    fn is_closed(&self) -> bool;

    /// Tells the machine what its hands hear next. Returns how many bytes that were.
    fn poll_heard(&mut self, cx: &mut Context<'_>, now: Instant, room: &mut [u8]) -> Poll<usize>;

    fn poll_timeout(&self) -> Option<Deadline>;

    /// Lets go of the transport.
    fn end(self) -> Self::Left;
}

/// The one loop: a turn, all that is to be heard by then, and again; or sleep.
///
/// A future made by hand: one that is written with `async` holds what it was made of twice.
pub(crate) struct Driver<D> {
    /// Nothing after its end.
    driven: Option<D>,
    /// From the first turn on: before, there need be no runtime.
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

/// Nothing in it is ever pinned where it is.
impl<D> Unpin for Driver<D> {}

impl<D: Driven> Future for Driver<D> {
    type Output = D::Left;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<D::Left> {
        let Driver { driven, clock } = self.get_mut();
        let clock = clock.get_or_insert_with(Clock::start);
        let ended = Scratch::with(|scratch| {
            let Some(driven) = driven else {
                return Poll::Pending;
            };
            let mut bytes = 0;
            loop {
                let now = clock.now();
                driven.turn(now, &mut scratch.buf);
                if driven.is_closed() {
                    return Poll::Ready(());
                }
                if bytes >= ROOM {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let mut is_due = driven.belongs_to(cx.waker());
                for _ in 0..BATCH {
                    let Poll::Ready(heard) = driven.poll_heard(cx, now, &mut scratch.room) else {
                        break;
                    };
                    is_due = true;
                    bytes += heard;
                    if bytes >= ROOM {
                        break;
                    }
                }
                if !is_due && clock.poll_due(cx, driven.poll_timeout()).is_pending() {
                    return Poll::Pending;
                }
            }
        });
        match driven.take_if(|_| ended.is_ready()) {
            Some(driven) => Poll::Ready(driven.end()),
            None => Poll::Pending,
        }
    }
}

/// Tells what hands hear next. Returns how many bytes of a stream that were.
pub(crate) fn hear<'r>(
    hands: &mut impl Hands,
    cx: &mut Context<'_>,
    reads: bool,
    room: &'r mut [u8],
    tell: impl FnOnce(Epoch, Input<'r>),
) -> Poll<usize> {
    hands.poll_heard(cx, reads, room).map(|(epoch, input)| {
        let bytes = if let Input::Bytes { bytes, .. } = &input {
            bytes.len()
        } else {
            0
        };
        tell(epoch, input);
        bytes
    })
}

/// What is needed for a turn, and between two by nobody: each thread has one, however many links it drives.
struct Scratch {
    /// For what is read.
    room: Box<[u8]>,
    /// For what is written.
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

struct Linked<H> {
    owner: LinkOwner,
    hands: H,
}

impl<H: Hands> Driven for Linked<H> {
    type Left = ();

    fn belongs_to(&self, driver: &Waker) -> bool {
        self.owner.belongs_to(driver)
    }

    fn turn(&mut self, now: Instant, buf: &mut Vec<u8>) {
        self.owner.serve(now);
        while let Some(output) = self.owner.poll_output(buf) {
            self.hands.perform(output, buf);
            buf.clear();
        }
    }

    fn is_closed(&self) -> bool {
        self.owner.is_closed()
    }

    fn poll_heard(&mut self, cx: &mut Context<'_>, now: Instant, room: &mut [u8]) -> Poll<usize> {
        let reads = self.owner.wants_input(StreamId::DUPLEX);
        hear(&mut self.hands, cx, reads, room, |epoch, input| {
            self.owner.handle(now, epoch, input);
        })
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.owner.poll_timeout()
    }

    fn end(self) {
        // What is left of the transport goes before whoever waits for the end hears of it.
        drop(self.hands);
        drop(self.owner);
    }
}

struct Served<H, A> {
    owner: ServiceOwner,
    hands: H,
    handler: Arc<A>,
}

impl<H: Hands, A: Handler> Driven for Served<H, A> {
    type Left = ServiceOwner;

    fn belongs_to(&self, driver: &Waker) -> bool {
        self.owner.belongs_to(driver)
    }

    fn turn(&mut self, now: Instant, buf: &mut Vec<u8>) {
        self.owner.serve(now);
        while let Some(output) = self.owner.poll_output(buf) {
            let for_hands = output.and_then_event(|task| {
                // In a box: on its way to where it runs, a task is moved half a dozen times.
                tokio::spawn(Box::pin(run(task, Arc::clone(&self.handler))));
                None
            });
            if let Some(output) = for_hands {
                self.hands.perform(output, buf);
            }
            buf.clear();
        }
    }

    fn is_closed(&self) -> bool {
        self.owner.is_closed()
    }

    fn poll_heard(&mut self, cx: &mut Context<'_>, now: Instant, room: &mut [u8]) -> Poll<usize> {
        let reads = self.owner.wants_input(StreamId::DUPLEX);
        hear(&mut self.hands, cx, reads, room, |_, input| {
            self.owner.handle(now, input);
        })
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.owner.poll_timeout()
    }

    fn end(self) -> ServiceOwner {
        self.owner
    }
}

/// What answers the requests of a server: an `async` function of the request and its context. It returns a result
/// ([`Payload`](everlink::Payload)), what it needs first ([`InputRequired`](everlink::server::InputRequired)), or a [`Response`] where it is now
/// one and now the other.
///
/// It runs as a task of its own for each request, and is dropped where it waits when the answer is not wanted any more. Where it panics, the client
/// is told that the server failed.
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

async fn run(task: Task, handler: Arc<impl Handler>) {
    let Task {
        request,
        context,
        answer,
    } = task;
    let mut unwanted = std::pin::pin!(context.cancelled());
    let mut answered = std::pin::pin!(handler.answer(request, context.clone()));
    let outcome = poll_fn(|cx| match answered.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending => unwanted.as_mut().poll(cx).map(|()| None),
    });
    if let Some(outcome) = outcome.await {
        answer.respond(outcome);
    }
}
