//! Change notifications: who receives which, in which form, and during which time. S-SUB and S-CAP-13 of the
//! requirements.

use everlink::protocol::{ServerCapabilities, ServerFeature, code};
use everlink::server::{Config, Event, ListenEnd, Misuse, Offer, State};
use everlink::{Change, List, Watch};
use serde_json::{Value, json};

use crate::server_pipe::{
    Harness, config, every_chunking, full_offer, offering, payload, request, seconds, with_meta,
};

const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const CANCELLED: &str = "notifications/cancelled";
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
const UPDATED: &str = "notifications/resources/updated";

/// The three lists that a client can watch: the member of the filter, the published list, and the notification.
const LISTS: [(&str, List, &str); 3] = [
    (
        "promptsListChanged",
        List::Prompts,
        "notifications/prompts/list_changed",
    ),
    (
        "resourcesListChanged",
        List::Resources,
        "notifications/resources/list_changed",
    ),
    (
        "toolsListChanged",
        List::Tools,
        "notifications/tools/list_changed",
    ),
];

fn resource(uri: &str) -> Change {
    Change::Resource { uri: uri.into() }
}

/// A filter for everything that can be watched without an extension.
fn filter_for_all(uri: &str) -> Value {
    json!({
        "promptsListChanged": true,
        "resourcesListChanged": true,
        "toolsListChanged": true,
        "resourceSubscriptions": [uri],
    })
}

/// A server that also has the tasks extension.
fn with_tasks() -> Config {
    let mut offer = full_offer();
    offer.capabilities = offer.capabilities.with(ServerFeature::TasksExtension);
    Config::new(offer, [7; 16])
}

/// A server that has at most about one message on its way.
fn small_write_window() -> Config {
    let mut config = config();
    config.limits.write_window = 1;
    config
}

impl Harness {
    /// Opens a watch and returns the id of its request.
    fn listen(&mut self, filter: Value) -> Value {
        self.modern_call("subscriptions/listen", json!({"notifications": filter}))
    }

    /// Opens a watch under this id.
    fn listen_as(&mut self, id: &Value, filter: Value) {
        let params = with_meta(json!({"notifications": filter}), json!({}));
        self.send(request(id.clone(), "subscriptions/listen", params));
    }

    /// All messages with the tag of this watch: notifications and its result.
    fn messages_to(&self, watch: &Value) -> Vec<&Value> {
        let is_tagged = |line: &&Value| {
            let of = |member: &str| line.get(member)?.get("_meta")?.get(SUBSCRIPTION_ID);
            of("params").or_else(|| of("result")) == Some(watch)
        };
        self.received().iter().filter(is_tagged).collect()
    }

    /// The methods of the messages to this watch, in order. The result counts as `(result)`.
    fn methods_to(&self, watch: &Value) -> Vec<&str> {
        let messages = self.messages_to(watch).into_iter();
        messages
            .map(|line| line["method"].as_str().unwrap_or("(result)"))
            .collect()
    }

    /// The granted part of the filter.
    #[track_caller]
    fn granted(&self, watch: &Value) -> Value {
        let messages = self.messages_to(watch);
        let first = messages.first().expect("the watch received a message");
        assert_eq!(first["method"], ACKNOWLEDGED);
        first["params"]["notifications"].clone()
    }

    /// The union of all watches after each `Watching` event.
    fn watch_unions(&self) -> Vec<Watch> {
        let updates = self.pick_events(|event| match event {
            Event::Watching(update) => Some(update),
            _ => None,
        });
        let mut watch = Watch::none();
        let unions = updates.into_iter().map(|update| {
            update.apply_to(&mut watch);
            watch.clone()
        });
        unions.collect()
    }

    /// Sends a notification of the application.
    fn notify_client(&mut self, method: &'static str, params: &Value) -> Result<(), Misuse> {
        let params = payload(params);
        self.with_server(|server, now| server.notify(now, method, Some(params)))
    }
}

/// S-SUB-03, S-SUB-07: the acknowledgement comes first. Every message of a watch carries the id of its request, with value
/// and type.
#[test]
fn watch_is_acknowledged_first_and_all_its_messages_carry_its_id() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        let ids = [
            json!(1),
            json!("1"),
            json!(0),
            json!(-7),
            json!(""),
            json!(i64::MAX),
        ];
        for id in &ids {
            harness.listen_as(id, json!({"toolsListChanged": true}));
        }
        harness.publish(Change::List(List::Tools));
        harness.shutdown();
        for id in &ids {
            let methods = harness.methods_to(id);
            let changed = "notifications/tools/list_changed";
            assert_eq!(methods, [ACKNOWLEDGED, changed, "(result)"], "{id}");
        }
        assert!(
            harness.requests().is_empty(),
            "the server handles watches itself"
        );
        harness
    });
}

