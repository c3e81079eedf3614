//! Asks to clients of either era: which ones are allowed, how they are sent, where the answer goes, and how they end.
//! S-MRTR, S-S2C and related requirements.

use everlink::protocol::question::Unaskable;
use everlink::protocol::{ClientFeature, LogLevel, ServerCapabilities, Version, code};
use everlink::server::{
    Cancelled, Config, Event, InputRequired, Misuse, State, Unanswered, missing_capability,
};
use everlink::{AskId, ErrorObject, RequestId};
use serde_json::{Value, json};

use crate::server_pipe::{
    Harness, config, every_chunking, every_era, millis, offering, payload, request, seconds, value,
    with_meta,
};

const CANCELLED: &str = "notifications/cancelled";
const ELICIT: &str = "elicitation/create";
const ROOTS: &str = "roots/list";
const SAMPLE: &str = "sampling/createMessage";

/// The modern requests that may wait for input, each with a parameter and its value.
const INPUT_METHODS: [(&str, &str, &str); 3] = [
    ("prompts/get", "name", "p"),
    ("resources/read", "uri", "file:///a"),
    ("tools/call", "name", "t"),
];

/// The parameters of a form elicitation.
fn form_elicitation(message: &str) -> Value {
    json!({"mode": "form", "message": message, "requestedSchema": {"type": "object", "properties": {}}})
}

/// The parameters of a URL elicitation.
fn url_elicitation() -> Value {
    json!({"mode": "url", "message": "sign in", "url": "https://example.com"})
}

/// A server that has at most about one message on its way.
fn small_write_window() -> Config {
    let mut config = config();
    config.limits.write_window = 1;
    config
}

impl Harness {
    /// The result that asks for input, in place of the reply to this request.
    #[track_caller]
    fn round(&self, id: &Value) -> Value {
        let result = self.result(id);
        assert_eq!(result["resultType"], "input_required", "{result}");
        result
    }

    /// The asks of a round: their keys and methods.
    #[track_caller]
    fn asks_of_round(&self, id: &Value) -> Vec<(String, String)> {
        let round = self.round(id);
        let Some(asks) = round.get("inputRequests") else {
            return Vec::new();
        };
        let asks = asks.as_object().expect("an object").iter();
        let method = |ask: &Value| ask["method"].as_str().expect("a method").to_owned();
        asks.map(|(key, ask)| (key.clone(), method(ask))).collect()
    }

    /// The key of a round with only one ask.
    #[track_caller]
    fn key(&self, id: &Value) -> String {
        let asks = self.asks_of_round(id);
        assert_eq!(asks.len(), 1, "{asks:?}");
        asks[0].0.clone()
    }

    /// Calls the tool `asks` again, with the state of that round and these answers.
    fn next_round(&mut self, round: &Value, answers: Value) -> Value {
        let state = self.round(round)["requestState"].clone();
        let params = json!({"name": "asks", "requestState": state, "inputResponses": answers});
        self.modern_call("tools/call", params)
    }

    /// Calls the tool again with the answer to the only ask of that round.
    fn next_round_with(&mut self, round: &Value, answer: Value) -> Value {
        let key = self.key(round);
        self.next_round(round, json!({key: answer}))
    }

    /// Withdraws an ask without a reason.
    #[track_caller]
    fn withdraw(&mut self, ask: AskId) -> Result<(), Misuse> {
        self.with_server(|server, now| server.withdraw(now, ask, None))
    }

    fn require_input(&mut self, request: RequestId, input: InputRequired) -> Result<(), Misuse> {
        self.with_server(|server, now| server.require_input(now, request, input))
    }
}

// Modern: how an ask is sent.

/// S-MRTR-01, S-MRTR-04, S-MRTR-05, S-MRTR-07, S-RPC-23, S-STDIO-10: a modern client gets an ask in place of the reply, never
/// as a request. The ask has a key, its method and parameters; the result has a state for the next round.
#[test]
fn ask_to_a_modern_client_is_sent_in_place_of_the_reply() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        for (method, member, name) in INPUT_METHODS {
            let id = harness.call(method, json!({member: name}));
            let asking = harness.newest_request();
            harness.ask(asking, ELICIT, form_elicitation("well?"));
            let round = harness.round(&id);
            assert!(round["requestState"].is_string(), "{method}");
            let key = harness.key(&id);
            let expected = json!({"method": ELICIT, "params": form_elicitation("well?")});
            assert_eq!(round["inputRequests"][&key], expected, "{method}");
        }
        for line in harness.received() {
            assert!(line.get("method").is_none(), "{line} is no reply");
        }
        harness
    });
}

/// S-MRTR-05: an ask without parameters is sent without any, or with an empty object.
#[test]
fn ask_without_params_is_sent_with_no_or_empty_params() {
    let mut harness = Harness::modern(config());
    let (id, asking) = harness.call_tool("asks");
    harness.ask_for_roots(asking);
    let key = harness.key(&id);
    let ask = &harness.round(&id)["inputRequests"][&key];
    assert_eq!(ask["method"], ROOTS);
    let params = ask.get("params");
    assert!(params.is_none_or(|params| *params == json!({})), "{ask}");
    harness.finish();
}

/// S-CACHE-02, S-CACHE-01: a result that asks for input has no cache lifetime, but the final result has one.
#[test]
fn input_required_result_has_no_cache_lifetime_but_the_final_result_has() {
    let mut harness = Harness::modern(config());
    let first = harness.call("resources/read", json!({"uri": "file:///a"}));
    let asking = harness.newest_request();
    harness.ask_for_roots(asking);
    let round = harness.round(&first);
    assert!(
        round.get("ttlMs").is_none() && round.get("cacheScope").is_none(),
        "{round}"
    );
    let answers = json!({harness.key(&first): {"roots": []}});
    let again = json!({"uri": "file:///a", "requestState": round["requestState"], "inputResponses": answers});
    let second = harness.call("resources/read", again);
    harness.respond(asking, json!({"contents": []}));
    let answer = harness.result(&second);
    assert!(
        answer["ttlMs"].is_u64() && answer["cacheScope"].is_string(),
        "{answer}"
    );
    harness.finish();
}

/// S-MRTR-02: other modern requests cannot wait for input. They can still be answered.
#[test]
fn modern_list_and_completion_requests_cannot_ask_for_input() {
    let mut harness = Harness::modern(config());
    for (method, params) in [
        ("tools/list", json!({})),
        ("prompts/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("completion/complete", json!({"ref": {}, "argument": {}})),
    ] {
        let id = harness.call(method, params);
        let listing = harness.newest_request();
        let asked = harness.try_ask(listing, ROOTS, Value::Null);
        assert_eq!(
            asked,
            Err(Misuse::CannotAsk {
                method: method.into()
            })
        );
        let input = InputRequired::new().with_state("s");
        let required = harness.require_input(listing, input);
        assert_eq!(
            required,
            Err(Misuse::CannotAsk {
                method: method.into()
            })
        );
        let typed = payload(&json!({"resultType": "input_required", "requestState": "s"}));
        let answered = harness.with_server(|server, now| server.respond(now, listing, typed));
        assert!(answered.is_err(), "{method}");
        assert!(harness.replies(&id).is_empty(), "{method}");
        harness.respond(listing, json!({}));
        assert_eq!(harness.result(&id)["resultType"], "complete", "{method}");
    }
    harness.finish();
}

/// S-MRTR-11, S-RPC-07: the client sends its answer under a new id. For the application it is the same request, and its reply goes
/// to the new id.
#[test]
fn reply_after_an_ask_goes_to_the_id_of_the_next_round() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        let (first, asking) = harness.call_tool("asks");
        let ask = harness.ask(asking, ELICIT, form_elicitation("well?"));
        assert_eq!(harness.outcome(ask), None);
        assert_eq!(harness.server.requests(), 1, "the request is still open");
        let accepted = json!({"action": "accept", "content": {"a": 1}});
        let second = harness.next_round_with(&first, accepted.clone());
        assert_eq!(harness.outcome(ask), Some(Ok(accepted)));
        assert_eq!(harness.requests().len(), 1, "it is the same request");
        harness.respond(asking, json!({"content": []}));
        assert_eq!(harness.result(&second)["resultType"], "complete");
        assert_eq!(harness.replies(&first).len(), 1);
        harness
    });
}

/// S-MRTR-13: a refusal by the user is an ordinary answer.
#[test]
fn decline_or_cancel_by_the_user_is_an_ordinary_answer() {
    for action in ["decline", "cancel"] {
        let mut harness = Harness::modern(config());
        let (first, asking) = harness.call_tool("asks");
        let ask = harness.ask(asking, ELICIT, form_elicitation("well?"));
        harness.next_round_with(&first, json!({"action": action}));
        assert_eq!(harness.outcome(ask), Some(Ok(json!({"action": action}))));
        harness.finish();
    }
}

