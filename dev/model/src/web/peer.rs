//! A server over HTTP that knows what it was asked and answers whatever it is told to. Keeps no rule itself.

use std::collections::BTreeMap;

use everlink::http::{Fields, ResponseHead, Verb};
use everlink::{FaultKind, StreamId};
use serde_json::{Value, json};

use super::script::Form;
use crate::explore::Sight;
use crate::peer::{Peer, Request, answer};
use crate::script::{Reply, Speech};
use crate::server::PAYLOAD;

/// A part of what comes back, and on which exchange.
pub(super) type Part = (StreamId, What);

#[derive(Clone, Debug)]
pub(super) enum What {
    Head(ResponseHead<'static>),
    Bytes(Vec<u8>),
    End(Vec<FaultKind>),
}

/// The server of one life.
#[derive(Debug, Default)]
pub(super) struct Site {
    /// What it would say on a byte stream.
    peer: Peer,
    open: BTreeMap<StreamId, Asked>,
    /// The stream of the transport of 2024-11-05.
    old: Option<StreamId>,
    sessions: u32,
    events: u32,
}

/// An exchange.
#[derive(Debug)]
pub(super) struct Asked {
    verb: Verb,
    request: Option<Request>,
    pub(super) is_responded: bool,
    pub(super) is_stream: bool,
    is_in_session: bool,
}

impl Asked {
    pub(super) fn awaits_response(&self) -> bool {
        !self.is_responded
    }

    pub(super) fn is_stream(&self) -> bool {
        self.is_stream
    }
}

/// What reaches it.
impl Site {
    pub(super) fn receive(
        &mut self,
        stream: StreamId,
        verb: Verb,
        in_session: bool,
        message: &Value,
    ) {
        let request = message["method"].as_str().zip(message["id"].as_i64());
        if let Some((method, wire)) = request {
            self.peer.receive(wire, method);
        }
        if message["method"] == "notifications/cancelled" {
            let wire = message["params"]["requestId"].as_i64();
            self.peer.forget(wire.expect("the id of a request"));
        }
        self.open.insert(
            stream,
            Asked {
                verb,
                request: request.map(|(method, wire)| Request::new(wire, method)),
                is_responded: false,
                is_stream: false,
                is_in_session: in_session,
            },
        );
    }

    /// An exchange is over.
    pub(super) fn over(&mut self, stream: StreamId) {
        let asked = self.open.remove(&stream);
        if let Some(request) = asked.and_then(|asked| asked.request) {
            self.peer.forget(request.wire);
        }
        self.old = self.old.filter(|old| *old != stream);
    }

    /// One of the exchanges that go on and are as they should be.
    pub(super) fn nth(&self, which: u8, is_fit: impl Fn(&Asked) -> bool) -> Option<StreamId> {
        let open = self.open.iter().filter(|(_, asked)| is_fit(asked));
        let open: Vec<StreamId> = open.map(|(stream, _)| *stream).collect();
        open.get(usize::from(which) % open.len().max(1)).copied()
    }
}

/// What can be seen of it.
impl Site {
    pub(super) fn look(&self, sight: &mut Sight) {
        for (stream, asked) in &self.open {
            sight.stream(*stream);
            let verb = [Verb::Delete, Verb::Get, Verb::Post].map(|verb| verb == asked.verb);
            sight.plain((
                verb,
                asked.is_responded,
                asked.is_stream,
                asked.is_in_session,
            ));
            if let Some(request) = &asked.request {
                sight.wire(request.wire);
                sight.plain(request.method());
            }
        }
        sight.plain((self.old.is_some(), self.sessions % 3));
    }

