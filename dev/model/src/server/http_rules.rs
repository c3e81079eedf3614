//! The rules for a server over HTTP, seen from outside: from its inputs and its outputs. Performs nothing.

use std::collections::BTreeMap;

use everlink::http::{Fields, RequestHead, Verb};
use everlink::internal::wire::{SseEvent, SseReader};
use everlink::server::{Config, Event, State};
use everlink::{Epoch, Output, RequestId, Server, StreamId};
use serde_json::Value;

use super::http_clients::{USERS, giver};
use crate::explore::StateView;
use crate::ledger::Ledger;

#[derive(Debug)]
pub(super) struct Rules {
    config: Config,
    exchanges: BTreeMap<StreamId, Exchange>,
    /// The client of each request.
    requests: Ledger<RequestId, usize>,
    /// The client of each session, and whether it goes on.
    sessions: BTreeMap<String, (usize, bool)>,
    is_released: bool,
    is_closed: bool,
}

#[derive(Debug)]
struct Exchange {
    who: usize,
    verb: Verb,
    is_modern: bool,
    /// The session that it is in, unless sessions mean nothing there.
    session: Option<String>,
    /// That session is another's, or over.
    is_outside: bool,
    /// The ids of the requests in it that are not answered in it, as they are written.
    asked: Vec<String>,
    /// All of the request was fed.
    is_complete: bool,
    body: Body,
    under_way: usize,
    /// Some of it was read since the server was polled, which may have decided before that to cut it.
    is_just_read: bool,
    end: Option<End>,
}

#[derive(Debug)]
enum Body {
    None,
    Json(Vec<u8>),
    Events(Box<SseReader>),
    /// There is none, or nobody looks at it.
    Empty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// By the server.
    Said,
    /// The client is gone, and the server may not have been polled since.
    JustGone,
    Gone,
}

/// What a client reads.
#[derive(Debug)]
pub(super) enum Read {
    Event(String),
    Message(Value),
    Endpoint(String),
}

impl Rules {
    pub(super) fn new(config: &Config) -> Rules {
        let mut config = config.clone();
        // As the docs of `Limits` say of a zero that would stop everything.
        let limits = &mut config.limits;
        limits.exchanges = limits.exchanges.max(1);
        limits.sessions = limits.sessions.max(1);
        limits.write_window = limits.write_window.max(1);
        Rules {
            config,
            exchanges: BTreeMap::new(),
            requests: Ledger::new(),
            sessions: BTreeMap::new(),
            is_released: false,
            is_closed: false,
        }
    }

