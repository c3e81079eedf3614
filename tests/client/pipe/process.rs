//! Failures of a server that is a child process. Each test is named after its row in the catalogue of failures.

use core::time::Duration;

use crate::client_pipe::{
    Act, Command, Peer, World, ask, config, dies, dies_exit_first, every_chunking, every_era,
    millis, notify, reply, seconds, stderr,
};
use everlink::client::{
    CallOptions, Cause, Delivery, Event, FailureKind, Misuse, State, TimeLimit,
};
use everlink::{Dialect, ExitStatus, FaultKind, Input, Limit, WhenSpent};
use serde_json::{Value, json};

/// The time that the output may stay open after the process exits, before the rest of the tree is terminated.
const LAST_WORDS: Duration = millis(100);

/// The number of `Noise` events.
fn noises(world: &World) -> usize {
    let shown = world.picked(|event| match event {
        Event::Noise(noise) => Some(noise.count),
        _ => None,
    });
    shown.len()
}

/// The causes of the ends of transports, in order.
fn causes(world: &World) -> Vec<Cause> {
    world.picked(|event| match event {
        Event::Closing { cause, .. } => Some(cause.clone()),
        _ => None,
    })
}

/// A message as a line, with extra bytes around it.
fn line(before: &[u8], message: &Act, after: &[u8]) -> Act {
    match message {
        Act::Say(message) => Act::Raw([before, message.to_string().as_bytes(), after].concat()),
        other => panic!("{other:?} is no message"),
    }
}

#[test]
fn f_001_child_dies_while_idle() {
    for death in [dies, dies_exit_first] {
        every_era(|chunking, peer| {
            let mut world = World::new(config())
                .chunked(chunking)
                .served_by(move |_| peer().ignores_eof());
            world.until_ready();
            world.pass(seconds(10));
            let mut death = death(ExitStatus::Signal(9)).into_iter();
            world.peer_unpolled(&death.next().expect("a death has two parts"));
            assert_eq!(world.state(), State::Closing);
            assert!(world.link().session().is_none());
            world.turn();
            world.peer_all(death.collect());
            assert_eq!(world.state(), State::Waiting);
            let ended = world.link().last_end().expect("a life ended");
            assert_eq!(ended.cause, Cause::Died);
            assert_eq!(ended.exit, Some(ExitStatus::Signal(9)));
            assert_eq!(ended.ready_for, Some(seconds(10)));
            let gentle = [
                Command::Open(1),
                Command::CloseWrite(1),
                Command::Release(1),
            ];
            assert_eq!(world.commands_of(1), gentle, "what is dead needs no force");
            world.until_ready();
            assert_eq!(world.life(), 2);
            world
        });
    }
}

#[test]
fn f_002_child_dies_with_calls_in_flight() {
    every_era(|chunking, peer| {
        let mut config = config();
        config.limits.calls_in_flight = 3;
        let mut world = World::new(config)
            .chunked(chunking)
            .served_by(move |life| match life {
                1 => peer().ignores("tools/call").ignores("tools/list"),
                _ => peer(),
            });
        world.until_ready();
        let acts = world.tool("acts");
        let params = json!({"name": "repeats"});
        let repeats = world.call_with("tools/call", params, CallOptions::new().idempotent());
        let reads = world.call("tools/list", json!({}));
        let unsent = world.tool("unsent");
        let written = world.methods_of(1);
        assert_eq!(
            written
                .iter()
                .filter(|method| method.starts_with("tools/"))
                .count(),
            3
        );

        world.peer_unpolled(&Act::End(Vec::new()));
        assert_eq!(world.link().stats().settled, 1, "in the same step");
        assert_eq!(world.link().stats().requeued, 2, "in the same step");
        world.turn();
        let failure = world.failure(acts);
        assert_eq!(
            (&failure.kind, failure.delivery),
            (&FailureKind::Lost, Delivery::Unknown)
        );
        world.peer(Act::Exit(ExitStatus::Code(1)));

        // Calls that were never sent, and calls that may be repeated, are not lost.
        let others = [repeats, reads, unsent];
        assert!(others.iter().all(|call| !world.is_done(*call)));
        for call in others {
            world.until_done(call);
        }
        assert_eq!(world.result(repeats)["content"][0]["text"], "repeats");
        assert_eq!(world.result(reads)["tools"][0]["name"], "add");
        assert_eq!(world.result(unsent)["content"][0]["text"], "unsent");
        assert_eq!(world.life(), 2);
        world
    });
}

