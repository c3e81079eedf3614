//! Failures between a client link and a server over HTTP: lost sessions, misleading statuses, missing responses. Each test is
//! named after its row in the catalogue of failures. `failures_streams` has the failures of streams; `failures_links` has
//! credentials, budgets and ends.

use core::time::Duration;

use crate::client_http::{self, Begun, Web, config, error, result, seconds};
use everlink::client::{CallOptions, Cause, Delivery, Event, FailureKind, Outcome, State};
use everlink::http::{ResponseHead, Verb};
use everlink::protocol::Version;
use everlink::{Config, Dialect, FaultKind, Input, List, SessionLoss, Watch};
use serde_json::{Value, json};

/// A configuration with only the legacy era.
fn legacy_config() -> Config {
    let mut config = config();
    config.dialect = Dialect::Legacy;
    config
}

fn is_introduction(begun: &Begun) -> bool {
    begun.method() == "initialize"
}

fn is_farewell(begun: &Begun) -> bool {
    begun.verb == Verb::Delete
}

/// The causes of the ends of epochs, in order.
fn causes(web: &Web) -> Vec<Cause> {
    let told = web.events.iter().filter_map(|event| match event {
        Event::Closing { cause, .. } => Some(cause.clone()),
        _ => None,
    });
    told.collect()
}

#[test]
fn f_021_a_lost_session_is_one_new_one_and_what_was_turned_away_goes_there() {
    let mut web = Web::legacy();
    let calls = [
        web.call("tools/call", json!({"name": "act"})),
        web.call("resources/read", json!({"uri": "file:///a"})),
    ];
    let posts = [web.posted("tools/call"), web.posted("resources/read")];
    for post in &posts {
        assert_eq!(post.field("mcp-session-id"), Some("s-1"));
        web.status(post.stream, 404);
    }
    assert_ne!(web.client.state(), State::Ready);
    assert!(calls.iter().all(|call| !web.is_settled(*call)));
    web.pass(seconds(1));
    web.agree_legacy("2025-11-25", Some("s-2"));
    for (method, call) in ["tools/call", "resources/read"].into_iter().zip(calls) {
        let post = web.posted(method);
        assert_eq!(post.field("mcp-session-id"), Some("s-2"));
        web.serve(&post);
        assert!(web.reply(call).is_ok());
    }
    assert_eq!(web.count(is_introduction), 2);
    assert_eq!(web.count(is_farewell), 0, "it is over already");
    assert_eq!(causes(&web), [Cause::SessionLost]);
}

#[test]
fn f_022_servers_have_many_words_for_a_lost_session() {
    let lost = |status, code: Option<i64>, extra: Option<SessionLoss>| {
        let mut config = config();
        if let (Some(http), Some(loss)) = (&mut config.http, extra) {
            http.session_loss.push(loss);
        }
        let mut web = Web::legacy_with(config, "2025-11-25");
        web.call("resources/read", json!({"uri": "file:///a"}));
        let post = web.posted("resources/read");
        match code {
            Some(code) => web.json(post.stream, status, &error(&post, code)),
            None => web.status(post.stream, status),
        }
        web.pass(seconds(1));
        web.count(is_introduction) == 2
    };
    // Codes that servers use.
    assert!(lost(404, None, None));
    assert!(lost(404, Some(-32_001), None));
    assert!(lost(400, Some(-32_000), None));
    assert!(lost(400, Some(-32_001), None));
    // Codes that the application configures.
    let own = |status, code| Some(SessionLoss::new(status, code));
    assert!(lost(503, Some(-32_002), own(503, Some(-32_002))));
    assert!(lost(200, Some(-32_001), own(200, Some(-32_001))));
    assert!(lost(410, None, own(410, None)));
    // Codes that do not mean a lost session.
    assert!(!lost(400, None, None));
    assert!(!lost(400, Some(-32_602), None));
    assert!(!lost(200, Some(-32_001), None));
    assert!(!lost(410, None, None));
    assert!(!lost(500, Some(-32_001), None));
}

