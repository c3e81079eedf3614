//! Hands requests to the application, takes its replies and its progress reports, and cancels the requests that get no reply.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use crate::driver::{RequestId, StreamId};
use crate::protocol::{Method, TraceContext, code};
use crate::server::clock::Timer;
use crate::server::context::Context;
use crate::server::event::{Caller, Cancelled, Event, Request, Unanswered};
use crate::server::misuse::Misuse;
use crate::server::origin::{IdScope, QueueId, SessionKey};
use crate::server::outgoing::frame::{Answer, Frame, Signal};
use crate::server::outgoing::writer::MessageWriter;
use crate::server::requests::admission::{self, Round};
use crate::server::requests::params::Params;
use crate::server::requests::places::Holder;
use crate::server::requests::reply::{Progress, Verdict, excerpt_of};
use crate::server::requests::{Arrival, Concluded, Requests};
use crate::util::Arc;
use crate::wire::ErrorObject;

/// How long a relay on a byte stream does not read a client for whose next request there is no room. Meanwhile, a reply can make room.
const HOLD: Duration = Duration::from_secs(10);

/// # To the application
impl Requests {
    /// Hands a request to the application, or resumes it if its client comes back with a state of this server. `trace` is the context in
    /// the header of the HTTP request; that of the message counts before it. `begins_at_once` says that the response begins before the
    /// first message.
    pub(crate) fn deliver(
        &mut self,
        cx: &mut Context,
        (name, facts): (&str, Option<&'static Method>),
        arrival: Arrival,
        params: &Params<'_>,
        trace: Option<&TraceContext>,
        begins_at_once: bool,
    ) -> Result<(), ErrorObject> {
        let is_modern = arrival.session.is_none();
        let rounds = facts.filter(|facts| is_modern && facts.may_need_input);
        let (mut subject, mut input) = (0, None);
        if let Some(facts) = rounds {
            let round = admission::read_round(params)?;
            // No state is ever made for a client that cannot be asked anything. The server behind a relay may ask it nevertheless.
            let may_be_asked = cx.config.is_relayed || !arrival.peer.capabilities.is_empty();
            if may_be_asked || matches!(round, Round::Resumed(_)) {
                subject = self.subject(facts, params, arrival.user.as_deref());
            }
            match round {
                Round::First(supplied) => input = supplied,
                Round::Resumed(state) => {
                    return self.resume(cx, &state, subject, params.answers, arrival);
                }
            }
        }
        cx.outgoing.expect_reply(arrival.queue);
        // The first message of a batch begins the stream.
        if begins_at_once && cx.outgoing.is_empty(arrival.queue) {
            let begin = Frame::Signal(Signal::Begin(None));
            cx.outgoing.push(arrival.queue, begin);
        }
        let method = facts.map_or_else(|| Cow::Owned(name.into()), |f| Cow::Borrowed(f.name));
        let user = arrival.user.clone();
        let caller = Caller::of(arrival.queue, arrival.session, user.as_deref());
        let (peer, log_level) = (arrival.peer.clone(), arrival.log_level);
        let wants_progress = arrival.token.is_some();
        let request = self.accept(method.clone(), facts, subject, arrival);
        cx.stats.requests += 1;
        cx.report(Event::Request(Request {
            request,
            method,
            params: params.rest(rounds.is_some()),
            peer,
            user,
            trace: params
                .trace_context()
                .or_else(|| trace.cloned())
                .map(Box::new),
            caller,
            wants_progress,
            log_level,
            input,
        }));
        Ok(())
    }

    /// Checks whether `sender` may have one more request beside the `mine` that it has. `deferred` requests of all clients wait for the
    /// offer. Each session has a share of its own. If all places are taken, requests whose client no longer waits are cancelled;
    /// `next_abandoned` names their streams. Otherwise the holder with most requests in flight loses one, if it has more than the sender
    /// would have. On a byte stream, there is no other. Returns whether there is room.
    pub(crate) fn make_room(
        &mut self,
        cx: &mut Context,
        (sender, mine): (Option<&Arc<Holder>>, usize),
        deferred: usize,
        mut next_abandoned: impl FnMut() -> Option<(StreamId, SessionKey)>,
    ) -> Result<bool, ErrorObject> {
        let limits = &cx.config.limits;
        let (most, most_each) = (limits.requests, limits.requests_each);
        if sender.is_some_and(|sender| matches!(**sender, Holder::Session(_))) && mine >= most_each
        {
            let text = alloc::format!(
                "{mine} requests of this session are not answered yet; ask again when some are"
            );
            return Err(ErrorObject::new(code::INTERNAL_ERROR, text));
        }
        let open = self.in_flight() + deferred;
        if open < most {
            // A relay on a byte stream then reads no more for a time. A request that is refused does not prolong it.
            if open + 1 == most && cx.config.is_relayed && sender.is_none() {
                cx.clock.arm(Timer::Full, HOLD);
            }
            return Ok(true);
        }
        // The number of requests in one session bounds this loop.
        while let Some((stream, session)) = next_abandoned() {
            let abandoned = self.on_queue(session, QueueId::Stream(stream));
            if !abandoned.is_empty() {
                for request in abandoned {
                    self.displace(cx, request);
                }
                return Ok(true);
            }
        }
        let heaviest = self.places.of_heaviest(mine);
        let displaced = heaviest.map(|request| self.displace(cx, request));
        Ok(displaced.is_some())
    }

    /// Cancels a request to make room. Its client gets an error, now or when it comes back.
    fn displace(&mut self, cx: &mut Context, request: RequestId) {
        let Some(entry) = self.get(request) else {
            return;
        };
        let (queue, id) = (entry.queue(), entry.arrival().wire.id.clone());
        cx.stats.displaced += 1;
        self.cancel(cx, request, Cancelled::PeerGone);
        let text = "the request was cancelled: too many are in flight, and others needed its place; it may have run";
        let error = ErrorObject::new(code::INTERNAL_ERROR, text);
        cx.reply(queue, id, Answer::PassedError(error));
    }
}

/// # From the application
impl Requests {
    /// Ends a request with the verdict of the application. Its client gets the reply now, or when it comes back. Returns the queue on which
    /// the reply waits to be written, and its bytes.
    pub(crate) fn conclude(
        &mut self,
        cx: &mut Context,
        request: RequestId,
        verdict: Verdict,
    ) -> Result<Option<(QueueId, usize)>, Misuse> {
        let concluded = self.give_verdict(request, verdict)?;
        cx.stats.answered += 1;
        match concluded {
            Concluded::Held => {
                self.end_unsent_asks_of(cx, request);
                Ok(None)
            }
            Concluded::Reply {
                queue,
                bytes,
                was_asking,
            } => {
                if was_asking {
                    cx.outgoing.retract_questions(queue, request);
                }
                self.end_asks_of(cx, request);
                cx.outgoing.push(queue, Frame::Reply(request, bytes));
                Ok(Some((queue, bytes)))
            }
        }
    }

