//! The server side of the transport of 2024-11-05: one stream for each client, and a path to post to.

use crate::server_http::{
    self, Harness, HttpRequest, LEGACY, NO_MESSAGES, delete, get, http_config, initialize,
    notification, post, seconds,
};
use everlink::server::{Cancelled, Http, SsePaths};
use everlink::{Change, List, StreamId};
use serde_json::{Value, json};

/// A client of this transport: its stream, and the path that it posts to.
struct SseClient {
    stream: StreamId,
    post_path: String,
}

fn sse_harness() -> Harness {
    Harness::new(http_config(Http::new().with_sse(SsePaths::default())))
}

impl SseClient {
    fn new(harness: &mut Harness, user: Option<&str>) -> SseClient {
        let stream = harness.send(get().to("/sse").by(user));
        assert_eq!(harness.status(stream), 200);
        let post_path = harness.sse(stream)[0].data.clone();
        let post_path = post_path.expect("a path to post to");
        SseClient { stream, post_path }
    }

    /// A client after its handshake.
    fn connected(harness: &mut Harness, version: &str) -> SseClient {
        let client = SseClient::new(harness, None);
        client.post(harness, initialize(version));
        let agreed = harness.messages(client.stream).pop().expect("a reply");
        assert_eq!(agreed["result"]["protocolVersion"], version);
        client.post(
            harness,
            notification("notifications/initialized", Value::Null),
        );
        client
    }

    fn post(&self, harness: &mut Harness, http_request: HttpRequest) {
        let posted = harness.send(http_request.to(&self.post_path));
        assert_eq!((harness.status(posted), harness.text(posted)), (202, ""));
    }

    fn post_request(&self, harness: &mut Harness, id: u64, method: &str, params: Value) {
        let mut message = json!({"jsonrpc": "2.0", "id": id, "method": method});
        if !params.is_null() {
            message["params"] = params;
        }
        self.post(harness, post(&message));
    }

    /// The reply to a request.
    fn reply(&self, harness: &Harness, id: u64) -> Value {
        let mut replies = harness.messages(self.stream);
        replies.retain(|message| message["id"] == id && message.get("method").is_none());
        assert_eq!(replies.len(), 1, "{}", harness.text(self.stream));
        replies.remove(0)
    }
}

/// S-SSE-06: a client of this transport has only one stream in any version, so the server does not hang up on it.
#[test]
fn s_sse_06_hang_up_does_not_close_the_only_stream_of_a_client() {
    let mut harness = sse_harness();
    let client = SseClient::connected(&mut harness, "2025-11-25");
    client.post_request(&mut harness, 1, "tools/call", json!({"name": "slow"}));
    let request = harness.newest_request();
    harness.hang_up(request);
    assert!(!harness.is_over(client.stream));
    harness.respond(request, json!({"content": []}));
    assert_eq!(client.reply(&harness, 1)["result"]["content"], json!([]));
    harness.finish();
}

#[test]
fn s_sse_01_stream_announces_the_path_to_post_to() {
    let http = Http::new().with_sse(SsePaths::new("/events", "/post"));
    let mut harness = Harness::new(http_config(http));
    let stream = harness.send(get().to("/events"));
    assert_eq!(harness.status(stream), 200);
    assert_eq!(
        harness.field(stream, "content-type"),
        Some("text/event-stream")
    );
    let post_path = harness.sse(stream)[0]
        .data
        .clone()
        .expect("a path to post to");
    assert!(post_path.starts_with("/post"));
    let client = SseClient { stream, post_path };
    client.post(&mut harness, initialize("2024-11-05"));
    assert_eq!(
        client.reply(&harness, 0)["result"]["protocolVersion"],
        "2024-11-05"
    );
    for (http_request, status) in [
        (post(&json!({})).to("/events"), 405),
        (get().to("/post"), 405),
        (delete().to("/events"), 405),
        (notification("x", Value::Null).to("/post"), 404),
        (notification("x", Value::Null).to("/post?session=none"), 404),
    ] {
        let shown = http_request.to_string();
        let sent = harness.send(http_request);
        assert_eq!(harness.status(sent), status, "{shown}");
    }
    harness.finish();
    // The transport is deprecated and off by default.
    let mut harness = Harness::new(server_http::config());
    let sent = harness.send(get().to("/sse"));
    assert!(harness.status(sent) >= 400);
    assert_eq!(harness.server.sessions(), 0);
    harness.finish();
}

