//! Messages that an end sends unasked: watched changes, log messages, notifications.

use everlink::client;
use everlink::protocol::{Era, LogLevel, Version};
use everlink::server;
use everlink::{Change, List, RequestId, Watch};
use serde_json::json;

use crate::pipe::stage::{
    Setup, Stage, in_every_cut, in_every_version, payload, seconds, the_same_everywhere,
};

fn resource(uri: &str) -> Change {
    Change::Resource { uri: uri.into() }
}

fn log(stage: &mut Stage, request: Option<RequestId>, level: LogLevel) {
    let (server, now) = stage.pair.server();
    let told = server.log(
        now,
        request,
        level,
        Some("far.end"),
        payload(&json!({"x": 1})),
    );
    told.expect("logging is offered");
}

#[test]
fn what_is_watched_is_heard_of_and_nothing_else() {
    let heard = the_same_everywhere(|mut stage| {
        let wish = Watch::lists().and_uri("file:///a").and_uri("test:x y");
        stage.watch(wish.clone());
        let mut heard = stage.client_said();
        assert_eq!(heard, [format!("watching {wish:?}")]);
        heard.clear();
        for change in [
            Change::List(List::Tools),
            resource("file:///a"),
            resource("file:///ab"),
            resource("file:///a/below"),
            resource("test:x y"),
            Change::List(List::Prompts),
            resource("file:///"),
            Change::List(List::Resources),
        ] {
            stage.publish(change);
            heard.extend(stage.client_said());
        }
        heard
    });
    assert_eq!(
        heard,
        [
            "changed List(Tools)",
            r#"changed Resource { uri: "file:///a" }"#,
            r#"changed Resource { uri: "file:///a/below" }"#,
            r#"changed Resource { uri: "test:x y" }"#,
            "changed List(Prompts)",
            "changed List(Resources)",
            "changed List(ResourceTemplates)",
        ]
    );
}

#[test]
fn what_changes_twice_before_it_is_said_is_said_once() {
    let heard = the_same_everywhere(|mut stage| {
        stage.watch(Watch::lists().and_uri("a:").and_uri("b:"));
        stage.forget();
        for change in [
            resource("a:"),
            resource("b:"),
            resource("a:"),
            resource("b:"),
        ] {
            stage.publish(change);
        }
        stage.client_said()
    });
    assert_eq!(
        heard,
        [
            r#"changed Resource { uri: "a:" }"#,
            r#"changed Resource { uri: "b:" }"#,
        ]
    );
}

/// The server's application is told only of watches that matter to it. In the legacy era lists are announced unasked.
#[test]
fn the_server_knows_what_is_watched() {
    let seen = in_every_version(|mut stage| {
        let watched = |stage: &mut Stage| {
            let said = stage.server_said();
            let told = said.into_iter().filter(|line| line.starts_with("Watching"));
            told.collect::<Vec<_>>()
        };
        stage.watch(Watch::lists().and_uri("a:"));
        let first = watched(&mut stage);
        stage.watch(Watch::lists().and_uri("a:").and_uri("b:"));
        let second = watched(&mut stage);
        stage.watch(Watch::none().and_uri("b:"));
        let third = watched(&mut stage);
        stage.watch(Watch::none());
        [first, second, third, watched(&mut stage)]
    });
    for (version, told) in seen {
        let lists = version.era() == Era::Modern;
        let watching = |lists: bool, uris: &[&str]| {
            let start = if lists { Watch::lists() } else { Watch::none() };
            let wish = uris.iter().fold(start, |wish, uri| wish.and_uri(*uri));
            format!("Watching({wish:?})")
        };
        let last = told.each_ref().map(|told| told.last().cloned());
        let expected = [
            watching(lists, &["a:"]),
            watching(lists, &["a:", "b:"]),
            watching(false, &["b:"]),
            watching(false, &[]),
        ];
        assert_eq!(last, expected.map(Some), "{version}");
    }
}

