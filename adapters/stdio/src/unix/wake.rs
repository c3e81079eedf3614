//! Wakes a thread that sleeps in `poll`. Does not know the reason.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};

use rustix::io::{read, write};

/// The descriptor that the thread polls: readable after a wake-up.
#[derive(Debug)]
pub(crate) struct Alarm(Arc<OwnedFd>);

/// Creates an alarm and the waker that triggers it.
pub(crate) fn alarm() -> io::Result<(Alarm, Waker)> {
    let (ours, theirs) = ends()?;
    Ok((Alarm(ours), Waker::from(Arc::new(Bell(theirs)))))
}

impl Alarm {
    /// Resets the alarm after a wake-up.
    pub(crate) fn stop(&self) {
        let mut rings = [0; 64];
        while read(&self.0, &mut rings).is_ok_and(|len| len == rings.len()) {}
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

struct Bell(Arc<OwnedFd>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // If the counter or the socket is full, the alarm is already set. An eventfd accepts no write below 8 bytes.
        let _ = write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// An eventfd, which both sides share.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn ends() -> io::Result<(Arc<OwnedFd>, Arc<OwnedFd>)> {
    use rustix::event::{EventfdFlags, eventfd};

    let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let counter = Arc::new(counter);
    Ok((Arc::clone(&counter), counter))
}

/// A socket pair.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn ends() -> io::Result<(Arc<OwnedFd>, Arc<OwnedFd>)> {
    use std::os::unix::net::UnixStream;

    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    Ok((Arc::new(ours.into()), Arc::new(theirs.into())))
}
