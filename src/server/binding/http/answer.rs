//! Answers an exchange: opens its response, chooses the status and the head, keeps it alive, and ends it. Encodes no message.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::driver::{Epoch, Output, StreamId};
use crate::http::{Fields, ResponseHead, names};
use crate::protocol::{Version, code};
use crate::server::binding::http::HttpBinding;
use crate::server::binding::http::cors;
use crate::server::binding::http::exchange::{Accepts, Exchange};
use crate::server::binding::http::validate::{self, Blame, JSON, Refusal};
use crate::server::clock::{Clock, Timer};
use crate::server::event::Event;
use crate::server::origin::{QueueId, SessionKey};
use crate::server::outgoing::frame::{Answer, Frame, Signal};
use crate::server::requests::Arrival;

/// The number of keepalive intervals after which a client that reads nothing counts as gone.
const INTERVALS_STUCK: u32 = 4;

/// How a message is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// As one line on the byte stream.
    Line,
    /// As the whole body of this response, with this status.
    Json(StreamId, u16),
    /// As an event of this response.
    Event {
        stream: StreamId,
        /// Whether the head of the response was written before.
        had_begun: bool,
        /// Whether the response ends as soon as its queue is empty.
        hangs_up: bool,
    },
}

/// The state of the queue that an exchange carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueFacts {
    pub(crate) is_empty: bool,
    /// Whether its client has read all that was written.
    pub(crate) is_read: bool,
    /// Whether it is for the reply to a request that waits for the offer.
    pub(crate) is_deferred: bool,
}

/// What follows at a keepalive interval.
pub(crate) enum Keepalive {
    /// The client reads nothing, and its connection is closed.
    Cut,
    Nothing,
    Signal(QueueId, Signal),
}

/// # The beginning and the end
impl HttpBinding {
    /// Makes an exchange the carrier of a queue.
    pub(crate) fn answer(
        &mut self,
        stream: StreamId,
        queue: QueueId,
        accepts: Accepts,
        session: Option<SessionKey>,
        clock: &mut Clock,
    ) {
        if let QueueId::Stream(by_stream) = queue {
            self.shares.abandoned.remove(&by_stream);
        }
        let exchange = Exchange::new(queue, accepts, session);
        self.exchanges.open(stream, exchange);
        if let Some(session) = session {
            self.rank(session, clock);
        }
        self.arm_keepalive(stream, clock);
    }

    /// Adds a stream for the replies to requests of a session.
    pub(crate) fn begin_stream(&mut self, session: SessionKey, stream: StreamId, clock: &Clock) {
        self.sessions.begin_stream(session, stream);
        self.rank(session, clock);
    }

    /// Removes the stream of a queue that has ended.
    pub(crate) fn end_stream(&mut self, queue: QueueId, clock: &Clock) {
        let QueueId::Stream(stream) = queue else {
            return;
        };
        let session = self.sessions.of(stream);
        self.sessions.end_stream(stream);
        self.shares.abandoned.remove(&stream);
        if let Some((session, _)) = session {
            self.rank(session, clock);
        }
    }

    /// The exchange that carries this queue.
    pub(crate) fn carrier(&self, queue: QueueId) -> Option<StreamId> {
        self.exchanges.carrier(queue)
    }

    /// The queue that an exchange carries.
    pub(crate) fn queue_of(&self, stream: StreamId) -> Option<QueueId> {
        self.exchanges.get(stream).map(|exchange| exchange.queue)
    }

    fn carrying(&self, queue: QueueId) -> Option<&Exchange> {
        self.exchanges.get(self.exchanges.carrier(queue)?)
    }

    fn carrying_mut(&mut self, queue: QueueId) -> Option<&mut Exchange> {
        let stream = self.exchanges.carrier(queue)?;
        self.exchanges.get_mut(stream)
    }

    /// Sets the status and further fields of a refusal.
    pub(crate) fn set_head(&mut self, stream: StreamId, status: u16, fields: Fields<'static>) {
        if let Some(exchange) = self.exchanges.get_mut(stream) {
            exchange.status = Some(status);
            exchange.fields = fields;
        }
    }

