//! The three main guarantees: every death is reported, a planned reconnect is free, and one problem causes one reconnect.

use core::time::Duration;

use crate::client_pipe::{
    self, Act, Chunking, Harness, Peer, ask, config, dies, every_chunking, every_era, millis,
    seconds, stderr,
};
use everlink::client::{Delivery, Event, FailureKind, Outcome, State, Withdrawn};
use everlink::protocol::{ClientCapabilities, Version};
use everlink::{CallId, Epoch, ExitStatus, Fault, FaultKind, Input, LAST_WORDS, List};
use serde_json::json;

const STDERR_LINE: &str = "panicked at src/main.rs:7: no more numbers";

/// When the server dies, the link reports it at once: every call fails with a text, and the link leaves `Ready`. Then
/// it reconnects by itself. An error reply of a server is not a death.
#[test]
fn server_death_fails_every_call_in_flight_at_once_and_the_link_reconnects() {
    every_era(|chunking, peer| {
        let mut harness = with_a_thousand_calls(chunking, peer);
        let calls = in_flight(&harness);
        // Without an exit, the calls fail after 100 ms.
        harness.feed_unpolled(&Act::End(Vec::new()));
        check_dying(&harness);
        harness.advance(LAST_WORDS);
        check_failures(&harness, &calls, LAST_WORDS, &[STDERR_LINE]);
        assert_eq!(harness.state(), State::Closing);
        harness.perform(Act::Exit(ExitStatus::Code(3)));
        let ended = harness.link().last_end().expect("an epoch ended");
        assert!(ended.to_string().contains("exit status 3"));
        check_reconnects(harness)
    });
    every_era(|chunking, peer| {
        let mut harness = with_a_thousand_calls(chunking, peer);
        let calls = in_flight(&harness);
        harness.feed_unpolled(&Act::End(Vec::new()));
        check_dying(&harness);
        harness.pump();
        // With the exit, they fail at once, and the outcomes mention it.
        harness.feed_unpolled(&Act::Exit(ExitStatus::Code(3)));
        assert_eq!(harness.link().stats().settled, 1_000);
        harness.pump();
        let parts = [STDERR_LINE, "exit status 3"];
        check_failures(&harness, &calls, Duration::ZERO, &parts);
        check_reconnects(harness)
    });
    every_era(|chunking, peer| {
        let mut harness = with_a_thousand_calls(chunking, peer);
        let calls = in_flight(&harness);
        harness.feed_unpolled(&Act::Exit(ExitStatus::Signal(11)));
        check_dying(&harness);
        harness.pump();
        harness.feed_unpolled(&Act::End(Vec::new()));
        assert_eq!(harness.link().stats().settled, 1_000);
        harness.pump();
        let parts = [STDERR_LINE, "signal 11 (SIGSEGV)"];
        check_failures(&harness, &calls, Duration::ZERO, &parts);
        check_reconnects(harness)
    });
    every_era(tool_errors_do_not_end_the_epoch);
}

fn with_a_thousand_calls(chunking: Chunking, peer: fn() -> Peer) -> Harness {
    let mut harness =
        Harness::new(config())
            .chunked(chunking)
            .served_by(move |epoch| match epoch {
                1 => peer().ignores("tools/call").ignores_eof(),
                _ => peer(),
            });
    harness.until_ready();
    for number in 0..1_000 {
        harness.call_tool(&format!("tool-{number}"));
    }
    let sent = harness.methods_of(1);
    let sent = sent.iter().filter(|method| **method == "tools/call");
    assert_eq!(sent.count(), 1_000);
    harness.advance(seconds(2));
    harness.perform(stderr(STDERR_LINE));
    assert_eq!(harness.state(), State::Ready);
    assert_eq!(harness.link().stats().settled, 0);
    harness
}

/// The calls of the application, with the names of their tools.
fn in_flight(harness: &Harness) -> Vec<(CallId, String)> {
    let ids = harness.calls();
    let named = ids.iter().enumerate();
    named
        .map(|(number, call)| (*call, format!("tool-{number}")))
        .collect()
}

