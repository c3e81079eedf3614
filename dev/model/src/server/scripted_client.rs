//! A client that sends whatever it is told to: messages well-formed, half-formed and not. Remembers what it was told, so that it can
//! answer. Checks no rule.

use everlink::internal::wire::TEXT_ID_LIMIT;
use everlink::protocol::meta;
use serde_json::{Value, json};

use crate::explore::StateView;
use crate::script::{Read, Script, choices, word};
use crate::world::PAYLOAD;

choices! {
    /// A message of a client. Ids are one of a few, or new ones from 128 on.
    pub(crate) enum ClientMessage {
        13 Request { id: u8, method: u8, terms: u8, params: u8 },
        /// A handshake, and that it is over.
        3 Introduce(u8),
        4 Cancel { id: u8, manner: u8 },
        /// A request again, with the input that was wanted.
        4 Retry { id: u8, which: u8, how: u8 },
        2 Reply { which: u8, how: u8 },
        1 Notification(u8),
        /// A line that is no message.
        2 Noise(u8),
        1 Oversized(u8),
        2 Batch(Vec<ClientMessage>),
        0 CancelNewest,
    }
}

impl Read for Vec<ClientMessage> {
    fn read(script: &mut Script<'_>) -> Vec<ClientMessage> {
        script.nested(|script| script.byte() % 4)
    }
}

/// As they are written. Some are the same, some are none.
const IDS: &str = r#"1 2 3 4 "a" "1" 0 -1 1.0 9007199254740993 "" "\u00e9\n" 2 null 1.5 {}"#;

/// From here on, ids are used once.
const FRESH: usize = 100;

const METHODS: &str = "tools/call tools/call tools/call tools/call prompts/get resources/read tools/list \
    prompts/list resources/list resources/templates/list completion/complete ping initialize server/discover \
    server/discover subscriptions/listen subscriptions/listen subscriptions/listen subscriptions/listen \
    resources/subscribe resources/subscribe resources/unsubscribe logging/setLevel tasks/get tasks/list tasks/cancel \
    tasks/update tasks/result x/unheard_of notifications/cancelled sampling/createMessage -";

pub(super) const URIS: [&str; 4] = ["file:///a", "file:///a/b", "file:///c/", "file:///"];

/// The client, as far as it must remember.
#[derive(Debug, Default)]
pub(crate) struct ScriptedClient {
    marks: u64,
    /// It began a handshake.
    is_introduced: bool,
    /// The requests that were sent: id, method and parameters.
    sent: Vec<(Value, String, Value)>,
    wanted: Vec<Wanted>,
    /// The questions that came as requests: their ids, and their marks.
    asks: Vec<(Value, Value)>,
}

/// What a server wanted in the place of a result.
#[derive(Debug)]
struct Wanted {
    /// Which of the requests that were sent.
    of: usize,
    state: Value,
    /// The keys of the questions, and their marks.
    keys: Vec<(String, Value)>,
}

impl ScriptedClient {
    /// The client reads a message of the server.
    pub(crate) fn hear(&mut self, message: &Value) {
        if message.get("method").is_some() {
            let ask = message["params"]["ask"].clone();
            let id = message.get("id").cloned();
            return self.asks.extend(id.map(|id| (id, ask)));
        }
        let (id, result) = (&message["id"], &message["result"]);
        let of = self.sent.iter().rposition(|(sent, ..)| sent == id);
        let is_wanted = result["resultType"] == "input_required";
        if let Some(of) = of.filter(|_| is_wanted) {
            let questions = result["inputRequests"].as_object().into_iter().flatten();
            let keys = questions.map(|(key, asked)| (key.clone(), asked["params"]["ask"].clone()));
            let (state, keys) = (result["requestState"].clone(), keys.collect());
            self.wanted.push(Wanted { of, state, keys });
        }
    }

    /// Whether it was ever asked. It can answer a question that is over, too.
    pub(crate) fn was_asked(&self) -> bool {
        !self.asks.is_empty()
    }