/// S-SUB-03: a change while the acknowledgement is queued is sent after it.
#[test]
fn a_change_does_not_overtake_the_acknowledgement() {
    let mut harness = Harness::modern(small_write_window());
    harness.fill_pipe();
    let watch = harness.listen(json!({"toolsListChanged": true}));
    harness.publish(Change::List(List::Tools));
    assert!(harness.messages_to(&watch).is_empty(), "the pipe is full");
    harness.resume_reading();
    let methods = harness.methods_to(&watch);
    assert_eq!(methods, [ACKNOWLEDGED, "notifications/tools/list_changed"]);
    harness.finish();
}

/// S-SUB-04: only the order within each watch is fixed. A watch does not wait for other watches or requests.
#[test]
fn messages_of_watches_and_requests_interleave_in_order() {
    let mut harness = Harness::modern(small_write_window());
    let first = harness.listen(json!({"toolsListChanged": true}));
    let (call, running) = harness.call_tool("slow");
    harness.fill_pipe();
    harness.publish(Change::List(List::Tools));
    let second = harness.listen(json!({"promptsListChanged": true}));
    harness.respond(running, json!({"content": []}));
    harness.publish(Change::List(List::Prompts));
    harness.resume_reading();

    let position_of = |what: &dyn Fn(&Value) -> bool| harness.received().iter().position(what);
    let tagged =
        |line: &Value, id: &Value| line["params"]["_meta"].get(SUBSCRIPTION_ID) == Some(id);
    let changed = position_of(&|line| line["method"] == LISTS[2].2 && tagged(line, &first));
    let acknowledged = position_of(&|line| line["method"] == ACKNOWLEDGED && tagged(line, &second));
    let answered = position_of(&|line| line["id"] == call);
    let changed_second = position_of(&|line| line["method"] == LISTS[0].2 && tagged(line, &second));
    let positions = [changed, acknowledged, answered, changed_second];
    assert!(positions.iter().all(Option::is_some), "{positions:?}");
    assert!(positions.is_sorted(), "{positions:?}");
    harness.finish();
}

/// S-SUB-05: the acknowledgement names the requested notifications that the server offers.
#[test]
fn acknowledgement_lists_the_offered_part_of_the_filter() {
    let none = ServerCapabilities::default();
    let quiet = none
        .clone()
        .with_prompts(false)
        .with_resources(false, false)
        .with_tools(false);
    for (capabilities, granted) in [
        (none.clone(), json!({})),
        (quiet, json!({})),
        (
            none.clone().with_tools(true),
            json!({"toolsListChanged": true}),
        ),
        (
            none.clone().with_prompts(true),
            json!({"promptsListChanged": true}),
        ),
        (
            none.clone().with_resources(true, false),
            json!({"resourcesListChanged": true}),
        ),
        (
            none.with_resources(false, true),
            json!({"resourceSubscriptions": ["file:///a"]}),
        ),
        (full_offer().capabilities, filter_for_all("file:///a")),
    ] {
        let mut harness = Harness::modern(offering(capabilities));
        let watch = harness.listen(filter_for_all("file:///a"));
        assert_eq!(harness.granted(&watch), granted);
        harness.finish();
    }
}

/// S-SUB-02, S-SUB-05: a member that is missing or `false` is neither granted nor sent.
#[test]
fn changes_outside_the_filter_are_not_sent() {
    let changes = || {
        let lists = LISTS.map(|(_, list, _)| Change::List(list));
        lists
            .into_iter()
            .chain([resource("file:///a"), resource("file:///b")])
    };
    let mut filters: Vec<(Value, Vec<&str>)> = LISTS
        .iter()
        .map(|(member, _, method)| (json!({*member: true}), vec![*method]))
        .collect();
    filters.push((
        json!({"resourceSubscriptions": ["file:///a"]}),
        vec![UPDATED],
    ));
    filters.push((json!({}), vec![]));
    filters.push((json!({"resourceSubscriptions": []}), vec![]));
    filters.push((
        json!({"toolsListChanged": false, "promptsListChanged": true, "resourcesListChanged": false}),
        vec![LISTS[0].2],
    ));
    for (filter, expected) in filters {
        let mut harness = Harness::modern(config());
        let watch = harness.listen(filter.clone());
        let before = harness.received().len();
        for change in changes() {
            harness.publish(change);
        }
        let methods = harness.methods_to(&watch);
        assert_eq!(methods[1..], expected, "{filter}");
        assert_eq!(
            harness.received().len() - before,
            expected.len(),
            "{filter}"
        );
        harness.finish();
    }
}

/// S-SUB-02: a modern client without a watch gets no change notifications.
#[test]
fn modern_client_without_a_watch_gets_no_changes() {
    let mut harness = Harness::modern(config());
    harness.call_tool("slow");
    for (_, list, _) in LISTS {
        harness.publish(Change::List(list));
    }
    harness.publish(resource("file:///a"));
    assert!(harness.received().is_empty());
    harness.finish();
}

