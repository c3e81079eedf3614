//! Queues the link's own messages and encodes all messages. It knows their format, but not when to send them.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::client::catalog::lists::Cursor;
use crate::json::Payload;
use crate::protocol::method::names;
use crate::protocol::watch::{List, Watch};
use crate::protocol::{LogLevel, Version};
use crate::util::queue::add;
use crate::wire::{ErrorObject, Id};

/// The most bytes of the reason of a relay's client, and of its `_meta`. No reason in use is as long, and a thousand cancellations may wait.
const MAX_PART_BYTES: usize = 4 << 10;

/// The reason and `_meta` of a cancellation.
#[derive(Debug, Default)]
pub(crate) struct Withdrawal {
    pub(crate) reason: Option<Box<str>>,
    /// The `_meta` of a relay's client.
    pub(crate) meta: Option<Payload>,
}

impl Withdrawal {
    pub(crate) fn because(reason: &str) -> Withdrawal {
        Withdrawal {
            reason: Some(reason.into()),
            meta: None,
        }
    }

    /// The reason and `_meta` that a relay's client gave. A long reason is cut, and a long `_meta` is left out, so that many cancellations can wait.
    pub(crate) fn of_client(reason: Option<Box<str>>, meta: Option<Payload>) -> Withdrawal {
        let cut = |reason: Box<str>| {
            if reason.len() <= MAX_PART_BYTES {
                return reason;
            }
            let end = (0..=MAX_PART_BYTES)
                .rev()
                .find(|end| reason.is_char_boundary(*end));
            reason[..end.unwrap_or(0)].into()
        };
        Withdrawal {
            reason: reason.map(cut),
            meta: meta.filter(|meta| meta.as_str().len() <= MAX_PART_BYTES),
        }
    }
}

/// A message of the link itself that waits to be written. Calls wait in a queue of their own.
#[derive(Debug)]
pub(super) enum Frame {
    Answer(Id, Result<Option<Payload>, ErrorObject>),
    Cancel(u64, Withdrawal),
    Discover(u64),
    Initialize(u64, Version),
    Initialized,
    Listen(u64, Watch),
    Notify(Cow<'static, str>, Option<Payload>),
    Page(u64, List, Cursor),
    Ping(u64),
    SetLevel(u64, LogLevel),
    Subscribe(u64, Box<str>),
    Unsubscribe(u64, Box<str>),
}

impl Frame {
    /// The wire id, if the message is a request.
    pub(super) const fn wire(&self) -> Option<u64> {
        match self {
            Frame::Discover(wire)
            | Frame::Initialize(wire, _)
            | Frame::Listen(wire, _)
            | Frame::Page(wire, ..)
            | Frame::Ping(wire)
            | Frame::SetLevel(wire, _)
            | Frame::Subscribe(wire, _)
            | Frame::Unsubscribe(wire, _) => Some(*wire),
            Frame::Answer(..) | Frame::Cancel(..) | Frame::Initialized | Frame::Notify(..) => None,
        }
    }

