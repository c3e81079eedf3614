//! The requests under way: the calls of the application, and the pending requests by wire id. It does not know the state of the link.

pub(in crate::client) mod admission;
pub(in crate::client) mod behalf;
pub(in crate::client) mod calls;
pub(in crate::client) mod deadlines;
pub(in crate::client) mod options;
pub(in crate::client) mod pending;
pub(in crate::client) mod progress;
mod queue;
pub(in crate::client) mod reply;
mod returned;
mod rounds;
mod stops;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::client::catalog::WatchRequest;
use crate::client::config::Config;
use crate::client::context::{Context, Timer};
use crate::client::failure::{Failure, FailureKind, Misuse, TimeLimit};
use crate::client::frame::Frame;
use crate::driver::{CallId, Instant};
use crate::protocol::ClientCapabilities;
use crate::protocol::watch::List;
use crate::wire::{Id, SHORT};
use calls::{Call, Calls, Phase};
use pending::{Found, Pending, Purpose};
use queue::if_long;
pub(super) use returned::Resent;

#[derive(Debug)]
pub(super) struct Requests {
    calls: Calls,
    pending: Pending,
}

/// The requests of an epoch that has ended.
pub(super) struct LostRequests {
    /// The calls that may have reached the server.
    pub(super) calls: Vec<CallId>,
    /// The lists of which a page was requested.
    pub(super) pages: Vec<List>,
}

/// Queries.
impl Requests {
    pub(super) fn new(config: &Config) -> Requests {
        Requests {
            calls: Calls::new(config.has_many_clients()),
            pending: Pending::new(),
        }
    }

    pub(super) fn call(&self, id: CallId) -> Option<&Call> {
        self.calls.call(id)
    }

    /// The wire id of a call that was sent.
    pub(super) fn wire_of(&self, id: CallId) -> Option<u64> {
        self.calls.call(id)?.wire()
    }

    /// The capabilities of the client that makes a call: this one, or the one in front of a relay.
    pub(super) fn declared_for<'a>(
        &'a self,
        config: &'a Config,
        call: CallId,
    ) -> &'a ClientCapabilities {
        let call = self.calls.call(call);
        let behalf = call.and_then(|call| call.behalf.as_deref());
        behalf.map_or(&config.capabilities, |behalf| &behalf.peer.capabilities)
    }

    /// The number of calls.
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// The number of calls that are not sent: queued, or waiting for a list.
    pub(super) fn queued(&self) -> usize {
        self.calls.queued()
    }

    /// The number of calls that are sent, or wait for answers to asks.
    pub(super) const fn in_flight(&self) -> usize {
        self.calls.in_flight()
    }

    /// Whether a server has calls that may still end: they are in flight, or continue with the answers that the server wanted.
    pub(super) fn is_busy(&self) -> bool {
        self.calls.in_flight() > 0 || self.calls.first_continuing().is_some()
    }

    /// Whether a call is queued.
    pub(super) fn has_waiting(&self) -> bool {
        self.calls.first_waiting().is_some()
    }

    pub(super) fn ids(&self) -> Vec<CallId> {
        self.calls.ids().collect()
    }

    /// The queued calls, in the order of sending.
    pub(super) fn waiting_ids(&self) -> Vec<CallId> {
        self.calls.waiting_ids()
    }

    /// The calls that were not sent, or wait for a list.
    pub(super) fn unsent(&self, cx: &Context) -> Vec<CallId> {
        let queued: Vec<u64> = cx.frames.requests().collect();
        let is_sent = |list| {
            let page = self.pending.wire_for(&Purpose::Page(list));
            page.is_some_and(|wire| !queued.contains(&wire))
        };
        let is_unsent = |id: &CallId| match self.calls.call(*id).map(|call| call.phase) {
            Some(Phase::Listing(list)) => !is_sent(list),
            Some(Phase::Schema) => !is_sent(List::Tools),
            Some(Phase::Waiting) => true,
            Some(Phase::Asking | Phase::Sent(_)) | None => false,
        };
        self.calls.ids().filter(is_unsent).collect()
    }

    /// The bytes that wait to be sent.
    pub(super) const fn unsent_bytes(&self, cx: &Context) -> usize {
        self.calls.waiting_bytes() + cx.frames.bytes()
    }

    /// Whether the server may be working on a call that was sent before `by`.
    pub(super) fn is_at_work(&self, by: Instant) -> bool {
        self.calls.is_at_work(by)
    }

    /// When a call was sent, if the server may be working on it.
    pub(super) fn sent_at(&self, id: CallId) -> Option<Instant> {
        self.calls.sent_at(id)
    }

    /// Whether a call reads the first page of a list.
    pub(super) fn asks_for_first_page(&self, id: CallId) -> bool {
        let params = self.calls.call(id).and_then(|call| call.params.as_ref());
        let cursor = params.map(|params| params.json().member("cursor"));
        !matches!(cursor, Some(Ok(Some(_))))
    }

    /// The failure of a call that has no reply.
    pub(super) fn failure(
        &self,
        now: Instant,
        id: CallId,
        kind: FailureKind,
    ) -> Option<Box<Failure>> {
        let call = self.calls.call(id)?;
        Some(Box::new(call.failure(id, kind, now)))
    }
}

