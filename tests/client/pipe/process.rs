//! Failures of a server that is a child process. Each test is named after its row in the catalogue of failures.

use core::time::Duration;

use crate::client_pipe::{
    Act, Command, Harness, Peer, ask, config, dies, dies_exit_first, every_chunking, every_era,
    millis, notify, reply, seconds, stderr,
};
use crate::eras::{config_with_asks, legacy, ready};
use everlink::client::{
    CallOptions, Cause, Delivery, Event, FailureKind, Misuse, Outcome, State, TimeLimit,
};
use everlink::{
    Config, Dialect, ExitStatus, Fault, FaultKind, Input, LAST_WORDS, Limit, WhenSpent,
};
use serde_json::{Value, json};

/// The time that the output may stay open after the process exits, before the rest of the tree is terminated.
const OUTPUT_GRACE: Duration = LAST_WORDS;

/// The number of `Noise` events.
fn noise_events(harness: &Harness) -> usize {
    let shown = harness.pick_events(|event| match event {
        Event::Noise(noise) => Some(noise.count),
        _ => None,
    });
    shown.len()
}

/// The causes of the ends of transports, in order.
fn causes(harness: &Harness) -> Vec<Cause> {
    harness.pick_events(|event| match event {
        Event::Closing { cause, .. } => Some(cause.clone()),
        _ => None,
    })
}

/// A message as a line, with extra bytes around it.
fn line(before: &[u8], message: &Act, after: &[u8]) -> Act {
    match message {
        Act::Message(message) => Act::Raw([before, message.to_string().as_bytes(), after].concat()),
        other => panic!("{other:?} is no message"),
    }
}

#[test]
fn f_001_child_that_dies_while_idle_is_replaced() {
    for death in [dies, dies_exit_first] {
        every_era(|chunking, peer| {
            let mut harness = Harness::new(config())
                .chunked(chunking)
                .served_by(move |_| peer().ignores_eof());
            harness.until_ready();
            harness.advance(seconds(10));
            let mut death = death(ExitStatus::Signal(9)).into_iter();
            harness.feed_unpolled(&death.next().expect("a death has two parts"));
            assert_eq!(harness.state(), State::Closing);
            assert!(harness.link().session().is_none());
            harness.pump();
            harness.perform_all(death.collect());
            assert_eq!(harness.state(), State::Waiting);
            let ended = harness.link().last_end().expect("an epoch ended");
            assert_eq!(ended.cause, Cause::Died);
            assert_eq!(ended.exit, Some(ExitStatus::Signal(9)));
            assert_eq!(ended.ready_for, Some(seconds(10)));
            let expected = [
                Command::Open(1),
                Command::CloseWrite(1),
                Command::Release(1),
            ];
            assert_eq!(
                harness.commands_of(1),
                expected,
                "a dead server is not terminated"
            );
            harness.until_ready();
            assert_eq!(harness.epoch_number(), 2);
            harness
        });
    }
}

#[test]
fn f_002_child_death_fails_calls_in_flight_and_requeues_repeatable_ones() {
    every_era(|chunking, peer| {
        let mut config = config();
        config.limits.calls_in_flight = 3;
        let mut harness =
            Harness::new(config)
                .chunked(chunking)
                .served_by(move |epoch| match epoch {
                    1 => peer()
                        .ignores("tools/call")
                        .ignores("tools/list")
                        .ignores_eof(),
                    _ => peer(),
                });
        harness.until_ready();
        let acts = harness.call_tool("acts");
        let params = json!({"name": "repeats"});
        let repeats = harness.call_with("tools/call", params, CallOptions::new().idempotent());
        let reads = harness.call("tools/list", json!({}));
        let unsent = harness.call_tool("unsent");
        let written = harness.methods_of(1);
        assert_eq!(
            written
                .iter()
                .filter(|method| method.starts_with("tools/"))
                .count(),
            3
        );

        harness.feed_unpolled(&Act::End(Vec::new()));
        assert_eq!(harness.state(), State::Closing, "in the same step");
        harness.pump();
        assert_eq!(harness.link().stats().settled, 0);
        harness.advance(LAST_WORDS);
        assert_eq!(harness.link().stats().settled, 1);
        assert_eq!(harness.link().stats().requeued, 2);
        let failure = harness.failure(acts);
        assert_eq!(
            (&failure.kind, failure.delivery),
            (&FailureKind::Lost, Delivery::Unknown)
        );
        harness.perform(Act::Exit(ExitStatus::Code(1)));

        // Calls that were never sent, and calls that may be repeated, are not lost.
        let others = [repeats, reads, unsent];
        assert!(others.iter().all(|call| !harness.is_done(*call)));
        for call in others {
            harness.until_done(call);
        }
        assert_eq!(harness.result(repeats)["content"][0]["text"], "repeats");
        assert_eq!(harness.result(reads)["tools"][0]["name"], "add");
        assert_eq!(harness.result(unsent)["content"][0]["text"], "unsent");
        assert_eq!(harness.epoch_number(), 2);
        harness
    });
}

