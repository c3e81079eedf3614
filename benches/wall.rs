//! How long it takes: `cargo bench --bench wall`. Clocks vary; see `instructions` for what can be compared.

mod rig;
mod samples;

use divan::{Bencher, black_box};
use everlink::protocol::Era;
use everlink::wire::{Id, Inbound, Line, LineReader, encode, parse};
use rig::both::Both;
use rig::{ECHO, Rig, echo, params};

fn main() {
    divan::main();
}

/// One line to a message that borrows from it.
#[divan::bench(args = ["result_200", "tools_60k", "text_1m"])]
fn decode(bencher: Bencher<'_, '_>, sample: &str) {
    let line = match sample {
        "result_200" => samples::result_200(),
        "tools_60k" => samples::tools_60k(),
        _ => samples::text_1m(),
    };
    let mut reader = LineReader::new(16 << 20);
    bencher
        .counter(divan::counter::BytesCount::of_slice(&line))
        .bench_local(|| {
            let read = reader.next(&mut black_box(&line[..]));
            let Some(Line::Text(text)) = read else {
                panic!("a line of text is read");
            };
            let Ok(Inbound::One(message)) = parse(text) else {
                panic!("a message is read");
            };
            black_box(message);
        });
}

/// One request of 100 bytes, into a buffer that has room.
#[divan::bench]
fn encode_request(bencher: Bencher<'_, '_>) {
    let params = params();
    let mut buf = Vec::with_capacity(1 << 10);
    bencher.bench_local(|| {
        buf.clear();
        encode::request(&mut buf, &Id::from(7), "tools/call", |members| {
            members.splice(black_box(params.as_str()));
        });
        encode::line_end(&mut buf);
        black_box(buf.len())
    });
}

/// A call of 100 bytes and its reply, through the machine and the other end of its stream.
#[divan::bench(args = [Era::Legacy, Era::Modern])]
fn round_trip(bencher: Bencher<'_, '_>, era: Era) {
    let mut rig = Rig::ready(era);
    bencher
        .with_inputs(params)
        .bench_local_values(|params| rig.round_trip(params, ECHO));
}

/// A call of 100 bytes and its reply of 100 bytes, from one application through both machines to the other and back.
#[divan::bench(args = [Era::Legacy, Era::Modern])]
fn pair_round_trip(bencher: Bencher<'_, '_>, era: Era) {
    let mut both = Both::ready(era);
    bencher
        .with_inputs(|| (params(), echo()))
        .bench_local_values(|(params, result)| both.round_trip(params, result));
}

/// All that a driver asks of a link in which nothing happens.
#[divan::bench(args = [0, 500])]
fn idle_poll(bencher: Bencher<'_, '_>, in_flight: usize) {
    let mut rig = Rig::ready(Era::Legacy);
    rig.fly(in_flight);
    bencher.bench_local(|| rig.idle_poll());
}