/// S-MRTR-05: asks that are made before the round is written go out in that round. Each has its own key and gets its own
/// answer.
#[test]
fn asks_made_before_the_write_go_out_in_one_round() {
    let mut harness = Harness::modern(small_write_window());
    let (first, asking) = harness.call_tool("asks");
    harness.fill_pipe();
    let asks = [
        harness.ask(asking, ELICIT, form_elicitation("one?")),
        harness.ask_for_roots(asking),
        harness.ask(asking, ELICIT, form_elicitation("two?")),
        harness.ask(asking, SAMPLE, json!({"messages": []})),
    ];
    harness.resume_reading();
    let round = harness.round(&first);
    let round_asks = round["inputRequests"].as_object().expect("asks").clone();
    assert_eq!(round_asks.len(), asks.len());
    let answers: Value = round_asks
        .iter()
        .map(|(key, ask)| (key.clone(), json!({"to": ask})))
        .collect::<serde_json::Map<_, _>>()
        .into();
    harness.next_round(&first, answers);
    let to = |ask: AskId| {
        harness
            .outcome(ask)
            .expect("the ask or request was answered")
            .expect("the answer is a result")["to"]
            .clone()
    };
    assert_eq!(to(asks[0])["params"]["message"], "one?");
    assert_eq!(to(asks[1])["method"], ROOTS);
    assert_eq!(to(asks[2])["params"]["message"], "two?");
    assert_eq!(to(asks[3])["method"], SAMPLE);
    assert_eq!(
        harness.round(&first)["inputRequests"]
            .as_object()
            .map(serde_json::Map::len),
        Some(4)
    );
    harness.finish();
}

/// S-MRTR-08: an ask that is made after the round was written goes out in the next round.
#[test]
fn ask_made_after_the_round_is_written_goes_out_in_the_next_round() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        let (first, asking) = harness.call_tool("asks");
        let roots = harness.ask_for_roots(asking);
        let later = harness.ask(asking, ELICIT, form_elicitation("and?"));
        assert_eq!(harness.asks_of_round(&first).len(), 1);
        let second = harness.next_round_with(&first, json!({"roots": []}));
        assert_eq!(harness.outcome(roots), Some(Ok(json!({"roots": []}))));
        assert_eq!(harness.outcome(later), None);
        let asks = harness.asks_of_round(&second);
        assert_eq!(asks.len(), 1);
        assert_eq!(asks[0].1, ELICIT);
        let third = harness.next_round_with(&second, json!({"action": "decline"}));
        assert_eq!(
            harness.outcome(later),
            Some(Ok(json!({"action": "decline"})))
        );
        harness.respond(asking, json!({"content": []}));
        assert_eq!(harness.result(&third)["content"], json!([]));
        harness
    });
}

/// S-MRTR-17: only missing answers are asked for again, and the others are accepted.
#[test]
fn only_missing_answers_are_asked_for_again() {
    let mut harness = Harness::modern(small_write_window());
    let (first, asking) = harness.call_tool("asks");
    harness.fill_pipe();
    let elicit = harness.ask(asking, ELICIT, form_elicitation("well?"));
    let roots = harness.ask_for_roots(asking);
    harness.resume_reading();
    let asks = harness.asks_of_round(&first);
    let key = |method: &str| {
        let mut found = asks.iter().filter(|(_, of)| of == method);
        found.next().expect("the ask is in the round").0.clone()
    };
    let second = harness.next_round(&first, json!({key(ROOTS): {"roots": []}}));
    assert_eq!(harness.outcome(roots), Some(Ok(json!({"roots": []}))));
    assert_eq!(harness.outcome(elicit), None);
    let again = harness.asks_of_round(&second);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].1, ELICIT);
    harness.next_round_with(&second, json!({"action": "accept", "content": {}}));
    assert!(matches!(harness.outcome(elicit), Some(Ok(_))));
    harness.finish();
}

/// S-MRTR-17: a round without any answers counts as missing answers, not as an error.
#[test]
fn round_without_any_answers_is_asked_again() {
    for answers in [Some(json!({})), None] {
        let mut harness = Harness::modern(config());
        let (first, asking) = harness.call_tool("asks");
        let ask = harness.ask_for_roots(asking);
        let mut params =
            json!({"name": "asks", "requestState": harness.round(&first)["requestState"]});
        if let Some(answers) = answers {
            params["inputResponses"] = answers;
        }
        let second = harness.modern_call("tools/call", params);
        assert_eq!(harness.asks_of_round(&second).len(), 1);
        harness.next_round_with(&second, json!({"roots": []}));
        assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
        harness.finish();
    }
}

/// S-MRTR-17: unrequested answers are ignored.
#[test]
fn unrequested_answers_are_ignored() {
    let mut harness = Harness::modern(config());
    let (first, asking) = harness.call_tool("asks");
    let ask = harness.ask_for_roots(asking);
    let key = harness.key(&first);
    let answers = json!({"nobody asked": {"x": 1}, key: {"roots": []}, "": {}});
    let second = harness.next_round(&first, answers);
    assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
    assert!(
        harness.replies(&second).is_empty(),
        "the request stays open"
    );
    harness.respond(asking, json!({"content": []}));
    assert_eq!(harness.result(&second)["content"], json!([]));
    harness.finish();
}

/// S-MRTR-17: malformed answers are refused with an error. The round stays open for valid ones.
#[test]
fn malformed_answers_are_refused_and_the_round_stays_open() {
    for answers in [
        json!([]),
        json!("yes"),
        json!(5),
        json!({"KEY": "yes"}),
        json!({"KEY": [1]}),
        json!({"KEY": null}),
        json!({"KEY": true}),
    ] {
        let mut harness = Harness::modern(config());
        let (first, asking) = harness.call_tool("asks");
        let ask = harness.ask_for_roots(asking);
        let key = harness.key(&first);
        let text = answers.to_string().replace("KEY", &key);
        let malformed: Value = serde_json::from_str(&text).expect("the text is JSON");
        let refused = harness.next_round(&first, malformed);
        assert_eq!(harness.code(&refused), code::INVALID_PARAMS, "{answers}");
        assert_eq!(harness.outcome(ask), None, "{answers}");
        assert_eq!(harness.requests().len(), 1, "{answers}");
        harness.next_round_with(&first, json!({"roots": []}));
        assert_eq!(
            harness.outcome(ask),
            Some(Ok(json!({"roots": []}))),
            "{answers}"
        );
        harness.finish();
    }
}

