//! Calls that take long, are cancelled, or are answered too late: deadlines, cancellation, progress. Rows F-062 to
//! F-068 of the failures; S-CANC and S-PROG of the requirements.

use everlink::client::{
    CallOptions, Delivery, Event, FailureKind, Misuse, Outcome, State, TimeLimit, Withdrawn,
};
use everlink::{CallId, Config, Limit, List};
use serde_json::{Value, json};

use crate::client_pipe::{
    self, Act, Harness, Peer, ask, config, millis, notify, progress, reply, seconds,
};
use crate::eras::{BOTH_ERAS, config_with_asks, form_params, input_required, legacy, ready};

fn limit_of(harness: &Harness, call: CallId) -> TimeLimit {
    match &harness.failure(call).kind {
        FailureKind::TimedOut { limit, .. } => *limit,
        other => panic!("{call} did not time out: {other}"),
    }
}

fn progress_of(harness: &Harness, call: CallId) -> Vec<f64> {
    harness.pick_events(|event| match event {
        Event::Progress {
            call: of, progress, ..
        } if *of == call => Some(*progress),
        _ => None,
    })
}

fn noises(harness: &Harness) -> usize {
    let noise = |event: &Event| matches!(event, Event::Noise(_)).then_some(());
    harness.pick_events(noise).len()
}

/// S-TIME-01, S-ERR-09: a call has a timeout by default, and the failure is no error of the server.
#[test]
fn f_062_call_without_options_times_out_after_the_default_idle_limit() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        let call = harness.call_tool("slow");
        harness.until_done(call);
        let failure = harness.failure(call);
        assert_eq!(limit_of(&harness, call), TimeLimit::Idle);
        assert_eq!(failure.after, seconds(60));
        assert_eq!(failure.delivery, Delivery::Unknown);
        harness.finish();
    }
}

#[test]
fn f_062_deadline_of_a_call_starts_when_the_call_is_accepted() {
    let never_opens = || Peer::silent().on_open(Vec::new());
    let mut harness = Harness::new(config()).served_by(move |_| never_opens());
    let call = harness.call_tool("add");
    harness.until_done(call);
    let failure = harness.failure(call);
    assert_eq!(limit_of(&harness, call), TimeLimit::Idle);
    assert_eq!(failure.after, seconds(60));
    assert_eq!(failure.delivery, Delivery::NotSent);
    harness.finish();
}

#[test]
fn f_062_limit_never_disables_the_deadlines_of_a_call() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        let options = CallOptions::new()
            .with_idle(Limit::Never)
            .with_total(Limit::Never);
        let call = harness.call_with("tools/call", json!({"name": "slow"}), options);
        harness.advance(seconds(20 * 3_600));
        assert!(!harness.is_done(call));
        assert_eq!(harness.state(), State::Ready);
        let request = harness.last_message("tools/call");
        harness.perform(reply(&request, json!({"content": []})));
        assert_eq!(harness.result(call)["content"], json!([]));
        harness.finish();
    }
}

/// S-TIME-03, S-TIME-05: the limits are set for each call, and the total one holds without the other.
#[test]
fn f_062_idle_or_total_limit_alone_still_ends_the_call() {
    let mut harness = ready(config(), || legacy().ignores("tools/call"));
    let total_only = CallOptions::new().with_idle(Limit::Never);
    let total_only = harness.call_with("tools/call", json!({"name": "a"}), total_only);
    let idle_only = CallOptions::new().with_total(Limit::Never);
    let idle_only = harness.call_with("tools/call", json!({"name": "b"}), idle_only);
    harness.until_done(total_only);
    assert_eq!(limit_of(&harness, idle_only), TimeLimit::Idle);
    assert_eq!(harness.failure(idle_only).after, seconds(60));
    assert_eq!(limit_of(&harness, total_only), TimeLimit::Total);
    assert_eq!(harness.failure(total_only).after, seconds(600));
    harness.finish();
}

