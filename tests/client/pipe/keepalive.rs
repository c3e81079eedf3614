//! Silent servers: which are working, which hang, which are replaced, and what happens to their calls.

use core::time::Duration;

use everlink::client::{CallOptions, Cause, Delivery, Ended, Event, Sign, State};
use everlink::{Hang, Instant, Limit, List};
use serde_json::json;

use crate::client_pipe::{
    Command, Harness, Peer, all_capabilities, config, discover_result, error, reply, seconds,
    stderr,
};
use crate::eras::{BOTH_ERAS, legacy, ready};

fn ended_epochs(harness: &Harness) -> Vec<&Ended> {
    harness.pick_events(|event| match event {
        Event::Ended(ended) => Some(&**ended),
        _ => None,
    })
}

/// A server that answers its first probe, which is the handshake in the modern era, and `more` others; then none.
fn answers_probes(server: fn() -> Peer, mut more: u32) -> Peer {
    let mut agreed = false;
    server().on_any(move |message, acts| {
        let probe = message["method"] == "ping" || message["method"] == "server/discover";
        if probe && core::mem::replace(&mut agreed, true) {
            match more.checked_sub(1) {
                Some(left) => more = left,
                None => acts.clear(),
            }
        }
    })
}

/// A server that answers neither probes nor tool calls.
fn unresponsive(server: fn() -> Peer) -> Peer {
    answers_probes(server, 0)
        .ignores("tools/call")
        .ignores("tools/list")
}

/// The process uses CPU all the time.
fn running_process(at: Duration) -> (Duration, bool) {
    (at, false)
}

/// The process uses no CPU.
fn idle_process(_: Duration) -> (Duration, bool) {
    (seconds(1), false)
}

/// The process is stopped.
fn stopped_process(_: Duration) -> (Duration, bool) {
    (seconds(1), true)
}

fn patient_options() -> CallOptions {
    CallOptions::new().with_idle(Limit::After(seconds(500)))
}

/// The numbers of `Silent` and of `Responsive` events.
fn silence_events(harness: &Harness) -> (usize, usize) {
    let silent = |event: &Event| matches!(event, Event::Silent { .. }).then_some(());
    let over = |event: &Event| matches!(event, Event::Responsive { .. }).then_some(());
    (
        harness.pick_events(silent).len(),
        harness.pick_events(over).len(),
    )
}

/// The duration of the first epoch and the sign by which its silence was judged.
#[track_caller]
fn unresponsive_end(harness: &Harness) -> (Duration, Sign) {
    let ended = ended_epochs(harness)[0];
    match ended.cause {
        Cause::Unresponsive { sign, .. } => (ended.lived, sign),
        _ => panic!("{ended}"),
    }
}

#[test]
fn f_083_server_that_answers_no_probe_is_kept_while_its_process_uses_cpu() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            unresponsive(server).with_activity(running_process)
        });
        let call = harness.call_with("tools/call", json!({"name": "crunch"}), patient_options());
        harness.advance(seconds(490));
        assert_eq!((harness.state(), harness.epoch_number()), (State::Ready, 1));
        assert_eq!(silence_events(&harness), (1, 0));
        let request = harness.last_message("tools/call");
        harness.perform(reply(&request, json!({"content": []})));
        assert_eq!(harness.result(call)["content"], json!([]));
        assert_eq!(silence_events(&harness), (1, 1));
        harness.finish();
    }
}

#[test]
fn f_083_timeouts_of_other_calls_do_not_end_a_server_whose_process_uses_cpu() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            unresponsive(server).with_activity(running_process)
        });
        let call = harness.call_with("tools/call", json!({"name": "crunch"}), patient_options());
        for _ in 0..15 {
            harness.call_tool("add");
            harness.advance(seconds(31));
        }
        assert_eq!((harness.state(), harness.epoch_number()), (State::Ready, 1));
        assert!(!harness.is_done(call), "its own deadline still runs");
        harness.finish();
    }
}

#[test]
fn f_083_idle_process_that_blocks_on_a_call_is_replaced_after_120_s() {
    for server in BOTH_ERAS {
        for answers in [true, false] {
            let mut harness = ready(config(), move || {
                unresponsive(server).with_activity(idle_process)
            });
            let call = harness.call_with("tools/call", json!({"name": "block"}), patient_options());
            harness.advance(seconds(119));
            assert_eq!((harness.state(), harness.epoch_number()), (State::Ready, 1));
            if answers {
                let request = harness.last_message("tools/call");
                harness.perform(reply(&request, json!({"content": []})));
                harness.result(call);
            } else {
                harness.until_done(call);
                assert_eq!(unresponsive_end(&harness), (seconds(120), Sign::Idle));
                assert_eq!(harness.failure(call).delivery, Delivery::Unknown);
            }
            harness.finish();
        }
    }
}

