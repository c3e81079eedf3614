//! Change notifications: who receives which, in which form, and during which time. S-SUB and S-CAP-13 of the
//! requirements.

use everlink::protocol::{ServerCapabilities, ServerFeature, code};
use everlink::server::{Config, Event, ListenEnd, Misuse, State};
use everlink::{Change, List, Watch};
use serde_json::{Value, json};

use crate::server_pipe::{
    Host, config, every_chunking, everything, offering, payload, request, seconds, with_meta,
};

const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const CANCELLED: &str = "notifications/cancelled";
const TAG: &str = "io.modelcontextprotocol/subscriptionId";
const TASKS: &str = "io.modelcontextprotocol/tasks";
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
fn everything_of(uri: &str) -> Value {
    json!({
        "promptsListChanged": true,
        "resourcesListChanged": true,
        "toolsListChanged": true,
        "resourceSubscriptions": [uri],
    })
}

/// A server that also has the tasks extension.
fn with_tasks() -> Config {
    let mut offer = everything();
    offer.capabilities = offer.capabilities.with(ServerFeature::TasksExtension);
    Config::new(offer, [7; 16])
}

/// A server that has at most about one message on its way.
fn narrow() -> Config {
    let mut config = config();
    config.limits.write_window = 1;
    config
}

impl Host {
    /// Opens a watch and returns the id of its request.
    fn listen(&mut self, filter: Value) -> Value {
        self.modern_call("subscriptions/listen", json!({"notifications": filter}))
    }

    /// Opens a watch under this id.
    fn listen_as(&mut self, id: &Value, filter: Value) {
        let params = with_meta(json!({"notifications": filter}), json!({}));
        self.say(request(id.clone(), "subscriptions/listen", params));
    }

    /// All messages with the tag of this watch: notifications and its result.
    fn told_to(&self, watch: &Value) -> Vec<&Value> {
        let is_tagged = |line: &&Value| {
            let of = |member: &str| line.get(member)?.get("_meta")?.get(TAG);
            of("params").or_else(|| of("result")) == Some(watch)
        };
        self.heard().iter().filter(is_tagged).collect()
    }

    /// The methods of the messages to this watch, in order. The result counts as `(result)`.
    fn methods_to(&self, watch: &Value) -> Vec<&str> {
        let told = self.told_to(watch).into_iter();
        told.map(|line| line["method"].as_str().unwrap_or("(result)"))
            .collect()
    }

    /// The granted part of the filter.
    #[track_caller]
    fn granted(&self, watch: &Value) -> Value {
        let told = self.told_to(watch);
        let first = told.first().expect("the watch was told something");
        assert_eq!(first["method"], ACKNOWLEDGED);
        first["params"]["notifications"].clone()
    }

    /// The union of all watches after each `Watching` event.
    fn watched(&self) -> Vec<Watch> {
        let updates = self.picked(|event| match event {
            Event::Watching(update) => Some(update),
            _ => None,
        });
        let mut watch = Watch::none();
        let told = updates.into_iter().map(|update| {
            update.apply_to(&mut watch);
            watch.clone()
        });
        told.collect()
    }

    /// Sends a notification of the application.
    fn notify_client(&mut self, method: &'static str, params: &Value) -> Result<(), Misuse> {
        let params = payload(params);
        self.verb(|server, now| server.notify(now, method, Some(params)))
    }
}

/// S-SUB-03, S-SUB-07: the acknowledgement comes first. Every message of a watch carries the id of its request, with value
/// and type.
#[test]
fn a_watch_is_acknowledged_first_and_everything_of_it_carries_its_id() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        let ids = [
            json!(1),
            json!("1"),
            json!(0),
            json!(-7),
            json!(""),
            json!(i64::MAX),
        ];
        for id in &ids {
            host.listen_as(id, json!({"toolsListChanged": true}));
        }
        host.publish(Change::List(List::Tools));
        host.shutdown();
        for id in &ids {
            let told = host.methods_to(id);
            let changed = "notifications/tools/list_changed";
            assert_eq!(told, [ACKNOWLEDGED, changed, "(result)"], "{id}");
        }
        assert!(
            host.requests().is_empty(),
            "a watch is the server's own business"
        );
        host
    });
}