#[test]
fn a_watch_that_is_given_up_is_quiet() {
    let heard = the_same_everywhere(|mut stage| {
        stage.watch(Watch::none().and_uri("a:").and_uri("b:"));
        stage.watch(Watch::none().and_uri("b:"));
        stage.forget();
        stage.publish(resource("a:"));
        stage.publish(resource("b:"));
        let mut heard = stage.client_said();
        stage.watch(Watch::none());
        stage.publish(resource("b:"));
        heard.extend(stage.client_said());
        heard
    });
    assert_eq!(heard, [r#"changed Resource { uri: "b:" }"#]);
}

#[test]
fn only_what_is_offered_is_granted_or_published() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        let tools = everlink::protocol::ServerCapabilities::default()
            .with_tools(true)
            .with_resources(false, false);
        setup.server.offer = setup
            .server
            .offer
            .map(|offer| offer.with_capabilities(tools));
        in_every_cut(|cut| {
            let mut stage = setup.ready(cut);
            stage.watch(Watch::lists().and_uri("a:"));
            let mut granted = Watch::none();
            granted.tools = true;
            assert_eq!(stage.client_said(), [format!("watching {granted:?}")]);
            let (server, now) = stage.pair.server();
            for change in [
                Change::List(List::Prompts),
                Change::List(List::Resources),
                resource("a:"),
            ] {
                let refused = server.publish(now, change);
                assert!(matches!(refused, Err(server::Misuse::NotOffered { .. })));
            }
            let data = payload(&json!(1));
            let refused = server.log(now, None, LogLevel::Emergency, None, data);
            assert!(matches!(refused, Err(server::Misuse::NotOffered { .. })));
            stage.publish(Change::List(List::Tools));
            assert_eq!(stage.client_said(), ["changed List(Tools)"]);
        });
    }
}

