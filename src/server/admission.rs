//! Whether what a client asks can be served, by which terms, and who answers it.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use serde_json::value::RawValue;

use super::config::{Offer, UnknownMethods};
use super::ending::unavailable;
use super::event::{Cancelled, Event, Peer, Request, State, Supplied, Unanswered};
use super::frame::{Answer, Frame, Voice};
use super::legacy::{self, Scope, Unmet};
use super::params::Params;
use super::requests::Arrival;
use super::seal::PREFIX;
use super::watchers::grant;
use super::{Server, missing_capability, quoting};
use crate::filter;
use crate::protocol::method::{self, names};
use crate::protocol::{
    ClientCapabilities, ClientFeature, Era, Implementation, Kind, LogLevel, Method, Version, code,
};
use crate::watch::Watch;
use crate::wire::encode::Object;
use crate::wire::{ErrorObject, Id, Payload};

/// What waits for the offer.
#[derive(Debug)]
pub(super) enum Early {
    /// `notifications/initialized`, behind the handshake that it ends.
    Initialized,
    Request {
        id: Id,
        method: Box<str>,
        params: Option<Payload>,
    },
}

impl Early {
    /// Whether it is the beginning of a handshake.
    pub(super) fn is_introduction(&self) -> bool {
        matches!(self, Early::Request { method, .. } if **method == *names::INITIALIZE)
    }

    fn bytes(&self) -> usize {
        match self {
            Early::Initialized => 0,
            Early::Request { method, params, .. } => {
                method.len() + params.as_ref().map_or(0, |params| params.as_str().len())
            }
        }
    }

    /// Whether it is the request with this id.
    pub(super) fn is(&self, other: &Id) -> bool {
        matches!(self, Early::Request { id, .. } if id == other)
    }
}

/// A modern client, and the words in which it described itself: the same words need not be read twice.
#[derive(Debug)]
pub(super) struct Known {
    version: Box<str>,
    capabilities: Box<str>,
    client: Option<Box<str>>,
    peer: Arc<Peer>,
}

/// By which terms a request is served.
enum Terms {
    /// By those of the handshake that it is.
    Initialize,
    /// By those of the handshake before, with this client.
    Legacy(Arc<Peer>),
    /// By those that it brings along.
    Modern,
    /// By none: it asks whether anybody is there.
    Ping,
}

impl Server {
    pub(super) fn requested(&mut self, id: Id, name: &str, params: Option<&RawValue>) {
        let params = Params::read(params);
        if let Err(error) = self.admit(&id, name, &params) {
            self.refuse(id, error);
        }
    }

    fn admit(&mut self, id: &Id, name: &str, params: &Params<'_>) -> Result<(), ErrorObject> {
        if params.is_ambiguous {
            let text = "the request says something twice that must be said once";
            return Err(ErrorObject::new(code::INVALID_PARAMS, text));
        }
        let terms = self.terms(name, params);
        if !matches!(terms, Ok(Terms::Initialize)) {
            self.check_id(id)?;
        }
        let peer = match terms {
            Err(_) if self.awaits_agreement() => return self.defer(id, name, params),
            Err(error) => return Err(error),
            Ok(Terms::Initialize) => return self.introduce(id, params),
            Ok(Terms::Legacy(peer)) => peer,
            Ok(Terms::Modern) => self.modern_terms(params)?,
            Ok(Terms::Ping) => {
                // S-TIME-08: promptly, whatever else there is.
                self.answer(id.clone(), Answer::Empty);
                return Ok(());
            }
        };
        if self.state != State::Serving && !self.resumes(name, params) {
            return Err(unavailable());
        }
        if peer.version.era() == Era::Modern {
            self.meet(&peer);
        }
        if self.config.offer.is_none() {
            return self.defer(id, name, params);
        }
        self.take(id, name, peer, params)
    }

    fn introduce(&mut self, id: &Id, params: &Params<'_>) -> Result<(), ErrorObject> {
        let peer = self.introduced(params.whole())?;
        if self.state != State::Serving {
            return Err(unavailable());
        }
        if self.config.offer.is_none() {
            self.check_id(id)?;
            self.meet(&peer);
            return self.defer(id, names::INITIALIZE, params);
        }
        self.end_legacy();
        self.check_id(id)?;
        self.meet(&peer);
        self.agree(id, peer);
        Ok(())
    }

