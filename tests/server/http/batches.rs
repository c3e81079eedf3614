//! JSON-RPC batches over HTTP: which versions accept them, and how each of their messages is served.

use crate::server_http::{
    Harness, NO_MESSAGES, config, get, http_config, initialize, modern, notification, post,
};
use everlink::server::{Cancelled, Http, Replay, SsePaths};
use serde_json::{Value, json};

fn ping(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "ping"})
}

fn call(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "slow"}})
}

fn custom_notification() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/custom"})
}

/// S-BATCH-01, S-BATCH-04, S-BATCH-05, S-BATCH-06: a batch with requests is answered with a stream. The stream has one reply for each
/// request and ends with the last.
#[test]
fn s_batch_01_batch_of_2025_03_26_gets_one_reply_per_request() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-03-26");
    let batch = json!([ping(1), call(2), custom_notification(), call(3), ping(4)]);
    let sent = harness.send(session.post_message(&batch));
    assert_eq!(harness.status(sent), 200);
    let content_type = harness.field(sent, "content-type").expect("a content type");
    assert!(
        ["application/json", "text/event-stream"].contains(&content_type),
        "S-BATCH-04"
    );
    let requests: Vec<_> = harness
        .requests()
        .iter()
        .map(|request| request.request)
        .collect();
    assert_eq!(requests.len(), 2);
    assert_eq!(harness.notified(), ["notifications/custom"]);
    for request in requests.into_iter().rev() {
        assert!(!harness.is_over(sent), "S-BATCH-06");
        harness.respond(request, json!({"content": []}));
    }
    assert!(harness.is_over(sent) && !harness.exchange(sent).is_aborted());
    let mut ids: Vec<u64> = harness
        .messages(sent)
        .iter()
        .filter_map(|message| message["id"].as_u64())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4], "S-BATCH-05");
    harness.finish();
}

#[test]
fn s_batch_04_batch_without_requests_gets_202_and_no_body() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-03-26");
    let (_, request) = harness.send_accepted(session.post_message(&call(1)));
    let asks = [(); 2].map(|()| harness.ask(request, "roots/list", Value::Null));
    let answers: Vec<Value> = (0..2)
        .map(|at| {
            let ask_ids = harness.ask_ids("roots/list");
            json!({"jsonrpc": "2.0", "id": ask_ids[at], "result": {"roots": [at]}})
        })
        .collect();
    for batch in [
        json!([custom_notification(), custom_notification()]),
        Value::from(answers),
        // Invalid notifications and replies get no reply, either.
        json!([{"jsonrpc": "1.0", "method": "notifications/x"}]),
        json!([{"jsonrpc": "1.0", "id": 77, "result": {}}]),
    ] {
        let sent = harness.send(session.post_message(&batch));
        assert_eq!(
            (harness.status(sent), harness.text(sent)),
            (202, ""),
            "{batch}"
        );
        assert!(harness.is_over(sent));
    }
    for (at, ask) in asks.into_iter().enumerate() {
        assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": [at]}))));
    }
    assert_eq!(harness.notified().len(), 2);
    harness.finish();
}

/// S-BATCH-06: the stream of a batch ends when no request is open, also because one was cancelled.
#[test]
fn s_batch_06_batch_stream_does_not_wait_for_a_cancelled_request() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-03-26");
    let sent = harness.send(session.post_message(&json!([call(1), call(2)])));
    let first = harness.requests()[0].request;
    let second = harness.newest_request();
    harness.send(session.notification("notifications/cancelled", json!({"requestId": 1})));
    let why = Cancelled::ByPeer {
        reason: None,
        meta: None,
    };
    assert_eq!(harness.cancellations(), [(first, why)]);
    assert!(!harness.is_over(sent));
    harness.respond(second, json!({"content": []}));
    assert!(harness.is_over(sent));
    assert_eq!(harness.messages(sent).len(), 1);
    harness.finish();
}