/// S-SUB-03: a change while the acknowledgement is queued is sent after it.
#[test]
fn a_change_does_not_overtake_the_acknowledgement() {
    let mut host = Host::modern(narrow());
    host.fill_pipe();
    let watch = host.listen(json!({"toolsListChanged": true}));
    host.publish(Change::List(List::Tools));
    assert!(host.told_to(&watch).is_empty(), "the pipe is full");
    host.reads_again();
    let told = host.methods_to(&watch);
    assert_eq!(told, [ACKNOWLEDGED, "notifications/tools/list_changed"]);
    host.finish();
}

/// S-SUB-04: only the order within each watch is fixed. A watch does not wait for other watches or requests.
#[test]
fn watches_and_requests_lie_between_each_other() {
    let mut host = Host::modern(narrow());
    let first = host.listen(json!({"toolsListChanged": true}));
    let (call, running) = host.tool("slow");
    host.fill_pipe();
    host.publish(Change::List(List::Tools));
    let second = host.listen(json!({"promptsListChanged": true}));
    host.respond(running, json!({"content": []}));
    host.publish(Change::List(List::Prompts));
    host.reads_again();

    let place = |what: &dyn Fn(&Value) -> bool| host.heard().iter().position(what);
    let tagged = |line: &Value, id: &Value| line["params"]["_meta"].get(TAG) == Some(id);
    let changed = place(&|line| line["method"] == LISTS[2].2 && tagged(line, &first));
    let acknowledged = place(&|line| line["method"] == ACKNOWLEDGED && tagged(line, &second));
    let answered = place(&|line| line["id"] == call);
    let changed_then = place(&|line| line["method"] == LISTS[0].2 && tagged(line, &second));
    let places = [changed, acknowledged, answered, changed_then];
    assert!(places.iter().all(Option::is_some), "{places:?}");
    assert!(places.is_sorted(), "{places:?}");
    host.finish();
}

/// S-SUB-05: the acknowledgement names the requested notifications that the server offers.
#[test]
fn the_acknowledgement_names_the_part_of_the_filter_that_is_offered() {
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
        (everything().capabilities, everything_of("file:///a")),
    ] {
        let mut host = Host::modern(offering(capabilities));
        let watch = host.listen(everything_of("file:///a"));
        assert_eq!(host.granted(&watch), granted);
        host.finish();
    }
}

/// S-SUB-02, S-SUB-05: a member that is missing or `false` is neither granted nor sent.
#[test]
fn nothing_is_told_that_was_not_asked_for() {
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
    for (filter, told) in filters {
        let mut host = Host::modern(config());
        let watch = host.listen(filter.clone());
        let before = host.heard().len();
        for change in changes() {
            host.publish(change);
        }
        let methods = host.methods_to(&watch);
        assert_eq!(methods[1..], told, "{filter}");
        assert_eq!(host.heard().len() - before, told.len(), "{filter}");
        host.finish();
    }
}

/// S-SUB-02: a modern client without a watch gets no change notifications.
#[test]
fn a_modern_client_without_a_watch_hears_of_no_change() {
    let mut host = Host::modern(config());
    host.tool("slow");
    for (_, list, _) in LISTS {
        host.publish(Change::List(list));
    }
    host.publish(resource("file:///a"));
    assert!(host.heard().is_empty());
    host.finish();
}

/// S-SUB-02, S-SUB-07: a resource change names its URI and goes exactly to the watches of that URI.
#[test]
fn a_change_of_a_resource_goes_to_the_watches_of_that_resource() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        let both = host.listen(json!({"resourceSubscriptions": ["file:///a", "file:///b"]}));
        let one = host.listen(json!({"resourceSubscriptions": ["file:///b"]}));
        host.publish(resource("file:///a"));
        host.publish(resource("file:///b"));
        let uris = |watch: &Value| {
            let told = host.told_to(watch).into_iter().skip(1);
            told.map(|line| line["params"]["uri"].clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(uris(&both), ["file:///a", "file:///b"]);
        assert_eq!(uris(&one), ["file:///b"]);
        host
    });
}

