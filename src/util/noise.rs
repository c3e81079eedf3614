//! Counts and shows noise: input from a peer that the link cannot use.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use crate::driver::Epoch;

/// Input from the peer that the link cannot use.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Noise {
    /// The epoch in which it arrived.
    pub epoch: Epoch,
    /// The reason why it cannot be used.
    pub what: Box<str>,
    /// How many there were in this epoch, this one included.
    pub count: u64,
    /// Its beginning. Not part of the debug output, because it may hold anything.
    pub sample: String,
    /// Whether it is a message over the size limit.
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

/// Counts noise, and picks the pieces that are worth showing.
#[derive(Debug, Default)]
pub(crate) struct NoiseMeter {
    count: u64,
    run: u32,
}

impl NoiseMeter {
    /// Counts one piece of noise. Returns its number if it is worth showing: the first 8, then every power of two.
    pub(crate) fn heard(&mut self) -> Option<u64> {
        self.count += 1;
        self.run = self.run.saturating_add(1);
        (self.count <= 8 || self.count.is_power_of_two()).then_some(self.count)
    }

    /// Records a valid message, which ends a run of noise.
    pub(crate) fn made_sense(&mut self) {
        self.run = 0;
    }

    /// The number of pieces of noise since the last valid message.
    pub(crate) const fn run(&self) -> u32 {
        self.run
    }
}

/// The number of characters of a peer's text that our own texts repeat.
const EXCERPT_CHARS: usize = 256;

/// The beginning of a peer's text, which can have any length.
pub(crate) fn excerpt(text: &str) -> String {
    let mut shown: String = text.chars().take(EXCERPT_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// The beginning of a piece of noise, with control characters replaced.
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
    fn first_eight_noises_are_shown_and_then_every_power_of_two() {
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
        assert_eq!(excerpt(&long).chars().count(), EXCERPT_CHARS + 1);
    }

    #[test]
    fn samples_are_short_and_printable() {
        assert_eq!(sample(b"\x1b[31mred\xff", 160), " [31mred\u{fffd}");
        assert_eq!(sample(b"abcdef", 3), "abc…");
    }
}