/// S-MRTR-17: a duplicate answer is refused.
#[test]
fn duplicate_answer_is_refused() {
    let mut harness = Harness::modern(config());
    let (first, asking) = harness.call_tool("asks");
    let ask = harness.ask_for_roots(asking);
    let key = harness.key(&first);
    let state = harness.round(&first)["requestState"].clone();
    let params = json!({"name": "asks", "requestState": state, "inputResponses": "TWICE"});
    let line = request("twice", "tools/call", with_meta(params, json!({})));
    let twice = format!(r#"{{"{key}":{{"roots":[1]}},"{key}":{{"roots":[2]}}}}"#);
    harness.send_line(&line.to_string().replace(r#""TWICE""#, &twice));
    assert_eq!(harness.code(&json!("twice")), code::INVALID_PARAMS);
    assert_eq!(harness.outcome(ask), None);
    harness.finish();
}

// Modern: the state.

/// S-MRTR-15: a forged or changed state is refused, and does not reach the application. The true state still works.
#[test]
fn forged_request_state_is_refused() {
    let mut harness = Harness::modern(config());
    let (first, asking) = harness.call_tool("asks");
    let ask = harness.ask_for_roots(asking);
    let key = harness.key(&first);
    let state = harness.round(&first)["requestState"]
        .as_str()
        .expect("text")
        .to_owned();
    let mut forgeries = vec![
        format!("{state}0"),
        format!(" {state}"),
        state.to_uppercase(),
    ];
    for at in 0..state.len() {
        let mut bytes = state.clone().into_bytes();
        bytes[at] = if bytes[at] == b'1' { b'2' } else { b'1' };
        forgeries.push(String::from_utf8(bytes).expect("ASCII"));
        forgeries.push(state[..at].to_owned());
    }
    for forged in forgeries.iter().filter(|forged| **forged != state) {
        let has_server_prefix = forged.starts_with("everlink.");
        let delivered = harness.requests().len();
        let answers = json!({&key: {"roots": ["evil"]}});
        let params = json!({"name": "asks", "requestState": forged, "inputResponses": answers});
        let id = harness.modern_call("tools/call", params);
        if has_server_prefix {
            assert_eq!(harness.code(&id), code::INVALID_PARAMS, "{forged}");
        }
        assert_eq!(harness.outcome(ask), None, "{forged}");
        if harness.requests().len() > delivered {
            // A text without the server's own prefix may be a state of the application, which judges it.
            let request = harness.requests().pop().expect("the request arrived");
            let input = request.input.as_ref().expect("the input is delivered");
            assert_eq!(input.state.as_deref(), Some(forged.as_str()));
        }
    }
    harness.next_round_with(&first, json!({"roots": []}));
    assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
    harness.finish();
}

/// S-MRTR-15: a state that is not a string is refused.
#[test]
fn request_state_that_is_not_a_string_is_refused() {
    for state in [json!(5), json!({}), json!(["s"]), json!(true)] {
        let mut harness = Harness::modern(config());
        let (_, asking) = harness.call_tool("asks");
        let ask = harness.ask_for_roots(asking);
        let params = json!({"name": "asks", "requestState": state, "inputResponses": {}});
        let id = harness.modern_call("tools/call", params);
        assert_eq!(harness.code(&id), code::INVALID_PARAMS, "{state}");
        assert_eq!(harness.outcome(ask), None);
        harness.finish();
    }
}

/// S-MRTR-15: a state works only once.
#[test]
fn request_state_works_only_once() {
    let mut harness = Harness::modern(config());
    let (first, asking) = harness.call_tool("asks");
    let ask = harness.ask_for_roots(asking);
    harness.next_round_with(&first, json!({"roots": [1]}));
    let reused = harness.next_round_with(&first, json!({"roots": [2]}));
    assert_eq!(harness.code(&reused), code::INVALID_PARAMS);
    assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": [1]}))));

    harness.respond(asking, json!({"content": []}));
    let late = harness.next_round_with(&first, json!({"roots": [3]}));
    assert_eq!(harness.code(&late), code::INVALID_PARAMS);
    assert_eq!(harness.requests().len(), 1);
    harness.finish();
}

/// S-MRTR-14, S-MRTR-15: the newest round replaces earlier ones, and a state of an earlier round is refused.
#[test]
fn request_state_of_an_earlier_round_is_refused() {
    let mut harness = Harness::modern(config());
    let (first, asking) = harness.call_tool("asks");
    let ask = harness.ask_for_roots(asking);
    let key = harness.key(&first);
    let second = harness.next_round(&first, json!({}));
    assert_ne!(
        harness.round(&first)["requestState"],
        harness.round(&second)["requestState"]
    );
    let stale = harness.next_round(&first, json!({key: {"roots": []}}));
    assert_eq!(harness.code(&stale), code::INVALID_PARAMS);
    assert_eq!(harness.outcome(ask), None);
    harness.next_round_with(&second, json!({"roots": []}));
    assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
    harness.finish();
}

/// S-MRTR-15: a state of another server, with another secret, is refused.
#[test]
fn request_state_of_another_server_is_refused() {
    let state_of = |secret: u8| {
        let mut other = config();
        other.secret = [secret; 16];
        let mut harness = Harness::modern(other);
        let (first, asking) = harness.call_tool("asks");
        harness.ask_for_roots(asking);
        let state = harness.round(&first)["requestState"].clone();
        harness.finish();
        state
    };
    let foreign = state_of(8);
    assert_ne!(foreign, state_of(7), "the state depends on the secret");

    let mut harness = Harness::modern(config());
    let (first, asking) = harness.call_tool("asks");
    let ask = harness.ask_for_roots(asking);
    let answers = json!({harness.key(&first): {"roots": []}});
    let params = json!({"name": "asks", "requestState": foreign, "inputResponses": answers});
    let id = harness.modern_call("tools/call", params);
    assert_eq!(harness.code(&id), code::INVALID_PARAMS);
    assert_eq!(harness.outcome(ask), None);
    harness.finish();
}

/// S-MRTR-16: a state belongs to its request. With another tool or another method it is refused.
#[test]
fn request_state_is_refused_with_another_tool_or_method() {
    for (method, params) in [
        (
            "tools/call",
            json!({"name": "other", "arguments": {"n": 1}}),
        ),
        (
            "prompts/get",
            json!({"name": "asks", "arguments": {"n": 1}}),
        ),
        ("resources/read", json!({"uri": "asks"})),
    ] {
        state_is_refused(method, &params);
    }
}

/// Checks that the state of one tool call is refused with this method and these parameters, and accepted with its
/// own.
#[track_caller]
fn state_is_refused(method: &str, params: &Value) {
    let mut harness = Harness::modern(config());
    let own = json!({"name": "asks", "arguments": {"n": 1}});
    let first = harness.call("tools/call", own.clone());
    let asking = harness.newest_request();
    let ask = harness.ask_for_roots(asking);
    let answers = json!({harness.key(&first): {"roots": []}});
    let state = harness.round(&first)["requestState"].clone();
    let with = |mut params: Value| {
        params["requestState"] = state.clone();
        params["inputResponses"] = answers.clone();
        params
    };
    let wrong = harness.modern_call(method, with(params.clone()));
    assert_eq!(
        harness.code(&wrong),
        code::INVALID_PARAMS,
        "{method} {params}"
    );
    assert_eq!(harness.outcome(ask), None, "{method} {params}");
    harness.modern_call("tools/call", with(own));
    assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
    harness.finish();
}

/// S-MRTR-15: on a request that cannot wait for input, a state has no effect.
#[test]
fn request_state_on_tools_list_has_no_effect() {
    let mut harness = Harness::modern(config());
    let (first, asking) = harness.call_tool("asks");
    let ask = harness.ask_for_roots(asking);
    let answers = json!({harness.key(&first): {"roots": []}});
    let state = harness.round(&first)["requestState"].clone();
    harness.modern_call(
        "tools/list",
        json!({"requestState": state, "inputResponses": answers}),
    );
    assert_eq!(harness.outcome(ask), None);
    harness.finish();
}

// Modern: limits.

/// S-MRTR-14, S-INH-06: the number of rounds is limited. The ask then fails, and the application continues without it.
#[test]
fn ask_fails_when_the_round_limit_is_reached() {
    let mut config = config();
    config.limits.input_rounds = 3;
    let mut harness = Harness::modern(config);
    let (mut round, asking) = harness.call_tool("asks");
    let ask = harness.ask_for_roots(asking);
    for _ in 1..3 {
        round = harness.next_round(&round, json!({}));
        assert_eq!(harness.outcome(ask), None);
    }
    let last = harness.next_round(&round, json!({}));
    assert_eq!(
        harness.outcome(ask),
        Some(Err(Unanswered::TooManyRounds { rounds: 3 }))
    );
    assert!(harness.replies(&last).is_empty(), "the request stays open");
    let more = harness.try_ask(asking, ROOTS, Value::Null);
    assert_eq!(more, Err(Misuse::TooManyRounds { rounds: 3 }));
    harness.respond(asking, json!({"content": [], "isError": true}));
    assert_eq!(harness.result(&last)["isError"], true);
    harness.finish();
}

/// S-MRTR-08, S-TIME-01, S-TIME-03: the server waits for a client that does not return only until the configured timeout. Then the state
/// is invalid.
#[test]
fn ask_times_out_and_its_state_expires_if_the_client_does_not_return() {
    for timeout in [seconds(600), seconds(7)] {
        let mut config = config();
        config.ask_timeout = timeout;
        let mut harness = Harness::modern(config);
        let (first, asking) = harness.call_tool("asks");
        let ask = harness.ask_for_roots(asking);
        harness.advance(timeout - millis(1));
        assert_eq!(harness.outcome(ask), None);
        harness.advance(millis(1));
        assert_eq!(harness.outcome(ask), Some(Err(Unanswered::TimedOut)));
        assert_eq!(harness.cancel_reason(asking), Some(Cancelled::NotResumed));
        assert_eq!(harness.server.requests(), 0);
        let late = harness.next_round_with(&first, json!({"roots": []}));
        assert_eq!(harness.code(&late), code::INVALID_PARAMS);
        let result = payload(&json!({"content": []}));
        let done = harness.with_server(|server, now| server.respond(now, asking, result));
        assert_eq!(done, Err(Misuse::UnknownRequest));
        harness.finish();
    }
}

/// S-TIME-05: the timeout of an ask covers all its rounds, and a round without an answer does not extend it. The request
/// continues.
#[test]
fn ask_timeout_covers_all_rounds() {
    let mut harness = Harness::modern(config());
    let (first, asking) = harness.call_tool("asks");
    let ask = harness.ask_for_roots(asking);
    harness.advance(seconds(599));
    let second = harness.next_round(&first, json!({}));
    let key = harness.key(&second);
    assert_eq!(harness.outcome(ask), None);
    harness.advance(seconds(1));
    assert_eq!(harness.outcome(ask), Some(Err(Unanswered::TimedOut)));
    assert_eq!(harness.cancel_reason(asking), None);
    let third = harness.next_round(&second, json!({key: {"roots": []}}));
    assert!(
        harness.replies(&third).is_empty(),
        "the request waits for the application"
    );
    harness.advance(seconds(6_000));
    harness.respond(asking, json!({"content": []}));
    assert_eq!(harness.result(&third)["content"], json!([]));
    harness.finish();
}

/// S-TIME-01: an ask of a later round has its own timeout.
#[test]
fn ask_of_a_later_round_has_its_own_timeout() {
    let mut harness = Harness::modern(config());
    let (first, asking) = harness.call_tool("asks");
    harness.ask_for_roots(asking);
    harness.advance(seconds(599));
    harness.next_round_with(&first, json!({"roots": []}));
    let later = harness.ask_for_roots(asking);
    harness.advance(seconds(599));
    assert_eq!(harness.outcome(later), None);
    harness.advance(seconds(1));
    assert_eq!(harness.outcome(later), Some(Err(Unanswered::TimedOut)));
    harness.finish();
}

/// S-TIME-01: an ask that cannot be written because the client does not read also times out. The request can still be
/// answered.
#[test]
fn unwritten_ask_times_out_and_the_request_can_still_be_answered() {
    let mut harness = Harness::modern(small_write_window());
    let (first, asking) = harness.call_tool("asks");
    harness.fill_pipe();
    let ask = harness.ask_for_roots(asking);
    harness.advance(seconds(601));
    assert_eq!(harness.outcome(ask), Some(Err(Unanswered::TimedOut)));
    harness.respond(asking, json!({"content": []}));
    harness.resume_reading();
    assert_eq!(harness.result(&first)["resultType"], "complete");
    harness.finish();
}

/// S-INH-06: the number of open asks is limited in both eras, and an ask that ends makes room.
#[test]
fn number_of_open_asks_is_limited() {
    every_era(|chunking, version| {
        let mut config = config();
        config.limits.asks = 2;
        let mut harness = Harness::new(config).chunked(chunking).with_version(version);
        let (_, asking) = harness.call_tool("asks");
        let first = harness.ask_for_roots(asking);
        harness.ask_for_roots(asking);
        let third = harness.try_ask(asking, ROOTS, Value::Null);
        assert_eq!(third, Err(Misuse::TooManyAsks { open: 2 }));
        harness.withdraw(first).expect("the ask or request is open");
        harness.ask_for_roots(asking);
        harness
    });
}

/// S-INH-06: the number of requests that wait for their clients is limited.
#[test]
fn requests_waiting_for_their_client_are_limited() {
    let mut config = config();
    config.limits.asks = 2;
    let mut harness = Harness::modern(config);
    let mut refused = 0;
    for _ in 0..4 {
        let (_, asking) = harness.call_tool("asks");
        match harness.try_ask(asking, ROOTS, Value::Null) {
            Ok(ask) => drop(harness.withdraw(ask)),
            Err(Misuse::TooManyAsks { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(refused, 2);
    assert_eq!(harness.server.requests(), 4);
    harness.finish();
}

// Modern: the application decides while the client is away.

/// S-MRTR-08: a reply that the application gives while the client is away is kept until the client returns.
#[test]
fn reply_given_while_the_client_is_away_is_kept_until_it_returns() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        for fails in [false, true] {
            let (first, asking) = harness.call_tool("asks");
            let ask = harness.ask_for_roots(asking);
            let received_before = harness.received().len();
            if fails {
                harness.fail(asking, 7, "no");
            } else {
                harness.respond(asking, json!({"content": []}));
            }
            assert_eq!(
                harness.received().len(),
                received_before,
                "the reply is held back"
            );
            assert_eq!(harness.outcome(ask), None, "the client has the ask");
            let second = harness.next_round_with(&first, json!({"roots": []}));
            assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
            if fails {
                assert_eq!(harness.code(&second), 7);
            } else {
                assert_eq!(harness.result(&second)["content"], json!([]));
            }
            assert_eq!(harness.server.requests(), 0);
        }
        harness
    });
}

/// After the application's reply, asks that were not sent yet end at once.
#[test]
fn reply_given_while_the_client_is_away_ends_unsent_asks() {
    let mut harness = Harness::modern(config());
    let (first, asking) = harness.call_tool("asks");
    let (asked, unasked) = (harness.ask_for_roots(asking), harness.ask_for_roots(asking));
    harness.respond(asking, json!({"content": []}));
    assert_eq!(harness.outcome(unasked), Some(Err(Unanswered::RequestOver)));
    assert_eq!(harness.outcome(asked), None, "the client has the ask");
    let second = harness.next_round_with(&first, json!({"roots": []}));
    assert_eq!(harness.outcome(asked), Some(Ok(json!({"roots": []}))));
    assert_eq!(harness.result(&second)["content"], json!([]));
    harness.finish();
}

/// S-MRTR-08: a reply for a client that never returns is dropped after the timeout. The application is not told, because it has answered.
#[test]
fn kept_reply_is_dropped_after_the_timeout_without_an_event() {
    let mut harness = Harness::modern(config());
    let (first, asking) = harness.call_tool("asks");
    harness.ask_for_roots(asking);
    harness.respond(asking, json!({"content": []}));
    assert_eq!(harness.server.requests(), 1);
    harness.advance(seconds(601));
    assert_eq!(harness.server.requests(), 0);
    assert_eq!(
        harness.cancel_reason(asking),
        None,
        "the ask or request was answered"
    );
    let late = harness.next_round(&first, json!({}));
    assert_eq!(harness.code(&late), code::INVALID_PARAMS);
    harness.finish();
}

/// A withdrawn ask is never sent, and its outcome comes once. If it was not written yet, no round is used.
#[test]
fn ask_withdrawn_before_it_is_written_is_never_sent() {
    let mut harness = Harness::modern(small_write_window());
    let (first, asking) = harness.call_tool("asks");
    harness.fill_pipe();
    let ask = harness.ask_for_roots(asking);
    harness.withdraw(ask).expect("the ask or request is open");
    assert_eq!(harness.outcome(ask), Some(Err(Unanswered::Withdrawn)));
    assert_eq!(harness.withdraw(ask), Err(Misuse::UnknownAsk));
    harness.resume_reading();
    assert!(harness.replies(&first).is_empty(), "no round is sent");
    harness.respond(asking, json!({"content": []}));
    assert_eq!(harness.result(&first)["resultType"], "complete");
    harness.finish();
}

/// One of several asks is withdrawn before they are written. The others are sent.
#[test]
fn other_asks_are_sent_when_one_is_withdrawn_before_the_write() {
    let mut harness = Harness::modern(small_write_window());
    let (first, asking) = harness.call_tool("asks");
    harness.fill_pipe();
    let dropped = harness.ask(asking, ELICIT, form_elicitation("well?"));
    let kept = harness.ask_for_roots(asking);
    harness
        .withdraw(dropped)
        .expect("the ask or request is open");
    harness.resume_reading();
    let asks = harness.asks_of_round(&first);
    assert_eq!(asks.len(), 1);
    assert_eq!(asks[0].1, ROOTS);
    harness.next_round_with(&first, json!({"roots": []}));
    assert_eq!(harness.outcome(kept), Some(Ok(json!({"roots": []}))));
    harness.finish();
}

/// An ask that is withdrawn while the client is away is not sent again, and an answer to it is ignored.
#[test]
fn withdrawn_ask_is_not_sent_again_and_its_answer_is_ignored() {
    for answers in [false, true] {
        let mut harness = Harness::modern(config());
        let (first, asking) = harness.call_tool("asks");
        let ask = harness.ask_for_roots(asking);
        harness.withdraw(ask).expect("the ask or request is open");
        let key = harness.key(&first);
        let responses = if answers {
            json!({key: {"roots": []}})
        } else {
            json!({})
        };
        let second = harness.next_round(&first, responses);
        assert!(
            harness.replies(&second).is_empty(),
            "the request waits for the application"
        );
        assert_eq!(harness.outcome(ask), Some(Err(Unanswered::Withdrawn)));
        harness.respond(asking, json!({"content": []}));
        assert_eq!(harness.result(&second)["content"], json!([]));
        assert!(harness.messages_with(CANCELLED).is_empty());
        harness.finish();
    }
}

/// S-CAP-05, S-PROG-04: while the client is away, no progress and no log messages are sent.
#[test]
fn no_progress_or_log_is_sent_while_the_client_is_away() {
    let mut harness = Harness::modern(config());
    let meta = json!({"progressToken": "t", "io.modelcontextprotocol/logLevel": "debug"});
    harness.call("tools/call", json!({"name": "asks", "_meta": meta}));
    let asking = harness.newest_request();
    harness.ask_for_roots(asking);
    let received_before = harness.received().len();
    harness.progress(asking, 1.0);
    let data = payload(&json!("x"));
    let logged = harness
        .with_server(|server, now| server.log(now, Some(asking), LogLevel::Error, None, data));
    logged.expect("the request is not over");
    assert_eq!(harness.received().len(), received_before);
    harness.finish();
}

// Allowed asks.

/// S-MRTR-06, S-S2C-02, S-META-08, S-MRTR-18: the server sends only asks that the client declared, in a declared mode, in both
/// eras.
#[test]
fn only_declared_asks_and_modes_are_sent() {
    use ClientFeature::{
        Elicitation, ElicitationForm, ElicitationUrl, Roots, Sampling, SamplingTools,
    };
    let plain = json!({"messages": []});
    let tools = json!({"messages": [], "tools": []});
    let choice = json!({"messages": [], "toolChoice": {"mode": "auto"}});
    let no_mode = json!({"message": "well?", "requestedSchema": {}});
    let cases = [
        (
            json!({}),
            ROOTS,
            Value::Null,
            Some(Unaskable::Undeclared(Roots)),
        ),
        (json!({"roots": {}}), ROOTS, Value::Null, None),
        (
            json!({}),
            SAMPLE,
            plain.clone(),
            Some(Unaskable::Undeclared(Sampling)),
        ),
        (json!({"sampling": {}}), SAMPLE, plain, None),
        (
            json!({"sampling": {}}),
            SAMPLE,
            tools.clone(),
            Some(Unaskable::UndeclaredManner(SamplingTools)),
        ),
        (
            json!({"sampling": {}}),
            SAMPLE,
            choice.clone(),
            Some(Unaskable::UndeclaredManner(SamplingTools)),
        ),
        (json!({"sampling": {"tools": {}}}), SAMPLE, tools, None),
        (json!({"sampling": {"tools": {}}}), SAMPLE, choice, None),
        (
            json!({}),
            ELICIT,
            form_elicitation("?"),
            Some(Unaskable::Undeclared(Elicitation)),
        ),
        (
            json!({"elicitation": {}}),
            ELICIT,
            form_elicitation("?"),
            None,
        ),
        (json!({"elicitation": {}}), ELICIT, no_mode.clone(), None),
        (
            json!({"elicitation": {}}),
            ELICIT,
            url_elicitation(),
            Some(Unaskable::UndeclaredManner(ElicitationUrl)),
        ),
        (
            json!({"elicitation": {"form": {}}}),
            ELICIT,
            url_elicitation(),
            Some(Unaskable::UndeclaredManner(ElicitationUrl)),
        ),
        (
            json!({"elicitation": {"url": {}}}),
            ELICIT,
            url_elicitation(),
            None,
        ),
        (
            json!({"elicitation": {"url": {}}}),
            ELICIT,
            form_elicitation("?"),
            Some(Unaskable::UndeclaredManner(ElicitationForm)),
        ),
        (
            json!({"elicitation": {"url": {}}}),
            ELICIT,
            no_mode,
            Some(Unaskable::UndeclaredManner(ElicitationForm)),
        ),
        (
            json!({"elicitation": {"form": {}, "url": {}}}),
            ELICIT,
            url_elicitation(),
            None,
        ),
        (
            json!({"elicitation": {}}),
            ELICIT,
            json!({"mode": "banana"}),
            Some(Unaskable::UnknownManner),
        ),
    ];
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        for (declared, method, params, why) in &cases {
            let mut harness = Harness::new(config())
                .declaring(declared.clone())
                .with_version(version);
            let (id, asking) = harness.call_tool("asks");
            let received_before = harness.received().len();
            let asked = harness.try_ask(asking, method, params.clone());
            let refused = why.map(|why| Misuse::Unaskable {
                method: (*method).into(),
                why,
            });
            assert_eq!(asked.err(), refused, "{declared}: {method} {params}");
            let was_sent = harness.received().len() > received_before;
            assert_eq!(was_sent, refused.is_none(), "{declared}: {method} {params}");
            if refused.is_some() {
                harness.respond(asking, json!({"content": []}));
                assert_eq!(harness.result(&id)["content"], json!([]));
            }
            harness.finish();
        }
    }
}

/// S-META-08, S-META-05: the capabilities of one modern request do not count for another.
#[test]
fn capabilities_of_one_modern_request_do_not_apply_to_another() {
    let mut harness = Harness::modern(config());
    let (_, with_roots) = harness.call_tool("asks");
    let params = with_meta(json!({"name": "asks"}), json!({}));
    harness.plain_call("tools/call", params);
    let without_roots = harness.newest_request();
    let asked = harness.try_ask(without_roots, ROOTS, Value::Null);
    assert!(matches!(asked, Err(Misuse::Unaskable { .. })), "{asked:?}");
    harness.ask_for_roots(with_roots);
    harness.finish();
}

/// S-META-08, S-MRTR-06: a client that returns without the capability is not asked again, and the ask fails.
#[test]
fn ask_fails_if_the_client_returns_without_the_capability() {
    let mut harness = Harness::modern(config());
    let (first, asking) = harness.call_tool("asks");
    let ask = harness.ask_for_roots(asking);
    let state = harness.round(&first)["requestState"].clone();
    let params = json!({"name": "asks", "requestState": state, "inputResponses": {}});
    let second = harness.plain_call("tools/call", with_meta(params, json!({"elicitation": {}})));
    assert!(
        harness.replies(&second).is_empty(),
        "the request waits for the application"
    );
    assert!(matches!(harness.outcome(ask), Some(Err(_))));
    harness.respond(asking, json!({"content": []}));
    assert_eq!(harness.result(&second)["content"], json!([]));
    harness.finish();
}

/// S-META-09, S-MRTR-06: the error names the missing capability as a capabilities object.
#[test]
fn missing_capability_error_names_the_capability() {
    for (feature, path) in [
        (ClientFeature::ElicitationForm, "/elicitation/form"),
        (ClientFeature::ElicitationUrl, "/elicitation/url"),
        (ClientFeature::Roots, "/roots"),
        (ClientFeature::Sampling, "/sampling"),
        (ClientFeature::SamplingTools, "/sampling/tools"),
        (
            ClientFeature::TasksExtension,
            "/extensions/io.modelcontextprotocol~1tasks",
        ),
    ] {
        let mut harness = Harness::modern(config()).declaring(json!({}));
        let (id, asking) = harness.call_tool("asks");
        let error = missing_capability(feature);
        harness
            .with_server(|server, now| server.fail(now, asking, error))
            .expect("the ask or request is open");
        assert_eq!(harness.code(&id), code::MISSING_REQUIRED_CLIENT_CAPABILITY);
        let needed = harness.error(&id)["data"]["requiredCapabilities"].clone();
        assert!(needed.is_object(), "{needed}");
        assert!(
            needed.pointer(path).is_some_and(Value::is_object),
            "{feature}: {needed}"
        );
        harness.finish();
    }
}

/// S-MRTR-05, S-MRTR-07: a modern client gets only the three kinds of asks.
#[test]
fn only_the_three_ask_methods_can_be_sent_to_a_modern_client() {
    let mut harness = Harness::modern(config());
    let (_, asking) = harness.call_tool("asks");
    for method in [
        "ping",
        "tools/list",
        "tasks/get",
        "tasks/list",
        "initialize",
        "x/y",
        "",
    ] {
        let asked = harness.try_ask(asking, method, json!({}));
        assert!(asked.is_err(), "{method}");
        let input = InputRequired::new().and_ask("k", method, None);
        assert!(harness.require_input(asking, input).is_err(), "{method}");
    }
    assert!(harness.received().is_empty());
    harness.finish();
}

/// The parameters of an ask are an object, or absent.
#[test]
fn ask_params_that_are_no_object_are_refused() {
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        let mut harness = Harness::new(config()).with_version(version);
        let (_, asking) = harness.call_tool("asks");
        for params in [json!([]), json!("x"), json!(5)] {
            let asked = harness.try_ask(asking, ROOTS, params.clone());
            assert!(
                matches!(asked, Err(Misuse::NotAnObject { .. })),
                "{params}: {asked:?}"
            );
        }
        harness.finish();
    }
}

/// S-INH-06: an ask that exceeds the message limit is a misuse by the application.
#[test]
fn oversized_ask_is_refused_and_not_sent() {
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        let mut config = config();
        config.limits.message_bytes = 4_096;
        let mut harness = Harness::new(config).with_version(version);
        let (_, asking) = harness.call_tool("asks");
        let received_before = harness.received().len();
        let asked = harness.try_ask(asking, ELICIT, form_elicitation(&"x".repeat(5_000)));
        assert!(matches!(asked, Err(Misuse::TooLarge { .. })), "{asked:?}");
        assert_eq!(harness.received().len(), received_before);
        harness.finish();
    }
}

// Modern: the plain form, for stateless applications.

/// S-MRTR-01, S-MRTR-04, S-MRTR-05, S-CACHE-02: a stateless application names the input that it needs, and the request is over.
#[test]
fn require_input_sends_asks_and_state_and_ends_the_request() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        for (method, member, name) in INPUT_METHODS {
            let id = harness.call(method, json!({member: name}));
            let asking = harness.newest_request();
            let input = InputRequired::new()
                .and_ask("who", ELICIT, Some(payload(&form_elicitation("who?"))))
                .and_ask("where", ROOTS, None)
                .with_state("step 2");
            harness
                .require_input(asking, input)
                .expect("the client can be asked");
            let round = harness.round(&id);
            assert_eq!(round["requestState"], "step 2");
            let expected = json!({"method": ELICIT, "params": form_elicitation("who?")});
            assert_eq!(round["inputRequests"]["who"], expected);
            assert_eq!(round["inputRequests"]["where"]["method"], ROOTS);
            assert!(round.get("ttlMs").is_none(), "{round}");
            assert_eq!(harness.server.requests(), 0);
        }
        harness
    });
}

