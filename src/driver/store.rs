//! What passes between a server and the store that its driver keeps: requests, their answers, and the record of a session.
//! Does not know how or where anything is stored.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;

use crate::driver::LookupId;
use crate::protocol::{ClientCapabilities, Implementation, LogLevel, Version};

/// A request of a server over HTTP to the store of its driver. It comes only if [`Storage::Driver`](crate::server::Storage::Driver) is
/// configured.
///
/// Carry out the requests about one [session](StoreRequest::session) in the order in which they come. Requests about different sessions may
/// overtake each other. Only [`Find`](StoreRequest::Find) and [`Replay`](StoreRequest::Replay) are answered, with
/// [`Input::Stored`](crate::Input::Stored). The store handles failures of the others itself.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreRequest {
    /// Store a message that was sent in a session.
    Append {
        /// The id of the session. It is a secret.
        session: Box<str>,
        /// The stream of the session to which the message belongs. No other server writes to it. The name of a stream that belongs to no
        /// request is even, and a gap in it is harmless.
        stream: u64,
        /// The number of the message. It is greater than those of earlier messages of this stream.
        number: u64,
        /// The message.
        message: Box<str>,
    },
    /// Look for a session. Answer with [`StoreAnswer::Session`] or [`StoreAnswer::Failed`].
    Find {
        /// The id to name in the answer.
        lookup: LookupId,
        /// The id of the session. A client sent it, and it may be any text.
        session: Box<str>,
    },
    /// Remove all messages of a session that is over.
    Forget {
        /// The id of the session.
        session: Box<str>,
    },
    /// Store the present state of a session. It replaces an earlier one.
    Put(Box<SessionRecord>),
    /// Remove the record of a session that is over.
    Remove {
        /// The id of the session.
        session: Box<str>,
    },
    /// Look for the messages of one stream after a number. Answer with [`StoreAnswer::Events`] or [`StoreAnswer::Failed`].
    Replay {
        /// The id to name in the answer.
        lookup: LookupId,
        /// The id of the session.
        session: Box<str>,
        /// The stream.
        stream: u64,
        /// The number of the last message that the client has. A client sent it, and it may be any number.
        after: u64,
    },
}

impl StoreRequest {
    /// The id of the session that the request is about.
    #[must_use]
    pub fn session(&self) -> &str {
        match self {
            StoreRequest::Put(record) => &record.id,
            StoreRequest::Append { session, .. }
            | StoreRequest::Find { session, .. }
            | StoreRequest::Forget { session }
            | StoreRequest::Remove { session }
            | StoreRequest::Replay { session, .. } => session,
        }
    }

    /// The id to name in the answer, if the request wants one.
    #[must_use]
    pub const fn lookup(&self) -> Option<LookupId> {
        match self {
            StoreRequest::Find { lookup, .. } | StoreRequest::Replay { lookup, .. } => {
                Some(*lookup)
            }
            StoreRequest::Append { .. }
            | StoreRequest::Forget { .. }
            | StoreRequest::Put(_)
            | StoreRequest::Remove { .. } => None,
        }
    }

    /// The bytes that it takes up.
    pub(crate) fn weight(&self) -> usize {
        let held = match self {
            StoreRequest::Append { message, .. } => message.len(),
            StoreRequest::Put(record) => {
                size_of::<SessionRecord>() + record.uris.iter().map(|uri| uri.len()).sum::<usize>()
            }
            StoreRequest::Find { .. }
            | StoreRequest::Forget { .. }
            | StoreRequest::Remove { .. }
            | StoreRequest::Replay { .. } => 0,
        };
        size_of::<StoreRequest>() + self.session().len() + held
    }
}

/// Leaves out the id of the session and the message, because both may be secret.
impl fmt::Debug for StoreRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreRequest::Append {
                stream,
                number,
                message,
                ..
            } => write!(f, "Append({stream:x}-{number}, {})", message.len()),
            StoreRequest::Find { lookup, .. } => write!(f, "Find({lookup:?})"),
            StoreRequest::Forget { .. } => f.write_str("Forget"),
            StoreRequest::Put(record) => write!(f, "Put({record:?})"),
            StoreRequest::Remove { .. } => f.write_str("Remove"),
            StoreRequest::Replay {
                lookup,
                stream,
                after,
                ..
            } => write!(f, "Replay({lookup:?}, {stream:x}-{after})"),
        }
    }
}

/// The answer of a driver's store to a [`StoreRequest`] that wants one.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreAnswer {
    /// The messages that were sent on the stream after the number, in order.
    Events {
        /// The messages, each with its number.
        events: Vec<(u64, Box<str>)>,
        /// Whether the store has kept all messages after the number. `false` if it knows nothing of the stream.
        is_complete: bool,
    },
    /// The store could not be asked. The client gets status 503.
    Failed,
    /// The session, if there is one.
    Session(Option<Box<SessionRecord>>),
}

/// Leaves out the messages, because they may be secret.
impl fmt::Debug for StoreAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreAnswer::Events {
                events,
                is_complete,
            } => write!(f, "Events({}, {is_complete})", events.len()),
            StoreAnswer::Failed => f.write_str("Failed"),
            StoreAnswer::Session(record) => write!(f, "Session({record:?})"),
        }
    }
}

/// Everything that another server needs to continue the session of a legacy client.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionRecord {
    /// The id that the client names in `Mcp-Session-Id`. It is a secret.
    pub id: Box<str>,
    /// The version that was agreed on.
    pub version: Version,
    /// The name and version that the client gave.
    pub client: Option<Implementation>,
    /// The capabilities of the client.
    pub capabilities: ClientCapabilities,
    /// The user that the session belongs to. No other user may use it.
    pub user: Option<Box<str>>,
    /// The lowest level of log messages that the client chose, if any.
    pub log_level: Option<LogLevel>,
    /// The URIs that the client subscribed to.
    pub uris: BTreeSet<Box<str>>,
    /// Whether the client sent `notifications/initialized`.
    pub is_initialized: bool,
}

impl SessionRecord {
    /// A session with this id and version, and nothing else.
    pub fn new(id: impl Into<Box<str>>, version: Version) -> SessionRecord {
        SessionRecord {
            id: id.into(),
            version,
            client: None,
            capabilities: ClientCapabilities::default(),
            user: None,
            log_level: None,
            uris: BTreeSet::new(),
            is_initialized: false,
        }
    }
}

/// Leaves out the id, because it gives access to the session.
impl fmt::Debug for SessionRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionRecord")
            .field("version", &self.version)
            .field("client", &self.client)
            .field("is_initialized", &self.is_initialized)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn debug_output_hides_ids_and_messages() {
        let lookup = LookupId::from_number(1);
        let record = SessionRecord::new("secret", Version::LATEST_LEGACY);
        let requests = [
            StoreRequest::Append {
                session: "secret".into(),
                stream: 1,
                number: 1,
                message: "secret".into(),
            },
            StoreRequest::Find {
                lookup,
                session: "secret".into(),
            },
            StoreRequest::Put(Box::new(record.clone())),
        ];
        let answers = [
            StoreAnswer::Session(Some(Box::new(record))),
            StoreAnswer::Events {
                events: [(1, "secret".into())].into(),
                is_complete: true,
            },
        ];
        let shown = format!("{requests:?} {answers:?}");
        assert!(!shown.contains("secret"), "{shown}");
    }
}
