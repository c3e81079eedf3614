//! Exchanges of HTTP: how each begins, what its response means for what it carries, and what follows when there is none.
//! What a stream brings is read in `inbound`; how streams go on is in `streams`, sessions and credentials in `standing`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::errand::{Errand, Found};
use super::event::Event;
use super::failure::{Cause, FailureKind};
use super::frame::Frame;
use super::http::{self, Body, Exchange, Load, Message, Purpose, Text};
use super::inbound::Reply;
use super::{Client, Timer};
use crate::fault::{Fault, FaultKind};
use crate::http::{Fields, ResponseHead, delay, media, names};
use crate::id::{CallId, StreamId};
use crate::io::Output;
use crate::protocol::method::names as methods;
use crate::protocol::{Era, code};
use crate::wire::{self, ErrorObject, Id, Inbound, Payload, SseReader, object};

/// As many bytes of the body of an error are read.
const ERROR_BODY: usize = 64 << 10;

/// As many exchanges may be under way beside those of calls.
const OTHER_EXCHANGES: usize = 64;

/// How they begin.
impl Client {
    /// Whether a message can be sent as an exchange of its own.
    pub(super) fn has_exchange_to_spare(&self) -> bool {
        let most = self.config.limits.calls_in_flight + OTHER_EXCHANGES;
        let web = self.web.as_ref();
        web.is_some_and(|web| web.is_open() && web.len() < most)
    }

    /// Begins an exchange without a message, if the time of one has come.
    pub(super) fn begin_due(&mut self) -> Option<Output<Event>> {
        let (epoch, now) = (self.life.as_ref()?.epoch, self.now);
        let web = self.web.as_mut()?;
        while let Some(stream) = web.next_due() {
            let (given, in_session) = (web.auth.given, web.session.is_some());
            let Some(exchange) = web.get_mut(stream) else {
                continue;
            };
            exchange.begun = Some(now);
            exchange.credentials = given;
            exchange.is_in_session = in_session;
            self.stats.exchanges += 1;
            let head = web.head(web.get(stream)?).into();
            return Some(Output::Request {
                epoch,
                stream,
                head,
                len: 0,
            });
        }
        None
    }

    /// Begins an exchange that carries the message at the end of the buffer.
    pub(super) fn begin_post(&mut self, load: Load, len: usize) -> Option<Output<Event>> {
        let message = self.describe(&load);
        let purpose = match &load {
            Load::Call(id) => {
                let wire = self.calls.call(*id).and_then(|call| call.wire());
                wire.map_or(Purpose::Message, Purpose::Request)
            }
            Load::Frame(frame) => frame.wire().map_or(Purpose::Message, Purpose::Request),
            Load::None => Purpose::Message,
        };
        let web = self.web.as_mut()?;
        let head = web.post(&message).into();
        let is_gate = matches!(load, Load::Frame(Frame::Initialized));
        let mut exchange = Exchange::new(purpose, load);
        exchange.begun = Some(self.now);
        exchange.credentials = web.auth.given;
        exchange.is_in_session = web.session.is_some() && !message.is_introduction;
        let stream = web.add(exchange);
        // Some servers refuse what overtakes the end of the handshake.
        if is_gate {
            web.gate = Some(stream);
        }
        self.stats.exchanges += 1;
        let epoch = self.life.as_ref()?.epoch;
        Some(Output::Request {
            epoch,
            stream,
            head,
            len,
        })
    }

    /// What the fields say of a message. The version is that of the message itself.
    fn describe(&self, load: &Load) -> Message {
        let version = self.voice.version();
        let mut message = Message {
            version,
            method: None,
            name: None,
            params: Vec::new(),
            is_introduction: false,
        };
        match load {
            Load::Call(id) => {
                let Some(call) = self.calls.call(*id) else {
                    return message;
                };
                let params = call.params.as_ref().map(Payload::as_str);
                let text = |key: &str| -> Option<String> {
                    let params = params?;
                    let at = object::member(params, key).ok()??;
                    serde_json::from_str(&params[at]).ok()
                };
                let named_by = call.facts.and_then(|facts| facts.named_by);
                message.name = named_by.and_then(text);
                if version.era() == Era::Modern && call.method == methods::TOOLS_CALL {
                    message.params = self.mirrored_params(message.name.as_deref(), params);
                }
                message.method = Some(call.method.clone());
            }
            Load::Frame(frame) => {
                message.method = frame.method();
                message.is_introduction = matches!(frame, Frame::Initialize(..));
            }
            Load::None => {}
        }
        message
    }

