//! Sends asks to clients, and ends them with their outcomes. A modern client gets them in place of the reply to its request, round by round.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::driver::{AskId, RequestId};
use crate::json::{Json, Payload};
use crate::protocol::{Era, Peer};
use crate::server::clock::Timer;
use crate::server::context::Context;
use crate::server::event::{Event, Unanswered};
use crate::server::misuse::Misuse;
use crate::server::origin::{QueueId, SessionKey};
use crate::server::outgoing::frame::Frame;
use crate::server::outgoing::writer::MessageWriter;
use crate::server::requests::asks::{self, Ask, Found, Place, is_number};
use crate::server::requests::checks::{check_askable, check_params};
use crate::server::requests::places::Holder;
use crate::server::requests::reply::Verdict;
use crate::server::requests::{Arrival, Requests};
use crate::util::Arc;
use crate::wire::{ErrorObject, Id};

/// The facts about the client that is asked, which other components know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addressee {
    /// The queue to it.
    pub(crate) queue: QueueId,
    /// Whether it is the only client of the server.
    pub(crate) is_only: bool,
    /// Whether its handshake is over.
    pub(crate) is_initialized: bool,
    /// Whether the server behind a relay judges what it is asked.
    pub(crate) is_passed: bool,
}

/// # Asking
impl Requests {
    /// The number of open asks.
    pub(crate) fn open_asks(&self) -> usize {
        self.asks.len()
    }

    /// The legacy client that is asked something, and what it is asked.
    pub(crate) fn asked(&self, ask: AskId) -> Option<(SessionKey, &str, Option<&Payload>)> {
        let open = self.asks.get(ask)?;
        Some((open.session?, &open.method, open.params.as_ref()))
    }

    /// Asks the client of a request for something that the request needs. A key that is a number or is taken in this request is ignored.
    pub(crate) fn ask(
        &mut self,
        cx: &mut Context,
        to: Addressee,
        request: RequestId,
        key: Option<Box<str>>,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        let entry = self.open(request)?;
        if !to.is_passed {
            entry.check_question(&method, params.as_ref())?;
        }
        // Each ask of a request needs a key of its own, and numbers are the keys of asks that were given none.
        let key = key.filter(|key| !is_number(key) && self.asks.by_key(request, key).is_none());
        entry.check_round(cx.config.limits.input_rounds)?;
        let era = entry.version().era();
        let session = entry.arrival().session;
        let holder = entry.arrival().holder.clone();
        if era == Era::Modern && !to.is_only {
            self.make_room_away(cx, request);
        }
        self.check_ask(cx, params.as_ref(), (era, session, holder.as_ref()))?;
        let ask = Ask {
            request: Some(request),
            session,
            holder,
            queue: to.queue,
            key,
            method,
            params,
            place: match era {
                Era::Legacy => Place::Wire(false),
                Era::Modern => Place::Queued,
            },
            is_passed: to.is_passed,
        };
        let ask = self.open_ask(cx, to, ask);
        if let Some(entry) = self.table.get_mut(request) {
            entry.asks.insert(ask);
        }
        if era == Era::Modern {
            self.push_questions(cx, request);
        }
        Ok(ask)
    }

    /// Asks a legacy client for something that no request needs.
    pub(crate) fn ask_client(
        &mut self,
        cx: &mut Context,
        to: Addressee,
        (session, peer): (SessionKey, &Peer),
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        check_params(params.as_ref())?;
        if !to.is_passed {
            if let Err(why) = check_askable(peer, &method, params.as_ref()) {
                return Err(Misuse::Unaskable { method, why });
            }
        }
        let holder = (!to.is_only).then(|| Arc::new(Holder::Session(session)));
        let client = (Era::Legacy, Some(session), holder.as_ref());
        self.check_ask(cx, params.as_ref(), client)?;
        let ask = Ask {
            request: None,
            session: Some(session),
            holder,
            queue: to.queue,
            key: None,
            method,
            params,
            place: Place::Wire(false),
            is_passed: to.is_passed,
        };
        Ok(self.open_ask(cx, to, ask))
    }

    /// Ends a request whose client does not come back, if as many are away as may be, and others need its place.
    fn make_room_away(&mut self, cx: &mut Context, request: RequestId) {
        if let Some(oldest) = self.gives_way(request, cx.config.limits.requests) {
            cx.stats.displaced += 1;
            self.not_resumed(cx, oldest);
        }
    }