#[test]
fn s_sse_02_endpoint_event_comes_first_then_one_message_per_event() {
    let mut harness = sse_harness();
    let client = SseClient::connected(&mut harness, "2024-11-05");
    client.post_request(&mut harness, 1, "ping", Value::Null);
    client.post_request(&mut harness, 2, "no/such", Value::Null);
    harness.publish(Change::List(List::Tools));
    let events = harness.sse(client.stream);
    assert_eq!(events[0].name.as_deref(), Some("endpoint"));
    assert_eq!(events.len(), 5);
    for event in &events[1..] {
        assert_eq!(event.name.as_deref(), Some("message"));
        let data = event.data.as_deref().expect("a message");
        let message: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(message["jsonrpc"], "2.0");
    }
    // Each client has its own path.
    let other = SseClient::new(&mut harness, None);
    assert_ne!(other.post_path, client.post_path);
    harness.finish();
}

/// S-SSE-04, S-HTTP-02: both paths check the origin.
#[test]
fn s_sse_04_both_paths_check_the_origin() {
    let mut harness = sse_harness();
    let client = SseClient::connected(&mut harness, "2024-11-05");
    let before = harness.server.sessions();
    for http_request in [
        get().to("/sse"),
        notification("x", Value::Null).to(&client.post_path),
    ] {
        let sent = harness.send(http_request.with("origin", "https://evil.example"));
        assert_eq!(harness.status(sent), 403);
    }
    assert_eq!(harness.server.sessions(), before);
    assert!(harness.notified().is_empty());
    harness.finish();
}

#[test]
fn s_sse_06_replies_come_on_the_stream_and_requests_end_with_it() {
    let mut harness = sse_harness();
    let client = SseClient::connected(&mut harness, "2024-11-05");
    let params = json!({"name": "slow", "_meta": {"progressToken": "p"}});
    client.post_request(&mut harness, 1, "tools/call", params.clone());
    let request = harness.newest_request();
    harness.progress(request, 1.0);
    let ask = harness.ask(request, "roots/list", Value::Null);
    let ask_id = harness.messages_with(client.stream, "roots/list")[0]["id"].clone();
    let answer = json!({"jsonrpc": "2.0", "id": ask_id, "result": {"roots": []}});
    client.post(&mut harness, post(&answer));
    assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
    harness.respond(request, json!({"content": []}));
    assert_eq!(client.reply(&harness, 1)["result"]["content"], json!([]));
    assert_eq!(
        harness
            .messages_with(client.stream, "notifications/progress")
            .len(),
        1
    );

    client.post_request(&mut harness, 2, "tools/call", params);
    let request = harness.newest_request();
    harness.disconnect(client.stream);
    assert_eq!(harness.cancellations(), [(request, Cancelled::PeerGone)]);
    assert_eq!(
        (harness.server.sessions(), harness.server.requests()),
        (0, 0)
    );
    let late = harness.send(notification("x", Value::Null).to(&client.post_path));
    assert_eq!(harness.status(late), 404);
    // A new stream starts without any state.
    let again = SseClient::new(&mut harness, None);
    again.post_request(&mut harness, 1, "tools/list", Value::Null);
    assert!(again.reply(&harness, 1).get("error").is_some());
    harness.finish();
}

#[test]
fn s_sse_07_every_legacy_version_is_supported() {
    for version in LEGACY {
        let mut harness = sse_harness();
        let client = SseClient::connected(&mut harness, version);
        client.post_request(&mut harness, 1, "tools/list", Value::Null);
        let request = harness.newest_request();
        harness.respond(request, json!({"tools": []}));
        assert_eq!(client.reply(&harness, 1)["result"], json!({"tools": []}));
        harness.finish();
    }
}

/// S-RES-09: earlier events of a stream are not sent again.
#[test]
fn s_res_09_stream_cannot_be_resumed() {
    let mut harness = sse_harness();
    let client = SseClient::connected(&mut harness, "2024-11-05");
    harness.publish(Change::List(List::Tools));
    for event in harness.sse(client.stream) {
        assert_eq!((event.id, event.retry), (None, None));
    }
    let resumed = harness.send(get().to("/sse").with("last-event-id", "0-1"));
    assert_eq!(
        harness.messages(resumed),
        NO_MESSAGES,
        "the stream starts without earlier messages"
    );
    harness.finish();
}

