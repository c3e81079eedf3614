//! What the server over HTTP still holds of clients that are gone.

use super::*;
use crate::driver::{Input, Instant};
use crate::server::binding::Binding;
use crate::server::config::Offer;
use crate::server::{Http, Server};

fn config() -> Config {
    let offer = Offer::new("site", "1");
    Config::new(offer, [7; 16]).with_http(Http::new().with_cors(Allowed::Any))
}

#[test]
fn nothing_is_held_of_a_client_that_left_before_its_request_was_complete() {
    let mut server = Server::new(config());
    let fields = Fields::new()
        .and("host", "localhost")
        .and("origin", "https://app.example");
    let head = RequestHead::new(Verb::Post, "/mcp").with_fields(fields);
    let (now, stream) = (Instant::ZERO, StreamId::new(1));
    let head = Box::new(head);
    server.handle(now, Input::Request { stream, head });
    let faults = Vec::from([Fault::new(FaultKind::BrokenPipe)]).into();
    server.handle(now, Input::WriteFailed { stream, faults });
    assert_eq!(server.poll_timeout(), None);
    let Binding::Http(http) = &server.binding else {
        panic!("it is bound to HTTP");
    };
    assert_eq!((http.granted.len(), http.exchanges.len()), (0, 0));
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
