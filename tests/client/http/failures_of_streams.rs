//! Failures over HTTP of streams, of servers with the transport of 2024-11-05, and of the version agreement. Each test is named
//! after its row in the catalogue of failures.

use core::time::Duration;

use crate::client_http::{self, Begun, Web, config, error, result, seconds};
use everlink::client::{Cause, Delivery, Event, FailureKind, State};
use everlink::http::Verb;
use everlink::protocol::{ClientCapabilities, Era};
use everlink::{Config, Dialect, FaultKind, Instant};
use serde_json::{Value, json};

/// A configuration with only the legacy era.
fn legacy_config() -> Config {
    let mut config = config();
    config.dialect = Dialect::Legacy;
    config
}

/// Like `legacy_config`, without the fallback to the transport of 2024-11-05.
fn streamable_config() -> Config {
    let mut config = legacy_config();
    config.http.as_mut().expect("over HTTP").falls_back = false;
    config
}

fn is_get(begun: &Begun) -> bool {
    begun.verb == Verb::Get
}

fn is_introduction(begun: &Begun) -> bool {
    begun.method() == "initialize"
}

/// A call whose response has begun as a stream with one event to resume from.
fn streaming(web: &mut Web) -> (everlink::CallId, Begun) {
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.stream(post.stream);
    web.bytes(post.stream, b"id: e-1\ndata:\n\n");
    (call, post)
}

/// The reason why the newest epoch ended.
fn refusal(web: &Web) -> String {
    match web.client.last_end().map(|ended| &ended.cause) {
        Some(Cause::HandshakeRefused { why }) => why.to_string(),
        other => panic!("{other:?} is no refusal"),
    }
}

#[test]
fn f_038_a_server_without_a_stream_of_news_is_as_good_as_any() {
    for status in [400, 403, 404, 405, 406, 410, 501, 503] {
        let mut web = Web::legacy_with_news();
        for _ in 0..600 {
            while let Some(get) = web.find(is_get) {
                web.status(get.stream, status);
            }
            web.pass_served(seconds(1));
        }
        let gets = web.count(is_get);
        let most = if status < 500 { 1 } else { 9 };
        assert!((1..=most).contains(&gets), "{gets} for status {status}");
        assert_eq!(web.client.state(), State::Ready);
        assert_eq!(web.client.failures(), 0);
        assert_eq!(web.opens, 1);
    }
}

#[test]
fn f_039_a_page_in_the_place_of_a_stream_is_asked_for_once() {
    for (kind, body) in [
        ("text/html", "<html>"),
        ("application/json", "{}"),
        ("text/plain", ""),
    ] {
        let mut web = Web::legacy_with_news();
        let get = web.begun(Verb::Get);
        web.respond(get.stream, 200, &[("content-type", kind)], body);
        web.pass_served(seconds(3_600));
        assert_eq!(web.count(is_get), 1);
        assert_eq!(web.client.state(), State::Ready);
    }
}

#[test]
fn f_039_a_stream_that_only_says_where_it_is_is_asked_for_ever_less_often() {
    for primed in ["id: 1\ndata:\n\n", "retry: 0\nid: 1\ndata:\n\n"] {
        let mut web = Web::legacy_with_news();
        for _ in 0..3_600 {
            while let Some(get) = web.find(is_get) {
                web.stream(get.stream);
                web.bytes(get.stream, primed.as_bytes());
                web.end(get.stream);
            }
            web.pass_served(seconds(1));
        }
        let gets = web.count(is_get);
        assert!(gets <= 60, "{gets} in an hour");
        assert!(gets >= 12, "{gets} in an hour: it was given up");
    }
}