/// S-SUB-02, S-SUB-07: a resource change names its URI and goes exactly to the watches of that URI.
#[test]
fn resource_change_goes_only_to_watches_of_its_uri() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        let both = harness.listen(json!({"resourceSubscriptions": ["file:///a", "file:///b"]}));
        let one = harness.listen(json!({"resourceSubscriptions": ["file:///b"]}));
        harness.publish(resource("file:///a"));
        harness.publish(resource("file:///b"));
        let uris = |watch: &Value| {
            let messages = harness.messages_to(watch).into_iter().skip(1);
            messages
                .map(|line| line["params"]["uri"].clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(uris(&both), ["file:///a", "file:///b"]);
        assert_eq!(uris(&one), ["file:///b"]);
        harness
    });
}

/// S-SUB-17: a change below a watched URI is sent with its own URI. If the client does not read, it is sent with the watched URI, so
/// that the queue never exceeds the number of URIs.
#[test]
fn change_below_a_watched_uri_is_sent() {
    let mut config = small_write_window();
    config.limits.queued_bytes = 2_000;
    let mut harness = Harness::legacy(config, "2025-11-25");
    harness.call("resources/subscribe", json!({"uri": "file:///dir"}));
    let watch = harness.listen(json!({"resourceSubscriptions": ["file:///dir"]}));
    harness.publish(resource("file:///dir/a"));
    harness.publish(resource("file:///directory"));
    let uris = |harness: &Harness| -> Vec<String> {
        let updates = harness.messages_with(UPDATED).into_iter();
        updates
            .map(|line| line["params"]["uri"].as_str().expect("text").to_owned())
            .collect()
    };
    assert_eq!(uris(&harness), ["file:///dir/a"; 2]);
    assert_eq!(harness.messages_to(&watch).len(), 2);

    harness.fill_pipe();
    for number in 0..1_000 {
        harness.publish(resource(&format!("file:///dir/{number}")));
    }
    harness.resume_reading();
    let updates = uris(&harness);
    assert!(updates.len() < 100, "{}", updates.len());
    assert!(updates.contains(&"file:///dir".to_owned()), "{updates:?}");
    harness.finish();
}

/// S-SUB-16: the protocol has one notification for changes of resources and of their templates.
#[test]
fn template_list_change_is_sent_as_resource_list_change() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let watch = harness.listen(json!({"resourcesListChanged": true}));
    harness.publish(Change::List(List::ResourceTemplates));
    assert_eq!(harness.methods_to(&watch), [ACKNOWLEDGED, LISTS[1].2]);
    assert_eq!(harness.messages_with(LISTS[1].2).len(), 2);
    harness.finish();
}

/// S-SUB-05: unknown members of the filter are ignored.
#[test]
fn unknown_filter_member_is_ignored() {
    let mut harness = Harness::modern(config());
    let watch = harness.listen(json!({"moonPhaseChanged": true, "toolsListChanged": true}));
    assert_eq!(harness.granted(&watch), json!({"toolsListChanged": true}));
    harness.finish();
}

/// S-ERR-01: an invalid filter is refused. It watches nothing, and other watches are not affected.
#[test]
fn invalid_filter_is_refused() {
    for params in [
        json!({}),
        json!({"notifications": null}),
        json!({"notifications": true}),
        json!({"notifications": ["toolsListChanged"]}),
        json!({"notifications": {"toolsListChanged": "yes"}}),
        json!({"notifications": {"promptsListChanged": 1}}),
        json!({"notifications": {"resourceSubscriptions": "file:///a"}}),
        json!({"notifications": {"resourceSubscriptions": [1]}}),
    ] {
        let mut harness = Harness::modern(config());
        let good = harness.listen(json!({"toolsListChanged": true}));
        let bad = harness.modern_call("subscriptions/listen", params.clone());
        assert_eq!(harness.code(&bad), code::INVALID_PARAMS, "{params}");
        harness.publish(Change::List(List::Tools));
        assert!(harness.messages_to(&bad).is_empty(), "{params}");
        assert_eq!(harness.messages_to(&good).len(), 2);
        harness.finish();
    }
}

/// S-SUB-10, S-CANC-04: a watch that the client cancels ends without a message, and only that watch.
#[test]
fn cancelled_watch_ends_without_a_message() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        let ids = [json!(1), json!("1"), json!(2)];
        for id in &ids {
            harness.listen_as(id, json!({"toolsListChanged": true}));
        }
        harness.cancel(&json!("1"));
        harness.publish(Change::List(List::Tools));
        harness.shutdown();
        assert_eq!(harness.methods_to(&ids[1]), [ACKNOWLEDGED]);
        assert!(harness.replies(&ids[1]).is_empty());
        for other in [&ids[0], &ids[2]] {
            assert_eq!(harness.messages_to(other).len(), 3, "{other}");
        }
        harness
    });
}