    /// The method of the message, if it has one.
    pub(super) fn method(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Frame::Answer(..) => return None,
            Frame::Cancel(..) => names::NOTIFICATIONS_CANCELLED,
            Frame::Discover(_) => names::SERVER_DISCOVER,
            Frame::Initialize(..) => names::INITIALIZE,
            Frame::Initialized => names::NOTIFICATIONS_INITIALIZED,
            Frame::Listen(..) => names::SUBSCRIPTIONS_LISTEN,
            Frame::Notify(method, _) => return Some(method.clone()),
            Frame::Page(_, list, _) => list.method(),
            Frame::Ping(_) => names::PING,
            Frame::SetLevel(..) => names::LOGGING_SET_LEVEL,
            Frame::Subscribe(..) => names::RESOURCES_SUBSCRIBE,
            Frame::Unsubscribe(..) => names::RESOURCES_UNSUBSCRIBE,
        }))
    }

    /// The setting that the message changes, if a later message may change it again: the log level, or the subscription to a resource.
    pub(super) fn ordered_key(&self) -> Option<&str> {
        match self {
            Frame::SetLevel(..) => Some(names::LOGGING_SET_LEVEL),
            Frame::Subscribe(_, uri) | Frame::Unsubscribe(_, uri) => Some(uri),
            Frame::Answer(..)
            | Frame::Cancel(..)
            | Frame::Discover(_)
            | Frame::Initialize(..)
            | Frame::Initialized
            | Frame::Listen(..)
            | Frame::Notify(..)
            | Frame::Page(..)
            | Frame::Ping(_) => None,
        }
    }

    const fn is_answer(&self) -> bool {
        matches!(self, Frame::Answer(..))
    }

    const fn is_notice(&self) -> bool {
        matches!(self, Frame::Notify(..))
    }

    fn bytes(&self) -> usize {
        let of = |payload: &Option<Payload>| payload.as_ref().map_or(0, |p| p.as_str().len());
        match self {
            Frame::Answer(id, Ok(result)) => id.bytes() + of(result),
            Frame::Answer(id, Err(error)) => id.bytes() + error.message.len() + of(&error.data),
            Frame::Notify(method, params) => method.len() + of(params),
            Frame::Cancel(_, words) => {
                words.reason.as_deref().map_or(0, str::len) + of(&words.meta)
            }
            Frame::Discover(_)
            | Frame::Initialize(..)
            | Frame::Initialized
            | Frame::Listen(..)
            | Frame::Page(..)
            | Frame::Ping(_)
            | Frame::SetLevel(..)
            | Frame::Subscribe(..)
            | Frame::Unsubscribe(..) => 0,
        }
    }
}

/// The queue of the link's own messages, with their size.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    /// The messages, each with the number of times that it was turned away.
    waiting: VecDeque<(Frame, u32)>,
    bytes: usize,
    answers: usize,
    notices: usize,
    /// Whether the last message that left the queue is a notification, and the next one has not yielded to a call yet.
    was_notice: bool,
}

impl SendQueue {
    pub(super) fn push(&mut self, frame: Frame) {
        self.count(&frame);
        add(&mut self.waiting, (frame, 0));
    }

    /// Puts a message that was turned away back to the front of the queue.
    pub(super) fn push_again(&mut self, frame: Frame, times: u32) {
        self.count(&frame);
        self.waiting.push_front((frame, times));
    }