#[test]
fn f_063_timeout_sends_a_cancellation_in_both_eras() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        let call = harness.call_tool("slow");
        harness.until_done(call);
        let cancel = harness.last_message("notifications/cancelled");
        assert_eq!(
            cancel["params"]["requestId"],
            harness.last_message("tools/call")["id"]
        );
        assert_ne!(cancel["params"]["reason"].as_str(), Some(""));
        assert_eq!(
            harness.state(),
            State::Ready,
            "a slow call does not end the server (F-020)"
        );
        harness.finish();
    }
}

/// S-STDIO-13: the notification has the id of the request.
#[test]
fn s_canc_01_cancelled_call_fails_at_once_and_the_server_gets_the_reason() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        let call = harness.call_tool("slow");
        harness.advance(seconds(3));
        harness.cancel(call, "the user left");
        let failure = harness.failure(call);
        let reason = Some("the user left".into());
        assert_eq!(failure.kind, FailureKind::Cancelled { reason });
        assert_eq!(failure.after, seconds(3));
        assert_eq!(failure.delivery, Delivery::Unknown);
        assert_eq!(harness.messages_with("notifications/cancelled").len(), 1);
        let params = harness.last_message("notifications/cancelled")["params"].clone();
        assert_eq!(
            params["requestId"],
            harness.last_message("tools/call")["id"]
        );
        assert_eq!(params["reason"], "the user left");
        harness.finish();
    }
}

#[test]
fn s_canc_02_unsent_or_finished_call_is_not_cancelled_at_the_server() {
    let mut harness = Harness::new(config()).served_by(|_| Peer::silent().on_open(Vec::new()));
    let call = harness.call_tool("add");
    harness.cancel(call, "never mind");
    assert_eq!(harness.failure(call).delivery, Delivery::NotSent);
    let again = harness.with_link(|link, now| link.cancel(now, call, None));
    assert_eq!(again, Err(Misuse::UnknownCall));
    harness.finish();

    let mut harness = ready(config(), legacy);
    let call = harness.call_tool("add");
    harness.until_done(call);
    let late = harness.with_link(|link, now| link.cancel(now, call, None));
    assert_eq!(late, Err(Misuse::UnknownCall));
    assert!(harness.messages_with("notifications/cancelled").is_empty());
    harness.finish();
}

#[test]
fn s_canc_06_a_reply_to_a_cancelled_call_is_dropped_and_counted() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        let call = harness.call_tool("slow");
        let request = harness.last_message("tools/call");
        harness.cancel(call, "too slow");
        harness.perform(reply(&request, json!({"content": []})));
        assert!(matches!(
            harness.failure(call).kind,
            FailureKind::Cancelled { .. }
        ));
        assert_eq!(harness.link().stats().late_replies, 1);
        assert_eq!(harness.state(), State::Ready);
        harness.finish();
    }
}

#[test]
fn s_canc_07_reply_that_was_read_before_the_cancel_settles_the_call() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        let call = harness.call_tool("quick");
        let request = harness.last_message("tools/call");
        // The reply was read, but its outcome not yet polled, when the caller cancels.
        let line = json!({"jsonrpc": "2.0", "id": request["id"], "result": {"content": []}});
        let line = format!("{line}\n");
        let epoch = harness.link().epoch();
        harness.feed_input(epoch, everlink::Input::bytes(line.as_bytes()));
        let cancelled = harness.with_link(|link, now| link.cancel(now, call, None));
        assert_eq!(cancelled, Err(Misuse::UnknownCall));
        assert_eq!(harness.result(call)["content"], json!([]));
        assert!(harness.messages_with("notifications/cancelled").is_empty());
        harness.finish();
    }
}

