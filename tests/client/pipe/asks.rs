//! Asks of a server of either era: which ones are allowed, where the answer goes, and how a call continues with it.
//! S-S2C, S-ERR-15, S-CAP-03, S-CAP-04 and S-MRTR of the requirements.

use core::time::Duration;

use everlink::ErrorObject;
use everlink::client::{Blame, CallOptions, Event, FailureKind, Misuse, Outcome, State, Withdrawn};
use everlink::protocol::{ClientCapabilities, ClientFeature, code};
use everlink::{AskId, CallId, Config, ExitStatus, Limit, List};
use serde_json::{Value, json};

use crate::client_pipe::{
    self, Act, Harness, Peer, ask, config, dies, discover_result, notify, payload, reply, seconds,
};
use crate::eras::{BOTH_ERAS, config_with_asks, form_params, input_required, legacy, ready};

fn withdrawn(harness: &Harness) -> Vec<(AskId, Withdrawn)> {
    harness.pick_events(|event| match event {
        Event::AskWithdrawn { ask, why } => Some((*ask, *why)),
        _ => None,
    })
}

/// The code of the error reply to the server.
fn refusal_code(harness: &Harness) -> i64 {
    let answers = harness.ask_replies();
    let answer = answers.last().expect("the server got a reply");
    assert!(answer["result"].is_null());
    assert_ne!(answer["error"]["message"], "");
    answer["error"]["code"]
        .as_i64()
        .expect("an error has a code")
}

/// A modern server that answers the first tool calls with these results, and later ones with empty content.
fn modern_with_results(results: Vec<Value>) -> Peer {
    let mut results = results.into_iter();
    Peer::modern().replies("tools/call", move |_| {
        results.next().unwrap_or_else(|| json!({"content": []}))
    })
}

fn invalid_reason(harness: &Harness, call: CallId) -> &str {
    match &harness.failure(call).kind {
        FailureKind::Invalid { why } => why,
        other => panic!("{call} is not invalid: {other}"),
    }
}

fn config_with(capabilities: ClientCapabilities) -> Config {
    let mut config = config();
    config.capabilities = capabilities;
    config
}

#[test]
fn s_s2c_01_declared_ask_reaches_the_application_and_its_answer_the_server() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut harness = ready(config_with_asks(), move || Peer::legacy(version));
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
            kinds.push(("elicitation/create", form_params("well?"), accepted));
        }
        for (number, (method, params, result)) in kinds.into_iter().enumerate() {
            let id = format!("ask {number}");
            harness.perform(ask(id.clone(), method, params));
            let asks = harness.asks();
            assert_eq!(asks.len(), number + 1, "{method} in {version}");
            harness.answer(asks[number], Ok(result.clone()));
            let answers = harness.ask_replies();
            assert_eq!(answers[number]["id"], id);
            assert_eq!(answers[number]["result"], result);
        }
        harness.finish();
    }
}

#[test]
fn s_s2c_01_elicitation_is_refused_in_versions_without_it() {
    for version in ["2024-11-05", "2025-03-26"] {
        let mut harness = ready(config_with_asks(), move || Peer::legacy(version));
        harness.perform(ask(1, "elicitation/create", form_params("well?")));
        assert!(harness.asks().is_empty());
        assert_eq!(refusal_code(&harness), code::METHOD_NOT_FOUND);
        harness.finish();
    }
}

#[test]
fn s_err_15_undeclared_ask_is_refused_with_method_not_found() {
    for method in [
        "roots/list",
        "sampling/createMessage",
        "elicitation/create",
        "tasks/list",
        "tools/call",
        "what/ever",
    ] {
        let mut harness = ready(config(), legacy);
        harness.perform(ask("q", method, json!({})));
        assert!(harness.asks().is_empty(), "{method}");
        assert_eq!(refusal_code(&harness), code::METHOD_NOT_FOUND, "{method}");
        assert_eq!(harness.ask_replies()[0]["id"], "q");
        assert_eq!(harness.link().stats().asks_refused, 1);
        assert_eq!(harness.state(), State::Ready);
        harness.finish();
    }
}

#[test]
fn s_err_15_request_with_a_notification_method_is_refused() {
    let declared = ClientCapabilities::default().with_elicitation_url();
    let mut harness = ready(config_with(declared), legacy);
    let params = json!({"elicitationId": "e"});
    harness.perform(ask(1, "notifications/elicitation/complete", params));
    assert!(harness.asks().is_empty());
    assert_eq!(refusal_code(&harness), code::METHOD_NOT_FOUND);
    harness.finish();
}

#[test]
fn s_err_15_error_of_the_application_is_sent_to_the_server_unchanged() {
    let mut harness = ready(config_with_asks(), legacy);
    harness.perform(ask(7, "sampling/createMessage", json!({"messages": []})));
    let rejected = ErrorObject::new(code::USER_REJECTED, "the user said no");
    harness.answer(harness.asks()[0], Err(rejected));
    assert_eq!(refusal_code(&harness), -1);
    assert_eq!(harness.ask_replies()[0]["id"], 7);
    harness.finish();
}

