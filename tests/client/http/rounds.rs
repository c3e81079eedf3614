//! Rounds of a modern call over HTTP: the link collects the answers and sends the call again in a new exchange.

use crate::client_http::{self, Begun, Web, complete, config, every_chunking, result};
use everlink::client::FailureKind;
use everlink::protocol::{ClientCapabilities, ClientFeature};
use everlink::{CallId, Config, ErrorObject};
use serde_json::{Value, json};

fn declaring(capabilities: ClientCapabilities) -> Config {
    let mut config = config();
    config.capabilities = capabilities;
    config
}

fn everything() -> ClientCapabilities {
    ClientCapabilities::default()
        .with_roots(false)
        .with_sampling()
        .with_elicitation_form()
}

/// A call of a client that supports asks.
fn asked(method: &'static str, params: Value) -> (Web, CallId, Begun) {
    let mut web = Web::modern_with(declaring(everything()));
    let call = web.call(method, params);
    let post = web.posted(method);
    (web, call, post)
}

/// Makes the server ask for input before it continues.
fn wants(web: &mut Web, post: &Begun, members: Value) {
    let mut round = members;
    round["resultType"] = json!("input_required");
    web.json(post.stream, 200, &result(post, round));
}

fn roots() -> Value {
    json!({"method": "roots/list"})
}

/// S-MRTR-09: the call continues when all asks are answered.
#[test]
fn s_mrtr_09_a_call_goes_on_when_every_answer_is_there() {
    every_chunking(|chunking| {
        for is_stream in [false, true] {
            let (web, call, post) = asked("tools/call", json!({"name": "add"}));
            let mut web = web.chunked(chunking);
            let round = json!({"resultType": "input_required", "inputRequests": {
                "where": roots(),
                "who": {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}}});
            if is_stream {
                web.stream(post.stream);
                web.event(post.stream, None, &result(&post, round));
                web.end(post.stream);
            } else {
                web.json(post.stream, 200, &result(&post, round));
            }
            let asks = [web.ask(), web.ask()];
            assert!(asks.iter().all(|ask| ask.call == Some(call)));
            web.answer(&asks[1], Ok(json!({"action": "decline"})));
            assert_eq!(web.unseen(), 0, "one is missing");
            web.answer(&asks[0], Ok(json!({"roots": []})));
            let again = web.posted("tools/call");
            let answers = &again.body["params"]["inputResponses"];
            assert_eq!(
                *answers,
                json!({"where": {"roots": []}, "who": {"action": "decline"}})
            );
            web.reply_with(&again, json!({"content": []}));
            assert!(web.reply(call).is_ok());
        }
    });
}

/// S-MRTR-09: without asks the call continues at once.
#[test]
fn s_mrtr_09_10_a_state_alone_goes_back_at_once_and_byte_for_byte() {
    for state in [r#""a\u0062\/c""#, r#""""#, r#""\ud83d\ude00 {\"x\":1}""#] {
        every_chunking(|chunking| {
            let (web, call, post) = asked("tools/call", json!({"name": "add"}));
            let mut web = web.chunked(chunking);
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{{"resultType":"input_required","requestState":{state}}}}}"#,
                post.body["id"]
            );
            web.respond(
                post.stream,
                200,
                &[("content-type", "application/json")],
                &body,
            );
            let again = web.posted("tools/call");
            let meant: Value = serde_json::from_str(state).expect("JSON");
            assert_eq!(again.body["params"]["requestState"], meant);
            assert!(again.text.contains(state), "{}", again.text);
            assert_eq!(again.body["params"].get("inputResponses"), None);
            web.reply_with(&again, json!({"content": []}));
            assert!(web.reply(call).is_ok());
        });
    }
}