/// S-CANC-05, S-CANC-14: the id may be unknown, or missing.
#[test]
fn s_canc_08_cancellation_without_the_id_of_an_open_ask_is_ignored() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        let call = harness.call_tool("slow");
        let request = harness.last_message("tools/call");
        // S-CANC-03: the server can cancel only its own asks, not the client's calls.
        for params in [
            json!({}),
            json!({"requestId": null}),
            json!({"requestId": 999}),
            json!({"requestId": "nobody", "reason": 7}),
            json!({"requestId": {"deep": []}}),
            json!({"requestId": request["id"]}),
        ] {
            harness.perform(notify("notifications/cancelled", params));
        }
        harness.perform(Act::Message(
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled"}),
        ));
        assert!(!harness.is_done(call));
        assert_eq!(noises(&harness), 0);
        harness.perform(reply(&request, json!({"content": []})));
        assert_eq!(harness.result(call)["content"], json!([]));
        harness.finish();
    }
}

#[test]
fn s_canc_10_initialize_is_never_cancelled() {
    let mut config = config();
    config.policy.handshake_timeout = seconds(5);
    let no_initialize = || legacy().ignores("initialize");
    let mut harness = Harness::new(config).served_by(move |_| no_initialize());
    let call = harness.call_tool("add");
    harness.until("initialize was sent", |harness| {
        !harness.messages_with("initialize").is_empty()
    });
    harness.cancel(call, "never mind");
    harness.advance(seconds(30));
    assert!(harness.epoch_number() > 1, "the handshake timed out");
    harness.shutdown();
    assert!(harness.messages_with("notifications/cancelled").is_empty());
    harness.finish();
}

#[test]
fn s_canc_11_call_with_a_task_parameter_is_not_cancelled_by_notification() {
    let with_tasks = |version: &'static str| {
        move || {
            Peer::legacy(version)
                .ignores("tools/call")
                .replies("initialize", move |_| {
                    let tasks = json!({"requests": {"tools": {"call": {}}}});
                    client_pipe::initialize_result(version, json!({"tools": {}, "tasks": tasks}))
                })
        }
    };
    // Only this version has task requests, and only with servers that declared them (S-LTASK-03, S-TASKX-11).
    let servers: [(Box<dyn Fn() -> Peer>, usize); 4] = [
        (Box::new(with_tasks("2025-11-25")), 0),
        (Box::new(with_tasks("2025-06-18")), 1),
        (Box::new(|| legacy().ignores("tools/call")), 1),
        (Box::new(|| Peer::modern().ignores("tools/call")), 1),
    ];
    for (server, cancels) in servers {
        let mut harness = Harness::new(config()).served_by(move |_| server());
        harness.until_ready();
        let params = json!({"name": "long", "task": {"ttl": 60_000}});
        let call = harness.call("tools/call", params);
        harness.cancel(call, "never mind");
        assert!(matches!(
            harness.failure(call).kind,
            FailureKind::Cancelled { .. }
        ));
        assert_eq!(
            harness.messages_with("notifications/cancelled").len(),
            cancels
        );
        harness.finish();
    }
}

#[test]
fn f_064_late_reply_is_counted_and_reply_with_an_unknown_id_is_noise() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        let call = harness.call_tool("slow");
        let request = harness.last_message("tools/call");
        harness.until_done(call);
        harness.perform(reply(&request, json!({"content": []})));
        harness.perform(reply(&request, json!({"content": []})));
        assert_eq!(harness.link().stats().late_replies, 2);
        assert_eq!(noises(&harness), 0);
        let never_issued = [json!(1_000_000), json!(-1), json!(0), json!("1")];
        for id in &never_issued {
            harness.perform(reply(&json!({"id": id}), json!({})));
        }
        assert_eq!(noises(&harness), never_issued.len());
        assert_eq!(harness.state(), State::Ready);
        assert_eq!(limit_of(&harness, call), TimeLimit::Idle);
        harness.finish();
    }
}

#[test]
fn f_064_a_reply_that_comes_twice_settles_its_call_once() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            server().on("tools/call", |request| {
                vec![
                    reply(request, json!({"content": [1]})),
                    reply(request, json!({"content": [2]})),
                ]
            })
        });
        let call = harness.call_tool("stutter");
        assert_eq!(harness.result(call)["content"], json!([1]));
        assert_eq!(harness.link().stats().late_replies, 1);
        harness.finish();
    }
}

