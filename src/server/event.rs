//! What a server end tells its application. Owned values; decides nothing.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use super::origin::{Lane, SessionKey};
use crate::fault::Fault;
use crate::http::Verb;
use crate::id::{AskId, RequestId, StreamId};
use crate::noise::Noise;
use crate::protocol::question::Unaskable;
use crate::protocol::{LogLevel, Peer};
use crate::queue::Weigh;
use crate::watch::WatchUpdate;
use crate::wire::{ErrorObject, Payload};

/// Something that the application may want to know.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A client has said who it is: in the legacy era with each handshake, in the modern one whenever it says something new.
    Met(Arc<Peer>),
    /// The legacy client has said that its handshake is over.
    Initialized,
    /// The end has come: nothing new is taken, and what is in flight, or waits for the offer, has a while.
    Draining {
        /// Why.
        why: EndOfService,
    },
    /// The end. The last event there is.
    Closed {
        /// Every fault of the transport that was reported, in order, up to a bound. None: it ended in order.
        faults: Vec<Fault>,
    },

    /// A client asks for something. Answer with [`respond`](super::Server::respond) or [`fail`](super::Server::fail).
    Request(Request),
    /// A request needs no answer any more, and none can be given: stop what is done for it.
    Cancelled {
        /// Which request.
        request: RequestId,
        /// Why.
        why: Cancelled,
    },
    /// A question has its outcome: its first, last and only one.
    Answered {
        /// Which question.
        ask: AskId,
        /// For which request, if for one.
        request: Option<RequestId>,
        /// The client's answer, or why there is none.
        outcome: Result<Payload, Unanswered>,
    },

    /// What clients want to hear of has changed: how what all of them watch together differs from what it was. See
    /// [`Server::watched`](super::Server::watched) for all of it.
    Watching(Box<WatchUpdate>),
    /// Another notification of a client, as it came.
    Notified {
        /// Its method.
        method: Box<str>,
        /// Its parameters.
        params: Option<Payload>,
        /// Who says it.
        caller: Caller,
    },
    /// A client wrote something of no use. A sample: the first few, then ever fewer.
    Noise(Noise),
    /// A notification was dropped because its client does not read. A sample: the first, then every power of two.
    NotificationsDropped {
        /// How many there were so far, of all clients.
        count: u64,
    },
    /// A request over HTTP was refused. A sample: for each reason the first, then every power of two.
    Refused(Box<Refused>),
}

/// A request over HTTP that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// What it was to do.
    pub verb: Verb,
    /// Its path, without the query, which may hold a secret. `None`: it is not known any more.
    pub path: Option<Box<str>>,
    /// The network address that it came from, if the driver says so.
    pub address: Option<IpAddr>,
    /// The status of the response.
    pub status: u16,
    /// Why, in words. A `Host` or an `Origin` that is not allowed is quoted.
    pub why: Box<str>,
    /// The same for a program, where an operator can do something about it.
    pub cause: RefusalCause,
    /// How many were refused with this status for this reason, this one included.
    pub count: u64,
}

/// Why a request over HTTP was refused, as far as an operator can do something about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalCause {
    /// Its `Host` is not one of [`hosts`](super::Http::hosts).
    Host,
    /// Its `Origin` is neither one of [`origins`](super::Http::origins) nor of [`cors`](super::Http::cors).
    Origin,
    /// Another reason.
    Other,
    /// Nothing is served at its path.
    Path,
    /// Its message is longer than [`message_bytes`](super::Limits::message_bytes).
    Size,
}

/// What a client asks for.
#[derive(Debug)]
#[non_exhaustive]
pub struct Request {
    /// What to call it.
    pub request: RequestId,
    /// What is asked.
    pub method: Cow<'static, str>,
    /// With which parameters. What is between the two ends of the link is not in them any more; what else stands in
    /// `_meta` is.
    pub params: Option<Payload>,
    /// Who asks, and what it can be asked itself while this request runs.
    pub peer: Arc<Peer>,
    /// On behalf of whom, as whoever checked the credentials says. Over HTTP alone.
    pub user: Option<Box<str>>,
    /// Whose request it is.
    pub caller: Caller,
    /// Whether [`progress`](super::Server::progress) will be heard.
    pub wants_progress: bool,
    /// From which level on [`log`](super::Server::log) will be heard, in the modern era.
    pub log_level: Option<LogLevel>,
    /// What was wanted with [`require_input`](super::Server::require_input) of an earlier request like this.
    pub input: Option<Supplied>,
}

