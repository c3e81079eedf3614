//! The server end over HTTP: how exchanges begin, what they carry, and how they end. An exchange is one HTTP request and its response.
//!
//! This module and some of its children are part of the machine, split by subject:
//!
//! - This module handles the inputs and the end of an exchange.
//! - `post` handles posted messages; `writing` writes queued messages.
//! - `streams` handles the streams and sessions of legacy clients; `sse` handles those of the transport of 2024-11-05.
//! - `refusals` reports refused requests to the application; `room` makes room when a shared limit is reached.
//!
//! The other children know neither the machine nor each other:
//!
//! - `config` holds the settings; `cors` tells browsers which web pages may use the server.
//! - `ladder` validates the head of a request; `exchange` holds the open exchanges.
//! - `session` holds the sessions; `store` stores them and their messages.
//! - `shares` ranks the clients that give way when a limit is reached; `tools` knows which arguments are repeated in header fields.

mod config;
mod cors;
mod exchange;
mod ladder;
mod post;
mod refusals;
mod room;
mod session;
mod shares;
mod sse;
mod store;
mod streams;
mod tools;
mod writing;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

pub use config::{Allowed, Http, Replay, SsePaths};
pub use store::{EventStore, MemoryEvents, MemorySessions, SessionRecord, SessionStore};

pub(super) use ladder::mismatch;

use exchange::{Asked, Exchange, Exchanges, Route, Takes};
use ladder::Refusal;
use refusals::{Refusals, Source};
use session::Sessions;
use shares::Shares;
use tools::{Audience, Tools};

use super::event::{Cancelled, RefusalCause, State};
use super::frame::{Answer, Frame, Signal};
use super::lanes::Kind;
use super::origin::{Lane, SessionKey, Whose};
use super::{Server, Timer};
use crate::driver::{Epoch, Fault, FaultKind, Input, Output, StreamId, TICK};
use crate::http::{Fields, RequestHead, ResponseHead, Verb, names};
use crate::json::Payload;
use crate::protocol::Era;

/// The error text for a client for which no session is left (F-110).
const FULL: &str = "as many clients as may be are here already; come back later";

/// The number of keepalive intervals after which a client that reads nothing counts as gone.
const PULSES_STUCK: u32 = 4;

/// Whether the fault only reports an orderly end of the stream.
fn is_orderly(fault: &Fault) -> bool {
    fault.kind() == FaultKind::Closed
}

/// State that exists only over HTTP.
pub(super) struct Endpoint {
    exchanges: Exchanges,
    sessions: Sessions,
    /// The store that keeps sessions for other servers. `None` if there are no sessions but the local ones.
    records: Option<Box<dyn SessionStore>>,
    /// The store for the messages that were sent in sessions.
    events: Box<dyn EventStore>,
    tools: Tools,
    shares: Shares,
    refusals: Refusals,
    /// The value of `Access-Control-Allow-Origin` for responses that have not begun, if they get one.
    granted: BTreeMap<StreamId, Cow<'static, str>>,
    /// The buffer in which messages are encoded before they become events.
    scratch: Vec<u8>,
}

impl Endpoint {
    pub(super) fn new(
        secret: [u8; 16],
        records: Option<Box<dyn SessionStore>>,
        events: Box<dyn EventStore>,
    ) -> Endpoint {
        Endpoint {
            exchanges: Exchanges::default(),
            sessions: Sessions::new(secret),
            records,
            events,
            tools: Tools::default(),
            shares: Shares::default(),
            refusals: Refusals::default(),
            granted: BTreeMap::new(),
            scratch: Vec::new(),
        }
    }
}

/// # Inputs of an exchange
impl Server {
    pub(super) fn exchanged(&mut self, stream: StreamId, input: Input<'_>) {
        let is_heard = match input {
            Input::Request { head, .. } => self.exchange_begun(stream, *head),
            Input::Bytes { bytes, .. } => self.body_grown(stream, &bytes),
            Input::End { faults, .. } if faults.iter().all(is_orderly) => {
                self.body_complete(stream)
            }
            Input::End { .. } | Input::WriteFailed { .. } => self.client_gone(stream),
            Input::Sent { len, .. } => self.body_sent(stream, len),
            Input::Exited { .. }
            | Input::OpenFailed { .. }
            | Input::Opened
            | Input::Response { .. }
            | Input::Stderr { .. }
            | Input::Activity { .. } => false,
        };
        if !is_heard {
            self.stats.stale_inputs += 1;
        }
    }

