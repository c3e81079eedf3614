//! Handles event streams: reads their events, resumes streams that were cut (S-RES-03), and decides when to give them up. The listen stream is the
//! one on which a legacy server sends messages by itself.

use alloc::boxed::Box;
use alloc::format;
use core::time::Duration;

use super::errand::Errand;
use super::failure::{Cause, FailureKind};
use super::handshake::{Move, Say};
use super::http::{self, Body, Carrier, Exchange, Listen, Load, Purpose, STUCK, Thread};
use super::lifecycle::State;
use super::{Client, Timer};
use crate::driver::{Fault, StreamId};
use crate::protocol::Era;
use crate::wire::{Inbound, SseEvent, SseReader};

/// A stream that stayed open this long counts as useful, even without events.
const GOOD_WHILE: Duration = Duration::from_secs(60);

/// After this many keepalives without an event, a server is expected to send them regularly.
const BEATS: u32 = 3;

/// The content of streams.
impl Client {
    /// Handles bytes of a stream.
    pub(super) fn events(
        &mut self,
        stream: StreamId,
        mut reader: Box<SseReader>,
        mut bytes: &[u8],
    ) {
        let mut has_event = false;
        while let Some(event) = reader.next(&mut bytes) {
            has_event = true;
            let bears = match event {
                SseEvent::Message { name, data } => {
                    self.event(stream, name, data);
                    true
                }
                SseEvent::NotUtf8 => {
                    self.noise("an event that is not UTF-8", b"");
                    false
                }
                SseEvent::Oversized(skimmed) => {
                    self.oversized(&skimmed);
                    true
                }
                SseEvent::Primed => false,
                SseEvent::Retry(pause) => {
                    if let Some(exchange) = self.exchange_mut(stream) {
                        exchange.thread.retry = Some(pause);
                    }
                    continue;
                }
            };
            // No event follows a reply (S-HTTP-16).
            let exchange = self.exchange_mut(stream);
            let Some(exchange) = exchange.filter(|e| !matches!(e.purpose, Purpose::Spent)) else {
                return;
            };
            let id = reader.last_id().filter(|id| http::is_nameable(id));
            // The stream of a request is judged when it ends.
            if exchange.wire().is_none() {
                if bears {
                    exchange.thread.bears();
                }
                exchange.thread.is_worth_it |= id.is_some();
            }
            exchange.thread.cursor = id.map(Into::into);
        }
        let is_beat = !has_event && reader.is_between_events();
        self.put_body(stream, Body::Events(reader));
        self.beat_on(stream, is_beat);
    }

    /// Counts keepalives. If a server that sends them regularly stops, its stream is taken for broken after `Http::stream_silence`.
    fn beat_on(&mut self, stream: StreamId, is_beat: bool) {
        let Some(exchange) = self.exchange_mut(stream) else {
            return;
        };
        exchange.beats = exchange.beats.saturating_add(u32::from(is_beat));
        if exchange.beats >= BEATS {
            let silence = self.config.http.as_ref().map(|http| http.stream_silence);
            self.arm_in(Timer::Exchange(stream), silence.unwrap_or_default());
        }
    }

    fn event(&mut self, stream: StreamId, name: &str, data: &str) {
        let Some(exchange) = self.exchange_mut(stream) else {
            return;
        };
        let is_old = matches!(exchange.purpose, Purpose::Old);
        match name {
            "message" => self.event_message(stream, data),
            "endpoint" if is_old => self.endpoint(data),
            _ => {}
        }
    }

    fn event_message(&mut self, stream: StreamId, text: &str) {
        let exchange = self.exchange_mut(stream);
        let about = exchange.map(|exchange| (exchange.wire(), exchange.opens.clone()));
        let Some((wire, opens)) = about else {
            return;
        };
        match self.parse(text) {
            Ok(Inbound::One(message)) => self.message_for(wire, opens.as_deref(), message),
            Ok(Inbound::Batch(batch)) if self.allows_batches() => {
                for message in batch.flatten() {
                    self.message_for(wire, None, message);
                }
            }
            Ok(Inbound::Batch(_)) => {
                let what = "a batch, which the agreed version does not have";
                self.noise(what, text.as_bytes());
            }
            Err(malformed) => self.malformed(&malformed, text),
        }
    }
}

