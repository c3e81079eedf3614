//! The server end over HTTP: exchanges, sessions, streams, in both eras.

mod site;

use serde_json::json;

use site::{Site, config, modern};

/// S-HTTP-11: an answer without anything before it is JSON.
#[test]
fn a_modern_request_is_answered_with_json() {
    let mut site = Site::new(config());
    let call = site.send(modern(1, "tools/call", json!({"name": "add"})));
    let request = site.newest();
    site.respond(request, json!({"content": []}));
    assert_eq!(site.status(call), 200);
    assert_eq!(site.json(call)["result"]["content"], json!([]));
    site.finish();
}
