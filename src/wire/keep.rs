//! Bytes kept up to a limit, and skimmed past it; knows neither lines nor events.

use alloc::vec::Vec;

use super::skim::{Skim, Skimmed};

/// How much capacity outlives what is kept: enough for most messages that come in two pieces. A longer one must not pin its
/// memory for the life of the link.
pub(super) const KEPT_CAPACITY: usize = 1024;

/// One message that comes in pieces.
pub(super) struct Keep {
    limit: usize,
    buf: Vec<u8>,
    /// The scan of the message, once that is over the limit. Nothing is kept from then on.
    skim: Option<Skim>,
}

impl Keep {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            buf: Vec::new(),
            skim: None,
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// What is kept: all of the message, or nothing once it is over the limit.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buf
    }

    /// Whether nothing came yet.
    pub(super) fn is_empty(&self) -> bool {
        self.buf.is_empty() && self.skim.is_none()
    }

    pub(super) fn is_oversized(&self) -> bool {
        self.skim.is_some()
    }

    /// Adds the next piece.
    pub(super) fn add(&mut self, piece: &[u8]) {
        if let Some(skim) = &mut self.skim {
            skim.feed(piece);
        } else if piece.len() > self.limit - self.buf.len() {
            let mut skim = Skim::default();
            skim.feed(&self.buf);
            skim.feed(piece);
            self.skim = Some(skim);
            self.buf = Vec::new();
        } else {
            extend_within(&mut self.buf, piece, self.limit);
        }
    }

    /// Ends a message that is over the limit, and tells what is known of it.
    pub(super) fn take_skimmed(&mut self) -> Option<Skimmed> {
        self.skim.take().map(Skim::finish)
    }

    /// Forgets the message.
    pub(super) fn clear(&mut self) {
        self.skim = None;
        self.buf.clear();
        self.buf.shrink_to(KEPT_CAPACITY);
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.buf.capacity()
    }
}

/// Appends a piece. Makes room by doubling, as `Vec` would, but not past the limit, which the piece must fit in.
pub(super) fn extend_within(buf: &mut Vec<u8>, piece: &[u8], limit: usize) {
    let needed = buf.len() + piece.len();
    if needed > buf.capacity() {
        let target = (2 * buf.capacity()).min(limit).max(needed);
        buf.reserve_exact(target - buf.len());
    }
    buf.extend_from_slice(piece);
}
