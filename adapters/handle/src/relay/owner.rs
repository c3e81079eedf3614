//! The one owner of a relay: carries out what handles ask, tells them what happened, and leaves both transports to its driver.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::Waker;

use everlink::relay::{Event, Side};
use everlink::{Deadline, Epoch, Input, Instant, Output, Relay, StreamId};

use crate::events::Listeners;
use crate::mailbox::{Duty, Inbox};

/// A relay with its handles, as a driver owns it.
///
/// As with a [`LinkOwner`](crate::LinkOwner), a driver does as the contract of the core says, calls [`serve`](GuardOwner::serve) at each turn,
/// and drops it last of all. No event comes out of [`poll_output`](GuardOwner::poll_output).
pub struct GuardOwner {
    relay: Relay,
    listeners: Arc<Listeners<Event>>,
    /// Last, so that whoever waits for the end is told when all else is gone.
    inbox: Inbox<Relay, Infallible>,
}

impl GuardOwner {
    pub(super) fn new(
        relay: Relay,
        inbox: Inbox<Relay, Infallible>,
        listeners: Arc<Listeners<Event>>,
    ) -> GuardOwner {
        GuardOwner {
            relay,
            listeners,
            inbox,
        }
    }

    /// Who is to be woken when a handle asks for something. Returns whether one did already.
    #[must_use = "what is there already wakes nobody"]
    pub fn belongs_to(&self, driver: &Waker) -> bool {
        self.inbox.belongs_to(driver)
    }

    /// Carries out what handles asked for, and says the time. Poll all outputs afterwards.
    pub fn serve(&mut self, now: Instant) {
        self.inbox.fetch();
        while let Some(duty) = self.inbox.read() {
            match duty {
                Duty::Errand(never) => match never {},
                Duty::Verb(verb) => verb(&mut self.relay, now),
            }
        }
        self.relay.handle_timeout(now);
    }

    /// Something happened to the transport of the client in front; see [`Relay::handle_downstream`].
    pub fn handle_downstream(&mut self, now: Instant, input: Input<'_>) {
        self.relay.handle_downstream(now, input);
    }

    /// Something happened to the transport `epoch` of the server behind; see [`Relay::handle_upstream`].
    pub fn handle_upstream(&mut self, now: Instant, epoch: Epoch, input: Input<'_>) {
        self.relay.handle_upstream(now, epoch, input);
    }

    /// What the driver must do next, and on which side; see [`Relay::poll_output`].
    #[must_use = "an output that is not carried out is lost"]
    pub fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<(Side, Output<Infallible>)> {
        loop {
            let (side, output) = self.relay.poll_output(buf)?;
            let for_driver = output.and_then_event(|event| {
                self.listeners.tell(event);
                None
            });
            if let Some(output) = for_driver {
                return Some((side, output));
            }
        }
    }

    /// When to come back; see [`Relay::poll_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        self.relay.poll_timeout()
    }

    /// Whether to go on reading from this side; see [`Relay::wants_input`].
    #[must_use]
    pub fn wants_input(&self, side: Side) -> bool {
        self.relay.wants_input(side, StreamId::DUPLEX)
    }

    /// Whether both sides are closed for good.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.relay.is_closed()
    }
}

/// What nobody will carry out any more is said to be so.
impl Drop for GuardOwner {
    fn drop(&mut self) {
        self.inbox.close();
        self.listeners.end();
    }
}