/// S-MRTR-10, S-MRTR-17: the client's next request carries the state and the answers. Neither of them is in the parameters that
/// the application gets.
#[test]
fn next_request_delivers_state_and_answers_outside_the_params() {
    let mut harness = Harness::modern(config());
    let (_, asking) = harness.call_tool("asks");
    let input = InputRequired::new()
        .and_ask("where", ROOTS, None)
        .with_state("step 2");
    harness
        .require_input(asking, input)
        .expect("the client can be asked");
    let answers = json!({"where": {"roots": []}, "more": {}});
    let params = json!({"name": "asks", "requestState": "step 2", "inputResponses": answers});
    let second = harness.modern_call("tools/call", params);
    let request = harness.requests().pop().expect("the request arrived");
    let again = request.request;
    assert_ne!(again, asking);
    let input = request.input.as_ref().expect("the input is delivered");
    assert_eq!(input.state.as_deref(), Some("step 2"));
    assert_eq!(input.answers.as_ref().map(value), Some(answers));
    assert_eq!(
        request.params.as_ref().map(value),
        Some(json!({"name": "asks"}))
    );
    harness.respond(again, json!({"content": []}));
    assert_eq!(harness.result(&second)["content"], json!([]));
    harness.finish();
}

/// S-MRTR-08, S-META-08: an application may send an ask, and then require input while the client is away. If the client returns
/// without the capability for it, the error names what is missing.
#[test]
fn input_required_while_the_client_is_away_is_sent_when_it_returns() {
    for declared in [json!({"roots": {}}), json!({})] {
        let mut harness = Harness::modern(config());
        let (first, asking) = harness.call_tool("asks");
        let ask = harness.ask_for_roots(asking);
        let input = InputRequired::new().and_ask("where", ROOTS, None);
        harness
            .require_input(asking, input)
            .expect("the client could be asked");
        let state = harness.round(&first)["requestState"].clone();
        let params = json!({"name": "asks", "requestState": state, "inputResponses": {}});
        let second = harness.plain_call("tools/call", with_meta(params, declared.clone()));
        assert_eq!(harness.outcome(ask), Some(Err(Unanswered::RequestOver)));
        if declared == json!({}) {
            assert_eq!(
                harness.code(&second),
                code::MISSING_REQUIRED_CLIENT_CAPABILITY
            );
        } else {
            assert_eq!(
                harness.asks_of_round(&second),
                [("where".to_owned(), ROOTS.to_owned())]
            );
        }
        assert_eq!(harness.server.requests(), 0);
        harness.finish();
    }
}

