//! Pins the heap allocations of a link and the sizes of its values, so that no change makes them larger unnoticed.
//!
//! The tests count allocations and measure no time, so the result is the same on every machine.

#[path = "../benches/rig/mod.rs"]
mod rig;

use alloc_count::{Counting, Counts, count, live};
use everlink::client::Event;
use everlink::{Client, Input, Output, Payload};
use rig::both::Both;
use rig::{ERAS, Rig, params};

#[global_allocator]
static HEAP: Counting = Counting;

/// Rounds before counting starts. By then queues and tables have their final capacity.
const WARM_UP: usize = 100;

const FLAT: &str = r#"{"isError":false}"#;
const NESTED: &str = r#"{"content":[{"type":"text","text":"3","annotations":{"audience":["user"]}}],"structuredContent":{"sum":{"value":3}}}"#;

/// The number of allocations and reallocations.
const fn requests(counts: Counts) -> usize {
    counts.allocs + counts.reallocs
}

#[test]
fn an_idle_poll_allocates_nothing() {
    for era in ERAS {
        for in_flight in [0, 500] {
            let mut rig = Rig::ready(era);
            rig.fly(in_flight);
            let (idle, counts) = count(|| rig.idle_poll());
            assert!(idle, "{era:?}, {in_flight} in flight");
            assert_eq!(counts, Counts::default(), "{era:?}, {in_flight} in flight");
        }
    }
}

#[test]
fn a_frame_allocates_nothing_beside_the_buffer_of_the_caller() {
    for era in ERAS {
        let mut rig = Rig::ready(era);
        for round in 0..2 * WARM_UP {
            rig.call(params());
            let (wire, counts) = count(|| rig.write());
            if round >= WARM_UP {
                assert_eq!(requests(counts), 0, "{era:?}, round {round}");
            }
            rig.reply(wire, FLAT);
            rig.outcome();
        }
    }
}

#[test]
fn a_frame_allocates_nothing_with_many_calls_in_flight() {
    for era in ERAS {
        let mut rig = Rig::ready(era);
        for round in 0..2 * WARM_UP {
            for _ in 0..64 {
                rig.call(params());
            }
            let (wires, counts) = count(|| [(); 64].map(|()| rig.write()));
            if round >= WARM_UP {
                assert_eq!(requests(counts), 0, "{era:?}, round {round}");
            }
            for wire in wires {
                rig.reply(wire, FLAT);
                rig.outcome();
            }
        }
    }
}

/// One allocation for the payload, and no other.
#[test]
fn a_reply_allocates_once() {
    for era in ERAS {
        for (result, most) in [(FLAT, 1), (NESTED, 1)] {
            for in_flight in [1, 64] {
                let dearest = dearest_reply(&mut Rig::ready(era), result, in_flight);
                assert!(
                    dearest <= most,
                    "{dearest} for {result}, {era:?}, {in_flight} in flight"
                );
            }
        }
    }
}

/// The largest number of allocations for any reply, with this many calls in flight.
fn dearest_reply(rig: &mut Rig, result: &str, in_flight: usize) -> usize {
    let mut dearest = 0;
    for round in 0..2 * WARM_UP {
        for _ in 0..in_flight {
            rig.call(params());
        }
        let wires: Vec<u64> = (0..in_flight).map(|_| rig.write()).collect();
        for wire in wires {
            rig.prepare(wire, result);
            let (reply, counts): (Payload, Counts) = count(|| {
                rig.deliver();
                rig.outcome()
            });
            assert_eq!(reply.as_str(), result);
            if round >= WARM_UP {
                dearest = dearest.max(requests(counts));
            }
        }
    }
    dearest
}

/// Beside its parameters, a call needs room in tables. The room exists already, or is allocated for several calls at
/// once.
#[test]
fn accepting_a_call_allocates_less_than_once() {
    for era in ERAS {
        let mut rig = Rig::ready(era);
        rig.round_trip(params(), FLAT);
        let call = params();
        let ((), alone) = count(|| rig.call(call));
        assert_eq!(requests(alone), 0, "{era:?}, one at a time");

        let calls = [(); 500].map(|()| params());
        let ((), together) = count(|| calls.into_iter().for_each(|call| rig.call(call)));
        assert!(requests(together) < 500, "{era:?}: {together:?}");
    }
}

