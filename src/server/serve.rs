//! Serves messages: decides whether a request is served now or later, and who answers it; sends asks for the application.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use crate::driver::{AskId, RequestId, SessionRecord};
use crate::json::Payload;
use crate::protocol::method::names;
use crate::protocol::watch::Setting;
use crate::protocol::{Era, LogLevel, Method, Peer, code};
use crate::server::Server;
use crate::server::asks::{Ask, Place, is_number};
use crate::server::binding::http::{NO_SESSION_LEFT, Refusal};
use crate::server::clock::Timer;
use crate::server::config::Offer;
use crate::server::event::{Caller, Cancelled, Event, Request};
use crate::server::misuse::Misuse;
use crate::server::origin::{Origin, SessionKey, WireId};
use crate::server::outgoing::frame::{Answer, Frame, Signal};
use crate::server::requests::Arrival;
use crate::server::requests::admission::{self, Facts, Round, Service};
use crate::server::requests::checks::{check_askable, check_params};
use crate::server::requests::params::Params;
use crate::server::session::LegacySession;
use crate::server::session::deferred::DeferredMessage;
use crate::server::session::terms::Terms;
use crate::server::watches;
use crate::wire::{ErrorObject, Id};

/// # Admission
impl Server {
    pub(super) fn on_request(&mut self, from: &Origin, id: Id, name: &str, params: &Params<'_>) {
        let wire = from.wire(id);
        if let Err(error) = self.admit(from, &wire, name, params) {
            self.binding
                .refuse(&mut self.cx, from.queue, wire.id, error);
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
                self.cx.reply(from.queue, wire.id.clone(), Answer::Empty);
                return Ok(());
            }
        };
        if !self.cx.lifecycle.is_serving()
            && !self.requests.resumes(name, params, from.user.as_deref())
        {
            return Err(admission::unavailable());
        }
        if peer.version.era() == Era::Modern {
            self.report_client(&peer);
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
        if !self.cx.lifecycle.is_serving() {
            return Err(admission::unavailable());
        }
        if self.offer.current().is_none() {
            if self.is_in_flight(wire) {
                return Err(admission::in_use());
            }
            self.report_client(&peer);
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
                return Err(ErrorObject::new(code::INTERNAL_ERROR, NO_SESSION_LEFT));
            }
            self.binding.open_session(&mut self.cx, session, from);
        }
        if let Some(session) = session {
            self.end_legacy(session, &Cancelled::Anew);
        }
        self.report_client(&peer);
        let Some(session) = session else {
            return Ok(());
        };
        self.watches.begin(session, &BTreeSet::new(), None);
        let version = self.offer.bargain(peer.version);
        if version != peer.version {
            Arc::make_mut(&mut peer).version = version;
        }
        if let Some(agreement) = self.offer.agreement(version) {
            self.cx.reply(from.queue, id.clone(), agreement);
        }
        let legacy = LegacySession {
            peer,
            is_initialized: false,
            offered: self.offer.capabilities(),
        };
        let level = self.cx.config.log_level;
        self.watches.offered(session, &legacy.offered, false, level);
        self.sessions.begin(session, legacy, true);
        self.binding.agreed(session, version);
        self.save_session(session);
        Ok(())
    }

    /// Handles the end of a legacy client's handshake, and sends the asks that waited for it.
    pub(super) fn finish_handshake(&mut self, session: SessionKey) {
        let Some(legacy) = self.sessions.finish_handshake(session) else {
            return;
        };
        self.watches.hears_lists(session, &legacy.offered);
        self.cx.report(Event::Initialized);
        for (ask, queue) in self.asks.unwritten(session) {
            self.cx.outgoing.push(queue, Frame::Ask(ask));
        }
        self.save_session(session);
        self.binding.initialized(&mut self.cx, session);
    }

    /// Continues a session that another server began.
    pub(super) fn revive_session(&mut self, record: SessionRecord) -> Result<SessionKey, Refusal> {
        if !self.make_room_for_session() {
            return Err(Refusal::busy(NO_SESSION_LEFT));
        }
        let key = self.binding.revive_session(&mut self.cx, &record);
        let key = key.ok_or_else(Refusal::no_session)?;
        let peer = Arc::new(Peer {
            version: record.version,
            client: record.client,
            capabilities: record.capabilities,
            introduction: None,
        });
        self.sessions.forget_reported();
        self.report_client(&peer);
        let session = LegacySession {
            peer,
            is_initialized: record.is_initialized,
            offered: self.offer.capabilities(),
        };
        let mut uris = record.uris;
        self.watches.fit(&mut uris, &self.cx.config.limits);
        self.watches.begin(key, &uris, record.log_level);
        let (offered, level) = (&session.offered, self.cx.config.log_level);
        self.watches
            .offered(key, offered, session.is_initialized, level);
        let is_offered = self.offer.current().is_some();
        self.sessions.begin(key, session, is_offered);
        Ok(key)
    }

    /// Stores the present state of a session, so that another server can continue it.
    fn save_session(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        let peer = &session.peer;
        if let Some(record) = self.binding.record_of(key, peer.version) {
            self.binding.save(SessionRecord {
                client: peer.client.clone(),
                capabilities: peer.capabilities.clone(),
                log_level: self.watches.level_of(key),
                uris: self.watches.uris_of(key),
                is_initialized: session.is_initialized,
                ..record
            });
        }
    }

    /// Reports a client that the application was not told of.
    fn report_client(&mut self, peer: &Arc<Peer>) {
        if self.sessions.is_new_client(peer) {
            self.cx.report(Event::Met(peer.clone()));
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
        let most = self.cx.config.limits.queued_bytes;
        self.offer.deferred().check_room(name, bytes, most)?;
        self.cx.outgoing.expect_reply(from.queue);
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
        self.offer.set(offer, &self.cx.config);
        let offered = self.offer.capabilities();
        while let Some((session, legacy)) = self.sessions.offer_to_next(&offered) {
            let level = self.cx.config.log_level;
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
                    self.cx.outgoing.reply_done(from.queue);
                    if let Err(error) = self.serve_deferred(&from, &wire, &method, &params) {
                        self.binding
                            .refuse(&mut self.cx, from.queue, wire.id, error);
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
                self.cx.reply(from.queue, wire.id.clone(), Answer::Empty);
                return Ok(());
            }
        };
        self.serve(from, wire, name, &peer, params)
    }

    /// Whether the legacy client of this origin sent `initialize` and waits for the offer.
    pub(super) fn awaits_agreement(&self, from: &Origin) -> bool {
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
            unknown_methods: self.cx.config.unknown_methods,
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
            Service::Discover => self
                .offer
                .discovery(peer.version, self.cx.config.versions)?,
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
            self.cx.reply(from.queue, wire.id.clone(), answer);
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
                subject = self
                    .requests
                    .subject(facts, params, arrival.user.as_deref());
            }
            match round {
                Round::First(supplied) => input = supplied,
                Round::Resumed(state) => {
                    let request = self.requests.awaited(&state, subject)?;
                    let given = self.asks.read_answers(request, params.answers)?;
                    self.cx.clock.disarm(Timer::Away(request));
                    self.cx.outgoing.expect_reply(arrival.queue);
                    let held = self.requests.bring_back(request, arrival);
                    self.resume(request, given, held);
                    return Ok(());
                }
            }
        }
        self.cx.outgoing.expect_reply(arrival.queue);
        // The first message of a batch begins the stream.
        if self.binding.begins_at_once(&arrival) && self.cx.outgoing.is_empty(arrival.queue) {
            let begin = Frame::Signal(Signal::Begin(None));
            self.cx.outgoing.push(arrival.queue, begin);
        }
        let method = facts.map_or_else(|| Cow::Owned(name.into()), |f| Cow::Borrowed(f.name));
        let user = arrival.user.clone();
        let caller = Caller::of(arrival.queue, arrival.session, user.as_deref());
        let (peer, log_level) = (arrival.peer.clone(), arrival.log_level);
        let wants_progress = arrival.token.is_some();
        let request = self
            .requests
            .accept(method.clone(), facts, subject, arrival);
        self.cx.stats.requests += 1;
        self.cx.report(Event::Request(Request {
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
        self.watches.set(session, setting, &self.cx.config.limits)?;
        self.save_session(session);
        Ok(())
    }

    /// Records a setting of this client that the server behind a relay accepted, so that it also holds in the server's next epoch.
    pub(super) fn record_setting(&mut self, caller: &Caller, setting: &Setting) {
        let shared = self.binding.shared_session();
        if let Ok(session) = self.sessions.of_caller(caller, shared) {
            // A subscription for which there is no room is not recorded.
            let _ = self.watches.set(session, setting, &self.cx.config.limits);
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
        let limits = &self.cx.config.limits;
        let granted = self.watches.admit(granted, from.is_duplex(), limits)?;
        let frame = Frame::Acknowledged(wire.id.clone(), granted.clone());
        self.cx.outgoing.push(from.queue, frame);
        self.cx.outgoing.expect_reply(from.queue);
        if self.cx.lifecycle.is_serving() {
            self.watches.listen(wire.clone(), from.queue, &granted);
        } else {
            self.end_listen(wire.clone(), from.queue);
        }
        Ok(())
    }
}

/// # Verbs of the application
impl Server {
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
        entry.check_round(self.cx.config.limits.input_rounds)?;
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
        self.cx.lifecycle.check_can_ask()?;
        let bytes = params.map_or(0, |params| params.as_str().len());
        let is_shared = self.binding.shared_queue().is_some();
        let client = (era, session, is_shared);
        let away = self.requests.away();
        self.asks
            .check_room(client, away, bytes, &self.cx.config.limits)
    }

    fn open_ask(&mut self, ask: Ask) -> AskId {
        self.cx.stats.asks += 1;
        let (session, queue) = (ask.session, ask.queue);
        if let Some(session) = session {
            self.sessions
                .asked(session, &ask.method, ask.params.as_ref());
        }
        let is_request = ask.place == Place::Wire(false);
        let ask = self.asks.open(ask);
        self.cx
            .clock
            .arm(Timer::Ask(ask), self.cx.config.ask_timeout);
        // S-LIFE-05: a client is asked nothing before its handshake is over.
        if is_request && session.is_some_and(|session| self.sessions.is_initialized(session)) {
            self.cx.outgoing.push(queue, Frame::Ask(ask));
        }
        ask
    }
}
