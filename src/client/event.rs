//! What a client link tells its application. Owned values; decides nothing.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use super::catalog::Listing;
use super::failure::{Cause, Ended, Failure};
use super::lifecycle::State;
use crate::id::{AskId, CallId, Epoch};
use crate::noise::Noise;
use crate::protocol::{Implementation, LogLevel, ServerCapabilities, Version};
use crate::queue::Weigh;
use crate::time::Instant;
use crate::watch::{Change, WatchUpdate};
use crate::wire::{ErrorObject, Payload};

/// Something that the application may want to know.
///
/// Each change of the state is told by exactly one event, the one that [`Event::state`] knows a state for, so that a
/// listener's picture of the link is the link's own. These come first, in the order of a life; the others follow by
/// subject.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A transport was asked for.
    Opening {
        /// What it is called.
        epoch: Epoch,
        /// How many attempts in a row have failed before this one.
        failures: u32,
    },
    /// The transport is open; the two ends are agreeing on a version.
    Handshaking {
        /// Which life.
        epoch: Epoch,
    },
    /// The link is ready, for the first time or again.
    Ready(Arc<Session>),
    /// The transport is to be taken down. Nothing new is sent; the calls in flight have a while to end.
    Draining {
        /// Which life.
        epoch: Epoch,
        /// Why.
        cause: Cause,
    },
    /// The transport is being taken down. Calls in flight were settled or wait for the next life.
    Closing {
        /// Which life.
        epoch: Epoch,
        /// Why.
        cause: Cause,
    },
    /// The next attempt has its time.
    Waiting {
        /// When it comes, unless something makes it come earlier.
        until: Instant,
        /// How many attempts in a row have failed.
        failures: u32,
        /// How many may.
        budget: u32,
    },
    /// The attempts are used up, or it would be in vain; the link looks now and then, on a call and on `wake`.
    Parked {
        /// When it looks next.
        until: Instant,
    },
    /// The end. The last event there is.
    Closed,

    /// Nothing is left of a life; this is its story. Comes before what follows it.
    Ended(Arc<Ended>),
    /// The handshake takes long, but the server has not ended. Comes again and again.
    Slow {
        /// Which life.
        epoch: Epoch,
        /// For how long by now.
        waited: Duration,
        /// When it will have failed.
        limit: Duration,
    },

    /// The server was asked whether it is there, and has not answered. Told once; [`Event::Responsive`] follows when it says something. It
    /// is replaced only if something is wanted of it.
    Silent {
        /// Which epoch.
        epoch: Epoch,
        /// For how long it has said nothing.
        silent: Duration,
    },
    /// The server says something again, after [`Event::Silent`].
    Responsive {
        /// Which epoch.
        epoch: Epoch,
        /// For how long it had said nothing.
        silent: Duration,
    },

    /// A call has its outcome: its first, last and only one.
    Done {
        /// Which call.
        call: CallId,
        /// What came of it.
        outcome: Outcome,
    },
    /// A call is getting on.
    Progress {
        /// Which call.
        call: CallId,
        /// How far it is, in the server's own measure. It only grows, until the call is sent anew.
        progress: f64,
        /// How far it will go, if the server knows.
        total: Option<f64>,
        /// What the server says about it.
        message: Option<Box<str>>,
    },

    /// The server asks something; reply with [`answer`](super::Client::answer).
    Ask(Ask),
    /// A question needs no answer any more.
    AskWithdrawn {
        /// Which question.
        ask: AskId,
        /// Why.
        why: Withdrawn,
    },

    /// The server wants credentials, or better ones. Nothing is sent until [`authorized`](super::Client::authorized) says that
    /// there are some, or [`denied`](super::Client::denied) that there will be none.
    AuthRequired(Challenge),
    /// A tool of the server breaks the rules for what it wants to see in the fields of a request, and was left out (S-XHDR-07).
    ToolDropped {
        /// Which.
        tool: Box<str>,
        /// What is wrong with it.
        why: Box<str>,
    },

    /// Something that is watched has changed.
    Changed(Change),
    /// The watch was set up, was repeated to a new server, or is granted otherwise than before. What changed in between
    /// was not heard: look again at what matters.
    Watching {
        /// Which life.
        epoch: Epoch,
        /// What of the wish the server grants: how that differs from what was told before in this life. See
        /// [`Client::granted`](super::Client::granted) for all of it.
        granted: Box<WatchUpdate>,
    },
    /// The server logs.
    Log {
        /// For which call, where that can be told.
        call: Option<CallId>,
        /// How grave.
        level: LogLevel,
        /// Which part of the server.
        logger: Option<Box<str>>,
        /// What.
        data: Payload,
    },
    /// Another notification of the server, as it came.
    Notified {
        /// Its method.
        method: Box<str>,
        /// Its parameters.
        params: Option<Payload>,
    },
    /// The server wrote something of no use. A sample: the first few, then ever fewer.
    Noise(Noise),
}