#[test]
fn f_002_idempotent_call_that_kills_every_server_is_repeated_resends_times() {
    every_era(|chunking, peer| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(move |_| peer().dies_on("tools/call", ExitStatus::Signal(11)));
        harness.until_ready();
        let params = json!({"name": "deadly"});
        let call = harness.call_with("tools/call", params, CallOptions::new().idempotent());
        harness.until_done(call);
        let failure = harness.failure(call);
        assert_eq!(
            (&failure.kind, failure.delivery),
            (&FailureKind::Lost, Delivery::Unknown)
        );
        let epochs_spent = u64::from(config().policy.resends) + 1;
        assert_eq!(harness.epoch_number(), epochs_spent);
        let ids: Vec<&Value> = (1..=epochs_spent)
            .map(|epoch| &harness.lines_of(epoch).last().expect("it was sent")["id"])
            .collect();
        assert!(
            ids.windows(2).all(|pair| pair[0] != pair[1]),
            "each under a new id"
        );
        harness
    });
}

/// A reply between the exit of a child and the end of its output still counts. A call of that time waits for the next
/// process, and nothing more is written to this one.
#[test]
fn f_002_reply_between_exit_and_end_of_output_counts() {
    every_era(|chunking, peer| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(move |epoch| match epoch {
                1 => peer().ignores("tools/call").ignores_eof(),
                _ => peer(),
            });
        harness.until_ready();
        let (answered, lost) = (harness.call_tool("answered"), harness.call_tool("lost"));
        let id = harness.messages_with("tools/call")[0]["id"].clone();
        let written = harness.lines_of(1).len();
        harness.perform(Act::Exit(ExitStatus::Code(4)));
        assert_eq!(harness.state(), State::Closing);
        let later = harness.call_tool("later");
        let result = json!({"resultType": "complete", "content": []});
        let line = format!(
            "{}\n",
            json!({"jsonrpc": "2.0", "id": id, "result": result})
        );
        harness.feed_input(harness.link().epoch(), Input::bytes(line.as_bytes()));
        harness.pump();
        assert!(matches!(harness.outcome(answered), Outcome::Reply(_)));
        assert!(!harness.is_done(lost));
        harness.perform(Act::End(Vec::new()));
        assert!(harness.failure(lost).to_string().contains("exit status 4"));
        assert_eq!(harness.lines_of(1).len(), written);
        harness.until_done(later);
        assert_eq!(harness.result(later)["content"][0]["text"], "later");
        harness
    });
}

#[test]
fn f_003_child_exit_ends_the_epoch_even_if_a_grandchild_keeps_stdout_open() {
    every_era(|chunking, peer| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(move |epoch| match epoch {
                1 => peer().ignores("tools/call").ignores_kill(),
                _ => peer(),
            });
        harness.until_ready();
        let first = harness.link().epoch();
        let call = harness.call_tool("add");
        let died = harness.now();
        harness.feed_unpolled(&Act::Exit(ExitStatus::Code(0)));
        assert_eq!(harness.state(), State::Closing);
        harness.pump();
        assert_eq!(harness.link().stats().settled, 0);
        harness.advance(OUTPUT_GRACE);
        assert!(harness.failure(call).to_string().contains("exit status 0"));

        // The output may end a moment later. If it does not, the rest of the process tree is terminated, killed, and
        // released.
        harness.until_state(State::Waiting);
        let policy = config().policy;
        let terminated = died + OUTPUT_GRACE;
        let killed = terminated + policy.terminate_grace;
        let released = killed + policy.kill_grace;
        assert_eq!(
            harness.timed_commands()[1..],
            [
                (died, Command::CloseWrite(1)),
                (terminated, Command::Terminate(1)),
                (killed, Command::Kill(1)),
                (released, Command::Release(1)),
            ]
        );
        assert!(harness.link().last_end().expect("an epoch ended").abandoned);
        harness.until_ready();

        // Output of the grandchild belongs to an epoch that is over.
        let old = harness.lines_of(1).last().expect("the call was sent")["id"].clone();
        let before = harness.link().stats().stale_inputs;
        let late_reply = format!("{}\n", json!({"jsonrpc": "2.0", "id": old, "result": {}}));
        harness.feed_input(first, Input::bytes(late_reply.as_bytes()));
        assert_eq!(harness.link().stats().stale_inputs, before + 1);
        harness
    });
}

