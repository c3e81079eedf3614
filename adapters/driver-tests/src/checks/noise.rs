//! Checks children with unwanted or large output, and large requests to them.

use everlink::ExitStatus;
use everlink::client::{Event, FailureKind};
use serde_json::json;

use crate::check::{Check, check};
use crate::expect::{expect, expect_eq, expect_ne, expect_parts, expect_soon};
use crate::harness::{
    Harness, LinkExt, expect_exit, failure, long_timeouts, millis, reply, short_grace,
};

pub(super) const CHECKS: &[Check] = &[
    check!(
        f_005_child_that_floods_stderr_from_its_first_byte_serves_calls,
        "Standard error is always drained, so that a child that floods it can serve calls. Its last bytes are kept.",
    ),
    check!(
        f_004_child_that_floods_stderr_forever_can_be_shut_down,
        "A child that floods standard error for ever can be shut down.",
    ),
    check!(
        f_006_banner_lines_before_the_handshake_are_skipped_and_counted,
        "Lines on standard output that are no messages are skipped and counted.",
    ),
    check!(
        f_008_reply_above_the_size_limit_fails_its_call_and_keeps_the_child,
        "A reply above the size limit fails its own call only.",
    ),
    check!(
        replies_up_to_8_mib_arrive_complete,
        "Replies of all sizes around the size of a pipe, and up to 8 MiB, arrive complete.",
    ),
    check!(
        requests_up_to_4_mib_arrive_complete,
        "Requests of all sizes around the size of a pipe, and up to 4 MiB, arrive complete. A full pipe loses no byte.",
    ),
    check!(
        calls_fail_as_lost_when_the_child_dies_mid_line,
        "A child that dies in the middle of a line loses its calls, and their failures name its exit status.",
    ),
    check!(
        stderr_is_never_read_as_replies,
        "Lines on standard error are never read as replies, and each reply reaches its own caller.",
    ),
    check!(
        late_output_of_an_old_child_does_not_reach_the_new_epoch,
        "Bytes and the end of an old child's output are dropped once its epoch is released.",
    ),
];

/// F-004
fn f_005_child_that_floods_stderr_from_its_first_byte_serves_calls(harness: &Harness<'_>) {
    let config = long_timeouts();
    let tail = config.limits.stderr_tail;
    let link = harness.link(&["flood-stderr"], config);
    let reply = reply(link.tool("echo", json!({"text": "over here"})));
    expect_eq("the reply", reply.text(), "over here");
    let died = failure(link.tool("die", json!({"how": "exit", "code": 4})));
    let ended = died.ended.clone().expect("a lost call names the end");
    expect_exit(&ended, ExitStatus::Code(4));
    let len = ended.stderr.len();
    expect("the tail of standard error is bounded", len <= tail, len);
    expect_parts("the tail of standard error", &ended.stderr, &["!!!"]);
    expect_parts("the failure", died, &["!!!"]);
    link.shut_down();
}

fn f_004_child_that_floods_stderr_forever_can_be_shut_down(harness: &Harness<'_>) {
    let link = harness.link(&["ignore-eof", "flood-stderr"], short_grace());
    link.wait_ready();
    link.shut_down();
    harness.expect_no_processes();
}

fn f_006_banner_lines_before_the_handshake_are_skipped_and_counted(harness: &Harness<'_>) {
    for era in ["era=legacy", "era=modern"] {
        let link = harness.link(&["banner", era], long_timeouts());
        let mut events = link.events();
        let reply = reply(link.tool("echo", json!({"text": "hello"})));
        expect_eq("the reply", reply.text(), "hello");
        let noise = link.counters().noise;
        expect("at least 5 lines count as noise", noise >= 5, noise);
        let noise = std::iter::from_fn(|| events.try_recv());
        let noise = noise.filter(|event| matches!(**event, Event::Noise(_)));
        let reported = noise.count();
        expect("an event reports the noise", reported >= 1, reported);
        expect_exit(&link.shut_down(), ExitStatus::Code(0));
    }
}

fn f_008_reply_above_the_size_limit_fails_its_call_and_keeps_the_child(harness: &Harness<'_>) {
    let mut config = long_timeouts();
    config.limits.message_bytes = 1 << 20;
    let link = harness.link(&[], config);
    let pid = link.server_pid();
    let flood = |bytes: usize| link.tool("flood", json!({ "bytes": bytes }));
    let beside = flood(1 << 19);
    let failed = failure(flood(5 << 20));
    let is_too_large = matches!(failed.kind, FailureKind::TooLarge { bytes } if bytes > 5 << 20);
    expect("the reply is too large", is_too_large, failed);
    let len = reply(beside).text().len();
    expect_eq("the length of a smaller reply", len, 1 << 19);
    expect_eq("the process that answers", link.server_pid(), pid);
    link.shut_down();
}

