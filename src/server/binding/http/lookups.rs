//! The requests to the driver's store, and the look-ups that exchanges wait for. Does not depend on messages. Uses only the ids and keys of sessions.
//!
//! Requests in one session are served in the order in which they arrived, even if the store answers in another order. A stream that is
//! replayed delays no other exchange.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::driver::{LookupId, SessionRecord, StoreAnswer, StoreRequest, StreamId};
use crate::server::binding::http::fleet::Forward;
use crate::server::binding::http::refusals::SHUTTING_DOWN;
use crate::server::binding::http::stream::Resuming;
use crate::server::binding::http::validate::Refusal;
use crate::server::event::RefusalCause;
use crate::server::origin::{QueueId, SessionKey};
use crate::wire::Id;

/// What is known of the session of a request that waited for the store.
pub(crate) enum Found {
    /// The store need not be asked, but earlier requests in the session came first.
    Unasked,
    Failed(Failure),
    Record(Option<Box<SessionRecord>>),
}

/// Why a look-up has no result.
#[derive(Clone, Copy)]
pub(crate) enum Failure {
    /// The store said so, or its answer is no answer to the request.
    Reported,
    TimedOut,
}

impl Failure {
    /// Whether it is certain that nothing was done.
    pub(crate) const fn is_certain(self) -> bool {
        matches!(self, Failure::Reported)
    }

    /// Returns the HTTP refusal for the client whose request waited for this look-up, before anything of it was processed.
    pub(crate) fn refusal(self) -> Refusal {
        let text = match self {
            Failure::Reported => {
                "the store of the sessions failed, and the request was not processed; come back later"
            }
            Failure::TimedOut => {
                "the store of the sessions did not answer in time, and the request was not processed; come back later"
            }
        };
        Refusal::busy(text).because(RefusalCause::Store)
    }

    /// Returns the HTTP refusal for the client whose request made a change that the store may not have.
    pub(crate) fn unsaved(self) -> Refusal {
        let text = match self {
            Failure::Reported => {
                "the store of the sessions failed, so what the request changed may be lost; send it again"
            }
            Failure::TimedOut => {
                "the store of the sessions did not answer in time, so what the request changed may be lost; send it again"
            }
        };
        Refusal::busy(text).because(RefusalCause::Store)
    }
}

/// What an exchange must wait for.
pub(crate) enum Wait {
    /// The session with this id. Says whether the store must be asked, or only earlier requests in the session come first.
    Session { id: Box<str>, is_asked: bool },
    /// The messages of a stream.
    Replay(Box<Resuming>),
}

/// A reason not to serve a request now.
pub(crate) enum Halt {
    /// Another server answers it.
    Forward(Forward),
    Refused(Refusal),
    /// It was processed. The response is empty, with this status, and comes when the store has carried out this change.
    Saved(LookupId, u16),
    Wait(Wait),
}

impl From<Refusal> for Halt {
    fn from(refusal: Refusal) -> Halt {
        Halt::Refused(refusal)
    }
}

impl Halt {
    /// Refuses a new request that is to be passed on, if this server takes none.
    pub(crate) fn of_new(self, is_serving: bool) -> Halt {
        match self {
            Halt::Forward(_) if !is_serving => Refusal::busy(SHUTTING_DOWN).into(),
            halt @ (Halt::Forward(_) | Halt::Refused(_) | Halt::Saved(..) | Halt::Wait(_)) => halt,
        }
    }

    /// Names the message that a refusal answers.
    pub(crate) fn to(self, id: &Id) -> Halt {
        match self {
            Halt::Refused(refusal) => Halt::Refused(refusal.to(Some(id))),
            halt @ (Halt::Forward(_) | Halt::Saved(..) | Halt::Wait(_)) => halt,
        }
    }
}

/// What waits until the store has carried out a change.
pub(crate) enum Pending {
    /// Nothing. The server wants to know whether another one is alive.
    Alive(u32),
    /// An empty response with this status, to a request that changed this session.
    Empty(StreamId, u16, Option<SessionKey>),
    /// A request that is passed on to another server.
    Forward(StreamId, Forward),
    /// Nothing. The change concerns this session, if it is not over.
    Nobody(Option<SessionKey>),
    /// The reply to the request with this id, on this queue. The request changed this session.
    Reply(QueueId, Id, Option<SessionKey>),
}

