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
    Host, config, every_chunking, every_era, millis, offering, payload, request, seconds, value,
    with_meta,
};

const CANCELLED: &str = "notifications/cancelled";
const ELICIT: &str = "elicitation/create";
const ROOTS: &str = "roots/list";
const SAMPLE: &str = "sampling/createMessage";

/// The modern requests that may wait for input, each with a parameter and its value.
const PATIENT: [(&str, &str, &str); 3] = [
    ("prompts/get", "name", "p"),
    ("resources/read", "uri", "file:///a"),
    ("tools/call", "name", "t"),
];

/// The parameters of a form elicitation.
fn form(message: &str) -> Value {
    json!({"mode": "form", "message": message, "requestedSchema": {"type": "object", "properties": {}}})
}

/// The parameters of a URL elicitation.
fn visit() -> Value {
    json!({"mode": "url", "message": "sign in", "url": "https://example.com"})
}

/// A server that has at most about one message on its way.
fn narrow() -> Config {
    let mut config = config();
    config.limits.write_window = 1;
    config
}

impl Host {
    /// The result that asks for input, in place of the reply to this request.
    #[track_caller]
    fn round(&self, id: &Value) -> Value {
        let result = self.result(id);
        assert_eq!(result["resultType"], "input_required", "{result}");
        result
    }

    /// The asks of a round: their keys and methods.
    #[track_caller]
    fn questions(&self, id: &Value) -> Vec<(String, String)> {
        let round = self.round(id);
        let Some(questions) = round.get("inputRequests") else {
            return Vec::new();
        };
        let questions = questions.as_object().expect("an object").iter();
        let method = |question: &Value| question["method"].as_str().expect("a method").to_owned();
        questions
            .map(|(key, question)| (key.clone(), method(question)))
            .collect()
    }

    /// The key of a round with only one ask.
    #[track_caller]
    fn key(&self, id: &Value) -> String {
        let questions = self.questions(id);
        assert_eq!(questions.len(), 1, "{questions:?}");
        questions[0].0.clone()
    }

    /// Calls the tool `asks` again, with the state of that round and these answers.
    fn back(&mut self, round: &Value, answers: Value) -> Value {
        let state = self.round(round)["requestState"].clone();
        let params = json!({"name": "asks", "requestState": state, "inputResponses": answers});
        self.modern_call("tools/call", params)
    }

    /// Calls the tool again with the answer to the only ask of that round.
    fn back_with(&mut self, round: &Value, answer: Value) -> Value {
        let key = self.key(round);
        self.back(round, json!({key: answer}))
    }

    /// Sends an ask for the roots.
    #[track_caller]
    fn withdraw(&mut self, ask: AskId) -> Result<(), Misuse> {
        self.verb(|server, now| server.withdraw(now, ask, None))
    }

    fn require(&mut self, request: RequestId, input: InputRequired) -> Result<(), Misuse> {
        self.verb(|server, now| server.require_input(now, request, input))
    }
}

// Modern: how an ask is sent.

/// S-MRTR-01, S-MRTR-04, S-MRTR-05, S-MRTR-07, S-RPC-23, S-STDIO-10: a modern client gets an ask in place of the reply, never
/// as a request. The ask has a key, its method and parameters; the result has a state for the next round.
#[test]
fn a_modern_client_is_asked_in_the_place_of_the_answer() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        for (method, member, name) in PATIENT {
            let id = host.call(method, json!({member: name}));
            let asking = host.newest();
            host.ask(asking, ELICIT, form("well?"));
            let round = host.round(&id);
            assert!(round["requestState"].is_string(), "{method}");
            let key = host.key(&id);
            let question = json!({"method": ELICIT, "params": form("well?")});
            assert_eq!(round["inputRequests"][&key], question, "{method}");
        }
        for line in host.heard() {
            assert!(line.get("method").is_none(), "{line} is no answer");
        }
        host
    });
}

/// S-MRTR-05: an ask without parameters is sent without any, or with an empty object.
#[test]
fn a_question_without_parameters_is_put_without_them() {
    let mut host = Host::modern(config());
    let (id, asking) = host.tool("asks");
    host.roots(asking);
    let key = host.key(&id);
    let question = &host.round(&id)["inputRequests"][&key];
    assert_eq!(question["method"], ROOTS);
    let params = question.get("params");
    assert!(
        params.is_none_or(|params| *params == json!({})),
        "{question}"
    );
    host.finish();
}

/// S-CACHE-02, S-CACHE-01: a result that asks for input has no cache lifetime, but the final result has one.
#[test]
fn a_round_says_nothing_of_freshness() {
    let mut host = Host::modern(config());
    let first = host.call("resources/read", json!({"uri": "file:///a"}));
    let asking = host.newest();
    host.roots(asking);
    let round = host.round(&first);
    assert!(
        round.get("ttlMs").is_none() && round.get("cacheScope").is_none(),
        "{round}"
    );
    let answers = json!({host.key(&first): {"roots": []}});
    let again = json!({"uri": "file:///a", "requestState": round["requestState"], "inputResponses": answers});
    let second = host.call("resources/read", again);
    host.respond(asking, json!({"contents": []}));
    let answer = host.result(&second);
    assert!(
        answer["ttlMs"].is_u64() && answer["cacheScope"].is_string(),
        "{answer}"
    );
    host.finish();
}

/// S-MRTR-02: other modern requests cannot wait for input. They can still be answered.
#[test]
fn other_modern_requests_cannot_wait_for_input() {
    let mut host = Host::modern(config());
    for (method, params) in [
        ("tools/list", json!({})),
        ("prompts/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("completion/complete", json!({"ref": {}, "argument": {}})),
    ] {
        let id = host.call(method, params);
        let listing = host.newest();
        let asked = host.try_ask(listing, ROOTS, Value::Null);
        assert_eq!(
            asked,
            Err(Misuse::CannotAsk {
                method: method.into()
            })
        );
        let input = InputRequired::new().with_state("s");
        let required = host.require(listing, input);
        assert_eq!(
            required,
            Err(Misuse::CannotAsk {
                method: method.into()
            })
        );
        let typed = payload(&json!({"resultType": "input_required", "requestState": "s"}));
        let answered = host.verb(|server, now| server.respond(now, listing, typed));
        assert!(answered.is_err(), "{method}");
        assert!(host.replies(&id).is_empty(), "{method}");
        host.respond(listing, json!({}));
        assert_eq!(host.result(&id)["resultType"], "complete", "{method}");
    }
    host.finish();
}

/// S-MRTR-11, S-RPC-07: the client sends its answer under a new id. For the application it is the same request, and its reply goes
/// to the new id.
#[test]
fn the_request_goes_on_under_the_id_of_the_next_round() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        let (first, asking) = host.tool("asks");
        let ask = host.ask(asking, ELICIT, form("well?"));
        assert_eq!(host.outcome(ask), None);
        assert_eq!(host.server.requests(), 1, "it is not answered");
        let accepted = json!({"action": "accept", "content": {"a": 1}});
        let second = host.back_with(&first, accepted.clone());
        assert_eq!(host.outcome(ask), Some(Ok(accepted)));
        assert_eq!(host.requests().len(), 1, "it is the same request");
        host.respond(asking, json!({"content": []}));
        assert_eq!(host.result(&second)["resultType"], "complete");
        assert_eq!(host.replies(&first).len(), 1);
        host
    });
}

/// S-MRTR-13: a refusal by the user is an ordinary answer.
#[test]
fn a_refusal_of_the_user_is_an_answer() {
    for action in ["decline", "cancel"] {
        let mut host = Host::modern(config());
        let (first, asking) = host.tool("asks");
        let ask = host.ask(asking, ELICIT, form("well?"));
        host.back_with(&first, json!({"action": action}));
        assert_eq!(host.outcome(ask), Some(Ok(json!({"action": action}))));
        host.finish();
    }
}

