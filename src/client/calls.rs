//! The application's requests: where each one stands, what it may cost, when it is overdue.
//! Sees no frames and no states; settles nothing by itself.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::clock::Clock;
use super::failure::{Delivery, Failure, FailureKind, TimeLimit};
use crate::config::{Limit, SHORT};
use crate::id::CallId;
use crate::protocol::{LogLevel, Method, Peer, Repeat, method};
use crate::register::Register;
use crate::sorted::Sorted;
use crate::time::Instant;
use crate::watch::List;
use crate::wire::Payload;

/// How one call differs from the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallOptions {
    /// How long it may go without its reply or any progress, if not as the policy says.
    pub idle: Option<Limit>,
    /// How long it may take in all, if not as the policy says. [`with_total`](CallOptions::with_total) says what is not counted.
    pub total: Option<Limit>,
    /// It may be sent again when its server ended: the caller knows that running it twice is
    /// harmless. Methods that only read are repeated without this.
    pub idempotent: bool,
    /// Do not ask the server to report progress.
    pub no_progress: bool,
}

impl CallOptions {
    /// As the policy says.
    #[must_use]
    pub fn new() -> CallOptions {
        CallOptions::default()
    }

    /// The most time it may go without its reply or any progress. Some waits are not counted; see [`with_total`](CallOptions::with_total).
    #[must_use]
    pub const fn with_idle(mut self, limit: Limit) -> CallOptions {
        self.idle = Some(limit);
        self
    }

    /// The most time it may take in all, from the moment it is accepted, progress or not.
    ///
    /// Some waits are not counted, neither here nor by [`with_idle`](CallOptions::with_idle), because the server is not to blame for them:
    ///
    /// - a person answers a question of the server ([`Event::Ask`](super::Event::Ask)). A legacy server does not say which call it asks
    ///   for, so the clocks of all calls that were sent to it stop;
    /// - somebody fetches credentials ([`Event::AuthRequired`](super::Event::AuthRequired));
    /// - the application takes no more from the server ([`Client::hold_back`](super::Client::hold_back)).
    ///
    /// For one call, at most [`Policy::pause_total`](crate::Policy::pause_total) (30 min by default) is left out in all, so a call ends after
    /// `limit + pause_total` at the latest. With a `pause_total` of zero everything counts.
    #[must_use]
    pub const fn with_total(mut self, limit: Limit) -> CallOptions {
        self.total = Some(limit);
        self
    }

    /// Running it twice is harmless.
    #[must_use]
    pub const fn idempotent(mut self) -> CallOptions {
        self.idempotent = true;
        self
    }

    /// No progress is wanted.
    #[must_use]
    pub const fn without_progress(mut self) -> CallOptions {
        self.no_progress = true;
        self
    }
}

/// For whom a call is made, where that is not the application itself but a client of its own (a relay has such).
#[derive(Debug)]
pub(crate) struct Behalf {
    /// That client.
    pub(crate) peer: Arc<Peer>,
    /// From which level on it wants log messages about this call, in the modern era.
    pub(crate) log_level: Option<LogLevel>,
    /// What it says to have been asked, with its answers: an object.
    pub(crate) answers: Option<Payload>,
    /// The state that it gives back: a text.
    pub(crate) state: Option<Payload>,
}

impl Behalf {
    fn bytes(&self) -> usize {
        payload_bytes(self.answers.as_ref()) + payload_bytes(self.state.as_ref())
    }
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: Cow<'static, str>,
    /// What the protocol says of the method; `None` for one that it does not know.
    pub(super) facts: Option<&'static Method>,
    /// The parameters, without `_meta`.
    pub(super) params: Option<Payload>,
    /// The caller's `_meta`.
    pub(super) meta: Option<Payload>,
    /// For whom it is, if not for the application.
    pub(super) behalf: Option<Box<Behalf>>,
    /// Running it twice is harmless, says the caller.
    is_idempotent: bool,
    /// The server is to report progress.
    pub(super) wants_progress: bool,
    pub(super) phase: Phase,
    /// Its rank among those that wait, while it does.
    rank: u8,
    /// What its server wanted before it goes on, if it did.
    pub(super) round: Option<Box<Round>>,
    pub(super) progress: Option<f64>,
    /// It waited already for the list of tools to be read anew.
    pub(super) has_new_schema: bool,
    resends: u32,
    /// How often a server turned it away unread.
    refusals: u32,
    clock: Clock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its server asked something before it goes on.
    Asking,
    /// It waits for a list.
    Listing(List),
    /// It waits for the list of tools, to be sent again as that says.
    Schema,
    /// It was handed to the driver with this wire id.
    Sent(u64),
    /// It is to be sent.
    Waiting,
}