    /// Of two requests with one id each is answered, the second with this: were it passed over, its sender would take the
    /// answer to the first for its own.
    fn check_id(&self, id: &Id) -> Result<(), ErrorObject> {
        if !self.is_in_flight(id) {
            return Ok(());
        }
        let text = "another request with this id is not answered yet";
        Err(ErrorObject::new(code::INVALID_REQUEST, text))
    }

    /// It is served, now that all that is needed for it is known.
    fn take(
        &mut self,
        id: &Id,
        name: &str,
        peer: Arc<Peer>,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        read_level(params, &peer)?;
        let facts = self.gate(name, &peer)?;
        self.check_room()?;
        self.serve(id, name, facts, peer, params)
    }

    /// It waits for the offer.
    fn defer(&mut self, id: &Id, name: &str, params: &Params<'_>) -> Result<(), ErrorObject> {
        self.check_room()?;
        let held = self.early.iter().map(Early::bytes).sum::<usize>();
        let bytes = params.whole().map_or(0, |params| params.get().len());
        if held + bytes > self.config.limits.queued_bytes {
            let text = "too much waits to be served already; ask again when some of it is";
            return Err(ErrorObject::new(code::INTERNAL_ERROR, text));
        }
        self.early.push_back(Early::Request {
            id: id.clone(),
            method: name.into(),
            params: params.whole().map(Payload::from),
        });
        Ok(())
    }

    fn check_room(&self) -> Result<(), ErrorObject> {
        let most = self.config.limits.requests;
        if self.requests.in_flight() + self.early.len() < most {
            return Ok(());
        }
        let text = format!("{most} requests are not answered yet; ask again when some are");
        Err(ErrorObject::new(code::INTERNAL_ERROR, text))
    }

    /// What is offered is known, or is another.
    pub(super) fn offers(&mut self, offer: Offer) {
        self.voice = Voice::new(Some(&offer), &self.config);
        self.config.offer = Some(offer);
        for early in core::mem::take(&mut self.early) {
            match early {
                Early::Initialized => self.initialized(),
                Early::Request { id, method, params } => {
                    let params = Params::read(params.as_ref().map(Payload::raw));
                    if let Err(error) = self.take_early(&id, &method, &params) {
                        self.refuse(id, error);
                    }
                }
            }
        }
    }

    fn take_early(&mut self, id: &Id, name: &str, params: &Params<'_>) -> Result<(), ErrorObject> {
        let peer = match self.terms(name, params)? {
            Terms::Initialize => {
                let peer = self.introduced(params.whole())?;
                self.end_legacy();
                self.agree(id, peer);
                return Ok(());
            }
            Terms::Legacy(peer) => peer,
            Terms::Modern => self.modern_terms(params)?,
            Terms::Ping => {
                self.answer(id.clone(), Answer::Empty);
                return Ok(());
            }
        };
        self.take(id, name, peer, params)
    }

    /// Whether a legacy client has introduced itself and waits to hear what is offered.
    pub(super) fn awaits_agreement(&self) -> bool {
        self.early.iter().any(Early::is_introduction)
    }

    /// Whether an answer with this id would be taken for that of another request.
    pub(super) fn is_in_flight(&self, id: &Id) -> bool {
        self.requests.find(id).is_some()
            || self.watchers.is_listening(id)
            || self.early.iter().any(|early| early.is(id))
    }

    /// S-VER-07, S-VER-08: what a request claims of itself outranks its name.
    fn terms(&self, name: &str, params: &Params<'_>) -> Result<Terms, ErrorObject> {
        let speaks = |era| self.config.versions.newest_of(era).is_some();
        if speaks(Era::Modern) && params.claims_modern() {
            return Ok(Terms::Modern);
        }
        if name == names::INITIALIZE {
            return Ok(Terms::Initialize);
        }
        if name == names::PING && speaks(Era::Legacy) {
            return Ok(Terms::Ping);
        }
        if let Some(scope) = &self.legacy {
            return Ok(Terms::Legacy(scope.peer.clone()));
        }
        // S-META-03: it lacks what a modern request must have.
        let is_modern_method = method::find(name)
            .is_some_and(|facts| !Version::LEGACY.iter().any(|v| facts.to_server.contains(*v)));
        if speaks(Era::Modern) && (is_modern_method || !speaks(Era::Legacy)) {
            return Ok(Terms::Modern);
        }
        let text = "the client has not introduced itself yet: send `initialize` first";
        Err(ErrorObject::new(code::INVALID_REQUEST, text))
    }

