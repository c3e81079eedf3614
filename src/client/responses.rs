//! Reads HTTP responses, and handles those that bring what was requested. `refusals` handles the others.

use alloc::format;

use super::errand::{Errand, Found, id_of};
use super::failure::FailureKind;
use super::http::{self, Body, Carrier, Exchange, Purpose, Text};
use super::inbound::Reply;
use super::{Client, Timer};
use crate::driver::{CallId, Fault, StreamId};
use crate::http::{Fields, ResponseHead, media, names, retry_after};
use crate::protocol::code;
use crate::util::noise::excerpt;
use crate::wire::{self, ErrorObject, Id, Inbound, SseReader};

/// The number of bytes of an error body that are read.
const ERROR_BODY: usize = 64 << 10;

/// The arrival of responses.
impl Client {
    pub(super) fn response(&mut self, stream: StreamId, head: &ResponseHead<'_>) {
        let status = head.status;
        let Some(exchange) = self.exchange_mut(stream) else {
            self.stats.stale_inputs += 1;
            return;
        };
        // An informational status (1xx) is not the response.
        if status < 200 || exchange.status.is_some() {
            return;
        }
        exchange.status = Some(status);
        let unread = exchange.under_way;
        self.listens_by(stream);
        self.exchange_sent(stream, unread);
        self.timers.disarm(Timer::Exchange(stream));
        // A server error (5xx) is no sign of life.
        if status < 500 && self.speaks_on(stream) {
            self.heard();
        }
        match status {
            200..=299 => self.accepted(stream, &head.fields),
            300..=399 => self.redirected(stream, status, head.fields.get(names::LOCATION)),
            401 | 403 if self.is_demand(stream, status, &head.fields) => {
                self.unauthorized(stream, status, &head.fields);
            }
            _ => {
                if let Some(exchange) = self.exchange_mut(stream) {
                    exchange.body = Body::Text(Text::default());
                    exchange.retry_after = retry_after::retry_after(&head.fields);
                }
                // The body may explain the error, but the wait for it is limited.
                self.arm_in(Timer::Exchange(stream), self.linger());
            }
        }
    }

    /// Whether a 401 or 403 asks for credentials. A 403 without a challenge does not, in response to the `server/discover` probe or to
    /// `notifications/initialized`: servers in use refuse unknown messages like this.
    fn is_demand(&self, stream: StreamId, status: u16, fields: &Fields<'_>) -> bool {
        let exchange = self.web.as_ref().and_then(|web| web.exchanges.get(stream));
        let is_probe = |wire| self.errands.of_wire(wire) == Some(&Errand::Discover);
        let is_plain = exchange.is_some_and(|exchange| {
            let is_probe = exchange.wire().is_some_and(is_probe);
            exchange.ends_handshake() || is_probe && !self.handshake.is_known_modern()
        });
        status == 401 || !is_plain || fields.get(names::WWW_AUTHENTICATE).is_some()
    }

    /// Whether input on this exchange shows that the server itself is alive. With the 2024-11-05 transport, everything from the server comes on one
    /// stream.
    fn speaks_on(&self, stream: StreamId) -> bool {
        let Some(web) = &self.web else {
            return false;
        };
        let exchange = web.exchanges.get(stream);
        !web.is_old() || exchange.is_some_and(|e| matches!(e.purpose, Purpose::Old))
    }

