//! Tests how a guard shows its server's standard error, and text on the server's standard output.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::guard::Host;
use crate::support::{EVERLINK, TIMEOUT, TempFile, lines_of, text, wait_until};

/// A server that writes these words to its standard error before it serves.
fn server_with_stderr(words: &str) -> [String; 3] {
    let script = format!("printf '{words}' >&2; exec '{EVERLINK}' demo-server");
    ["sh".into(), "-c".into(), script]
}

fn start(options: &[&str], server: &[impl AsRef<std::ffi::OsStr>]) -> (Host, ChildStderr) {
    let mut host = Host::start(Stdio::piped(), options, server);
    let stderr = host.process.stderr.take().expect("a pipe");
    (host, stderr)
}

/// Waits for a line that is exactly this.
fn wait_for(lines: &Receiver<String>, wanted: &str) {
    wait_until_a_line(lines, wanted, |line| line == wanted);
}

fn wait_until_a_line(lines: &Receiver<String>, wanted: &str, is_it: impl Fn(&str) -> bool) {
    let mut skipped = Vec::new();
    loop {
        let line = lines.recv_timeout(TIMEOUT);
        let line = line.unwrap_or_else(|_| panic!("no `{wanted}` in {skipped:#?}"));
        if is_it(&line) {
            return;
        }
        skipped.push(line);
    }
}

/// Returns everything that the guard writes until it ends with its host.
fn remaining_output(mut host: Host, mut stderr: ChildStderr) -> String {
    assert_eq!(host.disconnect().code(), Some(0));
    let mut output = Vec::new();
    stderr.read_to_end(&mut output).expect("a pipe");
    text(&output)
}

#[test]
fn server_stderr_is_shown_while_the_server_runs() {
    for options in [&[][..], &["--log", "off"], &["--server-stderr", "inherit"]] {
        let (mut host, stderr) = start(options, &server_with_stderr("warming up\\n"));
        let lines = lines_of(stderr);
        host.handshake_and_echo();
        wait_for(&lines, "warming up");
        assert_eq!(host.disconnect().code(), Some(0));
    }
}

/// The server writes 20,000 lines and ends, while a call waits. Each line is shown exactly once.
#[test]
fn every_stderr_line_of_a_server_that_exits_is_shown_once() {
    let (mut host, stderr) = start(&[], &[EVERLINK, "demo-server"]);
    let lines = lines_of(stderr);
    host.handshake_and_echo();
    host.send_call(3, "sleep", &json!({"ms": 600_000}));
    host.send_call(4, "die", &json!({"how": "flood"}));
    for id in [3, 4] {
        let reply = host.receive(id);
        assert_eq!(reply["result"]["isError"], true, "{reply}");
    }
    assert_eq!(host.disconnect().code(), Some(0));
    let lines: Vec<String> = lines.iter().collect();
    let shown = lines.iter().filter_map(|line| {
        let (number, _) = line.split_once(": something is very wrong in here")?;
        number.trim().parse::<u32>().ok()
    });
    let shown: Vec<u32> = shown.collect();
    assert_eq!(shown, (1..=20_000).collect::<Vec<_>>());
    let count = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
    assert!(count("exit status 71") > 0, "the log reports the exit");
    assert_eq!(
        count("no reply: tools/call"),
        2,
        "the log reports the failed calls"
    );
}

#[test]
fn prefix_puts_the_name_of_the_server_before_each_line() {
    let options = ["--server-stderr", "prefix"];
    let (mut host, stderr) = start(&options, &server_with_stderr("one\\ntwo\\n"));
    let lines = lines_of(stderr);
    host.handshake_and_echo();
    wait_for(&lines, "[sh] one");
    wait_for(&lines, "[sh] two");
    // The log knows the name of the server from here on.
    let ready = "is ready: everlink-demo";
    wait_until_a_line(&lines, ready, |line| line.contains(ready));
    host.send_call(3, "die", &json!({"how": "flood"}));
    host.receive(3);
    wait_for(
        &lines,
        "[everlink-demo] 20000: something is very wrong in here",
    );
    assert_eq!(host.disconnect().code(), Some(0));
}

