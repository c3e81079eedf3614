//! The asks that have no outcome yet. Sees no frames and no time.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::ToString;
use alloc::vec::Vec;

use crate::driver::{AskId, RequestId};
use crate::json::{Json, Payload, object};
use crate::protocol::{Era, code, question};
use crate::server::config::Limits;
use crate::server::misuse::Misuse;
use crate::server::origin::{QueueId, SessionKey};
use crate::server::requests::places::Holder;
use crate::util::Arc;
use crate::wire::{ErrorObject, Id};

/// An ask that has no outcome yet.
#[derive(Debug)]
pub(crate) struct Ask {
    /// The request that needs it, if any.
    pub(crate) request: Option<RequestId>,
    /// The legacy client that is asked. No other client can answer.
    pub(crate) session: Option<SessionKey>,
    /// The client that its bytes count for. `None` on a byte stream.
    pub(crate) holder: Option<Arc<Holder>>,
    /// The queue on which it is sent.
    pub(crate) queue: QueueId,
    /// The key of its answer in the next round. `None` if the key is the number of the ask.
    pub(crate) key: Option<Box<str>>,
    pub(crate) method: Cow<'static, str>,
    pub(crate) params: Option<Payload>,
    pub(crate) place: Place,
    /// Whether the server behind a relay judges what is asked.
    pub(crate) is_passed: bool,
}

/// The progress of an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It is to be written in place of the reply to its request.
    Queued,
    /// It was written in place of a reply. Its answer comes with the next round.
    Round,
    /// It is a request to a legacy client. True once it is written.
    Wire(bool),
}

/// An ask that is over.
pub(crate) struct Closed {
    /// The request that needed it, if any.
    pub(crate) request: Option<RequestId>,
    /// The queue in which it may still wait to be written.
    pub(crate) unwritten: Option<QueueId>,
}

#[derive(Debug)]
pub(crate) struct Asks {
    next: u64,
    open: BTreeMap<AskId, Ask>,
    /// The asks to each legacy client.
    by_session: BTreeMap<SessionKey, BTreeSet<AskId>>,
    /// The asks that have keys, by request and key.
    by_key: BTreeMap<RequestId, BTreeMap<Box<str>, AskId>>,
    /// The bytes of all asks.
    bytes: usize,
    /// The bytes of the asks to each client over HTTP.
    bytes_to: BTreeMap<Arc<Holder>, usize>,
}

