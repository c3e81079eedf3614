//! The queues of messages to clients: their contents, their size, and whose turn it is to write. Does not depend on the encoding or the transport.
//!
//! A queue is **attached** while a client takes what is written to it. A queue that is **held** keeps its messages until a client is
//! attached again. A queue that has messages, and is neither attached nor held, is **loose**. A queue of lifetime
//! [`Lifetime::UntilAnswered`] that has no messages and owes no reply is **done**.

pub(crate) mod frame;
mod frame_queue;
pub(crate) mod writer;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::driver::{AskId, RequestId};
use crate::server::config::Limits;
use crate::server::origin::QueueId;
use crate::server::outgoing::frame::Frame;
use crate::server::outgoing::frame_queue::{FrameQueue, Subject};
use crate::util::pipe::Window;
use crate::util::sorted::Sorted;
use crate::wire::Id;

#[derive(Debug)]
pub(crate) struct Outgoing {
    table: BTreeMap<QueueId, Queue>,
    /// The queues that are attached, have messages and have an open window.
    ready: Sorted<QueueId, ()>,
    /// The queues that are loose and not [`Lifetime::Patient`].
    loose: Sorted<QueueId, ()>,
    /// The queues that are done.
    done: Sorted<QueueId, ()>,
    /// The attached queues of sessions with messages that are not written or not read.
    unread: Sorted<QueueId, ()>,
    /// The queue that wrote last. It writes again after all other ready queues had their turn.
    last: QueueId,
    /// Bytes in all queues together.
    bytes: usize,
    /// The maximum number of bytes in flight on one queue: handed to the driver and not yet reported as sent.
    window: usize,
    /// The maximum number of bytes that wait in one queue, and in all queues together. Beyond it, notifications are dropped.
    most: (usize, usize),
}

/// When a queue ends, and what happens to the messages on it while it is loose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// The queue ends with the last reply that it owes. While it is loose, its messages are stored or dropped.
    UntilAnswered,
    /// The queue ends only when it is removed. While it is loose, its messages are stored or dropped.
    Lasting,
    /// The queue ends only when it is removed. While it is loose, its messages wait.
    Patient,
}

/// One queue with its messages.
#[derive(Debug)]
struct Queue {
    lifetime: Lifetime,
    frames: FrameQueue,
    window: Window,
    is_attached: bool,
    /// Whether its messages wait, although no client is attached.
    is_held: bool,
    /// The number of replies that are still to come.
    expected: usize,
}

impl Outgoing {
    pub(crate) const fn new(limits: &Limits) -> Outgoing {
        let most = (limits.queued_bytes, limits.all_queued_bytes);
        Outgoing::with_limits(limits.write_window, most)
    }

    const fn with_limits(window: usize, most: (usize, usize)) -> Outgoing {
        Outgoing {
            table: BTreeMap::new(),
            ready: Sorted::new(),
            loose: Sorted::new(),
            done: Sorted::new(),
            unread: Sorted::new(),
            last: QueueId::DUPLEX,
            bytes: 0,
            window,
            most,
        }
    }

    /// Adds a queue that is not attached.
    pub(crate) fn add(&mut self, queue: QueueId, lifetime: Lifetime) {
        let entry = Queue {
            lifetime,
            frames: FrameQueue::new(),
            window: Window::new(self.window),
            is_attached: false,
            is_held: false,
            expected: 0,
        };
        self.table.insert(queue, entry);
        self.update_sets(queue);
    }

    /// Attaches a queue to a new client, with nothing under way.
    pub(crate) fn attach(&mut self, queue: QueueId) {
        if let Some(entry) = self.table.get_mut(&queue) {
            entry.is_attached = true;
            entry.is_held = false;
            entry.window = Window::new(self.window);
            self.update_sets(queue);
        }
    }

    /// Detaches a queue. Signals for the client that was attached are dropped.
    pub(crate) fn detach(&mut self, queue: QueueId) {
        self.retract_subject(queue, &Subject::Signal);
        if let Some(entry) = self.table.get_mut(&queue) {
            entry.is_attached = false;
            entry.is_held = false;
            self.update_sets(queue);
        }
    }

    /// Lets the messages and signals of a queue wait until it is attached or detached again.
    pub(crate) fn hold(&mut self, queue: QueueId) {
        if let Some(entry) = self.table.get_mut(&queue) {
            entry.is_attached = false;
            entry.is_held = true;
            self.update_sets(queue);
        }
    }

    /// Removes a queue and its messages.
    pub(crate) fn remove(&mut self, queue: QueueId) {
        if let Some(entry) = self.table.remove(&queue) {
            self.bytes -= entry.frames.bytes();
        }
        self.update_sets(queue);
    }

