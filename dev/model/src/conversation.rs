//! The rules for what a client and a server send to each other. Each id has a tally of the answers that it may and must get,
//! each watch a record. Knows no application and no machine.

use std::collections::BTreeMap;

use everlink::internal::wire::{self, Id, Inbound, Json, Line, LineReader, Message};
use everlink::protocol::{Era, Version, Versions, meta};
use everlink::server::{Config, ListenEnd};
use serde_json::Value;

use crate::explore::StateView;
use crate::json::Members;

#[derive(Debug)]
pub(crate) struct Conversation {
    /// The longest line that is read.
    limit: usize,
    versions: Versions,
    listen_end: ListenEnd,
    /// The bytes of the client after its last line.
    rest: Vec<u8>,
    has_ended: bool,
    tallies: BTreeMap<Id, Tally>,
    /// How many errors without an id may still come.
    nameless: u64,
    /// How many handshakes have no answer yet, by id.
    handshakes: BTreeMap<Id, u32>,
    agreed: Option<Version>,
    was_initialized: bool,
    listens: BTreeMap<Id, Listen>,
}

/// How many answers an id may and must get.
#[derive(Debug, Default)]
struct Tally {
    owed: i64,
    optional: i64,
    seen: i64,
}

#[derive(Debug, Default)]
struct Listen {
    /// What was wanted and not acknowledged yet.
    wanted: Vec<Value>,
    granted: Option<Value>,
    /// Its end was announced.
    is_ending: bool,
    /// Its end was announced, or a question of the server under the same id was cancelled: both ends choose their ids by themselves.
    may_be_ending: bool,
}

/// A message of a client that others may want to know.
#[derive(Debug)]
pub(crate) enum Said {
    /// It cancels this request.
    Cancel(Id),
    /// The same, if the server reads it: it is in a batch, and it is not known whether the version allows one.
    MaybeCancel(Id),
    Request {
        id: Id,
        method: String,
        params: Value,
    },
}

impl Conversation {
    pub(crate) fn new(config: &Config) -> Conversation {
        Conversation {
            limit: config.limits.message_bytes,
            versions: config.versions,
            listen_end: config.listen_end,
            rest: Vec::new(),
            has_ended: false,
            tallies: BTreeMap::new(),
            nameless: 0,
            handshakes: BTreeMap::new(),
            agreed: None,
            was_initialized: false,
            listens: BTreeMap::new(),
        }
    }

    /// The client is in the middle of a line.
    pub(crate) fn is_mid_line(&self) -> bool {
        !self.rest.is_empty()
    }

    /// The input of the client has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// A legacy client began a handshake.
    pub(crate) fn had_handshake(&self) -> bool {
        self.agreed.is_some() || !self.handshakes.is_empty()
    }

    /// The handshake of a legacy client is over, for both ends.
    pub(crate) fn is_initialized(&self) -> bool {
        self.agreed.is_some() && self.was_initialized
    }

    /// A legacy client began a handshake, and said that it is over.
    pub(crate) fn may_be_initialized(&self) -> bool {
        self.had_handshake() && self.was_initialized
    }

    pub(crate) fn listens(&self) -> usize {
        self.listens.len()
    }

    /// Sees what may still come.
    pub(crate) fn look(&self, view: &mut StateView) {
        view.plain((
            self.has_ended,
            self.was_initialized,
            self.agreed,
            &self.rest,
        ));
        for (id, tally) in self.tallies.iter().filter(|(_, tally)| tally.most() > 0) {
            view.text(format!("\"id\":{id}").as_bytes());
            view.plain((tally.owed - tally.seen, tally.optional));
            view.plain(self.handshakes.get(id));
        }
        for (id, listen) in &self.listens {
            view.text(format!("\"id\":{id}").as_bytes());
            view.plain((listen.wanted.len(), listen.granted.is_some()));
            view.plain((listen.is_ending, listen.may_be_ending));
        }
    }

    /// A request that must still be answered. The ends of watches do not count.
    pub(crate) fn owes(&self) -> Option<&Id> {
        let owed = self.tallies.iter().find(|(of, tally)| {
            let listen = self.listens.get(of);
            let is_open = listen.is_some_and(|listen| listen.granted.is_some());
            tally.owed - tally.seen > i64::from(is_open)
        });
        owed.map(|(of, _)| of)
    }

    /// How many replies may still come, the ends of watches included.
    pub(crate) fn possible(&self) -> i64 {
        self.tallies.values().map(Tally::most).sum()
    }

    /// The client has left: what is not answered yet may stay so.
    pub(crate) fn release(&mut self) {
        self.tallies.values_mut().for_each(Tally::release);
    }