/// An error without an id shows that a restarted server did not read the request. An error with the request's id may mean that it
/// ran.
#[test]
fn f_022_a_call_that_nobody_read_goes_to_the_next_session() {
    let refused = |id: Option<&Value>| {
        let mut web = Web::legacy();
        let call = web.call("tools/call", json!({"name": "act"}));
        let post = web.posted("tools/call");
        let mut body = json!({"jsonrpc": "2.0", "error": {"code": -32_000, "message": "No valid session ID provided"}});
        if let Some(id) = id {
            body["id"] = id.clone();
        }
        web.json(post.stream, 400, &body);
        (web, call, post)
    };
    for id in [None, Some(&Value::Null)] {
        let (mut web, call, _) = refused(id);
        assert!(!web.is_settled(call), "it was not run");
        web.pass(seconds(1));
        web.agree_legacy("2025-11-25", Some("s-2"));
        let post = web.posted("tools/call");
        assert_eq!(post.field("mcp-session-id"), Some("s-2"));
        web.serve(&post);
        assert!(web.reply(call).is_ok());
    }
    let (_, _, post) = refused(None);
    let (mut web, call, _) = refused(Some(&post.body["id"]));
    assert_eq!(web.failure(call).delivery, Delivery::Unknown);
}

/// A server that fails may have run the request, even if its error has no id.
#[test]
fn f_022_a_call_that_a_server_failed_at_is_not_sent_again() {
    for status in [500, 503] {
        let mut config = config();
        if let Some(http) = &mut config.http {
            http.session_loss.push(SessionLoss::new(status, None));
        }
        let mut web = Web::legacy_with(config, "2025-11-25");
        let call = web.call("tools/call", json!({"name": "act"}));
        let post = web.posted("tools/call");
        let body =
            json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32_603, "message": "no"}});
        web.json(post.stream, status, &body);
        assert_eq!(web.failure(call).delivery, Delivery::Unknown);
    }
}

#[test]
fn f_023_where_no_session_was_named_none_is_lost() {
    let mut web = Web::new(legacy_config());
    web.connect();
    web.agree_legacy("2025-11-25", None);
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    assert_eq!(post.field("mcp-session-id"), None);
    web.status(post.stream, 404);
    let failure = web.failure(call);
    assert_eq!(
        failure.kind,
        FailureKind::Status {
            status: 404,
            said: None
        }
    );
    assert_eq!(failure.delivery, Delivery::NotSent, "it was not found");
    assert_eq!(web.client.state(), State::Ready);
    assert_eq!(web.count(is_introduction), 1);
}

#[test]
fn f_024_no_introduction_names_a_session_or_a_version() {
    let mut web = Web::legacy();
    // Three ends of a session: by the server, by the link, and after lost contact.
    web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.status(post.stream, 404);
    web.pass(seconds(1));
    web.agree_legacy("2025-11-25", Some("s-2"));
    let post = web.posted("tools/call");
    web.serve(&post);

    web.client
        .reconnect(web.now, web.client.epoch(), "a new token");
    web.pump();
    let farewell = web.begun(Verb::Delete);
    web.status(farewell.stream, 200);
    web.pass(seconds(1));
    web.agree_legacy("2025-11-25", Some("s-3"));

    web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.fail(post.stream, FaultKind::Refused);
    web.pass(seconds(1));
    let ping = web.posted("ping");
    web.status(ping.stream, 404);
    web.agree_legacy("2025-11-25", Some("s-4"));

    let introductions: Vec<_> = web.all.iter().filter(|b| is_introduction(b)).collect();
    assert_eq!(introductions.len(), 4);
    for post in introductions {
        assert_eq!(post.field("mcp-session-id"), None);
        assert_eq!(post.field("mcp-protocol-version"), None);
    }
}

