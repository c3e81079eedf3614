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
use super::event::{Event, Peer, Request, State, Supplied};
use super::frame::{Answer, Frame, Voice};
use super::legacy::{self, Scope, Unmet};
use super::params::Params;
use super::requests::Telling;
use super::seal::Sealed;
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

/// A request that waits for the offer.
#[derive(Debug)]
pub(super) struct Early {
    pub(super) id: Id,
    method: Box<str>,
    params: Option<Payload>,
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
#[derive(Clone, Copy, PartialEq, Eq)]
enum Terms {
    /// By those of the handshake that it is.
    Initialize,
    /// By those of the handshake before.
    Legacy,
    /// By those that it brings along.
    Modern,
}

impl Server {
    pub(super) fn requested(&mut self, id: Id, name: &str, params: Option<&RawValue>) {
        if self.is_in_flight(&id) {
            let text = "another request with this id is not answered yet";
            return self.refuse(id, ErrorObject::new(code::INVALID_REQUEST, text));
        }
        let params = Params::read(params);
        let terms = match self.terms(name, &params) {
            Ok(terms) => terms,
            Err(error) => return self.refuse(id, error),
        };
        // S-TIME-08: promptly, whatever else there is.
        if terms == Terms::Legacy && name == names::PING {
            return self.answer(id, Answer::Empty);
        }
        let peer = match terms {
            Terms::Initialize => self.introduced(params.whole()),
            Terms::Legacy => self.legacy_terms(),
            Terms::Modern => self.modern_terms(&params),
        };
        let peer = match peer {
            Ok(peer) => peer,
            Err(error) => return self.refuse(id, error),
        };
        if terms != Terms::Legacy {
            self.meet(&peer);
        }
        if self.state != State::Serving && !is_resumption(&params) {
            return self.refuse(id, unavailable());
        }
        if self.requests.in_flight() + self.early.len() >= self.config.limits.requests {
            let most = self.config.limits.requests;
            let text = format!("{most} requests are not answered yet; ask again when some are");
            return self.refuse(id, ErrorObject::new(code::INTERNAL_ERROR, text));
        }
        if self.config.offer.is_none() {
            self.early.push_back(Early {
                id,
                method: name.into(),
                params: params.whole().map(Payload::from),
            });
            return;
        }
        if terms == Terms::Initialize {
            return self.agree(id, peer);
        }
        match self.gate(name, &peer) {
            Ok(facts) => self.serve(id, name, facts, peer, &params),
            Err(error) => self.refuse(id, error),
        }
    }

    /// What is offered is known, or is another.
    pub(super) fn offers(&mut self, offer: Offer) {
        self.voice = Voice::new(Some(&offer), &self.config);
        self.config.offer = Some(offer);
        for early in core::mem::take(&mut self.early) {
            let params = early.params.as_ref().map(Payload::raw);
            self.requested(early.id, &early.method, params);
        }
    }

