//! Messages that an end sends unasked: watched changes, log messages, notifications.

use everlink::client;
use everlink::protocol::{Era, LogLevel, Version};
use everlink::server;
use everlink::{Change, List, RequestId, Watch};
use serde_json::json;

use crate::pipe::harness::{
    Harness, Setup, in_every_cut, in_every_version, payload, same_result_in_every_version, seconds,
};

fn resource(uri: &str) -> Change {
    Change::Resource { uri: uri.into() }
}

fn log(harness: &mut Harness, request: Option<RequestId>, level: LogLevel) {
    let (server, now) = harness.pair.server();
    let sent = server.log(
        now,
        request,
        level,
        Some("far.end"),
        payload(&json!({"x": 1})),
    );
    sent.expect("logging is offered");
}

#[test]
fn only_watched_changes_are_reported() {
    let received = same_result_in_every_version(|mut harness| {
        let watch = Watch::lists().and_uri("file:///a").and_uri("test:x y");
        harness.watch(watch.clone());
        let mut received = harness.client_event_texts();
        assert_eq!(received, [format!("watching {watch:?}")]);
        received.clear();
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
            harness.publish(change);
            received.extend(harness.client_event_texts());
        }
        received
    });
    assert_eq!(
        received,
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
fn repeated_changes_of_a_resource_are_merged_into_one_notification() {
    let received = same_result_in_every_version(|mut harness| {
        harness.watch(Watch::lists().and_uri("a:").and_uri("b:"));
        harness.drop_events();
        for change in [
            resource("a:"),
            resource("b:"),
            resource("a:"),
            resource("b:"),
        ] {
            harness.publish(change);
        }
        harness.client_event_texts()
    });
    assert_eq!(
        received,
        [
            r#"changed Resource { uri: "a:" }"#,
            r#"changed Resource { uri: "b:" }"#,
        ]
    );
}

/// The server's application is told only of watches that matter to it. In the legacy era lists are announced unasked.
#[test]
fn server_application_is_told_the_current_watch() {
    let seen = in_every_version(|mut harness| {
        let watched = |harness: &mut Harness| {
            let events = harness.server_event_texts();
            let watching = events
                .into_iter()
                .filter(|line| line.starts_with("Watching"));
            watching.collect::<Vec<_>>()
        };
        harness.watch(Watch::lists().and_uri("a:"));
        let first = watched(&mut harness);
        harness.watch(Watch::lists().and_uri("a:").and_uri("b:"));
        let second = watched(&mut harness);
        harness.watch(Watch::none().and_uri("b:"));
        let third = watched(&mut harness);
        harness.watch(Watch::none());
        [first, second, third, watched(&mut harness)]
    });
    for (version, reported) in seen {
        let lists = version.era() == Era::Modern;
        let watching = |lists: bool, uris: &[&str]| {
            let start = if lists { Watch::lists() } else { Watch::none() };
            let watch = uris.iter().fold(start, |watch, uri| watch.and_uri(*uri));
            format!("Watching({watch:?})")
        };
        let last = reported.each_ref().map(|texts| texts.last().cloned());
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
fn ended_watch_reports_no_changes() {
    let received = same_result_in_every_version(|mut harness| {
        harness.watch(Watch::none().and_uri("a:").and_uri("b:"));
        harness.watch(Watch::none().and_uri("b:"));
        harness.drop_events();
        harness.publish(resource("a:"));
        harness.publish(resource("b:"));
        let mut received = harness.client_event_texts();
        harness.watch(Watch::none());
        harness.publish(resource("b:"));
        received.extend(harness.client_event_texts());
        received
    });
    assert_eq!(received, [r#"changed Resource { uri: "b:" }"#]);
}

#[test]
fn watches_and_changes_that_are_not_offered_are_refused() {
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
            let mut harness = setup.ready(cut);
            harness.watch(Watch::lists().and_uri("a:"));
            let mut granted = Watch::none();
            granted.tools = true;
            assert_eq!(
                harness.client_event_texts(),
                [format!("watching {granted:?}")]
            );
            let (server, now) = harness.pair.server();
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
            harness.publish(Change::List(List::Tools));
            assert_eq!(harness.client_event_texts(), ["changed List(Tools)"]);
        });
    }
}

/// Log messages of a running request are the same in both eras: from the wanted level up.
#[test]
fn log_messages_of_a_request_are_delivered_from_the_watched_level_up() {
    let received = same_result_in_every_version(|mut harness| {
        harness.watch(Watch::none().and_logs(LogLevel::Warning));
        let call = harness.tool("chatty");
        let request = harness.request().request;
        harness.drop_events();
        for level in LogLevel::ALL {
            log(&mut harness, Some(request), *level);
        }
        harness.respond(request, json!({}));
        assert_eq!(harness.outcome(call), "reply {}");
        harness.client_event_texts()
    });
    assert_eq!(
        received,
        ["Warning", "Error", "Critical", "Alert", "Emergency"]
            .map(|level| format!(r#"log {level} Some("far.end") {{"x":1}}"#))
    );
}

#[test]
fn log_level_can_be_changed() {
    let received = same_result_in_every_version(|mut harness| {
        let mut received = Vec::new();
        for level in [LogLevel::Error, LogLevel::Debug, LogLevel::Emergency] {
            harness.watch(Watch::none().and_logs(level));
            harness.tool("chatty");
            let request = harness.request().request;
            harness.drop_events();
            log(&mut harness, Some(request), LogLevel::Error);
            log(&mut harness, Some(request), LogLevel::Info);
            received.push(harness.client_event_texts().len());
            harness.respond(request, json!({}));
        }
        received
    });
    assert_eq!(received, [1, 2, 0]);
}

/// A modern client gets log messages only while one of its requests runs that asked for them.
#[test]
fn log_message_without_a_request_reaches_a_modern_client_only_while_a_request_runs() {
    let seen = in_every_version(|mut harness| {
        harness.watch(Watch::none().and_logs(LogLevel::Info));
        harness.drop_events();
        log(&mut harness, None, LogLevel::Error);
        let alone = harness.client_event_texts().len();
        harness.tool("quiet");
        harness.drop_events();
        log(&mut harness, None, LogLevel::Error);
        (alone, harness.client_event_texts().len())
    });
    for (version, received) in seen {
        let alone = usize::from(version.era() == Era::Legacy);
        assert_eq!(received, (alone, 1), "{version}");
    }
}

#[test]
fn client_that_watches_no_logs_receives_none() {
    same_result_in_every_version(|mut harness| {
        harness.watch(Watch::lists());
        harness.tool("chatty");
        let request = harness.request().request;
        harness.drop_events();
        log(&mut harness, Some(request), LogLevel::Emergency);
        log(&mut harness, None, LogLevel::Emergency);
        assert_eq!(harness.client_event_texts(), Vec::<String>::new());
    });
}

#[test]
fn custom_notifications_pass_between_applications() {
    let seen = same_result_in_every_version(|mut harness| {
        let params = || Some(payload(&json!({"x": ["\n", "ü"]})));
        let (client, now) = harness.pair.client();
        client
            .notify(now, "com.example/a", params())
            .expect("an application may send it");
        client
            .notify(now, "com.example/b", None)
            .expect("an application may send it");
        let (server, now) = harness.pair.server();
        server
            .notify(now, "com.example/c", params())
            .expect("an application may send it");
        server
            .notify(now, "com.example/d", None)
            .expect("an application may send it");
        (harness.server_event_texts(), harness.client_event_texts())
    });
    let expected = |first: &str, second: &str| {
        [
            format!(r#"notified com.example/{first} {{"x":["\n","ü"]}}"#),
            format!("notified com.example/{second} nothing"),
        ]
    };
    assert_eq!(seen.0, expected("a", "b"));
    assert_eq!(seen.1, expected("c", "d"));
}

#[test]
fn notifications_for_undeclared_features_are_refused_or_dropped() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.client.capabilities = everlink::protocol::ClientCapabilities::default();
        in_every_cut(|cut| {
            let mut harness = setup.ready(cut);
            let (client, now) = harness.pair.client();
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
            let (server, now) = harness.pair.server();
            let sent = server.notify(now, "notifications/elicitation/complete", None);
            sent.expect("an undeclared notification is dropped");
            assert_eq!(harness.client_event_texts(), Vec::<String>::new());
            assert_eq!(harness.server_event_texts(), Vec::<String>::new());
        });
    }
}

#[test]
fn server_at_its_watch_limit_keeps_the_granted_watches() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.server.limits.watched_uris = 2;
        let received = in_every_cut(|cut| {
            let mut harness = setup.ready(cut);
            harness.watch(Watch::none().and_uri("a:").and_uri("b:"));
            harness.watch(Watch::none().and_uri("a:").and_uri("b:").and_uri("c:"));
            harness.advance(seconds(60));
            harness.drop_events();
            for uri in ["a:", "b:", "c:"] {
                harness.publish(resource(uri));
            }
            harness.client_event_texts()
        });
        let granted = ["a:", "b:"].map(|uri| format!(r#"changed Resource {{ uri: "{uri}" }}"#));
        assert_eq!(received, granted, "{version}");
    }
}

#[test]
fn watch_can_be_replaced_at_a_server_that_is_at_its_limits() {
    for &version in Version::ALL {
        let mut setup = Setup::new(version);
        setup.server.limits.watched_uris = 2;
        setup.server.limits.listens = 1;
        let received = in_every_cut(|cut| {
            let mut harness = setup.ready(cut);
            harness.watch(Watch::none().and_uri("a:").and_uri("b:"));
            harness.watch(Watch::none().and_uri("c:").and_uri("d:"));
            harness.advance(seconds(60));
            harness.drop_events();
            harness.publish(resource("c:"));
            harness.client_event_texts()
        });
        assert_eq!(received, [r#"changed Resource { uri: "c:" }"#], "{version}");
    }
}

#[test]
fn second_watch_before_the_first_is_acknowledged_reports_each_change_once() {
    let received = same_result_in_every_version(|mut harness| {
        // The second watch comes before the first is acknowledged.
        let (client, now) = harness.pair.client();
        client.watch(now, Watch::none().and_uri("a:"));
        client.watch(now, Watch::none().and_uri("a:").and_uri("b:"));
        harness.drop_events();
        harness.publish(resource("a:"));
        harness.publish(resource("b:"));
        harness.client_event_texts()
    });
    assert_eq!(
        received,
        [
            r#"changed Resource { uri: "a:" }"#,
            r#"changed Resource { uri: "b:" }"#,
        ]
    );
}
