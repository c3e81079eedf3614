//! The threads at the ends of pipes. They know neither whose the pipes are nor what is said in them.
//!
//! A thread that waits for a pipe cannot be told to stop: it ends when the pipe does. Whoever drops an end does not wait for that, and hears no
//! more of it.

use std::convert::Infallible;
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use everlink::{Fault, Input};

/// How much is read at once.
const CHUNK: usize = 64 << 10;

/// What a reader tells.
pub(crate) enum Heard {
    Bytes(Vec<u8>),
    /// No more will come, and why.
    End(Vec<Fault>),
}

/// Reads a pipe, one chunk at a time.
pub(super) struct Reader(Sender<()>);

impl Reader {
    /// Reads the first chunk.
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

    /// What was read has been heard: reads the next chunk.
    pub(super) fn read_on(&self) {
        // One that is gone has told that it came to the end.
        let _ = self.0.send(());
    }
}

/// Writes to a pipe. Dropped, it closes the pipe when all is written.
pub(crate) struct Writer(Sender<Vec<u8>>);

impl Writer {
    /// Tells how much was written, again and again, or why nothing more can be.
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
        // One that is gone has told why.
        let _ = self.0.send(bytes);
    }
}

/// What is written with: there is room for all of it, behind a thread. Nothing once it was closed, or nobody reads it any more.
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
