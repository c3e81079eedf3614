//! Asks over HTTP: rounds of a modern request, requests to a legacy client, and the time limit for an answer.

use crate::server_http::{
    Harness, HttpRequest, LEGACY, NO_MESSAGES, config, declaring, initialize_with, modern, payload,
    seconds,
};
use everlink::protocol::ClientFeature;
use everlink::server::{Cancelled, InputRequired, Misuse, Unanswered, missing_capability};
use everlink::{Change, ErrorObject, List, RequestId};
use serde_json::{Value, json};

const ROOTS: &str = "roots/list";
const SAMPLE: &str = "sampling/createMessage";
const ELICIT: &str = "elicitation/create";
const ELICITATION_COMPLETE: &str = "notifications/elicitation/complete";
const CANCELLED: &str = "notifications/cancelled";

fn call(id: u64) -> HttpRequest {
    modern(id, "tools/call", json!({"name": "asks"}))
}

fn try_ask(
    harness: &mut Harness,
    request: RequestId,
    method: &'static str,
    params: &Value,
) -> Result<everlink::AskId, Misuse> {
    let params = (!params.is_null()).then(|| payload(params));
    harness.with_server(|server, now| server.ask(now, request, method, params))
}

/// The parameters of a URL elicitation.
fn url_elicitation() -> Value {
    json!({"mode": "url", "message": "?", "url": "https://a.example", "elicitationId": "e"})
}

/// The same call again, with this answer to every ask.
fn next_round(result: &Value, id: u64, answer: &Value) -> HttpRequest {
    let asks = result["inputRequests"].as_object().expect("asks");
    let answers: serde_json::Map<String, Value> = asks
        .keys()
        .map(|key| (key.clone(), answer.clone()))
        .collect();
    let params = json!({
        "name": "asks", "requestState": result["requestState"], "inputResponses": answers,
    });
    modern(id, "tools/call", params)
}

/// S-MRTR-01, S-MRTR-04, S-CACHE-02: three methods may ask their client for input. Such a result has no cache lifetime.
#[test]
fn s_mrtr_01_three_methods_may_ask_for_input_without_a_cache_lifetime() {
    for (method, params) in [
        ("tools/call", json!({"name": "x"})),
        ("prompts/get", json!({"name": "x"})),
        ("resources/read", json!({"uri": "x:"})),
    ] {
        let mut harness = Harness::new(config());
        let (stream, request) = harness.send_accepted(modern(1, method, params));
        harness.ask(request, ROOTS, Value::Null);
        let result = harness.json(stream)["result"].clone();
        assert_eq!(result["resultType"], "input_required", "{method}");
        let has_asks = result["inputRequests"].is_object();
        assert!(has_asks || result["requestState"].is_string());
        for hint in ["ttlMs", "cacheScope"] {
            assert!(result.get(hint).is_none(), "S-CACHE-02: {result}");
        }
        harness.finish();
    }
}

#[test]
fn s_mrtr_02_other_methods_cannot_ask_for_input() {
    let mut harness = Harness::new(config());
    for (method, params) in [
        ("tools/list", json!({})),
        ("prompts/list", json!({})),
        ("resources/list", json!({})),
        ("completion/complete", json!({})),
    ] {
        let (stream, request) = harness.send_accepted(modern(1, method, params));
        let asked = try_ask(&mut harness, request, ROOTS, &Value::Null);
        assert!(matches!(asked, Err(Misuse::CannotAsk { .. })), "{method}");
        let input = InputRequired::new().with_state("s");
        let done = harness.with_server(|server, now| server.require_input(now, request, input));
        assert!(matches!(done, Err(Misuse::CannotAsk { .. })), "{method}");
        assert!(!harness.is_answered(stream));
    }
    harness.finish();
}

