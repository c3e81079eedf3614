//! The sessions of legacy servers over HTTP, and the listen stream.

use core::time::Duration;

use crate::client_http::{
    self, Harness, LEGACY, config, error, every_chunking, initialize_result, notification, result,
    seconds,
};
use everlink::client::{Cause, Delivery, Event, FailureKind, State};
use everlink::http::Verb;
use everlink::protocol::LogLevel;
use everlink::{Change, Dialect, FaultKind, List, StreamId, Watch};
use serde_json::json;

/// Answers a new handshake with this session.
fn answer_new_handshake(harness: &mut Harness, session: &str) {
    let post = harness.next_post("initialize");
    assert_eq!(post.field("mcp-session-id"), None);
    assert_eq!(post.field("mcp-protocol-version"), None);
    let fields = [
        ("content-type", "application/json"),
        ("mcp-session-id", session),
    ];
    let body = result(&post, initialize_result("2025-11-25")).to_string();
    harness.respond(post.stream, 200, &fields, &body);
    let post = harness.next_post("notifications/initialized");
    assert_eq!(post.field("mcp-session-id"), Some(session));
    harness.status(post.stream, 202);
    assert_eq!(harness.client.state(), State::Ready);
    harness.refuse_listen();
}

#[test]
fn s_sess_06_404_with_session_id_starts_a_new_session() {
    for version in LEGACY {
        every_chunking(|chunking| {
            let mut harness = Harness::ready(version).chunked(chunking);
            let call = harness.call("tools/call", json!({"name": "add"}));
            let post = harness.next_post("tools/call");
            let gone = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32_001, "message": "Session not found"}});
            harness.json(post.stream, 404, &gone);
            assert!(!harness.is_settled(call), "the call did not run");
            harness.advance(seconds(1));
            answer_new_handshake(&mut harness, "s-2");
            let post = harness.next_post("tools/call");
            assert_eq!(post.field("mcp-session-id"), Some("s-2"));
            harness.reply_with(&post, json!({"content": []}));
            assert!(harness.reply(call).is_ok());
        });
    }
}

/// S-SESS-06: the refusal of a notification also shows that the session is lost.
#[test]
fn s_sess_06_404_to_a_notification_starts_a_new_session() {
    let mut harness = Harness::legacy();
    harness.notify("notifications/example", &json!({}));
    let post = harness.next_post("notifications/example");
    harness.status(post.stream, 404);
    assert!(harness.has_event(|e| matches!(
        e,
        Event::Closing {
            cause: Cause::SessionLost,
            ..
        }
    )));
    harness.advance(seconds(1));
    answer_new_handshake(&mut harness, "s-2");
}

/// S-SESS-06: without a session, a 404 has another meaning.
#[test]
fn s_sess_06_404_without_a_session_fails_only_its_call() {
    for is_modern in [false, true] {
        let mut harness = if is_modern {
            Harness::modern()
        } else {
            let mut settings = config();
            settings.dialect = Dialect::Legacy;
            let mut harness = Harness::new(settings);
            harness.connect();
            harness.agree_legacy("2025-11-25", None);
            harness
        };
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.status(post.stream, 404);
        assert_eq!(
            harness.failure(call).kind,
            FailureKind::Status {
                status: 404,
                said: None
            }
        );
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.json(post.stream, 404, &error(&post, -32_601));
        assert_eq!(harness.reply(call), Err(-32_601));
        assert_eq!(harness.client.state(), State::Ready);
    }
}

