//! Failures of calls, budgets, ends, limits and credentials over HTTP, where they differ from a child process. Each test is named
//! after its row in the catalogue of failures.

use core::time::Duration;

use crate::client_http::{Exchange, Harness, complete, config, error, result, seconds};
use everlink::client::{
    Blame, CallOptions, Cause, Delivery, Event, FailureKind, Misuse, Outcome, State, TimeLimit,
};
use everlink::http::{ResponseHead, Verb};
use everlink::protocol::ClientCapabilities;
use everlink::{AskId, Config, Dialect, FaultKind, Input, Instant, Limit, List, Payload, Wake};
use serde_json::{Value, json};

fn is_call(exchange: &Exchange) -> bool {
    exchange.method() == "tools/call"
}

fn is_get(exchange: &Exchange) -> bool {
    exchange.verb == Verb::Get
}

fn both_eras() -> [Harness; 2] {
    [Harness::modern(), Harness::legacy()]
}

/// A configuration that supports asks for roots.
fn config_with_roots() -> Config {
    let mut config = config();
    config.capabilities =
        serde_json::from_str::<ClientCapabilities>(r#"{"roots": {}}"#).expect("capabilities");
    config
}

fn newest_ask(harness: &Harness) -> AskId {
    let ask = harness.events.iter().rev().find_map(|event| match event {
        Event::Ask(ask) => Some(ask.ask),
        _ => None,
    });
    ask.expect("an ask")
}

fn empty_roots() -> Payload {
    r#"{"roots":[]}"#.parse().expect("JSON")
}

fn next_wake(harness: &Harness) -> Option<Wake> {
    harness.client.poll_timeout().map(|due| due.wake)
}

/// Advances the clock until the next attempt.
fn await_attempt(harness: &mut Harness) {
    let opens = harness.epochs_opened;
    while harness.epochs_opened == opens {
        harness.advance(Duration::from_millis(100));
    }
}

/// Fails every exchange until the link is parked.
fn park(harness: &mut Harness) {
    while harness.client.state() != State::Parked {
        while let Some(exchange) = harness.find(|_| true) {
            harness.fail(exchange.stream, FaultKind::Refused);
        }
        harness.advance(Duration::from_millis(100));
    }
}

#[test]
fn f_062_call_has_a_deadline_at_every_stage_of_its_exchange() {
    // The request is sent, and no response comes.
    for mut harness in both_eras() {
        let call = harness.call("tools/call", json!({"name": "add"}));
        harness.advance(seconds(60));
        let failure = harness.failure(call);
        let idle = TimeLimit::Idle;
        assert!(matches!(failure.kind, FailureKind::TimedOut { limit, .. } if limit == idle));
        assert_eq!(failure.delivery, Delivery::Unknown);
        assert_eq!(failure.after, seconds(60));
    }
    // The response has begun, and does not continue.
    for head in [200, 404, 500] {
        let mut harness = Harness::modern();
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.head(post.stream, head, &[("content-type", "application/json")]);
        harness.advance(seconds(60));
        assert!(harness.is_settled(call), "status {head}");
        assert!(harness.aborted.contains(&post.stream));
    }
    // The request was never sent.
    let mut harness = Harness::new(config());
    let call = harness.call("tools/call", json!({"name": "add"}));
    harness.advance(seconds(60));
    let failure = harness.failure(call);
    assert_eq!(failure.delivery, Delivery::NotSent);
    // Several epochs end meanwhile.
    let mut harness = Harness::new(config());
    let brief = CallOptions::new().with_idle(Limit::After(seconds(5)));
    let call = harness.call_with("tools/call", json!({"name": "add"}), brief);
    while !harness.is_settled(call) && harness.now < Instant::ZERO + seconds(5) {
        while let Some(exchange) = harness.find(|_| true) {
            harness.fail(exchange.stream, FaultKind::Refused);
        }
        harness.advance(Duration::from_millis(100));
    }
    assert!(harness.epochs_opened > 1);
    let failure = harness.failure(call);
    assert_eq!(failure.kind, FailureKind::Down, "before the idle limit");
    assert!(failure.after < seconds(5), "{failure}");
}

#[test]
fn f_062_exchanges_of_unanswered_notifications_are_closed() {
    let mut harness = Harness::legacy();
    for _ in 0..3_000 {
        harness
            .client
            .notify(harness.now, "notifications/strange", None)
            .expect("accepted");
        harness.pump();
        harness.next_post("notifications/strange");
        while let Some(post) = harness.find(|exchange| exchange.method() == "ping") {
            harness.serve(&post);
        }
        harness.advance(seconds(1));
    }
    assert!(
        harness.open_exchanges() < 100,
        "{} exchanges are open",
        harness.open_exchanges()
    );
    assert_eq!(
        (harness.epochs_opened, harness.client.state()),
        (1, State::Ready)
    );
}

#[test]
fn f_062_exchange_of_a_settled_call_is_closed_after_2_s() {
    let mut harness = Harness::legacy_awaiting_listen();
    let listen = harness.next_exchange(Verb::Get);
    harness.begin_stream(listen.stream);
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    // The reply comes on the listen stream, so the exchange of the call itself has no response.
    harness.event(listen.stream, None, &result(&post, json!({"content": []})));
    assert!(harness.reply(call).is_ok());
    harness.advance(seconds(1));
    assert!(
        harness.is_open(post.stream),
        "the server has 2 s to end the exchange itself"
    );
    harness.advance(seconds(1));
    assert_eq!(harness.open_exchanges(), 1, "only the listen stream");
}

/// A legacy request is cancelled with a notification. Aborting its exchange would tell the server nothing.
#[test]
fn f_062_legacy_exchange_of_a_cancelled_call_is_closed_after_2_s() {
    let mut harness = Harness::legacy();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.cancel(call);
    harness.next_post("notifications/cancelled");
    assert!(harness.is_open(post.stream));
    harness.advance(seconds(2));
    assert!(!harness.is_open(post.stream));
}

#[test]
fn f_062_exchange_of_an_unanswered_probe_is_closed() {
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.advance(seconds(3));
    harness.agree_legacy("2025-11-25", Some("s-1"));
    assert!(
        harness.is_open(probe.stream),
        "the probe may still be answered"
    );
    harness.advance_serving(seconds(120));
    assert!(!harness.is_open(probe.stream));
}

#[test]
fn f_062_unanswered_initialized_blocks_calls_for_30_s_at_most() {
    let mut config = config();
    config.dialect = Dialect::Legacy;
    let mut harness = Harness::new(config);
    harness.connect();
    harness.answer_initialize("s-1");
    harness.next_post("notifications/initialized");
    let call = harness.call("resources/read", json!({"uri": "file:///a"}));
    harness.advance(seconds(30));
    let is_sent = harness.count(|exchange| exchange.method() == "resources/read") == 1;
    assert!(is_sent || harness.epochs_opened > 1 || harness.is_settled(call));
}

#[test]
fn f_063_timeout_aborts_a_modern_exchange_and_cancels_a_legacy_request() {
    let mut harness = Harness::modern();
    harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.advance(seconds(60));
    assert!(harness.aborted.contains(&post.stream));
    assert_eq!(
        harness.count(|b| b.method() == "notifications/cancelled"),
        0
    );

    let mut harness = Harness::legacy();
    harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.advance(seconds(60));
    // Other cancellations belong to unanswered probes.
    let notice = loop {
        let notice = harness.next_post("notifications/cancelled");
        if notice.body["params"]["requestId"] == post.body["id"] {
            break notice;
        }
        harness.status(notice.stream, 202);
    };
    assert_eq!(notice.body["params"]["requestId"], post.body["id"]);
    assert_eq!(notice.field("mcp-session-id"), Some("s-1"));
    harness.status(notice.stream, 202);
    harness.advance(seconds(3));
    assert_eq!(harness.open_exchanges(), 1, "only the ping");
}

#[test]
fn f_064_late_reply_and_reply_with_an_unknown_id_are_ignored() {
    let mut harness = Harness::legacy_awaiting_listen();
    let listen = harness.next_exchange(Verb::Get);
    harness.begin_stream(listen.stream);
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.advance_serving(seconds(60));
    assert!(matches!(
        harness.failure(call).kind,
        FailureKind::TimedOut { .. }
    ));
    harness.event(listen.stream, None, &result(&post, json!({"content": []})));
    assert_eq!(harness.client.stats().late_replies, 1);
    for id in [json!(9_999), json!("9"), json!(-1)] {
        let stray = json!({"jsonrpc": "2.0", "id": id, "result": {}});
        harness.event(listen.stream, None, &stray);
    }
    assert!(!harness.is_settled(call));
    assert_eq!(harness.client.state(), State::Ready);
    assert_eq!(harness.epochs_opened, 1);
}

#[test]
fn f_064_input_of_a_finished_exchange_is_counted_as_stale_and_dropped() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.serve(&post);
    assert!(harness.reply(call).is_ok());
    let stream = post.stream;
    let head = Box::new(ResponseHead::new(404));
    let late = [
        Input::Response { stream, head },
        Input::Bytes {
            stream,
            bytes: b"late".into(),
        },
        Input::End {
            stream,
            faults: Vec::new().into(),
        },
    ];
    for (dropped, input) in (1..).zip(late) {
        harness.client.handle(harness.now, post.epoch, input);
        harness.pump();
        assert_eq!(harness.client.stats().stale_inputs, dropped);
    }
    assert_eq!(
        (harness.epochs_opened, harness.client.state()),
        (1, State::Ready)
    );
}

