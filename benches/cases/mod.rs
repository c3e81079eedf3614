//! Defines all measured cases once. Each program beside this directory measures all of them in its own way. Measures nothing itself.
//!
//! One-time costs are paid while a case is created. They are the lookup of C library functions, the detection of processor features, and the growth
//! of tables and buffers to their final size. The output of a case is stored in it. So only memory that the machine itself frees is freed during the
//! measurement.
#![allow(dead_code, reason = "each program that measures uses its own part")]

use core::hint::black_box;

use everlink::internal::wire::{Id, Inbound, Line, LineReader, encode, parse};
use everlink::protocol::Era;
use everlink::{Config, Payload};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::rig::pair::Pair;
use crate::rig::relay::RelayRig;
use crate::rig::samples::{self, ECHO, params};
use crate::rig::{Rig, dialect};

/// Passes the table of all cases to a macro: the kinds of work, and for each kind its cases by name with their constructors.
macro_rules! all_cases {
    ($measure:ident) => {
        $measure! {
            call_to_frame: CallToFrame {
                legacy_100b => new(Era::Legacy),
                modern_100b => new(Era::Modern),
            }
            death: Death {
                legacy_10000 => new(Era::Legacy, 10_000),
                modern_10000 => new(Era::Modern, 10_000),
            }
            decode: Decode {
                result_200b => new(samples::result_200b()),
                text_1mb => new(samples::text_1mb()),
                tools_60kb => new(samples::tools_60kb()),
            }
            decode_to_event: DecodeToEvent {
                legacy_result_200b => new(Era::Legacy, samples::result_200b()),
                legacy_text_1mb => new(Era::Legacy, samples::text_1mb()),
                legacy_tools_60kb => new(Era::Legacy, samples::tools_60kb()),
                modern_result_200b => new(Era::Modern, samples::result_200b()),
                modern_text_1mb => new(Era::Modern, samples::text_1mb()),
                modern_tools_60kb => new(Era::Modern, samples::tools_60kb()),
            }
            encode: Encode {
                request_100b => new(),
            }
            guarded: RelayedCall {
                legacy_100b => new(Era::Legacy),
                modern_100b => new(Era::Modern),
            }
            idle_poll: IdlePoll {
                in_flight_0 => new(0),
                in_flight_1000 => new(1_000),
                in_flight_100000 => new(100_000),
            }
            round_trip: RoundTrip {
                legacy_100b => short(Era::Legacy),
                legacy_10kb => long(Era::Legacy, 10 << 10),
                legacy_1mb => long(Era::Legacy, 1 << 20),
                modern_100b => short(Era::Modern),
                modern_10kb => long(Era::Modern, 10 << 10),
                modern_1mb => long(Era::Modern, 1 << 20),
            }
            serde_json: SerdeJson {
                result_200b => new(samples::result_200b()),
                text_1mb => new(samples::text_1mb()),
                tools_60kb => new(samples::tools_60kb()),
            }
        }
    };
}
pub(crate) use all_cases;

/// A prepared piece of work that can be measured.
pub(crate) trait Case {
    /// Whether one value can be measured many times.
    const REPEATS: bool;

    fn run(&mut self);
}

/// The number of round trips before a measurement.
const WARM_UP: usize = 100;

/// The limit of calls in flight for the cases with many calls: the largest number of calls, and a few more.
const MAX_CALLS: usize = 100_100;

/// Measures a call from its acceptance until its frame is written.
pub(crate) struct CallToFrame {
    rig: Rig,
    params: Option<Payload>,
}

impl CallToFrame {
    pub(crate) fn new(era: Era) -> Box<CallToFrame> {
        Box::new(CallToFrame {
            rig: warmed_up(era, Config::child("measured", "1.0")),
            params: Some(params()),
        })
    }
}

impl Case for CallToFrame {
    const REPEATS: bool = false;

    fn run(&mut self) {
        let params = black_box(self.params.take()).expect("the case runs once");
        self.rig.call(params);
        black_box(self.rig.write());
    }
}

/// Measures the death of a server with this many calls in flight: handling its end and polling the outcome of each call.
pub(crate) struct Death {
    rig: Rig,
    calls: usize,
}

impl Death {
    pub(crate) fn new(era: Era, calls: usize) -> Box<Death> {
        let rig = with_calls_in_flight(era, calls);
        Box::new(Death { rig, calls })
    }
}

impl Case for Death {
    const REPEATS: bool = false;

    fn run(&mut self) {
        assert_eq!(self.rig.kill_server(), self.calls);
    }
}

/// Measures parsing one line into a message that borrows from it.
pub(crate) struct Decode {
    line: Vec<u8>,
    reader: LineReader,
}

impl Decode {
    pub(crate) fn new(result: String) -> Box<Decode> {
        let mut decode = Box::new(Decode {
            line: line(&result),
            reader: LineReader::new(16 << 20),
        });
        decode.run();
        decode
    }
}

impl Case for Decode {
    const REPEATS: bool = true;

    fn run(&mut self) {
        let Some(Line::Text(text)) = self.reader.next(&mut black_box(&self.line[..])) else {
            panic!("a line of text is read");
        };
        let Ok(Inbound::One(message)) = parse(text) else {
            panic!("a message is read");
        };
        black_box(message);
    }
}

/// Measures a client from the bytes of a reply until the event of the reply is polled.
pub(crate) struct DecodeToEvent {
    rig: Rig,
    reply: Option<Payload>,
}

