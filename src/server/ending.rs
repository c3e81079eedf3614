//! Shuts the server down: it takes nothing new, finishes the requests in flight, flushes the last messages, and closes.

use super::config::ListenEnd;
use super::early::{Deferred, Early};
use super::event::{Cancelled, EndOfService, Event, State, Unanswered};
use super::frame::{Answer, Frame};
use super::origin::{Lane, WireId};
use super::requests::Phase;
use super::{Server, Timer};
use crate::driver::{Epoch, Fault, Output, RequestId};
use crate::protocol::code;
use crate::wire::ErrorObject;

/// The number of faults that are kept.
const FAULTS_KEPT: usize = 16;

impl Server {
    /// Starts the drain because the client's input has ended. The client may still read.
    pub(super) fn input_ended(&mut self) {
        if self.has_input_ended {
            return;
        }
        self.last_line();
        self.has_input_ended = true;
        self.drain(EndOfService::EndOfInput);
        // The client can no longer answer an ask, or come back with an answer.
        while let Some(ask) = self.asks.first() {
            self.settle_ask(ask, Err(Unanswered::PeerGone));
        }
        for request in self.requests.ids() {
            let entry = self.requests.get(request);
            if entry.is_some_and(|entry| matches!(entry.phase, Phase::Away(_))) {
                self.cancel(request, Cancelled::PeerGone);
            }
        }
    }

    /// Counts bytes that the client read. Each read restarts the flush time, but only before the drain deadline.
    pub(super) fn sent(&mut self, lane: Lane, len: usize) {
        self.lanes.sent(lane, len);
        self.read_on(len);
    }

    pub(super) fn read_on(&mut self, len: usize) {
        let is_in_time = self.timers.at(Timer::Drain).is_some();
        if len > 0 && is_in_time && self.timers.at(Timer::Flush).is_some() {
            self.arm_in(Timer::Flush, self.config.flush);
        }
    }

    /// Starts the drain: nothing new is taken from now on.
    pub(super) fn drain(&mut self, why: EndOfService) {
        if self.state != State::Serving {
            return;
        }
        self.state = State::Draining;
        self.tell(Event::Draining { why });
        self.arm_in(Timer::Drain, self.config.drain);
        if why == EndOfService::Shutdown {
            self.refuse_early(&unavailable());
        }
        while let Some((wire, lane)) = self.watchers.unlisten_first() {
            self.end_listen(wire, lane);
        }
        self.end_streams();
        self.refuse_arriving();
    }

    fn refuse_early(&mut self, error: &ErrorObject) {
        while let Some(early) = self.early.pop() {
            if let Early::Request { from, id, .. } = early {
                self.lanes.settle(from.lane);
                self.refuse(from.lane, id, error.clone());
            }
        }
    }

    /// Refuses all requests that wait for the offer. A client that asks again is reported again.
    pub(super) fn declined(&mut self, error: &ErrorObject) {
        for lane in self.early.lanes() {
            self.answer_in_good_order(lane);
        }
        self.refuse_early(error);
        self.met = None;
    }

    /// Refuses the `server/discover` requests that wait for the offer. The client is reported again, because its next message shows whether
    /// it speaks the legacy era. Returns whether there were any.
    pub(super) fn discovery_refused(&mut self, error: &ErrorObject) -> bool {
        let waiting = self.early.take_discoveries();
        let is_anybody = !waiting.is_empty();
        for (from, id) in waiting {
            self.lanes.settle(from.lane);
            self.refuse(from.lane, id, error.clone());
            self.met = None;
        }
        is_anybody
    }

    /// Cancels the requests in flight at the drain deadline. Their clients get an error.
    pub(super) fn out_of_time(&mut self) {
        self.refuse_early(&unavailable());
        for request in self.requests.ids() {
            let waits = self
                .requests
                .get(request)
                .is_some_and(|entry| match entry.phase {
                    Phase::Answered(_) => true,
                    Phase::Asking | Phase::Away(_) | Phase::Open => false,
                });
            if !waits {
                self.tell_that_it_is_cut_short(request);
                self.cancel(request, Cancelled::OutOfTime);
            }
        }
    }

    fn tell_that_it_is_cut_short(&mut self, request: RequestId) {
        let Some(entry) = self.requests.get(request) else {
            return;
        };
        if let Phase::Away(_) = entry.phase {
            return;
        }
        let (id, lane) = (entry.arrival.wire.id.clone(), entry.arrival.lane);
        self.answer(lane, id, Answer::CutShort);
    }

    pub(super) fn close_if_drained(&mut self) {
        if self.state != State::Draining || !self.requests.are_answered() || !self.early.is_empty()
        {
            return;
        }
        if self.requests.in_flight() == 0 && self.is_flushed() {
            self.close();
        } else if self.timers.at(Timer::Flush).is_none() && !self.is_still_read() {
            self.arm_in(Timer::Flush, self.config.flush);
        }
    }

    /// Whether all messages were written and read.
    fn is_flushed(&self) -> bool {
        if self.http.is_some() {
            return self.are_exchanges_over();
        }
        self.lanes.bytes() == 0 && self.lanes.under_way(Lane::DUPLEX) == 0
    }

    /// Whether a client whose input has ended may still be reading. It has until the drain deadline.
    fn is_still_read(&self) -> bool {
        self.has_input_ended && self.timers.at(Timer::Drain).is_some()
    }

    pub(super) fn note(&mut self, faults: &[Fault]) {
        let room = FAULTS_KEPT - self.faults.len();
        self.faults.extend(faults.iter().take(room).cloned());
    }

    /// Closes the server. No client gets anything more.
    pub(super) fn close(&mut self) {
        if self.state == State::Closed {
            return;
        }
        self.early = Deferred::default();
        while self.watchers.unlisten_first().is_some() {}
        while let Some(ask) = self.asks.first() {
            self.settle_ask(ask, Err(Unanswered::PeerGone));
        }
        for request in self.requests.ids() {
            self.cancel(request, Cancelled::PeerGone);
        }
        self.lanes.clear();
        self.timers.clear();
        self.abort_exchanges();
        let epoch = Epoch::FIRST;
        self.outbox.push(Output::Release { epoch });
        let faults = core::mem::take(&mut self.faults);
        self.tell(Event::Closed { faults });
        self.state = State::Closed;
    }

    pub(super) fn end_listen(&mut self, wire: WireId, lane: Lane) {
        if self.config.listen_end == ListenEnd::CancelledThenResult {
            let frame = Frame::ListenCancelled(wire.id.clone());
            self.lanes.push(lane, frame);
        }
        self.lanes.push(lane, Frame::ListenEnd(wire.id));
    }
}

/// The error for requests that come after the drain began.
pub(super) fn unavailable() -> ErrorObject {
    ErrorObject::new(
        code::INTERNAL_ERROR,
        "the server is shutting down and takes no new requests",
    )
}