/// S-TIME-10: a server that leaves probes and a call unanswered is terminated, and the link connects again.
#[test]
fn f_083_blocking_server_with_unknown_activity_is_replaced_after_121_s() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || unresponsive(server));
        let call = harness.call_with("tools/call", json!({"name": "block"}), patient_options());
        harness.until_done(call);
        // The driver was asked for the process activity, and the link waited one second for its answer.
        assert_eq!(unresponsive_end(&harness), (seconds(121), Sign::Unknown));
        harness.finish();
    }
}

#[test]
fn f_083_stopped_server_is_replaced_after_30_s_and_an_unsent_call_goes_to_the_next() {
    for server in BOTH_ERAS {
        let mut harness = Harness::new(config()).served_by(move |epoch| match epoch {
            1 => unresponsive(server).with_activity(stopped_process),
            _ => server(),
        });
        harness.until_ready();
        let lost = harness.call_tool("lost");
        harness.advance(seconds(25));
        let held_back = harness.call_tool("add");
        harness.until_done(lost);
        assert_eq!(unresponsive_end(&harness), (seconds(30), Sign::Stopped));
        let failure = harness.failure(lost);
        assert_eq!(failure.delivery, Delivery::Unknown);
        for part in ["silent for 30 s", "no probe", "stopped (SIGSTOP)"] {
            assert!(failure.to_string().contains(part), "{failure}");
        }
        harness.until_done(held_back);
        assert_eq!(harness.result(held_back)["content"][0]["text"], "add");
        let to_first = harness.lines_of(1).into_iter();
        let calls = to_first.filter(|line| line["method"] == "tools/call");
        assert_eq!(calls.count(), 1, "it was held back");
        assert!(!harness.commands_of(1).contains(&Command::Terminate(1)));
        harness.finish();
    }
}

#[test]
fn f_083_server_that_answered_a_probe_during_a_call_is_replaced_after_40_s() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            answers_probes(server, 1)
                .ignores("tools/call")
                .with_activity(idle_process)
        });
        let call = harness.call_tool("crunch");
        harness.until_done(call);
        // The server answers a probe at 10 s, and none after that.
        assert_eq!(unresponsive_end(&harness), (seconds(40), Sign::Idle));
        harness.finish();
    }
}

/// It showed twice that it answers probes while it works, so its silence counts as before.
#[test]
fn f_083_server_that_answered_two_probes_during_a_call_is_replaced_30_s_after_the_second() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            answers_probes(server, 2)
                .ignores("tools/call")
                .with_activity(idle_process)
        });
        let call = harness.call_tool("crunch");
        harness.until_done(call);
        let (lived, sign) = unresponsive_end(&harness);
        assert!(lived < seconds(60), "{lived:?}");
        assert_eq!(sign, Sign::Idle);
        harness.finish();
    }
}

#[test]
fn f_083_silent_server_without_calls_is_reported_once_and_kept() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            unresponsive(server).with_activity(stopped_process)
        });
        harness.advance(seconds(3_600));
        assert_eq!((harness.state(), harness.epoch_number()), (State::Ready, 1));
        assert_eq!(silence_events(&harness), (1, 0));
        let stats = harness.link().stats();
        assert_eq!(
            (stats.probes, stats.probes_missed),
            (2, 2),
            "no further probes"
        );
        harness.perform(stderr("back"));
        assert_eq!(silence_events(&harness), (1, 1));
        harness.advance(seconds(3_600));
        assert_eq!(silence_events(&harness), (2, 1));
        harness.finish();
    }
}

#[test]
fn f_083_call_to_a_long_silent_server_is_held_back_for_the_next_one() {
    for server in BOTH_ERAS {
        let mut harness = Harness::new(config()).served_by(move |epoch| match epoch {
            1 => answers_probes(server, 2).with_activity(idle_process),
            _ => server(),
        });
        harness.until_ready();
        harness.advance(seconds(600));
        let called = harness.now();
        let call = harness.call_tool("add");
        harness.until_done(call);
        assert_eq!(harness.result(call)["content"][0]["text"], "add");
        assert_eq!(harness.epoch_number(), 2);
        let took = harness.now().since(called);
        assert!(took <= seconds(31), "{took:?}");
        assert_eq!(harness.messages_with("tools/call").len(), 1);
        harness.finish();
    }
}

