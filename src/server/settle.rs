//! Ends: of asks, requests, sessions, exchanges and the server itself. Every step of the machine is settled here.

use crate::driver::{AskId, Epoch, Output, RequestId, StreamId};
use crate::json::Payload;
use crate::protocol::code;
use crate::server::Server;
use crate::server::binding::http::{Displaced, Gone, Room};
use crate::server::clock::Timer;
use crate::server::config::ListenEnd;
use crate::server::event::{Cancelled, EndOfService, Event, Unanswered};
use crate::server::lifecycle::{Cue, Next, Remaining};
use crate::server::misuse::Misuse;
use crate::server::origin::{IdScope, Origin, QueueId, SessionKey, WireId};
use crate::server::outgoing::frame::{Answer, Frame};
use crate::server::requests::Concluded;
use crate::server::requests::admission::{too_many, unavailable};
use crate::server::requests::checks::check_askable;
use crate::server::requests::reply::Verdict;
use crate::server::session::deferred::DeferredMessage;
use crate::wire::ErrorObject;

/// # The end of a step
impl Server {
    /// Serves the requests that have waited, stores the messages of loose queues, ends the queues that are done, reports changes of the watches, and goes on with a drain.
    pub(super) fn settle(&mut self) {
        // Goes on with the requests that need not wait for the driver's store any longer.
        while let Some((stream, arrived)) = self.binding.next_ready(&mut self.cx) {
            self.on_body(stream, arrived);
        }
        while let Some(queue) = self.cx.outgoing.next_loose() {
            self.keep_for_later(queue);
        }
        while let Some(queue) = self.cx.outgoing.next_done() {
            self.binding.end_queue(&mut self.cx, queue);
        }
        if let Some(update) = self.watches.take_update() {
            self.cx.report(Event::Watching(update));
        }
        self.binding.flush_store_requests(&mut self.cx);
        if self.cx.lifecycle.is_draining() {
            self.go_on_draining();
        }
    }
}

/// # The end of an ask
impl Server {
    /// Ends an ask with its outcome, and reports it.
    pub(super) fn end_ask(&mut self, ask: AskId, outcome: Result<Payload, Unanswered>) {
        let Some(closed) = self.asks.close(ask) else {
            return;
        };
        self.cx.clock.disarm(Timer::Ask(ask));
        if let Some(queue) = closed.unwritten {
            self.cx.outgoing.retract_ask(queue, ask);
        }
        let request = closed.request;
        let unasked =
            request.and_then(|request| Some((request, self.requests.ask_ended(request, ask)?)));
        if let Some((request, queue)) = unasked {
            self.cx.outgoing.retract_questions(queue, request);
        }
        self.cx.report(Event::Answered {
            ask,
            request,
            outcome,
        });
    }

    /// Withdraws an ask. The client is told, if it received the ask and can be told.
    pub(super) fn withdraw_ask(&mut self, ask: AskId, why: Unanswered, reason: Option<&str>) {
        let told = self.asks.cancellable(ask);
        if let Some(queue) = told.filter(|_| !self.cx.lifecycle.has_input_ended()) {
            let frame = Frame::AskCancelled(ask, reason.map(Into::into));
            self.cx.outgoing.push(queue, frame);
        }
        self.end_ask(ask, Err(why));
    }

    pub(super) fn ask_overdue(&mut self, ask: AskId) {
        let reason = Some("it was not answered in time");
        self.withdraw_ask(ask, Unanswered::TimedOut, reason);
    }

    fn end_asks_of(&mut self, request: RequestId) {
        while let Some(ask) = self.requests.next_ask(request) {
            self.withdraw_ask(ask, Unanswered::RequestOver, Some("the request is over"));
        }
    }

    fn end_all_asks(&mut self) {
        while let Some(ask) = self.asks.first() {
            self.end_ask(ask, Err(Unanswered::PeerGone));
        }
    }

    /// Goes on with a request whose client came back with these answers.
    pub(super) fn resume(
        &mut self,
        request: RequestId,
        given: alloc::vec::Vec<(AskId, Payload)>,
        held: Option<Verdict>,
    ) {
        for (ask, answer) in given {
            self.end_ask(ask, Ok(answer));
        }
        let Some(verdict) = held else {
            return self.ask_again(request);
        };
        self.end_asks_of(request);
        if let Some((queue, bytes)) = self.requests.reply_held(request, verdict) {
            self.cx.outgoing.push(queue, Frame::Reply(request, bytes));
        }
    }