/// S-MRTR-05: asks that are made before the round is written go out in that round. Each has its own key and gets its own
/// answer.
#[test]
fn several_questions_go_out_in_one_round() {
    let mut host = Host::modern(narrow());
    let (first, asking) = host.tool("asks");
    host.fill_pipe();
    let asks = [
        host.ask(asking, ELICIT, form("one?")),
        host.roots(asking),
        host.ask(asking, ELICIT, form("two?")),
        host.ask(asking, SAMPLE, json!({"messages": []})),
    ];
    host.reads_again();
    let round = host.round(&first);
    let questions = round["inputRequests"]
        .as_object()
        .expect("questions")
        .clone();
    assert_eq!(questions.len(), asks.len());
    let answers: Value = questions
        .iter()
        .map(|(key, question)| (key.clone(), json!({"to": question})))
        .collect::<serde_json::Map<_, _>>()
        .into();
    host.back(&first, answers);
    let to = |ask: AskId| {
        host.outcome(ask)
            .expect("it was answered")
            .expect("with a result")["to"]
            .clone()
    };
    assert_eq!(to(asks[0])["params"]["message"], "one?");
    assert_eq!(to(asks[1])["method"], ROOTS);
    assert_eq!(to(asks[2])["params"]["message"], "two?");
    assert_eq!(to(asks[3])["method"], SAMPLE);
    assert_eq!(
        host.round(&first)["inputRequests"]
            .as_object()
            .map(serde_json::Map::len),
        Some(4)
    );
    host.finish();
}

/// S-MRTR-08: an ask that is made after the round was written goes out in the next round.
#[test]
fn a_question_after_the_round_was_written_goes_out_in_the_next() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        let (first, asking) = host.tool("asks");
        let roots = host.roots(asking);
        let later = host.ask(asking, ELICIT, form("and?"));
        assert_eq!(host.questions(&first).len(), 1);
        let second = host.back_with(&first, json!({"roots": []}));
        assert_eq!(host.outcome(roots), Some(Ok(json!({"roots": []}))));
        assert_eq!(host.outcome(later), None);
        let questions = host.questions(&second);
        assert_eq!(questions.len(), 1);
        assert_eq!(questions[0].1, ELICIT);
        let third = host.back_with(&second, json!({"action": "decline"}));
        assert_eq!(host.outcome(later), Some(Ok(json!({"action": "decline"}))));
        host.respond(asking, json!({"content": []}));
        assert_eq!(host.result(&third)["content"], json!([]));
        host
    });
}

/// S-MRTR-17: only missing answers are asked for again, and the others are accepted.
#[test]
fn missing_answers_are_asked_again() {
    let mut host = Host::modern(narrow());
    let (first, asking) = host.tool("asks");
    host.fill_pipe();
    let elicit = host.ask(asking, ELICIT, form("well?"));
    let roots = host.roots(asking);
    host.reads_again();
    let questions = host.questions(&first);
    let key = |method: &str| {
        let mut found = questions.iter().filter(|(_, of)| of == method);
        found.next().expect("it was asked").0.clone()
    };
    let second = host.back(&first, json!({key(ROOTS): {"roots": []}}));
    assert_eq!(host.outcome(roots), Some(Ok(json!({"roots": []}))));
    assert_eq!(host.outcome(elicit), None);
    let again = host.questions(&second);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].1, ELICIT);
    host.back_with(&second, json!({"action": "accept", "content": {}}));
    assert!(matches!(host.outcome(elicit), Some(Ok(_))));
    host.finish();
}

/// S-MRTR-17: a round without any answers counts as missing answers, not as an error.
#[test]
fn no_answers_at_all_are_asked_again() {
    for answers in [Some(json!({})), None] {
        let mut host = Host::modern(config());
        let (first, asking) = host.tool("asks");
        let ask = host.roots(asking);
        let mut params =
            json!({"name": "asks", "requestState": host.round(&first)["requestState"]});
        if let Some(answers) = answers {
            params["inputResponses"] = answers;
        }
        let second = host.modern_call("tools/call", params);
        assert_eq!(host.questions(&second).len(), 1);
        host.back_with(&second, json!({"roots": []}));
        assert_eq!(host.outcome(ask), Some(Ok(json!({"roots": []}))));
        host.finish();
    }
}

/// S-MRTR-17: unrequested answers are ignored.
#[test]
fn unknown_answers_are_passed_over() {
    let mut host = Host::modern(config());
    let (first, asking) = host.tool("asks");
    let ask = host.roots(asking);
    let key = host.key(&first);
    let answers = json!({"nobody asked": {"x": 1}, key: {"roots": []}, "": {}});
    let second = host.back(&first, answers);
    assert_eq!(host.outcome(ask), Some(Ok(json!({"roots": []}))));
    assert!(host.replies(&second).is_empty(), "the request goes on");
    host.respond(asking, json!({"content": []}));
    assert_eq!(host.result(&second)["content"], json!([]));
    host.finish();
}

/// S-MRTR-17: malformed answers are refused with an error. The round stays open for valid ones.
#[test]
fn answers_that_make_no_sense_are_refused() {
    for answers in [
        json!([]),
        json!("yes"),
        json!(5),
        json!({"KEY": "yes"}),
        json!({"KEY": [1]}),
        json!({"KEY": null}),
        json!({"KEY": true}),
    ] {
        let mut host = Host::modern(config());
        let (first, asking) = host.tool("asks");
        let ask = host.roots(asking);
        let key = host.key(&first);
        let text = answers.to_string().replace("KEY", &key);
        let odd: Value = serde_json::from_str(&text).expect("it was JSON");
        let refused = host.back(&first, odd);
        assert_eq!(host.code(&refused), code::INVALID_PARAMS, "{answers}");
        assert_eq!(host.outcome(ask), None, "{answers}");
        assert_eq!(host.requests().len(), 1, "{answers}");
        host.back_with(&first, json!({"roots": []}));
        assert_eq!(
            host.outcome(ask),
            Some(Ok(json!({"roots": []}))),
            "{answers}"
        );
        host.finish();
    }
}

