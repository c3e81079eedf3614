//! Tests that a server over HTTP keeps nothing of clients that are gone, and no large buffer.

use super::*;
use crate::server::config::Offer;

fn config() -> Config {
    Config::new(Offer::new("site", "1"), [7; 16])
}

/// A request of a browser, whose body is complete.
fn arriving(cx: &mut Context, http: &mut HttpBinding, stream: StreamId) -> Arriving {
    begin(cx, http, stream);
    http.take(stream, &mut cx.clock).expect("it is complete")
}

/// Sends the head of a request of a browser.
fn begin(cx: &mut Context, http: &mut HttpBinding, stream: StreamId) {
    let fields = Fields::new()
        .and("host", "localhost")
        .and("origin", "https://app.example");
    let head = RequestHead::new(Verb::Post, "/mcp").with_fields(fields);
    http.new_exchange(cx, stream, &head);
    http.begin(cx, stream, &head);
}

#[test]
fn nothing_is_held_of_a_client_that_left_before_its_request_was_complete() {
    let mut cx = Context::new(config());
    let mut http = HttpBinding::new(Http::new().with_cors(Allowed::Any), &cx.config);
    let stream = StreamId::new(1);
    begin(&mut cx, &mut http, stream);
    assert_eq!((http.granted.len(), http.exchanges.len()), (1, 1));
    http.client_gone(&mut cx, stream);
    assert_eq!((http.granted.len(), http.exchanges.len()), (0, 0));
    assert_eq!(cx.clock.next(), None);
}

/// The other server may have the request, so the connection breaks.
#[test]
fn nothing_is_held_of_a_request_that_was_passed_on_in_vain() {
    for is_draining in [false, true] {
        let mut cx = Context::new(config());
        let http = Http::new().with_cors(Allowed::Any);
        let http = http.with_storage(DriverStorage::new(1));
        let mut http = HttpBinding::new(http, &cx.config);
        let stream = StreamId::new(1);
        let arrived = arriving(&mut cx, &mut http, stream);
        let (to, missing) = (2, Missing::LookAgain);
        let forward = Halt::Forward(fleet::Forward { to, missing });
        http.halt(&mut cx, stream, arrived, forward);
        assert_eq!((http.granted.len(), http.exchanges.len()), (1, 1));
        if is_draining {
            assert!(http.drain_over(&mut cx).is_empty());
        } else {
            http.lookup_overdue(LookupId::from_number(1));
            assert!(http.next_ready(&mut cx).is_none());
        }
        assert_eq!((http.granted.len(), http.exchanges.len()), (0, 0));
    }
}

#[test]
fn buffer_of_a_long_message_is_not_kept() {
    let config = config();
    let mut http = HttpBinding::new(Http::new(), &config);
    for capacity in [1 << 10, 1 << 20] {
        let mut scratch = http.take_scratch();
        scratch.reserve_exact(capacity);
        scratch.push(7);
        http.give_scratch(scratch);
        let scratch = &http.scratch;
        assert!(scratch.is_empty() && scratch.capacity() <= 64 << 10);
    }
    assert!(http.take_scratch().capacity() > 0, "it is used again");
}
