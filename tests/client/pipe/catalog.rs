//! The lists of a server and the watch on it: how long a list is valid, and what a new epoch changes. Rows F-088 to
//! F-093 of the failures; S-CACHE and S-SUB of the requirements.

use everlink::client::{Event, FailureKind, Outcome, State};
use everlink::protocol::LogLevel;
use everlink::{Change, Config, ExitStatus, List, Watch};
use serde_json::{Value, json};

use crate::client_pipe::{
    self, Act, Peer, World, config, dies, error, everything, millis, notify, reply, seconds,
};
use crate::eras::{BOTH, legacy, ready};

const CRASH: ExitStatus = ExitStatus::Code(1);

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";

fn changes(world: &World) -> Vec<Change> {
    world.picked(|event| match event {
        Event::Changed(change) => Some(change.clone()),
        _ => None,
    })
}

fn granted(world: &World) -> Vec<Watch> {
    let told = world.granted().into_iter();
    told.map(|(_, granted)| granted).collect()
}

/// The names of the items in the outcome of a `list` call.
fn listed(world: &World, call: everlink::CallId) -> Vec<String> {
    let Outcome::Listed(listing) = world.outcome(call) else {
        panic!("{call} has no list: {:?}", world.outcome(call));
    };
    let name = |item: &everlink::Payload| {
        let item: Value = item.parse().expect("an item is JSON");
        item["name"].as_str().expect("a tool has a name").into()
    };
    listing.items.iter().map(name).collect()
}

/// Whether the link would return a list from its cache now.
fn is_fresh(world: &mut World, list: List) -> bool {
    world.verb(|link, now| link.handle_timeout(now));
    world.link().is_fresh(world.now(), list)
}

fn is_modern(world: &World) -> bool {
    let session = world.link().session().expect("the link is ready");
    session.version.era() == everlink::protocol::Era::Modern
}

/// A change notification of a server of this era.
fn changed(world: &World, method: &str) -> Act {
    let params = if is_modern(world) {
        let id = world.last("subscriptions/listen")["id"].clone();
        json!({"_meta": {"io.modelcontextprotocol/subscriptionId": id}})
    } else {
        json!({})
    };
    notify(method, params)
}

/// A server whose only tool is named after the number of reads of the list. A modern server gives the list a lifetime
/// of one hour.
fn counting(server: fn() -> Peer) -> Peer {
    let mut reads = 0;
    server().replies("tools/list", move |_| {
        reads += 1;
        json!({"tools": [{"name": format!("tool-{reads}")}], "ttlMs": 3_600_000, "cacheScope": "private"})
    })
}

