//! The rules that hold at every step of every script. They see everything that passes between a server, its client and
//! its driver.

use std::collections::{BTreeMap, BTreeSet};

use everlink::server::{Event, Server, State};
use everlink::wire::TEXT_ID_LIMIT;
use everlink::{AskId, Output, RequestId};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// The state that the rules need to judge the next step.
#[derive(Default)]
pub(super) struct Rules {
    /// The bytes of the client's unfinished line.
    line: Vec<u8>,
    /// The unanswered requests of the client, by the text of their ids.
    open: BTreeMap<String, Vec<Open>>,
    /// The number of lines that have no usable id and still get an error reply.
    unreadable: usize,
    /// Whether the client has sent `notifications/initialized`.
    is_initialized: bool,
    /// The ids of the server's own requests.
    asked: BTreeSet<String>,
    /// Every request that the application received, and whether it was cancelled.
    requests: BTreeMap<RequestId, bool>,
    /// Every ask of the application, and whether it has its outcome.
    asks: BTreeMap<AskId, bool>,
    state: Told,
    is_released: bool,
}

/// The state of the server according to its events.
#[derive(Default, PartialEq)]
enum Told {
    #[default]
    Serving,
    Draining,
    Closed,
}

/// An unanswered request.
struct Open {
    method: String,
    is_modern: bool,
    token: Option<Value>,
    progress: Option<f64>,
    is_acknowledged: bool,
}

/// # Messages of the client
impl Rules {
    /// Records bytes of the client. Returns the requests that these bytes both begin and cancel: their replies may be
    /// on their way.
    pub(super) fn said(&mut self, bytes: &[u8]) -> Vec<String> {
        let (mut begun, mut later) = (BTreeSet::new(), Vec::new());
        self.line.extend_from_slice(bytes);
        while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
            let rest = self.line.split_off(end + 1);
            let line = core::mem::replace(&mut self.line, rest);
            self.said_line(&line, &mut begun, &mut later);
        }
        later
    }

    /// Records the end of the client's input. The last line needs no line break.
    pub(super) fn said_all(&mut self) {
        let line = core::mem::take(&mut self.line);
        self.said_line(&line, &mut BTreeSet::new(), &mut Vec::new());
    }

    /// Forbids any further message about these requests.
    pub(super) fn cancelled(&mut self, ids: Vec<String>) {
        for id in ids {
            self.cancel(&id);
        }
    }

    fn said_line(&mut self, line: &[u8], begun: &mut BTreeSet<String>, later: &mut Vec<String>) {
        if line.trim_ascii().is_empty() {
            return;
        }
        match serde_json::from_slice(line) {
            Ok(Value::Array(batch)) => {
                self.unreadable += 1;
                for message in &batch {
                    self.said_message(message, begun, later);
                }
            }
            Ok(message) => self.said_message(&message, begun, later),
            Err(_) => self.unreadable += 1,
        }
    }

    fn said_message(
        &mut self,
        message: &Value,
        begun: &mut BTreeSet<String>,
        later: &mut Vec<String>,
    ) {
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let params = &message["params"];
        match message.get("id").and_then(name) {
            Some(_) if is_response(message) => {}
            Some(id) => {
                let meta = &params["_meta"];
                let open = Open {
                    method,
                    is_modern: meta
                        .get("io.modelcontextprotocol/protocolVersion")
                        .is_some(),
                    token: meta.get("progressToken").cloned(),
                    progress: None,
                    is_acknowledged: false,
                };
                begun.insert(id.clone());
                self.open.entry(id).or_default().push(open);
            }
            None if method == "notifications/initialized" => self.is_initialized = true,
            None if method == "notifications/cancelled" => {
                let id = params["requestId"].to_string();
                if begun.contains(&id) {
                    later.push(id);
                } else {
                    self.cancel(&id);
                }
            }
            None if is_notification(message) => {}
            None => self.unreadable += 1,
        }
    }

    /// Marks a request as cancelled. A legacy handshake cannot be cancelled.
    fn cancel(&mut self, id: &str) {
        if let Some(open) = self.open.get_mut(id) {
            open.retain(|open| open.method == "initialize" && !open.is_modern);
        }
    }
}