    fn exchange_begun(&mut self, stream: StreamId, head: RequestHead<'_>) -> bool {
        let is_legacy = self.speaks(Era::Legacy);
        let Some(http) = self.http.as_ref() else {
            return false;
        };
        if http.exchanges.has(stream) {
            return false;
        }
        let is_full = http.exchanges.len() >= self.config.limits.exchanges;
        if self.answers_preflight(stream, is_legacy, &head) {
            return true;
        }
        if is_full && !self.free_exchange() {
            let refusal = Refusal::busy("as many requests are open as may be");
            self.stats.refused += 1;
            self.tell_refusal(Source::of_head(&head), &refusal);
            self.respond_empty(stream, refusal.status, refusal.fields);
            return true;
        }
        let (Some(http), Some(config)) = (&mut self.http, &self.config.http) else {
            return false;
        };
        match ladder::look(config, is_legacy, &head) {
            Ok(asked) => {
                let all = http.exchanges.read(stream, asked);
                self.arm_in(Timer::Body(stream), config.body_timeout);
                self.relieve(all);
            }
            Err(refusal) => self.turn_away(stream, Source::of_head(&head), refusal),
        }
        true
    }

    /// Answers a CORS preflight. For any other request, records whether the browser's page may read the response. Returns whether the
    /// request was a preflight.
    fn answers_preflight(
        &mut self,
        stream: StreamId,
        is_legacy: bool,
        head: &RequestHead<'_>,
    ) -> bool {
        let (Some(http), Some(config)) = (&mut self.http, &self.config.http) else {
            return false;
        };
        if let Some(fields) = ladder::preflight(config, is_legacy, head) {
            self.respond_empty(stream, 204, fields);
            return true;
        }
        if let Some(granted) = cors::granted(config, &head.fields) {
            http.granted.insert(stream, granted);
        }
        false
    }

    fn body_grown(&mut self, stream: StreamId, bytes: &[u8]) -> bool {
        let http = self.http.as_mut();
        let Some((body, all)) = http.and_then(|http| http.exchanges.grow(stream, bytes)) else {
            return false;
        };
        self.stats.bytes_in += bytes.len() as u64;
        let limits = &self.config.limits;
        if body > limits.message_bytes {
            let most = limits.message_bytes;
            let text = alloc::format!("the message is longer than {most} bytes, which is the most");
            let refusal = Refusal::new(413, text).because(RefusalCause::Size);
            self.give_up(stream, refusal);
        } else {
            self.relieve(all);
        }
        true
    }

    /// Refuses the largest arriving request if all of them together are too large. Clients that send little are not affected.
    fn relieve(&mut self, arriving: usize) {
        let limits = &self.config.limits;
        if arriving <= limits.body_bytes.max(limits.message_bytes) {
            return;
        }
        let http = self.http.as_ref();
        if let Some(largest) = http.and_then(|http| http.exchanges.largest()) {
            self.give_up(largest, Refusal::busy("too much arrives at once"));
        }
    }

    fn body_complete(&mut self, stream: StreamId) -> bool {
        let Some(asked) = self.take_asked(stream) else {
            return false;
        };
        let done = match (&asked.route, asked.verb) {
            (Route::SseMessages(session), _) => self.sse_posted(stream, session, &asked),
            (Route::SseStream, _) => self.sse_opened(stream, &asked),
            (Route::Endpoint, Verb::Delete) => self.session_deleted(stream, &asked),
            (Route::Endpoint, Verb::Get) => self.stream_wanted(stream, &asked),
            (Route::Endpoint, Verb::Options | Verb::Other | Verb::Post) => {
                self.posted(stream, &asked)
            }
        };
        if let Err(refusal) = done {
            let source = self.source_of(&asked);
            self.turn_away(stream, source, refusal);
        }
        true
    }

    pub(super) fn body_overdue(&mut self, stream: StreamId) {
        self.give_up(
            stream,
            Refusal::new(408, "the message took too long to arrive"),
        );
    }

    /// Refuses a request without waiting for the rest of its body.
    fn give_up(&mut self, stream: StreamId, refusal: Refusal) {
        if let Some(asked) = self.take_asked(stream) {
            let source = self.source_of(&asked);
            self.turn_away(stream, source, refusal);
        }
    }

    fn take_asked(&mut self, stream: StreamId) -> Option<Asked> {
        self.timers.disarm(Timer::Body(stream));
        self.http.as_mut()?.exchanges.take(stream)
    }

