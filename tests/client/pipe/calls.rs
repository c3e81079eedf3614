//! Calls that take long, are cancelled, or are answered too late: deadlines, cancellation, progress. Rows F-062 to
//! F-068 of the failures; S-CANC and S-PROG of the requirements.

use everlink::client::{CallOptions, Delivery, Event, FailureKind, Misuse, State, TimeLimit};
use everlink::{CallId, Config, Limit, List};
use serde_json::{Value, json};

use crate::client_pipe::{
    self, Act, Peer, World, ask, config, millis, notify, progress, reply, seconds,
};
use crate::eras::{BOTH, answering, form, input_required, legacy, ready};

fn limit_of(world: &World, call: CallId) -> TimeLimit {
    match &world.failure(call).kind {
        FailureKind::TimedOut { limit, .. } => *limit,
        other => panic!("{call} did not run out of time: {other}"),
    }
}

fn progress_of(world: &World, call: CallId) -> Vec<f64> {
    world.picked(|event| match event {
        Event::Progress {
            call: of, progress, ..
        } if *of == call => Some(*progress),
        _ => None,
    })
}

fn noises(world: &World) -> usize {
    let noise = |event: &Event| matches!(event, Event::Noise(_)).then_some(());
    world.picked(noise).len()
}

#[test]
fn f_062_no_timeout_means_a_deadline_all_the_same() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        let call = world.tool("slow");
        world.until_done(call);
        let failure = world.failure(call);
        assert_eq!(limit_of(&world, call), TimeLimit::Idle);
        assert_eq!(failure.after, seconds(60));
        assert_eq!(failure.delivery, Delivery::Unknown);
        world.finish();
    }
}

#[test]
fn f_062_the_deadline_runs_from_the_moment_the_call_is_accepted() {
    let never_opens = || Peer::silent().opens_with(Vec::new());
    let mut world = World::new(config()).served_by(move |_| never_opens());
    let call = world.tool("add");
    world.until_done(call);
    let failure = world.failure(call);
    assert_eq!(limit_of(&world, call), TimeLimit::Idle);
    assert_eq!(failure.after, seconds(60));
    assert_eq!(failure.delivery, Delivery::NotSent);
    world.finish();
}

#[test]
fn f_062_no_deadline_must_be_asked_for_by_name() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        let options = CallOptions::new()
            .with_idle(Limit::Never)
            .with_total(Limit::Never);
        let call = world.call_with("tools/call", json!({"name": "slow"}), options);
        world.pass(seconds(20 * 3_600));
        assert!(!world.is_done(call));
        assert_eq!(world.state(), State::Ready);
        let request = world.last("tools/call");
        world.peer(reply(&request, json!({"content": []})));
        assert_eq!(world.result(call)["content"], json!([]));
        world.finish();
    }
}

#[test]
fn f_062_one_limit_without_the_other_still_ends_the_call() {
    let mut world = ready(config(), || legacy().ignores("tools/call"));
    let total_only = CallOptions::new().with_idle(Limit::Never);
    let total_only = world.call_with("tools/call", json!({"name": "a"}), total_only);
    let idle_only = CallOptions::new().with_total(Limit::Never);
    let idle_only = world.call_with("tools/call", json!({"name": "b"}), idle_only);
    world.until_done(total_only);
    assert_eq!(limit_of(&world, idle_only), TimeLimit::Idle);
    assert_eq!(world.failure(idle_only).after, seconds(60));
    assert_eq!(limit_of(&world, total_only), TimeLimit::Total);
    assert_eq!(world.failure(total_only).after, seconds(600));
    world.finish();
}

#[test]
fn f_063_a_timeout_tells_the_server_in_both_eras() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        let call = world.tool("slow");
        world.until_done(call);
        let cancel = world.last("notifications/cancelled");
        assert_eq!(
            cancel["params"]["requestId"],
            world.last("tools/call")["id"]
        );
        assert_ne!(cancel["params"]["reason"].as_str(), Some(""));
        assert_eq!(
            world.state(),
            State::Ready,
            "a slow call is no dead server (F-020)"
        );
        world.finish();
    }
}