    /// Sends the asks that are unanswered or new in another round (S-MRTR-17).
    fn ask_again(&mut self, request: RequestId) {
        let Some(entry) = self.requests.get(request) else {
            return;
        };
        let rounds = self.cx.config.limits.input_rounds;
        let is_last = entry.round() >= rounds;
        let peer = entry.arrival().peer.clone();
        for ask in entry.asks().clone() {
            let Some(open) = self.asks.get(ask) else {
                continue;
            };
            // S-META-08: capabilities that were declared with an earlier round no longer count.
            let checked = check_askable(&peer, &open.method, open.params.as_ref());
            if is_last {
                self.end_ask(ask, Err(Unanswered::TooManyRounds { rounds }));
            } else if let Err(why) = checked {
                self.end_ask(ask, Err(Unanswered::Unaskable(why)));
            }
        }
        let entry = self.requests.get(request);
        if entry.is_some_and(|entry| !entry.asks().is_empty()) {
            self.push_questions(request);
        }
    }
}

/// # The end of a request
impl Server {
    /// Ends a request with the verdict of the application. Its client gets the reply now, or when it comes back.
    pub(super) fn conclude(&mut self, request: RequestId, verdict: Verdict) -> Result<(), Misuse> {
        let concluded = self.requests.conclude(request, verdict)?;
        self.cx.stats.answered += 1;
        match concluded {
            Concluded::Held => self.end_unsent_asks_of(request),
            Concluded::Reply {
                queue,
                bytes,
                was_asking,
            } => {
                if was_asking {
                    self.cx.outgoing.retract_questions(queue, request);
                }
                self.end_asks_of(request);
                self.push_reply(request, queue, bytes);
            }
        }
        Ok(())
    }

    /// Ends the asks of a request that the client has not received. The client answers the others when it comes back, and the application
    /// may still want these answers.
    fn end_unsent_asks_of(&mut self, request: RequestId) {
        let entry = self.requests.get(request);
        let asks = entry.map(|entry| entry.asks().clone());
        for ask in asks.unwrap_or_default() {
            if self.asks.is_queued(ask) {
                self.end_ask(ask, Err(Unanswered::RequestOver));
            }
        }
    }

    /// Cancels a request, which then gets no reply.
    pub(super) fn cancel(&mut self, request: RequestId, why: Cancelled) {
        self.end_asks_of(request);
        let Some(entry) = self.requests.remove(request) else {
            return;
        };
        let queue = entry.queue();
        self.cx.clock.disarm(Timer::Away(request));
        self.cx.outgoing.retract(queue, request);
        if !entry.is_away() {
            self.cx.outgoing.reply_done(queue);
        }
        if entry.is_open() {
            self.cx.stats.cancelled += 1;
            self.cx.report(Event::Cancelled { request, why });
        } else {
            self.cx.stats.answers_dropped += 1;
        }
    }

    /// Cancels a request whose client was asked for input and did not come back.
    pub(super) fn not_resumed(&mut self, request: RequestId) {
        let entry = self.requests.get(request);
        let asks = entry.map(|entry| entry.asks().clone());
        for ask in asks.unwrap_or_default() {
            self.end_ask(ask, Err(Unanswered::TimedOut));
        }
        self.cancel(request, Cancelled::NotResumed);
    }

    /// Cancels every request and watch whose id is of this scope.
    fn cancel_all(&mut self, scope: IdScope) {
        for wire in self.watches.of(scope) {
            self.watches.unlisten(&wire);
        }
        for request in self.requests.of(scope) {
            self.cancel(request, Cancelled::PeerGone);
        }
        self.forget_deferred(scope);
    }

    /// Drops the requests of this scope that wait for the offer. They get no reply.
    fn forget_deferred(&mut self, scope: IdScope) {
        for queue in self.offer.deferred_mut().cancel_all(scope) {
            self.cx.outgoing.reply_done(queue);
        }
    }

    pub(super) fn refuse_deferred(&mut self, error: &ErrorObject) {
        while let Some(message) = self.offer.deferred_mut().pop() {
            if let DeferredMessage::Request { from, id, .. } = message {
                self.cx.outgoing.reply_done(from.queue);
                self.binding
                    .refuse(&mut self.cx, from.queue, id, error.clone());
            }
        }
    }

