//! The failures that an application sees: how an epoch ended, and why a call has no reply. This module only holds and formats them.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;
use core::time::Duration;

use crate::client::lifecycle::table::State;
use crate::driver::{CallId, Epoch, ExitStatus, Fault, Span};
use crate::util::Arc;

/// How one epoch ended.
#[derive(Clone)]
#[non_exhaustive]
pub struct Ended {
    /// The epoch.
    pub epoch: Epoch,
    /// Why the transport was closed, or how it died.
    pub cause: Cause,
    /// The reply to the first handshake request, if the second one was tried after it and failed too. The two are `server/discover` and `initialize`,
    /// in either order.
    pub first_try: Option<Box<str>>,
    /// The faults that were reported, in order, up to 16.
    pub faults: Vec<Fault>,
    /// The number of faults beyond those.
    pub more_faults: u32,
    /// The exit status of the child process, once it was reaped.
    pub exit: Option<ExitStatus>,
    /// The end of its output on standard error.
    pub stderr: Box<str>,
    /// How long the epoch lasted, from the attempt to open the transport.
    pub lived: Duration,
    /// How long it was ready, if it ever was.
    pub ready_for: Option<Duration>,
    /// Whether the transport was released although its end had not been reported.
    pub abandoned: bool,
    /// Whether this end counts against the retry budget.
    pub counted: bool,
}

/// Leaves out the text that the server wrote, which only `Display` shows.
impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ended")
            .field("epoch", &self.epoch)
            .field("cause", &self.cause)
            .field("faults", &self.faults)
            .field("more_faults", &self.more_faults)
            .field("exit", &self.exit)
            .field("stderr", &format_args!("{} bytes", self.stderr.len()))
            .field("lived", &self.lived)
            .field("ready_for", &self.ready_for)
            .field("abandoned", &self.abandoned)
            .field("counted", &self.counted)
            .finish()
    }
}

impl Error for Ended {
    /// Returns the first fault that was reported.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.faults.first().map(|fault| fault as &dyn Error)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)?;
        write!(f, " ({}, after {}", self.epoch, Span(self.lived))?;
        if let Some(exit) = &self.exit {
            write!(f, ", {exit}")?;
        }
        f.write_str(")")?;
        for (index, fault) in self.faults.iter().enumerate() {
            write!(f, "{}{fault}", if index == 0 { ": " } else { ", and " })?;
        }
        if self.more_faults > 0 {
            write!(f, ", and {} more faults", self.more_faults)?;
        }
        if let Some(first) = &self.first_try {
            write!(f, "; {first}")?;
            // A server that refuses the handshake is not broken.
            let may_be_broken = !matches!(self.cause, Cause::HandshakeRefused { .. });
            if may_be_broken && first.starts_with("server/discover") {
                f.write_str("; if that request breaks the server, start it again and speak only the legacy era to it (`--era legacy`)")?;
            }
        }
        if self.abandoned {
            f.write_str("; its end was never reported, so something of it may still run")?;
        }
        if !self.stderr.is_empty() {
            write!(f, "; its last lines on stderr:\n{}", self.stderr)?;
        }
        Ok(())
    }
}

/// Why an epoch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// [`reconnect`](super::Client::reconnect) was called.
    AskedTo {
        /// The reason that the caller gave.
        why: Box<str>,
    },
    /// The server ended by itself.
    Died,
    /// The server died of `server/discover`. It is started again and spoken to in the legacy era.
    EraProbe,
    /// The server refused the handshake, or its reply cannot be understood.
    HandshakeRefused {
        /// The reply or action of the server.
        why: Box<str>,
    },
    /// The handshake took too long.
    HandshakeTimedOut,
    /// The server wrote more unusable lines in a row than the limits allow.
    Noise,
    /// The transport could not be opened.
    OpenFailed,
    /// The transport took too long to open.
    OpenTimedOut,
    /// The server said that the session is over.
    SessionLost,
    /// The link was shut down.
    Shutdown,
    /// The server wants credentials, and there are none that it accepts.
    Unauthorized,
    /// The server is temporarily unavailable.
    Unavailable {
        /// The HTTP status of its response.
        status: u16,
    },
    /// The server cannot be reached, or the connection was cut before any response.
    Unreachable,
    /// The server was silent and replied to no probe while a call waited for it.
    Unresponsive {
        /// How long it was silent.
        silent: Duration,
        /// Another observation about the server.
        sign: Sign,
    },
}

