//! The way in which transports wait for file descriptors: an interface for the reactors of runtimes, and a reactor for a thread, which sleeps in
//! `poll`. Does not know what the descriptors carry.

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use everlink_handle::Park;
use rustix::event::{PollFd, PollFlags};

use super::poll::poll;
use super::wake::{WakeFd, wake_fd};

/// A descriptor that a transport can wait for.
pub trait Descriptor: AsFd + AsRawFd + Send + Sync + 'static {}

impl<T: AsFd + AsRawFd + Send + Sync + 'static> Descriptor for T {}

/// The event a transport waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interest {
    /// Bytes to read, the end, or the exit of a process.
    Readable,
    /// Room to write.
    Writable,
}

/// The reactor of a runtime, with which descriptors are registered.
pub trait Reactor: Clone + Send + 'static {
    /// A descriptor that is registered.
    type Registered<T: Descriptor>: Registered<T>;

    /// Registers a descriptor, which the result owns.
    ///
    /// # Errors
    ///
    /// Returns the descriptor with the error of the system. It is [`PermissionDenied`](ErrorKind::PermissionDenied) if the descriptor is always
    /// ready, as a regular file is for `epoll`.
    fn register<T: Descriptor>(
        &self,
        descriptor: T,
        interest: Interest,
    ) -> Result<Self::Registered<T>, (T, io::Error)>;
}

/// A descriptor that is registered with a reactor. Dropping it closes it.
pub trait Registered<T>: Send {
    /// Returns the descriptor.
    fn get_ref(&self) -> &T;

    /// Calls `attempt` when the descriptor may be ready, until it returns something else than [`WouldBlock`](ErrorKind::WouldBlock). `attempt` also
    /// returns whether the descriptor is surely no longer ready.
    fn poll_io<R>(
        &self,
        cx: &mut Context<'_>,
        attempt: impl FnMut(&T) -> io::Result<(R, bool)>,
    ) -> Poll<io::Result<R>>;
}

/// The reactor of one thread, which sleeps in `poll` until a descriptor is ready.
#[derive(Clone)]
pub struct PollReactor(Arc<Inner>);

struct Inner {
    wake_fd: WakeFd,
    waker: Waker,
    entries: Mutex<Vec<Entry>>,
}

struct Entry {
    key: u64,
    descriptor: Arc<dyn Descriptor>,
    interest: PollFlags,
    readiness: Readiness,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Readiness {
    /// It may be ready, so an attempt is worth it.
    Ready,
    /// It is not ready, and nobody waits for it.
    NotReady,
    /// It was not ready, and a transport waits for it.
    Awaited,
}

impl PollReactor {
    /// Creates a reactor for one thread, which runs a driver with it: see [`everlink_handle::run`].
    ///
    /// # Errors
    ///
    /// When the system has no descriptor left.
    pub fn new() -> io::Result<PollReactor> {
        let (wake_fd, waker) = wake_fd()?;
        Ok(PollReactor(Arc::new(Inner {
            wake_fd,
            waker,
            entries: Mutex::default(),
        })))
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        let entries = &self.0.entries;
        entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for PollReactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollReactor").finish_non_exhaustive()
    }
}

impl Reactor for PollReactor {
    type Registered<T: Descriptor> = PollRegistered<T>;

    fn register<T: Descriptor>(
        &self,
        descriptor: T,
        interest: Interest,
    ) -> Result<PollRegistered<T>, (T, io::Error)> {
        let descriptor = Arc::new(descriptor);
        let mut entries = self.entries();
        let key = entries.last().map_or(0, |entry| entry.key + 1);
        entries.push(Entry {
            key,
            descriptor: descriptor.clone(),
            interest: match interest {
                Interest::Readable => PollFlags::IN,
                Interest::Writable => PollFlags::OUT,
            },
            readiness: Readiness::NotReady,
        });
        drop(entries);
        Ok(PollRegistered {
            descriptor,
            key,
            reactor: self.clone(),
        })
    }
}

/// A descriptor that is registered with a [`PollReactor`].
#[derive(Debug)]
pub struct PollRegistered<T> {
    descriptor: Arc<T>,
    key: u64,
    reactor: PollReactor,
}

impl<T: Descriptor> Registered<T> for PollRegistered<T> {
    fn get_ref(&self) -> &T {
        &self.descriptor
    }

    /// The thread's own sleep waits for the descriptor, so the context is not needed.
    fn poll_io<R>(
        &self,
        _: &mut Context<'_>,
        mut attempt: impl FnMut(&T) -> io::Result<(R, bool)>,
    ) -> Poll<io::Result<R>> {
        if self.readiness() != Readiness::Ready {
            self.set_readiness(Readiness::Awaited);
            return Poll::Pending;
        }
        match attempt(&self.descriptor) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.set_readiness(Readiness::Awaited);
                Poll::Pending
            }
            Ok((result, is_spent)) => {
                if is_spent {
                    self.set_readiness(Readiness::NotReady);
                }
                Poll::Ready(Ok(result))
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<T> PollRegistered<T> {
    fn readiness(&self) -> Readiness {
        let entries = self.reactor.entries();
        let entry = entries.iter().find(|entry| entry.key == self.key);
        entry.map_or(Readiness::Ready, |entry| entry.readiness)
    }

    fn set_readiness(&self, readiness: Readiness) {
        let mut entries = self.reactor.entries();
        let entry = entries.iter_mut().find(|entry| entry.key == self.key);
        entry
            .into_iter()
            .for_each(|entry| entry.readiness = readiness);
    }
}

impl<T> Drop for PollRegistered<T> {
    fn drop(&mut self) {
        self.reactor.entries().retain(|entry| entry.key != self.key);
    }
}

impl Park for PollReactor {
    fn waker(&self) -> Waker {
        self.0.waker.clone()
    }

    fn park(&mut self, timeout: Option<Duration>) {
        let mut entries = self.entries();
        let awaited = entries
            .iter_mut()
            .filter(|entry| entry.readiness == Readiness::Awaited);
        let awaited: Vec<&mut Entry> = awaited.collect();
        let fds = awaited
            .iter()
            .map(|entry| PollFd::from_borrowed_fd(entry.descriptor.as_fd(), entry.interest));
        let wake_fd = PollFd::new(&self.0.wake_fd, PollFlags::IN);
        let mut fds: Vec<PollFd<'_>> = fds.chain([wake_fd]).collect();
        // A thread that was woken only looks which descriptors are ready.
        let timeout = match self.0.wake_fd.begin_sleep() {
            true => timeout,
            false => Some(Duration::ZERO),
        };
        // An error would be that of a descriptor that is not open, and all of these are owned.
        let _ = poll(&mut fds, timeout);
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let is_woken = ready.last() == Some(&true);
        for (entry, is_ready) in awaited.into_iter().zip(ready) {
            if is_ready {
                entry.readiness = Readiness::Ready;
            }
        }
        drop(entries);
        self.0.wake_fd.end_sleep(is_woken);
    }
}