#[test]
fn f_083_silent_server_after_a_cancelled_call_is_replaced_only_on_the_next_call() {
    for server in BOTH_ERAS {
        let mut harness = Harness::new(config()).served_by(move |epoch| match epoch {
            1 => unresponsive(server).with_activity(idle_process),
            _ => server(),
        });
        harness.until_ready();
        let call = harness.call_tool("crunch");
        harness.advance(seconds(5));
        harness.cancel(call, "the host gave up");
        assert_eq!(
            harness.link().stats().probes,
            1,
            "the cancellation triggers a probe at once"
        );
        harness.advance(seconds(600));
        assert_eq!((harness.state(), harness.epoch_number()), (State::Ready, 1));
        let called = harness.now();
        let next = harness.call_tool("add");
        harness.until_done(next);
        assert_eq!(harness.result(next)["content"][0]["text"], "add");
        assert_eq!(harness.epoch_number(), 2);
        let waited = harness.now().since(called);
        assert!(
            waited <= seconds(2),
            "the server has been silent for long: {waited:?}"
        );
        harness.finish();
    }
}

#[test]
fn f_083_server_that_lets_every_call_be_cancelled_is_replaced_within_31_s() {
    for server in BOTH_ERAS {
        let mut harness = Harness::new(config()).served_by(move |epoch| match epoch {
            1 => unresponsive(server).with_activity(idle_process),
            _ => server(),
        });
        harness.until_ready();
        for _ in 0..7 {
            let call = harness.call_tool("add");
            harness.advance(seconds(5));
            if !harness.is_done(call) {
                harness.cancel(call, "the host gave up");
            }
        }
        assert_eq!(harness.epoch_number(), 2);
        let (lived, _) = unresponsive_end(&harness);
        assert!(lived <= seconds(31), "{lived:?}");
        let call = *harness.calls().last().expect("a call");
        assert_eq!(harness.result(call)["content"][0]["text"], "add");
        harness.finish();
    }
}

#[test]
fn f_083_timed_out_call_triggers_a_probe_at_once() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || unresponsive(server));
        let brief = CallOptions::new().with_idle(Limit::After(seconds(4)));
        let call = harness.call_with("tools/call", json!({"name": "slow"}), brief);
        harness.until_done(call);
        assert_eq!(harness.link().stats().probes, 1, "at 4 s and not at 30 s");
        harness.finish();
    }
}

/// A server that had less than a second may be about to answer.
#[test]
fn f_083_call_that_times_out_triggers_a_probe_only_after_a_second_of_silence() {
    for (idle, probes) in [(999, 0), (1_000, 1)] {
        let mut harness = ready(config(), || unresponsive(legacy));
        let brief = CallOptions::new().with_idle(Limit::After(Duration::from_millis(idle)));
        let call = harness.call_with("tools/call", json!({"name": "slow"}), brief);
        harness.until_done(call);
        assert_eq!(harness.link().stats().probes, probes, "after {idle} ms");
        harness.finish();
    }
}

#[test]
fn f_083_frozen_server_is_replaced_after_60_s_under_steady_calls() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            unresponsive(server).with_activity(idle_process)
        });
        for _ in 0..10 {
            harness.call_tool("add");
            harness.advance(seconds(30));
        }
        // The server may be working on the first call, whose caller gives up at 60 s. The other calls were held back.
        assert_eq!(unresponsive_end(&harness), (seconds(60), Sign::Idle));
        harness.finish();
    }
}

#[test]
fn f_083_server_that_answers_calls_but_no_probes_is_kept_and_gets_calls_at_once() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || {
            answers_probes(server, 0)
                .on("tools/call", |request| {
                    let answer = reply(request, json!({"content": []}));
                    match request["params"]["name"].as_str() {
                        Some("slow") => vec![answer.after(seconds(100))],
                        _ => vec![answer],
                    }
                })
                .with_activity(idle_process)
        });
        for _ in 0..5 {
            let call = harness.call_tool("add");
            assert!(harness.is_done(call), "it is not held back");
            harness.advance(seconds(600));
        }
        let slow = harness.call_with("tools/call", json!({"name": "slow"}), patient_options());
        harness.until_done(slow);
        harness.result(slow);
        assert_eq!(harness.epoch_number(), 1);
        harness.finish();
    }
}

