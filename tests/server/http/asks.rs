//! Asks over HTTP: rounds of a modern request, requests to a legacy client, and the time limit for an answer.

use crate::server_http::{
    Ask, LEGACY, NOTHING, Site, config, declaring, introduce, modern, payload, seconds,
};
use everlink::protocol::ClientFeature;
use everlink::server::{Cancelled, InputRequired, Misuse, Unanswered, missing_capability};
use everlink::{Change, List, RequestId};
use serde_json::{Value, json};

const ROOTS: &str = "roots/list";
const SAMPLE: &str = "sampling/createMessage";
const ELICIT: &str = "elicitation/create";
const VISITED: &str = "notifications/elicitation/complete";
const CANCELLED: &str = "notifications/cancelled";

fn call(id: u64) -> Ask {
    modern(id, "tools/call", json!({"name": "asks"}))
}

fn try_ask(
    site: &mut Site,
    request: RequestId,
    method: &'static str,
    params: &Value,
) -> Result<everlink::AskId, Misuse> {
    let params = (!params.is_null()).then(|| payload(params));
    site.verb(|server, now| server.ask(now, request, method, params))
}

/// The parameters of a URL elicitation.
fn visit() -> Value {
    json!({"mode": "url", "message": "?", "url": "https://a.example", "elicitationId": "e"})
}

/// The same call again, with this answer to every ask.
fn back(result: &Value, id: u64, answer: &Value) -> Ask {
    let asked = result["inputRequests"].as_object().expect("questions");
    let answers: serde_json::Map<String, Value> = asked
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
fn s_mrtr_01_some_requests_may_need_more_of_their_client() {
    for (method, params) in [
        ("tools/call", json!({"name": "x"})),
        ("prompts/get", json!({"name": "x"})),
        ("resources/read", json!({"uri": "x:"})),
    ] {
        let mut site = Site::new(config());
        let (stream, request) = site.taken(modern(1, method, params));
        site.ask(request, ROOTS, Value::Null);
        let result = site.json(stream)["result"].clone();
        assert_eq!(result["resultType"], "input_required", "{method}");
        let has_questions = result["inputRequests"].is_object();
        assert!(has_questions || result["requestState"].is_string());
        for hint in ["ttlMs", "cacheScope"] {
            assert!(result.get(hint).is_none(), "S-CACHE-02: {result}");
        }
        site.finish();
    }
}

#[test]
fn s_mrtr_02_no_other_request_does() {
    let mut site = Site::new(config());
    for (method, params) in [
        ("tools/list", json!({})),
        ("prompts/list", json!({})),
        ("resources/list", json!({})),
        ("completion/complete", json!({})),
    ] {
        let (stream, request) = site.taken(modern(1, method, params));
        let asked = try_ask(&mut site, request, ROOTS, &Value::Null);
        assert!(matches!(asked, Err(Misuse::CannotAsk { .. })), "{method}");
        let input = InputRequired::new().with_state("s");
        let done = site.verb(|server, now| server.require_input(now, request, input));
        assert!(matches!(done, Err(Misuse::CannotAsk { .. })), "{method}");
        assert!(!site.is_answered(stream));
    }
    site.finish();
}

#[test]
fn s_mrtr_05_each_question_has_a_key_of_its_own_and_is_no_message() {
    let mut site = Site::new(config());
    let (_, request) = site.taken(call(1));
    let params = || Some(payload(&json!({"messages": []})));
    let twice = InputRequired::new()
        .and_ask("k", ROOTS, None)
        .and_ask("k", SAMPLE, params());
    let done = site.verb(|server, now| server.require_input(now, request, twice));
    assert!(matches!(done, Err(Misuse::DuplicateKey { .. })), "{done:?}");
    for method in ["ping", "tools/call", "tasks/get"] {
        let other = InputRequired::new().and_ask("k", method, None);
        let done = site.verb(|server, now| server.require_input(now, request, other));
        assert!(matches!(done, Err(Misuse::Unaskable { .. })), "{method}");
    }
    let three = InputRequired::new()
        .and_ask("a", ROOTS, None)
        .and_ask("b", SAMPLE, params())
        .and_ask("c", ELICIT, Some(payload(&json!({"message": "?"}))))
        .with_state("s");
    let stream = site.send(call(2));
    let second = site.newest();
    site.verb(|server, now| server.require_input(now, second, three))
        .expect("all can be asked");
    let result = site.json(stream)["result"].clone();
    assert_eq!(result["requestState"], "s");
    let asked = result["inputRequests"].as_object().expect("questions");
    assert_eq!(asked.len(), 3);
    for question in asked.values() {
        assert!(question["method"].is_string());
        assert!(question.get("jsonrpc").is_none() && question.get("id").is_none());
    }
    site.finish();
}

/// S-MRTR-06, S-META-08, S-META-09: the server sends only asks that this request declares. For a missing capability there is
/// a special error.
#[test]
fn s_mrtr_06_only_what_was_declared_is_asked() {
    let mut site = Site::new(config());
    let url = visit();
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
        let ask = modern(1, "tools/call", declaring(&declared, json!({"name": "x"})));
        let (stream, request) = site.taken(ask);
        let asked = try_ask(&mut site, request, method, &params);
        let Err(Misuse::Unaskable { why, .. }) = asked else {
            panic!("{declared}: {method}: {asked:?}");
        };
        assert_eq!(why.missing(), Some(feature));
        site.verb(|server, now| server.fail(now, request, missing_capability(feature)))
            .expect("an answer");
        assert_eq!((site.status(stream), site.code(stream)), (400, -32021));
        let needed = site.json(stream)["error"]["data"]["requiredCapabilities"].clone();
        assert!(needed.is_object(), "S-META-09: {needed}");
    }
    site.finish();
}