/// The continuation of streams.
impl Client {
    /// Handles the end of a request's stream before its reply (S-RES-07).
    pub(super) fn broke_off(&mut self, wire: u64, exchange: Exchange) {
        let Some(errand) = self.errands.of_wire(wire) else {
            return;
        };
        let is_handshake = *errand == Errand::Initialize;
        let Some(web) = &mut self.web else {
            return;
        };
        let is_resumable = exchange.thread.cursor.is_some()
            && !web.is_session_over
            && self.voice.version().era() == Era::Legacy
            && (is_handshake || matches!(self.state, State::Ready | State::Draining));
        if !is_resumable {
            return self.lose(wire);
        }
        if is_handshake {
            web.session = exchange.opens.clone();
        }
        let lasted = self.now.since(exchange.begun.unwrap_or(self.now));
        let mut thread = exchange.thread;
        if thread.is_stuck(lasted >= GOOD_WHILE) {
            let why = format!("its stream broke off at the same event {STUCK} times in a row");
            return self.lose_as(wire, FailureKind::Invalid { why: why.into() });
        }
        let again = Exchange {
            opens: exchange.opens,
            ..Exchange::following(Purpose::Resume(wire), thread)
        };
        self.stream_again(again, Duration::ZERO);
    }

    /// Waits for the reply to an acknowledged request on the listen stream. Returns false if there is no such stream.
    pub(super) fn await_elsewhere(&mut self, wire: u64) -> bool {
        let is_awaited = self.is_awaited(wire);
        let web = self.web.as_mut().filter(|web| web.listen == Listen::On);
        let is_there = is_awaited && web.is_some();
        if let Some(web) = web.filter(|_| is_there) {
            let elsewhere = Exchange::following(Purpose::Resume(wire), Thread::default());
            web.exchanges.add(elsewhere);
        }
        is_there
    }

    /// Handles the end of the listen stream.
    pub(super) fn listen_broke_off(&mut self, exchange: Exchange) {
        let begun = exchange.begun.unwrap_or(self.now);
        let mut thread = exchange.thread;
        if self.now.since(begun) >= GOOD_WHILE {
            thread.bears();
        }
        self.stream_again(Exchange::following(Purpose::Listen, thread), Duration::ZERO);
    }

    /// Requests a stream again that could not be opened this time.
    pub(super) fn stream_failed(&mut self, exchange: Exchange) {
        let pause = exchange.retry_after.unwrap_or(Duration::ZERO);
        let again = Exchange {
            opens: exchange.opens,
            ..Exchange::following(exchange.purpose, exchange.thread)
        };
        self.stream_again(again, pause);
    }

    /// Handles the refusal of a stream. A listen stream that worked before is tried again, because an intermediary may have refused it.
    pub(super) fn stream_turned_down(&mut self, exchange: Exchange, why: &str) {
        if matches!(exchange.purpose, Purpose::Listen) && exchange.thread.was_had {
            self.stream_failed(exchange);
        } else {
            self.no_stream_for(exchange.purpose, why);
        }
    }

    /// Requests a stream again after a pause, unless it brought nothing too often in a row.
    fn stream_again(&mut self, mut exchange: Exchange, least: Duration) {
        let Some(http) = &self.config.http else {
            return;
        };
        if exchange.thread.ended(http.resumes) {
            return self.no_stream_for(exchange.purpose, "it was asked for again and again");
        }
        let pause = exchange.thread.pause(http);
        let pause = pause.max(least.min(http.retry_after_most));
        self.stats.resumes += 1;
        self.begin_in(pause, exchange);
    }

    /// Gives up the stream for this purpose.
    pub(super) fn no_stream_for(&mut self, purpose: Purpose, why: &str) {
        match purpose {
            Purpose::Listen => self.stop_listening(Listen::Off),
            Purpose::Old => self.old_failed(why),
            Purpose::Resume(wire) => {
                // S-RES-08: the whole session may be over, not only this stream.
                self.lose(wire);
                self.probe_now();
            }
            Purpose::Farewell(..) | Purpose::Message | Purpose::Request(_) | Purpose::Spent => {}
        }
    }

    /// Opens the listen stream of a legacy server after the handshake (S-LHTTP-13). Servers in use drop their own requests while nobody listens, and
    /// then wait for the answer. So messages wait for the stream, up to `Http::listen_patience`.
    pub(super) fn gate_opened(&mut self) {
        let is_legacy = self.voice.version().era() == Era::Legacy;
        let (Some(web), Some(http)) = (&mut self.web, &self.config.http) else {
            return;
        };
        if is_legacy
            && web.is_streamable()
            && web.listen != Listen::On
            && http.listens
            && self.state == State::Ready
        {
            web.listen = Listen::On;
            let patience = http.listen_patience;
            let stream = self.begin_now(Exchange::new(Purpose::Listen, Load::None));
            if let Some(web) = self.web.as_mut().filter(|_| !patience.is_zero()) {
                web.ear = stream;
                self.arm_in(Timer::Listen, patience);
            }
        }
    }

