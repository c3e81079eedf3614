//! Decides the terms by which a client is served: those of the request itself, or those of a handshake. Knows only the era of a method.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::event::{Cancelled, Event, Unanswered};
use super::http::mismatch;
use super::legacy::{self, Scope, Unmet};
use super::origin::{Origin, SessionKey};
use super::params::Params;
use super::{Server, quoting};
use crate::json::{Json, Payload};
use crate::protocol::method::{self, names};
use crate::protocol::{
    ClientCapabilities, Era, Implementation, Peer, ServerCapabilities, ServerFeature, Version, code,
};
use crate::util::noise::excerpt;
use crate::wire::encode::Object;
use crate::wire::{ErrorObject, Id};

/// A modern client, with its terms as it wrote them. The same text need not be parsed twice.
#[derive(Debug)]
pub(super) struct Known {
    terms: Box<str>,
    peer: Arc<Peer>,
}

/// The terms by which a request is served.
pub(super) enum Terms {
    /// The terms of the handshake that the request begins.
    Initialize,
    /// The terms of an earlier handshake, with this client.
    Legacy(Arc<Peer>),
    /// The terms that the request carries.
    Modern,
    /// No terms: the request is a ping.
    Ping,
}

impl Server {
    /// Returns the terms of a request. Its claim to be modern outranks its method (S-VER-07, S-VER-08).
    pub(super) fn terms(
        &self,
        from: &Origin,
        name: &str,
        params: &Params<'_>,
    ) -> Result<Terms, ErrorObject> {
        let speaks = |era| self.config.versions.newest_of(era).is_some();
        let is_modern = match from.era {
            Some(era) => era == Era::Modern,
            None => params.claims_modern(),
        };
        if speaks(Era::Modern) && is_modern {
            return Ok(Terms::Modern);
        }
        if name == names::INITIALIZE {
            return Ok(Terms::Initialize);
        }
        if name == names::PING && speaks(Era::Legacy) {
            return Ok(Terms::Ping);
        }
        if let Some(scope) = from.session.and_then(|session| self.scopes.get(&session)) {
            return Ok(Terms::Legacy(scope.peer.clone()));
        }
        // S-META-03: a modern method without terms is refused for the terms that it lacks.
        let is_modern_method = method::find(name)
            .is_some_and(|facts| !Version::LEGACY.iter().any(|v| facts.to_server.contains(*v)));
        let is_decided = from.era == Some(Era::Legacy);
        if !is_decided && speaks(Era::Modern) && (is_modern_method || !speaks(Era::Legacy)) {
            return Ok(Terms::Modern);
        }
        let (code, text) = if speaks(Era::Modern) && !is_decided {
            let text = "the request has no terms: send `initialize` first, or say in `_meta` which version is spoken";
            (code::INVALID_PARAMS, text)
        } else {
            let text = "the client has not introduced itself yet: send `initialize` first";
            (code::INVALID_REQUEST, text)
        };
        Err(ErrorObject::new(code, text))
    }

    pub(super) fn introduced(&self, params: Option<Json<'_>>) -> Result<Arc<Peer>, ErrorObject> {
        self.check_words(params.map_or(0, |params| params.as_str().len()))?;
        match legacy::meet(params, self.config.versions) {
            Ok(peer) => {
                let introduction = params.filter(|_| self.config.is_relayed);
                Ok(Arc::new(Peer {
                    introduction: introduction.map(Payload::from),
                    ..peer
                }))
            }
            // S-VER-12: the error names the versions that are spoken.
            Err(Unmet::NoLegacy(wanted)) => Err(self.unsupported(&wanted)),
            Err(Unmet::Unreadable) => Err(ErrorObject::new(
                code::INVALID_PARAMS,
                "`initialize` needs a protocolVersion that is a text, and capabilities that are an object",
            )),
        }
    }