    pub(crate) fn clear(&mut self) {
        *self = Outgoing::with_limits(self.window, self.most);
    }

    /// Queues a message. Drops it if there is no such queue (any more).
    pub(crate) fn push(&mut self, queue: QueueId, frame: Frame) {
        let Some(entry) = self.table.get_mut(&queue) else {
            return;
        };
        let before = entry.frames.bytes();
        let was_empty = entry.frames.is_empty();
        entry.frames.push(frame);
        self.bytes += entry.frames.bytes() - before;
        if was_empty {
            self.update_sets(queue);
        }
    }

    /// Queues messages before all others.
    pub(crate) fn prepend(&mut self, queue: QueueId, frames: Vec<Frame>) {
        let Some(entry) = self.table.get_mut(&queue) else {
            return;
        };
        let before = entry.frames.bytes();
        for frame in frames.into_iter().rev() {
            entry.frames.push_front(frame);
        }
        self.bytes += entry.frames.bytes() - before;
        self.update_sets(queue);
    }

    pub(crate) fn pop(&mut self, queue: QueueId) -> Option<Frame> {
        let entry = self.table.get_mut(&queue)?;
        let before = entry.frames.bytes();
        let frame = entry.frames.pop()?;
        self.bytes -= before - entry.frames.bytes();
        if entry.frames.is_empty() {
            self.update_sets(queue);
        }
        self.last = queue;
        Some(frame)
    }

    /// Whether this queue has room for notifications.
    pub(crate) fn has_room(&self, queue: QueueId) -> bool {
        let (own, (most, most_of_all)) = (self.bytes_on(queue), self.most);
        // If all queues together are too long, a client with an empty queue is not the cause.
        own == 0 || own < most && self.bytes < most_of_all
    }

    /// Whether all messages were written and read: those of `shared`, if all messages go there, or else those of sessions.
    pub(crate) fn is_flushed(&self, shared: Option<QueueId>) -> bool {
        match shared {
            Some(shared) => self.bytes == 0 && self.under_way(shared) == 0,
            None => self.unread.is_empty(),
        }
    }

    /// Bytes that the client of a queue has not read, written or not.
    pub(crate) fn unread_bytes(&self, queue: QueueId) -> usize {
        let entry = self.table.get(&queue);
        entry.map_or(0, |entry| entry.window.under_way() + entry.frames.bytes())
    }

    /// Whether a client is attached and reads.
    pub(crate) fn is_read(&self, queue: QueueId) -> bool {
        let entry = self.table.get(&queue);
        entry.is_some_and(|entry| entry.is_attached && entry.window.is_open())
    }

    /// The queue that writes next. Queues take turns, so that none waits for another.
    pub(crate) fn next(&self) -> Option<QueueId> {
        let mut others = self.ready.from(&self.last).map(|(queue, ())| *queue);
        let next = others.find(|queue| *queue != self.last);
        next.or_else(|| self.ready.first().map(|(queue, ())| *queue))
    }

    /// Returns a loose queue that does not keep its messages, if there is one.
    pub(crate) fn next_loose(&self) -> Option<QueueId> {
        self.loose.first().map(|(queue, ())| *queue)
    }

    /// Returns a queue that is done, if there is one.
    pub(crate) fn next_done(&self) -> Option<QueueId> {
        self.done.first().map(|(queue, ())| *queue)
    }

    pub(crate) fn is_done(&self, queue: QueueId) -> bool {
        self.done.get(&queue).is_some()
    }

    /// Counts one more reply that is to come on a queue.
    pub(crate) fn expect_reply(&mut self, queue: QueueId) {
        if let Some(entry) = self.table.get_mut(&queue) {
            entry.expected += 1;
            if entry.lifetime == Lifetime::UntilAnswered {
                self.update_sets(queue);
            }
        }
    }

    /// Counts one reply less that is to come on a queue.
    pub(crate) fn reply_done(&mut self, queue: QueueId) {
        if let Some(entry) = self.table.get_mut(&queue) {
            entry.expected = entry.expected.saturating_sub(1);
            if entry.lifetime == Lifetime::UntilAnswered {
                self.update_sets(queue);
            }
        }
    }

    /// Whether anything can be written.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Counts bytes that were handed to the driver.
    pub(crate) fn wrote(&mut self, queue: QueueId, len: usize) {
        if let Some(entry) = self.table.get_mut(&queue) {
            entry.window.wrote(len);
            if let QueueId::Session(_) = queue {
                self.update_sets(queue);
            } else if !entry.window.is_open() {
                self.ready.remove(&queue);
            }
        }
    }