    /// The place of the oldest exchange of this kind; if there is none, of the first.
    pub(super) fn oldest(&self, is_meant: impl Fn(&Asked) -> bool) -> u8 {
        let oldest = self.open.values().position(is_meant);
        u8::try_from(oldest.unwrap_or_default()).expect("few exchanges")
    }
}

/// What it says.
impl Site {
    /// Good answers to everything that has none yet.
    pub(super) fn serve(&mut self, taste: u8) -> Vec<Part> {
        let unanswered = self.open.iter().filter(|(_, asked)| !asked.is_responded);
        let unanswered: Vec<StreamId> = unanswered.map(|(stream, _)| *stream).collect();
        let mut parts = Vec::new();
        for stream in unanswered {
            self.serve_one(stream, taste, &mut parts);
        }
        parts
    }

    fn serve_one(&mut self, stream: StreamId, taste: u8, parts: &mut Vec<Part>) {
        let asked = &self.open[&stream];
        // It offers something, and speaks the first version.
        let is_old = taste % 32 == 19;
        match (asked.verb, asked.request.clone()) {
            (Verb::Post, Some(request)) => {
                let is_listen = request.method() == "subscriptions/listen";
                if let Some(old) = self.old {
                    let said = answer(&request, Reply::Good(taste));
                    parts.extend(self.whole(stream, 202, Fields::new(), b""));
                    let event = self.event(&said);
                    parts.push((old, What::Bytes(event)));
                } else if is_old {
                    parts.extend(self.whole(stream, 404, Fields::new(), b""));
                } else if is_listen {
                    parts.push(self.head(stream, 200, stream_fields()));
                    let said = self.peer.acknowledgement(request.wire, taste);
                    let event = self.event(&said);
                    parts.push((stream, What::Bytes(event)));
                } else {
                    let form = if taste & 64 == 0 {
                        Form::Json
                    } else {
                        Form::Events(taste)
                    };
                    parts.extend(self.reply(stream, Reply::Good(taste), form, taste, 0));
                }
            }
            (Verb::Get, _) if !asked.is_in_session && is_old => {
                self.old = Some(stream);
                parts.push(self.head(stream, 200, stream_fields()));
                let place = b"event: endpoint\ndata: /messages?id=1\n\n".to_vec();
                parts.push((stream, What::Bytes(place)));
            }
            (Verb::Get, _) if taste & 128 == 0 => {
                parts.push(self.head(stream, 200, stream_fields()));
            }
            (Verb::Get, _) => parts.extend(self.whole(stream, 405, Fields::new(), b"")),
            (Verb::Post, None) => parts.extend(self.whole(stream, 202, Fields::new(), b"")),
            (_, _) => parts.extend(self.whole(stream, 200, Fields::new(), b"")),
        }
    }

    /// A whole response, or as much of it as gets through.
    pub(super) fn reply(
        &mut self,
        stream: StreamId,
        how: Reply,
        form: Form,
        taste: u8,
        cut: u8,
    ) -> Vec<Part> {
        let asked = self.open.get(&stream);
        let request = asked.and_then(|asked| asked.request.clone());
        let said = request.as_ref().map(|request| answer(request, how));
        let text = said.as_ref().map_or(String::new(), Value::to_string);
        let is_first = request.is_some_and(|request| request.method() == "initialize");
        let mut fields = match form {
            Form::Events(_) => stream_fields(),
            Form::Error(_) | Form::Json => Fields::new().and("content-type", "application/json"),
        };
        if is_first && taste & 128 == 0 {
            self.sessions += 1;
            fields.push(
                "Mcp-Session-Id",
                format!("s-{}-{PAYLOAD}", self.sessions % 3),
            );
        }
        let (status, mut body) = match form {
            Form::Error(which) => (status(which, &mut fields), text.into_bytes()),
            Form::Json => (200, text.into_bytes()),
            Form::Events(taste) => (200, self.events(said.as_ref(), taste)),
        };
        if how == Reply::Oversized {
            body.extend([b' '; 5_000]);
        }
        let mut parts = vec![self.head(stream, status, fields)];
        let through = match cut {
            0 => body.len(),
            cut => body.len() * usize::from(cut) / 256,
        };
        if through > 0 {
            parts.push((stream, What::Bytes(body[..through].to_vec())));
        }
        let faults = match cut {
            0 => Vec::new(),
            cut if cut % 2 == 0 => vec![FaultKind::Reset],
            _ => vec![FaultKind::Closed],
        };
        parts.push((stream, What::End(faults)));
        parts
    }