/// A platform may hold thousands of links, most of them idle.
#[test]
fn an_idle_link_is_small() {
    for era in ERAS {
        let before = live();
        let Rig { link, .. } = Rig::ready(era);
        let heap = live() - before;
        assert!(heap <= 4 << 10, "{heap} bytes, {era:?}, {link:?}");
    }
}

#[test]
fn nothing_is_kept_of_a_call_that_is_over() {
    for era in ERAS {
        let mut rig = Rig::ready(era);
        let round = |rig: &mut Rig| {
            for _ in 0..64 {
                rig.call(params());
            }
            let wires = [(); 64].map(|()| rig.write());
            for wire in wires {
                rig.reply(wire, NESTED);
                rig.outcome();
            }
            live()
        };
        for _ in 0..WARM_UP {
            round(&mut rig);
        }
        let before = round(&mut rig);
        for _ in 0..WARM_UP {
            assert_eq!(round(&mut rig), before, "{era:?}");
        }
    }
}

/// Events and outputs are moved through a queue and out of `poll_output`, so rare and large parts are boxed. The size is
/// little more than one cache line. Inputs are passed by value: an id, and owned or borrowed bytes. A link may be a
/// local variable.
#[test]
#[cfg(target_pointer_width = "64")]
fn values_are_small() {
    for (what, size, most) in [
        ("an event", size_of::<Event>(), 72),
        ("an output", size_of::<Output<Event>>(), 72),
        ("an input", size_of::<Input<'_>>(), 40),
        ("a payload", size_of::<Payload>(), 16),
        ("a link", size_of::<Client>(), 2_048),
    ] {
        assert!(size <= most, "{what} has {size} bytes, more than {most}");
    }
}

/// Calls that follow each other while others stay in flight.
const TRIPS: usize = 256;

/// The capacity of a B-tree node. After this many crowd sizes, every fill level of the last node was tried.
const NODE: usize = 11;

/// The server allocates the parameters without the link's own members; the client allocates the reply.
#[test]
fn a_round_trip_through_both_ends_allocates_twice() {
    for era in ERAS {
        for result in [FLAT, NESTED] {
            let mut both = Both::ready(era);
            trips(&mut both, result);
            let dear = requests(trips(&mut both, result));
            assert!(dear <= 2 * TRIPS, "{dear} for {TRIPS} of {result}, {era:?}");
        }
    }
}

/// A trip among many calls allocates as often and as many bytes as a trip beside one call. One exception: a call has
/// entries in five trees (the call, its deadline by id and by time; the request and its id). If the last node of a tree is
/// full, each trip splits it and merges it again. This allocates one node, or two if the tree grows higher. The test
/// therefore tries as many crowd sizes as a node has entries. The cheapest size shows the cost of the trip itself; the
/// most expensive one shows that only nodes are added.
#[test]
fn a_round_trip_in_a_crowd_allocates_no_more_than_alone() {
    for era in ERAS {
        let mut both = Both::ready(era);
        both.fly(1);
        trips(&mut both, FLAT);
        let alone = trips(&mut both, FLAT);
        for crowd in [64, 1_000] {
            let mut both = Both::ready(era);
            both.fly(crowd);
            trips(&mut both, FLAT);
            let mut all = [(); NODE].map(|()| {
                both.fly(1);
                trips(&mut both, FLAT)
            });
            all.sort_by_key(|counts| counts.bytes);
            let [cheapest, .., dearest] = all;
            let taken = |counts: Counts| (requests(counts), counts.bytes);
            assert_eq!(taken(cheapest), taken(alone), "{era:?}, {crowd} in flight");
            let nodes = 5 * 2 * TRIPS;
            assert!(
                requests(dearest) <= requests(alone) + nodes,
                "{dearest:?} instead of {alone:?}, {era:?}, {crowd} in flight"
            );
        }
    }
}

/// The allocations of `TRIPS` consecutive calls, without the payloads of the two applications.
fn trips(both: &mut Both, result: &str) -> Counts {
    let result: Payload = result.parse().expect("this is JSON");
    let brought = [(); TRIPS].map(|()| (params(), result.clone()));
    let ((), counts) = count(|| {
        for (params, result) in brought {
            both.round_trip(params, result);
        }
    });
    counts
}
