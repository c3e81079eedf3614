//! Reconnects: the cost of a death, the time of the next attempt, calls that are sent again, and servers that are
//! taken for dead. Rows F-071 to F-087 of the failures.

use core::time::Duration;

use everlink::client::{
    CallOptions, Cause, Client, Delivery, Ended, Event, FailureKind, Misuse, Outcome, State,
};
use everlink::{CallId, Config, Epoch, ExitStatus, Fault, FaultKind, Input, Keepalive, List, Wake};
use serde_json::json;

use crate::client_pipe::{
    self, Act, Command, Harness, Peer, config, dies, error, millis, notify, reply, seconds, stderr,
};
use crate::eras::{self, BOTH_ERAS, legacy, ready};

const CRASH: ExitStatus = ExitStatus::Code(1);

/// A server that cannot be opened at present.
fn cannot_open() -> Peer {
    let fault = Fault::with_detail(FaultKind::ResourcesExhausted, "no more processes");
    Peer::silent().on_open(vec![Act::OpenFailed(vec![fault])])
}

/// A server that works for `span` and then crashes.
fn crashes_after(span: Duration) -> Peer {
    let end = dies(CRASH).into_iter().map(|act| act.after(span));
    legacy().after_open(end.collect())
}

/// A server whose planned end comes with these faults.
fn closes_with_faults(faults: &[Fault]) -> Peer {
    legacy().on_eof(vec![
        Act::End(faults.to_vec()),
        Act::Exit(ExitStatus::Code(0)),
    ])
}

fn ended_epochs(harness: &Harness) -> Vec<&Ended> {
    harness.pick_events(|event| match event {
        Event::Ended(ended) => Some(&**ended),
        _ => None,
    })
}

/// The number of consecutive failures at each pause, and the length of the pause.
fn pauses(harness: &Harness) -> Vec<(u32, Duration)> {
    let waits = harness
        .events()
        .iter()
        .filter_map(|(at, event)| match event {
            Event::Waiting {
                until, failures, ..
            } => Some((*failures, until.since(*at))),
            _ => None,
        });
    waits.collect()
}

fn parked_harness(mut peer: impl FnMut(u64) -> Peer + 'static) -> Harness {
    let mut harness = Harness::new(config()).served_by(move |epoch| match epoch {
        1..=6 => cannot_open(),
        epoch => peer(epoch),
    });
    harness.connect();
    harness.until_state(State::Parked);
    assert_eq!(
        harness.epoch_number(),
        6,
        "the first attempt and a budget of five"
    );
    harness
}

#[test]
fn f_071_faults_that_only_report_a_close_do_not_count_in_a_planned_reconnect() {
    for kind in [
        FaultKind::Aborted,
        FaultKind::BrokenPipe,
        FaultKind::Closed,
        FaultKind::Reset,
    ] {
        let fault = Fault::with_detail(kind, "as it happens");
        let mut harness = ready(config(), move || {
            closes_with_faults(core::slice::from_ref(&fault))
        });
        harness.reconnect("new settings");
        harness.until_ready();
        assert_eq!(harness.epoch_number(), 2);
        assert_eq!(harness.link().failures(), 0);
        let [ended] = ended_epochs(&harness)[..] else {
            panic!("one epoch ended");
        };
        assert!(!ended.counted);
        let why = "new settings".into();
        assert_eq!(ended.cause, Cause::AskedTo { why });
        assert_eq!(ended.faults.len(), 1, "not counted, but still reported");
        let stats = harness.link().stats();
        assert_eq!((stats.failures, stats.free_ends), (0, 1));
        harness.finish();
    }
}

#[test]
fn f_071_transport_that_breaks_right_after_a_reconnect_request_does_not_count() {
    let mut harness = ready(config(), legacy);
    let epoch = harness.link().epoch();
    // The transport breaks before the driver can take it down.
    harness.with_link(|link, now| {
        link.reconnect(now, epoch, "new settings");
        link.handle(now, epoch, Input::end(vec![FaultKind::BrokenPipe.into()]));
    });
    harness.until_ready();
    assert_eq!(harness.link().failures(), 0);
    harness.finish();
}

#[test]
fn f_071_inputs_of_a_finished_epoch_are_counted_as_stale_and_dropped() {
    let mut harness = ready(config(), legacy);
    let retired = harness.link().epoch();
    harness.reconnect("new settings");
    harness.until_ready();
    let call = harness.call_tool("add");
    let real = vec![Fault::new(FaultKind::Read), Fault::new(FaultKind::Tls)];
    harness.feed_input(retired, Input::end(real.clone()));
    harness.feed_input(retired, Input::exited(CRASH));
    harness.feed_input(retired, Input::open_failed(real));
    harness.feed_input(retired, Input::bytes(&b"not JSON\n"[..]));
    harness.feed_input(retired, Input::Opened);
    harness.pump();
    assert_eq!(harness.state(), State::Ready);
    assert_eq!(harness.link().failures(), 0);
    let stats = harness.link().stats();
    assert_eq!((stats.stale_inputs, stats.noise), (5, 0));
    assert_eq!(harness.result(call)["content"][0]["text"], "add");
    harness.finish();
}

#[test]
fn f_072_one_real_fault_among_harmless_ones_counts_as_one_failure() {
    let harmless = || Fault::new(FaultKind::Closed);
    let real = || Fault::with_detail(FaultKind::Read, "input/output error");
    for faults in [
        [real(), harmless(), harmless()],
        [harmless(), real(), harmless()],
        [harmless(), harmless(), real()],
    ] {
        let seen = faults.clone();
        let mut harness = ready(config(), move || closes_with_faults(&faults));
        harness.reconnect("new settings");
        harness.until_ready();
        assert_eq!(harness.link().failures(), 1);
        let ended = ended_epochs(&harness)[0];
        assert!(ended.counted);
        assert_eq!(ended.faults, seen, "every fault, in order");
        harness.finish();
    }
}

