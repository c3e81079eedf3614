//! Serves messages: decides whether a request is served now or later, and who answers it; sends asks for the application.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::sync::Arc;

use crate::driver::{AskId, Epoch, RequestId};
use crate::json::{Json, Payload};
use crate::protocol::method::{self, names};
use crate::protocol::watch::Setting;
use crate::protocol::{Era, LogLevel, Method, Peer, code};
use crate::server::Server;
use crate::server::asks::{Ask, Place, Room, is_number};
use crate::server::binding::http::FULL;
use crate::server::clock::Timer;
use crate::server::config::Offer;
use crate::server::event::{Caller, Cancelled, Event, Request, Unanswered};
use crate::server::misuse::Misuse;
use crate::server::origin::{Origin, SessionKey, WireId};
use crate::server::outgoing::frame::{Answer, Frame, Signal};
use crate::server::requests::Arrival;
use crate::server::requests::admission::{self, Facts, Round, Service};
use crate::server::requests::checks::{check_askable, check_params};
use crate::server::requests::params::{CancelledParams, Params};
use crate::server::requests::reply::{InputRequired, Verdict};
use crate::server::session::LegacySession;
use crate::server::session::deferred::DeferredMessage;
use crate::server::session::terms::Terms;
use crate::server::watches;
use crate::util::noise::{self, Noise};
use crate::wire::{Batch, ErrorObject, Id, Malformed, Message};

/// # Messages
impl Server {
    pub(super) fn on_batch(&mut self, from: &Origin, batch: Batch<'_>, text: &str) {
        for element in batch {
            match element {
                // S-LIFE-10: a handshake cannot be part of a batch.
                Ok(Message::Request { id, method, .. }) if method == names::INITIALIZE => {
                    let text = "`initialize` cannot be part of a batch";
                    self.send_error(from, Some(id), code::INVALID_REQUEST, text);
                }
                Ok(message) => self.on_message(from, message),
                Err(malformed) => self.on_malformed(from, &malformed, text),
            }
        }
    }

    pub(super) fn on_malformed(&mut self, from: &Origin, malformed: &Malformed, text: &str) {
        let what = format!("a line that is no message: {malformed}");
        self.on_noise(&what, text.as_bytes(), false);
        match &malformed.id {
            Some(id) if malformed.is_response => {
                let why = what.into();
                self.on_reply(from, id, Err(Unanswered::Invalid { why }));
            }
            // S-RPC-15: a notification is never answered. A response without an id answers nothing that is known.
            None if malformed.is_response || malformed.is_notification => {}
            id => {
                let id = id.clone();
                let id = id.filter(|id| !self.is_in_flight(&from.wire(id.clone())));
                self.send_error(from, id, malformed.kind.code(), &format!("{malformed}"));
            }
        }
    }

    /// Replies to something that is not a request. An error without an id is sent only if the version allows it.
    pub(super) fn send_error(&mut self, from: &Origin, id: Option<Id>, code: i64, text: &str) {
        if id.is_some() || self.sessions.allows_errors_without_id(from) {
            self.stats.refused += 1;
            let error = ErrorObject::new(code, text);
            let frame = Frame::Answer(id, Answer::Error(error));
            self.outgoing.push(from.queue, frame);
        }
    }

    pub(super) fn on_message(&mut self, from: &Origin, message: Message<'_>) {
        self.made_sense();
        match message {
            Message::Notification { method, params } => {
                self.on_notification(from, &method, params);
            }
            Message::Request { id, method, params } => {
                let params = Params::read(params, self.sessions.known_terms());
                self.on_request(from, id, &method, &params);
            }
            Message::Response {
                id: Some(id),
                outcome,
            } => {
                let outcome = outcome.map(Payload::from);
                self.on_reply(from, &id, outcome.map_err(Unanswered::Error));
            }
            Message::Response { id: None, .. } => {
                self.on_noise("an error that names no request", b"", false);
            }
        }
    }

    pub(super) fn made_sense(&mut self) {
        self.stats.messages_in += 1;
        self.binding.noise().made_sense();
    }

    /// Counts unusable input, and reports samples of it.
    pub(super) fn on_noise(&mut self, what: &str, bytes: &[u8], is_too_large: bool) {
        self.stats.noise += 1;
        if self.lifecycle.is_closed() {
            return;
        }
        if let Some(count) = self.binding.noise().heard() {
            let sample = noise::sample(bytes, self.config.limits.noise_sample);
            self.report(Event::Noise(Noise {
                epoch: Epoch::FIRST,
                what: what.into(),
                count,
                sample,
                is_too_large,
            }));
        }
    }

