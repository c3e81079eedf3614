//! How an epoch ends, from either side and at any moment, and how the next one begins.

use everlink::client::{CallOptions, State};
use everlink::protocol::{Era, LogLevel, Version, Versions};
use everlink::server;
use everlink::{Change, Dialect, ExitStatus, Instant, List, Watch};
use model::Pair;
use serde_json::{Value, json};

use crate::pipe::stage::{
    Setup, Stage, in_every_cut, in_every_version, seconds, the_same_everywhere,
};

/// Plays a scenario in every version and every cut. A retry floor of 6 s leaves time before the next server starts.
fn before_the_next_server<T: PartialEq + core::fmt::Debug>(scenario: impl Fn(Stage) -> T) -> T {
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
    seen.expect("it was played")
}

fn shut_down(stage: &mut Stage) {
    let (client, now) = stage.pair.client();
    client.shutdown(now);
    stage.settle();
}

fn shut_server_down(stage: &mut Stage) {
    let (server, now) = stage.pair.server();
    server.shutdown(now);
    stage.settle();
}

#[test]
fn a_client_that_is_shut_down_ends_both() {
    let seen = the_same_everywhere(|mut stage| {
        stage.watch(Watch::lists().and_uri("a:"));
        stage.forget();
        shut_down(&mut stage);
        assert_eq!(stage.pair.now(), Instant::ZERO);
        assert!(!stage.pair.has_server());
        assert_eq!(stage.pair.due(), None);
        let (client, now) = stage.pair.client();
        let late = client.call(now, "tools/list", None, CallOptions::new());
        assert!(late.is_err());
        let server = stage.server_said();
        let first = server.first().cloned();
        assert_eq!(first.as_deref(), Some("Draining { why: EndOfInput }"));
        assert_eq!(server.last().map(String::as_str), Some("closed []"));
        stage.client_said()
    });
    assert_eq!(
        seen,
        ["closing", "ended: it was shut down Some(Code(0))", "closed"]
    );
}

