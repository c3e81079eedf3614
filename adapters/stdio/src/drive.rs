//! The driver of a client link: the one thread that owns the machine, and does nothing but carry.

use std::io;
use std::process::Command;
use std::thread;

use everlink::{Config, Instant, StreamId};
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
    let (link, owner) = Link::new(config);
    let (children, waker) = Children::new(command)?;
    // Whatever waits already is seen at the first turn.
    let _ = owner.belongs_to(&waker);
    let thread = thread::Builder::new().name("everlink".into());
    thread.spawn(move || drive(owner, children))?;
    Ok(link)
}

fn drive(mut owner: LinkOwner, mut children: Children) {
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
