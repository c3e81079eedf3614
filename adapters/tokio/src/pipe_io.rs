//! Non-blocking reads and writes on pipes and other standard streams. Does not know their content.
//!
//! A stream is registered for writability only after it was full, because most writes succeed at once.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::task::{Context, Poll, ready};

use everlink::{Fault, Input};
use everlink_handle::Backlog;
use everlink_stdio::standard_streams::OwnedStream;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor that is registered for readability.
#[derive(Debug)]
pub(crate) struct Source<T: AsRawFd>(AsyncFd<T>);

impl<T: AsRawFd + AsFd> Source<T> {
    pub(crate) fn new(fd: T) -> Result<Source<T>, (T, io::Error)> {
        watch(fd, Interest::READABLE).map(Source)
    }

    pub(crate) fn get_ref(&self) -> &T {
        self.0.get_ref()
    }

    /// Calls `take` when the descriptor is readable. `take` also returns whether it emptied the descriptor.
    pub(crate) fn poll<R>(
        &self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(&T) -> io::Result<(R, bool)>,
    ) -> Poll<io::Result<R>> {
        loop {
            // Polled even if nothing has changed, because this code cannot tell whether the waker is still registered.
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            match take(self.0.get_ref()) {
                Ok((taken, is_empty)) => {
                    if is_empty {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(taken));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Source<OwnedStream> {
    /// Wraps our end of a pipe to another process.
    pub(crate) fn from_pipe(end: OwnedFd) -> io::Result<Source<OwnedStream>> {
        Source::new(OwnedStream::from_pipe(end)?).map_err(|(_, error)| error)
    }

    /// Reads the bytes that are available and returns their number; 0 at the end. If `empties_on_short_read` is true, a read that does not fill the
    /// buffer has emptied the stream.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        empties_on_short_read: bool,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, |stream| {
            let len = stream.try_read(buffer)?;
            Ok((len, empties_on_short_read && len > 0 && len < buffer.len()))
        })
    }
}

/// A readable stream of any kind.
#[derive(Debug)]
pub(crate) enum Reader {
    /// A regular file, which cannot be registered with the runtime: it is always ready.
    File(OwnedStream),
    Watched {
        source: Source<OwnedStream>,
        /// Whether a short read means that the stream is empty. False for a terminal, which returns one line at a time.
        empties_on_short_read: bool,
    },
}

impl Reader {
    pub(crate) fn new(stream: OwnedStream) -> io::Result<Reader> {
        let empties_on_short_read = is_pipe(&stream)?;
        match Source::new(stream) {
            Ok(source) => Ok(Reader::Watched {
                source,
                empties_on_short_read,
            }),
            Err((stream, error)) if error.kind() == ErrorKind::PermissionDenied => {
                Ok(Reader::File(stream))
            }
            Err((_, error)) => Err(error),
        }
    }

    /// Reads the bytes that are available and returns their number; 0 at the end.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Reader::File(stream) => Poll::Ready(stream.try_read(buffer)),
            Reader::Watched {
                source,
                empties_on_short_read,
            } => source.poll_read(cx, *empties_on_short_read, buffer),
        }
    }
}

/// Whether the stream is a pipe or a socket.
fn is_pipe(stream: &OwnedStream) -> io::Result<bool> {
    let kind = File::from(stream.as_fd().try_clone_to_owned()?)
        .metadata()?
        .file_type();
    Ok(kind.is_fifo() || kind.is_socket())
}

/// A writable stream, and the bytes that it did not take yet.
#[derive(Debug)]
pub(crate) struct Writer {
    /// `None` once it is closed or writing has failed.
    stream: Option<Sink>,
    unwritten: Backlog,
    /// Whether to close the stream once the queued bytes are written.
    closes_when_written: bool,
}

#[derive(Debug)]
enum Sink {
    /// The stream was never full, so it is not registered with the runtime.
    Unwatched(OwnedStream),
    Watched(AsyncFd<OwnedStream>),
}

impl Sink {
    const fn is_watched(&self) -> bool {
        matches!(self, Sink::Watched(_))
    }
}

impl Writer {
    pub(crate) const fn new(stream: OwnedStream) -> Writer {
        Writer {
            stream: Some(Sink::Unwatched(stream)),
            unwritten: Backlog::new(),
            closes_when_written: false,
        }
    }

    /// Queues bytes to write.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.stream.is_some() {
            self.unwritten.push(bytes);
        }
    }

    /// Closes the stream after all queued bytes are written.
    pub(crate) fn close(&mut self) {
        self.closes_when_written = true;
        self.close_if_done();
    }

    fn close_if_done(&mut self) {
        if self.closes_when_written && self.unwritten.is_empty() {
            self.stream = None;
        }
    }

    /// Writes queued bytes as far as possible without waiting.
    pub(crate) fn write(&mut self) -> Option<Input<'static>> {
        match &self.stream {
            Some(Sink::Unwatched(stream)) if !self.unwritten.is_empty() => {
                let written = stream.try_write(self.unwritten.as_slice());
                self.handle_written(written)
            }
            _ => None,
        }
    }

    /// Writes queued bytes when the stream is writable.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Input<'static>> {
        while !self.unwritten.is_empty() {
            let written = match watched(&mut self.stream) {
                Ok(None) => return Poll::Pending,
                Ok(Some(stream)) => {
                    let Poll::Ready(ready) = stream.poll_write_ready(cx) else {
                        return Poll::Pending;
                    };
                    ready.and_then(|mut ready| {
                        let queued = self.unwritten.as_slice();
                        let tried = ready.try_io(|stream| stream.get_ref().try_write(queued));
                        tried.unwrap_or_else(|_| Err(ErrorKind::WouldBlock.into()))
                    })
                }
                Err(error) => Err(error),
            };
            if let Some(input) = self.handle_written(written) {
                return Poll::Ready(input);
            }
        }
        Poll::Pending
    }

    fn handle_written(&mut self, written: io::Result<usize>) -> Option<Input<'static>> {
        match written {
            Ok(len) => {
                self.unwritten.consume(len);
                self.close_if_done();
                Some(Input::sent(len))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => {
                self.stream = None;
                Some(Input::write_failed(vec![Fault::from(error)]))
            }
        }
    }
}

/// Returns the stream, if there is one, registered with the runtime.
fn watched(stream: &mut Option<Sink>) -> io::Result<Option<&AsyncFd<OwnedStream>>> {
    if let Some(Sink::Unwatched(unwatched)) = stream.take_if(|it| !it.is_watched()) {
        let watched = watch(unwatched, Interest::WRITABLE).map_err(|(_, error)| error)?;
        *stream = Some(Sink::Watched(watched));
    }
    Ok(match stream {
        Some(Sink::Watched(stream)) => Some(stream),
        _ => None,
    })
}

/// Registers a descriptor with the runtime. Dropping the result closes it.
#[allow(
    deprecated,
    reason = "unsound only for types that close their descriptor before they are dropped; the alternative is `unsafe`"
)]
fn watch<T: AsRawFd + AsFd>(stream: T, interest: Interest) -> Result<AsyncFd<T>, (T, io::Error)> {
    AsyncFd::try_with_interest(stream, interest).map_err(|refused| refused.into_parts())
}