    /// Sets status 200 for the reply on this queue, unless a status is set. An error of the application needs this, because clients in use
    /// do not read the body of a response with another status.
    pub(crate) fn answer_with_200(&mut self, queue: QueueId) {
        if let Some(exchange) = self.carrying_mut(queue) {
            exchange.status.get_or_insert(200);
        }
    }

    /// Answers an exchange without a body.
    pub(crate) fn respond_empty(
        &mut self,
        stream: StreamId,
        status: u16,
        mut fields: Fields<'static>,
    ) -> Output<Event> {
        self.add_cors_fields(stream, &mut fields);
        let head = ResponseHead::new(status).with_fields(fields);
        Output::Response {
            epoch: Epoch::FIRST,
            stream,
            head: Box::new(head),
            len: 0,
            is_whole: true,
        }
    }

    /// Adds the CORS fields to a response that the browser's page may read.
    fn add_cors_fields(&mut self, stream: StreamId, fields: &mut Fields<'static>) {
        if let Some(granted) = self.granted.remove(&stream) {
            fields.extend(cors::fields(granted));
        }
    }

    /// Ends an exchange at once, even if more messages are queued for it. `under_way` bytes of it are unread.
    pub(crate) fn end_exchange(
        &mut self,
        stream: StreamId,
        under_way: usize,
        clock: &mut Clock,
    ) -> Option<Output<Event>> {
        let exchange = self.retire(stream, under_way, clock)?;
        if exchange.has_begun() {
            let epoch = Epoch::FIRST;
            return Some(Output::Finish { epoch, stream });
        }
        // A request that was cancelled has no reply.
        let status = exchange.status.unwrap_or(202);
        Some(self.respond_empty(stream, status, Fields::new()))
    }

    /// Closes an exchange for writing; written bytes may still be unread. Returns the exchange.
    pub(crate) fn retire(
        &mut self,
        stream: StreamId,
        under_way: usize,
        clock: &mut Clock,
    ) -> Option<Exchange> {
        let most = self.limits.exchanges;
        let exchange = self.exchanges.finish(stream, under_way, most)?;
        if under_way > 0 {
            self.arm_keepalive(stream, clock);
        } else {
            clock.disarm(Timer::Keepalive(stream));
        }
        // Messages that are still queued no longer count as unread, because this exchange does not write them.
        self.shares.unread.set(stream, self.exchanges.left(stream));
        self.touch(exchange.session, clock);
        Some(exchange)
    }

    /// The standalone streams of sessions, with their queues.
    pub(crate) fn standalone_streams(&self) -> Vec<(StreamId, QueueId)> {
        let answering = self.exchanges.answering();
        let standalone = answering.filter(|(_, exchange)| match exchange.queue {
            QueueId::Session(session) => {
                let session = self.sessions.get(session);
                session.is_some_and(|session| !session.is_sse)
            }
            QueueId::Stream(_) => false,
        });
        standalone
            .map(|(stream, exchange)| (stream, exchange.queue))
            .collect()
    }

    /// Whether nothing is left to be answered or read. Open streams of the transport of 2024-11-05 do not count, because they never end by
    /// themselves.
    pub(crate) fn are_exchanges_over(&self) -> bool {
        !self.exchanges.has_requests() && self.exchanges.are_read_out()
    }

    /// Ends all open exchanges. The streams of sessions finish orderly; all other exchanges are aborted.
    pub(crate) fn abort(&mut self) -> Vec<Output<Event>> {
        self.granted.clear();
        self.lookups.clear();
        let exchanges = core::mem::take(&mut self.exchanges);
        let epoch = Epoch::FIRST;
        let arriving = exchanges.arriving().into_iter();
        let arriving = arriving.map(|stream| Output::Abort { epoch, stream });
        let answering = exchanges.answering().map(|(stream, exchange)| {
            let is_endless = matches!(exchange.queue, QueueId::Session(_));
            if is_endless && exchange.has_begun() {
                Output::Finish { epoch, stream }
            } else {
                Output::Abort { epoch, stream }
            }
        });
        arriving.chain(answering).collect()
    }
}

/// # Keepalives
impl HttpBinding {
    fn arm_keepalive(&self, stream: StreamId, clock: &mut Clock) {
        clock.arm(Timer::Keepalive(stream), self.config.keepalive);
    }

