//! The standard streams of this very process, kept from everybody else in it. Knows not what is said on them.
//!
//! They are shared with whoever started the process, so whether they block is not ours to change. A pipe is opened once more, for ourselves; a
//! socket is asked each time not to block; whatever else it is, it is only touched when it will not.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::pipe::PIPE_BUF;
use rustix::stdio::{dup2_stdin, dup2_stdout};

use super::poll::poll;

/// A standard stream of this process, or our end of another's.
#[derive(Debug)]
pub struct OwnStream {
    file: File,
    manner: Manner,
}

/// How it is touched without being blocked.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// Each time it is asked not to: a socket.
    Asked,
    /// It does not block, and that is nobody else's business: a pipe that we have opened ourselves.
    Free,
    /// Only when it is ready: a terminal, a file, a pipe that cannot be opened once more.
    Guarded,
}

/// Takes standard input and output over. From here on, what else reads standard input finds it empty, what else prints to standard output
/// prints to standard error, and processes that are started inherit neither.
///
/// # Errors
///
/// When there are none, they were taken before, or the system has no descriptor left.
pub fn take() -> io::Result<(OwnStream, OwnStream)> {
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);
    if IS_TAKEN.swap(true, Ordering::Relaxed) {
        let text = "the standard streams of this process are taken already";
        return Err(io::Error::new(ErrorKind::AlreadyExists, text));
    }
    let taken = take_over();
    if taken.is_err() {
        IS_TAKEN.store(false, Ordering::Relaxed);
    }
    taken
}

fn take_over() -> io::Result<(OwnStream, OwnStream)> {
    // Numbers above the three that everybody knows.
    let input = fcntl_dupfd_cloexec(io::stdin(), 3)?;
    let output = fcntl_dupfd_cloexec(io::stdout(), 3)?;
    let nothing = File::open("/dev/null")?;
    dup2_stdout(io::stderr())?;
    dup2_stdin(nothing)?;
    let input = OwnStream::of(input.into(), OFlags::RDONLY);
    let output = OwnStream::of(output.into(), OFlags::WRONLY);
    Ok((input, output))
}

impl OwnStream {
    /// Our end of a pipe to another process, which is nobody else's: from here on it does not block.
    ///
    /// # Errors
    ///
    /// As the system says.
    pub fn of_pipe(end: OwnedFd) -> io::Result<OwnStream> {
        fcntl_setfl(&end, fcntl_getfl(&end)? | OFlags::NONBLOCK)?;
        Ok(OwnStream::free(end.into()))
    }

    const fn free(file: File) -> OwnStream {
        let manner = Manner::Free;
        OwnStream { file, manner }
    }

    fn of(file: File, access: OFlags) -> OwnStream {
        if let Some(file) = again::open(&file, access) {
            return OwnStream::free(file);
        }
        let is_socket = file.metadata().is_ok_and(|it| it.file_type().is_socket());
        let manner = if is_socket {
            Manner::Asked
        } else {
            Manner::Guarded
        };
        OwnStream { file, manner }
    }

    /// Reads what is there.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](ErrorKind::WouldBlock) when nothing is there yet; otherwise as the system says.
    pub fn try_read(&self, chunk: &mut [u8]) -> io::Result<usize> {
        patiently(|| match self.manner {
            Manner::Asked => Ok(recv(&self.file, &mut *chunk, RecvFlags::DONTWAIT)?.0),
            Manner::Free => (&self.file).read(chunk),
            Manner::Guarded => self
                .is(PollFlags::IN)
                .and_then(|()| (&self.file).read(chunk)),
        })
    }

    /// Writes as much as there is room for.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](ErrorKind::WouldBlock) when there is no room yet; otherwise as the system says.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        patiently(|| match self.manner {
            Manner::Asked => Ok(send(&self.file, bytes, SendFlags::DONTWAIT)?),
            Manner::Free => (&self.file).write(bytes),
            Manner::Guarded => {
                // A pipe that can be written to takes this much without blocking.
                let gulp = &bytes[..bytes.len().min(PIPE_BUF)];
                self.is(PollFlags::OUT)
                    .and_then(|()| (&self.file).write(gulp))
            }
        })
    }

    fn is(&self, ready: PollFlags) -> io::Result<()> {
        let is_ready =
            poll([Some(PollFd::new(&self.file, ready))], Some(Duration::ZERO))? == [true];
        is_ready.then_some(()).ok_or(ErrorKind::WouldBlock.into())
    }
}

/// A pipe that is opened once more is the same pipe, and what is said of this opening is said of no other.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod again {
    use std::os::fd::AsRawFd;

    use rustix::fs::{Mode, open as open_file};

    use super::{File, OFlags};

    pub(super) fn open(file: &File, access: OFlags) -> Option<File> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let target = std::fs::read_link(&path).ok()?;
        // One with a name cannot: who opens it before its other end is open is not told when that is closed.
        target.to_str().filter(|it| it.starts_with("pipe:"))?;
        let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Some(open_file(path, flags, Mode::empty()).ok()?.into())
    }
}

/// Nowhere else is there a name by which it could be.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod again {
    use super::{File, OFlags};

    pub(super) fn open(_: &File, _: OFlags) -> Option<File> {
        None
    }
}

fn patiently<T>(mut touch: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match touch() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            touched => return touched,
        }
    }
}

/// Blocks, whether the stream does or not.
impl Read for OwnStream {
    fn read(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        poll([Some(PollFd::new(&self.file, PollFlags::IN))], None)?;
        passing(self.try_read(chunk))
    }
}

/// Blocks, whether the stream does or not.
impl Write for OwnStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        poll([Some(PollFd::new(&self.file, PollFlags::OUT))], None)?;
        passing(self.try_write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where somebody else was faster, it is to be tried again.
fn passing<T>(touched: io::Result<T>) -> io::Result<T> {
    touched.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::Interrupted.into(),
        _ => error,
    })
}

impl AsFd for OwnStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for OwnStream {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