/// A line that the server did not end stays separate from the guard's lines, and is not lost when the server ends.
#[test]
fn log_line_after_an_unfinished_stderr_line_starts_on_its_own_line() {
    for (options, wanted) in [
        (&[][..], "half a line"),
        (&["--server-stderr", "prefix"], "[sh] half a line"),
    ] {
        let script = "printf 'half a line' >&2; exit 3";
        let (mut host, stderr) = start(options, &["sh", "-c", script]);
        let lines = lines_of(stderr);
        host.initialize_error();
        wait_for(&lines, wanted);
        assert_eq!(host.disconnect().code(), Some(0));
    }
}

#[test]
fn server_stderr_goes_to_a_file_or_is_discarded_and_the_log_quotes_the_end() {
    let file = TempFile::new("stderr-file.log");
    std::fs::write(&file.0, "before\n").expect("a file");
    for destination in [file.path(), "off"] {
        let options = ["--server-stderr", destination];
        let (mut host, stderr) = start(&options, &server_with_stderr("warming up\\n"));
        host.handshake_and_echo();
        if destination == file.path() {
            wait_until("the text is in the file", || {
                file.read() == "before\nwarming up\n"
            });
        }
        // The end of a server quotes its last lines, because they were not shown before. The failed call does not quote them again.
        host.send_call(3, "die", &json!({"how": "kill"}));
        let reply = host.receive(3);
        assert_eq!(reply["result"]["isError"], true, "{reply}");
        let output = remaining_output(host, stderr);
        let killed = output.find("signal 9").expect("the log reports the kill");
        let quoted = output.matches("warming up").count();
        // Once for the killed server, and at most once for the next server, which ends with the host.
        assert!((1..=2).contains(&quoted), "{output}");
        assert!(output.find("warming up") > Some(killed), "{output}");
    }
    assert_eq!(file.read().matches("before").count(), 1);
}