    /// Counts bytes that the driver handed to the system.
    pub(crate) fn sent(&mut self, queue: QueueId, len: usize) {
        if let Some(entry) = self.table.get_mut(&queue) {
            let was_open = entry.window.is_open();
            entry.window.sent(len);
            if !was_open || matches!(queue, QueueId::Session(_)) {
                self.update_sets(queue);
            }
        }
    }

    /// Bytes under way on a queue.
    pub(crate) fn under_way(&self, queue: QueueId) -> usize {
        let entry = self.table.get(&queue);
        entry.map_or(0, |entry| entry.window.under_way())
    }

    /// Whether a queue has no messages.
    pub(crate) fn is_empty(&self, queue: QueueId) -> bool {
        let entry = self.table.get(&queue);
        entry.is_none_or(|entry| entry.frames.is_empty())
    }

    /// Bytes of the messages on a queue.
    fn bytes_on(&self, queue: QueueId) -> usize {
        let entry = self.table.get(&queue);
        entry.map_or(0, |entry| entry.frames.bytes())
    }
}

/// # Retractions
impl Outgoing {
    /// Retracts all messages about this request.
    pub(crate) fn retract(&mut self, queue: QueueId, request: RequestId) {
        self.retract_subject(queue, &Subject::Request(request));
        self.retract_subject(queue, &Subject::Questions(request));
    }

    /// Retracts the server's own messages about the request with this id: its reply, or the messages of its watch.
    pub(crate) fn retract_id(&mut self, queue: QueueId, id: &Id) {
        self.retract_answer(queue, id);
        self.retract_listen(queue, id);
    }

    /// Retracts all messages of the watch with this id.
    pub(crate) fn retract_listen(&mut self, queue: QueueId, id: &Id) {
        self.retract_subject(queue, &Subject::Listen(id.clone()));
    }

    /// Retracts the server's own reply to the request with this id, unless it is that of a handshake (S-CANC-10).
    fn retract_answer(&mut self, queue: QueueId, id: &Id) {
        self.retract_subject(queue, &Subject::Answer(id.clone()));
    }

    /// Retracts the asks that were queued in place of the reply to a request.
    pub(crate) fn retract_questions(&mut self, queue: QueueId, request: RequestId) {
        self.retract_subject(queue, &Subject::Questions(request));
    }

    /// Retracts an ask that is not written yet.
    pub(crate) fn retract_ask(&mut self, queue: QueueId, ask: AskId) {
        self.retract_subject(queue, &Subject::Ask(ask));
    }

    fn retract_subject(&mut self, queue: QueueId, subject: &Subject) {
        let Some(entry) = self.table.get_mut(&queue) else {
            return;
        };
        let before = entry.frames.bytes();
        entry.frames.remove(subject);
        self.bytes -= before - entry.frames.bytes();
        if entry.frames.is_empty() {
            self.update_sets(queue);
        }
    }

