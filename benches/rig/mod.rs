//! A link that is ready, and the other end of its stream, for benchmarks of a link. Measures nothing itself.
#![allow(dead_code, reason = "each program that measures uses its own part")]

pub(crate) mod pair;
pub(crate) mod relay;
pub(crate) mod samples;

use everlink::client::{CallOptions, Client, Event, Outcome, State};
use everlink::protocol::Era;
use everlink::{Config, Dialect, Epoch, ExitStatus, Input, Instant, Output, Payload, StreamId};
pub(crate) use samples::params;

/// The beginning of every message with an id that the link writes.
const REQUEST: &[u8] = br#"{"jsonrpc":"2.0","id":"#;

/// Both eras, for properties that must hold in each.
pub(crate) const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

/// A link, and the state of its server.
pub(crate) struct Rig {
    pub(crate) link: Client,
    pub(crate) now: Instant,
    pub(crate) epoch: Epoch,
    /// The bytes that the link wrote last.
    pub(crate) written: Vec<u8>,
    /// The next line of the server.
    pub(crate) line: Vec<u8>,
}

impl Rig {
    /// Creates a link that is ready, to a server of this era with tools.
    pub(crate) fn ready(era: Era) -> Rig {
        Rig::with(era, Config::child("measured", "1.0"))
    }

    /// Creates a link with this configuration that is ready.
    pub(crate) fn with(era: Era, mut config: Config) -> Rig {
        config.dialect = dialect(era);
        let result = match era {
            Era::Legacy => r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}"#,
            Era::Modern => r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#,
            _ => unreachable!("there are two eras"),
        };
        let mut rig = Rig {
            link: Client::new(config),
            now: Instant::ZERO,
            epoch: Epoch::NONE,
            written: Vec::with_capacity(64 << 10),
            line: Vec::with_capacity(64 << 10),
        };
        rig.link.connect(rig.now);
        rig.epoch = rig.link.epoch();
        rig.link.handle(rig.now, rig.epoch, Input::Opened);
        let id = rig.write();
        rig.reply(id, result);
        rig.drain();
        assert_eq!(rig.link.state(), State::Ready);
        rig
    }

    /// Makes the link accept a `tools/call`.
    pub(crate) fn call(&mut self, params: Payload) {
        self.link
            .call(self.now, "tools/call", Some(params), CallOptions::new())
            .expect("there is room for a call");
    }

    /// Polls up to the next request, reports it as sent, and returns its id.
    pub(crate) fn write(&mut self) -> u64 {
        self.written.clear();
        loop {
            match self.link.poll_output(&mut self.written) {
                Some(Output::Write { len, .. }) => {
                    self.feed(Input::sent(len));
                    return wire_id(&self.written);
                }
                Some(_) => {}
                None => panic!("the link writes nothing"),
            }
        }
    }

    /// Delivers a reply to the request with this id.
    pub(crate) fn reply(&mut self, id: u64, result: &str) {
        self.prepare(id, result);
        self.deliver();
    }

    /// Prepares a reply, without delivering it.
    pub(crate) fn prepare(&mut self, id: u64, result: &str) {
        use std::io::Write as _;

        self.line.clear();
        self.line.extend_from_slice(REQUEST);
        write!(self.line, "{id}").expect("a write to a buffer succeeds");
        self.line.extend_from_slice(br#","result":"#);
        self.line.extend_from_slice(result.as_bytes());
        self.line.extend_from_slice(b"}\n");
    }

    /// Delivers the prepared reply.
    pub(crate) fn deliver(&mut self) {
        let input = Input::bytes(&*self.line);
        self.link.handle(self.now, self.epoch, input);
    }

    /// Polls up to the next reply of the server, and returns its result.
    pub(crate) fn outcome(&mut self) -> Payload {
        loop {
            match self.link.poll_output(&mut self.written) {
                Some(Output::Event(Event::Done {
                    outcome: Outcome::Reply(result),
                    ..
                })) => return result,
                Some(Output::Event(Event::Done { outcome, .. })) => panic!("{outcome:?}"),
                Some(_) => {}
                None => panic!("no call is done"),
            }
        }
    }

    /// Makes a whole call.
    pub(crate) fn round_trip(&mut self, params: Payload, result: &str) -> Payload {
        self.call(params);
        let id = self.write();
        self.reply(id, result);
        self.outcome()
    }

    /// Puts calls in flight.
    pub(crate) fn put_in_flight(&mut self, calls: usize) {
        for _ in 0..calls {
            self.call(params());
            self.write();
        }
    }

    /// Polls all outputs and reports the writes as sent.
    pub(crate) fn drain(&mut self) {
        self.written.clear();
        while let Some(output) = self.link.poll_output(&mut self.written) {
            if let Output::Write { len, .. } = output {
                self.feed(Input::sent(len));
            }
        }
    }

    /// Does what a driver does with an idle link. Returns whether the link is in fact idle.
    pub(crate) fn idle_poll(&mut self) -> bool {
        self.link.handle_timeout(self.now);
        let output = self.link.poll_output(&mut self.written);
        let deadline = self.link.poll_timeout();
        let wants_input = self.link.wants_input(StreamId::DUPLEX);
        output.is_none() && wants_input && deadline.is_some_and(|deadline| deadline.at > self.now)
    }

    /// Kills the server. Polls all outputs, and returns how many calls ended.
    pub(crate) fn kill_server(&mut self) -> usize {
        self.feed(Input::exited(ExitStatus::Signal(9)));
        self.feed(Input::end(&[]));
        let mut ended = 0;
        while let Some(output) = self.link.poll_output(&mut self.written) {
            ended += usize::from(matches!(output, Output::Event(Event::Done { .. })));
        }
        ended
    }

    pub(crate) fn feed(&mut self, input: Input<'_>) {
        self.link.handle(self.now, self.epoch, input);
    }
}

/// The dialect that speaks only this era.
pub(crate) fn dialect(era: Era) -> Dialect {
    match era {
        Era::Legacy => Dialect::Legacy,
        Era::Modern => Dialect::Modern,
        _ => unreachable!("there are two eras"),
    }
}

/// Returns the id of a request that the link wrote.
fn wire_id(request: &[u8]) -> u64 {
    let rest = request
        .strip_prefix(REQUEST)
        .expect("the bytes are a request");
    rest.iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0, |id, digit| 10 * id + u64::from(digit - b'0'))
}
