//! Checks servers of the driver as children, whose handlers misuse the standard streams.

use std::process::{Command, Stdio};

use everlink::ExitStatus;
use serde_json::json;

use crate::check::{Check, Needs, check};
use crate::expect::{expect, expect_eq, expect_parts};
use crate::harness::{Harness, LinkExt, expect_exit, long_timeouts, reply};

pub(super) const CHECKS: &[Check] = &[
    check!(
        f_017_handler_use_of_standard_streams_does_not_reach_the_client,
        "A handler that prints, and runs programs that read and print, does not disturb the client.",
    )
    .needs(Needs::Server),
    check!(
        f_013_our_server_exits_when_its_pipes_close,
        "A client that closes both pipes without a request ends the server.",
    )
    .needs(Needs::Server),
];

fn noisy_server(harness: &Harness<'_>) -> Command {
    let mut server = harness.processes.helper("noisy-server");
    server.arg(harness.driver.name());
    server
}

/// The tool prints and runs programs that read and print, on non-blocking streams. The client sees none of it.
fn f_017_handler_use_of_standard_streams_does_not_reach_the_client(harness: &Harness<'_>) {
    let link = harness.link_to(noisy_server(harness), long_timeouts());
    let echo = |text: &str| link.tool("echo", json!({ "text": text }));
    let texts: Vec<String> = (0..20).map(|i| "x".repeat(i * 20_000)).collect();
    let echoes: Vec<_> = texts.iter().map(|text| (echo(text), text)).collect();
    for (echo, text) in echoes {
        let reply = reply(echo);
        let is_error = reply.is_error();
        expect("the program of the handler succeeds", !is_error, is_error);
        let len = reply.text().len();
        expect("the echo is complete", &reply.text() == text, len);
    }
    expect_eq("lines of noise", link.counters().noise, 0);
    let ended = link.shut_down();
    expect_exit(&ended, ExitStatus::Code(0));
    let parts = ["this is not for the client", "stolen"];
    expect_parts("standard error", &ended.stderr, &parts);
}

fn f_013_our_server_exits_when_its_pipes_close(harness: &Harness<'_>) {
    let mut child = noisy_server(harness)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a server can be started");
    drop(child.stdout.take());
    drop(child.stdin.take());
    let status = child.wait().expect("the child can be waited for");
    expect("the server exits with success", status.success(), status);
}
