//! The driver of a client link: the one thread that starts, reads and ends its children. Who asks something of the link meanwhile may write it.

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

/// Starts a link to the server that this command starts.
///
/// The command is started when the link is first wanted (by [`Link::ready`] or a call), and again whenever the machine of the link says
/// so. Its standard streams are the link's; what it says on standard error is kept for the text of failures. One thread drives the link,
/// and ends with it.
///
/// # Errors
///
/// When the system has no thread or descriptor left for it. That the command cannot be started is told by the link.
pub fn connect(command: Command, config: Config) -> io::Result<Link> {
    connect_by::<Children>(command, config)
}

/// Hands for one child after another.
pub(crate) trait Hands: Send + Sized + 'static {
    /// What is written to a child with. The hands give it a new stream with each child.
    type Pen: Pen;

    /// What there is to be heard after a sleep.
    type News;

    /// Children of this command. The waker ends a sleep.
    fn new(command: Command) -> io::Result<(Self, Self::Pen, Waker)>;

    /// Carries out one output that is not to write, and says what came of it at once.
    fn perform(
        &mut self,
        output: Output<Infallible>,
        pen: &mut Self::Pen,
    ) -> Option<(Epoch, Input<'static>)>;

    /// Sleeps until something happens.
    fn sleep(&mut self, sleep: Sleep<<Self::Pen as Pen>::Room>) -> io::Result<Self::News>;

    /// Tells what happened. The output of the child is read if `reads`.
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

/// The children are dropped first: who waits for the end finds nothing left.
fn drive<H: Hands>(helm: &Arc<Helm<Voyage<H::Pen>>>, mut children: H) {
    let waker = Waker::from(Arc::clone(helm));
    helm.steer(|voyage| {
        // Whatever waits already is seen at the first turn.
        let _ = voyage.owner.belongs_to(&waker);
        Some(())
    });
    let mut news = None;
    while let Some(sleep) = helm.steer(|voyage| voyage.steer(&mut children, news.take())) {
        let told = children.sleep(sleep);
        news = Some(told.expect("the system can say what its descriptors have to tell"));
    }
}

/// A link under way.
struct Voyage<P> {
    owner: LinkOwner,
    pen: P,
    clock: Clock,
    buf: Vec<u8>,
    /// What comes next and is the driver's.
    left: Option<Output<Infallible>>,
    vigil: Vigil,
}

impl<P: Pen> Voyage<P> {
    /// A whole turn. Returns how to sleep after it, or nothing when the link is closed.
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

    /// Writes all that is to be written, at once. Returns the first output that is something else.
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
            // The driver is on its way.
            return false;
        }
        let now = self.clock.now();
        self.owner.serve(now);
        self.left = self.carry(now);
        let is_drivers = self.left.is_some() || self.owner.is_closed();
        self.vigil.ends(is_drivers, &self.needs())
    }
}

/// The time, as a machine counts it.
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
