//! The rules that hold at every step of every script. They see everything that passes between a server, its client and
//! its driver.

use std::collections::{BTreeMap, BTreeSet};

use everlink::internal::wire::TEXT_ID_LIMIT;
use everlink::server::{Event, Server, State};
use everlink::{AskId, Output, RequestId};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// The state that the rules need to judge the next step.
#[derive(Default)]
pub(super) struct Rules {
    /// The bytes of the client's unfinished line.
    line: Vec<u8>,
    /// The unanswered requests of the client, by the text of their ids.
    open: BTreeMap<String, Vec<OpenRequest>>,
    /// The number of lines that have no usable id and still get an error reply.
    unreadable: usize,
    /// Whether the client has sent `notifications/initialized`.
    is_initialized: bool,
    /// The ids of the server's own requests.
    server_request_ids: BTreeSet<String>,
    /// Every request that the application received, and whether it was cancelled.
    requests: BTreeMap<RequestId, bool>,
    /// Every ask of the application, and whether it has its outcome.
    asks: BTreeMap<AskId, bool>,
    state: ReportedState,
    is_released: bool,
}

/// The state of the server according to its events.
#[derive(Default, PartialEq)]
enum ReportedState {
    #[default]
    Serving,
    Draining,
    Closed,
}

/// An unanswered request.
struct OpenRequest {
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
    pub(super) fn client_sent(&mut self, bytes: &[u8]) -> Vec<String> {
        let (mut begun, mut later) = (BTreeSet::new(), Vec::new());
        self.line.extend_from_slice(bytes);
        while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
            let rest = self.line.split_off(end + 1);
            let line = core::mem::replace(&mut self.line, rest);
            self.client_sent_line(&line, &mut begun, &mut later);
        }
        later
    }

    /// Records the end of the client's input. The last line needs no line break.
    pub(super) fn client_input_ended(&mut self) {
        let line = core::mem::take(&mut self.line);
        self.client_sent_line(&line, &mut BTreeSet::new(), &mut Vec::new());
    }

    /// Forbids any further message about these requests.
    pub(super) fn mark_cancelled(&mut self, ids: Vec<String>) {
        for id in ids {
            self.cancel(&id);
        }
    }

    fn client_sent_line(
        &mut self,
        line: &[u8],
        begun: &mut BTreeSet<String>,
        later: &mut Vec<String>,
    ) {
        if line.trim_ascii().is_empty() {
            return;
        }
        match serde_json::from_slice(line) {
            Ok(Value::Array(batch)) => {
                self.unreadable += 1;
                for message in &batch {
                    self.client_sent_message(message, begun, later);
                }
            }
            Ok(message) => self.client_sent_message(&message, begun, later),
            Err(_) => self.unreadable += 1,
        }
    }

    fn client_sent_message(
        &mut self,
        message: &Value,
        begun: &mut BTreeSet<String>,
        later: &mut Vec<String>,
    ) {
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let params = &message["params"];
        match message.get("id").and_then(reply_id) {
            Some(_) if is_response(message) => {}
            Some(id) => {
                let meta = &params["_meta"];
                let open = OpenRequest {
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
    pub(super) fn server_wrote(&mut self, message: &Value) {
        let members = message.as_object().expect("a message is an object");
        assert_eq!(message["jsonrpc"], "2.0", "{message} is no message");
        let known = ["jsonrpc", "id", "method", "params", "result", "error"];
        for member in members.keys() {
            assert!(
                known.contains(&member.as_str()),
                "`{member}` is not a member of any message"
            );
        }
        match (members.get("method"), members.get("id")) {
            (Some(Value::String(method)), Some(id)) => self.wrote_request(method, id, message),
            (Some(Value::String(method)), None) => self.wrote_notification(method, message),
            (Some(_), _) => panic!("{message} has a method that is no string"),
            (None, id) => self.wrote_response(id, message),
        }
    }

    fn wrote_response(&mut self, id: Option<&Value>, message: &Value) {
        let (result, error) = (message.get("result"), message.get("error"));
        assert_ne!(
            result.is_some(),
            error.is_some(),
            "{message} does not have exactly one of a result and an error"
        );
        if let Some(error) = error {
            assert!(error["code"].is_i64(), "{error} has no integer code");
            assert!(error["message"].is_string(), "{error} has no message");
        }
        let Some(id) = id.filter(|id| !id.is_null()) else {
            assert!(error.is_some(), "{message} is a result without an id");
            assert!(self.unreadable > 0, "{message} answers no unreadable line");
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
        assert!(reply_id(id).is_some(), "{message} has an invalid id");
        assert!(
            !method.starts_with("notifications/"),
            "{message} is a notification with an id"
        );
        assert!(
            self.is_initialized || method == "ping",
            "{message} was sent before `initialized`"
        );
        assert!(
            self.server_request_ids.insert(id.to_string()),
            "{id} was used before"
        );
        let params = message.get("params");
        assert!(
            params.is_none_or(Value::is_object),
            "{message} has invalid parameters"
        );
    }

    fn wrote_notification(&mut self, method: &str, message: &Value) {
        assert!(
            method.starts_with("notifications/"),
            "{message} is a request without an id"
        );
        let params = &message["params"];
        assert!(
            params.is_null() || params.is_object(),
            "{message} has invalid parameters"
        );
        if method == "notifications/progress" {
            self.wrote_progress(params);
        }
        if let Some(id) = params["_meta"].get("io.modelcontextprotocol/subscriptionId") {
            let open = self.open.get_mut(&id.to_string());
            let open = open.and_then(|open| open.first_mut());
            let open = open.unwrap_or_else(|| panic!("{message} belongs to no open watch"));
            assert_eq!(
                open.method, "subscriptions/listen",
                "{message} belongs to no watch"
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
        let open = open.unwrap_or_else(|| panic!("{params} belongs to no open request"));
        assert!(
            open.progress.is_none_or(|last| last < progress),
            "{params} does not grow the progress"
        );
        open.progress = Some(progress);
    }
}

/// # Application and driver
impl Rules {
    /// Records an ask of the application.
    pub(super) fn record_ask(&mut self, ask: AskId) {
        let known = self.asks.insert(ask, false);
        assert!(known.is_none(), "{ask} was given out twice");
    }

    pub(super) fn output(&mut self, output: &Output<Event>) {
        assert!(
            self.state != ReportedState::Closed,
            "{output:?} after `Closed`"
        );
        match output {
            Output::Event(event) => self.event(event),
            Output::Release { .. } => {
                assert!(!self.is_released, "released twice");
                self.is_released = true;
            }
            Output::Write { .. } => assert!(
                !self.is_released,
                "{output:?} after the release of the transport"
            ),
            _ => panic!("{output:?} is no output of a server on a byte stream"),
        }
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Request(request) => {
                let known = self.requests.insert(request.request, false);
                assert!(known.is_none(), "{} arrived twice", request.request);
                assert!(
                    self.state == ReportedState::Serving,
                    "{event:?} after the server stopped serving"
                );
            }
            Event::Cancelled { request, .. } => match self.requests.insert(*request, true) {
                Some(false) => {}
                Some(true) => panic!("{event:?} for the second time"),
                None => panic!("{event:?} for an unknown request"),
            },
            Event::Answered { ask, .. } => match self.asks.insert(*ask, true) {
                Some(false) => {}
                Some(true) => panic!("{ask} has a second outcome"),
                None => panic!("{ask} has an outcome and was never asked"),
            },
            Event::Draining { .. } => {
                assert!(self.state == ReportedState::Serving, "{event:?} twice");
                self.state = ReportedState::Draining;
            }
            Event::Closed { .. } => self.state = ReportedState::Closed,
            _ => {}
        }
    }

    /// Checks the server after every output was carried out.
    pub(super) fn check_idle(&self, server: &Server) {
        let state = match self.state {
            ReportedState::Serving => State::Serving,
            ReportedState::Draining => State::Draining,
            ReportedState::Closed => State::Closed,
        };
        assert_eq!(server.state(), state, "the state differs from the events");
        let deadline = server.poll_timeout();
        assert_eq!(deadline, server.poll_timeout(), "poll_timeout is not pure");
        if self.state == ReportedState::Closed {
            assert_eq!(deadline, None, "a deadline is left after `Closed`");
            assert!(
                self.is_released,
                "closed before the release of the transport"
            );
            assert_eq!(server.requests(), 0, "closed with open requests");
            for (ask, has_outcome) in &self.asks {
                assert!(has_outcome, "{ask} has no outcome and never will");
            }
        }
    }
}

/// Accepts any JSON without duplicate member names. Receivers disagree on which of two equal members counts.
pub(super) struct UniqueMembers;

impl<'de> Deserialize<'de> for UniqueMembers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<UniqueMembers, D::Error> {
        from.deserialize_any(UniqueMembers)
    }
}

impl<'de> Visitor<'de> for UniqueMembers {
    type Value = UniqueMembers;

    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UniqueMembers, A::Error> {
        let mut seen = BTreeSet::new();
        while let Some((key, _)) = map.next_entry::<String, UniqueMembers>()? {
            if let Some(key) = seen.replace(key) {
                return Err(A::Error::custom(format!("`{key}` is duplicated")));
            }
        }
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<UniqueMembers, A::Error> {
        while items.next_element::<UniqueMembers>()?.is_some() {}
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<UniqueMembers, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<UniqueMembers, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<UniqueMembers, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<UniqueMembers, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<UniqueMembers, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<UniqueMembers, E> {
        Ok(self)
    }
}

/// Returns an id as a reply repeats it, if a reply can. A number without a fraction counts as an integer, however it
/// is written.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the number has no fraction"
)]
fn reply_id(id: &Value) -> Option<String> {
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