    /// The server read everything and wrote everything: it owes nothing.
    pub(crate) fn assert_quiet(&self) {
        if let Some(of) = self.owes() {
            panic!("(1) {of} is not answered: {:?}", self.tallies[of]);
        }
    }
}

/// What the client sends.
impl Conversation {
    /// It sends bytes. Returns also how many messages that is.
    pub(crate) fn fed(&mut self, bytes: &[u8]) -> (Vec<Said>, usize) {
        let (mut said, mut messages) = (Vec::new(), 0);
        if self.has_ended {
            return (said, messages);
        }
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            messages += self.line(&line, &mut said);
        }
        (said, messages)
    }

    /// Its input ends. A whole message without the end of its line counts.
    pub(crate) fn ended(&mut self) -> (Vec<Said>, usize) {
        let mut said = Vec::new();
        let line = std::mem::take(&mut self.rest);
        let messages = self.line(&line, &mut said);
        self.has_ended = true;
        (said, messages)
    }

    fn line(&mut self, line: &[u8], said: &mut Vec<Said>) -> usize {
        let mut reader = LineReader::new(self.limit);
        let mut rest = line;
        let read = match reader.next(&mut rest) {
            None => reader.finish(),
            read => read,
        };
        let Some(read) = read else {
            return 0;
        };
        match read {
            // Whether it looks like a reply is left open.
            Line::NotUtf8(_) => self.nameless += 1,
            Line::Oversized(skimmed) => self.useless(skimmed.id, skimmed.is_response),
            Line::Text(text) => match wire::parse(text) {
                Ok(Inbound::One(message)) => self.message(message, true, said),
                Ok(Inbound::Batch(batch)) => {
                    let messages = batch.len();
                    self.batch(batch, said);
                    return messages;
                }
                Err(malformed) => self.useless(malformed.id, malformed.is_response),
                Ok(_) => unreachable!("a kind of text that is not known here"),
            },
            _ => unreachable!("a kind of line that is not known here"),
        }
        1
    }

    fn batch(&mut self, batch: wire::Batch<'_>, said: &mut Vec<Said>) {
        // Only while a handshake is under way the version is not known.
        let is_certain = self.handshakes.is_empty();
        self.nameless += 1;
        if is_certain && !self.agreed.is_some_and(Version::allows_batches) {
            return;
        }
        for element in batch {
            match element {
                Ok(Message::Request { id, method, .. }) if method == "initialize" => {
                    self.tally(&id, is_certain);
                }
                Ok(message) => self.message(message, is_certain, said),
                Err(malformed) if is_certain => self.useless(malformed.id, malformed.is_response),
                Err(malformed) => {
                    self.nameless += 1;
                    if let Some(id) = malformed.id {
                        self.tally(&id, false);
                    }
                }
            }
        }
    }

    /// A line that is no message, but may name an id.
    fn useless(&mut self, id: Option<Id>, is_response: bool) {
        self.nameless += 1;
        if let Some(id) = id.filter(|_| !is_response) {
            // Under an id in use, an answer would be taken for another one.
            let is_in_use = self.tallies.get(&id).is_some_and(|t| t.most() > 0);
            self.tally(&id, !is_in_use);
        }
    }

    fn tally(&mut self, id: &Id, is_owed: bool) {
        let tally = self.tallies.entry(id.clone()).or_default();
        tally.owed += i64::from(is_owed);
        tally.optional += i64::from(!is_owed);
    }

    fn message(&mut self, message: Message<'_>, is_certain: bool, said: &mut Vec<Said>) {
        let read = |json: Option<Json<'_>>| {
            let text = json.map_or("null", Json::as_str);
            serde_json::from_str::<Value>(text).unwrap_or_default()
        };
        match message {
            Message::Notification { method, params } => match &*method {
                "notifications/cancelled" => {
                    let id = id(&read(params)["requestId"]);
                    said.extend(id.map(|id| self.cancelled(id, is_certain)));
                }
                "notifications/initialized" => self.was_initialized = true,
                _ => {}
            },
            Message::Request { id, method, params } => {
                let (method, params) = (String::from(method), read(params));
                self.requested(&id, &method, &params, is_certain);
                said.push(Said::Request { id, method, params });
            }
            Message::Response { .. } => {}
            _ => unreachable!("a kind of message that is not known here"),
        }
    }

    fn requested(&mut self, id: &Id, method: &str, params: &Value, is_certain: bool) {
        if method == "initialize" && self.had_handshake() {
            // It begins anew: what it asked before may be answered or not.
            self.release();
        }
        self.tally(id, is_certain);
        match method {
            "initialize" => *self.handshakes.entry(id.clone()).or_default() += 1,
            "subscriptions/listen" => {
                let listen = self.listens.entry(id.clone()).or_default();
                listen.wanted.push(params["notifications"].clone());
            }
            _ => {}
        }
    }

    fn cancelled(&mut self, id: Id, is_certain: bool) -> Said {
        // A handshake cannot be cancelled, and of several with one id it is not known which one is.
        let is_known = is_certain && !self.handshakes.contains_key(&id);
        if let Some(tally) = self.tallies.get_mut(&id) {
            match tally.most() {
                1 if is_known => tally.owed = tally.seen - tally.optional,
                _ => tally.release(),
            }
        }
        if is_certain {
            self.listens.remove(&id);
        }
        if is_certain {
            Said::Cancel(id)
        } else {
            Said::MaybeCancel(id)
        }
    }
}