    /// Whether an answer with this id would be taken for that of another request.
    pub(super) fn is_in_flight(&self, id: &Id) -> bool {
        self.requests.find(id).is_some()
            || self.watchers.is_listening(id)
            || self.early.iter().any(|early| early.id == *id)
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
        let is_ping = name == names::PING && speaks(Era::Legacy);
        if self.legacy.is_some() || is_ping {
            return Ok(Terms::Legacy);
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

    fn legacy_terms(&self) -> Result<Arc<Peer>, ErrorObject> {
        let scope = self.legacy.as_ref();
        scope.map(|scope| scope.peer.clone()).ok_or_else(|| {
            ErrorObject::new(
                code::INVALID_REQUEST,
                "the client has not introduced itself yet",
            )
        })
    }

    /// S-META-03, S-VER-01: the terms that a modern request must bring, in this order. S-META-05: and no others.
    fn modern_terms(&mut self, params: &Params<'_>) -> Result<Arc<Peer>, ErrorObject> {
        let lacking = |what: &str| {
            let text = format!("the request needs {what} in `_meta`");
            ErrorObject::new(code::INVALID_PARAMS, text)
        };
        if params.is_ambiguous {
            let text = "the request says something twice that must be said once";
            return Err(ErrorObject::new(code::INVALID_PARAMS, text));
        }
        let version = params.version.ok_or_else(|| lacking("a protocolVersion"))?;
        let capabilities = params
            .capabilities
            .ok_or_else(|| lacking("clientCapabilities"))?;
        let client = params.client;
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

    /// A legacy client is here: the first one, or one that begins anew.
    fn agree(&mut self, id: Id, peer: Arc<Peer>) {
        self.watchers.begin_legacy();
        self.answer(id, Answer::Initialize(peer.version));
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
        id: Id,
        name: &str,
        facts: Option<&'static Method>,
        peer: Arc<Peer>,
        params: &Params<'_>,
    ) {
        match name {
            names::SERVER_DISCOVER => self.answer(id, Answer::Discovery),
            names::SUBSCRIPTIONS_LISTEN => self.listen(id, &peer, params),
            names::LOGGING_SET_LEVEL => self.set_level(id, params),
            names::RESOURCES_SUBSCRIBE | names::RESOURCES_UNSUBSCRIBE => {
                self.subscribe(id, name, params);
            }
            _ => self.deliver(id, name, facts, peer, params),
        }
    }

    fn deliver(
        &mut self,
        id: Id,
        name: &str,
        facts: Option<&'static Method>,
        peer: Arc<Peer>,
        params: &Params<'_>,
    ) {
        let is_modern = peer.version.era() == Era::Modern;
        let log_level = match params.log_level.filter(|_| is_modern) {
            None => None,
            Some(level) => match read_level(level) {
                Some(level) => Some(level),
                // S-CAP-08
                None => return self.refuse(id, no_such_level()),
            },
        };
        let told = Telling {
            id,
            peer: peer.clone(),
            token: params.token.and_then(|token| Id::from_json(token.get())),
            log_level,
            progress: None,
            is_progress_due: false,
        };
        if let Some(level) = log_level {
            self.watchers.wants_level(level);
        }
        let may_wait = is_modern && facts.is_some_and(|facts| facts.may_need_input);
        let subject = if may_wait {
            let target = facts.and_then(|facts| facts.named_by);
            let target = target.and_then(|key| params.text(key)).unwrap_or_default();
            self.seal.subject(name, &target)
        } else {
            0
        };
        let state = params.state.filter(|_| may_wait);
        let state: Option<Cow<'_, str>> = match state {
            None => None,
            Some(state) => match serde_json::from_str(state.get()) {
                Ok(state) => Some(state),
                Err(_) => {
                    let error = ErrorObject::new(code::INVALID_PARAMS, "the state is no text");
                    return self.refuse(told.id, error);
                }
            },
        };
        if let Some(sealed) = state.as_deref().and_then(Sealed::read) {
            return self.resume(sealed, subject, params.answers, told);
        }
        let answers = params.answers.filter(|_| may_wait).map(Payload::from);
        let input = (answers.is_some() || state.is_some()).then(|| Supplied {
            answers,
            state: state.map(Into::into),
        });
        let method = facts.map_or_else(|| Cow::Owned(name.into()), |f| Cow::Borrowed(f.name));
        let wants_progress = told.token.is_some();
        let request = self.requests.accept(method.clone(), facts, subject, told);
        self.stats.requests += 1;
        self.tell(Event::Request(Request {
            request,
            method,
            params: params.rest(),
            peer,
            wants_progress,
            log_level,
            input,
        }));
    }

    fn set_level(&mut self, id: Id, params: &Params<'_>) {
        match params.text("level").as_deref().and_then(LogLevel::parse) {
            Some(level) => {
                self.watchers.set_level(level);
                self.answer(id, Answer::Empty);
            }
            None => self.refuse(id, no_such_level()),
        }
    }

    fn subscribe(&mut self, id: Id, name: &str, params: &Params<'_>) {
        let Some(uri) = params.text("uri") else {
            let error = ErrorObject::new(code::INVALID_PARAMS, "the request names no uri");
            return self.refuse(id, error);
        };
        if name == names::RESOURCES_UNSUBSCRIBE {
            self.watchers.unsubscribe(&uri);
        } else if self.watchers.has_subscribed(&uri) {
            // As before.
        } else if let Some(error) = self.too_many_uris(1) {
            return self.refuse(id, error);
        } else {
            self.watchers.subscribe(&uri);
        }
        self.answer(id, Answer::Empty);
    }

    /// S-SUB-03: first it is acknowledged, then it is heard.
    fn listen(&mut self, id: Id, peer: &Peer, params: &Params<'_>) {
        let Some(wanted) = params.whole().and_then(filter::read) else {
            let text = "the request needs `notifications`, an object that says what to hear of";
            return self.refuse(id, ErrorObject::new(code::INVALID_PARAMS, text));
        };
        // S-SUB-20
        let extension = ClientFeature::TasksExtension;
        if wanted.task_ids.is_some() && !peer.capabilities.declares(extension) {
            return self.refuse(id, missing_capability(extension));
        }
        let Some(offer) = &self.config.offer else {
            return;
        };
        let granted = grant(Watch::from(wanted), &offer.capabilities);
        if let Some(error) = self.too_many_uris(granted.uris.len()) {
            return self.refuse(id, error);
        }
        if self.watchers.listens() >= self.config.limits.listens {
            let text = "as many watches as may be are open already; end one first";
            return self.refuse(id, ErrorObject::new(code::INTERNAL_ERROR, text));
        }
        self.frames
            .push(Frame::Acknowledged(id.clone(), granted.clone()));
        self.watchers.listen(id, granted);
    }

    fn too_many_uris(&self, more: usize) -> Option<ErrorObject> {
        let most = self.config.limits.watched_uris;
        (more > 0 && self.watchers.uris() + more > most).then(|| {
            let text = format!("{most} addresses are the most that can be watched");
            ErrorObject::new(code::INTERNAL_ERROR, text)
        })
    }
}

/// Whether it goes on with a request that was begun before.
fn is_resumption(params: &Params<'_>) -> bool {
    let state = params.state.map(RawValue::get);
    let state = state.and_then(|state| serde_json::from_str::<Cow<'_, str>>(state).ok());
    state.is_some_and(|state| Sealed::read(&state).is_some())
}

fn read_level(level: &RawValue) -> Option<LogLevel> {
    let level: Cow<'_, str> = serde_json::from_str(level.get()).ok()?;
    LogLevel::parse(&level)
}

fn no_such_level() -> ErrorObject {
    ErrorObject::new(code::INVALID_PARAMS, "there is no such log level")
}
