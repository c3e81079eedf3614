//! A server that knows what it was asked and sends whatever it is told to. Checks no rule.

use serde_json::{Value, json};

use crate::explore::StateView;
use crate::script::{Read, Script, choices, word};
use crate::world::PAYLOAD;

choices! {
    /// How a request is answered.
    #[derive(Copy)]
    #[non_exhaustive]
    pub enum Reply {
        /// As it should be; the number chooses among the ways.
        4 Good(u8),
        /// With an error of one of the codes that have a meaning.
        2 Error(u8),
        /// With questions, or with just another round.
        4 InputRequired(u8),
        /// With a result that is no object.
        1 NoObject,
        /// With more bytes than are allowed.
        1 Oversized,
        /// As it should be, but the id is a text.
        1 TextId,
        1 Twice,
        /// With a result type that does not exist.
        1 UnknownType,
        /// With neither a result nor an error.
        1 Empty,
    }
}

choices! {
    /// A message of a server.
    #[non_exhaustive]
    pub enum ServerMessage {
        16 Reply { which: u8, how: Reply },
        3 Ask { id: u8, what: u8 },
        2 Progress { which: u8, progress: u8 },
        /// A watch is confirmed.
        2 Acknowledge(u8),
        /// A request of either end is taken back.
        2 Cancelled(u8),
        1 Changed(u8),
        /// A reply to what was answered before.
        1 Late(u8),
        1 Log(u8),
        /// An error that names no request.
        1 Nameless,
        /// Two at once, or none.
        2 Batch(Vec<ServerMessage>),
        /// A notification that does not exist.
        1 Notification,
    }
}

impl Read for Vec<ServerMessage> {
    fn read(script: &mut Script<'_>) -> Vec<ServerMessage> {
        script.nested(|_| 2)
    }
}

/// A request: its id and its method.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) id: i64,
    pub(super) method: String,
}

impl Request {
    /// The request in a message, if it is one.
    pub(super) fn of(message: &Value) -> Option<Request> {
        let method = message["method"].as_str()?.to_owned();
        let id = message["id"].as_i64()?;
        Some(Request { id, method })
    }
}

/// The server of one transport.
#[derive(Debug, Default)]
pub(crate) struct ScriptedServer {
    open: Vec<Request>,
    answered: Vec<i64>,
    /// The requests that are watches; they stay open.
    watches: Vec<i64>,
    asked: Vec<Value>,
}

impl ScriptedServer {
    pub(super) fn receive(&mut self, message: &Value) {
        if let Some(request) = Request::of(message) {
            if request.method == "subscriptions/listen" {
                self.watches.push(request.id);
            }
            self.open.push(request);
        } else if message["method"] == "notifications/cancelled" {
            let id = message["params"]["requestId"].as_i64();
            self.forget(id.expect("the id of a request"));
        }
    }

    /// A request was taken back.
    pub(super) fn forget(&mut self, id: i64) {
        self.open.retain(|request| request.id != id);
        self.answered.push(id);
    }

    /// Whether something other than a watch waits for an answer.
    pub(super) fn is_asked(&self) -> bool {
        self.open.iter().any(|request| self.is_call(request))
    }

    fn is_call(&self, request: &Request) -> bool {
        !self.watches.contains(&request.id)
    }

    pub(super) fn look(&self, view: &mut StateView) {
        for request in &self.open {
            view.wire(request.id);
            view.plain(&request.method);
        }
        self.watches.iter().for_each(|id| view.wire(*id));
    }

    /// The place of the oldest request that is no watch, or of the first.
    pub(super) fn oldest(&self) -> u8 {
        let oldest = self.open.iter().position(|request| self.is_call(request));
        u8::try_from(oldest.unwrap_or_default()).expect("few requests")
    }

    /// Good answers to everything.
    pub(super) fn serve(&mut self, variant: u8) -> Vec<u8> {
        let mut said = Vec::new();
        for request in std::mem::take(&mut self.open) {
            if self.is_call(&request) {
                said.push(answer(&request, Reply::Good(variant)));
                self.answered.push(request.id);
            } else {
                said.push(acknowledgement(request.id, variant));
                self.open.push(request);
            }
        }
        lines(&said)
    }

    /// The bytes of a message. `limit` is how long one may be.
    pub(super) fn send(&mut self, message: &ServerMessage, limit: usize) -> Vec<u8> {
        let mut said = self.messages(message);
        match message {
            ServerMessage::Batch(all) if !all.is_empty() => said = vec![Value::Array(said)],
            ServerMessage::Reply {
                how: Reply::Oversized,
                ..
            } => {
                if let Some(Value::Object(message)) = said.first_mut() {
                    // A limit that no test wants to reach is not tried.
                    let padding = " ".repeat(limit.min(5_000) + 1);
                    message.insert("padding".into(), padding.into());
                }
            }
            _ => {}
        }
        lines(&said)
    }