#[test]
fn f_072_real_fault_after_the_16_kept_faults_still_counts_as_a_failure() {
    // First as many harmless faults as are kept in full.
    let mut faults = vec![Fault::new(FaultKind::Closed); 16];
    faults.push(Fault::new(FaultKind::Tls));
    let mut harness = ready(config(), move || closes_with_faults(&faults));
    harness.reconnect("new settings");
    harness.until_ready();
    let ended = ended_epochs(&harness)[0];
    assert_eq!((ended.counted, ended.more_faults), (true, 1));
    assert_eq!(harness.link().failures(), 1);
    harness.finish();
}

#[test]
fn f_072_planned_reconnect_of_a_server_that_never_ends_counts_as_one_failure() {
    let mut harness = Harness::new(config()).served_by(|epoch| match epoch {
        1 => legacy().ignores_kill(),
        _ => legacy(),
    });
    harness.until_ready();
    harness.reconnect("new settings");
    harness.until_ready();
    let ended = ended_epochs(&harness)[0];
    assert!(ended.abandoned && ended.counted);
    assert_eq!(harness.link().failures(), 1);
    let stats = harness.link().stats();
    assert_eq!(
        (stats.abandoned, stats.failures, stats.free_ends),
        (1, 1, 0)
    );
    harness.finish();
}

#[test]
fn stats_count_each_planned_end_as_free() {
    let mut harness = ready(config(), legacy);
    for planned in 1..=3 {
        harness.reconnect("new settings");
        harness.until_ready();
        let stats = harness.link().stats();
        assert_eq!(
            (stats.abandoned, stats.failures, stats.free_ends),
            (0, 0, planned)
        );
    }
    harness.finish();
}

#[test]
fn f_073_epoch_that_is_ready_for_61_s_resets_the_failure_count() {
    let mut harness = Harness::new(config()).served_by(|_| crashes_after(seconds(61)));
    harness.connect();
    harness.until("fifty epochs", |harness| harness.epoch_number() == 50);
    assert!(pauses(&harness).iter().all(|(failures, _)| *failures == 1));
    harness.finish();
}

/// The driver may report the end of the server before it handles the deadline of the same time.
#[test]
fn f_073_epoch_that_is_ready_for_exactly_60_s_resets_the_failure_count() {
    let mut harness = Harness::new(config()).served_by(|_| crashes_after(seconds(60)));
    harness.connect();
    harness.until("ten epochs", |harness| harness.epoch_number() == 10);
    assert!(pauses(&harness).iter().all(|(failures, _)| *failures == 1));
    harness.finish();
}

#[test]
fn f_073_epoch_that_is_ready_for_59_s_does_not_reset_the_failure_count() {
    let mut harness = Harness::new(config()).served_by(|_| crashes_after(seconds(59)));
    harness.connect();
    harness.until_state(State::Parked);
    let failures: Vec<u32> = pauses(&harness)
        .iter()
        .map(|(failures, _)| *failures)
        .collect();
    assert_eq!(failures, [1, 2, 3, 4, 5]);
    assert_eq!(harness.link().stats().readies, 6);
    harness.finish();
}

#[test]
fn f_073_stable_epoch_resets_failures_even_if_the_driver_was_suspended() {
    let mut harness = Harness::new(config()).served_by(|epoch| match epoch {
        1 => cannot_open(),
        _ => legacy(),
    });
    harness.until_ready();
    assert_eq!(harness.link().failures(), 1);
    // The machine was suspended: after two hours, the death is the first input.
    let epoch = harness.link().epoch();
    harness.with_link(|link, now| {
        let later = now + seconds(7_200);
        link.handle(later, epoch, Input::end(Vec::new()));
        link.handle(later, epoch, Input::exited(CRASH));
    });
    assert_eq!(harness.link().failures(), 1, "the first failure was reset");
}

#[test]
fn f_073_ready_time_of_an_epoch_excludes_the_time_to_close_it() {
    let mut harness = Harness::new(config()).served_by(|epoch| match epoch {
        1 => legacy().ignores_terminate(),
        _ => legacy(),
    });
    harness.until_ready();
    harness.advance(seconds(10));
    harness.reconnect("new settings");
    harness.until_ready();
    let ended = ended_epochs(&harness)[0];
    assert_eq!(ended.ready_for, Some(seconds(10)));
    assert_eq!(ended.lived, seconds(15), "it had to be killed");
    harness.finish();
}

#[test]
fn f_074_parked_link_tries_again_after_30_to_60_s() {
    let mut harness = parked_harness(|_| legacy());
    let parked_at = harness.now();
    harness.until_ready();
    let pause = harness.now().since(parked_at);
    assert!(pause >= seconds(30) && pause <= seconds(60), "{pause:?}");
    harness.finish();
}

#[test]
fn f_074_parked_link_keeps_trying_until_the_server_is_back() {
    let mut harness = parked_harness(|epoch| if epoch < 40 { cannot_open() } else { legacy() });
    harness.until_ready();
    assert_eq!(harness.epoch_number(), 40);
    harness.finish();
}

#[test]
fn f_074_wake_reconnects_a_parked_link_at_once() {
    let mut harness = parked_harness(|_| legacy());
    harness.advance(seconds(1));
    let woken_at = harness.now();
    harness.wake();
    assert_eq!(harness.state(), State::Ready);
    assert_eq!(harness.now(), woken_at);
    harness.finish();
}

