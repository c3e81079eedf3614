//! Change notifications and cached lists of a client link over HTTP: a stream for each watch, and lists with a lifetime.

use crate::client_http::{
    self, Begun, Web, config, error, every_chunking, notification, result, seconds,
};
use everlink::client::{Event, Outcome, State};
use everlink::http::Verb;
use everlink::protocol::LogLevel;
use everlink::{CallId, Change, FaultKind, List, Watch};
use serde_json::{Value, json};

/// A link that has agreed with a modern server, and its watch request.
fn watching(wish: Watch) -> (Web, Begun) {
    let mut settings = config();
    settings.watch = wish;
    let mut web = Web::new(settings);
    web.connect();
    let probe = web.posted("server/discover");
    web.json(probe.stream, 200, &result(&probe, client_http::discovery()));
    let listen = web.posted("subscriptions/listen");
    (web, listen)
}

fn tagged(listen: &Begun, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": listen.body["id"]});
    notification(method, &params)
}

fn acknowledge(web: &mut Web, listen: &Begun, granted: &Value) {
    web.stream(listen.stream);
    let params = json!({"notifications": granted});
    let word = tagged(listen, "notifications/subscriptions/acknowledged", params);
    web.event(listen.stream, None, &word);
}

/// S-SUB-01: the watch request names the wanted notifications explicitly.
#[test]
fn s_sub_01_a_watch_is_a_request_that_says_what_is_wished() {
    let (_, listen) = watching(Watch::lists().and_uri("file:///a").and_uri("file:///b"));
    assert_eq!(
        listen.body["params"]["notifications"],
        json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
            "resourceSubscriptions": ["file:///a", "file:///b"]})
    );
    assert_eq!(listen.verb, Verb::Post);
    assert_eq!(listen.field("mcp-method"), Some("subscriptions/listen"));
    let (_, listen) = watching(Watch::none().and_uri("file:///a"));
    let asked = listen.body["params"]["notifications"]
        .as_object()
        .expect("an object");
    assert!(
        asked
            .iter()
            .all(|(key, value)| key == "resourceSubscriptions" || *value == false)
    );
}

/// S-SUB-06: the application is told the grant, without the parts that the server left out.
#[test]
fn s_sub_06_what_is_granted_is_told() {
    every_chunking(|chunking| {
        let (web, listen) = watching(Watch::lists().and_uri("file:///a"));
        let mut web = web.chunked(chunking);
        assert_eq!(web.granted(), None, "not before it is confirmed");
        acknowledge(&mut web, &listen, &json!({"toolsListChanged": true}));
        let mut tools = Watch::none();
        tools.tools = true;
        assert_eq!(web.granted(), Some(tools));
        web.event(
            listen.stream,
            None,
            &tagged(&listen, "notifications/tools/list_changed", json!({})),
        );
        assert_eq!(web.changes(), [Change::List(List::Tools)]);
    });
}

/// S-SUB-17: changes below a watched URI are reported.
#[test]
fn s_sub_17_changes_below_a_watched_address_are_told() {
    let (mut web, listen) = watching(Watch::none().and_uri("file:///a/"));
    acknowledge(
        &mut web,
        &listen,
        &json!({"resourceSubscriptions": ["file:///a/"]}),
    );
    for uri in ["file:///a/", "file:///a/b.txt"] {
        let news = tagged(
            &listen,
            "notifications/resources/updated",
            json!({"uri": uri}),
        );
        web.event(listen.stream, None, &news);
        assert_eq!(
            web.changes().last(),
            Some(&Change::Resource { uri: uri.into() })
        );
    }
}

/// S-SUB-10: a watch ends with its exchange, without a cancellation. S-SUB-09: the new watch stands before the old one
/// ends.
#[test]
fn s_sub_09_10_a_watch_is_replaced_by_a_stream_of_its_own() {
    let (mut web, first) = watching(Watch::lists());
    acknowledge(&mut web, &first, &first.body["params"]["notifications"]);
    web.watch(Watch::lists().and_uri("file:///a"));
    let second = web.posted("subscriptions/listen");
    assert_ne!(second.stream, first.stream);
    assert!(web.is_open(first.stream) && web.is_open(second.stream));
    // Meanwhile notifications of both watches count.
    web.event(
        first.stream,
        None,
        &tagged(&first, "notifications/prompts/list_changed", json!({})),
    );
    assert_eq!(web.changes(), [Change::List(List::Prompts)]);
    acknowledge(&mut web, &second, &second.body["params"]["notifications"]);
    assert_eq!(web.aborted, [first.stream]);
    assert!(web.is_open(second.stream));
    web.watch(Watch::none());
    assert_eq!(web.aborted, [first.stream, second.stream]);
    assert!(web.carrying("notifications/cancelled").is_empty());
    assert_eq!(web.unseen(), 0);
}

