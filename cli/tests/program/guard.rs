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

use crate::props::{
    Bouncer, EVERLINK, PATIENCE, SERVER, Terminal, everlink, is_there, program, text,
};

#[tokio::test]
async fn a_host_at_the_standard_streams_keeps_its_connection() {
    let diary = Diary::new("stdio");
    let mut guard = program();
    guard.args(["guard", "--log", "off", "--"]);
    guard.args(diary.server());
    let host = child::connect(guard, Config::child("host", "1.0")).expect("a runtime");
    outlive_the_server(&host, &diary).await;
    let server = pid(&host).await;
    host.shutdown().await.expect("it is driven");
    until("the server is gone", || !is_there(server)).await;
}

#[tokio::test]
async fn hosts_over_http_keep_theirs_and_the_status_tells() {
    let diary = Diary::new("http");
    let ports = [
        "--listen",
        "http://127.0.0.1:0/mcp",
        "--status",
        "127.0.0.1:0",
    ];
    let mut guard = Running::start(&ports, &diary.server());
    let status = guard.told("status");
    let url = guard.told("listening");
    let before = get(&format!("{status}metrics"));
    assert!(
        before.contains("\neverlink_downstream_answered_total 0\n"),
        "{before}"
    );

    let host = Config::http("host", "1.0", &url).expect("an address");
    let host = http::connect(host).expect("a runtime");
    outlive_the_server(&host, &diary).await;

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
    host.shutdown().await.expect("it is driven");
    let ended = guard.terminate();
    assert_eq!(ended.code(), Some(0));
    until("the server is gone", || !is_there(server)).await;

    // The log has the events of both sides, and the lost call.
    let told: Vec<Value> = guard.rest();
    let has = |side: &str, words: &str| {
        told.iter().any(|fact| {
            fact["side"] == side && fact["event"].as_str().is_some_and(|it| it.contains(words))
        })
    };
    assert!(has("downstream", "host 1.0 connected"), "{told:?}");
    assert!(has("upstream", "connection 2 is ready"), "{told:?}");
    assert!(has("downstream", "closed"), "{told:?}");
    let mut lost = told.iter().filter(|fact| fact["mayHaveRun"] == true);
    assert_eq!(
        lost.next().map(|fact| &fact["method"]),
        Some(&json!("tools/call"))
    );
}

/// The server is killed in the middle of a call. That call fails, the link of the host stays up, and the next call succeeds.
async fn outlive_the_server(host: &Link, diary: &Diary) {
    let tools = host.list_tools().await.expect("a list");
    assert!(!tools.items.is_empty());
    let said = host.call_tool("echo", json!({"message": "hello"})).await;
    assert_eq!(said.expect("a reply").text(), "hello");

    let victim = pid(host).await;
    let call = host.call_tool("sleep", json!({"ms": 600_000, "number": 7}));
    until("the call runs", || diary.has(7)).await;
    kill_process(victim, Signal::KILL).expect("it is there");
    let lost = call.await.expect("an answer of the guard");
    assert!(lost.is_error());
    assert!(lost.text().contains("may have run"), "{}", lost.text());
    assert!(lost.text().contains("signal 9"), "{}", lost.text());

    let said = host.call_tool("echo", json!({"message": "again"})).await;
    assert_eq!(said.expect("a reply").text(), "again");
    assert_ne!(pid(host).await, victim);
    assert_eq!(host.epoch(), Epoch::FIRST);
}

/// A host that is a link of this library sees its handshake refused, and its calls fail with the reason.
#[tokio::test]
async fn a_server_that_cannot_be_started_is_told_to_a_link() {
    let mut guard = program();
    guard.args(["guard", "--log", "off", "--", "/no/such/server"]);
    let host = child::connect(guard, Config::child("host", "1.0")).expect("a runtime");
    let failed = host.call_tool("echo", json!({})).await;
    let text = failed.expect_err("there is no server").to_string();
    let words = "`/no/such/server` cannot be started";
    assert!(text.contains(words), "{text}");
    host.shutdown().await.expect("it is driven");
}

