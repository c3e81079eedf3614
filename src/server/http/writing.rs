//! How what waits leaves over HTTP: as JSON or as events, held for those who lose their stream, with the status that it has.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::super::Server;
use super::super::event::{Event, State};
use super::super::frame::{Answer, Frame, Signal};
use super::super::misuse::Misuse;
use super::super::origin::{Lane, SessionKey};
use super::super::reply::Verdict;
use super::super::requests::{Arrival, Phase};
use super::ladder::{self, Blame, JSON, Refusal};
use super::session::{STANDALONE, event_id};
use crate::http::{ResponseHead, names};
use crate::id::{Epoch, RequestId, StreamId};
use crate::io::Output;
use crate::protocol::{Version, code};
use crate::wire::sse;

impl Server {
    /// What is said next on a way over HTTP. The first thing decides: the answer alone is JSON, if that is taken; anything before it makes it
    /// a stream of events.
    pub(in crate::server) fn write_http(
        &mut self,
        lane: Lane,
        buf: &mut Vec<u8>,
    ) -> Option<Output<Event>> {
        let frame = self.lanes.pop(lane)?;
        let exchanges = &self.http.as_ref()?.exchanges;
        let stream = exchanges.carrier(lane)?;
        let exchange = exchanges.get(stream)?;
        let (had_begun, hangs_up) = (exchange.has_begun, exchange.hangs_up);
        let takes_json = exchange.takes.json;
        let status = (!had_begun && frame.is_answer()).then(|| self.status_of(stream, &frame));
        // A refusal is told by its status, whatever else is accepted (S-HTTP-27).
        let status = status.filter(|status| takes_json || *status >= 400);
        let is_json = status.is_some();
        let start = buf.len();
        let status = if let Some(status) = status {
            self.say(buf, lane, frame);
            status
        } else {
            self.say_event(buf, lane, frame);
            200
        };
        if buf.len() == start {
            return None;
        }
        let len = buf.len() - start;
        self.wrote(lane, len);
        let is_last = is_json || self.lanes.is_done(lane);
        let hangs_up = hangs_up && !is_last && self.lanes.is_empty(lane);
        let epoch = Epoch::FIRST;
        let output = if had_begun {
            Output::Write { epoch, stream, len }
        } else {
            Output::Response {
                epoch,
                stream,
                head: self.head(stream, status, is_json),
                len,
                is_whole: is_last || hangs_up,
            }
        };
        if is_last {
            self.finish(stream, lane, had_begun);
        } else if hangs_up {
            self.let_go(stream, lane, had_begun);
        } else {
            self.put_off_pulse(stream);
        }
        self.weigh(stream);
        self.cut_unread(stream);
        Some(output)
    }