    fn introduced(&self, params: Option<&RawValue>) -> Result<Arc<Peer>, ErrorObject> {
        self.check_words(params.map_or(0, |params| params.get().len()))?;
        match legacy::meet(params, self.config.versions) {
            Ok(peer) => Ok(Arc::new(peer)),
            // S-VER-12
            Err(Unmet::NoLegacy(wanted)) => Err(self.unsupported(&wanted)),
            Err(Unmet::Unreadable) => Err(ErrorObject::new(
                code::INVALID_PARAMS,
                "`initialize` needs a protocolVersion that is a text, and capabilities that are an object",
            )),
        }
    }

    /// S-META-03, S-VER-01: the terms that a modern request must bring, in this order. S-META-05: and no others.
    fn modern_terms(&mut self, params: &Params<'_>) -> Result<Arc<Peer>, ErrorObject> {
        let lacking = |what: &str| {
            let text = format!("the request needs {what} in `_meta`");
            ErrorObject::new(code::INVALID_PARAMS, text)
        };
        let version = params.version.ok_or_else(|| lacking("a protocolVersion"))?;
        let capabilities = params
            .capabilities
            .ok_or_else(|| lacking("clientCapabilities"))?;
        let client = params.client;
        let words = capabilities.get().len() + client.map_or(0, |client| client.get().len());
        self.check_words(words)?;
        if let Some(known) = &self.known {
            let is_same = *known.version == *version.get()
                && *known.capabilities == *capabilities.get()
                && known.client.as_deref() == client.map(RawValue::get);
            if is_same {
                return Ok(known.peer.clone());
            }
        }
        let named: Cow<'_, str> = serde_json::from_str(version.get())
            .map_err(|_| lacking("a protocolVersion that is a text"))?;
        let declared: ClientCapabilities = serde_json::from_str(capabilities.get())
            .map_err(|_| lacking("clientCapabilities that are an object"))?;
        let spoken = Version::parse(&named)
            .filter(|v| v.era() == Era::Modern && self.config.versions.contains(*v))
            .ok_or_else(|| self.unsupported(&named))?;
        let peer = Arc::new(Peer {
            version: spoken,
            client: client.and_then(|c| serde_json::from_str::<Implementation>(c.get()).ok()),
            capabilities: declared,
        });
        self.known = Some(Known {
            version: version.get().into(),
            capabilities: capabilities.get().into(),
            client: client.map(|client| client.get().into()),
            peer: peer.clone(),
        });
        Ok(peer)
    }

    /// What a client says of itself is kept for as long as anything of it is.
    fn check_words(&self, bytes: usize) -> Result<(), ErrorObject> {
        let most = self.config.limits.peer_bytes;
        if bytes <= most {
            return Ok(());
        }
        let text = format!("{most} bytes are the most that a client can say of itself");
        Err(ErrorObject::new(code::INVALID_PARAMS, text))
    }

    /// S-VER-01: no such version here, but these.
    fn unsupported(&self, wanted: &str) -> ErrorObject {
        let text = quoting("version ", wanted, " is not spoken here");
        let mut buf = Vec::new();
        let mut data = Object::open(&mut buf);
        let spoken = self.config.versions.iter().map(Version::as_str);
        data.texts("supported", spoken);
        data.text("requested", &crate::noise::excerpt(wanted));
        data.close();
        let data = String::from_utf8(buf).ok();
        ErrorObject {
            data: data.and_then(|data| Payload::from_text(data).ok()),
            ..ErrorObject::new(code::UNSUPPORTED_PROTOCOL_VERSION, text)
        }
    }

    fn meet(&mut self, peer: &Arc<Peer>) {
        if !self
            .met
            .as_ref()
            .is_some_and(|met| Arc::ptr_eq(met, peer) || met == peer)
        {
            self.met = Some(peer.clone());
            self.tell(Event::Met(peer.clone()));
        }
    }

    /// The legacy client begins anew: what it asked and was asked before is over.
    fn end_legacy(&mut self) {
        if self.legacy.take().is_none() {
            return;
        }
        self.met = None;
        for request in self.requests.ids() {
            let entry = self.requests.get(request);
            if entry.is_some_and(|entry| entry.arrival.peer.version.era() == Era::Legacy) {
                self.cancel(request, Cancelled::Anew);
            }
        }
        for ask in self.asks.to_legacy() {
            self.settle_ask(ask, Err(Unanswered::PeerGone));
        }
    }

