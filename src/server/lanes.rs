//! The queues of all lanes: their messages, their size, and whose turn it is to write. Knows no encoding and no transport.
//!
//! A lane is **attached** while a client takes what is written to it. A lane that is not attached and has messages is **loose**. A lane of
//! kind [`Kind::Answering`] that has no messages and owes no reply is **done**.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::frame::Frame;
use super::origin::Lane;
use super::waiting::{Subject, Waiting};
use crate::driver::{AskId, RequestId};
use crate::util::pipe::Window;
use crate::util::sorted::Sorted;
use crate::wire::Id;

#[derive(Debug)]
pub(super) struct Lanes {
    table: BTreeMap<Lane, Queue>,
    /// The lanes that are attached, have messages and have an open window.
    ready: Sorted<Lane, ()>,
    /// The lanes that are loose and not [`Kind::Patient`].
    loose: Sorted<Lane, ()>,
    /// The lanes that are done.
    done: Sorted<Lane, ()>,
    /// The attached lanes of sessions with messages that are not written or not read.
    unread: Sorted<Lane, ()>,
    /// The lane that wrote last. All others come before it again.
    last: Lane,
    /// Bytes in all queues together.
    bytes: usize,
    /// Bytes that may be under way on one lane: handed to the driver and not yet reported as sent.
    window: usize,
}

/// When a lane ends, and what happens to the messages on it while it is loose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The lane ends with the last reply that it owes. While it is loose, its messages are stored or dropped.
    Answering,
    /// The lane ends only when it is removed. While it is loose, its messages are stored or dropped.
    Lasting,
    /// The lane ends only when it is removed. While it is loose, its messages wait.
    Patient,
}

/// One lane with its messages.
#[derive(Debug)]
struct Queue {
    kind: Kind,
    waiting: Waiting,
    window: Window,
    is_attached: bool,
    /// The number of replies that are still to come.
    owed: usize,
}

impl Lanes {
    pub(super) const fn new(window: usize) -> Lanes {
        Lanes {
            table: BTreeMap::new(),
            ready: Sorted::new(),
            loose: Sorted::new(),
            done: Sorted::new(),
            unread: Sorted::new(),
            last: Lane::DUPLEX,
            bytes: 0,
            window,
        }
    }

    /// Adds a lane that is not attached.
    pub(super) fn add(&mut self, lane: Lane, kind: Kind) {
        let queue = Queue {
            kind,
            waiting: Waiting::new(),
            window: Window::new(self.window),
            is_attached: false,
            owed: 0,
        };
        self.table.insert(lane, queue);
        self.sort(lane);
    }

    /// Attaches a lane to a new client, with nothing under way.
    pub(super) fn attach(&mut self, lane: Lane) {
        if let Some(queue) = self.table.get_mut(&lane) {
            queue.is_attached = true;
            queue.window = Window::new(self.window);
            self.sort(lane);
        }
    }

    /// Detaches a lane. Signals for the client that was attached are dropped.
    pub(super) fn detach(&mut self, lane: Lane) {
        self.take_back(lane, &Subject::Signal);
        if let Some(queue) = self.table.get_mut(&lane) {
            queue.is_attached = false;
            self.sort(lane);
        }
    }

    /// Removes a lane and its messages.
    pub(super) fn remove(&mut self, lane: Lane) {
        if let Some(queue) = self.table.remove(&lane) {
            self.bytes -= queue.waiting.bytes();
        }
        self.sort(lane);
    }

    pub(super) fn clear(&mut self) {
        *self = Lanes::new(self.window);
    }

    /// Queues a message. Drops it if there is no such lane (any more).
    pub(super) fn push(&mut self, lane: Lane, frame: Frame) {
        let Some(queue) = self.table.get_mut(&lane) else {
            return;
        };
        let before = queue.waiting.bytes();
        let was_empty = queue.waiting.is_empty();
        queue.waiting.push(frame);
        self.bytes += queue.waiting.bytes() - before;
        if was_empty {
            self.sort(lane);
        }
    }

    /// Queues messages before all others.
    pub(super) fn prepend(&mut self, lane: Lane, frames: Vec<Frame>) {
        let Some(queue) = self.table.get_mut(&lane) else {
            return;
        };
        let before = queue.waiting.bytes();
        for frame in frames.into_iter().rev() {
            queue.waiting.push_front(frame);
        }
        self.bytes += queue.waiting.bytes() - before;
        self.sort(lane);
    }

    pub(super) fn pop(&mut self, lane: Lane) -> Option<Frame> {
        let queue = self.table.get_mut(&lane)?;
        let before = queue.waiting.bytes();
        let frame = queue.waiting.pop()?;
        self.bytes -= before - queue.waiting.bytes();
        if queue.waiting.is_empty() {
            self.sort(lane);
        }
        self.last = lane;
        Some(frame)
    }

