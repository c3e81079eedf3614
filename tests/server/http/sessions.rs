//! The sessions of legacy clients over HTTP: ids, owners, contents and ends.

use crate::server_http::{
    self, Session, Site, config, delete, get, initialize, introduce, over, post, seconds,
};
use everlink::protocol::{Version, Versions};
use everlink::server::{Cancelled, Http, Server};
use everlink::{Change, List};
use serde_json::{Value, json};

const STREAMABLE: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];
const VERSION: &str = "mcp-protocol-version";

fn ping(session: &Session) -> server_http::Ask {
    session.post(9, "ping", Value::Null)
}

#[test]
fn s_sess_01_a_handshake_opens_a_session() {
    for version in STREAMABLE {
        let mut site = Site::new(config());
        let begun = site.send(initialize(version));
        assert_eq!(site.result(begun)["protocolVersion"], version);
        let id = site.field(begun, "mcp-session-id").map(str::to_owned);
        let session = Session::new(id.expect("on the response with the result"), version);
        assert_eq!(site.server.sessions(), 1);
        let pong = site.send(ping(&session));
        assert_eq!(site.result(pong), json!({}));
        assert_eq!(site.field(pong, "mcp-session-id"), None);
        // A failed handshake opens no session.
        let failed = site.send(post(&json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": 7},
        })));
        assert_eq!(site.answer(failed)["error"]["code"], -32602);
        assert_eq!(site.field(failed, "mcp-session-id"), None);
        assert_eq!(site.server.sessions(), 1);
        site.finish();
    }
}

#[test]
fn s_sess_02_an_id_is_visible_and_nobody_has_it_twice() {
    let mut ids = Vec::new();
    for secret in [[1; 16], [2; 16]] {
        let mut config = config();
        config.secret = secret;
        let mut site = Site::around(Server::new(config));
        for _ in 0..50 {
            let session = site.session("2025-11-25");
            assert!(session.id.bytes().all(|byte| (0x21..=0x7e).contains(&byte)));
            assert!(session.id.len() >= 32, "128 bits cannot be guessed");
            assert!(!ids.contains(&session.id), "it was there before");
            ids.push(session.id);
        }
        site.finish();
    }
}

#[test]
fn s_sess_04_who_names_no_session_is_refused() {
    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    let asks = [
        session.post(1, "tools/list", Value::Null),
        ping(&session),
        session.notice("notifications/custom", Value::Null),
        session.get(),
        session.delete(),
    ];
    for ask in asks {
        let shown = ask.to_string();
        let lost = site.send(ask.clone().without("mcp-session-id"));
        assert_eq!(site.status(lost), 400, "{shown}");
        let twice = site.send(ask.and("mcp-session-id", &session.id));
        assert_eq!(site.status(twice), 400, "{shown}");
    }
    let answer = session.answer(&json!(1), json!({}));
    let lost = site.send(answer.without("mcp-session-id"));
    assert_eq!(site.status(lost), 400);
    assert!(site.requests().is_empty() && site.notified().is_empty());
    assert_eq!(site.server.sessions(), 1);
    site.finish();
}

#[test]
fn s_sess_05_a_session_that_is_over_is_not_found() {
    for is_deleted in [true, false] {
        let mut site = Site::new(config());
        let (over, other) = (site.session("2025-06-18"), site.session("2025-06-18"));
        let stream = site.send(over.get());
        if is_deleted {
            let deleted = site.send(over.delete());
            assert!((200..300).contains(&site.status(deleted)));
        } else {
            site.hangs_up(stream);
            let alive = site.send(other.get());
            site.pass(seconds(31 * 60));
            assert!(!site.is_over(alive));
        }
        assert!(site.is_over(stream), "S-LHTTP-12");
        for ask in [
            ping(&over),
            over.post(1, "tools/list", Value::Null),
            over.notice("notifications/custom", Value::Null),
            over.answer(&json!(1), json!({})),
            over.get(),
            over.resume("0-1"),
            over.delete(),
        ] {
            let shown = ask.to_string();
            let late = site.send(ask);
            assert_eq!(site.status(late), 404, "{shown}");
        }
        let pong = site.send(ping(&other));
        assert_eq!(site.status(pong), 200, "the others go on");
        assert!(site.requests().is_empty());
        site.finish();
    }
}

