//! Questions to clients that have no outcome yet. Sees no frames and no time.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::origin::{Lane, SessionKey};
use crate::id::{AskId, RequestId};
use crate::wire::{Id, Payload};

#[derive(Debug)]
pub(super) struct Open {
    /// For which request, if for one.
    pub(super) request: Option<RequestId>,
    /// The legacy client that is asked: nobody else can answer.
    pub(super) session: Option<SessionKey>,
    /// The way that it takes to it.
    pub(super) lane: Lane,
    /// What its answer is called in the next round, if not by its number.
    pub(super) key: Option<Box<str>>,
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
        let key = self.key.as_ref().map_or(0, |key| key.len());
        self.method.len() + key + params
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

    /// What the answer to a question is called in the next round.
    pub(super) fn key(&self, ask: AskId) -> Cow<'_, str> {
        let given = self.open.get(&ask).and_then(|open| open.key.as_deref());
        given.map_or_else(|| Cow::Owned(ask.number().to_string()), Cow::Borrowed)
    }

    /// The one of these questions that has this key.
    pub(super) fn by_key(&self, asked: &[AskId], key: &str) -> Option<AskId> {
        // A client can send many keys: none costs more than to look at it.
        let number = is_number(key).then(|| key.parse().ok()).flatten();
        let number = number.filter(|_| !key.starts_with('0'));
        asked.iter().copied().find(|ask| {
            let given = self.open.get(ask).and_then(|open| open.key.as_deref());
            given.map_or(number == Some(ask.number()), |given| given == key)
        })
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

    /// Those to this legacy client.
    pub(super) fn to_legacy(&self, session: SessionKey) -> Vec<AskId> {
        let open = self.open.iter();
        open.filter(|(_, open)| open.session == Some(session))
            .map(|(ask, _)| *ask)
            .collect()
    }

    /// Those to this legacy client that were not written yet, and the ways that they take.
    pub(super) fn unwritten(&self, session: SessionKey) -> Vec<(AskId, Lane)> {
        let open = self.open.iter();
        open.filter(|(_, open)| open.session == Some(session))
            .filter(|(_, open)| open.place == Place::Wire(false))
            .map(|(ask, open)| (*ask, open.lane))
            .collect()
    }

    /// The oldest that is open.
    pub(super) fn first(&self) -> Option<AskId> {
        self.open.keys().next().copied()
    }

    /// The question that a reply with this id answers, when it comes from this client.
    pub(super) fn find(&self, session: Option<SessionKey>, id: &Id) -> Found {
        let Id::Number(number) = id else {
            return Found::Unknown;
        };
        let number = u64::try_from(*number).unwrap_or(0);
        if !(1..self.next).contains(&number) {
            return Found::Unknown;
        }
        let ask = AskId::from_number(number);
        let Some(open) = self.open.get(&ask) else {
            return Found::Late;
        };
        match open.place {
            Place::Wire(_) if open.session != session => Found::Unknown,
            Place::Wire(true) => Found::Open(ask),
            Place::Queued | Place::Round | Place::Wire(false) => Found::Late,
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

/// Whether a key could be that of a question that has none but its number.
pub(super) fn is_number(key: &str) -> bool {
    key.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::StreamId;

    #[test]
    fn a_question_is_found_by_the_name_that_it_was_given_or_by_its_number() {
        let mut asks = Asks::new();
        let mut open = |key: Option<&str>| {
            asks.open(Open {
                request: None,
                session: None,
                lane: Lane::Stream(StreamId::DUPLEX),
                key: key.map(Into::into),
                method: "roots/list".into(),
                params: None,
                place: Place::Queued,
            })
        };
        let asked = [open(None), open(Some("name")), open(None)];
        for ask in asked {
            assert_eq!(asks.by_key(&asked, &asks.key(ask)), Some(ask));
        }
        for key in [
            "",
            "0",
            "01",
            "+1",
            " 1",
            "2",
            "4",
            "Name",
            "99999999999999999999",
        ] {
            assert_eq!(asks.by_key(&asked, key), None, "{key}");
        }
        assert_eq!(asks.by_key(&asked[1..], "1"), None, "not one of these");
    }
}
