//! Defines the events that a server reports to its application. They own their data and decide nothing.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use crate::driver::{AskId, Fault, RequestId, StreamId};
use crate::http::Verb;
use crate::json::Payload;
use crate::protocol::question::Unaskable;
use crate::protocol::watch::WatchUpdate;
use crate::protocol::{LogLevel, Peer, TraceContext};
use crate::server::origin::{QueueId, SessionKey};
use crate::util::Arc;
use crate::util::noise::Noise;
use crate::util::queue::Weigh;
use crate::wire::ErrorObject;

/// An event for the application.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A client has introduced itself. A legacy client does so with each handshake, a modern one whenever its description changes.
    Met(Arc<Peer>),
    /// The legacy client has sent `notifications/initialized`.
    Initialized,
    /// The server takes no new requests. Requests in flight have [`Config::drain`](crate::server::Config::drain) to finish. Requests that wait for
    /// the offer have the same time after the end of input; on a shutdown they are refused at once.
    Draining {
        /// Why the server takes no new requests.
        why: EndOfService,
    },
    /// The server is closed. This is the last event.
    Closed {
        /// The transport faults that were reported, in order: at most the first 16. Empty after an orderly end.
        faults: Vec<Fault>,
    },

    /// A client sent a request. Answer with [`respond`](crate::server::Server::respond) or [`fail`](crate::server::Server::fail).
    Request(Request),
    /// A request was cancelled and can no longer be answered. Stop the work on it.
    Cancelled {
        /// The id of the request, as in [`Event::Request`].
        request: RequestId,
        /// Why the request was cancelled.
        why: Cancelled,
    },
    /// An ask has its outcome. Each ask gets exactly one.
    Answered {
        /// The ask.
        ask: AskId,
        /// The request that needed it, if any.
        request: Option<RequestId>,
        /// The client's answer, or why there is none.
        outcome: Result<Payload, Unanswered>,
    },

    /// The union of what all clients watch has changed. Holds the difference to the last report.
    /// [`Server::watched`](crate::server::Server::watched) returns the whole union.
    Watching(Box<WatchUpdate>),
    /// Another notification from a client, as received.
    Notified {
        /// Its method.
        method: Box<str>,
        /// Its parameters.
        params: Option<Payload>,
        /// The client that sent it.
        caller: Caller,
    },
    /// A client sent input that is not a usable message. Reported for the first 8, then for every power of two.
    Noise(Noise),
    /// A notification was dropped because its client does not read. Reported for the first, then for every power of two.
    NotificationsDropped {
        /// The number of notifications dropped so far, over all clients.
        count: u64,
    },
    /// A request over HTTP was refused. For each reason, reported for the first, then for every power of two.
    Refused(Box<Refused>),
}

/// A request over HTTP that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// The HTTP method of the request.
    pub verb: Verb,
    /// Its path, without the query, which may hold a secret. `None` if the path is no longer known.
    pub path: Option<Box<str>>,
    /// The network address of the client, if the driver reports it.
    pub address: Option<IpAddr>,
    /// The status of the response.
    pub status: u16,
    /// The reason as text. It quotes a `Host` or an `Origin` that is not allowed.
    pub why: Box<str>,
    /// The reason as a value, as far as an operator can fix it.
    pub cause: RefusalCause,
    /// The number of requests refused with this status for this reason, including this one.
    pub count: u64,
}

/// The cause of a refusal over HTTP, as far as an operator can fix it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalCause {
    /// Its `Host` is not one of [`hosts`](crate::server::Http::hosts).
    Host,
    /// Its `Origin` is neither one of [`origins`](crate::server::Http::origins) nor of [`cors`](crate::server::Http::cors).
    Origin,
    /// Another reason.
    Other,
    /// Nothing is served at its path.
    Path,
    /// Its message is longer than [`message_bytes`](crate::server::Limits::message_bytes).
    Size,
    /// The [driver's store](crate::server::DriverStorage) failed, or did not answer in time.
    Store,
}

/// A request of a client.
#[derive(Debug)]
#[non_exhaustive]
pub struct Request {
    /// The id of the request at this server.
    pub request: RequestId,
    /// The method.
    pub method: Cow<'static, str>,
    /// The parameters, without the members that concern only the two ends of the link. Other members of `_meta` remain.
    pub params: Option<Payload>,
    /// The client that sent the request, with what it can be asked while the request runs.
    pub peer: Arc<Peer>,
    /// The authenticated user, as reported by the component that checked the credentials. Only over HTTP.
    pub user: Option<Box<str>>,
    /// The trace context that the client sent: in `_meta`, where it also remains, or else in the header of the HTTP request.
    pub trace: Option<Box<TraceContext>>,
    /// The client that the request belongs to.
    pub caller: Caller,
    /// Whether the client receives reports of [`progress`](crate::server::Server::progress).
    pub wants_progress: bool,
    /// The lowest level at which the client receives messages of [`log`](crate::server::Server::log), in the modern era.
    pub log_level: Option<LogLevel>,
    /// The input that the client supplies after a [`require_input`](crate::server::Server::require_input) for an earlier request like this.
    pub input: Option<Supplied>,
}

