//! The driver of a client link: the one thread that owns the machine, and does nothing but carry.

use std::convert::Infallible;
use std::io;
use std::process::Command;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use everlink::{Config, Epoch, Input, Instant, Output, StreamId};
use everlink_handle::{Link, LinkOwner};

use crate::system::Children;

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
    /// Children of this command. The waker ends a wait.
    fn new(command: Command) -> io::Result<(Self, Waker)>;

    /// Carries out one output, whose bytes are all of `buf`, and says what came of it at once.
    fn perform(
        &mut self,
        output: Output<Infallible>,
        buf: &mut Vec<u8>,
    ) -> Option<(Epoch, Input<'static>)>;

    /// Sleeps until something happens, or for so long at most, and tells what happened. The output of the child is read if `reads`.
    fn wait(
        &mut self,
        at_most: Option<Duration>,
        reads: bool,
        tell: impl FnMut(Epoch, Input<'_>),
    ) -> io::Result<()>;
}

pub(crate) fn connect_by<H: Hands>(command: Command, config: Config) -> io::Result<Link> {
    let (link, owner) = Link::new(config);
    let (children, waker) = H::new(command)?;
    // Whatever waits already is seen at the first turn.
    let _ = owner.belongs_to(&waker);
    let thread = thread::Builder::new().name("everlink".into());
    thread.spawn(move || drive(owner, children))?;
    Ok(link)
}

fn drive(mut owner: LinkOwner, mut children: impl Hands) {
    let clock = Clock::start();
    let mut buf = Vec::new();
    loop {
        owner.serve(clock.now());
        while let Some(output) = owner.poll_output(&mut buf) {
            if let Some((epoch, input)) = children.perform(output, &mut buf) {
                owner.handle(clock.now(), epoch, input);
            }
        }
        if owner.is_closed() {
            break;
        }
        let due = owner.poll_timeout().map(|due| due.at.since(clock.now()));
        let reads = owner.wants_input(StreamId::DUPLEX);
        let told = children.wait(due, reads, |epoch, input| {
            owner.handle(clock.now(), epoch, input);
        });
        told.expect("the system can say what its descriptors have to tell");
    }
    // Who waits for the end finds nothing left.
    drop(children);
    drop(owner);
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