/// Only a call that is in flight when the server dies may fail, no matter how many times it dies.
#[tokio::test]
async fn eight_kills_in_a_row_fail_no_call_of_a_host_that_goes_on_calling() {
    let mut guard = Command::new(EVERLINK);
    guard.args(["guard", "--log", "off", "--"]).args(SERVER);
    let host = child::connect(guard, Config::child("host", "1.0")).expect("a runtime");
    for death in 1..=8 {
        let victim = pid(&host).await;
        kill_process(victim, Signal::KILL).expect("it is there");
        until("the guard has reaped it", || !is_there(victim)).await;
        let start = Instant::now();
        let said = host.call_tool("echo", json!({"message": "hello"})).await;
        let said = said.expect("an answer of the guard");
        assert!(!said.is_error(), "after death {death}: {}", said.text());
        assert!(start.elapsed() < Duration::from_secs(5), "{death}");
    }
    host.shutdown().await.expect("it is driven");
}

/// A call fails before its host gives up while the server is down, and says when the next attempt is. The first call after the server is back
/// succeeds.
#[tokio::test]
async fn calls_look_for_a_server_that_is_away() {
    let flag = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guard-away.flag");
    fs::write(&flag, "").expect("a file");
    let script = r#"test -e "$1" || exit 3; exec "$0" demo-server"#;
    let mut guard = Command::new(EVERLINK);
    guard.args(["guard", "--log", "off", "--retries", "1", "--"]);
    guard.args(["sh", "-c", script, EVERLINK]).arg(&flag);
    let host = child::connect(guard, Config::child("host", "1.0")).expect("a runtime");
    host.ready()
        .await
        .expect("it is driven")
        .expect("the guard");
    let victim = pid(&host).await;
    fs::remove_file(&flag).expect("it is there");
    kill_process(victim, Signal::KILL).expect("it is there");
    until("the guard has reaped it", || !is_there(victim)).await;
    for _ in 0..2 {
        let start = Instant::now();
        let said = host.call_tool("echo", json!({})).await;
        let said = said.expect("an answer of the guard");
        assert!(said.is_error(), "{}", said.text());
        assert!(start.elapsed() >= Duration::from_secs(3), "{}", said.text());
        for words in ["the next attempt is in", "exit status 3", "did not run"] {
            assert!(said.text().contains(words), "{words}: {}", said.text());
        }
    }
    let call = host.call_tool("echo", json!({"message": "hello"}));
    fs::write(&flag, "").expect("a file");
    let said = call.await.expect("an answer of the guard");
    assert_eq!(said.text(), "hello");
    host.shutdown().await.expect("it is driven");
    fs::remove_file(&flag).expect("it is there");
}

/// A host whose guard replaces a hung server after 1 s of silence, or after 4 s if the server may be working on a call.
fn host_of_a_stern_guard(server: &[&str]) -> Link {
    let mut guard = Command::new(EVERLINK);
    guard.args(["guard", "--log", "off", "--keepalive", "0.3"]);
    guard.args(["--hang-timeout", "1", "--"]).args(server);
    child::connect(guard, Config::child("host", "1.0")).expect("a runtime")
}

#[tokio::test]
async fn a_stopped_server_is_replaced_while_a_call_waits() {
    let host = host_of_a_stern_guard(&SERVER);
    let victim = pid(&host).await;
    kill_process(victim, Signal::STOP).expect("it is there");
    let lost = host.call_tool("echo", json!({"message": "lost"})).await;
    let lost = lost.expect("an answer of the guard");
    assert!(lost.is_error(), "{}", lost.text());
    for words in ["silent", "answered no probe", "stopped (SIGSTOP)"] {
        assert!(lost.text().contains(words), "{words}: {}", lost.text());
    }
    let said = host.call_tool("echo", json!({"message": "again"})).await;
    assert_eq!(said.expect("a reply").text(), "again");
    assert_ne!(pid(&host).await, victim);
    host.shutdown().await.expect("it is driven");
}

