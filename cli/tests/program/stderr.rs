//! Tests how a guard shows its server's standard error, and text on the server's standard output.

use std::io::Read;
use std::process::{ChildStderr, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::guard::Host;
use crate::props::{EVERLINK, Note, PATIENCE, lines_of, text, until};

/// A server that writes these words to its standard error before it serves.
fn chatty(words: &str) -> [String; 3] {
    let script = format!("printf '{words}' >&2; exec '{EVERLINK}' demo-server");
    ["sh".into(), "-c".into(), script]
}

fn start(options: &[&str], server: &[impl AsRef<std::ffi::OsStr>]) -> (Host, ChildStderr) {
    let mut host = Host::start(Stdio::piped(), options, server);
    let stderr = host.process.stderr.take().expect("it is piped");
    (host, stderr)
}

/// Waits for a line that is exactly this.
fn wait_for(lines: &Receiver<String>, wanted: &str) {
    let mut heard = Vec::new();
    loop {
        let line = lines.recv_timeout(PATIENCE);
        let line = line.unwrap_or_else(|_| panic!("no `{wanted}` in {heard:#?}"));
        if line == wanted {
            return;
        }
        heard.push(line);
    }
}

/// Returns everything that the guard writes until it ends with its host.
fn rest(mut host: Host, mut stderr: ChildStderr) -> String {
    assert_eq!(host.leaves().code(), Some(0));
    let mut said = Vec::new();
    stderr.read_to_end(&mut said).expect("it can be read");
    text(&said)
}

#[test]
fn server_stderr_is_shown_while_the_server_runs() {
    for options in [&[][..], &["--log", "off"], &["--server-stderr", "inherit"]] {
        let (mut host, stderr) = start(options, &chatty("warming up\\n"));
        let lines = lines_of(stderr);
        host.meets_and_calls();
        wait_for(&lines, "warming up");
        assert_eq!(host.leaves().code(), Some(0));
    }
}

/// The server writes 20,000 lines and ends, while a call waits. Each line is shown exactly once.
#[test]
fn last_lines_of_a_server_that_dies_are_all_shown_and_only_once() {
    let (mut host, stderr) = start(&[], &[EVERLINK, "demo-server"]);
    let lines = lines_of(stderr);
    host.meets_and_calls();
    host.calls(3, "sleep", &json!({"ms": 600_000}));
    host.calls(4, "die", &json!({"how": "flood"}));
    for id in [3, 4] {
        let reply = host.hears(id);
        assert_eq!(reply["result"]["isError"], true, "{reply}");
    }
    assert_eq!(host.leaves().code(), Some(0));
    let lines: Vec<String> = lines.iter().collect();
    let shown = lines.iter().filter_map(|line| {
        let (number, _) = line.split_once(": something is very wrong in here")?;
        number.trim().parse::<u32>().ok()
    });
    let shown: Vec<u32> = shown.collect();
    assert_eq!(shown, (1..=20_000).collect::<Vec<_>>());
    let told = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
    assert!(told("exit status 71") > 0, "the end is told");
    assert_eq!(told("no reply: tools/call"), 2, "the lost calls are told");
}

#[test]
fn prefix_puts_the_name_of_the_server_before_each_line() {
    let options = ["--server-stderr", "prefix"];
    let (mut host, stderr) = start(&options, &chatty("one\\ntwo\\n"));
    let lines = lines_of(stderr);
    host.meets_and_calls();
    wait_for(&lines, "[sh] one");
    wait_for(&lines, "[sh] two");
    host.calls(3, "die", &json!({"how": "flood"}));
    host.hears(3);
    wait_for(
        &lines,
        "[everlink-demo] 20000: something is very wrong in here",
    );
    assert_eq!(host.leaves().code(), Some(0));
}

/// A line that the server did not end stays separate from the guard's lines, and is not lost when the server ends.
#[test]
fn log_lines_begin_on_a_line_of_their_own() {
    for (options, wanted) in [
        (&[][..], "half a line"),
        (&["--server-stderr", "prefix"], "[sh] half a line"),
    ] {
        let script = "printf 'half a line' >&2; exit 3";
        let (mut host, stderr) = start(options, &["sh", "-c", script]);
        let lines = lines_of(stderr);
        host.is_refused();
        wait_for(&lines, wanted);
        assert_eq!(host.leaves().code(), Some(0));
    }
}

#[test]
fn server_stderr_can_go_to_a_file_or_nowhere() {
    let file = Note::new("stderr-file.log");
    std::fs::write(&file.0, "before\n").expect("a file");
    for place in [file.path(), "off"] {
        let options = ["--server-stderr", place];
        let (mut host, stderr) = start(&options, &chatty("warming up\\n"));
        host.meets_and_calls();
        if place == file.path() {
            until("it is in the file", || {
                file.read() == "before\nwarming up\n"
            });
        }
        // The end of a server quotes its last lines, because they were not shown before. The failed call does not quote them again.
        host.calls(3, "die", &json!({"how": "kill"}));
        let reply = host.hears(3);
        assert_eq!(reply["result"]["isError"], true, "{reply}");
        let said = rest(host, stderr);
        let died = said.find("signal 9").expect("it is told");
        let quoted = said.matches("warming up").count();
        // Once for the killed server, and at most once for the next server, which ends with the host.
        assert!((1..=2).contains(&quoted), "{said}");
        assert!(said.find("warming up") > Some(died), "{said}");
    }
    assert_eq!(file.read().matches("before").count(), 1);
}

#[test]
fn file_for_server_stderr_that_cannot_be_opened_is_named() {
    let options = ["guard", "--server-stderr", "/no/such/directory/x"];
    let output = crate::props::everlink(&options, &[EVERLINK, "demo-server"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(
        said.contains("--server-stderr /no/such/directory/x"),
        "{said}"
    );
}

/// The server writes 5 MB that nobody reads. The host is served, and the count of missing bytes is exact.
#[test]
fn guard_serves_while_its_stderr_is_not_read_and_counts_what_is_missing() {
    let script = format!("yes 0123456 | head -c 5000000 >&2; exec '{EVERLINK}' demo-server");
    let options = ["--log", "off"];
    let (mut host, mut stderr) = start(&options, &["sh", "-c", &script]);
    host.meets_and_calls();
    let mut said = String::new();
    drop(host.says.take());
    stderr.read_to_string(&mut said).expect("it can be read");
    let words = " bytes of the server's stderr are not shown";
    let mut missing = 0;
    for line in said.lines().filter(|line| line.contains(words)) {
        let number = line.strip_prefix("everlink: ").expect("a notice");
        let (number, _) = number.split_once(' ').expect("a number");
        missing += number.parse::<usize>().expect("a number");
    }
    assert!(missing > 0, "more than can be held");
    let shown = said.lines().filter(|line| !line.contains(words));
    // Each line has its newline. If a gap begins in the middle of a line, the guard adds a newline.
    let shown: usize = shown.map(|line| line.len() + 1).sum();
    assert!((5_000_000..5_000_100).contains(&(shown + missing)));
    assert_eq!(host.ended().code(), Some(0));
}

#[test]
fn with_json_log_each_line_of_the_server_is_an_object() {
    let options = ["--log", "json"];
    let (mut host, stderr) = start(&options, &chatty("warming up\\n{\"not\":\"ours\"}\\n"));
    host.meets_and_calls();
    let said = rest(host, stderr);
    let facts = said.lines().map(serde_json::from_str::<Value>);
    let facts: Vec<Value> = facts.collect::<Result<_, _>>().expect("lines of JSON");
    let lines: Vec<_> = facts
        .iter()
        .filter_map(|it| it["stderr"].as_str())
        .collect();
    assert_eq!(lines, ["warming up", r#"{"not":"ours"}"#]);
    assert!(facts.iter().all(|fact| fact["seconds"].is_number()));
}

#[test]
fn text_on_stdout_is_shown_once_with_what_to_do_and_then_counted() {
    let script = format!(
        "echo 'Starting on port 3000'; echo 'Loaded 7 plugins'; echo 'Up'; exec '{EVERLINK}' demo-server"
    );
    let (mut host, stderr) = start(&[], &["sh", "-c", &script]);
    host.meets_and_calls();
    // The next server writes the same text.
    host.calls(3, "die", &json!({"how": "kill"}));
    host.hears(3);
    host.calls(4, "echo", &json!({"message": "again"}));
    assert_eq!(host.hears(4)["result"]["content"][0]["text"], "again");
    let said = rest(host, stderr);
    assert_eq!(said.matches("Starting on port 3000").count(), 1, "{said}");
    let line = said.lines().find(|line| line.contains("Starting on port"));
    let line = line.expect("it is shown");
    assert!(line.contains("should write such text to stderr"), "{line}");
    assert!(!said.contains("Loaded 7 plugins"), "{said}");
    for connection in 1..=2 {
        let count = format!("lines on the stdout of connection {connection} that were ignored: 3");
        assert_eq!(said.matches(&count).count(), 1, "{said}");
    }
}

/// The log uses words that people know, and not the terms of this project.
#[test]
fn guard_log_is_in_plain_words() {
    let note = Note::new("stderr-words.pid");
    let (mut host, stderr) = start(&[], &note.server());
    let lines = lines_of(stderr);
    host.meets_and_calls();
    kill_process(note.pid(), Signal::KILL).expect("it is there");
    let mut said = String::new();
    while !said.contains("server: connection 2 is ready: everlink-demo") {
        said += &lines.recv_timeout(PATIENCE).expect(&said);
        said.push('\n');
    }
    assert_eq!(host.leaves().code(), Some(0));
    while let Ok(line) = lines.recv_timeout(Duration::from_secs(10)) {
        said += &line;
        said.push('\n');
    }
    assert!(said.contains("host: host 1 connected and speaks"), "{said}");
    for word in ["epoch", "behind", "in front", "noise", "a while", "life"] {
        assert!(!said.contains(word), "{word}: {said}");
    }
}
