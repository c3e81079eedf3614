//! Answers an exchange: opens its response, chooses the status and the head, keeps it alive, and ends it. Encodes no message.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::driver::{Epoch, Output, StreamId};
use crate::http::{Fields, ResponseHead, names};
use crate::protocol::{Version, code};
use crate::server::binding::http::HttpBinding;
use crate::server::binding::http::cors;
use crate::server::binding::http::exchange::{Accepts, Exchange};
use crate::server::binding::http::lookups::Lookups;
use crate::server::binding::http::validate::{self, Blame, JSON, Refusal};
use crate::server::clock::{Clock, Timer};
use crate::server::context::Context;
use crate::server::event::Event;
use crate::server::origin::{QueueId, SessionKey};
use crate::server::outgoing::Lifetime;
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

impl Form {
    /// The exchange whose response has the message, if it has one.
    pub(crate) const fn stream(self) -> Option<StreamId> {
        match self {
            Form::Line => None,
            Form::Json(stream, _) | Form::Event { stream, .. } => Some(stream),
        }
    }
}

/// # The beginning and the end
impl HttpBinding {
    /// Opens the response of an exchange, on a queue of its own.
    pub(crate) fn open_exchange(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        accepts: Accepts,
        session: Option<SessionKey>,
    ) {
        let queue = QueueId::Stream(stream);
        cx.outgoing.add(queue, Lifetime::UntilAnswered);
        if let Some(session) = session {
            self.sessions.begin_stream(session, stream);
        }
        self.carry(cx, stream, queue, accepts, session);
    }

    /// Makes an exchange the carrier of a queue.
    pub(super) fn carry(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        queue: QueueId,
        accepts: Accepts,
        session: Option<SessionKey>,
    ) {
        cx.outgoing.attach(queue);
        if let QueueId::Stream(by_stream) = queue {
            self.shares.abandoned.remove(&by_stream);
        }
        let exchange = Exchange::new(queue, accepts, session);
        self.exchanges.open(stream, exchange);
        if let Some(session) = session {
            self.rank(session, &cx.clock);
        }
        self.arm_keepalive(stream, &mut cx.clock);
    }

    /// Returns the exchange whose response carries this queue. `None` if no such response is open.
    pub(crate) fn carrier(&self, queue: QueueId) -> Option<StreamId> {
        self.exchanges.carrier(queue)
    }

