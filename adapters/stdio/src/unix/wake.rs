//! Wakes a thread that sleeps in `poll`. Does not know the reason.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU8, Ordering};
use rustix::io::{read, write};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU8, Ordering};

/// The descriptor that the thread polls: readable after a wake-up during its sleep.
#[derive(Debug)]
pub(crate) struct WakeFd {
    end: Arc<OwnedFd>,
    sleep: Arc<Sleep>,
}

/// Creates the descriptor and the waker that makes it readable.
pub(crate) fn wake_fd() -> io::Result<(WakeFd, Waker)> {
    let (end, other_end) = ends()?;
    let sleep = Arc::new(Sleep::new());
    let waker = FdWaker {
        end: other_end,
        sleep: Arc::clone(&sleep),
    };
    Ok((WakeFd { end, sleep }, Waker::from(Arc::new(waker))))
}

impl WakeFd {
    /// Announces that the thread is about to sleep. Returns false if it was woken, so it must not.
    pub(crate) fn begin_sleep(&self) -> bool {
        self.sleep.begin()
    }

    /// Announces that the thread is awake. `is_readable` says whether the descriptor was readable: then it is made unreadable again.
    pub(crate) fn end_sleep(&self, is_readable: bool) {
        self.sleep.end();
        let mut bytes = [0; 64];
        while is_readable && read(&self.end, &mut bytes).is_ok_and(|len| len == bytes.len()) {}
    }
}

impl AsFd for WakeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

struct FdWaker {
    end: Arc<OwnedFd>,
    sleep: Arc<Sleep>,
}

impl Wake for FdWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.sleep.wake() {
            // If the counter or the socket is full, the descriptor is already readable. An eventfd accepts no write below 8 bytes.
            let _ = write(&self.end, &1_u64.to_ne_bytes());
        }
    }
}

/// Whether a thread sleeps. A thread that is awake is woken without a system call.
#[derive(Debug)]
struct Sleep(AtomicU8);

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
/// Woken since the thread was last told so.
const WOKEN: u8 = 2;

impl Sleep {
    fn new() -> Sleep {
        Sleep(AtomicU8::new(AWAKE))
    }

    /// Returns whether the thread may sleep.
    fn begin(&self) -> bool {
        let begun = self
            .0
            .compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
        begun.is_ok()
    }

    /// The thread looks after this for what it was woken for.
    fn end(&self) {
        self.0.swap(AWAKE, Ordering::AcqRel);
    }

    /// Returns whether the thread sleeps, so that its descriptor must be made readable.
    fn wake(&self) -> bool {
        self.0.swap(WOKEN, Ordering::AcqRel) == ASLEEP
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

/// All interleavings, tried by loom: `RUSTFLAGS="--cfg loom" cargo test --lib model`.
#[cfg(all(test, loom))]
mod model {
    use loom::sync::{Arc, Notify};
    use loom::thread;

    use super::*;

    /// Two threads give the sleeping one something to do. It must not sleep while there is something left. `Notify` stands for the descriptor.
    #[test]
    fn thread_never_sleeps_through_a_wake_up() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let (sleep, descriptor) = (Arc::new(Sleep::new()), Arc::new(Notify::new()));
            let work = Arc::new(AtomicU8::new(0));
            let wakers: Vec<_> = (0..2)
                .map(|_| {
                    let (sleep, descriptor, work) = (
                        Arc::clone(&sleep),
                        Arc::clone(&descriptor),
                        Arc::clone(&work),
                    );
                    thread::spawn(move || {
                        work.fetch_add(1, Ordering::Relaxed);
                        if sleep.wake() {
                            descriptor.notify();
                        }
                    })
                })
                .collect();
            while work.load(Ordering::Relaxed) < 2 {
                if sleep.begin() {
                    descriptor.wait();
                }
                sleep.end();
            }
            for waker in wakers {
                waker.join().unwrap();
            }
        });
    }
}
