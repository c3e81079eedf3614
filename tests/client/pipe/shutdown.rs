//! The end of a link, and planned ends of epochs: what is waited for, for how long, and the outcome of every call.
//! Rows F-102, F-103 and F-105 of the failures, as far as a client can show them.

use core::time::Duration;

use everlink::client::{CallOptions, Delivery, Event, FailureKind, Misuse, State};
use everlink::{Config, ExitStatus, FaultKind, Input, Instant, List, Policy};
use serde_json::json;

use crate::client_pipe::{
    self, Act, Command, Peer, World, ask, config, dies, notify, reply, seconds,
};
use crate::eras::{BOTH, answering, legacy, ready};

/// All transport commands except `Open`, with their times since `origin`.
fn ladder(world: &World, origin: Instant) -> Vec<(Duration, Command)> {
    let commands = world.timed_commands().iter();
    commands
        .filter(|(_, command)| !matches!(command, Command::Open(_)))
        .map(|(at, command)| (at.since(origin), *command))
        .collect()
}

#[test]
fn f_102_a_planned_reconnect_lets_calls_in_flight_end() {
    for server in BOTH {
        let mut world = ready(config(), move || {
            server().on("tools/call", |request| {
                vec![reply(request, json!({"content": ["in time"]})).after(seconds(3))]
            })
        });
        let call = world.tool("slow");
        let began = world.now();
        world.reconnect("new settings");
        assert_eq!(world.state(), State::Draining);
        assert!(ladder(&world, began).is_empty(), "nothing is cut yet");
        // A call at this time waits for the next epoch.
        let next = world.tool("later");
        world.until_done(next);
        assert_eq!(world.result(call)["content"], json!(["in time"]));
        assert_eq!(world.result(next)["content"], json!(["in time"]));
        let closed = (seconds(3), Command::CloseWrite(1));
        assert_eq!(
            ladder(&world, began)[0],
            closed,
            "as soon as the last is done"
        );
        assert_eq!(
            world.lines_of(2).last().map(|l| &l["params"]["name"]),
            Some(&json!("later"))
        );
        world.finish();
    }
}

#[test]
fn f_102_what_is_not_done_when_the_patience_ends_is_told_so_each() {
    for server in BOTH {
        let mut world = ready(config(), move || {
            server()
                .ignores("tools/call")
                .on("prompts/get", |_| Vec::new())
        });
        let calls: Vec<_> = (0..10).map(|_| world.tool("stuck")).collect();
        let safe = world.call("prompts/get", json!({"name": "hello"}));
        world.reconnect("new settings");
        world.pass(seconds(5));
        for call in calls {
            let failure = world.failure(call);
            assert_eq!(failure.kind, FailureKind::Lost);
            assert_eq!(failure.delivery, Delivery::Unknown);
            assert_eq!(failure.after, seconds(5));
            assert!(failure.to_string().contains("new settings"), "{failure}");
        }
        world.until_ready();
        world.pass(seconds(1));
        assert!(
            !world.is_done(safe),
            "what only reads goes to the next life"
        );
        assert_eq!(world.said("prompts/get").len(), 2);
        assert_eq!(world.link().failures(), 0);
        world.finish();
    }
}

#[test]
fn f_102_a_server_that_dies_while_it_is_waited_for_ends_the_wait() {
    let mut world = ready(config(), || legacy().ignores("tools/call"));
    let call = world.tool("stuck");
    world.reconnect("new settings");
    world.peer_all(dies(ExitStatus::Code(1)));
    assert_eq!(world.failure(call).kind, FailureKind::Lost);
    world.until_ready();
    world.finish();
}

#[test]
fn f_102_a_server_that_no_longer_reads_is_not_waited_for_so_long() {
    for server in BOTH {
        let mut config = config();
        config.policy = Policy::background();
        let mut world = ready(config, move || server().ignores("tools/call").immortal());
        let call = world.tool("stuck");
        world.reconnect("new settings");
        assert_eq!(world.state(), State::Draining);
        world.pass(seconds(1));
        world.peer(Act::WriteFailed(vec![FaultKind::BrokenPipe.into()]));
        world.until_done(call);
        // The grace period of a close, not the minute of a planned drain.
        assert_eq!(world.failure(call).after, seconds(3));
        world.finish();
    }
}

