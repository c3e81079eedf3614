//! The driver of a machine as a future: it carries out outputs, feeds inputs and sleeps until the next deadline. Does not depend on a runtime:
//! transports and the clock bring theirs.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use everlink::relay::Side;
use everlink::{Deadline, Epoch, ErrorObject, Input, Instant, Output, StreamId};

use crate::transport::{Clock, NoTransport, Transport};
use crate::{Answer, GuardOwner, LinkOwner, Response, ServiceOwner, Task};

/// The number of bytes after which the driver yields. The peer can process them while the rest is read, so that both ends of a link work at the same
/// time.
const READ_LIMIT: usize = 4 << 10;
/// The capacity of the write buffer that is kept from one turn to the next.
const MAX_KEPT_BUFFER: usize = 64 << 10;
/// The maximum number of inputs between two turns of the machine.
const MAX_INPUTS: usize = 32;

/// Drives a link until it is closed. Then the transport is dropped, and after it the owner, which completes
/// [`Link::shutdown`](crate::Link::shutdown).
pub fn drive<T: Transport, C: Clock>(
    owner: LinkOwner,
    transport: T,
    clock: C,
) -> impl Future<Output = ()> + Send {
    Driver::new(owner, NoTransport, transport, clock)
}

/// Drives a relay until it is closed, with a transport to the client and one to the server.
pub fn drive_relay<F: Transport, B: Transport, C: Clock>(
    owner: GuardOwner,
    front: F,
    back: B,
    clock: C,
) -> impl Future<Output = ()> + Send {
    Driver::new(owner, front, back, clock)
}

/// Drives a server until it is closed. `begin` starts the handler of a request, at the time of the driver's present turn. It must not
/// block; it returns the answer if the handler has already given it.
///
/// The future returns the owner when its transport is dropped. Dropping the owner completes [`Service::closed`](crate::Service::closed).
pub fn drive_server<T: Transport, C: Clock>(
    owner: ServiceOwner,
    transport: T,
    clock: C,
    begin: impl FnMut(Instant, Task) -> Option<Answered> + Send,
) -> impl Future<Output = ServiceOwner> + Send {
    let machine = ServerWithHandler { owner, begin };
    Driver::new(machine, transport, NoTransport, clock)
}

/// An answer and what it says, for [`ServiceOwner::respond`].
pub type Answered = (Answer, Result<Response, ErrorObject>);

/// A machine, as the driver sees it.
trait Machine {
    /// The result of the driver.
    type End;

    /// Registers the driver's waker. Returns true if commands are already queued.
    fn register_waker(&self, driver: &Waker) -> bool;

    /// Runs the queued commands and sets the time.
    fn advance(&mut self, now: Instant);

