//! The owner of a client machine: runs the commands of handles and delivers events and results. The driver does the I/O.

use std::convert::Infallible;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use everlink::client::{Ask, Client, Event, Misuse, Session, State};
use everlink::protocol::code;
use everlink::relay::Side;
use everlink::{AskId, CallId, Deadline, Epoch, ErrorObject, Input, Instant, Output, StreamId};

use super::ask::{AskHandler, OpenAsk};
use super::call::{CallError, Caller, Progress, caller_result};
use super::link::{NotReady, OwnerCommand, Published, Snapshot};
use crate::command_queue::{Command, CommandReceiver};
use crate::commands::{ClientCommand, LinkCommand};
use crate::events::Subject;
use crate::id_map::IdMap;
use crate::promise::{Promise, add_waiter};
use crate::record::{OptionalRecorder, Recorder};
use crate::sync::{lock, wake};
use crate::trace::ConnectionSpan;

/// A client machine and its command queue, as a driver owns them.
///
/// A driver follows the contract of the core, with two additions. It calls [`advance`](LinkOwner::advance) at each turn of its loop, which runs the
/// queued commands and sets the time. It registers its waker with [`register_waker`](LinkOwner::register_waker), which is woken when a command is
/// queued. [`poll_output`](LinkOwner::poll_output) never returns an event: the owner delivers events to listeners and callers.
///
/// When [`is_closed`](LinkOwner::is_closed) is true and no output is left to carry out, the driver frees everything else and then drops the owner.
/// The drop completes the future of `shutdown`. Dropped earlier, the owner fails every call in flight.
pub struct LinkOwner {
    client: Client,
    /// The time that the driver reported last.
    now: Instant,
    published: Arc<Published>,
    /// The state and the epoch that are published.
    last_published: (State, Epoch),
    /// The callers that wait, by call.
    callers: IdMap<CallId, Caller>,
    /// The wakers of callers whose calls are done. They are woken together, because waking one may take longer than polling the next output.
    done_wakers: Vec<Waker>,
    /// The callers of `ready` that wait for a reply.
    ready_waiters: Vec<Promise<Arc<Session>, NotReady>>,
    /// The function that answers asks.
    ask_handler: Option<AskHandler>,
    /// The open asks of the time without such a function.
    unhandled_asks: Vec<Ask>,
    /// The id of the last process that was started.
    pid: Option<u32>,
    connection_span: ConnectionSpan,
    recorder: OptionalRecorder<ClientCommand, Event>,
    /// Declared last, so that it is dropped last: a caller that waits for the end learns of it after everything else is freed.
    receiver: CommandReceiver<Client, OwnerCommand>,
}

impl LinkOwner {
    pub(crate) fn new(
        client: Client,
        receiver: CommandReceiver<Client, OwnerCommand>,
        published: Arc<Published>,
    ) -> LinkOwner {
        let last_published = (client.state(), client.epoch());
        LinkOwner {
            client,
            now: Instant::ZERO,
            published,
            last_published,
            callers: IdMap::default(),
            done_wakers: Vec::new(),
            ready_waiters: Vec::new(),
            ask_handler: None,
            unhandled_asks: Vec::new(),
            pid: None,
            connection_span: ConnectionSpan::none(),
            recorder: None,
            receiver,
        }
    }

    /// Records every step from now on. A recording can be replayed only if it starts before the first step.
    pub fn record(&mut self, recorder: impl Recorder<ClientCommand, Event> + 'static) {
        self.recorder = Some(Box::new(recorder));
    }

    /// Returns the machine, for reading.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Registers the driver's waker. Returns true if commands are already queued, because those do not wake it.
    #[must_use = "commands that are already queued do not wake the driver"]
    pub fn register_waker(&self, driver: &Waker) -> bool {
        self.receiver.register_waker(driver)
    }

    /// Sets the id of the server's process. The driver does so before it reports that the transport is open.
    pub const fn set_pid(&mut self, pid: Option<u32>) {
        self.pid = pid;
    }

