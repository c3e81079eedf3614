//! The standard streams of this process, kept from all other code in it. Does not know their content.
//!
//! The streams are shared with the process that started this one, so their blocking mode must not change. A pipe is reopened, for our use only. A
//! socket is told at each call not to block. Any other file is accessed only when `poll` reports it ready.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::pipe::PIPE_BUF;
use rustix::stdio::{dup2_stdin, dup2_stdout};

use super::poll::poll;
use crate::claim::Claim;

/// A standard stream of this process, or our end of a pipe to another process.
#[derive(Debug)]
pub struct OwnedStream {
    file: File,
    access_mode: AccessMode,
}

/// How the stream is accessed without blocking.
#[derive(Clone, Copy, Debug)]
enum AccessMode {
    /// With `MSG_DONTWAIT` at each call: a socket.
    DontWait,
    /// In non-blocking mode, because nobody shares its open file description: a pipe that we opened ourselves.
    Nonblocking,
    /// Only when `poll` reports it ready: a terminal, a file, or a pipe that cannot be reopened.
    Polled,
}

/// Takes over standard input and output. From here on, other code that reads standard input finds it empty. Other code that prints to standard output
/// prints to standard error. Child processes inherit neither.
///
/// # Errors
///
/// When there are no standard streams, they are already taken, or the system has no descriptor left.
pub fn take() -> io::Result<(OwnedStream, OwnedStream)> {
    take_with(|input, output| Ok((input, output)))
}

/// Takes the streams over like [`take`], once this function has prepared them. If it fails, the process keeps its streams, and can try again.
pub(crate) fn take_with<T>(
    prepare: impl FnOnce(OwnedStream, OwnedStream) -> io::Result<T>,
) -> io::Result<T> {
    static STREAMS: Claim = Claim::new();
    STREAMS.take(|| {
        // Use numbers above those of the three standard streams.
        let input = fcntl_dupfd_cloexec(io::stdin(), 3)?;
        let output = fcntl_dupfd_cloexec(io::stdout(), 3)?;
        let null = File::open("/dev/null")?;
        let prepared = prepare(
            OwnedStream::new(input.into(), OFlags::RDONLY),
            OwnedStream::new(output.into(), OFlags::WRONLY),
        )?;
        dup2_stdout(io::stderr())?;
        dup2_stdin(null)?;
        Ok(prepared)
    })
}

impl OwnedStream {
    /// Wraps our end of a pipe to another process, and makes it non-blocking. The end must not be shared.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    pub fn from_pipe(end: OwnedFd) -> io::Result<OwnedStream> {
        fcntl_setfl(&end, fcntl_getfl(&end)? | OFlags::NONBLOCK)?;
        Ok(OwnedStream::nonblocking(end.into()))
    }

    const fn nonblocking(file: File) -> OwnedStream {
        let access_mode = AccessMode::Nonblocking;
        OwnedStream { file, access_mode }
    }

    fn new(file: File, access: OFlags) -> OwnedStream {
        if let Some(file) = reopen::open(&file, access) {
            return OwnedStream::nonblocking(file);
        }
        let is_socket = file.metadata().is_ok_and(|it| it.file_type().is_socket());
        let access_mode = if is_socket {
            AccessMode::DontWait
        } else {
            AccessMode::Polled
        };
        OwnedStream { file, access_mode }
    }

    /// Reads the bytes that are available.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](ErrorKind::WouldBlock) when no bytes are available yet; otherwise the error of the system call.
    pub fn try_read(&self, chunk: &mut [u8]) -> io::Result<usize> {
        retry_interrupted(|| match self.access_mode {
            AccessMode::DontWait => Ok(recv(&self.file, &mut *chunk, RecvFlags::DONTWAIT)?.0),
            AccessMode::Nonblocking => (&self.file).read(chunk),
            AccessMode::Polled => self
                .check_ready(PollFlags::IN)
                .and_then(|()| (&self.file).read(chunk)),
        })
    }

    /// Writes as many bytes as possible without blocking.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](ErrorKind::WouldBlock) when no byte can be written yet; otherwise the error of the system call.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        retry_interrupted(|| match self.access_mode {
            AccessMode::DontWait => Ok(send(&self.file, bytes, SendFlags::DONTWAIT)?),
            AccessMode::Nonblocking => (&self.file).write(bytes),
            AccessMode::Polled => {
                // A writable pipe takes this many bytes without blocking.
                let piece = &bytes[..bytes.len().min(PIPE_BUF)];
                self.check_ready(PollFlags::OUT)
                    .and_then(|()| (&self.file).write(piece))
            }
        })
    }

    fn check_ready(&self, ready: PollFlags) -> io::Result<()> {
        let is_ready = self.wait(ready, Some(Duration::ZERO))?;
        is_ready.then_some(()).ok_or(ErrorKind::WouldBlock.into())
    }

    /// Waits until the stream is ready. Returns false after the timeout.
    fn wait(&self, ready: PollFlags, timeout: Option<Duration>) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.file, ready)];
        poll(&mut fds, timeout)?;
        Ok(!fds[0].revents().is_empty())
    }
}

/// Reopens a pipe: the new open file description refers to the same pipe and has flags of its own.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod reopen {
    use std::os::fd::AsRawFd;

    use rustix::fs::{Mode, open as open_file};

    use super::{File, OFlags};

    pub(super) fn open(file: &File, access: OFlags) -> Option<File> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let target = std::fs::read_link(&path).ok()?;
        // A named pipe is not reopened: if the other end was already closed, the new opening would not learn of that.
        target.to_str().filter(|it| it.starts_with("pipe:"))?;
        let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Some(open_file(path, flags, Mode::empty()).ok()?.into())
    }
}

/// Other systems have no path by which a pipe could be reopened.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod reopen {
    use super::{File, OFlags};

    pub(super) fn open(_: &File, _: OFlags) -> Option<File> {
        None
    }
}

fn retry_interrupted<T>(mut operation: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match operation() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Blocks until the stream is ready, whatever its mode.
impl Read for OwnedStream {
    fn read(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        self.wait(PollFlags::IN, None)?;
        would_block_to_interrupted(self.try_read(chunk))
    }
}

/// Blocks until the stream is ready, whatever its mode.
impl Write for OwnedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(PollFlags::OUT, None)?;
        would_block_to_interrupted(self.try_write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Turns `WouldBlock` into `Interrupted`, so that callers retry: another process was faster.
fn would_block_to_interrupted<T>(result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::Interrupted.into(),
        _ => error,
    })
}

impl AsFd for OwnedStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for OwnedStream {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
