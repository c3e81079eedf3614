//! The sessions of legacy servers over HTTP, and the listen stream.

use core::time::Duration;

use crate::client_http::{
    self, LEGACY, Web, config, error, every_chunking, introduction, notification, result, seconds,
};
use everlink::client::{Cause, Delivery, Event, FailureKind, State};
use everlink::http::Verb;
use everlink::protocol::LogLevel;
use everlink::{Change, Dialect, FaultKind, List, StreamId, Watch};
use serde_json::json;

/// Answers a new handshake with this session.
fn agree_again(web: &mut Web, session: &str) {
    let post = web.posted("initialize");
    assert_eq!(post.field("mcp-session-id"), None);
    assert_eq!(post.field("mcp-protocol-version"), None);
    let fields = [
        ("content-type", "application/json"),
        ("mcp-session-id", session),
    ];
    let body = result(&post, introduction("2025-11-25")).to_string();
    web.respond(post.stream, 200, &fields, &body);
    let post = web.posted("notifications/initialized");
    assert_eq!(post.field("mcp-session-id"), Some(session));
    web.status(post.stream, 202);
    assert_eq!(web.client.state(), State::Ready);
    web.no_news();
}

#[test]
fn s_sess_06_a_session_that_is_not_found_is_begun_anew() {
    for version in LEGACY {
        every_chunking(|chunking| {
            let mut web = Web::speaking(version).chunked(chunking);
            let call = web.call("tools/call", json!({"name": "add"}));
            let post = web.posted("tools/call");
            let gone = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32_001, "message": "Session not found"}});
            web.json(post.stream, 404, &gone);
            assert!(!web.is_settled(call), "it was not run");
            web.pass(seconds(1));
            agree_again(&mut web, "s-2");
            let post = web.posted("tools/call");
            assert_eq!(post.field("mcp-session-id"), Some("s-2"));
            web.reply_with(&post, json!({"content": []}));
            assert!(web.reply(call).is_ok());
        });
    }
}

/// S-SESS-06: the refusal of a notification also shows that the session is lost.
#[test]
fn s_sess_06_a_notification_or_an_answer_shows_it_too() {
    let mut web = Web::legacy();
    web.notify("notifications/example", &json!({}));
    let post = web.posted("notifications/example");
    web.status(post.stream, 404);
    assert!(web.was_told(|e| matches!(
        e,
        Event::Closing {
            cause: Cause::SessionLost,
            ..
        }
    )));
    web.pass(seconds(1));
    agree_again(&mut web, "s-2");
}

/// S-SESS-06: without a session, a 404 has another meaning.
#[test]
fn s_sess_06_without_a_session_none_is_lost() {
    for is_modern in [false, true] {
        let mut web = if is_modern {
            Web::modern()
        } else {
            let mut settings = config();
            settings.dialect = Dialect::Legacy;
            let mut web = Web::new(settings);
            web.connect();
            web.agree_legacy("2025-11-25", None);
            web
        };
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.status(post.stream, 404);
        assert_eq!(
            web.failure(call).kind,
            FailureKind::Status {
                status: 404,
                said: None
            }
        );
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.json(post.stream, 404, &error(&post, -32_601));
        assert_eq!(web.reply(call), Err(-32_601));
        assert_eq!(web.client.state(), State::Ready);
    }
}

/// S-LIFE-12: subscriptions and log level belong to the session, and the link repeats them in the next one.
#[test]
fn s_life_12_the_next_session_knows_nothing_of_the_last_one() {
    let wish = Watch::none().and_uri("file:///a").and_logs(LogLevel::Error);
    let mut settings = config();
    settings.watch = wish.clone();
    let mut web = Web::legacy_with(settings, "2025-11-25");
    let agree_on_watch = |web: &mut Web, session: &str| {
        for method in ["resources/subscribe", "logging/setLevel"] {
            let post = web.posted(method);
            assert_eq!(post.field("mcp-session-id"), Some(session));
            web.json(post.stream, 200, &result(&post, json!({})));
        }
    };
    agree_on_watch(&mut web, "s-1");
    assert_eq!(web.granted(), Some(wish));
    web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.status(post.stream, 404);
    web.pass(seconds(1));
    let post = web.posted("initialize");
    let mut other = introduction("2025-06-18");
    other["capabilities"] = json!({"resources": {"subscribe": true}, "logging": {}});
    let fields = [
        ("content-type", "application/json"),
        ("mcp-session-id", "s-2"),
    ];
    web.respond(post.stream, 200, &fields, &result(&post, other).to_string());
    let post = web.posted("notifications/initialized");
    web.status(post.stream, 202);
    web.no_news();
    agree_on_watch(&mut web, "s-2");
    let session = web.client.session().expect("ready");
    assert_eq!(session.version.as_str(), "2025-06-18");
    assert!(
        !session
            .capabilities
            .offers(everlink::protocol::ServerFeature::Tools)
    );
}

