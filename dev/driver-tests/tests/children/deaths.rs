//! Tests children that exit or die on their own, and the reconnect after that.

use std::fs;

use driver_tests::{resident_bytes, wait_until};
use everlink::client::{Cause, Delivery, FailureKind, State};
use everlink::{ExitStatus, FaultKind};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::json;

use crate::harness::{LinkExt, failure, for_each_adapter, long_timeouts, millis, short_grace};

#[test]
fn f_001_child_killed_while_idle_is_replaced_without_a_call() {
    for_each_adapter(|harness| {
        let link = harness.link(&["stderr=I was here\n"], long_timeouts());
        let pid = link.server_pid();
        harness.processes.alive()[0].signal(Signal::KILL);
        assert!(wait_until(
            || link.epoch().number() == 2 && link.state() == State::Ready
        ));
        let ended = link.last_end().expect("it ended");
        assert_eq!(ended.cause, Cause::Died);
        assert_eq!(ended.exit, Some(ExitStatus::Signal(9)));
        assert_eq!(&*ended.stderr, "I was here");
        assert_ne!(link.server_pid(), pid);
        link.shut_down();
    });
}

/// Each call fails once, with the signal and stderr, and a new child answers the next call.
#[test]
fn f_002_killing_the_child_fails_100_calls_in_flight_once_and_replaces_it() {
    for_each_adapter(|harness| {
        let link = harness.link(&["stderr=these are my last words\n"], long_timeouts());
        let first = link.server_pid();
        let calls: Vec<_> = (0..100).map(|_| link.tool("hang", json!({}))).collect();
        assert_eq!(link.server_pid(), first); // the server has read the other calls
        harness.processes.alive()[0].signal(Signal::KILL);
        for call in calls {
            let failure = failure(call.wait());
            assert_eq!(failure.kind, FailureKind::Lost);
            assert_eq!(failure.delivery, Delivery::Unknown);
            let text = failure.to_string();
            for part in [
                "`hang`",
                "may have run",
                "signal 9 (SIGKILL)",
                "these are my last words",
            ] {
                assert!(text.contains(part), "{part} is not in: {text}");
            }
        }
        let second = link.server_pid();
        assert_ne!(first, second);
        let stats = link.stats().wait().expect("the link is driven");
        assert_eq!((stats.opens, stats.failures), (2, 1));
        assert_eq!(stats.calls, stats.settled);
        link.shut_down();
    });
}

/// A reply that is in the pipe when its server dies still reaches its caller.
#[test]
fn reply_written_before_the_child_dies_is_delivered() {
    for_each_adapter(|harness| {
        let mut config = long_timeouts();
        config.policy.retry.stable_after = millis(0);
        let link = harness.link(&[], config);
        let text = "x".repeat(50_000);
        for epoch in 1..=20 {
            link.wait_ready();
            let die = json!({"how": "kill9", "reply": text, "stderr": "that was all\n"});
            let reply = link.tool("die", die).wait();
            assert_eq!(reply.expect("the reply was written").text(), text);
            let ended = || {
                link.last_end()
                    .filter(|ended| ended.epoch.number() == epoch)
            };
            assert!(wait_until(|| ended().is_some()));
            let ended = ended().expect("it ended");
            assert_eq!(&*ended.stderr, "that was all");
        }
        link.shut_down();
    });
}

#[test]
fn f_002_idempotent_call_in_flight_is_answered_by_the_next_child() {
    for_each_adapter(|harness| {
        let link = harness.link(&[], long_timeouts());
        let first = link.server_pid();
        let again = everlink::client::CallOptions::new().idempotent();
        let sleep = link.with(again).tool("sleep", json!({"ms": 300}));
        assert_eq!(link.server_pid(), first);
        harness.processes.alive()[0].signal(Signal::KILL);
        assert_eq!(
            sleep.wait().expect("the next child answers").text(),
            "slept"
        );
        link.shut_down();
    });
}

