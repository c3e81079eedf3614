//! A server that knows what it was asked and says whatever it is told to. Keeps no rule itself.

use serde_json::{Value, json};

use crate::explore::Sight;
use crate::script::{Reply, Speech};
use crate::server::PAYLOAD;

/// A request that the server of this life has received and not answered.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) wire: i64,
    method: String,
}

impl Request {
    pub(crate) fn new(wire: i64, method: &str) -> Request {
        let method = method.to_owned();
        Request { wire, method }
    }

    pub(crate) fn method(&self) -> &str {
        &self.method
    }
}

/// The server of one life.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    open: Vec<Request>,
    answered: Vec<i64>,
    /// The requests that are watches; they stay open.
    watches: Vec<i64>,
    asked: Vec<Value>,
}

impl Peer {
    /// A request arrived.
    pub(crate) fn receive(&mut self, wire: i64, method: &str) {
        if method == "subscriptions/listen" {
            self.watches.push(wire);
        }
        self.open.push(Request::new(wire, method));
    }

    /// A request was taken back.
    pub(crate) fn forget(&mut self, wire: i64) {
        self.open.retain(|request| request.wire != wire);
        self.answered.push(wire);
    }

    /// Whether something waits for an answer, watches aside.
    pub(crate) fn is_asked(&self) -> bool {
        self.open
            .iter()
            .any(|request| !self.watches.contains(&request.wire))
    }

    /// Looks at what it has before it.
    pub(crate) fn look(&self, sight: &mut Sight) {
        for request in &self.open {
            sight.wire(request.wire);
            sight.plain(&request.method);
        }
        self.watches.iter().for_each(|wire| sight.wire(*wire));
    }

    /// The place of the oldest request that is no watch; if there is none, of the first.
    pub(crate) fn oldest(&self) -> u8 {
        let mut open = self.open.iter();
        let oldest = open.position(|request| !self.watches.contains(&request.wire));
        u8::try_from(oldest.unwrap_or_default()).expect("few requests")
    }

    /// Good answers to everything.
    pub(crate) fn serve(&mut self, taste: u8) -> Vec<u8> {
        let mut said = Vec::new();
        for request in std::mem::take(&mut self.open) {
            if self.watches.contains(&request.wire) {
                said.push(self.acknowledgement(request.wire, taste));
                self.open.push(request);
            } else {
                said.push(answer(&request, Reply::Good(taste)));
                self.answered.push(request.wire);
            }
        }
        lines(&said)
    }

    /// The bytes of what the server is to say. `limit` is how long a message may be.
    pub(crate) fn say(&mut self, speech: &Speech, limit: usize) -> Vec<u8> {
        match speech {
            Speech::Batch(both) => {
                let batch: Vec<Value> = both.iter().flat_map(|one| self.words(one)).collect();
                lines(&[Value::Array(batch)])
            }
            Speech::Reply {
                how: Reply::Oversized,
                ..
            } => {
                let mut said = self.words(speech);
                if let Some(Value::Object(message)) = said.first_mut() {
                    // A limit that no test wants to reach is not tried.
                    let padding = " ".repeat(limit.min(5_000) + 1);
                    message.insert("padding".into(), padding.into());
                }
                lines(&said)
            }
            _ => lines(&self.words(speech)),
        }
    }

