//! Checks children that neither answer nor exit: stopped by a signal, or no longer reading.

use std::thread;

use everlink::client::{Cause, Delivery, FailureKind, Misuse, Sign, State, TimeLimit};
use everlink::{ExitStatus, Hang, Keepalive, relay};
use everlink_handle::{CallError, Guard, secret};
use rustix::process::Signal;
use serde_json::json;

use crate::check::{Check, Needs, check};
use crate::expect::{await_soon, expect, expect_eq, expect_ne, expect_soon};
use crate::harness::{
    Harness, LinkExt, expect_exit, failed, failure, long_timeouts, millis, outcome, reply,
    short_grace,
};
use crate::silent_host::SilentHost;

pub(super) const CHECKS: &[Check] = &[
    check!(
        calls_to_a_stopped_child_time_out_and_shutdown_kills_it,
        "Calls to a stopped child time out, and a shutdown kills the child.",
    ),
    check!(
        f_019_stopped_child_is_detected_and_replaced_when_a_call_waits,
        "While a call waits, a stopped child is seen to be stopped and replaced.",
    ),
    check!(
        stopped_child_that_continues_answers_waiting_calls,
        "A stopped child that continues answers the calls that wait.",
    ),
    check!(
        f_009_full_pipe_bounds_the_queue_and_reports_delivery,
        "The queue for a child that does not read is bounded. Each call reports truly whether it was sent, and the child can be ended.",
    ),
    check!(
        f_009_call_reported_as_not_sent_is_never_read_by_the_child,
        "A call that failed as not sent is never read, however long the child lives.",
    ),
    check!(
        relay_stops_reading_the_child_while_its_host_does_not_read,
        "While the machine wants no input, the child's output stays in the pipe, so that memory is bounded.",
    )
    .needs(Needs::Guard),
];

fn calls_to_a_stopped_child_time_out_and_shutdown_kills_it(harness: &Harness<'_>) {
    let link = harness.link(&[], short_grace());
    link.wait_ready();
    let timed_out = FailureKind::TimedOut {
        limit: TimeLimit::Idle,
        state: State::Ready,
    };
    let failed = failure(link.tool_within(millis(100), "stop", json!({})));
    expect_eq("the kind of failure", &failed.kind, &timed_out);
    expect_eq("the delivery", failed.delivery, Delivery::Unknown);
    wait_until_stopped(harness);
    let failed = failure(link.tool_within(millis(100), "echo", json!({})));
    expect_eq("the kind of failure", &failed.kind, &timed_out);
    expect_exit(&link.shut_down(), ExitStatus::Signal(9));
    harness.expect_no_processes();
}

fn wait_until_stopped(harness: &Harness<'_>) {
    expect_soon("the child is stopped", || harness.child().state == 'T');
}

fn f_019_stopped_child_is_detected_and_replaced_when_a_call_waits(harness: &Harness<'_>) {
    let mut config = short_grace();
    let mut keepalive = Keepalive::every(millis(50));
    keepalive.timeout = millis(500);
    config.policy.keepalive = Some(keepalive);
    config.policy.hang = Some(Hang::after(millis(600)));
    let link = harness.link(&[], config);
    link.wait_ready();
    let child = [harness.child()];
    child[0].signal(Signal::STOP);
    let failed = failure(link.tool("echo", json!({})));
    expect_eq("the kind of failure", &failed.kind, &FailureKind::Lost);
    expect_soon("the child is gone, and the link is ready", || {
        harness.are_gone(&child) && link.state() == State::Ready
    });
    let ended = link.ended();
    let is_seen = matches!(
        ended.cause,
        Cause::Unresponsive {
            sign: Sign::Stopped,
            ..
        }
    );
    expect("the child is seen to be stopped", is_seen, &ended);
    expect("the end counts as a failure", ended.counted, &ended);
    expect_ne("the process that answers", link.server_pid(), child[0].pid);
    link.shut_down();
}

fn stopped_child_that_continues_answers_waiting_calls(harness: &Harness<'_>) {
    let link = harness.link(&[], long_timeouts());
    let pid = link.server_pid();
    let stop = link.tool("stop", json!({}));
    wait_until_stopped(harness);
    let echo = link.tool("echo", json!({"text": "later"}));
    harness.child().signal(Signal::CONT);
    expect_eq("the reply to `stop`", reply(stop).text(), "went on");
    expect_eq("the reply to `echo`", reply(echo).text(), "later");
    expect_eq("the process that answers", link.server_pid(), pid);
    expect_exit(&link.shut_down(), ExitStatus::Code(0));
}

