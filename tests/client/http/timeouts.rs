//! Timeouts, cancellation and progress of a client link over HTTP.

use crate::client_http::{
    self, Begun, LEGACY, VERSIONS, Web, complete, every_chunking, notification, result, seconds,
};
use everlink::client::{CallOptions, Cause, Event, FailureKind, State, TimeLimit};
use everlink::http::Verb;
use everlink::{CallId, FaultKind, Limit};
use serde_json::{Value, json};

fn called(web: &mut Web) -> (CallId, Begun) {
    let call = web.call("tools/call", json!({"name": "add"}));
    (call, web.posted("tools/call"))
}

fn progress(token: &Value, progress: impl Into<Value>) -> Value {
    let params = json!({"progressToken": token, "progress": progress.into()});
    notification("notifications/progress", &params)
}

/// S-HTTP-25: a modern call is cancelled only by aborting its exchange.
#[test]
fn s_canc_01_a_modern_call_is_cancelled_by_closing_its_exchange() {
    for is_streaming in [false, true] {
        let mut web = Web::modern();
        let (call, post) = called(&mut web);
        let (other, others) = called(&mut web);
        if is_streaming {
            web.stream(post.stream);
        }
        web.cancel(call);
        assert!(matches!(
            web.failure(call).kind,
            FailureKind::Cancelled { .. }
        ));
        assert_eq!(
            web.aborted,
            [post.stream],
            "its own and no other (S-CANC-02)"
        );
        assert_eq!(web.unseen(), 0, "S-HTTP-25");
        web.reply_with(&others, json!({"content": []}));
        assert!(web.reply(other).is_ok());
    }
}

/// S-CANC-03: the cancellation names the request and goes to its session.
#[test]
fn s_canc_03_13_a_legacy_call_is_cancelled_by_saying_so() {
    for version in LEGACY {
        let mut web = Web::speaking(version);
        let (call, post) = called(&mut web);
        web.cancel(call);
        let notice = web.posted("notifications/cancelled");
        assert_eq!(notice.body["params"]["requestId"], post.body["id"]);
        assert_eq!(notice.body["params"]["reason"], "not needed");
        assert_eq!(notice.field("mcp-session-id"), Some("s-1"));
        web.status(notice.stream, 202);
        assert_eq!(web.unseen(), 0);
    }
}

/// S-CANC-02, S-CANC-03: a finished or unsent call is not cancelled at the server.
#[test]
fn s_canc_02_03_only_what_is_under_way_is_cancelled() {
    for version in VERSIONS {
        let mut web = Web::speaking(version);
        let (call, post) = called(&mut web);
        web.reply_with(&post, json!({"content": []}));
        assert!(web.reply(call).is_ok());
        assert!(web.client.cancel(web.now, call, None).is_err());
        web.pump();
        assert!(web.aborted.is_empty());
        assert_eq!(web.unseen(), 0);
    }
    // A queued call is simply not sent.
    let mut web = Web::new(client_http::config());
    let call = web.call("tools/call", json!({"name": "add"}));
    web.cancel(call);
    web.agree_modern();
    assert!(web.carrying("tools/call").is_empty());
    assert!(web.carrying("notifications/cancelled").is_empty());
}

/// S-CANC-06, S-CANC-07: reply and cancellation may cross in either order.
#[test]
fn s_canc_06_07_a_reply_that_crosses_the_cancellation_is_passed_over() {
    every_chunking(|chunking| {
        for version in LEGACY {
            for is_streaming in [false, true] {
                let mut web = Web::speaking(version).chunked(chunking);
                let (call, post) = called(&mut web);
                if is_streaming {
                    web.stream(post.stream);
                }
                web.cancel(call);
                let notice = web.posted("notifications/cancelled");
                if is_streaming {
                    web.event(post.stream, None, &progress(post.token(), 1));
                    web.event(post.stream, None, &result(&post, json!({"content": []})));
                    web.end(post.stream);
                } else {
                    web.reply_with(&post, json!({"content": []}));
                }
                web.status(notice.stream, 202);
                assert!(matches!(
                    web.failure(call).kind,
                    FailureKind::Cancelled { .. }
                ));
                assert_eq!(web.client.state(), State::Ready);
                assert_eq!(web.client.stats().noise, 0);
                assert!(web.progress(call).is_empty());
                // The id is not reused.
                let (_, next) = called(&mut web);
                assert_ne!(next.body["id"], post.body["id"]);
            }
        }
    });
}

