//! The threads of the driver: one reads a pipe, one writes a pipe, and one waits for the exit of a child.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use everlink::Fault as IoFault;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::mutants::Fault;

/// The maximum number of bytes per read.
const CHUNK: usize = 64 << 10;
/// The maximum wait for the end of the pipes after the exit of the child. A pipe has no end while another process holds it open.
const END_GRACE: Duration = Duration::from_millis(50);
/// With the fault `UnreadBytesDroppedAtExit`: the time from a read to its report. If the child exits in between, the bytes are lost.
const SLOW_REPORT: Duration = Duration::from_millis(20);

/// The result of a read. An empty vector means the end of the pipe.
pub(crate) type ReadResult = Result<Vec<u8>, IoFault>;

/// Reads a pipe, one chunk at a time.
pub(crate) struct ReaderThread(Sender<()>);

impl ReaderThread {
    /// Starts the thread, which reads the first chunk.
    pub(crate) fn new(
        mut pipe: impl Read + Send + 'static,
        fault: Option<Fault>,
        report: impl Fn(ReadResult) + Send + 'static,
    ) -> ReaderThread {
        let (sender, requests) = channel();
        spawn("read", move || {
            let mut chunk = vec![0; CHUNK];
            for () in requests {
                let read = pipe.read(&mut chunk).map(|len| chunk[..len].to_vec());
                if fault == Some(Fault::UnreadBytesDroppedAtExit) {
                    thread::sleep(SLOW_REPORT);
                }
                let is_last = !read.as_ref().is_ok_and(|bytes| !bytes.is_empty());
                report(read.map_err(IoFault::from));
                if is_last {
                    return;
                }
            }
        });
        let reader = ReaderThread(sender);
        reader.read_next();
        reader
    }

    /// Requests the next chunk from the thread. Call it after the last chunk was handled.
    pub(crate) fn read_next(&self) {
        let _ = self.0.send(());
    }
}

/// Writes to a pipe. Dropping it closes the pipe after all queued bytes are written.
pub(crate) struct WriterThread(Sender<Vec<u8>>);

impl WriterThread {
    /// Starts the thread. It reports the number of bytes after each write, or the fault that ends it.
    pub(crate) fn new(
        pipe: impl Write + AsFd + Send + 'static,
        fault: Option<Fault>,
        report: impl Fn(Result<usize, IoFault>) + Send + 'static,
    ) -> WriterThread {
        let (sender, pieces) = channel();
        spawn("write", move || match fault {
            Some(Fault::BytesDroppedWhenPipeIsFull | Fault::PartialWriteCountedAsWhole) => {
                write_carelessly(pipe, fault, &pieces, report);
            }
            Some(Fault::SentWhenQueued) => write_all(pipe, &pieces, |written| {
                written.is_err().then(|| report(written));
            }),
            _ => write_all(pipe, &pieces, report),
        });
        WriterThread(sender)
    }

    /// Queues bytes to write.
    pub(crate) fn write(&self, bytes: &[u8]) {
        let _ = self.0.send(bytes.to_vec());
    }
}

fn write_all(
    mut pipe: impl Write,
    pieces: &Receiver<Vec<u8>>,
    report: impl Fn(Result<usize, IoFault>),
) {
    for piece in pieces {
        let mut rest = &*piece;
        while !rest.is_empty() {
            match pipe.write(rest) {
                Ok(len) => {
                    rest = &rest[len..];
                    report(Ok(len));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return report(Err(error.into())),
            }
        }
    }
}

/// Writes without blocking, and loses the bytes that do not fit.
fn write_carelessly(
    mut pipe: impl Write + AsFd,
    fault: Option<Fault>,
    pieces: &Receiver<Vec<u8>>,
    report: impl Fn(Result<usize, IoFault>),
) {
    let flags = fcntl_getfl(&pipe).expect("the pipe is open");
    fcntl_setfl(&pipe, flags | OFlags::NONBLOCK).expect("the pipe is open");
    for piece in pieces {
        let mut rest = &*piece;
        while let Ok(len @ 1..) = pipe.write(rest) {
            rest = &rest[len..];
            if fault == Some(Fault::PartialWriteCountedAsWhole) {
                break;
            }
        }
        report(Ok(piece.len()));
    }
}

/// Calls `report` after the process has exited, and after `pipes_ended` is disconnected or its grace is over.
pub(crate) fn watch_exit(
    exit_fd: OwnedFd,
    pipes_ended: Receiver<()>,
    fault: Option<Fault>,
    report: impl FnOnce() + Send + 'static,
) {
    spawn("exit", move || {
        while poll(&mut [PollFd::new(&exit_fd, PollFlags::IN)], None).is_err() {}
        if fault != Some(Fault::UnreadBytesDroppedAtExit) {
            let _ = pipes_ended.recv_timeout(END_GRACE);
        }
        report();
    });
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().name(name.into());
    thread.spawn(run).expect("the system has a thread");
}
