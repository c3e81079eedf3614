//! Who says something, and which way an answer takes: names of sessions, of ways out, and of requests. Knows no message.

use alloc::boxed::Box;

use super::event::Caller;
use crate::id::StreamId;
use crate::protocol::Era;
use crate::wire::Id;

/// One legacy client, from its handshake on. A counter: never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SessionKey(u64);

impl SessionKey {
    /// That of a byte stream, which has one client.
    pub(super) const DUPLEX: SessionKey = SessionKey(0);

    /// No session has a greater one.
    pub(super) const LAST: SessionKey = SessionKey(u64::MAX);

    /// The one after this.
    pub(super) const fn next(self) -> SessionKey {
        SessionKey(self.0 + 1)
    }

    pub(super) const fn from_number(number: u64) -> SessionKey {
        SessionKey(number)
    }

    pub(super) const fn number(self) -> u64 {
        self.0
    }

    /// The way for what belongs to no request of it.
    pub(super) fn lane(self) -> Lane {
        if self == SessionKey::DUPLEX {
            Lane::DUPLEX
        } else {
            Lane::Session(self)
        }
    }
}

/// Whose ids these are. Different clients choose the same ids, so an id alone names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    /// Of all requests in one session.
    Session(SessionKey),
    /// Of all requests on one stream: of both eras on a byte stream, of the one modern request of an exchange.
    Stream(StreamId),
}

/// The id of a request as its client chose it, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WireId {
    pub(super) whose: Whose,
    pub(super) id: Id,
}

impl WireId {
    /// The least of all ids of the same kind.
    pub(super) const fn first(whose: Whose) -> WireId {
        let id = Id::Number(i64::MIN);
        WireId { whose, id }
    }
}

/// One ordered way out to one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// For all of a session that belongs to no request.
    Session(SessionKey),
    /// For what belongs to the requests that arrived on this stream.
    Stream(StreamId),
}

impl Lane {
    pub(super) const DUPLEX: Lane = Lane::Stream(StreamId::DUPLEX);
}

/// Where a message comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) whose: Whose,
    /// The way for answers.
    pub(super) lane: Lane,
    /// The session that it belongs to, or that it can open.
    pub(super) session: Option<SessionKey>,
    /// The era, where that is decided before the message is read. On a byte stream each message decides.
    pub(super) era: Option<Era>,
    /// Who asks, as whoever checked the credentials says.
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

    /// Who says it, as the application knows them.
    pub(super) fn caller(&self) -> Caller {
        let session = self.session.filter(|_| self.era != Some(Era::Modern));
        Caller::of(self.lane, session, self.user.as_deref())
    }

    /// The id of a request that comes from here.
    pub(super) const fn wire(&self, id: Id) -> WireId {
        WireId {
            whose: self.whose,
            id,
        }
    }
}