/// The death is seen at once, but the calls wait for the rest of it.
fn check_dying(harness: &Harness) {
    assert_eq!(harness.state(), State::Closing);
    assert!(harness.link().session().is_none());
    assert_eq!(harness.link().stats().settled, 0);
}

/// Checks the failures of calls that were lost so long after the first sign of the death.
fn check_failures(harness: &Harness, calls: &[(CallId, String)], later: Duration, parts: &[&str]) {
    assert_eq!(calls.len(), 1_000);
    for (call, tool) in calls {
        let failure = harness.failure(*call);
        assert_eq!(failure.kind, FailureKind::Lost);
        assert_eq!(failure.delivery, Delivery::Unknown);
        assert_eq!(failure.after, seconds(2) + later);
        let text = failure.to_string();
        let after = if later.is_zero() { "2 s" } else { "2.1 s" };
        let prefix = format!("tools/call `{tool}` ({call}) failed after {after}");
        assert!(text.starts_with(&prefix), "{text}");
        for part in parts {
            assert!(text.contains(part), "{text:?} does not contain {part:?}");
        }
    }
}

fn check_reconnects(mut harness: Harness) -> Harness {
    assert_eq!(harness.state(), State::Waiting);
    let call = harness.call_tool("add");
    harness.until_done(call);
    assert_eq!(harness.result(call)["content"][0]["text"], "add");
    assert_eq!(harness.state(), State::Ready);
    assert_eq!(harness.epoch_number(), 2);
    assert_eq!(harness.link().stats().failures, 1);
    harness
}

fn tool_errors_do_not_end_the_epoch(chunking: Chunking, peer: fn() -> Peer) -> Harness {
    let mut harness = Harness::new(config())
        .chunked(chunking)
        .served_by(move |_| {
            peer().on("tools/call", |request| {
                match request["params"]["name"].as_str() {
                    Some("refused") => vec![client_pipe::error(request, -32603, "no")],
                    _ => vec![client_pipe::reply(
                        request,
                        json!({"isError": true, "content": []}),
                    )],
                }
            })
        });
    harness.until_ready();
    for _ in 0..100 {
        let refused = harness.call_tool("refused");
        assert!(matches!(harness.outcome(refused), Outcome::Error(error) if error.code == -32603));
        let failed = harness.call_tool("failed");
        assert_eq!(harness.result(failed)["isError"], true);
    }
    assert_eq!(harness.state(), State::Ready);
    assert_eq!(harness.epoch_number(), 1);
    assert_eq!(harness.link().failures(), 0);
    harness
}

/// A planned teardown is free, however many faults report that the transport closed. One real fault among them costs
/// one attempt. A stable epoch resets the count of failures; a short one does not.
#[test]
fn planned_reconnects_never_spend_the_budget() {
    let mut harness = Harness::new(config()).served_by(|epoch| match epoch % 3 {
        0 => ends_with_faults(BENIGN.to_vec(), ExitStatus::Code(0)),
        1 => ends_with_faults(BENIGN.to_vec(), ExitStatus::Code(1)),
        _ => ends_with_faults(Vec::new(), ExitStatus::Signal(15)),
    });
    harness.until_ready();
    for _ in 0..10_000 {
        harness.reconnect("the configuration changed");
        harness.until_ready();
        assert_eq!(harness.link().failures(), 0);
    }
    let stats = harness.link().stats();
    assert_eq!((stats.failures, stats.free_ends), (0, 10_000));
    // The rules of the harness have checked the minimum pause between any two opens.
    assert_eq!(stats.opens, 10_001);
    harness.finish();

    every_chunking(one_real_fault_among_benign_ones_counts);
    every_chunking(only_a_stable_epoch_resets_the_failures);
}

const BENIGN: [FaultKind; 4] = [
    FaultKind::BrokenPipe,
    FaultKind::Closed,
    FaultKind::Aborted,
    FaultKind::Reset,
];

fn ends_with_faults(faults: Vec<FaultKind>, status: ExitStatus) -> Peer {
    let faults = faults.into_iter().map(Fault::new).collect();
    Peer::legacy("2025-11-25").on_eof(vec![Act::End(faults), Act::Exit(status)])
}