    fn check_ask(
        &self,
        cx: &Context,
        params: Option<&Payload>,
        client: (Era, Option<SessionKey>, Option<&Arc<Holder>>),
    ) -> Result<(), Misuse> {
        cx.lifecycle.check_can_ask()?;
        let bytes = params.map_or(0, |params| params.as_str().len());
        let limits = &cx.config.limits;
        self.asks.check_room(client, self.away(), bytes, limits)
    }

    fn open_ask(&mut self, cx: &mut Context, to: Addressee, ask: Ask) -> AskId {
        cx.stats.asks += 1;
        let is_request = ask.place == Place::Wire(false);
        let ask = self.asks.open(ask);
        cx.clock.arm(Timer::Ask(ask), cx.config.ask_timeout);
        // S-LIFE-05: a client is asked nothing before its handshake is over.
        if is_request && to.is_initialized {
            cx.outgoing.push(to.queue, Frame::Ask(ask));
        }
        ask
    }

    /// Queues the asks of a request in place of its reply. All asks that are open when they are written are included.
    fn push_questions(&mut self, cx: &mut Context, request: RequestId) {
        if let Some(queue) = self.put_asks(request) {
            cx.outgoing.push(queue, Frame::Questions(request));
        }
    }

    /// Sends the asks to a legacy client that waited for the end of its handshake.
    pub(crate) fn handshake_over(&mut self, cx: &mut Context, session: SessionKey) {
        for (ask, queue) in self.asks.unwritten(session) {
            cx.outgoing.push(queue, Frame::Ask(ask));
        }
    }
}

/// # Writing
impl Requests {
    /// Appends an ask to a legacy client, if it is open.
    pub(crate) fn write_ask(&mut self, buf: &mut Vec<u8>, ask: AskId) {
        if let Some(open) = self.asks.write(ask) {
            let params = open.params.as_ref();
            MessageWriter::ask(buf, &asks::id(ask), &open.method, params);
        }
    }

    /// Appends the asks of a request in place of its reply. Its client then is to come back.
    pub(crate) fn write_questions(
        &mut self,
        cx: &mut Context,
        writer: &MessageWriter,
        buf: &mut Vec<u8>,
        request: RequestId,
    ) {
        let entry = self.table.get(request);
        let (Some(entry), Some(token)) = (entry, self.next_token(request)) else {
            return;
        };
        for ask in entry.asks() {
            self.asks.write_in_round(*ask);
        }
        let asks = entry.asks().iter();
        let questions = asks.filter_map(|ask| self.asks.question(*ask));
        let id = &entry.arrival().wire.id;
        writer.questions(buf, id, questions, Some(&token));
        self.send_away(request);
        let timer = Timer::Away(request);
        cx.clock.arm(timer, cx.config.ask_timeout);
    }
}

/// # Outcomes
impl Requests {
    /// Ends the ask that a reply of a legacy client answers. Returns whether the id is that of an ask.
    pub(crate) fn answered(
        &mut self,
        cx: &mut Context,
        session: Option<SessionKey>,
        id: &Id,
        outcome: Result<Payload, Unanswered>,
    ) -> bool {
        match self.asks.find(session, id) {
            Found::Open(ask) => self.end_ask(cx, ask, outcome),
            Found::Late => cx.stats.late_replies += 1,
            Found::Unknown => return false,
        }
        true
    }

    /// Ends an ask with its outcome, and reports it.
    pub(super) fn end_ask(
        &mut self,
        cx: &mut Context,
        ask: AskId,
        outcome: Result<Payload, Unanswered>,
    ) {
        let Some(closed) = self.asks.close(ask) else {
            return;
        };
        cx.clock.disarm(Timer::Ask(ask));
        if let Some(queue) = closed.unwritten {
            cx.outgoing.retract_ask(queue, ask);
        }
        let request = closed.request;
        let unasked = request.and_then(|request| Some((request, self.ask_ended(request, ask)?)));
        if let Some((request, queue)) = unasked {
            cx.outgoing.retract_questions(queue, request);
        }
        cx.report(Event::Answered {
            ask,
            request,
            outcome,
        });
    }

    /// Withdraws an ask for the application.
    pub(crate) fn withdraw(
        &mut self,
        cx: &mut Context,
        ask: AskId,
        reason: Option<&str>,
    ) -> Result<(), Misuse> {
        if self.asks.get(ask).is_none() {
            return Err(Misuse::UnknownAsk);
        }
        self.withdraw_ask(cx, ask, Unanswered::Withdrawn, reason);
        Ok(())
    }

