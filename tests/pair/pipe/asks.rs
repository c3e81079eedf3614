//! Asks from the server's application to the client's: answered, refused, forgotten and withdrawn; several at once, and
//! in rounds.

use everlink::client::{self, Withdrawn};
use everlink::protocol::{ClientCapabilities, Era, Version};
use everlink::server::{self, InputRequired};
use everlink::wire::ErrorObject;
use everlink::{AskId, RequestId};
use serde_json::{Value, json};

use crate::pipe::stage::{
    Setup, Stage, in_every_cut, in_every_version, payload, seconds, the_same_everywhere,
    the_same_since,
};

fn form(message: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"n": {"type": "string"}}});
    json!({"mode": "form", "message": message, "requestedSchema": schema})
}

fn url() -> Value {
    json!({"mode": "url", "message": "m", "url": "https://example.com/?a=b", "elicitationId": "e"})
}

fn sampling() -> Value {
    let content = json!({"type": "text", "text": "Hi\n"});
    json!({"messages": [{"role": "user", "content": content}], "maxTokens": 9})
}

fn sampling_with_tools() -> Value {
    let mut params = sampling();
    params["tools"] = json!([{"name": "add", "inputSchema": {"type": "object"}}]);
    params["toolChoice"] = json!({"mode": "auto"});
    params
}

