//! Holds messages until the server knows its offer. Does not know who sent them, or how they are served.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::origin::{Lane, Origin, SessionKey, Whose, WireId};
use crate::json::Payload;
use crate::protocol::method::names;
use crate::wire::Id;

/// A message that waits for the offer.
#[derive(Debug)]
pub(super) enum Early {
    /// `notifications/initialized` in this session, after the `initialize` that it completes.
    Initialized(SessionKey),
    Request {
        from: Origin,
        id: Id,
        method: Box<str>,
        params: Option<Payload>,
    },
}

impl Early {
    /// Whether it is an `initialize` request.
    pub(super) fn is_introduction(&self) -> bool {
        matches!(self, Early::Request { method, .. } if **method == *names::INITIALIZE)
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Early::Initialized(_) => 0,
            Early::Request { method, params, .. } => {
                method.len() + params.as_ref().map_or(0, |params| params.as_str().len())
            }
        }
    }

    /// The lane for its reply, if it gets one.
    pub(super) const fn lane(&self) -> Option<Lane> {
        match self {
            Early::Initialized(_) => None,
            Early::Request { from, .. } => Some(from.lane),
        }
    }
}

/// All messages that wait for the offer, in order.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    entries: BTreeMap<u64, Early>,
    next: u64,
    /// The requests, by their ids.
    by_wire: BTreeMap<WireId, u64>,
    /// The number of `initialize` requests in each session.
    introductions: BTreeMap<SessionKey, usize>,
    /// The `notifications/initialized` of each session.
    initialized: BTreeMap<SessionKey, u64>,
    /// The number of replies that are to come on each lane.
    lanes: BTreeMap<Lane, usize>,
    bytes: usize,
}

impl Deferred {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, early: Early) {
        let number = self.next;
        self.next += 1;
        self.bytes += early.bytes();
        match &early {
            Early::Initialized(session) => {
                self.initialized.insert(*session, number);
            }
            Early::Request { from, id, .. } => {
                self.by_wire.insert(from.wire(id.clone()), number);
                *self.lanes.entry(from.lane).or_default() += 1;
                if let Some(session) = from.session.filter(|_| early.is_introduction()) {
                    *self.introductions.entry(session).or_default() += 1;
                }
            }
        }
        self.entries.insert(number, early);
    }

    /// The lanes on which replies are to come.
    pub(super) fn lanes(&self) -> Vec<Lane> {
        self.lanes.keys().copied().collect()
    }

    /// Removes and returns the oldest message.
    pub(super) fn pop(&mut self) -> Option<Early> {
        let (number, _) = self.entries.first_key_value()?;
        self.remove(*number)
    }

    /// Removes and returns the requests for `server/discover`.
    pub(super) fn take_discoveries(&mut self) -> Vec<(Origin, Id)> {
        let is_discovery = |early: &Early| matches!(early, Early::Request { method, .. } if **method == *names::SERVER_DISCOVER);
        let numbers: Vec<u64> = self
            .entries
            .iter()
            .filter_map(|(number, early)| is_discovery(early).then_some(*number))
            .collect();
        let taken = numbers
            .into_iter()
            .filter_map(|number| match self.remove(number)? {
                Early::Initialized(_) => None,
                Early::Request { from, id, .. } => Some((from, id)),
            });
        taken.collect()
    }

    /// Removes the request with this id, unless it is `initialize` (S-CANC-10).
    pub(super) fn cancel(&mut self, wire: &WireId) -> Option<Early> {
        let number = *self.by_wire.get(wire)?;
        let early = self.entries.get(&number)?;
        if early.is_introduction() {
            return None;
        }
        self.remove(number)
    }

    /// Removes all messages of this scope. Returns the lanes on which replies were to come.
    pub(super) fn cancel_all(&mut self, whose: Whose) -> Vec<Lane> {
        let mut lanes = Vec::new();
        let first = WireId::first(whose);
        while let Some((wire, number)) = self.by_wire.range(&first..).next() {
            if wire.whose != whose {
                break;
            }
            let number = *number;
            lanes.extend(self.remove(number).and_then(|early| early.lane()));
        }
        if let Whose::Session(session) = whose {
            if let Some(number) = self.initialized.get(&session) {
                self.remove(*number);
            }
        }
        lanes
    }

    fn remove(&mut self, number: u64) -> Option<Early> {
        let early = self.entries.remove(&number)?;
        self.bytes -= early.bytes();
        match &early {
            Early::Initialized(session) => {
                self.initialized.remove(session);
            }
            Early::Request { from, id, .. } => {
                self.by_wire.remove(&from.wire(id.clone()));
                one_less(&mut self.lanes, from.lane);
                if let Some(session) = from.session.filter(|_| early.is_introduction()) {
                    one_less(&mut self.introductions, session);
                }
            }
        }
        Some(early)
    }

    /// Whether an `initialize` of this session waits.
    pub(super) fn introduces(&self, session: SessionKey) -> bool {
        self.introductions.contains_key(&session)
    }

    /// Whether a `notifications/initialized` of this session waits.
    pub(super) fn ends_handshake(&self, session: SessionKey) -> bool {
        self.initialized.contains_key(&session)
    }

    /// Whether the request with this id waits.
    pub(super) fn has(&self, wire: &WireId) -> bool {
        self.by_wire.contains_key(wire)
    }

    /// Whether a reply on this lane is to come.
    pub(super) fn is_on(&self, lane: Lane) -> bool {
        self.lanes.contains_key(&lane)
    }
}

fn one_less<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
