//! Change notifications and cached lists of a client link over HTTP: a stream for each watch, and lists with a lifetime.

use crate::client_http::{
    self, Exchange, Harness, config, error, every_chunking, notification, result, seconds,
};
use everlink::client::{Event, Outcome, State};
use everlink::http::Verb;
use everlink::protocol::LogLevel;
use everlink::{CallId, Change, FaultKind, List, Watch};
use serde_json::{Value, json};

/// A link that has agreed with a modern server, and its watch request.
fn connected_with_watch(watch: Watch) -> (Harness, Exchange) {
    let mut settings = config();
    settings.watch = watch;
    let mut harness = Harness::new(settings);
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.json(
        probe.stream,
        200,
        &result(&probe, client_http::discover_result()),
    );
    let listen = harness.next_post("subscriptions/listen");
    (harness, listen)
}

fn with_subscription_id(listen: &Exchange, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": listen.body["id"]});
    notification(method, &params)
}

fn acknowledge(harness: &mut Harness, listen: &Exchange, granted: &Value) {
    harness.begin_stream(listen.stream);
    let params = json!({"notifications": granted});
    let acknowledgement =
        with_subscription_id(listen, "notifications/subscriptions/acknowledged", params);
    harness.event(listen.stream, None, &acknowledgement);
}

/// S-SUB-01: the watch request names the wanted notifications explicitly.
#[test]
fn s_sub_01_listen_request_names_the_watched_notifications() {
    let (_, listen) =
        connected_with_watch(Watch::lists().and_uri("file:///a").and_uri("file:///b"));
    assert_eq!(
        listen.body["params"]["notifications"],
        json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
            "resourceSubscriptions": ["file:///a", "file:///b"]})
    );
    assert_eq!(listen.verb, Verb::Post);
    assert_eq!(listen.field("mcp-method"), Some("subscriptions/listen"));
    let (_, listen) = connected_with_watch(Watch::none().and_uri("file:///a"));
    let filter = listen.body["params"]["notifications"]
        .as_object()
        .expect("an object");
    assert!(
        filter
            .iter()
            .all(|(key, value)| key == "resourceSubscriptions" || *value == false)
    );
}

/// S-SUB-06: the application is told the grant, without the parts that the server left out.
#[test]
fn s_sub_06_granted_part_of_a_watch_is_reported() {
    every_chunking(|chunking| {
        let (harness, listen) = connected_with_watch(Watch::lists().and_uri("file:///a"));
        let mut harness = harness.chunked(chunking);
        assert_eq!(harness.granted(), None, "not before the acknowledgement");
        acknowledge(&mut harness, &listen, &json!({"toolsListChanged": true}));
        let mut tools = Watch::none();
        tools.tools = true;
        assert_eq!(harness.granted(), Some(tools));
        harness.event(
            listen.stream,
            None,
            &with_subscription_id(&listen, "notifications/tools/list_changed", json!({})),
        );
        assert_eq!(harness.changes(), [Change::List(List::Tools)]);
    });
}

/// S-SUB-17: changes below a watched URI are reported.
#[test]
fn s_sub_17_changes_below_a_watched_uri_are_reported() {
    let (mut harness, listen) = connected_with_watch(Watch::none().and_uri("file:///a/"));
    acknowledge(
        &mut harness,
        &listen,
        &json!({"resourceSubscriptions": ["file:///a/"]}),
    );
    for uri in ["file:///a/", "file:///a/b.txt"] {
        let update = with_subscription_id(
            &listen,
            "notifications/resources/updated",
            json!({"uri": uri}),
        );
        harness.event(listen.stream, None, &update);
        assert_eq!(
            harness.changes().last(),
            Some(&Change::Resource { uri: uri.into() })
        );
    }
}