#[test]
fn f_004_stderr_is_drained_and_only_its_tail_is_kept() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config()).chunked(chunking);
        harness.until_ready();
        for number in 0..2_000 {
            harness.perform(stderr(&format!(
                "warning {number}: this server talks too much"
            )));
        }
        assert_eq!(harness.state(), State::Ready);
        let call = harness.call_tool("add");
        assert!(harness.is_done(call));
        harness.perform_all(dies(ExitStatus::Code(1)));
        let ended = harness.link().last_end().expect("an epoch ended");
        assert!(ended.stderr.len() <= config().limits.stderr_tail);
        assert!(
            ended
                .stderr
                .ends_with("warning 1999: this server talks too much")
        );
        assert!(
            ended.stderr.starts_with("warning "),
            "the tail starts with a whole line"
        );
        assert!(ended.to_string().contains("warning 1998"));
        harness
    });
}

#[test]
fn f_005_stderr_before_the_transport_is_open_is_read() {
    every_era(|chunking, peer| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(move |epoch| match epoch {
                1 => Peer::silent().on_open(vec![
                    stderr(&"x".repeat(6_187)),
                    stderr("cannot find the module"),
                    Act::Opened,
                    Act::End(Vec::new()),
                    Act::Exit(ExitStatus::Code(1)),
                ]),
                2 => peer().on_open(vec![
                    stderr(&"x".repeat(6_187)),
                    Act::OpenFailed(vec![FaultKind::ResourcesExhausted.into()]),
                ]),
                _ => peer().on_open(vec![stderr(&"x".repeat(6_187)), Act::Opened]),
            });
        harness.connect();
        let ended = harness.link().last_end().expect("an epoch ended");
        assert_eq!(&*ended.stderr, "cannot find the module");
        harness.until_ready();
        assert_eq!(harness.epoch_number(), 3);
        harness
    });
}

