//! Begins and ends HTTP exchanges, and enforces their time limits. `responses` handles their responses.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::errand::Errand;
use super::event::Event;
use super::frame::Frame;
use super::http::{Body, Exchange, Load, Message, Purpose};
use super::lifecycle::State;
use super::{Client, Timer};
use crate::driver::{Output, StreamId};
use crate::json::{Json, Payload};
use crate::protocol::Era;
use crate::protocol::method::names as methods;
use crate::protocol::watch::List;

/// The number of exchanges that may be under way besides those of calls.
const OTHER_EXCHANGES: usize = 64;

/// The beginning of exchanges.
impl Client {
    /// Whether a message can be sent in a new exchange.
    pub(super) fn has_exchange_to_spare(&self) -> bool {
        let limits = &self.config.limits;
        let most = limits.calls_in_flight + OTHER_EXCHANGES;
        self.web.as_ref().is_some_and(|web| {
            let exchanges = &web.exchanges;
            web.is_open()
                && exchanges.len() < most
                && exchanges.under_way() < limits.queued_bytes.max(1)
        })
    }

    /// Begins the next exchange without a message that is due.
    pub(super) fn begin_due(&mut self) -> Option<Output<Event>> {
        let (epoch, now) = (self.life.as_ref()?.epoch, self.now);
        let web = self.web.as_mut()?;
        while let Some(stream) = web.exchanges.next_due() {
            let Some(exchange) = web.exchanges.get(stream) else {
                continue;
            };
            let head = web.head(exchange);
            let (given, in_session) = (web.auth.given, web.session.is_some());
            if let Some(exchange) = web.exchanges.get_mut(stream) {
                exchange.begun = Some(now);
                exchange.target = Box::from(&*head.target);
                exchange.credentials = given;
                exchange.is_in_session = in_session;
            }
            self.stats.exchanges += 1;
            return Some(Output::Request {
                epoch,
                stream,
                head: head.into(),
                len: 0,
            });
        }
        None
    }

    /// Begins an exchange that carries the message at the end of the buffer.
    pub(super) fn begin_post(&mut self, load: Load, len: usize) -> Option<Output<Event>> {
        let message = self.describe(&load);
        let wire = match &load {
            Load::Call(id) => self.calls.call(*id).and_then(|call| call.wire()),
            Load::Frame(frame, _) => frame.wire(),
            Load::None => None,
        };
        let choice = match &load {
            Load::Frame(frame, _) => frame.choice().map(Box::from),
            Load::Call(_) | Load::None => None,
        };
        let web = self.web.as_mut()?;
        let head = web.post(&message);
        let mut exchange = Exchange::new(wire.map_or(Purpose::Message, Purpose::Request), load);
        exchange.begun = Some(self.now);
        exchange.target = Box::from(&*head.target);
        exchange.under_way = len;
        exchange.credentials = web.auth.given;
        exchange.is_in_session = web.session.is_some() && !message.is_introduction;
        let is_gate = exchange.ends_handshake();
        let stream = web.exchanges.add(exchange);
        // Some servers refuse messages that overtake `notifications/initialized`.
        if is_gate {
            web.gate = Some(stream);
        }
        let is_choice = choice.is_some();
        if let Some(choice) = choice {
            web.choosing.add(stream, choice);
        }
        if wire.is_none() || is_choice {
            let patience = self.config.http.as_ref().map(|http| http.message_timeout);
            self.arm_in(Timer::Exchange(stream), patience.unwrap_or_default());
        }
        self.stats.exchanges += 1;
        let epoch = self.life.as_ref()?.epoch;
        Some(Output::Request {
            epoch,
            stream,
            head: head.into(),
            len,
        })
    }

    /// Collects what the header fields say about a message. The version is that of the message itself.
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
                let params = call.params.as_ref().map(Payload::json);
                let text =
                    |key: &str| -> Option<String> { params?.member(key).ok()??.parse().ok() };
                let named_by = call.facts.and_then(|facts| facts.named_by);
                message.name = named_by.and_then(text);
                if version.era() == Era::Modern && call.method == methods::TOOLS_CALL {
                    message.params = self.mirrored_params(message.name.as_deref(), params);
                }
                message.method = Some(call.method.clone());
            }
            Load::Frame(frame, _) => {
                message.method = frame.method();
                message.is_introduction = matches!(frame, Frame::Initialize(..));
            }
            Load::None => {}
        }
        message
    }

    /// The header fields that a tool requires (S-XHDR-02, S-XHDR-11).
    fn mirrored_params(
        &self,
        tool: Option<&str>,
        params: Option<Json<'_>>,
    ) -> Vec<(String, String)> {
        let web = self.web.as_ref();
        let mirrored = web.and_then(|web| web.mirrored(tool?));
        let Some((mirrored, params)) = mirrored.zip(params) else {
            return Vec::new();
        };
        mirrored.fields(params.member("arguments").ok().flatten())
    }

    /// Begins an exchange without a message.
    pub(super) fn begin_now(&mut self, exchange: Exchange) -> Option<StreamId> {
        let web = self.web.as_mut()?;
        let stream = web.exchanges.add(exchange);
        web.exchanges.begin_soon(stream);
        Some(stream)
    }

    /// Begins an exchange without a message after a pause.
    pub(super) fn begin_in(&mut self, pause: Duration, exchange: Exchange) {
        if let Some(web) = &mut self.web {
            let stream = web.exchanges.add(exchange);
            self.arm_in(Timer::Exchange(stream), pause);
        }
    }
}

