//! Decides the terms by which a client is served: those of the request itself, or those of a handshake. Knows only the era of a method.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::json::{Json, Payload};
use crate::protocol::method::{self, names};
use crate::protocol::{ClientCapabilities, Era, Implementation, Peer, Version, code};
use crate::server::error::quoting;
use crate::server::origin::Origin;
use crate::server::requests::params::Params;
use crate::server::session::Sessions;
use crate::server::session::handshake::{self, Unmet};
use crate::util::Arc;
use crate::util::noise::excerpt;
use crate::wire::ErrorObject;
use crate::wire::encode::Object;

/// A modern client, with its terms as it wrote them. The same text need not be parsed twice.
#[derive(Debug)]
pub(crate) struct LastTerms {
    terms: Box<str>,
    peer: Arc<Peer>,
}

/// The terms by which a request is served.
pub(crate) enum Terms {
    /// The terms of the handshake that the request begins.
    Initialize,
    /// The terms of an earlier handshake, with this client.
    Legacy(Arc<Peer>),
    /// The terms that the request carries.
    Modern,
}

impl Sessions {
    /// Returns the terms of a request. Its claim to be modern outranks its method (S-VER-07, S-VER-08).
    pub(crate) fn terms_of(
        &self,
        from: &Origin,
        name: &str,
        params: &Params<'_>,
    ) -> Result<Terms, ErrorObject> {
        let speaks = |era| self.speaks(era);
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
        if let Some(legacy) = from.session.and_then(|session| self.legacy.get(&session)) {
            return Ok(Terms::Legacy(legacy.peer.clone()));
        }
        // S-META-03: a modern method without terms is refused for the terms that it lacks.
        let is_modern_method = method::find(name)
            .is_some_and(|facts| !Version::LEGACY.iter().any(|v| facts.to_server.contains(*v)));
        let is_decided = from.era == Some(Era::Legacy);
        if !is_decided && speaks(Era::Modern) && (is_modern_method || !speaks(Era::Legacy)) {
            return Ok(Terms::Modern);
        }
        let (code, text) = if speaks(Era::Modern) && !is_decided {
            let text = "the request names no protocol version: send `initialize` first, or name the version in `_meta`";
            (code::INVALID_PARAMS, text)
        } else {
            let text = "the client has not introduced itself yet: send `initialize` first";
            (code::INVALID_REQUEST, text)
        };
        Err(ErrorObject::new(code, text))
    }

    /// Reads the params of `initialize`.
    pub(crate) fn read_introduction(
        &self,
        params: Option<Json<'_>>,
    ) -> Result<Arc<Peer>, ErrorObject> {
        self.check_description(params.map_or(0, |params| params.as_str().len()))?;
        match handshake::agree(params, self.versions) {
            Ok(peer) => {
                let introduction = params.filter(|_| self.is_relayed);
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
    pub(crate) fn modern_terms(
        &mut self,
        params: &Params<'_>,
        field: Option<&str>,
    ) -> Result<Arc<Peer>, ErrorObject> {
        let lacking = |what: &str| {
            let text = format!("the request needs {what} in `_meta`");
            ErrorObject::new(code::INVALID_PARAMS, text)
        };
        if let Some(known) = self.last_terms.as_ref().filter(|_| params.are_terms_known) {
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
        let bytes = capabilities.as_str().len() + client.map_or(0, |client| client.as_str().len());
        self.check_description(bytes)?;
        let named: Cow<'_, str> = serde_json::from_str(version.as_str())
            .map_err(|_| lacking("a protocolVersion that is a text"))?;
        let declared: ClientCapabilities = serde_json::from_str(capabilities.as_str())
            .map_err(|_| lacking("clientCapabilities that are an object"))?;
        if field.is_some_and(|field| field != named) {
            return Err(other_version());
        }
        let spoken = Version::parse(&named)
            .filter(|v| v.era() == Era::Modern && self.versions.contains(*v))
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
        let terms = terms.filter(|terms| self.check_description(terms.len()).is_ok());
        self.last_terms = terms.map(|terms| LastTerms {
            terms: terms.into(),
            peer: peer.clone(),
        });
        Ok(peer)
    }

    /// The terms of the last modern client, as it wrote them. Empty if they are not known.
    pub(crate) fn known_terms(&self) -> &str {
        self.last_terms.as_ref().map_or("", |known| &*known.terms)
    }

    /// Checks the size of a client's description of itself, which is kept as long as the client.
    fn check_description(&self, bytes: usize) -> Result<(), ErrorObject> {
        let most = self.peer_bytes;
        if bytes <= most {
            return Ok(());
        }
        let text = format!("{most} bytes are the most that a client can say of itself");
        Err(ErrorObject::new(code::INVALID_PARAMS, text))
    }

    /// The error for a version that is not spoken (S-VER-01). It lists the modern versions, like `server/discover`. The client retries in
    /// the same way, in which it cannot reach a legacy version.
    pub(crate) fn unsupported(&self, wanted: &str) -> ErrorObject {
        let text = quoting("version ", wanted, " is not supported");
        let mut buf = Vec::new();
        let mut data = Object::open(&mut buf);
        let spoken = self.versions.iter();
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
}

fn other_version() -> ErrorObject {
    let text = "`MCP-Protocol-Version` must name the version that the message names";
    ErrorObject::new(code::HEADER_MISMATCH, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::config::Config;

    #[test]
    fn description_of_exactly_the_limit_is_accepted() {
        let mut config = Config::deferred([7; 16]);
        config.limits.peer_bytes = 10;
        let sessions = Sessions::new(&config);
        assert_eq!(sessions.check_description(10), Ok(()));
        assert!(sessions.check_description(11).is_err());
    }
}