#[test]
fn f_025_a_session_of_before_is_not_believed_until_it_answers() {
    let mut web = Web::legacy();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.fail(post.stream, FaultKind::Refused);
    assert_ne!(web.client.state(), State::Ready);
    web.pass(seconds(1));
    let ping = web.posted("ping");
    assert_eq!(ping.field("mcp-session-id"), Some("s-1"));
    assert_eq!(web.client.state(), State::Handshaking);
    assert_eq!(web.unseen(), 0, "nothing is staked on it");
    web.status(ping.stream, 404);
    assert_eq!(web.client.state(), State::Handshaking);
    web.agree_legacy("2025-11-25", Some("s-2"));
    let post = web.posted("tools/call");
    assert_eq!(post.field("mcp-session-id"), Some("s-2"));
    web.serve(&post);
    assert!(web.reply(call).is_ok());
    assert_eq!(web.opens, 2, "both were tried in one life");
}

#[test]
fn f_025_a_session_of_before_that_is_met_with_silence_is_given_up() {
    let mut web = Web::legacy();
    web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.fail(post.stream, FaultKind::Refused);
    web.pass(seconds(1));
    web.posted("ping");
    web.pass(seconds(2));
    assert_eq!(web.count(is_introduction), 1, "it has its time");
    web.pass(seconds(300));
    assert!(web.count(is_introduction) > 1);
}

#[test]
fn f_025_a_session_of_before_that_was_given_up_has_no_say_any_more() {
    let mut web = Web::legacy();
    web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.fail(post.stream, FaultKind::Refused);
    web.pass(seconds(1));
    let ping = web.posted("ping");
    web.pass(seconds(3));
    assert_eq!(web.count(is_introduction), 2);
    web.json(ping.stream, 200, &error(&ping, -32_600));
    assert_eq!(web.count(is_introduction), 2);
    web.agree_legacy("2025-11-25", Some("s-2"));
}

#[test]
fn f_025_a_session_that_was_ended_is_not_tried_again() {
    for refusal in [429, 503] {
        let mut web = Web::legacy();
        web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.fail(post.stream, FaultKind::Refused);
        web.pass(seconds(1));
        let ping = web.posted("ping");
        web.respond(ping.stream, refusal, &[("retry-after", "1")], "");
        let is_ended = web.find(is_farewell).is_some();
        web.pass(seconds(5));
        let is_tried = web.find(|begun| begun.method() == "ping").is_some();
        assert!(!(is_ended && is_tried), "status {refusal}");
        assert!(is_tried || web.count(is_introduction) == 2);
    }
}

#[test]
fn f_026_many_who_see_one_lost_session_cause_one_handshake() {
    let mut web = Web::legacy();
    let before = web.client.epoch();
    let calls: Vec<_> = (0..50)
        .map(|_| web.call("tools/call", json!({"name": "add"})))
        .collect();
    let posts: Vec<_> = calls.iter().map(|_| web.posted("tools/call")).collect();
    let (last, others) = posts.split_last().expect("some");
    for post in others {
        web.status(post.stream, 404);
    }
    // The last call is still unanswered and gets its grace period.
    assert_eq!(web.client.state(), State::Draining);
    web.pass(seconds(6));
    web.agree_legacy("2025-11-25", Some("s-2"));
    assert_eq!(web.count(is_introduction), 2);
    assert_eq!(web.client.stats().failures, 1);

    // A late response about the old session is ignored.
    let stale = web.client.stats().stale_inputs;
    let stream = last.stream;
    let head = Box::new(ResponseHead::new(404));
    web.client
        .handle(web.now, before, Input::Response { stream, head });
    web.pump();
    assert_eq!(web.client.stats().stale_inputs, stale + 1);
    assert_eq!(web.client.state(), State::Ready);
    web.pass_served(seconds(1));
    for call in calls {
        let is_last = call.number() == 50;
        match web.outcome(call) {
            Outcome::Reply(_) => assert!(!is_last),
            Outcome::Failed(failure) => {
                assert!(is_last);
                assert_eq!(failure.delivery, Delivery::Unknown);
            }
            outcome => panic!("{outcome:?}"),
        }
    }
    assert_eq!(web.count(is_introduction), 2);
}