fn one_real_fault_among_benign_ones_counts(chunking: Chunking) -> Harness {
    let mixed = vec![
        FaultKind::Closed,
        FaultKind::BrokenPipe,
        FaultKind::Read,
        FaultKind::Reset,
    ];
    let mut harness = Harness::new(config())
        .chunked(chunking)
        .served_by(move |_| ends_with_faults(mixed.clone(), ExitStatus::Code(0)));
    let budget = config().policy.retry.budget;
    harness.until_ready();
    for failures in 1..=budget {
        harness.reconnect("the configuration changed");
        assert_eq!(harness.link().failures(), failures);
        assert_eq!(harness.state(), State::Waiting);
        harness.until_ready();
    }
    harness.reconnect("the configuration changed");
    assert_eq!(harness.state(), State::Parked);
    let ended = harness.link().last_end().expect("an epoch ended");
    assert_eq!(ended.faults.len(), 4);
    assert!(ended.counted);
    harness
}

fn only_a_stable_epoch_resets_the_failures(chunking: Chunking) -> Harness {
    let retry = config().policy.retry;
    let mut harness = Harness::new(config()).chunked(chunking);
    harness.until_ready();
    for failures in 1..=3 {
        harness.perform_all(dies(ExitStatus::Code(1)));
        assert_eq!(harness.link().failures(), failures);
        harness.until_ready();
        // One millisecond too short does not count as stable.
        harness.advance(retry.stable_after - millis(1));
    }
    harness.reconnect("the configuration changed");
    harness.until_ready();
    assert_eq!(harness.link().failures(), 3);
    harness.perform_all(dies(ExitStatus::Code(1)));
    assert!(
        pause(&harness) > 2 * retry.first,
        "the fourth pause is long"
    );

    harness.until_ready();
    harness.advance(retry.stable_after);
    assert_eq!(harness.link().failures(), 0);
    harness.perform_all(dies(ExitStatus::Code(1)));
    assert_eq!(harness.link().failures(), 1);
    assert!(pause(&harness) <= retry.first, "the first pause is short");
    harness
}

/// The pause of the link after the end that was just reported.
fn pause(harness: &Harness) -> core::time::Duration {
    let waits = harness.pick_events(|event| match event {
        Event::Waiting { until, .. } => Some(*until),
        _ => None,
    });
    waits.last().expect("the link waits").since(harness.now())
}

/// However many callers report the same problem, the transport is replaced once, and nothing from the old one is
/// used.
#[test]
fn one_problem_seen_by_many_callers_causes_one_reconnect_without_stale_state() {
    every_era(many_callers_cause_one_reconnect);
    every_chunking(state_of_the_old_epoch_is_dropped);
    every_era(inputs_of_a_finished_epoch_are_dropped);
}

fn many_callers_cause_one_reconnect(chunking: Chunking, peer: fn() -> Peer) -> Harness {
    let mut harness = Harness::new(config())
        .chunked(chunking)
        .served_by(move |_| peer());
    harness.until_ready();
    let seen = harness.link().epoch();
    harness.perform(Act::End(vec![FaultKind::Read.into()]));
    for _ in 0..100 {
        harness.reconnect_seen(seen, "my call failed");
    }
    harness.perform(Act::Exit(ExitStatus::Code(1)));
    for _ in 0..100 {
        harness.reconnect_seen(seen, "my call failed");
        harness.advance(millis(20));
    }
    harness.until_ready();
    for _ in 0..100 {
        harness.reconnect_seen(seen, "my call failed");
    }
    harness.advance(seconds(100));
    assert_eq!(harness.link().stats().opens, 2);

    let seen = harness.link().epoch();
    for _ in 0..100 {
        harness.reconnect_seen(seen, "the configuration changed");
        harness.advance(millis(20));
    }
    harness.until_ready();
    assert_eq!(harness.link().stats().opens, 3);
    assert_eq!(harness.link().stats().failures, 1);
    harness
}