    /// Whether a client is attached and reads.
    pub(super) fn is_read(&self, lane: Lane) -> bool {
        let queue = self.table.get(&lane);
        queue.is_some_and(|queue| queue.is_attached && queue.window.is_open())
    }

    /// The lane that writes next. Lanes take turns, so that none waits for another.
    pub(super) fn next(&self) -> Option<Lane> {
        let mut others = self.ready.from(&self.last).map(|(lane, ())| *lane);
        let next = others.find(|lane| *lane != self.last);
        next.or_else(|| self.ready.first().map(|(lane, ())| *lane))
    }

    /// Returns a loose lane that does not keep its messages, if there is one.
    pub(super) fn next_loose(&self) -> Option<Lane> {
        self.loose.first().map(|(lane, ())| *lane)
    }

    /// Returns a lane that is done, if there is one.
    pub(super) fn next_done(&self) -> Option<Lane> {
        self.done.first().map(|(lane, ())| *lane)
    }

    pub(super) fn is_done(&self, lane: Lane) -> bool {
        self.done.get(&lane).is_some()
    }

    /// Counts one more reply that is to come on a lane.
    pub(super) fn owe(&mut self, lane: Lane) {
        if let Some(queue) = self.table.get_mut(&lane) {
            queue.owed += 1;
            if queue.kind == Kind::Answering {
                self.sort(lane);
            }
        }
    }

    /// Counts one reply less that is to come on a lane.
    pub(super) fn settle(&mut self, lane: Lane) {
        if let Some(queue) = self.table.get_mut(&lane) {
            queue.owed = queue.owed.saturating_sub(1);
            if queue.kind == Kind::Answering {
                self.sort(lane);
            }
        }
    }

    /// Whether anything can be written.
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Counts bytes that were handed to the driver.
    pub(super) fn wrote(&mut self, lane: Lane, len: usize) {
        if let Some(queue) = self.table.get_mut(&lane) {
            queue.window.wrote(len);
            if let Lane::Session(_) = lane {
                self.sort(lane);
            } else if !queue.window.is_open() {
                self.ready.remove(&lane);
            }
        }
    }

    /// Counts bytes that the driver handed to the system.
    pub(super) fn sent(&mut self, lane: Lane, len: usize) {
        if let Some(queue) = self.table.get_mut(&lane) {
            let was_open = queue.window.is_open();
            queue.window.sent(len);
            if !was_open || matches!(lane, Lane::Session(_)) {
                self.sort(lane);
            }
        }
    }

    /// Bytes under way on a lane.
    pub(super) fn under_way(&self, lane: Lane) -> usize {
        let queue = self.table.get(&lane);
        queue.map_or(0, |queue| queue.window.under_way())
    }

    /// Whether a lane has no messages.
    pub(super) fn is_empty(&self, lane: Lane) -> bool {
        let queue = self.table.get(&lane);
        queue.is_none_or(|queue| queue.waiting.is_empty())
    }

    /// Whether an attached lane of a session has messages that are not written or not read.
    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Bytes of the messages on a lane.
    pub(super) fn bytes_on(&self, lane: Lane) -> usize {
        let queue = self.table.get(&lane);
        queue.map_or(0, |queue| queue.waiting.bytes())
    }

    /// Bytes of the messages on all lanes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// # Retractions
impl Lanes {
    /// Retracts all messages about this request.
    pub(super) fn retract(&mut self, lane: Lane, request: RequestId) {
        self.take_back(lane, &Subject::Request(request));
        self.take_back(lane, &Subject::Questions(request));
    }

    /// Retracts all messages of the watch with this id.
    pub(super) fn retract_listen(&mut self, lane: Lane, id: &Id) {
        self.take_back(lane, &Subject::Listen(id.clone()));
    }

    /// Retracts the server's own reply to the request with this id, unless it is that of a handshake (S-CANC-10).
    pub(super) fn retract_answer(&mut self, lane: Lane, id: &Id) {
        self.take_back(lane, &Subject::Answer(id.clone()));
    }

    /// Retracts the asks that were queued in place of the reply to a request.
    pub(super) fn retract_questions(&mut self, lane: Lane, request: RequestId) {
        self.take_back(lane, &Subject::Questions(request));
    }

    /// Retracts an ask that is not written yet.
    pub(super) fn retract_ask(&mut self, lane: Lane, ask: AskId) {
        self.take_back(lane, &Subject::Ask(ask));
    }

    fn take_back(&mut self, lane: Lane, subject: &Subject) {
        let Some(queue) = self.table.get_mut(&lane) else {
            return;
        };
        let before = queue.waiting.bytes();
        queue.waiting.remove(subject);
        self.bytes -= before - queue.waiting.bytes();
        if queue.waiting.is_empty() {
            self.sort(lane);
        }
    }