    /// Appends the application's reply to a request, which is then over.
    pub(crate) fn write_reply(
        &mut self,
        writer: &MessageWriter,
        buf: &mut Vec<u8>,
        request: RequestId,
    ) {
        if let Some(entry) = self.get(request) {
            if let Some(verdict) = entry.verdict() {
                let (id, version) = (&entry.arrival.wire.id, entry.version());
                writer.reply(buf, id, version, entry.is_cacheable(), verdict);
            }
            self.forget(request);
        }
    }

    /// Queues a progress report. `carries_more` says whether a queue can carry anything but the reply.
    pub(crate) fn report_progress(
        &mut self,
        cx: &mut Context,
        request: RequestId,
        mut progress: Progress,
        carries_more: impl FnOnce(QueueId) -> bool,
    ) -> Result<(), Misuse> {
        let entry = self.open(request)?;
        if !progress.progress.is_finite() || !progress.total.is_none_or(f64::is_finite) {
            return Err(Misuse::NotFinite);
        }
        if let Some(message) = &mut progress.message {
            self.check_size(message.len())?;
            *message = excerpt_of(message);
        }
        // S-PROG-04: only while the client waits under the id that came with the token.
        let queue = entry.queue();
        let is_wanted = entry.is_waited_for() && entry.arrival().token.is_some();
        let is_read = cx.outgoing.is_read(queue);
        if is_wanted && carries_more(queue) && self.add_progress(request, progress, is_read) {
            cx.outgoing.push(queue, Frame::Progress(request));
        }
        Ok(())
    }

