//! Writes to a stream that does not block, and keeps what it did not take. Knows not whose the stream is.

use std::io::ErrorKind;
use std::sync::Arc;

use everlink::{Fault, Input};
use everlink_handle::Backlog;

use super::CHUNK;
use super::own::OwnStream;

pub(crate) struct Pen {
    /// Nothing once it was closed, or nobody reads it any more.
    stream: Option<Arc<OwnStream>>,
    /// What could not be written yet.
    unwritten: Backlog,
    /// No more will be written than that.
    closes: bool,
}

impl Pen {
    /// One for this stream; without one, what is written is lost.
    pub(super) fn new(stream: Option<OwnStream>) -> Pen {
        Pen {
            stream: stream.map(Arc::new),
            unwritten: Backlog::new(),
            closes: false,
        }
    }

    /// Closes the stream, after the last of what is to be written.
    pub(super) fn close(&mut self) {
        self.closes = true;
        self.close_if_done();
    }

    fn close_if_done(&mut self) {
        if self.closes && self.unwritten.is_empty() {
            self.stream = None;
        }
    }

    /// There is room: goes on.
    pub(super) fn go_on(&mut self) -> Option<Input<'static>> {
        self.write_on(&[])
    }

    /// What waits goes first. What does not wait is not copied, if there is room for it.
    fn write_on(&mut self, mut bytes: &[u8]) -> Option<Input<'static>> {
        let stream = self.stream.as_ref()?;
        let mut sent = 0;
        let fault = loop {
            let waiting = self.unwritten.waiting();
            let next = if waiting.is_empty() { bytes } else { waiting };
            // Others wait for their turn.
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
                // It comes again with the next one.
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
