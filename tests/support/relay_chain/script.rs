//! The lines of a scripted host. Depends on no relay.

use everlink::protocol::Era;
use serde_json::{Value, json};

use super::{Chain, Eras, relay_config};

impl Chain {
    /// A chain with a script in place of the host, and servers of this era.
    pub(crate) fn scripted(server: Era) -> Chain {
        let mut chain = Chain::from_configs(relay_config(), None);
        chain.eras = Eras::new(chain.eras.host, server);
        chain.served_by(move |_| super::Backend::of(server))
    }

    /// Does the handshake as a legacy host of the newest version.
    pub(crate) fn do_handshake(&mut self, capabilities: Value) {
        self.send_as_host(&initialize("2025-11-25", capabilities));
        self.until("the handshake is answered", |chain| {
            chain.reply_to(&json!("hello")).is_some()
        });
        self.send_as_host(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    /// Sends a request and returns the reply.
    #[track_caller]
    pub(crate) fn round_trip(&mut self, request: &Value) -> Value {
        self.send_as_host(request);
        let id = &request["id"];
        self.until("the reply is written", |chain| chain.reply_to(id).is_some());
        self.reply_to(id).expect("the reply is there")
    }
}

pub(crate) fn initialize(version: &str, capabilities: Value) -> Value {
    let params = json!({
        "protocolVersion": version,
        "capabilities": capabilities,
        "clientInfo": {"name": "script", "version": "1"},
    });
    request("hello", "initialize", params)
}

pub(crate) fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

/// A request of a modern host that supports every ask.
pub(crate) fn modern(id: impl Into<Value>, method: &str, mut params: Value) -> Value {
    let meta = &mut params["_meta"];
    meta["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    meta["io.modelcontextprotocol/clientCapabilities"] =
        json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {}});
    request(id, method, params)
}

/// The parameters of a tool call with a mark.
pub(crate) fn call(name: &str, mark: &str) -> Value {
    json!({"name": name, "arguments": {"mark": mark}})
}
