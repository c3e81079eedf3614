//! Rounds of a modern call over HTTP: the link collects the answers and sends the call again in a new exchange.

use crate::client_http::{self, Exchange, Harness, complete, config, every_chunking, result};
use everlink::client::FailureKind;
use everlink::protocol::{ClientCapabilities, ClientFeature};
use everlink::{CallId, Config, ErrorObject};
use serde_json::{Value, json};

fn config_with(capabilities: ClientCapabilities) -> Config {
    let mut config = config();
    config.capabilities = capabilities;
    config
}

fn all_capabilities() -> ClientCapabilities {
    ClientCapabilities::default()
        .with_roots(false)
        .with_sampling()
        .with_elicitation_form()
}

/// A call of a client that supports asks.
fn start_call(method: &'static str, params: Value) -> (Harness, CallId, Exchange) {
    let mut harness = Harness::modern_with(config_with(all_capabilities()));
    let call = harness.call(method, params);
    let post = harness.next_post(method);
    (harness, call, post)
}

/// Makes the server ask for input before it continues.
fn require_input(harness: &mut Harness, post: &Exchange, members: Value) {
    let mut round = members;
    round["resultType"] = json!("input_required");
    harness.json(post.stream, 200, &result(post, round));
}

fn roots_request() -> Value {
    json!({"method": "roots/list"})
}

/// S-MRTR-09: the call continues when all asks are answered.
#[test]
fn s_mrtr_09_call_is_sent_again_after_the_last_answer() {
    every_chunking(|chunking| {
        for is_stream in [false, true] {
            let (harness, call, post) = start_call("tools/call", json!({"name": "add"}));
            let mut harness = harness.chunked(chunking);
            let round = json!({"resultType": "input_required", "inputRequests": {
                "where": roots_request(),
                "who": {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}}});
            if is_stream {
                harness.begin_stream(post.stream);
                harness.event(post.stream, None, &result(&post, round));
                harness.end(post.stream);
            } else {
                harness.json(post.stream, 200, &result(&post, round));
            }
            let asks = [harness.ask(), harness.ask()];
            assert!(asks.iter().all(|ask| ask.call == Some(call)));
            harness.answer(&asks[1], Ok(json!({"action": "decline"})));
            assert_eq!(harness.unseen_count(), 0, "one answer is missing");
            harness.answer(&asks[0], Ok(json!({"roots": []})));
            let again = harness.next_post("tools/call");
            let answers = &again.body["params"]["inputResponses"];
            assert_eq!(
                *answers,
                json!({"where": {"roots": []}, "who": {"action": "decline"}})
            );
            harness.reply_with(&again, json!({"content": []}));
            assert!(harness.reply(call).is_ok());
        }
    });
}

/// S-MRTR-09: without asks the call continues at once.
#[test]
fn s_mrtr_09_10_request_state_alone_is_returned_at_once_byte_for_byte() {
    for state in [r#""a\u0062\/c""#, r#""""#, r#""\ud83d\ude00 {\"x\":1}""#] {
        every_chunking(|chunking| {
            let (harness, call, post) = start_call("tools/call", json!({"name": "add"}));
            let mut harness = harness.chunked(chunking);
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{{"resultType":"input_required","requestState":{state}}}}}"#,
                post.body["id"]
            );
            harness.respond(
                post.stream,
                200,
                &[("content-type", "application/json")],
                &body,
            );
            let again = harness.next_post("tools/call");
            let expected: Value = serde_json::from_str(state).expect("JSON");
            assert_eq!(again.body["params"]["requestState"], expected);
            assert!(again.text.contains(state), "{}", again.text);
            assert_eq!(again.body["params"].get("inputResponses"), None);
            harness.reply_with(&again, json!({"content": []}));
            assert!(harness.reply(call).is_ok());
        });
    }
}

/// S-MRTR-10: a round without a state sends none, not even an earlier one (S-MRTR-14).
#[test]
fn s_mrtr_10_14_each_round_sends_only_its_own_state_and_answers() {
    let (mut harness, call, first) = start_call("tools/call", json!({"name": "add"}));
    require_input(
        &mut harness,
        &first,
        json!({"inputRequests": {"a": roots_request()}, "requestState": "one"}),
    );
    let ask = harness.ask();
    harness.answer(&ask, Ok(json!({"roots": []})));
    let second = harness.next_post("tools/call");
    assert_eq!(second.body["params"]["requestState"], "one");
    require_input(
        &mut harness,
        &second,
        json!({"inputRequests": {"b": roots_request()}}),
    );
    let ask = harness.ask();
    harness.answer(&ask, Ok(json!({"roots": [1]})));
    let third = harness.next_post("tools/call");
    assert_eq!(third.body["params"].get("requestState"), None);
    assert_eq!(
        third.body["params"]["inputResponses"],
        json!({"b": {"roots": [1]}})
    );
    harness.reply_with(&third, json!({"content": []}));
    assert!(harness.reply(call).is_ok());
}