impl Pending {
    /// The session that the change concerns.
    pub(crate) const fn session(&self) -> Option<SessionKey> {
        match self {
            Pending::Alive(_) | Pending::Forward(..) => None,
            Pending::Empty(_, _, session)
            | Pending::Nobody(session)
            | Pending::Reply(_, _, session) => *session,
        }
    }
}

/// How a change in the store ended.
pub(crate) enum Settled {
    /// The store did it, or says that it could not be done.
    Done(bool),
    Failed(Failure),
}

/// An exchange that has waited, with the result of its look-up.
pub(crate) enum Ready {
    Change(Pending, Settled),
    Session(StreamId, Found),
    Replay(StreamId, Box<Resuming>, Result<Replayed, Failure>),
}

/// Messages of a stream, and whether none is missing.
pub(crate) struct Replayed {
    pub(crate) events: Vec<(u64, Box<str>)>,
    pub(crate) is_complete: bool,
}

/// A request that waits for its turn in a session.
struct Waiting {
    stream: StreamId,
    /// The id of the session.
    session: Box<str>,
    found: Option<Found>,
}

#[derive(Default)]
pub(crate) struct Lookups {
    last: u64,
    waiting: BTreeMap<LookupId, Waiting>,
    /// The look-ups of each session, oldest first.
    sessions: BTreeMap<Box<str>, VecDeque<LookupId>>,
    /// The sessions whose oldest look-up may be done.
    changed: Vec<Box<str>>,
    replays: BTreeMap<LookupId, (StreamId, Box<Resuming>)>,
    /// The replays by session, and those whose messages wait by queue.
    replays_of: BTreeSet<(SessionKey, LookupId)>,
    replays_on: BTreeMap<QueueId, LookupId>,
    /// The replays that are done.
    replayed: VecDeque<(LookupId, Ready)>,
    /// What waits for a change in the store.
    pending: BTreeMap<LookupId, Pending>,
    /// The replies among them, by queue.
    replies: BTreeSet<(QueueId, LookupId)>,
    /// The changes that are carried out, or have failed.
    settled: VecDeque<(LookupId, Ready)>,
    /// The last change in this step for which nobody waits yet.
    unawaited: Option<LookupId>,
    /// The requests that the driver has not polled yet.
    requests: VecDeque<StoreRequest>,
}

/// # Requests to the store
impl Lookups {
    pub(crate) fn request(&mut self, request: StoreRequest) {
        self.requests.push_back(request);
    }

    pub(crate) fn next_request(&mut self) -> Option<StoreRequest> {
        self.unawaited = None;
        self.requests.pop_front()
    }
}

/// # Changes
impl Lookups {
    /// Notes what waits for a change. Returns the id of its answer.
    pub(crate) fn pend(&mut self, pending: Pending) -> LookupId {
        self.last += 1;
        let lookup = LookupId::from_number(self.last);
        match &pending {
            Pending::Nobody(_) => self.unawaited = Some(lookup),
            Pending::Reply(queue, ..) => {
                self.replies.insert((*queue, lookup));
            }
            Pending::Alive(_) | Pending::Empty(..) | Pending::Forward(..) => {}
        }
        self.pending.insert(lookup, pending);
        lookup
    }

    /// Returns the last change of this step, if nobody waits for it.
    pub(crate) fn take_unawaited(&mut self) -> Option<LookupId> {
        self.unawaited.take()
    }

    /// The server to which a request is passed on with this look-up.
    pub(crate) fn forwarded_to(&self, lookup: LookupId) -> Option<u32> {
        match self.pending.get(&lookup) {
            Some(Pending::Forward(_, forward)) => Some(forward.to),
            _ => None,
        }
    }

    /// Whether a reply on this queue waits for a change.
    pub(crate) fn holds(&self, queue: QueueId) -> bool {
        let mut replies = self.replies.range((queue, LookupId::from_number(0))..);
        replies.next().is_some_and(|(of, _)| *of == queue)
    }

