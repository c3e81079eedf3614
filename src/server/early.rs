//! What waits until the server knows what it offers. Knows not who asks, nor what becomes of it.

use alloc::boxed::Box;

use super::origin::{Lane, Origin, SessionKey, Whose, WireId};
use crate::protocol::method::names;
use crate::wire::{Id, Payload};

/// What waits for the offer.
#[derive(Debug)]
pub(super) enum Early {
    /// `notifications/initialized` in this session, behind the handshake that it ends.
    Initialized(SessionKey),
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

    /// Whether it is the beginning of a handshake in this session.
    pub(super) fn introduces(&self, session: SessionKey) -> bool {
        self.is_introduction()
            && matches!(self, Early::Request { from, .. } if from.session == Some(session))
    }

    /// Whether it is the end of the handshake in this session.
    pub(super) fn ends_handshake(&self, session: SessionKey) -> bool {
        matches!(self, Early::Initialized(of) if *of == session)
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Early::Initialized(_) => 0,
            Early::Request { method, params, .. } => {
                method.len() + params.as_ref().map_or(0, |params| params.as_str().len())
            }
        }
    }

    /// The way for its answer, if it has one.
    pub(super) const fn lane(&self) -> Option<Lane> {
        match self {
            Early::Initialized(_) => None,
            Early::Request { from, .. } => Some(from.lane),
        }
    }

    /// Whether it comes from where ids are of this kind.
    pub(super) fn is_of(&self, whose: Whose) -> bool {
        match self {
            Early::Initialized(session) => Whose::Session(*session) == whose,
            Early::Request { from, .. } => from.whose == whose,
        }
    }

    /// Whether it is the request with this id.
    pub(super) fn is(&self, other: &WireId) -> bool {
        matches!(self, Early::Request { from, id, .. } if from.whose == other.whose && *id == other.id)
    }
}