/// S-MRTR-17: a duplicate answer is refused.
#[test]
fn an_answer_that_is_given_twice_is_refused() {
    let mut host = Host::modern(config());
    let (first, asking) = host.tool("asks");
    let ask = host.roots(asking);
    let key = host.key(&first);
    let state = host.round(&first)["requestState"].clone();
    let params = json!({"name": "asks", "requestState": state, "inputResponses": "TWICE"});
    let line = request("twice", "tools/call", with_meta(params, json!({})));
    let twice = format!(r#"{{"{key}":{{"roots":[1]}},"{key}":{{"roots":[2]}}}}"#);
    host.line(&line.to_string().replace(r#""TWICE""#, &twice));
    assert_eq!(host.code(&json!("twice")), code::INVALID_PARAMS);
    assert_eq!(host.outcome(ask), None);
    host.finish();
}

// Modern: the state.

/// S-MRTR-15: a forged or changed state is refused, and does not reach the application. The true state still works.
#[test]
fn a_forged_state_is_refused() {
    let mut host = Host::modern(config());
    let (first, asking) = host.tool("asks");
    let ask = host.roots(asking);
    let key = host.key(&first);
    let state = host.round(&first)["requestState"]
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
        let begins_like_ours = forged.starts_with("everlink.");
        let given = host.requests().len();
        let answers = json!({&key: {"roots": ["evil"]}});
        let params = json!({"name": "asks", "requestState": forged, "inputResponses": answers});
        let id = host.modern_call("tools/call", params);
        if begins_like_ours {
            assert_eq!(host.code(&id), code::INVALID_PARAMS, "{forged}");
        }
        assert_eq!(host.outcome(ask), None, "{forged}");
        if host.requests().len() > given {
            // A text without the server's own prefix may be a state of the application, which judges it.
            let request = host.requests().pop().expect("it arrived");
            let input = request.input.as_ref().expect("it is given");
            assert_eq!(input.state.as_deref(), Some(forged.as_str()));
        }
    }
    host.back_with(&first, json!({"roots": []}));
    assert_eq!(host.outcome(ask), Some(Ok(json!({"roots": []}))));
    host.finish();
}

/// S-MRTR-15: a state that is not a string is refused.
#[test]
fn a_state_that_is_no_text_is_refused() {
    for state in [json!(5), json!({}), json!(["s"]), json!(true)] {
        let mut host = Host::modern(config());
        let (_, asking) = host.tool("asks");
        let ask = host.roots(asking);
        let params = json!({"name": "asks", "requestState": state, "inputResponses": {}});
        let id = host.modern_call("tools/call", params);
        assert_eq!(host.code(&id), code::INVALID_PARAMS, "{state}");
        assert_eq!(host.outcome(ask), None);
        host.finish();
    }
}

/// S-MRTR-15: a state works only once.
#[test]
fn a_state_works_once() {
    let mut host = Host::modern(config());
    let (first, asking) = host.tool("asks");
    let ask = host.roots(asking);
    host.back_with(&first, json!({"roots": [1]}));
    let reused = host.back_with(&first, json!({"roots": [2]}));
    assert_eq!(host.code(&reused), code::INVALID_PARAMS);
    assert_eq!(host.outcome(ask), Some(Ok(json!({"roots": [1]}))));

    host.respond(asking, json!({"content": []}));
    let late = host.back_with(&first, json!({"roots": [3]}));
    assert_eq!(host.code(&late), code::INVALID_PARAMS);
    assert_eq!(host.requests().len(), 1);
    host.finish();
}

/// S-MRTR-14, S-MRTR-15: the newest round replaces earlier ones, and a state of an earlier round is refused.
#[test]
fn a_state_of_an_earlier_round_is_refused() {
    let mut host = Host::modern(config());
    let (first, asking) = host.tool("asks");
    let ask = host.roots(asking);
    let key = host.key(&first);
    let second = host.back(&first, json!({}));
    assert_ne!(
        host.round(&first)["requestState"],
        host.round(&second)["requestState"]
    );
    let stale = host.back(&first, json!({key: {"roots": []}}));
    assert_eq!(host.code(&stale), code::INVALID_PARAMS);
    assert_eq!(host.outcome(ask), None);
    host.back_with(&second, json!({"roots": []}));
    assert_eq!(host.outcome(ask), Some(Ok(json!({"roots": []}))));
    host.finish();
}

/// S-MRTR-15: a state of another server, with another secret, is refused.
#[test]
fn a_state_of_another_server_is_refused() {
    let state_of = |secret: u8| {
        let mut other = config();
        other.secret = [secret; 16];
        let mut host = Host::modern(other);
        let (first, asking) = host.tool("asks");
        host.roots(asking);
        let state = host.round(&first)["requestState"].clone();
        host.finish();
        state
    };
    let foreign = state_of(8);
    assert_ne!(foreign, state_of(7), "the secret matters");

    let mut host = Host::modern(config());
    let (first, asking) = host.tool("asks");
    let ask = host.roots(asking);
    let answers = json!({host.key(&first): {"roots": []}});
    let params = json!({"name": "asks", "requestState": foreign, "inputResponses": answers});
    let id = host.modern_call("tools/call", params);
    assert_eq!(host.code(&id), code::INVALID_PARAMS);
    assert_eq!(host.outcome(ask), None);
    host.finish();
}

/// S-MRTR-16: a state belongs to its request. With another tool or another method it is refused.
#[test]
fn a_state_belongs_to_its_request() {
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
    let mut host = Host::modern(config());
    let own = json!({"name": "asks", "arguments": {"n": 1}});
    let first = host.call("tools/call", own.clone());
    let asking = host.newest();
    let ask = host.roots(asking);
    let answers = json!({host.key(&first): {"roots": []}});
    let state = host.round(&first)["requestState"].clone();
    let with = |mut params: Value| {
        params["requestState"] = state.clone();
        params["inputResponses"] = answers.clone();
        params
    };
    let wrong = host.modern_call(method, with(params.clone()));
    assert_eq!(host.code(&wrong), code::INVALID_PARAMS, "{method} {params}");
    assert_eq!(host.outcome(ask), None, "{method} {params}");
    host.modern_call("tools/call", with(own));
    assert_eq!(host.outcome(ask), Some(Ok(json!({"roots": []}))));
    host.finish();
}

/// S-MRTR-15: on a request that cannot wait for input, a state has no effect.
#[test]
fn a_state_on_a_request_that_cannot_wait_is_none() {
    let mut host = Host::modern(config());
    let (first, asking) = host.tool("asks");
    let ask = host.roots(asking);
    let answers = json!({host.key(&first): {"roots": []}});
    let state = host.round(&first)["requestState"].clone();
    host.modern_call(
        "tools/list",
        json!({"requestState": state, "inputResponses": answers}),
    );
    assert_eq!(host.outcome(ask), None);
    host.finish();
}

// Modern: limits.

/// S-MRTR-14, S-INH-06: the number of rounds is limited. The ask then fails, and the application continues without it.
#[test]
fn rounds_are_bounded() {
    let mut config = config();
    config.limits.input_rounds = 3;
    let mut host = Host::modern(config);
    let (mut round, asking) = host.tool("asks");
    let ask = host.roots(asking);
    for _ in 1..3 {
        round = host.back(&round, json!({}));
        assert_eq!(host.outcome(ask), None);
    }
    let last = host.back(&round, json!({}));
    assert_eq!(
        host.outcome(ask),
        Some(Err(Unanswered::TooManyRounds { rounds: 3 }))
    );
    assert!(host.replies(&last).is_empty(), "the request goes on");
    let more = host.try_ask(asking, ROOTS, Value::Null);
    assert_eq!(more, Err(Misuse::TooManyRounds { rounds: 3 }));
    host.respond(asking, json!({"content": [], "isError": true}));
    assert_eq!(host.result(&last)["isError"], true);
    host.finish();
}

/// S-MRTR-08, S-TIME-01, S-TIME-03: the server waits for a client that does not return only until the configured timeout. Then the state
/// is invalid.
#[test]
fn a_client_that_does_not_come_back_is_not_waited_for_without_end() {
    for patience in [seconds(600), seconds(7)] {
        let mut config = config();
        config.ask_timeout = patience;
        let mut host = Host::modern(config);
        let (first, asking) = host.tool("asks");
        let ask = host.roots(asking);
        host.pass(patience - millis(1));
        assert_eq!(host.outcome(ask), None);
        host.pass(millis(1));
        assert_eq!(host.outcome(ask), Some(Err(Unanswered::TimedOut)));
        assert_eq!(host.why_cancelled(asking), Some(Cancelled::NotResumed));
        assert_eq!(host.server.requests(), 0);
        let late = host.back_with(&first, json!({"roots": []}));
        assert_eq!(host.code(&late), code::INVALID_PARAMS);
        let result = payload(&json!({"content": []}));
        let done = host.verb(|server, now| server.respond(now, asking, result));
        assert_eq!(done, Err(Misuse::UnknownRequest));
        host.finish();
    }
}

/// S-TIME-05: the timeout of an ask covers all its rounds, and a round without an answer does not extend it. The request
/// continues.
#[test]
fn the_time_of_a_question_is_that_of_all_its_rounds() {
    let mut host = Host::modern(config());
    let (first, asking) = host.tool("asks");
    let ask = host.roots(asking);
    host.pass(seconds(599));
    let second = host.back(&first, json!({}));
    let key = host.key(&second);
    assert_eq!(host.outcome(ask), None);
    host.pass(seconds(1));
    assert_eq!(host.outcome(ask), Some(Err(Unanswered::TimedOut)));
    assert_eq!(host.why_cancelled(asking), None);
    let third = host.back(&second, json!({key: {"roots": []}}));
    assert!(
        host.replies(&third).is_empty(),
        "it is the application's turn"
    );
    host.pass(seconds(6_000));
    host.respond(asking, json!({"content": []}));
    assert_eq!(host.result(&third)["content"], json!([]));
    host.finish();
}

/// S-TIME-01: an ask of a later round has its own timeout.
#[test]
fn a_later_question_has_its_own_time() {
    let mut host = Host::modern(config());
    let (first, asking) = host.tool("asks");
    host.roots(asking);
    host.pass(seconds(599));
    host.back_with(&first, json!({"roots": []}));
    let later = host.roots(asking);
    host.pass(seconds(599));
    assert_eq!(host.outcome(later), None);
    host.pass(seconds(1));
    assert_eq!(host.outcome(later), Some(Err(Unanswered::TimedOut)));
    host.finish();
}

/// S-TIME-01: an ask that cannot be written because the client does not read also times out. The request can still be
/// answered.
#[test]
fn a_question_that_is_never_written_ends_in_time() {
    let mut host = Host::modern(narrow());
    let (first, asking) = host.tool("asks");
    host.fill_pipe();
    let ask = host.roots(asking);
    host.pass(seconds(601));
    assert_eq!(host.outcome(ask), Some(Err(Unanswered::TimedOut)));
    host.respond(asking, json!({"content": []}));
    host.reads_again();
    assert_eq!(host.result(&first)["resultType"], "complete");
    host.finish();
}

/// S-INH-06: the number of open asks is limited in both eras, and an ask that ends makes room.
#[test]
fn questions_are_bounded_in_number() {
    every_era(|chunking, version| {
        let mut config = config();
        config.limits.asks = 2;
        let mut host = Host::new(config).chunked(chunking).speaking(version);
        let (_, asking) = host.tool("asks");
        let first = host.roots(asking);
        host.roots(asking);
        let third = host.try_ask(asking, ROOTS, Value::Null);
        assert_eq!(third, Err(Misuse::TooManyAsks { open: 2 }));
        host.withdraw(first).expect("it is open");
        host.roots(asking);
        host
    });
}

/// S-INH-06: the number of requests that wait for their clients is limited.
#[test]
fn clients_that_are_away_are_bounded_in_number() {
    let mut config = config();
    config.limits.asks = 2;
    let mut host = Host::modern(config);
    let mut refused = 0;
    for _ in 0..4 {
        let (_, asking) = host.tool("asks");
        match host.try_ask(asking, ROOTS, Value::Null) {
            Ok(ask) => drop(host.withdraw(ask)),
            Err(Misuse::TooManyAsks { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(refused, 2);
    assert_eq!(host.server.requests(), 4);
    host.finish();
}

// Modern: the application decides while the client is away.

/// S-MRTR-08: a reply that the application gives while the client is away is kept until the client returns.
#[test]
fn an_answer_while_the_client_is_away_is_held() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        for fails in [false, true] {
            let (first, asking) = host.tool("asks");
            let ask = host.roots(asking);
            let heard = host.heard().len();
            if fails {
                host.fail(asking, 7, "no");
            } else {
                host.respond(asking, json!({"content": []}));
            }
            assert_eq!(host.heard().len(), heard, "nobody waits for it");
            assert_eq!(host.outcome(ask), None, "the client has the question");
            let second = host.back_with(&first, json!({"roots": []}));
            assert_eq!(host.outcome(ask), Some(Ok(json!({"roots": []}))));
            if fails {
                assert_eq!(host.code(&second), 7);
            } else {
                assert_eq!(host.result(&second)["content"], json!([]));
            }
            assert_eq!(host.server.requests(), 0);
        }
        host
    });
}

/// After the application's reply, asks that were not sent yet end at once.
#[test]
fn an_answer_while_the_client_is_away_ends_what_was_not_asked_yet() {
    let mut host = Host::modern(config());
    let (first, asking) = host.tool("asks");
    let (asked, unasked) = (host.roots(asking), host.roots(asking));
    host.respond(asking, json!({"content": []}));
    assert_eq!(host.outcome(unasked), Some(Err(Unanswered::RequestOver)));
    assert_eq!(host.outcome(asked), None, "the client has the question");
    let second = host.back_with(&first, json!({"roots": []}));
    assert_eq!(host.outcome(asked), Some(Ok(json!({"roots": []}))));
    assert_eq!(host.result(&second)["content"], json!([]));
    host.finish();
}

/// S-MRTR-08: a reply for a client that never returns is dropped after the timeout. The application is not told, because it has answered.
#[test]
fn an_answer_for_a_client_that_never_comes_back_is_dropped() {
    let mut host = Host::modern(config());
    let (first, asking) = host.tool("asks");
    host.roots(asking);
    host.respond(asking, json!({"content": []}));
    assert_eq!(host.server.requests(), 1);
    host.pass(seconds(601));
    assert_eq!(host.server.requests(), 0);
    assert_eq!(host.why_cancelled(asking), None, "it was answered");
    let late = host.back(&first, json!({}));
    assert_eq!(host.code(&late), code::INVALID_PARAMS);
    host.finish();
}

/// A withdrawn ask is never sent, and its outcome comes once. If it was not written yet, no round is used.
#[test]
fn a_question_that_is_taken_back_before_it_was_written_is_not_put() {
    let mut host = Host::modern(narrow());
    let (first, asking) = host.tool("asks");
    host.fill_pipe();
    let ask = host.roots(asking);
    host.withdraw(ask).expect("it is open");
    assert_eq!(host.outcome(ask), Some(Err(Unanswered::Withdrawn)));
    assert_eq!(host.withdraw(ask), Err(Misuse::UnknownAsk));
    host.reads_again();
    assert!(
        host.replies(&first).is_empty(),
        "there is nothing to come back for"
    );
    host.respond(asking, json!({"content": []}));
    assert_eq!(host.result(&first)["resultType"], "complete");
    host.finish();
}

/// One of several asks is withdrawn before they are written. The others are sent.
#[test]
fn the_other_questions_of_a_round_are_put() {
    let mut host = Host::modern(narrow());
    let (first, asking) = host.tool("asks");
    host.fill_pipe();
    let dropped = host.ask(asking, ELICIT, form("well?"));
    let kept = host.roots(asking);
    host.withdraw(dropped).expect("it is open");
    host.reads_again();
    let questions = host.questions(&first);
    assert_eq!(questions.len(), 1);
    assert_eq!(questions[0].1, ROOTS);
    host.back_with(&first, json!({"roots": []}));
    assert_eq!(host.outcome(kept), Some(Ok(json!({"roots": []}))));
    host.finish();
}

/// An ask that is withdrawn while the client is away is not sent again, and an answer to it is ignored.
#[test]
fn a_question_that_is_taken_back_later_is_not_put_again() {
    for answers in [false, true] {
        let mut host = Host::modern(config());
        let (first, asking) = host.tool("asks");
        let ask = host.roots(asking);
        host.withdraw(ask).expect("it is open");
        let key = host.key(&first);
        let brought = if answers {
            json!({key: {"roots": []}})
        } else {
            json!({})
        };
        let second = host.back(&first, brought);
        assert!(
            host.replies(&second).is_empty(),
            "it is the application's turn"
        );
        assert_eq!(host.outcome(ask), Some(Err(Unanswered::Withdrawn)));
        host.respond(asking, json!({"content": []}));
        assert_eq!(host.result(&second)["content"], json!([]));
        assert!(host.said(CANCELLED).is_empty());
        host.finish();
    }
}

/// S-CAP-05, S-PROG-04: while the client is away, no progress and no log messages are sent.
#[test]
fn nothing_is_told_of_a_request_whose_client_is_away() {
    let mut host = Host::modern(config());
    let meta = json!({"progressToken": "t", "io.modelcontextprotocol/logLevel": "debug"});
    host.call("tools/call", json!({"name": "asks", "_meta": meta}));
    let asking = host.newest();
    host.roots(asking);
    let heard = host.heard().len();
    host.progress(asking, 1.0);
    let data = payload(&json!("x"));
    let logged =
        host.verb(|server, now| server.log(now, Some(asking), LogLevel::Error, None, data));
    logged.expect("the request is not over");
    assert_eq!(host.heard().len(), heard);
    host.finish();
}

// Allowed asks.

/// S-MRTR-06, S-S2C-02, S-META-08, S-MRTR-18: the server sends only asks that the client declared, in a declared mode, in both
/// eras.
#[test]
fn only_what_was_declared_is_asked() {
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
            form("?"),
            Some(Unaskable::Undeclared(Elicitation)),
        ),
        (json!({"elicitation": {}}), ELICIT, form("?"), None),
        (json!({"elicitation": {}}), ELICIT, no_mode.clone(), None),
        (
            json!({"elicitation": {}}),
            ELICIT,
            visit(),
            Some(Unaskable::UndeclaredManner(ElicitationUrl)),
        ),
        (
            json!({"elicitation": {"form": {}}}),
            ELICIT,
            visit(),
            Some(Unaskable::UndeclaredManner(ElicitationUrl)),
        ),
        (json!({"elicitation": {"url": {}}}), ELICIT, visit(), None),
        (
            json!({"elicitation": {"url": {}}}),
            ELICIT,
            form("?"),
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
            visit(),
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
            let mut host = Host::new(config())
                .declaring(declared.clone())
                .speaking(version);
            let (id, asking) = host.tool("asks");
            let heard = host.heard().len();
            let asked = host.try_ask(asking, method, params.clone());
            let refused = why.map(|why| Misuse::Unaskable {
                method: (*method).into(),
                why,
            });
            assert_eq!(asked.err(), refused, "{declared}: {method} {params}");
            let was_put = host.heard().len() > heard;
            assert_eq!(was_put, refused.is_none(), "{declared}: {method} {params}");
            if refused.is_some() {
                host.respond(asking, json!({"content": []}));
                assert_eq!(host.result(&id)["content"], json!([]));
            }
            host.finish();
        }
    }
}

/// S-META-08, S-META-05: the capabilities of one modern request do not count for another.
#[test]
fn what_another_request_declared_does_not_count() {
    let mut host = Host::modern(config());
    let (_, able) = host.tool("asks");
    let params = with_meta(json!({"name": "asks"}), json!({}));
    host.plain_call("tools/call", params);
    let unable = host.newest();
    let asked = host.try_ask(unable, ROOTS, Value::Null);
    assert!(matches!(asked, Err(Misuse::Unaskable { .. })), "{asked:?}");
    host.roots(able);
    host.finish();
}

/// S-META-08, S-MRTR-06: a client that returns without the capability is not asked again, and the ask fails.
#[test]
fn a_client_that_no_longer_declares_it_is_not_asked_again() {
    let mut host = Host::modern(config());
    let (first, asking) = host.tool("asks");
    let ask = host.roots(asking);
    let state = host.round(&first)["requestState"].clone();
    let params = json!({"name": "asks", "requestState": state, "inputResponses": {}});
    let second = host.plain_call("tools/call", with_meta(params, json!({"elicitation": {}})));
    assert!(
        host.replies(&second).is_empty(),
        "it is the application's turn"
    );
    assert!(matches!(host.outcome(ask), Some(Err(_))));
    host.respond(asking, json!({"content": []}));
    assert_eq!(host.result(&second)["content"], json!([]));
    host.finish();
}

/// S-META-09, S-MRTR-06: the error names the missing capability as a capabilities object.
#[test]
fn a_missing_capability_is_named_to_the_client() {
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
        let mut host = Host::modern(config()).declaring(json!({}));
        let (id, asking) = host.tool("asks");
        let error = missing_capability(feature);
        host.verb(|server, now| server.fail(now, asking, error))
            .expect("it is open");
        assert_eq!(host.code(&id), code::MISSING_REQUIRED_CLIENT_CAPABILITY);
        let needed = host.error(&id)["data"]["requiredCapabilities"].clone();
        assert!(needed.is_object(), "{needed}");
        assert!(
            needed.pointer(path).is_some_and(Value::is_object),
            "{feature}: {needed}"
        );
        host.finish();
    }
}

