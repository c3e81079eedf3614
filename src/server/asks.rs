//! The asks that have no outcome yet. Sees no frames and no time.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString;
use alloc::vec::Vec;

use super::origin::{Lane, SessionKey};
use crate::driver::{AskId, RequestId};
use crate::json::Payload;
use crate::wire::Id;

#[derive(Debug)]
pub(super) struct Open {
    /// The request that needs it, if any.
    pub(super) request: Option<RequestId>,
    /// The legacy client that is asked. No other client can answer.
    pub(super) session: Option<SessionKey>,
    /// The lane on which it is sent.
    pub(super) lane: Lane,
    /// The key of its answer in the next round. `None` if the key is the number of the ask.
    pub(super) key: Option<Box<str>>,
    pub(super) method: Cow<'static, str>,
    pub(super) params: Option<Payload>,
    pub(super) place: Place,
}

/// The progress of an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is to be written in place of the reply to its request.
    Queued,
    /// It was written in place of a reply. Its answer comes with the next round.
    Round,
    /// It is a request to a legacy client. True once it is written.
    Wire(bool),
}

#[derive(Debug)]
pub(super) struct Asks {
    next: u64,
    open: BTreeMap<AskId, Open>,
    /// The asks to each legacy client.
    by_session: BTreeMap<SessionKey, BTreeSet<AskId>>,
    /// The asks that have keys, by request and key.
    by_key: BTreeMap<RequestId, BTreeMap<Box<str>, AskId>>,
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
            by_session: BTreeMap::new(),
            by_key: BTreeMap::new(),
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
        if let Some(session) = open.session {
            self.by_session.entry(session).or_default().insert(ask);
        }
        if let (Some(request), Some(key)) = (open.request, &open.key) {
            let keys = self.by_key.entry(request).or_default();
            keys.insert(key.clone(), ask);
        }
        self.open.insert(ask, open);
        ask
    }

    pub(super) fn get(&self, ask: AskId) -> Option<&Open> {
        self.open.get(&ask)
    }

    /// The key of the answer to an ask, in the next round.
    pub(super) fn key(&self, ask: AskId) -> Cow<'_, str> {
        let given = self.open.get(&ask).and_then(|open| open.key.as_deref());
        given.map_or_else(|| Cow::Owned(ask.number().to_string()), Cow::Borrowed)
    }

    /// The ask of this request that has this key.
    pub(super) fn by_key(&self, request: RequestId, key: &str) -> Option<AskId> {
        let given = self.by_key.get(&request).and_then(|keys| keys.get(key));
        if given.is_some() {
            return given.copied();
        }
        // An ask without a key is named by its number.
        let number = is_number(key).then(|| key.parse().ok()).flatten();
        let ask = number.filter(|_| !key.starts_with('0'));
        let ask = AskId::from_number(ask?);
        let open = self.open.get(&ask)?;
        (open.request == Some(request) && open.key.is_none()).then_some(ask)
    }

    pub(super) fn get_mut(&mut self, ask: AskId) -> Option<&mut Open> {
        self.open.get_mut(&ask)
    }

    pub(super) fn close(&mut self, ask: AskId) -> Option<Open> {
        let open = self.open.remove(&ask)?;
        self.bytes -= open.bytes();
        if let Some(session) = open.session {
            if let Some(asks) = self.by_session.get_mut(&session) {
                asks.remove(&ask);
                if asks.is_empty() {
                    self.by_session.remove(&session);
                }
            }
        }
        if let (Some(request), Some(key)) = (open.request, &open.key) {
            if let Some(keys) = self.by_key.get_mut(&request) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_key.remove(&request);
                }
            }
        }
        Some(open)
    }

    /// Bytes of all open asks.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The asks to this legacy client.
    pub(super) fn to_legacy(&self, session: SessionKey) -> impl Iterator<Item = AskId> {
        let asks = self.by_session.get(&session);
        asks.into_iter().flatten().copied()
    }

    /// The number of asks to this legacy client.
    pub(super) fn count_to(&self, session: SessionKey) -> usize {
        self.by_session.get(&session).map_or(0, BTreeSet::len)
    }

    /// The asks to this legacy client that are not written yet, with their lanes.
    pub(super) fn unwritten(&self, session: SessionKey) -> Vec<(AskId, Lane)> {
        let asks = self.to_legacy(session);
        asks.filter_map(|ask| Some((ask, self.open.get(&ask)?)))
            .filter(|(_, open)| open.place == Place::Wire(false))
            .map(|(ask, open)| (ask, open.lane))
            .collect()
    }

    /// The oldest open ask.
    pub(super) fn first(&self) -> Option<AskId> {
        self.open.keys().next().copied()
    }

    /// Finds the ask that a reply with this id from this client answers.
    pub(super) fn find(&self, session: Option<SessionKey>, id: &Id) -> Found {
        let number = id
            .counted()
            .filter(|number| (1..self.next).contains(number));
        let Some(ask) = number.map(AskId::from_number) else {
            return Found::Unknown;
        };
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

/// The meaning of an id in a reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The id of an ask that is no longer open, or that was not written as a request.
    Late,
    /// The id of an open ask.
    Open(AskId),
    /// An id that this client was never given.
    Unknown,
}

/// The id of an ask on the wire: its number, which is never reused.
pub(super) fn id(ask: AskId) -> Id {
    Id::Number(i64::try_from(ask.number()).unwrap_or(i64::MAX))
}

/// Whether a key has the form of an ask's number.
pub(super) fn is_number(key: &str) -> bool {
    key.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::StreamId;

    const ONE: RequestId = RequestId::from_number(1);

    #[test]
    fn reply_whose_id_is_the_text_of_the_number_is_taken() {
        let mut asks = Asks::new();
        let ask = asks.open(Open {
            request: None,
            session: None,
            lane: Lane::Stream(StreamId::DUPLEX),
            key: None,
            method: "roots/list".into(),
            params: None,
            place: Place::Wire(true),
        });
        for id in [Id::Number(1), Id::Text("1".into())] {
            assert_eq!(asks.find(None, &id), Found::Open(ask), "{id}");
        }
        for id in ["01", "+1", "2", ""] {
            let found = asks.find(None, &Id::Text(id.into()));
            assert_eq!(found, Found::Unknown, "{id:?}");
        }
    }

    #[test]
    fn a_question_is_found_by_the_name_that_it_was_given_or_by_its_number() {
        let mut asks = Asks::new();
        let mut open = |key: Option<&str>| {
            asks.open(Open {
                request: Some(ONE),
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
            assert_eq!(asks.by_key(ONE, &asks.key(ask)), Some(ask));
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
            assert_eq!(asks.by_key(ONE, key), None, "{key}");
        }
        let other = RequestId::from_number(2);
        assert_eq!(asks.by_key(other, "1"), None, "that of another request");
        for ask in asked {
            asks.close(ask);
        }
        assert!(asks.by_key.is_empty() && asks.by_session.is_empty());
    }
}
