//! Streams of events: what they bring, how they go on when they break off (S-RES-03), and when they are given up.

use alloc::boxed::Box;
use alloc::format;
use core::time::Duration;

use super::failure::Cause;
use super::handshake::{Move, Say};
use super::http::{self, Body, Carrier, Exchange, Listen, Load, Purpose, Thread};
use super::lifecycle::State;
use super::{Client, Timer};
use crate::fault::Fault;
use crate::id::StreamId;
use crate::protocol::Era;
use crate::wire::{self, Inbound, SseEvent, SseReader};

/// A stream that stayed open for so long was not in vain, even if it brought nothing.
const GOOD_WHILE: Duration = Duration::from_secs(10);

/// What they bring.
impl Client {
    /// Bytes of a stream.
    pub(super) fn events(
        &mut self,
        stream: StreamId,
        mut reader: Box<SseReader>,
        mut bytes: &[u8],
    ) {
        while let Some(event) = reader.next(&mut bytes) {
            match event {
                SseEvent::Message { name, data } => self.event(stream, name, data),
                SseEvent::NotUtf8 => self.noise("an event that is not UTF-8", b""),
                SseEvent::Oversized(skimmed) => self.oversized(&skimmed),
                SseEvent::Primed => {}
                SseEvent::Retry(pause) => {
                    if let Some(exchange) = self.exchange_mut(stream) {
                        exchange.thread.retry = Some(pause);
                    }
                    continue;
                }
            }
            // Nothing follows a reply (S-HTTP-16).
            let exchange = self.exchange_mut(stream);
            let Some(exchange) = exchange.filter(|e| !matches!(e.purpose, Purpose::Spent)) else {
                return;
            };
            exchange.thread.bears();
            let id = reader.last_id().filter(|id| http::is_nameable(id));
            exchange.thread.cursor = id.map(Into::into);
        }
        self.put_body(stream, Body::Events(reader));
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
        match wire::parse(text) {
            Ok(Inbound::One(message)) => self.message_for(wire, opens.as_deref(), message),
            Ok(Inbound::Batch(batch)) if self.allows_batches() => {
                for message in batch.flatten() {
                    self.message_for(wire, opens.as_deref(), message);
                }
            }
            Ok(Inbound::Batch(_)) => {
                let what = "a batch, which the agreed version does not have";
                self.noise(what, text.as_bytes());
            }
            Err(malformed) => self.malformed(&malformed, text),
        }
        // The reply is the last of it (S-HTTP-15).
        if wire.is_some_and(|wire| !self.is_awaited(wire)) {
            self.spend_exchange(stream);
        }
    }
}

/// How they go on.
impl Client {
    /// The stream of a request ended before its reply came (S-RES-07).
    pub(super) fn broke_off(&mut self, wire: u64, thread: Thread) {
        if !self.is_awaited(wire) {
            return;
        }
        let is_resumable = thread.cursor.is_some()
            && matches!(self.state, State::Ready | State::Draining)
            && self.voice.version().era() == Era::Legacy;
        if is_resumable {
            self.stream_again(Purpose::Resume(wire), thread, Duration::ZERO);
        } else {
            self.lose(wire);
        }
    }

    /// The stream of what the server says by itself ended.
    pub(super) fn listen_broke_off(&mut self, exchange: Exchange) {
        let begun = exchange.begun.unwrap_or(self.now);
        let mut thread = exchange.thread;
        if self.now.since(begun) >= GOOD_WHILE {
            // It is asked for ever less often, and not given up.
            let resumes = self.config.http.as_ref().map_or(0, |http| http.resumes);
            thread.barren = thread.barren.min(resumes.saturating_sub(1));
        }
        self.stream_again(Purpose::Listen, thread, Duration::ZERO);
    }

    /// A stream could not be had this time.
    pub(super) fn stream_failed(&mut self, exchange: Exchange) {
        let pause = exchange.retry_after.unwrap_or(Duration::ZERO);
        self.stream_again(exchange.purpose, exchange.thread, pause);
    }

    /// The stream is to be asked for again, unless too often in a row nothing came of it.
    fn stream_again(&mut self, purpose: Purpose, mut thread: Thread, least: Duration) {
        let Some(http) = &self.config.http else {
            return;
        };
        thread.barren += 1;
        if thread.barren > http.resumes {
            return self.no_stream_for(purpose, "it was asked for again and again");
        }
        let pause = thread.pause(http).max(least.min(http.retry_after_most));
        self.stats.resumes += 1;
        self.begin_in(pause, Exchange::following(purpose, thread));
    }

