//! Tests `everlink guard` between a host, which is a link of this library, and a server that is killed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use everlink::{Config, Dialect, Epoch};
use everlink_tokio::{Link, child, http};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::support::{
    EVERLINK, SERVER, TIMEOUT, Terminal, UnauthorizedServer, process_exists, program, run_everlink,
    text,
};

#[tokio::test]
async fn stdio_host_keeps_its_connection_when_the_server_is_killed() {
    let diary = Diary::new("stdio");
    let mut guard = program();
    guard.args(["guard", "--log", "off", "--"]);
    guard.args(diary.server());
    let host = child::connect(guard, Config::child("host", "1.0")).expect("a runtime");
    kill_the_server_during_a_call(&host, &diary).await;
    let server = pid(&host).await;
    host.shutdown().await.expect("the driver runs");
    wait_until("the server is gone", || !process_exists(server)).await;
}

#[tokio::test]
async fn http_host_keeps_its_connection_and_status_and_log_show_the_kill() {
    let diary = Diary::new("http");
    let ports = [
        "--listen",
        "http://127.0.0.1:0/mcp",
        "--status",
        "127.0.0.1:0",
    ];
    let mut guard = GuardProcess::start(&ports, &diary.server());
    let status = guard.log_value("status");
    let url = guard.log_value("listening");
    let before = get(&format!("{status}metrics"));
    assert!(
        before.contains("\neverlink_downstream_answered_total 0\n"),
        "{before}"
    );

    let host = Config::http("host", "1.0", &url).expect("an address");
    let host = http::connect(host).expect("a runtime");
    kill_the_server_during_a_call(&host, &diary).await;

    let after = get(&format!("{status}metrics"));
    assert!(
        after.starts_with("HTTP/1.0 200") || after.starts_with("HTTP/1.1 200"),
        "{after}"
    );
    assert!(after.contains("\neverlink_upstream_ready 1\n"), "{after}");
    assert!(after.contains("\neverlink_upstream_epoch 2\n"), "{after}");
    assert!(
        after.contains("everlink_upstream_info{name=\"everlink-demo\","),
        "{after}"
    );
    let page = get(&status);
    let (_, body) = page.split_once("\r\n\r\n").expect("a body");
    let state: Value = serde_json::from_str(body).expect("JSON");
    let upstream = &state["upstream"];
    assert_eq!(upstream["state"], "ready", "{state}");
    assert_eq!(upstream["epoch"], 2, "{state}");
    assert_eq!(upstream["server"]["name"], "everlink-demo", "{state}");
    assert!(upstream["last_end"].is_string(), "{state}");
    let answered = state["downstream"]["counters"]["answered"].as_u64();
    assert!(answered.is_some_and(|answered| answered >= 4), "{state}");
    assert!(get(&format!("{status}other")).contains(" 404 "));
    assert!(get(&url.replace("/mcp", "/other")).contains(" 404 "));

    let server = pid(&host).await;
    host.shutdown().await.expect("the driver runs");
    let ended = guard.terminate();
    assert_eq!(ended.code(), Some(0));
    wait_until("the server is gone", || !process_exists(server)).await;

    // The log has the events of both sides, and the lost call.
    let entries: Vec<Value> = guard.remaining_entries();
    let has = |side: &str, words: &str| {
        entries.iter().any(|entry| {
            entry["side"] == side && entry["event"].as_str().is_some_and(|it| it.contains(words))
        })
    };
    assert!(has("downstream", "host 1.0 connected"), "{entries:?}");
    assert!(has("upstream", "connection 2 is ready"), "{entries:?}");
    assert!(has("downstream", "closed"), "{entries:?}");
    let mut lost = entries.iter().filter(|entry| entry["mayHaveRun"] == true);
    assert_eq!(
        lost.next().map(|entry| &entry["method"]),
        Some(&json!("tools/call"))
    );
    // Each event has a kind for programs.
    let events = entries.iter().filter(|entry| entry["event"].is_string());
    let kinds: Vec<&str> = events
        .map(|entry| entry["kind"].as_str().unwrap_or("none"))
        .collect();
    for kind in [
        "host_met",
        "ready",
        "call_lost",
        "ended",
        "closed",
        "host_closed",
    ] {
        assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
    }
    for kind in ["none", "other"] {
        assert!(!kinds.contains(&kind), "{entries:?}");
    }
}

