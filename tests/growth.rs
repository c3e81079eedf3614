//! Steps whose cost must not grow with the number of other items, at the default limits. Each test names a cost that was once quadratic or
//! worse.
//!
//! Costs that show in heap allocations are counted in bytes, so the result is the same on every machine. `cargo xtask growth` counts the
//! instructions of all steps.

#[path = "../benches/growth/client.rs"]
mod client;
#[path = "../benches/growth/http.rs"]
mod http;
#[path = "../benches/growth/meter.rs"]
mod meter;
#[path = "../benches/growth/pipe.rs"]
mod pipe;
#[path = "../benches/growth/relay.rs"]
mod relay;

use core::time::Duration;
use std::time::Instant;

use alloc_count::{Counting, count};
use everlink::StreamId;
use everlink::protocol::Era;
use everlink::server::Limits;

use http::{HttpClients, HttpEndpoint};
use pipe::Pipe;
use relay::Chain;

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
fn open_and_close_watches<F: HttpEndpoint>(clients: &mut HttpClients<F>) -> [usize; 4] {
    let mut streams: Vec<StreamId> = Vec::with_capacity(WATCHES);
    let mut open = |clients: &mut HttpClients<F>, numbers: core::ops::Range<usize>| {
        bytes(|| streams.extend(numbers.map(|number| clients.listen(number))))
    };
    let first = open(clients, 0..100);
    open(clients, 100..WATCHES - 100);
    let last = open(clients, WATCHES - 100..WATCHES);
    let mut close = |clients: &mut HttpClients<F>, few: usize| {
        bytes(|| {
            streams
                .drain(..few)
                .for_each(|stream| clients.disconnect(stream))
        })
    };
    let first_closed = close(clients, 100);
    close(clients, WATCHES - 200);
    [first, last, first_closed, close(clients, 100)]
}

/// 1,000 `subscriptions/listen` with one URI each took 25 s, because each copied the URIs of all, once for each of them.
#[test]
fn listen_allocates_no_more_beside_a_thousand_others() {
    let mut clients = http::clients_of_server(Limits::default());
    clients.listen(0);
    let [first, last, first_closed, last_closed] = open_and_close_watches(&mut clients);
    assert!(last < first + first / 4, "{first} bytes, then {last}");
    assert!(
        first_closed < last_closed + last_closed / 4,
        "{first_closed} bytes, then {last_closed}"
    );
}

/// The same through a relay. The relay renews its watch at a modern server each time the number of URIs doubles.
#[test]
fn listen_through_a_relay_allocates_no_more_beside_a_thousand_others() {
    for (era, factor) in [(Era::Legacy, 2), (Era::Modern, 4)] {
        let mut clients = Chain::with_clients(era, Limits::default());
        clients.listen(0);
        let [first, last, first_closed, last_closed] = open_and_close_watches(&mut clients);
        assert!(last < factor * first, "{era:?}: {first} bytes, then {last}");
        assert!(
            first_closed < factor * last_closed,
            "{era:?}: {first_closed} bytes, then {last_closed}"
        );
    }
}

/// 50,000 cancels of unknown ids took 44 s beside as many unread replies, because each cancel scanned every reply
/// twice.
#[test]
fn cancels_of_unknown_ids_do_not_scan_the_unread_replies() {
    let mut pipe = Pipe::new(Limits::default());
    pipe.handshake();
    pipe.client_reads = false;
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
fn session_start_and_end_allocate_no_more_beside_a_thousand_others() {
    let mut clients = http::clients_of_server(Limits::default());
    let mut sessions = Vec::with_capacity(WATCHES);
    let mut open = |clients: &mut HttpClients<_>, few: usize| {
        bytes(|| {
            for _ in 0..few {
                let id = clients.handshake();
                let session = clients.open_stream(id);
                clients.subscribe(&session.id, "subscribe", sessions.len());
                sessions.push(session);
            }
        })
    };
    open(&mut clients, 1);
    let first = open(&mut clients, 100);
    open(&mut clients, WATCHES - 201);
    let last = open(&mut clients, 100);
    assert!(last < first + first / 4, "{first} bytes, then {last}");
    let mut close = |clients: &mut HttpClients<_>, few: usize| {
        bytes(|| {
            sessions
                .drain(..few)
                .for_each(|session| clients.end_session(&session))
        })
    };
    let first = close(&mut clients, 100);
    close(&mut clients, WATCHES - 200);
    let last = close(&mut clients, 100);
    assert!(first < last + last / 4, "{first} bytes, then {last}");
}
