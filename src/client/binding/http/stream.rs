//! Handles event streams: reads their events, resumes streams that were cut (S-RES-03), and decides when to give them up. The listen stream is the
//! one on which a legacy server sends messages by itself.

use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use super::exchange::{Exchange, ExchangeKind, ResumeState, STUCK};
use super::heads::is_nameable;
use super::listen_stream::{ListenCue, ListenStream};
use super::phase::Phase;
use super::{Events, Facts, Heard, HttpBinding, Load, Source};
use crate::client::context::{Context, Timer};
use crate::client::lifecycle::table::State;
use crate::client::requests::pending::Purpose;
use crate::driver::StreamId;
use crate::protocol::Era;
use crate::wire::SseEvent;

/// A stream that stayed open this long counts as useful, even without events.
const LONG: Duration = Duration::from_secs(60);

/// After this many keepalives without an event, a server is expected to send them regularly.
const KEEPALIVES: u32 = 3;

/// The content of streams.
impl HttpBinding {
    /// Reads the next event of a stream. First records the one before: no event follows a reply (S-HTTP-16).
    pub(super) fn event<'r>(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        events: &'r mut Events<'_>,
    ) -> Option<Heard<'r>> {
        let stream = events.stream;
        if let Some(is_useful) = events.unrecorded.take() {
            let exchange = self.begun(stream);
            let exchange = exchange.filter(|it| it.phase != Phase::Spent);
            let Some(exchange) = exchange else {
                events.is_over = true;
                return None;
            };
            let id = events.reader.last_id().filter(|id| is_nameable(id));
            // The stream of a request is judged when it ends.
            if exchange.wire().is_none() {
                if is_useful {
                    exchange.resume.was_useful();
                }
                exchange.resume.is_resumable_now |= id.is_some();
            }
            exchange.resume.cursor = id.map(Into::into);
        }
        let event = events.reader.next(&mut events.bytes)?;
        events.has_event = true;
        let (heard, is_useful) = match event {
            SseEvent::Message { name, data } => (self.message(cx, facts, stream, name, data), true),
            SseEvent::NotUtf8 => (Heard::Noise("an event that is not UTF-8", b""), false),
            SseEvent::Oversized(skimmed) => (Heard::Oversized(skimmed), true),
            SseEvent::Primed => (Heard::Nothing, false),
            SseEvent::Retry(pause) => {
                if let Some(exchange) = self.begun(stream) {
                    exchange.resume.retry = Some(pause);
                }
                return Some(Heard::Nothing);
            }
        };
        events.unrecorded = Some(is_useful);
        Some(heard)
    }

    fn message<'r>(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        stream: StreamId,
        name: &str,
        data: &'r str,
    ) -> Heard<'r> {
        let Some(exchange) = self.begun(stream) else {
            return Heard::Nothing;
        };
        let wire = exchange.wire();
        let is_old = matches!(exchange.kind, ExchangeKind::OldStream);
        match name {
            "message" => Heard::Text(data, Source { stream, wire }),
            "endpoint" if is_old => self.endpoint(cx, facts, data),
            _ => Heard::Nothing,
        }
    }

    /// Counts keepalives. If a server that sends them regularly stops, its stream is taken for broken after `Http::stream_silence`.
    pub(super) fn count_keepalive(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        is_keepalive: bool,
    ) {
        let silence = self.settings.stream_silence;
        let Some(exchange) = self.begun(stream) else {
            return;
        };
        exchange.keepalives = exchange.keepalives.saturating_add(u32::from(is_keepalive));
        if exchange.keepalives >= KEEPALIVES {
            cx.arm_in(Timer::Exchange(stream), silence);
        }
    }
}

