//! Tests what a guard tells its host if its server does not start, or starts slowly.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::guard::{GuardProcess, Host};
use crate::support::{EVERLINK, SERVER, TempFile, lines_of, run_everlink, text};

/// The limit for errors that are known at once. It leaves room for a busy machine, and is less than retries would take.
const AT_ONCE: Duration = Duration::from_secs(5);

const NO_SERVER: &[&str] = &[];

/// Returns the guard's error for `initialize`. Checks that the error comes in time, and that the guard keeps running.
fn initialize_error_of(options: &[&str], server: &[&str], bound: Duration) -> String {
    let since = Instant::now();
    let mut host = Host::start(Stdio::null(), options, server);
    let error = host.initialize_error();
    assert!(
        since.elapsed() < bound,
        "after {:?}: {error}",
        since.elapsed()
    );
    host.send(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#);
    assert!(host.receive(2)["result"].is_object());
    assert_eq!(host.disconnect().code(), Some(0));
    error
}

#[test]
fn initialize_fails_with_the_reason_if_the_command_cannot_be_started() {
    let error = initialize_error_of(&[], &["/no/such/server"], AT_ONCE);
    for words in [
        "`/no/such/server` cannot be started",
        "No such file",
        "check the command",
    ] {
        assert!(error.contains(words), "{error:?} does not say {words:?}");
    }
    let text_file = TempFile::new("starts-plain");
    fs::write(&text_file.0, "not a program").expect("a file");
    fs::set_permissions(&text_file.0, Permissions::from_mode(0o600)).expect("the file exists");
    let error = initialize_error_of(&[], &[text_file.path()], AT_ONCE);
    assert!(error.contains("Permission denied"), "{error}");
}

#[test]
fn initialize_fails_with_the_reason_if_the_host_name_is_unknown() {
    let error = initialize_error_of(
        &["--url", "http://no.such.host.invalid/mcp"],
        NO_SERVER,
        AT_ONCE,
    );
    for words in ["http://no.such.host.invalid", "check the host name"] {
        assert!(error.contains(words), "{error:?} does not say {words:?}");
    }
}

#[test]
fn initialize_fails_with_the_reason_if_the_url_answers_404() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
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
    let error = initialize_error_of(&["--url", &url], NO_SERVER, AT_ONCE);
    for words in ["404", "check the URL"] {
        assert!(error.contains(words), "{error:?} does not say {words:?}");
    }
}

/// Clients over HTTP can read the error, too: it comes in a JSON-RPC reply, not as an HTTP error.
#[test]
fn initialize_over_http_fails_in_a_json_rpc_reply_if_the_command_cannot_be_started() {
    let listen = ["--listen", "http://127.0.0.1:0/mcp"];
    let mut guard = GuardProcess::start(&listen, &["/no/such/server".into()]);
    let url = guard.log_value("listening");
    let address = url.strip_prefix("http://").expect("an address");
    let (address, _) = address.split_once('/').expect("a path");
    let mut stream = TcpStream::connect(address).expect("the guard listens");
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "host", "version": "1"}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let body = body.to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .expect("the guard reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    assert!(response.contains("cannot be started"), "{response}");
    assert_eq!(guard.terminate().code(), Some(0));
}

#[test]
fn initialize_fails_with_exit_status_and_stderr_if_the_server_exits_at_once() {
    let script = "echo 'cannot find the module' >&2; exit 3";
    let error = initialize_error_of(&[], &["sh", "-c", script], Duration::from_secs(8));
    for words in ["exit status 3", "cannot find the module"] {
        assert!(error.contains(words), "{error:?} does not say {words:?}");
    }
}

/// The rules for a server that never worked differ from `--retries`, so the log says which of them ended the attempts.
#[test]
fn log_says_why_there_are_no_more_quick_attempts() {
    let refused = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/mcp", refused.local_addr().expect("a port"));
    drop(refused);
    for (options, server, words) in [
        (
            &["--retries", "9"][..],
            &["sh", "-c", "exit 3"][..],
            "started again for only 3 s, whatever --retries says",
        ),
        (
            &["--retries", "0"],
            &["sh", "-c", "exit 3"],
            "no more quick attempts: --retries allows 0;",
        ),
        (
            &[],
            &["/no/such/server"],
            "no more quick attempts: another attempt would fail in the same way",
        ),
        (
            &["--retries", "1", "--url", &url],
            NO_SERVER,
            "no more quick attempts: --retries allows 1; the next call tries again, and so does a timer",
        ),
    ] {
        let mut host = Host::start(Stdio::piped(), options, server);
        host.initialize_error();
        let stderr = lines_of(host.process.stderr.take().expect("a pipe"));
        assert_eq!(host.disconnect().code(), Some(0));
        let lines: Vec<String> = stderr.iter().collect();
        let is_said = lines.iter().any(|line| line.contains(words));
        assert!(is_said, "{words}: {lines:#?}");
    }
}

