//! Shutdown and planned ends of epochs: what the link waits for, how long, and the outcome of every call.
//! Rows F-102, F-103 and F-105 of the failures, as far as a client can show them.

use core::time::Duration;

use everlink::client::{CallOptions, Delivery, Event, FailureKind, Misuse, State};
use everlink::{Config, ExitStatus, FaultKind, Input, Instant, List, Policy};
use serde_json::json;

use crate::client_pipe::{
    self, Act, Command, Harness, Peer, ask, config, dies, notify, reply, seconds,
};
use crate::eras::{BOTH_ERAS, config_with_asks, legacy, ready};

/// All transport commands except `Open`, with their times since `origin`.
fn close_commands(harness: &Harness, origin: Instant) -> Vec<(Duration, Command)> {
    let commands = harness.timed_commands().iter();
    commands
        .filter(|(_, command)| !matches!(command, Command::Open(_)))
        .map(|(at, command)| (at.since(origin), *command))
        .collect()
}

#[test]
fn f_102_planned_reconnect_waits_for_calls_in_flight() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            server().on("tools/call", |request| {
                vec![reply(request, json!({"content": ["in time"]})).after(seconds(3))]
            })
        });
        let call = harness.call_tool("slow");
        let began = harness.now();
        harness.reconnect("new settings");
        assert_eq!(harness.state(), State::Draining);
        assert!(
            close_commands(&harness, began).is_empty(),
            "no close command yet"
        );
        // A call at this time waits for the next epoch.
        let next = harness.call_tool("later");
        harness.until_done(next);
        assert_eq!(harness.result(call)["content"], json!(["in time"]));
        assert_eq!(harness.result(next)["content"], json!(["in time"]));
        let closed = (seconds(3), Command::CloseWrite(1));
        assert_eq!(
            close_commands(&harness, began)[0],
            closed,
            "right after the last call is done"
        );
        assert_eq!(
            harness.lines_of(2).last().map(|l| &l["params"]["name"]),
            Some(&json!("later"))
        );
        harness.finish();
    }
}

#[test]
fn f_102_calls_still_open_after_the_drain_time_fail_as_lost() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            server()
                .ignores("tools/call")
                .on("prompts/get", |_| Vec::new())
        });
        let calls: Vec<_> = (0..10).map(|_| harness.call_tool("stuck")).collect();
        let safe = harness.call("prompts/get", json!({"name": "hello"}));
        harness.reconnect("new settings");
        harness.advance(seconds(5));
        for call in calls {
            let failure = harness.failure(call);
            assert_eq!(failure.kind, FailureKind::Lost);
            assert_eq!(failure.delivery, Delivery::Unknown);
            assert_eq!(failure.after, seconds(5));
            assert!(failure.to_string().contains("new settings"), "{failure}");
        }
        harness.until_ready();
        harness.advance(seconds(1));
        assert!(
            !harness.is_done(safe),
            "a read-only call goes to the next epoch"
        );
        assert_eq!(harness.messages_with("prompts/get").len(), 2);
        assert_eq!(harness.link().failures(), 0);
        harness.finish();
    }
}

#[test]
fn f_102_death_of_a_draining_server_ends_the_drain() {
    let mut harness = ready(config(), || legacy().ignores("tools/call"));
    let call = harness.call_tool("stuck");
    harness.reconnect("new settings");
    harness.perform_all(dies(ExitStatus::Code(1)));
    assert_eq!(harness.failure(call).kind, FailureKind::Lost);
    harness.until_ready();
    harness.finish();
}

#[test]
fn f_102_write_failure_shortens_the_drain_to_the_close_grace() {
    for server in BOTH_ERAS {
        let mut config = config();
        config.policy = Policy::background();
        let mut harness = ready(config, move || {
            server().ignores("tools/call").ignores_kill()
        });
        let call = harness.call_tool("stuck");
        harness.reconnect("new settings");
        assert_eq!(harness.state(), State::Draining);
        harness.advance(seconds(1));
        harness.perform(Act::WriteFailed(vec![FaultKind::BrokenPipe.into()]));
        harness.until_done(call);
        // The grace period of a close, not the minute of a planned drain.
        assert_eq!(harness.failure(call).after, seconds(3));
        harness.finish();
    }
}

