//! Keeps the end of what a server wrote to standard error, in bounded memory.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// The last bytes of a long text.
#[derive(Debug)]
pub(super) struct Tail {
    bytes: Vec<u8>,
    limit: usize,
    cut: bool,
}

impl Tail {
    pub(super) const fn new(limit: usize) -> Tail {
        Tail {
            bytes: Vec::new(),
            limit,
            cut: false,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(self.limit)..];
        self.cut |= kept.len() < bytes.len();
        self.bytes.extend_from_slice(kept);
        // Trim only at twice the limit, so that not every short write moves the whole buffer.
        if self.bytes.len() > self.limit.saturating_mul(2) {
            self.trim();
        }
    }

    /// The kept bytes as text. If the beginning was dropped, the text starts at the first complete line.
    pub(super) fn text(&self) -> Box<str> {
        let start = self.bytes.len().saturating_sub(self.limit);
        let mut kept = &self.bytes[start..];
        if self.cut || start > 0 {
            if let Some(end) = memchr::memchr(b'\n', kept) {
                if end + 1 < kept.len() {
                    kept = &kept[end + 1..];
                }
            }
        }
        String::from_utf8_lossy(kept).trim_end().into()
    }

    fn trim(&mut self) {
        let surplus = self.bytes.len().saturating_sub(self.limit);
        self.bytes.drain(..surplus);
        self.cut = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_keeps_the_end_in_bounded_memory() {
        let mut tail = Tail::new(32);
        for line in 0..1_000 {
            tail.push(alloc::format!("line {line}\n").as_bytes());
            assert!(tail.bytes.len() <= 64);
        }
        assert_eq!(&*tail.text(), "line 997\nline 998\nline 999");
        tail.push(&[b'x'; 100]);
        assert_eq!(tail.text().len(), 32);
    }

    #[test]
    fn a_short_tail_is_whole() {
        let mut tail = Tail::new(32);
        tail.push(b"first\nsec");
        tail.push(b"ond\n");
        assert_eq!(&*tail.text(), "first\nsecond");
    }

    #[test]
    fn cut_text_starts_at_its_first_complete_line() {
        for (written, text) in [
            ("first\nlast", "last"),
            // No complete line is kept, so the rest of one is better than nothing.
            ("0123456789", "23456789"),
            ("0123456789\n", "3456789"),
            // Nothing was cut.
            ("a\nlast", "a\nlast"),
            ("ab\nlast\n", "ab\nlast"),
        ] {
            let mut tail = Tail::new(8);
            tail.push(written.as_bytes());
            assert_eq!(&*tail.text(), text, "{written:?}");
        }
    }
}