    /// What it has to answer is seen by what it sends then.
    pub(crate) fn look(&self, view: &mut StateView) {
        view.plain(self.is_introduced);
        view.text(format!(r#""id":{}"#, self.newest()).as_bytes());
    }

    /// The id of the newest request, answered or not.
    fn newest(&self) -> String {
        let newest = self.sent.last();
        newest.map_or("1".into(), |(id, ..)| id.to_string())
    }

    /// The request that it could retry with what was wanted: a server without room for it does not show which that is.
    pub(super) fn look_back(&self, view: &mut StateView) {
        let Some(wanted) = self.wanted.last() else {
            return;
        };
        let state = wanted.state.as_str().unwrap_or_default();
        let sealed = state.strip_prefix("everlink.");
        match sealed.and_then(|sealed| sealed.rsplit_once('.')) {
            Some((round, _proof)) => view.text(format!("request {round}").as_bytes()),
            None => view.text(state.as_bytes()),
        }
    }

    /// The lines of a message, ends included. `limit` is the length of the longest line that is read.
    pub(crate) fn send(&mut self, message: &ClientMessage, limit: usize) -> Vec<u8> {
        let lines = self.lines(message, limit).into_iter();
        lines
            .flat_map(|line| [line, b"\n".to_vec()].concat())
            .collect()
    }

    fn lines(&mut self, message: &ClientMessage, limit: usize) -> Vec<Vec<u8>> {
        let text = match message {
            ClientMessage::Batch(all) => {
                let elements = all.iter().flat_map(|one| self.lines(one, limit));
                let elements: Vec<Vec<u8>> = elements.collect();
                let batch = [b"[".to_vec(), elements.join(&b","[..]), b"]".to_vec()];
                return vec![batch.concat()];
            }
            ClientMessage::Cancel { id, manner } => {
                let newest = newest(&self.sent, *id).filter(|_| *id >= 128);
                let fixed = word(IDS, *id).to_owned();
                cancel(&newest.map_or(fixed, |(id, ..)| id.to_string()), *manner)
            }
            ClientMessage::CancelNewest => cancel(&self.newest(), 0),
            ClientMessage::Introduce(variant) => {
                let request = self.introduction(*variant).into_bytes();
                let then = notification("notifications/initialized", "");
                return vec![request, then.into_bytes()];
            }
            ClientMessage::Noise(which) => return vec![noise(*which)],
            ClientMessage::Notification(which) => {
                let methods = "notifications/initialized notifications/roots/list_changed \
                    notifications/progress notifications/unheard_of tools/call";
                let params = ["".to_owned(), format!(r#","params":{{"pad":"{PAYLOAD}"}}"#)];
                notification(word(methods, *which), &params[usize::from(which / 8 % 2)])
            }
            ClientMessage::Oversized(which) => {
                let id = word(IDS, which / 4);
                let mut line = match which % 4 {
                    0 | 1 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list""#),
                    2 => r#"{"jsonrpc":"2.0","id":1,"result":{}"#.to_owned(),
                    _ => "nothing".to_owned(),
                };
                line += &" ".repeat((limit + 1).saturating_sub(line.len()).min(1 << 12));
                line + "}"
            }
            ClientMessage::Reply { which, how } => match newest(&self.asks, *which) {
                Some((id, ask)) => reply(id, ask, *how),
                None => return Vec::new(),
            },
            ClientMessage::Request {
                id,
                method,
                terms,
                params,
            } => {
                let method = match method {
                    0..64 => "tools/call",
                    64..80 => "prompts/get",
                    method => word(METHODS, *method).trim_start_matches('-'),
                };
                let params = self.params(method, *terms, *params);
                self.request(*id, method, params)
            }
            ClientMessage::Retry { id, which, how } => match self.retry(*id, *which, *how) {
                Some(text) => text,
                None => return Vec::new(),
            },
        };
        vec![text.into_bytes()]
    }

    fn introduction(&mut self, variant: u8) -> String {
        let versions = "2025-11-25 2025-03-26 2024-11-05 2025-06-18 2026-07-28 1999-12-31";
        self.is_introduced = true;
        let is_full = variant & 8 == 0;
        let params = json!({
            "protocolVersion": word(versions, variant % 8),
            "capabilities": if is_full { full_capabilities() } else { json!({}) },
            "clientInfo": {"name": "peer", "version": "1"},
        });
        self.request(variant / 16, "initialize", params)
    }

    fn params(&mut self, method: &str, terms: u8, variant: u8) -> Value {
        let has = |bit: u8| variant & (1 << bit) != 0;
        let mark = self.mark();
        let mut params = json!({
            "mark": mark,
            "pad": PAYLOAD.repeat(if has(7) { 40 } else { 1 }),
            "name": if has(0) { "sub" } else { "add" },
            "uri": URIS[usize::from(variant & 3)],
        });
        match method {
            _ if has(4) && has(5) => {}
            "initialize" => {
                params["protocolVersion"] = json!("2025-11-25");
                params["capabilities"] = full_capabilities();
            }
            "subscriptions/listen" => {
                params["notifications"] = json!({
                    "toolsListChanged": !has(2),
                    "promptsListChanged": has(3),
                    "resourcesListChanged": has(4),
                    "resourceSubscriptions": URIS[..usize::from(variant & 3)],
                });
                if has(5) {
                    params["notifications"]["taskIds"] = json!(["t"]);
                }
            }
            "tools/call" if has(2) => {
                params["arguments"] = json!({"a": if has(3) { "\u{e9}" } else { "x" }});
            }
            "logging/setLevel" => {
                params["level"] = json!(word("debug error info loud", variant & 3));
            }
            _ => {}
        }
        if has(6) {
            params["_meta"] = json!({"traceparent": PAYLOAD});
        }
        self.terms(&mut params, terms);
        params
    }

    fn mark(&mut self) -> u64 {
        self.marks += 1;
        self.marks - 1
    }

    fn terms(&self, params: &mut Value, terms: u8) {
        let modern = json!("2026-07-28");
        let (version, capabilities) = match (terms % 8, terms >> 3 & 3) {
            (2..=4, _) if self.is_introduced => (None, None),
            (0..=4, _) => (Some(modern), Some(full_capabilities())),
            (5, _) => (None, None),
            (6, _) => (Some(modern), Some(json!({"roots": {}}))),
            (_, 0) => (Some(modern), None),
            (_, 1) => (Some(json!("2099-01-01")), Some(json!({}))),
            (_, 2) => (Some(json!(7)), Some(json!({}))),
            _ => (Some(modern), Some(json!([]))),
        };
        let token = match terms >> 3 & 3 {
            0 => None,
            1 => Some(json!(self.marks % 4)),
            2 => Some(json!(format!("t{}", self.marks))),
            _ => Some(json!(1.5)),
        };
        let level = match terms >> 5 & 3 {
            1 => Some(json!("info")),
            2 => Some(json!("error")),
            3 if terms & 136 == 136 => Some(json!("loud")),
            _ => None,
        };
        let client = json!({"name": format!("peer{}", self.marks % 2), "version": "1"});
        let client = (terms & 128 != 0).then_some(client);
        let keys = [
            (meta::PROTOCOL_VERSION, version),
            (meta::CLIENT_CAPABILITIES, capabilities),
            (meta::PROGRESS_TOKEN, token),
            (meta::LOG_LEVEL, level),
            (meta::CLIENT_INFO, client),
        ];
        for (key, value) in keys {
            if let Some(value) = value {
                params["_meta"][key] = value;
            }
        }
    }

    fn request(&mut self, id: u8, method: &str, params: Value) -> String {
        let id = match id {
            0..128 => word(IDS, id).to_owned(),
            _ => (FRESH + self.sent.len()).to_string(),
        };
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        let read = serde_json::from_str(&id).unwrap_or_default();
        self.sent.push((read, method.to_owned(), params));
        text
    }

    fn retry(&mut self, id: u8, which: u8, how: u8) -> Option<String> {
        let Wanted { of, state, keys } = newest(&self.wanted, which)?;
        let (_, method, params) = &self.sent[*of];
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
        let given = match how >> 3 & 7 {
            3 | 7 => 0,
            4 => 1,
            _ => keys.len(),
        };
        for (key, ask) in keys.iter().take(given) {
            answers[key] = match how >> 3 & 7 {
                5 => json!([1]),
                _ => json!({"of": ask, "pad": PAYLOAD}),
            };
        }
        match how >> 3 & 7 {
            6 => answers["other"] = json!({}),
            7 => answers = json!([]),
            _ => {}
        }
        params["mark"] = json!(self.mark());
        if how & 64 != 0 {
            params["name"] = json!("another");
            params["uri"] = json!("another");
        }
        let is_left_out = state.is_null() && how & 128 == 0;
        params["requestState"] = state;
        if is_left_out {
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

fn notification(method: &str, params: &str) -> String {
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
    let params = format!(r#","params":{params}"#);
    notification("notifications/cancelled", &params)
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

/// Lines that are not messages, and messages that are wrong or strange.
const NOISE: &str = r#"
 	
hello
-
1
"text"
[]
[1,{}]
{}
{"jsonrpc":"2.0"}
{"jsonrpc":"2.0","id":1}
{"jsonrpc":"2.0","id":2,"method":7}
{"jsonrpc":"2.0","id":3,"method":"ping","params":[]}
{"jsonrpc":"1.0","id":4,"method":"ping"}
{"id":1,"method":"ping"}
{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}
{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}
{"jsonrpc":"2.0","error":{"code":1,"message":"?"}}
{"jsonrpc":"2.0","id":99,"result":{}}
{"jsonrpc":"2.0","result":{}}
{"jsonrpc":"2.0","method":"notifications/cancelled","params":7}
{"jsonrpc":"2.0","id":null,"method":"ping"}
{"jsonrpc":"2.0","id":"a","method":"ping"}
{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

fn noise(which: u8) -> Vec<u8> {
    let id = "x".repeat(TEXT_ID_LIMIT + 1);
    match (which, which % 24) {
        (255, _) => format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"ping"}}"#).into_bytes(),
        (254, _) => "[".repeat(300).into_bytes(),
        (_, 3) => b"\xff\xfe".to_vec(),
        (_, nth) => {
            let line = NOISE.split('\n').nth(usize::from(nth)).expect("24 lines");
            let end = if nth == 23 { "\r" } else { "" };
            format!("{line}{end}").into_bytes()
        }
    }
}

/// The one that lies so far back.
fn newest<T>(from: &[T], which: u8) -> Option<&T> {
    let nth = usize::from(which) % from.len().max(1);
    from.iter().rev().nth(nth)
}
