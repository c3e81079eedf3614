//! Wakes a thread that sleeps in `poll`. Knows not what for.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::{Wake, Waker};

/// What the thread looks at: readable when it was woken.
#[derive(Debug)]
pub(crate) struct Alarm(pub(crate) UnixStream);

/// An alarm, and what sets it off.
pub(crate) fn alarm() -> io::Result<(Alarm, Waker)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    Ok((Alarm(ours), Waker::from(Arc::new(Bell(theirs)))))
}

impl Alarm {
    /// It was heard.
    pub(crate) fn stop(&mut self) {
        let mut rings = [0; 64];
        while self.0.read(&mut rings).is_ok_and(|len| len == rings.len()) {}
    }
}

struct Bell(UnixStream);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Where it is full, it rings already.
        let _ = (&self.0).write(&[1]);
    }
}
