//! Failures of calls, budgets, ends, limits and credentials over HTTP, where they differ from a child process. Each test is named
//! after its row in the catalogue of failures.

use core::time::Duration;

use crate::client_http::{Begun, Web, complete, config, error, result, seconds};
use everlink::client::{
    Blame, CallOptions, Cause, Delivery, Event, FailureKind, Misuse, Outcome, State, TimeLimit,
};
use everlink::http::{ResponseHead, Verb};
use everlink::protocol::ClientCapabilities;
use everlink::{AskId, Config, Dialect, FaultKind, Input, Instant, Limit, List, Payload, Wake};
use serde_json::{Value, json};

fn is_call(begun: &Begun) -> bool {
    begun.method() == "tools/call"
}

fn is_get(begun: &Begun) -> bool {
    begun.verb == Verb::Get
}

fn both_eras() -> [Web; 2] {
    [Web::modern(), Web::legacy()]
}

/// A configuration that supports asks for roots.
fn capable() -> Config {
    let mut config = config();
    config.capabilities =
        serde_json::from_str::<ClientCapabilities>(r#"{"roots": {}}"#).expect("capabilities");
    config
}

fn asked(web: &Web) -> AskId {
    let ask = web.events.iter().rev().find_map(|event| match event {
        Event::Ask(ask) => Some(ask.ask),
        _ => None,
    });
    ask.expect("a question")
}

fn roots() -> Payload {
    r#"{"roots":[]}"#.parse().expect("JSON")
}

fn wakes(web: &Web) -> Option<Wake> {
    web.client.poll_timeout().map(|due| due.wake)
}

/// Advances the clock until the next attempt.
fn await_attempt(web: &mut Web) {
    let opens = web.opens;
    while web.opens == opens {
        web.pass(Duration::from_millis(100));
    }
}

/// Fails every exchange until the link is parked.
fn park(web: &mut Web) {
    while web.client.state() != State::Parked {
        while let Some(begun) = web.find(|_| true) {
            web.fail(begun.stream, FaultKind::Refused);
        }
        web.pass(Duration::from_millis(100));
    }
}

#[test]
fn f_062_every_exchange_has_a_deadline() {
    // The request is sent, and no response comes.
    for mut web in both_eras() {
        let call = web.call("tools/call", json!({"name": "add"}));
        web.pass(seconds(60));
        let failure = web.failure(call);
        let idle = TimeLimit::Idle;
        assert!(matches!(failure.kind, FailureKind::TimedOut { limit, .. } if limit == idle));
        assert_eq!(failure.delivery, Delivery::Unknown);
        assert_eq!(failure.after, seconds(60));
    }
    // The response has begun, and does not continue.
    for head in [200, 404, 500] {
        let mut web = Web::modern();
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.head(post.stream, head, &[("content-type", "application/json")]);
        web.pass(seconds(60));
        assert!(web.is_settled(call), "status {head}");
        assert!(web.aborted.contains(&post.stream));
    }
    // The request was never sent.
    let mut web = Web::new(config());
    let call = web.call("tools/call", json!({"name": "add"}));
    web.pass(seconds(60));
    let failure = web.failure(call);
    assert_eq!(failure.delivery, Delivery::NotSent);
    // Several epochs end meanwhile.
    let mut web = Web::new(config());
    let brief = CallOptions::new().with_idle(Limit::After(seconds(5)));
    let call = web.call_with("tools/call", json!({"name": "add"}), brief);
    while !web.is_settled(call) && web.now < Instant::ZERO + seconds(5) {
        while let Some(begun) = web.find(|_| true) {
            web.fail(begun.stream, FaultKind::Refused);
        }
        web.pass(Duration::from_millis(100));
    }
    assert!(web.opens > 1);
    let failure = web.failure(call);
    assert_eq!(failure.kind, FailureKind::Down, "before its host gives up");
    assert!(failure.after < seconds(5), "{failure}");
}

#[test]
fn f_062_a_message_without_a_reply_has_a_deadline_too() {
    let mut web = Web::legacy();
    for _ in 0..3_000 {
        web.client
            .notify(web.now, "notifications/strange", None)
            .expect("accepted");
        web.pump();
        web.posted("notifications/strange");
        while let Some(post) = web.find(|begun| begun.method() == "ping") {
            web.serve(&post);
        }
        web.pass(seconds(1));
    }
    assert!(web.open() < 100, "{} exchanges are open", web.open());
    assert_eq!((web.opens, web.client.state()), (1, State::Ready));
}

#[test]
fn f_062_an_exchange_whose_call_is_settled_does_not_stay_open() {
    let mut web = Web::legacy_with_news();
    let news = web.begun(Verb::Get);
    web.stream(news.stream);
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.event(news.stream, None, &result(&post, json!({"content": []})));
    assert!(web.reply(call).is_ok());
    web.pass(seconds(1));
    assert!(web.is_open(post.stream), "it may end by itself");
    web.pass(seconds(1));
    assert_eq!(web.open(), 1, "the stream of news");
}

/// A legacy request is cancelled with a notification. Aborting its exchange would tell the server nothing.
#[test]
fn f_062_a_legacy_exchange_whose_call_is_cancelled_may_end_by_itself() {
    let mut web = Web::legacy();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.cancel(call);
    web.posted("notifications/cancelled");
    assert!(web.is_open(post.stream));
    web.pass(seconds(2));
    assert!(!web.is_open(post.stream));
}

#[test]
fn f_062_a_probe_that_is_never_answered_does_not_stay_open() {
    let mut web = Web::new(config());
    web.connect();
    let probe = web.posted("server/discover");
    web.pass(seconds(3));
    web.agree_legacy("2025-11-25", Some("s-1"));
    assert!(web.is_open(probe.stream), "it may be answered yet");
    web.pass_served(seconds(120));
    assert!(!web.is_open(probe.stream));
}

#[test]
fn f_062_the_end_of_a_handshake_has_a_deadline() {
    let mut config = config();
    config.dialect = Dialect::Legacy;
    let mut web = Web::new(config);
    web.connect();
    web.introduce("s-1");
    web.posted("notifications/initialized");
    let call = web.call("resources/read", json!({"uri": "file:///a"}));
    web.pass(seconds(30));
    let is_sent = web.count(|begun| begun.method() == "resources/read") == 1;
    assert!(is_sent || web.opens > 1 || web.is_settled(call));
}

#[test]
fn f_063_a_server_is_told_of_a_timeout_in_the_words_of_its_era() {
    let mut web = Web::modern();
    web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.pass(seconds(60));
    assert!(web.aborted.contains(&post.stream));
    assert_eq!(web.count(|b| b.method() == "notifications/cancelled"), 0);

    let mut web = Web::legacy();
    web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.pass(seconds(60));
    // Other cancellations belong to unanswered probes.
    let notice = loop {
        let notice = web.posted("notifications/cancelled");
        if notice.body["params"]["requestId"] == post.body["id"] {
            break notice;
        }
        web.status(notice.stream, 202);
    };
    assert_eq!(notice.body["params"]["requestId"], post.body["id"]);
    assert_eq!(notice.field("mcp-session-id"), Some("s-1"));
    web.status(notice.stream, 202);
    web.pass(seconds(3));
    assert_eq!(web.open(), 1, "only the question whether anybody is there");
}

#[test]
fn f_064_what_comes_too_late_or_to_nobody_is_passed_over() {
    let mut web = Web::legacy_with_news();
    let news = web.begun(Verb::Get);
    web.stream(news.stream);
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.pass_served(seconds(60));
    assert!(matches!(
        web.failure(call).kind,
        FailureKind::TimedOut { .. }
    ));
    web.event(news.stream, None, &result(&post, json!({"content": []})));
    assert_eq!(web.client.stats().late_replies, 1);
    for id in [json!(9_999), json!("9"), json!(-1)] {
        let stray = json!({"jsonrpc": "2.0", "id": id, "result": {}});
        web.event(news.stream, None, &stray);
    }
    assert!(!web.is_settled(call));
    assert_eq!(web.client.state(), State::Ready);
    assert_eq!(web.opens, 1);
}

#[test]
fn f_064_what_belongs_to_an_exchange_that_is_over_is_counted_and_dropped() {
    let mut web = Web::modern();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.serve(&post);
    assert!(web.reply(call).is_ok());
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
        web.client.handle(web.now, post.epoch, input);
        web.pump();
        assert_eq!(web.client.stats().stale_inputs, dropped);
    }
    assert_eq!((web.opens, web.client.state()), (1, State::Ready));
}

