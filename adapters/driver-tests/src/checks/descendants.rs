//! Checks processes that children leave behind: they hold pipes, share the process group, or left it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use everlink::ExitStatus;
use everlink::client::{Cause, State};
use serde_json::json;

use crate::check::{Check, check};
use crate::expect::{expect, expect_eq, expect_ne, expect_parts, expect_soon};
use crate::harness::{Harness, LinkExt, expect_exit, failure, long_timeouts, millis, short_grace};

pub(super) const CHECKS: &[Check] = &[
    check!(
        f_003_child_death_is_seen_while_a_grandchild_holds_stdout,
        "The exit of a child is reported although a grandchild holds its output. The next child starts after both are gone.",
    ),
    check!(
        f_012_server_that_outlives_its_wrapper_is_killed_and_restarted,
        "When a wrapper dies, the server that it started is killed, and both are started again.",
    ),
    check!(
        f_012_descendant_in_the_group_is_killed_with_the_link,
        "A descendant in the process group ends with the link, although the child itself exits on its own.",
    ),
    check!(
        f_012_descendant_in_another_process_group_ends_with_the_link,
        "A descendant that moved to its own process group ends with the link.",
    ),
    check!(
        f_012_orphan_in_another_process_group_ends_with_the_link,
        "A descendant in its own process group ends with the link, even if its parent has exited.",
    ),
    check!(
        f_012_descendants_that_ignore_sigterm_are_killed_with_each_epoch,
        "Descendants that ignore SIGTERM are killed at the end of each epoch.",
    ),
    check!(
        child_that_forks_and_exits_counts_as_dead_and_its_fork_is_killed,
        "Only the spawned child counts: a process that serves on its pipes after its exit is killed.",
    ),
    check!(
        daemon_without_our_pipes_survives_shutdown,
        "A known limit: a process that left the session and holds no pipe survives, and the shutdown does not wait for it.",
    ),
    check!(
        daemon_that_holds_stdout_is_abandoned_and_reported,
        "A process that left the session and holds a pipe does not block the shutdown, which reports that something may still run.",
    ),
    check!(
        f_013_child_that_ignores_eof_and_sigterm_dies_with_its_parent,
        "A child that ignores everything dies when its parent is killed.",
    ),
    check!(
        f_013_grandchild_exits_on_eof_when_the_parent_is_killed,
        "The pipes of a child close when its parent is killed, so that grandchildren that read them exit.",
    ),
    check!(
        f_104_program_that_exits_without_shutdown_leaves_no_child,
        "A program that exits without a shutdown leaves no child behind.",
    ),
    check!(
        reconnect_kills_all_processes_of_the_old_epoch,
        "A reconnect ends all processes of the old epoch, and costs nothing of the retry budget.",
    ),
];

fn f_003_child_death_is_seen_while_a_grandchild_holds_stdout(harness: &Harness<'_>) {
    let link = harness.link(&["stdout-holder"], long_timeouts());
    let first = link.server_pid();
    let stdout_holder = [harness.process_with_arg("sleep-only")];
    let died = failure(link.tool("die", json!({"how": "kill9"})));
    expect_parts("the failure", died, &["signal 9 (SIGKILL)"]);
    expect_ne("the process that answers", link.server_pid(), first);
    // The new child is spawned only after every process of the old epoch is gone.
    let is_gone = harness.are_gone(&stdout_holder);
    expect("the grandchild is gone", is_gone, &stdout_holder);
    link.shut_down();
    harness.expect_no_processes();
}

fn f_012_server_that_outlives_its_wrapper_is_killed_and_restarted(harness: &Harness<'_>) {
    let wrapper = wrapper(harness, &harness.processes.bad_child(&["ignore-eof"]));
    let link = harness.link_to(wrapper, short_grace());
    let first = link.server_pid();
    let shell = harness.process_with_arg("-c");
    // The server is a child of the wrapper.
    expect_ne("the process that answers", first, shell.pid);
    shell.kill();
    expect_soon("the link is ready in another epoch", || {
        link.state() == State::Ready && link.epoch().number() > 1
    });
    expect_ne("the process that answers", link.server_pid(), first);
    expect_exit(&link.ended(), ExitStatus::Signal(9));
    let mut alive = harness.processes.alive();
    alive.retain(|it| it.pid == first);
    expect_eq("servers of the old epoch", alive, []);
    link.shut_down();
    harness.expect_no_processes();
}