/// S-MRTR-11: the next round has a new id, the same parameters, and all header fields and `_meta` of the request.
#[test]
fn s_mrtr_11_the_next_round_is_the_same_request_under_a_new_id() {
    for (method, params, name) in [
        (
            "tools/call",
            json!({"name": "äh", "arguments": {"a": [1]}}),
            "=?base64?w6Ro?=",
        ),
        ("prompts/get", json!({"name": "greet"}), "greet"),
        ("resources/read", json!({"uri": "file:///a"}), "file:///a"),
    ] {
        let (mut harness, _, first) = start_call(method, params.clone());
        require_input(&mut harness, &first, json!({"requestState": "s"}));
        let second = harness.next_post(method);
        assert_ne!(second.body["id"], first.body["id"]);
        assert_ne!(second.stream, first.stream);
        for (key, value) in params.as_object().expect("an object") {
            assert_eq!(second.body["params"][key], *value);
        }
        for key in ["protocolVersion", "clientCapabilities", "clientInfo"] {
            assert_eq!(second.meta(key), first.meta(key));
        }
        assert_eq!(second.field("mcp-name"), Some(name));
        assert_eq!(second.field("mcp-method"), Some(method));
        assert_eq!(
            second.field("mcp-protocol-version"),
            Some(client_http::MODERN)
        );
    }
}

/// S-MRTR-11, S-XHDR-02: the header fields again repeat the marked arguments.
#[test]
fn s_mrtr_11_next_round_repeats_the_param_headers() {
    let mut harness = Harness::modern_with(config_with(all_capabilities()));
    let call = harness.call("tools/list", json!({}));
    let post = harness.next_post("tools/list");
    let schema = json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
    harness.reply_with(&post, json!({"tools": [{"name": "query", "inputSchema": schema}], "ttlMs": 0, "cacheScope": "private"}));
    assert!(harness.reply(call).is_ok());
    harness.call(
        "tools/call",
        json!({"name": "query", "arguments": {"region": "eu"}}),
    );
    let first = harness.next_post("tools/call");
    require_input(&mut harness, &first, json!({"requestState": "s"}));
    assert_eq!(
        harness.next_post("tools/call").field("mcp-param-region"),
        Some("eu")
    );
}

/// S-MRTR-12: asks and answers of parallel calls are kept apart.
#[test]
fn s_mrtr_12_rounds_of_parallel_calls_do_not_mix() {
    let mut harness = Harness::modern_with(config_with(all_capabilities()));
    let calls = ["a", "b", "c"].map(|name| harness.call("tools/call", json!({"name": name})));
    let posts = calls.map(|_| harness.next_post("tools/call"));
    require_input(
        &mut harness,
        &posts[0],
        json!({"inputRequests": {"k": roots_request()}, "requestState": "of a"}),
    );
    require_input(
        &mut harness,
        &posts[1],
        json!({"inputRequests": {"k": roots_request()}, "requestState": "of b"}),
    );
    let asks = [harness.ask(), harness.ask()];
    assert_eq!(
        asks.each_ref().map(|ask| ask.call),
        [Some(calls[0]), Some(calls[1])]
    );
    harness.answer(&asks[1], Ok(json!({"roots": ["b"]})));
    let again = harness.next_post("tools/call");
    assert_eq!(again.body["params"]["name"], "b");
    assert_eq!(again.body["params"]["requestState"], "of b");
    assert_eq!(
        again.body["params"]["inputResponses"]["k"]["roots"],
        json!(["b"])
    );
    let other = harness.call("tools/call", json!({"name": "d"}));
    let post = harness.next_post("tools/call");
    assert_eq!(post.body["params"].get("requestState"), None);
    assert_eq!(post.body["params"].get("inputResponses"), None);
    harness.reply_with(&post, json!({"content": []}));
    assert!(harness.reply(other).is_ok());
}

/// S-MRTR-03: only three methods may ask for input. For other methods such a result is invalid.
#[test]
fn s_mrtr_03_input_required_is_invalid_for_other_methods() {
    for method in [
        "tools/list",
        "completion/complete",
        "example/other",
        "resources/list",
    ] {
        let (mut harness, call, post) = start_call(method, json!({}));
        require_input(&mut harness, &post, json!({"requestState": "s"}));
        assert!(
            matches!(harness.failure(call).kind, FailureKind::Invalid { .. }),
            "{method}"
        );
        assert_eq!(harness.unseen_count(), 0);
    }
}

/// S-MRTR-04, S-MRTR-05: a round must ask for something, with valid methods.
#[test]
fn s_mrtr_04_05_round_without_a_valid_ask_is_invalid() {
    for round in [
        json!({}),
        json!({"inputRequests": {}}),
        json!({"inputRequests": {"a": {}}}),
        json!({"inputRequests": {"a": {"method": "tools/list"}}}),
        json!({"inputRequests": {"a": {"method": "ping"}}}),
        json!({"inputRequests": []}),
        json!({"requestState": 7}),
    ] {
        let (mut harness, call, post) = start_call("tools/call", json!({"name": "add"}));
        require_input(&mut harness, &post, round.clone());
        assert!(
            matches!(harness.failure(call).kind, FailureKind::Invalid { .. }),
            "{round}"
        );
        assert!(harness.find_ask().is_none());
        assert_eq!(harness.unseen_count(), 0);
    }
}

