//! Ends of pipes and whatever else can be a standard stream, read and written without waiting. Knows not what goes through them.
//!
//! What is written to is not watched before it is full: most of what is written finds room at once.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::task::{Context, Poll, ready};

use everlink::{Fault, Input};
use everlink_handle::Backlog;
use everlink_stdio::own::OwnStream;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Something that has more to tell when it is readable.
#[derive(Debug)]
pub(crate) struct Source<T: AsRawFd>(AsyncFd<T>);

impl<T: AsRawFd + AsFd> Source<T> {
    pub(crate) fn new(fd: T) -> Result<Source<T>, (T, io::Error)> {
        watch(fd, Interest::READABLE).map(Source)
    }

    pub(crate) fn get_ref(&self) -> &T {
        self.0.get_ref()
    }

    /// Takes what there is once it is readable. `take` says whether it left nothing behind.
    pub(crate) fn poll<R>(
        &self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(&T) -> io::Result<(R, bool)>,
    ) -> Poll<io::Result<R>> {
        loop {
            // Also where nothing has changed: whether the waker is still known cannot be seen from here.
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

impl Source<OwnStream> {
    /// Our end of a pipe to another process.
    pub(crate) fn of_pipe(end: OwnedFd) -> io::Result<Source<OwnStream>> {
        Source::new(OwnStream::of_pipe(end)?).map_err(|(_, error)| error)
    }

    /// Reads what is there, and says how much; nothing at its end. Where it `gives_all`, a read that brings less than there is room for has
    /// emptied it.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        gives_all: bool,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, |stream| {
            let len = stream.try_read(room)?;
            Ok((len, gives_all && len > 0 && len < room.len()))
        })
    }
}

/// A stream of any kind that is read.
#[derive(Debug)]
pub(crate) enum Reader {
    /// A file, which the system does not watch: it is always ready.
    File(OwnStream),
    Watched {
        source: Source<OwnStream>,
        /// A terminal does not: it gives one line at a time.
        gives_all: bool,
    },
}

impl Reader {
    pub(crate) fn new(stream: OwnStream) -> io::Result<Reader> {
        let gives_all = is_pipe(&stream)?;
        match Source::new(stream) {
            Ok(source) => Ok(Reader::Watched { source, gives_all }),
            Err((stream, error)) if error.kind() == ErrorKind::PermissionDenied => {
                Ok(Reader::File(stream))
            }
            Err((_, error)) => Err(error),
        }
    }

    /// Reads what is there, and says how much; nothing at its end.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Reader::File(stream) => Poll::Ready(stream.try_read(room)),
            Reader::Watched { source, gives_all } => source.poll_read(cx, *gives_all, room),
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

/// A stream that is written to, and what it did not take yet.
#[derive(Debug)]
pub(crate) struct Writer {
    /// Nothing once it was closed, or nobody reads it any more.
    stream: Option<Sink>,
    unwritten: Backlog,
    /// No more will be written than that.
    closes: bool,
}

#[derive(Debug)]
enum Sink {
    /// It was never full.
    Unwatched(OwnStream),
    Watched(AsyncFd<OwnStream>),
}

impl Sink {
    const fn is_watched(&self) -> bool {
        matches!(self, Sink::Watched(_))
    }
}

impl Writer {
    pub(crate) const fn new(stream: OwnStream) -> Writer {
        Writer {
            stream: Some(Sink::Unwatched(stream)),
            unwritten: Backlog::new(),
            closes: false,
        }
    }

    /// These are to be written, after all that came before.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.stream.is_some() {
            self.unwritten.push(bytes);
        }
    }

    /// Closes it, after the last of what is to be written.
    pub(crate) fn close(&mut self) {
        self.closes = true;
        self.close_if_done();
    }

    fn close_if_done(&mut self) {
        if self.closes && self.unwritten.is_empty() {
            self.stream = None;
        }
    }

    /// Writes what there is room for now, as far as nothing has to be waited for.
    pub(crate) fn write(&mut self) -> Option<Input<'static>> {
        match &self.stream {
            Some(Sink::Unwatched(stream)) if !self.unwritten.is_empty() => {
                let written = stream.try_write(self.unwritten.waiting());
                self.wrote(written)
            }
            _ => None,
        }
    }

    /// Writes when there is room.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Input<'static>> {
        while !self.unwritten.is_empty() {
            let written = match watched(&mut self.stream) {
                Ok(None) => return Poll::Pending,
                Ok(Some(stream)) => {
                    let Poll::Ready(ready) = stream.poll_write_ready(cx) else {
                        return Poll::Pending;
                    };
                    ready.and_then(|mut ready| {
                        let waiting = self.unwritten.waiting();
                        let tried = ready.try_io(|stream| stream.get_ref().try_write(waiting));
                        tried.unwrap_or_else(|_| Err(ErrorKind::WouldBlock.into()))
                    })
                }
                Err(error) => Err(error),
            };
            if let Some(input) = self.wrote(written) {
                return Poll::Ready(input);
            }
        }
        Poll::Pending
    }

    fn wrote(&mut self, written: io::Result<usize>) -> Option<Input<'static>> {
        match written {
            Ok(len) => {
                self.unwritten.took(len);
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

/// The stream, if there is one, with the runtime watching it.
fn watched(stream: &mut Option<Sink>) -> io::Result<Option<&AsyncFd<OwnStream>>> {
    if let Some(Sink::Unwatched(unwatched)) = stream.take_if(|it| !it.is_watched()) {
        let watched = watch(unwatched, Interest::WRITABLE).map_err(|(_, error)| error)?;
        *stream = Some(Sink::Watched(watched));
    }
    Ok(match stream {
        Some(Sink::Watched(stream)) => Some(stream),
        _ => None,
    })
}

/// Has the runtime watch a descriptor, which is closed when nobody watches it any more.
#[allow(
    deprecated,
    reason = "unsound only for what closes its descriptor before it is dropped; the way without that is unsafe to write"
)]
fn watch<T: AsRawFd + AsFd>(stream: T, interest: Interest) -> Result<AsyncFd<T>, (T, io::Error)> {
    AsyncFd::try_with_interest(stream, interest).map_err(|refused| refused.into_parts())
}