#[test]
fn s_s2c_03_undeclared_url_mode_and_sampling_tools_are_refused_as_invalid_params() {
    let url = json!({"mode": "url", "message": "sign in", "url": "https://example.com", "elicitationId": "e"});
    let tools = json!({"messages": [], "tools": []});
    let choice = json!({"messages": [], "toolChoice": {"mode": "auto"}});
    for (method, params) in [
        ("elicitation/create", url),
        ("sampling/createMessage", tools),
        ("sampling/createMessage", choice),
    ] {
        let mut harness = ready(config_with_asks(), legacy);
        harness.perform(ask(1, method, params));
        assert!(harness.asks().is_empty());
        assert_eq!(refusal_code(&harness), code::INVALID_PARAMS);
        harness.finish();
    }
}

/// Undeclared kinds of asks, some of them hard to parse: the method and its parameters as text.
const UNDECLARED_ASKS: [(&str, &str); 7] = [
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
fn s_s2c_03_undeclared_kind_of_ask_is_refused_however_its_params_are_written() {
    for (method, params) in UNDECLARED_ASKS {
        let mut harness = ready(config_with_asks(), legacy);
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{params}}}\n"
        );
        harness.perform(Act::Raw(line.into_bytes()));
        assert!(
            harness.asks().is_empty(),
            "{params} reached the application"
        );
        assert_eq!(refusal_code(&harness), code::INVALID_PARAMS, "{params}");
        harness.finish();
    }
}

#[test]
fn s_mrtr_18_elicitation_without_a_mode_is_a_form_and_url_only_clients_refuse_it() {
    let bare = json!({"message": "well?", "requestedSchema": {"type": "object", "properties": {}}});
    let mut harness = ready(config_with_asks(), legacy);
    harness.perform(ask(1, "elicitation/create", bare.clone()));
    assert_eq!(harness.asks().len(), 1);
    harness.finish();

    let urls = ClientCapabilities::default().with_elicitation_url();
    let mut harness = ready(config_with(urls), legacy);
    harness.perform(ask(1, "elicitation/create", bare));
    assert_eq!(refusal_code(&harness), code::INVALID_PARAMS);
    let url = json!({"mode": "url", "message": "sign in", "url": "https://example.com", "elicitationId": "e"});
    harness.perform(ask(2, "elicitation/create", url));
    assert_eq!(harness.asks().len(), 1);
    harness.finish();
}

#[test]
fn s_s2c_05_elicitation_complete_notification_is_passed_on() {
    let mut harness = ready(config_with_asks(), legacy);
    harness.perform(notify(
        "notifications/elicitation/complete",
        json!({"elicitationId": "unknown"}),
    ));
    let notified = harness.pick_events(|event| match event {
        Event::Notified { method, .. } => Some(&**method),
        _ => None,
    });
    assert_eq!(notified, ["notifications/elicitation/complete"]);
    assert_eq!(harness.state(), State::Ready);
    harness.finish();
}

#[test]
fn s_s2c_07_the_ids_of_the_two_directions_are_independent() {
    let mut harness = ready(config_with_asks(), || legacy().ignores("tools/call"));
    let call = harness.call_tool("slow");
    let request = harness.last_message("tools/call");
    harness.perform(ask(request["id"].clone(), "roots/list", json!({})));
    // The server cancels its own ask, not the client's call with the same id.
    harness.perform(notify(
        "notifications/cancelled",
        json!({"requestId": request["id"]}),
    ));
    assert_eq!(
        withdrawn(&harness),
        [(harness.asks()[0], Withdrawn::ByServer)]
    );
    assert!(!harness.is_done(call));
    harness.perform(reply(&request, json!({"content": []})));
    assert_eq!(harness.result(call)["content"], json!([]));
    harness.finish();
}

#[test]
fn s_canc_04_ask_cancelled_by_the_server_gets_no_reply() {
    let mut harness = ready(config_with_asks(), legacy);
    harness.perform(ask("q", "roots/list", json!({})));
    let ask_id = harness.asks()[0];
    harness.perform(notify(
        "notifications/cancelled",
        json!({"requestId": "q", "reason": "too slow"}),
    ));
    assert_eq!(withdrawn(&harness), [(ask_id, Withdrawn::ByServer)]);
    let answer = client_pipe::payload(&json!({"roots": []}));
    let late = harness.with_link(|link, now| link.answer(now, ask_id, Ok(answer)));
    assert_eq!(late, Err(Misuse::UnknownAsk));
    assert!(harness.ask_replies().is_empty());
    harness.finish();
}

