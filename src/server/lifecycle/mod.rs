//! The state of the server from its start to its end. Decides when the server drains and closes; knows neither requests nor messages.

mod table;

use alloc::vec::Vec;

pub(crate) use table::Cue;
pub use table::State;

use crate::driver::Fault;
use crate::server::misuse::Misuse;

/// The number of faults that are kept.
const FAULTS_KEPT: usize = 16;

#[derive(Debug)]
pub(crate) struct Lifecycle {
    state: State,
    /// Whether the byte stream has ended, so that no more input arrives.
    has_input_ended: bool,
    /// The faults that the driver reported, up to a bound.
    faults: Vec<Fault>,
}

/// What a server that drains has still to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remaining {
    /// Whether every request has its reply, written and read.
    pub(crate) is_flushed: bool,
    /// Whether the drain deadline is still to come.
    pub(crate) has_time: bool,
    /// Whether the flush deadline is set.
    pub(crate) is_flushing: bool,
}

/// The next step of a server that drains and has a reply to every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing is left to be written or read.
    Close,
    /// The last messages have a limited time from now on.
    Flush,
    Wait,
}

impl Lifecycle {
    pub(crate) const fn new() -> Lifecycle {
        Lifecycle {
            state: State::Serving,
            has_input_ended: false,
            faults: Vec::new(),
        }
    }

    pub(crate) const fn state(&self) -> State {
        self.state
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.state == State::Serving
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.state == State::Draining
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Whether this cue applies in the present state.
    pub(crate) const fn applies(&self, cue: Cue) -> bool {
        table::next(self.state, cue).is_some()
    }

    /// Moves to the state that follows on this cue. Returns whether the cue applies.
    pub(crate) fn step(&mut self, cue: Cue) -> bool {
        let next = table::next(self.state, cue);
        self.state = next.unwrap_or(self.state);
        next.is_some()
    }

    pub(crate) const fn has_input_ended(&self) -> bool {
        self.has_input_ended
    }

    /// Records that no more input arrives.
    pub(crate) const fn end_input(&mut self) {
        self.has_input_ended = true;
    }

    /// Records faults of the transport.
    pub(crate) fn note(&mut self, faults: &[Fault]) {
        let room = FAULTS_KEPT - self.faults.len();
        self.faults.extend(faults.iter().take(room).cloned());
    }

    pub(crate) fn take_faults(&mut self) -> Vec<Fault> {
        core::mem::take(&mut self.faults)
    }

    /// Decides how a drain goes on after every request got its reply.
    pub(crate) const fn after_replies(&self, remaining: Remaining) -> Next {
        // A client whose input has ended may still be reading. It has until the drain deadline.
        let is_still_read = self.has_input_ended && remaining.has_time;
        if remaining.is_flushed {
            Next::Close
        } else if remaining.is_flushing || is_still_read {
            Next::Wait
        } else {
            Next::Flush
        }
    }

    pub(crate) fn check_open(&self) -> Result<(), Misuse> {
        let state = self.state;
        if self.is_closed() {
            return Err(Misuse::NotServing { state });
        }
        Ok(())
    }

    /// Checks whether a client can still answer an ask.
    pub(crate) fn check_can_ask(&self) -> Result<(), Misuse> {
        let state = self.state;
        if self.has_input_ended || self.is_closed() {
            return Err(Misuse::NotServing { state });
        }
        Ok(())
    }
}