/// An informational response is not the response, and a second response is ignored.
#[test]
fn f_064_an_exchange_has_one_response() {
    for mut web in both_eras() {
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        let heard = web.client.stats().bytes_in;
        web.head(post.stream, 103, &[("link", "</style.css>")]);
        web.head(post.stream, 200, &[("content-type", "application/json")]);
        web.head(post.stream, 404, &[]);
        let body = complete(&post, json!({"content": []})).to_string();
        web.bytes(post.stream, body.as_bytes());
        web.end(post.stream);
        assert!(web.reply(call).is_ok());
        assert_eq!(web.client.stats().bytes_in, heard + body.len() as u64);
    }
}

#[test]
fn f_066_progress_on_the_stream_moves_the_one_limit_and_not_the_other() {
    for mut web in both_eras() {
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.stream(post.stream);
        let token = &post.body["params"]["_meta"]["progressToken"];
        for step in 1..=11 {
            web.pass_served(seconds(50));
            assert!(!web.is_settled(call), "after {step} steps");
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": token, "progress": step}});
            web.event(post.stream, None, &progress);
        }
        web.pass_served(seconds(50));
        let total = TimeLimit::Total;
        let failure = web.failure(call);
        assert!(matches!(failure.kind, FailureKind::TimedOut { limit, .. } if limit == total));
        assert_eq!(failure.after, seconds(600));
    }
    // Bytes that only keep the stream alive do not reset the idle timeout of the call.
    let mut web = Web::modern();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.stream(post.stream);
    for _ in 0..59 {
        web.pass(seconds(1));
        web.bytes(post.stream, b": still here\n\n");
    }
    assert!(!web.is_settled(call));
    web.pass(seconds(1));
    assert!(web.is_settled(call));
}

#[test]
fn f_067_while_a_person_is_asked_no_clock_runs() {
    // Legacy: the ask comes on the stream of its call.
    let mut web = Web::legacy_with(capable(), "2025-11-25");
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.stream(post.stream);
    let question = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
    web.event(post.stream, None, &question);
    web.pass_served(seconds(500));
    assert!(!web.is_settled(call));
    web.client
        .answer(web.now, asked(&web), Ok(roots()))
        .expect("open");
    web.pump();
    let answer = web
        .find(|begun| begun.body["id"] == "q")
        .expect("an answer");
    assert_eq!(answer.verb, Verb::Post);
    web.status(answer.stream, 202);
    web.event(post.stream, None, &result(&post, json!({"content": []})));
    assert!(web.reply(call).is_ok());
    // Modern: the ask is the response, and the answer is another request.
    let mut web = Web::modern_with(capable());
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    let wanted = json!({"resultType": "input_required", "requestState": "s",
        "inputRequests": {"q": {"method": "roots/list"}}});
    web.json(post.stream, 200, &result(&post, wanted));
    web.pass_served(seconds(500));
    assert!(!web.is_settled(call));
    web.client
        .answer(web.now, asked(&web), Ok(roots()))
        .expect("open");
    web.pump();
    let again = web.posted("tools/call");
    assert_ne!(again.body["id"], post.body["id"]);
    assert_eq!(again.body["params"]["requestState"], "s");
    web.serve(&again);
    assert!(web.reply(call).is_ok());
}

#[test]
fn f_068_a_question_is_answered_while_everything_else_waits() {
    let mut config = capable();
    config.limits.calls_in_flight = 1;
    let mut web = Web::legacy_with(config, "2025-11-25");
    let call = web.call("tools/call", json!({"name": "add"}));
    let waiting = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    assert_eq!(web.unseen(), 0, "the other waits");
    web.stream(post.stream);
    let question = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
    web.event(post.stream, None, &question);
    web.client
        .answer(web.now, asked(&web), Ok(roots()))
        .expect("open");
    web.pump();
    let answer = web.find(|begun| begun.body["id"] == "q");
    assert!(answer.is_some());
    web.event(post.stream, None, &result(&post, json!({"content": []})));
    assert!(web.reply(call).is_ok());
    let post = web.posted("tools/call");
    web.serve(&post);
    assert!(web.reply(waiting).is_ok());
}