    /// Handles a response with a 2xx status.
    fn accepted(&mut self, stream: StreamId, fields: &Fields<'_>) {
        let limit = self.config.limits.message_bytes;
        let is_old = self.web.as_ref().is_some_and(|web| web.is_old());
        let kind = fields.get(names::CONTENT_TYPE);
        let is_stream = kind.is_some_and(|kind| media::is(kind, "text/event-stream"));
        let is_json = kind.is_none_or(|kind| media::is(kind, "application/json"));
        let linger = self.linger();
        if let Some(web) = self.web.as_mut().filter(|_| is_stream || is_json) {
            web.arrived();
        }
        let Some(exchange) = self.exchange_mut(stream) else {
            return;
        };
        // S-RES-06: an event without an id does not reset the cursor.
        let cursor = exchange.thread.cursor.as_deref().unwrap_or("");
        let reader = Body::Events(SseReader::resuming(limit, cursor).into());
        match exchange.purpose {
            Purpose::Request(_) if is_old => {
                self.spend_exchange(stream);
            }
            Purpose::Request(_) if is_stream => {
                exchange.opens = http::session_id(fields);
                exchange.body = reader;
            }
            // The body of a 202 is rarely a reply, whatever its content type.
            Purpose::Request(_) if is_json || exchange.status == Some(202) => {
                exchange.opens = http::session_id(fields);
                exchange.body = Body::Text(Text::default());
                if matches!(exchange.status, Some(202 | 204 | 205)) {
                    self.arm_in(Timer::Exchange(stream), linger);
                }
            }
            Purpose::Request(wire) => {
                self.abort_exchange(stream);
                self.take_exchange(stream);
                let why = "the response is neither JSON nor a stream of events";
                self.no_reply(wire, invalid(why));
            }
            Purpose::Listen | Purpose::Old | Purpose::Resume(_) if is_stream => {
                exchange.thread.was_had = true;
                exchange.body = reader;
            }
            Purpose::Listen | Purpose::Old | Purpose::Resume(_) => {
                self.abort_exchange(stream);
                if let Some(exchange) = self.take_exchange(stream) {
                    self.stream_turned_down(exchange, "the response is no stream of events");
                }
            }
            Purpose::Farewell(..) => self.farewell_said(stream),
            Purpose::Message | Purpose::Spent => {
                self.spend_exchange(stream);
            }
        }
    }

    /// Handles bytes of a response.
    pub(super) fn exchange_bytes(&mut self, stream: StreamId, bytes: &[u8]) {
        let Some(exchange) = self.exchange_mut(stream) else {
            self.stats.stale_inputs += 1;
            return;
        };
        let is_refused = exchange.is_refused();
        let limit = if is_refused {
            ERROR_BODY
        } else {
            self.config.limits.message_bytes
        };
        if !is_refused && self.speaks_on(stream) {
            self.heard();
        }
        self.stats.bytes_in += bytes.len() as u64;
        let body = self.web.as_mut();
        match body.and_then(|web| web.exchanges.take_body(stream)) {
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
            web.exchanges.put_body(stream, body);
        }
    }

    /// Enforces the common limit for all incomplete responses. The exchange that exceeds it fails as too large.
    fn check_unfinished(&mut self, stream: StreamId) {
        let web = self.web.as_ref();
        let held = web.map_or(0, |web| web.exchanges.buffered());
        if held <= self.config.limits.unfinished_bytes {
            return;
        }
        self.abort_exchange(stream);
        // For a refusal, the status matters more than a long body.
        if self.exchange_mut(stream).is_some_and(|e| e.is_refused()) {
            return self.exchange_ended(stream, &[]);
        }
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
            Purpose::Farewell(..) | Purpose::Message | Purpose::Spent => {}
        }
    }

    /// Handles the end of a response.
    pub(super) fn exchange_ended(&mut self, stream: StreamId, faults: &[Fault]) {
        if self.exchange_mut(stream).is_none() {
            self.stats.stale_inputs += 1;
            return;
        }
        let Some(exchange) = self.take_exchange(stream) else {
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
                Body::Events(_) => self.broke_off(wire, exchange),
                Body::Ignored => {}
            },
            Purpose::Resume(wire) => self.broke_off(wire, exchange),
            Purpose::Listen => self.listen_broke_off(exchange),
            Purpose::Old => self.old_stream_ended(faults),
            Purpose::Farewell(..) => self.bury_if_gone(),
            Purpose::Message | Purpose::Spent => {}
        }
    }
}