/// S-LIFE-12: subscriptions and log level belong to the session, and the link repeats them in the next one.
#[test]
fn s_life_12_subscriptions_and_log_level_are_repeated_in_the_next_session() {
    let watch = Watch::none().and_uri("file:///a").and_logs(LogLevel::Error);
    let mut settings = config();
    settings.watch = watch.clone();
    let mut harness = Harness::legacy_with(settings, "2025-11-25");
    let agree_on_watch = |harness: &mut Harness, session: &str| {
        for method in ["resources/subscribe", "logging/setLevel"] {
            let post = harness.next_post(method);
            assert_eq!(post.field("mcp-session-id"), Some(session));
            harness.json(post.stream, 200, &result(&post, json!({})));
        }
    };
    agree_on_watch(&mut harness, "s-1");
    assert_eq!(harness.granted(), Some(watch));
    harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 404);
    harness.advance(seconds(1));
    let post = harness.next_post("initialize");
    let mut other = initialize_result("2025-06-18");
    other["capabilities"] = json!({"resources": {"subscribe": true}, "logging": {}});
    let fields = [
        ("content-type", "application/json"),
        ("mcp-session-id", "s-2"),
    ];
    harness.respond(post.stream, 200, &fields, &result(&post, other).to_string());
    let post = harness.next_post("notifications/initialized");
    harness.status(post.stream, 202);
    harness.refuse_listen();
    agree_on_watch(&mut harness, "s-2");
    let session = harness.client.session().expect("ready");
    assert_eq!(session.version.as_str(), "2025-06-18");
    assert!(
        !session
            .capabilities
            .offers(everlink::protocol::ServerFeature::Tools)
    );
}

#[test]
fn s_sess_07_shutdown_ends_the_session_with_delete() {
    for version in LEGACY {
        for status in [200, 202, 204, 404, 405, 500] {
            let mut harness = Harness::ready(version);
            harness.shutdown();
            let delete = harness.next_exchange(Verb::Delete);
            assert_eq!(delete.target, client_http::URL);
            assert_eq!(delete.field("mcp-session-id"), Some("s-1"));
            assert_eq!(delete.body, json!(null));
            harness.status(delete.stream, status);
            assert_eq!(harness.client.state(), State::Closed, "{status}");
        }
    }
    let mut harness = Harness::legacy();
    harness.shutdown();
    let delete = harness.next_exchange(Verb::Delete);
    harness.fail(delete.stream, FaultKind::Refused);
    assert_eq!(harness.client.state(), State::Closed);
}

/// S-SESS-07: the link does not end a lost session, and a modern server has no session.
#[test]
fn s_sess_07_lost_session_and_modern_link_send_no_delete() {
    let mut harness = Harness::legacy();
    harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 404);
    harness.advance(seconds(1));
    assert!(
        harness
            .exchanges
            .iter()
            .all(|exchange| exchange.verb != Verb::Delete)
    );
    let mut harness = Harness::modern();
    harness.shutdown();
    assert_eq!(harness.client.state(), State::Closed);
    assert!(
        harness
            .exchanges
            .iter()
            .all(|exchange| exchange.verb != Verb::Delete)
    );
}

/// S-SESS-07: the link also ends a session that it replaces.
#[test]
fn s_sess_07_planned_reconnect_ends_the_session_with_delete() {
    let mut harness = Harness::legacy();
    harness
        .client
        .reconnect(harness.now, harness.client.epoch(), "to see");
    harness.pump();
    let delete = harness.next_exchange(Verb::Delete);
    assert_eq!(delete.field("mcp-session-id"), Some("s-1"));
    harness.status(delete.stream, 204);
    harness.advance(seconds(1));
    answer_new_handshake(&mut harness, "s-2");
}

/// S-SESS-02, S-SESS-08: an invalid session id is never sent, and no id is shown.
#[test]
fn s_sess_02_invalid_session_id_is_never_sent() {
    for id in ["", "a b", "a\u{7f}", "é"] {
        let mut settings = config();
        settings.dialect = Dialect::Legacy;
        let mut harness = Harness::new(settings);
        harness.connect();
        let post = harness.next_post("initialize");
        let fields = [("content-type", "application/json"), ("mcp-session-id", id)];
        let body = result(&post, initialize_result("2025-11-25")).to_string();
        harness.respond(post.stream, 200, &fields, &body);
        for exchange in &harness.exchanges {
            assert_eq!(exchange.field("mcp-session-id"), None, "{id:?}");
        }
    }
    let harness = Harness::legacy();
    assert!(!format!("{:?} {:?}", harness.client, harness.events).contains("s-1"));
}