    /// Updates the sets to which a lane belongs.
    fn sort(&mut self, lane: Lane) {
        let (mut is_ready, mut is_loose, mut is_done) = (false, false, false);
        if let Some(queue) = self.table.get(&lane) {
            let is_empty = queue.waiting.is_empty();
            is_ready = !is_empty && queue.is_attached && queue.window.is_open();
            is_loose = !is_empty && !queue.is_attached && queue.kind != Kind::Patient;
            is_done = is_empty && queue.owed == 0 && queue.kind == Kind::Answering;
        }
        let place = |is_member: bool, set: &mut Sorted<Lane, ()>| {
            if is_member {
                set.insert(lane, ());
            } else if !set.is_empty() {
                set.remove(&lane);
            }
        };
        place(is_ready, &mut self.ready);
        place(is_loose, &mut self.loose);
        place(is_done, &mut self.done);
        if let Lane::Session(_) = lane {
            let queue = self.table.get(&lane).filter(|queue| queue.is_attached);
            let is_read = |queue: &Queue| queue.waiting.is_empty() && queue.window.under_way() == 0;
            place(queue.is_some_and(|queue| !is_read(queue)), &mut self.unread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::StreamId;
    use crate::protocol::watch::{Change, List};

    const ONE: Lane = Lane::Stream(StreamId::new(1));
    const TWO: Lane = Lane::Stream(StreamId::new(2));

    fn lanes() -> Lanes {
        let mut lanes = Lanes::new(10);
        for lane in [ONE, TWO] {
            lanes.add(lane, Kind::Lasting);
            lanes.attach(lane);
        }
        lanes
    }

    fn about(request: u64) -> Frame {
        Frame::Progress(RequestId::from_number(request))
    }

    #[test]
    fn each_has_its_turn() {
        let mut lanes = lanes();
        for request in 0..4 {
            lanes.push(ONE, about(request));
        }
        lanes.push(TWO, about(9));
        let mut turns = alloc::vec::Vec::new();
        while let Some(lane) = lanes.next() {
            lanes.pop(lane);
            turns.push(lane);
        }
        assert_eq!(turns, [ONE, TWO, ONE, ONE, ONE]);
        assert_eq!(lanes.bytes(), 0);
    }

    #[test]
    fn who_does_not_read_delays_nobody_else() {
        let mut lanes = lanes();
        lanes.wrote(ONE, 10);
        lanes.push(ONE, about(1));
        lanes.push(TWO, about(2));
        assert_eq!(lanes.next(), Some(TWO));
        lanes.pop(TWO);
        assert!(!lanes.is_ready());
        lanes.sent(ONE, 1);
        assert_eq!(lanes.next(), Some(ONE));
    }

    #[test]
    fn what_is_taken_back_is_no_reason_to_write() {
        let mut lanes = lanes();
        lanes.push(ONE, about(1));
        lanes.retract(TWO, RequestId::from_number(1));
        assert!(lanes.is_ready(), "that was another way");
        lanes.retract(ONE, RequestId::from_number(1));
        assert!(!lanes.is_ready());
        assert_eq!(lanes.bytes(), 0);
    }

    #[test]
    fn with_nobody_at_its_end_a_way_is_loose() {
        let mut lanes = lanes();
        lanes.push(ONE, about(1));
        lanes.detach(ONE);
        assert_eq!((lanes.next(), lanes.next_loose()), (None, Some(ONE)));
        lanes.attach(ONE);
        assert_eq!((lanes.next(), lanes.next_loose()), (Some(ONE), None));
        lanes.remove(ONE);
        lanes.push(ONE, about(2));
        assert_eq!((lanes.next(), lanes.bytes()), (None, 0));
    }

    #[test]
    fn a_way_for_answers_ends_with_the_last_one() {
        let mut lanes = lanes();
        lanes.add(ONE, Kind::Answering);
        assert!(lanes.is_done(ONE) && !lanes.is_done(TWO));
        lanes.owe(ONE);
        lanes.push(ONE, about(1));
        lanes.settle(ONE);
        assert_eq!(lanes.next_done(), None, "it has something to say");
        lanes.pop(ONE);
        assert_eq!(lanes.next_done(), Some(ONE));
    }

    #[test]
    fn what_is_loose_on_a_patient_way_waits() {
        let mut lanes = lanes();
        lanes.add(ONE, Kind::Patient);
        lanes.push(ONE, about(1));
        assert_eq!((lanes.next(), lanes.next_loose()), (None, None));
        lanes.attach(ONE);
        assert_eq!(lanes.next(), Some(ONE));
    }

    #[test]
    fn a_change_waits_once_on_each() {
        let mut lanes = lanes();
        let change = || Frame::Changed(None, Change::List(List::Tools));
        for lane in [ONE, ONE, TWO] {
            lanes.push(lane, change());
        }
        assert!(lanes.pop(ONE).is_some() && lanes.pop(ONE).is_none());
        lanes.push(ONE, change());
        assert!(lanes.pop(ONE).is_some() && lanes.pop(TWO).is_some());
    }
}
