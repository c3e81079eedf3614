//! Holds messages until the server knows its offer. Does not know who sent them, or how they are served.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::json::Payload;
use crate::protocol::code;
use crate::protocol::method::names;
use crate::server::origin::{IdScope, Origin, QueueId, SessionKey, WireId};
use crate::server::requests::places::{Holder, Places};
use crate::util::Arc;
use crate::wire::SHORT;
use crate::wire::{ErrorObject, Id};

/// A message that waits for the offer.
#[derive(Debug)]
pub(crate) enum DeferredMessage {
    /// `notifications/initialized` in this session, after the `initialize` that it completes.
    Initialized(SessionKey),
    Request {
        from: Origin,
        id: Id,
        method: Box<str>,
        params: Option<Payload>,
    },
}

impl DeferredMessage {
    /// Whether it is an `initialize` request.
    pub(crate) fn is_initialize(&self) -> bool {
        matches!(self, DeferredMessage::Request { method, .. } if **method == *names::INITIALIZE)
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            DeferredMessage::Initialized(_) => 0,
            DeferredMessage::Request { method, params, .. } => {
                method.len() + params.as_ref().map_or(0, |params| params.as_str().len())
            }
        }
    }

    /// The queue for its reply, if it gets one.
    pub(crate) const fn queue(&self) -> Option<QueueId> {
        match self {
            DeferredMessage::Initialized(_) => None,
            DeferredMessage::Request { from, .. } => Some(from.queue),
        }
    }
}

/// All messages that wait for the offer, in order.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    entries: BTreeMap<u64, DeferredMessage>,
    next: u64,
    /// The requests, by their ids.
    by_wire: BTreeMap<WireId, u64>,
    /// The number of `initialize` requests in each session.
    initializes: BTreeMap<SessionKey, usize>,
    /// The `notifications/initialized` of each session.
    initialized: BTreeMap<SessionKey, u64>,
    /// The number of replies that are to come on each queue.
    queues: BTreeMap<QueueId, usize>,
    /// The requests of each client.
    places: Places<u64>,
    bytes: usize,
}

impl Deferred {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Checks that a request with params of this many bytes can wait, if all together have at most `most`.
    pub(crate) fn check_room(
        &self,
        method: &str,
        bytes: usize,
        most: usize,
    ) -> Result<(), ErrorObject> {
        // A lone request waits whatever its size. Short requests always wait, because long ones of other clients are no reason to refuse
        // them.
        let is_long = bytes > SHORT && self.bytes > 0;
        if is_long && self.bytes + method.len() + bytes > most {
            let text = "too much waits to be served already; ask again when some of it is";
            return Err(ErrorObject::new(code::INTERNAL_ERROR, text));
        }
        Ok(())
    }

    pub(crate) fn push(&mut self, message: DeferredMessage) {
        let number = self.next;
        self.next += 1;
        self.bytes += message.bytes();
        match &message {
            DeferredMessage::Initialized(session) => {
                self.initialized.insert(*session, number);
            }
            DeferredMessage::Request { from, id, .. } => {
                self.by_wire.insert(from.wire(id.clone()), number);
                *self.queues.entry(from.queue).or_default() += 1;
                if let Some(holder) = &from.holder {
                    self.places.take(holder, number);
                }
                if let Some(session) = from.session.filter(|_| message.is_initialize()) {
                    *self.initializes.entry(session).or_default() += 1;
                }
            }
        }
        self.entries.insert(number, message);
    }

    /// The number of requests of a client.
    pub(crate) fn held_by(&self, holder: &Arc<Holder>) -> usize {
        self.places.count(holder)
    }

    /// Removes and returns the oldest request of the client that has most, if it has more than one with `mine` and another would have.
    pub(crate) fn displace(&mut self, mine: usize) -> Option<DeferredMessage> {
        let number = self.places.of_heaviest(mine)?;
        self.remove(number)
    }

    pub(crate) fn clear(&mut self) {
        *self = Deferred::default();
    }

    /// The queues on which replies are to come.
    pub(crate) fn queues(&self) -> Vec<QueueId> {
        self.queues.keys().copied().collect()
    }

    /// Removes and returns the oldest message.
    pub(crate) fn pop(&mut self) -> Option<DeferredMessage> {
        let (number, _) = self.entries.first_key_value()?;
        self.remove(*number)
    }

    /// Removes and returns the requests for `server/discover`.
    pub(crate) fn take_discoveries(&mut self) -> Vec<(Origin, Id)> {
        let is_discovery = |message: &DeferredMessage| matches!(message, DeferredMessage::Request { method, .. } if **method == *names::SERVER_DISCOVER);
        let numbers: Vec<u64> = self
            .entries
            .iter()
            .filter_map(|(number, message)| is_discovery(message).then_some(*number))
            .collect();
        let taken = numbers
            .into_iter()
            .filter_map(|number| match self.remove(number)? {
                DeferredMessage::Initialized(_) => None,
                DeferredMessage::Request { from, id, .. } => Some((from, id)),
            });
        taken.collect()
    }

