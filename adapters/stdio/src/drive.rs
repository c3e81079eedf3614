//! The driver of a client link: one thread that spawns, reads and ends its child processes. While it sleeps, a caller may write to the child itself.

use std::convert::Infallible;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::task::Waker;
use std::thread;

use everlink::{Config, Epoch, Input, Instant, Output, StreamId};
use everlink_handle::{Link, LinkOwner};

use crate::helm::{Craft, Helm};
use crate::pen::Pen;
use crate::system::Children;
use crate::vigil::{Needs, Sleep, Vigil};

/// Creates a link to a server that this command starts as a child process.
///
/// The child is spawned when the link is first used (by [`Link::ready`] or a call), and again whenever the link's state machine decides so. The link
/// owns the child's standard streams; its standard error is kept for error texts. One thread drives the link and ends with it.
///
/// # Errors
///
/// When the system has no thread or descriptor left. A command that cannot be started is reported by the link instead.
pub fn connect(command: Command, config: Config) -> io::Result<Link> {
    connect_by::<Children>(command, config)
}

/// The transport of a client link, which runs one child process after another.
pub(crate) trait Hands: Send + Sized + 'static {
    /// The writer to a child's standard input. The transport gives it a new stream with each child.
    type Pen: Pen;

    /// The readiness that a sleep returns.
    type News;

    /// Creates the transport for this command. The waker ends a sleep.
    fn new(command: Command) -> io::Result<(Self, Self::Pen, Waker)>;

    /// Carries out one output other than a write. Returns its immediate result, if it has one.
    fn perform(
        &mut self,
        output: Output<Infallible>,
        pen: &mut Self::Pen,
    ) -> Option<(Epoch, Input<'static>)>;

    /// Sleeps until something happens.
    fn sleep(&mut self, sleep: Sleep<<Self::Pen as Pen>::Room>) -> io::Result<Self::News>;

    /// Reports what happened. Reads the child's output only if `reads` is true.
    fn hear(
        &mut self,
        news: Self::News,
        reads: bool,
        pen: &mut Self::Pen,
        tell: impl FnMut(Epoch, Input<'_>),
    );
}

pub(crate) fn connect_by<H: Hands>(command: Command, config: Config) -> io::Result<Link> {
    let (link, owner) = Link::new(config);
    let (children, pen, bell) = H::new(command)?;
    let voyage = Voyage {
        owner,
        pen,
        clock: Clock::start(),
        buf: Vec::new(),
        left: None,
        vigil: Vigil::default(),
    };
    let helm = Arc::new(Helm::new(voyage, bell, || {}));
    let thread = thread::Builder::new().name("everlink".into());
    thread.spawn(move || helm.attend(|| drive(&helm, children)))?;
    Ok(link)
}

/// Runs the driver's loop. The children are dropped before the owner, so a caller that waits for the end finds every process gone.
fn drive<H: Hands>(helm: &Arc<Helm<Voyage<H::Pen>>>, mut children: H) {
    let waker = Waker::from(Arc::clone(helm));
    helm.steer(|voyage| {
        // Commands that are already queued run in the first turn.
        let _ = voyage.owner.belongs_to(&waker);
        Some(())
    });
    let mut news = None;
    while let Some(sleep) = helm.steer(|voyage| voyage.steer(&mut children, news.take())) {
        let told = children.sleep(sleep);
        news = Some(told.expect("the system can say what its descriptors have to tell"));
    }
}

/// The state of a client link's driver. Callers may run steps on it, too.
struct Voyage<P> {
    owner: LinkOwner,
    pen: P,
    clock: Clock,
    buf: Vec<u8>,
    /// The next output, polled by a caller's step and left for the driver.
    left: Option<Output<Infallible>>,
    vigil: Vigil,
}

impl<P: Pen> Voyage<P> {
    /// Runs one whole turn of the driver. Returns how to sleep after it, or `None` when the link is closed.
    fn steer<H: Hands<Pen = P>>(
        &mut self,
        children: &mut H,
        news: Option<H::News>,
    ) -> Option<Sleep<P::Room>> {
        let now = self.clock.now();
        if let Some(news) = news {
            let reads = self.owner.wants_input(StreamId::DUPLEX);
            children.hear(news, reads, &mut self.pen, |epoch, input| {
                self.owner.handle(now, epoch, input);
            });
        }
        self.owner.serve(now);
        while let Some(output) = self.left.take().or_else(|| self.carry(now)) {
            if let Some((epoch, input)) = children.perform(output, &mut self.pen) {
                self.owner.handle(now, epoch, input);
            }
        }
        (!self.owner.is_closed()).then(|| self.vigil.begin(now, self.needs()))
    }

    /// Writes all pending messages together. Returns the first output that is not a write.
    fn carry(&mut self, now: Instant) -> Option<Output<Infallible>> {
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
            if let Some(input) = self.pen.write(&mut self.buf) {
                self.owner.handle(now, epoch, input);
            }
            if output.is_some() {
                return output;
            }
        }
    }

    fn needs(&self) -> Needs<P::Room> {
        Needs {
            due: self.owner.poll_timeout().map(|due| due.at),
            reads: self.owner.wants_input(StreamId::DUPLEX),
            room: self.pen.room(),
        }
    }
}

impl<P: Pen> Craft for Voyage<P> {
    fn turn(&mut self) -> bool {
        if self.left.is_some() {
            // The driver is already woken to carry out that output.
            return false;
        }
        let now = self.clock.now();
        self.owner.serve(now);
        self.left = self.carry(now);
        let is_drivers = self.left.is_some() || self.owner.is_closed();
        self.vigil.ends(is_drivers, &self.needs())
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
