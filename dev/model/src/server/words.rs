//! What a client says to a server end, in bytes: well-formed, half-formed and not. Remembers what it was told, so that it can
//! answer; judges nothing.

use everlink::protocol::meta;
use everlink::wire::TEXT_ID_LIMIT;
use serde_json::{Value, json};

use super::script::Speech;
use crate::explore::Sight;

/// Stands in every payload of either side. Nothing that is shown may contain it.
pub(crate) const PAYLOAD: &str = "PAYLOAD";

/// As they are written. Some are the same, some are none.
const IDS: [&str; 16] = [
    "1",
    "2",
    "3",
    "4",
    r#""a""#,
    r#""1""#,
    "0",
    "-1",
    "1.0",
    "9007199254740993",
    r#""""#,
    r#""\u00e9\n""#,
    "2",
    "null",
    "1.5",
    "{}",
];

/// From here on, ids are used once.
const FRESH: usize = 100;

const METHODS: [&str; 32] = [
    "tools/call",
    "tools/call",
    "tools/call",
    "tools/call",
    "prompts/get",
    "resources/read",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "completion/complete",
    "ping",
    "initialize",
    "server/discover",
    "server/discover",
    "subscriptions/listen",
    "subscriptions/listen",
    "subscriptions/listen",
    "subscriptions/listen",
    "resources/subscribe",
    "resources/subscribe",
    "resources/unsubscribe",
    "logging/setLevel",
    "tasks/get",
    "tasks/list",
    "tasks/cancel",
    "tasks/update",
    "tasks/result",
    "x/unheard_of",
    "notifications/cancelled",
    "sampling/createMessage",
    "",
];

pub(super) const URIS: [&str; 4] = ["file:///a", "file:///a/b", "file:///c/", "file:///"];

/// The other end, as far as it must remember.
#[derive(Debug, Default)]
pub(crate) struct Words {
    marks: u64,
    /// It tried to shake hands.
    is_introduced: bool,
    /// The requests that were put: id, method and parameters.
    put: Vec<(Value, String, Value)>,
    wanted: Vec<Wanted>,
    /// The questions that came as requests: their ids, and what they ask.
    asks: Vec<(Value, Value)>,
}

/// What was given in the place of a result.
#[derive(Debug)]
struct Wanted {
    /// Which of the requests that were put.
    of: usize,
    state: Value,
    /// The keys, and what they ask.
    keys: Vec<(String, Value)>,
}

impl Words {
    /// The client reads a line of the server.
    pub(crate) fn hear(&mut self, message: &Value) {
        if message.get("method").is_some() {
            if let Some(id) = message.get("id") {
                self.asks
                    .push((id.clone(), message["params"]["ask"].clone()));
            }
            return;
        }
        let (id, result) = (&message["id"], &message["result"]);
        if result["resultType"] != "input_required" {
            return;
        }
        let Some(of) = self.put.iter().rposition(|(put, ..)| put == id) else {
            return;
        };
        let questions = result["inputRequests"].as_object();
        let questions = questions.into_iter().flatten();
        let keys = questions.map(|(key, asked)| (key.clone(), asked["params"]["ask"].clone()));
        self.wanted.push(Wanted {
            of,
            state: result["requestState"].clone(),
            keys: keys.collect(),
        });
    }

    /// Looks at whom it takes itself for. What it has before it is seen by what it says to it.
    pub(crate) fn look(&self, sight: &mut Sight) {
        sight.plain(self.is_introduced);
    }

    /// Looks at the request that it could come back to with what was wanted: a server that has no room for it does not show which
    /// that is.
    pub(super) fn look_back(&self, sight: &mut Sight) {
        let Some(wanted) = self.wanted.last() else {
            return;
        };
        let state = wanted.state.as_str().unwrap_or_default();
        let sealed = state.strip_prefix("everlink.");
        match sealed.and_then(|sealed| sealed.rsplit_once('.')) {
            Some((round, _proof)) => sight.text(format!("request {round}").as_bytes()),
            None => sight.text(state.as_bytes()),
        }
    }

