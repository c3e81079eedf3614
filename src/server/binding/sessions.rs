//! The sessions of a binding, and the other servers with which it serves them. Over a byte stream, there is nothing to do.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use crate::driver::{Instant, LookupId, Output, SessionRecord, StoreAnswer, StreamId};
use crate::protocol::Version;
use crate::protocol::watch::Change;
use crate::server::binding::Binding;
use crate::server::binding::http::{
    Arriving, Halt, HttpBinding, Lookup, Missing, Noted, Refusal, Resumable, Room,
};
use crate::server::clock::Clock;
use crate::server::context::Context;
use crate::server::event::Event;
use crate::server::origin::{Origin, QueueId, SessionKey};
use crate::wire::Id;

/// # Sessions
impl Binding {
    pub(crate) fn find_session(&self, clock: &Clock, arrived: &Arriving) -> Result<Lookup, Halt> {
        self.http().map_or(Ok(Lookup::Missing), |http| {
            http.find_session(clock, arrived)
        })
    }

    pub(crate) fn enter_session(
        &mut self,
        cx: &mut Context,
        key: SessionKey,
        arrived: &Arriving,
    ) -> Result<(), Refusal> {
        self.http_mut()
            .map_or(Ok(()), |http| http.enter_session(cx, key, arrived))
    }

    pub(crate) fn sse_origin(&self, id: &str, arrived: &Arriving) -> Result<Origin, Halt> {
        let http = self.http().ok_or_else(Refusal::no_session)?;
        http.sse_origin(id, arrived)
    }

    /// Whether a client that sent `initialize` needs a session, and is in none yet.
    pub(crate) fn needs_session(&self, key: SessionKey) -> bool {
        self.http().is_some_and(|http| !http.has_session(key))
    }

    pub(crate) fn session_count(&self) -> usize {
        self.http().map_or(0, HttpBinding::session_count)
    }

    pub(crate) fn next_session(&mut self) -> Option<SessionKey> {
        Some(self.http_mut()?.next_session())
    }

    pub(crate) fn room_for_session(&self, clock: &Clock) -> Room {
        self.http()
            .map_or(Room::Free, |http| http.room_for_session(clock))
    }

    pub(crate) fn open_session(&mut self, cx: &mut Context, key: SessionKey, from: &Origin) {
        if let Some(http) = self.http_mut() {
            http.open_session(cx, key, from);
        }
    }

    pub(crate) fn open_sse_stream(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        arrived: &Arriving,
    ) {
        if let Some(http) = self.http_mut() {
            http.open_sse_stream(cx, stream, arrived);
        }
    }

    pub(crate) fn revive_session(
        &mut self,
        cx: &mut Context,
        record: &SessionRecord,
    ) -> Option<SessionKey> {
        Some(self.http_mut()?.revive_session(cx, record))
    }

    pub(crate) fn agreed(&mut self, key: SessionKey, version: Version) {
        if let Some(http) = self.http_mut() {
            http.agreed(key, version, false);
        }
    }

    pub(crate) fn initialized(&mut self, cx: &mut Context, key: SessionKey) {
        if let Some(http) = self.http_mut() {
            http.initialized(cx, key);
        }
    }

    pub(crate) fn use_session(&mut self, key: SessionKey) {
        if let Some(http) = self.http_mut() {
            http.use_session(key);
        }
    }

    pub(crate) fn session_idle(&mut self, key: SessionKey, clock: &mut Clock) -> Option<bool> {
        self.http_mut()?.session_idle(key, clock)
    }

    pub(crate) fn unbegun(&self, key: SessionKey) -> Vec<StreamId> {
        self.http().map_or_else(Vec::new, |http| http.unbegun(key))
    }

    pub(crate) fn end_streams(&mut self, cx: &mut Context, key: SessionKey) {
        if let Some(http) = self.http_mut() {
            http.end_streams(cx, key);
        }
    }

    pub(crate) fn close_session(&mut self, cx: &mut Context, key: SessionKey, for_good: bool) {
        if let Some(http) = self.http_mut() {
            http.close_session(cx, key, for_good);
        }
    }

    pub(crate) fn record_of(&self, key: SessionKey, version: Version) -> Option<SessionRecord> {
        self.http()?.record_of(key, version)
    }

    pub(crate) fn save(
        &mut self,
        cx: &mut Context,
        record: SessionRecord,
        is_new: bool,
        reply: Option<(QueueId, Id)>,
    ) {
        if let Some(http) = self.http_mut() {
            http.save(cx, record, is_new, reply);
        }
    }

    pub(crate) fn respond_when_saved(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        status: u16,
    ) -> Result<(), Halt> {
        self.http_mut()
            .map_or(Ok(()), |http| http.respond_when_saved(cx, stream, status))
    }

