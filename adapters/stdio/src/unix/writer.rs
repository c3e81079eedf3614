//! Writes to a non-blocking stream and queues the bytes that it did not take. Does not know the stream's owner.

use std::io::ErrorKind;
use std::sync::Arc;

use everlink::{Fault, Input};
use everlink_handle::Backlog;

use super::CHUNK;
use super::standard_streams::OwnedStream;

pub(crate) struct Writer {
    /// `None` once it is closed or writing has failed.
    stream: Option<Arc<OwnedStream>>,
    /// The bytes that could not be written yet.
    unwritten: Backlog,
    /// Whether to close the stream once those are written.
    closes_when_written: bool,
}

impl Writer {
    /// Creates a writer to this stream. Without a stream, it drops all bytes.
    pub(super) fn new(stream: Option<OwnedStream>) -> Writer {
        Writer {
            stream: stream.map(Arc::new),
            unwritten: Backlog::new(),
            closes_when_written: false,
        }
    }

    /// Closes the stream after all queued bytes are written.
    pub(super) fn close(&mut self) {
        self.closes_when_written = true;
        self.close_if_done();
    }

    fn close_if_done(&mut self) {
        if self.closes_when_written && self.unwritten.is_empty() {
            self.stream = None;
        }
    }

    /// Writes queued bytes, when the stream is writable again.
    pub(super) fn write_queued(&mut self) -> Option<Input<'static>> {
        self.write_after_queued(&[])
    }

    /// Writes the queued bytes first, then these. Bytes that the stream takes at once are not copied.
    fn write_after_queued(&mut self, mut bytes: &[u8]) -> Option<Input<'static>> {
        let stream = self.stream.as_ref()?;
        let mut sent = 0;
        let fault = loop {
            let queued = self.unwritten.as_slice();
            let next = if queued.is_empty() { bytes } else { queued };
            // The cap per turn leaves the rest to the next turn, so that this thread gets to its other work.
            if next.is_empty() || sent >= CHUNK {
                break None;
            }
            match stream.try_write(next) {
                Ok(len) => {
                    sent += len;
                    if queued.is_empty() {
                        bytes = &bytes[len..];
                    } else {
                        self.unwritten.consume(len);
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

impl crate::writer::Writer for Writer {
    type Stream = Arc<OwnedStream>;

    fn write(&mut self, bytes: &mut Vec<u8>) -> Option<Input<'static>> {
        let input = self.write_after_queued(bytes);
        bytes.clear();
        bytes.shrink_to(CHUNK);
        input
    }

    fn blocked_stream(&self) -> Option<Arc<OwnedStream>> {
        let stream = self.stream.as_ref().filter(|_| !self.unwritten.is_empty());
        stream.cloned()
    }
}
