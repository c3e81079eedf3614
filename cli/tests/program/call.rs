//! Tests `everlink call`: its exit status, its output at a terminal, the answers of a person, and its options.

use rustix::process::Signal;
use serde_json::Value;

use crate::props::{
    Bouncer, LIBRARY, Note, SERVER, Terminal, everlink, is_there, program, text, until,
};

#[test]
fn the_exit_status_says_what_came_of_it() {
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
        (&["call", "echo", "{not json"], &server, 2, "no JSON object"),
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
    let server = SERVER;
    let output = everlink(&["call", "die", r#"{"how":"exit"}"#, "--json"], &server);
    let said = text(&output.stdout);
    let fact: Value = serde_json::from_str(said.trim_end()).expect("a line of JSON");
    assert_eq!(fact["mayHaveRun"], true, "{fact}");
    assert_eq!(output.status.code(), Some(5));
}

#[test]
fn a_person_sees_how_far_it_is_and_can_answer() {
    let mut command = program();
    command.args(["call", "ask", "--"]).args(SERVER);
    let mut terminal = Terminal::start(&mut command);
    terminal.shows("The server asks: What is your name?");
    terminal.shows("name (text) [none]: ");
    terminal.types("Ada\n");
    terminal.shows("Send this? [Y/n] ");
    terminal.types("\n");
    let (screen, output) = terminal.end();
    assert_eq!(output.status.code(), Some(0), "{screen}");
    let answer = text(&output.stdout);
    let answer: Value = serde_json::from_str(&answer).expect("what the tool was told");
    assert_eq!(answer["action"], "accept", "{answer}");
    assert_eq!(answer["content"]["name"], "Ada", "{answer}");

    let mut command = program();
    command.args(["call", "progress", r#"{"steps":4}"#, "--"]);
    let (screen, output) = Terminal::start(command.args(SERVER)).end();
    assert_eq!(text(&output.stdout), "4 steps\n");
    assert!(screen.contains(" 100 % "), "{screen}");
    assert!(screen.ends_with("\r\n"), "the bar ends: {screen:?}");
}

/// The call is not retried, and the last lines of the server are printed once.
#[test]
fn the_end_of_a_server_under_a_call_is_told_once() {
    for arguments in [&["how=flood"][..], &["how=flood", "number=1"]] {
        let output = everlink(&[&["call", "die"], arguments].concat(), &SERVER);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{said}");
        assert_eq!(said.matches("\n20000: something").count(), 1, "{said}");
        assert!(!said.contains("trying again"), "{said}");
    }
}

#[test]
fn arguments_can_be_key_value_pairs() {
    let output = everlink(&["call", "echo", "message=hello=world"], &SERVER);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(said, "hello=world\n");
    assert_eq!(output.status.code(), Some(0));
    let output = everlink(&["call", "sleep", "ms=1"], &SERVER);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(said, "slept for 1 ms\n");
    let output = everlink(&["call", "sleep", "{}", "ms:=2"], &SERVER);
    assert_eq!(text(&output.stdout), "slept for 2 ms\n");
}

/// An ISBN looks like a number, but the schema of the tool says that it is text.
#[test]
fn key_value_arguments_have_the_type_of_the_input_schema() {
    let arguments = ["call", "order", "isbn=9780142437247", "count=3", "other=4"];
    let output = everlink(&arguments, &LIBRARY);
    let said = text(&output.stdout) + &text(&output.stderr);
    let given: Value = serde_json::from_str(&said).expect(&said);
    let expected = serde_json::json!({"isbn": "9780142437247", "count": 3, "other": 4});
    assert_eq!(given, expected);
}

#[test]
fn read_prints_text_and_bytes_of_a_resource_as_they_are() {
    let output = everlink(&["read", "book:text"], &LIBRARY);
    assert_eq!(text(&output.stdout), "Call me Ishmael.");
    assert_eq!(output.status.code(), Some(0));
    let output = everlink(&["read", "book:cover"], &LIBRARY);
    assert_eq!(output.stdout, [0, 255, 1]);
    let output = everlink(&["read", "book:text", "--json"], &LIBRARY);
    let result: Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
    assert_eq!(result["contents"][0]["uri"], "book:text");
    let output = everlink(&["read", "book:lost"], &LIBRARY);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("no such book"));
    // A server without resources fails the request at once.
    let output = everlink(&["read", "book:text"], &SERVER);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("does not offer"));
}

#[test]
fn prompt_prints_the_messages_with_their_roles() {
    let output = everlink(&["prompt", "review", "isbn=7"], &LIBRARY);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(said, "user: {\"isbn\":\"7\"}\n");
    assert_eq!(output.status.code(), Some(0));
    let output = everlink(&["prompt", "review", r#"{"isbn":"8"}"#, "--json"], &LIBRARY);
    let result: Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
    let said = &result["messages"][0]["content"]["text"];
    assert_eq!(said, r#"{"isbn":"8"}"#);
}

#[test]
fn nobody_sees_a_bar_where_there_is_no_terminal() {
    let output = everlink(&["call", "progress", r#"{"steps":4}"#], &SERVER);
    assert_eq!(text(&output.stdout), "4 steps\n");
    assert_eq!(text(&output.stderr), "");
}

/// At a terminal, too: a person who is being asked need not answer first.
#[test]
fn an_interrupted_call_is_cancelled_and_says_that_it_may_have_run() {
    let note = Note::new("call-interrupted.pid");
    let mut command = program();
    command.args(["call", "ask", "--"]).args(note.server());
    let mut terminal = Terminal::start(&mut command);
    terminal.shows("name (text) [none]: ");
    let server = note.pid();
    terminal.signal(Signal::INT);
    let (screen, output) = terminal.end();
    assert_eq!(output.status.code(), Some(5), "{screen}");
    assert!(screen.contains("may have run"), "{screen}");
    until("the server is gone", || !is_there(server));
}

#[test]
fn each_limit_is_its_own() {
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
        let output = everlink(arguments, &SERVER);
        let said = text(&output.stderr);
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert!(matches!(output.status.code(), Some(4 | 5)), "{said}");
    }
}

#[test]
fn the_server_runs_where_and_with_what_it_is_told() {
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
    let output = everlink(&options, &["sh", "-c", script]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("Ada of /\n"), "{said}");
}

#[test]
fn secrets_reach_the_server_and_nobody_else() {
    let bouncer = Bouncer::start();
    let mut command = program();
    command.args(["call", "echo", "--url", &bouncer.url]);
    command.args(["--header", "X-Key: sesame-1", "--bearer-env", "THE_TOKEN"]);
    let output = command.env("THE_TOKEN", "sesame-2").output();
    let output = output.expect("it can be started");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("wants credentials"), "{said}");
    assert!(!said.contains("sesame"), "{said}");
    let head = bouncer.head().to_lowercase();
    assert!(head.contains("x-key: sesame-1\r\n"), "{head}");
    assert!(head.contains("authorization: bearer sesame-2\r\n"));
}

#[test]
fn a_result_that_cannot_be_printed_is_not_known() {
    let Ok(full) = std::fs::File::create("/dev/full") else {
        return;
    };
    let mut command = program();
    command
        .args(["call", "pid", "--"])
        .args(SERVER)
        .stdout(full);
    let output = command.output().expect("it can be started");
    assert_eq!(output.status.code(), Some(5));
    assert!(text(&output.stderr).contains("standard output"));
}