/// S-SUB-17: a change below a watched URI is sent with its own URI. If the client does not read, it is sent with the watched URI, so
/// that the queue never exceeds the number of URIs.
#[test]
fn a_change_below_a_watched_address_is_told() {
    let mut config = narrow();
    config.limits.queued_bytes = 2_000;
    let mut host = Host::legacy(config, "2025-11-25");
    host.call("resources/subscribe", json!({"uri": "file:///dir"}));
    let watch = host.listen(json!({"resourceSubscriptions": ["file:///dir"]}));
    host.publish(resource("file:///dir/a"));
    host.publish(resource("file:///directory"));
    let uris = |host: &Host| -> Vec<String> {
        let told = host.said(UPDATED).into_iter();
        told.map(|line| line["params"]["uri"].as_str().expect("text").to_owned())
            .collect()
    };
    assert_eq!(uris(&host), ["file:///dir/a"; 2]);
    assert_eq!(host.told_to(&watch).len(), 2);

    host.fill_pipe();
    for number in 0..1_000 {
        host.publish(resource(&format!("file:///dir/{number}")));
    }
    host.reads_again();
    let told = uris(&host);
    assert!(told.len() < 100, "{}", told.len());
    assert!(told.contains(&"file:///dir".to_owned()), "{told:?}");
    host.finish();
}

/// S-SUB-16: the protocol has one notification for changes of resources and of their templates.
#[test]
fn a_change_of_templates_is_one_of_resources() {
    let mut host = Host::legacy(config(), "2025-11-25");
    let watch = host.listen(json!({"resourcesListChanged": true}));
    host.publish(Change::List(List::ResourceTemplates));
    assert_eq!(host.methods_to(&watch), [ACKNOWLEDGED, LISTS[1].2]);
    assert_eq!(host.said(LISTS[1].2).len(), 2);
    host.finish();
}

/// S-SUB-05: unknown members of the filter are ignored.
#[test]
fn an_unknown_member_of_the_filter_is_passed_over() {
    let mut host = Host::modern(config());
    let watch = host.listen(json!({"moonPhaseChanged": true, "toolsListChanged": true}));
    assert_eq!(host.granted(&watch), json!({"toolsListChanged": true}));
    host.finish();
}

/// S-ERR-01: an invalid filter is refused. It watches nothing, and other watches are not affected.
#[test]
fn a_filter_that_makes_no_sense_is_refused() {
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
        let mut host = Host::modern(config());
        let good = host.listen(json!({"toolsListChanged": true}));
        let bad = host.modern_call("subscriptions/listen", params.clone());
        assert_eq!(host.code(&bad), code::INVALID_PARAMS, "{params}");
        host.publish(Change::List(List::Tools));
        assert!(host.told_to(&bad).is_empty(), "{params}");
        assert_eq!(host.told_to(&good).len(), 2);
        host.finish();
    }
}

/// S-SUB-10, S-CANC-04: a watch that the client cancels ends without a message, and only that watch.
#[test]
fn a_watch_that_is_cancelled_ends_without_a_word() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        let ids = [json!(1), json!("1"), json!(2)];
        for id in &ids {
            host.listen_as(id, json!({"toolsListChanged": true}));
        }
        host.cancel(&json!("1"));
        host.publish(Change::List(List::Tools));
        host.shutdown();
        assert_eq!(host.methods_to(&ids[1]), [ACKNOWLEDGED]);
        assert!(host.replies(&ids[1]).is_empty());
        for other in [&ids[0], &ids[2]] {
            assert_eq!(host.told_to(other).len(), 3, "{other}");
        }
        host
    });
}

/// S-STDIO-14: queued messages of a cancelled watch are not written, including its acknowledgement.
#[test]
fn what_waits_for_a_cancelled_watch_is_not_written() {
    let mut host = Host::modern(narrow());
    let old = host.listen(json!({"toolsListChanged": true}));
    host.fill_pipe();
    let new = host.listen(json!({"toolsListChanged": true}));
    let kept = host.listen(json!({"toolsListChanged": true}));
    host.publish(Change::List(List::Tools));
    host.cancel(&old);
    host.cancel(&new);
    host.reads_again();
    assert_eq!(host.methods_to(&old), [ACKNOWLEDGED]);
    assert!(host.told_to(&new).is_empty());
    assert_eq!(host.told_to(&kept).len(), 2);
    host.finish();
}

