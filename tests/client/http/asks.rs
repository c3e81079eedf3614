//! Asks of servers over HTTP: requests of a legacy server on any stream, and rounds of a modern call.

use crate::client_http::{
    self, Exchange, Harness, LEGACY, ask_message, complete, every_chunking, notification, result,
    seconds,
};
use everlink::client::{Event, FailureKind, State, Withdrawn};
use everlink::http::Verb;
use everlink::protocol::{ClientCapabilities, LogLevel};
use everlink::{CallId, ErrorObject, Watch};
use serde_json::{Value, json};

fn all_capabilities() -> ClientCapabilities {
    ClientCapabilities::default()
        .with_roots(true)
        .with_sampling()
        .with_elicitation_form()
}

/// A call whose response is an event stream, from a server of this version.
fn running_call(version: &str, capabilities: ClientCapabilities) -> (Harness, CallId, Exchange) {
    let mut harness = Harness::with_capabilities(version, capabilities);
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    (harness, call, post)
}

/// The reply to the ask with this id.
fn answer_post(harness: &mut Harness, id: &Value) -> Exchange {
    let is_answer =
        |exchange: &Exchange| exchange.body.get("method").is_none() && exchange.body["id"] == *id;
    harness
        .find(is_answer)
        .unwrap_or_else(|| panic!("{id} has no answer"))
}

/// S-S2C-06: the reply is a separate POST. S-RPC-07: it has the id of the ask. S-RPC-08: it has a result and no
/// error.
#[test]
fn s_s2c_06_answer_to_an_ask_is_a_separate_post() {
    for version in LEGACY {
        every_chunking(|chunking| {
            let (harness, call, post) = running_call(version, all_capabilities());
            let mut harness = harness.chunked(chunking);
            for id in [json!(1), json!("1"), json!(-5), json!("ä/1")] {
                harness.event(
                    post.stream,
                    None,
                    &ask_message(id.clone(), "roots/list", &json!({})),
                );
                let ask = harness.ask();
                assert_eq!(ask.method, "roots/list");
                assert_eq!(ask.call, Some(call), "the ask belongs to this call");
                harness.answer(&ask, Ok(json!({"roots": [{"uri": "file:///"}]})));
                let answer = answer_post(&mut harness, &id);
                assert_eq!(
                    (answer.verb, &*answer.target),
                    (Verb::Post, client_http::URL)
                );
                assert_eq!(answer.field("mcp-session-id"), Some("s-1"));
                assert_eq!(answer.body["jsonrpc"], "2.0");
                assert_eq!(answer.body["result"]["roots"][0]["uri"], "file:///");
                assert_eq!(answer.body.get("error"), None);
                harness.status(answer.stream, 202);
            }
            // The call continues, and its stream was not aborted.
            assert!(!harness.is_settled(call));
            harness.event(post.stream, None, &result(&post, json!({"content": []})));
            assert!(harness.reply(call).is_ok());
            assert!(harness.aborted.is_empty());
        });
    }
}

/// S-S2C-06: the application can answer after the stream of the ask has ended.
#[test]
fn s_s2c_06_ask_can_be_answered_after_its_stream_ended() {
    let mut config = client_http::config();
    config.capabilities = all_capabilities();
    config.dialect = everlink::Dialect::Legacy;
    let mut harness = Harness::new(config);
    harness.connect();
    harness.agree_legacy_awaiting_listen("2025-11-25", Some("s-1"));
    let listen = harness.next_exchange(Verb::Get);
    harness.begin_stream(listen.stream);
    harness.event(
        listen.stream,
        Some("1"),
        &ask_message("q", "roots/list", &json!({})),
    );
    harness.end(listen.stream);
    let ask = harness.ask();
    harness.answer(&ask, Ok(json!({"roots": []})));
    assert_eq!(
        answer_post(&mut harness, &json!("q")).body["result"]["roots"],
        json!([])
    );
}