/// Pending requests.
impl Requests {
    /// Queues a request of the link itself.
    pub(super) fn request(
        &mut self,
        cx: &mut Context,
        purpose: Purpose,
        frame: impl FnOnce(u64) -> Frame,
    ) {
        let wire = self.pending.issue(purpose);
        cx.frames.push(frame(wire));
    }

    /// Issues a request of the watch. The error is the wire id of a request that is closed instead, and must be withdrawn.
    pub(super) fn issue_for_watch(&mut self, request: WatchRequest) -> Result<Frame, u64> {
        let pending = &mut self.pending;
        Ok(match request {
            WatchRequest::Listen(watch) => Frame::Listen(pending.issue(Purpose::Listen), watch),
            WatchRequest::SetLevel(level) => {
                Frame::SetLevel(pending.issue(Purpose::SetLevel(level)), level)
            }
            WatchRequest::Subscribe(uri) => {
                let wire = pending.issue(Purpose::Subscribe(uri.clone()));
                Frame::Subscribe(wire, uri)
            }
            WatchRequest::Unlisten(wire) => {
                pending.close(wire);
                return Err(wire);
            }
            WatchRequest::Unsubscribe(uri) => {
                Frame::Unsubscribe(pending.issue(Purpose::Unsubscribe), uri)
            }
        })
    }

    /// Looks up the id of a reply, and closes its request.
    pub(super) fn take(&mut self, id: &Id) -> Found {
        self.pending.take(id)
    }

    /// Closes a request, so that no reply to it is expected any more.
    pub(super) fn close(&mut self, wire: u64) -> Option<Purpose> {
        self.pending.close(wire)
    }

    /// The purpose of an open request.
    pub(super) fn purpose(&self, wire: u64) -> Option<&Purpose> {
        self.pending.of_wire(wire)
    }

    /// The purpose of the open request with this id.
    pub(super) fn purpose_of(&self, id: &Id) -> Option<&Purpose> {
        self.pending.get(id)
    }

    /// The open call with this wire id.
    pub(super) fn call_of(&self, wire: u64) -> Option<CallId> {
        match self.pending.of_wire(wire) {
            Some(Purpose::Call(call)) => Some(*call),
            Some(_) | None => None,
        }
    }

    /// Whether a reply is expected.
    pub(super) fn is_awaited(&self, wire: u64) -> bool {
        self.pending.of_wire(wire).is_some()
    }

    /// Whether a request of the link itself is worth sending again.
    pub(super) fn is_wanted(&self, wire: u64) -> bool {
        let purpose = self.pending.of_wire(wire);
        purpose.is_some_and(|purpose| *purpose != Purpose::LateDiscover)
    }