/// An informational response is not the response, and a second response is ignored.
#[test]
fn f_064_informational_and_second_response_of_an_exchange_are_ignored() {
    for mut harness in both_eras() {
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        let bytes_before = harness.client.stats().bytes_in;
        harness.head(post.stream, 103, &[("link", "</style.css>")]);
        harness.head(post.stream, 200, &[("content-type", "application/json")]);
        harness.head(post.stream, 404, &[]);
        let body = complete(&post, json!({"content": []})).to_string();
        harness.bytes(post.stream, body.as_bytes());
        harness.end(post.stream);
        assert!(harness.reply(call).is_ok());
        assert_eq!(
            harness.client.stats().bytes_in,
            bytes_before + body.len() as u64
        );
    }
}

#[test]
fn f_066_progress_extends_the_idle_limit_but_not_the_total_limit() {
    for mut harness in both_eras() {
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.begin_stream(post.stream);
        let token = &post.body["params"]["_meta"]["progressToken"];
        for step in 1..=11 {
            harness.advance_serving(seconds(50));
            assert!(!harness.is_settled(call), "after {step} steps");
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": token, "progress": step}});
            harness.event(post.stream, None, &progress);
        }
        harness.advance_serving(seconds(50));
        let total = TimeLimit::Total;
        let failure = harness.failure(call);
        assert!(matches!(failure.kind, FailureKind::TimedOut { limit, .. } if limit == total));
        assert_eq!(failure.after, seconds(600));
    }
    // Bytes that only keep the stream alive do not reset the idle timeout of the call.
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    for _ in 0..59 {
        harness.advance(seconds(1));
        harness.bytes(post.stream, b": still here\n\n");
    }
    assert!(!harness.is_settled(call));
    harness.advance(seconds(1));
    assert!(harness.is_settled(call));
}

#[test]
fn f_067_open_ask_pauses_the_limits_of_its_call() {
    // Legacy: the ask comes on the stream of its call.
    let mut harness = Harness::legacy_with(config_with_roots(), "2025-11-25");
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    let ask = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
    harness.event(post.stream, None, &ask);
    harness.advance_serving(seconds(500));
    assert!(!harness.is_settled(call));
    harness
        .client
        .answer(harness.now, newest_ask(&harness), Ok(empty_roots()))
        .expect("open");
    harness.pump();
    let answer = harness
        .find(|exchange| exchange.body["id"] == "q")
        .expect("an answer");
    assert_eq!(answer.verb, Verb::Post);
    harness.status(answer.stream, 202);
    harness.event(post.stream, None, &result(&post, json!({"content": []})));
    assert!(harness.reply(call).is_ok());
    // Modern: the ask is the response, and the answer is another request.
    let mut harness = Harness::modern_with(config_with_roots());
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    let wanted = json!({"resultType": "input_required", "requestState": "s",
        "inputRequests": {"q": {"method": "roots/list"}}});
    harness.json(post.stream, 200, &result(&post, wanted));
    harness.advance_serving(seconds(500));
    assert!(!harness.is_settled(call));
    harness
        .client
        .answer(harness.now, newest_ask(&harness), Ok(empty_roots()))
        .expect("open");
    harness.pump();
    let again = harness.next_post("tools/call");
    assert_ne!(again.body["id"], post.body["id"]);
    assert_eq!(again.body["params"]["requestState"], "s");
    harness.serve(&again);
    assert!(harness.reply(call).is_ok());
}

#[test]
fn f_068_ask_is_answered_while_calls_wait_for_the_in_flight_limit() {
    let mut config = config_with_roots();
    config.limits.calls_in_flight = 1;
    let mut harness = Harness::legacy_with(config, "2025-11-25");
    let call = harness.call("tools/call", json!({"name": "add"}));
    let waiting = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    assert_eq!(harness.unseen_count(), 0, "the other waits");
    harness.begin_stream(post.stream);
    let ask = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
    harness.event(post.stream, None, &ask);
    harness
        .client
        .answer(harness.now, newest_ask(&harness), Ok(empty_roots()))
        .expect("open");
    harness.pump();
    let answer = harness.find(|exchange| exchange.body["id"] == "q");
    assert!(answer.is_some());
    harness.event(post.stream, None, &result(&post, json!({"content": []})));
    assert!(harness.reply(call).is_ok());
    let post = harness.next_post("tools/call");
    harness.serve(&post);
    assert!(harness.reply(waiting).is_ok());
}