/// What the server sends.
impl Conversation {
    /// It sends one message on one line.
    pub(crate) fn written(&mut self, bytes: &[u8]) -> Value {
        let line = bytes.strip_suffix(b"\n").expect("a line");
        let is_broken = line.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
        assert!(!is_broken, "two lines in one");
        let text = std::str::from_utf8(line).expect("UTF-8");
        let message: Value = serde_json::from_str(text).expect("JSON");
        assert_no_duplicates(text);
        assert_eq!(message["jsonrpc"], "2.0", "{text}");
        match message["method"].as_str() {
            None => self.response(&message),
            Some(method) => {
                let params = &message["params"];
                if let Some(tag) = params["_meta"].get(meta::SUBSCRIPTION_ID) {
                    let tag = id(tag).expect("the id of a watch");
                    self.heard_on(&tag, method, params);
                }
            }
        }
        message
    }

    /// It cancels this id. Returns whether that may announce the end of a watch; it does for certain unless it `may_be_question`.
    pub(crate) fn announces_end(&mut self, of: &Id, may_be_question: bool) -> bool {
        let announces = self.listen_end == ListenEnd::CancelledThenResult;
        let listen = self.listens.get_mut(of).filter(|_| announces);
        let listen = listen.filter(|listen| listen.granted.is_some() && !listen.is_ending);
        let is_end = listen.is_some();
        if let Some(listen) = listen {
            listen.is_ending = !may_be_question;
            listen.may_be_ending = may_be_question;
        }
        is_end
    }

    fn response(&mut self, message: &Value) {
        let (result, error) = (message.get("result"), message.get("error"));
        assert_ne!(result.is_some(), error.is_some(), "{message}");
        if let Some(error) = error {
            let is_error = error["code"].is_i64() && error["message"].is_string();
            assert!(is_error, "{message}");
        }
        let Some(of) = message.get("id") else {
            assert!(result.is_none(), "a result for nothing");
            let left = self.nameless.checked_sub(1);
            self.nameless = left.expect("an error for something");
            return;
        };
        let of = id(of).expect("an id");
        let tally = self.tallies.entry(of.clone()).or_default();
        tally.seen += 1;
        let most = tally.most();
        assert!(most >= 0, "(1) {of} is answered more often than asked");
        if let Some(result) = result {
            assert!(result.is_object(), "a result that is no object");
            self.result(&of, result);
        }
        if most == 0 {
            self.handshakes.remove(&of);
        }
    }

    fn result(&mut self, of: &Id, result: &Value) {
        if let Some(tag) = result["_meta"].get(meta::SUBSCRIPTION_ID) {
            assert_eq!(id(tag).as_ref(), Some(of), "another watch ends");
            let listen = self.listens.remove(of);
            let listen = listen.unwrap_or_else(|| panic!("{of} ends after it was over"));
            assert!(listen.granted.is_some(), "{of} ends before it began");
            let announces = self.listen_end == ListenEnd::CancelledThenResult;
            let is_announced = listen.is_ending || (listen.may_be_ending && announces);
            assert_eq!(is_announced, announces, "{of} ends unannounced");
        } else if let Some(version) = result["protocolVersion"].as_str() {
            let version = Version::parse(version).expect("a version");
            assert!(version.era() == Era::Legacy && self.versions.contains(version));
            let handshake = self.handshakes.get_mut(of).expect("a handshake");
            *handshake -= 1;
            if *handshake == 0 {
                self.handshakes.remove(of);
            }
            self.agreed = Some(version);
        }
    }

