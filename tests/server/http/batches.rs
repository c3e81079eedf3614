//! JSON-RPC batches over HTTP: which versions accept them, and how each of their messages is served.

use crate::server_http::{NOTHING, Site, config, get, initialize, modern, notice, over, post};
use everlink::server::{Cancelled, Http, SsePaths};
use serde_json::{Value, json};

fn ping(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "ping"})
}

fn call(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "slow"}})
}

fn told() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/custom"})
}

/// S-BATCH-01, S-BATCH-04, S-BATCH-05, S-BATCH-06: a batch with requests is answered with a stream. The stream has one reply for each
/// request and ends with the last.
#[test]
fn s_batch_01_an_array_is_taken_in_the_version_that_has_it() {
    let mut site = Site::new(config());
    let session = site.session("2025-03-26");
    let batch = json!([ping(1), call(2), told(), call(3), ping(4)]);
    let sent = site.send(session.say(&batch));
    assert_eq!(site.status(sent), 200);
    let kind = site.field(sent, "content-type").expect("a kind");
    assert!(
        ["application/json", "text/event-stream"].contains(&kind),
        "S-BATCH-04"
    );
    let requests: Vec<_> = site.requests().iter().map(|asked| asked.request).collect();
    assert_eq!(requests.len(), 2);
    assert_eq!(site.notified(), ["notifications/custom"]);
    for request in requests.into_iter().rev() {
        assert!(!site.is_over(sent), "S-BATCH-06");
        site.respond(request, json!({"content": []}));
    }
    assert!(site.is_over(sent) && !site.exchange(sent).is_aborted());
    let mut ids: Vec<u64> = site
        .messages(sent)
        .iter()
        .filter_map(|message| message["id"].as_u64())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4], "S-BATCH-05");
    site.finish();
}

#[test]
fn s_batch_04_an_array_that_wants_no_answer_has_none() {
    let mut site = Site::new(config());
    let session = site.session("2025-03-26");
    let (_, request) = site.taken(session.say(&call(1)));
    let asks = [(); 2].map(|()| site.ask(request, "roots/list", Value::Null));
    let answers: Vec<Value> = (0..2)
        .map(|at| {
            let asked = site.asked("roots/list");
            json!({"jsonrpc": "2.0", "id": asked[at], "result": {"roots": [at]}})
        })
        .collect();
    for batch in [
        json!([told(), told()]),
        Value::from(answers),
        // Invalid notifications and replies get no reply, either.
        json!([{"jsonrpc": "1.0", "method": "notifications/x"}]),
        json!([{"jsonrpc": "1.0", "id": 77, "result": {}}]),
    ] {
        let sent = site.send(session.say(&batch));
        assert_eq!((site.status(sent), site.text(sent)), (202, ""), "{batch}");
        assert!(site.is_over(sent));
    }
    for (at, ask) in asks.into_iter().enumerate() {
        assert_eq!(site.outcome(ask), Some(Ok(json!({"roots": [at]}))));
    }
    assert_eq!(site.notified().len(), 2);
    site.finish();
}

/// S-BATCH-06: the stream of a batch ends when no request is open, also because one was cancelled.
#[test]
fn s_batch_06_what_was_taken_back_is_not_waited_for() {
    let mut site = Site::new(config());
    let session = site.session("2025-03-26");
    let sent = site.send(session.say(&json!([call(1), call(2)])));
    let first = site.requests()[0].request;
    let second = site.newest();
    site.send(session.notice("notifications/cancelled", json!({"requestId": 1})));
    let why = Cancelled::ByPeer {
        reason: None,
        meta: None,
    };
    assert_eq!(site.cancellations(), [(first, why)]);
    assert!(!site.is_over(sent));
    site.respond(second, json!({"content": []}));
    assert!(site.is_over(sent));
    assert_eq!(site.messages(sent).len(), 1);
    site.finish();
}

#[test]
fn s_batch_07_an_array_means_nothing_elsewhere() {
    let mut site = Site::new(over(Http::new().with_sse(SsePaths::default())));
    let batch = json!([ping(1), call(2), told()]);
    for version in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let session = site.session(version);
        assert_eq!(
            site.refused(session.say(&batch)),
            (400, -32600),
            "{version}"
        );
        // The agreed version counts, not the header field.
        let pretended = session
            .say(&batch)
            .with("mcp-protocol-version", "2025-03-26");
        assert_eq!(site.refused(pretended), (400, -32600), "{version}");
    }
    let modern_batch = post(&json!([ping(1)])).with("mcp-protocol-version", "2026-07-28");
    assert_eq!(site.refused(modern_batch), (400, -32600));
    let mut whole = modern(1, "tools/call", json!({"name": "add"}));
    whole.body = [b"[", &whole.body[..], b"]"].concat();
    assert_eq!(site.refused(whole), (400, -32600));
    let stream = site.send(get().to("/sse"));
    let place = site.sse(stream)[0].data.clone().expect("a place");
    for ask in [
        initialize("2024-11-05"),
        notice("notifications/initialized", Value::Null),
    ] {
        site.send(ask.to(&place));
    }
    let before = site.messages(stream).len();
    assert_eq!(site.refused(post(&batch).to(&place)), (400, -32600));
    assert_eq!(site.messages(stream).len(), before);
    assert!(site.notified().is_empty());
    site.finish();
}

#[test]
fn s_batch_08_each_message_of_an_array_is_served_by_itself() {
    let mut site = Site::new(config());
    let session = site.session("2025-03-26");
    let nothing = site.send(session.say(&json!([])));
    assert_eq!((site.status(nothing), site.code(nothing)), (400, -32600));
    let batch = json!([
        ping(1),
        {"jsonrpc": "2.0", "id": 2, "method": "no/such"},
        {"jsonrpc": "1.0", "id": 3, "method": "ping"},
        {"jsonrpc": "2.0", "id": 4, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"},
        }},
        ping(5),
    ]);
    let sent = site.send(session.say(&batch));
    assert!(site.is_over(sent));
    let answer = |id: u64| {
        let mut heard = site.messages(sent);
        heard.retain(|message| message["id"] == id);
        assert_eq!(heard.len(), 1, "{id}");
        heard.remove(0)
    };
    assert_eq!(answer(1)["result"], json!({}));
    assert_eq!(answer(2)["error"]["code"], -32601);
    assert_eq!(answer(3)["error"]["code"], -32600);
    assert_eq!(answer(4)["error"]["code"], -32600, "S-LIFE-10");
    assert_eq!(answer(5)["result"], json!({}));
    assert_eq!(site.server.sessions(), 1);
    let broken = site.send(session.say(&json!([{"jsonrpc": "1.0", "id": 6, "method": "ping"}])));
    assert_eq!(site.answer(broken)["error"]["code"], -32600);
    let quiet = site.send(session.say(&json!([told()])));
    assert_eq!(site.messages(quiet), NOTHING);
    site.finish();
}