#[test]
fn f_102_write_failure_does_not_lengthen_the_drain() {
    let mut harness = ready(config(), || legacy().ignores("tools/call").ignores_kill());
    let call = harness.call_tool("stuck");
    harness.reconnect("new settings");
    harness.advance(seconds(4));
    harness.perform(Act::WriteFailed(vec![FaultKind::BrokenPipe.into()]));
    harness.until_done(call);
    assert_eq!(harness.failure(call).after, seconds(5));
    harness.finish();
}

#[test]
fn f_102_draining_server_gets_no_new_requests() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        harness.call_tool("stuck");
        let lines_before = harness.lines_of(1).len();
        let list = harness.list_unpolled(List::Tools);
        harness.reconnect("new settings");
        harness.advance(seconds(4));
        assert_eq!(harness.state(), State::Draining);
        assert_eq!(harness.lines_of(1).len(), lines_before);
        harness.until_done(list);
        assert_eq!(
            harness.epoch_number(),
            2,
            "the next server gets the request"
        );
        harness.finish();
    }
}

#[test]
fn f_102_drain_time_of_zero_skips_draining() {
    for server in BOTH_ERAS {
        let mut config = config();
        config.policy.drain = Duration::ZERO;
        let mut harness = ready(config, move || server().ignores("tools/call"));
        let call = harness.call_tool("stuck");
        harness.reconnect("new settings");
        assert_eq!(harness.failure(call).kind, FailureKind::Lost);
        let drained =
            harness.pick_events(|event| matches!(event, Event::Draining { .. }).then_some(()));
        assert!(drained.is_empty());
        harness.finish();
    }
}

#[test]
fn f_102_shutdown_fails_every_call_at_once() {
    for server in BOTH_ERAS {
        let mut config = config();
        config.limits.calls_in_flight = 3;
        let mut harness = ready(config, move || {
            server().ignores("tools/call").ignores("tools/list")
        });
        let calls: Vec<_> = (0..5).map(|_| harness.call_tool("stuck")).collect();
        let list = harness.list(everlink::List::Tools);
        let began = harness.now();
        harness.shutdown();
        assert_eq!(harness.now(), began);
        for (number, call) in calls.into_iter().enumerate() {
            let failure = harness.failure(call);
            assert_eq!(failure.kind, FailureKind::Closed);
            let expected = if number < 3 {
                Delivery::Unknown
            } else {
                Delivery::NotSent
            };
            assert_eq!(failure.delivery, expected);
        }
        assert_eq!(harness.failure(list).kind, FailureKind::Closed);
        let late = harness.try_call("tools/call", json!({"name": "late"}), CallOptions::new());
        assert_eq!(
            late,
            Err(Misuse::Closed),
            "no call is accepted while the link closes"
        );
        harness.finish();
    }
}

/// S-TIME-06: each step of a shutdown has its timeout.
#[test]
fn f_103_close_of_a_child_that_never_exits_ends_after_7_s() {
    let mut harness = ready(config(), || legacy().ignores_kill());
    let began = harness.now();
    harness.shutdown();
    harness.until_state(State::Closed);
    let steps = [
        (seconds(0), Command::CloseWrite(1)),
        (seconds(2), Command::Terminate(1)),
        (seconds(5), Command::Kill(1)),
        (seconds(7), Command::Release(1)),
    ];
    assert_eq!(close_commands(&harness, began), steps);
    let ended = harness.link().last_end().expect("an epoch has ended");
    assert!(ended.abandoned);
    assert!(ended.to_string().contains("may still run"), "{ended}");
}

