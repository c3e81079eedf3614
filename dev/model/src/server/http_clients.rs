//! Clients of a server over HTTP: the requests of each, mostly as they should be, and what it remembers. Checks no rule.

use everlink::Epoch;
use everlink::http::{Fields, RequestHead, Verb};
use everlink::protocol::meta;
use serde_json::Value;

use super::http_rules::Read;
use super::{ClientMessage, ScriptedClient};
use crate::explore::StateView;

/// The user of each of them.
pub(super) const USERS: [Option<&str>; 3] = [Some("ann"), Some("bob"), None];

#[derive(Debug, Default)]
pub(super) struct HttpClient {
    client: ScriptedClient,
    session: Option<String>,
    version: Option<String>,
    last_event: Option<String>,
    /// Where messages go in the first version.
    endpoint: Option<String>,
}

impl HttpClient {
    pub(super) fn enter(&mut self, session: &str, version: Option<&str>) {
        self.session = Some(session.to_owned());
        self.version = version.map(str::to_owned).or(self.version.take());
    }

    pub(super) fn hear(&mut self, read: Read) {
        match read {
            Read::Event(id) => self.last_event = Some(id),
            Read::Message(message) => self.client.hear(&message),
            Read::Endpoint(endpoint) => self.endpoint = Some(endpoint),
        }
    }

    pub(super) fn look(&self, view: &mut StateView) {
        view.shown(&(&self.session, &self.version, &self.endpoint));
        let event = self.last_event.as_deref().unwrap_or_default();
        view.text(&with_serials(format!("id: {event}").as_bytes()));
        self.client.look(view);
        self.client.look_back(view);
    }

    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    pub(super) fn lines(&mut self, message: &ClientMessage, limit: usize) -> Vec<Vec<u8>> {
        let sent = self.client.send(message, limit);
        let lines = sent.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        lines.map(Into::into).collect()
    }

    /// A message of this client, with its number in it.
    pub(super) fn post(&self, who: usize, line: &[u8]) -> (RequestHead<'static>, Vec<u8>) {
        let Ok(mut message) = serde_json::from_slice::<Value>(line) else {
            return (self.head(Verb::Post, &Value::Null), line.to_vec());
        };
        sign(&mut message, who);
        let head = self.head(Verb::Post, &message);
        (head, message.to_string().into_bytes())
    }

    /// A request for a stream, or for the end of the session.
    pub(super) fn want(&self, what: u8) -> RequestHead<'static> {
        let mut head = match what % 8 {
            0..=4 => self.head(Verb::Get, &Value::Null),
            5 => self.head(Verb::Delete, &Value::Null),
            6 => RequestHead::new(Verb::Get, "/sse")
                .with_fields(Fields::new().and("accept", "text/event-stream")),
            _ => self.head(Verb::Other, &Value::Null),
        };
        if what & 8 != 0 {
            let last = self.last_event.clone();
            let last = last.unwrap_or_else(|| format!("{:x}-{}", what >> 6, what >> 4 & 3));
            head.fields.push("last-event-id", last);
        }
        head
    }

    /// The head of a request with this message.
    pub(super) fn head(&self, verb: Verb, message: &Value) -> RequestHead<'static> {
        let mut fields = Fields::new().and("host", "localhost");
        let params = &message["params"];
        let version = params["_meta"][meta::PROTOCOL_VERSION].as_str();
        if verb == Verb::Post {
            fields.push("content-type", "application/json");
            fields.push("accept", "application/json, text/event-stream");
        } else {
            fields.push("accept", "text/event-stream");
        }
        let mut target = "/mcp".to_owned();
        if let Some(version) = version {
            fields.push("mcp-protocol-version", version.to_owned());
            let method = message["method"].as_str().unwrap_or_default();
            fields.push("mcp-method", method.to_owned());
            let name = match method {
                "tools/call" | "prompts/get" => params["name"].as_str(),
                "resources/read" => params["uri"].as_str(),
                _ => params["taskId"].as_str(),
            };
            if let Some(name) = name {
                fields.push("mcp-name", name.to_owned());
            }
            // As the tools require it that the application may have.
            match params["arguments"]["a"].as_str() {
                Some("\u{e9}") => fields.push("mcp-param-x", "=?base64?w6k=?="),
                Some(plain) => fields.push("mcp-param-x", plain.to_owned()),
                None => {}
            }
        } else {
            let is_inside = message["method"] != "initialize";
            if let Some(session) = self.session.clone().filter(|_| is_inside) {
                fields.push("mcp-session-id", session);
            }
            if let Some(version) = self.version.clone().filter(|_| is_inside) {
                fields.push("mcp-protocol-version", version);
            }
            let is_old = self.session.is_none() && verb == Verb::Post;
            target = self.endpoint.clone().filter(|_| is_old).unwrap_or(target);
        }
        RequestHead::new(verb, target).with_fields(fields)
    }
}

