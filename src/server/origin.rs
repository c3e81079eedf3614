//! Defines the keys of sessions, queues and requests, and the origin of a message. Does not depend on message types.

use alloc::boxed::Box;
use core::num::NonZeroU64;

use crate::driver::StreamId;
use crate::protocol::{Era, TraceContext};
use crate::server::event::Caller;
use crate::server::requests::places::Holder;
use crate::util::Arc;
use crate::wire::Id;

/// Identifies one legacy session. Keys are numbers from a counter and are never reused. The field is the number plus one, so that an optional key is no
/// larger than a key: requests are moved with theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionKey(NonZeroU64);

impl SessionKey {
    /// The key for a byte stream, which has exactly one client, in either era.
    pub(crate) const DUPLEX: SessionKey = SessionKey(NonZeroU64::MIN);

    /// The greatest key. It ends a range of all keys, and no session has it.
    pub(crate) const MAX: SessionKey = SessionKey(NonZeroU64::MAX);

    /// Returns the key for the session that opens after this one.
    pub(crate) const fn next(self) -> SessionKey {
        SessionKey(self.0.saturating_add(1))
    }

    pub(crate) const fn from_number(number: u64) -> SessionKey {
        SessionKey(NonZeroU64::MIN.saturating_add(number))
    }

    pub(crate) const fn number(self) -> u64 {
        self.0.get() - 1
    }

    /// Returns the queue for messages that belong to no request of the session.
    pub(crate) fn queue(self) -> QueueId {
        if self == SessionKey::DUPLEX {
            QueueId::DUPLEX
        } else {
            QueueId::Session(self)
        }
    }
}

/// The scope in which a request id is unique. Different clients choose the same ids, so an id alone does not identify a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum IdScope {
    /// All requests in one session.
    Session(SessionKey),
    /// All requests on one stream: those of both eras on a byte stream, or the one request of an exchange outside a session.
    Stream(StreamId),
}

/// The request id that a client chose, with its scope. Together they identify a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WireId {
    pub(crate) scope: IdScope,
    pub(crate) id: Id,
}

impl WireId {
    /// Returns the least id of a scope. It begins a range of all ids in that scope.
    pub(crate) const fn first(scope: IdScope) -> WireId {
        let id = Id::Number(i64::MIN);
        WireId { scope, id }
    }
}

/// The key of one ordered outbound queue to one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueueId {
    /// The queue for messages of a session that belong to no request.
    Session(SessionKey),
    /// The queue for messages about the requests that arrived on this stream.
    Stream(StreamId),
}

impl QueueId {
    pub(crate) const DUPLEX: QueueId = QueueId::Stream(StreamId::DUPLEX);
}

/// Where a message came from, and where its replies go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) scope: IdScope,
    /// The queue for messages about the request, such as its reply.
    pub(crate) queue: QueueId,
    /// The session that the message belongs to, or that it can open. `None` outside of a session.
    pub(crate) session: Option<SessionKey>,
    /// The era, if it is decided before the message is read. On a byte stream, each message decides it.
    pub(crate) era: Option<Era>,
    /// The authenticated user, as reported by the component that checked the credentials.
    pub(crate) user: Option<Box<str>>,
    /// The client that a request from here counts for. `None` on a byte stream, which has one client.
    pub(crate) holder: Option<Arc<Holder>>,
    /// The trace context in the header fields of the HTTP request, if there is one.
    pub(crate) trace: Option<Box<TraceContext>>,
}

impl Origin {
    pub(crate) const DUPLEX: Origin = Origin {
        scope: IdScope::Stream(StreamId::DUPLEX),
        queue: QueueId::DUPLEX,
        session: Some(SessionKey::DUPLEX),
        era: None,
        user: None,
        holder: None,
        trace: None,
    };

    pub(crate) fn is_duplex(&self) -> bool {
        self.queue == QueueId::DUPLEX
    }

    /// Returns the sender in the form that the application sees.
    pub(crate) fn caller(&self) -> Caller {
        let session = self.session.filter(|_| self.era != Some(Era::Modern));
        Caller::of(self.queue, session, self.user.as_deref())
    }

    /// Returns the id of a request from this source, with its scope.
    pub(crate) const fn wire(&self, id: Id) -> WireId {
        WireId {
            scope: self.scope,
            id,
        }
    }
}