#[test]
fn s_canc_01_a_cancelled_call_ends_at_once_and_the_server_hears_why() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        let call = world.tool("slow");
        world.pass(seconds(3));
        world.cancel(call, "the user left");
        let failure = world.failure(call);
        let reason = Some("the user left".into());
        assert_eq!(failure.kind, FailureKind::Cancelled { reason });
        assert_eq!(failure.after, seconds(3));
        assert_eq!(failure.delivery, Delivery::Unknown);
        assert_eq!(world.said("notifications/cancelled").len(), 1);
        let params = world.last("notifications/cancelled")["params"].clone();
        assert_eq!(params["requestId"], world.last("tools/call")["id"]);
        assert_eq!(params["reason"], "the user left");
        world.finish();
    }
}

#[test]
fn s_canc_02_only_what_was_sent_and_is_open_is_cancelled() {
    let mut world = World::new(config()).served_by(|_| Peer::silent().opens_with(Vec::new()));
    let call = world.tool("add");
    world.cancel(call, "never mind");
    assert_eq!(world.failure(call).delivery, Delivery::NotSent);
    let again = world.verb(|link, now| link.cancel(now, call, None));
    assert_eq!(again, Err(Misuse::UnknownCall));
    world.finish();

    let mut world = ready(config(), legacy);
    let call = world.tool("add");
    world.until_done(call);
    let late = world.verb(|link, now| link.cancel(now, call, None));
    assert_eq!(late, Err(Misuse::UnknownCall));
    assert!(world.said("notifications/cancelled").is_empty());
    world.finish();
}

#[test]
fn s_canc_06_a_reply_to_a_cancelled_call_is_dropped_and_counted() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        let call = world.tool("slow");
        let request = world.last("tools/call");
        world.cancel(call, "too slow");
        world.peer(reply(&request, json!({"content": []})));
        assert!(matches!(
            world.failure(call).kind,
            FailureKind::Cancelled { .. }
        ));
        assert_eq!(world.link().stats().late_replies, 1);
        assert_eq!(world.state(), State::Ready);
        world.finish();
    }
}

#[test]
fn s_canc_07_a_reply_that_meets_the_cancellation_wins() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        let call = world.tool("quick");
        let request = world.last("tools/call");
        // The reply was read, but its outcome not yet polled, when the caller cancels.
        let line = json!({"jsonrpc": "2.0", "id": request["id"], "result": {"content": []}});
        let line = format!("{line}\n");
        let epoch = world.link().epoch();
        world.force(epoch, everlink::Input::bytes(line.as_bytes()));
        let cancelled = world.verb(|link, now| link.cancel(now, call, None));
        assert_eq!(cancelled, Err(Misuse::UnknownCall));
        assert_eq!(world.result(call)["content"], json!([]));
        assert!(world.said("notifications/cancelled").is_empty());
        world.finish();
    }
}

#[test]
fn s_canc_08_a_cancellation_that_names_nothing_open_is_ignored() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        let call = world.tool("slow");
        let request = world.last("tools/call");
        // S-CANC-03: the server can cancel only its own asks, not the client's calls.
        for params in [
            json!({}),
            json!({"requestId": null}),
            json!({"requestId": 999}),
            json!({"requestId": "nobody", "reason": 7}),
            json!({"requestId": {"deep": []}}),
            json!({"requestId": request["id"]}),
        ] {
            world.peer(notify("notifications/cancelled", params));
        }
        world.peer(Act::Say(
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled"}),
        ));
        assert!(!world.is_done(call));
        assert_eq!(noises(&world), 0);
        world.peer(reply(&request, json!({"content": []})));
        assert_eq!(world.result(call)["content"], json!([]));
        world.finish();
    }
}

