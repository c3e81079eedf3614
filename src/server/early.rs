//! What waits until the server knows what it offers. Knows not who asks, nor what becomes of it.

use alloc::boxed::Box;

use super::origin::{Lane, Origin, Whose, WireId};
use crate::protocol::method::names;
use crate::wire::{Id, Payload};

/// What waits for the offer.
#[derive(Debug)]
pub(super) enum Early {
    /// `notifications/initialized`, behind the handshake that it ends.
    Initialized,
    Request {
        from: Origin,
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

    /// Whether it is the beginning of a handshake on a byte stream.
    pub(super) fn is_introduction_on_stream(&self) -> bool {
        self.is_introduction() && matches!(self, Early::Request { from, .. } if from.is_duplex())
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Early::Initialized => 0,
            Early::Request { method, params, .. } => {
                method.len() + params.as_ref().map_or(0, |params| params.as_str().len())
            }
        }
    }

    /// The way for its answer, if it has one.
    pub(super) const fn lane(&self) -> Option<Lane> {
        match self {
            Early::Initialized => None,
            Early::Request { from, .. } => Some(from.lane),
        }
    }

    /// Whether its id is of this kind.
    pub(super) fn is_of(&self, whose: Whose) -> bool {
        matches!(self, Early::Request { from, .. } if from.whose == whose)
    }

    /// Whether it is the request with this id.
    pub(super) fn is(&self, other: &WireId) -> bool {
        matches!(self, Early::Request { from, id, .. } if from.whose == other.whose && *id == other.id)
    }
}
