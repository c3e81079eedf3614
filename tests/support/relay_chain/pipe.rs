//! One direction of a transport: bytes that were written and not yet read, cut into reads. Depends on no message
//! format.

use std::collections::VecDeque;

use crate::chunking::Chunking;

/// The number of bytes that the system buffers for a reader.
const CAPACITY: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Pipe {
    chunking: Chunking,
    /// The number of random numbers used for cuts so far.
    drawn: u64,
    pieces: VecDeque<Vec<u8>>,
    waiting: usize,
    /// The number of bytes at the end that the system has not accepted yet.
    unsent: usize,
    is_closed: bool,
    has_reported_end: bool,
}

/// The result of a read.
#[derive(Debug)]
pub(super) enum Read {
    /// Bytes, and how many of the writer's bytes the system accepted because of this read.
    Bytes(Vec<u8>, usize),
    /// End of file, reported once.
    End,
    /// Nothing yet.
    Nothing,
}

impl Pipe {
    pub(super) const fn new(chunking: Chunking) -> Pipe {
        Pipe {
            chunking,
            drawn: 0,
            pieces: VecDeque::new(),
            waiting: 0,
            unsent: 0,
            is_closed: false,
            has_reported_end: false,
        }
    }

    /// Writes bytes. Returns how many bytes, of these and of earlier ones, the system accepts at once.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        let cut = self.chunking.cut(bytes, &mut self.drawn);
        self.pieces.extend(cut.into_iter().map(<[u8]>::to_vec));
        self.waiting += bytes.len();
        self.unsent += bytes.len();
        self.accept_unsent()
    }

    /// Ends the pipe after the bytes that are already written.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Drops all bytes that wait.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        (self.waiting, self.unsent) = (0, 0);
    }

    pub(super) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether a read would return bytes or the end.
    pub(super) fn is_readable(&self) -> bool {
        !self.pieces.is_empty() || self.is_closed && !self.has_reported_end
    }

    pub(super) fn read(&mut self) -> Read {
        let bytes = match self.chunking {
            Chunking::Joined => self.pieces.drain(..).flatten().collect(),
            Chunking::Bytes | Chunking::Random(_) | Chunking::Whole => {
                self.pieces.pop_front().unwrap_or_default()
            }
        };
        if bytes.is_empty() {
            let is_end = self.is_closed && !self.has_reported_end;
            self.has_reported_end |= is_end;
            return if is_end { Read::End } else { Read::Nothing };
        }
        self.waiting -= bytes.len();
        // The system has accepted every byte that was read.
        let accepted_by_reading = self.unsent.saturating_sub(self.waiting);
        self.unsent -= accepted_by_reading;
        let accepted = accepted_by_reading + self.accept_unsent();
        Read::Bytes(bytes, accepted)
    }

    fn accept_unsent(&mut self) -> usize {
        let buffered = self.waiting - self.unsent;
        let accepted = self.unsent.min(CAPACITY.saturating_sub(buffered));
        self.unsent -= accepted;
        accepted
    }
}