    /// Whether this is a request of the handshake.
    pub(super) fn is_of_handshake(&self, wire: u64) -> bool {
        matches!(
            self.pending.of_wire(wire),
            Some(Purpose::Discover | Purpose::Initialize | Purpose::Revive)
        )
    }

    /// Whether a request with this id was ever issued.
    pub(super) fn was_issued(&self, id: &Id) -> bool {
        self.pending.was_issued(id)
    }

    /// Closes the oldest open request of the handshake, and returns it.
    pub(super) fn take_of_handshake(&mut self) -> Option<(u64, Purpose)> {
        let purposes = [
            Purpose::LateDiscover,
            Purpose::Discover,
            Purpose::Initialize,
        ];
        let find = |purpose| Some((self.pending.wire_for(&purpose)?, purpose));
        let (wire, purpose) = purposes.into_iter().find_map(find)?;
        self.pending.close(wire);
        Some((wire, purpose))
    }

    /// The wire id of the open request of the link itself with this purpose.
    pub(super) fn wire_for(&self, purpose: &Purpose) -> Option<u64> {
        self.pending.wire_for(purpose)
    }

    /// Records that the reply to the `server/discover` probe is late. Returns its wire id.
    pub(super) fn probe_is_late(&mut self) -> Option<u64> {
        self.pending
            .rename(&Purpose::Discover, Purpose::LateDiscover);
        self.pending.wire_for(&Purpose::LateDiscover)
    }

    /// Stops waiting for a late reply to the `server/discover` probe.
    pub(super) fn forget_late_probe(&mut self) {
        self.pending
            .keep(|purpose| *purpose != Purpose::LateDiscover);
    }

    /// Closes all requests of the link itself.
    pub(super) fn keep_only_calls(&mut self) {
        self.pending
            .keep(|purpose| matches!(purpose, Purpose::Call(_)));
    }

    /// Closes the requests that set up the watch of a legacy server. Returns their wire ids.
    pub(super) fn close_setup(&mut self) -> Vec<u64> {
        self.pending.close_setup()
    }

    /// Closes all requests at the end of an epoch, and clears the queue of messages. Returns those that may have reached the server.
    pub(super) fn end_epoch(&mut self, cx: &mut Context) -> LostRequests {
        let mut sent = self.pending.close_all();
        for unsent in cx.frames.requests() {
            sent.discard(unsent);
        }
        cx.frames.clear();
        let (mut calls, mut pages) = (Vec::new(), Vec::new());
        for purpose in sent.into_values() {
            match purpose {
                Purpose::Call(call) => calls.push(call),
                Purpose::Page(list) => pages.push(list),
                Purpose::Discover
                | Purpose::Initialize
                | Purpose::LateDiscover
                | Purpose::Listen
                | Purpose::Probe
                | Purpose::Revive
                | Purpose::SetLevel(_)
                | Purpose::Subscribe(_)
                | Purpose::Unsubscribe => {}
            }
        }
        LostRequests { calls, pages }
    }

    /// The calls between two rounds, whose server has ended.
    pub(super) fn mid_round(&self) -> Vec<CallId> {
        self.calls.mid_round()
    }
}

/// The course of a call.
impl Requests {
    /// Accepts a call, and arms its deadline.
    pub(super) fn accept(&mut self, cx: &mut Context, call: Call) -> CallId {
        let id = self.calls.accept(call, cx.now);
        self.pending.reserve(self.calls.queued());
        cx.stats.calls += 1;
        self.arm(cx, id);
        id
    }

    /// Checks whether there is room for a call of so many bytes. Notifications have a limit of their own, so that they do not keep calls out.
    pub(super) fn check_room(&self, cx: &Context, bytes: usize) -> Result<(), Misuse> {
        // The long calls of a relay's clients must not keep short ones out.
        let is_limited = !cx.config.has_many_clients();
        let queued = (self.calls.queued(), self.calls.waiting_bytes());
        admission::check_queue(&cx.config.limits, queued, bytes, is_limited)?;
        self.check_long(cx, if_long(bytes))
    }

