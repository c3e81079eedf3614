//! Where sessions and what was said in them are held: the traits, and stores in memory. Knows no exchange.
//!
//! A single server needs nothing but these. Where several serve one address, each asks a shared store for what it does not know.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use core::fmt;

use super::config::Replay;
use super::session::STANDALONE;
use crate::protocol::{ClientCapabilities, Implementation, LogLevel, Version};

/// All that there is to know of a legacy client, so that another server can go on with it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionRecord {
    /// What the client names in `Mcp-Session-Id`. A secret.
    pub id: Box<str>,
    /// The version that was agreed on.
    pub version: Version,
    /// Who the client says it is.
    pub client: Option<Implementation>,
    /// What it can be asked.
    pub capabilities: ClientCapabilities,
    /// Whom the session belongs to. Nobody else gets into it.
    pub user: Option<Box<str>>,
    /// From which level on it wants log messages, if it said so.
    pub log_level: Option<LogLevel>,
    /// What it subscribed to.
    pub uris: BTreeSet<Box<str>>,
    /// Whether it said that its handshake is over.
    pub is_initialized: bool,
}

impl SessionRecord {
    /// A session of this id and version, in which nothing was chosen yet.
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

/// The id stays out: whoever has it is in the session.
impl fmt::Debug for SessionRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionRecord")
            .field("version", &self.version)
            .field("client", &self.client)
            .field("is_initialized", &self.is_initialized)
            .finish_non_exhaustive()
    }
}

/// Where sessions are held. What fails in it is its own business: a record that it does not have is a session that is over.
pub trait SessionStore: Send {
    /// This is how a session stands now.
    fn put(&mut self, record: &SessionRecord);

    /// How the session with this id stands, if there is one.
    fn get(&mut self, id: &str) -> Option<SessionRecord>;

    /// There is no such session any more.
    fn remove(&mut self, id: &str);

    /// Whether other servers use it, too. Then it is asked about every session each time, a session that is idle at one of them is not
    /// over for that, and the store itself forgets those that are. No, where nothing else is said.
    fn is_shared(&self) -> bool {
        false
    }
}

/// Where what was said in sessions is held until it is heard.
///
/// Each message belongs to one stream of its session and has a number that no other message of the session has; later messages have
/// greater ones. Numbers begin with 1.
pub trait EventStore: Send {
    /// Holds a message, and gives its number.
    fn append(&mut self, session: &str, stream: u64, message: &str) -> u64;

    /// Shows the messages of one stream that came after this number, in order, each with its own. Whether the store knows of the stream at
    /// all: one of which nothing is held may never have been.
    fn replay(
        &mut self,
        session: &str,
        stream: u64,
        after: u64,
        show: &mut dyn FnMut(u64, &str),
    ) -> bool;

    /// The session is over.
    fn forget(&mut self, session: &str);
}

/// Sessions in memory, up to a number; beyond it the one that was put first goes.
pub struct MemorySessions {
    records: BTreeMap<Box<str>, (u64, SessionRecord)>,
    /// The ids in the order in which they were put first.
    order: BTreeMap<u64, Box<str>>,
    next: u64,
    most: usize,
}

impl MemorySessions {
    /// None yet, and never more than so many.
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

/// Ids stay out.
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

/// What was said in sessions, in memory: the newest of each session, up to a number and a size.
pub struct MemoryEvents {
    sessions: BTreeMap<Arc<str>, Said>,
    /// Those of which something is held, by how many bytes.
    by_weight: BTreeSet<(usize, Arc<str>)>,
    replay: Replay,
    /// Bytes of all that is held.
    bytes: usize,
}

/// What was said in one session.
#[derive(Default)]
struct Said {
    last: u64,
    /// What is held of each stream, with the numbers.
    streams: BTreeMap<u64, VecDeque<(u64, Box<str>)>>,
    /// The streams of requests of which it is, by the numbers.
    of_requests: BTreeMap<u64, u64>,
    /// How many are held.
    held: usize,
    bytes: usize,
    /// The last message of each stream that is not held (any more); of the last few streams of which there is one.
    gone: VecDeque<(u64, u64)>,
}

impl Said {
    fn hold(&mut self, stream: u64, number: u64, message: &str) {
        self.bytes += message.len();
        self.held += 1;
        if stream != STANDALONE {
            self.of_requests.insert(number, stream);
        }
        let held = self.streams.entry(stream).or_default();
        held.push_back((number, message.into()));
    }

