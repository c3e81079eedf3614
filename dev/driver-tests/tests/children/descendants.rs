//! Tests processes that children leave behind: they hold pipes, share the process group, or left it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use driver_tests::wait_until;
use everlink::ExitStatus;
use everlink::client::{Cause, State};
use rustix::process::Signal;
use serde_json::json;

use crate::harness::{
    Harness, LinkExt, failure, for_each_adapter, long_timeouts, millis, short_grace,
};

#[test]
fn f_003_child_death_is_seen_while_a_grandchild_holds_stdout() {
    for_each_adapter(|harness| {
        let link = harness.link(&["stdout-holder"], long_timeouts());
        let first = link.server_pid();
        let stdout_holder = [harness.process_with_arg("sleep-only")];
        let died = failure(link.tool("die", json!({"how": "kill9"})).wait());
        assert!(died.to_string().contains("signal 9 (SIGKILL)"), "{died}");
        assert_ne!(link.server_pid(), first);
        // The new child is spawned only after every process of the old epoch is gone.
        assert!(harness.are_gone(&stdout_holder));
        link.shut_down();
        harness.assert_no_processes();
    });
}

#[test]
fn f_012_server_that_outlives_its_wrapper_is_killed_and_restarted() {
    for_each_adapter(|harness| {
        let bad_child = harness.processes.bad_child(&["ignore-eof"]);
        let mut wrapper = harness.processes.command("sh");
        wrapper
            .args(["-c", r#""$0" ignore-eof; true"#])
            .arg(bad_child.get_program());
        let link = harness.link_to(wrapper, short_grace());
        let first = link.server_pid();
        let shell = harness
            .processes
            .alive()
            .into_iter()
            .find(|it| it.has_arg("-c"));
        let shell = shell.expect("the wrapper is there");
        assert_ne!(shell.pid, first, "the server is a child of the wrapper");
        shell.signal(Signal::KILL);
        assert!(wait_until(
            || link.state() == State::Ready && link.epoch().number() > 1
        ));
        assert_ne!(link.server_pid(), first);
        let ended = link.last_end().expect("it ended");
        assert_eq!(ended.exit, Some(ExitStatus::Signal(9)), "{ended}");
        assert!(harness.processes.alive().iter().all(|it| it.pid != first));
        link.shut_down();
        harness.assert_no_processes();
    });
}

#[test]
fn f_012_descendant_in_the_group_is_killed_with_the_link() {
    for_each_adapter(|harness| {
        let link = harness.link(&["group-member"], long_timeouts());
        link.wait_ready();
        let helper = harness.process_with_arg("sleep-only");
        assert_eq!(
            helper.group,
            link.server_pid(),
            "both are in one process group"
        );
        let ended = link.shut_down();
        assert_eq!(ended.exit, Some(ExitStatus::Code(0)), "{ended}");
        // The driver kills them but cannot reap them, so they are gone a moment later.
        harness.wait_for_no_processes();
    });
}

/// A process in another process group stays in the server's session, even if its parent exits.
#[test]
fn f_012_descendants_in_other_process_groups_end_with_the_link() {
    for option in ["own-group", "own-group-orphan"] {
        for_each_adapter(|harness| {
            let link = harness.link(&[option], long_timeouts());
            link.wait_ready();
            let in_own_group = || {
                let helpers = harness.processes.alive().into_iter();
                let mut helpers =
                    helpers.filter(|it| it.has_arg("sleep-only") && it.has_arg("own-group"));
                helpers.any(|it| it.group == it.pid)
            };
            assert!(wait_until(in_own_group));
            let ended = link.shut_down();
            assert_eq!(ended.exit, Some(ExitStatus::Code(0)), "{ended}");
            harness.wait_for_no_processes();
        });
    }
}

#[test]
fn f_012_descendants_that_ignore_sigterm_are_killed_with_each_epoch() {
    for_each_adapter(|harness| {
        let link = harness.link(
            &["stdout-holder", "ignore-term", "group-member"],
            short_grace(),
        );
        for _ in 0..3 {
            link.wait_ready();
            let all = harness.processes.alive();
            failure(link.tool("die", json!({"how": "exit", "code": 5})).wait());
            assert!(wait_until(|| link.state() == State::Ready));
            assert!(wait_until(|| harness.are_gone(&all)));
        }
        link.shut_down();
        harness.wait_for_no_processes();
    });
}

/// Only the spawned child counts. A process that serves on its pipes after its exit is not our child.
#[test]
fn child_that_forks_and_exits_counts_as_dead_and_its_fork_is_killed() {
    for_each_adapter(|harness| {
        let link = harness.link(&["fork", "ignore-eof"], short_grace());
        let call = link.tool("hang", json!({}));
        assert!(wait_until(|| link.state() == State::Parked));
        let failed = failure(call.wait());
        assert!(failed.to_string().contains("exit status 0"), "{failed}");
        harness.wait_for_no_processes();
        link.shut_down();
    });
}

/// Known limit: the driver does not see a process that left the session and holds no pipe. That process survives.
#[test]
fn daemon_without_our_pipes_survives_shutdown() {
    for_each_adapter(|harness| {
        let link = harness.link(&["daemon"], long_timeouts());
        link.wait_ready();
        let in_own_group = || {
            let daemon = harness.process_with_arg("sleep-only");
            daemon.group == daemon.pid
        };
        assert!(wait_until(in_own_group));
        let ended = link.shut_down();
        assert_eq!(ended.exit, Some(ExitStatus::Code(0)));
        assert!(!ended.abandoned);
        let left = harness.processes.alive();
        assert_eq!(left.len(), 1, "{left:?}");
        left[0].signal(Signal::KILL);
    });
}

/// Known limit: the driver cannot kill this process. It does not wait for it, but reports that something may still run.
#[test]
fn daemon_that_holds_stdout_is_abandoned_and_reported() {
    for_each_adapter(|harness| {
        let mut config = short_grace();
        config.policy.kill_grace = millis(50);
        let link = harness.link(&["daemon-stdout-holder"], config);
        link.wait_ready();
        let in_own_group = || {
            let daemon = harness.process_with_arg("sleep-only");
            daemon.group == daemon.pid
        };
        assert!(wait_until(in_own_group));
        let ended = link.shut_down();
        assert!(ended.abandoned, "{ended:?}");
        assert!(ended.exit.is_some(), "the child itself is gone");
        assert!(
            ended.to_string().contains("something of it may still run"),
            "{ended}"
        );
        let left = harness.processes.alive();
        assert_eq!(left.len(), 1, "{left:?}");
        left[0].signal(Signal::KILL);
    });
}

/// Spawns a program that holds a link to a child of this command, and waits until the link is ready.
fn parent(harness: &Harness<'_>, ending: &str, server: &Command) -> Child {
    let mut command = harness.processes.command(env!("CARGO_BIN_EXE_parent"));
    command.args([harness.adapter, ending]);
    command.arg(server.get_program()).args(server.get_args());
    let mut parent = command
        .stdout(Stdio::piped())
        .spawn()
        .expect("a program can be started");
    let reply = parent.stdout.take().expect("it is piped");
    let line = BufReader::new(reply).lines().next();
    assert_eq!(
        line.expect("a line comes").expect("the line is text"),
        "ready"
    );
    parent
}

#[test]
fn f_013_child_that_ignores_eof_and_sigterm_dies_with_its_parent() {
    for_each_adapter(|harness| {
        let bad_child = harness.processes.bad_child(&["ignore-eof", "ignore-term"]);
        let mut parent = parent(harness, "wait", &bad_child);
        assert_eq!(harness.processes.alive().len(), 2);
        parent.kill().expect("the parent can be killed");
        parent.wait().expect("the parent can be reaped");
        harness.wait_for_no_processes();
    });
}

/// The system ties only the child itself to its parent. Other descendants exit when their pipes close, if they read them.
#[test]
fn f_013_grandchild_exits_on_eof_when_the_parent_is_killed() {
    for_each_adapter(|harness| {
        let bad_child = harness.processes.bad_child(&[]);
        let mut wrapper = harness.processes.command("sh");
        wrapper
            .args(["-c", r#""$0"; true"#])
            .arg(bad_child.get_program());
        let mut parent = parent(harness, "wait", &wrapper);
        assert_eq!(harness.processes.alive().len(), 3);
        parent.kill().expect("the parent can be killed");
        parent.wait().expect("the parent can be reaped");
        harness.wait_for_no_processes();
    });
}

#[test]
fn f_104_program_that_exits_without_shutdown_leaves_no_child() {
    for_each_adapter(|harness| {
        for ending in ["drop", "forget"] {
            let bad_child = harness.processes.bad_child(&["ignore-eof", "ignore-term"]);
            let mut parent = parent(harness, ending, &bad_child);
            assert!(parent.wait().expect("the parent can be reaped").success());
            harness.wait_for_no_processes();
        }
    });
}

#[test]
fn reconnect_kills_all_processes_of_the_old_epoch() {
    for_each_adapter(|harness| {
        let link = harness.link(&["stdout-holder", "group-member"], long_timeouts());
        let first = link.server_pid();
        let all = harness.processes.alive();
        link.reconnect("test");
        assert!(wait_until(
            || link.state() == State::Ready && link.epoch().number() == 2
        ));
        assert_ne!(link.server_pid(), first);
        assert!(wait_until(|| harness.are_gone(&all)));
        let ended = link.last_end().expect("it ended");
        assert!(matches!(ended.cause, Cause::AskedTo { .. }), "{ended}");
        assert!(!ended.counted, "a planned close is free");
        link.shut_down();
    });
}
