//! Non-blocking reads and writes on pipes and other standard streams, with any reactor. Does not know their content.
//!
//! A stream is registered for writability only after it was full, because most writes succeed at once.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::task::{Context, Poll};

use everlink::{Fault, Input};
use everlink_handle::Backlog;

use super::reactor::{Interest, Reactor, Registered};
use super::standard_streams::OwnedStream;

/// A readable stream of any kind.
pub(super) enum Reader<R: Reactor> {
    /// A regular file, which cannot be registered with some reactors: it is always ready.
    File(OwnedStream),
    Registered {
        stream: R::Registered<OwnedStream>,
        /// Whether a short read means that the stream is empty. False for a terminal, which returns one line at a time.
        empties_on_short_read: bool,
    },
}

impl<R: Reactor> Reader<R> {
    /// Wraps our end of a pipe to another process.
    pub(super) fn from_pipe(end: OwnedFd, reactor: &R) -> io::Result<Reader<R>> {
        Reader::new(OwnedStream::from_pipe(end)?, reactor)
    }

    pub(super) fn new(stream: OwnedStream, reactor: &R) -> io::Result<Reader<R>> {
        let empties_on_short_read = is_pipe(&stream)?;
        match reactor.register(stream, Interest::Readable) {
            Ok(stream) => Ok(Reader::Registered {
                stream,
                empties_on_short_read,
            }),
            Err((stream, error)) if error.kind() == ErrorKind::PermissionDenied => {
                Ok(Reader::File(stream))
            }
            Err((_, error)) => Err(error),
        }
    }

    /// Reads the bytes that are available and returns their number; 0 at the end.
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Reader::File(stream) => Poll::Ready(stream.try_read(buffer)),
            Reader::Registered {
                stream,
                empties_on_short_read,
            } => stream.poll_io(cx, |stream| {
                let len = stream.try_read(buffer)?;
                let is_short = len > 0 && len < buffer.len();
                Ok((len, is_short && *empties_on_short_read))
            }),
        }
    }

    /// Reads without waiting. The result is [`Pending`](Poll::Pending) only if the stream is empty, whatever the reactor knows.
    pub(super) fn read_now(&self, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let stream = match self {
            Reader::File(stream) => stream,
            Reader::Registered { stream, .. } => stream.get_ref(),
        };
        match stream.try_read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
            read => Poll::Ready(read),
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
pub(super) struct Writer<R: Reactor> {
    /// `None` once it is closed or writing has failed.
    stream: Option<Sink<R>>,
    unwritten: Backlog,
    /// Whether to close the stream once the queued bytes are written.
    closes_when_written: bool,
    reactor: R,
}

enum Sink<R: Reactor> {
    /// The stream was never full.
    Unregistered(OwnedStream),
    Registered(R::Registered<OwnedStream>),
}

impl<R: Reactor> Writer<R> {
    pub(super) const fn new(stream: OwnedStream, reactor: R) -> Writer<R> {
        Writer {
            stream: Some(Sink::Unregistered(stream)),
            unwritten: Backlog::new(),
            closes_when_written: false,
            reactor,
        }
    }

    /// Queues bytes to write.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.stream.is_some() {
            self.unwritten.push(bytes);
        }
    }

    /// Closes the stream after all queued bytes are written.
    pub(super) fn close(&mut self) {
        self.closes_when_written = true;
        self.close_if_done();
    }

    fn close_if_done(&mut self) {
        if self.closes_when_written && self.unwritten.is_empty() {
            self.stream = None;
        }
    }

    /// Writes queued bytes when the stream is writable.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Input<'static>> {
        while !self.unwritten.is_empty() {
            let queued = self.unwritten.as_slice();
            let written = match &self.stream {
                None => return Poll::Pending,
                Some(Sink::Unregistered(stream)) => match stream.try_write(queued) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => match self.register() {
                        Ok(()) => continue,
                        Err(error) => Err(error),
                    },
                    written => written,
                },
                Some(Sink::Registered(stream)) => {
                    let attempt = |stream: &OwnedStream| Ok((stream.try_write(queued)?, false));
                    let Poll::Ready(written) = stream.poll_io(cx, attempt) else {
                        return Poll::Pending;
                    };
                    written
                }
            };
            return Poll::Ready(match written {
                Ok(len) => {
                    self.unwritten.consume(len);
                    self.close_if_done();
                    Input::sent(len)
                }
                Err(error) => {
                    self.stream = None;
                    Input::write_failed(vec![Fault::from(error)])
                }
            });
        }
        Poll::Pending
    }

    /// Registers the stream, because it is full.
    fn register(&mut self) -> io::Result<()> {
        if let Some(Sink::Unregistered(stream)) = self.stream.take() {
            let registered = self.reactor.register(stream, Interest::Writable);
            self.stream = Some(Sink::Registered(registered.map_err(|(_, error)| error)?));
        }
        Ok(())
    }
}
