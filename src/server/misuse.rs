//! What the application did wrong. Owns the words; decides nothing.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use core::fmt;

use super::event::State;
use crate::protocol::question::Unaskable;

/// What the caller did wrong. Nothing else is ever an `Err`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// The protocol does not let a request of this method wait for input.
    CannotAsk {
        /// Which method.
        method: Cow<'static, str>,
    },
    /// Two questions have the same key.
    DuplicateKey {
        /// Which key.
        key: Box<str>,
    },
    /// It says nothing that a client could go on with.
    EmptyInput,
    /// The result is of a kind that the client cannot understand in this place.
    InvalidResultType {
        /// Which kind.
        kind: Cow<'static, str>,
    },
    /// No legacy client has introduced itself, and a modern one cannot be asked out of the blue.
    NoLegacyPeer,
    /// Parameters, answers and results are JSON objects.
    NotAnObject {
        /// What is not.
        what: &'static str,
    },
    /// A number that is none.
    NotFinite,
    /// The capabilities that are offered do not have what this is about.
    NotOffered {
        /// What is not.
        what: Cow<'static, str>,
    },
    /// No application can send this to a client.
    NotSendable {
        /// Which method.
        method: &'static str,
    },
    /// The server is not in the state for it.
    NotServing {
        /// Where it stands.
        state: State,
    },
    /// The server itself sends this method.
    OwnedByLink {
        /// Which method.
        method: &'static str,
        /// What to use.
        instead: &'static str,
    },
    /// The state looks like one that the server makes itself.
    ReservedState {
        /// What it must not begin with.
        prefix: &'static str,
    },
    /// The message would be longer than the limits allow.
    TooLarge {
        /// How long.
        bytes: usize,
    },
    /// As many questions as may be are open, or as many requests wait for their clients.
    TooManyAsks {
        /// How many.
        open: usize,
    },
    /// The client was asked for input as often as it may be for one request.
    TooManyRounds {
        /// How often.
        rounds: u32,
    },
    /// The client cannot be asked this.
    Unaskable {
        /// Which method.
        method: Cow<'static, str>,
        /// Why.
        why: Unaskable,
    },
    /// The question has no outcome to wait for: answered, withdrawn or never asked.
    UnknownAsk,
    /// The request is over: answered, cancelled or never made.
    UnknownRequest,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misuse::CannotAsk { method } => write!(
                f,
                "a `{method}` request cannot wait for input of its client"
            ),
            Misuse::DuplicateKey { key } => write!(f, "two questions have the key `{key}`"),
            Misuse::EmptyInput => {
                f.write_str("a result that wants input needs a question or a state")
            }
            Misuse::InvalidResultType { kind } => write!(
                f,
                "the client does not understand a `{kind}` result of this request"
            ),
            Misuse::NoLegacyPeer => f.write_str("there is no legacy client to ask"),
            Misuse::NotAnObject { what } => write!(f, "{what} must be a JSON object"),
            Misuse::NotFinite => f.write_str("progress must be a finite number"),
            Misuse::NotOffered { what } => write!(
                f,
                "`{what}` is not among the capabilities that this server offers"
            ),
            Misuse::NotSendable { method } => write!(
                f,
                "`{method}` is nothing that an application can tell a client"
            ),
            Misuse::NotServing { state } => write!(f, "the server is {state}"),
            Misuse::OwnedByLink { method, instead } => write!(
                f,
                "`{method}` is the server's own business; use `{instead}`"
            ),
            Misuse::ReservedState { prefix } => write!(
                f,
                "a state of the application must not begin with `{prefix}`"
            ),
            Misuse::TooLarge { bytes } => {
                write!(f, "{bytes} bytes are more than a message may have")
            }
            Misuse::TooManyAsks { open } => {
                write!(f, "as many questions as may be are open already ({open})")
            }
            Misuse::TooManyRounds { rounds } => write!(
                f,
                "the client was asked for input {rounds} times already for this request"
            ),
            Misuse::Unaskable { method, why } => {
                write!(f, "the client cannot be asked `{method}`: {why}")
            }
            Misuse::UnknownAsk => f.write_str("there is no such question open"),
            Misuse::UnknownRequest => {
                f.write_str("there is no such request to answer; it is over, or never was")
            }
        }
    }
}

impl core::error::Error for Misuse {}
