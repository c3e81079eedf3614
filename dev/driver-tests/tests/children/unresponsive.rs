//! Children that stop to take part without ending: stopped by a signal, or not reading any more.

use everlink::client::{Cause, Delivery, FailureKind, Misuse, Sign, State, TimeLimit};
use everlink::{ExitStatus, Hang, Keepalive};
use everlink_handle::CallError;
use ordeal::settles;
use rustix::process::Signal;
use serde_json::json;

use crate::stage::{Use, failure, millis, ordeal, patient, stern};

#[test]
fn a_stopped_child_stops_no_clock_and_is_killed_in_the_end() {
    ordeal(|stage| {
        let link = stage.link(&[], stern());
        link.is_well();
        let brief = link.within(millis(100));
        let stop = brief.tool("stop", json!({}));
        let failed = failure(stop.wait());
        let timed_out = FailureKind::TimedOut {
            limit: TimeLimit::Idle,
            state: State::Ready,
        };
        assert_eq!(failed.kind, timed_out, "{failed}");
        assert_eq!(failed.delivery, Delivery::Unknown);
        assert!(settles(|| stage.family.members()[0].state == 'T'));
        assert_eq!(
            failure(brief.tool("echo", json!({})).wait()).kind,
            timed_out
        );
        let ended = link.ends();
        assert_eq!(ended.exit, Some(ExitStatus::Signal(9)), "{ended}");
        stage.nobody_is_left();
    });
}

#[test]
fn f_019_a_stopped_child_is_seen_to_be_stopped_and_replaced_when_it_is_wanted() {
    ordeal(|stage| {
        let mut config = stern();
        let mut keepalive = Keepalive::every(millis(50));
        keepalive.timeout = millis(500);
        config.policy.keepalive = Some(keepalive);
        config.policy.hang = Some(Hang::after(millis(600)));
        let link = stage.link(&[], config);
        link.is_well();
        let child = stage.family.members().remove(0);
        child.signal(Signal::STOP);
        let failed = failure(link.tool("echo", json!({})).wait());
        assert_eq!(failed.kind, FailureKind::Lost, "{failed}");
        let is_gone = || stage.family.members().iter().all(|it| it.pid != child.pid);
        assert!(settles(|| is_gone() && link.state() == State::Ready));
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
        assert_ne!(link.pid(), child.pid);
        link.ends();
    });
}

#[test]
fn a_stopped_child_that_goes_on_is_the_same_child() {
    ordeal(|stage| {
        let link = stage.link(&[], patient());
        let pid = link.pid();
        let stop = link.tool("stop", json!({}));
        assert!(settles(|| stage.family.members()[0].state == 'T'));
        let echo = link.tool("echo", json!({"text": "later"}));
        stage.family.members()[0].signal(Signal::CONT);
        assert_eq!(stop.wait().expect("it goes on").text(), "went on");
        assert_eq!(echo.wait().expect("it goes on").text(), "later");
        assert_eq!(link.pid(), pid);
        assert_eq!(link.ends().exit, Some(ExitStatus::Code(0)));
    });
}

/// What is held for a child that does not read is bounded, each call says truly whether it was sent, and the child can be ended.
#[test]
fn f_009_a_full_pipe_is_bounded_and_tells_what_was_sent() {
    ordeal(|stage| {
        let config = stern();
        let queue = config.limits.queued_bytes >> 20;
        let link = stage.link(&["ignore-eof"], config);
        link.tool("deafen", json!({}))
            .wait()
            .expect("it goes deaf after that");
        let megabyte = json!({"text": "x".repeat(1 << 20)});
        let first = link.tool("echo", &megabyte);
        let is_under_way = || {
            link.stats()
                .wait()
                .is_ok_and(|stats| stats.bytes_out > 1 << 20)
        };
        assert!(settles(is_under_way));

        // One is under way, and as many wait as may. The others are refused.
        let calls: Vec<_> = (0..40).map(|_| link.tool("echo", &megabyte)).collect();
        for call in calls.iter().chain([&first]) {
            call.canceller().cancel("nobody reads it");
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

        // What is on its way cannot be taken back, so nothing can follow it.
        let timed_out = failure(link.within(millis(100)).tool("echo", &megabyte).wait());
        assert!(
            matches!(timed_out.kind, FailureKind::TimedOut { .. }),
            "{timed_out}"
        );
        assert_eq!(timed_out.delivery, Delivery::NotSent);
        assert_eq!(link.state(), State::Ready);
        link.ends();
        stage.nobody_is_left();
    });
}

/// The diary of the server is the proof: what was said to be unsent it never reads, however long it lives.
#[test]
fn f_009_what_was_said_to_be_unsent_is_not_read_later() {
    ordeal(|stage| {
        let link = stage.link(&[&stage.diary()], patient());
        link.is_well();
        let child = stage.family.members().remove(0);
        child.signal(Signal::STOP);
        assert!(settles(|| stage.family.members()[0].state == 'T'));
        let brief = link.within(millis(200));
        let padding = "x".repeat(1 << 18);
        let call = |tag: usize| {
            let arguments = json!({"tag": format!("call {tag}"), "text": padding});
            (tag, brief.tool("echo", arguments))
        };
        let calls: Vec<_> = (0..8).map(call).collect();
        let mut fates = Vec::new();
        for (tag, call) in calls {
            fates.push((tag, failure(call.wait()).delivery));
        }
        child.signal(Signal::CONT);
        link.tool("echo", json!({"tag": "the last"}))
            .wait()
            .expect("it reads again");
        let read = stage.entries();
        assert_eq!(read.last().map(String::as_str), Some("the last"));
        for (tag, fate) in &fates {
            let was_read = read.contains(&format!("call {tag}"));
            assert!(!was_read || *fate == Delivery::Unknown, "{tag}: {fates:?}");
        }
        assert!(fates.iter().any(|(_, fate)| *fate == Delivery::NotSent));
        assert!(fates.iter().any(|(_, fate)| *fate == Delivery::Unknown));
        assert_eq!(link.ends().exit, Some(ExitStatus::Code(0)));
    });
}