#[test]
fn f_102_a_broken_pipe_does_not_lengthen_the_wait() {
    let mut world = ready(config(), || legacy().ignores("tools/call").immortal());
    let call = world.tool("stuck");
    world.reconnect("new settings");
    world.pass(seconds(4));
    world.peer(Act::WriteFailed(vec![FaultKind::BrokenPipe.into()]));
    world.until_done(call);
    assert_eq!(world.failure(call).after, seconds(5));
    world.finish();
}

#[test]
fn f_102_nothing_new_is_asked_of_a_server_that_is_on_its_way_out() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        world.tool("stuck");
        let said = world.lines_of(1).len();
        let list = world.list_unpolled(List::Tools);
        world.reconnect("new settings");
        world.pass(seconds(4));
        assert_eq!(world.state(), State::Draining);
        assert_eq!(world.lines_of(1).len(), said);
        world.until_done(list);
        assert_eq!(world.life(), 2, "the next one is asked");
        world.finish();
    }
}

#[test]
fn f_102_no_patience_means_no_draining_at_all() {
    for server in BOTH {
        let mut config = config();
        config.policy.drain = Duration::ZERO;
        let mut world = ready(config, move || server().ignores("tools/call"));
        let call = world.tool("stuck");
        world.reconnect("new settings");
        assert_eq!(world.failure(call).kind, FailureKind::Lost);
        let drained = world.picked(|event| matches!(event, Event::Draining { .. }).then_some(()));
        assert!(drained.is_empty());
        world.finish();
    }
}

#[test]
fn f_102_a_shutdown_tells_every_call_at_once() {
    for server in BOTH {
        let mut config = config();
        config.limits.calls_in_flight = 3;
        let mut world = ready(config, move || {
            server().ignores("tools/call").ignores("tools/list")
        });
        let calls: Vec<_> = (0..5).map(|_| world.tool("stuck")).collect();
        let list = world.list(everlink::List::Tools);
        let began = world.now();
        world.shutdown();
        assert_eq!(world.now(), began);
        for (number, call) in calls.into_iter().enumerate() {
            let failure = world.failure(call);
            assert_eq!(failure.kind, FailureKind::Closed);
            let sent = if number < 3 {
                Delivery::Unknown
            } else {
                Delivery::NotSent
            };
            assert_eq!(failure.delivery, sent);
        }
        assert_eq!(world.failure(list).kind, FailureKind::Closed);
        let late = world.try_call("tools/call", json!({"name": "late"}), CallOptions::new());
        assert_eq!(
            late,
            Err(Misuse::Closed),
            "nothing new is taken while it closes"
        );
        world.finish();
    }
}

#[test]
fn f_103_closing_has_a_deadline_whatever_the_child_does() {
    let mut world = ready(config(), || legacy().immortal());
    let began = world.now();
    world.shutdown();
    world.until_state(State::Closed);
    let rungs = [
        (seconds(0), Command::CloseWrite(1)),
        (seconds(2), Command::Terminate(1)),
        (seconds(5), Command::Kill(1)),
        (seconds(7), Command::Release(1)),
    ];
    assert_eq!(ladder(&world, began), rungs);
    let ended = world.link().last_end().expect("a life has ended");
    assert!(ended.abandoned);
    assert!(ended.to_string().contains("may still run"), "{ended}");
}

#[test]
fn f_103_a_socket_is_closed_and_then_cut() {
    let mut world = ready(Config::socket("test", "1"), || legacy().immortal());
    let began = world.now();
    world.shutdown();
    world.until_state(State::Closed);
    let rungs = [
        (seconds(0), Command::CloseWrite(1)),
        (seconds(2), Command::Kill(1)),
        (seconds(4), Command::Release(1)),
    ];
    assert_eq!(ladder(&world, began), rungs);
}

#[test]
fn f_103_each_rung_that_works_is_the_last() {
    for (server, rungs) in [
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
        let mut world = ready(config(), server);
        world.shutdown();
        world.until_state(State::Closed);
        let [Command::Open(1), climbed @ .., Command::Release(1)] = &world.commands_of(1)[..]
        else {
            panic!("a life begins with Open and ends with Release");
        };
        assert_eq!(climbed, rungs);
    }
}

