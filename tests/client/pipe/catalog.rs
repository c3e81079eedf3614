//! The lists of a server and the watch on it: how long a list is valid, and what a new epoch changes. Rows F-088 to
//! F-093 of the failures; S-CACHE and S-SUB of the requirements.

use everlink::client::{Event, FailureKind, Outcome, State};
use everlink::protocol::LogLevel;
use everlink::{Change, Config, ExitStatus, List, Watch};
use serde_json::{Value, json};

use crate::client_pipe::{
    self, Act, Harness, Peer, all_capabilities, config, dies, error, millis, notify, reply, seconds,
};
use crate::eras::{BOTH_ERAS, legacy, ready};

const CRASH: ExitStatus = ExitStatus::Code(1);

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";

fn changes(harness: &Harness) -> Vec<Change> {
    harness.pick_events(|event| match event {
        Event::Changed(change) => Some(change.clone()),
        _ => None,
    })
}

fn granted(harness: &Harness) -> Vec<Watch> {
    let grants = harness.granted().into_iter();
    grants.map(|(_, granted)| granted).collect()
}

/// The names of the items in the outcome of a `list` call.
fn listed(harness: &Harness, call: everlink::CallId) -> Vec<String> {
    let Outcome::Listed(listing) = harness.outcome(call) else {
        panic!("{call} has no list: {:?}", harness.outcome(call));
    };
    let name = |item: &everlink::Payload| {
        let item: Value = item.parse().expect("an item is JSON");
        item["name"].as_str().expect("a tool has a name").into()
    };
    listing.items.iter().map(name).collect()
}

/// Whether the link would return a list from its cache now.
fn is_fresh(harness: &mut Harness, list: List) -> bool {
    harness.with_link(|link, now| link.handle_timeout(now));
    harness.link().is_fresh(harness.now(), list)
}

fn is_modern(harness: &Harness) -> bool {
    let session = harness.link().session().expect("the link is ready");
    session.version.era() == everlink::protocol::Era::Modern
}

/// A change notification of a server of this era.
fn change_notification(harness: &Harness, method: &str) -> Act {
    let params = if is_modern(harness) {
        let id = harness.last_message("subscriptions/listen")["id"].clone();
        json!({"_meta": {"io.modelcontextprotocol/subscriptionId": id}})
    } else {
        json!({})
    };
    notify(method, params)
}

/// A server whose only tool is named after the number of reads of the list. A modern server gives the list a lifetime
/// of one hour.
fn counting_reads(server: fn() -> Peer) -> Peer {
    let mut reads = 0;
    server().replies("tools/list", move |_| {
        reads += 1;
        json!({"tools": [{"name": format!("tool-{reads}")}], "ttlMs": 3_600_000, "cacheScope": "private"})
    })
}

/// A server with pages. Each page has its cursor, its result and its delay in milliseconds.
fn with_pages(server: fn() -> Peer, pages: &'static [(&str, &str, u64)]) -> Peer {
    server().on("tools/list", move |request| {
        let cursor = request["params"]["cursor"].as_str().unwrap_or("first");
        let page = pages.iter().find(|(at, ..)| *at == cursor);
        match page {
            Some((_, result, delay)) => {
                let result: Value = serde_json::from_str(result).expect("a page is JSON");
                vec![reply(request, result).after(millis(*delay))]
            }
            None => vec![error(request, -32602, "no such cursor")],
        }
    })
}

#[test]
fn f_088_changed_list_is_reported_and_read_again_on_the_next_list_call() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || counting_reads(server));
        let first = harness.list(List::Tools);
        assert_eq!(listed(&harness, first), ["tool-1"]);
        assert!(is_fresh(&mut harness, List::Tools));
        let again = harness.list(List::Tools);
        assert_eq!(listed(&harness, again), ["tool-1"], "from the cache");
        assert_eq!(harness.messages_with("tools/list").len(), 1);

        harness.perform(change_notification(&harness, TOOLS_CHANGED));
        assert_eq!(changes(&harness), [Change::List(List::Tools)]);
        assert!(!is_fresh(&mut harness, List::Tools), "S-CACHE-09");
        assert!(
            harness.link().held(List::Tools).is_some(),
            "stale, but still held"
        );
        assert_eq!(
            harness.messages_with("tools/list").len(),
            1,
            "S-CACHE-06: no caller asked for the list"
        );
        let fresh = harness.list(List::Tools);
        assert_eq!(listed(&harness, fresh), ["tool-2"]);
        harness.finish();
    }
}

#[test]
fn f_088_each_change_notification_reports_its_own_lists() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), server);
        harness.perform(change_notification(&harness, PROMPTS_CHANGED));
        harness.perform(change_notification(&harness, RESOURCES_CHANGED));
        let expected = [List::Prompts, List::Resources, List::ResourceTemplates];
        assert_eq!(changes(&harness), expected.map(Change::List));
        harness.finish();
    }
}

#[test]
fn f_088_changed_list_becomes_stale_even_without_a_watch() {
    let mut config = config();
    config.watch = Watch::none();
    let mut harness = ready(config, || counting_reads(legacy));
    harness.list(List::Tools);
    harness.perform(notify(TOOLS_CHANGED, json!({})));
    assert!(changes(&harness).is_empty());
    assert!(!is_fresh(&mut harness, List::Tools));
    harness.finish();
}

#[test]
fn f_088_list_that_changes_while_it_is_read_is_stale_afterwards() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            counting_reads(server).ignores("tools/list")
        });
        let list = harness.list(List::Tools);
        let request = harness.last_message("tools/list");
        harness.perform(change_notification(&harness, TOOLS_CHANGED));
        let page = json!({"tools": [{"name": "old"}], "ttlMs": 3_600_000});
        harness.perform(reply(&request, page));
        assert_eq!(listed(&harness, list), ["old"]);
        assert!(!is_fresh(&mut harness, List::Tools));
        harness.finish();
    }
}

#[test]
fn f_089_new_epoch_makes_a_list_stale_until_it_is_read_again() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || counting_reads(server));
        let first = harness.list(List::Tools);
        assert_eq!(listed(&harness, first), ["tool-1"]);
        harness.perform_all(dies(CRASH));
        assert!(!is_fresh(&mut harness, List::Tools));
        harness.until_ready();
        assert!(!is_fresh(&mut harness, List::Tools));
        let before = harness
            .link()
            .held(List::Tools)
            .map(|held| held.epoch.number());
        assert_eq!(before, Some(1), "the held list names its epoch");
        let second = harness.list(List::Tools);
        assert_eq!(listed(&harness, second), ["tool-1"], "of the new server");
        assert_eq!(harness.messages_with("tools/list").len(), 2);
        let after = harness
            .link()
            .held(List::Tools)
            .map(|held| held.epoch.number());
        assert_eq!(after, Some(2));
        harness.finish();
    }
}

