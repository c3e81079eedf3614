//! What a peer writes that is of no use: how much, how often to say so, and how it is shown. Knows no message.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use crate::id::Epoch;

/// Something of no use that the peer wrote.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Noise {
    /// In which life.
    pub epoch: Epoch,
    /// What is wrong with it.
    pub what: Box<str>,
    /// How many there were in this life, this one included.
    pub count: u64,
    /// How it begins. Not part of the debug output: it may be anything.
    pub sample: String,
    /// Whether it is a message over the limit for one message.
    pub is_too_large: bool,
}

impl fmt::Debug for Noise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Noise")
            .field("epoch", &self.epoch)
            .field("what", &self.what)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// How much of what arrives is of no use, and which of it is worth showing.
#[derive(Debug, Default)]
pub(crate) struct NoiseMeter {
    count: u64,
    run: u32,
}

impl NoiseMeter {
    /// One more. Its number, if it is worth showing: the first few, then every power of two.
    pub(crate) fn heard(&mut self) -> Option<u64> {
        self.count += 1;
        self.run = self.run.saturating_add(1);
        (self.count <= 8 || self.count.is_power_of_two()).then_some(self.count)
    }

    /// A message that makes sense.
    pub(crate) fn made_sense(&mut self) {
        self.run = 0;
    }

    /// How many in a row.
    pub(crate) const fn run(&self) -> u32 {
        self.run
    }
}

/// As many characters of a peer's own words are repeated in a text of ours.
const WORDS_SHOWN: usize = 256;

/// How words of a peer begin: it can make them of any length.
pub(crate) fn excerpt(words: &str) -> String {
    let mut shown: String = words.chars().take(WORDS_SHOWN).collect();
    if shown.len() < words.len() {
        shown.push('…');
    }
    shown
}

/// How a useless piece begins, made fit to be shown.
pub(crate) fn sample(bytes: &[u8], limit: usize) -> String {
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