    fn words(&mut self, speech: &Speech) -> Vec<Value> {
        let note = |method: &str, params: Value| {
            vec![json!({"jsonrpc": "2.0", "method": method, "params": params})]
        };
        match speech {
            Speech::Acknowledge(which) => match pick(&self.watches, *which) {
                Some(wire) => vec![self.acknowledgement(*wire, *which)],
                None => note("notifications/subscriptions/acknowledged", json!({})),
            },
            Speech::Ask { id, what } => {
                let id = if id % 2 == 0 {
                    json!(id / 32)
                } else {
                    json!(format!("q{}", id / 32))
                };
                let (method, params) = question(*what);
                self.asked.push(id.clone());
                vec![json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})]
            }
            Speech::Batch(both) => both.iter().flat_map(|one| self.words(one)).collect(),
            Speech::Cancelled(which) => {
                let watch = pick(&self.watches, which / 2).map(|wire| json!(wire));
                let ask = pick(&self.asked, which / 2).cloned();
                let id = if which % 2 == 0 {
                    ask.or(watch)
                } else {
                    watch.or(ask)
                };
                note(
                    "notifications/cancelled",
                    json!({"requestId": id.unwrap_or(json!(1))}),
                )
            }
            Speech::Changed(what) => {
                let method = [
                    "notifications/tools/list_changed",
                    "notifications/prompts/list_changed",
                    "notifications/resources/list_changed",
                    "notifications/resources/updated",
                ][usize::from(what % 4)];
                let mut params = json!({"uri": "file:///a"});
                if let Some(wire) = pick(&self.watches, what / 4) {
                    params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": wire});
                }
                note(method, params)
            }
            Speech::Late(which) => match pick(&self.answered, *which) {
                Some(wire) => vec![json!({"jsonrpc": "2.0", "id": wire, "result": {"echo": wire}})],
                None => Vec::new(),
            },
            Speech::Log(level) => {
                let level = ["debug", "info", "emergency", "loud"][usize::from(level % 4)];
                note(
                    "notifications/message",
                    json!({"level": level, "data": PAYLOAD}),
                )
            }
            Speech::Nameless => {
                let error = json!({"code": -32700, "message": "what?"});
                vec![json!({"jsonrpc": "2.0", "id": null, "error": error})]
            }
            Speech::Notification => note("notifications/unheard_of", json!({"a": 1})),
            Speech::Progress { which, progress } => {
                let token = pick(&self.open, *which).map_or(0, |request| request.wire);
                let told =
                    json!({"progressToken": token, "progress": progress, "message": "on it"});
                note("notifications/progress", told)
            }
            Speech::Reply { which, how } => {
                let len = self.open.len().max(1);
                let at = usize::from(*which) % len;
                if at >= self.open.len() {
                    return Vec::new();
                }
                let request = self.open.remove(at);
                self.watches.retain(|wire| *wire != request.wire);
                self.answered.push(request.wire);
                let said = answer(&request, *how);
                match how {
                    Reply::Twice => vec![said.clone(), said],
                    _ => vec![said],
                }
            }
        }
    }

    pub(crate) fn acknowledgement(&self, wire: i64, taste: u8) -> Value {
        let granted = json!({
            "toolsListChanged": taste % 2 == 0,
            "promptsListChanged": true,
            "resourceSubscriptions": ["file:///a"],
        });
        json!({
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {
                "_meta": {"io.modelcontextprotocol/subscriptionId": wire},
                "notifications": granted,
            },
        })
    }
}

pub(crate) fn answer(request: &Request, how: Reply) -> Value {
    let wire = request.wire;
    let good = |taste| json!({"jsonrpc": "2.0", "id": wire, "result": good_result(request, taste)});
    match how {
        Reply::Empty => json!({"jsonrpc": "2.0", "id": wire}),
        Reply::Error(which) => {
            let codes = [-32601, -32602, -32603, -32022, -32021, -32700, 0, 7];
            let code = match which {
                240.. => -32020,
                _ => codes[usize::from(which % 8)],
            };
            let supported = match which / 8 % 3 {
                0 => json!(["2026-07-28"]),
                1 => json!(["2025-06-18"]),
                _ => json!(null),
            };
            let data = json!({"supported": supported, "pad": PAYLOAD});
            let error = json!({"code": code, "message": "no", "data": data});
            json!({"jsonrpc": "2.0", "id": wire, "error": error})
        }
        Reply::Good(taste) => good(taste),
        Reply::InputRequired(what) => {
            let mut result = json!({"resultType": "input_required", "echo": wire});
            if what & 1 != 0 {
                result["requestState"] = json!("st\nate");
            }
            let mut questions = json!({});
            for at in 0..(what >> 1 & 3) {
                let (method, params) = question(what >> 3);
                questions[format!("key{at}")] = json!({"method": method, "params": params});
            }
            if what & 6 != 0 {
                result["inputRequests"] = questions;
            }
            json!({"jsonrpc": "2.0", "id": wire, "result": result})
        }
        Reply::NoObject => json!({"jsonrpc": "2.0", "id": wire, "result": [1]}),
        Reply::Oversized | Reply::Twice => good(0),
        Reply::TextId => json!({"jsonrpc": "2.0", "id": wire.to_string(), "result": {}}),
        Reply::UnknownType => {
            json!({"jsonrpc": "2.0", "id": wire, "result": {"resultType": "tea", "echo": wire}})
        }
    }
}

