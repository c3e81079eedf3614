//! Failures that speak: how a life of the transport ended, and why a call has no reply.
//! Owns the words; decides nothing.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use super::lifecycle::State;
use crate::fault::{ExitStatus, Fault};
use crate::id::{CallId, Epoch};
use crate::time::Span;

/// How one life of the transport ended.
#[derive(Clone)]
#[non_exhaustive]
pub struct Ended {
    /// Which life.
    pub epoch: Epoch,
    /// Why it was taken down, or what it died of.
    pub cause: Cause,
    /// What the server answered to `server/discover`, if `initialize` was tried after it in the same handshake and failed, too; or the
    /// other way round.
    pub first_try: Option<Box<str>>,
    /// Every fault that was reported, in order, up to a bound.
    pub faults: Vec<Fault>,
    /// How many more faults there were.
    pub more_faults: u32,
    /// How the child ended, once it was reaped.
    pub exit: Option<ExitStatus>,
    /// The last of what it wrote to standard error.
    pub stderr: Box<str>,
    /// How long it lived, from the attempt to open it.
    pub lived: Duration,
    /// How long it was ready, if it ever was.
    pub ready_for: Option<Duration>,
    /// Whether it was let go although its end had not been reported.
    pub abandoned: bool,
    /// Whether this end cost an attempt of the budget.
    pub counted: bool,
}

/// What the server wrote is told by its text alone, not in here.
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
            // A refusal comes from a server that is well.
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

/// Why a life of the transport was taken down, or what it died of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// [`reconnect`](super::Client::reconnect) was asked for.
    AskedTo {
        /// In whose words.
        why: Box<str>,
    },
    /// It ended by itself.
    Died,
    /// It is to be started anew to be spoken to in the legacy era, because it did not survive
    /// being asked for the modern one.
    EraProbe,
    /// The server did not agree, or not in a way that can be understood.
    HandshakeRefused {
        /// What it said or did.
        why: Box<str>,
    },
    /// The handshake took too long.
    HandshakeTimedOut,
    /// More useless lines in a row than the limits allow.
    Noise,
    /// It could not be opened.
    OpenFailed,
    /// Opening it took too long.
    OpenTimedOut,
    /// The server said that the session is over.
    SessionLost,
    /// The link was shut down.
    Shutdown,
    /// The server wants credentials, and there are none that it takes.
    Unauthorized,
    /// The server cannot serve now.
    Unavailable {
        /// What it answered with.
        status: u16,
    },
    /// It cannot be reached, or cut the connection before it said a word.
    Unreachable,
    /// It was silent and answered no probe, although something was wanted of it.
    Unresponsive {
        /// For how long.
        silent: Duration,
        /// What else was seen of it.
        sign: Sign,
    },
}

/// What was seen of a server that was silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sign {
    /// Its process used hardly any processor time.
    Idle,
    /// Its process was stopped.
    Stopped,
    /// Nothing: there is no process, or the system does not tell.
    Unknown,
    /// It answered probes with an error that speaks of a lost session, or of what is behind it.
    Wedged,
}

impl Cause {
    /// Whether the end was meant, so that only a real fault on the way makes it a failure.
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

    /// Whether nothing was heard of the server itself.
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
            Cause::Noise => f.write_str("the server wrote too many lines that are no messages"),
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

/// Whether the peer may have acted on a call that has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Delivery {
    /// It only reads a list: sent or not, nothing was changed, and asking again is safe.
    Harmless,
    /// It never left the machine: it did not run, and sending it again is safe.
    NotSent,
    /// It was handed to the driver: it may or may not have run.
    Unknown,
}

/// Whose doing a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Blame {
    /// The application ended it.
    Caller,
    /// The server broke the protocol or did not answer.
    Peer,
    /// The transport, or the process behind it, ended.
    Transport,
}

/// Why a call has no reply.
///
/// Its text is complete: it names the call, what happened, after how long, whether the call may
/// have run, how the server exited and what it said last.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// Which call.
    pub call: CallId,
    /// Its method.
    pub method: Cow<'static, str>,
    /// What it was aimed at, where the method names something: a tool, a prompt.
    pub target: Option<Box<str>>,
    /// What happened.
    pub kind: FailureKind,
    /// Whether it may have run.
    pub delivery: Delivery,
    /// How long after it was accepted.
    pub after: Duration,
    /// How the life that matters ended, where one did, as far as it was known when this was told;
    /// [`Event::Ended`](super::Event::Ended) has the whole story.
    pub ended: Option<Arc<Ended>>,
    /// How long until the link looks for a server again by itself, where there is none and none was being tried when this was told. A call
    /// makes it look sooner.
    pub next_attempt: Option<Duration>,
}