/// S-MRTR-07: a modern client gets an ask only in place of the reply, and its answer reaches the application.
#[test]
fn s_mrtr_07_a_modern_client_is_asked_in_the_place_of_the_answer_alone() {
    let mut site = Site::new(config());
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let watching = site.send(modern(9, "subscriptions/listen", wanted));
    let (first, request) = site.taken(call(1));
    let asks = [
        try_ask(&mut site, request, ROOTS, &Value::Null).expect("declared"),
        try_ask(&mut site, request, SAMPLE, &json!({"messages": []})).expect("declared"),
    ];
    let result = site.result(first);
    let second = site.send(back(&result, 2, &json!({"x": 1})));
    let later = asks.map(|ask| site.outcome(ask));
    assert_eq!(later[0], Some(Ok(json!({"x": 1}))));
    // An ask that was not in the first round is in the next.
    let third = match &later[1] {
        Some(_) => second,
        None => {
            let result = site.result(second);
            site.send(back(&result, 3, &json!({"x": 1})))
        }
    };
    assert_eq!(site.outcome(asks[1]), Some(Ok(json!({"x": 1}))));
    site.respond(request, json!({"content": []}));
    assert_eq!(site.result(third)["content"], json!([]));
    site.publish(Change::List(List::Tools));
    assert_eq!(site.messages(watching).len(), 2, "and nothing else");
    site.finish();
}

/// A request state can be used once, and only for its own request and user.
#[test]
fn s_mrtr_15_a_state_cannot_be_made_up_nor_used_twice() {
    let mut site = Site::new(config());
    let (first, request) = site.taken(call(1).by(Some("ann")));
    let ask = site.ask(request, ROOTS, Value::Null);
    let result = site.result(first);
    let answer = json!({"roots": []});
    let good = || back(&result, 2, &answer).by(Some("ann"));
    let mut other = good();
    let text = String::from_utf8(other.body).expect("text");
    other.body = text.replace("\"asks\"", "\"sub\"").into_bytes();
    let other = other.with("mcp-name", "sub");
    for (what, bad) in [
        ("of another user", good().by(Some("eve"))),
        ("of nobody", good().by(None)),
        ("for another tool", other),
    ] {
        assert_eq!(site.refused(bad), (400, -32602), "{what}");
        assert_eq!(site.outcome(ask), None, "{what}");
    }
    let second = site.send(good());
    assert_eq!(site.outcome(ask), Some(Ok(answer.clone())));
    assert_eq!(site.refused(good()), (400, -32602), "used already");
    site.respond(request, json!({"content": []}));
    assert_eq!(site.result(second)["content"], json!([]));
    site.finish();
}

#[test]
fn s_s2c_02_a_legacy_client_is_asked_in_the_manner_that_it_declared() {
    let url = visit();
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
        let mut site = Site::new(config());
        let begin = introduce("2025-11-25", &declared);
        let session = site.session_with(begin, "2025-11-25", None);
        let (stream, request) = site.taken(session.post(1, "tools/call", json!({"name": "x"})));
        let asked = try_ask(&mut site, request, method, params);
        assert_eq!(asked.is_ok(), is_good, "{declared}: {params}");
        assert_eq!(
            site.said(stream, method).len(),
            usize::from(is_good),
            "{declared}: {params}"
        );
        site.finish();
    }
}

/// S-S2C-05: the client that got the URL elicitation is told when it is complete. Clients without this capability are
/// not told.
#[test]
fn s_s2c_05_the_end_of_a_visit_is_told_to_whom_it_concerns() {
    let mut site = Site::new(config());
    let visits = json!({"elicitation": {"url": {}}});
    let sent = site.session_with(introduce("2025-11-25", &visits), "2025-11-25", None);
    let mut streams = vec![site.send(sent.get())];
    for (version, declared) in [("2025-11-25", &json!({})), ("2025-06-18", &visits)] {
        let session = site.session_with(introduce(version, declared), version, None);
        streams.push(site.send(session.get()));
    }
    let (_, request) = site.taken(sent.post(1, "tools/call", json!({"name": "x"})));
    try_ask(&mut site, request, ELICIT, &visit()).expect("declared");
    let params = payload(&json!({"elicitationId": "e"}));
    site.verb(|server, now| server.notify(now, VISITED, Some(params)))
        .expect("it is the application's to tell");
    let heard = streams.into_iter().map(|stream| site.said(stream, VISITED));
    let heard: Vec<usize> = heard.map(|said| said.len()).collect();
    assert_eq!(heard, [1, 0, 0]);
    site.finish();
}

