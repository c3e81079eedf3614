//! The sessions of legacy clients over HTTP: the id, the owner and the streams of each. Does not depend on messages or exchanges.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::Hasher;

use crate::driver::{Instant, StreamId};
use crate::protocol::Version;
use crate::server::binding::http::config::{EventStorage, Storage};
use crate::server::origin::SessionKey;
use crate::util::digest;

/// The name, in event ids, of the standalone stream of a session that only this server serves. The stream belongs to no request.
pub(crate) const STANDALONE: u64 = 0;

/// Whether this is the name of a standalone stream. Only the names of standalone streams are even.
pub(crate) const fn is_standalone(name: u64) -> bool {
    name % 2 == 0
}

pub(crate) struct Session {
    pub(crate) id: Box<str>,
    /// The user that it belongs to.
    pub(crate) user: Option<Box<str>>,
    /// Whether it uses the transport of 2024-11-05. Such a session has one stream, and ends with it.
    pub(crate) is_sse: bool,
    /// The version that was agreed on, once it was.
    pub(crate) version: Option<Version>,
    /// Whether the client sent `notifications/initialized`.
    pub(crate) is_initialized: bool,
    /// Whether a request was ever made in it.
    pub(crate) is_used: bool,
    /// The streams with unanswered requests, by their names in event ids, with the numbers of their last events.
    streams: BTreeMap<u64, (StreamId, u64)>,
    /// The idle deadline. The session is checked no later than then.
    pub(crate) ends: Instant,
    /// The name of the standalone stream in event ids.
    pub(crate) standalone: u64,
    /// The number of the last event that was written to the standalone stream.
    pub(crate) last_written: u64,
    /// The number of the last event of the standalone stream that was given to the driver's store.
    pub(crate) last_standalone: u64,
    /// When the driver's store was last told to keep the session. `None` if this server did not tell it yet.
    pub(crate) kept_at: Option<Instant>,
    /// Whether it may have another home or be over: the store refused its record, or the lease of this server was over. The next request asks the
    /// store.
    pub(crate) is_doubtful: bool,
}

impl Session {
    /// Returns the number of the next event of a stream of requests, or of a stream that the driver's store keeps. The numbers have no gaps.
    pub(crate) fn next_number(&mut self, name: u64) -> Option<u64> {
        let last = if name == self.standalone {
            &mut self.last_standalone
        } else {
            &mut self.streams.get_mut(&name)?.1
        };
        *last += 1;
        Some(*last)
    }

    /// Whether it has unanswered requests.
    pub(crate) fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }
}

pub(crate) struct SessionTable {
    table: BTreeMap<SessionKey, Session>,
    by_id: BTreeMap<Box<str>, SessionKey>,
    /// The session and the name of each stream of requests.
    by_stream: BTreeMap<StreamId, (SessionKey, u64)>,
    last: SessionKey,
    secret: (u64, u64),
    /// The number of this server among those that use the same store.
    instance: Option<u32>,
    /// The number of names that were given to streams whose messages the driver keeps.
    last_name: u64,
    /// Whether the driver keeps the messages. Another server may then have used the same session before, so that all names of streams must
    /// be those of this server alone.
    keeps_events_outside: bool,
}