/// S-TIME-04, S-TIME-05: progress restarts the idle limit, and the total limit holds regardless of it.
#[test]
fn f_066_progress_extends_the_idle_limit_and_never_the_total() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            server().on("tools/call", |request| {
                let each = |n: u32| progress(request, f64::from(n)).after(seconds(55) * n);
                (1..100).map(each).collect()
            })
        });
        let call = harness.call_tool("busy");
        harness.until_done(call);
        assert_eq!(limit_of(&harness, call), TimeLimit::Total);
        assert_eq!(harness.failure(call).after, seconds(600));
        assert_eq!(progress_of(&harness, call).len(), 10);
        harness.finish();
    }
}

#[test]
fn f_066_idle_limit_counts_from_the_last_progress() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            server().on("tools/call", |request| {
                vec![progress(request, 0.5).after(seconds(45))]
            })
        });
        let call = harness.call_tool("stuck");
        harness.until_done(call);
        assert_eq!(limit_of(&harness, call), TimeLimit::Idle);
        assert_eq!(harness.failure(call).after, seconds(105));
        harness.finish();
    }
}

#[test]
fn s_prog_01_every_call_has_its_own_progress_token_unless_disabled() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        for name in ["a", "b", "c"] {
            harness.call_tool(name);
        }
        let plain = CallOptions::new().without_progress();
        harness.call_with("tools/call", json!({"name": "d"}), plain);
        let token = |request: &&Value| request["params"]["_meta"]["progressToken"].clone();
        let tokens: Vec<Value> = harness
            .messages_with("tools/call")
            .iter()
            .map(token)
            .collect();
        let (last, tokens) = tokens.split_last().expect("four calls were sent");
        assert!(last.is_null());
        let mut distinct: Vec<String> = tokens.iter().map(Value::to_string).collect();
        distinct.dedup();
        assert_eq!(distinct.len(), 3);
        assert!(tokens.iter().all(|token| token.is_i64() || token.is_u64()));
        harness.finish();
    }
}

#[test]
fn s_prog_02_progress_with_total_and_message_is_passed_on() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        let call = harness.call_tool("busy");
        let token = harness.last_message("tools/call")["params"]["_meta"]["progressToken"].clone();
        let params =
            json!({"progressToken": token, "progress": 0.25, "total": 1.5, "message": "reading"});
        harness.perform(notify("notifications/progress", params));
        let received = harness.pick_events(|event| match event {
            Event::Progress {
                call,
                progress,
                total,
                message,
            } => Some((*call, *progress, *total, message.as_deref())),
            _ => None,
        });
        assert_eq!(received, [(call, 0.25, Some(1.5), Some("reading"))]);
        harness.finish();
    }
}

/// S-PROG-05: only the tokens of open calls count.
#[test]
fn s_prog_09_progress_that_does_not_grow_or_has_a_wrong_token_is_dropped() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        let call = harness.call_tool("busy");
        let request = harness.last_message("tools/call");
        let token = request["params"]["_meta"]["progressToken"].clone();
        harness.perform(progress(&request, 2.0));
        harness.advance(seconds(30));
        harness.perform(progress(&request, 2.0));
        harness.perform(progress(&request, 1.0));
        for wrong in [
            json!({"progressToken": token.to_string(), "progress": 3}),
            json!({"progressToken": 999, "progress": 3}),
            json!({"progressToken": token, "progress": "3"}),
            json!({"progressToken": token}),
            json!({"progress": 3}),
        ] {
            harness.perform(notify("notifications/progress", wrong));
        }
        assert_eq!(progress_of(&harness, call), [2.0]);
        assert_eq!(harness.state(), State::Ready);
        harness.until_done(call);
        // None of it counted as progress.
        assert_eq!(harness.failure(call).after, seconds(60));
        harness.perform(progress(&request, 9.0));
        assert_eq!(progress_of(&harness, call), [2.0]);
        harness.finish();
    }
}

