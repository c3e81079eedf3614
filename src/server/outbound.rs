//! Writes the queued messages, as far as the transport takes them.

use alloc::vec::Vec;

use super::event::{Event, State};
use super::frame::{Frame, Voice};
use super::origin::Lane;
use super::requests::Phase;
use super::{Server, asks};
use crate::driver::{Epoch, Output, RequestId, StreamId};
use crate::wire::encode;

impl Server {
    pub(super) fn can_write(&self) -> bool {
        self.state != State::Closed && self.lanes.is_ready()
    }

    /// Whether the queue of this lane has room for more.
    pub(super) fn has_room_on(&self, lane: Lane) -> bool {
        let limits = &self.config.limits;
        let (own, all) = (self.lanes.bytes_on(lane), self.lanes.bytes());
        // If all queues together are too long, a client with an empty queue is not the cause.
        own == 0 || own < limits.queued_bytes && all < limits.all_queued_bytes
    }

    /// Writes the next message of the lane whose turn it is.
    pub(crate) fn write(&mut self, buf: &mut Vec<u8>) -> Option<Output<Event>> {
        while self.can_write() {
            let lane = self.lanes.next()?;
            let output = if lane == Lane::DUPLEX {
                self.write_line(buf)
            } else {
                self.write_http(lane, buf)
            };
            if output.is_some() {
                return output;
            }
        }
        None
    }

    fn write_line(&mut self, buf: &mut Vec<u8>) -> Option<Output<Event>> {
        let start = buf.len();
        let frame = self.lanes.pop(Lane::DUPLEX)?;
        self.say(buf, Lane::DUPLEX, frame);
        if buf.len() == start {
            return None;
        }
        encode::line_end(buf);
        let len = buf.len() - start;
        self.wrote(Lane::DUPLEX, len);
        Some(Output::Write {
            epoch: Epoch::FIRST,
            stream: StreamId::DUPLEX,
            len,
        })
    }

    /// Counts a message that was handed to the driver.
    pub(super) fn wrote(&mut self, lane: Lane, len: usize) {
        self.stats.messages_out += 1;
        self.stats.bytes_out += len as u64;
        self.lanes.wrote(lane, len);
    }

    /// Appends a message. Appends nothing if the subject of the message is over, or if the frame is a signal.
    pub(super) fn say(&mut self, buf: &mut Vec<u8>, lane: Lane, frame: Frame) {
        match frame {
            Frame::Acknowledged(id, granted) => Voice::acknowledged(buf, &id, &granted),
            Frame::Answer(id, answer) => Voice::answer(buf, id.as_ref(), &answer),
            Frame::Ask(ask) => {
                if let Some(open) = self.asks.get_mut(ask) {
                    open.place = asks::Place::Wire(true);
                    Voice::ask(buf, &asks::id(ask), &open.method, open.params.as_ref());
                }
            }
            Frame::AskCancelled(ask, reason) => {
                Voice::cancel(buf, &asks::id(ask), reason.as_deref());
            }
            Frame::Changed(to, change) => Voice::changed(buf, to.as_ref(), &change),
            Frame::ListenCancelled(id) => Voice::cancel(buf, &id, None),
            Frame::ListenEnd(id) => {
                self.voice.listen_end(buf, &id);
                self.lanes.settle(lane);
            }
            Frame::Log(_, level, logger, data) => Voice::log(buf, level, logger.as_deref(), &data),
            Frame::Notify(method, params) => Voice::notify(buf, &method, params.as_ref()),
            Frame::Progress(request) => self.say_progress(buf, request),
            Frame::Questions(request) => {
                self.say_questions(buf, request);
                self.lanes.settle(lane);
            }
            Frame::Reply(request, _) => {
                self.say_reply(buf, request);
                self.lanes.settle(lane);
            }
            Frame::Signal(_) => {}
        }
    }

    fn say_progress(&mut self, buf: &mut Vec<u8>, request: RequestId) {
        if let Some(entry) = self.requests.get_mut(request) {
            if let Some(progress) = entry.arrival.next_step() {
                Voice::progress(buf, &entry.arrival, &progress);
            }
        }
    }

    fn say_reply(&mut self, buf: &mut Vec<u8>, request: RequestId) {
        if let Some(entry) = self.requests.get(request) {
            if let Phase::Answered(verdict) = &entry.phase {
                self.voice.reply(buf, entry, verdict);
            }
        }
        self.requests.forget(request);
    }
}