#[tokio::test]
async fn a_stopped_server_of_which_nothing_is_wanted_is_left_alone() {
    let host = host_of_a_stern_guard(&SERVER);
    let server = pid(&host).await;
    kill_process(server, Signal::STOP).expect("it is there");
    sleep(Duration::from_secs(4)).await;
    kill_process(server, Signal::CONT).expect("it was not killed");
    assert_eq!(pid(&host).await, server);
    host.shutdown().await.expect("it is driven");
}

/// The server answers nothing for longer than it may be silent, but uses CPU time.
#[tokio::test]
async fn a_busy_server_is_not_killed() {
    let host = host_of_a_stern_guard(&SERVER);
    let server = pid(&host).await;
    let said = host.call_tool("spin", json!({"ms": 6_000})).await;
    assert_eq!(said.expect("a reply").text(), "done");
    // The server is busy after its reply.
    let said = host.call_tool("spin", json!({"ms": 4_000, "later": true}));
    assert_eq!(said.await.expect("a reply").text(), "done");
    sleep(Duration::from_millis(200)).await;
    assert_eq!(pid(&host).await, server);
    // The server is busy with a call that was cancelled.
    let call = host.call_tool("spin", json!({"ms": 4_000}));
    sleep(Duration::from_millis(200)).await;
    call.canceller().cancel("it takes too long");
    call.await.expect_err("it was cancelled");
    assert_eq!(pid(&host).await, server);
    host.shutdown().await.expect("it is driven");
}