#[test]
fn f_069_a_blip_leaves_a_modern_call_unknown_and_it_is_not_repeated() {
    for fault in [FaultKind::Reset, FaultKind::TimedOut, FaultKind::Closed] {
        let mut web = Web::modern();
        let acts = web.call("tools/call", json!({"name": "act"}));
        let reads = web.call("resources/read", json!({"uri": "file:///a"}));
        let (act, read) = (web.posted("tools/call"), web.posted("resources/read"));
        for post in [&act, &read] {
            web.stream(post.stream);
            // A modern stream cannot be resumed, even if its events have ids.
            web.bytes(post.stream, b"id: e-1\ndata:\n\n");
            web.fail(post.stream, fault);
        }
        let failure = web.failure(acts);
        assert_eq!(failure.kind, FailureKind::Cut);
        assert_eq!(failure.delivery, Delivery::Unknown);
        assert_eq!(failure.blame(), Blame::Transport);
        let again = web.posted("resources/read");
        assert_ne!(again.body["id"], read.body["id"]);
        web.serve(&again);
        assert!(web.reply(reads).is_ok());
        web.pass_served(seconds(60));
        assert_eq!(web.count(is_call), 1);
        assert_eq!(web.count(is_get), 0);
        assert_eq!(web.opens, 1);
    }
}

#[test]
fn f_071_what_a_planned_close_meets_on_the_way_is_free() {
    for fault in [
        FaultKind::Aborted,
        FaultKind::BrokenPipe,
        FaultKind::Closed,
        FaultKind::Reset,
    ] {
        let mut web = Web::legacy();
        let call = web.call("resources/read", json!({"uri": "file:///a"}));
        let post = web.posted("resources/read");
        web.client
            .reconnect(web.now, web.client.epoch(), "asked to");
        web.pump();
        assert_eq!(web.client.state(), State::Draining);
        web.fail(post.stream, fault);
        let farewell = web.begun(Verb::Delete);
        web.fail(farewell.stream, fault);
        let ended = web.client.last_end().expect("an end");
        assert!(!ended.counted, "{fault:?}");
        assert_eq!(web.client.failures(), 0);
        assert!(!web.is_settled(call), "it only reads, and is asked again");
    }
}

#[test]
fn f_072_one_real_fault_among_others_counts() {
    for (faults, counts) in [
        (&[FaultKind::Closed, FaultKind::Reset][..], false),
        (&[FaultKind::Closed, FaultKind::Tls, FaultKind::Reset], true),
    ] {
        let mut web = Web::modern();
        web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.client
            .reconnect(web.now, web.client.epoch(), "asked to");
        web.pump();
        web.fail_with(post.stream, faults);
        let ended = web.client.last_end().expect("an end");
        assert_eq!(ended.faults.len(), faults.len(), "none is dropped");
        assert_eq!(ended.counted, counts);
        assert_eq!(web.client.failures(), u32::from(counts));
    }
}

#[test]
fn f_073_a_good_while_wipes_out_the_failures_before_it() {
    let mut web = Web::new(config());
    web.connect();
    for failures in 1..=4 {
        let probe = web.posted("server/discover");
        web.fail(probe.stream, FaultKind::Refused);
        assert_eq!(web.client.failures(), failures);
        await_attempt(&mut web);
    }
    web.agree_modern();
    assert_eq!(web.client.failures(), 4, "ready is not good yet");
    web.pass_served(seconds(61));
    assert_eq!(web.client.failures(), 0);
}

#[test]
fn f_074_a_parked_link_looks_by_itself_and_when_woken() {
    let mut web = Web::new(config());
    web.connect();
    park(&mut web);
    let opens = web.opens;
    web.pass(seconds(61));
    assert_eq!(web.opens, opens + 1, "by itself");
    park(&mut web);
    let opens = web.opens;
    web.pass(seconds(1));
    web.client.wake(web.now);
    web.pump();
    assert_eq!(web.opens, opens + 1, "when woken");
    web.agree_modern();
}

#[test]
fn f_077_many_who_see_one_trouble_cause_one_reconnect() {
    let mut web = Web::modern();
    let seen = web.client.epoch();
    let calls: Vec<_> = (0..50)
        .map(|_| web.call("resources/read", json!({"uri": "file:///a"})))
        .collect();
    let posts: Vec<_> = calls.iter().map(|_| web.posted("resources/read")).collect();
    for post in posts {
        web.fail(post.stream, FaultKind::Refused);
        web.client.reconnect(web.now, seen, "it is gone");
        web.pump();
    }
    web.pass(seconds(1));
    for _ in 0..50 {
        web.client.reconnect(web.now, seen, "it is gone");
        web.pump();
    }
    web.agree_modern();
    assert_eq!((web.opens, web.client.stats().failures), (2, 1));
    web.pass_served(seconds(1));
    for call in calls {
        assert!(web.reply(call).is_ok());
    }
}

#[test]
fn f_078_a_call_to_a_parked_link_is_itself_the_wish() {
    let mut web = Web::new(config());
    web.connect();
    park(&mut web);
    web.pass(seconds(6));
    let opens = web.opens;
    let call = web.call("tools/call", json!({"name": "add"}));
    assert_eq!(web.opens, opens + 1);
    web.agree_modern();
    let post = web.posted("tools/call");
    web.serve(&post);
    assert!(web.reply(call).is_ok());
}