    /// What is not over yet.
    pub(super) fn look(&self, view: &mut StateView) {
        for (stream, exchange) in self.exchanges.iter().filter(|(_, e)| e.end.is_none()) {
            view.stream(*stream);
            view.shown(&(exchange.who, exchange.verb, &exchange.session));
            view.plain((exchange.is_modern, exchange.is_outside));
            view.plain((exchange.is_complete, exchange.under_way));
            view.plain(std::mem::discriminant(&exchange.body));
            view.within(giver(exchange.who), |view| {
                let ids = exchange.asked.iter();
                ids.for_each(|id| view.text(format!("\"id\":{id}").as_bytes()));
            });
        }
        for (request, who) in self.requests.open() {
            view.request(request);
            view.plain(who);
        }
        let sessions = self.sessions.iter().filter(|(_, (_, goes_on))| *goes_on);
        // Each client looks at its own.
        view.plain(sessions.count());
        view.plain((self.is_released, self.is_closed));
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The exchanges that go on.
    pub(super) fn open(&self) -> Vec<StreamId> {
        let open = self.exchanges.iter().filter(|(_, e)| e.end.is_none());
        open.map(|(stream, _)| *stream).collect()
    }

    /// Whether nothing can be fed to an exchange but what was read of it.
    pub(super) fn is_over(&self, stream: StreamId) -> bool {
        let exchange = self.exchanges.get(&stream);
        exchange.is_none_or(|exchange| exchange.end.is_some())
    }

    pub(super) fn is_complete(&self, stream: StreamId) -> bool {
        self.exchanges.get(&stream).is_none_or(|e| e.is_complete)
    }

    pub(super) fn complete(&mut self, stream: StreamId) {
        if let Some(exchange) = self.exchanges.get_mut(&stream) {
            exchange.is_complete = true;
        }
    }

    pub(super) fn client_of(&self, stream: StreamId) -> Option<usize> {
        self.exchanges.get(&stream).map(|exchange| exchange.who)
    }

    pub(super) fn under_way(&self, stream: StreamId) -> usize {
        self.exchanges.get(&stream).map_or(0, |e| e.under_way)
    }

    pub(super) fn sent(&mut self, stream: StreamId, len: usize) {
        if let Some(exchange) = self.exchanges.get_mut(&stream) {
            exchange.under_way -= len;
            exchange.is_just_read = true;
        }
    }

    pub(super) fn unread(&self) -> Vec<(StreamId, usize)> {
        let unread = self.exchanges.iter().filter(|(_, e)| e.under_way > 0);
        unread.map(|(stream, e)| (*stream, e.under_way)).collect()
    }

    /// The requests that are open, and their clients.
    pub(super) fn requests(&self) -> Vec<(RequestId, usize)> {
        let open = self.requests.open();
        open.map(|(request, who)| (request, *who)).collect()
    }

    /// How many requests there were, answered or not, of which this holds.
    pub(super) fn count(&self, holds: impl Fn(RequestId) -> bool) -> usize {
        self.requests
            .ids()
            .filter(|request| holds(*request))
            .count()
    }
}

/// The inputs.
impl Rules {
    pub(super) fn begun(&mut self, stream: StreamId, who: usize, head: &RequestHead<'_>) {
        let version = head.fields.get("mcp-protocol-version");
        let is_modern = head.verb == Verb::Post && version == Some("2026-07-28");
        let session = head.fields.get("mcp-session-id");
        let session = session.filter(|_| !is_modern && head.target == "/mcp");
        let standing = session.and_then(|session| self.sessions.get(session));
        let exchange = Exchange {
            who,
            verb: head.verb,
            is_modern,
            session: session.map(str::to_owned),
            is_outside: standing.is_some_and(|(of, goes_on)| *of != who || !goes_on),
            asked: Vec::new(),
            is_complete: false,
            body: Body::None,
            under_way: 0,
            is_just_read: false,
            end: None,
        };
        self.exchanges.insert(stream, exchange);
    }

    /// These are the messages of an exchange, if they are.
    pub(super) fn put(&mut self, stream: StreamId, body: &[u8]) {
        let Some(exchange) = self.exchanges.get_mut(&stream) else {
            return;
        };
        let Ok(message) = serde_json::from_slice::<Value>(body) else {
            return;
        };
        let all = match message {
            Value::Array(batch) => batch,
            one => vec![one],
        };
        // What is no response is answered if it has an id, be it that it is no request either.
        let has = |one: &Value, key: &str| one.get(key).is_some();
        let is_response =
            |one: &Value| !has(one, "method") && (has(one, "result") || has(one, "error"));
        let asked = all.iter().filter(|one| !is_response(one));
        exchange.asked = asked.filter_map(|one| one.get("id")).map(name).collect();
    }

    pub(super) fn gone(&mut self, stream: StreamId) {
        if let Some(exchange) = self.exchanges.get_mut(&stream) {
            exchange.end.get_or_insert(End::JustGone);
            exchange.under_way = 0;
        }
    }

    /// The server is gone, and all that it was at. Another one takes its place.
    pub(super) fn replaced(&mut self) {
        for exchange in self.exchanges.values_mut() {
            exchange.end.get_or_insert(End::Gone);
            exchange.under_way = 0;
        }
        self.requests.clear();
    }