/// S-SUB-14: after any end of a watch, with or without a result, the link starts another.
#[test]
fn s_sub_14_a_watch_that_ends_is_set_up_again() {
    let endings: [fn(&mut Web, &Begun); 4] = [
        |web, listen| web.end(listen.stream),
        |web, listen| web.fail(listen.stream, FaultKind::Reset),
        |web, listen| {
            let end = result(
                listen,
                json!({"resultType": "complete", "_meta": {"io.modelcontextprotocol/subscriptionId": listen.body["id"]}}),
            );
            web.event(listen.stream, None, &end);
            web.end(listen.stream);
        },
        |web, listen| {
            let params = json!({"requestId": listen.body["id"]});
            web.event(
                listen.stream,
                None,
                &notification("notifications/cancelled", &params),
            );
            web.end(listen.stream);
        },
    ];
    for ending in endings {
        let (mut web, listen) = watching(Watch::lists());
        acknowledge(&mut web, &listen, &listen.body["params"]["notifications"]);
        ending(&mut web, &listen);
        assert_eq!(web.client.state(), State::Ready);
        assert_eq!(
            web.granted(),
            Some(Watch::none()),
            "nothing is heard meanwhile"
        );
        web.pass(seconds(10));
        let again = web.posted("subscriptions/listen");
        assert_ne!(again.body["id"], listen.body["id"]);
        assert_eq!(again.field("last-event-id"), None);
        acknowledge(&mut web, &again, &listen.body["params"]["notifications"]);
        assert_eq!(web.granted(), Some(Watch::lists()));
    }
}

/// S-SUB-18: a watch is answered at its end, so it has no timeout. Only its acknowledgement has one.
#[test]
fn s_sub_18_a_watch_does_not_run_out_of_time() {
    let mut settings = config();
    settings.policy.keepalive = None;
    let mut web = Web::modern_with(settings);
    let listen = web.carrying("subscriptions/listen")[0].clone();
    web.pass(seconds(7 * 86_400));
    assert!(web.is_open(listen.stream));
    assert!(web.aborted.is_empty());
    web.event(
        listen.stream,
        None,
        &tagged(&listen, "notifications/tools/list_changed", json!({})),
    );
    assert_eq!(web.changes(), [Change::List(List::Tools)]);
    // The link does not wait without end for an acknowledgement.
    let (mut web, _) = watching(Watch::lists());
    web.pass(seconds(11));
    assert_eq!(web.granted(), Some(Watch::none()));
}

/// S-SUB-19, S-CAP-03: a server that refuses watches is used without them.
#[test]
fn s_sub_19_a_watch_that_is_refused_ends_nothing_else() {
    for (status, code) in [(404, -32_601), (400, -32_602), (200, -32_603)] {
        let (mut web, listen) = watching(Watch::lists());
        web.json(listen.stream, status, &error(&listen, code));
        assert_eq!(web.client.state(), State::Ready);
        assert_eq!(web.granted(), Some(Watch::none()));
    }
}

/// S-SUB-15: the next server gets the same watch.
#[test]
fn s_sub_15_a_new_life_has_a_new_watch() {
    let mut web = Web::modern();
    let first = web.carrying("subscriptions/listen")[0].clone();
    web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.fail(post.stream, FaultKind::Refused);
    web.pass(seconds(5));
    web.agree_modern();
    let listens = web.carrying("subscriptions/listen");
    assert_eq!(listens.len(), 2);
    assert_eq!(
        listens[1].body["params"]["notifications"],
        first.body["params"]["notifications"]
    );
}

/// S-CAP-09: a legacy server gets the log level once per session, a modern one with each request.
#[test]
fn s_cap_09_log_messages_are_asked_for_in_the_way_of_the_era() {
    let mut settings = config();
    settings.watch = Watch::none().and_logs(LogLevel::Warning);
    let mut web = Web::legacy_with(settings.clone(), "2025-11-25");
    let post = web.posted("logging/setLevel");
    assert_eq!(post.body["params"]["level"], "warning");
    web.json(post.stream, 200, &result(&post, json!({})));
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.stream(post.stream);
    for level in ["debug", "error"] {
        let params = json!({"level": level, "data": "x"});
        web.event(
            post.stream,
            None,
            &notification("notifications/message", &params),
        );
    }
    let told = web
        .events
        .iter()
        .filter(|event| matches!(event, Event::Log { .. }));
    assert_eq!(told.count(), 1);
    assert!(!web.is_settled(call));

    let mut web = Web::modern_with(settings);
    web.call("tools/call", json!({"name": "add"}));
    assert_eq!(*web.posted("tools/call").meta("logLevel"), "warning");
    let mut web = Web::modern();
    web.call("tools/call", json!({"name": "add"}));
    assert!(web.posted("tools/call").meta("logLevel").is_null());
}

