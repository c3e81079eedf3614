//! The ends of exchanges at the client: which are aborted and when, and what is left of them and of their epoch.

use crate::client_http::{
    Chunking, Exchange, Harness, LEGACY, VERSIONS, ask_message, config, notification, result,
    seconds,
};
use core::time::Duration;
use everlink::client::{CallOptions, Event, FailureKind, State, TimeLimit};
use everlink::http::Verb;
use everlink::protocol::{ClientCapabilities, LogLevel};
use everlink::{Config, Dialect, ExitStatus, FaultKind, Input, Limit, Wake, Watch};
use serde_json::json;

/// A legacy configuration in which only exchanges, asks, calls and credentials set deadlines.
fn quiet_config() -> Config {
    let mut config = config();
    config.dialect = Dialect::Legacy;
    config.watch = Watch::none();
    config.policy.keepalive = None;
    config.policy.retry.stable_after = Duration::ZERO;
    config
}

/// A call without time limits, and its POST.
fn patient_call(harness: &mut Harness) -> (everlink::CallId, Exchange) {
    let no_limits = CallOptions::new()
        .with_idle(Limit::Never)
        .with_total(Limit::Never);
    let call = harness.call_with("tools/call", json!({"name": "add"}), no_limits);
    (call, harness.next_post("tools/call"))
}

fn is_get(exchange: &Exchange) -> bool {
    exchange.verb == Verb::Get
}

