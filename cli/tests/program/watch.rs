//! Tests `everlink watch`: the events that it shows, and how it ends.

use std::process::Command;

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::props::{EVERLINK, Note, Working, is_there, text, until};

#[test]
fn a_server_that_dies_is_seen_to_come_back() {
    let note = Note::new("watch-text.pid");
    let mut watch = Working::start(&["watch"], &note.server());
    let first = watch.line("connection 1 is ready: everlink-demo");
    let at = first.split_whitespace().next().map(str::parse::<f64>);
    assert!(matches!(at, Some(Ok(_))), "{first}");
    kill_process(note.pid(), Signal::KILL).expect("it is there");
    watch.line("signal 9");
    watch.line("connection 2 is ready");
    let server = note.pid();
    watch.signal(Signal::INT);
    watch.line("closed");
    assert_eq!(watch.ended().code(), Some(0));
    until("the server is gone", || !is_there(server));
}

#[test]
fn with_json_each_event_is_an_object() {
    let note = Note::new("watch-json.pid");
    let mut watch = Working::start(&["watch", "--json"], &note.server());
    let ready: Value = serde_json::from_str(&watch.line("is ready")).expect("JSON");
    assert_eq!(ready["state"], "ready", "{ready}");
    assert!(ready["seconds"].is_number(), "{ready}");
    let server = note.pid();
    watch.signal(Signal::TERM);
    assert_eq!(watch.ended().code(), Some(0));
    let rest = watch.rest();
    let last: Value = serde_json::from_str(rest.last().expect("more")).expect("JSON");
    assert_eq!(last["state"], "closed", "{last}");
    until("the server is gone", || !is_there(server));
}

/// The server ignores `SIGTERM`, so it must be killed.
#[test]
fn whoever_asks_twice_does_not_wait() {
    let note = Note::new("watch-twice.pid");
    let script = format!(
        "trap '' TERM; echo $$ >> '{}'; while :; do sleep 1; done",
        note.path()
    );
    let mut watch = Working::start(&["watch"], &["sh", "-c", &script]);
    watch.line("the handshake begins");
    let server = note.pid();
    watch.signal(Signal::INT);
    watch.line("closing");
    watch.signal(Signal::INT);
    assert_eq!(watch.ended().code(), Some(4));
    until("the server is gone", || !is_there(server));
}

/// The server ends right after its handshake. That counts as a stable connection only if `--stable-after` is 0.
#[test]
fn what_a_good_life_is_can_be_said() {
    let script = r#"read -r line
id=$(printf '%s' "$line" | sed 's/.*"id":\([^,}]*\).*/\1/')
printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"brief","version":"1"}}}\n' "$id"
read -r line"#;
    let server = ["sh", "-c", script];
    let common = ["watch", "--era", "legacy", "--retries", "1"];
    let short = Working::start(
        &[&common[..], &["--stable-after", "3600"]].concat(),
        &server,
    );
    short.line("retries are used up");
    let long = Working::start(&[&common[..], &["--stable-after", "0"]].concat(), &server);
    let told = long.line("connection 4 is ready");
    assert!(told.contains("brief"), "{told}");
}

/// A server with a short keepalive is probed before one with the default keepalive, although the other one started first.
#[test]
fn a_quiet_server_is_asked_when_it_is_said() {
    let start = |name: &str, options: &[&str]| {
        let note = Note::new(name);
        let script = format!("tee '{}' | '{EVERLINK}' demo-server", note.path());
        let options = [&["watch", "--era", "legacy"], options].concat();
        let watch = Working::start(&options, &["sh", "-c", &script]);
        watch.line("is ready");
        (note, watch)
    };
    let is_asked = |note: &Note| note.read().contains(r#""method":"ping""#);
    let (usual, _watch) = start("watch-usual.said", &[]);
    let (soon, _watch) = start("watch-soon.said", &["--keepalive", "0.05"]);
    until("it is asked", || is_asked(&soon));
    assert!(!is_asked(&usual));
}

/// The program ends although it has nothing more to write.
#[test]
fn it_ends_when_nobody_reads_it_any_more() {
    let script = r#""$0" watch -- "$0" demo-server | sed '/is watched/q'"#;
    let piped = Command::new("sh").args(["-c", script, EVERLINK]).output();
    let said = text(&piped.expect("there is a shell").stdout);
    assert!(said.ends_with("is watched for changes\n"), "{said}");
}

#[test]
fn what_a_server_says_of_itself_does_nothing_to_a_terminal() {
    let server = [
        "sh",
        "-c",
        r#"printf 'one\n\033[31m9.999 closed\n' >&2; exit 1"#,
    ];
    let watch = Working::start(&["watch", "--era", "legacy"], &server);
    watch.line("its last lines on stderr");
    assert_eq!(watch.line("one"), "          one");
    assert_eq!(watch.line("9.999"), "           [31m9.999 closed");
}