    /// Postpones the keepalive of an exchange on which something was just written. The timer stays as it is, because most exchanges end
    /// before it fires. If it fires early, `send_keepalive` arms it again.
    pub(crate) fn postpone_keepalive(&mut self, stream: StreamId, clock: &Clock) {
        if let Some(exchange) = self.exchanges.get_mut(stream) {
            exchange.quiet_from = clock.after(self.config.keepalive);
        }
    }

    /// Sends a keepalive on a silent exchange, so that proxies see that it is alive, even before the first message (F-043). Closes the
    /// exchange if its client reads nothing for `INTERVALS_STUCK` intervals.
    pub(crate) fn send_keepalive(
        &mut self,
        stream: StreamId,
        facts: Option<QueueFacts>,
        clock: &mut Clock,
    ) -> Keepalive {
        let (Some(exchange), Some(facts)) = (self.exchanges.get_mut(stream), facts) else {
            return self.keepalive_unread(stream, clock);
        };
        if exchange.quiet_from > clock.now() {
            clock.arm_at(Timer::Keepalive(stream), exchange.quiet_from);
            return Keepalive::Nothing;
        }
        if !facts.is_read {
            exchange.stuck += 1;
            if exchange.stuck >= INTERVALS_STUCK {
                return Keepalive::Cut;
            }
        }
        let is_quiet = facts.is_empty && facts.is_read;
        let (queue, has_begun) = (exchange.queue, exchange.has_begun());
        // The response to a request that waits for the offer cannot begin, because its status and session are not known yet.
        let can_begin = exchange.accepts.sse && !facts.is_deferred;
        self.arm_keepalive(stream, clock);
        match (is_quiet, has_begun) {
            (true, true) => Keepalive::Signal(queue, Signal::Comment),
            (true, false) if can_begin => Keepalive::Signal(queue, Signal::Begin(None)),
            (true | false, _) => Keepalive::Nothing,
        }
    }

    /// Closes a finished exchange whose client reads nothing for `INTERVALS_STUCK` intervals, so that others can have its place.
    fn keepalive_unread(&mut self, stream: StreamId, clock: &mut Clock) -> Keepalive {
        match self.exchanges.count_unread(stream) {
            Some(times) if times >= INTERVALS_STUCK => return Keepalive::Cut,
            Some(_) => self.arm_keepalive(stream, clock),
            None => {}
        }
        Keepalive::Nothing
    }
}

/// # The form of a message
impl HttpBinding {
    /// Decides how a message is written. The first message decides the format: a reply alone is JSON, if the client accepts it. Anything
    /// before the reply makes the response an event stream. `error` returns the code of the application's error, if that is the message.
    pub(crate) fn form(
        &self,
        queue: QueueId,
        frame: &Frame,
        is_draining: bool,
        error: impl FnOnce() -> Option<i64>,
    ) -> Option<Form> {
        let stream = self.exchanges.carrier(queue)?;
        let exchange = self.exchanges.get(stream)?;
        let had_begun = exchange.has_begun();
        if !had_begun && frame.is_answer() {
            let status = status_of(exchange, frame, is_draining, error);
            // A refusal keeps its status, even if the client does not accept JSON (S-HTTP-27).
            if exchange.accepts.json || status >= 400 {
                return Some(Form::Json(stream, status));
            }
        }
        Some(Form::Event {
            stream,
            had_begun,
            hangs_up: exchange.hangs_up,
        })
    }

    /// The output for a message of `len` bytes. `is_whole` says that the response has no more messages.
    pub(crate) fn output(&mut self, form: Form, len: usize, is_whole: bool) -> Output<Event> {
        let epoch = Epoch::FIRST;
        let (stream, status, is_json) = match form {
            Form::Line => (StreamId::DUPLEX, 200, true),
            Form::Json(stream, status) => (stream, status, true),
            Form::Event {
                stream,
                had_begun: true,
                ..
            } => return Output::Write { epoch, stream, len },
            Form::Event { stream, .. } => (stream, 200, false),
        };
        Output::Response {
            epoch,
            stream,
            head: self.head(stream, status, is_json),
            len,
            is_whole,
        }
    }

