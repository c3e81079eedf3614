//! The scenarios, each with a Redis and nodes of its own.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Failure;
use crate::client::{Outcome, Session, send};
use crate::services::{Balancer, Directory, Node, Redis, free_port, start_guard};

type Scenario = (&'static str, fn() -> Result<(), Failure>);

const SCENARIOS: &[Scenario] = &[
    ("any node serves any request of a session", any_node),
    ("DELETE on one node ends the session on all", deleted),
    (
        "question is answered through another node",
        answered_elsewhere,
    ),
    (
        "change on one node is told through another",
        changed_elsewhere,
    ),
    (
        "stream cut on one node is resumed on another",
        resumed_elsewhere,
    ),
    ("notes that were read are removed from Redis", notes_removed),
    ("session goes on after its node is killed", node_killed),
    (
        "call is lost with its node, and its client is told so",
        call_lost,
    ),
    ("session goes on after Redis is restarted", redis_restarted),
    (
        "session is over on all nodes after Redis lost its data",
        redis_forgot,
    ),
    (
        "without Redis, sessions get 503 and modern calls are served",
        redis_away,
    ),
    (
        "rolling restart loses no session and no event",
        rolling_restart,
    ),
    ("guards serve the sessions of each other", guards),
    ("HAProxy without stickiness", through_haproxy),
    ("nginx without stickiness", through_nginx),
];

/// Runs all scenarios.
pub(crate) fn run() -> Result<(), Failure> {
    let mut failed = 0;
    for (name, scenario) in SCENARIOS {
        let begun = Instant::now();
        match scenario() {
            Ok(()) => println!("ok    {name} ({:.1} s)", begun.elapsed().as_secs_f64()),
            Err(error) => {
                failed += 1;
                println!("FAIL  {name}: {error}");
            }
        }
    }
    if failed > 0 {
        return Err(format!("{failed} of {} scenarios failed", SCENARIOS.len()).into());
    }
    println!("{} scenarios passed", SCENARIOS.len());
    Ok(())
}

/// A Redis and nodes.
struct Fleet {
    nodes: Vec<Node>,
    redis: Redis,
    _directory: Directory,
}

impl Fleet {
    fn start(count: usize) -> Result<Fleet, Failure> {
        let (redis, directory) = (Redis::start()?, Directory::new()?);
        let ran = directory.0.join("ran");
        let nodes: Result<Vec<Node>, Failure> = (0..count)
            .map(|_| Node::start(&redis.url(), &ran))
            .collect();
        let fleet = Fleet {
            nodes: nodes?,
            redis,
            _directory: directory,
        };
        for node in 0..count {
            fleet.until_ready(node, true)?;
        }
        Ok(fleet)
    }

    fn port(&self, node: usize) -> u16 {
        self.nodes[node].port
    }

    fn open(&self, node: usize) -> Result<Session, Failure> {
        Session::open(self.port(node), &json!({"roots": {}}))
    }

    /// Waits until a node says that it is ready, or is not.
    fn until_ready(&self, node: usize, is_ready: bool) -> Result<(), Failure> {
        let wanted = if is_ready { "200" } else { "503" };
        let url = format!("http://127.0.0.1:{}/readyz", self.port(node));
        eventually(|| {
            let probe = std::process::Command::new("curl")
                .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", &url])
                .output()?;
            let status = String::from_utf8_lossy(&probe.stdout).into_owned();
            check(status == wanted, || {
                format!("/readyz says {status}, not {wanted}")
            })
        })
    }
}

fn check(is_true: bool, text: impl FnOnce() -> String) -> Result<(), Failure> {
    if is_true { Ok(()) } else { Err(text().into()) }
}

/// Tries until it succeeds, for at most 20 s.
fn eventually<T>(mut act: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match act() {
            Ok(done) => return Ok(done),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Calls `echo`, and checks the reply.
fn echo(session: &mut Session, port: u16) -> Result<Value, Failure> {
    let (outcome, result) = session.call(port, "echo", &json!({"text": "hello"}))?;
    check(outcome == Outcome::Reply, || {
        format!("echo ended with {outcome:?}")
    })?;
    let text = &result["content"][0]["text"];
    check(text == "\"hello\"", || format!("echo said {result}"))?;
    Ok(result)
}

fn any_node() -> Result<(), Failure> {
    let fleet = Fleet::start(3)?;
    let mut session = fleet.open(0)?;
    let mut pids = Vec::new();
    for round in 0..9 {
        pids.push(echo(&mut session, fleet.port(round % 3))?["pid"].clone());
    }
    pids.dedup();
    check(pids.len() == 1, || {
        "a session was served by several nodes".into()
    })?;
    let count = json!({"n": 50, "ms": 1, "tag": 1});
    for node in 0..3 {
        let (outcome, _) = session.call(fleet.port(node), "count", &count)?;
        check(outcome == Outcome::Reply, || format!("{outcome:?}"))?;
    }
    Ok(())
}

fn deleted() -> Result<(), Failure> {
    let fleet = Fleet::start(3)?;
    let mut session = fleet.open(0)?;
    let status = session.delete(fleet.port(1))?;
    check(status == 204, || format!("DELETE got {status}"))?;
    for node in 0..3 {
        let (outcome, _) = session.call(fleet.port(node), "echo", &json!({}))?;
        check(outcome == Outcome::SessionLost, || {
            format!("node {node}: {outcome:?}")
        })?;
    }
    Ok(())
}

fn answered_elsewhere() -> Result<(), Failure> {
    let fleet = Fleet::start(3)?;
    let mut session = fleet.open(0)?;
    let ask = session.message("ask", &json!({}));
    let mut events = session.post(fleet.port(1), &ask)?.events();
    loop {
        let event = events.next()?.ok_or("the stream ended without a reply")?;
        let Some(message) = event.data else {
            continue;
        };
        if message["method"] == "roots/list" {
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {"roots": []}});
            let status = session.post(fleet.port(2), &answer)?.status;
            check(status == 202, || format!("the answer got {status}"))?;
        } else if message["id"] == ask["id"] {
            let text = message["result"]["content"][0]["text"].to_string();
            return check(text.contains("roots"), || message.to_string());
        }
    }
}

fn changed_elsewhere() -> Result<(), Failure> {
    let fleet = Fleet::start(3)?;
    let (listening, mut calling) = (fleet.open(0)?, fleet.open(1)?);
    let mut events = listening.get(fleet.port(2), None)?.events();
    let primer = events.next()?.ok_or("no first event")?;
    check(primer.id.is_some(), || "the stream has no id".into())?;
    calling.call(fleet.port(1), "publish", &json!({}))?;
    let told = events.next()?.ok_or("the stream ended")?;
    let method = told.data.unwrap_or_default()["method"].to_string();
    check(method.contains("tools/list_changed"), || method)
}

fn resumed_elsewhere() -> Result<(), Failure> {
    let fleet = Fleet::start(2)?;
    let mut session = fleet.open(0)?;
    let message = session.message("count", &json!({"n": 40, "ms": 50, "tag": 1}));
    let (mut seen, mut last, mut port) = (0, String::new(), 0);
    // The client leaves after 5 events, again and again, and goes on at the other node.
    let mut events = session.post(fleet.port(0), &message)?.events();
    loop {
        let from = seen;
        while let Some(event) = events.next()? {
            last = event.id.unwrap_or(last);
            let data = event.data.unwrap_or_default();
            if let Some(n) = data["params"]["data"]["n"].as_u64() {
                check(n == seen + 1, || format!("{n} came after {seen}"))?;
                seen = n;
            }
            if data["id"] == message["id"] {
                return check(seen == 40, || format!("the reply came after {seen}"));
            }
            if seen >= from + 5 {
                break;
            }
        }
        port = 1 - port;
        events = session.get(fleet.port(port), Some(&last))?.events();
    }
}

fn node_killed() -> Result<(), Failure> {
    let mut fleet = Fleet::start(3)?;
    let mut session = fleet.open(0)?;
    let mut events = session.get(fleet.port(0), None)?.events();
    let primer = events.next()?.and_then(|event| event.id).ok_or("no id")?;
    fleet.nodes[0].process.kill();
    let taken = Instant::now();
    eventually(|| echo(&mut session, fleet.port(1)))?;
    let taken = taken.elapsed();
    check(taken < Duration::from_secs(8), || {
        format!("the takeover took {taken:?}")
    })?;
    echo(&mut session, fleet.port(2))?;
    // The stream that was at the dead node goes on, and says what may have been missed.
    let mut events = session.get(fleet.port(2), Some(&primer))?.events();
    loop {
        let event = events.next()?.ok_or("the stream ended")?;
        if event
            .data
            .is_some_and(|data| data["method"] == "notifications/tools/list_changed")
        {
            return Ok(());
        }
    }
}

fn call_lost() -> Result<(), Failure> {
    let mut fleet = Fleet::start(2)?;
    let mut session = fleet.open(0)?;
    let port = fleet.port(1);
    let running = thread::spawn(move || {
        let count = json!({"n": 200, "ms": 20, "tag": 1});
        session
            .call(port, "count", &count)
            .map(|(outcome, _)| (outcome, session))
    });
    thread::sleep(Duration::from_millis(500));
    fleet.nodes[0].process.kill();
    let begun = Instant::now();
    let (outcome, mut session) = running.join().map_err(|_| "the client panicked")??;
    check(outcome == Outcome::Unknown, || format!("{outcome:?}"))?;
    let waited = begun.elapsed();
    check(waited < Duration::from_secs(15), || {
        format!("it took {waited:?}")
    })?;
    echo(&mut session, port).map(drop)
}

fn redis_restarted() -> Result<(), Failure> {
    let mut fleet = Fleet::start(2)?;
    let mut session = fleet.open(0)?;
    // A call runs while Redis is gone, and its events are all there.
    let (mut other, port) = (session.clone(), fleet.port(1));
    let running = thread::spawn(move || {
        let count = json!({"n": 100, "ms": 50, "tag": 1});
        other.call(port, "count", &count)
    });
    thread::sleep(Duration::from_millis(500));
    fleet.redis.kill_after_writes()?;
    thread::sleep(Duration::from_secs(1));
    fleet.redis.start_again()?;
    let (outcome, _) = running.join().map_err(|_| "the client panicked")??;
    check(outcome == Outcome::Reply, || {
        format!("the call ended with {outcome:?}")
    })?;
    for node in 0..2 {
        eventually(|| echo(&mut session, fleet.port(node)))?;
    }
    Ok(())
}

fn redis_forgot() -> Result<(), Failure> {
    let fleet = Fleet::start(2)?;
    let mut session = fleet.open(0)?;
    echo(&mut session, fleet.port(0))?;
    fleet.redis.run(&["FLUSHALL"])?;
    // The home knows it when it renews its lease.
    for node in [1, 0] {
        eventually(|| {
            let port = fleet.port(node);
            let (outcome, _) = session.call(port, "echo", &json!({"text": "hello"}))?;
            check(outcome == Outcome::SessionLost, || {
                format!("echo at node {node} ended with {outcome:?}")
            })
        })?;
    }
    Ok(())
}

fn redis_away() -> Result<(), Failure> {
    let mut fleet = Fleet::start(2)?;
    let mut session = fleet.open(0)?;
    fleet.redis.stop()?;
    fleet.until_ready(0, false)?;
    // The lease of the home runs out.
    eventually(|| {
        let message = session.message("echo", &json!({}));
        let begun = Instant::now();
        let status = session.post(fleet.port(0), &message)?.status;
        let waited = begun.elapsed();
        check(waited < Duration::from_secs(6), || {
            format!("it took {waited:?}")
        })?;
        check(status == 503, || format!("the home says {status}"))
    })?;
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let params = json!({"name": "echo", "arguments": {"text": "hi"}, "_meta": meta});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let fields = [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "echo"),
    ];
    let reply = send(fleet.port(1), "POST", &fields, Some(&message))?;
    let status = reply.status;
    check(status == 200, || format!("a modern call got {status}"))?;
    fleet.redis.start_again()?;
    for node in 0..2 {
        fleet.until_ready(node, true)?;
        eventually(|| echo(&mut session, fleet.port(node)))?;
    }
    Ok(())
}

