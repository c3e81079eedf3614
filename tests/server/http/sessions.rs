//! The sessions of legacy clients over HTTP: ids, owners, contents and ends.

use crate::server_http::{
    self, Harness, Session, config, delete, get, http_config, initialize, initialize_with, post,
    seconds,
};
use everlink::protocol::{Version, Versions};
use everlink::server::{Cancelled, Http, Misuse, Server};
use everlink::{Change, List};
use serde_json::{Value, json};

const STREAMABLE: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];
const VERSION: &str = "mcp-protocol-version";

fn ping(session: &Session) -> server_http::HttpRequest {
    session.post(9, "ping", Value::Null)
}

#[test]
fn s_sess_01_a_handshake_opens_a_session() {
    for version in STREAMABLE {
        let mut harness = Harness::new(config());
        let begun = harness.send(initialize(version));
        assert_eq!(harness.result(begun)["protocolVersion"], version);
        let id = harness.field(begun, "mcp-session-id").map(str::to_owned);
        let session = Session::new(id.expect("the response has a session id"), version);
        assert_eq!(harness.server.sessions(), 1);
        let pong = harness.send(ping(&session));
        assert_eq!(harness.result(pong), json!({}));
        assert_eq!(harness.field(pong, "mcp-session-id"), None);
        // A failed handshake opens no session.
        let failed = harness.send(post(&json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": 7},
        })));
        assert_eq!(harness.reply(failed)["error"]["code"], -32602);
        assert_eq!(harness.field(failed, "mcp-session-id"), None);
        assert_eq!(harness.server.sessions(), 1);
        harness.finish();
    }
}

#[test]
fn s_sess_02_session_ids_are_unique_and_visible_ascii() {
    let mut ids = Vec::new();
    for secret in [[1; 16], [2; 16]] {
        let mut config = config();
        config.secret = secret;
        let mut harness = Harness::from_server(Server::new(config));
        for _ in 0..50 {
            let session = harness.open_session("2025-11-25");
            assert!(session.id.bytes().all(|byte| (0x21..=0x7e).contains(&byte)));
            assert!(session.id.len() >= 32, "128 bits cannot be guessed");
            assert!(!ids.contains(&session.id), "the id is new");
            ids.push(session.id);
        }
        harness.finish();
    }
}

#[test]
fn s_sess_04_request_without_exactly_one_session_id_gets_400() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let http_requests = [
        session.post(1, "tools/list", Value::Null),
        ping(&session),
        session.notification("notifications/custom", Value::Null),
        session.get(),
        session.delete(),
    ];
    for http_request in http_requests {
        let shown = http_request.to_string();
        let without_id = harness.send(http_request.clone().without("mcp-session-id"));
        assert_eq!(harness.status(without_id), 400, "{shown}");
        let twice = harness.send(http_request.append("mcp-session-id", &session.id));
        assert_eq!(harness.status(twice), 400, "{shown}");
    }
    let answer = session.answer(&json!(1), json!({}));
    let without_id = harness.send(answer.without("mcp-session-id"));
    assert_eq!(harness.status(without_id), 400);
    assert!(harness.requests().is_empty() && harness.notified().is_empty());
    assert_eq!(harness.server.sessions(), 1);
    harness.finish();
}

#[test]
fn s_sess_05_ended_session_gets_404() {
    for is_deleted in [true, false] {
        let mut harness = Harness::new(config());
        let (ended, other) = (
            harness.open_session("2025-06-18"),
            harness.open_session("2025-06-18"),
        );
        let stream = harness.send(ended.get());
        if is_deleted {
            let deleted = harness.send(ended.delete());
            assert!((200..300).contains(&harness.status(deleted)));
        } else {
            harness.disconnect(stream);
            let alive = harness.send(other.get());
            harness.advance(seconds(31 * 60));
            assert!(!harness.is_over(alive));
        }
        assert!(harness.is_over(stream), "S-LHTTP-12");
        for http_request in [
            ping(&ended),
            ended.post(1, "tools/list", Value::Null),
            ended.notification("notifications/custom", Value::Null),
            ended.answer(&json!(1), json!({})),
            ended.get(),
            ended.resume("0-1"),
            ended.delete(),
        ] {
            let shown = http_request.to_string();
            let late = harness.send(http_request);
            assert_eq!(harness.status(late), 404, "{shown}");
        }
        let pong = harness.send(ping(&other));
        assert_eq!(harness.status(pong), 200, "other sessions are not affected");
        assert!(harness.requests().is_empty());
        harness.finish();
    }
}