    fn on_notification(&mut self, from: &Origin, name: &str, params: Option<Json<'_>>) {
        match (name, from.session) {
            (names::NOTIFICATIONS_CANCELLED, _) => self.on_cancelled(from, params),
            (names::NOTIFICATIONS_INITIALIZED, Some(session)) => {
                if !self.awaits_agreement(from) {
                    self.finish_handshake(session);
                } else if !self.offer.deferred().has_initialized(session) {
                    let message = DeferredMessage::Initialized(session);
                    self.offer.deferred_mut().push(message);
                }
            }
            (names::NOTIFICATIONS_INITIALIZED, None) => {}
            // S-RPC-15: a notification is never answered.
            (_, _) => self.report(Event::Notified {
                method: name.into(),
                params: params.map(Payload::from),
                caller: from.caller(),
            }),
        }
    }

    /// Handles a cancellation. If it names nothing in flight, it is ignored (S-CANC-05, S-CANC-08).
    fn on_cancelled(&mut self, from: &Origin, params: Option<Json<'_>>) {
        let Some(CancelledParams { id, reason, meta }) = CancelledParams::read(params) else {
            return;
        };
        let wire = from.wire(id);
        if self.watches.is_listening(&wire) {
            self.watches.unlisten(&wire);
            self.outgoing.retract_listen(from.queue, &wire.id);
            self.outgoing.settle(from.queue);
        } else if let Some(request) = self.requests.find(&wire) {
            self.cancel(request, Cancelled::ByPeer { reason, meta });
        } else {
            // S-CANC-10: a handshake is not cancelled.
            let deferred = self.offer.deferred_mut().cancel(&wire);
            if let Some(queue) = deferred.and_then(|message| message.queue()) {
                self.outgoing.settle(queue);
            }
            self.outgoing.retract_id(from.queue, &wire.id);
        }
    }
}

/// # Admission
impl Server {
    pub(super) fn on_request(&mut self, from: &Origin, id: Id, name: &str, params: &Params<'_>) {
        let wire = from.wire(id);
        if let Err(error) = self.admit(from, &wire, name, params) {
            self.refuse(from.queue, wire.id, error);
        }
    }

    fn admit(
        &mut self,
        from: &Origin,
        wire: &WireId,
        name: &str,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        if params.is_ambiguous {
            let text = "the request says something twice that must be said once";
            return Err(ErrorObject::new(code::INVALID_PARAMS, text));
        }
        let terms = self.sessions.terms_of(from, name, params);
        if !matches!(terms, Ok(Terms::Initialize)) && self.is_in_flight(wire) {
            return Err(admission::in_use());
        }
        let peer = match terms {
            Err(_) if self.awaits_agreement(from) => return self.defer(from, wire, name, params),
            Err(error) => return Err(error),
            Ok(Terms::Initialize) => return self.admit_initialize(from, wire, params),
            Ok(Terms::Legacy(peer)) => peer,
            Ok(Terms::Modern) => self.sessions.modern_terms(params, None)?,
            Ok(Terms::Ping) => {
                // S-TIME-08: a ping is answered promptly, in every state.
                self.reply(from.queue, wire.id.clone(), Answer::Empty);
                return Ok(());
            }
        };
        if !self.lifecycle.is_serving() && !self.resumes(from, name, params) {
            return Err(admission::unavailable());
        }
        if peer.version.era() == Era::Modern {
            self.introduce(&peer);
        }
        if self.offer.current().is_none() {
            return self.defer(from, wire, name, params);
        }
        self.serve(from, wire, name, &peer, params)
    }

    fn admit_initialize(
        &mut self,
        from: &Origin,
        wire: &WireId,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        let peer = self.sessions.read_introduction(params.whole())?;
        if !from.is_duplex() {
            // Two clients with the same description are still two clients.
            self.sessions.forget_reported();
        }
        if !self.lifecycle.is_serving() {
            return Err(admission::unavailable());
        }
        if self.offer.current().is_none() {
            if self.is_in_flight(wire) {
                return Err(admission::in_use());
            }
            self.introduce(&peer);
            return self.defer(from, wire, names::INITIALIZE, params);
        }
        // A new handshake ends the requests of the client, but not modern ones.
        let request = self.requests.find(wire);
        let entry = request.and_then(|request| self.requests.get(request));
        let is_modern = entry.is_some_and(|entry| entry.arrival().session.is_none());
        if is_modern || self.watches.is_listening(wire) {
            return Err(admission::in_use());
        }
        self.begin_legacy(from, &wire.id, peer)
    }

