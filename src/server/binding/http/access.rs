//! Finds, opens and ends the sessions of legacy clients, and ranks those with nothing in flight. Does not know what is in a session.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use crate::driver::{LookupId, SessionRecord, StoreRequest, StreamId};
use crate::http::{Fields, names};
use crate::protocol::{Era, Version};
use crate::server::binding::http::HttpBinding;
use crate::server::binding::http::config::{SessionStorage, Storage};
use crate::server::binding::http::exchange::Arriving;
use crate::server::binding::http::fleet::Missing;
use crate::server::binding::http::lookups::{Found, Halt, Pending, Settled, Wait};
use crate::server::binding::http::shares::Standing;
use crate::server::binding::http::store::Events;
use crate::server::binding::http::validate::{FieldValue, Refusal};
use crate::server::clock::{Clock, Timer};
use crate::server::context::Context;
use crate::server::origin::{Origin, QueueId, SessionKey};
use crate::server::outgoing::Lifetime;
use crate::server::outgoing::frame::Answer;
use crate::wire::{self, Id};

/// The error text for a client for which no session is left (F-110).
pub(crate) const NO_SESSION_LEFT: &str =
    "as many clients as may be are here already; come back later";

/// The longest id of a session for which a store is asked. The ids that servers make have 32 characters.
const LONGEST_ID: usize = 256;

/// The session that a request names.
pub(crate) enum Lookup {
    Known(SessionKey),
    /// There is none.
    Missing,
    /// The home of this session is another server now. The request is passed on to it.
    Moved(SessionKey, Halt),
    /// It is over, because it is no longer in the store that other servers share.
    Over(SessionKey),
    /// Another server put it into the store.
    Stored(Box<SessionRecord>),
}

/// Whether there is room for one more session.
pub(crate) enum Room {
    Free,
    Full,
    /// If this session gives way. Says whether it then is over for good, or only on this server.
    Displacing(SessionKey, bool),
}

/// # Access to a session
impl HttpBinding {
    /// Finds the session that a request names.
    pub(crate) fn find_session(&self, clock: &Clock, arrived: &Arriving) -> Result<Lookup, Halt> {
        let id = match FieldValue::of(&arrived.fields, names::MCP_SESSION_ID) {
            FieldValue::This(id) if id.len() > LONGEST_ID => {
                return Err(Refusal::no_session().into());
            }
            FieldValue::This(id) => id,
            // S-SESS-04: a request without a session id gets status 400.
            FieldValue::Absent | FieldValue::Unreadable => {
                let text = "the request names no session: send `initialize` first, or speak a version that has none";
                return Err(Refusal::new(400, text).into());
            }
        };
        let known = self.sessions.find(id);
        let session = known.and_then(|key| self.sessions.get(key));
        let is_stored = match self.session_storage() {
            SessionStorage::Memory => false,
            SessionStorage::Driver => known.is_none(),
            // A session of the transport of 2024-11-05 is not in the store.
            SessionStorage::Shared => session.is_none_or(|session| {
                !session.is_sse && (session.is_doubtful || !self.fleet.has_lease(clock.now()))
            }),
        };
        let is_first = arrived.found.is_none();
        let record = match &arrived.found {
            // A request that waited behind others asks the store itself if these ended the session here: it may have moved.
            None | Some(Found::Unasked) if is_stored || is_first && self.lookups.has(id) => {
                let (id, is_asked) = (id.into(), is_stored);
                return Err(Halt::Wait(Wait::Session { id, is_asked }));
            }
            None | Some(Found::Unasked) => {
                return Ok(known.map_or(Lookup::Missing, Lookup::Known));
            }
            Some(Found::Failed(failure)) => return Err(failure.refusal().into()),
            Some(Found::Record(record)) => record.as_ref(),
        };
        let elsewhere =
            record.filter(|record| self.fleet.node().is_some_and(|node| node != record.home));
        if let Some(record) = elsewhere {
            let halt = self.forward_to(record.home, Missing::LookAgain, arrived);
            return match known {
                Some(key) => Ok(Lookup::Moved(key, halt)),
                None => Err(halt),
            };
        }
        if let Some(key) = known {
            let is_over = is_stored && record.is_none();
            return Ok(if is_over {
                Lookup::Over(key)
            } else {
                Lookup::Known(key)
            });
        }
        let record = record
            .filter(|record| record.user == arrived.user && self.versions.contains(record.version));
        Ok(record.map_or(Lookup::Missing, |record| Lookup::Stored(record.clone())))
    }