#[test]
fn f_006_banners_and_logs_on_stdout_are_skipped_and_counted() {
    every_era(|chunking, peer| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(move |_| {
                peer()
                    .after_open(vec![
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
        harness.until_ready();
        assert_eq!(noise_events(&harness), 2);
        let call = harness.call_tool("add");
        assert_eq!(harness.result(call)["content"], json!([]));
        assert_eq!(noise_events(&harness), 5);
        for _ in 0..1_000 {
            harness.perform(Act::Raw(b"still here\n".to_vec()));
        }
        assert_eq!(harness.state(), State::Ready, "never fatal by default");
        assert_eq!(harness.link().stats().noise, 1_005);
        assert!(
            noise_events(&harness) < 20,
            "noise is reported less and less often"
        );
        harness
    });
}

#[test]
fn f_006_more_than_noise_run_noise_lines_in_a_row_close_the_transport() {
    every_era(|chunking, peer| {
        let mut config = config();
        config.limits.noise_run = Some(3);
        let mut harness = Harness::new(config)
            .chunked(chunking)
            .served_by(move |_| peer());
        harness.until_ready();
        for _ in 0..2 {
            for _ in 0..3 {
                harness.perform(Act::Raw(b"not yet\n".to_vec()));
            }
            let call = harness.call_tool("add");
            assert!(harness.is_done(call), "a valid message resets the count");
        }
        for _ in 0..4 {
            assert_eq!(harness.state(), State::Ready);
            harness.perform(Act::Raw(b"too much\n".to_vec()));
        }
        assert_eq!(causes(&harness), [Cause::Noise]);
        harness
    });
}

#[test]
fn f_008_line_longer_than_the_limit_fails_only_its_call() {
    every_era(|chunking, peer| {
        let mut config = config();
        config.limits.message_bytes = 2_000;
        let mut harness = Harness::new(config).chunked(chunking).served_by(move |_| {
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
        harness.until_ready();
        let large = harness.call_tool("large");
        let small = harness.call_tool("small");
        let failure = harness.failure(large);
        assert!(matches!(failure.kind, FailureKind::TooLarge { bytes } if bytes > 3_000));
        assert_eq!(failure.delivery, Delivery::Unknown);
        assert_eq!(harness.result(small)["content"][0]["text"], "x".repeat(10));

        // An oversized message that is no reply is only reported.
        let shown = noise_events(&harness);
        harness.perform(notify(
            "notifications/message",
            json!({"data": "x".repeat(3_000)}),
        ));
        assert_eq!(noise_events(&harness), shown + 1);
        assert_eq!(harness.state(), State::Ready);
        assert_eq!(harness.epoch_number(), 1);
        harness
    });
}

#[test]
fn f_009_calls_time_out_while_the_pipe_is_full() {
    every_era(|chunking, peer| {
        let mut config = config();
        config.limits.write_window = 4_000;
        config.limits.queued_calls = 20;
        config.policy.keepalive = None;
        let mut harness = Harness::new(config)
            .chunked(chunking)
            .served_by(move |_| peer());
        harness.until_ready();
        harness.peer_stops_reading();
        let began = harness.now();
        let params = json!({"name": "add", "arguments": {"text": "x".repeat(1_000)}});
        let mut calls = Vec::new();
        let refused = loop {
            match harness.try_call("tools/call", params.clone(), CallOptions::new()) {
                Ok(call) => calls.push(call),
                Err(misuse) => break misuse,
            }
            assert!(calls.len() < 100, "the queue is bounded");
        };
        assert!(
            matches!(refused, Misuse::QueueFull { calls: 20, .. }),
            "{refused}"
        );
        let written = harness.lines_of(1);
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
        harness.until_done(last);
        assert_eq!(
            harness.now(),
            began + seconds(60),
            "the deadline starts when the call is accepted"
        );
        for (number, call) in calls.into_iter().enumerate() {
            let failure = harness.failure(call);
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
        harness
    });
}

#[test]
fn f_009_calls_complete_with_a_write_window_of_one_byte() {
    every_era(|chunking, peer| {
        let mut config = config();
        config.limits.write_window = 1;
        let mut harness = Harness::new(config)
            .chunked(chunking)
            .served_by(move |_| peer());
        harness.until_ready();
        let calls: Vec<_> = (0..10)
            .map(|number| harness.call_tool(&format!("tool-{number}")))
            .collect();
        for call in calls {
            harness.until_done(call);
            harness.result(call);
        }
        harness
    });
}

#[test]
fn f_010_broken_pipe_before_the_first_write_counts_as_a_death() {
    every_chunking(|chunking| {
        let mut config = config();
        config.dialect = Dialect::Legacy;
        let mut harness = Harness::new(config)
            .chunked(chunking)
            .served_by(|epoch| match epoch {
                1 => Peer::silent().on_open(vec![
                    Act::AtOnce(vec![Act::Opened, broken_pipe()]),
                    Act::End(Vec::new()),
                    Act::Exit(ExitStatus::Code(127)),
                ]),
                _ => Peer::legacy("2025-11-25"),
            });
        let call = harness.call_tool("add");
        assert_eq!(harness.state(), State::Waiting);
        let ended = harness.link().last_end().expect("an epoch ended");
        assert_eq!(ended.cause, Cause::Died);
        assert!(ended.counted, "this end was not planned");
        assert_eq!(ended.faults[0].kind(), FaultKind::BrokenPipe);
        assert_eq!(ended.exit, Some(ExitStatus::Code(127)));
        assert!(harness.lines_of(1).is_empty(), "no line was written");
        harness.until_done(call);
        harness.result(call);
        harness
    });
}

fn broken_pipe() -> Act {
    Act::WriteFailed(vec![FaultKind::BrokenPipe.into()])
}

#[test]
fn f_010_reply_of_a_server_that_no_longer_reads_still_counts() {
    every_era(|chunking, peer| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(move |epoch| match epoch {
                1 => peer().ignores("tools/call").ignores_eof(),
                _ => peer(),
            });
        harness.until_ready();
        let answered = harness.call_tool("answered");
        let request_id = harness.lines_of(1).last().expect("it was sent")["id"].clone();
        let lost = harness.call_tool("lost");
        harness.perform(broken_pipe());
        assert_eq!(harness.state(), State::Draining, "the link drains it");
        let late = harness.call_tool("late");
        harness.perform(reply(&json!({"id": request_id}), json!({"content": []})));
        assert_eq!(harness.result(answered)["content"], json!([]));
        harness.perform_all(dies(ExitStatus::Signal(13)));
        assert_eq!(harness.failure(lost).kind, FailureKind::Lost);
        assert!(
            harness
                .failure(lost)
                .to_string()
                .contains("no longer reads")
        );
        harness.until_done(late);
        harness.result(late);
        assert_eq!(harness.link().stats().failures, 1);
        harness
    });
}

#[test]
fn f_010_ping_of_a_server_that_no_longer_reads_gets_no_reply() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(|_| Peer::legacy("2025-11-25").ignores("tools/call"));
        harness.until_ready();
        harness.call_tool("lost");
        harness.perform(broken_pipe());
        let lines_before = harness.lines_of(1).len();
        // The server sends a request, but will not read the reply.
        harness.perform(ask(1, "ping", json!({})));
        assert_eq!(harness.state(), State::Draining);
        assert_eq!(harness.lines_of(1).len(), lines_before);
        harness
    });
}

#[test]
fn f_011_server_that_ignores_eof_is_terminated_then_killed_then_released() {
    let close_steps = |peer: fn() -> Peer, chunking| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(move |_| peer());
        harness.until_ready();
        harness.advance(seconds(1));
        let began = harness.now();
        harness.shutdown();
        harness.until_state(State::Closed);
        let steps = harness.timed_commands()[1..].iter();
        let steps = steps.map(|(at, command)| (at.since(began), *command));
        (steps.collect::<Vec<_>>(), harness)
    };
    every_chunking(|chunking| {
        let (steps, harness) = close_steps(|| Peer::legacy("2025-11-25"), chunking);
        assert_eq!(
            steps,
            [
                (seconds(0), Command::CloseWrite(1)),
                (seconds(0), Command::Release(1))
            ]
        );
        harness
    });
    every_chunking(|chunking| {
        let (steps, harness) = close_steps(|| Peer::modern().ignores_eof(), chunking);
        assert_eq!(
            steps,
            [
                (seconds(0), Command::CloseWrite(1)),
                (seconds(2), Command::Terminate(1)),
                (seconds(2), Command::Release(1)),
            ]
        );
        harness
    });
    every_chunking(|chunking| {
        let (steps, harness) = close_steps(|| Peer::modern().ignores_terminate(), chunking);
        assert_eq!(
            steps,
            [
                (seconds(0), Command::CloseWrite(1)),
                (seconds(2), Command::Terminate(1)),
                (seconds(5), Command::Kill(1)),
                (seconds(5), Command::Release(1)),
            ]
        );
        harness
    });
    every_chunking(|chunking| {
        let (steps, harness) = close_steps(|| Peer::legacy("2024-11-05").ignores_kill(), chunking);
        assert_eq!(
            steps,
            [
                (seconds(0), Command::CloseWrite(1)),
                (seconds(2), Command::Terminate(1)),
                (seconds(5), Command::Kill(1)),
                (seconds(7), Command::Release(1)),
            ]
        );
        let ended = harness.link().last_end().expect("an epoch ended");
        assert!(ended.abandoned);
        assert!(ended.to_string().contains("may still run"));
        harness
    });
}

/// The core's part: if the wrapper exits and its output stays open, the rest of the tree is terminated, then killed.
#[test]
fn f_012_process_that_outlives_its_wrapper_is_terminated_then_killed() {
    every_era(|chunking, peer| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(move |_| {
                peer()
                    .on_eof(vec![Act::Exit(ExitStatus::Code(0))])
                    .on_terminate(Vec::new())
                    .on_kill(vec![Act::End(Vec::new())])
            });
        harness.until_ready();
        harness.shutdown();
        harness.until_state(State::Closed);
        assert_eq!(
            harness.commands_of(1),
            [
                Command::Open(1),
                Command::CloseWrite(1),
                Command::Terminate(1),
                Command::Kill(1),
                Command::Release(1),
            ]
        );
        assert!(!harness.link().last_end().expect("an epoch ended").abandoned);
        harness
    });
}

