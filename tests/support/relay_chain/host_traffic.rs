//! Records the messages between host and relay, in the order in which the relay read and wrote them, and checks them.
//! A request gets at most one reply, and none after it was cancelled; the host does at most one handshake.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use everlink::Instant;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The only request that stays open: a watch ends with the link.
const LISTEN: &str = "subscriptions/listen";

/// A host that was silent for this long before it closed its input has given up what is open.
const SILENT: Duration = Duration::from_millis(100);

/// The sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Host,
    Relay,
}

#[derive(Debug, Default)]
pub(crate) struct HostTraffic {
    /// All messages, in order.
    pub(super) lines: Vec<(Sender, String)>,
    /// The bytes of the host's unfinished line.
    partial: Vec<u8>,
    /// When the relay read the last bytes.
    last_read: Instant,
    /// The requests of the host, by id.
    requests: BTreeMap<String, Request>,
    /// The id of the request that each progress token belongs to.
    tokens: BTreeMap<String, String>,
    /// The asks of the relay, by id, and whether each is open.
    asks: BTreeMap<String, bool>,
    pub(super) handshakes: u32,
    /// The number of requests, without watches.
    pub(super) request_count: u64,
    pub(super) reply_count: u64,
    pub(super) cancel_count: u64,
}

#[derive(Debug)]
struct Request {
    method: String,
    state: RequestState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestState {
    Answered,
    Cancelled,
    /// It may get a reply, but need not.
    GivenUp,
    Open,
}

/// The members of a message that are checked.
#[derive(Deserialize)]
struct Envelope<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<Params<'a>>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(borrow)]
    request_id: Option<&'a RawValue>,
    #[serde(borrow)]
    progress_token: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<Meta<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    #[serde(borrow)]
    progress_token: Option<&'a RawValue>,
}

impl HostTraffic {
    /// Records bytes that the relay read from the host.
    pub(super) fn record_read(&mut self, now: Instant, bytes: &[u8]) {
        self.last_read = now;
        self.partial.extend_from_slice(bytes);
        while let Some(end) = memchr::memchr(b'\n', &self.partial) {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            let text = String::from_utf8_lossy(&line[..end]).into_owned();
            // A scripted host may write anything, also a batch or text that is no message.
            let batch = serde_json::from_str::<Vec<&RawValue>>(&text);
            let messages = batch.map_or_else(
                |_| vec![&*text],
                |batch| batch.into_iter().map(RawValue::get).collect(),
            );
            for message in messages {
                if let Ok(envelope) = serde_json::from_str(message) {
                    self.record_host_message(&envelope);
                }
            }
            self.lines.push((Sender::Host, text));
        }
    }

    fn record_host_message(&mut self, message: &Envelope<'_>) {
        match (message.method.as_deref(), message.id) {
            (Some(method), Some(id)) => {
                self.request_count += u64::from(method != LISTEN);
                self.handshakes += u32::from(method == "initialize");
                let params = message.params.as_ref();
                let token = params.and_then(|params| params.meta.as_ref()?.progress_token);
                let request = Request {
                    method: method.into(),
                    state: RequestState::Open,
                };
                // The relay refuses a request that reuses the id of an open one; the open one stays.
                if !self.is_open(id.get()) {
                    self.requests.insert(id.get().into(), request);
                    self.tokens
                        .extend(token.map(|token| (token.get().into(), id.get().into())));
                }
            }
            (Some("notifications/cancelled"), None) => {
                let id = message.params.as_ref().and_then(|params| params.request_id);
                let request = id.and_then(|id| self.requests.get_mut(id.get()));
                if let Some(request) = request.filter(|request| request.is_open()) {
                    request.state = RequestState::Cancelled;
                    self.cancel_count += 1;
                }
            }
            (None, Some(id)) => {
                if let Some(is_open) = self.asks.get_mut(id.get()) {
                    *is_open = false;
                }
            }
            (_, _) => {}
        }
    }

    /// Records that the host closed its input.
    pub(super) fn record_end(&mut self, now: Instant) {
        if self.last_read + SILENT > now {
            return;
        }
        for request in self.requests.values_mut() {
            if request.state == RequestState::Open {
                request.state = RequestState::GivenUp;
            }
        }
    }

    /// Records a line that the relay wrote.
    pub(super) fn record_written(&mut self, line: &[u8]) {
        let text = core::str::from_utf8(line).expect("a line is UTF-8");
        let text = text.strip_suffix('\n').expect("a line ends with a newline");
        let line_end = memchr::memchr2(b'\n', b'\r', text.as_bytes());
        assert_eq!(line_end, None, "{text:?} is not one line");
        let message: Envelope<'_> = serde_json::from_str(text).expect("a line is a message");
        assert_eq!(message.jsonrpc, "2.0", "{text}");
        self.record_relay_message(&message, text);
        self.lines.push((Sender::Relay, text.into()));
    }

    fn record_relay_message(&mut self, message: &Envelope<'_>, text: &str) {
        let params = message.params.as_ref();
        match (message.method.as_deref(), message.id) {
            (Some(_), Some(id)) => {
                let known = self.asks.insert(id.get().into(), true);
                assert!(known.is_none(), "the id of an ask is reused: {text}");
            }
            (Some("notifications/cancelled"), None) => {
                let id = params.and_then(|params| params.request_id);
                let id = id.expect("a cancellation names a request").get();
                let is_open = self.asks.insert(id.into(), false);
                assert_eq!(is_open, Some(true), "no open ask to cancel: {text}");
            }
            (Some("notifications/progress"), None) => {
                let token = params.and_then(|params| params.progress_token);
                let token = token.expect("progress has a token").get();
                let request = self.tokens.get(token);
                assert!(
                    request.is_some_and(|id| self.is_open(id)),
                    "progress without an open request: {text}"
                );
            }
            (Some(_), None) => {}
            (None, id) => {
                assert_ne!(message.result.is_some(), message.error.is_some(), "{text}");
                // An error without an id answers a message that cannot be read.
                if let Some(id) = id.filter(|id| id.get() != "null") {
                    self.record_reply(id.get(), text);
                }
            }
        }
    }

    fn record_reply(&mut self, id: &str, text: &str) {
        let request = self.requests.get_mut(id);
        let request = request.unwrap_or_else(|| panic!("a reply without a request: {text}"));
        // The refusal of a request that reuses the id of an open one carries the same id.
        let is_duplicate_refusal = text.contains("another request with this id");
        if !is_duplicate_refusal {
            assert!(request.is_open(), "the request is not open: {text}");
            request.state = RequestState::Answered;
        }
        self.reply_count += u64::from(request.method != LISTEN);
    }

    fn is_open(&self, id: &str) -> bool {
        self.requests.get(id).is_some_and(Request::is_open)
    }

    /// The requests without a reply that were not cancelled, without watches.
    pub(super) fn open(&self) -> Vec<&str> {
        let open = self
            .requests
            .iter()
            .filter(|(_, it)| it.state == RequestState::Open && it.method != LISTEN);
        open.map(|(id, _)| id.as_str()).collect()
    }

    /// All messages of this side, in order.
    pub(super) fn messages_from(&self, sender: Sender) -> impl Iterator<Item = Value> {
        let lines = self.lines.iter().filter(move |(from, _)| *from == sender);
        lines.filter_map(|(_, line)| serde_json::from_str(line).ok())
    }
}

impl Request {
    fn is_open(&self) -> bool {
        matches!(self.state, RequestState::GivenUp | RequestState::Open)
    }
}