    fn messages(&mut self, message: &ServerMessage) -> Vec<Value> {
        let note = |method: &str, params: Value| {
            vec![json!({"jsonrpc": "2.0", "method": method, "params": params})]
        };
        match message {
            ServerMessage::Acknowledge(which) => match pick(&self.watches, *which) {
                Some(id) => vec![acknowledgement(*id, *which)],
                None => note("notifications/subscriptions/acknowledged", json!({})),
            },
            ServerMessage::Ask { id, what } => {
                let number = id / 32;
                let is_number = id % 2 == 0;
                let id = if is_number {
                    json!(number)
                } else {
                    json!(format!("q{number}"))
                };
                let (method, params) = question(*what);
                self.asked.push(id.clone());
                vec![json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})]
            }
            ServerMessage::Batch(all) if !all.is_empty() => {
                all.iter().flat_map(|one| self.messages(one)).collect()
            }
            ServerMessage::Batch(_) | ServerMessage::Notification => {
                note("notifications/unheard_of", json!({"a": 1}))
            }
            ServerMessage::Cancelled(which) => {
                let watch = pick(&self.watches, which / 2).map(|id| json!(id));
                let ask = pick(&self.asked, which / 2).cloned();
                let id = if which % 2 == 0 {
                    ask.or(watch)
                } else {
                    watch.or(ask)
                };
                let id = id.unwrap_or(json!(1));
                note("notifications/cancelled", json!({"requestId": id}))
            }
            ServerMessage::Changed(what) => {
                let what_changed = "tools/list_changed prompts/list_changed \
                    resources/list_changed resources/updated";
                let method = format!("notifications/{}", word(what_changed, *what));
                let mut params = json!({"uri": "file:///a"});
                if let Some(id) = pick(&self.watches, what / 4) {
                    params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": id});
                }
                note(&method, params)
            }
            ServerMessage::Late(which) => {
                let reply = |id| json!({"jsonrpc": "2.0", "id": id, "result": {"echo": id}});
                pick(&self.answered, *which)
                    .map(reply)
                    .into_iter()
                    .collect()
            }
            ServerMessage::Log(level) => {
                let level = word("debug info emergency loud", *level);
                let params = json!({"level": level, "data": PAYLOAD});
                note("notifications/message", params)
            }
            ServerMessage::Nameless => {
                let error = json!({"code": -32700, "message": "what?"});
                vec![json!({"jsonrpc": "2.0", "id": null, "error": error})]
            }
            ServerMessage::Progress { which, progress } => {
                let token = pick(&self.open, *which).map_or(0, |request| request.id);
                let params =
                    json!({"progressToken": token, "progress": progress, "message": "on it"});
                note("notifications/progress", params)
            }
            ServerMessage::Reply { which, how } => self.reply(*which, *how),
        }
    }

    fn reply(&mut self, which: u8, how: Reply) -> Vec<Value> {
        let at = usize::from(which) % self.open.len().max(1);
        if at >= self.open.len() {
            return Vec::new();
        }
        let request = self.open.remove(at);
        self.watches.retain(|id| *id != request.id);
        self.answered.push(request.id);
        let times = if how == Reply::Twice { 2 } else { 1 };
        vec![answer(&request, how); times]
    }
}