#[test]
fn f_002_a_call_that_kills_every_server_is_not_repeated_for_ever() {
    every_era(|chunking, peer| {
        let mut world = World::new(config())
            .chunked(chunking)
            .served_by(move |_| peer().dies_of("tools/call", ExitStatus::Signal(11)));
        world.until_ready();
        let params = json!({"name": "deadly"});
        let call = world.call_with("tools/call", params, CallOptions::new().idempotent());
        world.until_done(call);
        let failure = world.failure(call);
        assert_eq!(
            (&failure.kind, failure.delivery),
            (&FailureKind::Lost, Delivery::Unknown)
        );
        let lives_spent = u64::from(config().policy.resends) + 1;
        assert_eq!(world.life(), lives_spent);
        let ids: Vec<&Value> = (1..=lives_spent)
            .map(|life| &world.lines_of(life).last().expect("it was sent")["id"])
            .collect();
        assert!(
            ids.windows(2).all(|pair| pair[0] != pair[1]),
            "each under a new id"
        );
        world
    });
}

#[test]
fn f_003_child_exits_and_a_grandchild_keeps_stdout_open() {
    every_era(|chunking, peer| {
        let mut world = World::new(config())
            .chunked(chunking)
            .served_by(move |life| match life {
                1 => peer().ignores("tools/call").immortal(),
                _ => peer(),
            });
        world.until_ready();
        let first = world.link().epoch();
        let call = world.tool("add");
        let died = world.now();
        world.peer_unpolled(&Act::Exit(ExitStatus::Code(0)));
        assert_eq!(world.state(), State::Closing);
        assert_eq!(world.link().stats().settled, 1);
        world.turn();
        assert!(world.failure(call).to_string().contains("exit status 0"));

        // The output may end a moment later. If it does not, the rest of the process tree is terminated, killed, and
        // released.
        world.until_state(State::Waiting);
        let policy = config().policy;
        let asked = died + LAST_WORDS;
        let killed = asked + policy.terminate_grace;
        let released = killed + policy.kill_grace;
        assert_eq!(
            world.timed_commands()[1..],
            [
                (died, Command::CloseWrite(1)),
                (asked, Command::Terminate(1)),
                (killed, Command::Kill(1)),
                (released, Command::Release(1)),
            ]
        );
        assert!(world.link().last_end().expect("a life ended").abandoned);
        world.until_ready();

        // Output of the grandchild belongs to an epoch that is over.
        let old = world.lines_of(1).last().expect("the call was sent")["id"].clone();
        let before = world.link().stats().stale_inputs;
        let words = format!("{}\n", json!({"jsonrpc": "2.0", "id": old, "result": {}}));
        world.force(first, Input::bytes(words.as_bytes()));
        assert_eq!(world.link().stats().stale_inputs, before + 1);
        world
    });
}

#[test]
fn f_004_stderr_is_drained_and_only_its_tail_is_kept() {
    every_chunking(|chunking| {
        let mut world = World::new(config()).chunked(chunking);
        world.until_ready();
        for number in 0..2_000 {
            world.peer(stderr(&format!(
                "warning {number}: this server talks too much"
            )));
        }
        assert_eq!(world.state(), State::Ready);
        let call = world.tool("add");
        assert!(world.is_done(call));
        world.peer_all(dies(ExitStatus::Code(1)));
        let ended = world.link().last_end().expect("a life ended");
        assert!(ended.stderr.len() <= config().limits.stderr_tail);
        assert!(
            ended
                .stderr
                .ends_with("warning 1999: this server talks too much")
        );
        assert!(ended.stderr.starts_with("warning "), "from a whole line on");
        assert!(ended.to_string().contains("warning 1998"));
        world
    });
}

