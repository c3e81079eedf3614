//! Checks children that exit or die on their own, and the reconnect after that.

use std::fs;
use std::os::unix::fs::symlink;

use everlink::client::{Cause, Delivery, FailureKind, State};
use everlink::{ExitStatus, FaultKind};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::check::{Check, check};
use crate::expect::{expect, expect_eq, expect_ne, expect_parts, expect_soon};
use crate::harness::{
    Harness, LinkExt, expect_exit, failure, long_timeouts, millis, reply, short_grace,
};
use crate::resources::resident_bytes;

pub(super) const CHECKS: &[Check] = &[
    check!(
        f_001_child_killed_while_idle_is_replaced_without_a_call,
        "A child that dies while no call waits is noticed and replaced, with its exit status and its last lines.",
    ),
    check!(
        f_002_killing_the_child_fails_100_calls_in_flight_once_and_replaces_it,
        "The death of a child fails each call in flight once, with the signal and standard error. A new child answers the next call.",
    ),
    check!(
        reply_written_before_the_child_dies_is_delivered,
        "A reply that is in the pipe when its server dies still reaches its caller, before the exit is reported.",
    ),
    check!(
        f_002_idempotent_call_in_flight_is_answered_by_the_next_child,
        "A call that may be repeated survives the death of its child.",
    ),
    check!(
        f_116_failure_text_has_exit_status_and_stderr_of_a_child_that_exits_at_once,
        "The failure texts of a child that exits at once have its exit status and its standard error.",
    ),
    check!(
        missing_program_is_named_in_the_failure,
        "A program that does not exist is reported as such, and the failure names it.",
    ),
    check!(
        program_without_execute_permission_reports_permission_denied,
        "A program that may not be run is reported as such, and the failure names it.",
    ),
    check!(
        link_recovers_after_file_descriptors_run_out,
        "When descriptors run out at any step of an open, the failure says so, nothing leaks, and the link recovers.",
    ),
    check!(
        f_074_wake_finds_a_program_that_was_reinstalled,
        "`wake` starts a program that was missing before.",
    ),
    check!(
        f_016_child_that_exits_on_its_first_three_starts_is_retried_until_ready,
        "A child that exits on its first starts is started again, once for each epoch.",
    ),
    check!(
        f_016_child_that_dies_after_each_ready_exhausts_the_budget,
        "A child that dies soon after each start exhausts the retry budget, and no process is left.",
    ),
    check!(
        f_010_child_that_closed_stdin_is_replaced,
        "A failed write is reported: a child that no longer reads is replaced.",
    ),
    check!(
        f_015_twenty_reconnects_never_run_two_children_at_once,
        "A new child is spawned only after the old one is gone.",
    ),
    check!(
        memory_stays_flat_over_20_epochs_and_links,
        "Epochs and links leave no memory behind: less than 10 MiB for 20 of each, with replies of 1 MiB.",
    ),
];

fn f_001_child_killed_while_idle_is_replaced_without_a_call(harness: &Harness<'_>) {
    let link = harness.link(&["stderr=I was here\n"], long_timeouts());
    let pid = link.server_pid();
    harness.child().kill();
    link.wait_ready_in(2);
    let ended = link.ended();
    expect_eq("the cause of the end", &ended.cause, &Cause::Died);
    expect_exit(&ended, ExitStatus::Signal(9));
    expect_eq("standard error", &*ended.stderr, "I was here");
    expect_ne("the process that answers", link.server_pid(), pid);
    link.shut_down();
}

fn f_002_killing_the_child_fails_100_calls_in_flight_once_and_replaces_it(harness: &Harness<'_>) {
    let link = harness.link(&["stderr=these are my last words\n"], long_timeouts());
    let first = link.server_pid();
    let calls: Vec<_> = (0..100).map(|_| link.tool("hang", json!({}))).collect();
    // The server has read the other calls when it answers this one.
    expect_eq("the process that answers", link.server_pid(), first);
    harness.child().kill();
    for call in calls {
        let failure = failure(call);
        expect_eq("the kind of failure", &failure.kind, &FailureKind::Lost);
        expect_eq("the delivery", failure.delivery, Delivery::Unknown);
        let parts = [
            "`hang`",
            "may have run",
            "signal 9 (SIGKILL)",
            "these are my last words",
        ];
        expect_parts("the failure", failure, &parts);
    }
    let second = link.server_pid();
    expect_ne("the process that answers", second, first);
    let stats = link.counters();
    expect_eq("opens and failures", (stats.opens, stats.failures), (2, 1));
    expect_eq("settled calls", stats.settled, stats.calls);
    link.shut_down();
}