/// S-SUB-15: nothing remains of a finished watch. Its id can be used for another watch with its own filter.
#[test]
fn nothing_is_kept_of_a_watch_that_is_over() {
    let mut host = Host::modern(config());
    let id = json!("w");
    host.listen_as(&id, everything_of("file:///a"));
    host.cancel(&id);
    host.listen_as(&id, json!({"promptsListChanged": true}));
    host.publish(Change::List(List::Tools));
    host.publish(Change::List(List::Prompts));
    host.publish(resource("file:///a"));
    let told = host.methods_to(&id);
    assert_eq!(told, [ACKNOWLEDGED, ACKNOWLEDGED, LISTS[0].2]);
    host.finish();
}

/// S-SUB-11, S-SUB-07: a watch that the server ends gets a result, and nothing after it.
#[test]
fn a_shutdown_ends_every_watch_with_its_result() {
    every_chunking(|chunking| {
        let mut host = Host::modern(config()).chunked(chunking);
        let ids = [json!(71), json!("71")];
        for id in &ids {
            host.listen_as(id, json!({"toolsListChanged": true}));
        }
        let (_, running) = host.tool("slow");
        host.shutdown();
        for id in &ids {
            let result = host.result(id);
            assert_eq!(result["resultType"], "complete");
            assert_eq!(result["_meta"][TAG], *id);
        }
        assert!(host.said(CANCELLED).is_empty(), "the result says it");
        // While the request runs, no watch is left to be notified.
        let before = host.heard().len();
        host.verb(|server, now| drop(server.publish(now, Change::List(List::Tools))));
        assert_eq!(host.heard().len(), before);
        host.respond(running, json!({"content": []}));
        assert_eq!(host.server.state(), State::Closed);
        host
    });
}

/// S-SUB-12, S-SUB-11: with this option, the server follows the specification literally: the cancellation comes first,
/// then the result.
#[test]
fn a_shutdown_to_the_letter_cancels_every_watch_before_its_result() {
    every_chunking(|chunking| {
        let mut config = config();
        config.listen_end = ListenEnd::CancelledThenResult;
        let mut host = Host::modern(config).chunked(chunking);
        let ids = [json!(1), json!("1")];
        for id in &ids {
            host.listen_as(id, json!({"toolsListChanged": true}));
        }
        host.shutdown();
        for id in &ids {
            let place = |what: &dyn Fn(&Value) -> bool| host.heard().iter().position(what);
            let is_cancel = |line: &Value| {
                line["method"] == CANCELLED && line["params"].get("requestId") == Some(id)
            };
            let cancelled = place(&is_cancel);
            assert!(cancelled.is_some(), "{id} was not cancelled");
            assert!(cancelled < place(&|line| line.get("id") == Some(id)));
            assert_eq!(host.result(id)["_meta"][TAG], *id);
        }
        assert_eq!(host.said(CANCELLED).len(), ids.len());
        host
    });
}

/// S-SUB-13: a modern client gets a cancellation only for a watch, not for a timed-out request or a withdrawn ask.
#[test]
fn nothing_but_a_watch_is_cancelled_by_the_server() {
    for end in [ListenEnd::CancelledThenResult, ListenEnd::Result] {
        let mut config = config();
        config.listen_end = end;
        let mut host = Host::modern(config);
        let watch = host.listen(json!({"toolsListChanged": true}));
        let (_, asking) = host.tool("asks");
        let ask = host.ask(asking, "roots/list", Value::Null);
        host.verb(|server, now| server.withdraw(now, ask, None))
            .expect("it is open");
        let (late, _) = host.tool("slow");
        host.shutdown();
        host.pass(seconds(60));
        assert_eq!(host.server.state(), State::Closed);
        assert!(host.reply(&late).get("error").is_some());
        for cancelled in host.said(CANCELLED) {
            assert_eq!(cancelled["params"]["requestId"], watch);
        }
        host.finish();
    }
}

/// S-SUB-11: the end of the client's input ends its watches in the same way, because the client may still read.
#[test]
fn the_end_of_input_ends_every_watch_with_its_result() {
    let mut host = Host::modern(config());
    let watch = host.listen(json!({"toolsListChanged": true}));
    host.eof();
    assert_eq!(host.methods_to(&watch), [ACKNOWLEDGED, "(result)"]);
    assert_eq!(
        host.server.state(),
        State::Closed,
        "nothing waits for a watch"
    );
    host.finish();
}