/// S-MRTR-05, S-MRTR-07: a modern client gets only the three kinds of asks.
#[test]
fn a_modern_client_is_asked_the_three_questions_alone() {
    let mut host = Host::modern(config());
    let (_, asking) = host.tool("asks");
    for method in [
        "ping",
        "tools/list",
        "tasks/get",
        "tasks/list",
        "initialize",
        "x/y",
        "",
    ] {
        let asked = host.try_ask(asking, method, json!({}));
        assert!(asked.is_err(), "{method}");
        let input = InputRequired::new().and_ask("k", method, None);
        assert!(host.require(asking, input).is_err(), "{method}");
    }
    assert!(host.heard().is_empty());
    host.finish();
}

/// The parameters of an ask are an object, or absent.
#[test]
fn the_parameters_of_a_question_are_an_object() {
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        let mut host = Host::new(config()).speaking(version);
        let (_, asking) = host.tool("asks");
        for params in [json!([]), json!("x"), json!(5)] {
            let asked = host.try_ask(asking, ROOTS, params.clone());
            assert!(
                matches!(asked, Err(Misuse::NotAnObject { .. })),
                "{params}: {asked:?}"
            );
        }
        host.finish();
    }
}

/// S-INH-06: an ask that exceeds the message limit is a misuse by the application.
#[test]
fn a_question_that_is_too_long_is_not_put() {
    for version in [Version::LATEST_LEGACY, Version::LATEST_MODERN] {
        let mut config = config();
        config.limits.message_bytes = 4_096;
        let mut host = Host::new(config).speaking(version);
        let (_, asking) = host.tool("asks");
        let heard = host.heard().len();
        let asked = host.try_ask(asking, ELICIT, form(&"x".repeat(5_000)));
        assert!(matches!(asked, Err(Misuse::TooLarge { .. })), "{asked:?}");
        assert_eq!(host.heard().len(), heard);
        host.finish();
    }
}