#[test]
fn f_103_socket_that_stays_open_is_killed_after_2_s() {
    let mut harness = ready(Config::socket("test", "1"), || legacy().ignores_kill());
    let began = harness.now();
    harness.shutdown();
    harness.until_state(State::Closed);
    let steps = [
        (seconds(0), Command::CloseWrite(1)),
        (seconds(2), Command::Kill(1)),
        (seconds(4), Command::Release(1)),
    ];
    assert_eq!(close_commands(&harness, began), steps);
}

#[test]
fn f_103_close_steps_stop_as_soon_as_the_server_ends() {
    for (server, steps) in [
        (legacy as fn() -> Peer, &[Command::CloseWrite(1)][..]),
        (
            || legacy().ignores_eof(),
            &[Command::CloseWrite(1), Command::Terminate(1)],
        ),
        (
            || legacy().ignores_terminate(),
            &[
                Command::CloseWrite(1),
                Command::Terminate(1),
                Command::Kill(1),
            ],
        ),
    ] {
        let mut harness = ready(config(), server);
        harness.shutdown();
        harness.until_state(State::Closed);
        let [Command::Open(1), steps_taken @ .., Command::Release(1)] = &harness.commands_of(1)[..]
        else {
            panic!("an epoch begins with Open and ends with Release");
        };
        assert_eq!(steps_taken, steps);
    }
}

#[test]
fn f_103_server_that_ended_before_the_poll_gets_no_close_command() {
    // Open or still opening, the server ends before the driver polls.
    for acts in [vec![Act::Opened], Vec::new()] {
        let mut harness = Harness::new(config()).served_by(move |_| {
            let acts = acts.clone();
            legacy().on_open(acts)
        });
        harness.connect();
        harness.with_link(|link, now| {
            let epoch = link.epoch();
            link.shutdown(now);
            link.handle(now, epoch, Input::exited(ExitStatus::Code(0)));
            link.handle(now, epoch, Input::end(&[]));
        });
        assert_eq!(harness.state(), State::Closed);
        assert_eq!(harness.commands(), [Command::Open(1), Command::Release(1)]);
        harness.finish();
    }
}

#[test]
fn f_103_notification_of_a_closing_server_is_not_reported() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores_eof());
        harness.shutdown();
        assert_eq!(harness.state(), State::Closing);
        harness.perform(notify("notifications/strange", json!({})));
        let is_notified = |(_, event): &(Instant, Event)| matches!(event, Event::Notified { .. });
        assert!(!harness.events().iter().any(is_notified));
        harness.finish();
    }
}

#[test]
fn f_103_a_shutdown_does_not_wait_for_a_planned_reconnect_to_drain() {
    let mut harness = ready(config(), || legacy().ignores("tools/call"));
    let call = harness.call_tool("stuck");
    harness.reconnect("new settings");
    let began = harness.now();
    harness.shutdown();
    assert_eq!(harness.failure(call).kind, FailureKind::Closed);
    harness.until_state(State::Closed);
    assert_eq!(harness.now(), began);
    assert_eq!(harness.epoch_number(), 1);
}

#[test]
fn f_103_closed_is_the_last_event_and_comes_once() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), server);
        harness.shutdown();
        harness.shutdown();
        harness.until_state(State::Closed);
        harness.shutdown();
        harness.advance(seconds(100));
        let last = harness.events().last().map(|(_, event)| event);
        assert!(matches!(last, Some(Event::Closed)));
        let closed = |event: &Event| matches!(event, Event::Closed).then_some(());
        assert_eq!(harness.pick_events(closed).len(), 1);
    }
}

#[test]
fn f_105_an_answer_to_a_dead_server_is_dropped() {
    let mut harness = ready(config_with_asks(), legacy);
    harness.perform(ask("q", "roots/list", json!({})));
    let ask_id = harness.asks()[0];
    let epoch = harness.link().epoch();
    let answer = client_pipe::payload(&json!({"roots": []}));
    // The server dies before the answer is sent.
    harness.with_link(|link, now| {
        link.answer(now, ask_id, Ok(answer.clone()))
            .expect("the ask is open");
        link.handle(now, epoch, Input::end(Vec::new()));
    });
    let again = harness.with_link(|link, now| link.answer(now, ask_id, Ok(answer)));
    assert_eq!(again, Err(Misuse::UnknownAsk));
    harness.perform(Act::Exit(ExitStatus::Code(1)));
    harness.until_ready();
    harness.advance(seconds(1));
    assert!(
        harness.ask_replies().is_empty(),
        "the next server gets no answer either"
    );
    harness.finish();
}