#[test]
fn f_069_connection_fault_fails_a_modern_tool_call_and_resends_a_read() {
    for fault in [FaultKind::Reset, FaultKind::TimedOut, FaultKind::Closed] {
        let mut harness = Harness::modern();
        let acts = harness.call("tools/call", json!({"name": "act"}));
        let reads = harness.call("resources/read", json!({"uri": "file:///a"}));
        let (act, read) = (
            harness.next_post("tools/call"),
            harness.next_post("resources/read"),
        );
        for post in [&act, &read] {
            harness.begin_stream(post.stream);
            // A modern stream cannot be resumed, even if its events have ids.
            harness.bytes(post.stream, b"id: e-1\ndata:\n\n");
            harness.fail(post.stream, fault);
        }
        let failure = harness.failure(acts);
        assert_eq!(failure.kind, FailureKind::Cut);
        assert_eq!(failure.delivery, Delivery::Unknown);
        assert_eq!(failure.blame(), Blame::Transport);
        let again = harness.next_post("resources/read");
        assert_ne!(again.body["id"], read.body["id"]);
        harness.serve(&again);
        assert!(harness.reply(reads).is_ok());
        harness.advance_serving(seconds(60));
        assert_eq!(harness.count(is_call), 1);
        assert_eq!(harness.count(is_get), 0);
        assert_eq!(harness.epochs_opened, 1);
    }
}

#[test]
fn f_071_closing_faults_during_a_planned_reconnect_do_not_count() {
    for fault in [
        FaultKind::Aborted,
        FaultKind::BrokenPipe,
        FaultKind::Closed,
        FaultKind::Reset,
    ] {
        let mut harness = Harness::legacy();
        let call = harness.call("resources/read", json!({"uri": "file:///a"}));
        let post = harness.next_post("resources/read");
        harness
            .client
            .reconnect(harness.now, harness.client.epoch(), "asked to");
        harness.pump();
        assert_eq!(harness.client.state(), State::Draining);
        harness.fail(post.stream, fault);
        let delete = harness.next_exchange(Verb::Delete);
        harness.fail(delete.stream, fault);
        let ended = harness.client.last_end().expect("an end");
        assert!(!ended.counted, "{fault:?}");
        assert_eq!(harness.client.failures(), 0);
        assert!(!harness.is_settled(call), "a read-only call is sent again");
    }
}

#[test]
fn f_072_one_real_fault_among_harmless_ones_counts_as_one_failure() {
    for (faults, counts) in [
        (&[FaultKind::Closed, FaultKind::Reset][..], false),
        (&[FaultKind::Closed, FaultKind::Tls, FaultKind::Reset], true),
    ] {
        let mut harness = Harness::modern();
        harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness
            .client
            .reconnect(harness.now, harness.client.epoch(), "asked to");
        harness.pump();
        harness.fail_with(post.stream, faults);
        let ended = harness.client.last_end().expect("an end");
        assert_eq!(ended.faults.len(), faults.len(), "no fault is dropped");
        assert_eq!(ended.counted, counts);
        assert_eq!(harness.client.failures(), u32::from(counts));
    }
}

#[test]
fn f_073_stable_epoch_resets_the_failure_count() {
    let mut harness = Harness::new(config());
    harness.connect();
    for failures in 1..=4 {
        let probe = harness.next_post("server/discover");
        harness.fail(probe.stream, FaultKind::Refused);
        assert_eq!(harness.client.failures(), failures);
        await_attempt(&mut harness);
    }
    harness.agree_modern();
    assert_eq!(
        harness.client.failures(),
        4,
        "ready alone does not reset the count"
    );
    harness.advance_serving(seconds(61));
    assert_eq!(harness.client.failures(), 0);
}

#[test]
fn f_074_parked_link_tries_again_by_itself_and_when_woken() {
    let mut harness = Harness::new(config());
    harness.connect();
    park(&mut harness);
    let opens = harness.epochs_opened;
    harness.advance(seconds(61));
    assert_eq!(harness.epochs_opened, opens + 1, "by itself");
    park(&mut harness);
    let opens = harness.epochs_opened;
    harness.advance(seconds(1));
    harness.client.wake(harness.now);
    harness.pump();
    assert_eq!(harness.epochs_opened, opens + 1, "when woken");
    harness.agree_modern();
}

#[test]
fn f_077_many_reconnect_requests_for_one_epoch_cause_one_reconnect() {
    let mut harness = Harness::modern();
    let seen = harness.client.epoch();
    let calls: Vec<_> = (0..50)
        .map(|_| harness.call("resources/read", json!({"uri": "file:///a"})))
        .collect();
    let posts: Vec<_> = calls
        .iter()
        .map(|_| harness.next_post("resources/read"))
        .collect();
    for post in posts {
        harness.fail(post.stream, FaultKind::Refused);
        harness.client.reconnect(harness.now, seen, "it is gone");
        harness.pump();
    }
    harness.advance(seconds(1));
    for _ in 0..50 {
        harness.client.reconnect(harness.now, seen, "it is gone");
        harness.pump();
    }
    harness.agree_modern();
    assert_eq!(
        (harness.epochs_opened, harness.client.stats().failures),
        (2, 1)
    );
    harness.advance_serving(seconds(1));
    for call in calls {
        assert!(harness.reply(call).is_ok());
    }
}

#[test]
fn f_078_call_to_a_parked_link_starts_an_attempt() {
    let mut harness = Harness::new(config());
    harness.connect();
    park(&mut harness);
    harness.advance(seconds(6));
    let opens = harness.epochs_opened;
    let call = harness.call("tools/call", json!({"name": "add"}));
    assert_eq!(harness.epochs_opened, opens + 1);
    harness.agree_modern();
    let post = harness.next_post("tools/call");
    harness.serve(&post);
    assert!(harness.reply(call).is_ok());
}

#[test]
fn f_080_f_082_error_replies_do_not_count_as_failures_of_the_link() {
    type MakeResponse = fn(&Exchange) -> (u16, Value);
    let responses: [MakeResponse; 6] = [
        |post| (200, error(post, -32_603)),
        |post| (400, error(post, -32_602)),
        |post| (404, error(post, -32_601)),
        |post| (500, error(post, -32_603)),
        |post| (422, error(post, 1)),
        |post| {
            let failed = json!({"resultType": "complete", "isError": true, "content": []});
            (200, result(post, failed))
        },
    ];
    for make_response in responses {
        let mut harness = Harness::modern();
        for _ in 0..20 {
            let call = harness.call("tools/call", json!({"name": "add"}));
            let post = harness.next_post("tools/call");
            let (status, body) = make_response(&post);
            harness.json(post.stream, status, &body);
            let outcome = harness.outcome(call);
            assert!(
                matches!(outcome, Outcome::Error(_) | Outcome::Reply(_)),
                "{outcome:?}"
            );
        }
        assert_eq!(harness.client.state(), State::Ready);
        assert_eq!((harness.epochs_opened, harness.client.failures()), (1, 0));
    }
}

