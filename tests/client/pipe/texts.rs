//! The texts of the link: failures that explain themselves, one sequence of states, and no secrets. Rows F-116 to
//! F-120 of the failures, and the rule that payloads are never shown.

use core::error::Error as _;
use core::time::Duration;

use everlink::ErrorObject;
use everlink::client::{Blame, CallOptions, Cause, Event, FailureKind, Outcome, State};
use everlink::protocol::LogLevel;
use everlink::{Change, ExitStatus, Fault, FaultKind, Input, List, Watch};
use serde_json::{Value, json};

use crate::client_pipe::{
    self, Act, Harness, Peer, ask, config, dies, error_with, notify, progress, reply, seconds,
    stderr,
};
use crate::eras::{BOTH_ERAS, config_with_asks, form_params, input_required, legacy, ready};

const SECRET: &str = "hunter2";

/// Checks that the text contains all of these parts.
#[track_caller]
fn assert_contains(text: &str, all: &[&str]) {
    for part in all {
        assert!(text.contains(part), "{part:?} is missing in: {text}");
    }
}

#[test]
fn f_116_failure_text_names_the_call_the_cause_the_exit_status_and_stderr() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        let call = harness.call_tool("transfer");
        harness.advance(seconds(12));
        harness.perform(Act::AtOnce(vec![
            stderr("Traceback (most recent call last):"),
            stderr("MemoryError"),
            Act::End(vec![Fault::with_detail(FaultKind::Reset, "os error 104")]),
            Act::Exit(ExitStatus::Signal(9)),
        ]));
        let failure = harness.failure(call);
        assert_contains(
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
        let ended = failure.ended.as_ref().expect("an epoch has ended");
        assert_eq!(ended.exit, Some(ExitStatus::Signal(9)));
        assert_eq!(ended.cause, Cause::Died);
        assert_eq!(
            &*ended.stderr,
            "Traceback (most recent call last):\nMemoryError"
        );
        harness.finish();
    }
}

#[test]
fn f_116_failure_of_an_unsent_call_says_why_the_server_is_down() {
    let cannot_open = || {
        let fault = Fault::with_detail(FaultKind::NotFound, "npx: no such file");
        Peer::silent().on_open(vec![Act::OpenFailed(vec![fault])])
    };
    let mut harness = Harness::new(config()).served_by(move |_| cannot_open());
    let call = harness.call_tool("transfer");
    harness.until_done(call);
    assert_contains(
        &harness.failure(call).to_string(),
        &[
            "`transfer`",
            "the server is down",
            "it was not sent",
            "the next attempt is in",
            "could not be reached",
            "npx: no such file",
        ],
    );
    harness.finish();
}

#[test]
fn f_116_failure_of_a_timed_out_call_names_the_state_of_the_link() {
    let mut harness = Harness::new(config()).served_by(|epoch| match epoch {
        1 => legacy(),
        _ => Peer::silent().after_open(vec![stderr("waiting for the database")]),
    });
    harness.until_ready();
    harness.perform(stderr("segfault"));
    harness.perform(Act::AtOnce(dies(ExitStatus::Code(139))));
    let call = harness.call_tool("transfer");
    harness.until_done(call);
    assert_contains(
        &harness.failure(call).to_string(),
        &[
            "after 1 min",
            "neither a reply nor progress came in time",
            "the connection was handshaking",
            "it was not sent",
            "exit status 139",
            "segfault",
        ],
    );
    harness.finish();
}

#[test]
fn f_116_failure_of_a_list_says_that_it_only_reads() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/list"));
        let list = harness.list(List::Tools);
        harness.until_done(list);
        let text = harness.failure(list).to_string();
        assert_contains(
            &text,
            &[
                "tools/list",
                "1 min",
                "it only reads, so nothing was changed",
            ],
        );
        assert!(!text.contains("not sent"), "{text}");
        harness.finish();
    }
}

