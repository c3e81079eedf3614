//! The one owner of a relay: carries out what handles ask, tells them what happened, and leaves both transports to its driver.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::Waker;

use everlink::relay::{Event, Side};
use everlink::{Deadline, Epoch, Input, Instant, Output, Relay, StreamId};

use crate::asked::Upkeep;
use crate::events::Listeners;
use crate::mailbox::{Duty, Inbox};
use crate::record::{Recorder, Recording};

/// A relay with its handles, as a driver owns it.
///
/// As with a [`LinkOwner`](crate::LinkOwner), a driver does as the contract of the core says, calls [`serve`](GuardOwner::serve) at each turn,
/// and drops it last of all. No event comes out of [`poll_output`](GuardOwner::poll_output).
pub struct GuardOwner {
    relay: Relay,
    /// When the driver last said what time it is.
    now: Instant,
    listeners: Arc<Listeners<Event>>,
    recording: Recording<Upkeep, Event>,
    /// Last, so that whoever waits for the end is told when all else is gone.
    inbox: Inbox<Relay, Upkeep>,
}

impl GuardOwner {
    pub(super) fn new(
        relay: Relay,
        inbox: Inbox<Relay, Upkeep>,
        listeners: Arc<Listeners<Event>>,
    ) -> GuardOwner {
        GuardOwner {
            relay,
            now: Instant::ZERO,
            listeners,
            recording: None,
            inbox,
        }
    }

    /// Has every step from now on written down. From the beginning, if it is to be told again.
    pub fn record(&mut self, recorder: impl Recorder<Upkeep, Event> + 'static) {
        self.recording = Some(Box::new(recorder));
    }

    /// The machine, to look at.
    #[must_use]
    pub const fn relay(&self) -> &Relay {
        &self.relay
    }

    /// Who is to be woken when a handle asks for something. Returns whether one did already.
    #[must_use = "what is there already wakes nobody"]
    pub fn belongs_to(&self, driver: &Waker) -> bool {
        self.inbox.belongs_to(driver)
    }

    /// Carries out what handles asked for, and says the time. Poll all outputs afterwards.
    pub fn serve(&mut self, now: Instant) {
        self.now = now;
        self.inbox.fetch();
        while let Some(duty) = self.inbox.read() {
            match duty {
                Duty::Errand(upkeep) => {
                    if let Some(recorder) = &mut self.recording {
                        recorder.asked(now, &upkeep);
                    }
                    let settles = upkeep.settles();
                    upkeep.of_relay(&mut self.relay, now);
                    settles.into_iter().for_each(|it| self.listeners.settle(it));
                }
                Duty::Verb(verb) => verb(&mut self.relay, now),
            }
        }
        if let Some(recorder) = &mut self.recording {
            recorder.timed(now);
        }
        self.relay.handle_timeout(now);
    }

    /// Something happened to the transport of the client in front; see [`Relay::handle_downstream`].
    pub fn handle_downstream(&mut self, now: Instant, input: Input<'_>) {
        self.heard(now, Side::Downstream, Epoch::FIRST, &input);
        self.relay.handle_downstream(now, input);
    }

    /// Something happened to the transport `epoch` of the server behind; see [`Relay::handle_upstream`].
    pub fn handle_upstream(&mut self, now: Instant, epoch: Epoch, input: Input<'_>) {
        self.heard(now, Side::Upstream, epoch, &input);
        self.relay.handle_upstream(now, epoch, input);
    }

    fn heard(&mut self, now: Instant, side: Side, epoch: Epoch, input: &Input<'_>) {
        self.now = now;
        if let Some(recorder) = &mut self.recording {
            recorder.heard(now, side, epoch, input);
        }
    }

    /// What the driver must do next, and on which side; see [`Relay::poll_output`].
    #[must_use = "an output that is not carried out is lost"]
    pub fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<(Side, Output<Infallible>)> {
        loop {
            let start = buf.len();
            let polled = self.relay.poll_output(buf);
            if let Some(recorder) = &mut self.recording {
                let output = polled.as_ref().map(|(side, output)| (*side, output));
                recorder.polled(output, &buf[start..]);
            }
            let (side, output) = polled?;
            let for_driver = output.and_then_event(|event| {
                self.listeners.tell(self.now, event);
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
