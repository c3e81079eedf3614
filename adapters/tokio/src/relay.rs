//! A relay between a downstream client and an upstream server, over any two transports. Makes no decisions.

use std::future::Future;
use std::io;
use std::task::{Context, Poll, Waker};

use everlink::relay::{Config, Side};
use everlink::{Deadline, Instant};
use everlink_handle::{Guard, GuardOwner};

use crate::drive::{DrivenMachine, Driver, Now, Transport, TurnEffects, feed_input, start};

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

/// Drives a relay to its end, for applications that create its owner themselves.
pub fn drive_relay(
    owner: GuardOwner,
    front: impl Transport,
    back: impl Transport,
) -> impl Future<Output = ()> + Send {
    Driver::new(RelayLoop {
        owner,
        front,
        back,
        reads: false,
    })
}

struct RelayLoop<F, B> {
    owner: GuardOwner,
    front: F,
    back: B,
    /// Whether input was wanted from both sides at their last poll.
    reads: bool,
}

impl<F: Transport, B: Transport> DrivenMachine for RelayLoop<F, B> {
    type EndValue = ();

    fn register_waker(&self, driver: &Waker) -> bool {
        self.owner.register_waker(driver)
    }

    fn turn(&mut self, now: Instant, buf: &mut Vec<u8>) -> bool {
        self.owner.advance(now);
        let mut effects = TurnEffects::default();
        loop {
            while let Some((side, output)) = self.owner.poll_output(buf) {
                if side == Side::Downstream {
                    effects.perform(&mut self.front, output, buf);
                } else {
                    effects.perform(&mut self.back, output, buf);
                }
                buf.clear();
            }
            let back = effects.write(&mut self.back);
            let front = effects.write(&mut self.front);
            if back.is_none() && front.is_none() {
                return effects.must_poll_transport() || !self.reads;
            }
            if let Some((epoch, input)) = back {
                self.owner.handle_upstream(now, epoch, input);
            }
            if let Some((_, input)) = front {
                self.owner.handle_downstream(now, input);
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
        let reads = self.owner.wants_input(Side::Upstream);
        self.reads = reads;
        let back = feed_input(&mut self.back, cx, reads, buffer, |epoch, input| {
            self.owner.handle_upstream(**now, epoch, input);
        });
        let reads = self.owner.wants_input(Side::Downstream);
        self.reads &= reads;
        let front = feed_input(&mut self.front, cx, reads, buffer, |_, input| {
            self.owner.handle_downstream(**now, input);
        });
        match (back, front) {
            (Poll::Ready(back), Poll::Ready(front)) => Poll::Ready(back + front),
            (Poll::Pending, polled) | (polled, Poll::Pending) => polled,
        }
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.owner.poll_timeout()
    }

    fn end(self) {
        // Drop the transports before the owner, so that a caller that waits for the end finds them closed.
        drop((self.front, self.back));
        drop(self.owner);
    }
}