#[test]
fn f_005_stderr_counts_from_the_first_byte() {
    every_era(|chunking, peer| {
        let mut world = World::new(config())
            .chunked(chunking)
            .served_by(move |life| match life {
                1 => Peer::silent().opens_with(vec![
                    stderr(&"x".repeat(6_187)),
                    stderr("cannot find the module"),
                    Act::Opened,
                    Act::End(Vec::new()),
                    Act::Exit(ExitStatus::Code(1)),
                ]),
                2 => peer().opens_with(vec![
                    stderr(&"x".repeat(6_187)),
                    Act::OpenFailed(vec![FaultKind::ResourcesExhausted.into()]),
                ]),
                _ => peer().opens_with(vec![stderr(&"x".repeat(6_187)), Act::Opened]),
            });
        world.connect();
        let ended = world.link().last_end().expect("a life ended");
        assert_eq!(&*ended.stderr, "cannot find the module");
        world.until_ready();
        assert_eq!(world.life(), 3);
        world
    });
}

#[test]
fn f_006_banners_and_logs_on_stdout_are_skipped_and_counted() {
    every_era(|chunking, peer| {
        let mut world = World::new(config()).chunked(chunking).served_by(move |_| {
            peer()
                .greets_with(vec![
                    Act::Raw(b"Welcome to the server!\n\n".to_vec()),
                    Act::Raw(b"\x1b[32mINFO\x1b[0m listening on stdio\n".to_vec()),
                ])
                .on("tools/call", |request| {
                    let answer = reply(request, json!({"content": []}));
                    vec![
                        Act::Raw(b"DEBUG tools/call\n".to_vec()),
                        line(b"", &answer, b"\n"),
                        Act::Raw(b"{\"not\": \"a message\"}\n[1,2\n".to_vec()),
                    ]
                })
        });
        world.until_ready();
        assert_eq!(noises(&world), 2);
        let call = world.tool("add");
        assert_eq!(world.result(call)["content"], json!([]));
        assert_eq!(noises(&world), 5);
        for _ in 0..1_000 {
            world.peer(Act::Raw(b"still here\n".to_vec()));
        }
        assert_eq!(world.state(), State::Ready, "never fatal by default");
        assert_eq!(world.link().stats().noise, 1_005);
        assert!(noises(&world) < 20, "told ever less often");
        world
    });
}

#[test]
fn f_006_a_cap_on_noise_in_a_row_can_be_asked_for() {
    every_era(|chunking, peer| {
        let mut config = config();
        config.limits.noise_run = Some(3);
        let mut world = World::new(config)
            .chunked(chunking)
            .served_by(move |_| peer());
        world.until_ready();
        for _ in 0..2 {
            for _ in 0..3 {
                world.peer(Act::Raw(b"not yet\n".to_vec()));
            }
            let call = world.tool("add");
            assert!(
                world.is_done(call),
                "a message that makes sense begins a new row"
            );
        }
        for _ in 0..4 {
            assert_eq!(world.state(), State::Ready);
            world.peer(Act::Raw(b"too much\n".to_vec()));
        }
        assert_eq!(causes(&world), [Cause::Noise]);
        world
    });
}

#[test]
fn f_008_a_line_longer_than_the_limit_costs_one_call() {
    every_era(|chunking, peer| {
        let mut config = config();
        config.limits.message_bytes = 2_000;
        let mut world = World::new(config).chunked(chunking).served_by(move |_| {
            peer().on("tools/call", |request| {
                let len = match request["params"]["name"].as_str() {
                    Some("large") => 3_000,
                    _ => 10,
                };
                let text = "x".repeat(len);
                vec![reply(
                    request,
                    json!({"content": [{"type": "text", "text": text}]}),
                )]
            })
        });
        world.until_ready();
        let large = world.tool("large");
        let small = world.tool("small");
        let failure = world.failure(large);
        assert!(matches!(failure.kind, FailureKind::TooLarge { bytes } if bytes > 3_000));
        assert_eq!(failure.delivery, Delivery::Unknown);
        assert_eq!(world.result(small)["content"][0]["text"], "x".repeat(10));

        // An oversized message that is no reply is only reported.
        let shown = noises(&world);
        world.peer(notify(
            "notifications/message",
            json!({"data": "x".repeat(3_000)}),
        ));
        assert_eq!(noises(&world), shown + 1);
        assert_eq!(world.state(), State::Ready);
        assert_eq!(world.life(), 1);
        world
    });
}

