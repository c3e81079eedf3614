//! `everlink guard` between a host, which is a link of ours, and a server that is killed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use everlink::{Config, Epoch};
use everlink_tokio::{Link, child, http};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use tokio::time::sleep;

const EVERLINK: &str = env!("CARGO_BIN_EXE_everlink");

/// Nothing takes so long, not even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_host_at_the_standard_streams_keeps_its_connection() {
    let diary = Diary::new("stdio");
    let mut guard = Command::new(EVERLINK);
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
    assert!(before.contains("\neverlink_upstream_ready 0\n"), "{before}");
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

    // It was told what happened to both sides, and to the call.
    let told: Vec<Value> = guard.rest();
    let has = |side: &str, words: &str| {
        told.iter().any(|fact| {
            fact["side"] == side && fact["event"].as_str().is_some_and(|it| it.contains(words))
        })
    };
    assert!(has("downstream", "met host 1.0"), "{told:?}");
    assert!(has("upstream", "epoch 2 is ready"), "{told:?}");
    assert!(has("downstream", "closed"), "{told:?}");
    let mut lost = told.iter().filter(|fact| fact["mayHaveRun"] == true);
    assert_eq!(
        lost.next().map(|fact| &fact["method"]),
        Some(&json!("tools/call"))
    );
}

/// The server is killed in the middle of a call: that call fails, the link of the host does not, and the next call works.
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

#[tokio::test]
async fn a_server_that_cannot_be_started_is_no_reason_to_end() {
    let mut guard = Command::new(EVERLINK);
    guard.args(["guard", "--log", "off", "--retries", "1", "--"]);
    guard.arg("/no/such/server");
    let host = child::connect(guard, Config::child("host", "1.0")).expect("a runtime");
    for _ in 0..2 {
        let answer = host.call_tool("echo", json!({})).await;
        let answer = answer.expect("an answer of the guard");
        assert!(answer.is_error());
        let text = answer.text();
        assert!(text.contains("did not run"), "{text}");
        assert!(
            text.contains("`/no/such/server` cannot be started"),
            "{text}"
        );
    }
    assert_eq!(host.epoch(), Epoch::FIRST);
    host.shutdown().await.expect("it is driven");
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
        ("https://127.0.0.1:0/mcp", "http://"),
        ("nowhere", "http://"),
    ] {
        let mut guard = Command::new(EVERLINK);
        let output = guard.args(["guard", "--listen", listen, "--", "true"]);
        let output = output.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{listen}");
        assert!(said.contains(listen) && said.contains(hint), "{said}");
    }
}

/// A guard that tells in JSON what happens. Killed where it is left.
struct Running {
    process: Child,
    told: Receiver<Value>,
}

impl Running {
    fn start(options: &[&str], server: &[PathBuf]) -> Running {
        let mut process = Command::new(EVERLINK)
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

    /// The next thing that is told must be this.
    fn told(&self, what: &str) -> String {
        let fact = self.told.recv_timeout(PATIENCE).expect("it is told");
        fact[what].as_str().expect("an address").to_owned()
    }

    fn terminate(&mut self) -> ExitStatus {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::TERM).expect("it is there");
        self.ended()
    }

    fn ended(&mut self) -> ExitStatus {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.process.try_wait().expect("it is ours") {
                return status;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not end");
    }

    /// All else that it told until its end.
    fn rest(&self) -> Vec<Value> {
        self.told.iter().collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the server has run.
struct Diary(PathBuf);

impl Diary {
    fn new(name: &str) -> Diary {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("guard-{name}.diary"));
        let _ = fs::remove_file(&path);
        Diary(path)
    }

    /// The command of a server that writes it.
    fn server(&self) -> [PathBuf; 4] {
        let diary = self.0.clone();
        [
            EVERLINK.into(),
            "demo-server".into(),
            "--diary".into(),
            diary,
        ]
    }

    fn has(&self, number: u64) -> bool {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().any(|line| line == number.to_string())
    }
}

impl Drop for Diary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Which process the server behind is.
async fn pid(host: &Link) -> Pid {
    let pid = host.call_tool("pid", json!({})).await.expect("a reply");
    let pid = pid.text().parse().expect("a number");
    Pid::from_raw(pid).expect("a process")
}

fn is_there(pid: Pid) -> bool {
    test_kill_process(pid).is_ok()
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}: not in time");
        sleep(Duration::from_millis(5)).await;
    }
}

/// What is at this address, head and all.
fn get(url: &str) -> String {
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
