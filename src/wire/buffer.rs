//! Buffers the bytes of one message up to a limit, and skims the message if it is longer. Does not depend on lines or events.

use alloc::{boxed::Box, vec::Vec};

use super::skim::{Skim, Skimmed};

/// The capacity that stays allocated after a message: enough for most messages that come in two pieces. A longer message must not pin its
/// memory as long as the link exists.
pub(super) const KEPT_CAPACITY: usize = 1024;

/// The buffer for one message that comes in pieces.
pub(super) struct MessageBuffer {
    limit: usize,
    buf: Vec<u8>,
    /// The scan of the message, once it is over the limit. From then on, no bytes are kept. It is boxed because readers are moved with every
    /// input, and few messages need it.
    skim: Option<Box<Skim>>,
}

impl MessageBuffer {
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

    /// The kept bytes: the whole message so far, or nothing once it is over the limit.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buf
    }

    /// Whether no byte of a message has come yet.
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
            let mut skim = Box::<Skim>::default();
            skim.feed(&self.buf);
            skim.feed(piece);
            self.skim = Some(skim);
            self.buf = Vec::new();
        } else {
            extend_within(&mut self.buf, piece, self.limit);
        }
    }

    /// Ends a message that is over the limit, and returns what is known of it.
    pub(super) fn take_skimmed(&mut self) -> Option<Skimmed> {
        self.skim.take().map(|skim| skim.finish())
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

/// Appends a piece. Grows the buffer by doubling, as `Vec` does, but not past the limit. The piece must fit into the limit.
pub(super) fn extend_within(buf: &mut Vec<u8>, piece: &[u8], limit: usize) {
    let needed = buf.len() + piece.len();
    if needed > buf.capacity() {
        let target = (2 * buf.capacity()).min(limit).max(needed);
        buf.reserve_exact(target - buf.len());
    }
    buf.extend_from_slice(piece);
}
