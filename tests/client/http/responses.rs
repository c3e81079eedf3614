//! A client link over HTTP: its requests, its sessions, and its handling of every kind of response.

use core::time::Duration;

use crate::client_http::{self, Harness, config, error, result, seconds};
use everlink::client::{CallOptions, Cause, Delivery, Event, FailureKind, Outcome, State};
use everlink::http::Verb;
use everlink::{FaultKind, Instant};
use serde_json::json;

#[test]
fn modern_call_is_one_exchange_with_method_and_name_in_headers() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "añadir", "arguments": {}}));
    let post = harness.next_post("tools/call");
    assert_eq!(post.target, client_http::URL);
    assert_eq!(post.field("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(post.field("mcp-method"), Some("tools/call"));
    assert_eq!(post.field("mcp-name"), Some("=?base64?YcOxYWRpcg==?="));
    assert_eq!(
        post.field("accept"),
        Some("application/json, text/event-stream")
    );
    assert_eq!(post.field("mcp-session-id"), None);
    harness.json(
        post.stream,
        200,
        &result(&post, json!({"resultType": "complete", "content": []})),
    );
    assert!(harness.reply(call).is_ok());
}

#[test]
fn reply_in_an_event_stream_is_accepted() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    let token = &post.body["params"]["_meta"]["progressToken"];
    let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": token, "progress": 1}});
    harness.bytes(post.stream, b": keep-alive\n\n");
    harness.event(post.stream, None, &progress);
    assert!(harness.has_event(|event| matches!(event, Event::Progress { .. })));
    harness.event(
        post.stream,
        None,
        &result(&post, json!({"resultType": "complete", "content": []})),
    );
    assert!(harness.reply(call).is_ok());
    harness.end(post.stream);
    assert!(harness.aborted.is_empty());
}