/// S-S2C-06, S-LHTTP-03: if the server refuses the reply, the call and the session continue.
#[test]
fn s_s2c_06_refused_answer_keeps_the_call_and_the_session() {
    let (mut harness, call, post) = running_call("2025-11-25", all_capabilities());
    harness.event(post.stream, None, &ask_message(1, "ping", &json!({})));
    let answer = answer_post(&mut harness, &json!(1));
    harness.status(answer.stream, 400);
    assert_eq!(harness.client.state(), State::Ready);
    harness.event(post.stream, None, &result(&post, json!({"content": []})));
    assert!(harness.reply(call).is_ok());
}

/// Over HTTP, the stream says which call the server works on.
#[test]
fn ask_and_log_message_on_the_stream_of_a_call_name_the_call() {
    let capabilities = ClientCapabilities::default().with_roots(true);
    let mut harness = Harness::with_capabilities("2025-11-25", capabilities);
    harness.watch(Watch::none().and_logs(LogLevel::Info));
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    harness.event(post.stream, None, &ask_message(1, "roots/list", &json!({})));
    assert_eq!(harness.ask().call, Some(call));
    let params = json!({"level": "error", "data": "no"});
    let log = notification("notifications/message", &params);
    harness.event(post.stream, None, &log);
    let is_of_call =
        |event: &Event| matches!(event, Event::Log { call: of, .. } if *of == Some(call));
    assert!(harness.has_event(is_of_call));
}

#[test]
fn s_s2c_07_the_ids_of_both_directions_are_independent() {
    let (mut harness, call, post) = running_call("2025-11-25", all_capabilities());
    let id = post.body["id"].clone();
    harness.event(
        post.stream,
        None,
        &ask_message(id.clone(), "roots/list", &json!({})),
    );
    assert!(!harness.is_settled(call));
    let ask = harness.ask();
    harness.answer(&ask, Ok(json!({"roots": []})));
    assert!(answer_post(&mut harness, &id).body["result"].is_object());
    assert!(!harness.is_settled(call));
    harness.event(post.stream, None, &result(&post, json!({"content": []})));
    assert!(harness.reply(call).is_ok());
}

/// S-TIME-08: the link replies to a ping at once, with an empty result.
#[test]
fn s_time_08_a_ping_is_answered_at_once() {
    for version in LEGACY {
        let (mut harness, _, post) = running_call(version, ClientCapabilities::default());
        harness.event(post.stream, None, &ask_message("p", "ping", &Value::Null));
        let pong = answer_post(&mut harness, &json!("p"));
        assert_eq!(pong.body["result"], json!({}));
        assert_eq!(pong.at, harness.now);
    }
}

/// S-ERR-01, S-ERR-15, S-RPC-12, S-ERR-02, S-ERR-03, S-ERR-05: the refusal has the right code, and no reserved one.
#[test]
fn s_err_15_undeclared_ask_is_refused_with_method_not_found() {
    for (method, params, code) in [
        ("roots/list", json!({}), -32_601),
        ("sampling/createMessage", json!({"messages": []}), -32_601),
        ("elicitation/create", json!({"message": "?"}), -32_601),
        ("example/none", json!({}), -32_601),
    ] {
        let (mut harness, _, post) = running_call("2025-11-25", ClientCapabilities::default());
        harness.event(post.stream, None, &ask_message(5, method, &params));
        let refusal = answer_post(&mut harness, &json!(5));
        assert_eq!(refusal.body["error"]["code"], code, "{method}");
        assert!(refusal.body["error"]["message"].is_string());
        assert_eq!(refusal.body.get("result"), None);
        assert!(harness.find_ask().is_none());
    }
}