/// The server answers nothing for longer than it may be silent, because the waiting call blocks its only thread.
#[tokio::test]
async fn a_server_that_blocks_on_a_call_is_not_killed() {
    let host = host_of_a_stern_guard(&SERVER);
    let server = pid(&host).await;
    // Lets the server answer a probe first, so that the guard knows that it does.
    sleep(Duration::from_secs(1)).await;
    let said = host.call_tool("block", json!({"ms": 3_000})).await;
    assert_eq!(said.expect("a reply").text(), "done");
    assert_eq!(pid(&host).await, server);
    host.shutdown().await.expect("it is driven");
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
async fn a_server_that_ignores_ping_is_not_killed() {
    let host = host_of_a_stern_guard(&["sh", "-c", IGNORES_PING]);
    let server = pid(&host).await;
    for _ in 0..2 {
        sleep(Duration::from_secs(3)).await;
        assert_eq!(pid(&host).await, server);
    }
    host.shutdown().await.expect("it is driven");
}

/// A server that lost its own upstream, like a bridge to a remote server. It answers only the first call, and each probe with an error.
const LOST: &str = r#"
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
async fn a_server_that_answers_probes_with_a_lost_session_is_replaced_while_a_call_waits() {
    let host = host_of_a_stern_guard(&["sh", "-c", LOST]);
    let first = pid(&host).await;
    let lost = timeout(PATIENCE, host.call_tool("pid", json!({}))).await;
    let lost = lost.expect("it does not hang").expect("an answer");
    assert!(lost.is_error(), "{}", lost.text());
    assert!(lost.text().contains("lost session"), "{}", lost.text());
    assert_ne!(pid(&host).await, first);
    host.shutdown().await.expect("it is driven");
}

/// A host keeps calling while an HTTP server is redeployed. Each call fails in time with the reason, and a call soon after the server is back
/// succeeds.
#[tokio::test]
async fn calls_find_a_server_over_http_after_a_redeploy_of_twelve_seconds() {
    let held = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let url = format!("http://{}/mcp", held.local_addr().expect("it has one"));
    drop(held);
    let deploy = || {
        let server = Running::start(&["--listen", &url], &SERVER.map(PathBuf::from));
        server.told("listening");
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
    let gone = Instant::now();
    while gone.elapsed() < Duration::from_secs(12) {
        let since = Instant::now();
        let said = host.call_tool("echo", json!({})).await.expect("an answer");
        assert!(said.is_error(), "{}", said.text());
        // Hosts give up after 5 s.
        assert!(since.elapsed() < Duration::from_secs(5), "{}", said.text());
        assert!(
            said.text().contains("the next attempt is in"),
            "{}",
            said.text()
        );
    }
    let mut server = deploy();
    let said = host.call_tool("echo", json!({"message": "hello"})).await;
    assert_eq!(said.expect("an answer").text(), "hello");
    host.shutdown().await.expect("it is driven");
    assert_eq!(server.terminate().code(), Some(0));
}

#[test]
fn it_ends_with_its_host() {
    let mut guard = Running::start(&[], &[EVERLINK.into(), "demo-server".into()]);
    drop(guard.process.stdin.take());
    assert_eq!(guard.ended().code(), Some(0));
    let told = guard.rest();
    let mut last = told.iter().filter(|fact| fact["side"] == "downstream");
    assert_eq!(
        last.next_back().map(|fact| &fact["event"]),
        Some(&json!("closed"))
    );
}

#[test]
fn where_it_listens_it_must_know_for_whom() {
    for (listen, hint) in [
        ("http://0.0.0.0:0/mcp", "--allow-host"),
        ("http://127.0.0.1/mcp", "port"),
        ("http://127.0.0.1:99999/mcp", "up to 65535"),
        ("https://127.0.0.1:0/mcp", "http://"),
        ("nowhere", "http://"),
    ] {
        let mut guard = program();
        let output = guard.args(["guard", "--listen", listen, "--", "true"]);
        let output = output.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{listen}");
        assert!(said.contains(listen) && said.contains(hint), "{said}");
    }
}

#[test]
fn what_cannot_be_begun_is_said_at_once() {
    let held = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = held.local_addr().expect("it has an address").to_string();
    let url = format!("http://{address}/mcp");
    let cases: [(&[&str], i32, &str); 3] = [
        (&["--status", &address], 4, &address),
        (&["--listen", &url], 4, &address),
        (&["--allow-host", "shop"], 2, "--allow-host"),
    ];
    for (options, code, words) in cases {
        let output = everlink(&[&["guard"], options].concat(), &SERVER);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{options:?}: {said}");
        assert!(said.starts_with("everlink: "), "{said}");
        assert!(said.contains(words), "{options:?}: {said}");
    }
}

#[test]
fn a_person_who_tries_it_out_is_told_what_it_is_for() {
    let mut command = program();
    command.args(["guard", "--"]).args(SERVER);
    let mut terminal = Terminal::start(&mut command);
    terminal.shows("the configuration of a host");
    terminal.signal(Signal::TERM);
    let (screen, output) = terminal.end();
    assert_eq!(output.status.code(), Some(0), "{screen}");
}

/// The options of the guard limit the time of a call, whatever the timeout of the host.
#[tokio::test]
async fn calls_through_a_guard_have_the_time_that_is_said() {
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
        host.shutdown().await.expect("it is driven");
    }
}

/// The server learns in its handshake which asks the host supports, so the server is started after the host connects.
#[tokio::test]
async fn a_server_is_started_for_the_first_host_that_comes() {
    let mut guard = Running::start(
        &["--listen", "http://127.0.0.1:0/mcp"],
        &SERVER.map(PathBuf::from),
    );
    let url = guard.told("listening");
    let host = Config::http("host", "1.0", &url).expect("an address");
    let host = http::connect(host).expect("a runtime");
    pid(&host).await;
    host.shutdown().await.expect("it is driven");
    assert_eq!(guard.terminate().code(), Some(0));
    let told = guard.rest();
    let place = |words: &str| {
        let is_it = |fact: &Value| fact["event"].as_str().is_some_and(|it| it.contains(words));
        told.iter().position(is_it).expect("it is told")
    };
    assert!(
        place("host 1.0 connected") < place("opening connection 1"),
        "{told:?}"
    );
}

#[tokio::test]
async fn hosts_share_the_server_and_have_sessions_of_their_own() {
    let ports = [
        "--listen",
        "http://127.0.0.1:0/mcp",
        "--status",
        "127.0.0.1:0",
    ];
    let mut guard = Running::start(&ports, &SERVER.map(PathBuf::from));
    let (status, url) = (guard.told("status"), guard.told("listening"));
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
    one.shutdown().await.expect("it is driven");
    let said = other.call_tool("echo", json!({"message": "still"})).await;
    assert_eq!(said.expect("a reply").text(), "still");
    other.shutdown().await.expect("it is driven");
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

/// Rule 17: the user of one host is not asked to confirm an order of another host. The log of the guard reports the ask.
#[test]
fn question_for_one_host_is_not_put_to_another() {
    let ports = ["--listen", "http://127.0.0.1:0/mcp", "--era", "legacy"];
    let server = ["sh", "-c", LATE_SERVER].map(PathBuf::from);
    let mut guard = Running::start(&ports, &server);
    let url = guard.told("listening");
    let rest = url.strip_prefix("http://").expect("an address");
    let (place, _) = rest.split_once('/').expect("a path");
    let post = |session: Option<&str>, body: Value| {
        let body = body.to_string();
        let session = session.map(|id| format!("Mcp-Session-Id: {id}\r\n"));
        let mut stream = TcpStream::connect(place).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        write!(stream, "POST /mcp HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{}Content-Length: {}\r\n\r\n{body}", session.unwrap_or_default(), body.len()).expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text
    };
    let host = |name: &str| {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": name, "version": "1"},
        });
        let begun = post(
            None,
            json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}),
        );
        let mut lines = begun.lines();
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
    let told = guard.rest();
    let is_told = |fact: &&Value| {
        let event = fact["event"].as_str().unwrap_or_default();
        event.contains("nobody was asked") && fact["method"] == "elicitation/create"
    };
    assert_eq!(told.iter().filter(is_told).count(), 1, "{told:?}");
}

