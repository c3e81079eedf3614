//! Failures between a client link and a server over HTTP: lost sessions, misleading statuses, missing responses. Each test is
//! named after its row in the catalogue of failures. `failures_of_streams` has the failures of streams; `failures_of_links` has
//! credentials, budgets and ends.

use core::time::Duration;

use crate::client_http::{self, Exchange, Harness, config, error, result, seconds};
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

fn is_initialize(exchange: &Exchange) -> bool {
    exchange.method() == "initialize"
}

fn is_delete(exchange: &Exchange) -> bool {
    exchange.verb == Verb::Delete
}

/// The causes of the ends of epochs, in order.
fn causes(harness: &Harness) -> Vec<Cause> {
    let causes = harness.events.iter().filter_map(|event| match event {
        Event::Closing { cause, .. } => Some(cause.clone()),
        _ => None,
    });
    causes.collect()
}

#[test]
fn f_021_lost_session_is_replaced_once_and_refused_calls_are_sent_there() {
    let mut harness = Harness::legacy();
    let calls = [
        harness.call("tools/call", json!({"name": "act"})),
        harness.call("resources/read", json!({"uri": "file:///a"})),
    ];
    let posts = [
        harness.next_post("tools/call"),
        harness.next_post("resources/read"),
    ];
    for post in &posts {
        assert_eq!(post.field("mcp-session-id"), Some("s-1"));
        harness.status(post.stream, 404);
    }
    assert_ne!(harness.client.state(), State::Ready);
    assert!(calls.iter().all(|call| !harness.is_settled(*call)));
    harness.advance(seconds(1));
    harness.agree_legacy("2025-11-25", Some("s-2"));
    for (method, call) in ["tools/call", "resources/read"].into_iter().zip(calls) {
        let post = harness.next_post(method);
        assert_eq!(post.field("mcp-session-id"), Some("s-2"));
        harness.serve(&post);
        assert!(harness.reply(call).is_ok());
    }
    assert_eq!(harness.count(is_initialize), 2);
    assert_eq!(harness.count(is_delete), 0, "the session is already over");
    assert_eq!(causes(&harness), [Cause::SessionLost]);
}

#[test]
fn f_022_known_and_configured_responses_mean_a_lost_session() {
    let lost = |status, code: Option<i64>, extra: Option<SessionLoss>| {
        let mut config = config();
        if let (Some(http), Some(loss)) = (config.binding.http_mut(), extra) {
            http.session_loss.push(loss);
        }
        let mut harness = Harness::legacy_with(config, "2025-11-25");
        harness.call("resources/read", json!({"uri": "file:///a"}));
        let post = harness.next_post("resources/read");
        match code {
            Some(code) => harness.json(post.stream, status, &error(&post, code)),
            None => harness.status(post.stream, status),
        }
        harness.advance(seconds(1));
        harness.count(is_initialize) == 2
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
fn f_022_call_refused_without_its_id_is_sent_in_the_next_session() {
    let refused = |id: Option<&Value>| {
        let mut harness = Harness::legacy();
        let call = harness.call("tools/call", json!({"name": "act"}));
        let post = harness.next_post("tools/call");
        let mut body = json!({"jsonrpc": "2.0", "error": {"code": -32_000, "message": "No valid session ID provided"}});
        if let Some(id) = id {
            body["id"] = id.clone();
        }
        harness.json(post.stream, 400, &body);
        (harness, call, post)
    };
    for id in [None, Some(&Value::Null)] {
        let (mut harness, call, _) = refused(id);
        assert!(!harness.is_settled(call), "the call did not run");
        harness.advance(seconds(1));
        harness.agree_legacy("2025-11-25", Some("s-2"));
        let post = harness.next_post("tools/call");
        assert_eq!(post.field("mcp-session-id"), Some("s-2"));
        harness.serve(&post);
        assert!(harness.reply(call).is_ok());
    }
    let (_, _, post) = refused(None);
    let (mut harness, call, _) = refused(Some(&post.body["id"]));
    assert_eq!(harness.failure(call).delivery, Delivery::Unknown);
}

/// A server that fails may have run the request, even if its error has no id.
#[test]
fn f_022_call_answered_with_500_or_503_is_not_sent_again() {
    for status in [500, 503] {
        let mut config = config();
        if let Some(http) = config.binding.http_mut() {
            http.session_loss.push(SessionLoss::new(status, None));
        }
        let mut harness = Harness::legacy_with(config, "2025-11-25");
        let call = harness.call("tools/call", json!({"name": "act"}));
        let post = harness.next_post("tools/call");
        let body =
            json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32_603, "message": "no"}});
        harness.json(post.stream, status, &body);
        assert_eq!(harness.failure(call).delivery, Delivery::Unknown);
    }
}

