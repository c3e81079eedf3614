//! The driver of a client link: one thread that spawns, reads and ends its child processes. While it sleeps, a caller may write to the child itself.

use std::convert::Infallible;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::task::Waker;
use std::thread;

use everlink::{Config, Epoch, Input, Instant, Output, StreamId};
use everlink_handle::{Link, LinkOwner};

use crate::inline_driver::{InlineDriver, InlineMachine};
use crate::sleep_plan::{Sleep, SleepPlan, WaitConditions};
use crate::system::ChildTransport;
use crate::writer::Writer;

/// Creates a link to a server that this command starts as a child process.
///
/// The child is spawned when the link is first used (by [`Link::ready`] or a call), and again whenever the link's state machine decides so. The link
/// owns the child's standard streams; its standard error is kept for error texts. One thread drives the link and ends with it.
///
/// # Errors
///
/// When the system has no thread or descriptor left. A command that cannot be started is reported by the link instead.
pub fn connect(command: Command, config: Config) -> io::Result<Link> {
    connect_with::<ChildTransport>(command, config)
}

/// The transport of a client link, which runs one child process after another.
pub(crate) trait Transport: Send + Sized + 'static {
    /// The writer to a child's standard input. The transport gives it a new stream with each child.
    type Writer: Writer;

    /// The readiness that a sleep returns.
    type Wakeup;

    /// Creates the transport for this command. The waker ends a sleep.
    fn new(command: Command) -> io::Result<(Self, Self::Writer, Waker)>;

    /// Carries out one output other than a write. Returns its immediate result, if it has one.
    fn perform(
        &mut self,
        output: Output<Infallible>,
        writer: &mut Self::Writer,
    ) -> Option<(Epoch, Input<'static>)>;

    /// Sleeps until something happens.
    fn sleep(&mut self, sleep: Sleep<<Self::Writer as Writer>::Stream>)
    -> io::Result<Self::Wakeup>;

    /// Reports what happened. Reads the child's output only if `reads` is true.
    fn report_inputs(
        &mut self,
        wakeup: Self::Wakeup,
        reads: bool,
        writer: &mut Self::Writer,
        feed: impl FnMut(Epoch, Input<'_>),
    );
}

pub(crate) fn connect_with<H: Transport>(command: Command, config: Config) -> io::Result<Link> {
    let (link, owner) = Link::new(config);
    let (transport, writer, waker) = H::new(command)?;
    let client_loop = ClientLoop {
        owner,
        writer,
        clock: Clock::start(),
        buf: Vec::new(),
        left_for_driver: None,
        sleep_plan: SleepPlan::default(),
    };
    let driver = Arc::new(InlineDriver::new(client_loop, waker, || {}));
    let thread = thread::Builder::new().name("everlink".into());
    thread.spawn(move || driver.run_driver(|| drive(&driver, transport)))?;
    Ok(link)
}

/// Runs the driver's loop. The children are dropped before the owner, so a caller that waits for the end finds every process gone.
fn drive<H: Transport>(driver: &Arc<InlineDriver<ClientLoop<H::Writer>>>, mut transport: H) {
    let waker = Waker::from(Arc::clone(driver));
    driver.run_turns(|client_loop| {
        // Commands that are already queued run in the first turn.
        let _ = client_loop.owner.register_waker(&waker);
        Some(())
    });
    let mut wakeup = None;
    while let Some(sleep) =
        driver.run_turns(|client_loop| client_loop.full_turn(&mut transport, wakeup.take()))
    {
        let slept = transport.sleep(sleep);
        wakeup = Some(slept.expect("polling our own open descriptors does not fail"));
    }
}

/// The state of a client link's driver. Callers may run steps on it, too.
struct ClientLoop<P> {
    owner: LinkOwner,
    writer: P,
    clock: Clock,
    buf: Vec<u8>,
    /// The next output, polled by a caller's step and left for the driver.
    left_for_driver: Option<Output<Infallible>>,
    sleep_plan: SleepPlan,
}

impl<P: Writer> ClientLoop<P> {
    /// Runs one whole turn of the driver. Returns how to sleep after it, or `None` when the link is closed.
    fn full_turn<H: Transport<Writer = P>>(
        &mut self,
        transport: &mut H,
        wakeup: Option<H::Wakeup>,
    ) -> Option<Sleep<P::Stream>> {
        let now = self.clock.now();
        if let Some(wakeup) = wakeup {
            let reads = self.owner.wants_input(StreamId::DUPLEX);
            transport.report_inputs(wakeup, reads, &mut self.writer, |epoch, input| {
                self.owner.handle(now, epoch, input);
            });
        }
        self.owner.advance(now);
        while let Some(output) = self
            .left_for_driver
            .take()
            .or_else(|| self.write_pending(now))
        {
            if let Some((epoch, input)) = transport.perform(output, &mut self.writer) {
                self.owner.handle(now, epoch, input);
            }
        }
        (!self.owner.is_closed()).then(|| self.sleep_plan.plan(now, self.wait_conditions()))
    }

    /// Writes all pending messages together. Returns the first output that is not a write.
    fn write_pending(&mut self, now: Instant) -> Option<Output<Infallible>> {
        let mut epoch = Epoch::NONE;
        loop {
            let output = self.owner.poll_output(&mut self.buf);
            if let Some(Output::Write { epoch: of, .. }) = output {
                epoch = of;
                continue;
            }
            if self.buf.is_empty() {
                return output;
            }
            if let Some(input) = self.writer.write(&mut self.buf) {
                self.owner.handle(now, epoch, input);
            }
            if output.is_some() {
                return output;
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

impl<P: Writer> InlineMachine for ClientLoop<P> {
    fn inline_turn(&mut self) -> bool {
        if self.left_for_driver.is_some() {
            // The driver is already woken to carry out that output.
            return false;
        }
        let now = self.clock.now();
        self.owner.advance(now);
        self.left_for_driver = self.write_pending(now);
        let has_driver_work = self.left_for_driver.is_some() || self.owner.is_closed();
        self.sleep_plan
            .must_wake(has_driver_work, &self.wait_conditions())
    }
}

/// The driver's clock; its origin is the start of the driver.
#[derive(Clone, Copy)]
pub(crate) struct Clock(std::time::Instant);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(std::time::Instant::now())
    }

    pub(crate) fn now(self) -> Instant {
        Instant::from_origin(self.0.elapsed())
    }
}