#[test]
fn legacy_ping_is_answered_during_and_after_the_handshake() {
    let mut harness = Harness::new(config())
        .served_by(|_| legacy().after_open(vec![ask("early", "ping", json!({}))]));
    harness.until_ready();
    harness.perform(ask("late", "ping", json!({})));
    let answers = harness.ask_replies();
    assert_eq!(answers.len(), 2);
    for (answer, id) in answers.into_iter().zip(["early", "late"]) {
        assert_eq!(answer["id"], id);
        assert_eq!(answer["result"], json!({}));
    }
    assert!(harness.asks().is_empty());
    harness.finish();
}

#[test]
fn s_rpc_24_request_of_a_modern_server_gets_no_reply() {
    let mut harness = ready(config_with_asks(), Peer::modern);
    for method in ["ping", "roots/list", "elicitation/create", "what/ever"] {
        harness.perform(ask(1, method, json!({})));
    }
    assert!(harness.asks().is_empty() && harness.ask_replies().is_empty());
    assert_eq!(harness.link().stats().noise, 4);
    assert_eq!(harness.state(), State::Ready);
    harness.finish();
}

#[test]
fn unanswered_ask_times_out_and_the_server_gets_an_error() {
    let mut harness = ready(config_with_asks(), legacy);
    harness.perform(ask("q", "roots/list", json!({})));
    harness.advance(seconds(600));
    assert_eq!(
        withdrawn(&harness),
        [(harness.asks()[0], Withdrawn::TimedOut)]
    );
    assert_eq!(refusal_code(&harness), code::INTERNAL_ERROR);
    harness.finish();
}

/// The server may wait for the answer before it goes on with the call.
#[test]
fn clock_of_a_sent_call_stands_still_while_a_legacy_server_waits_for_an_answer() {
    let mut harness = ready(config_with_asks(), || legacy().ignores("tools/call"));
    let options = CallOptions::new().with_idle(Limit::After(seconds(60)));
    let call = harness.call_with("tools/call", json!({"name": "slow"}), options);
    harness.advance(seconds(50));
    harness.perform(ask(1, "roots/list", json!({})));
    harness.advance(seconds(300));
    assert!(!harness.is_done(call), "the clock stands still");
    harness.answer(harness.asks()[0], Ok(json!({"roots": []})));
    harness.advance(seconds(60));
    assert!(harness.is_done(call), "the clock runs again");
    harness.finish();
}

#[test]
fn ask_of_a_server_that_does_not_read_is_dropped_and_counted() {
    let mut harness = ready(config_with_asks(), legacy);
    harness.peer_stops_reading();
    let mut id = 0;
    while harness.link().stats().answers_dropped == 0 {
        id += 1;
        harness.perform(ask(id, "ping", json!({})));
    }
    harness.perform(ask(0, "roots/list", json!({})));
    assert!(harness.asks().is_empty());
    let stats = harness.link().stats();
    assert_eq!((stats.asks, stats.answers_dropped), (0, 2));
    harness.finish();
}

/// Only the texts that the server chose count: here, four bytes for each answer.
#[test]
fn answers_wait_for_a_server_that_does_not_read_up_to_exactly_the_limit() {
    let mut config = config();
    (config.limits.write_window, config.limits.queued_bytes) = (1, 8);
    let mut harness = ready(config, legacy);
    harness.peer_stops_reading();
    // The first answer is written and fills the pipe.
    for (id, dropped) in [("0000", 0), ("1111", 0), ("2222", 0), ("3333", 1)] {
        harness.perform(ask(id, "ping", json!({})));
        assert_eq!(harness.link().stats().answers_dropped, dropped, "{id}");
    }
    harness.finish();
}

#[test]
fn asks_over_the_limit_are_refused() {
    let mut config = config_with_asks();
    config.limits.asks = 2;
    let mut harness = ready(config, legacy);
    for id in 1..=3 {
        harness.perform(ask(id, "roots/list", json!({})));
    }
    assert_eq!(harness.asks().len(), 2);
    assert_eq!(refusal_code(&harness), code::INTERNAL_ERROR);
    assert_eq!(harness.ask_replies()[0]["id"], 3);
    harness.answer(harness.asks()[0], Ok(json!({"roots": []})));
    harness.perform(ask(4, "roots/list", json!({})));
    assert_eq!(harness.asks().len(), 3, "an answer makes room");
    let stats = harness.link().stats();
    assert_eq!((stats.asks, stats.asks_refused), (3, 1));
    harness.finish();
}

#[test]
fn answer_that_is_no_object_is_refused_as_misuse() {
    let mut harness = ready(config_with_asks(), legacy);
    harness.perform(ask(1, "roots/list", json!({})));
    let ask_id = harness.asks()[0];
    let bad = client_pipe::payload(&json!([]));
    let refused = harness.with_link(|link, now| link.answer(now, ask_id, Ok(bad)));
    assert!(matches!(refused, Err(Misuse::NotAnObject { .. })));
    harness.answer(ask_id, Ok(json!({"roots": []})));
    assert_eq!(harness.ask_replies().len(), 1);
    harness.finish();
}

