//! The texts of the link: failures that explain themselves, one sequence of states, and no secrets. Rows F-116 to
//! F-120 of the failures, and the rule that payloads are never shown.

use core::time::Duration;

use everlink::client::{Blame, CallOptions, Cause, Event, FailureKind, Outcome, State};
use everlink::protocol::LogLevel;
use everlink::wire::ErrorObject;
use everlink::{Change, ExitStatus, Fault, FaultKind, Input, List, Watch};
use serde_json::{Value, json};

use crate::client_pipe::{
    self, Act, Peer, World, ask, config, dies, error_with, notify, progress, reply, seconds, stderr,
};
use crate::eras::{BOTH, answering, form, input_required, legacy, ready};

const SECRET: &str = "hunter2";

/// Checks that the text contains all of these parts.
#[track_caller]
fn says(text: &str, all: &[&str]) {
    for said in all {
        assert!(text.contains(said), "{said:?} is missing in: {text}");
    }
}

#[test]
fn f_116_a_failure_says_all_there_is_to_know() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/call"));
        let call = world.tool("transfer");
        world.pass(seconds(12));
        world.peer(Act::AtOnce(vec![
            stderr("Traceback (most recent call last):"),
            stderr("MemoryError"),
            Act::End(vec![Fault::with_detail(FaultKind::Reset, "os error 104")]),
            Act::Exit(ExitStatus::Signal(9)),
        ]));
        let failure = world.failure(call);
        says(
            &failure.to_string(),
            &[
                "tools/call",
                "`transfer`",
                &call.to_string(),
                "after 12 s",
                "the server ended before it replied",
                "may have run",
                "connection 1",
                "signal 9 (SIGKILL)",
                "os error 104",
                "Traceback (most recent call last):\nMemoryError",
            ],
        );
        assert_eq!(failure.blame(), Blame::Transport);
        let ended = failure.ended.as_ref().expect("a life has ended");
        assert_eq!(ended.exit, Some(ExitStatus::Signal(9)));
        assert_eq!(ended.cause, Cause::Died);
        assert_eq!(
            &*ended.stderr,
            "Traceback (most recent call last):\nMemoryError"
        );
        world.finish();
    }
}

#[test]
fn f_116_a_call_that_never_left_says_why_nobody_was_there() {
    let missing = || {
        let fault = Fault::with_detail(FaultKind::NotFound, "npx: no such file");
        Peer::silent().opens_with(vec![Act::OpenFailed(vec![fault])])
    };
    let mut world = World::new(config()).served_by(move |_| missing());
    let call = world.tool("transfer");
    world.until_done(call);
    says(
        &world.failure(call).to_string(),
        &[
            "`transfer`",
            "the server is down",
            "it was not sent",
            "the next attempt is in",
            "could not be reached",
            "npx: no such file",
        ],
    );
    world.finish();
}

#[test]
fn f_116_a_call_that_runs_out_of_time_says_where_the_link_stood() {
    let mut world = World::new(config()).served_by(|life| match life {
        1 => legacy(),
        _ => Peer::silent().greets_with(vec![stderr("waiting for the database")]),
    });
    world.until_ready();
    world.peer(stderr("segfault"));
    world.peer(Act::AtOnce(dies(ExitStatus::Code(139))));
    let call = world.tool("transfer");
    world.until_done(call);
    says(
        &world.failure(call).to_string(),
        &[
            "after 1 min",
            "neither a reply nor progress came in time",
            "the connection was handshaking",
            "it was not sent",
            "exit status 139",
            "segfault",
        ],
    );
    world.finish();
}

#[test]
fn f_116_a_list_that_fails_does_not_claim_to_be_unsent() {
    for server in BOTH {
        let mut world = ready(config(), move || server().ignores("tools/list"));
        let list = world.list(List::Tools);
        world.until_done(list);
        let text = world.failure(list).to_string();
        says(
            &text,
            &[
                "tools/list",
                "1 min",
                "it only reads, so nothing was changed",
            ],
        );
        assert!(!text.contains("not sent"), "{text}");
        world.finish();
    }
}