#[test]
fn f_081_tool_call_that_may_have_run_is_not_sent_again() {
    type EndExchange = fn(&mut Harness, &Exchange);
    let endings: [EndExchange; 6] = [
        |harness, post| harness.fail(post.stream, FaultKind::Reset),
        |harness, post| harness.fail(post.stream, FaultKind::TimedOut),
        |harness, post| harness.end(post.stream),
        |harness, post| harness.status(post.stream, 502),
        |harness, post| harness.status(post.stream, 504),
        |harness, post| {
            harness.head(post.stream, 200, &[("content-type", "application/json")]);
            harness.bytes(post.stream, b"{\"jsonrpc\":");
            harness.fail(post.stream, FaultKind::Reset);
        },
    ];
    for end_exchange in endings {
        for mut harness in both_eras() {
            let call = harness.call("tools/call", json!({"name": "act"}));
            let post = harness.next_post("tools/call");
            end_exchange(&mut harness, &post);
            assert_eq!(harness.failure(call).delivery, Delivery::Unknown);
            harness.advance_serving(seconds(60));
            assert_eq!(harness.count(is_call), 1);
        }
    }
}

#[test]
fn f_081_call_that_did_not_run_or_is_idempotent_is_sent_again() {
    type EndExchange = fn(&mut Harness, &Exchange);
    let unread: [EndExchange; 4] = [
        |harness, post| harness.fail(post.stream, FaultKind::Refused),
        |harness, post| harness.fail(post.stream, FaultKind::NameNotFound),
        |harness, post| harness.respond(post.stream, 429, &[("retry-after", "1")], ""),
        |harness, post| {
            harness.status(post.stream, 401);
            harness.client.authorized(harness.now);
            harness.pump();
        },
    ];
    for end_exchange in unread {
        let mut harness = Harness::modern();
        let call = harness.call("tools/call", json!({"name": "act"}));
        let post = harness.next_post("tools/call");
        end_exchange(&mut harness, &post);
        harness.advance_serving(seconds(5));
        assert!(harness.reply(call).is_ok());
        assert_eq!(harness.count(is_call), 2);
        let ids: Vec<_> = harness.exchanges.iter().filter(|b| is_call(b)).collect();
        assert_ne!(ids[0].body["id"], ids[1].body["id"]);
    }
    // The reply is cut off, as an event stream or as JSON.
    let cut: [EndExchange; 2] = [
        |harness, post| {
            harness.begin_stream(post.stream);
            harness.fail(post.stream, FaultKind::Reset);
        },
        |harness, post| {
            harness.head(post.stream, 200, &[("content-type", "application/json")]);
            harness.bytes(post.stream, b"{\"jsonrpc\":");
            harness.fail(post.stream, FaultKind::Reset);
        },
    ];
    for end_exchange in cut {
        let mut harness = Harness::modern();
        let idempotent = CallOptions::new().idempotent();
        let call = harness.call_with("tools/call", json!({"name": "act"}), idempotent);
        let post = harness.next_post("tools/call");
        end_exchange(&mut harness, &post);
        harness.advance_serving(seconds(5));
        assert!(harness.reply(call).is_ok());
        assert_eq!(harness.count(is_call), 2);
        assert_eq!(harness.client.stats().requeued, 1);
    }
}

#[test]
fn f_081_call_refused_with_503_and_retry_after_is_not_sent_again() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "act"}));
    let post = harness.next_post("tools/call");
    harness.respond(post.stream, 503, &[("retry-after", "1")], "");
    harness.advance_serving(seconds(10));
    assert_eq!(harness.count(is_call), 1);
    assert_eq!(harness.failure(call).delivery, Delivery::Unknown);
}

#[test]
fn f_083_server_with_a_running_call_or_bytes_on_a_stream_is_kept() {
    // A call is running. A server that serves one request at a time answers no probe meanwhile.
    for mut harness in both_eras() {
        let options = CallOptions::new().with_idle(Limit::After(seconds(500)));
        let call = harness.call_with("tools/call", json!({"name": "slow"}), options);
        let post = harness.next_post("tools/call");
        harness.advance(seconds(119));
        harness.serve(&post);
        assert!(harness.reply(call).is_ok());
        assert_eq!(harness.epochs_opened, 1);
    }
    // Bytes on the listen stream show that the server is alive.
    let mut harness = Harness::legacy_awaiting_listen();
    let listen = harness.next_exchange(Verb::Get);
    harness.begin_stream(listen.stream);
    for _ in 0..60 {
        harness.advance(seconds(15));
        harness.bytes(listen.stream, b": here\n\n");
    }
    assert_eq!(harness.client.stats().probes, 0);
}

#[test]
fn f_084_quiet_server_is_probed_with_ping_if_legacy_and_discover_if_modern() {
    let mut harness = Harness::legacy();
    harness.advance(seconds(31));
    let ping = harness.next_post("ping");
    harness.json(ping.stream, 200, &error(&ping, -32_601));
    harness.advance(seconds(15));
    assert_eq!(
        harness.client.state(),
        State::Ready,
        "an error to a ping is a sign of life"
    );

    let mut harness = Harness::modern();
    harness.advance(seconds(31));
    let probe = harness.next_post("server/discover");
    harness.serve(&probe);
    harness.advance(seconds(15));
    assert_eq!(harness.client.state(), State::Ready);

    // A silent server keeps its epoch until the application calls something.
    for mut harness in both_eras() {
        harness.advance(seconds(120));
        assert_eq!(harness.client.state(), State::Ready);
        assert!(harness.has_event(|event| matches!(event, Event::Silent { .. })));
        harness.call("tools/call", json!({"name": "add"}));
        harness.advance(seconds(40));
        let cause = harness.client.last_end().map(|ended| ended.cause.clone());
        assert!(
            matches!(cause, Some(Cause::Unresponsive { .. })),
            "{cause:?}"
        );
    }
}

#[test]
fn f_084_4xx_to_a_ping_is_a_sign_of_life_and_5xx_is_not() {
    for (status, is_alive) in [(405, true), (499, true), (500, false), (502, false)] {
        let mut harness = Harness::legacy();
        for second in 0..300 {
            harness.advance(seconds(1));
            if second == 100 {
                harness.call("tools/call", json!({"name": "slow"}));
            }
            while let Some(ping) = harness.find(|exchange| exchange.method() == "ping") {
                harness.status(ping.stream, status);
            }
        }
        let is_kept = (harness.epochs_opened, harness.client.state()) == (1, State::Ready);
        assert_eq!(is_kept, is_alive, "{status}");
    }
}

#[test]
fn f_085_every_state_except_closed_has_a_deadline() {
    let mut harness = Harness::new(config());
    harness.connect();
    assert!(next_wake(&harness).is_some(), "handshaking");
    let probe = harness.next_post("server/discover");
    harness.status(probe.stream, 401);
    assert_eq!(next_wake(&harness), Some(Wake::Auth), "without credentials");
    harness.client.authorized(harness.now);
    harness.pump();
    assert!(next_wake(&harness).is_some(), "with new credentials");
    harness.agree_modern();
    assert!(next_wake(&harness).is_some(), "ready");
    harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.respond(post.stream, 429, &[("retry-after", "1")], "");
    assert!(next_wake(&harness).is_some(), "during retry-after");
    harness.advance(seconds(2));
    harness
        .client
        .reconnect(harness.now, harness.client.epoch(), "asked to");
    harness.pump();
    assert_eq!(harness.client.state(), State::Draining);
    assert!(next_wake(&harness).is_some(), "draining");
    let post = harness.next_post("tools/call");
    harness.fail(post.stream, FaultKind::Tls);
    assert_eq!(harness.client.state(), State::Waiting);
    assert_eq!(next_wake(&harness), Some(Wake::Backoff));
    park(&mut harness);
    assert_eq!(next_wake(&harness), Some(Wake::Parked));
    harness.client.shutdown(harness.now);
    harness.pump();
    assert_eq!(harness.client.state(), State::Closed);
    assert_eq!(next_wake(&harness), None);
}