/// S-SUB-10: a watch ends with its exchange, without a cancellation. S-SUB-09: the new watch is acknowledged
/// before the old one ends.
#[test]
fn s_sub_09_10_new_watch_gets_its_own_stream_and_then_the_old_one_is_aborted() {
    let (mut harness, first) = connected_with_watch(Watch::lists());
    acknowledge(&mut harness, &first, &first.body["params"]["notifications"]);
    harness.watch(Watch::lists().and_uri("file:///a"));
    let second = harness.next_post("subscriptions/listen");
    assert_ne!(second.stream, first.stream);
    assert!(harness.is_open(first.stream) && harness.is_open(second.stream));
    // Until the old stream ends, notifications on both count.
    harness.event(
        first.stream,
        None,
        &with_subscription_id(&first, "notifications/prompts/list_changed", json!({})),
    );
    assert_eq!(harness.changes(), [Change::List(List::Prompts)]);
    acknowledge(
        &mut harness,
        &second,
        &second.body["params"]["notifications"],
    );
    assert_eq!(harness.aborted, [first.stream]);
    assert!(harness.is_open(second.stream));
    harness.watch(Watch::none());
    assert_eq!(harness.aborted, [first.stream, second.stream]);
    assert!(harness.exchanges_of("notifications/cancelled").is_empty());
    assert_eq!(harness.unseen_count(), 0);
}

/// S-SUB-14: when a listen stream ends, with or without a result, the link opens another.
#[test]
fn s_sub_14_listen_stream_that_ends_is_opened_again() {
    let endings: [fn(&mut Harness, &Exchange); 4] = [
        |harness, listen| harness.end(listen.stream),
        |harness, listen| harness.fail(listen.stream, FaultKind::Reset),
        |harness, listen| {
            let end = result(
                listen,
                json!({"resultType": "complete", "_meta": {"io.modelcontextprotocol/subscriptionId": listen.body["id"]}}),
            );
            harness.event(listen.stream, None, &end);
            harness.end(listen.stream);
        },
        |harness, listen| {
            let params = json!({"requestId": listen.body["id"]});
            harness.event(
                listen.stream,
                None,
                &notification("notifications/cancelled", &params),
            );
            harness.end(listen.stream);
        },
    ];
    for ending in endings {
        let (mut harness, listen) = connected_with_watch(Watch::lists());
        acknowledge(
            &mut harness,
            &listen,
            &listen.body["params"]["notifications"],
        );
        ending(&mut harness, &listen);
        assert_eq!(harness.client.state(), State::Ready);
        assert_eq!(
            harness.granted(),
            Some(Watch::none()),
            "the grant is empty meanwhile"
        );
        harness.advance(seconds(10));
        let again = harness.next_post("subscriptions/listen");
        assert_ne!(again.body["id"], listen.body["id"]);
        assert_eq!(again.field("last-event-id"), None);
        acknowledge(
            &mut harness,
            &again,
            &listen.body["params"]["notifications"],
        );
        assert_eq!(harness.granted(), Some(Watch::lists()));
    }
}

/// S-SUB-18: a watch is answered at its end, so it has no timeout. Only its acknowledgement has one.
#[test]
fn s_sub_18_watch_has_no_timeout_but_its_acknowledgement_has() {
    let mut settings = config();
    settings.policy.keepalive = None;
    let mut harness = Harness::modern_with(settings);
    let listen = harness.exchanges_of("subscriptions/listen")[0].clone();
    harness.advance(seconds(7 * 86_400));
    assert!(harness.is_open(listen.stream));
    assert!(harness.aborted.is_empty());
    harness.event(
        listen.stream,
        None,
        &with_subscription_id(&listen, "notifications/tools/list_changed", json!({})),
    );
    assert_eq!(harness.changes(), [Change::List(List::Tools)]);
    // The link does not wait without end for an acknowledgement.
    let (mut harness, _) = connected_with_watch(Watch::lists());
    harness.advance(seconds(11));
    assert_eq!(harness.granted(), Some(Watch::none()));
}

