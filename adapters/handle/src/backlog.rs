//! A buffer of bytes that a driver has yet to write. Does not know the destination.

use std::cell::Cell;
use std::mem;

/// The largest buffer, in bytes, that a thread keeps for its next backlog.
const MAX_SPARE: usize = 16 << 10;

thread_local! {
    /// An empty buffer that this thread reuses for its next backlog. Most backlogs exist only for a moment.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A queue of bytes that could not be written yet. The total cost of copying is linear in the bytes pushed, however small the writes are. An empty
/// queue holds no memory.
#[derive(Debug, Default)]
pub struct Backlog {
    bytes: Vec<u8>,
    /// The number of bytes at the front of `bytes` that are already written.
    written: usize,
}

impl Backlog {
    /// Creates an empty queue.
    #[must_use]
    pub const fn new() -> Backlog {
        Backlog {
            bytes: Vec::new(),
            written: 0,
        }
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.bytes.capacity() == 0 && !bytes.is_empty() {
            // The thread-local buffer is gone while a thread ends.
            self.bytes = SPARE.try_with(Cell::take).unwrap_or_default();
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns all unwritten bytes, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Whether no bytes are queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Removes the first `len` bytes, after they were written.
    pub fn consume(&mut self, len: usize) {
        self.written += len;
        if self.is_empty() {
            let mut spare = mem::take(self).bytes;
            if spare.capacity() <= MAX_SPARE {
                spare.clear();
                let _ = SPARE.try_with(|slot| slot.set(spare));
            }
        } else if self.written > self.bytes.len() / 2 {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Backlog;

    #[test]
    fn bytes_consumed_in_pieces_equal_the_bytes_pushed() {
        let mut backlog = Backlog::new();
        let (mut pushed, mut consumed) = (Vec::new(), Vec::new());
        for round in 0..1_000_usize {
            let bytes: Vec<u8> = (0..round % 97).map(|n| (n * round) as u8).collect();
            backlog.push(&bytes);
            pushed.extend(bytes);
            let len = backlog.as_slice().len().min(round % 53);
            consumed.extend_from_slice(&backlog.as_slice()[..len]);
            backlog.consume(len);
        }
        consumed.extend_from_slice(backlog.as_slice());
        assert_eq!(pushed, consumed);
    }

    #[test]
    fn emptied_backlog_holds_no_memory() {
        let mut backlog = Backlog::new();
        backlog.push(&vec![0; 10 << 20]);
        backlog.consume(10 << 20);
        assert!(backlog.is_empty());
        assert_eq!(backlog.bytes.capacity(), 0);
    }
}