#[test]
fn s_mrtr_05_each_ask_has_a_unique_key_and_no_jsonrpc_envelope() {
    let mut harness = Harness::new(config());
    let (_, request) = harness.send_accepted(call(1));
    let params = || Some(payload(&json!({"messages": []})));
    let twice = InputRequired::new()
        .and_ask("k", ROOTS, None)
        .and_ask("k", SAMPLE, params());
    let done = harness.with_server(|server, now| server.require_input(now, request, twice));
    assert!(matches!(done, Err(Misuse::DuplicateKey { .. })), "{done:?}");
    for method in ["ping", "tools/call", "tasks/get"] {
        let other = InputRequired::new().and_ask("k", method, None);
        let done = harness.with_server(|server, now| server.require_input(now, request, other));
        assert!(matches!(done, Err(Misuse::Unaskable { .. })), "{method}");
    }
    let three = InputRequired::new()
        .and_ask("a", ROOTS, None)
        .and_ask("b", SAMPLE, params())
        .and_ask("c", ELICIT, Some(payload(&json!({"message": "?"}))))
        .with_state("s");
    let stream = harness.send(call(2));
    let second = harness.newest_request();
    harness
        .with_server(|server, now| server.require_input(now, second, three))
        .expect("all asks are declared");
    let result = harness.json(stream)["result"].clone();
    assert_eq!(result["requestState"], "s");
    let asks = result["inputRequests"].as_object().expect("asks");
    assert_eq!(asks.len(), 3);
    for ask in asks.values() {
        assert!(ask["method"].is_string());
        assert!(ask.get("jsonrpc").is_none() && ask.get("id").is_none());
    }
    harness.finish();
}

/// S-MRTR-06, S-META-08, S-META-09: the server sends only asks that this request declares. For a missing capability there is
/// a special error.
#[test]
fn s_mrtr_06_undeclared_ask_is_refused_and_the_missing_capability_named() {
    let mut harness = Harness::new(config());
    let url = url_elicitation();
    let form = json!({"message": "?", "requestedSchema": {}});
    let tools = json!({"messages": [], "tools": []});
    for (declared, method, params, feature) in [
        (json!({}), ROOTS, Value::Null, ClientFeature::Roots),
        (
            json!({"roots": {}}),
            SAMPLE,
            json!({"messages": []}),
            ClientFeature::Sampling,
        ),
        (
            json!({"sampling": {}}),
            SAMPLE,
            tools,
            ClientFeature::SamplingTools,
        ),
        (
            json!({"elicitation": {}}),
            ELICIT,
            url,
            ClientFeature::ElicitationUrl,
        ),
        (
            json!({"elicitation": {"url": {}}}),
            ELICIT,
            form,
            ClientFeature::ElicitationForm,
        ),
    ] {
        let http_request = modern(1, "tools/call", declaring(&declared, json!({"name": "x"})));
        let (stream, request) = harness.send_accepted(http_request);
        let asked = try_ask(&mut harness, request, method, &params);
        let Err(Misuse::Unaskable { why, .. }) = asked else {
            panic!("{declared}: {method}: {asked:?}");
        };
        assert_eq!(why.missing(), Some(feature));
        harness
            .with_server(|server, now| server.fail(now, request, missing_capability(feature)))
            .expect("the server accepts the reply");
        assert_eq!(
            (harness.status(stream), harness.code(stream)),
            (400, -32021)
        );
        let needed = harness.json(stream)["error"]["data"]["requiredCapabilities"].clone();
        assert!(needed.is_object(), "S-META-09: {needed}");
    }
    harness.finish();
}

/// S-MRTR-07: a modern client gets an ask only in place of the reply, and its answer reaches the application.
#[test]
fn s_mrtr_07_ask_to_a_modern_client_is_sent_only_in_place_of_the_reply() {
    let mut harness = Harness::new(config());
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let watching = harness.send(modern(9, "subscriptions/listen", wanted));
    let (first, request) = harness.send_accepted(call(1));
    let asks = [
        try_ask(&mut harness, request, ROOTS, &Value::Null).expect("the ask is declared"),
        try_ask(&mut harness, request, SAMPLE, &json!({"messages": []}))
            .expect("the ask is declared"),
    ];
    let result = harness.result(first);
    let second = harness.send(next_round(&result, 2, &json!({"x": 1})));
    let later = asks.map(|ask| harness.outcome(ask));
    assert_eq!(later[0], Some(Ok(json!({"x": 1}))));
    // An ask that was not in the first round is in the next.
    let third = match &later[1] {
        Some(_) => second,
        None => {
            let result = harness.result(second);
            harness.send(next_round(&result, 3, &json!({"x": 1})))
        }
    };
    assert_eq!(harness.outcome(asks[1]), Some(Ok(json!({"x": 1}))));
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.result(third)["content"], json!([]));
    harness.publish(Change::List(List::Tools));
    assert_eq!(
        harness.messages(watching).len(),
        2,
        "no other message was sent"
    );
    harness.finish();
}