/// What a modern server wants with the next attempt (S-MRTR-11).
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) number: u32,
    /// The state to give back, byte for byte.
    pub(super) state: Option<Payload>,
    /// The answers so far, by key.
    pub(super) answers: BTreeMap<Box<str>, Payload>,
    /// How many answers are missing.
    pub(super) missing: usize,
}

impl Call {
    pub(super) fn new(
        method: Cow<'static, str>,
        facts: Option<&'static Method>,
        (params, meta): (Option<Payload>, Option<Payload>),
        options: CallOptions,
        clock: Clock,
    ) -> Call {
        Call {
            method,
            facts,
            params,
            meta,
            behalf: None,
            is_idempotent: options.idempotent,
            wants_progress: !options.no_progress,
            phase: Phase::Waiting,
            rank: 0,
            round: None,
            progress: None,
            has_new_schema: false,
            resends: 0,
            refusals: 0,
            clock,
        }
    }

    /// One that wants a list.
    pub(super) fn listing(list: List, options: CallOptions, clock: Clock) -> Call {
        let method = list.method();
        let call = Call::new(
            method.into(),
            method::find(method),
            (None, None),
            options,
            clock,
        );
        Call {
            phase: Phase::Listing(list),
            ..call
        }
    }

    /// The wire id that it was last sent with, while it is.
    pub(super) const fn wire(&self) -> Option<u64> {
        match self.phase {
            Phase::Sent(wire) => Some(wire),
            Phase::Asking | Phase::Listing(_) | Phase::Schema | Phase::Waiting => None,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let behalf = self.behalf.as_ref().map_or(0, |behalf| behalf.bytes());
        let params = payload_bytes(self.params.as_ref()) + payload_bytes(self.meta.as_ref());
        self.method.len() + params + behalf
    }

    pub(super) fn may_repeat(&self) -> bool {
        let by_nature = self.facts.is_some_and(|facts| facts.repeat == Repeat::Safe);
        by_nature || self.is_idempotent
    }

    /// Its rank among those that wait. Whatever was sent before goes first.
    fn rank_among(&self, is_short_first: bool, bytes: usize) -> u8 {
        if is_short_first && self.delivery() == Delivery::NotSent {
            rank_of(bytes)
        } else {
            0
        }
    }

    /// Whether the peer may have acted on it.
    pub(super) fn delivery(&self) -> Delivery {
        match self.phase {
            Phase::Schema | Phase::Waiting if self.resends == 0 && !self.goes_on() => {
                Delivery::NotSent
            }
            Phase::Asking | Phase::Schema | Phase::Sent(_) | Phase::Waiting => Delivery::Unknown,
            Phase::Listing(_) => Delivery::Harmless,
        }
    }

    pub(super) fn failure(&self, call: CallId, kind: FailureKind, now: Instant) -> Failure {
        Failure {
            call,
            method: self.method.clone(),
            target: self.target(),
            kind,
            delivery: self.delivery(),
            after: self.clock.age(now),
            ended: None,
            next_attempt: None,
        }
    }

    /// The tool or prompt that it is about. Other parameters may be secret.
    fn target(&self) -> Option<Box<str>> {
        let facts = self.facts.filter(|facts| facts.named_by == Some("name"))?;
        let params = self.params.as_ref()?.json();
        params.member(facts.named_by?).ok()??.parse().ok()
    }

    /// Whether what it sends next is another round, not the first.
    const fn goes_on(&self) -> bool {
        self.round.is_some()
    }

    /// Whether it asks to run as a task.
    pub(super) fn asks_to_be_a_task(&self) -> bool {
        let params = self.params.as_ref().map(Payload::json);
        matches!(
            params.map(|params| params.member("task")),
            Some(Ok(Some(_)))
        )
    }
}

/// Short calls have the first rank; of the others, those that carry twice as much have a later one.
const fn rank_of(bytes: usize) -> u8 {
    if bytes <= SHORT {
        0
    } else {
        bytes.ilog2() as u8
    }
}

fn payload_bytes(payload: Option<&Payload>) -> usize {
    payload.map_or(0, |payload| payload.as_str().len())
}

#[derive(Debug)]
pub(super) struct Calls {
    next: u64,
    table: Register<CallId, Call>,
    /// In the order in which they are sent: by rank, then by age.
    waiting: Sorted<(u8, CallId), ()>,
    /// Short calls are sent before long ones.
    short_first: bool,
    /// Those of them that were sent before, and are to be sent again with the answers that their server wanted.
    going_on: BTreeSet<CallId>,
    waiting_bytes: usize,
    in_flight: usize,
    /// A legacy server waits for an answer, so the clocks of what it was sent stand still.
    held: bool,
    /// Nothing can be sent for want of credentials, so all clocks stand still.
    frozen: bool,
}

impl Calls {
    pub(super) const fn new(short_first: bool) -> Calls {
        Calls {
            next: 1,
            table: Register::new(),
            waiting: Sorted::new(),
            short_first,
            going_on: BTreeSet::new(),
            waiting_bytes: 0,
            in_flight: 0,
            held: false,
            frozen: false,
        }
    }