/// S-STDIO-14: queued messages of a cancelled watch are not written, including its acknowledgement.
#[test]
fn queued_messages_of_a_cancelled_watch_are_not_written() {
    let mut harness = Harness::modern(small_write_window());
    let old = harness.listen(json!({"toolsListChanged": true}));
    harness.fill_pipe();
    let new = harness.listen(json!({"toolsListChanged": true}));
    let kept = harness.listen(json!({"toolsListChanged": true}));
    harness.publish(Change::List(List::Tools));
    harness.cancel(&old);
    harness.cancel(&new);
    harness.resume_reading();
    assert_eq!(harness.methods_to(&old), [ACKNOWLEDGED]);
    assert!(harness.messages_to(&new).is_empty());
    assert_eq!(harness.messages_to(&kept).len(), 2);
    harness.finish();
}

/// S-SUB-15: nothing remains of a finished watch. Its id can be used for another watch with its own filter.
#[test]
fn id_of_a_finished_watch_can_be_reused_with_another_filter() {
    let mut harness = Harness::modern(config());
    let id = json!("w");
    harness.listen_as(&id, filter_for_all("file:///a"));
    harness.cancel(&id);
    harness.listen_as(&id, json!({"promptsListChanged": true}));
    harness.publish(Change::List(List::Tools));
    harness.publish(Change::List(List::Prompts));
    harness.publish(resource("file:///a"));
    let methods = harness.methods_to(&id);
    assert_eq!(methods, [ACKNOWLEDGED, ACKNOWLEDGED, LISTS[0].2]);
    harness.finish();
}

/// S-SUB-11, S-SUB-07: a watch that the server ends gets a result, and nothing after it.
#[test]
fn a_shutdown_ends_every_watch_with_its_result() {
    every_chunking(|chunking| {
        let mut harness = Harness::modern(config()).chunked(chunking);
        let ids = [json!(71), json!("71")];
        for id in &ids {
            harness.listen_as(id, json!({"toolsListChanged": true}));
        }
        let (_, running) = harness.call_tool("slow");
        harness.shutdown();
        for id in &ids {
            let result = harness.result(id);
            assert_eq!(result["resultType"], "complete");
            assert_eq!(result["_meta"][SUBSCRIPTION_ID], *id);
        }
        assert!(
            harness.messages_with(CANCELLED).is_empty(),
            "the result ends the watch"
        );
        // While the request runs, no watch is left to be notified.
        let before = harness.received().len();
        harness.with_server(|server, now| drop(server.publish(now, Change::List(List::Tools))));
        assert_eq!(harness.received().len(), before);
        harness.respond(running, json!({"content": []}));
        assert_eq!(harness.server.state(), State::Closed);
        harness
    });
}

/// S-SUB-12, S-SUB-11: with this option, the server follows the specification literally: the cancellation comes first,
/// then the result.
#[test]
fn shutdown_with_cancelled_then_result_cancels_each_watch_first() {
    every_chunking(|chunking| {
        let mut config = config();
        config.listen_end = ListenEnd::CancelledThenResult;
        let mut harness = Harness::modern(config).chunked(chunking);
        let ids = [json!(1), json!("1")];
        for id in &ids {
            harness.listen_as(id, json!({"toolsListChanged": true}));
        }
        harness.shutdown();
        for id in &ids {
            let position_of =
                |what: &dyn Fn(&Value) -> bool| harness.received().iter().position(what);
            let is_cancel = |line: &Value| {
                line["method"] == CANCELLED && line["params"].get("requestId") == Some(id)
            };
            let cancelled = position_of(&is_cancel);
            assert!(cancelled.is_some(), "{id} was not cancelled");
            assert!(cancelled < position_of(&|line| line.get("id") == Some(id)));
            assert_eq!(harness.result(id)["_meta"][SUBSCRIPTION_ID], *id);
        }
        assert_eq!(harness.messages_with(CANCELLED).len(), ids.len());
        harness
    });
}

/// S-SUB-13: a modern client gets a cancellation only for a watch, not for a timed-out request or a withdrawn ask.
#[test]
fn server_cancels_only_watches_of_a_modern_client() {
    for end in [ListenEnd::CancelledThenResult, ListenEnd::Result] {
        let mut config = config();
        config.listen_end = end;
        let mut harness = Harness::modern(config);
        let watch = harness.listen(json!({"toolsListChanged": true}));
        let (_, asking) = harness.call_tool("asks");
        let ask = harness.ask(asking, "roots/list", Value::Null);
        harness
            .with_server(|server, now| server.withdraw(now, ask, None))
            .expect("the ask is open");
        let (late, _) = harness.call_tool("slow");
        harness.shutdown();
        harness.advance(seconds(60));
        assert_eq!(harness.server.state(), State::Closed);
        assert!(harness.reply(&late).get("error").is_some());
        for cancelled in harness.messages_with(CANCELLED) {
            assert_eq!(cancelled["params"]["requestId"], watch);
        }
        harness.finish();
    }
}

