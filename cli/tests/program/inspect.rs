//! Tests `everlink inspect`: its output for a server, and its error for a server that cannot be reached.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::props::{
    Bouncer, EVERLINK, LIBRARY, Note, SERVER, Working, everlink, is_there, text, until,
};

#[test]
fn it_says_who_the_server_is_and_what_it_offers() {
    let output = everlink(&["inspect", "--json"], &SERVER);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let facts: Value = serde_json::from_str(said.trim_end()).expect("a line of JSON");
    assert_eq!(facts["server"]["name"], "everlink-demo");
    let tools = facts["tools"].as_array().expect("a list");
    assert!(tools.iter().any(|tool| tool["name"] == "echo"), "{facts}");
    assert_eq!(facts["prompts"], Value::Null, "they are not offered");
    assert_eq!(facts["odd"], serde_json::json!([]));

    let page = text(&everlink(&["inspect"], &SERVER).stdout);
    assert!(page.starts_with("everlink-demo "), "{page}");
    for line in [
        "speaks 2026-07-28 (modern)\n",
        "offers tools\n",
        "tools (9)\n",
        "Repeats the message\n",
        "\nresource templates: not offered\n",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    assert!(!page.contains("odd"), "{page}");
}

#[test]
fn parameters_of_tools_and_prompts_are_shown() {
    let page = text(&everlink(&["inspect"], &LIBRARY).stdout);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<_> = page.lines().map(words).collect();
    let place = |line: &str| {
        let place = lines.iter().position(|it| it == line);
        place.unwrap_or_else(|| panic!("`{line}` is not in {page}"))
    };
    let tool = place("order Orders a book");
    assert_eq!(place("isbn string, required Which book"), tool + 1);
    assert_eq!(place("count integer, optional (default: 1)"), tool + 2);
    assert_eq!(place("size one of small, large, optional"), tool + 3);
    let tail = &lines[place("review Reviews a book")..];
    assert_eq!(tail[1], "isbn string, required Which book");
    assert!(page.contains("everlink call TOOL name=value"), "{page}");
}

#[test]
fn a_list_that_cannot_be_read_makes_inspect_fail() {
    for arguments in [&["inspect"][..], &["inspect", "--json"]] {
        let output = everlink(arguments, &LIBRARY);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(
            said.contains("the list of resource templates could not be read")
                && said.contains("the catalogue is out of order"),
            "{said}"
        );
        // The other lists are still shown.
        assert!(text(&output.stdout).contains("Orders a book"));
    }
}

/// The server reads its input and writes nothing. The limit is far below the default of two minutes for a handshake.
#[test]
fn timeout_bounds_the_handshake_and_it_is_not_tried_again() {
    let silent = [
        "sh",
        "-c",
        "echo still loading >&2; while read -r line; do :; done",
    ];
    for arguments in [
        &["inspect"][..],
        &["call", "echo"],
        &["call", "echo", "count=3"],
        &["prompt", "greet"],
        &["read", "file:///x"],
    ] {
        let since = Instant::now();
        let output = everlink(&[arguments, &["--timeout", "0.5"]].concat(), &silent);
        let said = text(&output.stderr);
        assert!(since.elapsed() < Duration::from_secs(30), "{said}");
        assert_eq!(output.status.code(), Some(4), "{arguments:?}: {said}");
        assert!(!said.contains("trying again"), "{arguments:?}: {said}");
        if arguments == ["inspect"] {
            let reason = "did not finish the handshake";
            assert_eq!(said.matches(reason).count(), 1, "{said}");
            assert!(said.contains("--timeout"), "{said}");
            assert!(said.contains("still loading"), "{said}");
        }
    }
}

#[test]
fn what_is_odd_on_the_wire_is_shown() {
    let script = format!("echo 'Listening, \x1b[31mor so'; exec '{EVERLINK}' demo-server");
    let server = ["sh", "-c", &script];
    let page = text(&everlink(&["inspect"], &server).stdout);
    let (_, odd) = page.split_once("\nodd: ").expect(&page);
    assert!(odd.contains("not JSON") && odd.contains("`Listening,  [31mor so`"));
    let facts = text(&everlink(&["inspect", "--json"], &server).stdout);
    let facts: Value = serde_json::from_str(facts.trim_end()).expect("a line of JSON");
    assert_eq!(facts["odd"].as_array().map(Vec::len), Some(1), "{facts}");
}

#[test]
fn the_era_can_be_chosen() {
    for (era, version) in [("legacy", "2025-11-25"), ("modern", "2026-07-28")] {
        let output = everlink(&["inspect", "--json", "--era", era], &SERVER);
        let facts: Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
        assert_eq!(facts["era"], era, "{facts}");
        assert_eq!(facts["version"], version, "{facts}");
    }
}

#[test]
fn a_server_that_cannot_be_reached_is_named_with_the_reason() {
    let cases: [(&[&str], &[&str], &str); 4] = [
        (&[], &["/no/such/server"], "`/no/such/server`"),
        (&[], &["sh", "-c", "echo no luck >&2; exit 7"], "no luck"),
        (&[], &["sh", "-c", "exit 7"], "exit status 7"),
        (&["--url", "http://127.0.0.1:1/mcp"], &[], "refused"),
    ];
    for (options, server, words) in cases {
        let output = everlink(&[&["inspect", "--retries", "0"], options].concat(), server);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{server:?}: {said}");
        assert!(said.starts_with("everlink: ") && said.contains(words));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn each_attempt_that_fails_is_told_to_who_waits() {
    let dying = ["sh", "-c", "exit 7"];
    for (retries, attempts) in [("0", 1), ("1", 2)] {
        let output = everlink(&["inspect", "--retries", retries], &dying);
        let said = text(&output.stderr);
        assert_eq!(said.matches("exit status 7").count(), attempts, "{said}");
        assert_eq!(said.matches("trying again").count(), attempts - 1, "{said}");
    }
}

#[test]
fn a_command_that_does_not_exist_is_not_tried_again() {
    let output = everlink(&["inspect", "--retries", "5"], &["/no/such/server"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert_eq!(said.matches("`/no/such/server`").count(), 1, "{said}");
    assert!(!said.contains("trying again"), "{said}");
}

#[test]
fn nobody_waits_for_credentials_that_will_not_come() {
    let bouncer = Bouncer::start();
    let output = everlink(&["inspect", "--url", &bouncer.url], &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("wants credentials"), "{said}");
    assert!(said.contains("--bearer-env"), "{said}");
}

/// The server never answers.
#[test]
fn interrupted_it_leaves_nobody_behind() {
    let note = Note::new("inspect-interrupted.pid");
    let script = format!(
        "echo $$ >> '{}'; while read -r line; do :; done",
        note.path()
    );
    let mut inspect = Working::start(&["inspect"], &["sh", "-c", &script]);
    let server = note.pid();
    inspect.signal(Signal::INT);
    assert_eq!(inspect.ended().code(), Some(4));
    until("the server is gone", || !is_there(server));
}
