//! How an epoch ends, from either side and at any moment, and how the next one begins.

use everlink::client::{CallOptions, State};
use everlink::protocol::{Era, LogLevel, Version, Versions};
use everlink::server;
use everlink::{Change, Dialect, ExitStatus, Instant, List, Watch};
use model::Pair;
use serde_json::{Value, json};

use crate::pipe::harness::{
    Harness, Setup, in_every_cut, in_every_version, same_result_in_every_version, seconds,
};

/// Plays a scenario in every version and every cut. A retry floor of 6 s leaves time before the next server starts.
fn with_slow_retry<T: PartialEq + core::fmt::Debug>(scenario: impl Fn(Harness) -> T) -> T {
    let mut seen = None;
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.policy.retry.floor = seconds(6);
        let one = in_every_cut(|cut| scenario(setup.ready(cut)));
        match &seen {
            Some(first) => assert_eq!(&one, first, "{version} differs"),
            None => seen = Some(one),
        }
    }
    seen.expect("the scenario was played")
}

fn shut_down(harness: &mut Harness) {
    let (client, now) = harness.pair.client();
    client.shutdown(now);
    harness.settle();
}

fn shut_server_down(harness: &mut Harness) {
    let (server, now) = harness.pair.server();
    server.shutdown(now);
    harness.settle();
}

#[test]
fn client_shutdown_ends_both_ends() {
    let seen = same_result_in_every_version(|mut harness| {
        harness.watch(Watch::lists().and_uri("a:"));
        harness.drop_events();
        shut_down(&mut harness);
        assert_eq!(harness.pair.now(), Instant::ZERO);
        assert!(!harness.pair.has_server());
        assert_eq!(harness.pair.due(), None);
        let (client, now) = harness.pair.client();
        let late = client.call(now, "tools/list", None, CallOptions::new());
        assert!(late.is_err());
        let server = harness.server_event_texts();
        let first = server.first().cloned();
        assert_eq!(first.as_deref(), Some("Draining { why: EndOfInput }"));
        assert_eq!(server.last().map(String::as_str), Some("closed []"));
        harness.client_event_texts()
    });
    assert_eq!(
        seen,
        ["closing", "ended: it was shut down Some(Code(0))", "closed"]
    );
}

/// The calls fail at once. The server has its grace period to finish, and is then terminated.
#[test]
fn client_shutdown_fails_calls_in_flight_and_terminates_the_server_after_2_s() {
    let (outcomes, server, client) = same_result_in_every_version(|mut harness| {
        let calls = [harness.tool("slow"), harness.tool("other")];
        harness.request();
        harness.request();
        shut_down(&mut harness);
        let outcomes = calls.map(|call| harness.outcome(call));
        let server = harness.server_event_texts();
        assert_eq!(harness.pair.client().0.state(), State::Closing);
        harness.until(State::Closed);
        assert_eq!(harness.pair.now(), Instant::ZERO + seconds(2));
        (outcomes, server, harness.client_event_texts())
    });
    assert_eq!(outcomes, ["failed Closed Unknown", "failed Closed Unknown"]);
    assert_eq!(server, ["Draining { why: EndOfInput }"]);
    assert_eq!(
        client,
        [
            "closing",
            "ended: it was shut down Some(Signal(15))",
            "closed"
        ]
    );
}

/// A legacy request can finish without the answer. A modern one waits for its client, which does not return, so it is
/// cancelled.
#[test]
fn client_shutdown_ends_open_asks_with_peer_gone() {
    let seen = in_every_version(|mut harness| {
        let call = harness.tool("curious");
        let request = harness.request().request;
        let ask = harness.ask(request, "roots/list", Value::Null);
        harness.next_ask();
        shut_down(&mut harness);
        assert_eq!(harness.outcome(call), "failed Closed Unknown");
        assert_eq!(harness.ask_outcome(ask), "PeerGone");
        let server = harness.server_event_texts();
        harness.until(State::Closed);
        server
    });
    for (version, server) in seen {
        let expected: &[&str] = match version.era() {
            Era::Legacy => &["Draining { why: EndOfInput }"],
            _ => &[
                "Draining { why: EndOfInput }",
                "Cancelled { request: request 1, why: PeerGone }",
                "closed []",
            ],
        };
        assert_eq!(server, expected, "{version}");
    }
}

/// The server may finish abandoned requests within its grace period.
#[test]
fn server_exits_after_client_shutdown_when_its_last_request_is_answered() {
    same_result_in_every_version(|mut harness| {
        harness.tool("slow");
        let request = harness.request().request;
        shut_down(&mut harness);
        harness.advance(seconds(1));
        harness.respond(request, json!({}));
        harness.until(State::Closed);
        assert_eq!(harness.pair.now(), Instant::ZERO + seconds(1));
        harness.client_event_texts()
    });
}

