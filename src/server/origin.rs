//! Names the sender of a message and the lane for its reply: keys of sessions, lanes and requests. Knows no message.

use alloc::boxed::Box;

use super::event::Caller;
use crate::driver::StreamId;
use crate::protocol::Era;
use crate::wire::Id;

/// The key of one legacy client, from its handshake on. It is a counter and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SessionKey(u64);

impl SessionKey {
    /// The key of the one client of a byte stream.
    pub(super) const DUPLEX: SessionKey = SessionKey(0);

    /// No session has a greater key.
    pub(super) const LAST: SessionKey = SessionKey(u64::MAX);

    /// The next key.
    pub(super) const fn next(self) -> SessionKey {
        SessionKey(self.0 + 1)
    }

    pub(super) const fn from_number(number: u64) -> SessionKey {
        SessionKey(number)
    }

    pub(super) const fn number(self) -> u64 {
        self.0
    }

    /// The lane for messages that belong to no request of the session.
    pub(super) fn lane(self) -> Lane {
        if self == SessionKey::DUPLEX {
            Lane::DUPLEX
        } else {
            Lane::Session(self)
        }
    }
}

/// The scope of request ids. Different clients choose the same ids, so an id alone names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    /// All requests in one session.
    Session(SessionKey),
    /// All requests on one stream: those of both eras on a byte stream, or the one request of an exchange outside a session.
    Stream(StreamId),
}

/// A request id as its client chose it, with its scope.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WireId {
    pub(super) whose: Whose,
    pub(super) id: Id,
}

impl WireId {
    /// The least id of a scope.
    pub(super) const fn first(whose: Whose) -> WireId {
        let id = Id::Number(i64::MIN);
        WireId { whose, id }
    }
}

/// The key of one ordered outbound queue to one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// The queue for messages of a session that belong to no request.
    Session(SessionKey),
    /// The queue for messages about the requests that arrived on this stream.
    Stream(StreamId),
}

impl Lane {
    pub(super) const DUPLEX: Lane = Lane::Stream(StreamId::DUPLEX);
}

/// The source of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) whose: Whose,
    /// The lane for replies.
    pub(super) lane: Lane,
    /// The session that the message belongs to, or that it can open.
    pub(super) session: Option<SessionKey>,
    /// The era, if it is decided before the message is read. On a byte stream, each message decides it.
    pub(super) era: Option<Era>,
    /// The authenticated user, as reported by the component that checked the credentials.
    pub(super) user: Option<Box<str>>,
}

impl Origin {
    pub(super) const DUPLEX: Origin = Origin {
        whose: Whose::Stream(StreamId::DUPLEX),
        lane: Lane::DUPLEX,
        session: Some(SessionKey::DUPLEX),
        era: None,
        user: None,
    };

    pub(super) fn is_duplex(&self) -> bool {
        self.lane == Lane::DUPLEX
    }

    /// The sender, as the application knows it.
    pub(super) fn caller(&self) -> Caller {
        let session = self.session.filter(|_| self.era != Some(Era::Modern));
        Caller::of(self.lane, session, self.user.as_deref())
    }

    /// The scoped id of a request from this source.
    pub(super) const fn wire(&self, id: Id) -> WireId {
        WireId {
            whose: self.whose,
            id,
        }
    }
}