/// # Messages of the server
impl Rules {
    pub(super) fn wrote(&mut self, message: &Value) {
        let members = message.as_object().expect("a message is an object");
        assert_eq!(message["jsonrpc"], "2.0", "{message} is no message");
        let known = ["jsonrpc", "id", "method", "params", "result", "error"];
        for member in members.keys() {
            assert!(
                known.contains(&member.as_str()),
                "`{member}` is of no message"
            );
        }
        match (members.get("method"), members.get("id")) {
            (Some(Value::String(method)), Some(id)) => self.wrote_request(method, id, message),
            (Some(Value::String(method)), None) => self.wrote_notification(method, message),
            (Some(_), _) => panic!("{message} has a method that is no text"),
            (None, id) => self.wrote_response(id, message),
        }
    }

    fn wrote_response(&mut self, id: Option<&Value>, message: &Value) {
        let (result, error) = (message.get("result"), message.get("error"));
        assert_ne!(
            result.is_some(),
            error.is_some(),
            "{message} has not exactly one of a result and an error"
        );
        if let Some(error) = error {
            assert!(error["code"].is_i64(), "{error} has no integer for a code");
            assert!(error["message"].is_string(), "{error} has no text");
        }
        let Some(id) = id.filter(|id| !id.is_null()) else {
            assert!(error.is_some(), "{message} is the result of nothing");
            assert!(self.unreadable > 0, "{message} answers nothing");
            self.unreadable -= 1;
            return;
        };
        let open = self.open.get_mut(&id.to_string());
        let open = open.filter(|open| !open.is_empty());
        let open = open.unwrap_or_else(|| panic!("{message} answers no request in flight"));
        let open = open.remove(0);
        if let Some(result) = result {
            assert!(
                result.is_object(),
                "{message} has a result that is no object"
            );
            let has_type = result["resultType"].is_string();
            assert!(has_type || !open.is_modern, "{message} has no resultType");
        }
    }

    fn wrote_request(&mut self, method: &str, id: &Value, message: &Value) {
        assert!(name(id).is_some(), "{message} has an id that is none");
        assert!(!method.starts_with("notifications/"), "{message} has an id");
        assert!(
            self.is_initialized || method == "ping",
            "{message} before the handshake was over"
        );
        assert!(self.asked.insert(id.to_string()), "{id} was used before");
        let params = message.get("params");
        assert!(
            params.is_none_or(Value::is_object),
            "{message} has strange parameters"
        );
    }

    fn wrote_notification(&mut self, method: &str, message: &Value) {
        assert!(
            method.starts_with("notifications/"),
            "{message} needs an id"
        );
        let params = &message["params"];
        assert!(
            params.is_null() || params.is_object(),
            "{message} has strange parameters"
        );
        if method == "notifications/progress" {
            self.wrote_progress(params);
        }
        if let Some(id) = params["_meta"].get("io.modelcontextprotocol/subscriptionId") {
            let open = self.open.get_mut(&id.to_string());
            let open = open.and_then(|open| open.first_mut());
            let open = open.unwrap_or_else(|| panic!("{message} is for no watch that is open"));
            assert_eq!(
                open.method, "subscriptions/listen",
                "{message} is for no watch"
            );
            let acknowledges = method == "notifications/subscriptions/acknowledged";
            assert_ne!(
                open.is_acknowledged, acknowledges,
                "{message}: a watch is acknowledged first, and once"
            );
            open.is_acknowledged = true;
        }
    }

    fn wrote_progress(&mut self, params: &Value) {
        let token = params.get("progressToken").expect("a progress has a token");
        let progress = params["progress"].as_f64().expect("a progress is a number");
        let open = self.open.values_mut().flatten();
        let open = open
            .filter(|open| open.token.as_ref() == Some(token))
            .last();
        let open = open.unwrap_or_else(|| panic!("{params} is of no request in flight"));
        assert!(
            open.progress.is_none_or(|last| last < progress),
            "{params} does not grow"
        );
        open.progress = Some(progress);
    }
}

/// # Application and driver
impl Rules {
    /// Records an ask of the application.
    pub(super) fn asked(&mut self, ask: AskId) {
        let known = self.asks.insert(ask, false);
        assert!(known.is_none(), "{ask} was given out twice");
    }