#[test]
fn f_089_list_interrupted_by_a_crash_restarts_in_the_next_epoch() {
    for server in BOTH_ERAS {
        let mut harness = Harness::new(config()).served_by(move |epoch| match epoch {
            // The server dies between two pages.
            1 => server().on("tools/list", |request| {
                match request["params"]["cursor"].as_str() {
                    None => vec![reply(
                        request,
                        json!({"tools": [{"name": "of the first epoch"}], "nextCursor": "2"}),
                    )],
                    Some(_) => dies(CRASH),
                }
            }),
            _ => counting_reads(server),
        });
        harness.until_ready();
        let list = harness.list(List::Tools);
        harness.until_done(list);
        assert_eq!(
            listed(&harness, list),
            ["tool-1"],
            "items of two epochs are not mixed"
        );
        // S-CACHE-12: the cursor of the first epoch is not sent to the second.
        assert!(harness.last_message("tools/list")["params"]["cursor"].is_null());
        harness.finish();
    }
}

#[test]
fn f_090_many_changes_before_a_poll_are_reported_as_one_event() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), server);
        let burst = vec![change_notification(&harness, TOOLS_CHANGED); 1_000];
        harness.perform(Act::AtOnce(burst));
        assert_eq!(changes(&harness), [Change::List(List::Tools)]);
        harness.perform(change_notification(&harness, TOOLS_CHANGED));
        assert_eq!(
            changes(&harness).len(),
            2,
            "the next change is reported again"
        );
        harness.finish();
    }
}

#[test]
fn f_090_concurrent_list_calls_share_one_request() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            counting_reads(server).ignores("tools/list")
        });
        let calls: Vec<_> = (0..50).map(|_| harness.list(List::Tools)).collect();
        assert_eq!(harness.messages_with("tools/list").len(), 1);
        let request = harness.last_message("tools/list");
        harness.perform(reply(&request, json!({"tools": [{"name": "one"}]})));
        for call in calls {
            assert_eq!(listed(&harness, call), ["one"]);
        }
        harness.finish();
    }
}

#[test]
fn f_090_list_call_after_a_change_gets_a_list_read_after_the_change() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/list"));
        let before = harness.list(List::Tools);
        let first = harness.last_message("tools/list");
        harness.perform(change_notification(&harness, TOOLS_CHANGED));
        let after = harness.list(List::Tools);
        harness.perform(reply(&first, json!({"tools": [{"name": "old"}]})));
        assert_eq!(listed(&harness, before), ["old"]);
        assert!(!harness.is_done(after));
        let second = harness.last_message("tools/list");
        assert_ne!(first["id"], second["id"]);
        harness.perform(reply(&second, json!({"tools": [{"name": "new"}]})));
        assert_eq!(listed(&harness, after), ["new"]);
        harness.finish();
    }
}

#[test]
fn f_090_cancelled_list_call_does_not_block_a_call_after_a_change() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/list"));
        let before = harness.list(List::Tools);
        harness.perform(change_notification(&harness, TOOLS_CHANGED));
        let after = harness.list(List::Tools);
        harness.cancel(before, "never mind");
        let request = harness.last_message("tools/list");
        harness.perform(reply(&request, json!({"tools": [{"name": "new"}]})));
        assert_eq!(listed(&harness, after), ["new"]);
        harness.finish();
    }
}

#[test]
fn f_063_list_that_times_out_is_cancelled_at_the_server() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/list"));
        let list = harness.list(List::Tools);
        harness.until_done(list);
        assert_eq!(harness.failure(list).after, seconds(60));
        let cancel = harness.last_message("notifications/cancelled");
        assert_eq!(
            cancel["params"]["requestId"],
            harness.last_message("tools/list")["id"]
        );
        harness.finish();
    }
}

#[test]
fn f_090_shared_list_request_is_cancelled_only_with_its_last_caller() {
    let mut harness = ready(config(), || counting_reads(legacy).ignores("tools/list"));
    let (leaves, stays) = (harness.list(List::Tools), harness.list(List::Tools));
    harness.cancel(leaves, "never mind");
    assert!(harness.messages_with("notifications/cancelled").is_empty());
    let request = harness.last_message("tools/list");
    harness.perform(reply(&request, json!({"tools": [{"name": "one"}]})));
    assert_eq!(listed(&harness, stays), ["one"]);
    let last = harness.list(List::Prompts);
    harness.cancel(last, "never mind");
    let cancel = harness.last_message("notifications/cancelled");
    let request = harness.last_message("prompts/list");
    assert_eq!(cancel["params"]["requestId"], request["id"]);
    harness.finish();
}

#[test]
fn f_091_server_that_refuses_watches_is_asked_once_and_kept() {
    let mut harness = ready(config(), || {
        counting_reads(Peer::modern).refuses("subscriptions/listen", -32601)
    });
    assert_eq!(
        granted(&harness),
        [Watch::none()],
        "the application is told"
    );
    harness.advance(seconds(3_600));
    assert_eq!(harness.messages_with("subscriptions/listen").len(), 1);
    assert_eq!((harness.state(), harness.epoch_number()), (State::Ready, 1));
    // Only the lifetime of the list remains.
    let first = harness.list(List::Tools);
    harness.advance(seconds(3_601));
    let second = harness.list(List::Tools);
    assert_eq!(listed(&harness, first), ["tool-1"]);
    assert_eq!(listed(&harness, second), ["tool-2"]);
    harness.finish();
}

#[test]
fn f_091_unacknowledged_watch_is_reported_as_none_and_can_be_acknowledged_later() {
    let mut harness = ready(config(), || Peer::modern().ignores("subscriptions/listen"));
    assert!(granted(&harness).is_empty());
    let call = harness.call_tool("add");
    assert!(
        harness.is_done(call),
        "the call does not wait for the watch"
    );
    harness.advance(seconds(11));
    assert_eq!(granted(&harness), [Watch::none()]);
    // S-SUB-18: a watch is no call and does not time out. A late acknowledgement still counts.
    harness.advance(seconds(7_200));
    assert_eq!((harness.state(), harness.epoch_number()), (State::Ready, 1));
    assert!(harness.messages_with("notifications/cancelled").is_empty());
    let listen = harness.last_message("subscriptions/listen");
    harness.perform(acknowledged(&listen, &json!({"toolsListChanged": true})));
    assert!(granted(&harness)[1].tools);
    harness.finish();
}

