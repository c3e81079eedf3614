//! Tracks the purpose of each pending request by its wire id. Wire ids count up over the whole link and are never reused. So an id below the counter
//! that is not open belongs to a late reply.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::driver::CallId;
use crate::protocol::LogLevel;
use crate::protocol::watch::List;
use crate::util::ascending_map::AscendingMap;
use crate::wire::Id;

/// The purpose of a pending request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::client) enum Purpose {
    Call(CallId),
    Discover,
    Initialize,
    /// A `server/discover` without a reply in time.
    LateDiscover,
    Listen,
    Page(List),
    Probe,
    /// A ping that tests whether the session of an earlier epoch continues.
    Revive,
    SetLevel(LogLevel),
    Subscribe(Box<str>),
    Unsubscribe,
}

/// The result of looking up the id of a reply.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::client) enum Found {
    /// The id was issued, but no reply is expected any more.
    Late,
    /// A reply was expected; now it is not any more.
    Open(u64, Purpose),
    /// The id was never issued.
    Unknown,
}

/// The number of `resources/unsubscribe` requests that may be open. Nothing depends on their replies, so older ones are not awaited any more.
const UNSUBSCRIBES: usize = 64;

#[derive(Debug)]
pub(in crate::client) struct Pending {
    next: u64,
    /// The pending requests by id, which is the order of issue.
    open: AscendingMap<u64, Purpose>,
    /// The ids of the link's own requests, for a search by purpose. They are few.
    own: AscendingMap<u64, ()>,
    /// The ids of the requests that set up the watch of a legacy server.
    setup: AscendingMap<u64, ()>,
}

impl Purpose {
    /// Whether this is one of the link's own requests. There is rarely more than one of each kind, and at most [`UNSUBSCRIBES`].
    const fn is_own(&self) -> bool {
        match self {
            Purpose::Discover
            | Purpose::Initialize
            | Purpose::LateDiscover
            | Purpose::Page(_)
            | Purpose::Probe
            | Purpose::Revive
            | Purpose::Unsubscribe => true,
            Purpose::Call(_) | Purpose::Listen | Purpose::SetLevel(_) | Purpose::Subscribe(_) => {
                false
            }
        }
    }

    /// Whether this request sets up a part of the watch.
    const fn is_setup(&self) -> bool {
        matches!(self, Purpose::SetLevel(_) | Purpose::Subscribe(_))
    }
}

impl Pending {
    pub(in crate::client) const fn new() -> Pending {
        Pending {
            next: 1,
            open: AscendingMap::new(),
            own: AscendingMap::new(),
            setup: AscendingMap::new(),
        }
    }

    /// Issues a new wire id for a request with this purpose.
    pub(in crate::client) fn issue(&mut self, purpose: Purpose) -> u64 {
        let wire = self.next;
        self.next += 1;
        if !matches!(purpose, Purpose::Call(_)) {
            self.add_to_index(wire, &purpose);
        }
        self.open.add(wire, purpose);
        wire
    }

    fn add_to_index(&mut self, wire: u64, purpose: &Purpose) {
        if *purpose == Purpose::Unsubscribe {
            self.make_room_for_unsubscribe();
        }
        if purpose.is_own() {
            self.own.add(wire, ());
        } else if purpose.is_setup() {
            self.setup.add(wire, ());
        }
    }

    /// Closes the oldest `resources/unsubscribe` if as many are open as may be. These requests have no time limit.
    fn make_room_for_unsubscribe(&mut self) {
        let is_one = |wire: &u64| self.open.get(*wire) == Some(&Purpose::Unsubscribe);
        let mut all = self.own.keys().filter(is_one);
        let oldest = all.next();
        if let Some(oldest) = oldest.filter(|_| all.count() + 1 >= UNSUBSCRIBES) {
            self.close(oldest);
        }
    }

    /// Reserves memory for this many further requests, so that issuing them allocates nothing.
    pub(in crate::client) fn reserve(&mut self, pending: usize) {
        self.open.reserve(pending);
    }