/// S-SUB-20, S-META-09: only a request that declares the extension can watch tasks.
#[test]
fn tasks_cannot_be_watched_without_the_extension() {
    let mut host = Host::modern(with_tasks());
    let filter = json!({"notifications": {"taskIds": ["t"], "toolsListChanged": true}});
    let declared = with_meta(filter.clone(), json!({"extensions": {TASKS: {}}}));
    let earlier = host.plain_call("subscriptions/listen", declared);
    assert_eq!(host.methods_to(&earlier), [ACKNOWLEDGED]);

    let watch = host.modern_call("subscriptions/listen", filter);
    assert_eq!(host.code(&watch), code::MISSING_REQUIRED_CLIENT_CAPABILITY);
    let needed = &host.error(&watch)["data"]["requiredCapabilities"];
    assert!(needed["extensions"][TASKS].is_object(), "{needed}");
    host.publish(Change::List(List::Tools));
    assert!(host.told_to(&watch).is_empty());
    host.finish();
}

/// S-SUB-05: a server without the extension does not grant task notifications.
#[test]
fn tasks_that_are_not_offered_are_not_granted() {
    let mut host = Host::modern(config()).declaring(json!({"extensions": {TASKS: {}}}));
    let watch = host.listen(json!({"taskIds": ["t"], "toolsListChanged": true}));
    assert_eq!(host.granted(&watch), json!({"toolsListChanged": true}));
    host.finish();
}

/// S-SUB-05: task notifications are neither granted nor sent, even if tasks are offered, because there is no verb for them.
/// Clients poll.
#[test]
fn word_of_tasks_is_neither_granted_nor_sent() {
    let mut host = Host::modern(with_tasks()).declaring(json!({"extensions": {TASKS: {}}}));
    let watch = host.listen(json!({"taskIds": ["t"], "toolsListChanged": true}));
    assert_eq!(host.granted(&watch), json!({"toolsListChanged": true}));
    let task = json!({"taskId": "t", "status": "working"});
    let told = host.notify_client("notifications/tasks", &task);
    assert!(matches!(told, Err(Misuse::NotSendable { .. })), "{told:?}");
    assert_eq!(host.methods_to(&watch), [ACKNOWLEDGED]);
    host.finish();
}

/// S-INH-06: the number of watches is limited, and one that ends makes room.
#[test]
fn watches_are_bounded_in_number() {
    let mut config = config();
    config.limits.listens = 2;
    let mut host = Host::modern(config);
    let tools = json!({"toolsListChanged": true});
    let first = host.listen(tools.clone());
    let second = host.listen(tools.clone());
    let third = host.listen(tools.clone());
    assert!(host.reply(&third).get("error").is_some());
    host.publish(Change::List(List::Tools));
    assert!(host.told_to(&third).is_empty());
    assert_eq!(host.told_to(&second).len(), 2);
    host.cancel(&first);
    let fourth = host.listen(tools);
    assert_eq!(host.methods_to(&fourth), [ACKNOWLEDGED]);
    host.finish();
}

/// S-INH-06, S-SUB-05: the number of URIs in all watches is limited. As many as fit are granted; if none fits, the watch is refused.
#[test]
fn watches_are_bounded_in_their_addresses() {
    let mut config = config();
    config.limits.watched_uris = 3;
    let mut host = Host::modern(config);
    let first = host.listen(json!({"resourceSubscriptions": ["file:///a", "file:///b"]}));
    let second = host.listen(json!({"resourceSubscriptions": ["file:///c", "file:///d"]}));
    let granted = host.granted(&second)["resourceSubscriptions"].clone();
    assert_eq!(granted.as_array().map(Vec::len), Some(1), "{granted}");
    for uri in ["file:///c", "file:///d"] {
        host.publish(resource(uri));
    }
    let told: Vec<Value> = host.told_to(&second)[1..]
        .iter()
        .map(|line| line["params"]["uri"].clone())
        .collect();
    assert_eq!(
        Value::from(told),
        granted,
        "what was granted is told, and nothing else"
    );
    let third = host.listen(json!({"resourceSubscriptions": ["file:///e"]}));
    assert!(host.reply(&third).get("error").is_some());
    host.publish(resource("file:///e"));
    assert!(host.told_to(&third).is_empty());

    host.cancel(&first);
    let both = json!({"resourceSubscriptions": ["file:///e", "file:///f"]});
    let fourth = host.listen(both.clone());
    assert_eq!(host.granted(&fourth), both);
    host.finish();
}