    /// Stops waiting for the listen stream if this exchange is it. It has a response, or will get none.
    pub(super) fn listens_by(&mut self, stream: StreamId) {
        if self.web.as_ref().is_some_and(|web| web.ear == Some(stream)) {
            self.timers.disarm(Timer::Listen);
            self.stop_waiting_to_listen();
        }
    }

    /// Stops waiting for the listen stream. Some servers respond to its request only when they have a message to send.
    pub(super) fn stop_waiting_to_listen(&mut self) {
        if let Some(web) = &mut self.web {
            web.ear = None;
        }
    }

    /// Stops listening. The replies that were expected on the listen stream are lost.
    pub(super) fn stop_listening(&mut self, listen: Listen) {
        let Some(web) = &mut self.web else {
            return;
        };
        web.listen = listen;
        for (stream, wire) in web.exchanges.elsewhere() {
            self.take_exchange(stream);
            self.lose(wire);
        }
    }
}

/// The 2024-11-05 transport.
impl Client {
    /// Tries to reach the server over this transport (S-HTTP-41). `is_guess`: a missing reply is the only reason.
    pub(super) fn try_old(&mut self, why: Box<str>, is_guess: bool) {
        let (Some(web), Some(http)) = (&mut self.web, &self.config.http) else {
            return;
        };
        web.carrier = Carrier::Old {
            why,
            is_guess,
            posts: None,
        };
        let patience = http.endpoint_timeout;
        self.timers.disarm(Timer::Probe);
        self.arm_in(Timer::Endpoint, patience);
        self.begin_now(Exchange::new(Purpose::Old, Load::None));
    }

    /// Handles the URL for messages from the server, and begins the handshake there.
    fn endpoint(&mut self, reference: &str) {
        let Some(web) = &mut self.web else {
            return;
        };
        if web.is_old() {
            return;
        }
        if !web.place(reference.trim()) {
            return self.old_failed("the place for messages is not one of the same server");
        }
        web.is_known_old = true;
        self.timers.disarm(Timer::Endpoint);
        if let Some(wire) = self.errands.wire_for(&Errand::Initialize) {
            self.errands.close(wire);
            self.drop_request(wire);
        }
        match self.config.versions.newest_of(Era::Legacy) {
            Some(version) => self.proceed(Move::Say(Say::Initialize(version))),
            None => self.old_failed("no version to speak there is configured"),
        }
    }

    /// Handles a failure of this transport. Both reasons are reported. If a missing reply was the only reason to try it, that reply may still come.
    pub(super) fn old_failed(&mut self, why: &str) {
        let Some(web) = &mut self.web else {
            return;
        };
        web.is_known_old = false;
        let is_old = |exchange: &Exchange| matches!(exchange.purpose, Purpose::Old);
        let stream = web.exchanges.any(is_old);
        let (said, is_guess) = match &web.carrier {
            Carrier::Old { why, is_guess, .. } => (why, *is_guess),
            Carrier::Streamable => return,
        };
        let both = format!("{said}; nor is it behind the transport of 2024-11-05: {why}");
        if let Some(stream) = stream {
            self.abort_exchange(stream);
            self.take_exchange(stream);
        }
        if is_guess {
            self.timers.disarm(Timer::Endpoint);
            if let Some(web) = &mut self.web {
                web.carrier = Carrier::Streamable;
            }
        } else {
            self.proceed(Move::Refused(both.into()));
        }
    }

    /// Handles a missing `endpoint` event, or a missing reply to `initialize`.
    pub(super) fn endpoint_overdue(&mut self) {
        let carrier = self.web.as_ref().map(|web| &web.carrier);
        match carrier {
            Some(Carrier::Old { posts: None, .. }) => {
                self.old_failed("it did not say in time where messages go");
            }
            Some(Carrier::Streamable) => {
                self.try_old("`initialize` was not answered".into(), true);
            }
            Some(_) | None => {}
        }
    }

    /// Handles the end of the only stream, which ends the connection (S-SSE-06).
    pub(super) fn old_stream_ended(&mut self, faults: &[Fault]) {
        self.note(faults);
        if self.web.as_ref().is_some_and(|web| web.is_old()) {
            self.down(Cause::Died);
        } else {
            self.old_failed("the stream ended before it said where messages go");
        }
    }
}