    /// The one that is missed least is not held any more. How long it was.
    fn drop_one(&mut self) -> Option<usize> {
        // What belongs to no request is rather missed than an answer.
        let stream = if self.streams.contains_key(&STANDALONE) {
            STANDALONE
        } else {
            self.of_requests.pop_first()?.1
        };
        let held = self.streams.get_mut(&stream)?;
        let (number, message) = held.pop_front()?;
        if held.is_empty() {
            self.streams.remove(&stream);
        }
        self.held -= 1;
        self.bytes -= message.len();
        self.lose(stream, number);
        Some(message.len())
    }

    fn lose(&mut self, stream: u64, number: u64) {
        // Most streams have one message.
        if let Some(at) = self.gone.iter().position(|(of, _)| *of == stream) {
            self.gone.remove(at);
        } else if self.gone.len() >= GAPS_KNOWN {
            self.gone.pop_front();
        }
        self.gone.push_back((stream, number));
    }
}

/// Of so many streams of a session it is known that something of them is not held.
const GAPS_KNOWN: usize = 64;

impl MemoryEvents {
    /// Nothing yet, and never more than this of one session.
    #[must_use]
    pub const fn new(replay: Replay) -> MemoryEvents {
        MemoryEvents {
            sessions: BTreeMap::new(),
            by_weight: BTreeSet::new(),
            replay,
            bytes: 0,
        }
    }

    /// As many bytes of a session were held, and as many are now.
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
        let said = self.sessions.entry(session.clone()).or_default();
        let before = said.bytes;
        said.last += 1;
        let number = said.last;
        // Were it held, nothing else would be.
        if message.len() <= self.replay.bytes {
            said.hold(stream, number, message);
        } else {
            said.lose(stream, number);
        }
        while said.held > self.replay.events || said.bytes > self.replay.bytes {
            if said.drop_one().is_none() {
                break;
            }
        }
        let now = said.bytes;
        self.weigh(session, before, now);
        // Where there is too much in all, it is that of whoever has most.
        while self.bytes > self.replay.all_bytes {
            let Some((before, most)) = self.by_weight.last().cloned() else {
                break;
            };
            let said = self.sessions.get_mut(&most);
            let Some(lost) = said.and_then(Said::drop_one) else {
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
        let Some(said) = self.sessions.get(session) else {
            return false;
        };
        let mut gone = said.gone.iter();
        let has_gap = gone.any(|(of, number)| *of == stream && *number > after);
        let Some(held) = said.streams.get(&stream) else {
            return false;
        };
        let start = held.partition_point(|(number, _)| *number <= after);
        for (number, message) in held.range(start..) {
            show(*number, message);
        }
        // Of a stream that has an end, a part is nothing to go on with.
        stream == STANDALONE || !has_gap
    }

    fn forget(&mut self, session: &str) {
        if let Some((session, said)) = self.sessions.remove_entry(session) {
            self.weigh(session, said.bytes, 0);
        }
    }
}

/// What was said stays out.
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
        // A part of it is nothing to go on with.
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
        let held = |store: &mut MemoryEvents, session: &str| {
            let mut held = String::new();
            store.replay(session, 1, 0, &mut |_, message| held.push_str(message));
            held
        };
        // What one session lost, or one that is over held, leaves room for others.
        for message in ["1", "2", "3", "4"] {
            store.append("s", 1, message);
        }
        store.append("over", 1, "123456");
        assert_eq!(held(&mut store, "s"), "34");
        assert_eq!(held(&mut store, "over"), "123456");
        store.forget("over");
        store.append("t", 1, "ab");
        store.append("t", 1, "cdef");
        assert_eq!(held(&mut store, "s"), "34");
        assert_eq!(held(&mut store, "t"), "abcdef", "as much as may be");
        // Whoever has most loses it.
        store.append("s", 1, "5");
        assert_eq!(held(&mut store, "s"), "45");
        store.append("u", 1, "xyz");
        assert_eq!(held(&mut store, "s"), "45");
        assert_eq!(held(&mut store, "t"), "");
        assert_eq!(held(&mut store, "u"), "xyz");
        store.append("s", 1, "678");
        assert_eq!(held(&mut store, "s"), "5678");
        assert_eq!(held(&mut store, "u"), "xyz");
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
