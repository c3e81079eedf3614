//! Asks of a server of either era: which ones are allowed, where the answer goes, and how a call continues with it.
//! S-S2C, S-ERR-15, S-CAP-03, S-CAP-04 and S-MRTR of the requirements.

use core::time::Duration;

use everlink::client::{Blame, Event, FailureKind, Misuse, Outcome, State, Withdrawn};
use everlink::protocol::{ClientCapabilities, ClientFeature, code};
use everlink::wire::ErrorObject;
use everlink::{AskId, CallId, Config, List};
use serde_json::{Value, json};

use crate::client_pipe::{
    self, Act, Peer, World, ask, config, dies, discovered, notify, payload, reply, seconds,
};
use crate::eras::{BOTH, answering, form, input_required, legacy, ready};

fn withdrawn(world: &World) -> Vec<(AskId, Withdrawn)> {
    world.picked(|event| match event {
        Event::AskWithdrawn { ask, why } => Some((*ask, *why)),
        _ => None,
    })
}

/// The code of the error reply to the server.
fn refusal(world: &World) -> i64 {
    let answers = world.answers();
    let answer = answers.last().expect("the server was answered");
    assert!(answer["result"].is_null());
    assert_ne!(answer["error"]["message"], "");
    answer["error"]["code"]
        .as_i64()
        .expect("an error has a code")
}

/// A modern server that answers the first tool calls with these results, and later ones with empty content.
fn rounds(results: Vec<Value>) -> Peer {
    let mut results = results.into_iter();
    Peer::modern().replies("tools/call", move |_| {
        results.next().unwrap_or_else(|| json!({"content": []}))
    })
}

fn why_invalid(world: &World, call: CallId) -> &str {
    match &world.failure(call).kind {
        FailureKind::Invalid { why } => why,
        other => panic!("{call} is not invalid: {other}"),
    }
}

fn declaring(capabilities: ClientCapabilities) -> Config {
    let mut config = config();
    config.capabilities = capabilities;
    config
}

#[test]
fn s_s2c_01_each_declared_question_reaches_the_application_and_its_answer_the_server() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut world = ready(answering(), move || Peer::legacy(version));
        let mut kinds = vec![
            ("roots/list", json!({}), json!({"roots": []})),
            (
                "sampling/createMessage",
                json!({"messages": []}),
                json!({"role": "assistant"}),
            ),
        ];
        if version >= "2025-06-18" {
            let accepted = json!({"action": "accept", "content": {}});
            kinds.push(("elicitation/create", form("well?"), accepted));
        }
        for (number, (method, params, result)) in kinds.into_iter().enumerate() {
            let id = format!("question {number}");
            world.peer(ask(id.clone(), method, params));
            let asks = world.asks();
            assert_eq!(asks.len(), number + 1, "{method} in {version}");
            world.answer(asks[number], Ok(result.clone()));
            let answers = world.answers();
            assert_eq!(answers[number]["id"], id);
            assert_eq!(answers[number]["result"], result);
        }
        world.finish();
    }
}

#[test]
fn s_s2c_01_a_version_without_elicitation_cannot_ask_for_it() {
    for version in ["2024-11-05", "2025-03-26"] {
        let mut world = ready(answering(), move || Peer::legacy(version));
        world.peer(ask(1, "elicitation/create", form("well?")));
        assert!(world.asks().is_empty());
        assert_eq!(refusal(&world), code::METHOD_NOT_FOUND);
        world.finish();
    }
}

#[test]
fn s_err_15_what_was_not_declared_is_refused_by_the_link() {
    for method in [
        "roots/list",
        "sampling/createMessage",
        "elicitation/create",
        "tasks/list",
        "tools/call",
        "what/ever",
    ] {
        let mut world = ready(config(), legacy);
        world.peer(ask("q", method, json!({})));
        assert!(world.asks().is_empty(), "{method}");
        assert_eq!(refusal(&world), code::METHOD_NOT_FOUND, "{method}");
        assert_eq!(world.answers()[0]["id"], "q");
        assert_eq!(world.link().stats().asks_refused, 1);
        assert_eq!(world.state(), State::Ready);
        world.finish();
    }
}

