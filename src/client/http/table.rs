//! The exchanges that are under way or will be, by name and by the request that each brings the reply to. Knows no response.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::exchange::{Body, Exchange, Purpose};
use crate::id::StreamId;

#[derive(Debug)]
pub(in crate::client) struct Table {
    next: u64,
    all: BTreeMap<StreamId, Exchange>,
    by_wire: BTreeMap<u64, StreamId>,
    /// Exchanges without a message whose time has come.
    due: VecDeque<StreamId>,
    /// Bytes of responses that have not all arrived.
    buffered: usize,
    /// Bytes of requests that the server may not have read yet.
    under_way: usize,
}

impl Table {
    pub(super) const fn new() -> Table {
        Table {
            next: 1,
            all: BTreeMap::new(),
            by_wire: BTreeMap::new(),
            due: VecDeque::new(),
            buffered: 0,
            under_way: 0,
        }
    }

    /// None is any more; names go on. Those that had begun.
    pub(super) fn clear(&mut self) -> Vec<StreamId> {
        let emptied = Table {
            next: self.next,
            ..Table::new()
        };
        let before = core::mem::replace(self, emptied).all.into_iter();
        let begun = before.filter(|(_, exchange)| exchange.begun.is_some());
        begun.map(|(stream, _)| stream).collect()
    }

    /// A new exchange. It begins when the driver is told so.
    pub(in crate::client) fn add(&mut self, exchange: Exchange) -> StreamId {
        let stream = StreamId::new(self.next);
        self.next += 1;
        if let Some(wire) = exchange.wire() {
            self.by_wire.insert(wire, stream);
        }
        self.under_way += exchange.under_way;
        self.all.insert(stream, exchange);
        stream
    }

    /// The time of an exchange without a message has come.
    pub(in crate::client) fn begin_soon(&mut self, stream: StreamId) {
        self.due.push_back(stream);
    }

    pub(in crate::client) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    pub(in crate::client) fn next_due(&mut self) -> Option<StreamId> {
        self.due.pop_front()
    }

    pub(in crate::client) fn len(&self) -> usize {
        self.all.len()
    }

    pub(in crate::client) const fn buffered(&self) -> usize {
        self.buffered
    }

    pub(in crate::client) const fn under_way(&self) -> usize {
        self.under_way
    }

    pub(in crate::client) fn get(&self, stream: StreamId) -> Option<&Exchange> {
        self.all.get(&stream)
    }

    /// Neither its purpose nor what it weighs must be changed through this.
    pub(in crate::client) fn get_mut(&mut self, stream: StreamId) -> Option<&mut Exchange> {
        self.all.get_mut(&stream)
    }

    /// The exchange that brings the reply to the request with this wire id.
    pub(in crate::client) fn find(&self, wire: u64) -> Option<StreamId> {
        self.by_wire.get(&wire).copied()
    }

    pub(in crate::client) fn any(&self, is_it: impl Fn(&Exchange) -> bool) -> Option<StreamId> {
        let mut all = self.all.iter();
        let found = all.find(|(_, exchange)| is_it(exchange));
        found.map(|(stream, _)| *stream)
    }

    pub(in crate::client) fn take(&mut self, stream: StreamId) -> Option<Exchange> {
        let taken = self.all.remove(&stream)?;
        self.due.retain(|due| *due != stream);
        self.forget(stream, &taken);
        Some(taken)
    }

    /// Nothing more is expected of an exchange. What it was.
    pub(in crate::client) fn spend(&mut self, stream: StreamId) -> Option<Exchange> {
        let spent = self.all.get_mut(&stream)?.spend();
        self.forget(stream, &spent);
        Some(spent)
    }

    /// The server has read so much of a request.
    pub(in crate::client) fn sent(&mut self, stream: StreamId, len: usize) {
        if let Some(exchange) = self.all.get_mut(&stream) {
            let read = len.min(exchange.under_way);
            exchange.under_way -= read;
            self.under_way -= read;
        }
    }

    /// Takes out what has arrived of a response, to go on with it.
    pub(in crate::client) fn take_body(&mut self, stream: StreamId) -> Option<Body> {
        let exchange = self.all.get_mut(&stream)?;
        let body = core::mem::replace(&mut exchange.body, Body::Ignored);
        self.buffered -= body.buffered();
        Some(body)
    }

    /// Puts it back, if the exchange is still about it.
    pub(in crate::client) fn put_body(&mut self, stream: StreamId, body: Body) {
        if let Some(exchange) = self.all.get_mut(&stream) {
            if !matches!(exchange.purpose, Purpose::Spent) {
                self.buffered += body.buffered();
                exchange.body = body;
            }
        }
    }

    fn forget(&mut self, stream: StreamId, exchange: &Exchange) {
        self.buffered -= exchange.body.buffered();
        self.under_way -= exchange.under_way;
        if let Some(wire) = exchange.wire() {
            if self.by_wire.get(&wire) == Some(&stream) {
                self.by_wire.remove(&wire);
            }
        }
    }
}