#[test]
fn s_sess_07_a_session_is_ended_when_it_is_not_needed() {
    for version in LEGACY {
        for status in [200, 202, 204, 404, 405, 500] {
            let mut web = Web::speaking(version);
            web.shutdown();
            let farewell = web.begun(Verb::Delete);
            assert_eq!(farewell.target, client_http::URL);
            assert_eq!(farewell.field("mcp-session-id"), Some("s-1"));
            assert_eq!(farewell.body, json!(null));
            web.status(farewell.stream, status);
            assert_eq!(web.client.state(), State::Closed, "{status}");
        }
    }
    let mut web = Web::legacy();
    web.shutdown();
    let farewell = web.begun(Verb::Delete);
    web.fail(farewell.stream, FaultKind::Refused);
    assert_eq!(web.client.state(), State::Closed);
}

/// S-SESS-07: the link does not end a lost session, and a modern server has no session.
#[test]
fn s_sess_07_what_is_over_is_not_ended_again() {
    let mut web = Web::legacy();
    web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.status(post.stream, 404);
    web.pass(seconds(1));
    assert!(web.all.iter().all(|begun| begun.verb != Verb::Delete));
    let mut web = Web::modern();
    web.shutdown();
    assert_eq!(web.client.state(), State::Closed);
    assert!(web.all.iter().all(|begun| begun.verb != Verb::Delete));
}

/// S-SESS-07: the link also ends a session that it replaces.
#[test]
fn s_sess_07_a_planned_reconnect_takes_leave_of_the_session() {
    let mut web = Web::legacy();
    web.client.reconnect(web.now, web.client.epoch(), "to see");
    web.pump();
    let farewell = web.begun(Verb::Delete);
    assert_eq!(farewell.field("mcp-session-id"), Some("s-1"));
    web.status(farewell.stream, 204);
    web.pass(seconds(1));
    agree_again(&mut web, "s-2");
}

/// S-SESS-02, S-SESS-08: an invalid session id is never sent, and no id is shown.
#[test]
fn s_sess_02_an_id_that_could_break_a_request_is_never_sent() {
    for id in ["", "a b", "a\u{7f}", "é"] {
        let mut settings = config();
        settings.dialect = Dialect::Legacy;
        let mut web = Web::new(settings);
        web.connect();
        let post = web.posted("initialize");
        let fields = [("content-type", "application/json"), ("mcp-session-id", id)];
        let body = result(&post, introduction("2025-11-25")).to_string();
        web.respond(post.stream, 200, &fields, &body);
        for begun in &web.all {
            assert_eq!(begun.field("mcp-session-id"), None, "{id:?}");
        }
    }
    let web = Web::legacy();
    assert!(!format!("{:?} {:?}", web.client, web.events).contains("s-1"));
}

#[test]
fn s_lhttp_13_the_stream_of_what_a_server_says_by_itself_is_asked_for() {
    for version in LEGACY {
        let mut settings = config();
        settings.dialect = Dialect::Legacy;
        let mut web = Web::new(settings);
        web.connect();
        assert!(
            web.all.iter().all(|begun| begun.verb != Verb::Get),
            "not before the handshake"
        );
        web.agree_with_news(version, Some("s-1"));
        let listen = web.begun(Verb::Get);
        assert_eq!(listen.target, client_http::URL);
        assert_eq!(listen.field("accept"), Some("text/event-stream"));
        assert_eq!(listen.field("last-event-id"), None);
        assert_eq!(listen.body, json!(null));
    }
    let mut settings = config();
    if let Some(http) = &mut settings.http {
        http.listens = false;
    }
    let web = Web::legacy_with(settings, "2025-11-25");
    assert!(
        web.all.iter().all(|begun| begun.verb != Verb::Get),
        "nor where it is not wanted"
    );
    let web = Web::modern();
    assert!(
        web.all.iter().all(|begun| begun.verb != Verb::Get),
        "nor of a modern one"
    );
}

