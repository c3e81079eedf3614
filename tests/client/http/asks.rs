//! Asks of servers over HTTP: requests of a legacy server on any stream, and rounds of a modern call.

use crate::client_http::{
    self, Begun, LEGACY, Web, complete, every_chunking, notification, question, result, seconds,
};
use everlink::client::{Event, FailureKind, State, Withdrawn};
use everlink::http::Verb;
use everlink::protocol::ClientCapabilities;
use everlink::{CallId, ErrorObject};
use serde_json::{Value, json};

fn everything() -> ClientCapabilities {
    ClientCapabilities::default()
        .with_roots(true)
        .with_sampling()
        .with_elicitation_form()
}

/// A call whose response is an event stream, from a server of this version.
fn at_work(version: &str, capabilities: ClientCapabilities) -> (Web, CallId, Begun) {
    let mut web = Web::declaring(version, capabilities);
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.stream(post.stream);
    (web, call, post)
}

/// The reply to the ask with this id.
fn answer_to(web: &mut Web, id: &Value) -> Begun {
    let is_it = |begun: &Begun| begun.body.get("method").is_none() && begun.body["id"] == *id;
    web.find(is_it)
        .unwrap_or_else(|| panic!("{id} has no answer"))
}

/// S-S2C-06: the reply is a separate POST. S-RPC-07: it has the id of the ask. S-RPC-08: it has a result and no
/// error.
#[test]
fn s_s2c_06_an_answer_is_a_post_of_its_own() {
    for version in LEGACY {
        every_chunking(|chunking| {
            let (web, call, post) = at_work(version, everything());
            let mut web = web.chunked(chunking);
            for id in [json!(1), json!("1"), json!(-5), json!("ä/1")] {
                web.event(
                    post.stream,
                    None,
                    &question(id.clone(), "roots/list", &json!({})),
                );
                let ask = web.ask();
                assert_eq!(ask.method, "roots/list");
                assert_eq!(ask.call, Some(call), "it is asked for this call");
                web.answer(&ask, Ok(json!({"roots": [{"uri": "file:///"}]})));
                let answer = answer_to(&mut web, &id);
                assert_eq!(
                    (answer.verb, &*answer.target),
                    (Verb::Post, client_http::URL)
                );
                assert_eq!(answer.field("mcp-session-id"), Some("s-1"));
                assert_eq!(answer.body["jsonrpc"], "2.0");
                assert_eq!(answer.body["result"]["roots"][0]["uri"], "file:///");
                assert_eq!(answer.body.get("error"), None);
                web.status(answer.stream, 202);
            }
            // The call continues, and its stream was not aborted.
            assert!(!web.is_settled(call));
            web.event(post.stream, None, &result(&post, json!({"content": []})));
            assert!(web.reply(call).is_ok());
            assert!(web.aborted.is_empty());
        });
    }
}

/// S-S2C-06: the application can answer after the stream of the ask has ended.
#[test]
fn s_s2c_06_a_question_outlives_the_stream_that_carried_it() {
    let mut config = client_http::config();
    config.capabilities = everything();
    config.dialect = everlink::Dialect::Legacy;
    let mut web = Web::new(config);
    web.connect();
    web.agree_with_news("2025-11-25", Some("s-1"));
    let listen = web.begun(Verb::Get);
    web.stream(listen.stream);
    web.event(
        listen.stream,
        Some("1"),
        &question("q", "roots/list", &json!({})),
    );
    web.end(listen.stream);
    let ask = web.ask();
    web.answer(&ask, Ok(json!({"roots": []})));
    assert_eq!(
        answer_to(&mut web, &json!("q")).body["result"]["roots"],
        json!([])
    );
}

/// S-S2C-06, S-LHTTP-03: if the server refuses the reply, the call and the session continue.
#[test]
fn s_s2c_06_an_answer_that_is_refused_ends_nothing() {
    let (mut web, call, post) = at_work("2025-11-25", everything());
    web.event(post.stream, None, &question(1, "ping", &json!({})));
    let answer = answer_to(&mut web, &json!(1));
    web.status(answer.stream, 400);
    assert_eq!(web.client.state(), State::Ready);
    web.event(post.stream, None, &result(&post, json!({"content": []})));
    assert!(web.reply(call).is_ok());
}

#[test]
fn s_s2c_07_the_ids_of_both_directions_are_independent() {
    let (mut web, call, post) = at_work("2025-11-25", everything());
    let id = post.body["id"].clone();
    web.event(
        post.stream,
        None,
        &question(id.clone(), "roots/list", &json!({})),
    );
    assert!(!web.is_settled(call));
    let ask = web.ask();
    web.answer(&ask, Ok(json!({"roots": []})));
    assert!(answer_to(&mut web, &id).body["result"].is_object());
    assert!(!web.is_settled(call));
    web.event(post.stream, None, &result(&post, json!({"content": []})));
    assert!(web.reply(call).is_ok());
}