    /// Answers `initialize`, and begins the session of a legacy client.
    fn begin_legacy(
        &mut self,
        from: &Origin,
        id: &Id,
        mut peer: Arc<Peer>,
    ) -> Result<(), ErrorObject> {
        let session = from.session;
        if let Some(session) = session.filter(|session| self.binding.needs_session(*session)) {
            if !self.make_room_for_session() {
                return Err(ErrorObject::new(code::INTERNAL_ERROR, FULL));
            }
            self.binding.open_session(session, from);
            self.begin_session(session);
        }
        if let Some(session) = session {
            self.end_legacy(session, &Cancelled::Anew);
        }
        self.introduce(&peer);
        let Some(session) = session else {
            return Ok(());
        };
        self.watches.begin(session, &BTreeSet::new(), None);
        let version = self.offer.bargain(peer.version);
        if version != peer.version {
            Arc::make_mut(&mut peer).version = version;
        }
        if let Some(agreement) = self.offer.agreement(version) {
            self.reply(from.queue, id.clone(), agreement);
        }
        let legacy = LegacySession {
            peer,
            is_initialized: false,
            offered: self.offer.capabilities(),
        };
        let level = self.config.log_level;
        self.watches.offered(session, &legacy.offered, false, level);
        self.sessions.begin(session, legacy, true);
        self.binding.agreed(session, version, false);
        self.save_session(session);
        Ok(())
    }

    /// Handles the end of a legacy client's handshake, and sends the asks that waited for it.
    fn finish_handshake(&mut self, session: SessionKey) {
        let Some(legacy) = self.sessions.finish_handshake(session) else {
            return;
        };
        self.watches.hears_lists(session, &legacy.offered);
        self.report(Event::Initialized);
        for (ask, queue) in self.asks.unwritten(session) {
            self.outgoing.push(queue, Frame::Ask(ask));
        }
        self.save_session(session);
        self.binding.initialized(session, &mut self.clock);
    }

    /// Reports a client that the application was not told of.
    pub(super) fn introduce(&mut self, peer: &Arc<Peer>) {
        if self.sessions.introduces(peer) {
            self.report(Event::Met(peer.clone()));
        }
    }

    /// Defers a request until the offer is known.
    fn defer(
        &mut self,
        from: &Origin,
        wire: &WireId,
        name: &str,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        self.check_room(from)?;
        let bytes = params.whole().map_or(0, |params| params.as_str().len());
        let most = self.config.limits.queued_bytes;
        self.offer.deferred().check_room(name, bytes, most)?;
        self.outgoing.owe(from.queue);
        self.offer.deferred_mut().push(DeferredMessage::Request {
            from: from.clone(),
            id: wire.id.clone(),
            method: name.into(),
            params: params.whole().map(Payload::from),
        });
        Ok(())
    }

    /// Sets the offer, or replaces it, and serves the requests that waited for it.
    pub(super) fn set_offer(&mut self, offer: Offer) {
        self.offer.set(offer, &self.config);
        let offered = self.offer.capabilities();
        while let Some((session, legacy)) = self.sessions.offer_to_next(&offered) {
            let level = self.config.log_level;
            self.watches
                .offered(session, &offered, legacy.is_initialized, level);
        }
        // Nothing is deferred during this loop, because the offer is known.
        while let Some(message) = self.offer.deferred_mut().pop() {
            match message {
                DeferredMessage::Initialized(session) => self.finish_handshake(session),
                DeferredMessage::Request {
                    from,
                    id,
                    method,
                    params,
                } => {
                    let params = params.as_ref().map(Payload::json);
                    let params = Params::read(params, self.sessions.known_terms());
                    let wire = from.wire(id);
                    self.outgoing.settle(from.queue);
                    if let Err(error) = self.serve_deferred(&from, &wire, &method, &params) {
                        self.refuse(from.queue, wire.id, error);
                    }
                }
            }
        }
    }