    /// Reads the terms that a modern request must carry, in this order (S-META-03, S-VER-01). Terms of earlier requests do not count
    /// (S-META-05). If a header field also names the version, both must be equal (S-HTTP-27).
    pub(super) fn modern_terms(
        &mut self,
        params: &Params<'_>,
        field: Option<&str>,
    ) -> Result<Arc<Peer>, ErrorObject> {
        let lacking = |what: &str| {
            let text = format!("the request needs {what} in `_meta`");
            ErrorObject::new(code::INVALID_PARAMS, text)
        };
        if let Some(known) = self.known.as_ref().filter(|_| params.are_terms_known) {
            return if field.is_none_or(|field| field == known.peer.version.as_str()) {
                Ok(known.peer.clone())
            } else {
                Err(other_version())
            };
        }
        let version = params.version.ok_or_else(|| lacking("a protocolVersion"))?;
        let capabilities = params
            .capabilities
            .ok_or_else(|| lacking("clientCapabilities"))?;
        let client = params.client;
        let words = capabilities.as_str().len() + client.map_or(0, |client| client.as_str().len());
        self.check_words(words)?;
        let named: Cow<'_, str> = serde_json::from_str(version.as_str())
            .map_err(|_| lacking("a protocolVersion that is a text"))?;
        let declared: ClientCapabilities = serde_json::from_str(capabilities.as_str())
            .map_err(|_| lacking("clientCapabilities that are an object"))?;
        if field.is_some_and(|field| field != named) {
            return Err(other_version());
        }
        let spoken = Version::parse(&named)
            .filter(|v| v.era() == Era::Modern && self.config.versions.contains(*v))
            .ok_or_else(|| self.unsupported(&named))?;
        let peer = Arc::new(Peer {
            version: spoken,
            client: client.and_then(|c| serde_json::from_str::<Implementation>(c.as_str()).ok()),
            capabilities: declared,
            introduction: None,
        });
        // Terms without a client description do not identify a client, because another client may write the same text and add one. Terms
        // over `peer_bytes`, including the space between them, are not kept.
        let terms = client.and_then(|_| params.terms());
        let terms = terms.filter(|terms| self.check_words(terms.len()).is_ok());
        self.known = terms.map(|terms| Known {
            terms: terms.into(),
            peer: peer.clone(),
        });
        Ok(peer)
    }

    /// The terms of the last modern client, as it wrote them. Empty if they are not known.
    pub(super) fn known_terms(&self) -> &str {
        self.known.as_ref().map_or("", |known| &*known.terms)
    }

    /// Checks the size of a client's description of itself, which is kept as long as the client.
    fn check_words(&self, bytes: usize) -> Result<(), ErrorObject> {
        let most = self.config.limits.peer_bytes;
        if bytes <= most {
            return Ok(());
        }
        let text = format!("{most} bytes are the most that a client can say of itself");
        Err(ErrorObject::new(code::INVALID_PARAMS, text))
    }

    /// The error for a version that is not spoken (S-VER-01). It lists the modern versions, like `server/discover`. The client retries in
    /// the same way, in which it cannot reach a legacy version.
    pub(super) fn unsupported(&self, wanted: &str) -> ErrorObject {
        let text = quoting("version ", wanted, " is not spoken here");
        let mut buf = Vec::new();
        let mut data = Object::open(&mut buf);
        let spoken = self.config.versions.iter();
        let modern = spoken.filter(|version| version.era() == Era::Modern);
        data.texts("supported", modern.map(Version::as_str));
        data.text("requested", &excerpt(wanted));
        data.close();
        let data = String::from_utf8(buf).ok();
        ErrorObject {
            data: data.and_then(|data| Payload::from_text(data).ok()),
            ..ErrorObject::new(code::UNSUPPORTED_PROTOCOL_VERSION, text)
        }
    }

    pub(super) fn meet(&mut self, peer: &Arc<Peer>) {
        if self.met.as_ref() != Some(peer) {
            self.met = Some(peer.clone());
            self.tell(Event::Met(peer.clone()));
        }
    }

    /// Ends the scope of a legacy client that is gone or begins anew. Its requests and asks are over.
    pub(super) fn end_legacy(&mut self, session: SessionKey, why: &Cancelled) {
        if self.scopes.remove(&session).is_none() {
            return;
        }
        self.unoffered.remove(&session);
        self.visits.end(session);
        self.met = None;
        self.watchers.end(session);
        // A new client does not know the asks to the old one, so it is not told that they are withdrawn.
        let asked: Vec<_> = self.asks.to_legacy(session).collect();
        for ask in asked {
            self.settle_ask(ask, Err(Unanswered::PeerGone));
        }
        for request in self.requests.of_session(session) {
            self.cancel(request, why.clone());
        }
    }

    /// Answers `initialize`, and opens the scope of a legacy client.
    pub(super) fn agree(&mut self, from: &Origin, id: &Id, mut peer: Arc<Peer>) {
        let Some(session) = from.session else {
            return;
        };
        self.watchers.begin(session, &BTreeSet::new(), None);
        let mut offered = ServerCapabilities::default();
        if let Some(offer) = &self.config.offer {
            offered = offer.capabilities.clone();
            // A server that chose a newer version than it was asked for can hardly be understood, so the relay keeps the older one.
            let bargain = offer
                .bargain
                .filter(|(asked, chosen)| *asked == peer.version && chosen <= asked);
            if let Some((_, chosen)) = bargain {
                Arc::make_mut(&mut peer).version = chosen;
            }
            let agreement = self.voice.agreement(offer, peer.version);
            self.answer(from.lane, id.clone(), agreement);
        }
        if offered.offers(ServerFeature::Logging) {
            self.watchers.hears_logs(session, self.config.log_level);
        }
        let scope = Scope {
            peer,
            is_initialized: false,
            offered,
        };
        self.scopes.insert(session, scope);
        self.save_session(session);
    }
}

fn other_version() -> ErrorObject {
    mismatch("`MCP-Protocol-Version` must name the version that the message names")
}
