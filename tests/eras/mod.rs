//! Scripts that must read the same in both eras: the two servers, a link that is ready, and what was said to them.
#![allow(
    dead_code,
    reason = "each test file uses another part of the vocabulary"
)]

use everlink::Config;
use everlink::protocol::ClientCapabilities;
use serde_json::{Value, json};

use crate::world::{Peer, World, config};

/// A server of each era that offers everything.
pub(crate) const BOTH: [fn() -> Peer; 2] = [legacy, Peer::modern];

pub(crate) fn legacy() -> Peer {
    Peer::legacy("2025-11-25")
}

/// A client that can be asked for everything but addresses to visit and tools in sampling.
pub(crate) fn answering() -> Config {
    let mut config = config();
    config.capabilities = ClientCapabilities::default()
        .with_elicitation_form()
        .with_roots(false)
        .with_sampling();
    config
}

/// A link that is ready; every life meets the same server.
pub(crate) fn ready(config: Config, mut server: impl FnMut() -> Peer + 'static) -> World {
    let mut world = World::new(config).served_by(move |_| server());
    world.until_ready();
    world
}

impl World {
    /// Every message of this method that was written, in any life.
    pub(crate) fn said(&self, method: &str) -> Vec<&Value> {
        let lines = (1..=self.life()).flat_map(|life| self.lines_of(life));
        lines.filter(|line| line["method"] == method).collect()
    }

    /// The last message of this method that was written.
    #[track_caller]
    pub(crate) fn last(&self, method: &str) -> Value {
        let said = self.said(method).pop().cloned();
        said.unwrap_or_else(|| panic!("no {method} was written"))
    }

    /// Every answer to a request of the server, in any life.
    pub(crate) fn answers(&self) -> Vec<&Value> {
        let lines = (1..=self.life()).flat_map(|life| self.lines_of(life));
        lines.filter(|line| line["method"].is_null()).collect()
    }
}

/// What a server says that needs something before it goes on (S-MRTR-01).
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

/// A question to the user, as a form.
pub(crate) fn form(message: &str) -> Value {
    json!({"mode": "form", "message": message, "requestedSchema": {"type": "object", "properties": {}}})
}
