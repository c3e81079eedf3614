//! Tests `everlink inspect`: its output for a server, and its error for a server that cannot be reached.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    EVERLINK, LIBRARY, RunningCommand, SERVER, TempFile, UnauthorizedServer, process_exists,
    run_everlink, text, wait_until,
};

#[test]
fn inspect_shows_the_server_identity_and_its_lists_as_json_and_text() {
    let output = run_everlink(&["inspect", "--json"], &SERVER);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    let report: Value = serde_json::from_str(printed.trim_end()).expect("a line of JSON");
    assert_eq!(report["server"]["name"], "everlink-demo");
    let tools = report["tools"].as_array().expect("a list");
    assert!(tools.iter().any(|tool| tool["name"] == "echo"), "{report}");
    assert_eq!(report["prompts"], Value::Null, "prompts are not offered");
    assert_eq!(report["odd"], serde_json::json!([]));

    let page = text(&run_everlink(&["inspect"], &SERVER).stdout);
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
    assert!(!page.contains("problem"), "{page}");
}

#[test]
fn inspect_shows_parameters_of_tools_and_prompts() {
    let page = text(&run_everlink(&["inspect"], &LIBRARY).stdout);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<_> = page.lines().map(words).collect();
    let index_of = |line: &str| {
        let index = lines.iter().position(|it| it == line);
        index.unwrap_or_else(|| panic!("`{line}` is not in {page}"))
    };
    let tool = index_of("order Orders a book");
    assert_eq!(index_of("isbn string, required Which book"), tool + 1);
    assert_eq!(index_of("count integer, optional (default: 1)"), tool + 2);
    assert_eq!(index_of("size one of small, large, optional"), tool + 3);
    let tail = &lines[index_of("review Reviews a book")..];
    assert_eq!(tail[1], "isbn string, required Which book");
    assert!(page.contains("everlink call TOOL name=value"), "{page}");
}

#[test]
fn inspect_exits_with_4_if_a_list_cannot_be_read_and_shows_the_others() {
    for arguments in [&["inspect"][..], &["inspect", "--json"]] {
        let output = run_everlink(arguments, &LIBRARY);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{printed}");
        assert!(
            printed.contains("the list of resource templates could not be read")
                && printed.contains("the catalogue is out of order"),
            "{printed}"
        );
        // The other lists are still shown.
        assert!(text(&output.stdout).contains("Orders a book"));
    }
}

/// The server reads its input and writes nothing. The limit is far below the default of two minutes for a handshake.
#[test]
fn timeout_option_limits_the_handshake_without_retry() {
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
        let output = run_everlink(&[arguments, &["--timeout", "0.5"]].concat(), &silent);
        let printed = text(&output.stderr);
        assert!(since.elapsed() < Duration::from_secs(30), "{printed}");
        assert_eq!(output.status.code(), Some(4), "{arguments:?}: {printed}");
        assert!(
            !printed.contains("trying again"),
            "{arguments:?}: {printed}"
        );
        if arguments == ["inspect"] {
            let reason = "did not finish the handshake";
            assert_eq!(printed.matches(reason).count(), 1, "{printed}");
            assert!(printed.contains("--timeout"), "{printed}");
            assert!(printed.contains("still loading"), "{printed}");
        }
    }
}

#[test]
fn inspect_shows_noise_of_the_server_as_a_problem() {
    let script = format!("echo 'Listening, \x1b[31mor so'; exec '{EVERLINK}' demo-server");
    let server = ["sh", "-c", &script];
    let page = text(&run_everlink(&["inspect"], &server).stdout);
    let (_, problem) = page.split_once("\nproblem: ").expect(&page);
    assert!(problem.contains("not JSON") && problem.contains("`Listening,  [31mor so`"));
    let report = text(&run_everlink(&["inspect", "--json"], &server).stdout);
    let report: Value = serde_json::from_str(report.trim_end()).expect("a line of JSON");
    assert_eq!(report["odd"].as_array().map(Vec::len), Some(1), "{report}");
}

#[test]
fn era_option_selects_the_protocol_version() {
    for (era, version) in [("legacy", "2025-11-25"), ("modern", "2026-07-28")] {
        let output = run_everlink(&["inspect", "--json", "--era", era], &SERVER);
        let report: Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
        assert_eq!(report["era"], era, "{report}");
        assert_eq!(report["version"], version, "{report}");
    }
}

#[test]
fn unreachable_server_exits_with_4_and_the_reason() {
    let cases: [(&[&str], &[&str], &str); 4] = [
        (&[], &["/no/such/server"], "`/no/such/server`"),
        (&[], &["sh", "-c", "echo no luck >&2; exit 7"], "no luck"),
        (&[], &["sh", "-c", "exit 7"], "exit status 7"),
        (&["--url", "http://127.0.0.1:1/mcp"], &[], "refused"),
    ];
    for (options, server, words) in cases {
        let output = run_everlink(&[&["inspect", "--retries", "0"], options].concat(), server);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{server:?}: {printed}");
        assert!(printed.starts_with("everlink: ") && printed.contains(words));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn each_failed_attempt_is_printed_before_the_retry() {
    let dying = ["sh", "-c", "exit 7"];
    for (retries, attempts) in [("0", 1), ("1", 2)] {
        let output = run_everlink(&["inspect", "--retries", retries], &dying);
        let printed = text(&output.stderr);
        assert_eq!(
            printed.matches("exit status 7").count(),
            attempts,
            "{printed}"
        );
        assert_eq!(
            printed.matches("trying again").count(),
            attempts - 1,
            "{printed}"
        );
    }
}

#[test]
fn missing_server_command_is_not_retried() {
    let output = run_everlink(&["inspect", "--retries", "5"], &["/no/such/server"]);
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{printed}");
    assert_eq!(printed.matches("`/no/such/server`").count(), 1, "{printed}");
    assert!(!printed.contains("trying again"), "{printed}");
}

#[test]
fn inspect_says_that_the_server_refused_the_given_credentials() {
    let unauthorized_server = UnauthorizedServer::start();
    let header = ["--header", "Authorization: Bearer wrong"];
    let url = ["--url", &unauthorized_server.url];
    let output = run_everlink(&[&["inspect"], &header[..], &url[..]].concat(), &[]);
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{printed}");
    assert!(printed.contains("refused those of"), "{printed}");
    assert!(!printed.contains("give it a token"), "{printed}");
}

#[test]
fn inspect_fails_with_a_hint_if_the_server_requires_credentials() {
    let unauthorized_server = UnauthorizedServer::start();
    let output = run_everlink(&["inspect", "--url", &unauthorized_server.url], &[]);
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{printed}");
    assert!(printed.contains("wants credentials"), "{printed}");
    assert!(printed.contains("--bearer-env"), "{printed}");
}

/// The server never answers.
#[test]
fn interrupted_inspect_exits_with_4_and_ends_its_server() {
    let temp_file = TempFile::new("inspect-interrupted.pid");
    let script = format!(
        "echo $$ >> '{}'; while read -r line; do :; done",
        temp_file.path()
    );
    let mut inspect = RunningCommand::start(&["inspect"], &["sh", "-c", &script]);
    let server = temp_file.pid();
    inspect.signal(Signal::INT);
    assert_eq!(inspect.wait_for_exit().code(), Some(4));
    wait_until("the server is gone", || !process_exists(server));
}