/// S-MRTR-06, S-MRTR-18: an elicitation without a mode is a form. The application gets only declared kinds of asks.
#[test]
fn s_mrtr_18_elicitation_without_a_mode_is_a_form() {
    let form = json!({"method": "elicitation/create", "params": {"message": "?"}});
    let url = json!({"method": "elicitation/create", "params": {"mode": "url", "url": "https://a", "message": "?"}});
    let form_capabilities = ClientCapabilities::default().with(ClientFeature::Elicitation);
    let url_capabilities = ClientCapabilities::default().with_elicitation_url();
    for (declared, request, is_asked) in [
        (&form_capabilities, &form, true),
        (&form_capabilities, &url, false),
        (&url_capabilities, &form, false),
        (&url_capabilities, &url, true),
    ] {
        let mut harness = Harness::modern_with(config_with(declared.clone()));
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        let elicitation = post.meta("clientCapabilities")["elicitation"].clone();
        assert!(elicitation.is_object());
        require_input(
            &mut harness,
            &post,
            json!({"inputRequests": {"q": request}}),
        );
        assert_eq!(
            harness.find_ask().is_some(),
            is_asked,
            "{request} {elicitation}"
        );
        assert_eq!(harness.is_settled(call), !is_asked);
    }
}

/// S-MRTR-13: if an ask is declined, the call fails and is not sent again.
#[test]
fn s_mrtr_13_declined_ask_fails_the_call() {
    let (mut harness, call, post) = start_call("tools/call", json!({"name": "add"}));
    require_input(
        &mut harness,
        &post,
        json!({"inputRequests": {"a": roots_request()}, "requestState": "s"}),
    );
    let ask = harness.ask();
    harness.answer(&ask, Err(ErrorObject::new(-1, "no")));
    assert!(matches!(
        harness.failure(call).kind,
        FailureKind::Declined { .. }
    ));
    assert_eq!(harness.unseen_count(), 0);
}

#[test]
fn s_mrtr_14_call_fails_after_ten_rounds() {
    let (mut harness, call, mut post) = start_call("tools/call", json!({"name": "add"}));
    for _ in 0..10 {
        require_input(&mut harness, &post, json!({"requestState": "s"}));
        post = harness.next_post("tools/call");
    }
    require_input(&mut harness, &post, json!({"requestState": "s"}));
    assert_eq!(
        harness.failure(call).kind,
        FailureKind::TooManyRounds { rounds: 10 }
    );
    assert_eq!(harness.unseen_count(), 0);
}

/// An answer goes back under the key of its question, so a key can have only one.
#[test]
fn round_with_two_questions_under_one_key_is_invalid() {
    for second in ["a", r"\u0061"] {
        let (mut harness, call, post) = start_call("tools/call", json!({"name": "add"}));
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"resultType":"input_required","inputRequests":{{"a":{asked},"{second}":{asked}}}}}}}"#,
            post.body["id"],
            asked = roots_request(),
        );
        let fields = [("content-type", "application/json")];
        harness.respond(post.stream, 200, &fields, &body);
        assert!(harness.find_ask().is_none());
        let why = "its questions cannot be read".into();
        assert_eq!(harness.failure(call).kind, FailureKind::Invalid { why });
    }
}

/// S-RPC-19: in the legacy era such a result is an ordinary result.
#[test]
fn legacy_result_with_input_required_members_is_an_ordinary_result() {
    let mut harness = Harness::with_capabilities("2025-11-25", all_capabilities());
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    require_input(&mut harness, &post, json!({"requestState": "s"}));
    assert_eq!(harness.reply(call).expect("a reply")["requestState"], "s");
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.json(post.stream, 200, &complete(&post, json!({"content": []})));
    assert!(harness.reply(call).is_ok());
}

/// A call with all answers can continue before a planned end.
#[test]
fn reconnect_waits_for_a_call_that_is_about_to_continue() {
    let (mut harness, call, post) = start_call("tools/call", json!({"name": "add"}));
    let round = json!({"inputRequests": {"where": roots_request()}});
    require_input(&mut harness, &post, round);
    let ask = harness.ask();
    harness.answer(&ask, Ok(json!({"roots": []})));
    let again = harness.next_post("tools/call");
    harness.respond(again.stream, 429, &[("retry-after", "1")], "");
    let seen = harness.client.epoch();
    harness.client.reconnect(harness.now, seen, "a new version");
    harness.pump();
    assert!(!harness.is_settled(call));
    harness.advance(client_http::seconds(1));
    let again = harness.next_post("tools/call");
    harness.reply_with(&again, json!({"content": []}));
    assert!(harness.reply(call).is_ok());
}
