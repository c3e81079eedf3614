//! The sessions and streams of legacy clients: access to a session, opening and resuming a stream, and the end of a session.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::event::Cancelled;
use super::super::frame::{Frame, Signal};
use super::super::lanes::Kind;
use super::super::legacy::Scope;
use super::super::origin::{Lane, Origin, SessionKey, Whose};
use super::super::{Server, Timer};
use super::FULL;
use super::exchange::{Asked, Exchange};
use super::ladder::{Refusal, Said};
use super::session::{STANDALONE, read_event_id};
use super::session_field;
use super::store::SessionRecord;
use crate::driver::{StreamId, TICK};
use crate::http::{Fields, names};
use crate::protocol::{Era, Peer, ServerFeature, Version, code};
use crate::wire::ErrorObject;

/// # Sessions
impl Server {
    /// Returns the session that a request names, if its user may use it.
    pub(super) fn session_of(&mut self, asked: &Asked) -> Result<SessionKey, Refusal> {
        let id = match Said::of(&asked.fields, names::MCP_SESSION_ID) {
            Said::This(id) => id,
            // S-SESS-04: a request without a session id gets status 400.
            Said::Absent | Said::Garbled => {
                let text = "the request names no session: send `initialize` first, or speak a version that has none";
                return Err(Refusal::new(400, text));
            }
        };
        let known = self.http.as_ref().and_then(|http| http.sessions.find(id));
        let known = known.filter(|key| self.is_held(*key, id));
        let key = match known {
            Some(key) => Some(key),
            None => self.revive(id, asked)?,
        };
        let session = key.and_then(|key| self.http.as_ref()?.sessions.get(key));
        // F-115, S-SESS-09: the owner is checked on each request, and nobody else learns that the session exists.
        let session = session.filter(|session| session.user == asked.user && !session.is_sse);
        let (Some(key), Some(_)) = (key, session) else {
            let text = "there is no such session, or it is over: send `initialize` for a new one";
            return Err(Refusal::new(404, text));
        };
        self.check_version(asked, key)?;
        self.touch(Some(key));
        Ok(key)
    }

    /// Whether a session that is known here is still in the store, if other servers share the store. Ends it here if not.
    fn is_held(&mut self, key: SessionKey, id: &str) -> bool {
        let Some(http) = &mut self.http else {
            return false;
        };
        let records = http.records.as_mut().filter(|records| records.is_shared());
        let is_held = records.is_none_or(|records| records.get(id).is_some());
        if !is_held {
            self.end_session(key, false);
        }
        is_held
    }

    /// Checks that the version field, if present, names a legacy version that is spoken (S-LHTTP-22).
    fn check_version(&self, asked: &Asked, key: SessionKey) -> Result<(), Refusal> {
        let agreed = self.scopes.get(&key).map(|scope| scope.peer.version);
        // S-LHTTP-23: older versions do not know the field.
        if agreed.is_some_and(|version| version < Version::V2025_06_18) {
            return Ok(());
        }
        let is_spoken = |version: Version| {
            version.era() == Era::Legacy && self.config.versions.contains(version)
        };
        match Said::of(&asked.fields, names::MCP_PROTOCOL_VERSION) {
            Said::Absent => Ok(()),
            Said::This(version) if Version::parse(version).is_some_and(is_spoken) => Ok(()),
            Said::Garbled | Said::This(_) => {
                let text = "`MCP-Protocol-Version` names no version that is spoken in a session";
                Err(Refusal::new(400, text))
            }
        }
    }

    /// Opens a session for a client that sent `initialize`, unless it is in one already (S-SESS-01).
    pub(in crate::server) fn open_session(&mut self, from: &Origin) -> Result<(), ErrorObject> {
        let (Some(http), Some(key)) = (&mut self.http, from.session) else {
            return Ok(());
        };
        if http.sessions.get(key).is_some() {
            return Ok(());
        }
        if http.sessions.len() >= self.config.limits.sessions && !self.free_session() {
            return Err(ErrorObject::new(code::INTERNAL_ERROR, FULL));
        }
        let Some(http) = &mut self.http else {
            return Ok(());
        };
        // Another server with the same secret may have chosen the same id.
        let mut salt = 0;
        let mut id = http.sessions.mint(key, salt);
        while http
            .records
            .as_mut()
            .is_some_and(|records| records.get(&id).is_some())
        {
            salt += 1;
            id = http.sessions.mint(key, salt);
        }
        let exchange = http.exchanges.carrier(from.lane);
        if let Some(exchange) = exchange.and_then(|s| http.exchanges.get_mut(s)) {
            exchange.fields = session_field(&id);
        }
        http.sessions.open(key, id, from.user.clone());
        self.begin_session(key);
        Ok(())
    }

    /// Adds the lane for messages of a session that belong to no request, and starts the idle time.
    fn begin_session(&mut self, key: SessionKey) {
        let kind = if self.has_replay() {
            Kind::Lasting
        } else {
            Kind::Patient
        };
        self.lanes.add(key.lane(), kind);
        self.touch(Some(key));
    }