#[test]
fn s_canc_10_the_handshake_is_never_cancelled() {
    let mut config = config();
    config.policy.handshake_timeout = seconds(5);
    let mute = || legacy().ignores("initialize");
    let mut world = World::new(config).served_by(move |_| mute());
    let call = world.tool("add");
    world.until("initialize was sent", |world| {
        !world.said("initialize").is_empty()
    });
    world.cancel(call, "never mind");
    world.pass(seconds(30));
    assert!(world.life() > 1, "the handshake timed out");
    world.shutdown();
    assert!(world.said("notifications/cancelled").is_empty());
    world.finish();
}

#[test]
fn s_canc_11_a_call_that_asked_to_be_a_task_is_not_cancelled_by_notification() {
    let with_tasks = |version: &'static str| {
        move || {
            Peer::legacy(version)
                .ignores("tools/call")
                .replies("initialize", move |_| {
                    let tasks = json!({"requests": {"tools": {"call": {}}}});
                    client_pipe::agreed(version, json!({"tools": {}, "tasks": tasks}))
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
        let mut world = World::new(config()).served_by(move |_| server());
        world.until_ready();
        let params = json!({"name": "long", "task": {"ttl": 60_000}});
        let call = world.call("tools/call", params);
        world.cancel(call, "never mind");
        assert!(matches!(
            world.failure(call).kind,
            FailureKind::Cancelled { .. }
        ));
        assert_eq!(world.said("notifications/cancelled").len(), cancels);
        world.finish();
    }
}

#[test]
fn f_064_a_late_reply_is_counted_and_an_unknown_one_is_noise() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        let call = world.tool("slow");
        let request = world.last("tools/call");
        world.until_done(call);
        world.peer(reply(&request, json!({"content": []})));
        world.peer(reply(&request, json!({"content": []})));
        assert_eq!(world.link().stats().late_replies, 2);
        assert_eq!(noises(&world), 0);
        let never_issued = [json!(1_000_000), json!(-1), json!(0), json!("1")];
        for id in &never_issued {
            world.peer(reply(&json!({"id": id}), json!({})));
        }
        assert_eq!(noises(&world), never_issued.len());
        assert_eq!(world.state(), State::Ready);
        assert_eq!(limit_of(&world, call), TimeLimit::Idle);
        world.finish();
    }
}

#[test]
fn f_064_a_reply_that_comes_twice_settles_its_call_once() {
    for server in BOTH {
        let mut world = ready(config(), move || {
            server().on("tools/call", |request| {
                vec![
                    reply(request, json!({"content": [1]})),
                    reply(request, json!({"content": [2]})),
                ]
            })
        });
        let call = world.tool("stutter");
        assert_eq!(world.result(call)["content"], json!([1]));
        assert_eq!(world.link().stats().late_replies, 1);
        world.finish();
    }
}

#[test]
fn f_066_progress_extends_the_idle_limit_and_never_the_total() {
    for server in BOTH {
        let mut world = ready(config(), move || {
            server().on("tools/call", |request| {
                let each = |n: u32| progress(request, f64::from(n)).after(seconds(55) * n);
                (1..100).map(each).collect()
            })
        });
        let call = world.tool("busy");
        world.until_done(call);
        assert_eq!(limit_of(&world, call), TimeLimit::Total);
        assert_eq!(world.failure(call).after, seconds(600));
        assert_eq!(progress_of(&world, call).len(), 10);
        world.finish();
    }
}

#[test]
fn f_066_when_progress_stops_the_idle_limit_counts_from_the_last() {
    for server in BOTH {
        let mut world = ready(config(), move || {
            server().on("tools/call", |request| {
                vec![progress(request, 0.5).after(seconds(45))]
            })
        });
        let call = world.tool("stuck");
        world.until_done(call);
        assert_eq!(limit_of(&world, call), TimeLimit::Idle);
        assert_eq!(world.failure(call).after, seconds(105));
        world.finish();
    }
}