    pub(crate) fn resume(
        &mut self,
        cx: &mut Context,
        key: SessionKey,
        stream: StreamId,
        arrived: &Arriving,
    ) -> Result<(), Halt> {
        let http = self.http_mut().ok_or_else(Refusal::no_session)?;
        http.resume(cx, key, stream, arrived)
    }

    #[inline]
    pub(crate) fn flush_store_requests(&mut self, cx: &mut Context) {
        if let Some(http) = self.http_mut() {
            http.flush_store_requests(cx);
        }
    }

    pub(crate) fn halt(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        arrived: Arriving,
        halt: Halt,
    ) {
        if let Some(http) = self.http_mut() {
            http.halt(cx, stream, arrived, halt);
        }
    }

    pub(crate) fn stored(&mut self, lookup: LookupId, answer: StoreAnswer) -> bool {
        self.http_mut()
            .is_some_and(|http| http.stored(lookup, answer))
    }

    pub(crate) fn lookup_overdue(&mut self, lookup: LookupId) {
        if let Some(http) = self.http_mut() {
            http.lookup_overdue(lookup);
        }
    }

    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.http().is_some_and(HttpBinding::has_ready)
    }

    pub(crate) fn next_ready(&mut self, cx: &mut Context) -> Option<Resumable> {
        self.http_mut()?.next_ready(cx)
    }

    pub(crate) fn has_waiting(&self, has_time: bool) -> bool {
        self.http().is_some_and(|http| http.has_waiting(has_time))
    }

    pub(crate) fn drain_over(&mut self, cx: &mut Context) -> Vec<StreamId> {
        self.http_mut()
            .map_or_else(Vec::new, |http| http.drain_over(cx))
    }
}

/// # Other servers with the same store
impl Binding {
    /// The number of this server among those that serve sessions together.
    pub(crate) fn node(&self) -> Option<u32> {
        self.http()?.node()
    }

    /// Whether other servers serve sessions together with this one.
    pub(crate) fn is_shared(&self) -> bool {
        self.http().is_some_and(HttpBinding::is_shared)
    }

    /// The reason not to serve a request here that continues one at the server `node`.
    pub(crate) fn forward_to(&self, node: u32, refusal: Refusal, arrived: &Arriving) -> Halt {
        match self.http() {
            Some(http) => http.forward_to(node, Missing::Refused(Box::new(refusal)), arrived),
            None => refusal.into(),
        }
    }

    /// Whether as many exchanges are open as may be.
    pub(crate) fn is_full(&self) -> bool {
        self.http().is_some_and(HttpBinding::is_full)
    }

    /// Checks that a request of another server keeps to the limits of this one.
    pub(crate) fn check_passed(&self, arrived: &Arriving, is_full: bool) -> Result<(), Halt> {
        self.http()
            .map_or(Ok(()), |http| http.check_passed(arrived, is_full))
    }

    pub(crate) fn read_note(&mut self, cx: &mut Context, note: &str) -> Noted {
        self.http_mut()
            .map_or(Noted::Stale, |http| http.read_note(cx, note))
    }

    pub(crate) fn tell_of_change(&mut self, change: &Change) {
        if let Some(http) = self.http_mut() {
            http.tell_of_change(change);
        }
    }

    /// Whether any request of another server was ever served. If not, no output needs to be routed.
    #[inline]
    pub(crate) const fn serves_others(&self) -> bool {
        match self {
            Binding::Http(http) => http.has_ever_taken(),
            Binding::Pipe(_) => false,
        }
    }

    pub(crate) fn route(
        &mut self,
        cx: &mut Context,
        output: Output<Event>,
        buf: &mut Vec<u8>,
    ) -> Option<Output<Event>> {
        match self {
            Binding::Http(http) => http.route(cx, output, buf),
            Binding::Pipe(_) => Some(output),
        }
    }

    pub(crate) fn has_lease(&self, now: Instant) -> bool {
        match self {
            Binding::Http(http) => http.has_lease(now),
            Binding::Pipe(_) => true,
        }
    }

    pub(crate) fn renew_lease(&mut self, cx: &mut Context, valid_for: Duration) -> bool {
        let http = self.http_mut();
        http.is_some_and(|http| http.renew_lease(cx, valid_for))
    }

    pub(crate) fn lease_over(&mut self) -> (Vec<StreamId>, Vec<StreamId>) {
        self.http_mut()
            .map_or_else(Default::default, HttpBinding::lease_over)
    }

    pub(crate) fn look_for_peers(&mut self, cx: &mut Context) {
        if let Some(http) = self.http_mut() {
            http.look_for_peers(cx);
        }
    }
}