    pub(super) fn answered(&mut self, request: RequestId) {
        self.requests.end(request);
    }
}

/// The outputs.
impl Rules {
    pub(super) fn output(&mut self, output: &Output<Event>, bytes: &[u8]) -> Vec<Read> {
        assert!(!self.is_closed, "{output:?} after the last event");
        match output {
            Output::Abort { epoch, stream } => {
                assert_eq!(*epoch, Epoch::FIRST);
                // What was said to its end is cut, once, where some of it is not read, or was not when the server decided that.
                let was_unread = |e: &Exchange| e.under_way > 0 || e.is_just_read;
                match self.exchanges.get_mut(stream) {
                    Some(e) if e.end == Some(End::Said) && was_unread(e) => e.end = Some(End::Gone),
                    _ => self.ends(*stream),
                }
            }
            Output::Event(event) => self.event(event),
            Output::Finish { epoch, stream } => {
                assert_eq!(*epoch, Epoch::FIRST);
                let exchange = self.going_on(*stream);
                let is_begun = exchange.is_none_or(|e| matches!(e.body, Body::Events(_)));
                assert!(is_begun, "{stream} is finished before its response");
                self.ends(*stream);
            }
            Output::Release { .. } => {
                assert!(!self.is_released, "let go twice");
                self.is_released = true;
            }
            Output::Response {
                epoch,
                stream,
                head,
                len,
                is_whole,
            } => {
                assert_eq!((*epoch, *len), (Epoch::FIRST, bytes.len()));
                self.responds(*stream, head.status, &head.fields, *is_whole);
                let read = self.written(*stream, bytes);
                if *is_whole {
                    self.ends(*stream);
                }
                return read;
            }
            Output::Write { epoch, stream, len } => {
                assert_eq!((*epoch, *len), (Epoch::FIRST, bytes.len()));
                assert!(*len > 0, "nothing is written");
                let exchange = self.going_on(*stream);
                let is_stream = exchange.is_none_or(|e| matches!(e.body, Body::Events(_)));
                assert!(is_stream, "a body without a response");
                return self.written(*stream, bytes);
            }
            Output::Store(_) => {}
            other => panic!("{other:?} means nothing for a server over HTTP"),
        }
        Vec::new()
    }

    /// An exchange about which something may be said; nothing if its client left just now.
    fn going_on(&mut self, stream: StreamId) -> Option<&mut Exchange> {
        let exchange = self.exchanges.get_mut(&stream).expect("one that was begun");
        match exchange.end {
            None => Some(exchange),
            Some(End::JustGone) => None,
            Some(end) => panic!("something for {stream}, which is over: {end:?}"),
        }
    }

    fn ends(&mut self, stream: StreamId) {
        if let Some(exchange) = self.going_on(stream) {
            exchange.end = Some(End::Said);
            if let Body::Json(text) = &exchange.body {
                let message: Result<Value, _> = serde_json::from_slice(text);
                assert!(message.is_ok(), "a body that is no JSON");
            }
        }
    }

    fn responds(&mut self, stream: StreamId, status: u16, fields: &Fields<'_>, is_whole: bool) {
        let Some(exchange) = self.going_on(stream) else {
            return;
        };
        let is_first = matches!(exchange.body, Body::None);
        assert!(is_first, "{stream} has a second response");
        assert!((200..600).contains(&status), "status {status}");
        let (who, verb) = (exchange.who, exchange.verb);
        let begins = fields.get("mcp-session-id").map(str::to_owned);
        let is_refused = status >= 400;
        let may_be = !exchange.is_outside || is_refused || begins.is_some();
        assert!(may_be, "{stream}: the session is another's, or over");
        let ends = exchange.session.clone();
        let ends = ends.filter(|_| verb == Verb::Delete && !is_refused);
        exchange.body = match fields.get("content-type") {
            Some("application/json") => Body::Json(Vec::new()),
            Some("text/event-stream") => Body::Events(SseReader::new(usize::MAX).into()),
            None => Body::Empty,
            Some(kind) => panic!("{stream} is answered with {kind}"),
        };
        let is_stream = matches!(exchange.body, Body::Events(_));
        assert!(is_stream || is_whole, "{stream} is no stream, and goes on");
        assert!(!is_stream || status == 200, "a stream with status {status}");
        if let Some(session) = begins {
            let before = self.sessions.insert(session, (who, true));
            assert!(before.is_none(), "a session begins twice");
        }
        if let Some((_, goes_on)) = ends.and_then(|session| self.sessions.get_mut(&session)) {
            *goes_on = false;
        }
    }