/// A server with pages. Each page has its cursor, its result and its delay in milliseconds.
fn paged(server: fn() -> Peer, pages: &'static [(&str, &str, u64)]) -> Peer {
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
fn f_088_a_changed_list_is_told_and_read_again_when_it_is_wanted() {
    for server in BOTH {
        let mut world = ready(config(), move || counting(server));
        let first = world.list(List::Tools);
        assert_eq!(listed(&world, first), ["tool-1"]);
        assert!(is_fresh(&mut world, List::Tools));
        let again = world.list(List::Tools);
        assert_eq!(listed(&world, again), ["tool-1"], "from what is held");
        assert_eq!(world.said("tools/list").len(), 1);

        world.peer(changed(&world, TOOLS_CHANGED));
        assert_eq!(changes(&world), [Change::List(List::Tools)]);
        assert!(!is_fresh(&mut world, List::Tools), "S-CACHE-09");
        assert!(world.link().held(List::Tools).is_some(), "stale, not gone");
        assert_eq!(
            world.said("tools/list").len(),
            1,
            "S-CACHE-06: nobody asked"
        );
        let fresh = world.list(List::Tools);
        assert_eq!(listed(&world, fresh), ["tool-2"]);
        world.finish();
    }
}

#[test]
fn f_088_each_notification_is_about_its_own_lists() {
    for server in BOTH {
        let mut world = ready(config(), server);
        world.peer(changed(&world, PROMPTS_CHANGED));
        world.peer(changed(&world, RESOURCES_CHANGED));
        let told = [List::Prompts, List::Resources, List::ResourceTemplates];
        assert_eq!(changes(&world), told.map(Change::List));
        world.finish();
    }
}

#[test]
fn f_088_a_list_is_stale_even_if_nobody_wants_to_hear_of_it() {
    let mut config = config();
    config.watch = Watch::none();
    let mut world = ready(config, || counting(legacy));
    world.list(List::Tools);
    world.peer(notify(TOOLS_CHANGED, json!({})));
    assert!(changes(&world).is_empty());
    assert!(!is_fresh(&mut world, List::Tools));
    world.finish();
}

#[test]
fn f_088_a_list_that_changes_while_it_is_read_is_stale_when_it_is_there() {
    for server in BOTH {
        let mut world = ready(config(), move || counting(server).ignores("tools/list"));
        let list = world.list(List::Tools);
        let request = world.last("tools/list");
        world.peer(changed(&world, TOOLS_CHANGED));
        let page = json!({"tools": [{"name": "old"}], "ttlMs": 3_600_000});
        world.peer(reply(&request, page));
        assert_eq!(listed(&world, list), ["old"]);
        assert!(!is_fresh(&mut world, List::Tools));
        world.finish();
    }
}

#[test]
fn f_089_a_new_life_makes_every_list_stale_until_it_is_read_again() {
    for server in BOTH {
        let mut world = ready(config(), move || counting(server));
        let first = world.list(List::Tools);
        assert_eq!(listed(&world, first), ["tool-1"]);
        world.peer_all(dies(CRASH));
        assert!(!is_fresh(&mut world, List::Tools));
        world.until_ready();
        assert!(!is_fresh(&mut world, List::Tools));
        let before = world
            .link()
            .held(List::Tools)
            .map(|held| held.epoch.number());
        assert_eq!(before, Some(1), "it says of which life it is");
        let second = world.list(List::Tools);
        assert_eq!(listed(&world, second), ["tool-1"], "of the new server");
        assert_eq!(world.said("tools/list").len(), 2);
        let after = world
            .link()
            .held(List::Tools)
            .map(|held| held.epoch.number());
        assert_eq!(after, Some(2));
        world.finish();
    }
}

#[test]
fn f_089_a_list_on_its_way_begins_anew_in_the_next_life() {
    for server in BOTH {
        let mut world = World::new(config()).served_by(move |life| match life {
            // The server dies between two pages.
            1 => server().on("tools/list", |request| {
                match request["params"]["cursor"].as_str() {
                    None => vec![reply(
                        request,
                        json!({"tools": [{"name": "of the first life"}], "nextCursor": "2"}),
                    )],
                    Some(_) => dies(CRASH),
                }
            }),
            _ => counting(server),
        });
        world.until_ready();
        let list = world.list(List::Tools);
        world.until_done(list);
        assert_eq!(
            listed(&world, list),
            ["tool-1"],
            "nothing of two lives is mixed"
        );
        // S-CACHE-12: the cursor of the first epoch is not sent to the second.
        assert!(world.last("tools/list")["params"]["cursor"].is_null());
        world.finish();
    }
}

#[test]
fn f_090_a_storm_of_changes_is_one_event_until_it_is_heard() {
    for server in BOTH {
        let mut world = ready(config(), server);
        let storm = vec![changed(&world, TOOLS_CHANGED); 1_000];
        world.peer(Act::AtOnce(storm));
        assert_eq!(changes(&world), [Change::List(List::Tools)]);
        world.peer(changed(&world, TOOLS_CHANGED));
        assert_eq!(changes(&world).len(), 2, "the next one is news again");
        world.finish();
    }
}

#[test]
fn f_090_all_who_want_a_list_share_one_reading_of_it() {
    for server in BOTH {
        let mut world = ready(config(), move || counting(server).ignores("tools/list"));
        let calls: Vec<_> = (0..50).map(|_| world.list(List::Tools)).collect();
        assert_eq!(world.said("tools/list").len(), 1);
        let request = world.last("tools/list");
        world.peer(reply(&request, json!({"tools": [{"name": "one"}]})));
        for call in calls {
            assert_eq!(listed(&world, call), ["one"]);
        }
        world.finish();
    }
}

#[test]
fn f_090_who_asks_after_the_change_gets_what_was_read_after_it() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/list"));
        let before = world.list(List::Tools);
        let first = world.last("tools/list");
        world.peer(changed(&world, TOOLS_CHANGED));
        let after = world.list(List::Tools);
        world.peer(reply(&first, json!({"tools": [{"name": "old"}]})));
        assert_eq!(listed(&world, before), ["old"]);
        assert!(!world.is_done(after));
        let second = world.last("tools/list");
        assert_ne!(first["id"], second["id"]);
        world.peer(reply(&second, json!({"tools": [{"name": "new"}]})));
        assert_eq!(listed(&world, after), ["new"]);
        world.finish();
    }
}

#[test]
fn f_090_one_who_leaves_after_a_change_strands_nobody() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/list"));
        let before = world.list(List::Tools);
        world.peer(changed(&world, TOOLS_CHANGED));
        let after = world.list(List::Tools);
        world.cancel(before, "never mind");
        let request = world.last("tools/list");
        world.peer(reply(&request, json!({"tools": [{"name": "new"}]})));
        assert_eq!(listed(&world, after), ["new"]);
        world.finish();
    }
}

#[test]
fn f_063_a_list_out_of_time_is_cancelled_like_a_call() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/list"));
        let list = world.list(List::Tools);
        world.until_done(list);
        assert_eq!(world.failure(list).after, seconds(60));
        let cancel = world.last("notifications/cancelled");
        assert_eq!(
            cancel["params"]["requestId"],
            world.last("tools/list")["id"]
        );
        world.finish();
    }
}