/// S-SUB-19, S-CAP-03: a server that refuses watches is used without them.
#[test]
fn s_sub_19_refused_watch_keeps_the_link_ready() {
    for (status, code) in [(404, -32_601), (400, -32_602), (200, -32_603)] {
        let (mut harness, listen) = connected_with_watch(Watch::lists());
        harness.json(listen.stream, status, &error(&listen, code));
        assert_eq!(harness.client.state(), State::Ready);
        assert_eq!(harness.granted(), Some(Watch::none()));
    }
}

/// S-SUB-15: the next server gets the same watch.
#[test]
fn s_sub_15_new_epoch_requests_the_same_watch() {
    let mut harness = Harness::modern();
    let first = harness.exchanges_of("subscriptions/listen")[0].clone();
    harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.fail(post.stream, FaultKind::Refused);
    harness.advance(seconds(5));
    harness.agree_modern();
    let listens = harness.exchanges_of("subscriptions/listen");
    assert_eq!(listens.len(), 2);
    assert_eq!(
        listens[1].body["params"]["notifications"],
        first.body["params"]["notifications"]
    );
}

/// S-CAP-09: a legacy server gets the log level once per session, a modern one with each request.
#[test]
fn s_cap_09_log_level_is_set_once_if_legacy_and_with_each_request_if_modern() {
    let mut settings = config();
    settings.watch = Watch::none().and_logs(LogLevel::Warning);
    let mut harness = Harness::legacy_with(settings.clone(), "2025-11-25");
    let post = harness.next_post("logging/setLevel");
    assert_eq!(post.body["params"]["level"], "warning");
    harness.json(post.stream, 200, &result(&post, json!({})));
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    for level in ["debug", "error"] {
        let params = json!({"level": level, "data": "x"});
        harness.event(
            post.stream,
            None,
            &notification("notifications/message", &params),
        );
    }
    let logs = harness
        .events
        .iter()
        .filter(|event| matches!(event, Event::Log { .. }));
    assert_eq!(logs.count(), 1);
    assert!(!harness.is_settled(call));

    let mut harness = Harness::modern_with(settings);
    harness.call("tools/call", json!({"name": "add"}));
    assert_eq!(*harness.next_post("tools/call").meta("logLevel"), "warning");
    let mut harness = Harness::modern();
    harness.call("tools/call", json!({"name": "add"}));
    assert!(harness.next_post("tools/call").meta("logLevel").is_null());
}

/// Answers one page of the tool list.
fn page(harness: &mut Harness, tools: &Value, more: Value) -> Exchange {
    let post = harness.next_post("tools/list");
    let mut members = json!({"tools": tools, "cacheScope": "private"});
    for (key, value) in more.as_object().expect("an object") {
        members[key] = value.clone();
    }
    harness.reply_with(&post, members);
    post
}

fn tools(names: &[&str]) -> Value {
    names
        .iter()
        .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
        .collect()
}

/// S-CACHE-05: a list without a lifetime, or with an expired one, is read again.
#[test]
fn s_cache_05_list_is_fresh_for_its_ttl() {
    for (ttl, ttl_seconds) in [
        (json!(30_000), 30),
        (json!(0), 0),
        (json!(-5), 0),
        (Value::Null, 0),
    ] {
        let mut harness = Harness::modern();
        let call = harness.list(List::Tools);
        page(&mut harness, &tools(&["a"]), json!({"ttlMs": ttl}));
        assert_eq!(harness.listed(call).len(), 1);
        if ttl_seconds > 0 {
            harness.advance(seconds(ttl_seconds - 1));
            let call = harness.list(List::Tools);
            assert_eq!(harness.listed(call).len(), 1, "from the cache");
            harness.advance(seconds(1));
        }
        let call = harness.list(List::Tools);
        assert!(!harness.is_settled(call), "{ttl}");
        page(&mut harness, &tools(&["a", "b"]), json!({"ttlMs": 0}));
        assert_eq!(harness.listed(call).len(), 2);
    }
}