#[test]
fn f_091_permanent_end_of_a_watch_is_reported() {
    let mut harness = ready(config(), Peer::modern);
    assert_eq!(granted(&harness), [Watch::lists()]);
    let listen = harness.last_message("subscriptions/listen");
    harness.perform(error(&listen, -32601, "not any more"));
    assert_eq!(granted(&harness), [Watch::lists(), Watch::none()]);
    harness.advance(seconds(3_600));
    assert_eq!(harness.messages_with("subscriptions/listen").len(), 1);
    assert_eq!(granted(&harness).len(), 2);
    harness.finish();
}

fn acknowledged(listen: &Value, notifications: &Value) -> Act {
    notify(
        "notifications/subscriptions/acknowledged",
        json!({
            "_meta": {"io.modelcontextprotocol/subscriptionId": listen["id"]},
            "notifications": notifications,
        }),
    )
}

fn config_watching(watch: Watch) -> Config {
    let mut config = config();
    config.watch = watch;
    config
}

/// S-LIFE-12: subscriptions end with their process, so each process gets them anew.
#[test]
fn f_092_watch_is_repeated_in_every_epoch_and_its_grant_is_reported() {
    for server in BOTH_ERAS {
        let watch = Watch::lists().and_uri("file:///a").and_uri("file:///b");
        let mut harness = ready(config_watching(watch.clone()), move || {
            server().replies("resources/subscribe", |_| json!({}))
        });
        for epoch in 1..=3 {
            harness.until_ready();
            harness.advance(millis(1));
            let methods = harness.methods_of(epoch);
            let times = |method| methods.iter().filter(|sent| **sent == method).count();
            if is_modern(&harness) {
                // S-SUB-15
                assert_eq!(times("subscriptions/listen"), 1);
                let filter =
                    &harness.last_message("subscriptions/listen")["params"]["notifications"];
                let uris = json!(["file:///a", "file:///b"]);
                assert_eq!(filter["resourceSubscriptions"], uris);
            } else {
                assert_eq!(times("resources/subscribe"), 2);
            }
            let grants = harness.granted();
            assert_eq!(grants.len() as u64, epoch);
            assert_eq!(grants.last(), Some(&(epoch, watch.clone())));
            harness.perform_all(dies(CRASH));
        }
        harness.finish();
    }
}

#[test]
fn f_092_watch_set_before_the_handshake_is_requested_after_it() {
    for server in BOTH_ERAS {
        let mut harness = Harness::new(config_watching(Watch::none()))
            .served_by(move |_| server().replies("resources/subscribe", |_| json!({})));
        harness.watch(Watch::none().and_uri("file:///a"));
        harness.until_ready();
        harness.advance(millis(1));
        assert_eq!(granted(&harness), [Watch::none().and_uri("file:///a")]);
        harness.finish();
    }
}

#[test]
fn f_092_changed_legacy_watch_sends_only_the_differences() {
    let watch = Watch::none().and_uri("file:///a").and_uri("file:///b");
    let mut harness = ready(config_watching(watch), || {
        legacy()
            .replies("resources/subscribe", |_| json!({}))
            .replies("resources/unsubscribe", |_| json!({}))
    });
    harness.watch(Watch::none().and_uri("file:///b").and_uri("file:///c"));
    let uris = |method| -> Vec<Value> {
        let requests = harness.messages_with(method).into_iter();
        requests
            .map(|request| request["params"]["uri"].clone())
            .collect()
    };
    let subscribed = ["file:///a", "file:///b", "file:///c"];
    assert_eq!(uris("resources/subscribe"), subscribed);
    assert_eq!(uris("resources/unsubscribe"), ["file:///a"]);
    let latest = granted(&harness).pop();
    let wanted = Watch::none().and_uri("file:///b").and_uri("file:///c");
    assert_eq!(latest, Some(wanted));
    harness.finish();
}

#[test]
fn f_109_newest_watch_is_sent_when_the_server_reads_again() {
    for server in BOTH_ERAS {
        let mut config = config_watching(Watch::none());
        config.limits.write_window = 1;
        let mut harness = ready(config, server);
        harness.peer_stops_reading();
        let uri = |number: usize| format!("file:///{number}");
        for number in 0..1_000 {
            harness.watch(Watch::none().and_uri(uri(number)));
        }
        for _ in 0..2_000 {
            harness.perform(Act::Sent(usize::MAX));
        }
        let method = if is_modern(&harness) {
            "subscriptions/listen"
        } else {
            "resources/subscribe"
        };
        let requests = harness.messages_with(method);
        assert!(requests.len() < 300, "{} were kept", requests.len());
        let newest = requests.last().map(|request| request.to_string());
        assert!(newest.is_some_and(|request| request.contains(&uri(999))));
        harness.finish();
    }
}

/// The server is alive but reads nothing for hours, and the watch is set up again and again.
#[test]
fn watch_waits_only_once_for_a_server_that_does_not_read() {
    let mut watch = Watch::none();
    for number in 0..50 {
        watch = watch.and_uri(format!("file:///{number}"));
    }
    let mut config = config_watching(Watch::none());
    config.limits.write_window = 1;
    let mut harness = ready(config, legacy);
    harness.peer_stops_reading();
    harness.watch(watch);
    for _ in 0..100 {
        harness.advance(seconds(60));
    }
    for _ in 0..1_000 {
        harness.perform(Act::Sent(usize::MAX));
    }
    // The first one was being written.
    let cancelled = harness.messages_with("notifications/cancelled").len();
    assert!(cancelled <= 1, "{cancelled} were cancelled");
    let requests = harness.messages_with("resources/subscribe").len();
    assert!(requests <= 50 + 1, "{requests} were sent");
    harness.finish();
}

