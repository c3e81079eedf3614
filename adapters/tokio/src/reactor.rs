//! Tokio's reactor for the transports over pipes. Does not know what its descriptors carry.

use std::io::{self, ErrorKind};
use std::task::{Context, Poll, ready};

use everlink_stdio::reactor::{Descriptor, Interest, Reactor, Registered};
use tokio::io::Interest as TokioInterest;
use tokio::io::unix::AsyncFd;

/// The reactor of the present runtime, which must have I/O enabled.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TokioReactor;

impl Reactor for TokioReactor {
    type Registered<T: Descriptor> = TokioRegistered<T>;

    #[allow(
        deprecated,
        reason = "unsound only for types that close their descriptor before they are dropped; the alternative is `unsafe`"
    )]
    fn register<T: Descriptor>(
        &self,
        descriptor: T,
        interest: Interest,
    ) -> Result<TokioRegistered<T>, (T, io::Error)> {
        let tokio_interest = match interest {
            Interest::Writable => TokioInterest::WRITABLE,
            _ => TokioInterest::READABLE,
        };
        match AsyncFd::try_with_interest(descriptor, tokio_interest) {
            Ok(fd) => Ok(TokioRegistered { fd, interest }),
            Err(refused) => Err(refused.into_parts()),
        }
    }
}

/// A descriptor that is registered with the present runtime.
#[derive(Debug)]
pub struct TokioRegistered<T: Descriptor> {
    fd: AsyncFd<T>,
    interest: Interest,
}

impl<T: Descriptor> Registered<T> for TokioRegistered<T> {
    fn get_ref(&self) -> &T {
        self.fd.get_ref()
    }

    fn poll_io<R>(
        &self,
        cx: &mut Context<'_>,
        mut attempt: impl FnMut(&T) -> io::Result<(R, bool)>,
    ) -> Poll<io::Result<R>> {
        loop {
            // Polled even if nothing has changed, because this code cannot tell whether the waker is still registered.
            let mut ready = match self.interest {
                Interest::Writable => ready!(self.fd.poll_write_ready(cx))?,
                _ => ready!(self.fd.poll_read_ready(cx))?,
            };
            match attempt(self.fd.get_ref()) {
                Ok((result, is_spent)) => {
                    if is_spent {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(result));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}
