//! A hostile server sends a gigabyte of noise. The limits bound the memory of the link, and the link still works
//! afterwards.

#[path = "../benches/rig/mod.rs"]
mod rig;

use alloc_count::{Counting, count};
use everlink::client::State;
use everlink::protocol::{ClientCapabilities, Era, LogLevel};
use everlink::{Config, Input, Limits, Output, StreamId, Watch};
use rig::{ERAS, Rig, params};

#[global_allocator]
static HEAP: Counting = Counting;

/// The number of bytes in one read.
const CHUNK: usize = 64 << 10;

const GIGABYTE: usize = 1 << 30;

/// The behaviour of the driver while noise arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    /// The driver polls all outputs after each input.
    Prompt,
    /// The application takes events only when the link wants no more input.
    Slow,
    /// The server reads nothing, so nothing can be sent.
    Stuck,
}

#[test]
fn link_survives_a_gigabyte_of_noise() {
    for era in ERAS {
        check_flood(era, Driver::Prompt, GIGABYTE / 2);
    }
}

#[test]
fn link_that_cannot_write_survives_noise() {
    for era in ERAS {
        check_flood(era, Driver::Stuck, GIGABYTE / 16);
    }
}

#[test]
fn link_whose_events_are_polled_late_survives_noise() {
    for era in ERAS {
        check_flood(era, Driver::Slow, GIGABYTE / 16);
    }
}

/// Sends this many bytes, in equal shares of every kind of noise.
fn check_flood(era: Era, driver: Driver, bytes: usize) {
    let config = config();
    let bound = bound(&config.limits);
    let mut rig = Rig::with(era, config);
    let kinds = kinds();
    let share = bytes.div_ceil(kinds.len());
    let mut over_the_bound = Vec::new();
    for noise in &kinds {
        let ((), counts) = count(|| flood(&mut rig, noise, share, driver));
        if counts.peak_live > bound {
            over_the_bound.push((noise.what, counts.peak_live));
        }
        // The effects of the noise must neither accumulate nor disturb a call.
        rig.drain();
        assert_eq!(rig.link.state(), State::Ready, "{era:?}, {}", noise.what);
        let reply = rig.round_trip(params(), r#"{"content":[]}"#);
        assert_eq!(reply.as_str(), r#"{"content":[]}"#);
    }
    assert!(
        over_the_bound.is_empty(),
        "{era:?}, {driver:?}: more than {bound} bytes for {over_the_bound:?}"
    );
}

/// A configuration with small limits, so that an excess shows.
fn config() -> Config {
    let mut config = Config::child("flooded", "1.0");
    config.capabilities = ClientCapabilities::default().with_sampling();
    config.watch = Watch::lists().and_logs(LogLevel::Debug);
    config.limits.message_bytes = 256 << 10;
    config.limits.undelivered_bytes = 256 << 10;
    config.limits.queued_bytes = 64 << 10;
    config
}

/// The most bytes that a link may hold because of what a server sends.
fn bound(limits: &Limits) -> usize {
    // A line, and a copy of its payload or the nesting state of `serde_json`.
    let line = 2 * limits.message_bytes;
    // Events, which may exceed the limit by the content of one chunk.
    let events = limits.undelivered_bytes + 2 * CHUNK;
    // Replies of the link itself, and open asks.
    let replies = limits.queued_bytes + 1_024 * limits.asks;
    line + events + replies + 2 * limits.stderr_tail
}

/// Sends at least this many bytes of one kind, and ends the last line.
fn flood(rig: &mut Rig, noise: &Noise, bytes: usize, driver: Driver) {
    let mut unsent = 0;
    for _ in 0..bytes.div_ceil(noise.chunk.len()) {
        rig.feed(noise.input(&noise.chunk));
        let polls = match driver {
            Driver::Prompt | Driver::Stuck => true,
            Driver::Slow => !rig.link.wants_input(StreamId::DUPLEX),
        };
        if polls {
            unsent += poll(rig, driver);
            assert!(rig.link.wants_input(StreamId::DUPLEX), "{}", noise.what);
        }
    }
    rig.feed(noise.input(b"\n"));
    rig.feed(Input::sent(unsent));
}

/// Carries out all outputs. Returns the number of bytes that were not sent.
fn poll(rig: &mut Rig, driver: Driver) -> usize {
    let mut unsent = 0;
    rig.written.clear();
    while let Some(output) = rig.link.poll_output(&mut rig.written) {
        if let Output::Write { len, .. } = output {
            rig.written.clear();
            if driver == Driver::Stuck {
                unsent += len;
            } else {
                rig.feed(Input::sent(len));
            }
        }
    }
    unsent
}

/// One kind of noise: a chunk that is sent again and again.
struct Noise {
    what: &'static str,
    is_stderr: bool,
    chunk: Vec<u8>,
}

impl Noise {
    fn input<'a>(&self, bytes: &'a [u8]) -> Input<'a> {
        if self.is_stderr {
            Input::stderr(bytes)
        } else {
            Input::bytes(bytes)
        }
    }

    /// Lines of this pattern, with consecutive numbers in place of `%`.
    fn lines(what: &'static str, pattern: &str) -> Noise {
        let mut chunk = Vec::with_capacity(CHUNK);
        for number in 0_usize.. {
            let line = pattern.replace('%', &number.to_string());
            if chunk.len() + line.len() + 1 > CHUNK {
                break;
            }
            chunk.extend_from_slice(line.as_bytes());
            chunk.push(b'\n');
        }
        Noise::bytes(what, chunk)
    }

    fn bytes(what: &'static str, chunk: Vec<u8>) -> Noise {
        assert!((CHUNK / 2..=CHUNK).contains(&chunk.len()), "{what}");
        let is_stderr = false;
        Noise {
            what,
            is_stderr,
            chunk,
        }
    }
}