fn rolling_restart() -> Result<(), Failure> {
    let mut fleet = Fleet::start(3)?;
    let sessions: Result<Vec<Session>, Failure> = (0..9).map(|n| fleet.open(n % 3)).collect();
    let mut sessions = sessions?;
    let ports: Vec<u16> = fleet.nodes.iter().map(|node| node.port).collect();
    for node in 0..3 {
        // Calls at the other nodes, of which some run at this one. They end before the deadline of the drain.
        let others: Vec<u16> = ports
            .iter()
            .copied()
            .filter(|port| *port != ports[node])
            .collect();
        let running: Vec<_> = sessions
            .drain(..)
            .enumerate()
            .map(|(n, mut session)| {
                let port = others[n % others.len()];
                thread::spawn(move || {
                    let count = json!({"n": 60, "ms": 20, "tag": n});
                    session
                        .call(port, "count", &count)
                        .map(|(outcome, _)| (outcome, session))
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(300));
        let took = fleet.nodes[node].process.terminate()?;
        check(took < Duration::from_secs(8), || {
            format!("the drain took {took:?}")
        })?;
        for call in running {
            let (outcome, session) = call.join().map_err(|_| "a client panicked")??;
            check(outcome == Outcome::Reply, || {
                format!("node {node}: {outcome:?}")
            })?;
            sessions.push(session);
        }
        for session in &mut sessions {
            eventually(|| echo(session, others[0]))?;
        }
        fleet.nodes[node].start_again()?;
        fleet.until_ready(node, true)?;
    }
    Ok(())
}

/// A node reads its notes once. Redis would otherwise keep 100,000 of them for each node.
fn notes_removed() -> Result<(), Failure> {
    let fleet = Fleet::start(2)?;
    let mut session = Session::open(fleet.nodes[0].port, &json!({}))?;
    for _ in 0..100 {
        echo(&mut session, fleet.nodes[1].port)?;
    }
    eventually(|| {
        for inbox in fleet.redis.run(&["keys", "*:inbox:*"])?.lines() {
            let len: u32 = fleet.redis.run(&["xlen", inbox])?.trim().parse()?;
            check(len <= 1, || format!("{inbox} has {len} notes"))?;
        }
        Ok(())
    })
}

/// Guards with one server process each. One is killed, one is terminated.
fn guards() -> Result<(), Failure> {
    let redis = Redis::start()?;
    let (mut running, mut ports) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let port = free_port()?;
        running.push(start_guard(
            port,
            &["--store", &redis.url(), "--remember", "off"],
        )?);
        ports.push(port);
    }
    let call =
        |session: &mut Session, port| match session.call(port, "echo", &json!({"message": "x"}))? {
            (Outcome::Reply, result) if result["content"][0]["text"] == "x" => Ok(()),
            (outcome, result) => Err(Failure::from(format!("{outcome:?}: {result}"))),
        };
    let mut session = Session::open(ports[0], &json!({}))?;
    for port in &ports {
        call(&mut session, *port)?;
    }
    running[0].kill();
    eventually(|| call(&mut session, ports[1]))?;
    call(&mut session, ports[2])?;
    running[1].terminate()?;
    eventually(|| call(&mut session, ports[2]))?;
    let status = session.delete(ports[2])?;
    check(status == 204, || format!("DELETE got {status}"))
}

fn through_haproxy() -> Result<(), Failure> {
    through(Balancer::haproxy)
}

fn through_nginx() -> Result<(), Failure> {
    through(Balancer::nginx)
}

fn through(balancer: fn(&[u16]) -> Result<Balancer, Failure>) -> Result<(), Failure> {
    let fleet = Fleet::start(3)?;
    let ports: Vec<u16> = fleet.nodes.iter().map(|node| node.port).collect();
    let balancer = balancer(&ports)?;
    let port = balancer.port;
    let mut session = Session::open(port, &json!({}))?;
    let mut events = session.get(port, None)?.events();
    let primer = events.next()?.ok_or("no first event")?;
    check(primer.id.is_some(), || {
        "the stream is buffered, or has no id".into()
    })?;
    for n in 0..12 {
        echo(&mut session, port)?;
        let count = json!({"n": 20, "ms": 1, "tag": n});
        let (outcome, _) = session.call(port, "count", &count)?;
        check(outcome == Outcome::Reply, || format!("{outcome:?}"))?;
    }
    let status = session.delete(port)?;
    check(status == 204, || format!("DELETE got {status}"))
}