#[test]
fn f_075_stable_epoch_resets_the_backoff_with_the_budget() {
    let mut harness = Harness::new(config()).served_by(|epoch| match epoch {
        1..=5 => cannot_open(),
        6 => crashes_after(seconds(61)),
        _ => legacy(),
    });
    harness.connect();
    harness.until("the seventh epoch", |harness| {
        harness.epoch_number() == 7 && harness.state() == State::Ready
    });
    let pauses = pauses(&harness);
    let (before, after) = pauses.split_at(5);
    assert!(
        before[4].1 >= seconds(4),
        "the pause had grown: {:?}",
        before[4]
    );
    assert_eq!(after[0].0, 1);
    assert!(
        after[0].1 <= millis(500),
        "the pause starts again: {:?}",
        after[0]
    );
    harness.finish();
}

#[test]
fn f_075_retry_pauses_grow_to_the_cap_and_no_further() {
    let mut config = config();
    config.policy.retry.budget = 40;
    let mut harness = Harness::new(config).served_by(|_| cannot_open());
    harness.connect();
    harness.until_state(State::Parked);
    let pauses = pauses(&harness);
    assert_eq!(pauses.len(), 40);
    assert!(pauses.iter().all(|(_, pause)| *pause <= seconds(30)));
    assert!(pauses[20..].iter().all(|(_, pause)| *pause >= seconds(15)));
    harness.finish();
}

#[test]
fn f_075_retry_policy_of_zeros_does_not_spin() {
    let mut config = config();
    config.policy.retry.first = Duration::ZERO;
    config.policy.retry.floor = Duration::ZERO;
    config.policy.retry.when_spent = everlink::WhenSpent::Park {
        probe: Duration::ZERO,
    };
    let mut harness = Harness::new(config).served_by(|_| cannot_open());
    harness.connect();
    harness.advance(seconds(1));
    assert!(
        harness.epoch_number() <= 1_001,
        "{} epochs in a second",
        harness.epoch_number()
    );
    harness.finish();
}

#[test]
fn f_076_failed_reconnects_get_the_same_pauses_as_failed_first_attempts() {
    let mut first = Harness::new(config()).served_by(|epoch| match epoch {
        1..=3 => cannot_open(),
        _ => legacy(),
    });
    first.until_ready();
    let mut again = Harness::new(config()).served_by(|epoch| match epoch {
        1 => crashes_after(seconds(5)),
        2..=3 => cannot_open(),
        _ => legacy(),
    });
    again.until_ready();
    again.until("the fourth epoch", |harness| {
        harness.epoch_number() == 4 && harness.state() == State::Ready
    });
    assert_eq!(pauses(&first), pauses(&again));
    // Knowledge from the first epoch is kept.
    assert_eq!(again.link().stats().readies, 2);
    assert_eq!(again.methods_of(4)[0], "initialize");
    first.finish();
    again.finish();
}

#[test]
fn f_077_many_reconnect_requests_for_one_epoch_cause_one_reconnect() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), server);
        let seen = harness.link().epoch();
        for _ in 0..100 {
            harness.reconnect_seen(seen, "it looks dead to me");
        }
        harness.until_ready();
        for _ in 0..100 {
            harness.reconnect_seen(seen, "I am late, it looked dead to me");
        }
        harness.reconnect_seen(Epoch::NONE, "before there was any");
        harness.advance(seconds(1));
        assert_eq!(harness.link().stats().opens, 2);
        assert_eq!(harness.state(), State::Ready);
        harness.finish();
    }
}

#[test]
fn f_077_many_connect_calls_after_one_death_cause_one_attempt() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().ignores("tools/call"));
        let calls: Vec<CallId> = (0..100).map(|_| harness.call_tool("slow")).collect();
        harness.perform_all(dies(CRASH));
        for call in calls {
            assert_eq!(harness.failure(call).kind, FailureKind::Lost);
            harness.connect();
        }
        harness.until_ready();
        assert_eq!(harness.link().stats().opens, 2);
        harness.finish();
    }
}

#[test]
fn f_078_a_call_wakes_a_parked_link() {
    let mut harness = parked_harness(|_| legacy());
    harness.advance(seconds(5));
    let call = harness.call_tool("add");
    assert_eq!(harness.result(call)["content"][0]["text"], "add");
    harness.finish();
}

#[test]
fn f_078_call_right_after_a_failed_attempt_waits_for_the_next_attempt() {
    let mut harness = parked_harness(|_| legacy());
    let called = harness.now();
    let call = harness.call_tool("add");
    assert_eq!(
        harness.epoch_number(),
        6,
        "two attempts have a pause between them"
    );
    harness.until_done(call);
    assert_eq!(harness.result(call)["content"][0]["text"], "add");
    assert_eq!(harness.epoch_number(), 7);
    assert!(harness.now().since(called) <= config().policy.retry.call_pace);
    harness.finish();
}

#[test]
fn f_078_call_to_a_parked_link_fails_after_4_s_and_names_the_next_attempt() {
    let mut harness = parked_harness(|_| cannot_open());
    harness.advance(seconds(5));
    let (called, last_epoch) = (harness.now(), harness.epoch_number());
    let call = harness.call_tool("add");
    assert_eq!(
        harness.epoch_number(),
        last_epoch + 1,
        "a call starts an attempt at once"
    );
    harness.until_done(call);
    assert_eq!(harness.now().since(called), seconds(4));
    let tried = harness.epoch_number() - last_epoch;
    assert!((4..=5).contains(&tried), "{tried} attempts in four seconds");
    let failure = harness.failure(call);
    assert_eq!(failure.kind, FailureKind::Down);
    assert_eq!(failure.delivery, Delivery::NotSent);
    let next = failure.next_attempt.expect("a next attempt is planned");
    assert!(next <= seconds(60), "{next:?}");
    let text = failure.to_string();
    assert!(text.contains("no more processes"), "{text}");
    assert!(text.contains("the next attempt is in"), "{text}");
    harness.finish();
}