    fn head(&mut self, stream: StreamId, status: u16, is_json: bool) -> Box<ResponseHead<'static>> {
        let http = self.http.as_mut();
        let exchange = http.and_then(|http| http.exchanges.get_mut(stream));
        let own = exchange.map(|exchange| {
            exchange.has_begun = !is_json;
            core::mem::take(&mut exchange.fields)
        });
        let mut fields = own.unwrap_or_default();
        if is_json {
            fields.push(names::CONTENT_TYPE, JSON);
        } else {
            fields.extend(ladder::head_of_events());
        }
        if status == 503 && !fields.has(names::RETRY_AFTER) {
            fields.extend(Refusal::busy("").fields);
        }
        self.let_pages_read(stream, &mut fields);
        Box::new(ResponseHead::new(status).with_fields(fields))
    }

    /// S-LHTTP-09: a request goes on without the exchange on which it waits for its answer, where its client can come back for that: in a session,
    /// and knowing from which event on.
    pub(in crate::server) fn hang_up_on(&mut self, request: RequestId) -> Result<(), Misuse> {
        let arrival = &self.open_request(request)?.arrival;
        let lane = arrival.lane;
        // The stream of the transport of 2024-11-05 is no answer to a request.
        let is_primed = arrival.session.is_some()
            && matches!(lane, Lane::Stream(_))
            && arrival.peer.version >= Version::V2025_11_25
            && self.has_replay();
        let exchanges = self.http.as_mut().map(|http| &mut http.exchanges);
        let Some(exchanges) = exchanges.filter(|_| is_primed) else {
            return Ok(());
        };
        let stream = exchanges.carrier(lane);
        let exchange = stream.and_then(|stream| Some((stream, exchanges.get_mut(stream)?)));
        // One that takes nothing but JSON is told of no event.
        if let Some((stream, exchange)) = exchange.filter(|(_, exchange)| exchange.takes.sse) {
            if exchange.has_begun && self.lanes.is_empty(lane) {
                self.let_go(stream, lane, true);
            } else {
                exchange.hangs_up = true;
            }
        }
        Ok(())
    }

    /// An exchange ends, and the way that it carried goes on without it.
    fn let_go(&mut self, stream: StreamId, lane: Lane, had_begun: bool) {
        if had_begun {
            self.end_exchange(stream);
        } else {
            self.retire(stream);
        }
        self.abandon(lane);
    }

    /// All was said on an exchange (S-HTTP-15).
    fn finish(&mut self, stream: StreamId, lane: Lane, had_begun: bool) {
        let http = self.http.as_mut();
        let exchange = http.and_then(|http| http.exchanges.get_mut(stream));
        if had_begun || exchange.is_none() {
            return self.end_lane(lane);
        }
        self.retire(stream);
        self.end_lane(lane);
    }

    /// Appends an event, or what else there is in a stream of them.
    fn say_event(&mut self, buf: &mut Vec<u8>, lane: Lane, frame: Frame) {
        if let Frame::Signal(signal) = frame {
            return self.say_signal(buf, lane, signal);
        }
        let mut message = self.take_scratch();
        self.say(&mut message, lane, frame);
        if !message.is_empty() {
            let held = self.hold(lane, &message);
            let id = held.map(|(name, number)| {
                self.heard(lane, number);
                event_id(name, number)
            });
            let name = self.is_sse(lane).then_some("message");
            sse::begin(buf, id.as_deref(), name);
            buf.extend_from_slice(&message);
            sse::end(buf);
        }
        self.give_scratch(message);
    }

    fn say_signal(&mut self, buf: &mut Vec<u8>, lane: Lane, signal: Signal) {
        match signal {
            Signal::Begin(after) => self.say_beginning(buf, lane, after),
            Signal::Comment => sse::comment(buf),
            Signal::Endpoint(place) => {
                sse::begin(buf, None, Some("endpoint"));
                buf.extend_from_slice(place.as_bytes());
                sse::end(buf);
            }
            Signal::Replayed(number, message) => {
                let name = self.name_of(lane).map(|(_, name)| name);
                let id = name.map(|name| event_id(name, number));
                self.heard(lane, number);
                sse::begin(buf, id.as_deref(), None);
                buf.extend_from_slice(message.as_bytes());
                sse::end(buf);
            }
        }
    }

    /// S-LHTTP-08: an event without data, from which a client can resume, where the version knows it; else a first byte (F-043).
    fn say_beginning(&mut self, buf: &mut Vec<u8>, lane: Lane, after: u64) {
        let named = self.name_of(lane).filter(|_| self.has_replay());
        let primed = named.filter(|(session, _)| {
            let scope = self.scopes.get(session);
            scope.is_some_and(|scope| scope.peer.version >= Version::V2025_11_25)
        });
        match (primed, &self.config.http) {
            (Some((_, name)), Some(config)) => {
                sse::prime(buf, &event_id(name, after), Some(config.retry));
            }
            (_, _) => sse::comment(buf),
        }
    }

    /// What is loose is held until somebody asks for it, or dropped where nothing is held (F-105).
    pub(super) fn keep_for_later(&mut self, lane: Lane) {
        let mut message = self.take_scratch();
        while let Some(frame) = self.lanes.pop(lane) {
            message.clear();
            self.say(&mut message, lane, frame);
            if !message.is_empty() && self.hold(lane, &message).is_none() {
                self.stats.answers_dropped += 1;
            }
        }
        self.give_scratch(message);
    }

    /// Holds a message of a session. The name of its stream, and its number.
    fn hold(&mut self, lane: Lane, message: &[u8]) -> Option<(u64, u64)> {
        let (key, name) = self.name_of(lane).filter(|_| self.has_replay())?;
        let http = self.http.as_mut()?;
        let session = http.sessions.get(key).filter(|session| !session.is_sse)?;
        let message = core::str::from_utf8(message).ok()?;
        Some((name, http.events.append(&session.id, name, message)))
    }

    /// The session that a way belongs to, and the name of its stream there.
    fn name_of(&self, lane: Lane) -> Option<(SessionKey, u64)> {
        let http = self.http.as_ref()?;
        match lane {
            Lane::Session(key) => Some((key, STANDALONE)),
            Lane::Stream(stream) => http.sessions.of(stream),
        }
    }

    /// An event was written to the stream that belongs to no request.
    fn heard(&mut self, lane: Lane, number: u64) {
        let (Some(http), Lane::Session(key)) = (&mut self.http, lane) else {
            return;
        };
        if let Some(session) = http.sessions.get_mut(key) {
            session.heard = session.heard.max(number);
        }
    }

    fn is_sse(&self, lane: Lane) -> bool {
        let (Some(http), Lane::Session(key)) = (&self.http, lane) else {
            return false;
        };
        http.sessions.get(key).is_some_and(|session| session.is_sse)
    }

    fn take_scratch(&mut self) -> Vec<u8> {
        let http = self.http.as_mut();
        http.map_or_else(Vec::new, |http| core::mem::take(&mut http.scratch))
    }

    /// It is used again, unless one long message made it large.
    fn give_scratch(&mut self, mut scratch: Vec<u8>) {
        scratch.clear();
        scratch.shrink_to(64 << 10);
        if let Some(http) = &mut self.http {
            http.scratch = scratch;
        }
    }

    /// The status of an answer that is JSON.
    fn status_of(&self, stream: StreamId, frame: &Frame) -> u16 {
        let http = self.http.as_ref();
        let exchange = http.and_then(|http| http.exchanges.get(stream));
        if let Some(status) = exchange.and_then(|exchange| exchange.status) {
            return status;
        }
        let is_in_session = exchange.is_some_and(|exchange| exchange.session.is_some());
        if let Frame::Answer(_, Answer::Error(error)) = frame {
            let ends = self.state == State::Draining && error.code == code::INTERNAL_ERROR;
            let blame = if is_in_session && !ends {
                Blame::Session
            } else {
                Blame::Server
            };
            return ladder::status(error.code, blame);
        }
        match self.error_in(frame) {
            Some(code) if !is_in_session => ladder::status(code, Blame::Application),
            Some(_) | None => 200,
        }
    }

    /// The code of the error with which the application answers, if it does.
    fn error_in(&self, frame: &Frame) -> Option<i64> {
        let Frame::Reply(request, _) = frame else {
            return None;
        };
        let entry = self.requests.get(*request)?;
        if let Phase::Answered(Verdict::Error(error)) = &entry.phase {
            return Some(error.code);
        }
        None
    }
}