impl Failure {
    /// Whose doing it is.
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

impl core::error::Error for Failure {}

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

/// What happened to a call instead of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// The application cancelled it.
    Cancelled {
        /// In whose words.
        reason: Option<Box<str>>,
    },
    /// The link was shut down.
    Closed,
    /// The response broke off, and the rest of it cannot be had.
    Cut,
    /// A question of the server was not answered, and without the answer it cannot go on.
    Declined {
        /// The method of the question.
        method: Box<str>,
        /// Why not.
        why: Box<str>,
    },
    /// The server is gone, and no attempt brought it back while the call waited.
    Down,
    /// The reply breaks the protocol.
    Invalid {
        /// How.
        why: Box<str>,
    },
    /// The server ended.
    Lost,
    /// The connection to the server failed before it answered.
    NoContact,
    /// The server did not offer what the call needs, or its version does not know the method.
    NotOffered {
        /// What is missing.
        what: Box<str>,
    },
    /// The server answered with a status of HTTP in the place of a reply.
    Status {
        /// Which.
        status: u16,
        /// What it said to it, where that is an error of JSON-RPC.
        said: Option<Box<str>>,
    },
    /// It took too long.
    TimedOut {
        /// Which limit it hit.
        limit: TimeLimit,
        /// Where the link stood at that time.
        state: State,
    },
    /// The reply is larger than the limits allow.
    TooLarge {
        /// How large.
        bytes: u64,
    },
    /// The server asks something, and as many questions as may be are open already.
    TooManyAsks {
        /// How many.
        open: usize,
    },
    /// The server asked again and again.
    TooManyRounds {
        /// How often.
        rounds: u32,
    },
    /// The server wants credentials, and there are none that it takes.
    Unauthorized {
        /// Why not, in the words of whoever was asked for them.
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

/// The two limits of a call in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeLimit {
    /// Too long without a reply or progress.
    Idle,
    /// Too long in all.
    Total,
}

/// What the caller did wrong. Nothing else is ever an `Err`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// The link is closed for good.
    Closed,
    /// The link itself sends this method.
    OwnedByLink {
        /// Which method.
        method: &'static str,
        /// What to use.
        instead: &'static str,
    },
    /// The notification is about something that was not declared in the capabilities.
    NotDeclared {
        /// Which method.
        method: Cow<'static, str>,
    },
    /// A notification needs a ready link, and this one is not.
    NotReady {
        /// Where the link stands.
        state: State,
    },
    /// The version that was agreed on does not know this.
    NotInVersion {
        /// Which method.
        method: Cow<'static, str>,
    },
    /// Parameters and answers are JSON objects.
    NotAnObject {
        /// What is not.
        what: &'static str,
    },
    /// Too much waits already.
    QueueFull {
        /// How many calls wait.
        calls: usize,
        /// How many bytes wait.
        bytes: usize,
    },
    /// The parameters have a member that the link itself writes.
    ReservedMember {
        /// Which.
        member: &'static str,
    },
    /// The message would be longer than the limits allow.
    TooLarge {
        /// How long.
        bytes: usize,
    },
    /// The question is not open: answered, withdrawn or never asked.
    UnknownAsk,
    /// The call is not under way: settled or never made.
    UnknownCall,
    /// A request was to be sent as a notification, or the other way round.
    WrongVerb {
        /// Which method.
        method: &'static str,
        /// What to use.
        instead: &'static str,
    },
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misuse::Closed => f.write_str("the link is closed; make a new one"),
            Misuse::OwnedByLink { method, instead } => {
                write!(f, "`{method}` is the link's own business; use `{instead}`")
            }
            Misuse::NotDeclared { method } => write!(
                f,
                "`{method}` is about something that the capabilities of this client do not declare"
            ),
            Misuse::NotReady { state } => write!(
                f,
                "the link is {state}; a notification is sent only while it is ready"
            ),
            Misuse::NotInVersion { method } => write!(
                f,
                "`{method}` does not exist in the version that was agreed on"
            ),
            Misuse::NotAnObject { what } => write!(f, "{what} must be a JSON object"),
            Misuse::QueueFull { calls, bytes } => write!(
                f,
                "the queue is full ({calls} calls, {bytes} bytes wait); try again when some are done"
            ),
            Misuse::ReservedMember { member } => write!(
                f,
                "the parameters contain `{member}`, which the link writes itself"
            ),
            Misuse::TooLarge { bytes } => {
                write!(f, "{bytes} bytes are more than a message may have")
            }
            Misuse::UnknownAsk => f.write_str("there is no such question open"),
            Misuse::UnknownCall => f.write_str("there is no such call under way"),
            Misuse::WrongVerb { method, instead } => {
                write!(f, "`{method}` is sent with `{instead}`")
            }
        }
    }
}

impl core::error::Error for Misuse {}