/// The continuation of streams.
impl HttpBinding {
    /// Handles the end of a request's stream before its reply (S-RES-07).
    pub(super) fn stream_ended_early(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        wire: u64,
        exchange: Exchange,
    ) -> Heard<'static> {
        let Some(purpose) = facts.requests.purpose(wire) else {
            return Heard::Nothing;
        };
        let is_handshake = *purpose == Purpose::Initialize;
        let is_resumable = exchange.resume.cursor.is_some()
            && !self.gate.is_session_over
            && facts.era() == Era::Legacy
            && (is_handshake || matches!(facts.state, State::Ready | State::Draining));
        if !is_resumable {
            return Heard::lost(wire);
        }
        if is_handshake {
            self.session.open(exchange.opens.clone());
        }
        let lasted = cx.now.since(exchange.begun.unwrap_or(cx.now));
        let mut resume = exchange.resume;
        if resume.is_stuck(lasted >= LONG) {
            let why = format!("its stream broke off at the same event {STUCK} times in a row");
            return Heard::Stuck(wire, why.into());
        }
        let again = Exchange {
            opens: exchange.opens,
            ..Exchange::following(ExchangeKind::Resume(wire), resume)
        };
        self.stream_again(cx, facts, again, Duration::ZERO)
    }

    /// Whether replies may come on the listen stream.
    pub(super) fn is_listening(&self) -> bool {
        matches!(self.listen, ListenStream::On | ListenStream::Cut)
    }

    /// Whether messages that a legacy server sends by itself arrive.
    pub(in crate::client::binding) fn hears_changes(&self) -> bool {
        self.listen == ListenStream::On || self.transport.is_old_sse()
    }

    /// Waits for the reply to an acknowledged request on the listen stream.
    pub(in crate::client::binding) fn await_elsewhere(&mut self, wire: u64) {
        let elsewhere = Exchange::following(ExchangeKind::Resume(wire), ResumeState::default());
        self.exchanges.add(elsewhere);
    }

    /// Handles the end of the listen stream.
    pub(super) fn listen_stream_ended(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        exchange: Exchange,
    ) -> Heard<'static> {
        let begun = exchange.begun.unwrap_or(cx.now);
        let mut resume = exchange.resume;
        if cx.now.since(begun) >= LONG {
            resume.was_useful();
        }
        let again = Exchange::following(ExchangeKind::Listen, resume);
        self.stream_again(cx, facts, again, Duration::ZERO)
    }

    /// Requests a stream again that could not be opened this time.
    pub(super) fn stream_failed(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        exchange: Exchange,
    ) -> Heard<'static> {
        let pause = exchange.retry_after.unwrap_or(Duration::ZERO);
        let again = Exchange {
            opens: exchange.opens,
            ..Exchange::following(exchange.kind, exchange.resume)
        };
        self.stream_again(cx, facts, again, pause)
    }

    /// Handles the refusal of a stream. A listen stream that worked before is tried again, because an intermediary may have refused it.
    pub(super) fn stream_refused(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        exchange: Exchange,
        why: &str,
    ) -> Heard<'static> {
        if matches!(exchange.kind, ExchangeKind::Listen) && exchange.resume.was_open {
            self.stream_failed(cx, facts, exchange)
        } else {
            self.give_up_stream(cx, facts, &exchange.kind, why)
        }
    }

    /// Requests a stream again after a pause, unless it brought nothing too often in a row.
    fn stream_again(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        mut exchange: Exchange,
        least: Duration,
    ) -> Heard<'static> {
        let http = &self.settings;
        if exchange.resume.ended(http.resumes) {
            let why = "it was asked for again and again";
            return self.give_up_stream(cx, facts, &exchange.kind, why);
        }
        if let ExchangeKind::Listen = exchange.kind {
            self.listen.step(ListenCue::Cut);
        }
        let pause = exchange.resume.pause(http);
        let pause = pause.max(least.min(http.retry_after_most));
        cx.stats.resumes += 1;
        self.begin_in(cx, pause, exchange);
        Heard::Nothing
    }

    /// Gives up a stream of this kind.
    pub(super) fn give_up_stream(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        kind: &ExchangeKind,
        why: &str,
    ) -> Heard<'static> {
        match kind {
            ExchangeKind::Listen => self.stop_listening(cx, facts, ListenCue::Abandoned),
            ExchangeKind::OldStream => self.old_sse_failed(cx, facts, why),
            // S-RES-08: the whole session may be over, not only this stream.
            ExchangeKind::Resume(wire) => Heard::Lost {
                wires: [*wire].into(),
                is_suspect: true,
            },
            ExchangeKind::DeleteSession(..)
            | ExchangeKind::Message
            | ExchangeKind::Request(_)
            | ExchangeKind::Spent => Heard::Nothing,
        }
    }

    /// Opens the listen stream of a legacy server after the handshake (S-LHTTP-13). Servers in use drop their own requests while nobody listens, and
    /// then wait for the answer. So messages wait for the stream, up to `Http::listen_patience`.
    pub(super) fn open_listen_stream(&mut self, cx: &mut Context, facts: Facts<'_>) {
        if facts.is_ready_legacy()
            && self.transport.is_streamable()
            && self.settings.listens
            && self.listen.step(ListenCue::Open)
        {
            let patience = self.settings.listen_patience;
            let stream = self.begin_now(Exchange::new(ExchangeKind::Listen, Load::None));
            if !patience.is_zero() {
                self.gate.awaiting_listen_stream = Some(stream);
                cx.arm_in(Timer::Listen, patience);
            }
        }
    }

    pub(in crate::client::binding) fn listen_again(&mut self, cx: &mut Context, facts: Facts<'_>) {
        if self.listen == ListenStream::Unauthorized {
            self.open_listen_stream(cx, facts);
        }
    }

    /// Stops waiting for the listen stream if this exchange is it. It has a response, or will get none.
    pub(super) fn listen_stream_answered(&mut self, cx: &mut Context, stream: StreamId) {
        if self.gate.awaiting_listen_stream == Some(stream) {
            cx.timers.disarm(Timer::Listen);
            self.stop_awaiting_listen_stream();
        }
    }

    /// Stops waiting for the listen stream. Some servers respond to its request only when they have a message to send.
    pub(in crate::client::binding) fn stop_awaiting_listen_stream(&mut self) {
        self.gate.awaiting_listen_stream = None;
    }

    /// Stops listening. The replies that were expected on the listen stream are lost.
    pub(super) fn stop_listening(
        &mut self,
        cx: &mut Context,
        facts: Facts<'_>,
        why: ListenCue,
    ) -> Heard<'static> {
        self.listen.step(why);
        let mut wires = Vec::new();
        for (stream, wire) in self.exchanges.elsewhere() {
            self.take_exchange(cx, facts, stream);
            wires.push(wire);
        }
        Heard::Lost {
            wires,
            is_suspect: false,
        }
    }
}
