//! Stores in memory: for the messages of this server's sessions, and for the requests of servers to a driver's store. Does not depend on exchanges.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::driver::{Input, SessionRecord, StoreAnswer, StoreRequest};
use crate::server::binding::http::config::Replay;
use crate::server::binding::http::session::is_standalone;
use crate::util::Arc;

/// Who keeps the messages that were sent in sessions.
pub(crate) enum Events {
    Driver,
    Memory(MemoryEvents),
}

/// A store in memory for the [requests](StoreRequest) of servers. It lets servers in one process share their sessions, and shows what a
/// driver's store must do.
///
/// Each server is named by its [number](super::DriverStorage::instance). A server is alive from its first request until it
/// [leaves](MemoryStore::leave), and again from its next request on.
///
/// ```
/// use everlink::server::{MemoryStore, Replay};
/// use everlink::{Input, Instant, Output, Server};
///
/// fn carry_out(store: &mut MemoryStore, server: &mut Server, now: Instant) {
///     let (node, mut buf) = (1, Vec::new());
///     while let Some(output) = server.poll_output(&mut buf) {
///         if let Output::Store(request) = output {
///             if let Some(answer) = store.carry_out(node, *request) {
///                 server.handle(now, answer);
///             }
///         }
///     }
///     while let Some(note) = store.next_note(node) {
///         server.handle(now, note);
///     }
/// }
/// # let config = everlink::server::Config::new(everlink::server::Offer::new("docs", "1.0"), [7; 16]);
/// # carry_out(&mut MemoryStore::new(8, Replay::default()), &mut Server::new(config), Instant::ZERO);
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    sessions: MemorySessions,
    events: MemoryEvents,
    /// The servers that are alive, with the notes for each.
    nodes: BTreeMap<u32, VecDeque<Box<str>>>,
    /// Those of them that take no new requests.
    leaving: BTreeSet<u32>,
}

impl MemoryStore {
    /// An empty store for at most `sessions` sessions. Beyond that, it drops the session that was stored first, with its messages. Of each
    /// session it keeps as much as `replay` says. It keeps messages of at most as many sessions that are not in the store.
    #[must_use]
    pub const fn new(sessions: usize, replay: Replay) -> MemoryStore {
        MemoryStore {
            sessions: MemorySessions::new(sessions),
            events: MemoryEvents::new(replay),
            nodes: BTreeMap::new(),
            leaving: BTreeSet::new(),
        }
    }

    /// Records that a server is gone. The sessions that it served get another home, and the notes to it are dropped.
    ///
    /// A request of the server after that says that it is back. So drop the requests of a server that is gone for good.
    pub fn leave(&mut self, node: u32) {
        self.nodes.remove(&node);
        self.leaving.remove(&node);
    }