#[test]
fn f_090_one_who_leaves_does_not_take_the_list_from_the_others() {
    let mut world = ready(config(), || counting(legacy).ignores("tools/list"));
    let (leaves, stays) = (world.list(List::Tools), world.list(List::Tools));
    world.cancel(leaves, "never mind");
    assert!(world.said("notifications/cancelled").is_empty());
    let request = world.last("tools/list");
    world.peer(reply(&request, json!({"tools": [{"name": "one"}]})));
    assert_eq!(listed(&world, stays), ["one"]);
    let last = world.list(List::Prompts);
    world.cancel(last, "never mind");
    let cancel = world.last("notifications/cancelled");
    let request = world.last("prompts/list");
    assert_eq!(cancel["params"]["requestId"], request["id"]);
    world.finish();
}

#[test]
fn f_091_a_server_that_knows_no_watch_is_not_asked_again_and_lives() {
    let mut world = ready(config(), || {
        counting(Peer::modern).refuses("subscriptions/listen", -32601)
    });
    assert_eq!(granted(&world), [Watch::none()], "the application knows");
    world.pass(seconds(3_600));
    assert_eq!(world.said("subscriptions/listen").len(), 1);
    assert_eq!((world.state(), world.life()), (State::Ready, 1));
    // Only the lifetime of the list remains.
    let first = world.list(List::Tools);
    world.pass(seconds(3_601));
    let second = world.list(List::Tools);
    assert_eq!(listed(&world, first), ["tool-1"]);
    assert_eq!(listed(&world, second), ["tool-2"]);
    world.finish();
}

#[test]
fn f_091_a_server_that_never_confirms_the_watch_is_used_without_it() {
    let mut world = ready(config(), || Peer::modern().ignores("subscriptions/listen"));
    assert!(granted(&world).is_empty());
    let call = world.tool("add");
    assert!(world.is_done(call), "nobody waits for the watch");
    world.pass(seconds(11));
    assert_eq!(granted(&world), [Watch::none()]);
    // S-SUB-18: a watch is no call and does not time out. A late acknowledgement still counts.
    world.pass(seconds(7_200));
    assert_eq!((world.state(), world.life()), (State::Ready, 1));
    assert!(world.said("notifications/cancelled").is_empty());
    let listen = world.last("subscriptions/listen");
    world.peer(confirmed(&listen, &json!({"toolsListChanged": true})));
    assert!(granted(&world)[1].tools);
    world.finish();
}

#[test]
fn f_091_the_end_of_a_watch_is_told_even_if_it_is_for_good() {
    let mut world = ready(config(), Peer::modern);
    assert_eq!(granted(&world), [Watch::lists()]);
    let listen = world.last("subscriptions/listen");
    world.peer(error(&listen, -32601, "not any more"));
    assert_eq!(granted(&world), [Watch::lists(), Watch::none()]);
    world.pass(seconds(3_600));
    assert_eq!(world.said("subscriptions/listen").len(), 1);
    assert_eq!(granted(&world).len(), 2);
    world.finish();
}

fn confirmed(listen: &Value, notifications: &Value) -> Act {
    notify(
        "notifications/subscriptions/acknowledged",
        json!({
            "_meta": {"io.modelcontextprotocol/subscriptionId": listen["id"]},
            "notifications": notifications,
        }),
    )
}

fn wishing(wish: Watch) -> Config {
    let mut config = config();
    config.watch = wish;
    config
}

#[test]
fn f_092_the_watch_is_repeated_to_every_new_life_and_the_application_hears_of_it() {
    for server in BOTH {
        let wish = Watch::lists().and_uri("file:///a").and_uri("file:///b");
        let mut world = ready(wishing(wish.clone()), move || {
            server().replies("resources/subscribe", |_| json!({}))
        });
        for life in 1..=3 {
            world.until_ready();
            world.pass(millis(1));
            let methods = world.methods_of(life);
            let times = |method| methods.iter().filter(|said| **said == method).count();
            if is_modern(&world) {
                // S-SUB-15
                assert_eq!(times("subscriptions/listen"), 1);
                let filter = &world.last("subscriptions/listen")["params"]["notifications"];
                let uris = json!(["file:///a", "file:///b"]);
                assert_eq!(filter["resourceSubscriptions"], uris);
            } else {
                assert_eq!(times("resources/subscribe"), 2);
            }
            let told = world.granted();
            assert_eq!(told.len() as u64, life);
            assert_eq!(told.last(), Some(&(life, wish.clone())));
            world.peer_all(dies(CRASH));
        }
        world.finish();
    }
}

#[test]
fn f_092_what_was_wished_while_there_was_no_server_is_asked_for_when_there_is() {
    for server in BOTH {
        let mut world = World::new(wishing(Watch::none()))
            .served_by(move |_| server().replies("resources/subscribe", |_| json!({})));
        world.watch(Watch::none().and_uri("file:///a"));
        world.until_ready();
        world.pass(millis(1));
        assert_eq!(granted(&world), [Watch::none().and_uri("file:///a")]);
        world.finish();
    }
}

