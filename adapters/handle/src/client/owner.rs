//! The one owner of a client machine: carries out what handles ask, tells them what happened, and leaves the transport to its driver.

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

/// A client machine with its handles, as a driver owns it.
///
/// A driver does as the contract of the core says, with two things added. It calls [`serve`](LinkOwner::serve) at each turn of its loop,
/// which carries out what handles asked for and says the time; and it lets itself be [woken](LinkOwner::belongs_to) when they do. Events
/// never come out of [`poll_output`](LinkOwner::poll_output): they are told to whom they concern.
///
/// When [`is_closed`](LinkOwner::is_closed) and nothing is left to carry out, the driver drops it last of all: that is when a
/// `shutdown` that is waited for is over. Dropped before, it fails what is under way.
pub struct LinkOwner {
    client: Client,
    /// When the driver last said what time it is.
    now: Instant,
    desk: Arc<Desk>,
    /// Where the machine stands as far as the desk says.
    shown: (State, Epoch),
    /// Who waits for which call.
    callers: ByNumber<CallId, Caller>,
    /// Whose calls are done and who is not woken yet: all of them at once, for to wake somebody may take longer than to find the next.
    done: Vec<Waker>,
    /// Who waits for the link to be ready.
    hopeful: Vec<Promise<Result<Arc<Session>, NotReady>>>,
    recording: Recording<Asked, Event>,
    /// Last, so that whoever waits for the end is told when all else is gone.
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

    /// Has every step from now on written down. From the beginning, if it is to be told again.
    pub fn record(&mut self, recorder: impl Recorder<Asked, Event> + 'static) {
        self.recording = Some(Box::new(recorder));
    }

    /// The machine, to look at.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Who is to be woken when a handle asks for something. Returns whether one did already.
    #[must_use = "what is there already wakes nobody"]
    pub fn belongs_to(&self, driver: &Waker) -> bool {
        self.inbox.belongs_to(driver)
    }

    /// Carries out what handles asked for, and says the time. Poll all outputs afterwards.
    pub fn serve(&mut self, now: Instant) {
        self.now = now;
        // Who asks now is answered as things stand now.
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

    /// Something happened to the transport `epoch`; see [`Client::handle`].
    pub fn handle(&mut self, now: Instant, epoch: Epoch, input: Input<'_>) {
        self.now = now;
        if let Some(recorder) = &mut self.recording {
            recorder.heard(now, Side::Upstream, epoch, &input);
        }
        self.client.handle(now, epoch, input);
    }

    /// What the driver must do next; see [`Client::poll_output`].
    #[must_use = "an output that is not carried out is lost"]
    pub fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<Output<Infallible>> {
        // Whoever hears of something finds that the state says so, too.
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

    /// When to come back; see [`Client::poll_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        self.client.poll_timeout()
    }

    /// Whether to go on reading; see [`Client::wants_input`].
    #[must_use]
    pub fn wants_input(&self, stream: StreamId) -> bool {
        self.client.wants_input(stream)
    }

    /// Whether no more than one call is under way and nobody records: what there is to do then is done soon, and runs nobody else's code. A driver
    /// may let whoever asks for something do it.
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
                    // It may be done by now, which is as well.
                    let _ = self.ask(now, Asked::Cancel { call, reason });
                }
            }
            Errand::Ready(promise) => {
                let _ = self.ask(now, Asked::Upkeep(Upkeep::Connect));
                self.hopeful.push(promise);
                self.lay_open();
                // A parked link looks for its server now, and parks again if that is in vain.
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

    /// Copies where the machine stands, if that is another place than before.
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

/// What nobody will carry out any more is said to be so.
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
