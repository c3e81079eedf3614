//! The mistakes of the application, with their texts. Decides nothing.

use alloc::borrow::Cow;
use alloc::boxed::Box;

use crate::protocol::method::{Method, names};
use crate::protocol::question::Unaskable;
use crate::server::lifecycle::State;

/// A mistake of the caller. Nothing else is ever an `Err`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// The protocol does not let a request of this method wait for input.
    #[error("a `{method}` request cannot wait for input of its client")]
    CannotAsk {
        /// The method.
        method: Cow<'static, str>,
    },
    /// Two questions have the same key.
    #[error("two questions have the key `{key}`")]
    DuplicateKey {
        /// The key that two questions have.
        key: Box<str>,
    },
    /// The input has neither a question nor a state, so the client could not continue.
    #[error("a result that wants input needs a question or a state")]
    EmptyInput,
    /// The client cannot understand a result of this type here.
    #[error("the client does not understand a `{kind}` result of this request")]
    InvalidResultType {
        /// The result type.
        kind: Cow<'static, str>,
    },
    /// No legacy client has introduced itself. A modern client can be asked only for one of its requests.
    #[error("there is no legacy client to ask")]
    NoLegacyPeer,
    /// Parameters, answers and results must be JSON objects.
    #[error("{what} must be a JSON object")]
    NotAnObject {
        /// The part that is not an object.
        what: &'static str,
    },
    /// A number is infinite or not a number.
    #[error("progress must be a finite number")]
    NotFinite,
    /// The offered capabilities do not include the feature.
    #[error("`{what}` is not among the capabilities that this server offers")]
    NotOffered {
        /// The feature that the server does not offer.
        what: Cow<'static, str>,
    },
    /// An application cannot send this method to a client.
    #[error("`{method}` is nothing that an application can tell a client")]
    NotSendable {
        /// The method.
        method: &'static str,
    },
    /// The server is in the wrong state.
    #[error("the server is {state}")]
    NotServing {
        /// The state of the server.
        state: State,
    },
    /// The server sends this method itself.
    #[error("`{method}` is the server's own business; use `{instead}`")]
    OwnedByLink {
        /// The method.
        method: &'static str,
        /// The function to call instead.
        instead: &'static str,
    },
    /// The state begins like those that the server makes itself.
    #[error("a state of the application must not begin with `{prefix}`")]
    ReservedState {
        /// The prefix that is reserved.
        prefix: &'static str,
    },
    /// The message would be longer than the limits allow.
    #[error("{bytes} bytes are more than a message may have")]
    TooLarge {
        /// The length of the message.
        bytes: usize,
    },
    /// The limit for open asks, or for requests that wait for their clients, is reached.
    #[error("as many questions as may be are open already ({open})")]
    TooManyAsks {
        /// The number that is open.
        open: usize,
    },
    /// The client was asked for input in this request as often as the limit allows.
    #[error("the client was asked for input {rounds} times already for this request")]
    TooManyRounds {
        /// The number of rounds.
        rounds: u32,
    },
    /// The client cannot be asked this.
    #[error("the client cannot be asked `{method}`: {why}")]
    Unaskable {
        /// The method.
        method: Cow<'static, str>,
        /// Why the client cannot be asked.
        why: Unaskable,
    },
    /// The ask is not open: answered, withdrawn or never made.
    #[error("there is no such question open")]
    UnknownAsk,
    /// The request is over: answered, cancelled or never made.
    #[error("there is no such request to answer; it is over, or never was")]
    UnknownRequest,
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of the mistake says what to call instead.
    #[test]
    fn method_that_the_server_sends_itself_names_the_function_to_call() {
        for (name, instead) in [
            (names::NOTIFICATIONS_PROGRESS, Some("progress")),
            (names::NOTIFICATIONS_MESSAGE, Some("log")),
            (names::NOTIFICATIONS_TOOLS_LIST_CHANGED, Some("publish")),
            (names::NOTIFICATIONS_PROMPTS_LIST_CHANGED, Some("publish")),
            (names::NOTIFICATIONS_RESOURCES_UPDATED, Some("publish")),
            (names::NOTIFICATIONS_CANCELLED, Some("withdraw")),
            (names::NOTIFICATIONS_INITIALIZED, None),
        ] {
            let facts = crate::protocol::method::find(name).unwrap();
            let method = facts.name;
            let expected = match instead {
                Some(instead) => Misuse::OwnedByLink { method, instead },
                None => Misuse::NotSendable { method },
            };
            assert_eq!(Misuse::not_a_notification(facts), expected);
        }
    }
}
