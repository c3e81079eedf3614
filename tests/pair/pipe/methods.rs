//! Every method of the protocol, in every version that has it, in every direction: none is missing.

use std::collections::BTreeSet;

use everlink::client::{self, CallOptions};
use everlink::protocol::method::names;
use everlink::protocol::{Kind, LogLevel, Method, Owner, Version};
use everlink::server::{self, ListenEnd, Progress};
use everlink::wire::ErrorObject;
use everlink::{Change, Keepalive, List, Watch};
use serde_json::{Value, json};

use crate::pipe::stage::{
    Setup, Stage, in_every_cut, in_every_version, payload, seconds, the_same_everywhere,
};

/// Methods of the protocol that no machine sends, and why. `>` is to the server, `<` to the client.
const NEVER: [(char, &str, &str); 3] = [
    (
        '>',
        names::NOTIFICATIONS_PROGRESS,
        "a server end gives its questions no token that progress could be reported under",
    ),
    (
        '<',
        names::NOTIFICATIONS_TASKS,
        "a server end grants no watch of tasks",
    ),
    (
        '<',
        names::PING,
        "a server end does not look after its client: it ends with its transport",
    ),
];

fn requests_of_applications() -> impl Iterator<Item = &'static Method> {
    let all = Method::all().iter();
    all.filter(|method| method.kind == Kind::Request && method.owner == Owner::Application)
}

#[test]
fn all_that_a_version_has_passes_between_the_ends_and_nothing_else() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.policy.keepalive = Some(Keepalive::every(seconds(30)));
        setup.server.listen_end = ListenEnd::CancelledThenResult;
        let seen = in_every_cut(|cut| {
            let mut stage = setup.ready(cut);
            everything(&mut stage);
            ['>', '<'].map(|side| methods(&stage.written(side)))
        });
        let expected = ['>', '<'].map(|side| {
            let sent = Method::all().iter().filter(|method| {
                let versions = if side == '>' {
                    method.to_server
                } else {
                    method.to_client
                };
                let is_never =
                    |(of, name, _): &(char, &str, &str)| (*of, *name) == (side, method.name);
                versions.contains(version) && !NEVER.iter().any(is_never)
            });
            sent.map(|method| method.name.to_owned()).collect()
        });
        assert_eq!(seen, expected, "{version}");
    }
}

fn methods(messages: &[Value]) -> BTreeSet<String> {
    let methods = messages
        .iter()
        .filter_map(|message| message["method"].as_str());
    methods.map(str::to_owned).collect()
}

/// Uses every verb of both applications, as far as the version supports it.
fn everything(stage: &mut Stage) {
    let wish = Watch::lists().and_uri("file:///a").and_logs(LogLevel::Info);
    stage.watch(wish.clone());
    for list in List::ALL {
        stage.publish(Change::List(list));
    }
    stage.publish(Change::Resource {
        uri: "file:///a".into(),
    });
    stage.watch(Watch::none());
    stage.watch(wish);

    let (client, now) = stage.pair.client();
    client.wake(now);
    requests(stage);
    questions(stage);
    notifications(stage);

    let call = stage.tool("slow");
    stage.settle();
    let (client, now) = stage.pair.client();
    client
        .cancel(now, call, Some("enough"))
        .expect("it is under way");
    stage.settle();

    let (server, now) = stage.pair.server();
    server.shutdown(now);
    stage.settle();
}

fn requests(stage: &mut Stage) {
    let version = stage.version;
    for method in requests_of_applications().filter(|m| m.to_server.contains(version)) {
        let call = stage.call(method.name, Value::Null);
        let request = stage.request().request;
        let (server, now) = stage.pair.server();
        let told = server.progress(now, request, Progress::new(1.0));
        told.expect("the request is open");
        let told = server.log(
            now,
            Some(request),
            LogLevel::Error,
            None,
            payload(&json!(1)),
        );
        told.expect("logging is offered");
        stage.respond(request, json!({}));
        assert_eq!(stage.outcome(call), "reply {}", "{}", method.name);
    }
}