#[test]
fn f_009_a_full_pipe_stops_no_clock() {
    every_era(|chunking, peer| {
        let mut config = config();
        config.limits.write_window = 4_000;
        config.limits.queued_calls = 20;
        config.policy.keepalive = None;
        let mut world = World::new(config)
            .chunked(chunking)
            .served_by(move |_| peer());
        world.until_ready();
        world.peer_stops_reading();
        let began = world.now();
        let params = json!({"name": "add", "arguments": {"text": "x".repeat(1_000)}});
        let mut calls = Vec::new();
        let refused = loop {
            match world.try_call("tools/call", params.clone(), CallOptions::new()) {
                Ok(call) => calls.push(call),
                Err(misuse) => break misuse,
            }
            assert!(calls.len() < 100, "the queue is bounded");
        };
        assert!(
            matches!(refused, Misuse::QueueFull { calls: 20, .. }),
            "{refused}"
        );
        let written = world.lines_of(1);
        let written = written
            .iter()
            .filter(|line| line["method"] == "tools/call")
            .count();
        assert!(
            written < 6,
            "{written} messages were written into a full pipe"
        );
        assert_eq!(calls.len(), written + 20);

        let last = calls[calls.len() - 1];
        world.until_done(last);
        assert_eq!(
            world.now(),
            began + seconds(60),
            "from the moment it was accepted"
        );
        for (number, call) in calls.into_iter().enumerate() {
            let failure = world.failure(call);
            let timed_out = FailureKind::TimedOut {
                limit: TimeLimit::Idle,
                state: State::Ready,
            };
            assert_eq!(failure.kind, timed_out);
            let delivery = match number < written {
                true => Delivery::Unknown,
                false => Delivery::NotSent,
            };
            assert_eq!(failure.delivery, delivery, "{failure}");
        }
        world
    });
}

#[test]
fn f_009_a_pipe_that_is_read_again_goes_on() {
    every_era(|chunking, peer| {
        let mut config = config();
        config.limits.write_window = 1;
        let mut world = World::new(config)
            .chunked(chunking)
            .served_by(move |_| peer());
        world.until_ready();
        let calls: Vec<_> = (0..10)
            .map(|number| world.tool(&format!("tool-{number}")))
            .collect();
        for call in calls {
            world.until_done(call);
            world.result(call);
        }
        world
    });
}

#[test]
fn f_010_a_broken_pipe_before_the_first_write_is_a_death() {
    every_chunking(|chunking| {
        let mut config = config();
        config.dialect = Dialect::Legacy;
        let mut world = World::new(config)
            .chunked(chunking)
            .served_by(|life| match life {
                1 => Peer::silent().opens_with(vec![
                    Act::AtOnce(vec![Act::Opened, broken_pipe()]),
                    Act::End(Vec::new()),
                    Act::Exit(ExitStatus::Code(127)),
                ]),
                _ => Peer::legacy("2025-11-25"),
            });
        let call = world.tool("add");
        assert_eq!(world.state(), State::Waiting);
        let ended = world.link().last_end().expect("a life ended");
        assert_eq!(ended.cause, Cause::Died);
        assert!(ended.counted, "nobody asked for this end");
        assert_eq!(ended.faults[0].kind(), FaultKind::BrokenPipe);
        assert_eq!(ended.exit, Some(ExitStatus::Code(127)));
        assert!(world.lines_of(1).is_empty(), "there was nobody to write to");
        world.until_done(call);
        world.result(call);
        world
    });
}

fn broken_pipe() -> Act {
    Act::WriteFailed(vec![FaultKind::BrokenPipe.into()])
}

#[test]
fn f_010_a_server_that_no_longer_reads_is_still_heard() {
    every_era(|chunking, peer| {
        let mut world = World::new(config())
            .chunked(chunking)
            .served_by(move |life| match life {
                1 => peer().ignores("tools/call").ignores_eof(),
                _ => peer(),
            });
        world.until_ready();
        let answered = world.tool("answered");
        let wire = world.lines_of(1).last().expect("it was sent")["id"].clone();
        let lost = world.tool("lost");
        world.peer(broken_pipe());
        assert_eq!(world.state(), State::Draining, "it is as good as dead");
        let late = world.tool("late");
        world.peer(reply(&json!({"id": wire}), json!({"content": []})));
        assert_eq!(world.result(answered)["content"], json!([]));
        world.peer_all(dies(ExitStatus::Signal(13)));
        assert_eq!(world.failure(lost).kind, FailureKind::Lost);
        assert!(world.failure(lost).to_string().contains("no longer reads"));
        world.until_done(late);
        world.result(late);
        assert_eq!(world.link().stats().failures, 1);
        world
    });
}