    /// S-XHDR-02, S-XHDR-11
    fn mirrored_params(&self, tool: Option<&str>, params: Option<&str>) -> Vec<(String, String)> {
        let web = self.web.as_ref();
        let mirrored = web.and_then(|web| web.mirrored(tool?));
        let Some((mirrored, params)) = mirrored.zip(params) else {
            return Vec::new();
        };
        let at = object::member(params, "arguments").ok().flatten();
        let arguments = at.and_then(|at| serde_json::from_str(&params[at]).ok());
        mirrored.fields(arguments)
    }
}

/// What responses mean.
impl Client {
    pub(super) fn response(&mut self, stream: StreamId, head: &ResponseHead<'_>) {
        let status = head.status;
        let Some(exchange) = self.exchange_mut(stream) else {
            self.stats.stale_inputs += 1;
            return;
        };
        // What is said before the response is none.
        if status < 200 || exchange.status.is_some() {
            return;
        }
        exchange.status = Some(status);
        // A server that only fails is no sign of life.
        if status < 500 {
            self.heard();
        }
        match status {
            200..=299 => self.accepted(stream, &head.fields),
            300..=399 => self.redirected(stream, status, head.fields.get(names::LOCATION)),
            401 | 403 => self.unauthorized(stream, status, &head.fields),
            _ => {
                let linger = self.linger();
                if let Some(exchange) = self.exchange_mut(stream) {
                    exchange.body = Body::Text(Text::default());
                    exchange.retry_after = delay::retry_after(&head.fields);
                }
                // What it says is wanted, but not for ever.
                self.arm_in(Timer::Exchange(stream), linger);
            }
        }
    }

    /// The server took what was sent.
    fn accepted(&mut self, stream: StreamId, fields: &Fields<'_>) {
        let limit = self.config.limits.message_bytes;
        let is_streamable = self.web.as_ref().is_some_and(|web| web.is_streamable());
        let kind = fields.get(names::CONTENT_TYPE);
        let is_stream = kind.is_some_and(|kind| media::is(kind, "text/event-stream"));
        let is_json = kind.is_none_or(|kind| media::is(kind, "application/json"));
        let is_initialize = self.carries(stream, &Errand::Initialize);
        let Some(exchange) = self.exchange_mut(stream) else {
            return;
        };
        // S-RES-06: one without an id does not take the cursor away.
        let cursor = exchange.thread.cursor.as_deref().unwrap_or("");
        let reader = Body::Events(SseReader::resuming(limit, cursor).into());
        match exchange.purpose {
            Purpose::Request(_) if !is_streamable => {
                self.spend_exchange(stream);
            }
            Purpose::Request(_) => {
                exchange.opens = http::session_id(fields).filter(|_| is_initialize);
                if is_stream {
                    exchange.body = reader;
                } else if is_json {
                    exchange.body = Body::Text(Text::default());
                    let is_empty = matches!(exchange.status, Some(202 | 204 | 205));
                    if is_empty {
                        self.arm_in(Timer::Exchange(stream), self.linger());
                    }
                } else {
                    let why = "the response is neither JSON nor a stream of events";
                    self.unusable(stream, why);
                }
            }
            Purpose::Listen | Purpose::Old | Purpose::Resume(_) if is_stream => {
                exchange.body = reader;
            }
            Purpose::Listen | Purpose::Old | Purpose::Resume(_) => {
                self.abort_exchange(stream);
                if let Some(exchange) = self.take_exchange(stream) {
                    let why = "the response is no stream of events";
                    self.no_stream_for(exchange.purpose, why);
                }
            }
            Purpose::Farewell(_) => self.farewell_said(stream),
            Purpose::Message | Purpose::Spent => {
                self.spend_exchange(stream);
            }
        }
    }

    /// Bytes of a response.
    pub(super) fn exchange_bytes(&mut self, stream: StreamId, bytes: &[u8]) {
        let Some(exchange) = self.exchange_mut(stream) else {
            self.stats.stale_inputs += 1;
            return;
        };
        let is_refused = exchange.is_refused();
        let limit = if is_refused {
            ERROR_BODY
        } else {
            self.heard();
            self.config.limits.message_bytes
        };
        self.stats.bytes_in += bytes.len() as u64;
        let body = self.web.as_mut().and_then(|web| web.take_body(stream));
        match body {
            Some(Body::Text(mut text)) => {
                text.push(bytes, limit);
                self.put_body(stream, Body::Text(text));
            }
            Some(Body::Events(reader)) => self.events(stream, reader, bytes),
            Some(Body::Ignored) | None => {}
        }
        self.check_unfinished(stream);
    }