#[test]
fn f_027_whatever_meets_the_lost_session_finds_the_new_one() {
    type Meets = fn(&mut Web);
    let meets: [(&str, Meets); 6] = [
        ("tools/call", |web| {
            web.call("tools/call", json!({"name": "add"}));
        }),
        ("strange/method", |web| {
            web.call("strange/method", json!({}));
        }),
        ("prompts/list", |web| {
            let listed = web.client.list(web.now, List::Prompts, CallOptions::new());
            listed.expect("accepted");
            web.pump();
        }),
        ("resources/subscribe", |web| {
            let mut watch = Watch::lists();
            watch.uris.insert("file:///a".into());
            web.client.watch(web.now, watch);
            web.pump();
        }),
        ("notifications/strange", |web| {
            let told = web.client.notify(web.now, "notifications/strange", None);
            told.expect("accepted");
            web.pump();
        }),
        ("ping", |web| web.pass(seconds(31))),
    ];
    for (method, meet) in meets {
        let mut web = Web::legacy();
        meet(&mut web);
        let post = web.posted(method);
        web.status(post.stream, 404);
        assert_ne!(web.client.state(), State::Ready, "{method}");
        web.pass(seconds(1));
        web.agree_legacy("2025-11-25", Some("s-2"));
    }
}

#[test]
fn f_028_what_a_gateway_lost_behind_it_is_an_error_and_the_link_goes_on() {
    let mut web = Web::legacy();
    let broken = web.call("tools/call", json!({"name": "one.add"}));
    let post = web.posted("tools/call");
    web.json(post.stream, 200, &error(&post, -32_001));
    assert_eq!(web.reply(broken), Err(-32_001));
    let whole = web.call("tools/call", json!({"name": "other.add"}));
    let post = web.posted("tools/call");
    web.serve(&post);
    assert!(web.reply(whole).is_ok());
    assert_eq!(web.opens, 1);
}

#[test]
fn f_029_each_refusal_of_a_handshake_is_of_its_class() {
    for status in [500, 502, 503, 504, 429, 408] {
        let mut web = Web::new(config());
        web.connect();
        let probe = web.posted("server/discover");
        web.status(probe.stream, status);
        let post = web.posted("initialize");
        web.status(post.stream, status);
        assert_eq!(causes(&web), [Cause::Unavailable { status }]);
        assert_eq!(web.client.state(), State::Waiting);
        assert_eq!(web.client.failures(), 1);
        web.pass(seconds(1));
        // A server that failed at the probe itself is not probed again.
        match status {
            500 => web.agree_legacy("2025-11-25", Some("s-1")),
            _ => web.agree_modern(),
        }
    }
    // The server names the delay.
    let mut web = Web::new(config());
    web.connect();
    let probe = web.posted("server/discover");
    web.respond(probe.stream, 503, &[("retry-after", "90")], "");
    web.client.wake(web.now);
    web.pass(seconds(89));
    assert_eq!(web.opens, 1);
    web.pass(seconds(1));
    assert_eq!(web.opens, 2);
    // The status is about credentials, or about the era.
    let mut web = Web::new(config());
    web.connect();
    let probe = web.posted("server/discover");
    web.status(probe.stream, 401);
    assert_eq!((web.challenges(), web.client.failures()), (1, 0));
    let mut web = Web::new(config());
    web.connect();
    let probe = web.posted("server/discover");
    web.status(probe.stream, 400);
    web.posted("initialize");
    assert_eq!(web.client.failures(), 0);
}