#[test]
fn f_010_a_server_that_no_longer_reads_is_not_written_to() {
    every_chunking(|chunking| {
        let mut world = World::new(config())
            .chunked(chunking)
            .served_by(|_| Peer::legacy("2025-11-25").ignores("tools/call"));
        world.until_ready();
        world.tool("lost");
        world.peer(broken_pipe());
        let said = world.lines_of(1).len();
        // The server sends a request, but will not read the reply.
        world.peer(ask(1, "ping", json!({})));
        assert_eq!(world.state(), State::Draining);
        assert_eq!(world.lines_of(1).len(), said);
        world
    });
}

#[test]
fn f_011_a_server_that_ignores_the_end_of_its_input_climbs_the_ladder() {
    let ladder = |peer: fn() -> Peer, chunking| {
        let mut world = World::new(config())
            .chunked(chunking)
            .served_by(move |_| peer());
        world.until_ready();
        world.pass(seconds(1));
        let began = world.now();
        world.shutdown();
        world.until_state(State::Closed);
        let steps = world.timed_commands()[1..].iter();
        let steps = steps.map(|(at, command)| (at.since(began), *command));
        (steps.collect::<Vec<_>>(), world)
    };
    every_chunking(|chunking| {
        let (steps, world) = ladder(|| Peer::legacy("2025-11-25"), chunking);
        assert_eq!(
            steps,
            [
                (seconds(0), Command::CloseWrite(1)),
                (seconds(0), Command::Release(1))
            ]
        );
        world
    });
    every_chunking(|chunking| {
        let (steps, world) = ladder(|| Peer::modern().ignores_eof(), chunking);
        assert_eq!(
            steps,
            [
                (seconds(0), Command::CloseWrite(1)),
                (seconds(2), Command::Terminate(1)),
                (seconds(2), Command::Release(1)),
            ]
        );
        world
    });
    every_chunking(|chunking| {
        let (steps, world) = ladder(|| Peer::modern().ignores_terminate(), chunking);
        assert_eq!(
            steps,
            [
                (seconds(0), Command::CloseWrite(1)),
                (seconds(2), Command::Terminate(1)),
                (seconds(5), Command::Kill(1)),
                (seconds(5), Command::Release(1)),
            ]
        );
        world
    });
    every_chunking(|chunking| {
        let (steps, world) = ladder(|| Peer::legacy("2024-11-05").immortal(), chunking);
        assert_eq!(
            steps,
            [
                (seconds(0), Command::CloseWrite(1)),
                (seconds(2), Command::Terminate(1)),
                (seconds(5), Command::Kill(1)),
                (seconds(7), Command::Release(1)),
            ]
        );
        let ended = world.link().last_end().expect("a life ended");
        assert!(ended.abandoned);
        assert!(ended.to_string().contains("may still run"));
        world
    });
}

/// The core's part: if the wrapper exits and its output stays open, the rest of the tree is terminated, then killed.
#[test]
fn f_012_what_outlives_its_wrapper_is_killed() {
    every_era(|chunking, peer| {
        let mut world = World::new(config()).chunked(chunking).served_by(move |_| {
            peer()
                .on_eof(vec![Act::Exit(ExitStatus::Code(0))])
                .on_terminate(Vec::new())
                .on_kill(vec![Act::End(Vec::new())])
        });
        world.until_ready();
        world.shutdown();
        world.until_state(State::Closed);
        assert_eq!(
            world.commands_of(1),
            [
                Command::Open(1),
                Command::CloseWrite(1),
                Command::Terminate(1),
                Command::Kill(1),
                Command::Release(1),
            ]
        );
        assert!(!world.link().last_end().expect("a life ended").abandoned);
        world
    });
}