    /// How a response begins, of any kind.
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
            100 => 100,
            101 => 103,
            102 => 202,
            103 => 204,
            104 => 299,
            105 => 999,
            106 => 0,
            _ => status(what, &mut fields),
        };
        self.head(stream, status, fields)
    }

    /// What is said on a stream, as far as that is one.
    pub(super) fn say(&mut self, stream: StreamId, speech: &Speech, limit: usize) -> Vec<u8> {
        let is_stream = self.open.get(&stream).is_some_and(|asked| asked.is_stream);
        let lines = self.peer.say(speech, limit);
        if !is_stream {
            return lines;
        }
        let lines = lines.split_inclusive(|byte| *byte == b'\n');
        let mut events = Vec::new();
        for line in lines {
            self.events += 1;
            if self.events % 3 != 0 {
                events.extend(format!("id: e{}\r\n", self.events).into_bytes());
            }
            events.extend_from_slice(b"data:");
            events.extend_from_slice(line);
            events.push(b'\n');
        }
        events
    }

    fn whole(
        &mut self,
        stream: StreamId,
        status: u16,
        fields: Fields<'static>,
        body: &[u8],
    ) -> Vec<Part> {
        let head = self.head(stream, status, fields);
        let body = (stream, What::Bytes(body.to_vec()));
        vec![head, body, (stream, What::End(Vec::new()))]
    }

    fn head(&mut self, stream: StreamId, status: u16, fields: Fields<'static>) -> Part {
        if let Some(asked) = self.open.get_mut(&stream).filter(|_| status >= 200) {
            asked.is_responded = true;
            let kind = fields.get("content-type").unwrap_or_default();
            asked.is_stream = kind.starts_with("text/event-stream");
        }
        let head = ResponseHead::new(status).with_fields(fields);
        (stream, What::Head(head))
    }

    /// A stream that ends with what is said, if anything is.
    fn events(&mut self, said: Option<&Value>, taste: u8) -> Vec<u8> {
        let mut stream = Vec::new();
        if taste & 1 != 0 {
            self.events += 1;
            stream.extend(format!("id: e{}\ndata:\n\n", self.events).into_bytes());
        }
        if taste & 2 != 0 {
            stream.extend_from_slice(b"retry: 20\n\n");
        }
        if taste & 4 != 0 {
            stream.extend_from_slice(b": still there\n\n");
        }
        if taste & 8 != 0 {
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

/// One of the statuses that mean something, with what belongs to it.
fn status(which: u8, fields: &mut Fields<'static>) -> u16 {
    const STATUSES: [u16; 24] = [
        404, 400, 401, 503, 403, 500, 404, 405, 429, 307, 308, 302, 301, 303, 408, 413, 502, 504,
        406, 415, 421, 425, 501, 401,
    ];
    let status = STATUSES[usize::from(which) % STATUSES.len()];
    match status {
        301..=308 => {
            let places = ["/elsewhere", "https://other.example/mcp", "", "mcp?x"];
            let place = places[usize::from(which / 24) % places.len()];
            fields.push("location", place);
        }
        401 | 403 => {
            let wanted = format!(r#"Bearer scope="{PAYLOAD}""#);
            fields.push("WWW-Authenticate", wanted);
        }
        429 | 503 => {
            let pauses = [
                "1",
                "0",
                "never",
                "86400",
                "Sun, 06 Nov 1994 08:49:37 GMT",
                "Thu, 29 Feb 1900 08:49:37 GMT",
            ];
            let pause = pauses[usize::from(which / 24) % pauses.len()];
            fields.push("Retry-After", pause);
            fields.push("Date", "Sun, 06 Nov 1994 08:49:07 GMT");
        }
        _ => {}
    }
    status
}