#[test]
fn f_029_a_call_that_is_refused_costs_itself_and_no_session() {
    for (status, delivery) in [
        (500, Delivery::Unknown),
        (502, Delivery::Unknown),
        (503, Delivery::Unknown),
        (429, Delivery::NotSent),
        (413, Delivery::NotSent),
    ] {
        let mut web = Web::legacy();
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.status(post.stream, status);
        let failure = web.failure(call);
        assert_eq!(failure.kind, FailureKind::Status { status, said: None });
        assert_eq!(failure.delivery, delivery, "status {status}");
        assert_eq!(web.client.state(), State::Ready);
        assert_eq!(web.count(is_introduction), 1);
    }
}

#[test]
fn f_030_a_stream_that_ends_without_the_reply_is_an_end_and_not_a_wait() {
    // There is no event id to resume from. A call that may have run fails, and a read is sent again.
    let mut web = Web::legacy();
    let acts = web.call("tools/call", json!({"name": "act"}));
    let reads = web.call("resources/read", json!({"uri": "file:///a"}));
    for method in ["tools/call", "resources/read"] {
        let post = web.posted(method);
        web.stream(post.stream);
        web.bytes(post.stream, b": working\n\n");
        web.end(post.stream);
    }
    let failure = web.failure(acts);
    assert_eq!(failure.kind, FailureKind::Cut);
    assert_eq!(failure.delivery, Delivery::Unknown);
    let again = web.posted("resources/read");
    web.serve(&again);
    assert!(web.reply(reads).is_ok());
    // An event id was received, so the link resumes the stream.
    let call = web.call("tools/call", json!({"name": "act"}));
    let post = web.posted("tools/call");
    web.stream(post.stream);
    web.bytes(post.stream, b"id: e-1\ndata:\n\n");
    web.fail(post.stream, FaultKind::Reset);
    assert!(!web.is_settled(call));
    web.pass(seconds(1));
    let rest = web.begun(Verb::Get);
    assert_eq!(rest.field("last-event-id"), Some("e-1"));
    web.stream(rest.stream);
    web.event(rest.stream, Some("e-2"), &result(&post, json!({})));
    assert!(web.reply(call).is_ok());
    assert_eq!(web.opens, 1);
}

#[test]
fn f_031_a_response_that_promises_nothing_and_never_ends_is_cut() {
    for mut web in [Web::modern(), Web::legacy()] {
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.head(post.stream, 202, &[]);
        assert!(!web.is_settled(call), "it may say something yet");
        web.pass(seconds(3));
        let failure = web.failure(call);
        assert!(
            matches!(failure.kind, FailureKind::Invalid { .. }),
            "{failure}"
        );
        assert_eq!(web.aborted, [post.stream]);
        assert_eq!(web.client.state(), State::Ready);
    }
}

#[test]
fn f_031_what_a_server_says_in_the_place_of_a_reply_ends_the_call() {
    type Says = fn(&Begun) -> String;
    let says: [Says; 6] = [
        |_| "null".into(),
        |_| "\"done\"".into(),
        |_| r#"{"ok": true}"#.into(),
        |post| json!([result(post, json!({}))]).to_string(),
        |post| json!({"jsonrpc": "2.0", "id": post.body["id"]}).to_string(),
        |post| result(post, json!({}))["result"].to_string(),
    ];
    for says in says {
        for mut web in [Web::modern(), Web::legacy()] {
            let call = web.call("tools/call", json!({"name": "add"}));
            let post = web.posted("tools/call");
            let fields = [("content-type", "application/json")];
            web.respond(post.stream, 200, &fields, &says(&post));
            let failure = web.failure(call);
            assert!(
                matches!(failure.kind, FailureKind::Invalid { .. }),
                "{}: {failure}",
                says(&post)
            );
            assert_eq!(web.client.state(), State::Ready);
        }
    }
}

