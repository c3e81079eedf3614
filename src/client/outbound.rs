//! Chooses the next message to write, and checks whether the transport has room for it.

use alloc::vec::Vec;

use super::Client;
use super::errand::Errand;
use super::event::Event;
use super::http::Load;
use super::lifecycle::State;
use crate::driver::{CallId, Output, StreamId};
use crate::wire::encode;

impl Client {
    pub(super) fn can_write(&self) -> bool {
        let web = self.web.as_ref();
        let is_due = web.is_some_and(|web| web.exchanges.has_due()) && self.life.is_some();
        let is_chosen = |choice: &str| web.is_some_and(|web| web.is_chosen(choice));
        is_due
            || self.may_write() && (self.frames.has_next(is_chosen) || self.next_call().is_some())
    }

    pub(crate) fn write(&mut self, buf: &mut Vec<u8>) -> Option<Output<Event>> {
        if let Some(begun) = self.begin_due() {
            return Some(begun);
        }
        if !self.may_write() {
            return None;
        }
        let start = buf.len();
        let web = self.web.as_ref();
        let is_chosen = |choice: &str| web.is_some_and(|web| web.is_chosen(choice));
        let load = if let Some((frame, times)) = self.frames.pop(is_chosen) {
            self.voice.say(buf, &frame, &self.config);
            Load::Frame(frame, times)
        } else {
            let id = self.next_call()?;
            let wire = self.errands.issue(Errand::Call(id));
            self.calls.sent(id, wire, self.now);
            self.voice.call(buf, wire, self.calls.call(id)?);
            Load::Call(id)
        };
        self.stats.messages_out += 1;
        if self.web.is_some() {
            let len = buf.len() - start;
            self.stats.bytes_out += len as u64;
            return self.begin_post(load, len);
        }
        encode::line_end(buf);
        let len = buf.len() - start;
        self.stats.bytes_out += len as u64;
        let life = self.life.as_mut()?;
        life.pipe.wrote(len);
        Some(Output::Write {
            epoch: life.epoch,
            stream: StreamId::DUPLEX,
            len,
        })
    }

    /// Whether the transport can take a message.
    fn may_write(&self) -> bool {
        if !self.state.is_in_touch() {
            return false;
        }
        if self.web.is_some() {
            return self.has_exchange_to_spare();
        }
        let life = self.life.as_ref();
        life.is_some_and(|life| !life.is_unwritable && life.pipe.is_open())
    }

    /// The call to send next. While draining, only calls that continue with answers for their server.
    fn next_call(&self) -> Option<CallId> {
        if self.calls.in_flight() >= self.config.limits.calls_in_flight {
            return None;
        }
        if self.state == State::Ready {
            let first = self.calls.first_waiting();
            return first.filter(|_| !self.is_suspect());
        }
        let is_draining = self.state == State::Draining;
        is_draining.then(|| self.calls.first_going_on()).flatten()
    }
}
