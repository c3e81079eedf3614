//! The open exchanges: the received part of each request, and how each is answered. Each change of phase follows `table`.
//!
//! Does not depend on messages. Uses only the keys of sessions.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::driver::{Instant, LookupId, StreamId};
use crate::http::{Fields, Verb};
use crate::protocol::TraceContext;
use crate::server::binding::http::lookups::Found;
use crate::server::binding::http::shares::LIGHT;
use crate::server::binding::http::table::{self, Cue, Phase};
use crate::server::origin::{QueueId, SessionKey};

/// A request that arrives, or waits for the driver's store.
pub(crate) struct Arriving {
    pub(crate) verb: Verb,
    pub(crate) route: Route,
    /// The header fields that concern the message.
    pub(crate) fields: Fields<'static>,
    pub(crate) user: Option<Box<str>>,
    pub(crate) trace: Option<Box<TraceContext>>,
    /// The network address of the client, if it is known.
    pub(crate) address: Option<IpAddr>,
    pub(crate) accepts: Accepts,
    pub(crate) body: Vec<u8>,
    /// What the driver's store said of the session, once the request has waited for it.
    pub(crate) found: Option<Found>,
    /// Whether another server passed it on.
    pub(crate) is_passed: bool,
    /// How often it was passed on to a server that was gone.
    pub(crate) looks: u32,
}

impl Arriving {
    fn bytes(&self) -> usize {
        self.fields.bytes() + self.body.len()
    }
}

/// The target of a request.
#[derive(PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub(crate) enum Route {
    /// The endpoint of all versions but 2024-11-05.
    Endpoint,
    /// The path for messages to the session with this id, in version 2024-11-05.
    SseMessages(Box<str>),
    /// The path for event streams, in version 2024-11-05.
    SseStream,
}

/// The kinds of body that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepts {
    pub(crate) json: bool,
    pub(crate) sse: bool,
}

impl Accepts {
    /// A refusal is JSON, whatever the client accepts.
    pub(crate) const JSON: Accepts = Accepts {
        json: true,
        sse: false,
    };

    pub(crate) const SSE: Accepts = Accepts {
        json: false,
        sse: true,
    };
}

/// The phase in which the answer to a request begins.
const ANSWERED: Phase = match table::next(Phase::Reading, Cue::Arrived) {
    Some(phase) => phase,
    None => Phase::Gone,
};

/// The phase of a request for which the driver's store is asked.
const WAITING: Phase = match table::next(Phase::Reading, Cue::Asked) {
    Some(phase) => phase,
    None => Phase::Gone,
};

/// An exchange that is being answered.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The queue that it carries.
    pub(crate) queue: QueueId,
    pub(crate) accepts: Accepts,
    /// The session that it belongs to. In a session, an error has status 200 like any other reply.
    pub(crate) session: Option<SessionKey>,
    /// The status, if it is decided before the reply.
    pub(crate) status: Option<u16>,
    /// Further header fields of the response.
    pub(crate) fields: Fields<'static>,
    phase: Phase,
    /// Whether it ends as soon as its queue is empty. The client comes back for the rest.
    pub(crate) hangs_up: bool,
    /// The earliest time of the next keepalive, because something was written on it.
    pub(crate) quiet_from: Instant,
    /// The number of keepalive intervals in a row in which its client read nothing.
    pub(crate) stuck: u32,
    /// The server that answers it, if it is not this one.
    pub(crate) answered_by: Option<u32>,
}

impl Exchange {
    pub(crate) const fn new(
        queue: QueueId,
        accepts: Accepts,
        session: Option<SessionKey>,
    ) -> Exchange {
        Exchange {
            queue,
            accepts,
            session,
            status: None,
            fields: Fields::new(),
            phase: ANSWERED,
            hangs_up: false,
            quiet_from: Instant::ZERO,
            stuck: 0,
            answered_by: None,
        }
    }

    /// Whether it is an event stream whose head is written.
    pub(crate) fn has_begun(&self) -> bool {
        self.phase == Phase::Streaming
    }

    /// Whether it answers requests. Other exchanges do not end by themselves.
    const fn is_for_requests(&self) -> bool {
        matches!(self.queue, QueueId::Stream(_))
    }
}

#[derive(Default)]
pub(crate) struct Exchanges {
    reading: BTreeMap<StreamId, Arriving>,
    /// The requests that wait for the driver's store.
    waiting: BTreeMap<StreamId, (LookupId, Arriving)>,
    open: BTreeMap<StreamId, Exchange>,
    /// The exchange that carries each queue.
    carriers: BTreeMap<QueueId, StreamId>,
    /// The number of open exchanges that answer requests and end with the reply.
    requests: usize,
    /// The finished exchanges, with their unread bytes and the number of intervals in a row in which nothing was read.
    unread: BTreeMap<StreamId, (usize, u32)>,
    /// Bytes of the requests that are arriving or waiting.
    bytes: usize,
    /// The long requests that can be refused because of their length: nothing of them was processed here.
    long: BTreeSet<(usize, StreamId)>,
}