    /// A legacy client is here.
    fn agree(&mut self, id: &Id, peer: Arc<Peer>) {
        self.watchers.begin_legacy();
        if let Some(offer) = &self.config.offer {
            let agreement = self.voice.agreement(offer, peer.version);
            self.answer(id.clone(), agreement);
        }
        self.legacy = Some(Scope {
            peer,
            is_initialized: false,
        });
    }

    /// Whether the version has this request and the server offers what it needs (S-ERR-10).
    fn gate(&self, name: &str, peer: &Peer) -> Result<Option<&'static Method>, ErrorObject> {
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
        if facts.kind != Kind::Request || !facts.to_server.contains(peer.version) {
            return Err(unknown());
        }
        let offers = |feature| {
            let offer = self.config.offer.as_ref();
            offer.is_some_and(|offer| offer.capabilities.offers(feature))
        };
        // What an old version has no name for must be offered all the same.
        let is_offered = match facts.gate(peer.version) {
            Some(feature) => offers(feature),
            None => {
                let mut needs = facts.needs_of_server.iter();
                facts.needs_of_server.is_empty() || needs.any(|feature| offers(*feature))
            }
        };
        if !is_offered {
            return Err(unknown());
        }
        // S-TASKX-04
        let extension = ClientFeature::TasksExtension;
        let is_of_extension = peer.version.era() == Era::Modern && name.starts_with("tasks/");
        if is_of_extension && !peer.capabilities.declares(extension) {
            return Err(missing_capability(extension));
        }
        Ok(Some(facts))
    }

    /// Who answers: the server itself, or the application.
    fn serve(
        &mut self,
        id: &Id,
        name: &str,
        facts: Option<&'static Method>,
        peer: Arc<Peer>,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        match name {
            names::SERVER_DISCOVER => self.discover(id, &peer),
            names::SUBSCRIPTIONS_LISTEN => self.listen(id, &peer, params)?,
            names::LOGGING_SET_LEVEL => self.set_level(id, params)?,
            names::RESOURCES_SUBSCRIBE | names::RESOURCES_UNSUBSCRIBE => {
                self.subscribe(id, name, params)?;
            }
            _ => self.deliver(id, name, facts, peer, params)?,
        }
        Ok(())
    }

    fn discover(&mut self, id: &Id, peer: &Peer) {
        if let Some(offer) = &self.config.offer {
            let spoken = self.config.versions;
            let discovery = self.voice.discovery(offer, peer.version, spoken);
            self.answer(id.clone(), discovery);
        }
    }

    fn deliver(
        &mut self,
        id: &Id,
        name: &str,
        facts: Option<&'static Method>,
        peer: Arc<Peer>,
        params: &Params<'_>,
    ) -> Result<(), ErrorObject> {
        let is_modern = peer.version.era() == Era::Modern;
        let log_level = read_level(params, &peer)?;
        let arrival = Arrival {
            id: id.clone(),
            peer: peer.clone(),
            token: params.token.and_then(|token| Id::from_json(token.get())),
            log_level,
            progress: None,
            is_progress_due: false,
        };
        if let Some(level) = log_level {
            self.watchers.wants_level(level);
        }
        let rounds = facts.filter(|facts| is_modern && facts.may_need_input);
        let (mut subject, mut input) = (0, None);
        if let Some(facts) = rounds {
            subject = self.subject(facts, params);
            let state = read_state(params)?;
            if let Some(state) = state.as_deref().filter(|s| s.starts_with(PREFIX)) {
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
        let request = self
            .requests
            .accept(method.clone(), facts, subject, arrival);
        self.stats.requests += 1;
        self.tell(Event::Request(Request {
            request,
            method,
            params: params.rest(rounds.is_some()),
            peer,
            wants_progress,
            log_level,
            input,
        }));
        Ok(())
    }

    /// What a request is about, as the seal sees it.
    fn subject(&self, facts: &Method, params: &Params<'_>) -> u64 {
        let target = facts.named_by.and_then(|key| params.text(key));
        self.seal.subject(facts.name, &target.unwrap_or_default())
    }

    /// Whether it goes on with a request that was begun before.
    fn resumes(&self, name: &str, params: &Params<'_>) -> bool {
        let facts = method::find(name).filter(|facts| facts.may_need_input);
        let state = read_state(params).ok().flatten();
        match (facts, state) {
            (Some(facts), Some(state)) if params.claims_modern() => {
                let subject = self.subject(facts, params);
                self.awaited(&state, subject).is_some()
            }
            (_, _) => false,
        }
    }

    fn set_level(&mut self, id: &Id, params: &Params<'_>) -> Result<(), ErrorObject> {
        let level = params.text("level").as_deref().and_then(LogLevel::parse);
        self.watchers.set_level(level.ok_or_else(no_such_level)?);
        self.answer(id.clone(), Answer::Empty);
        Ok(())
    }

    fn subscribe(&mut self, id: &Id, name: &str, params: &Params<'_>) -> Result<(), ErrorObject> {
        let uri = params.text("uri");
        let nameless = || ErrorObject::new(code::INVALID_PARAMS, "the request names no uri");
        let uri = uri.ok_or_else(nameless)?;
        if name == names::RESOURCES_UNSUBSCRIBE {
            self.watchers.unsubscribe(&uri);
        } else if !self.watchers.has_subscribed(&uri) {
            self.check_uris(&[&uri])?;
            self.watchers.subscribe(&uri);
        }
        self.answer(id.clone(), Answer::Empty);
        Ok(())
    }

    /// S-SUB-03: first it is acknowledged, then it is heard.
    fn listen(&mut self, id: &Id, peer: &Peer, params: &Params<'_>) -> Result<(), ErrorObject> {
        let wanted = params.whole().and_then(filter::read).ok_or_else(|| {
            let text = "`notifications` must be an object that says what to hear of, by flags and addresses";
            ErrorObject::new(code::INVALID_PARAMS, text)
        })?;
        // S-SUB-20
        let extension = ClientFeature::TasksExtension;
        if wanted.task_ids.is_some() && !peer.capabilities.declares(extension) {
            return Err(missing_capability(extension));
        }
        let offer = self.config.offer.as_ref();
        let granted = offer.map(|offer| grant(Watch::from(wanted), &offer.capabilities));
        let granted = granted.unwrap_or_default();
        self.check_uris(&granted.uris.iter().map(|uri| &**uri).collect::<Vec<_>>())?;
        if self.watchers.listens() >= self.config.limits.listens {
            let text = "as many watches as may be are open already; end one first";
            return Err(ErrorObject::new(code::INTERNAL_ERROR, text));
        }
        let frame = Frame::Acknowledged(id.clone(), granted.clone());
        self.frames.push(frame);
        self.watchers.listen(id.clone(), granted);
        Ok(())
    }

    fn check_uris(&self, more: &[&str]) -> Result<(), ErrorObject> {
        let limits = &self.config.limits;
        let (uris, bytes) = self.watchers.size();
        let more_bytes: usize = more.iter().map(|uri| uri.len()).sum();
        let fits = uris + more.len() <= limits.watched_uris;
        if more.is_empty() || fits && bytes + more_bytes <= limits.watched_bytes {
            return Ok(());
        }
        let (uris, bytes) = (limits.watched_uris, limits.watched_bytes);
        let text = format!("{uris} addresses of {bytes} bytes are the most that can be watched");
        Err(ErrorObject::new(code::INTERNAL_ERROR, text))
    }
}

/// The state that came with a request, if one did.
fn read_state<'a>(params: &Params<'a>) -> Result<Option<Cow<'a, str>>, ErrorObject> {
    let state = params.state.map(|state| serde_json::from_str(state.get()));
    let no_text = |_| ErrorObject::new(code::INVALID_PARAMS, "`requestState` must be a text");
    state.transpose().map_err(no_text)
}

/// From which level on a modern request wants to hear of log messages (S-CAP-08).
fn read_level(params: &Params<'_>, peer: &Peer) -> Result<Option<LogLevel>, ErrorObject> {
    let level = params
        .log_level
        .filter(|_| peer.version.era() == Era::Modern);
    let level = level.map(|level| {
        let level: Option<Cow<'_, str>> = serde_json::from_str(level.get()).ok();
        let level = level.as_deref().and_then(LogLevel::parse);
        level.ok_or_else(no_such_level)
    });
    level.transpose()
}

fn no_such_level() -> ErrorObject {
    ErrorObject::new(code::INVALID_PARAMS, "there is no such log level")
}