/// S-MRTR-10: a round without a state sends none, not even an earlier one (S-MRTR-14).
#[test]
fn s_mrtr_10_14_the_newest_round_counts_and_nothing_of_an_earlier_one() {
    let (mut web, call, first) = asked("tools/call", json!({"name": "add"}));
    wants(
        &mut web,
        &first,
        json!({"inputRequests": {"a": roots()}, "requestState": "one"}),
    );
    let ask = web.ask();
    web.answer(&ask, Ok(json!({"roots": []})));
    let second = web.posted("tools/call");
    assert_eq!(second.body["params"]["requestState"], "one");
    wants(&mut web, &second, json!({"inputRequests": {"b": roots()}}));
    let ask = web.ask();
    web.answer(&ask, Ok(json!({"roots": [1]})));
    let third = web.posted("tools/call");
    assert_eq!(third.body["params"].get("requestState"), None);
    assert_eq!(
        third.body["params"]["inputResponses"],
        json!({"b": {"roots": [1]}})
    );
    web.reply_with(&third, json!({"content": []}));
    assert!(web.reply(call).is_ok());
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
        let (mut web, _, first) = asked(method, params.clone());
        wants(&mut web, &first, json!({"requestState": "s"}));
        let second = web.posted(method);
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
fn s_mrtr_11_the_fields_of_the_arguments_are_repeated() {
    let mut web = Web::modern_with(declaring(everything()));
    let call = web.call("tools/list", json!({}));
    let post = web.posted("tools/list");
    let schema = json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
    web.reply_with(&post, json!({"tools": [{"name": "query", "inputSchema": schema}], "ttlMs": 0, "cacheScope": "private"}));
    assert!(web.reply(call).is_ok());
    web.call(
        "tools/call",
        json!({"name": "query", "arguments": {"region": "eu"}}),
    );
    let first = web.posted("tools/call");
    wants(&mut web, &first, json!({"requestState": "s"}));
    assert_eq!(
        web.posted("tools/call").field("mcp-param-region"),
        Some("eu")
    );
}

/// S-MRTR-12: asks and answers of parallel calls are kept apart.
#[test]
fn s_mrtr_12_rounds_of_parallel_calls_do_not_mix() {
    let mut web = Web::modern_with(declaring(everything()));
    let calls = ["a", "b", "c"].map(|name| web.call("tools/call", json!({"name": name})));
    let posts = calls.map(|_| web.posted("tools/call"));
    wants(
        &mut web,
        &posts[0],
        json!({"inputRequests": {"k": roots()}, "requestState": "of a"}),
    );
    wants(
        &mut web,
        &posts[1],
        json!({"inputRequests": {"k": roots()}, "requestState": "of b"}),
    );
    let asks = [web.ask(), web.ask()];
    assert_eq!(
        asks.each_ref().map(|ask| ask.call),
        [Some(calls[0]), Some(calls[1])]
    );
    web.answer(&asks[1], Ok(json!({"roots": ["b"]})));
    let again = web.posted("tools/call");
    assert_eq!(again.body["params"]["name"], "b");
    assert_eq!(again.body["params"]["requestState"], "of b");
    assert_eq!(
        again.body["params"]["inputResponses"]["k"]["roots"],
        json!(["b"])
    );
    let other = web.call("tools/call", json!({"name": "d"}));
    let post = web.posted("tools/call");
    assert_eq!(post.body["params"].get("requestState"), None);
    assert_eq!(post.body["params"].get("inputResponses"), None);
    web.reply_with(&post, json!({"content": []}));
    assert!(web.reply(other).is_ok());
}

/// S-MRTR-03: only three methods may ask for input. For other methods such a result is invalid.
#[test]
fn s_mrtr_03_input_is_required_by_three_methods_alone() {
    for method in [
        "tools/list",
        "completion/complete",
        "example/other",
        "resources/list",
    ] {
        let (mut web, call, post) = asked(method, json!({}));
        wants(&mut web, &post, json!({"requestState": "s"}));
        assert!(
            matches!(web.failure(call).kind, FailureKind::Invalid { .. }),
            "{method}"
        );
        assert_eq!(web.unseen(), 0);
    }
}

/// S-MRTR-04, S-MRTR-05: a round must ask for something, with valid methods.
#[test]
fn s_mrtr_04_05_a_round_that_wants_nothing_or_what_is_no_question_is_invalid() {
    for round in [
        json!({}),
        json!({"inputRequests": {}}),
        json!({"inputRequests": {"a": {}}}),
        json!({"inputRequests": {"a": {"method": "tools/list"}}}),
        json!({"inputRequests": {"a": {"method": "ping"}}}),
        json!({"inputRequests": []}),
        json!({"requestState": 7}),
    ] {
        let (mut web, call, post) = asked("tools/call", json!({"name": "add"}));
        wants(&mut web, &post, round.clone());
        assert!(
            matches!(web.failure(call).kind, FailureKind::Invalid { .. }),
            "{round}"
        );
        assert!(web.find_ask().is_none());
        assert_eq!(web.unseen(), 0);
    }
}

/// S-MRTR-06, S-MRTR-18: an elicitation without a mode is a form. The application gets only declared kinds of asks.
#[test]
fn s_mrtr_18_a_question_without_a_mode_is_a_form() {
    let form = json!({"method": "elicitation/create", "params": {"message": "?"}});
    let address = json!({"method": "elicitation/create", "params": {"mode": "url", "url": "https://a", "message": "?"}});
    let forms = ClientCapabilities::default().with(ClientFeature::Elicitation);
    let addresses = ClientCapabilities::default().with_elicitation_url();
    for (declared, request, is_asked) in [
        (&forms, &form, true),
        (&forms, &address, false),
        (&addresses, &form, false),
        (&addresses, &address, true),
    ] {
        let mut web = Web::modern_with(declaring(declared.clone()));
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        let said = post.meta("clientCapabilities")["elicitation"].clone();
        assert!(said.is_object());
        wants(&mut web, &post, json!({"inputRequests": {"q": request}}));
        assert_eq!(web.find_ask().is_some(), is_asked, "{request} {said}");
        assert_eq!(web.is_settled(call), !is_asked);
    }
}

/// S-MRTR-13: if an ask is declined, the call fails and is not sent again.
#[test]
fn s_mrtr_13_a_question_that_is_declined_ends_the_call() {
    let (mut web, call, post) = asked("tools/call", json!({"name": "add"}));
    wants(
        &mut web,
        &post,
        json!({"inputRequests": {"a": roots()}, "requestState": "s"}),
    );
    let ask = web.ask();
    web.answer(&ask, Err(ErrorObject::new(-1, "no")));
    assert!(matches!(
        web.failure(call).kind,
        FailureKind::Declined { .. }
    ));
    assert_eq!(web.unseen(), 0);
}

#[test]
fn s_mrtr_14_the_number_of_rounds_is_bounded() {
    let (mut web, call, mut post) = asked("tools/call", json!({"name": "add"}));
    for _ in 0..10 {
        wants(&mut web, &post, json!({"requestState": "s"}));
        post = web.posted("tools/call");
    }
    wants(&mut web, &post, json!({"requestState": "s"}));
    assert_eq!(
        web.failure(call).kind,
        FailureKind::TooManyRounds { rounds: 10 }
    );
    assert_eq!(web.unseen(), 0);
}

/// S-RPC-19: in the legacy era such a result is an ordinary result.
#[test]
fn a_legacy_result_that_looks_like_a_round_is_a_result() {
    let mut web = Web::declaring("2025-11-25", everything());
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    wants(&mut web, &post, json!({"requestState": "s"}));
    assert_eq!(web.reply(call).expect("a reply")["requestState"], "s");
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.json(post.stream, 200, &complete(&post, json!({"content": []})));
    assert!(web.reply(call).is_ok());
}