    pub(super) fn put_body(&mut self, stream: StreamId, body: Body) {
        if let Some(web) = &mut self.web {
            web.put_body(stream, body);
        }
    }

    /// All that has not arrived whole has one bound: what passes it is too large.
    fn check_unfinished(&mut self, stream: StreamId) {
        let held = self.web.as_ref().map_or(0, |web| web.buffered());
        if held <= self.config.limits.unfinished_bytes {
            return;
        }
        self.abort_exchange(stream);
        let Some(exchange) = self.take_exchange(stream) else {
            return;
        };
        let bytes = exchange.body.buffered() as u64;
        match exchange.purpose {
            Purpose::Request(wire) | Purpose::Resume(wire) => {
                self.no_reply(wire, FailureKind::TooLarge { bytes });
            }
            Purpose::Listen => self.stream_failed(exchange),
            Purpose::Old => self.old_stream_ended(&[]),
            Purpose::Farewell(_) | Purpose::Message | Purpose::Spent => {}
        }
    }

    /// Nothing more of a response arrives.
    pub(super) fn exchange_ended(&mut self, stream: StreamId, faults: &[Fault]) {
        let Some(exchange) = self.take_exchange(stream) else {
            self.stats.stale_inputs += 1;
            return;
        };
        let Some(status) = exchange.status else {
            return self.lost_contact(exchange, faults);
        };
        if status >= 300 {
            return self.refused(exchange, status);
        }
        match exchange.purpose {
            Purpose::Request(wire) => match exchange.body {
                Body::Text(_) => self.whole_reply(wire, exchange, faults),
                Body::Events(_) => self.broke_off(wire, exchange.thread),
                Body::Ignored => {}
            },
            Purpose::Resume(wire) => self.broke_off(wire, exchange.thread),
            Purpose::Listen => self.listen_broke_off(exchange),
            Purpose::Old => self.old_stream_ended(faults),
            Purpose::Farewell(_) | Purpose::Message | Purpose::Spent => {}
        }
    }

    /// The whole body of a response that is one text.
    fn whole_reply(&mut self, wire: u64, mut exchange: Exchange, faults: &[Fault]) {
        let Body::Text(text) = core::mem::replace(&mut exchange.body, Body::Ignored) else {
            return;
        };
        if text.is_too_long() {
            let bytes = text.len;
            return self.no_reply(wire, FailureKind::TooLarge { bytes });
        }
        let status = exchange.status.unwrap_or(200);
        if text.bytes.trim_ascii().is_empty() {
            if !faults.is_empty() {
                return self.lose(wire);
            }
            let why = format!("the response has no reply in it (status {status})");
            return self.no_reply(wire, invalid(&why));
        }
        let Ok(read) = core::str::from_utf8(&text.bytes) else {
            return self.no_reply(wire, invalid("the response is not UTF-8"));
        };
        let read = read.strip_prefix('\u{feff}').unwrap_or(read);
        let error = read_error(read).filter(|_| exchange.is_in_session);
        if error.is_some() && self.is_session_loss(status, error.as_ref()) {
            return self.session_lost(exchange);
        }
        match wire::parse(read) {
            Ok(Inbound::One(message)) => {
                self.message_for(Some(wire), exchange.opens.as_deref(), message);
            }
            Ok(Inbound::Batch(batch)) if self.allows_batches() => {
                for message in batch.flatten() {
                    self.message_for(Some(wire), None, message);
                }
            }
            Ok(Inbound::Batch(_)) => {
                let why = "the response is a batch, which the agreed version does not have";
                return self.no_reply(wire, invalid(why));
            }
            Err(_) if !faults.is_empty() => return self.lose(wire),
            Err(malformed) => {
                return self.no_reply(wire, invalid(&format!("{malformed}")));
            }
        }
        self.no_reply(
            wire,
            invalid("the response is not the reply to this request"),
        );
    }

