//! Makes room for newcomers when a limit that all clients share is reached, by ending what takes most or is used least.

use super::super::Server;
use super::super::event::Cancelled;
use super::super::frame::Answer;
use super::super::origin::{Lane, Origin, SessionKey, Whose};
use super::ladder::Refusal;
use super::shares::Standing;
use crate::driver::{Epoch, Output, RequestId, StreamId};
use crate::protocol::code;
use crate::wire::ErrorObject;

/// # Exchanges and unread responses
impl Server {
    /// Ends the oldest exchange whose request is incomplete, or else the oldest finished exchange whose response is not read. Returns
    /// whether there was one.
    pub(super) fn free_exchange(&mut self) -> bool {
        let Some(http) = &self.http else {
            return false;
        };
        if let Some(stream) = http.exchanges.oldest_arriving() {
            let refusal =
                Refusal::busy("the request had not arrived whole, and others needed its place");
            if let Some(asked) = self.take_asked(stream) {
                let source = self.source_of(&asked);
                self.tell_refusal(source, &refusal);
            }
            let Refusal { status, fields, .. } = refusal;
            // An empty response leaves nothing to be read, so the exchange frees its place at once.
            self.respond_empty(stream, status, fields);
        } else if let Some(stream) = http.exchanges.oldest_unread() {
            self.cut(stream);
        } else {
            return false;
        }
        self.stats.displaced += 1;
        true
    }

    /// Records how many bytes wait for the client of an exchange.
    pub(super) fn weigh(&mut self, stream: StreamId) {
        let Some(http) = &mut self.http else {
            return;
        };
        let bytes = match http.exchanges.get(stream) {
            Some(open) => self.lanes.under_way(open.lane) + self.lanes.bytes_on(open.lane),
            None => http.exchanges.left(stream),
        };
        http.shares.unread.set(stream, bytes);
    }

    /// Counts a reply that was queued on this lane, and closes other connections if too many bytes wait.
    pub(in crate::server) fn weigh_answer(&mut self, lane: Lane) {
        let http = self.http.as_ref();
        if let Some(stream) = http.and_then(|http| http.exchanges.carrier(lane)) {
            self.weigh(stream);
            self.cut_unread(stream);
        }
    }

    /// Closes the connections with most unread bytes while all clients together exceed the limit. The exchange `newest` stays open, because
    /// its client could not read yet.
    pub(super) fn cut_unread(&mut self, newest: StreamId) {
        let most = self.config.limits.all_queued_bytes;
        loop {
            let unread = self.http.as_ref().map(|http| &http.shares.unread);
            let heaviest = unread.filter(|unread| unread.total() > most);
            let Some(stream) = heaviest.and_then(|unread| unread.heaviest_but(newest)) else {
                return;
            };
            self.stats.displaced += 1;
            self.cut(stream);
        }
    }

    /// Closes the connection of a client that does not read.
    pub(super) fn cut(&mut self, stream: StreamId) {
        let epoch = Epoch::FIRST;
        self.outbox.push(Output::Abort { epoch, stream });
        self.client_gone(stream);
    }
}

/// # Sessions
impl Server {
    /// Ends the least used session, of those with nothing in flight. Returns whether there was one.
    pub(super) fn free_session(&mut self) -> bool {
        let http = self.http.as_ref();
        let Some(key) = http.and_then(|http| http.shares.idle.first(self.now)) else {
            return false;
        };
        self.stats.displaced += 1;
        let is_shared = self.is_shared();
        self.end_session(key, !is_shared);
        true
    }

    /// Updates the rank of a session after something happened in it.
    pub(super) fn rank_session(&mut self, key: SessionKey) {
        let Some(http) = &mut self.http else {
            return;
        };
        let place = http.sessions.get(key).and_then(|session| {
            let is_busy = session.is_sse
                || session.has_streams()
                || http.exchanges.carrier(key.lane()).is_some();
            let scope = self.scopes.get(&key);
            let standing = match scope {
                Some(scope) if scope.is_initialized && session.is_used => Standing::Used,
                Some(scope) if scope.is_initialized => Standing::Unused,
                Some(_) | None => Standing::Unfinished,
            };
            (!is_busy).then_some((standing, self.now))
        });
        http.shares.idle.set(key, place);
    }
}

/// # Requests
impl Server {
    /// Checks whether the sender may have one more request in flight. Each session has a share of its own. If all places are taken,
    /// requests whose client no longer waits are cancelled. Otherwise the session with most requests loses one, if it has more than the
    /// sender would have.
    pub(in crate::server) fn check_share(&mut self, from: &Origin) -> Result<(), ErrorObject> {
        let limits = self.config.limits;
        let mine = match from.whose {
            Whose::Session(session) => self.requests.in_session(session),
            Whose::Stream(_) => 0,
        };
        if mine >= limits.requests_each {
            let text = alloc::format!(
                "{mine} requests of this session are not answered yet; ask again when some are"
            );
            return Err(ErrorObject::new(code::INTERNAL_ERROR, text));
        }
        if self.open_requests() < limits.requests
            || self.free_abandoned()
            || self.free_of_heaviest(mine)
        {
            return Ok(());
        }
        let most = limits.requests;
        let text = alloc::format!("{most} requests are not answered yet; ask again when some are");
        Err(ErrorObject::new(code::INTERNAL_ERROR, text))
    }

    /// Cancels the requests of the oldest stream for which no client waits. Returns whether there were any.
    fn free_abandoned(&mut self) -> bool {
        let mut is_any = false;
        while !is_any {
            let Some((stream, session)) = self.next_abandoned() else {
                return false;
            };
            // The number of requests in one session bounds this loop.
            for request in self.requests.of(Whose::Session(session)) {
                let entry = self.requests.get(request);
                if entry.is_some_and(|entry| entry.arrival.lane == Lane::Stream(stream)) {
                    self.displace(request);
                    is_any = true;
                }
            }
        }
        true
    }

    /// Removes and returns the oldest stream for which no client waits, with its session.
    fn next_abandoned(&mut self) -> Option<(StreamId, SessionKey)> {
        let http = self.http.as_mut()?;
        let stream = http.shares.abandoned.pop_first()?;
        let (session, _) = http.sessions.of(stream)?;
        Some((stream, session))
    }

    /// Cancels the oldest request of the session that has most, if it has more than the sender would have. Returns whether it did.
    fn free_of_heaviest(&mut self, mine: usize) -> bool {
        let heaviest = self.requests.heaviest_session();
        let Some((_, session)) = heaviest.filter(|(count, _)| *count > mine + 1) else {
            return false;
        };
        let requests = self.requests.of(Whose::Session(session));
        let oldest = requests.into_iter().min();
        oldest.map(|request| self.displace(request)).is_some()
    }

    /// Cancels a request to make room. Its client gets an error, now or when it comes back.
    fn displace(&mut self, request: RequestId) {
        let Some(entry) = self.requests.get(request) else {
            return;
        };
        let (lane, id) = (entry.arrival.lane, entry.arrival.wire.id.clone());
        self.stats.displaced += 1;
        self.cancel(request, Cancelled::PeerGone);
        let text = "the request was cancelled: too many are in flight, and others needed its place; it may have run";
        let error = ErrorObject::new(code::INTERNAL_ERROR, text);
        self.answer(lane, id, Answer::Error(error));
    }
}
