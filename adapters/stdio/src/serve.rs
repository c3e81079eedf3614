//! A server on the standard streams of its own process: one thread owns the machine and only moves bytes.

use std::io;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::thread;

use everlink::server::{Config, Request, Server};
use everlink::{ErrorObject, Input, Instant, Output, StreamId};
use everlink_handle::{Context, Response, Service, ServiceOwner};

use crate::drive::Clock;
use crate::inline_driver::{InlineDriver, InlineMachine};
use crate::sleep_plan::{Sleep, SleepPlan, WaitConditions};
use crate::system::StdioTransport;
use crate::workers::Workers;
use crate::writer::Writer;

/// Serves the client at the standard streams of this process, with a function for its requests.
///
/// The function returns a result ([`Payload`](everlink::Payload)), the input that it needs first
/// ([`InputRequired`](everlink::server::InputRequired)), or a [`Response`] if it may return either.
///
/// The function runs on one thread per concurrent request. A panic in it becomes an error reply.
///
/// From here on the server owns the standard streams. Other code that reads standard input finds it empty. Other code that prints to standard output
/// prints to standard error. Child processes inherit neither.
///
/// The server ends with its input; [`Service::closed`] waits for that.
///
/// # Errors
///
/// When the system has no thread or descriptor left, or there are no standard streams.
pub fn serve<F, R>(config: Config, function: F) -> io::Result<Service>
where
    F: Fn(Request, Context) -> Result<R, ErrorObject> + Send + Sync + 'static,
    R: Into<Response>,
{
    serve_with::<StdioTransport, _>(config, function)
}

/// The transport of a server, which is the standard streams of this process.
pub(crate) trait Transport: Send + Sized + 'static {
    /// The writer to the client.
    type Writer: Writer;

    /// The readiness that a sleep returns.
    type Wakeup;

    /// Takes the streams over. The waker ends a sleep.
    fn take() -> io::Result<(Self, Self::Writer, Waker)>;

    /// Sleeps until something happens.
    fn sleep(&mut self, sleep: Sleep<<Self::Writer as Writer>::Stream>)
    -> io::Result<Self::Wakeup>;

    /// Reports what happened. Reads input only if `reads` is true.
    fn report_inputs(
        &mut self,
        wakeup: Self::Wakeup,
        reads: bool,
        writer: &mut Self::Writer,
        feed: impl FnMut(Input<'_>),
    );
}

pub(crate) fn serve_with<H: Transport, R: Into<Response>>(
    config: Config,
    function: impl Fn(Request, Context) -> Result<R, ErrorObject> + Send + Sync + 'static,
) -> io::Result<Service> {
    let max_requests = config.limits.requests.max(1);
    let (service, owner) = Service::new(Server::new(config));
    let (transport, writer, waker) = H::take()?;
    let driver = Arc::new_cyclic(|driver: &Weak<InlineDriver<ServerLoop<H::Writer>>>| {
        let driver = Weak::clone(driver);
        let write = move || {
            driver
                .upgrade()
                .iter()
                .for_each(|driver| driver.run_inline())
        };
        let workers = Workers::new(max_requests, function, write);
        let pool = workers.clone();
        let server_loop = ServerLoop {
            owner,
            writer,
            workers,
            clock: Clock::start(),
            buf: Vec::new(),
            sleep_plan: SleepPlan::default(),
        };
        InlineDriver::new(server_loop, waker, move || pool.wake_thread())
    });
    let thread = thread::Builder::new().name("everlink".into());
    thread.spawn(move || driver.run_driver(|| drive(&driver, transport)))?;
    Ok(service)
}

/// Runs the driver's loop. The streams are dropped before the owner, so a caller that waits for the end finds them closed.
fn drive<H: Transport>(driver: &Arc<InlineDriver<ServerLoop<H::Writer>>>, mut transport: H) {
    let waker = Waker::from(Arc::clone(driver));
    driver.run_turns(|server_loop| {
        // Commands that are already queued run in the first turn.
        let _ = server_loop.owner.register_waker(&waker);
        Some(())
    });
    let mut wakeup = None;
    while let Some(sleep) =
        driver.run_turns(|server_loop| server_loop.full_turn(&mut transport, wakeup.take()))
    {
        let slept = transport.sleep(sleep);
        wakeup = Some(slept.expect("polling our own open descriptors does not fail"));
    }
}

/// The state of a server's driver. Callers and workers may run steps on it, too.
struct ServerLoop<P> {
    owner: ServiceOwner,
    writer: P,
    workers: Workers,
    clock: Clock,
    buf: Vec<u8>,
    sleep_plan: SleepPlan,
}

impl<P: Writer> ServerLoop<P> {
    /// Runs one whole turn of the driver. Returns how to sleep after it, or `None` when the server is closed.
    fn full_turn<H: Transport<Writer = P>>(
        &mut self,
        transport: &mut H,
        wakeup: Option<H::Wakeup>,
    ) -> Option<Sleep<P::Stream>> {
        let now = self.clock.now();
        if let Some(wakeup) = wakeup {
            let reads = self.owner.wants_input(StreamId::DUPLEX);
            transport.report_inputs(wakeup, reads, &mut self.writer, |input| {
                self.owner.handle(now, input);
            });
        }
        self.process_outputs(now);
        (!self.owner.is_closed()).then(|| self.sleep_plan.plan(now, self.wait_conditions()))
    }

    /// Runs the queued commands, hands tasks to the workers, and writes all pending messages together.
    fn process_outputs(&mut self, now: Instant) {
        self.owner.advance(now);
        loop {
            match self.owner.poll_output(&mut self.buf) {
                Some(Output::Event(task)) => self.workers.queue(task),
                // What is written is in the buffer, and a server on a pipe asks for nothing else.
                Some(_) => {}
                None if self.buf.is_empty() => return,
                None => {
                    if let Some(input) = self.writer.write(&mut self.buf) {
                        self.owner.handle(now, input);
                    }
                }
            }
        }
    }

    fn wait_conditions(&self) -> WaitConditions<P::Stream> {
        WaitConditions {
            deadline: self.owner.poll_timeout().map(|deadline| deadline.at),
            reads: self.owner.wants_input(StreamId::DUPLEX),
            blocked_stream: self.writer.blocked_stream(),
        }
    }
}

impl<P: Writer> InlineMachine for ServerLoop<P> {
    fn inline_turn(&mut self) -> bool {
        self.process_outputs(self.clock.now());
        self.sleep_plan
            .must_wake(self.owner.is_closed(), &self.wait_conditions())
    }
}

/// Stops the workers when the server ends.
impl<P> Drop for ServerLoop<P> {
    fn drop(&mut self) {
        self.workers.close();
    }
}