#[test]
fn f_041_the_place_to_resume_from_outlives_a_stream_that_brought_nothing() {
    let mut web = Web::legacy();
    let (call, post) = streaming(&mut web);
    web.fail(post.stream, FaultKind::Reset);
    for attempt in 0..4 {
        web.pass(seconds(10));
        let get = web.begun(Verb::Get);
        assert_eq!(get.field("last-event-id"), Some("e-1"), "{attempt}");
        match attempt {
            0 => web.status(get.stream, 502),
            1 => {
                web.stream(get.stream);
                web.end(get.stream);
            }
            2 => {
                // An event without an id keeps the last id.
                web.stream(get.stream);
                web.bytes(get.stream, b": hello\n\nid: e-2\ndata: {\"jsonrpc\"");
                web.fail(get.stream, FaultKind::Reset);
            }
            _ => {
                web.stream(get.stream);
                web.event(get.stream, Some("e-2"), &result(&post, json!({})));
            }
        }
    }
    assert!(web.reply(call).is_ok());
}

#[test]
fn f_042_a_reply_that_is_replayed_counts_once() {
    let mut web = Web::legacy_with_news();
    let news = web.begun(Verb::Get);
    web.stream(news.stream);
    let (call, post) = streaming(&mut web);
    let reply = result(&post, json!({"content": []}));
    web.event(post.stream, Some("e-2"), &reply);
    assert!(web.reply(call).is_ok());
    // On the call's own stream, and on the listen stream.
    web.event(post.stream, Some("e-3"), &reply);
    web.event(news.stream, None, &reply);
    web.event(news.stream, None, &reply);
    assert!(!web.is_settled(call));
    assert_eq!(web.client.stats().late_replies, 2);
    assert_eq!(web.client.state(), State::Ready);
}

#[test]
fn f_042_a_question_that_is_replayed_is_put_once() {
    let mut config = config();
    config.capabilities = capable();
    let mut web = Web::legacy_with(config, "2025-11-25");
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.stream(post.stream);
    let questions = [7, 8].map(|id| client_http::question(id, "roots/list", &json!({})));
    for question in &questions {
        web.event(post.stream, Some("e-1"), question);
        let ask = web.ask();
        web.answer(&ask, Ok(json!({"roots": []})));
    }
    web.fail(post.stream, FaultKind::Reset);
    web.pass(seconds(1));
    let rest = web.begun(Verb::Get);
    web.stream(rest.stream);
    for question in &questions {
        web.event(rest.stream, Some("e-1"), question);
    }
    web.event(rest.stream, Some("e-2"), &result(&post, json!({})));
    assert!(web.reply(call).is_ok());
    assert!(web.find_ask().is_none());
}

fn capable() -> ClientCapabilities {
    serde_json::from_str(r#"{"roots": {}}"#).expect("capabilities")
}

#[test]
fn f_043_a_quiet_stream_that_is_cut_is_asked_for_again() {
    // Legacy: the listen stream is resumed after its last event.
    let mut web = Web::legacy_with_news();
    let get = web.begun(Verb::Get);
    web.stream(get.stream);
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    web.event(get.stream, Some("n-1"), &changed);
    web.pass_served(seconds(125));
    web.fail(get.stream, FaultKind::Reset);
    assert_eq!(web.client.state(), State::Ready);
    web.pass_served(seconds(2));
    let get = web.begun(Verb::Get);
    assert_eq!(get.field("last-event-id"), Some("n-1"));
    assert_eq!(web.client.failures(), 0);
    // Modern: the link opens a new watch and tells the application to look again.
    let mut web = Web::modern();
    let is_listen = |begun: &Begun| begun.method() == "subscriptions/listen";
    let listen = web.all.iter().find(|begun| is_listen(begun)).cloned();
    let listen = listen.expect("a watch");
    web.pass_served(seconds(125));
    let told = web.events.len();
    web.fail(listen.stream, FaultKind::Reset);
    assert_eq!(web.client.state(), State::Ready);
    web.pass(seconds(10));
    let again = web.posted("subscriptions/listen");
    assert_ne!(again.body["id"], listen.body["id"]);
    web.stream(again.stream);
    let acknowledged = json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {
        "_meta": {"io.modelcontextprotocol/subscriptionId": again.body["id"]},
        "notifications": again.body["params"]["notifications"]}});
    web.event(again.stream, None, &acknowledged);
    let new = &web.events[told..];
    assert!(new.iter().any(|e| matches!(e, Event::Watching { .. })));
}