#[test]
fn failure_names_no_next_attempt_if_there_is_a_server_or_an_attempt_under_way() {
    for server in [legacy as fn() -> Peer, Peer::silent] {
        let ignoring = move |_| server().ignores("tools/call");
        let mut harness = Harness::new(config()).served_by(ignoring);
        let call = harness.call_tool("add");
        harness.cancel(call, "not needed");
        assert_eq!(harness.failure(call).next_attempt, None);
        harness.finish();
    }
}

#[test]
fn f_078_steady_calls_reach_a_server_within_2_s_after_it_is_back() {
    // An outage of 20 s, with a call every 500 ms.
    let mut harness = parked_harness(|epoch| if epoch < 26 { cannot_open() } else { legacy() });
    let mut back = None;
    for _ in 0..60 {
        let call = harness.call_tool("add");
        harness.advance(millis(500));
        if harness.epoch_number() == 25 {
            back.get_or_insert(harness.now());
        }
        if harness.is_done(call) && harness.state() == State::Ready {
            break;
        }
    }
    assert_eq!(harness.state(), State::Ready);
    let back = back.expect("the server was away");
    assert!(harness.now().since(back) <= seconds(2));
    harness.finish();
}

#[test]
fn f_078_call_to_a_parked_link_fails_at_once_if_call_patience_is_zero() {
    let mut config = config();
    config.policy.retry.call_patience = Duration::ZERO;
    let mut harness = Harness::new(config).served_by(|_| cannot_open());
    harness.connect();
    harness.until_state(State::Parked);
    let last_epoch = harness.epoch_number();
    let call = harness.call_tool("add");
    assert_eq!(harness.failure(call).kind, FailureKind::Down);
    assert_eq!(harness.epoch_number(), last_epoch);
    harness.finish();
}

/// A caller waits, so the pause of the budget does not apply. A server that dies at once is not started more often than once a second.
#[test]
fn f_078_call_to_a_parked_link_starts_an_attempt_no_sooner_than_1_s_after_the_last() {
    for (called, opened) in [(0, 1_000), (300, 1_000), (1_000, 1_000), (3_000, 3_000)] {
        let mut harness = parked_harness(|_| legacy());
        let parked = harness.now();
        harness.advance(millis(called));
        let call = harness.call_tool("add");
        harness.until_done(call);
        assert_eq!(harness.result(call)["content"][0]["text"], "add");
        let (at, _) = harness
            .timed_commands()
            .iter()
            .rfind(|(_, command)| *command == Command::Open(7))
            .expect("the seventh attempt");
        assert_eq!(at.since(parked), millis(opened), "called after {called} ms");
        harness.finish();
    }
}

/// A `list` call also makes a parked link try again.
#[test]
fn f_078_a_list_wakes_a_parked_link() {
    let mut harness = parked_harness(|_| legacy());
    let list = harness.list(List::Tools);
    harness.until_done(list);
    assert!(matches!(
        harness.outcome(list),
        everlink::client::Outcome::Listed(_)
    ));
    harness.finish();
}

#[test]
fn f_078_server_that_answered_a_call_is_replaced_without_backoff_each_time_it_dies() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), server);
        for death in 1..=20 {
            let call = harness.call_tool("add");
            harness.until_done(call);
            harness.result(call);
            let died = harness.now();
            harness.perform_all(dies(CRASH));
            harness.until_ready();
            assert!(
                harness.now().since(died) <= config().policy.retry.floor,
                "after {death} deaths"
            );
            assert_eq!(
                harness.link().failures(),
                1,
                "each death counts as one failure"
            );
        }
        harness.finish();
    }
}

#[test]
fn f_078_server_that_dies_before_any_reply_is_retried_with_backoff() {
    let mut harness = Harness::new(config()).served_by(|_| crashes_after(millis(100)));
    harness.connect();
    harness.until_state(State::Parked);
    assert_eq!(harness.epoch_number(), 6);
    let took = harness.now().since(everlink::Instant::ZERO);
    assert!(took >= seconds(7), "{took:?}");
    harness.finish();
}

#[test]
fn f_078_call_to_a_parked_link_waits_for_an_attempt_that_is_already_due() {
    // The wake comes before the minimum pause between two attempts is over.
    let mut harness = parked_harness(|_| legacy());
    harness.wake();
    assert_eq!(harness.epoch_number(), 6);
    let call = harness.call_tool("add");
    assert!(!harness.is_done(call));
    harness.until_done(call);
    assert_eq!(harness.result(call)["content"][0]["text"], "add");
    harness.finish();
}

#[test]
fn f_078_call_during_a_retry_pause_waits_for_the_next_epoch() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), server);
        harness.perform_all(dies(CRASH));
        assert_eq!(harness.state(), State::Waiting);
        let call = harness.call_tool("add");
        harness.until_done(call);
        assert_eq!(harness.result(call)["content"][0]["text"], "add");
        assert_eq!(harness.epoch_number(), 2);
        harness.finish();
    }
}

#[test]
fn f_079_links_with_different_seeds_wait_different_times_after_a_crash() {
    let pause = |seed| {
        let mut config = config();
        config.seed = seed;
        let mut harness = ready(config, legacy);
        harness.perform_all(dies(CRASH));
        let pause = pauses(&harness)[0].1;
        harness.finish();
        pause
    };
    let mut all: Vec<Duration> = (0..50).map(pause).collect();
    assert!(all.iter().all(|pause| *pause <= millis(500)));
    assert_eq!(pause(7), all[7], "the same seed draws the same pause");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 50);
}

#[test]
fn f_079_wake_ends_a_retry_pause_early() {
    let mut harness = Harness::new(config()).served_by(|epoch| match epoch {
        1..=4 => cannot_open(),
        _ => legacy(),
    });
    harness.connect();
    harness.until("the fourth failure", |harness| {
        harness.link().failures() == 4
    });
    harness.advance(millis(300));
    let now = harness.now();
    harness.wake();
    assert_eq!(harness.state(), State::Ready);
    assert_eq!(harness.now(), now);
    harness.finish();
}

