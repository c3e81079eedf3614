//! Ends of pipes and whatever else can be a standard stream, read and written without waiting. Knows not what goes through them.
//!
//! What the runtime knows of a descriptor is looked at before it is asked to watch it: as long as nothing has happened since it was asked
//! last, to look is all that there is to do. What is written to is not watched at all before it is full.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::task::{Context, Poll};

use everlink::{Fault, Input};
use everlink_handle::Backlog;
use everlink_stdio::own::OwnStream;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::coop::has_budget_remaining;

/// Something that has more to tell when it is readable. Whoever polls it with another waker than before says so.
#[derive(Debug)]
pub(crate) struct Source<T: AsRawFd> {
    fd: AsyncFd<T>,
    /// The waker is woken when it is readable.
    is_armed: bool,
}

impl<T: AsRawFd + AsFd> Source<T> {
    pub(crate) fn new(fd: T) -> Result<Source<T>, (T, io::Error)> {
        watch(fd, Interest::READABLE).map(|fd| Source {
            fd,
            is_armed: false,
        })
    }

    pub(crate) fn get_ref(&self) -> &T {
        self.fd.get_ref()
    }

    /// There is another waker.
    pub(crate) const fn disarm(&mut self) {
        self.is_armed = false;
    }

    /// Takes what there is once it is readable. `take` says whether it left nothing behind.
    pub(crate) fn poll<R>(
        &mut self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(&T) -> io::Result<(R, bool)>,
    ) -> Poll<io::Result<R>> {
        loop {
            let (mut is_woken, mut taken) = (false, None);
            let tried = self.fd.try_io(Interest::READABLE, |fd| {
                is_woken = true;
                let (it, is_empty) = take(fd)?;
                taken = Some(it);
                // Only so can it be said that nothing is left.
                let left = if is_empty {
                    Err(ErrorKind::WouldBlock)
                } else {
                    Ok(())
                };
                Ok(left?)
            });
            self.is_armed &= !is_woken;
            match (taken, tried) {
                (Some(taken), _) => return Poll::Ready(Ok(taken)),
                (None, Err(error)) if error.kind() != ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(error));
                }
                (None, _) if self.is_armed => return Poll::Pending,
                (None, _) => {}
            }
            match self.fd.poll_read_ready(cx) {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    // A task that has had its turn was not even looked after.
                    self.is_armed = has_budget_remaining();
                    return Poll::Pending;
                }
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
        &mut self,
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

    /// There is another waker.
    pub(crate) const fn disarm(&mut self) {
        if let Reader::Watched { source, .. } = self {
            source.disarm();
        }
    }

    /// Reads what is there, and says how much; nothing at its end.
    pub(crate) fn poll_read(
        &mut self,
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
