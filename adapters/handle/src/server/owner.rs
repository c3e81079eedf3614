//! The owner of a server machine: runs the commands of handles and hands out requests. The driver does the I/O.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::Waker;

use everlink::relay::Side;
use everlink::server::{Event, State};
use everlink::{
    AskId, Deadline, Epoch, ErrorObject, Input, Instant, Output, Payload, RequestId, Server,
    StreamId,
};

use super::service::{Conclusion, OwnerCommand, Published, Service};
use super::task::{Answer, OpenRequest, Response, ServiceError, Task, internal_error};
use crate::command_queue::{Command, CommandReceiver};
use crate::id_map::IdMap;
use crate::promise::Promise;
use crate::record::{OptionalRecorder, Recorder};
use crate::sync::lock;

/// A server machine and its command queue. A driver holds one and calls it in its loop.
///
/// As with a [`LinkOwner`](crate::LinkOwner), a driver follows the contract in the crate docs of `everlink`. It calls
/// [`advance`](ServiceOwner::advance) once in each iteration of its loop. When [`is_closed`](ServiceOwner::is_closed) is true and no output is left, the
/// driver frees everything else, then drops the owner. The only event that [`poll_output`](ServiceOwner::poll_output) returns is a [`Task`] to run.
pub struct ServiceOwner {
    server: Server,
    /// The time that the driver reported last.
    now: Instant,
    published: Arc<Published>,
    /// The state that the handles see.
    last_published: State,
    /// Requests that are neither answered nor cancelled.
    open_requests: IdMap<RequestId, OpenRequest>,
    /// Handlers that wait for the client's answer, keyed by ask.
    ask_waiters: IdMap<AskId, Promise<Payload, ServiceError>>,
    recorder: OptionalRecorder<Infallible, Event>,
    /// Declared last, so that it is dropped last: a caller that waits for the end learns of it after everything else is freed.
    receiver: CommandReceiver<Server, OwnerCommand>,
}

impl ServiceOwner {
    pub(super) fn new(
        server: Server,
        receiver: CommandReceiver<Server, OwnerCommand>,
        published: Arc<Published>,
    ) -> ServiceOwner {
        let last_published = server.state();
        ServiceOwner {
            server,
            now: Instant::ZERO,
            published,
            last_published,
            open_requests: IdMap::default(),
            ask_waiters: IdMap::default(),
            recorder: None,
            receiver,
        }
    }

    /// Records every input and output from now on. The commands of handlers are not recorded, so the recording can be read but not replayed.
    pub fn record(&mut self, recorder: impl Recorder<Infallible, Event> + 'static) {
        self.recorder = Some(Box::new(recorder));
    }

    /// Returns the machine, for reading.
    #[must_use]
    pub const fn server(&self) -> &Server {
        &self.server
    }

    /// Registers the driver's waker. Returns true if commands are already queued, because those do not wake it.
    #[must_use = "commands that are already queued do not wake the driver"]
    pub fn register_waker(&self, driver: &Waker) -> bool {
        self.receiver.register_waker(driver)
    }

    /// Runs the queued commands and sets the time. The driver polls all outputs afterwards.
    pub fn advance(&mut self, now: Instant) {
        self.now = now;
        self.run_commands(now);
        if let Some(recorder) = &mut self.recorder {
            recorder.on_timeout(now);
        }
        self.server.handle_timeout(now);
    }

    /// Answers a request like [`Answer::respond`], for a driver that runs tasks itself. The driver polls all outputs afterwards.
    pub fn respond(
        &mut self,
        now: Instant,
        answer: Answer,
        outcome: Result<Response, ErrorObject>,
    ) {
        // Run the commands that the handler queued before its answer, such as progress, first.
        self.run_commands(now);
        let (request, conclusion) = answer.into_conclusion(outcome);
        self.run_command(now, OwnerCommand::Conclude(request, conclusion));
    }

    fn run_commands(&mut self, now: Instant) {
        self.receiver.fetch();
        while let Some(command) = self.receiver.next_command() {
            match command {
                Command::ForOwner(command) => self.run_command(now, command),
                Command::ForMachine(function) => function(&mut self.server, now),
            }
        }
    }