/// S-S2C-05: another client with this capability is not told, either.
#[test]
fn s_s2c_05_the_end_of_a_visit_is_told_to_nobody_else() {
    let mut site = Site::new(config());
    let visits = json!({"elicitation": {"url": {}}});
    let sessions =
        [(); 2].map(|()| site.session_with(introduce("2025-11-25", &visits), "2025-11-25", None));
    let streams = sessions.clone().map(|session| site.send(session.get()));
    let (_, request) = site.taken(sessions[0].post(1, "tools/call", json!({"name": "x"})));
    try_ask(&mut site, request, ELICIT, &visit()).expect("declared");
    let params = payload(&json!({"elicitationId": "e"}));
    site.verb(|server, now| server.notify(now, VISITED, Some(params)))
        .expect("it is the application's to tell");
    assert_eq!(site.said(streams[0], VISITED).len(), 1);
    assert_eq!(site.said(streams[1], VISITED), NOTHING);
    site.finish();
}

/// S-TIME-01, S-TIME-02, S-TIME-03: an ask times out, and the client is then told by a cancellation.
#[test]
fn s_time_01_a_question_has_its_time() {
    for patience in [seconds(600), seconds(7)] {
        for version in LEGACY {
            let mut config = config();
            config.ask_timeout = patience;
            let mut site = Site::new(config);
            let session = site.session(version);
            let (stream, request) = site.taken(session.post(1, "tools/call", json!({"name": "x"})));
            let ask = site.ask(request, ROOTS, Value::Null);
            let question = site.said(stream, ROOTS)[0]["id"].clone();
            site.pass(patience - seconds(1));
            assert_eq!(site.outcome(ask), None);
            site.pass(seconds(1));
            assert_eq!(site.outcome(ask), Some(Err(Unanswered::TimedOut)));
            let told = site.said(stream, CANCELLED);
            assert_eq!(told.len(), 1, "S-TIME-02");
            assert_eq!(told[0]["params"]["requestId"], question);
            assert!(site.cancellations().is_empty(), "the request goes on");
            site.respond(request, json!({"content": []}));
            assert_eq!(site.result(stream)["content"], json!([]));
            site.finish();
        }
    }
}

/// S-TIME-01: an ask to a modern client times out, too.
#[test]
fn s_time_01_a_client_that_does_not_come_back_is_not_waited_for() {
    let mut site = Site::new(config());
    let (first, request) = site.taken(call(1));
    let ask = site.ask(request, ROOTS, Value::Null);
    let result = site.result(first);
    site.pass(seconds(601));
    assert_eq!(site.outcome(ask), Some(Err(Unanswered::TimedOut)));
    assert_eq!(site.cancellations(), [(request, Cancelled::NotResumed)]);
    let late = back(&result, 2, &json!({"roots": []}));
    assert_eq!(site.refused(late), (400, -32602));
    site.finish();
}

/// S-TIME-04, S-TIME-05: progress from the client does not extend the timeout of an ask without limit.
#[test]
fn s_time_05_progress_does_not_keep_a_question_for_ever() {
    let mut site = Site::new(config());
    let session = site.session("2025-11-25");
    let (_, request) = site.taken(session.post(1, "tools/call", json!({"name": "x"})));
    let params = json!({"messages": [], "_meta": {"progressToken": "q"}});
    let ask = site.ask(request, SAMPLE, params);
    for step in 0..100 {
        site.pass(seconds(300));
        let params = json!({"progressToken": "q", "progress": step});
        let told = site.send(session.notice("notifications/progress", params));
        assert_eq!(site.status(told), 202);
    }
    assert_eq!(site.outcome(ask), Some(Err(Unanswered::TimedOut)));
    site.finish();
}

#[test]
fn s_cache_01_what_can_be_held_says_for_how_long_and_for_whom() {
    let mut site = Site::new(config());
    for (method, params) in [
        ("tools/list", json!({})),
        ("prompts/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": "x:"})),
    ] {
        let stream = site.served(modern(1, method, params.clone()), json!({}));
        let result = site.result(stream);
        assert!(result["ttlMs"].is_u64(), "{method}: {result}");
        let scope = result["cacheScope"].as_str().expect("a text");
        assert!(["public", "private"].contains(&scope), "{method}");
        let own = json!({"ttlMs": 60_000, "cacheScope": "public"});
        let stream = site.served(modern(1, method, params), own);
        let result = site.result(stream);
        assert_eq!(result["ttlMs"], 60_000, "what the application says counts");
        assert_eq!(result["cacheScope"], "public");
    }
    site.finish();
}