/// An observation about a silent server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sign {
    /// Its process used hardly any processor time.
    Idle,
    /// Its process is stopped (`SIGSTOP`).
    Stopped,
    /// Nothing was observed: there is no process, or the system gives no information.
    Unknown,
    /// It replied to probes with an error about a lost session or an upstream server.
    Wedged,
}

impl Cause {
    /// Whether the end was intended. An intended end counts as a failure only if a fault occurred on the way.
    pub(super) const fn is_planned(&self) -> bool {
        match self {
            Cause::AskedTo { .. } | Cause::EraProbe | Cause::Shutdown | Cause::Unauthorized => true,
            Cause::Died
            | Cause::HandshakeRefused { .. }
            | Cause::HandshakeTimedOut
            | Cause::Noise
            | Cause::OpenFailed
            | Cause::OpenTimedOut
            | Cause::SessionLost
            | Cause::Unavailable { .. }
            | Cause::Unreachable
            | Cause::Unresponsive { .. } => false,
        }
    }

    /// Whether the server itself could not be reached.
    pub(super) const fn is_out_of_reach(&self) -> bool {
        matches!(
            self,
            Cause::Unauthorized | Cause::Unavailable { .. } | Cause::Unreachable
        )
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::AskedTo { why } => write!(f, "a reconnect was asked for: {why}"),
            Cause::Died => f.write_str("the server ended"),
            Cause::EraProbe => {
                f.write_str("the server ended on `server/discover`, which older ones do not know")
            }
            Cause::HandshakeRefused { why } => write!(f, "the handshake failed: {why}"),
            Cause::HandshakeTimedOut => f.write_str("the server did not finish the handshake"),
            Cause::Noise => {
                f.write_str("the server wrote too many lines in a row that are not MCP messages")
            }
            Cause::OpenFailed => f.write_str("the server could not be reached"),
            Cause::OpenTimedOut => f.write_str("the server took too long to open"),
            Cause::SessionLost => f.write_str("the server said that the session is over"),
            Cause::Shutdown => f.write_str("it was shut down"),
            Cause::Unauthorized => {
                f.write_str("the server wants credentials, and there are none that it takes")
            }
            Cause::Unavailable { status } => {
                write!(f, "the server cannot serve now (HTTP status {status})")
            }
            Cause::Unreachable => f.write_str("the server could not be reached"),
            Cause::Unresponsive { silent, sign } => {
                let silent = Span(*silent);
                match sign {
                    Sign::Idle => write!(
                        f,
                        "the server has been silent for {silent} and answered no probe, and its process did not run"
                    ),
                    Sign::Stopped => write!(
                        f,
                        "the server has been silent for {silent} and answered no probe, and its process is stopped (SIGSTOP)"
                    ),
                    Sign::Unknown => write!(
                        f,
                        "the server has been silent for {silent} and answered no probe"
                    ),
                    Sign::Wedged => write!(
                        f,
                        "the server has answered probes for {silent} with an error that speaks of a lost session"
                    ),
                }
            }
        }
    }
}

/// Whether the server may have acted on a call that has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Delivery {
    /// The call only reads, as `resources/read` and the lists do. It changed nothing, so it is safe to repeat. See
    /// [`Method::only_reads`](crate::protocol::Method::only_reads).
    Harmless,
    /// The call was never handed to the driver. It did not run, so it is safe to repeat.
    NotSent,
    /// The call was handed to the driver. It may or may not have run.
    Unknown,
}

/// The party that caused a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Blame {
    /// The application.
    Caller,
    /// The server: it broke the protocol or did not reply.
    Peer,
    /// The transport or the server process: it ended.
    Transport,
}

/// Why a call has no reply.
///
/// The text of a failure is complete. It names the call, what happened and after how long, and whether the call may have run. It includes the exit
/// status of the server and the end of its standard error.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The call.
    pub call: CallId,
    /// The method of the call.
    pub method: Cow<'static, str>,
    /// The tool or prompt that the call names, if it names one.
    pub target: Option<Box<str>>,
    /// The kind of failure.
    pub kind: FailureKind,
    /// Whether the call may have run.
    pub delivery: Delivery,
    /// The time since the call was accepted.
    pub after: Duration,
    /// How the epoch ended that explains the failure, as far as it was known at that time. [`Event::Ended`](super::Event::Ended) has the complete
    /// report.
    pub ended: Option<Arc<Ended>>,
    /// The time until the next attempt by a timer, if there was no server and no attempt under way at that time. A new call starts an attempt sooner.
    pub next_attempt: Option<Duration>,
}