    /// Returns the next note for a server, as an input.
    pub fn next_note(&mut self, node: u32) -> Option<Input<'static>> {
        let note = self.nodes.get_mut(&node)?.pop_front()?;
        let note = String::from(note).into();
        Some(Input::Note { note })
    }

    /// Carries out a request of the server with this number. Returns the input that answers it, if it wants an answer.
    pub fn carry_out(&mut self, node: u32, request: StoreRequest) -> Option<Input<'static>> {
        self.nodes.entry(node).or_default();
        let lookup = request.lookup();
        let answer = match request {
            StoreRequest::Append {
                session,
                stream,
                number,
                message,
                ..
            } => {
                self.events.append(&session, stream, Some(number), &message);
                if !self.sessions.has(&session) {
                    self.events.let_go(&session, self.sessions.most);
                }
                return None;
            }
            StoreRequest::Find { session, .. } => {
                let serves = |home| self.nodes.contains_key(&home) && !self.leaving.contains(&home);
                let found = self.sessions.claim(&session, node, serves);
                StoreAnswer::Session(found.map(Box::new))
            }
            StoreRequest::Forget { session } => {
                self.events.forget(&session);
                return None;
            }
            StoreRequest::IsAlive { node, .. } => StoreAnswer::Done(self.nodes.contains_key(&node)),
            StoreRequest::Leave => {
                self.leaving.insert(node);
                return None;
            }
            StoreRequest::Put { record, is_new, .. } => {
                let is_stored = self.sessions.put(*record, is_new);
                if let Some(dropped) = self.sessions.dropped.take() {
                    self.events.forget(&dropped);
                }
                StoreAnswer::Done(is_stored)
            }
            StoreRequest::Remove { session, .. } => {
                self.sessions.remove(&session);
                StoreAnswer::Done(true)
            }
            StoreRequest::Replay {
                session,
                stream,
                after,
                ..
            } => {
                let mut events = Vec::new();
                let mut note = |number, message: &str| events.push((number, message.into()));
                let is_complete = self.events.replay(&session, stream, after, &mut note);
                StoreAnswer::Events {
                    events,
                    is_complete,
                }
            }
            StoreRequest::Tell { to, note, .. } => StoreAnswer::Done(self.tell(node, to, &note)),
            // Nothing expires here.
            StoreRequest::Touch { .. } => return None,
        };
        lookup.map(|lookup| Input::Stored { lookup, answer })
    }

    fn tell(&mut self, from: u32, to: Option<u32>, note: &str) -> bool {
        let mut is_told = to.is_none();
        for (node, notes) in &mut self.nodes {
            if to.map_or(*node != from, |to| *node == to) {
                notes.push_back(note.into());
                is_told = true;
            }
        }
        is_told
    }
}

/// Sessions in memory, up to a number. Beyond it, the session that was stored first is dropped.
struct MemorySessions {
    records: BTreeMap<Box<str>, (u64, SessionRecord)>,
    /// The ids in the order in which they were first stored.
    order: BTreeMap<u64, Box<str>>,
    next: u64,
    most: usize,
    /// The session that was dropped for the one that was stored last.
    dropped: Option<Box<str>>,
}

impl MemorySessions {
    const fn new(most: usize) -> MemorySessions {
        MemorySessions {
            records: BTreeMap::new(),
            order: BTreeMap::new(),
            next: 0,
            most,
            dropped: None,
        }
    }
}

/// Leaves out the ids.
impl fmt::Debug for MemorySessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySessions")
            .field("sessions", &self.records.len())
            .finish()
    }
}

impl MemorySessions {
    /// Stores a session. Returns whether it is stored: not if it is over, or has another home.
    fn put(&mut self, record: SessionRecord, is_new: bool) -> bool {
        if let Some((_, known)) = self.records.get_mut(&record.id) {
            if known.home != record.home {
                return false;
            }
            *known = record;
            return true;
        }
        if !is_new {
            return false;
        }
        self.order.insert(self.next, record.id.clone());
        self.records.insert(record.id.clone(), (self.next, record));
        self.next += 1;
        if self.records.len() > self.most {
            self.dropped = self.order.pop_first().map(|(_, oldest)| oldest);
            if let Some(oldest) = &self.dropped {
                self.records.remove(oldest);
            }
        }
        true
    }

    fn has(&self, id: &str) -> bool {
        self.records.contains_key(id)
    }

    /// Finds a session. This server becomes its home, unless its home still serves sessions.
    fn claim(
        &mut self,
        id: &str,
        node: u32,
        serves: impl FnOnce(u32) -> bool,
    ) -> Option<SessionRecord> {
        let (_, record) = self.records.get_mut(id)?;
        if !serves(record.home) {
            record.home = node;
        }
        Some(record.clone())
    }

    fn remove(&mut self, id: &str) {
        if let Some((place, _)) = self.records.remove(id) {
            self.order.remove(&place);
        }
    }
}