/// The client that a message belongs to. Two callers are equal if they are known to be one client: on a byte stream, in one session, or
/// with one authenticated user. An HTTP exchange of which nothing else is known counts as a client of its own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller(Whose);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    Exchange(StreamId),
    Link,
    Session(u64),
    User(Box<str>),
}

impl Caller {
    /// Returns the client of a message, from the queue for its replies, its legacy session and its user.
    pub(crate) fn of(queue: QueueId, session: Option<SessionKey>, user: Option<&str>) -> Caller {
        match (session, queue, user) {
            (_, QueueId::DUPLEX, _) => Caller::LINK,
            (Some(session), _, _) => Caller::session(session.number()),
            (None, _, Some(user)) => Caller::user(user.into()),
            (None, QueueId::Stream(stream), None) => Caller::exchange(stream),
            (None, QueueId::Session(session), None) => Caller::session(session.number()),
        }
    }

    /// The one client of a byte stream.
    pub(crate) const LINK: Caller = Caller(Whose::Link);

    pub(crate) const fn exchange(stream: StreamId) -> Caller {
        Caller(Whose::Exchange(stream))
    }

    pub(crate) const fn session(number: u64) -> Caller {
        Caller(Whose::Session(number))
    }

    /// Whether this is a legacy client in a session over HTTP.
    pub(crate) const fn is_session(&self) -> bool {
        self.session_number().is_some()
    }

    /// The number of the client's session, if it is in one.
    pub(crate) const fn session_number(&self) -> Option<u64> {
        match &self.0 {
            Whose::Session(number) => Some(*number),
            Whose::Exchange(_) | Whose::Link | Whose::User(_) => None,
        }
    }

    pub(crate) const fn user(name: Box<str>) -> Caller {
        Caller(Whose::User(name))
    }
}

/// Leaves out the identity of the client.
impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caller")
    }
}

/// The input that a client supplies when it repeats a request after [`require_input`](crate::server::Server::require_input).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Supplied {
    /// The answers: an object with the keys that were asked for, and possibly others.
    pub answers: Option<Payload>,
    /// The state as the client returned it. The client may have tampered with it.
    pub state: Option<Box<str>>,
}

/// Leaves out the text of the state, which may be confidential.
impl fmt::Debug for Supplied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supplied")
            .field("answers", &self.answers)
            .field("state_len", &self.state.as_ref().map(|state| state.len()))
            .finish()
    }
}

/// The reason for which a request was cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancelled {
    /// The client sent `initialize` again, which ends its earlier requests.
    Anew,
    /// The client cancelled the request.
    ByPeer {
        /// The reason that the client gave.
        reason: Option<Box<str>>,
        /// The `_meta` of its `notifications/cancelled`.
        meta: Option<Payload>,
    },
    /// The client was asked something and did not come back with the answer in time, or before another client needed the place.
    NotResumed,
    /// The drain time is over. A client that waited for the reply was sent an error.
    OutOfTime,
    /// The client is gone.
    PeerGone,
}

/// The reason for which a server shuts down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndOfService {
    /// The client closed its end of the stream.
    EndOfInput,
    /// The application called [`shutdown`](crate::server::Server::shutdown).
    Shutdown,
}

/// The reason for which an ask has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unanswered {
    /// The client answered with an error.
    #[error("the client refused: {0}")]
    Error(ErrorObject),
    /// The client's answer is malformed.
    #[error("the client's answer cannot be used: {why}")]
    Invalid {
        /// A description of the defect.
        why: Box<str>,
    },
    /// The client is gone, or sent `initialize` again.
    #[error("the client is gone, or began anew")]
    PeerGone,
    /// The request that needed the ask was answered or cancelled.
    #[error("the request that it was asked for is over")]
    RequestOver,
    /// The client did not answer in time.
    #[error("the client did not answer in time")]
    TimedOut,
    /// The client came back as often as [`Limits::input_rounds`](crate::server::Limits::input_rounds) allows, without the answer.
    #[error("the client came back {rounds} times without the answer")]
    TooManyRounds {
        /// The number of rounds.
        rounds: u32,
    },
    /// The client came back without the answer, and no longer declares that it can be asked.
    #[error("the client cannot be asked any more: {0}")]
    Unaskable(Unaskable),
    /// [`withdraw`](crate::server::Server::withdraw) was called.
    #[error("the question was taken back")]
    Withdrawn,
}