/// One script for every way in which a call can end without a reply.
fn every_failure() -> Vec<String> {
    let mut texts = Vec::new();
    let mut record_failure = |harness: Harness, call| {
        texts.push(harness.failure(call).to_string());
        harness.finish();
    };
    let no_reply = || legacy().ignores("tools/call");

    let mut harness = ready(config(), no_reply);
    let call = harness.call_tool("t");
    harness
        .with_link(|link, now| link.cancel(now, call, None))
        .expect("under way");
    record_failure(harness, call);

    let mut harness = ready(config(), no_reply);
    let call = harness.call_tool("t");
    harness.shutdown();
    record_failure(harness, call);

    let mut harness = ready(config(), no_reply);
    let call = harness.call_tool("t");
    harness.perform_all(dies(ExitStatus::Unknown));
    record_failure(harness, call);

    let mut harness = ready(config(), no_reply);
    let call = harness.call_tool("t");
    harness.until_done(call);
    record_failure(harness, call);

    let mut harness = ready(config(), no_reply);
    let call = harness.call("what/ever", json!({}));
    harness.until_done(call);
    record_failure(harness, call);

    let mut harness = ready(config(), || {
        legacy().replies("initialize", |_| {
            client_pipe::initialize_result("2025-11-25", json!({}))
        })
    });
    let call = harness.call_tool("t");
    record_failure(harness, call);

    for result in [
        json!({"resultType": "riddle"}),
        input_required(Value::Null, Some("again and again")),
        input_required(json!({"k": {"method": "roots/list"}}), None),
    ] {
        let mut harness = ready(config_with_asks(), move || {
            let result = result.clone();
            Peer::modern().replies("tools/call", move |_| result.clone())
        });
        let call = harness.call_tool("t");
        if let Some(ask_id) = harness.asks().pop() {
            harness.answer(ask_id, Err(ErrorObject::new(-1, "")));
        }
        record_failure(harness, call);
    }

    let mut small = config();
    small.limits.message_bytes = 1_000;
    let mut harness = ready(small, || {
        legacy().replies("tools/call", |_| json!({"a": "x".repeat(2_000)}))
    });
    let call = harness.call_tool("t");
    record_failure(harness, call);
    texts
}

#[test]
fn f_116_every_failure_text_names_the_call_and_whether_it_may_have_run() {
    let texts = every_failure();
    assert_eq!(texts.len(), 10);
    for text in &texts {
        let named = text.starts_with("tools/call `t` (call 1) failed after ")
            || text.starts_with("what/ever (call 1) failed after ");
        assert!(named, "{text}");
        let ran = text.contains("so it did not run") || text.contains("may have run");
        assert!(ran, "{text}");
        assert!(!text.contains(": ;") && !text.contains("()"), "{text}");
    }
    let mut distinct = texts.clone();
    distinct.sort();
    distinct.dedup();
    assert!(distinct.len() >= 9, "{distinct:#?}");
}

#[test]
fn f_116_failure_text_contains_a_bounded_tail_of_stderr() {
    let mut config = config();
    config.limits.stderr_tail = 1_000;
    let mut harness = ready(config, || legacy().ignores("tools/call"));
    let call = harness.call_tool("t");
    for number in 0..10_000 {
        harness.perform(stderr(&format!("line {number}")));
    }
    harness.perform_all(dies(ExitStatus::Code(1)));
    let failure = harness.failure(call).to_string();
    assert_contains(&failure, &["line 9999", "line 9950\n"]);
    assert!(failure.len() < 1_500, "{} bytes", failure.len());
    harness.finish();
}

/// The states according to the events.
fn reported_states(harness: &Harness) -> Vec<State> {
    harness.pick_events(|event| {
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
fn f_117_events_report_every_state_change_in_order() {
    for server in BOTH_ERAS {
        let mut harness = Harness::new(config()).served_by(move |epoch| match epoch {
            2 => Peer::silent().on_open(vec![Act::OpenFailed(vec![FaultKind::Refused.into()])]),
            _ => server().ignores("tools/call"),
        });
        harness.until_ready();
        harness.perform_all(dies(ExitStatus::Code(1)));
        assert_eq!(harness.state(), State::Waiting);
        assert!(harness.link().session().is_none());
        harness.until_ready();
        harness.call_tool("slow");
        harness.reconnect("again");
        harness.until_ready();
        harness.shutdown();
        harness.until_state(State::Closed);
        // The harness compares the state with the events after every step.
        let to_ready = [State::Opening, State::Handshaking, State::Ready];
        let expected = [
            &to_ready[..],
            &[State::Closing, State::Waiting],
            &[State::Opening, State::Closing, State::Waiting],
            &to_ready,
            &[State::Draining, State::Closing, State::Waiting],
            &to_ready,
            &[State::Closing, State::Closed],
        ];
        assert_eq!(reported_states(&harness), expected.concat());
    }
}

#[test]
fn f_118_every_reported_end_is_followed_by_a_reported_recovery() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), server);
        for _ in 0..5 {
            harness.perform_all(dies(ExitStatus::Code(1)));
            harness.until_ready();
            harness.advance(seconds(61));
        }
        let reported = harness.pick_events(|event| match event {
            Event::Closing { epoch, .. } => Some(("closing", epoch.number())),
            Event::Ended(ended) => Some(("ended", ended.epoch.number())),
            Event::Ready(session) => Some(("ready", session.epoch.number())),
            _ => None,
        });
        let mut expected = vec![("ready", 1)];
        for epoch in 1..=5 {
            expected.extend([("closing", epoch), ("ended", epoch), ("ready", epoch + 1)]);
        }
        assert_eq!(reported, expected);
        harness.finish();
    }
}

