//! An ask of the server, as the function that answers it holds it. Does not know how the answer is sent.

use std::fmt;
use std::sync::Arc;

use everlink::client::Ask;
use everlink::protocol::code;
use everlink::{ErrorObject, Payload};
use serde::Serialize;

use super::link::{LinkQueue, OwnerCommand};
use crate::commands::ClientCommand;

/// The function that answers the asks of a server.
pub(crate) type AskHandler = Box<dyn FnMut(OpenAsk) + Send>;

/// An ask of the server, and the one answer to it, for the function of [`Link::on_ask`](crate::Link::on_ask).
///
/// Dropping it without an answer sends an internal error to the server. The server waits for up to [`Policy::ask_timeout`](everlink::Policy::ask_timeout),
/// 10 min by default.
///
/// ```
/// use everlink::ErrorObject;
/// use everlink::protocol::code;
/// use everlink_handle::Link;
/// use serde_json::json;
///
/// fn answer_roots(link: &Link) {
///     link.on_ask(|ask| match ask.method() {
///         "roots/list" => {
///             ask.answer_with(&json!({"roots": [{"uri": "file:///home/ada/project"}]}));
///         }
///         method => {
///             let text = format!("{method} is not supported");
///             ask.answer(Err(ErrorObject::new(code::METHOD_NOT_FOUND, text)));
///         }
///     });
/// }
/// ```
#[must_use = "an ask needs an answer"]
pub struct OpenAsk {
    ask: Ask,
    queue: Arc<LinkQueue>,
    is_answered: bool,
}

impl OpenAsk {
    pub(super) const fn new(ask: Ask, queue: Arc<LinkQueue>) -> OpenAsk {
        OpenAsk {
            ask,
            queue,
            is_answered: false,
        }
    }

    /// Returns what the server asks: `sampling/createMessage`, `elicitation/create` or `roots/list`.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.ask.method
    }

    /// Returns the parameters of the request.
    #[must_use]
    pub const fn params(&self) -> Option<&Payload> {
        self.ask.params.as_ref()
    }

    /// Returns the ask with its id, its call and its timeout.
    #[must_use]
    pub const fn ask(&self) -> &Ask {
        &self.ask
    }

    /// Answers with a result, or refuses with an error. Does nothing if the server no longer waits. A result must be a JSON object, and not longer than the
    /// limits allow: otherwise the server gets an internal error that says so.
    pub fn answer(mut self, answer: Result<Payload, ErrorObject>) {
        self.send(answer);
    }

    /// Answers with a result: any value that serializes to a JSON object, such as a type of `everlink-types`. If it cannot be serialized, the server gets
    /// an internal error.
    pub fn answer_with(self, result: &impl Serialize) {
        let result = Payload::of(result);
        self.answer(result.map_err(|error| {
            let text = format!("the client's answer cannot be serialized as JSON: {error}");
            ErrorObject::new(code::INTERNAL_ERROR, text)
        }));
    }

    fn send(&mut self, answer: Result<Payload, ErrorObject>) {
        self.is_answered = true;
        let ask = self.ask.ask;
        let command = ClientCommand::Answer { ask, answer };
        self.queue.send(OwnerCommand::Run(command));
    }
}

impl Drop for OpenAsk {
    fn drop(&mut self) {
        if !self.is_answered {
            let text = "the client's handler ended without an answer; it may have panicked";
            self.send(Err(ErrorObject::new(code::INTERNAL_ERROR, text)));
        }
    }
}

impl fmt::Debug for OpenAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenAsk").field(&self.ask).finish()
    }
}
