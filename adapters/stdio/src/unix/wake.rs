//! Wakes a thread that sleeps in `poll`. Knows not what for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};

use rustix::io::{read, write};

/// What the thread looks at: readable when it was woken.
#[derive(Debug)]
pub(crate) struct Alarm(Arc<OwnedFd>);

/// An alarm, and what sets it off.
pub(crate) fn alarm() -> io::Result<(Alarm, Waker)> {
    let (ours, theirs) = ends()?;
    Ok((Alarm(ours), Waker::from(Arc::new(Bell(theirs)))))
}

impl Alarm {
    /// It was heard.
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
        // Where it is full, it rings already. A counter takes no less than this.
        let _ = write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// A counter, which both have.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn ends() -> io::Result<(Arc<OwnedFd>, Arc<OwnedFd>)> {
    use rustix::event::{EventfdFlags, eventfd};

    let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let counter = Arc::new(counter);
    Ok((Arc::clone(&counter), counter))
}

/// The two ends of a pair.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn ends() -> io::Result<(Arc<OwnedFd>, Arc<OwnedFd>)> {
    use std::os::unix::net::UnixStream;

    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    Ok((Arc::new(ours.into()), Arc::new(theirs.into())))
}