#[test]
fn s_err_15_a_notification_with_an_id_is_no_question() {
    let declared = ClientCapabilities::default().with_elicitation_url();
    let mut world = ready(declaring(declared), legacy);
    let params = json!({"elicitationId": "e"});
    world.peer(ask(1, "notifications/elicitation/complete", params));
    assert!(world.asks().is_empty());
    assert_eq!(refusal(&world), code::METHOD_NOT_FOUND);
    world.finish();
}

#[test]
fn s_err_15_a_refusal_of_the_user_goes_to_the_server_as_it_is() {
    let mut world = ready(answering(), legacy);
    world.peer(ask(7, "sampling/createMessage", json!({"messages": []})));
    let rejected = ErrorObject::new(code::USER_REJECTED, "the user said no");
    world.answer(world.asks()[0], Err(rejected));
    assert_eq!(refusal(&world), -1);
    assert_eq!(world.answers()[0]["id"], 7);
    world.finish();
}

#[test]
fn s_s2c_03_a_form_of_question_that_was_not_declared_is_invalid() {
    let url = json!({"mode": "url", "message": "sign in", "url": "https://example.com", "elicitationId": "e"});
    let tools = json!({"messages": [], "tools": []});
    let choice = json!({"messages": [], "toolChoice": {"mode": "auto"}});
    for (method, params) in [
        ("elicitation/create", url),
        ("sampling/createMessage", tools),
        ("sampling/createMessage", choice),
    ] {
        let mut world = ready(answering(), legacy);
        world.peer(ask(1, method, params));
        assert!(world.asks().is_empty());
        assert_eq!(refusal(&world), code::INVALID_PARAMS);
        world.finish();
    }
}

