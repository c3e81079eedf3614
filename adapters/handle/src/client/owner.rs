//! The owner of a client machine: runs the commands of handles and delivers events and results. The driver does the I/O.

use std::convert::Infallible;
use std::mem;
use std::sync::Arc;
use std::task::Waker;

use everlink::client::{Client, Event, Misuse, Session, State};
use everlink::relay::Side;
use everlink::{CallId, Deadline, Epoch, Input, Instant, Output, StreamId};

use super::call::{CallError, Caller, Progress, settled};
use super::link::{Desk, Errand, NotReady, Standing};
use crate::asked::{Asked, Upkeep};
use crate::mailbox::{Duty, Inbox};
use crate::numbers::ByNumber;
use crate::promise::{Promise, lock};
use crate::record::{Recorder, Recording};
use crate::wakers::wake;

/// A client machine and its command queue, as a driver owns them.
///
/// A driver follows the contract of the core, with two additions. It calls [`serve`](LinkOwner::serve) at each turn of its loop, which runs the
/// queued commands and sets the time. It registers its waker with [`belongs_to`](LinkOwner::belongs_to), which is woken when a command is queued.
/// [`poll_output`](LinkOwner::poll_output) never returns an event: the owner delivers events to listeners and callers.
///
/// When [`is_closed`](LinkOwner::is_closed) is true and no output is left to carry out, the driver frees everything else and then drops the owner.
/// The drop completes the future of `shutdown`. Dropped earlier, the owner fails every call in flight.
pub struct LinkOwner {
    client: Client,
    /// The time that the driver reported last.
    now: Instant,
    desk: Arc<Desk>,
    /// The state and the epoch that are published.
    shown: (State, Epoch),
    /// The callers that wait, by call.
    callers: ByNumber<CallId, Caller>,
    /// The wakers of callers whose calls are done. They are woken together, because waking one may take longer than polling the next output.
    done: Vec<Waker>,
    /// The callers of `ready` that wait for a reply.
    hopeful: Vec<Promise<Result<Arc<Session>, NotReady>>>,
    recording: Recording<Asked, Event>,
    /// Declared last, so that it is dropped last: a caller that waits for the end learns of it after everything else is freed.
    inbox: Inbox<Client, Errand>,
}

impl LinkOwner {
    pub(crate) fn new(client: Client, inbox: Inbox<Client, Errand>, desk: Arc<Desk>) -> LinkOwner {
        let shown = (client.state(), client.epoch());
        LinkOwner {
            client,
            now: Instant::ZERO,
            desk,
            shown,
            callers: ByNumber::default(),
            done: Vec::new(),
            hopeful: Vec::new(),
            recording: None,
            inbox,
        }
    }

    /// Records every step from now on. A recording can be replayed only if it starts before the first step.
    pub fn record(&mut self, recorder: impl Recorder<Asked, Event> + 'static) {
        self.recording = Some(Box::new(recorder));
    }

    /// Returns the machine, for reading.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Registers the driver's waker. Returns true if commands are already queued, because those do not wake it.
    #[must_use = "what is there already wakes nobody"]
    pub fn belongs_to(&self, driver: &Waker) -> bool {
        self.inbox.belongs_to(driver)
    }

    /// Runs the queued commands and sets the time. The driver polls all outputs afterwards.
    pub fn serve(&mut self, now: Instant) {
        self.now = now;
        // Publish the present state before commands run, so that a caller that is answered here finds it published.
        self.lay_open();
        self.inbox.fetch();
        while let Some(duty) = self.inbox.read() {
            match duty {
                Duty::Errand(errand) => self.run(now, errand),
                Duty::Verb(verb) => verb(&mut self.client, now),
            }
        }
        if let Some(recorder) = &mut self.recording {
            recorder.timed(now);
        }
        self.client.handle_timeout(now);
    }

    /// Reports an input of the transport `epoch`; see [`Client::handle`].
    pub fn handle(&mut self, now: Instant, epoch: Epoch, input: Input<'_>) {
        self.now = now;
        if let Some(recorder) = &mut self.recording {
            recorder.heard(now, Side::Upstream, epoch, &input);
        }
        self.client.handle(now, epoch, input);
    }

