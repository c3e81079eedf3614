//! Questions to clients that have no outcome yet. Sees no frames and no time.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::id::{AskId, RequestId};
use crate::wire::{Id, Payload};

#[derive(Debug)]
pub(super) struct Open {
    /// For which request, if for one.
    pub(super) request: Option<RequestId>,
    pub(super) method: Cow<'static, str>,
    pub(super) params: Option<Payload>,
    pub(super) place: Place,
}

/// Where a question stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is to be put in the place of the answer to its request.
    Queued,
    /// It was put in the place of an answer, and the answer to it comes with the next round.
    Round,
    /// It is a request of our own, to a legacy client. Whether it was written.
    Wire(bool),
}

#[derive(Debug)]
pub(super) struct Asks {
    next: u64,
    open: BTreeMap<AskId, Open>,
    bytes: usize,
}

impl Open {
    fn bytes(&self) -> usize {
        let params = self
            .params
            .as_ref()
            .map_or(0, |params| params.as_str().len());
        self.method.len() + params
    }
}

impl Asks {
    pub(super) const fn new() -> Asks {
        Asks {
            next: 1,
            open: BTreeMap::new(),
            bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn open(&mut self, open: Open) -> AskId {
        let ask = AskId::from_number(self.next);
        self.next += 1;
        self.bytes += open.bytes();
        self.open.insert(ask, open);
        ask
    }

    pub(super) fn get(&self, ask: AskId) -> Option<&Open> {
        self.open.get(&ask)
    }

    pub(super) fn get_mut(&mut self, ask: AskId) -> Option<&mut Open> {
        self.open.get_mut(&ask)
    }

    pub(super) fn close(&mut self, ask: AskId) -> Option<Open> {
        let open = self.open.remove(&ask)?;
        self.bytes -= open.bytes();
        Some(open)
    }

    /// Bytes that the questions take up.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Those to the legacy client.
    pub(super) fn to_legacy(&self) -> Vec<AskId> {
        let open = self.open.iter();
        open.filter(|(_, open)| matches!(open.place, Place::Wire(_)))
            .map(|(ask, _)| *ask)
            .collect()
    }

    /// Those to the legacy client that were not written yet.
    pub(super) fn unwritten(&self) -> Vec<AskId> {
        let open = self.open.iter();
        open.filter(|(_, open)| open.place == Place::Wire(false))
            .map(|(ask, _)| *ask)
            .collect()
    }

    /// The oldest that is open.
    pub(super) fn first(&self) -> Option<AskId> {
        self.open.keys().next().copied()
    }

    /// The question that a reply with this id answers.
    pub(super) fn find(&self, id: &Id) -> Found {
        let Id::Number(number) = id else {
            return Found::Unknown;
        };
        let number = u64::try_from(*number).unwrap_or(0);
        if !(1..self.next).contains(&number) {
            return Found::Unknown;
        }
        let ask = AskId::from_number(number);
        match self.open.get(&ask).map(|open| open.place) {
            Some(Place::Wire(true)) => Found::Open(ask),
            Some(Place::Queued | Place::Round | Place::Wire(false)) | None => Found::Late,
        }
    }
}

/// What an id in a reply turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It was given to a question that is not open any more.
    Late,
    /// It is that of an open question.
    Open(AskId),
    /// It was never given to one.
    Unknown,
}

/// The id of a question on the wire: its own number, which no other question ever has.
pub(super) fn id(ask: AskId) -> Id {
    Id::Number(i64::try_from(ask.number()).unwrap_or(i64::MAX))
}

/// The key of a question in the place of a result.
pub(super) fn key(ask: AskId) -> String {
    ask.number().to_string()
}

/// The question that has this key, if any ever had.
pub(super) fn by_key(text: &str) -> Option<AskId> {
    let ask = AskId::from_number(text.parse().ok()?);
    (key(ask) == text).then_some(ask)
}
