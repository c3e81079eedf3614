//! What passes between a server and the store that its driver keeps: requests, their answers, and the record of a session.
//! Does not know how or where anything is stored.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::driver::LookupId;
use crate::protocol::{ClientCapabilities, Implementation, LogLevel, Version};

/// A request of a server over HTTP to the store of its driver. It comes only if [`Storage::Driver`](crate::server::Storage::Driver) is
/// configured.
///
/// Carry out the requests about one [session](StoreRequest::session) in the order in which they come, and notes to one server too. Other
/// requests may overtake each other. Requests with a [look-up](StoreRequest::lookup) are answered with
/// [`Input::Stored`](crate::Input::Stored). The store handles failures of the others itself: it repeats them until they succeed. Every
/// request but [`Tell`](StoreRequest::Tell) may be carried out twice.
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
        /// The number of the message. The messages of a stream are numbered 1, 2, 3, so a missing one can be seen.
        number: u64,
        /// The JSON-RPC message as text.
        message: Box<str>,
        /// How long the message must be kept.
        keep: Duration,
    },
    /// Look for a session. Answer with [`StoreAnswer::Session`] or [`StoreAnswer::Failed`]. If the [home](SessionRecord::home) of the session
    /// is not alive, make this server its home first.
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
    /// Find out whether a server is alive. Answer with [`StoreAnswer::Done`].
    IsAlive {
        /// The id to name in the answer.
        lookup: LookupId,
        /// The number of the server.
        node: u32,
    },
    /// This server takes no new requests. Give the sessions of which it is the home to other servers when they are asked for. It still counts
    /// as alive, because it completes the requests that it has.
    Leave,
    /// Store the present state of a session. It replaces an earlier one. Answer with [`StoreAnswer::Done`]: `false` if the session is over,
    /// or has another home than the record says. A session that is over must not come back.
    Put {
        /// The id to name in the answer, if one is wanted.
        lookup: Option<LookupId>,
        /// The session.
        record: Box<SessionRecord>,
        /// Whether the session is new. Otherwise it must be in the store.
        is_new: bool,
        /// How long the session must be kept.
        keep: Duration,
    },
    /// Remove the record of a session that is over. Answer with [`StoreAnswer::Done`].
    Remove {
        /// The id to name in the answer, if one is wanted.
        lookup: Option<LookupId>,
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
    /// Pass a note on to another server, which gets it as [`Input::Note`](crate::Input::Note), at most once. Answer with
    /// [`StoreAnswer::Done`]: `false` if the server is not alive. If it is not certain whether the note was passed on, do not answer.
    Tell {
        /// The id to name in the answer, if one is wanted.
        lookup: Option<LookupId>,
        /// The number of the server. `None`: all servers but this one.
        to: Option<u32>,
        /// The note. It may hold secrets.
        note: Box<str>,
    },
    /// Keep a session and its messages for a longer time.
    Touch {
        /// The id of the session.
        session: Box<str>,
        /// How long the session must be kept.
        keep: Duration,
    },
}

impl StoreRequest {
    /// The id of the session that the request is about. Empty if it is about none.
    #[must_use]
    pub fn session(&self) -> &str {
        match self {
            StoreRequest::Put { record, .. } => &record.id,
            StoreRequest::Append { session, .. }
            | StoreRequest::Find { session, .. }
            | StoreRequest::Forget { session }
            | StoreRequest::Remove { session, .. }
            | StoreRequest::Replay { session, .. }
            | StoreRequest::Touch { session, .. } => session,
            StoreRequest::IsAlive { .. } | StoreRequest::Leave | StoreRequest::Tell { .. } => "",
        }
    }

    /// The id to name in the answer, if the request wants one.
    #[must_use]
    pub const fn lookup(&self) -> Option<LookupId> {
        match self {
            StoreRequest::Find { lookup, .. }
            | StoreRequest::IsAlive { lookup, .. }
            | StoreRequest::Replay { lookup, .. } => Some(*lookup),
            StoreRequest::Put { lookup, .. }
            | StoreRequest::Remove { lookup, .. }
            | StoreRequest::Tell { lookup, .. } => *lookup,
            StoreRequest::Append { .. }
            | StoreRequest::Forget { .. }
            | StoreRequest::Leave
            | StoreRequest::Touch { .. } => None,
        }
    }

    /// Returns about how many bytes of memory the request takes up.
    #[must_use]
    pub fn weight(&self) -> usize {
        let held = match self {
            StoreRequest::Append { message, .. } => message.len(),
            StoreRequest::Put { record, .. } => {
                size_of::<SessionRecord>() + record.uris.iter().map(|uri| uri.len()).sum::<usize>()
            }
            StoreRequest::Tell { note, .. } => note.len(),
            StoreRequest::Find { .. }
            | StoreRequest::Forget { .. }
            | StoreRequest::IsAlive { .. }
            | StoreRequest::Leave
            | StoreRequest::Remove { .. }
            | StoreRequest::Replay { .. }
            | StoreRequest::Touch { .. } => 0,
        };
        size_of::<StoreRequest>() + self.session().len() + held
    }
}