/// The server is killed in the middle of a call. That call fails, the link of the host stays up, and the next call succeeds.
async fn kill_the_server_during_a_call(host: &Link, diary: &Diary) {
    let tools = host.list_tools().await.expect("a list");
    assert!(!tools.items.is_empty());
    let reply = host.call_tool("echo", json!({"message": "hello"})).await;
    assert_eq!(reply.expect("a reply").text(), "hello");

    let victim = pid(host).await;
    let call = host
        .call_tool("sleep", json!({"ms": 600_000, "number": 7}))
        .start();
    wait_until("the call runs", || diary.has(7)).await;
    kill_process(victim, Signal::KILL).expect("the process exists");
    let lost = call.await.expect("an answer of the guard");
    assert!(lost.is_error());
    assert!(lost.text().contains("may have run"), "{}", lost.text());
    assert!(lost.text().contains("signal 9"), "{}", lost.text());

    let reply = host.call_tool("echo", json!({"message": "again"})).await;
    assert_eq!(reply.expect("a reply").text(), "again");
    assert_ne!(pid(host).await, victim);
    assert_eq!(host.epoch(), Epoch::FIRST);
}

/// A host that is a link of this library sees its handshake refused, and its calls fail with the reason.
#[tokio::test]
async fn link_call_fails_with_the_reason_if_the_server_cannot_be_started() {
    let mut guard = program();
    guard.args(["guard", "--log", "off", "--", "/no/such/server"]);
    let host = child::connect(guard, Config::child("host", "1.0")).expect("a runtime");
    let failed = host.call_tool("echo", json!({})).await;
    let text = failed.expect_err("no server").to_string();
    let words = "`/no/such/server` cannot be started";
    assert!(text.contains(words), "{text}");
    host.shutdown().await.expect("the driver runs");
}

/// Only a call that is in flight when the server is killed may fail, no matter how many times the server is killed.
#[tokio::test]
async fn calls_after_each_of_eight_kills_in_a_row_succeed() {
    let mut guard = Command::new(EVERLINK);
    guard.args(["guard", "--log", "off", "--"]).args(SERVER);
    let host = child::connect(guard, Config::child("host", "1.0")).expect("a runtime");
    for kill in 1..=8 {
        let victim = pid(&host).await;
        kill_process(victim, Signal::KILL).expect("the process exists");
        wait_until("the guard has reaped it", || !process_exists(victim)).await;
        let start = Instant::now();
        let reply = host.call_tool("echo", json!({"message": "hello"})).await;
        let reply = reply.expect("an answer of the guard");
        assert!(!reply.is_error(), "after kill {kill}: {}", reply.text());
        assert!(start.elapsed() < Duration::from_secs(5), "{kill}");
    }
    host.shutdown().await.expect("the driver runs");
}

/// While the server is down, each call fails before the host's timeout. The error text names the time of the next attempt.
#[tokio::test]
async fn calls_fail_while_the_server_is_down_and_succeed_when_it_is_back() {
    let flag = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guard-away.flag");
    fs::write(&flag, "").expect("a file");
    let script = r#"test -e "$1" || exit 3; exec "$0" demo-server"#;
    let mut guard = Command::new(EVERLINK);
    guard.args(["guard", "--log", "off", "--retries", "1", "--"]);
    guard.args(["sh", "-c", script, EVERLINK]).arg(&flag);
    let host = child::connect(guard, Config::child("host", "1.0")).expect("a runtime");
    host.ready().await.expect("the guard");
    let victim = pid(&host).await;
    fs::remove_file(&flag).expect("the file exists");
    kill_process(victim, Signal::KILL).expect("the process exists");
    wait_until("the guard has reaped it", || !process_exists(victim)).await;
    for _ in 0..2 {
        let start = Instant::now();
        let reply = host.call_tool("echo", json!({})).await;
        let reply = reply.expect("an answer of the guard");
        assert!(reply.is_error(), "{}", reply.text());
        assert!(
            start.elapsed() >= Duration::from_secs(3),
            "{}",
            reply.text()
        );
        for words in ["the next attempt is in", "exit status 3", "did not run"] {
            assert!(reply.text().contains(words), "{words}: {}", reply.text());
        }
    }
    let call = host.call_tool("echo", json!({"message": "hello"})).start();
    fs::write(&flag, "").expect("a file");
    let reply = call.await.expect("an answer of the guard");
    assert_eq!(reply.text(), "hello");
    host.shutdown().await.expect("the driver runs");
    fs::remove_file(&flag).expect("the file exists");
}