#[test]
fn oversized_answer_is_refused_as_misuse_and_the_ask_stays_open() {
    let mut config = config_with_asks();
    config.limits.message_bytes = 2_000;
    let mut harness = ready(config, legacy);
    harness.perform(ask(1, "roots/list", json!({})));
    let ask_id = harness.asks()[0];
    let large = payload(&json!({"roots": ["x".repeat(4_000)]}));
    let refused = harness.with_link(|link, now| link.answer(now, ask_id, Ok(large)));
    assert!(matches!(refused, Err(Misuse::TooLarge { bytes }) if bytes > 4_000));
    let mut error = ErrorObject::new(code::INTERNAL_ERROR, "no");
    error.data = Some(payload(&json!("x".repeat(4_000))));
    let refused = harness.with_link(|link, now| link.answer(now, ask_id, Err(error)));
    assert!(matches!(refused, Err(Misuse::TooLarge { bytes }) if bytes > 4_000));
    assert!(harness.ask_replies().is_empty());
    // The ask is still open for a smaller answer.
    harness.answer(ask_id, Ok(json!({"roots": []})));
    assert_eq!(harness.ask_replies().len(), 1);
    harness.finish();
}

#[test]
fn answer_of_exactly_the_message_limit_is_sent() {
    let mut config = config_with_asks();
    config.limits.message_bytes = 2_000;
    let mut harness = ready(config, legacy);
    let result_of = |bytes: usize| {
        let empty = r#"{"x":""}"#.len();
        payload(&json!({"x": "x".repeat(bytes - empty)}))
    };
    let error_of = |bytes: usize| {
        let mut error = ErrorObject::new(code::INTERNAL_ERROR, "x".repeat(500));
        error.data = Some(payload(&json!("x".repeat(bytes - 500 - r#""""#.len()))));
        error
    };
    for (id, large, fitting) in [
        (1, Ok(result_of(2_001)), Ok(result_of(2_000))),
        (2, Err(error_of(2_001)), Err(error_of(2_000))),
    ] {
        harness.perform(ask(id, "roots/list", json!({})));
        let ask_id = harness.asks()[id - 1];
        let refused = harness.with_link(|link, now| link.answer(now, ask_id, large));
        assert_eq!(refused, Err(Misuse::TooLarge { bytes: 2_001 }));
        let sent = harness.with_link(|link, now| link.answer(now, ask_id, fitting));
        assert_eq!(sent, Ok(()));
        assert_eq!(harness.ask_replies().len(), id);
    }
    harness.finish();
}

#[test]
fn s_cap_04_every_modern_request_declares_the_client_capabilities() {
    let mut harness = ready(config_with_asks(), Peer::modern);
    harness.call_tool("add");
    harness.list(List::Tools);
    harness.advance(seconds(31));
    let lines = harness.lines_of(1);
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
    harness.finish();
}

/// The application may declare capabilities during the handshake, and the first request already carries them.
#[test]
fn s_cap_04_capabilities_declared_during_the_handshake_are_in_the_first_call() {
    let mut harness = Harness::new(config()).served_by(|_| {
        Peer::modern().on("server/discover", |request| {
            let result = discover_result(json!({"tools": {}}));
            vec![reply(request, result).after(Duration::from_millis(100))]
        })
    });
    harness.connect();
    harness.until_state(State::Handshaking);
    let capable = ClientCapabilities::default().with_sampling();
    harness.with_link(|link, now| link.declare(now, capable));
    let call = harness.call_tool("add");
    harness.until_done(call);
    let asked = harness.messages_with("tools/call");
    let declared = &asked[0]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    assert_eq!(*declared, json!({"sampling": {}}));
    harness.finish();
}

#[test]
fn s_cap_03_methods_without_the_server_capability_are_not_sent() {
    let bare: [fn() -> Peer; 2] = [
        || {
            legacy().replies("initialize", |_| {
                client_pipe::initialize_result("2025-11-25", json!({"tools": {}}))
            })
        },
        || {
            Peer::modern().replies("server/discover", |_| {
                client_pipe::discover_result(json!({"tools": {}}))
            })
        },
    ];
    for server in bare {
        let mut harness = Harness::new(config()).served_by(move |_| server());
        // One call before the link knows the capabilities, one after.
        let early = harness.call("prompts/get", json!({"name": "hello"}));
        harness.until_ready();
        let late = harness.call("resources/read", json!({"uri": "file:///a"}));
        let list = harness.list(List::Prompts);
        for call in [early, late, list] {
            let failure = harness.failure(call);
            assert!(matches!(failure.kind, FailureKind::NotOffered { .. }));
            assert_ne!(failure.delivery, everlink::client::Delivery::Unknown);
        }
        let not_offered = ["prompts/get", "prompts/list", "resources/read"];
        assert!(
            not_offered
                .iter()
                .all(|method| harness.messages_with(method).is_empty())
        );
        let offered = harness.call_tool("add");
        assert_eq!(harness.result(offered)["content"][0]["text"], "add");
        harness.finish();
    }
}

#[test]
fn s_cap_03_a_method_that_the_agreed_version_lacks_is_not_sent() {
    let mut harness = ready(config(), || Peer::legacy("2025-06-18"));
    let call = harness.call("tasks/get", json!({"taskId": "1"}));
    assert!(matches!(
        harness.failure(call).kind,
        FailureKind::NotOffered { .. }
    ));
    assert!(harness.messages_with("tasks/get").is_empty());
    let unknown = harness.call("vendor/thing", json!({}));
    assert!(
        !harness.is_done(unknown),
        "an unknown method is sent to the server"
    );
    assert_eq!(harness.messages_with("vendor/thing").len(), 1);
    harness.finish();
}

#[test]
fn s_mrtr_09_call_is_sent_again_after_the_last_answer() {
    let requests = json!({
        "who": {"method": "elicitation/create", "params": form_params("who?")},
        "where": {"method": "roots/list"},
    });
    let mut harness = ready(config_with_asks(), move || {
        modern_with_results(vec![input_required(requests.clone(), Some("half way"))])
    });
    let call = harness.call_tool("book");
    let reported = harness.pick_events(|event| match event {
        Event::Ask(ask) => Some((ask.call, ask.method.to_string())),
        _ => None,
    });
    let mut methods: Vec<&str> = reported.iter().map(|(_, method)| &**method).collect();
    methods.sort_unstable();
    assert_eq!(methods, ["elicitation/create", "roots/list"]);
    assert!(reported.iter().all(|(of, _)| *of == Some(call)));
    let [first, second] = harness.asks()[..] else {
        panic!("two asks");
    };
    harness.answer(first, Ok(json!({"n": 1})));
    assert_eq!(harness.messages_with("tools/call").len(), 1);
    harness.answer(second, Ok(json!({"n": 2})));
    assert_eq!(harness.messages_with("tools/call").len(), 2);
    assert_eq!(harness.result(call)["content"], json!([]));
    let answers = harness.last_message("tools/call")["params"]["inputResponses"].clone();
    assert_eq!(answers.as_object().map(serde_json::Map::len), Some(2));
    harness.finish();
}

#[test]
fn s_mrtr_09_round_without_asks_is_sent_again_at_once() {
    let mut harness = ready(config(), || {
        modern_with_results(vec![input_required(Value::Null, Some("later"))])
    });
    let call = harness.call_tool("shed");
    assert_eq!(harness.result(call)["content"], json!([]));
    let again = harness.last_message("tools/call");
    assert_eq!(again["params"]["requestState"], "later");
    assert!(again["params"]["inputResponses"].is_null());
    harness.finish();
}

#[test]
fn s_mrtr_10_request_state_is_returned_byte_for_byte_or_omitted() {
    // The link must return the same bytes, whatever a JSON parser would make of them.
    let state = r#""\u00e9\/ \ud83d\ude00 \"""#;
    let mut round = 0;
    let mut harness = ready(config_with_asks(), move || {
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
    let call = harness.call_tool("state");
    harness.answer(harness.asks()[0], Ok(json!({"roots": []})));
    harness.answer(harness.asks()[1], Ok(json!({"roots": []})));
    assert!(harness.is_done(call));
    let sent = harness.messages_with("tools/call");
    assert_eq!(sent[1]["params"]["requestState"], "é/ 😀 \"");
    assert!(
        sent[2]["params"].get("requestState").is_none(),
        "S-MRTR-14: the latest result replaces all before it"
    );
    let record = harness.finish();
    let raw = format!(r#""requestState":{state}"#);
    assert!(record.written.iter().any(|line| line.contains(&raw)));
}

#[test]
fn s_mrtr_10_request_state_over_its_limit_fails_the_call() {
    for (bytes, is_returned) in [(1_000, true), (1_001, false), (2_000, false)] {
        // Its JSON text has two quotes.
        let state = "s".repeat(bytes - 2);
        let mut config = config_with_asks();
        config.limits.request_state_bytes = 1_000;
        let mut harness = ready(config, move || {
            modern_with_results(vec![input_required(Value::Null, Some(&state))])
        });
        let call = harness.call_tool("large");
        if is_returned {
            assert_eq!(harness.result(call)["content"], json!([]));
        } else {
            let kind = &harness.failure(call).kind;
            let too_large = FailureKind::TooLarge {
                bytes: bytes as u64,
            };
            assert_eq!(*kind, too_large);
        }
        harness.finish();
    }
}

#[test]
fn s_mrtr_11_the_next_round_repeats_the_call_under_a_new_id() {
    let requests = json!({"k": {"method": "roots/list"}});
    let mut harness = ready(config_with_asks(), move || {
        modern_with_results(vec![input_required(requests.clone(), Some("s"))])
    });
    let params = json!({"name": "t", "arguments": {"a": [1, {"b": null}]}, "_meta": {"example.com/trace": "x"}});
    let call = harness.call("tools/call", params);
    let other = harness.call_tool("other");
    harness.answer(harness.asks()[0], Ok(json!({"roots": []})));
    assert!(harness.is_done(call) && harness.is_done(other));
    let sent = harness.messages_with("tools/call");
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
    harness.finish();
}

#[test]
fn s_mrtr_13_declined_ask_fails_the_call_without_a_resend() {
    let requests = json!({"a": {"method": "roots/list"}, "b": {"method": "sampling/createMessage", "params": {"messages": []}}});
    let mut harness = ready(config_with_asks(), move || {
        modern_with_results(vec![input_required(requests.clone(), None)])
    });
    let call = harness.call_tool("nosy");
    let [first, second] = harness.asks()[..] else {
        panic!("two asks");
    };
    let no = ErrorObject::new(code::USER_REJECTED, "no");
    harness.answer(first, Err(no));
    assert!(matches!(
        harness.failure(call).kind,
        FailureKind::Declined { .. }
    ));
    assert_eq!(withdrawn(&harness), [(second, Withdrawn::CallSettled)]);
    assert_eq!(harness.messages_with("tools/call").len(), 1);
    let answer = client_pipe::payload(&json!({}));
    let late = harness.with_link(|link, now| link.answer(now, second, Ok(answer)));
    assert_eq!(late, Err(Misuse::UnknownAsk));
    harness.finish();
}

#[test]
fn s_mrtr_13_elicitation_result_with_action_decline_continues_the_call() {
    let requests = json!({"k": {"method": "elicitation/create", "params": form_params("well?")}});
    let mut harness = ready(config_with_asks(), move || {
        modern_with_results(vec![input_required(requests.clone(), None)])
    });
    let call = harness.call_tool("polite");
    harness.answer(harness.asks()[0], Ok(json!({"action": "decline"})));
    assert_eq!(harness.result(call)["content"], json!([]));
    harness.finish();
}

#[test]
fn s_mrtr_14_call_fails_after_ten_rounds() {
    let mut harness = ready(config(), || {
        Peer::modern().replies("tools/call", |_| input_required(Value::Null, Some("again")))
    });
    let call = harness.call_tool("endless");
    assert_eq!(
        harness.failure(call).kind,
        FailureKind::TooManyRounds { rounds: 10 }
    );
    assert_eq!(harness.messages_with("tools/call").len(), 11);
    assert_eq!(harness.state(), State::Ready);
    harness.finish();
}

#[test]
fn s_mrtr_04_malformed_input_required_result_fails_the_call() {
    for broken in [
        json!({"resultType": "input_required"}),
        json!({"resultType": "input_required", "inputRequests": {}}),
        json!({"resultType": "input_required", "inputRequests": []}),
        json!({"resultType": "input_required", "inputRequests": {"k": 1}}),
        json!({"resultType": "input_required", "inputRequests": {"k": {}}}),
        json!({"resultType": "input_required", "requestState": 7}),
        // With a state, a result without asks is valid, so the asks must not be left out.
        json!({"resultType": "input_required", "requestState": "s", "inputRequests": []}),
        json!({"resultType": "input_required", "requestState": "s", "inputRequests": {"k": {}}}),
        json!({"resultType": 7}),
        json!({"resultType": "riddle"}),
    ] {
        let mut harness = ready(config_with_asks(), move || {
            modern_with_results(vec![broken.clone()])
        });
        let call = harness.call_tool("broken");
        assert_ne!(invalid_reason(&harness, call), "");
        assert!(harness.asks().is_empty());
        assert_eq!(
            harness.state(),
            State::Ready,
            "a bad reply fails only its call"
        );
        let next = harness.call_tool("fine");
        assert_eq!(harness.result(next)["content"], json!([]));
        harness.finish();
    }
}

#[test]
fn s_mrtr_03_input_required_is_valid_for_three_methods_only() {
    let requests = || json!({"k": {"method": "roots/list"}});
    let mut harness = ready(config_with_asks(), move || {
        Peer::modern().replies("completion/complete", move |_| {
            input_required(requests(), None)
        })
    });
    let call = harness.call("completion/complete", json!({}));
    assert_ne!(invalid_reason(&harness, call), "");
    assert!(harness.asks().is_empty());
    harness.finish();
    for method in ["prompts/get", "resources/read"] {
        let mut harness = ready(config_with_asks(), move || {
            let mut results = vec![json!({}), input_required(requests(), None)];
            Peer::modern().replies(method, move |_| results.pop().unwrap_or_default())
        });
        let call = harness.call(method, json!({"name": "a", "uri": "a"}));
        harness.answer(harness.asks()[0], Ok(json!({"roots": []})));
        assert_eq!(harness.result(call), json!({}));
        harness.finish();
    }
}

#[test]
fn s_mrtr_03_list_page_with_a_result_type_other_than_complete_is_invalid() {
    for kind in ["input_required", "task", "riddle"] {
        let mut harness = ready(config_with_asks(), move || {
            Peer::modern().replies(
                "tools/list",
                move |_| json!({"resultType": kind, "tools": [], "requestState": "s"}),
            )
        });
        let list = harness.list(List::Tools);
        assert_ne!(invalid_reason(&harness, list), "");
        harness.finish();
    }
}

#[test]
fn s_mrtr_06_round_with_an_undeclared_ask_fails_the_call() {
    let url = json!({"mode": "url", "message": "sign in", "url": "https://example.com"});
    for request in [
        json!({"method": "elicitation/create", "params": url}),
        json!({"method": "sampling/createMessage", "params": {"messages": [], "tools": []}}),
        json!({"method": "ping"}),
        json!({"method": "tools/call", "params": {"name": "x"}}),
    ] {
        let mut harness = ready(config_with_asks(), move || {
            // The first ask alone would be valid. No ask of an invalid round reaches the application.
            let requests = json!({"a": {"method": "roots/list"}, "b": request});
            modern_with_results(vec![input_required(requests, None)])
        });
        let call = harness.call_tool("nosy");
        assert_ne!(invalid_reason(&harness, call), "");
        assert!(harness.asks().is_empty());
        harness.finish();
    }
}

#[test]
fn s_mrtr_06_undeclared_kind_of_ask_fails_the_call_however_its_params_are_written() {
    for (method, params) in UNDECLARED_ASKS {
        let mut harness = ready(config_with_asks(), move || {
            Peer::modern().on("tools/call", move |request| {
                let id = &request["id"];
                let input_request = format!("{{\"method\":\"{method}\",\"params\":{params}}}");
                let line = format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"resultType\":\"input_required\",\"inputRequests\":{{\"k\":{input_request}}}}}}}\n"
                );
                vec![Act::Raw(line.into_bytes())]
            })
        });
        let call = harness.call_tool("nosy");
        assert!(
            harness.asks().is_empty(),
            "{params} reached the application"
        );
        assert_ne!(invalid_reason(&harness, call), "");
        harness.finish();
    }
}

#[test]
fn s_mrtr_05_round_with_a_method_that_is_no_ask_fails_the_call() {
    let declared = ClientCapabilities::default()
        .with_elicitation_url()
        .with(ClientFeature::TasksExtension);
    for method in ["notifications/elicitation/complete", "tasks/get"] {
        let mut harness = ready(config_with(declared.clone()), move || {
            let requests = json!({"k": {"method": method, "params": {"elicitationId": "e"}}});
            modern_with_results(vec![input_required(requests, None)])
        });
        let call = harness.call_tool("nosy");
        assert_ne!(invalid_reason(&harness, call), "");
        assert!(harness.asks().is_empty());
        harness.finish();
    }
}

#[test]
fn s_taskx_03_task_result_of_a_prompt_or_resource_is_invalid() {
    let tasks = ClientCapabilities::default().with(ClientFeature::TasksExtension);
    for (method, params) in [
        ("prompts/get", json!({"name": "p"})),
        ("resources/read", json!({"uri": "file:///a"})),
    ] {
        let mut harness = ready(config_with(tasks.clone()), move || {
            Peer::modern().replies(method, |_| json!({"resultType": "task", "taskId": "t"}))
        });
        let call = harness.call(method, params);
        assert_ne!(invalid_reason(&harness, call), "");
        harness.finish();
    }
}

#[test]
fn round_with_more_asks_than_the_limit_fails_the_call() {
    let mut config = config_with_asks();
    config.limits.asks = 3;
    let mut harness = ready(config, || {
        let requests: serde_json::Map<String, Value> = (0..4)
            .map(|n| (n.to_string(), json!({"method": "roots/list"})))
            .collect();
        modern_with_results(vec![input_required(requests.into(), None)])
    });
    let call = harness.call_tool("nosy");
    assert_ne!(invalid_reason(&harness, call), "");
    assert!(harness.asks().is_empty());
    harness.finish();
}

#[test]
fn call_that_fails_because_other_asks_are_open_blames_the_caller() {
    let mut config = config_with_asks();
    config.limits.asks = 1;
    let mut harness = ready(config, || {
        Peer::modern().replies("tools/call", |_| {
            input_required(json!({"k": {"method": "roots/list"}}), None)
        })
    });
    let (first, second) = (harness.call_tool("first"), harness.call_tool("second"));
    assert!(!harness.is_done(first));
    let failure = harness.failure(second);
    assert_eq!(failure.kind, FailureKind::TooManyAsks { open: 1 });
    assert_eq!(failure.blame(), Blame::Caller);
    let text = failure.to_string();
    assert!(text.contains("open already"), "{text}");
    harness.finish();
}

#[test]
fn legacy_result_with_input_required_members_is_an_ordinary_result() {
    let strange = input_required(json!({"k": {"method": "roots/list"}}), Some("s"));
    let expected = strange.clone();
    let mut harness = ready(config_with_asks(), move || {
        let strange = strange.clone();
        legacy().replies("tools/call", move |_| strange.clone())
    });
    let call = harness.call_tool("old");
    assert_eq!(harness.result(call), expected);
    harness.finish();
}

#[test]
fn open_ask_is_withdrawn_when_its_epoch_ends() {
    for server in BOTH_ERAS {
        let mut harness = ready(config_with_asks(), move || {
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
        let call = harness.call_tool("nosy");
        let ask_id = harness.asks()[0];
        harness.perform_all(dies(everlink::ExitStatus::Code(1)));
        assert_eq!(withdrawn(&harness), [(ask_id, Withdrawn::Ended)]);
        assert!(matches!(harness.outcome(call), Outcome::Failed(_)));
        let answer = client_pipe::payload(&json!({"roots": []}));
        let late = harness.with_link(|link, now| link.answer(now, ask_id, Ok(answer)));
        assert_eq!(late, Err(Misuse::UnknownAsk));
        harness.until_ready();
        harness.advance(seconds(1));
        assert!(
            harness.ask_replies().is_empty(),
            "the next server gets no answer"
        );
        harness.finish();
    }
}

#[test]
fn asks_are_withdrawn_and_ignored_once_the_child_has_exited() {
    let mut harness = ready(config_with_asks(), || legacy().ignores_eof());
    harness.perform(ask(1, "elicitation/create", form_params("before")));
    let asks = harness.asks();
    assert_eq!(asks.len(), 1);
    // The output is still open.
    harness.perform(Act::Exit(ExitStatus::Code(1)));
    assert_eq!(harness.state(), State::Closing);
    assert_eq!(withdrawn(&harness), [(asks[0], Withdrawn::Ended)]);
    harness.perform(ask(2, "elicitation/create", form_params("after")));
    assert_eq!(harness.asks(), asks);
}

#[test]
fn call_is_lost_without_an_ask_if_the_child_exited_and_then_asks_for_input() {
    let peer = || Peer::modern().ignores("tools/call").ignores_eof();
    let mut harness = ready(config_with_asks(), peer);
    let call = harness.call_tool("asks");
    let request = harness.last_message("tools/call");
    harness.perform(Act::Exit(ExitStatus::Code(1)));
    let question = json!({"method": "elicitation/create", "params": form_params("after")});
    let result = input_required(json!({"key": question}), None);
    harness.perform(reply(&request, result));
    assert!(harness.asks().is_empty());
    harness.perform(Act::End(Vec::new()));
    assert_eq!(harness.failure(call).kind, FailureKind::Lost);
}

/// Nothing is repeated on a pipe, so an id that the server uses again names another ask.
#[test]
fn ask_with_the_id_of_an_answered_one_reaches_the_application() {
    let mut harness = ready(config_with_asks(), legacy);
    for count in 1..=2 {
        harness.perform(ask(7, "roots/list", json!({})));
        let asks = harness.asks();
        assert_eq!(asks.len(), count);
        harness.answer(asks[count - 1], Ok(json!({"roots": []})));
    }
    assert_eq!(harness.ask_replies().len(), 2);
    harness.finish();
}

/// A modern server is told the capabilities with each request, so new ones do not wait for the next epoch.
#[test]
fn s_cap_04_capabilities_declared_to_a_ready_modern_server_are_in_the_next_request() {
    let mut harness = ready(config(), Peer::modern);
    let declared = |harness: &Harness| {
        let sent = harness.last_message("tools/call");
        sent["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone()
    };
    harness.call_tool("add");
    assert_eq!(declared(&harness), json!({}));
    let capable = ClientCapabilities::default().with_sampling();
    harness.with_link(|link, now| link.declare(now, capable));
    harness.call_tool("add");
    assert_eq!(declared(&harness), json!({"sampling": {}}));
    harness.finish();
}

/// An ask belongs to a session, and that of the server before is over.
#[test]
fn ask_during_the_handshake_of_the_next_server_is_refused() {
    let mut harness = Harness::new(config_with_asks()).served_by(|epoch| match epoch {
        1 => legacy(),
        _ => legacy().after_open(vec![ask("early", "roots/list", json!({}))]),
    });
    harness.until_ready();
    harness.perform_all(dies(ExitStatus::Code(1)));
    harness.until_ready();
    assert_eq!(harness.epoch_number(), 2);
    assert!(harness.asks().is_empty());
    assert_eq!(refusal_code(&harness), code::INVALID_REQUEST);
    harness.finish();
}

/// S-RPC-03: an id may be any integer.
#[test]
fn s_rpc_03_ask_with_an_integer_above_64_bits_is_answered_under_its_id() {
    let mut harness = ready(config_with_asks(), legacy);
    let id = 9_223_372_036_854_775_808_u64;
    let ping = format!(
        "{}\n",
        json!({"jsonrpc": "2.0", "id": id, "method": "ping"})
    );
    harness.perform(Act::Raw(ping.into_bytes()));
    let answers = harness.ask_replies();
    assert_eq!(answers.last().expect("a reply")["id"], id);
    harness.finish();
}