fn reply_written_before_the_child_dies_is_delivered(harness: &Harness<'_>) {
    let mut config = long_timeouts();
    config.policy.retry.stable_after = millis(0);
    let link = harness.link(&[], config);
    let text = "x".repeat(50_000);
    for epoch in 1..=20 {
        link.wait_ready();
        let die = json!({"how": "kill9", "reply": text, "stderr": "that was all\n"});
        let reply = reply(link.tool("die", die)).text();
        expect("the reply is complete", reply == text, reply.len());
        let ended = || {
            link.last_end()
                .filter(|ended| ended.epoch.number() == epoch)
        };
        expect_soon("the death of the child is reported", || ended().is_some());
        let ended = ended().expect("checked above");
        expect_eq("standard error", &*ended.stderr, "that was all");
    }
    link.shut_down();
}

fn f_002_idempotent_call_in_flight_is_answered_by_the_next_child(harness: &Harness<'_>) {
    let link = harness.link(&[], long_timeouts());
    let first = link.server_pid();
    let sleep = link.call_tool("sleep", json!({"ms": 300}));
    let sleep = sleep.idempotent().start();
    expect_eq("the process that answers", link.server_pid(), first);
    harness.child().kill();
    expect_eq("the reply of the next child", reply(sleep).text(), "slept");
    link.shut_down();
}

fn f_116_failure_text_has_exit_status_and_stderr_of_a_child_that_exits_at_once(
    harness: &Harness<'_>,
) {
    let options = ["exit=42", "stderr=no such module: server\n"];
    let link = harness.link(&options, long_timeouts());
    let call = link.tool("echo", json!({}));
    let not_ready = link.not_ready();
    expect_eq("the state of the link", not_ready.state, State::Parked);
    let failed = failure(call);
    expect_eq("the kind of failure", &failed.kind, &FailureKind::Down);
    expect_eq("the delivery", failed.delivery, Delivery::NotSent);
    let parts = ["exit status 42", "no such module: server"];
    expect_parts("the reason why the link is not ready", not_ready, &parts);
    expect_parts("the failure", failed, &parts);
    // A second call fails at once, with the same reason.
    let failed = failure(link.tool("echo", json!({})));
    expect_parts("the failure of a second call", failed, &parts[..1]);
    expect_eq("the state of the link", link.state(), State::Parked);
    link.shut_down();
}

fn missing_program_is_named_in_the_failure(harness: &Harness<'_>) {
    let link = harness.link_to(harness.processes.command("no-such-server"), long_timeouts());
    let not_ready = link.not_ready();
    expect_eq("the state of the link", not_ready.state, State::Parked);
    let ended = link.ended();
    expect_eq("the cause of the end", &ended.cause, &Cause::OpenFailed);
    let kinds: Vec<_> = ended.faults.iter().map(|fault| fault.kind()).collect();
    expect_eq("the first fault", kinds.first(), Some(&FaultKind::NotFound));
    let parts = ["`no-such-server`"];
    expect_parts("the reason why the link is not ready", not_ready, &parts);
    let failed = failure(link.tool("echo", json!({})));
    expect_eq("the delivery", failed.delivery, Delivery::NotSent);
    expect_parts("the failure", failed, &parts);
    link.shut_down();
}

fn program_without_execute_permission_reports_permission_denied(harness: &Harness<'_>) {
    let path = harness.scratch_file("text");
    fs::write(&path, "not a program").expect("the file can be written");
    let link = harness.link_to(harness.processes.command(&path), long_timeouts());
    link.not_ready();
    let ended = link.ended();
    let kinds: Vec<_> = ended.faults.iter().map(|fault| fault.kind()).collect();
    let denied = Some(&FaultKind::PermissionDenied);
    expect_eq("the first fault", kinds.first(), denied);
    let name = format!("`{}`", path.display());
    expect_parts("the end of the epoch", ended, &[&name]);
    link.shut_down();
}

/// The descriptor limit fails at a different step of the open each time.
fn link_recovers_after_file_descriptors_run_out(harness: &Harness<'_>) {
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
        let ready = link.settled();
        setrlimit(Resource::Nofile, roomy).expect("the limit can be restored");
        if let Err(not_ready) = ready {
            let ended = not_ready.last_end.clone().expect("an open was tried");
            let kinds: Vec<_> = ended.faults.iter().map(|fault| fault.kind()).collect();
            let what = format!("the faults of an open with {full} descriptors");
            expect_eq(&what, kinds, [FaultKind::ResourcesExhausted]);
            failures += 1;
            link.wake();
        }
        link.wait_ready();
        link.shut_down();
    }
    expect("the lowest limit fails", failures > 0, failures);
}