#[test]
fn f_086_no_command_or_input_reopens_a_closed_link() {
    let mut harness = Harness::legacy();
    harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 401);
    let epoch = harness.client.epoch();
    harness.client.shutdown(harness.now);
    harness.advance(seconds(10));
    assert_eq!(harness.client.state(), State::Closed);
    let exchanges_before = harness.exchanges.len();
    harness.client.authorized(harness.now);
    harness.client.connect(harness.now);
    harness.client.wake(harness.now);
    harness.client.reconnect(harness.now, epoch, "asked to");
    let stream = post.stream;
    let head = Box::new(ResponseHead::new(200));
    harness
        .client
        .handle(harness.now, epoch, Input::Response { stream, head });
    harness.advance(seconds(600));
    assert_eq!(harness.client.state(), State::Closed);
    assert_eq!(
        (harness.epochs_opened, harness.exchanges.len()),
        (1, exchanges_before)
    );
    let refused = harness
        .client
        .call(harness.now, "tools/list", None, CallOptions::new());
    assert_eq!(refused, Err(Misuse::Closed));
}

#[test]
fn f_087_each_attempt_has_its_own_epoch_and_leaves_no_open_exchange() {
    let mut harness = Harness::new(config());
    harness.connect();
    for epoch in 1..=5 {
        let probe = harness.next_post("server/discover");
        assert_eq!(probe.epoch.number(), epoch);
        harness.fail(probe.stream, FaultKind::Refused);
        assert_eq!(harness.open_exchanges(), 0);
        await_attempt(&mut harness);
    }
    harness.agree_modern();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.serve(&post);
    assert!(harness.reply(call).is_ok());
}

#[test]
fn f_101_shutdown_closes_every_stream_of_the_link() {
    let (sse2024, _) = Harness::sse2024();
    let mut legacy = Harness::legacy_awaiting_listen();
    let get = legacy.next_exchange(Verb::Get);
    legacy.begin_stream(get.stream);
    for mut harness in [Harness::modern(), legacy, sse2024] {
        harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.begin_stream(post.stream);
        assert!(harness.open_exchanges() >= 2);
        harness.client.shutdown(harness.now);
        harness.pump();
        let left =
            harness.open_exchanges() - harness.count(|exchange| exchange.verb == Verb::Delete);
        assert_eq!(left, 0, "all streams are closed before the link waits");
        harness.advance(seconds(3));
        assert_eq!(
            (harness.open_exchanges(), harness.client.state()),
            (0, State::Closed)
        );
    }
}

#[test]
fn f_102_calls_in_flight_get_5_s_in_a_planned_reconnect_and_then_fail_as_lost() {
    for mut harness in both_eras() {
        let quick = harness.call("tools/call", json!({"name": "quick"}));
        let slow = harness.call("tools/call", json!({"name": "slow"}));
        let (post, _) = (
            harness.next_post("tools/call"),
            harness.next_post("tools/call"),
        );
        harness
            .client
            .reconnect(harness.now, harness.client.epoch(), "asked to");
        harness.pump();
        let new = harness.call("tools/call", json!({"name": "new"}));
        harness.advance(seconds(4));
        harness.serve(&post);
        assert!(harness.reply(quick).is_ok());
        assert_eq!(harness.unseen_count(), 0, "no new call is sent");
        harness.advance(seconds(1));
        let failure = harness.failure(slow);
        assert_eq!(failure.kind, FailureKind::Lost);
        assert_eq!(failure.delivery, Delivery::Unknown);
        assert!(!harness.is_settled(new));
        harness.client.shutdown(harness.now);
        harness.pump();
        let failure = harness.failure(new);
        assert_eq!(failure.kind, FailureKind::Closed);
        assert_eq!(failure.delivery, Delivery::NotSent);
    }
}

#[test]
fn f_103_shutdown_closes_within_2_s_whatever_the_delete_response_is() {
    type RespondToDelete = fn(&mut Harness, &Exchange);
    let responses: [RespondToDelete; 4] = [
        |_, _| {},
        |harness, delete| harness.head(delete.stream, 500, &[]),
        |harness, delete| harness.respond(delete.stream, 503, &[("retry-after", "300")], ""),
        |harness, delete| harness.status(delete.stream, 401),
    ];
    for respond_to_delete in responses {
        let mut harness = Harness::legacy();
        harness.client.shutdown(harness.now);
        harness.pump();
        let delete = harness.next_exchange(Verb::Delete);
        respond_to_delete(&mut harness, &delete);
        harness.advance(seconds(2));
        assert_eq!(harness.client.state(), State::Closed);
        assert_eq!(harness.challenges(), 0);
        assert_eq!(harness.count(|exchange| exchange.verb == Verb::Delete), 1);
    }
}

#[test]
fn f_106_unknown_notification_is_passed_on_and_unknown_events_are_ignored() {
    for mut harness in both_eras() {
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.begin_stream(post.stream);
        let strange =
            json!({"jsonrpc": "2.0", "method": "notifications/strange", "params": {"a": 1}});
        harness.event(post.stream, None, &strange);
        harness.bytes(post.stream, b"event: strange\ndata: {}\n\nodd: field\n\n");
        let is_notified = |event: &Event| matches!(event, Event::Notified { method, .. } if **method == *"notifications/strange");
        assert!(harness.has_event(is_notified));
        let done = json!({"resultType": "complete", "content": []});
        harness.event(post.stream, None, &result(&post, done));
        assert!(harness.reply(call).is_ok());
        assert_eq!(harness.client.state(), State::Ready);
    }
}

#[test]
fn f_109_queued_calls_and_undelivered_events_are_bounded_by_bytes() {
    // Bytes that the application wants to send.
    let mut harness = Harness::new(config());
    let large: Payload = json!({"name": "add", "arguments": {"a": "x".repeat(1 << 20)}})
        .to_string()
        .parse()
        .expect("JSON");
    let mut accepted = 0;
    let refused = loop {
        let params = Some(large.clone());
        match harness
            .client
            .call(harness.now, "tools/call", params, CallOptions::new())
        {
            Ok(_) => accepted += 1,
            Err(misuse) => break misuse,
        }
    };
    assert!(matches!(refused, Misuse::QueueFull { .. }));
    assert_eq!(accepted, 7, "the queue holds 8 MiB");
    // Bytes that the server sends and the application does not poll.
    let mut config = config();
    config.limits.undelivered_bytes = 10_000;
    let mut harness = Harness::modern_with(config);
    harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    assert!(harness.client.wants_input(post.stream));
    let strange = json!({"jsonrpc": "2.0", "method": "notifications/strange", "params": {"a": "x".repeat(10_000)}});
    let bytes = format!("data: {strange}\n\n").into_bytes().into();
    let stream = post.stream;
    harness
        .client
        .handle(harness.now, post.epoch, Input::Bytes { stream, bytes });
    assert!(!harness.client.wants_input(post.stream));
    harness.pump();
    assert!(harness.client.wants_input(post.stream));
}