#[test]
fn f_014_shutdown_ends_a_child_that_is_still_starting() {
    let commands = |harness: &Harness| harness.commands_of(1);
    every_chunking(|chunking| {
        // The child never opens.
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(|_| Peer::silent().on_open(Vec::new()));
        let call = harness.call_tool("add");
        harness.advance(seconds(1));
        assert_eq!(harness.state(), State::Opening);
        harness.shutdown();
        assert_eq!(harness.failure(call).kind, FailureKind::Closed);
        assert_eq!(harness.failure(call).delivery, Delivery::NotSent);
        harness.until_state(State::Closed);
        assert_eq!(
            commands(&harness),
            [Command::Open(1), Command::Terminate(1), Command::Release(1)]
        );
        harness
    });
    every_chunking(|chunking| {
        // The child opens while it is being taken down, and ignores the commands.
        let mut harness = Harness::new(config()).chunked(chunking).served_by(|_| {
            let opened = Act::Opened.after(seconds(2));
            Peer::silent().on_open(vec![opened]).ignores_terminate()
        });
        harness.connect();
        harness.advance(seconds(1));
        harness.shutdown();
        harness.until_state(State::Closed);
        assert_eq!(commands(&harness).first(), Some(&Command::Open(1)));
        assert_eq!(
            commands(&harness)[commands(&harness).len() - 2..],
            [Command::Kill(1), Command::Release(1)]
        );
        assert!(harness.lines_of(1).is_empty(), "no line is written to it");
        harness
    });
    every_chunking(|chunking| {
        // The child is in the middle of the handshake.
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(|_| Peer::silent());
        harness.connect();
        harness.advance(seconds(1));
        assert_eq!(harness.state(), State::Handshaking);
        harness.shutdown();
        assert_eq!(
            commands(&harness),
            [
                Command::Open(1),
                Command::CloseWrite(1),
                Command::Release(1)
            ]
        );
        harness
    });
}

