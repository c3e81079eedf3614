//! What a recording does not say: texts become other texts of the same length, so that a machine that reads them does the same.
//!
//! Each byte becomes another of its kind, which depends on all of the text before it and on a key of this process alone. So equal texts stay
//! equal, different ones different, one that begins another still does, what is broken stays broken, and nobody can tell what they were. Knows
//! no recording.
//!
//! `cipher` changes texts, `words` says which parts of a message are shown because a machine reads them, `mask` changes messages and `events` streams of them.

mod cipher;
mod events;
mod mask;
#[cfg(test)]
mod tests;
mod words;

pub(super) use cipher::Cipher;
pub(super) use events::EventMask;
pub(super) use mask::{Mask, Seal};