/// S-SESS-05: the idle timeout of a session is configurable, and any activity resets it.
#[test]
fn s_sess_05_activity_resets_the_idle_timeout() {
    let mut http = Http::new();
    http.session_idle = seconds(60);
    let mut harness = Harness::new(http_config(http));
    let session = harness.open_session("2025-11-25");
    for _ in 0..5 {
        harness.advance(seconds(59));
        let pong = harness.send(ping(&session));
        assert_eq!(harness.status(pong), 200);
    }
    let (running, request) =
        harness.send_accepted(session.post(1, "tools/call", json!({"name": "slow"})));
    harness.advance(seconds(600));
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.result(running)["content"], json!([]));
    harness.advance(seconds(61));
    let late = harness.send(ping(&session));
    assert_eq!(harness.status(late), 404);
    harness.finish();
}

#[test]
fn s_sess_07_session_deletion_is_configurable() {
    let mut http = Http::new();
    http.may_delete = false;
    let mut harness = Harness::new(http_config(http));
    let session = harness.open_session("2025-11-25");
    let refused = harness.send(session.delete());
    assert_eq!(harness.status(refused), 405);
    let allowed = harness
        .field(refused, "allow")
        .expect("the response lists the allowed methods");
    assert!(!allowed.contains("DELETE") && allowed.contains("POST"));
    let pong = harness.send(ping(&session));
    assert_eq!(harness.status(pong), 200);
    harness.finish();

    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let (_, request) =
        harness.send_accepted(session.post(1, "tools/call", json!({"name": "slow"})));
    harness.send(session.delete());
    assert_eq!(harness.cancellations(), [(request, Cancelled::PeerGone)]);
    assert_eq!(
        (harness.server.sessions(), harness.server.requests()),
        (0, 0)
    );
    harness.finish();
}

#[test]
fn s_sess_09_session_id_of_another_user_gets_404() {
    let mut harness = Harness::new(config());
    let session = harness.open_session_by("2025-11-25", Some("ann"));
    let stream = harness.send(session.get());
    let http_requests = [
        ping(&session),
        session.post(1, "tools/list", Value::Null),
        session.notification("notifications/custom", Value::Null),
        session.get(),
        session.delete(),
    ];
    for user in [None, Some("eve"), Some("")] {
        for http_request in &http_requests {
            let sent = harness.send(http_request.clone().by(user));
            assert_eq!(harness.status(sent), 404, "{user:?}: {http_request}");
        }
    }
    assert!(
        !harness.is_over(stream),
        "the stream of the owner stays open"
    );
    assert!(harness.requests().is_empty() && harness.notified().is_empty());
    harness.send_accepted(session.post(1, "tools/list", Value::Null));
    assert_eq!(harness.requests()[0].user.as_deref(), Some("ann"));
    harness.finish();
}

/// S-LHTTP-21, S-HTTP-30: without the version field, the version of the session counts. Without a session, the client
/// is taken for one from before the field.
#[test]
fn s_lhttp_21_without_version_field_the_session_version_applies() {
    let mut harness = Harness::new(config());
    let batch = json!([{"jsonrpc": "2.0", "id": 1, "method": "ping"}]);
    for version in STREAMABLE {
        let session = harness.open_session(version);
        let pong = harness.send(ping(&session).without(VERSION));
        assert_eq!(harness.status(pong), 200, "{version}");
        let stream = harness.send(session.get().without(VERSION));
        assert_eq!(harness.status(stream), 200, "{version}");
        // Only 2025-03-26 has batches, so the response shows the version of the session.
        let sent = harness.send(session.post_message(&batch).without(VERSION));
        let expected = if version == "2025-03-26" { 200 } else { 400 };
        assert_eq!(harness.status(sent), expected, "{version}");
        let ended = harness.send(session.delete().without(VERSION));
        assert!((200..300).contains(&harness.status(ended)), "{version}");
    }
    // Without a session, the request is refused as legacy, not as a modern request that lacks a field.
    let bare = post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    let refused = harness.send_refused(bare);
    assert_eq!(refused, (400, -32600), "S-HTTP-30");
    harness.finish();
}