#[test]
fn s_cap_09_legacy_server_gets_the_log_level_in_every_epoch() {
    let watch = Watch::none().and_logs(LogLevel::Warning);
    let mut harness = ready(config_watching(watch), || {
        legacy().replies("logging/setLevel", |_| json!({}))
    });
    let log = |level| {
        notify(
            "notifications/message",
            json!({"level": level, "data": "x"}),
        )
    };
    harness.perform(log("info"));
    harness.perform(log("error"));
    harness.perform(log("deafening"));
    let levels = harness.pick_events(|event| match event {
        Event::Log { level, .. } => Some(*level),
        _ => None,
    });
    assert_eq!(levels, [LogLevel::Error]);
    harness.perform_all(dies(CRASH));
    harness.until_ready();
    let requests = harness.messages_with("logging/setLevel");
    assert_eq!(requests.len(), 2);
    assert!(
        requests
            .iter()
            .all(|request| request["params"]["level"] == "warning")
    );
    harness.finish();
}

#[test]
fn s_cap_06_log_of_exactly_the_watched_level_is_reported() {
    for server in BOTH_ERAS {
        let watch = Watch::none().and_logs(LogLevel::Warning);
        let mut harness = ready(config_watching(watch), move || {
            server().replies("logging/setLevel", |_| json!({}))
        });
        for level in ["notice", "warning"] {
            let params = json!({"level": level, "data": "x"});
            harness.perform(notify("notifications/message", params));
        }
        let levels = harness.pick_events(|event| match event {
            Event::Log { level, .. } => Some(*level),
            _ => None,
        });
        assert_eq!(levels, [LogLevel::Warning]);
        harness.finish();
    }
}

#[test]
fn s_cap_06_modern_request_carries_the_log_level() {
    let mut harness = ready(
        config_watching(Watch::none().and_logs(LogLevel::Debug)),
        Peer::modern,
    );
    harness.call_tool("add");
    let meta = &harness.last_message("tools/call")["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/logLevel"], "debug");
    harness.watch(Watch::none());
    harness.call_tool("add");
    let meta = harness.last_message("tools/call")["params"]["_meta"].clone();
    assert!(meta["io.modelcontextprotocol/logLevel"].is_null());
    harness.finish();
}

#[test]
fn f_093_list_joins_all_its_pages() {
    const PAGES: &[(&str, &str, u64)] = &[
        (
            "first",
            r#"{"tools":[{"name":"a"}],"nextCursor":"\u0032 \/"}"#,
            0,
        ),
        // S-CACHE-11: an empty page is not the end, and neither is an empty cursor.
        ("2 /", r#"{"tools":[],"nextCursor":""}"#, 0),
        (
            "",
            r#"{"tools":[{"name":"b"},{"name":"c"}],"nextCursor":null}"#,
            0,
        ),
    ];
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || with_pages(server, PAGES));
        let list = harness.list(List::Tools);
        assert_eq!(listed(&harness, list), ["a", "b", "c"]);
        assert_eq!(harness.messages_with("tools/list").len(), 3);
        harness.finish();
    }
}

#[test]
fn f_093_each_page_extends_the_idle_limit() {
    const PAGES: &[(&str, &str, u64)] = &[
        (
            "first",
            r#"{"tools":[{"name":"a"}],"nextCursor":"2"}"#,
            50_000,
        ),
        ("2", r#"{"tools":[{"name":"b"}],"nextCursor":"3"}"#, 50_000),
        ("3", r#"{"tools":[{"name":"c"}]}"#, 50_000),
    ];
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || with_pages(server, PAGES));
        let list = harness.list(List::Tools);
        harness.until_done(list);
        assert_eq!(listed(&harness, list), ["a", "b", "c"]);
        harness.finish();
    }
}

#[test]
fn s_cache_10_invalid_cursor_restarts_the_list_once() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            let mut reads = 0;
            server().on("tools/list", move |request| {
                reads += 1;
                vec![match (reads, request["params"]["cursor"].as_str()) {
                    (1, None) => reply(
                        request,
                        json!({"tools": [{"name": "old"}], "nextCursor": "x"}),
                    ),
                    (2, Some("x")) => error(request, -32602, "that cursor is gone"),
                    (3, None) => reply(
                        request,
                        json!({"tools": [{"name": "new"}], "nextCursor": "y"}),
                    ),
                    (4, Some("y")) => reply(request, json!({"tools": [{"name": "newer"}]})),
                    other => panic!("{other:?} was asked for"),
                }]
            })
        });
        let list = harness.list(List::Tools);
        assert_eq!(listed(&harness, list), ["new", "newer"]);
        assert_eq!(harness.messages_with("tools/list").len(), 4);
        harness.finish();
    }
}

#[test]
fn s_cache_10_second_invalid_cursor_ends_the_list_with_the_servers_error() {
    const PAGES: &[(&str, &str, u64)] = &[(
        "first",
        r#"{"tools":[{"name":"a"}],"nextCursor":"gone"}"#,
        0,
    )];
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || with_pages(server, PAGES));
        let list = harness.list(List::Tools);
        assert!(matches!(harness.outcome(list), Outcome::Error(error) if error.code == -32602));
        assert_eq!(
            harness.messages_with("tools/list").len(),
            4,
            "twice, two pages each"
        );
        harness.finish();
    }
}

#[test]
fn f_093_list_with_endless_or_repeated_cursors_fails_as_invalid() {
    for server in BOTH_ERAS {
        let mut config = config();
        config.limits.pages = 20;
        let mut harness = ready(config, move || {
            let mut page = 0;
            server().replies("tools/list", move |_| {
                page += 1;
                json!({"tools": [], "nextCursor": page.to_string()})
            })
        });
        let list = harness.list(List::Tools);
        assert!(matches!(
            harness.failure(list).kind,
            FailureKind::Invalid { .. }
        ));
        assert_eq!(harness.messages_with("tools/list").len(), 20);
        harness.finish();

        let mut harness = ready(self::config(), move || {
            server().replies("tools/list", |_| json!({"tools": [], "nextCursor": "same"}))
        });
        let list = harness.list(List::Tools);
        assert!(matches!(
            harness.failure(list).kind,
            FailureKind::Invalid { .. }
        ));
        assert_eq!(
            harness.messages_with("tools/list").len(),
            2,
            "the cursor repeats"
        );
        harness.finish();
    }
}