    /// Checks whether a call may grow by so many bytes.
    pub(super) fn check_growth(&self, cx: &Context, id: CallId, more: usize) -> Result<(), Misuse> {
        let weight = self.calls.call(id).map_or(0, |call| call.weight);
        let long_bytes = if_long(weight + more) - if_long(weight);
        self.check_long(cx, long_bytes)
    }

    /// Checks whether there is room for so many bytes more in the long calls of a relay's clients. One client could send long calls or answers that
    /// stay until the server replies. Short calls are bounded by their number.
    fn check_long(&self, cx: &Context, bytes: usize) -> Result<(), Misuse> {
        let held = self.calls.long_bytes();
        let is_limited = bytes > 0 && held > 0 && cx.config.has_many_clients();
        if is_limited && held + bytes > cx.config.limits.queued_bytes {
            let (calls, bytes) = (self.calls.len(), held);
            return Err(Misuse::QueueFull { calls, bytes });
        }
        Ok(())
    }

    /// Whether a client that has its `own` calls may add one of `bytes`. The long calls of all clients share a limit. So a client that has one may add another
    /// only if as much is left for the others as it then has.
    pub(super) fn has_share(
        &self,
        cx: &Context,
        own: impl Iterator<Item = CallId>,
        bytes: usize,
    ) -> bool {
        if bytes <= SHORT || !cx.config.has_many_clients() {
            return true;
        }
        let own: usize = own.map(|id| self.calls.long_bytes_of(id)).sum();
        let taken = self.calls.long_bytes() + bytes;
        own == 0 || own + bytes <= cx.config.limits.queued_bytes.saturating_sub(taken)
    }

    /// The call to send next. While draining, only calls that carry the input that their server asked for.
    pub(super) fn next_to_send(&self, cx: &Context, is_draining: bool) -> Option<CallId> {
        if self.calls.in_flight() >= cx.config.limits.calls_in_flight {
            return None;
        }
        if is_draining {
            self.calls.first_continuing()
        } else {
            self.calls.first_waiting()
        }
    }

    /// The first queued call that may be sent now: one that changes no setting, or whose setting no unanswered call changes.
    #[cold]
    pub(super) fn next_to_send_if(&self, may_change: impl Fn(&str) -> bool) -> Option<CallId> {
        self.calls.first_waiting_for(may_change)
    }

    /// Records that a call is handed to the driver. Returns its wire id and the call.
    pub(super) fn send(&mut self, now: Instant, id: CallId) -> Option<(u64, &Call)> {
        let wire = self.pending.issue(Purpose::Call(id));
        self.calls.sent(id, wire, now);
        Some((wire, self.calls.call(id)?))
    }

    /// Drops the parameters of a sent call that is never sent again, if clients share the memory that calls may take.
    #[cold]
    #[inline(never)]
    pub(super) fn drop_params(&mut self, cx: &Context, id: CallId) {
        if cx.config.has_many_clients() {
            self.calls.drop_params(id);
        }
    }

    /// Removes a call that has ended. Returns its last phase.
    pub(super) fn end(&mut self, cx: &mut Context, id: CallId) -> Option<Phase> {
        let (phase, accepted) = self.calls.forget(id)?;
        cx.stats.settled += 1;
        let nanos = cx.now.as_nanos().saturating_sub(accepted.as_nanos());
        cx.stats.latency.add(nanos);
        cx.timers.disarm(Timer::Call(id));
        if let Phase::Sent(wire) = phase {
            self.pending.close(wire);
        }
        Some(phase)
    }

    /// Handles the deadline of a call. Returns the limit that it has hit.
    pub(super) fn due(&mut self, cx: &mut Context, id: CallId) -> Option<TimeLimit> {
        let limit = self.calls.overdue(id, cx.now);
        if limit.is_none() {
            self.arm(cx, id);
        }
        limit
    }

    /// Makes a call wait for a server, because there is none.
    pub(super) fn await_server(&mut self, cx: &mut Context, id: CallId) {
        let until = cx.now + cx.config.policy.retry.call_patience;
        self.calls.await_server(id, until);
        self.arm(cx, id);
    }