    /// Not sent: waiting for their turn, or for a list.
    pub(super) fn queued(&self) -> usize {
        self.table.len() - self.in_flight
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) const fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Sent, or in a round of questions.
    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn call(&self, id: CallId) -> Option<&Call> {
        self.table.get(id)
    }

    pub(super) fn call_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.table.get_mut(id)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = CallId> + '_ {
        self.table.keys()
    }

    /// Those that are to be sent, in this order.
    pub(super) fn waiting_ids(&self) -> Vec<CallId> {
        self.waiting.keys().map(|(_, id)| *id).collect()
    }

    /// The newest of those that carry most and were never sent, if it carries far more than this.
    pub(super) fn far_longer(&self, bytes: usize) -> Option<CallId> {
        let (rank, id) = self.waiting.last()?;
        (*rank > rank_of(bytes)).then_some(*id)
    }

    /// Those that were sent once and whose next round was not.
    pub(super) fn mid_round(&self) -> Vec<CallId> {
        let is_mid_round = |call: &Call| match call.phase {
            Phase::Asking => true,
            Phase::Waiting => call.goes_on(),
            Phase::Listing(_) | Phase::Schema | Phase::Sent(_) => false,
        };
        let found = self.table.iter().filter(|(_, call)| is_mid_round(call));
        found.map(|(id, _)| id).collect()
    }

    /// Whether the server may be at work on something that it was sent before this time.
    pub(super) fn is_at_work(&self, by: Instant) -> bool {
        self.table.values().any(|call| match call.phase {
            Phase::Listing(_) | Phase::Sent(_) => call.clock.started() < by,
            Phase::Asking | Phase::Schema | Phase::Waiting => false,
        })
    }

    /// When it was sent, if its server has it.
    pub(super) fn sent_at(&self, id: CallId) -> Option<Instant> {
        let call = self.table.get(id)?;
        match call.phase {
            Phase::Listing(_) | Phase::Sent(_) => Some(call.clock.started()),
            Phase::Asking | Phase::Schema | Phase::Waiting => None,
        }
    }

    pub(super) fn accept(&mut self, mut call: Call, now: Instant) -> CallId {
        let id = CallId::from_number(self.next);
        self.next += 1;
        if self.stands_still(call.phase) {
            call.clock.pause(now);
        }
        if call.phase == Phase::Waiting {
            let bytes = call.bytes();
            call.rank = call.rank_among(self.short_first, bytes);
            self.waiting.insert((call.rank, id), ());
            self.waiting_bytes += bytes;
        }
        self.table.add(id, call);
        id
    }

