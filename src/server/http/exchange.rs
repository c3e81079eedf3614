//! The exchanges that are open: what arrived of each, and how each is answered. Knows no message and no session.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::super::origin::{Lane, SessionKey};
use crate::http::{Fields, Verb};
use crate::id::StreamId;
use crate::time::Instant;

/// A request whose body arrives.
pub(in crate::server) struct Asked {
    pub(super) verb: Verb,
    pub(super) route: Route,
    /// Those fields that say something of the message.
    pub(super) fields: Fields<'static>,
    pub(super) user: Option<Box<str>>,
    /// The network address that it came from, if that is known.
    pub(super) address: Option<IpAddr>,
    pub(super) takes: Takes,
    pub(super) body: Vec<u8>,
}

impl Asked {
    fn bytes(&self) -> usize {
        self.fields.bytes() + self.body.len()
    }
}

/// What a request is addressed to.
#[derive(PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub(super) enum Route {
    /// The endpoint of all versions but the first.
    Endpoint,
    /// Where messages of the session with this id are posted, in the first version.
    SseMessages(Box<str>),
    /// Where its streams are.
    SseStream,
}

/// Which kinds of body a client takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Takes {
    pub(super) json: bool,
    pub(super) sse: bool,
}

/// An exchange that is being answered.
#[derive(Debug)]
pub(super) struct Exchange {
    /// The way whose end it is.
    pub(super) lane: Lane,
    pub(super) takes: Takes,
    /// The session in which errors are answers like others.
    pub(super) session: Option<SessionKey>,
    /// The status, where that is decided before the answer is.
    pub(super) status: Option<u16>,
    /// What else the head of the response says.
    pub(super) fields: Fields<'static>,
    /// Whether it is a stream of events, and its head is out.
    pub(super) has_begun: bool,
    /// It ends as soon as what waits is written, and its client comes back for the rest.
    pub(super) hangs_up: bool,
    /// Before this, it is not silent for long: something was said on it.
    pub(super) quiet_from: Instant,
    /// How often in a row it was found that its client had read nothing of what is under way.
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

    /// Whether it answers requests. Others are open as long as anybody is.
    const fn is_for_requests(&self) -> bool {
        matches!(self.lane, Lane::Stream(_))
    }
}

#[derive(Default)]
pub(super) struct Exchanges {
    reading: BTreeMap<StreamId, Asked>,
    open: BTreeMap<StreamId, Exchange>,
    /// The exchange at the end of each way that has one.
    carriers: BTreeMap<Lane, StreamId>,
    /// How many of those that are open answer requests, and end with that.
    requests: usize,
    /// Those that are finished, of which so many bytes are still under way, and how often in a row nothing of these was read.
    finished: BTreeMap<StreamId, (usize, u32)>,
    /// Bytes of the bodies that arrive.
    bytes: usize,
}

/// # While the body arrives
impl Exchanges {
    /// A request begins to arrive. Bytes of all that do.
    pub(super) fn read(&mut self, stream: StreamId, asked: Asked) -> usize {
        self.bytes += asked.bytes();
        self.reading.insert(stream, asked);
        self.bytes
    }

    /// Its body is this much longer. How long it is then, and all of them together; `None` if it is not one of these.
    pub(super) fn grow(&mut self, stream: StreamId, bytes: &[u8]) -> Option<(usize, usize)> {
        let asked = self.reading.get_mut(&stream)?;
        asked.body.extend_from_slice(bytes);
        self.bytes += bytes.len();
        Some((asked.body.len(), self.bytes))
    }

    /// The one that takes up most.
    pub(super) fn largest(&self) -> Option<StreamId> {
        let reading = self.reading.iter();
        let largest = reading.max_by_key(|(_, asked)| asked.bytes());
        largest.map(|(stream, _)| *stream)
    }

    /// Its body is complete, or no longer wanted.
    pub(super) fn take(&mut self, stream: StreamId) -> Option<Asked> {
        let asked = self.reading.remove(&stream)?;
        self.bytes -= asked.bytes();
        Some(asked)
    }

    /// The oldest whose body arrives.
    pub(super) fn oldest_arriving(&self) -> Option<StreamId> {
        self.reading.keys().next().copied()
    }

    /// The exchanges whose body arrives.
    pub(super) fn arriving(&self) -> Vec<StreamId> {
        self.reading.keys().copied().collect()
    }
}

/// # While it is answered
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

    /// The exchange at the end of this way.
    pub(super) fn carrier(&self, lane: Lane) -> Option<StreamId> {
        self.carriers.get(&lane).copied()
    }

    /// It is over, for its client is gone.
    pub(super) fn close(&mut self, stream: StreamId) -> Option<Exchange> {
        let exchange = self.open.remove(&stream)?;
        self.requests -= usize::from(exchange.is_for_requests());
        if self.carriers.get(&exchange.lane) == Some(&stream) {
            self.carriers.remove(&exchange.lane);
        }
        Some(exchange)
    }

    /// It is over, and its client reads what is left of it: so many bytes. Of the oldest that are, nothing is known when there
    /// are more than `most`.
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

    /// Something was read of one that is finished. Whether it was one of these.
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

    /// Nothing was read of one that is finished, once more. How often in a row by now; `None` if it is not one of these.
    pub(super) fn unread(&mut self, stream: StreamId) -> Option<u32> {
        let (_, stuck) = self.finished.get_mut(&stream)?;
        *stuck += 1;
        Some(*stuck)
    }

    /// The client of one that is finished is gone. Whether it was one of these.
    pub(super) fn forget(&mut self, stream: StreamId) -> bool {
        self.finished.remove(&stream).is_some()
    }

    /// The oldest that is finished and not read to its end.
    pub(super) fn oldest_unread(&self) -> Option<StreamId> {
        self.finished.keys().next().copied()
    }

    /// How many bytes of one that is finished are not read.
    pub(super) fn left(&self, stream: StreamId) -> usize {
        self.finished.get(&stream).map_or(0, |(left, _)| *left)
    }

    /// Those that are being answered.
    pub(super) fn answering(&self) -> impl Iterator<Item = (StreamId, &Exchange)> {
        let open = self.open.iter();
        open.map(|(stream, exchange)| (*stream, exchange))
    }

    /// Whether any of those that are being answered is to end by itself.
    pub(super) const fn has_requests(&self) -> bool {
        self.requests > 0
    }

    /// Whether all that was finished was read to its end.
    pub(super) fn are_read_out(&self) -> bool {
        self.finished.is_empty()
    }

    pub(super) fn has(&self, stream: StreamId) -> bool {
        self.reading.contains_key(&stream)
            || self.open.contains_key(&stream)
            || self.finished.contains_key(&stream)
    }

    /// How many are open, in whatever state, or not read to their end.
    pub(super) fn len(&self) -> usize {
        self.reading.len() + self.open.len() + self.finished.len()
    }
}
