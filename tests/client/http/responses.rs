//! A client link over HTTP: its requests, its sessions, and its handling of every kind of response.

use core::time::Duration;

use crate::client_http::{self, Web, config, error, result, seconds};
use everlink::client::{CallOptions, Cause, Delivery, Event, FailureKind, Outcome, State};
use everlink::http::Verb;
use everlink::{FaultKind, Instant};
use serde_json::json;

#[test]
fn a_modern_call_is_one_exchange_with_its_words_in_the_fields() {
    let mut web = Web::modern();
    let call = web.call("tools/call", json!({"name": "añadir", "arguments": {}}));
    let post = web.posted("tools/call");
    assert_eq!(post.target, client_http::URL);
    assert_eq!(post.field("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(post.field("mcp-method"), Some("tools/call"));
    assert_eq!(post.field("mcp-name"), Some("=?base64?YcOxYWRpcg==?="));
    assert_eq!(
        post.field("accept"),
        Some("application/json, text/event-stream")
    );
    assert_eq!(post.field("mcp-session-id"), None);
    web.json(
        post.stream,
        200,
        &result(&post, json!({"resultType": "complete", "content": []})),
    );
    assert!(web.reply(call).is_ok());
}

#[test]
fn a_reply_may_come_as_a_stream_of_events() {
    let mut web = Web::modern();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.stream(post.stream);
    let token = &post.body["params"]["_meta"]["progressToken"];
    let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": token, "progress": 1}});
    web.bytes(post.stream, b": keep-alive\n\n");
    web.event(post.stream, None, &progress);
    assert!(web.was_told(|event| matches!(event, Event::Progress { .. })));
    web.event(
        post.stream,
        None,
        &result(&post, json!({"resultType": "complete", "content": []})),
    );
    assert!(web.reply(call).is_ok());
    web.end(post.stream);
    assert!(web.aborted.is_empty());
}

#[test]
fn a_server_restart_under_many_calls_is_one_handshake_and_every_call_has_one_outcome() {
    let mut web = Web::legacy();
    let opens = web.opens;
    let calls: Vec<_> = (0..200)
        .map(|n| match n % 2 {
            0 => web.call("tools/call", json!({"name": "act"})),
            _ => web.call("resources/read", json!({"uri": "file:///a"})),
        })
        .collect();
    let posts: Vec<_> = (0..200)
        .map(|_| web.find(|begun| begun.verb == Verb::Post).expect("a post"))
        .collect();
    // 20 calls were running when the server died; the others reach the new server.
    for (n, post) in posts.iter().enumerate() {
        assert_eq!(post.field("mcp-session-id"), Some("s-1"));
        match n {
            0..20 => {
                web.stream(post.stream);
                web.end(post.stream);
            }
            _ => web.status(post.stream, 404),
        }
    }
    // Reads were sent again at once and reach the new server, too.
    while let Some(post) = web.find(|begun| begun.method() == "resources/read") {
        web.status(post.stream, 404);
    }
    web.pass(seconds(1));
    assert_eq!(web.opens, opens + 1);
    let begun_anew = web
        .all
        .iter()
        .filter(|b| b.method() == "initialize")
        .count();
    assert_eq!(begun_anew, 2, "the first, and one for all");
    let post = web.posted("initialize");
    assert_eq!(post.field("mcp-session-id"), None);
    let body = result(&post, client_http::introduction("2025-11-25")).to_string();
    let fields = [
        ("content-type", "application/json"),
        ("mcp-session-id", "s-2"),
    ];
    web.respond(post.stream, 200, &fields, &body);
    let post = web.posted("notifications/initialized");
    assert_eq!(
        web.unseen(),
        0,
        "nothing overtakes the end of the handshake"
    );
    web.status(post.stream, 202);
    web.no_news();
    while let Some(post) = web.find(|begun| begun.verb == Verb::Post && begun.body["id"].is_u64()) {
        assert_eq!(post.field("mcp-session-id"), Some("s-2"));
        web.json(
            post.stream,
            200,
            &result(&post, json!({"content": [], "contents": []})),
        );
    }
    let (mut replies, mut lost) = (0, 0);
    for call in calls {
        match web.outcome(call) {
            Outcome::Reply(_) => replies += 1,
            Outcome::Failed(failure) => {
                assert_eq!(failure.kind, FailureKind::Cut);
                assert_eq!(failure.delivery, Delivery::Unknown);
                lost += 1;
            }
            outcome => panic!("{outcome:?}"),
        }
    }
    assert_eq!(
        (replies, lost),
        (190, 10),
        "what may have run is not run again"
    );
}

#[test]
fn f_039_a_stream_of_news_that_is_always_empty_is_given_up() {
    let mut web = Web::legacy_with_news();
    let day = web.now + seconds(86_400);
    let mut gets = 0;
    while web.now < day {
        while let Some(get) = web.find(|begun| begun.verb == Verb::Get) {
            gets += 1;
            web.stream(get.stream);
            web.end(get.stream);
        }
        while let Some(post) = web.find(|begun| begun.verb == Verb::Post) {
            web.json(post.stream, 200, &result(&post, json!({})));
        }
        web.pass(seconds(1));
    }
    println!("{gets} requests for an empty stream in a day");
    assert!((2..=10).contains(&gets), "{gets}");
    assert_eq!(web.client.state(), State::Ready);
}

#[test]
fn a_stream_that_breaks_off_is_resumed_after_its_last_event() {
    let mut web = Web::legacy();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.stream(post.stream);
    web.bytes(post.stream, b"id: 1-0\nretry: 700\ndata:\n\n");
    web.bytes(post.stream, b"id: 1-1\ndata: {");
    web.end(post.stream);
    let cut = web.now;
    web.pass(seconds(1));
    let resumed = web.begun(Verb::Get);
    assert_eq!(resumed.at.since(cut), Duration::from_millis(700));
    assert_eq!(resumed.field("last-event-id"), Some("1-0"));
    assert_eq!(resumed.field("mcp-session-id"), Some("s-1"));
    web.stream(resumed.stream);
    web.event(
        resumed.stream,
        Some("1-1"),
        &result(&post, json!({"content": []})),
    );
    assert!(web.reply(call).is_ok());
}

#[test]
fn what_cannot_be_resumed_is_lost_and_said_to_be() {
    for is_modern in [false, true] {
        let mut web = if is_modern {
            Web::modern()
        } else {
            Web::legacy()
        };
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.stream(post.stream);
        web.fail(post.stream, FaultKind::Reset);
        let failure = web.failure(call);
        assert_eq!(failure.kind, FailureKind::Cut);
        assert_eq!(failure.delivery, Delivery::Unknown);
        assert_eq!(web.client.state(), State::Ready);
    }
}

#[test]
fn f_031_what_is_no_reply_ends_the_call_at_once() {
    for (status, kind, body) in [
        (202, None, ""),
        (200, None, ""),
        (200, Some("application/json"), ""),
        (200, Some("text/html"), "<html>"),
        (200, Some("application/json"), "{"),
        (
            200,
            Some("application/json"),
            r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
        ),
    ] {
        let mut web = Web::modern();
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        let fields: Vec<_> = kind
            .map(|kind| ("content-type", kind))
            .into_iter()
            .collect();
        web.respond(post.stream, status, &fields, body);
        let failure = web.failure(call);
        assert!(
            matches!(failure.kind, FailureKind::Invalid { .. }),
            "{failure}"
        );
        assert_eq!(web.client.state(), State::Ready);
    }
}

#[test]
fn cancelling_closes_the_exchange_or_says_so() {
    let mut web = Web::modern();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.client.cancel(web.now, call, None).unwrap();
    web.pump();
    assert_eq!(web.aborted, [post.stream]);
    assert_eq!(web.unseen(), 0);

    let mut web = Web::legacy();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.client.cancel(web.now, call, None).unwrap();
    web.pump();
    let notice = web.posted("notifications/cancelled");
    assert_eq!(notice.body["params"]["requestId"], post.body["id"]);
}

#[test]
fn a_session_that_is_not_needed_any_more_is_ended() {
    let mut web = Web::legacy();
    web.client.shutdown(web.now);
    web.pump();
    let farewell = web.begun(Verb::Delete);
    assert_eq!(farewell.field("mcp-session-id"), Some("s-1"));
    assert_eq!(web.client.state(), State::Closing);
    web.status(farewell.stream, 405);
    assert_eq!(web.client.state(), State::Closed);

    let mut web = Web::legacy();
    web.client.shutdown(web.now);
    web.pump();
    let begun = web.now;
    web.pass(seconds(10));
    assert_eq!(web.client.state(), State::Closed);
    assert!(web.now.since(begun) >= seconds(2));
}

#[test]
fn f_111_many_refusals_for_want_of_credentials_are_one_question() {
    let mut web = Web::modern();
    let calls: Vec<_> = (0..10)
        .map(|_| web.call("tools/call", json!({"name": "add"})))
        .collect();
    let posts: Vec<_> = (0..10).map(|_| web.posted("tools/call")).collect();
    for post in posts {
        web.respond(
            post.stream,
            401,
            &[("WWW-Authenticate", "Bearer scope=\"a\"")],
            "",
        );
    }
    let asked: Vec<_> = web
        .events
        .iter()
        .filter_map(|event| match event {
            Event::AuthRequired(challenge) => Some(challenge.demands[0].to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(asked, ["Bearer scope=\"a\""]);
    web.pass(seconds(120));
    assert!(
        calls.iter().all(|call| !web.is_settled(*call)),
        "people take their time"
    );
    web.client.authorized(web.now);
    web.pump();
    for call in calls {
        let post = web.posted("tools/call");
        web.json(
            post.stream,
            200,
            &result(&post, json!({"resultType": "complete", "content": []})),
        );
        assert!(web.reply(call).is_ok());
    }
    assert_eq!(web.client.stats().failures, 0);
}

#[test]
fn a_busy_server_is_left_alone_for_as_long_as_it_says() {
    let mut web = Web::modern();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.respond(post.stream, 429, &[("retry-after", "7")], "");
    let told = web.now;
    web.pass(seconds(10));
    let post = web.posted("tools/call");
    assert_eq!(post.at.since(told), seconds(7));
    web.json(
        post.stream,
        200,
        &result(&post, json!({"resultType": "complete", "content": []})),
    );
    assert!(web.reply(call).is_ok());
}

#[test]
fn redirects_are_followed_to_the_same_origin_alone() {
    let mut web = Web::modern();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.respond(post.stream, 307, &[("location", "/v2/mcp")], "");
    let post = web.posted("tools/call");
    assert_eq!(post.target, "https://mcp.example/v2/mcp");
    web.respond(
        post.stream,
        308,
        &[("location", "http://mcp.example/mcp")],
        "",
    );
    let failure = web.failure(call);
    assert_eq!(
        failure.kind,
        FailureKind::Status {
            status: 308,
            said: None
        }
    );
}

#[test]
fn a_server_that_cannot_be_reached_is_not_ready_and_what_was_not_sent_waits() {
    let mut web = Web::modern();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.fail(post.stream, FaultKind::Refused);
    assert_ne!(web.client.state(), State::Ready);
    assert!(!web.is_settled(call));
    web.pass(seconds(1));
    web.agree_modern();
    let post = web.posted("tools/call");
    web.json(
        post.stream,
        200,
        &result(&post, json!({"resultType": "complete", "content": []})),
    );
    assert!(web.reply(call).is_ok());
}

#[test]
fn a_session_is_tried_again_when_its_server_is_back() {
    let mut web = Web::legacy();
    let call = web.call("ping_like/unknown", json!({}));
    let post = web.posted("ping_like/unknown");
    web.fail(post.stream, FaultKind::Reset);
    assert_eq!(web.failure(call).delivery, Delivery::Unknown);
    assert!(web.was_told(|e| matches!(
        e,
        Event::Closing {
            cause: Cause::Unreachable,
            ..
        }
    )));
    web.pass(seconds(1));
    let ping = web.posted("ping");
    assert_eq!(ping.field("mcp-session-id"), Some("s-1"));
    assert_ne!(web.client.state(), State::Ready, "it is not believed yet");
    web.json(ping.stream, 200, &result(&ping, json!({})));
    assert_eq!(web.client.state(), State::Ready);
    assert!(
        web.all
            .iter()
            .filter(|b| b.method() == "initialize")
            .count()
            == 1
    );
}

#[test]
fn a_server_of_the_old_transport_is_found_behind_it() {
    let mut web = Web::new(config());
    web.connect();
    let probe = web.posted("server/discover");
    web.status(probe.stream, 405);
    let post = web.posted("initialize");
    assert_eq!(post.field("mcp-protocol-version"), None);
    web.status(post.stream, 405);
    let get = web.begun(Verb::Get);
    assert_eq!(get.field("accept"), Some("text/event-stream"));
    web.stream(get.stream);
    web.bytes(
        get.stream,
        b"event: endpoint\ndata: /messages?session=1\n\n",
    );
    let post = web.posted("initialize");
    assert_eq!(post.target, "https://mcp.example/messages?session=1");
    web.status(post.stream, 202);
    web.event(
        get.stream,
        None,
        &result(&post, client_http::introduction("2024-11-05")),
    );
    assert_eq!(web.client.state(), State::Ready);
    let post = web.posted("notifications/initialized");
    web.status(post.stream, 202);
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.status(post.stream, 202);
    web.event(get.stream, None, &result(&post, json!({"content": []})));
    assert!(web.reply(call).is_ok());
    web.end(get.stream);
    assert_ne!(web.client.state(), State::Ready);
    web.pass(seconds(1));
    assert_eq!(
        web.begun(Verb::Get).target,
        client_http::URL,
        "it is looked for there first"
    );
}

#[test]
fn a_tool_that_wants_its_arguments_in_the_fields_gets_them() {
    let mut web = Web::modern();
    let call = web.call("tools/list", json!({}));
    let post = web.posted("tools/list");
    let schema = |name: &str| json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": name}}});
    web.json(post.stream, 200, &result(&post, json!({"resultType": "complete", "ttlMs": 0, "tools": [
        {"name": "query", "inputSchema": schema("Region")}, {"name": "bad", "inputSchema": schema("no good")}]})));
    let listed = web.reply(call).unwrap();
    assert_eq!(listed["tools"].as_array().map(Vec::len), Some(1));
    assert!(
        web.was_told(|event| matches!(event, Event::ToolDropped { tool, .. } if **tool == *"bad"))
    );
    let call = web.call(
        "tools/call",
        json!({"name": "query", "arguments": {"region": "eu"}}),
    );
    let post = web.posted("tools/call");
    assert_eq!(post.field("mcp-param-region"), Some("eu"));
    // The server has changed its schema. The link reads the list again, once.
    web.json(post.stream, 400, &error(&post, -32020));
    let list = web.posted("tools/list");
    web.json(
        list.stream,
        200,
        &result(
            &list,
            json!({"resultType": "complete", "ttlMs": 0, "tools": [
        {"name": "query", "inputSchema": schema("Place")}]}),
        ),
    );
    let post = web.posted("tools/call");
    assert_eq!(post.field("mcp-param-region"), None);
    assert_eq!(post.field("mcp-param-place"), Some("eu"));
    web.json(post.stream, 400, &error(&post, -32020));
    assert_eq!(web.reply(call), Err(-32020));
}

#[test]
fn nothing_waits_for_another() {
    let mut web = Web::modern();
    let slow = web.call_with("tools/call", json!({"name": "slow"}), CallOptions::new());
    let quick = web.call("tools/call", json!({"name": "quick"}));
    let (_, post) = (web.posted("tools/call"), web.posted("tools/call"));
    web.json(
        post.stream,
        200,
        &result(&post, json!({"resultType": "complete", "content": []})),
    );
    assert!(web.reply(quick).is_ok());
    assert!(!web.is_settled(slow));
    assert!(web.now == Instant::ZERO);
}
