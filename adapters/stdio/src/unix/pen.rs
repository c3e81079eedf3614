//! Writes to a non-blocking stream and queues the bytes that it did not take. Does not know the stream's owner.

use std::io::ErrorKind;
use std::sync::Arc;

use everlink::{Fault, Input};
use everlink_handle::Backlog;

use super::CHUNK;
use super::own::OwnStream;

pub(crate) struct Pen {
    /// `None` once it is closed or writing has failed.
    stream: Option<Arc<OwnStream>>,
    /// The bytes that could not be written yet.
    unwritten: Backlog,
    /// Whether to close the stream once those are written.
    closes: bool,
}

impl Pen {
    /// Creates a writer to this stream. Without a stream, it drops all bytes.
    pub(super) fn new(stream: Option<OwnStream>) -> Pen {
        Pen {
            stream: stream.map(Arc::new),
            unwritten: Backlog::new(),
            closes: false,
        }
    }

    /// Closes the stream after all queued bytes are written.
    pub(super) fn close(&mut self) {
        self.closes = true;
        self.close_if_done();
    }

    fn close_if_done(&mut self) {
        if self.closes && self.unwritten.is_empty() {
            self.stream = None;
        }
    }

    /// Writes queued bytes, when the stream is writable again.
    pub(super) fn go_on(&mut self) -> Option<Input<'static>> {
        self.write_on(&[])
    }

    /// Writes the queued bytes first, then these. Bytes that the stream takes at once are not copied.
    fn write_on(&mut self, mut bytes: &[u8]) -> Option<Input<'static>> {
        let stream = self.stream.as_ref()?;
        let mut sent = 0;
        let fault = loop {
            let waiting = self.unwritten.waiting();
            let next = if waiting.is_empty() { bytes } else { waiting };
            // The cap per turn leaves the rest to the next turn, so that this thread gets to its other work.
            if next.is_empty() || sent >= CHUNK {
                break None;
            }
            match stream.try_write(next) {
                Ok(len) => {
                    sent += len;
                    if waiting.is_empty() {
                        bytes = &bytes[len..];
                    } else {
                        self.unwritten.took(len);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break None,
                // The bytes written so far are reported first. The next write returns the error again.
                Err(_) if sent > 0 => break None,
                Err(error) => break Some(Fault::from(error)),
            }
        };
        if let Some(fault) = fault {
            self.stream = None;
            return Some(Input::write_failed(vec![fault]));
        }
        self.unwritten.push(bytes);
        self.close_if_done();
        (sent > 0).then(|| Input::sent(sent))
    }
}

impl crate::pen::Pen for Pen {
    type Room = Arc<OwnStream>;

    fn write(&mut self, bytes: &mut Vec<u8>) -> Option<Input<'static>> {
        let input = self.write_on(bytes);
        bytes.clear();
        bytes.shrink_to(CHUNK);
        input
    }

    fn room(&self) -> Option<Arc<OwnStream>> {
        let stream = self.stream.as_ref().filter(|_| !self.unwritten.is_empty());
        stream.cloned()
    }
}