/// At the first `Terminate` the driver had no process, so the command is repeated.
#[test]
fn f_014_child_that_opens_during_shutdown_gets_terminate_again() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(|_| Peer::silent().on_open(Vec::new()).on_terminate(Vec::new()));
        harness.connect();
        harness.shutdown();
        harness.perform(Act::Opened);
        assert_eq!(
            harness.commands_of(1),
            [
                Command::Open(1),
                Command::Terminate(1),
                Command::Terminate(1)
            ]
        );
        harness
    });
}

#[test]
fn f_014_child_that_never_opens_is_given_up_after_the_open_timeout() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(|epoch| match epoch {
                1 => Peer::silent().on_open(Vec::new()),
                _ => Peer::legacy("2025-11-25"),
            });
        harness.connect();
        harness.until_state(State::Waiting);
        assert_eq!(
            harness.now(),
            everlink::Instant::ZERO + config().policy.open_timeout
        );
        assert_eq!(causes(&harness), [Cause::OpenTimedOut]);
        harness.until_ready();
        assert_eq!(harness.link().failures(), 1);
        harness
    });
}

#[test]
fn f_015_a_new_child_starts_only_after_the_old_one_was_reaped() {
    every_era(|chunking, peer| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(move |epoch| match epoch {
                1 => peer().on_eof(vec![
                    Act::End(Vec::new()),
                    Act::Exit(ExitStatus::Code(0)).after(millis(1_900)),
                ]),
                _ => peer(),
            });
        harness.until_ready();
        harness.advance(seconds(1));
        let began = harness.now();
        harness.reconnect("the configuration changed");
        let call = harness.call_tool("add");
        harness.until_ready();
        let reaped = began + millis(1_900);
        assert_eq!(
            harness.timed_commands()[1..],
            [
                (began, Command::CloseWrite(1)),
                (reaped, Command::Release(1)),
                (reaped, Command::Open(2)),
            ]
        );
        harness.until_done(call);
        harness.result(call);
        harness
    });
}

#[test]
fn f_016_server_that_keeps_dying_after_its_handshake_spends_the_budget() {
    every_era(|chunking, peer| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(move |_| {
                let end = Act::End(Vec::new()).after(seconds(20));
                peer().after_open(vec![end, Act::Exit(ExitStatus::Code(1)).after(seconds(20))])
            });
        harness.connect();
        harness.until_state(State::Parked);
        let retry = config().policy.retry;
        assert_eq!(harness.epoch_number(), u64::from(retry.budget) + 1);
        assert_eq!(
            harness.link().stats().readies,
            harness.epoch_number(),
            "each epoch was ready"
        );

        let WhenSpent::Park { probe } = retry.when_spent else {
            panic!("the preset parks");
        };
        // A call makes the link try again, but many calls do not make it spin.
        let wakes = harness.call_tool("wakes");
        assert_eq!(harness.state(), State::Ready);
        assert!(harness.is_done(wakes));
        harness.until_state(State::Parked);
        let last_epoch = harness.epoch_number();
        harness.advance(10 * (seconds(20) + probe));
        assert!(
            harness.epoch_number() > last_epoch,
            "the link tries again by itself"
        );
        assert!(
            harness.epoch_number() <= last_epoch + 14,
            "at most 14 epochs, not {}",
            harness.epoch_number() - last_epoch
        );
        harness
    });
}