/// While the application does not poll, the driver reads nothing. That is no silence of the server.
#[test]
fn refusal_that_is_not_read_in_time_is_not_cut() {
    let mut config = config();
    config.limits.undelivered_bytes = 10_000;
    let mut harness = Harness::modern_with(config);
    harness.call("tools/call", json!({"name": "talks"}));
    let talks = harness.next_post("tools/call");
    harness.begin_stream(talks.stream);
    let call = harness.call("tools/call", json!({"name": "refused"}));
    let post = harness.next_post("tools/call");
    harness.head(post.stream, 400, &[("content-type", "application/json")]);
    let strange = json!({"jsonrpc": "2.0", "method": "notifications/strange", "params": {"a": "x".repeat(10_000)}});
    let bytes = format!("data: {strange}\n\n").into_bytes().into();
    let stream = talks.stream;
    let (now, epoch) = (harness.now, talks.epoch);
    harness
        .client
        .handle(now, epoch, Input::Bytes { stream, bytes });
    assert!(!harness.client.wants_input(post.stream));
    harness.client.handle_timeout(now + seconds(30));
    harness.pump();
    harness.bytes(post.stream, error(&post, -32_602).to_string().as_bytes());
    harness.end(post.stream);
    assert_eq!(harness.reply(call), Err(-32_602));
}

#[test]
fn f_109_bytes_handed_to_the_driver_are_bounded() {
    let mut harness = Harness::modern();
    let large: Payload = json!({"name": "add", "arguments": {"a": "x".repeat(1 << 20)}})
        .to_string()
        .parse()
        .expect("JSON");
    for _ in 0..50 {
        let params = Some(large.clone());
        let accepted = harness
            .client
            .call(harness.now, "tools/call", params, CallOptions::new());
        harness.pump();
        if accepted.is_err() {
            break;
        }
    }
    let calls_begun = harness.count(is_call);
    assert!(calls_begun <= 8, "{calls_begun} MiB are with the driver");
    // One reply was read, so there is room for the next call.
    let post = harness.next_post("tools/call");
    harness.serve(&post);
    assert_eq!(harness.count(is_call), calls_begun + 1);
    // The system has accepted another request, so there is room again.
    let post = harness.next_post("tools/call");
    let (stream, len) = (post.stream, post.text.len());
    let taken = Input::Sent { stream, len };
    harness.client.handle(harness.now, post.epoch, taken);
    harness.pump();
    assert_eq!(harness.count(is_call), calls_begun + 2);
}

#[test]
fn f_109_notifications_under_way_are_bounded_by_bytes_and_by_number() {
    let notice = "notifications/strange";
    let mut harness = Harness::modern();
    harness.notify(notice, &json!({}));
    let one = harness.next_post(notice).text.len();
    // Limit by bytes: the first message fills the queue.
    let mut config = config();
    config.limits.queued_bytes = one;
    let mut harness = Harness::modern_with(config);
    harness.notify(notice, &json!({}));
    let first = harness.next_post(notice);
    assert_eq!(first.text.len(), one);
    harness.notify(notice, &json!({}));
    assert_eq!(harness.unseen_count(), 0);
    harness.status(first.stream, 202);
    harness.next_post(notice);
    // Limit by number: 64 beside the calls.
    let mut config = config_with_roots();
    config.limits.calls_in_flight = 1;
    let mut harness = Harness::modern_with(config);
    let before = harness.open_exchanges();
    for _ in 0..80 {
        harness.notify(notice, &json!({}));
    }
    assert_eq!(before + harness.unseen_count(), 65);
    let first = harness.next_post(notice);
    harness.status(first.stream, 202);
    assert_eq!(
        harness.count(|exchange| exchange.method() == notice),
        65 - before + 1
    );
}

#[test]
fn f_111_401_to_requests_with_old_credentials_asks_for_credentials_only_once() {
    let mut harness = Harness::modern();
    let calls: Vec<_> = (0..10)
        .map(|_| harness.call("tools/call", json!({"name": "add"})))
        .collect();
    let posts: Vec<_> = calls
        .iter()
        .map(|_| harness.next_post("tools/call"))
        .collect();
    let (early, late) = posts.split_at(5);
    for post in early {
        harness.status(post.stream, 401);
    }
    assert_eq!(harness.challenges(), 1);
    assert!(harness.client.awaits_authorization());
    let held = harness.call("tools/call", json!({"name": "add"}));
    assert_eq!(
        harness.unseen_count(),
        0,
        "no call is sent without credentials"
    );
    harness.client.authorized(harness.now);
    harness.pump();
    // The other exchanges are refused only now, for the old credentials.
    for post in late {
        harness.status(post.stream, 401);
    }
    assert_eq!(harness.challenges(), 1, "one challenge for all");
    harness.advance_serving(seconds(1));
    for call in calls.into_iter().chain([held]) {
        assert!(harness.reply(call).is_ok());
    }
    assert_eq!(harness.client.failures(), 0);
}

#[test]
fn f_112_retry_after_401_is_a_new_request_without_credentials_of_the_link() {
    let mut harness = Harness::legacy();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 401);
    harness.client.authorized(harness.now);
    harness.pump();
    assert_eq!(harness.client.stats().turned_away, 1);
    // The retry is a new request, so the driver can add its newest credentials. The link holds none.
    let again = harness.next_post("tools/call");
    assert_ne!(again.stream, post.stream);
    assert!(
        harness
            .exchanges
            .iter()
            .all(|b| b.field("authorization").is_none())
    );
    harness.serve(&again);
    assert!(harness.reply(call).is_ok());
}

#[test]
fn f_113_401_to_the_listen_request_does_not_ask_for_credentials() {
    for status in [401, 403] {
        let mut harness = Harness::legacy_awaiting_listen();
        let get = harness.next_exchange(Verb::Get);
        harness.respond(get.stream, status, &[("www-authenticate", "Bearer")], "");
        harness.advance_serving(seconds(600));
        assert_eq!(harness.challenges(), 0);
        assert_eq!(harness.count(is_get), 1);
        assert_eq!(harness.client.state(), State::Ready);
        // After new credentials for another reason, the link asks for the stream again.
        harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        harness.status(post.stream, 401);
        harness.client.authorized(harness.now);
        harness.pump();
        assert_eq!(harness.count(is_get), 2);
    }
}

