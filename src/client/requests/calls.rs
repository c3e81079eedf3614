//! The table of calls: the phase, size and deadlines of each request of the application. It knows neither frames nor the state of the link, and ends
//! no call by itself.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::client::failure::{Delivery, Failure, FailureKind, TimeLimit};
use crate::client::requests::behalf::Behalf;
use crate::client::requests::deadlines::Clock;
use crate::client::requests::options::CallOptions;
use crate::client::requests::queue::{Queue, if_long};
use crate::client::requests::stops::PhaseStops;
use crate::driver::{CallId, Instant};
use crate::json::{Payload, object};
use crate::protocol::watch::{List, Setting};
use crate::protocol::{Era, Method, Repeat, method};
use crate::util::ascending_map::AscendingMap;

#[derive(Debug)]
pub(in crate::client) struct Call {
    pub(in crate::client) method: Cow<'static, str>,
    /// The protocol's definition of the method; `None` for an unknown method.
    pub(in crate::client) facts: Option<&'static Method>,
    /// The parameters, without `_meta`.
    pub(in crate::client) params: Option<Payload>,
    /// The caller's `_meta`.
    pub(in crate::client) meta: Option<Payload>,
    /// A relay's client that makes the call; `None` for the application.
    pub(in crate::client) behalf: Option<Box<Behalf>>,
    /// Whether the caller says that running it twice is harmless.
    is_idempotent: bool,
    /// Whether the server is asked to report progress.
    pub(in crate::client) wants_progress: bool,
    pub(in crate::client) phase: Phase,
    /// Its rank in the queue, while it is queued.
    pub(super) rank: u8,
    /// Its size, as the queue has counted it. The parts of the call change while it is counted, so the queue must subtract this number.
    pub(super) weight: usize,
    /// The input that the server wants before it continues, if any.
    pub(in crate::client) round: Option<Box<Round>>,
    pub(in crate::client) progress: Option<f64>,
    /// Whether it has already waited once for a new list of tools.
    pub(in crate::client) has_new_schema: bool,
    resends: u32,
    /// How often a server turned it away, or lost the list that it waits for.
    refusals: u32,
    clock: Clock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Phase {
    /// The server wants input before it continues.
    Asking,
    /// The call waits for a list.
    Listing(List),
    /// The call waits for the list of tools, which says which header fields it needs. Then it is sent again.
    Schema,
    /// The call was handed to the driver with this wire id.
    Sent(u64),
    /// The call is queued.
    Waiting,
}

/// The input for the next round of a call to a modern server (S-MRTR-11).
#[derive(Debug, Default)]
pub(in crate::client) struct Round {
    pub(in crate::client) number: u32,
    /// The state to return, byte for byte.
    pub(in crate::client) state: Option<Payload>,
    /// The answers so far, by key.
    pub(in crate::client) answers: BTreeMap<Box<str>, Payload>,
    /// The number of missing answers.
    pub(in crate::client) missing: usize,
}

impl Round {
    #[cold]
    #[inline(never)]
    fn bytes(&self) -> usize {
        let answers = self.answers.iter();
        let answers = answers.map(|(key, answer)| key.len() + answer.as_str().len());
        payload_bytes(self.state.as_ref()) + answers.sum::<usize>()
    }

    pub(in crate::client) fn new(number: u32, state: Option<Payload>, missing: usize) -> Round {
        Round {
            number,
            state,
            answers: BTreeMap::new(),
            missing,
        }
    }
}

impl Call {
    pub(in crate::client) fn new(
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
            weight: 0,
            round: None,
            progress: None,
            has_new_schema: false,
            resends: 0,
            refusals: 0,
            clock,
        }
    }

