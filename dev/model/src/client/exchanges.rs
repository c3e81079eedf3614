//! The rules for the exchanges of a client over HTTP: what each was, and what its driver did to it.
//! Numbers in brackets are those of the rules in `rules`.

use std::collections::{BTreeMap, BTreeSet};

use everlink::http::{RequestHead, ResponseHead, Verb};
use everlink::{CallId, Epoch, Fault, FaultKind, Input, Limits, StreamId};
use serde_json::Value;

use crate::explore::StateView;

/// Where the server of every script is.
pub(crate) const ORIGIN: &str = "https://mcp.example/";

/// As many exchanges may be open beside those of calls: the link's own, and those that are done and linger.
const BESIDE_CALLS: usize = 80;

/// No more of a response is remembered.
const REMEMBERED: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct Exchanges {
    all: BTreeMap<StreamId, Exchange>,
    /// The sessions that servers gave out.
    given: BTreeSet<String>,
    /// Those that they said are over, each with the epoch in which they did.
    over: BTreeSet<(Epoch, String)>,
}

#[derive(Debug)]
struct Exchange {
    epoch: Epoch,
    call: Option<CallId>,
    id: Option<i64>,
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

/// What became of a call when it was sent last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastTime {
    MayHaveRun,
    /// It was not sent, or not read.
    NotRun,
    /// Its server wants it again, with something more.
    Wanted,
}

/// What the link does.
impl Exchanges {
    pub(super) fn begin(
        &mut self,
        (epoch, stream): (Epoch, StreamId),
        head: &RequestHead<'_>,
        message: &Value,
        call: Option<CallId>,
    ) {
        assert!(head.target.starts_with(ORIGIN), "to {}", head.target);
        assert_ne!(stream, StreamId::DUPLEX);
        assert_eq!(head.verb == Verb::Post, !message.is_null(), "{message}");
        self.check_fields(epoch, head, message);
        let exchange = Exchange {
            epoch,
            call,
            // An answer to the server has an id of the server.
            id: message.get("method").and(message["id"].as_i64()),
            session: head.fields.get("mcp-session-id").map(String::from),
            is_open: true,
            has_just_ended: false,
            status: None,
            is_json: false,
            said: Vec::new(),
            may_have_run: true,
        };
        let before = self.all.insert(stream, exchange);
        assert!(before.is_none(), "{stream} again");
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
                let meta = &message["params"]["_meta"];
                let version = meta["io.modelcontextprotocol/protocolVersion"].as_str();
                if version.is_some() {
                    assert_eq!(field("mcp-protocol-version"), version);
                    assert_eq!(field("mcp-method"), message["method"].as_str());
                }
            }
            verb => panic!("{verb:?} was begun"),
        }
    }

    pub(super) fn abort(&mut self, epoch: Epoch, stream: StreamId) {
        let exchange = self.all.get_mut(&stream).expect("one that was begun");
        assert_eq!(exchange.epoch, epoch);
        let may_be = exchange.is_open || exchange.has_just_ended;
        assert!(may_be, "{stream} is aborted after its end");
        (exchange.is_open, exchange.has_just_ended) = (false, false);
    }

    /// An epoch is over, with all that was open in it.
    pub(super) fn release(&mut self, epoch: Epoch) {
        for exchange in self.all.values_mut().filter(|e| e.epoch == epoch) {
            exchange.is_open = false;
        }
    }

    pub(super) fn drained(&mut self, is_awaited: impl Fn(CallId) -> bool, limits: &Limits) {
        let open = self.all.values().filter(|exchange| exchange.is_open);
        let most = limits.calls_in_flight.saturating_add(BESIDE_CALLS);
        assert!(open.count() <= most, "(9) more than {most} are open");
        let mut held = 0;
        for exchange in self.all.values_mut() {
            exchange.has_just_ended = false;
            let fits = exchange.said.len() <= limits.message_bytes;
            let is_body = exchange.is_open && exchange.is_json && fits;
            if is_body && exchange.call.is_some_and(&is_awaited) {
                held += exchange.said.len();
            }
        }
        assert!(held <= limits.unfinished_bytes, "(9) {held} bytes are held");
    }
}

