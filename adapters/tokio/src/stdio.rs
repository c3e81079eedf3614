//! Hands for a server on the standard streams of its own process. Decides nothing.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileTypeExt;
use std::task::{Context, Poll};

use everlink::server::{Config, Server};
use everlink::{Epoch, Fault, Input, Output};
use everlink_handle::{Backlog, Service};
use everlink_stdio::own::{self, OwnStream};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::drive::{self, Handler, Hands};

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

    fn poll_read<'r>(&mut self, cx: &mut Context<'_>, room: &'r mut [u8]) -> Poll<Input<'r>> {
        let Some(input) = &self.input else {
            return Poll::Pending;
        };
        input.poll_read(cx, room).map(|read| {
            let faults = match read {
                Ok(0) => Vec::new(),
                Ok(len) => return Input::bytes(&room[..len]),
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

    fn poll_heard<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        room: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        let mut heard: Poll<Input<'r>> = self.poll_write(cx);
        if heard.is_pending() && reads {
            heard = self.poll_read(cx, room);
        }
        heard.map(|input| (Epoch::FIRST, input))
    }
}

/// One standard stream.
#[derive(Debug)]
enum Stream {
    /// A file, which the system does not watch: it is always ready.
    File(OwnStream),
    Watched {
        stream: AsyncFd<OwnStream>,
        /// A read that brings less than there is room for has emptied it. A terminal gives one line at a time.
        gives_all: bool,
    },
}

impl Stream {
    fn new(stream: OwnStream, interest: Interest) -> io::Result<Stream> {
        match watch(stream, interest) {
            Ok(stream) => Ok(Stream::Watched {
                gives_all: is_pipe(stream.get_ref())?,
                stream,
            }),
            Err((stream, error)) => match error.kind() {
                ErrorKind::PermissionDenied => Ok(Stream::File(stream)),
                _ => Err(error),
            },
        }
    }

    fn poll_read(&self, cx: &mut Context<'_>, chunk: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::File(stream) => Poll::Ready(stream.try_read(chunk)),
            Stream::Watched { stream, gives_all } => loop {
                let Poll::Ready(ready) = stream.poll_read_ready(cx) else {
                    return Poll::Pending;
                };
                let mut ready = ready?;
                // Where it was not ready after all, it is looked at again when it is.
                if let Ok(read) = ready.try_io(|stream| stream.get_ref().try_read(chunk)) {
                    let len = *read.as_ref().unwrap_or(&0);
                    if *gives_all && len > 0 && len < chunk.len() {
                        ready.clear_ready();
                    }
                    return Poll::Ready(read);
                }
            },
        }
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::File(stream) => Poll::Ready(stream.try_write(bytes)),
            Stream::Watched { stream, .. } => loop {
                let Poll::Ready(ready) = stream.poll_write_ready(cx) else {
                    return Poll::Pending;
                };
                if let Ok(written) = ready?.try_io(|stream| stream.get_ref().try_write(bytes)) {
                    return Poll::Ready(written);
                }
            },
        }
    }
}

/// Whether it is a pipe or a socket.
fn is_pipe(stream: &OwnStream) -> io::Result<bool> {
    let kind = File::from(stream.as_fd().try_clone_to_owned()?)
        .metadata()?
        .file_type();
    Ok(kind.is_fifo() || kind.is_socket())
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
