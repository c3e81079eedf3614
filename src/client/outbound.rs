//! What goes out next, and whether the transport takes it.

use alloc::vec::Vec;

use super::Client;
use super::errand::Errand;
use super::event::Event;
use super::lifecycle::State;
use crate::id::{CallId, StreamId};
use crate::io::Output;

impl Client {
    pub(super) fn can_write(&self) -> bool {
        self.may_write() && (self.frames.len() > 0 || self.next_call().is_some())
    }

    pub(crate) fn write(&mut self, buf: &mut Vec<u8>) -> Option<Output<Event>> {
        if !self.may_write() {
            return None;
        }
        let start = buf.len();
        if let Some(frame) = self.frames.pop() {
            self.voice.say(buf, &frame, &self.config);
        } else {
            let id = self.next_call()?;
            let wire = self.errands.issue(Errand::Call(id));
            self.calls.sent(id, wire, self.now);
            self.voice.call(buf, wire, self.calls.call(id)?);
        }
        let len = buf.len() - start;
        self.stats.messages_out += 1;
        self.stats.bytes_out += len as u64;
        let life = self.life.as_mut()?;
        life.pipe.wrote(len);
        Some(Output::Write {
            epoch: life.epoch,
            stream: StreamId::DUPLEX,
            len,
        })
    }

    /// Whether the transport takes something to write.
    fn may_write(&self) -> bool {
        let life = self.life.as_ref();
        self.state.is_in_touch()
            && life.is_some_and(|life| !life.is_unwritable && life.pipe.is_open())
    }

    /// The call to send next. While draining, only those that their server waits for.
    fn next_call(&self) -> Option<CallId> {
        if self.calls.in_flight() >= self.config.limits.calls_in_flight {
            return None;
        }
        if self.state == State::Ready {
            return self.calls.first_waiting();
        }
        let is_draining = self.state == State::Draining;
        is_draining.then(|| self.calls.first_going_on()).flatten()
    }
}
