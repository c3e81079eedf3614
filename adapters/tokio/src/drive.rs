//! The loops that drive a machine: do what it says, sleep until it is due, tell it what happened. Knows no transport: that is for hands.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use everlink::server::Request;
use everlink::{Deadline, Epoch, ErrorObject, Input, Instant, Output, StreamId};
use everlink_handle::{LinkOwner, Response, ServiceOwner, Task};
use tokio::runtime::Handle;
use tokio::time::{Instant as Moment, Sleep, sleep_until};

/// As much of the buffer for bytes is kept from one output to the next.
const BUFFER: usize = 64 << 10;

/// What carries the transports of one machine, at either end.
///
/// Hands do what they are told and report what they see. They know no machine, so that whoever drives one of another kind, such as a
/// [`Relay`](everlink::Relay) with its two sides, can use them too. To drop them is to cut all that they hold.
pub trait Hands: Send {
    /// Carries out one output, without waiting: what comes of it is heard later. `bytes` are those that belong to it.
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]);

    /// What happened next, and to which transport; at a server's end there is only [`Epoch::FIRST`]. While `reads` is false, nothing is
    /// read from the other side, and only what comes of earlier outputs is reported.
    fn poll_heard(&mut self, cx: &mut Context<'_>, reads: bool) -> Poll<(Epoch, Input<'static>)>;
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
        let due = due.map(|due| self.origin + Duration::from_nanos(due.at.as_nanos()));
        poll_fn(|cx| {
            if let Poll::Ready(something) = something(cx) {
                return Poll::Ready(Some(something));
            }
            let Some(due) = due else {
                return Poll::Pending;
            };
            if self.sleep.deadline() != due {
                self.sleep.as_mut().reset(due);
            }
            self.sleep.as_mut().poll(cx).map(|()| None)
        })
        .await
    }
}

/// Lets the present runtime drive something.
pub(crate) fn start(driver: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    let runtime = Handle::try_current().map_err(io::Error::other)?;
    drop(runtime.spawn(driver));
    Ok(())
}

/// Drives a link to its end, for who has set up its owner.
pub async fn drive(mut owner: LinkOwner, mut hands: impl Hands) {
    let (mut clock, mut buf) = (Clock::start(), Vec::new());
    loop {
        owner.serve(clock.now());
        while let Some(output) = owner.poll_output(&mut buf) {
            hands.perform(output, &buf);
            clear(&mut buf);
        }
        if owner.is_closed() {
            // What is left of the transport goes before whoever waits for the end hears of it.
            return drop(hands);
        }
        let (due, reads) = (owner.poll_timeout(), owner.wants_input(StreamId::DUPLEX));
        let (asked, hands) = (&mut owner, &mut hands);
        let next = move |cx: &mut Context<'_>| {
            let is_asked = asked.belongs_to(cx.waker());
            heard_or(is_asked, hands.poll_heard(cx, reads))
        };
        if let Some(Some((epoch, input))) = clock.wait(due, next).await {
            owner.handle(clock.now(), epoch, input);
        }
    }
}

/// Drives a server until it is closed, with a task of its own for each request. The owner is given back, to be dropped when nothing is left of
/// the transport.
pub(crate) async fn serve(
    mut owner: ServiceOwner,
    mut hands: impl Hands,
    handler: impl Handler,
) -> ServiceOwner {
    let (mut clock, mut buf, handler) = (Clock::start(), Vec::new(), Arc::new(handler));
    loop {
        owner.serve(clock.now());
        while let Some(output) = owner.poll_output(&mut buf) {
            let for_hands = output.and_then_event(|task| {
                tokio::spawn(run(task, Arc::clone(&handler)));
                None
            });
            if let Some(output) = for_hands {
                hands.perform(output, &buf);
            }
            clear(&mut buf);
        }
        if owner.is_closed() {
            return owner;
        }
        let (due, reads) = (owner.poll_timeout(), owner.wants_input(StreamId::DUPLEX));
        let (asked, hands) = (&mut owner, &mut hands);
        let next = move |cx: &mut Context<'_>| {
            let is_asked = asked.belongs_to(cx.waker());
            heard_or(is_asked, hands.poll_heard(cx, reads))
        };
        if let Some(Some((_, input))) = clock.wait(due, next).await {
            owner.handle(clock.now(), input);
        }
    }
}

/// What hands heard; or nothing, but there are letters of handles.
pub(crate) fn heard_or<T>(is_asked: bool, heard: Poll<T>) -> Poll<Option<T>> {
    match heard {
        Poll::Pending if is_asked => Poll::Ready(None),
        heard => heard.map(Some),
    }
}

pub(crate) fn clear(buf: &mut Vec<u8>) {
    buf.clear();
    buf.shrink_to(BUFFER);
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