    pub(crate) const fn session_storage(&self) -> SessionStorage {
        match self.config.storage {
            Storage::Memory => SessionStorage::Memory,
            Storage::Driver(storage) => storage.sessions,
        }
    }

    /// Checks that a request may be made in this session, and records the activity.
    pub(crate) fn enter_session(
        &mut self,
        cx: &mut Context,
        key: SessionKey,
        arrived: &Arriving,
    ) -> Result<(), Refusal> {
        // F-115, S-SESS-09: the owner is checked on each request, and nobody else learns that the session exists.
        let session = self.sessions.get(key);
        let session = session.filter(|session| session.user == arrived.user && !session.is_sse);
        let agreed = session.ok_or_else(Refusal::no_session)?.version;
        self.check_version(arrived, agreed)?;
        if let (Some(Found::Record(_)), Some(session)) =
            (&arrived.found, self.sessions.get_mut(key))
        {
            session.is_doubtful = false;
        }
        self.touch(Some(key), &mut cx.clock);
        Ok(())
    }

    /// Checks that the version field, if present, names a legacy version that is spoken (S-LHTTP-22).
    fn check_version(&self, arrived: &Arriving, agreed: Option<Version>) -> Result<(), Refusal> {
        // S-LHTTP-23: older versions do not know the field.
        if agreed.is_some_and(|version| version < Version::V2025_06_18) {
            return Ok(());
        }
        let is_spoken =
            |version: Version| version.era() == Era::Legacy && self.versions.contains(version);
        match FieldValue::of(&arrived.fields, names::MCP_PROTOCOL_VERSION) {
            FieldValue::Absent => Ok(()),
            FieldValue::This(version) if Version::parse(version).is_some_and(is_spoken) => Ok(()),
            FieldValue::Unreadable | FieldValue::This(_) => {
                let text = "`MCP-Protocol-Version` names no version that is spoken in a session";
                Err(Refusal::new(400, text))
            }
        }
    }

    /// Finds the session of a message that was posted on the transport of 2024-11-05. Replies to it go to the stream of the session.
    pub(crate) fn sse_origin(&self, id: &str, arrived: &Arriving) -> Result<Origin, Halt> {
        let key = self.sessions.find(id).filter(|key| {
            let session = self.sessions.get(*key);
            session.is_some_and(|session| session.is_sse && session.user == arrived.user)
        });
        let Some(key) = key else {
            let text = "there is no such session, or it is over: get a new stream";
            let refusal = Refusal::new(404, text);
            let home = id.split_once('.').map(|(home, _)| home);
            let home = home.and_then(|home| u32::from_str_radix(home, 16).ok());
            return Err(match (self.fleet.node(), home) {
                (Some(node), Some(home)) if node != home => {
                    // As a note, a body that is no JSON could be six times as long.
                    if let Err(malformed) = wire::parse(arrived.text()?) {
                        return Err(Arriving::refuse_malformed(&malformed).into());
                    }
                    self.forward_to(home, Missing::Refused(Box::new(refusal)), arrived)
                }
                _ => refusal.into(),
            });
        };
        Ok(Origin {
            queue: key.queue(),
            ..arrived.origin_in(StreamId::DUPLEX, key)
        })
    }
}