    fn poll_output(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<(Side, Output<Infallible>)>;

    fn handle(&mut self, now: Instant, side: Side, epoch: Epoch, input: Input<'_>);

    /// Sets the id of the process of the transport that has opened.
    fn set_pid(&mut self, _: Option<u32>) {}

    fn wants_input(&self, side: Side) -> bool;

    fn poll_timeout(&self) -> Option<Deadline>;

    fn is_closed(&self) -> bool;

    /// Ends the machine, when its transports are dropped.
    fn end(self) -> Self::End;
}

/// The driver of a machine with up to two transports. It is written by hand, because an `async` block would hold its arguments twice.
struct Driver<F, B, M, C> {
    /// `None` after the end.
    parts: Option<Parts<F, B, M>>,
    clock: C,
}

/// A machine with its transports. Fields are dropped in this order, so that a caller that waits for the end finds the transports closed.
struct Parts<F, B, M> {
    /// The transport to the client.
    front: F,
    /// The transport to the server.
    back: B,
    machine: M,
}

impl<F, B, M, C> Driver<F, B, M, C> {
    const fn new(machine: M, front: F, back: B, clock: C) -> Driver<F, B, M, C> {
        let parts = Some(Parts {
            front,
            back,
            machine,
        });
        Driver { parts, clock }
    }
}

/// No field is pinned in place.
impl<F, B, M, C> Unpin for Driver<F, B, M, C> {}

impl<F: Transport, B: Transport, M: Machine, C: Clock> Future for Driver<F, B, M, C> {
    type Output = M::End;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<M::End> {
        let Driver { parts, clock } = self.get_mut();
        let is_closed = parts
            .as_mut()
            .is_some_and(|parts| Buffers::with(|buffers| parts.run(cx, clock, buffers)).is_ready());
        match parts.take_if(|_| is_closed) {
            Some(Parts {
                front,
                back,
                machine,
            }) => {
                drop((front, back));
                Poll::Ready(machine.end())
            }
            None => Poll::Pending,
        }
    }
}

impl<F: Transport, B: Transport, M: Machine> Parts<F, B, M> {
    /// Feeds inputs and carries out outputs until there is nothing to do. Returns `Ready` when the machine is closed.
    fn run(
        &mut self,
        cx: &mut Context<'_>,
        clock: &mut impl Clock,
        buffers: &mut Buffers,
    ) -> Poll<()> {
        let (mut bytes, mut is_due) = (0, true);
        loop {
            let now = clock.now();
            for _ in 0..MAX_INPUTS {
                let Poll::Ready(len) = self.feed(cx, now, &mut buffers.read) else {
                    break;
                };
                is_due = true;
                bytes += len;
                if bytes >= READ_LIMIT {
                    break;
                }
            }
            if !is_due {
                let deadline = self.machine.poll_timeout().map(|deadline| deadline.at);
                if clock.poll_deadline(cx, deadline).is_pending() {
                    return Poll::Pending;
                }
            }
            self.carry_out(now, &mut buffers.write);
            if self.machine.is_closed() {
                return Poll::Ready(());
            }
            if bytes >= READ_LIMIT {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            // Go around once more, because outputs may have results at once.
            is_due = self.machine.register_waker(cx.waker());
        }
    }

    /// Advances the machine and carries out all its outputs.
    fn carry_out(&mut self, now: Instant, buf: &mut Vec<u8>) {
        self.machine.advance(now);
        while let Some((side, output)) = self.machine.poll_output(now, buf) {
            match side {
                Side::Downstream => self.front.perform(output, buf),
                _ => self.back.perform(output, buf),
            }
            buf.clear();
        }
    }

    /// Feeds the machine the next input of each side. Returns the number of bytes that were read.
    fn feed(&mut self, cx: &mut Context<'_>, now: Instant, buffer: &mut [u8]) -> Poll<usize> {
        let back = feed(
            &mut self.machine,
            &mut self.back,
            Side::Upstream,
            cx,
            now,
            buffer,
        );
        let front = feed(
            &mut self.machine,
            &mut self.front,
            Side::Downstream,
            cx,
            now,
            buffer,
        );
        match (back, front) {
            (Poll::Ready(back), Poll::Ready(front)) => Poll::Ready(back + front),
            (Poll::Pending, polled) | (polled, Poll::Pending) => polled,
        }
    }
}

/// Feeds a machine the next input of one side. Returns the number of bytes that were read from a stream.
fn feed(
    machine: &mut impl Machine,
    transport: &mut impl Transport,
    side: Side,
    cx: &mut Context<'_>,
    now: Instant,
    buffer: &mut [u8],
) -> Poll<usize> {
    let polled = transport.poll_input(cx, machine.wants_input(side), buffer);
    polled.map(|(epoch, input)| {
        let bytes = match &input {
            Input::Bytes { bytes, .. } | Input::Stderr { bytes } => bytes.len(),
            _ => 0,
        };
        if matches!(input, Input::Opened) {
            machine.set_pid(transport.pid());
        }
        machine.handle(now, side, epoch, input);
        bytes
    })
}

/// Buffers that are needed only while a driver runs. Each thread has one, however many machines it drives.
struct Buffers {
    read: Box<[u8]>,
    write: Vec<u8>,
}

thread_local! {
    static BUFFERS: Cell<Option<Buffers>> = const { Cell::new(None) };
}

impl Buffers {
    fn with<T>(work: impl FnOnce(&mut Buffers) -> T) -> T {
        let mut buffers = BUFFERS.take().unwrap_or_else(|| Buffers {
            read: vec![0; READ_LIMIT].into(),
            write: Vec::new(),
        });
        let done = work(&mut buffers);
        buffers.write.shrink_to(MAX_KEPT_BUFFER);
        BUFFERS.set(Some(buffers));
        done
    }
}

impl Machine for LinkOwner {
    type End = ();

    fn register_waker(&self, driver: &Waker) -> bool {
        LinkOwner::register_waker(self, driver)
    }

    fn advance(&mut self, now: Instant) {
        LinkOwner::advance(self, now);
    }

    fn poll_output(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<(Side, Output<Infallible>)> {
        LinkOwner::poll_output(self, buf).map(|output| (Side::Upstream, output))
    }

    fn handle(&mut self, now: Instant, _: Side, epoch: Epoch, input: Input<'_>) {
        LinkOwner::handle(self, now, epoch, input);
    }

    fn set_pid(&mut self, pid: Option<u32>) {
        LinkOwner::set_pid(self, pid);
    }

    fn wants_input(&self, _: Side) -> bool {
        LinkOwner::wants_input(self, StreamId::DUPLEX)
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        LinkOwner::poll_timeout(self)
    }

    fn is_closed(&self) -> bool {
        LinkOwner::is_closed(self)
    }

    fn end(self) {}
}

impl Machine for GuardOwner {
    type End = ();

    fn register_waker(&self, driver: &Waker) -> bool {
        GuardOwner::register_waker(self, driver)
    }

    fn advance(&mut self, now: Instant) {
        GuardOwner::advance(self, now);
    }

    fn poll_output(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<(Side, Output<Infallible>)> {
        GuardOwner::poll_output(self, buf)
    }

    fn handle(&mut self, now: Instant, side: Side, epoch: Epoch, input: Input<'_>) {
        match side {
            Side::Downstream => self.handle_downstream(now, input),
            _ => self.handle_upstream(now, epoch, input),
        }
    }

    fn wants_input(&self, side: Side) -> bool {
        GuardOwner::wants_input(self, side)
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        GuardOwner::poll_timeout(self)
    }

    fn is_closed(&self) -> bool {
        GuardOwner::is_closed(self)
    }

    fn end(self) {}
}

/// A server and the function that starts the handlers of its requests.
struct ServerWithHandler<B> {
    owner: ServiceOwner,
    begin: B,
}

impl<B: FnMut(Instant, Task) -> Option<Answered>> Machine for ServerWithHandler<B> {
    type End = ServiceOwner;

    fn register_waker(&self, driver: &Waker) -> bool {
        self.owner.register_waker(driver)
    }

    fn advance(&mut self, now: Instant) {
        self.owner.advance(now);
    }

    fn poll_output(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<(Side, Output<Infallible>)> {
        loop {
            let output = self.owner.poll_output(buf)?;
            let for_transport = output.and_then_event(|task| {
                if let Some((answer, outcome)) = (self.begin)(now, task) {
                    self.owner.respond(now, answer, outcome);
                }
                None
            });
            if let Some(output) = for_transport {
                return Some((Side::Downstream, output));
            }
        }
    }

    fn handle(&mut self, now: Instant, _: Side, _: Epoch, input: Input<'_>) {
        self.owner.handle(now, input);
    }

    fn wants_input(&self, _: Side) -> bool {
        self.owner.wants_input(StreamId::DUPLEX)
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.owner.poll_timeout()
    }

    fn is_closed(&self) -> bool {
        self.owner.is_closed()
    }

    fn end(self) -> ServiceOwner {
        self.owner
    }
}