/// The waiting time of the handshake at each `Slow` event, and its limit.
fn slow_events(harness: &Harness) -> Vec<(Duration, Duration)> {
    harness.pick_events(|event| match event {
        Event::Slow { waited, limit, .. } => Some((*waited, *limit)),
        _ => None,
    })
}

#[test]
fn f_118_slow_handshake_is_reported_every_10_s() {
    let mut harness = Harness::new(config()).served_by(|_| {
        legacy().on("initialize", |request| {
            let agreed = client_pipe::initialize_result("2025-11-25", json!({}));
            vec![reply(request, agreed).after(seconds(35))]
        })
    });
    harness.until_ready();
    let limit = seconds(120);
    let waited = [10, 20, 30].map(|waited| (seconds(waited), limit));
    assert_eq!(slow_events(&harness), waited);
    harness.finish();
}

#[test]
fn f_118_slow_reports_count_from_the_start_of_the_handshake() {
    let mut harness = Harness::new(config())
        .served_by(|_| Peer::silent().on_open(vec![Act::Opened.after(seconds(25))]));
    harness.connect();
    harness.advance(seconds(144));
    assert_eq!(harness.state(), State::Handshaking);
    let waited: Vec<_> = (1..=11).map(|n| (seconds(10 * n), seconds(120))).collect();
    assert_eq!(slow_events(&harness), waited);
    harness.finish();
}

#[test]
fn f_118_slow_handshake_is_reported_at_most_once_a_second() {
    let mut config = config();
    config.policy.handshake_notice = Duration::ZERO;
    let mut harness = Harness::new(config).served_by(|_| Peer::silent());
    harness.connect();
    harness.advance(seconds(10));
    let times = slow_events(&harness).len();
    assert!((9..=11).contains(&times), "{times} times in 10 s");
    harness.finish();
}