/// The part of an exchange that is lost with its client.
pub(crate) enum Lost {
    /// A request that had not arrived whole.
    Request,
    /// A request that waited for this look-up.
    Waiting(LookupId),
    /// A response that was not complete.
    Response(Exchange),
    /// The rest of a response that was complete.
    Rest,
}

/// # While the body arrives
impl Exchanges {
    /// Adds a request that begins to arrive. Returns the bytes of all arriving requests.
    pub(crate) fn read(&mut self, stream: StreamId, arriving: Arriving) -> usize {
        let bytes = arriving.bytes();
        self.bytes += bytes;
        self.measure(stream, 0, bytes);
        self.reading.insert(stream, arriving);
        self.bytes
    }

    /// Appends to the body of a request. Returns its length, and the bytes of all arriving requests. `None` if the request is not arriving.
    pub(crate) fn grow(&mut self, stream: StreamId, bytes: &[u8]) -> Option<(usize, usize)> {
        let arriving = self.reading.get_mut(&stream)?;
        let before = arriving.bytes();
        arriving.body.extend_from_slice(bytes);
        let len = arriving.body.len();
        self.bytes += bytes.len();
        self.measure(stream, before, before + bytes.len());
        Some((len, self.bytes))
    }

    /// Notes that a request that can be refused grew or shrank.
    fn measure(&mut self, stream: StreamId, before: usize, now: usize) {
        if before > LIGHT {
            self.long.remove(&(before, stream));
        }
        if now > LIGHT {
            self.long.insert((now, stream));
        }
    }

    /// Returns the longest request that arrives, or waits and can be refused. `None` if no request is arriving.
    pub(crate) fn largest(&self) -> Option<StreamId> {
        if let Some((_, stream)) = self.long.last() {
            return Some(*stream);
        }
        // Only with limits that are smaller than the default are many short requests too much.
        let reading = self.reading.iter();
        let largest = reading.max_by_key(|(_, arriving)| arriving.bytes());
        largest.map(|(stream, _)| *stream)
    }

    /// Removes a request whose body is complete or no longer wanted.
    pub(crate) fn take(&mut self, stream: StreamId) -> Option<Arriving> {
        let arriving = self.reading.remove(&stream)?;
        let bytes = arriving.bytes();
        self.bytes -= bytes;
        self.measure(stream, bytes, 0);
        Some(arriving)
    }

    /// Returns the request that began to arrive first. `None` if no request is arriving.
    pub(crate) fn oldest_arriving(&self) -> Option<StreamId> {
        self.reading.keys().next().copied()
    }

    /// Returns all requests that are arriving, or that wait for an answer of the store.
    pub(crate) fn arriving(&self) -> Vec<StreamId> {
        let waiting = self.waiting.keys();
        self.reading.keys().chain(waiting).copied().collect()
    }
}

/// # While the driver's store is asked
impl Exchanges {
    /// Lets a request wait whose body is complete. It counts as arriving.
    pub(crate) fn wait(&mut self, stream: StreamId, lookup: LookupId, arrived: Arriving) {
        self.bytes += arrived.bytes();
        self.waiting.insert(stream, (lookup, arrived));
    }

    /// Lets a request that waits give way to others: nothing of it was processed here.
    pub(crate) fn may_give_way(&mut self, stream: StreamId) {
        if let Some((_, arrived)) = self.waiting.get(&stream) {
            self.measure(stream, 0, arrived.bytes());
        }
    }

    /// Whether a request waits for the driver's store.
    pub(crate) fn is_waiting(&self, stream: StreamId) -> bool {
        self.waiting.contains_key(&stream)
    }

    /// Returns the oldest request that waits for an answer of the store. `None` if no request waits.
    pub(crate) fn next_waiting(&self) -> Option<StreamId> {
        self.waiting.keys().next().copied()
    }

    /// Removes a request that has waited.
    pub(crate) fn take_waiting(&mut self, stream: StreamId) -> Option<(LookupId, Arriving)> {
        table::next(self.phase(stream)?, Cue::Found)?;
        let (lookup, arrived) = self.waiting.remove(&stream)?;
        let bytes = arrived.bytes();
        self.bytes -= bytes;
        self.measure(stream, bytes, 0);
        Some((lookup, arrived))
    }
}

/// # While an exchange is answered
impl Exchanges {
    pub(crate) fn open(&mut self, stream: StreamId, exchange: Exchange) {
        self.carriers.insert(exchange.queue, stream);
        self.requests += usize::from(exchange.is_for_requests());
        self.open.insert(stream, exchange);
    }

    pub(crate) fn get(&self, stream: StreamId) -> Option<&Exchange> {
        self.open.get(&stream)
    }

    pub(crate) fn get_mut(&mut self, stream: StreamId) -> Option<&mut Exchange> {
        self.open.get_mut(&stream)
    }

