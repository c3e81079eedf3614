//! The threads that read and write pipes. They know neither the owner of a pipe nor its content.
//!
//! A thread that blocks on a pipe cannot be stopped: it ends when the pipe does. Dropping a reader or writer does not wait for its thread, and its
//! messages are ignored from then on.

use std::convert::Infallible;
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use everlink::{Fault, Input};

/// The maximum number of bytes per read.
const CHUNK: usize = 64 << 10;

/// A message of a reader.
pub(crate) enum Heard {
    Bytes(Vec<u8>),
    /// The end of the pipe, with its faults.
    End(Vec<Fault>),
}

/// Reads a pipe, one chunk at a time.
pub(super) struct Reader(Sender<()>);

impl Reader {
    /// Starts the thread, which reads the first chunk.
    pub(super) fn new(
        mut pipe: impl Read + Send + 'static,
        tell: impl Fn(Heard) + Send + 'static,
    ) -> io::Result<Reader> {
        let (next, wishes) = channel();
        let read = move || {
            let mut chunk = vec![0; CHUNK];
            for () in wishes {
                match patiently(|| pipe.read(&mut chunk)) {
                    Ok(0) => return tell(Heard::End(Vec::new())),
                    Ok(len) => tell(Heard::Bytes(chunk[..len].to_vec())),
                    Err(error) => return tell(Heard::End(vec![Fault::from(error)])),
                }
            }
        };
        spawn("everlink-read", read)?;
        let reader = Reader(next);
        reader.read_on();
        Ok(reader)
    }

    /// Reads the next chunk, after the last one was handled.
    pub(super) fn read_on(&self) {
        // The send fails only after the thread has reported the end.
        let _ = self.0.send(());
    }
}

/// Writes to a pipe. Dropping it closes the pipe after all queued bytes are written.
pub(crate) struct Writer(Sender<Vec<u8>>);

impl Writer {
    /// Starts the thread. It reports the number of bytes after each write, or the fault that ends it.
    pub(super) fn new(
        mut pipe: impl Write + Send + 'static,
        tell: impl Fn(Result<usize, Fault>) + Send + 'static,
    ) -> io::Result<Writer> {
        let (orders, inbox) = channel::<Vec<u8>>();
        let write = move || {
            for bytes in inbox {
                let mut rest = &*bytes;
                while !rest.is_empty() {
                    match patiently(|| pipe.write(rest)) {
                        Ok(len) => {
                            rest = &rest[len..];
                            tell(Ok(len));
                        }
                        Err(error) => return tell(Err(Fault::from(error))),
                    }
                }
            }
        };
        spawn("everlink-write", write)?;
        Ok(Writer(orders))
    }

    pub(super) fn write(&self, bytes: Vec<u8>) {
        // The send fails only after the thread has reported a fault.
        let _ = self.0.send(bytes);
    }
}

/// A writer that never blocks, because the bytes are queued for a thread. `None` once it is closed or writing has failed.
pub(crate) struct Pen(pub(super) Option<Writer>);

impl crate::pen::Pen for Pen {
    type Room = Infallible;

    fn write(&mut self, bytes: &mut Vec<u8>) -> Option<Input<'static>> {
        let bytes = mem::take(bytes);
        if let Some(writer) = &self.0 {
            writer.write(bytes);
        }
        None
    }

    fn room(&self) -> Option<Infallible> {
        None
    }
}

pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name(name.into());
    thread.spawn(run).map(drop)
}

fn patiently<T>(mut touch: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match touch() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            touched => return touched,
        }
    }
}
