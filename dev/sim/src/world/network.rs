//! Moves data through a network with a proxy.

use std::convert::Infallible;
use std::time::Duration;

use everlink::http::{Fields, RequestHead, ResponseHead};
use everlink::{Epoch, Fault, FaultKind, Input, Instant, Output, StreamId};
use serde_json::Value;

use super::leg::{Exchange, Outage};
use super::server::LowerOutput;
use super::{World, WorldEvent};
use crate::subject::SECRET;

impl World<'_> {
    pub(super) fn execute_network(
        &mut self,
        leg: usize,
        output: Output<Infallible>,
        bytes: Vec<u8>,
    ) {
        match output {
            Output::Open { epoch } => {
                self.legs[leg].epoch = Some(epoch);
                let latency = self.latency(leg);
                self.after(latency, WorldEvent::ToUpper(leg, epoch, Input::Opened));
            }
            Output::Release { .. } => self.release(leg),
            Output::Abort { stream, .. } => self.abort_exchange(leg, stream),
            Output::Request {
                epoch,
                stream,
                head,
                ..
            } => self.start_exchange(leg, epoch, stream, *head, bytes),
            _ => {}
        }
    }

    fn start_exchange(
        &mut self,
        leg: usize,
        epoch: Epoch,
        upper_stream: StreamId,
        head: RequestHead<'static>,
        body: Vec<u8>,
    ) {
        let latency = self.latency(leg);
        self.streams += 1;
        let lower_stream = StreamId::new(1_000_000 + self.streams);
        let leg_faults = &mut self.legs[leg].leg_faults;
        let exchange = Exchange {
            epoch,
            lower_stream,
            down: self.now + latency,
            up: self.now + latency,
            is_over: false,
            cut: None,
            passed: 0,
            buffered: (leg_faults.buffers_until > self.now).then(Vec::new),
            last_activity: self.now,
        };
        let outage = leg_faults.outage.filter(|(until, _)| *until > self.now);
        self.legs[leg].exchanges.insert(upper_stream, exchange);
        let process = self.process_below(leg);
        let leg_faults = &mut self.legs[leg].leg_faults;
        match (outage, process) {
            // The client cannot know whether a message without a reply was read, and later notifications may depend on it. So the loss is
            // visible.
            (Some((_, Outage::BlackHole)), _) if !is_request(&body) && !body.is_empty() => {
                self.end_exchange(leg, upper_stream, Some(FaultKind::TimedOut));
            }
            (Some((_, Outage::BlackHole)), _) => {}
            (Some((_, Outage::Fault(kind))), _) => self.end_exchange(leg, upper_stream, Some(kind)),
            (Some((_, Outage::Status(status))), _) => self.proxy_reply(leg, upper_stream, status),
            (None, None) => self.end_exchange(leg, upper_stream, Some(FaultKind::Refused)),
            (None, Some(_)) if leg_faults.wants_credentials => {
                if body.is_empty() {
                    self.stream_denied(leg);
                }
                self.proxy_reply(leg, upper_stream, 401);
            }
            // A page instead of a notification stream would mean that there is none. A message without a reply has no use for a page.
            (None, Some(_)) if leg_faults.pages > 0 && is_request(&body) => {
                leg_faults.pages -= 1;
                self.proxy_reply(leg, upper_stream, 200);
            }
            (None, Some(_)) if leg_faults.cut_requests > 0 => {
                leg_faults.cut_requests -= 1;
                self.end_exchange(leg, upper_stream, Some(FaultKind::Reset));
            }
            (None, Some(process)) => self.forward_request(leg, upper_stream, process, head, body),
        }
    }

    /// Sends a request on to the process at the lower end.
    fn forward_request(
        &mut self,
        leg: usize,
        upper_stream: StreamId,
        process: u64,
        mut head: RequestHead<'static>,
        body: Vec<u8>,
    ) {
        let cut = self.legs[leg].leg_faults.cut_responses.pop();
        let exchange = self.legs[leg].exchanges.get_mut(&upper_stream);
        let exchange = exchange.expect("it was just put there");
        let lower_stream = exchange.lower_stream;
        exchange.cut = cut;
        let at = exchange.down;
        self.legs[leg]
            .upper_streams
            .insert(lower_stream, upper_stream);
        let path = head.target.find("/mcp").expect("the address of the server");
        head.target = head.target[path..].to_owned().into();
        head.fields.push("host", "localhost:8080");
        let (stream, head) = (lower_stream, Box::new(head));
        self.at(
            at,
            WorldEvent::ToLower(process, Input::Request { stream, head }),
        );
        for piece in self.pieces(body) {
            let bytes = piece.into();
            let input = Input::Bytes { stream, bytes };
            self.at(at, WorldEvent::ToLower(process, input));
        }
        let faults = Vec::new().into();
        self.at(
            at,
            WorldEvent::ToLower(process, Input::End { stream, faults }),
        );
        self.schedule_idle_check(leg, upper_stream);
    }

    fn proxy_reply(&mut self, leg: usize, upper_stream: StreamId, status: u16) {
        let mut fields = Fields::new();
        match status {
            401 => fields.push("www-authenticate", format!("Bearer realm=\"{SECRET}\"")),
            429 | 503 if self.rng.one_in(2) => {
                fields.push("retry-after", self.rng.below(4).to_string());
            }
            _ => fields.push("content-type", "text/html"),
        }
        let head = Box::new(ResponseHead::new(status).with_fields(fields));
        self.send_up(
            leg,
            upper_stream,
            Input::Response {
                stream: upper_stream,
                head,
            },
        );
        let bytes = format!("<h1>{SECRET}</h1>").into_bytes().into();
        let page = Input::Bytes {
            stream: upper_stream,
            bytes,
        };
        self.send_up(leg, upper_stream, page);
        self.end_exchange(leg, upper_stream, None);
    }

    /// Schedules an input for the upper end, or buffers it.
    fn send_up(&mut self, leg: usize, upper_stream: StreamId, input: Input<'static>) {
        let latency = self.latency(leg);
        let Some(exchange) = self.legs[leg].exchanges.get_mut(&upper_stream) else {
            return;
        };
        if exchange.is_over {
            return;
        }
        exchange.last_activity = self.now;
        if let Some(buffered) = &mut exchange.buffered {
            buffered.push(input);
            return;
        }
        let at = exchange.up.max(self.now + latency);
        exchange.up = at;
        let epoch = exchange.epoch;
        self.at(at, WorldEvent::ToUpper(leg, epoch, input));
        self.schedule_idle_check(leg, upper_stream);
    }

    /// Ends a response, complete or not.
    fn end_exchange(&mut self, leg: usize, upper_stream: StreamId, kind: Option<FaultKind>) {
        let Some(exchange) = self.legs[leg].exchanges.get_mut(&upper_stream) else {
            return;
        };
        let buffered = exchange.buffered.take().into_iter().flatten();
        let buffered: Vec<Input<'static>> = buffered.collect();
        for input in buffered {
            self.send_up(leg, upper_stream, input);
        }
        let faults: Vec<Fault> = kind.into_iter().map(Fault::new).collect();
        let end = Input::End {
            stream: upper_stream,
            faults: faults.into(),
        };
        self.send_up(leg, upper_stream, end);
        let exchange = self.legs[leg].exchanges.get_mut(&upper_stream);
        exchange.expect("it is there").is_over = true;
    }

    /// Cuts the connection of an exchange for both ends.
    pub(super) fn cut(&mut self, leg: usize, upper_stream: StreamId, kind: FaultKind) {
        self.end_exchange(leg, upper_stream, Some(kind));
        self.fail_lower_stream(leg, upper_stream);
    }

    fn fail_lower_stream(&mut self, leg: usize, upper_stream: StreamId) {
        let Some(exchange) = self.legs[leg].exchanges.get(&upper_stream) else {
            return;
        };
        let (stream, at) = (exchange.lower_stream, exchange.down.max(self.now));
        if let (Some(process), Some(_)) = (
            self.process_below(leg),
            self.legs[leg].upper_streams.remove(&stream),
        ) {
            let faults = vec![Fault::new(FaultKind::Reset)].into();
            let gone = Input::WriteFailed { stream, faults };
            self.at(at, WorldEvent::ToLower(process, gone));
        }
    }

    /// Aborts an exchange for the upper end.
    fn abort_exchange(&mut self, leg: usize, upper_stream: StreamId) {
        self.fail_lower_stream(leg, upper_stream);
        self.legs[leg].exchanges.remove(&upper_stream);
    }

    pub(super) fn abort_all_exchanges(&mut self, leg: usize) {
        let open: Vec<StreamId> = self.legs[leg].exchanges.keys().copied().collect();
        for upper_stream in open {
            self.abort_exchange(leg, upper_stream);
        }
    }

    pub(super) fn cut_all(&mut self, leg: usize) -> bool {
        let open = self.legs[leg].exchanges.iter();
        let open = open.filter(|(_, exchange)| !exchange.is_over);
        let open: Vec<StreamId> = open.map(|(upper_stream, _)| *upper_stream).collect();
        for upper_stream in &open {
            self.cut(leg, *upper_stream, FaultKind::Reset);
        }
        !open.is_empty()
    }

    pub(super) fn output_to_network(&mut self, leg: usize, output: LowerOutput) {
        let upper_stream_of = |world: &World<'_>, lower_stream: &StreamId| {
            world.legs[leg].upper_streams.get(lower_stream).copied()
        };
        match output {
            LowerOutput::Head(lower_stream, head) => {
                if let Some(stream) = upper_stream_of(self, &lower_stream) {
                    self.send_up(leg, stream, Input::Response { stream, head });
                }
            }
            LowerOutput::Body(lower_stream, bytes) => {
                if let Some(upper_stream) = upper_stream_of(self, &lower_stream) {
                    self.body(leg, upper_stream, lower_stream, bytes);
                }
            }
            LowerOutput::Finish(lower_stream) => {
                if let Some(upper_stream) = upper_stream_of(self, &lower_stream) {
                    self.end_exchange(leg, upper_stream, None);
                }
                self.legs[leg].upper_streams.remove(&lower_stream);
            }
            LowerOutput::Abort(lower_stream) => {
                if let Some(upper_stream) = upper_stream_of(self, &lower_stream) {
                    self.end_exchange(leg, upper_stream, Some(FaultKind::Reset));
                }
                self.legs[leg].upper_streams.remove(&lower_stream);
            }
            LowerOutput::Write(_) | LowerOutput::Exit => {}
        }
    }

    fn body(
        &mut self,
        leg: usize,
        upper_stream: StreamId,
        lower_stream: StreamId,
        mut bytes: Vec<u8>,
    ) {
        let Some(exchange) = self.legs[leg].exchanges.get_mut(&upper_stream) else {
            return;
        };
        let room = exchange.cut.map(|cut| cut.saturating_sub(exchange.passed));
        exchange.passed += bytes.len();
        let is_cut = room.is_some_and(|room| room < bytes.len());
        bytes.truncate(room.unwrap_or(usize::MAX));
        let sent = bytes.len();
        let (is_held, at) = (exchange.buffered.is_some(), exchange.up.max(self.now));
        for piece in self.pieces(bytes) {
            let bytes = piece.into();
            let stream = upper_stream;
            self.send_up(leg, upper_stream, Input::Bytes { stream, bytes });
        }
        // A proxy that buffers has read the bytes.
        if let (true, Some(process)) = (is_held && sent > 0, self.process_below(leg)) {
            let sent = Input::Sent {
                stream: lower_stream,
                len: sent,
            };
            self.at(at, WorldEvent::ToLower(process, sent));
        }
        if is_cut {
            self.cut(leg, upper_stream, FaultKind::Reset);
        }
    }

    /// Whether the upper end still has this exchange.
    pub(super) fn is_awaited(&self, leg: usize, input: &Input<'_>) -> bool {
        if !self.legs[leg].is_http {
            return true;
        }
        let exchanges = &self.legs[leg].exchanges;
        let stream = input.stream();
        stream.is_none_or(|stream| exchanges.contains_key(&stream))
    }

    /// Reports to the lower end that the bytes were sent.
    pub(super) fn report_sent(&mut self, leg: usize, input: &Input<'_>) {
        let Input::Bytes { stream, bytes } = input else {
            return;
        };
        let len = bytes.len();
        let Some(process) = self.process_below(leg) else {
            return;
        };
        let stream = match self.legs[leg].exchanges.get(stream) {
            Some(exchange) => exchange.lower_stream,
            None if self.legs[leg].is_http => return,
            None => StreamId::DUPLEX,
        };
        self.after(
            Duration::ZERO,
            WorldEvent::ToLower(process, Input::Sent { stream, len }),
        );
    }

    /// Removes an exchange whose end was delivered.
    pub(super) fn remove_ended_exchange(&mut self, leg: usize, input: &Input<'_>) {
        if let (true, Input::End { stream, .. }) = (self.legs[leg].is_http, input) {
            self.legs[leg].exchanges.remove(stream);
        }
    }

    fn schedule_idle_check(&mut self, leg: usize, upper_stream: StreamId) {
        let Some((until, limit)) = self.legs[leg].leg_faults.cuts_idle else {
            return;
        };
        if until > self.now {
            self.after(limit, WorldEvent::CheckIdle(leg, upper_stream));
        }
    }

    /// Cuts an exchange that was idle for too long.
    pub(super) fn cut_if_idle(&mut self, leg: usize, upper_stream: StreamId) {
        let Some((_, limit)) = self.legs[leg].leg_faults.cuts_idle else {
            return;
        };
        let exchange = self.legs[leg].exchanges.get(&upper_stream);
        let idle = |exchange: &Exchange| self.now >= exchange.last_activity + limit;
        if exchange.is_some_and(|exchange| !exchange.is_over && idle(exchange)) {
            self.cut(leg, upper_stream, FaultKind::Closed);
        }
    }

    /// Stops a server over HTTP, and starts a new one after this time.
    pub(super) fn replace(&mut self, leg: usize, down_for: Duration) {
        self.cut_all(leg);
        self.legs[leg].upper_streams.clear();
        self.stop(leg);
        if down_for == Duration::ZERO {
            self.start(leg);
        } else {
            self.after(down_for, WorldEvent::Restart(leg));
        }
    }

    pub(super) fn outage(&mut self, leg: usize, outage: Outage, until: Instant) {
        self.legs[leg].leg_faults.outage = Some((until, outage));
    }
}

/// Whether a body is a message that needs a reply.
fn is_request(body: &[u8]) -> bool {
    let message: Value = serde_json::from_slice(body).unwrap_or_default();
    message.get("id").is_some() && message.get("method").is_some()
}
