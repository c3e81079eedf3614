//! everlink on smol: the clock and the reactor of the runtime. The loop is that of `everlink-handle`, and the transport that of `everlink-stdio`.
#![cfg(unix)]

use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_io::{Async, Timer};
use everlink::{Config, Instant};
use everlink_handle::{Clock, Link, drive};
use everlink_stdio::reactor::{Descriptor, Interest, Reactor, Registered};
use everlink_stdio::{ChildTransport, PolledChild};

/// Creates a link to a server that this command starts. A task on smol's executor drives it.
#[must_use]
pub fn connect(command: Command, config: Config) -> Link {
    let (link, owner) = Link::new(config);
    let transport = ChildTransport::<PolledChild<_>>::new(command, SmolReactor);
    smol::spawn(drive(owner, transport, SmolClock::start())).detach();
    link
}

/// The clock of a driver.
struct SmolClock {
    origin: std::time::Instant,
    timer: Timer,
}

impl SmolClock {
    fn start() -> SmolClock {
        SmolClock {
            origin: std::time::Instant::now(),
            timer: Timer::never(),
        }
    }
}

impl Clock for SmolClock {
    fn now(&mut self) -> Instant {
        Instant::from_origin(self.origin.elapsed())
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>, deadline: Option<Instant>) -> Poll<()> {
        let Some(deadline) = deadline else {
            return Poll::Pending;
        };
        self.timer
            .set_at(self.origin + Duration::from_nanos(deadline.as_nanos()));
        Pin::new(&mut self.timer).poll(cx).map(drop)
    }
}

/// The reactor of smol, which needs no handle. It takes descriptors whose blocking mode is already set.
#[derive(Clone)]
struct SmolReactor;

struct SmolRegistered<T>(Async<Arc<T>>, Interest);

impl Reactor for SmolReactor {
    type Registered<T: Descriptor> = SmolRegistered<T>;

    fn register<T: Descriptor>(
        &self,
        descriptor: T,
        interest: Interest,
    ) -> Result<SmolRegistered<T>, (T, io::Error)> {
        let descriptor = Arc::new(descriptor);
        match Async::new_nonblocking(Arc::clone(&descriptor)) {
            Ok(registered) => Ok(SmolRegistered(registered, interest)),
            Err(error) => match Arc::into_inner(descriptor) {
                Some(descriptor) => Err((descriptor, error)),
                None => unreachable!("smol dropped its reference"),
            },
        }
    }
}

impl<T: Descriptor> Registered<T> for SmolRegistered<T> {
    fn get_ref(&self) -> &T {
        self.0.get_ref()
    }

    fn poll_io<R>(
        &self,
        cx: &mut Context<'_>,
        mut attempt: impl FnMut(&T) -> io::Result<(R, bool)>,
    ) -> Poll<io::Result<R>> {
        loop {
            match self.1 {
                Interest::Writable => ready!(self.0.poll_writable(cx))?,
                _ => ready!(self.0.poll_readable(cx))?,
            }
            match attempt(self.0.get_ref()) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result.map(|(result, _)| result)),
            }
        }
    }
}