/// S-MRTR-04, S-MRTR-09: a state without asks is a valid round, and so are asks without a state.
#[test]
fn input_required_may_have_only_a_state_or_only_asks() {
    let mut harness = Harness::modern(config());
    let (id, asking) = harness.call_tool("asks");
    harness
        .require_input(asking, InputRequired::new().with_state("later"))
        .expect("a state is enough");
    let round = harness.round(&id);
    assert_eq!(round["requestState"], "later");
    assert!(round.get("inputRequests").is_none(), "{round}");

    let (id, asking) = harness.call_tool("asks");
    let input = InputRequired::new().and_ask("where", ROOTS, None);
    harness
        .require_input(asking, input)
        .expect("an ask is enough");
    let round = harness.round(&id);
    assert!(round.get("requestState").is_none(), "{round}");
    let params = json!({"name": "asks", "inputResponses": {"where": {"roots": []}}});
    harness.modern_call("tools/call", params);
    let input = harness
        .requests()
        .pop()
        .expect("the request arrived")
        .input
        .clone();
    let input = input.expect("the input is delivered");
    assert_eq!(input.state, None);
    assert_eq!(
        input.answers.as_ref().map(value),
        Some(json!({"where": {"roots": []}}))
    );
    harness.finish();
}

/// S-MRTR-04, S-MRTR-05, S-MRTR-06: invalid input requirements are refused, and the request stays open.
#[test]
fn invalid_input_requirement_is_refused_and_the_request_stays_open() {
    let mut harness = Harness::modern(config()).declaring(json!({"roots": {}}));
    let (id, asking) = harness.call_tool("asks");
    let ask = |key: &str| InputRequired::new().and_ask(key, ROOTS, None);
    assert_eq!(
        harness.require_input(asking, InputRequired::new()),
        Err(Misuse::EmptyInput)
    );
    let twice = ask("k").and_ask("k", ROOTS, None);
    assert_eq!(
        harness.require_input(asking, twice),
        Err(Misuse::DuplicateKey { key: "k".into() })
    );
    let undeclared = ask("k").and_ask("l", ELICIT, Some(payload(&form_elicitation("?"))));
    let done = harness.require_input(asking, undeclared);
    assert!(matches!(done, Err(Misuse::Unaskable { .. })), "{done:?}");
    let params = InputRequired::new().and_ask("k", ROOTS, Some(payload(&json!([]))));
    let done = harness.require_input(asking, params);
    assert!(matches!(done, Err(Misuse::NotAnObject { .. })), "{done:?}");
    assert!(harness.received().is_empty());
    harness
        .require_input(asking, ask("k"))
        .expect("the ask is valid");
    assert_eq!(harness.asks_of_round(&id).len(), 1);
    assert_eq!(
        harness.require_input(asking, ask("k")),
        Err(Misuse::UnknownRequest)
    );
    harness.finish();
}

