//! Reads HTTP responses, and handles those that bring what was requested. `error` handles the others.

use alloc::boxed::Box;
use alloc::format;
use core::mem;

use super::exchange::{self, Exchange, ExchangeKind, Text};
use super::heads::session_id;
use super::listen_stream::ListenCue;
use super::phase::PhaseCue;
use super::{Body, Events, Facts, Heard, HttpBinding, Load, Reading};
use crate::client::context::{Context, Timer};
use crate::client::failure::FailureKind;
use crate::client::requests::pending::Purpose;
use crate::driver::{Fault, StreamId};
use crate::http::{Fields, ResponseHead, media, names, retry_after};
use crate::wire;

/// The number of bytes of an error body that are read.
const ERROR_BODY: usize = 64 << 10;

/// The arrival of responses.
impl HttpBinding {
    pub(in crate::client::binding) fn response<'a>(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        head: &'a ResponseHead<'a>,
    ) -> (Reading<'a>, bool) {
        let status = head.status;
        let Some(exchange) = self.begun(stream) else {
            cx.stats.stale_inputs += 1;
            return (Reading::One(None), false);
        };
        // An informational status (1xx) is not the response.
        if status < 200 || exchange.status.is_some() {
            return (Reading::One(None), false);
        }
        exchange.status = Some(status);
        let unread = exchange.under_way;
        self.listen_stream_answered(cx, stream);
        self.sent(stream, unread);
        cx.timers.disarm(Timer::Exchange(stream));
        // A server error (5xx) is no sign of life.
        let is_alive = status < 500 && self.speaks_on(stream);
        (Reading::Response(stream, head), is_alive)
    }

    pub(in crate::client::binding) fn bytes<'a>(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        bytes: &'a [u8],
    ) -> (Reading<'a>, bool) {
        let Some(exchange) = self.begun(stream) else {
            cx.stats.stale_inputs += 1;
            return (Reading::One(None), false);
        };
        let is_refused = exchange.is_refused();
        let limit = if is_refused {
            ERROR_BODY
        } else {
            cx.config.limits.message_bytes
        };
        let is_alive = !is_refused && self.speaks_on(stream);
        cx.stats.bytes_in += bytes.len() as u64;
        let reading = match self.exchanges.take_body(stream) {
            Some(exchange::Body::Text(mut text)) => {
                text.push(bytes, limit);
                self.exchanges.put_body(stream, exchange::Body::Text(text));
                Reading::Stored(stream)
            }
            Some(exchange::Body::Events(reader)) => Reading::Events(Events {
                stream,
                reader,
                bytes,
                unrecorded: None,
                has_event: false,
                is_over: false,
            }),
            Some(exchange::Body::Ignored) | None => Reading::Stored(stream),
        };
        (reading, is_alive)
    }

    pub(in crate::client::binding) fn ended<'a>(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        faults: &'a [Fault],
    ) -> Reading<'a> {
        if self.begun(stream).is_none() {
            cx.stats.stale_inputs += 1;
            return Reading::One(None);
        }
        Reading::Ended(stream, faults)
    }

    pub(in crate::client::binding) fn hear<'r>(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        reading: &'r mut Reading<'_>,
    ) -> Option<Heard<'r>> {
        match *reading {
            Reading::Ended(stream, faults) => {
                *reading = Reading::One(None);
                let exchange = self.take_exchange(cx, facts, stream)?;
                match self.exchange_ended(cx, facts, exchange, faults) {
                    Ok(heard) => return Some(heard),
                    Err(body) => *reading = Reading::Body(body),
                }
            }
            Reading::Response(stream, head) => {
                *reading = Reading::One(None);
                return Some(self.answered(cx, facts, stream, head));
            }
            Reading::Stored(stream) => {
                *reading = Reading::One(None);
                return Some(self.check_unfinished(cx, facts, stream));
            }
            Reading::Body(_)
            | Reading::Events(_)
            | Reading::LastLine(_)
            | Reading::Lines(..)
            | Reading::One(_) => {}
        }
        match reading {
            Reading::Body(body) if body.is_unread => {
                body.is_unread = false;
                Some(Heard::Body(body))
            }
            Reading::Events(events) => self.event(cx, facts, events),
            Reading::One(heard) => heard.take(),
            Reading::Body(_)
            | Reading::Ended(..)
            | Reading::LastLine(_)
            | Reading::Lines(..)
            | Reading::Response(..)
            | Reading::Stored(_) => None,
        }
    }

    pub(in crate::client::binding) fn put_back(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        reading: Reading<'_>,
    ) -> Heard<'static> {
        let Reading::Events(events) = reading else {
            return Heard::Nothing;
        };
        let stream = events.stream;
        if !events.is_over {
            let is_keepalive = !events.has_event && events.reader.is_between_events();
            let body = exchange::Body::Events(events.reader);
            self.exchanges.put_body(stream, body);
            self.count_keepalive(cx, stream, is_keepalive);
        }
        self.check_unfinished(cx, facts, stream)
    }

    fn answered(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        stream: StreamId,
        head: &ResponseHead<'_>,
    ) -> Heard<'static> {
        let status = head.status;
        match status {
            200..=299 => self.accepted(cx, facts, stream, &head.fields),
            300..=399 => {
                let location = head.fields.get(names::LOCATION);
                self.redirected(cx, facts, stream, status, location)
            }
            401 | 403 if self.is_demand(facts, stream, status, &head.fields) => {
                self.unauthorized(cx, facts, stream, status, &head.fields)
            }
            _ => {
                if let Some(exchange) = self.begun(stream) {
                    exchange.step(PhaseCue::Refused);
                    exchange.body = exchange::Body::Text(Text::default());
                    exchange.retry_after = retry_after::retry_after(&head.fields);
                }
                // The body may explain the error, but the wait for it is limited.
                cx.arm_in(Timer::Exchange(stream), self.settings.linger);
                Heard::Nothing
            }
        }
    }

    /// Whether a 401 or 403 asks for credentials. A 403 without a challenge does not, in response to the `server/discover` probe or to
    /// `notifications/initialized`: servers in use refuse unknown messages like this.
    fn is_demand(
        &self,
        facts: Facts<'_>,
        stream: StreamId,
        status: u16,
        fields: &Fields<'_>,
    ) -> bool {
        let is_probe = |wire| facts.requests.purpose(wire) == Some(&Purpose::Discover);
        let is_plain = self.exchanges.get(stream).is_some_and(|exchange| {
            let is_probe = exchange.wire().is_some_and(is_probe);
            exchange.load.ends_handshake() || is_probe && !facts.session.known().is_known_modern()
        });
        status == 401 || !is_plain || fields.get(names::WWW_AUTHENTICATE).is_some()
    }

    /// Whether input on this exchange shows that the server itself is alive. With the 2024-11-05 transport, everything from the server comes on one
    /// stream.
    fn speaks_on(&self, stream: StreamId) -> bool {
        let is_its_stream = |it: &Exchange| matches!(it.kind, ExchangeKind::OldStream);
        !self.transport.is_old_sse() || self.exchanges.get(stream).is_some_and(is_its_stream)
    }

    /// Handles a response with a 2xx status.
    fn accepted(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        stream: StreamId,
        fields: &Fields<'_>,
    ) -> Heard<'static> {
        let limit = cx.config.limits.message_bytes;
        let is_old = self.transport.is_old_sse();
        let content_type = fields.get(names::CONTENT_TYPE);
        let is_stream = content_type.is_some_and(|kind| media::is(kind, "text/event-stream"));
        let is_json = content_type.is_none_or(|kind| media::is(kind, "application/json"));
        let linger = self.settings.linger;
        if is_stream || is_json {
            // The present URL is that of the server.
            self.redirects = 0;
        }
        let Some(exchange) = self.begun(stream) else {
            return Heard::Nothing;
        };
        match exchange.kind {
            ExchangeKind::Request(_) if is_old => {
                self.spend_exchange(cx, facts, stream);
            }
            ExchangeKind::Request(_) if is_stream => {
                exchange.read_events(limit);
                exchange.opens = session_id(fields);
            }
            // The body of a 202 is rarely a reply, whatever its content type.
            ExchangeKind::Request(_) if is_json || exchange.status == Some(202) => {
                exchange.step(PhaseCue::Single);
                exchange.opens = session_id(fields);
                exchange.body = exchange::Body::Text(Text::default());
                if matches!(exchange.status, Some(202 | 204 | 205)) {
                    cx.arm_in(Timer::Exchange(stream), linger);
                }
            }
            ExchangeKind::Request(wire) => {
                self.abort(cx, stream);
                self.take_exchange(cx, facts, stream);
                let why = "the response is neither JSON nor a stream of events";
                return invalid(wire, why);
            }
            ExchangeKind::Listen | ExchangeKind::OldStream | ExchangeKind::Resume(_)
                if is_stream =>
            {
                exchange.read_events(limit);
                let was_open = mem::replace(&mut exchange.resume.was_open, true);
                let misses_nothing = exchange.resume.cursor.is_some();
                let is_again = if let ExchangeKind::Listen = exchange.kind {
                    self.listen.step(ListenCue::Opened)
                } else {
                    was_open
                };
                if is_again && !misses_nothing {
                    return Heard::ListenedAgain;
                }
            }
            ExchangeKind::Listen | ExchangeKind::OldStream | ExchangeKind::Resume(_) => {
                self.abort(cx, stream);
                if let Some(exchange) = self.take_exchange(cx, facts, stream) {
                    let why = "the response is no stream of events";
                    return self.stream_refused(cx, facts, exchange, why);
                }
            }
            ExchangeKind::DeleteSession(..) => {
                self.spend_exchange(cx, facts, stream);
                return Heard::Gone;
            }
            ExchangeKind::Message | ExchangeKind::Spent => {
                let is_late = self.gate.awaiting_initialized == Some(stream)
                    && self.session.was_initialized_resent();
                self.spend_exchange(cx, facts, stream);
                if is_late {
                    return Heard::InitializedLate;
                }
            }
        }
        Heard::Nothing
    }

    /// Enforces the common limit for all incomplete responses. The exchange that exceeds it fails as too large.
    fn check_unfinished(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        stream: StreamId,
    ) -> Heard<'static> {
        if self.exchanges.buffered() <= cx.config.limits.unfinished_bytes {
            return Heard::Nothing;
        }
        self.abort(cx, stream);
        let is_refused = self.begun(stream).is_some_and(|it| it.is_refused());
        let Some(exchange) = self.take_exchange(cx, facts, stream) else {
            return Heard::Nothing;
        };
        // For a refusal, the status matters more than a long body.
        if let Some(status) = exchange.status.filter(|_| is_refused) {
            return self.refused(cx, facts, exchange, status);
        }
        let bytes = exchange.body.buffered() as u64;
        match exchange.kind {
            ExchangeKind::Request(wire) | ExchangeKind::Resume(wire) => {
                Heard::Unanswered(wire, Box::new(FailureKind::TooLarge { bytes }))
            }
            ExchangeKind::Listen => self.stream_failed(cx, facts, exchange),
            ExchangeKind::OldStream => self.old_stream_ended(cx, facts, &[]),
            ExchangeKind::DeleteSession(..) | ExchangeKind::Message | ExchangeKind::Spent => {
                Heard::Nothing
            }
        }
    }

    /// Handles the end of a response. An `Err` is the complete body of a response that is a single text.
    fn exchange_ended<'r>(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        exchange: Exchange,
        faults: &'r [Fault],
    ) -> Result<Heard<'r>, Body> {
        let Some(status) = exchange.status else {
            return Ok(self.no_contact(cx, facts, exchange, faults));
        };
        if status >= 300 {
            return Ok(self.refused(cx, facts, exchange, status));
        }
        Ok(match exchange.kind {
            ExchangeKind::Request(wire) => match exchange.body {
                exchange::Body::Text(_) => return self.whole_reply(wire, exchange, faults),
                exchange::Body::Events(_) => self.stream_ended_early(cx, facts, wire, exchange),
                exchange::Body::Ignored => Heard::Nothing,
            },
            ExchangeKind::Resume(wire) => self.stream_ended_early(cx, facts, wire, exchange),
            ExchangeKind::Listen => self.listen_stream_ended(cx, facts, exchange),
            ExchangeKind::OldStream => self.old_stream_ended(cx, facts, faults),
            ExchangeKind::DeleteSession(..) => Heard::Gone,
            ExchangeKind::Message | ExchangeKind::Spent => Heard::Nothing,
        })
    }

    /// Handles the complete body of a response that is a single text.
    fn whole_reply<'r>(
        &self,
        wire: u64,
        mut exchange: Exchange,
        faults: &'r [Fault],
    ) -> Result<Heard<'r>, Body> {
        let body = mem::replace(&mut exchange.body, exchange::Body::Ignored);
        let exchange::Body::Text(text) = body else {
            return Ok(Heard::Nothing);
        };
        if text.is_too_long() {
            let bytes = text.len;
            let kind = FailureKind::TooLarge { bytes };
            return Ok(Heard::Unanswered(wire, Box::new(kind)));
        }
        let status = exchange.status.unwrap_or(200);
        let is_empty = text.bytes.trim_ascii().is_empty();
        if is_empty && !faults.is_empty() {
            return Ok(Heard::lost(wire));
        }
        // Some servers only acknowledge the request here, and reply on the listen stream. The SDKs accept that.
        let is_taken = status == 202 && (is_empty || !is_message(&text.bytes));
        if is_taken && self.is_listening() {
            return Ok(Heard::Acknowledged(wire));
        }
        if is_empty {
            let why = format!("the response has no reply in it (status {status})");
            return Ok(invalid(wire, &why));
        }
        if core::str::from_utf8(&text.bytes).is_err() {
            return Ok(invalid(wire, "the response is not UTF-8"));
        }
        Err(Body {
            text: text.bytes,
            wire,
            call: match exchange.load {
                Load::Call(call) => Some(call),
                Load::Frame(..) | Load::None => None,
            },
            status,
            opens: exchange.opens,
            is_in_session: exchange.is_in_session,
            was_cut: !faults.is_empty(),
            is_unread: true,
        })
    }
}

fn is_message(bytes: &[u8]) -> bool {
    core::str::from_utf8(bytes).is_ok_and(|text| wire::parse(text).is_ok())
}

fn invalid(wire: u64, why: &str) -> Heard<'static> {
    let kind = FailureKind::Invalid { why: why.into() };
    Heard::Unanswered(wire, Box::new(kind))
}