// Modern: the plain form, for stateless applications.

/// S-MRTR-01, S-MRTR-04, S-MRTR-05, S-CACHE-02: a stateless application names the input that it needs, and the request is over.
#[test]
fn an_application_that_keeps_nothing_says_what_it_needs() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        for (method, member, name) in PATIENT {
            let id = host.call(method, json!({member: name}));
            let asking = host.newest();
            let input = InputRequired::new()
                .and_ask("who", ELICIT, Some(payload(&form("who?"))))
                .and_ask("where", ROOTS, None)
                .with_state("step 2");
            host.require(asking, input)
                .expect("the client can be asked");
            let round = host.round(&id);
            assert_eq!(round["requestState"], "step 2");
            let who = json!({"method": ELICIT, "params": form("who?")});
            assert_eq!(round["inputRequests"]["who"], who);
            assert_eq!(round["inputRequests"]["where"]["method"], ROOTS);
            assert!(round.get("ttlMs").is_none(), "{round}");
            assert_eq!(host.server.requests(), 0);
        }
        host
    });
}

/// S-MRTR-10, S-MRTR-17: the client's next request carries the state and the answers. Neither of them is in the parameters that
/// the application gets.
#[test]
fn the_client_comes_back_with_all_of_it() {
    let mut host = Host::modern(config());
    let (_, asking) = host.tool("asks");
    let input = InputRequired::new()
        .and_ask("where", ROOTS, None)
        .with_state("step 2");
    host.require(asking, input)
        .expect("the client can be asked");
    let answers = json!({"where": {"roots": []}, "more": {}});
    let params = json!({"name": "asks", "requestState": "step 2", "inputResponses": answers});
    let second = host.modern_call("tools/call", params);
    let request = host.requests().pop().expect("it arrived");
    let again = request.request;
    assert_ne!(again, asking);
    let input = request.input.as_ref().expect("the input is given");
    assert_eq!(input.state.as_deref(), Some("step 2"));
    assert_eq!(input.answers.as_ref().map(value), Some(answers));
    assert_eq!(
        request.params.as_ref().map(value),
        Some(json!({"name": "asks"}))
    );
    host.respond(again, json!({"content": []}));
    assert_eq!(host.result(&second)["content"], json!([]));
    host.finish();
}

