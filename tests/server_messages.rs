//! What a server end makes of what it reads, and what it writes: JSON-RPC, lines, codes.

mod host;

use host::{Host, config, every_era};
use serde_json::json;

/// S-RPC-07: a response has the id of its request, with its value and its type.
#[test]
fn a_response_has_the_id_of_its_request() {
    every_era(|chunking, version| {
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let id = host.call("tools/call", json!({"name": "add"}));
        let request = host.newest();
        host.respond(request, json!({"content": []}));
        assert_eq!(host.result(&id)["content"], json!([]));
        host
    });
}