#[test]
fn server_restart_under_200_calls_causes_one_handshake_and_one_outcome_per_call() {
    let mut harness = Harness::legacy();
    let opens = harness.epochs_opened;
    let calls: Vec<_> = (0..200)
        .map(|n| match n % 2 {
            0 => harness.call("tools/call", json!({"name": "act"})),
            _ => harness.call("resources/read", json!({"uri": "file:///a"})),
        })
        .collect();
    let posts: Vec<_> = (0..200)
        .map(|_| {
            harness
                .find(|exchange| exchange.verb == Verb::Post)
                .expect("a post")
        })
        .collect();
    // 20 calls were running when the server died; the others reach the new server.
    for (n, post) in posts.iter().enumerate() {
        assert_eq!(post.field("mcp-session-id"), Some("s-1"));
        match n {
            0..20 => {
                harness.begin_stream(post.stream);
                harness.end(post.stream);
            }
            _ => harness.status(post.stream, 404),
        }
    }
    // Reads were sent again at once and reach the new server, too.
    while let Some(post) = harness.find(|exchange| exchange.method() == "resources/read") {
        harness.status(post.stream, 404);
    }
    harness.advance(seconds(1));
    assert_eq!(harness.epochs_opened, opens + 1);
    let initializes = harness
        .exchanges
        .iter()
        .filter(|b| b.method() == "initialize")
        .count();
    assert_eq!(initializes, 2, "the first, and one for all calls");
    let post = harness.next_post("initialize");
    assert_eq!(post.field("mcp-session-id"), None);
    let body = result(&post, client_http::initialize_result("2025-11-25")).to_string();
    let fields = [
        ("content-type", "application/json"),
        ("mcp-session-id", "s-2"),
    ];
    harness.respond(post.stream, 200, &fields, &body);
    let post = harness.next_post("notifications/initialized");
    assert_eq!(
        harness.unseen_count(),
        0,
        "no message is sent before initialized is accepted"
    );
    harness.status(post.stream, 202);
    harness.refuse_listen();
    while let Some(post) =
        harness.find(|exchange| exchange.verb == Verb::Post && exchange.body["id"].is_u64())
    {
        assert_eq!(post.field("mcp-session-id"), Some("s-2"));
        harness.json(
            post.stream,
            200,
            &result(&post, json!({"content": [], "contents": []})),
        );
    }
    let (mut replies, mut lost) = (0, 0);
    for call in calls {
        match harness.outcome(call) {
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
        "calls that may have run are not sent again"
    );
}

#[test]
fn f_039_listen_stream_that_is_always_empty_is_given_up() {
    let mut harness = Harness::legacy_awaiting_listen();
    let day = harness.now + seconds(86_400);
    let mut gets = 0;
    while harness.now < day {
        while let Some(get) = harness.find(|exchange| exchange.verb == Verb::Get) {
            gets += 1;
            harness.begin_stream(get.stream);
            harness.end(get.stream);
        }
        while let Some(post) = harness.find(|exchange| exchange.verb == Verb::Post) {
            harness.json(post.stream, 200, &result(&post, json!({})));
        }
        harness.advance(seconds(1));
    }
    println!("{gets} requests for an empty stream in a day");
    assert!((2..=10).contains(&gets), "{gets}");
    assert_eq!(harness.client.state(), State::Ready);
}

#[test]
fn broken_stream_is_resumed_after_its_last_event() {
    let mut harness = Harness::legacy();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    harness.bytes(post.stream, b"id: 1-0\nretry: 700\ndata:\n\n");
    harness.bytes(post.stream, b"id: 1-1\ndata: {");
    harness.end(post.stream);
    let cut = harness.now;
    harness.advance(seconds(1));
    let resumed = harness.next_exchange(Verb::Get);
    assert_eq!(resumed.at.since(cut), Duration::from_millis(700));
    assert_eq!(resumed.field("last-event-id"), Some("1-0"));
    assert_eq!(resumed.field("mcp-session-id"), Some("s-1"));
    harness.begin_stream(resumed.stream);
    harness.event(
        resumed.stream,
        Some("1-1"),
        &result(&post, json!({"content": []})),
    );
    assert!(harness.reply(call).is_ok());
}

#[test]
fn call_on_a_broken_stream_without_event_ids_fails_as_cut() {
    for is_modern in [false, true] {
        let mut harness = if is_modern {
            Harness::modern()
        } else {
            Harness::legacy()
        };
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.begin_stream(post.stream);
        harness.fail(post.stream, FaultKind::Reset);
        let failure = harness.failure(call);
        assert_eq!(failure.kind, FailureKind::Cut);
        assert_eq!(failure.delivery, Delivery::Unknown);
        assert_eq!(harness.client.state(), State::Ready);
    }
}

#[test]
fn f_031_response_without_a_reply_fails_the_call_at_once() {
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
        let mut harness = Harness::modern();
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        let fields: Vec<_> = kind
            .map(|kind| ("content-type", kind))
            .into_iter()
            .collect();
        harness.respond(post.stream, status, &fields, body);
        let failure = harness.failure(call);
        assert!(
            matches!(failure.kind, FailureKind::Invalid { .. }),
            "{failure}"
        );
        assert_eq!(harness.client.state(), State::Ready);
    }
}

#[test]
fn cancel_aborts_a_modern_exchange_and_notifies_a_legacy_server() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.client.cancel(harness.now, call, None).unwrap();
    harness.pump();
    assert_eq!(harness.aborted, [post.stream]);
    assert_eq!(harness.unseen_count(), 0);

    let mut harness = Harness::legacy();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.client.cancel(harness.now, call, None).unwrap();
    harness.pump();
    let notice = harness.next_post("notifications/cancelled");
    assert_eq!(notice.body["params"]["requestId"], post.body["id"]);
}

#[test]
fn shutdown_sends_delete_and_waits_at_least_2_s_for_its_response() {
    let mut harness = Harness::legacy();
    harness.client.shutdown(harness.now);
    harness.pump();
    let delete = harness.next_exchange(Verb::Delete);
    assert_eq!(delete.field("mcp-session-id"), Some("s-1"));
    assert_eq!(harness.client.state(), State::Closing);
    harness.status(delete.stream, 405);
    assert_eq!(harness.client.state(), State::Closed);

    let mut harness = Harness::legacy();
    harness.client.shutdown(harness.now);
    harness.pump();
    let started = harness.now;
    harness.advance(seconds(10));
    assert_eq!(harness.client.state(), State::Closed);
    assert!(harness.now.since(started) >= seconds(2));
}