/// S-CANC-07: a cancelled exchange may end in any way without a failure.
#[test]
fn s_canc_07_a_cancelled_exchange_may_end_as_it_likes() {
    for version in LEGACY {
        let mut web = Web::speaking(version);
        let (call, post) = called(&mut web);
        web.stream(post.stream);
        web.bytes(post.stream, b"id: 1\ndata:\n\n");
        web.cancel(call);
        let notice = web.posted("notifications/cancelled");
        web.status(notice.stream, 400);
        web.fail(post.stream, FaultKind::Reset);
        web.pass(seconds(5));
        assert_eq!(web.client.state(), State::Ready);
        assert_eq!(web.unseen(), 0, "it is not resumed");
        assert!(matches!(
            web.failure(call).kind,
            FailureKind::Cancelled { .. }
        ));
    }
}

/// S-TIME-01: the default limits apply.
#[test]
fn s_time_01_02_a_call_that_takes_too_long_is_cancelled_in_the_way_of_the_era() {
    for version in VERSIONS {
        let mut web = Web::speaking(version);
        let (call, post) = called(&mut web);
        web.pass(seconds(59));
        assert!(!web.is_settled(call));
        web.pass(seconds(1));
        let failure = web.failure(call);
        assert!(matches!(
            failure.kind,
            FailureKind::TimedOut {
                limit: TimeLimit::Idle,
                ..
            }
        ));
        let notices = web.carrying("notifications/cancelled");
        if version == client_http::MODERN {
            assert!(web.aborted.contains(&post.stream));
            assert!(notices.is_empty());
        } else {
            // Other cancellations belong to unanswered probes.
            let is_it = |id: &serde_json::Value| *id == post.body["id"];
            let ids = notices
                .iter()
                .map(|notice| &notice.body["params"]["requestId"]);
            assert_eq!(ids.filter(|id| is_it(id)).count(), 1);
        }
        assert_eq!(web.client.state(), State::Ready);
    }
}

#[test]
fn s_time_03_each_call_may_have_its_own_limits() {
    for version in VERSIONS {
        let mut web = Web::speaking(version);
        let params = || json!({"name": "add"});
        let quick = web.call_with(
            "tools/call",
            params(),
            CallOptions::new().with_idle(Limit::After(seconds(5))),
        );
        let never = CallOptions::new()
            .with_idle(Limit::Never)
            .with_total(Limit::Never);
        let patient = web.call_with("tools/call", params(), never);
        web.pass(seconds(5));
        assert!(web.is_settled(quick));
        web.pass(seconds(20));
        assert!(!web.is_settled(patient));
    }
}

/// S-TIME-05: the total limit still applies.
#[test]
fn s_time_04_05_progress_gives_a_call_more_time_up_to_a_limit() {
    for version in VERSIONS {
        let mut web = Web::speaking(version);
        let (call, post) = called(&mut web);
        web.stream(post.stream);
        let begun = web.now;
        let mut step = 0;
        while !web.is_settled(call) {
            step += 1;
            web.event(post.stream, None, &progress(post.token(), step));
            web.pass(seconds(50));
            assert!(web.now.since(begun) <= seconds(700));
        }
        assert!(web.now.since(begun) >= seconds(600), "{version}");
        let failure = web.failure(call);
        assert!(matches!(
            failure.kind,
            FailureKind::TimedOut {
                limit: TimeLimit::Total,
                ..
            }
        ));
        assert_eq!(failure.after, seconds(600));
    }
}

/// S-PROG-02: progress may have a total, and need not be an integer.
#[test]
fn s_prog_02_03_05_progress_is_told_as_long_as_it_grows() {
    every_chunking(|chunking| {
        for version in VERSIONS {
            let mut web = Web::speaking(version).chunked(chunking);
            let (call, post) = called(&mut web);
            web.stream(post.stream);
            for step in [
                json!(0.5),
                json!(1),
                json!(1),
                json!(0),
                json!("2"),
                json!(2.25),
            ] {
                web.event(post.stream, None, &progress(post.token(), step));
            }
            let mut last = progress(post.token(), 3);
            last["params"]["total"] = json!(3.5);
            last["params"]["message"] = json!("soon");
            web.event(post.stream, None, &last);
            assert_eq!(web.progress(call), [0.5, 1.0, 2.25, 3.0]);
            let whole = |event: &Event| matches!(event, Event::Progress { total: Some(total), message: Some(message), .. } if *total == 3.5 && **message == *"soon");
            assert!(web.was_told(whole));
            assert_eq!(web.client.state(), State::Ready);
        }
    });
}