    /// An exchange without a message is to begin after a while.
    pub(super) fn begin_in(&mut self, pause: Duration, exchange: Exchange) {
        if let Some(web) = &mut self.web {
            let stream = web.add(exchange);
            self.arm_in(Timer::Exchange(stream), pause);
        }
    }

    /// There is no stream for this.
    pub(super) fn no_stream_for(&mut self, purpose: Purpose, why: &str) {
        match purpose {
            Purpose::Listen => self.set_listen(Listen::Off),
            Purpose::Old => self.old_failed(why),
            Purpose::Resume(wire) => {
                // S-RES-08: what is over is perhaps more than this stream.
                self.lose(wire);
                self.probe_now();
            }
            Purpose::Farewell(_) | Purpose::Message | Purpose::Request(_) | Purpose::Spent => {}
        }
    }

    /// The handshake is over on both sides: a legacy server may say something by itself (S-LHTTP-13).
    pub(super) fn gate_opened(&mut self) {
        let is_legacy = self.voice.version().era() == Era::Legacy;
        let is_streamable = self.web.as_ref().is_some_and(|web| web.is_streamable());
        let listens = self.config.http.as_ref().is_some_and(|http| http.listens);
        if is_legacy && is_streamable && listens && self.state == State::Ready {
            self.set_listen(Listen::On);
            self.begin_now(Exchange::new(Purpose::Listen, Load::None));
        }
    }

    pub(super) fn set_listen(&mut self, listen: Listen) {
        if let Some(web) = &mut self.web {
            web.listen = listen;
        }
    }
}

/// The transport of 2024-11-05.
impl Client {
    /// The server is looked for behind it (S-HTTP-41).
    pub(super) fn try_old(&mut self, why: Box<str>) {
        let (Some(web), Some(http)) = (&mut self.web, &self.config.http) else {
            return;
        };
        web.carrier = Carrier::Old { why, posts: None };
        let patience = http.endpoint_timeout;
        self.timers.disarm(Timer::Probe);
        self.arm_in(Timer::Endpoint, patience);
        self.begin_now(Exchange::new(Purpose::Old, Load::None));
    }

    /// The server says where messages go: everything can begin.
    fn endpoint(&mut self, reference: &str) {
        let Some(web) = &mut self.web else {
            return;
        };
        if matches!(&web.carrier, Carrier::Old { posts: Some(_), .. }) {
            return;
        }
        if !web.place(reference.trim()) {
            return self.old_failed("the place for messages is not one of the same server");
        }
        web.is_known_old = true;
        self.timers.disarm(Timer::Endpoint);
        match self.config.versions.newest_of(Era::Legacy) {
            Some(version) => self.proceed(Move::Say(Say::Initialize(version))),
            None => self.old_failed("no version to speak there is configured"),
        }
    }

    /// It is not there, either: both reasons are told.
    pub(super) fn old_failed(&mut self, why: &str) {
        let Some(web) = &mut self.web else {
            return;
        };
        web.is_known_old = false;
        let Carrier::Old { why: first, .. } = &web.carrier else {
            return;
        };
        let both = format!("{first}; nor is it behind the transport of 2024-11-05: {why}");
        self.proceed(Move::Refused(both.into()));
    }

    /// Where messages go is not said in time, or `initialize` is not answered at all.
    pub(super) fn endpoint_overdue(&mut self) {
        let carrier = self.web.as_ref().map(|web| &web.carrier);
        match carrier {
            Some(Carrier::Old { posts: None, .. }) => {
                self.old_failed("it did not say in time where messages go");
            }
            Some(Carrier::Streamable) if self.state == State::Handshaking => {
                self.try_old("`initialize` was not answered".into());
            }
            Some(_) | None => {}
        }
    }

    /// S-SSE-06: with its stream, the connection is over.
    pub(super) fn old_stream_ended(&mut self, faults: &[Fault]) {
        self.note(faults);
        let has_place = self.web.as_ref().is_some_and(|web| match &web.carrier {
            Carrier::Old { posts, .. } => posts.is_some(),
            Carrier::Streamable => false,
        });
        if has_place {
            self.down(Cause::Died);
        } else {
            self.old_failed("the stream ended before it said where messages go");
        }
    }
}