#[test]
fn f_080_error_replies_do_not_count_as_failures_of_the_link() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            server().on("tools/call", |request| {
                vec![match request["params"]["name"].as_str() {
                    Some("error") => error(request, -32603, "the database is down"),
                    _ => reply(request, json!({"isError": true, "content": []})),
                }]
            })
        });
        for name in ["error", "is error"].into_iter().cycle().take(1_000) {
            let call = harness.call_tool(name);
            match harness.outcome(call) {
                everlink::client::Outcome::Error(error) => assert_eq!(error.code, -32603),
                everlink::client::Outcome::Reply(_) => {
                    assert_eq!(harness.result(call)["isError"], true)
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(harness.state(), State::Ready);
        assert_eq!(harness.link().failures(), 0);
        assert_eq!(harness.link().stats().opens, 1);
        harness.finish();
    }
}

#[test]
fn f_081_tool_call_that_was_written_is_never_sent_again() {
    for server in BOTH_ERAS {
        let mut harness = Harness::new(config()).served_by(move |epoch| match epoch {
            1 => server().dies_on("tools/call", CRASH),
            _ => server(),
        });
        let call = harness.call_tool("pay");
        harness.until_done(call);
        assert_eq!(harness.failure(call).kind, FailureKind::Lost);
        assert_eq!(harness.failure(call).delivery, Delivery::Unknown);
        harness.until_ready();
        harness.advance(seconds(60));
        assert_eq!(harness.messages_with("tools/call").len(), 1);
        harness.finish();
    }
}

#[test]
fn f_081_call_that_was_never_written_goes_to_the_next_epoch() {
    for server in BOTH_ERAS {
        let mut config = config();
        config.limits.write_window = 1;
        let mut harness = ready(config, server);
        harness.peer_stops_reading();
        let (written, waiting) = (harness.call_tool("first"), harness.call_tool("second"));
        assert_eq!(
            harness.messages_with("tools/call").len(),
            1,
            "the window is full"
        );
        harness.perform_all(dies(CRASH));
        assert_eq!(harness.failure(written).delivery, Delivery::Unknown);
        assert!(!harness.is_done(waiting));
        harness.until_done(waiting);
        assert_eq!(harness.result(waiting)["content"][0]["text"], "second");
        harness.finish();
    }
}

#[test]
fn f_081_read_only_call_is_sent_again_with_a_new_id() {
    for server in BOTH_ERAS {
        let mut harness = Harness::new(config()).served_by(move |epoch| match epoch {
            1 | 2 => server().dies_on("prompts/get", CRASH),
            _ => server().replies("prompts/get", |_| json!({"messages": []})),
        });
        let call = harness.call("prompts/get", json!({"name": "hello"}));
        harness.until_done(call);
        assert_eq!(harness.result(call)["messages"], json!([]));
        let sent = harness.messages_with("prompts/get");
        assert_eq!(sent.len(), 3);
        let ids: Vec<i64> = sent.iter().filter_map(|sent| sent["id"].as_i64()).collect();
        assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
        assert!(sent.iter().all(|sent| sent["params"]["name"] == "hello"));
        assert_eq!(harness.link().stats().requeued, 2);
        harness.finish();
    }
}

#[test]
fn f_081_read_only_call_that_kills_every_server_is_sent_three_times() {
    for server in BOTH_ERAS {
        let mut harness =
            Harness::new(config()).served_by(move |_| server().dies_on("prompts/get", CRASH));
        let call = harness.call("prompts/get", json!({"name": "poison"}));
        harness.until_done(call);
        assert_eq!(harness.failure(call).kind, FailureKind::Lost);
        assert_eq!(harness.failure(call).delivery, Delivery::Harmless);
        assert_eq!(
            harness.messages_with("prompts/get").len(),
            3,
            "once, and two resends"
        );
        harness.finish();
    }
}

#[test]
fn f_081_list_that_kills_every_server_is_requested_three_times() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || server().dies_on("tools/list", CRASH));
        let list = harness.list(List::Tools);
        harness.until_done(list);
        let failure = harness.failure(list);
        assert_eq!(failure.kind, FailureKind::Lost);
        assert_eq!(failure.delivery, Delivery::Harmless);
        assert_eq!(
            harness.messages_with("tools/list").len(),
            3,
            "once, and two resends"
        );
        // The failed list does not end the link.
        harness.until_ready();
        assert_eq!(harness.epoch_number(), 4);
        harness.finish();
    }
}

#[test]
fn f_081_call_marked_idempotent_is_sent_again() {
    for server in BOTH_ERAS {
        let mut harness = Harness::new(config()).served_by(move |epoch| match epoch {
            1 => server().dies_on("tools/call", CRASH),
            _ => server(),
        });
        let idempotent = CallOptions::new().idempotent();
        let call = harness.call_with("tools/call", json!({"name": "set"}), idempotent);
        harness.until_done(call);
        assert_eq!(harness.result(call)["content"][0]["text"], "set");
        assert_eq!(harness.messages_with("tools/call").len(), 2);
        harness.finish();
    }
}

/// Its clock stood still while the application held back, and runs while it waits for the next server.
#[test]
fn call_that_waits_for_a_resend_times_out_although_its_clock_stood_still_before() {
    let mut config = config();
    config.policy.retry.call_patience = Duration::ZERO;
    let mut harness = Harness::new(config).served_by(|epoch| match epoch {
        1 => legacy().ignores("prompts/get"),
        _ => Peer::silent(),
    });
    harness.until_ready();
    let call = harness.call("prompts/get", json!({"name": "hello"}));
    harness.with_link(|link, now| link.hold_back(now, true));
    harness.advance(seconds(100));
    harness.perform_all(dies(CRASH));
    harness.until_done(call);
    let failure = harness.failure(call);
    assert!(matches!(failure.kind, FailureKind::TimedOut { .. }));
    assert_eq!(failure.after, seconds(160));
    harness.finish();
}