#[test]
fn f_023_404_without_a_session_fails_only_its_call() {
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    harness.agree_legacy("2025-11-25", None);
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    assert_eq!(post.field("mcp-session-id"), None);
    harness.status(post.stream, 404);
    let failure = harness.failure(call);
    assert_eq!(
        failure.kind,
        FailureKind::Status {
            status: 404,
            said: None
        }
    );
    assert_eq!(failure.delivery, Delivery::NotSent, "the call did not run");
    assert_eq!(harness.client.state(), State::Ready);
    assert_eq!(harness.count(is_initialize), 1);
}

#[test]
fn f_024_initialize_never_has_a_session_id_or_version_header() {
    let mut harness = Harness::legacy();
    // Three ends of a session: by the server, by the link, and after lost contact.
    harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 404);
    harness.advance(seconds(1));
    harness.agree_legacy("2025-11-25", Some("s-2"));
    let post = harness.next_post("tools/call");
    harness.serve(&post);

    harness
        .client
        .reconnect(harness.now, harness.client.epoch(), "a new token");
    harness.pump();
    let delete = harness.next_exchange(Verb::Delete);
    harness.status(delete.stream, 200);
    harness.advance(seconds(1));
    harness.agree_legacy("2025-11-25", Some("s-3"));

    harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.fail(post.stream, FaultKind::Refused);
    harness.advance(seconds(1));
    let ping = harness.next_post("ping");
    harness.status(ping.stream, 404);
    harness.agree_legacy("2025-11-25", Some("s-4"));

    let initializes: Vec<_> = harness
        .exchanges
        .iter()
        .filter(|b| is_initialize(b))
        .collect();
    assert_eq!(initializes.len(), 4);
    for post in initializes {
        assert_eq!(post.field("mcp-session-id"), None);
        assert_eq!(post.field("mcp-protocol-version"), None);
    }
}

#[test]
fn f_025_earlier_session_is_used_only_if_its_ping_is_answered() {
    let mut harness = Harness::legacy();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.fail(post.stream, FaultKind::Refused);
    assert_ne!(harness.client.state(), State::Ready);
    harness.advance(seconds(1));
    let ping = harness.next_post("ping");
    assert_eq!(ping.field("mcp-session-id"), Some("s-1"));
    assert_eq!(harness.client.state(), State::Handshaking);
    assert_eq!(
        harness.unseen_count(),
        0,
        "no call is sent before the ping is answered"
    );
    harness.status(ping.stream, 404);
    assert_eq!(harness.client.state(), State::Handshaking);
    harness.agree_legacy("2025-11-25", Some("s-2"));
    let post = harness.next_post("tools/call");
    assert_eq!(post.field("mcp-session-id"), Some("s-2"));
    harness.serve(&post);
    assert!(harness.reply(call).is_ok());
    assert_eq!(
        harness.epochs_opened, 2,
        "both sessions were tried in one epoch"
    );
}

#[test]
fn f_025_earlier_session_whose_ping_is_unanswered_is_replaced() {
    let mut harness = Harness::legacy();
    harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.fail(post.stream, FaultKind::Refused);
    harness.advance(seconds(1));
    harness.next_post("ping");
    harness.advance(seconds(2));
    assert_eq!(harness.count(is_initialize), 1, "the ping has its timeout");
    harness.advance(seconds(300));
    assert!(harness.count(is_initialize) > 1);
}

#[test]
fn f_025_late_ping_reply_of_a_replaced_session_is_ignored() {
    let mut harness = Harness::legacy();
    harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.fail(post.stream, FaultKind::Refused);
    harness.advance(seconds(1));
    let ping = harness.next_post("ping");
    harness.advance(seconds(3));
    assert_eq!(harness.count(is_initialize), 2);
    harness.json(ping.stream, 200, &error(&ping, -32_600));
    assert_eq!(harness.count(is_initialize), 2);
    harness.agree_legacy("2025-11-25", Some("s-2"));
}

#[test]
fn f_025_session_ended_with_delete_is_not_tried_again() {
    for refusal in [429, 503] {
        let mut harness = Harness::legacy();
        harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.fail(post.stream, FaultKind::Refused);
        harness.advance(seconds(1));
        let ping = harness.next_post("ping");
        harness.respond(ping.stream, refusal, &[("retry-after", "1")], "");
        let is_ended = harness.find(is_delete).is_some();
        harness.advance(seconds(5));
        let is_tried = harness
            .find(|exchange| exchange.method() == "ping")
            .is_some();
        assert!(!(is_ended && is_tried), "status {refusal}");
        assert!(is_tried || harness.count(is_initialize) == 2);
    }
}