#[test]
fn f_043_a_stream_that_brings_something_each_time_is_asked_for_again() {
    let mut web = Web::legacy_with_news();
    for resumed in 0..20 {
        assert_eq!(web.client.stats().resumes, resumed);
        let get = web.begun(Verb::Get);
        web.stream(get.stream);
        let news = client_http::notification("notifications/strange", &json!({}));
        web.event(get.stream, None, &news);
        web.end(get.stream);
        web.pass(seconds(1));
    }
}

#[test]
fn f_043_a_stream_that_lives_for_two_minutes_is_there_most_of_the_time() {
    let mut web = Web::legacy_with_news();
    let mut open = None;
    let mut heard = 0;
    for _ in 0..7_200 {
        if let Some(get) = web.find(is_get) {
            web.stream(get.stream);
            open = Some(get);
        }
        if let Some(get) = open.take_if(|get| get.at + seconds(125) <= web.now) {
            web.fail(get.stream, FaultKind::Reset);
        }
        heard += u32::from(open.is_some());
        web.pass_served(seconds(1));
    }
    assert!(heard > 6_500, "{heard} of 7,200 seconds");
}

#[test]
fn f_044_the_pause_that_a_server_wants_is_kept_within_reason() {
    for (retry, least, most) in [
        ("0", 250, 250),
        ("1", 250, 250),
        ("700", 700, 700),
        ("18446744073709551615", 300_000, 300_000),
        ("99999999999999999999999999", 1, 300_000),
        ("-1", 1_000, 1_000),
        ("soon", 1_000, 1_000),
    ] {
        let mut config = config();
        config.policy.call_idle = everlink::Limit::Never;
        let mut web = Web::legacy_with(config, "2025-11-25");
        let (_, post) = streaming(&mut web);
        web.bytes(post.stream, format!("retry: {retry}\n\n").as_bytes());
        web.end(post.stream);
        let cut = web.now;
        web.pass_served(seconds(301));
        let waited = web.begun(Verb::Get).at.since(cut);
        let within = Duration::from_millis(least)..=Duration::from_millis(most);
        assert!(within.contains(&waited), "{retry}: {waited:?}");
    }
}