    /// Loads a session that is not known here from the store, if another server put it there.
    fn revive(&mut self, id: &str, asked: &Asked) -> Result<Option<SessionKey>, Refusal> {
        let Some(http) = &mut self.http else {
            return Ok(None);
        };
        let record = http.records.as_mut().and_then(|records| records.get(id));
        let record = record.filter(|record| {
            record.user == asked.user && self.config.versions.contains(record.version)
        });
        let Some(record) = record else {
            return Ok(None);
        };
        if http.sessions.len() >= self.config.limits.sessions && !self.free_session() {
            return Err(Refusal::busy(FULL));
        }
        let Some(http) = &mut self.http else {
            return Ok(None);
        };
        let key = http.sessions.fresh();
        http.sessions.open(key, record.id, record.user);
        // Messages that another server sent count as received, because nothing better is known.
        let mut heard = 0;
        let mut note = |number, _: &str| heard = number;
        http.events.replay(id, STANDALONE, 0, &mut note);
        if let Some(session) = http.sessions.get_mut(key) {
            session.heard = heard;
        }
        self.begin_session(key);
        let offer = self.config.offer.as_ref();
        let scope = Scope {
            peer: Arc::new(Peer {
                version: record.version,
                client: record.client,
                capabilities: record.capabilities,
                introduction: None,
            }),
            is_initialized: record.is_initialized,
            offered: offer.map(|o| o.capabilities.clone()).unwrap_or_default(),
        };
        if offer.is_none() {
            self.unoffered.insert(key);
        }
        self.met = None;
        self.meet(&scope.peer);
        self.scopes.insert(key, scope);
        let mut uris = record.uris;
        self.watchers.fit(&mut uris, &self.config.limits);
        self.watchers.begin(key, &uris, record.log_level);
        if let Some(scope) = self.scopes.get(&key) {
            if scope.is_initialized {
                self.watchers.hears_lists(key, &scope.offered);
            }
            if scope.offered.offers(ServerFeature::Logging) {
                self.watchers.hears_logs(key, self.config.log_level);
            }
        }
        Ok(Some(key))
    }

    /// Stores the present state of a session, so that another server can continue it.
    pub(in crate::server) fn save_session(&mut self, key: SessionKey) {
        let (Some(http), Some(scope)) = (&mut self.http, self.scopes.get(&key)) else {
            return;
        };
        let session = http.sessions.get(key).filter(|session| !session.is_sse);
        let (Some(session), Some(records)) = (session, &mut http.records) else {
            return;
        };
        let choice = self.watchers.choice(key);
        let record = SessionRecord {
            client: scope.peer.client.clone(),
            capabilities: scope.peer.capabilities.clone(),
            user: session.user.clone(),
            log_level: choice.and_then(|choice| choice.level),
            uris: choice.map_or_else(BTreeSet::new, |choice| {
                choice.uris.iter().map(|uri| Box::from(&**uri)).collect()
            }),
            is_initialized: scope.is_initialized,
            ..SessionRecord::new(session.id.clone(), scope.peer.version)
        };
        records.put(&record);
    }

    /// Records that a request was made in a session.
    pub(super) fn use_session(&mut self, key: SessionKey) {
        let http = self.http.as_mut();
        if let Some(session) = http.and_then(|http| http.sessions.get_mut(key)) {
            session.is_used = true;
        }
    }

    /// Records activity in a session, which restarts its idle time.
    pub(in crate::server) fn touch(&mut self, session: Option<SessionKey>) {
        let (Some(http), Some(config), Some(key)) = (&mut self.http, &self.config.http, session)
        else {
            return;
        };
        let Some(session) = http.sessions.get_mut(key) else {
            return;
        };
        let scope = self.scopes.get(&key);
        let is_begun = scope.is_some_and(|scope| scope.is_initialized);
        // A session without a finished handshake ends after `body_timeout` at the latest, so that it takes no place for long.
        let idle = if is_begun {
            config.session_idle
        } else {
            config.session_idle.min(config.body_timeout)
        };
        session.ends = self.now + idle.max(TICK);
        // Activity does not arm the timer again. If it fires early, `session_idle` arms it for the new deadline.
        let armed = self.timers.at(Timer::Idle(key));
        if armed.is_none_or(|at| at > session.ends) {
            self.timers.arm(Timer::Idle(key), session.ends);
        }
        self.rank_session(key);
    }

    /// Ends a session at its idle deadline, unless a client waits for something in it (F-036).
    pub(in crate::server) fn session_idle(&mut self, key: SessionKey) {
        let Some(http) = &self.http else {
            return;
        };
        let session = http.sessions.get(key);
        if let Some(later) = session.filter(|session| session.ends > self.now) {
            return self.timers.arm(Timer::Idle(key), later.ends);
        }
        let is_waited = !http.sessions.streams(key).is_empty();
        if is_waited || http.exchanges.carrier(key.lane()).is_some() {
            self.touch(Some(key));
        } else {
            let is_shared = self.is_shared();
            self.end_session(key, !is_shared);
        }
    }