#[test]
fn s_lhttp_13_listen_stream_is_requested_after_the_legacy_handshake() {
    for version in LEGACY {
        let mut settings = config();
        settings.dialect = Dialect::Legacy;
        let mut harness = Harness::new(settings);
        harness.connect();
        assert!(
            harness
                .exchanges
                .iter()
                .all(|exchange| exchange.verb != Verb::Get),
            "not before the handshake"
        );
        harness.agree_legacy_awaiting_listen(version, Some("s-1"));
        let listen = harness.next_exchange(Verb::Get);
        assert_eq!(listen.target, client_http::URL);
        assert_eq!(listen.field("accept"), Some("text/event-stream"));
        assert_eq!(listen.field("last-event-id"), None);
        assert_eq!(listen.body, json!(null));
    }
    let mut settings = config();
    if let Some(http) = settings.binding.http_mut() {
        http.listens = false;
    }
    let harness = Harness::legacy_with(settings, "2025-11-25");
    assert!(
        harness
            .exchanges
            .iter()
            .all(|exchange| exchange.verb != Verb::Get),
        "not if the configuration disables it"
    );
    let harness = Harness::modern();
    assert!(
        harness
            .exchanges
            .iter()
            .all(|exchange| exchange.verb != Verb::Get),
        "not from a modern server"
    );
}

/// S-LHTTP-13, S-LHTTP-14: 405 means that there is no listen stream, and is no failure.
#[test]
fn s_lhttp_13_listen_request_refused_with_405_is_not_repeated() {
    let mut harness = Harness::legacy_awaiting_listen();
    let listen = harness.next_exchange(Verb::Get);
    harness.status(listen.stream, 405);
    assert_eq!(harness.client.state(), State::Ready);
    harness.advance(seconds(25));
    assert!(
        harness
            .find(|exchange| exchange.verb == Verb::Get)
            .is_none()
    );
}

/// S-LHTTP-13, S-LHTTP-15: servers drop their own asks while nobody listens. Calls therefore wait until the request for the listen stream
/// is decided.
#[test]
fn s_lhttp_13_calls_wait_until_the_listen_request_is_decided() {
    let decisions: [fn(&mut Harness, StreamId); 4] = [
        |harness, listen| harness.begin_stream(listen),
        |harness, listen| harness.status(listen, 405),
        |harness, listen| harness.status(listen, 503),
        |harness, listen| harness.fail(listen, FaultKind::Reset),
    ];
    for decide in decisions {
        let mut harness = Harness::legacy_awaiting_listen();
        let listen = harness.next_exchange(Verb::Get);
        harness.call("tools/call", json!({"name": "add"}));
        harness.advance(Duration::from_millis(900));
        assert!(harness.exchanges_of("tools/call").is_empty());
        decide(&mut harness, listen.stream);
        harness.next_post("tools/call");
        assert_eq!(harness.client.state(), State::Ready);
    }
}

/// S-LHTTP-13: some servers send no response head on the listen stream before their first message.
#[test]
fn s_lhttp_13_calls_wait_at_most_1_s_for_the_listen_response() {
    let mut harness = Harness::legacy_awaiting_listen();
    let listen = harness.next_exchange(Verb::Get);
    harness.call("tools/call", json!({"name": "add"}));
    harness.advance(seconds(1));
    harness.next_post("tools/call");
    assert!(harness.aborted.is_empty());
    harness.begin_stream(listen.stream);
    harness.event(
        listen.stream,
        None,
        &client_http::ask_message("p", "ping", &json!({})),
    );
    assert!(
        harness
            .find(|exchange| exchange.body["id"] == "p")
            .is_some()
    );

    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    if let Some(http) = settings.binding.http_mut() {
        http.listen_patience = Duration::ZERO;
    }
    let mut harness = Harness::new(settings);
    harness.connect();
    harness.agree_legacy_awaiting_listen("2025-11-25", Some("s-1"));
    harness.next_exchange(Verb::Get);
    harness.call("tools/call", json!({"name": "add"}));
    harness.next_post("tools/call");
}

