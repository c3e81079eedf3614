//! Tests `everlink call`: its exit status, its output at a terminal, the answers of a person, and its options.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    EVERLINK, LIBRARY, SERVER, TempFile, Terminal, UnauthorizedServer, process_exists, program,
    run_everlink, text, wait_until,
};

#[test]
fn failed_call_does_not_announce_an_attempt_that_nobody_makes() {
    for json in [&[][..], &["--json"]] {
        let call: Vec<&str> = ["call", "echo"].iter().chain(json).copied().collect();
        let output = run_everlink(&call, &["sh", "-c", "exit 3"]);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(said.contains("it did not run"), "{said}");
        assert!(!said.contains("next attempt"), "{said}");
    }
}

#[test]
fn exit_status_tells_results_errors_usage_and_failures_apart() {
    let server = SERVER;
    let cases: [(&[&str], &[&str], i32, &str); 7] = [
        (
            &["call", "echo", r#"{"message":"hello"}"#],
            &server,
            0,
            "hello",
        ),
        (
            &["call", "fail", r#"{"message":"sorry"}"#],
            &server,
            1,
            "sorry",
        ),
        (&["call", "no_such_tool"], &server, 3, "no_such_tool"),
        (
            &["call", "echo", "{not json"],
            &server,
            2,
            "not a JSON object",
        ),
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
        let output = run_everlink(arguments, server);
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
        assert!(printed.contains(word), "{arguments:?}: {printed}");
    }
}

#[test]
fn complete_prints_the_values_for_a_prompt_and_sends_the_context_of_a_template() {
    let output = run_everlink(&["complete", "review", "isbn=97"], &LIBRARY);
    assert_eq!(text(&output.stdout), "978-0\n978-1\n");
    assert_eq!(output.status.code(), Some(0));
    let template = ["complete", "book:{year}/{isbn}", "isbn=", "year=1851"];
    let output = run_everlink(&template, &LIBRARY);
    assert_eq!(text(&output.stdout), "{\"year\":\"1851\"}\n");
    let output = run_everlink(&["complete", "review", "isbn=", "--json"], &LIBRARY);
    let result: Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
    assert_eq!(result["completion"]["values"][0], "978-0");
    // A server without completions.
    let output = run_everlink(&["complete", "review", "isbn="], &SERVER);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
}

#[test]
fn server_stderr_is_shown_or_written_to_a_file_if_asked_for() {
    let (command, log) = (
        "echo warming up >&2; exec \"$0\" demo-server",
        TempFile::new("call.log"),
    );
    let server = ["sh", "-c", command, EVERLINK];
    let cases: [(&[&str], &str); 4] = [
        (&[], ""),
        (&["--server-stderr", "inherit"], "warming up\n"),
        (&["--server-stderr", "prefix"], "[sh] warming up\n"),
        (&["--server-stderr", log.path()], ""),
    ];
    for (options, shown) in cases {
        for command in [&["call", "echo", "message=x"][..], &["inspect"]] {
            let output = run_everlink(&[command, options].concat(), &server);
            assert_eq!(output.status.code(), Some(0), "{options:?}");
            assert_eq!(text(&output.stderr), shown, "{command:?} {options:?}");
        }
    }
    assert_eq!(log.read(), "warming up\nwarming up\n");
}

#[test]
fn json_option_prints_a_failure_with_may_have_run() {
    let server = SERVER;
    let output = run_everlink(&["call", "die", r#"{"how":"exit"}"#, "--json"], &server);
    let printed = text(&output.stdout);
    let report: Value = serde_json::from_str(printed.trim_end()).expect("a line of JSON");
    assert_eq!(report["mayHaveRun"], true, "{report}");
    assert_eq!(output.status.code(), Some(5));
}

#[test]
fn terminal_user_answers_an_ask_and_sees_the_progress_bar() {
    let mut command = program();
    command.args(["call", "ask", "--"]).args(SERVER);
    let mut terminal = Terminal::start(&mut command);
    terminal.read_until("The server asks: What is your name?");
    terminal.read_until("name (text) [none]: ");
    terminal.type_text("Ada\n");
    terminal.read_until("Send this? [Y/n] ");
    terminal.type_text("\n");
    let (screen, output) = terminal.end();
    assert_eq!(output.status.code(), Some(0), "{screen}");
    let answer = text(&output.stdout);
    let answer: Value = serde_json::from_str(&answer).expect("the answer as JSON");
    assert_eq!(answer["action"], "accept", "{answer}");
    assert_eq!(answer["content"]["name"], "Ada", "{answer}");

    let mut command = program();
    command.args(["call", "progress", r#"{"steps":4}"#, "--"]);
    let (screen, output) = Terminal::start(command.args(SERVER)).end();
    assert_eq!(text(&output.stdout), "4 steps\n");
    assert!(screen.contains(" 100 % "), "{screen}");
    assert!(screen.ends_with("\r\n"), "the bar ends: {screen:?}");
}

#[test]
fn result_at_a_terminal_has_no_control_characters_and_a_pipe_gets_every_byte() {
    let message = "message=a\x1b[2J\u{9b}b\tc";
    let output = run_everlink(&["call", "echo", message], &SERVER);
    assert_eq!(text(&output.stdout), "a\x1b[2J\u{9b}b\tc\n");
    let mut command = program();
    command.args(["call", "echo", message, "--"]).args(SERVER);
    let (screen, output) = Terminal::start_with_output(&mut command).end();
    assert!(output.status.success(), "{screen}");
    assert!(screen.contains("a [2J b"), "{screen:?}");
    assert!(!screen.contains(['\x1b', '\u{9b}']), "{screen:?}");
}

/// The call is not retried, and the last lines of the server are printed once.
#[test]
fn server_exit_during_a_call_is_printed_once_without_retry() {
    for arguments in [&["how=flood"][..], &["how=flood", "number=1"]] {
        let output = run_everlink(&[&["call", "die"], arguments].concat(), &SERVER);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{printed}");
        assert_eq!(
            printed.matches("\n20000: something").count(),
            1,
            "{printed}"
        );
        assert!(!printed.contains("trying again"), "{printed}");
    }
}

#[test]
fn arguments_can_be_key_value_pairs() {
    let output = run_everlink(&["call", "echo", "message=hello=world"], &SERVER);
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(printed, "hello=world\n");
    assert_eq!(output.status.code(), Some(0));
    let output = run_everlink(&["call", "sleep", "ms=1"], &SERVER);
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(printed, "slept for 1 ms\n");
    let output = run_everlink(&["call", "sleep", "{}", "ms:=2"], &SERVER);
    assert_eq!(text(&output.stdout), "slept for 2 ms\n");
}

/// An ISBN looks like a number, but the schema of the tool says that it is text.
#[test]
fn key_value_arguments_have_the_type_of_the_input_schema() {
    let arguments = ["call", "order", "isbn=9780142437247", "count=3", "other=4"];
    let output = run_everlink(&arguments, &LIBRARY);
    let printed = text(&output.stdout) + &text(&output.stderr);
    let given: Value = serde_json::from_str(&printed).expect(&printed);
    let expected = serde_json::json!({"isbn": "9780142437247", "count": 3, "other": 4});
    assert_eq!(given, expected);
}

#[test]
fn read_prints_text_and_bytes_of_a_resource_unchanged() {
    let output = run_everlink(&["read", "book:text"], &LIBRARY);
    assert_eq!(text(&output.stdout), "Call me Ishmael.");
    assert_eq!(output.status.code(), Some(0));
    let output = run_everlink(&["read", "book:cover"], &LIBRARY);
    assert_eq!(output.stdout, [0, 255, 1]);
    let output = run_everlink(&["read", "book:text", "--json"], &LIBRARY);
    let result: Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
    assert_eq!(result["contents"][0]["uri"], "book:text");
    let output = run_everlink(&["read", "book:lost"], &LIBRARY);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("no such book"));
    // A server without resources fails the request at once.
    let output = run_everlink(&["read", "book:text"], &SERVER);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("does not offer"));
}

#[test]
fn prompt_prints_the_messages_with_their_roles() {
    let output = run_everlink(&["prompt", "review", "isbn=7"], &LIBRARY);
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(printed, "user: {\"isbn\":\"7\"}\n");
    assert_eq!(output.status.code(), Some(0));
    let output = run_everlink(&["prompt", "review", r#"{"isbn":"8"}"#, "--json"], &LIBRARY);
    let result: Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
    let text = &result["messages"][0]["content"]["text"];
    assert_eq!(text, r#"{"isbn":"8"}"#);
}

#[test]
fn progress_bar_is_not_printed_without_a_terminal() {
    let output = run_everlink(&["call", "progress", r#"{"steps":4}"#], &SERVER);
    assert_eq!(text(&output.stdout), "4 steps\n");
    assert_eq!(text(&output.stderr), "");
}

/// At a terminal, too: a person who is being asked need not answer first.
#[test]
fn interrupted_call_is_cancelled_and_reported_as_may_have_run() {
    let temp_file = TempFile::new("call-interrupted.pid");
    let mut command = program();
    command.args(["call", "ask", "--"]).args(temp_file.server());
    let mut terminal = Terminal::start(&mut command);
    terminal.read_until("name (text) [none]: ");
    let server = temp_file.pid();
    terminal.signal(Signal::INT);
    let (screen, output) = terminal.end();
    assert_eq!(output.status.code(), Some(5), "{screen}");
    assert!(screen.contains("may have run"), "{screen}");
    wait_until("the server is gone", || !process_exists(server));
}

#[test]
fn timeout_and_total_timeout_fail_a_call_with_different_reasons() {
    let cases: [(&[&str], &str); 2] = [
        (
            &["call", "sleep", r#"{"ms":600000}"#, "--timeout", "0.3"],
            "neither a reply nor progress came in time",
        ),
        (
            &[
                "call",
                "progress",
                r#"{"steps":600000,"ms":10}"#,
                "--total-timeout",
                "0.3",
            ],
            "took longer",
        ),
    ];
    for (arguments, words) in cases {
        let output = run_everlink(arguments, &SERVER);
        let printed = text(&output.stderr);
        assert!(printed.contains(words), "{arguments:?}: {printed}");
        assert!(matches!(output.status.code(), Some(4 | 5)), "{printed}");
    }
}

#[test]
fn server_runs_in_cwd_with_the_given_environment_variable() {
    let script = r#"echo "$NAME of $(pwd)" >&2; exit 1"#;
    let options = [
        "call",
        "echo",
        "--retries",
        "0",
        "--cwd",
        "/",
        "--env",
        "NAME=Ada",
    ];
    let output = run_everlink(&options, &["sh", "-c", script]);
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{printed}");
    assert!(printed.contains("Ada of /\n"), "{printed}");
}

#[test]
fn header_and_bearer_token_are_sent_to_the_server_and_not_printed() {
    let unauthorized_server = UnauthorizedServer::start();
    let mut command = program();
    command.args(["call", "echo", "--url", &unauthorized_server.url]);
    command.args(["--header", "X-Key: sesame-1", "--bearer-env", "THE_TOKEN"]);
    command.args(["--header-env", "FIRST", "--header-env", "SECOND"]);
    command.env("FIRST", "X-First: sesame-3");
    command.env("SECOND", "X-Second:sesame-4, and: more ");
    let output = command.env("THE_TOKEN", "sesame-2").output();
    let output = output.expect("the program starts");
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{printed}");
    assert!(printed.contains("wants credentials"), "{printed}");
    assert!(!printed.contains("sesame"), "{printed}");
    let head = unauthorized_server.head().to_lowercase();
    assert!(head.contains("x-key: sesame-1\r\n"), "{head}");
    assert!(head.contains("authorization: bearer sesame-2\r\n"));
    assert!(head.contains("x-first: sesame-3\r\n"), "{head}");
    assert!(head.contains("x-second: sesame-4, and: more\r\n"), "{head}");
}

#[test]
fn authorization_header_of_the_environment_prevents_a_sign_in() {
    let unauthorized_server = UnauthorizedServer::start();
    let mut command = program();
    command.args(["call", "echo", "--url", &unauthorized_server.url]);
    command.args(["--header-env", "FIELD"]);
    let output = command.env("FIELD", "authorization: Basic sesame").output();
    let output = output.expect("the program starts");
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{printed}");
    // No advice to run `everlink login`: the server refused the credentials that were given.
    assert!(!printed.contains("everlink login"), "{printed}");
    assert!(!printed.contains("sesame"), "{printed}");
    let head = unauthorized_server.head().to_lowercase();
    assert!(head.contains("authorization: basic sesame\r\n"), "{head}");
}

#[test]
fn call_exits_with_5_if_its_result_cannot_be_printed() {
    let Ok(full) = std::fs::File::create("/dev/full") else {
        return;
    };
    let mut command = program();
    command
        .args(["call", "pid", "--"])
        .args(SERVER)
        .stdout(full);
    let output = command.output().expect("the program starts");
    assert_eq!(output.status.code(), Some(5));
    assert!(text(&output.stderr).contains("standard output"));
}
