//! How the parts of exchanges get from one end to the other, or do not.

use everlink::{Epoch, Fault, FaultKind, Input, Instant, StreamId};

use super::Net;
use super::exchange::{Exchange, Part};

impl Net {
    pub(super) fn answer_bytes(&mut self, far: StreamId, body: &[u8]) {
        if self.heard.contains_key(&far) {
            return self.answer(far, Part::Bytes(body.to_vec()));
        }
        let near = self.near.get(&far).copied();
        let room = near.and_then(|near| self.exchanges.get(&near));
        let room = room.map_or(usize::MAX, |exchange| {
            let cut = exchange.plan.response_cut.unwrap_or(usize::MAX);
            cut.saturating_sub(exchange.response.bytes)
        });
        let through = &body[..room.min(body.len())];
        for piece in self.pieces(through) {
            self.answer(far, Part::Bytes(piece));
        }
        if let Some(near) = near.filter(|_| room < body.len()) {
            self.count_cut(near);
            self.cut(near, FaultKind::Reset);
        }
    }

    pub(super) fn answer(
        &mut self,
        far: StreamId,
        part: Part<everlink::http::ResponseHead<'static>>,
    ) {
        if let Some(heard) = self.heard.get_mut(&far) {
            match part {
                Part::Head(head) => heard.status = Some(head.status),
                Part::Bytes(bytes) => {
                    heard.body.extend_from_slice(&bytes);
                    let len = bytes.len();
                    let sent = Input::Sent { stream: far, len };
                    self.server.handle(self.now, sent);
                }
                Part::End(_) => heard.is_over = true,
            }
            return;
        }
        let near = self.near.get(&far);
        let Some(exchange) = near.and_then(|near| self.exchanges.get_mut(near)) else {
            return;
        };
        exchange.active_at = self.now;
        let ends = matches!(part, Part::End(_));
        // A proxy that holds a response back does so to its end.
        let at = match ends {
            false if self.faults.buffers => Instant::MAX,
            _ => self.now + exchange.plan.latency,
        };
        if ends && self.faults.buffers {
            exchange.response.pass_on(at);
        }
        exchange.response.put(at, part);
    }

    /// Reports what has arrived by now. Returns whether anything has.
    pub(super) fn deliver(&mut self) -> bool {
        let mut arrived = false;
        let all: Vec<StreamId> = self.exchanges.keys().copied().collect();
        for stream in all {
            while self.deliver_request(stream) | self.deliver_response(stream) {
                arrived = true;
            }
        }
        self.sweep();
        arrived
    }

    fn deliver_request(&mut self, near: StreamId) -> bool {
        let Some(exchange) = self.exchanges.get_mut(&near) else {
            return false;
        };
        let stream = exchange.far;
        let Some(part) = exchange.request.take(self.now) else {
            return false;
        };
        let input = match part {
            Part::Head(head) => Input::Request {
                stream,
                head: Box::new(head),
            },
            Part::Bytes(bytes) => Input::Bytes {
                stream,
                bytes: bytes.into(),
            },
            Part::End(None) => {
                exchange.was_heard = true;
                // Its client may still hang up.
                exchange.request.is_over = false;
                exchange.request.is_shut = false;
                Input::End {
                    stream,
                    faults: Vec::new().into(),
                }
            }
            Part::End(Some(kind)) if exchange.was_heard => Input::WriteFailed {
                stream,
                faults: vec![Fault::new(kind)].into(),
            },
            Part::End(Some(kind)) => Input::End {
                stream,
                faults: vec![Fault::new(kind)].into(),
            },
        };
        self.server.handle(self.now, input);
        true
    }

    fn deliver_response(&mut self, stream: StreamId) -> bool {
        let Some(exchange) = self.exchanges.get_mut(&stream) else {
            return false;
        };
        if !self.client.wants_input(stream) {
            return false;
        }
        let (epoch, far) = (exchange.epoch, exchange.far);
        let Some(part) = exchange.response.take(self.now) else {
            return false;
        };
        let is_wanted = exchange.is_wanted;
        let mut sent = 0;
        let input = match part {
            Part::Head(head) => Input::Response {
                stream,
                head: Box::new(head),
            },
            Part::Bytes(bytes) => {
                sent = bytes.len();
                Input::Bytes {
                    stream,
                    bytes: bytes.into(),
                }
            }
            Part::End(fault) => {
                // Unless the server is yet to learn of it, that is all.
                exchange.request.is_over |= exchange.request.due().is_none();
                let faults: Vec<Fault> = fault.into_iter().map(Fault::new).collect();
                Input::End {
                    stream,
                    faults: faults.into(),
                }
            }
        };
        if is_wanted {
            self.client.handle(self.now, epoch, input);
        }
        if sent > 0 {
            let sent = Input::Sent {
                stream: far,
                len: sent,
            };
            self.server.handle(self.now, sent);
        }
        true
    }

    pub(super) fn release(&mut self, epoch: Epoch) {
        assert_eq!(self.epoch.take(), Some(epoch));
        let open = self.exchanges.iter_mut();
        let open: Vec<StreamId> = open
            .map(|(stream, exchange)| {
                exchange.is_wanted = false;
                *stream
            })
            .collect();
        for stream in open {
            self.hang_up(stream);
        }
    }

    /// Reports to the server that the client of an exchange is gone.
    pub(super) fn hang_up(&mut self, stream: StreamId) {
        if let Some(exchange) = self.exchanges.get_mut(&stream) {
            let at = self.now + exchange.plan.latency;
            exchange.request.is_shut = false;
            exchange.request.put(at, Part::End(Some(FaultKind::Reset)));
            exchange.response.lose();
        }
    }

    /// The connection of an exchange breaks; what is under way to the client still arrives.
    pub(super) fn cut(&mut self, stream: StreamId, kind: FaultKind) {
        if let Some(exchange) = self.exchanges.get_mut(&stream) {
            let at = self.now + exchange.plan.latency;
            exchange.response.pass_on(at);
            exchange.response.put(at, Part::End(Some(kind)));
            exchange.request.is_shut = false;
            exchange.request.put(at, Part::End(Some(kind)));
        }
    }

    fn count_cut(&mut self, stream: StreamId) {
        let is_get = self.exchanges[&stream].is_get;
        let count = if is_get {
            &mut self.cuts.gets
        } else {
            &mut self.cuts.posts
        };
        *count += 1;
    }

    pub(super) fn idle_end(&self, exchange: &Exchange) -> Option<Instant> {
        let goes_on = !exchange.response.is_shut && exchange.is_wanted;
        let patience = self.faults.cuts_idle.filter(|_| goes_on)?;
        Some(exchange.active_at + patience)
    }

    pub(super) fn cut_idle(&mut self) {
        let now = self.now;
        let idle = self.exchanges.iter();
        let idle = idle.filter(|(_, e)| self.idle_end(e).is_some_and(|end| end <= now));
        let idle: Vec<StreamId> = idle.map(|(stream, _)| *stream).collect();
        for stream in idle {
            self.cuts.idle += 1;
            self.cut(stream, FaultKind::Closed);
        }
    }

    pub(super) fn sweep(&mut self) {
        self.exchanges.retain(|_, exchange| !exchange.is_over());
        let exchanges = &self.exchanges;
        self.near.retain(|_, near| exchanges.contains_key(near));
    }
}