/// # The life of a session
impl HttpBinding {
    pub(crate) fn session_count(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn has_session(&self, key: SessionKey) -> bool {
        self.sessions.get(key).is_some()
    }

    /// Returns a key that no session had.
    pub(crate) fn next_session(&mut self) -> SessionKey {
        self.sessions.next_key()
    }

    /// Whether there is room for one more session. The least used session gives way, of those with nothing in flight.
    pub(crate) fn room_for_session(&self, clock: &Clock) -> Room {
        if self.sessions.len() < self.limits.sessions {
            return Room::Free;
        }
        let idle = self.shares.idle.first(clock.now());
        idle.map_or(Room::Full, |key| Room::Displacing(key, !self.is_shared()))
    }

    /// Opens a session for a client that sent `initialize` (S-SESS-01). The response to it names the session.
    pub(crate) fn open_session(&mut self, cx: &mut Context, key: SessionKey, from: &Origin) {
        let id = self.sessions.new_id(key);
        let exchange = self.exchanges.carrier(from.queue);
        if let Some(exchange) = exchange.and_then(|s| self.exchanges.get_mut(s)) {
            let value = alloc::string::String::from(&*id);
            exchange.fields = Fields::new().and(names::MCP_SESSION_ID, value);
        }
        self.sessions.open(key, id, from.user.clone());
        if let Some(session) = self.sessions.get_mut(key) {
            // It is stored in this step.
            session.kept_at = Some(cx.clock.now());
        }
        self.begin_session(cx, key);
    }

    /// Opens the session of a client that wants a stream of the transport of 2024-11-05. Returns it, and the path to which the client posts
    /// its messages (S-SSE-02).
    pub(super) fn open_sse_session(
        &mut self,
        arrived: &Arriving,
    ) -> Option<(SessionKey, Box<str>)> {
        let paths = self.config.sse.as_ref()?;
        let key = self.sessions.next_key();
        let mut id = self.sessions.new_id(key);
        // The stream of such a session is at this server for good, and the id says so.
        if let Some(node) = self.fleet.node() {
            id = format!("{node:x}.{id}").into();
        }
        let endpoint = format!("{}?session={id}", paths.messages);
        self.sessions.open(key, id, arrived.user.clone());
        if let Some(session) = self.sessions.get_mut(key) {
            session.is_sse = true;
        }
        Some((key, endpoint.into()))
    }

    /// Opens a session that another server began. Messages that the other server sent count as received, because nothing better is known.
    pub(crate) fn revive_session(
        &mut self,
        cx: &mut Context,
        record: &SessionRecord,
    ) -> SessionKey {
        let key = self.sessions.next_key();
        self.sessions
            .open(key, record.id.clone(), record.user.clone());
        if let Events::Memory(events) = &mut self.events {
            events.came_back(&record.id);
            if let Some(session) = self.sessions.get_mut(key) {
                let mut note = |number, _: &str| session.last_written = number;
                events.replay(&record.id, session.standalone, 0, &mut note);
            }
        }
        // The idle time depends on whether the handshake is over.
        self.agreed(key, record.version, record.is_initialized);
        self.begin_session(cx, key);
        key
    }

    /// Adds the queue for messages of a session that belong to no request, and starts the idle time.
    fn begin_session(&mut self, cx: &mut Context, key: SessionKey) {
        cx.outgoing.add(key.queue(), self.session_lifetime());
        self.touch(Some(key), &mut cx.clock);
    }

    /// How long the queue lives for messages of a session that belong to no request.
    const fn session_lifetime(&self) -> Lifetime {
        if self.has_replay() {
            Lifetime::Lasting
        } else {
            Lifetime::Patient
        }
    }

    /// Records the version that was agreed on in a session, and whether its handshake is over.
    pub(crate) fn agreed(&mut self, key: SessionKey, version: Version, is_initialized: bool) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.version = Some(version);
            session.is_initialized = is_initialized;
        }
    }

    /// Records that the handshake in a session is over. From now on, the full idle time applies.
    pub(crate) fn initialized(&mut self, cx: &mut Context, key: SessionKey) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.is_initialized = true;
        }
        self.touch(Some(key), &mut cx.clock);
    }

    /// Records that a request was made in a session.
    pub(crate) fn use_session(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.is_used = true;
        }
    }

    /// Records activity in a session, which restarts its idle time.
    pub(crate) fn touch(&mut self, session: Option<SessionKey>, clock: &mut Clock) {
        let Some(key) = session else {
            return;
        };
        let is_stored = self.session_storage() != SessionStorage::Memory;
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let idle = self.config.idle_time(session.is_initialized);
        session.ends = clock.after(idle);
        // The store keeps a session twice as long as it may be idle, so an eighth of that time is early enough.
        let is_due = session
            .kept_at
            .is_none_or(|kept_at| clock.now() >= kept_at + idle / 8);
        if is_stored && is_due {
            session.kept_at = Some(clock.now());
            if !session.is_sse {
                self.lookups.request(StoreRequest::Touch {
                    session: session.id.clone(),
                    keep: idle.saturating_mul(2),
                });
            }
        }
        // Activity does not arm the timer again. If it fires early, `session_idle` arms it for the new deadline.
        if !clock.is_armed(Timer::Idle(key)) {
            clock.arm_at(Timer::Idle(key), session.ends);
        }
        self.rank(key, clock);
    }

    /// Updates the rank of a session after something happened in it.
    pub(crate) fn rank(&mut self, key: SessionKey, clock: &Clock) {
        let place = self.sessions.get(key).and_then(|session| {
            let is_busy = session.is_sse
                || session.has_streams()
                || self.exchanges.carrier(key.queue()).is_some()
                || self.lookups.is_replaying(key);
            let standing = match (session.is_initialized, session.is_used) {
                (true, true) => Standing::Used,
                (true, false) => Standing::Unused,
                (false, _) => Standing::Unfinished,
            };
            (!is_busy).then_some((standing, clock.now()))
        });
        self.shares.idle.set(key, place);
    }

    /// Handles the idle deadline of a session. If the session is over, returns whether it is so for good, or only on this server.
    pub(crate) fn session_idle(&mut self, key: SessionKey, clock: &mut Clock) -> Option<bool> {
        let session = self.sessions.get(key)?;
        if session.ends > clock.now() {
            clock.arm_at(Timer::Idle(key), session.ends);
            return None;
        }
        // A client waits for something in it (F-036).
        if session.has_streams() || self.exchanges.carrier(key.queue()).is_some() {
            self.touch(Some(key), clock);
            return None;
        }
        Some(!self.is_shared())
    }

    /// The exchanges with unanswered requests of a session whose responses have not begun.
    pub(crate) fn unbegun(&self, key: SessionKey) -> Vec<StreamId> {
        let streams = self.sessions.streams(key).into_iter();
        let carriers = streams.filter_map(|s| self.exchanges.carrier(QueueId::Stream(s)));
        let is_unbegun = |stream: &StreamId| {
            let exchange = self.exchanges.get(*stream);
            exchange.is_some_and(|exchange| !exchange.has_begun())
        };
        carriers.filter(is_unbegun).collect()
    }

    /// Ends the streams of a session that ends. Clients that still wait for a reply get status 404.
    pub(crate) fn end_streams(&mut self, cx: &mut Context, key: SessionKey) {
        for stream in self.sessions.streams(key) {
            let carrier = self.exchanges.carrier(QueueId::Stream(stream));
            if let Some(exchange) = carrier.and_then(|s| self.exchanges.get_mut(s)) {
                exchange.status = Some(404);
            }
        }
        if let Some(stream) = self.carrier(key.queue()) {
            self.end_exchange(cx, stream);
        }
        cx.outgoing.remove(key.queue());
    }

    /// Removes a session, for good or only on this server.
    pub(crate) fn close_session(&mut self, cx: &mut Context, key: SessionKey, for_good: bool) {
        cx.clock.disarm(Timer::Idle(key));
        self.shares.idle.set(key, None);
        let session = self.sessions.close(key);
        let Some(session) = session.filter(|session| !session.is_sse) else {
            return;
        };
        if !for_good {
            // If it comes back, the numbers of its messages go on.
            if let Events::Memory(events) = &mut self.events {
                events.let_go(&session.id, self.limits.sessions);
            }
            return;
        }
        self.lookups.session_ended(&session.id);
        match &mut self.events {
            Events::Memory(events) => events.forget(&session.id),
            Events::Driver => {
                let session = session.id.clone();
                self.lookups.request(StoreRequest::Forget { session });
            }
        }
        if self.session_storage() != SessionStorage::Memory {
            let session = session.id;
            let lookup = self
                .is_shared()
                .then(|| self.pend_change(cx, Pending::Nobody(None)));
            self.lookups
                .request(StoreRequest::Remove { lookup, session });
        }
    }

    /// Notes what waits for a change in the store, which has the usual time.
    fn pend_change(&mut self, cx: &mut Context, pending: Pending) -> LookupId {
        let lookup = self.lookups.pend(pending);
        self.arm_lookup(lookup, &mut cx.clock);
        lookup
    }

    /// Answers a request that was processed with this status and no body: now, or when the store has the change that the request caused.
    pub(crate) fn respond_when_saved(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        status: u16,
    ) -> Result<(), Halt> {
        match self.lookups.take_unawaited() {
            Some(lookup) => Err(Halt::Saved(lookup, status)),
            None => {
                self.respond_empty(cx, stream, status, Fields::new());
                Ok(())
            }
        }
    }

    /// A record of this session with its id and its user, if other servers are to be able to continue it.
    pub(crate) fn record_of(&self, key: SessionKey, version: Version) -> Option<SessionRecord> {
        if self.session_storage() == SessionStorage::Memory {
            return None;
        }
        let session = self.sessions.get(key).filter(|session| !session.is_sse)?;
        Some(SessionRecord {
            user: session.user.clone(),
            home: self.fleet.node().unwrap_or_default(),
            ..SessionRecord::new(session.id.clone(), version)
        })
    }

    /// Stores the present state of a session. If several servers use the store, the reply on this queue waits until it has the session.
    pub(crate) fn save(
        &mut self,
        cx: &mut Context,
        record: SessionRecord,
        is_new: bool,
        reply: Option<(QueueId, Id)>,
    ) {
        let lookup = self.is_shared().then(|| {
            let key = self.sessions.find(&record.id);
            match reply {
                Some((queue, id)) => {
                    cx.outgoing.hold(queue);
                    self.pend_change(cx, Pending::Reply(queue, id, key))
                }
                None => self.pend_change(cx, Pending::Nobody(key)),
            }
        });
        let idle = self.config.idle_time(record.is_initialized);
        self.lookups.request(StoreRequest::Put {
            lookup,
            record: Box::new(record),
            is_new,
            keep: idle.saturating_mul(2),
        });
    }

    /// Sends a reply that waited for the store, or a refusal in its place.
    pub(super) fn release_reply(
        &mut self,
        cx: &mut Context,
        queue: QueueId,
        id: Id,
        settled: &Settled,
    ) {
        let Some(stream) = self.carrier(queue) else {
            return cx.outgoing.detach(queue);
        };
        let exchange = self.exchanges.get_mut(stream);
        let key = exchange.and_then(|exchange| exchange.session);
        if let Some(refusal) = self.unsaved(settled, key) {
            if key.is_some() {
                // In a batch, the replies to other requests are on the same queue.
                cx.outgoing.retract_id(queue, &id);
            } else {
                cx.outgoing.remove(queue);
                cx.outgoing.add(queue, Lifetime::UntilAnswered);
            }
            if cx.outgoing.is_done(queue) {
                self.set_head(stream, refusal.status, refusal.fields);
            }
            cx.reply(queue, id, Answer::Error(refusal.error));
        }
        if !self.lookups.holds(queue) {
            cx.outgoing.attach(queue);
        }
    }

    /// The refusal of a request in this session whose change is not in the store.
    pub(super) fn unsaved(&self, settled: &Settled, key: Option<SessionKey>) -> Option<Refusal> {
        match settled {
            Settled::Done(true) => None,
            Settled::Done(false) => {
                if key.is_none_or(|key| self.sessions.get(key).is_none()) {
                    return Some(Refusal::no_session());
                }
                let text = "the session moved to another server, or it is over; come back later";
                Some(Refusal::busy(text))
            }
            Settled::Failed(failure) => Some(failure.unsaved()),
        }
    }

    /// Lets the next request of a session ask the store, because the store has refused its record.
    pub(super) fn doubt(&mut self, key: Option<SessionKey>) {
        if let Some(session) = key.and_then(|key| self.sessions.get_mut(key)) {
            session.is_doubtful = true;
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.session_storage() == SessionStorage::Shared
    }

    /// Whether messages of sessions are kept for clients that lose their stream.
    pub(crate) const fn has_replay(&self) -> bool {
        self.config.replay.events > 0
    }
}