impl DecodeToEvent {
    pub(crate) fn new(era: Era, result: String) -> Box<DecodeToEvent> {
        let mut rig = warmed_up(era, Config::child("measured", "1.0"));
        rig.round_trip(params(), &result);
        rig.call(params());
        let id = rig.write();
        rig.prepare(id, &result);
        Box::new(DecodeToEvent { rig, reply: None })
    }
}

impl Case for DecodeToEvent {
    const REPEATS: bool = false;

    fn run(&mut self) {
        self.rig.deliver();
        self.reply = Some(self.rig.outcome());
    }
}

/// Measures encoding one request of 100 bytes into a buffer with enough capacity.
pub(crate) struct Encode {
    params: Payload,
    buf: Vec<u8>,
}

impl Encode {
    pub(crate) fn new() -> Box<Encode> {
        let mut encode = Box::new(Encode {
            params: params(),
            buf: Vec::with_capacity(1 << 10),
        });
        encode.run();
        encode
    }
}

impl Case for Encode {
    const REPEATS: bool = true;

    fn run(&mut self) {
        self.buf.clear();
        encode::request(&mut self.buf, &Id::from(7), "tools/call", |members| {
            members.splice(black_box(self.params.as_str()));
        });
        encode::line_end(&mut self.buf);
    }
}

/// Measures a call and its reply through a relay: from the bytes of the host to the bytes for the host.
pub(crate) struct RelayedCall {
    rig: RelayRig,
    call: String,
}

impl RelayedCall {
    pub(crate) fn new(era: Era) -> Box<RelayedCall> {
        let mut rig = RelayRig::ready(era);
        for _ in 0..WARM_UP {
            let call = rig.next_call();
            rig.round_trip(&call, ECHO);
        }
        let call = rig.next_call();
        Box::new(RelayedCall { rig, call })
    }
}

impl Case for RelayedCall {
    const REPEATS: bool = false;

    fn run(&mut self) {
        assert!(self.rig.round_trip(black_box(&self.call), ECHO) > ECHO.len());
    }
}

/// Measures what a driver does with an idle link, with this many calls in flight.
pub(crate) struct IdlePoll {
    rig: Rig,
}

impl IdlePoll {
    pub(crate) fn new(calls: usize) -> Box<IdlePoll> {
        let mut rig = with_calls_in_flight(Era::Legacy, calls);
        rig.drain();
        let mut idle = Box::new(IdlePoll { rig });
        idle.run();
        idle
    }
}

impl Case for IdlePoll {
    const REPEATS: bool = true;

    fn run(&mut self) {
        assert!(self.rig.idle_poll());
    }
}

/// Measures a call and its reply, from one application through both machines to the other and back.
pub(crate) struct RoundTrip {
    pair: Pair,
    payloads: Option<(Payload, Payload)>,
    reply: Option<Payload>,
}

impl RoundTrip {
    /// With messages of 100 bytes.
    pub(crate) fn short(era: Era) -> Box<RoundTrip> {
        RoundTrip::of(era, params(), samples::echo())
    }

    /// With texts of this many bytes.
    pub(crate) fn long(era: Era, bytes: usize) -> Box<RoundTrip> {
        let (params, result) = (samples::long_params(bytes), samples::long_echo(bytes));
        RoundTrip::of(era, params, result)
    }

    fn of(era: Era, params: Payload, result: Payload) -> Box<RoundTrip> {
        let mut pair = Pair::ready(era);
        for _ in 0..WARM_UP {
            pair.round_trip(self::params(), samples::echo());
        }
        pair.round_trip(params.clone(), result.clone());
        Box::new(RoundTrip {
            pair,
            payloads: Some((params, result)),
            reply: None,
        })
    }
}

impl Case for RoundTrip {
    const REPEATS: bool = false;

    fn run(&mut self) {
        let (params, result) = black_box(self.payloads.take()).expect("the case runs once");
        self.reply = Some(self.pair.round_trip(params, result));
    }
}

/// The baseline: the minimum work of a typed parser. Finds the end of the line and parses a borrowing envelope with `serde_json`, which skips the
/// result.
pub(crate) struct SerdeJson {
    line: Vec<u8>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    jsonrpc: &'a str,
    id: u64,
    #[serde(borrow)]
    result: &'a RawValue,
}

impl SerdeJson {
    pub(crate) fn new(result: String) -> Box<SerdeJson> {
        let line = line(&result);
        let mut case = Box::new(SerdeJson { line });
        case.run();
        case
    }
}

impl Case for SerdeJson {
    const REPEATS: bool = true;

    fn run(&mut self) {
        let bytes = black_box(&self.line[..]);
        let end = memchr::memchr(b'\n', bytes).expect("the line ends");
        let read: Envelope<'_> = serde_json::from_slice(&bytes[..end]).expect("this is a reply");
        black_box((read.jsonrpc, read.id, read.result));
    }
}

/// Returns the line with this result that [`DecodeToEvent`] parses.
fn line(result: &str) -> Vec<u8> {
    let mut rig = Rig::ready(Era::Legacy);
    rig.prepare(WARM_UP as u64 + 2, result);
    rig.line
}

fn warmed_up(era: Era, config: Config) -> Rig {
    let mut rig = Rig::with(era, config);
    for _ in 0..WARM_UP {
        rig.round_trip(params(), ECHO);
    }
    rig.idle_poll();
    rig
}

fn with_calls_in_flight(era: Era, calls: usize) -> Rig {
    let mut config = Config::child("measured", "1.0");
    config.dialect = dialect(era);
    config.limits.calls_in_flight = MAX_CALLS;
    let mut rig = warmed_up(era, config);
    rig.put_in_flight(calls);
    rig
}
