//! A server over HTTP that knows what it was asked and answers whatever it is told to. Checks no rule.

use std::collections::BTreeMap;

use everlink::http::{Fields, RequestHead, ResponseHead, Verb};
use everlink::{FaultKind, StreamId};
use serde_json::{Value, json};

use super::http::Form;
use super::scripted_server::{
    Reply, Request, ScriptedServer, ServerMessage, acknowledgement, answer,
};
use crate::explore::StateView;
use crate::script::word;
use crate::world::PAYLOAD;

/// A part of a response.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Head(ResponseHead<'static>),
    Bytes(Vec<u8>),
    End(Vec<FaultKind>),
}

pub(super) type Parts = Vec<Part>;

/// The server of one epoch.
#[derive(Debug, Default)]
pub(super) struct HttpServer {
    /// What it would send on a byte stream.
    server: ScriptedServer,
    open: BTreeMap<StreamId, Exchange>,
    /// The stream of the transport of 2024-11-05.
    sse_stream: Option<StreamId>,
    sessions: u32,
    events: u32,
}

#[derive(Debug)]
pub(super) struct Exchange {
    verb: Verb,
    request: Option<Request>,
    is_responded: bool,
    is_stream: bool,
    is_in_session: bool,
    /// Whether there were other credentials since it began: if these are refused, it is sent again.
    is_outdated: bool,
}

impl Exchange {
    pub(super) fn awaits_response(&self) -> bool {
        !self.is_responded
    }

    pub(super) fn is_stream(&self) -> bool {
        self.is_stream
    }
}

impl HttpServer {
    pub(super) fn receive(&mut self, stream: StreamId, head: &RequestHead<'_>, message: &Value) {
        self.server.receive(message);
        let exchange = Exchange {
            verb: head.verb,
            request: Request::of(message),
            is_responded: false,
            is_stream: false,
            is_in_session: head.fields.has("mcp-session-id"),
            is_outdated: false,
        };
        self.open.insert(stream, exchange);
    }

    /// An exchange is over.
    pub(super) fn over(&mut self, stream: StreamId) {
        let exchange = self.open.remove(&stream);
        if let Some(request) = exchange.and_then(|exchange| exchange.request) {
            self.server.forget(request.id);
        }
        self.sse_stream = self.sse_stream.filter(|open| *open != stream);
    }

    /// The client has other credentials for the exchanges that begin from now on.
    pub(super) fn outdate(&mut self) {
        let open = self.open.values_mut();
        open.for_each(|exchange| exchange.is_outdated = true);
    }

    /// One of the open exchanges that are as they should be.
    pub(super) fn nth(&self, which: u8, is_fit: impl Fn(&Exchange) -> bool) -> Option<StreamId> {
        let open = self.open.iter().filter(|(_, exchange)| is_fit(exchange));
        let open: Vec<StreamId> = open.map(|(stream, _)| *stream).collect();
        crate::script::nth(&open, which)
    }

    /// The oldest of this kind, or the oldest.
    pub(super) fn oldest(&self, is_fit: impl Fn(&Exchange) -> bool) -> Option<StreamId> {
        self.nth(0, is_fit).or_else(|| self.nth(0, |_| true))
    }

    pub(super) fn look(&self, view: &mut StateView) {
        for (stream, exchange) in &self.open {
            view.stream(*stream);
            view.plain([Verb::Delete, Verb::Get, Verb::Post].map(|verb| verb == exchange.verb));
            view.plain((
                exchange.is_responded,
                exchange.is_stream,
                exchange.is_in_session,
                exchange.is_outdated,
            ));
            if let Some(request) = &exchange.request {
                view.wire(request.id);
                view.plain(&request.method);
            }
        }
        view.plain((self.sse_stream.is_some(), self.sessions % 3));
    }

    /// Good answers to everything that has none yet.
    pub(super) fn serve(&mut self, variant: u8) -> Vec<(StreamId, Part)> {
        let unanswered = self.open.iter().filter(|(_, e)| e.awaits_response());
        let unanswered: Vec<StreamId> = unanswered.map(|(stream, _)| *stream).collect();
        let mut parts = Vec::new();
        for stream in unanswered {
            for part in self.serve_one(stream, variant, &mut parts) {
                parts.push((stream, part));
            }
        }
        parts
    }