    /// The one that is to be sent next.
    pub(super) fn first_waiting(&self) -> Option<CallId> {
        self.waiting.first().map(|((_, id), ())| *id)
    }

    /// The oldest that is to be sent again, with the answers that its server wanted.
    pub(super) fn first_going_on(&self) -> Option<CallId> {
        self.going_on.first().copied()
    }

    /// It is handed to the driver.
    pub(super) fn sent(&mut self, id: CallId, wire: u64, now: Instant) {
        self.enter(id, Phase::Sent(wire));
        let stands_still = self.stands_still(Phase::Sent(wire));
        if let Some(call) = self.table.get_mut(id) {
            // Each sending has a progress token of its own.
            call.progress = None;
            call.clock.start(now);
            if stands_still {
                call.clock.pause(now);
            }
        }
    }

    /// The server did not read it: it is to be sent again, as if it had not been sent. Whether that may be, after so many times.
    pub(super) fn turned_away(&mut self, id: CallId, now: Instant, most: u32) -> bool {
        let Some(call) = self.table.get_mut(id) else {
            return false;
        };
        call.refusals += 1;
        let may_be = call.refusals <= most;
        self.send_later(id, now);
        may_be
    }

    /// It goes back to those that wait, for whatever reason that is not its own.
    pub(super) fn send_later(&mut self, id: CallId, now: Instant) {
        self.enter(id, Phase::Waiting);
        self.run_again(id, now);
    }

    /// It is to be sent again when the list of tools has been read anew.
    pub(super) fn await_schema(&mut self, id: CallId) {
        self.enter(id, Phase::Schema);
        if let Some(call) = self.table.get_mut(id) {
            call.has_new_schema = true;
        }
    }

    /// Its server ended while it read the list that this one waits for. Whether the next server may be asked.
    pub(super) fn page_lost(&mut self, id: CallId, resends: u32) -> bool {
        let Some(call) = self.table.get_mut(id) else {
            return false;
        };
        call.resends += 1;
        call.resends <= resends
    }

    /// Its server ended. Whether it goes back to the queue to be sent again.
    pub(super) fn requeue(&mut self, id: CallId, now: Instant, resends: u32) -> bool {
        let Some(call) = self.table.get_mut(id) else {
            return false;
        };
        if !call.may_repeat() || call.resends >= resends {
            return false;
        }
        call.resends += 1;
        // The new server knows nothing of what the old one asked.
        call.round = None;
        self.send_later(id, now);
        true
    }

    /// Its server asks something first: the clock stands still until all answers are there.
    pub(super) fn asked(&mut self, id: CallId, now: Instant) {
        self.enter(id, Phase::Asking);
        if let Some(call) = self.table.get_mut(id) {
            call.clock.pause(now);
        }
    }

    /// All answers are there: it is to be sent again.
    pub(super) fn answered(&mut self, id: CallId, now: Instant) {
        self.send_later(id, now);
    }

    /// It is settled. In which phase that was.
    pub(super) fn forget(&mut self, id: CallId) -> Option<Phase> {
        let phase = self.table.get(id)?.phase;
        self.leave(id);
        self.table.forget(id);
        Some(phase)
    }

    pub(super) fn touch(&mut self, id: CallId, now: Instant) {
        if let Some(call) = self.table.get_mut(id) {
            call.clock.touch(now);
        }
    }

    /// There is no server: this one waits for one until then.
    pub(super) fn await_server(&mut self, id: CallId, until: Instant) {
        if let Some(call) = self.table.get_mut(id) {
            call.clock.await_server(until);
        }
    }

    /// Whether it has waited for a server for long enough.
    pub(super) fn is_tired(&mut self, id: CallId, now: Instant) -> bool {
        let call = self.table.get_mut(id);
        call.is_some_and(|call| call.clock.is_tired(now))
    }

    pub(super) fn due(&self, id: CallId) -> Option<Instant> {
        self.table.get(id)?.clock.due()
    }