#[test]
fn f_081_read_only_call_is_not_sent_again_if_resends_is_zero() {
    let mut config = config();
    config.policy.resends = 0;
    let mut harness = Harness::new(config).served_by(|_| legacy().dies_on("prompts/get", CRASH));
    let call = harness.call("prompts/get", json!({"name": "hello"}));
    harness.until_done(call);
    assert_eq!(harness.failure(call).kind, FailureKind::Lost);
    assert_eq!(harness.messages_with("prompts/get").len(), 1);
    harness.finish();
}

#[test]
fn f_081_call_that_waits_for_a_resend_fails_as_one_that_was_sent() {
    let cases = [
        ("completion/complete", Delivery::Harmless),
        ("prompts/get", Delivery::Harmless),
        ("resources/read", Delivery::Harmless),
        ("tools/call", Delivery::Unknown),
    ];
    for (method, delivery) in cases {
        let mut harness = Harness::new(config()).served_by(move |epoch| match epoch {
            1 => legacy().dies_on(method, CRASH),
            _ => cannot_open(),
        });
        let params = json!({"name": "hello", "uri": "x:", "argument": {}});
        let options = CallOptions::new().idempotent();
        let call = harness.call_with(method, params, options);
        harness.until_done(call);
        let failure = harness.failure(call);
        assert_eq!(failure.delivery, delivery, "{failure}");
        harness.finish();
    }
}

#[test]
fn f_081_crash_during_an_ask_loses_a_tool_call_and_restarts_a_prompt() {
    for method in ["tools/call", "prompts/get"] {
        let mut harness = Harness::new(eras::config_with_asks()).served_by(move |epoch| {
            Peer::modern().on(method, move |request| match epoch {
                1 => {
                    let requests = json!({"q": {"method": "roots/list"}});
                    vec![reply(
                        request,
                        eras::input_required(requests, Some("half way")),
                    )]
                }
                _ => vec![reply(request, json!({"content": [], "messages": []}))],
            })
        });
        let call = harness.call(method, json!({"name": "two halves"}));
        harness.until("the server asks", |harness| !harness.asks().is_empty());
        harness.perform_all(dies(CRASH));
        harness.until_done(call);
        if method == "tools/call" {
            assert_eq!(harness.failure(call).kind, FailureKind::Lost);
            assert_eq!(harness.failure(call).delivery, Delivery::Unknown);
        } else {
            // A read starts again: the new server does not know the state of the old one.
            assert_eq!(harness.result(call)["messages"], json!([]));
            let params = harness.last_message(method)["params"].clone();
            assert!(params["requestState"].is_null() && params["inputResponses"].is_null());
        }
        harness.finish();
    }
}

#[test]
fn f_082_fifty_calls_to_a_parked_link_start_one_attempt() {
    let mut harness = parked_harness(|_| Peer::silent().on_open(Vec::new()));
    harness.advance(seconds(5));
    for _ in 0..50 {
        harness.call_tool("add");
    }
    assert_eq!(harness.epoch_number(), 7);
    assert_eq!(harness.state(), State::Opening);
    harness.finish();
}

/// A server that answers neither probes nor tool calls.
fn unresponsive(server: fn() -> Peer) -> Peer {
    let mut agreed = false;
    server()
        .ignores("tools/call")
        .ignores("tools/list")
        .on_any(move |message, acts| {
            let probe = message["method"] == "ping" || message["method"] == "server/discover";
            if probe && core::mem::replace(&mut agreed, true) {
                acts.clear();
            }
        })
}

#[test]
fn f_083_server_is_kept_while_a_slow_list_is_within_its_deadline() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || unresponsive(server));
        let list = harness.list(List::Tools);
        harness.advance(seconds(59));
        assert_eq!(harness.epoch_number(), 1, "its own deadline still runs");
        let request = harness.last_message("tools/list");
        harness.perform(reply(&request, json!({"tools": []})));
        assert!(matches!(
            harness.outcome(list),
            everlink::client::Outcome::Listed(_)
        ));
        harness.finish();
    }
}

#[test]
fn f_083_silent_server_with_an_open_ask_is_not_replaced() {
    // With and without a call in flight: the server waits for the application.
    for calls in [0, 1] {
        let mut harness = ready(eras::config_with_asks(), || unresponsive(legacy));
        for _ in 0..calls {
            harness.call_tool("asks");
        }
        harness.perform(client_pipe::ask("q", "roots/list", json!({})));
        harness.advance(seconds(550));
        assert_eq!((harness.state(), harness.epoch_number()), (State::Ready, 1));
        harness.answer(harness.asks()[0], Ok(json!({"roots": []})));
        harness.until("the silence counts again after the answer", |harness| {
            let is_silent = |event: &Event| matches!(event, Event::Silent { .. }).then_some(());
            harness.pick_events(is_silent).len() == 1
        });
        harness.finish();
    }
}

#[test]
fn f_083_any_byte_of_the_server_postpones_the_probe() {
    let signs: [fn() -> Act; 4] = [
        || stderr("still here"),
        || Act::Raw(b"thinking".to_vec()),
        || Act::Raw(b"no message\n".to_vec()),
        || notify("notifications/whatever", json!({})),
    ];
    for server in BOTH_ERAS {
        for sign in signs {
            let mut harness = ready(config(), move || {
                let signs = (1..20).map(|n| sign().after(seconds(29) * n));
                unresponsive(server).after_open(signs.collect())
            });
            harness.advance(seconds(29 * 19));
            assert_eq!(harness.link().stats().probes, 0);
            assert_eq!(harness.epoch_number(), 1);
            harness.finish();
        }
    }
}

