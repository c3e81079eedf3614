//! Sleeps until a descriptor is ready. Does not know its owner.

use std::array;
use std::io;
use std::time::Duration;

use rustix::event::{PollFd, Timespec};
use rustix::io::Errno;

/// Waits until a descriptor is ready, for at most this long. Returns which ones are; all are `false` after a timeout or a signal.
///
/// At least one entry must be `Some`; a `None` entry is not polled. Polling a descriptor for no events would not do instead: `POLLHUP` is reported
/// nevertheless, at every call.
pub(crate) fn poll<const N: usize>(
    fds: [Option<PollFd<'_>>; N],
    at_most: Option<Duration>,
) -> io::Result<[bool; N]> {
    let is_there = fds.each_ref().map(Option::is_some);
    let any = fds.iter().flatten().next().cloned();
    let any = any.expect("at least one is there");
    // Present descriptors come first. Copies fill up the array and are not polled.
    let mut there: [PollFd<'_>; N] = array::from_fn(|_| any.clone());
    let mut count = 0;
    for fd in fds.into_iter().flatten() {
        there[count] = fd;
        count += 1;
    }
    // Some systems limit the timeout. One wake-up per day costs nothing.
    let at_most = at_most.map(|span| span.min(Duration::from_secs(86_400)));
    let at_most = at_most.and_then(|span| Timespec::try_from(span).ok());
    match rustix::event::poll(&mut there[..count], at_most.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut told = there.iter().map(|fd| !fd.revents().is_empty());
    Ok(is_there.map(|is_there| is_there && told.next().unwrap_or(false)))
}