/// What is over at its end, and how it comes to that.
type Script = (&'static str, fn(&mut Harness));

/// A timer that is not disarmed would wake the driver for nothing.
#[test]
fn timer_of_a_finished_exchange_ask_or_challenge_is_disarmed() {
    let scripts: [Script; 8] = [
        ("a complete watch", |harness| {
            harness.watch(Watch::none().and_logs(LogLevel::Warning));
            let post = harness.next_post("logging/setLevel");
            harness.serve(&post);
        }),
        ("an accepted notification", |harness| {
            harness.notify("notifications/example", &json!({}));
            let post = harness.next_post("notifications/example");
            harness.status(post.stream, 202);
        }),
        ("a refused notification", |harness| {
            harness.notify("notifications/example", &json!({}));
            let post = harness.next_post("notifications/example");
            harness.status(post.stream, 400);
        }),
        ("a reply on a stream", |harness| {
            let (_, post) = patient_call(harness);
            harness.begin_stream(post.stream);
            harness.event(post.stream, None, &result(&post, json!({})));
            harness.end(post.stream);
        }),
        ("a cancelled call", |harness| {
            let (call, post) = patient_call(harness);
            harness.cancel(call);
            let notice = harness.next_post("notifications/cancelled");
            harness.status(notice.stream, 202);
            harness.status(post.stream, 202);
        }),
        ("an answered challenge", |harness| {
            let (_, post) = patient_call(harness);
            harness.status(post.stream, 401);
            harness.client.authorized(harness.now);
            harness.pump();
            let post = harness.next_post("tools/call");
            harness.serve(&post);
        }),
        ("a refused challenge", |harness| {
            let (_, post) = patient_call(harness);
            harness.status(post.stream, 401);
            harness.client.denied(harness.now, "no");
            harness.pump();
        }),
        ("an ask that the server withdrew", |harness| {
            let (_, post) = patient_call(harness);
            harness.begin_stream(post.stream);
            harness.event(post.stream, None, &ask_message(9, "roots/list", &json!({})));
            let params = json!({"requestId": 9});
            let withdrawal = notification("notifications/cancelled", &params);
            harness.event(post.stream, None, &withdrawal);
            harness.event(post.stream, None, &result(&post, json!({})));
            harness.end(post.stream);
        }),
    ];
    for (what, script) in scripts {
        let mut config = quiet_config();
        config.capabilities = ClientCapabilities::default().with_roots(true);
        let mut harness = Harness::legacy_with(config, "2025-11-25");
        harness.advance(seconds(1));
        assert_eq!(harness.client.poll_timeout(), None);
        script(&mut harness);
        assert_eq!(harness.client.poll_timeout(), None, "{what}");
        assert_eq!(harness.open_exchanges(), 0, "{what}");
    }
}

#[test]
fn timer_of_the_listen_stream_is_disarmed_when_it_is_answered() {
    for is_stream in [true, false] {
        let mut config = quiet_config();
        if let Some(http) = config.binding.http_mut() {
            http.listen_patience = seconds(60);
        }
        let mut harness = Harness::new(config);
        harness.connect();
        harness.agree_legacy_awaiting_listen("2025-11-25", Some("s-1"));
        let listen = harness.next_exchange(Verb::Get);
        harness.advance(seconds(1));
        if is_stream {
            harness.begin_stream(listen.stream);
        } else {
            harness.status(listen.stream, 405);
        }
        assert_eq!(harness.client.poll_timeout(), None);
    }
}

/// The link waits for the reply to `initialize` then, and for nothing else.
#[test]
fn timer_of_the_old_transport_is_disarmed_when_it_names_its_endpoint() {
    let mut config = quiet_config();
    config.policy.handshake_notice = seconds(50);
    let mut harness = Harness::new(config);
    harness.connect();
    let post = harness.next_post("initialize");
    harness.status(post.stream, 405);
    let get = harness.next_exchange(Verb::Get);
    harness.begin_stream(get.stream);
    harness.bytes(get.stream, b"event: endpoint\ndata: /messages\n\n");
    let post = harness.next_post("initialize");
    harness.status(post.stream, 202);
    let due = harness.client.poll_timeout().expect("a deadline");
    assert_eq!(due.at.since(harness.now), seconds(50));
}

/// The body of an error response may explain it, but the call does not wait for it longer than `Http::linger`.
#[test]
fn call_refused_by_a_response_that_never_ends_fails_with_the_status() {
    for version in VERSIONS {
        let mut harness = Harness::ready(version);
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.head(post.stream, 500, &[]);
        harness.bytes(post.stream, b"<html>");
        harness.advance(Duration::from_millis(1_999));
        assert!(!harness.is_settled(call));
        harness.advance(Duration::from_millis(1));
        let (status, said) = (500, None);
        assert_eq!(
            harness.failure(call).kind,
            FailureKind::Status { status, said }
        );
        assert_eq!(harness.aborted, [post.stream], "{version}");
    }
}

#[test]
fn accepted_message_whose_response_never_ends_is_aborted_after_linger() {
    for status in [200, 202] {
        let mut harness = Harness::legacy();
        harness.notify("notifications/example", &json!({}));
        let post = harness.next_post("notifications/example");
        harness.head(post.stream, status, &[]);
        harness.advance(seconds(1));
        assert!(harness.is_open(post.stream));
        harness.advance(seconds(1));
        assert_eq!(harness.aborted, [post.stream], "{status}");
        assert_eq!(harness.client.stats().noise, 0);
    }
}

/// S-SSE-06: the reply comes on the stream, so the response to the POST does not matter any more.
#[test]
fn accepted_post_of_the_old_transport_that_never_ends_is_aborted_after_linger() {
    let (mut harness, stream) = Harness::sse2024();
    let (call, post) = patient_call(&mut harness);
    harness.head(post.stream, 202, &[]);
    harness.advance(seconds(1));
    assert!(harness.is_open(post.stream));
    harness.advance(seconds(1));
    assert_eq!(harness.aborted, [post.stream]);
    harness.event(stream, None, &result(&post, json!({})));
    assert!(harness.reply(call).is_ok());
}

/// The harness fails if an exchange is aborted twice, also at the end of the epoch.
#[test]
fn accepted_response_of_a_wrong_kind_is_aborted_once() {
    for version in VERSIONS {
        let mut harness = Harness::ready(version);
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.head(post.stream, 200, &[("content-type", "text/html")]);
        let why = "the response is neither JSON nor a stream of events".into();
        assert_eq!(harness.failure(call).kind, FailureKind::Invalid { why });
        assert_eq!(harness.aborted, [post.stream]);
        harness.advance(seconds(5));
        harness.shutdown();
    }
    let mut harness = Harness::legacy_awaiting_listen();
    let listen = harness.next_exchange(Verb::Get);
    harness.head(listen.stream, 200, &[("content-type", "text/html")]);
    assert_eq!(harness.aborted, [listen.stream]);
    harness.advance(seconds(5));
    harness.shutdown();
}

/// The number of exchanges is limited, so a link that counted them for ever would send nothing any more.
#[test]
fn dropped_requests_of_cancelled_calls_leave_room_for_others() {
    for version in VERSIONS {
        let mut config = config();
        config.limits.calls_in_flight = 1;
        config.policy.keepalive = None;
        let mut harness = Harness::ready_with(config, version);
        for _ in 0..100 {
            let (call, _) = patient_call(&mut harness);
            harness.cancel(call);
            if let Some(notice) = harness.find(|it| it.method() == "notifications/cancelled") {
                harness.status(notice.stream, 202);
                harness.advance(seconds(2));
            }
        }
        let (call, post) = patient_call(&mut harness);
        harness.serve(&post);
        assert!(harness.reply(call).is_ok(), "{version}");
    }
}

/// S-LIFE-11: nothing of the epoch stays open while the server takes its time for the `DELETE`.
#[test]
fn exchanges_are_cleared_before_the_delete_of_the_session_is_answered() {
    for version in LEGACY {
        let mut harness = Harness::ready(version);
        let (_, post) = patient_call(&mut harness);
        harness.begin_stream(post.stream);
        let (_, other) = patient_call(&mut harness);
        harness.shutdown();
        let delete = harness.next_exchange(Verb::Delete);
        assert_eq!(harness.client.state(), State::Closing);
        assert_eq!(harness.aborted, [post.stream, other.stream], "{version}");
        assert!(harness.is_open(delete.stream));
        assert_eq!(harness.open_exchanges(), 1);
    }
}

/// A link whose epoch ends at the request of the application, and that may not open another one for a minute.
fn reconnecting(mut config: Config) -> Harness {
    config.policy.retry.floor = seconds(60);
    config.policy.retry.call_patience = Duration::ZERO;
    let mut harness = Harness::new(config);
    harness.connect();
    harness.agree_legacy_awaiting_listen("2025-11-25", Some("s-1"));
    harness
}

/// The harness fails if a deadline has no reason in the present state.
#[test]
fn timers_of_http_end_with_the_epoch_and_with_its_delete() {
    for status in [200, 204, 401, 405, 500] {
        let mut harness = reconnecting(quiet_config());
        harness.refuse_listen();
        let (_, post) = patient_call(&mut harness);
        harness.respond(post.stream, 429, &[("retry-after", "1")], "");
        let seen = harness.client.epoch();
        harness.client.reconnect(harness.now, seen, "a test");
        harness.pump();
        assert_eq!(harness.client.state(), State::Closing);
        harness.advance(Duration::from_millis(1_500));
        let delete = harness.next_exchange(Verb::Delete);
        harness.status(delete.stream, status);
        assert_eq!(harness.client.state(), State::Waiting, "{status}");
        let deadline = harness.client.poll_timeout().expect("an attempt");
        assert_eq!(deadline.wake, Wake::Backoff, "{status}");
    }
}

/// Every accepted call has a deadline. The end of an epoch must not remove it.
#[test]
fn queued_call_keeps_its_deadline_when_the_epoch_ends() {
    for is_queued_before in [true, false] {
        let mut harness = reconnecting(quiet_config());
        let limits = || CallOptions::new().with_total(Limit::After(seconds(5)));
        let params = || json!({"name": "add"});
        // The link sends no call before the listen stream is answered.
        let early = is_queued_before.then(|| harness.call_with("tools/call", params(), limits()));
        let seen = harness.client.epoch();
        harness.client.reconnect(harness.now, seen, "a test");
        harness.pump();
        let call = early.unwrap_or_else(|| harness.call_with("tools/call", params(), limits()));
        let delete = harness.next_exchange(Verb::Delete);
        harness.status(delete.stream, 204);
        assert_eq!(harness.client.state(), State::Waiting);
        harness.advance(seconds(4));
        assert!(!harness.is_settled(call));
        harness.advance(seconds(1));
        let (limit, state) = (TimeLimit::Total, State::Waiting);
        assert_eq!(
            harness.failure(call).kind,
            FailureKind::TimedOut { limit, state }
        );
    }
}

/// The listen stream is opened whether or not the server accepts the message. It follows at once, unless the message is sent again later.
#[test]
fn listen_stream_follows_a_refused_initialized_that_is_not_sent_again() {
    for (status, fields) in [
        (400, &[][..]),
        (400, &[("retry-after", "1")]),
        (429, &[]),
        (500, &[("retry-after", "1")]),
        (503, &[]),
    ] {
        let mut harness = Harness::new(quiet_config());
        harness.connect();
        harness.answer_initialize("s-1");
        let initialized = harness.next_post("notifications/initialized");
        harness.respond(initialized.stream, status, fields, "");
        assert_eq!(harness.count(is_get), 1, "{status} {fields:?}");
        harness.refuse_listen();
        let (call, post) = patient_call(&mut harness);
        harness.serve(&post);
        assert!(harness.reply(call).is_ok(), "{status} {fields:?}");
    }
}

/// The handshake is over with the head of the response, because some servers never end it.
#[test]
fn accepted_initialized_that_never_ends_does_not_delay_calls() {
    let mut harness = Harness::new(quiet_config());
    harness.connect();
    harness.answer_initialize("s-1");
    let initialized = harness.next_post("notifications/initialized");
    harness.head(initialized.stream, 202, &[]);
    harness.refuse_listen();
    patient_call(&mut harness);
    harness.advance(seconds(2));
    assert_eq!(harness.aborted, [initialized.stream]);
}

#[test]
fn call_is_sent_at_once_when_the_listen_stream_cannot_be_requested() {
    let mut harness = Harness::legacy_awaiting_listen();
    let listen = harness.next_exchange(Verb::Get);
    harness.call("tools/call", json!({"name": "add"}));
    assert!(harness.exchanges_of("tools/call").is_empty());
    harness.fail(listen.stream, FaultKind::Reset);
    harness.next_post("tools/call");
}

/// The link needs no reply to a request of its own within the time that it allows for messages without a reply.
#[test]
fn response_to_set_level_may_take_longer_than_a_message() {
    for is_stream in [true, false] {
        let mut config = quiet_config();
        config.watch = Watch::none().and_logs(LogLevel::Warning);
        config.policy.watch_timeout = seconds(60);
        let mut harness = Harness::legacy_with(config, "2025-11-25");
        let post = harness.next_post("logging/setLevel");
        let kind = if is_stream {
            "text/event-stream"
        } else {
            "application/json"
        };
        harness.head(post.stream, 200, &[("content-type", kind)]);
        harness.advance(seconds(30));
        assert!(harness.is_open(post.stream), "{kind}");
        let reply = result(&post, json!({}));
        if is_stream {
            harness.event(post.stream, None, &reply);
        } else {
            harness.bytes(post.stream, reply.to_string().as_bytes());
            harness.end(post.stream);
        }
        let granted = Watch::none().and_logs(LogLevel::Warning);
        assert_eq!(harness.granted(), Some(granted), "{kind}");
    }
}

/// A server that sends keepalives is expected to go on. Two of them may be a coincidence.
#[test]
fn request_stream_is_resumed_if_it_falls_silent_after_three_keepalives() {
    for keepalives in [2, 3] {
        let mut harness =
            Harness::legacy_with(quiet_config(), "2025-11-25").chunked(Chunking::Whole);
        let (call, post) = patient_call(&mut harness);
        harness.begin_stream(post.stream);
        harness.bytes(post.stream, b"id: e-7\ndata:\n\n");
        for _ in 0..keepalives {
            harness.bytes(post.stream, b": keepalive\n\n");
        }
        harness.advance(seconds(119));
        assert!(harness.is_open(post.stream));
        harness.advance(seconds(2));
        assert!(!harness.is_settled(call));
        if keepalives < 3 {
            assert!(harness.is_open(post.stream));
            continue;
        }
        assert_eq!(harness.aborted, [post.stream]);
        let resume = harness.next_exchange(Verb::Get);
        assert_eq!(resume.field("last-event-id"), Some("e-7"));
        harness.begin_stream(resume.stream);
        harness.event(resume.stream, None, &result(&post, json!({})));
        assert!(harness.reply(call).is_ok());
    }
}

#[test]
fn stream_of_a_call_is_not_resumed_if_its_reply_came_on_the_listen_stream() {
    let mut harness = Harness::new(quiet_config());
    harness.connect();
    harness.agree_legacy_awaiting_listen("2025-11-25", Some("s-1"));
    let listen = harness.next_exchange(Verb::Get);
    harness.begin_stream(listen.stream);
    let (call, post) = patient_call(&mut harness);
    harness.begin_stream(post.stream);
    harness.bytes(post.stream, b"id: e-7\ndata:\n\n");
    harness.fail(post.stream, FaultKind::Reset);
    harness.event(listen.stream, None, &result(&post, json!({})));
    assert!(harness.reply(call).is_ok());
    harness.advance(seconds(5));
    assert_eq!(harness.count(is_get), 1);
}

/// 100 calls are acknowledged and wait for their replies on the listen stream. When the server refuses that stream, all are lost.
#[test]
fn calls_lost_with_the_listen_stream_leave_room_for_as_many_others() {
    let mut config = quiet_config();
    config.limits.calls_in_flight = 100;
    let mut harness = Harness::new(config);
    harness.connect();
    harness.agree_legacy_awaiting_listen("2025-11-25", Some("s-1"));
    let listen = harness.next_exchange(Verb::Get);
    harness.advance(seconds(1));
    let mut calls = Vec::new();
    for _ in 0..100 {
        let (call, post) = patient_call(&mut harness);
        harness.status(post.stream, 202);
        calls.push(call);
    }
    assert!(calls.iter().all(|call| !harness.is_settled(*call)));
    harness.status(listen.stream, 405);
    for call in calls {
        assert_eq!(harness.failure(call).kind, FailureKind::Cut);
    }
    for _ in 0..100 {
        patient_call(&mut harness);
    }
}

/// An HTTP link has no process, so it takes no news of one.
#[test]
fn input_about_a_process_is_not_accepted_over_http() {
    let mut harness = Harness::legacy();
    let (epoch, stale) = (harness.client.epoch(), harness.client.stats().stale_inputs);
    let inputs = [
        Input::Exited {
            status: ExitStatus::Code(1),
        },
        Input::Stderr {
            bytes: b"text".into(),
        },
        Input::Activity {
            cpu: seconds(1),
            is_stopped: true,
        },
    ];
    for (input, dropped) in inputs.into_iter().zip(1..) {
        harness.client.handle(harness.now, epoch, input);
        assert_eq!(harness.client.stats().stale_inputs, stale + dropped);
    }
    harness.pump();
    assert_eq!(harness.client.state(), State::Ready);
    assert!(!harness.has_event(|event| matches!(event, Event::Closing { .. })));
}

#[test]
fn stats_count_every_byte_that_is_sent_in_messages() {
    for version in VERSIONS {
        let mut harness = Harness::ready(version);
        patient_call(&mut harness);
        harness.notify("notifications/example", &json!({}));
        let sent: usize = harness.exchanges.iter().map(|it| it.text.len()).sum();
        assert_eq!(harness.client.stats().bytes_out, sent as u64, "{version}");
    }
}