/// S-PROG-04, S-PROG-09: progress with an unknown, finished or mistyped token is ignored.
#[test]
fn s_prog_04_09_progress_of_nothing_that_runs_is_passed_over() {
    for version in VERSIONS {
        let mut web = Web::speaking(version);
        let (over, first) = called(&mut web);
        web.reply_with(&first, json!({"content": []}));
        assert!(web.reply(over).is_ok());
        let (call, post) = called(&mut web);
        web.stream(post.stream);
        let as_text = json!(post.token().to_string());
        for token in [
            first.token(),
            &json!("other"),
            &json!(99_999),
            &as_text,
            &json!(null),
            &json!([1]),
        ] {
            web.event(post.stream, None, &progress(token, 1));
        }
        assert!(
            !web.was_told(|event| matches!(event, Event::Progress { .. })),
            "{version}"
        );
        web.event(post.stream, None, &progress(post.token(), 1));
        assert_eq!(web.progress(call), [1.0]);
        web.event(post.stream, None, &complete(&post, json!({"content": []})));
        web.event(post.stream, None, &progress(post.token(), 2));
        assert_eq!(web.progress(call), [1.0]);
        assert!(web.reply(call).is_ok());
    }
}

/// S-TIME-09: the link pings only a quiet server, at the configured interval. S-TIME-10: a server that does not
/// answer is left.
#[test]
fn s_time_09_10_a_quiet_legacy_server_is_pinged_and_one_that_is_silent_is_left() {
    let mut web = Web::legacy();
    web.pass(seconds(29));
    assert!(web.carrying("ping").is_empty());
    web.pass(seconds(1));
    let ping = web.posted("ping");
    assert_eq!(ping.field("mcp-session-id"), Some("s-1"));
    web.json(ping.stream, 200, &result(&ping, json!({})));
    web.pass(seconds(29));
    assert_eq!(web.carrying("ping").len(), 1, "without excess");
    // The link leaves the server only when a call needs it.
    web.pass(seconds(30));
    assert_eq!(web.client.state(), State::Ready);
    web.call("tools/call", json!({"name": "add"}));
    web.pass(seconds(31));
    assert_ne!(web.client.state(), State::Ready);
    assert!(web.was_told(|event| matches!(
        event,
        Event::Closing {
            cause: Cause::Unresponsive { .. },
            ..
        }
    )));
    let mut settings = client_http::config();
    settings.policy.keepalive = None;
    let mut web = Web::legacy_with(settings, "2025-11-25");
    web.pass(seconds(3_600));
    assert!(web.carrying("ping").is_empty(), "as often as is configured");
}

/// S-TIME-11: a modern server is probed with a method that it knows, and its comments count as signs of life.
#[test]
fn s_time_11_a_quiet_modern_server_is_never_pinged() {
    let mut web = Web::modern();
    let listen = web.carrying("subscriptions/listen")[0].stream;
    for _ in 0..10 {
        web.pass(seconds(20));
        web.bytes(listen, b": still here\n\n");
    }
    assert_eq!(
        web.carrying("server/discover").len(),
        1,
        "a comment is enough"
    );
    web.pass(seconds(30));
    let probe = web.posted("server/discover");
    web.json(probe.stream, 200, &result(&probe, client_http::discovery()));
    web.pass(seconds(10));
    assert_eq!(web.client.state(), State::Ready);
    assert!(web.carrying("ping").is_empty());
}

/// S-LIFE-11: shutdown closes every exchange.
#[test]
fn s_life_11_shutting_down_closes_every_exchange() {
    for version in VERSIONS {
        let mut web = Web::speaking(version);
        let (call, post) = called(&mut web);
        web.stream(post.stream);
        web.shutdown();
        assert_eq!(web.failure(call).kind, FailureKind::Closed);
        assert!(!web.is_open(post.stream), "{version}");
        if let Some(farewell) = web.find(|begun| begun.verb == Verb::Delete) {
            web.status(farewell.stream, 204);
        }
        assert_eq!(web.client.state(), State::Closed);
        assert_eq!(web.client.poll_timeout(), None);
    }
}