/// Answers one page of the tool list.
fn page(web: &mut Web, tools: &Value, more: Value) -> Begun {
    let post = web.posted("tools/list");
    let mut members = json!({"tools": tools, "cacheScope": "private"});
    for (key, value) in more.as_object().expect("an object") {
        members[key] = value.clone();
    }
    web.reply_with(&post, members);
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
fn s_cache_05_a_list_is_fresh_for_as_long_as_the_server_says() {
    for (ttl, lives) in [
        (json!(30_000), 30),
        (json!(0), 0),
        (json!(-5), 0),
        (Value::Null, 0),
    ] {
        let mut web = Web::modern();
        let call = web.list(List::Tools);
        page(&mut web, &tools(&["a"]), json!({"ttlMs": ttl}));
        assert_eq!(web.listed(call).len(), 1);
        if lives > 0 {
            web.pass(seconds(lives - 1));
            let call = web.list(List::Tools);
            assert_eq!(web.listed(call).len(), 1, "from what is held");
            web.pass(seconds(1));
        }
        let call = web.list(List::Tools);
        assert!(!web.is_settled(call), "{ttl}");
        page(&mut web, &tools(&["a", "b"]), json!({"ttlMs": 0}));
        assert_eq!(web.listed(call).len(), 2);
    }
}

#[test]
fn s_cache_09_a_change_makes_what_is_held_stale() {
    let mut web = Web::modern();
    let listen = web.carrying("subscriptions/listen")[0].clone();
    let call = web.list(List::Tools);
    page(&mut web, &tools(&["a"]), json!({"ttlMs": 600_000}));
    assert_eq!(web.listed(call).len(), 1);
    web.event(
        listen.stream,
        None,
        &tagged(&listen, "notifications/prompts/list_changed", json!({})),
    );
    assert!(web.client.is_fresh(web.now, List::Tools), "another list");
    web.event(
        listen.stream,
        None,
        &tagged(&listen, "notifications/tools/list_changed", json!({})),
    );
    assert!(!web.client.is_fresh(web.now, List::Tools));
    let call = web.list(List::Tools);
    page(&mut web, &tools(&[]), json!({"ttlMs": 0}));
    assert_eq!(web.listed(call).len(), 0);
}

/// S-CACHE-03: only the same list is answered from the cache, and a direct call always goes to the server.
#[test]
fn s_cache_03_04_only_the_very_same_question_is_answered_from_what_is_held() {
    let mut web = Web::modern();
    let call = web.list(List::Tools);
    page(&mut web, &tools(&["a"]), json!({"ttlMs": 600_000}));
    assert_eq!(web.listed(call).len(), 1);
    for list in [List::Prompts, List::Resources, List::ResourceTemplates] {
        let call = web.list(list);
        assert!(!web.is_settled(call), "{list}");
    }
    // S-CACHE-04: results of methods that may ask for input are not cached.
    for (method, params) in [
        ("tools/list", json!({"cursor": "2"})),
        ("resources/read", json!({"uri": "file:///a"})),
        ("resources/read", json!({"uri": "file:///b"})),
        ("resources/read", json!({"uri": "file:///a"})),
    ] {
        let call = web.call(method, params);
        let post = web.posted(method);
        web.reply_with(
            &post,
            json!({"contents": [], "tools": [], "ttlMs": 600_000, "cacheScope": "public"}),
        );
        assert!(web.reply(call).is_ok());
    }
}

/// S-CACHE-11: the link returns a cursor unchanged, and only its absence ends the list.
#[test]
fn s_cache_11_a_cursor_is_given_back_as_it_came() {
    for version in ["2025-11-25", client_http::MODERN] {
        every_chunking(|chunking| {
            let mut web = Web::speaking(version).chunked(chunking);
            let call = web.list(List::Tools);
            let cursors = ["b64==", "{\"a\":1}", "ä\n", " "];
            let first = page(
                &mut web,
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
                let asked = page(
                    &mut web,
                    &tools(if at == 1 { &[] } else { &["x", "y"] }),
                    more,
                );
                assert_eq!(asked.body["params"]["cursor"], json!(cursor));
            }
            assert_eq!(web.listed(call).len(), 7);
        });
    }
    let mut web = Web::modern();
    let call: CallId = web.list(List::Tools);
    page(
        &mut web,
        &tools(&["a"]),
        json!({"ttlMs": 0, "nextCursor": ""}),
    );
    assert!(!web.is_settled(call), "an empty cursor is a cursor");
    let last = page(&mut web, &tools(&["b"]), json!({"ttlMs": 0}));
    assert_eq!(last.body["params"]["cursor"], "");
    assert!(matches!(web.outcome(call), Outcome::Listed(_)));
}