/// Every kind of ask, with the first version that has it.
fn questions() -> [(Version, &'static str, Value); 6] {
    [
        (Version::V2024_11_05, "roots/list", Value::Null),
        (Version::V2024_11_05, "sampling/createMessage", sampling()),
        (Version::V2025_06_18, "elicitation/create", form("Who?")),
        (
            Version::V2025_06_18,
            "elicitation/create",
            json!({"message": "no mode", "requestedSchema": {"type": "object", "properties": {}}}),
        ),
        (Version::V2025_11_25, "elicitation/create", url()),
        (
            Version::V2025_11_25,
            "sampling/createMessage",
            sampling_with_tools(),
        ),
    ]
}

/// A call, and its request at the server.
fn begin(stage: &mut Stage) -> (everlink::CallId, RequestId) {
    let call = stage.tool("curious");
    (call, stage.request().request)
}

fn end(stage: &mut Stage, call: everlink::CallId, request: RequestId) -> String {
    stage.respond(request, json!({"content": []}));
    stage.outcome(call)
}

#[test]
fn every_question_is_answered_in_every_version_that_has_it() {
    for (first, method, params) in questions() {
        let heard = the_same_since(first, |mut stage| {
            let (call, request) = begin(&mut stage);
            let ask = stage.ask(request, method, params.clone());
            let asked = stage.asked();
            assert_eq!(asked.method, method);
            assert_eq!(asked.call, stage.is_modern().then_some(call));
            let heard = asked.params.map_or(Value::Null, |params| {
                params.parse().expect("parameters are JSON")
            });
            assert_eq!(heard, params);
            stage.answer(asked.ask, json!({"n": "ü\n", "_meta": {"x": 1}}));
            let answer = stage.answered(ask);
            assert_eq!(end(&mut stage, call, request), r#"reply {"content":[]}"#);
            assert_eq!(stage.client_said(), Vec::<String>::new());
            answer
        });
        assert_eq!(heard, r#"{"_meta":{"x":1},"n":"ü\n"}"#);
    }
}

#[test]
fn requests_that_may_wait_are_those_of_the_table_in_the_modern_era_and_all_before() {
    in_every_version(|mut stage| {
        for method in [
            "tools/call",
            "prompts/get",
            "resources/read",
            "completion/complete",
            "tools/list",
        ] {
            let call = stage.call(method, json!({"name": "n", "uri": "a:"}));
            let request = stage.request().request;
            let (server, now) = stage.pair.server();
            let asked = server.ask(now, request, "roots/list", None);
            let facts = everlink::protocol::method::find(method).expect("it is known");
            if stage.is_modern() && !facts.may_need_input {
                assert!(matches!(asked, Err(server::Misuse::CannotAsk { .. })));
            } else {
                let ask = asked.expect("it may wait");
                let asked = stage.asked().ask;
                stage.answer(asked, json!({"roots": []}));
                assert_eq!(stage.answered(ask), r#"{"roots":[]}"#);
            }
            stage.respond(request, json!({}));
            assert_eq!(stage.outcome(call), "reply {}", "{method}");
        }
    });
}

#[test]
fn several_questions_at_once_are_answered_each_in_any_order() {
    let answers = the_same_everywhere(|mut stage| {
        let (call, request) = begin(&mut stage);
        let asks: Vec<AskId> = (0..4)
            .map(|n| stage.ask(request, "sampling/createMessage", json!({"n": n})))
            .collect();
        let asked: Vec<client::Ask> = (0..4).map(|_| stage.asked()).collect();
        for at in [2, 0, 3, 1] {
            let params = asked[at].params.as_ref().map(|params| params.as_str());
            assert_eq!(params, Some(format!(r#"{{"n":{at}}}"#).as_str()));
            stage.answer(asked[at].ask, json!({"of": at}));
            stage.settle();
        }
        let answers: Vec<String> = asks.iter().map(|ask| stage.answered(*ask)).collect();
        assert_eq!(end(&mut stage, call, request), r#"reply {"content":[]}"#);
        answers
    });
    assert_eq!(
        answers,
        (0..4)
            .map(|n| format!(r#"{{"of":{n}}}"#))
            .collect::<Vec<_>>()
    );
}

#[test]
fn questions_of_several_requests_at_once_do_not_mix() {
    the_same_everywhere(|mut stage| {
        let calls = [begin(&mut stage), begin(&mut stage), begin(&mut stage)];
        let asks = calls.map(|(_, request)| {
            let number = json!({"n": request.number()});
            stage.ask(request, "sampling/createMessage", number)
        });
        let asked = [(); 3].map(|()| stage.asked());
        for asked in asked.into_iter().rev() {
            let params: Value = asked.params.expect("a number").parse().expect("JSON");
            stage.answer(asked.ask, json!({"to": params["n"]}));
        }
        for ((call, request), ask) in calls.into_iter().zip(asks) {
            let answer = format!(r#"{{"to":{}}}"#, request.number());
            assert_eq!(stage.answered(ask), answer);
            stage.respond(request, json!({"n": request.number()}));
            let reply = format!(r#"reply {{"n":{}}}"#, request.number());
            assert_eq!(stage.outcome(call), reply);
        }
    });
}

#[test]
fn a_request_may_ask_round_after_round() {
    the_same_everywhere(|mut stage| {
        let (call, request) = begin(&mut stage);
        for round in 0..10 {
            let ask = stage.ask(request, "sampling/createMessage", json!({"round": round}));
            let asked = stage.asked().ask;
            stage.answer(asked, json!({"round": round}));
            assert_eq!(stage.answered(ask), format!(r#"{{"round":{round}}}"#));
            // The request stays the same through all rounds.
            assert!(stage.try_request().is_none());
        }
        end(&mut stage, call, request)
    });
}

#[test]
fn a_modern_request_cannot_ask_for_ever() {
    let setup = Setup::new(Version::LATEST_MODERN);
    in_every_cut(|cut| {
        let mut stage = setup.ready(cut);
        let (call, request) = begin(&mut stage);
        for _ in 0..10 {
            stage.ask(request, "roots/list", Value::Null);
            let asked = stage.asked().ask;
            stage.answer(asked, json!({}));
            stage.settle();
        }
        let (server, now) = stage.pair.server();
        let refused = server.ask(now, request, "roots/list", None);
        assert_eq!(refused, Err(server::Misuse::TooManyRounds { rounds: 10 }));
        assert_eq!(end(&mut stage, call, request), r#"reply {"content":[]}"#);
    });
}

/// An ask that comes while the client answers earlier ones waits for the next round.
#[test]
fn a_question_after_a_question_is_put_too() {
    the_same_everywhere(|mut stage| {
        let (call, request) = begin(&mut stage);
        let first = stage.ask(request, "roots/list", Value::Null);
        let asked = stage.asked().ask;
        let second = stage.ask(request, "sampling/createMessage", sampling());
        stage.answer(asked, json!({"roots": []}));
        assert_eq!(stage.answered(first), r#"{"roots":[]}"#);
        let asked = stage.asked();
        assert_eq!(asked.method, "sampling/createMessage");
        stage.answer(asked.ask, json!({"x": 1}));
        assert_eq!(stage.answered(second), r#"{"x":1}"#);
        end(&mut stage, call, request)
    });
}

/// The modern era has no message to decline an ask. The call fails, and the server stops waiting when the ask times
/// out.
#[test]
fn a_question_that_is_declined() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.server.ask_timeout = seconds(100);
        let seen = in_every_cut(|cut| {
            let mut stage = setup.ready(cut);
            let (call, request) = begin(&mut stage);
            let ask = stage.ask(request, "roots/list", Value::Null);
            let other = stage.ask(request, "sampling/createMessage", sampling());
            let asked = [stage.asked().ask, stage.asked().ask];
            stage.decline(asked[0]);
            stage.settle();
            if version.era() == Era::Legacy {
                stage.answer(asked[1], json!({}));
                assert_eq!(stage.answered(ask), r#"refused -1 "not now" None"#);
                assert_eq!(stage.answered(other), "{}");
                return (
                    end(&mut stage, call, request),
                    stage.client_said(),
                    stage.server_said(),
                );
            }
            let outcome = stage.outcome(call);
            let said = stage.client_said();
            stage.pass(seconds(101));
            (outcome, said, stage.server_said())
        });
        let expected = if version.era() == Era::Legacy {
            (r#"reply {"content":[]}"#, vec![], vec![])
        } else {
            (
                r#"failed Declined { method: "roots/list", why: "not now" } Unknown"#,
                vec!["ask 2 is withdrawn: CallSettled"],
                vec![
                    "ask 1: TimedOut",
                    "ask 2: TimedOut",
                    "Cancelled { request: request 1, why: NotResumed }",
                ],
            )
        };
        let (outcome, client, server) = expected;
        assert_eq!(seen.0, outcome, "{version}");
        assert_eq!(seen.1, client, "{version}");
        assert_eq!(seen.2, server, "{version}");
    }
}

#[test]
fn a_question_that_nobody_answers_at_the_client() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.policy.ask_timeout = seconds(20);
        setup.server.ask_timeout = seconds(100);
        let seen = in_every_cut(|cut| {
            let mut stage = setup.ready(cut);
            let (call, request) = begin(&mut stage);
            let ask = stage.ask(request, "roots/list", Value::Null);
            let asked = stage.asked().ask;
            stage.pass(seconds(21));
            let (client, now) = stage.pair.client();
            let late = client.answer(now, asked, Ok(payload(&json!({}))));
            assert_eq!(late, Err(client::Misuse::UnknownAsk));
            if version.era() == Era::Legacy {
                let answer = stage.answered(ask);
                let outcome = end(&mut stage, call, request);
                return (outcome, answer, stage.client_said());
            }
            let outcome = stage.outcome(call);
            stage.pass(seconds(80));
            (outcome, stage.answered(ask), stage.client_said())
        });
        let (outcome, answer) = if version.era() == Era::Legacy {
            (
                r#"reply {"content":[]}"#,
                r#"refused -32603 "the question was not answered in time" None"#,
            )
        } else {
            (
                r#"failed Declined { method: "roots/list", why: "the question was not answered in time" } Unknown"#,
                "TimedOut",
            )
        };
        assert_eq!(seen.0, outcome, "{version}");
        assert_eq!(seen.1, answer, "{version}");
        assert_eq!(
            seen.2,
            [format!("ask 1 is withdrawn: {:?}", Withdrawn::TimedOut)]
        );
    }
}

/// The server's ask timeout is shorter than the client's. A legacy client is told; a modern one finds out with its next
/// request.
#[test]
fn a_question_that_the_server_gives_up() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.server.ask_timeout = seconds(20);
        let seen = in_every_cut(|cut| {
            let mut stage = setup.ready(cut);
            let (call, request) = begin(&mut stage);
            let ask = stage.ask(request, "roots/list", Value::Null);
            let asked = stage.asked().ask;
            stage.pass(seconds(21));
            assert_eq!(stage.answered(ask), "TimedOut");
            if version.era() == Era::Legacy {
                assert_eq!(stage.client_said(), ["ask 1 is withdrawn: ByServer"]);
                return end(&mut stage, call, request);
            }
            assert_eq!(
                stage.server_said(),
                ["Cancelled { request: request 1, why: NotResumed }"]
            );
            stage.answer(asked, json!({}));
            stage.outcome(call)
        });
        match version.era() {
            Era::Legacy => assert_eq!(seen, r#"reply {"content":[]}"#),
            _ => assert!(seen.starts_with("error -32602"), "{seen}"),
        }
    }
}

/// An ask that is withdrawn before it was sent is never sent. A sent ask is withdrawn at the client if the era has a
/// message for it.
#[test]
fn a_question_that_is_taken_back() {
    let seen = in_every_version(|mut stage| {
        let (call, request) = begin(&mut stage);
        let unsaid = stage.ask(request, "roots/list", Value::Null);
        let (server, now) = stage.pair.server();
        server.withdraw(now, unsaid, None).expect("it is open");
        assert_eq!(stage.answered(unsaid), "Withdrawn");

        let said = stage.ask(request, "sampling/createMessage", sampling());
        let asked = stage.asked();
        assert_eq!(asked.method, "sampling/createMessage");
        let (server, now) = stage.pair.server();
        server.withdraw(now, said, None).expect("it is open");
        assert_eq!(stage.answered(said), "Withdrawn");
        let client = stage.client_said();
        if stage.is_modern() {
            stage.answer(asked.ask, json!({}));
            stage.settle();
        }
        assert_eq!(end(&mut stage, call, request), r#"reply {"content":[]}"#);
        client
    });
    for (version, client) in seen {
        let told: &[&str] = match version.era() {
            Era::Legacy => &["ask 1 is withdrawn: ByServer"],
            _ => &[],
        };
        assert_eq!(client, told, "{version}");
    }
}

/// A round without an ask would cost a round trip and one of the limited rounds of the request.
#[test]
fn questions_that_are_all_taken_back_before_they_are_put_leave_no_trace() {
    in_every_version(|mut stage| {
        let (call, request) = begin(&mut stage);
        let before = stage.written('<').len();
        for _ in 0..2 {
            let ask = stage.ask(request, "roots/list", Value::Null);
            let (server, now) = stage.pair.server();
            server.withdraw(now, ask, None).expect("it is open");
        }
        stage.settle();
        assert_eq!(stage.written('<').len(), before);
        assert_eq!(end(&mut stage, call, request), r#"reply {"content":[]}"#);
    });
}

/// The application may answer the request while its asks are still open.
#[test]
fn an_answer_to_the_request_ends_its_questions() {
    let seen = in_every_version(|mut stage| {
        let (call, request) = begin(&mut stage);
        let ask = stage.ask(request, "roots/list", Value::Null);
        let asked = stage.asked().ask;
        stage.respond(request, json!({"content": []}));
        // A modern client has no open request to answer. It gets the reply when it sends the call again with its answer.
        if stage.is_modern() {
            assert!(stage.try_done(call).is_none());
            stage.answer(asked, json!({}));
            assert_eq!(stage.answered(ask), "{}");
        } else {
            assert_eq!(stage.answered(ask), "RequestOver");
        }
        (stage.outcome(call), stage.client_said())
    });
    for (version, (outcome, client)) in seen {
        let told: &[&str] = match version.era() {
            Era::Legacy => &["ask 1 is withdrawn: ByServer"],
            _ => &[],
        };
        assert_eq!(outcome, r#"reply {"content":[]}"#, "{version}");
        assert_eq!(client, told, "{version}");
    }
}

#[test]
fn a_call_that_is_cancelled_takes_its_questions_along() {
    let seen = in_every_version(|mut stage| {
        let (call, request) = begin(&mut stage);
        let ask = stage.ask(request, "roots/list", Value::Null);
        stage.asked();
        let (client, now) = stage.pair.client();
        client.cancel(now, call, None).expect("it is under way");
        stage.pass(seconds(601));
        let outcome = stage.outcome(call);
        (
            outcome,
            stage.client_said(),
            stage.answered(ask),
            stage.server_said(),
        )
    });
    for (version, (outcome, client, answer, server)) in seen {
        assert_eq!(
            outcome, "failed Cancelled { reason: None } Unknown",
            "{version}"
        );
        let (told, why, cancelled) = match version.era() {
            Era::Legacy => (
                "ByServer",
                "RequestOver",
                "ByPeer { reason: None, meta: None }",
            ),
            _ => ("CallSettled", "TimedOut", "NotResumed"),
        };
        assert_eq!(client, [format!("ask 1 is withdrawn: {told}")], "{version}");
        assert_eq!(answer, why, "{version}");
        let cancelled = format!("Cancelled {{ request: request 1, why: {cancelled} }}");
        assert_eq!(server, [cancelled], "{version}");
    }
}

/// For stateless applications: the whole state goes to the client and comes back.
#[test]
fn input_can_be_required_by_an_application_that_keeps_nothing() {
    in_every_version(|mut stage| {
        let call = stage.call("prompts/get", json!({"name": "n", "arguments": {"a": "b"}}));
        let request = stage.request();
        assert_eq!(request.input, None);
        let input = InputRequired::new()
            .and_ask("who?\n", "elicitation/create", Some(payload(&form("Who?"))))
            .and_ask("where", "roots/list", None)
            .with_state("ü\n\"state\"");
        let (server, now) = stage.pair.server();
        let given = server.require_input(now, request.request, input);
        if !stage.is_modern() {
            assert!(matches!(
                given,
                Err(server::Misuse::InvalidResultType { .. })
            ));
            return;
        }
        given.expect("the client is modern");
        let asked = [stage.asked(), stage.asked()];
        assert_eq!(asked[0].method, "elicitation/create");
        assert_eq!(stage.pair.server().0.requests(), 0);
        for asked in &asked {
            stage.answer(asked.ask, json!({"to": asked.method}));
        }
        let again = stage.request();
        assert_ne!(again.request, request.request);
        assert_eq!(again.params, request.params);
        let input = again.input.expect("it was wanted");
        assert_eq!(input.state.as_deref(), Some("ü\n\"state\""));
        let answers: Value = input.answers.expect("two").parse().expect("JSON");
        let expected = json!({
            "who?\n": {"to": "elicitation/create"},
            "where": {"to": "roots/list"},
        });
        assert_eq!(answers, expected);

        // A round may have only a state.
        let (server, now) = stage.pair.server();
        let input = InputRequired::new().with_state("2");
        let given = server.require_input(now, again.request, input);
        given.expect("the client is modern");
        let last = stage.request();
        let input = last.input.expect("a state was given");
        assert_eq!((input.answers, input.state.as_deref()), (None, Some("2")));
        stage.respond(last.request, json!({"messages": []}));
        assert_eq!(stage.outcome(call), r#"reply {"messages":[]}"#);
    });
}

#[test]
fn what_was_not_declared_cannot_be_asked() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.capabilities = ClientCapabilities::default();
        in_every_cut(|cut| {
            let mut stage = setup.ready(cut);
            let (call, request) = begin(&mut stage);
            for (_, method, params) in questions() {
                let (server, now) = stage.pair.server();
                let params = (!params.is_null()).then(|| payload(&params));
                let refused = server.ask(now, request, method, params);
                let is_unaskable = matches!(refused, Err(server::Misuse::Unaskable { .. }));
                assert!(is_unaskable, "{method}: {refused:?}");
            }
            assert_eq!(end(&mut stage, call, request), r#"reply {"content":[]}"#);
        });
    }
}

/// An ask is refused in a version that does not have it, whatever the client declares.
#[test]
fn a_question_is_not_put_to_a_version_that_does_not_have_it() {
    in_every_version(|mut stage| {
        let (call, request) = begin(&mut stage);
        for (first, method, params) in questions() {
            let (server, now) = stage.pair.server();
            let params = (!params.is_null()).then(|| payload(&params));
            let asked = server.ask(now, request, method, params);
            assert_eq!(asked.is_ok(), stage.version >= first, "{method}: {asked:?}");
            if let Ok(ask) = asked {
                server.withdraw(now, ask, None).expect("it is open");
            }
        }
        assert_eq!(end(&mut stage, call, request), r#"reply {"content":[]}"#);
    });
}

#[test]
fn a_legacy_client_can_be_asked_for_no_request_at_all() {
    in_every_version(|mut stage| {
        let (server, now) = stage.pair.server();
        let asked = server.ask_unbidden(now, "roots/list", None);
        if stage.is_modern() {
            assert_eq!(asked, Err(server::Misuse::NoLegacyPeer));
            return;
        }
        let ask = asked.expect("a legacy client can be asked");
        let asked = stage.asked();
        assert_eq!((&*asked.method, asked.call), ("roots/list", None));
        stage.answer(asked.ask, json!({"roots": []}));
        assert_eq!(stage.answered(ask), r#"{"roots":[]}"#);
    });
}

/// The client's limit of open asks is lower than the server's.
#[test]
fn more_questions_than_the_client_has_room_for() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.limits.asks = 2;
        let seen = in_every_cut(|cut| {
            let mut stage = setup.ready(cut);
            let (call, request) = begin(&mut stage);
            let asks: Vec<_> = (0..3)
                .map(|_| stage.ask(request, "roots/list", Value::Null))
                .collect();
            if version.era() == Era::Modern {
                return stage.outcome(call);
            }
            for _ in 0..2 {
                let asked = stage.asked().ask;
                stage.answer(asked, json!({}));
            }
            let answers = asks.iter().map(|ask| stage.answered(*ask));
            let refused = answers.filter(|answer| answer.contains("too many")).count();
            assert_eq!(refused, 1);
            end(&mut stage, call, request)
        });
        let expected = match version.era() {
            Era::Legacy => r#"reply {"content":[]}"#,
            _ => "failed Invalid { why: \"it asks more at once than may be open\" } Unknown",
        };
        assert_eq!(seen, expected, "{version}");
    }
}

/// The application answers with an error while asks of the request are open.
#[test]
fn an_error_ends_a_request_while_it_asks() {
    in_every_version(|mut stage| {
        let (call, request) = begin(&mut stage);
        let ask = stage.ask(request, "roots/list", Value::Null);
        // Nothing was polled yet: the ask is never sent, and the error is sent in its place.
        stage.fail(request, ErrorObject::new(-32_000, "never mind"));
        assert_eq!(stage.answered(ask), "RequestOver");
        assert_eq!(stage.outcome(call), r#"error -32000 "never mind" None"#);
        assert_eq!(stage.client_said(), Vec::<String>::new());
    });
}