    /// Updates the sets to which a queue belongs.
    fn update_sets(&mut self, queue: QueueId) {
        let (mut is_ready, mut is_loose, mut is_done) = (false, false, false);
        if let Some(entry) = self.table.get(&queue) {
            let is_empty = entry.frames.is_empty();
            is_ready = !is_empty && entry.is_attached && entry.window.is_open();
            let is_patient = entry.is_held || entry.lifetime == Lifetime::Patient;
            is_loose = !is_empty && !entry.is_attached && !is_patient;
            is_done = is_empty && entry.expected == 0 && entry.lifetime == Lifetime::UntilAnswered;
        }
        let place = |is_member: bool, set: &mut Sorted<QueueId, ()>| {
            if is_member {
                set.insert(queue, ());
            } else if !set.is_empty() {
                set.remove(&queue);
            }
        };
        place(is_ready, &mut self.ready);
        place(is_loose, &mut self.loose);
        place(is_done, &mut self.done);
        if let QueueId::Session(_) = queue {
            let entry = self.table.get(&queue).filter(|entry| entry.is_attached);
            let is_read = |entry: &Queue| entry.frames.is_empty() && entry.window.under_way() == 0;
            place(entry.is_some_and(|entry| !is_read(entry)), &mut self.unread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::StreamId;
    use crate::protocol::watch::{Change, List};
    use crate::server::origin::SessionKey;
    use crate::server::outgoing::frame::Answer;

    const ONE: QueueId = QueueId::Stream(StreamId::new(1));
    const TWO: QueueId = QueueId::Stream(StreamId::new(2));

    fn queues() -> Outgoing {
        let mut queues = Outgoing::with_limits(10, (usize::MAX, usize::MAX));
        for queue in [ONE, TWO] {
            queues.add(queue, Lifetime::Lasting);
            queues.attach(queue);
        }
        queues
    }

    fn about(request: u64) -> Frame {
        Frame::Progress(RequestId::from_number(request))
    }

    #[test]
    fn each_has_its_turn() {
        let mut queues = queues();
        for request in 0..4 {
            queues.push(ONE, about(request));
        }
        queues.push(TWO, about(9));
        let mut turns = alloc::vec::Vec::new();
        while let Some(queue) = queues.next() {
            queues.pop(queue);
            turns.push(queue);
        }
        assert_eq!(turns, [ONE, TWO, ONE, ONE, ONE]);
        assert_eq!(queues.bytes, 0);
    }

    #[test]
    fn who_does_not_read_delays_nobody_else() {
        let mut queues = queues();
        queues.wrote(ONE, 10);
        queues.push(ONE, about(1));
        queues.push(TWO, about(2));
        assert_eq!(queues.next(), Some(TWO));
        queues.pop(TWO);
        assert!(!queues.is_ready());
        queues.sent(ONE, 1);
        assert_eq!(queues.next(), Some(ONE));
    }

    #[test]
    fn what_is_taken_back_is_no_reason_to_write() {
        let mut queues = queues();
        queues.push(ONE, about(1));
        queues.retract(TWO, RequestId::from_number(1));
        assert!(queues.is_ready(), "that was another way");
        queues.retract(ONE, RequestId::from_number(1));
        assert!(!queues.is_ready());
        assert_eq!(queues.bytes, 0);
    }

    #[test]
    fn with_nobody_at_its_end_a_way_is_loose() {
        let mut queues = queues();
        queues.push(ONE, about(1));
        queues.detach(ONE);
        assert_eq!((queues.next(), queues.next_loose()), (None, Some(ONE)));
        queues.attach(ONE);
        assert_eq!((queues.next(), queues.next_loose()), (Some(ONE), None));
        queues.remove(ONE);
        queues.push(ONE, about(2));
        assert_eq!((queues.next(), queues.bytes), (None, 0));
    }

    #[test]
    fn messages_of_a_held_queue_wait_until_it_is_attached_or_detached() {
        let mut queues = queues();
        queues.hold(ONE);
        queues.push(ONE, about(1));
        assert_eq!((queues.next(), queues.next_loose()), (None, None));
        queues.detach(ONE);
        assert_eq!((queues.next(), queues.next_loose()), (None, Some(ONE)));
        queues.hold(ONE);
        queues.attach(ONE);
        assert_eq!((queues.next(), queues.next_loose()), (Some(ONE), None));
    }

    #[test]
    fn a_way_for_answers_ends_with_the_last_one() {
        let mut queues = queues();
        queues.add(ONE, Lifetime::UntilAnswered);
        assert!(queues.is_done(ONE) && !queues.is_done(TWO));
        queues.expect_reply(ONE);
        queues.push(ONE, about(1));
        queues.reply_done(ONE);
        assert_eq!(queues.next_done(), None, "it has something to say");
        queues.pop(ONE);
        assert_eq!(queues.next_done(), Some(ONE));
    }

    #[test]
    fn what_is_loose_on_a_patient_way_waits() {
        let mut queues = queues();
        queues.add(ONE, Lifetime::Patient);
        queues.push(ONE, about(1));
        assert_eq!((queues.next(), queues.next_loose()), (None, None));
        queues.attach(ONE);
        assert_eq!(queues.next(), Some(ONE));
    }

    #[test]
    fn a_change_waits_once_on_each() {
        let mut queues = queues();
        let change = || Frame::Changed(None, Change::List(List::Tools));
        for queue in [ONE, ONE, TWO] {
            queues.push(queue, change());
        }
        assert!(queues.pop(ONE).is_some() && queues.pop(ONE).is_none());
        queues.push(ONE, change());
        assert!(queues.pop(ONE).is_some() && queues.pop(TWO).is_some());
    }

    const SESSION: QueueId = QueueId::Session(SessionKey::from_number(1));

    #[test]
    fn messages_that_are_prepended_come_first_and_count() {
        let mut queues = queues();
        queues.prepend(ONE, alloc::vec![about(1), about(2)]);
        assert_eq!(queues.next(), Some(ONE));
        assert_eq!(queues.bytes, 2 * about(1).bytes());
        queues.push(ONE, about(3));
        queues.prepend(ONE, alloc::vec![about(0)]);
        for request in 0..4 {
            let wanted = RequestId::from_number(request);
            let next = queues.pop(ONE);
            assert!(matches!(next, Some(Frame::Progress(of)) if of == wanted));
        }
        assert_eq!(queues.bytes, 0);
    }

    #[test]
    fn unread_bytes_are_those_under_way_and_those_that_wait() {
        let mut queues = queues();
        queues.push(ONE, about(1));
        queues.wrote(ONE, 3);
        assert_eq!(queues.under_way(ONE), 3);
        assert_eq!(queues.unread_bytes(ONE), 3 + about(1).bytes());
        queues.pop(ONE);
        assert_eq!(queues.unread_bytes(ONE), 3);
        queues.sent(ONE, 2);
        assert_eq!((queues.under_way(ONE), queues.unread_bytes(ONE)), (1, 1));
    }

    #[test]
    fn queue_has_room_below_its_limit_and_below_the_limit_of_all() {
        let each = about(1).bytes();
        let mut queues = Outgoing::with_limits(10, (2 * each, 3 * each));
        for queue in [ONE, TWO] {
            queues.add(queue, Lifetime::Lasting);
            queues.attach(queue);
        }
        queues.push(ONE, about(1));
        assert!(queues.has_room(ONE));
        queues.push(ONE, about(2));
        assert!(!queues.has_room(ONE), "it has as much as it may have");
        assert!(queues.has_room(TWO), "it is empty");
        queues.push(TWO, about(3));
        assert!(!queues.has_room(TWO), "all have as much as they may have");
        queues.pop(ONE);
        assert!(queues.has_room(ONE) && queues.has_room(TWO));
    }

    #[test]
    fn queue_is_read_if_a_client_is_attached_and_takes_what_is_written() {
        let mut queues = queues();
        assert!(queues.is_read(ONE));
        queues.wrote(ONE, 10);
        assert!(!queues.is_read(ONE), "the window is full");
        queues.detach(TWO);
        assert!(!queues.is_read(TWO), "nobody is there");
    }

    #[test]
    fn queue_with_a_full_window_is_not_ready_for_its_next_message() {
        let mut queues = queues();
        queues.push(ONE, about(1));
        queues.push(ONE, about(2));
        queues.pop(ONE);
        queues.wrote(ONE, 10);
        assert_eq!(queues.next(), None);
        queues.sent(ONE, 10);
        assert_eq!(queues.next(), Some(ONE));
    }

    #[test]
    fn sessions_are_flushed_when_all_messages_are_written_and_read() {
        let mut queues = queues();
        queues.add(SESSION, Lifetime::Lasting);
        queues.attach(SESSION);
        assert!(queues.is_flushed(None));
        queues.push(SESSION, about(1));
        assert!(!queues.is_flushed(None), "it is not written");
        queues.pop(SESSION);
        queues.wrote(SESSION, 4);
        assert!(!queues.is_flushed(None), "it is not read");
        queues.sent(SESSION, 3);
        assert!(!queues.is_flushed(None));
        queues.sent(SESSION, 1);
        assert!(queues.is_flushed(None));
        queues.wrote(SESSION, 4);
        queues.detach(SESSION);
        assert!(queues.is_flushed(None), "nobody reads it");
    }

    #[test]
    fn shared_queue_is_flushed_when_it_is_empty_and_read() {
        let mut queues = queues();
        queues.push(ONE, about(1));
        assert!(!queues.is_flushed(Some(ONE)));
        queues.pop(ONE);
        queues.wrote(ONE, 1);
        assert!(!queues.is_flushed(Some(ONE)));
        queues.sent(ONE, 1);
        assert!(queues.is_flushed(Some(ONE)));
    }

    #[test]
    fn retraction_removes_all_messages_of_its_subject() {
        let (request, ask) = (RequestId::from_number(1), AskId::from_number(1));
        let id = Id::from(7);
        let mut queues = queues();
        for (frame, retract) in [
            (
                about(1),
                Outgoing::retract as fn(&mut Outgoing, QueueId, RequestId),
            ),
            (Frame::Questions(request), Outgoing::retract),
            (Frame::Questions(request), Outgoing::retract_questions),
        ] {
            queues.push(ONE, frame);
            retract(&mut queues, ONE, request);
            assert!(queues.is_empty(ONE) && !queues.is_ready());
        }
        for frame in [
            Frame::Answer(Some(id.clone()), Answer::Empty),
            Frame::ListenEnd(id.clone()),
        ] {
            queues.push(ONE, frame);
            queues.retract_id(ONE, &id);
            assert!(queues.is_empty(ONE));
        }
        queues.push(ONE, Frame::Ask(ask));
        queues.retract_ask(ONE, ask);
        assert!(queues.is_empty(ONE));
        assert_eq!(queues.bytes, 0);
    }
}
