//! The defaults of the configuration, as its documentation states them.

use core::time::Duration;

use everlink::{Hang, Keepalive, Limit, Limits, Policy, Retry, WhenSpent};
use serde_json::json;

use crate::client_pipe::{Harness, config, millis, seconds};

const KIB: usize = 1_024;
const MIB: usize = 1_024 * KIB;

const fn minutes(minutes: u64) -> Duration {
    seconds(60 * minutes)
}

/// The durations of a policy that are not those of calls and retries.
fn durations(policy: &Policy) -> [Duration; 12] {
    [
        policy.open_timeout,
        policy.probe_timeout,
        policy.handshake_notice,
        policy.handshake_timeout,
        policy.ask_timeout,
        policy.pause_total,
        policy.drain,
        policy.close_grace,
        policy.terminate_grace,
        policy.kill_grace,
        policy.watch_timeout,
        policy.watch_retry,
    ]
}

/// The durations of a retry policy, in the order of their declaration.
fn pauses(retry: &Retry) -> [Duration; 7] {
    [
        retry.first,
        retry.cap,
        retry.floor,
        retry.start_for,
        retry.stable_after,
        retry.call_patience,
        retry.call_pace,
    ]
}

#[test]
fn policies_have_the_documented_values() {
    let interactive = Policy::interactive();
    assert_eq!(
        durations(&interactive),
        [
            seconds(30),
            millis(1_500),
            seconds(10),
            minutes(2),
            minutes(10),
            minutes(30),
            seconds(5),
            seconds(2),
            seconds(3),
            seconds(2),
            seconds(10),
            seconds(5),
        ]
    );
    let background = Policy::background();
    assert_eq!(
        durations(&background),
        [
            seconds(30),
            millis(1_500),
            seconds(10),
            minutes(5),
            minutes(10),
            minutes(30),
            seconds(60),
            seconds(2),
            seconds(3),
            seconds(2),
            seconds(10),
            seconds(5),
        ]
    );
    for (policy, idle, total) in [
        (&interactive, minutes(1), minutes(10)),
        (&background, minutes(5), minutes(60)),
    ] {
        assert_eq!(policy.call_idle, Limit::After(idle));
        assert_eq!(policy.call_total, Limit::After(total));
        assert_eq!(policy.resends, 2);
    }
}

#[test]
fn retries_have_the_documented_values() {
    let interactive = Policy::interactive().retry;
    assert_eq!(interactive.budget, 5);
    assert_eq!(
        pauses(&interactive),
        [
            millis(500),
            seconds(30),
            millis(250),
            seconds(3),
            minutes(1),
            seconds(4),
            seconds(1),
        ]
    );
    let park = |probe| WhenSpent::Park { probe };
    assert_eq!(interactive.when_spent, park(minutes(1)));

    let background = Policy::background().retry;
    assert_eq!(background.budget, 10);
    assert_eq!(
        pauses(&background),
        [
            seconds(1),
            minutes(5),
            seconds(1),
            minutes(1),
            minutes(5),
            minutes(1),
            seconds(5),
        ]
    );
    assert_eq!(background.when_spent, park(minutes(10)));

    let script = Policy::one_shot().retry;
    assert_eq!((script.budget, script.when_spent), (0, WhenSpent::Close));
    assert_eq!(pauses(&script), pauses(&interactive));
}

#[test]
fn silent_servers_are_probed_and_replaced_after_the_documented_times() {
    for (policy, idle, timeout) in [
        (Policy::interactive(), seconds(30), seconds(30)),
        (Policy::background(), minutes(2), minutes(1)),
    ] {
        assert_eq!(policy.keepalive, Some(Keepalive::every(idle)));
        assert_eq!(policy.hang, Some(Hang::after(timeout)));
    }
    let script = Policy::one_shot();
    assert_eq!(script.keepalive, None);
    assert_eq!(script.hang, Policy::interactive().hang);

    let keepalive = Keepalive::every(seconds(7));
    assert_eq!(
        (keepalive.idle, keepalive.timeout, keepalive.misses),
        (seconds(7), seconds(10), 2)
    );
    // A call makes the link probe after 10 s, or sooner if the server has less time.
    for (timeout, probe_after) in [(60, 10), (30, 10), (15, 5)] {
        let hang = Hang::after(seconds(timeout));
        assert_eq!(hang.probe_after, seconds(probe_after));
        assert_eq!(hang.timeout, seconds(timeout));
        assert_eq!(hang.timeout_at_work, seconds(4 * timeout));
    }
}

#[test]
fn limits_have_the_documented_values() {
    let computer = Limits::default();
    assert_eq!(
        [
            computer.message_bytes,
            computer.queued_bytes,
            computer.queued_calls,
            computer.calls_in_flight,
            computer.write_window,
            computer.undelivered_bytes,
            computer.unfinished_bytes,
            computer.asks,
            computer.request_state_bytes,
            computer.noise_sample,
            computer.stderr_tail,
            computer.pages,
            computer.list_bytes,
        ],
        [
            16 * MIB,
            8 * MIB,
            1_024,
            1_024,
            256 * KIB,
            4 * MIB,
            64 * MIB,
            64,
            64 * KIB,
            160,
            4 * KIB,
            1_000,
            32 * MIB,
        ]
    );
    let microcontroller = Limits::small();
    assert_eq!(
        [
            microcontroller.message_bytes,
            microcontroller.queued_bytes,
            microcontroller.queued_calls,
            microcontroller.calls_in_flight,
            microcontroller.list_bytes,
        ],
        [8 * KIB, 4 * KIB, 8, 4, 8 * KIB]
    );
    // All buffers together fit into 48 KB.
    let buffers = [
        microcontroller.message_bytes,
        microcontroller.queued_bytes,
        microcontroller.write_window,
        microcontroller.undelivered_bytes,
        microcontroller.unfinished_bytes,
        microcontroller.request_state_bytes,
        microcontroller.stderr_tail,
        microcontroller.list_bytes,
    ];
    assert!(buffers.iter().all(|bytes| (512..=8 * KIB).contains(bytes)));
    assert!(buffers.iter().sum::<usize>() <= 48_000);
    for limits in [computer, microcontroller] {
        assert_eq!((limits.input_rounds, limits.noise_run), (10, None));
    }
}

/// Only between several clients of a relay, a short call passes long ones.
#[test]
fn calls_are_sent_in_order_unless_there_are_many_clients() {
    let mut harness = Harness::new(config());
    let long = json!({"name": "long", "arguments": {"text": "x".repeat(1 << 20)}});
    harness.call("tools/call", long);
    harness.call_tool("short");
    harness.until_ready();
    let sent = harness.messages_with("tools/call");
    let names: Vec<_> = sent.iter().map(|call| &call["params"]["name"]).collect();
    assert_eq!(names, ["long", "short"]);
    harness.finish();
}