    /// Looks up the id of a reply, and closes its request.
    pub(in crate::client) fn take(&mut self, id: &Id) -> Found {
        // Some servers send the number back as text. That is accepted only while a request with this number is open.
        match id
            .counted()
            .and_then(|wire| Some((wire, self.close(wire)?)))
        {
            Some((wire, purpose)) => Found::Open(wire, purpose),
            None if self.was_issued(id) => Found::Late,
            None => Found::Unknown,
        }
    }

    /// Whether a request with this id was ever issued.
    pub(in crate::client) fn was_issued(&self, id: &Id) -> bool {
        wire_of(id).is_some_and(|wire| (1..self.next).contains(&wire))
    }

    /// The purpose of the open request with this id.
    pub(in crate::client) fn get(&self, id: &Id) -> Option<&Purpose> {
        self.of_wire(id.counted()?)
    }

    pub(in crate::client) fn of_wire(&self, wire: u64) -> Option<&Purpose> {
        self.open.get(wire)
    }

    /// Closes a request, so that no reply to it is expected any more.
    pub(in crate::client) fn close(&mut self, wire: u64) -> Option<Purpose> {
        let purpose = self.open.remove(wire)?;
        if !matches!(purpose, Purpose::Call(_)) {
            self.remove_from_index(wire, &purpose);
        }
        Some(purpose)
    }

    fn remove_from_index(&mut self, wire: u64, purpose: &Purpose) {
        if purpose.is_own() {
            self.own.discard(wire);
        } else if purpose.is_setup() {
            self.setup.discard(wire);
        }
    }

    /// The wire id of the first open request with this purpose. There is rarely more than one.
    pub(in crate::client) fn wire_for(&self, purpose: &Purpose) -> Option<u64> {
        debug_assert!(purpose.is_own());
        let mut own = self.own.keys();
        own.find(|wire| self.open.get(*wire) == Some(purpose))
    }

    /// Changes the purpose of an open request.
    pub(in crate::client) fn rename(&mut self, from: &Purpose, to: Purpose) {
        let wire = self.wire_for(from);
        if let Some(purpose) = wire.and_then(|wire| self.open.get_mut(wire)) {
            *purpose = to;
        }
    }

    /// Closes all requests but those that are wanted.
    pub(in crate::client) fn keep(&mut self, mut is_wanted: impl FnMut(&Purpose) -> bool) {
        self.open.retain(|_, purpose| is_wanted(purpose));
        for few in [&mut self.own, &mut self.setup] {
            few.retain(|wire, ()| self.open.get(wire).is_some());
        }
    }

    /// Closes the requests that set up the watch of a legacy server. Returns their wire ids.
    pub(in crate::client) fn close_setup(&mut self) -> Vec<u64> {
        let setup: Vec<u64> = self.setup.keys().collect();
        self.setup = AscendingMap::new();
        for wire in &setup {
            self.open.discard(*wire);
        }
        setup
    }

    /// Closes all requests. Returns them in the order of issue.
    pub(in crate::client) fn close_all(&mut self) -> AscendingMap<u64, Purpose> {
        self.own = AscendingMap::new();
        self.setup = AscendingMap::new();
        core::mem::replace(&mut self.open, AscendingMap::new())
    }
}

/// The JSON-RPC id of a request. Wire ids count up from one, and no link lasts long enough to use them up.
pub(in crate::client) fn id_of(wire: u64) -> Id {
    Id::Number(number_of(wire))
}

pub(in crate::client) fn number_of(wire: u64) -> i64 {
    i64::try_from(wire).unwrap_or(i64::MAX)
}