    /// What is sent on this exchange; on others it may be as well.
    fn serve_one(
        &mut self,
        stream: StreamId,
        variant: u8,
        others: &mut Vec<(StreamId, Part)>,
    ) -> Parts {
        let exchange = &self.open[&stream];
        // It offers something, and speaks the first version.
        let is_old = variant % 32 == 19;
        match (exchange.verb, exchange.request.clone()) {
            (Verb::Post, Some(request)) => {
                if let Some(open) = self.sse_stream {
                    let said = answer(&request, Reply::Good(variant));
                    others.extend(self.empty(stream, 202).map(|part| (stream, part)));
                    others.push((open, Part::Bytes(self.event(&said))));
                    Vec::new()
                } else if is_old {
                    self.empty(stream, 404).into()
                } else if request.method == "subscriptions/listen" {
                    let head = self.head(stream, 200, stream_fields());
                    let said = acknowledgement(request.id, variant);
                    vec![head, Part::Bytes(self.event(&said))]
                } else {
                    let is_json = variant & 64 == 0;
                    let form = if is_json {
                        Form::Json
                    } else {
                        Form::Events(variant)
                    };
                    self.reply(stream, Reply::Good(variant), form, variant, 0)
                }
            }
            (Verb::Get, _) if !exchange.is_in_session && is_old => {
                self.sse_stream = Some(stream);
                let endpoint = b"event: endpoint\ndata: /messages?id=1\n\n".to_vec();
                vec![
                    self.head(stream, 200, stream_fields()),
                    Part::Bytes(endpoint),
                ]
            }
            (Verb::Get, _) if variant & 128 == 0 => vec![self.head(stream, 200, stream_fields())],
            (Verb::Get, _) => self.empty(stream, 405).into(),
            (Verb::Post, None) => self.empty(stream, 202).into(),
            (_, _) => self.empty(stream, 200).into(),
        }
    }

    /// A whole response, or the part of it that arrives.
    pub(super) fn reply(
        &mut self,
        stream: StreamId,
        how: Reply,
        form: Form,
        variant: u8,
        cut: u8,
    ) -> Parts {
        let exchange = self.open.get(&stream);
        let request = exchange.and_then(|exchange| exchange.request.clone());
        let said = request.as_ref().map(|request| answer(request, how));
        let text = said.as_ref().map_or(String::new(), Value::to_string);
        let mut fields = match form {
            Form::Events(_) => stream_fields(),
            Form::Error(_) | Form::Json => Fields::new().and("content-type", "application/json"),
        };
        let is_first = request.is_some_and(|request| request.method == "initialize");
        if is_first && variant & 128 == 0 {
            self.sessions += 1;
            let session = format!("s-{}-{PAYLOAD}", self.sessions % 3);
            fields.push("Mcp-Session-Id", session);
        }
        let (status, mut body) = match form {
            Form::Error(which) => (status(which, &mut fields), text.into_bytes()),
            Form::Json => (200, text.into_bytes()),
            Form::Events(variant) => (200, self.events(said.as_ref(), variant)),
        };
        if how == Reply::Oversized {
            body.extend([b' '; 5_000]);
        }
        let faults = match cut {
            0 => Vec::new(),
            cut if cut % 2 == 0 => vec![FaultKind::Reset],
            _ => vec![FaultKind::Closed],
        };
        if cut > 0 {
            body.truncate(body.len() * usize::from(cut) / 256);
        }
        let head = self.head(stream, status, fields);
        vec![head, Part::Bytes(body), Part::End(faults)]
    }

