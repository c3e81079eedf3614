//! What must always hold of the exchanges of a client over HTTP: what each was, and what its driver did to it.
//! Numbers in brackets are those of the rules in the design.

use std::collections::{BTreeMap, BTreeSet};

use everlink::http::{Fields, RequestHead, Verb};
use everlink::{CallId, Epoch, Fault, FaultKind, Input, StreamId};
use serde_json::Value;

use crate::explore::Sight;

/// Where the server of every script is.
pub(crate) const ORIGIN: &str = "https://mcp.example/";

/// As many exchanges may be open beside those of calls: the link's own, and those that have served and linger.
const BESIDE_CALLS: usize = 80;

/// No more of a response is remembered.
const REMEMBERED: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct Exchanges {
    all: BTreeMap<StreamId, Exchange>,
    /// The sessions that servers gave out.
    given: BTreeSet<String>,
    /// Those that they said are over, each with the life in which they did.
    over: BTreeSet<(Epoch, String)>,
}

#[derive(Debug)]
struct Exchange {
    epoch: Epoch,
    call: Option<CallId>,
    wire: Option<i64>,
    session: Option<String>,
    is_open: bool,
    /// It ended, and the link may not have been polled since.
    has_just_ended: bool,
    status: Option<u16>,
    is_json: bool,
    said: Vec<u8>,
    /// The message in it may have been acted on.
    may_have_run: bool,
}

/// What came of the last time that a call was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// It may have run, or be running.
    MayHaveRun,
    /// It was not, or nobody read it.
    NotRun,
    /// Its server wants it again, with something more.
    Wanted,
}

/// What the link does.
impl Exchanges {
    /// It begins one.
    pub(super) fn begin(
        &mut self,
        epoch: Epoch,
        stream: StreamId,
        head: &RequestHead<'_>,
        message: &Value,
        call: Option<CallId>,
    ) {
        assert!(head.target.starts_with(ORIGIN), "to {}", head.target);
        assert_ne!(stream, StreamId::DUPLEX);
        assert!(!self.all.contains_key(&stream), "{stream} again");
        assert_eq!(head.verb == Verb::Post, !message.is_null(), "{message}");
        self.check_fields(epoch, head, message);
        let session = head.fields.get("mcp-session-id").map(String::from);
        self.all.insert(
            stream,
            Exchange {
                epoch,
                call,
                wire: message["id"].as_i64(),
                session,
                is_open: true,
                has_just_ended: false,
                status: None,
                is_json: false,
                said: Vec::new(),
                may_have_run: true,
            },
        );
    }

    fn check_fields(&self, epoch: Epoch, head: &RequestHead<'_>, message: &Value) {
        let field = |name: &str| head.fields.get(name);
        if let Some(session) = field("mcp-session-id") {
            assert!(self.given.contains(session), "a session of nobody");
            let over = (epoch, session.to_owned());
            assert!(!self.over.contains(&over), "in a session that is over");
            assert_ne!(message["method"], "initialize");
            assert_ne!(message["method"], "server/discover");
        }
        match head.verb {
            Verb::Delete => assert!(field("mcp-session-id").is_some()),
            Verb::Get => assert_eq!(field("accept"), Some("text/event-stream")),
            Verb::Post => {
                assert_eq!(field("content-type"), Some("application/json"));
                let accepted = field("accept").expect("both kinds");
                assert!(accepted.contains("json") && accepted.contains("event-stream"));
                let version =
                    &message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
                if let Some(version) = version.as_str() {
                    assert_eq!(field("mcp-protocol-version"), Some(version));
                    assert_eq!(field("mcp-method"), message["method"].as_str());
                }
            }
            verb => panic!("{verb:?} was begun"),
        }
    }

    /// It cuts one short.
    pub(super) fn abort(&mut self, epoch: Epoch, stream: StreamId) {
        let exchange = self.all.get_mut(&stream).expect("one that was begun");
        assert_eq!(exchange.epoch, epoch);
        assert!(
            exchange.is_open || exchange.has_just_ended,
            "{stream} is aborted after its end"
        );
        exchange.is_open = false;
        exchange.has_just_ended = false;
    }

    /// A life is over, with all that was open in it.
    pub(super) fn release(&mut self, epoch: Epoch) {
        for exchange in self.all.values_mut().filter(|e| e.epoch == epoch) {
            exchange.is_open = false;
        }
    }

    /// Nothing is left to poll.
    pub(super) fn drained(
        &mut self,
        is_awaited: impl Fn(CallId) -> bool,
        limits: &everlink::Limits,
    ) {
        let open = self.all.values().filter(|exchange| exchange.is_open);
        let most = limits.calls_in_flight.saturating_add(BESIDE_CALLS);
        assert!(open.count() <= most, "(9) more than {most} are open");
        let mut held = 0;
        for exchange in self.all.values_mut() {
            exchange.has_just_ended = false;
            let is_held = exchange.is_open
                && exchange.is_json
                && exchange.said.len() <= limits.message_bytes
                && exchange.call.is_some_and(&is_awaited);
            held += if is_held { exchange.said.len() } else { 0 };
        }
        assert!(held <= limits.unfinished_bytes, "(9) {held} bytes are held");
    }
}

