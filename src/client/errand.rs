//! Tracks the purpose of each pending request by its wire id. Wire ids count up over the whole link and are never reused. So an id below the counter
//! that is not open belongs to a late reply.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::driver::CallId;
use crate::protocol::watch::List;
use crate::util::ascending_map::AscendingMap;
use crate::wire::Id;

/// The purpose of a pending request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Errand {
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
    SetLevel,
    Subscribe(Box<str>),
    Unsubscribe,
}

/// The result of looking up the id of a reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The id was issued, but no reply is expected any more.
    Late,
    /// A reply was expected; now it is not any more.
    Open(u64, Errand),
    /// The id was never issued.
    Unknown,
}

#[derive(Debug)]
pub(super) struct Errands {
    next: u64,
    /// The pending requests by id, which is the order of issue.
    open: AscendingMap<u64, Errand>,
    /// The ids of the link's own requests, for a search by purpose. They are few.
    own: AscendingMap<u64, ()>,
    /// The ids of the requests that set up the watch of a legacy server.
    setup: AscendingMap<u64, ()>,
}

impl Errand {
    /// Whether this is one of the link's own requests. There is rarely more than one of each kind.
    const fn is_own(&self) -> bool {
        match self {
            Errand::Discover
            | Errand::Initialize
            | Errand::LateDiscover
            | Errand::Page(_)
            | Errand::Probe
            | Errand::Revive => true,
            Errand::Call(_)
            | Errand::Listen
            | Errand::SetLevel
            | Errand::Subscribe(_)
            | Errand::Unsubscribe => false,
        }
    }

    /// Whether this request sets up a part of the watch.
    const fn is_setup(&self) -> bool {
        matches!(self, Errand::SetLevel | Errand::Subscribe(_))
    }
}

impl Errands {
    pub(super) const fn new() -> Errands {
        Errands {
            next: 1,
            open: AscendingMap::new(),
            own: AscendingMap::new(),
            setup: AscendingMap::new(),
        }
    }

    /// Issues a new wire id for a request with this purpose.
    pub(super) fn issue(&mut self, errand: Errand) -> u64 {
        let wire = self.next;
        self.next += 1;
        if errand.is_own() {
            self.own.add(wire, ());
        } else if errand.is_setup() {
            self.setup.add(wire, ());
        }
        self.open.add(wire, errand);
        wire
    }

    /// Reserves memory for this many further requests, so that issuing them allocates nothing.
    pub(super) fn reserve(&mut self, errands: usize) {
        self.open.reserve(errands);
    }

    /// Looks up the id of a reply, and closes its request.
    pub(super) fn take(&mut self, id: &Id) -> Found {
        // Some servers send the number back as text. That is accepted only while a request with this number is open.
        match id
            .counted()
            .and_then(|wire| Some((wire, self.close(wire)?)))
        {
            Some((wire, errand)) => Found::Open(wire, errand),
            None if self.was_issued(id) => Found::Late,
            None => Found::Unknown,
        }
    }

    /// Whether a request with this id was ever issued.
    pub(super) fn was_issued(&self, id: &Id) -> bool {
        wire_of(id).is_some_and(|wire| (1..self.next).contains(&wire))
    }

    /// The purpose of the open request with this id.
    pub(super) fn get(&self, id: &Id) -> Option<&Errand> {
        self.of_wire(id.counted()?)
    }

    pub(super) fn of_wire(&self, wire: u64) -> Option<&Errand> {
        self.open.get(wire)
    }

    /// Closes a request, so that no reply to it is expected any more.
    pub(super) fn close(&mut self, wire: u64) -> Option<Errand> {
        let errand = self.open.remove(wire)?;
        if errand.is_own() {
            self.own.forget(wire);
        } else if errand.is_setup() {
            self.setup.forget(wire);
        }
        Some(errand)
    }

    /// The wire id of the first open request with this purpose. There is rarely more than one.
    pub(super) fn wire_for(&self, errand: &Errand) -> Option<u64> {
        debug_assert!(errand.is_own());
        let mut own = self.own.keys();
        own.find(|wire| self.open.get(*wire) == Some(errand))
    }

    /// Changes the purpose of an open request.
    pub(super) fn rename(&mut self, from: &Errand, to: Errand) {
        let wire = self.wire_for(from);
        if let Some(errand) = wire.and_then(|wire| self.open.get_mut(wire)) {
            *errand = to;
        }
    }

    /// Closes all requests but those that are wanted.
    pub(super) fn keep(&mut self, mut is_wanted: impl FnMut(&Errand) -> bool) {
        self.open.retain(|_, errand| is_wanted(errand));
        for few in [&mut self.own, &mut self.setup] {
            few.retain(|wire, ()| self.open.get(wire).is_some());
        }
    }

    /// Closes the requests that set up the watch of a legacy server. Returns their wire ids.
    pub(super) fn close_setup(&mut self) -> Vec<u64> {
        let setup: Vec<u64> = self.setup.keys().collect();
        self.setup = AscendingMap::new();
        for wire in &setup {
            self.open.forget(*wire);
        }
        setup
    }

    /// Closes all requests. Returns them in the order of issue.
    pub(super) fn close_all(&mut self) -> AscendingMap<u64, Errand> {
        self.own = AscendingMap::new();
        self.setup = AscendingMap::new();
        core::mem::replace(&mut self.open, AscendingMap::new())
    }
}

/// The JSON-RPC id of a request. Wire ids count up from one, and no link lasts long enough to use them up.
pub(super) fn id_of(wire: u64) -> Id {
    Id::Number(number_of(wire))
}

pub(super) fn number_of(wire: u64) -> i64 {
    i64::try_from(wire).unwrap_or(i64::MAX)
}

pub(super) fn wire_of(id: &Id) -> Option<u64> {
    match id {
        Id::Number(number) => u64::try_from(*number).ok(),
        Id::Text(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_open_then_late_and_never_issued_again() {
        let mut errands = Errands::new();
        let wire = errands.issue(Errand::Probe);
        let id = Id::Number(i64::try_from(wire).unwrap());
        assert_eq!(errands.get(&id), Some(&Errand::Probe));
        assert_eq!(errands.take(&id), Found::Open(wire, Errand::Probe));
        assert_eq!(errands.take(&id), Found::Late);
        assert_ne!(errands.issue(Errand::Probe), wire);
    }

    #[test]
    fn id_is_a_count_or_the_text_of_that_count() {
        let mut errands = Errands::new();
        let wire = errands.issue(Errand::Probe);
        for text in [
            "01", "+1", " 1", "1 ", "1.0", "1e0", "-1", "0", "2", "", "one",
        ] {
            assert_eq!(
                errands.take(&Id::Text(text.into())),
                Found::Unknown,
                "{text:?}"
            );
        }
        for number in [-1, 0, 2] {
            assert_eq!(errands.take(&Id::Number(number)), Found::Unknown);
        }
        let one = Id::Text("1".into());
        assert_eq!(errands.take(&one), Found::Open(wire, Errand::Probe));
        assert_eq!(errands.take(&one), Found::Unknown, "it is not open");
        assert_eq!(errands.take(&Id::Number(1)), Found::Late);
    }

    #[test]
    fn errands_end_in_any_order() {
        let mut errands = Errands::new();
        let wires = [(); 5].map(|()| errands.issue(Errand::Unsubscribe));
        for at in [2, 0, 4, 1, 3] {
            assert_eq!(errands.close(wires[at]), Some(Errand::Unsubscribe));
        }
        assert!(errands.close_all().len() == 0);
    }
}