/// S-INH-06: the bytes of the URIs are limited, too.
#[test]
fn watches_are_bounded_in_the_bytes_of_their_addresses() {
    let mut config = config();
    config.limits.watched_bytes = 100;
    let mut host = Host::modern(config);
    let long = format!("file:///{}", "x".repeat(100));
    let refused = host.listen(json!({"resourceSubscriptions": [long]}));
    assert!(host.reply(&refused).get("error").is_some());
    host.publish(resource(&long));
    assert!(host.told_to(&refused).is_empty());
    let watch = host.listen(json!({"resourceSubscriptions": ["file:///a"]}));
    assert_eq!(host.methods_to(&watch), [ACKNOWLEDGED]);
    host.finish();
}

/// S-SUB-16: a change that repeats before it was sent is sent once, and no change is lost, however slowly the client reads.
#[test]
fn a_change_that_waits_is_told_once_and_none_is_forgotten() {
    let mut host = Host::modern(narrow());
    let watch = host.listen(everything_of("file:///a"));
    host.fill_pipe();
    for _ in 0..100 {
        for (_, list, _) in LISTS {
            host.publish(Change::List(list));
        }
        host.publish(resource("file:///a"));
    }
    host.reads_again();
    let mut told = host.methods_to(&watch);
    told.sort_unstable();
    let mut expected = vec![ACKNOWLEDGED, UPDATED];
    expected.extend(LISTS.map(|(_, _, method)| method));
    expected.sort_unstable();
    assert_eq!(told, expected);
    host.publish(Change::List(List::Tools));
    assert_eq!(host.told_to(&watch).len(), 6, "what was told is told anew");
    host.finish();
}

/// Publishing a change that the server does not offer is a misuse by the application, in both eras.
#[test]
fn only_what_is_offered_can_be_published() {
    let quiet = ServerCapabilities::default()
        .with_prompts(false)
        .with_resources(false, false)
        .with_tools(false);
    let mut changes: Vec<Change> = List::ALL.iter().copied().map(Change::List).collect();
    changes.push(resource("file:///a"));
    for mut host in [
        Host::modern(offering(quiet.clone())),
        Host::legacy(offering(quiet), "2025-11-25"),
    ] {
        for change in &changes {
            let done = host.verb(|server, now| server.publish(now, change.clone()));
            assert!(
                matches!(done, Err(Misuse::NotOffered { .. })),
                "{change:?}: {done:?}"
            );
        }
        for method in host.heard() {
            assert!(method.get("method").is_none(), "{method}");
        }
        host.finish();
    }
}

/// S-CAP-13, S-CAP-03: a legacy client of each version gets the promised list changes unasked and without a tag.
#[test]
fn a_legacy_client_hears_of_lists_unasked() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut host = Host::legacy(config(), version);
        for (number, (_, list, method)) in LISTS.into_iter().enumerate() {
            host.publish(Change::List(list));
            let told = host.said(method);
            assert_eq!(told.len(), 1, "{method} in {version}");
            assert!(told[0]["params"].get("_meta").is_none());
            assert_eq!(host.heard().len(), number + 2, "and nothing else");
        }
        host.finish();
    }
}

/// S-LIFE-05: a legacy client gets change notifications only after `initialized`.
#[test]
fn a_legacy_client_hears_of_nothing_before_its_handshake_is_over() {
    let mut host = Host::new(config());
    host.initialize("2025-11-25");
    let heard = host.heard().len();
    host.publish(Change::List(List::Tools));
    assert_eq!(host.heard().len(), heard);
    host.notify("notifications/initialized", Value::Null);
    host.publish(Change::List(List::Tools));
    assert_eq!(host.said(LISTS[2].2).len(), 1);
    host.finish();
}