#[test]
fn f_116_failure_text_has_exit_status_and_stderr_of_a_child_that_exits_at_once() {
    for_each_adapter(|harness| {
        let link = harness.link(
            &["exit=42", "stderr=no such module: server\n"],
            long_timeouts(),
        );
        let call = link.tool("echo", json!({}));
        let not_ready = link.ready().wait().expect("the link is driven");
        let not_ready = not_ready.expect_err("the server exits at once");
        assert_eq!(not_ready.state, State::Parked);
        let failed = failure(call.wait());
        assert_eq!(failed.kind, FailureKind::Down);
        assert_eq!(failed.delivery, Delivery::NotSent);
        for text in [not_ready.to_string(), failed.to_string()] {
            for part in ["exit status 42", "no such module: server"] {
                assert!(text.contains(part), "{part} is not in: {text}");
            }
        }
        // A second call fails at once, with the same reason.
        let failed = failure(link.tool("echo", json!({})).wait());
        assert!(failed.to_string().contains("exit status 42"), "{failed}");
        assert_eq!(link.state(), State::Parked);
        link.shut_down();
    });
}

#[test]
fn missing_program_is_named_in_the_failure() {
    for_each_adapter(|harness| {
        let link = harness.link_to(harness.processes.command("no-such-server"), long_timeouts());
        let not_ready = link.ready().wait().expect("the link is driven");
        let not_ready = not_ready.expect_err("the program is missing");
        assert_eq!(not_ready.state, State::Parked);
        let ended = not_ready.last_end.clone().expect("an open was tried");
        assert_eq!(ended.cause, Cause::OpenFailed);
        assert_eq!(ended.faults[0].kind(), FaultKind::NotFound);
        assert!(
            not_ready.to_string().contains("`no-such-server`"),
            "{not_ready}"
        );
        let failed = failure(link.tool("echo", json!({})).wait());
        assert_eq!(failed.delivery, Delivery::NotSent);
        assert!(failed.to_string().contains("`no-such-server`"), "{failed}");
        link.shut_down();
    });
}

#[test]
fn program_without_execute_permission_reports_permission_denied() {
    for_each_adapter(|harness| {
        let path = harness.scratch_file("text");
        fs::write(&path, "not a program").expect("the file can be written");
        let link = harness.link_to(harness.processes.command(&path), long_timeouts());
        let not_ready = link.ready().wait().expect("the link is driven");
        let ended = not_ready.expect_err("the program cannot run").last_end;
        let ended = ended.expect("an open was tried");
        assert_eq!(ended.faults[0].kind(), FaultKind::PermissionDenied);
        let name = format!("`{}`", path.display());
        assert!(ended.to_string().contains(&name), "{ended}");
        link.shut_down();
    });
}

/// The descriptor limit fails at a different step of the open each time. The failure says so, nothing leaks, and the link recovers.
#[test]
fn link_recovers_after_file_descriptors_run_out() {
    for_each_adapter(|harness| {
        let roomy = getrlimit(Resource::Nofile);
        let mut failures = 0;
        for full in 3..40 {
            let mut config = long_timeouts();
            config.policy.retry.budget = 0;
            let link = harness.link(&[], config);
            let tight = Rlimit {
                current: Some(full),
                ..roomy
            };
            setrlimit(Resource::Nofile, tight).expect("the limit can be lowered");
            let ready = link.ready().wait().expect("the link is driven");
            setrlimit(Resource::Nofile, roomy).expect("the limit can be restored");
            if let Err(not_ready) = ready {
                let ended = not_ready.last_end.clone().expect("an open was tried");
                let kinds: Vec<_> = ended.faults.iter().map(|fault| fault.kind()).collect();
                assert_eq!(kinds, [FaultKind::ResourcesExhausted], "{not_ready}");
                failures += 1;
                link.wake();
            }
            link.wait_ready();
            link.shut_down();
        }
        assert!(failures > 0, "the lowest limit must fail");
    });
}

/// An update removes the program for a while.
#[test]
fn f_074_wake_finds_a_program_that_was_reinstalled() {
    for_each_adapter(|harness| {
        let path = harness.scratch_file("bad-child");
        let bad_child = harness.processes.bad_child(&[]);
        let link = harness.link_to(harness.processes.command(&path), long_timeouts());
        let not_ready = link.ready().wait().expect("the link is driven");
        assert_eq!(
            not_ready.expect_err("the program is missing").state,
            State::Parked
        );
        fs::copy(bad_child.get_program(), &path).expect("the program can be copied");
        link.wake();
        assert!(wait_until(|| link.state() == State::Ready));
        link.server_pid();
        link.shut_down();
    });
}

