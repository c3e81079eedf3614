//! Timeouts, cancellation and progress of a client link over HTTP.

use crate::client_http::{
    self, Exchange, Harness, LEGACY, VERSIONS, complete, every_chunking, notification, result,
    seconds,
};
use everlink::client::{CallOptions, Cause, Event, FailureKind, State, TimeLimit};
use everlink::http::Verb;
use everlink::{CallId, FaultKind, Limit};
use serde_json::{Value, json};

fn start_call(harness: &mut Harness) -> (CallId, Exchange) {
    let call = harness.call("tools/call", json!({"name": "add"}));
    (call, harness.next_post("tools/call"))
}

fn progress(token: &Value, progress: impl Into<Value>) -> Value {
    let params = json!({"progressToken": token, "progress": progress.into()});
    notification("notifications/progress", &params)
}

/// S-HTTP-25: a modern call is cancelled only by aborting its exchange.
#[test]
fn s_canc_01_modern_call_is_cancelled_by_aborting_its_exchange() {
    for is_streaming in [false, true] {
        let mut harness = Harness::modern();
        let (call, post) = start_call(&mut harness);
        let (other, others) = start_call(&mut harness);
        if is_streaming {
            harness.begin_stream(post.stream);
        }
        harness.cancel(call);
        assert!(matches!(
            harness.failure(call).kind,
            FailureKind::Cancelled { .. }
        ));
        assert_eq!(
            harness.aborted,
            [post.stream],
            "only its own exchange is aborted (S-CANC-02)"
        );
        assert_eq!(harness.unseen_count(), 0, "S-HTTP-25");
        harness.reply_with(&others, json!({"content": []}));
        assert!(harness.reply(other).is_ok());
    }
}

/// S-CANC-03: the cancellation names the request and goes to its session.
#[test]
fn s_canc_03_13_legacy_call_is_cancelled_by_a_notification() {
    for version in LEGACY {
        let mut harness = Harness::ready(version);
        let (call, post) = start_call(&mut harness);
        harness.cancel(call);
        let notice = harness.next_post("notifications/cancelled");
        assert_eq!(notice.body["params"]["requestId"], post.body["id"]);
        assert_eq!(notice.body["params"]["reason"], "not needed");
        assert_eq!(notice.field("mcp-session-id"), Some("s-1"));
        harness.status(notice.stream, 202);
        assert_eq!(harness.unseen_count(), 0);
    }
}

/// S-CANC-02, S-CANC-03: a finished or unsent call is not cancelled at the server.
#[test]
fn s_canc_02_03_finished_or_queued_call_is_not_cancelled_at_the_server() {
    for version in VERSIONS {
        let mut harness = Harness::ready(version);
        let (call, post) = start_call(&mut harness);
        harness.reply_with(&post, json!({"content": []}));
        assert!(harness.reply(call).is_ok());
        assert!(harness.client.cancel(harness.now, call, None).is_err());
        harness.pump();
        assert!(harness.aborted.is_empty());
        assert_eq!(harness.unseen_count(), 0);
    }
    // A queued call is simply not sent.
    let mut harness = Harness::new(client_http::config());
    let call = harness.call("tools/call", json!({"name": "add"}));
    harness.cancel(call);
    harness.agree_modern();
    assert!(harness.exchanges_of("tools/call").is_empty());
    assert!(harness.exchanges_of("notifications/cancelled").is_empty());
}

/// S-CANC-06, S-CANC-07: reply and cancellation may cross in either order.
#[test]
fn s_canc_06_07_reply_that_crosses_the_cancellation_is_ignored() {
    every_chunking(|chunking| {
        for version in LEGACY {
            for is_streaming in [false, true] {
                let mut harness = Harness::ready(version).chunked(chunking);
                let (call, post) = start_call(&mut harness);
                if is_streaming {
                    harness.begin_stream(post.stream);
                }
                harness.cancel(call);
                let notice = harness.next_post("notifications/cancelled");
                if is_streaming {
                    harness.event(post.stream, None, &progress(post.progress_token(), 1));
                    harness.event(post.stream, None, &result(&post, json!({"content": []})));
                    harness.end(post.stream);
                } else {
                    harness.reply_with(&post, json!({"content": []}));
                }
                harness.status(notice.stream, 202);
                assert!(matches!(
                    harness.failure(call).kind,
                    FailureKind::Cancelled { .. }
                ));
                assert_eq!(harness.client.state(), State::Ready);
                assert_eq!(harness.client.stats().noise, 0);
                assert!(harness.progress(call).is_empty());
                // The id is not reused.
                let (_, next) = start_call(&mut harness);
                assert_ne!(next.body["id"], post.body["id"]);
            }
        }
    });
}