#[test]
fn f_045_a_stream_that_never_comes_is_asked_for_with_growing_pauses_and_then_given_up() {
    let mut config = config();
    config.policy.call_idle = everlink::Limit::Never;
    config.policy.call_total = everlink::Limit::Never;
    let mut web = Web::legacy_with(config, "2025-11-25");
    let (call, post) = streaming(&mut web);
    web.end(post.stream);
    let mut asked = vec![web.now];
    while !web.is_settled(call) {
        while let Some(get) = web.find(is_get) {
            asked.push(get.at);
            web.status(get.stream, 503);
        }
        web.pass_served(seconds(1));
        assert!(web.now < Instant::ZERO + seconds(7_200));
    }
    let pauses: Vec<Duration> = asked.windows(2).map(|two| two[1].since(two[0])).collect();
    assert!(pauses.windows(2).all(|two| two[0] <= two[1]), "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause <= seconds(300)));
    let failure = web.failure(call);
    assert_eq!(failure.kind, FailureKind::Cut);
    assert_eq!(failure.delivery, Delivery::Unknown);
    assert_eq!(web.client.state(), State::Ready);
}

#[test]
fn f_045_a_hundred_thousand_attempts_are_no_deeper_than_one() {
    let mut config = legacy_config();
    let http = config.http.as_mut().expect("over HTTP");
    http.resumes = u32::MAX;
    http.resume_most = http.resume_least;
    let pause = http.resume_least;
    config.policy.keepalive = None;
    let mut web = Web::new(config);
    web.connect();
    web.agree_with_news("2025-11-25", Some("s-1"));
    for _ in 0..100_000 {
        let get = web.begun(Verb::Get);
        web.stream(get.stream);
        web.end(get.stream);
        web.pass(pause);
    }
    assert_eq!(web.client.state(), State::Ready);
    assert!(web.open() <= 1);
}

#[test]
fn f_046_what_is_too_large_costs_the_call_that_it_answers_and_no_more() {
    let large = |post: &Begun| {
        let text = "x".repeat(10_000);
        result(post, json!({"resultType": "complete", "content": text}))
    };
    for is_stream in [false, true] {
        let mut config = config();
        config.limits.message_bytes = 4_000;
        for mut web in [
            Web::modern_with(config.clone()),
            Web::legacy_with(config, "2025-11-25"),
        ] {
            let gets = web.count(is_get);
            let big = web.call("tools/call", json!({"name": "big"}));
            let small = web.call("tools/call", json!({"name": "small"}));
            let (post, other) = (web.posted("tools/call"), web.posted("tools/call"));
            if is_stream {
                web.stream(post.stream);
                web.event(post.stream, Some("e-1"), &large(&post));
            } else {
                web.json(post.stream, 200, &large(&post));
            }
            let failure = web.failure(big);
            let FailureKind::TooLarge { bytes } = failure.kind else {
                panic!("{failure}");
            };
            assert!(bytes > 10_000);
            web.end(post.stream);
            web.serve(&other);
            assert!(web.reply(small).is_ok());
            web.pass_served(seconds(60));
            assert_eq!(web.count(is_get), gets, "nothing is asked for again");
            assert_eq!((web.opens, web.client.failures()), (1, 0));
        }
    }
}

#[test]
fn f_046_all_that_is_unfinished_has_one_bound() {
    let mut config = config();
    config.limits.unfinished_bytes = 10_000;
    let mut web = Web::modern_with(config);
    let calls: Vec<_> = (0..4)
        .map(|_| web.call("tools/call", json!({"name": "add"})))
        .collect();
    for _ in 0..4 {
        let post = web.posted("tools/call");
        web.head(post.stream, 200, &[("content-type", "application/json")]);
        web.bytes(post.stream, &[b' '; 4_000]);
    }
    let failed = calls.iter().filter(|call| web.is_settled(**call)).count();
    assert_eq!(failed, 2, "two fit");
    assert_eq!(web.aborted.len(), 2);
    assert_eq!(web.client.state(), State::Ready);
}

#[test]
fn f_047_a_server_that_never_says_where_messages_go_has_its_time() {
    for says in [
        "",
        ": hello\n\n",
        "data: {}\n\n",
        "event: endpont\ndata: /m\n\n",
    ] {
        let mut web = Web::new(legacy_config());
        web.connect();
        let post = web.posted("initialize");
        web.status(post.stream, 405);
        let get = web.begun(Verb::Get);
        web.stream(get.stream);
        web.bytes(get.stream, says.as_bytes());
        let begun = web.now;
        while web.client.state() == State::Handshaking {
            web.pass(seconds(1));
            assert!(web.now.since(begun) <= seconds(10));
        }
        assert!(refusal(&web).contains("where messages go"));
    }
}

#[test]
fn f_047_the_place_for_messages_is_text_and_not_a_message() {
    for place in ["/messages", "messages", "https://mcp.example/messages"] {
        let mut web = Web::new(legacy_config());
        web.connect();
        let post = web.posted("initialize");
        web.status(post.stream, 405);
        let get = web.begun(Verb::Get);
        web.stream(get.stream);
        assert_eq!(web.unseen(), 0, "nothing is said before");
        web.bytes(
            get.stream,
            format!("event: endpoint\ndata: {place}\n\n").as_bytes(),
        );
        let post = web.posted("initialize");
        assert_eq!(post.target, "https://mcp.example/messages");
        assert_eq!(web.client.stats().noise, 0);
    }
    // A path at another server is refused.
    for place in [
        "https://evil.example/m",
        "//evil.example",
        "http://mcp.example/m",
        "",
    ] {
        let mut web = Web::new(legacy_config());
        web.connect();
        let post = web.posted("initialize");
        web.status(post.stream, 405);
        let get = web.begun(Verb::Get);
        web.stream(get.stream);
        web.bytes(
            get.stream,
            format!("event: endpoint\ndata: {place}\n\n").as_bytes(),
        );
        assert_eq!(web.count(is_introduction), 1, "{place}");
    }
}

#[test]
fn f_048_both_reasons_are_told_when_neither_transport_is_there() {
    let mut web = Web::new(legacy_config());
    web.connect();
    let post = web.posted("initialize");
    web.json(post.stream, 400, &error(&post, -32_602));
    let get = web.begun(Verb::Get);
    web.status(get.stream, 418);
    let why = refusal(&web);
    for part in ["400", "-32602", "418", "2024-11-05"] {
        assert!(why.contains(part), "{part}: {why}");
    }
}

#[test]
fn f_048_only_a_refusal_makes_one_look_behind_the_old_transport() {
    for status in [500, 503, 429] {
        let mut web = Web::new(legacy_config());
        web.connect();
        let post = web.posted("initialize");
        web.status(post.stream, status);
        assert_eq!(web.count(is_get), 0);
        let cause = web.client.last_end().map(|ended| ended.cause.clone());
        assert_eq!(cause, Some(Cause::Unavailable { status }));
    }
    let mut web = Web::new(legacy_config());
    web.connect();
    let post = web.posted("initialize");
    web.fail(post.stream, FaultKind::Refused);
    assert_eq!(web.count(is_get), 0);
    let cause = web.client.last_end().map(|ended| ended.cause.clone());
    assert_eq!(cause, Some(Cause::Unreachable));
    // A server that replies does not use the old transport, even if it replies with an error.
    let mut web = Web::new(legacy_config());
    web.connect();
    let post = web.posted("initialize");
    web.json(post.stream, 200, &error(&post, -32_603));
    assert_eq!(web.count(is_get), 0);
    assert!(refusal(&web).contains("-32603"));
}

#[test]
fn f_049_a_server_that_hangs_on_the_new_transport_is_found_behind_the_old_one() {
    let mut web = Web::new(legacy_config());
    web.connect();
    web.posted("initialize");
    web.pass(seconds(61));
    web.agree_old();
    assert_eq!(web.client.state(), State::Ready);
    assert_eq!((web.opens, web.client.failures()), (1, 0));
}

/// A session of the present transport does not carry over to the older one, even if it was only half opened.
#[test]
fn f_049_an_introduction_behind_the_old_transport_names_no_session() {
    let mut web = Web::new(legacy_config());
    web.connect();
    let post = web.posted("initialize");
    let fields = [
        ("content-type", "text/event-stream"),
        ("mcp-session-id", "s-1"),
    ];
    web.head(post.stream, 200, &fields);
    web.bytes(post.stream, b"id: 1\ndata:\n\n");
    web.fail(post.stream, FaultKind::Reset);
    web.pass(seconds(1));
    let rest = web.begun(Verb::Get);
    web.stream(rest.stream);
    web.pass(seconds(60));
    let old = web.begun(Verb::Get);
    web.stream(old.stream);
    web.bytes(old.stream, b"event: endpoint\ndata: /messages\n\n");
    let post = web.posted("initialize");
    assert_eq!(post.target, "https://mcp.example/messages");
    assert_eq!(post.field("mcp-session-id"), None);
}

#[test]
fn f_051_with_its_stream_the_old_connection_is_over() {
    let (mut web, stream) = Web::old();
    let acts = web.call("tools/call", json!({"name": "act"}));
    let reads = web.call("resources/read", json!({"uri": "file:///a"}));
    for method in ["tools/call", "resources/read"] {
        let post = web.posted(method);
        assert_eq!(post.target, "https://mcp.example/messages");
        web.status(post.stream, 202);
    }
    web.fail(stream, FaultKind::Reset);
    assert_ne!(web.client.state(), State::Ready);
    let failure = web.failure(acts);
    assert_eq!(failure.kind, FailureKind::Lost);
    assert_eq!(failure.delivery, Delivery::Unknown);
    web.pass(seconds(1));
    assert!(!web.is_settled(reads));
    let introduced = web.count(is_introduction);
    let stream = web.agree_old();
    assert_eq!(web.count(is_introduction), introduced + 1);
    let post = web.posted("resources/read");
    web.status(post.stream, 202);
    web.event(stream, None, &result(&post, json!({"contents": []})));
    assert!(web.reply(reads).is_ok());
}

#[test]
fn f_051_a_stream_that_is_dead_without_a_word_is_noticed() {
    let (mut web, _) = Web::old();
    web.pass_served(seconds(60));
    web.call("tools/call", json!({"name": "add"}));
    while web.client.state() == State::Ready {
        web.pass_served(seconds(1));
        assert!(web.now < Instant::ZERO + seconds(120));
    }
    let told = |event: &Event| {
        let Event::Ended(ended) = event else {
            return false;
        };
        matches!(ended.cause, Cause::Unresponsive { .. })
    };
    assert!(web.was_told(told));
}

#[test]
fn f_052_an_introduction_that_is_never_answered_ends_with_its_exchange() {
    let mut web = Web::new(streamable_config());
    web.connect();
    for life in 1..=4 {
        web.posted("initialize");
        assert_eq!(web.open(), 1);
        let begun = web.now;
        web.pass(seconds(119));
        assert_eq!(web.client.state(), State::Handshaking);
        web.pass(seconds(1));
        assert_eq!(web.open(), 0, "nothing is left open");
        assert_eq!(web.client.failures(), life);
        let ended = web.client.last_end().expect("an end");
        assert_eq!(ended.cause, Cause::HandshakeTimedOut);
        assert!(web.now.since(begun) <= seconds(120));
        while web.opens == life {
            web.pass(seconds(1));
        }
    }
}

#[test]
fn f_053_a_server_that_takes_long_to_start_is_waited_for() {
    let mut web = Web::new(streamable_config());
    web.connect();
    let call = web.call_with(
        "tools/call",
        json!({"name": "add"}),
        everlink::client::CallOptions::new().with_idle(everlink::Limit::Never),
    );
    web.pass(seconds(110));
    assert!(web.was_told(|event| matches!(event, Event::Slow { .. })));
    web.agree_legacy("2025-11-25", Some("s-1"));
    let post = web.posted("tools/call");
    web.serve(&post);
    assert!(web.reply(call).is_ok());
    assert_eq!((web.opens, web.client.failures()), (1, 0));
}

#[test]
fn f_053_an_introduction_that_is_resumed_opens_the_session_that_it_began() {
    let mut web = Web::new(legacy_config());
    web.connect();
    let post = web.posted("initialize");
    let fields = [
        ("content-type", "text/event-stream"),
        ("mcp-session-id", "s-1"),
    ];
    web.head(post.stream, 200, &fields);
    web.bytes(post.stream, b"id: 1\ndata:\n\n");
    web.fail(post.stream, FaultKind::Reset);
    web.pass(seconds(1));
    let rest = web.begun(Verb::Get);
    assert_eq!(rest.field("mcp-session-id"), Some("s-1"));
    web.status(rest.stream, 502);
    web.pass(seconds(5));
    let rest = web.begun(Verb::Get);
    web.stream(rest.stream);
    let introduced = result(&post, client_http::introduction("2025-11-25"));
    web.event(rest.stream, None, &introduced);
    let post = web.posted("notifications/initialized");
    assert_eq!(post.field("mcp-session-id"), Some("s-1"));
}

#[test]
fn f_047_only_the_old_stream_says_where_messages_go() {
    let mut web = Web::new(legacy_config());
    web.connect();
    let post = web.posted("initialize");
    web.stream(post.stream);
    web.pass(seconds(61));
    web.begun(Verb::Get);
    web.bytes(post.stream, b"event: endpoint\ndata: /messages\n\n");
    assert_eq!(web.unseen(), 0);
    let introduced = result(&post, client_http::introduction("2025-11-25"));
    web.event(post.stream, None, &introduced);
    assert_eq!(
        web.posted("notifications/initialized").target,
        client_http::URL
    );
}

#[test]
fn f_053_a_server_that_takes_long_is_not_refused_for_having_no_old_transport() {
    // The link asks for the old transport meanwhile, and the server has none.
    let mut web = Web::new(legacy_config());
    web.connect();
    web.pass(seconds(90));
    if let Some(get) = web.find(is_get) {
        web.status(get.stream, 405);
    }
    web.pass(seconds(20));
    web.agree_legacy("2025-11-25", Some("s-1"));
    // The server does not answer.
    let mut web = Web::new(legacy_config());
    web.connect();
    web.pass(seconds(110));
    web.agree_legacy("2025-11-25", Some("s-1"));
    assert_eq!((web.opens, web.client.failures()), (1, 0));
    // The server answers after all, while the link waits for the old transport.
    let mut web = Web::new(legacy_config());
    web.connect();
    web.pass(seconds(65));
    let old = web.begun(Verb::Get);
    web.agree_with_news("2025-11-25", Some("s-1"));
    assert!(!web.is_open(old.stream), "it is not needed any more");
    web.no_news();
    web.call("tools/call", json!({"name": "add"}));
    assert_eq!(web.posted("tools/call").target, client_http::URL);
}

#[test]
fn f_055_what_was_learned_of_the_era_is_not_asked_again() {
    let mut web = Web::new(config());
    web.connect();
    let probe = web.posted("server/discover");
    web.status(probe.stream, 405);
    web.agree_legacy("2025-11-25", Some("s-1"));
    assert_eq!(web.client.era(), Some(Era::Legacy));
    for _ in 0..3 {
        web.client
            .reconnect(web.now, web.client.epoch(), "asked to");
        web.pass(seconds(5));
        web.agree_legacy("2025-11-25", Some("s-2"));
    }
    assert_eq!(web.count(|begun| begun.method() == "server/discover"), 1);
}

#[test]
fn f_056_a_probe_that_is_ignored_has_its_time_and_a_late_answer_changes_nothing() {
    let mut web = Web::new(config());
    web.connect();
    let probe = web.posted("server/discover");
    web.pass(seconds(3));
    web.agree_legacy("2025-11-25", Some("s-1"));
    let late = web.client.stats().late_replies;
    web.json(probe.stream, 200, &result(&probe, client_http::discovery()));
    assert_eq!(web.client.stats().late_replies, late + 1);
    assert_eq!(web.client.state(), State::Ready);
    let era = web.client.session().map(|session| session.version.era());
    assert_eq!(era, Some(Era::Legacy));
    web.call("tools/call", json!({"name": "add"}));
    assert_eq!(
        web.posted("tools/call").field("mcp-session-id"),
        Some("s-1")
    );
}

#[test]
fn f_056_a_modern_server_that_was_only_slow_is_asked_once_more() {
    let mut web = Web::new(config());
    web.connect();
    web.posted("server/discover");
    web.pass(seconds(3));
    let post = web.posted("initialize");
    let data = json!({"supported": ["2026-07-28"], "requested": "2025-11-25"});
    let refused = json!({"jsonrpc": "2.0", "id": post.body["id"],
        "error": {"code": -32_022, "message": "no", "data": data}});
    web.json(post.stream, 400, &refused);
    web.agree_modern();
    assert_eq!((web.opens, web.count(is_get)), (1, 0));
}

#[test]
fn f_057_whatever_is_not_modern_is_spoken_to_as_legacy() {
    let body = |code: i64| -> Option<i64> { Some(code) };
    for (status, code) in [
        (400, None),
        (404, None),
        (405, None),
        (406, None),
        (415, None),
        (422, None),
        (400, body(-32_000)),
        (400, body(-32_600)),
        (400, body(-32_602)),
        (404, body(-32_601)),
        (200, body(-32_601)),
        (200, body(-32_602)),
        (200, body(-32_603)),
        (200, body(0)),
    ] {
        let mut web = Web::new(config());
        web.connect();
        let probe = web.posted("server/discover");
        match code {
            Some(code) => web.json(probe.stream, status, &error(&probe, code)),
            None => web.status(probe.stream, status),
        }
        web.agree_legacy("2025-11-25", Some("s-1"));
        assert_eq!(web.client.failures(), 0, "{status} {code:?}");
    }
    // An unreadable response counts as a refusal.
    for (kind, body) in [
        ("text/html", "<html>"),
        ("application/json", "{"),
        ("application/json", ""),
    ] {
        let mut web = Web::new(config());
        web.connect();
        let probe = web.posted("server/discover");
        web.respond(probe.stream, 200, &[("content-type", kind)], body);
        web.agree_legacy("2025-11-25", Some("s-1"));
    }
    // Errors that only a modern server sends.
    for code in [-32_020, -32_021, -32_022] {
        let mut web = Web::new(config());
        web.connect();
        let probe = web.posted("server/discover");
        web.json(probe.stream, 400, &error(&probe, code));
        assert_eq!(web.count(is_introduction), 0, "{code}");
    }
}

/// Only an error that no legacy server sends proves a modern one. Otherwise the link tries the old transport.
#[test]
fn f_057_what_a_refused_introduction_says_of_the_server() {
    for (status, code, is_modern) in [
        (404, -32_601, true),
        (400, -32_601, false),
        (404, -32_000, false),
        (400, -32_022, true),
    ] {
        let mut web = Web::new(config());
        web.connect();
        let probe = web.posted("server/discover");
        web.status(probe.stream, 400);
        let post = web.posted("initialize");
        web.json(post.stream, status, &error(&post, code));
        let probes = web.count(|begun| begun.method() == "server/discover");
        let said = (probes, web.count(is_get));
        let expected = if is_modern { (2, 0) } else { (1, 1) };
        assert_eq!(said, expected, "{status} with {code}");
    }
}

#[test]
fn f_058_the_probe_leaves_time_for_what_comes_after_it() {
    let mut config = config();
    config.policy.handshake_timeout = seconds(4);
    let mut web = Web::new(config);
    web.connect();
    web.posted("server/discover");
    web.pass(seconds(2));
    let post = web.posted("initialize");
    assert_eq!(post.at, Instant::ZERO + seconds(2));
    web.pass(Duration::from_millis(900));
    let body: Value = result(&post, client_http::introduction("2025-11-25"));
    web.json(post.stream, 200, &body);
    assert_eq!(web.client.state(), State::Ready);
}

#[test]
fn f_058_the_probe_has_its_time_after_credentials_were_given_too() {
    let mut web = Web::new(config());
    web.connect();
    let probe = web.posted("server/discover");
    web.status(probe.stream, 401);
    web.pass(seconds(60));
    web.client.authorized(web.now);
    web.pump();
    web.posted("server/discover");
    web.pass(seconds(3));
    web.agree_legacy("2025-11-25", Some("s-1"));
}
