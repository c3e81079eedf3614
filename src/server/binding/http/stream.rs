//! Writes the event streams of sessions, stores their messages, and resumes streams that broke off.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::driver::{LookupId, StoreRequest, StreamId};
use crate::http::{Verb, names};
use crate::protocol::Version;
use crate::server::binding::http::HttpBinding;
use crate::server::binding::http::config::SessionStorage;
use crate::server::binding::http::exchange::{Accepts, Arriving};
use crate::server::binding::http::lookups::{Failure, Halt, Replayed, Wait};
use crate::server::binding::http::session::{STANDALONE, event_id, is_standalone, read_event_id};
use crate::server::binding::http::store::Events;
use crate::server::binding::http::validate::{FieldValue, Refusal, head_of_events};
use crate::server::context::Context;
use crate::server::origin::{QueueId, SessionKey};
use crate::server::outgoing::Lifetime;
use crate::server::outgoing::frame::{Frame, Signal};
use crate::wire::sse;

/// A stream that a client asks for.
struct Resumed {
    queue: QueueId,
    /// Whether the queue is new, for messages that are only replayed.
    is_replay: bool,
    /// The beginning of the stream, and the messages to be replayed.
    frames: Vec<Frame>,
}

/// # Writing
impl HttpBinding {
    /// Appends a message to an event stream, and stores it.
    pub(crate) fn write_event(&mut self, buf: &mut Vec<u8>, queue: QueueId, message: &[u8]) {
        let stored = self.append(queue, message);
        let id = stored.map(|(name, number)| {
            self.wrote_event(queue, name, number);
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
            Signal::Piece(piece) => buf.extend_from_slice(piece.as_bytes()),
            Signal::Replayed((name, number), message) => {
                self.wrote_event(queue, name, number);
                sse::begin(buf, Some(&event_id(name, number)), None);
                buf.extend_from_slice(message.as_bytes());
                sse::end(buf);
            }
        }
    }

    /// Begins an event stream. If the version has it, the first event has no data and an id to resume from (S-LHTTP-08). Otherwise a
    /// comment is the first output (F-043).
    fn write_beginning(&self, buf: &mut Vec<u8>, queue: QueueId, after: Option<(u64, u64)>) {
        let named = self.name_of(queue).filter(|_| self.has_replay());
        let primed = named.filter(|(session, _)| {
            let version = self.sessions.get(*session).and_then(|s| s.version);
            version.is_some_and(|version| version >= Version::V2025_11_25)
        });
        match primed {
            Some((_, name)) => {
                let (name, number) = after.unwrap_or((name, 0));
                sse::prime(buf, &event_id(name, number), Some(self.config.retry));
            }
            None => sse::comment(buf),
        }
    }

    /// Stores a message of a session until a client asks for it. Returns whether it is stored. Of a message that is too long, only its number
    /// is kept.
    pub(crate) fn store(&mut self, queue: QueueId, message: &[u8]) -> bool {
        let fits = match self.events {
            Events::Memory(_) => message.len() <= self.config.replay.bytes,
            Events::Driver => true,
        };
        self.append(queue, message).is_some() && fits
    }

    /// Stores a message of a session. Returns the name of its stream, and its number.
    fn append(&mut self, queue: QueueId, message: &[u8]) -> Option<(u64, u64)> {
        let (key, name) = self.name_of(queue).filter(|_| self.has_replay())?;
        let session = self.sessions.get_mut(key);
        let session = session.filter(|session| !session.is_sse)?;
        let message = core::str::from_utf8(message).ok()?;
        let number = match &mut self.events {
            Events::Memory(events) => {
                let number = if is_standalone(name) {
                    None
                } else {
                    Some(session.next_number(name)?)
                };
                events.append(&session.id, name, number, message)
            }
            Events::Driver => {
                let number = session.next_number(name)?;
                self.lookups.request(StoreRequest::Append {
                    session: session.id.clone(),
                    stream: name,
                    number,
                    message: message.into(),
                    keep: self.config.session_idle.saturating_mul(2),
                });
                number
            }
        };
        Some((name, number))
    }

    /// The session of a queue, and the name of its stream in that session.
    fn name_of(&self, queue: QueueId) -> Option<(SessionKey, u64)> {
        match queue {
            QueueId::Session(key) => Some((key, self.sessions.get(key)?.standalone)),
            QueueId::Stream(stream) => self.sessions.of(stream),
        }
    }

    /// Records that an event was written to the standalone stream of a session.
    fn wrote_event(&mut self, queue: QueueId, name: u64, number: u64) {
        let QueueId::Session(key) = queue else {
            return;
        };
        let session = self.sessions.get_mut(key);
        if let Some(session) = session.filter(|session| session.standalone == name) {
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
        cx: &mut Context,
        key: SessionKey,
        stream: StreamId,
        arrived: &Arriving,
    ) -> Result<(), Halt> {
        let from = self.resumes_from(key, arrived, cx.lifecycle.is_serving())?;
        let has_replay = self.has_replay();
        let session = self.sessions.get(key).ok_or_else(Refusal::no_session)?;
        let mut frames = Vec::from([Frame::Signal(Signal::Begin(Some(from)))]);
        let is_known = match &mut self.events {
            Events::Memory(events) => {
                let mut again = |number, message: &str| {
                    let again = Signal::Replayed((from.0, number), message.into());
                    frames.push(Frame::Signal(again));
                };
                has_replay && events.replay(&session.id, from.0, from.1, &mut again)
            }
            Events::Driver => {
                let has_all = from.0 == session.standalone && from.1 >= session.last_standalone;
                if has_replay && !has_all {
                    let queue = self.queue_named(key, from.0);
                    return Err(Halt::Wait(Wait::Replay(Box::new(Resuming {
                        key,
                        queue,
                        session: session.id.clone(),
                        from,
                        asked: from,
                        is_complete: false,
                        frames,
                    }))));
                }
                has_all
            }
        };
        let resumed = self.resumed(key, stream, from.0, frames, is_known)?;
        self.attach(cx, stream, key, arrived.accepts, resumed);
        Ok(())
    }

    /// Sends the rest of a stream as the response of an exchange.
    fn attach(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        key: SessionKey,
        accepts: Accepts,
        resumed: Resumed,
    ) {
        let queue = resumed.queue;
        self.refuse_older_resume(cx, queue);
        if resumed.is_replay {
            cx.outgoing.add(queue, Lifetime::UntilAnswered);
        }
        if self.end_older(cx, queue) {
            cx.outgoing.detach(queue);
        }
        cx.outgoing.prepend(queue, resumed.frames);
        self.carry(cx, stream, queue, accepts, Some(key));
    }

    /// Lets the messages on a queue wait for a stream that is being resumed. A newer stream replaces the older.
    pub(super) fn hold(&mut self, cx: &mut Context, queue: QueueId) {
        self.refuse_older_resume(cx, queue);
        self.end_older(cx, queue);
        // A client waits for the messages, and the time that the store has is short.
        if let QueueId::Stream(stream) = queue {
            self.shares.abandoned.remove(&stream);
        }
        cx.outgoing.detach(queue);
        cx.outgoing.hold(queue);
    }

    /// Releases a queue that waited for a stream that is not resumed after all.
    pub(super) fn release_held(&mut self, cx: &mut Context, queue: QueueId) {
        cx.outgoing.detach(queue);
        if let QueueId::Stream(stream) = queue {
            if self.sessions.of(stream).is_some() {
                self.abandon(queue);
            }
        }
    }

    /// Refuses the request that resumes a stream and still waits for the store, because a newer request takes its place.
    fn refuse_older_resume(&mut self, cx: &mut Context, queue: QueueId) {
        if let Some(older) = self.lookups.replaying(queue) {
            let text = "a newer request for the same stream took the place of this one";
            self.refuse_waiting(cx, older, text);
        }
    }

    /// Ends the stream that carries a queue, because a newer one takes its place. Returns whether there was one.
    pub(super) fn end_older(&mut self, cx: &mut Context, queue: QueueId) -> bool {
        let Some(older) = self.carrier(queue) else {
            return false;
        };
        // If nothing was written on it yet, it is an empty stream.
        self.set_head(older, 200, head_of_events());
        self.end_exchange(cx, older);
        true
    }

    /// Opens the stream of a new session of the transport of 2024-11-05. The first event tells the client where to post (S-SSE-02).
    pub(crate) fn open_sse_stream(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        arrived: &Arriving,
    ) {
        let Some((key, path)) = self.open_sse_session(arrived) else {
            return;
        };
        cx.outgoing.add(key.queue(), Lifetime::Lasting);
        let endpoint = Frame::Signal(Signal::Endpoint(path));
        cx.outgoing.push(key.queue(), endpoint);
        self.carry(cx, stream, key.queue(), arrived.accepts, Some(key));
    }

    /// The event after which a client wants to resume a stream: the name of the stream, and the number of the event.
    fn resumes_from(
        &self,
        key: SessionKey,
        arrived: &Arriving,
        is_serving: bool,
    ) -> Result<(u64, u64), Refusal> {
        match FieldValue::of(&arrived.fields, names::LAST_EVENT_ID) {
            FieldValue::Absent if !is_serving => Err(Refusal::busy("the server is shutting down")),
            FieldValue::Absent => Ok(self.standalone_from(key)),
            FieldValue::This(id) if self.has_replay() => {
                let from = read_event_id(id);
                let from = from.ok_or_else(|| Refusal::new(400, "there was no such event"))?;
                // Another server has the messages of the stream that the client had. It gets those of the stream that took its place.
                let is_in_memory = matches!(self.events, Events::Memory(_))
                    && self.session_storage() != SessionStorage::Memory;
                let is_replaced = is_in_memory && is_standalone(from.0);
                let now = self.standalone_from(key);
                Ok(if is_replaced && from.0 != now.0 {
                    now
                } else {
                    from
                })
            }
            FieldValue::Unreadable | FieldValue::This(_) => {
                Err(Refusal::new(400, "there was no such event"))
            }
        }
    }

    /// The last event that was written to the standalone stream of a session.
    fn standalone_from(&self, key: SessionKey) -> (u64, u64) {
        let session = self.sessions.get(key);
        session.map_or((STANDALONE, 0), |session| {
            (session.standalone, session.last_written)
        })
    }

    /// Goes on with a stream when the driver's store has been asked for its messages.
    pub(super) fn serve_replay(
        &mut self,
        cx: &mut Context,
        stream: StreamId,
        arrived: Arriving,
        resuming: Box<Resuming>,
        replayed: Result<Replayed, Failure>,
    ) {
        let (key, queue) = (resuming.key, resuming.queue);
        match self.replayed(stream, resuming, replayed) {
            Ok(resumed) => self.attach(cx, stream, key, arrived.accepts, resumed),
            Err(halt) => {
                if let Halt::Refused(_) = halt {
                    if let Some(queue) = queue {
                        self.release_held(cx, queue);
                    }
                    self.touch(Some(key), &mut cx.clock);
                }
                self.halt(cx, stream, arrived, halt);
            }
        }
    }

    /// Finds the rest of a stream in the store's answer, or asks for more.
    fn replayed(
        &mut self,
        stream: StreamId,
        mut resuming: Box<Resuming>,
        replayed: Result<Replayed, Failure>,
    ) -> Result<Resumed, Halt> {
        let replayed = replayed.map_err(Failure::refusal)?;
        let (key, (name, after)) = (resuming.key, resuming.asked);
        let session = self.sessions.get(key).ok_or_else(Refusal::no_session)?;
        let events = replayed.events.into_iter();
        let events = events.filter(|(number, _)| *number > after);
        let again = events.map(|(number, message)| Signal::Replayed((name, number), message));
        resuming.frames.extend(again.map(Frame::Signal));
        if resuming.asked == resuming.from {
            resuming.is_complete = replayed.is_complete;
            // Another server wrote the standalone stream that the client had. This one may have messages that the client has not seen.
            let is_foreign = is_standalone(name) && name != session.standalone;
            if is_foreign && session.last_standalone > session.last_written {
                resuming.asked = (session.standalone, session.last_written);
                return Err(Halt::Wait(Wait::Replay(resuming)));
            }
        }
        let (name, is_known) = (resuming.from.0, resuming.is_complete);
        Ok(self.resumed(key, stream, name, resuming.frames, is_known)?)
    }

    /// Finds the queue for the rest of a stream. `is_known` says whether all its messages after the client's last are in `frames`.
    fn resumed(
        &mut self,
        key: SessionKey,
        stream: StreamId,
        name: u64,
        frames: Vec<Frame>,
        is_known: bool,
    ) -> Result<Resumed, Refusal> {
        let (queue, is_replay) = match self.queue_named(key, name) {
            Some(queue) => (queue, false),
            // All requests of the stream are answered, or the server is gone that worked on them. What is left is replayed, and the stream
            // ends. If the client of a server that is gone asks again, it misses a reply that will never come, and is told so.
            None if frames.len() > 1 || is_known && !self.sessions.is_foreign(name) => {
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

    /// The queue of the stream with this name, if more messages may come on it.
    fn queue_named(&self, key: SessionKey, name: u64) -> Option<QueueId> {
        let is_foreign = || match self.events {
            Events::Driver => is_standalone(name),
            Events::Memory(_) => false,
        };
        let session = self.sessions.get(key)?;
        if name == session.standalone || is_foreign() {
            return Some(key.queue());
        }
        self.sessions.stream(key, name).map(QueueId::Stream)
    }
}

impl Arriving {
    /// Whether a client wants the standalone stream of its session.
    pub(super) fn wants_standalone(&self) -> bool {
        let name = match FieldValue::of(&self.fields, names::LAST_EVENT_ID) {
            FieldValue::Absent => Some(STANDALONE),
            FieldValue::This(id) => read_event_id(id).map(|(name, _)| name),
            FieldValue::Unreadable => None,
        };
        self.verb == Verb::Get && name.is_some_and(is_standalone)
    }
}

/// A stream that a client wants to resume, while the driver's store is asked for its messages.
pub(crate) struct Resuming {
    pub(crate) key: SessionKey,
    /// The queue of the stream, if more messages may come on it. They wait meanwhile.
    pub(crate) queue: Option<QueueId>,
    /// The id of the session.
    session: Box<str>,
    /// The event after which the client resumes: the name of its stream, and its number.
    from: (u64, u64),
    /// The event after which messages are asked for now.
    asked: (u64, u64),
    /// Whether all messages of the stream that the client had are in `frames`.
    is_complete: bool,
    /// The beginning of the stream, and the messages to be replayed.
    frames: Vec<Frame>,
}

impl Resuming {
    /// The request to the store.
    pub(crate) fn request(&self, lookup: LookupId) -> StoreRequest {
        let (stream, after) = self.asked;
        StoreRequest::Replay {
            lookup,
            session: self.session.clone(),
            stream,
            after,
        }
    }
}