/// One script for every way in which a call can end without a reply.
fn every_failure() -> Vec<String> {
    let mut said = Vec::new();
    let mut tell = |world: World, call| {
        said.push(world.failure(call).to_string());
        world.finish();
    };
    let mute = || legacy().ignores("tools/call");

    let mut world = ready(config(), mute);
    let call = world.tool("t");
    world
        .verb(|link, now| link.cancel(now, call, None))
        .expect("under way");
    tell(world, call);

    let mut world = ready(config(), mute);
    let call = world.tool("t");
    world.shutdown();
    tell(world, call);

    let mut world = ready(config(), mute);
    let call = world.tool("t");
    world.peer_all(dies(ExitStatus::Unknown));
    tell(world, call);

    let mut world = ready(config(), mute);
    let call = world.tool("t");
    world.until_done(call);
    tell(world, call);

    let mut world = ready(config(), mute);
    let call = world.call("what/ever", json!({}));
    world.until_done(call);
    tell(world, call);

    let mut world = ready(config(), || {
        legacy().replies("initialize", |_| {
            client_pipe::agreed("2025-11-25", json!({}))
        })
    });
    let call = world.tool("t");
    tell(world, call);

    for result in [
        json!({"resultType": "riddle"}),
        input_required(Value::Null, Some("again and again")),
        input_required(json!({"k": {"method": "roots/list"}}), None),
    ] {
        let mut world = ready(answering(), move || {
            let result = result.clone();
            Peer::modern().replies("tools/call", move |_| result.clone())
        });
        let call = world.tool("t");
        if let Some(question) = world.asks().pop() {
            world.answer(question, Err(ErrorObject::new(-1, "")));
        }
        tell(world, call);
    }

    let mut small = config();
    small.limits.message_bytes = 1_000;
    let mut world = ready(small, || {
        legacy().replies("tools/call", |_| json!({"a": "x".repeat(2_000)}))
    });
    let call = world.tool("t");
    tell(world, call);
    said
}

#[test]
fn f_116_no_failure_is_without_words() {
    let said = every_failure();
    assert_eq!(said.len(), 10);
    for text in &said {
        let named = text.starts_with("tools/call `t` (call 1) failed after ")
            || text.starts_with("what/ever (call 1) failed after ");
        assert!(named, "{text}");
        let ran = text.contains("so it did not run") || text.contains("may have run");
        assert!(ran, "{text}");
        assert!(!text.contains(": ;") && !text.contains("()"), "{text}");
    }
    let mut distinct = said.clone();
    distinct.sort();
    distinct.dedup();
    assert!(distinct.len() >= 9, "{distinct:#?}");
}

#[test]
fn f_116_the_tail_of_stderr_is_bounded_and_is_the_end() {
    let mut config = config();
    config.limits.stderr_tail = 1_000;
    let mut world = ready(config, || legacy().ignores("tools/call"));
    let call = world.tool("t");
    for number in 0..10_000 {
        world.peer(stderr(&format!("line {number}")));
    }
    world.peer_all(dies(ExitStatus::Code(1)));
    let failure = world.failure(call).to_string();
    says(&failure, &["line 9999", "line 9950\n"]);
    assert!(failure.len() < 1_500, "{} bytes", failure.len());
    world.finish();
}

/// The states according to the events.
fn told_states(world: &World) -> Vec<State> {
    world.picked(|event| {
        Some(match event {
            Event::Opening { .. } => State::Opening,
            Event::Handshaking { .. } => State::Handshaking,
            Event::Ready(_) => State::Ready,
            Event::Draining { .. } => State::Draining,
            Event::Closing { .. } => State::Closing,
            Event::Waiting { .. } => State::Waiting,
            Event::Parked { .. } => State::Parked,
            Event::Closed => State::Closed,
            _ => return None,
        })
    })
}

#[test]
fn f_117_the_events_tell_every_change_of_state_and_nothing_else() {
    for server in BOTH {
        let mut world = World::new(config()).served_by(move |life| match life {
            2 => Peer::silent().opens_with(vec![Act::OpenFailed(vec![FaultKind::Refused.into()])]),
            _ => server().ignores("tools/call"),
        });
        world.until_ready();
        world.peer_all(dies(ExitStatus::Code(1)));
        assert_eq!(world.state(), State::Waiting);
        assert!(world.link().session().is_none());
        world.until_ready();
        world.tool("slow");
        world.reconnect("again");
        world.until_ready();
        world.shutdown();
        world.until_state(State::Closed);
        // The world compares the state with the events after every step.
        let up = [State::Opening, State::Handshaking, State::Ready];
        let told = [
            &up[..],
            &[State::Closing, State::Waiting],
            &[State::Opening, State::Closing, State::Waiting],
            &up,
            &[State::Draining, State::Closing, State::Waiting],
            &up,
            &[State::Closing, State::Closed],
        ];
        assert_eq!(told_states(&world), told.concat());
    }
}