impl Event {
    /// The state that the link has entered, if that is what the event tells.
    #[must_use]
    pub const fn state(&self) -> Option<State> {
        Some(match self {
            Event::Opening { .. } => State::Opening,
            Event::Handshaking { .. } => State::Handshaking,
            Event::Ready(_) => State::Ready,
            Event::Draining { .. } => State::Draining,
            Event::Closing { .. } => State::Closing,
            Event::Waiting { .. } => State::Waiting,
            Event::Parked { .. } => State::Parked,
            Event::Closed => State::Closed,
            Event::Ended(_)
            | Event::Slow { .. }
            | Event::Silent { .. }
            | Event::Responsive { .. }
            | Event::Done { .. }
            | Event::Progress { .. }
            | Event::Ask(_)
            | Event::AskWithdrawn { .. }
            | Event::AuthRequired(_)
            | Event::ToolDropped { .. }
            | Event::Changed(_)
            | Event::Watching { .. }
            | Event::Log { .. }
            | Event::Notified { .. }
            | Event::Noise(_) => return None,
        })
    }
}

/// What came of a call.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The server replied with an error of its own. It is alive.
    Error(Arc<ErrorObject>),
    /// There is no reply, and this is why.
    Failed(Box<Failure>),
    /// The list that was asked for, whole.
    Listed(Arc<Listing>),
    /// The server's result, as it came. An `isError` result is one, too.
    Reply(Payload),
}

/// What both ends agreed on for one life.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Session {
    /// Which life.
    pub epoch: Epoch,
    /// The version that is spoken; it implies the era.
    pub version: Version,
    /// Who the server says it is.
    pub server: Option<Implementation>,
    /// What it offers.
    pub capabilities: ServerCapabilities,
    /// How it wants to be used.
    pub instructions: Option<Box<str>>,
}

/// What a server says it takes to be let in.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Challenge {
    /// In which life.
    pub epoch: Epoch,
    /// 401: there are no credentials, or they are not good (any more). 403: they are not enough.
    pub status: u16,
    /// The `WWW-Authenticate` fields, as they came.
    pub demands: Vec<Box<str>>,
}

/// Fields of HTTP are told by their text alone, not in here.
impl fmt::Debug for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Challenge")
            .field("epoch", &self.epoch)
            .field("status", &self.status)
            .field("demands", &self.demands.len())
            .finish()
    }
}

/// A question of the server.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ask {
    /// What to call it in the answer.
    pub ask: AskId,
    /// For which call, where that can be told.
    pub call: Option<CallId>,
    /// What kind: `sampling/createMessage`, `elicitation/create`, `roots/list`.
    pub method: Cow<'static, str>,
    /// What exactly.
    pub params: Option<Payload>,
    /// When it will be given up.
    pub until: Instant,
}

/// Why a question needs no answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Withdrawn {
    /// The call that it belongs to was settled otherwise.
    CallSettled,
    /// The server took it back.
    ByServer,
    /// The life that asked has ended.
    Ended,
    /// It was not answered in time; the server was told so.
    TimedOut,
}

impl fmt::Display for Withdrawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Withdrawn::ByServer => "the server took it back",
            Withdrawn::CallSettled => "the call that it belongs to is done",
            Withdrawn::Ended => "the connection that asked has ended",
            Withdrawn::TimedOut => "it was not answered in time",
        })
    }
}

impl Weigh for Event {
    fn weight(&self) -> usize {
        let of = |payload: &Payload| payload.as_str().len();
        let held = match self {
            Event::Ask(ask) => ask.params.as_ref().map_or(0, of),
            Event::Changed(Change::Resource { uri }) => uri.len(),
            Event::Done { outcome, .. } => match outcome {
                Outcome::Error(error) => error.message.len() + error.data.as_ref().map_or(0, of),
                Outcome::Reply(result) => of(result),
                // These are shared, or small.
                Outcome::Failed(_) | Outcome::Listed(_) => 0,
            },
            Event::Log { logger, data, .. } => {
                logger.as_ref().map_or(0, |name| name.len()) + of(data)
            }
            Event::Noise(noise) => noise.sample.len(),
            Event::Notified { method, params } => method.len() + params.as_ref().map_or(0, of),
            Event::Progress { message, .. } => message.as_ref().map_or(0, |text| text.len()),
            Event::AuthRequired(challenge) => challenge.demands.iter().map(|d| d.len()).sum(),
            Event::ToolDropped { tool, why } => tool.len() + why.len(),
            Event::AskWithdrawn { .. }
            | Event::Changed(Change::List(_))
            | Event::Closed
            | Event::Closing { .. }
            | Event::Draining { .. }
            | Event::Ended(_)
            | Event::Handshaking { .. }
            | Event::Opening { .. }
            | Event::Parked { .. }
            | Event::Ready(_)
            | Event::Responsive { .. }
            | Event::Silent { .. }
            | Event::Slow { .. }
            | Event::Waiting { .. }
            | Event::Watching { .. } => 0,
        };
        size_of::<Event>() + held
    }
}
