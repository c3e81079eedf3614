//! The open exchanges: the received part of each request, and how each is answered. Knows no message and no session.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::super::origin::{Lane, SessionKey};
use crate::driver::{Instant, StreamId};
use crate::http::{Fields, Verb};

/// A request whose body is arriving.
pub(in crate::server) struct Asked {
    pub(super) verb: Verb,
    pub(super) route: Route,
    /// The header fields that concern the message.
    pub(super) fields: Fields<'static>,
    pub(super) user: Option<Box<str>>,
    /// The network address of the client, if it is known.
    pub(super) address: Option<IpAddr>,
    pub(super) takes: Takes,
    pub(super) body: Vec<u8>,
}

impl Asked {
    fn bytes(&self) -> usize {
        self.fields.bytes() + self.body.len()
    }
}

/// The target of a request.
#[derive(PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub(super) enum Route {
    /// The endpoint of all versions but 2024-11-05.
    Endpoint,
    /// The path for messages to the session with this id, in version 2024-11-05.
    SseMessages(Box<str>),
    /// The path for event streams, in version 2024-11-05.
    SseStream,
}

/// The kinds of body that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Takes {
    pub(super) json: bool,
    pub(super) sse: bool,
}

/// An exchange that is being answered.
#[derive(Debug)]
pub(super) struct Exchange {
    /// The lane that it carries.
    pub(super) lane: Lane,
    pub(super) takes: Takes,
    /// The session that it belongs to. In a session, an error has status 200 like any other reply.
    pub(super) session: Option<SessionKey>,
    /// The status, if it is decided before the reply.
    pub(super) status: Option<u16>,
    /// Further header fields of the response.
    pub(super) fields: Fields<'static>,
    /// Whether it is an event stream whose head is written.
    pub(super) has_begun: bool,
    /// Whether it ends as soon as its queue is empty. The client comes back for the rest.
    pub(super) hangs_up: bool,
    /// The earliest time of the next keepalive, because something was written on it.
    pub(super) quiet_from: Instant,
    /// The number of keepalive intervals in a row in which its client read nothing.
    pub(super) stuck: u32,
}

impl Exchange {
    pub(super) const fn new(lane: Lane, takes: Takes) -> Exchange {
        Exchange {
            lane,
            takes,
            session: None,
            status: None,
            fields: Fields::new(),
            has_begun: false,
            hangs_up: false,
            quiet_from: Instant::ZERO,
            stuck: 0,
        }
    }

    /// Whether it answers requests. Other exchanges do not end by themselves.
    const fn is_for_requests(&self) -> bool {
        matches!(self.lane, Lane::Stream(_))
    }
}

#[derive(Default)]
pub(super) struct Exchanges {
    reading: BTreeMap<StreamId, Asked>,
    open: BTreeMap<StreamId, Exchange>,
    /// The exchange that carries each lane.
    carriers: BTreeMap<Lane, StreamId>,
    /// The number of open exchanges that answer requests and end with the reply.
    requests: usize,
    /// The finished exchanges, with their unread bytes and the number of intervals in a row in which nothing was read.
    finished: BTreeMap<StreamId, (usize, u32)>,
    /// Bytes of the requests that are arriving.
    bytes: usize,
}

/// # While the body arrives
impl Exchanges {
    /// Adds a request that begins to arrive. Returns the bytes of all arriving requests.
    pub(super) fn read(&mut self, stream: StreamId, asked: Asked) -> usize {
        self.bytes += asked.bytes();
        self.reading.insert(stream, asked);
        self.bytes
    }

    /// Appends to the body of a request. Returns its length, and the bytes of all arriving requests. `None` if the request is not arriving.
    pub(super) fn grow(&mut self, stream: StreamId, bytes: &[u8]) -> Option<(usize, usize)> {
        let asked = self.reading.get_mut(&stream)?;
        asked.body.extend_from_slice(bytes);
        self.bytes += bytes.len();
        Some((asked.body.len(), self.bytes))
    }

    /// The largest arriving request.
    pub(super) fn largest(&self) -> Option<StreamId> {
        let reading = self.reading.iter();
        let largest = reading.max_by_key(|(_, asked)| asked.bytes());
        largest.map(|(stream, _)| *stream)
    }

    /// Removes a request whose body is complete or no longer wanted.
    pub(super) fn take(&mut self, stream: StreamId) -> Option<Asked> {
        let asked = self.reading.remove(&stream)?;
        self.bytes -= asked.bytes();
        Some(asked)
    }