    /// Runs the queued commands and sets the time. The driver polls all outputs afterwards.
    pub fn advance(&mut self, now: Instant) {
        self.now = now;
        // Publish the present state before commands run, so that a caller that is answered here finds it published.
        self.publish_state();
        self.receiver.fetch();
        while let Some(command) = self.receiver.next_command() {
            match command {
                Command::ForOwner(command) => self.run_command(now, command),
                Command::ForMachine(function) => function(&mut self.client, now),
            }
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.on_timeout(now);
        }
        self.client.handle_timeout(now);
    }

    /// Reports an input of the transport `epoch`; see [`Client::handle`].
    pub fn handle(&mut self, now: Instant, epoch: Epoch, input: Input<'_>) {
        self.now = now;
        if let Some(recorder) = &mut self.recorder {
            recorder.on_input(now, Side::Upstream, epoch, &input);
        }
        self.client.handle(now, epoch, input);
    }

    /// Returns the next output for the driver; see [`Client::poll_output`].
    #[must_use = "an output that is not carried out is lost"]
    pub fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<Output<Infallible>> {
        // Publish the state before any event, so that a listener of an event also sees the state that it announces.
        self.publish_state();
        loop {
            let start = buf.len();
            let output = self.client.poll_output(buf);
            if let Some(recorder) = &mut self.recorder {
                let output = output.as_ref().map(|output| (Side::Upstream, output));
                recorder.on_poll(output, &buf[start..]);
            }
            let Some(output) = output else {
                self.done_wakers.drain(..).for_each(wake);
                return None;
            };
            let for_driver = output.and_then_event(|event| {
                self.deliver(event);
                None
            });
            if for_driver.is_some() {
                return for_driver;
            }
        }
    }