/// A stranger's web page cannot read the status, neither through its own domain for this machine nor from its own origin. The status shows no text of
/// the server or the system.
#[test]
fn status_is_for_this_machine_and_shows_no_text_of_the_server() {
    let script = r#"read -r line; echo "secret of the server" >&2; printf '{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"cannot read /home/ann/secret.key"}}\n{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"cannot read /home/ann/secret.key"}}\n'; exit 3"#;
    let servers = [
        vec![PathBuf::from("/home/ann/secret/server")],
        ["sh", "-c", script].map(PathBuf::from).to_vec(),
    ];
    for server in servers {
        let ports = [
            "--listen",
            "http://127.0.0.1:0/mcp",
            "--status",
            "127.0.0.1:0",
            "--allow-host",
            "guard.example",
        ];
        let guard = Running::start(&ports, &server);
        let (status, url) = (guard.told("status"), guard.told("listening"));
        let place = |url: &str| {
            let rest = url.strip_prefix("http://").expect("an address");
            let (place, _) = rest.split_once('/').expect("a path");
            place.to_owned()
        };
        let place_of_hosts = place(&url);
        let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}"#;
        let mut host = TcpStream::connect(&place_of_hosts).expect("it listens");
        write!(host, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{hello}", hello.len()).expect("it reads");
        let port = place(&status);
        let ask = |fields: &str| {
            let mut stream = TcpStream::connect(&port).expect("somebody listens");
            write!(stream, "GET / HTTP/1.0\r\n{fields}\r\n").expect("it listens");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("it answers");
            text
        };
        crate::props::until("the server has ended once", || {
            ask("Host: localhost\r\n").contains("\"last_end\":\"")
        });
        let page = ask("Host: localhost:81\r\nOrigin: http://127.0.0.1:82\r\n");
        assert!(page.contains(" 200 "), "{page}");
        assert!(
            !page.contains("secret") && !page.contains("/home"),
            "{page}"
        );
        assert!(ask("Host: guard.example\r\n").contains(" 200 "));
        for strange in [
            "Host: evil.example\r\n",
            "",
            "Host: localhost\r\nOrigin: http://evil.example\r\n",
            "Host: localhost\r\nOrigin: null\r\n",
        ] {
            let page = ask(strange);
            assert!(page.contains(" 403 "), "{strange}: {page}");
            assert!(!page.contains("upstream"), "{page}");
        }
        drop(guard);
    }
}

