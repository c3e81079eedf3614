//! What a network and the proxy in it do to exchanges.

use std::convert::Infallible;
use std::time::Duration;

use everlink::http::{Fields, RequestHead, ResponseHead};
use everlink::{Epoch, Fault, FaultKind, Input, Instant, Output, StreamId};
use serde_json::Value;

use super::leg::{Exchange, Outage};
use super::server::Said;
use super::{Happening, World};
use crate::subject::SECRET;

impl World {
    pub(super) fn carry_web(&mut self, leg: usize, output: Output<Infallible>, bytes: Vec<u8>) {
        match output {
            Output::Open { epoch } => {
                self.legs[leg].epoch = Some(epoch);
                let latency = self.latency(leg);
                self.after(latency, Happening::ToUpper(leg, epoch, Input::Opened));
            }
            Output::Release { .. } => self.release(leg),
            Output::Abort { stream, .. } => self.hang_up(leg, stream),
            Output::Request {
                epoch,
                stream,
                head,
                ..
            } => self.begin(leg, epoch, stream, *head, bytes),
            _ => {}
        }
    }

    fn begin(
        &mut self,
        leg: usize,
        epoch: Epoch,
        near: StreamId,
        mut head: RequestHead<'static>,
        body: Vec<u8>,
    ) {
        let latency = self.latency(leg);
        self.streams += 1;
        let far = StreamId::new(1_000_000 + self.streams);
        let weather = &mut self.legs[leg].weather;
        let exchange = Exchange {
            epoch,
            far,
            down: self.now + latency,
            up: self.now + latency,
            is_over: false,
            cut: None,
            passed: 0,
            held: (weather.buffers_until > self.now).then(Vec::new),
            stirred: self.now,
        };
        let outage = weather.outage.filter(|(until, _)| *until > self.now);
        self.legs[leg].exchanges.insert(near, exchange);
        let process = self.process_below(leg);
        let weather = &mut self.legs[leg].weather;
        match (outage, process) {
            // Whether a message that has no reply was read nobody can know, and the link goes on without the news that hang on it: so
            // that one is lost in a way that shows.
            (Some((_, Outage::BlackHole)), _) if !is_request(&body) && !body.is_empty() => {
                self.end_exchange(leg, near, Some(FaultKind::TimedOut));
            }
            (Some((_, Outage::BlackHole)), _) => {}
            (Some((_, Outage::Fault(kind))), _) => self.end_exchange(leg, near, Some(kind)),
            (Some((_, Outage::Status(status))), _) => self.proxy_answers(leg, near, status),
            (None, None) => self.end_exchange(leg, near, Some(FaultKind::Refused)),
            (None, Some(_)) if weather.wants_credentials => {
                if body.is_empty() {
                    self.stream_denied(leg);
                }
                self.proxy_answers(leg, near, 401);
            }
            // A page in the place of a stream says that there is none, and to a message that has no reply it says nothing.
            (None, Some(_)) if weather.pages > 0 && is_request(&body) => {
                weather.pages -= 1;
                self.proxy_answers(leg, near, 200);
            }
            (None, Some(_)) if weather.cut_requests > 0 => {
                weather.cut_requests -= 1;
                self.end_exchange(leg, near, Some(FaultKind::Reset));
            }
            (None, Some(process)) => {
                let cut = weather.cut_responses.pop();
                let exchange = self.legs[leg].exchanges.get_mut(&near);
                let exchange = exchange.expect("it was just put there");
                exchange.cut = cut;
                let at = exchange.down;
                self.legs[leg].near.insert(far, near);
                let path = head.target.find("/mcp").expect("the address of the server");
                head.target = head.target[path..].to_owned().into();
                head.fields.push("host", "localhost:8080");
                let (stream, head) = (far, Box::new(head));
                self.at(
                    at,
                    Happening::ToLower(process, Input::Request { stream, head }),
                );
                for piece in self.pieces(body) {
                    let bytes = piece.into();
                    let input = Input::Bytes { stream, bytes };
                    self.at(at, Happening::ToLower(process, input));
                }
                let faults = Vec::new().into();
                self.at(
                    at,
                    Happening::ToLower(process, Input::End { stream, faults }),
                );
                self.watch_idle(leg, near);
            }
        }
    }