/// S-MRTR-15: an application must not use a state that looks like one of the server's.
#[test]
fn application_state_that_equals_a_server_state_is_refused() {
    let mut harness = Harness::modern(config());
    let (first, asking) = harness.call_tool("asks");
    harness.ask_for_roots(asking);
    let state = harness.round(&first)["requestState"]
        .as_str()
        .expect("text")
        .to_owned();
    let (_, other) = harness.call_tool("asks");
    let done = harness.require_input(other, InputRequired::new().with_state(state));
    assert!(
        matches!(done, Err(Misuse::ReservedState { .. })),
        "{done:?}"
    );
    harness.finish();
}

/// S-MRTR-07: only the modern era has the plain form.
#[test]
fn require_input_for_a_legacy_request_is_refused() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let (id, asking) = harness.call_tool("asks");
    let done = harness.require_input(asking, InputRequired::new().with_state("s"));
    assert!(done.is_err());
    assert!(harness.replies(&id).is_empty());
    harness.respond(asking, json!({"content": []}));
    harness.finish();
}

/// S-MRTR-02, S-MRTR-04: `respond` refuses a result that asks for input. Only `require_input` sends one.
#[test]
fn respond_with_an_input_required_result_is_refused() {
    let mut harness = Harness::modern(config());
    let (id, asking) = harness.call_tool("asks");
    for result in [
        json!({"resultType": "input_required"}),
        json!({"resultType": "input_required", "inputRequests": {"k": {"method": "ping"}}}),
    ] {
        let done = harness.with_server(|server, now| server.respond(now, asking, payload(&result)));
        assert!(done.is_err(), "{result}");
    }
    assert!(harness.replies(&id).is_empty());
    harness.finish();
}

// Legacy.