    /// Removes the messages that were turned away.
    pub(super) fn take_turned_away(&mut self) -> Vec<Frame> {
        let (turned, others): (VecDeque<_>, VecDeque<_>) = core::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(_, times)| *times > 0);
        self.waiting = others;
        for (frame, _) in &turned {
            self.discount(frame);
        }
        turned.into_iter().map(|(frame, _)| frame).collect()
    }

    fn count(&mut self, frame: &Frame) {
        self.bytes += frame.bytes();
        self.answers += usize::from(frame.is_answer());
        self.notices += usize::from(frame.is_notice());
    }

    fn discount(&mut self, frame: &Frame) {
        self.bytes -= frame.bytes();
        self.answers -= usize::from(frame.is_answer());
        self.notices -= usize::from(frame.is_notice());
    }

    /// Takes the next message, with the number of times that it was turned away. A message waits while another one changes the same setting, because
    /// they must take effect in order.
    pub(super) fn pop(&mut self, may_send: impl Fn(&Frame) -> bool) -> Option<(Frame, u32)> {
        let at = self.next(may_send)?;
        let (frame, times) = self.waiting.remove(at)?;
        if self.waiting.is_empty() {
            // Free the memory, because the next message seldom comes soon.
            self.waiting = VecDeque::new();
        }
        self.discount(&frame);
        self.was_notice = frame.is_notice();
        Some((frame, times))
    }

    /// Whether the next message yields to a call, because it is a notification and follows one. Each yields once.
    pub(super) fn yields_to_call(&mut self) -> bool {
        let next = self.waiting.front();
        let yields = self.was_notice && next.is_some_and(|(frame, _)| frame.is_notice());
        self.was_notice &= !yields;
        yields
    }

    pub(super) fn has_next(&self, may_send: impl Fn(&Frame) -> bool) -> bool {
        self.next(may_send).is_some()
    }

    fn next(&self, may_send: impl Fn(&Frame) -> bool) -> Option<usize> {
        // Most of the time.
        if self.waiting.is_empty() {
            return None;
        }
        let mut all = self.waiting.iter();
        all.position(|(frame, _)| may_send(frame))
    }

    /// Drops all requests, but keeps answers to the server.
    pub(super) fn drop_requests(&mut self) {
        self.waiting.retain(|(frame, _)| match frame {
            Frame::Answer(..) | Frame::Cancel(..) | Frame::Initialized | Frame::Notify(..) => true,
            Frame::Discover(_)
            | Frame::Initialize(..)
            | Frame::Listen(..)
            | Frame::Page(..)
            | Frame::Ping(_)
            | Frame::SetLevel(..)
            | Frame::Subscribe(..)
            | Frame::Unsubscribe(..) => false,
        });
    }

    /// The wire ids of the requests that are not written yet.
    pub(super) fn requests(&self) -> impl Iterator<Item = u64> + '_ {
        let waiting = self.waiting.iter();
        waiting.filter_map(|(frame, _)| frame.wire())
    }

    /// Removes a request that is not written yet. Returns false if there is none.
    pub(super) fn retract(&mut self, wire: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(frame, _)| frame.wire() != Some(wire));
        self.waiting.len() < before
    }

    pub(super) fn clear(&mut self) {
        *self = SendQueue::default();
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The number of notifications of the application in the queue.
    pub(super) const fn notices(&self) -> usize {
        self.notices
    }

    /// The number of answers in the queue.
    pub(super) const fn answers(&self) -> usize {
        self.answers
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(method: &'static str, params: &str) -> Frame {
        Frame::Notify(method.into(), Some(params.parse().unwrap()))
    }

    fn answer(id: &str, result: &str) -> Frame {
        Frame::Answer(Id::Text(id.into()), Ok(Some(result.parse().unwrap())))
    }

    fn refusal(id: &str, message: &str) -> Frame {
        Frame::Answer(Id::Text(id.into()), Err(ErrorObject::new(-1, message)))
    }

    /// The numbers of messages, notifications and answers, and the bytes.
    fn size(queue: &SendQueue) -> [usize; 4] {
        [queue.len(), queue.notices(), queue.answers(), queue.bytes()]
    }

    /// The limits of the queue are about what it holds, whatever became of a message before.
    #[test]
    fn queue_counts_what_it_holds() {
        let mut queue = SendQueue::default();
        queue.push(notice("a/b", r#"{"c":1}"#));
        assert_eq!(size(&queue), [1, 1, 0, 3 + 7]);
        queue.push(answer("id", "{}"));
        assert_eq!(size(&queue), [2, 1, 1, 10 + 2 + 2]);
        queue.push(refusal("i", "never"));
        assert_eq!(size(&queue), [3, 1, 2, 14 + 1 + 5]);
        queue.push(Frame::Ping(7));
        assert_eq!(size(&queue), [4, 1, 2, 20]);

        let (frame, times) = queue.pop(|_| true).expect("a message waits");
        assert_eq!(size(&queue), [3, 0, 2, 10]);
        queue.push_again(frame, times + 1);
        assert_eq!(size(&queue), [4, 1, 2, 20]);
        let turned_away = queue.take_turned_away();
        assert!(matches!(turned_away[..], [Frame::Notify(..)]));
        assert_eq!(size(&queue), [3, 0, 2, 10]);
        assert!(queue.take_turned_away().is_empty());

        while queue.pop(|_| true).is_some() {}
        assert_eq!(size(&queue), [0; 4]);
    }

    #[test]
    fn request_is_retracted_once_and_only_while_it_is_queued() {
        let mut queue = SendQueue::default();
        queue.push(Frame::Ping(1));
        queue.push(Frame::Ping(2));
        assert!(queue.retract(1));
        assert!(!queue.retract(1));
        assert!(queue.requests().eq([2]));
    }
}