#[test]
fn f_083_hang_policy_none_never_replaces_a_stopped_server() {
    let mut config = config();
    config.policy.hang = None;
    let mut harness = ready(config, || {
        unresponsive(legacy).with_activity(stopped_process)
    });
    let call = harness.call_with("tools/call", json!({"name": "slow"}), patient_options());
    let other = harness.call_with("tools/call", json!({"name": "add"}), patient_options());
    harness.advance(seconds(490));
    assert_eq!(harness.epoch_number(), 1);
    assert!(!harness.is_done(call) && !harness.is_done(other));
    harness.finish();
}

/// A proxy process that its own server has forgotten still answers, but not on behalf of that server.
#[test]
fn f_084_lost_session_error_to_a_probe_is_no_sign_of_life() {
    let errors = [
        (-32_001, "Session not found"),
        (-32_603, "Error POSTing to endpoint (HTTP 404)"),
        (-32_000, "Not connected"),
    ];
    for (code, message) in errors {
        let wedged = move || {
            legacy()
                .on("ping", move |request| vec![error(request, code, message)])
                .on("tools/call", move |request| {
                    vec![error(request, code, message)]
                })
        };
        let mut harness = Harness::new(config()).served_by(move |epoch| match epoch {
            1 => wedged(),
            _ => legacy(),
        });
        harness.until_ready();
        let first = harness.call_tool("add");
        assert!(harness.is_done(first), "the caller gets the error reply");
        let asked = harness.now();
        let call = harness.call_tool("add");
        harness.until_done(call);
        assert_eq!(
            harness.result(call)["content"][0]["text"],
            "add",
            "{message}"
        );
        assert!(harness.now().since(asked) <= seconds(31));
        assert_eq!(unresponsive_end(&harness).1, Sign::Wedged);
        harness.finish();

        // No call is open, so the silence is only reported.
        let mut harness = ready(config(), wedged);
        harness.advance(seconds(3_600));
        assert_eq!(
            (harness.epoch_number(), silence_events(&harness)),
            (1, (1, 0))
        );
        harness.finish();
    }
}

/// The error that a server gives a probe while it has no connection to its own server.
fn wedged_for_a_while(probes: u32) -> Peer {
    let mut left = probes;
    legacy().on("ping", move |request| match left.checked_sub(1) {
        Some(rest) => {
            left = rest;
            vec![error(request, -32_000, "Not connected")]
        }
        None => vec![reply(request, json!({}))],
    })
}

#[test]
fn f_084_server_that_has_its_session_back_is_kept_and_gets_the_calls_that_waited() {
    let mut harness = ready(config(), || wedged_for_a_while(2));
    harness.wake();
    let wedged = harness.now();
    harness.advance(seconds(2));
    let call = harness.call_tool("add");
    assert!(!harness.is_done(call), "it is held back");
    harness.until_done(call);
    assert_eq!(harness.result(call)["content"][0]["text"], "add");
    assert_eq!(harness.epoch_number(), 1);
    assert_eq!(silence_events(&harness), (1, 1));
    // The silence is reported when the next probe is due, and ends with the first healthy reply.
    let times: Vec<Duration> = harness
        .events()
        .iter()
        .filter(|(_, event)| matches!(event, Event::Silent { .. } | Event::Responsive { .. }))
        .map(|(at, _)| at.since(wedged))
        .collect();
    assert_eq!(times, [seconds(10), seconds(20)]);
    harness.finish();
}

#[test]
fn f_084_lost_session_is_reported_10_s_after_the_reply_that_says_so() {
    let mut harness = ready(config(), || wedged_for_a_while(u32::MAX));
    harness.wake();
    harness.advance(seconds(9));
    assert_eq!(silence_events(&harness), (0, 0));
    harness.advance(seconds(1));
    assert_eq!(silence_events(&harness), (1, 0));
    harness.finish();
}

/// Without keepalive the link probes nothing and judges no server; only the limit of the call applies.
#[test]
fn f_083_link_without_keepalive_neither_probes_nor_replaces_a_stopped_server() {
    let mut config = config();
    config.policy.keepalive = None;
    let mut harness = ready(config, || {
        unresponsive(legacy).with_activity(stopped_process)
    });
    let call = harness.call_with("tools/call", json!({"name": "slow"}), patient_options());
    harness.until_done(call);
    assert_eq!(harness.now(), Instant::ZERO + seconds(500));
    assert_eq!(
        (harness.epoch_number(), harness.link().stats().probes),
        (1, 0)
    );
    harness.finish();
}

