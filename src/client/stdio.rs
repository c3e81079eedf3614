//! One life of a byte stream: lines in, bytes under way out, what stderr said last, how noisy it is.
//! Knows neither calls nor states.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::config::Limits;
use crate::wire::LineReader;

#[derive(Debug)]
pub(super) struct Pipe {
    /// What arrived and is not a whole line yet.
    pub(super) lines: LineReader,
    pub(super) stderr: Tail,
    pub(super) noise: NoiseMeter,
    under_way: usize,
    window: usize,
}

impl Pipe {
    pub(super) fn new(limits: &Limits) -> Pipe {
        Pipe {
            lines: LineReader::new(limits.message_bytes),
            stderr: Tail::new(limits.stderr_tail),
            noise: NoiseMeter::default(),
            under_way: 0,
            window: limits.write_window,
        }
    }

    /// Whether the server takes more: little enough is under way.
    pub(super) const fn is_open(&self) -> bool {
        self.under_way < self.window
    }

    /// Bytes were handed to the driver.
    pub(super) fn wrote(&mut self, len: usize) {
        self.under_way = self.under_way.saturating_add(len);
    }

    /// The driver handed bytes to the system. More than there were under way is as good as all.
    pub(super) fn sent(&mut self, len: usize) {
        self.under_way = self.under_way.saturating_sub(len);
    }
}

/// The end of a long text.
#[derive(Debug)]
pub(super) struct Tail {
    bytes: Vec<u8>,
    limit: usize,
    cut: bool,
}

impl Tail {
    const fn new(limit: usize) -> Tail {
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
        // Cut only when twice as much is there, so that short pieces do not move all of it each time.
        if self.bytes.len() > self.limit.saturating_mul(2) {
            self.trim();
        }
    }

    /// What is kept, as text, from the first whole line on if the beginning is lost.
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

/// How much of what arrives is of no use, and which of it is worth showing.
#[derive(Debug, Default)]
pub(super) struct NoiseMeter {
    count: u64,
    run: u32,
}

impl NoiseMeter {
    /// One more. Its number, if it is worth showing: the first few, then every power of two.
    pub(super) fn heard(&mut self) -> Option<u64> {
        self.count += 1;
        self.run = self.run.saturating_add(1);
        (self.count <= 8 || self.count.is_power_of_two()).then_some(self.count)
    }

    /// A message that makes sense.
    pub(super) fn made_sense(&mut self) {
        self.run = 0;
    }

    /// How many in a row.
    pub(super) const fn run(&self) -> u32 {
        self.run
    }
}

/// As many characters of a peer's own words are repeated in a text of ours.
const WORDS_SHOWN: usize = 256;

/// How words of a peer begin: it can make them of any length.
pub(super) fn excerpt(words: &str) -> String {
    let mut shown: String = words.chars().take(WORDS_SHOWN).collect();
    if shown.len() < words.len() {
        shown.push('…');
    }
    shown
}

/// How a useless piece begins, made fit to be shown.
pub(super) fn sample(bytes: &[u8], limit: usize) -> String {
    let shown = &bytes[..bytes.len().min(limit)];
    let mut text: String = String::from_utf8_lossy(shown)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if shown.len() < bytes.len() {
        text.push('…');
    }
    text
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
    fn noise_is_shown_ever_less_often() {
        let mut meter = NoiseMeter::default();
        let shown = (0..10_000).filter_map(|_| meter.heard()).count();
        assert_eq!(shown, 8 + 10);
        assert_eq!(meter.run(), 10_000);
        meter.made_sense();
        assert_eq!(meter.run(), 0);
    }

    #[test]
    fn excerpts_are_short_and_whole_characters() {
        assert_eq!(excerpt("short"), "short");
        let long = "é".repeat(1_000);
        assert_eq!(excerpt(&long).chars().count(), WORDS_SHOWN + 1);
    }

    #[test]
    fn samples_are_short_and_printable() {
        assert_eq!(sample(b"\x1b[31mred\xff", 160), " [31mred\u{fffd}");
        assert_eq!(sample(b"abcdef", 3), "abc…");
    }
}