/// Who numbers the ids of a client, as the explorer names them: each numbers its own from the beginning.
pub(super) fn giver(who: usize) -> Epoch {
    if who == 0 { Epoch::NONE } else { Epoch::FIRST }
}

/// The bytes of a response, for the explorer: the number of a stream in the ids of its events depends on how many there were before.
pub(super) fn with_serials(bytes: &[u8]) -> Vec<u8> {
    let with_serial = |line: &str| {
        let (stream, event) = line.strip_prefix("id: ")?.split_once('-')?;
        let stream = u64::from_str_radix(stream, 16).ok()?;
        Some(format!("\"serial\":{stream} {event}"))
    };
    let text = String::from_utf8_lossy(bytes);
    let lines = text
        .lines()
        .map(|line| with_serial(line).unwrap_or_else(|| line.to_owned()));
    lines.collect::<Vec<String>>().join("\n").into_bytes()
}

/// The head with something wrong. `session` is that of another client.
pub(super) fn spoil(
    head: RequestHead<'static>,
    wrong: u8,
    session: Option<&str>,
) -> RequestHead<'static> {
    let without = |name: &str| -> Fields<'static> {
        let kept = head.fields.iter().filter(|(of, _)| *of != name);
        let kept = kept.map(|(name, value)| (name.to_owned(), value.to_vec()));
        kept.collect()
    };
    let with = |name: &'static str, value: &str| without(name).and(name, value.to_owned());
    let fields = match wrong % 16 {
        0 => without("accept"),
        1 => without("content-type"),
        2 => with("host", "evil.example"),
        3 => with("origin", "https://evil.example"),
        4 => without("mcp-method"),
        5 => with("mcp-method", "ping"),
        6 => without("mcp-protocol-version"),
        7 => with("mcp-protocol-version", "1999-12-31"),
        8 => without("mcp-session-id"),
        9 => with("mcp-session-id", session.unwrap_or("made up")),
        10 => with("accept", "application/json"),
        11 => with("accept", "text/event-stream"),
        12 => with("content-type", "text/plain"),
        13 => {
            let mut fields = head.fields.clone();
            fields.push_bytes("mcp-name", vec![0xff, wrong]);
            fields
        }
        14 => without("mcp-name"),
        _ => head.fields.clone().and("mcp-param-x", "1"),
    };
    let target = match wrong {
        240.. => "/elsewhere?x=1".into(),
        _ => head.target.clone(),
    };
    RequestHead::new(head.verb, target).with_fields(fields)
}

/// Adds to every message whose it is.
fn sign(message: &mut Value, who: usize) {
    match message {
        Value::Array(batch) => batch.iter_mut().for_each(|one| sign(one, who)),
        Value::Object(members) => {
            for part in ["params", "result"] {
                if let Some(Value::Object(part)) = members.get_mut(part) {
                    part.insert("who".to_owned(), who.into());
                }
            }
        }
        _ => {}
    }
}