    /// Makes all calls wait for the next attempt after one has failed. Returns those that have waited for long enough.
    pub(super) fn await_next_server(&mut self, cx: &mut Context) -> Vec<CallId> {
        let mut given_up = Vec::new();
        for id in self.ids() {
            if self.has_waited_enough(cx.now, id) {
                given_up.push(id);
            } else {
                self.await_server(cx, id);
            }
        }
        given_up
    }

    /// Whether a call has waited for a server for long enough.
    pub(super) fn has_waited_enough(&mut self, now: Instant, id: CallId) -> bool {
        self.calls.has_waited_enough(id, now)
    }

    /// Restarts the idle limit of a call, because there was progress.
    pub(super) fn touch(&mut self, now: Instant, id: CallId) {
        self.calls.touch(id, now);
    }

    /// Puts a call back into the queue.
    pub(super) fn send_later(&mut self, cx: &mut Context, id: CallId) {
        self.calls.send_later(id, cx.now);
        self.arm(cx, id);
    }

    /// Puts a call back into the queue, so that its failure says that it was not run.
    pub(super) fn was_not_run(&mut self, now: Instant, id: CallId) {
        self.calls.send_later(id, now);
    }

    /// Queues a call again that the server turned away, if it was not run or may be repeated. Returns false if it is not repeated.
    pub(super) fn turned_away(&mut self, cx: &mut Context, id: CallId, is_unread: bool) -> bool {
        let most = cx.config.policy.resends;
        let may_repeat = self.calls.call(id).is_some_and(Call::may_repeat);
        let waits =
            (is_unread || may_repeat) && self.calls.turned_away(id, cx.now, most, !is_unread);
        if waits {
            self.arm(cx, id);
        }
        waits
    }

    /// Queues a call again whose reply is lost. Returns false if it must not be repeated.
    pub(super) fn requeue(&mut self, cx: &mut Context, id: CallId) -> bool {
        let is_queued = self.calls.requeue(id, cx.now, cx.config.policy.resends);
        if is_queued {
            cx.stats.requeued += 1;
            self.arm(cx, id);
        }
        is_queued
    }

    /// Counts a lost page of the list that a call waits for. Returns whether it may be read again.
    pub(super) fn page_lost(&mut self, cx: &Context, id: CallId) -> bool {
        self.calls.page_lost(id, cx.config.policy.resends)
    }

    /// Makes a call wait until the list of tools is read again.
    pub(super) fn await_schema(&mut self, cx: &mut Context, id: CallId) {
        self.calls.await_schema(id, cx.now);
        self.arm(cx, id);
    }

    /// Queues a call again if it waited for the list of tools only to build its header fields. Returns whether it did.
    pub(super) fn has_its_schema(&mut self, cx: &mut Context, id: CallId) -> bool {
        let phase = self.calls.call(id).map(|call| call.phase);
        let waits = phase == Some(Phase::Schema);
        if waits {
            self.send_later(cx, id);
        }
        waits
    }

    /// Stops or restarts the clocks of sent calls.
    pub(super) fn hold(&mut self, cx: &mut Context, is_held: bool) {
        for id in self.calls.hold(is_held, cx.now) {
            self.arm(cx, id);
        }
    }

    /// Stops or restarts all clocks, because credentials are missing or there again.
    pub(super) fn freeze(&mut self, cx: &mut Context, is_frozen: bool) {
        for id in self.calls.freeze(is_frozen, cx.now) {
            self.arm(cx, id);
        }
    }

    fn arm(&mut self, cx: &mut Context, id: CallId) {
        if let Some(at) = self.calls.due(id, cx.now) {
            cx.arm_at(Timer::Call(id), at);
        }
    }
}

/// The failure of a call whose reply breaks the rules.
pub(super) fn invalid(why: &str) -> FailureKind {
    FailureKind::Invalid { why: why.into() }
}