/// A host whose guard replaces a hung server after 1 s of silence, or after 4 s if the server may be working on a call.
fn host_with_hang_timeout(server: &[&str]) -> Link {
    let mut guard = Command::new(EVERLINK);
    guard.args(["guard", "--log", "off", "--keepalive", "0.3"]);
    guard.args(["--hang-timeout", "1", "--"]).args(server);
    child::connect(guard, Config::child("host", "1.0")).expect("a runtime")
}

#[tokio::test]
async fn stopped_server_is_replaced_while_a_call_waits() {
    let host = host_with_hang_timeout(&SERVER);
    let victim = pid(&host).await;
    kill_process(victim, Signal::STOP).expect("the process exists");
    let lost = host.call_tool("echo", json!({"message": "lost"})).await;
    let lost = lost.expect("an answer of the guard");
    assert!(lost.is_error(), "{}", lost.text());
    for words in ["silent", "answered no probe", "stopped (SIGSTOP)"] {
        assert!(lost.text().contains(words), "{words}: {}", lost.text());
    }
    let reply = host.call_tool("echo", json!({"message": "again"})).await;
    assert_eq!(reply.expect("a reply").text(), "again");
    assert_ne!(pid(&host).await, victim);
    host.shutdown().await.expect("the driver runs");
}

#[tokio::test]
async fn stopped_server_without_waiting_calls_is_not_replaced() {
    let host = host_with_hang_timeout(&SERVER);
    let server = pid(&host).await;
    kill_process(server, Signal::STOP).expect("the process exists");
    sleep(Duration::from_secs(4)).await;
    kill_process(server, Signal::CONT).expect("the process exists");
    assert_eq!(pid(&host).await, server);
    host.shutdown().await.expect("the driver runs");
}

/// The server answers nothing for longer than it may be silent, but uses CPU time.
#[tokio::test]
async fn server_that_uses_cpu_time_is_not_replaced() {
    let host = host_with_hang_timeout(&SERVER);
    let server = pid(&host).await;
    let reply = host.call_tool("spin", json!({"ms": 6_000})).await;
    assert_eq!(reply.expect("a reply").text(), "done");
    // The server is busy after its reply.
    let reply = host
        .call_tool("spin", json!({"ms": 4_000, "later": true}))
        .start();
    assert_eq!(reply.await.expect("a reply").text(), "done");
    sleep(Duration::from_millis(200)).await;
    assert_eq!(pid(&host).await, server);
    // The server is busy with a call that was cancelled.
    let call = host.call_tool("spin", json!({"ms": 4_000})).start();
    sleep(Duration::from_millis(200)).await;
    call.canceller().cancel("it takes too long");
    call.await.expect_err("the call was cancelled");
    assert_eq!(pid(&host).await, server);
    host.shutdown().await.expect("the driver runs");
}

/// The server answers nothing for longer than it may be silent, because the waiting call blocks its only thread.
#[tokio::test]
async fn server_that_blocks_on_a_call_for_3_seconds_is_not_replaced() {
    let host = host_with_hang_timeout(&SERVER);
    let server = pid(&host).await;
    // Lets the server answer a probe first, so that the guard knows that it does.
    sleep(Duration::from_secs(1)).await;
    let reply = host.call_tool("block", json!({"ms": 3_000})).await;
    assert_eq!(reply.expect("a reply").text(), "done");
    assert_eq!(pid(&host).await, server);
    host.shutdown().await.expect("the driver runs");
}

/// A server that ignores `ping`, as some do.
const IGNORES_PING: &str = r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  say() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
  case "$line" in
    *'"method":"initialize"'*)
      say '"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
    *'"method":"server/discover"'*) say '"error":{"code":-32601,"message":"unknown"}' ;;
    *'"method":"tools/call"'*) say '"result":{"content":[{"type":"text","text":"'$$'"}]}' ;;
  esac
done
"#;

#[tokio::test]
async fn server_that_ignores_ping_is_not_replaced() {
    let host = host_with_hang_timeout(&["sh", "-c", IGNORES_PING]);
    let server = pid(&host).await;
    for _ in 0..2 {
        sleep(Duration::from_secs(3)).await;
        assert_eq!(pid(&host).await, server);
    }
    host.shutdown().await.expect("the driver runs");
}

/// A server that lost its own upstream, like a bridge to a remote server. It answers only the first call, and each probe with an error.
const LOST_SESSION: &str = r#"
calls=0
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  say() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
  case "$line" in
    *'"method":"initialize"'*)
      say '"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
    *'"method":"server/discover"'*) say '"error":{"code":-32601,"message":"unknown"}' ;;
    *'"method":"tools/call"'*)
      calls=$((calls + 1))
      test $calls -gt 1 || say '"result":{"content":[{"type":"text","text":"'$$'"}]}' ;;
    *'"method":"ping"'*) say '"error":{"code":-32603,"message":"Session not found"}' ;;
  esac
