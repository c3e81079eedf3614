//! The requests of clients, and what their clients are asked: the phase, the id and the arrival of each request.
//!
//! - `params` splits the params of a request; `admission` decides whether it can be served.
//! - `delivery` hands requests to the application, takes its replies, and cancels requests; `asking` sends asks and ends them.
//! - `reply` holds the application's answers, and `checks` decides whether they fit the request.
//!
//! The tables see no frames and no time:
//!
//! - This module holds the requests; `asks` holds the asks.
//! - `progress` holds reports that wait to be written; `state_token` makes the states that clients return.
//! - `places` counts the requests of each client.

pub(crate) mod admission;
pub(crate) mod asking;
pub(crate) mod asks;
pub(crate) mod checks;
mod delivery;
pub(crate) mod params;
pub(crate) mod places;
mod progress;
pub(crate) mod reply;
mod state_token;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use asks::Asks;
use params::Params;
use places::{Holder, Places};
use progress::ProgressReports;
use reply::{Progress, Verdict};
use state_token::StateTokens;

use crate::driver::{AskId, RequestId};
use crate::protocol::{LogLevel, Method, Peer, Version, code, method};
use crate::server::config::Config;
use crate::server::misuse::Misuse;
use crate::server::origin::{IdScope, QueueId, SessionKey, WireId};
use crate::util::Arc;
use crate::util::ascending_map::AscendingMap;
use crate::util::sorted::Sorted;
use crate::wire::{ErrorObject, Id};

/// A request that is not over.
#[derive(Debug)]
pub(crate) struct Entry {
    method: Cow<'static, str>,
    /// The protocol's description of the method; `None` if the protocol does not know the method.
    facts: Option<&'static Method>,
    /// The hash of what it is about, for the state tokens.
    subject: u64,
    /// The phase. Only `Requests` writes it, because requests are counted by phase.
    phase: Phase,
    /// The number of times that its client was asked for input in place of a result.
    round: u32,
    /// The asks that are open for it.
    asks: BTreeSet<AskId>,
    /// Its last arrival.
    arrival: Arrival,
    /// Its progress. `None` until the first report.
    progress: Option<Box<ProgressReports>>,
}

impl Entry {
    pub(crate) const fn arrival(&self) -> &Arrival {
        &self.arrival
    }

    pub(crate) const fn queue(&self) -> QueueId {
        self.arrival.queue
    }

    pub(crate) fn version(&self) -> Version {
        self.arrival.peer.version
    }

    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    pub(crate) fn is_cacheable(&self) -> bool {
        self.facts.is_some_and(|facts| facts.cacheable)
    }

    /// Whether its client has the asks and is to come back.
    pub(crate) const fn is_away(&self) -> bool {
        matches!(self.phase, Phase::Away(_))
    }

    /// Whether the application works on it while its client waits.
    pub(crate) const fn is_waited_for(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Whether the application has still to answer it.
    pub(crate) const fn is_open(&self) -> bool {
        match self.phase {
            Phase::Answered(_) | Phase::Away(Some(_)) => false,
            Phase::Asking | Phase::Away(None) | Phase::Open => true,
        }
    }

    /// Whether its reply waits to be written.
    pub(crate) const fn is_answered(&self) -> bool {
        self.verdict().is_some()
    }

    /// The reply that waits to be written.
    pub(crate) const fn verdict(&self) -> Option<&Verdict> {
        match &self.phase {
            Phase::Answered(verdict) => Some(verdict),
            Phase::Asking | Phase::Away(_) | Phase::Open => None,
        }
    }

    /// The code of the error that is its reply.
    pub(crate) const fn error_code(&self) -> Option<i64> {
        match self.verdict() {
            Some(Verdict::Error(error)) => Some(error.code),
            Some(Verdict::Input(_) | Verdict::Result(..)) | None => None,
        }
    }

    pub(crate) const fn asks(&self) -> &BTreeSet<AskId> {
        &self.asks
    }

    /// The number of times that its client was asked for input in place of a result.
    pub(crate) const fn round(&self) -> u32 {
        self.round
    }
}

/// How a request arrived. All of it is replaced when the client comes back with another round.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) wire: WireId,
    /// The queue for all messages about it.
    pub(crate) queue: QueueId,
    /// The session that it belongs to, in the legacy era.
    pub(crate) session: Option<SessionKey>,
    /// The client that it counts for. `None` on a byte stream.
    pub(crate) holder: Option<Arc<Holder>>,
    pub(crate) peer: Arc<Peer>,
    /// The authenticated user, as reported by the component that checked the credentials.
    pub(crate) user: Option<Box<str>>,
    pub(crate) token: Option<Id>,
    pub(crate) log_level: Option<LogLevel>,
}