impl Failure {
    /// Returns who caused the failure: the caller, the server or the transport.
    #[must_use]
    pub const fn blame(&self) -> Blame {
        match &self.kind {
            FailureKind::Cancelled { .. }
            | FailureKind::Closed
            | FailureKind::Declined { .. }
            | FailureKind::TooManyAsks { .. }
            | FailureKind::Unauthorized { .. } => Blame::Caller,
            FailureKind::Invalid { .. }
            | FailureKind::NotOffered { .. }
            | FailureKind::Status { .. }
            | FailureKind::TimedOut { .. }
            | FailureKind::TooLarge { .. }
            | FailureKind::TooManyRounds { .. } => Blame::Peer,
            FailureKind::Cut | FailureKind::Down | FailureKind::Lost | FailureKind::NoContact => {
                Blame::Transport
            }
        }
    }
}

impl Error for Failure {
    /// Returns how the epoch ended that explains the failure.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.ended.as_deref().map(|ended| ended as &dyn Error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.method)?;
        if let Some(target) = &self.target {
            write!(f, " `{target}`")?;
        }
        write!(
            f,
            " ({}) failed after {}: {}; ",
            self.call,
            Span(self.after),
            self.kind
        )?;
        f.write_str(match self.delivery {
            Delivery::Harmless => "it only reads, so nothing was changed",
            Delivery::NotSent => "it was not sent, so it did not run",
            Delivery::Unknown => "it had been sent and may have run",
        })?;
        if let Some(next) = self.next_attempt {
            write!(f, "; the next attempt is in {} at the latest", Span(next))?;
        }
        match &self.ended {
            Some(ended) => write!(f, ". What happened to the server: {ended}"),
            None => Ok(()),
        }
    }
}

/// The kind of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// The application cancelled the call.
    Cancelled {
        /// The reason that the application gave.
        reason: Option<Box<str>>,
    },
    /// The link was shut down.
    Closed,
    /// The response was cut off, and the rest cannot be fetched.
    Cut,
    /// An ask of the server was not answered, and the call cannot continue without the answer.
    Declined {
        /// The method of the ask.
        method: Box<str>,
        /// Why it was not answered.
        why: Box<str>,
    },
    /// The server is gone, and no attempt brought it back while the call waited.
    Down,
    /// The reply breaks the protocol.
    Invalid {
        /// Which rule of the protocol the reply breaks.
        why: Box<str>,
    },
    /// The server ended before it replied.
    Lost,
    /// The connection to the server failed before it responded.
    NoContact,
    /// The server does not offer what the call needs, or its version does not have the method.
    NotOffered {
        /// The missing feature.
        what: Box<str>,
    },
    /// The server sent an HTTP error status instead of a reply.
    Status {
        /// The HTTP status of the response.
        status: u16,
        /// The JSON-RPC error in the response, if there was one.
        said: Option<Box<str>>,
    },
    /// The call hit a time limit.
    TimedOut {
        /// The limit that it hit.
        limit: TimeLimit,
        /// The state of the link at that time.
        state: State,
    },
    /// The reply is larger than the limits allow.
    TooLarge {
        /// The size of the reply.
        bytes: u64,
    },
    /// The server asks something while the maximum number of asks is open.
    TooManyAsks {
        /// The number of open asks.
        open: usize,
    },
    /// The server asked for input in too many rounds.
    TooManyRounds {
        /// The number of rounds.
        rounds: u32,
    },
    /// The server wants credentials, and there are none that it accepts.
    Unauthorized {
        /// Why there are none, as the application said.
        why: Option<Box<str>>,
    },
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailureKind::Cancelled { reason: Some(why) } => write!(f, "it was cancelled ({why})"),
            FailureKind::Cancelled { reason: None } => f.write_str("it was cancelled"),
            FailureKind::Closed => f.write_str("the link was shut down"),
            FailureKind::Cut => f.write_str("the response broke off before the reply"),
            FailureKind::Declined { method, why } => {
                write!(
                    f,
                    "the server's question ({method}) was not answered: {why}"
                )
            }
            FailureKind::Down => f.write_str("the server is down"),
            FailureKind::Invalid { why } => write!(f, "the reply breaks the protocol: {why}"),
            FailureKind::Lost => f.write_str("the server ended before it replied"),
            FailureKind::NoContact => {
                f.write_str("the connection to the server failed before it answered")
            }
            FailureKind::NotOffered { what } => write!(f, "the server does not offer {what}"),
            FailureKind::Status { status, said } => {
                write!(f, "the server answered with HTTP status {status}")?;
                match said {
                    Some(said) => write!(f, ": {said}"),
                    None => f.write_str(" and no reply"),
                }
            }
            FailureKind::TimedOut { limit, state } => {
                f.write_str(match limit {
                    TimeLimit::Idle => "neither a reply nor progress came in time",
                    TimeLimit::Total => "it took longer than it may in all",
                })?;
                match state {
                    State::Ready | State::Draining => Ok(()),
                    State::Idle
                    | State::Opening
                    | State::Handshaking
                    | State::Closing
                    | State::Waiting
                    | State::Parked
                    | State::Closed => write!(f, " (the connection was {state})"),
                }
            }
            FailureKind::TooLarge { bytes } => {
                write!(f, "the reply is too large ({bytes} bytes)")
            }
            FailureKind::TooManyAsks { open } => {
                write!(
                    f,
                    "the server asks something, and as many questions as may be are open already ({open})"
                )
            }
            FailureKind::TooManyRounds { rounds } => {
                write!(f, "the server asked for input again after {rounds} rounds")
            }
            FailureKind::Unauthorized { why: Some(why) } => {
                write!(f, "the server wants credentials, and there are none: {why}")
            }
            FailureKind::Unauthorized { why: None } => {
                f.write_str("the server does not take the credentials that there are")
            }
        }
    }
}