    /// How a script names the newest request that was put.
    pub(crate) fn newest(&self) -> u8 {
        let put = self.put.len().max(1);
        let named = (128..=u8::MAX).find(|name| usize::from(*name) % put == 0);
        named.expect("few requests")
    }

    /// The lines, ends included. `limit` is the length of the longest line that is read.
    pub(crate) fn say(&mut self, speech: &Speech, limit: usize) -> Vec<u8> {
        let mut lines = Vec::new();
        self.lines(speech, limit, &mut lines);
        let mut bytes = Vec::new();
        for line in lines {
            bytes.extend(line);
            bytes.push(b'\n');
        }
        bytes
    }

    fn lines(&mut self, speech: &Speech, limit: usize, lines: &mut Vec<Vec<u8>>) {
        let said = match speech {
            Speech::Batch(all) => {
                let mut elements = Vec::new();
                for speech in all {
                    self.lines(speech, limit, &mut elements);
                }
                let batch = [b"[".to_vec(), elements.join(&b","[..]), b"]".to_vec()];
                return lines.push(batch.concat());
            }
            Speech::Cancel { id, manner } => {
                let newest = newest(&self.put, *id).filter(|_| *id >= 128);
                let id = match newest {
                    Some((id, ..)) => id.to_string(),
                    None => IDS[usize::from(*id) % IDS.len()].to_owned(),
                };
                cancel(&id, *manner)
            }
            Speech::Introduce(taste) => {
                let text = self.introduction(*taste);
                lines.push(text.into_bytes());
                notification("notifications/initialized", None)
            }
            Speech::Noise(which) => return lines.push(noise(*which)),
            Speech::Notification(which) => {
                let methods = [
                    "notifications/initialized",
                    "notifications/roots/list_changed",
                    "notifications/progress",
                    "notifications/unheard_of",
                    "tools/call",
                ];
                let method = methods[usize::from(*which) % methods.len()];
                let params = [None, Some(json!({"pad": PAYLOAD}))];
                notification(method, params[usize::from(*which / 8 % 2)].clone())
            }
            Speech::Oversized(which) => {
                let mut line = match which % 4 {
                    0 | 1 => {
                        let id = IDS[usize::from(*which / 4) % IDS.len()];
                        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list""#)
                    }
                    2 => r#"{"jsonrpc":"2.0","id":1,"result":{}"#.to_owned(),
                    _ => "nothing".to_owned(),
                };
                line.push_str(&" ".repeat((limit + 1).saturating_sub(line.len()).min(1 << 12)));
                line.push('}');
                line
            }
            Speech::Reply { which, how } => {
                let Some((id, ask)) = newest(&self.asks, *which) else {
                    return;
                };
                reply(id, ask, *how)
            }
            Speech::Request {
                id,
                method,
                terms,
                params,
            } => {
                let method = match method {
                    0..64 => "tools/call",
                    64..80 => "prompts/get",
                    method => METHODS[usize::from(*method) % METHODS.len()],
                };
                let params = self.params(method, *terms, *params);
                self.request(*id, method, params)
            }
            Speech::Retry { id, which, how } => match self.retry(*id, *which, *how) {
                Some(text) => text,
                None => return,
            },
        };
        lines.push(said.into_bytes());
    }