/// Leaves out the id of the session, the message and the note, because they may be secret.
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
            StoreRequest::IsAlive { lookup, node } => write!(f, "IsAlive({lookup:?}, {node:x})"),
            StoreRequest::Leave => f.write_str("Leave"),
            StoreRequest::Put { lookup, record, .. } => write!(f, "Put({lookup:?}, {record:?})"),
            StoreRequest::Remove { lookup, .. } => write!(f, "Remove({lookup:?})"),
            StoreRequest::Replay {
                lookup,
                stream,
                after,
                ..
            } => write!(f, "Replay({lookup:?}, {stream:x}-{after})"),
            StoreRequest::Tell { lookup, to, note } => {
                write!(f, "Tell({lookup:?}, {to:x?}, {})", note.len())
            }
            StoreRequest::Touch { .. } => f.write_str("Touch"),
        }
    }
}

/// The answer of a driver's store to a [`StoreRequest`] that wants one.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreAnswer {
    /// Whether the request was carried out. What `false` means depends on the request.
    Done(bool),
    /// The messages that were sent on the stream after the number, in order.
    Events {
        /// The messages, each with its number.
        events: Vec<(u64, Box<str>)>,
        /// Whether the store has kept all messages after the number. `false` if it knows nothing of the stream.
        is_complete: bool,
    },
    /// The store could not be asked, and nothing was changed. The client gets status 503.
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
            StoreAnswer::Done(is_done) => write!(f, "Done({is_done})"),
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
    /// The number of the server that serves the session. All others pass the requests of the client on to it, as long as it is alive.
    pub home: u32,
}

/// A [`SessionRecord`] without its id, as JSON.
#[derive(Serialize, Deserialize)]
struct StoredSession<'a> {
    version: String,
    #[serde(default)]
    client: Option<Implementation>,
    capabilities: ClientCapabilities,
    #[serde(default)]
    log_level: Option<&'a str>,
    #[serde(default)]
    uris: BTreeSet<Box<str>>,
    #[serde(default)]
    is_initialized: bool,
}

impl SessionRecord {
    /// The record as JSON, without the id and the home.
    #[must_use]
    pub fn to_json(&self) -> String {
        let stored = StoredSession {
            version: self.version.as_str().into(),
            client: self.client.clone(),
            capabilities: self.capabilities.clone(),
            log_level: self.log_level.map(LogLevel::as_str),
            uris: self.uris.clone(),
            is_initialized: self.is_initialized,
        };
        // The user is written apart, because it may need escapes and then cannot be borrowed when it is read.
        let pair = (stored, self.user.as_deref());
        serde_json::to_string(&pair).unwrap_or_default()
    }

    /// Reads a record that [`to_json`](SessionRecord::to_json) wrote. `None` if the text is no such record.
    #[must_use]
    pub fn from_json(id: &str, home: u32, text: &str) -> Option<SessionRecord> {
        let (stored, user): (StoredSession<'_>, Option<Box<str>>) =
            serde_json::from_str(text).ok()?;
        Some(SessionRecord {
            id: id.into(),
            version: Version::parse(&stored.version)?,
            client: stored.client,
            capabilities: stored.capabilities,
            user,
            log_level: stored.log_level.and_then(LogLevel::parse),
            uris: stored.uris,
            is_initialized: stored.is_initialized,
            home,
        })
    }

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
            home: 0,
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
                keep: Duration::ZERO,
            },
            StoreRequest::Find {
                lookup,
                session: "secret".into(),
            },
            StoreRequest::Put {
                lookup: None,
                record: Box::new(record.clone()),
                is_new: true,
                keep: Duration::ZERO,
            },
            StoreRequest::Tell {
                lookup: None,
                to: None,
                note: "secret".into(),
            },
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

    #[test]
    fn record_is_read_as_it_was_written() {
        let mut record = SessionRecord::new("id", Version::V2025_11_25);
        record.client = Some(Implementation::new("a \"host\"", "1"));
        record.user = Some("Eve \"the\" user".into());
        record.log_level = Some(LogLevel::Warning);
        record.uris = [Box::from("file:///a")].into();
        record.is_initialized = true;
        record.home = 7;
        let text = record.to_json();
        assert!(!text.contains("id\":"), "{text}");
        assert_eq!(SessionRecord::from_json("id", 7, &text), Some(record));
        for bad in [
            "",
            "{}",
            "[1,2]",
            "[{\"version\":\"1\",\"capabilities\":{}},null]",
        ] {
            assert_eq!(SessionRecord::from_json("id", 7, bad), None, "{bad}");
        }
    }

    /// The limit of unpolled outputs counts these bytes.
    #[test]
    fn weight_of_a_request_is_its_own_and_that_of_all_texts_in_it() {
        let mut record = SessionRecord::new("abc", Version::LATEST_LEGACY);
        record.uris = [Box::from("a:"), Box::from("b:cd")].into();
        let (lookup, session) = (LookupId::from_number(1), Box::from("abc"));
        let append = StoreRequest::Append {
            session,
            stream: 1,
            number: 1,
            message: "hello".into(),
            keep: Duration::ZERO,
        };
        let put = StoreRequest::Put {
            lookup: None,
            record: Box::new(record),
            is_new: true,
            keep: Duration::ZERO,
        };
        let find = StoreRequest::Find {
            lookup,
            session: "abcd".into(),
        };
        let tell = StoreRequest::Tell {
            lookup: None,
            to: None,
            note: "a note".into(),
        };
        for (request, session, weight) in [
            (append, "abc", 3 + 5),
            (put, "abc", 3 + size_of::<SessionRecord>() + 2 + 4),
            (find, "abcd", 4),
            (tell, "", 6),
            (StoreRequest::Leave, "", 0),
        ] {
            assert_eq!(request.session(), session);
            assert_eq!(request.weight(), size_of::<StoreRequest>() + weight);
        }
    }
}