#[test]
fn f_014_a_child_that_is_still_starting_is_taken_down_too() {
    let took = |world: &World| world.commands_of(1);
    every_chunking(|chunking| {
        // The child never opens.
        let mut world = World::new(config())
            .chunked(chunking)
            .served_by(|_| Peer::silent().opens_with(Vec::new()));
        let call = world.tool("add");
        world.pass(seconds(1));
        assert_eq!(world.state(), State::Opening);
        world.shutdown();
        assert_eq!(world.failure(call).kind, FailureKind::Closed);
        assert_eq!(world.failure(call).delivery, Delivery::NotSent);
        world.until_state(State::Closed);
        assert_eq!(
            took(&world),
            [Command::Open(1), Command::Terminate(1), Command::Release(1)]
        );
        world
    });
    every_chunking(|chunking| {
        // The child opens while it is being taken down, and ignores the commands.
        let mut world = World::new(config()).chunked(chunking).served_by(|_| {
            let opened = Act::Opened.after(seconds(2));
            Peer::silent().opens_with(vec![opened]).ignores_terminate()
        });
        world.connect();
        world.pass(seconds(1));
        world.shutdown();
        world.until_state(State::Closed);
        assert_eq!(took(&world).first(), Some(&Command::Open(1)));
        assert_eq!(
            took(&world)[took(&world).len() - 2..],
            [Command::Kill(1), Command::Release(1)]
        );
        assert!(
            world.lines_of(1).is_empty(),
            "nothing is said to it any more"
        );
        world
    });
    every_chunking(|chunking| {
        // The child is in the middle of the handshake.
        let mut world = World::new(config())
            .chunked(chunking)
            .served_by(|_| Peer::silent());
        world.connect();
        world.pass(seconds(1));
        assert_eq!(world.state(), State::Handshaking);
        world.shutdown();
        assert_eq!(
            took(&world),
            [
                Command::Open(1),
                Command::CloseWrite(1),
                Command::Release(1)
            ]
        );
        world
    });
}

/// At the first `Terminate` the driver had no process, so the command is repeated.
#[test]
fn f_014_a_child_that_opens_while_it_is_taken_down_is_told_so_again() {
    every_chunking(|chunking| {
        let mut world = World::new(config()).chunked(chunking).served_by(|_| {
            Peer::silent()
                .opens_with(Vec::new())
                .on_terminate(Vec::new())
        });
        world.connect();
        world.shutdown();
        world.peer(Act::Opened);
        assert_eq!(
            world.commands_of(1),
            [
                Command::Open(1),
                Command::Terminate(1),
                Command::Terminate(1)
            ]
        );
        world
    });
}

#[test]
fn f_014_a_child_that_never_opens_is_given_up() {
    every_chunking(|chunking| {
        let mut world = World::new(config())
            .chunked(chunking)
            .served_by(|life| match life {
                1 => Peer::silent().opens_with(Vec::new()),
                _ => Peer::legacy("2025-11-25"),
            });
        world.connect();
        world.until_state(State::Waiting);
        assert_eq!(
            world.now(),
            everlink::Instant::ZERO + config().policy.open_timeout
        );
        assert_eq!(causes(&world), [Cause::OpenTimedOut]);
        world.until_ready();
        assert_eq!(world.link().failures(), 1);
        world
    });
}

#[test]
fn f_015_a_new_child_starts_only_after_the_old_one_was_reaped() {
    every_era(|chunking, peer| {
        let mut world = World::new(config())
            .chunked(chunking)
            .served_by(move |life| match life {
                1 => peer().on_eof(vec![
                    Act::End(Vec::new()),
                    Act::Exit(ExitStatus::Code(0)).after(millis(1_900)),
                ]),
                _ => peer(),
            });
        world.until_ready();
        world.pass(seconds(1));
        let began = world.now();
        world.reconnect("the configuration changed");
        let call = world.tool("add");
        world.until_ready();
        let reaped = began + millis(1_900);
        assert_eq!(
            world.timed_commands()[1..],
            [
                (began, Command::CloseWrite(1)),
                (reaped, Command::Release(1)),
                (reaped, Command::Open(2)),
            ]
        );
        world.until_done(call);
        world.result(call);
        world
    });
}