#[test]
fn f_083_missed_probe_is_not_cancelled_on_a_pipe() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || unresponsive(server));
        harness.advance(seconds(120));
        assert!(harness.link().stats().probes_missed > 0);
        let methods = harness.methods_of(1);
        assert!(!methods.contains(&"notifications/cancelled"), "{methods:?}");
        harness.finish();
    }
}

#[test]
fn f_084_legacy_server_is_probed_with_ping_and_modern_one_with_discover() {
    for (server, probe) in [(BOTH_ERAS[0], "ping"), (BOTH_ERAS[1], "server/discover")] {
        let mut harness = ready(config(), server);
        let lines_before = harness.lines_of(1).len();
        harness.advance(seconds(100));
        let probes = harness.methods_of(1).split_off(lines_before);
        assert_eq!(probes, [probe; 3]);
        assert_eq!(harness.link().stats().probes_missed, 0);
        harness.finish();
    }
}

/// The keepalive interval limits the silence between messages, not the time that a probe may take.
#[test]
fn f_084_keepalive_of_2_s_sends_ten_probes_in_21_s() {
    let mut config = config();
    config.policy.keepalive = Some(Keepalive::every(seconds(2)));
    let mut harness = ready(config, legacy);
    harness.advance(seconds(21));
    assert_eq!(harness.link().stats().probes, 10);
    harness.finish();
}

#[test]
fn f_084_error_reply_to_a_ping_counts_as_a_sign_of_life() {
    for code in [-32601, -32603, -32000] {
        let mut harness = ready(config(), move || legacy().refuses("ping", code));
        harness.advance(seconds(1_000));
        assert_eq!(harness.epoch_number(), 1);
        assert_eq!(harness.link().stats().probes_missed, 0);
        harness.finish();
    }
}

#[test]
fn f_084_link_without_keepalive_sends_no_probe() {
    let mut config = config();
    config.policy.keepalive = None;
    let mut harness = ready(config, move || unresponsive(legacy));
    harness.advance(seconds(100_000));
    assert_eq!(harness.link().stats().probes, 0);
    assert_eq!(harness.epoch_number(), 1);
    harness.finish();
}

#[test]
fn f_085_every_state_except_idle_and_closed_has_a_deadline() {
    let wake = |harness: &Harness| harness.link().poll_timeout().map(|deadline| deadline.wake);
    let mut harness = Harness::new(config()).served_by(|epoch| match epoch {
        1 => Peer::silent().on_open(vec![Act::Opened.after(seconds(1))]),
        2 => legacy().ignores_eof(),
        _ => cannot_open(),
    });
    assert_eq!((harness.state(), wake(&harness)), (State::Idle, None));
    harness.connect();
    assert_eq!(
        (harness.state(), wake(&harness)),
        (State::Opening, Some(Wake::Open))
    );
    harness.until_state(State::Handshaking);
    assert_eq!(wake(&harness), Some(Wake::Handshake));
    harness.until_ready();
    assert_eq!(wake(&harness), Some(Wake::Keepalive));
    harness.reconnect("to see it close");
    assert_eq!(
        (harness.state(), wake(&harness)),
        (State::Closing, Some(Wake::Close))
    );
    harness.until("a retry pause", |harness| harness.state() == State::Waiting);
    assert_eq!(wake(&harness), Some(Wake::Backoff));
    harness.until_state(State::Parked);
    assert_eq!(wake(&harness), Some(Wake::Parked));
    harness.shutdown();
    assert_eq!((harness.state(), wake(&harness)), (State::Closed, None));
}

#[test]
fn f_085_keepalive_probes_continue_in_the_next_epoch() {
    let mut harness = ready(config(), legacy);
    harness.reconnect("again");
    harness.until_ready();
    harness.advance(seconds(31));
    assert_eq!(harness.methods_of(2).last(), Some(&"ping"));
    harness.finish();
}

#[test]
fn f_085_ten_wakes_of_a_ready_link_send_one_probe() {
    let mut harness = ready(config(), || unresponsive(legacy));
    for _ in 0..10 {
        harness.wake();
    }
    assert_eq!(harness.link().stats().probes, 1);
    assert_eq!(harness.messages_with("ping").len(), 1);
    harness.finish();
}

fn closed(config: Config) -> Harness {
    let mut harness = ready(config, legacy);
    harness.shutdown();
    harness.until_state(State::Closed);
    harness
}

#[test]
fn f_086_no_command_or_input_reopens_a_closed_link() {
    let mut harness = closed(config());
    let events_before = harness.events().len();
    let commands: [fn(&mut Client, everlink::Instant); 6] = [
        |link, now| link.connect(now),
        |link, now| link.wake(now),
        |link, now| link.reconnect(now, link.epoch(), "please"),
        |link, now| link.shutdown(now),
        |link, now| link.watch(now, everlink::Watch::lists()),
        |link, now| link.handle_timeout(now + seconds(1_000)),
    ];
    for command in commands {
        harness.with_link(command);
        assert_eq!(harness.state(), State::Closed);
    }
    let refused = harness.try_call("tools/call", json!({"name": "add"}), CallOptions::new());
    assert_eq!(refused, Err(Misuse::Closed));
    let listed = harness.with_link(|link, now| link.list(now, List::Tools, CallOptions::new()));
    assert_eq!(listed, Err(Misuse::Closed));
    let epoch = harness.link().epoch();
    harness.feed_input(epoch, Input::Opened);
    harness.feed_input(epoch, Input::bytes(&b"{}\n"[..]));
    harness.pump();
    assert_eq!(
        harness.events().len(),
        events_before,
        "no event follows Closed"
    );
    assert_eq!(harness.link().poll_timeout(), None);
}