#[test]
fn s_batch_07_batch_is_refused_in_other_versions() {
    let mut harness = Harness::new(http_config(Http::new().with_sse(SsePaths::default())));
    let batch = json!([ping(1), call(2), custom_notification()]);
    for version in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let session = harness.open_session(version);
        assert_eq!(
            harness.send_refused(session.post_message(&batch)),
            (400, -32600),
            "{version}"
        );
        // The agreed version counts, not the header field.
        let with_other_version = session
            .post_message(&batch)
            .with("mcp-protocol-version", "2025-03-26");
        assert_eq!(
            harness.send_refused(with_other_version),
            (400, -32600),
            "{version}"
        );
    }
    let modern_batch = post(&json!([ping(1)])).with("mcp-protocol-version", "2026-07-28");
    assert_eq!(harness.send_refused(modern_batch), (400, -32600));
    let mut whole = modern(1, "tools/call", json!({"name": "add"}));
    whole.body = [b"[", &whole.body[..], b"]"].concat();
    assert_eq!(harness.send_refused(whole), (400, -32600));
    let stream = harness.send(get().to("/sse"));
    let post_path = harness.sse(stream)[0]
        .data
        .clone()
        .expect("a path to post to");
    for http_request in [
        initialize("2024-11-05"),
        notification("notifications/initialized", Value::Null),
    ] {
        harness.send(http_request.to(&post_path));
    }
    let before = harness.messages(stream).len();
    assert_eq!(
        harness.send_refused(post(&batch).to(&post_path)),
        (400, -32600)
    );
    assert_eq!(harness.messages(stream).len(), before);
    assert!(harness.notified().is_empty());
    harness.finish();
}

#[test]
fn s_batch_08_each_message_of_a_batch_is_handled_separately() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-03-26");
    let nothing = harness.send(session.post_message(&json!([])));
    assert_eq!(
        (harness.status(nothing), harness.code(nothing)),
        (400, -32600)
    );
    let batch = json!([
        ping(1),
        {"jsonrpc": "2.0", "id": 2, "method": "no/such"},
        {"jsonrpc": "1.0", "id": 3, "method": "ping"},
        {"jsonrpc": "2.0", "id": 4, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"},
        }},
        ping(5),
    ]);
    let sent = harness.send(session.post_message(&batch));
    assert!(harness.is_over(sent));
    let reply = |id: u64| {
        let mut replies = harness.messages(sent);
        replies.retain(|message| message["id"] == id);
        assert_eq!(replies.len(), 1, "{id}");
        replies.remove(0)
    };
    assert_eq!(reply(1)["result"], json!({}));
    assert_eq!(reply(2)["error"]["code"], -32601);
    assert_eq!(reply(3)["error"]["code"], -32600);
    assert_eq!(reply(4)["error"]["code"], -32600, "S-LIFE-10");
    assert_eq!(reply(5)["result"], json!({}));
    assert_eq!(harness.server.sessions(), 1);
    let broken =
        harness.send(session.post_message(&json!([{"jsonrpc": "1.0", "id": 6, "method": "ping"}])));
    assert_eq!(harness.reply(broken)["error"]["code"], -32600);
    let quiet = harness.send(session.post_message(&json!([custom_notification()])));
    assert_eq!(harness.messages(quiet), NO_MESSAGES);
    harness.finish();
}

/// The client then knows that its batch arrived, also where no event is kept for it.
#[test]
fn response_to_a_batch_begins_at_once() {
    let mut http = Http::new();
    http.replay = Replay::new(0, 0);
    let mut harness = Harness::new(http_config(http));
    let session = harness.open_session("2025-03-26");
    let sent = harness.send(session.post_message(&json!([call(1)])));
    assert_eq!(harness.status(sent), 200);
    assert!(!harness.is_over(sent));
    let request = harness.newest_request();
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.messages(sent).len(), 1);
    harness.finish();
}