/// S-SESS-05: the idle timeout of a session is configurable, and any activity resets it.
#[test]
fn s_sess_05_a_session_in_which_something_happens_goes_on() {
    let mut http = Http::new();
    http.session_idle = seconds(60);
    let mut site = Site::new(over(http));
    let session = site.session("2025-11-25");
    for _ in 0..5 {
        site.pass(seconds(59));
        let pong = site.send(ping(&session));
        assert_eq!(site.status(pong), 200);
    }
    let (running, request) = site.taken(session.post(1, "tools/call", json!({"name": "slow"})));
    site.pass(seconds(600));
    site.respond(request, json!({"content": []}));
    assert_eq!(site.result(running)["content"], json!([]));
    site.pass(seconds(61));
    let late = site.send(ping(&session));
    assert_eq!(site.status(late), 404);
    site.finish();
}

#[test]
fn s_sess_07_whether_a_client_may_end_its_session_is_chosen() {
    let mut http = Http::new();
    http.may_delete = false;
    let mut site = Site::new(over(http));
    let session = site.session("2025-11-25");
    let refused = site.send(session.delete());
    assert_eq!(site.status(refused), 405);
    let allowed = site.field(refused, "allow").expect("it says what is");
    assert!(!allowed.contains("DELETE") && allowed.contains("POST"));
    let pong = site.send(ping(&session));
    assert_eq!(site.status(pong), 200);
    site.finish();

    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    let (_, request) = site.taken(session.post(1, "tools/call", json!({"name": "slow"})));
    site.send(session.delete());
    assert_eq!(site.cancellations(), [(request, Cancelled::PeerGone)]);
    assert_eq!((site.server.sessions(), site.server.requests()), (0, 0));
    site.finish();
}

#[test]
fn s_sess_09_a_session_is_no_proof_of_who_asks() {
    let mut site = Site::new(config());
    let session = site.session_by("2025-11-25", Some("ann"));
    let stream = site.send(session.get());
    let asks = [
        ping(&session),
        session.post(1, "tools/list", Value::Null),
        session.notice("notifications/custom", Value::Null),
        session.get(),
        session.delete(),
    ];
    for user in [None, Some("eve"), Some("")] {
        for ask in &asks {
            let sent = site.send(ask.clone().by(user));
            assert_eq!(site.status(sent), 404, "{user:?}: {ask}");
        }
    }
    assert!(!site.is_over(stream), "nobody took it from her");
    assert!(site.requests().is_empty() && site.notified().is_empty());
    site.taken(session.post(1, "tools/list", Value::Null));
    assert_eq!(site.requests()[0].user.as_deref(), Some("ann"));
    site.finish();
}

/// S-LHTTP-21, S-HTTP-30: without the version field, the version of the session counts. Without a session, the client
/// is taken for one from before the field.
#[test]
fn s_lhttp_21_without_the_field_the_session_says_which_version_is_spoken() {
    let mut site = Site::new(config());
    let batch = json!([{"jsonrpc": "2.0", "id": 1, "method": "ping"}]);
    for version in STREAMABLE {
        let session = site.session(version);
        let pong = site.send(ping(&session).without(VERSION));
        assert_eq!(site.status(pong), 200, "{version}");
        let stream = site.send(session.get().without(VERSION));
        assert_eq!(site.status(stream), 200, "{version}");
        // Only 2025-03-26 has batches, so the response shows the version of the session.
        let sent = site.send(session.say(&batch).without(VERSION));
        let expected = if version == "2025-03-26" { 200 } else { 400 };
        assert_eq!(site.status(sent), expected, "{version}");
        let ended = site.send(session.delete().without(VERSION));
        assert!((200..300).contains(&site.status(ended)), "{version}");
    }
    // Without a session, the request is refused as legacy, not as a modern request that lacks a field.
    let bare = post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    let refused = site.refused(bare);
    assert_eq!(refused, (400, -32600), "S-HTTP-30");
    site.finish();
}

/// S-HTTP-31: within a session the field may be missing, even if all supported versions know it.
#[test]
fn s_http_31_in_a_session_the_field_may_be_missing() {
    let mut newer = config();
    newer.versions = Versions::since(Version::V2025_06_18);
    let mut site = Site::new(newer);
    let session = site.session("2025-11-25");
    let pong = site.send(ping(&session).without(VERSION));
    assert_eq!(site.status(pong), 200);
    let bare = ping(&session).without(VERSION).without("mcp-session-id");
    assert_eq!(site.refused(bare), (400, -32020));
    site.finish();
}

