//! The messages of one queue, in order. Does not know which queue it is, nor the transport.
//!
//! Queued messages can be retracted by subject. A short queue is searched one by one. A longer queue has an index, so that a retraction
//! costs only as much as the messages that it removes.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::driver::{AskId, RequestId};
use crate::protocol::watch::Change;
use crate::server::outgoing::frame::{Answer, Frame};
use crate::util::queue::{add, let_go};
use crate::wire::Id;

/// A queue of up to this many messages is searched one by one. Most queues never hold more, and need no index.
const FEW: usize = 16;

/// The subject of a message that can be retracted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// The server's own reply to the request with this id.
    Answer(Id),
    Ask(AskId),
    /// The watch with this id.
    Listen(Id),
    /// The asks that are written in place of the reply to a request.
    Questions(RequestId),
    /// Anything else about a request.
    Request(RequestId),
    /// The exchange that carries the queue at present.
    Signal,
}

impl Subject {
    fn of(frame: &Frame) -> Option<Subject> {
        Some(match frame {
            Frame::Acknowledged(id, _)
            | Frame::Changed(Some(id), _)
            | Frame::ListenCancelled(id)
            | Frame::ListenEnd(id) => Subject::Listen(id.clone()),
            // A handshake cannot be cancelled (S-CANC-10).
            Frame::Answer(_, Answer::Initialize(_)) => return None,
            Frame::Answer(Some(id), _) => Subject::Answer(id.clone()),
            Frame::Ask(ask) => Subject::Ask(*ask),
            Frame::Log(Some(request), ..) | Frame::Progress(request) | Frame::Reply(request, _) => {
                Subject::Request(*request)
            }
            Frame::Questions(request) => Subject::Questions(*request),
            Frame::Signal(_) => Subject::Signal,
            Frame::Answer(None, _)
            | Frame::AskCancelled(..)
            | Frame::Changed(None, _)
            | Frame::Log(None, ..)
            | Frame::Notify(..) => return None,
        })
    }