    /// Returns the queue that the response of this exchange carries. `None` if the exchange is not being answered.
    fn queue_of(&self, stream: StreamId) -> Option<QueueId> {
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
    pub(super) fn set_head(&mut self, stream: StreamId, status: u16, fields: Fields<'static>) {
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
        cx: &mut Context,
        stream: StreamId,
        status: u16,
        mut fields: Fields<'static>,
    ) {
        self.add_cors_fields(stream, &mut fields);
        let head = ResponseHead::new(status).with_fields(fields);
        cx.outputs.push(Output::Response {
            epoch: Epoch::FIRST,
            stream,
            head: Box::new(head),
            len: 0,
            is_whole: true,
        });
    }

    /// Adds the CORS fields to a response that the browser's page may read.
    fn add_cors_fields(&mut self, stream: StreamId, fields: &mut Fields<'static>) {
        if let Some(granted) = self.granted.remove(&stream) {
            fields.extend(cors::fields(granted));
        }
    }

    /// Ends an exchange at once, even if more messages are queued for it.
    pub(crate) fn end_exchange(&mut self, cx: &mut Context, stream: StreamId) {
        let Some(exchange) = self.retire(cx, stream) else {
            return;
        };
        if exchange.has_begun() {
            let epoch = Epoch::FIRST;
            cx.outputs.push(Output::Finish { epoch, stream });
            return;
        }
        // A request that was cancelled has no reply.
        let status = exchange.status.unwrap_or(202);
        self.respond_empty(cx, stream, status, exchange.fields);
    }

    /// Closes an exchange for writing; written bytes may still be unread. Returns the exchange.
    pub(super) fn retire(&mut self, cx: &mut Context, stream: StreamId) -> Option<Exchange> {
        let queue = self.queue_of(stream);
        let under_way = queue.map_or(0, |queue| cx.outgoing.under_way(queue));
        let exchange = self.exchanges.finish(stream, under_way)?;
        if under_way > 0 {
            self.arm_keepalive(stream, &mut cx.clock);
        } else {
            cx.clock.disarm(Timer::Keepalive(stream));
        }
        // Messages that are still queued no longer count as unread, because this exchange does not write them.
        self.shares.unread.set(stream, self.exchanges.left(stream));
        self.touch(exchange.session, &mut cx.clock);
        Some(exchange)
    }

    /// Ends an exchange. Its queue remains, without a carrier.
    fn release(&mut self, cx: &mut Context, stream: StreamId, queue: QueueId, had_begun: bool) {
        if had_begun {
            self.end_exchange(cx, stream);
        } else {
            self.retire(cx, stream);
        }
        cx.outgoing.detach(queue);
        self.abandon(queue);
    }

    /// Removes a queue and ends the exchange that carried it.
    pub(crate) fn end_queue(&mut self, cx: &mut Context, queue: QueueId) {
        if let Some(stream) = self.carrier(queue) {
            self.end_exchange(cx, stream);
        }
        cx.outgoing.remove(queue);
        let QueueId::Stream(stream) = queue else {
            return;
        };
        let session = self.sessions.of(stream);
        self.sessions.end_stream(stream);
        self.shares.abandoned.remove(&stream);
        if let Some((session, _)) = session {
            self.rank(session, &cx.clock);
        }
    }

    /// Ends the standalone streams of sessions. Their queues remain.
    pub(crate) fn end_standalone_streams(&mut self, cx: &mut Context) {
        for (stream, queue) in self.standalone_streams() {
            self.end_exchange(cx, stream);
            cx.outgoing.detach(queue);
        }
    }

    /// The standalone streams of sessions, with their queues.
    fn standalone_streams(&self) -> Vec<(StreamId, QueueId)> {
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
    pub(crate) fn abort(&mut self, cx: &mut Context) {
        self.granted.clear();
        // Requests to the store of this step are still carried out.
        self.give_up_passed();
        self.flush_store_requests(cx);
        self.lookups = Lookups::default();
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
        for output in arriving.chain(answering) {
            cx.outputs.push(output);
        }
    }
}

/// # Keepalives
impl HttpBinding {
    fn arm_keepalive(&self, stream: StreamId, clock: &mut Clock) {
        clock.arm(Timer::Keepalive(stream), self.config.keepalive);
    }

    /// Sends a keepalive on a silent exchange, so that proxies see that it is alive, even before the first message (F-043). `is_deferred`
    /// says whether a queue is for the reply to a request that waits for the offer. Returns whether the connection is to be closed, because
    /// its client read nothing for `INTERVALS_STUCK` intervals.
    pub(crate) fn send_keepalive(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        is_deferred: impl FnOnce(QueueId) -> bool,
    ) -> bool {
        let Some(exchange) = self.exchanges.get_mut(stream) else {
            return self.is_unread_too_long(stream, &mut cx.clock);
        };
        if exchange.quiet_from > cx.clock.now() {
            let at = exchange.quiet_from;
            cx.clock.arm_at(Timer::Keepalive(stream), at);
            return false;
        }
        let queue = exchange.queue;
        let is_answered_elsewhere = exchange.answered_by.is_some();
        let is_read = cx.outgoing.under_way(queue) == 0;
        if !is_read {
            exchange.stuck += 1;
            if exchange.stuck >= INTERVALS_STUCK {
                return true;
            }
        }
        let is_quiet = is_read && cx.outgoing.is_empty(queue);
        let has_begun = exchange.has_begun();
        // The response to a request that waits for the offer cannot begin, because its status and session are not known yet.
        let can_begin = exchange.accepts.sse && !is_deferred(queue) && !is_answered_elsewhere;
        self.arm_keepalive(stream, &mut cx.clock);
        let signal = match (is_quiet, has_begun) {
            (true, true) if self.fleet.is_taken(stream) => return false,
            (true, true) => Signal::Comment,
            (true, false) if can_begin => Signal::Begin(None),
            (true | false, _) => return false,
        };
        cx.outgoing.push(queue, Frame::Signal(signal));
        false
    }

    /// Whether the client of a finished exchange read nothing for `INTERVALS_STUCK` intervals. Others can then have its place.
    fn is_unread_too_long(&mut self, stream: StreamId, clock: &mut Clock) -> bool {
        match self.exchanges.count_unread(stream) {
            Some(times) if times >= INTERVALS_STUCK => return true,
            Some(_) => self.arm_keepalive(stream, clock),
            None => {}
        }
        false
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

    /// Returns the output for a message of `len` bytes that was written, and ends its exchange if nothing follows.
    pub(crate) fn written(
        &mut self,
        cx: &mut Context,
        queue: QueueId,
        form: Form,
        len: usize,
    ) -> Output<Event> {
        let (stream, had_begun, hangs_up) = match form {
            Form::Line => (StreamId::DUPLEX, false, false),
            Form::Json(stream, _) => (stream, false, false),
            Form::Event {
                stream,
                had_begun,
                hangs_up,
            } => (stream, had_begun, hangs_up),
        };
        let is_last = matches!(form, Form::Json(..)) || cx.outgoing.is_done(queue);
        let hangs_up = hangs_up && !is_last && cx.outgoing.is_empty(queue);
        let output = self.output(form, len, is_last || hangs_up);
        if is_last {
            // S-HTTP-15: the response ends after its last message.
            if !had_begun {
                self.retire(cx, stream);
            }
            self.end_queue(cx, queue);
        } else if hangs_up {
            self.release(cx, stream, queue, had_begun);
        } else if let Some(exchange) = self.exchanges.get_mut(stream) {
            // The timer stays as it is, because most exchanges end before it fires. If it fires early, `send_keepalive` arms it again.
            exchange.quiet_from = cx.clock.after(self.config.keepalive);
        }
        self.update_unread(cx, stream);
        output
    }

    /// The output for a message of `len` bytes. `is_whole` says that the response has no more messages.
    fn output(&mut self, form: Form, len: usize, is_whole: bool) -> Output<Event> {
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

    /// Records how many bytes wait for the client of an exchange that is open.
    pub(crate) fn update_unread(&mut self, cx: &Context, stream: StreamId) {
        if let Some(queue) = self.queue_of(stream) {
            let bytes = cx.outgoing.unread_bytes(queue);
            self.shares.unread.set(stream, bytes);
        }
    }

    /// The head of a response.
    fn head(&mut self, stream: StreamId, status: u16, is_json: bool) -> Box<ResponseHead<'static>> {
        if !is_json {
            self.exchanges.begin(stream);
        }
        let exchange = self.exchanges.get_mut(stream);
        let passed = exchange.as_ref().and_then(|exchange| {
            exchange.answered_by?;
            exchange.status
        });
        let own = exchange.map(|exchange| core::mem::take(&mut exchange.fields));
        let mut fields = own.unwrap_or_default();
        if let Some(status) = passed {
            self.add_cors_fields(stream, &mut fields);
            return Box::new(ResponseHead::new(status).with_fields(fields));
        }
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
    /// can come back for the reply: in a session, with the id of an event to resume from. The response ends now, or when its queue is empty.
    pub(crate) fn hang_up(&mut self, cx: &mut Context, arrival: &Arrival) {
        // The stream of the transport of 2024-11-05 is not the response to a request.
        let is_primed = arrival.session.is_some()
            && matches!(arrival.queue, QueueId::Stream(_))
            && arrival.peer.version >= Version::V2025_11_25
            && self.has_replay();
        let Some(stream) = self.carrier(arrival.queue).filter(|_| is_primed) else {
            return;
        };
        // A client that accepts only JSON gets no event ids.
        let exchange = self.exchanges.get_mut(stream);
        let Some(exchange) = exchange.filter(|exchange| exchange.accepts.sse) else {
            return;
        };
        if exchange.has_begun() && cx.outgoing.is_empty(arrival.queue) {
            self.release(cx, stream, arrival.queue, true);
        } else {
            exchange.hangs_up = true;
        }
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
            Blame::Sessionless
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
