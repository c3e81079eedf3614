//! Whom children leave behind: processes that hold their pipes, that share their group, or that left it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use everlink::ExitStatus;
use everlink::client::{Cause, State};
use ordeal::settles;
use rustix::process::Signal;
use serde_json::json;

use crate::stage::{Stage, Use, failure, millis, ordeal, patient, stern};

#[test]
fn f_003_a_grandchild_that_holds_the_output_hides_no_death() {
    ordeal(|stage| {
        let link = stage.link(&["heir"], patient());
        let first = link.pid();
        let heir = [stage.member("loiter")];
        let died = failure(link.tool("die", json!({"how": "kill9"})).wait());
        assert!(died.to_string().contains("signal 9 (SIGKILL)"), "{died}");
        assert_ne!(link.pid(), first);
        // The new one was started only after all of the old one was gone.
        assert!(stage.are_gone(&heir));
        link.ends();
        stage.nobody_is_left();
    });
}

#[test]
fn f_012_what_outlives_its_wrapper_is_ended_and_started_anew() {
    ordeal(|stage| {
        let rascal = stage.family.rascal(&["ignore-eof"]);
        let mut wrapper = stage.family.command("sh");
        wrapper
            .args(["-c", r#""$0" ignore-eof; true"#])
            .arg(rascal.get_program());
        let link = stage.link_to(wrapper, stern());
        let first = link.pid();
        let shell = stage.family.members().into_iter().find(|it| it.has("-c"));
        let shell = shell.expect("the wrapper is there");
        assert_ne!(shell.pid, first, "the server is not its own wrapper");
        shell.signal(Signal::KILL);
        assert!(settles(
            || link.state() == State::Ready && link.epoch().number() > 1
        ));
        assert_ne!(link.pid(), first);
        let ended = link.last_end().expect("it ended");
        assert_eq!(ended.exit, Some(ExitStatus::Signal(9)), "{ended}");
        assert!(stage.family.members().iter().all(|it| it.pid != first));
        link.ends();
        stage.nobody_is_left();
    });
}

#[test]
fn f_012_kin_that_hold_nothing_end_with_the_link() {
    ordeal(|stage| {
        let link = stage.link(&["kin"], patient());
        link.is_well();
        let kin = stage.member("loiter");
        assert_eq!(kin.group, link.pid(), "it is of the same group");
        let ended = link.ends();
        assert_eq!(ended.exit, Some(ExitStatus::Code(0)), "{ended}");
        // They are nobody's to wait for: killed they are, and dead in a moment.
        stage.everybody_leaves();
    });
}

/// A process that moves to another process group stays in the session of the server, whoever its parent becomes.
#[test]
fn f_012_descendants_in_other_process_groups_end_with_the_link() {
    for manner in ["kin-apart", "kin-orphan"] {
        ordeal(|stage| {
            let link = stage.link(&[manner], patient());
            link.is_well();
            let is_apart = || {
                let apart = stage.family.members().into_iter();
                let mut apart = apart.filter(|it| it.has("loiter") && it.has("kin-apart"));
                apart.any(|it| it.group == it.pid)
            };
            assert!(settles(is_apart));
            let ended = link.ends();
            assert_eq!(ended.exit, Some(ExitStatus::Code(0)), "{ended}");
            stage.everybody_leaves();
        });
    }
}

#[test]
fn f_012_kin_that_ignore_sigterm_end_with_each_life() {
    ordeal(|stage| {
        let link = stage.link(&["heir", "ignore-term", "kin"], stern());
        for _ in 0..3 {
            link.is_well();
            let all = stage.family.members();
            failure(link.tool("die", json!({"how": "exit", "code": 5})).wait());
            assert!(settles(|| link.state() == State::Ready));
            assert!(settles(|| stage.are_gone(&all)));
        }
        link.ends();
        stage.everybody_leaves();
    });
}

/// The leader is what counts: whoever serves on the pipes that it left is nobody's child.
#[test]
fn a_child_that_forks_and_exits_is_dead_and_its_successor_is_ended() {
    ordeal(|stage| {
        let link = stage.link(&["fork", "ignore-eof"], stern());
        let call = link.tool("hang", json!({}));
        assert!(settles(|| link.state() == State::Parked));
        let failed = failure(call.wait());
        assert!(failed.to_string().contains("exit status 0"), "{failed}");
        stage.everybody_leaves();
        link.ends();
    });
}

/// The known hole: who leaves the session, and holds nothing, is not seen. Nothing waits for it, and it goes on.
#[test]
fn a_daemon_that_holds_nothing_goes_on_unseen() {
    ordeal(|stage| {
        let link = stage.link(&["daemon"], patient());
        link.is_well();
        let is_apart = || {
            let daemon = stage.member("loiter");
            daemon.group == daemon.pid
        };
        assert!(settles(is_apart));
        let ended = link.ends();
        assert_eq!(ended.exit, Some(ExitStatus::Code(0)));
        assert!(!ended.abandoned);
        let left = stage.family.members();
        assert_eq!(left.len(), 1, "{left:?}");
        left[0].signal(Signal::KILL);
    });
}

/// The same hole, but this one holds the output: the link cannot end it, and says so instead of waiting for it.
#[test]
fn a_daemon_that_holds_the_output_is_let_go_and_told_of() {
    ordeal(|stage| {
        let mut config = stern();
        config.policy.kill_grace = millis(50);
        let link = stage.link(&["daemon-heir"], config);
        link.is_well();
        let is_apart = || {
            let daemon = stage.member("loiter");
            daemon.group == daemon.pid
        };
        assert!(settles(is_apart));
        let ended = link.ends();
        assert!(ended.abandoned, "{ended:?}");
        assert!(ended.exit.is_some(), "the child itself is gone");
        assert!(
            ended.to_string().contains("something of it may still run"),
            "{ended}"
        );
        let left = stage.family.members();
        assert_eq!(left.len(), 1, "{left:?}");
        left[0].signal(Signal::KILL);
    });
}

/// A program that holds a link to what this command starts, and that is ready.
fn parent(stage: &Stage<'_>, farewell: &str, server: &Command) -> Child {
    let mut command = stage.family.command(env!("CARGO_BIN_EXE_parent"));
    command.args([stage.adapter, farewell]);
    command.arg(server.get_program()).args(server.get_args());
    let mut parent = command
        .stdout(Stdio::piped())
        .spawn()
        .expect("a program can be started");
    let said = parent.stdout.take().expect("it is piped");
    let line = BufReader::new(said).lines().next();
    assert_eq!(line.expect("it speaks").expect("in words"), "ready");
    parent
}

#[test]
fn f_013_a_child_dies_with_its_parent_whatever_it_ignores() {
    ordeal(|stage| {
        let rascal = stage.family.rascal(&["ignore-eof", "ignore-term"]);
        let mut parent = parent(stage, "wait", &rascal);
        assert_eq!(stage.family.members().len(), 2);
        parent.kill().expect("it is ours");
        parent.wait().expect("it is ours");
        stage.everybody_leaves();
    });
}

/// The system ties nobody but the child itself to the parent. What the child started ends with the pipes, if it looks at them.
#[test]
fn f_013_what_the_child_started_ends_with_its_input() {
    ordeal(|stage| {
        let rascal = stage.family.rascal(&[]);
        let mut wrapper = stage.family.command("sh");
        wrapper
            .args(["-c", r#""$0"; true"#])
            .arg(rascal.get_program());
        let mut parent = parent(stage, "wait", &wrapper);
        assert_eq!(stage.family.members().len(), 3);
        parent.kill().expect("it is ours");
        parent.wait().expect("it is ours");
        stage.everybody_leaves();
    });
}

#[test]
fn f_104_a_program_that_ends_without_a_word_leaves_no_child() {
    ordeal(|stage| {
        for farewell in ["drop", "forget"] {
            let rascal = stage.family.rascal(&["ignore-eof", "ignore-term"]);
            let mut parent = parent(stage, farewell, &rascal);
            assert!(parent.wait().expect("it is ours").success());
            stage.everybody_leaves();
        }
    });
}

#[test]
fn a_reconnect_takes_all_of_the_old_family_down() {
    ordeal(|stage| {
        let link = stage.link(&["heir", "kin"], patient());
        let first = link.pid();
        let all = stage.family.members();
        link.reconnect("to see who stays");
        assert!(settles(
            || link.state() == State::Ready && link.epoch().number() == 2
        ));
        assert_ne!(link.pid(), first);
        assert!(settles(|| stage.are_gone(&all)));
        let ended = link.last_end().expect("it ended");
        assert!(matches!(ended.cause, Cause::AskedTo { .. }), "{ended}");
        assert!(!ended.counted, "a planned close is free");
        link.ends();
    });
}