#[test]
fn f_111_ten_401_responses_ask_for_credentials_once() {
    let mut harness = Harness::modern();
    let calls: Vec<_> = (0..10)
        .map(|_| harness.call("tools/call", json!({"name": "add"})))
        .collect();
    let posts: Vec<_> = (0..10).map(|_| harness.next_post("tools/call")).collect();
    for post in posts {
        harness.respond(
            post.stream,
            401,
            &[("WWW-Authenticate", "Bearer scope=\"a\"")],
            "",
        );
    }
    let challenges: Vec<_> = harness
        .events
        .iter()
        .filter_map(|event| match event {
            Event::AuthRequired(challenge) => Some(challenge.demands[0].to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(challenges, ["Bearer scope=\"a\""]);
    harness.advance(seconds(120));
    assert!(
        calls.iter().all(|call| !harness.is_settled(*call)),
        "the calls wait for credentials"
    );
    harness.client.authorized(harness.now);
    harness.pump();
    for call in calls {
        let post = harness.next_post("tools/call");
        harness.json(
            post.stream,
            200,
            &result(&post, json!({"resultType": "complete", "content": []})),
        );
        assert!(harness.reply(call).is_ok());
    }
    assert_eq!(harness.client.stats().failures, 0);
}

#[test]
fn call_refused_with_retry_after_is_sent_again_after_that_delay() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.respond(post.stream, 429, &[("retry-after", "7")], "");
    let refused_at = harness.now;
    harness.advance(seconds(10));
    let post = harness.next_post("tools/call");
    assert_eq!(post.at.since(refused_at), seconds(7));
    harness.json(
        post.stream,
        200,
        &result(&post, json!({"resultType": "complete", "content": []})),
    );
    assert!(harness.reply(call).is_ok());
}

#[test]
fn redirects_are_followed_only_to_the_same_origin() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.respond(post.stream, 307, &[("location", "/v2/mcp")], "");
    let post = harness.next_post("tools/call");
    assert_eq!(post.target, "https://mcp.example/v2/mcp");
    harness.respond(
        post.stream,
        308,
        &[("location", "http://mcp.example/mcp")],
        "",
    );
    let failure = harness.failure(call);
    assert_eq!(
        failure.kind,
        FailureKind::Status {
            status: 308,
            said: None
        }
    );
}

#[test]
fn refused_connection_leaves_ready_and_the_unsent_call_waits() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.fail(post.stream, FaultKind::Refused);
    assert_ne!(harness.client.state(), State::Ready);
    assert!(!harness.is_settled(call));
    harness.advance(seconds(1));
    harness.agree_modern();
    let post = harness.next_post("tools/call");
    harness.json(
        post.stream,
        200,
        &result(&post, json!({"resultType": "complete", "content": []})),
    );
    assert!(harness.reply(call).is_ok());
}

#[test]
fn session_is_resumed_with_a_ping_when_its_server_is_back() {
    let mut harness = Harness::legacy();
    let call = harness.call("ping_like/unknown", json!({}));
    let post = harness.next_post("ping_like/unknown");
    harness.fail(post.stream, FaultKind::Reset);
    assert_eq!(harness.failure(call).delivery, Delivery::Unknown);
    assert!(harness.has_event(|e| matches!(
        e,
        Event::Closing {
            cause: Cause::Unreachable,
            ..
        }
    )));
    harness.advance(seconds(1));
    let ping = harness.next_post("ping");
    assert_eq!(ping.field("mcp-session-id"), Some("s-1"));
    assert_ne!(
        harness.client.state(),
        State::Ready,
        "not ready before the ping is answered"
    );
    harness.json(ping.stream, 200, &result(&ping, json!({})));
    assert_eq!(harness.client.state(), State::Ready);
    assert!(
        harness
            .exchanges
            .iter()
            .filter(|b| b.method() == "initialize")
            .count()
            == 1
    );
}