#[test]
fn s_prog_01_every_call_has_a_token_of_its_own_unless_it_wants_none() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        for name in ["a", "b", "c"] {
            world.tool(name);
        }
        let plain = CallOptions::new().without_progress();
        world.call_with("tools/call", json!({"name": "d"}), plain);
        let token = |request: &&Value| request["params"]["_meta"]["progressToken"].clone();
        let tokens: Vec<Value> = world.said("tools/call").iter().map(token).collect();
        let (last, tokens) = tokens.split_last().expect("four calls were sent");
        assert!(last.is_null());
        let mut distinct: Vec<String> = tokens.iter().map(Value::to_string).collect();
        distinct.dedup();
        assert_eq!(distinct.len(), 3);
        assert!(tokens.iter().all(|token| token.is_i64() || token.is_u64()));
        world.finish();
    }
}

#[test]
fn s_prog_02_what_the_server_says_of_its_progress_is_passed_on() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        let call = world.tool("busy");
        let token = world.last("tools/call")["params"]["_meta"]["progressToken"].clone();
        let said =
            json!({"progressToken": token, "progress": 0.25, "total": 1.5, "message": "reading"});
        world.peer(notify("notifications/progress", said));
        let heard = world.picked(|event| match event {
            Event::Progress {
                call,
                progress,
                total,
                message,
            } => Some((*call, *progress, *total, message.as_deref())),
            _ => None,
        });
        assert_eq!(heard, [(call, 0.25, Some(1.5), Some("reading"))]);
        world.finish();
    }
}

#[test]
fn s_prog_09_progress_that_does_not_grow_or_belongs_to_nobody_is_dropped() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        let call = world.tool("busy");
        let request = world.last("tools/call");
        let token = request["params"]["_meta"]["progressToken"].clone();
        world.peer(progress(&request, 2.0));
        world.pass(seconds(30));
        world.peer(progress(&request, 2.0));
        world.peer(progress(&request, 1.0));
        for wrong in [
            json!({"progressToken": token.to_string(), "progress": 3}),
            json!({"progressToken": 999, "progress": 3}),
            json!({"progressToken": token, "progress": "3"}),
            json!({"progressToken": token}),
            json!({"progress": 3}),
        ] {
            world.peer(notify("notifications/progress", wrong));
        }
        assert_eq!(progress_of(&world, call), [2.0]);
        assert_eq!(world.state(), State::Ready);
        world.until_done(call);
        // None of it counted as progress.
        assert_eq!(world.failure(call).after, seconds(60));
        world.peer(progress(&request, 9.0));
        assert_eq!(progress_of(&world, call), [2.0]);
        world.finish();
    }
}

#[test]
fn s_prog_09_progress_of_a_call_that_wants_none_is_dropped() {
    for server in BOTH {
        let mut world = ready(config(), move || {
            // The server has no token, so it uses the id of the request.
            server().on("tools/call", |request| {
                let params = json!({"progressToken": request["id"], "progress": 1});
                vec![notify("notifications/progress", params).after(seconds(30))]
            })
        });
        let quiet = CallOptions::new().without_progress();
        let call = world.call_with("tools/call", json!({"name": "slow"}), quiet);
        world.until_done(call);
        assert!(progress_of(&world, call).is_empty());
        assert_eq!(world.failure(call).after, seconds(60), "nor is it extended");
        world.finish();
    }
}