    /// Creates a call that reads a list.
    pub(in crate::client) fn listing(list: List, options: CallOptions, clock: Clock) -> Call {
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

    /// The era of the relay's client that makes the call, if one does.
    pub(in crate::client) fn era(&self) -> Option<Era> {
        self.behalf
            .as_deref()
            .map(|behalf| behalf.peer.version.era())
    }

    /// The list that the call reads.
    pub(in crate::client) const fn list(&self) -> Option<List> {
        match self.phase {
            Phase::Listing(list) => Some(list),
            Phase::Asking | Phase::Schema | Phase::Sent(_) | Phase::Waiting => None,
        }
    }

    /// The wire id of the call, while it is sent.
    pub(in crate::client) const fn wire(&self) -> Option<u64> {
        match self.phase {
            Phase::Sent(wire) => Some(wire),
            Phase::Asking | Phase::Listing(_) | Phase::Schema | Phase::Waiting => None,
        }
    }

    /// The setting that the call changes, if any: see [`Setting::key`]. Only a relay's client makes such calls.
    pub(in crate::client) fn ordered_key(&self) -> Option<Box<str>> {
        let setting = Setting::read(&self.method, self.params.as_ref())?;
        Some(setting.key().into())
    }

    #[inline]
    pub(in crate::client) fn bytes(&self) -> usize {
        let behalf = self.behalf.as_ref().map_or(0, |behalf| behalf.bytes());
        let params = payload_bytes(self.params.as_ref()) + payload_bytes(self.meta.as_ref());
        let round = self.round.as_ref().map_or(0, |round| round.bytes());
        self.method.len() + params + behalf + round
    }

    /// Records the size of a new call, and returns it.
    #[inline]
    pub(in crate::client) fn weigh(&mut self) -> usize {
        self.weight = self.bytes();
        self.weight
    }

    /// Drops what only the server needs. The rest says what the call was for, and whether it runs as a task.
    fn drop_params(&mut self) {
        let is_dropped = |key: &str| !matches!(key, "name" | "task");
        let params = self.params.take();
        self.params = params.and_then(|params| object::without(params.json(), is_dropped).ok());
        self.meta = None;
        if let Some(behalf) = &mut self.behalf {
            behalf.drop_answers();
        }
    }

    pub(in crate::client) fn may_repeat(&self) -> bool {
        let by_nature = self.facts.is_some_and(|facts| facts.repeat == Repeat::Safe);
        by_nature || self.is_idempotent
    }

    /// Whether the server may have acted on the call.
    pub(in crate::client) fn delivery(&self) -> Delivery {
        match self.phase {
            Phase::Schema | Phase::Waiting if self.resends == 0 && !self.is_continuing() => {
                Delivery::NotSent
            }
            Phase::Listing(_) => Delivery::Harmless,
            _ if self.facts.is_some_and(|facts| facts.only_reads) => Delivery::Harmless,
            Phase::Asking | Phase::Schema | Phase::Sent(_) | Phase::Waiting => Delivery::Unknown,
        }
    }

    pub(in crate::client) fn failure(
        &self,
        call: CallId,
        kind: FailureKind,
        now: Instant,
    ) -> Failure {
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

    /// The tool or prompt that the call names. Other parameters may be secret.
    fn target(&self) -> Option<Box<str>> {
        let facts = self.facts.filter(|facts| facts.named_by == Some("name"))?;
        let params = self.params.as_ref()?.json();
        params.member(facts.named_by?).ok()??.parse().ok()
    }

    /// Whether the next message of the call is a further round.
    pub(super) const fn is_continuing(&self) -> bool {
        self.round.is_some()
    }

    /// Whether the call asks to run as a task.
    pub(in crate::client) fn asks_to_be_a_task(&self) -> bool {
        let params = self.params.as_ref().map(Payload::json);
        matches!(
            params.map(|params| params.member("task")),
            Some(Ok(Some(_)))
        )
    }
}

pub(super) fn payload_bytes(payload: Option<&Payload>) -> usize {
    payload.map_or(0, |payload| payload.as_str().len())
}

#[derive(Debug)]
pub(in crate::client) struct Calls {
    next: u64,
    table: AscendingMap<CallId, Call>,
    queue: Queue,
    stops: PhaseStops,
    /// The calls whose timers were armed while their clocks were stopped. They are armed again when the clocks restart.
    stopped: BTreeSet<CallId>,
}

impl Calls {
    pub(in crate::client) fn new(short_first: bool) -> Calls {
        Calls {
            next: 1,
            table: AscendingMap::new(),
            queue: Queue::new(short_first),
            stops: PhaseStops::default(),
            stopped: BTreeSet::new(),
        }
    }

    /// The number of calls that are not sent: queued, or waiting for a list.
    pub(in crate::client) fn queued(&self) -> usize {
        self.table.len() - self.queue.in_flight()
    }

    pub(in crate::client) fn len(&self) -> usize {
        self.table.len()
    }

    pub(in crate::client) const fn waiting_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// The bytes of all long calls, whether they are sent or not.
    pub(in crate::client) const fn long_bytes(&self) -> usize {
        self.queue.long_bytes()
    }

    /// The bytes of a call if it is long, else 0.
    pub(in crate::client) fn long_bytes_of(&self, id: CallId) -> usize {
        self.call(id).map_or(0, |call| if_long(call.weight))
    }

    /// The number of calls that are sent, or wait for answers to asks.
    pub(in crate::client) const fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    pub(in crate::client) fn call(&self, id: CallId) -> Option<&Call> {
        self.table.get(id)
    }

    pub(in crate::client) fn call_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.table.get_mut(id)
    }

    pub(in crate::client) fn ids(&self) -> impl Iterator<Item = CallId> + '_ {
        self.table.keys()
    }

