//! Support for scripts that run in both eras: the two servers, a ready link, and the messages that were written.

use everlink::Config;
use everlink::protocol::ClientCapabilities;
use serde_json::{Value, json};

use crate::client_pipe::{Peer, World, config};

/// A server of each era that offers everything.
pub(crate) const BOTH: [fn() -> Peer; 2] = [legacy, Peer::modern];

pub(crate) fn legacy() -> Peer {
    Peer::legacy("2025-11-25")
}

/// A client that supports every ask except elicitation by URL and sampling with tools.
pub(crate) fn answering() -> Config {
    let mut config = config();
    config.capabilities = ClientCapabilities::default()
        .with_elicitation_form()
        .with_roots(false)
        .with_sampling();
    config
}

/// A ready link. Every epoch meets the same server.
pub(crate) fn ready(config: Config, mut server: impl FnMut() -> Peer + 'static) -> World {
    let mut world = World::new(config).served_by(move |_| server());
    world.until_ready();
    world
}

impl World {
    /// All messages with this method that were written, in any epoch.
    pub(crate) fn said(&self, method: &str) -> Vec<&Value> {
        let lines = (1..=self.life()).flat_map(|life| self.lines_of(life));
        lines.filter(|line| line["method"] == method).collect()
    }

    /// The last message with this method that was written.
    #[track_caller]
    pub(crate) fn last(&self, method: &str) -> Value {
        let said = self.said(method).pop().cloned();
        said.unwrap_or_else(|| panic!("no {method} was written"))
    }

    /// All replies to requests of the server, in any epoch.
    pub(crate) fn answers(&self) -> Vec<&Value> {
        let lines = (1..=self.life()).flat_map(|life| self.lines_of(life));
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
pub(crate) fn form(message: &str) -> Value {
    json!({"mode": "form", "message": message, "requestedSchema": {"type": "object", "properties": {}}})
}