    fn proxy_answers(&mut self, leg: usize, near: StreamId, status: u16) {
        let mut fields = Fields::new();
        match status {
            401 => fields.push("www-authenticate", format!("Bearer realm=\"{SECRET}\"")),
            429 | 503 if self.chance.once_in(2) => {
                fields.push("retry-after", self.chance.below(4).to_string());
            }
            _ => fields.push("content-type", "text/html"),
        }
        let head = Box::new(ResponseHead::new(status).with_fields(fields));
        self.pass_up(leg, near, Input::Response { stream: near, head });
        let bytes = format!("<h1>{SECRET}</h1>").into_bytes().into();
        let page = Input::Bytes {
            stream: near,
            bytes,
        };
        self.pass_up(leg, near, page);
        self.end_exchange(leg, near, None);
    }

    /// Something is on its way to the upper end, or held back.
    fn pass_up(&mut self, leg: usize, near: StreamId, input: Input<'static>) {
        let latency = self.latency(leg);
        let Some(exchange) = self.legs[leg].exchanges.get_mut(&near) else {
            return;
        };
        if exchange.is_over {
            return;
        }
        exchange.stirred = self.now;
        if let Some(held) = &mut exchange.held {
            held.push(input);
            return;
        }
        let at = exchange.up.max(self.now + latency);
        exchange.up = at;
        let epoch = exchange.epoch;
        self.at(at, Happening::ToUpper(leg, epoch, input));
        self.watch_idle(leg, near);
    }

    /// All of a response, or what there is of it, is on its way.
    fn end_exchange(&mut self, leg: usize, near: StreamId, kind: Option<FaultKind>) {
        let Some(exchange) = self.legs[leg].exchanges.get_mut(&near) else {
            return;
        };
        let held = exchange.held.take().into_iter().flatten();
        let held: Vec<Input<'static>> = held.collect();
        for input in held {
            self.pass_up(leg, near, input);
        }
        let faults: Vec<Fault> = kind.into_iter().map(Fault::new).collect();
        let end = Input::End {
            stream: near,
            faults: faults.into(),
        };
        self.pass_up(leg, near, end);
        let exchange = self.legs[leg].exchanges.get_mut(&near);
        exchange.expect("it is there").is_over = true;
    }

    /// The connection under an exchange breaks, for both.
    pub(super) fn cut(&mut self, leg: usize, near: StreamId, kind: FaultKind) {
        self.end_exchange(leg, near, Some(kind));
        self.lower_loses(leg, near);
    }

    fn lower_loses(&mut self, leg: usize, near: StreamId) {
        let Some(exchange) = self.legs[leg].exchanges.get(&near) else {
            return;
        };
        let (stream, at) = (exchange.far, exchange.down.max(self.now));
        if let (Some(process), Some(_)) =
            (self.process_below(leg), self.legs[leg].near.remove(&stream))
        {
            let faults = vec![Fault::new(FaultKind::Reset)].into();
            let gone = Input::WriteFailed { stream, faults };
            self.at(at, Happening::ToLower(process, gone));
        }
    }

    /// The upper end wants to know no more of an exchange.
    fn hang_up(&mut self, leg: usize, near: StreamId) {
        self.lower_loses(leg, near);
        self.legs[leg].exchanges.remove(&near);
    }

    pub(super) fn hang_up_all(&mut self, leg: usize) {
        let open: Vec<StreamId> = self.legs[leg].exchanges.keys().copied().collect();
        for near in open {
            self.hang_up(leg, near);
        }
    }

    pub(super) fn cut_all(&mut self, leg: usize) -> bool {
        let open = self.legs[leg].exchanges.iter();
        let open = open.filter(|(_, exchange)| !exchange.is_over);
        let open: Vec<StreamId> = open.map(|(near, _)| *near).collect();
        for near in &open {
            self.cut(leg, *near, FaultKind::Reset);
        }
        !open.is_empty()
    }

    pub(super) fn say_web(&mut self, leg: usize, said: Said) {
        let near = |world: &World, far: &StreamId| world.legs[leg].near.get(far).copied();
        match said {
            Said::Head(far, head) => {
                if let Some(stream) = near(self, &far) {
                    self.pass_up(leg, stream, Input::Response { stream, head });
                }
            }
            Said::Body(far, bytes) => {
                if let Some(near) = near(self, &far) {
                    self.body(leg, near, far, bytes);
                }
            }
            Said::Finish(far) => {
                if let Some(near) = near(self, &far) {
                    self.end_exchange(leg, near, None);
                }
                self.legs[leg].near.remove(&far);
            }
            Said::Abort(far) => {
                if let Some(near) = near(self, &far) {
                    self.end_exchange(leg, near, Some(FaultKind::Reset));
                }
                self.legs[leg].near.remove(&far);
            }
            Said::Write(_) | Said::Exit => {}
        }
    }

