//! Steps whose cost must not grow with the number of other items, at the default limits. Each test names a cost that was once quadratic or
//! worse.
//!
//! Costs that show in heap allocations are counted in bytes, so the result is the same on every machine. `cargo xtask growth` counts the
//! instructions of all steps.

#[path = "../benches/growth/client.rs"]
mod client;
#[path = "../benches/growth/meter.rs"]
mod meter;
#[path = "../benches/growth/pipe.rs"]
mod pipe;
#[path = "../benches/growth/relay.rs"]
mod relay;
#[path = "../benches/growth/site.rs"]
mod site;

use core::time::Duration;
use std::time::Instant;

use alloc_count::{Counting, count};
use everlink::StreamId;
use everlink::protocol::Era;
use everlink::server::Limits;

use pipe::Pipe;
use relay::Chain;
use site::{Front, Site};

#[global_allocator]
static HEAP: Counting = Counting;

/// The number of open watches: nearly the default limit of watched URIs.
const WATCHES: usize = 1_000;

/// The number of allocated bytes.
fn bytes(what: impl FnOnce()) -> usize {
    count(what).1.bytes
}

/// Opens `WATCHES` watches of one URI each, then closes all of them. Returns the bytes allocated by the first and the last hundred openings, and
/// by the first and the last hundred closings.
fn come_and_go<F: Front>(site: &mut Site<F>) -> [usize; 4] {
    let mut streams: Vec<StreamId> = Vec::with_capacity(WATCHES);
    let mut come = |site: &mut Site<F>, numbers: core::ops::Range<usize>| {
        bytes(|| streams.extend(numbers.map(|number| site.listen(number))))
    };
    let first = come(site, 0..100);
    come(site, 100..WATCHES - 100);
    let last = come(site, WATCHES - 100..WATCHES);
    let mut leave = |site: &mut Site<F>, few: usize| {
        bytes(|| streams.drain(..few).for_each(|stream| site.leave(stream)))
    };
    let first_gone = leave(site, 100);
    leave(site, WATCHES - 200);
    [first, last, first_gone, leave(site, 100)]
}

/// 1,000 `subscriptions/listen` with one URI each took 25 s, because each copied the URIs of all, once for each of them.
#[test]
fn a_listen_costs_no_more_beside_a_thousand_others() {
    let mut site = site::site(Limits::default());
    site.listen(0);
    let [first, last, first_gone, last_gone] = come_and_go(&mut site);
    assert!(last < first + first / 4, "{first} bytes, then {last}");
    assert!(
        first_gone < last_gone + last_gone / 4,
        "{first_gone} bytes, then {last_gone}"
    );
}

/// The same through a relay. The relay renews its watch at a modern server each time the number of URIs doubles.
#[test]
fn a_listen_through_a_relay_costs_no_more_beside_a_thousand_others() {
    for (era, most) in [(Era::Legacy, 2), (Era::Modern, 4)] {
        let mut site = Chain::site(era, Limits::default());
        site.listen(0);
        let [first, last, first_gone, last_gone] = come_and_go(&mut site);
        assert!(last < most * first, "{era:?}: {first} bytes, then {last}");
        assert!(
            first_gone < most * last_gone,
            "{era:?}: {first_gone} bytes, then {last_gone}"
        );
    }
}

/// 50,000 cancels of unknown ids took 44 s beside as many unread replies, because each cancel scanned every reply
/// twice.
#[test]
fn cancels_of_unknown_ids_do_not_look_at_the_unread_queue() {
    let mut pipe = Pipe::new(Limits::default());
    pipe.introduce();
    pipe.is_read = false;
    // As many unread replies as a client can have before the server stops reading.
    let unread = (0..50_000).take_while(|number| {
        pipe.ping(*number);
        pipe.server.wants_input(StreamId::DUPLEX)
    });
    assert!(unread.count() > 40_000);
    let start = Instant::now();
    for number in 0..50_000 {
        pipe.cancel(1_000_000 + number);
        // The whole loop takes a few tenths of a second.
        let took = start.elapsed();
        assert!(took < Duration::from_secs(15), "{number} took {took:?}");
    }
}

/// Each new session rebuilt the set of all watched resources.
#[test]
fn a_session_begins_and_ends_at_the_same_cost_beside_a_thousand_others() {
    let mut site = site::site(Limits::default());
    let mut sessions = Vec::with_capacity(WATCHES);
    let mut come = |site: &mut Site<_>, few: usize| {
        bytes(|| {
            for _ in 0..few {
                let id = site.begin();
                let session = site.stream(id);
                site.subscribe(&session.id, "subscribe", sessions.len());
                sessions.push(session);
            }
        })
    };
    come(&mut site, 1);
    let first = come(&mut site, 100);
    come(&mut site, WATCHES - 201);
    let last = come(&mut site, 100);
    assert!(last < first + first / 4, "{first} bytes, then {last}");
    let mut leave = |site: &mut Site<_>, few: usize| {
        bytes(|| sessions.drain(..few).for_each(|session| site.end(&session)))
    };
    let first = leave(&mut site, 100);
    leave(&mut site, WATCHES - 200);
    let last = leave(&mut site, 100);
    assert!(first < last + last / 4, "{first} bytes, then {last}");
}
