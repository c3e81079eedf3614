//! The table of HTTP exchanges, by stream and by the wire id of the request that each one belongs to. It knows no responses.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::exchange::{Body, Exchange, ExchangeKind};
use crate::driver::StreamId;
use crate::util::ascending_map::AscendingMap;

#[derive(Debug)]
pub(super) struct Table {
    next: u64,
    all: AscendingMap<StreamId, Exchange>,
    by_wire: BTreeMap<u64, StreamId>,
    /// Exchanges without a message that must begin, in order.
    due: AscendingMap<u64, StreamId>,
    next_due: u64,
    /// Buffered bytes of incomplete responses.
    buffered: usize,
    /// Bytes of requests that may not have been sent yet.
    under_way: usize,
}

impl Table {
    pub(super) const fn new() -> Table {
        Table {
            next: 1,
            all: AscendingMap::new(),
            by_wire: BTreeMap::new(),
            due: AscendingMap::new(),
            next_due: 0,
            buffered: 0,
            under_way: 0,
        }
    }

    /// Removes all exchanges. Returns those that had begun. Stream numbers are not reused.
    pub(super) fn clear(&mut self) -> Vec<StreamId> {
        let emptied = Table {
            next: self.next,
            ..Table::new()
        };
        let before = core::mem::replace(self, emptied).all;
        let begun = before.iter().filter(|(_, it)| it.phase.has_begun());
        begun.map(|(stream, _)| stream).collect()
    }

    /// Adds an exchange. It begins when the driver is told so.
    pub(super) fn add(&mut self, exchange: Exchange) -> StreamId {
        let stream = StreamId::new(self.next);
        self.next += 1;
        if let Some(wire) = exchange.wire() {
            self.by_wire.insert(wire, stream);
        }
        self.under_way += exchange.under_way;
        self.all.add(stream, exchange);
        stream
    }

    /// Queues an exchange without a message, so that it begins.
    pub(super) fn begin_soon(&mut self, stream: StreamId) {
        if let Some(exchange) = self.all.get_mut(stream) {
            if let Some(before) = exchange.due.replace(self.next_due) {
                self.due.discard(before);
            }
            self.due.add(self.next_due, stream);
            self.next_due += 1;
        }
    }

    pub(super) const fn has_due(&self) -> bool {
        self.due.len() > 0
    }

    pub(super) fn next_due(&mut self) -> Option<StreamId> {
        let stream = self.due.pop_first()?;
        if let Some(exchange) = self.all.get_mut(stream) {
            exchange.due = None;
        }
        Some(stream)
    }

