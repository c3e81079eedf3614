//! The clients of the server: what each legacy client agreed on, and who the application was told of. Sends nothing itself.
//!
//! - `handshake` reads `initialize`; `terms` finds the terms by which a request is served.
//! - `offer` holds the offer, and `deferred` the messages that wait for it.
//! - `elicitations` remembers which client was asked to visit which URL.

pub(crate) mod deferred;
mod elicitations;
mod handshake;
pub(crate) mod offer;
pub(crate) mod terms;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use elicitations::UrlElicitations;
use terms::LastTerms;

use crate::json::Payload;
use crate::protocol::method::names;
use crate::protocol::{Era, Method, Peer, ServerCapabilities, ServerFeature, Version, Versions};
use crate::server::config::Config;
use crate::server::event::Caller;
use crate::server::misuse::Misuse;
use crate::server::origin::{Origin, QueueId, SessionKey};
use crate::util::Arc;
use crate::wire::ErrorObject;

/// The terms that hold from `initialize` on. Modern requests carry their own terms (S-VER-07).
#[derive(Debug)]
pub(crate) struct LegacySession {
    pub(crate) peer: Arc<Peer>,
    /// Whether the client sent `notifications/initialized`.
    pub(crate) is_initialized: bool,
    /// The capabilities that it was offered, as far as they are known.
    pub(crate) offered: ServerCapabilities,
}

impl LegacySession {
    /// Whether the client was offered log messages.
    pub(crate) fn may_log(&self) -> bool {
        self.offered.offers(ServerFeature::Logging)
    }

    /// Whether the client's version has this notification, and one of the two ends declared the feature that it is about. `check` checks
    /// that the server offers a feature.
    fn hears(
        &self,
        facts: &Method,
        check: impl FnOnce(ServerFeature) -> Result<(), Misuse>,
    ) -> Result<bool, Misuse> {
        let version = self.peer.version;
        let declared = facts.client_gate(version);
        let declared = declared.map(|feature| self.peer.capabilities.declares(feature));
        let is_about_something = match (declared, facts.gate(version)) {
            (Some(true), _) | (None, None) => true,
            (Some(false), None) => false,
            (Some(false) | None, Some(feature)) => {
                check(feature)?;
                true
            }
        };
        Ok(is_about_something && facts.to_client.contains(version))
    }
}

#[derive(Debug)]
pub(crate) struct Sessions {
    versions: Versions,
    /// The most bytes of a client's description of itself, which is kept as long as the client.
    peer_bytes: usize,
    is_relayed: bool,
    /// The clients that sent `initialize`. A byte stream has at most one.
    legacy: BTreeMap<SessionKey, LegacySession>,
    /// The sessions that began on another server and were loaded before the offer was known. They get the offer when it is made.
    unoffered: BTreeSet<SessionKey>,
    elicitations: UrlElicitations,
    /// The client as the last modern request described it, with the text of that description.
    last_terms: Option<LastTerms>,
    /// The client that the application was last told of.
    reported: Option<Arc<Peer>>,
}

impl Sessions {
    pub(crate) fn new(config: &Config) -> Sessions {
        Sessions {
            versions: config.versions,
            peer_bytes: config.limits.peer_bytes,
            is_relayed: config.is_relayed,
            legacy: BTreeMap::new(),
            unoffered: BTreeSet::new(),
            elicitations: UrlElicitations::default(),
            last_terms: None,
            reported: None,
        }
    }

    /// Whether any version of this era is spoken.
    pub(crate) fn speaks(&self, era: Era) -> bool {
        self.versions.newest_of(era).is_some()
    }

    /// Records that the application is told of this client. Returns whether it was told of another one, or of none.
    pub(crate) fn is_new_client(&mut self, peer: &Arc<Peer>) -> bool {
        let is_new = self.reported.as_ref() != Some(peer);
        if is_new {
            self.reported = Some(peer.clone());
        }
        is_new
    }

    /// Whether the application was told of a client that may still be there.
    pub(crate) const fn has_reported(&self) -> bool {
        self.reported.is_some()
    }

    /// The next client is reported, even if it describes itself like the last one.
    pub(crate) fn forget_reported(&mut self) {
        self.reported = None;
    }
}

/// # Legacy clients
impl Sessions {
    pub(crate) fn begin(&mut self, session: SessionKey, legacy: LegacySession, is_offered: bool) {
        self.legacy.insert(session, legacy);
        if !is_offered {
            self.unoffered.insert(session);
        }
    }

    /// Ends the session of a client that is gone or begins anew. Returns whether there was one.
    pub(crate) fn end(&mut self, session: SessionKey) -> bool {
        if self.legacy.remove(&session).is_none() {
            return false;
        }
        self.unoffered.remove(&session);
        self.elicitations.end(session);
        self.reported = None;
        true
    }

    pub(crate) fn get(&self, session: SessionKey) -> Option<&LegacySession> {
        self.legacy.get(&session)
    }

    pub(crate) fn is_initialized(&self, session: SessionKey) -> bool {
        let legacy = self.legacy.get(&session);
        legacy.is_some_and(|legacy| legacy.is_initialized)
    }

    /// Records the end of a client's handshake. Returns the session if this is new.
    pub(crate) fn finish_handshake(&mut self, session: SessionKey) -> Option<&LegacySession> {
        let legacy = self.legacy.get_mut(&session);
        let legacy = legacy.filter(|legacy| !legacy.is_initialized)?;
        legacy.is_initialized = true;
        Some(legacy)
    }

