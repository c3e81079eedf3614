//! One direction of a byte stream, and how it is cut into reads. Knows no machine.

use std::collections::VecDeque;

/// How many bytes a pipe takes before the reader has read them.
const PIPE: usize = 64 << 10;

/// How the bytes that were written are cut into reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cut {
    /// Each piece as it was written.
    Whole,
    /// One byte at a time.
    Bytes,
    /// All that was written so far in one read.
    Joined,
    /// Cut at random places, the same for the same seed.
    Random(u64),
}

impl Cut {
    /// All ways that two applications should survive.
    pub const ALL: [Cut; 5] = [
        Cut::Whole,
        Cut::Bytes,
        Cut::Joined,
        Cut::Random(1),
        Cut::Random(2),
    ];

    /// How many of the bytes that wait are read: at least one, at most all. `written` is the rest of the piece that was
    /// written first; `drawn` is how far the random numbers have come.
    fn length(self, waiting: usize, written: usize, drawn: &mut u64) -> usize {
        match self {
            Cut::Whole => written,
            Cut::Bytes => 1,
            Cut::Joined => waiting,
            Cut::Random(seed) => {
                *drawn += 1;
                let longest = [4, 40, 4_000][(mix(seed ^ *drawn) % 3) as usize];
                let drawn_len = mix(seed.wrapping_add(*drawn << 8)) % longest;
                waiting.min(drawn_len as usize + 1)
            }
        }
    }
}

pub(crate) fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 7
}

/// What was written in one direction and not read yet.
#[derive(Default)]
pub(crate) struct Pipe {
    pub(crate) bytes: Vec<u8>,
    /// How many bytes at the front were read already.
    read: usize,
    /// The lengths of the pieces as they were written, the first one without what was read of it.
    pieces: VecDeque<usize>,
    /// How many bytes at the end the pipe did not take yet.
    unsent: usize,
    drawn: u64,
}

impl Pipe {
    /// The writer appended a piece. Returns how many bytes the pipe takes at once.
    pub(crate) fn wrote(&mut self, len: usize) -> usize {
        if len > 0 {
            self.pieces.push_back(len);
        }
        self.unsent += len;
        self.taken()
    }

    /// Drops what the writer appended last.
    pub(crate) fn unwrite(&mut self, len: usize) {
        self.bytes.truncate(self.bytes.len() - len);
    }

    pub(crate) fn last(&self, len: usize) -> &[u8] {
        &self.bytes[self.bytes.len() - len..]
    }

    /// How many more bytes the pipe takes, now that there is room.
    pub(crate) fn taken(&mut self) -> usize {
        let held = self.waiting() - self.unsent;
        let taken = self.unsent.min(PIPE.saturating_sub(held));
        self.unsent -= taken;
        taken
    }

    /// The next read, if anything waits. Bytes that the pipe did not take yet do not count.
    pub(crate) fn read(&mut self, cut: Cut) -> Option<&[u8]> {
        if self.read == self.bytes.len() {
            self.bytes.clear();
            self.read = 0;
        } else if self.read > PIPE {
            self.bytes.drain(..self.read);
            self.read = 0;
        }
        let there = self.waiting() - self.unsent;
        let written = *self.pieces.front()?;
        let len = cut.length(there, written.min(there), &mut self.drawn);
        let mut rest = len;
        while let Some(piece) = self.pieces.front_mut() {
            let of_it = rest.min(*piece);
            *piece -= of_it;
            rest -= of_it;
            if *piece > 0 {
                break;
            }
            self.pieces.pop_front();
        }
        let start = self.read;
        self.read += len;
        Some(&self.bytes[start..self.read])
    }

    fn waiting(&self) -> usize {
        self.bytes.len() - self.read
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.read = 0;
        self.pieces.clear();
        self.unsent = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes pieces of these lengths, then reads all there is. The lengths of the reads.
    fn reads(cut: Cut, written: &[usize]) -> Vec<usize> {
        let mut pipe = Pipe::default();
        let (mut sent, mut next) = (0, 0_u8);
        for &len in written {
            for _ in 0..len {
                pipe.bytes.push(next);
                next = next.wrapping_add(1);
            }
            sent += pipe.wrote(len);
        }
        let (mut lens, mut read, mut expected) = (Vec::new(), 0, 0_u8);
        while let Some(bytes) = pipe.read(cut) {
            for byte in bytes {
                assert_eq!(*byte, expected, "{cut:?}");
                expected = expected.wrapping_add(1);
            }
            lens.push(bytes.len());
            read += bytes.len();
            assert!(read <= sent, "{cut:?}: what is read was taken before");
            sent += pipe.taken();
            assert!(sent - read <= PIPE, "{cut:?}: no more is taken than fits");
        }
        let all = written.iter().sum();
        assert_eq!((read, sent), (all, all), "{cut:?}");
        lens
    }

    #[test]
    fn every_byte_is_read_once_and_in_order() {
        let written = [3, 1, 40, PIPE - 1, 2, 3 * PIPE, 5];
        for cut in Cut::ALL {
            let lens = reads(cut, &written);
            assert!(lens.iter().all(|len| *len > 0), "{cut:?}");
        }
    }

    #[test]
    fn a_cut_does_what_it_says() {
        let written = [3, 1, 40];
        assert_eq!(reads(Cut::Whole, &written), written);
        assert_eq!(reads(Cut::Bytes, &written), [1; 44]);
        assert_eq!(reads(Cut::Joined, &written), [44]);
        let random = reads(Cut::Random(1), &written);
        assert_eq!(random, reads(Cut::Random(1), &written));
        assert_ne!(random, reads(Cut::Random(2), &written));
    }
}
