//! Decides whether a request can be served, now or later, and who answers it.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;

use super::config::{Offer, UnknownMethods};
use super::early::Early;
use super::ending::unavailable;
use super::event::{Caller, Cancelled, Event, Request, State, Supplied};
use super::frame::{Answer, Voice};
use super::origin::{Origin, Whose, WireId};
use super::params::Params;
use super::requests::Arrival;
use super::seal::PREFIX;
use super::service::no_such_level;
use super::terms::Terms;
use super::{Server, missing_capability, quoting};
use crate::client::config::SHORT;
use crate::json::Payload;
use crate::protocol::method::{self, names};
use crate::protocol::{
    ClientFeature, Era, Kind, LogLevel, Method, Peer, ServerFeature, Version, code,
};
use crate::wire::{ErrorObject, Id};

impl Server {
    pub(super) fn asked(&mut self, from: &Origin, id: Id, name: &str, params: &Params<'_>) {
        let wire = from.wire(id);
        if let Err(error) = self.admit(from, &wire, name, params) {
            self.refuse(from.lane, wire.id, error);
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
        let terms = self.terms(from, name, params);
        if !matches!(terms, Ok(Terms::Initialize)) {
            self.check_id(wire)?;
        }
        let peer = match terms {
            Err(_) if self.awaits_agreement(from) => return self.defer(from, wire, name, params),
            Err(error) => return Err(error),
            Ok(Terms::Initialize) => return self.introduce(from, wire, params),
            Ok(Terms::Legacy(peer)) => peer,
            Ok(Terms::Modern) => self.modern_terms(params, None)?,
            Ok(Terms::Ping) => {
                // S-TIME-08: a ping is answered promptly, in every state.
                self.answer(from.lane, wire.id.clone(), Answer::Empty);
                return Ok(());
            }
        };
        if self.state != State::Serving && !self.resumes(from, name, params) {
            return Err(unavailable());
        }
        if peer.version.era() == Era::Modern {
            self.meet(&peer);
        }
        if self.config.offer.is_none() {
            return self.defer(from, wire, name, params);
        }
        self.take(from, wire, name, peer, params)
    }

    fn introduce(
        &mut self,
        from: &Origin,
        wire: &WireId,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        let peer = self.introduced(params.whole())?;
        if !from.is_duplex() {
            // Two clients with the same description are still two clients.
            self.met = None;
        }
        if self.state != State::Serving {
            return Err(unavailable());
        }
        if self.config.offer.is_none() {
            self.check_id(wire)?;
            self.meet(&peer);
            return self.defer(from, wire, names::INITIALIZE, params);
        }
        if self.is_in_modern_use(wire) {
            return Err(in_use());
        }
        self.begin_anew(from, &wire.id, peer)
    }

    fn begin_anew(&mut self, from: &Origin, id: &Id, peer: Arc<Peer>) -> Result<(), ErrorObject> {
        self.open_session(from)?;
        if let Some(session) = from.session {
            self.end_legacy(session, &Cancelled::Anew);
        }
        self.meet(&peer);
        self.agree(from, id, peer);
        Ok(())
    }

    /// Whether an id is that of a request that a new handshake does not end.
    fn is_in_modern_use(&self, wire: &WireId) -> bool {
        let entry = self.requests.find(wire).and_then(|r| self.requests.get(r));
        let is_modern = entry.is_some_and(|entry| entry.arrival.session.is_none());
        is_modern || self.watchers.is_listening(wire)
    }

    /// Refuses a request whose id is in use. Without this reply, its sender would take the reply to the first request for its own.
    fn check_id(&self, wire: &WireId) -> Result<(), ErrorObject> {
        if !self.is_in_flight(wire) {
            return Ok(());
        }
        Err(in_use())
    }

    /// Serves a request, now that its terms and the offer are known.
    fn take(
        &mut self,
        from: &Origin,
        wire: &WireId,
        name: &str,
        peer: Arc<Peer>,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        read_level(params, &peer)?;
        let facts = self.gate(from, name, &peer)?;
        self.check_room(from)?;
        let id = &wire.id;
        // The server behind a relay judges methods that the client's version does not have.
        let is_passed = facts.is_none() || is_setting(name) && self.passes(peer.version);
        match name {
            _ if is_passed => {
                let arrival = self.arrival(from, wire, &peer, params)?;
                self.deliver(name, facts, from.user.clone(), arrival, params)?;
            }
            names::SERVER_DISCOVER => self.discover(from, id, &peer)?,
            names::SUBSCRIPTIONS_LISTEN => self.listen(from, id, &peer, params)?,
            names::LOGGING_SET_LEVEL => self.set_level(from, id, params)?,
            names::RESOURCES_SUBSCRIBE | names::RESOURCES_UNSUBSCRIBE => {
                self.subscribe(from, id, name, params)?;
            }
            _ => {
                let arrival = self.arrival(from, wire, &peer, params)?;
                self.deliver(name, facts, from.user.clone(), arrival, params)?;
            }
        }
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
        let held = self.early.bytes();
        let bytes = params.whole().map_or(0, |params| params.as_str().len());
        // A lone request waits whatever its size. Short requests always wait, because long ones of other clients are no reason to refuse
        // them.
        let is_long = bytes > SHORT && held > 0;
        if is_long && held + name.len() + bytes > self.config.limits.queued_bytes {
            let text = "too much waits to be served already; ask again when some of it is";
            return Err(ErrorObject::new(code::INTERNAL_ERROR, text));
        }
        self.lanes.owe(from.lane);
        self.early.push(Early::Request {
            from: from.clone(),
            id: wire.id.clone(),
            method: name.into(),
            params: params.whole().map(Payload::from),
        });
        Ok(())
    }

    fn check_room(&mut self, from: &Origin) -> Result<(), ErrorObject> {
        if self.http.is_some() {
            return self.check_share(from);
        }
        let most = self.config.limits.requests;
        if self.open_requests() < most {
            return Ok(());
        }
        let text = format!("{most} requests are not answered yet; ask again when some are");
        Err(ErrorObject::new(code::INTERNAL_ERROR, text))
    }

    /// The number of requests that clients wait for.
    pub(super) fn open_requests(&self) -> usize {
        self.requests.in_flight() + self.early.len()
    }

    /// Sets the offer, or replaces it, and serves the requests that waited for it.
    pub(super) fn offers(&mut self, offer: Offer) {
        self.voice = Voice::new(Some(&offer), &self.config);
        // A session that began on another server was offered the same there.
        for session in core::mem::take(&mut self.unoffered) {
            if let Some(scope) = self.scopes.get_mut(&session) {
                scope.offered = offer.capabilities.clone();
                if scope.is_initialized {
                    self.watchers.hears_lists(session, &scope.offered);
                }
                if scope.offered.offers(ServerFeature::Logging) {
                    self.watchers.hears_logs(session, self.config.log_level);
                }
            }
        }
        self.config.offer = Some(offer);
        // Nothing is deferred during this loop, because the offer is known.
        while let Some(early) = self.early.pop() {
            match early {
                Early::Initialized(session) => self.initialized(session),
                Early::Request {
                    from,
                    id,
                    method,
                    params,
                } => {
                    let params =
                        Params::read(params.as_ref().map(Payload::json), self.known_terms());
                    let wire = from.wire(id);
                    self.lanes.settle(from.lane);
                    if let Err(error) = self.take_early(&from, &wire, &method, &params) {
                        self.refuse(from.lane, wire.id, error);
                    }
                }
            }
        }
    }

    fn take_early(
        &mut self,
        from: &Origin,
        wire: &WireId,
        name: &str,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        let peer = match self.terms(from, name, params)? {
            Terms::Initialize => {
                let peer = self.introduced(params.whole())?;
                return self.begin_anew(from, &wire.id, peer);
            }
            Terms::Legacy(peer) => peer,
            Terms::Modern => self.modern_terms(params, None)?,
            Terms::Ping => {
                self.answer(from.lane, wire.id.clone(), Answer::Empty);
                return Ok(());
            }
        };
        self.take(from, wire, name, peer, params)
    }

    /// Drops the requests of this scope that wait for the offer. They get no reply.
    pub(super) fn forget_early(&mut self, whose: Whose) {
        for lane in self.early.cancel_all(whose) {
            self.lanes.settle(lane);
        }
    }

    /// Whether the legacy client of this origin sent `initialize` and waits for the offer.
    pub(super) fn awaits_agreement(&self, from: &Origin) -> bool {
        let introduces = |session| self.early.introduces(session);
        from.session.is_some_and(introduces)
    }

    /// Whether a reply with this id would be taken for the reply to another request.
    pub(super) fn is_in_flight(&self, wire: &WireId) -> bool {
        self.requests.find(wire).is_some()
            || self.watchers.is_listening(wire)
            || self.early.has(wire)
    }

    /// Whether the server behind the relay speaks the era of this version. If so, messages are passed on, and neither end is judged here.
    pub(super) fn passes(&self, version: Version) -> bool {
        let offer = self.config.offer.as_ref();
        self.config.is_relayed && offer.is_some_and(|offer| offer.era == Some(version.era()))
    }

    /// Checks that the version has this request, and that the server offers what it needs (S-ERR-10).
    fn gate(
        &self,
        from: &Origin,
        name: &str,
        peer: &Peer,
    ) -> Result<Option<&'static Method>, ErrorObject> {
        let unknown = || {
            let text = quoting("there is no method ", name, " here");
            ErrorObject::new(code::METHOD_NOT_FOUND, text)
        };
        let Some(facts) = method::find(name) else {
            return match self.config.unknown_methods {
                UnknownMethods::Delivered => Ok(None),
                UnknownMethods::Refused => Err(unknown()),
            };
        };
        let passes = self.passes(peer.version);
        let is_in_version = facts.to_server.contains(peer.version);
        if facts.kind != Kind::Request {
            return Err(unknown());
        }
        if passes {
            // The server behind the relay refuses a method of the other era itself.
            return Ok(Some(facts).filter(|_| is_in_version));
        }
        if !is_in_version {
            return Err(unknown());
        }
        let offers = |feature| {
            let offer = self.config.offer.as_ref();
            offer.is_some_and(|offer| offer.capabilities.offers(feature))
        };
        // A feature that an old version has no name for must still be offered.
        let is_offered = match facts.gate(peer.version) {
            Some(feature) => offers(feature),
            None => {
                let mut needs = facts.needs_of_server.iter();
                facts.needs_of_server.is_empty() || needs.any(|feature| offers(*feature))
            }
        };
        // A client that subscribed while subscriptions were offered can still end its subscription.
        let has_subscriptions = |session| self.watchers.has_subscriptions(session);
        let ends_something =
            name == names::RESOURCES_UNSUBSCRIBE && from.session.is_some_and(has_subscriptions);
        let offer = self.config.offer.as_ref();
        let is_in_advance = offer.is_some_and(|offer| offer.is_in_advance);
        if !is_offered && !ends_something && !is_in_advance {
            return Err(unknown());
        }
        // S-TASKX-04: `tasks/` methods need a client that declares the extension.
        let extension = ClientFeature::TasksExtension;
        let is_of_extension = peer.version.era() == Era::Modern && name.starts_with("tasks/");
        if is_of_extension && !peer.capabilities.declares(extension) {
            return Err(missing_capability(extension));
        }
        Ok(Some(facts))
    }