    /// A message on an exchange that carried the request `wire`.
    pub(super) fn message_for(
        &mut self,
        wire: Option<u64>,
        opens: Option<&str>,
        message: wire::Message<'_>,
    ) {
        self.about = wire.and_then(|wire| match self.errands.of_wire(wire) {
            Some(Errand::Call(call)) => Some(*call),
            Some(_) | None => None,
        });
        match message {
            // It can mean nothing but what the exchange is about.
            wire::Message::Response { id: None, outcome } => {
                if let Some(wire) = wire {
                    self.reply_to(wire, outcome);
                }
            }
            wire::Message::Response {
                id: Some(id),
                outcome,
            } => {
                let is_opening = self.errands.get(&id) == Some(&Errand::Initialize);
                if let Some(web) = self.web.as_mut().filter(|_| is_opening) {
                    web.session = opens.map(Into::into);
                }
                self.message(wire::Message::Response {
                    id: Some(id),
                    outcome,
                });
            }
            message @ (wire::Message::Notification { .. } | wire::Message::Request { .. }) => {
                self.message(message);
            }
        }
        self.about = None;
    }

    /// The reply to a request of ours, whichever way it came.
    fn reply_to(&mut self, wire: u64, outcome: Reply<'_>) {
        self.stats.messages_in += 1;
        if let Found::Open(wire, errand) = self.errands.take(&id(wire)) {
            self.replied(wire, errand, outcome);
        }
    }

    /// There is no reply, and it is the server's fault.
    pub(super) fn no_reply(&mut self, wire: u64, kind: FailureKind) {
        let text = format!("{kind}");
        let error = ErrorObject::new(code::INTERNAL_ERROR, text);
        self.broken_reply(&id(wire), kind, error);
    }

    /// A response that is of no use to the request that it answers.
    fn unusable(&mut self, stream: StreamId, why: &str) {
        self.abort_exchange(stream);
        if let Some(wire) = self.take_exchange(stream).and_then(|e| e.wire()) {
            self.no_reply(wire, invalid(why));
        }
    }

    /// The response to a request that the server did not serve (S-HTTP-35).
    fn refused(&mut self, exchange: Exchange, status: u16) {
        let text = match &exchange.body {
            Body::Text(text) => core::str::from_utf8(&text.bytes).unwrap_or(""),
            Body::Events(_) | Body::Ignored => "",
        };
        let error = read_error(text);
        if exchange.is_in_session && self.is_session_loss(status, error.as_ref()) {
            let is_post = matches!(exchange.purpose, Purpose::Message | Purpose::Request(_));
            if is_post {
                return self.session_lost(exchange);
            }
        }
        let is_busy = matches!(status, 429 | 503);
        match exchange.purpose {
            Purpose::Message | Purpose::Request(_) if is_busy && exchange.retry_after.is_some() => {
                self.put_off(exchange, status);
            }
            Purpose::Request(wire) => self.refused_request(wire, status, error),
            Purpose::Listen | Purpose::Resume(_) if status >= 500 || is_busy => {
                self.stream_failed(exchange);
            }
            Purpose::Listen | Purpose::Old | Purpose::Resume(_) => {
                let why = format!("status {status}");
                self.no_stream_for(exchange.purpose, &why);
                // It may have no such stream; or it knows the session no more, which only another message can tell.
                if exchange.is_in_session && status == 404 {
                    self.probe_now();
                }
            }
            Purpose::Message => {
                let what = format!("a message was refused with status {status}");
                self.noise(&what, text.as_bytes());
            }
            Purpose::Farewell(_) => self.bury_if_gone(),
            Purpose::Spent => {}
        }
    }

    fn refused_request(&mut self, wire: u64, status: u16, error: Option<ErrorObject>) {
        match self.errands.of_wire(wire).cloned() {
            None => {}
            Some(Errand::Discover | Errand::Initialize | Errand::Revive) => {
                self.handshake_refused(wire, status, error);
            }
            Some(errand) => match error {
                Some(error) => {
                    self.errands.close(wire);
                    self.replied(wire, errand, Err(error));
                }
                None => {
                    // What is refused for what it is was not run.
                    if let (Errand::Call(call), true) = (&errand, is_unread(status)) {
                        self.calls.send_later(*call, self.now);
                    }
                    self.no_reply(wire, FailureKind::Status { status });
                }
            },
        }
    }

