//! The server side of the transport of 2024-11-05: one stream for each client, and a path to post to.

use crate::server_http::{
    self, Ask, LEGACY, NOTHING, Site, delete, get, initialize, notice, over, post, seconds,
};
use everlink::server::{Cancelled, Http, SsePaths};
use everlink::{Change, List, StreamId};
use serde_json::{Value, json};

/// A client of this transport: its stream, and the path that it posts to.
struct Oldest {
    stream: StreamId,
    place: String,
}

fn site() -> Site {
    Site::new(over(Http::new().with_sse(SsePaths::default())))
}

impl Oldest {
    fn new(site: &mut Site, user: Option<&str>) -> Oldest {
        let stream = site.send(get().to("/sse").by(user));
        assert_eq!(site.status(stream), 200);
        let place = site.sse(stream)[0].data.clone();
        let place = place.expect("a place");
        Oldest { stream, place }
    }

    /// A client after its handshake.
    fn met(site: &mut Site, version: &str) -> Oldest {
        let client = Oldest::new(site, None);
        client.say(site, initialize(version));
        let agreed = site.messages(client.stream).pop().expect("an answer");
        assert_eq!(agreed["result"]["protocolVersion"], version);
        client.say(site, notice("notifications/initialized", Value::Null));
        client
    }

    fn say(&self, site: &mut Site, ask: Ask) {
        let posted = site.send(ask.to(&self.place));
        assert_eq!((site.status(posted), site.text(posted)), (202, ""));
    }

    fn ask(&self, site: &mut Site, id: u64, method: &str, params: Value) {
        let mut message = json!({"jsonrpc": "2.0", "id": id, "method": method});
        if !params.is_null() {
            message["params"] = params;
        }
        self.say(site, post(&message));
    }

    /// The reply to a request.
    fn answer(&self, site: &Site, id: u64) -> Value {
        let mut heard = site.messages(self.stream);
        heard.retain(|message| message["id"] == id && message.get("method").is_none());
        assert_eq!(heard.len(), 1, "{}", site.text(self.stream));
        heard.remove(0)
    }
}

/// S-SSE-06: a client of this transport has only one stream in any version, so the server does not hang up on it.
#[test]
fn s_sse_06_a_server_does_not_hang_up_on_the_only_stream_that_there_is() {
    let mut site = site();
    let client = Oldest::met(&mut site, "2025-11-25");
    client.ask(&mut site, 1, "tools/call", json!({"name": "slow"}));
    let request = site.newest();
    site.hang_up(request);
    assert!(!site.is_over(client.stream));
    site.respond(request, json!({"content": []}));
    assert_eq!(client.answer(&site, 1)["result"]["content"], json!([]));
    site.finish();
}

#[test]
fn s_sse_01_there_is_a_stream_and_a_place_to_post_to() {
    let http = Http::new().with_sse(SsePaths::new("/events", "/post"));
    let mut site = Site::new(over(http));
    let stream = site.send(get().to("/events"));
    assert_eq!(site.status(stream), 200);
    assert_eq!(
        site.field(stream, "content-type"),
        Some("text/event-stream")
    );
    let place = site.sse(stream)[0].data.clone().expect("a place");
    assert!(place.starts_with("/post"));
    let client = Oldest { stream, place };
    client.say(&mut site, initialize("2024-11-05"));
    assert_eq!(
        client.answer(&site, 0)["result"]["protocolVersion"],
        "2024-11-05"
    );
    for (ask, status) in [
        (post(&json!({})).to("/events"), 405),
        (get().to("/post"), 405),
        (delete().to("/events"), 405),
        (notice("x", Value::Null).to("/post"), 404),
        (notice("x", Value::Null).to("/post?session=none"), 404),
    ] {
        let shown = ask.to_string();
        let sent = site.send(ask);
        assert_eq!(site.status(sent), status, "{shown}");
    }
    site.finish();
    // The transport is deprecated and off by default.
    let mut site = Site::new(server_http::config());
    let sent = site.send(get().to("/sse"));
    assert!(site.status(sent) >= 400);
    assert_eq!(site.server.sessions(), 0);
    site.finish();
}