    fn body(&mut self, leg: usize, near: StreamId, far: StreamId, mut bytes: Vec<u8>) {
        let Some(exchange) = self.legs[leg].exchanges.get_mut(&near) else {
            return;
        };
        let room = exchange.cut.map(|cut| cut.saturating_sub(exchange.passed));
        exchange.passed += bytes.len();
        let is_cut = room.is_some_and(|room| room < bytes.len());
        bytes.truncate(room.unwrap_or(usize::MAX));
        let sent = bytes.len();
        let (is_held, at) = (exchange.held.is_some(), exchange.up.max(self.now));
        for piece in self.pieces(bytes) {
            let bytes = piece.into();
            let stream = near;
            self.pass_up(leg, near, Input::Bytes { stream, bytes });
        }
        // Who holds something back has read it.
        if let (true, Some(process)) = (is_held && sent > 0, self.process_below(leg)) {
            let sent = Input::Sent {
                stream: far,
                len: sent,
            };
            self.at(at, Happening::ToLower(process, sent));
        }
        if is_cut {
            self.cut(leg, near, FaultKind::Reset);
        }
    }

    /// Whether an upper end waits for this.
    pub(super) fn is_awaited(&self, leg: usize, input: &Input<'_>) -> bool {
        if !self.legs[leg].is_http {
            return true;
        }
        let exchanges = &self.legs[leg].exchanges;
        let stream = input.stream();
        stream.is_none_or(|stream| exchanges.contains_key(&stream))
    }

    /// What was read has left the system of who wrote it.
    pub(super) fn tell_lower_that_it_was_read(&mut self, leg: usize, input: &Input<'_>) {
        let Input::Bytes { stream, bytes } = input else {
            return;
        };
        let len = bytes.len();
        let Some(process) = self.process_below(leg) else {
            return;
        };
        let stream = match self.legs[leg].exchanges.get(stream) {
            Some(exchange) => exchange.far,
            None if self.legs[leg].is_http => return,
            None => StreamId::DUPLEX,
        };
        self.after(
            Duration::ZERO,
            Happening::ToLower(process, Input::Sent { stream, len }),
        );
    }

    /// An exchange whose end is told is no more.
    pub(super) fn note_end(&mut self, leg: usize, input: &Input<'_>) {
        if let (true, Input::End { stream, .. }) = (self.legs[leg].is_http, input) {
            self.legs[leg].exchanges.remove(stream);
        }
    }

    fn watch_idle(&mut self, leg: usize, near: StreamId) {
        let Some((until, patience)) = self.legs[leg].weather.cuts_idle else {
            return;
        };
        if until > self.now {
            self.after(patience, Happening::Idle(leg, near));
        }
    }

    /// What is silent for long is cut by somebody in between.
    pub(super) fn look_whether_idle(&mut self, leg: usize, near: StreamId) {
        let Some((_, patience)) = self.legs[leg].weather.cuts_idle else {
            return;
        };
        let exchange = self.legs[leg].exchanges.get(&near);
        let idle = |exchange: &Exchange| self.now >= exchange.stirred + patience;
        if exchange.is_some_and(|exchange| !exchange.is_over && idle(exchange)) {
            self.cut(leg, near, FaultKind::Closed);
        }
    }

    /// A server over HTTP is no more; another comes after a while.
    pub(super) fn replace(&mut self, leg: usize, down_for: Duration) {
        self.cut_all(leg);
        self.legs[leg].near.clear();
        self.stop(leg);
        if down_for == Duration::ZERO {
            self.start(leg);
        } else {
            self.after(down_for, Happening::Return(leg));
        }
    }

    pub(super) fn outage(&mut self, leg: usize, outage: Outage, until: Instant) {
        self.legs[leg].weather.outage = Some((until, outage));
    }
}

/// Whether a body is a message that wants a reply.
fn is_request(body: &[u8]) -> bool {
    let message: Value = serde_json::from_slice(body).unwrap_or_default();
    message.get("id").is_some() && message.get("method").is_some()
}