/// S-LHTTP-13, S-LHTTP-14: 405 means that there is no listen stream, and is no failure.
#[test]
fn s_lhttp_13_a_server_without_such_a_stream_is_not_asked_again() {
    let mut web = Web::legacy_with_news();
    let listen = web.begun(Verb::Get);
    web.status(listen.stream, 405);
    assert_eq!(web.client.state(), State::Ready);
    web.pass(seconds(25));
    assert!(web.find(|begun| begun.verb == Verb::Get).is_none());
}

/// S-LHTTP-13, S-LHTTP-15: servers drop their own asks while nobody listens. Calls therefore wait until the request for the listen stream
/// is decided.
#[test]
fn s_lhttp_13_nothing_is_called_before_the_server_can_be_heard() {
    let fates: [fn(&mut Web, StreamId); 4] = [
        |web, listen| web.stream(listen),
        |web, listen| web.status(listen, 405),
        |web, listen| web.status(listen, 503),
        |web, listen| web.fail(listen, FaultKind::Reset),
    ];
    for decide in fates {
        let mut web = Web::legacy_with_news();
        let listen = web.begun(Verb::Get);
        web.call("tools/call", json!({"name": "add"}));
        web.pass(Duration::from_millis(900));
        assert!(web.carrying("tools/call").is_empty());
        decide(&mut web, listen.stream);
        web.posted("tools/call");
        assert_eq!(web.client.state(), State::Ready);
    }
}

/// S-LHTTP-13: some servers send no response head on the listen stream before their first message.
#[test]
fn s_lhttp_13_a_stream_that_is_silent_from_the_start_is_waited_for_for_a_second_and_not_given_up() {
    let mut web = Web::legacy_with_news();
    let listen = web.begun(Verb::Get);
    web.call("tools/call", json!({"name": "add"}));
    web.pass(seconds(1));
    web.posted("tools/call");
    assert!(web.aborted.is_empty());
    web.stream(listen.stream);
    web.event(
        listen.stream,
        None,
        &client_http::question("p", "ping", &json!({})),
    );
    assert!(web.find(|begun| begun.body["id"] == "p").is_some());

    let mut settings = config();
    settings.dialect = Dialect::Legacy;
    if let Some(http) = &mut settings.http {
        http.listen_patience = Duration::ZERO;
    }
    let mut web = Web::new(settings);
    web.connect();
    web.agree_with_news("2025-11-25", Some("s-1"));
    web.begun(Verb::Get);
    web.call("tools/call", json!({"name": "add"}));
    web.posted("tools/call");
}

/// S-LHTTP-13: a stream that ends later is asked for again, and calls do not wait for it.
#[test]
fn s_lhttp_13_a_stream_that_ended_is_not_waited_for() {
    let mut web = Web::legacy_with_news();
    let listen = web.begun(Verb::Get);
    web.stream(listen.stream);
    web.end(listen.stream);
    web.pass(seconds(2));
    web.begun(Verb::Get);
    web.call("tools/call", json!({"name": "add"}));
    web.posted("tools/call");
}

/// While the link drains, it still replies to asks of running calls. It waits for the listen stream or for a pause no longer than before.
#[test]
fn s_lhttp_13_what_is_waited_for_is_not_waited_for_for_ever_while_draining() {
    let waits: [fn(&mut Web); 2] = [
        |web| {
            web.call("tools/call", json!({"name": "see"}));
            let post = web.posted("tools/call");
            web.status(post.stream, 401);
            web.client.authorized(web.now);
            web.pump();
            web.begun(Verb::Get);
        },
        |web| {
            web.call("tools/call", json!({"name": "see"}));
            let post = web.posted("tools/call");
            let fields = [("retry-after", "1")];
            web.respond(post.stream, 429, &fields, "");
        },
    ];
    for wait in waits {
        let mut web = Web::legacy_with_news();
        let listen = web.begun(Verb::Get);
        web.status(listen.stream, 401);
        let call = web.call("tools/call", json!({"name": "act"}));
        let post = web.posted("tools/call");
        web.stream(post.stream);
        wait(&mut web);
        web.client
            .reconnect(web.now, web.client.epoch(), "asked to");
        web.pump();
        assert_eq!(web.client.state(), State::Draining);
        let question = client_http::question("p", "ping", &json!({}));
        web.event(post.stream, None, &question);
        assert!(web.find(|begun| begun.body["id"] == "p").is_none());
        web.pass(seconds(1));
        assert!(web.find(|begun| begun.body["id"] == "p").is_some());
        web.event(post.stream, None, &result(&post, json!({"content": []})));
        assert!(web.reply(call).is_ok());
    }
}