#[test]
fn f_080_f_082_an_error_of_the_application_is_a_sign_of_health() {
    type Says = fn(&Begun) -> (u16, Value);
    let says: [Says; 6] = [
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
    for says in says {
        let mut web = Web::modern();
        for _ in 0..20 {
            let call = web.call("tools/call", json!({"name": "add"}));
            let post = web.posted("tools/call");
            let (status, body) = says(&post);
            web.json(post.stream, status, &body);
            let outcome = web.outcome(call);
            assert!(
                matches!(outcome, Outcome::Error(_) | Outcome::Reply(_)),
                "{outcome:?}"
            );
        }
        assert_eq!(web.client.state(), State::Ready);
        assert_eq!((web.opens, web.client.failures()), (1, 0));
    }
}

#[test]
fn f_081_what_may_have_run_is_not_run_again() {
    type Ends = fn(&mut Web, &Begun);
    let ends: [Ends; 6] = [
        |web, post| web.fail(post.stream, FaultKind::Reset),
        |web, post| web.fail(post.stream, FaultKind::TimedOut),
        |web, post| web.end(post.stream),
        |web, post| web.status(post.stream, 502),
        |web, post| web.status(post.stream, 504),
        |web, post| {
            web.head(post.stream, 200, &[("content-type", "application/json")]);
            web.bytes(post.stream, b"{\"jsonrpc\":");
            web.fail(post.stream, FaultKind::Reset);
        },
    ];
    for ends in ends {
        for mut web in both_eras() {
            let call = web.call("tools/call", json!({"name": "act"}));
            let post = web.posted("tools/call");
            ends(&mut web, &post);
            assert_eq!(web.failure(call).delivery, Delivery::Unknown);
            web.pass_served(seconds(60));
            assert_eq!(web.count(is_call), 1);
        }
    }
}

#[test]
fn f_081_what_was_not_run_or_may_be_run_twice_is_sent_again() {
    type Ends = fn(&mut Web, &Begun);
    let unread: [Ends; 4] = [
        |web, post| web.fail(post.stream, FaultKind::Refused),
        |web, post| web.fail(post.stream, FaultKind::NameNotFound),
        |web, post| web.respond(post.stream, 429, &[("retry-after", "1")], ""),
        |web, post| {
            web.status(post.stream, 401);
            web.client.authorized(web.now);
            web.pump();
        },
    ];
    for ends in unread {
        let mut web = Web::modern();
        let call = web.call("tools/call", json!({"name": "act"}));
        let post = web.posted("tools/call");
        ends(&mut web, &post);
        web.pass_served(seconds(5));
        assert!(web.reply(call).is_ok());
        assert_eq!(web.count(is_call), 2);
        let ids: Vec<_> = web.all.iter().filter(|b| is_call(b)).collect();
        assert_ne!(ids[0].body["id"], ids[1].body["id"]);
    }
    // The reply is cut off, as an event stream or as JSON.
    let cut: [Ends; 2] = [
        |web, post| {
            web.stream(post.stream);
            web.fail(post.stream, FaultKind::Reset);
        },
        |web, post| {
            web.head(post.stream, 200, &[("content-type", "application/json")]);
            web.bytes(post.stream, b"{\"jsonrpc\":");
            web.fail(post.stream, FaultKind::Reset);
        },
    ];
    for ends in cut {
        let mut web = Web::modern();
        let idempotent = CallOptions::new().idempotent();
        let call = web.call_with("tools/call", json!({"name": "act"}), idempotent);
        let post = web.posted("tools/call");
        ends(&mut web, &post);
        web.pass_served(seconds(5));
        assert!(web.reply(call).is_ok());
        assert_eq!(web.count(is_call), 2);
        assert_eq!(web.client.stats().requeued, 1);
    }
}

#[test]
fn f_081_a_gateway_that_asks_for_patience_has_perhaps_passed_the_call_on() {
    let mut web = Web::modern();
    let call = web.call("tools/call", json!({"name": "act"}));
    let post = web.posted("tools/call");
    web.respond(post.stream, 503, &[("retry-after", "1")], "");
    web.pass_served(seconds(10));
    assert_eq!(web.count(is_call), 1);
    assert_eq!(web.failure(call).delivery, Delivery::Unknown);
}

#[test]
fn f_083_any_byte_is_a_sign_of_life_and_work_is_no_silence() {
    // A call is running. A server that serves one request at a time answers no probe meanwhile.
    for mut web in both_eras() {
        let options = CallOptions::new().with_idle(Limit::After(seconds(500)));
        let call = web.call_with("tools/call", json!({"name": "slow"}), options);
        let post = web.posted("tools/call");
        web.pass(seconds(119));
        web.serve(&post);
        assert!(web.reply(call).is_ok());
        assert_eq!(web.opens, 1);
    }
    // Bytes on the listen stream show that the server is alive.
    let mut web = Web::legacy_with_news();
    let news = web.begun(Verb::Get);
    web.stream(news.stream);
    for _ in 0..60 {
        web.pass(seconds(15));
        web.bytes(news.stream, b": here\n\n");
    }
    assert_eq!(web.client.stats().probes, 0);
}

#[test]
fn f_084_a_quiet_server_is_probed_in_the_words_of_its_era() {
    let mut web = Web::legacy();
    web.pass(seconds(31));
    let ping = web.posted("ping");
    web.json(ping.stream, 200, &error(&ping, -32_601));
    web.pass(seconds(15));
    assert_eq!(web.client.state(), State::Ready, "it knows no ping");

    let mut web = Web::modern();
    web.pass(seconds(31));
    let probe = web.posted("server/discover");
    web.serve(&probe);
    web.pass(seconds(15));
    assert_eq!(web.client.state(), State::Ready);

    // A silent server keeps its epoch until the application calls something.
    for mut web in both_eras() {
        web.pass(seconds(120));
        assert_eq!(web.client.state(), State::Ready);
        assert!(web.was_told(|event| matches!(event, Event::Silent { .. })));
        web.call("tools/call", json!({"name": "add"}));
        web.pass(seconds(40));
        let cause = web.client.last_end().map(|ended| ended.cause.clone());
        assert!(
            matches!(cause, Some(Cause::Unresponsive { .. })),
            "{cause:?}"
        );
    }
}

#[test]
fn f_084_a_refusal_is_a_sign_of_life_and_a_failure_is_none() {
    for (status, is_alive) in [(405, true), (499, true), (500, false), (502, false)] {
        let mut web = Web::legacy();
        for second in 0..300 {
            web.pass(seconds(1));
            if second == 100 {
                web.call("tools/call", json!({"name": "slow"}));
            }
            while let Some(ping) = web.find(|begun| begun.method() == "ping") {
                web.status(ping.stream, status);
            }
        }
        let is_still_there = (web.opens, web.client.state()) == (1, State::Ready);
        assert_eq!(is_still_there, is_alive, "{status}");
    }
}

#[test]
fn f_085_something_is_due_in_every_state_but_the_last() {
    let mut web = Web::new(config());
    web.connect();
    assert!(wakes(&web).is_some(), "handshaking");
    let probe = web.posted("server/discover");
    web.status(probe.stream, 401);
    assert_eq!(wakes(&web), Some(Wake::Auth), "without credentials");
    web.client.authorized(web.now);
    web.pump();
    assert!(wakes(&web).is_some(), "with others");
    web.agree_modern();
    assert!(wakes(&web).is_some(), "ready");
    web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.respond(post.stream, 429, &[("retry-after", "1")], "");
    assert!(wakes(&web).is_some(), "left alone");
    web.pass(seconds(2));
    web.client
        .reconnect(web.now, web.client.epoch(), "asked to");
    web.pump();
    assert_eq!(web.client.state(), State::Draining);
    assert!(wakes(&web).is_some(), "draining");
    let post = web.posted("tools/call");
    web.fail(post.stream, FaultKind::Tls);
    assert_eq!(web.client.state(), State::Waiting);
    assert_eq!(wakes(&web), Some(Wake::Backoff));
    park(&mut web);
    assert_eq!(wakes(&web), Some(Wake::Parked));
    web.client.shutdown(web.now);
    web.pump();
    assert_eq!(web.client.state(), State::Closed);
    assert_eq!(wakes(&web), None);
}

#[test]
fn f_086_closed_is_closed() {
    let mut web = Web::legacy();
    web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.status(post.stream, 401);
    let epoch = web.client.epoch();
    web.client.shutdown(web.now);
    web.pass(seconds(10));
    assert_eq!(web.client.state(), State::Closed);
    let begun = web.all.len();
    web.client.authorized(web.now);
    web.client.connect(web.now);
    web.client.wake(web.now);
    web.client.reconnect(web.now, epoch, "asked to");
    let stream = post.stream;
    let head = Box::new(ResponseHead::new(200));
    web.client
        .handle(web.now, epoch, Input::Response { stream, head });
    web.pass(seconds(600));
    assert_eq!(web.client.state(), State::Closed);
    assert_eq!((web.opens, web.all.len()), (1, begun));
    let refused = web
        .client
        .call(web.now, "tools/list", None, CallOptions::new());
    assert_eq!(refused, Err(Misuse::Closed));
}

#[test]
fn f_087_every_attempt_is_a_fresh_one() {
    let mut web = Web::new(config());
    web.connect();
    for life in 1..=5 {
        let probe = web.posted("server/discover");
        assert_eq!(probe.epoch.number(), life);
        web.fail(probe.stream, FaultKind::Refused);
        assert_eq!(web.open(), 0);
        await_attempt(&mut web);
    }
    web.agree_modern();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.serve(&post);
    assert!(web.reply(call).is_ok());
}

#[test]
fn f_101_no_stream_of_ours_outlives_the_link() {
    let (old, _) = Web::old();
    let mut news = Web::legacy_with_news();
    let get = news.begun(Verb::Get);
    news.stream(get.stream);
    for mut web in [Web::modern(), news, old] {
        web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.stream(post.stream);
        assert!(web.open() >= 2);
        web.client.shutdown(web.now);
        web.pump();
        let left = web.open() - web.count(|begun| begun.verb == Verb::Delete);
        assert_eq!(left, 0, "all are cut before anything is waited for");
        web.pass(seconds(3));
        assert_eq!((web.open(), web.client.state()), (0, State::Closed));
    }
}

#[test]
fn f_102_what_is_in_flight_has_a_while_and_then_an_outcome() {
    for mut web in both_eras() {
        let quick = web.call("tools/call", json!({"name": "quick"}));
        let slow = web.call("tools/call", json!({"name": "slow"}));
        let (post, _) = (web.posted("tools/call"), web.posted("tools/call"));
        web.client
            .reconnect(web.now, web.client.epoch(), "asked to");
        web.pump();
        let new = web.call("tools/call", json!({"name": "new"}));
        web.pass(seconds(4));
        web.serve(&post);
        assert!(web.reply(quick).is_ok());
        assert_eq!(web.unseen(), 0, "nothing new is sent");
        web.pass(seconds(1));
        let failure = web.failure(slow);
        assert_eq!(failure.kind, FailureKind::Lost);
        assert_eq!(failure.delivery, Delivery::Unknown);
        assert!(!web.is_settled(new));
        web.client.shutdown(web.now);
        web.pump();
        let failure = web.failure(new);
        assert_eq!(failure.kind, FailureKind::Closed);
        assert_eq!(failure.delivery, Delivery::NotSent);
    }
}

#[test]
fn f_103_the_whole_close_has_one_deadline() {
    type Meets = fn(&mut Web, &Begun);
    let meets: [Meets; 4] = [
        |_, _| {},
        |web, farewell| web.head(farewell.stream, 500, &[]),
        |web, farewell| web.respond(farewell.stream, 503, &[("retry-after", "300")], ""),
        |web, farewell| web.status(farewell.stream, 401),
    ];
    for meet in meets {
        let mut web = Web::legacy();
        web.client.shutdown(web.now);
        web.pump();
        let farewell = web.begun(Verb::Delete);
        meet(&mut web, &farewell);
        web.pass(seconds(2));
        assert_eq!(web.client.state(), State::Closed);
        assert_eq!(web.challenges(), 0);
        assert_eq!(web.count(|begun| begun.verb == Verb::Delete), 1);
    }
}

#[test]
fn f_106_what_nobody_knows_is_told_and_harms_nobody() {
    for mut web in both_eras() {
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.stream(post.stream);
        let strange =
            json!({"jsonrpc": "2.0", "method": "notifications/strange", "params": {"a": 1}});
        web.event(post.stream, None, &strange);
        web.bytes(post.stream, b"event: strange\ndata: {}\n\nodd: field\n\n");
        let is_told = |event: &Event| matches!(event, Event::Notified { method, .. } if **method == *"notifications/strange");
        assert!(web.was_told(is_told));
        let done = json!({"resultType": "complete", "content": []});
        web.event(post.stream, None, &result(&post, done));
        assert!(web.reply(call).is_ok());
        assert_eq!(web.client.state(), State::Ready);
    }
}

#[test]
fn f_109_what_waits_is_bounded_in_bytes_both_ways() {
    // Bytes that the application wants to send.
    let mut web = Web::new(config());
    let large: Payload = json!({"name": "add", "arguments": {"a": "x".repeat(1 << 20)}})
        .to_string()
        .parse()
        .expect("JSON");
    let mut accepted = 0;
    let refused = loop {
        let params = Some(large.clone());
        match web
            .client
            .call(web.now, "tools/call", params, CallOptions::new())
        {
            Ok(_) => accepted += 1,
            Err(misuse) => break misuse,
        }
    };
    assert!(matches!(refused, Misuse::QueueFull { .. }));
    assert_eq!(accepted, 7, "8 MiB and not one more");
    // Bytes that the server sends and the application does not poll.
    let mut config = config();
    config.limits.undelivered_bytes = 10_000;
    let mut web = Web::modern_with(config);
    web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.stream(post.stream);
    assert!(web.client.wants_input(post.stream));
    let strange = json!({"jsonrpc": "2.0", "method": "notifications/strange", "params": {"a": "x".repeat(10_000)}});
    let bytes = format!("data: {strange}\n\n").into_bytes().into();
    let stream = post.stream;
    web.client
        .handle(web.now, post.epoch, Input::Bytes { stream, bytes });
    assert!(!web.client.wants_input(post.stream));
    web.pump();
    assert!(web.client.wants_input(post.stream));
}

#[test]
fn f_109_what_is_handed_to_the_driver_is_bounded_in_bytes() {
    let mut web = Web::modern();
    let large: Payload = json!({"name": "add", "arguments": {"a": "x".repeat(1 << 20)}})
        .to_string()
        .parse()
        .expect("JSON");
    for _ in 0..50 {
        let params = Some(large.clone());
        let accepted = web
            .client
            .call(web.now, "tools/call", params, CallOptions::new());
        web.pump();
        if accepted.is_err() {
            break;
        }
    }
    let begun = web.count(is_call);
    assert!(begun <= 8, "{begun} MiB are with the driver");
    // One reply was read, so there is room for the next call.
    let post = web.posted("tools/call");
    web.serve(&post);
    assert_eq!(web.count(is_call), begun + 1);
    // The system has accepted another request, so there is room again.
    let post = web.posted("tools/call");
    let (stream, len) = (post.stream, post.text.len());
    let taken = Input::Sent { stream, len };
    web.client.handle(web.now, post.epoch, taken);
    web.pump();
    assert_eq!(web.count(is_call), begun + 2);
}

#[test]
fn f_109_no_more_is_begun_than_there_is_room_for() {
    let notice = "notifications/strange";
    let mut web = Web::modern();
    web.notify(notice, &json!({}));
    let one = web.posted(notice).text.len();
    // Limit by bytes: the first message fills the queue.
    let mut config = config();
    config.limits.queued_bytes = one;
    let mut web = Web::modern_with(config);
    web.notify(notice, &json!({}));
    let first = web.posted(notice);
    assert_eq!(first.text.len(), one);
    web.notify(notice, &json!({}));
    assert_eq!(web.unseen(), 0);
    web.status(first.stream, 202);
    web.posted(notice);
    // Limit by number: 64 beside the calls.
    let mut config = capable();
    config.limits.calls_in_flight = 1;
    let mut web = Web::modern_with(config);
    let before = web.open();
    for _ in 0..80 {
        web.notify(notice, &json!({}));
    }
    assert_eq!(before + web.unseen(), 65);
    let first = web.posted(notice);
    web.status(first.stream, 202);
    assert_eq!(web.count(|begun| begun.method() == notice), 65 - before + 1);
}

#[test]
fn f_111_those_who_asked_under_older_credentials_have_their_answer() {
    let mut web = Web::modern();
    let calls: Vec<_> = (0..10)
        .map(|_| web.call("tools/call", json!({"name": "add"})))
        .collect();
    let posts: Vec<_> = calls.iter().map(|_| web.posted("tools/call")).collect();
    let (early, late) = posts.split_at(5);
    for post in early {
        web.status(post.stream, 401);
    }
    assert_eq!(web.challenges(), 1);
    assert!(web.client.awaits_authorization());
    let held = web.call("tools/call", json!({"name": "add"}));
    assert_eq!(web.unseen(), 0, "nothing is sent in vain");
    web.client.authorized(web.now);
    web.pump();
    // The other exchanges are refused only now, for the old credentials.
    for post in late {
        web.status(post.stream, 401);
    }
    assert_eq!(web.challenges(), 1, "one question for all");
    web.pass_served(seconds(1));
    for call in calls.into_iter().chain([held]) {
        assert!(web.reply(call).is_ok());
    }
    assert_eq!(web.client.failures(), 0);
}

#[test]
fn f_112_credentials_are_asked_for_with_each_request() {
    let mut web = Web::legacy();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.status(post.stream, 401);
    web.client.authorized(web.now);
    web.pump();
    assert_eq!(web.client.stats().turned_away, 1);
    // The retry is a new request, so the driver can add its newest credentials. The link holds none.
    let again = web.posted("tools/call");
    assert_ne!(again.stream, post.stream);
    assert!(web.all.iter().all(|b| b.field("authorization").is_none()));
    web.serve(&again);
    assert!(web.reply(call).is_ok());
}

#[test]
fn f_113_nobody_is_asked_for_credentials_for_what_nobody_asked_for() {
    for status in [401, 403] {
        let mut web = Web::legacy_with_news();
        let get = web.begun(Verb::Get);
        web.respond(get.stream, status, &[("www-authenticate", "Bearer")], "");
        web.pass_served(seconds(600));
        assert_eq!(web.challenges(), 0);
        assert_eq!(web.count(is_get), 1);
        assert_eq!(web.client.state(), State::Ready);
        // After new credentials for another reason, the link asks for the stream again.
        web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        web.status(post.stream, 401);
        web.client.authorized(web.now);
        web.pump();
        assert_eq!(web.count(is_get), 2);
    }
}

#[test]
fn f_114_credentials_are_no_matter_of_the_budget() {
    for status in [401, 403] {
        let mut web = Web::new(config());
        web.connect();
        let call = web.call("tools/call", json!({"name": "add"}));
        let probe = web.posted("server/discover");
        web.respond(probe.stream, status, &[("www-authenticate", "Bearer")], "");
        // Slow credentials are not a denial.
        web.pass(seconds(590));
        assert_eq!(web.client.state(), State::Handshaking);
        assert!(!web.is_settled(call));
        web.client.denied(web.now, "the user closed the window");
        web.pump();
        let failure = web.failure(call);
        assert_eq!(failure.blame(), Blame::Caller);
        assert!(failure.to_string().contains("the user closed the window"));
        assert_eq!(web.client.failures(), 0);
        assert_eq!(web.client.state(), State::Parked);
        let ended = web.client.last_end().expect("an end");
        assert_eq!(ended.cause, Cause::Unauthorized);
        assert!(!ended.counted);
        // After the next wake, the link tries again.
        web.client.wake(web.now);
        web.pump();
        web.agree_modern();
    }
}

#[test]
fn f_114_credentials_that_never_come_are_not_waited_for_for_ever() {
    let mut web = Web::new(config());
    web.connect();
    let call = web.call("tools/call", json!({"name": "add"}));
    let probe = web.posted("server/discover");
    web.status(probe.stream, 401);
    web.pass(seconds(600));
    let failure = web.failure(call);
    assert!(matches!(failure.kind, FailureKind::Unauthorized { .. }));
    assert_eq!(failure.delivery, Delivery::NotSent);
    assert!(!web.client.awaits_authorization());
    assert_eq!(web.client.failures(), 0);
}

#[test]
fn f_114_credentials_that_are_never_good_enough_end_the_call() {
    let mut web = Web::modern();
    let call = web.call("tools/call", json!({"name": "add"}));
    let mut refused = 0;
    while let Some(post) = web.find(is_call) {
        refused += 1;
        web.status(post.stream, 403);
        web.client.authorized(web.now);
        web.pump();
    }
    assert_eq!(refused, 3);
    let failure = web.failure(call);
    assert!(matches!(failure.kind, FailureKind::Unauthorized { .. }));
    assert_eq!(failure.delivery, Delivery::NotSent);
    assert_eq!((web.opens, web.client.failures()), (1, 0));
}

#[test]
fn f_114_a_call_that_has_failed_holds_up_no_other() {
    let mut web = Web::modern();
    let call = web.call("tools/call", json!({"name": "forbidden"}));
    while !web.is_settled(call) {
        web.client.authorized(web.now);
        web.pump();
        let post = web.posted("tools/call");
        web.status(post.stream, 403);
    }
    assert!(!web.client.awaits_authorization());
    web.call("tools/call", json!({"name": "allowed"}));
    web.posted("tools/call");
}

#[test]
fn f_114_who_said_no_is_not_asked_again_for_nobody() {
    let mut web = Web::modern();
    let is_listen = |begun: &&Begun| begun.method() == "subscriptions/listen";
    let listen = web.all.iter().find(is_listen).cloned().expect("a watch");
    web.end(listen.stream);
    for _ in 0..600 {
        web.pass(seconds(1));
        while let Some(begun) = web.find(|_| true) {
            web.status(begun.stream, 401);
        }
        web.client.denied(web.now, "no");
        web.pump();
    }
    assert!(web.challenges() <= 3, "asked {} times", web.challenges());
    // The refusal of the link's own stream does not end the epoch, because calls may still work.
    assert_eq!((web.opens, web.client.state()), (1, State::Ready));
    web.call("tools/call", json!({"name": "add"}));
    let asked = web.challenges();
    let post = web.posted("tools/call");
    web.status(post.stream, 401);
    assert_eq!(web.challenges(), asked + 1, "but for a call he is asked");
}

/// A link that is parked because the application denied credentials for the first handshake.
fn denied() -> Web {
    let mut web = Web::new(config());
    web.connect();
    let probe = web.posted("server/discover");
    web.status(probe.stream, 401);
    web.client.denied(web.now, "no");
    web.pump();
    assert_eq!((web.challenges(), web.client.state()), (1, State::Parked));
    web
}

#[test]
fn f_114_a_link_that_looks_by_itself_asks_nobody_who_said_no() {
    let mut web = denied();
    await_attempt(&mut web);
    let probe = web.posted("server/discover");
    web.status(probe.stream, 401);
    assert_eq!((web.challenges(), web.client.state()), (1, State::Parked));
    let ended = web.client.last_end().expect("an end");
    assert_eq!(ended.cause, Cause::Unauthorized);
}

#[test]
fn f_114_who_calls_or_wakes_the_link_is_asked_again() {
    let wishes: [fn(&mut Web); 3] = [
        |web| {
            web.call("tools/call", json!({"name": "add"}));
        },
        |web| web.client.wake(web.now),
        |web| web.client.connect(web.now),
    ];
    for wish in wishes {
        let mut web = denied();
        web.pass(seconds(10));
        wish(&mut web);
        web.pump();
        let probe = web.posted("server/discover");
        web.status(probe.stream, 401);
        assert_eq!(web.challenges(), 2);
        assert!(web.client.awaits_authorization());
    }
}

#[test]
fn f_114_a_stream_that_is_never_let_in_is_given_up() {
    let mut web = Web::legacy();
    let call = web.call("tools/call", json!({"name": "add"}));
    let post = web.posted("tools/call");
    web.stream(post.stream);
    web.bytes(post.stream, b"id: 4\ndata:\n\n");
    web.end(post.stream);
    let mut refused = 0;
    while !web.is_settled(call) {
        web.pass(seconds(2));
        let resume = web.begun(Verb::Get);
        web.status(resume.stream, 401);
        refused += 1;
        web.client.authorized(web.now);
        web.pump();
    }
    assert_eq!(refused, 3);
    assert_eq!(web.failure(call).kind, FailureKind::Cut);
    assert_eq!((web.opens, web.client.failures()), (1, 0));
}

#[test]
fn f_114_with_credentials_the_time_of_the_handshake_begins_anew() {
    let legacy = || {
        let mut config = config();
        config.dialect = Dialect::Legacy;
        let mut web = Web::new(config);
        web.connect();
        web
    };
    // Half of the time is for the present transport.
    let mut web = legacy();
    let post = web.posted("initialize");
    web.status(post.stream, 401);
    web.pass(seconds(300));
    web.client.authorized(web.now);
    web.pump();
    web.posted("initialize");
    web.pass(seconds(59));
    assert_eq!(web.count(is_get), 0);
    web.pass(seconds(1));
    assert_eq!(web.count(is_get), 1, "perhaps it is behind the older one");
    // The transport of 2024-11-05 has its own time.
    let mut web = legacy();
    let post = web.posted("initialize");
    web.status(post.stream, 405);
    let get = web.begun(Verb::Get);
    web.status(get.stream, 401);
    web.client.authorized(web.now);
    web.pass(seconds(9));
    web.begun(Verb::Get);
    assert_eq!(web.client.state(), State::Handshaking);
    web.pass(seconds(1));
    assert_ne!(web.client.state(), State::Handshaking);
    assert!(web.last_end().contains("in time"), "{}", web.last_end());
}

#[test]
fn f_114_a_handshake_that_is_never_let_in_is_given_up() {
    let mut web = Web::new(config());
    web.connect();
    let mut refused = 0;
    while web.client.state() == State::Handshaking {
        let probe = web.posted("server/discover");
        web.status(probe.stream, 401);
        refused += 1;
        web.client.authorized(web.now);
        web.pump();
    }
    assert_eq!(refused, 3);
    let ended = web.client.last_end().expect("an end");
    assert_eq!(ended.cause, Cause::Unauthorized);
    assert_eq!(web.client.failures(), 0);
}

#[test]
fn f_114_a_watch_that_is_never_let_in_ends_nothing_else() {
    let mut web = Web::new(config());
    web.connect();
    let probe = web.posted("server/discover");
    web.serve(&probe);
    for _ in 0..10 {
        while let Some(listen) = web.find(|b| b.method() == "subscriptions/listen") {
            web.status(listen.stream, 401);
        }
        web.client.authorized(web.now);
        web.pump();
    }
    assert_eq!((web.opens, web.client.state()), (1, State::Ready));
}

#[test]
fn f_114_a_list_fails_with_the_denial_too() {
    let mut web = Web::modern();
    let call = web
        .client
        .list(web.now, List::Tools, CallOptions::new())
        .expect("accepted");
    web.pump();
    let post = web.posted("tools/list");
    web.status(post.stream, 401);
    web.client.denied(web.now, "no");
    web.pump();
    let failure = web.failure(call);
    assert!(matches!(failure.kind, FailureKind::Unauthorized { .. }));
}

#[test]
fn f_114_a_message_that_is_never_let_in_is_given_up() {
    let mut config = config();
    config.dialect = Dialect::Legacy;
    let mut web = Web::new(config);
    web.connect();
    web.introduce("s-1");
    for _ in 0..100 {
        while let Some(post) = web.find(|b| b.method() == "notifications/initialized") {
            web.status(post.stream, 401);
        }
        web.client.authorized(web.now);
        web.pump();
    }
    let sent = web.count(|b| b.method() == "notifications/initialized");
    assert!(sent <= 10, "{sent} times");
}

#[test]
fn f_116_every_failure_says_what_happened() {
    type Ends = fn(&mut Web, &Begun);
    let ends: [(Ends, &[&str]); 8] = [
        (|web, post| web.status(post.stream, 418), &["418"]),
        (
            |web, post| web.status(post.stream, 500),
            &["500", "may have run"],
        ),
        (
            |web, post| {
                web.stream(post.stream);
                web.end(post.stream);
            },
            &["broke off", "may have run"],
        ),
        (|web, post| web.status(post.stream, 202), &["202"]),
        (
            |web, post| web.respond(post.stream, 200, &[("content-type", "text/html")], "<html>"),
            &["neither JSON nor a stream"],
        ),
        (|web, _| web.pass(seconds(60)), &["in time", "1 min"]),
        (
            |web, _| {
                web.client.shutdown(web.now);
                web.pump();
            },
            &["shut down"],
        ),
        (
            |web, post| {
                web.status(post.stream, 401);
                web.client.denied(web.now, "no such user");
                web.pump();
            },
            &["credentials", "no such user", "did not run"],
        ),
    ];
    for (end, words) in ends {
        let mut web = Web::modern();
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        end(&mut web, &post);
        let text = web.failure(call).to_string();
        for word in ["tools/call", "add", "call 1"].iter().chain(words) {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}

#[test]
fn f_116_every_end_says_what_happened() {
    for (fault, words) in [
        (FaultKind::Refused, "refused"),
        (FaultKind::NameNotFound, "name could not be resolved"),
        (FaultKind::Tls, "secure channel"),
        (FaultKind::TimedOut, "timed out"),
    ] {
        let mut web = Web::new(config());
        web.connect();
        let probe = web.posted("server/discover");
        web.fail(probe.stream, fault);
        let text = web.last_end();
        assert!(text.contains(words), "{text}");
        assert!(text.contains("could not be reached"), "{text}");
    }
    let mut web = Web::new(config());
    web.connect();
    let probe = web.posted("server/discover");
    web.status(probe.stream, 502);
    let post = web.posted("initialize");
    web.status(post.stream, 504);
    for status in ["502", "504"] {
        assert!(web.last_end().contains(status), "{}", web.last_end());
    }
}

#[test]
fn f_116_a_call_that_found_nobody_there_says_so() {
    for (fault, words) in [
        (FaultKind::Tls, "secure channel"),
        (FaultKind::Reset, "reset"),
        (FaultKind::TimedOut, "timed out"),
    ] {
        let mut web = Web::modern();
        let call = web.call("tools/call", json!({"name": "add"}));
        let post = web.posted("tools/call");
        // Another call is running, so that the epoch does not end yet.
        web.call("tools/call", json!({"name": "add"}));
        web.fail(post.stream, fault);
        assert_eq!(web.client.state(), State::Draining);
        let failure = web.failure(call);
        assert!(failure.to_string().contains(words), "{failure}");
        let cause = failure.ended.map(|ended| ended.cause.clone());
        assert_eq!(cause, Some(Cause::Unreachable));
    }
}

/// The driver slept for long: a call timed out in the second epoch, and so did that epoch.
#[test]
fn f_116_a_call_is_told_of_the_end_that_it_waited_after_and_not_of_the_next() {
    let mut web = Web::new(config());
    let call = web.call("tools/call", json!({"name": "add"}));
    let first = web.client.epoch();
    let probe = web.posted("server/discover");
    web.fail(probe.stream, FaultKind::Refused);
    web.pass(seconds(1));
    web.posted("server/discover");
    web.now = web.now + seconds(200);
    web.client.handle_timeout(web.now);
    web.pump();
    assert_ne!(web.client.last_end().map(|ended| ended.epoch), Some(first));
    let ended = web.failure(call).ended.expect("an end");
    assert_eq!((ended.epoch, &ended.cause), (first, &Cause::Unreachable));
}

/// The link reads the pages of a list itself and retries them. When it gives up, the failure names the cause.
#[test]
fn f_116_a_list_whose_pages_are_cut_off_again_and_again_says_so() {
    let mut web = Web::legacy();
    let call = web.list(List::Tools);
    for attempt in 1..=3 {
        let post = web.posted("tools/list");
        web.fail(post.stream, FaultKind::Reset);
        assert_eq!(web.is_settled(call), attempt == 3);
        web.pass(seconds(1));
        if let Some(ping) = web.find(|begun| begun.method() == "ping") {
            web.serve(&ping);
            web.no_news();
        }
    }
    assert_eq!(web.failure(call).kind, FailureKind::Cut);
}
