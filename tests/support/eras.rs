//! Support for scripts that run in both eras: the two servers, a ready link, and the messages that were written.

use everlink::Config;
use everlink::protocol::ClientCapabilities;
use serde_json::{Value, json};

use crate::client_pipe::{Harness, Peer, config};

/// A server of each era that offers everything.
pub(crate) const BOTH_ERAS: [fn() -> Peer; 2] = [legacy, Peer::modern];

pub(crate) fn legacy() -> Peer {
    Peer::legacy("2025-11-25")
}

/// A client that supports every ask except elicitation by URL and sampling with tools.
pub(crate) fn config_with_asks() -> Config {
    let mut config = config();
    config.capabilities = ClientCapabilities::default()
        .with_elicitation_form()
        .with_roots(false)
        .with_sampling();
    config
}

/// A ready link. Every epoch gets the same kind of server.
pub(crate) fn ready(config: Config, mut server: impl FnMut() -> Peer + 'static) -> Harness {
    let mut harness = Harness::new(config).served_by(move |_| server());
    harness.until_ready();
    harness
}

impl Harness {
    /// All messages with this method that were written, in any epoch.
    pub(crate) fn messages_with(&self, method: &str) -> Vec<&Value> {
        let lines = (1..=self.epoch_number()).flat_map(|epoch| self.lines_of(epoch));
        lines.filter(|line| line["method"] == method).collect()
    }

    /// The last message with this method that was written.
    #[track_caller]
    pub(crate) fn last_message(&self, method: &str) -> Value {
        let last = self.messages_with(method).pop().cloned();
        last.unwrap_or_else(|| panic!("no {method} was written"))
    }

    /// All replies to requests of the server, in any epoch.
    pub(crate) fn ask_replies(&self) -> Vec<&Value> {
        let lines = (1..=self.epoch_number()).flat_map(|epoch| self.lines_of(epoch));
        lines.filter(|line| line["method"].is_null()).collect()
    }
}

/// A result by which a server asks for input (S-MRTR-01).
pub(crate) fn input_required(requests: Value, state: Option<&str>) -> Value {
    let mut result = json!({"resultType": "input_required"});
    if !requests.is_null() {
        result["inputRequests"] = requests;
    }
    if let Some(state) = state {
        result["requestState"] = state.into();
    }
    result
}

/// The parameters of a form elicitation.
pub(crate) fn form_params(message: &str) -> Value {
    json!({"mode": "form", "message": message, "requestedSchema": {"type": "object", "properties": {}}})
}
