//! A small server of either era over either binding, written from the specification. It stands for servers of other projects. Has no clock
//! and no schedule.

use std::collections::BTreeMap;

use everlink::http::{Fields, RequestHead, ResponseHead, Verb};
use everlink::{Input, StreamId};
use serde_json::{Value, json};

use crate::subject::SECRET;

/// Where a message goes: `None` is the byte stream, `Some` the response to an exchange.
pub(super) type ReplyTo = Option<StreamId>;

/// An input that needs a reaction.
#[derive(Debug)]
pub(super) enum Received {
    /// A request or a notification, and where to reply.
    Message(ReplyTo, Value),
    /// An exchange that is answered at once with this status.
    Status(StreamId, u16),
    /// The input ended.
    End,
}

#[derive(Debug)]
pub(super) struct Scripted {
    pub(super) is_modern: bool,
    /// Whether it refuses every handshake.
    pub(super) refuses: bool,
    /// The id of its session, over HTTP in the legacy era.
    session: String,
    unread: Vec<u8>,
    exchanges: BTreeMap<StreamId, (Box<RequestHead<'static>>, Vec<u8>)>,
    /// The watched resources, each with the id of its subscription (null in the legacy era).
    pub(super) watched: Vec<(Value, String)>,
    /// The ids of open `subscriptions/listen` requests.
    pub(super) subscriptions: Vec<Value>,
}

impl Scripted {
    pub(super) fn new(is_modern: bool, refuses: bool, number: u64) -> Scripted {
        Scripted {
            is_modern,
            refuses,
            session: format!("{SECRET}-{number}"),
            unread: Vec::new(),
            exchanges: BTreeMap::new(),
            watched: Vec::new(),
            subscriptions: Vec::new(),
        }
    }

    /// Parses an input.
    pub(super) fn handle(&mut self, input: Input<'_>) -> Vec<Received> {
        match input {
            Input::Bytes { stream, bytes } if stream == StreamId::DUPLEX => {
                self.parse_lines(&bytes)
            }
            Input::Bytes { stream, bytes } => {
                if let Some((_, body)) = self.exchanges.get_mut(&stream) {
                    body.extend_from_slice(&bytes);
                }
                Vec::new()
            }
            Input::End { stream, .. } if stream == StreamId::DUPLEX => vec![Received::End],
            Input::End { stream, faults } => {
                let whole = self.exchanges.remove(&stream).filter(|_| faults.is_empty());
                whole.map_or(Vec::new(), |(head, body)| {
                    self.handle_exchange(stream, &head, &body)
                })
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

    fn parse_lines(&mut self, bytes: &[u8]) -> Vec<Received> {
        self.unread.extend_from_slice(bytes);
        let mut received = Vec::new();
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            let message = serde_json::from_slice(&line);
            received.extend(message.map(|message| Received::Message(None, message)));
        }
        received
    }

    fn handle_exchange(
        &self,
        stream: StreamId,
        head: &RequestHead<'_>,
        body: &[u8],
    ) -> Vec<Received> {
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
                    Received::Message(Some(stream), message),
                    Received::Status(stream, 202),
                ];
            }
            _ => return vec![Received::Message(Some(stream), message)],
        };
        vec![Received::Status(stream, status)]
    }

    /// The head of a response with a reply.
    pub(super) fn head(&self, request: &Value) -> ResponseHead<'static> {
        let mut fields = Fields::new().and("content-type", "application/json");
        if request["method"] == "initialize" {
            fields = fields.and("mcp-session-id", self.session.clone());
        }
        ResponseHead::new(200).with_fields(fields)
    }

    /// The result of a request other than a call, or an error.
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
                self.watched.push((Value::Null, uri.to_owned()));
                json!({})
            }
            "resources/unsubscribe" => {
                let uri = request["params"]["uri"].as_str().unwrap_or_default();
                self.watched.retain(|(_, watched)| watched != uri);
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

    /// Opens a subscription of the modern era, and returns its acknowledgement.
    pub(super) fn open_subscription(&mut self, request: &Value) -> Value {
        let id = request["id"].clone();
        let wanted = request["params"]["notifications"].clone();
        let uris = wanted["resourceSubscriptions"].as_array();
        for uri in uris.into_iter().flatten().filter_map(Value::as_str) {
            self.watched.push((id.clone(), uri.to_owned()));
        }
        self.subscriptions.push(id.clone());
        json!({
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {
                "_meta": {"io.modelcontextprotocol/subscriptionId": id},
                "notifications": wanted,
            },
        })
    }

    /// Ends a subscription that was cancelled.
    pub(super) fn close_subscription(&mut self, id: &Value) {
        self.watched.retain(|(watch, _)| watch != id);
        self.subscriptions.retain(|listen| listen != id);
    }

    /// The notifications of a change, one for each subscriber.
    pub(super) fn change_notifications(&self, uri: Option<&str>) -> Vec<Value> {
        let notification = |method: &str, id: &Value| {
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
                let subscribers = self.watched.iter().filter(|(_, watched)| watched == uri);
                subscribers
                    .map(|(id, _)| notification("notifications/resources/updated", id))
                    .collect()
            }
            None if self.is_modern => self
                .subscriptions
                .iter()
                .map(|id| notification("notifications/tools/list_changed", id))
                .collect(),
            None => vec![notification(
                "notifications/tools/list_changed",
                &Value::Null,
            )],
        }
    }
}