    fn introduction(&mut self, taste: u8) -> String {
        let versions = [
            "2025-11-25",
            "2025-03-26",
            "2024-11-05",
            "2025-06-18",
            "2026-07-28",
            "1999-12-31",
        ];
        let version = versions[usize::from(taste % 8) % versions.len()];
        self.is_introduced = true;
        let capabilities = if taste & 8 == 0 {
            full_capabilities()
        } else {
            json!({})
        };
        let params = json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "peer", "version": "1"},
        });
        self.request(taste / 16, "initialize", params)
    }

    fn params(&mut self, method: &str, terms: u8, taste: u8) -> Value {
        let has = |bit: u8| taste & (1 << bit) != 0;
        let mark = self.marks;
        self.marks += 1;
        let mut params = json!({
            "mark": mark,
            "pad": PAYLOAD.repeat(if has(7) { 40 } else { 1 }),
            "name": if has(0) { "sub" } else { "add" },
            "uri": URIS[usize::from(taste & 3)],
        });
        match method {
            _ if has(4) && has(5) => {}
            "initialize" => {
                params["protocolVersion"] = json!("2025-11-25");
                params["capabilities"] = full_capabilities();
            }
            "subscriptions/listen" => {
                let uris = &URIS[..usize::from(taste & 3)];
                params["notifications"] = json!({
                    "toolsListChanged": !has(2),
                    "promptsListChanged": has(3),
                    "resourcesListChanged": has(4),
                    "resourceSubscriptions": uris,
                });
                if has(5) {
                    params["notifications"]["taskIds"] = json!(["t"]);
                }
            }
            "tools/call" if has(2) => {
                params["arguments"] = json!({"a": if has(3) { "\u{e9}" } else { "x" }});
            }
            "logging/setLevel" => {
                params["level"] = json!(["debug", "error", "info", "loud"][usize::from(taste & 3)]);
            }
            _ => {}
        }
        if has(6) {
            params["_meta"] = json!({"traceparent": PAYLOAD});
        }
        self.terms(&mut params, terms);
        params
    }

    fn terms(&self, params: &mut Value, terms: u8) {
        let key = |name: &str, value: Value, params: &mut Value| {
            params["_meta"][name] = value;
        };
        let (version, capabilities) = match terms % 8 {
            2..=4 if self.is_introduced => (None, None),
            0..=4 => (Some(json!("2026-07-28")), Some(full_capabilities())),
            5 => (None, None),
            6 => (Some(json!("2026-07-28")), Some(json!({"roots": {}}))),
            _ => match terms >> 3 & 3 {
                0 => (Some(json!("2026-07-28")), None),
                1 => (Some(json!("2099-01-01")), Some(json!({}))),
                2 => (Some(json!(7)), Some(json!({}))),
                _ => (Some(json!("2026-07-28")), Some(json!([]))),
            },
        };
        if let Some(version) = version {
            key(meta::PROTOCOL_VERSION, version, params);
        }
        if let Some(capabilities) = capabilities {
            key(meta::CLIENT_CAPABILITIES, capabilities, params);
        }
        match terms >> 3 & 3 {
            0 => {}
            1 => key(meta::PROGRESS_TOKEN, json!(self.marks % 4), params),
            2 => key(
                meta::PROGRESS_TOKEN,
                json!(format!("t{}", self.marks)),
                params,
            ),
            _ => key(meta::PROGRESS_TOKEN, json!(1.5), params),
        }
        match terms >> 5 & 3 {
            0 => {}
            1 => key(meta::LOG_LEVEL, json!("info"), params),
            2 => key(meta::LOG_LEVEL, json!("error"), params),
            _ if terms & 136 == 136 => key(meta::LOG_LEVEL, json!("loud"), params),
            _ => {}
        }
        if terms & 128 != 0 {
            let client = json!({"name": format!("peer{}", self.marks % 2), "version": "1"});
            key(meta::CLIENT_INFO, client, params);
        }
    }

    fn request(&mut self, id: u8, method: &str, params: Value) -> String {
        let id = match id {
            0..128 => IDS[usize::from(id) % IDS.len()].to_owned(),
            _ => (FRESH + self.put.len()).to_string(),
        };
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        let read = serde_json::from_str(&id).unwrap_or_default();
        self.put.push((read, method.to_owned(), params));
        text
    }

    fn retry(&mut self, id: u8, which: u8, how: u8) -> Option<String> {
        let Wanted { of, state, keys } = newest(&self.wanted, which)?;
        let (_, method, params) = &self.put[*of];
        let (method, mut params) = (method.clone(), params.clone());
        let state = match how & 7 {
            0..=3 => state.clone(),
            4 => {
                let mut text = state.as_str().unwrap_or("everlink.1.1.0").to_owned();
                let last = text.pop();
                text.push(if last == Some('0') { '1' } else { '0' });
                json!(text)
            }
            5 => Value::Null,
            6 => json!(format!("made-up-{PAYLOAD}")),
            _ => json!(7),
        };
        let mut answers = json!({});
        for (at, (key, ask)) in keys.iter().enumerate() {
            if how >> 3 & 7 != 4 || at == 0 {
                answers[key] = json!({"of": ask, "pad": PAYLOAD});
            }
        }
        match how >> 3 & 7 {
            3 => answers = json!({}),
            5 => {
                for (key, _) in keys {
                    answers[key] = json!([1]);
                }
            }
            6 => answers["other"] = json!({}),
            7 => answers = json!([]),
            _ => {}
        }
        params["mark"] = json!(self.marks);
        self.marks += 1;
        if how & 64 != 0 {
            params["name"] = json!("another");
            params["uri"] = json!("another");
        }
        params["requestState"] = state;
        if params["requestState"].is_null() && how & 128 == 0 {
            params.as_object_mut()?.remove("requestState");
        }
        params["inputResponses"] = answers;
        Some(self.request(id, &method, params))
    }
}