/// S-ERR-05, S-ERR-02: no refusal of the link has a code from the reserved ranges.
#[test]
fn s_err_02_03_05_no_refusal_uses_a_reserved_code() {
    let (mut harness, _, post) = running_call("2025-11-25", all_capabilities());
    let asks = [
        ask_message(1, "example/none", &json!({})),
        ask_message(
            2,
            "elicitation/create",
            &json!({"mode": "url", "url": "https://a", "message": "?"}),
        ),
        ask_message(
            3,
            "sampling/createMessage",
            &json!({"messages": [], "tools": []}),
        ),
        ask_message(4, "initialize", &json!({})),
        json!({"jsonrpc": "2.0", "id": 5, "method": 7}),
        json!({"jsonrpc": "1.0", "id": 6, "method": "ping"}),
        ask_message(7, "roots/list", &json!({})),
    ];
    for message in asks {
        harness.event(post.stream, None, &message);
    }
    // The application does not answer the last ask.
    harness.advance(seconds(700));
    let refusals: Vec<i64> = harness
        .exchanges
        .iter()
        .filter_map(|exchange| exchange.body["error"]["code"].as_i64())
        .collect();
    assert!(refusals.len() >= 5, "{refusals:?}");
    for code in refusals {
        assert!(!(-32_099..=-32_000).contains(&code), "{code}");
    }
}

/// S-ERR-15: the application's error reaches the server unchanged.
#[test]
fn s_err_15_error_of_the_application_is_sent_to_the_server() {
    let (mut harness, _, post) = running_call("2025-11-25", all_capabilities());
    harness.event(
        post.stream,
        None,
        &ask_message(1, "sampling/createMessage", &json!({"messages": []})),
    );
    let ask = harness.ask();
    harness.answer(
        &ask,
        Err(ErrorObject::new(-1, "User rejected sampling request")),
    );
    let refusal = answer_post(&mut harness, &json!(1));
    assert_eq!(refusal.body["error"]["code"], -1);
}

/// S-S2C-03: the refusal has the code for invalid parameters.
#[test]
fn s_s2c_03_undeclared_kind_of_ask_is_refused_with_invalid_params() {
    for (method, params) in [
        (
            "elicitation/create",
            json!({"mode": "url", "url": "https://a", "message": "?", "elicitationId": "e"}),
        ),
        (
            "sampling/createMessage",
            json!({"messages": [], "tools": [{"name": "a"}]}),
        ),
        (
            "sampling/createMessage",
            json!({"messages": [], "toolChoice": {"mode": "auto"}}),
        ),
    ] {
        let (mut harness, _, post) = running_call("2025-11-25", all_capabilities());
        harness.event(post.stream, None, &ask_message(1, method, &params));
        let refusal = answer_post(&mut harness, &json!(1));
        assert_eq!(refusal.body["error"]["code"], -32_602, "{method}");
        assert!(harness.find_ask().is_none());
    }
}

/// S-RPC-15, S-CANC-08: notifications get no reply, not even unreadable ones.
#[test]
fn s_rpc_15_no_notification_is_answered() {
    for version in LEGACY {
        let (mut harness, _, post) = running_call(version, all_capabilities());
        for method in [
            "notifications/example",
            "example/none",
            "roots/list",
            "notifications/cancelled",
            "notifications/progress",
        ] {
            harness.event(
                post.stream,
                None,
                &notification(method, &json!({"requestId": 77})),
            );
            harness.event(post.stream, None, &notification(method, &json!([])));
        }
        harness.bytes(post.stream, b"data: {\"jsonrpc\":\"2.0\",\"method\":7}\n\n");
        assert_eq!(harness.unseen_count(), 0, "{version}");
        assert_eq!(harness.client.state(), State::Ready);
    }
}

