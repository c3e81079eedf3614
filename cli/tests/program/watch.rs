//! Tests `everlink watch`: the events that it shows, and how it ends.

use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::support::{EVERLINK, RunningCommand, TempFile, process_exists, text, wait_until};

#[test]
fn watch_shows_the_kill_and_the_reconnect_of_a_server() {
    let temp_file = TempFile::new("watch-text.pid");
    let mut watch = RunningCommand::start(&["watch"], &temp_file.server());
    let first = watch.wait_for_line("connection 1 is ready: everlink-demo");
    let at = first.split_whitespace().next().map(str::parse::<f64>);
    assert!(matches!(at, Some(Ok(_))), "{first}");
    kill_process(temp_file.pid(), Signal::KILL).expect("the process exists");
    watch.wait_for_line("signal 9");
    watch.wait_for_line("connection 2 is ready");
    let server = temp_file.pid();
    watch.signal(Signal::INT);
    watch.wait_for_line("closed");
    assert_eq!(watch.wait_for_exit().code(), Some(0));
    wait_until("the server is gone", || !process_exists(server));
}

#[test]
fn json_option_prints_each_event_as_an_object() {
    let temp_file = TempFile::new("watch-json.pid");
    let mut watch = RunningCommand::start(&["watch", "--json"], &temp_file.server());
    let ready: Value = serde_json::from_str(&watch.wait_for_line("is ready")).expect("JSON");
    assert_eq!(ready["state"], "ready", "{ready}");
    assert_eq!(ready["kind"], "ready", "{ready}");
    assert!(ready["seconds"].is_number(), "{ready}");
    let server = temp_file.pid();
    watch.signal(Signal::TERM);
    assert_eq!(watch.wait_for_exit().code(), Some(0));
    let rest = watch.rest();
    let last: Value = serde_json::from_str(rest.last().expect("more")).expect("JSON");
    assert_eq!(last["state"], "closed", "{last}");
    wait_until("the server is gone", || !process_exists(server));
}

/// The server ignores `SIGTERM`, so it must be killed.
#[test]
fn second_interrupt_ends_watch_at_once_with_status_4() {
    let temp_file = TempFile::new("watch-twice.pid");
    let script = format!(
        "trap '' TERM; echo $$ >> '{}'; while :; do sleep 1; done",
        temp_file.path()
    );
    let mut watch = RunningCommand::start(&["watch"], &["sh", "-c", &script]);
    watch.wait_for_line("the handshake begins");
    let server = temp_file.pid();
    watch.signal(Signal::INT);
    watch.wait_for_line("closing");
    // Within 500 ms, it would count as a copy of the first one.
    thread::sleep(Duration::from_millis(600));
    watch.signal(Signal::INT);
    assert_eq!(watch.wait_for_exit().code(), Some(4));
    wait_until("the server is gone", || !process_exists(server));
}

/// The server ends right after its handshake. That counts as a stable connection only if `--stable-after` is 0.
#[test]
fn stable_after_decides_whether_a_short_connection_resets_the_retries() {
    let script = r#"read -r line
id=$(printf '%s' "$line" | sed 's/.*"id":\([^,}]*\).*/\1/')
printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"brief","version":"1"}}}\n' "$id"
read -r line"#;
    let server = ["sh", "-c", script];
    let common = ["watch", "--era", "legacy", "--retries", "1"];
    let short = RunningCommand::start(
        &[&common[..], &["--stable-after", "3600"]].concat(),
        &server,
    );
    short.wait_for_line("no more quick attempts");
    let long = RunningCommand::start(&[&common[..], &["--stable-after", "0"]].concat(), &server);
    let line = long.wait_for_line("connection 4 is ready");
    assert!(line.contains("brief"), "{line}");
}

/// A server with a short keepalive is probed before one with the default keepalive, although the other one started first.
#[test]
fn keepalive_option_sets_when_a_silent_server_is_probed() {
    let start = |name: &str, options: &[&str]| {
        let temp_file = TempFile::new(name);
        let script = format!("tee '{}' | '{EVERLINK}' demo-server", temp_file.path());
        let options = [&["watch", "--era", "legacy"], options].concat();
        let watch = RunningCommand::start(&options, &["sh", "-c", &script]);
        watch.wait_for_line("is ready");
        (temp_file, watch)
    };
    let is_probed = |temp_file: &TempFile| temp_file.read().contains(r#""method":"ping""#);
    let (usual, _watch) = start("watch-usual.said", &[]);
    let (soon, _watch) = start("watch-soon.said", &["--keepalive", "0.05"]);
    wait_until("the server is probed", || is_probed(&soon));
    assert!(!is_probed(&usual));
}

/// The program ends although it has nothing more to write.
#[test]
fn watch_ends_when_its_stdout_is_closed() {
    let script = r#""$0" watch -- "$0" demo-server | sed '/is watched/q'"#;
    let piped = Command::new("sh").args(["-c", script, EVERLINK]).output();
    let stdout = text(&piped.expect("sh is installed").stdout);
    assert!(stdout.ends_with("is watched for changes\n"), "{stdout}");
}

#[test]
fn stderr_of_a_server_is_indented_and_has_no_control_characters() {
    let server = [
        "sh",
        "-c",
        r#"printf 'one\n\033[31m9.999 closed\n' >&2; exit 1"#,
    ];
    let watch = RunningCommand::start(&["watch", "--era", "legacy"], &server);
    watch.wait_for_line("its last lines on stderr");
    assert_eq!(watch.wait_for_line("one"), "          one");
    assert_eq!(watch.wait_for_line("9.999"), "           [31m9.999 closed");
}