    /// The queued calls, in the order of sending.
    pub(in crate::client) fn waiting_ids(&self) -> Vec<CallId> {
        self.queue.ids().collect()
    }

    /// The calls that were sent, but not yet for the round that they are in.
    pub(in crate::client) fn mid_round(&self) -> Vec<CallId> {
        let is_mid_round = |call: &Call| match call.phase {
            Phase::Asking => true,
            Phase::Schema | Phase::Waiting => call.is_continuing(),
            Phase::Listing(_) | Phase::Sent(_) => false,
        };
        let found = self.table.iter().filter(|(_, call)| is_mid_round(call));
        found.map(|(id, _)| id).collect()
    }

    /// Whether the server may be working on a call that was sent before `by`.
    pub(in crate::client) fn is_at_work(&self, by: Instant) -> bool {
        self.table.values().any(|call| match call.phase {
            Phase::Listing(_) | Phase::Sent(_) => call.clock.started() < by,
            Phase::Asking | Phase::Schema | Phase::Waiting => false,
        })
    }

    /// When the call was sent, if the server may be working on it.
    pub(in crate::client) fn sent_at(&self, id: CallId) -> Option<Instant> {
        let call = self.table.get(id)?;
        match call.phase {
            Phase::Listing(_) | Phase::Sent(_) => Some(call.clock.started()),
            Phase::Asking | Phase::Schema | Phase::Waiting => None,
        }
    }

    pub(in crate::client) fn accept(&mut self, mut call: Call, now: Instant) -> CallId {
        let id = CallId::from_number(self.next);
        self.next += 1;
        call.clock.change_kind(self.stops.in_all(call.phase, now));
        self.queue.accept(&call);
        self.queue.enter(id, &mut call);
        self.table.add(id, call);
        id
    }

    /// The first queued call.
    pub(in crate::client) fn first_waiting(&self) -> Option<CallId> {
        self.queue.first()
    }

    /// The first queued call that changes no setting, or whose setting `may_change` allows to change now.
    pub(in crate::client) fn first_waiting_for(
        &self,
        may_change: impl Fn(&str) -> bool,
    ) -> Option<CallId> {
        self.queue.ids().find(|id| {
            let key = self.call(*id).and_then(Call::ordered_key);
            key.is_none_or(|key| may_change(&key))
        })
    }

    /// The oldest queued call that carries the answers that its server wanted.
    pub(in crate::client) fn first_continuing(&self) -> Option<CallId> {
        self.queue.first_continuing()
    }