/// A request state can be used once, and only for its own request and user.
#[test]
fn s_mrtr_15_request_state_works_once_and_only_for_its_user_and_tool() {
    let mut harness = Harness::new(config());
    let (first, request) = harness.send_accepted(call(1).by(Some("ann")));
    let ask = harness.ask(request, ROOTS, Value::Null);
    let result = harness.result(first);
    let answer = json!({"roots": []});
    let good = || next_round(&result, 2, &answer).by(Some("ann"));
    let mut other = good();
    let text = String::from_utf8(other.body).expect("text");
    other.body = text.replace("\"asks\"", "\"sub\"").into_bytes();
    let other = other.with("mcp-name", "sub");
    for (what, bad) in [
        ("of another user", good().by(Some("eve"))),
        ("of nobody", good().by(None)),
        ("for another tool", other),
    ] {
        assert_eq!(harness.send_refused(bad), (400, -32602), "{what}");
        assert_eq!(harness.outcome(ask), None, "{what}");
    }
    let second = harness.send(good());
    assert_eq!(harness.outcome(ask), Some(Ok(answer.clone())));
    assert_eq!(
        harness.send_refused(good()),
        (400, -32602),
        "the state was used before"
    );
    harness.respond(request, json!({"content": []}));
    assert_eq!(harness.result(second)["content"], json!([]));
    harness.finish();
}

#[test]
fn s_s2c_02_legacy_client_gets_asks_only_in_declared_modes() {
    let url = url_elicitation();
    let form = json!({"message": "?", "requestedSchema": {}});
    let tools = json!({"messages": [], "tools": []});
    for (declared, method, params, is_good) in [
        (json!({"elicitation": {}}), ELICIT, &form, true),
        (json!({"elicitation": {}}), ELICIT, &url, false),
        (json!({"elicitation": {"url": {}}}), ELICIT, &url, true),
        (json!({"elicitation": {"url": {}}}), ELICIT, &form, false),
        (json!({"sampling": {}}), SAMPLE, &tools, false),
        (json!({"sampling": {"tools": {}}}), SAMPLE, &tools, true),
    ] {
        let mut harness = Harness::new(config());
        let handshake = initialize_with("2025-11-25", &declared);
        let session = harness.open_session_with(handshake, "2025-11-25", None);
        let (stream, request) =
            harness.send_accepted(session.post(1, "tools/call", json!({"name": "x"})));
        let asked = try_ask(&mut harness, request, method, params);
        assert_eq!(asked.is_ok(), is_good, "{declared}: {params}");
        assert_eq!(
            harness.messages_with(stream, method).len(),
            usize::from(is_good),
            "{declared}: {params}"
        );
        harness.finish();
    }
}

/// S-S2C-05: the client that got the URL elicitation is told when it is complete. Clients without this capability are
/// not told.
#[test]
fn s_s2c_05_elicitation_complete_is_not_sent_to_clients_without_url_elicitation() {
    let mut harness = Harness::new(config());
    let url_capability = json!({"elicitation": {"url": {}}});
    let asked_client = harness.open_session_with(
        initialize_with("2025-11-25", &url_capability),
        "2025-11-25",
        None,
    );
    let mut streams = vec![harness.send(asked_client.get())];
    for (version, declared) in [("2025-11-25", &json!({})), ("2025-06-18", &url_capability)] {
        let session = harness.open_session_with(initialize_with(version, declared), version, None);
        streams.push(harness.send(session.get()));
    }
    let (_, request) =
        harness.send_accepted(asked_client.post(1, "tools/call", json!({"name": "x"})));
    try_ask(&mut harness, request, ELICIT, &url_elicitation()).expect("the ask is declared");
    let params = payload(&json!({"elicitationId": "e"}));
    harness
        .with_server(|server, now| server.notify(now, ELICITATION_COMPLETE, Some(params)))
        .expect("the application may send this notification");
    let counts = streams
        .into_iter()
        .map(|stream| harness.messages_with(stream, ELICITATION_COMPLETE));
    let counts: Vec<usize> = counts.map(|messages| messages.len()).collect();
    assert_eq!(counts, [1, 0, 0]);
    harness.finish();
}

/// S-S2C-05: another client with this capability is not told, either.
#[test]
fn s_s2c_05_elicitation_complete_goes_only_to_the_asked_client() {
    let mut harness = Harness::new(config());
    let url_capability = json!({"elicitation": {"url": {}}});
    let sessions = [(); 2].map(|()| {
        harness.open_session_with(
            initialize_with("2025-11-25", &url_capability),
            "2025-11-25",
            None,
        )
    });
    let streams = sessions.clone().map(|session| harness.send(session.get()));
    let (_, request) =
        harness.send_accepted(sessions[0].post(1, "tools/call", json!({"name": "x"})));
    try_ask(&mut harness, request, ELICIT, &url_elicitation()).expect("the ask is declared");
    let params = payload(&json!({"elicitationId": "e"}));
    harness
        .with_server(|server, now| server.notify(now, ELICITATION_COMPLETE, Some(params)))
        .expect("the application may send this notification");
    assert_eq!(
        harness
            .messages_with(streams[0], ELICITATION_COMPLETE)
            .len(),
        1
    );
    assert_eq!(
        harness.messages_with(streams[1], ELICITATION_COMPLETE),
        NO_MESSAGES
    );
    harness.finish();
}