    /// Whether any reply waits for a change.
    pub(crate) fn holds_any(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Lets an empty response with this status wait for a change that nobody waited for.
    pub(crate) fn await_change(&mut self, lookup: LookupId, stream: StreamId, status: u16) {
        if let Some(pending) = self.pending.get_mut(&lookup) {
            let session = pending.session();
            *pending = Pending::Empty(stream, status, session);
        }
    }

    /// Lets a change go on for which a client waited that is gone. Returns whether this look-up is a change.
    pub(crate) fn leave_change(&mut self, lookup: LookupId) -> bool {
        let pending = self.pending.get_mut(&lookup);
        let change = pending.filter(|pending| matches!(pending, Pending::Empty(..)));
        change.is_some_and(|pending| {
            *pending = Pending::Nobody(pending.session());
            true
        })
    }
}

/// # Exchanges that wait
impl Lookups {
    /// Lets an exchange wait. Returns its look-up, and whether the store is asked.
    pub(crate) fn wait(&mut self, stream: StreamId, wait: Wait) -> (LookupId, bool) {
        self.last += 1;
        let lookup = LookupId::from_number(self.last);
        let (session, is_asked) = match wait {
            Wait::Session { id, is_asked } => (id, is_asked),
            Wait::Replay(resuming) => {
                self.request(resuming.request(lookup));
                self.replays_of.insert((resuming.key, lookup));
                if let Some(queue) = resuming.queue {
                    self.replays_on.insert(queue, lookup);
                }
                self.replays.insert(lookup, (stream, resuming));
                return (lookup, true);
            }
        };
        if is_asked {
            let session = session.clone();
            self.request(StoreRequest::Find { lookup, session });
        }
        let queue = self.sessions.entry(session.clone()).or_default();
        queue.push_back(lookup);
        let waiting = Waiting {
            stream,
            session,
            found: (!is_asked).then_some(Found::Unasked),
        };
        self.waiting.insert(lookup, waiting);
        (lookup, is_asked)
    }

    /// Whether requests in this session wait.
    pub(crate) fn has(&self, session: &str) -> bool {
        self.sessions.contains_key(session)
    }

    /// Whether a stream of this session waits for its messages.
    pub(crate) fn is_replaying(&self, key: SessionKey) -> bool {
        let mut replays = self.replays_of.range((key, LookupId::from_number(0))..);
        replays.next().is_some_and(|(of, _)| *of == key)
    }

    /// The exchange that waits for the messages of this queue.
    pub(crate) fn replaying(&self, queue: QueueId) -> Option<StreamId> {
        let (stream, _) = self.replays.get(self.replays_on.get(&queue)?)?;
        Some(*stream)
    }

    /// Removes a replay that is answered or no longer wanted.
    fn take_replay(&mut self, lookup: LookupId) -> Option<(StreamId, Box<Resuming>)> {
        let (stream, resuming) = self.replays.remove(&lookup)?;
        self.replays_of.remove(&(resuming.key, lookup));
        if let Some(queue) = resuming.queue {
            if self.replays_on.get(&queue) == Some(&lookup) {
                self.replays_on.remove(&queue);
            }
        }
        Some((stream, resuming))
    }

