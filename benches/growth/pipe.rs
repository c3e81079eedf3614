//! Steps of a server on a byte stream.
#![allow(dead_code, reason = "each program that measures uses its own part")]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a driver that measures ignores outputs that it does not need"
)]

use everlink::server::{Config, Event, Limits, Server};
use everlink::{AskId, Input, Output, RequestId};

use crate::http::{META, NOW, UNUSED, offer, result, unlimited};
use crate::meter::{Meter, REPEAT};

pub(crate) struct Pipe {
    pub(crate) server: Server,
    buf: Vec<u8>,
    /// Whether the client reads.
    pub(crate) client_reads: bool,
    request: Option<RequestId>,
}

impl Pipe {
    pub(crate) fn new(limits: Limits) -> Pipe {
        let mut config = Config::new(offer(), [7; 16]);
        config.limits = limits;
        Pipe {
            server: Server::new(config),
            buf: Vec::new(),
            client_reads: true,
            request: None,
        }
    }

    fn send(&mut self, line: &str) {
        self.server.handle(NOW, Input::bytes(line.as_bytes()));
        self.drain_outputs();
    }

    fn drain_outputs(&mut self) {
        while let Some(output) = self.server.poll_output(&mut self.buf) {
            match output {
                Output::Event(Event::Request(request)) => self.request = Some(request.request),
                Output::Write { len, .. } if self.client_reads => {
                    self.server.handle(NOW, Input::sent(len));
                }
                _ => {}
            }
            self.buf.clear();
        }
    }

    fn call(&mut self, number: usize) -> RequestId {
        self.send(&format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{number},\"method\":\"tools/call\",\"params\":{{\"name\":\"echo\",{META}}}}}\n"
        ));
        self.request.take().expect("the server received a request")
    }

    pub(crate) fn cancel(&mut self, number: usize) {
        self.send(&format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{number}}}}}\n"
        ));
    }

    pub(crate) fn ping(&mut self, number: usize) {
        self.send(&format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{number},\"method\":\"ping\"}}\n"
        ));
    }

    pub(crate) fn handshake(&mut self) {
        self.send(concat!(
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
            r#""capabilities":{"roots":{}},"clientInfo":{"name":"a","version":"1"}}}"#,
            "\n",
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            "\n"
        ));
    }
}

/// Measures steps beside n calls that the application has not answered.
pub(crate) fn calls(meter: &mut Meter) {
    let mut pipe = Pipe::new(unlimited());
    for number in 0..meter.n {
        pipe.call(number);
    }
    let mut calls = Vec::with_capacity(REPEAT);
    meter.round(|meter| {
        meter.step("server.pipe.call", |time| {
            calls.push(pipe.call(UNUSED + time))
        });
        meter.step("server.pipe.reply", |_| {
            let request = calls.pop().expect("one is left");
            let done = pipe.server.respond(NOW, request, result());
            done.expect("the request is open");
            pipe.drain_outputs();
        });
        for time in 0..REPEAT {
            pipe.call(UNUSED + time);
        }
        meter.step("server.pipe.cancel-of-a-call", |time| {
            pipe.cancel(UNUSED + time)
        });
        meter.step("server.pipe.cancel-of-an-unknown-id", |time| {
            pipe.cancel(2 * UNUSED + time);
        });
    });
}

/// Measures steps beside n queued replies that the client does not read.
pub(crate) fn queue(meter: &mut Meter) {
    let mut pipe = Pipe::new(unlimited());
    pipe.handshake();
    pipe.client_reads = false;
    for number in 0..meter.n + 10_000 {
        pipe.ping(number);
    }
    meter.round(|meter| {
        meter.step("server.pipe.answer-is-queued", |time| {
            pipe.ping(UNUSED + time)
        });
        meter.step("server.pipe.cancel-of-a-queued-answer", |time| {
            pipe.cancel(UNUSED + time);
        });
        meter.step(
            "server.pipe.cancel-of-an-unknown-id-beside-a-queue",
            |time| {
                pipe.cancel(2 * UNUSED + time);
            },
        );
        let mut calls = Vec::with_capacity(REPEAT);
        for time in 0..REPEAT {
            let request = pipe.call(UNUSED + time);
            let done = pipe.server.respond(NOW, request, result());
            done.expect("the request is open");
            calls.push(request);
        }
        meter.step("server.pipe.cancel-of-a-queued-reply", |time| {
            pipe.cancel(UNUSED + time);
        });
    });
}

/// Measures steps beside n open asks.
pub(crate) fn asks(meter: &mut Meter) {
    let mut pipe = Pipe::new(unlimited());
    pipe.handshake();
    for _ in 0..meter.n {
        pipe.server
            .ask_unbidden(NOW, "roots/list", None)
            .expect("the client can be asked");
        pipe.drain_outputs();
    }
    let mut asks: Vec<AskId> = Vec::with_capacity(REPEAT);
    meter.round(|meter| {
        meter.step("server.pipe.question", |_| {
            let asked = pipe.server.ask_unbidden(NOW, "roots/list", None);
            asks.push(asked.expect("the client can be asked"));
            pipe.drain_outputs();
        });
        meter.step("server.pipe.answer", |_| {
            let number = asks.pop().expect("one is left").number();
            pipe.send(&format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{number},\"result\":{{\"roots\":[]}}}}\n"
            ));
        });
        for _ in 0..REPEAT {
            let asked = pipe.server.ask_unbidden(NOW, "roots/list", None);
            asks.push(asked.expect("the client can be asked"));
            pipe.drain_outputs();
        }
        meter.step("server.pipe.question-is-withdrawn", |_| {
            let ask = asks.pop().expect("one is left");
            let done = pipe.server.withdraw(NOW, ask, None);
            done.expect("the ask is open");
            pipe.drain_outputs();
        });
    });
}