#[test]
fn f_016_calls_to_a_parked_link_fail_after_4_s_and_cause_few_attempts() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config()).chunked(chunking).served_by(|_| {
            Peer::silent().on_open(vec![
                stderr("no such program"),
                Act::OpenFailed(vec![FaultKind::Refused.into()]),
            ])
        });
        let first = harness.call_tool("first");
        harness.until_done(first);
        assert_eq!(harness.failure(first).kind, FailureKind::Down);
        harness.until_state(State::Parked);
        let (called, last_epoch) = (harness.now(), harness.epoch_number());
        let calls: Vec<_> = (0..100).map(|_| harness.call_tool("impatient")).collect();
        harness.until("all have failed", |harness| {
            calls.iter().all(|call| harness.is_done(*call))
        });
        assert_eq!(harness.now().since(called), seconds(4));
        for call in calls {
            let failure = harness.failure(call);
            assert_eq!(failure.kind, FailureKind::Down);
            assert_eq!(failure.delivery, Delivery::NotSent);
            assert!(failure.to_string().contains("refused"), "{failure}");
        }
        assert!(
            harness.epoch_number() <= last_epoch + 5,
            "{}",
            harness.epoch_number() - last_epoch
        );
        harness
    });
}

#[test]
fn f_016_one_shot_policy_allows_one_epoch() {
    every_chunking(|chunking| {
        let mut config = config();
        config.policy = everlink::Policy::one_shot();
        let mut harness = Harness::new(config)
            .chunked(chunking)
            .served_by(|_| Peer::legacy("2025-11-25").dies_on("tools/call", ExitStatus::Code(1)));
        let call = harness.call_tool("add");
        harness.until_state(State::Closed);
        assert_eq!(harness.failure(call).kind, FailureKind::Lost);
        assert_eq!(harness.epoch_number(), 1);
        harness
    });
}

#[test]
fn f_018_bad_utf_8_is_skipped_and_byte_order_mark_and_crlf_are_accepted() {
    every_era(|chunking, peer| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(move |_| {
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
        harness.until_ready();
        for name in ["bom", "crlf", "utf-8"] {
            let call = harness.call_tool(name);
            assert_eq!(harness.result(call)["content"], json!([]), "{name}");
        }
        assert_eq!(harness.link().stats().noise, 1);
        assert_eq!(harness.epoch_number(), 1);
        harness
    });
}

#[test]
fn f_018_last_line_without_a_newline_is_processed() {
    every_era(|chunking, peer| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(move |_| {
                peer().on("tools/call", |request| {
                    let answer = reply(request, json!({"content": []}));
                    let mut acts = vec![line(b"", &answer, b"")];
                    acts.extend(dies(ExitStatus::Code(0)));
                    acts
                })
            });
        harness.until_ready();
        let call = harness.call_tool("add");
        assert_eq!(harness.result(call)["content"], json!([]));
        assert_eq!(harness.state(), State::Waiting);
        harness
    });
}

#[test]
fn f_019_wake_probes_at_once_and_a_silent_server_is_replaced_on_the_next_call() {
    every_era(|chunking, peer| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(move |_| peer());
        harness.until_ready();
        harness.peer_stops_reading();
        harness.advance(seconds(1));
        let woke = harness.now();
        harness.wake();
        assert_eq!(
            harness.link().stats().probes,
            1,
            "the probe is sent at once"
        );
        harness.advance(seconds(3_600));
        assert_eq!(harness.epoch_number(), 1, "no call needs the server");
        let call = harness.call_tool("add");
        harness.until_done(call);
        harness.result(call);
        assert_eq!(harness.epoch_number(), 2);
        let is_unresponsive = |cause: &Cause| matches!(cause, Cause::Unresponsive { .. });
        assert!(causes(&harness).iter().all(is_unresponsive));
        assert!(harness.now() <= woke + seconds(3_600) + seconds(32));

        // A server that answers is kept.
        harness.wake();
        harness.advance(seconds(3_600));
        assert_eq!(harness.epoch_number(), 2);
        assert_eq!(harness.link().stats().probes_missed, 2);
        harness
    });
}

#[test]
fn f_019_a_wake_ends_the_pause_between_attempts() {
    every_chunking(|chunking| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(|epoch| match epoch {
                1..=4 => Peer::silent().on_open(vec![Act::OpenFailed(Vec::new())]),
                _ => Peer::legacy("2025-11-25"),
            });
        harness.connect();
        harness.until("four attempts have failed", |harness| {
            harness.link().failures() == 4
        });
        let failed = harness.now();
        harness.wake();
        harness.until_ready();
        assert_eq!(
            harness.now(),
            failed + config().policy.retry.floor,
            "after the minimum pause"
        );
        harness
    });
}

