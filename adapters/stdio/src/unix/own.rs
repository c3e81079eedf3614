//! The standard streams of this very process, kept from everybody else in it. Knows not what is said on them.
//!
//! They are shared with whoever started the process, so whether they block is not ours to change: they are only touched when they will not.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::pipe::PIPE_BUF;
use rustix::stdio::{dup2_stdin, dup2_stdout};

use super::poll::poll;

/// A standard stream of this process.
#[derive(Debug)]
pub struct OwnStream(File);

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
    Ok((OwnStream(input.into()), OwnStream(output.into())))
}

impl OwnStream {
    /// Reads what is there.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](ErrorKind::WouldBlock) when nothing is there yet; otherwise as the system says.
    pub fn try_read(&self, chunk: &mut [u8]) -> io::Result<usize> {
        self.when(PollFlags::IN, |mut file| file.read(chunk))
    }

    /// Writes as much as there is room for.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](ErrorKind::WouldBlock) when there is no room yet; otherwise as the system says.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        // A pipe that can be written to takes this much without blocking.
        let gulp = &bytes[..bytes.len().min(PIPE_BUF)];
        self.when(PollFlags::OUT, |mut file| file.write(gulp))
    }

    fn when<T>(
        &self,
        ready: PollFlags,
        mut touch: impl FnMut(&File) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            if poll([Some(PollFd::new(&self.0, ready))], Some(Duration::ZERO))? == [false] {
                return Err(ErrorKind::WouldBlock.into());
            }
            match touch(&self.0) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                touched => return touched,
            }
        }
    }
}

/// Blocks, whether the stream does or not.
impl Read for OwnStream {
    fn read(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        poll([Some(PollFd::new(&self.0, PollFlags::IN))], None)?;
        passing(self.try_read(chunk))
    }
}

/// Blocks, whether the stream does or not.
impl Write for OwnStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        poll([Some(PollFd::new(&self.0, PollFlags::OUT))], None)?;
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
        self.0.as_fd()
    }
}

impl AsRawFd for OwnStream {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