/// S-MRTR-08, S-META-08: an application may send an ask, and then require input while the client is away. If the client returns
/// without the capability for it, the error names what is missing.
#[test]
fn input_that_is_required_of_a_client_that_is_away_waits_for_it() {
    for declared in [json!({"roots": {}}), json!({})] {
        let mut host = Host::modern(config());
        let (first, asking) = host.tool("asks");
        let ask = host.roots(asking);
        let input = InputRequired::new().and_ask("where", ROOTS, None);
        host.require(asking, input)
            .expect("the client could be asked");
        let state = host.round(&first)["requestState"].clone();
        let params = json!({"name": "asks", "requestState": state, "inputResponses": {}});
        let second = host.plain_call("tools/call", with_meta(params, declared.clone()));
        assert_eq!(host.outcome(ask), Some(Err(Unanswered::RequestOver)));
        if declared == json!({}) {
            assert_eq!(host.code(&second), code::MISSING_REQUIRED_CLIENT_CAPABILITY);
        } else {
            assert_eq!(
                host.questions(&second),
                [("where".to_owned(), ROOTS.to_owned())]
            );
        }
        assert_eq!(host.server.requests(), 0);
        host.finish();
    }
}

/// S-MRTR-04, S-MRTR-09: a state without asks is a valid round, and so are asks without a state.
#[test]
fn a_state_alone_is_enough_and_so_is_a_question() {
    let mut host = Host::modern(config());
    let (id, asking) = host.tool("asks");
    host.require(asking, InputRequired::new().with_state("later"))
        .expect("a state is enough");
    let round = host.round(&id);
    assert_eq!(round["requestState"], "later");
    assert!(round.get("inputRequests").is_none(), "{round}");

    let (id, asking) = host.tool("asks");
    let input = InputRequired::new().and_ask("where", ROOTS, None);
    host.require(asking, input).expect("a question is enough");
    let round = host.round(&id);
    assert!(round.get("requestState").is_none(), "{round}");
    let params = json!({"name": "asks", "inputResponses": {"where": {"roots": []}}});
    host.modern_call("tools/call", params);
    let input = host.requests().pop().expect("it arrived").input.clone();
    let input = input.expect("the input is given");
    assert_eq!(input.state, None);
    assert_eq!(
        input.answers.as_ref().map(value),
        Some(json!({"where": {"roots": []}}))
    );
    host.finish();
}

/// S-MRTR-04, S-MRTR-05, S-MRTR-06: invalid input requirements are refused, and the request stays open.
#[test]
fn input_that_cannot_be_required_is_a_mistake_of_the_application() {
    let mut host = Host::modern(config()).declaring(json!({"roots": {}}));
    let (id, asking) = host.tool("asks");
    let ask = |key: &str| InputRequired::new().and_ask(key, ROOTS, None);
    assert_eq!(
        host.require(asking, InputRequired::new()),
        Err(Misuse::EmptyInput)
    );
    let twice = ask("k").and_ask("k", ROOTS, None);
    assert_eq!(
        host.require(asking, twice),
        Err(Misuse::DuplicateKey { key: "k".into() })
    );
    let undeclared = ask("k").and_ask("l", ELICIT, Some(payload(&form("?"))));
    let done = host.require(asking, undeclared);
    assert!(matches!(done, Err(Misuse::Unaskable { .. })), "{done:?}");
    let params = InputRequired::new().and_ask("k", ROOTS, Some(payload(&json!([]))));
    let done = host.require(asking, params);
    assert!(matches!(done, Err(Misuse::NotAnObject { .. })), "{done:?}");
    assert!(host.heard().is_empty());
    host.require(asking, ask("k")).expect("this can be asked");
    assert_eq!(host.questions(&id).len(), 1);
    assert_eq!(host.require(asking, ask("k")), Err(Misuse::UnknownRequest));
    host.finish();
}

/// S-MRTR-15: an application must not use a state that looks like one of the server's.
#[test]
fn a_state_of_the_application_does_not_look_like_one_of_the_server() {
    let mut host = Host::modern(config());
    let (first, asking) = host.tool("asks");
    host.roots(asking);
    let state = host.round(&first)["requestState"]
        .as_str()
        .expect("text")
        .to_owned();
    let (_, other) = host.tool("asks");
    let done = host.require(other, InputRequired::new().with_state(state));
    assert!(
        matches!(done, Err(Misuse::ReservedState { .. })),
        "{done:?}"
    );
    host.finish();
}

/// S-MRTR-07: only the modern era has the plain form.
#[test]
fn a_legacy_client_cannot_be_sent_away() {
    let mut host = Host::legacy(config(), "2025-11-25");
    let (id, asking) = host.tool("asks");
    let done = host.require(asking, InputRequired::new().with_state("s"));
    assert!(done.is_err());
    assert!(host.replies(&id).is_empty());
    host.respond(asking, json!({"content": []}));
    host.finish();
}

/// S-MRTR-02, S-MRTR-04: `respond` with a result that asks for input follows the same rules as `require_input`.
#[test]
fn a_result_that_wants_input_goes_through_its_verb() {
    let mut host = Host::modern(config());
    let (id, asking) = host.tool("asks");
    for result in [
        json!({"resultType": "input_required"}),
        json!({"resultType": "input_required", "inputRequests": {"k": {"method": "ping"}}}),
    ] {
        let done = host.verb(|server, now| server.respond(now, asking, payload(&result)));
        assert!(done.is_err(), "{result}");
    }
    assert!(host.replies(&id).is_empty());
    host.finish();
}

// Legacy.