/// Log messages of a running request are the same in both eras: from the wanted level up.
#[test]
fn the_log_of_a_request_is_heard_from_the_level_that_is_wished() {
    let heard = the_same_everywhere(|mut stage| {
        stage.watch(Watch::none().and_logs(LogLevel::Warning));
        let call = stage.tool("chatty");
        let request = stage.request().request;
        stage.forget();
        for level in LogLevel::ALL {
            log(&mut stage, Some(request), *level);
        }
        stage.respond(request, json!({}));
        assert_eq!(stage.outcome(call), "reply {}");
        stage.client_said()
    });
    assert_eq!(
        heard,
        ["Warning", "Error", "Critical", "Alert", "Emergency"]
            .map(|level| format!(r#"log {level} Some("far.end") {{"x":1}}"#))
    );
}

#[test]
fn the_level_can_be_changed() {
    let heard = the_same_everywhere(|mut stage| {
        let mut heard = Vec::new();
        for wish in [LogLevel::Error, LogLevel::Debug, LogLevel::Emergency] {
            stage.watch(Watch::none().and_logs(wish));
            stage.tool("chatty");
            let request = stage.request().request;
            stage.forget();
            log(&mut stage, Some(request), LogLevel::Error);
            log(&mut stage, Some(request), LogLevel::Info);
            heard.push(stage.client_said().len());
            stage.respond(request, json!({}));
        }
        heard
    });
    assert_eq!(heard, [1, 2, 0]);
}

/// A modern client gets log messages only while one of its requests runs that asked for them.
#[test]
fn a_log_without_a_request_is_heard_where_the_era_allows_it() {
    let seen = in_every_version(|mut stage| {
        stage.watch(Watch::none().and_logs(LogLevel::Info));
        stage.forget();
        log(&mut stage, None, LogLevel::Error);
        let alone = stage.client_said().len();
        stage.tool("quiet");
        stage.forget();
        log(&mut stage, None, LogLevel::Error);
        (alone, stage.client_said().len())
    });
    for (version, heard) in seen {
        let alone = usize::from(version.era() == Era::Legacy);
        assert_eq!(heard, (alone, 1), "{version}");
    }
}

#[test]
fn who_wishes_for_no_log_hears_none() {
    the_same_everywhere(|mut stage| {
        stage.watch(Watch::lists());
        stage.tool("chatty");
        let request = stage.request().request;
        stage.forget();
        log(&mut stage, Some(request), LogLevel::Emergency);
        log(&mut stage, None, LogLevel::Emergency);
        assert_eq!(stage.client_said(), Vec::<String>::new());
    });
}

#[test]
fn words_of_their_own_pass_between_applications() {
    let seen = the_same_everywhere(|mut stage| {
        let params = || Some(payload(&json!({"x": ["\n", "ü"]})));
        let (client, now) = stage.pair.client();
        client
            .notify(now, "com.example/a", params())
            .expect("nobody owns it");
        client
            .notify(now, "com.example/b", None)
            .expect("nobody owns it");
        let (server, now) = stage.pair.server();
        server
            .notify(now, "com.example/c", params())
            .expect("nobody owns it");
        server
            .notify(now, "com.example/d", None)
            .expect("nobody owns it");
        (stage.server_said(), stage.client_said())
    });
    let heard = |first: &str, second: &str| {
        [
            format!(r#"notified com.example/{first} {{"x":["\n","ü"]}}"#),
            format!("notified com.example/{second} nothing"),
        ]
    };
    assert_eq!(seen.0, heard("a", "b"));
    assert_eq!(seen.1, heard("c", "d"));
}

#[test]
fn what_was_not_declared_is_not_announced() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.capabilities = everlink::protocol::ClientCapabilities::default();
        in_every_cut(|cut| {
            let mut stage = setup.ready(cut);
            let (client, now) = stage.pair.client();
            for method in [
                "notifications/roots/list_changed",
                "notifications/tasks/status",
            ] {
                let refused = client.notify(now, method, None);
                assert!(matches!(
                    refused,
                    Err(client::Misuse::NotDeclared { .. } | client::Misuse::NotInVersion { .. })
                ));
            }
            let (server, now) = stage.pair.server();
            let told = server.notify(now, "notifications/elicitation/complete", None);
            told.expect("it is left out");
            assert_eq!(stage.client_said(), Vec::<String>::new());
            assert_eq!(stage.server_said(), Vec::<String>::new());
        });
    }
}

#[test]
fn a_server_that_can_watch_no_more_keeps_to_what_it_granted() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.server.limits.watched_uris = 2;
        let heard = in_every_cut(|cut| {
            let mut stage = setup.ready(cut);
            stage.watch(Watch::none().and_uri("a:").and_uri("b:"));
            stage.watch(Watch::none().and_uri("a:").and_uri("b:").and_uri("c:"));
            stage.pass(seconds(60));
            stage.forget();
            for uri in ["a:", "b:", "c:"] {
                stage.publish(resource(uri));
            }
            stage.client_said()
        });
        let granted = ["a:", "b:"].map(|uri| format!(r#"changed Resource {{ uri: "{uri}" }}"#));
        assert_eq!(heard, granted, "{version}");
    }
}

#[test]
fn a_full_server_lets_a_watch_be_replaced() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.server.limits.watched_uris = 2;
        setup.server.limits.listens = 1;
        let heard = in_every_cut(|cut| {
            let mut stage = setup.ready(cut);
            stage.watch(Watch::none().and_uri("a:").and_uri("b:"));
            stage.watch(Watch::none().and_uri("c:").and_uri("d:"));
            stage.pass(seconds(60));
            stage.forget();
            stage.publish(resource("c:"));
            stage.client_said()
        });
        assert_eq!(heard, [r#"changed Resource { uri: "c:" }"#], "{version}");
    }
}

#[test]
fn two_watches_at_one_time_are_one_to_the_application() {
    let heard = the_same_everywhere(|mut stage| {
        // The second watch comes before the first is acknowledged.
        let (client, now) = stage.pair.client();
        client.watch(now, Watch::none().and_uri("a:"));
        client.watch(now, Watch::none().and_uri("a:").and_uri("b:"));
        stage.forget();
        stage.publish(resource("a:"));
        stage.publish(resource("b:"));
        stage.client_said()
    });
    assert_eq!(
        heard,
        [
            r#"changed Resource { uri: "a:" }"#,
            r#"changed Resource { uri: "b:" }"#,
        ]
    );
}
