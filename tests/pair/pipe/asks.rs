//! Asks from the server's application to the client's: answered, refused, forgotten and withdrawn; several at once, and
//! in rounds.

use everlink::ErrorObject;
use everlink::client::{self, Withdrawn};
use everlink::protocol::{ClientCapabilities, Era, Version};
use everlink::server::{self, InputRequired};
use everlink::{AskId, RequestId};
use serde_json::{Value, json};

use crate::pipe::harness::{
    Harness, Setup, in_every_cut, in_every_version, payload, same_result_in_every_version,
    same_result_since, seconds,
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
fn all_asks() -> [(Version, &'static str, Value); 6] {
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
fn start_call(harness: &mut Harness) -> (everlink::CallId, RequestId) {
    let call = harness.tool("curious");
    (call, harness.request().request)
}

fn finish_call(harness: &mut Harness, call: everlink::CallId, request: RequestId) -> String {
    harness.respond(request, json!({"content": []}));
    harness.outcome(call)
}

#[test]
fn every_ask_is_answered_in_every_version_that_has_it() {
    for (first, method, params) in all_asks() {
        let received = same_result_since(first, |mut harness| {
            let (call, request) = start_call(&mut harness);
            let ask = harness.ask(request, method, params.clone());
            let asked = harness.next_ask();
            assert_eq!(asked.method, method);
            assert_eq!(asked.call, harness.is_modern().then_some(call));
            let received = asked.params.map_or(Value::Null, |params| {
                params.parse().expect("parameters are JSON")
            });
            assert_eq!(received, params);
            harness.answer(asked.ask, json!({"n": "ü\n", "_meta": {"x": 1}}));
            let answer = harness.ask_outcome(ask);
            assert_eq!(
                finish_call(&mut harness, call, request),
                r#"reply {"content":[]}"#
            );
            assert_eq!(harness.client_event_texts(), Vec::<String>::new());
            answer
        });
        assert_eq!(received, r#"{"_meta":{"x":1},"n":"ü\n"}"#);
    }
}

#[test]
fn modern_asks_are_allowed_only_for_methods_that_may_need_input_and_legacy_asks_for_all() {
    in_every_version(|mut harness| {
        for method in [
            "tools/call",
            "prompts/get",
            "resources/read",
            "completion/complete",
            "tools/list",
        ] {
            let call = harness.call(method, json!({"name": "n", "uri": "a:"}));
            let request = harness.request().request;
            let (server, now) = harness.pair.server();
            let asked = server.ask(now, request, "roots/list", None);
            let facts = everlink::protocol::method::find(method).expect("the method is known");
            if harness.is_modern() && !facts.may_need_input {
                assert!(matches!(asked, Err(server::Misuse::CannotAsk { .. })));
            } else {
                let ask = asked.expect("the request may ask");
                let asked = harness.next_ask().ask;
                harness.answer(asked, json!({"roots": []}));
                assert_eq!(harness.ask_outcome(ask), r#"{"roots":[]}"#);
            }
            harness.respond(request, json!({}));
            assert_eq!(harness.outcome(call), "reply {}", "{method}");
        }
    });
}

#[test]
fn concurrent_asks_of_a_request_can_be_answered_in_any_order() {
    let answers = same_result_in_every_version(|mut harness| {
        let (call, request) = start_call(&mut harness);
        let asks: Vec<AskId> = (0..4)
            .map(|n| harness.ask(request, "sampling/createMessage", json!({"n": n})))
            .collect();
        let asked: Vec<client::Ask> = (0..4).map(|_| harness.next_ask()).collect();
        for at in [2, 0, 3, 1] {
            let params = asked[at].params.as_ref().map(|params| params.as_str());
            assert_eq!(params, Some(format!(r#"{{"n":{at}}}"#).as_str()));
            harness.answer(asked[at].ask, json!({"of": at}));
            harness.settle();
        }
        let answers: Vec<String> = asks.iter().map(|ask| harness.ask_outcome(*ask)).collect();
        assert_eq!(
            finish_call(&mut harness, call, request),
            r#"reply {"content":[]}"#
        );
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
fn asks_of_concurrent_requests_do_not_mix() {
    same_result_in_every_version(|mut harness| {
        let calls = [
            start_call(&mut harness),
            start_call(&mut harness),
            start_call(&mut harness),
        ];
        let asks = calls.map(|(_, request)| {
            let number = json!({"n": request.number()});
            harness.ask(request, "sampling/createMessage", number)
        });
        let asked = [(); 3].map(|()| harness.next_ask());
        for asked in asked.into_iter().rev() {
            let params: Value = asked.params.expect("a number").parse().expect("JSON");
            harness.answer(asked.ask, json!({"to": params["n"]}));
        }
        for ((call, request), ask) in calls.into_iter().zip(asks) {
            let answer = format!(r#"{{"to":{}}}"#, request.number());
            assert_eq!(harness.ask_outcome(ask), answer);
            harness.respond(request, json!({"n": request.number()}));
            let reply = format!(r#"reply {{"n":{}}}"#, request.number());
            assert_eq!(harness.outcome(call), reply);
        }
    });
}

#[test]
fn request_can_ask_in_ten_successive_rounds() {
    same_result_in_every_version(|mut harness| {
        let (call, request) = start_call(&mut harness);
        for round in 0..10 {
            let ask = harness.ask(request, "sampling/createMessage", json!({"round": round}));
            let asked = harness.next_ask().ask;
            harness.answer(asked, json!({"round": round}));
            assert_eq!(harness.ask_outcome(ask), format!(r#"{{"round":{round}}}"#));
            // The request stays the same through all rounds.
            assert!(harness.try_request().is_none());
        }
        finish_call(&mut harness, call, request)
    });
}

#[test]
fn eleventh_round_of_asks_of_a_modern_request_is_refused() {
    let setup = Setup::new(Version::LATEST_MODERN);
    in_every_cut(|cut| {
        let mut harness = setup.ready(cut);
        let (call, request) = start_call(&mut harness);
        for _ in 0..10 {
            harness.ask(request, "roots/list", Value::Null);
            let asked = harness.next_ask().ask;
            harness.answer(asked, json!({}));
            harness.settle();
        }
        let (server, now) = harness.pair.server();
        let refused = server.ask(now, request, "roots/list", None);
        assert_eq!(refused, Err(server::Misuse::TooManyRounds { rounds: 10 }));
        assert_eq!(
            finish_call(&mut harness, call, request),
            r#"reply {"content":[]}"#
        );
    });
}

/// An ask that comes while the client answers earlier ones waits for the next round.
#[test]
fn ask_sent_while_another_is_being_answered_reaches_the_client() {
    same_result_in_every_version(|mut harness| {
        let (call, request) = start_call(&mut harness);
        let first = harness.ask(request, "roots/list", Value::Null);
        let asked = harness.next_ask().ask;
        let second = harness.ask(request, "sampling/createMessage", sampling());
        harness.answer(asked, json!({"roots": []}));
        assert_eq!(harness.ask_outcome(first), r#"{"roots":[]}"#);
        let asked = harness.next_ask();
        assert_eq!(asked.method, "sampling/createMessage");
        harness.answer(asked.ask, json!({"x": 1}));
        assert_eq!(harness.ask_outcome(second), r#"{"x":1}"#);
        finish_call(&mut harness, call, request)
    });
}

/// The modern era has no message to decline an ask. The call fails, and the server stops waiting when the ask times
/// out.
#[test]
fn declined_ask_is_reported_to_a_legacy_server_and_fails_a_modern_call() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.server.ask_timeout = seconds(100);
        let seen = in_every_cut(|cut| {
            let mut harness = setup.ready(cut);
            let (call, request) = start_call(&mut harness);
            let ask = harness.ask(request, "roots/list", Value::Null);
            let other = harness.ask(request, "sampling/createMessage", sampling());
            let asked = [harness.next_ask().ask, harness.next_ask().ask];
            harness.decline(asked[0]);
            harness.settle();
            if version.era() == Era::Legacy {
                harness.answer(asked[1], json!({}));
                assert_eq!(harness.ask_outcome(ask), r#"refused -1 "not now" None"#);
                assert_eq!(harness.ask_outcome(other), "{}");
                return (
                    finish_call(&mut harness, call, request),
                    harness.client_event_texts(),
                    harness.server_event_texts(),
                );
            }
            let outcome = harness.outcome(call);
            let client_events = harness.client_event_texts();
            harness.advance(seconds(101));
            (outcome, client_events, harness.server_event_texts())
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
fn ask_that_times_out_at_the_client_is_refused_in_legacy_and_fails_the_modern_call() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.policy.ask_timeout = seconds(20);
        setup.server.ask_timeout = seconds(100);
        let seen = in_every_cut(|cut| {
            let mut harness = setup.ready(cut);
            let (call, request) = start_call(&mut harness);
            let ask = harness.ask(request, "roots/list", Value::Null);
            let asked = harness.next_ask().ask;
            harness.advance(seconds(21));
            let (client, now) = harness.pair.client();
            let late = client.answer(now, asked, Ok(payload(&json!({}))));
            assert_eq!(late, Err(client::Misuse::UnknownAsk));
            if version.era() == Era::Legacy {
                let answer = harness.ask_outcome(ask);
                let outcome = finish_call(&mut harness, call, request);
                return (outcome, answer, harness.client_event_texts());
            }
            let outcome = harness.outcome(call);
            harness.advance(seconds(80));
            (
                outcome,
                harness.ask_outcome(ask),
                harness.client_event_texts(),
            )
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
fn ask_that_times_out_at_the_server_is_withdrawn_in_legacy_and_fails_the_modern_call() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.server.ask_timeout = seconds(20);
        let seen = in_every_cut(|cut| {
            let mut harness = setup.ready(cut);
            let (call, request) = start_call(&mut harness);
            let ask = harness.ask(request, "roots/list", Value::Null);
            let asked = harness.next_ask().ask;
            harness.advance(seconds(21));
            assert_eq!(harness.ask_outcome(ask), "TimedOut");
            if version.era() == Era::Legacy {
                assert_eq!(
                    harness.client_event_texts(),
                    ["ask 1 is withdrawn: ByServer"]
                );
                return finish_call(&mut harness, call, request);
            }
            assert_eq!(
                harness.server_event_texts(),
                ["Cancelled { request: request 1, why: NotResumed }"]
            );
            harness.answer(asked, json!({}));
            harness.outcome(call)
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
fn withdrawn_ask_is_not_sent_or_is_withdrawn_at_a_legacy_client() {
    let seen = in_every_version(|mut harness| {
        let (call, request) = start_call(&mut harness);
        let unsent = harness.ask(request, "roots/list", Value::Null);
        let (server, now) = harness.pair.server();
        server.withdraw(now, unsent, None).expect("the ask is open");
        assert_eq!(harness.ask_outcome(unsent), "Withdrawn");

        let sent = harness.ask(request, "sampling/createMessage", sampling());
        let asked = harness.next_ask();
        assert_eq!(asked.method, "sampling/createMessage");
        let (server, now) = harness.pair.server();
        server.withdraw(now, sent, None).expect("the ask is open");
        assert_eq!(harness.ask_outcome(sent), "Withdrawn");
        let client = harness.client_event_texts();
        if harness.is_modern() {
            harness.answer(asked.ask, json!({}));
            harness.settle();
        }
        assert_eq!(
            finish_call(&mut harness, call, request),
            r#"reply {"content":[]}"#
        );
        client
    });
    for (version, client) in seen {
        let expected: &[&str] = match version.era() {
            Era::Legacy => &["ask 1 is withdrawn: ByServer"],
            _ => &[],
        };
        assert_eq!(client, expected, "{version}");
    }
}

/// A round without an ask would cost a round trip and one of the limited rounds of the request.
#[test]
fn asks_withdrawn_before_they_are_sent_write_no_message() {
    in_every_version(|mut harness| {
        let (call, request) = start_call(&mut harness);
        let before = harness.written('<').len();
        for _ in 0..2 {
            let ask = harness.ask(request, "roots/list", Value::Null);
            let (server, now) = harness.pair.server();
            server.withdraw(now, ask, None).expect("the ask is open");
        }
        harness.settle();
        assert_eq!(harness.written('<').len(), before);
        assert_eq!(
            finish_call(&mut harness, call, request),
            r#"reply {"content":[]}"#
        );
    });
}

/// The application may answer the request while its asks are still open.
#[test]
fn reply_ends_open_asks_in_legacy_and_waits_for_the_answer_in_modern() {
    let seen = in_every_version(|mut harness| {
        let (call, request) = start_call(&mut harness);
        let ask = harness.ask(request, "roots/list", Value::Null);
        let asked = harness.next_ask().ask;
        harness.respond(request, json!({"content": []}));
        // A modern client has no open request to answer. It gets the reply when it sends the call again with its answer.
        if harness.is_modern() {
            assert!(harness.try_done(call).is_none());
            harness.answer(asked, json!({}));
            assert_eq!(harness.ask_outcome(ask), "{}");
        } else {
            assert_eq!(harness.ask_outcome(ask), "RequestOver");
        }
        (harness.outcome(call), harness.client_event_texts())
    });
    for (version, (outcome, client)) in seen {
        let expected: &[&str] = match version.era() {
            Era::Legacy => &["ask 1 is withdrawn: ByServer"],
            _ => &[],
        };
        assert_eq!(outcome, r#"reply {"content":[]}"#, "{version}");
        assert_eq!(client, expected, "{version}");
    }
}

#[test]
fn cancelled_call_ends_its_open_asks() {
    let seen = in_every_version(|mut harness| {
        let (call, request) = start_call(&mut harness);
        let ask = harness.ask(request, "roots/list", Value::Null);
        harness.next_ask();
        let (client, now) = harness.pair.client();
        client
            .cancel(now, call, None)
            .expect("the call is in flight");
        harness.advance(seconds(601));
        let outcome = harness.outcome(call);
        (
            outcome,
            harness.client_event_texts(),
            harness.ask_outcome(ask),
            harness.server_event_texts(),
        )
    });
    for (version, (outcome, client, answer, server)) in seen {
        assert_eq!(
            outcome, "failed Cancelled { reason: None } Unknown",
            "{version}"
        );
        let (withdrawn, why, cancelled) = match version.era() {
            Era::Legacy => (
                "ByServer",
                "RequestOver",
                "ByPeer { reason: None, meta: None }",
            ),
            _ => ("CallSettled", "TimedOut", "NotResumed"),
        };
        assert_eq!(
            client,
            [format!("ask 1 is withdrawn: {withdrawn}")],
            "{version}"
        );
        assert_eq!(answer, why, "{version}");
        let cancelled = format!("Cancelled {{ request: request 1, why: {cancelled} }}");
        assert_eq!(server, [cancelled], "{version}");
    }
}

/// For stateless applications: the whole state goes to the client and comes back.
#[test]
fn stateless_application_can_require_input_from_a_modern_client() {
    in_every_version(|mut harness| {
        let call = harness.call("prompts/get", json!({"name": "n", "arguments": {"a": "b"}}));
        let request = harness.request();
        assert_eq!(request.input, None);
        let input = InputRequired::new()
            .and_ask("who?\n", "elicitation/create", Some(payload(&form("Who?"))))
            .and_ask("where", "roots/list", None)
            .with_state("ü\n\"state\"");
        let (server, now) = harness.pair.server();
        let sent = server.require_input(now, request.request, input);
        if !harness.is_modern() {
            assert!(matches!(
                sent,
                Err(server::Misuse::InvalidResultType { .. })
            ));
            return;
        }
        sent.expect("the client is modern");
        let asked = [harness.next_ask(), harness.next_ask()];
        assert_eq!(asked[0].method, "elicitation/create");
        assert_eq!(harness.pair.server().0.requests(), 0);
        for asked in &asked {
            harness.answer(asked.ask, json!({"to": asked.method}));
        }
        let again = harness.request();
        assert_ne!(again.request, request.request);
        assert_eq!(again.params, request.params);
        let input = again.input.expect("input was required");
        assert_eq!(input.state.as_deref(), Some("ü\n\"state\""));
        let answers: Value = input.answers.expect("two").parse().expect("JSON");
        let expected = json!({
            "who?\n": {"to": "elicitation/create"},
            "where": {"to": "roots/list"},
        });
        assert_eq!(answers, expected);

        // A round may have only a state.
        let (server, now) = harness.pair.server();
        let input = InputRequired::new().with_state("2");
        let sent = server.require_input(now, again.request, input);
        sent.expect("the client is modern");
        let last = harness.request();
        let input = last.input.expect("a state was given");
        assert_eq!((input.answers, input.state.as_deref()), (None, Some("2")));
        harness.respond(last.request, json!({"messages": []}));
        assert_eq!(harness.outcome(call), r#"reply {"messages":[]}"#);
    });
}

#[test]
fn ask_for_an_undeclared_capability_is_refused() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.capabilities = ClientCapabilities::default();
        in_every_cut(|cut| {
            let mut harness = setup.ready(cut);
            let (call, request) = start_call(&mut harness);
            for (_, method, params) in all_asks() {
                let (server, now) = harness.pair.server();
                let params = (!params.is_null()).then(|| payload(&params));
                let refused = server.ask(now, request, method, params);
                let is_unaskable = matches!(refused, Err(server::Misuse::Unaskable { .. }));
                assert!(is_unaskable, "{method}: {refused:?}");
            }
            assert_eq!(
                finish_call(&mut harness, call, request),
                r#"reply {"content":[]}"#
            );
        });
    }
}

/// An ask is refused in a version that does not have it, whatever the client declares.
#[test]
fn ask_is_refused_in_a_version_that_does_not_have_it() {
    in_every_version(|mut harness| {
        let (call, request) = start_call(&mut harness);
        for (first, method, params) in all_asks() {
            let (server, now) = harness.pair.server();
            let params = (!params.is_null()).then(|| payload(&params));
            let asked = server.ask(now, request, method, params);
            assert_eq!(
                asked.is_ok(),
                harness.version >= first,
                "{method}: {asked:?}"
            );
            if let Ok(ask) = asked {
                server.withdraw(now, ask, None).expect("the ask is open");
            }
        }
        assert_eq!(
            finish_call(&mut harness, call, request),
            r#"reply {"content":[]}"#
        );
    });
}

#[test]
fn only_a_legacy_client_can_be_asked_without_a_request() {
    in_every_version(|mut harness| {
        let (server, now) = harness.pair.server();
        let asked = server.ask_unbidden(now, "roots/list", None);
        if harness.is_modern() {
            assert_eq!(asked, Err(server::Misuse::NoLegacyPeer));
            return;
        }
        let ask = asked.expect("a legacy client can be asked");
        let asked = harness.next_ask();
        assert_eq!((&*asked.method, asked.call), ("roots/list", None));
        harness.answer(asked.ask, json!({"roots": []}));
        assert_eq!(harness.ask_outcome(ask), r#"{"roots":[]}"#);
    });
}

/// The client's limit of open asks is lower than the server's.
#[test]
fn asks_over_the_limit_of_the_client_are_refused_in_legacy_and_fail_the_modern_call() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.limits.asks = 2;
        let seen = in_every_cut(|cut| {
            let mut harness = setup.ready(cut);
            let (call, request) = start_call(&mut harness);
            let asks: Vec<_> = (0..3)
                .map(|_| harness.ask(request, "roots/list", Value::Null))
                .collect();
            if version.era() == Era::Modern {
                return harness.outcome(call);
            }
            for _ in 0..2 {
                let asked = harness.next_ask().ask;
                harness.answer(asked, json!({}));
            }
            let answers = asks.iter().map(|ask| harness.ask_outcome(*ask));
            let refused = answers.filter(|answer| answer.contains("too many")).count();
            assert_eq!(refused, 1);
            finish_call(&mut harness, call, request)
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
fn error_reply_before_the_ask_is_sent_replaces_the_ask() {
    in_every_version(|mut harness| {
        let (call, request) = start_call(&mut harness);
        let ask = harness.ask(request, "roots/list", Value::Null);
        // Nothing was polled yet: the ask is never sent, and the error is sent in its place.
        harness.fail(request, ErrorObject::new(-32_000, "never mind"));
        assert_eq!(harness.ask_outcome(ask), "RequestOver");
        assert_eq!(harness.outcome(call), r#"error -32000 "never mind" None"#);
        assert_eq!(harness.client_event_texts(), Vec::<String>::new());
    });
}