/// A shell that runs this server and waits for it.
fn wrapper(harness: &Harness<'_>, server: &Command) -> Command {
    let mut wrapper = harness.processes.command("sh");
    wrapper.args(["-c", r#""$0" "$@"; true"#]);
    wrapper.arg(server.get_program()).args(server.get_args());
    wrapper
}

fn f_012_descendant_in_the_group_is_killed_with_the_link(harness: &Harness<'_>) {
    let link = harness.link(&["group-member"], long_timeouts());
    link.wait_ready();
    let helper = harness.process_with_arg("sleep-only");
    let leader = link.server_pid();
    expect_eq("the process group of the helper", helper.group, leader);
    expect_exit(&link.shut_down(), ExitStatus::Code(0));
    // The driver kills them but cannot reap them, so they are gone a moment later.
    harness.wait_for_no_processes();
}

fn f_012_descendant_in_another_process_group_ends_with_the_link(harness: &Harness<'_>) {
    end_with_descendant_in_own_group(harness, "own-group");
}

fn f_012_orphan_in_another_process_group_ends_with_the_link(harness: &Harness<'_>) {
    end_with_descendant_in_own_group(harness, "own-group-orphan");
}

/// A process that moves to another process group stays in the server's session, even if its parent exits. A driver that kills the
/// session reaches it.
fn end_with_descendant_in_own_group(harness: &Harness<'_>, option: &str) {
    let link = harness.link(&[option], long_timeouts());
    link.wait_ready();
    expect_soon("a helper leads its own process group", || {
        let helpers = harness.processes.alive().into_iter();
        let mut helpers = helpers.filter(|it| it.has_arg("sleep-only") && it.has_arg("own-group"));
        helpers.any(|it| it.group == it.pid)
    });
    expect_exit(&link.shut_down(), ExitStatus::Code(0));
    harness.wait_for_no_processes();
}

fn f_012_descendants_that_ignore_sigterm_are_killed_with_each_epoch(harness: &Harness<'_>) {
    let options = ["stdout-holder", "ignore-term", "group-member"];
    let link = harness.link(&options, short_grace());
    for _ in 0..3 {
        link.wait_ready();
        let all = harness.processes.alive();
        failure(link.tool("die", json!({"how": "exit", "code": 5})));
        expect_soon("the link is ready again", || link.state() == State::Ready);
        expect_soon("all processes of the old epoch are gone", || {
            harness.are_gone(&all)
        });
    }
    link.shut_down();
    harness.wait_for_no_processes();
}

fn child_that_forks_and_exits_counts_as_dead_and_its_fork_is_killed(harness: &Harness<'_>) {
    let link = harness.link(&["fork", "ignore-eof"], short_grace());
    let call = link.tool("hang", json!({}));
    expect_soon("the link is parked", || link.state() == State::Parked);
    expect_parts("the failure", failure(call), &["exit status 0"]);
    harness.wait_for_no_processes();
    link.shut_down();
}

fn daemon_without_our_pipes_survives_shutdown(harness: &Harness<'_>) {
    let link = harness.link(&["daemon"], long_timeouts());
    link.wait_ready();
    wait_for_daemon(harness);
    let ended = link.shut_down();
    expect_exit(&ended, ExitStatus::Code(0));
    expect("nothing is abandoned", !ended.abandoned, &ended);
    kill_only_survivor(harness);
}

fn daemon_that_holds_stdout_is_abandoned_and_reported(harness: &Harness<'_>) {
    let mut config = short_grace();
    config.policy.kill_grace = millis(50);
    let link = harness.link(&["daemon-stdout-holder"], config);
    link.wait_ready();
    wait_for_daemon(harness);
    let ended = link.shut_down();
    expect("the daemon is abandoned", ended.abandoned, &ended);
    expect(
        "the exit of the child is known",
        ended.exit.is_some(),
        &ended,
    );
    let parts = ["something of it may still run"];
    expect_parts("the end of the epoch", ended, &parts);
    kill_only_survivor(harness);
}

fn wait_for_daemon(harness: &Harness<'_>) {
    expect_soon("the daemon leads a session", || {
        let daemon = harness.process_with_arg("sleep-only");
        daemon.group == daemon.pid
    });
}

/// Expects that exactly one process is left, and kills it.
fn kill_only_survivor(harness: &Harness<'_>) {
    let left = harness.processes.alive();
    expect("only the daemon is left", left.len() == 1, &left);
    left[0].kill();
}

/// Spawns a program that holds a link to a child of this command, and waits until the link is ready.
fn parent(harness: &Harness<'_>, ending: &str, server: &Command) -> Child {
    let mut command = harness.processes.helper("parent");
    command.args([harness.driver.name(), ending]);
    command.arg(server.get_program()).args(server.get_args());
    let mut parent = command
        .stdout(Stdio::piped())
        .spawn()
        .expect("a program can be started");
    let output = parent.stdout.take().expect("it is piped");
    let line = BufReader::new(output).lines().next().transpose();
    let line = line.expect("the output can be read");
    expect_eq("the output of the parent", line.as_deref(), Some("ready"));
    parent
}

fn f_013_child_that_ignores_eof_and_sigterm_dies_with_its_parent(harness: &Harness<'_>) {
    let bad_child = harness.processes.bad_child(&["ignore-eof", "ignore-term"]);
    let mut parent = parent(harness, "wait", &bad_child);
    let alive = harness.processes.alive();
    expect("the parent and the child run", alive.len() == 2, &alive);
    parent.kill().expect("the parent can be killed");
    parent.wait().expect("the parent can be reaped");
    harness.wait_for_no_processes();
}

/// The system ties only the child itself to its parent. Other descendants exit when their pipes close, if they read them.
fn f_013_grandchild_exits_on_eof_when_the_parent_is_killed(harness: &Harness<'_>) {
    let wrapper = wrapper(harness, &harness.processes.bad_child(&[]));
    let mut parent = parent(harness, "wait", &wrapper);
    let alive = harness.processes.alive();
    let is_complete = alive.len() == 3;
    expect("parent, wrapper and server run", is_complete, &alive);
    parent.kill().expect("the parent can be killed");
    parent.wait().expect("the parent can be reaped");
    harness.wait_for_no_processes();
}

fn f_104_program_that_exits_without_shutdown_leaves_no_child(harness: &Harness<'_>) {
    for ending in ["drop", "forget"] {
        let bad_child = harness.processes.bad_child(&["ignore-eof", "ignore-term"]);
        let mut parent = parent(harness, ending, &bad_child);
        let status = parent.wait().expect("the parent can be reaped");
        expect("the program exits with success", status.success(), status);
        harness.wait_for_no_processes();
    }
}

fn reconnect_kills_all_processes_of_the_old_epoch(harness: &Harness<'_>) {
    let link = harness.link(&["stdout-holder", "group-member"], long_timeouts());
    let first = link.server_pid();
    let all = harness.processes.alive();
    link.reconnect("test");
    link.wait_ready_in(2);
    expect_ne("the process that answers", link.server_pid(), first);
    expect_soon("all processes of the old epoch are gone", || {
        harness.are_gone(&all)
    });
    let ended = link.ended();
    let is_asked = matches!(ended.cause, Cause::AskedTo { .. });
    expect("the cause of the end is the reconnect", is_asked, &ended);
    expect("a planned close is free", !ended.counted, &ended);
    link.shut_down();
}