    fn body_sent(&mut self, stream: StreamId, len: usize) -> bool {
        let Some(http) = &mut self.http else {
            return false;
        };
        if let Some(exchange) = http.exchanges.get_mut(stream) {
            let lane = exchange.lane;
            exchange.stuck = 0;
            self.sent(lane, len);
            self.weigh(stream);
            return true;
        }
        let is_known = http.exchanges.read_out(stream, len);
        if !http.exchanges.has(stream) {
            self.timers.disarm(Timer::Pulse(stream));
        }
        if is_known {
            self.weigh(stream);
            // Any read extends the flush deadline, even of an exchange that is finished.
            self.read_on(len);
        }
        is_known
    }

    /// Handles the disconnect of the client of an exchange. In the modern era, this cancels the client's request (S-HTTP-23). In the legacy
    /// era it cancels nothing, and further messages wait for another stream. A session of the 2024-11-05 transport ends with its stream.
    fn client_gone(&mut self, stream: StreamId) -> bool {
        if let Some(http) = &mut self.http {
            http.granted.remove(&stream);
        }
        if self.take_asked(stream).is_some() {
            return true;
        }
        self.timers.disarm(Timer::Pulse(stream));
        let Some(http) = &mut self.http else {
            return false;
        };
        http.shares.unread.set(stream, 0);
        let Some(exchange) = http.exchanges.close(stream) else {
            return http.exchanges.forget(stream);
        };
        let lane = exchange.lane;
        let is_of_session = match lane {
            Lane::Session(session) => {
                let known = http.sessions.get(session);
                if known.is_some_and(|known| known.is_sse) {
                    self.end_session(session, true);
                    return true;
                }
                true
            }
            Lane::Stream(born) => http.sessions.of(born).is_some(),
        };
        if is_of_session {
            self.abandon(lane);
            self.touch(exchange.session);
        } else {
            self.cancel_all(Whose::Stream(stream));
            self.lanes.remove(lane);
        }
        true
    }

    /// Detaches a lane of a session. Its client may never come back.
    fn abandon(&mut self, lane: Lane) {
        self.lanes.detach(lane);
        if let (Some(http), Lane::Stream(born)) = (&mut self.http, lane) {
            http.shares.abandoned.insert(born);
        }
    }

    /// Cancels every request and watch whose id is of this scope.
    fn cancel_all(&mut self, whose: Whose) {
        for wire in self.watchers.of(whose) {
            self.watchers.unlisten(&wire);
        }
        for request in self.requests.of(whose) {
            self.cancel(request, Cancelled::PeerGone);
        }
        self.forget_early(whose);
    }
}

/// # The response of an exchange
impl Server {
    /// Opens the response of an exchange, on a lane of its own.
    fn open_exchange(&mut self, stream: StreamId, takes: Takes, session: Option<SessionKey>) {
        let lane = Lane::Stream(stream);
        let mut exchange = Exchange::new(lane, takes);
        exchange.session = session;
        self.lanes.add(lane, Kind::Answering);
        self.carry(stream, exchange);
        if let (Some(http), Some(session)) = (&mut self.http, session) {
            http.sessions.bear(session, stream);
            self.rank_session(session);
        }
    }

    /// Makes an exchange the carrier of its lane.
    fn carry(&mut self, stream: StreamId, exchange: Exchange) {
        self.lanes.attach(exchange.lane);
        if let Some(http) = &mut self.http {
            let session = exchange.session;
            if let Lane::Stream(born) = exchange.lane {
                http.shares.abandoned.remove(&born);
            }
            http.exchanges.open(stream, exchange);
            if let Some(session) = session {
                self.rank_session(session);
            }
        }
        self.arm_pulse(stream);
    }

    /// Answers an exchange with a refusal and nothing else.
    fn turn_away(&mut self, stream: StreamId, source: Source, refusal: Refusal) {
        self.tell_refusal(source, &refusal);
        let takes = Takes {
            json: true,
            sse: false,
        };
        self.open_exchange(stream, takes, None);
        let http = self.http.as_mut();
        if let Some(exchange) = http.and_then(|http| http.exchanges.get_mut(stream)) {
            exchange.status = Some(refusal.status);
            exchange.fields = refusal.fields;
        }
        self.stats.refused += 1;
        let frame = Frame::Answer(refusal.id, Answer::Error(refusal.error));
        self.lanes.push(Lane::Stream(stream), frame);
    }

    /// Sets status 200 for the reply on this lane, unless a status is set. An error of the application needs this, because clients in use
    /// do not read the body of a response with another status.
    pub(in crate::server) fn answer_in_good_order(&mut self, lane: Lane) {
        let http = self.http.as_mut();
        let exchange = http.and_then(|http| {
            let stream = http.exchanges.carrier(lane)?;
            http.exchanges.get_mut(stream)
        });
        if let Some(exchange) = exchange {
            exchange.status.get_or_insert(200);
        }
    }