    /// Which limit it has hit.
    pub(super) fn overdue(&mut self, id: CallId, now: Instant) -> Option<TimeLimit> {
        self.table.get_mut(id)?.clock.overdue(now)
    }

    /// A legacy server began or ceased to wait for answers. Whose deadlines moved.
    pub(super) fn hold(&mut self, held: bool, now: Instant) -> Vec<CallId> {
        if held == self.held {
            return Vec::new();
        }
        self.held = held;
        self.set_clocks(now)
    }

    /// Credentials are waited for, or not any more. Whose deadlines moved.
    pub(super) fn freeze(&mut self, frozen: bool, now: Instant) -> Vec<CallId> {
        if frozen == self.frozen {
            return Vec::new();
        }
        self.frozen = frozen;
        self.set_clocks(now)
    }

    fn set_clocks(&mut self, now: Instant) -> Vec<CallId> {
        let all: Vec<CallId> = self.table.keys().collect();
        for id in &all {
            let phase = self.table.get(*id).map(|call| call.phase);
            if phase.is_some_and(|phase| phase != Phase::Asking) {
                self.run_again(*id, now);
            }
        }
        all
    }

    /// Whether the clock of a call in this phase is not to run.
    const fn stands_still(&self, phase: Phase) -> bool {
        match phase {
            Phase::Listing(_) | Phase::Sent(_) => self.held || self.frozen,
            Phase::Schema | Phase::Waiting => self.frozen,
            Phase::Asking => true,
        }
    }

    /// Its clock runs, unless it is to stand still.
    fn run_again(&mut self, id: CallId, now: Instant) {
        let phase = self.table.get(id).map(|call| call.phase);
        let stands_still = phase.is_some_and(|phase| self.stands_still(phase));
        if let Some(call) = self.table.get_mut(id) {
            if stands_still {
                call.clock.pause(now);
            } else {
                call.clock.resume(now);
            }
        }
    }

    fn enter(&mut self, id: CallId, phase: Phase) {
        self.leave(id);
        let Some(call) = self.table.get_mut(id) else {
            return;
        };
        call.phase = phase;
        match phase {
            Phase::Waiting => {
                let bytes = call.bytes();
                call.rank = call.rank_among(self.short_first, bytes);
                self.waiting.insert((call.rank, id), ());
                self.waiting_bytes += bytes;
                if call.goes_on() {
                    self.going_on.insert(id);
                }
            }
            Phase::Asking | Phase::Sent(_) => self.in_flight += 1,
            Phase::Listing(_) | Phase::Schema => {}
        }
    }

    fn leave(&mut self, id: CallId) {
        let Some(call) = self.table.get(id) else {
            return;
        };
        match call.phase {
            Phase::Waiting => {
                self.waiting.remove(&(call.rank, id));
                self.waiting_bytes -= call.bytes();
                if self.going_on.remove(&id) && self.going_on.is_empty() {
                    self.going_on = BTreeSet::new();
                }
            }
            Phase::Asking | Phase::Sent(_) => self.in_flight -= 1,
            Phase::Listing(_) | Phase::Schema => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Policy;

    fn payload(text: &str) -> Option<Payload> {
        Some(text.parse().unwrap())
    }

    /// What waits is bounded by what it weighs, so nothing that is held for a call may weigh nothing.
    #[test]
    fn a_call_weighs_all_that_it_carries() {
        let options = CallOptions::new();
        let clock = Clock::new(Instant::ZERO, &options, &Policy::interactive());
        let given = (payload(r#"{"name":"add"}"#), payload(r#"{"a":1}"#));
        let mut call = Call::new("tools/call".into(), None, given, options, clock);
        assert_eq!(call.bytes(), 10 + 14 + 7);
        call.behalf = Some(Box::new(Behalf {
            peer: Arc::new(Peer {
                version: crate::protocol::Version::LATEST_MODERN,
                client: None,
                capabilities: crate::protocol::ClientCapabilities::default(),
                introduction: None,
            }),
            log_level: None,
            answers: payload(r#"{"who":{"action":"accept"}}"#),
            state: payload(r#""half""#),
        }));
        assert_eq!(call.bytes(), 10 + 14 + 7 + 27 + 6);
    }
}