#[test]
fn s_sse_02_first_comes_the_place_and_then_a_message_in_each_event() {
    let mut site = site();
    let client = Oldest::met(&mut site, "2024-11-05");
    client.ask(&mut site, 1, "ping", Value::Null);
    client.ask(&mut site, 2, "no/such", Value::Null);
    site.publish(Change::List(List::Tools));
    let events = site.sse(client.stream);
    assert_eq!(events[0].name.as_deref(), Some("endpoint"));
    assert_eq!(events.len(), 5);
    for event in &events[1..] {
        assert_eq!(event.name.as_deref(), Some("message"));
        let data = event.data.as_deref().expect("a message");
        let message: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(message["jsonrpc"], "2.0");
    }
    // Each client has its own path.
    let other = Oldest::new(&mut site, None);
    assert_ne!(other.place, client.place);
    site.finish();
}

/// S-SSE-04, S-HTTP-02: both paths check the origin.
#[test]
fn s_sse_04_the_origin_is_looked_at_in_both_places() {
    let mut site = site();
    let client = Oldest::met(&mut site, "2024-11-05");
    let before = site.server.sessions();
    for ask in [get().to("/sse"), notice("x", Value::Null).to(&client.place)] {
        let sent = site.send(ask.with("origin", "https://evil.example"));
        assert_eq!(site.status(sent), 403);
    }
    assert_eq!(site.server.sessions(), before);
    assert!(site.notified().is_empty());
    site.finish();
}

#[test]
fn s_sse_06_every_answer_is_on_the_stream_and_all_is_lost_with_it() {
    let mut site = site();
    let client = Oldest::met(&mut site, "2024-11-05");
    let params = json!({"name": "slow", "_meta": {"progressToken": "p"}});
    client.ask(&mut site, 1, "tools/call", params.clone());
    let request = site.newest();
    site.progress(request, 1.0);
    let ask = site.ask(request, "roots/list", Value::Null);
    let question = site.said(client.stream, "roots/list")[0]["id"].clone();
    let answer = json!({"jsonrpc": "2.0", "id": question, "result": {"roots": []}});
    client.say(&mut site, post(&answer));
    assert_eq!(site.outcome(ask), Some(Ok(json!({"roots": []}))));
    site.respond(request, json!({"content": []}));
    assert_eq!(client.answer(&site, 1)["result"]["content"], json!([]));
    assert_eq!(site.said(client.stream, "notifications/progress").len(), 1);

    client.ask(&mut site, 2, "tools/call", params);
    let request = site.newest();
    site.hangs_up(client.stream);
    assert_eq!(site.cancellations(), [(request, Cancelled::PeerGone)]);
    assert_eq!((site.server.sessions(), site.server.requests()), (0, 0));
    let late = site.send(notice("x", Value::Null).to(&client.place));
    assert_eq!(site.status(late), 404);
    // A new stream starts without any state.
    let again = Oldest::new(&mut site, None);
    again.ask(&mut site, 1, "tools/list", Value::Null);
    assert!(again.answer(&site, 1).get("error").is_some());
    site.finish();
}

#[test]
fn s_sse_07_any_version_with_a_handshake_is_spoken_here() {
    for version in LEGACY {
        let mut site = site();
        let client = Oldest::met(&mut site, version);
        client.ask(&mut site, 1, "tools/list", Value::Null);
        let request = site.newest();
        site.respond(request, json!({"tools": []}));
        assert_eq!(client.answer(&site, 1)["result"], json!({"tools": []}));
        site.finish();
    }
}

/// S-RES-09: earlier events of a stream are not sent again.
#[test]
fn s_res_09_nothing_is_resumed() {
    let mut site = site();
    let client = Oldest::met(&mut site, "2024-11-05");
    site.publish(Change::List(List::Tools));
    for event in site.sse(client.stream) {
        assert_eq!((event.id, event.retry), (None, None));
    }
    let resumed = site.send(get().to("/sse").with("last-event-id", "0-1"));
    assert_eq!(
        site.messages(resumed),
        NOTHING,
        "it is a stream like others"
    );
    site.finish();
}