    /// Records that the call is handed to the driver.
    pub(in crate::client) fn sent(&mut self, id: CallId, wire: u64, now: Instant) {
        self.enter(id, Phase::Sent(wire), now);
        if let Some(call) = self.table.get_mut(id) {
            // Each time it is sent, the call has a new progress token.
            call.progress = None;
            call.clock.start(now);
        }
    }

    /// Drops the parameters of a sent call that is never sent again.
    pub(in crate::client) fn drop_params(&mut self, id: CallId) {
        if let Some(call) = self.table.get_mut(id).filter(|call| !call.may_repeat()) {
            call.drop_params();
            self.queue.weigh(call);
        }
    }

    /// Records an answer for the next round of a call. Returns false if there is no such call.
    pub(in crate::client) fn add_answer(
        &mut self,
        id: CallId,
        key: Box<str>,
        answer: Payload,
    ) -> bool {
        let Some(call) = self.table.get_mut(id) else {
            return false;
        };
        if let Some(round) = &mut call.round {
            round.answers.insert(key, answer);
            round.missing -= 1;
        }
        self.queue.weigh(call);
        true
    }

    /// Queues a call again that the server turned away. Returns false if that happened more than `most` times. `may_have_run`: the server may have
    /// acted on it before.
    pub(in crate::client) fn turned_away(
        &mut self,
        id: CallId,
        now: Instant,
        most: u32,
        may_have_run: bool,
    ) -> bool {
        let Some(call) = self.table.get_mut(id) else {
            return false;
        };
        call.refusals += 1;
        call.resends += u32::from(may_have_run);
        let may_be = call.refusals <= most;
        self.send_later(id, now);
        may_be
    }

    /// Puts the call back into the queue.
    pub(in crate::client) fn send_later(&mut self, id: CallId, now: Instant) {
        self.enter(id, Phase::Waiting, now);
    }

    /// Makes the call wait until the list of tools is read again.
    pub(in crate::client) fn await_schema(&mut self, id: CallId, now: Instant) {
        self.enter(id, Phase::Schema, now);
        if let Some(call) = self.table.get_mut(id) {
            call.has_new_schema = true;
        }
    }

    /// Counts a server that ended while it sent the list for this call. Returns whether the next server may be asked.
    pub(in crate::client) fn page_lost(&mut self, id: CallId, most: u32) -> bool {
        let Some(call) = self.table.get_mut(id) else {
            return false;
        };
        call.refusals += 1;
        call.refusals <= most
    }

    /// Puts the call back into the queue after its server ended. Returns false if it must not be repeated.
    pub(in crate::client) fn requeue(&mut self, id: CallId, now: Instant, resends: u32) -> bool {
        let Some(call) = self.table.get_mut(id) else {
            return false;
        };
        if !call.may_repeat() || call.resends >= resends {
            return false;
        }
        call.resends += 1;
        // The new server knows nothing of the old one's asks.
        call.round = None;
        self.send_later(id, now);
        true
    }

    /// Makes the call wait for answers to asks. Its clock stops until all are there.
    pub(in crate::client) fn asked(&mut self, id: CallId, now: Instant) {
        self.enter(id, Phase::Asking, now);
    }

    /// Queues the call again, because all answers are there.
    pub(in crate::client) fn answered(&mut self, id: CallId, now: Instant) {
        self.send_later(id, now);
    }

    /// Removes a call that has ended. Returns its last phase, and when it was accepted.
    pub(in crate::client) fn forget(&mut self, id: CallId) -> Option<(Phase, Instant)> {
        let call = self.table.get(id)?;
        let known = (call.phase, call.clock.accepted());
        self.queue.forget(id, call);
        self.stopped.remove(&id);
        self.table.discard(id);
        Some(known)
    }

    pub(in crate::client) fn touch(&mut self, id: CallId, now: Instant) {
        if let Some((clock, _)) = self.clock(id, now) {
            clock.touch(now);
        }
    }