#[test]
fn s_cache_09_change_notification_makes_the_cached_list_stale() {
    let mut harness = Harness::modern();
    let listen = harness.exchanges_of("subscriptions/listen")[0].clone();
    let call = harness.list(List::Tools);
    page(&mut harness, &tools(&["a"]), json!({"ttlMs": 600_000}));
    assert_eq!(harness.listed(call).len(), 1);
    harness.event(
        listen.stream,
        None,
        &with_subscription_id(&listen, "notifications/prompts/list_changed", json!({})),
    );
    assert!(
        harness.client.is_fresh(harness.now, List::Tools),
        "another list"
    );
    harness.event(
        listen.stream,
        None,
        &with_subscription_id(&listen, "notifications/tools/list_changed", json!({})),
    );
    assert!(!harness.client.is_fresh(harness.now, List::Tools));
    let call = harness.list(List::Tools);
    page(&mut harness, &tools(&[]), json!({"ttlMs": 0}));
    assert_eq!(harness.listed(call).len(), 0);
}

/// A server that declares `listChanged` reports changes only on a stream that is open.
#[test]
fn legacy_list_is_read_again_while_no_stream_reports_its_changes() {
    let is_get = |exchange: &Exchange| exchange.verb == Verb::Get;
    let mut refused = Harness::legacy();
    read_tools(&mut refused);
    let mut given_up = Harness::legacy_awaiting_listen();
    for _ in 0..600 {
        while let Some(get) = given_up.find(is_get) {
            given_up.status(get.stream, 503);
        }
        given_up.advance_serving(seconds(1));
    }
    read_tools(&mut given_up);
    let mut settings = config();
    settings.binding.http_mut().expect("over HTTP").listens = false;
    let mut unwanted = Harness::legacy_with(settings, "2025-11-25");
    read_tools(&mut unwanted);
    for (mut harness, why) in [
        (refused, "refused"),
        (given_up, "given up"),
        (unwanted, "not wanted"),
    ] {
        assert!(
            !harness.client.is_fresh(harness.now, List::Tools),
            "the stream was {why}"
        );
        read_tools(&mut harness);
    }
}

#[test]
fn legacy_list_is_kept_while_a_stream_reports_its_changes() {
    let mut harness = Harness::legacy_awaiting_listen();
    let get = harness.next_exchange(Verb::Get);
    harness.begin_stream(get.stream);
    read_tools(&mut harness);
    harness.advance(seconds(3_600));
    assert!(harness.client.is_fresh(harness.now, List::Tools));

    let (mut old, stream) = Harness::sse2024();
    let call = old.list(List::Tools);
    let post = old.next_post("tools/list");
    old.status(post.stream, 202);
    old.event(stream, None, &result(&post, json!({"tools": []})));
    assert_eq!(old.listed(call).len(), 0);
    assert!(old.client.is_fresh(old.now, List::Tools));
}

/// While a listen stream is not open, the server can report nothing. Only a stream that is resumed repeats what was missed.
#[test]
fn legacy_list_is_read_again_after_a_gap_in_the_stream_that_reports_its_changes() {
    for (event, is_kept) in [("", false), ("id: 1\ndata:\n\n", true)] {
        let mut harness = Harness::legacy_awaiting_listen();
        let get = harness.next_exchange(Verb::Get);
        harness.begin_stream(get.stream);
        harness.bytes(get.stream, event.as_bytes());
        read_tools(&mut harness);
        harness.end(get.stream);
        harness.advance(seconds(2));
        let again = harness.next_exchange(Verb::Get);
        harness.begin_stream(again.stream);
        let is_fresh = harness.client.is_fresh(harness.now, List::Tools);
        assert_eq!(is_fresh, is_kept, "{event:?}");
    }
}

/// Reads the list of tools from the server, not from the cache.
fn read_tools(harness: &mut Harness) {
    let call = harness.list(List::Tools);
    page(harness, &tools(&["a"]), json!({}));
    assert_eq!(harness.listed(call).len(), 1);
}