/// The same, if an error asked the client to visit the URL.
#[test]
fn s_s2c_05_elicitation_complete_goes_to_the_client_that_was_asked_by_an_error() {
    let mut harness = Harness::new(config());
    let url_capability = json!({"elicitation": {"url": {}}});
    let sessions = [(); 2].map(|()| {
        harness.open_session_with(
            initialize_with("2025-11-25", &url_capability),
            "2025-11-25",
            None,
        )
    });
    let streams = sessions.clone().map(|session| harness.send(session.get()));
    let (_, request) =
        harness.send_accepted(sessions[0].post(1, "tools/call", json!({"name": "x"})));
    let mut error = ErrorObject::new(-32_042, "sign in first");
    error.data = Some(payload(&json!({"elicitations": [url_elicitation()]})));
    harness
        .with_server(|server, now| server.fail(now, request, error))
        .expect("the request is open");
    let params = payload(&json!({"elicitationId": "e"}));
    harness
        .with_server(|server, now| server.notify(now, ELICITATION_COMPLETE, Some(params)))
        .expect("the application may send this notification");
    let told = streams.map(|stream| harness.messages_with(stream, ELICITATION_COMPLETE).len());
    assert_eq!(told, [1, 0]);
    harness.finish();
}

/// S-TIME-01, S-TIME-02, S-TIME-03: an ask times out, and the client is then told by a cancellation.
#[test]
fn s_time_01_ask_times_out_and_the_client_gets_a_cancellation() {
    for timeout in [seconds(600), seconds(7)] {
        for version in LEGACY {
            let mut config = config();
            config.ask_timeout = timeout;
            let mut harness = Harness::new(config);
            let session = harness.open_session(version);
            let (stream, request) =
                harness.send_accepted(session.post(1, "tools/call", json!({"name": "x"})));
            let ask = harness.ask(request, ROOTS, Value::Null);
            let ask_id = harness.messages_with(stream, ROOTS)[0]["id"].clone();
            harness.advance(timeout - seconds(1));
            assert_eq!(harness.outcome(ask), None);
            harness.advance(seconds(1));
            assert_eq!(harness.outcome(ask), Some(Err(Unanswered::TimedOut)));
            let cancellations = harness.messages_with(stream, CANCELLED);
            assert_eq!(cancellations.len(), 1, "S-TIME-02");
            assert_eq!(cancellations[0]["params"]["requestId"], ask_id);
            assert!(harness.cancellations().is_empty(), "the request stays open");
            harness.respond(request, json!({"content": []}));
            assert_eq!(harness.result(stream)["content"], json!([]));
            harness.finish();
        }
    }
}

/// S-TIME-01: an ask to a modern client times out, too.
#[test]
fn s_time_01_modern_request_is_cancelled_if_its_client_does_not_return() {
    let mut harness = Harness::new(config());
    let (first, request) = harness.send_accepted(call(1));
    let ask = harness.ask(request, ROOTS, Value::Null);
    let result = harness.result(first);
    harness.advance(seconds(601));
    assert_eq!(harness.outcome(ask), Some(Err(Unanswered::TimedOut)));
    assert_eq!(harness.cancellations(), [(request, Cancelled::NotResumed)]);
    let late = next_round(&result, 2, &json!({"roots": []}));
    assert_eq!(harness.send_refused(late), (400, -32602));
    harness.finish();
}

/// S-TIME-04, S-TIME-05: progress from the client does not extend the timeout of an ask without limit.
#[test]
fn s_time_05_progress_does_not_extend_the_ask_timeout_forever() {
    let mut harness = Harness::new(config());
    let session = harness.open_session("2025-11-25");
    let (_, request) = harness.send_accepted(session.post(1, "tools/call", json!({"name": "x"})));
    let params = json!({"messages": [], "_meta": {"progressToken": "q"}});
    let ask = harness.ask(request, SAMPLE, params);
    for step in 0..100 {
        harness.advance(seconds(300));
        let params = json!({"progressToken": "q", "progress": step});
        let response = harness.send(session.notification("notifications/progress", params));
        assert_eq!(harness.status(response), 202);
    }
    assert_eq!(harness.outcome(ask), Some(Err(Unanswered::TimedOut)));
    harness.finish();
}