/// S-CANC-07: a cancelled exchange may end in any way without a failure.
#[test]
fn s_canc_07_fault_of_a_cancelled_exchange_is_ignored() {
    for version in LEGACY {
        let mut harness = Harness::ready(version);
        let (call, post) = start_call(&mut harness);
        harness.begin_stream(post.stream);
        harness.bytes(post.stream, b"id: 1\ndata:\n\n");
        harness.cancel(call);
        let notice = harness.next_post("notifications/cancelled");
        harness.status(notice.stream, 400);
        harness.fail(post.stream, FaultKind::Reset);
        harness.advance(seconds(5));
        assert_eq!(harness.client.state(), State::Ready);
        assert_eq!(harness.unseen_count(), 0, "it is not resumed");
        assert!(matches!(
            harness.failure(call).kind,
            FailureKind::Cancelled { .. }
        ));
    }
}

/// S-TIME-01: the default limits apply.
#[test]
fn s_time_01_02_timed_out_call_is_aborted_if_modern_and_cancelled_if_legacy() {
    for version in VERSIONS {
        let mut harness = Harness::ready(version);
        let (call, post) = start_call(&mut harness);
        harness.advance(seconds(59));
        assert!(!harness.is_settled(call));
        harness.advance(seconds(1));
        let failure = harness.failure(call);
        assert!(matches!(
            failure.kind,
            FailureKind::TimedOut {
                limit: TimeLimit::Idle,
                ..
            }
        ));
        let notices = harness.exchanges_of("notifications/cancelled");
        if version == client_http::MODERN {
            assert!(harness.aborted.contains(&post.stream));
            assert!(notices.is_empty());
        } else {
            // Other cancellations belong to unanswered probes.
            let is_this_call = |id: &serde_json::Value| *id == post.body["id"];
            let ids = notices
                .iter()
                .map(|notice| &notice.body["params"]["requestId"]);
            assert_eq!(ids.filter(|id| is_this_call(id)).count(), 1);
        }
        assert_eq!(harness.client.state(), State::Ready);
    }
}

#[test]
fn s_time_03_each_call_may_have_its_own_limits() {
    for version in VERSIONS {
        let mut harness = Harness::ready(version);
        let params = || json!({"name": "add"});
        let quick = harness.call_with(
            "tools/call",
            params(),
            CallOptions::new().with_idle(Limit::After(seconds(5))),
        );
        let no_limits = CallOptions::new()
            .with_idle(Limit::Never)
            .with_total(Limit::Never);
        let patient = harness.call_with("tools/call", params(), no_limits);
        harness.advance(seconds(5));
        assert!(harness.is_settled(quick));
        harness.advance(seconds(20));
        assert!(!harness.is_settled(patient));
    }
}

