//! The events that a client link sends to its application. They are owned values without logic.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::client::catalog::lists::Listing;
use crate::client::failure::{Cause, Ended, Failure};
use crate::client::lifecycle::table::State;
use crate::driver::{AskId, CallId, Epoch, Instant};
use crate::json::Payload;
use crate::protocol::watch::{Change, WatchUpdate};
use crate::protocol::{Implementation, LogLevel, ServerCapabilities, Version};
use crate::util::Arc;
use crate::util::noise::Noise;
use crate::util::queue::Weigh;
use crate::wire::ErrorObject;

/// An event for the application.
///
/// Each change of state is reported by exactly one event, for which [`Event::state`] returns the new state. So a listener always knows the state of
/// the link. These events come first, in the order of an epoch; the others follow by subject.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The link asked the driver for a transport.
    Opening {
        /// The number of the transport.
        epoch: Epoch,
        /// The number of attempts that failed in a row before this one.
        failures: u32,
    },
    /// The transport is open, and the handshake has begun.
    Handshaking {
        /// The epoch.
        epoch: Epoch,
    },
    /// The link is ready, for the first time or again.
    Ready(Arc<Session>),
    /// The transport will be closed. Nothing new is sent, and calls in flight get time to end.
    Draining {
        /// The epoch.
        epoch: Epoch,
        /// Why it will be closed.
        cause: Cause,
    },
    /// The transport is being closed. Calls in flight were settled or wait for the next epoch.
    Closing {
        /// The epoch.
        epoch: Epoch,
        /// Why it is closed.
        cause: Cause,
    },
    /// The link waits until the next attempt.
    Waiting {
        /// When the next attempt starts, unless something makes it start earlier.
        until: Instant,
        /// The number of attempts that failed in a row.
        failures: u32,
        /// How many may fail before retries are exhausted.
        budget: u32,
    },
    /// Retries are exhausted, or would not help. The link probes rarely: by a timer, on a call and on `wake`.
    Parked {
        /// When the next attempt starts by itself.
        until: Instant,
    },
    /// The link is closed. This is the last event.
    Closed,

    /// Nothing is left of the transport. This is the report about it, and comes before the event for the next state.
    Ended(Arc<Ended>),
    /// The handshake takes long, but has not failed. This event is repeated.
    Slow {
        /// The epoch.
        epoch: Epoch,
        /// How long the handshake has taken so far.
        waited: Duration,
        /// How long it may take before it fails.
        limit: Duration,
    },

    /// The server did not reply to a probe. This is reported once; [`Event::Responsive`] follows as soon as the server sends something. A silent
    /// server is replaced only while a call waits for it.
    Silent {
        /// The epoch.
        epoch: Epoch,
        /// How long the server has sent nothing.
        silent: Duration,
    },
    /// The server sent something again, after [`Event::Silent`].
    Responsive {
        /// The epoch.
        epoch: Epoch,
        /// How long the server had sent nothing.
        silent: Duration,
    },

    /// A call has its outcome. There is exactly one for each call.
    Done {
        /// The id that [`call`](super::Client::call) or [`list`](super::Client::list) returned.
        call: CallId,
        /// The reply, or why there is none.
        outcome: Outcome,
    },
    /// The server reported progress of a call.
    Progress {
        /// The id that [`call`](super::Client::call) returned.
        call: CallId,
        /// The progress, in the server's own unit. It only increases, until the call is sent again.
        progress: f64,
        /// The value at which the call is complete, if the server knows it.
        total: Option<f64>,
        /// A text from the server about the progress.
        message: Option<Box<str>>,
    },

    /// The server asks something; answer with [`answer`](super::Client::answer).
    Ask(Ask),
    /// An ask needs no answer any more.
    AskWithdrawn {
        /// The id of the ask, as in [`Event::Ask`].
        ask: AskId,
        /// Why it needs none.
        why: Withdrawn,
    },

    /// The server wants credentials, or better ones. Nothing is sent until the application calls [`authorized`](super::Client::authorized) or
    /// [`denied`](super::Client::denied).
    AuthRequired(Challenge),
    /// A tool was left out of the list, because its rules for header fields are invalid.
    ToolDropped {
        /// The name of the tool.
        tool: Box<str>,
        /// The rule that the tool breaks.
        why: Box<str>,
    },

    /// Something that the application watches has changed.
    Changed(Change),
    /// The watch was set up, was repeated to a new server, or is now granted differently. Changes in between were missed, so read again what matters.
    Watching {
        /// The epoch.
        epoch: Epoch,
        /// How the granted watch differs from what was reported before in this epoch. See [`Client::granted`](super::Client::granted) for the whole
        /// watch.
        granted: Box<WatchUpdate>,
    },
    /// The server sent a log message.
    Log {
        /// The call that it belongs to, if that is known.
        call: Option<CallId>,
        /// Its severity.
        level: LogLevel,
        /// The part of the server that logged it.
        logger: Option<Box<str>>,
        /// The logged data.
        data: Payload,
    },
    /// The server sent another notification, passed on unchanged.
    Notified {
        /// Its method.
        method: Box<str>,
        /// Its parameters.
        params: Option<Payload>,
        /// The call that it belongs to, if the transport shows that.
        call: Option<CallId>,
    },
    /// The server wrote something unusable. Only a sample is reported: the first 8, then every one whose number is a power of two.
    Noise(Noise),
}

