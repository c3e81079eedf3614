//! A small server of either era, over either binding, written from the specification: what others would be. Keeps no time and
//! decides nothing about when it speaks.

use std::collections::BTreeMap;

use everlink::http::{Fields, RequestHead, ResponseHead, Verb};
use everlink::{Input, StreamId};
use serde_json::{Value, json};

use crate::subject::SECRET;

/// On what something is said: the byte stream, or the response to an exchange.
pub(super) type Place = Option<StreamId>;

/// What the server hears and must do something about.
#[derive(Debug)]
pub(super) enum Heard {
    /// A request or a notification, and where.
    Message(Place, Value),
    /// An exchange that is answered at once with this status.
    Status(StreamId, u16),
    /// Its input ended.
    End,
}

#[derive(Debug)]
pub(super) struct Scripted {
    pub(super) is_modern: bool,
    /// It refuses every handshake.
    pub(super) refuses: bool,
    /// Over HTTP, in the legacy era: the session that it gave out.
    session: String,
    unread: Vec<u8>,
    exchanges: BTreeMap<StreamId, (Box<RequestHead<'static>>, Vec<u8>)>,
    /// What is watched, and on what that is to be told: the id of the watch, in the modern era.
    pub(super) watches: Vec<(Value, String)>,
    /// The request that wants to know what changes, if it is one.
    pub(super) listens: Vec<Value>,
}

impl Scripted {
    pub(super) fn new(is_modern: bool, refuses: bool, number: u64) -> Scripted {
        Scripted {
            is_modern,
            refuses,
            session: format!("{SECRET}-{number}"),
            unread: Vec::new(),
            exchanges: BTreeMap::new(),
            watches: Vec::new(),
            listens: Vec::new(),
        }
    }