    /// The server is elsewhere. Only another place of the same server is as good.
    fn redirected(&mut self, stream: StreamId, status: u16, location: Option<&str>) {
        let is_for_good = matches!(status, 301 | 308);
        let is_repeatable = is_for_good || matches!(status, 302 | 307);
        let follows = is_repeatable
            && self
                .web
                .as_mut()
                .is_some_and(|web| web.follow(location, is_for_good));
        let Some(exchange) = self.spend_exchange(stream) else {
            return;
        };
        match exchange.purpose {
            Purpose::Message | Purpose::Request(_) if follows => {
                self.say_again(exchange.load);
            }
            Purpose::Listen | Purpose::Old | Purpose::Resume(_) if follows => {
                self.begin_now(Exchange::following(exchange.purpose, exchange.thread));
            }
            Purpose::Request(wire) => self.refused_request(wire, status, None),
            Purpose::Listen | Purpose::Old | Purpose::Resume(_) => {
                self.no_stream_for(exchange.purpose, "it is elsewhere");
            }
            Purpose::Farewell(_) => self.bury_if_gone(),
            Purpose::Message | Purpose::Spent => {}
        }
    }

    /// What was turned away unread is said again.
    pub(super) fn say_again(&mut self, load: Load) {
        match load {
            Load::Call(call) => {
                if let Some(wire) = self.calls.call(call).and_then(|call| call.wire()) {
                    self.errands.close(wire);
                    self.calls.send_later(call, self.now);
                    self.arm_call(call);
                }
            }
            Load::Frame(frame) => self.frames.push_again(frame),
            Load::None => {}
        }
    }
}

/// What follows when there is no response.
impl Client {
    /// The server could not be reached, or cut the connection before it said a word.
    fn lost_contact(&mut self, exchange: Exchange, faults: &[Fault]) {
        match exchange.purpose {
            Purpose::Listen | Purpose::Resume(_) => {
                self.stream_failed(exchange);
                return self.probe_now();
            }
            Purpose::Farewell(_) => return self.bury_if_gone(),
            Purpose::Spent => return,
            Purpose::Message | Purpose::Old | Purpose::Request(_) => {}
        }
        self.note(faults);
        let is_unsent = !faults.is_empty()
            && faults
                .iter()
                .all(|fault| matches!(fault.kind(), FaultKind::NameNotFound | FaultKind::Refused));
        match (exchange.purpose, exchange.load) {
            // Nobody was there to read it.
            (Purpose::Request(wire), Load::Call(call)) if is_unsent => {
                self.errands.close(wire);
                self.calls.send_later(call, self.now);
                self.arm_call(call);
            }
            (Purpose::Request(wire), _) => self.lose(wire),
            (_, _) => {}
        }
        self.wind_down(Cause::Unreachable, self.config.policy.close_grace);
    }

    /// The reply to a request is lost: the response broke off, or cannot be had.
    pub(super) fn lose(&mut self, wire: u64) {
        let Some(errand) = self.errands.close(wire) else {
            return;
        };
        match errand {
            Errand::Call(call) => self.cut_off(call),
            Errand::Page(list) => {
                self.settle_lost_page(list);
                self.catalog.begin_again(list);
            }
            Errand::Listen => self.listen_ended(wire, None),
            Errand::Discover | Errand::Initialize | Errand::Revive => {
                self.down(Cause::Unreachable);
            }
            Errand::LateDiscover | Errand::Probe => {}
            Errand::SetLevel | Errand::Subscribe(_) | Errand::Unsubscribe => {
                let error = ErrorObject::new(code::INTERNAL_ERROR, "the reply was lost");
                self.replied(wire, errand, Err(error));
            }
        }
    }

    /// S-HTTP-22: the reply to a call is lost; whether it ran is not known.
    fn cut_off(&mut self, call: CallId) {
        if self
            .calls
            .requeue(call, self.now, self.config.policy.resends)
        {
            self.stats.requeued += 1;
            self.arm_call(call);
        } else {
            self.fail(call, FailureKind::Cut);
        }
    }

    /// The time of an exchange has come: to begin, or to end.
    pub(super) fn exchange_due(&mut self, stream: StreamId) {
        let Some(web) = &mut self.web else {
            return;
        };
        match web.get(stream) {
            Some(exchange) if exchange.begun.is_none() => {
                if web.auth.is_pending {
                    self.arm_in(Timer::Exchange(stream), self.linger());
                } else {
                    web.begin_soon(stream);
                }
            }
            Some(exchange) => {
                let is_decided = exchange.status.is_some();
                self.abort_exchange(stream);
                if is_decided {
                    self.exchange_ended(stream, &[]);
                } else {
                    self.take_exchange(stream);
                }
            }
            None => {}
        }
    }