    pub(super) fn session_deleted(
        &mut self,
        stream: StreamId,
        asked: &Asked,
    ) -> Result<(), Refusal> {
        let key = self.session_of(asked)?;
        self.end_session(key, true);
        self.respond_empty(stream, 204, Fields::new());
        Ok(())
    }

    /// Ends a session and everything in it, for good or only on this server.
    pub(super) fn end_session(&mut self, key: SessionKey, for_good: bool) {
        let Some(http) = &mut self.http else {
            return;
        };
        // Clients that still wait for a reply in it get status 404.
        for stream in http.sessions.streams(key) {
            let carrier = http.exchanges.carrier(Lane::Stream(stream));
            if let Some(exchange) = carrier.and_then(|s| http.exchanges.get_mut(s)) {
                exchange.status = Some(404);
            }
        }
        if let Some(stream) = http.exchanges.carrier(key.lane()) {
            self.end_exchange(stream);
        }
        self.lanes.remove(key.lane());
        self.end_legacy(key, &Cancelled::PeerGone);
        self.forget_early(Whose::Session(key));
        self.timers.disarm(Timer::Idle(key));
        if let Some(http) = &mut self.http {
            http.shares.idle.set(key, None);
            let session = http.sessions.close(key);
            if let Some(session) = session.filter(|_| for_good) {
                if let Some(records) = &mut http.records {
                    records.remove(&session.id);
                }
                http.events.forget(&session.id);
            }
        }
    }
}

/// # Streams
impl Server {
    /// Opens the standalone stream of a session, which belongs to no request (S-LHTTP-13), or resumes a stream that broke off (S-RES-03).
    pub(super) fn stream_wanted(&mut self, stream: StreamId, asked: &Asked) -> Result<(), Refusal> {
        let key = self.session_of(asked)?;
        let (name, after) = match Said::of(&asked.fields, names::LAST_EVENT_ID) {
            Said::Absent if !self.is_serving() => {
                return Err(Refusal::busy("the server is shutting down"));
            }
            Said::Absent => {
                let session = self.http.as_ref().and_then(|http| http.sessions.get(key));
                (STANDALONE, session.map_or(0, |session| session.heard))
            }
            Said::This(id) if self.has_replay() => {
                read_event_id(id).ok_or_else(|| Refusal::new(400, "there was no such event"))?
            }
            Said::Garbled | Said::This(_) => {
                return Err(Refusal::new(400, "there was no such event"));
            }
        };
        let mut frames = Vec::from([Frame::Signal(Signal::Begin(after))]);
        let is_known = self.replay(key, name, after, &mut frames);
        let http = self.http.as_ref();
        let born = http.and_then(|http| http.sessions.stream(key, name));
        let lane = match born {
            _ if name == STANDALONE => key.lane(),
            Some(born) => Lane::Stream(born),
            // All requests of the stream are answered: the rest is replayed, and the stream ends. The same happens if another server may
            // still work on a request; the client then asks again.
            None if is_known || self.is_shared() => {
                let lane = Lane::Stream(stream);
                self.lanes.add(lane, Kind::Answering);
                if let Some(http) = &mut self.http {
                    http.sessions.echo(key, name, stream);
                }
                lane
            }
            None => return Err(Refusal::new(400, "nothing is known of such an event")),
        };
        // A newer stream replaces the older.
        let older = self
            .http
            .as_ref()
            .and_then(|http| http.exchanges.carrier(lane));
        if let Some(older) = older {
            self.end_exchange(older);
            self.lanes.detach(lane);
        }
        let mut exchange = Exchange::new(lane, asked.takes);
        exchange.session = Some(key);
        self.lanes.prepend(lane, frames);
        self.carry(stream, exchange);
        Ok(())
    }

    /// Queues the messages that were sent on a stream after an event, for replay (S-RES-04, S-RES-05). Returns whether the store knows the
    /// stream.
    fn replay(&mut self, key: SessionKey, name: u64, after: u64, frames: &mut Vec<Frame>) -> bool {
        let has_replay = self.has_replay();
        let Some(http) = self.http.as_mut().filter(|_| has_replay) else {
            return false;
        };
        let Some(session) = http.sessions.get(key) else {
            return false;
        };
        let mut again = |number, message: &str| {
            let again = Signal::Replayed(number, message.into());
            frames.push(Frame::Signal(again));
        };
        http.events.replay(&session.id, name, after, &mut again)
    }

    pub(super) fn is_shared(&self) -> bool {
        let records = self.http.as_ref().and_then(|http| http.records.as_ref());
        records.is_some_and(|records| records.is_shared())
    }

    /// Whether messages of sessions are kept for clients that lose their stream.
    pub(super) fn has_replay(&self) -> bool {
        let config = self.config.http.as_ref();
        config.is_some_and(|config| config.replay.events > 0)
    }
}