/// S-HTTP-31: within a session the field may be missing, even if all supported versions know it.
#[test]
fn s_http_31_version_field_is_optional_in_a_session() {
    let mut newer = config();
    newer.versions = Versions::since(Version::V2025_06_18);
    let mut harness = Harness::new(newer);
    let session = harness.open_session("2025-11-25");
    let pong = harness.send(ping(&session).without(VERSION));
    assert_eq!(harness.status(pong), 200);
    let bare = ping(&session).without(VERSION).without("mcp-session-id");
    assert_eq!(harness.send_refused(bare), (400, -32020));
    harness.finish();
}

/// S-LHTTP-22: a version in the field must be supported and must have sessions.
#[test]
fn s_lhttp_22_unsupported_or_modern_version_field_gets_400_in_a_session() {
    let mut newest = config();
    newest.versions = Versions::since(Version::V2025_11_25);
    let mut harness = Harness::new(newest);
    let session = harness.open_session("2025-11-25");
    let old = harness.send(ping(&session).with(VERSION, "2025-06-18"));
    assert_eq!(harness.status(old), 400);
    let modern = harness.send(session.get().with(VERSION, "2026-07-28"));
    assert_eq!(harness.status(modern), 400);
    let stream = harness.send(session.get());
    assert_eq!(harness.status(stream), 200);
    harness.finish();
}

/// S-LHTTP-23: 2025-03-26 does not know the field, so another version in it is ignored.
#[test]
fn s_lhttp_23_session_of_2025_03_26_ignores_the_version_field() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-03-26");
    let batch = json!([{"jsonrpc": "2.0", "id": 1, "method": "ping"}]);
    for named in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let sent = harness.send(session.post_message(&batch).with(VERSION, named));
        assert_eq!(harness.status(sent), 200, "{named}");
        assert_eq!(harness.result(sent), json!({}));
    }
    harness.finish();
}

/// S-LHTTP-23: an invalid version in the field is ignored, too.
#[test]
fn s_lhttp_23_session_of_2025_03_26_ignores_an_invalid_version_field() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-03-26");
    for named in ["1999-01-01", "latest", ""] {
        let sent = harness.send(ping(&session).with(VERSION, named));
        assert_eq!(harness.status(sent), 200, "{named}");
    }
    harness.finish();
}

/// S-LIFE-12: capabilities, log level and subscriptions belong to one session.
#[test]
fn s_life_12_capabilities_log_level_and_subscriptions_belong_to_one_session() {
    let mut harness = Harness::new(config());
    let with_roots = initialize_with("2025-11-25", &json!({"roots": {}}));
    let with_roots = harness.open_session_with(with_roots, "2025-11-25", None);
    let without_roots = initialize_with("2025-06-18", &json!({}));
    let without_roots = harness.open_session_with(without_roots, "2025-06-18", None);
    let (_, request) =
        harness.send_accepted(with_roots.post(1, "tools/call", json!({"name": "asks"})));
    harness.ask(request, "roots/list", Value::Null);
    let (_, request) =
        harness.send_accepted(without_roots.post(1, "tools/call", json!({"name": "asks"})));
    let asked = harness.with_server(|server, now| server.ask(now, request, "roots/list", None));
    assert!(asked.is_err());
    let streams = [
        harness.send(with_roots.get()),
        harness.send(without_roots.get()),
    ];
    let subscribe = json!({"uri": "file:///a"});
    let done = harness.send(with_roots.post(2, "resources/subscribe", subscribe));
    assert_eq!(harness.result(done), json!({}));
    let done = harness.send(with_roots.post(3, "logging/setLevel", json!({"level": "emergency"})));
    assert_eq!(harness.result(done), json!({}));
    harness.publish(Change::Resource {
        uri: "file:///a".into(),
    });
    let data = server_http::payload(&json!("loud"));
    harness
        .with_server(|server, now| {
            server.log(now, None, everlink::protocol::LogLevel::Alert, None, data)
        })
        .expect("logging is offered");
    let count = |at: usize, method: &str| harness.messages_with(streams[at], method).len();
    assert_eq!(count(0, "notifications/resources/updated"), 1);
    assert_eq!(count(1, "notifications/resources/updated"), 0);
    assert_eq!(count(0, "notifications/message"), 0);
    assert_eq!(count(1, "notifications/message"), 1);
    harness.finish();
}