#[test]
fn f_093_list_over_the_byte_limit_fails_as_invalid() {
    let mut config = config();
    config.limits.list_bytes = 10_000;
    let mut harness = ready(config, || {
        let mut page = 0;
        legacy().replies("tools/list", move |_| {
            page += 1;
            json!({"tools": [{"name": "x".repeat(1_000)}], "nextCursor": page.to_string()})
        })
    });
    let list = harness.list(List::Tools);
    assert!(matches!(
        harness.failure(list).kind,
        FailureKind::Invalid { .. }
    ));
    assert_eq!(harness.messages_with("tools/list").len(), 10);
    assert!(
        harness.link().held(List::Tools).is_none(),
        "a partial list is not held"
    );
    harness.finish();
}

#[test]
fn f_093_malformed_page_fails_only_its_list() {
    for server in BOTH_ERAS {
        for broken in [
            r#"{}"#,
            r#"{"tools":{}}"#,
            r#"{"tools":null}"#,
            r#"{"prompts":[]}"#,
            r#"{"tools":[],"nextCursor":7}"#,
        ] {
            let mut harness = ready(config(), move || {
                server().replies("tools/list", move |_| {
                    serde_json::from_str(broken).expect("a page is JSON")
                })
            });
            let list = harness.list(List::Tools);
            assert!(matches!(
                harness.failure(list).kind,
                FailureKind::Invalid { .. }
            ));
            assert_eq!(harness.state(), State::Ready);
            harness.finish();
        }
        let mut harness = ready(config(), move || server().refuses("tools/list", -32603));
        let list = harness.list(List::Tools);
        assert!(matches!(harness.outcome(list), Outcome::Error(error) if error.code == -32603));
        harness.finish();
    }
}

#[test]
fn s_cache_05_modern_list_is_fresh_for_exactly_its_ttl() {
    let mut harness = ready(config(), || {
        let mut reads = 0;
        Peer::modern().replies("tools/list", move |_| {
            reads += 1;
            json!({"tools": [{"name": format!("tool-{reads}")}], "ttlMs": 1_000})
        })
    });
    harness.list(List::Tools);
    harness.advance(millis(999));
    assert!(is_fresh(&mut harness, List::Tools));
    harness.advance(millis(1));
    assert!(!is_fresh(&mut harness, List::Tools));
    assert_eq!(
        harness.messages_with("tools/list").len(),
        1,
        "S-CACHE-06: no polling"
    );
    let again = harness.list(List::Tools);
    assert_eq!(listed(&harness, again), ["tool-2"]);
    harness.finish();
}

#[test]
fn s_cache_05_list_with_a_zero_negative_absent_or_invalid_ttl_is_stale_at_once() {
    for ttl in [
        json!(0),
        json!(-1),
        Value::Null,
        json!("1000"),
        json!(1e30),
        json!({}),
    ] {
        let mut harness = ready(config(), move || {
            let ttl = ttl.clone();
            Peer::modern().replies("tools/list", move |_| json!({"tools": [], "ttlMs": ttl}))
        });
        harness.list(List::Tools);
        assert!(!is_fresh(&mut harness, List::Tools));
        harness.list(List::Tools);
        assert_eq!(harness.messages_with("tools/list").len(), 2);
        harness.finish();
    }
}

#[test]
fn s_cache_05_list_is_stale_as_soon_as_one_page_is() {
    const PAGES: &[(&str, &str, u64)] = &[
        (
            "first",
            r#"{"tools":[{"name":"a"}],"nextCursor":"2","ttlMs":1000}"#,
            0,
        ),
        ("2", r#"{"tools":[{"name":"b"}],"ttlMs":60000}"#, 900),
    ];
    let mut harness = ready(config(), || with_pages(Peer::modern, PAGES));
    let began = harness.now();
    let list = harness.list(List::Tools);
    harness.until_done(list);
    let Outcome::Listed(listing) = harness.outcome(list) else {
        panic!("the list was read");
    };
    assert_eq!(listing.fresh_until, Some(began + seconds(1)));
    assert!(is_fresh(&mut harness, List::Tools));
    harness.advance(millis(100));
    assert!(!is_fresh(&mut harness, List::Tools));
    harness.finish();
}

#[test]
fn s_cache_05_page_without_a_ttl_makes_the_list_stale() {
    const PAGES: &[(&str, &str, u64)] = &[
        (
            "first",
            r#"{"tools":[{"name":"a"}],"nextCursor":"2","ttlMs":60000}"#,
            0,
        ),
        ("2", r#"{"tools":[{"name":"b"}]}"#, 0),
    ];
    let mut harness = ready(config(), || with_pages(Peer::modern, PAGES));
    harness.list(List::Tools);
    assert!(!is_fresh(&mut harness, List::Tools));
    harness.finish();
}

#[test]
fn s_cache_05_legacy_list_is_cached_only_if_the_server_declares_list_changed() {
    let mut harness = ready(config(), legacy);
    harness.list(List::Tools);
    harness.advance(seconds(100_000));
    assert!(is_fresh(&mut harness, List::Tools));
    harness.finish();
    let mut harness = ready(config(), || {
        legacy().replies("initialize", |_| {
            client_pipe::initialize_result("2025-11-25", json!({"tools": {}}))
        })
    });
    harness.list(List::Tools);
    harness.list(List::Tools);
    assert_eq!(harness.messages_with("tools/list").len(), 2);
    harness.finish();
}

#[test]
fn s_cache_03_each_list_is_cached_and_invalidated_separately() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            counting_reads(server).replies(
                "prompts/list",
                |_| json!({"prompts": [{"name": "p"}], "ttlMs": 9_999}),
            )
        });
        let (tools, prompts) = (harness.list(List::Tools), harness.list(List::Prompts));
        assert_eq!(listed(&harness, tools), ["tool-1"]);
        assert_eq!(listed(&harness, prompts), ["p"]);
        assert!(!is_fresh(&mut harness, List::Resources));
        harness.perform(change_notification(&harness, PROMPTS_CHANGED));
        assert!(is_fresh(&mut harness, List::Tools));
        assert!(!is_fresh(&mut harness, List::Prompts));
        harness.finish();
    }
}

#[test]
fn s_sub_01_listen_request_contains_only_what_is_watched_and_offered() {
    let only_tools = || {
        let mut capabilities = all_capabilities();
        capabilities["prompts"] = json!({});
        capabilities["resources"] = json!({"listChanged": true});
        Peer::modern().replies("server/discover", move |_| {
            client_pipe::discover_result(capabilities.clone())
        })
    };
    let watch = Watch::lists().and_uri("file:///a");
    let harness = ready(config_watching(watch), only_tools);
    let filter = harness.last_message("subscriptions/listen")["params"]["notifications"].clone();
    let possible = json!({"toolsListChanged": true, "resourcesListChanged": true});
    assert_eq!(filter, possible);
    harness.finish();

    let harness = ready(config_watching(Watch::none()), Peer::modern);
    assert!(harness.messages_with("subscriptions/listen").is_empty());
    harness.finish();
}

