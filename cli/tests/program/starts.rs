//! Tests what a guard tells its host if its server does not start, or starts slowly.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::guard::{Host, Running};
use crate::props::{EVERLINK, Note, SERVER, everlink, text};

/// The limit for errors that are known at once. It leaves room for a busy machine, and is less than retries would take.
const AT_ONCE: Duration = Duration::from_secs(5);

const NOBODY: &[&str] = &[];

/// Returns the guard's error for `initialize`. Checks that the error comes in time, and that the guard keeps running.
fn refused(options: &[&str], server: &[&str], bound: Duration) -> String {
    let since = Instant::now();
    let mut host = Host::start(Stdio::null(), options, server);
    let why = host.is_refused();
    assert!(
        since.elapsed() < bound,
        "after {:?}: {why}",
        since.elapsed()
    );
    host.says(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#);
    assert!(host.hears(2)["result"].is_object());
    assert_eq!(host.leaves().code(), Some(0));
    why
}

#[test]
fn a_command_that_cannot_be_started_is_the_error_of_initialize() {
    let why = refused(&[], &["/no/such/server"], AT_ONCE);
    for words in [
        "`/no/such/server` cannot be started",
        "No such file",
        "check the command",
    ] {
        assert!(why.contains(words), "{why:?} does not say {words:?}");
    }
    let plain = Note::new("starts-plain");
    fs::write(&plain.0, "nothing that can be run").expect("a file");
    fs::set_permissions(&plain.0, Permissions::from_mode(0o600)).expect("it is ours");
    let why = refused(&[], &[plain.path()], AT_ONCE);
    assert!(why.contains("Permission denied"), "{why}");
}

#[test]
fn an_unknown_host_name_is_the_error_of_initialize() {
    let why = refused(
        &["--url", "http://no.such.host.invalid/mcp"],
        NOBODY,
        AT_ONCE,
    );
    for words in ["http://no.such.host.invalid", "check the host name"] {
        assert!(why.contains(words), "{why:?} does not say {words:?}");
    }
}

#[test]
fn a_page_that_is_not_there_is_the_error_of_initialize() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("a port"));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let head =
                    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                let _ = stream.write_all(head.as_bytes());
            });
        }
    });
    let why = refused(&["--url", &url], NOBODY, AT_ONCE);
    for words in ["404", "check the URL"] {
        assert!(why.contains(words), "{why:?} does not say {words:?}");
    }
}

/// Clients over HTTP can read the error, too: it comes in a JSON-RPC reply, not as an HTTP error.
#[test]
fn a_command_that_cannot_be_started_is_told_over_http() {
    let listen = ["--listen", "http://127.0.0.1:0/mcp"];
    let mut guard = Running::start(&listen, &["/no/such/server".into()]);
    let url = guard.told("listening");
    let address = url.strip_prefix("http://").expect("an address");
    let (address, _) = address.split_once('/').expect("a path");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let body = body.to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .expect("it reads");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("it answers");
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    assert!(said.contains("cannot be started"), "{said}");
    assert_eq!(guard.terminate().code(), Some(0));
}

#[test]
fn a_server_that_ends_at_once_is_the_error_of_initialize() {
    let script = "echo 'cannot find the module' >&2; exit 3";
    let why = refused(&[], &["sh", "-c", script], Duration::from_secs(8));
    for words in ["exit status 3", "cannot find the module"] {
        assert!(why.contains(words), "{why:?} does not say {words:?}");
    }
}

/// Like a package that is downloaded first. The guard makes up no offer, however long the start takes.
#[test]
fn a_server_that_starts_slowly_is_waited_for() {
    let script = format!("sleep 12; exec '{EVERLINK}' demo-server");
    let mut host = Host::start(
        Stdio::null(),
        &["--remember", "off"],
        &["sh", "-c", &script],
    );
    let since = Instant::now();
    let reply = host.introduces_itself();
    assert_eq!(
        reply["result"]["serverInfo"]["name"], "everlink-demo",
        "{reply}"
    );
    assert!(since.elapsed() > Duration::from_secs(11));
    assert_eq!(host.leaves().code(), Some(0));
}

#[test]
fn what_a_server_offered_before_is_offered_while_it_starts() {
    let (slow, memory) = (Note::new("starts-slow"), Note::new("starts-memory"));
    let _ = fs::remove_dir_all(&memory.0);
    let script = format!(
        "test ! -e '{}' || sleep 20; exec '{EVERLINK}' demo-server",
        slow.path()
    );
    let options = ["--remember", memory.path()];
    let server = ["sh", "-c", &script];
    let mut host = Host::start(Stdio::null(), &options, &server);
    let first = host.introduces_itself();
    assert_eq!(host.leaves().code(), Some(0));
    let mut kept = fs::read_dir(&memory.0).expect("it was made").flatten();
    let kept = kept.next().expect("it is remembered").metadata();
    assert_eq!(kept.expect("a file").permissions().mode() & 0o777, 0o600);

    fs::write(&slow.0, "").expect("a file");
    let since = Instant::now();
    let mut host = Host::start(Stdio::null(), &options, &server);
    let second = host.introduces_itself();
    assert!(since.elapsed() < Duration::from_secs(15));
    let mut offered = first["result"].clone();
    // Until the server is ready, the guard promises to report changes of its lists.
    offered["capabilities"]["tools"] = json!({"listChanged": true});
    assert_eq!(second["result"], offered);
    let _ = fs::remove_dir_all(&memory.0);
}

/// A guard that cannot store the offer works without it.
#[test]
fn a_memory_that_cannot_be_written_hurts_nobody() {
    let mut host = Host::start(Stdio::null(), &["--remember", "/proc/no/such"], &SERVER);
    host.meets_and_calls();
    assert_eq!(host.leaves().code(), Some(0));
}

/// A script has closed its output, and still waits for answers.
#[test]
fn a_script_says_how_long_its_answers_may_take() {
    let mut host = Host::start(Stdio::null(), &["--drain", "50"], &SERVER);
    host.meets_and_calls();
    host.calls(7, "sleep", &json!({"ms": 2_000}));
    drop(host.says.take());
    let reply = host.hears(7);
    let slept = &reply["result"]["content"][0]["text"];
    assert_eq!(slept, "slept for 2000 ms", "{reply}");
    assert_eq!(host.ended().code(), Some(0));
}

/// A person at a shell does not wait for retries that cannot succeed.
#[test]
fn commands_that_look_at_a_server_do_not_try_again_what_cannot_succeed() {
    for arguments in [
        &["call", "echo"][..],
        &["call", "echo", "count=3"],
        &["inspect"],
        &["prompt", "greet"],
        &["read", "file:///x"],
    ] {
        let output = everlink(arguments, &["/no/such/server"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(
            said.contains("`/no/such/server` cannot be started"),
            "{said}"
        );
        assert!(!said.contains("trying again"), "{said}");
        assert_eq!(said.matches("cannot be started").count(), 1, "{said}");
    }
}