/// S-LHTTP-13: a stream that ends later is asked for again, and calls do not wait for it.
#[test]
fn s_lhttp_13_calls_do_not_wait_for_a_listen_stream_that_ended() {
    let mut harness = Harness::legacy_awaiting_listen();
    let listen = harness.next_exchange(Verb::Get);
    harness.begin_stream(listen.stream);
    harness.end(listen.stream);
    harness.advance(seconds(2));
    harness.next_exchange(Verb::Get);
    harness.call("tools/call", json!({"name": "add"}));
    harness.next_post("tools/call");
}

/// While the link drains, it still replies to asks of running calls. It waits for the listen stream or for a pause no longer than before.
#[test]
fn s_lhttp_13_draining_link_answers_a_ping_after_1_s() {
    let waits: [fn(&mut Harness); 2] = [
        |harness| {
            harness.call("tools/call", json!({"name": "see"}));
            let post = harness.next_post("tools/call");
            harness.status(post.stream, 401);
            harness.client.authorized(harness.now);
            harness.pump();
            harness.next_exchange(Verb::Get);
        },
        |harness| {
            harness.call("tools/call", json!({"name": "see"}));
            let post = harness.next_post("tools/call");
            let fields = [("retry-after", "1")];
            harness.respond(post.stream, 429, &fields, "");
        },
    ];
    for wait in waits {
        let mut harness = Harness::legacy_awaiting_listen();
        let listen = harness.next_exchange(Verb::Get);
        harness.status(listen.stream, 401);
        let call = harness.call("tools/call", json!({"name": "act"}));
        let post = harness.next_post("tools/call");
        harness.begin_stream(post.stream);
        wait(&mut harness);
        harness
            .client
            .reconnect(harness.now, harness.client.epoch(), "asked to");
        harness.pump();
        assert_eq!(harness.client.state(), State::Draining);
        let ask = client_http::ask_message("p", "ping", &json!({}));
        harness.event(post.stream, None, &ask);
        assert!(
            harness
                .find(|exchange| exchange.body["id"] == "p")
                .is_none()
        );
        harness.advance(seconds(1));
        assert!(
            harness
                .find(|exchange| exchange.body["id"] == "p")
                .is_some()
        );
        harness.event(post.stream, None, &result(&post, json!({"content": []})));
        assert!(harness.reply(call).is_ok());
    }
}

/// S-SESS-06: any request with a session id can show that the session is lost.
#[test]
fn s_sess_06_404_to_the_listen_request_leads_to_a_new_session() {
    let mut harness = Harness::legacy_awaiting_listen();
    let listen = harness.next_exchange(Verb::Get);
    harness.status(listen.stream, 404);
    // The 404 may mean the stream or the session, so the link may send a ping to find out.
    if let Some(ping) = harness.find(|exchange| exchange.method() == "ping") {
        harness.status(ping.stream, 404);
    }
    harness.advance(seconds(1));
    answer_new_handshake(&mut harness, "s-2");
}

#[test]
fn s_lhttp_15_messages_on_the_listen_stream_are_processed() {
    every_chunking(|chunking| {
        let mut harness = Harness::legacy_awaiting_listen().chunked(chunking);
        let listen = harness.next_exchange(Verb::Get);
        harness.begin_stream(listen.stream);
        let change = notification("notifications/tools/list_changed", &json!({}));
        harness.event(listen.stream, None, &change);
        assert_eq!(harness.changes(), [Change::List(List::Tools)]);
        harness.event(
            listen.stream,
            None,
            &client_http::ask_message("p", "ping", &json!({})),
        );
        let pong = harness
            .find(|exchange| exchange.body["id"] == "p")
            .expect("an answer");
        assert_eq!(pong.body["result"], json!({}));
    });
}