/// S-LIFE-12: agreed terms belong to one stream, and not to a session of the newer transport.
#[test]
fn s_life_12_a_stream_is_a_client_of_its_own() {
    let mut site = site();
    let (one, other) = (
        Oldest::met(&mut site, "2024-11-05"),
        Oldest::met(&mut site, "2025-06-18"),
    );
    one.ask(
        &mut site,
        1,
        "resources/subscribe",
        json!({"uri": "file:///a"}),
    );
    site.publish(Change::Resource {
        uri: "file:///a".into(),
    });
    let heard = |client: &Oldest| {
        let method = "notifications/resources/updated";
        site.said(client.stream, method).len()
    };
    assert_eq!((heard(&one), heard(&other)), (1, 0));
    // The session ids of the two transports are not interchangeable.
    let (_, id) = one.place.split_once("session=").expect("an id");
    let session = server_http::Session::new(id, "2025-03-26");
    let mixed = site.send(session.post(1, "ping", Value::Null));
    assert_eq!(site.status(mixed), 404);
    let streamable = site.session("2025-03-26");
    let place = format!("/messages?session={}", streamable.id);
    let mixed = site.send(notice("x", Value::Null).to(&place));
    assert_eq!(site.status(mixed), 404);
    site.finish();
}

/// S-VER-07: a stream of this transport is legacy. Any request before the handshake is refused.
#[test]
fn nothing_is_served_before_the_handshake() {
    let mut site = site();
    let client = Oldest::new(&mut site, None);
    for (id, method) in [(1, "tools/list"), (2, "server/discover")] {
        client.ask(&mut site, id, method, Value::Null);
        let error = &client.answer(&site, id)["error"];
        assert_eq!(error["code"], -32600, "{method}");
    }
    site.finish();
}

/// S-BATCH-01: a client that agreed on 2025-03-26 may send a batch, and the replies come on the stream.
#[test]
fn an_array_is_taken_in_the_version_that_has_it() {
    let mut site = site();
    let client = Oldest::met(&mut site, "2025-03-26");
    let ping = |id: u64| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    client.say(&mut site, post(&json!([ping(1), ping(2)])));
    for id in [1, 2] {
        assert_eq!(client.answer(&site, id)["result"], json!({}));
    }
    site.finish();
}

/// F-115: every message must come from the user that opened the stream.
#[test]
fn a_stream_belongs_to_its_user() {
    let mut site = site();
    let client = Oldest::new(&mut site, Some("ann"));
    for user in [None, Some("eve")] {
        let sent = site.send(initialize("2024-11-05").to(&client.place).by(user));
        assert_eq!(site.status(sent), 404);
    }
    client.say(&mut site, initialize("2024-11-05").by(Some("ann")));
    assert_eq!(client.answer(&site, 0)["id"], 0);
    site.finish();
}

/// An invalid message cannot be answered by id on the stream, so its POST is refused.
#[test]
fn what_is_no_message_is_refused_where_it_is_posted() {
    let mut site = site();
    let client = Oldest::met(&mut site, "2024-11-05");
    let before = site.messages(client.stream).len();
    for body in [&b"{"[..], b"\xff", b"7", b"[]"] {
        let mut ask = post(&json!({}));
        ask.body = body.to_vec();
        let sent = site.send(ask.to(&client.place));
        assert_eq!(site.status(sent), 400, "{body:?}");
    }
    assert_eq!(site.messages(client.stream).len(), before, "S-RPC-11");
    client.ask(&mut site, 1, "ping", Value::Null);
    assert_eq!(client.answer(&site, 1)["result"], json!({}));
    site.finish();
}

/// F-043: a silent stream carries keepalive comments.
#[test]
fn a_silent_stream_shows_that_it_is_alive() {
    let mut site = site();
    let client = Oldest::met(&mut site, "2024-11-05");
    let before = site.sse(client.stream).len();
    site.pass(seconds(45));
    let events = site.sse(client.stream).split_off(before);
    assert_eq!(events.len(), 3);
    assert!(events.iter().all(|event| event.is_comment));
    site.finish();
}