/// Open requests are answered, later ones are refused, and the next server takes over.
#[test]
fn server_shutdown_answers_open_requests_and_refuses_later_ones() {
    let (slow, late, server, client) = with_slow_retry(|mut harness| {
        let slow = harness.tool("slow");
        let request = harness.request().request;
        shut_server_down(&mut harness);
        let (draining, _) = harness.pair.server();
        assert_eq!(draining.state(), server::State::Draining);
        let late = harness.tool("late");
        let late = harness.outcome(late);
        harness.advance(seconds(3));
        harness.respond(request, json!({"content": []}));
        let slow = harness.outcome(slow);
        assert!(!harness.pair.has_server());
        let server = harness.server_event_texts();
        harness.until(State::Ready);
        harness.settle();
        (slow, late, server, harness.client_event_texts())
    });
    assert_eq!(slow, r#"reply {"content":[]}"#);
    assert!(late.starts_with("error -32603"), "{late}");
    assert_eq!(server, ["Draining { why: Shutdown }", "closed []"]);
    assert_eq!(
        client,
        [
            "closing",
            "ended: the server ended Some(Code(0))",
            "waiting",
            "opening",
            "handshaking",
            "ready"
        ]
    );
}

#[test]
fn request_that_outlasts_the_drain_time_of_5_s_fails_with_an_error() {
    let (outcome, server) = with_slow_retry(|mut harness| {
        let call = harness.tool("slow");
        harness.request();
        shut_server_down(&mut harness);
        harness.until(State::Waiting);
        assert_eq!(harness.pair.now(), Instant::ZERO + seconds(5));
        (harness.outcome(call), harness.server_event_texts())
    });
    assert_eq!(
        outcome,
        r#"error -32603 "the server ended before the request was done; it may have run in part" None"#
    );
    assert_eq!(
        server,
        [
            "Draining { why: Shutdown }",
            "Cancelled { request: request 1, why: OutOfTime }",
            "closed []"
        ]
    );
}

/// A draining server still accepts the answer that an open request waits for.
#[test]
fn draining_server_accepts_answers_to_open_asks() {
    with_slow_retry(|mut harness| {
        let call = harness.tool("curious");
        let request = harness.request().request;
        let ask = harness.ask(request, "roots/list", Value::Null);
        let asked = harness.next_ask().ask;
        shut_server_down(&mut harness);
        harness.advance(seconds(1));
        harness.answer(asked, json!({"roots": []}));
        assert_eq!(harness.ask_outcome(ask), r#"{"roots":[]}"#);
        harness.respond(request, json!({"content": []}));
        assert_eq!(harness.outcome(call), r#"reply {"content":[]}"#);
        assert!(!harness.pair.has_server());
    });
}

#[test]
fn idle_server_exits_at_once_on_shutdown() {
    same_result_in_every_version(|mut harness| {
        harness.watch(Watch::lists().and_uri("a:"));
        let (server, now) = harness.pair.server();
        server.shutdown(now);
        harness.settle();
        assert!(!harness.pair.has_server());
        assert_eq!(harness.pair.now(), Instant::ZERO);
        harness.until(State::Ready);
    });
}

/// A server dies with calls open. Calls that may be repeated are sent again, others fail, and nothing is delivered
/// twice.
#[test]
fn after_a_crash_repeatable_calls_are_resent_once_and_other_calls_fail() {
    let (outcomes, client) = same_result_in_every_version(|mut harness| {
        harness.watch(Watch::lists().and_uri("a:").and_logs(LogLevel::Info));
        let unrepeatable = harness.tool("pay");
        let repeatable = harness.call("resources/read", json!({"uri": "a:"}));
        let list = harness.list(List::Tools);
        harness.request();
        harness.request();
        harness.request();
        harness.drop_events();
        harness.pair.kill_server(ExitStatus::Code(70));
        let unrepeatable = harness.outcome(unrepeatable);
        harness.until(State::Ready);

        let (mut repeatable_seen, mut list_seen) = (0, 0);
        while let Some(request) = harness.try_request() {
            match &*request.method {
                "resources/read" => {
                    repeatable_seen += 1;
                    harness.respond(request.request, json!({"contents": []}));
                }
                "tools/list" => {
                    list_seen += 1;
                    harness.respond(request.request, json!({"tools": []}));
                }
                other => panic!("{other} was repeated"),
            }
        }
        assert_eq!((repeatable_seen, list_seen), (1, 1));
        let outcomes = [
            unrepeatable,
            harness.outcome(repeatable),
            harness.outcome(list),
        ];
        harness.publish(Change::Resource { uri: "a:".into() });
        harness.publish(Change::List(List::Tools));
        (outcomes, harness.client_event_texts())
    });
    assert_eq!(
        outcomes,
        [
            "failed Lost Unknown",
            r#"reply {"contents":[]}"#,
            "listed Tools []"
        ]
    );
    let last: Vec<_> = client.iter().rev().take(2).collect();
    assert_eq!(
        last,
        ["changed List(Tools)", r#"changed Resource { uri: "a:" }"#]
    );
    assert_eq!(client.iter().filter(|line| *line == "ready").count(), 1);
}

/// The client reads everything that a server wrote before it died.
#[test]
fn reply_written_before_the_server_dies_is_still_read() {
    same_result_in_every_version(|mut harness| {
        let call = harness.tool("last");
        let request = harness.request().request;
        harness.respond(request, json!({"last": true}));
        // One step: the reply is written, and perhaps its beginning is read.
        harness.pair.step();
        harness.pair.kill_server(ExitStatus::Signal(11));
        harness.outcome(call)
    });
}

#[test]
fn request_id_of_an_earlier_server_is_unknown_to_the_next() {
    same_result_in_every_version(|mut harness| {
        harness.tool("first");
        let first = harness.request().request;
        harness.pair.kill_server(ExitStatus::Code(1));
        harness.until(State::Ready);
        // The ids of a new server start again, and it must not accept a request id of the previous server.
        let (server, now) = harness.pair.server();
        let late = server.respond(now, first, "{}".parse().expect("JSON"));
        assert_eq!(late, Err(server::Misuse::UnknownRequest));
    });
}

#[test]
fn ask_of_a_dead_server_can_no_longer_be_answered() {
    same_result_in_every_version(|mut harness| {
        let call = harness.call("resources/read", json!({"uri": "a:"}));
        let request = harness.request().request;
        harness.ask(request, "roots/list", Value::Null);
        let asked = harness.next_ask().ask;
        harness.pair.kill_server(ExitStatus::Code(1));
        harness.until(State::Ready);
        let (client, now) = harness.pair.client();
        let late = client.answer(now, asked, Ok("{}".parse().expect("JSON")));
        assert!(late.is_err(), "the ask belongs to an earlier server");
        let again = harness.request();
        assert_eq!(again.input, None);
        harness.respond(again.request, json!({"contents": []}));
        harness.outcome(call)
    });
}

/// Each epoch may meet a different server, with another version and other capabilities.
#[test]
fn version_is_negotiated_again_with_every_server() {
    let setup = {
        let mut setup = Setup::new(Version::LATEST_MODERN);
        setup.client.versions = Versions::ALL;
        setup.client.dialect = Dialect::Automatic;
        setup
    };
    in_every_cut(|cut| {
        let config = setup.server.clone();
        let pair = Pair::served_by(setup.client.clone(), move |epoch| {
            let mut config = config.clone();
            config.versions = match epoch.number() {
                2 => Versions::only(Version::V2025_03_26),
                _ => Versions::MODERN,
            };
            everlink::Server::new(config)
        });
        let mut harness = Harness::new(Version::LATEST_MODERN, pair.cut(cut).recorded());
        harness.connect();
        let mut versions = Vec::new();
        for _ in 0..3 {
            harness.tool("who");
            let request = harness.request();
            versions.push(request.peer.version);
            harness.respond(request.request, json!({}));
            harness.settle();
            let (client, now) = harness.pair.client();
            let seen = client.epoch();
            client.reconnect(now, seen, "another one is there");
            harness.until(State::Waiting);
            harness.until(State::Ready);
        }
        assert_eq!(
            versions,
            [
                Version::V2026_07_28,
                Version::V2025_03_26,
                Version::V2026_07_28
            ]
        );
    });
}

#[test]
fn planned_reconnect_waits_for_calls_in_flight() {
    let (outcomes, client) = same_result_in_every_version(|mut harness| {
        let early = harness.tool("early");
        let request = harness.request().request;
        let (client, now) = harness.pair.client();
        let seen = client.epoch();
        client.reconnect(now, seen, "a new version is installed");
        let late = harness.tool("late");
        harness.advance(seconds(1));
        assert!(harness.try_request().is_none(), "nothing new is sent");
        harness.respond(request, json!({"life": 1}));
        let early = harness.outcome(early);
        harness.until(State::Ready);
        let request = harness.request().request;
        harness.respond(request, json!({"life": 2}));
        ([early, harness.outcome(late)], harness.client_event_texts())
    });
    assert_eq!(outcomes, [r#"reply {"life":1}"#, r#"reply {"life":2}"#]);
    assert_eq!(
        client,
        [
            "draining",
            "closing",
            "ended: a reconnect was asked for: a new version is installed Some(Code(0))",
            "waiting",
            "opening",
            "handshaking",
            "ready"
        ]
    );
}

/// No state remains from an epoch to the next, over 100 epochs.
#[test]
fn link_works_through_a_hundred_server_restarts() {
    let seen = in_every_version(|mut harness| {
        for epoch in 1..=100_u32 {
            let call = harness.tool("add");
            let request = harness.request().request;
            harness.respond(request, json!({"life": epoch}));
            let reply = format!(r#"reply {{"life":{epoch}}}"#);
            assert_eq!(harness.outcome(call), reply);
            // After 61 s the connection counts as good, so the next failure is the first one again.
            harness.advance(seconds(61));
            harness.pair.kill_server(ExitStatus::Code(1));
            harness.until(State::Ready);
            harness.drop_events();
        }
        harness.pair.client().0.epoch().number()
    });
    for (version, last_epoch) in seen {
        assert_eq!(last_epoch, 101, "{version}");
    }
}