#[test]
fn f_118_every_trouble_that_is_told_has_its_recovery_told() {
    for server in BOTH {
        let mut world = ready(config(), server);
        for _ in 0..5 {
            world.peer_all(dies(ExitStatus::Code(1)));
            world.until_ready();
            world.pass(seconds(61));
        }
        let story = world.picked(|event| match event {
            Event::Closing { epoch, .. } => Some(("closing", epoch.number())),
            Event::Ended(ended) => Some(("ended", ended.epoch.number())),
            Event::Ready(session) => Some(("ready", session.epoch.number())),
            _ => None,
        });
        let mut expected = vec![("ready", 1)];
        for life in 1..=5 {
            expected.extend([("closing", life), ("ended", life), ("ready", life + 1)]);
        }
        assert_eq!(story, expected);
        world.finish();
    }
}

/// The waiting time of the handshake at each `Slow` event, and its limit.
fn slow(world: &World) -> Vec<(Duration, Duration)> {
    world.picked(|event| match event {
        Event::Slow { waited, limit, .. } => Some((*waited, *limit)),
        _ => None,
    })
}

#[test]
fn f_118_a_slow_start_is_told_and_then_its_end() {
    let mut world = World::new(config()).served_by(|_| {
        legacy().on("initialize", |request| {
            let agreed = client_pipe::agreed("2025-11-25", json!({}));
            vec![reply(request, agreed).after(seconds(35))]
        })
    });
    world.until_ready();
    let limit = seconds(120);
    let waited = [10, 20, 30].map(|waited| (seconds(waited), limit));
    assert_eq!(slow(&world), waited);
    world.finish();
}

#[test]
fn f_118_a_slow_start_and_its_limit_count_from_the_same_moment() {
    let mut world = World::new(config())
        .served_by(|_| Peer::silent().opens_with(vec![Act::Opened.after(seconds(25))]));
    world.connect();
    world.pass(seconds(144));
    assert_eq!(world.state(), State::Handshaking);
    let waited: Vec<_> = (1..=11).map(|n| (seconds(10 * n), seconds(120))).collect();
    assert_eq!(slow(&world), waited);
    world.finish();
}

#[test]
fn f_118_a_slow_start_is_told_no_more_than_once_a_second() {
    let mut config = config();
    config.policy.handshake_notice = Duration::ZERO;
    let mut world = World::new(config).served_by(|_| Peer::silent());
    world.connect();
    world.pass(seconds(10));
    let times = slow(&world).len();
    assert!((9..=11).contains(&times), "{times} times in 10 s");
    world.finish();
}

#[test]
fn f_119_one_dead_server_holds_up_no_other_link() {
    let mut stuck = World::new(config()).served_by(|_| Peer::silent().immortal());
    let hung = stuck.tool("hangs");
    let mut well = ready(config(), legacy);
    for _ in 0..100 {
        stuck.pass(seconds(5));
        well.pass(seconds(5));
        let call = well.tool("add");
        assert_eq!(well.result(call)["content"][0]["text"], "add");
    }
    assert!(matches!(
        stuck.failure(hung).kind,
        FailureKind::TimedOut { .. }
    ));
    assert_eq!(well.link().stats().opens, 1);
    stuck.finish();
    well.finish();
}

#[test]
fn f_120_every_fault_is_kept_in_order_and_said() {
    let kinds = [
        FaultKind::Read,
        FaultKind::Closed,
        FaultKind::Write,
        FaultKind::Tls,
        FaultKind::Other,
    ];
    let faults: Vec<Fault> = kinds
        .into_iter()
        .enumerate()
        .map(|(number, kind)| Fault::with_detail(kind, format!("leaf {number}")))
        .collect();
    let mut world = ready(config(), || legacy().ignores("tools/call"));
    let call = world.tool("t");
    world.peer(Act::End(faults.clone()));
    let failure = world.failure(call);
    let ended = failure.ended.as_ref().expect("a life has ended");
    assert_eq!(ended.faults, faults);
    says(
        &failure.to_string(),
        &["leaf 0", "leaf 1", "leaf 2", "leaf 3", "leaf 4"],
    );
    world.finish();
}

#[test]
fn f_120_faults_beyond_the_bound_are_counted() {
    let many: Vec<Fault> = (0..100)
        .map(|number| Fault::with_detail(FaultKind::Other, format!("leaf {number}.")))
        .collect();
    let mut world = ready(config(), legacy);
    world.peer(Act::End(many));
    world.peer(Act::Exit(ExitStatus::Code(1)));
    let ended = world.link().last_end().expect("a life has ended");
    let kept = ended.faults.len();
    assert!(kept >= 8, "only {kept} are kept");
    assert_eq!(kept + ended.more_faults as usize, 100);
    says(
        &ended.to_string(),
        &["leaf 0.", &format!("{} more faults", 100 - kept)],
    );
    world.finish();
}

