//! Writes the event streams of sessions, stores their messages, and resumes streams that broke off.

use alloc::vec::Vec;

use crate::driver::StreamId;
use crate::http::names;
use crate::protocol::Version;
use crate::server::binding::http::HttpBinding;
use crate::server::binding::http::exchange::Arriving;
use crate::server::binding::http::session::{STANDALONE, event_id, read_event_id};
use crate::server::binding::http::validate::{FieldValue, Refusal};
use crate::server::origin::{QueueId, SessionKey};
use crate::server::outgoing::frame::{Frame, Signal};
use crate::wire::sse;

/// A stream that a client asks for.
pub(crate) struct Resumed {
    pub(crate) queue: QueueId,
    /// Whether the queue is new, for messages that are only replayed.
    pub(crate) is_replay: bool,
    /// The beginning of the stream, and the messages to be replayed.
    pub(crate) frames: Vec<Frame>,
}

/// # Writing
impl HttpBinding {
    /// Appends a message to an event stream, and stores it.
    pub(crate) fn write_event(&mut self, buf: &mut Vec<u8>, queue: QueueId, message: &[u8]) {
        let stored = self.append(queue, message);
        let id = stored.map(|(name, number)| {
            self.wrote_event(queue, number);
            event_id(name, number)
        });
        let name = self.is_sse(queue).then_some("message");
        sse::begin(buf, id.as_deref(), name);
        buf.extend_from_slice(message);
        sse::end(buf);
    }

    /// Appends a part of an event stream that is not a new message.
    pub(crate) fn write_signal(&mut self, buf: &mut Vec<u8>, queue: QueueId, signal: Signal) {
        match signal {
            Signal::Begin(after) => self.write_beginning(buf, queue, after),
            Signal::Comment => sse::comment(buf),
            Signal::Endpoint(path) => {
                sse::begin(buf, None, Some("endpoint"));
                buf.extend_from_slice(path.as_bytes());
                sse::end(buf);
            }
            Signal::Replayed(number, message) => {
                let name = self.name_of(queue).map(|(_, name)| name);
                let id = name.map(|name| event_id(name, number));
                self.wrote_event(queue, number);
                sse::begin(buf, id.as_deref(), None);
                buf.extend_from_slice(message.as_bytes());
                sse::end(buf);
            }
        }
    }

    /// Begins an event stream. If the version has it, the first event has no data and an id to resume from (S-LHTTP-08). Otherwise a
    /// comment is the first output (F-043).
    fn write_beginning(&self, buf: &mut Vec<u8>, queue: QueueId, after: u64) {
        let named = self.name_of(queue).filter(|_| self.has_replay());
        let primed = named.filter(|(session, _)| {
            let version = self.sessions.get(*session).and_then(|s| s.version);
            version.is_some_and(|version| version >= Version::V2025_11_25)
        });
        match primed {
            Some((_, name)) => sse::prime(buf, &event_id(name, after), Some(self.config.retry)),
            None => sse::comment(buf),
        }
    }

    /// Stores a message of a session until a client asks for it. Returns whether it is stored.
    pub(crate) fn store(&mut self, queue: QueueId, message: &[u8]) -> bool {
        self.append(queue, message).is_some()
    }

    /// Stores a message of a session. Returns the name of its stream, and its number.
    fn append(&mut self, queue: QueueId, message: &[u8]) -> Option<(u64, u64)> {
        let (key, name) = self.name_of(queue).filter(|_| self.has_replay())?;
        let session = self.sessions.get(key).filter(|session| !session.is_sse)?;
        let message = core::str::from_utf8(message).ok()?;
        Some((name, self.events.append(&session.id, name, message)))
    }

    /// The session of a queue, and the name of its stream in that session.
    fn name_of(&self, queue: QueueId) -> Option<(SessionKey, u64)> {
        match queue {
            QueueId::Session(key) => Some((key, STANDALONE)),
            QueueId::Stream(stream) => self.sessions.of(stream),
        }
    }

    /// Records that an event was written to the standalone stream of a session.
    fn wrote_event(&mut self, queue: QueueId, number: u64) {
        let QueueId::Session(key) = queue else {
            return;
        };
        if let Some(session) = self.sessions.get_mut(key) {
            session.last_written = session.last_written.max(number);
        }
    }

    fn is_sse(&self, queue: QueueId) -> bool {
        let QueueId::Session(key) = queue else {
            return false;
        };
        self.sessions.get(key).is_some_and(|session| session.is_sse)
    }

    /// An empty buffer for messages that become events.
    pub(crate) fn take_scratch(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.scratch)
    }

    /// Keeps the buffer for reuse, shrunk to at most 64 KiB.
    pub(crate) fn give_scratch(&mut self, mut scratch: Vec<u8>) {
        scratch.clear();
        scratch.shrink_to(64 << 10);
        self.scratch = scratch;
    }
}

/// # Resuming
impl HttpBinding {
    /// Opens the standalone stream of a session, which belongs to no request (S-LHTTP-13), or resumes a stream that broke off (S-RES-03).
    pub(crate) fn resume(
        &mut self,
        key: SessionKey,
        stream: StreamId,
        arrived: &Arriving,
        is_serving: bool,
    ) -> Result<Resumed, Refusal> {
        let (name, after) = match FieldValue::of(&arrived.fields, names::LAST_EVENT_ID) {
            FieldValue::Absent if !is_serving => {
                return Err(Refusal::busy("the server is shutting down"));
            }
            FieldValue::Absent => {
                let session = self.sessions.get(key);
                (
                    STANDALONE,
                    session.map_or(0, |session| session.last_written),
                )
            }
            FieldValue::This(id) if self.has_replay() => {
                read_event_id(id).ok_or_else(|| Refusal::new(400, "there was no such event"))?
            }
            FieldValue::Unreadable | FieldValue::This(_) => {
                return Err(Refusal::new(400, "there was no such event"));
            }
        };
        let mut frames = Vec::from([Frame::Signal(Signal::Begin(after))]);
        let is_known = self.replay(key, name, after, &mut frames);
        let (queue, is_replay) = match self.sessions.stream(key, name) {
            _ if name == STANDALONE => (key.queue(), false),
            Some(by_stream) => (QueueId::Stream(by_stream), false),
            // All requests of the stream are answered: the rest is replayed, and the stream ends. The same happens if another server may
            // still work on a request; the client then asks again.
            None if is_known || self.is_shared() => {
                self.sessions.replay_on(key, name, stream);
                (QueueId::Stream(stream), true)
            }
            None => return Err(Refusal::new(400, "nothing is known of such an event")),
        };
        Ok(Resumed {
            queue,
            is_replay,
            frames,
        })
    }

    /// Collects the messages that were sent on a stream after an event, for replay (S-RES-04, S-RES-05). Returns whether the store knows
    /// the stream.
    fn replay(&mut self, key: SessionKey, name: u64, after: u64, frames: &mut Vec<Frame>) -> bool {
        let has_replay = self.has_replay();
        let Some(session) = self.sessions.get(key).filter(|_| has_replay) else {
            return false;
        };
        let mut again = |number, message: &str| {
            let again = Signal::Replayed(number, message.into());
            frames.push(Frame::Signal(again));
        };
        self.events.replay(&session.id, name, after, &mut again)
    }
}