    /// The oldest arriving request.
    pub(super) fn oldest_arriving(&self) -> Option<StreamId> {
        self.reading.keys().next().copied()
    }

    /// All arriving requests.
    pub(super) fn arriving(&self) -> Vec<StreamId> {
        self.reading.keys().copied().collect()
    }
}

/// # While an exchange is answered
impl Exchanges {
    pub(super) fn open(&mut self, stream: StreamId, exchange: Exchange) {
        self.carriers.insert(exchange.lane, stream);
        self.requests += usize::from(exchange.is_for_requests());
        if let Some(before) = self.open.insert(stream, exchange) {
            self.requests -= usize::from(before.is_for_requests());
        }
    }

    pub(super) fn get(&self, stream: StreamId) -> Option<&Exchange> {
        self.open.get(&stream)
    }

    pub(super) fn get_mut(&mut self, stream: StreamId) -> Option<&mut Exchange> {
        self.open.get_mut(&stream)
    }

    /// The exchange that carries this lane.
    pub(super) fn carrier(&self, lane: Lane) -> Option<StreamId> {
        self.carriers.get(&lane).copied()
    }

    /// Removes an exchange.
    pub(super) fn close(&mut self, stream: StreamId) -> Option<Exchange> {
        let exchange = self.open.remove(&stream)?;
        self.requests -= usize::from(exchange.is_for_requests());
        if self.carriers.get(&exchange.lane) == Some(&stream) {
            self.carriers.remove(&exchange.lane);
        }
        Some(exchange)
    }

    /// Removes an exchange that is finished, of which `under_way` bytes are unread. At most `most` finished exchanges are remembered; the
    /// oldest is forgotten first.
    pub(super) fn finish(
        &mut self,
        stream: StreamId,
        under_way: usize,
        most: usize,
    ) -> Option<Exchange> {
        if under_way > 0 {
            self.finished.insert(stream, (under_way, 0));
            if self.finished.len() > most {
                self.finished.pop_first();
            }
        }
        self.close(stream)
    }

    /// Counts bytes that were read of a finished exchange. Returns whether the exchange is known as finished.
    pub(super) fn read_out(&mut self, stream: StreamId, len: usize) -> bool {
        let Some((left, stuck)) = self.finished.get_mut(&stream) else {
            return false;
        };
        *left = left.saturating_sub(len);
        *stuck = 0;
        if *left == 0 {
            self.finished.remove(&stream);
        }
        true
    }

    /// Counts an interval in which nothing was read of a finished exchange. Returns the number of intervals in a row, or `None` if the
    /// exchange is not finished.
    pub(super) fn unread(&mut self, stream: StreamId) -> Option<u32> {
        let (_, stuck) = self.finished.get_mut(&stream)?;
        *stuck += 1;
        Some(*stuck)
    }

    /// Forgets a finished exchange whose client is gone. Returns whether it was known as finished.
    pub(super) fn forget(&mut self, stream: StreamId) -> bool {
        self.finished.remove(&stream).is_some()
    }

    /// The oldest finished exchange that is not read completely.
    pub(super) fn oldest_unread(&self) -> Option<StreamId> {
        self.finished.keys().next().copied()
    }

    /// The unread bytes of a finished exchange.
    pub(super) fn left(&self, stream: StreamId) -> usize {
        self.finished.get(&stream).map_or(0, |(left, _)| *left)
    }

    /// The exchanges that are being answered.
    pub(super) fn answering(&self) -> impl Iterator<Item = (StreamId, &Exchange)> {
        let open = self.open.iter();
        open.map(|(stream, exchange)| (*stream, exchange))
    }

    /// Whether any exchange that is being answered ends by itself.
    pub(super) const fn has_requests(&self) -> bool {
        self.requests > 0
    }

    /// Whether all finished exchanges are read completely.
    pub(super) fn are_read_out(&self) -> bool {
        self.finished.is_empty()
    }

    pub(super) fn has(&self, stream: StreamId) -> bool {
        self.reading.contains_key(&stream)
            || self.open.contains_key(&stream)
            || self.finished.contains_key(&stream)
    }

    /// The number of exchanges that are open, or finished and not read completely.
    pub(super) fn len(&self) -> usize {
        self.reading.len() + self.open.len() + self.finished.len()
    }
}
