//! Sleeps until a descriptor has something to tell. Knows not whose it is.

use std::array;
use std::io;
use std::time::Duration;

use rustix::event::{PollFd, Timespec};
use rustix::io::Errno;

/// Which of them have, after so long at most. None where the time is over, or a signal came in between.
///
/// At least one is there. One that is not is not looked at. To look at one without a wish would not do: its hang-up is told all the same, again and again.
pub(crate) fn poll<const N: usize>(
    fds: [Option<PollFd<'_>>; N],
    at_most: Option<Duration>,
) -> io::Result<[bool; N]> {
    let is_there = fds.each_ref().map(Option::is_some);
    let any = fds.iter().flatten().next().cloned();
    let any = any.expect("at least one is there");
    // Those that are there come first; what stands for the others is not looked at.
    let mut there: [PollFd<'_>; N] = array::from_fn(|_| any.clone());
    let mut count = 0;
    for fd in fds.into_iter().flatten() {
        there[count] = fd;
        count += 1;
    }
    // Some systems cannot sleep for long; to wake once a day is nothing.
    let at_most = at_most.map(|span| span.min(Duration::from_secs(86_400)));
    let at_most = at_most.and_then(|span| Timespec::try_from(span).ok());
    match rustix::event::poll(&mut there[..count], at_most.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut told = there.iter().map(|fd| !fd.revents().is_empty());
    Ok(is_there.map(|is_there| is_there && told.next().unwrap_or(false)))
}