    /// Removes the request with this id, unless it is `initialize` (S-CANC-10).
    pub(crate) fn cancel(&mut self, wire: &WireId) -> Option<DeferredMessage> {
        let number = *self.by_wire.get(wire)?;
        let message = self.entries.get(&number)?;
        if message.is_initialize() {
            return None;
        }
        self.remove(number)
    }

    /// Removes all messages of this scope. Returns the queues on which replies were to come.
    pub(crate) fn cancel_all(&mut self, scope: IdScope) -> Vec<QueueId> {
        let mut queues = Vec::new();
        let first = WireId::first(scope);
        while let Some((wire, number)) = self.by_wire.range(&first..).next() {
            if wire.scope != scope {
                break;
            }
            let number = *number;
            queues.extend(self.remove(number).and_then(|message| message.queue()));
        }
        if let IdScope::Session(session) = scope {
            if let Some(number) = self.initialized.get(&session) {
                self.remove(*number);
            }
        }
        queues
    }

    fn remove(&mut self, number: u64) -> Option<DeferredMessage> {
        let message = self.entries.remove(&number)?;
        self.bytes -= message.bytes();
        match &message {
            DeferredMessage::Initialized(session) => {
                self.initialized.remove(session);
            }
            DeferredMessage::Request { from, id, .. } => {
                self.by_wire.remove(&from.wire(id.clone()));
                one_less(&mut self.queues, from.queue);
                if let Some(holder) = &from.holder {
                    self.places.free(holder, number);
                }
                if let Some(session) = from.session.filter(|_| message.is_initialize()) {
                    one_less(&mut self.initializes, session);
                }
            }
        }
        Some(message)
    }

    /// Whether an `initialize` of this session waits.
    pub(crate) fn awaits_agreement(&self, session: SessionKey) -> bool {
        self.initializes.contains_key(&session)
    }

    /// Whether a `notifications/initialized` of this session waits.
    pub(crate) fn has_initialized(&self, session: SessionKey) -> bool {
        self.initialized.contains_key(&session)
    }

    /// Whether the request with this id waits.
    pub(crate) fn has(&self, wire: &WireId) -> bool {
        self.by_wire.contains_key(wire)
    }

    /// Whether a reply on this queue is to come.
    pub(crate) fn awaits_reply_on(&self, queue: QueueId) -> bool {
        self.queues.contains_key(&queue)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts an `initialize` of a byte stream, and the end of that handshake.
    fn handshake(deferred: &mut Deferred) {
        deferred.push(DeferredMessage::Request {
            from: Origin::DUPLEX,
            id: Id::from(1),
            method: names::INITIALIZE.into(),
            params: None,
        });
        deferred.push(DeferredMessage::Initialized(SessionKey::DUPLEX));
    }

    fn assert_empty(deferred: &Deferred) {
        assert!(deferred.is_empty());
        assert!(!deferred.awaits_agreement(SessionKey::DUPLEX));
        assert!(!deferred.has_initialized(SessionKey::DUPLEX));
        assert!(!deferred.awaits_reply_on(QueueId::DUPLEX));
        assert!(!deferred.has(&Origin::DUPLEX.wire(Id::from(1))));
        assert_eq!((deferred.bytes, deferred.queues().len()), (0, 0));
    }

    #[test]
    fn nothing_is_left_of_messages_that_are_served() {
        let mut deferred = Deferred::default();
        handshake(&mut deferred);
        assert!(deferred.awaits_agreement(SessionKey::DUPLEX));
        assert!(deferred.has_initialized(SessionKey::DUPLEX));
        assert!(deferred.awaits_reply_on(QueueId::DUPLEX));
        assert!(deferred.pop().is_some_and(|first| first.is_initialize()));
        assert!(!deferred.awaits_reply_on(QueueId::DUPLEX));
        assert!(deferred.pop().is_some_and(|next| !next.is_initialize()));
        assert_empty(&deferred);
    }

    #[test]
    fn end_of_a_session_drops_its_requests_and_the_end_of_its_handshake() {
        let mut deferred = Deferred::default();
        handshake(&mut deferred);
        assert_eq!(deferred.cancel_all(Origin::DUPLEX.scope), [QueueId::DUPLEX]);
        assert_eq!(deferred.len(), 1, "the scope is a stream, not the session");
        assert_eq!(
            deferred.cancel_all(IdScope::Session(SessionKey::DUPLEX)),
            []
        );
        assert_empty(&deferred);
    }
}