    /// A request is not waited for any more: in the modern era that is said by closing its exchange (S-HTTP-25).
    pub(super) fn drop_request(&mut self, wire: u64) {
        let Some(stream) = self.web.as_ref().and_then(|web| web.find(wire)) else {
            return;
        };
        let is_begun = self.web.as_ref().and_then(|web| web.get(stream));
        let is_begun = is_begun.is_some_and(|exchange| exchange.begun.is_some());
        let is_modern = self.voice.version().era() == Era::Modern;
        if is_modern && is_begun {
            self.abort_exchange(stream);
        }
        if is_modern || !is_begun {
            self.take_exchange(stream);
        } else {
            self.spend_exchange(stream);
        }
    }
}

/// The table.
impl Client {
    pub(super) fn exchange_mut(&mut self, stream: StreamId) -> Option<&mut Exchange> {
        let web = self.web.as_mut()?;
        web.get_mut(stream).filter(|e| e.begun.is_some())
    }

    pub(super) fn take_exchange(&mut self, stream: StreamId) -> Option<Exchange> {
        self.timers.disarm(Timer::Exchange(stream));
        let web = self.web.as_mut()?;
        let was_gate = web.gate == Some(stream);
        let taken = web.take(stream);
        if was_gate {
            self.open_gate();
        }
        taken
    }

    /// It has served, and has a while to end by itself.
    pub(super) fn spend_exchange(&mut self, stream: StreamId) -> Option<Exchange> {
        let web = self.web.as_mut()?;
        let spent = web.spend(stream)?;
        let was_gate = web.gate == Some(stream);
        web.is_introduced |= was_gate && spent.is_accepted();
        self.arm_in(Timer::Exchange(stream), self.linger());
        if was_gate {
            self.open_gate();
        }
        Some(spent)
    }

    pub(super) fn abort_exchange(&mut self, stream: StreamId) {
        if let Some(life) = &self.life {
            let epoch = life.epoch;
            self.outbox.push(Output::Abort { epoch, stream });
        }
    }

    /// Begins an exchange without a message.
    pub(super) fn begin_now(&mut self, exchange: Exchange) {
        if let Some(web) = &mut self.web {
            let stream = web.add(exchange);
            web.begin_soon(stream);
        }
    }

    /// The exchange that carries what is for this has so much time left.
    pub(super) fn let_linger(&mut self, errand: &Errand, span: Duration) {
        let wire = self.errands.wire_for(errand);
        let web = self.web.as_ref();
        if let Some(stream) = wire.and_then(|wire| web?.find(wire)) {
            self.arm_in(Timer::Exchange(stream), span);
        }
    }

    pub(super) fn is_awaited(&self, wire: u64) -> bool {
        self.errands.of_wire(wire).is_some()
    }

    /// The end of the handshake was taken, or cannot be: nothing waits for it any more.
    fn open_gate(&mut self) {
        if let Some(web) = &mut self.web {
            web.gate = None;
        }
        self.gate_opened();
    }

    /// Whether an exchange carries the request that is for this.
    fn carries(&self, stream: StreamId, errand: &Errand) -> bool {
        let exchange = self.web.as_ref().and_then(|web| web.get(stream));
        let wire = exchange.and_then(Exchange::wire);
        wire.is_some_and(|wire| self.errands.of_wire(wire) == Some(errand))
    }

    pub(super) fn linger(&self) -> Duration {
        let http = self.config.http.as_ref();
        http.map_or(Duration::ZERO, |http| http.linger)
    }
}

/// Whether a request that is refused with this status was not run.
const fn is_unread(status: u16) -> bool {
    matches!(
        status,
        401 | 403 | 404 | 405 | 406 | 411 | 413 | 414 | 415 | 421 | 429 | 431
    )
}

fn invalid(why: &str) -> FailureKind {
    FailureKind::Invalid { why: why.into() }
}

fn id(wire: u64) -> Id {
    Id::Number(i64::try_from(wire).unwrap_or(i64::MAX))
}

/// The error of JSON-RPC that a body is, if it is one.
fn read_error(text: &str) -> Option<ErrorObject> {
    match wire::parse(text) {
        Ok(Inbound::One(wire::Message::Response {
            outcome: Err(error),
            ..
        })) => Some(error),
        _ => None,
    }
}