#[test]
fn s_sub_06_granted_part_of_a_watch_is_reported() {
    let mut harness = ready(config_watching(Watch::lists().and_uri("file:///a")), || {
        Peer::modern().on("subscriptions/listen", |listen| {
            vec![acknowledged(listen, &json!({"toolsListChanged": true}))]
        })
    });
    harness.advance(millis(1));
    let mut tools = Watch::none();
    tools.tools = true;
    assert_eq!(granted(&harness), [tools]);
    harness.finish();

    let mut harness = ready(
        config_watching(Watch::none().and_uri("file:///a").and_uri("file:///b")),
        || {
            legacy().on("resources/subscribe", |request| {
                vec![match request["params"]["uri"].as_str() {
                    Some("file:///a") => reply(request, json!({})),
                    _ => error(request, -32002, "no such resource"),
                }]
            })
        },
    );
    harness.advance(millis(1));
    assert_eq!(granted(&harness), [Watch::none().and_uri("file:///a")]);
    harness.finish();
}

#[test]
fn s_sub_06_legacy_subscription_refused_with_32603_is_retried_with_backoff() {
    let watch = Watch::none().and_uri("file:///a");
    let mut harness = ready(config_watching(watch.clone()), || {
        let mut refusals = 2;
        legacy().on("resources/subscribe", move |request| {
            if refusals == 0 {
                return vec![reply(request, json!({}))];
            }
            refusals -= 1;
            vec![error(request, -32603, "busy")]
        })
    });
    let request_count = |harness: &Harness| harness.messages_with("resources/subscribe").len();
    harness.advance(millis(4_999));
    assert_eq!(request_count(&harness), 1);
    harness.advance(millis(1));
    assert_eq!(request_count(&harness), 2, "after 5 s");
    harness.advance(millis(9_999));
    assert_eq!(request_count(&harness), 2);
    assert_eq!(
        granted(&harness),
        [Watch::none()],
        "the application is told"
    );
    harness.advance(millis(1));
    assert_eq!(request_count(&harness), 3, "and after 10 s more");
    assert_eq!(granted(&harness), [Watch::none(), watch]);
    harness.advance(seconds(3_600));
    assert_eq!(request_count(&harness), 3);
    harness.finish();
}

#[test]
fn s_sub_06_legacy_subscription_refused_with_32601_or_32602_is_not_retried() {
    for code in [-32601, -32602] {
        let watch = Watch::none().and_uri("file:///a");
        let mut harness = ready(config_watching(watch), move || {
            legacy().refuses("resources/subscribe", code)
        });
        harness.advance(seconds(3_600));
        assert_eq!(harness.messages_with("resources/subscribe").len(), 1);
        assert_eq!(granted(&harness), [Watch::none()]);
        harness.finish();
    }
}

#[test]
fn s_sub_06_unanswered_legacy_subscription_is_retried_after_15_s() {
    let watch = Watch::none().and_uri("file:///a");
    let mut harness = ready(config_watching(watch.clone()), || {
        let mut silent = true;
        legacy().on("resources/subscribe", move |request| {
            if core::mem::take(&mut silent) {
                return Vec::new();
            }
            vec![reply(request, json!({}))]
        })
    });
    // 10 s for the reply, and 5 s until the next attempt.
    harness.advance(seconds(14));
    assert_eq!(granted(&harness), [Watch::none()]);
    assert_eq!(harness.messages_with("resources/subscribe").len(), 1);
    harness.advance(seconds(1));
    assert_eq!(harness.messages_with("resources/subscribe").len(), 2);
    assert_eq!(granted(&harness), [Watch::none(), watch]);
    harness.finish();
}

#[test]
fn s_sub_06_repeated_legacy_watch_requests_only_the_missing_uris() {
    let watch = Watch::none().and_uri("file:///a").and_uri("file:///b");
    let mut harness = ready(config_watching(watch.clone()), || {
        let mut refused = false;
        legacy().on("resources/subscribe", move |request| {
            let is_first_b =
                request["params"]["uri"] == "file:///b" && !core::mem::replace(&mut refused, true);
            vec![if is_first_b {
                error(request, -32602, "not yet")
            } else {
                reply(request, json!({}))
            }]
        })
    });
    assert_eq!(granted(&harness), [Watch::none().and_uri("file:///a")]);
    harness.watch(watch.clone());
    assert_eq!(granted(&harness).last(), Some(&watch));
    assert_eq!(harness.messages_with("resources/subscribe").len(), 3);
    harness.watch(watch);
    assert_eq!(harness.messages_with("resources/subscribe").len(), 3);
    harness.finish();
}

#[test]
fn s_time_02_unanswered_requests_of_a_legacy_watch_are_cancelled() {
    let watch = Watch::none()
        .and_uri("file:///a")
        .and_logs(LogLevel::Warning);
    let mut harness = ready(config_watching(watch), || {
        legacy()
            .ignores("resources/subscribe")
            .ignores("logging/setLevel")
    });
    let request_ids = ["logging/setLevel", "resources/subscribe"];
    let request_ids = request_ids.map(|method| harness.last_message(method)["id"].clone());
    harness.advance(seconds(10));
    let cancelled: Vec<Value> = harness
        .messages_with("notifications/cancelled")
        .into_iter()
        .map(|cancel| cancel["params"]["requestId"].clone())
        .collect();
    assert_eq!(cancelled, request_ids);
    harness.finish();
}

/// S-STDIO-12: the id of the subscription decides to which watch a change belongs.
#[test]
fn s_sub_08_notification_with_another_subscription_id_is_noise() {
    let mut harness = ready(config(), || counting_reads(Peer::modern));
    harness.list(List::Tools);
    let listen = harness.last_message("subscriptions/listen");
    for id in [json!(999), json!(listen["id"].to_string()), json!("x")] {
        let params = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": id}});
        harness.perform(notify(TOOLS_CHANGED, params));
    }
    assert!(changes(&harness).is_empty());
    assert!(is_fresh(&mut harness, List::Tools));
    assert_eq!(harness.link().stats().noise, 3);
    harness.finish();
}