/// S-CAP-13: a legacy client gets changes of a resource from its subscription until it unsubscribes.
#[test]
fn a_legacy_client_hears_of_the_resources_that_it_subscribed_to() {
    every_chunking(|chunking| {
        let version = everlink::protocol::Version::V2025_06_18;
        let mut host = Host::new(config()).chunked(chunking).speaking(version);
        host.publish(resource("file:///a"));
        assert!(host.said(UPDATED).is_empty());

        let subscribed = host.call("resources/subscribe", json!({"uri": "file:///a"}));
        assert_eq!(host.result(&subscribed), json!({}));
        host.publish(resource("file:///a"));
        host.publish(resource("file:///b"));
        let told = host.said(UPDATED);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0]["params"], json!({"uri": "file:///a"}));

        let unsubscribed = host.call("resources/unsubscribe", json!({"uri": "file:///a"}));
        assert_eq!(host.result(&unsubscribed), json!({}));
        host.publish(resource("file:///a"));
        assert_eq!(host.said(UPDATED).len(), 1);
        assert!(
            host.requests().is_empty(),
            "the server knows who subscribed"
        );
        host
    });
}

/// S-CAP-13, S-CAP-03: without the capability, the subscription methods are not found.
#[test]
fn a_legacy_client_cannot_subscribe_to_what_is_not_offered() {
    let capabilities = ServerCapabilities::default().with_resources(true, false);
    let mut host = Host::legacy(offering(capabilities), "2025-11-25");
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        let id = host.call(method, json!({"uri": "file:///a"}));
        assert_eq!(host.code(&id), code::METHOD_NOT_FOUND, "{method}");
    }
    host.finish();
}

/// S-ERR-01: a subscription without a valid URI is refused.
#[test]
fn a_legacy_subscription_names_its_resource() {
    let mut host = Host::legacy(config(), "2025-11-25");
    for params in [
        Value::Null,
        json!({}),
        json!({"uri": 1}),
        json!({"uri": null}),
    ] {
        for method in ["resources/subscribe", "resources/unsubscribe"] {
            let id = host.call(method, params.clone());
            assert_eq!(host.code(&id), code::INVALID_PARAMS, "{method} {params}");
        }
    }
    host.finish();
}

/// S-INH-06: the subscriptions of a legacy client are limited as well.
#[test]
fn legacy_subscriptions_are_bounded() {
    let mut config = config();
    config.limits.watched_uris = 2;
    let mut host = Host::legacy(config, "2025-11-25");
    for uri in ["file:///a", "file:///b", "file:///a"] {
        let id = host.call("resources/subscribe", json!({"uri": uri}));
        assert_eq!(host.result(&id), json!({}), "{uri}");
    }
    let id = host.call("resources/subscribe", json!({"uri": "file:///c"}));
    assert!(host.reply(&id).get("error").is_some());
    host.publish(resource("file:///c"));
    assert!(host.said(UPDATED).is_empty());
    host.finish();
}

/// S-VER-07: each era has its own way to subscribe, and not the other's.
#[test]
fn no_era_has_the_subscriptions_of_the_other() {
    let mut host = Host::modern(config());
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        let id = host.call(method, json!({"uri": "file:///a"}));
        assert_eq!(host.code(&id), code::METHOD_NOT_FOUND, "{method}");
    }
    host.finish();

    let mut host = Host::legacy(config(), "2025-11-25");
    let id = host.call(
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
    );
    assert_eq!(host.code(&id), code::METHOD_NOT_FOUND);
    host.finish();
}

/// S-VER-06, S-SUB-07: clients of both eras on one stream get the same change, each in the form of its era.
#[test]
fn both_eras_hear_of_one_change_in_their_own_words() {
    let mut host = Host::legacy(config(), "2025-11-25");
    let watch = host.listen(everything_of("file:///a"));
    let other = host.listen(everything_of("file:///b"));
    host.call("resources/subscribe", json!({"uri": "file:///a"}));
    host.publish(Change::List(List::Tools));
    host.publish(resource("file:///a"));
    for (method, times) in [(LISTS[2].2, 3), (UPDATED, 2)] {
        let told = host.said(method);
        assert_eq!(told.len(), times, "{method}");
        let untagged = told
            .iter()
            .filter(|line| line["params"]["_meta"].get(TAG).is_none());
        assert_eq!(untagged.count(), 1, "{method}");
    }
    assert_eq!(host.told_to(&watch).len(), 3);
    assert_eq!(host.told_to(&other).len(), 2);
    host.finish();
}