#[test]
fn f_033_a_slow_exchange_holds_nobody_up() {
    let mut web = Web::legacy();
    let slow = web.call("tools/call", json!({"name": "slow"}));
    let held = web.posted("tools/call");
    let others: Vec<_> = (0..100)
        .map(|_| web.call("resources/read", json!({"uri": "file:///a"})))
        .collect();
    for call in others {
        let post = web.posted("resources/read");
        web.serve(&post);
        assert!(web.reply(call).is_ok());
    }
    web.client
        .notify(web.now, "notifications/strange", None)
        .expect("accepted");
    web.pump();
    web.posted("notifications/strange");
    assert!(!web.is_settled(slow));
    web.serve(&held);
    assert!(web.reply(slow).is_ok());
}

#[test]
fn f_034_the_stream_of_news_comes_last_and_can_be_done_without() {
    let mut web = Web::new(legacy_config());
    web.connect();
    web.introduce("s-1");
    assert_eq!(web.client.state(), State::Ready);
    assert_eq!(
        web.count(|begun| begun.verb == Verb::Get),
        0,
        "the server does not know yet that it may speak"
    );
    let post = web.posted("notifications/initialized");
    web.status(post.stream, 202);
    assert_eq!(web.begun(Verb::Get).field("mcp-session-id"), Some("s-1"));

    let mut config = legacy_config();
    config.http.as_mut().expect("over HTTP").listens = false;
    let mut web = Web::new(config);
    web.connect();
    web.agree_legacy("2025-11-25", Some("s-1"));
    web.pass_served(seconds(600));
    assert_eq!(web.count(|begun| begun.verb == Verb::Get), 0);
    assert_eq!(web.client.state(), State::Ready);

    let mut web = Web::modern();
    web.pass_served(seconds(600));
    assert_eq!(web.count(|begun| begun.verb == Verb::Get), 0);
}

#[test]
fn f_035_replicas_that_share_no_sessions_are_told_as_what_they_are() {
    let mut web = Web::legacy();
    let call = web.call("resources/read", json!({"uri": "file:///a"}));
    let mut sessions = 1;
    for _ in 0..6_000 {
        while let Some(begun) = web.find(|_| true) {
            if is_introduction(&begun) {
                sessions += 1;
                let fields = [
                    ("content-type", "application/json"),
                    ("mcp-session-id", "another"),
                ];
                let body = result(&begun, client_http::introduction("2025-11-25")).to_string();
                web.respond(begun.stream, 200, &fields, &body);
            } else {
                web.status(begun.stream, 404);
            }
        }
        web.pass(Duration::from_millis(100));
    }
    assert!(sessions <= 20, "{sessions} sessions in ten minutes");
    assert_ne!(web.client.state(), State::Ready);
    assert!(web.was_told(|event| matches!(event, Event::Parked { .. })));
    let failure = web.failure(call);
    let ended = failure.ended.as_ref().expect("a story");
    assert_eq!(ended.cause, Cause::SessionLost);
    assert!(
        failure.to_string().contains("the session is over"),
        "{failure}"
    );
}

#[test]
fn f_036_every_session_that_is_retired_is_ended_and_no_other() {
    // A reconnect, and a server that does not support DELETE.
    let mut web = Web::legacy();
    web.client
        .reconnect(web.now, web.client.epoch(), "asked to");
    web.pump();
    let farewell = web.begun(Verb::Delete);
    assert_eq!(farewell.field("mcp-session-id"), Some("s-1"));
    assert_eq!(farewell.field("mcp-protocol-version"), Some("2025-11-25"));
    web.status(farewell.stream, 405);
    assert_eq!(web.client.failures(), 0);
    web.pass(seconds(1));
    web.agree_legacy("2025-11-25", Some("s-2"));
    // Shutdown.
    web.client.shutdown(web.now);
    web.pump();
    let farewell = web.begun(Verb::Delete);
    assert_eq!(farewell.field("mcp-session-id"), Some("s-2"));
    web.head(farewell.stream, 200, &[]);
    assert_eq!(web.client.state(), State::Closed, "no more is waited for");
    // A session that came with an unusable result.
    let mut web = Web::new(legacy_config());
    web.connect();
    let post = web.posted("initialize");
    let fields = [
        ("content-type", "application/json"),
        ("mcp-session-id", "s-9"),
    ];
    let body = result(&post, client_http::introduction("1999-01-01")).to_string();
    web.respond(post.stream, 200, &fields, &body);
    let farewell = web.begun(Verb::Delete);
    assert_eq!(farewell.field("mcp-session-id"), Some("s-9"));
    // A legacy server that opened no session, and a modern server.
    let mut web = Web::new(legacy_config());
    web.connect();
    web.agree_legacy("2025-11-25", None);
    web.client.shutdown(web.now);
    web.pump();
    assert_eq!(web.client.state(), State::Closed);
    assert_eq!(web.count(is_farewell), 0);
    let mut web = Web::modern();
    web.client.shutdown(web.now);
    web.pump();
    assert_eq!(web.client.state(), State::Closed);
    assert_eq!(web.count(is_farewell), 0);
}