/// Undeclared kinds of asks, some of them hard to parse: the method and its parameters as text.
const ODD_WAYS: [(&str, &str); 7] = [
    ("elicitation/create", r#"{"mode":"banana","message":"x"}"#),
    ("elicitation/create", r#"{"mode":5,"message":"x"}"#),
    ("elicitation/create", r#"{"mode":null,"message":"x"}"#),
    ("elicitation/create", r#"{"mode":"\u0075rl","message":"x"}"#),
    (
        "elicitation/create",
        r#"{"mode":"url","mode":"url","message":"x"}"#,
    ),
    ("sampling/createMessage", r#"{"mode":5,"tools":[{}]}"#),
    ("sampling/createMessage", r#"{"\u0074ools":[{}]}"#),
];

#[test]
fn s_s2c_03_a_way_to_ask_that_nobody_declared_is_invalid_however_it_is_written() {
    for (method, params) in ODD_WAYS {
        let mut world = ready(answering(), legacy);
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{params}}}\n"
        );
        world.peer(Act::Raw(line.into_bytes()));
        assert!(world.asks().is_empty(), "{params} was asked");
        assert_eq!(refusal(&world), code::INVALID_PARAMS, "{params}");
        world.finish();
    }
}

#[test]
fn s_mrtr_18_no_mode_means_a_form_and_addresses_alone_mean_no_forms() {
    let bare = json!({"message": "well?", "requestedSchema": {"type": "object", "properties": {}}});
    let mut world = ready(answering(), legacy);
    world.peer(ask(1, "elicitation/create", bare.clone()));
    assert_eq!(world.asks().len(), 1);
    world.finish();

    let urls = ClientCapabilities::default().with_elicitation_url();
    let mut world = ready(declaring(urls), legacy);
    world.peer(ask(1, "elicitation/create", bare));
    assert_eq!(refusal(&world), code::INVALID_PARAMS);
    let url = json!({"mode": "url", "message": "sign in", "url": "https://example.com", "elicitationId": "e"});
    world.peer(ask(2, "elicitation/create", url));
    assert_eq!(world.asks().len(), 1);
    world.finish();
}

#[test]
fn s_s2c_05_the_end_of_an_elicitation_at_an_address_is_passed_on() {
    let mut world = ready(answering(), legacy);
    world.peer(notify(
        "notifications/elicitation/complete",
        json!({"elicitationId": "unknown"}),
    ));
    let heard = world.picked(|event| match event {
        Event::Notified { method, .. } => Some(&**method),
        _ => None,
    });
    assert_eq!(heard, ["notifications/elicitation/complete"]);
    assert_eq!(world.state(), State::Ready);
    world.finish();
}

#[test]
fn s_s2c_07_the_ids_of_the_two_directions_are_independent() {
    let mut world = ready(answering(), || legacy().ignores("tools/call"));
    let call = world.tool("slow");
    let request = world.last("tools/call");
    world.peer(ask(request["id"].clone(), "roots/list", json!({})));
    // The server cancels its own ask, not the client's call with the same id.
    world.peer(notify(
        "notifications/cancelled",
        json!({"requestId": request["id"]}),
    ));
    assert_eq!(withdrawn(&world), [(world.asks()[0], Withdrawn::ByServer)]);
    assert!(!world.is_done(call));
    world.peer(reply(&request, json!({"content": []})));
    assert_eq!(world.result(call)["content"], json!([]));
    world.finish();
}

#[test]
fn s_canc_04_a_question_that_was_taken_back_is_not_answered() {
    let mut world = ready(answering(), legacy);
    world.peer(ask("q", "roots/list", json!({})));
    let question = world.asks()[0];
    world.peer(notify(
        "notifications/cancelled",
        json!({"requestId": "q", "reason": "too slow"}),
    ));
    assert_eq!(withdrawn(&world), [(question, Withdrawn::ByServer)]);
    let answer = client_pipe::payload(&json!({"roots": []}));
    let late = world.verb(|link, now| link.answer(now, question, Ok(answer)));
    assert_eq!(late, Err(Misuse::UnknownAsk));
    assert!(world.answers().is_empty());
    world.finish();
}

#[test]
fn a_legacy_ping_is_answered_by_the_link_in_every_state_it_can_arrive_in() {
    let mut world = World::new(config())
        .served_by(|_| legacy().greets_with(vec![ask("early", "ping", json!({}))]));
    world.until_ready();
    world.peer(ask("late", "ping", json!({})));
    let answers = world.answers();
    assert_eq!(answers.len(), 2);
    for (answer, id) in answers.into_iter().zip(["early", "late"]) {
        assert_eq!(answer["id"], id);
        assert_eq!(answer["result"], json!({}));
    }
    assert!(world.asks().is_empty());
    world.finish();
}

#[test]
fn s_rpc_24_a_modern_server_that_sends_a_request_gets_no_answer() {
    let mut world = ready(answering(), Peer::modern);
    for method in ["ping", "roots/list", "elicitation/create", "what/ever"] {
        world.peer(ask(1, method, json!({})));
    }
    assert!(world.asks().is_empty() && world.answers().is_empty());
    assert_eq!(world.link().stats().noise, 4);
    assert_eq!(world.state(), State::Ready);
    world.finish();
}

#[test]
fn a_question_that_nobody_answers_is_given_up_and_the_server_hears_so() {
    let mut world = ready(answering(), legacy);
    world.peer(ask("q", "roots/list", json!({})));
    world.pass(seconds(600));
    assert_eq!(withdrawn(&world), [(world.asks()[0], Withdrawn::TimedOut)]);
    assert_eq!(refusal(&world), code::INTERNAL_ERROR);
    world.finish();
}

#[test]
fn more_questions_than_may_be_open_are_refused_one_by_one() {
    let mut config = answering();
    config.limits.asks = 2;
    let mut world = ready(config, legacy);
    for id in 1..=3 {
        world.peer(ask(id, "roots/list", json!({})));
    }
    assert_eq!(world.asks().len(), 2);
    assert_eq!(refusal(&world), code::INTERNAL_ERROR);
    assert_eq!(world.answers()[0]["id"], 3);
    world.answer(world.asks()[0], Ok(json!({"roots": []})));
    world.peer(ask(4, "roots/list", json!({})));
    assert_eq!(world.asks().len(), 3, "an answer makes room");
    world.finish();
}

#[test]
fn an_answer_is_an_object_or_the_caller_hears_so() {
    let mut world = ready(answering(), legacy);
    world.peer(ask(1, "roots/list", json!({})));
    let question = world.asks()[0];
    let bad = client_pipe::payload(&json!([]));
    let refused = world.verb(|link, now| link.answer(now, question, Ok(bad)));
    assert!(matches!(refused, Err(Misuse::NotAnObject { .. })));
    world.answer(question, Ok(json!({"roots": []})));
    assert_eq!(world.answers().len(), 1);
    world.finish();
}

#[test]
fn an_answer_that_no_server_should_get_is_the_callers_mistake() {
    let mut config = answering();
    config.limits.message_bytes = 2_000;
    let mut world = ready(config, legacy);
    world.peer(ask(1, "roots/list", json!({})));
    let question = world.asks()[0];
    let large = payload(&json!({"roots": ["x".repeat(4_000)]}));
    let refused = world.verb(|link, now| link.answer(now, question, Ok(large)));
    assert!(matches!(refused, Err(Misuse::TooLarge { bytes }) if bytes > 4_000));
    let mut error = ErrorObject::new(code::INTERNAL_ERROR, "no");
    error.data = Some(payload(&json!("x".repeat(4_000))));
    let refused = world.verb(|link, now| link.answer(now, question, Err(error)));
    assert!(matches!(refused, Err(Misuse::TooLarge { bytes }) if bytes > 4_000));
    assert!(world.answers().is_empty());
    // The ask is still open for a smaller answer.
    world.answer(question, Ok(json!({"roots": []})));
    assert_eq!(world.answers().len(), 1);
    world.finish();
}

#[test]
fn s_cap_04_every_modern_request_declares_what_can_be_asked() {
    let mut world = ready(answering(), Peer::modern);
    world.tool("add");
    world.list(List::Tools);
    world.pass(seconds(31));
    let lines = world.lines_of(1);
    let requests: Vec<&&Value> = lines.iter().filter(|line| !line["id"].is_null()).collect();
    let methods: Vec<&str> = requests
        .iter()
        .filter_map(|r| r["method"].as_str())
        .collect();
    let expected = [
        "server/discover",
        "subscriptions/listen",
        "tools/call",
        "tools/list",
        "server/discover",
    ];
    assert_eq!(methods, expected);
    for request in requests {
        let declared = &request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        let all = json!({"elicitation": {"form": {}}, "roots": {}, "sampling": {}});
        assert_eq!(*declared, all, "{request}");
    }
    world.finish();
}

/// The application may declare capabilities during the handshake, and the first request already carries them.
#[test]
fn s_cap_04_what_is_declared_in_the_handshake_goes_with_the_first_request() {
    let mut world = World::new(config()).served_by(|_| {
        Peer::modern().on("server/discover", |request| {
            let result = discovered(json!({"tools": {}}));
            vec![reply(request, result).after(Duration::from_millis(100))]
        })
    });
    world.connect();
    world.until_state(State::Handshaking);
    let capable = ClientCapabilities::default().with_sampling();
    world.verb(|link, now| link.declare(now, capable));
    let call = world.tool("add");
    world.until_done(call);
    let asked = world.said("tools/call");
    let declared = &asked[0]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    assert_eq!(*declared, json!({"sampling": {}}));
    world.finish();
}

#[test]
fn s_cap_03_what_the_server_does_not_offer_is_not_asked_of_it() {
    let bare: [fn() -> Peer; 2] = [
        || {
            legacy().replies("initialize", |_| {
                client_pipe::agreed("2025-11-25", json!({"tools": {}}))
            })
        },
        || {
            Peer::modern().replies("server/discover", |_| {
                client_pipe::discovered(json!({"tools": {}}))
            })
        },
    ];
    for server in bare {
        let mut world = World::new(config()).served_by(move |_| server());
        // One call before the link knows the capabilities, one after.
        let early = world.call("prompts/get", json!({"name": "hello"}));
        world.until_ready();
        let late = world.call("resources/read", json!({"uri": "file:///a"}));
        let list = world.list(List::Prompts);
        for call in [early, late, list] {
            let failure = world.failure(call);
            assert!(matches!(failure.kind, FailureKind::NotOffered { .. }));
            assert_ne!(failure.delivery, everlink::client::Delivery::Unknown);
        }
        let unheard_of = ["prompts/get", "prompts/list", "resources/read"];
        assert!(
            unheard_of
                .iter()
                .all(|method| world.said(method).is_empty())
        );
        let offered = world.tool("add");
        assert_eq!(world.result(offered)["content"][0]["text"], "add");
        world.finish();
    }
}

#[test]
fn s_cap_03_a_method_that_the_agreed_version_lacks_is_not_sent() {
    let mut world = ready(config(), || Peer::legacy("2025-06-18"));
    let call = world.call("tasks/get", json!({"taskId": "1"}));
    assert!(matches!(
        world.failure(call).kind,
        FailureKind::NotOffered { .. }
    ));
    assert!(world.said("tasks/get").is_empty());
    let unknown = world.call("vendor/thing", json!({}));
    assert!(
        !world.is_done(unknown),
        "what nobody knows is for the server"
    );
    assert_eq!(world.said("vendor/thing").len(), 1);
    world.finish();
}

#[test]
fn s_mrtr_09_the_call_goes_on_when_the_last_answer_is_there() {
    let questions = json!({
        "who": {"method": "elicitation/create", "params": form("who?")},
        "where": {"method": "roots/list"},
    });
    let mut world = ready(answering(), move || {
        rounds(vec![input_required(questions.clone(), Some("half way"))])
    });
    let call = world.tool("book");
    let told = world.picked(|event| match event {
        Event::Ask(ask) => Some((ask.call, ask.method.to_string())),
        _ => None,
    });
    let mut methods: Vec<&str> = told.iter().map(|(_, method)| &**method).collect();
    methods.sort_unstable();
    assert_eq!(methods, ["elicitation/create", "roots/list"]);
    assert!(told.iter().all(|(of, _)| *of == Some(call)));
    let [first, second] = world.asks()[..] else {
        panic!("two questions");
    };
    world.answer(first, Ok(json!({"n": 1})));
    assert_eq!(world.said("tools/call").len(), 1);
    world.answer(second, Ok(json!({"n": 2})));
    assert_eq!(world.said("tools/call").len(), 2);
    assert_eq!(world.result(call)["content"], json!([]));
    let answers = world.last("tools/call")["params"]["inputResponses"].clone();
    assert_eq!(answers.as_object().map(serde_json::Map::len), Some(2));
    world.finish();
}

#[test]
fn s_mrtr_09_without_questions_the_call_goes_on_at_once() {
    let mut world = ready(config(), || {
        rounds(vec![input_required(Value::Null, Some("later"))])
    });
    let call = world.tool("shed");
    assert_eq!(world.result(call)["content"], json!([]));
    let again = world.last("tools/call");
    assert_eq!(again["params"]["requestState"], "later");
    assert!(again["params"]["inputResponses"].is_null());
    world.finish();
}

#[test]
fn s_mrtr_10_the_state_goes_back_byte_for_byte_or_not_at_all() {
    // The link must return the same bytes, whatever a JSON parser would make of them.
    let state = r#""\u00e9\/ \ud83d\ude00 \"""#;
    let mut round = 0;
    let mut world = ready(answering(), move || {
        Peer::modern().on("tools/call", move |request| {
            round += 1;
            let result = match round {
                1 => format!(
                    r#"{{"resultType":"input_required","requestState":{state},"inputRequests":{{"k":{{"method":"roots/list"}}}}}}"#
                ),
                2 => r#"{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}}}"#.into(),
                _ => r#"{"content":[]}"#.into(),
            };
            let line = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, request["id"]);
            vec![Act::Raw((line + "\n").into_bytes())]
        })
    });
    let call = world.tool("state");
    world.answer(world.asks()[0], Ok(json!({"roots": []})));
    world.answer(world.asks()[1], Ok(json!({"roots": []})));
    assert!(world.is_done(call));
    let sent = world.said("tools/call");
    assert_eq!(sent[1]["params"]["requestState"], "é/ 😀 \"");
    assert!(
        sent[2]["params"].get("requestState").is_none(),
        "S-MRTR-14: the latest result replaces all before it"
    );
    let record = world.finish();
    let raw = format!(r#""requestState":{state}"#);
    assert!(record.written.iter().any(|line| line.contains(&raw)));
}

#[test]
fn s_mrtr_11_the_next_round_repeats_the_call_under_a_new_id() {
    let questions = json!({"k": {"method": "roots/list"}});
    let mut world = ready(answering(), move || {
        rounds(vec![input_required(questions.clone(), Some("s"))])
    });
    let params = json!({"name": "t", "arguments": {"a": [1, {"b": null}]}, "_meta": {"example.com/trace": "x"}});
    let call = world.call("tools/call", params);
    let other = world.tool("other");
    world.answer(world.asks()[0], Ok(json!({"roots": []})));
    assert!(world.is_done(call) && world.is_done(other));
    let sent = world.said("tools/call");
    let (first, parallel, again) = (sent[0], sent[1], sent[2]);
    assert_ne!(first["id"], again["id"]);
    assert_eq!(
        again["params"]["inputResponses"],
        json!({"k": {"roots": []}})
    );
    let mut original = again["params"].clone();
    let members = original.as_object_mut().expect("params are an object");
    members.remove("inputResponses");
    members.remove("requestState");
    // The progress token is the id, so it is new as well. Everything else is unchanged.
    assert_ne!(
        original["_meta"]["progressToken"],
        first["params"]["_meta"]["progressToken"]
    );
    original["_meta"]["progressToken"] = first["params"]["_meta"]["progressToken"].clone();
    assert_eq!(original, first["params"]);
    // S-MRTR-12: no state leaks into another call.
    assert!(parallel["params"]["requestState"].is_null());
    assert!(parallel["params"]["inputResponses"].is_null());
    world.finish();
}

#[test]
fn s_mrtr_13_a_question_that_is_declined_ends_the_call_and_is_not_sent_again() {
    let questions = json!({"a": {"method": "roots/list"}, "b": {"method": "sampling/createMessage", "params": {"messages": []}}});
    let mut world = ready(answering(), move || {
        rounds(vec![input_required(questions.clone(), None)])
    });
    let call = world.tool("nosy");
    let [first, second] = world.asks()[..] else {
        panic!("two questions");
    };
    let no = ErrorObject::new(code::USER_REJECTED, "no");
    world.answer(first, Err(no));
    assert!(matches!(
        world.failure(call).kind,
        FailureKind::Declined { .. }
    ));
    assert_eq!(withdrawn(&world), [(second, Withdrawn::CallSettled)]);
    assert_eq!(world.said("tools/call").len(), 1);
    let answer = client_pipe::payload(&json!({}));
    let late = world.verb(|link, now| link.answer(now, second, Ok(answer)));
    assert_eq!(late, Err(Misuse::UnknownAsk));
    world.finish();
}

#[test]
fn s_mrtr_13_an_elicitation_that_the_user_declines_is_a_normal_answer() {
    let questions = json!({"k": {"method": "elicitation/create", "params": form("well?")}});
    let mut world = ready(answering(), move || {
        rounds(vec![input_required(questions.clone(), None)])
    });
    let call = world.tool("polite");
    world.answer(world.asks()[0], Ok(json!({"action": "decline"})));
    assert_eq!(world.result(call)["content"], json!([]));
    world.finish();
}

#[test]
fn s_mrtr_14_rounds_are_bounded() {
    let mut world = ready(config(), || {
        Peer::modern().replies("tools/call", |_| input_required(Value::Null, Some("again")))
    });
    let call = world.tool("endless");
    assert_eq!(
        world.failure(call).kind,
        FailureKind::TooManyRounds { rounds: 10 }
    );
    assert_eq!(world.said("tools/call").len(), 11);
    assert_eq!(world.state(), State::Ready);
    world.finish();
}

#[test]
fn s_mrtr_04_a_round_must_say_what_it_wants() {
    for broken in [
        json!({"resultType": "input_required"}),
        json!({"resultType": "input_required", "inputRequests": {}}),
        json!({"resultType": "input_required", "inputRequests": []}),
        json!({"resultType": "input_required", "inputRequests": {"k": 1}}),
        json!({"resultType": "input_required", "inputRequests": {"k": {}}}),
        json!({"resultType": "input_required", "requestState": 7}),
        json!({"resultType": 7}),
        json!({"resultType": "riddle"}),
    ] {
        let mut world = ready(answering(), move || rounds(vec![broken.clone()]));
        let call = world.tool("broken");
        assert_ne!(why_invalid(&world, call), "");
        assert!(world.asks().is_empty());
        assert_eq!(world.state(), State::Ready, "one bad reply costs one call");
        let next = world.tool("fine");
        assert_eq!(world.result(next)["content"], json!([]));
        world.finish();
    }
}

#[test]
fn s_mrtr_03_input_is_required_by_three_methods_only() {
    let question = || json!({"k": {"method": "roots/list"}});
    let mut world = ready(answering(), move || {
        Peer::modern().replies("completion/complete", move |_| {
            input_required(question(), None)
        })
    });
    let call = world.call("completion/complete", json!({}));
    assert_ne!(why_invalid(&world, call), "");
    assert!(world.asks().is_empty());
    world.finish();
    for method in ["prompts/get", "resources/read"] {
        let mut world = ready(answering(), move || {
            let mut results = vec![json!({}), input_required(question(), None)];
            Peer::modern().replies(method, move |_| results.pop().unwrap_or_default())
        });
        let call = world.call(method, json!({"name": "a", "uri": "a"}));
        world.answer(world.asks()[0], Ok(json!({"roots": []})));
        assert_eq!(world.result(call), json!({}));
        world.finish();
    }
}

#[test]
fn s_mrtr_03_a_page_of_a_list_that_is_not_complete_is_invalid() {
    for kind in ["input_required", "task", "riddle"] {
        let mut world = ready(answering(), move || {
            Peer::modern().replies(
                "tools/list",
                move |_| json!({"resultType": kind, "tools": [], "requestState": "s"}),
            )
        });
        let list = world.list(List::Tools);
        assert_ne!(why_invalid(&world, list), "");
        world.finish();
    }
}

#[test]
fn s_mrtr_06_a_question_that_was_not_declared_costs_the_call() {
    let url = json!({"mode": "url", "message": "sign in", "url": "https://example.com"});
    for question in [
        json!({"method": "elicitation/create", "params": url}),
        json!({"method": "sampling/createMessage", "params": {"messages": [], "tools": []}}),
        json!({"method": "ping"}),
        json!({"method": "tools/call", "params": {"name": "x"}}),
    ] {
        let mut world = ready(answering(), move || {
            // The first ask alone would be valid. No ask of an invalid round reaches the application.
            let questions = json!({"a": {"method": "roots/list"}, "b": question});
            rounds(vec![input_required(questions, None)])
        });
        let call = world.tool("nosy");
        assert_ne!(why_invalid(&world, call), "");
        assert!(world.asks().is_empty());
        world.finish();
    }
}

#[test]
fn s_mrtr_06_a_way_to_ask_that_nobody_declared_costs_the_call_however_it_is_written() {
    for (method, params) in ODD_WAYS {
        let mut world = ready(answering(), move || {
            Peer::modern().on("tools/call", move |request| {
                let id = &request["id"];
                let question = format!("{{\"method\":\"{method}\",\"params\":{params}}}");
                let line = format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"resultType\":\"input_required\",\"inputRequests\":{{\"k\":{question}}}}}}}\n"
                );
                vec![Act::Raw(line.into_bytes())]
            })
        });
        let call = world.tool("nosy");
        assert!(world.asks().is_empty(), "{params} was asked");
        assert_ne!(why_invalid(&world, call), "");
        world.finish();
    }
}

#[test]
fn s_mrtr_05_what_is_no_question_costs_the_call_even_if_its_feature_was_declared() {
    let declared = ClientCapabilities::default()
        .with_elicitation_url()
        .with(ClientFeature::TasksExtension);
    for method in ["notifications/elicitation/complete", "tasks/get"] {
        let mut world = ready(declaring(declared.clone()), move || {
            let question = json!({"k": {"method": method, "params": {"elicitationId": "e"}}});
            rounds(vec![input_required(question, None)])
        });
        let call = world.tool("nosy");
        assert_ne!(why_invalid(&world, call), "");
        assert!(world.asks().is_empty());
        world.finish();
    }
}

#[test]
fn s_taskx_03_a_task_is_no_answer_to_what_cannot_be_one() {
    let tasks = ClientCapabilities::default().with(ClientFeature::TasksExtension);
    for (method, params) in [
        ("prompts/get", json!({"name": "p"})),
        ("resources/read", json!({"uri": "file:///a"})),
    ] {
        let mut world = ready(declaring(tasks.clone()), move || {
            Peer::modern().replies(method, |_| json!({"resultType": "task", "taskId": "t"}))
        });
        let call = world.call(method, params);
        assert_ne!(why_invalid(&world, call), "");
        world.finish();
    }
}

#[test]
fn a_round_of_more_questions_than_may_be_open_costs_the_call() {
    let mut config = answering();
    config.limits.asks = 3;
    let mut world = ready(config, || {
        let questions: serde_json::Map<String, Value> = (0..4)
            .map(|n| (n.to_string(), json!({"method": "roots/list"})))
            .collect();
        rounds(vec![input_required(questions.into(), None)])
    });
    let call = world.tool("nosy");
    assert_ne!(why_invalid(&world, call), "");
    assert!(world.asks().is_empty());
    world.finish();
}

#[test]
fn a_call_is_not_blamed_on_the_server_for_the_questions_of_others() {
    let mut config = answering();
    config.limits.asks = 1;
    let mut world = ready(config, || {
        Peer::modern().replies("tools/call", |_| {
            input_required(json!({"k": {"method": "roots/list"}}), None)
        })
    });
    let (first, second) = (world.tool("first"), world.tool("second"));
    assert!(!world.is_done(first));
    let failure = world.failure(second);
    assert_eq!(failure.kind, FailureKind::TooManyAsks { open: 1 });
    assert_eq!(failure.blame(), Blame::Caller);
    let text = failure.to_string();
    assert!(text.contains("open already"), "{text}");
    world.finish();
}

#[test]
fn a_legacy_result_that_looks_like_a_round_is_a_result() {
    let strange = input_required(json!({"k": {"method": "roots/list"}}), Some("s"));
    let expected = strange.clone();
    let mut world = ready(answering(), move || {
        let strange = strange.clone();
        legacy().replies("tools/call", move |_| strange.clone())
    });
    let call = world.tool("old");
    assert_eq!(world.result(call), expected);
    world.finish();
}

#[test]
fn questions_end_with_the_life_that_asked_in_both_eras() {
    for server in BOTH {
        let mut world = ready(answering(), move || {
            server().on("tools/call", |request| {
                let modern = !request["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"]
                    .is_null();
                vec![if modern {
                    reply(
                        request,
                        input_required(json!({"k": {"method": "roots/list"}}), None),
                    )
                } else {
                    ask("k", "roots/list", json!({}))
                }]
            })
        });
        let call = world.tool("nosy");
        let question = world.asks()[0];
        world.peer_all(dies(everlink::ExitStatus::Code(1)));
        assert_eq!(withdrawn(&world), [(question, Withdrawn::Ended)]);
        assert!(matches!(world.outcome(call), Outcome::Failed(_)));
        let answer = client_pipe::payload(&json!({"roots": []}));
        let late = world.verb(|link, now| link.answer(now, question, Ok(answer)));
        assert_eq!(late, Err(Misuse::UnknownAsk));
        world.until_ready();
        world.pass(seconds(1));
        assert!(world.answers().is_empty(), "the next life never asked");
        world.finish();
    }
}