fn state_of_the_old_epoch_is_dropped(chunking: Chunking) -> Harness {
    let mut config = config();
    config.capabilities = ClientCapabilities::default().with_sampling();
    let mut harness = Harness::new(config)
        .chunked(chunking)
        .served_by(|epoch| match epoch {
            1 => Peer::legacy("2025-11-25"),
            _ => Peer::legacy("2024-11-05"),
        });
    harness.until_ready();
    let list = harness.list(List::Tools);
    assert!(harness.is_done(list));
    assert!(harness.link().is_fresh(harness.now(), List::Tools));
    harness.perform(ask(
        7,
        "sampling/createMessage",
        json!({"messages": [], "maxTokens": 1}),
    ));
    let asks = harness.asks();
    assert_eq!(asks.len(), 1);

    harness.perform(Act::End(Vec::new()));
    assert!(harness.link().session().is_none());
    assert!(!harness.link().is_fresh(harness.now(), List::Tools));
    let withdrawn = harness.pick_events(|event| match event {
        Event::AskWithdrawn { ask, why } => Some((*ask, *why)),
        _ => None,
    });
    assert_eq!(withdrawn, [(asks[0], Withdrawn::Ended)]);
    harness.perform(Act::Exit(ExitStatus::Code(0)));

    harness.until_ready();
    let session = harness.link().session().expect("the link is ready");
    assert_eq!(session.version, Version::V2024_11_05);
    assert_eq!(session.epoch, harness.link().epoch());
    assert!(!harness.link().is_fresh(harness.now(), List::Tools));
    let sent_before = harness.link().stats().messages_out;
    let list = harness.list(List::Tools);
    assert!(harness.is_done(list));
    assert_eq!(harness.link().stats().messages_out, sent_before + 1);
    // The new server may reuse the id of the old ask.
    harness.perform(ask(
        7,
        "sampling/createMessage",
        json!({"messages": [], "maxTokens": 1}),
    ));
    assert_eq!(harness.asks().len(), 2);
    harness
}

fn inputs_of_a_finished_epoch_are_dropped(chunking: Chunking, peer: fn() -> Peer) -> Harness {
    let mut harness =
        Harness::new(config())
            .chunked(chunking)
            .served_by(move |epoch| match epoch {
                1 => peer(),
                _ => peer().ignores("tools/call"),
            });
    harness.until_ready();
    let old = harness.link().epoch();
    harness.perform_all(dies(ExitStatus::Code(1)));
    harness.until_ready();
    harness.list(List::Tools);
    let call = harness.call_tool("add");
    let request_id = harness.lines_of(2).last().expect("the call was written")["id"].clone();
    let before = Snapshot::of(&harness);

    let reply = format!(
        "{}\n",
        json!({"jsonrpc": "2.0", "id": request_id, "result": {}})
    );
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    let changed = format!("{changed}\n");
    let faults = [Fault::new(FaultKind::Read)];
    let inputs = [
        Input::Opened,
        Input::bytes(reply.as_bytes()),
        Input::bytes(changed.as_bytes()),
        Input::bytes(b"noise\n".as_slice()),
        Input::stderr(b"noise\n".as_slice()),
        Input::sent(1_000_000),
        Input::end(&faults[..]),
        Input::exited(ExitStatus::Code(1)),
        Input::open_failed(&faults[..]),
    ];
    for epoch in [old, Epoch::NONE] {
        for input in &inputs {
            harness.feed_input(epoch, input.clone());
            harness.pump();
        }
    }
    let mut after = Snapshot::of(&harness);
    assert_eq!(after.stats.stale_inputs, before.stats.stale_inputs + 18);
    after.stats.stale_inputs = before.stats.stale_inputs;
    assert_eq!(after, before);
    assert!(!harness.is_done(call));
    harness
}

/// Everything that an application can see of a link.
#[derive(Debug, PartialEq)]
struct Snapshot {
    state: State,
    epoch: Epoch,
    failures: u32,
    is_fresh: bool,
    events: usize,
    lines: usize,
    deadline: Option<everlink::Deadline>,
    stats: everlink::Stats,
}

impl Snapshot {
    fn of(harness: &Harness) -> Snapshot {
        let link = harness.link();
        Snapshot {
            state: link.state(),
            epoch: link.epoch(),
            failures: link.failures(),
            is_fresh: link.is_fresh(harness.now(), List::Tools),
            events: harness.events().len(),
            lines: harness.lines_of(2).len(),
            deadline: link.poll_timeout(),
            stats: link.stats(),
        }
    }
}