    /// Answers an exchange without a body.
    fn respond_empty(&mut self, stream: StreamId, status: u16, mut fields: Fields<'static>) {
        self.let_pages_read(stream, &mut fields);
        let head = ResponseHead::new(status).with_fields(fields);
        self.outbox.push(Output::Response {
            epoch: Epoch::FIRST,
            stream,
            head: Box::new(head),
            len: 0,
            is_whole: true,
        });
    }

    /// Adds the CORS fields to a response that the browser's page may read.
    fn let_pages_read(&mut self, stream: StreamId, fields: &mut Fields<'static>) {
        let http = self.http.as_mut();
        if let Some(granted) = http.and_then(|http| http.granted.remove(&stream)) {
            fields.extend(cors::fields(granted));
        }
    }

    /// Ends an exchange at once, even if more messages are queued for it.
    fn end_exchange(&mut self, stream: StreamId) {
        let Some(exchange) = self.retire(stream) else {
            return;
        };
        if exchange.has_begun {
            let epoch = Epoch::FIRST;
            self.outbox.push(Output::Finish { epoch, stream });
        } else {
            // A request that was cancelled has no reply.
            let status = exchange.status.unwrap_or(202);
            self.respond_empty(stream, status, Fields::new());
        }
    }

    /// Closes an exchange for writing; written bytes may still be unread. Returns the exchange.
    fn retire(&mut self, stream: StreamId) -> Option<Exchange> {
        let most = self.config.limits.exchanges;
        let http = self.http.as_mut()?;
        let lane = http.exchanges.get(stream)?.lane;
        let under_way = self.lanes.under_way(lane);
        let exchange = http.exchanges.finish(stream, under_way, most)?;
        if under_way > 0 {
            self.arm_pulse(stream);
        } else {
            self.timers.disarm(Timer::Pulse(stream));
        }
        // Messages that are still queued no longer count as unread, because this exchange does not write them.
        self.weigh(stream);
        self.touch(exchange.session);
        Some(exchange)
    }

    /// Removes a lane and ends the exchange that carried it.
    fn end_lane(&mut self, lane: Lane) {
        let http = self.http.as_ref();
        if let Some(stream) = http.and_then(|http| http.exchanges.carrier(lane)) {
            self.end_exchange(stream);
        }
        self.lanes.remove(lane);
        if let (Some(http), Lane::Stream(stream)) = (&mut self.http, lane) {
            let session = http.sessions.of(stream);
            http.sessions.bury(stream);
            http.shares.abandoned.remove(&stream);
            if let Some((session, _)) = session {
                self.rank_session(session);
            }
        }
    }

    /// Stores the messages of loose lanes, and ends the lanes that are done.
    pub(super) fn settle_lanes(&mut self) {
        while let Some(lane) = self.lanes.next_loose() {
            self.keep_for_later(lane);
        }
        while let Some(lane) = self.lanes.next_done() {
            self.end_lane(lane);
        }
    }

    fn arm_pulse(&mut self, stream: StreamId) {
        if let Some(config) = &self.config.http {
            self.arm_in(Timer::Pulse(stream), config.keepalive);
        }
    }

    /// Postpones the keepalive of an exchange on which something was just written. The timer stays as it is, because most exchanges end
    /// before it fires. If it fires early, `pulse` arms it again.
    fn put_off_pulse(&mut self, stream: StreamId) {
        let (Some(http), Some(config)) = (&mut self.http, &self.config.http) else {
            return;
        };
        if let Some(exchange) = http.exchanges.get_mut(stream) {
            exchange.quiet_from = self.now + config.keepalive.max(TICK);
        }
    }

    /// Sends a keepalive on a silent exchange, so that proxies see that it is alive, even before the first message (F-043). Closes the
    /// exchange if its client reads nothing for `PULSES_STUCK` intervals.
    pub(super) fn pulse(&mut self, stream: StreamId) {
        let http = self.http.as_ref();
        let Some(exchange) = http.and_then(|http| http.exchanges.get(stream)) else {
            return self.pulse_after(stream);
        };
        if exchange.quiet_from > self.now {
            return self.timers.arm(Timer::Pulse(stream), exchange.quiet_from);
        }
        let lane = exchange.lane;
        let is_read = self.lanes.under_way(lane) == 0;
        let is_quiet = self.lanes.is_empty(lane) && is_read;
        // The response to a request that waits for the offer cannot begin, because its status and session are not known yet.
        let is_early = self.early.is_on(lane);
        if is_quiet && exchange.has_begun {
            self.lanes.push(lane, Frame::Signal(Signal::Comment));
        } else if is_quiet && exchange.takes.sse && !is_early {
            self.lanes.push(lane, Frame::Signal(Signal::Begin(0)));
        }
        if !is_read && self.is_stuck(stream) {
            self.cut(stream);
        } else {
            self.arm_pulse(stream);
        }
    }

