//! Waits until a descriptor is ready. Does not know its owner.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, Timespec};
use rustix::io::Errno;

/// Waits until a descriptor is ready, for at most this long. A signal ends the wait early.
pub(super) fn poll(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    // Some systems limit the timeout. One wake-up per day costs nothing.
    let timeout = timeout.map(|span| span.min(Duration::from_secs(86_400)));
    let timeout = timeout.and_then(|span| Timespec::try_from(span).ok());
    match rustix::event::poll(fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