done
"#;

#[tokio::test]
async fn server_that_answers_probes_with_a_lost_session_is_replaced_while_a_call_waits() {
    let host = host_with_hang_timeout(&["sh", "-c", LOST_SESSION]);
    let first = pid(&host).await;
    let lost = timeout(TIMEOUT, host.call_tool("pid", json!({})).start()).await;
    let lost = lost.expect("no hang").expect("an answer");
    assert!(lost.is_error(), "{}", lost.text());
    assert!(lost.text().contains("lost session"), "{}", lost.text());
    assert_ne!(pid(&host).await, first);
    host.shutdown().await.expect("the driver runs");
}

/// A host keeps calling while an HTTP server is redeployed. Each call fails in time with the reason, and a call soon after the server is back
/// succeeds.
#[tokio::test]
async fn call_succeeds_after_an_http_server_was_down_for_12_seconds() {
    let held = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/mcp", held.local_addr().expect("an address"));
    drop(held);
    let deploy = || {
        let server = GuardProcess::start(&["--listen", &url], &SERVER.map(PathBuf::from));
        server.log_value("listening");
        server
    };
    let server = deploy();
    let mut guard = program();
    // The guard's own retries end soon. After that, it probes once a minute, and when it is called.
    guard.args([
        "guard",
        "--log",
        "off",
        "--remember",
        "off",
        "--retries",
        "1",
    ]);
    guard.args(["--url", &url]);
    let host = child::connect(guard, Config::child("host", "1.0")).expect("a runtime");
    pid(&host).await;
    drop(server);
    let down_since = Instant::now();
    while down_since.elapsed() < Duration::from_secs(12) {
        let since = Instant::now();
        let reply = host.call_tool("echo", json!({})).await.expect("an answer");
        assert!(reply.is_error(), "{}", reply.text());
        // Hosts give up after 5 s.
        assert!(since.elapsed() < Duration::from_secs(5), "{}", reply.text());
        assert!(
            reply.text().contains("the next attempt is in"),
            "{}",
            reply.text()
        );
    }
    let mut server = deploy();
    let reply = host.call_tool("echo", json!({"message": "hello"})).await;
    assert_eq!(reply.expect("an answer").text(), "hello");
    host.shutdown().await.expect("the driver runs");
    assert_eq!(server.terminate().code(), Some(0));
}

#[test]
fn guard_exits_when_its_host_closes_stdin() {
    let mut guard = GuardProcess::start(&[], &[EVERLINK.into(), "demo-server".into()]);
    drop(guard.process.stdin.take());
    assert_eq!(guard.wait_for_exit().code(), Some(0));
    let entries = guard.remaining_entries();
    let mut last = entries.iter().filter(|entry| entry["side"] == "downstream");
    assert_eq!(
        last.next_back().map(|entry| &entry["event"]),
        Some(&json!("closed"))
    );
}

#[test]
fn invalid_listen_address_is_refused_with_a_hint() {
    for (listen, hint) in [
        ("http://0.0.0.0:0/mcp", "--allow-host"),
        ("http://127.0.0.1/mcp", "port"),
        ("http://127.0.0.1:99999/mcp", "up to 65535"),
        ("https://127.0.0.1:0/mcp", "http://"),
        ("nowhere", "http://"),
    ] {
        let mut guard = program();
        let output = guard.args(["guard", "--listen", listen, "--", "true"]);
        let output = output.output().expect("the program runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{listen}");
        assert!(stderr.contains(listen) && stderr.contains(hint), "{stderr}");
    }
}

#[test]
fn port_in_use_or_useless_allow_host_fails_at_start() {
    let held = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = held.local_addr().expect("an address").to_string();
    let url = format!("http://{address}/mcp");
    let cases: [(&[&str], i32, &str); 3] = [
        (&["--status", &address], 4, &address),
        (&["--listen", &url], 4, &address),
        (&["--allow-host", "shop"], 2, "--allow-host"),
    ];
    for (options, code, words) in cases {
        let output = run_everlink(&[&["guard"], options].concat(), &SERVER);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{options:?}: {stderr}");
        assert!(stderr.starts_with("everlink: "), "{stderr}");
        assert!(stderr.contains(words), "{options:?}: {stderr}");
    }
}