fn kinds() -> Vec<Noise> {
    let long = "x".repeat(20_000);
    let half = r#"{"jsonrpc":"2.0","id":1,"result":{"content":"#;
    let ask = request(r#""ask %""#, "sampling/createMessage");
    let cancelled = notification("notifications/cancelled", r#"{"requestId":"ask %"}"#);
    let progress = r#"{"progressToken":9%,"progress":%}"#;
    let log = r#"{"level":"info","logger":"flood","data":{"line":%}}"#;
    let updated = format!(r#"{{"uri":"file:///%/{long}"}}"#);
    let without_id = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"%"}}"#;
    let nested = ["[".repeat(500), "]".repeat(500)].concat();
    vec![
        Noise::lines("text", "[info] % requests served, all is well"),
        Noise::bytes("a line without end", vec![b'x'; CHUNK]),
        Noise::bytes("a message without end", without_end(half)),
        Noise::bytes("nesting without end", vec![b'['; CHUNK]),
        Noise::bytes("not UTF-8", b"h\xE9llo w\xF6rld\n".repeat(CHUNK / 12)),
        Noise::bytes("binary", binary()),
        Noise::lines("blank lines", "  \t\r"),
        Noise::lines("JSON that is no message", r#"{"hello":["world",%]}"#),
        Noise::lines("half a message", half),
        Noise::lines("batches", &format!("[{}]", notification("n", "{}"))),
        Noise::lines("replies to nobody", &reply("9%", "{}")),
        Noise::lines("nested replies", &reply("9%", &nested)),
        Noise::lines("errors to nobody", without_id),
        Noise::lines("late replies", &reply("1", r#"{"n":%}"#)),
        Noise::lines("pings", &request("%", "ping")),
        Noise::lines(
            "pings by name",
            &request(&format!("\"%{}\"", &long[..999]), "ping"),
        ),
        Noise::lines("unknown requests", &request("%", &long)),
        Noise::lines("asks", &ask),
        Noise::lines("asks taken back", &format!("{ask}\n{cancelled}")),
        Noise::lines("notifications", &notification("n", r#"{"n":%}"#)),
        Noise::lines("long notifications", &notification(&long, "{}")),
        Noise::lines("short notifications", r#"{"jsonrpc":"2.0","method":"n"}"#),
        Noise::lines(
            "progress",
            &notification("notifications/progress", progress),
        ),
        Noise::lines("logs", &notification("notifications/message", log)),
        Noise::lines(
            "changed lists",
            &notification("notifications/tools/list_changed", "{}"),
        ),
        Noise::lines(
            "changed resources",
            &notification("notifications/resources/updated", &updated),
        ),
        Noise {
            is_stderr: true,
            ..Noise::lines("standard error", "[debug] % and counting")
        },
    ]
}

fn request(id: &str, method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#)
}

fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

fn reply(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"_":{result}}}}}"#)
}

/// A chunk that begins with `start` and ends in the middle of a string.
fn without_end(start: &str) -> Vec<u8> {
    let mut chunk = [start, "\""].concat().into_bytes();
    chunk.resize(CHUNK, b'x');
    chunk
}

/// Pseudo-random bytes, the same in every run.
fn binary() -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..CHUNK).map(|_| next()).collect()
}