    /// Whether the version that was agreed on has batches (S-BATCH-07).
    pub(crate) fn allows_batches(&self, session: SessionKey) -> bool {
        let legacy = self.legacy.get(&session);
        legacy.is_some_and(|legacy| legacy.peer.version.allows_batches())
    }

    /// Whether an error without an id can be sent to this client (S-RPC-10, S-RPC-11).
    pub(crate) fn allows_errors_without_id(&self, from: &Origin) -> bool {
        let legacy = from.session.and_then(|session| self.legacy.get(&session));
        legacy.is_none_or(|legacy| legacy.peer.version >= Version::V2025_11_25)
    }

    /// Gives the offer to a session that began on another server, which made the same offer there. Returns the session; `None` if all have
    /// the offer.
    pub(crate) fn offer_to_next(
        &mut self,
        offered: &ServerCapabilities,
    ) -> Option<(SessionKey, &LegacySession)> {
        // `unoffered` holds only sessions that exist.
        let session = self.unoffered.pop_first()?;
        let legacy = self.legacy.get_mut(&session)?;
        legacy.offered = offered.clone();
        Some((session, legacy))
    }

    /// The session of a client, for messages that belong to no request. `shared` is the session of the only client, if there is only one.
    pub(crate) fn of_caller(
        &self,
        caller: &Caller,
        shared: Option<SessionKey>,
    ) -> Result<SessionKey, Misuse> {
        let session = match caller.session_number() {
            None => shared.filter(|_| *caller == Caller::LINK),
            Some(number) => {
                let session = SessionKey::from_number(number);
                self.legacy.contains_key(&session).then_some(session)
            }
        };
        session.ok_or(Misuse::NoLegacyPeer)
    }
}

/// # Notifications
impl Sessions {
    /// Whether a client can be told of changes. `feature` must be one that it was offered, if it is given.
    pub(crate) fn hears_changes(&self, key: SessionKey, feature: Option<ServerFeature>) -> bool {
        let session = self.legacy.get(&key).filter(|legacy| legacy.is_initialized);
        session.is_some_and(|legacy| feature.is_none_or(|feature| legacy.offered.offers(feature)))
    }

    /// The queues to the clients that get a notification with this method, description and params. `only` is the client that it is for, if
    /// it is for one. `is_shared` says that there cannot be several clients. `check` checks that the server offers a feature.
    pub(crate) fn hearing(
        &self,
        (method, facts, params): (&str, Option<&Method>, Option<&Payload>),
        only: Option<SessionKey>,
        is_shared: bool,
        check: impl Fn(ServerFeature) -> Result<(), Misuse>,
    ) -> Result<Vec<QueueId>, Misuse> {
        let is_end_of_visit = method == names::NOTIFICATIONS_ELICITATION_COMPLETE;
        // Where there are several clients, the end of a visit concerns only those that were asked for the visit.
        let mut concerned = match only {
            _ if is_end_of_visit && !is_shared => self.asked_to_visit(params),
            Some(only) => Vec::from([only]),
            None => self.legacy.keys().copied().collect(),
        };
        concerned.retain(|session| only.is_none_or(|only| only == *session));
        let mut queues: Vec<QueueId> = Vec::new();
        for key in concerned {
            let hears = match (self.legacy.get(&key), facts) {
                (Some(session), Some(facts)) => session.hears(facts, &check)?,
                (Some(_), None) => true,
                (None, _) => false,
            };
            if hears {
                queues.push(key.queue());
            }
        }
        Ok(queues)
    }
}

/// # Elicitations
impl Sessions {
    /// Records what a client is asked. No other client is told of the end of a visit that it is asked for (S-S2C-05).
    pub(crate) fn asked(&mut self, session: SessionKey, method: &str, params: Option<&Payload>) {
        if self.legacy.contains_key(&session) {
            self.elicitations.asked(session, method, params);
        }
    }

    /// Records what an error asks a client for.
    pub(crate) fn required(&mut self, session: SessionKey, error: &ErrorObject) {
        if self.legacy.contains_key(&session) {
            self.elicitations.required(session, error);
        }
    }

    /// The clients that were asked for the visit that these params name.
    fn asked_to_visit(&self, params: Option<&Payload>) -> Vec<SessionKey> {
        self.elicitations.made_by(params).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_of_a_session_that_ended_are_forgotten() {
        let mut sessions = Sessions::new(&Config::deferred([7; 16]));
        let peer = Peer {
            version: Version::V2025_11_25,
            client: None,
            capabilities: Default::default(),
            introduction: None,
        };
        let legacy = LegacySession {
            peer: Arc::new(peer),
            is_initialized: true,
            offered: ServerCapabilities::default(),
        };
        let session = SessionKey::DUPLEX.next();
        sessions.begin(session, legacy, true);
        let visit: Payload = r#"{"elicitationId":"1"}"#.parse().unwrap();
        sessions.asked(session, names::ELICITATION_CREATE, Some(&visit));
        assert_eq!(sessions.asked_to_visit(Some(&visit)), [session]);
        assert!(sessions.end(session));
        assert_eq!(sessions.asked_to_visit(Some(&visit)), []);
        assert!(!sessions.end(session), "it has ended already");
    }
}
