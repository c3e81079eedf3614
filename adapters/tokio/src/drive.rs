//! The loops that drive a machine: do what it says, sleep until it is due, tell it what happened. Knows no transport: that is for hands.

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

/// As much is read at once. Others have their turn before more is: what they make of it is on its way while the rest is read, and so both
/// ends of a link are at work at the same time.
const ROOM: usize = 4 << 10;
/// As much of the buffer for bytes that are written is kept from one turn to the next.
const BUFFER: usize = 64 << 10;
/// So much is heard before the machine has its turn again, however much there is.
const BATCH: usize = 32;

/// So long requests are answered in one turn of their server, on a runtime of one thread.
const PATIENCE: Duration = Duration::from_micros(200);

/// What carries the transports of one machine, at either end.
///
/// Hands do what they are told and report what they see. They know no machine, so that whoever drives one of another kind, such as a
/// [`Relay`](everlink::Relay) with its two sides, can use them too. To drop them is to cut all that they hold.
pub trait Hands: Send {
    /// Carries out one output, without waiting: what comes of it is heard later. `bytes` are those that belong to it.
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]);

    /// Whether what is to be written is written by [`write`](Hands::write).
    const WRITES: bool = false;

    /// Writes all that is to be written, as far as there is room for it now, and says what came of that. The rest is written when there is room.
    fn write(&mut self) -> Option<(Epoch, Input<'static>)> {
        None
    }

    /// What happened next, and to which transport; at a server's end there is only [`Epoch::FIRST`]. While `reads` is false, nothing is
    /// read from the other side, and only what comes of earlier outputs is reported. What is read from a stream is put into `room`, so
    /// that hands which hear nothing hold no memory for it.
    fn poll_heard<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        room: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)>;

    /// Whether who wakes the driver of these hands may take its turn at once. Not where somebody does so while they hold a lock that hands need, too.
    fn lets_others_drive(&self) -> bool {
        true
    }
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
        since(self.origin)
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

/// What time it is, once it was looked at.
pub(crate) type Now<'a> = LazyCell<Instant, &'a dyn Fn() -> Instant>;

fn since(origin: Moment) -> Instant {
    Instant::from_origin(origin.elapsed())
}

/// Lets the present runtime drive something.
pub(crate) fn start(driver: impl Future<Output: Send> + Send + 'static) -> io::Result<()> {
    let runtime = Handle::try_current().map_err(io::Error::other)?;
    drop(runtime.spawn(driver));
    Ok(())
}

/// Drives a link to its end, for who has set up its owner.
pub fn drive(owner: LinkOwner, hands: impl Hands) -> impl Future<Output = ()> + Send {
    Driver::new(Linked::new(owner, hands))
}

/// Drives a server until it is closed, with a task of its own for each request. The owner is given back, to be dropped when nothing is left of
/// the transport.
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

/// A machine with its hands.
pub(crate) trait Driven {
    /// What there is when all is over and the hands are gone.
    type Left;

    /// Who is to be woken when a handle asks for something. Returns whether one did already.
    fn belongs_to(&self, driver: &Waker) -> bool;

    /// Whether there is so little to do that anybody may do it.
    #[cfg(any(unix, feature = "http-client"))]
    fn is_light(&self) -> bool {
        false
    }

    /// Does what handles ask for, says the time, and carries out all that the machine says to that. Returns whether hands may have something
    /// to tell of it, for which they are to be polled.
    fn turn(&mut self, now: Instant, buf: &mut Vec<u8>) -> bool;

    fn is_closed(&self) -> bool;

    /// Tells the machine what its hands hear next. Returns how many bytes that were.
    fn poll_heard(&mut self, cx: &mut Context<'_>, now: &Now<'_>, room: &mut [u8]) -> Poll<usize>;

    fn poll_timeout(&self) -> Option<Deadline>;

    /// Lets go of the transport.
    fn end(self) -> Self::Left;
}

/// The one loop: all that is to be heard, a turn, and again, as what was done may be heard of at once; or sleep.
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

    /// Gives up what is driven, to be ended. Nobody is to be woken for it any more.
    pub(crate) fn take(&mut self) -> Option<D> {
        self.clock = None;
        self.driven.take()
    }

    /// Drives as far as it goes. It is ready when the machine is closed, or gone. Hands wake `cx`, and where it `is_news` they may have something to
    /// tell; whoever asks for something wakes the `owner`.
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

/// Tells what hands hear next. Returns how many bytes of a stream that were, of whichever: who shouts leaves others their turns, too.
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

/// What hands do in a turn, and whether they may have something to tell of it, for which they are to be polled.
#[derive(Default)]
pub(crate) struct Deeds {
    is_news: bool,
    /// So much was to be written and is not.
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

pub(crate) struct Linked<H> {
    owner: LinkOwner,
    hands: H,
    /// Input was wanted when hands were polled.
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
        // What is left of the transport goes before whoever waits for the end hears of it.
        drop(self.hands);
        drop(self.owner);
    }
}

struct Served<H, A> {
    owner: ServiceOwner,
    hands: H,
    desk: Desk<A>,
    /// Input was wanted when hands were polled.
    reads: bool,
}

/// Where requests are answered.
struct Desk<A> {
    handler: Arc<A>,
    /// Whether the runtime has one thread. Known from the first task on.
    is_alone: Option<bool>,
    /// How many began here in this turn, and since when there was more than one.
    here: (usize, Option<Moment>),
}

impl<A: Handler> Desk<A> {
    /// Answers a request. Where the runtime has but this thread, nobody else could do anything until the handler waits for something: so it begins
    /// here, and most of them end here, too.
    fn begin(&mut self, now: Instant, task: Task, owner: &mut ServiceOwner) {
        let is_alone = *self.is_alone.get_or_insert_with(|| {
            Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread
        });
        // In a box: on its way to where it runs, a task is moved half a dozen times.
        let mut running = Box::pin(run(task, Arc::clone(&self.handler)));
        if is_alone && self.is_quick() {
            // Where it waits, it is polled again as a task, by whom it can be woken.
            let mut nobody = Context::from_waker(Waker::noop());
            let begin = AssertUnwindSafe(|| running.as_mut().poll(&mut nobody));
            match catch_unwind(begin) {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(None)) => return,
                Ok(Poll::Ready(Some((answer, outcome)))) => {
                    return owner.respond(now, answer, outcome);
                }
                // What is dropped tells the client that the server failed.
                Err(_) => return,
            }
        }
        tokio::spawn(async move {
            if let Some((answer, outcome)) = running.await {
                answer.respond(outcome);
            }
        });
    }

    /// Whether all that began here in this turn did not take so long that others should have their turn.
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

/// What answers the requests of a server: an `async` function of the request and its context. It returns a result
/// ([`Payload`](everlink::Payload)), what it needs first ([`InputRequired`](everlink::server::InputRequired)), or a [`Response`] where it is now
/// one and now the other.
///
/// It runs as a task of its own for each request, on a runtime with one thread from where it first waits for something, and is dropped where it waits
/// when the answer is not wanted any more. Where it panics, the client is told that the server failed.
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

/// Runs a task to its answer, or until that is not wanted any more.
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