    /// Returns the exchange whose response carries this queue. `None` if no such response is open.
    pub(crate) fn carrier(&self, queue: QueueId) -> Option<StreamId> {
        self.carriers.get(&queue).copied()
    }

    /// Removes an exchange that is being answered.
    fn close(&mut self, stream: StreamId) -> Option<Exchange> {
        let exchange = self.open.remove(&stream)?;
        self.requests -= usize::from(exchange.is_for_requests());
        if self.carriers.get(&exchange.queue) == Some(&stream) {
            self.carriers.remove(&exchange.queue);
        }
        Some(exchange)
    }

    /// Records that the first event of a response is written.
    pub(crate) fn begin(&mut self, stream: StreamId) {
        if let Some(exchange) = self.open.get_mut(&stream) {
            let next = table::next(exchange.phase, Cue::Begun);
            exchange.phase = next.unwrap_or(exchange.phase);
        }
    }

    /// Removes an exchange that is finished, of which `under_way` bytes are unread.
    pub(crate) fn finish(&mut self, stream: StreamId, under_way: usize) -> Option<Exchange> {
        let exchange = self.close(stream)?;
        let is_read = under_way == 0;
        if table::next(exchange.phase, Cue::Finished { is_read }) == Some(Phase::Unread) {
            self.unread.insert(stream, (under_way, 0));
        }
        Some(exchange)
    }

    /// Removes an exchange whose client is lost. Returns what it was.
    pub(crate) fn lose(&mut self, stream: StreamId) -> Option<Lost> {
        match table::next(self.phase(stream)?, Cue::Lost)? {
            Phase::Gone => {}
            Phase::Reading
            | Phase::Waiting
            | Phase::Answering
            | Phase::Streaming
            | Phase::Unread => return None,
        }
        if let Some((lookup, _)) = self.take_waiting(stream) {
            return Some(Lost::Waiting(lookup));
        }
        if self.take(stream).is_some() {
            return Some(Lost::Request);
        }
        if self.unread.remove(&stream).is_some() {
            return Some(Lost::Rest);
        }
        self.close(stream).map(Lost::Response)
    }

    /// Returns the phase of an exchange. `None` if the exchange is unknown or over.
    fn phase(&self, stream: StreamId) -> Option<Phase> {
        if let Some(exchange) = self.open.get(&stream) {
            return Some(exchange.phase);
        }
        let is_reading = self.reading.contains_key(&stream);
        let is_unread = self.unread.contains_key(&stream);
        if self.is_waiting(stream) {
            return Some(WAITING);
        }
        let phase = is_reading.then_some(Phase::Reading);
        phase.or_else(|| is_unread.then_some(Phase::Unread))
    }

    /// Counts bytes that were read of a finished exchange. Returns whether the exchange is known as finished.
    pub(crate) fn read_out(&mut self, stream: StreamId, len: usize) -> bool {
        let Some((left, stuck)) = self.unread.get_mut(&stream) else {
            return false;
        };
        *left = left.saturating_sub(len);
        *stuck = 0;
        if *left == 0 && table::next(Phase::Unread, Cue::ReadAll) == Some(Phase::Gone) {
            self.unread.remove(&stream);
        }
        true
    }

    /// Counts an interval in which nothing was read of a finished exchange. Returns the number of intervals in a row, or `None` if the
    /// exchange is not finished.
    pub(crate) fn count_unread(&mut self, stream: StreamId) -> Option<u32> {
        let (_, stuck) = self.unread.get_mut(&stream)?;
        *stuck += 1;
        Some(*stuck)
    }

    /// Returns the oldest finished exchange whose client has not read all of the response. `None` if there is none.
    pub(crate) fn oldest_unread(&self) -> Option<StreamId> {
        self.unread.keys().next().copied()
    }

    /// Returns how many bytes of a finished response the client has not read. 0 if it has read all.
    pub(crate) fn left(&self, stream: StreamId) -> usize {
        self.unread.get(&stream).map_or(0, |(left, _)| *left)
    }

    /// Returns the exchanges whose request is complete and whose response is not finished.
    pub(crate) fn answering(&self) -> impl Iterator<Item = (StreamId, &Exchange)> {
        let open = self.open.iter();
        open.map(|(stream, exchange)| (*stream, exchange))
    }

    /// Whether any exchange that waits or is being answered ends by itself.
    pub(crate) fn has_requests(&self) -> bool {
        self.requests > 0 || !self.waiting.is_empty()
    }

    /// Whether all finished exchanges are read completely.
    pub(crate) fn are_read_out(&self) -> bool {
        self.unread.is_empty()
    }

    pub(crate) fn has(&self, stream: StreamId) -> bool {
        self.phase(stream).is_some()
    }

    /// The number of exchanges that are open, or finished and not read completely.
    pub(crate) fn len(&self) -> usize {
        self.reading.len() + self.waiting.len() + self.open.len() + self.unread.len()
    }
}
