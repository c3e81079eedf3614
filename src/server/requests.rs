//! The requests of clients: the phase, the id and the arrival of each. Sees no frames and no time; answers nothing by itself.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::origin::{Lane, SessionKey, Whose, WireId};
use super::reply::{Progress, Verdict};
use crate::driver::{AskId, RequestId};
use crate::protocol::{LogLevel, Method, Peer};
use crate::util::ascending_map::AscendingMap;
use crate::util::sorted::Sorted;
use crate::wire::Id;

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) method: Cow<'static, str>,
    /// The protocol's description of the method; `None` if the protocol does not know the method.
    pub(super) facts: Option<&'static Method>,
    /// The hash of what it is about, for the seal.
    pub(super) subject: u64,
    /// The phase. Only this module writes it, because requests are counted by phase.
    pub(super) phase: Phase,
    /// The number of times that its client was asked for input in place of a result.
    pub(super) round: u32,
    /// The asks that are open for it.
    pub(super) asks: BTreeSet<AskId>,
    /// Its last arrival.
    pub(super) arrival: Arrival,
}

/// How a request arrived. All of it is replaced when the client comes back with another round.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) wire: WireId,
    /// The lane for all messages about it.
    pub(super) lane: Lane,
    /// The session that it belongs to, in the legacy era.
    pub(super) session: Option<SessionKey>,
    pub(super) peer: Arc<Peer>,
    /// The authenticated user, as reported by the component that checked the credentials.
    pub(super) user: Option<Box<str>>,
    pub(super) token: Option<Id>,
    pub(super) log_level: Option<LogLevel>,
    /// Its progress. `None` until the first report.
    pub(super) progress: Option<Box<Steps>>,
}

impl Arrival {
    /// Adds a progress report; see [`Steps::add`].
    pub(super) fn add_step(&mut self, progress: Progress, is_read: bool) -> bool {
        let steps = self.progress.get_or_insert_default();
        steps.add(progress, is_read)
    }

    /// Returns the progress report for a frame that is being written, if one is left.
    pub(super) fn next_step(&mut self) -> Option<Progress> {
        self.progress.as_mut()?.say()
    }
}

/// The progress of a request, and the reports that its client has still to get.
#[derive(Debug, Default)]
pub(super) struct Steps {
    last: Option<f64>,
    unsaid: VecDeque<Progress>,
    /// The number of queued frames, each for one report. If newer reports replaced older ones, the last frames write nothing.
    frames: usize,
}

impl Steps {
    /// The most reports that wait for a client that reads.
    const MOST: usize = 16;

    /// Adds a report if the progress grew. A client that does not read gets only the newest report. Returns whether a frame must be queued
    /// for it.
    fn add(&mut self, progress: Progress, is_read: bool) -> bool {
        if self.last.is_some_and(|last| progress.progress <= last) {
            return false;
        }
        self.last = Some(progress.progress);
        if !is_read {
            self.unsaid.clear();
        } else if self.unsaid.len() == Steps::MOST {
            self.unsaid.pop_front();
        }
        self.unsaid.push_back(progress);
        let needs_frame = self.frames < self.unsaid.len();
        self.frames += usize::from(needs_frame);
        needs_frame
    }

    fn say(&mut self) -> Option<Progress> {
        self.frames = self.frames.saturating_sub(1);
        self.unsaid.pop_front()
    }
}

#[derive(Debug)]
pub(super) enum Phase {
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
pub(super) struct Requests {
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
    /// The number of requests that the clients of each session over HTTP wait for.
    in_sessions: BTreeMap<SessionKey, usize>,
    /// The same, ordered by number.
    by_count: BTreeSet<(usize, SessionKey)>,
}

impl Requests {
    pub(super) const fn new() -> Requests {
        Requests {
            next: 1,
            table: AscendingMap::new(),
            by_id: Sorted::new(),
            by_session: Sorted::new(),
            answered: 0,
            levels: Sorted::new(),
            in_sessions: BTreeMap::new(),
            by_count: BTreeSet::new(),
        }
    }

    /// The number of requests that the client of one session over HTTP waits for.
    pub(super) fn in_session(&self, session: SessionKey) -> usize {
        self.in_sessions.get(&session).copied().unwrap_or(0)
    }

    /// The session over HTTP with most such requests, and their number.
    pub(super) fn heaviest_session(&self) -> Option<(usize, SessionKey)> {
        self.by_count.last().copied()
    }

    fn recount(&mut self, whose: Whose, comes: bool) {
        let Whose::Session(session) = whose else {
            return;
        };
        let before = self.in_session(session);
        let now = if comes { before + 1 } else { before - 1 };
        self.by_count.remove(&(before, session));
        if now == 0 {
            self.in_sessions.remove(&session);
        } else {
            self.in_sessions.insert(session, now);
            self.by_count.insert((now, session));
        }
    }