#[test]
fn f_020_cancelled_call_keeps_the_child_running() {
    every_era(|chunking, peer| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(move |_| {
                peer().on("tools/call", |request| {
                    match request["params"]["name"].as_str() {
                        Some("slow") => {
                            vec![reply(request, json!({"content": []})).after(seconds(5))]
                        }
                        _ => vec![reply(request, json!({"content": []})).after(seconds(1))],
                    }
                })
            });
        harness.until_ready();
        let slow = harness.call_tool("slow");
        let request_id = harness.lines_of(1).last().expect("it was sent")["id"].clone();
        let other = harness.call_tool("other");
        harness.cancel(slow, "the user left");
        let kind = &harness.failure(slow).kind;
        assert!(
            matches!(kind, FailureKind::Cancelled { reason: Some(why) } if &**why == "the user left")
        );
        let sent = harness
            .lines_of(1)
            .pop()
            .expect("the server got a message")
            .clone();
        assert_eq!(sent["method"], "notifications/cancelled");
        assert_eq!(sent["params"]["requestId"], request_id);
        assert_eq!(sent["params"]["reason"], "the user left");

        harness.until_done(other);
        harness.result(other);
        // The server replies all the same, which does no harm.
        harness.advance(seconds(10));
        assert_eq!(harness.link().stats().late_replies, 1);
        assert_eq!(harness.state(), State::Ready);
        assert_eq!(harness.commands(), [Command::Open(1)]);
        harness
    });
}

#[test]
fn f_020_timed_out_call_keeps_the_child_running() {
    every_era(|chunking, peer| {
        let mut harness = Harness::new(config())
            .chunked(chunking)
            .served_by(move |_| peer().ignores("tools/call"));
        harness.until_ready();
        let options = CallOptions::new().with_idle(Limit::After(seconds(7)));
        let began = harness.now();
        let call = harness.call_with("tools/call", json!({"name": "add"}), options);
        harness.until_done(call);
        assert_eq!(harness.now(), began + seconds(7));
        let sent = harness.lines_of(1);
        assert!(
            sent.iter()
                .any(|line| line["method"] == "notifications/cancelled")
        );
        harness.advance(seconds(600));
        assert_eq!(harness.commands(), [Command::Open(1)]);
        assert_eq!(harness.state(), State::Ready);
        harness
    });
}

/// A driver may report bytes late that were read before the end.
#[test]
fn bytes_after_the_end_of_output_are_not_read() {
    let server = || legacy().ignores("tools/call").ignores_eof();
    let mut harness = ready(config(), server);
    let call = harness.call_tool("add");
    let id = harness.last_message("tools/call")["id"].clone();
    harness.perform(Act::End(Vec::new()));
    assert_eq!(harness.state(), State::Closing);
    let line = format!(
        "{}\n",
        json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}})
    );
    harness.feed_input(harness.link().epoch(), Input::bytes(line.as_bytes()));
    harness.pump();
    assert!(!harness.is_done(call));
    harness.perform(Act::Exit(ExitStatus::Code(1)));
    assert_eq!(harness.failure(call).kind, FailureKind::Lost);
    harness.finish();
}

/// The server cannot wait for an answer any more, so the time of the call goes on.
#[test]
fn call_times_out_while_the_last_output_after_an_ask_is_awaited() {
    let server = || legacy().ignores("tools/call").ignores_eof();
    let mut harness = ready(config_with_asks(), server);
    let call = harness.call_tool("add");
    harness.advance(millis(59_950));
    harness.perform(ask("q", "roots/list", json!({})));
    harness.perform(Act::Exit(ExitStatus::Code(1)));
    harness.until_done(call);
    let failure = harness.failure(call);
    assert!(matches!(failure.kind, FailureKind::TimedOut { .. }));
    assert_eq!(failure.after, seconds(60));
    harness.finish();
}

/// The file of a Unix socket appears when its server starts. A command that does not exist stays missing.
#[test]
fn missing_socket_is_tried_again_and_a_missing_command_is_not() {
    let socket = Config::socket("test", "1");
    for (config, state) in [(config(), State::Parked), (socket, State::Waiting)] {
        let missing = || {
            let fault = Fault::new(FaultKind::NotFound);
            Peer::silent().on_open(vec![Act::OpenFailed(vec![fault])])
        };
        let mut harness = Harness::new(config).served_by(move |_| missing());
        harness.connect();
        assert_eq!(harness.state(), state);
        harness.finish();
    }
}