fn f_009_full_pipe_bounds_the_queue_and_reports_delivery(harness: &Harness<'_>) {
    let config = short_grace();
    let queue = config.limits.queued_bytes >> 20;
    let link = harness.link(&["ignore-eof"], config);
    reply(link.tool("stop_reading", json!({}))); // the reply comes before it stops reading
    let megabyte = json!({"text": "x".repeat(1 << 20)});
    let first = link.tool("echo", &megabyte);
    expect_soon("the first large call is under way", || {
        link.counters().bytes_out > 1 << 20
    });

    // One call is half written, and the queue holds its limit. Further calls are refused.
    let calls: Vec<_> = (0..40).map(|_| link.tool("echo", &megabyte)).collect();
    for call in calls.iter().chain([&first]) {
        call.canceller().cancel("the server does not read");
    }
    let first = failure(first).delivery;
    expect_eq("the delivery of the first call", first, Delivery::Unknown);
    let mut waited = 0;
    for call in calls {
        match outcome(call) {
            Err(CallError::Misuse(Misuse::QueueFull { .. })) => {}
            other => {
                let delivery = failed(other).delivery;
                expect_eq("the delivery of a call", delivery, Delivery::NotSent);
                waited += 1;
            }
        }
    }
    let is_bounded = (1..=queue).contains(&waited);
    expect("the queue holds its limit", is_bounded, waited);

    // A half-written message cannot be withdrawn, so no other message can follow it.
    let timed_out = failure(link.tool_within(millis(100), "echo", &megabyte));
    let is_timed_out = matches!(timed_out.kind, FailureKind::TimedOut { .. });
    expect("the call times out", is_timed_out, &timed_out);
    expect_eq("the delivery", timed_out.delivery, Delivery::NotSent);
    expect_eq("the state of the link", link.state(), State::Ready);
    link.shut_down();
    harness.expect_no_processes();
}

/// The server's log proves it.
fn f_009_call_reported_as_not_sent_is_never_read_by_the_child(harness: &Harness<'_>) {
    let link = harness.link(&[&harness.log_option()], long_timeouts());
    link.wait_ready();
    let child = harness.child();
    child.signal(Signal::STOP);
    wait_until_stopped(harness);
    let padding = "x".repeat(1 << 18);
    let call = |tag: usize| {
        let arguments = json!({"tag": format!("call {tag}"), "text": padding});
        (tag, link.tool_within(millis(200), "echo", arguments))
    };
    let calls: Vec<_> = (0..8).map(call).collect();
    let mut deliveries = Vec::new();
    for (tag, call) in calls {
        deliveries.push((tag, failure(call).delivery));
    }
    child.signal(Signal::CONT);
    reply(link.tool("echo", json!({"tag": "the last"}))); // it reads again
    let read = harness.log_lines();
    let last = read.last().map(String::as_str);
    expect_eq("the last call that was read", last, Some("the last"));
    for (tag, delivery) in &deliveries {
        let was_read = read.contains(&format!("call {tag}"));
        let is_true = !was_read || *delivery == Delivery::Unknown;
        let what = format!("call {tag}, which was read, is not reported as not sent");
        expect(&what, is_true, &deliveries);
    }
    for expected in [Delivery::NotSent, Delivery::Unknown] {
        let has_one = deliveries.iter().any(|(_, delivery)| *delivery == expected);
        let what = format!("a call with the delivery {expected:?}");
        expect(&what, has_one, &deliveries);
    }
    expect_exit(&link.shut_down(), ExitStatus::Code(0));
}

/// More bytes than the queues of a relay hold.
const MAX_READ: u64 = 32 << 20;
/// The size of one reply, and the number of replies. Together they are twice as much.
const REPLY: usize = 1 << 20;
const REPLIES: usize = 64;

fn relay_stops_reading_the_child_while_its_host_does_not_read(harness: &Harness<'_>) {
    let (guard, owner) = Guard::new(relay::Config::new(short_grace(), secret()));
    let (host, control) = SilentHost::new();
    let drive = harness
        .driver
        .drive_guard()
        .expect("the driver has a relay");
    drive(owner, host, harness.processes.bad_child(&[])).expect("a relay can be started");
    for id in 0..REPLIES {
        control.send(&flood_request(id));
    }
    let bytes_read = || {
        let status = await_soon("the relay returns its status", guard.status());
        let status = status.unwrap_or_else(|_| panic!("expected that the relay is driven"));
        status.upstream_stats.bytes_in
    };
    expect_soon("a reply is read", || bytes_read() > REPLY as u64);
    // The driver makes a turn for each look. If it ignores the machine, it empties the pipe, and the child goes on.
    let (mut read, mut looks) = (0, 0);
    while looks < 100 {
        let now = bytes_read();
        let is_stalled = now == read && harness.child().is_asleep();
        looks = if is_stalled { looks + 1 } else { 0 };
        read = now;
        let what = format!("less than {MAX_READ} bytes are read for a host that does not read");
        expect(&what, read < MAX_READ, read);
        thread::sleep(millis(2));
    }
    control.disconnect();
    let closed = await_soon("the relay ends with its host", guard.closed());
    expect("the relay ends with its host", closed.is_ok(), closed);
    harness.wait_for_no_processes();
}

/// A modern request, which needs no handshake.
fn flood_request(id: usize) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "silent-host", "version": "1.0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": "flood", "arguments": {"bytes": REPLY}, "_meta": meta});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}