#[test]
fn f_016_a_server_that_initializes_and_dies_again_and_again_spends_the_budget() {
    every_era(|chunking, peer| {
        let mut world = World::new(config()).chunked(chunking).served_by(move |_| {
            let end = Act::End(Vec::new()).after(seconds(20));
            peer().greets_with(vec![end, Act::Exit(ExitStatus::Code(1)).after(seconds(20))])
        });
        world.connect();
        world.until_state(State::Parked);
        let retry = config().policy.retry;
        assert_eq!(world.life(), u64::from(retry.budget) + 1);
        assert_eq!(
            world.link().stats().readies,
            world.life(),
            "each of them was ready"
        );

        let WhenSpent::Park { probe } = retry.when_spent else {
            panic!("the preset parks");
        };
        // A call makes the link try again, but many calls do not make it spin.
        let wakes = world.tool("wakes");
        assert_eq!(world.state(), State::Ready);
        assert!(world.is_done(wakes));
        world.until_state(State::Parked);
        let lives = world.life();
        world.pass(10 * (seconds(20) + probe));
        assert!(world.life() > lives, "it looks by itself");
        assert!(
            world.life() <= lives + 14,
            "and not often: {} lives",
            world.life() - lives
        );
        world
    });
}

#[test]
fn f_016_calls_to_a_parked_link_fail_soon_with_the_reason_and_make_it_no_spin() {
    every_chunking(|chunking| {
        let mut world = World::new(config()).chunked(chunking).served_by(|_| {
            Peer::silent().opens_with(vec![
                stderr("no such program"),
                Act::OpenFailed(vec![FaultKind::Refused.into()]),
            ])
        });
        let first = world.tool("first");
        world.until_done(first);
        assert_eq!(world.failure(first).kind, FailureKind::Down);
        world.until_state(State::Parked);
        let (called, lives) = (world.now(), world.life());
        let calls: Vec<_> = (0..100).map(|_| world.tool("impatient")).collect();
        world.until("all have failed", |world| {
            calls.iter().all(|call| world.is_done(*call))
        });
        assert_eq!(world.now().since(called), seconds(4));
        for call in calls {
            let failure = world.failure(call);
            assert_eq!(failure.kind, FailureKind::Down);
            assert_eq!(failure.delivery, Delivery::NotSent);
            assert!(failure.to_string().contains("refused"), "{failure}");
        }
        assert!(world.life() <= lives + 5, "{}", world.life() - lives);
        world
    });
}

#[test]
fn f_016_a_script_has_one_life_where_that_is_asked_for() {
    every_chunking(|chunking| {
        let mut config = config();
        config.policy = everlink::Policy::one_shot();
        let mut world = World::new(config)
            .chunked(chunking)
            .served_by(|_| Peer::legacy("2025-11-25").dies_of("tools/call", ExitStatus::Code(1)));
        let call = world.tool("add");
        world.until_state(State::Closed);
        assert_eq!(world.failure(call).kind, FailureKind::Lost);
        assert_eq!(world.life(), 1);
        world
    });
}

#[test]
fn f_018_bad_utf_8_a_byte_order_mark_and_crlf_cost_at_most_their_line() {
    every_era(|chunking, peer| {
        let mut world = World::new(config()).chunked(chunking).served_by(move |_| {
            peer().on("tools/call", |request| {
                let answer = reply(request, json!({"content": []}));
                match request["params"]["name"].as_str() {
                    Some("bom") => vec![line("\u{feff}".as_bytes(), &answer, b"\n")],
                    Some("crlf") => vec![line(b"\r\n", &answer, b"\r\n")],
                    _ => vec![
                        Act::Raw(b"\xff\xfe{\"jsonrpc\": broken\n".to_vec()),
                        line(b"  ", &answer, b" \n"),
                    ],
                }
            })
        });
        world.until_ready();
        for name in ["bom", "crlf", "utf-8"] {
            let call = world.tool(name);
            assert_eq!(world.result(call)["content"], json!([]), "{name}");
        }
        assert_eq!(world.link().stats().noise, 1);
        assert_eq!(world.life(), 1);
        world
    });
}

#[test]
fn f_018_a_last_line_without_its_end_is_heard() {
    every_era(|chunking, peer| {
        let mut world = World::new(config()).chunked(chunking).served_by(move |_| {
            peer().on("tools/call", |request| {
                let answer = reply(request, json!({"content": []}));
                let mut acts = vec![line(b"", &answer, b"")];
                acts.extend(dies(ExitStatus::Code(0)));
                acts
            })
        });
        world.until_ready();
        let call = world.tool("add");
        assert_eq!(world.result(call)["content"], json!([]));
        assert_eq!(world.state(), State::Waiting);
        world
    });
}