/// S-SUB-11: the end of the client's input ends its watches in the same way, because the client may still read.
#[test]
fn the_end_of_input_ends_every_watch_with_its_result() {
    let mut harness = Harness::modern(config());
    let watch = harness.listen(json!({"toolsListChanged": true}));
    harness.eof();
    assert_eq!(harness.methods_to(&watch), [ACKNOWLEDGED, "(result)"]);
    assert_eq!(
        harness.server.state(),
        State::Closed,
        "a watch does not delay the close"
    );
    harness.finish();
}

/// S-SUB-20, S-META-09: only a request that declares the extension can watch tasks.
#[test]
fn tasks_cannot_be_watched_without_the_extension() {
    let mut harness = Harness::modern(with_tasks());
    let filter = json!({"notifications": {"taskIds": ["t"], "toolsListChanged": true}});
    let declared = with_meta(filter.clone(), json!({"extensions": {TASKS_EXTENSION: {}}}));
    let earlier = harness.plain_call("subscriptions/listen", declared);
    assert_eq!(harness.methods_to(&earlier), [ACKNOWLEDGED]);

    let watch = harness.modern_call("subscriptions/listen", filter);
    assert_eq!(
        harness.code(&watch),
        code::MISSING_REQUIRED_CLIENT_CAPABILITY
    );
    let needed = &harness.error(&watch)["data"]["requiredCapabilities"];
    assert!(
        needed["extensions"][TASKS_EXTENSION].is_object(),
        "{needed}"
    );
    harness.publish(Change::List(List::Tools));
    assert!(harness.messages_to(&watch).is_empty());
    harness.finish();
}

/// S-SUB-05: a server without the extension does not grant task notifications.
#[test]
fn task_watch_is_not_granted_without_the_offered_extension() {
    let mut harness =
        Harness::modern(config()).declaring(json!({"extensions": {TASKS_EXTENSION: {}}}));
    let watch = harness.listen(json!({"taskIds": ["t"], "toolsListChanged": true}));
    assert_eq!(harness.granted(&watch), json!({"toolsListChanged": true}));
    harness.finish();
}

/// S-SUB-05: task notifications are neither granted nor sent, even if tasks are offered, because there is no verb for them.
/// Clients poll.
#[test]
fn task_notifications_are_neither_granted_nor_sent() {
    let mut harness =
        Harness::modern(with_tasks()).declaring(json!({"extensions": {TASKS_EXTENSION: {}}}));
    let watch = harness.listen(json!({"taskIds": ["t"], "toolsListChanged": true}));
    assert_eq!(harness.granted(&watch), json!({"toolsListChanged": true}));
    let task = json!({"taskId": "t", "status": "working"});
    let sent = harness.notify_client("notifications/tasks", &task);
    assert!(matches!(sent, Err(Misuse::NotSendable { .. })), "{sent:?}");
    assert_eq!(harness.methods_to(&watch), [ACKNOWLEDGED]);
    harness.finish();
}

/// S-INH-06: the number of watches is limited, and one that ends makes room.
#[test]
fn number_of_watches_is_limited() {
    let mut config = config();
    config.limits.listens = 2;
    let mut harness = Harness::modern(config);
    let tools = json!({"toolsListChanged": true});
    let first = harness.listen(tools.clone());
    let second = harness.listen(tools.clone());
    let third = harness.listen(tools.clone());
    assert!(harness.reply(&third).get("error").is_some());
    harness.publish(Change::List(List::Tools));
    assert!(harness.messages_to(&third).is_empty());
    assert_eq!(harness.messages_to(&second).len(), 2);
    harness.cancel(&first);
    let fourth = harness.listen(tools);
    assert_eq!(harness.methods_to(&fourth), [ACKNOWLEDGED]);
    harness.finish();
}

/// S-INH-06, S-SUB-05: the number of URIs in all watches is limited. As many as fit are granted; if none fits, the watch is refused.
#[test]
fn number_of_watched_uris_is_limited() {
    let mut config = config();
    config.limits.watched_uris = 3;
    let mut harness = Harness::modern(config);
    let first = harness.listen(json!({"resourceSubscriptions": ["file:///a", "file:///b"]}));
    let second = harness.listen(json!({"resourceSubscriptions": ["file:///c", "file:///d"]}));
    let granted = harness.granted(&second)["resourceSubscriptions"].clone();
    assert_eq!(granted.as_array().map(Vec::len), Some(1), "{granted}");
    for uri in ["file:///c", "file:///d"] {
        harness.publish(resource(uri));
    }
    let uris: Vec<Value> = harness.messages_to(&second)[1..]
        .iter()
        .map(|line| line["params"]["uri"].clone())
        .collect();
    assert_eq!(Value::from(uris), granted, "only granted changes are sent");
    let third = harness.listen(json!({"resourceSubscriptions": ["file:///e"]}));
    assert!(harness.reply(&third).get("error").is_some());
    harness.publish(resource("file:///e"));
    assert!(harness.messages_to(&third).is_empty());

    harness.cancel(&first);
    let both = json!({"resourceSubscriptions": ["file:///e", "file:///f"]});
    let fourth = harness.listen(both.clone());
    assert_eq!(harness.granted(&fourth), both);
    harness.finish();
}