#[test]
fn f_026_many_404_responses_cause_one_handshake() {
    let mut harness = Harness::legacy();
    let before = harness.client.epoch();
    let calls: Vec<_> = (0..50)
        .map(|_| harness.call("tools/call", json!({"name": "add"})))
        .collect();
    let posts: Vec<_> = calls
        .iter()
        .map(|_| harness.next_post("tools/call"))
        .collect();
    let (last, others) = posts.split_last().expect("some");
    for post in others {
        harness.status(post.stream, 404);
    }
    // The last call is still unanswered and gets its grace period.
    assert_eq!(harness.client.state(), State::Draining);
    harness.advance(seconds(6));
    harness.agree_legacy("2025-11-25", Some("s-2"));
    assert_eq!(harness.count(is_initialize), 2);
    assert_eq!(harness.client.stats().failures, 1);

    // A late response about the old session is ignored.
    let stale = harness.client.stats().stale_inputs;
    let stream = last.stream;
    let head = Box::new(ResponseHead::new(404));
    harness
        .client
        .handle(harness.now, before, Input::Response { stream, head });
    harness.pump();
    assert_eq!(harness.client.stats().stale_inputs, stale + 1);
    assert_eq!(harness.client.state(), State::Ready);
    harness.advance_serving(seconds(1));
    for call in calls {
        let is_last = call.number() == 50;
        match harness.outcome(call) {
            Outcome::Reply(_) => assert!(!is_last),
            Outcome::Failed(failure) => {
                assert!(is_last);
                assert_eq!(failure.delivery, Delivery::Unknown);
            }
            outcome => panic!("{outcome:?}"),
        }
    }
    assert_eq!(harness.count(is_initialize), 2);
}

#[test]
fn f_027_404_to_any_kind_of_message_starts_a_new_session() {
    type SendMessage = fn(&mut Harness);
    let messages: [(&str, SendMessage); 6] = [
        ("tools/call", |harness| {
            harness.call("tools/call", json!({"name": "add"}));
        }),
        ("strange/method", |harness| {
            harness.call("strange/method", json!({}));
        }),
        ("prompts/list", |harness| {
            let listed = harness
                .client
                .list(harness.now, List::Prompts, CallOptions::new());
            listed.expect("accepted");
            harness.pump();
        }),
        ("resources/subscribe", |harness| {
            let mut watch = Watch::lists();
            watch.uris.insert("file:///a".into());
            harness.client.watch(harness.now, watch);
            harness.pump();
        }),
        ("notifications/strange", |harness| {
            let notified = harness
                .client
                .notify(harness.now, "notifications/strange", None);
            notified.expect("accepted");
            harness.pump();
        }),
        ("ping", |harness| harness.advance(seconds(31))),
    ];
    for (method, send_message) in messages {
        let mut harness = Harness::legacy();
        send_message(&mut harness);
        let post = harness.next_post(method);
        harness.status(post.stream, 404);
        assert_ne!(harness.client.state(), State::Ready, "{method}");
        harness.advance(seconds(1));
        harness.agree_legacy("2025-11-25", Some("s-2"));
    }
}

#[test]
fn f_028_error_reply_of_a_gateway_keeps_the_link_ready() {
    let mut harness = Harness::legacy();
    let broken = harness.call("tools/call", json!({"name": "one.add"}));
    let post = harness.next_post("tools/call");
    harness.json(post.stream, 200, &error(&post, -32_001));
    assert_eq!(harness.reply(broken), Err(-32_001));
    let whole = harness.call("tools/call", json!({"name": "other.add"}));
    let post = harness.next_post("tools/call");
    harness.serve(&post);
    assert!(harness.reply(whole).is_ok());
    assert_eq!(harness.epochs_opened, 1);
}

#[test]
fn f_029_status_of_a_refused_handshake_leads_to_retry_credentials_or_fallback() {
    for status in [500, 502, 503, 504, 429, 408] {
        let mut harness = Harness::new(config());
        harness.connect();
        let probe = harness.next_post("server/discover");
        harness.status(probe.stream, status);
        let post = harness.next_post("initialize");
        harness.status(post.stream, status);
        assert_eq!(causes(&harness), [Cause::Unavailable { status }]);
        assert_eq!(harness.client.state(), State::Waiting);
        assert_eq!(harness.client.failures(), 1);
        harness.advance(seconds(1));
        // A server that failed at the probe itself is not probed again.
        match status {
            500 => harness.agree_legacy("2025-11-25", Some("s-1")),
            _ => harness.agree_modern(),
        }
    }
    // The server names the delay.
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.respond(probe.stream, 503, &[("retry-after", "90")], "");
    harness.client.wake(harness.now);
    harness.advance(seconds(89));
    assert_eq!(harness.epochs_opened, 1);
    harness.advance(seconds(1));
    assert_eq!(harness.epochs_opened, 2);
    // The status is about credentials, or about the era.
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.status(probe.stream, 401);
    assert_eq!((harness.challenges(), harness.client.failures()), (1, 0));
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.status(probe.stream, 400);
    harness.next_post("initialize");
    assert_eq!(harness.client.failures(), 0);
}