#[test]
fn sse2024_server_is_found_and_tried_first_in_the_next_epoch() {
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.status(probe.stream, 405);
    let post = harness.next_post("initialize");
    assert_eq!(post.field("mcp-protocol-version"), None);
    harness.status(post.stream, 405);
    let get = harness.next_exchange(Verb::Get);
    assert_eq!(get.field("accept"), Some("text/event-stream"));
    harness.begin_stream(get.stream);
    harness.bytes(
        get.stream,
        b"event: endpoint\ndata: /messages?session=1\n\n",
    );
    let post = harness.next_post("initialize");
    assert_eq!(post.target, "https://mcp.example/messages?session=1");
    harness.status(post.stream, 202);
    harness.event(
        get.stream,
        None,
        &result(&post, client_http::initialize_result("2024-11-05")),
    );
    assert_eq!(harness.client.state(), State::Ready);
    let post = harness.next_post("notifications/initialized");
    harness.status(post.stream, 202);
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 202);
    harness.event(get.stream, None, &result(&post, json!({"content": []})));
    assert!(harness.reply(call).is_ok());
    harness.end(get.stream);
    assert_ne!(harness.client.state(), State::Ready);
    harness.advance(seconds(1));
    assert_eq!(
        harness.next_exchange(Verb::Get).target,
        client_http::URL,
        "the next epoch tries the old transport first"
    );
}

#[test]
fn marked_tool_arguments_are_sent_in_headers() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/list", json!({}));
    let post = harness.next_post("tools/list");
    let schema = |name: &str| json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": name}}});
    harness.json(post.stream, 200, &result(&post, json!({"resultType": "complete", "ttlMs": 0, "tools": [
        {"name": "query", "inputSchema": schema("Region")}, {"name": "bad", "inputSchema": schema("no good")}]})));
    let listed = harness.reply(call).unwrap();
    assert_eq!(listed["tools"].as_array().map(Vec::len), Some(1));
    assert!(
        harness.has_event(
            |event| matches!(event, Event::ToolDropped { tool, .. } if **tool == *"bad")
        )
    );
    let call = harness.call(
        "tools/call",
        json!({"name": "query", "arguments": {"region": "eu"}}),
    );
    let post = harness.next_post("tools/call");
    assert_eq!(post.field("mcp-param-region"), Some("eu"));
    // The server has changed its schema. The link reads the list again, once.
    harness.json(post.stream, 400, &error(&post, -32020));
    let list = harness.next_post("tools/list");
    harness.json(
        list.stream,
        200,
        &result(
            &list,
            json!({"resultType": "complete", "ttlMs": 0, "tools": [
        {"name": "query", "inputSchema": schema("Place")}]}),
        ),
    );
    let post = harness.next_post("tools/call");
    assert_eq!(post.field("mcp-param-region"), None);
    assert_eq!(post.field("mcp-param-place"), Some("eu"));
    harness.json(post.stream, 400, &error(&post, -32020));
    assert_eq!(harness.reply(call), Err(-32020));
}

/// The clock of the call stood still while the application held back, and runs while the list is read.
#[test]
fn call_that_waits_for_the_list_of_tools_times_out_although_its_clock_stood_still_before() {
    let mut harness = Harness::modern();
    let params = json!({"name": "query", "arguments": {"region": "eu"}});
    let call = harness.call("tools/call", params);
    let post = harness.next_post("tools/call");
    harness.client.hold_back(harness.now, true);
    harness.advance(seconds(100));
    harness.json(post.stream, 400, &error(&post, -32020));
    harness.next_post("tools/list");
    harness.advance(seconds(60));
    let failure = harness.failure(call);
    assert!(matches!(failure.kind, FailureKind::TimedOut { .. }));
    assert_eq!(failure.after, seconds(160));
}

#[test]
fn slow_call_does_not_delay_another_call() {
    let mut harness = Harness::modern();
    let slow = harness.call_with("tools/call", json!({"name": "slow"}), CallOptions::new());
    let quick = harness.call("tools/call", json!({"name": "quick"}));
    let (_, post) = (
        harness.next_post("tools/call"),
        harness.next_post("tools/call"),
    );
    harness.json(
        post.stream,
        200,
        &result(&post, json!({"resultType": "complete", "content": []})),
    );
    assert!(harness.reply(quick).is_ok());
    assert!(!harness.is_settled(slow));
    assert!(harness.now == Instant::ZERO);
}