/// S-TIME-08: the link replies to a ping at once, with an empty result.
#[test]
fn s_time_08_a_ping_is_answered_at_once() {
    for version in LEGACY {
        let (mut web, _, post) = at_work(version, ClientCapabilities::default());
        web.event(post.stream, None, &question("p", "ping", &Value::Null));
        let pong = answer_to(&mut web, &json!("p"));
        assert_eq!(pong.body["result"], json!({}));
        assert_eq!(pong.at, web.now);
    }
}

/// S-ERR-01, S-ERR-15, S-RPC-12, S-ERR-02, S-ERR-03, S-ERR-05: the refusal has the right code, and no reserved one.
#[test]
fn s_err_15_what_was_not_declared_is_refused() {
    for (method, params, code) in [
        ("roots/list", json!({}), -32_601),
        ("sampling/createMessage", json!({"messages": []}), -32_601),
        ("elicitation/create", json!({"message": "?"}), -32_601),
        ("example/none", json!({}), -32_601),
    ] {
        let (mut web, _, post) = at_work("2025-11-25", ClientCapabilities::default());
        web.event(post.stream, None, &question(5, method, &params));
        let refusal = answer_to(&mut web, &json!(5));
        assert_eq!(refusal.body["error"]["code"], code, "{method}");
        assert!(refusal.body["error"]["message"].is_string());
        assert_eq!(refusal.body.get("result"), None);
        assert!(web.find_ask().is_none());
    }
}

/// S-ERR-05, S-ERR-02: no refusal of the link has a code from the reserved ranges.
#[test]
fn s_err_02_03_05_no_refusal_uses_a_reserved_code() {
    let (mut web, _, post) = at_work("2025-11-25", everything());
    let asked = [
        question(1, "example/none", &json!({})),
        question(
            2,
            "elicitation/create",
            &json!({"mode": "url", "url": "https://a", "message": "?"}),
        ),
        question(
            3,
            "sampling/createMessage",
            &json!({"messages": [], "tools": []}),
        ),
        question(4, "initialize", &json!({})),
        json!({"jsonrpc": "2.0", "id": 5, "method": 7}),
        json!({"jsonrpc": "1.0", "id": 6, "method": "ping"}),
        question(7, "roots/list", &json!({})),
    ];
    for message in asked {
        web.event(post.stream, None, &message);
    }
    // The application does not answer the last ask.
    web.pass(seconds(700));
    let refusals: Vec<i64> = web
        .all
        .iter()
        .filter_map(|begun| begun.body["error"]["code"].as_i64())
        .collect();
    assert!(refusals.len() >= 5, "{refusals:?}");
    for code in refusals {
        assert!(!(-32_099..=-32_000).contains(&code), "{code}");
    }
}

/// S-ERR-15: the application's error reaches the server unchanged.
#[test]
fn s_err_15_a_refusal_of_the_user_is_passed_on() {
    let (mut web, _, post) = at_work("2025-11-25", everything());
    web.event(
        post.stream,
        None,
        &question(1, "sampling/createMessage", &json!({"messages": []})),
    );
    let ask = web.ask();
    web.answer(
        &ask,
        Err(ErrorObject::new(-1, "User rejected sampling request")),
    );
    let refusal = answer_to(&mut web, &json!(1));
    assert_eq!(refusal.body["error"]["code"], -1);
}

/// S-S2C-03: the refusal has the code for invalid parameters.
#[test]
fn s_s2c_03_a_way_to_ask_that_was_not_declared_is_refused() {
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
        let (mut web, _, post) = at_work("2025-11-25", everything());
        web.event(post.stream, None, &question(1, method, &params));
        let refusal = answer_to(&mut web, &json!(1));
        assert_eq!(refusal.body["error"]["code"], -32_602, "{method}");
        assert!(web.find_ask().is_none());
    }
}

/// S-RPC-15, S-CANC-08: notifications get no reply, not even unreadable ones.
#[test]
fn s_rpc_15_no_notification_is_answered() {
    for version in LEGACY {
        let (mut web, _, post) = at_work(version, everything());
        for method in [
            "notifications/example",
            "example/none",
            "roots/list",
            "notifications/cancelled",
            "notifications/progress",
        ] {
            web.event(
                post.stream,
                None,
                &notification(method, &json!({"requestId": 77})),
            );
            web.event(post.stream, None, &notification(method, &json!([])));
        }
        web.bytes(post.stream, b"data: {\"jsonrpc\":\"2.0\",\"method\":7}\n\n");
        assert_eq!(web.unseen(), 0, "{version}");
        assert_eq!(web.client.state(), State::Ready);
    }
}