#[test]
fn guard_at_a_terminal_prints_how_to_configure_a_host() {
    let mut command = program();
    command.args(["guard", "--"]).args(SERVER);
    let mut terminal = Terminal::start(&mut command);
    terminal.read_until("the configuration of a host");
    terminal.signal(Signal::TERM);
    let (screen, output) = terminal.end();
    assert_eq!(output.status.code(), Some(0), "{screen}");
}

/// The options of the guard limit the time of a call, whatever the timeout of the host.
#[tokio::test]
async fn timeout_options_of_the_guard_limit_calls() {
    let cases = [
        ("--timeout", "in time"),
        ("--total-timeout", "longer than it may in all"),
    ];
    for (option, words) in cases {
        let mut guard = program();
        guard.args(["guard", "--log", "off", option, "0.3", "--"]);
        guard.args(SERVER);
        let host = child::connect(guard, Config::child("host", "1.0")).expect("a runtime");
        let late = host.call_tool("sleep", json!({"ms": 600_000})).await;
        let late = late.expect("an answer of the guard");
        assert!(late.is_error(), "{option}: {}", late.text());
        assert!(late.text().contains(words), "{option}: {}", late.text());
        host.shutdown().await.expect("the driver runs");
    }
}

/// The server learns in its handshake which asks the host supports, so the server is started after the host connects.
#[tokio::test]
async fn server_is_started_after_the_first_host_connects() {
    let mut guard = GuardProcess::start(
        &["--listen", "http://127.0.0.1:0/mcp"],
        &SERVER.map(PathBuf::from),
    );
    let url = guard.log_value("listening");
    let host = Config::http("host", "1.0", &url).expect("an address");
    let host = http::connect(host).expect("a runtime");
    pid(&host).await;
    host.shutdown().await.expect("the driver runs");
    assert_eq!(guard.terminate().code(), Some(0));
    let entries = guard.remaining_entries();
    let index_of = |words: &str| {
        let has_words =
            |entry: &Value| entry["event"].as_str().is_some_and(|it| it.contains(words));
        entries.iter().position(has_words).expect("a log entry")
    };
    assert!(
        index_of("host 1.0 connected") < index_of("opening connection 1"),
        "{entries:?}"
    );
}

#[tokio::test]
async fn two_http_hosts_share_one_server_and_have_separate_sessions() {
    let ports = [
        "--listen",
        "http://127.0.0.1:0/mcp",
        "--status",
        "127.0.0.1:0",
    ];
    let mut guard = GuardProcess::start(&ports, &SERVER.map(PathBuf::from));
    let (status, url) = (guard.log_value("status"), guard.log_value("listening"));
    let host = |name: &str| {
        let mut config = Config::http(name, "1.0", &url).expect("an address");
        config.dialect = Dialect::Legacy;
        http::connect(config).expect("a runtime")
    };
    let (one, other) = (host("one"), host("other"));
    assert_eq!(pid(&one).await, pid(&other).await);
    let page = get(&status);
    let (_, body) = page.split_once("\r\n\r\n").expect("a body");
    let state: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(state["downstream"]["sessions"], 2, "{state}");
    one.shutdown().await.expect("the driver runs");
    let reply = other.call_tool("echo", json!({"message": "still"})).await;
    assert_eq!(reply.expect("a reply").text(), "still");
    other.shutdown().await.expect("the driver runs");
    assert_eq!(guard.terminate().code(), Some(0));
}

/// A server that asks one host a question after its reply to that host, while another host has the only call in flight.
const LATE_SERVER: &str = r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  say() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
  case "$line" in
    *'"initialize"'*) say '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"late","version":"1"}}' ;;
    *'"name":"order"'*) say '{"content":[{"type":"text","text":"ordered"}]}' ;;
    *'"name":"look"'*)
      printf '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Ann, confirm the payment","requestedSchema":{"type":"object","properties":{}}}}\n'
      read -r answer
      case "$answer" in
        *'nobody was asked'*) say '{"content":[{"type":"text","text":"it was refused"}]}' ;;
        *) say '{"content":[{"type":"text","text":"it was accepted"}]}' ;;
      esac ;;
  esac
done"#;