#[test]
fn f_036_a_farewell_that_is_not_heard_holds_nobody_up() {
    let mut web = Web::legacy();
    web.client
        .reconnect(web.now, web.client.epoch(), "asked to");
    web.pump();
    web.begun(Verb::Delete);
    let asked = web.now;
    while web.opens == 1 {
        web.pass(Duration::from_millis(100));
        assert!(web.now.since(asked) <= seconds(3));
    }
    assert_eq!(web.client.failures(), 0, "a planned close is free");
}

#[test]
fn f_036_a_farewell_names_the_version_of_its_session() {
    let mut web = Web::legacy();
    web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.fail(post.stream, FaultKind::Refused);
    web.pass(seconds(1));
    let ping = web.posted("ping");
    web.json(ping.stream, 200, &error(&ping, -32_600));
    let farewell = web.begun(Verb::Delete);
    assert_eq!(farewell.field("mcp-session-id"), Some("s-1"));
    assert_eq!(farewell.field("mcp-protocol-version"), Some("2025-11-25"));
}

#[test]
fn f_037_nothing_is_sent_to_another_origin() {
    for elsewhere in [
        "http://mcp.example/mcp",
        "https://mcp.example:8443/mcp",
        "https://evil.example/mcp",
        "//evil.example/mcp",
        "https://mcp.example@evil.example/",
        "ftp://mcp.example/mcp",
        "mailto:mcp@mcp.example",
    ] {
        for status in [301, 302, 303, 307, 308] {
            let mut web = Web::modern();
            let call = web.call("tools/call", json!({"name": "add"}));
            let post = web.posted("tools/call");
            web.respond(post.stream, status, &[("location", elsewhere)], "");
            let failure = web.failure(call);
            assert_eq!(failure.kind, FailureKind::Status { status, said: None });
            assert!(failure.to_string().contains(&status.to_string()));
            let home = "https://mcp.example/mcp";
            assert!(web.all.iter().all(|begun| begun.target == home));
            assert_eq!(web.client.state(), State::Ready);
        }
    }
}

#[test]
fn f_037_redirects_that_never_end_do() {
    // Redirects to ever new paths, or in a circle.
    let places: [fn(usize) -> String; 2] = [|n| format!("/mcp/{n}"), |_| "/mcp".into()];
    for place in places {
        let mut web = Web::modern();
        let call = web.call("tools/call", json!({"name": "add"}));
        let mut followed = 0;
        while let Some(post) = web.find(|begun| begun.method() == "tools/call") {
            followed += 1;
            assert!(followed <= 10, "it is bounded");
            let next = place(followed);
            web.respond(post.stream, 307, &[("location", &next)], "");
        }
        assert!(followed >= 2, "{followed}");
        let failure = web.failure(call);
        assert_eq!(
            failure.kind,
            FailureKind::Status {
                status: 307,
                said: None
            }
        );
    }
}