#[test]
fn f_114_denied_credentials_park_the_link_without_a_failure() {
    for status in [401, 403] {
        let mut harness = Harness::new(config());
        harness.connect();
        let call = harness.call("tools/call", json!({"name": "add"}));
        let probe = harness.next_post("server/discover");
        harness.respond(probe.stream, status, &[("www-authenticate", "Bearer")], "");
        // Slow credentials are not a denial.
        harness.advance(seconds(590));
        assert_eq!(harness.client.state(), State::Handshaking);
        assert!(!harness.is_settled(call));
        harness
            .client
            .denied(harness.now, "the user closed the window");
        harness.pump();
        let failure = harness.failure(call);
        assert_eq!(failure.blame(), Blame::Caller);
        assert!(failure.to_string().contains("the user closed the window"));
        assert_eq!(harness.client.failures(), 0);
        assert_eq!(harness.client.state(), State::Parked);
        let ended = harness.client.last_end().expect("an end");
        assert_eq!(ended.cause, Cause::Unauthorized);
        assert!(!ended.counted);
        // After the next wake, the link tries again.
        harness.client.wake(harness.now);
        harness.pump();
        harness.agree_modern();
    }
}

#[test]
fn f_114_missing_credentials_fail_the_call_after_600_s() {
    let mut harness = Harness::new(config());
    harness.connect();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let probe = harness.next_post("server/discover");
    harness.status(probe.stream, 401);
    harness.advance(seconds(600));
    let failure = harness.failure(call);
    assert!(matches!(failure.kind, FailureKind::Unauthorized { .. }));
    assert_eq!(failure.delivery, Delivery::NotSent);
    assert!(!harness.client.awaits_authorization());
    assert_eq!(harness.client.failures(), 0);
}

#[test]
fn f_114_call_refused_three_times_with_403_fails_as_unauthorized() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let mut refused = 0;
    while let Some(post) = harness.find(is_call) {
        refused += 1;
        harness.status(post.stream, 403);
        harness.client.authorized(harness.now);
        harness.pump();
    }
    assert_eq!(refused, 3);
    let failure = harness.failure(call);
    assert!(matches!(failure.kind, FailureKind::Unauthorized { .. }));
    assert_eq!(failure.delivery, Delivery::NotSent);
    assert_eq!((harness.epochs_opened, harness.client.failures()), (1, 0));
}

#[test]
fn f_114_unauthorized_call_does_not_delay_the_next_call() {
    let mut harness = Harness::modern();
    let call = harness.call("tools/call", json!({"name": "forbidden"}));
    while !harness.is_settled(call) {
        harness.client.authorized(harness.now);
        harness.pump();
        let post = harness.next_post("tools/call");
        harness.status(post.stream, 403);
    }
    assert!(!harness.client.awaits_authorization());
    harness.call("tools/call", json!({"name": "allowed"}));
    harness.next_post("tools/call");
}

#[test]
fn f_114_after_denials_only_a_call_asks_for_credentials_again() {
    let mut harness = Harness::modern();
    let is_listen = |exchange: &&Exchange| exchange.method() == "subscriptions/listen";
    let listen = harness
        .exchanges
        .iter()
        .find(is_listen)
        .cloned()
        .expect("a watch");
    harness.end(listen.stream);
    for _ in 0..600 {
        harness.advance(seconds(1));
        while let Some(exchange) = harness.find(|_| true) {
            harness.status(exchange.stream, 401);
        }
        harness.client.denied(harness.now, "no");
        harness.pump();
    }
    assert!(
        harness.challenges() <= 3,
        "asked {} times",
        harness.challenges()
    );
    // The refusal of the link's own stream does not end the epoch, because calls may still work.
    assert_eq!(
        (harness.epochs_opened, harness.client.state()),
        (1, State::Ready)
    );
    harness.call("tools/call", json!({"name": "add"}));
    let challenges_before = harness.challenges();
    let post = harness.next_post("tools/call");
    harness.status(post.stream, 401);
    assert_eq!(
        harness.challenges(),
        challenges_before + 1,
        "a call asks for credentials again"
    );
}

/// A link that is parked because the application denied credentials for the first handshake.
fn denied() -> Harness {
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.status(probe.stream, 401);
    harness.client.denied(harness.now, "no");
    harness.pump();
    assert_eq!(
        (harness.challenges(), harness.client.state()),
        (1, State::Parked)
    );
    harness
}

#[test]
fn f_114_own_attempt_of_a_parked_link_does_not_ask_for_credentials_again() {
    let mut harness = denied();
    await_attempt(&mut harness);
    let probe = harness.next_post("server/discover");
    harness.status(probe.stream, 401);
    assert_eq!(
        (harness.challenges(), harness.client.state()),
        (1, State::Parked)
    );
    let ended = harness.client.last_end().expect("an end");
    assert_eq!(ended.cause, Cause::Unauthorized);
}

#[test]
fn f_114_call_wake_or_connect_after_a_denial_asks_for_credentials_again() {
    let triggers: [fn(&mut Harness); 3] = [
        |harness| {
            harness.call("tools/call", json!({"name": "add"}));
        },
        |harness| harness.client.wake(harness.now),
        |harness| harness.client.connect(harness.now),
    ];
    for trigger in triggers {
        let mut harness = denied();
        harness.advance(seconds(10));
        trigger(&mut harness);
        harness.pump();
        let probe = harness.next_post("server/discover");
        harness.status(probe.stream, 401);
        assert_eq!(harness.challenges(), 2);
        assert!(harness.client.awaits_authorization());
    }
}

#[test]
fn f_114_resume_refused_three_times_with_401_fails_the_call_as_cut() {
    let mut harness = Harness::legacy();
    let call = harness.call("tools/call", json!({"name": "add"}));
    let post = harness.next_post("tools/call");
    harness.begin_stream(post.stream);
    harness.bytes(post.stream, b"id: 4\ndata:\n\n");
    harness.end(post.stream);
    let mut refused = 0;
    while !harness.is_settled(call) {
        harness.advance(seconds(2));
        let resume = harness.next_exchange(Verb::Get);
        harness.status(resume.stream, 401);
        refused += 1;
        harness.client.authorized(harness.now);
        harness.pump();
    }
    assert_eq!(refused, 3);
    assert_eq!(harness.failure(call).kind, FailureKind::Cut);
    assert_eq!((harness.epochs_opened, harness.client.failures()), (1, 0));
}

#[test]
fn f_114_new_credentials_restart_the_handshake_timeouts() {
    let legacy = || {
        let mut config = config();
        config.dialect = Dialect::Legacy;
        let mut harness = Harness::new(config);
        harness.connect();
        harness
    };
    // Half of the time is for the present transport.
    let mut harness = legacy();
    let post = harness.next_post("initialize");
    harness.status(post.stream, 401);
    harness.advance(seconds(300));
    harness.client.authorized(harness.now);
    harness.pump();
    harness.next_post("initialize");
    harness.advance(seconds(59));
    assert_eq!(harness.count(is_get), 0);
    harness.advance(seconds(1));
    assert_eq!(harness.count(is_get), 1, "the link tries the old transport");
    // The transport of 2024-11-05 has its own time.
    let mut harness = legacy();
    let post = harness.next_post("initialize");
    harness.status(post.stream, 405);
    let get = harness.next_exchange(Verb::Get);
    harness.status(get.stream, 401);
    harness.client.authorized(harness.now);
    harness.advance(seconds(9));
    harness.next_exchange(Verb::Get);
    assert_eq!(harness.client.state(), State::Handshaking);
    harness.advance(seconds(1));
    assert_ne!(harness.client.state(), State::Handshaking);
    assert!(
        harness.last_end().contains("in time"),
        "{}",
        harness.last_end()
    );
}

