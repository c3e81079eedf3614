//! A relay between a downstream client and an upstream server, over any two transports. Makes no decisions.

use std::future::Future;
use std::io;
use std::task::{Context, Poll, Waker};

use everlink::relay::{Config, Side};
use everlink::{Deadline, Instant};
use everlink_handle::{Guard, GuardOwner};

use crate::drive::{Deeds, Driven, Driver, Hands, Now, hear, start};

/// Starts a relay between a downstream client and an upstream server, driven by a task on the present runtime.
///
/// The `front` transport is [`stdio::Streams`](crate::stdio::Streams) or an [`http::Front`](crate::http::Front). The `back` transport is
/// [`child::Children`](crate::child::Children) or [`http::Exchanges`](crate::http::Exchanges). The config must match both.
///
/// # Errors
///
/// Outside a runtime.
pub fn relay(
    config: Config,
    front: impl Hands + 'static,
    back: impl Hands + 'static,
) -> io::Result<Guard> {
    let (guard, owner) = Guard::new(config);
    start(drive_relay(owner, front, back))?;
    Ok(guard)
}

/// Drives a relay to its end, for applications that create its owner themselves.
pub fn drive_relay(
    owner: GuardOwner,
    front: impl Hands,
    back: impl Hands,
) -> impl Future<Output = ()> + Send {
    Driver::new(Relayed {
        owner,
        front,
        back,
        reads: false,
    })
}

struct Relayed<F, B> {
    owner: GuardOwner,
    front: F,
    back: B,
    /// Whether input was wanted from both sides at their last poll.
    reads: bool,
}

impl<F: Hands, B: Hands> Driven for Relayed<F, B> {
    type Left = ();

    fn belongs_to(&self, driver: &Waker) -> bool {
        self.owner.belongs_to(driver)
    }

    fn turn(&mut self, now: Instant, buf: &mut Vec<u8>) -> bool {
        self.owner.serve(now);
        let mut deeds = Deeds::default();
        loop {
            while let Some((side, output)) = self.owner.poll_output(buf) {
                if side == Side::Downstream {
                    deeds.perform(&mut self.front, output, buf);
                } else {
                    deeds.perform(&mut self.back, output, buf);
                }
                buf.clear();
            }
            let back = deeds.write(&mut self.back);
            let front = deeds.write(&mut self.front);
            if back.is_none() && front.is_none() {
                return deeds.are_news() || !self.reads;
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

    fn poll_heard(&mut self, cx: &mut Context<'_>, now: &Now<'_>, room: &mut [u8]) -> Poll<usize> {
        let reads = self.owner.wants_input(Side::Upstream);
        self.reads = reads;
        let back = hear(&mut self.back, cx, reads, room, |epoch, input| {
            self.owner.handle_upstream(**now, epoch, input);
        });
        let reads = self.owner.wants_input(Side::Downstream);
        self.reads &= reads;
        let front = hear(&mut self.front, cx, reads, room, |_, input| {
            self.owner.handle_downstream(**now, input);
        });
        match (back, front) {
            (Poll::Ready(back), Poll::Ready(front)) => Poll::Ready(back + front),
            (Poll::Pending, told) | (told, Poll::Pending) => told,
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