/// The calls fail at once. The server has its grace period to finish, and is then terminated.
#[test]
fn a_client_that_is_shut_down_with_calls_in_flight() {
    let (outcomes, server, client) = the_same_everywhere(|mut stage| {
        let calls = [stage.tool("slow"), stage.tool("other")];
        stage.request();
        stage.request();
        shut_down(&mut stage);
        let outcomes = calls.map(|call| stage.outcome(call));
        let server = stage.server_said();
        assert_eq!(stage.pair.client().0.state(), State::Closing);
        stage.until(State::Closed);
        assert_eq!(stage.pair.now(), Instant::ZERO + seconds(2));
        (outcomes, server, stage.client_said())
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
fn a_client_that_is_shut_down_while_it_is_asked() {
    let seen = in_every_version(|mut stage| {
        let call = stage.tool("curious");
        let request = stage.request().request;
        let ask = stage.ask(request, "roots/list", Value::Null);
        stage.asked();
        shut_down(&mut stage);
        assert_eq!(stage.outcome(call), "failed Closed Unknown");
        assert_eq!(stage.answered(ask), "PeerGone");
        let server = stage.server_said();
        stage.until(State::Closed);
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
fn a_server_ends_by_itself_when_its_last_request_is_answered() {
    the_same_everywhere(|mut stage| {
        stage.tool("slow");
        let request = stage.request().request;
        shut_down(&mut stage);
        stage.pass(seconds(1));
        stage.respond(request, json!({}));
        stage.until(State::Closed);
        assert_eq!(stage.pair.now(), Instant::ZERO + seconds(1));
        stage.client_said()
    });
}

/// Open requests are answered, later ones are refused, and the next server takes over.
#[test]
fn a_server_that_is_shut_down_drains() {
    let (slow, late, server, client) = before_the_next_server(|mut stage| {
        let slow = stage.tool("slow");
        let request = stage.request().request;
        shut_server_down(&mut stage);
        let (far, _) = stage.pair.server();
        assert_eq!(far.state(), server::State::Draining);
        let late = stage.tool("late");
        let late = stage.outcome(late);
        stage.pass(seconds(3));
        stage.respond(request, json!({"content": []}));
        let slow = stage.outcome(slow);
        assert!(!stage.pair.has_server());
        let server = stage.server_said();
        stage.until(State::Ready);
        stage.settle();
        (slow, late, server, stage.client_said())
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
fn a_server_that_drains_too_long_tells_who_waits() {
    let (outcome, server) = before_the_next_server(|mut stage| {
        let call = stage.tool("slow");
        stage.request();
        shut_server_down(&mut stage);
        stage.until(State::Waiting);
        assert_eq!(stage.pair.now(), Instant::ZERO + seconds(5));
        (stage.outcome(call), stage.server_said())
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
fn a_server_that_drains_still_hears_answers() {
    before_the_next_server(|mut stage| {
        let call = stage.tool("curious");
        let request = stage.request().request;
        let ask = stage.ask(request, "roots/list", Value::Null);
        let asked = stage.asked().ask;
        shut_server_down(&mut stage);
        stage.pass(seconds(1));
        stage.answer(asked, json!({"roots": []}));
        assert_eq!(stage.answered(ask), r#"{"roots":[]}"#);
        stage.respond(request, json!({"content": []}));
        assert_eq!(stage.outcome(call), r#"reply {"content":[]}"#);
        assert!(!stage.pair.has_server());
    });
}

#[test]
fn a_server_that_is_idle_ends_at_once() {
    the_same_everywhere(|mut stage| {
        stage.watch(Watch::lists().and_uri("a:"));
        let (server, now) = stage.pair.server();
        server.shutdown(now);
        stage.settle();
        assert!(!stage.pair.has_server());
        assert_eq!(stage.pair.now(), Instant::ZERO);
        stage.until(State::Ready);
    });
}

/// A server dies with calls open. Calls that may be repeated are sent again, others fail, and nothing is delivered
/// twice.
#[test]
fn a_second_life_goes_on_where_the_first_was_cut_off() {
    let (outcomes, client) = the_same_everywhere(|mut stage| {
        stage.watch(Watch::lists().and_uri("a:").and_logs(LogLevel::Info));
        let harmful = stage.tool("pay");
        let harmless = stage.call("resources/read", json!({"uri": "a:"}));
        let list = stage.list(List::Tools);
        stage.request();
        stage.request();
        stage.request();
        stage.forget();
        stage.pair.kill_server(ExitStatus::Code(70));
        let harmful = stage.outcome(harmful);
        stage.until(State::Ready);

        let (mut harmless_seen, mut list_seen) = (0, 0);
        while let Some(request) = stage.try_request() {
            match &*request.method {
                "resources/read" => {
                    harmless_seen += 1;
                    stage.respond(request.request, json!({"contents": []}));
                }
                "tools/list" => {
                    list_seen += 1;
                    stage.respond(request.request, json!({"tools": []}));
                }
                other => panic!("{other} was repeated"),
            }
        }
        assert_eq!((harmless_seen, list_seen), (1, 1));
        let outcomes = [harmful, stage.outcome(harmless), stage.outcome(list)];
        stage.publish(Change::Resource { uri: "a:".into() });
        stage.publish(Change::List(List::Tools));
        (outcomes, stage.client_said())
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
fn last_words_are_heard() {
    the_same_everywhere(|mut stage| {
        let call = stage.tool("last");
        let request = stage.request().request;
        stage.respond(request, json!({"last": true}));
        // One step: the reply is written, and perhaps its beginning is read.
        stage.pair.step();
        stage.pair.kill_server(ExitStatus::Signal(11));
        stage.outcome(call)
    });
}

#[test]
fn a_request_of_one_life_is_nothing_to_the_next() {
    the_same_everywhere(|mut stage| {
        stage.tool("first");
        let first = stage.request().request;
        stage.pair.kill_server(ExitStatus::Code(1));
        stage.until(State::Ready);
        // The ids of a new server start again, and it must not accept a request id of the previous server.
        let (server, now) = stage.pair.server();
        let late = server.respond(now, first, "{}".parse().expect("JSON"));
        assert_eq!(late, Err(server::Misuse::UnknownRequest));
    });
}

#[test]
fn questions_die_with_the_life_that_asked() {
    the_same_everywhere(|mut stage| {
        let call = stage.call("resources/read", json!({"uri": "a:"}));
        let request = stage.request().request;
        stage.ask(request, "roots/list", Value::Null);
        let asked = stage.asked().ask;
        stage.pair.kill_server(ExitStatus::Code(1));
        stage.until(State::Ready);
        let (client, now) = stage.pair.client();
        let late = client.answer(now, asked, Ok("{}".parse().expect("JSON")));
        assert!(late.is_err(), "it was asked in another life");
        let again = stage.request();
        assert_eq!(again.input, None);
        stage.respond(again.request, json!({"contents": []}));
        stage.outcome(call)
    });
}

/// Each epoch may meet a different server, with another version and other capabilities.
#[test]
fn the_second_server_may_be_another_one() {
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
        let mut stage = Stage::new(Version::LATEST_MODERN, pair.cut(cut).recorded());
        stage.connect();
        let mut versions = Vec::new();
        for _ in 0..3 {
            stage.tool("who");
            let request = stage.request();
            versions.push(request.peer.version);
            stage.respond(request.request, json!({}));
            stage.settle();
            let (client, now) = stage.pair.client();
            let seen = client.epoch();
            client.reconnect(now, seen, "another one is there");
            stage.until(State::Waiting);
            stage.until(State::Ready);
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
fn a_planned_reconnect_waits_for_what_is_in_flight() {
    let (outcomes, client) = the_same_everywhere(|mut stage| {
        let early = stage.tool("early");
        let request = stage.request().request;
        let (client, now) = stage.pair.client();
        let seen = client.epoch();
        client.reconnect(now, seen, "a new version is installed");
        let late = stage.tool("late");
        stage.pass(seconds(1));
        assert!(stage.try_request().is_none(), "nothing new is sent");
        stage.respond(request, json!({"life": 1}));
        let early = stage.outcome(early);
        stage.until(State::Ready);
        let request = stage.request().request;
        stage.respond(request, json!({"life": 2}));
        ([early, stage.outcome(late)], stage.client_said())
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
fn a_hundred_lives() {
    let seen = in_every_version(|mut stage| {
        for life in 1..=100_u32 {
            let call = stage.tool("add");
            let request = stage.request().request;
            stage.respond(request, json!({"life": life}));
            let reply = format!(r#"reply {{"life":{life}}}"#);
            assert_eq!(stage.outcome(call), reply);
            // After 61 s the connection counts as good, so the next failure is the first one again.
            stage.pass(seconds(61));
            stage.pair.kill_server(ExitStatus::Code(1));
            stage.until(State::Ready);
            stage.forget();
        }
        stage.pair.client().0.epoch().number()
    });
    for (version, lives) in seen {
        assert_eq!(lives, 101, "{version}");
    }
}