/// With the text log, which writes to standard error.
#[test]
fn a_standard_error_that_nobody_reads_stops_nothing() {
    let (full, unread) = UnixStream::pair().expect("a pair");
    full.set_nonblocking(true).expect("it can be");
    while (&full).write(&[b'.'; 4096]).is_ok() {}
    full.set_nonblocking(false).expect("it can be");
    let mut host = Host::start(Stdio::from(OwnedFd::from(full)), &[], &SERVER);
    host.meets_and_calls();
    assert_eq!(host.leaves().code(), Some(0));
    drop(unread);

    let (gone, reader) = UnixStream::pair().expect("a pair");
    drop(reader);
    let mut host = Host::start(Stdio::from(OwnedFd::from(gone)), &[], &SERVER);
    host.meets_and_calls();
    assert_eq!(host.leaves().code(), Some(0));

    let script = r#"exec "$0" guard -- "$0" demo-server 2>&-"#;
    let mut closed = Command::new("sh");
    closed.args(["-c", script, EVERLINK]);
    closed.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    let mut host = Host::of(closed.stderr(Stdio::null()));
    host.meets_and_calls();
    assert_eq!(host.leaves().code(), Some(0));
}

#[test]
fn a_host_that_talks_nonsense_is_served_all_the_same() {
    let mut host = Host::start(Stdio::null(), &[], &SERVER);
    for nonsense in [
        "What?",
        "{",
        "[]",
        "{\"jsonrpc\":\"2.0\"}",
        "",
        "\u{0}\u{7f}",
    ] {
        host.says(nonsense);
    }
    host.meets_and_calls();
    assert_eq!(host.leaves().code(), Some(0));
}