/// S-S2C-01: a legacy client gets asks as requests, as far as its version has them. The answer reaches the
/// application.
#[test]
fn a_legacy_client_is_asked_with_a_request() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut host = Host::legacy(config(), version);
        let (id, asking) = host.tool("asks");
        for (method, params, answer) in [
            (ROOTS, Value::Null, json!({"roots": []})),
            (
                SAMPLE,
                json!({"messages": []}),
                json!({"role": "assistant"}),
            ),
            (ELICIT, form("well?"), json!({"action": "decline"})),
        ] {
            if method == ELICIT && version < "2025-06-18" {
                let asked = host.try_ask(asking, method, params);
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
            let ask = host.ask(asking, method, params.clone());
            let question = host.said(method)[0].clone();
            if !params.is_null() {
                assert_eq!(question["params"], params, "{method} in {version}");
            }
            assert!(host.replies(&id).is_empty(), "the request stays open");
            host.answer(&question["id"], answer.clone());
            assert_eq!(host.outcome(ask), Some(Ok(answer)), "{method} in {version}");
        }
        host.respond(asking, json!({"content": []}));
        assert_eq!(host.result(&id), json!({"content": []}));
        host.finish();
    }
}

/// S-MRTR-02: a legacy client can be asked during any request.
#[test]
fn a_legacy_client_can_be_asked_during_any_request() {
    let mut host = Host::legacy(config(), "2025-11-25");
    host.call("tools/list", json!({}));
    let listing = host.newest();
    let ask = host.roots(listing);
    let question = host.said(ROOTS)[0]["id"].clone();
    host.answer(&question, json!({"roots": []}));
    assert_eq!(host.outcome(ask), Some(Ok(json!({"roots": []}))));
    host.finish();
}

/// S-ERR-09, S-ERR-15: an error from the client reaches the application with its code, message and data. A timeout that the
/// server detects is a different outcome.
#[test]
fn an_error_of_a_legacy_client_is_its_answer() {
    let mut host = Host::legacy(config(), "2025-11-25");
    let (_, asking) = host.tool("asks");
    let rejected = host.ask(asking, SAMPLE, json!({"messages": []}));
    let late = host.roots(asking);
    let question = host.said(SAMPLE)[0]["id"].clone();
    let error = json!({"code": -1, "message": "the user said no", "data": [1]});
    host.say(json!({"jsonrpc": "2.0", "id": question, "error": error}));
    let mut told = ErrorObject::new(code::USER_REJECTED, "the user said no");
    told.data = Some(payload(&json!([1])));
    assert_eq!(host.outcome(rejected), Some(Err(Unanswered::Error(told))));
    host.pass(seconds(601));
    assert_eq!(host.outcome(late), Some(Err(Unanswered::TimedOut)));
    host.finish();
}

/// S-TIME-01, S-TIME-02, S-TIME-03: an ask to a legacy client times out, and the client is then told by a cancellation.
#[test]
fn a_legacy_question_has_its_time() {
    for patience in [seconds(600), seconds(7)] {
        let mut config = config();
        config.ask_timeout = patience;
        let mut host = Host::legacy(config, "2025-11-25");
        let (id, asking) = host.tool("asks");
        let ask = host.roots(asking);
        let question = host.said(ROOTS)[0]["id"].clone();
        host.pass(patience - millis(1));
        assert_eq!(host.outcome(ask), None);
        assert!(host.said(CANCELLED).is_empty());
        host.pass(millis(1));
        assert_eq!(host.outcome(ask), Some(Err(Unanswered::TimedOut)));
        let told = host.said(CANCELLED);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0]["params"]["requestId"], question);
        assert_eq!(host.why_cancelled(asking), None, "the request goes on");
        host.respond(asking, json!({"content": []}));
        assert_eq!(host.result(&id), json!({"content": []}));
        host.finish();
    }
}

/// S-TIME-04, S-TIME-05: progress from the client does not extend the timeout of an ask without limit.
#[test]
fn progress_does_not_keep_a_question_for_ever() {
    let mut host = Host::legacy(config(), "2025-11-25");
    let (_, asking) = host.tool("asks");
    let params = json!({"messages": [], "_meta": {"progressToken": "q"}});
    let ask = host.ask(asking, SAMPLE, params);
    for step in 0..100 {
        host.pass(seconds(300));
        host.notify(
            "notifications/progress",
            json!({"progressToken": "q", "progress": step}),
        );
    }
    assert_eq!(host.outcome(ask), Some(Err(Unanswered::TimedOut)));
    host.finish();
}

/// S-S2C-07, S-RPC-05: the ids of the two directions are independent, and the server never reuses its own.
#[test]
fn the_ids_of_the_two_directions_are_apart() {
    every_chunking(|chunking| {
        let version = Version::LATEST_LEGACY;
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        host.say(request("asking", "tools/call", json!({"name": "asks"})));
        let asking = host.newest();
        let mut ids = Vec::new();
        for number in 0..5 {
            let ask = host.roots(asking);
            let id = host.said(ROOTS)[number]["id"].clone();
            assert!(!ids.contains(&id), "{id} came twice");
            let answer = json!({"roots": [number]});
            // A request of the client may have the same id, once the ids of its handshake are past.
            if number > 0 {
                host.say(request(id.clone(), "tools/call", json!({"name": "same"})));
                let same = host.newest();
                host.answer(&id, answer.clone());
                assert_eq!(host.outcome(ask), Some(Ok(answer)));
                host.respond(same, json!({"content": [number]}));
                assert_eq!(host.result(&id)["content"], json!([number]));
            } else {
                host.answer(&id, answer);
            }
            ids.push(id);
        }
        host
    });
}

/// S-RPC-07 requires the same type. Clients in use reply with the number as a string; no other spelling is accepted.
#[test]
fn answer_whose_id_is_the_text_of_the_number_is_taken() {
    for is_text in [false, true] {
        let mut host = Host::legacy(config(), "2025-11-25");
        let (_, asking) = host.tool("asks");
        let ask = host.roots(asking);
        let id = host.said(ROOTS)[0]["id"].clone();
        let heard = host.heard().len();
        for other in [format!("0{id}"), format!("+{id}"), format!("{id}.0")] {
            host.answer(&json!(other), json!({"roots": ["wrong"]}));
            assert_eq!(host.outcome(ask), None, "{other:?}");
        }
        assert_eq!(host.heard().len(), heard, "an answer is not answered");
        let answered = if is_text {
            json!(id.to_string())
        } else {
            id.clone()
        };
        host.answer(&answered, json!({"roots": []}));
        assert_eq!(host.outcome(ask), Some(Ok(json!({"roots": []}))));
        host.answer(&id, json!({"roots": ["twice"]}));
        assert_eq!(host.server.stats().late_replies, 1);
        assert_eq!(host.server.state(), State::Serving);
        host.finish();
    }
}

/// S-RPC-25: a modern client sends no replies. If it does, they are ignored.
#[test]
fn a_response_to_nothing_is_passed_over() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        let (first, asking) = host.tool("asks");
        let ask = host.roots(asking);
        let heard = host.heard().len();
        for id in [json!(1), json!(2), first.clone(), json!("ask")] {
            host.answer(&id, json!({"roots": []}));
            host.say(json!({"jsonrpc": "2.0", "id": id, "error": {"code": 1, "message": "no"}}));
        }
        assert_eq!(host.heard().len(), heard);
        assert_eq!(host.outcome(ask), None);
        assert_eq!(host.server.state(), State::Serving);
        host
    });
}

/// S-BATCH-02: a client of 2025-03-26 may send its replies in a batch.
#[test]
fn answers_may_come_in_a_batch() {
    every_chunking(|chunking| {
        let version = Version::V2025_03_26;
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        let (_, asking) = host.tool("asks");
        let roots = host.roots(asking);
        let sampling = host.ask(asking, SAMPLE, json!({"messages": []}));
        let answer = |method: &str, result: Value| {
            let id = host.said(method)[0]["id"].clone();
            json!({"jsonrpc": "2.0", "id": id, "result": result})
        };
        let answers = json!([
            answer(ROOTS, json!({"roots": []})),
            answer(SAMPLE, json!({"role": "user"}))
        ]);
        host.say(answers);
        assert_eq!(host.outcome(roots), Some(Ok(json!({"roots": []}))));
        assert_eq!(host.outcome(sampling), Some(Ok(json!({"role": "user"}))));
        host
    });
}