/// Only a server behind a URL can be replaced by one of another era. A process that knows no `server/discover` is still the same.
#[test]
fn modern_child_that_refuses_a_probe_is_kept() {
    let mut harness = Harness::new(config()).served_by(|_| {
        let mut probes = 0;
        Peer::modern().on("server/discover", move |request| {
            probes += 1;
            if probes == 1 {
                vec![reply(request, discover_result(all_capabilities()))]
            } else {
                vec![error(request, -32_601, "unknown method")]
            }
        })
    });
    harness.until_ready();
    harness.advance(seconds(300));
    assert!(harness.link().stats().probes > 1);
    assert_eq!(harness.state(), State::Ready);
    assert_eq!(harness.epoch_number(), 1);
    harness.finish();
}

/// The numbers of pings so far, at each of these times after the start.
fn pings_at<const N: usize>(harness: &mut Harness, times: [u64; N]) -> [usize; N] {
    times.map(|time| {
        let at = Instant::ZERO + seconds(time);
        harness.advance(at.since(harness.now()));
        harness.messages_with("ping").len()
    })
}

/// A server whose handshake is slow has its time from the end of it.
#[test]
fn server_is_probed_10_s_after_it_is_ready_if_a_call_waited_for_it() {
    let mut harness = Harness::new(config()).served_by(|_| unresponsive(legacy));
    harness.call_tool("add");
    harness.until_ready();
    assert_eq!(pings_at(&mut harness, [9, 10]), [0, 1]);
    harness.finish();
}

/// The silence before the first call is nobody's fault.
#[test]
fn idle_server_is_probed_10_s_after_its_first_call() {
    let mut harness = ready(config(), || unresponsive(legacy));
    harness.advance(seconds(15));
    harness.call_tool("add");
    assert_eq!(pings_at(&mut harness, [15, 24, 25]), [0, 0, 1]);
    harness.finish();
}

/// While another call waits, silence counts from the last byte of the server.
#[test]
fn busy_server_is_probed_10_s_after_its_last_byte_whatever_is_called_meanwhile() {
    let mut harness = ready(config(), || unresponsive(legacy));
    harness.call_tool("add");
    harness.advance(seconds(5));
    harness.perform(stderr("still here"));
    harness.advance(seconds(7));
    harness.call_tool("add");
    assert_eq!(pings_at(&mut harness, [14, 15]), [0, 1]);
    harness.finish();
}

/// Silence counts since the call was sent, not since the start.
#[test]
fn server_that_is_silent_since_a_cancelled_call_is_probed_at_once() {
    let mut harness = ready(config(), || unresponsive(legacy));
    harness.advance(seconds(5));
    harness.perform(stderr("still here"));
    harness.advance(seconds(5));
    let call = harness.call_tool("add");
    harness.advance(seconds(2));
    harness.cancel(call, "not needed");
    assert_eq!(pings_at(&mut harness, [12]), [1]);
    harness.finish();
}

/// A page of a list is a reply to a request of the application, like that to a call.
#[test]
fn server_that_answers_lists_but_no_probes_gets_calls_at_once() {
    for server in BOTH_ERAS {
        let mut harness = ready(config(), move || answers_probes(server, 0));
        let list = harness.list(List::Tools);
        harness.until_done(list);
        harness.advance(seconds(600));
        let call = harness.call_tool("add");
        assert!(harness.is_done(call), "it is not held back");
        harness.finish();
    }
}

/// A reply to a call shows that the session is back. From there, the server has its usual time until the next probe.
#[test]
fn server_that_has_its_session_back_is_probed_after_its_next_silence() {
    let mut config = config();
    let mut hang = Hang::after(seconds(30));
    hang.probe_after = seconds(1);
    config.policy.hang = Some(hang);
    let mut harness = ready(config, || {
        legacy().ignores("tools/call").on("ping", |request| {
            vec![error(request, -32_001, "who are you?")]
        })
    });
    harness.call_tool("lost");
    harness.call_tool("answered");
    let request = harness.last_message("tools/call");
    assert_eq!(pings_at(&mut harness, [1, 2]), [1, 1]);
    harness.perform(reply(&request, json!({"content": []})));
    assert_eq!(pings_at(&mut harness, [2, 3]), [1, 2]);
    harness.finish();
}

/// While it is not read from, nobody knows whether it is silent.
#[test]
fn silence_of_a_server_counts_from_the_end_of_a_hold_back() {
    let mut harness = ready(config(), || unresponsive(legacy));
    harness.advance(seconds(1));
    harness.with_link(|link, now| link.hold_back(now, true));
    harness.advance(seconds(25));
    harness.with_link(|link, now| link.hold_back(now, false));
    assert_eq!(pings_at(&mut harness, [30, 55, 56]), [0, 0, 1]);
    harness.finish();
}