/// Like a package that is downloaded first. The guard makes up no offer, however long the start takes.
#[test]
fn initialize_waits_for_a_server_that_starts_after_12_seconds() {
    let script = format!("sleep 12; exec '{EVERLINK}' demo-server");
    let mut host = Host::start(
        Stdio::null(),
        &["--remember", "off"],
        &["sh", "-c", &script],
    );
    let since = Instant::now();
    let reply = host.initialize();
    assert_eq!(
        reply["result"]["serverInfo"]["name"], "everlink-demo",
        "{reply}"
    );
    assert!(since.elapsed() > Duration::from_secs(11));
    assert_eq!(host.disconnect().code(), Some(0));
}

#[test]
fn remembered_offer_answers_initialize_while_the_server_starts() {
    let (slow, offer_directory) = (TempFile::new("starts-slow"), TempFile::new("starts-memory"));
    let _ = fs::remove_dir_all(&offer_directory.0);
    let script = format!(
        "test ! -e '{}' || sleep 20; exec '{EVERLINK}' demo-server",
        slow.path()
    );
    let options = ["--remember", offer_directory.path()];
    let server = ["sh", "-c", &script];
    let mut host = Host::start(Stdio::null(), &options, &server);
    let first = host.initialize();
    assert_eq!(host.disconnect().code(), Some(0));
    let mut cached = fs::read_dir(&offer_directory.0)
        .expect("a directory")
        .flatten();
    let cached = cached.next().expect("a stored offer").metadata();
    assert_eq!(cached.expect("a file").permissions().mode() & 0o777, 0o600);

    fs::write(&slow.0, "").expect("a file");
    let since = Instant::now();
    let mut host = Host::start(Stdio::null(), &options, &server);
    let second = host.initialize();
    assert!(since.elapsed() < Duration::from_secs(15));
    let mut offered = first["result"].clone();
    // Until the server is ready, the guard promises to report changes of its lists.
    offered["capabilities"]["tools"] = json!({"listChanged": true});
    assert_eq!(second["result"], offered);
    let _ = fs::remove_dir_all(&offer_directory.0);
}

/// A guard that cannot store the offer works without it, and says so once: also when the server is replaced.
#[test]
fn guard_serves_and_logs_one_line_if_the_offer_cannot_be_stored() {
    let mut host = Host::start(Stdio::piped(), &["--remember", "/proc/no/such"], &SERVER);
    host.handshake_and_echo();
    host.send_call(7, "die", &json!({"how": "kill"}));
    host.receive(7);
    host.send_call(8, "echo", &json!({"message": "again"}));
    host.receive(8);
    let stderr = lines_of(host.process.stderr.take().expect("a pipe"));
    assert_eq!(host.disconnect().code(), Some(0));
    let lines: Vec<String> = stderr
        .iter()
        .filter(|it| it.contains("--remember"))
        .collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for words in ["/proc/no/such/", "No such file", "goes on without it"] {
        assert!(lines[0].contains(words), "{words}: {lines:?}");
    }
}

/// A script has closed its output, and still waits for answers.
#[test]
fn call_is_answered_within_drain_after_the_host_closed_its_output() {
    let mut host = Host::start(Stdio::null(), &["--drain", "50"], &SERVER);
    host.handshake_and_echo();
    host.send_call(7, "sleep", &json!({"ms": 2_000}));
    drop(host.stdin.take());
    let reply = host.receive(7);
    let slept = &reply["result"]["content"][0]["text"];
    assert_eq!(slept, "slept for 2000 ms", "{reply}");
    assert_eq!(host.wait_for_exit().code(), Some(0));
}

/// A person at a shell does not wait for retries that cannot succeed.
#[test]
fn one_shot_commands_do_not_retry_a_server_that_cannot_be_started() {
    for arguments in [
        &["call", "echo"][..],
        &["call", "echo", "count=3"],
        &["inspect"],
        &["prompt", "greet"],
        &["read", "file:///x"],
    ] {
        let output = run_everlink(arguments, &["/no/such/server"]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{stderr}");
        assert!(
            stderr.contains("`/no/such/server` cannot be started"),
            "{stderr}"
        );
        assert!(!stderr.contains("trying again"), "{stderr}");
        assert_eq!(stderr.matches("cannot be started").count(), 1, "{stderr}");
    }
}
