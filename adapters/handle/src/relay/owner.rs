//! The owner of a relay: runs the commands of handles and delivers events. The driver does the I/O of both transports.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::Waker;

use everlink::relay::{Event, Side};
use everlink::{Deadline, Epoch, Input, Instant, Output, Relay, StreamId};

use crate::command_queue::{Command, CommandReceiver};
use crate::commands::LinkCommand;
use crate::events::Listeners;
use crate::record::{OptionalRecorder, Recorder};

/// A function that sees each event.
type Observer = Box<dyn FnMut(Instant, &Event) + Send>;

/// A relay and its command queue, as a driver owns them.
///
/// As with a [`LinkOwner`](crate::LinkOwner), a driver follows the contract of the core, calls [`advance`](GuardOwner::advance) at each turn, and
/// drops the owner last. [`poll_output`](GuardOwner::poll_output) never returns an event.
pub struct GuardOwner {
    relay: Relay,
    /// The time that the driver reported last.
    now: Instant,
    listeners: Arc<Listeners<Event>>,
    recorder: OptionalRecorder<LinkCommand, Event>,
    observer: Option<Observer>,
    /// Declared last, so that it is dropped last: a caller that waits for the end learns of it after everything else is freed.
    receiver: CommandReceiver<Relay, LinkCommand>,
}

impl GuardOwner {
    pub(super) fn new(
        relay: Relay,
        receiver: CommandReceiver<Relay, LinkCommand>,
        listeners: Arc<Listeners<Event>>,
    ) -> GuardOwner {
        GuardOwner {
            relay,
            now: Instant::ZERO,
            listeners,
            recorder: None,
            observer: None,
            receiver,
        }
    }

    /// Records every step from now on. A recording can be replayed only if it starts before the first step.
    pub fn record(&mut self, recorder: impl Recorder<LinkCommand, Event> + 'static) {
        self.recorder = Some(Box::new(recorder));
    }

    /// Calls this function with each event and its time, before handles get the event. If there is one, handles get no [`Event::Traced`]: there is one
    /// for each request, and every listener would be woken for it.
    ///
    /// The driver calls it between two inputs, so a slow function delays the relay.
    pub fn observe(&mut self, observer: impl FnMut(Instant, &Event) + Send + 'static) {
        self.observer = Some(Box::new(observer));
    }

    /// Returns the machine, for reading.
    #[must_use]
    pub const fn relay(&self) -> &Relay {
        &self.relay
    }

    /// Registers the driver's waker. Returns true if commands are already queued, because those do not wake it.
    #[must_use = "commands that are already queued do not wake the driver"]
    pub fn register_waker(&self, driver: &Waker) -> bool {
        self.receiver.register_waker(driver)
    }

    /// Runs the queued commands and sets the time. The driver polls all outputs afterwards.
    pub fn advance(&mut self, now: Instant) {
        self.now = now;
        self.receiver.fetch();
        while let Some(command) = self.receiver.next_command() {
            match command {
                Command::ForOwner(command) => {
                    if let Some(recorder) = &mut self.recorder {
                        recorder.on_command(now, &command);
                    }
                    let settles = command.settles();
                    command.apply_to_relay(&mut self.relay, now);
                    settles.into_iter().for_each(|it| self.listeners.settle(it));
                }
                Command::ForMachine(function) => function(&mut self.relay, now),
            }
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.on_timeout(now);
        }
        self.relay.handle_timeout(now);
    }

    /// Reports an input of the downstream transport; see [`Relay::handle_downstream`].
    pub fn handle_downstream(&mut self, now: Instant, input: Input<'_>) {
        self.record_input(now, Side::Downstream, Epoch::FIRST, &input);
        self.relay.handle_downstream(now, input);
    }

    /// Reports an input of the upstream transport `epoch`; see [`Relay::handle_upstream`].
    pub fn handle_upstream(&mut self, now: Instant, epoch: Epoch, input: Input<'_>) {
        self.record_input(now, Side::Upstream, epoch, &input);
        self.relay.handle_upstream(now, epoch, input);
    }

    fn record_input(&mut self, now: Instant, side: Side, epoch: Epoch, input: &Input<'_>) {
        self.now = now;
        if let Some(recorder) = &mut self.recorder {
            recorder.on_input(now, side, epoch, input);
        }
    }

    /// Returns the next output for the driver, and its side; see [`Relay::poll_output`].
    #[must_use = "an output that is not carried out is lost"]
    pub fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<(Side, Output<Infallible>)> {
        loop {
            let start = buf.len();
            let polled = self.relay.poll_output(buf);
            if let Some(recorder) = &mut self.recorder {
                let output = polled.as_ref().map(|(side, output)| (*side, output));
                recorder.on_poll(output, &buf[start..]);
            }
            let (side, output) = polled?;
            let for_driver = output.and_then_event(|event| {
                let is_observed = self.observer.is_some();
                if let Some(observer) = &mut self.observer {
                    observer(self.now, &event);
                }
                if !(is_observed && matches!(event, Event::Traced(_))) {
                    self.listeners.publish(self.now, event);
                }
                None
            });
            if let Some(output) = for_driver {
                return Some((side, output));
            }
        }
    }

    /// Returns when to call [`advance`](GuardOwner::advance) next; see [`Relay::poll_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        self.relay.poll_timeout()
    }

    /// Whether the driver should read more from this side; see [`Relay::wants_input`].
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

/// Drops every queued command and ends all event streams.
impl Drop for GuardOwner {
    fn drop(&mut self) {
        self.receiver.close();
        self.listeners.close();
    }
}