    /// Withdraws an ask. The client is told, if it received the ask and can be told.
    fn withdraw_ask(
        &mut self,
        cx: &mut Context,
        ask: AskId,
        why: Unanswered,
        reason: Option<&str>,
    ) {
        let told = self.asks.cancellable(ask);
        if let Some(queue) = told.filter(|_| !cx.lifecycle.has_input_ended()) {
            let frame = Frame::AskCancelled(ask, reason.map(Into::into));
            cx.outgoing.push(queue, frame);
        }
        self.end_ask(cx, ask, Err(why));
    }

    pub(crate) fn ask_overdue(&mut self, cx: &mut Context, ask: AskId) {
        let reason = Some("it was not answered in time");
        self.withdraw_ask(cx, ask, Unanswered::TimedOut, reason);
    }

    /// Ends the asks of a request that is over.
    pub(super) fn end_asks_of(&mut self, cx: &mut Context, request: RequestId) {
        while let Some(ask) = self.next_ask(request) {
            let reason = Some("the request is over");
            self.withdraw_ask(cx, ask, Unanswered::RequestOver, reason);
        }
    }

    /// Ends the asks of a request that the client has not received. The client answers the others when it comes back, and the application
    /// may still want these answers.
    pub(super) fn end_unsent_asks_of(&mut self, cx: &mut Context, request: RequestId) {
        for ask in self.asks_of(request) {
            if self.asks.is_queued(ask) {
                self.end_ask(cx, ask, Err(Unanswered::RequestOver));
            }
        }
    }

    /// Ends all asks, because no client can answer them.
    pub(super) fn end_all_asks(&mut self, cx: &mut Context) {
        while let Some(ask) = self.asks.first() {
            self.end_ask(cx, ask, Err(Unanswered::PeerGone));
        }
    }

    /// Ends the asks to a legacy client that is gone or begins anew. A new client does not know the asks to the old one, so it is not told
    /// that they are withdrawn.
    pub(super) fn end_asks_to(&mut self, cx: &mut Context, session: SessionKey) {
        for ask in self.asks.of_session(session) {
            self.end_ask(cx, ask, Err(Unanswered::PeerGone));
        }
    }

    pub(super) fn asks_of(&self, request: RequestId) -> Vec<AskId> {
        let entry = self.table.get(request);
        entry.map_or_else(Vec::new, |entry| entry.asks.iter().copied().collect())
    }
}

/// # Rounds
impl Requests {
    /// Goes on with the request about `subject` whose client comes back with this state, and with answers.
    pub(super) fn resume(
        &mut self,
        cx: &mut Context,
        state: &str,
        subject: u64,
        answers: Option<Json<'_>>,
        arrival: Arrival,
    ) -> Result<(), ErrorObject> {
        let request = self.awaited(state, subject)?;
        let given = self.asks.read_answers(request, answers)?;
        cx.clock.disarm(Timer::Away(request));
        cx.outgoing.expect_reply(arrival.queue);
        let held = self.bring_back(request, arrival);
        for (ask, answer) in given {
            self.end_ask(cx, ask, Ok(answer));
        }
        match held {
            Some(verdict) => self.send_held(cx, request, verdict),
            None => self.ask_again(cx, request),
        }
        Ok(())
    }

    /// Sends the reply that the application gave while the client was away.
    fn send_held(&mut self, cx: &mut Context, request: RequestId, verdict: Verdict) {
        self.end_asks_of(cx, request);
        if let Some((queue, bytes)) = self.reply_held(request, verdict) {
            cx.outgoing.push(queue, Frame::Reply(request, bytes));
        }
    }

    /// Sends the asks that are unanswered or new in another round (S-MRTR-17).
    fn ask_again(&mut self, cx: &mut Context, request: RequestId) {
        let Some(entry) = self.table.get(request) else {
            return;
        };
        let rounds = cx.config.limits.input_rounds;
        let is_last = entry.round() >= rounds;
        let peer = entry.arrival().peer.clone();
        for ask in self.asks_of(request) {
            let Some(open) = self.asks.get(ask) else {
                continue;
            };
            // S-META-08: capabilities that were declared with an earlier round no longer count. The server behind a relay judges that itself.
            let checked = match open.is_passed {
                true => Ok(()),
                false => check_askable(&peer, &open.method, open.params.as_ref()),
            };
            if is_last {
                self.end_ask(cx, ask, Err(Unanswered::TooManyRounds { rounds }));
            } else if let Err(why) = checked {
                self.end_ask(cx, ask, Err(Unanswered::Unaskable(why)));
            }
        }
        let entry = self.table.get(request);
        if entry.is_some_and(|entry| !entry.asks().is_empty()) {
            self.push_questions(cx, request);
        }
    }
}