/// S-CANC-05, S-CANC-08: a cancellation with an unknown or invalid id is ignored.
#[test]
fn s_canc_04_05_08_14_ask_cancelled_by_the_server_gets_no_reply() {
    let (mut harness, call, post) = running_call("2025-11-25", all_capabilities());
    harness.event(
        post.stream,
        None,
        &ask_message("q", "roots/list", &json!({})),
    );
    let ask = harness.ask();
    for params in [
        json!({"requestId": "other"}),
        json!({"requestId": {}}),
        json!({}),
        json!({"requestId": post.body["id"]}),
    ] {
        harness.event(
            post.stream,
            None,
            &notification("notifications/cancelled", &params),
        );
    }
    assert!(!harness.has_event(|event| matches!(event, Event::AskWithdrawn { .. })));
    harness.event(
        post.stream,
        None,
        &notification("notifications/cancelled", &json!({"requestId": "q"})),
    );
    let withdrawn = |event: &Event| matches!(event, Event::AskWithdrawn { ask: which, why: Withdrawn::ByServer } if *which == ask.ask);
    assert!(harness.has_event(withdrawn));
    let payload = everlink::Payload::of(&json!({"roots": []})).expect("JSON");
    assert!(
        harness
            .client
            .answer(harness.now, ask.ask, Ok(payload))
            .is_err()
    );
    harness.advance(seconds(1));
    assert_eq!(harness.unseen_count(), 0);
    assert!(!harness.is_settled(call), "only the ask was cancelled");
}

/// S-TIME-12: the call does not time out while a person answers its ask.
#[test]
fn s_time_12_call_does_not_time_out_while_its_ask_is_open() {
    let (mut harness, call, post) = running_call("2025-11-25", all_capabilities());
    harness.event(
        post.stream,
        None,
        &ask_message("q", "elicitation/create", &json!({"message": "?"})),
    );
    let ask = harness.ask();
    harness.advance(seconds(300));
    assert!(!harness.is_settled(call));
    harness.answer(&ask, Ok(json!({"action": "accept"})));
    harness.event(post.stream, None, &result(&post, json!({"content": []})));
    assert!(harness.reply(call).is_ok());
}

/// S-RPC-24, S-RPC-23: a modern server must not send requests, and gets no reply to them.
#[test]
fn s_rpc_24_request_of_a_modern_server_gets_no_reply() {
    every_chunking(|chunking| {
        let (harness, call, post) = running_call(client_http::MODERN, all_capabilities());
        let mut harness = harness.chunked(chunking);
        for method in ["ping", "roots/list", "example/none"] {
            harness.event(post.stream, None, &ask_message("q", method, &json!({})));
        }
        assert_eq!(harness.unseen_count(), 0);
        assert!(harness.find_ask().is_none());
        harness.event(post.stream, None, &complete(&post, json!({"content": []})));
        assert!(harness.reply(call).is_ok());
    });
}

/// S-TIME-01: an unanswered ask times out, and the server gets an error reply.
#[test]
fn s_canc_04_unanswered_ask_times_out_with_an_error_reply() {
    let (mut harness, _, post) = running_call("2025-11-25", all_capabilities());
    harness.event(
        post.stream,
        None,
        &ask_message("q", "roots/list", &json!({})),
    );
    harness.ask();
    harness.advance(seconds(601));
    assert!(answer_post(&mut harness, &json!("q")).body["error"]["code"].is_i64());
    assert!(harness.has_event(|event| matches!(
        event,
        Event::AskWithdrawn {
            why: Withdrawn::TimedOut,
            ..
        }
    )));
}

/// S-INH-06: the number of open asks is limited, and each further ask is refused.
#[test]
fn s_inh_06_asks_over_the_limit_are_refused() {
    let mut config = client_http::config();
    config.capabilities = all_capabilities();
    config.limits.asks = 2;
    let mut harness = Harness::legacy_with(config, "2025-11-25");
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    for id in 1..=3 {
        harness.event(
            post.stream,
            None,
            &ask_message(id, "roots/list", &json!({})),
        );
    }
    assert_eq!(
        [
            harness.find_ask().is_some(),
            harness.find_ask().is_some(),
            harness.find_ask().is_some()
        ],
        [true, true, false]
    );
    assert!(answer_post(&mut harness, &json!(3)).body["error"].is_object());
    harness.cancel(call);
    assert_eq!(
        harness.failure(call).kind,
        FailureKind::Cancelled {
            reason: Some("not needed".into())
        }
    );
}