#[test]
fn f_105_cancellation_for_a_dead_server_is_not_sent_to_the_next() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        let call = harness.call_tool("slow");
        let epoch = harness.link().epoch();
        harness.with_link(|link, now| {
            link.cancel(now, call, None).expect("the call is under way");
            link.handle(now, epoch, Input::end(Vec::new()));
        });
        harness.perform(Act::Exit(ExitStatus::Code(1)));
        harness.until_ready();
        harness.advance(seconds(1));
        assert!(harness.messages_with("notifications/cancelled").is_empty());
        harness.finish();
    }
}

/// While the link drains, a call in flight may send its request state back to the same server.
#[test]
fn f_102_call_between_two_rounds_can_finish_while_draining() {
    let mut harness = ready(config(), || {
        Peer::modern().on("tools/call", |request| {
            if request["params"].get("requestState").is_some() {
                return vec![reply(request, json!({"content": ["in time"]}))];
            }
            let round = json!({"resultType": "input_required", "requestState": "s"});
            vec![reply(request, round).after(seconds(1))]
        })
    });
    let call = harness.call_tool("in two rounds");
    harness.reconnect("new settings");
    harness.until_done(call);
    assert_eq!(harness.result(call)["content"], json!(["in time"]));
    let methods = harness.methods_of(1);
    let rounds = methods.iter().filter(|method| **method == "tools/call");
    assert_eq!(rounds.count(), 2, "both rounds go to the same server");
    harness.finish();
}

/// Both calls are queued before either is sent again.
#[test]
fn f_102_two_calls_between_two_rounds_can_finish_while_draining() {
    let mut harness = ready(config(), || {
        Peer::modern().on("tools/call", |request| {
            let is_second = request["params"].get("requestState").is_some();
            let answer = reply(request, json!({"content": ["in time"]}));
            is_second.then_some(answer).into_iter().collect()
        })
    });
    let calls = ["first", "second"].map(|name| harness.call_tool(name));
    harness.reconnect("new settings");
    let round = json!({"resultType": "input_required", "requestState": "s"});
    let requests = harness.messages_with("tools/call").into_iter();
    let rounds = requests.map(|request| reply(request, round.clone()));
    harness.perform(Act::AtOnce(rounds.collect()));
    for call in calls {
        assert_eq!(harness.result(call)["content"], json!(["in time"]));
    }
    assert_eq!(harness.messages_with("tools/call").len(), 4);
    harness.finish();
}

/// There is nothing to wait for.
#[test]
fn reconnect_without_calls_in_flight_does_not_drain() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), server);
        harness.reconnect("new settings");
        let drains = |event: &Event| matches!(event, Event::Draining { .. }).then_some(());
        assert!(harness.pick_events(drains).is_empty());
        harness.until_ready();
        harness.finish();
    }
}

/// The application must not have to wait for the last event to know that the link takes nothing more.
#[test]
fn call_to_a_link_that_closes_or_has_closed_is_refused() {
    let mut closing = ready(config(), || legacy().ignores_eof());
    closing.shutdown();
    assert_eq!(closing.state(), State::Closing);
    let mut script = config();
    script.policy = Policy::one_shot();
    let mut closed = ready(script, legacy);
    closed.perform_all(dies(ExitStatus::Code(1)));
    assert_eq!(closed.state(), State::Closed);
    for mut harness in [closing, closed] {
        let call = harness.try_call("tools/call", json!({"name": "add"}), CallOptions::new());
        assert_eq!(call, Err(Misuse::Closed));
        harness.finish();
    }
}
