//! How many instructions it takes: `cargo bench --bench instructions`. The same on every run, so small changes show.
//!
//! Needs valgrind, and `cargo install gungraun-runner` in the version of `gungraun` in Cargo.lock.
#![allow(missing_docs, unreachable_pub, reason = "so the macros write it")]

mod rig;
mod samples;

use core::hint::black_box;

use everlink::Payload;
use everlink::protocol::Era;
use everlink::wire::{Id, Inbound, Line, LineReader, encode, parse};
use gungraun::{library_benchmark, library_benchmark_group, main};
use rig::both::Both;
use rig::{ECHO, Rig, echo, params};

main!(library_benchmark_groups = [wire, machine]);

library_benchmark_group!(name = wire, benchmarks = [decode, encode_request]);
library_benchmark_group!(
    name = machine,
    benchmarks = [round_trip, pair_round_trip, idle_poll]
);

// One line to a message that borrows from it.
#[library_benchmark(setup = warm_line)]
#[bench::result_200(samples::result_200())]
#[bench::tools_60k(samples::tools_60k())]
#[bench::text_1m(samples::text_1m())]
fn decode(line: Vec<u8>) -> Vec<u8> {
    read(&line);
    line
}

// One request of 100 bytes, into a buffer that has room.
#[library_benchmark(setup = warm_request)]
#[bench::bytes_100(params())]
fn encode_request((params, mut buf): (Payload, Vec<u8>)) -> (Payload, Vec<u8>) {
    write(&mut buf, &params);
    (params, buf)
}

// A call of 100 bytes and its reply, through the machine and the other end of its stream.
#[library_benchmark]
#[bench::legacy(in_use(Era::Legacy), params())]
#[bench::modern(in_use(Era::Modern), params())]
fn round_trip(mut rig: Rig, params: Payload) -> (Rig, Payload) {
    let reply = rig.round_trip(black_box(params), ECHO);
    (rig, reply)
}

// A call of 100 bytes and its reply of 100 bytes, from one application through both machines to the other and back.
#[library_benchmark]
#[bench::legacy(both_in_use(Era::Legacy), params(), echo())]
#[bench::modern(both_in_use(Era::Modern), params(), echo())]
fn pair_round_trip(mut both: Both, params: Payload, result: Payload) -> (Both, Payload) {
    let reply = both.round_trip(black_box(params), result);
    (both, reply)
}

// All that a driver asks of a link in which nothing happens.
#[library_benchmark]
#[bench::in_flight_0(busy(0))]
#[bench::in_flight_500(busy(500))]
fn idle_poll(mut rig: Rig) -> Rig {
    black_box(rig.idle_poll());
    rig
}

fn read(line: &[u8]) {
    let mut reader = LineReader::new(16 << 20);
    let Some(Line::Text(text)) = reader.next(&mut black_box(line)) else {
        panic!("a line of text is read");
    };
    let Ok(Inbound::One(message)) = parse(text) else {
        panic!("a message is read");
    };
    black_box(message);
}

fn write(buf: &mut Vec<u8>, params: &Payload) {
    encode::request(buf, &Id::from(7), "tools/call", |members| {
        members.splice(black_box(params.as_str()));
    });
    encode::line_end(buf);
}

// What only the first time costs is paid before anything is counted: finding the functions of the C library, asking the
// processor what it can do, and the growth of tables to the size that they keep.

fn warm_line(line: Vec<u8>) -> Vec<u8> {
    read(&line);
    line
}

fn warm_request(params: Payload) -> (Payload, Vec<u8>) {
    let mut buf = Vec::with_capacity(1 << 10);
    write(&mut buf, &params);
    buf.clear();
    (params, buf)
}

fn in_use(era: Era) -> Rig {
    let mut rig = Rig::ready(era);
    for _ in 0..100 {
        rig.round_trip(params(), ECHO);
    }
    rig.idle_poll();
    rig
}

fn both_in_use(era: Era) -> Both {
    let mut both = Both::ready(era);
    for _ in 0..100 {
        both.round_trip(params(), echo());
    }
    both
}

fn busy(in_flight: usize) -> Rig {
    let mut rig = in_use(Era::Legacy);
    rig.fly(in_flight);
    rig
}
