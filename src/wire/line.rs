//! Splits a byte stream into lines, in bounded memory. Does not know the meaning of a line.

use core::{fmt, mem, str};

use memchr::memchr;

use super::{buffer::MessageBuffer, skim::Skimmed};

pub(super) const BYTE_ORDER_MARK: &[u8] = "\u{FEFF}".as_bytes();

/// One line, without its end. `Debug` shows only its length.
#[derive(Clone, Eq, PartialEq)]
#[non_exhaustive]
pub enum Line<'a> {
    /// A line that is not UTF-8. That is a framing error and not a message (S-RPC-02).
    NotUtf8(&'a [u8]),
    /// A line longer than the limit. The reader skipped it to its end.
    Oversized(Skimmed),
    /// A line of text.
    Text(&'a str),
}

/// Splits a byte stream into lines.
///
/// A line ends with LF. The reader strips one CR before the LF and one byte order mark at the start. It skips lines of nothing but ASCII
/// whitespace. A CR elsewhere is part of the line. The result does not depend on how the bytes are split into chunks.
///
/// The limit applies to the bytes of a line without the LF, but with a CR or byte order mark. A line over the limit is not kept: it is only
/// scanned for what a caller needs to know of it (S-INH-06).
///
/// ```
/// use everlink::internal::wire::{Line, LineReader};
///
/// let mut reader = LineReader::new(1024);
/// let mut chunk: &[u8] = b"one\ntwo\r\n\nthr";
/// assert_eq!(reader.next(&mut chunk), Some(Line::Text("one")));
/// assert_eq!(reader.next(&mut chunk), Some(Line::Text("two")));
/// assert_eq!(reader.next(&mut chunk), None);
/// assert_eq!(reader.buffered(), 3);
///
/// let mut chunk: &[u8] = b"ee\n";
/// assert_eq!(reader.next(&mut chunk), Some(Line::Text("three")));
/// assert_eq!(reader.next(&mut chunk), None);
/// ```
pub struct LineReader {
    /// The beginning of an incomplete line, or the line that was returned last if `was_returned` is set.
    line: MessageBuffer,
    was_returned: bool,
}

impl LineReader {
    /// A reader that keeps no line longer than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            line: MessageBuffer::new(limit),
            was_returned: false,
        }
    }

    /// Returns the next line, from the buffer and the front of `chunk`. The bytes that it used are removed from `chunk`.
    ///
    /// `None` means that `chunk` is used up. Call until then, because that also frees the memory of a long line. A line that is complete in
    /// `chunk` is not copied.
    #[must_use]
    pub fn next<'a, 'c: 'a>(&'a mut self, chunk: &mut &'c [u8]) -> Option<Line<'a>> {
        self.clear_returned();
        while let Some(at) = memchr(b'\n', chunk) {
            let (piece, rest) = (&chunk[..at], &chunk[at + 1..]);
            *chunk = rest;
            if self.line.is_empty() && piece.len() <= self.line.limit() {
                match classify(piece) {
                    Some(line) => return Some(line),
                    None => continue,
                }
            }
            self.line.add(piece);
            if self.has_line() {
                return self.return_line();
            }
        }
        if !chunk.is_empty() {
            self.line.add(mem::take(chunk));
        }
        None
    }

    /// Returns the rest of the stream after its last newline, as a line. The reader is then ready for another stream.
    #[must_use]
    pub fn finish(&mut self) -> Option<Line<'_>> {
        self.clear_returned();
        if self.has_line() {
            self.return_line()
        } else {
            None
        }
    }

    /// Drops an incomplete line.
    pub fn clear(&mut self) {
        self.was_returned = true;
        self.clear_returned();
    }

    /// The number of bytes kept of an incomplete line. Never more than the limit.
    #[must_use]
    pub fn buffered(&self) -> usize {
        if self.was_returned {
            0
        } else {
            self.line.bytes().len()
        }
    }

    /// Whether to return the current line. A blank line is dropped here.
    fn has_line(&mut self) -> bool {
        if !self.line.is_oversized() && is_blank(self.line.bytes()) {
            self.was_returned = true;
            self.clear_returned();
            return false;
        }
        true
    }

    fn return_line(&mut self) -> Option<Line<'_>> {
        self.was_returned = true;
        if let Some(skimmed) = self.line.take_skimmed() {
            return Some(Line::Oversized(skimmed));
        }
        classify(self.line.bytes())
    }

    fn clear_returned(&mut self) {
        if mem::take(&mut self.was_returned) {
            self.line.clear();
        }
    }
}