    /// Takes the answer to a look-up, or notes that none came in time. Returns whether it was waited for.
    pub(crate) fn answer(
        &mut self,
        lookup: LookupId,
        answer: Result<StoreAnswer, Failure>,
    ) -> bool {
        if let Some(pending) = self.pending.remove(&lookup) {
            if let Pending::Reply(queue, ..) = &pending {
                self.replies.remove(&(*queue, lookup));
            }
            let settled = match answer {
                Ok(StoreAnswer::Done(is_done)) => Settled::Done(is_done),
                Ok(_) => Settled::Failed(Failure::Reported),
                Err(failure) => Settled::Failed(failure),
            };
            let ready = Ready::Change(pending, settled);
            self.settled.push_back((lookup, ready));
            return true;
        }
        if let Some((stream, resuming)) = self.take_replay(lookup) {
            let replayed = match answer {
                Ok(StoreAnswer::Events {
                    events,
                    is_complete,
                }) => Ok(Replayed {
                    events,
                    is_complete,
                }),
                Ok(_) => Err(Failure::Reported),
                Err(failure) => Err(failure),
            };
            let ready = Ready::Replay(stream, resuming, replayed);
            self.replayed.push_back((lookup, ready));
            return true;
        }
        let waiting = self.waiting.get_mut(&lookup);
        let Some(waiting) = waiting.filter(|waiting| waiting.found.is_none()) else {
            return false;
        };
        let is_of_session = |record: &SessionRecord| record.id == waiting.session;
        waiting.found = Some(match answer {
            Ok(StoreAnswer::Session(record)) if record.as_deref().is_none_or(is_of_session) => {
                Found::Record(record)
            }
            Ok(_) => Found::Failed(Failure::Reported),
            Err(failure) => Found::Failed(failure),
        });
        self.changed.push(waiting.session.clone());
        true
    }

    /// Forgets a look-up whose client is gone. Returns the stream that it wanted to resume.
    pub(crate) fn cancel(&mut self, lookup: LookupId) -> Option<Box<Resuming>> {
        self.pending.remove(&lookup);
        if let Some(waiting) = self.waiting.remove(&lookup) {
            if let Some(queue) = self.sessions.get_mut(&waiting.session) {
                queue.retain(|waiting| *waiting != lookup);
            }
            self.changed.push(waiting.session);
        }
        self.take_replay(lookup).map(|(_, resuming)| resuming)
    }

    /// Notes that a session is over. The store may have answered before it heard of that.
    pub(crate) fn session_ended(&mut self, id: &str) {
        let Some(queue) = self.sessions.get(id) else {
            return;
        };
        for lookup in queue {
            if let Some(waiting) = self.waiting.get_mut(lookup) {
                waiting.found = Some(Found::Record(None));
            }
        }
        self.changed.push(id.into());
    }

    /// Whether an exchange may not need to wait any longer.
    pub(crate) fn has_ready(&self) -> bool {
        !self.replayed.is_empty() || !self.changed.is_empty() || !self.settled.is_empty()
    }

    /// Removes and returns an exchange that need not wait any longer.
    pub(crate) fn next_ready(&mut self) -> Option<(LookupId, Ready)> {
        let settled = self.settled.pop_front();
        if let Some(ready) = settled.or_else(|| self.replayed.pop_front()) {
            return Some(ready);
        }
        while let Some(id) = self.changed.last() {
            if let Some(queue) = self.sessions.get_mut(id) {
                let is_found = |lookup: &LookupId| {
                    let waiting = self.waiting.get(lookup);
                    waiting.is_some_and(|waiting| waiting.found.is_some())
                };
                let first = queue.front().copied().filter(is_found);
                if first.is_some() {
                    queue.pop_front();
                }
                if queue.is_empty() {
                    self.sessions.remove(id);
                }
                let waited = first.and_then(|first| Some((first, self.waiting.remove(&first)?)));
                if let Some((lookup, Waiting { stream, found, .. })) = waited {
                    return Some((lookup, Ready::Session(stream, found?)));
                }
            }
            self.changed.pop();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_holds_its_queue_until_it_is_answered_and_nothing_is_left() {
        let mut lookups = Lookups::default();
        let [one, other] = [1, 2].map(|stream| QueueId::Stream(StreamId::new(stream)));
        let reply = |queue| Pending::Reply(queue, Id::from(1), None);
        let [first, second, third] = [one, one, other].map(|queue| lookups.pend(reply(queue)));
        for (lookup, is_held) in [(first, true), (third, true), (second, false)] {
            assert!(lookups.holds(one));
            assert!(lookups.answer(lookup, Ok(StoreAnswer::Done(true))));
            assert_eq!(lookups.holds(one), is_held);
        }
        assert!(!lookups.holds(other));
        assert!(lookups.pending.is_empty() && lookups.replies.is_empty());
    }
}