#[test]
fn f_119_dead_server_does_not_delay_another_link() {
    let mut stuck = Harness::new(config()).served_by(|_| Peer::silent().ignores_kill());
    let hung = stuck.call_tool("hangs");
    let mut well = ready(config(), legacy);
    for _ in 0..100 {
        stuck.advance(seconds(5));
        well.advance(seconds(5));
        let call = well.call_tool("add");
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
fn f_120_every_fault_is_kept_in_order_and_named_in_the_text() {
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
    let mut harness = ready(config(), || legacy().ignores("tools/call"));
    let call = harness.call_tool("t");
    harness.perform(Act::End(faults.clone()));
    let failure = harness.failure(call);
    let ended = failure.ended.as_ref().expect("an epoch has ended");
    assert_eq!(ended.faults, faults);
    assert_contains(
        &failure.to_string(),
        &["leaf 0", "leaf 1", "leaf 2", "leaf 3", "leaf 4"],
    );
    harness.finish();
}

#[test]
fn f_120_source_of_a_failure_is_the_end_of_the_epoch_and_then_its_first_fault() {
    let mut harness = ready(config(), || legacy().ignores("tools/call"));
    let call = harness.call_tool("t");
    let first = Fault::with_detail(FaultKind::Tls, "the certificate is old".to_owned());
    let faults = vec![first.clone(), Fault::new(FaultKind::Read)];
    harness.perform(Act::End(faults));
    let failure = harness.failure(call);
    let ended = failure.source().expect("an epoch has ended");
    let expected = failure.ended.as_ref().expect("an epoch has ended");
    assert_eq!(ended.to_string(), expected.to_string());
    let fault = ended.source().expect("there was a fault");
    assert_eq!(fault.to_string(), first.to_string());
    harness.finish();
}

#[test]
fn f_120_faults_beyond_the_bound_are_counted() {
    let many: Vec<Fault> = (0..100)
        .map(|number| Fault::with_detail(FaultKind::Other, format!("leaf {number}.")))
        .collect();
    let mut harness = ready(config(), legacy);
    harness.perform(Act::End(many));
    harness.perform(Act::Exit(ExitStatus::Code(1)));
    let ended = harness.link().last_end().expect("an epoch has ended");
    let kept = ended.faults.len();
    assert!(kept >= 8, "only {kept} are kept");
    assert_eq!(kept + ended.more_faults as usize, 100);
    assert_contains(
        &ended.to_string(),
        &["leaf 0.", &format!("{} more faults", 100 - kept)],
    );
    harness.finish();
}

/// A conversation in which every payload is secret.
fn secret_conversation(server: fn() -> Peer) -> Harness {
    let mut config = config_with_asks();
    config.watch = Watch::lists().and_logs(LogLevel::Debug);
    let secret = || json!({"token": SECRET, SECRET: [SECRET]});
    let mut harness = ready(config, move || {
        server()
            .replies("logging/setLevel", |_| json!({}))
            .replies("tools/list", move |_| json!({"tools": [secret()]}))
            .on("tools/call", move |request| match request["params"]["name"].as_str() {
                Some("errs") => vec![error_with(request, -1, "no", secret())],
                Some("asks") => vec![reply(
                    request,
                    input_required(
                        json!({SECRET: {"method": "elicitation/create", "params": form_params(SECRET)}}),
                        Some(SECRET),
                    ),
                )],
                Some("hangs") => vec![progress(request, 1.0)],
                _ => vec![reply(request, secret())],
            })
    });
    let call = |harness: &mut Harness, name: &str| {
        let params =
            json!({"name": name, "arguments": secret(), "_meta": {"example.com/a": SECRET}});
        harness.call_with("tools/call", params, CallOptions::new())
    };
    for name in ["replies", "errs", "asks"] {
        call(&mut harness, name);
    }
    if let Some(ask_id) = harness.asks().pop() {
        harness.answer(ask_id, Ok(secret()));
    }
    harness.list(List::Tools);
    harness.perform(ask(1, "sampling/createMessage", secret()));
    harness.perform(notify("notifications/a", secret()));
    harness.perform(notify(
        "notifications/message",
        json!({"level": "error", "data": secret()}),
    ));
    harness.perform(Act::Raw(format!("garbage {SECRET}\n").into_bytes()));
    harness.perform(Act::Raw(
        format!(r#"{{"jsonrpc":"2.0","id":1,"{SECRET}":"#).into_bytes(),
    ));
    call(&mut harness, "hangs");
    harness
}

#[test]
fn rule_15_payloads_are_absent_from_debug_output_and_failure_texts() {
    for server in BOTH_ERAS {
        let mut harness = secret_conversation(server);
        let shown = format!("{:?} {:#?}", harness.link(), harness.link());
        assert!(!shown.contains(SECRET), "{shown}");
        let stats = format!("{:?}", harness.link().stats());
        assert!(!stats.contains(SECRET), "{stats}");
        harness.until("the last call fails", |harness| {
            harness.link().stats().settled == harness.link().stats().calls
        });
        harness.perform_all(dies(ExitStatus::Code(1)));
        for (_, event) in harness.events() {
            let shown = format!("{event:?} {event:#?}");
            assert!(!shown.contains(SECRET), "{shown}");
            if let Event::Done {
                outcome: Outcome::Failed(failure),
                ..
            } = event
            {
                let text = failure.to_string();
                assert!(!text.contains(SECRET), "{text}");
            }
        }
        let noise = harness.pick_events(|event| match event {
            Event::Noise(noise) => Some(&*noise.sample),
            _ => None,
        });
        let sampled = noise.iter().any(|sample| sample.contains(SECRET));
        assert!(sampled, "the sample contains the payload");
        harness.finish();
    }
}

#[test]
fn rule_15_debug_of_inputs_hides_bytes_and_an_ask_delivers_its_params() {
    let shown = |input: Input<'_>| format!("{input:?}{input:#?}");
    for shown in [
        shown(Input::bytes(SECRET.as_bytes())),
        shown(Input::stderr(SECRET.as_bytes())),
    ] {
        assert!(!shown.contains(SECRET));
        // The bytes do not appear as numbers, either.
        assert!(!shown.contains("104") && !shown.contains("0x68"), "{shown}");
    }
    let mut harness = ready(config_with_asks(), legacy);
    harness.perform(ask(1, "elicitation/create", form_params(SECRET)));
    let params = harness.pick_events(|event| match event {
        Event::Ask(ask) => ask.params.as_ref().map(everlink::Payload::as_str),
        _ => None,
    });
    assert!(
        params[0].contains(SECRET),
        "the application gets the params"
    );
    harness.finish();
}

#[test]
fn rule_15_changed_uri_is_reported_but_a_password_in_a_uri_is_hidden() {
    let mut harness = ready(config(), legacy);
    harness.perform(notify(
        "notifications/resources/updated",
        json!({"uri": "file:///a"}),
    ));
    let changes = harness.pick_events(|event| match event {
        Event::Changed(change) => Some(change.clone()),
        _ => None,
    });
    let uri = "file:///a".into();
    assert_eq!(changes, [Change::Resource { uri }]);
    let call = harness.call(
        "resources/read",
        json!({"uri": format!("db://user:{SECRET}@host/")}),
    );
    harness.cancel(call, "never mind");
    let text = harness.failure(call).to_string();
    assert!(
        !text.contains(SECRET),
        "a URI may contain a password: {text}"
    );
    harness.finish();
}
