//! What waits to be written on each way to a client, how much it weighs, and whose turn it is. Knows no words and no transport.
//!
//! A way is **attached** while somebody at its end takes what is written. One that is not and has something to write is **loose**.
//! One that has nothing to write and owes no answer is **done**, if it is of the kind that ends so.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::frame::Frame;
use super::origin::Lane;
use super::waiting::{Subject, Waiting};
use crate::id::{AskId, RequestId};
use crate::pipe::Window;
use crate::sorted::Sorted;
use crate::wire::Id;

#[derive(Debug)]
pub(super) struct Lanes {
    table: BTreeMap<Lane, Queue>,
    /// Those that are attached, have something to write and may write it.
    ready: Sorted<Lane, ()>,
    /// Those that are not attached, have something to write and do not wait with it.
    loose: Sorted<Lane, ()>,
    /// Those that have nothing to write, owe nothing and end so.
    done: Sorted<Lane, ()>,
    /// Those of sessions that are attached, and of which something is not written or not read.
    unread: Sorted<Lane, ()>,
    /// The one that wrote last: the others come before it again.
    last: Lane,
    /// Bytes in all queues together.
    bytes: usize,
    /// Bytes that may be under way on one of them.
    window: usize,
}

/// When a way ends, and what becomes of what is loose on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It ends with the last answer that it owes.
    Answering,
    /// It is ended.
    Lasting,
    /// The same, and what is loose on it waits.
    Patient,
}

/// One way, and what waits for it.
#[derive(Debug)]
struct Queue {
    kind: Kind,
    waiting: Waiting,
    window: Window,
    is_attached: bool,
    /// Answers that are still to come.
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

    /// There is such a way from now on, with nobody at its end.
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

    /// Somebody new is at its end, who has read nothing yet.
    pub(super) fn attach(&mut self, lane: Lane) {
        if let Some(queue) = self.table.get_mut(&lane) {
            queue.is_attached = true;
            queue.window = Window::new(self.window);
            self.sort(lane);
        }
    }

    /// Nobody is at its end any more: what was for whoever was there alone is not said.
    pub(super) fn detach(&mut self, lane: Lane) {
        self.take_back(lane, &Subject::Signal);
        if let Some(queue) = self.table.get_mut(&lane) {
            queue.is_attached = false;
            self.sort(lane);
        }
    }

    /// There is no such way any more, nor what waits for it.
    pub(super) fn remove(&mut self, lane: Lane) {
        if let Some(queue) = self.table.remove(&lane) {
            self.bytes -= queue.waiting.bytes();
        }
        self.sort(lane);
    }

    pub(super) fn clear(&mut self) {
        *self = Lanes::new(self.window);
    }

    /// Nothing is said where there is no such way (any more).
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

    /// Before all that waits comes this.
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

    /// Whether somebody is at its end who reads.
    pub(super) fn is_read(&self, lane: Lane) -> bool {
        let queue = self.table.get(&lane);
        queue.is_some_and(|queue| queue.is_attached && queue.window.is_open())
    }

    /// Whose turn it is to write: each in turn, so that none waits for another.
    pub(super) fn next(&self) -> Option<Lane> {
        let mut others = self.ready.from(&self.last).map(|(lane, ())| *lane);
        let next = others.find(|lane| *lane != self.last);
        next.or_else(|| self.ready.first().map(|(lane, ())| *lane))
    }

    /// One of those that have something to write and nobody to read it.
    pub(super) fn next_loose(&self) -> Option<Lane> {
        self.loose.first().map(|(lane, ())| *lane)
    }

    /// One of those that ended.
    pub(super) fn next_done(&self) -> Option<Lane> {
        self.done.first().map(|(lane, ())| *lane)
    }

    pub(super) fn is_done(&self, lane: Lane) -> bool {
        self.done.get(&lane).is_some()
    }

    /// One more answer is to come on it.
    pub(super) fn owe(&mut self, lane: Lane) {
        if let Some(queue) = self.table.get_mut(&lane) {
            queue.owed += 1;
            if queue.kind == Kind::Answering {
                self.sort(lane);
            }
        }
    }

    /// One answer less is to come on it.
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

    /// Bytes were handed to the driver.
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

    /// The driver handed bytes to the system.
    pub(super) fn sent(&mut self, lane: Lane, len: usize) {
        if let Some(queue) = self.table.get_mut(&lane) {
            let was_open = queue.window.is_open();
            queue.window.sent(len);
            if !was_open || matches!(lane, Lane::Session(_)) {
                self.sort(lane);
            }
        }
    }

    /// Bytes under way on one of them.
    pub(super) fn under_way(&self, lane: Lane) -> usize {
        let queue = self.table.get(&lane);
        queue.map_or(0, |queue| queue.window.under_way())
    }

    /// Whether nothing waits on this one.
    pub(super) fn is_empty(&self, lane: Lane) -> bool {
        let queue = self.table.get(&lane);
        queue.is_none_or(|queue| queue.waiting.is_empty())
    }

    /// Whether something for a session, on a way with somebody at its end, is not written or not read.
    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Bytes that wait on this one.
    pub(super) fn bytes_on(&self, lane: Lane) -> usize {
        let queue = self.table.get(&lane);
        queue.map_or(0, |queue| queue.waiting.bytes())
    }

    /// Bytes that wait on all of them.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// # What is not said any more
impl Lanes {
    /// Nothing more is said about this request.
    pub(super) fn retract(&mut self, lane: Lane, request: RequestId) {
        self.take_back(lane, &Subject::Request(request));
        self.take_back(lane, &Subject::Questions(request));
    }

    /// Nothing more is said on the watch with this id.
    pub(super) fn retract_listen(&mut self, lane: Lane, id: &Id) {
        self.take_back(lane, &Subject::Listen(id.clone()));
    }

    /// The server says nothing itself to the request with this id, unless it is a handshake (S-CANC-10).
    pub(super) fn retract_answer(&mut self, lane: Lane, id: &Id) {
        self.take_back(lane, &Subject::Answer(id.clone()));
    }

    /// The questions of a request are not put in the place of its answer.
    pub(super) fn retract_questions(&mut self, lane: Lane, request: RequestId) {
        self.take_back(lane, &Subject::Questions(request));
    }

    /// A question that was not put yet is not put any more.
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

    /// Puts it among those that it belongs to now.
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
    use crate::id::StreamId;
    use crate::watch::{Change, List};

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
