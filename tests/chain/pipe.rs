//! One direction of a transport: what was written and not read yet, cut into reads. Knows no message.

use std::collections::VecDeque;

use super::chunking::Chunking;

/// What a system takes of a writer before the reader has read it.
const CAPACITY: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Pipe {
    chunking: Chunking,
    /// How far the random cuts have come.
    drawn: u64,
    pieces: VecDeque<Vec<u8>>,
    waiting: usize,
    /// How many bytes at the end the system did not take yet.
    unsent: usize,
    is_closed: bool,
    has_told_end: bool,
}

/// What a reader finds.
#[derive(Debug)]
pub(super) enum Read {
    /// Bytes; and how many more of the writer's the system took for them.
    Bytes(Vec<u8>, usize),
    /// Nothing more will come. Told once.
    End,
    /// Nothing, for now.
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
            has_told_end: false,
        }
    }

    /// How many of these bytes, and of those before them, the system takes at once.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        let cut = self.chunking.cut(bytes, &mut self.drawn);
        self.pieces.extend(cut.into_iter().map(<[u8]>::to_vec));
        self.waiting += bytes.len();
        self.unsent += bytes.len();
        self.take()
    }

    /// Nothing more will be written.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// What waits is lost.
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

    /// Whether a read would find something.
    pub(super) fn has_news(&self) -> bool {
        !self.pieces.is_empty() || self.is_closed && !self.has_told_end
    }

    pub(super) fn read(&mut self) -> Read {
        let bytes = match self.chunking {
            Chunking::Joined => self.pieces.drain(..).flatten().collect(),
            Chunking::Bytes | Chunking::Random(_) | Chunking::Whole => {
                self.pieces.pop_front().unwrap_or_default()
            }
        };
        if bytes.is_empty() {
            let is_end = self.is_closed && !self.has_told_end;
            self.has_told_end |= is_end;
            return if is_end { Read::End } else { Read::Nothing };
        }
        self.waiting -= bytes.len();
        // What was read was taken.
        let by_reading = self.unsent.saturating_sub(self.waiting);
        self.unsent -= by_reading;
        let taken = by_reading + self.take();
        Read::Bytes(bytes, taken)
    }

    fn take(&mut self) -> usize {
        let held = self.waiting - self.unsent;
        let taken = self.unsent.min(CAPACITY.saturating_sub(held));
        self.unsent -= taken;
        taken
    }
}