fn good_result(request: &Request, taste: u8) -> Value {
    let capabilities = if taste & 8 == 0 {
        json!({
            "tools": {"listChanged": true},
            "prompts": {"listChanged": taste & 16 == 0},
            "resources": {"listChanged": true, "subscribe": taste & 32 == 0},
            "logging": {},
            "completions": {},
        })
    } else {
        json!({})
    };
    let mut result = match &*request.method {
        "initialize" => {
            let versions = [
                "2025-11-25",
                "2025-03-26",
                "2025-06-18",
                "2024-11-05",
                "2025-11-25",
                "1999-12-31",
            ];
            let version = versions[usize::from(taste % 8) % versions.len()];
            json!({"protocolVersion": version, "capabilities": capabilities})
        }
        "server/discover" => {
            let versions = match taste % 8 {
                6 => json!(["2025-11-25"]),
                7 => json!(["1999-12-31"]),
                _ => json!(["2025-11-25", "2026-07-28"]),
            };
            json!({"supportedVersions": versions, "capabilities": capabilities})
        }
        "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" => {
            let member = match &*request.method {
                "tools/list" => "tools",
                "prompts/list" => "prompts",
                "resources/list" => "resources",
                _ => "resourceTemplates",
            };
            let mut page = json!({});
            page[member] = json!([{"name": "one"}, {"name": "two"}]);
            if taste & 16 != 0 {
                page[member][0] = tool(taste >> 5);
            }
            if taste & 3 == 3 {
                page["nextCursor"] = json!(format!("c{}", taste >> 2 & 1));
            }
            if taste & 4 != 0 {
                page["ttlMs"] = json!(i64::from(taste) * 10);
            }
            page
        }
        _ if taste & 31 == 6 => json!({"resultType": "task", "taskId": "t", "status": "working"}),
        _ if taste & 1 == 0 => json!({"resultType": "complete"}),
        _ => json!({"isError": true}),
    };
    result["echo"] = json!(request.wire);
    result["pad"] = json!(PAYLOAD);
    result
}

/// A tool of which a call over HTTP repeats arguments in fields, or one that cannot be told how.
fn tool(which: u8) -> Value {
    let mark = |kind: &str, field: &str| json!({"type": kind, "x-mcp-header": field});
    let mut schema = json!({"type": "object", "properties": {
        "a": mark("string", "A"),
        "deep": {"type": "object", "properties": {"b": mark("boolean", "B")}},
        "n": mark("integer", "N"),
    }});
    match which % 8 {
        5 => schema["properties"]["a"]["x-mcp-header"] = json!("not a name"),
        6 => schema["properties"]["n"]["x-mcp-header"] = json!("a"),
        7 => schema["items"] = mark("string", "C"),
        _ => {}
    }
    json!({"name": "tool", "inputSchema": schema})
}

fn question(what: u8) -> (&'static str, Value) {
    let (method, mut params) = match what % 8 {
        0 | 1 => ("roots/list", json!({})),
        2 => (
            "sampling/createMessage",
            json!({"messages": [], "maxTokens": 1}),
        ),
        3 => (
            "elicitation/create",
            json!({"message": "?", "requestedSchema": {}}),
        ),
        4 => (
            "elicitation/create",
            json!({"mode": "url", "url": "https://example.org"}),
        ),
        5 => ("ping", json!({})),
        6 => ("sampling/createMessage", json!({"tools": []})),
        _ => ("unheard/of", json!({})),
    };
    params["pad"] = json!(PAYLOAD);
    (method, params)
}

fn pick<T>(from: &[T], which: u8) -> Option<&T> {
    from.get(usize::from(which) % from.len().max(1))
}

fn lines(said: &[Value]) -> Vec<u8> {
    said.iter()
        .flat_map(|value| format!("{value}\n").into_bytes())
        .collect()
}
