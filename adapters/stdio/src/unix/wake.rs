//! Wakes a thread that sleeps in `poll`. Does not know the reason.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};

use rustix::io::{read, write};

/// The descriptor that the thread polls: readable after a wake-up.
#[derive(Debug)]
pub(crate) struct WakeFd(Arc<OwnedFd>);

/// Creates the descriptor and the waker that makes it readable.
pub(crate) fn wake_fd() -> io::Result<(WakeFd, Waker)> {
    let (ours, theirs) = ends()?;
    Ok((WakeFd(ours), Waker::from(Arc::new(FdWaker(theirs)))))
}

impl WakeFd {
    /// Makes the descriptor unreadable again after a wake-up.
    pub(crate) fn reset(&self) {
        let mut bytes = [0; 64];
        while read(&self.0, &mut bytes).is_ok_and(|len| len == bytes.len()) {}
    }
}

impl AsFd for WakeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

struct FdWaker(Arc<OwnedFd>);

impl Wake for FdWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // If the counter or the socket is full, the descriptor is already readable. An eventfd accepts no write below 8 bytes.
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
