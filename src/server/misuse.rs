//! What the application did wrong. Owns the words; decides nothing.

use alloc::borrow::Cow;
use alloc::boxed::Box;

use super::event::State;
use crate::protocol::question::Unaskable;

/// What the caller did wrong. Nothing else is ever an `Err`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// The protocol does not let a request of this method wait for input.
    #[error("a `{method}` request cannot wait for input of its client")]
    CannotAsk {
        /// Which method.
        method: Cow<'static, str>,
    },
    /// Two questions have the same key.
    #[error("two questions have the key `{key}`")]
    DuplicateKey {
        /// Which key.
        key: Box<str>,
    },
    /// It says nothing that a client could go on with.
    #[error("a result that wants input needs a question or a state")]
    EmptyInput,
    /// The result is of a kind that the client cannot understand in this place.
    #[error("the client does not understand a `{kind}` result of this request")]
    InvalidResultType {
        /// Which kind.
        kind: Cow<'static, str>,
    },
    /// No legacy client has introduced itself, and a modern one cannot be asked out of the blue.
    #[error("there is no legacy client to ask")]
    NoLegacyPeer,
    /// Parameters, answers and results are JSON objects.
    #[error("{what} must be a JSON object")]
    NotAnObject {
        /// What is not.
        what: &'static str,
    },
    /// A number that is none.
    #[error("progress must be a finite number")]
    NotFinite,
    /// The capabilities that are offered do not have what this is about.
    #[error("`{what}` is not among the capabilities that this server offers")]
    NotOffered {
        /// What is not.
        what: Cow<'static, str>,
    },
    /// No application can send this to a client.
    #[error("`{method}` is nothing that an application can tell a client")]
    NotSendable {
        /// Which method.
        method: &'static str,
    },
    /// The server is not in the state for it.
    #[error("the server is {state}")]
    NotServing {
        /// Where it stands.
        state: State,
    },
    /// The server itself sends this method.
    #[error("`{method}` is the server's own business; use `{instead}`")]
    OwnedByLink {
        /// Which method.
        method: &'static str,
        /// What to use.
        instead: &'static str,
    },
    /// The state looks like one that the server makes itself.
    #[error("a state of the application must not begin with `{prefix}`")]
    ReservedState {
        /// What it must not begin with.
        prefix: &'static str,
    },
    /// The message would be longer than the limits allow.
    #[error("{bytes} bytes are more than a message may have")]
    TooLarge {
        /// How long.
        bytes: usize,
    },
    /// As many questions as may be are open, or as many requests wait for their clients.
    #[error("as many questions as may be are open already ({open})")]
    TooManyAsks {
        /// How many.
        open: usize,
    },
    /// The client was asked for input as often as it may be for one request.
    #[error("the client was asked for input {rounds} times already for this request")]
    TooManyRounds {
        /// How often.
        rounds: u32,
    },
    /// The client cannot be asked this.
    #[error("the client cannot be asked `{method}`: {why}")]
    Unaskable {
        /// Which method.
        method: Cow<'static, str>,
        /// Why.
        why: Unaskable,
    },
    /// The question has no outcome to wait for: answered, withdrawn or never asked.
    #[error("there is no such question open")]
    UnknownAsk,
    /// The request is over: answered, cancelled or never made.
    #[error("there is no such request to answer; it is over, or never was")]
    UnknownRequest,
}