#[test]
fn f_114_handshake_refused_three_times_with_401_ends_as_unauthorized() {
    let mut harness = Harness::new(config());
    harness.connect();
    let mut refused = 0;
    while harness.client.state() == State::Handshaking {
        let probe = harness.next_post("server/discover");
        harness.status(probe.stream, 401);
        refused += 1;
        harness.client.authorized(harness.now);
        harness.pump();
    }
    assert_eq!(refused, 3);
    let ended = harness.client.last_end().expect("an end");
    assert_eq!(ended.cause, Cause::Unauthorized);
    assert_eq!(harness.client.failures(), 0);
}

#[test]
fn f_114_watch_refused_with_401_keeps_the_link_ready() {
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.serve(&probe);
    for _ in 0..10 {
        while let Some(listen) = harness.find(|b| b.method() == "subscriptions/listen") {
            harness.status(listen.stream, 401);
        }
        harness.client.authorized(harness.now);
        harness.pump();
    }
    assert_eq!(
        (harness.epochs_opened, harness.client.state()),
        (1, State::Ready)
    );
}

#[test]
fn f_114_denied_credentials_fail_a_list_as_unauthorized() {
    let mut harness = Harness::modern();
    let call = harness
        .client
        .list(harness.now, List::Tools, CallOptions::new())
        .expect("accepted");
    harness.pump();
    let post = harness.next_post("tools/list");
    harness.status(post.stream, 401);
    harness.client.denied(harness.now, "no");
    harness.pump();
    let failure = harness.failure(call);
    assert!(matches!(failure.kind, FailureKind::Unauthorized { .. }));
}

#[test]
fn f_114_initialized_refused_with_401_is_sent_ten_times_at_most() {
    let mut config = config();
    config.dialect = Dialect::Legacy;
    let mut harness = Harness::new(config);
    harness.connect();
    harness.answer_initialize("s-1");
    for _ in 0..100 {
        while let Some(post) = harness.find(|b| b.method() == "notifications/initialized") {
            harness.status(post.stream, 401);
        }
        harness.client.authorized(harness.now);
        harness.pump();
    }
    let sent = harness.count(|b| b.method() == "notifications/initialized");
    assert!(sent <= 10, "{sent} times");
}

#[test]
fn f_116_failure_text_names_the_call_and_the_cause() {
    type EndExchange = fn(&mut Harness, &Exchange);
    let endings: [(EndExchange, &[&str]); 8] = [
        (|harness, post| harness.status(post.stream, 418), &["418"]),
        (
            |harness, post| harness.status(post.stream, 500),
            &["500", "may have run"],
        ),
        (
            |harness, post| {
                harness.begin_stream(post.stream);
                harness.end(post.stream);
            },
            &["broke off", "may have run"],
        ),
        (|harness, post| harness.status(post.stream, 202), &["202"]),
        (
            |harness, post| {
                harness.respond(post.stream, 200, &[("content-type", "text/html")], "<html>")
            },
            &["neither JSON nor a stream"],
        ),
        (
            |harness, _| harness.advance(seconds(60)),
            &["in time", "1 min"],
        ),
        (
            |harness, _| {
                harness.client.shutdown(harness.now);
                harness.pump();
            },
            &["shut down"],
        ),
        (
            |harness, post| {
                harness.status(post.stream, 401);
                harness.client.denied(harness.now, "no such user");
                harness.pump();
            },
            &["credentials", "no such user", "did not run"],
        ),
    ];
    for (end, words) in endings {
        let mut harness = Harness::modern();
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        end(&mut harness, &post);
        let text = harness.failure(call).to_string();
        for word in ["tools/call", "add", "call 1"].iter().chain(words) {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}

#[test]
fn f_116_text_of_an_ended_epoch_names_the_fault_or_the_statuses() {
    for (fault, words) in [
        (FaultKind::Refused, "refused"),
        (FaultKind::NameNotFound, "name could not be resolved"),
        (FaultKind::Tls, "secure channel"),
        (FaultKind::TimedOut, "timed out"),
    ] {
        let mut harness = Harness::new(config());
        harness.connect();
        let probe = harness.next_post("server/discover");
        harness.fail(probe.stream, fault);
        let text = harness.last_end();
        assert!(text.contains(words), "{text}");
        assert!(text.contains("could not be reached"), "{text}");
    }
    let mut harness = Harness::new(config());
    harness.connect();
    let probe = harness.next_post("server/discover");
    harness.status(probe.stream, 502);
    let post = harness.next_post("initialize");
    harness.status(post.stream, 504);
    for status in ["502", "504"] {
        assert!(
            harness.last_end().contains(status),
            "{}",
            harness.last_end()
        );
    }
}

#[test]
fn f_116_failure_of_a_call_to_an_unreachable_server_names_the_fault() {
    for (fault, words) in [
        (FaultKind::Tls, "secure channel"),
        (FaultKind::Reset, "reset"),
        (FaultKind::TimedOut, "timed out"),
    ] {
        let mut harness = Harness::modern();
        let call = harness.call("tools/call", json!({"name": "add"}));
        let post = harness.next_post("tools/call");
        // Another call is running, so that the epoch does not end yet.
        harness.call("tools/call", json!({"name": "add"}));
        harness.fail(post.stream, fault);
        assert_eq!(harness.client.state(), State::Draining);
        let failure = harness.failure(call);
        assert!(failure.to_string().contains(words), "{failure}");
        let cause = failure.ended.map(|ended| ended.cause.clone());
        assert_eq!(cause, Some(Cause::Unreachable));
    }
}

/// The driver slept for long: a call timed out in the second epoch, and so did that epoch.
#[test]
fn f_116_timed_out_call_names_the_end_before_it_and_not_a_later_one() {
    let mut harness = Harness::new(config());
    let call = harness.call("tools/call", json!({"name": "add"}));
    let first = harness.client.epoch();
    let probe = harness.next_post("server/discover");
    harness.fail(probe.stream, FaultKind::Refused);
    harness.advance(seconds(1));
    harness.next_post("server/discover");
    harness.now = harness.now + seconds(200);
    harness.client.handle_timeout(harness.now);
    harness.pump();
    assert_ne!(
        harness.client.last_end().map(|ended| ended.epoch),
        Some(first)
    );
    let ended = harness.failure(call).ended.expect("an end");
    assert_eq!((ended.epoch, &ended.cause), (first, &Cause::Unreachable));
}

/// The link reads the pages of a list itself and retries them. When it gives up, the failure names the cause.
#[test]
fn f_116_list_whose_page_is_cut_three_times_fails_as_cut() {
    let mut harness = Harness::legacy();
    let call = harness.list(List::Tools);
    for attempt in 1..=3 {
        let post = harness.next_post("tools/list");
        harness.fail(post.stream, FaultKind::Reset);
        assert_eq!(harness.is_settled(call), attempt == 3);
        harness.advance(seconds(1));
        if let Some(ping) = harness.find(|exchange| exchange.method() == "ping") {
            harness.serve(&ping);
            harness.refuse_listen();
        }
    }
    assert_eq!(harness.failure(call).kind, FailureKind::Cut);
}