/// A conversation in which every payload is secret.
fn secretive(server: fn() -> Peer) -> World {
    let mut config = answering();
    config.watch = Watch::lists().and_logs(LogLevel::Debug);
    let secret = || json!({"token": SECRET, SECRET: [SECRET]});
    let mut world = ready(config, move || {
        server()
            .replies("logging/setLevel", |_| json!({}))
            .replies("tools/list", move |_| json!({"tools": [secret()]}))
            .on("tools/call", move |request| match request["params"]["name"].as_str() {
                Some("errs") => vec![error_with(request, -1, "no", secret())],
                Some("asks") => vec![reply(
                    request,
                    input_required(
                        json!({SECRET: {"method": "elicitation/create", "params": form(SECRET)}}),
                        Some(SECRET),
                    ),
                )],
                Some("hangs") => vec![progress(request, 1.0)],
                _ => vec![reply(request, secret())],
            })
    });
    let call = |world: &mut World, name: &str| {
        let params =
            json!({"name": name, "arguments": secret(), "_meta": {"example.com/a": SECRET}});
        world.call_with("tools/call", params, CallOptions::new())
    };
    for name in ["replies", "errs", "asks"] {
        call(&mut world, name);
    }
    if let Some(question) = world.asks().pop() {
        world.answer(question, Ok(secret()));
    }
    world.list(List::Tools);
    world.peer(ask(1, "sampling/createMessage", secret()));
    world.peer(notify("notifications/a", secret()));
    world.peer(notify(
        "notifications/message",
        json!({"level": "error", "data": secret()}),
    ));
    world.peer(Act::Raw(format!("garbage {SECRET}\n").into_bytes()));
    world.peer(Act::Raw(
        format!(r#"{{"jsonrpc":"2.0","id":1,"{SECRET}":"#).into_bytes(),
    ));
    call(&mut world, "hangs");
    world
}

#[test]
fn rule_15_payloads_do_not_show_in_the_link_or_in_what_it_tells() {
    for server in BOTH {
        let mut world = secretive(server);
        let shown = format!("{:?} {:#?}", world.link(), world.link());
        assert!(!shown.contains(SECRET), "{shown}");
        let stats = format!("{:?}", world.link().stats());
        assert!(!stats.contains(SECRET), "{stats}");
        world.until("the last call fails", |world| {
            world.link().stats().settled == world.link().stats().calls
        });
        world.peer_all(dies(ExitStatus::Code(1)));
        for (_, event) in world.events() {
            let shown = format!("{event:?} {event:#?}");
            assert!(!shown.contains(SECRET), "{shown}");
            if let Event::Done {
                outcome: Outcome::Failed(failure),
                ..
            } = event
            {
                let said = failure.to_string();
                assert!(!said.contains(SECRET), "{said}");
            }
        }
        let noise = world.picked(|event| match event {
            Event::Noise(noise) => Some(&*noise.sample),
            _ => None,
        });
        let sampled = noise.iter().any(|sample| sample.contains(SECRET));
        assert!(sampled, "whoever asks for the sample gets it");
        world.finish();
    }
}

#[test]
fn rule_15_inputs_and_questions_do_not_show_their_bytes() {
    let shown = |input: Input<'_>| format!("{input:?}{input:#?}");
    for shown in [
        shown(Input::bytes(SECRET.as_bytes())),
        shown(Input::stderr(SECRET.as_bytes())),
    ] {
        assert!(!shown.contains(SECRET));
        // The bytes do not appear as numbers, either.
        assert!(!shown.contains("104") && !shown.contains("0x68"), "{shown}");
    }
    let mut world = ready(answering(), legacy);
    world.peer(ask(1, "elicitation/create", form(SECRET)));
    let params = world.picked(|event| match event {
        Event::Ask(ask) => ask.params.as_ref().map(everlink::Payload::as_str),
        _ => None,
    });
    assert!(params[0].contains(SECRET), "the application itself gets it");
    world.finish();
}

#[test]
fn rule_15_what_is_named_on_purpose_is_said() {
    let mut world = ready(config(), legacy);
    world.peer(notify(
        "notifications/resources/updated",
        json!({"uri": "file:///a"}),
    ));
    let heard = world.picked(|event| match event {
        Event::Changed(change) => Some(change.clone()),
        _ => None,
    });
    let uri = "file:///a".into();
    assert_eq!(heard, [Change::Resource { uri }]);
    let call = world.call(
        "resources/read",
        json!({"uri": format!("db://user:{SECRET}@host/")}),
    );
    world.cancel(call, "never mind");
    let said = world.failure(call).to_string();
    assert!(
        !said.contains(SECRET),
        "an address may hold a password: {said}"
    );
    world.finish();
}
