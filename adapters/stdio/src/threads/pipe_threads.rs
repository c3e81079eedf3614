//! The threads that read and write pipes. They know neither the owner of a pipe nor its content.
//!
//! A thread that blocks on a pipe cannot be stopped: it ends when the pipe does. Dropping a reader or writer does not wait for its thread, and its
//! messages are ignored from then on.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use everlink::Fault;

/// The maximum number of bytes per read.
const CHUNK: usize = 64 << 10;

/// A message of a reader.
pub(super) enum ReadResult {
    Bytes(Vec<u8>),
    /// The end of the pipe, with its faults.
    End(Vec<Fault>),
}

/// Reads a pipe, one chunk at a time.
pub(super) struct ReaderThread(Sender<()>);

impl ReaderThread {
    /// Starts the thread, which reads the first chunk.
    pub(super) fn new(
        mut pipe: impl Read + Send + 'static,
        report: impl Fn(ReadResult) + Send + 'static,
    ) -> io::Result<ReaderThread> {
        let (request_sender, requests) = channel();
        let read = move || {
            let mut chunk = vec![0; CHUNK];
            for () in requests {
                match retry_interrupted(|| pipe.read(&mut chunk)) {
                    Ok(0) => return report(ReadResult::End(Vec::new())),
                    Ok(len) => report(ReadResult::Bytes(chunk[..len].to_vec())),
                    Err(error) => return report(ReadResult::End(vec![Fault::from(error)])),
                }
            }
        };
        spawn("everlink-read", read)?;
        let reader = ReaderThread(request_sender);
        reader.read_next();
        Ok(reader)
    }

    /// Reads the next chunk, after the last one was handled.
    pub(super) fn read_next(&self) {
        // The send fails only after the thread has reported the end.
        let _ = self.0.send(());
    }
}

/// Writes to a pipe. Dropping it closes the pipe after all queued bytes are written.
pub(super) struct WriterThread(Sender<Vec<u8>>);

impl WriterThread {
    /// Starts the thread. It reports the number of bytes after each write, or the fault that ends it.
    pub(super) fn new(
        mut pipe: impl Write + Send + 'static,
        report: impl Fn(Result<usize, Fault>) + Send + 'static,
    ) -> io::Result<WriterThread> {
        let (sender, receiver) = channel::<Vec<u8>>();
        let write = move || {
            for bytes in receiver {
                let mut rest = &*bytes;
                while !rest.is_empty() {
                    match retry_interrupted(|| pipe.write(rest)) {
                        Ok(len) => {
                            rest = &rest[len..];
                            report(Ok(len));
                        }
                        Err(error) => return report(Err(Fault::from(error))),
                    }
                }
            }
        };
        spawn("everlink-write", write)?;
        Ok(WriterThread(sender))
    }

    /// Queues bytes to write.
    pub(super) fn write(&self, bytes: &[u8]) {
        // The send fails only after the thread has reported a fault.
        let _ = self.0.send(bytes.to_vec());
    }
}

pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.into());
    thread.spawn(run).map(drop)
}

fn retry_interrupted<T>(mut operation: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match operation() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
