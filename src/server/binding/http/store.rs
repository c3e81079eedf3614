//! Stores for sessions and for the messages that were sent in them: the traits, and stores in memory. Knows no exchange.
//!
//! A single server needs no other stores. Where several servers share one address, each looks up unknown sessions in a shared store.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use core::fmt;

use crate::protocol::{ClientCapabilities, Implementation, LogLevel, Version};
use crate::server::binding::http::config::Replay;
use crate::server::binding::http::session::STANDALONE;

/// Everything that another server needs to continue the session of a legacy client.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionRecord {
    /// The id that the client names in `Mcp-Session-Id`. It is a secret.
    pub id: Box<str>,
    /// The version that was agreed on.
    pub version: Version,
    /// The name and version that the client gave.
    pub client: Option<Implementation>,
    /// The capabilities of the client.
    pub capabilities: ClientCapabilities,
    /// The user that the session belongs to. No other user may use it.
    pub user: Option<Box<str>>,
    /// The lowest level of log messages that the client chose, if any.
    pub log_level: Option<LogLevel>,
    /// The URIs that the client subscribed to.
    pub uris: BTreeSet<Box<str>>,
    /// Whether the client sent `notifications/initialized`.
    pub is_initialized: bool,
}

impl SessionRecord {
    /// A session with this id and version, and nothing else.
    pub fn new(id: impl Into<Box<str>>, version: Version) -> SessionRecord {
        SessionRecord {
            id: id.into(),
            version,
            client: None,
            capabilities: ClientCapabilities::default(),
            user: None,
            log_level: None,
            uris: BTreeSet::new(),
            is_initialized: false,
        }
    }
}

/// Leaves out the id, because it gives access to the session.
impl fmt::Debug for SessionRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionRecord")
            .field("version", &self.version)
            .field("client", &self.client)
            .field("is_initialized", &self.is_initialized)
            .finish_non_exhaustive()
    }
}

/// A store for sessions. It handles its own failures: a session whose record it does not return is over.
pub trait SessionStore: Send {
    /// Stores the present state of a session.
    fn put(&mut self, record: &SessionRecord);

    /// Returns the session with this id, if there is one.
    fn get(&mut self, id: &str) -> Option<SessionRecord>;

    /// Removes a session.
    fn remove(&mut self, id: &str);

    /// Whether other servers use the store, too. If so, each request in a session queries it, and a session that is idle at one server
    /// stays in it. The store itself must then expire sessions. Default: no.
    fn is_shared(&self) -> bool {
        false
    }
}

/// A store for the messages that were sent in sessions, for replay.
///
/// Each message belongs to one stream of its session. Its number is unique in the session and greater than those of earlier messages.
/// Numbers begin with 1.
pub trait EventStore: Send {
    /// Stores a message and returns its number.
    fn append(&mut self, session: &str, stream: u64, message: &str) -> u64;

    /// Shows the messages of one stream after this number, in order, each with its number. Returns whether the store knows the stream. A
    /// stream of which nothing is kept may never have existed.
    fn replay(
        &mut self,
        session: &str,
        stream: u64,
        after: u64,
        show: &mut dyn FnMut(u64, &str),
    ) -> bool;

    /// Forgets a session that is over.
    fn forget(&mut self, session: &str);
}

/// Sessions in memory, up to a number. Beyond it, the session that was stored first is dropped.
pub struct MemorySessions {
    records: BTreeMap<Box<str>, (u64, SessionRecord)>,
    /// The ids in the order in which they were first stored.
    order: BTreeMap<u64, Box<str>>,
    next: u64,
    most: usize,
}