    /// Describes the arrival of a request that the application is to answer.
    fn arrival(
        &mut self,
        from: &Origin,
        wire: &WireId,
        peer: &Arc<Peer>,
        params: &Params<'_>,
    ) -> Result<Arrival, ErrorObject> {
        let log_level = read_level(params, peer)?;
        if let Some(level) = log_level {
            self.watchers.wants_level(level);
        }
        let is_legacy = peer.version.era() == Era::Legacy;
        Ok(Arrival {
            wire: wire.clone(),
            lane: from.lane,
            session: from.session.filter(|_| is_legacy),
            peer: peer.clone(),
            user: from.user.clone(),
            token: params.token.and_then(|token| Id::from_json(token.as_str())),
            log_level,
            progress: None,
        })
    }

    fn deliver(
        &mut self,
        name: &str,
        facts: Option<&'static Method>,
        user: Option<Box<str>>,
        arrival: Arrival,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        let is_modern = arrival.session.is_none();
        let (peer, log_level) = (arrival.peer.clone(), arrival.log_level);
        let rounds = facts.filter(|facts| is_modern && facts.may_need_input);
        let (mut subject, mut input) = (0, None);
        if let Some(facts) = rounds {
            let state = read_state(params)?;
            let sealed = state.as_deref().filter(|s| s.starts_with(PREFIX));
            // Nothing is ever sealed for a client that cannot be asked anything.
            if sealed.is_some() || !peer.capabilities.is_empty() {
                subject = self.subject(facts, params, user.as_deref());
            }
            if let Some(state) = sealed {
                return self.resume(state, subject, params.answers, arrival);
            }
            let answers = params.answers.map(Payload::from);
            if answers.as_ref().is_some_and(|answers| !answers.is_object()) {
                let text = "`inputResponses` must be an object";
                return Err(ErrorObject::new(code::INVALID_PARAMS, text));
            }
            let state = state.map(Into::into);
            let is_there = answers.is_some() || state.is_some();
            input = is_there.then_some(Supplied { answers, state });
        }
        let method = facts.map_or_else(|| Cow::Owned(name.into()), |f| Cow::Borrowed(f.name));
        let wants_progress = arrival.token.is_some();
        let caller = Caller::of(arrival.lane, arrival.session, user.as_deref());
        self.lanes.owe(arrival.lane);
        self.begin_at_once(&arrival);
        let request = self
            .requests
            .accept(method.clone(), facts, subject, arrival);
        self.stats.requests += 1;
        self.tell(Event::Request(Request {
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

    /// The hash of what a request is about, for the seal.
    fn subject(&self, facts: &Method, params: &Params<'_>, user: Option<&str>) -> u64 {
        let target = facts.named_by.and_then(|key| params.text(key));
        let target = target.unwrap_or_default();
        self.seal.subject(facts.name, &target, user)
    }

    /// Whether the request continues one that was begun before.
    fn resumes(&self, from: &Origin, name: &str, params: &Params<'_>) -> bool {
        let facts = method::find(name).filter(|facts| facts.may_need_input);
        let state = read_state(params).ok().flatten();
        match (facts, state) {
            (Some(facts), Some(state)) if params.claims_modern() => {
                let subject = self.subject(facts, params, from.user.as_deref());
                self.awaited(&state, subject).is_some()
            }
            (_, _) => false,
        }
    }
}

/// Whether a request sets the log level or a subscription of its client.
fn is_setting(name: &str) -> bool {
    let settings = [
        names::LOGGING_SET_LEVEL,
        names::RESOURCES_SUBSCRIBE,
        names::RESOURCES_UNSUBSCRIBE,
    ];
    settings.contains(&name)
}

fn in_use() -> ErrorObject {
    let text = "another request with this id is not answered yet";
    ErrorObject::new(code::INVALID_REQUEST, text)
}

/// The state that came with a request, if any.
fn read_state<'a>(params: &Params<'a>) -> Result<Option<Cow<'a, str>>, ErrorObject> {
    let state = params
        .state
        .map(|state| serde_json::from_str(state.as_str()));
    let no_text = |_| ErrorObject::new(code::INVALID_PARAMS, "`requestState` must be a text");
    state.transpose().map_err(no_text)
}

/// The lowest level of log messages that a modern request wants (S-CAP-08).
fn read_level(params: &Params<'_>, peer: &Peer) -> Result<Option<LogLevel>, ErrorObject> {
    let level = params
        .log_level
        .filter(|_| peer.version.era() == Era::Modern);
    let level = level.map(|level| {
        let level: Option<Cow<'_, str>> = serde_json::from_str(level.as_str()).ok();
        let level = level.as_deref().and_then(LogLevel::parse);
        level.ok_or_else(no_such_level)
    });
    level.transpose()
}
