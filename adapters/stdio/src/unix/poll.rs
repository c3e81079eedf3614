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
    timeout: Option<Duration>,
) -> io::Result<[bool; N]> {
    let is_present = fds.each_ref().map(Option::is_some);
    let any = fds.iter().flatten().next().cloned();
    let any = any.expect("at least one is there");
    // Present descriptors come first. Copies fill up the array and are not polled.
    let mut present: [PollFd<'_>; N] = array::from_fn(|_| any.clone());
    let mut count = 0;
    for fd in fds.into_iter().flatten() {
        present[count] = fd;
        count += 1;
    }
    // Some systems limit the timeout. One wake-up per day costs nothing.
    let timeout = timeout.map(|span| span.min(Duration::from_secs(86_400)));
    let timeout = timeout.and_then(|span| Timespec::try_from(span).ok());
    match rustix::event::poll(&mut present[..count], timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut ready = present.iter().map(|fd| !fd.revents().is_empty());
    Ok(is_present.map(|is_present| is_present && ready.next().unwrap_or(false)))
}