/// S-LIFE-12: a handshake that names an existing session still opens a new one.
#[test]
fn s_life_12_second_handshake_opens_a_new_session_and_keeps_the_first() {
    let mut harness = Harness::new(config());
    let first = harness.open_session("2025-11-25");
    let (running, request) =
        harness.send_accepted(first.post(1, "tools/call", json!({"name": "slow"})));
    let begun = harness.send(initialize("2025-06-18").with("mcp-session-id", &first.id));
    assert_eq!(harness.result(begun)["protocolVersion"], "2025-06-18");
    let second = harness
        .field(begun, "mcp-session-id")
        .expect("the session has an id");
    assert_ne!(second, first.id);
    assert!(harness.cancellations().is_empty());
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.result(running)["content"], json!([]));
    assert_eq!(harness.server.sessions(), 2);
    harness.finish();
}

/// S-SESS-04: requests without a valid session id affect no session.
#[test]
fn s_sess_04_request_without_a_valid_session_id_affects_no_session() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let stream = harness.send(session.get());
    for http_request in [get(), delete(), get().with("mcp-session-id", "none")] {
        let sent = harness.send(http_request);
        assert!(harness.status(sent) >= 400);
    }
    harness.publish(Change::List(List::Tools));
    assert_eq!(harness.messages(stream).len(), 1);
    harness.finish();
}

#[test]
fn message_without_a_reply_restarts_the_idle_time() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    for _ in 0..3 {
        harness.advance(seconds(29 * 60));
        let notified = session.notification("notifications/custom", Value::Null);
        let notified = harness.send(notified);
        assert_eq!(harness.status(notified), 202);
    }
    harness.finish();
}

#[test]
fn idle_time_begins_when_the_last_response_ends() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let called = session.post(1, "tools/call", json!({"name": "slow"}));
    let (_, request) = harness.send_accepted(called);
    harness.advance(seconds(20 * 60));
    harness.respond(request, json!({"content": []}));
    harness.advance(seconds(29 * 60));
    assert_eq!(harness.server.sessions(), 1);
    harness.advance(seconds(60));
    assert_eq!(harness.server.sessions(), 0);
    harness.finish();
}

#[test]
fn refusals_in_a_session_are_replies_and_not_reported() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let without_uri = session.post(1, "resources/subscribe", json!({}));
    assert_eq!(harness.send_refused(without_uri), (200, -32602));
    let unknown = session.post(2, "no/such", json!({}));
    assert_eq!(harness.send_refused(unknown), (200, -32601));
    let unknown = server_http::modern(3, "no/such", json!({}));
    assert_eq!(harness.send_refused(unknown), (404, -32601));
    assert!(harness.refusals().is_empty());
    harness.finish();
}

#[test]
fn client_of_a_session_that_ended_cannot_be_notified() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    harness.send_accepted(session.post(1, "tools/call", json!({"name": "slow"})));
    let caller = harness.requests()[0].caller.clone();
    let notify = |harness: &mut Harness| {
        harness
            .with_server(|server, now| server.notify_to(now, &caller, "notifications/custom", None))
    };
    assert_eq!(notify(&mut harness), Ok(()));
    harness.send(session.delete());
    assert_eq!(notify(&mut harness), Err(Misuse::NoLegacyPeer));
    harness.finish();
}
