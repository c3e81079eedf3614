//! `everlink call`, and what its exit status says; `everlink inspect` beside it.

use std::process::{Command, Output};

use serde_json::Value;

const EVERLINK: &str = env!("CARGO_BIN_EXE_everlink");

fn everlink(arguments: &[&str], server: &[&str]) -> Output {
    let mut command = Command::new(EVERLINK);
    command.args(arguments).arg("--").args(server);
    command.output().expect("the program can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_exit_status_says_what_came_of_it() {
    let server = [EVERLINK, "demo-server"];
    let cases: [(&[&str], &[&str], i32, &str); 6] = [
        (
            &["call", "echo", r#"{"message":"hello"}"#],
            &server,
            0,
            "hello",
        ),
        (&["call", "no_such_tool"], &server, 3, "no_such_tool"),
        (&["call", "echo", "{not json"], &server, 2, "no JSON"),
        (&["call", "echo", "--env", "NAME"], &server, 2, "NAME=VALUE"),
        (
            &["call", "echo", "--retries", "0"],
            &["/no/such/program"],
            4,
            "/no/such/program",
        ),
        (&["call", "die", r#"{"how":"kill"}"#], &server, 5, "SIGKILL"),
    ];
    for (arguments, server, code, word) in cases {
        let output = everlink(arguments, server);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}

#[test]
fn with_json_the_last_line_is_for_programs() {
    let server = [EVERLINK, "demo-server"];
    let output = everlink(&["call", "die", r#"{"how":"exit"}"#, "--json"], &server);
    let said = text(&output.stdout);
    let fact: Value = serde_json::from_str(said.trim_end()).expect("a line of JSON");
    assert_eq!(fact["mayHaveRun"], true, "{fact}");
    assert_eq!(output.status.code(), Some(5));
}

#[test]
fn inspect_says_who_the_server_is_and_what_it_offers() {
    let output = everlink(&["inspect", "--json"], &[EVERLINK, "demo-server"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let facts: Value = serde_json::from_str(said.trim_end()).expect("a line of JSON");
    assert_eq!(facts["server"]["name"], "everlink-demo");
    let tools = facts["tools"].as_array().expect("a list");
    assert!(tools.iter().any(|tool| tool["name"] == "echo"), "{facts}");
    assert_eq!(facts["prompts"], Value::Null, "they are not offered");
}
