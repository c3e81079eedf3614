//! Hands for a server on the standard streams of its own process. Decides nothing.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::task::{Context, Poll};

use everlink::server::{Config, Server};
use everlink::{Epoch, Fault, Input, Output};
use everlink_handle::{Backlog, Service};
use everlink_stdio::own::{self, OwnStream};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::drive::{self, Handler, Hands};

/// How much is read at once.
const CHUNK: usize = 16 << 10;

/// Serves the client at the standard streams of this process. Only inside a runtime with I/O and time.
///
/// From here on the standard streams are the server's own: what else reads standard input finds it empty, what else prints to standard output
/// prints to standard error, and processes that are started inherit neither. The server ends with its input; [`Service::closed`]
/// waits for that.
///
/// # Errors
///
/// When there are no standard streams, or the system has no descriptor left.
pub fn serve(config: Config, handler: impl Handler) -> io::Result<Service> {
    let (service, owner) = Service::new(Server::new(config));
    let streams = Streams::take()?;
    tokio::spawn(async move {
        drop(drive::serve(owner, streams, handler).await);
    });
    Ok(service)
}

/// Hands for the standard streams of this process.
#[derive(Debug)]
pub struct Streams {
    /// Nothing after its end.
    input: Option<Stream>,
    /// Nothing when nobody reads it any more.
    output: Option<Stream>,
    unwritten: Backlog,
}

impl Streams {
    /// Takes them over; see [`own::take`].
    ///
    /// # Errors
    ///
    /// When there are none, or the system has no descriptor left.
    pub fn take() -> io::Result<Streams> {
        let (input, output) = own::take()?;
        Ok(Streams {
            input: Some(Stream::new(input, Interest::READABLE)?),
            output: Some(Stream::new(output, Interest::WRITABLE)?),
            unwritten: Backlog::new(),
        })
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Input<'static>> {
        let Some(output) = self.output.as_ref().filter(|_| !self.unwritten.is_empty()) else {
            return Poll::Pending;
        };
        output
            .poll_write(cx, self.unwritten.waiting())
            .map(|written| match written {
                Ok(len) => {
                    self.unwritten.took(len);
                    Input::sent(len)
                }
                Err(error) => {
                    self.output = None;
                    Input::write_failed(vec![Fault::from(error)])
                }
            })
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Input<'static>> {
        let Some(input) = &self.input else {
            return Poll::Pending;
        };
        let mut chunk = [0; CHUNK];
        input.poll_read(cx, &mut chunk).map(|read| {
            let faults = match read {
                Ok(0) => Vec::new(),
                Ok(len) => return Input::bytes(chunk[..len].to_vec()),
                Err(error) => vec![Fault::from(error)],
            };
            self.input = None;
            Input::end(faults)
        })
    }
}

impl Hands for Streams {
    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]) {
        match output {
            Output::Write { .. } => self.unwritten.push(bytes),
            Output::Release { .. } => (self.input, self.output) = (None, None),
            other => unreachable!("a server has one stream: {other:?}"),
        }
    }

    fn poll_heard(&mut self, cx: &mut Context<'_>, reads: bool) -> Poll<(Epoch, Input<'static>)> {
        let mut heard = self.poll_write(cx);
        if heard.is_pending() && reads {
            heard = self.poll_read(cx);
        }
        heard.map(|input| (Epoch::FIRST, input))
    }
}

/// One standard stream.
#[derive(Debug)]
enum Stream {
    /// A file, which the system does not watch: it is always ready.
    File(OwnStream),
    Watched(AsyncFd<OwnStream>),
}

impl Stream {
    fn new(stream: OwnStream, interest: Interest) -> io::Result<Stream> {
        match watch(stream, interest) {
            Ok(watched) => Ok(Stream::Watched(watched)),
            Err((stream, error)) => match error.kind() {
                ErrorKind::PermissionDenied => Ok(Stream::File(stream)),
                _ => Err(error),
            },
        }
    }

    fn poll_read(&self, cx: &mut Context<'_>, chunk: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::File(stream) => Poll::Ready(stream.try_read(chunk)),
            Stream::Watched(watched) => loop {
                let Poll::Ready(ready) = watched.poll_read_ready(cx) else {
                    return Poll::Pending;
                };
                // Where it was not ready after all, it is looked at again when it is.
                if let Ok(read) = ready?.try_io(|stream| stream.get_ref().try_read(chunk)) {
                    return Poll::Ready(read);
                }
            },
        }
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::File(stream) => Poll::Ready(stream.try_write(bytes)),
            Stream::Watched(watched) => loop {
                let Poll::Ready(ready) = watched.poll_write_ready(cx) else {
                    return Poll::Pending;
                };
                if let Ok(written) = ready?.try_io(|stream| stream.get_ref().try_write(bytes)) {
                    return Poll::Ready(written);
                }
            },
        }
    }
}

/// Has the runtime watch a descriptor, which is closed when nobody watches it any more.
#[allow(
    deprecated,
    reason = "unsound only for what closes its descriptor before it is dropped; the way without that is unsafe to write"
)]
pub(crate) fn watch<T: AsRawFd + AsFd>(
    stream: T,
    interest: Interest,
) -> Result<AsyncFd<T>, (T, io::Error)> {
    AsyncFd::try_with_interest(stream, interest).map_err(|refused| refused.into_parts())
}