#[test]
fn s_prog_09_progress_for_a_call_without_progress_is_dropped() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            // The server has no token, so it uses the id of the request.
            server().on("tools/call", |request| {
                let params = json!({"progressToken": request["id"], "progress": 1});
                vec![notify("notifications/progress", params).after(seconds(30))]
            })
        });
        let quiet = CallOptions::new().without_progress();
        let call = harness.call_with("tools/call", json!({"name": "slow"}), quiet);
        harness.until_done(call);
        assert!(progress_of(&harness, call).is_empty());
        assert_eq!(
            harness.failure(call).after,
            seconds(60),
            "progress does not extend the idle limit"
        );
        harness.finish();
    }
}

#[test]
fn s_prog_09_each_round_of_a_call_restarts_its_progress() {
    let mut round = 0;
    let mut harness = ready(config_with_asks(), move || {
        Peer::modern().on("tools/call", move |request| {
            round += 1;
            match round {
                1 => vec![
                    progress(request, 90.0),
                    reply(request, input_required(Value::Null, Some("go on"))),
                ],
                _ => vec![progress(request, 10.0).after(seconds(50))],
            }
        })
    });
    let call = harness.call_tool("two halves");
    harness.until_done(call);
    assert_eq!(progress_of(&harness, call), [90.0, 10.0]);
    assert_eq!(
        harness.failure(call).after,
        seconds(110),
        "progress extends the idle limit in every round"
    );
    harness.finish();
}

#[test]
fn f_067_open_legacy_ask_pauses_the_idle_limit_of_calls_in_flight() {
    let mut harness = ready(config_with_asks(), || legacy().ignores("tools/call"));
    let call = harness.call_tool("book a flight");
    harness.advance(seconds(10));
    harness.perform(ask("q", "elicitation/create", form_params("which seat?")));
    let ask_id = harness.asks()[0];
    harness.advance(seconds(300));
    assert!(!harness.is_done(call));
    harness.answer(ask_id, Ok(json!({"action": "accept", "content": {}})));
    harness.until_done(call);
    // 10 of the 60 s were used up when the ask came.
    assert_eq!(limit_of(&harness, call), TimeLimit::Idle);
    assert_eq!(harness.failure(call).after, seconds(360));
    harness.finish();
}

#[test]
fn f_067_open_modern_ask_pauses_the_idle_limit_of_its_call() {
    let mut round = 0;
    let mut harness = ready(config_with_asks(), move || {
        Peer::modern().on("tools/call", move |request| {
            round += 1;
            let requests =
                json!({"seat": {"method": "elicitation/create", "params": form_params("which seat?")}});
            match round {
                1 => vec![reply(request, input_required(requests, None)).after(seconds(10))],
                _ => Vec::new(),
            }
        })
    });
    let call = harness.call_tool("book a flight");
    harness.advance(seconds(310));
    assert!(!harness.is_done(call));
    harness.answer(
        harness.asks()[0],
        Ok(json!({"action": "accept", "content": {}})),
    );
    harness.until_done(call);
    // The next round has the whole idle limit again.
    assert_eq!(limit_of(&harness, call), TimeLimit::Idle);
    assert_eq!(harness.failure(call).after, seconds(370));
    harness.finish();
}

#[test]
fn f_067_open_ask_pauses_the_total_limit_too() {
    let mut harness = ready(config_with_asks(), || legacy().ignores("tools/call"));
    let options = CallOptions::new()
        .with_idle(Limit::Never)
        .with_total(Limit::After(seconds(30)));
    let call = harness.call_with("tools/call", json!({"name": "slow"}), options);
    harness.advance(seconds(20));
    harness.perform(ask(1, "roots/list", json!({})));
    harness.advance(seconds(200));
    harness.answer(harness.asks()[0], Ok(json!({"roots": []})));
    harness.until_done(call);
    assert_eq!(limit_of(&harness, call), TimeLimit::Total);
    assert_eq!(harness.failure(call).after, seconds(230));
    harness.finish();
}

