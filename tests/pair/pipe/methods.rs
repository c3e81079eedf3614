//! Every method of the protocol, in every version that has it, in every direction: none is missing.

use std::collections::BTreeSet;

use everlink::ErrorObject;
use everlink::client::{self, CallOptions};
use everlink::protocol::method::names;
use everlink::protocol::{Kind, LogLevel, Method, Owner, Version};
use everlink::server::{self, ListenEnd, Progress};
use everlink::{Change, Keepalive, List, Watch};
use serde_json::{Value, json};

use crate::pipe::harness::{
    Harness, Setup, in_every_cut, in_every_version, payload, same_result_in_every_version, seconds,
};

/// Methods of the protocol that no machine sends, and why. `>` is to the server, `<` to the client.
const NEVER_SENT: [(char, &str, &str); 3] = [
    (
        '>',
        names::NOTIFICATIONS_PROGRESS,
        "a server end sets no progress token on its asks",
    ),
    (
        '<',
        names::NOTIFICATIONS_TASKS,
        "a server end grants no watch of tasks",
    ),
    (
        '<',
        names::PING,
        "a server end does not probe its client; it ends with its transport",
    ),
];

fn requests_of_applications() -> impl Iterator<Item = &'static Method> {
    let all = Method::all().iter();
    all.filter(|method| method.kind == Kind::Request && method.owner == Owner::Application)
}