#[test]
fn f_037_a_server_that_is_found_may_move_again() {
    let mut web = Web::modern();
    let mut place = String::from(client_http::URL);
    for number in 1..=20 {
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        assert_eq!(post.target, place, "it stays found");
        place = format!("https://mcp.example/{number}");
        web.respond(post.stream, 307, &[("location", &place)], "");
        let post = web.posted("tools/call");
        assert_eq!(post.target, place);
        web.serve(&post);
        assert!(web.reply(call).is_ok());
    }
}

#[test]
fn f_037_a_stream_that_is_said_to_be_elsewhere_is_not_asked_for_again() {
    let mut web = Web::legacy_with_news();
    let get = web.begun(Verb::Get);
    let elsewhere = [("location", "https://evil.example/mcp")];
    web.respond(get.stream, 307, &elsewhere, "");
    assert_eq!(web.count(|begun| begun.verb == Verb::Get), 1);
    assert_eq!(web.client.state(), State::Ready);
}

#[test]
fn f_037_many_who_are_sent_to_the_same_place_all_go_there() {
    let mut web = Web::modern();
    let calls: Vec<_> = (0..10)
        .map(|_| web.call("tools/call", json!({"name": "add"})))
        .collect();
    let posts: Vec<_> = calls.iter().map(|_| web.posted("tools/call")).collect();
    for post in posts {
        web.respond(post.stream, 307, &[("location", "/v2")], "");
    }
    for call in calls {
        let post = web.posted("tools/call");
        assert_eq!(post.target, "https://mcp.example/v2");
        web.serve(&post);
        assert!(web.reply(call).is_ok());
    }
}

#[test]
fn f_037_a_temporary_redirect_is_temporary() {
    let mut web = Web::modern();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.respond(post.stream, 307, &[("location", "/login")], "");
    let post = web.posted("tools/call");
    let page = [("content-type", "text/html")];
    web.respond(post.stream, 200, &page, "<html>");
    web.failure(call);
    web.call("tools/call", json!({"name": "add"}));
    assert_eq!(web.posted("tools/call").target, client_http::URL);
}

#[test]
fn f_059_the_version_is_negotiated_and_named_from_then_on() {
    for version in ["2025-03-26", "2025-06-18", "2025-11-25", "2024-11-05"] {
        let mut web = Web::new(legacy_config());
        web.connect();
        let post = web.find(is_introduction).expect("an introduction");
        assert_eq!(post.field("mcp-protocol-version"), None);
        assert_eq!(post.body["params"]["protocolVersion"], "2025-11-25");
        let fields = [
            ("content-type", "application/json"),
            ("mcp-session-id", "s-1"),
        ];
        let body = result(&post, client_http::introduction(version)).to_string();
        web.respond(post.stream, 200, &fields, &body);
        let agreed = web.client.session().map(|session| session.version);
        assert_eq!(agreed, Version::parse(version));
        let post = web.posted("notifications/initialized");
        web.status(post.stream, 202);
        let get = web.begun(Verb::Get);
        web.status(get.stream, 405);
        web.call("tools/call", json!({"name": "add"}));
        let call = web.posted("tools/call");
        web.client.shutdown(web.now);
        web.pump();
        let farewell = web.begun(Verb::Delete);
        let named = Some(version).filter(|version| *version >= "2025-06-18");
        for begun in [&post, &get, &call, &farewell] {
            assert_eq!(begun.field("mcp-protocol-version"), named, "{version}");
            assert_eq!(begun.field("mcp-session-id"), Some("s-1"));
        }
    }
    let mut web = Web::modern();
    web.call("tools/call", json!({"name": "add"}));
    let named = |begun: &Begun| begun.field("mcp-protocol-version") == Some("2026-07-28");
    assert!(web.all.iter().all(named));
    let meta = |begun: &Begun| -> Value {
        begun.body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].clone()
    };
    assert!(web.all.iter().all(|begun| meta(begun) == "2026-07-28"));
}
