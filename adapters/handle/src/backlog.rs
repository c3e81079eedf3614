//! Bytes that wait to be written, for drivers. Knows not to what.

use std::cell::Cell;
use std::mem;

/// As much room is kept for who has something to write next.
const KEPT: usize = 16 << 10;

thread_local! {
    /// What was needed last on this thread, by whomever: most of what waits does so for a moment.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What could not be written yet. However slowly it is taken, each byte is moved a bounded number of times; while nothing waits, it holds no memory.
#[derive(Debug, Default)]
pub struct Backlog {
    bytes: Vec<u8>,
    /// So many of them were taken.
    taken: usize,
}

impl Backlog {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Backlog {
        Backlog {
            bytes: Vec::new(),
            taken: 0,
        }
    }

    /// These, too.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.bytes.capacity() == 0 && !bytes.is_empty() {
            // A thread that ends has none.
            self.bytes = ROOM.try_with(Cell::take).unwrap_or_default();
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// All that waits, in order.
    #[must_use]
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting().is_empty()
    }

    /// So many were written.
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