#[test]
fn a_host_that_does_not_listen_any_more_has_gone() {
    let mut host = Host::start(Stdio::null(), &[], &SERVER);
    host.meets_and_calls();
    drop(host.hears.take());
    host.says(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#);
    assert_eq!(host.ended().code(), Some(0));
}

/// The call is answered although the guard was asked to end meanwhile.
#[test]
fn what_is_in_flight_has_a_while() {
    let diary = Diary::new("drained");
    let mut host = Host::start(Stdio::null(), &[], &diary.server());
    host.meets_and_calls();
    host.calls(7, "sleep", &json!({"ms": 300, "number": 7}));
    let start = Instant::now();
    while !diary.has(7) {
        assert!(start.elapsed() < PATIENCE, "it does not run");
        thread::sleep(Duration::from_millis(5));
    }
    let guard = Pid::from_child(&host.process);
    kill_process(guard, Signal::TERM).expect("it is there");
    let reply = host.hears(7);
    let text = &reply["result"]["content"][0]["text"];
    assert_eq!(text, "slept for 300 ms", "{reply}");
    assert_eq!(host.ended().code(), Some(0));
}

#[test]
fn nobody_behind_waits_for_credentials_that_will_not_come() {
    let bouncer = Bouncer::start();
    let mut host = Host::start(Stdio::null(), &["--url", &bouncer.url], &[] as &[&str]);
    let why = host.is_refused();
    assert!(why.contains("wants credentials"), "{why}");
    assert!(why.contains("--bearer-env"), "{why}");
    assert_eq!(host.leaves().code(), Some(0));
}

/// A simple host at the standard streams of a guard. Dropping this kills the guard.
pub(crate) struct Host {
    pub(crate) process: Child,
    pub(crate) says: Option<ChildStdin>,
    pub(crate) hears: Option<BufReader<ChildStdout>>,
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
        let mut process = guard.spawn().expect("it can be started");
        let (says, hears) = (process.stdin.take(), process.stdout.take());
        Host {
            process,
            says,
            hears: hears.map(BufReader::new),
        }
    }

    pub(crate) fn says(&mut self, line: &str) {
        let mut stdin = self.says.as_ref().expect("it speaks");
        writeln!(stdin, "{line}").expect("it is heard");
    }

    /// Waits for the reply to this request. Skips all other messages.
    pub(crate) fn hears(&mut self, id: u64) -> Value {
        let stdout = self.hears.as_mut().expect("it listens");
        loop {
            let mut line = String::new();
            stdout.read_line(&mut line).expect("it is text");
            let said: Value = serde_json::from_str(&line).expect("JSON");
            if said["id"] == id {
                return said;
            }
        }
    }

    pub(crate) fn calls(&mut self, id: u64, tool: &str, arguments: &Value) {
        let params = json!({"name": tool, "arguments": arguments});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        self.says(&call.to_string());
    }

    /// Sends `initialize` and returns the reply.
    pub(crate) fn introduces_itself(&mut self) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "host", "version": "1"},
        });
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        self.says(&hello.to_string());
        self.hears(1)
    }

    /// Sends `initialize` and returns the message of the error.
    pub(crate) fn is_refused(&mut self) -> String {
        let reply = self.introduces_itself();
        let why = reply["error"]["message"].as_str();
        why.unwrap_or_else(|| panic!("{reply}")).to_owned()
    }

    pub(crate) fn meets(&mut self) {
        let reply = self.introduces_itself();
        assert!(reply["result"]["serverInfo"].is_object(), "{reply}");
        self.says(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    }

    pub(crate) fn meets_and_calls(&mut self) {
        self.meets();
        self.calls(2, "echo", &json!({"message": "hello"}));
        let reply = self.hears(2);
        assert_eq!(reply["result"]["content"][0]["text"], "hello", "{reply}");
    }

    pub(crate) fn leaves(&mut self) -> ExitStatus {
        drop(self.says.take());
        self.ended()
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        ended(&mut self.process)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn ended(process: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = process.try_wait().expect("it is ours") {
            return status;
        }
        assert!(start.elapsed() < PATIENCE, "it does not end");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A guard with a JSON log. Dropping this kills it.
pub(crate) struct Running {
    process: Child,
    told: Receiver<Value>,
}

impl Running {
    pub(crate) fn start(options: &[&str], server: &[PathBuf]) -> Running {
        let mut process = program()
            .args(["guard", "--log", "json"])
            .args(options)
            .arg("--")
            .args(server)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let stderr = process.stderr.take().expect("it is piped");
        let (sender, told) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).expect("a line of JSON"));
            }
        });
        Running { process, told }
    }

    /// Returns the next line of the log.
    pub(crate) fn fact(&self) -> Value {
        self.told.recv_timeout(PATIENCE).expect("it is told")
    }

    /// Returns the value of this member in the next line of the log.
    pub(crate) fn told(&self, what: &str) -> String {
        self.fact()[what].as_str().expect("an address").to_owned()
    }

    pub(crate) fn terminate(&mut self) -> ExitStatus {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::TERM).expect("it is there");
        self.ended()
    }

    fn ended(&mut self) -> ExitStatus {
        ended(&mut self.process)
    }

    /// Returns all remaining lines of the log.
    pub(crate) fn rest(&self) -> Vec<Value> {
        self.told.iter().collect()
    }
}

impl Drop for Running {
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

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}: not in time");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Sends a GET request. Returns the response with its head.
pub(crate) fn get(url: &str) -> String {
    let (host, path) = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .expect("an address");
    let mut stream = TcpStream::connect(host).expect("somebody listens");
    write!(stream, "GET /{path} HTTP/1.0\r\nHost: {host}\r\n\r\n").expect("it listens");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}