#[test]
fn f_103_what_is_gone_is_told_nothing_any_more() {
    // Open or still opening, the server ends before the driver polls.
    for acts in [vec![Act::Opened], Vec::new()] {
        let mut world = World::new(config()).served_by(move |_| {
            let acts = acts.clone();
            legacy().opens_with(acts)
        });
        world.connect();
        world.verb(|link, now| {
            let epoch = link.epoch();
            link.shutdown(now);
            link.handle(now, epoch, Input::exited(ExitStatus::Code(0)));
            link.handle(now, epoch, Input::end(&[]));
        });
        assert_eq!(world.state(), State::Closed);
        assert_eq!(world.commands(), [Command::Open(1), Command::Release(1)]);
        world.finish();
    }
}

#[test]
fn f_103_what_a_server_says_on_its_way_out_is_not_told() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores_eof());
        world.shutdown();
        assert_eq!(world.state(), State::Closing);
        world.peer(notify("notifications/strange", json!({})));
        let is_told = |(_, event): &(Instant, Event)| matches!(event, Event::Notified { .. });
        assert!(!world.events().iter().any(is_told));
        world.finish();
    }
}

#[test]
fn f_103_a_shutdown_does_not_wait_for_a_planned_reconnect_to_drain() {
    let mut world = ready(config(), || legacy().ignores("tools/call"));
    let call = world.tool("stuck");
    world.reconnect("new settings");
    let began = world.now();
    world.shutdown();
    assert_eq!(world.failure(call).kind, FailureKind::Closed);
    world.until_state(State::Closed);
    assert_eq!(world.now(), began);
    assert_eq!(world.life(), 1);
}

#[test]
fn f_103_the_last_event_is_the_last_and_comes_once() {
    for server in BOTH {
        let mut world = ready(config(), server);
        world.shutdown();
        world.shutdown();
        world.until_state(State::Closed);
        world.shutdown();
        world.pass(seconds(100));
        let last = world.events().last().map(|(_, event)| event);
        assert!(matches!(last, Some(Event::Closed)));
        let closed = |event: &Event| matches!(event, Event::Closed).then_some(());
        assert_eq!(world.picked(closed).len(), 1);
    }
}

#[test]
fn f_105_an_answer_to_a_dead_server_is_dropped() {
    let mut world = ready(answering(), legacy);
    world.peer(ask("q", "roots/list", json!({})));
    let question = world.asks()[0];
    let epoch = world.link().epoch();
    let answer = client_pipe::payload(&json!({"roots": []}));
    // The server dies before the answer is sent.
    world.verb(|link, now| {
        link.answer(now, question, Ok(answer.clone()))
            .expect("the question is open");
        link.handle(now, epoch, Input::end(Vec::new()));
    });
    let again = world.verb(|link, now| link.answer(now, question, Ok(answer)));
    assert_eq!(again, Err(Misuse::UnknownAsk));
    world.peer(Act::Exit(ExitStatus::Code(1)));
    world.until_ready();
    world.pass(seconds(1));
    assert!(world.answers().is_empty(), "not to the next one either");
    world.finish();
}

#[test]
fn f_105_a_cancellation_for_a_dead_server_is_not_told_to_the_next() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        let call = world.tool("slow");
        let epoch = world.link().epoch();
        world.verb(|link, now| {
            link.cancel(now, call, None).expect("the call is under way");
            link.handle(now, epoch, Input::end(Vec::new()));
        });
        world.peer(Act::Exit(ExitStatus::Code(1)));
        world.until_ready();
        world.pass(seconds(1));
        assert!(world.said("notifications/cancelled").is_empty());
        world.finish();
    }
}

/// While the link drains, a call in flight may send its request state back to the same server.
#[test]
fn f_102_a_call_between_its_rounds_may_end_while_draining() {
    let mut world = ready(config(), || {
        Peer::modern().on("tools/call", |request| {
            if request["params"].get("requestState").is_some() {
                return vec![reply(request, json!({"content": ["in time"]}))];
            }
            let round = json!({"resultType": "input_required", "requestState": "s"});
            vec![reply(request, round).after(seconds(1))]
        })
    });
    let call = world.tool("in two rounds");
    world.reconnect("new settings");
    world.until_done(call);
    assert_eq!(world.result(call)["content"], json!(["in time"]));
    let asked = world.methods_of(1);
    let rounds = asked.iter().filter(|method| **method == "tools/call");
    assert_eq!(rounds.count(), 2, "both of the same server");
    world.finish();
}