    /// Closes a finished exchange whose client reads nothing for `PULSES_STUCK` intervals, so that others can have its place.
    fn pulse_after(&mut self, stream: StreamId) {
        let Some(http) = &mut self.http else {
            return;
        };
        match http.exchanges.unread(stream) {
            Some(times) if times >= PULSES_STUCK => self.cut(stream),
            Some(_) => self.arm_pulse(stream),
            None => {}
        }
    }

    /// Counts one more interval without a read. Returns whether there were `PULSES_STUCK` in a row.
    fn is_stuck(&mut self, stream: StreamId) -> bool {
        let http = self.http.as_mut();
        let Some(exchange) = http.and_then(|http| http.exchanges.get_mut(stream)) else {
            return false;
        };
        exchange.stuck += 1;
        exchange.stuck >= PULSES_STUCK
    }
}

/// # The shutdown
impl Server {
    /// Ends the standalone streams of sessions, because nothing more is sent on them and no client should wait (F-101).
    pub(super) fn end_streams(&mut self) {
        let Some(http) = &self.http else {
            return;
        };
        let is_standalone = |session| {
            let session = http.sessions.get(session);
            session.is_some_and(|session| !session.is_sse)
        };
        let answering = http.exchanges.answering();
        let standalone: Vec<(StreamId, Lane)> = answering
            .filter(|(_, exchange)| match exchange.lane {
                Lane::Session(session) => is_standalone(session),
                Lane::Stream(_) => false,
            })
            .map(|(stream, exchange)| (stream, exchange.lane))
            .collect();
        for (stream, lane) in standalone {
            self.end_exchange(stream);
            self.lanes.detach(lane);
        }
    }

    /// Refuses all requests whose bodies are incomplete, so that their clients know that they were not processed.
    pub(super) fn refuse_arriving(&mut self) {
        let http = self.http.as_ref();
        let arriving = http.map(|http| http.exchanges.arriving());
        for stream in arriving.unwrap_or_default() {
            self.give_up(stream, Refusal::busy("the server is shutting down"));
        }
    }

    /// Whether nothing is left to be written or read. Open streams of the transport of 2024-11-05 do not count, because they never end by
    /// themselves.
    pub(super) fn are_exchanges_over(&self) -> bool {
        let Some(http) = &self.http else {
            return true;
        };
        !http.exchanges.has_requests() && !self.lanes.has_unread() && http.exchanges.are_read_out()
    }

    /// Ends all open exchanges. The streams of sessions finish orderly; all other exchanges are aborted.
    pub(super) fn abort_exchanges(&mut self) {
        let Some(http) = &mut self.http else {
            return;
        };
        http.granted.clear();
        let exchanges = core::mem::take(&mut http.exchanges);
        let epoch = Epoch::FIRST;
        for stream in exchanges.arriving() {
            self.outbox.push(Output::Abort { epoch, stream });
        }
        for (stream, exchange) in exchanges.answering() {
            let is_endless = matches!(exchange.lane, Lane::Session(_));
            self.outbox.push(if is_endless && exchange.has_begun {
                Output::Finish { epoch, stream }
            } else {
                Output::Abort { epoch, stream }
            });
        }
    }

    /// Learns the tools that this user was told of.
    pub(super) fn learn_tools(&mut self, user: Option<Box<str>>, result: &Payload) {
        if let Some(http) = &mut self.http {
            http.tools.learn(&Audience::User(user), result.json());
        }
    }

    pub(super) fn know_tools(&mut self, list: &Payload) {
        if let Some(http) = &mut self.http {
            http.tools = Tools::default();
            http.tools.learn(&Audience::All, list.json());
        }
    }

    pub(super) fn session_count(&self) -> usize {
        self.http.as_ref().map_or(0, |http| http.sessions.len())
    }

    fn speaks(&self, era: Era) -> bool {
        self.config.versions.newest_of(era).is_some()
    }

    fn is_serving(&self) -> bool {
        self.state == State::Serving
    }
}

/// The response field with the session id.
fn session_field(id: &str) -> Fields<'static> {
    Fields::new().and(names::MCP_SESSION_ID, alloc::string::String::from(id))
}