impl MemorySessions {
    /// An empty store for at most `most` sessions.
    #[must_use]
    pub const fn new(most: usize) -> MemorySessions {
        MemorySessions {
            records: BTreeMap::new(),
            order: BTreeMap::new(),
            next: 0,
            most,
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

impl SessionStore for MemorySessions {
    fn put(&mut self, record: &SessionRecord) {
        if let Some((_, known)) = self.records.get_mut(&record.id) {
            *known = record.clone();
            return;
        }
        self.order.insert(self.next, record.id.clone());
        let entry = (self.next, record.clone());
        self.records.insert(record.id.clone(), entry);
        self.next += 1;
        if self.records.len() > self.most {
            if let Some((_, oldest)) = self.order.pop_first() {
                self.records.remove(&oldest);
            }
        }
    }

    fn get(&mut self, id: &str) -> Option<SessionRecord> {
        self.records.get(id).map(|(_, record)| record.clone())
    }

    fn remove(&mut self, id: &str) {
        if let Some((place, _)) = self.records.remove(id) {
            self.order.remove(&place);
        }
    }
}

/// The messages of sessions, in memory: the newest of each session, up to a number and a size.
pub struct MemoryEvents {
    sessions: BTreeMap<Arc<str>, Kept>,
    /// The sessions of which messages are kept, ordered by bytes.
    by_weight: BTreeSet<(usize, Arc<str>)>,
    replay: Replay,
    /// Bytes of all kept messages.
    bytes: usize,
}

/// The messages of one session.
#[derive(Default)]
struct Kept {
    last: u64,
    /// The kept messages of each stream, with their numbers.
    streams: BTreeMap<u64, VecDeque<(u64, Box<str>)>>,
    /// The streams of the kept messages that belong to requests, by message number.
    of_requests: BTreeMap<u64, u64>,
    /// The number of kept messages.
    messages: usize,
    bytes: usize,
    /// The last dropped message of each stream, for the last `GAPS_KNOWN` streams that have one.
    gaps: VecDeque<(u64, u64)>,
}

impl Kept {
    fn keep(&mut self, stream: u64, number: u64, message: &str) {
        self.bytes += message.len();
        self.messages += 1;
        if stream != STANDALONE {
            self.of_requests.insert(number, stream);
        }
        let messages = self.streams.entry(stream).or_default();
        messages.push_back((number, message.into()));
    }

    /// Drops the message that is missed least. Returns its length.
    fn drop_one(&mut self) -> Option<usize> {
        // A message that belongs to no request is missed less than a reply.
        let stream = if self.streams.contains_key(&STANDALONE) {
            STANDALONE
        } else {
            self.of_requests.pop_first()?.1
        };
        let messages = self.streams.get_mut(&stream)?;
        let (number, message) = messages.pop_front()?;
        if messages.is_empty() {
            self.streams.remove(&stream);
        }
        self.messages -= 1;
        self.bytes -= message.len();
        self.note_gap(stream, number);
        Some(message.len())
    }

    fn note_gap(&mut self, stream: u64, number: u64) {
        // Most streams have one message.
        if let Some(at) = self.gaps.iter().position(|(of, _)| *of == stream) {
            self.gaps.remove(at);
        } else if self.gaps.len() >= GAPS_KNOWN {
            self.gaps.pop_front();
        }
        self.gaps.push_back((stream, number));
    }
}

/// The number of streams of a session for which the last dropped message is remembered.
const GAPS_KNOWN: usize = 64;

impl MemoryEvents {
    /// An empty store with these limits.
    #[must_use]
    pub const fn new(replay: Replay) -> MemoryEvents {
        MemoryEvents {
            sessions: BTreeMap::new(),
            by_weight: BTreeSet::new(),
            replay,
            bytes: 0,
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

impl EventStore for MemoryEvents {
    fn append(&mut self, session: &str, stream: u64, message: &str) -> u64 {
        let known = self.sessions.get_key_value(session);
        let session: Arc<str> = known.map_or_else(|| session.into(), |(known, _)| known.clone());
        let kept = self.sessions.entry(session.clone()).or_default();
        let before = kept.bytes;
        kept.last += 1;
        let number = kept.last;
        // A message over the limit would displace all others.
        if message.len() <= self.replay.bytes {
            kept.keep(stream, number, message);
        } else {
            kept.note_gap(stream, number);
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

    fn replay(
        &mut self,
        session: &str,
        stream: u64,
        after: u64,
        show: &mut dyn FnMut(u64, &str),
    ) -> bool {
        let Some(kept) = self.sessions.get(session) else {
            return false;
        };
        let mut gone = kept.gaps.iter();
        let has_gap = gone.any(|(of, number)| *of == stream && *number > after);
        let Some(messages) = kept.streams.get(&stream) else {
            return false;
        };
        let start = messages.partition_point(|(number, _)| *number <= after);
        for (number, message) in messages.range(start..) {
            show(*number, message);
        }
        // The stream of a request cannot be resumed if a message is missing. The standalone stream can.
        stream == STANDALONE || !has_gap
    }

    fn forget(&mut self, session: &str) {
        if let Some((session, kept)) = self.sessions.remove_entry(session) {
            self.weigh(session, kept.bytes, 0);
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

    use super::*;

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
        for (stream, message) in [(1, "a"), (2, "b"), (1, "c")] {
            store.append("s", stream, message);
        }
        store.append("t", 1, "of another session");
        assert_eq!(replayed(&mut store, 1, 1), (true, [(3, "c".into())].into()));
        assert_eq!(replayed(&mut store, 1, 3), (true, Vec::new()));
        assert_eq!(replayed(&mut store, 9, 0), (false, Vec::new()));
        store.forget("s");
        assert_eq!(replayed(&mut store, 1, 0), (false, Vec::new()));
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_or_too_much() {
        let mut store = MemoryEvents::new(Replay::new(2, 10));
        for message in ["one", "two", "three"] {
            store.append("s", 1, message);
        }
        let left = [(2, "two".into()), (3, "three".into())];
        assert_eq!(replayed(&mut store, 1, 1), (true, left.clone().into()));
        // A request's stream with a missing message cannot be resumed.
        assert_eq!(replayed(&mut store, 1, 0), (false, left.into()));
        store.append("s", 1, "123456");
        assert_eq!(replayed(&mut store, 1, 0).1, [(4, "123456".into())]);
        assert_eq!(store.append("s", 1, "more than ten bytes"), 5);
        assert_eq!(replayed(&mut store, 1, 4).1, []);
    }

    #[test]
    fn as_much_is_held_as_there_may_be() {
        let mut store = MemoryEvents::new(Replay::new(2, 6));
        store.append("s", 1, "one");
        store.append("s", 1, "two");
        let all = [(1, "one".into()), (2, "two".into())];
        assert_eq!(replayed(&mut store, 1, 0), (true, all.into()));
    }

    #[test]
    fn of_each_stream_it_is_known_that_it_has_a_gap() {
        let mut store = MemoryEvents::new(Replay::new(2, 100));
        for (stream, message) in [(1, "a"), (2, "b"), (1, "c"), (2, "d")] {
            store.append("s", stream, message);
        }
        for (stream, last) in [(1, 1), (2, 2)] {
            assert!(!replayed(&mut store, stream, 0).0, "{stream}");
            assert!(replayed(&mut store, stream, last).0, "{stream}");
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
            store.append("s", 1, message);
        }
        store.append("over", 1, "123456");
        assert_eq!(messages(&mut store, "s"), "34");
        assert_eq!(messages(&mut store, "over"), "123456");
        store.forget("over");
        store.append("t", 1, "ab");
        store.append("t", 1, "cdef");
        assert_eq!(messages(&mut store, "s"), "34");
        assert_eq!(messages(&mut store, "t"), "abcdef", "as much as may be");
        // The session that holds most loses messages.
        store.append("s", 1, "5");
        assert_eq!(messages(&mut store, "s"), "45");
        store.append("u", 1, "xyz");
        assert_eq!(messages(&mut store, "s"), "45");
        assert_eq!(messages(&mut store, "t"), "");
        assert_eq!(messages(&mut store, "u"), "xyz");
        store.append("s", 1, "678");
        assert_eq!(messages(&mut store, "s"), "5678");
        assert_eq!(messages(&mut store, "u"), "xyz");
    }

    #[test]
    fn ids_and_messages_stay_out_of_what_is_shown() {
        let record = SessionRecord::new("secret", Version::LATEST_LEGACY);
        let mut sessions = MemorySessions::new(2);
        sessions.put(&record);
        let mut events = MemoryEvents::new(Replay::default());
        events.append("secret", 1, "secret");
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
            store.put(&record(id));
        }
        assert_eq!(store.get("a"), None);
        assert_eq!(store.get("b"), Some(record("b")));
        store.remove("b");
        assert_eq!(store.get("b"), None);
        assert_eq!(store.get("c"), Some(record("c")));
    }
}
