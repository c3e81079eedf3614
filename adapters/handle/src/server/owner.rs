//! The one owner of a server machine: carries out what handles ask, hands out requests, and leaves the transport to its driver.

use std::sync::Arc;
use std::task::Waker;

use everlink::server::{Event, State};
use everlink::{
    AskId, Deadline, ErrorObject, Input, Instant, Output, Payload, RequestId, Server, StreamId,
};

use super::service::{Conclusion, Desk, Errand, Service};
use super::task::{Answer, AskError, Flag, Response, Task, internal};
use crate::mailbox::{Duty, Inbox};
use crate::numbers::ByNumber;
use crate::promise::{Promise, lock};

/// A server machine with its handles, as a driver owns it.
///
/// As with a [`LinkOwner`](crate::LinkOwner), a driver does as the contract of the core says, calls [`serve`](ServiceOwner::serve) at each
/// turn, and drops it last of all. The one event that comes out of [`poll_output`](ServiceOwner::poll_output) is a [`Task`] to be run.
pub struct ServiceOwner {
    server: Server,
    /// When the driver last said what time it is.
    now: Instant,
    desk: Arc<Desk>,
    /// Where the machine stands as far as the desk says.
    shown: State,
    /// The requests that are not answered yet.
    running: ByNumber<RequestId, Arc<Flag>>,
    /// Who waits for the answer to which question.
    asked: ByNumber<AskId, Promise<Result<Payload, AskError>>>,
    /// Last, so that whoever waits for the end is told when all else is gone.
    inbox: Inbox<Server, Errand>,
}

impl ServiceOwner {
    pub(super) fn new(
        server: Server,
        inbox: Inbox<Server, Errand>,
        desk: Arc<Desk>,
    ) -> ServiceOwner {
        let shown = server.state();
        ServiceOwner {
            server,
            now: Instant::ZERO,
            desk,
            shown,
            running: ByNumber::default(),
            asked: ByNumber::default(),
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
        self.now = now;
        self.read_letters(now);
        self.server.handle_timeout(now);
    }

    /// Answers a request, as [`Answer::respond`] does, for a driver that runs tasks itself. Poll all outputs afterwards.
    pub fn respond(
        &mut self,
        now: Instant,
        answer: Answer,
        outcome: Result<Response, ErrorObject>,
    ) {
        // What was asked for on the way to the answer comes before it.
        self.read_letters(now);
        let (request, conclusion) = answer.into_conclusion(outcome);
        self.run(now, Errand::Conclude(request, conclusion));
    }

    fn read_letters(&mut self, now: Instant) {
        self.inbox.fetch();
        while let Some(duty) = self.inbox.read() {
            match duty {
                Duty::Errand(errand) => self.run(now, errand),
                Duty::Verb(verb) => verb(&mut self.server, now),
            }
        }
    }

    /// Something happened to the transport; see [`Server::handle`].
    pub fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.now = now;
        self.server.handle(now, input);
    }

    /// What the driver must do next; see [`Server::poll_output`].
    #[must_use = "an output that is not carried out is lost"]
    pub fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<Output<Task>> {
        let state = self.server.state();
        if self.shown != state {
            self.shown = state;
            *lock(&self.desk.state) = state;
        }
        loop {
            let output = self.server.poll_output(buf)?;
            let for_driver = output.and_then_event(|event| self.tell(event));
            if for_driver.is_some() {
                return for_driver;
            }
        }
    }

    /// When to come back; see [`Server::poll_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        self.server.poll_timeout()
    }

    /// Whether to go on reading; see [`Server::wants_input`].
    #[must_use]
    pub fn wants_input(&self, stream: StreamId) -> bool {
        self.server.wants_input(stream)
    }

    /// Whether the server is closed for good.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.server.state() == State::Closed
    }

    fn run(&mut self, now: Instant, errand: Errand) {
        match errand {
            Errand::Ask {
                request,
                method,
                params,
                promise,
            } => match self.server.ask(now, request, method, params) {
                Ok(ask) => drop(self.asked.insert(ask, promise)),
                Err(misuse) => promise.keep(Err(AskError::Misuse(misuse))),
            },
            Errand::Conclude(request, conclusion) => {
                // Whoever waits for a cancellation need not wait any more.
                if let Some(flag) = self.running.remove(&request) {
                    flag.raise();
                }
                self.conclude(now, request, conclusion);
            }
        }
    }

    /// An answer that cannot be given is the handler's mistake: its client is told that there will be none.
    fn conclude(&mut self, now: Instant, request: RequestId, conclusion: Conclusion) {
        let concluded = match conclusion {
            Conclusion::Fail(error) => self.server.fail(now, request, error),
            Conclusion::Require(input) => self.server.require_input(now, request, input),
            Conclusion::Respond(result) => self.server.respond(now, request, result),
        };
        if let Err(misuse) = concluded {
            let text = format!("the server's answer cannot be given: {misuse}");
            // Where the request is over, nobody is there to be told.
            let _ = self.server.fail(now, request, internal(text));
        }
    }

    fn tell(&mut self, event: Event) -> Option<Task> {
        match event {
            Event::Request(request) => {
                let id = request.request;
                let service = Service::of(Arc::clone(self.inbox.mail()), Arc::clone(&self.desk));
                let (task, cancelled) = Task::new(request, service);
                self.running.insert(id, cancelled);
                return Some(task);
            }
            Event::Cancelled { request, .. } => {
                if let Some(flag) = self.running.remove(&request) {
                    flag.raise();
                }
            }
            Event::Answered { ask, outcome, .. } => {
                if let Some(promise) = self.asked.remove(&ask) {
                    promise.keep(outcome.map_err(AskError::Unanswered));
                }
            }
            event => self.desk.listeners.tell(self.now, event),
        }
        None
    }
}

/// What nobody will carry out any more is said to be so.
impl Drop for ServiceOwner {
    fn drop(&mut self) {
        *lock(&self.desk.state) = State::Closed;
        self.inbox.close();
        self.running.drain().for_each(|(_, flag)| flag.raise());
        self.asked.clear();
        self.desk.listeners.end();
    }
}
