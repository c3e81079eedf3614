//! Checks the end of a link: by a shutdown, by dropping its last handle, and by the end of its runtime.

use std::thread;

use everlink::ExitStatus;
use everlink::client::{Cause, Delivery, FailureKind, Misuse, State};
use everlink_handle::CallError;
use serde_json::json;

use crate::check::{Check, Needs, check};
use crate::expect::{await_soon, expect, expect_eq, expect_parts, expect_soon};
use crate::harness::{Harness, LinkExt, expect_exit, failure, long_timeouts, outcome, short_grace};

pub(super) const CHECKS: &[Check] = &[
    check!(
        s_stdio_15_child_that_exits_on_eof_is_not_signalled,
        "A shutdown closes the child's input and waits for its exit. Only then `shutdown` completes, with nothing left.",
    ),
    check!(
        f_011_child_that_ignores_eof_gets_sigterm,
        "A child that ignores the end of its input gets SIGTERM, and its exit names the signal.",
    ),
    check!(
        f_011_child_that_ignores_eof_and_sigterm_is_killed,
        "A child that ignores the end of its input and SIGTERM is killed, and its exit names the signal.",
    ),
    check!(
        f_014_shutdown_kills_a_child_that_is_still_starting,
        "A shutdown during the handshake ends the child, and calls that wait fail as not sent.",
    ),
    check!(
        calls_in_flight_fail_when_the_link_shuts_down,
        "A shutdown fails the calls in flight, and later calls are refused.",
    ),
    check!(
        f_104_dropping_the_last_handle_fails_calls_and_kills_the_child,
        "Dropping the last handle ends the link and its processes, without a shutdown.",
    ),
    check!(
        several_threads_can_wait_for_one_shutdown,
        "Several threads can wait for the shutdown of one link, and a closed link can be shut down again.",
    ),
    check!(
        unused_link_spawns_no_child,
        "A link that is not used spawns no child, and can be shut down or dropped.",
    ),
    check!(
        f_104_dropping_the_runtime_fails_calls_and_kills_children,
        "The end of a runtime fails the calls of its links and kills their children.",
    )
    .needs(Needs::RuntimeEnd),
];

fn s_stdio_15_child_that_exits_on_eof_is_not_signalled(harness: &Harness<'_>) {
    let link = harness.link(&[], long_timeouts());
    link.wait_ready();
    let ended = link.shut_down();
    expect_exit(&ended, ExitStatus::Code(0));
    expect_eq("the cause of the end", &ended.cause, &Cause::Shutdown);
    expect(
        "the end is planned and nothing is abandoned",
        !ended.counted && !ended.abandoned,
        &ended,
    );
    // `shutdown` resolves only after everything is gone.
    harness.expect_no_processes();
}

fn f_011_child_that_ignores_eof_gets_sigterm(harness: &Harness<'_>) {
    let mut config = short_grace();
    config.policy.terminate_grace = long_timeouts().policy.terminate_grace;
    let link = harness.link(&["ignore-eof"], config);
    link.wait_ready();
    expect_exit(&link.shut_down(), ExitStatus::Signal(15));
    harness.expect_no_processes();
}

fn f_011_child_that_ignores_eof_and_sigterm_is_killed(harness: &Harness<'_>) {
    let link = harness.link(&["ignore-eof", "ignore-term"], short_grace());
    link.wait_ready();
    let ended = link.shut_down();
    expect_exit(&ended, ExitStatus::Signal(9));
    expect("nothing is abandoned", !ended.abandoned, &ended);
    harness.expect_no_processes();
}

fn f_014_shutdown_kills_a_child_that_is_still_starting(harness: &Harness<'_>) {
    let link = harness.link(&["never-read", "ignore-term"], short_grace());
    let call = link.tool("echo", json!({}));
    harness.process_with_arg("never-read");
    expect_soon("the handshake begins", || {
        link.state() == State::Handshaking
    });
    expect_exit(&link.shut_down(), ExitStatus::Signal(9));
    harness.expect_no_processes();
    let failure = failure(call);
    expect_eq("the kind of failure", &failure.kind, &FailureKind::Closed);
    expect_eq("the delivery", failure.delivery, Delivery::NotSent);
}

fn calls_in_flight_fail_when_the_link_shuts_down(harness: &Harness<'_>) {
    let link = harness.link(&["ignore-eof", "ignore-term"], short_grace());
    link.wait_ready();
    let calls: Vec<_> = (0..10).map(|_| link.tool("hang", json!({}))).collect();
    // The reply to this later call proves that the server has read the calls above.
    link.server_pid();
    link.shut_down();
    for call in calls {
        let failure = failure(call);
        expect_eq("the delivery", failure.delivery, Delivery::Unknown);
        expect_parts("the failure", failure, &["the link was shut down"]);
    }
    let late = outcome(link.tool("echo", json!({})));
    let is_refused = matches!(late, Err(CallError::Misuse(Misuse::Closed)));
    expect("a call after the shutdown is refused", is_refused, late);
}

fn f_104_dropping_the_last_handle_fails_calls_and_kills_the_child(harness: &Harness<'_>) {
    let options = ["ignore-eof", "ignore-term", "group-member"];
    let link = harness.link(&options, short_grace());
    let clone = link.clone();
    link.wait_ready();
    let calls: Vec<_> = (0..10).map(|_| link.tool("hang", json!({}))).collect();
    drop(link);
    expect_eq("the state with a clone left", clone.state(), State::Ready);
    drop(clone);
    for call in calls {
        failure(call);
    }
}

fn several_threads_can_wait_for_one_shutdown(harness: &Harness<'_>) {
    let link = harness.link(&["stdout-holder", "ignore-eof"], short_grace());
    link.wait_ready();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| link.close());
        }
    });
    harness.expect_no_processes();
    // A second shutdown completes, too.
    link.close();
}

fn unused_link_spawns_no_child(harness: &Harness<'_>) {
    let link = harness.link(&[], long_timeouts());
    expect_eq("the state of an unused link", link.state(), State::Idle);
    link.close();
    expect(
        "no epoch existed",
        link.last_end().is_none(),
        link.last_end(),
    );
    drop(harness.link(&[], long_timeouts()));
}

fn f_104_dropping_the_runtime_fails_calls_and_kills_children(harness: &Harness<'_>) {
    let (mut links, mut calls) = (Vec::new(), Vec::new());
    harness.driver.run(&mut |connect| {
        for _ in 0..4 {
            let options = ["ignore-eof", "ignore-term", "group-member"];
            let bad_child = harness.processes.bad_child(&options);
            let link = connect(bad_child, long_timeouts()).expect("a link can be opened");
            calls.push(link.tool("hang", json!({})));
            // The reply to this later call proves that the server has read the call above.
            link.server_pid();
            links.push(link);
        }
    });
    for call in calls {
        let gone = outcome(call);
        let is_gone = matches!(gone, Err(CallError::Gone));
        expect("the call fails because its driver is gone", is_gone, gone);
    }
    for link in links {
        expect_eq("the state of the link", link.state(), State::Closed);
        let closed = await_soon("`shutdown` completes", link.shutdown());
        expect("a closed link can be shut down", closed.is_ok(), closed);
    }
    harness.wait_for_no_processes();
}