fn full_capabilities() -> Value {
    json!({
        "roots": {"listChanged": true},
        "sampling": {"tools": {}},
        "elicitation": {"form": {}, "url": {}},
        "extensions": {meta::TASKS_EXTENSION: {}},
    })
}

fn notification(method: &str, params: Option<Value>) -> String {
    let params = params.map_or(String::new(), |params| format!(r#","params":{params}"#));
    format!(r#"{{"jsonrpc":"2.0","method":"{method}"{params}}}"#)
}

fn cancel(id: &str, manner: u8) -> String {
    let params = match manner % 8 {
        0..=3 => format!(r#"{{"requestId":{id}}}"#),
        4 => format!(r#"{{"requestId":{id},"reason":"not\nwanted"}}"#),
        5 => format!(r#"{{"reason":7,"requestId":{id}}}"#),
        6 => "{}".to_owned(),
        _ => format!(r#"{{"requestId":[{id}]}}"#),
    };
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#)
}

fn reply(id: &Value, ask: &Value, how: u8) -> String {
    let outcome = match how % 8 {
        0..=2 => format!(r#""result":{{"of":{ask},"pad":"{PAYLOAD}"}}"#),
        3 => r#""error":{"code":-1,"message":"no"}"#.to_owned(),
        4 => r#""result":[]"#.to_owned(),
        5 => r#""error":7"#.to_owned(),
        6 => r#""result":null"#.to_owned(),
        _ => format!(r#""error":{{"code":-32042,"data":{{"pad":"{PAYLOAD}"}}}}"#),
    };
    format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#)
}

fn noise(which: u8) -> Vec<u8> {
    let lines: [&[u8]; 24] = [
        b"",
        b" \t",
        b"hello",
        b"\xff\xfe",
        b"1",
        b"\"text\"",
        b"[]",
        b"[1,{}]",
        b"{}",
        b"{\"jsonrpc\":\"2.0\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1}",
        b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":7}",
        b"{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\",\"params\":[]}",
        b"{\"jsonrpc\":\"1.0\",\"id\":4,\"method\":\"ping\"}",
        b"{\"id\":1,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"result\":{}}",
        b"{\"jsonrpc\":\"2.0\",\"error\":{\"code\":1,\"message\":\"?\"}}",
        b"{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}",
        b"{\"jsonrpc\":\"2.0\",\"result\":{}}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":7}",
        b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r",
    ];
    match which {
        255 => {
            let id = "x".repeat(TEXT_ID_LIMIT + 1);
            format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"ping"}}"#).into_bytes()
        }
        254 => "[".repeat(300).into_bytes(),
        which => lines[usize::from(which) % lines.len()].to_vec(),
    }
}

/// The one that lies so far back.
fn newest<T>(from: &[T], which: u8) -> Option<&T> {
    from.iter()
        .rev()
        .nth(usize::from(which) % from.len().max(1))
}