    fn written(&mut self, stream: StreamId, bytes: &[u8]) -> Vec<Read> {
        let window = self.config.limits.write_window;
        let Some(exchange) = self.going_on(stream) else {
            return Vec::new();
        };
        assert!(exchange.under_way < window, "(9) written beyond the window");
        exchange.under_way += bytes.len();
        let mut read = Vec::new();
        match &mut exchange.body {
            Body::Json(text) => {
                text.extend_from_slice(bytes);
                let message: Value = serde_json::from_slice(text).expect("JSON");
                read.push(Read::Message(message));
            }
            Body::Events(reader) => {
                let mut bytes = bytes;
                while let Some(event) = reader.next(&mut bytes) {
                    match event {
                        SseEvent::Message {
                            name: "endpoint",
                            data,
                        } => {
                            read.push(Read::Endpoint(data.to_owned()));
                        }
                        SseEvent::Message { data, .. } => {
                            let message = serde_json::from_str(data).expect("JSON");
                            read.push(Read::Message(message));
                        }
                        SseEvent::Primed | SseEvent::Retry(_) => {}
                        other => panic!("{other:?} is written"),
                    }
                    if let Some(id) = reader.last_id() {
                        read.push(Read::Event(id.to_owned()));
                    }
                }
            }
            Body::Empty | Body::None => assert!(bytes.is_empty(), "a body of no kind"),
        }
        for one in &read {
            if let Read::Message(message) = one {
                exchange.check(stream, message);
            }
        }
        read
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Cancelled { request, .. } => {
                self.requests.end(*request);
            }
            Event::Closed { .. } => {
                assert!(self.is_released, "closed before it was let go");
                self.is_closed = true;
                for (stream, exchange) in &self.exchanges {
                    assert!(exchange.end.is_some(), "closed with {stream} open");
                }
            }
            Event::Request(request) => {
                let user = request.user.as_deref();
                let who = USERS.iter().position(|of| *of == user);
                let who = who.expect("one of the users");
                let params = request.params.as_ref();
                let params = params.map_or(Value::Null, |p| p.parse().expect("JSON"));
                if let Some(said) = params["who"].as_u64() {
                    assert_eq!(said, who as u64, "{} is another's", request.request);
                }
                self.requests.begin(request.request, who);
            }
            _ => {}
        }
    }

    /// Nothing is left to poll.
    pub(super) fn drained(&mut self, server: &Server) {
        for exchange in self.exchanges.values_mut() {
            exchange.is_just_read = false;
            if exchange.end == Some(End::JustGone) {
                exchange.end = Some(End::Gone);
            }
        }
        let limits = &self.config.limits;
        let sessions = server.sessions();
        assert!(sessions <= limits.sessions, "(9) {sessions} sessions");
        let open = self.exchanges.values().filter(|e| e.end.is_none()).count();
        let most = limits.exchanges;
        assert!(open <= most, "(9) {open} exchanges are open");
        assert_eq!(server.state() == State::Closed, self.is_closed);
    }
}

impl Exchange {
    /// What is said is for whom it is said to, and answers what was asked.
    fn check(&mut self, stream: StreamId, message: &Value) {
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        let parts = [
            &message["result"]["who"],
            &message["params"]["who"],
            &message["params"]["data"]["who"],
            &message["error"]["data"]["who"],
        ];
        for whose in parts.into_iter().filter_map(Value::as_u64) {
            let is_its = whose == self.who as u64;
            assert!(is_its, "{stream} is told another's: {message}");
        }
        if message.get("method").is_some() {
            let is_request = message.get("id").is_some();
            assert!(!is_request || !self.is_modern, "asked on a modern stream");
            return;
        }
        let has_one = message.get("result").is_some() != message.get("error").is_some();
        assert!(has_one, "no response: {message}");
        let Some(id) = message.get("id").filter(|id| !id.is_null()).map(name) else {
            return;
        };
        // What is asked in a post is answered there, once; on any other stream it is said what was not heard elsewhere.
        if self.verb == Verb::Post {
            let at = self.asked.iter().position(|asked| *asked == id);
            let at = at.unwrap_or_else(|| panic!("(1) {message} answers nothing, or again"));
            self.asked.swap_remove(at);
        }
    }
}

fn name(id: &Value) -> String {
    // Numbers are alike however they are written.
    match id.as_f64().filter(|number| number.fract() == 0.0) {
        Some(number) if number.abs() < 1e15 => format!("{number}"),
        _ => id.to_string(),
    }
}