/// The end of exchanges.
impl Client {
    /// Handles that the driver handed bytes of a request to the operating system.
    pub(super) fn exchange_sent(&mut self, stream: StreamId, len: usize) {
        if let Some(web) = &mut self.web {
            web.exchanges.sent(stream, len);
        }
    }

    /// Handles the timer of an exchange: begins or ends it.
    pub(super) fn exchange_due(&mut self, stream: StreamId) {
        let Some(web) = &mut self.web else {
            return;
        };
        match web.exchanges.get(stream) {
            Some(exchange) if exchange.begun.is_none() => {
                if web.auth.is_pending {
                    self.arm_in(Timer::Exchange(stream), self.linger());
                } else {
                    web.exchanges.begin_soon(stream);
                }
            }
            Some(exchange) => {
                let is_decided = exchange.status.is_some();
                let is_stream = matches!(exchange.body, Body::Events(_));
                // A stream that is not read from seems silent, so its silence does not count.
                if is_stream && !self.wants_input(stream) {
                    return self.arm_in(Timer::Exchange(stream), self.linger());
                }
                self.abort_exchange(stream);
                if is_decided {
                    self.exchange_ended(stream, &[]);
                } else if let Some(wire) = self.take_exchange(stream).and_then(|e| e.wire()) {
                    self.lose(wire);
                }
            }
            None => {}
        }
    }

    /// Drops a request. In the modern era, closing its exchange tells the server (S-HTTP-25).
    pub(super) fn drop_request(&mut self, wire: u64) {
        let stream = self.web.as_ref().and_then(|web| web.exchanges.find(wire));
        let is_modern = self.voice.version().era() == Era::Modern;
        match stream {
            Some(stream) if is_modern && self.exchange_mut(stream).is_some() => {
                self.abort_exchange(stream);
                self.take_exchange(stream);
            }
            Some(_) | None => self.served(wire),
        }
    }

    /// Ends the exchange of a request that has its reply.
    pub(super) fn served(&mut self, wire: u64) {
        let stream = self.web.as_ref().and_then(|web| web.exchanges.find(wire));
        if let Some(stream) = stream {
            if self.exchange_mut(stream).is_some() {
                self.spend_exchange(stream);
            } else {
                self.take_exchange(stream);
            }
        }
    }

    /// Returns an exchange that has begun.
    pub(super) fn exchange_mut(&mut self, stream: StreamId) -> Option<&mut Exchange> {
        let web = self.web.as_mut()?;
        let exchange = web.exchanges.get_mut(stream);
        exchange.filter(|exchange| exchange.begun.is_some())
    }

    /// Removes an exchange that is over.
    pub(super) fn take_exchange(&mut self, stream: StreamId) -> Option<Exchange> {
        self.timers.disarm(Timer::Exchange(stream));
        let taken = self.web.as_mut()?.exchanges.take(stream)?;
        self.pass(stream, !taken.is_put_off(), taken.is_accepted());
        Some(taken)
    }

    /// Marks an exchange as spent, because it is done or must be repeated. It gets the time `Http::linger` to end by itself.
    pub(super) fn spend_exchange(&mut self, stream: StreamId) -> Option<Exchange> {
        let spent = self.web.as_mut()?.exchanges.spend(stream)?;
        self.arm_in(Timer::Exchange(stream), self.linger());
        self.pass(stream, spent.is_accepted(), spent.is_accepted());
        Some(spent)
    }

    /// Sends `notifications/initialized` again if the server refused it but still replies, at most 3 times. Without it, the server may send nothing
    /// by itself.
    pub(super) fn introduce_again(&mut self) {
        const MOST: u8 = 3;
        let is_meant = self.state == State::Ready && self.voice.version().era() == Era::Legacy;
        let Some(web) = self.web.as_mut().filter(|_| is_meant) else {
            return;
        };
        if !web.is_introduced && web.gate.is_none() && web.reintroductions < MOST {
            web.reintroductions += 1;
            self.frames.push(Frame::Initialized);
        }
    }

    /// Releases the messages that waited for this exchange. `is_said`: it need not be sent again.
    fn pass(&mut self, stream: StreamId, is_said: bool, is_accepted: bool) {
        self.listens_by(stream);
        let Some(web) = &mut self.web else {
            return;
        };
        web.choosing.forget(stream);
        if web.gate == Some(stream) {
            web.gate = None;
            web.is_introduced |= is_accepted;
            let is_again = web.reintroductions > 0;
            if is_said && (is_accepted || !is_again) {
                self.gate_opened();
            }
            if is_accepted && is_again {
                // The server may not have reported changes before this.
                self.changed(None, &List::ALL);
            }
        }
    }

    pub(super) fn abort_exchange(&mut self, stream: StreamId) {
        if let Some(life) = &self.life {
            let epoch = life.epoch;
            self.outbox.push(Output::Abort { epoch, stream });
        }
    }

    /// Gives the exchange of the request with this purpose so much time to end.
    pub(super) fn let_linger(&mut self, errand: &Errand, span: Duration) {
        let wire = self.errands.wire_for(errand);
        let web = self.web.as_ref();
        if let Some(stream) = wire.and_then(|wire| web?.exchanges.find(wire)) {
            self.arm_in(Timer::Exchange(stream), span);
        }
    }

    pub(super) fn is_awaited(&self, wire: u64) -> bool {
        self.errands.of_wire(wire).is_some()
    }

    pub(super) fn linger(&self) -> Duration {
        let http = self.config.http.as_ref();
        http.map_or(Duration::ZERO, |http| http.linger)
    }
}