impl Event {
    /// The state that the link has entered, if the event reports one.
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

/// The outcome of a call.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The server replied with an error, so it is alive.
    Error(Arc<ErrorObject>),
    /// There is no reply; the failure says why.
    Failed(Box<Failure>),
    /// The complete list that was asked for.
    Listed(Arc<Listing>),
    /// The server's result, unchanged. This includes results with `isError`.
    Reply(Payload),
}

/// The result of the handshake of one epoch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Session {
    /// The epoch.
    pub epoch: Epoch,
    /// The agreed version; it implies the era.
    pub version: Version,
    /// The name and version that the server gives itself.
    pub server: Option<Implementation>,
    /// The capabilities of the server.
    pub capabilities: ServerCapabilities,
    /// The server's instructions for its use.
    pub instructions: Option<Box<str>>,
    /// The server's reply in the handshake, if a relay must pass it on.
    pub(crate) introduction: Option<Payload>,
}

/// A demand of the server for credentials.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Challenge {
    /// The epoch.
    pub epoch: Epoch,
    /// The HTTP status. 401: the credentials are missing, wrong or expired. 403: they are not sufficient.
    pub status: u16,
    /// The `WWW-Authenticate` fields, unchanged.
    pub demands: Vec<Box<str>>,
}

/// Leaves out the text of the fields.
impl fmt::Debug for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Challenge")
            .field("epoch", &self.epoch)
            .field("status", &self.status)
            .field("demands", &self.demands.len())
            .finish()
    }
}

/// An ask: a request of the server to the client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ask {
    /// The id to answer it with.
    pub ask: AskId,
    /// The call that it belongs to, if that is known.
    pub call: Option<CallId>,
    /// The method: `sampling/createMessage`, `elicitation/create` or `roots/list`.
    pub method: Cow<'static, str>,
    /// The parameters of the request.
    pub params: Option<Payload>,
    /// When the ask times out.
    pub until: Instant,
}

/// Why an ask needs no answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Withdrawn {
    /// The call that it belongs to has ended.
    CallSettled,
    /// The server cancelled it.
    ByServer,
    /// The epoch in which it was asked has ended.
    Ended,
    /// It was not answered in time; the server was told.
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
                // Shared or small.
                Outcome::Failed(_) | Outcome::Listed(_) => 0,
            },
            Event::Log { logger, data, .. } => {
                logger.as_ref().map_or(0, |name| name.len()) + of(data)
            }
            Event::Noise(noise) => noise.sample.len(),
            Event::Notified { method, params, .. } => method.len() + params.as_ref().map_or(0, of),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit for events that are not polled counts their content.
    #[test]
    fn event_weighs_all_its_texts() {
        let payload = |text: &str| text.parse::<Payload>().unwrap();
        let mut error = ErrorObject::new(-1, "three");
        error.data = Some(payload("[1,2,3]"));
        let call = CallId::from_number(1);
        for (event, bytes) in [
            (
                Event::Done {
                    call,
                    outcome: Outcome::Error(error.into()),
                },
                5 + 7,
            ),
            (
                Event::Notified {
                    method: "a/b".into(),
                    params: Some(payload(r#"{"c":1}"#)),
                    call: None,
                },
                3 + 7,
            ),
            (
                Event::ToolDropped {
                    tool: "add".into(),
                    why: "for a reason".into(),
                },
                3 + 12,
            ),
        ] {
            assert_eq!(event.weight(), size_of::<Event>() + bytes, "{event:?}");
        }
    }
}