    /// The number of requests that their clients wait for.
    pub(super) fn in_flight(&self) -> usize {
        self.by_id.len()
    }

    /// The number of requests whose client is to come back.
    pub(super) fn away(&self) -> usize {
        self.table.len() - self.by_id.len()
    }

    pub(super) fn find(&self, wire: &WireId) -> Option<RequestId> {
        self.by_id.get(wire).copied()
    }

    /// The requests in flight whose ids are of this scope.
    pub(super) fn of(&self, whose: Whose) -> Vec<RequestId> {
        let first = WireId::first(whose);
        let all = self.by_id.from(&first);
        all.take_while(|(wire, _)| wire.whose == whose)
            .map(|(_, request)| *request)
            .collect()
    }

    pub(super) fn get(&self, request: RequestId) -> Option<&Entry> {
        self.table.get(request)
    }

    pub(super) fn get_mut(&mut self, request: RequestId) -> Option<&mut Entry> {
        self.table.get_mut(request)
    }

    pub(super) fn ids(&self) -> Vec<RequestId> {
        self.table.keys().collect()
    }

    pub(super) fn is_away(&self, request: RequestId) -> bool {
        let entry = self.table.get(request);
        entry.is_some_and(|entry| matches!(entry.phase, Phase::Away(_)))
    }

    /// The requests of a legacy client.
    pub(super) fn of_session(&self, session: SessionKey) -> Vec<RequestId> {
        let first = (session, RequestId::from_number(0));
        let all = self.by_session.from(&first);
        all.take_while(|((of, _), ())| *of == session)
            .map(|((_, request), ())| *request)
            .collect()
    }

    /// Whether every request has its reply, written or not.
    pub(super) const fn are_answered(&self) -> bool {
        self.answered == self.table.len()
    }

    /// The lowest log level that any open request wants, while its client waits.
    pub(super) fn least_level(&self) -> Option<LogLevel> {
        self.levels.first().map(|(level, _)| *level)
    }

    /// Moves a request to another phase.
    pub(super) fn enter(&mut self, request: RequestId, phase: Phase) -> Option<&Entry> {
        let entry = self.table.get_mut(request)?;
        let level = entry.arrival.log_level;
        let before = core::mem::replace(&mut entry.phase, phase);
        let (was, is) = (Standing::of(&before), Standing::of(&entry.phase));
        self.count(was, level, false);
        self.count(is, level, true);
        self.table.get(request)
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

    pub(super) fn accept(
        &mut self,
        method: Cow<'static, str>,
        facts: Option<&'static Method>,
        subject: u64,
        arrival: Arrival,
    ) -> RequestId {
        let request = RequestId::from_number(self.next);
        self.next += 1;
        self.by_id.insert(arrival.wire.clone(), request);
        if let Some(session) = arrival.session {
            self.by_session.insert((session, request), ());
        }
        self.count(Standing::Open, arrival.log_level, true);
        self.recount(arrival.wire.whose, true);
        let entry = Entry {
            method,
            facts,
            subject,
            phase: Phase::Open,
            round: 0,
            asks: BTreeSet::new(),
            arrival,
        };
        self.table.add(request, entry);
        request
    }

    /// Records that the client has the asks instead of a reply. Nothing more can be sent under the old id.
    pub(super) fn send_away(&mut self, request: RequestId) {
        self.enter(request, Phase::Away(None));
        if let Some(entry) = self.table.get_mut(request) {
            entry.round += 1;
            self.by_id.remove(&entry.arrival.wire);
        }
    }

    /// Records that the client is back. Returns the verdict that the application gave in the meantime, if any.
    pub(super) fn bring_back(&mut self, request: RequestId, arrival: Arrival) -> Option<Verdict> {
        let entry = self.table.get_mut(request)?;
        self.by_id.insert(arrival.wire.clone(), request);
        let level = arrival.log_level;
        entry.arrival = arrival;
        // The request was away, which is not counted.
        let before = core::mem::replace(&mut entry.phase, Phase::Open);
        self.count(Standing::Open, level, true);
        match before {
            Phase::Away(verdict) => verdict,
            Phase::Answered(_) | Phase::Asking | Phase::Open => None,
        }
    }

    /// Removes a request.
    pub(super) fn forget(&mut self, request: RequestId) {
        let Some(entry) = self.table.get(request) else {
            return;
        };
        let (standing, level) = (Standing::of(&entry.phase), entry.arrival.log_level);
        let (whose, session) = (entry.arrival.wire.whose, entry.arrival.session);
        if !matches!(entry.phase, Phase::Away(_)) {
            self.by_id.remove(&entry.arrival.wire);
            self.recount(whose, false);
        }
        if let Some(session) = session {
            self.by_session.remove(&(session, request));
        }
        self.count(standing, level, false);
        self.table.forget(request);
    }
}