    /// A head of any kind.
    pub(super) fn any_head(&mut self, stream: StreamId, what: u8, more: u8) -> Part {
        let mut fields = match more % 6 {
            0 | 1 => stream_fields(),
            2 | 3 => Fields::new().and("Content-Type", "application/json; charset=utf-8"),
            4 => Fields::new().and("content-type", "text/html"),
            _ => Fields::new(),
        };
        if more & 8 != 0 {
            let ids = ["s-0", "s-1", "", "not\tone", "é"];
            fields.push("mcp-session-id", ids[usize::from(more / 16) % ids.len()]);
        }
        let status = match what {
            0..100 => 200,
            100..107 => [100, 103, 202, 204, 299, 999, 0][usize::from(what - 100)],
            _ => status(what, &mut fields),
        };
        self.head(stream, status, fields)
    }

    /// A message as bytes: as events if the exchange is a stream of them.
    pub(super) fn send(&mut self, of: StreamId, message: &ServerMessage, limit: usize) -> Vec<u8> {
        let is_stream = self.open.get(&of).is_some_and(Exchange::is_stream);
        let lines = self.server.send(message, limit);
        if !is_stream {
            return lines;
        }
        let mut events = Vec::new();
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            self.events += 1;
            if self.events % 3 != 0 {
                events.extend(format!("id: e{}\r\n", self.events).into_bytes());
            }
            events.extend([b"data:", line, b"\n"].concat());
        }
        events
    }

    fn empty(&mut self, stream: StreamId, status: u16) -> [Part; 2] {
        let head = self.head(stream, status, Fields::new());
        [head, Part::End(Vec::new())]
    }

    fn head(&mut self, stream: StreamId, status: u16, fields: Fields<'static>) -> Part {
        if let Some(exchange) = self.open.get_mut(&stream).filter(|_| status >= 200) {
            exchange.is_responded = true;
            let kind = fields.get("content-type").unwrap_or_default();
            exchange.is_stream = kind.starts_with("text/event-stream");
        }
        Part::Head(ResponseHead::new(status).with_fields(fields))
    }

    /// A stream that ends with what is said, if anything is.
    fn events(&mut self, said: Option<&Value>, variant: u8) -> Vec<u8> {
        let mut stream = Vec::new();
        if variant & 1 != 0 {
            self.events += 1;
            stream.extend(format!("id: e{}\ndata:\n\n", self.events).into_bytes());
        }
        if variant & 2 != 0 {
            stream.extend_from_slice(b"retry: 20\n\n");
        }
        if variant & 4 != 0 {
            stream.extend_from_slice(b": still there\n\n");
        }
        if variant & 8 != 0 {
            let log = json!({"jsonrpc": "2.0", "method": "notifications/message",
                "params": {"level": "error", "data": "words"}});
            stream.extend(self.event(&log));
        }
        if let Some(said) = said {
            stream.extend(self.event(said));
        }
        stream
    }

    fn event(&mut self, said: &Value) -> Vec<u8> {
        self.events += 1;
        format!("id: e{}\ndata: {said}\n\n", self.events).into_bytes()
    }
}

fn stream_fields() -> Fields<'static> {
    Fields::new().and("Content-Type", "text/event-stream")
}

/// One of the statuses that have a meaning, with the fields that belong to it.
fn status(which: u8, fields: &mut Fields<'static>) -> u16 {
    const STATUSES: &str = "404 400 401 503 403 500 404 405 429 307 308 302 \
        301 303 408 413 502 504 406 415 421 425 501 401";
    let status = word(STATUSES, which).parse().expect("a number");
    let nth = usize::from(which / 24);
    match status {
        301..=308 => {
            let places = ["/elsewhere", "https://other.example/mcp", "", "mcp?x"];
            fields.push("location", places[nth % places.len()]);
        }
        401 | 403 => {
            let wanted = format!(r#"Bearer scope="{PAYLOAD}""#);
            fields.push("WWW-Authenticate", wanted);
        }
        429 | 503 => {
            let dates = [
                "Sun, 06 Nov 1994 08:49:37 GMT",
                "Thu, 29 Feb 1900 08:49:37 GMT",
            ];
            let pauses = ["1", "0", "never", "86400", dates[0], dates[1]];
            fields.push("Retry-After", pauses[nth % pauses.len()]);
            fields.push("Date", "Sun, 06 Nov 1994 08:49:07 GMT");
        }
        _ => {}
    }
    status
}