pub(in crate::client) fn wire_of(id: &Id) -> Option<u64> {
    match id {
        Id::Number(number) => u64::try_from(*number).ok(),
        Id::Text(_) | Id::LongNumber(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_open_then_late_and_never_issued_again() {
        let mut pending = Pending::new();
        let wire = pending.issue(Purpose::Probe);
        let id = Id::Number(i64::try_from(wire).unwrap());
        assert_eq!(pending.get(&id), Some(&Purpose::Probe));
        assert_eq!(pending.take(&id), Found::Open(wire, Purpose::Probe));
        assert_eq!(pending.take(&id), Found::Late);
        assert_ne!(pending.issue(Purpose::Probe), wire);
    }

    #[test]
    fn id_is_a_count_or_the_text_of_that_count() {
        let mut pending = Pending::new();
        let wire = pending.issue(Purpose::Probe);
        for text in [
            "01", "+1", " 1", "1 ", "1.0", "1e0", "-1", "0", "2", "", "one",
        ] {
            assert_eq!(
                pending.take(&Id::Text(text.into())),
                Found::Unknown,
                "{text:?}"
            );
        }
        for number in [-1, 0, 2] {
            assert_eq!(pending.take(&Id::Number(number)), Found::Unknown);
        }
        let one = Id::Text("1".into());
        assert_eq!(pending.take(&one), Found::Open(wire, Purpose::Probe));
        assert_eq!(pending.take(&one), Found::Unknown, "it is not open");
        assert_eq!(pending.take(&Id::Number(1)), Found::Late);
    }

    #[test]
    fn errands_end_in_any_order() {
        let mut pending = Pending::new();
        let wires = [(); 5].map(|()| pending.issue(Purpose::Unsubscribe));
        for at in [2, 0, 4, 1, 3] {
            assert_eq!(pending.close(wires[at]), Some(Purpose::Unsubscribe));
        }
        assert!(pending.close_all().len() == 0);
    }

    /// The requests of the link itself are searched by purpose, so a closed one must not stay in the index.
    #[test]
    fn closed_request_is_in_no_index() {
        let mut pending = Pending::new();
        for purpose in [
            Purpose::Probe,
            Purpose::SetLevel(LogLevel::Info),
            Purpose::Unsubscribe,
        ] {
            let wire = pending.issue(purpose.clone());
            assert_eq!(pending.close(wire), Some(purpose));
        }
        assert_eq!((pending.own.len(), pending.setup.len()), (0, 0));
        pending.issue(Purpose::Probe);
        pending.issue(Purpose::SetLevel(LogLevel::Info));
        pending.keep(|_| false);
        assert_eq!((pending.own.len(), pending.setup.len()), (0, 0));
    }

    /// A server may never reply to them, and clients of a relay may subscribe and unsubscribe for ever.
    #[test]
    fn unsubscribe_requests_without_replies_do_not_add_up() {
        let mut pending = Pending::new();
        let others = [(); 2].map(|()| pending.issue(Purpose::Listen));
        let wires: Vec<u64> = (0..1_000)
            .map(|_| pending.issue(Purpose::Unsubscribe))
            .collect();
        assert_eq!(pending.open.len(), others.len() + UNSUBSCRIBES);
        let newest = wires[wires.len() - 1];
        assert_eq!(
            pending.take(&id_of(newest)),
            Found::Open(newest, Purpose::Unsubscribe)
        );
        assert_eq!(pending.take(&id_of(wires[0])), Found::Late);
        pending.close_all();
        assert_eq!((pending.open.len(), pending.own.len()), (0, 0));
    }

    #[test]
    fn only_the_requests_that_set_up_the_watch_are_closed_with_it() {
        let mut pending = Pending::new();
        let level = pending.issue(Purpose::SetLevel(LogLevel::Info));
        let others = [Purpose::Unsubscribe, Purpose::Listen, Purpose::Probe];
        let others = others.map(|purpose| pending.issue(purpose));
        let uri = pending.issue(Purpose::Subscribe("file:///a".into()));
        assert_eq!(pending.close_setup(), [level, uri]);
        assert!(pending.close_setup().is_empty());
        assert_eq!(pending.of_wire(level), None);
        assert!(others.iter().all(|wire| pending.of_wire(*wire).is_some()));
    }

    #[test]
    fn issuing_reserved_requests_allocates_nothing() {
        let mut pending = Pending::new();
        pending.reserve(9);
        let reserved = pending.open.capacity();
        assert!(reserved >= 9);
        for _ in 0..9 {
            pending.issue(Purpose::Unsubscribe);
        }
        assert_eq!(pending.open.capacity(), reserved);
    }
}