/// The content of responses.
impl Client {
    /// Handles the complete body of a response that is a single text.
    fn whole_reply(&mut self, wire: u64, mut exchange: Exchange, faults: &[Fault]) {
        let Body::Text(text) = core::mem::replace(&mut exchange.body, Body::Ignored) else {
            return;
        };
        if text.is_too_long() {
            let bytes = text.len;
            return self.no_reply(wire, FailureKind::TooLarge { bytes });
        }
        let status = exchange.status.unwrap_or(200);
        let is_empty = text.bytes.trim_ascii().is_empty();
        if is_empty && !faults.is_empty() {
            return self.lose(wire);
        }
        // Some servers only acknowledge the request here, and reply on the listen stream. The SDKs accept that.
        let is_taken = status == 202 && (is_empty || !is_message(&text.bytes));
        if is_taken && self.await_elsewhere(wire) {
            return;
        }
        if is_empty {
            let why = format!("the response has no reply in it (status {status})");
            return self.no_reply(wire, invalid(&why));
        }
        let Ok(read) = core::str::from_utf8(&text.bytes) else {
            return self.no_reply(wire, invalid("the response is not UTF-8"));
        };
        let read = read.strip_prefix('\u{feff}').unwrap_or(read);
        match self.parse(read) {
            Ok(Inbound::One(message)) => {
                let error = error_in(&message).filter(|_| exchange.is_in_session);
                if let Some(error) = error.filter(|_| self.is_session_loss(status, error)) {
                    let said = excerpt(&format!("{error}")).into();
                    return self.session_lost(exchange, false, Some(said));
                }
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

    /// Handles a message on an exchange. `wire` is the request that the exchange carried, and `opens` the session id in its response.
    pub(super) fn message_for(
        &mut self,
        wire: Option<u64>,
        opens: Option<&str>,
        message: wire::Message<'_>,
    ) {
        let about = wire.and_then(|wire| match self.errands.of_wire(wire) {
            Some(Errand::Call(call)) => Some(*call),
            Some(_) | None => None,
        });
        self.set_about(about);
        match (message, wire) {
            // A reply without an id can only belong to the request of this exchange.
            (wire::Message::Response { id: None, outcome }, Some(wire)) => {
                self.reply_to(wire, outcome);
            }
            (message @ wire::Message::Response { .. }, _) => {
                if let wire::Message::Response { id: Some(id), .. } = &message {
                    if self.errands.get(id) == Some(&Errand::Initialize) {
                        self.opens_session(opens);
                    }
                }
                self.message(message);
            }
            (message @ (wire::Message::Notification { .. } | wire::Message::Request { .. }), _) => {
                self.message(message);
            }
        }
        self.set_about(None);
    }

    fn set_about(&mut self, about: Option<CallId>) {
        if let Some(web) = &mut self.web {
            web.about = about;
        }
    }

    /// Records the session that the reply to `initialize` opens, and the transport that the reply came on.
    fn opens_session(&mut self, id: Option<&str>) {
        let Some(web) = &mut self.web else {
            return;
        };
        web.session = id.map(Into::into);
        if !web.is_old() && !web.is_streamable() {
            web.carrier = Carrier::Streamable;
            let is_old = |exchange: &Exchange| matches!(exchange.purpose, Purpose::Old);
            if let Some(stream) = web.exchanges.any(is_old) {
                self.abort_exchange(stream);
                self.take_exchange(stream);
            }
        }
    }

    /// Handles the reply to a request, however it came.
    fn reply_to(&mut self, wire: u64, outcome: Reply<'_>) {
        self.stats.messages_in += 1;
        if let Found::Open(wire, errand) = self.errands.take(&id_of(wire)) {
            self.served(wire);
            self.replied(wire, errand, outcome);
        }
    }

    /// Fails a request whose response holds no usable reply.
    pub(super) fn no_reply(&mut self, wire: u64, kind: FailureKind) {
        if !self.is_awaited(wire) {
            return;
        }
        // The response at a redirected URL may not be from the server at all.
        let is_stranger = matches!(kind, FailureKind::Invalid { .. });
        if let Some(web) = self.web.as_mut().filter(|_| is_stranger) {
            web.go_home();
        }
        let text = format!("{kind}");
        let error = ErrorObject::new(code::INTERNAL_ERROR, text);
        self.broken_reply(&id_of(wire), kind, error);
    }
}

fn is_message(bytes: &[u8]) -> bool {
    core::str::from_utf8(bytes).is_ok_and(|text| wire::parse(text).is_ok())
}

fn invalid(why: &str) -> FailureKind {
    FailureKind::Invalid { why: why.into() }
}

/// The JSON-RPC error of a message, if it is an error reply.
const fn error_in<'a>(message: &'a wire::Message<'_>) -> Option<&'a ErrorObject> {
    match message {
        wire::Message::Response {
            outcome: Err(error),
            ..
        } => Some(error),
        wire::Message::Notification { .. }
        | wire::Message::Request { .. }
        | wire::Message::Response { .. } => None,
    }
}

/// Reads a body as a JSON-RPC error reply. Returns the error and the id that it names.
pub(super) fn read_error(text: &str) -> Option<(Option<Id>, ErrorObject)> {
    match wire::parse(text) {
        Ok(Inbound::One(wire::Message::Response {
            id,
            outcome: Err(error),
        })) => Some((id, error)),
        _ => None,
    }
}