    /// What comes of an input.
    pub(super) fn handle(&mut self, input: Input<'_>) -> Vec<Heard> {
        match input {
            Input::Bytes { stream, bytes } if stream == StreamId::DUPLEX => self.lines(&bytes),
            Input::Bytes { stream, bytes } => {
                if let Some((_, body)) = self.exchanges.get_mut(&stream) {
                    body.extend_from_slice(&bytes);
                }
                Vec::new()
            }
            Input::End { stream, .. } if stream == StreamId::DUPLEX => vec![Heard::End],
            Input::End { stream, faults } => {
                let whole = self.exchanges.remove(&stream).filter(|_| faults.is_empty());
                whole.map_or(Vec::new(), |(head, body)| self.asked(stream, &head, &body))
            }
            Input::Request { stream, head } => {
                let mut owned = RequestHead::new(head.verb, head.target.into_owned());
                for (name, value) in head.fields.iter() {
                    owned.fields.push_bytes(name.to_owned(), value.to_vec());
                }
                self.exchanges.insert(stream, (Box::new(owned), Vec::new()));
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn lines(&mut self, bytes: &[u8]) -> Vec<Heard> {
        self.unread.extend_from_slice(bytes);
        let mut heard = Vec::new();
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            let message = serde_json::from_slice(&line);
            heard.extend(message.map(|message| Heard::Message(None, message)));
        }
        heard
    }

    fn asked(&self, stream: StreamId, head: &RequestHead<'_>, body: &[u8]) -> Vec<Heard> {
        let message: Value = serde_json::from_slice(body).unwrap_or_default();
        let session = head.fields.get("mcp-session-id");
        let is_start = message["method"] == "initialize" || message["method"] == "server/discover";
        let is_known = self.is_modern || is_start || session == Some(&*self.session);
        let status = match head.verb {
            Verb::Get => 405,
            _ if !is_known => 404,
            Verb::Delete => 200,
            _ if message.get("id").is_none() || message.get("method").is_none() => {
                return vec![
                    Heard::Message(Some(stream), message),
                    Heard::Status(stream, 202),
                ];
            }
            _ => return vec![Heard::Message(Some(stream), message)],
        };
        vec![Heard::Status(stream, status)]
    }

    /// How a response with a reply begins.
    pub(super) fn head(&self, request: &Value) -> ResponseHead<'static> {
        let mut fields = Fields::new().and("content-type", "application/json");
        if request["method"] == "initialize" {
            fields = fields.and("mcp-session-id", self.session.clone());
        }
        ResponseHead::new(200).with_fields(fields)
    }

    /// The result of a request that is no call, or an error.
    pub(super) fn result(&mut self, request: &Value) -> Result<Value, Value> {
        let capabilities = json!({
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"listChanged": true, "subscribe": true},
        });
        let method = request["method"].as_str().unwrap_or_default();
        let no_method = json!({"code": -32601, "message": "what is that?"});
        let in_era = match method {
            "initialize" | "ping" | "resources/subscribe" | "resources/unsubscribe" => {
                !self.is_modern
            }
            "server/discover" | "subscriptions/listen" => self.is_modern,
            _ => true,
        };
        if !in_era {
            return Err(no_method);
        }
        let mut result = match method {
            "initialize" | "server/discover" if self.refuses => {
                return Err(json!({"code": -32603, "message": "not today"}));
            }
            "initialize" => json!({
                "protocolVersion": "2025-06-18",
                "capabilities": capabilities,
                "serverInfo": {"name": "scripted", "version": "1"},
            }),
            "server/discover" => json!({
                "supportedVersions": ["2026-07-28"],
                "capabilities": capabilities,
                "serverInfo": {"name": "scripted", "version": "1"},
            }),
            "ping" => json!({}),
            "tools/list" => {
                json!({"tools": [{"name": "work", "inputSchema": {"type": "object"}}]})
            }
            "prompts/list" => json!({"prompts": []}),
            "resources/list" => json!({"resources": []}),
            "resources/templates/list" => json!({"resourceTemplates": []}),
            "resources/subscribe" => {
                let uri = request["params"]["uri"].as_str().unwrap_or_default();
                self.watches.push((Value::Null, uri.to_owned()));
                json!({})
            }
            "resources/unsubscribe" => {
                let uri = request["params"]["uri"].as_str().unwrap_or_default();
                self.watches.retain(|(_, watched)| watched != uri);
                json!({})
            }
            "logging/setLevel" => json!({}),
            _ => return Err(no_method),
        };
        if self.is_modern {
            result["resultType"] = json!("complete");
        }
        Ok(result)
    }

    /// A watch of the modern era is set up.
    pub(super) fn listened(&mut self, request: &Value) -> Value {
        let id = request["id"].clone();
        let wanted = request["params"]["notifications"].clone();
        let uris = wanted["resourceSubscriptions"].as_array();
        for uri in uris.into_iter().flatten().filter_map(Value::as_str) {
            self.watches.push((id.clone(), uri.to_owned()));
        }
        self.listens.push(id.clone());
        json!({
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {
                "_meta": {"io.modelcontextprotocol/subscriptionId": id},
                "notifications": wanted,
            },
        })
    }

    /// What is taken back is not told any more.
    pub(super) fn cancelled(&mut self, id: &Value) {
        self.watches.retain(|(watch, _)| watch != id);
        self.listens.retain(|listen| listen != id);
    }

    /// That something has changed, as often as somebody wants to know.
    pub(super) fn changed(&self, uri: Option<&str>) -> Vec<Value> {
        let note = |method: &str, id: &Value| {
            let mut params = json!({});
            if !id.is_null() {
                params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": id});
            }
            if let Some(uri) = uri {
                params["uri"] = json!(uri);
            }
            json!({"jsonrpc": "2.0", "method": method, "params": params})
        };
        match uri {
            Some(uri) => {
                let who = self.watches.iter().filter(|(_, watched)| watched == uri);
                who.map(|(id, _)| note("notifications/resources/updated", id))
                    .collect()
            }
            None if self.is_modern => self
                .listens
                .iter()
                .map(|id| note("notifications/tools/list_changed", id))
                .collect(),
            None => vec![note("notifications/tools/list_changed", &Value::Null)],
        }
    }
}