#[test]
fn s_cache_01_cacheable_results_have_lifetime_and_scope() {
    let mut harness = Harness::new(config());
    for (method, params) in [
        ("tools/list", json!({})),
        ("prompts/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": "x:"})),
    ] {
        let stream = harness.send_and_respond(modern(1, method, params.clone()), json!({}));
        let result = harness.result(stream);
        assert!(result["ttlMs"].is_u64(), "{method}: {result}");
        let scope = result["cacheScope"].as_str().expect("a string");
        assert!(["public", "private"].contains(&scope), "{method}");
        let own = json!({"ttlMs": 60_000, "cacheScope": "public"});
        let stream = harness.send_and_respond(modern(1, method, params), own);
        let result = harness.result(stream);
        assert_eq!(
            result["ttlMs"], 60_000,
            "the value of the application counts"
        );
        assert_eq!(result["cacheScope"], "public");
    }
    harness.finish();
}

/// Clients that do not come back hold their places only until others need them.
#[test]
fn client_with_most_requests_away_gives_way_to_a_question_to_another() {
    let mut config = config();
    config.limits.requests = 3;
    let mut harness = Harness::new(config);
    let params = || declaring(&json!({"roots": {}}), json!({"name": "x"}));
    let ask_from = |harness: &mut Harness, id: u64, address: &str| {
        let called = modern(id, "tools/call", params()).coming_from(address);
        let (_, request) = harness.send_accepted(called);
        let ask = harness.with_server(|server, now| server.ask(now, request, "roots/list", None));
        (request, ask)
    };
    let first: Vec<_> = (1..=3)
        .map(|id| ask_from(&mut harness, id, "192.0.2.1"))
        .collect();
    let (other, ask) = ask_from(&mut harness, 4, "192.0.2.2");
    assert!(ask.is_ok());
    let (oldest, lost) = &first[0];
    assert_eq!(harness.cancellations(), [(*oldest, Cancelled::NotResumed)]);
    let lost = lost.as_ref().expect("it was asked");
    assert_eq!(harness.outcome(*lost), Some(Err(Unanswered::TimedOut)));
    assert!(harness.server.is_away(other));
    assert_eq!(harness.server.stats().displaced, 1);
    // Each would now have as many as the other.
    let (_, refused) = ask_from(&mut harness, 5, "192.0.2.2");
    assert!(matches!(refused, Err(Misuse::TooManyAsks { open: 3 })));
    harness.finish();
}

/// Asks are kept until they are answered, which can take minutes. A long one to one client must not stop those to others.
#[test]
fn long_ask_to_one_client_leaves_room_for_asks_to_others_until_all_limits_are_reached() {
    let mut config = config();
    config.limits.queued_bytes = 1_000;
    config.limits.all_queued_bytes = 3_500;
    let mut harness = Harness::new(config);
    let long = json!({"messages": [], "systemPrompt": "x".repeat(1_500)});
    let short = json!({"messages": []});
    let called = |id: u64, address| {
        let params = declaring(&json!({"sampling": {}}), json!({"name": "x"}));
        modern(id, "tools/call", params).coming_from(address)
    };
    let (_, ann) = harness.send_accepted(called(1, "192.0.2.1"));
    try_ask(&mut harness, ann, SAMPLE, &long).expect("a client is asked one thing of any length");
    let (_, bob) = harness.send_accepted(called(2, "192.0.2.2"));
    try_ask(&mut harness, bob, SAMPLE, &short).expect("another client is asked");
    let session = harness.open_session_with(
        initialize_with("2025-11-25", &json!({"sampling": {}})),
        "2025-11-25",
        None,
    );
    let called = session.post(3, "tools/call", json!({"name": "x"}));
    let (_, eve) = harness.send_accepted(called);
    try_ask(&mut harness, eve, SAMPLE, &long).expect("a legacy client is asked");
    for request in [ann, eve] {
        let refused = try_ask(&mut harness, request, SAMPLE, &short);
        assert!(matches!(refused, Err(Misuse::TooManyAsks { .. })));
    }
    let fits = json!({"messages": [], "systemPrompt": "x".repeat(500)});
    let refused = try_ask(&mut harness, bob, SAMPLE, &fits);
    let is_refused = matches!(refused, Err(Misuse::TooManyAsks { .. }));
    assert!(is_refused, "all asks together are too long: {refused:?}");
    try_ask(&mut harness, bob, SAMPLE, &short).expect("this one fits");
    harness.finish();
}