/// S-LHTTP-22: a version in the field must be supported and must have sessions.
#[test]
fn s_lhttp_22_a_version_that_is_not_spoken_in_sessions_is_refused() {
    let mut newest = config();
    newest.versions = Versions::since(Version::V2025_11_25);
    let mut site = Site::new(newest);
    let session = site.session("2025-11-25");
    let old = site.send(ping(&session).with(VERSION, "2025-06-18"));
    assert_eq!(site.status(old), 400);
    let modern = site.send(session.get().with(VERSION, "2026-07-28"));
    assert_eq!(site.status(modern), 400);
    let stream = site.send(session.get());
    assert_eq!(site.status(stream), 200);
    site.finish();
}

/// S-LHTTP-23: 2025-03-26 does not know the field, so another version in it is ignored.
#[test]
fn s_lhttp_23_a_session_of_before_the_field_passes_over_it() {
    let mut site = Site::new(config());
    let session = site.session("2025-03-26");
    let batch = json!([{"jsonrpc": "2.0", "id": 1, "method": "ping"}]);
    for named in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let sent = site.send(session.say(&batch).with(VERSION, named));
        assert_eq!(site.status(sent), 200, "{named}");
        assert_eq!(site.result(sent), json!({}));
    }
    site.finish();
}

/// S-LHTTP-23: an invalid version in the field is ignored, too.
#[test]
fn s_lhttp_23_a_session_of_before_the_field_passes_over_nonsense_in_it() {
    let mut site = Site::new(config());
    let session = site.session("2025-03-26");
    for named in ["1999-01-01", "latest", ""] {
        let sent = site.send(ping(&session).with(VERSION, named));
        assert_eq!(site.status(sent), 200, "{named}");
    }
    site.finish();
}

/// S-LIFE-12: capabilities, log level and subscriptions belong to one session.
#[test]
fn s_life_12_what_is_in_a_session_is_in_no_other() {
    let mut site = Site::new(config());
    let able = introduce("2025-11-25", &json!({"roots": {}}));
    let able = site.session_with(able, "2025-11-25", None);
    let unable = introduce("2025-06-18", &json!({}));
    let unable = site.session_with(unable, "2025-06-18", None);
    let (_, request) = site.taken(able.post(1, "tools/call", json!({"name": "asks"})));
    site.ask(request, "roots/list", Value::Null);
    let (_, request) = site.taken(unable.post(1, "tools/call", json!({"name": "asks"})));
    let asked = site.verb(|server, now| server.ask(now, request, "roots/list", None));
    assert!(asked.is_err());
    let streams = [site.send(able.get()), site.send(unable.get())];
    let subscribe = json!({"uri": "file:///a"});
    let done = site.send(able.post(2, "resources/subscribe", subscribe));
    assert_eq!(site.result(done), json!({}));
    let done = site.send(able.post(3, "logging/setLevel", json!({"level": "emergency"})));
    assert_eq!(site.result(done), json!({}));
    site.publish(Change::Resource {
        uri: "file:///a".into(),
    });
    let data = server_http::payload(&json!("loud"));
    site.verb(|server, now| server.log(now, None, everlink::protocol::LogLevel::Alert, None, data))
        .expect("logs are offered");
    let heard = |at: usize, method: &str| site.said(streams[at], method).len();
    assert_eq!(heard(0, "notifications/resources/updated"), 1);
    assert_eq!(heard(1, "notifications/resources/updated"), 0);
    assert_eq!(heard(0, "notifications/message"), 0);
    assert_eq!(heard(1, "notifications/message"), 1);
    site.finish();
}

/// S-LIFE-12: a handshake that names an existing session still opens a new one.
#[test]
fn s_life_12_a_second_handshake_leaves_the_first_session_alone() {
    let mut site = Site::new(config());
    let first = site.session("2025-11-25");
    let (running, request) = site.taken(first.post(1, "tools/call", json!({"name": "slow"})));
    let begun = site.send(initialize("2025-06-18").with("mcp-session-id", &first.id));
    assert_eq!(site.result(begun)["protocolVersion"], "2025-06-18");
    let second = site.field(begun, "mcp-session-id").expect("it has an id");
    assert_ne!(second, first.id);
    assert!(site.cancellations().is_empty());
    site.respond(request, json!({"content": []}));
    assert_eq!(site.result(running)["content"], json!([]));
    assert_eq!(site.server.sessions(), 2);
    site.finish();
}

/// S-SESS-04: requests without a valid session id affect no session.
#[test]
fn s_sess_04_what_names_no_session_harms_none() {
    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    let stream = site.send(session.get());
    for ask in [get(), delete(), get().with("mcp-session-id", "none")] {
        let sent = site.send(ask);
        assert!(site.status(sent) >= 400);
    }
    site.publish(Change::List(List::Tools));
    assert_eq!(site.messages(stream).len(), 1);
    site.finish();
}