#[test]
fn f_092_a_legacy_wish_is_changed_piece_by_piece() {
    let wish = Watch::none().and_uri("file:///a").and_uri("file:///b");
    let mut world = ready(wishing(wish), || {
        legacy()
            .replies("resources/subscribe", |_| json!({}))
            .replies("resources/unsubscribe", |_| json!({}))
    });
    world.watch(Watch::none().and_uri("file:///b").and_uri("file:///c"));
    let uris = |method| -> Vec<Value> {
        let said = world.said(method).into_iter();
        said.map(|said| said["params"]["uri"].clone()).collect()
    };
    let subscribed = ["file:///a", "file:///b", "file:///c"];
    assert_eq!(uris("resources/subscribe"), subscribed);
    assert_eq!(uris("resources/unsubscribe"), ["file:///a"]);
    let latest = granted(&world).pop();
    let wanted = Watch::none().and_uri("file:///b").and_uri("file:///c");
    assert_eq!(latest, Some(wanted));
    world.finish();
}

#[test]
fn s_cap_09_a_legacy_server_is_told_the_level_of_its_logs_in_every_life() {
    let wish = Watch::none().and_logs(LogLevel::Warning);
    let mut world = ready(wishing(wish), || {
        legacy().replies("logging/setLevel", |_| json!({}))
    });
    let log = |level| {
        notify(
            "notifications/message",
            json!({"level": level, "data": "x"}),
        )
    };
    world.peer(log("info"));
    world.peer(log("error"));
    world.peer(log("deafening"));
    let heard = world.picked(|event| match event {
        Event::Log { level, .. } => Some(*level),
        _ => None,
    });
    assert_eq!(heard, [LogLevel::Error]);
    world.peer_all(dies(CRASH));
    world.until_ready();
    let said = world.said("logging/setLevel");
    assert_eq!(said.len(), 2);
    assert!(said.iter().all(|said| said["params"]["level"] == "warning"));
    world.finish();
}

#[test]
fn s_cap_06_a_log_of_just_the_wished_level_is_told() {
    for server in BOTH {
        let wish = Watch::none().and_logs(LogLevel::Warning);
        let mut world = ready(wishing(wish), move || {
            server().replies("logging/setLevel", |_| json!({}))
        });
        for level in ["notice", "warning"] {
            let params = json!({"level": level, "data": "x"});
            world.peer(notify("notifications/message", params));
        }
        let heard = world.picked(|event| match event {
            Event::Log { level, .. } => Some(*level),
            _ => None,
        });
        assert_eq!(heard, [LogLevel::Warning]);
        world.finish();
    }
}

#[test]
fn s_cap_06_a_modern_server_is_told_the_level_of_its_logs_with_every_request() {
    let mut world = ready(
        wishing(Watch::none().and_logs(LogLevel::Debug)),
        Peer::modern,
    );
    world.tool("add");
    let meta = &world.last("tools/call")["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/logLevel"], "debug");
    world.watch(Watch::none());
    world.tool("add");
    let meta = world.last("tools/call")["params"]["_meta"].clone();
    assert!(meta["io.modelcontextprotocol/logLevel"].is_null());
    world.finish();
}

