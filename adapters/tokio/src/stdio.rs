//! Servers on the standard streams of their own process.

use std::io;

use everlink::server::{Config, Server};
use everlink_handle::Service;

use crate::drive::{self, Handler};

/// Serves the client at the standard streams of this process. Only inside a runtime with I/O and time enabled.
///
/// From here on the server owns the standard streams. Other code that reads standard input finds it empty. Other code that prints to standard output
/// prints to standard error. Child processes inherit neither. The server ends with its input; [`Service::closed`] waits for that.
///
/// # Errors
///
/// When there are no standard streams, they are already taken, or the system has no descriptor left.
pub fn serve(config: Config, handler: impl Handler) -> io::Result<Service> {
    let (service, owner) = Service::new(Server::new(config));
    drive::start(drive::serve(owner, transport()?, handler))?;
    Ok(service)
}

/// The transport of a server: the standard streams of this process.
#[cfg(unix)]
pub type StdioTransport = everlink_stdio::StdioTransport<crate::reactor::TokioReactor>;

/// The transport of a server: the standard streams of this process.
#[cfg(windows)]
pub type StdioTransport = everlink_stdio::threads::ThreadedStdio;

/// Takes over the standard streams of this process; see [`standard_streams::take`](everlink_stdio::standard_streams::take).
///
/// # Errors
///
/// When there are no standard streams, they are already taken, or the system has no descriptor left.
pub fn transport() -> io::Result<StdioTransport> {
    #[cfg(unix)]
    return StdioTransport::take(crate::reactor::TokioReactor);
    #[cfg(windows)]
    StdioTransport::take()
}