/// S-CACHE-03: only the same list is answered from the cache, and a direct call always goes to the server.
#[test]
fn s_cache_03_04_only_the_same_list_is_answered_from_the_cache() {
    let mut harness = Harness::modern();
    let call = harness.list(List::Tools);
    page(&mut harness, &tools(&["a"]), json!({"ttlMs": 600_000}));
    assert_eq!(harness.listed(call).len(), 1);
    for list in [List::Prompts, List::Resources, List::ResourceTemplates] {
        let call = harness.list(list);
        assert!(!harness.is_settled(call), "{list}");
    }
    // S-CACHE-04: results of methods that may ask for input are not cached.
    for (method, params) in [
        ("tools/list", json!({"cursor": "2"})),
        ("resources/read", json!({"uri": "file:///a"})),
        ("resources/read", json!({"uri": "file:///b"})),
        ("resources/read", json!({"uri": "file:///a"})),
    ] {
        let call = harness.call(method, params);
        let post = harness.next_post(method);
        harness.reply_with(
            &post,
            json!({"contents": [], "tools": [], "ttlMs": 600_000, "cacheScope": "public"}),
        );
        assert!(harness.reply(call).is_ok());
    }
}

/// S-CACHE-11: the link returns a cursor unchanged, and only its absence ends the list.
#[test]
fn s_cache_11_cursor_is_returned_unchanged() {
    for version in ["2025-11-25", client_http::MODERN] {
        every_chunking(|chunking| {
            let mut harness = Harness::ready(version).chunked(chunking);
            let call = harness.list(List::Tools);
            let cursors = ["b64==", "{\"a\":1}", "ä\n", " "];
            let first = page(
                &mut harness,
                &tools(&["a"]),
                json!({"ttlMs": 0, "nextCursor": cursors[0]}),
            );
            assert_eq!(first.body["params"].get("cursor"), None);
            for (at, cursor) in cursors.iter().enumerate() {
                let mut more = json!({"ttlMs": 0});
                if let Some(next) = cursors.get(at + 1) {
                    more["nextCursor"] = json!(next);
                }
                // A page may have any size.
                let request = page(
                    &mut harness,
                    &tools(if at == 1 { &[] } else { &["x", "y"] }),
                    more,
                );
                assert_eq!(request.body["params"]["cursor"], json!(cursor));
            }
            assert_eq!(harness.listed(call).len(), 7);
        });
    }
    let mut harness = Harness::modern();
    let call: CallId = harness.list(List::Tools);
    page(
        &mut harness,
        &tools(&["a"]),
        json!({"ttlMs": 0, "nextCursor": ""}),
    );
    assert!(!harness.is_settled(call), "an empty cursor is a cursor");
    let last = page(&mut harness, &tools(&["b"]), json!({"ttlMs": 0}));
    assert_eq!(last.body["params"]["cursor"], "");
    assert!(matches!(harness.outcome(call), Outcome::Listed(_)));
}

/// The list is read again from its first page, for the calls from before and after the change.
#[test]
fn list_whose_page_was_lost_begins_again_for_all_calls() {
    let mut harness = Harness::modern();
    let listen = harness.exchanges_of("subscriptions/listen")[0].clone();
    let before = harness.list(List::Tools);
    page(
        &mut harness,
        &tools(&["a"]),
        json!({"ttlMs": 0, "nextCursor": "2"}),
    );
    let changed = with_subscription_id(&listen, "notifications/tools/list_changed", json!({}));
    harness.event(listen.stream, None, &changed);
    let after = harness.list(List::Tools);
    let lost = harness.next_post("tools/list");
    harness.begin_stream(lost.stream);
    harness.end(lost.stream);
    let first = page(&mut harness, &tools(&["b"]), json!({"ttlMs": 0}));
    assert!(first.body["params"]["cursor"].is_null());
    for call in [before, after] {
        assert_eq!(harness.listed(call).len(), 1);
    }
    assert_eq!(harness.unseen_count(), 0);
}