    /// Makes the call wait for a server until `until`, because there is none.
    pub(in crate::client) fn await_server(&mut self, id: CallId, until: Instant) {
        if let Some(call) = self.table.get_mut(id) {
            call.clock.await_server(until);
        }
    }

    /// Whether the call has waited for a server for long enough.
    pub(in crate::client) fn has_waited_enough(&mut self, id: CallId, now: Instant) -> bool {
        let call = self.table.get_mut(id);
        call.is_some_and(|call| call.clock.has_waited_enough(now))
    }

    /// When to check the clock of a call next.
    pub(in crate::client) fn due(&mut self, id: CallId, now: Instant) -> Option<Instant> {
        let (clock, is_stopped) = self.clock(id, now)?;
        let due = clock.due(is_stopped.then_some(now));
        if is_stopped && self.stops.are_some_stopped() {
            self.stopped.insert(id);
        }
        due
    }

    /// The limit that the call has hit, if any.
    pub(in crate::client) fn overdue(&mut self, id: CallId, now: Instant) -> Option<TimeLimit> {
        let (clock, is_stopped) = self.clock(id, now)?;
        clock.overdue(now, is_stopped)
    }

    /// The clock of a call, which has caught up, and whether it is stopped.
    fn clock(&mut self, id: CallId, now: Instant) -> Option<(&mut Clock, bool)> {
        let call = self.table.get_mut(id)?;
        call.clock.catch_up(self.stops.in_all(call.phase, now));
        Some((&mut call.clock, self.stops.is_stopped(call.phase)))
    }

    /// Stops or restarts the clocks of sent calls. Returns the calls whose timers must be armed again.
    pub(in crate::client) fn hold(&mut self, held: bool, now: Instant) -> BTreeSet<CallId> {
        let is_new = self.stops.hold(held, now);
        self.timers_to_arm(is_new)
    }

    /// Stops or restarts all clocks, because credentials are missing or there again. Returns the calls whose timers must be armed again.
    pub(in crate::client) fn freeze(&mut self, frozen: bool, now: Instant) -> BTreeSet<CallId> {
        let is_new = self.stops.freeze(frozen, now);
        self.timers_to_arm(is_new)
    }

    /// The timers that were armed while their clocks were stopped. Those that were armed before fire too early, and are armed again then.
    fn timers_to_arm(&mut self, is_new: bool) -> BTreeSet<CallId> {
        if is_new && !self.stops.are_frozen() {
            core::mem::take(&mut self.stopped)
        } else {
            BTreeSet::new()
        }
    }