/// S-STDIO-12: while two watches are open, each notification belongs to the one that it names.
#[test]
fn s_sub_09_new_watch_replaces_the_old_one_after_its_acknowledgement() {
    let mut harness = ready(config(), || Peer::modern().ignores("subscriptions/listen"));
    let old = harness.last_message("subscriptions/listen");
    harness.perform(acknowledged(&old, &json!({"toolsListChanged": true})));
    harness.watch(Watch::lists().and_uri("file:///a"));
    let new = harness.last_message("subscriptions/listen");
    assert_ne!(old["id"], new["id"]);
    assert!(
        harness.messages_with("notifications/cancelled").is_empty(),
        "the old watch stays until the new one is acknowledged"
    );
    let params = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": old["id"]}});
    harness.perform(notify(TOOLS_CHANGED, params));
    assert_eq!(changes(&harness).len(), 1);
    harness.perform(acknowledged(
        &new,
        &json!({"resourceSubscriptions": ["file:///a"]}),
    ));
    // S-SUB-10
    let cancel = harness.last_message("notifications/cancelled");
    assert_eq!(cancel["params"]["requestId"], old["id"]);
    assert_eq!(harness.messages_with("notifications/cancelled").len(), 1);
    harness.finish();
}

#[test]
fn s_sub_09_repeated_modern_watch_sends_no_message() {
    // With and without an acknowledgement.
    for server in [Peer::modern, || {
        Peer::modern().ignores("subscriptions/listen")
    }] {
        let mut harness = ready(config(), server);
        for _ in 0..5 {
            harness.watch(Watch::lists());
        }
        assert_eq!(harness.messages_with("subscriptions/listen").len(), 1);
        assert!(harness.messages_with("notifications/cancelled").is_empty());
        harness.finish();
    }
}

#[test]
fn s_sub_10_empty_watch_cancels_the_listen_request() {
    let mut harness = ready(config(), Peer::modern);
    harness.watch(Watch::none());
    let cancel = harness.last_message("notifications/cancelled");
    let listen = harness.last_message("subscriptions/listen");
    assert_eq!(cancel["params"]["requestId"], listen["id"]);
    harness.perform(reply(&listen, json!({"resultType": "complete"})));
    harness.advance(seconds(3_600));
    assert_eq!(harness.messages_with("subscriptions/listen").len(), 1);
    harness.finish();
}

#[test]
fn s_sub_11_12_14_watch_ended_by_a_result_cancellation_or_error_is_requested_again() {
    let endings: [fn(&Value) -> Act; 3] = [
        |listen| {
            let meta = json!({"io.modelcontextprotocol/subscriptionId": listen["id"]});
            reply(listen, json!({"resultType": "complete", "_meta": meta}))
        },
        |listen| {
            notify(
                "notifications/cancelled",
                json!({"requestId": listen["id"]}),
            )
        },
        |listen| error(listen, -32603, "out of memory"),
    ];
    for ending in endings {
        let mut harness = ready(config(), Peer::modern);
        let listen = harness.last_message("subscriptions/listen");
        harness.perform(ending(&listen));
        assert_eq!(
            harness.messages_with("subscriptions/listen").len(),
            1,
            "not at once"
        );
        harness.advance(seconds(5));
        assert_eq!(harness.messages_with("subscriptions/listen").len(), 2);
        assert_eq!(granted(&harness).last(), Some(&Watch::lists()));
        assert_eq!((harness.state(), harness.epoch_number()), (State::Ready, 1));
        harness.finish();
    }
}

#[test]
fn f_118_start_and_end_of_a_gap_in_a_watch_are_reported() {
    let mut harness = ready(config(), Peer::modern);
    let listen = harness.last_message("subscriptions/listen");
    harness.perform(reply(&listen, json!({"resultType": "complete"})));
    assert_eq!(granted(&harness), [Watch::lists(), Watch::none()]);
    harness.advance(seconds(5));
    let expected = [Watch::lists(), Watch::none(), Watch::lists()];
    assert_eq!(granted(&harness), expected);
    harness.finish();
}

#[test]
fn s_sub_14_refused_watch_is_retried_with_backoff() {
    let mut harness = ready(config(), || {
        Peer::modern().refuses("subscriptions/listen", -32603)
    });
    harness.advance(seconds(3_600));
    let times = harness.messages_with("subscriptions/listen").len();
    assert!((50..80).contains(&times), "{times} times in an hour");
    harness.finish();
}

#[test]
fn s_sub_14_watch_that_ends_right_after_its_acknowledgement_is_retried_with_backoff() {
    let mut harness = ready(config(), || {
        Peer::modern().on("subscriptions/listen", |listen| {
            let filter = listen["params"]["notifications"].clone();
            vec![
                acknowledged(listen, &filter),
                reply(listen, json!({"resultType": "complete"})),
            ]
        })
    });
    harness.advance(seconds(3_600));
    let times = harness.messages_with("subscriptions/listen").len();
    assert!((50..80).contains(&times), "{times} times in an hour");
    harness.finish();
}

/// Lets the server end the acknowledged watch. Returns the time until the link asks for the next one.
fn retry_pause_after_end(harness: &mut Harness) -> core::time::Duration {
    let listen = harness.last_message("subscriptions/listen");
    let requests_before = harness.messages_with("subscriptions/listen").len();
    let ended = harness.now();
    harness.perform(reply(&listen, json!({"resultType": "complete"})));
    harness.until("the link requests the watch again", |harness| {
        harness.messages_with("subscriptions/listen").len() > requests_before
    });
    harness.now().since(ended)
}

#[test]
fn s_sub_14_lasting_watch_and_new_epoch_each_reset_the_watch_backoff() {
    let mut harness = ready(config(), Peer::modern);
    let check_pauses = |harness: &mut Harness| {
        let pauses: Vec<_> = (0..6).map(|_| retry_pause_after_end(harness)).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 60, 60].map(seconds));
    };
    check_pauses(&mut harness);
    harness.advance(seconds(120));
    check_pauses(&mut harness);
    harness.perform_all(dies(CRASH));
    harness.until_ready();
    check_pauses(&mut harness);
    harness.finish();
}