    pub(super) const fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) const fn buffered(&self) -> usize {
        self.buffered
    }

    pub(super) const fn under_way(&self) -> usize {
        self.under_way
    }

    pub(super) fn get(&self, stream: StreamId) -> Option<&Exchange> {
        self.all.get(stream)
    }

    /// The caller must change neither the kind nor the byte counts, because the table keeps them in its index and its sums.
    pub(super) fn get_mut(&mut self, stream: StreamId) -> Option<&mut Exchange> {
        self.all.get_mut(stream)
    }

    /// The exchange that brings the reply to the request with this wire id.
    pub(super) fn find(&self, wire: u64) -> Option<StreamId> {
        self.by_wire.get(&wire).copied()
    }

    /// The exchanges whose replies are expected on the listen stream.
    pub(super) fn elsewhere(&self) -> Vec<(StreamId, u64)> {
        let all = self.all.iter();
        let elsewhere = all.filter_map(|(stream, exchange)| {
            let wire = exchange.wire().filter(|_| !exchange.phase.has_begun())?;
            exchange.resume.cursor.is_none().then_some((stream, wire))
        });
        elsewhere.collect()
    }

    pub(super) fn any(&self, is_it: impl Fn(&Exchange) -> bool) -> Option<StreamId> {
        let mut all = self.all.iter();
        let found = all.find(|(_, exchange)| is_it(exchange));
        found.map(|(stream, _)| stream)
    }

    /// Whether a `DELETE` of a session is under way.
    pub(super) fn has_farewell(&self) -> bool {
        let is_farewell = |it: &Exchange| matches!(it.kind, ExchangeKind::DeleteSession(..));
        self.any(is_farewell).is_some()
    }

    pub(super) fn take(&mut self, stream: StreamId) -> Option<Exchange> {
        let taken = self.all.remove(stream)?;
        if let Some(due) = taken.due {
            self.due.discard(due);
        }
        self.forget(stream, &taken);
        Some(taken)
    }

    /// Marks an exchange as spent, so that nothing more is expected of it. Returns what it was.
    pub(super) fn spend(&mut self, stream: StreamId) -> Option<Exchange> {
        let spent = self.all.get_mut(stream)?.spend();
        self.forget(stream, &spent);
        Some(spent)
    }

    /// Records that this many bytes of a request were sent.
    pub(super) fn sent(&mut self, stream: StreamId, len: usize) {
        if let Some(exchange) = self.all.get_mut(stream) {
            let read = len.min(exchange.under_way);
            exchange.under_way -= read;
            self.under_way -= read;
        }
    }

    /// Takes out the buffered body, to continue reading it.
    pub(super) fn take_body(&mut self, stream: StreamId) -> Option<Body> {
        let exchange = self.all.get_mut(stream)?;
        let body = core::mem::replace(&mut exchange.body, Body::Ignored);
        self.buffered -= body.buffered();
        Some(body)
    }

    /// Puts the body back, unless the exchange is spent.
    pub(super) fn put_body(&mut self, stream: StreamId, body: Body) {
        if let Some(exchange) = self.all.get_mut(stream) {
            if !matches!(exchange.kind, ExchangeKind::Spent) {
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

#[cfg(test)]
mod tests {
    use super::super::Load;
    use super::super::exchange::Text;
    use super::*;

    /// An exchange that carries the request `wire`, with this many bytes.
    fn request(wire: u64, under_way: usize) -> Exchange {
        Exchange {
            under_way,
            ..Exchange::new(ExchangeKind::Request(wire), Load::None)
        }
    }

    fn text(bytes: &[u8]) -> Body {
        let mut text = Text::default();
        text.push(bytes, 100);
        Body::Text(text)
    }

    fn weighs(table: &Table) -> (usize, usize) {
        (table.buffered(), table.under_way())
    }

    #[test]
    fn what_has_arrived_and_what_is_under_way_weighs_until_it_is_over() {
        let mut table = Table::new();
        let [one, other] = [1, 2].map(|wire| table.add(request(wire, 10)));
        table.put_body(one, text(b"abc"));
        table.put_body(other, text(b"de"));
        assert_eq!(weighs(&table), (5, 20));
        table.sent(one, 4);
        assert_eq!(weighs(&table), (5, 16));
        table.sent(one, 40);
        assert_eq!(weighs(&table), (5, 10), "no more is sent than there was");
        let body = table.take_body(one).unwrap();
        assert_eq!(weighs(&table), (2, 10));
        table.put_body(one, body);
        assert_eq!(weighs(&table), (5, 10));
        table.spend(other);
        assert_eq!(weighs(&table), (3, 0));
        table.put_body(other, text(b"late"));
        assert_eq!(weighs(&table), (3, 0), "it is not about that any more");
        table.take(one);
        assert_eq!(weighs(&table), (0, 0));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_reply_is_brought_by_the_newest_exchange_that_is_for_it() {
        let mut table = Table::new();
        let [first, rest] = [(); 2].map(|()| table.add(request(1, 0)));
        assert_eq!(table.find(1), Some(rest));
        table.take(first);
        assert_eq!(table.find(1), Some(rest));
        table.take(rest);
        assert_eq!(table.find(1), None);
    }

    #[test]
    fn what_is_over_before_its_time_does_not_begin() {
        let mut table = Table::new();
        let all = [(); 3].map(|()| table.add(Exchange::new(ExchangeKind::Listen, Load::None)));
        for stream in all {
            table.begin_soon(stream);
        }
        table.take(all[1]);
        assert!(table.has_due());
        assert_eq!(table.next_due(), Some(all[0]));
        assert_eq!(table.next_due(), Some(all[2]));
        assert!(!table.has_due());
    }

    /// Its timer may fire again before the driver polls.
    #[test]
    fn exchange_that_is_queued_again_begins_once() {
        let mut table = Table::new();
        let stream = table.add(Exchange::new(ExchangeKind::Listen, Load::None));
        table.begin_soon(stream);
        table.begin_soon(stream);
        assert_eq!(table.next_due(), Some(stream));
        assert!(!table.has_due());
    }
}
