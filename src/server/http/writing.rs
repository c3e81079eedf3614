//! Writes queued messages over HTTP, as JSON or as events. Chooses their status, and stores them for clients that lose their stream.

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
use crate::driver::{Epoch, Output, RequestId, StreamId};
use crate::http::{ResponseHead, names};
use crate::protocol::{Version, code};
use crate::wire::sse;

impl Server {
    /// Writes the next message of a lane. The first message decides the format: a reply alone is JSON, if the client accepts it. Anything
    /// before the reply makes the response an event stream.
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
        // A refusal keeps its status, even if the client does not accept JSON (S-HTTP-27).
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

    /// Ends the response on which a request waits for its reply, while the request continues (S-LHTTP-09). This happens only if the client
    /// can come back for the reply: in a session, with the id of an event to resume from.
    pub(in crate::server) fn hang_up_on(&mut self, request: RequestId) -> Result<(), Misuse> {
        let arrival = &self.open_request(request)?.arrival;
        let lane = arrival.lane;
        // The stream of the transport of 2024-11-05 is not the response to a request.
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
        // A client that accepts only JSON gets no event ids.
        if let Some((stream, exchange)) = exchange.filter(|(_, exchange)| exchange.takes.sse) {
            if exchange.has_begun && self.lanes.is_empty(lane) {
                self.let_go(stream, lane, true);
            } else {
                exchange.hangs_up = true;
            }
        }
        Ok(())
    }

    /// Ends an exchange. Its lane remains, without a carrier.
    fn let_go(&mut self, stream: StreamId, lane: Lane, had_begun: bool) {
        if had_begun {
            self.end_exchange(stream);
        } else {
            self.retire(stream);
        }
        self.abandon(lane);
    }

    /// Ends an exchange after its last message (S-HTTP-15).
    fn finish(&mut self, stream: StreamId, lane: Lane, had_begun: bool) {
        let http = self.http.as_mut();
        let exchange = http.and_then(|http| http.exchanges.get_mut(stream));
        if had_begun || exchange.is_none() {
            return self.end_lane(lane);
        }
        self.retire(stream);
        self.end_lane(lane);
    }

    /// Appends a message or a signal to an event stream.
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

    /// Begins an event stream. If the version has it, the first event has no data and an id to resume from (S-LHTTP-08). Otherwise a
    /// comment is the first output (F-043).
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

    /// Stores the messages of a loose lane until a client asks for them, or drops them if replay is disabled (F-105).
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

    /// Stores a message of a session. Returns the name of its stream, and its number.
    fn hold(&mut self, lane: Lane, message: &[u8]) -> Option<(u64, u64)> {
        let (key, name) = self.name_of(lane).filter(|_| self.has_replay())?;
        let http = self.http.as_mut()?;
        let session = http.sessions.get(key).filter(|session| !session.is_sse)?;
        let message = core::str::from_utf8(message).ok()?;
        Some((name, http.events.append(&session.id, name, message)))
    }

    /// The session of a lane, and the name of its stream in that session.
    fn name_of(&self, lane: Lane) -> Option<(SessionKey, u64)> {
        let http = self.http.as_ref()?;
        match lane {
            Lane::Session(key) => Some((key, STANDALONE)),
            Lane::Stream(stream) => http.sessions.of(stream),
        }
    }

    /// Records that an event was written to the standalone stream of a session.
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

    /// Keeps the buffer for reuse, shrunk to at most 64 KiB.
    fn give_scratch(&mut self, mut scratch: Vec<u8>) {
        scratch.clear();
        scratch.shrink_to(64 << 10);
        if let Some(http) = &mut self.http {
            http.scratch = scratch;
        }
    }

    /// The status of a reply that is sent as JSON.
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

    /// The code of the application's error, if the frame is such a reply.
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

/// # Messages before the reply
impl Server {
    /// Whether a lane can carry anything but the reply. A client that accepts only JSON gets nothing else.
    pub(in crate::server) fn can_hear_more(&self, lane: Lane) -> bool {
        let Some(http) = &self.http else {
            return true;
        };
        let carrier = http.exchanges.carrier(lane);
        let exchange = carrier.and_then(|stream| http.exchanges.get(stream));
        exchange.is_none_or(|exchange| exchange.takes.sse)
    }

    /// Whether an exchange carries a lane.
    fn is_attached(&self, lane: Lane) -> bool {
        let http = self.http.as_ref();
        http.is_none_or(|http| http.exchanges.carrier(lane).is_some())
    }

    /// The lane for an ask that belongs to a request. If the lane of the request cannot carry it, this is the lane of the session
    /// (S-LHTTP-15).
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

    /// Begins the event stream of a legacy client that can resume it, so that a broken connection loses nothing.
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