#[test]
fn s_sub_06_changed_watch_that_is_refused_once_is_requested_again() {
    let mut listens = 0;
    let mut harness = ready(config(), move || {
        Peer::modern().on("subscriptions/listen", move |listen| {
            listens += 1;
            vec![match listens {
                2 => error(listen, -32603, "out of memory"),
                _ => acknowledged(listen, &listen["params"]["notifications"]),
            }]
        })
    });
    let watch = Watch::lists().and_uri("file:///a");
    harness.watch(watch.clone());
    harness.advance(seconds(60));
    assert_eq!(granted(&harness).last(), Some(&watch));
    harness.finish();
}

#[test]
fn s_sub_17_change_below_a_watched_uri_is_reported() {
    for server in BOTH_ERAS {
        let mut harness = ready(
            config_watching(Watch::none().and_uri("file:///dir")),
            move || server().replies("resources/subscribe", |_| json!({})),
        );
        harness.advance(millis(1));
        let mut params = json!({"uri": "file:///dir/inner"});
        if is_modern(&harness) {
            let id = harness.last_message("subscriptions/listen")["id"].clone();
            params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": id});
        }
        harness.perform(notify("notifications/resources/updated", params));
        let uri = "file:///dir/inner".into();
        assert_eq!(changes(&harness), [Change::Resource { uri }]);
        harness.finish();
    }
}

/// The list is not read for a call that nobody waits for.
#[test]
fn cancelled_list_call_after_a_change_is_unwanted() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/list"));
        let before = harness.list(List::Tools);
        harness.perform(change_notification(&harness, TOOLS_CHANGED));
        let after = harness.list(List::Tools);
        harness.cancel(after, "never mind");
        let request = harness.last_message("tools/list");
        harness.perform(reply(&request, json!({"tools": [{"name": "old"}]})));
        assert_eq!(listed(&harness, before), ["old"]);
        assert_eq!(harness.messages_with("tools/list").len(), 1);
        harness.finish();
    }
}

/// Nothing is known of the list in a new epoch, so one list serves the calls from before and after a change.
#[test]
fn list_calls_from_before_and_after_a_change_share_one_request_in_a_new_epoch() {
    for server in BOTH_ERAS {
        let mut harness = Harness::new(config()).served_by(move |epoch| match epoch {
            1 => server().ignores("tools/list"),
            _ => counting_reads(server),
        });
        harness.until_ready();
        let before = harness.list(List::Tools);
        harness.perform(change_notification(&harness, TOOLS_CHANGED));
        let after = harness.list(List::Tools);
        harness.perform_all(dies(CRASH));
        harness.until_ready();
        for call in [before, after] {
            assert_eq!(listed(&harness, call), ["tool-1"]);
        }
        harness.finish();
    }
}

#[test]
fn list_may_be_as_large_as_the_byte_limit() {
    let result = json!({"tools": [{"name": "one"}], "ttlMs": 0, "cacheScope": "private"});
    let len = result.to_string().len();
    for (limit, is_read) in [(len, true), (len - 1, false)] {
        let mut config = config();
        config.limits.list_bytes = limit;
        let result = result.clone();
        let mut harness = ready(config, move || {
            let result = result.clone();
            legacy().replies("tools/list", move |_| result.clone())
        });
        let list = harness.list(List::Tools);
        if is_read {
            assert_eq!(listed(&harness, list), ["one"]);
        } else {
            let why = format!("the list of tools is larger than {limit} bytes").into();
            assert_eq!(harness.failure(list).kind, FailureKind::Invalid { why });
        }
        harness.finish();
    }
}

#[test]
fn acknowledgement_of_an_unknown_watch_is_noise() {
    let mut harness = ready(config(), Peer::modern);
    let noise = harness.link().stats().noise;
    let granted = harness.link().granted().clone();
    let unknown = json!({"id": 999});
    harness.perform(acknowledged(&unknown, &json!({})));
    assert_eq!(harness.link().stats().noise, noise + 1);
    assert_eq!(*harness.link().granted(), granted);
    harness.finish();
}

#[test]
fn nothing_is_granted_after_the_watch_ended_with_its_epoch() {
    for server in BOTH_ERAS {
        let mut harness = ready(config_watching(Watch::lists()), server);
        assert_ne!(*harness.link().granted(), Watch::none());
        harness.perform_all(dies(CRASH));
        assert_eq!(harness.state(), State::Waiting);
        assert_eq!(*harness.link().granted(), Watch::none());
        harness.finish();
    }
}

/// The list was wanted before the link knew what the server offers.
#[test]
fn list_that_waits_for_a_server_without_it_fails_as_not_offered() {
    let bare: [fn() -> Peer; 2] = [
        || {
            legacy().replies("initialize", |_| {
                client_pipe::initialize_result("2025-11-25", json!({"tools": {}}))
            })
        },
        || {
            Peer::modern().replies("server/discover", |_| {
                client_pipe::discover_result(json!({"tools": {}}))
            })
        },
    ];
    for server in bare {
        let mut harness = Harness::new(config()).served_by(move |_| server());
        let list = harness.list(List::Prompts);
        harness.until_done(list);
        let kind = &harness.failure(list).kind;
        assert!(matches!(kind, FailureKind::NotOffered { .. }), "{kind}");
        assert!(harness.messages_with("prompts/list").is_empty());
        harness.finish();
    }
}

/// Nothing is expected any more once a list is cancelled, or a watch ended.
#[test]
fn reply_to_a_cancelled_list_or_to_an_ended_watch_is_late() {
    let mut harness = ready(config(), || Peer::modern().ignores("tools/list"));
    let late_replies = |harness: &Harness| harness.link().stats().late_replies;
    let list = harness.list(List::Tools);
    let request = harness.last_message("tools/list");
    harness.cancel(list, "not needed");
    harness.perform(reply(
        &request,
        json!({"resultType": "complete", "tools": []}),
    ));
    assert_eq!(late_replies(&harness), 1);

    let ends: [fn(&mut Harness, &Value); 2] = [
        |harness, listen| {
            let params = json!({"requestId": listen["id"]});
            harness.perform(notify("notifications/cancelled", params));
        },
        |harness, _| harness.watch(Watch::none()),
    ];
    for (count, end) in (2..).zip(ends) {
        let listen = harness.last_message("subscriptions/listen");
        end(&mut harness, &listen);
        harness.perform(reply(&listen, json!({"resultType": "complete"})));
        assert_eq!(late_replies(&harness), count);
        // A watch that the server ended is requested again.
        harness.advance(seconds(10));
    }
    assert_eq!(harness.link().stats().noise, 0);
    harness.finish();
}