impl fmt::Debug for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8(bytes) => write!(f, "NotUtf8({} bytes)", bytes.len()),
            Self::Oversized(skimmed) => f.debug_tuple("Oversized").field(skimmed).finish(),
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
        }
    }
}

impl fmt::Debug for LineReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineReader")
            .field("limit", &self.line.limit())
            .field("buffered", &self.buffered())
            .finish_non_exhaustive()
    }
}

/// Strips the framing of a line. Returns `None` if the line is blank.
fn classify(bytes: &[u8]) -> Option<Line<'_>> {
    let bytes = strip_framing(bytes);
    match str::from_utf8(bytes) {
        Ok(_) if is_space(bytes) => None,
        Ok(text) => Some(Line::Text(text)),
        Err(_) => Some(Line::NotUtf8(bytes)),
    }
}

fn is_blank(bytes: &[u8]) -> bool {
    is_space(strip_framing(bytes))
}

#[inline]
fn is_space(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_whitespace)
}

fn strip_framing(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use alloc::{format, vec};

    use super::{Line, LineReader};
    use crate::wire::buffer::KEPT_CAPACITY;

    const LIMIT: usize = 1 << 20;

    #[test]
    fn memory_stays_within_the_limit_and_is_freed() {
        let mut reader = LineReader::new(LIMIT);
        let piece = vec![b'x'; 1000];
        let mut growths = 0;
        for _ in 0..LIMIT / piece.len() {
            let before = reader.line.capacity();
            assert_eq!(reader.next(&mut &piece[..]), None);
            growths += usize::from(reader.line.capacity() != before);
            assert!(reader.line.capacity() <= LIMIT);
        }
        assert!(growths < 16, "the buffer grew {growths} times");

        let mut chunk: &[u8] = b"\n";
        assert!(matches!(reader.next(&mut chunk), Some(Line::Text(_))));
        assert_eq!(reader.next(&mut chunk), None);
        assert!(reader.line.capacity() <= KEPT_CAPACITY);

        assert_eq!(reader.next(&mut &vec![b'x'; LIMIT][..]), None);
        assert_eq!(reader.next(&mut &b"x"[..]), None);
        assert_eq!((reader.buffered(), reader.line.capacity()), (0, 0));
    }

    #[test]
    fn buffer_that_doubles_stops_at_the_limit() {
        // Doubled again and again, 700 is far from the limit and then above it.
        let piece = vec![b'x'; 700];
        let mut reader = LineReader::new(LIMIT);
        for _ in 0..LIMIT / piece.len() {
            assert_eq!(reader.next(&mut &piece[..]), None);
            assert!(reader.line.capacity() <= LIMIT);
        }
    }

    #[test]
    fn dropping_an_incomplete_line_frees_its_memory_at_once() {
        let mut reader = LineReader::new(LIMIT);
        assert_eq!(reader.next(&mut &vec![b'x'; LIMIT][..]), None);
        assert_eq!(reader.buffered(), LIMIT);
        reader.clear();
        assert_eq!(reader.buffered(), 0);
        assert!(reader.line.capacity() <= KEPT_CAPACITY);
    }

    #[test]
    fn debug_shows_no_byte_of_a_line() {
        let mut reader = LineReader::new(LIMIT);
        let mut chunk: &[u8] = b"hunter2\nhunter2";
        assert_eq!(
            format!("{:?}", reader.next(&mut chunk)),
            "Some(Text(7 bytes))"
        );
        assert_eq!(reader.next(&mut chunk), None);
        assert_eq!(
            format!("{reader:?}"),
            "LineReader { limit: 1048576, buffered: 7, .. }"
        );
    }
}