#[test]
fn f_067_calls_made_during_an_open_ask_have_paused_limits_too() {
    let mut harness = ready(config_with_asks(), || {
        legacy().ignores("tools/call").ignores("tools/list")
    });
    harness.perform(ask("q", "elicitation/create", form_params("which seat?")));
    let calls = [
        harness.call_tool("book a flight"),
        harness.list(List::Tools),
    ];
    harness.advance(seconds(300));
    assert!(!calls.iter().any(|call| harness.is_done(*call)));
    harness.answer(
        harness.asks()[0],
        Ok(json!({"action": "accept", "content": {}})),
    );
    for call in calls {
        harness.until_done(call);
        assert_eq!(limit_of(&harness, call), TimeLimit::Idle);
        assert_eq!(harness.failure(call).after, seconds(360));
    }
    harness.finish();
}

#[test]
fn f_067_progress_during_an_open_ask_extends_the_idle_limit_only_once() {
    let mut harness = ready(config_with_asks(), || legacy().ignores("tools/call"));
    let call = harness.call_tool("book a flight");
    harness.advance(seconds(10));
    harness.perform(ask("q", "elicitation/create", form_params("which seat?")));
    harness.advance(seconds(490));
    let request = harness.last_message("tools/call");
    harness.perform(progress(&request, 1.0));
    assert_eq!(progress_of(&harness, call), [1.0]);
    harness.advance(seconds(90));
    harness.answer(
        harness.asks()[0],
        Ok(json!({"action": "accept", "content": {}})),
    );
    harness.until_done(call);
    assert_eq!(limit_of(&harness, call), TimeLimit::Idle);
    // The answer came at 590 s, and the idle limit is 60 s.
    assert_eq!(harness.failure(call).after, seconds(650));
    harness.finish();
}

fn config_with_pause_total(span: core::time::Duration) -> Config {
    let mut config = config_with_asks();
    config.policy.pause_total = span;
    config
}

#[test]
fn f_067_legacy_asks_pause_the_limits_for_pause_total_at_most() {
    let mut harness = ready(config_with_pause_total(seconds(100)), || {
        legacy().ignores("tools/call")
    });
    let call = harness.call_tool("nosy");
    harness.advance(seconds(10));
    // Ten asks in sequence, each answered in time.
    for id in 0..10 {
        harness.perform(ask(id, "roots/list", json!({})));
        harness.advance(seconds(30));
        if let Some(ask_id) = harness.asks().pop() {
            harness.answer(ask_id, Ok(json!({"roots": []})));
        }
    }
    assert_eq!(limit_of(&harness, call), TimeLimit::Idle);
    assert_eq!(harness.failure(call).after, seconds(160));
    harness.finish();
}

/// A reply may wait at the driver, which must not read it.
#[test]
fn clock_of_a_sent_call_stands_still_while_the_application_holds_back() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        let call = harness.call_tool("slow");
        harness.advance(seconds(50));
        harness.with_link(|link, now| link.hold_back(now, true));
        harness.advance(seconds(100));
        assert!(!harness.is_done(call), "the clock stands still");
        harness.with_link(|link, now| link.hold_back(now, false));
        harness.until_done(call);
        assert_eq!(limit_of(&harness, call), TimeLimit::Idle);
        assert_eq!(harness.failure(call).after, seconds(160));
        harness.finish();
    }
}

#[test]
fn f_067_modern_ask_pauses_the_limits_for_pause_total_at_most() {
    let mut harness = ready(config_with_pause_total(seconds(100)), || {
        Peer::modern().on("tools/call", |request| {
            let requests = json!({"q": {"method": "roots/list"}});
            vec![reply(request, input_required(requests, None)).after(seconds(10))]
        })
    });
    let call = harness.call_tool("nosy");
    harness.until_done(call);
    assert_eq!(limit_of(&harness, call), TimeLimit::Idle);
    assert_eq!(harness.failure(call).after, seconds(160));
    let withdrawn = harness.pick_events(|event| match event {
        Event::AskWithdrawn { ask, why } => Some((*ask, *why)),
        _ => None,
    });
    assert_eq!(
        withdrawn,
        [(harness.asks()[0], everlink::client::Withdrawn::CallSettled)]
    );
    harness.finish();
}