/// The user of one host is not asked to confirm an order of another host. The log of the guard reports the ask.
#[test]
fn late_ask_of_a_shared_server_is_refused_and_not_sent_to_another_host() {
    let ports = ["--listen", "http://127.0.0.1:0/mcp", "--era", "legacy"];
    let server = ["sh", "-c", LATE_SERVER].map(PathBuf::from);
    let mut guard = GuardProcess::start(&ports, &server);
    let url = guard.log_value("listening");
    let rest = url.strip_prefix("http://").expect("an address");
    let (address, _) = rest.split_once('/').expect("a path");
    let post = |session: Option<&str>, body: Value| {
        let body = body.to_string();
        let session = session.map(|id| format!("Mcp-Session-Id: {id}\r\n"));
        let mut stream = TcpStream::connect(address).expect("the guard listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        write!(stream, "POST /mcp HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{}Content-Length: {}\r\n\r\n{body}", session.unwrap_or_default(), body.len()).expect("the guard reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("a response");
        text
    };
    let host = |name: &str| {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": name, "version": "1"},
        });
        let response = post(
            None,
            json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}),
        );
        let mut lines = response.lines();
        let id = lines.find_map(|line| line.strip_prefix("mcp-session-id: "));
        let id = id.expect("a session").to_owned();
        post(
            Some(&id),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        );
        id
    };
    let call = |name: &str| json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}});
    let (ann, eve) = (host("ann"), host("eve"));
    let ordered = post(Some(&ann), call("order"));
    assert!(ordered.contains("ordered"), "{ordered}");
    let looked = post(Some(&eve), call("look"));
    assert!(looked.contains("it was refused"), "{looked}");
    assert!(!looked.contains("confirm the payment"), "{looked}");
    assert_eq!(guard.terminate().code(), Some(0));
    let entries = guard.remaining_entries();
    let is_refused_ask = |entry: &&Value| {
        let event = entry["event"].as_str().unwrap_or_default();
        event.contains("nobody was asked") && entry["method"] == "elicitation/create"
    };
    assert_eq!(
        entries.iter().filter(is_refused_ask).count(),
        1,
        "{entries:?}"
    );
}

/// The status port answers 403 to a foreign `Host` (DNS rebinding) and to a foreign `Origin`. The page has no text from the server or the operating
/// system.
#[test]
fn status_page_refuses_foreign_host_and_origin_headers_and_has_no_text_of_the_server() {
    let script = r#"read -r line; echo "secret of the server" >&2; printf '{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"cannot read /home/ann/secret.key"}}\n{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"cannot read /home/ann/secret.key"}}\n'; exit 3"#;
    let servers = [
        vec![PathBuf::from("/home/ann/secret/server")],
        ["sh", "-c", script].map(PathBuf::from).to_vec(),
    ];
    for server in servers {
        let options = [
            "--listen",
            "http://127.0.0.1:0/mcp",
            "--status",
            "127.0.0.1:0",
            "--allow-host",
            "guard.example",
        ];
        let guard = GuardProcess::start(&options, &server);
        let (status, url) = (guard.log_value("status"), guard.log_value("listening"));
        let address_in = |url: &str| {
            let rest = url.strip_prefix("http://").expect("an address");
            let (address, _) = rest.split_once('/').expect("a path");
            address.to_owned()
        };
        let listen_address = address_in(&url);
        let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}"#;
        let mut host = TcpStream::connect(&listen_address).expect("the guard listens");
        write!(host, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{hello}", hello.len()).expect("the guard reads the request");
        let status_address = address_in(&status);
        let get_status = |fields: &str| {
            let mut stream = TcpStream::connect(&status_address).expect("the guard listens");
            write!(stream, "GET / HTTP/1.0\r\n{fields}\r\n").expect("the guard listens");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("a response");
            text
        };
        crate::support::wait_until("the server has ended once", || {
            get_status("Host: localhost\r\n").contains("\"last_end\":\"")
        });
        let page = get_status("Host: localhost:81\r\nOrigin: http://127.0.0.1:82\r\n");
        assert!(page.contains(" 200 "), "{page}");
        assert!(
            !page.contains("secret") && !page.contains("/home"),
            "{page}"
        );
        assert!(get_status("Host: guard.example\r\n").contains(" 200 "));
        for foreign in [
            "Host: evil.example\r\n",
            // No `Host` field.
            "",
            "Host: localhost\r\nOrigin: http://evil.example\r\n",
            "Host: localhost\r\nOrigin: null\r\n",
        ] {
            let page = get_status(foreign);
            assert!(page.contains(" 403 "), "{foreign}: {page}");
            assert!(!page.contains("upstream"), "{page}");
        }
        drop(guard);
    }
}