/// S-SESS-06: any request with a session id can show that the session is lost.
#[test]
fn s_sess_06_a_stream_that_is_not_found_shows_it_too() {
    let mut web = Web::legacy_with_news();
    let listen = web.begun(Verb::Get);
    web.status(listen.stream, 404);
    // The 404 may mean the stream or the session, so the link may send a ping to find out.
    if let Some(ping) = web.find(|begun| begun.method() == "ping") {
        web.status(ping.stream, 404);
    }
    web.pass(seconds(1));
    agree_again(&mut web, "s-2");
}

#[test]
fn s_lhttp_15_what_comes_on_it_is_heard() {
    every_chunking(|chunking| {
        let mut web = Web::legacy_with_news().chunked(chunking);
        let listen = web.begun(Verb::Get);
        web.stream(listen.stream);
        let news = notification("notifications/tools/list_changed", &json!({}));
        web.event(listen.stream, None, &news);
        assert_eq!(web.changes(), [Change::List(List::Tools)]);
        web.event(
            listen.stream,
            None,
            &client_http::question("p", "ping", &json!({})),
        );
        let pong = web
            .find(|begun| begun.body["id"] == "p")
            .expect("an answer");
        assert_eq!(pong.body["result"], json!({}));
    });
}

/// S-LHTTP-17: the link asks again for a stream that the server closed, after the server's retry delay.
#[test]
fn s_lhttp_17_either_side_may_close_it_at_any_time() {
    let mut web = Web::legacy_with_news();
    let listen = web.begun(Verb::Get);
    web.stream(listen.stream);
    web.bytes(listen.stream, b"id: 9\nretry: 3000\ndata:\n\n");
    web.end(listen.stream);
    let closed = web.now;
    assert_eq!(web.client.state(), State::Ready);
    web.pass(seconds(4));
    let again = web.begun(Verb::Get);
    assert_eq!(again.at.since(closed), seconds(3));
    assert_eq!(again.field("last-event-id"), Some("9"));
    web.stream(again.stream);
    web.shutdown();
    assert!(!web.is_open(again.stream), "and we close it when we go");
}

#[test]
fn s_lhttp_18_several_streams_are_open_at_once() {
    every_chunking(|chunking| {
        let mut web = Web::legacy_with_news().chunked(chunking);
        let listen = web.begun(Verb::Get);
        web.stream(listen.stream);
        let calls = [1, 2].map(|_| web.call("tools/call", json!({"name": "add"})));
        let posts = calls.map(|_| web.posted("tools/call"));
        for post in &posts {
            web.stream(post.stream);
        }
        // The bytes of different streams may interleave in any way.
        let replies = posts
            .clone()
            .map(|post| result(&post, json!({"content": []})).to_string());
        web.bytes(posts[0].stream, b"data: ");
        web.bytes(listen.stream, b"event: message\nda");
        web.bytes(posts[1].stream, b"id: 1\ndata: ");
        web.bytes(posts[0].stream, replies[0].as_bytes());
        web.bytes(posts[1].stream, replies[1].as_bytes());
        let news = notification("notifications/prompts/list_changed", &json!({}));
        web.bytes(listen.stream, format!("ta: {news}\n\n").as_bytes());
        assert_eq!(web.changes(), [Change::List(List::Prompts)]);
        web.bytes(posts[1].stream, b"\n\n");
        assert!(web.reply(calls[1]).is_ok());
        web.bytes(posts[0].stream, b"\n\n");
        assert!(web.reply(calls[0]).is_ok());
    });
}

/// S-SESS-05: a call that was running when the session ended may have run.
#[test]
fn s_sess_05_a_call_at_work_in_a_session_that_ends_is_not_run_twice() {
    let mut web = Web::legacy();
    let working = web.call("tools/call", json!({"name": "act"}));
    let post = web.posted("tools/call");
    web.stream(post.stream);
    web.call("tools/call", json!({"name": "see"}));
    let seeing = web.posted("tools/call");
    web.status(seeing.stream, 404);
    web.pass(seconds(30));
    let failure = web.failure(working);
    assert_eq!(failure.delivery, Delivery::Unknown, "{failure}");
}
