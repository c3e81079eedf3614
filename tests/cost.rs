//! Pins the heap allocations of a link and the sizes of its values, so that no change makes them larger unnoticed.
//!
//! The tests count allocations and measure no time, so the result is the same on every machine.

#[path = "../benches/rig/mod.rs"]
mod rig;

use alloc_count::{Counting, Counts, count, live};
use everlink::client::Event;
use everlink::protocol::Era;
use everlink::{Client, Input, Instant, Output, Payload};
use rig::pair::Pair;
use rig::{ERAS, Rig, params};

#[global_allocator]
static HEAP: Counting = Counting;

/// Rounds before counting starts. By then queues and tables have their final capacity.
const WARM_UP: usize = 100;

const FLAT: &str = r#"{"isError":false}"#;
const NESTED: &str = r#"{"content":[{"type":"text","text":"3","annotations":{"audience":["user"]}}],"structuredContent":{"sum":{"value":3}}}"#;

/// The number of allocations and reallocations.
const fn heap_requests(counts: Counts) -> usize {
    counts.allocs + counts.reallocs
}

#[test]
fn an_idle_poll_allocates_nothing() {
    for era in ERAS {
        for in_flight in [0, 500] {
            let mut rig = Rig::ready(era);
            rig.put_in_flight(in_flight);
            let (idle, counts) = count(|| rig.idle_poll());
            assert!(idle, "nothing is due: {era:?}, {in_flight} in flight");
            assert_eq!(counts, Counts::default(), "{era:?}, {in_flight} in flight");
        }
    }
}

#[test]
fn writing_a_frame_does_not_allocate() {
    for era in ERAS {
        let mut rig = Rig::ready(era);
        for round in 0..2 * WARM_UP {
            rig.call(params());
            let (id, counts) = count(|| rig.write());
            if round >= WARM_UP {
                assert_eq!(heap_requests(counts), 0, "{era:?}, round {round}");
            }
            rig.reply(id, FLAT);
            rig.outcome();
        }
    }
}

#[test]
fn writing_a_frame_does_not_allocate_with_64_calls_in_flight() {
    for era in ERAS {
        let mut rig = Rig::ready(era);
        for round in 0..2 * WARM_UP {
            for _ in 0..64 {
                rig.call(params());
            }
            let (ids, counts) = count(|| [(); 64].map(|()| rig.write()));
            if round >= WARM_UP {
                assert_eq!(heap_requests(counts), 0, "{era:?}, round {round}");
            }
            for id in ids {
                rig.reply(id, FLAT);
                rig.outcome();
            }
        }
    }
}

/// One allocation for the payload, and no other.
#[test]
fn a_reply_allocates_once() {
    for era in ERAS {
        for (result, limit) in [(FLAT, 1), (NESTED, 1)] {
            for in_flight in [1, 64] {
                let allocations = max_reply_allocations(&mut Rig::ready(era), result, in_flight);
                assert!(
                    allocations <= limit,
                    "{allocations} for {result}, {era:?}, {in_flight} in flight"
                );
            }
        }
    }
}

/// The largest number of allocations for any reply, with this many calls in flight.
fn max_reply_allocations(rig: &mut Rig, result: &str, in_flight: usize) -> usize {
    let mut max = 0;
    for round in 0..2 * WARM_UP {
        for _ in 0..in_flight {
            rig.call(params());
        }
        let ids: Vec<u64> = (0..in_flight).map(|_| rig.write()).collect();
        for id in ids {
            rig.prepare(id, result);
            let (reply, counts): (Payload, Counts) = count(|| {
                rig.deliver();
                rig.outcome()
            });
            assert_eq!(reply.as_str(), result);
            if round >= WARM_UP {
                max = max.max(heap_requests(counts));
            }
        }
    }
    max
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
        assert_eq!(heap_requests(alone), 0, "{era:?}, one at a time");

        let calls = [(); 500].map(|()| params());
        let ((), together) = count(|| calls.into_iter().for_each(|call| rig.call(call)));
        assert!(heap_requests(together) < 500, "{era:?}: {together:?}");
    }
}

/// A platform may hold thousands of links, most of them idle.
#[test]
fn idle_link_holds_at_most_4_kib_of_heap() {
    for era in ERAS {
        let before = live();
        let Rig { link, .. } = Rig::ready(era);
        let heap = live() - before;
        assert!(heap <= 4 << 10, "{heap} bytes, {era:?}, {link:?}");
    }
}