    /// Returns the next output for the driver; see [`Client::poll_output`].
    #[must_use = "an output that is not carried out is lost"]
    pub fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<Output<Infallible>> {
        // Publish the state before any event, so that a listener of an event also sees the state that it announces.
        self.lay_open();
        loop {
            let start = buf.len();
            let output = self.client.poll_output(buf);
            if let Some(recorder) = &mut self.recording {
                let output = output.as_ref().map(|output| (Side::Upstream, output));
                recorder.polled(output, &buf[start..]);
            }
            let Some(output) = output else {
                self.done.drain(..).for_each(wake);
                return None;
            };
            let for_driver = output.and_then_event(|event| {
                self.tell(event);
                None
            });
            if for_driver.is_some() {
                return for_driver;
            }
        }
    }

    /// Returns when to call [`serve`](LinkOwner::serve) next; see [`Client::poll_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        self.client.poll_timeout()
    }

    /// Whether the driver should read more; see [`Client::wants_input`].
    #[must_use]
    pub fn wants_input(&self, stream: StreamId) -> bool {
        self.client.wants_input(stream)
    }

    /// Whether at most one call is in flight and no recorder is set. A step is then short and runs no foreign code, so a driver may let a caller run
    /// it on the caller's own thread.
    #[must_use]
    pub fn is_light(&self) -> bool {
        self.callers.len() <= 1 && self.recording.is_none()
    }

    /// Whether the link is closed for good.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.client.state() == State::Closed
    }

    fn run(&mut self, now: Instant, errand: Errand) {
        match errand {
            Errand::Ask(asked) => {
                let _ = self.ask(now, asked);
            }
            Errand::AskAndTell(asked, promise) => promise.keep(self.ask(now, asked).map(drop)),
            Errand::Call(asked, call) => {
                let accepted = self.ask(now, asked);
                self.accepted(accepted, call);
            }
            Errand::Cancel { call, reason } => {
                if let Some(call) = call.look(|underway| underway.id) {
                    // The call may be done by now; the error is harmless.
                    let _ = self.ask(now, Asked::Cancel { call, reason });
                }
            }
            Errand::Ready(promise) => {
                let _ = self.ask(now, Asked::Upkeep(Upkeep::Connect));
                self.hopeful.push(promise);
                self.lay_open();
                // A link that is still parked has only scheduled its attempt. It parks again if that fails, and the caller is answered then.
                if self.client.state() != State::Parked {
                    self.answer_the_hopeful();
                }
            }
        }
    }

    fn ask(&mut self, now: Instant, asked: Asked) -> Result<Option<CallId>, Misuse> {
        if let Some(recorder) = &mut self.recording {
            recorder.asked(now, &asked);
        }
        let settles = asked.settles();
        let done = asked.of(&mut self.client, now);
        if let (Some(subject), Ok(_)) = (settles, &done) {
            self.desk.listeners.settle(subject);
        }
        done
    }

    fn accepted(&mut self, accepted: Result<Option<CallId>, Misuse>, call: Caller) {
        match accepted {
            Ok(id) => {
                if let Some(id) = id {
                    call.accepted(id);
                    self.callers.insert(id, call);
                }
            }
            Err(misuse) => {
                self.lay_open();
                call.settle(Err(CallError::Misuse(misuse)));
            }
        }
    }

    fn tell(&mut self, event: Event) {
        match event {
            Event::Done { call, outcome } => {
                if let Some(caller) = self.callers.remove(&call) {
                    self.done.extend(caller.settle_quietly(settled(outcome)));
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
            event => self.desk.listeners.tell(self.now, event),
        }
    }

    /// Publishes the machine's state if it changed.
    fn lay_open(&mut self) {
        let place = (self.client.state(), self.client.epoch());
        if self.shown != place {
            self.shown = place;
            *lock(&self.desk.standing) = Standing::of(&self.client);
            self.answer_the_hopeful();
        }
    }

    fn answer_the_hopeful(&mut self) {
        let verdict = match self.client.state() {
            State::Ready => Ok(self.client.session().cloned()),
            state @ (State::Parked | State::Closed) => Err(NotReady {
                state,
                last_end: self.client.last_end().cloned(),
            }),
            _ => return,
        };
        for promise in mem::take(&mut self.hopeful) {
            match &verdict {
                Ok(Some(session)) => promise.keep(Ok(Arc::clone(session))),
                Ok(None) => {}
                Err(not_ready) => promise.keep(Err(not_ready.clone())),
            }
        }
    }
}

/// Publishes a closed state, and fails or drops every command and call that is left.
impl Drop for LinkOwner {
    fn drop(&mut self) {
        {
            let mut standing = lock(&self.desk.standing);
            standing.state = State::Closed;
            standing.session = None;
        }
        self.inbox.close();
        self.done.drain(..).for_each(wake);
        self.callers.clear();
        self.desk.listeners.end();
    }
}