#[test]
fn f_093_a_list_is_all_its_pages() {
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
    for server in BOTH {
        let mut world = ready(config(), move || paged(server, PAGES));
        let list = world.list(List::Tools);
        assert_eq!(listed(&world, list), ["a", "b", "c"]);
        assert_eq!(world.said("tools/list").len(), 3);
        world.finish();
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
    for server in BOTH {
        let mut world = ready(config(), move || paged(server, PAGES));
        let list = world.list(List::Tools);
        world.until_done(list);
        assert_eq!(listed(&world, list), ["a", "b", "c"]);
        world.finish();
    }
}

#[test]
fn s_cache_10_a_cursor_that_became_invalid_starts_the_list_again_once() {
    for server in BOTH {
        let mut world = ready(config(), move || {
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
        let list = world.list(List::Tools);
        assert_eq!(listed(&world, list), ["new", "newer"]);
        assert_eq!(world.said("tools/list").len(), 4);
        world.finish();
    }
}

#[test]
fn s_cache_10_a_server_that_forgets_every_cursor_is_believed_the_second_time() {
    const PAGES: &[(&str, &str, u64)] = &[(
        "first",
        r#"{"tools":[{"name":"a"}],"nextCursor":"gone"}"#,
        0,
    )];
    for server in BOTH {
        let mut world = ready(config(), move || paged(server, PAGES));
        let list = world.list(List::Tools);
        assert!(matches!(world.outcome(list), Outcome::Error(error) if error.code == -32602));
        assert_eq!(world.said("tools/list").len(), 4, "twice, two pages each");
        world.finish();
    }
}

#[test]
fn f_093_a_list_that_never_ends_is_given_up() {
    for server in BOTH {
        let mut config = config();
        config.limits.pages = 20;
        let mut world = ready(config, move || {
            let mut page = 0;
            server().replies("tools/list", move |_| {
                page += 1;
                json!({"tools": [], "nextCursor": page.to_string()})
            })
        });
        let list = world.list(List::Tools);
        assert!(matches!(
            world.failure(list).kind,
            FailureKind::Invalid { .. }
        ));
        assert_eq!(world.said("tools/list").len(), 20);
        world.finish();

        let mut world = ready(self::config(), move || {
            server().replies("tools/list", |_| json!({"tools": [], "nextCursor": "same"}))
        });
        let list = world.list(List::Tools);
        assert!(matches!(
            world.failure(list).kind,
            FailureKind::Invalid { .. }
        ));
        assert_eq!(
            world.said("tools/list").len(),
            2,
            "it names itself as the next"
        );
        world.finish();
    }
}

#[test]
fn f_093_a_list_that_is_too_large_in_all_is_given_up() {
    let mut config = config();
    config.limits.list_bytes = 10_000;
    let mut world = ready(config, || {
        let mut page = 0;
        legacy().replies("tools/list", move |_| {
            page += 1;
            json!({"tools": [{"name": "x".repeat(1_000)}], "nextCursor": page.to_string()})
        })
    });
    let list = world.list(List::Tools);
    assert!(matches!(
        world.failure(list).kind,
        FailureKind::Invalid { .. }
    ));
    assert_eq!(world.said("tools/list").len(), 10);
    assert!(
        world.link().held(List::Tools).is_none(),
        "a part is no list"
    );
    world.finish();
}

#[test]
fn f_093_a_broken_page_costs_the_list_and_nothing_else() {
    for server in BOTH {
        for broken in [
            r#"{}"#,
            r#"{"tools":{}}"#,
            r#"{"tools":null}"#,
            r#"{"prompts":[]}"#,
            r#"{"tools":[],"nextCursor":7}"#,
        ] {
            let mut world = ready(config(), move || {
                server().replies("tools/list", move |_| {
                    serde_json::from_str(broken).expect("a page is JSON")
                })
            });
            let list = world.list(List::Tools);
            assert!(matches!(
                world.failure(list).kind,
                FailureKind::Invalid { .. }
            ));
            assert_eq!(world.state(), State::Ready);
            world.finish();
        }
        let mut world = ready(config(), move || server().refuses("tools/list", -32603));
        let list = world.list(List::Tools);
        assert!(matches!(world.outcome(list), Outcome::Error(error) if error.code == -32603));
        world.finish();
    }
}

#[test]
fn s_cache_05_a_modern_list_is_fresh_for_exactly_as_long_as_the_server_says() {
    let mut world = ready(config(), || {
        let mut reads = 0;
        Peer::modern().replies("tools/list", move |_| {
            reads += 1;
            json!({"tools": [{"name": format!("tool-{reads}")}], "ttlMs": 1_000})
        })
    });
    world.list(List::Tools);
    world.pass(millis(999));
    assert!(is_fresh(&mut world, List::Tools));
    world.pass(millis(1));
    assert!(!is_fresh(&mut world, List::Tools));
    assert_eq!(world.said("tools/list").len(), 1, "S-CACHE-06: no polling");
    let again = world.list(List::Tools);
    assert_eq!(listed(&world, again), ["tool-2"]);
    world.finish();
}

#[test]
fn s_cache_05_zero_negative_absent_and_strange_life_times_are_stale_at_once() {
    for ttl in [
        json!(0),
        json!(-1),
        Value::Null,
        json!("1000"),
        json!(1e30),
        json!({}),
    ] {
        let mut world = ready(config(), move || {
            let ttl = ttl.clone();
            Peer::modern().replies("tools/list", move |_| json!({"tools": [], "ttlMs": ttl}))
        });
        world.list(List::Tools);
        assert!(!is_fresh(&mut world, List::Tools));
        world.list(List::Tools);
        assert_eq!(world.said("tools/list").len(), 2);
        world.finish();
    }
}

#[test]
fn s_cache_05_a_list_is_as_fresh_as_its_first_page_to_go_stale() {
    const PAGES: &[(&str, &str, u64)] = &[
        (
            "first",
            r#"{"tools":[{"name":"a"}],"nextCursor":"2","ttlMs":1000}"#,
            0,
        ),
        ("2", r#"{"tools":[{"name":"b"}],"ttlMs":60000}"#, 900),
    ];
    let mut world = ready(config(), || paged(Peer::modern, PAGES));
    let began = world.now();
    let list = world.list(List::Tools);
    world.until_done(list);
    let Outcome::Listed(listing) = world.outcome(list) else {
        panic!("it was read");
    };
    assert_eq!(listing.fresh_until, Some(began + seconds(1)));
    assert!(is_fresh(&mut world, List::Tools));
    world.pass(millis(100));
    assert!(!is_fresh(&mut world, List::Tools));
    world.finish();
}

#[test]
fn s_cache_05_one_page_without_a_life_time_makes_the_list_stale() {
    const PAGES: &[(&str, &str, u64)] = &[
        (
            "first",
            r#"{"tools":[{"name":"a"}],"nextCursor":"2","ttlMs":60000}"#,
            0,
        ),
        ("2", r#"{"tools":[{"name":"b"}]}"#, 0),
    ];
    let mut world = ready(config(), || paged(Peer::modern, PAGES));
    world.list(List::Tools);
    assert!(!is_fresh(&mut world, List::Tools));
    world.finish();
}

#[test]
fn s_cache_05_a_legacy_list_is_fresh_only_where_changes_are_promised() {
    let mut world = ready(config(), legacy);
    world.list(List::Tools);
    world.pass(seconds(100_000));
    assert!(is_fresh(&mut world, List::Tools));
    world.finish();
    let mut world = ready(config(), || {
        legacy().replies("initialize", |_| {
            client_pipe::agreed("2025-11-25", json!({"tools": {}}))
        })
    });
    world.list(List::Tools);
    world.list(List::Tools);
    assert_eq!(world.said("tools/list").len(), 2);
    world.finish();
}

#[test]
fn s_cache_03_lists_are_not_mixed_up() {
    for server in BOTH {
        let mut world = ready(config(), move || {
            counting(server).replies(
                "prompts/list",
                |_| json!({"prompts": [{"name": "p"}], "ttlMs": 9_999}),
            )
        });
        let (tools, prompts) = (world.list(List::Tools), world.list(List::Prompts));
        assert_eq!(listed(&world, tools), ["tool-1"]);
        assert_eq!(listed(&world, prompts), ["p"]);
        assert!(!is_fresh(&mut world, List::Resources));
        world.peer(changed(&world, PROMPTS_CHANGED));
        assert!(is_fresh(&mut world, List::Tools));
        assert!(!is_fresh(&mut world, List::Prompts));
        world.finish();
    }
}

#[test]
fn s_sub_01_only_what_is_wished_and_offered_is_asked_for() {
    let only_tools = || {
        let mut capabilities = everything();
        capabilities["prompts"] = json!({});
        capabilities["resources"] = json!({"listChanged": true});
        Peer::modern().replies("server/discover", move |_| {
            client_pipe::discovered(capabilities.clone())
        })
    };
    let wish = Watch::lists().and_uri("file:///a");
    let world = ready(wishing(wish), only_tools);
    let filter = world.last("subscriptions/listen")["params"]["notifications"].clone();
    let possible = json!({"toolsListChanged": true, "resourcesListChanged": true});
    assert_eq!(filter, possible);
    world.finish();

    let world = ready(wishing(Watch::none()), Peer::modern);
    assert!(world.said("subscriptions/listen").is_empty());
    world.finish();
}

#[test]
fn s_sub_06_the_application_hears_what_of_its_wish_was_granted() {
    let mut world = ready(wishing(Watch::lists().and_uri("file:///a")), || {
        Peer::modern().on("subscriptions/listen", |listen| {
            vec![confirmed(listen, &json!({"toolsListChanged": true}))]
        })
    });
    world.pass(millis(1));
    let mut tools = Watch::none();
    tools.tools = true;
    assert_eq!(granted(&world), [tools]);
    world.finish();

    let mut world = ready(
        wishing(Watch::none().and_uri("file:///a").and_uri("file:///b")),
        || {
            legacy().on("resources/subscribe", |request| {
                vec![match request["params"]["uri"].as_str() {
                    Some("file:///a") => reply(request, json!({})),
                    _ => error(request, -32002, "no such resource"),
                }]
            })
        },
    );
    world.pass(millis(1));
    assert_eq!(granted(&world), [Watch::none().and_uri("file:///a")]);
    world.finish();
}

#[test]
fn s_sub_06_a_legacy_subscription_that_is_refused_for_now_is_asked_for_again() {
    let wish = Watch::none().and_uri("file:///a");
    let mut world = ready(wishing(wish.clone()), || {
        let mut refusals = 2;
        legacy().on("resources/subscribe", move |request| {
            if refusals == 0 {
                return vec![reply(request, json!({}))];
            }
            refusals -= 1;
            vec![error(request, -32603, "busy")]
        })
    });
    let asked = |world: &World| world.said("resources/subscribe").len();
    world.pass(millis(4_999));
    assert_eq!(asked(&world), 1);
    world.pass(millis(1));
    assert_eq!(asked(&world), 2, "after 5 s");
    world.pass(millis(9_999));
    assert_eq!(asked(&world), 2);
    assert_eq!(granted(&world), [Watch::none()], "the application knows");
    world.pass(millis(1));
    assert_eq!(asked(&world), 3, "and after 10 s more");
    assert_eq!(granted(&world), [Watch::none(), wish]);
    world.pass(seconds(3_600));
    assert_eq!(asked(&world), 3);
    world.finish();
}

#[test]
fn s_sub_06_a_legacy_subscription_that_is_refused_for_good_is_not_asked_for_again() {
    for code in [-32601, -32602] {
        let wish = Watch::none().and_uri("file:///a");
        let mut world = ready(wishing(wish), move || {
            legacy().refuses("resources/subscribe", code)
        });
        world.pass(seconds(3_600));
        assert_eq!(world.said("resources/subscribe").len(), 1);
        assert_eq!(granted(&world), [Watch::none()]);
        world.finish();
    }
}

#[test]
fn s_sub_06_a_legacy_subscription_that_is_not_answered_is_asked_for_again() {
    let wish = Watch::none().and_uri("file:///a");
    let mut world = ready(wishing(wish.clone()), || {
        let mut silent = true;
        legacy().on("resources/subscribe", move |request| {
            if core::mem::take(&mut silent) {
                return Vec::new();
            }
            vec![reply(request, json!({}))]
        })
    });
    // 10 s for the reply, and 5 s until the next attempt.
    world.pass(seconds(14));
    assert_eq!(granted(&world), [Watch::none()]);
    assert_eq!(world.said("resources/subscribe").len(), 1);
    world.pass(seconds(1));
    assert_eq!(world.said("resources/subscribe").len(), 2);
    assert_eq!(granted(&world), [Watch::none(), wish]);
    world.finish();
}

#[test]
fn s_sub_06_the_same_wish_again_asks_a_legacy_server_for_what_is_missing() {
    let wish = Watch::none().and_uri("file:///a").and_uri("file:///b");
    let mut world = ready(wishing(wish.clone()), || {
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
    assert_eq!(granted(&world), [Watch::none().and_uri("file:///a")]);
    world.watch(wish.clone());
    assert_eq!(granted(&world).last(), Some(&wish));
    assert_eq!(world.said("resources/subscribe").len(), 3);
    world.watch(wish);
    assert_eq!(world.said("resources/subscribe").len(), 3);
    world.finish();
}

#[test]
fn s_time_02_what_a_legacy_watch_asked_for_in_vain_is_cancelled() {
    let wish = Watch::none()
        .and_uri("file:///a")
        .and_logs(LogLevel::Warning);
    let mut world = ready(wishing(wish), || {
        legacy()
            .ignores("resources/subscribe")
            .ignores("logging/setLevel")
    });
    let asked = ["logging/setLevel", "resources/subscribe"];
    let asked = asked.map(|method| world.last(method)["id"].clone());
    world.pass(seconds(10));
    let cancelled: Vec<Value> = world
        .said("notifications/cancelled")
        .into_iter()
        .map(|said| said["params"]["requestId"].clone())
        .collect();
    assert_eq!(cancelled, asked);
    world.finish();
}

#[test]
fn s_sub_08_what_belongs_to_another_subscription_is_noise() {
    let mut world = ready(config(), || counting(Peer::modern));
    world.list(List::Tools);
    let listen = world.last("subscriptions/listen");
    for id in [json!(999), json!(listen["id"].to_string()), json!("x")] {
        let params = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": id}});
        world.peer(notify(TOOLS_CHANGED, params));
    }
    assert!(changes(&world).is_empty());
    assert!(is_fresh(&mut world, List::Tools));
    assert_eq!(world.link().stats().noise, 3);
    world.finish();
}

#[test]
fn s_sub_09_a_new_wish_takes_over_from_the_old_without_a_gap() {
    let mut world = ready(config(), || Peer::modern().ignores("subscriptions/listen"));
    let old = world.last("subscriptions/listen");
    world.peer(confirmed(&old, &json!({"toolsListChanged": true})));
    world.watch(Watch::lists().and_uri("file:///a"));
    let new = world.last("subscriptions/listen");
    assert_ne!(old["id"], new["id"]);
    assert!(
        world.said("notifications/cancelled").is_empty(),
        "until the new one is confirmed the old one serves"
    );
    let params = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": old["id"]}});
    world.peer(notify(TOOLS_CHANGED, params));
    assert_eq!(changes(&world).len(), 1);
    world.peer(confirmed(
        &new,
        &json!({"resourceSubscriptions": ["file:///a"]}),
    ));
    // S-SUB-10
    let cancel = world.last("notifications/cancelled");
    assert_eq!(cancel["params"]["requestId"], old["id"]);
    assert_eq!(world.said("notifications/cancelled").len(), 1);
    world.finish();
}

#[test]
fn s_sub_09_the_same_wish_again_sends_nothing() {
    // With and without an acknowledgement.
    for server in [Peer::modern, || {
        Peer::modern().ignores("subscriptions/listen")
    }] {
        let mut world = ready(config(), server);
        for _ in 0..5 {
            world.watch(Watch::lists());
        }
        assert_eq!(world.said("subscriptions/listen").len(), 1);
        assert!(world.said("notifications/cancelled").is_empty());
        world.finish();
    }
}

#[test]
fn s_sub_10_when_nothing_is_wished_any_more_the_watch_is_cancelled() {
    let mut world = ready(config(), Peer::modern);
    world.watch(Watch::none());
    let cancel = world.last("notifications/cancelled");
    let listen = world.last("subscriptions/listen");
    assert_eq!(cancel["params"]["requestId"], listen["id"]);
    world.peer(reply(&listen, json!({"resultType": "complete"})));
    world.pass(seconds(3_600));
    assert_eq!(world.said("subscriptions/listen").len(), 1);
    world.finish();
}

#[test]
fn s_sub_11_12_14_a_watch_that_the_server_ends_is_set_up_again_however_it_ends() {
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
        let mut world = ready(config(), Peer::modern);
        let listen = world.last("subscriptions/listen");
        world.peer(ending(&listen));
        assert_eq!(world.said("subscriptions/listen").len(), 1, "not at once");
        world.pass(seconds(5));
        assert_eq!(world.said("subscriptions/listen").len(), 2);
        assert_eq!(granted(&world).last(), Some(&Watch::lists()));
        assert_eq!((world.state(), world.life()), (State::Ready, 1));
        world.finish();
    }
}

#[test]
fn f_118_the_gap_in_a_watch_is_told_and_then_its_end() {
    let mut world = ready(config(), Peer::modern);
    let listen = world.last("subscriptions/listen");
    world.peer(reply(&listen, json!({"resultType": "complete"})));
    assert_eq!(granted(&world), [Watch::lists(), Watch::none()]);
    world.pass(seconds(5));
    let told = [Watch::lists(), Watch::none(), Watch::lists()];
    assert_eq!(granted(&world), told);
    world.finish();
}

#[test]
fn s_sub_14_a_server_that_ends_every_watch_is_asked_ever_less_often() {
    let mut world = ready(config(), || {
        Peer::modern().refuses("subscriptions/listen", -32603)
    });
    world.pass(seconds(3_600));
    let times = world.said("subscriptions/listen").len();
    assert!((50..80).contains(&times), "{times} times in an hour");
    world.finish();
}

#[test]
fn s_sub_14_a_server_that_confirms_and_ends_every_watch_is_asked_ever_less_often_too() {
    let mut world = ready(config(), || {
        Peer::modern().on("subscriptions/listen", |listen| {
            let filter = listen["params"]["notifications"].clone();
            vec![
                confirmed(listen, &filter),
                reply(listen, json!({"resultType": "complete"})),
            ]
        })
    });
    world.pass(seconds(3_600));
    let times = world.said("subscriptions/listen").len();
    assert!((50..80).contains(&times), "{times} times in an hour");
    world.finish();
}

/// Lets the server end the acknowledged watch. Returns the time until the link asks for the next one.
fn pause_after_an_ending(world: &mut World) -> core::time::Duration {
    let listen = world.last("subscriptions/listen");
    let asked = world.said("subscriptions/listen").len();
    let ended = world.now();
    world.peer(reply(&listen, json!({"resultType": "complete"})));
    world.until("it is asked again", |world| {
        world.said("subscriptions/listen").len() > asked
    });
    world.now().since(ended)
}

#[test]
fn s_sub_14_a_watch_that_lasted_and_a_new_life_begin_the_pauses_anew() {
    let mut world = ready(config(), Peer::modern);
    let often = |world: &mut World| {
        let pauses: Vec<_> = (0..6).map(|_| pause_after_an_ending(world)).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 60, 60].map(seconds));
    };
    often(&mut world);
    world.pass(seconds(120));
    often(&mut world);
    world.peer_all(dies(CRASH));
    world.until_ready();
    often(&mut world);
    world.finish();
}

#[test]
fn s_sub_06_a_changed_wish_that_is_refused_once_is_asked_for_again() {
    let mut listens = 0;
    let mut world = ready(config(), move || {
        Peer::modern().on("subscriptions/listen", move |listen| {
            listens += 1;
            vec![match listens {
                2 => error(listen, -32603, "out of memory"),
                _ => confirmed(listen, &listen["params"]["notifications"]),
            }]
        })
    });
    let wish = Watch::lists().and_uri("file:///a");
    world.watch(wish.clone());
    world.pass(seconds(60));
    assert_eq!(granted(&world).last(), Some(&wish));
    world.finish();
}

#[test]
fn s_sub_17_a_change_below_a_watched_address_is_told() {
    for server in BOTH {
        let mut world = ready(wishing(Watch::none().and_uri("file:///dir")), move || {
            server().replies("resources/subscribe", |_| json!({}))
        });
        world.pass(millis(1));
        let mut params = json!({"uri": "file:///dir/inner"});
        if is_modern(&world) {
            let id = world.last("subscriptions/listen")["id"].clone();
            params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": id});
        }
        world.peer(notify("notifications/resources/updated", params));
        let uri = "file:///dir/inner".into();
        assert_eq!(changes(&world), [Change::Resource { uri }]);
        world.finish();
    }
}
