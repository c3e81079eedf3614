//! The example drivers with real processes. One link lists, calls, kills its server with `kill -9`, and calls again. One
//! relay hides the death of its server from the host.
#![cfg(unix)]
#![allow(clippy::std_instead_of_core, reason = "a test has the whole of std")]

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// The path of a built example, in the target directory of the tests.
fn example(name: &str) -> PathBuf {
    let here = std::env::current_exe().expect("this is a program");
    let target = here
        .ancestors()
        .nth(2)
        .expect("the program is in target/*/deps");
    let program = target.join("examples").join(name);
    assert!(
        program.exists(),
        "{} is not built: run `cargo build --examples`",
        program.display()
    );
    program
}

fn drive(command: &[&str]) -> String {
    let finished = Command::new(example("drive_child"))
        .args(command)
        .output()
        .expect("the driver runs");
    assert!(finished.status.success(), "{finished:?}");
    String::from_utf8(finished.stdout).expect("the output is UTF-8")
}

/// Checks that these words occur in the text, in this order.
fn assert_in_order(text: &str, words: &[&str]) {
    let mut rest = text;
    for word in words {
        let at = rest
            .find(word)
            .unwrap_or_else(|| panic!("{word:?} does not come in this order in:\n{text}"));
        rest = &rest[at + word.len()..];
    }
}

#[test]
fn link_reconnects_by_itself_after_kill_9_of_a_real_server() {
    let server = example("echo_server");
    let output = drive(&[server.to_str().expect("a path of this project")]);
    assert_in_order(
        &output,
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
    // A call that was on its way to the dead server fails with the server's last output.
    if let Some(at) = output.find("failed after") {
        assert_in_order(&output[at..], &["may have run", "echo_server is listening"]);
    }
}

#[test]
fn link_reconnects_after_kill_9_of_a_shell_wrapper() {
    let server = example("echo_server");
    let script = format!("'{}'; true", server.display());
    let output = drive(&["sh", "-c", &script]);
    assert_in_order(
        &output,
        &["kill -9", "epoch: epoch 2", "the tool says", "Closed"],
    );
}

/// A host that writes lines to a relay in front of a real server, all in real processes.
struct Host {
    relay: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Host {
    fn spawn(server: &Path) -> Host {
        let mut relay = Command::new(example("guard_child"))
            .arg(server)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the relay runs");
        let stdout = relay.stdout.take().expect("the stream is piped");
        let lines = BufReader::new(stdout).lines();
        Host { relay, lines }
    }

    fn send(&mut self, line: &str) {
        let stdin = self.relay.stdin.as_mut().expect("the stream is piped");
        writeln!(stdin, "{line}").expect("the relay reads");
    }

    fn request(&mut self, id: u64, method: &str, params: &str) -> String {
        self.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#
        ));
        let line = self.lines.next().expect("the relay answers");
        let line = line.expect("the output is UTF-8");
        assert!(line.contains(&format!(r#""id":{id},"#)), "{line}");
        line
    }

    /// The process id in the result of the tool.
    fn pid(line: &str) -> &str {
        let at = line
            .find(r#""pid":"#)
            .unwrap_or_else(|| panic!("no pid in {line}"));
        line[at + 6..].split('}').next().expect("the text ends")
    }
}

#[test]
fn host_keeps_its_connection_when_the_server_behind_the_relay_is_killed() {
    let mut host = Host::spawn(&example("echo_server"));
    let params = r#"{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}"#;
    let reply = host.request(1, "initialize", params);
    assert!(reply.contains(r#""name":"echo_server""#), "{reply}");
    host.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);

    let call = r#"{"name":"echo","arguments":{"text":"hi"}}"#;
    let first = host.request(2, "tools/call", call);
    let killed = Command::new("kill")
        .args(["-9", Host::pid(&first)])
        .status();
    assert!(killed.expect("kill runs").success());
    // Either the relay has already seen the exit and the call waits for the next epoch, or the call fails and may
    // have run.
    let second = host.request(3, "tools/call", call);
    let third = host.request(4, "tools/call", call);
    if second.contains(r#""isError":true"#) {
        assert_in_order(&second, &["unknown", "may have run", "the server ended"]);
    } else {
        assert_eq!(Host::pid(&second), Host::pid(&third));
    }
    assert_ne!(Host::pid(&first), Host::pid(&third));

    drop(host.relay.stdin.take());
    assert!(host.lines.next().is_none(), "the relay writes nothing more");
    assert!(host.relay.wait().expect("the relay exits").success());
}