#[test]
fn s_prog_09_each_round_of_a_call_begins_its_progress_anew() {
    let mut round = 0;
    let mut world = ready(answering(), move || {
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
    let call = world.tool("two halves");
    world.until_done(call);
    assert_eq!(progress_of(&world, call), [90.0, 10.0]);
    assert_eq!(
        world.failure(call).after,
        seconds(110),
        "progress extends the idle limit in every round"
    );
    world.finish();
}

#[test]
fn f_067_a_legacy_question_stops_the_clock_of_calls_in_flight() {
    let mut world = ready(answering(), || legacy().ignores("tools/call"));
    let call = world.tool("book a flight");
    world.pass(seconds(10));
    world.peer(ask("q", "elicitation/create", form("which seat?")));
    let question = world.asks()[0];
    world.pass(seconds(300));
    assert!(!world.is_done(call));
    world.answer(question, Ok(json!({"action": "accept", "content": {}})));
    world.until_done(call);
    // 10 of the 60 s were used up when the ask came.
    assert_eq!(limit_of(&world, call), TimeLimit::Idle);
    assert_eq!(world.failure(call).after, seconds(360));
    world.finish();
}

#[test]
fn f_067_a_modern_question_stops_the_clock_of_its_call() {
    let mut round = 0;
    let mut world = ready(answering(), move || {
        Peer::modern().on("tools/call", move |request| {
            round += 1;
            let question =
                json!({"seat": {"method": "elicitation/create", "params": form("which seat?")}});
            match round {
                1 => vec![reply(request, input_required(question, None)).after(seconds(10))],
                _ => Vec::new(),
            }
        })
    });
    let call = world.tool("book a flight");
    world.pass(seconds(310));
    assert!(!world.is_done(call));
    world.answer(
        world.asks()[0],
        Ok(json!({"action": "accept", "content": {}})),
    );
    world.until_done(call);
    // The next round has the whole idle limit again.
    assert_eq!(limit_of(&world, call), TimeLimit::Idle);
    assert_eq!(world.failure(call).after, seconds(370));
    world.finish();
}

#[test]
fn f_067_the_total_limit_stands_still_too() {
    let mut world = ready(answering(), || legacy().ignores("tools/call"));
    let options = CallOptions::new()
        .with_idle(Limit::Never)
        .with_total(Limit::After(seconds(30)));
    let call = world.call_with("tools/call", json!({"name": "slow"}), options);
    world.pass(seconds(20));
    world.peer(ask(1, "roots/list", json!({})));
    world.pass(seconds(200));
    world.answer(world.asks()[0], Ok(json!({"roots": []})));
    world.until_done(call);
    assert_eq!(limit_of(&world, call), TimeLimit::Total);
    assert_eq!(world.failure(call).after, seconds(230));
    world.finish();
}

#[test]
fn f_067_what_is_asked_of_a_server_that_waits_for_a_person_stands_still_too() {
    let mut world = ready(answering(), || {
        legacy().ignores("tools/call").ignores("tools/list")
    });
    world.peer(ask("q", "elicitation/create", form("which seat?")));
    let calls = [world.tool("book a flight"), world.list(List::Tools)];
    world.pass(seconds(300));
    assert!(!calls.iter().any(|call| world.is_done(*call)));
    world.answer(
        world.asks()[0],
        Ok(json!({"action": "accept", "content": {}})),
    );
    for call in calls {
        world.until_done(call);
        assert_eq!(limit_of(&world, call), TimeLimit::Idle);
        assert_eq!(world.failure(call).after, seconds(360));
    }
    world.finish();
}

#[test]
fn f_067_progress_while_the_clock_stands_still_gives_the_idle_limit_once() {
    let mut world = ready(answering(), || legacy().ignores("tools/call"));
    let call = world.tool("book a flight");
    world.pass(seconds(10));
    world.peer(ask("q", "elicitation/create", form("which seat?")));
    world.pass(seconds(490));
    let request = world.last("tools/call");
    world.peer(progress(&request, 1.0));
    assert_eq!(progress_of(&world, call), [1.0]);
    world.pass(seconds(90));
    world.answer(
        world.asks()[0],
        Ok(json!({"action": "accept", "content": {}})),
    );
    world.until_done(call);
    assert_eq!(limit_of(&world, call), TimeLimit::Idle);
    // The answer came at 590 s, and the idle limit is 60 s.
    assert_eq!(world.failure(call).after, seconds(650));
    world.finish();
}

fn patient_for(span: core::time::Duration) -> Config {
    let mut config = answering();
    config.policy.pause_total = span;
    config
}

#[test]
fn f_067_a_server_cannot_stop_the_clock_for_ever() {
    let mut world = ready(patient_for(seconds(100)), || legacy().ignores("tools/call"));
    let call = world.tool("nosy");
    world.pass(seconds(10));
    // Ten asks in sequence, each answered in time.
    for id in 0..10 {
        world.peer(ask(id, "roots/list", json!({})));
        world.pass(seconds(30));
        if let Some(question) = world.asks().pop() {
            world.answer(question, Ok(json!({"roots": []})));
        }
    }
    assert_eq!(limit_of(&world, call), TimeLimit::Idle);
    assert_eq!(world.failure(call).after, seconds(160));
    world.finish();
}

#[test]
fn f_067_a_modern_question_cannot_stop_the_clock_for_ever_either() {
    let mut world = ready(patient_for(seconds(100)), || {
        Peer::modern().on("tools/call", |request| {
            let question = json!({"q": {"method": "roots/list"}});
            vec![reply(request, input_required(question, None)).after(seconds(10))]
        })
    });
    let call = world.tool("nosy");
    world.until_done(call);
    assert_eq!(limit_of(&world, call), TimeLimit::Idle);
    assert_eq!(world.failure(call).after, seconds(160));
    let withdrawn = world.picked(|event| match event {
        Event::AskWithdrawn { ask, why } => Some((*ask, *why)),
        _ => None,
    });
    assert_eq!(
        withdrawn,
        [(world.asks()[0], everlink::client::Withdrawn::CallSettled)]
    );
    world.finish();
}

#[test]
fn f_068_a_question_in_the_middle_of_a_call_is_answered_at_once() {
    let mut world = ready(answering(), || {
        let mut asked = Value::Null;
        legacy().on_any(move |message, acts| match message["method"].as_str() {
            Some("tools/call") => {
                asked = message.clone();
                // S-S2C-07: the ids of the two directions are independent.
                *acts = vec![ask(message["id"].clone(), "roots/list", json!({}))];
            }
            None => {
                *acts = vec![reply(
                    &asked,
                    json!({"content": message["result"]["roots"]}),
                )]
            }
            Some(_) => {}
        })
    });
    let call = world.tool("needs roots");
    let question = world.asks()[0];
    world.answer(question, Ok(json!({"roots": ["here"]})));
    assert_eq!(world.result(call)["content"], json!(["here"]));
    world.finish();
}

#[test]
fn f_068_a_call_in_the_middle_of_a_question_goes_out_at_once() {
    let mut world = ready(answering(), legacy);
    world.peer(ask(1, "sampling/createMessage", json!({"messages": []})));
    let call = world.tool("add");
    assert_eq!(world.result(call)["content"][0]["text"], "add");
    world.answer(world.asks()[0], Ok(json!({"role": "assistant"})));
    assert_eq!(world.answers().len(), 1);
    world.finish();
}

#[test]
fn f_068_a_modern_call_in_a_round_holds_up_no_other() {
    let mut world = ready(answering(), || {
        Peer::modern().on("tools/call", |request| {
            let result = match request["params"]["name"].as_str() {
                Some("asks") => input_required(json!({"q": {"method": "roots/list"}}), None),
                _ => json!({"content": []}),
            };
            vec![reply(request, result)]
        })
    });
    let asking = world.tool("asks");
    let other = world.tool("does not");
    assert!(!world.is_done(asking));
    assert_eq!(world.result(other)["content"], json!([]));
    world.finish();
}

#[test]
fn a_zero_limit_is_due_at_once_and_no_spin() {
    let mut world = ready(config(), || legacy().ignores("tools/call"));
    let options = CallOptions::new().with_idle(Limit::After(millis(0)));
    let call = world.call_with("tools/call", json!({"name": "now"}), options);
    world.until_done(call);
    assert_eq!(limit_of(&world, call), TimeLimit::Idle);
    assert!(world.failure(call).after <= millis(1));
    world.finish();
}