    fn serve_deferred(
        &mut self,
        from: &Origin,
        wire: &WireId,
        name: &str,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        let peer = match self.sessions.terms_of(from, name, params)? {
            Terms::Initialize => {
                let peer = self.sessions.read_introduction(params.whole())?;
                return self.begin_legacy(from, &wire.id, peer);
            }
            Terms::Legacy(peer) => peer,
            Terms::Modern => self.sessions.modern_terms(params, None)?,
            Terms::Ping => {
                self.reply(from.queue, wire.id.clone(), Answer::Empty);
                return Ok(());
            }
        };
        self.serve(from, wire, name, &peer, params)
    }

    /// Whether the legacy client of this origin sent `initialize` and waits for the offer.
    fn awaits_agreement(&self, from: &Origin) -> bool {
        let deferred = self.offer.deferred();
        let session = from.session;
        session.is_some_and(|session| deferred.awaits_agreement(session))
    }

    /// Whether a reply with this id would be taken for the reply to another request.
    pub(super) fn is_in_flight(&self, wire: &WireId) -> bool {
        self.requests.find(wire).is_some()
            || self.watches.is_listening(wire)
            || self.offer.deferred().has(wire)
    }

    /// The hash of what a request is about, for the state tokens.
    fn subject(&self, facts: &Method, params: &Params<'_>, user: Option<&str>) -> u64 {
        let target = facts.named_by.and_then(|key| params.text(key));
        let target = target.unwrap_or_default();
        self.requests.subject(facts.name, &target, user)
    }

    /// Whether the request continues one that was begun before.
    fn resumes(&self, from: &Origin, name: &str, params: &Params<'_>) -> bool {
        let facts = method::find(name).filter(|facts| facts.may_need_input);
        let state = admission::read_state(params).ok().flatten();
        match (facts, state) {
            (Some(facts), Some(state)) if params.claims_modern() => {
                let subject = self.subject(facts, params, from.user.as_deref());
                self.requests.awaited(&state, subject).is_ok()
            }
            (_, _) => false,
        }
    }
}

/// # Service
impl Server {
    /// Serves a request, now that its terms and the offer are known.
    fn serve(
        &mut self,
        from: &Origin,
        wire: &WireId,
        name: &str,
        peer: &Arc<Peer>,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        let log_level = admission::read_level(params, peer)?;
        let is_passed = self.offer.passes(peer.version);
        let has_subscriptions = || {
            let session = from.session;
            session.is_some_and(|session| self.watches.has_subscriptions(session))
        };
        let facts = Facts {
            unknown_methods: self.config.unknown_methods,
            offer: self.offer.current(),
            is_passed,
        };
        let facts = admission::check_method(name, peer, &facts, has_subscriptions)?;
        self.check_room(from)?;
        let answer = match Service::of(name, facts.is_some(), is_passed) {
            Service::Application => {
                if let Some(level) = log_level {
                    self.watches.wants_level(level);
                }
                let arrival = admission::arrival(from, wire, peer, params, log_level);
                return self.deliver(name, facts, arrival, params);
            }
            Service::Discover => self.offer.discovery(peer.version, self.config.versions)?,
            Service::Listen => return self.listen(from, wire, peer, params),
            Service::SetLevel => {
                let level = params.text("level").as_deref().and_then(LogLevel::parse);
                let level = level.ok_or_else(admission::no_such_level)?;
                self.apply_setting(from.session, &Setting::Level(level))?;
                Some(Answer::Empty)
            }
            Service::Subscribe | Service::Unsubscribe => {
                let nameless =
                    || ErrorObject::new(code::INVALID_PARAMS, "the request names no uri");
                let uri: Box<str> = params.text("uri").ok_or_else(nameless)?.into();
                let setting = if name == names::RESOURCES_SUBSCRIBE {
                    Setting::Subscribe(uri)
                } else {
                    Setting::Unsubscribe(uri)
                };
                self.apply_setting(from.session, &setting)?;
                from.session.map(|_| Answer::Empty)
            }
        };
        if let Some(answer) = answer {
            self.reply(from.queue, wire.id.clone(), answer);
        }
        Ok(())
    }