/// Sends and answers every ask that is a message, and withdraws one.
fn questions(stage: &mut Stage) {
    let version = stage.version;
    for method in requests_of_applications().filter(|m| m.to_client.contains(version)) {
        let (server, now) = stage.pair.server();
        let ask = server.ask_unbidden(now, method.name, None);
        let ask = ask.unwrap_or_else(|misuse| panic!("{}: {misuse}", method.name));
        let asked = stage.asked();
        assert_eq!(asked.method, method.name);
        stage.answer(asked.ask, json!({"x": 1}));
        assert_eq!(stage.answered(ask), r#"{"x":1}"#);

        let (server, now) = stage.pair.server();
        let ask = server.ask_unbidden(now, method.name, None);
        let ask = ask.expect("it could be asked before");
        stage.settle();
        let (server, now) = stage.pair.server();
        server.withdraw(now, ask, None).expect("it is open");
        assert_eq!(stage.answered(ask), "Withdrawn");
        stage.forget();
    }
}

fn notifications(stage: &mut Stage) {
    let all = Method::all().iter();
    let version = stage.version;
    for method in all.filter(|m| m.kind == Kind::Notification && m.owner == Owner::Application) {
        stage.forget();
        let (client, now) = stage.pair.client();
        let told = client.notify(now, method.name, Some(payload(&json!({"x": 1}))));
        assert_eq!(told.is_ok(), method.to_server.contains(version));
        let heard = stage.server_said();
        let expected = format!(r#"notified {} {{"x":1}}"#, method.name);
        let is_heard = heard == [expected.clone()];
        assert_eq!(is_heard, method.to_server.contains(version), "{heard:?}");

        let (server, now) = stage.pair.server();
        let told = server.notify(now, method.name, Some(payload(&json!({"x": 1}))));
        told.expect("what cannot be heard is left out");
        let heard = stage.client_said();
        let is_heard = heard == [expected];
        assert_eq!(is_heard, method.to_client.contains(version), "{heard:?}");
    }
}

#[test]
fn every_request_of_an_application_gets_its_result_or_its_error() {
    for method in requests_of_applications().filter(|m| !m.to_server.is_empty()) {
        let seen = in_every_version(|mut stage| {
            let params =
                json!({"name": "n", "uri": "file:///a", "taskId": "t", "x": [1, {"y": null}]});
            let call = stage.call(method.name, params.clone());
            if !method.to_server.contains(stage.version) {
                assert!(stage.try_request().is_none(), "it was sent");
                return vec![stage.outcome(call)];
            }
            let request = stage.request();
            assert_eq!(request.method, method.name);
            assert_eq!(request.params, Some(payload(&params)));
            stage.respond(request.request, json!({"x": "y", "_meta": {"z": 1}}));
            let result = stage.outcome(call);

            let call = stage.call(method.name, Value::Null);
            let request = stage.request();
            let error = ErrorObject {
                data: Some(payload(&json!({"x": [1]}))),
                ..ErrorObject::new(-32_000, "no \"such\"\nthing")
            };
            stage.fail(request.request, error);
            vec![result, stage.outcome(call)]
        });
        for (version, seen) in seen {
            let expected = if method.to_server.contains(version) {
                vec![
                    r#"reply {"_meta":{"z":1},"x":"y"}"#.to_owned(),
                    r#"error -32000 "no \"such\"\nthing" Some("{\"x\":[1]}")"#.to_owned(),
                ]
            } else {
                let what = format!("`{}`, which {version} does not have", method.name);
                vec![format!("failed NotOffered {{ what: {what:?} }} NotSent")]
            };
            assert_eq!(seen, expected, "{} in {version}", method.name);
        }
    }
}

#[test]
fn a_call_without_parameters_has_none_at_the_other_end() {
    the_same_everywhere(|mut stage| {
        for options in [CallOptions::new(), CallOptions::new().without_progress()] {
            stage.call_with("tools/list", Value::Null, options);
            assert_eq!(stage.request().params, None);
        }
        stage.list(List::Tools);
        assert_eq!(stage.request().params, None);
    });
}

#[test]
fn what_is_the_links_own_is_nobody_elses() {
    the_same_everywhere(|mut stage| {
        let call = stage.tool("add");
        let request = stage.request().request;
        for method in Method::all() {
            let (client, now) = stage.pair.client();
            let called = client
                .call(now, method.name, None, CallOptions::new())
                .map(drop);
            let notified = client.notify(now, method.name, None);
            let owned = |misuse: &client::Misuse| matches!(misuse, client::Misuse::OwnedByLink { method: of, .. } if *of == method.name);
            let other_verb = |misuse: &client::Misuse| matches!(misuse, client::Misuse::WrongVerb { method: of, .. } if *of == method.name);
            match (method.owner, method.kind) {
                (Owner::Link, _) => {
                    assert!(
                        called.is_err_and(|misuse| owned(&misuse)),
                        "{}",
                        method.name
                    );
                    // Only the application knows the progress of an answer.
                    let is_progress = method.name == names::NOTIFICATIONS_PROGRESS;
                    assert!(
                        is_progress || notified.is_err_and(|misuse| owned(&misuse)),
                        "{}",
                        method.name
                    );
                }
                (_, Kind::Request) => {
                    assert!(
                        notified.is_err_and(|misuse| other_verb(&misuse)),
                        "{}",
                        method.name
                    );
                }
                (_, _) => {
                    assert!(
                        called.is_err_and(|misuse| other_verb(&misuse)),
                        "{}",
                        method.name
                    );
                }
            }

            let (server, now) = stage.pair.server();
            let notified = server.notify(now, method.name, None);
            let owned = |misuse: &server::Misuse| {
                matches!(
                    misuse,
                    server::Misuse::OwnedByLink { method: of, .. } | server::Misuse::NotSendable { method: of, .. }
                        if *of == method.name
                )
            };
            let is_refused = notified.as_ref().is_err_and(owned);
            let is_others = method.owner == Owner::Link || method.kind == Kind::Request;
            assert_eq!(is_refused, is_others, "{}: {notified:?}", method.name);
            if method.owner == Owner::Link || method.kind == Kind::Notification {
                let asked = server.ask(now, request, method.name, None);
                let is_refused = matches!(asked, Err(server::Misuse::Unaskable { .. }));
                assert!(is_refused, "{}: {asked:?}", method.name);
            }
        }
        stage.respond(request, json!({}));
        stage.outcome(call)
    });
}

#[test]
fn a_method_that_nobody_knows_is_the_applications_where_it_says_so() {
    for (unknown_methods, expected) in [
        (server::UnknownMethods::Delivered, "reply {\"y\":2}"),
        (
            server::UnknownMethods::Refused,
            "error -32601 \"there is no method `com.example/x` here\" None",
        ),
    ] {
        for &version in Version::ALL {
            let mut setup = Setup::new(version);
            setup.server.unknown_methods = unknown_methods;
            let seen = in_every_cut(|cut| {
                let mut stage = setup.ready(cut);
                let call = stage.call("com.example/x", json!({"x": 1}));
                if let Some(request) = stage.try_request() {
                    assert_eq!(request.method, "com.example/x");
                    assert_eq!(request.params, Some(payload(&json!({"x": 1}))));
                    stage.respond(request.request, json!({"y": 2}));
                }
                stage.outcome(call)
            });
            assert_eq!(seen, expected, "{version}");
        }
    }
}