/// S-LIFE-05: a legacy client gets no ask before it sends `initialized`. Then it gets the asks that waited.
#[test]
fn nothing_is_asked_before_the_handshake_is_over() {
    every_chunking(|chunking| {
        let mut host = Host::new(config()).chunked(chunking);
        host.initialize("2025-11-25");
        let unbidden = host.try_ask_unbidden(ROOTS, Value::Null);
        let unbidden = unbidden.expect("there is a client");
        host.plain_call("tools/call", json!({"name": "early"}));
        let early = host.newest();
        let ask = host.roots(early);
        assert!(host.said(ROOTS).is_empty());
        host.notify("notifications/initialized", Value::Null);
        let ids: Vec<Value> = host
            .said(ROOTS)
            .iter()
            .map(|line| line["id"].clone())
            .collect();
        assert_eq!(ids.len(), 2);
        for (number, id) in ids.iter().enumerate() {
            host.answer(id, json!({"roots": [number]}));
        }
        assert_eq!(host.outcome(unbidden), Some(Ok(json!({"roots": [0]}))));
        assert_eq!(host.outcome(ask), Some(Ok(json!({"roots": [1]}))));
        host
    });
}

/// S-TIME-01: an ask to a client that never finishes its handshake times out, unsent.
#[test]
fn a_question_to_a_client_that_never_ends_its_handshake_ends_in_time() {
    let mut host = Host::new(config());
    host.initialize("2025-11-25");
    let ask = host.try_ask_unbidden(ROOTS, Value::Null);
    let ask = ask.expect("there is a client");
    host.pass(seconds(600));
    assert_eq!(host.outcome(ask), Some(Err(Unanswered::TimedOut)));
    host.notify("notifications/initialized", Value::Null);
    assert!(host.said(ROOTS).is_empty() && host.said(CANCELLED).is_empty());
    host.finish();
}

/// S-S2C-04: an ask without a request is possible only to a legacy client that declared it.
#[test]
fn an_unbidden_question_goes_to_a_legacy_client_alone() {
    let mut host = Host::modern(config());
    host.tool("asks");
    let asked = host.try_ask_unbidden(ROOTS, Value::Null);
    assert_eq!(asked, Err(Misuse::NoLegacyPeer));
    assert!(host.heard().is_empty());
    host.finish();

    let declared = json!({"roots": {}});
    let mut host = Host::new(config())
        .declaring(declared)
        .speaking(Version::LATEST_LEGACY);
    let ask = host
        .try_ask_unbidden(ROOTS, Value::Null)
        .expect("roots are declared");
    let undeclared = host.try_ask_unbidden(SAMPLE, json!({"messages": []}));
    assert!(
        matches!(undeclared, Err(Misuse::Unaskable { .. })),
        "{undeclared:?}"
    );
    let question = host.said(ROOTS)[0]["id"].clone();
    host.answer(&question, json!({"roots": []}));
    assert_eq!(host.outcome(ask), Some(Ok(json!({"roots": []}))));
    let of = host.picked(|event| match event {
        Event::Answered { request, .. } => Some(*request),
        _ => None,
    });
    assert_eq!(of, [None], "it belongs to no request");
    host.finish();
}

/// S-S2C-04: the asks of a request end with it.
#[test]
fn the_questions_of_a_legacy_request_end_with_it() {
    let mut host = Host::legacy(config(), "2025-11-25");
    let (_, asking) = host.tool("asks");
    let ask = host.roots(asking);
    let question = host.said(ROOTS)[0]["id"].clone();
    host.respond(asking, json!({"content": []}));
    assert_eq!(host.outcome(ask), Some(Err(Unanswered::RequestOver)));
    let told = host.said(CANCELLED);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["params"]["requestId"], question);
    host.finish();
}

/// S-S2C-05: the end of a URL elicitation is announced only in the version that has a notification for it.
#[test]
fn the_end_of_a_visit_is_told_where_there_is_a_word_for_it() {
    const COMPLETE: &str = "notifications/elicitation/complete";
    let declared = json!({"elicitation": {"url": {}}});
    for version in Version::ALL {
        let mut host = Host::new(config())
            .declaring(declared.clone())
            .speaking(*version);
        let heard = host.heard().len();
        let params = payload(&json!({"elicitationId": "e"}));
        let done = host.verb(|server, now| server.notify(now, COMPLETE, Some(params)));
        done.expect("it is the application's to tell");
        let told = host.said(COMPLETE);
        if *version == Version::V2025_11_25 {
            assert_eq!(told.len(), 1);
            assert_eq!(told[0]["params"], json!({"elicitationId": "e"}));
        } else {
            assert_eq!(host.heard().len(), heard, "{version}");
        }
        host.finish();
    }
}

/// S-ERR-13: only one version has an error for "URL elicitation required".
#[test]
fn a_visit_that_is_needed_first_has_its_own_error() {
    let mut error = ErrorObject::new(code::URL_ELICITATION_REQUIRED, "sign in first");
    let elicitation = json!({"mode": "url", "elicitationId": "e", "url": "https://example.com", "message": "sign in"});
    error.data = Some(payload(&json!({"elicitations": [elicitation]})));
    let mut host = Host::legacy(config(), "2025-11-25");
    let (id, asking) = host.tool("asks");
    let same = error.clone();
    host.verb(|server, now| server.fail(now, asking, same))
        .expect("it is open");
    assert_eq!(host.code(&id), code::URL_ELICITATION_REQUIRED);
    assert_eq!(
        host.error(&id)["data"]["elicitations"][0]["elicitationId"],
        "e"
    );
    host.finish();

    let mut host = Host::modern(config());
    let (id, asking) = host.tool("asks");
    host.verb(|server, now| server.fail(now, asking, error))
        .expect("it is open");
    assert_ne!(host.code(&id), code::URL_ELICITATION_REQUIRED, "S-ERR-06");
    host.finish();
}

/// S-META-15, F-068: asks of several requests, of both eras, are open at the same time, and each answer reaches its own.
#[test]
fn questions_of_many_requests_wait_beside_each_other() {
    let mut host = Host::legacy(config(), "2025-11-25");
    let (_, old) = host.tool("asks");
    let legacy = host.roots(old);
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let id = host.modern_call("tools/call", json!({"name": "asks"}));
        let asking = host.newest();
        waiting.push((id, host.roots(asking), asking));
    }
    for (number, (id, ask, asking)) in waiting.iter().enumerate().rev() {
        let second = host.back_with(id, json!({"roots": [number]}));
        assert_eq!(host.outcome(*ask), Some(Ok(json!({"roots": [number]}))));
        host.respond(*asking, json!({"content": [number]}));
        assert_eq!(host.result(&second)["content"], json!([number]));
    }
    assert_eq!(host.outcome(legacy), None);
    let question = host.said(ROOTS)[0]["id"].clone();
    host.answer(&question, json!({"roots": []}));
    assert_eq!(host.outcome(legacy), Some(Ok(json!({"roots": []}))));
    host.finish();
}

/// S-CAP-03: a request without the needed capability never reaches the application, so it cannot ask.
#[test]
fn a_request_that_is_not_offered_never_gets_to_ask() {
    let mut host = Host::modern(offering(ServerCapabilities::default()));
    let id = host.call("tools/call", json!({"name": "asks", "requestState": "s"}));
    assert_eq!(host.code(&id), code::METHOD_NOT_FOUND);
    assert!(host.requests().is_empty());
    host.finish();
}