    /// Hands a request to the application, or resumes it if its client comes back with a state of this server.
    fn deliver(
        &mut self,
        name: &str,
        facts: Option<&'static Method>,
        arrival: Arrival,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        let is_modern = arrival.session.is_none();
        let rounds = facts.filter(|facts| is_modern && facts.may_need_input);
        let (mut subject, mut input) = (0, None);
        if let Some(facts) = rounds {
            let round = admission::read_round(params)?;
            // No state is ever made for a client that cannot be asked anything.
            if matches!(round, Round::Resumed(_)) || !arrival.peer.capabilities.is_empty() {
                subject = self.subject(facts, params, arrival.user.as_deref());
            }
            match round {
                Round::First(supplied) => input = supplied,
                Round::Resumed(state) => {
                    let request = self.requests.awaited(&state, subject)?;
                    let given = self.asks.read_answers(request, params.answers)?;
                    self.clock.disarm(Timer::Away(request));
                    self.outgoing.owe(arrival.queue);
                    let held = self.requests.bring_back(request, arrival);
                    self.resume(request, given, held);
                    return Ok(());
                }
            }
        }
        self.outgoing.owe(arrival.queue);
        // The first message of a batch begins the stream.
        if self.binding.begins_at_once(&arrival) && self.outgoing.is_empty(arrival.queue) {
            let begin = Frame::Signal(Signal::Begin(0));
            self.outgoing.push(arrival.queue, begin);
        }
        let method = facts.map_or_else(|| Cow::Owned(name.into()), |f| Cow::Borrowed(f.name));
        let user = arrival.user.clone();
        let caller = Caller::of(arrival.queue, arrival.session, user.as_deref());
        let (peer, log_level) = (arrival.peer.clone(), arrival.log_level);
        let wants_progress = arrival.token.is_some();
        let request = self
            .requests
            .accept(method.clone(), facts, subject, arrival);
        self.stats.requests += 1;
        self.report(Event::Request(Request {
            request,
            method,
            params: params.rest(rounds.is_some()),
            peer,
            user,
            caller,
            wants_progress,
            log_level,
            input,
        }));
        Ok(())
    }

    /// Applies the log level or a subscription that a legacy client chose.
    fn apply_setting(
        &mut self,
        session: Option<SessionKey>,
        setting: &Setting,
    ) -> Result<(), ErrorObject> {
        let Some(session) = session else {
            return Ok(());
        };
        self.watches.set(session, setting, &self.config.limits)?;
        self.save_session(session);
        Ok(())
    }

    /// Records a setting of this client that the server behind a relay accepted, so that it also holds in the server's next epoch.
    pub(super) fn record_setting(&mut self, caller: &Caller, setting: &Setting) {
        let shared = self.binding.shared_session();
        if let Ok(session) = self.sessions.of_caller(caller, shared) {
            // A subscription for which there is no room is not recorded.
            let _ = self.watches.set(session, setting, &self.config.limits);
            self.save_session(session);
        }
    }

    /// Opens a watch. The acknowledgement comes before any notification (S-SUB-03).
    fn listen(
        &mut self,
        from: &Origin,
        wire: &WireId,
        peer: &Peer,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        let wanted = watches::read_listen(params.whole(), peer)?;
        let offer = self.offer.current();
        let granted = offer.map(|offer| watches::grant(wanted, &offer.capabilities));
        let granted = granted.unwrap_or_default();
        let limits = &self.config.limits;
        let granted = self.watches.admit(granted, from.is_duplex(), limits)?;
        let frame = Frame::Acknowledged(wire.id.clone(), granted.clone());
        self.outgoing.push(from.queue, frame);
        self.outgoing.owe(from.queue);
        if self.lifecycle.is_serving() {
            self.watches.listen(wire.clone(), from.queue, &granted);
        } else {
            self.end_listen(wire.clone(), from.queue);
        }
        Ok(())
    }
}

/// # Verbs of the application
impl Server {
    pub(super) fn give_result(
        &mut self,
        request: RequestId,
        result: Payload,
    ) -> Result<(), Misuse> {
        if !result.is_object() {
            return Err(Misuse::NotAnObject { what: "a result" });
        }
        let entry = self.requests.open(request)?;
        let is_passed = self.offer.passes(entry.version());
        let offered = self.offer.current().map(|offer| &offer.capabilities);
        let shape = entry.check_result(&result, is_passed, offered)?;
        if entry.method() == names::TOOLS_LIST {
            // A result that is too large never reaches the client, so nothing is learnt from it.
            self.requests.check_size(result.as_str().len())?;
            let user = entry.arrival().user.as_deref();
            self.binding.learn_tools(user, &result);
        }
        self.conclude(request, Verdict::Result(result, shape))
    }