    /// Checks whether the sender may have one more request in flight. Each session has a share of its own. If all places are taken,
    /// requests whose client no longer waits are cancelled. Otherwise the session with most requests loses one, if it has more than the
    /// sender would have.
    pub(super) fn check_room(&mut self, from: &Origin) -> Result<(), ErrorObject> {
        let limits = &self.cx.config.limits;
        let (most, most_each) = (limits.requests, limits.requests_each);
        let mine = self.requests.share_of(from.scope);
        if mine >= most_each {
            let text = alloc::format!(
                "{mine} requests of this session are not answered yet; ask again when some are"
            );
            return Err(ErrorObject::new(code::INTERNAL_ERROR, text));
        }
        if self.open_requests() < most {
            return Ok(());
        }
        // The number of requests in one session bounds this loop.
        while let Some((stream, session)) = self.binding.next_abandoned() {
            let abandoned = self.requests.on_queue(session, QueueId::Stream(stream));
            if !abandoned.is_empty() {
                abandoned
                    .into_iter()
                    .for_each(|request| self.displace(request));
                return Ok(());
            }
        }
        let heaviest = self.requests.of_heaviest(mine);
        heaviest
            .map(|request| self.displace(request))
            .ok_or_else(|| too_many(most))
    }

    /// Cancels a request to make room. Its client gets an error, now or when it comes back.
    fn displace(&mut self, request: RequestId) {
        let Some(entry) = self.requests.get(request) else {
            return;
        };
        let (queue, id) = (entry.queue(), entry.arrival().wire.id.clone());
        self.cx.stats.displaced += 1;
        self.cancel(request, Cancelled::PeerGone);
        let text = "the request was cancelled: too many are in flight, and others needed its place; it may have run";
        let error = ErrorObject::new(code::INTERNAL_ERROR, text);
        self.cx.reply(queue, id, Answer::Error(error));
    }
}

/// # The end of a session
impl Server {
    /// Ends the session of a legacy client that is gone or begins anew. Its requests and asks are over.
    pub(super) fn end_legacy(&mut self, session: SessionKey, why: &Cancelled) {
        if !self.sessions.end(session) {
            return;
        }
        self.watches.end(session);
        // A new client does not know the asks to the old one, so it is not told that they are withdrawn.
        for ask in self.asks.of_session(session) {
            self.end_ask(ask, Err(Unanswered::PeerGone));
        }
        for request in self.requests.of_session(session) {
            self.cancel(request, why.clone());
        }
    }

    /// Ends a session and everything in it, for good or only on this server.
    pub(super) fn end_session(&mut self, key: SessionKey, for_good: bool) {
        self.binding.end_streams(&mut self.cx, key);
        self.end_legacy(key, &Cancelled::PeerGone);
        self.forget_deferred(IdScope::Session(key));
        self.binding.close_session(&mut self.cx, key, for_good);
    }

    pub(super) fn session_idle(&mut self, key: SessionKey) {
        if let Some(for_good) = self.binding.session_idle(key, &mut self.cx.clock) {
            self.end_session(key, for_good);
        }
    }

    /// Ends the least used session if there is no room for another. Returns whether there is room.
    pub(super) fn make_room_for_session(&mut self) -> bool {
        match self.binding.room_for_session(&self.cx.clock) {
            Room::Free => {}
            Room::Full => return false,
            Room::Displacing(key, for_good) => {
                self.cx.stats.displaced += 1;
                self.end_session(key, for_good);
            }
        }
        true
    }
}

/// # The end of an exchange
impl Server {
    /// Handles the disconnect of the client of an exchange. Returns whether the exchange is known.
    pub(super) fn client_gone(&mut self, stream: StreamId) -> bool {
        match self.binding.client_gone(&mut self.cx, stream) {
            Gone::Unknown => return false,
            Gone::Forgotten => {}
            Gone::Session(session) => self.end_session(session, true),
            Gone::Cancelled(queue) => {
                self.cancel_all(IdScope::Stream(stream));
                self.cx.outgoing.remove(queue);
            }
        }
        true
    }

    /// Makes room for another exchange. Returns whether one gave way.
    pub(super) fn free_exchange(&mut self) -> bool {
        match self.binding.displace_exchange(&mut self.cx) {
            Displaced::Arriving => {}
            Displaced::Nothing => return false,
            Displaced::Unread(stream) => self.disconnect(stream),
        }
        self.cx.stats.displaced += 1;
        true
    }

    /// Closes the connection of a client that does not read.
    pub(super) fn disconnect(&mut self, stream: StreamId) {
        let epoch = Epoch::FIRST;
        self.cx.outputs.push(Output::Abort { epoch, stream });
        self.client_gone(stream);
    }