pub(super) fn acknowledgement(id: i64, variant: u8) -> Value {
    let params = json!({
        "_meta": {"io.modelcontextprotocol/subscriptionId": id},
        "notifications": {
            "toolsListChanged": variant % 2 == 0,
            "promptsListChanged": true,
            "resourceSubscriptions": ["file:///a"],
        },
    });
    let method = "notifications/subscriptions/acknowledged";
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

pub(super) fn answer(request: &Request, how: Reply) -> Value {
    let id = request.id;
    let result = match how {
        Reply::Empty => return json!({"jsonrpc": "2.0", "id": id}),
        Reply::Error(which) => {
            let codes = [-32601, -32602, -32603, -32022, -32021, -32700, 0, 7];
            let code = codes[usize::from(which % 8)];
            let code = if which >= 240 { -32020 } else { code };
            let supported = [json!(["2026-07-28"]), json!(["2025-06-18"]), json!(null)];
            let supported = &supported[usize::from(which / 8 % 3)];
            let data = json!({"supported": supported, "pad": PAYLOAD});
            let error = json!({"code": code, "message": "no", "data": data});
            return json!({"jsonrpc": "2.0", "id": id, "error": error});
        }
        Reply::Good(variant) => good_result(request, variant),
        Reply::Oversized | Reply::Twice => good_result(request, 0),
        Reply::InputRequired(what) => input_required(id, what),
        Reply::NoObject => json!([1]),
        Reply::TextId => {
            return json!({"jsonrpc": "2.0", "id": id.to_string(), "result": {}});
        }
        Reply::UnknownType => json!({"resultType": "tea", "echo": id}),
    };
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn input_required(id: i64, what: u8) -> Value {
    let mut result = json!({"resultType": "input_required", "echo": id});
    if what & 1 != 0 {
        result["requestState"] = json!("st\nate");
    }
    for at in 0..(what >> 1 & 3) {
        let (method, params) = question(what >> 3);
        let question = json!({"method": method, "params": params});
        result["inputRequests"][format!("key{at}")] = question;
    }
    result
}

fn good_result(request: &Request, variant: u8) -> Value {
    let capabilities = if variant & 8 == 0 {
        json!({
            "tools": {"listChanged": true},
            "prompts": {"listChanged": variant & 16 == 0},
            "resources": {"listChanged": true, "subscribe": variant & 32 == 0},
            "logging": {},
            "completions": {},
        })
    } else {
        json!({})
    };
    let list = match &*request.method {
        "tools/list" => "tools",
        "prompts/list" => "prompts",
        "resources/list" => "resources",
        "resources/templates/list" => "resourceTemplates",
        _ => "",
    };
    let mut result = match &*request.method {
        "initialize" => {
            let versions = "2025-11-25 2025-03-26 2025-06-18 2024-11-05 2025-11-25 1999-12-31";
            let version = word(versions, variant % 8);
            json!({"protocolVersion": version, "capabilities": capabilities})
        }
        "server/discover" => {
            let versions = match variant % 8 {
                6 => json!(["2025-11-25"]),
                7 => json!(["1999-12-31"]),
                _ => json!(["2025-11-25", "2026-07-28"]),
            };
            json!({"supportedVersions": versions, "capabilities": capabilities})
        }
        _ if !list.is_empty() => page(list, variant),
        _ if variant & 31 == 6 => json!({"resultType": "task", "taskId": "t", "status": "working"}),
        _ if variant & 1 == 0 => json!({"resultType": "complete"}),
        _ => json!({"isError": true}),
    };
    result["echo"] = json!(request.id);
    result["pad"] = json!(PAYLOAD);
    result
}

fn page(list: &str, variant: u8) -> Value {
    let mut page = json!({list: [{"name": "one"}, {"name": "two"}]});
    if variant & 16 != 0 {
        page[list][0] = tool(variant >> 5);
    }
    if variant & 3 == 3 {
        page["nextCursor"] = json!(format!("c{}", variant >> 2 & 1));
    }
    if variant & 4 != 0 {
        page["ttlMs"] = json!(i64::from(variant) * 10);
    }
    page
}

/// A tool whose calls over HTTP repeat arguments in fields, or one whose schema is wrong.
fn tool(which: u8) -> Value {
    let marked = |kind: &str, field: &str| json!({"type": kind, "x-mcp-header": field});
    let mut schema = json!({"type": "object", "properties": {
        "a": marked("string", "A"),
        "deep": {"type": "object", "properties": {"b": marked("boolean", "B")}},
        "n": marked("integer", "N"),
    }});
    match which % 8 {
        5 => schema["properties"]["a"]["x-mcp-header"] = json!("not a name"),
        6 => schema["properties"]["n"]["x-mcp-header"] = json!("a"),
        7 => schema["items"] = marked("string", "C"),
        _ => {}
    }
    json!({"name": "tool", "inputSchema": schema})
}

fn question(what: u8) -> (&'static str, Value) {
    // A server asks for the ping before the tools.
    let what = [0, 1, 2, 3, 4, 6, 5, 7][usize::from(what % 8)];
    let (method, mut params) = crate::server::question(what, 0);
    params.as_object_mut().expect("an object").remove("ask");
    (method, params)
}

fn pick<T>(from: &[T], which: u8) -> Option<&T> {
    from.get(usize::from(which) % from.len().max(1))
}

fn lines(said: &[Value]) -> Vec<u8> {
    let lines = said.iter().map(|value| format!("{value}\n"));
    lines.collect::<String>().into_bytes()
}