/// The application is told the union of all watches whenever it changes, and only then.
#[test]
fn the_application_is_told_what_is_watched() {
    let mut host = Host::modern(config());
    let tools = json!({"toolsListChanged": true});
    let first = host.listen(tools.clone());
    let second = host.listen(tools);
    let third = host.listen(json!({"resourceSubscriptions": ["file:///a"]}));
    host.cancel(&first);
    host.cancel(&third);
    host.cancel(&second);
    let mut tools = Watch::none();
    tools.tools = true;
    let both = tools.clone().and_uri("file:///a");
    assert_eq!(host.watched(), [tools.clone(), both, tools, Watch::none()]);
    host.finish();
}

/// The subscriptions of a legacy client are reported, too.
#[test]
fn the_application_is_told_what_a_legacy_client_subscribed_to() {
    let mut host = Host::legacy(config(), "2025-11-25");
    host.call("resources/subscribe", json!({"uri": "file:///a"}));
    let uris = |host: &Host| host.watched().last().map(|watch| watch.uris.clone());
    assert!(uris(&host).is_some_and(|uris| uris.contains("file:///a")));
    host.call("resources/unsubscribe", json!({"uri": "file:///a"}));
    assert!(uris(&host).is_some_and(|uris| uris.is_empty()));
    host.finish();
}

/// S-SUB-05: a watch that comes before the offer waits for its grant.
#[test]
fn a_watch_waits_for_the_offer() {
    let mut host = Host::modern(Config::deferred([7; 16]));
    let watch = host.listen(everything_of("file:///a"));
    assert!(
        host.heard().is_empty(),
        "what could be granted is not known"
    );
    let mut offer = everything();
    offer.capabilities = ServerCapabilities::default().with_tools(true);
    host.verb(|server, now| server.offer(now, offer));
    assert_eq!(host.granted(&watch), json!({"toolsListChanged": true}));
    host.publish(Change::List(List::Tools));
    assert_eq!(host.told_to(&watch).len(), 2);
    host.finish();
}

/// S-STDIO-14: a watch that is cancelled while it waits for the offer gets no message at all.
#[test]
fn a_watch_that_is_cancelled_before_the_offer_never_was() {
    let mut host = Host::modern(Config::deferred([7; 16]));
    let watch = host.listen(everything_of("file:///a"));
    host.cancel(&watch);
    host.verb(|server, now| server.offer(now, everything()));
    host.publish(Change::List(List::Tools));
    assert!(host.heard().is_empty());
    host.finish();
}

/// An application may send its own notifications to present clients, but no requests.
#[test]
fn an_application_has_notifications_of_its_own() {
    let mut host = Host::modern(config());
    let moon = json!({"phase": "full"});
    host.notify_client("notifications/moon", &moon)
        .expect("nobody is there");
    assert!(host.heard().is_empty());
    host.tool("slow");
    host.notify_client("notifications/moon", &moon)
        .expect("somebody is");
    assert_eq!(host.said("notifications/moon")[0]["params"], moon);
    let odd = host.notify_client("notifications/moon", &json!([1]));
    assert!(matches!(odd, Err(Misuse::NotAnObject { .. })), "{odd:?}");
    for method in ["tools/call", "ping", "notifications/initialized"] {
        assert!(host.notify_client(method, &json!({})).is_err(), "{method}");
    }
    let asked = host.notify_client("sampling/createMessage", &json!({}));
    assert!(
        matches!(asked, Err(Misuse::OwnedByLink { instead: "ask", .. })),
        "{asked:?}"
    );
    assert_eq!(host.heard().len(), 1);
    host.finish();
}

/// The application cannot send the server's own notifications with `notify`.
#[test]
fn word_of_changes_goes_through_publish_alone() {
    let mut host = Host::modern(config());
    host.listen(everything_of("file:///a"));
    let lists = LISTS.map(|(_, _, method)| method);
    for method in lists.into_iter().chain([UPDATED, ACKNOWLEDGED, CANCELLED]) {
        let before = host.heard().len();
        let done = host.notify_client(method, &json!({"uri": "file:///a"}));
        let is_refused = matches!(
            done,
            Err(Misuse::NotSendable { .. } | Misuse::OwnedByLink { .. })
        );
        assert!(is_refused, "{method}: {done:?}");
        assert_eq!(host.heard().len(), before, "{method}");
    }
    host.finish();
}