/// What the driver tells.
impl Exchanges {
    /// Something is about to be told of an exchange.
    pub(super) fn hear(&mut self, input: &Input<'_>, is_heard: impl Fn(CallId) -> bool) {
        let exchange = input.stream().and_then(|stream| self.all.get_mut(&stream));
        let Some(exchange) = exchange.filter(|exchange| exchange.is_open) else {
            return;
        };
        match input {
            Input::Response { head, .. } if head.status >= 200 && exchange.status.is_none() => {
                exchange.begin_response(head.status, &head.fields);
                let session = head.fields.get("mcp-session-id");
                self.given.extend(session.map(String::from));
            }
            Input::Bytes { bytes, .. } if exchange.status.is_some() => {
                let room = REMEMBERED.saturating_sub(exchange.said.len());
                exchange.said.extend(bytes.iter().take(room));
            }
            Input::End { faults, .. } => {
                exchange.is_open = false;
                exchange.has_just_ended = true;
                if exchange.status.is_none() && says_that_nobody_is_there(faults) {
                    exchange.may_have_run = false;
                }
                // What nobody waits for any more need not be looked at.
                let is_heard = exchange.call.is_some_and(is_heard);
                let is_over = exchange.status == Some(404) && is_heard;
                let session = exchange.session.clone().filter(|_| is_over);
                let epoch = exchange.epoch;
                self.over.extend(session.map(|session| (epoch, session)));
            }
            _ => {}
        }
    }
}

/// What is known of them.
impl Exchanges {
    /// Looks at those that go on.
    pub(super) fn look(&self, sight: &mut Sight) {
        for (stream, exchange) in self.all.iter().filter(|(_, e)| e.is_open) {
            sight.stream(*stream);
            exchange.call.into_iter().for_each(|call| sight.call(call));
            sight.plain((exchange.status, exchange.is_json));
            sight.plain((
                &exchange.session,
                exchange.may_have_run,
                exchange.said.len(),
            ));
            exchange.wire.into_iter().for_each(|wire| sight.wire(wire));
        }
    }

    pub(super) fn is_open(&self, stream: StreamId) -> bool {
        self.all
            .get(&stream)
            .is_some_and(|exchange| exchange.is_open)
    }

    /// Whether a server answers on it that a message was good enough for, whatever the answer.
    pub(super) fn is_good(&self, stream: StreamId) -> bool {
        let exchange = self.all.get(&stream).filter(|exchange| exchange.is_open);
        exchange.is_some_and(|e| e.status == Some(200) && e.is_json && e.call.is_some())
    }

    /// What came of the last time that this call was sent.
    pub(super) fn before(&self, call: CallId) -> Before {
        let last = self.all.values().rfind(|e| e.call == Some(call));
        match last {
            Some(exchange) if !self.was_read(exchange) => Before::NotRun,
            Some(exchange) if self.is_told(exchange, "input_required") => Before::Wanted,
            Some(_) => Before::MayHaveRun,
            None => Before::NotRun,
        }
    }

    /// Whether a request with this id may have been read.
    pub(super) fn may_have_been_read(&self, wire: i64) -> bool {
        let mut all = self.all.values().filter(|e| e.wire == Some(wire));
        all.any(|exchange| exchange.may_have_run)
    }

    /// Whether this call may have run at all.
    pub(super) fn may_have_run(&self, call: CallId) -> bool {
        let mut all = self.all.values().filter(|e| e.call == Some(call));
        all.any(|exchange| self.was_read(exchange))
    }

    /// Whether the request in it may have been acted on. It was not where its fields are not what the tool wants to see.
    fn was_read(&self, exchange: &Exchange) -> bool {
        exchange.may_have_run && !self.is_told(exchange, "-32020")
    }

    /// Whether this was said in a reply to what is in it, wherever that was.
    fn is_told(&self, of: &Exchange, word: &str) -> bool {
        let name = of
            .wire
            .map_or(String::new(), |wire| format!(r#""id":{wire},"#));
        let mut all = self.all.values().filter(|e| e.epoch == of.epoch);
        all.any(|exchange| exchange.says(&name) && exchange.says(word))
    }
}

impl Exchange {
    fn begin_response(&mut self, status: u16, fields: &Fields<'_>) {
        self.status = Some(status);
        let kind = fields.get("content-type").unwrap_or("application/json");
        self.is_json = status < 300 && kind.starts_with("application/json");
        // A server that turns a message away, or is too busy for it, has not acted on it.
        if matches!(status, 300..=499 | 503) {
            self.may_have_run = false;
        }
    }

    fn says(&self, word: &str) -> bool {
        String::from_utf8_lossy(&self.said).contains(word)
    }
}

fn says_that_nobody_is_there(faults: &[Fault]) -> bool {
    let is_nobody =
        |fault: &Fault| matches!(fault.kind(), FaultKind::NameNotFound | FaultKind::Refused);
    !faults.is_empty() && faults.iter().all(is_nobody)
}