/// The messages of sessions, in memory: the newest of each session, up to a number and a size.
pub(crate) struct MemoryEvents {
    sessions: BTreeMap<Arc<str>, Kept>,
    /// The sessions of which messages are kept, ordered by bytes.
    by_weight: BTreeSet<(usize, Arc<str>)>,
    replay: Replay,
    /// Bytes of all kept messages.
    bytes: usize,
    /// The sessions that may come back, but need not, in the order in which they were let go.
    let_go: BTreeMap<u64, Arc<str>>,
    /// The number of sessions that were let go.
    times: u64,
    /// The last number of any session that was let go and then forgotten. If such a session comes back, its numbers grow from there.
    floor: u64,
}

/// A message with its number. `None` stands for a message that is too long to keep.
type Numbered = (u64, Option<Box<str>>);

/// The messages of one session.
#[derive(Default)]
struct Kept {
    /// The number of messages that there were.
    last: u64,
    /// The kept messages of each stream.
    streams: BTreeMap<u64, VecDeque<Numbered>>,
    /// The streams of the kept messages that belong to requests, in the order in which the messages came.
    of_requests: BTreeMap<u64, u64>,
    /// The number of kept messages.
    messages: usize,
    bytes: usize,
    /// The place of the session among those that were let go.
    place: Option<u64>,
}

impl Kept {
    fn keep(&mut self, stream: u64, number: u64, message: Option<&str>) {
        self.bytes += message.map_or(0, str::len);
        self.messages += 1;
        if !is_standalone(stream) {
            self.of_requests.insert(self.last, stream);
        }
        let messages = self.streams.entry(stream).or_default();
        messages.push_back((number, message.map(Into::into)));
    }

    /// Drops the message that is missed least. Returns its length.
    fn drop_one(&mut self) -> Option<usize> {
        // A message that belongs to no request is missed less than a reply.
        let stream = if self.messages > self.of_requests.len() {
            let mut streams = self.streams.keys();
            *streams.find(|stream| is_standalone(**stream))?
        } else {
            self.of_requests.pop_first()?.1
        };
        let messages = self.streams.get_mut(&stream)?;
        let (_, message) = messages.pop_front()?;
        if messages.is_empty() {
            self.streams.remove(&stream);
        }
        self.messages -= 1;
        let lost = message.map_or(0, |message| message.len());
        self.bytes -= lost;
        Some(lost)
    }
}

impl MemoryEvents {
    /// An empty store with these limits.
    pub(crate) const fn new(replay: Replay) -> MemoryEvents {
        MemoryEvents {
            sessions: BTreeMap::new(),
            by_weight: BTreeSet::new(),
            replay,
            bytes: 0,
            let_go: BTreeMap::new(),
            times: 0,
            floor: 0,
        }
    }

    /// Counts that the kept bytes of a session changed from `before` to `now`.
    fn weigh(&mut self, session: Arc<str>, before: usize, now: usize) {
        self.bytes = self.bytes - before + now;
        let entry = (before, session);
        self.by_weight.remove(&entry);
        if now > 0 {
            self.by_weight.insert((now, entry.1));
        }
    }
}

impl MemoryEvents {
    /// Stores a message with this number, or else with the next number of the session. Returns its number. Numbers begin with 1, and grow in
    /// each stream. Those of a stream of requests have no gaps.
    pub(crate) fn append(
        &mut self,
        session: &str,
        stream: u64,
        number: Option<u64>,
        message: &str,
    ) -> u64 {
        let known = self.sessions.get_key_value(session);
        let session: Arc<str> = known.map_or_else(|| session.into(), |(known, _)| known.clone());
        let floor = self.floor;
        let new = || Kept {
            last: floor,
            ..Kept::default()
        };
        let kept = self.sessions.entry(session.clone()).or_insert_with(new);
        let before = kept.bytes;
        kept.last += 1;
        let number = number.unwrap_or(kept.last);
        // A message over the limit would displace all others. In a stream of requests, it is known that there was one.
        let fits = message.len() <= self.replay.bytes;
        if fits || !is_standalone(stream) {
            kept.keep(stream, number, fits.then_some(message));
        }
        while kept.messages > self.replay.events || kept.bytes > self.replay.bytes {
            if kept.drop_one().is_none() {
                break;
            }
        }
        let now = kept.bytes;
        self.weigh(session, before, now);
        // Beyond the limit for all sessions, the session that holds most loses messages.
        while self.bytes > self.replay.all_bytes {
            let Some((before, most)) = self.by_weight.last().cloned() else {
                break;
            };
            let kept = self.sessions.get_mut(&most);
            let Some(lost) = kept.and_then(Kept::drop_one) else {
                break;
            };
            self.weigh(most, before, before - lost);
        }
        number
    }