    pub(super) fn output(&mut self, output: &Output<Event>) {
        assert!(
            self.state != Told::Closed,
            "{output:?} after the last event there is"
        );
        match output {
            Output::Event(event) => self.event(event),
            Output::Release { .. } => {
                assert!(!self.is_released, "released twice");
                self.is_released = true;
            }
            Output::Write { .. } => assert!(!self.is_released, "{output:?} after its release"),
            _ => panic!("{output:?} means nothing for a server on a byte stream"),
        }
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Request(request) => {
                let known = self.requests.insert(request.request, false);
                assert!(known.is_none(), "{} arrived twice", request.request);
                assert!(
                    self.state == Told::Serving,
                    "{event:?} after the end has come"
                );
            }
            Event::Cancelled { request, .. } => match self.requests.insert(*request, true) {
                Some(false) => {}
                Some(true) => panic!("{event:?} for the second time"),
                None => panic!("{event:?} and never arrived"),
            },
            Event::Answered { ask, .. } => match self.asks.insert(*ask, true) {
                Some(false) => {}
                Some(true) => panic!("{ask} has a second outcome"),
                None => panic!("{ask} has an outcome and was never asked"),
            },
            Event::Draining { .. } => {
                assert!(self.state == Told::Serving, "{event:?} twice");
                self.state = Told::Draining;
            }
            Event::Closed { .. } => self.state = Told::Closed,
            _ => {}
        }
    }

    /// Checks the server after every output was carried out.
    pub(super) fn at_rest(&self, server: &Server) {
        let state = match self.state {
            Told::Serving => State::Serving,
            Told::Draining => State::Draining,
            Told::Closed => State::Closed,
        };
        assert_eq!(server.state(), state, "the state is not what was told");
        let deadline = server.poll_timeout();
        assert_eq!(deadline, server.poll_timeout(), "poll_timeout is not pure");
        if self.state == Told::Closed {
            assert_eq!(deadline, None, "something is due after the end");
            assert!(self.is_released, "closed with a transport in hand");
            assert_eq!(server.requests(), 0, "closed with requests in hand");
            for (ask, has_outcome) in &self.asks {
                assert!(has_outcome, "{ask} has no outcome and never will");
            }
        }
    }
}

/// Accepts any JSON without duplicate member names. Receivers disagree on which of two equal members counts.
pub(super) struct Unambiguous;

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Unambiguous, D::Error> {
        from.deserialize_any(Unambiguous)
    }
}

impl<'de> Visitor<'de> for Unambiguous {
    type Value = Unambiguous;

    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unambiguous, A::Error> {
        let mut seen = BTreeSet::new();
        while let Some((key, _)) = map.next_entry::<String, Unambiguous>()? {
            if let Some(key) = seen.replace(key) {
                return Err(A::Error::custom(format!("`{key}` stands there twice")));
            }
        }
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Unambiguous, A::Error> {
        while items.next_element::<Unambiguous>()?.is_some() {}
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Unambiguous, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Unambiguous, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Unambiguous, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Unambiguous, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Unambiguous, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Unambiguous, E> {
        Ok(self)
    }
}

/// Returns an id as a reply repeats it, if a reply can. A number without a fraction counts as an integer, however it
/// is written.
#[allow(clippy::cast_possible_truncation, reason = "it has no fraction")]
fn name(id: &Value) -> Option<String> {
    match id {
        Value::Number(number) if number.is_f64() => number
            .as_f64()
            .filter(|number| number.fract() == 0.0 && number.abs() < 1e15)
            .map(|number| (number as i64).to_string()),
        Value::String(text) if text.len() > TEXT_ID_LIMIT => None,
        Value::Number(_) | Value::String(_) => Some(id.to_string()),
        _ => None,
    }
}

/// Whether the message is a notification and gets no reply (S-RPC-15).
fn is_notification(message: &Value) -> bool {
    let is_named = message["jsonrpc"] == "2.0" && message["method"].is_string();
    is_named && message.get("id").is_none()
}

fn is_response(message: &Value) -> bool {
    let has_outcome = message.get("result").is_some() || message.get("error").is_some();
    has_outcome && message.get("method").is_none()
}