    /// Whether a message is about this. Equal to a comparison with [`Subject::of`], without a copy of an id.
    fn is_of(&self, frame: &Frame) -> bool {
        match (self, frame) {
            (_, Frame::Answer(_, Answer::Initialize(_))) => false,
            (Subject::Answer(id), Frame::Answer(Some(of), _))
            | (
                Subject::Listen(id),
                Frame::Acknowledged(of, _)
                | Frame::Changed(Some(of), _)
                | Frame::ListenCancelled(of)
                | Frame::ListenEnd(of),
            ) => of == id,
            (Subject::Ask(ask), Frame::Ask(of)) => of == ask,
            (Subject::Questions(request), Frame::Questions(of))
            | (
                Subject::Request(request),
                Frame::Log(Some(of), ..) | Frame::Progress(of) | Frame::Reply(of, _),
            ) => of == request,
            (Subject::Signal, Frame::Signal(_)) => true,
            (
                Subject::Answer(_)
                | Subject::Ask(_)
                | Subject::Listen(_)
                | Subject::Questions(_)
                | Subject::Request(_)
                | Subject::Signal,
                _,
            ) => false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct FrameQueue {
    /// The messages in order. A retracted message leaves a gap, but never at the front.
    frames: VecDeque<Option<Frame>>,
    /// The number of the first entry. The others are numbered from there.
    first: i64,
    /// The number of entries that are not gaps.
    len: usize,
    bytes: usize,
    /// Data that most queues do not need. It is boxed, so that an idle server uses little memory.
    more: Option<Box<More>>,
}

#[derive(Debug, Default)]
struct More {
    /// The queued changes. The same change is not queued twice.
    changes: BTreeSet<(Option<Id>, Change)>,
    /// The numbers of the messages about each subject, once there were more than `FEW`.
    index: Option<BTreeSet<(Subject, i64)>>,
}

impl FrameQueue {
    pub(crate) const fn new() -> FrameQueue {
        FrameQueue {
            frames: VecDeque::new(),
            first: 0,
            len: 0,
            bytes: 0,
            more: None,
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends a message. A change that is queued already is not added.
    pub(crate) fn push(&mut self, frame: Frame) {
        if let Frame::Changed(to, change) = &frame {
            let more = self.more.get_or_insert_default();
            if !more.changes.insert((to.clone(), change.clone())) {
                return;
            }
        }
        self.bytes += frame.bytes();
        self.len += 1;
        let number = self.first + self.frames.len() as i64;
        if let Some(index) = self.index() {
            index.extend(Subject::of(&frame).map(|subject| (subject, number)));
        }
        add(&mut self.frames, Some(frame));
        self.index_if_many();
    }

    /// Prepends a message.
    pub(crate) fn push_front(&mut self, frame: Frame) {
        self.bytes += frame.bytes();
        self.len += 1;
        self.first -= 1;
        let number = self.first;
        if let Some(index) = self.index() {
            index.extend(Subject::of(&frame).map(|subject| (subject, number)));
        }
        self.frames.push_front(Some(frame));
        self.index_if_many();
    }

    pub(crate) fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()??;
        let number = self.first;
        if let Some(index) = self.index() {
            if let Some(subject) = Subject::of(&frame) {
                index.remove(&(subject, number));
            }
        }
        self.first += 1;
        self.forget(&frame);
        self.close_gaps();
        Some(frame)
    }

    /// Retracts all messages about this subject.
    pub(crate) fn remove(&mut self, subject: &Subject) {
        if self.len == 0 {
            return;
        }
        let Some(index) = self.index() else {
            for at in 0..self.frames.len() {
                let is_meant = |frame: &mut Frame| subject.is_of(frame);
                if let Some(frame) = self.frames[at].take_if(is_meant) {
                    self.forget(&frame);
                }
            }
            return self.close_gaps();
        };
        let about = (subject.clone(), i64::MIN)..=(subject.clone(), i64::MAX);
        let about: Vec<(Subject, i64)> = index.range(about).cloned().collect();
        for entry in about {
            let at = usize::try_from(entry.1 - self.first);
            if let Some(index) = self.index() {
                index.remove(&entry);
            }
            let slot = at.ok().and_then(|at| self.frames.get_mut(at));
            if let Some(frame) = slot.and_then(Option::take) {
                self.forget(&frame);
            }
        }
        self.close_gaps();
    }

    /// Updates the counts for a message that left the queue.
    fn forget(&mut self, frame: &Frame) {
        self.bytes -= frame.bytes();
        self.len -= 1;
        if let (Frame::Changed(to, change), Some(more)) = (frame, &mut self.more) {
            more.changes.remove(&(to.clone(), change.clone()));
        }
    }

    fn close_gaps(&mut self) {
        while let Some(None) = self.frames.front() {
            self.frames.pop_front();
            self.first += 1;
        }
        if self.frames.is_empty() {
            self.more = None;
            let_go(&mut self.frames);
        } else if self.frames.len() > 2 * self.len + FEW {
            self.frames.retain(Option::is_some);
            if self.index().is_some() {
                self.rebuild_index();
            }
        }
    }

    /// Builds the index of all queued messages.
    fn rebuild_index(&mut self) {
        let numbered = (self.first..).zip(&self.frames);
        let about = numbered.filter_map(|(number, frame)| {
            let subject = Subject::of(frame.as_ref()?)?;
            Some((subject, number))
        });
        let index = about.collect();
        self.more.get_or_insert_default().index = Some(index);
    }

    fn index(&mut self) -> Option<&mut BTreeSet<(Subject, i64)>> {
        self.more.as_mut()?.index.as_mut()
    }

    fn index_if_many(&mut self) {
        if self.len > FEW && self.index().is_none() {
            self.rebuild_index();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::watch::List;

    fn frame(number: u64) -> Frame {
        let request = RequestId::from_number(number % 7);
        match number % 5 {
            0 => Frame::Progress(request),
            1 => Frame::Questions(request),
            2 => Frame::Ask(AskId::from_number(number % 11)),
            3 => Frame::ListenEnd(Id::from(number as i64 % 3)),
            _ => Frame::Answer(Some(Id::from(number as i64 % 4)), Answer::Empty),
        }
    }

    /// With an index or without, the same messages are retracted, and the others stay in order.
    #[test]
    fn what_is_taken_back_is_what_is_about_it() {
        let mut queue = FrameQueue::new();
        let mut model: VecDeque<Frame> = VecDeque::new();
        let (mut dice, mut most) = (7_u64, 0);
        for turn in 0..20_000_u64 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = dice >> 33;
            // The queue grows and shrinks in turns.
            let grows = turn % 2_000 < 1_200;
            match (dice >> 40) % 8 {
                0..=2 if grows => {
                    queue.push(frame(number));
                    model.push_back(frame(number));
                }
                3 if grows => {
                    queue.push_front(frame(number));
                    model.push_front(frame(number));
                }
                4 | 5 => {
                    let (one, other) = (queue.pop(), model.pop_front());
                    assert_eq!(alloc::format!("{one:?}"), alloc::format!("{other:?}"));
                }
                6 if turn % 4 == 0 => {
                    if let Some(subject) = Subject::of(&frame(number)) {
                        queue.remove(&subject);
                        model.retain(|frame| Subject::of(frame).as_ref() != Some(&subject));
                    }
                }
                _ => {}
            }
            most = most.max(model.len());
            assert_eq!(
                (queue.len, queue.is_empty()),
                (model.len(), model.is_empty())
            );
            assert_eq!(queue.bytes(), model.iter().map(Frame::bytes).sum::<usize>());
            assert!(queue.frames.len() <= 2 * model.len() + FEW);
        }
        assert!(most > 4 * FEW, "{most}");
    }

    fn changed(list: List) -> Frame {
        Frame::Changed(None, Change::List(list))
    }

    #[test]
    fn change_that_was_written_is_queued_again_behind_others() {
        let mut queue = FrameQueue::new();
        for list in [List::Tools, List::Prompts, List::Tools] {
            queue.push(changed(list));
        }
        assert_eq!(queue.len, 2, "each waits once");
        queue.pop();
        queue.push(changed(List::Tools));
        assert_eq!(queue.len, 2);
        assert!(matches!(
            (queue.pop(), queue.pop()),
            (
                Some(Frame::Changed(_, Change::List(List::Prompts))),
                Some(Frame::Changed(_, Change::List(List::Tools)))
            )
        ));
    }

    #[test]
    fn queue_that_was_long_holds_no_memory_when_it_is_empty() {
        let mut queue = FrameQueue::new();
        for number in 0..100 {
            queue.push(frame(number));
        }
        while queue.pop().is_some() {}
        assert!(queue.frames.capacity() <= 2 && queue.more.is_none());
    }

    #[test]
    fn long_queue_has_an_index_and_a_short_one_has_none() {
        let mut queue = FrameQueue::new();
        for number in 0..FEW as u64 {
            queue.push(frame(number));
        }
        assert!(queue.index().is_none());
        queue.push_front(frame(0));
        let indexed = queue.index().map(|index| index.len());
        assert_eq!(indexed, Some(FEW + 1));
        // The messages stand at new places after their gaps are closed.
        for number in 0..10 * FEW as u64 {
            queue.push(frame(number));
        }
        queue.remove(&Subject::Ask(AskId::from_number(2)));
        for request in 0..7 {
            queue.remove(&Subject::Request(RequestId::from_number(request)));
            queue.remove(&Subject::Questions(RequestId::from_number(request)));
        }
        assert!(queue.frames.len() <= 2 * queue.len + FEW);
        let numbered: Vec<i64> = (queue.first..)
            .zip(&queue.frames)
            .filter_map(|(number, frame)| frame.as_ref().map(|_| number))
            .collect();
        let index = queue.index().expect("it has an index");
        let mut indexed: Vec<i64> = index.iter().map(|(_, number)| *number).collect();
        indexed.sort_unstable();
        assert_eq!(indexed, numbered);
    }
}