#[test]
fn f_019_after_a_sleep_the_server_is_probed_at_once_and_replaced_when_it_is_wanted() {
    every_era(|chunking, peer| {
        let mut world = World::new(config())
            .chunked(chunking)
            .served_by(move |_| peer());
        world.until_ready();
        world.peer_stops_reading();
        world.pass(seconds(1));
        let woke = world.now();
        world.wake();
        assert_eq!(world.link().stats().probes, 1, "at once");
        world.pass(seconds(3_600));
        assert_eq!(world.life(), 1, "nothing is wanted of it");
        let call = world.tool("add");
        world.until_done(call);
        world.result(call);
        assert_eq!(world.life(), 2);
        let is_silence = |cause: &Cause| matches!(cause, Cause::Unresponsive { .. });
        assert!(causes(&world).iter().all(is_silence));
        assert!(world.now() <= woke + seconds(3_600) + seconds(32));

        // A server that answers is kept.
        world.wake();
        world.pass(seconds(3_600));
        assert_eq!(world.life(), 2);
        assert_eq!(world.link().stats().probes_missed, 2);
        world
    });
}

#[test]
fn f_019_a_wake_ends_the_pause_between_attempts() {
    every_chunking(|chunking| {
        let mut world = World::new(config())
            .chunked(chunking)
            .served_by(|life| match life {
                1..=4 => Peer::silent().opens_with(vec![Act::OpenFailed(Vec::new())]),
                _ => Peer::legacy("2025-11-25"),
            });
        world.connect();
        world.until("four attempts have failed", |world| {
            world.link().failures() == 4
        });
        let failed = world.now();
        world.wake();
        world.until_ready();
        assert_eq!(
            world.now(),
            failed + config().policy.retry.floor,
            "but for the floor"
        );
        world
    });
}

#[test]
fn f_020_cancelling_one_call_kills_nothing() {
    every_era(|chunking, peer| {
        let mut world = World::new(config()).chunked(chunking).served_by(move |_| {
            peer().on("tools/call", |request| {
                match request["params"]["name"].as_str() {
                    Some("slow") => vec![reply(request, json!({"content": []})).after(seconds(5))],
                    _ => vec![reply(request, json!({"content": []})).after(seconds(1))],
                }
            })
        });
        world.until_ready();
        let slow = world.tool("slow");
        let wire = world.lines_of(1).last().expect("it was sent")["id"].clone();
        let other = world.tool("other");
        world.cancel(slow, "the user left");
        let kind = &world.failure(slow).kind;
        assert!(
            matches!(kind, FailureKind::Cancelled { reason: Some(why) } if &**why == "the user left")
        );
        let told = world.lines_of(1).pop().expect("the server is told").clone();
        assert_eq!(told["method"], "notifications/cancelled");
        assert_eq!(told["params"]["requestId"], wire);
        assert_eq!(told["params"]["reason"], "the user left");

        world.until_done(other);
        world.result(other);
        // The server replies all the same, which does no harm.
        world.pass(seconds(10));
        assert_eq!(world.link().stats().late_replies, 1);
        assert_eq!(world.state(), State::Ready);
        assert_eq!(world.commands(), [Command::Open(1)]);
        world
    });
}

#[test]
fn f_020_a_call_that_times_out_kills_nothing() {
    every_era(|chunking, peer| {
        let mut world = World::new(config())
            .chunked(chunking)
            .served_by(move |_| peer().ignores("tools/call"));
        world.until_ready();
        let options = CallOptions::new().with_idle(Limit::After(seconds(7)));
        let began = world.now();
        let call = world.call_with("tools/call", json!({"name": "add"}), options);
        world.until_done(call);
        assert_eq!(world.now(), began + seconds(7));
        let told = world.lines_of(1);
        assert!(
            told.iter()
                .any(|line| line["method"] == "notifications/cancelled")
        );
        world.pass(seconds(600));
        assert_eq!(world.commands(), [Command::Open(1)]);
        assert_eq!(world.state(), State::Ready);
        world
    });
}