/// S-TIME-05: the total limit still applies.
#[test]
fn s_time_04_05_progress_extends_the_idle_limit_up_to_the_total_limit() {
    for version in VERSIONS {
        let mut harness = Harness::ready(version);
        let (call, post) = start_call(&mut harness);
        harness.begin_stream(post.stream);
        let started = harness.now;
        let mut step = 0;
        while !harness.is_settled(call) {
            step += 1;
            harness.event(post.stream, None, &progress(post.progress_token(), step));
            harness.advance(seconds(50));
            assert!(harness.now.since(started) <= seconds(700));
        }
        assert!(harness.now.since(started) >= seconds(600), "{version}");
        let failure = harness.failure(call);
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
fn s_prog_02_03_05_only_growing_progress_is_reported() {
    every_chunking(|chunking| {
        for version in VERSIONS {
            let mut harness = Harness::ready(version).chunked(chunking);
            let (call, post) = start_call(&mut harness);
            harness.begin_stream(post.stream);
            for step in [
                json!(0.5),
                json!(1),
                json!(1),
                json!(0),
                json!("2"),
                json!(2.25),
            ] {
                harness.event(post.stream, None, &progress(post.progress_token(), step));
            }
            let mut last = progress(post.progress_token(), 3);
            last["params"]["total"] = json!(3.5);
            last["params"]["message"] = json!("soon");
            harness.event(post.stream, None, &last);
            assert_eq!(harness.progress(call), [0.5, 1.0, 2.25, 3.0]);
            let has_total_and_message = |event: &Event| matches!(event, Event::Progress { total: Some(total), message: Some(message), .. } if *total == 3.5 && **message == *"soon");
            assert!(harness.has_event(has_total_and_message));
            assert_eq!(harness.client.state(), State::Ready);
        }
    });
}

/// S-PROG-04, S-PROG-09: progress with an unknown, finished or mistyped token is ignored.
#[test]
fn s_prog_04_09_progress_with_an_unknown_or_finished_token_is_ignored() {
    for version in VERSIONS {
        let mut harness = Harness::ready(version);
        let (over, first) = start_call(&mut harness);
        harness.reply_with(&first, json!({"content": []}));
        assert!(harness.reply(over).is_ok());
        let (call, post) = start_call(&mut harness);
        harness.begin_stream(post.stream);
        let as_text = json!(post.progress_token().to_string());
        for token in [
            first.progress_token(),
            &json!("other"),
            &json!(99_999),
            &as_text,
            &json!(null),
            &json!([1]),
        ] {
            harness.event(post.stream, None, &progress(token, 1));
        }
        assert!(
            !harness.has_event(|event| matches!(event, Event::Progress { .. })),
            "{version}"
        );
        harness.event(post.stream, None, &progress(post.progress_token(), 1));
        assert_eq!(harness.progress(call), [1.0]);
        harness.event(post.stream, None, &complete(&post, json!({"content": []})));
        harness.event(post.stream, None, &progress(post.progress_token(), 2));
        assert_eq!(harness.progress(call), [1.0]);
        assert!(harness.reply(call).is_ok());
    }
}

/// S-TIME-09: the link pings only a quiet server, at the configured interval. S-TIME-10: a server that does not
/// answer is left.
#[test]
fn s_time_09_10_quiet_legacy_server_is_pinged_and_an_unresponsive_one_is_left() {
    let mut harness = Harness::legacy();
    harness.advance(seconds(29));
    assert!(harness.exchanges_of("ping").is_empty());
    harness.advance(seconds(1));
    let ping = harness.next_post("ping");
    assert_eq!(ping.field("mcp-session-id"), Some("s-1"));
    harness.json(ping.stream, 200, &result(&ping, json!({})));
    harness.advance(seconds(29));
    assert_eq!(harness.exchanges_of("ping").len(), 1, "one ping so far");
    // The link leaves the server only when a call needs it.
    harness.advance(seconds(30));
    assert_eq!(harness.client.state(), State::Ready);
    harness.call("tools/call", json!({"name": "add"}));
    harness.advance(seconds(31));
    assert_ne!(harness.client.state(), State::Ready);
    assert!(harness.has_event(|event| matches!(
        event,
        Event::Closing {
            cause: Cause::Unresponsive { .. },
            ..
        }
    )));
    let mut settings = client_http::config();
    settings.policy.keepalive = None;
    let mut harness = Harness::legacy_with(settings, "2025-11-25");
    harness.advance(seconds(3_600));
    assert!(
        harness.exchanges_of("ping").is_empty(),
        "no ping without keepalive"
    );
}

/// S-TIME-11: a modern server is probed with a method that it knows, and its comments count as signs of life.
#[test]
fn s_time_11_quiet_modern_server_is_probed_with_discover_and_never_pinged() {
    let mut harness = Harness::modern();
    let listen = harness.exchanges_of("subscriptions/listen")[0].stream;
    for _ in 0..10 {
        harness.advance(seconds(20));
        harness.bytes(listen, b": still here\n\n");
    }
    assert_eq!(
        harness.exchanges_of("server/discover").len(),
        1,
        "a comment is a sign of life"
    );
    harness.advance(seconds(30));
    let probe = harness.next_post("server/discover");
    harness.json(
        probe.stream,
        200,
        &result(&probe, client_http::discover_result()),
    );
    harness.advance(seconds(10));
    assert_eq!(harness.client.state(), State::Ready);
    assert!(harness.exchanges_of("ping").is_empty());
}

/// S-LIFE-11: shutdown closes every exchange.
#[test]
fn s_life_11_shutdown_closes_every_exchange() {
    for version in VERSIONS {
        let mut harness = Harness::ready(version);
        let (call, post) = start_call(&mut harness);
        harness.begin_stream(post.stream);
        harness.shutdown();
        assert_eq!(harness.failure(call).kind, FailureKind::Closed);
        assert!(!harness.is_open(post.stream), "{version}");
        if let Some(delete) = harness.find(|exchange| exchange.verb == Verb::Delete) {
            harness.status(delete.stream, 204);
        }
        assert_eq!(harness.client.state(), State::Closed);
        assert_eq!(harness.client.poll_timeout(), None);
    }
}

/// A probe may be lost over HTTP, so it is repeated. The missed one is withdrawn first.
#[test]
fn missed_probes_are_withdrawn_and_repeated() {
    for version in [client_http::MODERN, "2025-11-25"] {
        let mut harness = Harness::ready(version);
        let probe = if version == client_http::MODERN {
            "server/discover"
        } else {
            "ping"
        };
        let before = harness.exchanges_of(probe).len();
        harness.advance(seconds(600));
        let probes: Vec<_> = harness.exchanges_of(probe)[before..]
            .iter()
            .map(|probe| (probe.stream, probe.body["id"].clone()))
            .collect();
        assert!(probes.len() >= 10, "{version}: {}", probes.len());
        let (_, missed) = probes.split_last().expect("probes");
        let notices = harness.exchanges_of("notifications/cancelled");
        for (stream, id) in missed {
            let is_cancelled = notices
                .iter()
                .any(|notice| notice.body["params"]["requestId"] == *id);
            let is_withdrawn = if version == client_http::MODERN {
                harness.aborted.contains(stream)
            } else {
                is_cancelled
            };
            assert!(is_withdrawn, "{version}: {id}");
        }
    }
}