/// The two time limits of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeLimit {
    /// The time without a reply or progress.
    Idle,
    /// The total time.
    Total,
}

/// A mistake of the caller. Nothing else is ever an `Err`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// The link is closed for good.
    #[error("the link is closed; make a new one")]
    Closed,
    /// The link itself sends this method.
    #[error("`{method}` is the link's own business; use `{instead}`")]
    OwnedByLink {
        /// The method.
        method: &'static str,
        /// The function to use instead.
        instead: &'static str,
    },
    /// The notification is about a feature that the capabilities do not declare.
    #[error("`{method}` is about something that the capabilities of this client do not declare")]
    NotDeclared {
        /// The method.
        method: Cow<'static, str>,
    },
    /// A notification needs a ready link, and this one is not ready.
    #[error("the link is {state}; a notification is sent only while it is ready")]
    NotReady {
        /// The state of the link.
        state: State,
    },
    /// The agreed version does not have the method.
    #[error("`{method}` does not exist in the version that was agreed on")]
    NotInVersion {
        /// The method.
        method: Cow<'static, str>,
    },
    /// A value that must be a JSON object is not one.
    #[error("{what} must be a JSON object")]
    NotAnObject {
        /// The value.
        what: &'static str,
    },
    /// The queue is full.
    #[error("the queue is full ({calls} calls, {bytes} bytes wait); try again when some are done")]
    QueueFull {
        /// The number of calls in the queue, or of notifications.
        calls: usize,
        /// The number of bytes in the queue.
        bytes: usize,
    },
    /// The parameters contain a member that the link itself writes.
    #[error("the parameters contain `{member}`, which the link writes itself")]
    ReservedMember {
        /// The member.
        member: &'static str,
    },
    /// The message is longer than the limits allow.
    #[error("{bytes} bytes are more than a message may have")]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
    /// The ask is not open: it was answered, was withdrawn or never existed.
    #[error("there is no such question open")]
    UnknownAsk,
    /// The call is not under way: it has ended or never existed.
    #[error("there is no such call under way")]
    UnknownCall,
    /// A request was to be sent as a notification, or the other way round.
    #[error("`{method}` is sent with `{instead}`")]
    WrongVerb {
        /// The method.
        method: &'static str,
        /// The function to use instead.
        instead: &'static str,
    },
}
