//! The mistakes of the application, with their texts. Decides nothing.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use core::fmt;

use crate::protocol::method::{Method, names};
use crate::protocol::question::Unaskable;
use crate::server::lifecycle::State;

/// A mistake of the caller. Nothing else is ever an `Err`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// The protocol does not let a request of this method wait for input.
    CannotAsk {
        /// The method.
        method: Cow<'static, str>,
    },
    /// Two questions have the same key.
    DuplicateKey {
        /// The key.
        key: Box<str>,
    },
    /// The input has neither a question nor a state, so the client could not continue.
    EmptyInput,
    /// The client cannot understand a result of this type here.
    InvalidResultType {
        /// The result type.
        kind: Cow<'static, str>,
    },
    /// No legacy client has introduced itself. A modern client can be asked only for one of its requests.
    NoLegacyPeer,
    /// Parameters, answers and results must be JSON objects.
    NotAnObject {
        /// The part that is not an object.
        what: &'static str,
    },
    /// A number is infinite or not a number.
    NotFinite,
    /// The offered capabilities do not include the feature.
    NotOffered {
        /// The feature.
        what: Cow<'static, str>,
    },
    /// An application cannot send this method to a client.
    NotSendable {
        /// The method.
        method: &'static str,
    },
    /// The server is in the wrong state.
    NotServing {
        /// The state of the server.
        state: State,
    },
    /// The server sends this method itself.
    OwnedByLink {
        /// The method.
        method: &'static str,
        /// The function to call instead.
        instead: &'static str,
    },
    /// The state begins like those that the server makes itself.
    ReservedState {
        /// The prefix that is reserved.
        prefix: &'static str,
    },
    /// The message would be longer than the limits allow.
    TooLarge {
        /// The length of the message.
        bytes: usize,
    },
    /// The limit for open asks, or for requests that wait for their clients, is reached.
    TooManyAsks {
        /// The number that is open.
        open: usize,
    },
    /// The client was asked for input in this request as often as the limit allows.
    TooManyRounds {
        /// The number of rounds.
        rounds: u32,
    },
    /// The client cannot be asked this.
    Unaskable {
        /// The method.
        method: Cow<'static, str>,
        /// The reason.
        why: Unaskable,
    },
    /// The ask is not open: answered, withdrawn or never made.
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

impl Misuse {
    /// The mistake of sending this method as a notification.
    pub(crate) fn not_a_notification(facts: &Method) -> Misuse {
        let method = facts.name;
        let instead = match method {
            names::NOTIFICATIONS_MESSAGE => "log",
            names::NOTIFICATIONS_PROGRESS => "progress",
            names::NOTIFICATIONS_PROMPTS_LIST_CHANGED
            | names::NOTIFICATIONS_RESOURCES_LIST_CHANGED
            | names::NOTIFICATIONS_RESOURCES_UPDATED
            | names::NOTIFICATIONS_TOOLS_LIST_CHANGED => "publish",
            names::NOTIFICATIONS_CANCELLED => "withdraw",
            _ if facts.embedded => "ask",
            _ => return Misuse::NotSendable { method },
        };
        Misuse::OwnedByLink { method, instead }
    }
}