#[test]
fn f_029_error_status_fails_only_its_call_and_keeps_the_session() {
    for (status, delivery) in [
        (500, Delivery::Unknown),
        (502, Delivery::Unknown),
        (503, Delivery::Unknown),
        (429, Delivery::NotSent),
        (413, Delivery::NotSent),
    ] {
        let mut harness = Harness::legacy();
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.status(post.stream, status);
        let failure = harness.failure(call);
        assert_eq!(failure.kind, FailureKind::Status { status, said: None });
        assert_eq!(failure.delivery, delivery, "status {status}");
        assert_eq!(harness.client.state(), State::Ready);
        assert_eq!(harness.count(is_initialize), 1);
    }
}

#[test]
fn f_030_call_whose_stream_ends_without_a_reply_fails_or_is_resent_or_resumed() {
    // There is no event id to resume from. A call that may have run fails, and a read is sent again.
    let mut harness = Harness::legacy();
    let acts = harness.call("tools/call", json!({"name": "act"}));
    let reads = harness.call("resources/read", json!({"uri": "file:///a"}));
    for method in ["tools/call", "resources/read"] {
        let post = harness.next_post(method);
        harness.begin_stream(post.stream);
        harness.bytes(post.stream, b": working\n\n");
        harness.end(post.stream);
    }
    let failure = harness.failure(acts);
    assert_eq!(failure.kind, FailureKind::Cut);
    assert_eq!(failure.delivery, Delivery::Unknown);
    let again = harness.next_post("resources/read");
    harness.serve(&again);
    assert!(harness.reply(reads).is_ok());
    // An event id was received, so the link resumes the stream.
    let call = harness.call("tools/call", json!({"name": "act"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    harness.bytes(post.stream, b"id: e-1\ndata:\n\n");
    harness.fail(post.stream, FaultKind::Reset);
    assert!(!harness.is_settled(call));
    harness.advance(seconds(1));
    let resumed = harness.next_exchange(Verb::Get);
    assert_eq!(resumed.field("last-event-id"), Some("e-1"));
    harness.begin_stream(resumed.stream);
    harness.event(resumed.stream, Some("e-2"), &result(&post, json!({})));
    assert!(harness.reply(call).is_ok());
    assert_eq!(harness.epochs_opened, 1);
}

#[test]
fn f_031_unfinished_202_response_is_aborted_within_3_s() {
    for mut harness in [Harness::modern(), Harness::legacy()] {
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.head(post.stream, 202, &[]);
        assert!(!harness.is_settled(call), "the response may still continue");
        harness.advance(seconds(3));
        let failure = harness.failure(call);
        assert!(
            matches!(failure.kind, FailureKind::Invalid { .. }),
            "{failure}"
        );
        assert_eq!(harness.aborted, [post.stream]);
        assert_eq!(harness.client.state(), State::Ready);
    }
}

#[test]
fn f_031_json_body_that_is_no_reply_fails_the_call() {
    type MakeBody = fn(&Exchange) -> String;
    let bodies: [MakeBody; 6] = [
        |_| "null".into(),
        |_| "\"done\"".into(),
        |_| r#"{"ok": true}"#.into(),
        |post| json!([result(post, json!({}))]).to_string(),
        |post| json!({"jsonrpc": "2.0", "id": post.body["id"]}).to_string(),
        |post| result(post, json!({}))["result"].to_string(),
    ];
    for make_body in bodies {
        for mut harness in [Harness::modern(), Harness::legacy()] {
            let call = harness.call("tools/call", json!({"name": "add"}));
            let post = harness.next_post("tools/call");
            let fields = [("content-type", "application/json")];
            harness.respond(post.stream, 200, &fields, &make_body(&post));
            let failure = harness.failure(call);
            assert!(
                matches!(failure.kind, FailureKind::Invalid { .. }),
                "{}: {failure}",
                make_body(&post)
            );
            assert_eq!(harness.client.state(), State::Ready);
        }
    }
}

#[test]
fn f_033_slow_exchange_does_not_delay_other_messages() {
    let mut harness = Harness::legacy();
    let slow = harness.call("tools/call", json!({"name": "slow"}));
    let slow_post = harness.next_post("tools/call");
    let others: Vec<_> = (0..100)
        .map(|_| harness.call("resources/read", json!({"uri": "file:///a"})))
        .collect();
    for call in others {
        let post = harness.next_post("resources/read");
        harness.serve(&post);
        assert!(harness.reply(call).is_ok());
    }
    harness
        .client
        .notify(harness.now, "notifications/strange", None)
        .expect("accepted");
    harness.pump();
    harness.next_post("notifications/strange");
    assert!(!harness.is_settled(slow));
    harness.serve(&slow_post);
    assert!(harness.reply(slow).is_ok());
}

#[test]
fn f_034_listen_stream_is_requested_after_initialized_and_can_be_disabled() {
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    harness.answer_initialize("s-1");
    assert_eq!(harness.client.state(), State::Ready);
    assert_eq!(
        harness.count(|exchange| exchange.verb == Verb::Get),
        0,
        "the listen stream waits for initialized"
    );
    let post = harness.next_post("notifications/initialized");
    harness.status(post.stream, 202);
    assert_eq!(
        harness.next_exchange(Verb::Get).field("mcp-session-id"),
        Some("s-1")
    );

    let mut config = legacy_config();
    config.binding.http_mut().expect("over HTTP").listens = false;
    let mut harness = Harness::new(config);
    harness.connect();
    harness.agree_legacy("2025-11-25", Some("s-1"));
    harness.advance_serving(seconds(600));
    assert_eq!(harness.count(|exchange| exchange.verb == Verb::Get), 0);
    assert_eq!(harness.client.state(), State::Ready);

    let mut harness = Harness::modern();
    harness.advance_serving(seconds(600));
    assert_eq!(harness.count(|exchange| exchange.verb == Verb::Get), 0);
}

#[test]
fn f_035_replicas_without_shared_sessions_park_the_link_with_session_lost() {
    let mut harness = Harness::legacy();
    let call = harness.call("resources/read", json!({"uri": "file:///a"}));
    let mut sessions = 1;
    for _ in 0..6_000 {
        while let Some(exchange) = harness.find(|_| true) {
            if is_initialize(&exchange) {
                sessions += 1;
                let fields = [
                    ("content-type", "application/json"),
                    ("mcp-session-id", "another"),
                ];
                let body =
                    result(&exchange, client_http::initialize_result("2025-11-25")).to_string();
                harness.respond(exchange.stream, 200, &fields, &body);
            } else {
                harness.status(exchange.stream, 404);
            }
        }
        harness.advance(Duration::from_millis(100));
    }
    assert!(sessions <= 20, "{sessions} sessions in ten minutes");
    assert_ne!(harness.client.state(), State::Ready);
    assert!(harness.has_event(|event| matches!(event, Event::Parked { .. })));
    let failure = harness.failure(call);
    let ended = failure.ended.as_ref().expect("an ended epoch");
    assert_eq!(ended.cause, Cause::SessionLost);
    assert!(
        failure.to_string().contains("the session is over"),
        "{failure}"
    );
}

#[test]
fn f_036_delete_is_sent_for_every_session_that_the_link_gives_up() {
    // A reconnect, and a server that does not support DELETE.
    let mut harness = Harness::legacy();
    harness
        .client
        .reconnect(harness.now, harness.client.epoch(), "asked to");
    harness.pump();
    let delete = harness.next_exchange(Verb::Delete);
    assert_eq!(delete.field("mcp-session-id"), Some("s-1"));
    assert_eq!(delete.field("mcp-protocol-version"), Some("2025-11-25"));
    harness.status(delete.stream, 405);
    assert_eq!(harness.client.failures(), 0);
    harness.advance(seconds(1));
    harness.agree_legacy("2025-11-25", Some("s-2"));
    // Shutdown.
    harness.client.shutdown(harness.now);
    harness.pump();
    let delete = harness.next_exchange(Verb::Delete);
    assert_eq!(delete.field("mcp-session-id"), Some("s-2"));
    harness.head(delete.stream, 200, &[]);
    assert_eq!(
        harness.client.state(),
        State::Closed,
        "the response head is enough"
    );
    // A session that came with an unusable result.
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    let post = harness.next_post("initialize");
    let fields = [
        ("content-type", "application/json"),
        ("mcp-session-id", "s-9"),
    ];
    let body = result(&post, client_http::initialize_result("1999-01-01")).to_string();
    harness.respond(post.stream, 200, &fields, &body);
    let delete = harness.next_exchange(Verb::Delete);
    assert_eq!(delete.field("mcp-session-id"), Some("s-9"));
    // A legacy server that opened no session, and a modern server.
    let mut harness = Harness::new(legacy_config());
    harness.connect();
    harness.agree_legacy("2025-11-25", None);
    harness.client.shutdown(harness.now);
    harness.pump();
    assert_eq!(harness.client.state(), State::Closed);
    assert_eq!(harness.count(is_delete), 0);
    let mut harness = Harness::modern();
    harness.client.shutdown(harness.now);
    harness.pump();
    assert_eq!(harness.client.state(), State::Closed);
    assert_eq!(harness.count(is_delete), 0);
}

#[test]
fn f_036_unanswered_delete_delays_a_reconnect_by_3_s_at_most() {
    let mut harness = Harness::legacy();
    harness
        .client
        .reconnect(harness.now, harness.client.epoch(), "asked to");
    harness.pump();
    harness.next_exchange(Verb::Delete);
    let asked = harness.now;
    while harness.epochs_opened == 1 {
        harness.advance(Duration::from_millis(100));
        assert!(harness.now.since(asked) <= seconds(3));
    }
    assert_eq!(harness.client.failures(), 0, "a planned close is free");
}

#[test]
fn f_036_delete_names_the_version_of_its_session() {
    let mut harness = Harness::legacy();
    harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.fail(post.stream, FaultKind::Refused);
    harness.advance(seconds(1));
    let ping = harness.next_post("ping");
    harness.json(ping.stream, 200, &error(&ping, -32_600));
    let delete = harness.next_exchange(Verb::Delete);
    assert_eq!(delete.field("mcp-session-id"), Some("s-1"));
    assert_eq!(delete.field("mcp-protocol-version"), Some("2025-11-25"));
}

#[test]
fn f_037_redirect_to_another_origin_is_not_followed() {
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
            let mut harness = Harness::modern();
            let call = harness.call("tools/call", json!({"name": "add"}));
            let post = harness.next_post("tools/call");
            harness.respond(post.stream, status, &[("location", elsewhere)], "");
            let failure = harness.failure(call);
            assert_eq!(failure.kind, FailureKind::Status { status, said: None });
            assert!(failure.to_string().contains(&status.to_string()));
            let home = "https://mcp.example/mcp";
            assert!(
                harness
                    .exchanges
                    .iter()
                    .all(|exchange| exchange.target == home)
            );
            assert_eq!(harness.client.state(), State::Ready);
        }
    }
}

#[test]
fn f_037_endless_redirects_fail_after_ten_at_most() {
    // Redirects to ever new paths, or in a circle.
    let targets: [fn(usize) -> String; 2] = [|n| format!("/mcp/{n}"), |_| "/mcp".into()];
    for target in targets {
        let mut harness = Harness::modern();
        let call = harness.call("tools/call", json!({"name": "add"}));
        let mut followed = 0;
        while let Some(post) = harness.find(|exchange| exchange.method() == "tools/call") {
            followed += 1;
            assert!(followed <= 10, "the number of redirects is bounded");
            let next = target(followed);
            harness.respond(post.stream, 307, &[("location", &next)], "");
        }
        assert!(followed >= 2, "{followed}");
        let failure = harness.failure(call);
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
fn f_037_redirect_target_is_kept_and_can_change_again() {
    let mut harness = Harness::modern();
    let mut target = String::from(client_http::URL);
    for number in 1..=20 {
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        assert_eq!(post.target, target, "the redirect target is kept");
        target = format!("https://mcp.example/{number}");
        harness.respond(post.stream, 307, &[("location", &target)], "");
        let post = harness.next_post("tools/call");
        assert_eq!(post.target, target);
        harness.serve(&post);
        assert!(harness.reply(call).is_ok());
    }
}

/// An intermediary may redirect for a while. The stream is requested at the same URL again, and in the end it is given up.
#[test]
fn f_037_listen_stream_redirected_to_another_origin_is_rarely_requested_again() {
    for status in [302, 307] {
        let mut harness = Harness::legacy_awaiting_listen();
        for _ in 0..600 {
            while let Some(get) = harness.find(|exchange| exchange.verb == Verb::Get) {
                assert_eq!(get.target, "https://mcp.example/mcp");
                let elsewhere = [("location", "https://evil.example/mcp")];
                harness.respond(get.stream, status, &elsewhere, "");
            }
            harness.advance_serving(seconds(1));
        }
        assert_eq!(harness.count(|exchange| exchange.verb == Verb::Get), 9);
        assert_eq!(harness.client.state(), State::Ready);
        assert_eq!(harness.client.failures(), 0);
    }
}

#[test]
fn f_037_parallel_calls_all_follow_the_same_redirect() {
    let mut harness = Harness::modern();
    let calls: Vec<_> = (0..10)
        .map(|_| harness.call("tools/call", json!({"name": "add"})))
        .collect();
    let posts: Vec<_> = calls
        .iter()
        .map(|_| harness.next_post("tools/call"))
        .collect();
    for post in posts {
        harness.respond(post.stream, 307, &[("location", "/v2")], "");
    }
    for call in calls {
        let post = harness.next_post("tools/call");
        assert_eq!(post.target, "https://mcp.example/v2");
        harness.serve(&post);
        assert!(harness.reply(call).is_ok());
    }
}

/// The call was sent again under a new id, so the old one is not awaited any more.
#[test]
fn f_037_reply_to_the_id_of_a_redirected_call_is_late() {
    let mut harness = Harness::legacy_awaiting_listen();
    let listen = harness.next_exchange(Verb::Get);
    harness.begin_stream(listen.stream);
    let call = harness.call("tools/call", json!({"name": "add"}));
    let old = harness.next_post("tools/call");
    harness.respond(old.stream, 307, &[("location", "/v2")], "");
    let new = harness.next_post("tools/call");
    assert_ne!(old.body["id"], new.body["id"]);
    let late = harness.client.stats().late_replies;
    harness.event(listen.stream, None, &result(&old, json!({"content": []})));
    assert!(!harness.is_settled(call));
    assert_eq!(harness.client.stats().late_replies, late + 1);
    harness.serve(&new);
    assert!(harness.reply(call).is_ok());
}

#[test]
fn f_037_redirect_to_a_page_without_a_reply_is_not_kept() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.respond(post.stream, 307, &[("location", "/login")], "");
    let post = harness.next_post("tools/call");
    let page = [("content-type", "text/html")];
    harness.respond(post.stream, 200, &page, "<html>");
    harness.failure(call);
    harness.call("tools/call", json!({"name": "add"}));
    assert_eq!(harness.next_post("tools/call").target, client_http::URL);
}

#[test]
fn f_059_negotiated_version_is_named_in_every_later_request() {
    for version in ["2025-03-26", "2025-06-18", "2025-11-25", "2024-11-05"] {
        let mut harness = Harness::new(legacy_config());
        harness.connect();
        let post = harness.find(is_initialize).expect("an initialize request");
        assert_eq!(post.field("mcp-protocol-version"), None);
        assert_eq!(post.body["params"]["protocolVersion"], "2025-11-25");
        let fields = [
            ("content-type", "application/json"),
            ("mcp-session-id", "s-1"),
        ];
        let body = result(&post, client_http::initialize_result(version)).to_string();
        harness.respond(post.stream, 200, &fields, &body);
        let agreed = harness.client.session().map(|session| session.version);
        assert_eq!(agreed, Version::parse(version));
        let post = harness.next_post("notifications/initialized");
        harness.status(post.stream, 202);
        let get = harness.next_exchange(Verb::Get);
        harness.status(get.stream, 405);
        harness.call("tools/call", json!({"name": "add"}));
        let call = harness.next_post("tools/call");
        harness.client.shutdown(harness.now);
        harness.pump();
        let delete = harness.next_exchange(Verb::Delete);
        let named = Some(version).filter(|version| *version >= "2025-06-18");
        for exchange in [&post, &get, &call, &delete] {
            assert_eq!(exchange.field("mcp-protocol-version"), named, "{version}");
            assert_eq!(exchange.field("mcp-session-id"), Some("s-1"));
        }
    }
    let mut harness = Harness::modern();
    harness.call("tools/call", json!({"name": "add"}));
    let named = |exchange: &Exchange| exchange.field("mcp-protocol-version") == Some("2026-07-28");
    assert!(harness.exchanges.iter().all(named));
    let meta = |exchange: &Exchange| -> Value {
        exchange.body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].clone()
    };
    assert!(
        harness
            .exchanges
            .iter()
            .all(|exchange| meta(exchange) == "2026-07-28")
    );
}

#[test]
fn f_037_five_redirects_in_a_row_are_followed() {
    for redirects in [5, 6] {
        let mut harness = Harness::modern();
        let call = harness.call("tools/call", json!({"name": "add"}));
        for step in 1..=redirects {
            let post = harness.next_post("tools/call");
            let next = format!("/mcp/{step}");
            harness.respond(post.stream, 307, &[("location", &next)], "");
        }
        if redirects == 5 {
            let post = harness.next_post("tools/call");
            harness.serve(&post);
            assert!(harness.reply(call).is_ok());
        } else {
            let (status, said) = (307, None);
            assert_eq!(
                harness.failure(call).kind,
                FailureKind::Status { status, said }
            );
        }
    }
}

/// Only 429 and 503 ask to send the request again later. With another status, the field says nothing about this request.
#[test]
fn call_refused_with_another_status_is_not_sent_again_for_its_retry_after() {
    for status in [400, 413, 500, 502] {
        let mut harness = Harness::modern();
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.respond(post.stream, status, &[("retry-after", "1")], "");
        let said = None;
        assert_eq!(
            harness.failure(call).kind,
            FailureKind::Status { status, said }
        );
        // The link does not pause.
        harness.call("tools/call", json!({"name": "add"}));
        harness.next_post("tools/call");
    }
}

/// The server is busy with this stream only.
#[test]
fn listen_stream_refused_with_retry_after_does_not_delay_calls() {
    for status in [429, 503] {
        let mut harness = Harness::legacy_awaiting_listen();
        let listen = harness.next_exchange(Verb::Get);
        harness.respond(listen.stream, status, &[("retry-after", "20")], "");
        harness.call("tools/call", json!({"name": "add"}));
        harness.next_post("tools/call");
        harness.advance_serving(seconds(19));
        assert!(harness.find(|it| it.verb == Verb::Get).is_none());
        harness.advance_serving(seconds(1));
        harness.next_exchange(Verb::Get);
    }
}

#[test]
fn stream_refused_with_500_is_requested_again() {
    for status in [500, 599] {
        let mut harness = Harness::legacy();
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.begin_stream(post.stream);
        harness.bytes(post.stream, b"id: 4\ndata:\n\n");
        harness.end(post.stream);
        harness.advance(seconds(1));
        let resume = harness.next_exchange(Verb::Get);
        harness.status(resume.stream, status);
        harness.advance(seconds(3));
        let resume = harness.next_exchange(Verb::Get);
        assert_eq!(resume.field("last-event-id"), Some("4"));
        assert!(!harness.is_settled(call));
    }
}

/// The first epoch tried `server/discover`, and the second one did not.
#[test]
fn end_of_an_epoch_does_not_tell_of_a_probe_of_an_earlier_one() {
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.json(probe.stream, 200, &error(&probe, -32_601));
    harness.agree_legacy("2025-11-25", Some("s-1"));
    for method in ["tools/call", "ping"] {
        if method == "tools/call" {
            harness.call("tools/call", json!({"name": "add"}));
        }
        let post = harness.next_post(method);
        harness.fail(post.stream, FaultKind::Refused);
        let end = harness.last_end();
        assert!(!end.contains("server/discover"), "{method}: {end}");
        harness.advance(seconds(2));
    }
}

/// The new session begins in the same epoch, so no close step ends the request that deletes the old one.
#[test]
fn unanswered_delete_of_a_replaced_session_is_aborted() {
    let mut harness = Harness::legacy();
    harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.fail(post.stream, FaultKind::Refused);
    harness.advance(seconds(1));
    let ping = harness.next_post("ping");
    harness.json(ping.stream, 200, &error(&ping, -32_603));
    let delete = harness.next_exchange(Verb::Delete);
    harness.agree_legacy("2025-11-25", Some("s-2"));
    assert!(harness.is_open(delete.stream));
    harness.advance(seconds(20));
    assert!(!harness.is_open(delete.stream));
    assert_eq!(harness.client.state(), State::Ready);
}

/// A server of 2025-03-26 may put several messages into one body. One of them can end the epoch.
#[test]
fn rest_of_a_batch_that_ends_the_epoch_is_ignored() {
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.json(probe.stream, 200, &error(&probe, -32_601));
    harness.agree_legacy("2025-03-26", Some("s-1"));
    harness.advance(seconds(31));
    let ping = harness.next_post("ping");
    let body = json!([
        error(&ping, -32_022),
        {"jsonrpc": "2.0", "id": "x", "method": "ping"},
    ]);
    harness.json(ping.stream, 200, &body);
    assert_ne!(harness.client.state(), State::Ready);
    harness.advance(seconds(60));
    assert_eq!(harness.count(|exchange| exchange.body["id"] == "x"), 0);
}

/// A status such as 503 does not say whether the call ran.
#[test]
fn repeatable_call_that_was_turned_away_may_have_run() {
    for (status, delivery) in [(503, Delivery::Unknown), (429, Delivery::NotSent)] {
        let mut harness = Harness::modern();
        let options = CallOptions::new().idempotent();
        let call = harness.call_with("tools/call", json!({"name": "act"}), options);
        let post = harness.next_post("tools/call");
        harness.respond(post.stream, status, &[("retry-after", "60")], "");
        assert!(!harness.is_settled(call));
        harness.cancel(call);
        assert_eq!(harness.failure(call).delivery, delivery, "{status}");
    }
}