/// What becomes of the application's answer to a request.
#[must_use]
#[derive(Clone, Copy, Debug)]
enum Concluded {
    /// It waits until the client comes back.
    Held,
    /// It is to be written now.
    Reply {
        queue: QueueId,
        bytes: usize,
        /// Whether asks were queued in its place.
        was_asking: bool,
    },
}

#[derive(Debug)]
enum Phase {
    /// Its reply waits to be written.
    Answered(Verdict),
    /// Asks wait to be written in place of its reply.
    Asking,
    /// Its client has the asks and is to come back. Holds the verdict, if the application gave one in the meantime.
    Away(Option<Verdict>),
    /// The application works on it.
    Open,
}

/// The counted part of a phase.
#[derive(Clone, Copy)]
enum Standing {
    Answered,
    Open,
    Other,
}

impl Standing {
    const fn of(phase: &Phase) -> Standing {
        match phase {
            Phase::Answered(_) => Standing::Answered,
            Phase::Asking | Phase::Away(_) => Standing::Other,
            Phase::Open => Standing::Open,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Requests {
    next: u64,
    table: AscendingMap<RequestId, Entry>,
    /// The requests that their clients wait for.
    by_id: Sorted<WireId, RequestId>,
    /// The requests of legacy clients.
    by_session: Sorted<(SessionKey, RequestId), ()>,
    /// The number of requests that have their reply.
    answered: usize,
    /// The number of open requests that want log messages from each level on. Their clients wait, and the application works on them.
    levels: Sorted<LogLevel, usize>,
    /// The requests that clients over HTTP wait for.
    places: Places<RequestId>,
    /// The requests whose clients over HTTP are to come back.
    away: Places<RequestId>,
    asks: Asks,
    tokens: StateTokens,
    /// The longest message.
    message_bytes: usize,
}

impl Requests {
    /// `node` is the number of this server among those that share a store. `None` if it shares none.
    pub(crate) fn new(config: &Config, node: Option<u32>) -> Requests {
        Requests {
            next: 1,
            table: AscendingMap::new(),
            by_id: Sorted::new(),
            by_session: Sorted::new(),
            answered: 0,
            levels: Sorted::new(),
            places: Places::default(),
            away: Places::default(),
            asks: Asks::new(),
            tokens: StateTokens::new(config.secret, &config.accepted_secrets, node),
            message_bytes: config.limits.message_bytes,
        }
    }

    /// The requests in flight in a session whose replies go to this queue.
    fn on_queue(&self, session: SessionKey, queue: QueueId) -> Vec<RequestId> {
        let mut requests = self.of(IdScope::Session(session));
        let is_on = |entry: &Entry| entry.queue() == queue;
        requests.retain(|request| self.get(*request).is_some_and(is_on));
        requests
    }

    /// Adds a request to `by_id` and `places`: its client waits from now on, because it sent the request or came back.
    fn join(&mut self, arrival: &Arrival, request: RequestId) {
        self.by_id.insert(arrival.wire.clone(), request);
        if let Some(holder) = &arrival.holder {
            self.places.take(holder, request);
        }
    }

    /// The number of requests in flight that count for this client.
    pub(crate) fn held_by(&self, holder: &Arc<Holder>) -> usize {
        self.places.count(holder)
    }

    /// The number of requests in flight: those whose client waits for the reply.
    pub(crate) fn in_flight(&self) -> usize {
        self.by_id.len()
    }

    /// The number of requests whose client got asks in place of a reply, and has not yet come back with the answers.
    pub(crate) fn away(&self) -> usize {
        self.table.len() - self.by_id.len()
    }

    pub(crate) fn find(&self, wire: &WireId) -> Option<RequestId> {
        self.by_id.get(wire).copied()
    }

    /// The requests in flight whose ids are of this scope.
    fn of(&self, scope: IdScope) -> Vec<RequestId> {
        let first = WireId::first(scope);
        let all = self.by_id.from(&first);
        all.take_while(|(wire, _)| wire.scope == scope)
            .map(|(_, request)| *request)
            .collect()
    }

    pub(crate) fn get(&self, request: RequestId) -> Option<&Entry> {
        self.table.get(request)
    }

    fn ids(&self) -> Vec<RequestId> {
        self.table.keys().collect()
    }

    /// The requests of a legacy client.
    fn of_session(&self, session: SessionKey) -> Vec<RequestId> {
        let first = (session, RequestId::from_number(0));
        let all = self.by_session.from(&first);
        all.take_while(|((of, _), ())| *of == session)
            .map(|((_, request), ())| *request)
            .collect()
    }

    /// Whether every request has its reply, written or not.
    pub(crate) const fn are_answered(&self) -> bool {
        self.answered == self.table.len()
    }

    /// The lowest log level that any open request wants, while its client waits.
    pub(crate) fn least_level(&self) -> Option<LogLevel> {
        self.levels.first().map(|(level, _)| *level)
    }

    /// Moves a request to another phase. Returns the phase before.
    fn enter(&mut self, request: RequestId, phase: Phase) -> Option<Phase> {
        let entry = self.table.get_mut(request)?;
        let level = entry.arrival.log_level;
        let before = core::mem::replace(&mut entry.phase, phase);
        let (was, is) = (Standing::of(&before), Standing::of(&entry.phase));
        self.count(was, level, false);
        self.count(is, level, true);
        Some(before)
    }

    fn count(&mut self, standing: Standing, level: Option<LogLevel>, comes: bool) {
        match (standing, level) {
            (Standing::Answered, _) if comes => self.answered += 1,
            (Standing::Answered, _) => self.answered -= 1,
            (Standing::Open, Some(level)) => {
                let before = self.levels.get(&level).copied().unwrap_or(0);
                let now = if comes { before + 1 } else { before - 1 };
                if now == 0 {
                    self.levels.remove(&level);
                } else {
                    self.levels.insert(level, now);
                }
            }
            (Standing::Open, None) | (Standing::Other, _) => {}
        }
    }
}

/// # The life of a request
impl Requests {
    /// Adds a request that the application is to answer.
    fn accept(
        &mut self,
        method: Cow<'static, str>,
        facts: Option<&'static Method>,
        subject: u64,
        arrival: Arrival,
    ) -> RequestId {
        let request = RequestId::from_number(self.next);
        self.next += 1;
        self.join(&arrival, request);
        if let Some(session) = arrival.session {
            self.by_session.insert((session, request), ());
        }
        self.count(Standing::Open, arrival.log_level, true);
        let entry = Entry {
            method,
            facts,
            subject,
            phase: Phase::Open,
            round: 0,
            asks: BTreeSet::new(),
            arrival,
            progress: None,
        };
        self.table.add(request, entry);
        request
    }

    /// Returns a request that the application has still to answer.
    pub(crate) fn open(&self, request: RequestId) -> Result<&Entry, Misuse> {
        let entry = self.table.get(request).filter(|entry| entry.is_open());
        entry.ok_or(Misuse::UnknownRequest)
    }

    pub(crate) const fn check_size(&self, bytes: usize) -> Result<(), Misuse> {
        if bytes > self.message_bytes {
            return Err(Misuse::TooLarge { bytes });
        }
        Ok(())
    }

    /// Gives a request the verdict of the application.
    fn give_verdict(&mut self, request: RequestId, verdict: Verdict) -> Result<Concluded, Misuse> {
        let entry = self.open(request)?;
        let (bytes, queue, is_away) = (verdict.bytes(), entry.arrival.queue, entry.is_away());
        self.check_size(bytes)?;
        if is_away {
            self.enter(request, Phase::Away(Some(verdict)));
            return Ok(Concluded::Held);
        }
        let before = self.enter(request, Phase::Answered(verdict));
        Ok(Concluded::Reply {
            queue,
            bytes,
            was_asking: matches!(before, Some(Phase::Asking)),
        })
    }

    /// Removes a request that is over.
    fn forget(&mut self, request: RequestId) {
        let Some(entry) = self.table.get(request) else {
            return;
        };
        let (standing, level) = (Standing::of(&entry.phase), entry.arrival.log_level);
        if let Some(session) = entry.arrival.session {
            self.by_session.remove(&(session, request));
        }
        let places = if entry.is_away() {
            &mut self.away
        } else {
            self.by_id.remove(&entry.arrival.wire);
            &mut self.places
        };
        if let Some(holder) = &entry.arrival.holder {
            places.free(holder, request);
        }
        self.count(standing, level, false);
        self.table.discard(request);
    }

    /// Adds a progress report. Returns whether a frame must be queued for it.
    fn add_progress(&mut self, request: RequestId, progress: Progress, is_read: bool) -> bool {
        let entry = self.table.get_mut(request);
        entry.is_some_and(|entry| {
            let reports = entry.progress.get_or_insert_default();
            reports.add(progress, is_read)
        })
    }

    /// Returns the progress report for a frame that is being written, with the arrival of its request.
    fn next_progress(&mut self, request: RequestId) -> Option<(Progress, &Arrival)> {
        let entry = self.table.get_mut(request)?;
        let progress = entry.progress.as_mut()?.next()?;
        Some((progress, &entry.arrival))
    }
}

/// # Asks and rounds
impl Requests {
    /// Removes and returns an ask of a request that is over.
    fn next_ask(&mut self, request: RequestId) -> Option<AskId> {
        self.table.get_mut(request)?.asks.pop_first()
    }

    /// Records that an ask of a request is over. Returns the queue from which the asks are to be retracted, if none is left to be written
    /// in place of the reply.
    fn ask_ended(&mut self, request: RequestId, ask: AskId) -> Option<QueueId> {
        let entry = self.table.get_mut(request)?;
        entry.asks.remove(&ask);
        let queue = entry.arrival.queue;
        if !entry.asks.is_empty() || !matches!(entry.phase, Phase::Asking) {
            return None;
        }
        self.enter(request, Phase::Open);
        Some(queue)
    }

    /// Records that the asks of a request are to be written in place of its reply. Returns the queue for them, unless they wait already.
    fn put_asks(&mut self, request: RequestId) -> Option<QueueId> {
        let entry = self.table.get(request)?;
        let queue = entry.arrival.queue;
        if !entry.is_waited_for() {
            return None;
        }
        self.enter(request, Phase::Asking);
        Some(queue)
    }

    /// The state that the client returns with its answers to the asks of the next round.
    fn next_token(&self, request: RequestId) -> Option<String> {
        let entry = self.table.get(request)?;
        Some(self.tokens.token(request, entry.round + 1, entry.subject))
    }

    /// Records that the client has the asks instead of a reply. Nothing more can be sent under the old id.
    fn send_away(&mut self, request: RequestId) {
        self.enter(request, Phase::Away(None));
        if let Some(entry) = self.table.get_mut(request) {
            entry.round += 1;
            self.by_id.remove(&entry.arrival.wire);
            if let Some(holder) = &entry.arrival.holder {
                self.places.free(holder, request);
                self.away.take(holder, request);
            }
        }
    }

    /// The request that is ended if one more is to go away, beside at most `most`: the oldest of the client with most requests away, if it
    /// has more than the client of `request` would have. `None` if there is room, or no such client.
    fn gives_way(&self, request: RequestId, most: usize) -> Option<RequestId> {
        if self.away() < most {
            return None;
        }
        // A request that is away already takes no further place.
        let entry = self.table.get(request).filter(|entry| !entry.is_away())?;
        let holder = entry.arrival.holder.as_ref()?;
        self.away.of_heaviest(self.away.count(holder))
    }

    /// The hash of what a request is about, for the state tokens.
    fn subject(&self, facts: &Method, params: &Params<'_>, user: Option<&str>) -> u64 {
        let target = facts.named_by.and_then(|key| params.text(key));
        let target = target.unwrap_or_default();
        self.tokens.subject(facts.name, &target, user)
    }

    /// Whether a request for this method continues one that was begun before.
    pub(crate) fn resumes(&self, name: &str, params: &Params<'_>, user: Option<&str>) -> bool {
        let facts = method::find(name).filter(|facts| facts.may_need_input);
        let state = admission::read_state(params).ok().flatten();
        match (facts, state) {
            (Some(facts), Some(state)) if params.claims_modern() => {
                let subject = self.subject(facts, params, user);
                self.awaited(&state, subject).is_ok()
            }
            (_, _) => false,
        }
    }

    /// The other server that holds the request with whose state a client comes back, and the error if it does not. If the state is forged,
    /// no server has this number.
    pub(crate) fn made_elsewhere(
        &self,
        name: &str,
        params: &Params<'_>,
        user: Option<&str>,
    ) -> Option<(u32, ErrorObject)> {
        params.state?;
        let facts = method::find(name).filter(|facts| facts.may_need_input)?;
        let state = admission::read_state(params).ok()??;
        let target = facts.named_by.and_then(|key| params.text(key));
        let subject = (facts.name, &*target.unwrap_or_default(), user);
        let node = self.tokens.maker(&state, subject)?.ok()?;
        Some((node, no_such_state()))
    }

    /// The request about `subject` whose client is to come back with this state.
    fn awaited(&self, state: &str, subject: u64) -> Result<RequestId, ErrorObject> {
        let find = || {
            let request = state_token::request_of(state)?;
            let entry = self.table.get(request).filter(|entry| entry.is_away())?;
            (state == self.tokens.token(request, entry.round, subject)).then_some(request)
        };
        find().ok_or_else(no_such_state)
    }

    /// Records that the client is back. Returns the verdict that the application gave in the meantime, if any.
    fn bring_back(&mut self, request: RequestId, arrival: Arrival) -> Option<Verdict> {
        self.join(&arrival, request);
        let entry = self.table.get_mut(request)?;
        let level = arrival.log_level;
        if let Some(holder) = &entry.arrival.holder {
            self.away.free(holder, request);
        }
        entry.arrival = arrival;
        entry.progress = None;
        // The request was away, which is not counted.
        let before = core::mem::replace(&mut entry.phase, Phase::Open);
        self.count(Standing::Open, level, true);
        match before {
            Phase::Away(verdict) => verdict,
            Phase::Answered(_) | Phase::Asking | Phase::Open => None,
        }
    }

    /// Gives a request whose client is back the verdict that the application gave in the meantime. Returns the queue for the reply, and its
    /// size.
    fn reply_held(&mut self, request: RequestId, mut verdict: Verdict) -> Option<(QueueId, usize)> {
        let entry = self.table.get(request)?;
        let queue = entry.arrival.queue;
        // S-META-08: capabilities that were declared with an earlier round no longer count.
        if let Some(feature) = entry.lacks(&verdict) {
            verdict = Verdict::Error(crate::server::missing_capability(feature));
        }
        let bytes = verdict.bytes();
        self.enter(request, Phase::Answered(verdict));
        Some((queue, bytes))
    }
}

/// The error for a state that belongs to no request that waits.
fn no_such_state() -> ErrorObject {
    let text = "the state was not given for this request, was used already, or is too old";
    ErrorObject::new(code::INVALID_PARAMS, text)
}
