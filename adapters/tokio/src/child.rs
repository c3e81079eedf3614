//! Links to child processes.

use std::io;
use std::process::Command;

use everlink::Config;
use everlink_handle::Link;
#[cfg(unix)]
pub use everlink_stdio::cleaner;

use crate::drive::{drive, start};

/// Creates a link to a server that this command starts as a child process. A task on the present runtime drives it; the runtime must have I/O and
/// time enabled.
///
/// The child is spawned when the link is first used (by [`Link::ready`] or a call), and again whenever the link's state machine decides so. The link
/// owns the child's standard streams; its standard error is kept for error texts.
///
/// # Errors
///
/// Outside a runtime. A command that cannot be started is reported by the link instead.
pub fn connect(command: Command, config: Config) -> io::Result<Link> {
    let (link, owner) = Link::new(config);
    start(drive(owner, transport(command)))?;
    Ok(link)
}

/// The transport of a client link: one child process after another.
#[cfg(unix)]
pub type ChildTransport =
    everlink_stdio::ChildTransport<everlink_stdio::PolledChild<crate::reactor::TokioReactor>>;

/// The transport of a client link: one child process after another.
#[cfg(windows)]
pub type ChildTransport = everlink_stdio::ChildTransport<everlink_stdio::threads::ThreadedChild>;

/// Creates the transport for this command.
#[must_use]
pub fn transport(command: Command) -> ChildTransport {
    #[cfg(unix)]
    return ChildTransport::new(command, crate::reactor::TokioReactor);
    #[cfg(windows)]
    ChildTransport::new(command, ())
}