#[test]
fn f_068_ask_during_a_call_is_answered_at_once() {
    let mut harness = ready(config_with_asks(), || {
        let mut tool_call = Value::Null;
        legacy().on_any(move |message, acts| match message["method"].as_str() {
            Some("tools/call") => {
                tool_call = message.clone();
                // S-S2C-07: the ids of the two directions are independent.
                *acts = vec![ask(message["id"].clone(), "roots/list", json!({}))];
            }
            None => {
                *acts = vec![reply(
                    &tool_call,
                    json!({"content": message["result"]["roots"]}),
                )]
            }
            Some(_) => {}
        })
    });
    let call = harness.call_tool("needs roots");
    let ask_id = harness.asks()[0];
    harness.answer(ask_id, Ok(json!({"roots": ["here"]})));
    assert_eq!(harness.result(call)["content"], json!(["here"]));
    harness.finish();
}

#[test]
fn f_068_call_during_an_open_ask_is_sent_at_once() {
    let mut harness = ready(config_with_asks(), legacy);
    harness.perform(ask(1, "sampling/createMessage", json!({"messages": []})));
    let call = harness.call_tool("add");
    assert_eq!(harness.result(call)["content"][0]["text"], "add");
    harness.answer(harness.asks()[0], Ok(json!({"role": "assistant"})));
    assert_eq!(harness.ask_replies().len(), 1);
    harness.finish();
}

#[test]
fn f_068_modern_call_that_waits_for_input_does_not_delay_other_calls() {
    let mut harness = ready(config_with_asks(), || {
        Peer::modern().on("tools/call", |request| {
            let result = match request["params"]["name"].as_str() {
                Some("asks") => input_required(json!({"q": {"method": "roots/list"}}), None),
                _ => json!({"content": []}),
            };
            vec![reply(request, result)]
        })
    });
    let asking = harness.call_tool("asks");
    let other = harness.call_tool("does not");
    assert!(!harness.is_done(asking));
    assert_eq!(harness.result(other)["content"], json!([]));
    harness.finish();
}

#[test]
fn idle_limit_of_zero_times_out_within_1_ms() {
    let mut harness = ready(config(), || legacy().ignores("tools/call"));
    let options = CallOptions::new().with_idle(Limit::After(millis(0)));
    let call = harness.call_with("tools/call", json!({"name": "now"}), options);
    harness.until_done(call);
    assert_eq!(limit_of(&harness, call), TimeLimit::Idle);
    assert!(harness.failure(call).after <= millis(1));
    harness.finish();
}

/// Only HTTP repeats parameters in header fields. On a pipe the error says nothing about them, so the caller gets it.
#[test]
fn header_mismatch_on_a_pipe_is_passed_to_the_caller() {
    let mut harness = ready(config(), || Peer::modern().refuses("tools/call", -32_020));
    let call = harness.call_tool("add");
    assert!(matches!(harness.outcome(call), Outcome::Error(error) if error.code == -32_020));
    assert!(harness.messages_with("tools/list").is_empty());
    harness.finish();
}

/// The asks of a server that was replaced stop no clock of the next one.
#[test]
fn call_times_out_at_the_next_server_after_an_unanswered_ask_of_the_one_before() {
    let mut harness = ready(config_with_asks(), || legacy().ignores("tools/call"));
    let options = CallOptions::new().idempotent();
    let call = harness.call_with("tools/call", json!({"name": "add"}), options);
    harness.perform(ask("q", "roots/list", json!({})));
    let open = harness.asks()[0];
    harness.reconnect("new settings");
    harness.until("a second server", |harness| harness.epoch_number() == 2);
    harness.until_ready();
    let withdrawn = harness.pick_events(|event| match event {
        Event::AskWithdrawn { ask, why } => Some((*ask, *why)),
        _ => None,
    });
    assert_eq!(withdrawn, [(open, Withdrawn::Ended)]);
    let sent = harness.now();
    harness.until_done(call);
    assert_eq!(limit_of(&harness, call), TimeLimit::Idle);
    assert_eq!(harness.now().since(sent), seconds(60));
    harness.finish();
}