#[test]
fn f_086_link_closed_by_a_spent_budget_stays_closed() {
    let mut config = config();
    config.policy = everlink::Policy::one_shot();
    let mut harness = Harness::new(config).served_by(|_| cannot_open());
    let call = harness.call_tool("add");
    assert_eq!(harness.failure(call).kind, FailureKind::Down);
    assert_eq!(harness.state(), State::Closed);
    harness.connect();
    harness.wake();
    harness.advance(seconds(3_600));
    assert_eq!(harness.epoch_number(), 1);
}

#[test]
fn f_086_shutdown_during_a_retry_pause_prevents_the_next_attempt() {
    let mut harness = ready(config(), legacy);
    harness.perform_all(dies(CRASH));
    assert_eq!(harness.state(), State::Waiting);
    harness.shutdown();
    assert_eq!(harness.state(), State::Closed);
    harness.advance(seconds(3_600));
    assert_eq!(harness.epoch_number(), 1);
}

#[test]
fn f_087_each_attempt_opens_and_releases_its_own_transport() {
    let mut harness = Harness::new(config()).served_by(|epoch| match epoch {
        1 | 3 => cannot_open(),
        2 => Peer::silent().dies_on("server/discover", CRASH),
        _ => legacy(),
    });
    harness.until_ready();
    let opens_and_releases: Vec<Command> = harness
        .commands()
        .into_iter()
        .filter(|command| matches!(command, Command::Open(_) | Command::Release(_)))
        .collect();
    let expected: Vec<Command> = (1..=4)
        .flat_map(|epoch| [Command::Open(epoch), Command::Release(epoch)])
        .take(7)
        .collect();
    assert_eq!(opens_and_releases, expected);
    harness.finish();
}

/// The request state of one server means nothing to the next, even if the call was not sent with it yet.
#[test]
fn f_081_call_with_request_state_is_lost_when_its_server_ends() {
    let mut harness = ready(config(), || Peer::modern().ignores("tools/call"));
    let call = harness.call_tool("in two rounds");
    let request = harness.messages_with("tools/call")[0].clone();
    let round = json!({"resultType": "input_required", "requestState": "s"});
    harness.feed_unpolled(&reply(&request, round));
    harness.feed_unpolled(&Act::End(Vec::new()));
    harness.pump();
    let failure = harness.failure(call);
    assert_eq!(failure.kind, FailureKind::Lost);
    assert_eq!(failure.delivery, Delivery::Unknown);
    harness.finish();
}

/// Without a patience of its own, a call waits as long as the link retries.
#[test]
fn call_during_a_retry_pause_waits_if_call_patience_is_zero() {
    let mut config = config();
    config.policy.retry.call_patience = Duration::ZERO;
    config.policy.retry.first = seconds(10);
    let mut harness = ready(config, legacy);
    harness.perform_all(dies(CRASH));
    assert_eq!(harness.state(), State::Waiting);
    let call = harness.call_tool("add");
    assert!(!harness.is_done(call));
    harness.until_done(call);
    assert_eq!(harness.result(call)["content"][0]["text"], "add");
    assert_eq!(harness.epoch_number(), 2);
    harness.finish();
}

/// The limit is inclusive.
#[test]
fn call_to_a_parked_link_without_patience_waits_for_an_attempt_within_the_minimum_pause() {
    for (early, waits) in [(Duration::ZERO, true), (Duration::from_nanos(1), false)] {
        let mut config = config();
        config.policy.retry.call_patience = Duration::ZERO;
        let floor = config.policy.retry.floor;
        let mut harness = Harness::new(config).served_by(|_| cannot_open());
        harness.connect();
        harness.until_state(State::Parked);
        let parked = harness.pick_events(|event| match event {
            Event::Parked { until } => Some(*until),
            _ => None,
        });
        let pause = parked[0].since(harness.now());
        harness.advance(pause - floor - early);
        let call = harness.call_tool("add");
        assert_eq!(harness.is_done(call), !waits);
        harness.until_done(call);
        assert_eq!(harness.failure(call).kind, FailureKind::Down);
        harness.finish();
    }
}

/// A page that was never written is not lost, so it does not count against the list.
#[test]
fn list_whose_request_is_never_written_waits_for_any_number_of_servers() {
    let mut config = config();
    config.policy.retry.call_patience = seconds(60);
    let mut harness = Harness::new(config).served_by(|epoch| match epoch {
        1..=4 => legacy().ignores("initialize"),
        _ => legacy(),
    });
    let list = harness.list(List::Tools);
    for epoch in 1..=4 {
        harness.until("it is initialized", |harness| {
            let lines = harness.lines_of(epoch);
            lines
                .last()
                .is_some_and(|line| line["method"] == "initialize")
        });
        let result = client_pipe::initialize_result("2025-11-25", client_pipe::all_capabilities());
        // The server agrees and dies before the link can write anything.
        let agreed = reply(&harness.last_message("initialize"), result);
        for act in [agreed, Act::Exit(CRASH), Act::End(Vec::new())] {
            harness.feed_unpolled(&act);
        }
        harness.pump();
        assert!(!harness.is_done(list));
    }
    harness.until_done(list);
    assert!(matches!(harness.outcome(list), Outcome::Listed(_)));
    assert_eq!(harness.messages_with("tools/list").len(), 1);
    harness.finish();
}

/// The patience of a call ends at its time, whether or not an attempt fails then.
#[test]
fn call_to_a_parked_link_fails_after_4_s_although_no_attempt_ends_then() {
    let mut config = config();
    config.policy.retry.call_pace = seconds(10);
    let mut harness = Harness::new(config).served_by(|_| cannot_open());
    harness.connect();
    harness.until_state(State::Parked);
    let epoch = harness.epoch_number();
    let call = harness.call_tool("add");
    harness.until_done(call);
    let failure = harness.failure(call);
    assert_eq!(
        (&failure.kind, failure.after),
        (&FailureKind::Down, seconds(4))
    );
    assert_eq!(harness.epoch_number(), epoch);
    harness.finish();
}