/// S-INH-06: the bytes of the URIs are limited, too.
#[test]
fn bytes_of_watched_uris_are_limited() {
    let mut config = config();
    config.limits.watched_bytes = 100;
    let mut harness = Harness::modern(config);
    let long = format!("file:///{}", "x".repeat(100));
    let refused = harness.listen(json!({"resourceSubscriptions": [long]}));
    assert!(harness.reply(&refused).get("error").is_some());
    harness.publish(resource(&long));
    assert!(harness.messages_to(&refused).is_empty());
    let watch = harness.listen(json!({"resourceSubscriptions": ["file:///a"]}));
    assert_eq!(harness.methods_to(&watch), [ACKNOWLEDGED]);
    harness.finish();
}

/// S-SUB-16: a change that repeats before it was sent is sent once, and no change is lost, however slowly the client reads.
#[test]
fn queued_change_is_sent_once_and_none_is_lost() {
    let mut harness = Harness::modern(small_write_window());
    let watch = harness.listen(filter_for_all("file:///a"));
    harness.fill_pipe();
    for _ in 0..100 {
        for (_, list, _) in LISTS {
            harness.publish(Change::List(list));
        }
        harness.publish(resource("file:///a"));
    }
    harness.resume_reading();
    let mut methods = harness.methods_to(&watch);
    methods.sort_unstable();
    let mut expected = vec![ACKNOWLEDGED, UPDATED];
    expected.extend(LISTS.map(|(_, _, method)| method));
    expected.sort_unstable();
    assert_eq!(methods, expected);
    harness.publish(Change::List(List::Tools));
    assert_eq!(
        harness.messages_to(&watch).len(),
        6,
        "a sent change is sent again"
    );
    harness.finish();
}

/// Publishing a change that the server does not offer is a misuse by the application, in both eras.
#[test]
fn publishing_an_unoffered_change_is_refused() {
    let quiet = ServerCapabilities::default()
        .with_prompts(false)
        .with_resources(false, false)
        .with_tools(false);
    let mut changes: Vec<Change> = List::ALL.iter().copied().map(Change::List).collect();
    changes.push(resource("file:///a"));
    for mut harness in [
        Harness::modern(offering(quiet.clone())),
        Harness::legacy(offering(quiet), "2025-11-25"),
    ] {
        for change in &changes {
            let done = harness.with_server(|server, now| server.publish(now, change.clone()));
            assert!(
                matches!(done, Err(Misuse::NotOffered { .. })),
                "{change:?}: {done:?}"
            );
        }
        for method in harness.received() {
            assert!(method.get("method").is_none(), "{method}");
        }
        harness.finish();
    }
}

/// S-CAP-13, S-CAP-03: a legacy client of each version gets the promised list changes unasked and without a tag.
#[test]
fn legacy_client_gets_list_changes_unasked() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut harness = Harness::legacy(config(), version);
        for (number, (_, list, method)) in LISTS.into_iter().enumerate() {
            harness.publish(Change::List(list));
            let notifications = harness.messages_with(method);
            assert_eq!(notifications.len(), 1, "{method} in {version}");
            assert!(notifications[0]["params"].get("_meta").is_none());
            assert_eq!(
                harness.received().len(),
                number + 2,
                "no other message was sent"
            );
        }
        harness.finish();
    }
}

/// S-LIFE-05: a legacy client gets change notifications only after `initialized`.
#[test]
fn legacy_client_gets_no_changes_before_initialized() {
    let mut harness = Harness::new(config());
    harness.initialize("2025-11-25");
    let received_before = harness.received().len();
    harness.publish(Change::List(List::Tools));
    assert_eq!(harness.received().len(), received_before);
    harness.notify("notifications/initialized", Value::Null);
    harness.publish(Change::List(List::Tools));
    assert_eq!(harness.messages_with(LISTS[2].2).len(), 1);
    harness.finish();
}

/// S-CAP-13: a legacy client gets changes of a resource from its subscription until it unsubscribes.
#[test]
fn legacy_client_gets_changes_of_subscribed_resources() {
    every_chunking(|chunking| {
        let version = everlink::protocol::Version::V2025_06_18;
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .with_version(version);
        harness.publish(resource("file:///a"));
        assert!(harness.messages_with(UPDATED).is_empty());

        let subscribed = harness.call("resources/subscribe", json!({"uri": "file:///a"}));
        assert_eq!(harness.result(&subscribed), json!({}));
        harness.publish(resource("file:///a"));
        harness.publish(resource("file:///b"));
        let notifications = harness.messages_with(UPDATED);
        assert_eq!(notifications.len(), 1);
        assert_eq!(notifications[0]["params"], json!({"uri": "file:///a"}));

        let unsubscribed = harness.call("resources/unsubscribe", json!({"uri": "file:///a"}));
        assert_eq!(harness.result(&unsubscribed), json!({}));
        harness.publish(resource("file:///a"));
        assert_eq!(harness.messages_with(UPDATED).len(), 1);
        assert!(
            harness.requests().is_empty(),
            "the server handles subscriptions itself"
        );
        harness
    });
}