    pub(super) fn give_input_required(
        &mut self,
        request: RequestId,
        input: InputRequired,
    ) -> Result<(), Misuse> {
        self.requests.open(request)?.check_input(&input)?;
        self.conclude(request, Verdict::Input(input))
    }

    pub(super) fn ask_for_request(
        &mut self,
        request: RequestId,
        key: Option<Box<str>>,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        let entry = self.requests.open(request)?;
        if !self.offer.passes(entry.version()) {
            entry.check_question(&method, params.as_ref())?;
        }
        // Each ask of a request needs a key of its own, and numbers are the keys of asks that were given none.
        let key = key.filter(|key| !is_number(key) && self.asks.by_key(request, key).is_none());
        entry.check_round(self.config.limits.input_rounds)?;
        let era = entry.version().era();
        let session = entry.arrival().session;
        let queue = self.binding.queue_for_ask(entry.arrival());
        self.check_ask(params.as_ref(), era, session)?;
        let ask = self.open_ask(Ask {
            request: Some(request),
            session,
            queue,
            key,
            method,
            params,
            place: match era {
                Era::Legacy => Place::Wire(false),
                Era::Modern => Place::Queued,
            },
        });
        self.requests.add_ask(request, ask);
        if era == Era::Modern {
            self.push_questions(request);
        }
        Ok(ask)
    }

    pub(super) fn ask_client(
        &mut self,
        session: SessionKey,
        method: Cow<'static, str>,
        params: Option<Payload>,
    ) -> Result<AskId, Misuse> {
        let legacy = self.sessions.get(session).ok_or(Misuse::NoLegacyPeer)?;
        let peer = &legacy.peer;
        check_params(params.as_ref())?;
        if !self.offer.passes(peer.version) {
            if let Err(why) = check_askable(peer, &method, params.as_ref()) {
                return Err(Misuse::Unaskable { method, why });
            }
        }
        self.check_ask(params.as_ref(), Era::Legacy, Some(session))?;
        Ok(self.open_ask(Ask {
            request: None,
            session: Some(session),
            queue: session.queue(),
            key: None,
            method,
            params,
            place: Place::Wire(false),
        }))
    }

    fn check_ask(
        &self,
        params: Option<&Payload>,
        era: Era,
        session: Option<SessionKey>,
    ) -> Result<(), Misuse> {
        self.lifecycle.check_can_ask()?;
        let limits = &self.config.limits;
        let (asks, away) = (self.asks.len(), self.requests.away());
        let is_shared = self.binding.shared_queue().is_some();
        // Where there are several clients, one must not use up the limit for all.
        let (open, most) = match (era, is_shared) {
            (Era::Legacy, true) => (asks, limits.asks),
            (Era::Modern, true) => (asks.max(away), limits.asks),
            (Era::Legacy, false) => {
                let to = session.map_or(0, |session| self.asks.count_to(session));
                (to, limits.asks)
            }
            (Era::Modern, false) => (away, limits.requests),
        };
        let bytes = params.map_or(0, |params| params.as_str().len());
        self.asks.check_room(&Room { open, most }, bytes, limits)
    }

    fn open_ask(&mut self, ask: Ask) -> AskId {
        self.stats.asks += 1;
        let (session, queue) = (ask.session, ask.queue);
        if let Some(session) = session {
            self.sessions
                .asked(session, &ask.method, ask.params.as_ref());
        }
        let is_request = ask.place == Place::Wire(false);
        let ask = self.asks.open(ask);
        self.clock.arm(Timer::Ask(ask), self.config.ask_timeout);
        if let Some(session) = session.filter(|_| is_request) {
            self.push_ask(session, queue, ask);
        }
        ask
    }

    /// Ends the response on which the client of a request waits, if the client can come back for the reply.
    pub(super) fn hang_up_on(&mut self, request: RequestId) -> Result<(), Misuse> {
        let arrival = self.requests.open(request)?.arrival();
        let queue = arrival.queue;
        let is_empty = self.outgoing.is_empty(queue);
        if let Some(stream) = self.binding.hang_up(arrival, is_empty) {
            self.let_go(stream, queue, true);
        }
        Ok(())
    }
}