    fn enter(&mut self, id: CallId, phase: Phase, now: Instant) {
        let Some(call) = self.table.get_mut(id) else {
            return;
        };
        self.queue.leave(id, call);
        call.clock.catch_up(self.stops.in_all(call.phase, now));
        call.clock.change_kind(self.stops.in_all(phase, now));
        call.phase = phase;
        if matches!(phase, Phase::Asking | Phase::Waiting) {
            // A round has begun, has got its answers, or is void.
            self.queue.weigh(call);
        }
        self.queue.enter(id, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::config::{Limit, Policy};
    use crate::protocol::{Peer, TraceContext};
    use crate::util::Arc;
    use crate::wire::SHORT;

    fn payload(text: &str) -> Option<Payload> {
        Some(text.parse().unwrap())
    }

    /// The queue is bounded by bytes, so everything that a call holds must be counted.
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
            trace: Some(Box::new(TraceContext::new(1, 2, true, Some("a=b".into())))),
        }));
        assert_eq!(call.bytes(), 10 + 14 + 7 + 27 + 6 + 55 + 3);
    }

    fn accept(calls: &mut Calls, bytes: usize, now: Instant) -> CallId {
        let options = CallOptions::new();
        let clock = Clock::new(now, &options, &Policy::interactive());
        let empty = "tools/call".len() + r#"{"name":""}"#.len();
        let name = "x".repeat(bytes - empty);
        let given = (payload(&alloc::format!(r#"{{"name":"{name}"}}"#)), None);
        let mut call = Call::new("tools/call".into(), None, given, options, clock);
        assert_eq!(call.bytes(), bytes);
        call.weigh();
        calls.accept(call, now)
    }

    #[test]
    fn long_calls_are_counted_until_they_end() {
        let mut calls = Calls::new(true);
        let short = accept(&mut calls, SHORT, Instant::ZERO);
        assert_eq!((calls.long_bytes(), calls.long_bytes_of(short)), (0, 0));
        let long = accept(&mut calls, 4 * SHORT, Instant::ZERO);
        assert_eq!(calls.long_bytes_of(long), 4 * SHORT);
        for (wire, id) in [(1, short), (2, long)] {
            calls.sent(id, wire, Instant::ZERO);
        }
        assert_eq!(calls.waiting_bytes(), 0);
        assert_eq!(calls.long_bytes(), 4 * SHORT);
        for id in [short, long] {
            calls.forget(id);
        }
        assert_eq!(calls.long_bytes(), 0);
    }

    /// The answers come from a client, and are kept until the last one is there.
    #[test]
    fn answers_and_state_of_a_round_count_until_the_call_begins_anew() {
        let mut calls = Calls::new(true);
        let options = CallOptions::new().idempotent();
        let clock = Clock::new(Instant::ZERO, &options, &Policy::interactive());
        let mut call = Call::new("tools/call".into(), None, (None, None), options, clock);
        call.weigh();
        let id = calls.accept(call, Instant::ZERO);
        calls.sent(id, 1, Instant::ZERO);
        let state = payload(&alloc::format!("\"{}\"", "s".repeat(SHORT)));
        if let Some(call) = calls.call_mut(id) {
            call.round = Some(Box::new(Round::new(1, state, 1)));
        }
        calls.asked(id, Instant::ZERO);
        let with_state = "tools/call".len() + SHORT + 2;
        assert_eq!(calls.long_bytes(), with_state);
        let answer = payload(r#"{"a":1}"#).unwrap();
        assert!(calls.add_answer(id, "key".into(), answer));
        assert_eq!(calls.long_bytes(), with_state + 3 + 7);
        calls.answered(id, Instant::ZERO);
        assert_eq!(calls.waiting_bytes(), with_state + 3 + 7);
        assert!(calls.requeue(id, Instant::ZERO, 1));
        assert_eq!((calls.waiting_bytes(), calls.long_bytes()), (10, 0));
    }

    #[test]
    fn params_that_are_dropped_leave_what_the_call_was_for() {
        for is_idempotent in [false, true] {
            let mut calls = Calls::new(true);
            let mut options = CallOptions::new();
            options.idempotent = is_idempotent;
            let clock = Clock::new(Instant::ZERO, &options, &Policy::interactive());
            let text = "x".repeat(SHORT);
            let params = alloc::format!(r#"{{"name":"add","arguments":"{text}","task":{{}}}}"#);
            let given = (payload(&params), payload(r#"{"a":1}"#));
            let facts = method::find("tools/call");
            let mut call = Call::new("tools/call".into(), facts, given, options, clock);
            call.weigh();
            let id = calls.accept(call, Instant::ZERO);
            calls.sent(id, 1, Instant::ZERO);
            calls.drop_params(id);
            let call = calls.call(id).unwrap();
            assert_eq!(call.target().as_deref(), Some("add"));
            assert!(call.asks_to_be_a_task());
            let is_kept = call.bytes() > SHORT;
            assert_eq!(
                (is_kept, calls.long_bytes() > 0),
                (is_idempotent, is_idempotent)
            );
        }
    }

    /// Such a call would be sent to the next server with the state of this one.
    #[test]
    fn call_is_between_rounds_wherever_it_waits_to_continue() {
        let mut calls = Calls::new(false);
        let id = accept(&mut calls, 100, Instant::ZERO);
        calls.await_schema(id, Instant::ZERO);
        assert!(calls.mid_round().is_empty(), "its first round was refused");
        for continues in [Calls::await_schema, Calls::answered, Calls::asked] {
            if let Some(call) = calls.call_mut(id) {
                call.round = Some(Box::new(Round::new(1, None, 0)));
            }
            continues(&mut calls, id, Instant::ZERO);
            assert_eq!(calls.mid_round(), [id]);
        }
    }

    #[test]
    fn server_is_at_work_on_a_call_that_was_sent_before() {
        let (early, late) = (Instant::from_nanos(7), Instant::from_nanos(8));
        let mut calls = Calls::new(false);
        let id = accept(&mut calls, 100, Instant::ZERO);
        assert_eq!(calls.sent_at(id), None);
        calls.sent(id, 1, early);
        assert_eq!(calls.sent_at(id), Some(early));
        assert!(calls.is_at_work(late));
        assert!(!calls.is_at_work(early));
    }

    const fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    /// A call that may take 100 seconds.
    fn accept_for_100_seconds(calls: &mut Calls, now: Instant) -> CallId {
        let limit = core::time::Duration::from_secs(100);
        let options = CallOptions::new()
            .with_idle(Limit::Never)
            .with_total(Limit::After(limit));
        let clock = Clock::new(now, &options, &Policy::interactive());
        let mut call = Call::new("ping".into(), None, (None, None), options, clock);
        call.weigh();
        calls.accept(call, now)
    }

    #[test]
    fn stop_before_a_call_does_not_count_for_it() {
        let mut calls = Calls::new(false);
        calls.freeze(true, at(0));
        calls.freeze(false, at(10));
        let id = accept_for_100_seconds(&mut calls, at(20));
        assert_eq!(calls.due(id, at(20)), Some(at(120)));
        assert_eq!(calls.overdue(id, at(119)), None);
        assert_eq!(calls.overdue(id, at(120)), Some(TimeLimit::Total));
    }

    #[test]
    fn stop_moves_the_limit_of_a_call_also_if_its_phase_changes_afterwards() {
        let mut calls = Calls::new(false);
        let [first, second] = [(); 2].map(|()| accept_for_100_seconds(&mut calls, at(0)));
        calls.freeze(true, at(10));
        calls.freeze(false, at(20));
        assert_eq!(calls.due(first, at(30)), Some(at(110)));
        calls.sent(second, 1, at(30));
        calls.hold(true, at(40));
        calls.hold(false, at(70));
        assert_eq!(calls.due(second, at(80)), Some(at(140)));
        calls.asked(second, at(90));
        calls.answered(second, at(95));
        assert_eq!(calls.due(second, at(95)), Some(at(145)));
    }

    #[test]
    fn timers_are_armed_again_if_they_were_armed_during_a_stop_that_is_over() {
        let mut calls = Calls::new(false);
        let [queued, sent, ended, asking] =
            [(); 4].map(|()| accept_for_100_seconds(&mut calls, at(0)));
        calls.sent(sent, 1, at(0));
        calls.sent(ended, 2, at(0));
        calls.asked(asking, at(0));
        let arm_all = |calls: &mut Calls, now: u64| {
            for id in [queued, sent, ended, asking] {
                calls.due(id, at(now));
            }
        };
        arm_all(&mut calls, 1);
        assert!(calls.hold(true, at(2)).is_empty(), "no clock was stopped");
        arm_all(&mut calls, 3);
        assert!(calls.hold(true, at(4)).is_empty(), "nothing has changed");
        calls.forget(ended);
        assert_eq!(calls.hold(false, at(5)), [sent, asking].into());

        assert!(calls.freeze(true, at(6)).is_empty());
        arm_all(&mut calls, 7);
        assert!(calls.hold(true, at(8)).is_empty(), "all are still stopped");
        assert!(calls.hold(false, at(9)).is_empty(), "all are still stopped");
        assert_eq!(calls.freeze(false, at(10)), [queued, sent, asking].into());
        assert!(calls.freeze(false, at(11)).is_empty());
    }
}