/// S-CAP-13, S-CAP-03: without the capability, the subscription methods are not found.
#[test]
fn legacy_subscription_without_the_capability_is_not_found() {
    let capabilities = ServerCapabilities::default().with_resources(true, false);
    let mut harness = Harness::legacy(offering(capabilities), "2025-11-25");
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        let id = harness.call(method, json!({"uri": "file:///a"}));
        assert_eq!(harness.code(&id), code::METHOD_NOT_FOUND, "{method}");
    }
    harness.finish();
}

/// S-ERR-01: a subscription without a valid URI is refused.
#[test]
fn legacy_subscription_without_a_valid_uri_is_refused() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    for params in [
        Value::Null,
        json!({}),
        json!({"uri": 1}),
        json!({"uri": null}),
    ] {
        for method in ["resources/subscribe", "resources/unsubscribe"] {
            let id = harness.call(method, params.clone());
            assert_eq!(harness.code(&id), code::INVALID_PARAMS, "{method} {params}");
        }
    }
    harness.finish();
}

/// S-INH-06: the subscriptions of a legacy client are limited as well.
#[test]
fn number_of_legacy_subscriptions_is_limited() {
    let mut config = config();
    config.limits.watched_uris = 2;
    let mut harness = Harness::legacy(config, "2025-11-25");
    for uri in ["file:///a", "file:///b", "file:///a"] {
        let id = harness.call("resources/subscribe", json!({"uri": uri}));
        assert_eq!(harness.result(&id), json!({}), "{uri}");
    }
    let id = harness.call("resources/subscribe", json!({"uri": "file:///c"}));
    assert!(harness.reply(&id).get("error").is_some());
    harness.publish(resource("file:///c"));
    assert!(harness.messages_with(UPDATED).is_empty());
    harness.finish();
}

/// S-VER-07: each era has its own way to subscribe, and not the other's.
#[test]
fn subscription_methods_of_the_other_era_are_not_found() {
    let mut harness = Harness::modern(config());
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        let id = harness.call(method, json!({"uri": "file:///a"}));
        assert_eq!(harness.code(&id), code::METHOD_NOT_FOUND, "{method}");
    }
    harness.finish();

    let mut harness = Harness::legacy(config(), "2025-11-25");
    let id = harness.call(
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
    );
    assert_eq!(harness.code(&id), code::METHOD_NOT_FOUND);
    harness.finish();
}

/// S-VER-06, S-SUB-07: clients of both eras on one stream get the same change, each in the form of its era.
#[test]
fn both_eras_get_the_same_change_in_their_own_form() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let watch = harness.listen(filter_for_all("file:///a"));
    let other = harness.listen(filter_for_all("file:///b"));
    harness.call("resources/subscribe", json!({"uri": "file:///a"}));
    harness.publish(Change::List(List::Tools));
    harness.publish(resource("file:///a"));
    for (method, times) in [(LISTS[2].2, 3), (UPDATED, 2)] {
        let notifications = harness.messages_with(method);
        assert_eq!(notifications.len(), times, "{method}");
        let untagged = notifications
            .iter()
            .filter(|line| line["params"]["_meta"].get(SUBSCRIPTION_ID).is_none());
        assert_eq!(untagged.count(), 1, "{method}");
    }
    assert_eq!(harness.messages_to(&watch).len(), 3);
    assert_eq!(harness.messages_to(&other).len(), 2);
    harness.finish();
}

/// The application is told the union of all watches whenever it changes, and only then.
#[test]
fn watching_events_report_the_union_of_all_watches() {
    let mut harness = Harness::modern(config());
    let tools = json!({"toolsListChanged": true});
    let first = harness.listen(tools.clone());
    let second = harness.listen(tools);
    let third = harness.listen(json!({"resourceSubscriptions": ["file:///a"]}));
    harness.cancel(&first);
    harness.cancel(&third);
    harness.cancel(&second);
    let mut tools = Watch::none();
    tools.tools = true;
    let both = tools.clone().and_uri("file:///a");
    assert_eq!(
        harness.watch_unions(),
        [tools.clone(), both, tools, Watch::none()]
    );
    harness.finish();
}