/// S-LHTTP-17: the link asks again for a stream that the server closed, after the server's retry delay.
#[test]
fn s_lhttp_17_closed_listen_stream_is_requested_again_after_the_retry_delay() {
    let mut harness = Harness::legacy_awaiting_listen();
    let listen = harness.next_exchange(Verb::Get);
    harness.begin_stream(listen.stream);
    harness.bytes(listen.stream, b"id: 9\nretry: 3000\ndata:\n\n");
    harness.end(listen.stream);
    let closed = harness.now;
    assert_eq!(harness.client.state(), State::Ready);
    harness.advance(seconds(4));
    let again = harness.next_exchange(Verb::Get);
    assert_eq!(again.at.since(closed), seconds(3));
    assert_eq!(again.field("last-event-id"), Some("9"));
    harness.begin_stream(again.stream);
    harness.shutdown();
    assert!(!harness.is_open(again.stream), "shutdown closes the stream");
}

#[test]
fn s_lhttp_18_interleaved_streams_are_read_independently() {
    every_chunking(|chunking| {
        let mut harness = Harness::legacy_awaiting_listen().chunked(chunking);
        let listen = harness.next_exchange(Verb::Get);
        harness.begin_stream(listen.stream);
        let calls = [1, 2].map(|_| harness.call("tools/call", json!({"name": "add"})));
        let posts = calls.map(|_| harness.next_post("tools/call"));
        for post in &posts {
            harness.begin_stream(post.stream);
        }
        // The bytes of different streams may interleave in any way.
        let replies = posts
            .clone()
            .map(|post| result(&post, json!({"content": []})).to_string());
        harness.bytes(posts[0].stream, b"data: ");
        harness.bytes(listen.stream, b"event: message\nda");
        harness.bytes(posts[1].stream, b"id: 1\ndata: ");
        harness.bytes(posts[0].stream, replies[0].as_bytes());
        harness.bytes(posts[1].stream, replies[1].as_bytes());
        let change = notification("notifications/prompts/list_changed", &json!({}));
        harness.bytes(listen.stream, format!("ta: {change}\n\n").as_bytes());
        assert_eq!(harness.changes(), [Change::List(List::Prompts)]);
        harness.bytes(posts[1].stream, b"\n\n");
        assert!(harness.reply(calls[1]).is_ok());
        harness.bytes(posts[0].stream, b"\n\n");
        assert!(harness.reply(calls[0]).is_ok());
    });
}

/// S-SESS-05: a call that was running when the session ended may have run.
#[test]
fn s_sess_05_call_running_in_a_lost_session_fails_with_delivery_unknown() {
    let mut harness = Harness::legacy();
    let working = harness.call("tools/call", json!({"name": "act"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    harness.call("tools/call", json!({"name": "see"}));
    let seeing = harness.next_post("tools/call");
    harness.status(seeing.stream, 404);
    harness.advance(seconds(30));
    let failure = harness.failure(working);
    assert_eq!(failure.delivery, Delivery::Unknown, "{failure}");
}

#[test]
fn s_sess_02_session_id_may_have_1024_bytes() {
    for (len, is_used) in [(1_024, true), (1_025, false)] {
        let mut settings = config();
        settings.dialect = Dialect::Legacy;
        let mut harness = Harness::new(settings);
        harness.connect();
        let id = "s".repeat(len);
        harness.answer_initialize(&id);
        let post = harness.next_post("notifications/initialized");
        let used = post.field("mcp-session-id");
        assert_eq!(used, is_used.then_some(&*id), "{len}");
    }
}

/// What the server of an earlier session accepted says nothing about the next one.
#[test]
fn session_that_ended_does_not_keep_initialized_from_being_sent_again() {
    let mut harness = Harness::legacy();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 404);
    harness.advance(seconds(1));
    harness.answer_initialize("s-2");
    let initialized = harness.next_post("notifications/initialized");
    harness.status(initialized.stream, 500);
    harness.refuse_listen();
    let post = harness.next_post("tools/call");
    harness.serve(&post);
    assert!(harness.reply(call).is_ok());
    harness.next_post("notifications/initialized");
}