#[test]
fn exactly_the_methods_of_a_version_are_sent() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.policy.keepalive = Some(Keepalive::every(seconds(30)));
        setup.server.listen_end = ListenEnd::CancelledThenResult;
        let seen = in_every_cut(|cut| {
            let mut harness = setup.ready(cut);
            use_every_method(&mut harness);
            ['>', '<'].map(|side| methods(&harness.written(side)))
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
                versions.contains(version) && !NEVER_SENT.iter().any(is_never)
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

/// Sends every message that both applications can send in this version.
fn use_every_method(harness: &mut Harness) {
    let watch = Watch::lists().and_uri("file:///a").and_logs(LogLevel::Info);
    harness.watch(watch.clone());
    for list in List::ALL {
        harness.publish(Change::List(list));
    }
    harness.publish(Change::Resource {
        uri: "file:///a".into(),
    });
    harness.watch(Watch::none());
    harness.watch(watch);

    let (client, now) = harness.pair.client();
    client.wake(now);
    send_requests(harness);
    send_asks(harness);
    send_notifications(harness);

    let call = harness.tool("slow");
    harness.settle();
    let (client, now) = harness.pair.client();
    client
        .cancel(now, call, Some("enough"))
        .expect("the call is in flight");
    harness.settle();

    let (server, now) = harness.pair.server();
    server.shutdown(now);
    harness.settle();
}

fn send_requests(harness: &mut Harness) {
    let version = harness.version;
    for method in requests_of_applications().filter(|m| m.to_server.contains(version)) {
        let call = harness.call(method.name, Value::Null);
        let request = harness.request().request;
        let (server, now) = harness.pair.server();
        let sent = server.progress(now, request, Progress::new(1.0));
        sent.expect("the request is open");
        let sent = server.log(
            now,
            Some(request),
            LogLevel::Error,
            None,
            payload(&json!(1)),
        );
        sent.expect("logging is offered");
        harness.respond(request, json!({}));
        assert_eq!(harness.outcome(call), "reply {}", "{}", method.name);
    }
}

/// Sends and answers every ask that is a message, and withdraws one.
fn send_asks(harness: &mut Harness) {
    let version = harness.version;
    for method in requests_of_applications().filter(|m| m.to_client.contains(version)) {
        let (server, now) = harness.pair.server();
        let ask = server.ask_unbidden(now, method.name, None);
        let ask = ask.unwrap_or_else(|misuse| panic!("{}: {misuse}", method.name));
        let asked = harness.next_ask();
        assert_eq!(asked.method, method.name);
        harness.answer(asked.ask, json!({"x": 1}));
        assert_eq!(harness.ask_outcome(ask), r#"{"x":1}"#);

        let (server, now) = harness.pair.server();
        let ask = server.ask_unbidden(now, method.name, None);
        let ask = ask.expect("the client can be asked again");
        harness.settle();
        let (server, now) = harness.pair.server();
        server.withdraw(now, ask, None).expect("the ask is open");
        assert_eq!(harness.ask_outcome(ask), "Withdrawn");
        harness.drop_events();
    }
}

fn send_notifications(harness: &mut Harness) {
    let all = Method::all().iter();
    let version = harness.version;
    for method in all.filter(|m| m.kind == Kind::Notification && m.owner == Owner::Application) {
        harness.drop_events();
        let (client, now) = harness.pair.client();
        let sent = client.notify(now, method.name, Some(payload(&json!({"x": 1}))));
        assert_eq!(sent.is_ok(), method.to_server.contains(version));
        let received = harness.server_event_texts();
        let expected = format!(r#"notified {} {{"x":1}}"#, method.name);
        let is_received = received == [expected.clone()];
        assert_eq!(
            is_received,
            method.to_server.contains(version),
            "{received:?}"
        );

        let (server, now) = harness.pair.server();
        let sent = server.notify(now, method.name, Some(payload(&json!({"x": 1}))));
        sent.expect("an unsupported notification is dropped");
        let received = harness.client_event_texts();
        let is_received = received == [expected];
        assert_eq!(
            is_received,
            method.to_client.contains(version),
            "{received:?}"
        );
    }
}

#[test]
fn every_request_of_an_application_gets_its_result_or_its_error() {
    for method in requests_of_applications().filter(|m| !m.to_server.is_empty()) {
        let seen = in_every_version(|mut harness| {
            let params =
                json!({"name": "n", "uri": "file:///a", "taskId": "t", "x": [1, {"y": null}]});
            let call = harness.call(method.name, params.clone());
            if !method.to_server.contains(harness.version) {
                assert!(harness.try_request().is_none(), "the request was sent");
                return vec![harness.outcome(call)];
            }
            let request = harness.request();
            assert_eq!(request.method, method.name);
            assert_eq!(request.params, Some(payload(&params)));
            harness.respond(request.request, json!({"x": "y", "_meta": {"z": 1}}));
            let result = harness.outcome(call);

            let call = harness.call(method.name, Value::Null);
            let request = harness.request();
            let error = ErrorObject {
                data: Some(payload(&json!({"x": [1]}))),
                ..ErrorObject::new(-32_000, "no \"such\"\nthing")
            };
            harness.fail(request.request, error);
            vec![result, harness.outcome(call)]
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
    same_result_in_every_version(|mut harness| {
        for options in [CallOptions::new(), CallOptions::new().without_progress()] {
            harness.call_with("tools/list", Value::Null, options);
            assert_eq!(harness.request().params, None);
        }
        harness.list(List::Tools);
        assert_eq!(harness.request().params, None);
    });
}

#[test]
fn methods_owned_by_the_link_are_refused_to_applications() {
    same_result_in_every_version(|mut harness| {
        let call = harness.tool("add");
        let request = harness.request().request;
        for method in Method::all() {
            let (client, now) = harness.pair.client();
            let called = client
                .call(now, method.name, None, CallOptions::new())
                .map(drop);
            let notified = client.notify(now, method.name, None);
            let owned = |misuse: &client::Misuse| matches!(misuse, client::Misuse::OwnedByLink { method: of, .. } if *of == method.name);
            let wrong_verb = |misuse: &client::Misuse| matches!(misuse, client::Misuse::WrongVerb { method: of, .. } if *of == method.name);
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
                        notified.is_err_and(|misuse| wrong_verb(&misuse)),
                        "{}",
                        method.name
                    );
                }
                (_, _) => {
                    assert!(
                        called.is_err_and(|misuse| wrong_verb(&misuse)),
                        "{}",
                        method.name
                    );
                }
            }

            let (server, now) = harness.pair.server();
            let notified = server.notify(now, method.name, None);
            let owned = |misuse: &server::Misuse| {
                matches!(
                    misuse,
                    server::Misuse::OwnedByLink { method: of, .. } | server::Misuse::NotSendable { method: of, .. }
                        if *of == method.name
                )
            };
            let is_refused = notified.as_ref().is_err_and(owned);
            let is_not_sendable = method.owner == Owner::Link || method.kind == Kind::Request;
            assert_eq!(is_refused, is_not_sendable, "{}: {notified:?}", method.name);
            if method.owner == Owner::Link || method.kind == Kind::Notification {
                let asked = server.ask(now, request, method.name, None);
                let is_refused = matches!(asked, Err(server::Misuse::Unaskable { .. }));
                assert!(is_refused, "{}: {asked:?}", method.name);
            }
        }
        harness.respond(request, json!({}));
        harness.outcome(call)
    });
}

#[test]
fn unknown_method_is_delivered_or_refused_as_configured() {
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
                let mut harness = setup.ready(cut);
                let call = harness.call("com.example/x", json!({"x": 1}));
                if let Some(request) = harness.try_request() {
                    assert_eq!(request.method, "com.example/x");
                    assert_eq!(request.params, Some(payload(&json!({"x": 1}))));
                    harness.respond(request.request, json!({"y": 2}));
                }
                harness.outcome(call)
            });
            assert_eq!(seen, expected, "{version}");
        }
    }
}