/// The subscriptions of a legacy client are reported, too.
#[test]
fn watching_events_report_legacy_subscriptions() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    harness.call("resources/subscribe", json!({"uri": "file:///a"}));
    let uris = |harness: &Harness| {
        harness
            .watch_unions()
            .last()
            .map(|watch| watch.uris.clone())
    };
    assert!(uris(&harness).is_some_and(|uris| uris.contains("file:///a")));
    harness.call("resources/unsubscribe", json!({"uri": "file:///a"}));
    assert!(uris(&harness).is_some_and(|uris| uris.is_empty()));
    harness.finish();
}

/// S-SUB-05: a watch that comes before the offer waits for its grant.
#[test]
fn a_watch_waits_for_the_offer() {
    let mut harness = Harness::modern(Config::deferred([7; 16]));
    let watch = harness.listen(filter_for_all("file:///a"));
    assert!(harness.received().is_empty(), "the grant needs the offer");
    let mut offer = full_offer();
    offer.capabilities = ServerCapabilities::default().with_tools(true);
    harness.with_server(|server, now| server.offer(now, offer));
    assert_eq!(harness.granted(&watch), json!({"toolsListChanged": true}));
    harness.publish(Change::List(List::Tools));
    assert_eq!(harness.messages_to(&watch).len(), 2);
    harness.finish();
}

/// S-STDIO-14: a watch that is cancelled while it waits for the offer gets no message at all.
#[test]
fn watch_cancelled_before_the_offer_gets_no_message() {
    let mut harness = Harness::modern(Config::deferred([7; 16]));
    let watch = harness.listen(filter_for_all("file:///a"));
    harness.cancel(&watch);
    harness.with_server(|server, now| server.offer(now, full_offer()));
    harness.publish(Change::List(List::Tools));
    assert!(harness.received().is_empty());
    harness.finish();
}

/// An application may send its own notifications to present clients, but no requests.
#[test]
fn application_may_send_its_own_notifications_but_no_requests() {
    let mut harness = Harness::modern(config());
    let params = json!({"phase": "full"});
    harness
        .notify_client("notifications/moon", &params)
        .expect("no client is present");
    assert!(harness.received().is_empty());
    harness.call_tool("slow");
    harness
        .notify_client("notifications/moon", &params)
        .expect("a client is present");
    assert_eq!(
        harness.messages_with("notifications/moon")[0]["params"],
        params
    );
    let invalid = harness.notify_client("notifications/moon", &json!([1]));
    assert!(
        matches!(invalid, Err(Misuse::NotAnObject { .. })),
        "{invalid:?}"
    );
    for method in ["tools/call", "ping", "notifications/initialized"] {
        assert!(
            harness.notify_client(method, &json!({})).is_err(),
            "{method}"
        );
    }
    let asked = harness.notify_client("sampling/createMessage", &json!({}));
    assert!(
        matches!(asked, Err(Misuse::OwnedByLink { instead: "ask", .. })),
        "{asked:?}"
    );
    assert_eq!(harness.received().len(), 1);
    harness.finish();
}

/// The application cannot send the server's own notifications with `notify`.
#[test]
fn notify_refuses_the_servers_own_notifications() {
    let mut harness = Harness::modern(config());
    harness.listen(filter_for_all("file:///a"));
    let lists = LISTS.map(|(_, _, method)| method);
    for method in lists.into_iter().chain([UPDATED, ACKNOWLEDGED, CANCELLED]) {
        let before = harness.received().len();
        let done = harness.notify_client(method, &json!({"uri": "file:///a"}));
        let is_refused = matches!(
            done,
            Err(Misuse::NotSendable { .. } | Misuse::OwnedByLink { .. })
        );
        assert!(is_refused, "{method}: {done:?}");
        assert_eq!(harness.received().len(), before, "{method}");
    }
    harness.finish();
}

/// The client could not end its subscription otherwise.
#[test]
fn client_can_unsubscribe_when_subscriptions_are_no_longer_offered() {
    let mut harness = Harness::legacy(config(), "2025-11-25");
    let uri = json!({"uri": "file:///a"});
    let id = harness.call("resources/subscribe", uri.clone());
    assert_eq!(harness.result(&id), json!({}));
    let offer = Offer::new("site", "1");
    harness.with_server(|server, now| server.offer(now, offer));
    let id = harness.call("resources/subscribe", uri.clone());
    assert_eq!(harness.code(&id), -32601);
    let id = harness.call("resources/unsubscribe", uri.clone());
    assert_eq!(harness.result(&id), json!({}));
    let id = harness.call("resources/unsubscribe", uri);
    assert_eq!(harness.code(&id), -32601, "there is no subscription left");
    harness.finish();
}

#[test]
fn debug_text_of_a_server_counts_its_open_watches() {
    let mut harness = Harness::modern(config());
    let tools = json!({"toolsListChanged": true});
    let first = harness.listen(tools.clone());
    harness.listen(tools);
    let shows = |harness: &Harness, text: &str| format!("{:?}", harness.server).contains(text);
    assert!(shows(&harness, "watches: 2,"));
    harness.cancel(&first);
    assert!(shows(&harness, "watches: 1,"));
    harness.finish();
}