/// With the text log, which writes to standard error.
#[test]
fn guard_serves_with_a_full_or_closed_stderr() {
    let (full, unread) = UnixStream::pair().expect("a pair");
    full.set_nonblocking(true).expect("a socket");
    while (&full).write(&[b'.'; 4096]).is_ok() {}
    full.set_nonblocking(false).expect("a socket");
    let mut host = Host::start(Stdio::from(OwnedFd::from(full)), &[], &SERVER);
    host.handshake_and_echo();
    assert_eq!(host.disconnect().code(), Some(0));
    drop(unread);

    let (closed_end, reader) = UnixStream::pair().expect("a pair");
    drop(reader);
    let mut host = Host::start(Stdio::from(OwnedFd::from(closed_end)), &[], &SERVER);
    host.handshake_and_echo();
    assert_eq!(host.disconnect().code(), Some(0));

    let script = r#"exec "$0" guard -- "$0" demo-server 2>&-"#;
    let mut closed = Command::new("sh");
    closed.args(["-c", script, EVERLINK]);
    closed.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    let mut host = Host::of(closed.stderr(Stdio::null()));
    host.handshake_and_echo();
    assert_eq!(host.disconnect().code(), Some(0));
}

#[test]
fn host_that_sends_invalid_lines_is_still_served() {
    let mut host = Host::start(Stdio::null(), &[], &SERVER);
    for invalid in [
        "What?",
        "{",
        "[]",
        "{\"jsonrpc\":\"2.0\"}",
        "",
        "\u{0}\u{7f}",
    ] {
        host.send(invalid);
    }
    host.handshake_and_echo();
    assert_eq!(host.disconnect().code(), Some(0));
}

#[test]
fn guard_exits_when_its_host_closes_stdout() {
    let mut host = Host::start(Stdio::null(), &[], &SERVER);
    host.handshake_and_echo();
    drop(host.stdout.take());
    host.send(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#);
    assert_eq!(host.wait_for_exit().code(), Some(0));
}

#[test]
fn call_in_flight_is_answered_after_sigterm() {
    check_call_in_flight("drained", &[Signal::TERM]);
}

/// A service manager signals a whole process group, and a launcher in the group forwards its signal: the guard gets two. Two of one kind could be
/// delivered as one.
#[test]
fn call_in_flight_is_answered_after_two_signals_at_once() {
    check_call_in_flight("drained-twice", &[Signal::TERM, Signal::HUP]);
}

/// Checks that a call is answered although the guard gets these signals meanwhile.
fn check_call_in_flight(name: &str, signals: &[Signal]) {
    let diary = Diary::new(name);
    let mut host = Host::start(Stdio::null(), &[], &diary.server());
    host.handshake_and_echo();
    host.send_call(7, "sleep", &json!({"ms": 300, "number": 7}));
    let start = Instant::now();
    while !diary.has(7) {
        assert!(start.elapsed() < TIMEOUT, "the call does not run");
        thread::sleep(Duration::from_millis(5));
    }
    let guard = Pid::from_child(&host.process);
    for signal in signals {
        kill_process(guard, *signal).expect("the process exists");
    }
    let reply = host.receive(7);
    let text = &reply["result"]["content"][0]["text"];
    assert_eq!(text, "slept for 300 ms", "{reply}");
    assert_eq!(host.wait_for_exit().code(), Some(0));
}

#[test]
fn initialize_fails_with_a_hint_if_the_server_requires_credentials() {
    let unauthorized_server = UnauthorizedServer::start();
    let mut host = Host::start(
        Stdio::null(),
        &["--url", &unauthorized_server.url],
        &[] as &[&str],
    );
    let why = host.initialize_error();
    assert!(why.contains("wants credentials"), "{why}");
    assert!(why.contains("--bearer-env"), "{why}");
    assert_eq!(host.disconnect().code(), Some(0));
}

/// A simple host at the standard streams of a guard. Dropping this kills the guard.
pub(crate) struct Host {
    pub(crate) process: Child,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: Option<BufReader<ChildStdout>>,
}

impl Host {
    pub(crate) fn start(
        stderr: Stdio,
        options: &[&str],
        server: &[impl AsRef<std::ffi::OsStr>],
    ) -> Host {
        let mut guard = program();
        guard.arg("guard").args(options).stderr(stderr);
        if !server.is_empty() {
            guard.arg("--").args(server);
        }
        Host::of(&mut guard)
    }

    pub(crate) fn of(guard: &mut Command) -> Host {
        guard.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = guard.spawn().expect("the program starts");
        let (stdin, stdout) = (process.stdin.take(), process.stdout.take());
        Host {
            process,
            stdin,
            stdout: stdout.map(BufReader::new),
        }
    }

    pub(crate) fn send(&mut self, line: &str) {
        let mut stdin = self.stdin.as_ref().expect("stdin is open");
        writeln!(stdin, "{line}").expect("the guard reads");
    }

    /// Waits for the reply to this request. Skips all other messages.
    pub(crate) fn receive(&mut self, id: u64) -> Value {
        let stdout = self.stdout.as_mut().expect("stdout is open");
        loop {
            let mut line = String::new();
            stdout.read_line(&mut line).expect("valid UTF-8");
            let message: Value = serde_json::from_str(&line).expect("JSON");
            if message["id"] == id {
                return message;
            }
        }
    }

    pub(crate) fn send_call(&mut self, id: u64, tool: &str, arguments: &Value) {
        let params = json!({"name": tool, "arguments": arguments});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        self.send(&call.to_string());
    }

    /// Sends `initialize` and returns the reply.
    pub(crate) fn initialize(&mut self) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "host", "version": "1"},
        });
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        self.send(&hello.to_string());
        self.receive(1)
    }

    /// Sends `initialize` and returns the message of the error.
    pub(crate) fn initialize_error(&mut self) -> String {
        let reply = self.initialize();
        let why = reply["error"]["message"].as_str();
        why.unwrap_or_else(|| panic!("{reply}")).to_owned()
    }

    pub(crate) fn handshake(&mut self) {
        let reply = self.initialize();
        assert!(reply["result"]["serverInfo"].is_object(), "{reply}");
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    }

    pub(crate) fn handshake_and_echo(&mut self) {
        self.handshake();
        self.send_call(2, "echo", &json!({"message": "hello"}));
        let reply = self.receive(2);
        assert_eq!(reply["result"]["content"][0]["text"], "hello", "{reply}");
    }

    pub(crate) fn disconnect(&mut self) -> ExitStatus {
        drop(self.stdin.take());
        self.wait_for_exit()
    }

    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        wait_for_exit(&mut self.process)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn wait_for_exit(process: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = process.try_wait().expect("a child process") {
            return status;
        }
        assert!(start.elapsed() < TIMEOUT, "the process does not end");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A guard with a JSON log. Dropping this kills it.
pub(crate) struct GuardProcess {
    process: Child,
    entries: Receiver<Value>,
}

impl GuardProcess {
    pub(crate) fn start(options: &[&str], server: &[PathBuf]) -> GuardProcess {
        let mut process = program()
            .args(["guard", "--log", "json"])
            .args(options)
            .arg("--")
            .args(server)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stderr = process.stderr.take().expect("a pipe");
        let (sender, entries) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).expect("a line of JSON"));
            }
        });
        GuardProcess { process, entries }
    }

    /// Returns the next line of the log.
    pub(crate) fn log_entry(&self) -> Value {
        self.entries.recv_timeout(TIMEOUT).expect("a log entry")
    }

    /// Returns the value of this member in the next line of the log.
    pub(crate) fn log_value(&self, name: &str) -> String {
        self.log_entry()[name]
            .as_str()
            .expect("an address")
            .to_owned()
    }

    pub(crate) fn terminate(&mut self) -> ExitStatus {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::TERM).expect("the process exists");
        self.wait_for_exit()
    }

    fn wait_for_exit(&mut self) -> ExitStatus {
        wait_for_exit(&mut self.process)
    }

    /// Returns all remaining lines of the log.
    pub(crate) fn remaining_entries(&self) -> Vec<Value> {
        self.entries.iter().collect()
    }
}