/// Whose request something is. Two are equal where they are known to be of the same client: on a byte stream, in a session, or of a user
/// whose credentials were checked. An exchange of HTTP of which nothing else is known is a client of its own.
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
    /// Whose message this is, as far as that can be told: by the way for its answers, its session in the legacy era, and its user.
    pub(super) fn of(lane: Lane, session: Option<SessionKey>, user: Option<&str>) -> Caller {
        match (session, lane, user) {
            (_, Lane::DUPLEX, _) => Caller::LINK,
            (Some(session), _, _) => Caller::session(session.number()),
            (None, _, Some(user)) => Caller::user(user.into()),
            (None, Lane::Stream(stream), None) => Caller::exchange(stream),
            (None, Lane::Session(session), None) => Caller::session(session.number()),
        }
    }

    /// The one client of a byte stream.
    pub(crate) const LINK: Caller = Caller(Whose::Link);

    pub(crate) const fn exchange(stream: StreamId) -> Caller {
        Caller(Whose::Exchange(stream))
    }

    pub(super) const fn session(number: u64) -> Caller {
        Caller(Whose::Session(number))
    }

    /// Whether it is a legacy client in a session over HTTP.
    pub(crate) const fn is_session(&self) -> bool {
        self.session_number().is_some()
    }

    /// The number of its session, if it is in one.
    pub(super) const fn session_number(&self) -> Option<u64> {
        match &self.0 {
            Whose::Session(number) => Some(*number),
            Whose::Exchange(_) | Whose::Link | Whose::User(_) => None,
        }
    }

    pub(super) const fn user(name: Box<str>) -> Caller {
        Caller(Whose::User(name))
    }
}

/// Who it is stays out.
impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caller")
    }
}

/// What a client gives when it asks again with the input that was wanted.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Supplied {
    /// The answers: an object with those keys that were asked for, and perhaps others.
    pub answers: Option<Payload>,
    /// The state that was given, as the client says. It may have been tampered with.
    pub state: Option<Box<str>>,
}

/// What stands in the state is nobody else's business.
impl fmt::Debug for Supplied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supplied")
            .field("answers", &self.answers)
            .field("state_len", &self.state.as_ref().map(|state| state.len()))
            .finish()
    }
}

/// Why a request needs no answer any more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancelled {
    /// The client introduced itself anew, and what it asked before is over.
    Anew,
    /// The client does not want it any more.
    ByPeer {
        /// Why, in its own words.
        reason: Option<Box<str>>,
        /// The `_meta` of its `notifications/cancelled`.
        meta: Option<Payload>,
    },
    /// The client was asked something and did not come back with the answer in time.
    NotResumed,
    /// The time for last answers is over; a client that waited for this one was told so.
    OutOfTime,
    /// The client is gone.
    PeerGone,
}

/// Why the service ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndOfService {
    /// The client says no more.
    EndOfInput,
    /// [`shutdown`](super::Server::shutdown) was asked for.
    Shutdown,
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unanswered {
    /// The client answered with an error.
    Error(ErrorObject),
    /// The client answered with something that is no answer.
    Invalid {
        /// What is wrong with it.
        why: Box<str>,
    },
    /// The client is gone.
    PeerGone,
    /// The request that it belongs to was answered or cancelled.
    RequestOver,
    /// It was not answered in time.
    TimedOut,
    /// The client came back too often without the answer.
    TooManyRounds {
        /// How often.
        rounds: u32,
    },
    /// The client came back without the answer, and without saying that it can be asked.
    Unaskable(Unaskable),
    /// [`withdraw`](super::Server::withdraw) was called.
    Withdrawn,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unanswered::Error(error) => write!(f, "the client refused: {error}"),
            Unanswered::Invalid { why } => write!(f, "the client's answer cannot be used: {why}"),
            Unanswered::PeerGone => f.write_str("the client is gone, or began anew"),
            Unanswered::RequestOver => f.write_str("the request that it was asked for is over"),
            Unanswered::TimedOut => f.write_str("the client did not answer in time"),
            Unanswered::TooManyRounds { rounds } => {
                write!(f, "the client came back {rounds} times without the answer")
            }
            Unanswered::Unaskable(why) => write!(f, "the client cannot be asked any more: {why}"),
            Unanswered::Withdrawn => f.write_str("the question was taken back"),
        }
    }
}

impl core::error::Error for Unanswered {}

/// Where a server end stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// It takes requests.
    Serving,
    /// It takes no new ones, and brings those that it has to an end.
    Draining,
    /// It is over.
    Closed,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Serving => "serving",
            State::Draining => "draining",
            State::Closed => "closed",
        })
    }
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