/// An update removes the program for a while.
fn f_074_wake_finds_a_program_that_was_reinstalled(harness: &Harness<'_>) {
    let path = harness.scratch_file("bad-child");
    let bad_child = harness.processes.bad_child(&[]);
    let mut command = harness.processes.command(&path);
    command.args(bad_child.get_args());
    let link = harness.link_to(command, long_timeouts());
    expect_eq(
        "the state of the link",
        link.not_ready().state,
        State::Parked,
    );
    symlink(bad_child.get_program(), &path).expect("a link to the program can be created");
    link.wake();
    expect_soon("the link is ready", || link.state() == State::Ready);
    link.server_pid();
    link.shut_down();
}

fn f_016_child_that_exits_on_its_first_three_starts_is_retried_until_ready(harness: &Harness<'_>) {
    let link = harness.link(&["fail-first=3", &harness.log_option()], long_timeouts());
    let reply = reply(link.tool("echo", json!({"text": "at last"})));
    expect_eq("the reply of the fourth child", reply.text(), "at last");
    expect_eq("the log of the children", harness.log_lines(), ["start"; 4]);
    expect_eq("the epoch", link.epoch().number(), 4);
    expect_exit(&link.ended(), ExitStatus::Code(7));
    link.shut_down();
}

/// Each start succeeds, but the child dies soon after: the budget still runs out.
fn f_016_child_that_dies_after_each_ready_exhausts_the_budget(harness: &Harness<'_>) {
    let config = long_timeouts();
    let epochs = u64::from(config.policy.retry.budget) + 1;
    let link = harness.link(&[], config);
    for epoch in 1..=epochs {
        link.wait_ready();
        expect_eq("the epoch", link.epoch().number(), epoch);
        failure(link.tool("die", json!({"how": "abort"})));
    }
    expect_soon("the link is parked", || link.state() == State::Parked);
    let failed = failure(link.tool("echo", json!({})));
    expect_eq("the kind of failure", &failed.kind, &FailureKind::Down);
    expect_parts("the failure", failed, &["signal 6 (SIGABRT)"]);
    harness.expect_no_processes();
    link.shut_down();
}

fn f_010_child_that_closed_stdin_is_replaced(harness: &Harness<'_>) {
    let link = harness.link(&["ignore-eof"], short_grace());
    let first = link.server_pid();
    reply(link.tool("close_stdin", json!({}))); // the child replies after it has closed its standard input
    let failed = failure(link.tool("echo", json!({})));
    expect_eq("the kind of failure", &failed.kind, &FailureKind::Lost);
    expect_parts("the failure", failed, &["the other end no longer reads"]);
    expect_ne("the process that answers", link.server_pid(), first);
    link.shut_down();
}

fn f_015_twenty_reconnects_never_run_two_children_at_once(harness: &Harness<'_>) {
    let link = harness.link(&[], long_timeouts());
    link.wait_ready();
    for epoch in 2..=21 {
        link.reconnect("once more");
        expect_soon(&format!("the link is ready in epoch {epoch}"), || {
            let alive = harness.processes.alive();
            expect("at most one child runs", alive.len() <= 1, &alive);
            link.epoch().number() == epoch && link.state() == State::Ready
        });
    }
    let stats = link.counters();
    let counts = (stats.opens, stats.failures, stats.abandoned);
    expect_eq("opens, failures and abandoned epochs", counts, (21, 0, 0));
    expect_exit(&link.shut_down(), ExitStatus::Code(0));
}

/// A leak of 1 MiB for each epoch or link exceeds the limit of 10 MiB.
fn memory_stays_flat_over_20_epochs_and_links(harness: &Harness<'_>) {
    let mut config = long_timeouts();
    config.policy.retry.stable_after = millis(0);
    let link = harness.link(&[], config.clone());
    let run_epochs = |epochs: usize| {
        for _ in 0..epochs {
            reply(link.tool("flood", json!({"bytes": 1 << 20})));
            failure(link.tool("die", json!({"how": "exit"})));
            let other = harness.link(&[], config.clone());
            reply(other.tool("flood", json!({"bytes": 1 << 20})));
            other.shut_down();
        }
    };
    run_epochs(4);
    let (_, before) = resident_bytes();
    run_epochs(20);
    let (_, after) = resident_bytes();
    expect(
        "memory grows by less than 10 MiB",
        after < before + (10 << 20),
        format_args!("{before} bytes became {after}"),
    );
    link.shut_down();
}
