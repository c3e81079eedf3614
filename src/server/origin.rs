//! Names the sender of a message and the queue for its reply: keys of sessions, queues and requests. Knows no message.

use alloc::boxed::Box;

use crate::driver::StreamId;
use crate::protocol::{Era, TraceContext};
use crate::server::event::Caller;
use crate::wire::Id;

/// The key of one legacy client, from its handshake on. It is a counter and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionKey(u64);

impl SessionKey {
    /// The key of the one client of a byte stream.
    pub(crate) const DUPLEX: SessionKey = SessionKey(0);

    /// No session has a greater key.
    pub(crate) const LAST: SessionKey = SessionKey(u64::MAX);

    /// The next key.
    pub(crate) const fn next(self) -> SessionKey {
        SessionKey(self.0 + 1)
    }

    pub(crate) const fn from_number(number: u64) -> SessionKey {
        SessionKey(number)
    }

    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    /// The queue for messages that belong to no request of the session.
    pub(crate) fn queue(self) -> QueueId {
        if self == SessionKey::DUPLEX {
            QueueId::DUPLEX
        } else {
            QueueId::Session(self)
        }
    }
}

/// The scope of request ids. Different clients choose the same ids, so an id alone names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum IdScope {
    /// All requests in one session.
    Session(SessionKey),
    /// All requests on one stream: those of both eras on a byte stream, or the one request of an exchange outside a session.
    Stream(StreamId),
}

/// A request id as its client chose it, with its scope.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WireId {
    pub(crate) scope: IdScope,
    pub(crate) id: Id,
}

impl WireId {
    /// The least id of a scope.
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

/// The source of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) scope: IdScope,
    /// The queue for replies.
    pub(crate) queue: QueueId,
    /// The session that the message belongs to, or that it can open.
    pub(crate) session: Option<SessionKey>,
    /// The era, if it is decided before the message is read. On a byte stream, each message decides it.
    pub(crate) era: Option<Era>,
    /// The authenticated user, as reported by the component that checked the credentials.
    pub(crate) user: Option<Box<str>>,
    /// The trace context in the header of the HTTP request.
    pub(crate) trace: Option<Box<TraceContext>>,
}

impl Origin {
    pub(crate) const DUPLEX: Origin = Origin {
        scope: IdScope::Stream(StreamId::DUPLEX),
        queue: QueueId::DUPLEX,
        session: Some(SessionKey::DUPLEX),
        era: None,
        user: None,
        trace: None,
    };

    pub(crate) fn is_duplex(&self) -> bool {
        self.queue == QueueId::DUPLEX
    }

    /// The sender, as the application knows it.
    pub(crate) fn caller(&self) -> Caller {
        let session = self.session.filter(|_| self.era != Some(Era::Modern));
        Caller::of(self.queue, session, self.user.as_deref())
    }

    /// The scoped id of a request from this source.
    pub(crate) const fn wire(&self, id: Id) -> WireId {
        WireId {
            scope: self.scope,
            id,
        }
    }
}