    /// The head of a response.
    fn head(&mut self, stream: StreamId, status: u16, is_json: bool) -> Box<ResponseHead<'static>> {
        if !is_json {
            self.exchanges.begin(stream);
        }
        let exchange = self.exchanges.get_mut(stream);
        let own = exchange.map(|exchange| core::mem::take(&mut exchange.fields));
        let mut fields = own.unwrap_or_default();
        if is_json {
            fields.push(names::CONTENT_TYPE, JSON);
        } else {
            fields.extend(validate::head_of_events());
        }
        if status == 503 && !fields.has(names::RETRY_AFTER) {
            fields.extend(Refusal::busy("").fields);
        }
        self.add_cors_fields(stream, &mut fields);
        Box::new(ResponseHead::new(status).with_fields(fields))
    }

    /// Whether a queue can carry anything but the reply. A client that accepts only JSON gets nothing else.
    pub(crate) fn carries_more(&self, queue: QueueId) -> bool {
        let exchange = self.carrying(queue);
        exchange.is_none_or(|exchange| exchange.accepts.sse)
    }

    /// The queue for an ask that belongs to a request. If the queue of the request cannot carry it, this is the queue of the session
    /// (S-LHTTP-15).
    pub(crate) fn queue_for_ask(&self, arrival: &Arrival) -> QueueId {
        let is_attached = |queue| self.exchanges.carrier(queue).is_some();
        match arrival.session {
            Some(session) if !self.carries_more(arrival.queue) => session.queue(),
            Some(session)
                if !is_attached(arrival.queue)
                    && (!self.has_replay() || is_attached(session.queue())) =>
            {
                session.queue()
            }
            Some(_) | None => arrival.queue,
        }
    }

    /// Whether the event stream of a legacy client begins at once, so that a broken connection loses nothing.
    pub(crate) fn begins_at_once(&self, arrival: &Arrival) -> bool {
        let QueueId::Stream(stream) = arrival.queue else {
            return false;
        };
        let exchange = self.exchanges.get(stream);
        let can_begin =
            exchange.is_some_and(|exchange| exchange.accepts.sse && !exchange.has_begun());
        arrival.session.is_some() && can_begin && self.has_replay()
    }

    /// Ends the response on which a request waits for its reply, while the request continues (S-LHTTP-09). This happens only if the client
    /// can come back for the reply: in a session, with the id of an event to resume from. Returns the exchange if it ends now; otherwise it
    /// ends when its queue is empty.
    pub(crate) fn hang_up(&mut self, arrival: &Arrival, is_empty: bool) -> Option<StreamId> {
        // The stream of the transport of 2024-11-05 is not the response to a request.
        let is_primed = arrival.session.is_some()
            && matches!(arrival.queue, QueueId::Stream(_))
            && arrival.peer.version >= Version::V2025_11_25
            && self.has_replay();
        let stream = self
            .exchanges
            .carrier(arrival.queue)
            .filter(|_| is_primed)?;
        // A client that accepts only JSON gets no event ids.
        let exchange = self.exchanges.get_mut(stream);
        let exchange = exchange.filter(|exchange| exchange.accepts.sse)?;
        if exchange.has_begun() && is_empty {
            return Some(stream);
        }
        exchange.hangs_up = true;
        None
    }
}

/// The status of a reply that is sent as JSON.
fn status_of(
    exchange: &Exchange,
    frame: &Frame,
    is_draining: bool,
    error: impl FnOnce() -> Option<i64>,
) -> u16 {
    if let Some(status) = exchange.status {
        return status;
    }
    let is_in_session = exchange.session.is_some();
    if let Frame::Answer(_, Answer::Error(error)) = frame {
        let ends = is_draining && error.code == code::INTERNAL_ERROR;
        let blame = if is_in_session && !ends {
            Blame::Session
        } else {
            Blame::Server
        };
        return validate::status(error.code, blame);
    }
    let code = if let Frame::Answer(_, Answer::PassedError(error)) = frame {
        Some(error.code)
    } else {
        error()
    };
    match code {
        Some(code) if !is_in_session => validate::status(code, Blame::Application),
        Some(_) | None => 200,
    }
}