/// S-S2C-01: a legacy client gets asks as requests, as far as its version has them. The answer reaches the
/// application.
#[test]
fn ask_to_a_legacy_client_is_sent_as_a_request() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut harness = Harness::legacy(config(), version);
        let (id, asking) = harness.call_tool("asks");
        for (method, params, answer) in [
            (ROOTS, Value::Null, json!({"roots": []})),
            (
                SAMPLE,
                json!({"messages": []}),
                json!({"role": "assistant"}),
            ),
            (
                ELICIT,
                form_elicitation("well?"),
                json!({"action": "decline"}),
            ),
        ] {
            if method == ELICIT && version < "2025-06-18" {
                let asked = harness.try_ask(asking, method, params);
                let why = Unaskable::Unknown;
                assert_eq!(
                    asked,
                    Err(Misuse::Unaskable {
                        method: ELICIT.into(),
                        why
                    })
                );
                continue;
            }
            let ask = harness.ask(asking, method, params.clone());
            let sent = harness.messages_with(method)[0].clone();
            if !params.is_null() {
                assert_eq!(sent["params"], params, "{method} in {version}");
            }
            assert!(harness.replies(&id).is_empty(), "the request stays open");
            harness.answer(&sent["id"], answer.clone());
            assert_eq!(
                harness.outcome(ask),
                Some(Ok(answer)),
                "{method} in {version}"
            );
        }
        harness.respond(asking, json!({"content": []}));
        assert_eq!(harness.result(&id), json!({"content": []}));
        harness.finish();
    }
}

/// S-MRTR-02: a legacy client can be asked during any request.
#[test]
fn a_legacy_client_can_be_asked_during_any_request() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    harness.call("tools/list", json!({}));
    let listing = harness.newest_request();
    let ask = harness.ask_for_roots(listing);
    let ask_id = harness.messages_with(ROOTS)[0]["id"].clone();
    harness.answer(&ask_id, json!({"roots": []}));
    assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
    harness.finish();
}

/// S-ERR-09, S-ERR-15: an error from the client reaches the application with its code, message and data. A timeout that the
/// server detects is a different outcome.
#[test]
fn error_from_a_legacy_client_reaches_the_application_unchanged() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let (_, asking) = harness.call_tool("asks");
    let rejected = harness.ask(asking, SAMPLE, json!({"messages": []}));
    let late = harness.ask_for_roots(asking);
    let ask_id = harness.messages_with(SAMPLE)[0]["id"].clone();
    let error = json!({"code": -1, "message": "the user said no", "data": [1]});
    harness.send(json!({"jsonrpc": "2.0", "id": ask_id, "error": error}));
    let mut expected = ErrorObject::new(code::USER_REJECTED, "the user said no");
    expected.data = Some(payload(&json!([1])));
    assert_eq!(
        harness.outcome(rejected),
        Some(Err(Unanswered::Error(expected)))
    );
    harness.advance(seconds(601));
    assert_eq!(harness.outcome(late), Some(Err(Unanswered::TimedOut)));
    harness.finish();
}

/// S-TIME-01, S-TIME-02, S-TIME-03: an ask to a legacy client times out, and the client is then told by a cancellation.
#[test]
fn ask_to_a_legacy_client_times_out_and_is_cancelled() {
    for timeout in [seconds(600), seconds(7)] {
        let mut config = config();
        config.ask_timeout = timeout;
        let mut harness = Harness::legacy(config, "2025-11-25");
        let (id, asking) = harness.call_tool("asks");
        let ask = harness.ask_for_roots(asking);
        let ask_id = harness.messages_with(ROOTS)[0]["id"].clone();
        harness.advance(timeout - millis(1));
        assert_eq!(harness.outcome(ask), None);
        assert!(harness.messages_with(CANCELLED).is_empty());
        harness.advance(millis(1));
        assert_eq!(harness.outcome(ask), Some(Err(Unanswered::TimedOut)));
        let cancellations = harness.messages_with(CANCELLED);
        assert_eq!(cancellations.len(), 1);
        assert_eq!(cancellations[0]["params"]["requestId"], ask_id);
        assert_eq!(
            harness.cancel_reason(asking),
            None,
            "the request stays open"
        );
        harness.respond(asking, json!({"content": []}));
        assert_eq!(harness.result(&id), json!({"content": []}));
        harness.finish();
    }
}

/// S-TIME-04, S-TIME-05: progress from the client does not extend the timeout of an ask without limit.
#[test]
fn progress_does_not_extend_the_ask_timeout_forever() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let (_, asking) = harness.call_tool("asks");
    let params = json!({"messages": [], "_meta": {"progressToken": "q"}});
    let ask = harness.ask(asking, SAMPLE, params);
    for step in 0..100 {
        harness.advance(seconds(300));
        harness.notify(
            "notifications/progress",
            json!({"progressToken": "q", "progress": step}),
        );
    }
    assert_eq!(harness.outcome(ask), Some(Err(Unanswered::TimedOut)));
    harness.finish();
}

/// S-S2C-07, S-RPC-05: the ids of the two directions are independent, and the server never reuses its own.
#[test]
fn ids_of_the_two_directions_are_independent() {
    every_chunking(|chunking| {
        let version = Version::LATEST_LEGACY;
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        harness.send(request("asking", "tools/call", json!({"name": "asks"})));
        let asking = harness.newest_request();
        let mut ids = Vec::new();
        for number in 0..5 {
            let ask = harness.ask_for_roots(asking);
            let id = harness.messages_with(ROOTS)[number]["id"].clone();
            assert!(!ids.contains(&id), "{id} was reused");
            let answer = json!({"roots": [number]});
            // A request of the client may have the same id, once the ids of its handshake are past.
            if number > 0 {
                harness.send(request(id.clone(), "tools/call", json!({"name": "same"})));
                let same = harness.newest_request();
                harness.answer(&id, answer.clone());
                assert_eq!(harness.outcome(ask), Some(Ok(answer)));
                harness.respond(same, json!({"content": [number]}));
                assert_eq!(harness.result(&id)["content"], json!([number]));
            } else {
                harness.answer(&id, answer);
            }
            ids.push(id);
        }
        harness
    });
}

/// S-RPC-07 requires the same type. Clients in use reply with the number as a string; no other spelling is accepted.
#[test]
fn answer_with_the_ask_id_as_a_string_is_accepted() {
    for is_text in [false, true] {
        let mut harness = Harness::legacy(config(), "2025-11-25");
        let (_, asking) = harness.call_tool("asks");
        let ask = harness.ask_for_roots(asking);
        let id = harness.messages_with(ROOTS)[0]["id"].clone();
        let received_before = harness.received().len();
        for other in [format!("0{id}"), format!("+{id}"), format!("{id}.0")] {
            harness.answer(&json!(other), json!({"roots": ["wrong"]}));
            assert_eq!(harness.outcome(ask), None, "{other:?}");
        }
        assert_eq!(
            harness.received().len(),
            received_before,
            "an answer gets no reply"
        );
        let answered = if is_text {
            json!(id.to_string())
        } else {
            id.clone()
        };
        harness.answer(&answered, json!({"roots": []}));
        assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
        harness.answer(&id, json!({"roots": ["twice"]}));
        assert_eq!(harness.server.stats().late_replies, 1);
        assert_eq!(harness.server.state(), State::Serving);
        harness.finish();
    }
}

/// S-RPC-25: a modern client sends no replies. If it does, they are ignored.
#[test]
fn reply_from_a_modern_client_is_ignored() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        let (first, asking) = harness.call_tool("asks");
        let ask = harness.ask_for_roots(asking);
        let received_before = harness.received().len();
        for id in [json!(1), json!(2), first.clone(), json!("ask")] {
            harness.answer(&id, json!({"roots": []}));
            harness
                .send(json!({"jsonrpc": "2.0", "id": id, "error": {"code": 1, "message": "no"}}));
        }
        assert_eq!(harness.received().len(), received_before);
        assert_eq!(harness.outcome(ask), None);
        assert_eq!(harness.server.state(), State::Serving);
        harness
    });
}

/// S-BATCH-02: a client of 2025-03-26 may send its replies in a batch.
#[test]
fn batched_answers_are_accepted_in_2025_03_26() {
    every_chunking(|chunking| {
        let version = Version::V2025_03_26;
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        let (_, asking) = harness.call_tool("asks");
        let roots = harness.ask_for_roots(asking);
        let sampling = harness.ask(asking, SAMPLE, json!({"messages": []}));
        let answer = |method: &str, result: Value| {
            let id = harness.messages_with(method)[0]["id"].clone();
            json!({"jsonrpc": "2.0", "id": id, "result": result})
        };
        let answers = json!([
            answer(ROOTS, json!({"roots": []})),
            answer(SAMPLE, json!({"role": "user"}))
        ]);
        harness.send(answers);
        assert_eq!(harness.outcome(roots), Some(Ok(json!({"roots": []}))));
        assert_eq!(harness.outcome(sampling), Some(Ok(json!({"role": "user"}))));
        harness
    });
}

