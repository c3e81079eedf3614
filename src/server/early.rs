//! What waits until the server knows what it offers. Knows not who asks, nor what becomes of it.

use alloc::boxed::Box;

use crate::protocol::method::names;
use crate::wire::{Id, Payload};

/// What waits for the offer.
#[derive(Debug)]
pub(super) enum Early {
    /// `notifications/initialized`, behind the handshake that it ends.
    Initialized,
    Request {
        id: Id,
        method: Box<str>,
        params: Option<Payload>,
    },
}

impl Early {
    /// Whether it is the beginning of a handshake.
    pub(super) fn is_introduction(&self) -> bool {
        matches!(self, Early::Request { method, .. } if **method == *names::INITIALIZE)
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Early::Initialized => 0,
            Early::Request { method, params, .. } => {
                method.len() + params.as_ref().map_or(0, |params| params.as_str().len())
            }
        }
    }

    /// Whether it is the request with this id.
    pub(super) fn is(&self, other: &Id) -> bool {
        matches!(self, Early::Request { id, .. } if id == other)
    }
}