    /// Shows the messages of one stream after this number, in order, each with its number. Returns whether the stream can be resumed from
    /// there. A stream of which nothing is kept may never have existed.
    pub(crate) fn replay(
        &self,
        session: &str,
        stream: u64,
        after: u64,
        show: &mut dyn FnMut(u64, &str),
    ) -> bool {
        let Some(kept) = self.sessions.get(session) else {
            return false;
        };
        let Some(messages) = kept.streams.get(&stream) else {
            return false;
        };
        let start = messages.partition_point(|(number, _)| *number <= after);
        let (mut last, mut has_gap) = (after, false);
        for (number, message) in messages.range(start..) {
            has_gap |= message.is_none() || *number != last + 1;
            last = *number;
            if let Some(message) = message {
                show(*number, message);
            }
        }
        // The stream of a request cannot be resumed if a message is missing. The standalone stream can.
        is_standalone(stream) || !has_gap
    }

    /// Forgets a session that is over.
    pub(crate) fn forget(&mut self, session: &str) {
        if let Some((session, kept)) = self.sessions.remove_entry(session) {
            if let Some(place) = kept.place {
                self.let_go.remove(&place);
            }
            self.weigh(session, kept.bytes, 0);
        }
    }

    /// Notes that a session may never come back. Of more than `most` such sessions, the one that was let go first is forgotten.
    pub(crate) fn let_go(&mut self, session: &str, most: usize) {
        let Some((session, _)) = self.sessions.get_key_value(session) else {
            return;
        };
        let session = session.clone();
        if let Some(kept) = self.sessions.get_mut(&session) {
            if kept.place.is_none() {
                self.times += 1;
                kept.place = Some(self.times);
                self.let_go.insert(self.times, session);
            }
        }
        while self.let_go.len() > most {
            let Some((_, oldest)) = self.let_go.pop_first() else {
                break;
            };
            let last = self.sessions.get(&oldest).map_or(0, |kept| kept.last);
            self.floor = self.floor.max(last);
            self.forget(&oldest);
        }
    }

    /// Notes that a session came back, if it was let go.
    pub(crate) fn came_back(&mut self, session: &str) {
        let kept = self.sessions.get_mut(session);
        if let Some(place) = kept.and_then(|kept| kept.place.take()) {
            self.let_go.remove(&place);
        }
    }
}