#[test]
fn error_names_the_server_stderr_file_that_cannot_be_opened() {
    let options = ["guard", "--server-stderr", "/no/such/directory/x"];
    let output = crate::support::run_everlink(&options, &[EVERLINK, "demo-server"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(
        stderr.contains("--server-stderr /no/such/directory/x"),
        "{stderr}"
    );
}

/// The server writes 5 MB that nobody reads. The host is served, and the count of missing bytes is exact.
#[test]
fn guard_serves_while_its_stderr_is_not_read_and_counts_dropped_bytes() {
    let script = format!("yes 0123456 | head -c 5000000 >&2; exec '{EVERLINK}' demo-server");
    let options = ["--log", "off"];
    let (mut host, mut stderr) = start(&options, &["sh", "-c", &script]);
    host.handshake_and_echo();
    let mut output = String::new();
    drop(host.stdin.take());
    stderr.read_to_string(&mut output).expect("a pipe");
    let words = " bytes of the server's stderr are not shown";
    let mut missing = 0;
    for line in output.lines().filter(|line| line.contains(words)) {
        let number = line.strip_prefix("everlink: ").expect("a notice");
        let (number, _) = number.split_once(' ').expect("a number");
        missing += number.parse::<usize>().expect("a number");
    }
    assert!(missing > 0, "bytes were dropped");
    let shown = output.lines().filter(|line| !line.contains(words));
    // Each line has its newline. If a gap begins in the middle of a line, the guard adds a newline.
    let shown: usize = shown.map(|line| line.len() + 1).sum();
    assert!((5_000_000..5_000_100).contains(&(shown + missing)));
    assert_eq!(host.wait_for_exit().code(), Some(0));
}

#[test]
fn json_log_wraps_each_server_stderr_line_in_an_object() {
    let options = ["--log", "json"];
    let (mut host, stderr) = start(
        &options,
        &server_with_stderr("warming up\\n{\"not\":\"ours\"}\\n"),
    );
    host.handshake_and_echo();
    let output = remaining_output(host, stderr);
    let entries = output.lines().map(serde_json::from_str::<Value>);
    let entries: Vec<Value> = entries.collect::<Result<_, _>>().expect("lines of JSON");
    let lines: Vec<_> = entries
        .iter()
        .filter_map(|it| it["stderr"].as_str())
        .collect();
    assert_eq!(lines, ["warming up", r#"{"not":"ours"}"#]);
    assert!(entries.iter().all(|entry| entry["seconds"].is_number()));
}

#[test]
fn text_on_server_stdout_is_logged_once_with_a_hint_and_then_counted() {
    let script = format!(
        "echo 'Starting on port 3000'; echo 'Loaded 7 plugins'; echo 'Up'; exec '{EVERLINK}' demo-server"
    );
    let (mut host, stderr) = start(&[], &["sh", "-c", &script]);
    host.handshake_and_echo();
    // The next server writes the same text.
    host.send_call(3, "die", &json!({"how": "kill"}));
    host.receive(3);
    host.send_call(4, "echo", &json!({"message": "again"}));
    assert_eq!(host.receive(4)["result"]["content"][0]["text"], "again");
    let output = remaining_output(host, stderr);
    assert_eq!(
        output.matches("Starting on port 3000").count(),
        1,
        "{output}"
    );
    let line = output
        .lines()
        .find(|line| line.contains("Starting on port"));
    let line = line.expect("the first text is shown");
    assert!(line.contains("should write such text to stderr"), "{line}");
    assert!(!output.contains("Loaded 7 plugins"), "{output}");
    for connection in 1..=2 {
        let count = format!("ignored lines on the stdout of connection {connection}: 3");
        assert_eq!(output.matches(&count).count(), 1, "{output}");
    }
}

/// Only some of the later lines are reported, so the guard knows a lower bound.
#[test]
fn count_of_ignored_lines_that_is_not_exact_says_so() {
    for (lines, count) in [(7, "7"), (10, "at least 8")] {
        let script = format!(
            "for n in $(seq {lines}); do echo \"line $n\"; done; exec '{EVERLINK}' demo-server"
        );
        let (mut host, stderr) = start(&[], &["sh", "-c", &script]);
        host.handshake_and_echo();
        let output = remaining_output(host, stderr);
        let words = format!("ignored lines on the stdout of connection 1: {count}\n");
        assert!(output.contains(&words), "{output}");
    }
}

/// The file is a named pipe. The host is served before somebody reads it, and the text is not lost.
#[test]
fn guard_serves_while_nobody_reads_the_pipe_for_the_server_stderr() {
    let pipe = TempFile::new("stderr-pipe");
    let made = Command::new("mkfifo").arg(&pipe.0).status();
    assert!(made.expect("a program").success());
    let options = ["--server-stderr", pipe.path()];
    let (mut host, stderr) = start(&options, &server_with_stderr("warming up\\n"));
    let lines = lines_of(stderr);
    host.handshake_and_echo();
    wait_until_a_line(&lines, "waiting for a program", |line| {
        line.contains("stderr-pipe: waiting for a program that reads this pipe")
    });
    let written = File::open(&pipe.0).expect("the guard opens the other end");
    wait_for(&lines_of(written), "warming up");
    assert_eq!(host.disconnect().code(), Some(0));
    // SIGTERM ends the guard although no program reads the pipe.
    let (mut host, _stderr) = start(&options, &server_with_stderr("warming up\\n"));
    host.handshake_and_echo();
    kill_process(Pid::from_child(&host.process), Signal::TERM).expect("the process exists");
    assert_eq!(host.wait_for_exit().code(), Some(0));
}

/// The lines of the log appear among those of a server that writes faster than they are read.
#[test]
fn log_is_shown_while_the_server_floods_its_stderr() {
    let script = format!("yes 'a line' >&2 & exec '{EVERLINK}' demo-server");
    let (mut host, mut stderr) = start(&[], &["sh", "-c", &script]);
    let (sender, shown) = channel();
    let reader = thread::spawn(move || {
        let (mut seen, mut buffer) = (String::new(), vec![0; 64 << 10]);
        while !seen.contains("connection 1 is ready") {
            // A write of the guard may be read in two parts.
            seen = seen.split_off(seen.rfind('\n').unwrap_or(0));
            let len = stderr.read(&mut buffer).expect("a pipe");
            seen += &text(&buffer[..len]);
            thread::sleep(Duration::from_millis(20));
        }
        sender.send(()).expect("the test waits");
        // The pipe must be read to the end.
        std::io::copy(&mut stderr, &mut std::io::sink()).expect("a pipe");
    });
    host.handshake_and_echo();
    shown.recv_timeout(TIMEOUT).expect("the log is shown");
    assert_eq!(host.disconnect().code(), Some(0));
    reader.join().expect("the stream is read");
}

/// A stream that the host has made non-blocking cuts no line.
#[test]
fn json_log_on_a_non_blocking_stderr_has_whole_lines() {
    let (stderr, reader) = UnixStream::pair().expect("a socket");
    stderr.set_nonblocking(true).expect("a socket");
    let script = format!("yes 0123456 | head -c 80000 >&2; exec '{EVERLINK}' demo-server");
    let server = ["sh", "-c", &script];
    let stderr = Stdio::from(OwnedFd::from(stderr));
    let mut host = Host::start(stderr, &["--log", "json"], &server);
    host.handshake_and_echo();
    let lines = lines_of(reader);
    assert_eq!(host.disconnect().code(), Some(0));
    let mut shown = 0;
    for line in lines {
        let entry: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        shown += usize::from(entry["stderr"] == "0123456");
    }
    assert_eq!(shown, 10_000);
}

/// The recording fails, and nobody reads the stream on which the guard says so.
#[test]
fn guard_serves_if_the_recording_fails_and_stderr_is_full() {
    let (mut stderr, _reader) = UnixStream::pair().expect("a socket");
    stderr.set_nonblocking(true).expect("a socket");
    while stderr.write(&[b'x'; 512]).is_ok() {}
    stderr.set_nonblocking(false).expect("a socket");
    let stderr = Stdio::from(OwnedFd::from(stderr));
    let options = ["--log", "off", "--record", "/dev/full"];
    let mut host = Host::start(stderr, &options, &[EVERLINK, "demo-server"]);
    host.handshake_and_echo();
    assert_eq!(host.disconnect().code(), Some(0));
}

/// The log uses words that people know, and not the terms of this project.
#[test]
fn guard_log_contains_no_internal_terms() {
    let temp_file = TempFile::new("stderr-words.pid");
    let (mut host, stderr) = start(&[], &temp_file.server());
    let lines = lines_of(stderr);
    host.handshake_and_echo();
    kill_process(temp_file.pid(), Signal::KILL).expect("the process exists");
    let mut output = String::new();
    while !output.contains("server: connection 2 is ready: everlink-demo") {
        output += &lines.recv_timeout(TIMEOUT).expect(&output);
        output.push('\n');
    }
    assert_eq!(host.disconnect().code(), Some(0));
    while let Ok(line) = lines.recv_timeout(Duration::from_secs(10)) {
        output += &line;
        output.push('\n');
    }
    assert!(
        output.contains("host: host 1 connected and speaks"),
        "{output}"
    );
    for word in ["epoch", "behind", "in front", "noise", "a while", "life"] {
        assert!(!output.contains(word), "{word}: {output}");
    }
}