impl Drop for GuardProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The file in which the server notes the calls that it runs.
pub(crate) struct Diary(pub(crate) PathBuf);

impl Diary {
    pub(crate) fn new(name: &str) -> Diary {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("guard-{name}.diary"));
        let _ = fs::remove_file(&path);
        Diary(path)
    }

    /// The command of a server that writes this file.
    fn server(&self) -> [PathBuf; 4] {
        let diary = self.0.clone();
        [
            EVERLINK.into(),
            "demo-server".into(),
            "--diary".into(),
            diary,
        ]
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().any(|line| line == number.to_string())
    }
}

impl Drop for Diary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns the process id of the server.
async fn pid(host: &Link) -> Pid {
    let pid = host.call_tool("pid", json!({})).await.expect("a reply");
    let pid = pid.text().parse().expect("a number");
    Pid::from_raw(pid).expect("a process")
}

async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < TIMEOUT, "{what}: not in time");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Sends a GET request. Returns the response with its head.
pub(crate) fn get(url: &str) -> String {
    let (host, path) = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .expect("an address");
    let mut stream = TcpStream::connect(host).expect("the guard listens");
    write!(stream, "GET /{path} HTTP/1.0\r\nHost: {host}\r\n\r\n").expect("the guard listens");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response");
    text
}