impl SessionTable {
    pub(crate) fn new(secret: [u8; 16], storage: Storage) -> SessionTable {
        let both = u128::from_le_bytes(secret);
        let storage = match storage {
            Storage::Memory => None,
            Storage::Driver(storage) => Some(storage),
        };
        SessionTable {
            table: BTreeMap::new(),
            by_id: BTreeMap::new(),
            by_stream: BTreeMap::new(),
            last: SessionKey::DUPLEX,
            secret: (both as u64, (both >> 64) as u64),
            instance: storage.map(|storage| storage.instance),
            last_name: 0,
            keeps_events_outside: storage
                .is_some_and(|storage| storage.events == EventStorage::Driver),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns a key that no session had.
    pub(crate) fn next_key(&mut self) -> SessionKey {
        self.last = self.last.next();
        self.last
    }

    /// Returns an id of 128 bits that cannot be guessed (S-SESS-02).
    pub(crate) fn new_id(&self, key: SessionKey) -> Box<str> {
        let half = |which| self.number("session", key.number(), which);
        format!("{:016x}{:016x}", half(0), half(1)).into()
    }

    pub(crate) fn open(&mut self, key: SessionKey, id: Box<str>, user: Option<Box<str>>) {
        self.by_id.insert(id.clone(), key);
        // If this server keeps the messages, the name stays the same when the session comes back, so that they can be resumed.
        let own = self
            .instance
            .map_or(STANDALONE, |instance| u64::from(instance) << 32);
        let standalone = self.next_name().unwrap_or(own);
        let session = Session {
            id,
            user,
            is_sse: false,
            version: None,
            is_initialized: false,
            is_used: false,
            streams: BTreeMap::new(),
            ends: Instant::ZERO,
            standalone,
            last_written: 0,
            last_standalone: 0,
            kept_at: None,
            is_doubtful: false,
        };
        self.table.insert(key, session);
    }

    /// Lets the next request of each session ask the store.
    pub(crate) fn doubt_all(&mut self) {
        for session in self.table.values_mut() {
            session.is_doubtful = true;
        }
    }

    pub(crate) fn get(&self, key: SessionKey) -> Option<&Session> {
        self.table.get(&key)
    }

    pub(crate) fn get_mut(&mut self, key: SessionKey) -> Option<&mut Session> {
        self.table.get_mut(&key)
    }

    pub(crate) fn find(&self, id: &str) -> Option<SessionKey> {
        self.by_id.get(id).copied()
    }

    /// Removes a session and returns it.
    pub(crate) fn close(&mut self, key: SessionKey) -> Option<Session> {
        let session = self.table.remove(&key)?;
        self.by_id.remove(&session.id);
        for (stream, _) in session.streams.values() {
            self.by_stream.remove(stream);
        }
        Some(session)
    }

    /// Adds a stream for the replies to requests.
    pub(crate) fn begin_stream(&mut self, key: SessionKey, stream: StreamId) {
        let name = self.next_name();
        let name = name.unwrap_or_else(|| self.number("stream", stream.number(), 0)) | 1;
        if let Some(session) = self.table.get_mut(&key) {
            session.streams.insert(name, (stream, 0));
            self.by_stream.insert(stream, (key, name));
        }
    }

    /// Makes `stream` the replay of a stream whose requests are answered.
    pub(crate) fn replay_on(&mut self, key: SessionKey, name: u64, stream: StreamId) {
        self.by_stream.insert(stream, (key, name));
    }

    /// Removes a stream whose requests are answered.
    pub(crate) fn end_stream(&mut self, stream: StreamId) {
        let Some((key, name)) = self.by_stream.remove(&stream) else {
            return;
        };
        if let Some(session) = self.table.get_mut(&key) {
            if session.streams.get(&name).map(|of| of.0) == Some(stream) {
                session.streams.remove(&name);
            }
        }
    }

    /// The session that a stream belongs to, and its name there.
    pub(crate) fn of(&self, stream: StreamId) -> Option<(SessionKey, u64)> {
        self.by_stream.get(&stream).copied()
    }

    /// The stream of this name, if it has unanswered requests.
    pub(crate) fn stream(&self, key: SessionKey, name: u64) -> Option<StreamId> {
        self.table.get(&key)?.streams.get(&name).map(|of| of.0)
    }

    /// Returns the streams of a session that carry its unanswered requests. Empty if there is no such session.
    pub(crate) fn streams(&self, key: SessionKey) -> Vec<StreamId> {
        let session = self.table.get(&key);
        session.map_or_else(Vec::new, |s| s.streams.values().map(|of| of.0).collect())
    }

    /// Returns an even name that no other stream has in any server with the same store. `None` if this server keeps the messages.
    fn next_name(&mut self) -> Option<u64> {
        let instance = self.instance.filter(|_| self.keeps_events_outside)?;
        self.last_name += 1;
        Some(u64::from(instance) << 32 | (self.last_name << 1) & 0xffff_ffff)
    }

    /// Whether another server gave a stream this name.
    pub(crate) fn is_foreign(&self, name: u64) -> bool {
        let instance = self.instance.filter(|_| self.keeps_events_outside);
        instance.is_some_and(|instance| name >> 32 != u64::from(instance))
    }

    /// Returns a number that cannot be guessed, for one of several uses.
    fn number(&self, what: &str, which: u64, part: u64) -> u64 {
        let mut hash = digest::keyed(self.secret);
        hash.write(what.as_bytes());
        if let Some(instance) = self.instance {
            hash.write_u64(u64::from(instance));
        }
        hash.write_u64(which);
        hash.write_u64(part);
        hash.finish()
    }
}

/// The id of an event: the name of its stream, and its number (S-RES-01, S-RES-02).
pub(crate) fn event_id(stream: u64, number: u64) -> String {
    let mut id = String::with_capacity(24);
    push_digits::<16>(&mut id, stream);
    id.push('-');
    push_digits::<10>(&mut id, number);
    id
}

/// Appends a number in this base. Every event has an id, so this avoids the cost of `core::fmt`.
fn push_digits<const BASE: u64>(text: &mut String, number: u64) {
    let (mut digits, mut left) = ([b'0'; 20], number);
    let mut start = digits.len();
    while left > 0 || start == digits.len() {
        start -= 1;
        digits[start] = b"0123456789abcdef"[(left % BASE) as usize];
        left /= BASE;
    }
    text.push_str(core::str::from_utf8(&digits[start..]).unwrap_or_default());
}

/// Parses the id of an event.
pub(crate) fn read_event_id(id: &str) -> Option<(u64, u64)> {
    let (stream, number) = id.split_once('-')?;
    Some((u64::from_str_radix(stream, 16).ok()?, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::binding::http::config::DriverStorage;

    #[test]
    fn ids_are_128_bits_of_visible_text_and_differ_by_number_instance_and_secret() {
        let table = |secret, instance: Option<u32>| {
            let storage = instance.map(DriverStorage::new);
            SessionTable::new(secret, storage.map_or(Storage::Memory, Storage::Driver))
        };
        let mut sessions = table([7; 16], None);
        let (one, two) = (sessions.next_key(), sessions.next_key());
        let ids = [
            sessions.new_id(one),
            sessions.new_id(two),
            table([8; 16], None).new_id(one),
            table([7; 16], Some(1)).new_id(one),
            table([7; 16], Some(2)).new_id(one),
        ];
        for (at, id) in ids.iter().enumerate() {
            assert_eq!(id.len(), 32);
            assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let mut others = ids[..at].iter().flat_map(|id| [&id[..16], &id[16..]]);
            assert!(
                !others.any(|half| id.contains(half)),
                "no half is used twice"
            );
            assert_ne!(id[..16], id[16..]);
        }
    }

    #[test]
    fn streams_of_servers_with_one_store_have_different_names() {
        let names = |instance| {
            let storage = Storage::Driver(DriverStorage::new(instance));
            let mut sessions = SessionTable::new([7; 16], storage);
            let (key, stream) = (sessions.next_key(), StreamId::new(5));
            sessions.open(key, "a".into(), None);
            sessions.begin_stream(key, stream);
            let standalone = sessions.get(key).unwrap().standalone;
            (standalone, sessions.of(stream).unwrap().1)
        };
        let (one, two) = (names(1), names(2));
        assert!(one.0 != two.0 && one.1 != two.1);
        for (standalone, of_requests) in [one, two] {
            assert!(is_standalone(standalone) && !is_standalone(of_requests));
        }
    }

    #[test]
    fn the_streams_of_a_session_go_with_it() {
        let mut sessions = SessionTable::new([7; 16], Storage::Memory);
        let (key, stream) = (sessions.next_key(), StreamId::new(5));
        sessions.open(key, "a".into(), None);
        sessions.begin_stream(key, stream);
        let (_, name) = sessions.of(stream).unwrap();
        assert_ne!(name, STANDALONE);
        assert_eq!(sessions.stream(key, name), Some(stream));
        assert_eq!(sessions.find("a"), Some(key));
        sessions.close(key);
        assert_eq!((sessions.of(stream), sessions.find("a")), (None, None));
    }

    #[test]
    fn event_ids_read_back() {
        let id = event_id(0xBEEF, 12);
        assert_eq!(id, "beef-12");
        assert_eq!(read_event_id(&id), Some((0xBEEF, 12)));
        for ends in [0, 9, 10, 16, u64::MAX] {
            assert_eq!(event_id(ends, ends), format!("{ends:x}-{ends}"));
        }
        for bad in ["", "-", "1", "x-1", "1-x", "1-1-1", "1--1"] {
            assert_eq!(read_event_id(bad), None, "{bad}");
        }
    }

    #[test]
    fn both_halves_of_the_secret_count() {
        let id = |secret| {
            let mut sessions = SessionTable::new(secret, Storage::Memory);
            let key = sessions.next_key();
            sessions.new_id(key)
        };
        let mut other = [7; 16];
        other[15] = 8;
        assert_ne!(id([7; 16]), id(other));
    }

    /// Clients see the names of streams in the ids of events. They must not tell a part of the id of a session.
    #[test]
    fn name_of_a_stream_is_no_part_of_a_session_id() {
        let mut sessions = SessionTable::new([7; 16], Storage::Memory);
        let key = sessions.next_key();
        let (id, stream) = (sessions.new_id(key), StreamId::new(key.number()));
        sessions.open(key, id.clone(), None);
        sessions.begin_stream(key, stream);
        let (_, name) = sessions.of(stream).unwrap();
        // The last bit of a name says that it belongs to requests.
        for half in [&id[..16], &id[16..]] {
            assert_ne!(u64::from_str_radix(half, 16).unwrap() | 1, name);
        }
    }

    #[test]
    fn streams_of_one_server_have_different_names_that_it_knows_as_its_own() {
        let table = |instance| {
            let storage = Storage::Driver(DriverStorage::new(instance));
            SessionTable::new([7; 16], storage)
        };
        let (mut sessions, other) = (table(1), table(2));
        let key = sessions.next_key();
        sessions.open(key, "a".into(), None);
        let streams = [5, 6, 7].map(StreamId::new);
        let names = streams.map(|stream| {
            sessions.begin_stream(key, stream);
            sessions.of(stream).unwrap().1
        });
        let standalone = sessions.get(key).unwrap().standalone;
        assert_eq!(sessions.streams(key), streams);
        assert!(names[0] < names[1] && names[1] < names[2]);
        for name in names.into_iter().chain([standalone]) {
            assert!(!sessions.is_foreign(name));
            assert!(other.is_foreign(name));
        }
        let in_memory = SessionTable::new([7; 16], Storage::Memory);
        assert!(!in_memory.is_foreign(names[0]));
    }
}