/// # What else can be said about a request
impl Server {
    /// Whether anything but the answer can be said on a way: not to a client that takes nothing but JSON.
    pub(in crate::server) fn can_hear_more(&self, lane: Lane) -> bool {
        let Some(http) = &self.http else {
            return true;
        };
        let carrier = http.exchanges.carrier(lane);
        let exchange = carrier.and_then(|stream| http.exchanges.get(stream));
        exchange.is_none_or(|exchange| exchange.takes.sse)
    }

    /// Whether somebody is at the end of a way.
    fn is_attached(&self, lane: Lane) -> bool {
        let http = self.http.as_ref();
        http.is_none_or(|http| http.exchanges.carrier(lane).is_some())
    }

    /// The way for a question that belongs to a request: where that cannot be one, the one for all else (S-LHTTP-15).
    pub(in crate::server) fn lane_for_more(&self, arrival: &Arrival) -> Lane {
        match arrival.session {
            Some(session) if !self.can_hear_more(arrival.lane) => session.lane(),
            Some(session)
                if !self.is_attached(arrival.lane)
                    && (!self.has_replay() || self.is_attached(session.lane())) =>
            {
                session.lane()
            }
            Some(_) | None => arrival.lane,
        }
    }

    /// A legacy client that can resume a stream gets its head at once: then a cut costs it nothing.
    pub(in crate::server) fn begin_at_once(&mut self, arrival: &Arrival) {
        let (Some(http), Lane::Stream(stream)) = (&self.http, arrival.lane) else {
            return;
        };
        let exchange = http.exchanges.get(stream);
        let can_begin = exchange.is_some_and(|exchange| exchange.takes.sse && !exchange.has_begun);
        let is_batch = !self.lanes.is_empty(arrival.lane);
        if arrival.session.is_some() && can_begin && !is_batch && self.has_replay() {
            let begin = Frame::Signal(Signal::Begin(0));
            self.lanes.push(arrival.lane, begin);
        }
    }
}
