//! Ranks what gives way when a limit that all clients share is reached: responses, sessions and requests. Does not depend on messages.

use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;
use core::time::Duration;

use crate::driver::{Instant, StreamId};
use crate::server::origin::SessionKey;

/// A response with no more unread bytes than this is not counted. With 4 KiB, the default 4,096 exchanges hold at most a quarter of the
/// limit uncounted, and most responses are never counted.
pub(crate) const LIGHT: usize = 4 << 10;

/// Most clients finish their handshake within this time.
const HANDSHAKE: Duration = Duration::from_secs(2);

/// The order in which clients give way.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// The unread bytes of responses.
    pub(crate) unread: Weights,
    /// The sessions with nothing in flight.
    pub(crate) idle: IdleSessions,
    /// The streams of sessions with unanswered requests for which no client waits, oldest first. A stream has the number of its first
    /// exchange.
    pub(crate) abandoned: BTreeSet<StreamId>,
}

/// The unread bytes of each exchange.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    bytes: BTreeMap<StreamId, usize>,
    order: BTreeSet<(usize, Reverse<StreamId>)>,
    total: usize,
}

impl Weights {
    /// Sets the unread bytes of an exchange.
    pub(crate) fn set(&mut self, stream: StreamId, bytes: usize) {
        let before = if bytes > LIGHT {
            self.bytes.insert(stream, bytes)
        } else {
            self.bytes.remove(&stream)
        };
        if let Some(before) = before {
            self.order.remove(&(before, Reverse(stream)));
            self.total -= before;
        }
        if bytes > LIGHT {
            self.order.insert((bytes, Reverse(stream)));
            self.total += bytes;
        }
    }

    pub(crate) const fn total(&self) -> usize {
        self.total
    }

    /// The unread bytes of an exchange; 0 if it is not counted.
    pub(crate) fn of(&self, stream: StreamId) -> usize {
        self.bytes.get(&stream).copied().unwrap_or(0)
    }

    /// The exchange with most unread bytes, other than `newest`; of equals, the oldest.
    pub(crate) fn heaviest_but(&self, newest: StreamId) -> Option<StreamId> {
        let streams = self.order.iter().rev().map(|(_, stream)| stream.0);
        streams.take(2).find(|stream| *stream != newest)
    }
}

/// How much a session was used. Sessions with less use give way first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// Its handshake is not finished.
    Unfinished,
    /// No request was ever made in it.
    Unused,
    /// A request was made in it.
    Used,
}

/// The sessions with nothing in flight, in the order in which they give way.
#[derive(Debug, Default)]
pub(crate) struct IdleSessions {
    places: BTreeMap<SessionKey, (Standing, Instant)>,
    order: BTreeSet<(Standing, Instant, SessionKey)>,
}

impl IdleSessions {
    /// Sets the rank of a session, and since when it has it. `None` if the session is busy or over.
    pub(crate) fn set(&mut self, key: SessionKey, place: Option<(Standing, Instant)>) {
        let before = match place {
            Some(place) => self.places.insert(key, place),
            None => self.places.remove(&key),
        };
        if let Some((standing, since)) = before {
            self.order.remove(&(standing, since, key));
        }
        if let Some((standing, since)) = place {
            self.order.insert((standing, since, key));
        }
    }

    /// The session that gives way first.
    ///
    /// A new client had no time for a request. So among the sessions without a request, the oldest gives way first. A session whose
    /// handshake takes longer than `HANDSHAKE` gives way before all others.
    pub(crate) fn first(&self, now: Instant) -> Option<SessionKey> {
        let first = |standing| {
            let from = (standing, Instant::ZERO, SessionKey::DUPLEX);
            let first = self.order.range(from..).next()?;
            (first.0 == standing).then_some((first.1, first.2))
        };
        let unfinished = first(Standing::Unfinished);
        let overdue = unfinished.filter(|(since, _)| now.since(*since) > HANDSHAKE);
        let idle = overdue
            .or_else(|| unfinished.into_iter().chain(first(Standing::Unused)).min())
            .or_else(|| first(Standing::Used));
        idle.map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_is_found_and_the_oldest_of_equals() {
        let mut weights = Weights::default();
        let [one, two, three] = [1, 2, 3].map(StreamId::new);
        weights.set(one, LIGHT);
        assert_eq!((weights.heaviest_but(one), weights.total()), (None, 0));
        weights.set(two, 3 * LIGHT);
        weights.set(three, 3 * LIGHT);
        assert_eq!(weights.heaviest_but(one), Some(two));
        assert_eq!(weights.heaviest_but(two), Some(three));
        weights.set(two, 2 * LIGHT);
        assert_eq!(weights.heaviest_but(one), Some(three));
        weights.set(three, 0);
        assert_eq!(weights.heaviest_but(one), Some(two));
        assert_eq!(weights.heaviest_but(two), None);
        assert_eq!(weights.total(), 2 * LIGHT);
        weights.set(two, 0);
        assert_eq!((weights.heaviest_but(one), weights.total()), (None, 0));
        assert!(weights.bytes.is_empty() && weights.order.is_empty());
    }

    #[test]
    fn who_did_least_gives_way_first_and_then_who_is_idle_for_longest() {
        let mut idle = IdleSessions::default();
        let first = SessionKey::DUPLEX.next();
        let (second, third) = (first.next(), first.next().next());
        let at = Instant::from_nanos;
        idle.set(first, Some((Standing::Used, at(1))));
        idle.set(second, Some((Standing::Used, at(2))));
        idle.set(third, Some((Standing::Unfinished, at(3))));
        assert_eq!(idle.first(at(4)), Some(third));
        idle.set(third, None);
        assert_eq!(idle.first(at(4)), Some(first));
        idle.set(first, Some((Standing::Used, at(4))));
        assert_eq!(idle.first(at(5)), Some(second));
        assert_eq!(idle.order.len(), 2);
    }

    #[test]
    fn who_has_just_come_does_not_give_way_to_others_who_have_done_nothing() {
        let mut idle = IdleSessions::default();
        let unused = SessionKey::DUPLEX.next();
        let new = unused.next();
        let at = Instant::from_nanos;
        idle.set(unused, Some((Standing::Unused, at(1))));
        idle.set(new, Some((Standing::Unfinished, at(2))));
        assert_eq!(idle.first(at(3)), Some(unused));
        assert_eq!(idle.first(at(2) + HANDSHAKE), Some(unused), "it may");
        let late = at(3) + HANDSHAKE;
        assert_eq!(idle.first(late), Some(new), "it takes too long");
        idle.set(new, Some((Standing::Unused, at(2))));
        assert_eq!(idle.first(late), Some(unused));
    }
}
