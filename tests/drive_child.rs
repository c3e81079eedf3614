//! The example driver with a real process: it lists, calls, kills with `kill -9`, and calls again, by itself.
#![cfg(unix)]
#![allow(clippy::std_instead_of_core, reason = "a test has the whole of std")]

use std::path::PathBuf;
use std::process::Command;

/// The program of an example, which lies beside the tests.
fn example(name: &str) -> PathBuf {
    let here = std::env::current_exe().expect("this is a program");
    let target = here.ancestors().nth(2).expect("it lies in target/*/deps");
    let program = target.join("examples").join(name);
    assert!(
        program.exists(),
        "{} is not built: run `cargo build --examples`",
        program.display()
    );
    program
}

fn drive(command: &[&str]) -> String {
    let driven = Command::new(example("drive_child"))
        .args(command)
        .output()
        .expect("the driver runs");
    assert!(driven.status.success(), "{driven:?}");
    String::from_utf8(driven.stdout).expect("it speaks UTF-8")
}

/// Whether these stand in the text, in this order.
fn follow_each_other(text: &str, words: &[&str]) {
    let mut rest = text;
    for word in words {
        let at = rest
            .find(word)
            .unwrap_or_else(|| panic!("{word:?} does not come in time in:\n{text}"));
        rest = &rest[at + word.len()..];
    }
}

#[test]
fn a_real_server_is_killed_and_the_link_comes_back_by_itself() {
    let server = example("echo_server");
    let said = drive(&[server.to_str().expect("a path of this project")]);
    follow_each_other(
        &said,
        &[
            "Ready(Session { epoch: epoch 1",
            "there are 1 tools",
            "the tool says",
            "kill -9",
            "Closing { epoch: epoch 1, cause: Died }",
            "Ended(Ended { epoch: epoch 1, cause: Died",
            "exit: Some(Signal(9))",
            "Opening { epoch: epoch 2, failures: 1 }",
            "Ready(Session { epoch: epoch 2",
            "the tool says",
            "Closing { epoch: epoch 2, cause: Shutdown }",
            "exit: Some(Code(0))",
            "Closed",
        ],
    );
    // A call that was on its way to the dead server is told what became of it, with its last words.
    if let Some(at) = said.find("failed after") {
        follow_each_other(&said[at..], &["may have run", "echo_server is listening"]);
    }
}

#[test]
fn a_wrapper_that_dies_does_not_take_the_link_with_it() {
    let server = example("echo_server");
    let script = format!("'{}'; true", server.display());
    let said = drive(&["sh", "-c", &script]);
    follow_each_other(
        &said,
        &["kill -9", "epoch: epoch 2", "the tool says", "Closed"],
    );
}
