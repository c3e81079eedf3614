//! Begins and ends HTTP exchanges, and enforces their time limits.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::exchange::{Exchange, ExchangeKind};
use super::heads::Description;
use super::phase::Phase;
use super::{Facts, Heard, HttpBinding, Load, Reading};
use crate::client::config::Limits;
use crate::client::context::{Context, Timer};
use crate::client::event::Event;
use crate::client::frame::Frame;
use crate::client::requests::calls::Call;
use crate::driver::{Output, StreamId};
use crate::json::{Json, Payload};
use crate::protocol::Era;
use crate::protocol::method::names;

/// The number of exchanges that may be under way besides those of calls.
const OTHER_EXCHANGES: usize = 64;

/// The beginning of exchanges.
impl HttpBinding {
    /// Whether a message can be sent in a new exchange.
    pub(in crate::client::binding) fn can_send(&self, limits: &Limits) -> bool {
        let most = limits.calls_in_flight + OTHER_EXCHANGES;
        self.is_open()
            && self.exchanges.len() < most
            && self.exchanges.under_way() < limits.queued_bytes.max(1)
    }

    /// Whether no message is changing this setting.
    pub(in crate::client::binding) fn may_change(&self, key: &str) -> bool {
        self.ordered_keys
            .values()
            .all(|changing| **changing != *key)
    }

    pub(in crate::client::binding) fn is_changing_settings(&self) -> bool {
        self.ordered_keys.len() > 0
    }

    pub(in crate::client::binding) const fn has_due(&self) -> bool {
        self.epoch.is_some() && self.exchanges.has_due()
    }

    pub(in crate::client::binding) fn begin_due(
        &mut self,
        cx: &mut Context,
    ) -> Option<Output<Event>> {
        let epoch = self.epoch?;
        while let Some(stream) = self.exchanges.next_due() {
            let Some(exchange) = self.exchanges.get(stream) else {
                continue;
            };
            let head = self.head(exchange);
            let (given, in_session) = (self.credentials.count(), self.session.id().is_some());
            if let Some(exchange) = self.exchanges.get_mut(stream) {
                exchange.begin(cx.now);
                exchange.target = Box::from(&*head.target);
                exchange.credentials = given;
                exchange.is_in_session = in_session;
            }
            cx.stats.exchanges += 1;
            return Some(Output::Request {
                epoch,
                stream,
                head: head.into(),
                len: 0,
            });
        }
        None
    }

    /// Begins an exchange that carries the message at the end of the buffer, which has `len` bytes.
    pub(in crate::client::binding) fn send(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        len: usize,
        load: Load,
    ) -> Option<Output<Event>> {
        cx.stats.bytes_out += len as u64;
        let message = self.describe(facts, &load);
        let (wire, ordered_key) = match &load {
            Load::Call(id) => {
                let call = facts.requests.call(*id);
                (call.and_then(Call::wire), call.and_then(Call::ordered_key))
            }
            Load::Frame(frame, _) => (frame.wire(), frame.ordered_key().map(Box::from)),
            Load::None => (None, None),
        };
        // A call has a time limit of its own.
        let is_timed = !matches!(load, Load::Call(_)) && (wire.is_none() || ordered_key.is_some());
        let head = self.post(&message);
        let kind = wire.map_or(ExchangeKind::Message, ExchangeKind::Request);
        let mut exchange = Exchange::new(kind, load);
        exchange.begin(cx.now);
        exchange.target = Box::from(&*head.target);
        exchange.under_way = len;
        exchange.credentials = self.credentials.count();
        exchange.is_in_session = self.session.id().is_some() && !message.is_initialize;
        let ends_handshake = exchange.load.ends_handshake();
        let stream = self.exchanges.add(exchange);
        if ends_handshake {
            self.gate.awaiting_initialized = Some(stream);
        }
        if is_timed {
            cx.arm_in(Timer::Exchange(stream), self.settings.message_timeout);
        }
        if let Some(key) = ordered_key {
            self.ordered_keys.add(stream, key);
        }
        cx.stats.exchanges += 1;
        Some(Output::Request {
            epoch: self.epoch?,
            stream,
            head: head.into(),
            len,
        })
    }

    /// Collects what the header fields say about a message. The version is that of the message itself.
    fn describe(&self, facts: Facts<'_>, load: &Load) -> Description {
        let version = facts.session.writer().version();
        let mut message = Description {
            version,
            method: None,
            name: None,
            params: Vec::new(),
            is_initialize: false,
        };
        match load {
            Load::Call(id) => {
                let Some(call) = facts.requests.call(*id) else {
                    return message;
                };
                let params = call.params.as_ref().map(Payload::json);
                let text =
                    |key: &str| -> Option<String> { params?.member(key).ok()??.parse().ok() };
                let named_by = call.facts.and_then(|facts| facts.named_by);
                message.name = named_by.and_then(text);
                if version.era() == Era::Modern && call.method == names::TOOLS_CALL {
                    message.params = self.params_of(message.name.as_deref(), params);
                }
                message.method = Some(call.method.clone());
            }
            Load::Frame(frame, _) => {
                message.method = frame.method();
                message.is_initialize = matches!(frame, Frame::Initialize(..));
            }
            Load::None => {}
        }
        message
    }

    /// The header fields that a tool requires (S-XHDR-02, S-XHDR-11).
    fn params_of(&self, tool: Option<&str>, params: Option<Json<'_>>) -> Vec<(String, String)> {
        let headers = tool.and_then(|tool| self.param_headers.get(tool));
        let Some((headers, params)) = headers.zip(params) else {
            return Vec::new();
        };
        headers.fields(params.member("arguments").ok().flatten())
    }