#[test]
fn finished_calls_leave_no_memory_allocated() {
    for era in ERAS {
        let mut rig = Rig::ready(era);
        let round = |rig: &mut Rig| {
            for _ in 0..64 {
                rig.call(params());
            }
            let ids = [(); 64].map(|()| rig.write());
            for id in ids {
                rig.reply(id, NESTED);
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

/// A legacy server can stop and restart the clocks of all calls with each question, as often as it likes.
#[test]
fn clocks_of_all_calls_are_stopped_and_restarted_at_no_cost_for_each() {
    let mut rig = Rig::ready(Era::Legacy);
    let hold = |rig: &mut Rig| {
        let ((), counts) = count(|| {
            for is_held in [true, false] {
                rig.link.hold_back(Instant::ZERO, is_held);
            }
        });
        rig.drain();
        counts
    };
    let alone = hold(&mut rig);
    rig.put_in_flight(500);
    assert_eq!(hold(&mut rig), alone);
}

/// Events and outputs are moved through a queue and out of `poll_output`, so rare and large parts are boxed. The size is
/// little more than one cache line. Inputs are passed by value: an id, and owned or borrowed bytes. A link may be a
/// local variable.
#[test]
#[cfg(target_pointer_width = "64")]
fn public_types_stay_below_their_size_limits() {
    for (what, size, limit) in [
        ("an event", size_of::<Event>(), 72),
        ("an output", size_of::<Output<Event>>(), 72),
        ("an input", size_of::<Input<'_>>(), 40),
        ("a payload", size_of::<Payload>(), 16),
        ("a link", size_of::<Client>(), 2_048),
    ] {
        assert!(size <= limit, "{what} has {size} bytes, more than {limit}");
    }
}

/// Calls that follow each other while others stay in flight.
const TRIPS: usize = 256;

/// The capacity of a B-tree node. After this many numbers of calls, every fill level of the last node was tried.
const NODE_CAPACITY: usize = 11;

/// The server allocates the parameters without the link's own members; the client allocates the reply.
#[test]
fn a_round_trip_through_both_ends_allocates_twice() {
    for era in ERAS {
        for result in [FLAT, NESTED] {
            let mut pair = Pair::ready(era);
            trips(&mut pair, result);
            let allocations = heap_requests(trips(&mut pair, result));
            assert!(
                allocations <= 2 * TRIPS,
                "{allocations} for {TRIPS} of {result}, {era:?}"
            );
        }
    }
}

/// A trip among many calls allocates as often and as many bytes as a trip beside one call. One exception: a call has
/// entries in five trees (the call, its deadline by id and by time; the request and its id). If the last node of a tree is
/// full, each trip splits it and merges it again. This allocates one node, or two if the tree grows higher. The test
/// therefore tries as many numbers of calls as a node has entries. The cheapest number shows the cost of the trip itself; the
/// most expensive one shows that only nodes are added.
#[test]
fn round_trip_among_many_calls_allocates_no_more_than_alone() {
    for era in ERAS {
        let mut pair = Pair::ready(era);
        pair.put_in_flight(1);
        trips(&mut pair, FLAT);
        let alone = trips(&mut pair, FLAT);
        for calls in [64, 1_000] {
            let mut pair = Pair::ready(era);
            pair.put_in_flight(calls);
            trips(&mut pair, FLAT);
            let mut all = [(); NODE_CAPACITY].map(|()| {
                pair.put_in_flight(1);
                trips(&mut pair, FLAT)
            });
            all.sort_by_key(|counts| counts.bytes);
            let [cheapest, .., most_expensive] = all;
            let cost = |counts: Counts| (heap_requests(counts), counts.bytes);
            assert_eq!(cost(cheapest), cost(alone), "{era:?}, {calls} in flight");
            let nodes = 5 * 2 * TRIPS;
            assert!(
                heap_requests(most_expensive) <= heap_requests(alone) + nodes,
                "{most_expensive:?} instead of {alone:?}, {era:?}, {calls} in flight"
            );
        }
    }
}

/// The allocations of `TRIPS` consecutive calls, without the payloads of the two applications.
fn trips(pair: &mut Pair, result: &str) -> Counts {
    let result: Payload = result.parse().expect("this is JSON");
    let payloads = [(); TRIPS].map(|()| (params(), result.clone()));
    let ((), counts) = count(|| {
        for (params, result) in payloads {
            pair.round_trip(params, result);
        }
    });
    counts
}