/// S-CANC-05, S-CANC-08: a cancellation with an unknown or invalid id is ignored.
#[test]
fn s_canc_04_05_08_14_a_question_that_is_taken_back_is_not_answered() {
    let (mut web, call, post) = at_work("2025-11-25", everything());
    web.event(post.stream, None, &question("q", "roots/list", &json!({})));
    let ask = web.ask();
    for params in [
        json!({"requestId": "other"}),
        json!({"requestId": {}}),
        json!({}),
        json!({"requestId": post.body["id"]}),
    ] {
        web.event(
            post.stream,
            None,
            &notification("notifications/cancelled", &params),
        );
    }
    assert!(!web.was_told(|event| matches!(event, Event::AskWithdrawn { .. })));
    web.event(
        post.stream,
        None,
        &notification("notifications/cancelled", &json!({"requestId": "q"})),
    );
    let withdrawn = |event: &Event| matches!(event, Event::AskWithdrawn { ask: which, why: Withdrawn::ByServer } if *which == ask.ask);
    assert!(web.was_told(withdrawn));
    let payload = everlink::Payload::of(&json!({"roots": []})).expect("JSON");
    assert!(web.client.answer(web.now, ask.ask, Ok(payload)).is_err());
    web.pass(seconds(1));
    assert_eq!(web.unseen(), 0);
    assert!(
        !web.is_settled(call),
        "it was the question that was taken back"
    );
}

/// S-TIME-12: the call does not time out while a person answers its ask.
#[test]
fn s_time_12_a_call_waits_for_the_people_that_it_asks() {
    let (mut web, call, post) = at_work("2025-11-25", everything());
    web.event(
        post.stream,
        None,
        &question("q", "elicitation/create", &json!({"message": "?"})),
    );
    let ask = web.ask();
    web.pass(seconds(300));
    assert!(!web.is_settled(call));
    web.answer(&ask, Ok(json!({"action": "accept"})));
    web.event(post.stream, None, &result(&post, json!({"content": []})));
    assert!(web.reply(call).is_ok());
}

/// S-RPC-24, S-RPC-23: a modern server must not send requests, and gets no reply to them.
#[test]
fn s_rpc_24_a_request_of_a_modern_server_gets_no_answer() {
    every_chunking(|chunking| {
        let (web, call, post) = at_work(client_http::MODERN, everything());
        let mut web = web.chunked(chunking);
        for method in ["ping", "roots/list", "example/none"] {
            web.event(post.stream, None, &question("q", method, &json!({})));
        }
        assert_eq!(web.unseen(), 0);
        assert!(web.find_ask().is_none());
        web.event(post.stream, None, &complete(&post, json!({"content": []})));
        assert!(web.reply(call).is_ok());
    });
}

/// S-TIME-01: an unanswered ask times out, and the server gets an error reply.
#[test]
fn s_canc_04_a_question_that_nobody_answers_is_given_up() {
    let (mut web, _, post) = at_work("2025-11-25", everything());
    web.event(post.stream, None, &question("q", "roots/list", &json!({})));
    web.ask();
    web.pass(seconds(601));
    assert!(answer_to(&mut web, &json!("q")).body["error"]["code"].is_i64());
    assert!(web.was_told(|event| matches!(
        event,
        Event::AskWithdrawn {
            why: Withdrawn::TimedOut,
            ..
        }
    )));
}

/// S-INH-06: the number of open asks is limited, and each further ask is refused.
#[test]
fn s_inh_06_more_questions_than_may_be_open_are_refused() {
    let mut config = client_http::config();
    config.capabilities = everything();
    config.limits.asks = 2;
    let mut web = Web::legacy_with(config, "2025-11-25");
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.stream(post.stream);
    for id in 1..=3 {
        web.event(post.stream, None, &question(id, "roots/list", &json!({})));
    }
    assert_eq!(
        [
            web.find_ask().is_some(),
            web.find_ask().is_some(),
            web.find_ask().is_some()
        ],
        [true, true, false]
    );
    assert!(answer_to(&mut web, &json!(3)).body["error"].is_object());
    web.cancel(call);
    assert_eq!(
        web.failure(call).kind,
        FailureKind::Cancelled {
            reason: Some("not needed".into())
        }
    );
}
