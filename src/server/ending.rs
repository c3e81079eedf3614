//! How the service ends: nothing new, what is in flight, last words, the end.

use super::config::ListenEnd;
use super::event::{Cancelled, EndOfService, Event, State, Unanswered};
use super::frame::{Answer, Frame};
use super::requests::Phase;
use super::{Server, Timer};
use crate::id::{Epoch, RequestId};
use crate::io::Output;
use crate::protocol::code;
use crate::wire::{ErrorObject, Id};

impl Server {
    /// The client says no more; it may still listen.
    pub(super) fn input_ended(&mut self) {
        if self.has_input_ended {
            return;
        }
        self.last_line();
        self.has_input_ended = true;
        self.drain(EndOfService::EndOfInput);
        // Nobody can answer any more, or come back with an answer.
        while let Some(ask) = self.asks.first() {
            self.settle_ask(ask, Err(Unanswered::PeerGone));
        }
        for request in self.requests.ids() {
            let entry = self.requests.get(request);
            if entry.is_some_and(|entry| matches!(entry.phase, Phase::Asking | Phase::Away(_))) {
                self.cancel(request, Cancelled::PeerGone);
            }
        }
    }

    /// Nothing new is taken from now on.
    pub(super) fn drain(&mut self, why: EndOfService) {
        if self.state != State::Serving {
            return;
        }
        self.state = State::Draining;
        self.tell(Event::Draining { why });
        self.arm_in(Timer::Drain, self.config.drain);
        while let Some(early) = self.early.pop_front() {
            self.refuse(early.id, unavailable());
        }
        for id in self.watchers.unlisten_all() {
            self.end_listen(id);
        }
    }

    /// The requests in flight have had their while: their clients are told, and it is left off.
    pub(super) fn out_of_time(&mut self) {
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
        self.arm_in(Timer::Flush, self.config.flush);
    }

    fn tell_that_it_is_cut_short(&mut self, request: RequestId) {
        let Some(entry) = self.requests.get(request) else {
            return;
        };
        if let Phase::Away(_) = entry.phase {
            return;
        }
        let id = entry.told.id.clone();
        let text = "the server ended before the request was done; it may have run in part";
        let error = ErrorObject::new(code::INTERNAL_ERROR, text);
        self.frames
            .push(Frame::Answer(Some(id), Answer::Error(error)));
    }

    pub(super) fn close_if_drained(&mut self) {
        let is_drained = self.state == State::Draining
            && self.requests.in_flight() == 0
            && self.requests.away() == 0
            && self.frames.is_empty()
            && self.pipe.is_flushed();
        if is_drained {
            self.close();
        }
    }

    /// The end: nobody hears any more.
    pub(super) fn close(&mut self) {
        if self.state == State::Closed {
            return;
        }
        self.early.clear();
        self.watchers.unlisten_all();
        for request in self.requests.ids() {
            self.cancel(request, Cancelled::PeerGone);
        }
        while let Some(ask) = self.asks.first() {
            self.settle_ask(ask, Err(Unanswered::PeerGone));
        }
        self.frames.clear();
        self.timers.clear();
        let epoch = Epoch::FIRST;
        self.outbox.push(Output::Release { epoch });
        self.tell(Event::Closed);
        self.state = State::Closed;
    }

    pub(super) fn end_listen(&mut self, id: Id) {
        if self.config.listen_end == ListenEnd::CancelledThenResult {
            self.frames.push(Frame::Cancel(id.clone()));
        }
        self.frames.push(Frame::ListenEnd(id));
    }
}

/// What is said to requests that come after the end.
pub(super) fn unavailable() -> ErrorObject {
    ErrorObject::new(
        code::INTERNAL_ERROR,
        "the server is shutting down and takes no new requests",
    )
}