    /// Appends the next progress report of a request.
    pub(crate) fn write_progress(&mut self, buf: &mut Vec<u8>, request: RequestId) {
        if let Some((progress, arrival)) = self.next_progress(request) {
            if let Some(token) = &arrival.token {
                MessageWriter::progress(buf, token, arrival.peer.version, &progress);
            }
        }
    }
}

/// # Requests without a reply
impl Requests {
    /// Cancels a request, which then gets no reply.
    pub(crate) fn cancel(&mut self, cx: &mut Context, request: RequestId, why: Cancelled) {
        self.end_asks_of(cx, request);
        let Some(entry) = self.get(request) else {
            return;
        };
        let (queue, is_away, is_open) = (entry.queue(), entry.is_away(), entry.is_open());
        self.forget(request);
        cx.clock.disarm(Timer::Away(request));
        cx.outgoing.retract(queue, request);
        if !is_away {
            cx.outgoing.reply_done(queue);
        }
        if is_open {
            cx.stats.cancelled += 1;
            cx.report(Event::Cancelled { request, why });
        } else {
            cx.stats.answers_dropped += 1;
        }
    }

    /// Cancels a request whose client was asked for input and did not come back.
    pub(crate) fn not_resumed(&mut self, cx: &mut Context, request: RequestId) {
        for ask in self.asks_of(request) {
            self.end_ask(cx, ask, Err(Unanswered::TimedOut));
        }
        self.cancel(cx, request, Cancelled::NotResumed);
    }

    /// Cancels the requests whose ids are of this scope.
    pub(crate) fn cancel_scope(&mut self, cx: &mut Context, scope: IdScope) {
        for request in self.of(scope) {
            self.cancel(cx, request, Cancelled::PeerGone);
        }
    }

    /// Ends the requests of a legacy client that is gone or begins anew, and the asks to it.
    pub(crate) fn end_session(&mut self, cx: &mut Context, session: SessionKey, why: &Cancelled) {
        self.end_asks_to(cx, session);
        for request in self.of_session(session) {
            self.cancel(cx, request, why.clone());
        }
    }

    /// Ends all asks and cancels the requests whose client is away. No client can answer any longer, or come back.
    pub(crate) fn input_ended(&mut self, cx: &mut Context) {
        self.end_all_asks(cx);
        for request in self.ids() {
            if self.get(request).is_some_and(|entry| entry.is_away()) {
                self.cancel(cx, request, Cancelled::PeerGone);
            }
        }
    }

    /// Cancels the requests that have no reply at the drain deadline. Their clients get an error.
    pub(crate) fn cut_short(&mut self, cx: &mut Context) {
        for request in self.ids() {
            let Some(entry) = self.get(request) else {
                continue;
            };
            if entry.is_answered() {
                continue;
            }
            if !entry.is_away() {
                let (id, queue) = (entry.arrival.wire.id.clone(), entry.queue());
                cx.reply(queue, id, Answer::CutShort);
            }
            self.cancel(cx, request, Cancelled::OutOfTime);
        }
    }

    /// Ends all asks and requests.
    pub(crate) fn clear(&mut self, cx: &mut Context) {
        self.end_all_asks(cx);
        for request in self.ids() {
            self.cancel(cx, request, Cancelled::PeerGone);
        }
    }
}