/// S-LIFE-05: a legacy client gets no ask before it sends `initialized`. Then it gets the asks that waited.
#[test]
fn asks_wait_for_the_initialized_notification() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config()).chunked(chunking);
        harness.initialize("2025-11-25");
        let unbidden = harness.try_ask_unbidden(ROOTS, Value::Null);
        let unbidden = unbidden.expect("there is a client");
        harness.plain_call("tools/call", json!({"name": "early"}));
        let early = harness.newest_request();
        let ask = harness.ask_for_roots(early);
        assert!(harness.messages_with(ROOTS).is_empty());
        harness.notify("notifications/initialized", Value::Null);
        let ids: Vec<Value> = harness
            .messages_with(ROOTS)
            .iter()
            .map(|line| line["id"].clone())
            .collect();
        assert_eq!(ids.len(), 2);
        for (number, id) in ids.iter().enumerate() {
            harness.answer(id, json!({"roots": [number]}));
        }
        assert_eq!(harness.outcome(unbidden), Some(Ok(json!({"roots": [0]}))));
        assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": [1]}))));
        harness
    });
}

/// S-TIME-01: an ask to a client that never finishes its handshake times out, unsent.
#[test]
fn ask_times_out_unsent_if_the_handshake_never_completes() {
    let mut harness = Harness::new(config());
    harness.initialize("2025-11-25");
    let ask = harness.try_ask_unbidden(ROOTS, Value::Null);
    let ask = ask.expect("there is a client");
    harness.advance(seconds(600));
    assert_eq!(harness.outcome(ask), Some(Err(Unanswered::TimedOut)));
    harness.notify("notifications/initialized", Value::Null);
    assert!(harness.messages_with(ROOTS).is_empty() && harness.messages_with(CANCELLED).is_empty());
    harness.finish();
}

/// S-S2C-04: an ask without a request is possible only to a legacy client that declared it.
#[test]
fn unbidden_ask_needs_a_legacy_client_that_declared_it() {
    let mut harness = Harness::modern(config());
    harness.call_tool("asks");
    let asked = harness.try_ask_unbidden(ROOTS, Value::Null);
    assert_eq!(asked, Err(Misuse::NoLegacyPeer));
    assert!(harness.received().is_empty());
    harness.finish();

    let declared = json!({"roots": {}});
    let mut harness = Harness::new(config())
        .declaring(declared)
        .with_version(Version::LATEST_LEGACY);
    let ask = harness
        .try_ask_unbidden(ROOTS, Value::Null)
        .expect("roots are declared");
    let undeclared = harness.try_ask_unbidden(SAMPLE, json!({"messages": []}));
    assert!(
        matches!(undeclared, Err(Misuse::Unaskable { .. })),
        "{undeclared:?}"
    );
    let ask_id = harness.messages_with(ROOTS)[0]["id"].clone();
    harness.answer(&ask_id, json!({"roots": []}));
    assert_eq!(harness.outcome(ask), Some(Ok(json!({"roots": []}))));
    let of = harness.pick_events(|event| match event {
        Event::Answered { request, .. } => Some(*request),
        _ => None,
    });
    assert_eq!(of, [None], "the ask belongs to no request");
    harness.finish();
}

/// S-S2C-04: the asks of a request end with it.
#[test]
fn asks_of_a_legacy_request_are_cancelled_when_it_is_answered() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let (_, asking) = harness.call_tool("asks");
    let ask = harness.ask_for_roots(asking);
    let ask_id = harness.messages_with(ROOTS)[0]["id"].clone();
    harness.respond(asking, json!({"content": []}));
    assert_eq!(harness.outcome(ask), Some(Err(Unanswered::RequestOver)));
    let cancellations = harness.messages_with(CANCELLED);
    assert_eq!(cancellations.len(), 1);
    assert_eq!(cancellations[0]["params"]["requestId"], ask_id);
    harness.finish();
}

/// S-S2C-05: the end of a URL elicitation is announced only in the version that has a notification for it.
#[test]
fn elicitation_complete_is_sent_only_in_2025_11_25() {
    const COMPLETE: &str = "notifications/elicitation/complete";
    let declared = json!({"elicitation": {"url": {}}});
    for version in Version::ALL {
        let mut harness = Harness::new(config())
            .declaring(declared.clone())
            .with_version(*version);
        let received_before = harness.received().len();
        let params = payload(&json!({"elicitationId": "e"}));
        let done = harness.with_server(|server, now| server.notify(now, COMPLETE, Some(params)));
        done.expect("the application may send this notification");
        let notifications = harness.messages_with(COMPLETE);
        if *version == Version::V2025_11_25 {
            assert_eq!(notifications.len(), 1);
            assert_eq!(notifications[0]["params"], json!({"elicitationId": "e"}));
        } else {
            assert_eq!(harness.received().len(), received_before, "{version}");
        }
        harness.finish();
    }
}

/// S-ERR-13: only one version has an error for "URL elicitation required".
#[test]
fn url_elicitation_required_error_is_sent_in_2025_11_25_but_not_in_modern() {
    let mut error = ErrorObject::new(code::URL_ELICITATION_REQUIRED, "sign in first");
    let elicitation = json!({"mode": "url", "elicitationId": "e", "url": "https://example.com", "message": "sign in"});
    error.data = Some(payload(&json!({"elicitations": [elicitation]})));
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let (id, asking) = harness.call_tool("asks");
    let same = error.clone();
    harness
        .with_server(|server, now| server.fail(now, asking, same))
        .expect("the ask or request is open");
    assert_eq!(harness.code(&id), code::URL_ELICITATION_REQUIRED);
    assert_eq!(
        harness.error(&id)["data"]["elicitations"][0]["elicitationId"],
        "e"
    );
    harness.finish();

    let mut harness = Harness::modern(config());
    let (id, asking) = harness.call_tool("asks");
    harness
        .with_server(|server, now| server.fail(now, asking, error))
        .expect("the ask or request is open");
    assert_ne!(
        harness.code(&id),
        code::URL_ELICITATION_REQUIRED,
        "S-ERR-06"
    );
    harness.finish();
}

/// S-META-15, F-068: asks of several requests, of both eras, are open at the same time, and each answer reaches its own.
#[test]
fn asks_of_several_requests_in_both_eras_are_open_at_once() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let (_, legacy_request) = harness.call_tool("asks");
    let legacy = harness.ask_for_roots(legacy_request);
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let id = harness.modern_call("tools/call", json!({"name": "asks"}));
        let asking = harness.newest_request();
        waiting.push((id, harness.ask_for_roots(asking), asking));
    }
    for (number, (id, ask, asking)) in waiting.iter().enumerate().rev() {
        let second = harness.next_round_with(id, json!({"roots": [number]}));
        assert_eq!(harness.outcome(*ask), Some(Ok(json!({"roots": [number]}))));
        harness.respond(*asking, json!({"content": [number]}));
        assert_eq!(harness.result(&second)["content"], json!([number]));
    }
    assert_eq!(harness.outcome(legacy), None);
    let ask_id = harness.messages_with(ROOTS)[0]["id"].clone();
    harness.answer(&ask_id, json!({"roots": []}));
    assert_eq!(harness.outcome(legacy), Some(Ok(json!({"roots": []}))));
    harness.finish();
}

/// S-CAP-03: a request without the needed capability never reaches the application, so it cannot ask.
#[test]
fn request_for_an_unoffered_capability_never_reaches_the_application() {
    let mut harness = Harness::modern(offering(ServerCapabilities::default()));
    let id = harness.call("tools/call", json!({"name": "asks", "requestState": "s"}));
    assert_eq!(harness.code(&id), code::METHOD_NOT_FOUND);
    assert!(harness.requests().is_empty());
    harness.finish();
}

#[test]
fn debug_text_of_a_server_counts_its_open_asks() {
    let mut harness = Harness::modern(config());
    let (_, request) = harness.call_tool("asks");
    let shows = |harness: &Harness, text: &str| format!("{:?}", harness.server).contains(text);
    assert!(shows(&harness, "asks_open: 0,"));
    harness.ask_for_roots(request);
    harness.ask_for_roots(request);
    assert!(shows(&harness, "asks_open: 2,"));
    harness.finish();
}

/// F-101: a legacy request is new, whatever it carries.
#[test]
fn f_101_legacy_request_with_the_state_of_a_modern_one_is_refused_after_shutdown() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let id = harness.modern_call("tools/call", json!({"name": "asks"}));
    harness.ask_for_roots(harness.newest_request());
    let state = harness.round(&id)["requestState"].clone();
    harness.shutdown();
    let params = json!({"name": "asks", "requestState": state, "inputResponses": {}});
    let legacy = harness.plain_call("tools/call", params);
    harness.error(&legacy);
    assert_eq!(harness.requests().len(), 1);
    harness.finish();
}