impl Weigh for Event {
    fn weight(&self) -> usize {
        let of = |payload: &Payload| payload.as_str().len();
        let held = match self {
            Event::Answered { outcome, .. } => match outcome {
                Ok(answer) => of(answer),
                Err(Unanswered::Error(error)) => {
                    error.message.len() + error.data.as_ref().map_or(0, of)
                }
                Err(_) => 0,
            },
            Event::Cancelled { why, .. } => match why {
                Cancelled::ByPeer { reason, meta } => {
                    reason.as_ref().map_or(0, |text| text.len()) + meta.as_ref().map_or(0, of)
                }
                Cancelled::Anew
                | Cancelled::NotResumed
                | Cancelled::OutOfTime
                | Cancelled::PeerGone => 0,
            },
            Event::Noise(noise) => noise.sample.len(),
            Event::Notified { method, params, .. } => method.len() + params.as_ref().map_or(0, of),
            Event::Request(request) => {
                let input = request.input.as_ref();
                let answers = input.and_then(|input| input.answers.as_ref());
                let state = input.and_then(|input| input.state.as_ref());
                request.method.len()
                    + request.params.as_ref().map_or(0, of)
                    + answers.map_or(0, of)
                    + request.user.as_ref().map_or(0, |user| user.len())
                    + state.map_or(0, |state| state.len())
            }
            Event::Watching(update) => update.bytes(),
            Event::Refused(refused) => {
                refused.why.len() + refused.path.as_ref().map_or(0, |path| path.len())
            }
            Event::Closed { .. }
            | Event::Draining { .. }
            | Event::Initialized
            | Event::Met(_)
            | Event::NotificationsDropped { .. } => 0,
        };
        size_of::<Event>() + held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{ClientCapabilities, Version};

    fn payload(text: &str) -> Payload {
        text.parse().unwrap()
    }

    fn answered(outcome: Result<Payload, Unanswered>) -> Event {
        Event::Answered {
            ask: AskId::from_number(1),
            request: None,
            outcome,
        }
    }

    fn cancelled(why: Cancelled) -> Event {
        let request = RequestId::from_number(1);
        Event::Cancelled { request, why }
    }

    fn request(params: Option<Payload>, user: Option<&str>, input: Option<Supplied>) -> Event {
        Event::Request(Request {
            request: RequestId::from_number(1),
            method: "tools/call".into(),
            params,
            peer: Arc::new(Peer {
                version: Version::LATEST_LEGACY,
                client: None,
                capabilities: ClientCapabilities::default(),
                introduction: None,
            }),
            user: user.map(Into::into),
            trace: None,
            caller: Caller::LINK,
            wants_progress: false,
            log_level: None,
            input,
        })
    }

    fn refused(path: Option<&str>) -> Event {
        Event::Refused(Box::new(Refused {
            verb: Verb::Get,
            path: path.map(Into::into),
            address: None,
            status: 404,
            why: "nothing here".into(),
            cause: RefusalCause::Path,
            count: 1,
        }))
    }

    /// The limit of unpolled events counts these bytes.
    #[test]
    fn weight_of_an_event_is_its_own_and_that_of_all_texts_in_it() {
        let error = ErrorObject {
            data: Some(payload("[1]")),
            ..ErrorObject::new(1, "what")
        };
        let by_peer = Cancelled::ByPeer {
            reason: Some("late".into()),
            meta: Some(payload("{\"a\":1}")),
        };
        let supplied = Supplied {
            answers: Some(payload("{\"a\":{}}")),
            state: Some("state".into()),
        };
        let mut update = WatchUpdate::default();
        update.added.insert("a:".into());
        update.removed.insert("b:cd".into());
        let notified = Event::Notified {
            method: "x/y".into(),
            params: Some(payload("{}")),
            caller: Caller::LINK,
        };
        for (event, held) in [
            (answered(Ok(payload("{}"))), 2),
            (answered(Err(Unanswered::Error(error))), 4 + 3),
            (answered(Err(Unanswered::TimedOut)), 0),
            (cancelled(by_peer), 4 + 7),
            (cancelled(Cancelled::PeerGone), 0),
            (notified, 3 + 2),
            (request(None, None, None), 10),
            (request(Some(payload("{}")), Some("ann"), None), 10 + 2 + 3),
            (request(None, None, Some(supplied)), 10 + 8 + 5),
            (Event::Watching(Box::new(update)), 2 + 4),
            (refused(None), 12),
            (refused(Some("/none")), 12 + 5),
            (Event::Initialized, 0),
        ] {
            assert_eq!(event.weight(), size_of::<Event>() + held, "{event:?}");
        }
    }

    #[test]
    fn only_a_client_in_a_session_over_http_has_a_session() {
        assert!(Caller::session(1).is_session());
        for other in [
            Caller::LINK,
            Caller::exchange(StreamId::new(1)),
            Caller::user("ann".into()),
        ] {
            assert!(!other.is_session());
        }
    }
}