    pub(super) fn send_keepalive(&mut self, stream: StreamId) {
        let deferred = self.offer.deferred();
        let is_deferred = |queue| deferred.awaits_reply_on(queue);
        if self
            .binding
            .send_keepalive(&mut self.cx, stream, is_deferred)
        {
            self.disconnect(stream);
        }
    }
}

/// # The end of the server
impl Server {
    /// Starts the drain because the client's input has ended. The client may still read.
    pub(super) fn input_ended(&mut self) {
        if self.cx.lifecycle.has_input_ended() {
            return;
        }
        self.read_last_line();
        self.cx.lifecycle.end_input();
        self.drain(EndOfService::EndOfInput);
        // The client can no longer answer an ask, or come back with an answer.
        self.end_all_asks();
        for request in self.requests.ids() {
            let entry = self.requests.get(request);
            if entry.is_some_and(|entry| entry.is_away()) {
                self.cancel(request, Cancelled::PeerGone);
            }
        }
    }

    /// Starts the drain: nothing new is taken from now on.
    pub(super) fn drain(&mut self, why: EndOfService) {
        let cue = match why {
            EndOfService::EndOfInput => Cue::EndOfInput,
            EndOfService::Shutdown => Cue::Shutdown,
        };
        if !self.cx.lifecycle.step(cue) {
            return;
        }
        self.cx.report(Event::Draining { why });
        self.cx.clock.arm(Timer::Drain, self.cx.config.drain);
        if why == EndOfService::Shutdown {
            self.refuse_deferred(&unavailable());
        }
        while let Some((wire, queue)) = self.watches.unlisten_first() {
            self.end_listen(wire, queue);
        }
        self.binding.drain(&mut self.cx);
    }

    pub(super) fn end_listen(&mut self, wire: WireId, queue: QueueId) {
        if self.cx.config.listen_end == ListenEnd::CancelledThenResult {
            let frame = Frame::ListenCancelled(wire.id.clone());
            self.cx.outgoing.push(queue, frame);
        }
        self.cx.outgoing.push(queue, Frame::ListenEnd(wire.id));
    }

    /// Cancels the requests in flight at the drain deadline. Their clients get an error.
    pub(super) fn drain_overdue(&mut self) {
        if !self.cx.lifecycle.step(Cue::DrainOver) {
            return;
        }
        self.refuse_deferred(&unavailable());
        self.binding.refuse_all_waiting(&mut self.cx);
        for request in self.requests.ids() {
            let Some(entry) = self.requests.get(request) else {
                continue;
            };
            if entry.is_answered() {
                continue;
            }
            if !entry.is_away() {
                let (id, queue) = (entry.arrival().wire.id.clone(), entry.queue());
                self.cx.reply(queue, id, Answer::CutShort);
            }
            self.cancel(request, Cancelled::OutOfTime);
        }
    }

    fn go_on_draining(&mut self) {
        let is_answered = self.requests.are_answered() && self.offer.deferred().is_empty();
        if !is_answered || self.binding.has_waiting() {
            return;
        }
        let shared = self.binding.shared_queue();
        let is_flushed = self.requests.in_flight() == 0
            && self.cx.outgoing.is_flushed(shared)
            && self.binding.are_exchanges_over();
        let remaining = Remaining {
            is_flushed,
            has_time: self.cx.clock.is_armed(Timer::Drain),
            is_flushing: self.cx.clock.is_armed(Timer::Flush),
        };
        match self.cx.lifecycle.after_replies(remaining) {
            Next::Close => self.close(Cue::Drained),
            Next::Flush => self.cx.clock.arm(Timer::Flush, self.cx.config.flush),
            Next::Wait => {}
        }
    }

    /// Closes the server. No client gets anything more.
    pub(super) fn close(&mut self, cue: Cue) {
        if !self.cx.lifecycle.applies(cue) {
            return;
        }
        self.offer.deferred_mut().clear();
        while self.watches.unlisten_first().is_some() {}
        self.end_all_asks();
        for request in self.requests.ids() {
            self.cancel(request, Cancelled::PeerGone);
        }
        self.cx.outgoing.clear();
        self.cx.clock.clear();
        self.binding.flush_store_requests(&mut self.cx);
        self.binding.abort(&mut self.cx);
        let epoch = Epoch::FIRST;
        self.cx.outputs.push(Output::Release { epoch });
        let faults = self.cx.lifecycle.take_faults();
        self.cx.report(Event::Closed { faults });
        self.cx.lifecycle.step(cue);
    }
}