/// S-LIFE-12: agreed terms belong to one stream, and not to a session of the newer transport.
#[test]
fn s_life_12_subscriptions_and_session_ids_belong_to_one_stream() {
    let mut harness = sse_harness();
    let (one, other) = (
        SseClient::connected(&mut harness, "2024-11-05"),
        SseClient::connected(&mut harness, "2025-06-18"),
    );
    one.post_request(
        &mut harness,
        1,
        "resources/subscribe",
        json!({"uri": "file:///a"}),
    );
    harness.publish(Change::Resource {
        uri: "file:///a".into(),
    });
    let count = |client: &SseClient| {
        let method = "notifications/resources/updated";
        harness.messages_with(client.stream, method).len()
    };
    assert_eq!((count(&one), count(&other)), (1, 0));
    // The session ids of the two transports are not interchangeable.
    let (_, id) = one.post_path.split_once("session=").expect("an id");
    let session = server_http::Session::new(id, "2025-03-26");
    let mixed = harness.send(session.post(1, "ping", Value::Null));
    assert_eq!(harness.status(mixed), 404);
    let streamable = harness.open_session("2025-03-26");
    let post_path = format!("/messages?session={}", streamable.id);
    let mixed = harness.send(notification("x", Value::Null).to(&post_path));
    assert_eq!(harness.status(mixed), 404);
    harness.finish();
}

/// S-VER-07: a stream of this transport is legacy. Any request before the handshake is refused.
#[test]
fn requests_before_the_handshake_are_refused() {
    let mut harness = sse_harness();
    let client = SseClient::new(&mut harness, None);
    for (id, method) in [(1, "tools/list"), (2, "server/discover")] {
        client.post_request(&mut harness, id, method, Value::Null);
        let error = &client.reply(&harness, id)["error"];
        assert_eq!(error["code"], -32600, "{method}");
    }
    harness.finish();
}

/// S-BATCH-01: a client that agreed on 2025-03-26 may send a batch, and the replies come on the stream.
#[test]
fn batch_is_accepted_after_a_2025_03_26_handshake() {
    let mut harness = sse_harness();
    let client = SseClient::connected(&mut harness, "2025-03-26");
    let ping = |id: u64| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    client.post(&mut harness, post(&json!([ping(1), ping(2)])));
    for id in [1, 2] {
        assert_eq!(client.reply(&harness, id)["result"], json!({}));
    }
    harness.finish();
}

/// F-115: every message must come from the user that opened the stream.
#[test]
fn message_of_another_user_gets_404() {
    let mut harness = sse_harness();
    let client = SseClient::new(&mut harness, Some("ann"));
    for user in [None, Some("eve")] {
        let sent = harness.send(initialize("2024-11-05").to(&client.post_path).by(user));
        assert_eq!(harness.status(sent), 404);
    }
    client.post(&mut harness, initialize("2024-11-05").by(Some("ann")));
    assert_eq!(client.reply(&harness, 0)["id"], 0);
    harness.finish();
}

/// An invalid message cannot be answered by id on the stream, so its POST is refused.
#[test]
fn post_of_an_invalid_message_gets_400() {
    let mut harness = sse_harness();
    let client = SseClient::connected(&mut harness, "2024-11-05");
    let before = harness.messages(client.stream).len();
    for body in [&b"{"[..], b"\xff", b"7", b"[]"] {
        let mut http_request = post(&json!({}));
        http_request.body = body.to_vec();
        let sent = harness.send(http_request.to(&client.post_path));
        assert_eq!(harness.status(sent), 400, "{body:?}");
    }
    assert_eq!(harness.messages(client.stream).len(), before, "S-RPC-11");
    assert_eq!(harness.server.stats().noise, 3, "`[]` is a batch");
    client.post_request(&mut harness, 1, "ping", Value::Null);
    assert_eq!(client.reply(&harness, 1)["result"], json!({}));
    harness.finish();
}

/// F-043: a silent stream carries keepalive comments.
#[test]
fn silent_stream_gets_keepalive_comments() {
    let mut harness = sse_harness();
    let client = SseClient::connected(&mut harness, "2024-11-05");
    let before = harness.sse(client.stream).len();
    harness.advance(seconds(45));
    let events = harness.sse(client.stream).split_off(before);
    assert_eq!(events.len(), 3);
    assert!(events.iter().all(|event| event.is_comment));
    harness.finish();
}