    /// Returns when to call [`advance`](LinkOwner::advance) next; see [`Client::poll_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        self.client.poll_timeout()
    }

    /// Whether the driver should read more; see [`Client::wants_input`].
    #[must_use]
    pub fn wants_input(&self, stream: StreamId) -> bool {
        self.client.wants_input(stream)
    }

    /// Whether the link is closed for good.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.client.state() == State::Closed
    }

    fn run_command(&mut self, now: Instant, command: OwnerCommand) {
        match command {
            OwnerCommand::Run(command) => {
                let ask = command.answered_ask();
                if let (Err(misuse), Some(ask)) = (self.apply(now, command), ask) {
                    self.refuse_ask(now, ask, &misuse);
                }
            }
            OwnerCommand::RunAndReport(command, promise) => {
                promise.resolve(self.apply(now, command).map(drop))
            }
            OwnerCommand::Call(command, call) => {
                let accepted = self.apply(now, command);
                self.register_call(accepted, call);
            }
            OwnerCommand::Cancel { call, reason } => {
                if let Some(call) = call.with_shared(|state| state.id) {
                    // The call may be done by now; the error is harmless.
                    let _ = self.apply(now, ClientCommand::Cancel { call, reason });
                }
            }
            OwnerCommand::OnAsk(handler) => {
                self.ask_handler = Some(handler);
                for ask in mem::take(&mut self.unhandled_asks) {
                    self.pass_ask(ask);
                }
            }
            OwnerCommand::Ready(promise) => {
                let _ = self.apply(now, ClientCommand::Link(LinkCommand::Connect));
                add_waiter(&mut self.ready_waiters, promise);
                self.publish_state();
                // A link that is still parked has only scheduled its attempt. It parks again if that fails, and the caller is answered then.
                if self.client.state() != State::Parked {
                    self.answer_ready_waiters();
                }
            }
        }
    }

    fn apply(&mut self, now: Instant, command: ClientCommand) -> Result<Option<CallId>, Misuse> {
        if let Some(recorder) = &mut self.recorder {
            recorder.on_command(now, &command);
        }
        let settles = command.settles();
        let result = command.apply(&mut self.client, now);
        if let (Some(subject), Ok(_)) = (settles, &result) {
            self.published.listeners.settle(subject);
            if let Subject::Ask(ask) = subject {
                self.forget_ask(ask);
            }
        }
        result
    }

    /// Refuses an ask whose answer cannot be sent. The handler does not learn of it, and the server would wait in vain.
    fn refuse_ask(&mut self, now: Instant, ask: AskId, misuse: &Misuse) {
        if !matches!(misuse, Misuse::Closed | Misuse::UnknownAsk) {
            let text = format!("the client's answer cannot be sent: {misuse}");
            let answer = Err(ErrorObject::new(code::INTERNAL_ERROR, text));
            let _ = self.apply(now, ClientCommand::Answer { ask, answer });
        }
    }

    /// Passes an ask to the function that answers asks, or keeps it until there is one.
    fn pass_ask(&mut self, ask: Ask) {
        let Some(handler) = &mut self.ask_handler else {
            self.unhandled_asks.push(ask);
            return;
        };
        let ask = OpenAsk::new(ask, Arc::clone(self.receiver.queue()));
        // If the function panics, the ask is dropped, which answers it. The link goes on.
        let _ = catch_unwind(AssertUnwindSafe(|| handler(ask)));
    }

    fn forget_ask(&mut self, ask: AskId) {
        self.unhandled_asks.retain(|open| open.ask != ask);
    }

    fn register_call(&mut self, accepted: Result<Option<CallId>, Misuse>, call: Caller) {
        match accepted {
            Ok(id) => {
                if let Some(id) = id {
                    call.accepted(id);
                    self.callers.insert(id, call);
                }
            }
            Err(misuse) => {
                self.publish_state();
                call.settle(Err(CallError::Misuse(misuse)));
            }
        }
    }

    fn deliver(&mut self, event: Event) {
        match event {
            Event::Done { call, outcome } => {
                if let Some(caller) = self.callers.remove(&call) {
                    self.done_wakers
                        .extend(caller.settle_without_waking(caller_result(outcome)));
                }
            }
            Event::Progress {
                call,
                progress,
                total,
                message,
            } => {
                if let Some(caller) = self.callers.get(&call) {
                    let report = Progress {
                        progress,
                        total,
                        message,
                    };
                    caller.report(report);
                }
            }
            event => {
                self.connection_span.report(&event);
                let asked = match &event {
                    Event::Ask(ask) => Some(ask.clone()),
                    Event::AskWithdrawn { ask, .. } => {
                        self.forget_ask(*ask);
                        None
                    }
                    _ => None,
                };
                self.published.listeners.publish(self.now, event);
                if let Some(ask) = asked {
                    self.pass_ask(ask);
                }
            }
        }
    }

    /// Publishes the machine's state if it changed.
    fn publish_state(&mut self) {
        let current = (self.client.state(), self.client.epoch());
        if self.last_published != current {
            self.last_published = current;
            *lock(&self.published.snapshot) = Snapshot::of(&self.client, self.pid);
            self.answer_ready_waiters();
        }
    }

    fn answer_ready_waiters(&mut self) {
        let answer = match (self.client.state(), self.client.session()) {
            (State::Ready, Some(session)) => Ok(Arc::clone(session)),
            (state @ (State::Parked | State::Closed), _) => Err(NotReady {
                state,
                last_end: self.client.last_end().cloned(),
            }),
            _ => return,
        };
        for promise in mem::take(&mut self.ready_waiters) {
            promise.resolve(answer.clone());
        }
    }
}

/// Publishes a closed state, and fails or drops every command and call that is left.
impl Drop for LinkOwner {
    fn drop(&mut self) {
        {
            let mut snapshot = lock(&self.published.snapshot);
            snapshot.state = State::Closed;
            snapshot.session = None;
            snapshot.pid = None;
        }
        self.receiver.close();
        self.done_wakers.drain(..).for_each(wake);
        self.callers.clear();
        self.published.listeners.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use everlink::Config;

    use crate::client::link::Link;

    #[test]
    fn those_who_no_longer_wait_for_a_ready_link_are_dropped() {
        let (link, mut owner) = Link::new(Config::child("ready", "1.0"));
        let waits = link.ready();
        for _ in 0..10_000 {
            drop(link.ready());
            owner.advance(Instant::ZERO);
        }
        let waiters = owner.ready_waiters.len();
        assert!(waiters < 10, "{waiters}");
        drop(owner);
        let not_ready = waits.wait().expect_err("the link is closed");
        assert_eq!(not_ready.state, State::Closed);
    }
}