    fn heard_on(&mut self, tag: &Id, method: &str, params: &Value) {
        let listen = self.listens.get_mut(tag);
        let listen = listen.unwrap_or_else(|| panic!("{method} on {tag}, which is over"));
        if method == "notifications/subscriptions/acknowledged" {
            assert_eq!(listen.granted, None, "{tag} is acknowledged twice");
            let granted = &params["notifications"];
            let mut wanted = listen.wanted.iter();
            let fits = wanted.any(|wanted| is_within(granted, wanted));
            assert!(fits, "{tag}: {granted} of {:?}", listen.wanted);
            listen.granted = Some(granted.clone());
            listen.wanted.clear();
            return;
        }
        let is_ending = listen.is_ending;
        assert!(!is_ending, "{method} on {tag} after its end was announced");
        listen.may_be_ending = false;
        let granted = listen.granted.as_ref();
        let granted = granted.unwrap_or_else(|| panic!("{method} on {tag} before it begins"));
        let may = match method {
            "notifications/prompts/list_changed" => granted["promptsListChanged"] == true,
            "notifications/resources/list_changed" => granted["resourcesListChanged"] == true,
            "notifications/tools/list_changed" => granted["toolsListChanged"] == true,
            "notifications/resources/updated" => {
                let uri = params["uri"].as_str().expect("an address");
                let above = granted["resourceSubscriptions"].as_array();
                let above = above.into_iter().flatten().filter_map(Value::as_str);
                above.into_iter().any(|above| covers(above, uri))
            }
            _ => false,
        };
        assert!(may, "{method} on {tag}, which has {granted}");
    }
}

impl Tally {
    /// What must still come may come or not.
    fn release(&mut self) {
        let open = (self.owed - self.seen).max(0);
        self.owed -= open;
        self.optional += open;
    }

    /// How many answers may still come.
    fn most(&self) -> i64 {
        self.owed + self.optional - self.seen
    }
}

/// Reads an id.
pub(crate) fn id(value: &Value) -> Option<Id> {
    Id::from_json(&value.to_string())
}

/// Whether `below` is `above`, or lies below it.
pub(crate) fn covers(above: &str, below: &str) -> bool {
    let rest = below.strip_prefix(above);
    rest.is_some_and(|rest| rest.is_empty() || above.ends_with('/') || rest.starts_with('/'))
}

/// Whether everything granted was wanted.
fn is_within(granted: &Value, wanted: &Value) -> bool {
    let mut granted = granted.as_object().into_iter().flatten();
    granted.all(|(key, value)| match value {
        Value::Array(uris) => {
            let wanted = wanted[key].as_array();
            let mut uris = uris.iter();
            uris.all(|uri| wanted.is_some_and(|wanted| wanted.contains(uri)))
        }
        value => wanted[key] == *value,
    })
}

/// Neither a message nor its contents have a member twice.
fn assert_no_duplicates(text: &str) {
    let members = Members::read(text).expect("an object");
    let inner =
        ["result", "params", "error"].map(|name| members.member(name).and_then(Members::read));
    for object in inner.iter().flatten().chain([&members]) {
        for (key, _) in &object.0 {
            let many = object.0.iter().filter(|(other, _)| other == key).count();
            let key = String::from_utf8_lossy(key);
            assert_eq!(many, 1, "{key} is there twice: {text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use everlink::server::Offer;

    use super::*;

    /// A server that announces the end of a watch, and a client that watches under the id 1.
    fn watched() -> (Conversation, Id) {
        let mut config = Config::new(Offer::new("conversation", "1.0"), [7; 16]);
        config.listen_end = ListenEnd::CancelledThenResult;
        let mut conversation = Conversation::new(&config);
        let listen = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true}}}"#;
        conversation.fed(format!("{listen}\n").as_bytes());
        says(
            &mut conversation,
            r#""method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":1}}"#,
        );
        (conversation, Id::from_json("1").expect("an id"))
    }

    fn says(conversation: &mut Conversation, what: &str) {
        conversation.written(format!("{{\"jsonrpc\":\"2.0\",{what}}}\n").as_bytes());
    }

    const CHANGED: &str = r#""method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}"#;
    const END: &str = r#""id":1,"result":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}"#;

    #[test]
    fn a_cancelled_question_ends_no_watch_of_the_same_id() {
        let (mut conversation, id) = watched();
        assert!(conversation.announces_end(&id, true));
        says(&mut conversation, CHANGED);
        assert!(conversation.announces_end(&id, false));
        says(&mut conversation, END);
    }

    #[test]
    fn a_possible_announcement_of_an_end_is_enough() {
        let (mut conversation, id) = watched();
        assert!(conversation.announces_end(&id, true));
        says(&mut conversation, END);
    }

    #[test]
    #[should_panic(expected = "after its end was announced")]
    fn nothing_is_sent_on_a_watch_whose_end_was_announced() {
        let (mut conversation, id) = watched();
        assert!(conversation.announces_end(&id, false));
        says(&mut conversation, CHANGED);
    }

    #[test]
    #[should_panic(expected = "ends unannounced")]
    fn a_watch_does_not_end_unannounced() {
        let (mut conversation, _) = watched();
        says(&mut conversation, END);
    }
}