    /// Begins an exchange without a message.
    pub(super) fn begin_now(&mut self, exchange: Exchange) -> StreamId {
        let stream = self.exchanges.add(exchange);
        self.exchanges.begin_soon(stream);
        stream
    }

    /// Begins an exchange without a message after a pause.
    pub(super) fn begin_in(&mut self, cx: &mut Context, pause: Duration, exchange: Exchange) {
        let stream = self.exchanges.add(exchange);
        cx.arm_in(Timer::Exchange(stream), pause);
    }

    pub(in crate::client::binding) fn resend_initialized(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
    ) {
        let is_open = self.gate.awaiting_initialized.is_none();
        if facts.is_ready_legacy() && is_open && self.session.resend_initialized() {
            cx.frames.push(Frame::Initialized);
        }
    }
}

/// The end of exchanges.
impl HttpBinding {
    pub(in crate::client::binding) fn sent(&mut self, stream: StreamId, len: usize) {
        self.exchanges.sent(stream, len);
    }

    /// Handles the timer of an exchange: begins or ends it.
    pub(in crate::client::binding) fn due(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        stream: StreamId,
    ) -> Reading<'static> {
        let Some(exchange) = self.exchanges.get(stream) else {
            return Reading::One(None);
        };
        if !exchange.phase.has_begun() {
            if self.credentials.is_pending() {
                cx.arm_in(Timer::Exchange(stream), self.settings.linger);
            } else {
                self.exchanges.begin_soon(stream);
            }
            return Reading::One(None);
        }
        let is_decided = exchange.phase != Phase::Sent;
        // An exchange that is not read from seems silent, so its silence does not count.
        if exchange.phase != Phase::Spent && !facts.wants_input(cx) {
            cx.arm_in(Timer::Exchange(stream), self.settings.linger);
            return Reading::One(None);
        }
        self.abort(cx, stream);
        if is_decided {
            return Reading::Ended(stream, &[]);
        }
        let wire = self
            .take_exchange(cx, facts, stream)
            .and_then(|it| it.wire());
        Reading::One(wire.map(Heard::lost))
    }

    pub(in crate::client::binding) fn cancel(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        wire: u64,
    ) -> bool {
        self.drop_request(cx, facts, wire);
        // S-HTTP-25: in the modern era, closing the exchange is the only way to cancel over HTTP.
        facts.era() != Era::Modern
    }

    /// Drops a request. In the modern era, closing its exchange tells the server (S-HTTP-25).
    pub(in crate::client::binding) fn drop_request(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        wire: u64,
    ) {
        let is_modern = facts.era() == Era::Modern;
        match self.exchanges.find(wire) {
            Some(stream) if is_modern && self.begun(stream).is_some() => {
                self.abort(cx, stream);
                self.take_exchange(cx, facts, stream);
            }
            Some(_) | None => self.replied(cx, facts, wire),
        }
    }

    /// Ends the exchange of a request that has its reply.
    pub(in crate::client::binding) fn replied(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        wire: u64,
    ) {
        if let Some(stream) = self.exchanges.find(wire) {
            if self.begun(stream).is_some() {
                self.spend_exchange(cx, facts, stream);
            } else {
                self.take_exchange(cx, facts, stream);
            }
        }
    }

    pub(in crate::client::binding) fn linger(
        &mut self,
        cx: &mut Context,
        wire: u64,
        span: Duration,
    ) {
        if let Some(stream) = self.exchanges.find(wire) {
            cx.arm_in(Timer::Exchange(stream), span);
        }
    }

    /// Returns an exchange that has begun.
    pub(super) fn begun(&mut self, stream: StreamId) -> Option<&mut Exchange> {
        let exchange = self.exchanges.get_mut(stream);
        exchange.filter(|exchange| exchange.phase.has_begun())
    }

    /// Removes an exchange that is over.
    pub(super) fn take_exchange(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        stream: StreamId,
    ) -> Option<Exchange> {
        cx.timers.disarm(Timer::Exchange(stream));
        let taken = self.exchanges.take(stream)?;
        let is_said = !taken.is_to_retry_later();
        self.passed(cx, facts, stream, is_said, taken.is_accepted());
        Some(taken)
    }

    /// Marks an exchange as spent, because it is done or must be repeated. It gets the time `Http::linger` to end by itself.
    pub(super) fn spend_exchange(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        stream: StreamId,
    ) -> Option<Exchange> {
        let spent = self.exchanges.spend(stream)?;
        cx.arm_in(Timer::Exchange(stream), self.settings.linger);
        self.passed(cx, facts, stream, spent.is_accepted(), spent.is_accepted());
        Some(spent)
    }

    /// Releases the messages that waited for this exchange. `is_said`: it need not be sent again.
    fn passed(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        stream: StreamId,
        is_said: bool,
        is_accepted: bool,
    ) {
        self.listen_stream_answered(cx, stream);
        self.ordered_keys.discard(stream);
        if self.gate.awaiting_initialized == Some(stream) {
            self.gate.awaiting_initialized = None;
            let is_again = self.session.initialized(is_accepted);
            if is_said && (is_accepted || !is_again) {
                self.open_listen_stream(cx, facts);
            }
        }
    }

    pub(super) fn abort(&self, cx: &mut Context, stream: StreamId) {
        if let Some(epoch) = self.epoch {
            cx.outbox.push(Output::Abort { epoch, stream });
        }
    }
}