fn replies_up_to_8_mib_arrive_complete(harness: &Harness<'_>) {
    let link = harness.link(&[], long_timeouts());
    let flood = |bytes: usize| link.tool("flood", json!({ "bytes": bytes }));
    let sizes = [1, 65_535, 65_536, 65_537, 1 << 20, 8 << 20];
    let floods: Vec<_> = sizes.iter().map(|bytes| (flood(*bytes), *bytes)).collect();
    for (flood, bytes) in floods {
        expect_eq("the length of a reply", reply(flood).text().len(), bytes);
    }
    link.shut_down();
}

fn requests_up_to_4_mib_arrive_complete(harness: &Harness<'_>) {
    let link = harness.link(&[], long_timeouts());
    for bytes in [1, 65_535, 65_536, 65_537, 1 << 20, 4 << 20] {
        let text = "x".repeat(bytes);
        let echo = reply(link.tool("echo", json!({ "text": text }))).text();
        expect(
            &format!("an echo of {bytes} bytes"),
            echo == text,
            format_args!("{} bytes", echo.len()),
        );
    }
    link.shut_down();
}

fn calls_fail_as_lost_when_the_child_dies_mid_line(harness: &Harness<'_>) {
    let link = harness.link(&[], long_timeouts());
    let pid = link.server_pid();
    let beside = link.tool("hang", json!({}));
    let died = failure(link.tool("half_line_then_die", json!({})));
    expect_eq("the kind of failure", &died.kind, &FailureKind::Lost);
    expect_parts("the failure", died, &["exit status 3"]);
    let beside = failure(beside).kind;
    expect_eq("the failure of another call", beside, FailureKind::Lost);
    expect_ne("the process that answers", link.server_pid(), pid);
    link.shut_down();
}

fn stderr_is_never_read_as_replies(harness: &Harness<'_>) {
    let link = harness.link(&["stderr-replies"], long_timeouts());
    let echo = |text: &str| link.tool("echo", json!({ "text": text }));
    let texts: Vec<String> = (0..100).map(|i| format!("{i} ").repeat(i * 20)).collect();
    let echoes: Vec<_> = texts.iter().map(|text| (echo(text), text)).collect();
    for (echo, text) in echoes {
        expect_eq("the echo", &reply(echo).text(), text);
    }
    let died = failure(link.tool("die", json!({"how": "abort"})));
    let ended = died.ended.clone().expect("a lost call names the end");
    expect_parts("the tail of standard error", &ended.stderr, &["fake"]);
    expect_exit(&ended, ExitStatus::Signal(6));
    // Standard error does not count as noise.
    expect_eq("lines of noise", link.counters().noise, 0);
    link.shut_down();
}

/// A process that left the session keeps the output of the first child open, and writes to it while the second child serves.
fn late_output_of_an_old_child_does_not_reach_the_new_epoch(harness: &Harness<'_>) {
    let trigger = harness.scratch_file("write");
    let writer = format!("daemon-stdout-writer={}", trigger.display());
    let mut config = short_grace();
    config.policy.kill_grace = millis(50);
    let link = harness.link(&[&writer, &harness.log_option()], config);
    link.wait_ready();
    let daemon = || harness.process_with_arg("sleep-only");
    expect_soon("the daemon leads a session", || {
        let daemon = daemon();
        daemon.group == daemon.pid
    });
    let daemon = daemon();
    link.reconnect("test");
    link.wait_ready_in(2);
    let pid = link.server_pid();
    std::fs::write(&trigger, "").expect("the file can be written");
    expect_soon("the daemon writes 50 lines, or its pipe is closed", || {
        let lines = harness.log_lines().into_iter();
        let written = lines.filter(|line| line == "wrote").count();
        written >= 50 || harness.are_gone(std::slice::from_ref(&daemon))
    });
    daemon.kill();
    expect_soon("the daemon is gone", || {
        harness.are_gone(std::slice::from_ref(&daemon))
    });
    expect_eq("the process that answers", link.server_pid(), pid);
    expect_eq("the epoch", link.epoch().number(), 2);
    expect_eq("lines of noise", link.counters().noise, 0);
    link.shut_down();
}
