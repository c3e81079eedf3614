//! Tests children that neither answer nor exit: stopped by a signal, or no longer reading.

use driver_tests::wait_until;
use everlink::client::{Cause, Delivery, FailureKind, Misuse, Sign, State, TimeLimit};
use everlink::{ExitStatus, Hang, Keepalive};
use everlink_handle::CallError;
use rustix::process::Signal;
use serde_json::json;

use crate::harness::{LinkExt, failure, for_each_adapter, long_timeouts, millis, short_grace};

#[test]
fn calls_to_a_stopped_child_time_out_and_shutdown_kills_it() {
    for_each_adapter(|harness| {
        let link = harness.link(&[], short_grace());
        link.wait_ready();
        let brief = link.with_idle_limit(millis(100));
        let stop = brief.tool("stop", json!({}));
        let failed = failure(stop.wait());
        let timed_out = FailureKind::TimedOut {
            limit: TimeLimit::Idle,
            state: State::Ready,
        };
        assert_eq!(failed.kind, timed_out, "{failed}");
        assert_eq!(failed.delivery, Delivery::Unknown);
        assert!(wait_until(|| harness.processes.alive()[0].state == 'T'));
        assert_eq!(
            failure(brief.tool("echo", json!({})).wait()).kind,
            timed_out
        );
        let ended = link.shut_down();
        assert_eq!(ended.exit, Some(ExitStatus::Signal(9)), "{ended}");
        harness.assert_no_processes();
    });
}

#[test]
fn f_019_stopped_child_is_detected_and_replaced_when_a_call_waits() {
    for_each_adapter(|harness| {
        let mut config = short_grace();
        let mut keepalive = Keepalive::every(millis(50));
        keepalive.timeout = millis(500);
        config.policy.keepalive = Some(keepalive);
        config.policy.hang = Some(Hang::after(millis(600)));
        let link = harness.link(&[], config);
        link.wait_ready();
        let child = harness.processes.alive().remove(0);
        child.signal(Signal::STOP);
        let failed = failure(link.tool("echo", json!({})).wait());
        assert_eq!(failed.kind, FailureKind::Lost, "{failed}");
        let is_gone = || {
            harness
                .processes
                .alive()
                .iter()
                .all(|it| it.pid != child.pid)
        };
        assert!(wait_until(|| is_gone() && link.state() == State::Ready));
        let ended = link.last_end().expect("it ended");
        let is_seen = |cause: &Cause| {
            matches!(
                cause,
                Cause::Unresponsive {
                    sign: Sign::Stopped,
                    ..
                }
            )
        };
        assert!(is_seen(&ended.cause), "{ended}");
        assert!(ended.counted);
        assert_ne!(link.server_pid(), child.pid);
        link.shut_down();
    });
}

#[test]
fn stopped_child_that_continues_answers_waiting_calls() {
    for_each_adapter(|harness| {
        let link = harness.link(&[], long_timeouts());
        let pid = link.server_pid();
        let stop = link.tool("stop", json!({}));
        assert!(wait_until(|| harness.processes.alive()[0].state == 'T'));
        let echo = link.tool("echo", json!({"text": "later"}));
        harness.processes.alive()[0].signal(Signal::CONT);
        assert_eq!(stop.wait().expect("it goes on").text(), "went on");
        assert_eq!(echo.wait().expect("it goes on").text(), "later");
        assert_eq!(link.server_pid(), pid);
        assert_eq!(link.shut_down().exit, Some(ExitStatus::Code(0)));
    });
}

/// The queue for a child that does not read is bounded. Each call reports truly whether it was sent, and the child can be ended.
#[test]
fn f_009_full_pipe_bounds_the_queue_and_reports_delivery() {
    for_each_adapter(|harness| {
        let config = short_grace();
        let queue = config.limits.queued_bytes >> 20;
        let link = harness.link(&["ignore-eof"], config);
        link.tool("stop_reading", json!({}))
            .wait()
            .expect("the reply comes before it stops reading");
        let megabyte = json!({"text": "x".repeat(1 << 20)});
        let first = link.tool("echo", &megabyte);
        let is_under_way = || {
            link.stats()
                .wait()
                .is_ok_and(|stats| stats.bytes_out > 1 << 20)
        };
        assert!(wait_until(is_under_way));

        // One call is half written, and the queue holds its limit. Further calls are refused.
        let calls: Vec<_> = (0..40).map(|_| link.tool("echo", &megabyte)).collect();
        for call in calls.iter().chain([&first]) {
            call.canceller().cancel("the server does not read");
        }
        assert_eq!(failure(first.wait()).delivery, Delivery::Unknown);
        let mut waited = 0;
        for call in calls {
            match call.wait() {
                Err(CallError::Misuse(Misuse::QueueFull { .. })) => {}
                other => {
                    assert_eq!(failure(other).delivery, Delivery::NotSent);
                    waited += 1;
                }
            }
        }
        assert!((1..=queue).contains(&waited), "{waited}");

        // A half-written message cannot be withdrawn, so no other message can follow it.
        let timed_out = failure(
            link.with_idle_limit(millis(100))
                .tool("echo", &megabyte)
                .wait(),
        );
        assert!(
            matches!(timed_out.kind, FailureKind::TimedOut { .. }),
            "{timed_out}"
        );
        assert_eq!(timed_out.delivery, Delivery::NotSent);
        assert_eq!(link.state(), State::Ready);
        link.shut_down();
        harness.assert_no_processes();
    });
}

/// The server's log proves it: a call that failed as not sent is never read, however long the server lives.
#[test]
fn f_009_call_reported_as_not_sent_is_never_read_by_the_child() {
    for_each_adapter(|harness| {
        let link = harness.link(&[&harness.log_option()], long_timeouts());
        link.wait_ready();
        let child = harness.processes.alive().remove(0);
        child.signal(Signal::STOP);
        assert!(wait_until(|| harness.processes.alive()[0].state == 'T'));
        let brief = link.with_idle_limit(millis(200));
        let padding = "x".repeat(1 << 18);
        let call = |tag: usize| {
            let arguments = json!({"tag": format!("call {tag}"), "text": padding});
            (tag, brief.tool("echo", arguments))
        };
        let calls: Vec<_> = (0..8).map(call).collect();
        let mut deliveries = Vec::new();
        for (tag, call) in calls {
            deliveries.push((tag, failure(call.wait()).delivery));
        }
        child.signal(Signal::CONT);
        link.tool("echo", json!({"tag": "the last"}))
            .wait()
            .expect("it reads again");
        let read = harness.log_lines();
        assert_eq!(read.last().map(String::as_str), Some("the last"));
        for (tag, delivery) in &deliveries {
            let was_read = read.contains(&format!("call {tag}"));
            assert!(
                !was_read || *delivery == Delivery::Unknown,
                "{tag}: {deliveries:?}"
            );
        }
        assert!(
            deliveries
                .iter()
                .any(|(_, delivery)| *delivery == Delivery::NotSent)
        );
        assert!(
            deliveries
                .iter()
                .any(|(_, delivery)| *delivery == Delivery::Unknown)
        );
        assert_eq!(link.shut_down().exit, Some(ExitStatus::Code(0)));
    });
}