    /// Reports an input of the transport; see [`Server::handle`].
    pub fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.now = now;
        if let Some(recorder) = &mut self.recorder {
            recorder.on_input(now, Side::Downstream, Epoch::FIRST, &input);
        }
        self.server.handle(now, input);
    }

    /// Returns the next output for the driver; see [`Server::poll_output`].
    #[must_use = "an output that is not carried out is lost"]
    pub fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<Output<Task>> {
        let state = self.server.state();
        if self.last_published != state {
            self.last_published = state;
            *lock(&self.published.state) = state;
        }
        loop {
            let start = buf.len();
            let output = self.server.poll_output(buf);
            if let Some(recorder) = &mut self.recorder {
                let output = output.as_ref().map(|output| (Side::Downstream, output));
                recorder.on_poll(output, &buf[start..]);
            }
            let for_driver = output?.and_then_event(|event| self.deliver(event));
            if for_driver.is_some() {
                return for_driver;
            }
        }
    }

    /// Returns when to call [`advance`](ServiceOwner::advance) next; see [`Server::poll_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Deadline> {
        self.server.poll_timeout()
    }

    /// Whether the driver should read more; see [`Server::wants_input`].
    #[must_use]
    pub fn wants_input(&self, stream: StreamId) -> bool {
        self.server.wants_input(stream)
    }

    /// Whether the server is closed for good.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.server.state() == State::Closed
    }

    fn run_command(&mut self, now: Instant, command: OwnerCommand) {
        match command {
            OwnerCommand::Ask {
                request,
                method,
                params,
                promise,
            } => match self.server.ask(now, request, method, params) {
                Ok(ask) => drop(self.ask_waiters.insert(ask, promise)),
                Err(misuse) => promise.resolve(Err(misuse.into())),
            },
            OwnerCommand::Conclude(request, conclusion) => {
                // Raise the flag, so that nobody waits for the cancellation of a request that is answered.
                if let Some(open) = self.open_requests.remove(&request) {
                    open.cancelled.raise();
                    open.span.record(conclusion.as_outcome());
                }
                self.conclude(now, request, conclusion);
            }
        }
    }

    /// Answers a request. If the machine refuses the answer, the handler made a mistake, and the client gets an internal error.
    fn conclude(&mut self, now: Instant, request: RequestId, conclusion: Conclusion) {
        let concluded = match conclusion {
            Conclusion::Fail(error) => self.server.fail(now, request, error),
            Conclusion::Require(input) => self.server.require_input(now, request, input),
            Conclusion::Respond(result) => self.server.respond(now, request, result),
        };
        if let Err(misuse) = concluded {
            let text = format!("the server's handler returned an invalid answer: {misuse}");
            // This fails if the request is over; nobody waits for the error then.
            let _ = self.server.fail(now, request, internal_error(text));
        }
    }

    fn deliver(&mut self, event: Event) -> Option<Task> {
        match event {
            Event::Request(request) => {
                let id = request.request;
                let service = Service::of(
                    Arc::clone(self.receiver.queue()),
                    Arc::clone(&self.published),
                );
                let (task, open) = Task::new(request, service);
                self.open_requests.insert(id, open);
                return Some(task);
            }
            Event::Cancelled { request, .. } => {
                if let Some(open) = self.open_requests.remove(&request) {
                    open.cancelled.raise();
                }
            }
            Event::Answered { ask, outcome, .. } => {
                if let Some(promise) = self.ask_waiters.remove(&ask) {
                    promise.resolve(outcome.map_err(ServiceError::Unanswered));
                }
            }
            event => self.published.listeners.publish(self.now, event),
        }
        None
    }
}

/// Publishes a closed state, cancels every request, and drops every queued command and pending ask.
impl Drop for ServiceOwner {
    fn drop(&mut self) {
        *lock(&self.published.state) = State::Closed;
        self.receiver.close();
        for (_, open) in self.open_requests.drain() {
            open.cancelled.raise();
        }
        self.ask_waiters.clear();
        self.published.listeners.close();
    }
}