impl Ask {
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
    pub(crate) const fn new() -> Asks {
        Asks {
            next: 1,
            open: BTreeMap::new(),
            by_session: BTreeMap::new(),
            by_key: BTreeMap::new(),
            bytes: 0,
            bytes_to: BTreeMap::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn open(&mut self, open: Ask) -> AskId {
        let ask = AskId::from_number(self.next);
        self.next += 1;
        let bytes = open.bytes();
        self.bytes += bytes;
        if let Some(holder) = &open.holder {
            *self.bytes_to.entry(holder.clone()).or_default() += bytes;
        }
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

    pub(crate) fn get(&self, ask: AskId) -> Option<&Ask> {
        self.open.get(&ask)
    }

    /// Checks that a client can be asked one more thing, with this many bytes: a client of this era, in this session, with this holder.
    /// Without a holder, it is the only client. `away` requests wait for their clients to come back.
    pub(crate) fn check_room(
        &self,
        (era, session, holder): (Era, Option<SessionKey>, Option<&Arc<Holder>>),
        away: usize,
        bytes: usize,
        limits: &Limits,
    ) -> Result<(), Misuse> {
        let is_only = holder.is_none();
        // Where there are several clients, one must not use up the limit for all.
        let (open, most) = match (era, is_only) {
            (Era::Legacy, true) => (self.len(), limits.asks),
            (Era::Modern, true) => (self.len().max(away), limits.asks),
            (Era::Legacy, false) => (session.map_or(0, |s| self.count_to(s)), limits.asks),
            (Era::Modern, false) => (away, limits.requests),
        };
        if open >= most {
            return Err(Misuse::TooManyAsks { open });
        }
        if bytes > limits.message_bytes {
            return Err(Misuse::TooLarge { bytes });
        }
        // Asks are kept until they are answered, so their bytes have limits like those of messages. A client that is asked nothing else is
        // not the cause if they are exceeded.
        let own = holder.map_or(self.bytes, |holder| self.bytes_to(holder));
        let is_too_much =
            own + bytes > limits.queued_bytes || self.bytes + bytes > limits.all_queued_bytes;
        if own > 0 && is_too_much {
            return Err(Misuse::TooManyAsks { open });
        }
        Ok(())
    }

    /// The bytes of the asks to this client.
    fn bytes_to(&self, holder: &Arc<Holder>) -> usize {
        self.bytes_to.get(holder).copied().unwrap_or(0)
    }

    /// Records that an ask is written as a request to a legacy client, and returns it.
    pub(crate) fn write(&mut self, ask: AskId) -> Option<&Ask> {
        let open = self.open.get_mut(&ask)?;
        open.place = Place::Wire(true);
        Some(open)
    }

    /// Records that an ask is written in place of a reply.
    pub(crate) fn write_in_round(&mut self, ask: AskId) {
        if let Some(open) = self.open.get_mut(&ask) {
            open.place = Place::Round;
        }
    }

    /// An ask as a question of a round: its key, its method and its params.
    pub(crate) fn question(&self, ask: AskId) -> Option<(Cow<'_, str>, &str, Option<&Payload>)> {
        let open = self.open.get(&ask)?;
        Some((self.key(ask), &*open.method, open.params.as_ref()))
    }

    /// Whether an ask waits to be written in place of a reply.
    pub(crate) fn is_queued(&self, ask: AskId) -> bool {
        let open = self.open.get(&ask);
        open.is_some_and(|open| open.place == Place::Queued)
    }

    /// The queue for the cancellation of an ask, if its client received it as a request.
    pub(crate) fn cancellable(&self, ask: AskId) -> Option<QueueId> {
        let open = self.open.get(&ask)?;
        // S-CANC-11: an ask that runs as a task is cancelled differently, by the code that knows the task.
        let params = open.params.as_ref().map(Payload::json);
        let is_task = || question::task_feature(&open.method, params).is_some();
        (open.place == Place::Wire(true) && !is_task()).then_some(open.queue)
    }

    /// Returns the answers to the asks of a request, by key. Other keys are ignored (S-MRTR-17).
    pub(crate) fn read_answers(
        &self,
        request: RequestId,
        answers: Option<Json<'_>>,
    ) -> Result<Vec<(AskId, Payload)>, ErrorObject> {
        let mut given: Vec<(AskId, Payload)> = Vec::new();
        let mut earlier = BTreeSet::new();
        let mut is_readable = true;
        let read = object::members(answers.unwrap_or(Json::EMPTY), |key, value| {
            let Some(ask) = self.by_key(request, &key) else {
                return;
            };
            let answer = Payload::from(value);
            is_readable &= answer.is_object() && earlier.insert(ask);
            given.push((ask, answer));
        });
        if read.is_ok() && is_readable {
            return Ok(given);
        }
        let text = "`inputResponses` must be an object with each answer once, as an object";
        Err(ErrorObject::new(code::INVALID_PARAMS, text))
    }

    /// The key of the answer to an ask, in the next round.
    fn key(&self, ask: AskId) -> Cow<'_, str> {
        let given = self.open.get(&ask).and_then(|open| open.key.as_deref());
        given.map_or_else(|| Cow::Owned(ask.number().to_string()), Cow::Borrowed)
    }

    /// The ask of this request that has this key.
    pub(crate) fn by_key(&self, request: RequestId, key: &str) -> Option<AskId> {
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

    /// Removes an ask that has its outcome.
    pub(crate) fn close(&mut self, ask: AskId) -> Option<Closed> {
        let open = self.open.remove(&ask)?;
        self.bytes -= open.bytes();
        if let Some(holder) = &open.holder {
            if let Some(bytes) = self.bytes_to.get_mut(holder) {
                *bytes -= open.bytes();
                if *bytes == 0 {
                    self.bytes_to.remove(holder);
                }
            }
        }
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
        let is_unwritten = open.place == Place::Wire(false);
        Some(Closed {
            request: open.request,
            unwritten: is_unwritten.then_some(open.queue),
        })
    }

    /// The asks to this legacy client.
    pub(crate) fn of_session(&self, session: SessionKey) -> Vec<AskId> {
        let asks = self.by_session.get(&session);
        asks.into_iter().flatten().copied().collect()
    }

    /// The number of asks to this legacy client.
    fn count_to(&self, session: SessionKey) -> usize {
        self.by_session.get(&session).map_or(0, BTreeSet::len)
    }

    /// The asks to this legacy client that are not written yet, with their queues. They waited for the end of its handshake.
    pub(crate) fn unwritten(&self, session: SessionKey) -> Vec<(AskId, QueueId)> {
        let asks = self.by_session.get(&session).into_iter().flatten();
        asks.filter_map(|ask| Some((*ask, self.open.get(ask)?)))
            .filter(|(_, open)| open.place == Place::Wire(false))
            .map(|(ask, open)| (ask, open.queue))
            .collect()
    }

    /// The oldest open ask.
    pub(crate) fn first(&self) -> Option<AskId> {
        self.open.keys().next().copied()
    }

    /// Finds the ask that a reply with this id from this client answers.
    pub(crate) fn find(&self, session: Option<SessionKey>, id: &Id) -> Found {
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
pub(crate) enum Found {
    /// The id of an ask that is no longer open, or that was not written as a request.
    Late,
    /// The id of an open ask.
    Open(AskId),
    /// An id that this client was never given.
    Unknown,
}

/// The id of an ask on the wire: its number, which is never reused.
pub(crate) fn id(ask: AskId) -> Id {
    Id::Number(i64::try_from(ask.number()).unwrap_or(i64::MAX))
}

/// Whether a key has the form of an ask's number.
pub(crate) fn is_number(key: &str) -> bool {
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
        let ask = asks.open(Ask {
            request: None,
            session: None,
            holder: None,
            queue: QueueId::Stream(StreamId::DUPLEX),
            key: None,
            method: "roots/list".into(),
            params: None,
            place: Place::Wire(true),
            is_passed: false,
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
            asks.open(Ask {
                request: Some(ONE),
                session: None,
                holder: None,
                queue: QueueId::Stream(StreamId::DUPLEX),
                key: key.map(Into::into),
                method: "roots/list".into(),
                params: None,
                place: Place::Queued,
                is_passed: false,
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

    /// An ask of a request to the client of a session, with this key and these params.
    fn roots(session: SessionKey, key: Option<&str>, params: Option<&str>) -> Ask {
        Ask {
            request: Some(ONE),
            session: Some(session),
            holder: Some(Arc::new(Holder::Session(session))),
            queue: QueueId::Stream(StreamId::DUPLEX),
            key: key.map(Into::into),
            method: "roots/list".into(),
            params: params.map(|params| params.parse().unwrap()),
            place: Place::Wire(true),
            is_passed: false,
        }
    }

    #[test]
    fn open_asks_to_a_client_hold_as_many_bytes_as_the_limit_of_a_queue() {
        let session = SessionKey::DUPLEX.next();
        let of_first = "roots/list".len() + "name".len() + "{}".len();
        let limits = Limits {
            message_bytes: 100,
            queued_bytes: of_first + 50,
            all_queued_bytes: of_first + 50,
            ..Limits::default()
        };
        let mut asks = Asks::new();
        let check = |asks: &Asks, session, bytes| {
            let holder = Arc::new(Holder::Session(session));
            let client = (Era::Legacy, Some(session), Some(&holder));
            asks.check_room(client, 0, bytes, &limits)
        };
        assert_eq!(check(&asks, session, 100), Ok(()), "one is always asked");
        let too_large = Misuse::TooLarge { bytes: 101 };
        assert_eq!(check(&asks, session, 101), Err(too_large));
        let first = asks.open(roots(session, Some("name"), Some("{}")));
        assert_eq!(asks.bytes, of_first);
        assert_eq!(check(&asks, session, 50), Ok(()));
        let too_many = |open| Misuse::TooManyAsks { open };
        assert_eq!(check(&asks, session, 51), Err(too_many(1)));
        let other = session.next();
        assert_eq!(check(&asks, other, 100), Ok(()), "it is asked nothing else");
        let second = asks.open(roots(session, None, None));
        let third = asks.open(roots(other, None, None));
        assert_eq!(asks.bytes, of_first + 2 * "roots/list".len());
        let of_all = Err(too_many(1));
        assert_eq!(check(&asks, other, 31), of_all, "all have too many bytes");
        assert_eq!(check(&asks, other, 30), Ok(()));
        asks.close(first);
        assert_eq!(check(&asks, session, 46), Ok(()));
        for ask in [second, third] {
            asks.close(ask);
        }
        assert_eq!((asks.bytes, asks.len()), (0, 0));
        assert!(asks.bytes_to.is_empty());
    }

    #[test]
    fn asks_to_the_only_client_hold_as_many_bytes_as_the_limit_of_a_queue() {
        let limits = Limits {
            queued_bytes: 50,
            ..Limits::default()
        };
        let mut asks = Asks::new();
        let check = |asks: &Asks, bytes| {
            let client = (Era::Legacy, Some(SessionKey::DUPLEX), None);
            asks.check_room(client, 0, bytes, &limits)
        };
        assert_eq!(check(&asks, 51), Ok(()), "one is always asked");
        asks.open(Ask {
            holder: None,
            ..roots(SessionKey::DUPLEX, None, None)
        });
        assert_eq!(check(&asks, 40), Ok(()));
        let too_many = Misuse::TooManyAsks { open: 1 };
        assert_eq!(check(&asks, 41), Err(too_many));
    }

    #[test]
    fn ask_that_is_over_is_none_of_its_session() {
        let (session, other) = (SessionKey::DUPLEX.next(), SessionKey::DUPLEX);
        let mut asks = Asks::new();
        let [first, second] = [(); 2].map(|()| asks.open(roots(session, None, None)));
        assert_eq!(asks.of_session(session), [first, second]);
        assert_eq!((asks.count_to(session), asks.count_to(other)), (2, 0));
        asks.close(first);
        assert_eq!(asks.of_session(session), [second]);
        asks.close(second);
        assert_eq!(asks.count_to(session), 0);
        assert!(asks.by_session.is_empty());
    }

    #[test]
    fn reply_of_another_client_answers_no_ask() {
        let (session, other) = (SessionKey::DUPLEX.next(), SessionKey::DUPLEX);
        let mut asks = Asks::new();
        let ask = asks.open(roots(session, None, None));
        let id = id(ask);
        assert_eq!(asks.find(Some(session), &id), Found::Open(ask));
        assert_eq!(asks.find(Some(other), &id), Found::Unknown);
        assert_eq!(asks.find(None, &id), Found::Unknown);
        asks.close(ask);
        assert_eq!(asks.find(Some(session), &id), Found::Late);
    }
}