/// Leaves out the messages.
impl fmt::Debug for MemoryEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryEvents")
            .field("sessions", &self.sessions.len())
            .field("replay", &self.replay)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;
    use core::time::Duration;

    use super::*;
    use crate::driver::LookupId;
    use crate::protocol::Version;
    use crate::server::binding::http::session::STANDALONE;

    fn replayed(store: &mut MemoryEvents, stream: u64, after: u64) -> (bool, Vec<(u64, String)>) {
        let mut shown = Vec::new();
        let is_known = store.replay("s", stream, after, &mut |number, message| {
            shown.push((number, message.into()));
        });
        (is_known, shown)
    }

    #[test]
    fn a_stream_is_replayed_after_a_number_and_no_other() {
        let mut store = MemoryEvents::new(Replay::new(8, 100));
        for (stream, number, message) in [(1, 1, "a"), (3, 1, "b"), (1, 2, "c")] {
            store.append("s", stream, Some(number), message);
        }
        store.append("t", 1, None, "of another session");
        assert_eq!(replayed(&mut store, 1, 1), (true, [(2, "c".into())].into()));
        assert_eq!(replayed(&mut store, 1, 2), (true, Vec::new()));
        assert_eq!(replayed(&mut store, 9, 0), (false, Vec::new()));
        store.forget("s");
        assert_eq!(replayed(&mut store, 1, 0), (false, Vec::new()));
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_or_too_much() {
        let mut store = MemoryEvents::new(Replay::new(2, 10));
        for message in ["one", "two", "three"] {
            store.append("s", 1, None, message);
        }
        let left = [(2, "two".into()), (3, "three".into())];
        assert_eq!(replayed(&mut store, 1, 1), (true, left.clone().into()));
        // A request's stream with a missing message cannot be resumed.
        assert_eq!(replayed(&mut store, 1, 0), (false, left.into()));
        store.append("s", 1, None, "123456");
        assert_eq!(replayed(&mut store, 1, 0).1, [(4, "123456".into())]);
        assert_eq!(store.append("s", 1, None, "more than ten bytes"), 5);
        assert_eq!(replayed(&mut store, 1, 4).1, []);
    }

    #[test]
    fn as_much_is_held_as_there_may_be() {
        let mut store = MemoryEvents::new(Replay::new(2, 6));
        store.append("s", 1, None, "one");
        store.append("s", 1, None, "two");
        let all = [(1, "one".into()), (2, "two".into())];
        assert_eq!(replayed(&mut store, 1, 0), (true, all.into()));
    }

    #[test]
    fn of_each_stream_it_is_known_that_it_has_a_gap() {
        let mut store = MemoryEvents::new(Replay::new(2, 100));
        for (stream, number) in [(1, 1), (3, 1), (1, 2), (3, 2)] {
            store.append("s", stream, Some(number), "a");
        }
        for stream in [1, 3] {
            assert!(!replayed(&mut store, stream, 0).0, "{stream}");
            assert!(replayed(&mut store, stream, 1).0, "{stream}");
        }
        // Also if it is the last message, and no other is kept.
        store.append("s", 1, Some(3), &"long".repeat(100));
        for (after, is_complete) in [(1, false), (2, false), (3, true)] {
            assert_eq!(replayed(&mut store, 1, after), (is_complete, Vec::new()));
        }
    }

    #[test]
    fn stream_with_two_gaps_cannot_be_resumed_before_either() {
        let mut store = MemoryEvents::new(Replay::new(8, 100));
        let long = "long".repeat(100);
        for message in ["a", &long, "b", &long, "c"] {
            store.append("s", 1, None, message);
        }
        for (after, is_complete) in [(0, false), (1, false), (3, false), (4, true)] {
            assert_eq!(replayed(&mut store, 1, after).0, is_complete, "{after}");
        }
    }

    #[test]
    fn what_all_sessions_say_together_has_an_end() {
        let mut store = MemoryEvents::new(Replay {
            all_bytes: 8,
            ..Replay::new(2, 6)
        });
        let messages = |store: &mut MemoryEvents, session: &str| {
            let mut messages = String::new();
            store.replay(session, 1, 0, &mut |_, message| messages.push_str(message));
            messages
        };
        // Messages that a session dropped, and those of a session that is over, free their bytes.
        for message in ["1", "2", "3", "4"] {
            store.append("s", 1, None, message);
        }
        store.append("over", 1, None, "123456");
        assert_eq!(messages(&mut store, "s"), "34");
        assert_eq!(messages(&mut store, "over"), "123456");
        store.forget("over");
        store.append("t", 1, None, "ab");
        store.append("t", 1, None, "cdef");
        assert_eq!(messages(&mut store, "s"), "34");
        assert_eq!(messages(&mut store, "t"), "abcdef", "as much as may be");
        // The session that holds most loses messages.
        store.append("s", 1, None, "5");
        assert_eq!(messages(&mut store, "s"), "45");
        store.append("u", 1, None, "xyz");
        assert_eq!(messages(&mut store, "s"), "45");
        assert_eq!(messages(&mut store, "t"), "");
        assert_eq!(messages(&mut store, "u"), "xyz");
        store.append("s", 1, None, "678");
        assert_eq!(messages(&mut store, "s"), "5678");
        assert_eq!(messages(&mut store, "u"), "xyz");
    }

    #[test]
    fn ids_and_messages_stay_out_of_what_is_shown() {
        let record = SessionRecord::new("secret", Version::LATEST_LEGACY);
        let mut sessions = MemorySessions::new(2);
        sessions.put(record.clone(), true);
        let mut events = MemoryEvents::new(Replay::default());
        events.append("secret", 1, None, "secret");
        for (shown, names) in [
            (format!("{record:?}"), "SessionRecord { version: "),
            (format!("{sessions:?}"), "MemorySessions { sessions: 1 }"),
            (format!("{events:?}"), "MemoryEvents { sessions: 1, "),
        ] {
            assert!(shown.starts_with(names), "{shown}");
            assert!(!shown.contains("secret"), "{shown}");
        }
    }

    #[test]
    fn sessions_are_held_up_to_a_number() {
        let mut store = MemorySessions::new(2);
        let record = |id: &str| SessionRecord::new(id, Version::LATEST_LEGACY);
        for id in ["a", "b", "a", "c"] {
            assert!(store.put(record(id), true));
        }
        let mut find = |id: &str, remove: bool| {
            if remove {
                store.remove(id);
            }
            store.claim(id, 0, |_| true)
        };
        assert_eq!(find("a", false), None);
        assert_eq!(find("b", false), Some(record("b")));
        assert_eq!(find("b", true), None);
        assert_eq!(find("c", false), Some(record("c")));
    }

    #[test]
    fn session_that_is_over_or_has_another_home_is_not_stored_again() {
        let mut store = MemorySessions::new(2);
        let record = |home| SessionRecord {
            home,
            ..SessionRecord::new("a", Version::LATEST_LEGACY)
        };
        assert!(!store.put(record(1), false), "it is not there");
        assert!(store.put(record(1), true) && store.put(record(1), false));
        assert_eq!(store.claim("a", 2, |_| true), Some(record(1)));
        assert_eq!(store.claim("a", 2, |_| false), Some(record(2)));
        assert!(!store.put(record(1), false), "its home is another");
        store.remove("a");
        assert!(!store.put(record(2), false), "it is over");
    }

    /// The session that holds most is found by this index, so it must agree with what is kept.
    fn check_weights(store: &MemoryEvents) {
        let kept = store.sessions.iter();
        let heavy = kept.filter(|(_, kept)| kept.bytes > 0);
        let weights = heavy.map(|(session, kept)| (kept.bytes, session.clone()));
        let weights: BTreeSet<_> = weights.collect();
        assert_eq!(store.by_weight, weights);
        let bytes = store.sessions.values().map(|kept| kept.bytes);
        assert_eq!(store.bytes, bytes.sum::<usize>());
        assert!(store.bytes <= store.replay.all_bytes);
    }

    #[test]
    fn sessions_are_found_by_the_bytes_that_they_hold() {
        let mut store = MemoryEvents::new(Replay {
            all_bytes: 100,
            ..Replay::new(4, 60)
        });
        for round in 0..200_usize {
            let session = ["s", "t", "u", "v"][round % 4];
            let message = "x".repeat(round * 7 % 50);
            store.append(session, (round % 3) as u64, None, &message);
            check_weights(&store);
            if round % 17 == 0 {
                store.forget(session);
                check_weights(&store);
            }
        }
        store.append("empty", 1, None, "");
        check_weights(&store);
    }

    #[test]
    fn replies_are_dropped_when_no_other_messages_are_left() {
        let mut store = MemoryEvents::new(Replay::new(2, 100));
        for (stream, message) in [(STANDALONE, "a"), (1, "b"), (1, "c"), (1, "d")] {
            store.append("s", stream, None, message);
        }
        let left = [(3, "c".into()), (4, "d".into())];
        assert_eq!(replayed(&mut store, 1, 2), (true, left.into()));
        // Nothing is kept of this stream, so it may never have existed.
        assert_eq!(replayed(&mut store, STANDALONE, 1), (false, Vec::new()));
    }

    #[test]
    fn removed_session_takes_no_place() {
        let mut store = MemorySessions::new(2);
        let record = |id: &str| SessionRecord::new(id, Version::LATEST_LEGACY);
        for id in ["a", "b"] {
            assert!(store.put(record(id), true));
        }
        store.remove("a");
        for id in ["c", "d"] {
            assert!(store.put(record(id), true));
        }
        let ids: Vec<&str> = store.records.keys().map(|id| &**id).collect();
        assert_eq!(ids, ["c", "d"], "the oldest is dropped");
    }

    #[test]
    fn server_that_came_back_keeps_its_sessions() {
        let mut store = MemoryStore::new(2, Replay::default());
        let record = SessionRecord {
            home: 1,
            ..SessionRecord::new("a", Version::LATEST_LEGACY)
        };
        store.carry_out(1, StoreRequest::Leave);
        store.sessions.put(record.clone(), true);
        store.leave(1);
        // Any request registers the server again.
        store.carry_out(
            1,
            StoreRequest::Forget {
                session: "x".into(),
            },
        );
        let lookup = LookupId::from_number(1);
        let session = "a".into();
        let found = store.carry_out(2, StoreRequest::Find { lookup, session });
        let expected = StoreAnswer::Session(Some(Box::new(record)));
        let Some(Input::Stored { answer, .. }) = found else {
            panic!("no answer");
        };
        assert_eq!(answer, expected);
    }

    #[test]
    fn forgotten_session_is_not_replayed() {
        let mut store = MemoryStore::new(2, Replay::default());
        store.events.append("a", 1, None, "message");
        let session = "a".into();
        assert!(
            store
                .carry_out(1, StoreRequest::Forget { session })
                .is_none()
        );
        assert!(store.events.sessions.is_empty());
    }

    /// A session that was let go may come back: its messages are still there, or else its numbers go on beyond them.
    #[test]
    fn sessions_that_were_let_go_are_bounded_and_no_number_comes_twice() {
        let mut events = MemoryEvents::new(Replay::default());
        for n in 0..100 {
            let session = format!("{n}");
            let number = events.append(&session, 0, None, "a");
            events.append(&session, 0, None, "b");
            assert!(n < 9 || number > 2);
            events.let_go(&session, 8);
            events.let_go(&session, 8);
            assert!(events.sessions.len() <= 9);
        }
        events.came_back("99");
        events.came_back("98");
        events.forget("97");
        for n in 100..120 {
            let session = format!("{n}");
            events.append(&session, 0, None, "a");
            events.let_go(&session, 8);
        }
        assert_eq!((events.sessions.len(), events.let_go.len()), (10, 8));
        assert!(events.append("0", 0, None, "c") > 2);
    }

    #[test]
    fn messages_of_a_session_leave_the_store_with_it() {
        let mut store = MemoryStore::new(2, Replay::default());
        let append = |store: &mut MemoryStore, session: &str| {
            let append = StoreRequest::Append {
                session: session.into(),
                stream: 0,
                number: 1,
                message: "a".into(),
                keep: Duration::MAX,
            };
            assert!(store.carry_out(1, append).is_none());
        };
        for n in 0..10 {
            let session = format!("{n}");
            let record = SessionRecord::new(&*session, Version::V2025_11_25);
            let put = StoreRequest::Put {
                lookup: None,
                record: Box::new(record),
                is_new: true,
                keep: Duration::MAX,
            };
            store.carry_out(1, put);
            append(&mut store, &session);
            assert!(store.events.sessions.len() <= 2);
        }
        // Servers may go on to write to sessions that were dropped.
        for n in 0..10 {
            append(&mut store, &format!("{n}"));
        }
        assert_eq!(store.events.sessions.len(), 4);
    }
}