/// What the driver reports, and what is known then.
impl Exchanges {
    pub(super) fn hear(&mut self, input: &Input<'_>, is_heard: impl Fn(CallId) -> bool) {
        let exchange = input.stream().and_then(|stream| self.all.get_mut(&stream));
        let Some(exchange) = exchange.filter(|exchange| exchange.is_open) else {
            return;
        };
        match input {
            Input::Response { head, .. } if head.status >= 200 && exchange.status.is_none() => {
                exchange.respond(head);
                let session = head.fields.get("mcp-session-id");
                self.given.extend(session.map(String::from));
            }
            Input::Bytes { bytes, .. } if exchange.status.is_some() => {
                let room = REMEMBERED.saturating_sub(exchange.said.len());
                exchange.said.extend(bytes.iter().take(room));
            }
            Input::End { faults, .. } => {
                (exchange.is_open, exchange.has_just_ended) = (false, true);
                if exchange.status.is_none() && say_that_nobody_is_there(faults) {
                    exchange.may_have_run = false;
                }
                // An answer that nobody awaits any more need not be looked at.
                let is_over = exchange.status == Some(404) && exchange.call.is_some_and(is_heard);
                let session = exchange.session.clone().filter(|_| is_over);
                let (epoch, id) = (exchange.epoch, exchange.id);
                let session = session.filter(|_| !self.is_answered_elsewhere(epoch, id));
                self.over.extend(session.map(|session| (epoch, session)));
            }
            _ => {}
        }
    }

    /// Whether the server answered a request on the stream of another one, or on its own.
    fn is_answered_elsewhere(&self, epoch: Epoch, id: Option<i64>) -> bool {
        let mut others = self
            .all
            .values()
            .filter(|it| it.epoch == epoch && it.id != id);
        let answer = id.map(|id| format!("\"id\":{id},"));
        answer
            .is_some_and(|text| others.any(|it| String::from_utf8_lossy(&it.said).contains(&text)))
    }

    pub(super) fn look(&self, view: &mut StateView) {
        for (stream, exchange) in self.all.iter().filter(|(_, e)| e.is_open) {
            view.stream(*stream);
            exchange.call.into_iter().for_each(|call| view.call(call));
            view.plain((exchange.status, exchange.is_json, &exchange.session));
            view.plain((exchange.may_have_run, exchange.said.len()));
            exchange.id.into_iter().for_each(|id| view.wire(id));
        }
    }

    pub(super) fn is_open(&self, stream: StreamId) -> bool {
        self.all
            .get(&stream)
            .is_some_and(|exchange| exchange.is_open)
    }

    /// Whether a server that accepted a call answers it on this exchange.
    pub(super) fn is_good(&self, stream: StreamId) -> bool {
        let exchange = self.all.get(&stream).filter(|exchange| exchange.is_open);
        exchange.is_some_and(|e| e.status == Some(200) && e.is_json && e.call.is_some())
    }

    pub(super) fn last_time(&self, call: CallId) -> LastTime {
        let last = self.all.values().rfind(|e| e.call == Some(call));
        match last {
            Some(exchange) if !self.was_read(exchange) => LastTime::NotRun,
            Some(exchange) if self.is_told(exchange, "input_required") => LastTime::Wanted,
            Some(_) => LastTime::MayHaveRun,
            None => LastTime::NotRun,
        }
    }

    /// Whether a request with this id may have been read.
    pub(super) fn may_have_been_read(&self, id: i64) -> bool {
        let mut all = self.all.values().filter(|e| e.id == Some(id));
        all.any(|exchange| exchange.may_have_run)
    }

    pub(super) fn may_have_run(&self, call: CallId) -> bool {
        let mut all = self.all.values().filter(|e| e.call == Some(call));
        all.any(|exchange| self.was_read(exchange))
    }

    /// Whether the request in it may have been acted on. It was not where its fields are not what the tool requires.
    fn was_read(&self, exchange: &Exchange) -> bool {
        exchange.may_have_run && !self.is_told(exchange, "-32020")
    }

    /// Whether a reply to the request in it contains this, on whichever exchange.
    fn is_told(&self, of: &Exchange, text: &str) -> bool {
        let id = of.id.map_or(String::new(), |id| format!(r#""id":{id},"#));
        let mut all = self.all.values().filter(|e| e.epoch == of.epoch);
        all.any(|exchange| exchange.says(&id) && exchange.says(text))
    }
}

impl Exchange {
    fn respond(&mut self, head: &ResponseHead<'_>) {
        self.status = Some(head.status);
        let kind = head.fields.get("content-type");
        let kind = kind.unwrap_or("application/json");
        self.is_json = head.status < 300 && kind.starts_with("application/json");
        // A server that turns a message away, or is too busy for it, has not acted on it.
        self.may_have_run &= !matches!(head.status, 300..=499 | 503);
    }

    fn says(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.said).contains(text)
    }
}

fn say_that_nobody_is_there(faults: &[Fault]) -> bool {
    let absent = [FaultKind::NameNotFound, FaultKind::Refused];
    !faults.is_empty() && faults.iter().all(|fault| absent.contains(&fault.kind()))
}
