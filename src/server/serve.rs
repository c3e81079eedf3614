//! Serves requests: decides whether a request is served now or later, and who answers it. Begins sessions, and ends what belongs to a client that is
//! gone.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use crate::driver::{Epoch, Output, SessionRecord, StreamId};
use crate::json::Payload;
use crate::protocol::method::names;
use crate::protocol::watch::Setting;
use crate::protocol::{Era, LogLevel, Peer, code};
use crate::server::Server;
use crate::server::binding::http::{Displaced, Gone, NO_SESSION_LEFT, Refusal, Resumable, Room};
use crate::server::config::Offer;
use crate::server::event::{Cancelled, Event};
use crate::server::origin::{IdScope, Origin, QueueId, SessionKey, WireId};
use crate::server::outgoing::frame::{Answer, Frame};
use crate::server::requests::admission::{self, Facts, Service};
use crate::server::requests::params::Params;
use crate::server::session::LegacySession;
use crate::server::session::deferred::DeferredMessage;
use crate::server::session::terms::Terms;
use crate::server::watches;
use crate::util::Arc;
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
        // S-TIME-08: a ping is answered promptly, in every state, and needs no handshake.
        let is_legacy = !matches!(terms, Ok(Terms::Modern)) && self.sessions.speaks(Era::Legacy);
        if is_legacy && name == names::PING {
            self.cx.reply(from.queue, wire.id.clone(), Answer::Empty);
            return Ok(());
        }
        let peer = match terms {
            Err(_) if self.awaits_agreement(from) => return self.defer(from, wire, name, params),
            Err(error) => return Err(error),
            Ok(Terms::Initialize) => return self.admit_initialize(from, wire, params),
            Ok(Terms::Legacy(peer)) => peer,
            Ok(Terms::Modern) => self.sessions.modern_terms(params, None)?,
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
        let Some(session) = from.session else {
            return Ok(());
        };
        if self.binding.needs_session(session) {
            if !self.make_room_for_session() {
                return Err(ErrorObject::new(code::INTERNAL_ERROR, NO_SESSION_LEFT));
            }
            self.binding.open_session(&mut self.cx, session, from);
        }
        self.end_legacy(session, &Cancelled::Anew);
        self.report_client(&peer);
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
        self.save_session(session, true, Some((from.queue, id.clone())));
        Ok(())
    }

    /// Handles the end of a legacy client's handshake, and sends the asks that waited for it.
    pub(super) fn finish_handshake(&mut self, session: SessionKey) {
        if let Some(legacy) = self.sessions.finish_handshake(session) {
            self.watches.hears_lists(session, &legacy.offered);
            self.cx.report(Event::Initialized);
            self.requests.handshake_over(&mut self.cx, session);
        }
        if !self.sessions.is_initialized(session) {
            return;
        }
        // Also if the client repeats it: the store may not have taken it before.
        self.save_session(session, false, None);
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
        // While the session was not here, nobody told its client of changes.
        if self.binding.is_shared() {
            for change in self.watches.watched_by(key) {
                let frame = Frame::Changed(None, change);
                self.cx.outgoing.push(key.queue(), frame);
            }
        }
        Ok(key)
    }

    /// Stores the present state of a session, so that another server can continue it. If several servers use the store, the reply to the
    /// request with this id on this queue waits for it.
    pub(super) fn save_session(
        &mut self,
        key: SessionKey,
        is_new: bool,
        reply: Option<(QueueId, Id)>,
    ) {
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        let peer = &session.peer;
        if let Some(record) = self.binding.record_of(key, peer.version) {
            let record = SessionRecord {
                client: peer.client.clone(),
                capabilities: peer.capabilities.clone(),
                log_level: self.watches.level_of(key),
                uris: self.watches.uris_of(key),
                is_initialized: session.is_initialized,
                ..record
            };
            self.binding.save(&mut self.cx, record, is_new, reply);
        }
    }

    /// Reports a client that the application was not told of.
    fn report_client(&mut self, peer: &Arc<Peer>) {
        if self.sessions.is_new_client(peer) {
            self.cx.report(Event::Met(peer.clone()));
        }
    }

    /// Makes room for one more request of this sender.
    fn check_room(&mut self, from: &Origin) -> Result<(), ErrorObject> {
        let (deferred, sender) = (self.offer.deferred(), from.holder.as_ref());
        let all = deferred.len();
        let mine = sender.map_or(0, |s| deferred.held_by(s) + self.requests.held_by(s));
        let next_abandoned = || self.binding.next_abandoned();
        let requests = &mut self.requests;
        if requests.make_room(&mut self.cx, (sender, mine), all, next_abandoned)? {
            return Ok(());
        }
        let Some(displaced) = self.offer.deferred_mut().displace(mine) else {
            return Err(admission::too_many(self.cx.config.limits.requests));
        };
        self.cx.stats.displaced += 1;
        self.refuse_message(displaced, Some(admission::displaced()));
        Ok(())
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
        let answer = match Service::of(name, facts.is_some(), is_passed) {
            Service::Application => {
                self.check_room(from)?;
                if let Some(level) = log_level {
                    self.watches.wants_level(level);
                }
                let arrival = admission::arrival(from, wire, peer, params, log_level);
                let at_once = self.binding.begins_at_once(&arrival);
                let (cx, trace) = (&mut self.cx, from.trace.as_deref());
                return self
                    .requests
                    .deliver(cx, (name, facts), arrival, params, trace, at_once);
            }
            Service::Discover => self.offer.discovery(peer.version, self.cx.config.versions),
            Service::Listen => return self.listen(from, wire, peer, params),
            Service::SetLevel => {
                let level = params.text("level").as_deref().and_then(LogLevel::parse);
                let level = level.ok_or_else(admission::no_such_level)?;
                self.apply_setting(from, wire, &Setting::Level(level))?;
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
                self.apply_setting(from, wire, &setting)?;
                from.session.map(|_| Answer::Empty)
            }
        };
        if let Some(answer) = answer {
            self.cx.reply(from.queue, wire.id.clone(), answer);
        }
        Ok(())
    }

    /// Applies the log level or a subscription that a legacy client chose.
    fn apply_setting(
        &mut self,
        from: &Origin,
        wire: &WireId,
        setting: &Setting,
    ) -> Result<(), ErrorObject> {
        let Some(session) = from.session else {
            return Ok(());
        };
        self.watches.set(session, setting, &self.cx.config.limits)?;
        self.save_session(session, false, Some((from.queue, wire.id.clone())));
        Ok(())
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

/// # The end of requests
impl Server {
    /// Cancels every request and watch whose id is of this scope.
    fn cancel_all(&mut self, scope: IdScope) {
        for wire in self.watches.of(scope) {
            self.watches.unlisten(&wire);
        }
        self.requests.cancel_scope(&mut self.cx, scope);
        self.forget_deferred(scope);
    }

    /// Drops the requests of this scope that wait for the offer. They get no reply.
    fn forget_deferred(&mut self, scope: IdScope) {
        for queue in self.offer.deferred_mut().cancel_all(scope) {
            self.cx.outgoing.reply_done(queue);
        }
    }
}

/// # The end of a session
impl Server {
    /// Ends the session of a legacy client that is gone or begins anew. Its requests and asks are over.
    fn end_legacy(&mut self, session: SessionKey, why: &Cancelled) {
        if !self.sessions.end(session) {
            return;
        }
        self.watches.end(session);
        self.requests.end_session(&mut self.cx, session, why);
    }

    /// Ends a session and everything in it, for good or only on this server.
    pub(super) fn end_session(&mut self, key: SessionKey, for_good: bool) {
        self.binding.end_streams(&mut self.cx, key);
        self.end_legacy(key, &Cancelled::PeerGone);
        self.forget_deferred(IdScope::Session(key));
        self.binding.close_session(&mut self.cx, key, for_good);
    }

    /// Ends a session on this server, because another one is its home now. A call of which nothing was written yet may have run, so its
    /// connection breaks: status 404 would say that the session is over.
    pub(super) fn session_moved(&mut self, key: SessionKey) {
        for stream in self.binding.unbegun(key) {
            self.disconnect(stream);
        }
        self.end_session(key, false);
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

/// # Other servers with the same store
impl Server {
    /// Cuts all exchanges short that concern other servers, because these may count this one as dead.
    pub(super) fn lease_over(&mut self) {
        self.serve_ready();
        let (passed, taken) = self.binding.lease_over();
        for stream in passed {
            self.disconnect(stream);
        }
        for stream in taken {
            self.client_gone(stream);
        }
    }

    /// Goes on with what waited for the driver's store. A caller that ends exchanges calls this first: the look-ups of an ended exchange are
    /// forgotten, and with them what they found.
    pub(super) fn serve_ready(&mut self) {
        while self.binding.has_ready() {
            match self.binding.next_ready(&mut self.cx) {
                Some(Resumable::Cut(streams)) => {
                    for stream in streams {
                        self.disconnect(stream);
                    }
                }
                Some(Resumable::Request(stream, arrived)) => self.on_body(stream, *arrived),
                None => {}
            }
        }
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

    /// Closes the connections with most unread bytes while all clients together exceed the limit. The last `fresh` bytes of the exchange
    /// `newest` do not count. Returns whether any was closed: a drain may have waited for its requests.
    pub(super) fn disconnect_slow(&mut self, newest: StreamId, fresh: usize) -> bool {
        let before = self.cx.stats.displaced;
        while let Some(stream) = self.binding.heaviest_unread(newest, fresh) {
            self.cx.stats.displaced += 1;
            self.disconnect(stream);
        }
        self.cx.stats.displaced > before
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
