//! Tests that a shutdown ends children that ignore it.

use std::thread;

use driver_tests::{Adapter, wait_until};
use everlink::ExitStatus;
use everlink::client::{Cause, Delivery, FailureKind, Misuse, State};
use everlink_handle::CallError;
use serde_json::json;

use crate::harness::{LinkExt, failure, for_each_adapter, long_timeouts, short_grace};

#[test]
fn s_stdio_15_child_that_exits_on_eof_is_not_signalled() {
    for_each_adapter(|harness| {
        let link = harness.link(&[], long_timeouts());
        link.wait_ready();
        let ended = link.shut_down();
        assert_eq!(ended.exit, Some(ExitStatus::Code(0)), "{ended}");
        assert_eq!(ended.cause, Cause::Shutdown);
        assert!(!ended.counted && !ended.abandoned, "{ended:?}");
        // `shutdown` resolves only after everything is gone.
        harness.assert_no_processes();
    });
}

#[test]
fn f_011_child_that_ignores_eof_gets_sigterm() {
    for_each_adapter(|harness| {
        let mut config = short_grace();
        config.policy.terminate_grace = long_timeouts().policy.terminate_grace;
        let link = harness.link(&["ignore-eof"], config);
        link.wait_ready();
        let ended = link.shut_down();
        assert_eq!(ended.exit, Some(ExitStatus::Signal(15)), "{ended}");
        harness.assert_no_processes();
    });
}

#[test]
fn f_011_child_that_ignores_eof_and_sigterm_is_killed() {
    for_each_adapter(|harness| {
        let link = harness.link(&["ignore-eof", "ignore-term"], short_grace());
        link.wait_ready();
        let ended = link.shut_down();
        assert_eq!(ended.exit, Some(ExitStatus::Signal(9)), "{ended}");
        assert!(!ended.abandoned, "{ended}");
        harness.assert_no_processes();
    });
}

#[test]
fn f_014_shutdown_kills_a_child_that_is_still_starting() {
    for_each_adapter(|harness| {
        let link = harness.link(&["never-read", "ignore-term"], short_grace());
        let call = link.tool("echo", json!({}));
        harness.process_with_arg("never-read");
        assert!(wait_until(|| link.state() == State::Handshaking));
        let ended = link.shut_down();
        assert_eq!(ended.exit, Some(ExitStatus::Signal(9)), "{ended}");
        harness.assert_no_processes();
        let failure = failure(call.wait());
        assert_eq!(failure.kind, FailureKind::Closed);
        assert_eq!(failure.delivery, Delivery::NotSent);
    });
}

#[test]
fn calls_in_flight_fail_when_the_link_shuts_down() {
    for_each_adapter(|harness| {
        let link = harness.link(&["ignore-eof", "ignore-term"], short_grace());
        link.wait_ready();
        let calls: Vec<_> = (0..10).map(|_| link.tool("hang", json!({}))).collect();
        link.server_pid(); // the server has read the calls before
        link.shut_down();
        for call in calls {
            let failure = failure(call.wait());
            assert_eq!(failure.delivery, Delivery::Unknown, "{failure}");
            assert!(
                failure.to_string().contains("the link was shut down"),
                "{failure}"
            );
        }
        let late = link.tool("echo", json!({})).wait();
        assert!(
            matches!(late, Err(CallError::Misuse(Misuse::Closed))),
            "{late:?}"
        );
    });
}

/// Without a shutdown, dropping the last handle ends the link and its processes.
#[test]
fn f_104_dropping_the_last_handle_fails_calls_and_kills_the_child() {
    for_each_adapter(|harness| {
        let link = harness.link(
            &["ignore-eof", "ignore-term", "group-member"],
            short_grace(),
        );
        let clone = link.clone();
        link.wait_ready();
        let calls: Vec<_> = (0..10).map(|_| link.tool("hang", json!({}))).collect();
        drop(link);
        assert_eq!(clone.state(), State::Ready, "a clone keeps the link open");
        drop(clone);
        for call in calls {
            failure(call.wait());
        }
    });
}

#[test]
fn several_threads_can_wait_for_one_shutdown() {
    for_each_adapter(|harness| {
        let link = harness.link(&["stdout-holder", "ignore-eof"], short_grace());
        link.wait_ready();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| link.shutdown().wait().expect("the link is driven"));
            }
        });
        harness.assert_no_processes();
        link.shutdown()
            .wait()
            .expect("a closed link can be shut down");
    });
}

#[test]
fn unused_link_spawns_no_child() {
    for_each_adapter(|harness| {
        let link = harness.link(&[], long_timeouts());
        assert_eq!(link.state(), State::Idle);
        link.shutdown().wait().expect("the link is driven");
        assert!(link.last_end().is_none());
        drop(harness.link(&[], long_timeouts()));
    });
}

/// The runtime ends before the link: the calls fail, and the child is killed.
#[test]
fn f_104_dropping_the_runtime_fails_calls_and_kills_children() {
    for_each_adapter(|harness| {
        if !harness.adapter.starts_with("tokio") {
            return; // only a runtime can end the driver of a link
        }
        let (mut links, mut calls) = (Vec::new(), Vec::new());
        let tokio = Adapter::by_name(harness.adapter).expect("the adapter exists");
        tokio.run(|connect| {
            for _ in 0..4 {
                let bad_child =
                    harness
                        .processes
                        .bad_child(&["ignore-eof", "ignore-term", "group-member"]);
                let link = connect(bad_child, long_timeouts()).expect("a link can be opened");
                calls.push(link.tool("hang", json!({})));
                link.server_pid(); // the server has read the call before
                links.push(link);
            }
        });
        for call in calls {
            let gone = call.wait();
            assert!(matches!(gone, Err(CallError::Gone)), "{gone:?}");
        }
        for link in links {
            assert_eq!(link.state(), State::Closed);
            link.shutdown()
                .wait()
                .expect("a closed link can be shut down");
        }
        harness.wait_for_no_processes();
    });
}
