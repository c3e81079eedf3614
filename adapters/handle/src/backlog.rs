//! A buffer of bytes that a driver has yet to write. Does not know the destination.

use std::cell::Cell;
use std::mem;

/// The largest buffer, in bytes, that a thread keeps for its next backlog.
const KEPT: usize = 16 << 10;

thread_local! {
    /// An empty buffer that this thread reuses for its next backlog. Most backlogs exist only for a moment.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A queue of bytes that could not be written yet. The total cost of copying is linear in the bytes pushed, however small the writes are. An empty
/// queue holds no memory.
#[derive(Debug, Default)]
pub struct Backlog {
    bytes: Vec<u8>,
    /// The number of bytes at the front of `bytes` that are already written.
    taken: usize,
}

impl Backlog {
    /// Creates an empty queue.
    #[must_use]
    pub const fn new() -> Backlog {
        Backlog {
            bytes: Vec::new(),
            taken: 0,
        }
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.bytes.capacity() == 0 && !bytes.is_empty() {
            // The thread-local buffer is gone while a thread ends.
            self.bytes = ROOM.try_with(Cell::take).unwrap_or_default();
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns all unwritten bytes, in order.
    #[must_use]
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// Whether no bytes are queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting().is_empty()
    }

    /// Removes the first `len` bytes, after they were written.
    pub fn took(&mut self, len: usize) {
        self.taken += len;
        if self.is_empty() {
            let mut room = mem::take(self).bytes;
            if room.capacity() <= KEPT {
                room.clear();
                let _ = ROOM.try_with(|kept| kept.set(room));
            }
        } else if self.taken > self.bytes.len() / 2 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Backlog;

    #[test]
    fn what_is_taken_in_pieces_is_what_was_put_in() {
        let mut backlog = Backlog::new();
        let (mut put, mut got) = (Vec::new(), Vec::new());
        for round in 0..1_000_usize {
            let bytes: Vec<u8> = (0..round % 97).map(|n| (n * round) as u8).collect();
            backlog.push(&bytes);
            put.extend(bytes);
            let len = backlog.waiting().len().min(round % 53);
            got.extend_from_slice(&backlog.waiting()[..len]);
            backlog.took(len);
        }
        got.extend_from_slice(backlog.waiting());
        assert_eq!(put, got);
    }

    #[test]
    fn no_room_is_kept() {
        let mut backlog = Backlog::new();
        backlog.push(&vec![0; 10 << 20]);
        backlog.took(10 << 20);
        assert!(backlog.is_empty());
        assert_eq!(backlog.bytes.capacity(), 0);
    }
}