#[test]
fn f_016_child_that_exits_on_its_first_three_starts_is_retried_until_ready() {
    for_each_adapter(|harness| {
        let link = harness.link(&["fail-first=3", &harness.log_option()], long_timeouts());
        let reply = link.tool("echo", json!({"text": "at last"})).wait();
        assert_eq!(reply.expect("the fourth start succeeds").text(), "at last");
        assert_eq!(harness.log_lines(), ["start"; 4]);
        assert_eq!(link.epoch().number(), 4);
        let ended = link.last_end().expect("it ended before");
        assert_eq!(ended.exit, Some(ExitStatus::Code(7)));
        link.shut_down();
    });
}

/// Each start succeeds, but the child dies soon after: the budget still runs out.
#[test]
fn f_016_child_that_dies_after_each_ready_exhausts_the_budget() {
    for_each_adapter(|harness| {
        let config = long_timeouts();
        let epochs = u64::from(config.policy.retry.budget) + 1;
        let link = harness.link(&[], config);
        for epoch in 1..=epochs {
            link.wait_ready();
            assert_eq!(link.epoch().number(), epoch);
            failure(link.tool("die", json!({"how": "abort"})).wait());
        }
        assert!(wait_until(|| link.state() == State::Parked));
        let failed = failure(link.tool("echo", json!({})).wait());
        assert_eq!(failed.kind, FailureKind::Down);
        assert!(
            failed.to_string().contains("signal 6 (SIGABRT)"),
            "{failed}"
        );
        harness.assert_no_processes();
        link.shut_down();
    });
}

#[test]
fn f_010_child_that_closed_stdin_is_replaced() {
    for_each_adapter(|harness| {
        let link = harness.link(&["ignore-eof"], short_grace());
        let first = link.server_pid();
        link.tool("close_stdin", json!({}))
            .wait()
            .expect("the reply comes before the close");
        let failed = failure(link.tool("echo", json!({})).wait());
        assert_eq!(failed.kind, FailureKind::Lost);
        assert!(
            failed.to_string().contains("the server no longer reads"),
            "{failed}"
        );
        assert_ne!(link.server_pid(), first);
        link.shut_down();
    });
}

#[test]
fn f_015_twenty_reconnects_never_run_two_children_at_once() {
    for_each_adapter(|harness| {
        let link = harness.link(&[], long_timeouts());
        link.wait_ready();
        for epoch in 2..=21 {
            link.reconnect("once more");
            let is_there = || {
                let alive = harness.processes.alive();
                assert!(alive.len() <= 1, "two at once: {alive:?}");
                link.epoch().number() == epoch && link.state() == State::Ready
            };
            assert!(wait_until(is_there));
        }
        let stats = link.stats().wait().expect("the link is driven");
        assert_eq!((stats.opens, stats.failures, stats.abandoned), (21, 0, 0));
        assert_eq!(link.shut_down().exit, Some(ExitStatus::Code(0)));
    });
}

/// A leak of 1 MiB for each epoch or link exceeds the limit of 10 MiB.
#[test]
fn memory_stays_flat_over_20_epochs_and_links() {
    for_each_adapter(|harness| {
        let mut config = long_timeouts();
        config.policy.retry.stable_after = millis(0);
        let link = harness.link(&[], config.clone());
        let run_epochs = |epochs: usize| {
            for _ in 0..epochs {
                link.tool("flood", json!({"bytes": 1 << 20}))
                    .wait()
                    .expect("it serves");
                failure(link.tool("die", json!({"how": "exit"})).wait());
                let other = harness.link(&[], config.clone());
                other
                    .tool("flood", json!({"bytes": 1 << 20}))
                    .wait()
                    .expect("it serves");
                other.shut_down();
            }
        };
        run_epochs(4);
        let (_, before) = resident_bytes();
        run_epochs(20);
        let (_, after) = resident_bytes();
        assert!(after < before + (10 << 20), "{before} bytes became {after}");
        link.shut_down();
    });
}
